#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A recording of the last stretch when things go wrong around it: the recorder is stopped for long, or gets a processor now and
then only; the disk is full when the stretch is to be written. The program must not notice, what is lost is counted and
said, and everything is well afterwards.

    tests/flight.py [--filter PATTERN] [--build DIR]
"""
import os
import signal
import time

import harness
import last
from harness import case, expect, main, need_root, wait_for
from last import COUNT, consecutive

# Calls step until there is such a file, and says how often that was.
UNTIL = r"""#include <stdio.h>
#include <unistd.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
int main(int argc, char **argv)
{
  long n = 0;
  do {
    for (int i = 0; i < 10000; i++) n += step(1);
  } while (access(argv[1], F_OK) != 0);
  printf("%ld\n", n);
  return n % 10000 == 0 ? 3 : 4;
}
"""


class Scene(last.Scene):
    def endless(self):
        """A recording with a full store, and the file that its program writes to. It runs until it is told to end: on a
        busy machine it takes any time until all has begun."""
        program = self.build(UNTIL)
        out = self.path("out")
        process = self.start_last("2M", "--trace", "step", "--", "/bin/sh", "-c", f"exec {program} {self.path('end')} > {out}")
        return process, out

    def disk(self, megabytes):
        need_root()
        place = self.path("disk")
        os.mkdir(place)
        if self.execute("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place).returncode != 0:
            raise harness.Skip("no tmpfs can be mounted")
        return place


def ended_well(scene, process, out):
    """The program ends. Its output and status are its own, and the trace is of the end. The events in all."""
    scene.write("end", "")
    expect(process.wait(120) == 3, f"status {process.returncode}")
    with open(out, encoding="ascii") as file:
        calls = int(file.read())
    info = scene.info()
    events = info["events"] + info["dropped"] + scene.not_kept(scene.trace)
    expect(info["complete"] and info["events"] > 100000, f"{info['events']} events")
    expect(2 * calls <= events <= 2 * calls + 10, f"{events} events are accounted for, of {2 * calls}")
    return info


@case(some=("recorder", 1))
def recorder_stopped(scene):
    """For some seconds: the program runs on, what is lost meanwhile is counted, what comes after is recorded."""
    seconds = scene.rounds(2, 10)
    process, out = scene.endless()
    target = scene.session(process)["pid"]
    begin = scene.used(target)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    wait_for("half a second of a processor", lambda: scene.used(target) - begin > 0.5)
    os.kill(process.pid, signal.SIGCONT)
    before = scene.session(process)["events"]
    wait_for("events afterwards", lambda: scene.session(process)["events"] > before + 1000000)
    info = ended_well(scene, process, out)
    reasons = info["dropped_by_reason"]
    expect(info["dropped"] > 1000000 and sum(reasons.values()) == info["dropped"], f"{reasons}")
    expect(reasons["drain_late"] > 0.5 * info["dropped"], f"{reasons}")  # the rest: it was too slow before and after
    expect(info["duration_ns"] > seconds * 1e9 and any("LOST" in text for text in info["warnings"]), f"{info['warnings']}")
    return f"{info['dropped']} dropped"


@case(some=("recorder", 1))
def recorder_slow(scene):
    """It gets four fifths of the time taken away, as on a machine that has something else to do."""
    process, out = scene.endless()
    for _ in range(20):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.08)  # four fifths
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.02)  # and one
    info = ended_well(scene, process, out)
    return f"{info['dropped']} dropped"


@case(some=("disk", 1))
def full_at_the_end(scene):
    """One line says where the events are; with room they come from there."""
    disk = scene.disk(1)
    try:
        scene.trace = os.path.join(disk, "trace")
        program = scene.build(COUNT)
        result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--last", "2M", "--args", "--trace", "step", "--",
                               program, "250")
        lines = [line for line in result.stderr.splitlines() if "No space left" in line]
        expect(result.returncode == 125 and len(lines) == 1 and "contrail recover" in lines[0], f"{result.returncode}: {result.stderr}")
        expect(len(scene.stores()) == 1, "the memory is gone")
        info = scene.execute(scene.contrail, "info", scene.trace)
        expect("No space left" in info.stdout + info.stderr or "INCOMPLETE" in info.stdout, info.stdout[:500])
        again = scene.execute(scene.contrail, "recover", scene.trace)
        expect(again.returncode == 1 and "No space left" in again.stderr and len(scene.stores()) == 1, again.stderr)
        scene.run("mount", "-o", "remount,size=64m", disk)
        result = scene.execute(scene.contrail, "recover", scene.trace)
        expect(result.returncode == 0 and scene.stores() == [], result.stderr)
        steps = scene.steps()
        expect(consecutive(steps) and (scene.info()["dropped"] or (steps[-1] == 249999 and len(steps) > 125000)), f"{len(steps)} calls")
    finally:
        scene.run("umount", disk)
    return f"{len(steps)} calls"


@case(some=("disk", 1))
def full_for_a_dump(scene):
    """The dump is refused and leaves nothing; the recording goes on, and another dump elsewhere is whole."""
    disk = scene.disk(1)
    try:
        program = scene.build(COUNT)
        process = scene.start_last("2M", "--args", "--trace", "step", "--", program, "100000000", "rests")
        wait_for("more than the disk holds", lambda: scene.kept(process).get("bytes", 0) > 3 << 19)
        place = os.path.join(disk, "dump")
        result = scene.execute(scene.contrail, "dump", "-o", place)
        expect(result.returncode == 1 and "No space left" in result.stderr and result.stderr.count("\n") == 1, result.stderr)
        expect(not os.path.exists(place) or os.listdir(place) == [], "something is left")
        scene.run(scene.contrail, "dump", "-o", "elsewhere")
        expect(scene.info(scene.path("elsewhere"))["complete"] and consecutive(scene.steps(scene.path("elsewhere"))), "not whole")
        scene.run(scene.contrail, "stop", "--end")
        process.wait(60)
        expect(scene.info()["complete"] and scene.stores() == [], "the end was not written")
    finally:
        scene.run("umount", disk)


if __name__ == "__main__":
    main(__doc__, Scene)
