#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings that keep the last stretch only (record --last): that it is exactly the last one, that neither memory nor disk
grows, and that it survives the recorder.

    tests/last.py [--filter PATTERN] [--build DIR]
"""
import os
import re

import harness
from harness import case, expect, main

COUNT = """#include <stdio.h>
#include <stdlib.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
long outer(long n) { long s = 0; for (long i = 0; i < 1000; i++) s ^= step(n * 1000 + i); return s; }
int main(int argc, char **argv)
{
  long s = 0;
  for (long n = 0; n < atol(argv[1]); n++) s ^= outer(n);
  return s == -1;
}
"""


class Scene(harness.Scene):
    def build(self, text, *words, name="program"):
        return self.compile(self.write(name + ".c", text), "-O1", "-g", "-fno-inline", "-w", *words, name=name)

    def last(self, size, *words, status=0):
        """The line about the trace that record --last has written: the events that were not kept."""
        self.run(self.contrail, "record", "-q", "-o", self.trace, "--last", size, *words, status=status)
        return self.not_kept(self.trace)

    def not_kept(self, trace):
        first = self.run(self.contrail, "info", trace).splitlines()[0]
        found = re.fullmatch(r"holds the last [\d.]+ (ns|us|ms|s|min|h); ([\d,]+) events? before that w(as|ere) not kept", first)
        return int(found[2].replace(",", "")) if found else 0

    def begin_ns(self, trace=None):
        """Everything after that is in the trace, in the times of replay."""
        manifest = self.manifest(trace)
        clock = manifest["clock"]
        rate = (clock["ns1"] - clock["ns0"]) / (clock["tsc1"] - clock["tsc0"])
        return clock["ns0"] + (manifest["kept"]["begin_tsc"] - clock["tsc0"]) * rate - manifest["start_ns"]

    def steps(self, trace=None):
        """The first arguments of the calls of step, in their order."""
        lines = self.lines(trace=trace)
        return [int(line["args"][0], 16) for line in lines if line["kind"] == "enter" and line["name"] == "step" and
                "entered_before" not in line]


def consecutive(numbers):
    return all(b == a + 1 for a, b in zip(numbers, numbers[1:]))


@case
def exact(scene):
    """The calls kept are the last ones, each with its argument, and what is said of the others is their number."""
    program = scene.build(COUNT)
    not_kept = scene.last("1M", "--args", "--trace", "step", "--", program, "600")
    steps = scene.steps()
    expect(steps[-1] == 599999 and consecutive(steps), "not the last calls, or not all of them")
    before = 600000 - len(steps)
    expect(not_kept in (2 * before, 2 * before - 1), f"{not_kept} events are said not to be kept, of {before} calls")
    manifest, info = scene.manifest(), scene.info()
    expect(info["events"] == 1200000 - not_kept == manifest["threads"][0]["events"], "the sums are wrong")
    expect(manifest["threads"][0]["not_kept"] == not_kept and manifest["state"] == "complete", "the manifest is wrong")
    row = scene.rows()["step"]
    expect(row["calls"] == len(steps) and row["entered_before"] == not_kept % 2, "the report is wrong")
    expect(info["bytes"] < 2 << 20, f"{info['bytes']} bytes")
    return f"{len(steps)} calls of 600000"


@case
def all_of_it(scene):
    """What fits is kept, as an ordinary recording has it."""
    program = scene.build(COUNT)
    expect(scene.last("4M", "--", program, "20") == 0, "something was not kept")
    rows = scene.rows()
    expect(rows["step"]["calls"] == 20000 and rows["main"]["calls"] == 1 and rows["main"]["entered_before"] == 0, "calls")
    expect(scene.info()["warnings"] == [], "there are warnings")


@case
def open_calls(scene):
    """Those that were open at the begin are entered there: they count as time, not as calls."""
    program = scene.build(COUNT)
    scene.last("1M", "--trace", "step", "--trace", "outer", "--trace", "main", "--", program, "20000")
    rows = scene.rows()
    expect(rows["main"]["calls"] == 0 and rows["main"]["entered_before"] == 1, "main is a call")
    share = rows["main"]["total_ns"] / max(1, rows["outer"]["total_ns"])
    expect(0.9 < share < 1.1 + 1e6, f"main has {share} of the time of outer")
    expect(rows["outer"]["calls"] * 1000 <= rows["step"]["calls"] <= (rows["outer"]["calls"] + 1) * 1000, "calls are missing")


@case
def by_time(scene):
    """--last TIME: nothing much older than that."""
    program = scene.build("#include <unistd.h>\nint tick(long n) { usleep(1000); return n; }\n"
                          "int main(void) { int s = 0; for (long n = 0; n < 1500; n++) s += tick(n); return s == 0; }\n")
    not_kept = scene.last("500ms", "--trace", "tick", "--args", "--", program)
    lines = [line for line in scene.lines() if line["kind"] == "enter" and "entered_before" not in line]
    expect(not_kept > 0, "everything was kept")
    expect(int(lines[-1]["args"][0], 16) == 1499, "not the last calls")
    span = lines[-1]["ts_ns"] - lines[0]["ts_ns"]
    expect(span < 1e9, f"{span} ns were kept")
    expect(scene.manifest()["kept"]["limit_ns"] == 500000000, "the limit is not in the manifest")
    return f"{span / 1e6:.0f} ms"


@case
def threads_that_go(scene):
    """Threads come and go by the hundreds: those that are not kept are counted."""
    program = scene.build("""#include <pthread.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
void *run(void *a) { for (long i = 0; i < 2000; i++) step((long)a * 2000 + i); return 0; }
int main(void) { for (long n = 0; n < 500; n++) { pthread_t t; pthread_create(&t, 0, run, (void *)n); pthread_join(t, 0); }
  return 0; }
""", "-pthread")
    not_kept = scene.last("1M", "--args", "--trace", "step", "--", program)
    lines = [line for line in scene.lines() if line["kind"] == "enter"]
    begin = scene.begin_ns()
    steps = [int(line["args"][0], 16) for line in lines if line["ts_ns"] > begin]
    expect(steps[-1] == 999999 and consecutive(steps) and len(steps) > 10000, "not the last calls, or not all of them")
    expect(0 <= not_kept - 2 * (1000000 - len(lines)) <= len(lines) - len(steps), f"{not_kept} events not kept")
    expect(scene.info()["events"] + not_kept == 2000000, "the sums are wrong")


@case
def contradictions(scene):
    for words, text in ((["--last", "30s", "--lossless"], "lossless"), (["--last", "7"], "takes a time such as"),
                        (["--last", "1M", "--max-output", "3"], "max-output"), (["--last", "8K"], "1M to 1T"),
                        (["--last", "1s,2s"], "takes a time such as"), (["--last", "1M", "--last", "2M"], "last")):
        result = scene.execute(scene.contrail, "record", *words, "--", "/bin/true")
        expect(result.returncode == 2 and text in result.stderr, f"{words}: {result.returncode}, {result.stderr}")


@case
def too_little_room(scene):
    """A refusal with the reason, and nothing left behind."""
    limit = ["prlimit", f"--fsize={8 << 20}"]
    harness.need("prlimit")
    result = scene.execute(*limit, scene.contrail, "record", "-o", scene.trace, "--last", "16M", "--", "/bin/true")
    expect(result.returncode == 125 and "16 MiB" in result.stderr and "limit on a file's size" in result.stderr,
           f"{result.returncode}: {result.stderr}")
    expect(result.stderr.count("\n") == 1, "not one line")
    expect(not os.path.exists(scene.trace), "a directory is left")
    places = [os.path.join(os.environ["XDG_RUNTIME_DIR"], "contrail"), f"/dev/shm/contrail-{os.geteuid()}"]
    for place in places:
        left = [name for name in (os.listdir(place) if os.path.isdir(place) else []) if name.endswith(".store")]
        expect(not left or place.startswith("/dev/shm"), f"{left} are left in {place}")


@case
def output_too(scene):
    """What the program wrote goes with the events of the same time."""
    program = scene.build('#include <stdio.h>\nint main(void) { for (int i = 0; i < 40000; i++) { printf("line %d %0100d\\n", i, i); '
                          "fflush(stdout); } }\n")
    scene.last("1M", "--trace", "main", "--", program)
    text = scene.run(scene.contrail, "output", scene.trace)
    lines = [line for line in text.splitlines() if "line " in line]
    expect(lines[-1].find("line 39999 ") >= 0, "not the last lines")
    expect(1000 < len(lines) < 39000, f"{len(lines)} lines were kept")


if __name__ == "__main__":
    main(__doc__, Scene)
