#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings that keep the last stretch only (record --last): that it is exactly the last one, that neither memory nor disk
grows, and that it survives the recorder.

    tests/last.py [--filter PATTERN] [--build DIR] [--seconds N of the long run]
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import harness
from harness import case, expect, main, need_root, wait_for
from processes import children_of

# With a second argument it rests for most of the time: what is looked at while it runs takes no whole processor then. With --args a mebibyte is full
# after some 160,000 calls, without after millions.
COUNT = """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
long outer(long n) { long s = 0; for (long i = 0; i < 1000; i++) s ^= step(n * 1000 + i); return s; }
int main(int argc, char **argv)
{
  long s = 0;
  struct timespec rest = {0, 10000000};
  for (long n = 0; n < atol(argv[1]); n++) { s ^= outer(n); if (argc > 2 && n % 10 == 9) nanosleep(&rest, 0); }
  return s == -1;
}
"""


# Of millions of lines: what they say is read by other tests as JSON, which takes ten times as long.
STEP = re.compile(rb'"kind":"lost"|"kind":"enter","name":"step",[^\n]*?"args":\["(0x[0-9a-f]+)"([^\n]*)')


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.processes = []
        self.runtime = self.path("runtime")
        os.mkdir(self.runtime, 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.runtime)

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
        """The first arguments of the calls of step, in their order; of those after the last loss, on a busy machine."""
        steps, rest = [], b""
        words = [self.contrail, "replay", "--json", trace or self.trace]
        self.command = " ".join(words)
        replay = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=self.folder, env=self.environment)
        for part in iter(lambda: replay.stdout.read1(1 << 20), b""):
            end = part.rfind(b"\n") + 1
            for found in STEP.finditer(rest + part[:end]):
                if found[1] is None:
                    steps = []
                elif b"entered_before" not in found[2]:
                    steps.append(int(found[1], 16))
            rest = part[end:] if end != 0 else rest + part
        replay.stdout.close()
        expect(replay.wait() == 0 and rest == b"", f"replay: status {replay.returncode}")
        return steps

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                children = children_of(process.pid)
                process.kill()
                for pid in children:
                    subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
            process.wait()

    def start(self, *words, **more):
        self.processes.append(subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.PIPE, env=self.environment, **more))
        return self.processes[-1]

    def start_last(self, size, *words):
        """A recording that goes on, with a store that is full."""
        process = self.start(self.contrail, "record", "-q", "-o", self.trace, "--last", size, *words)
        full = 900000 * int(size[:-1])
        wait_for("a full store", lambda: process.poll() is not None or self.kept(process).get("bytes", 0) > full)
        expect(process.poll() is None, "the recording has ended")
        return process

    def kept(self, process):
        for status in json.loads(self.run(self.contrail, "sessions", "--json"))["sessions"]:
            if status.get("controller") == process.pid:
                return status.get("kept", {})
        return {}

    def session(self, process):
        sessions = json.loads(self.run(self.contrail, "sessions", "--json"))["sessions"]
        return next((status for status in sessions if status.get("controller") == process.pid), None)

    def used(self, pid):
        """Seconds of a processor that a process has had."""
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def stores(self):
        place = os.path.join(self.runtime, "contrail")
        names = os.listdir(place) if os.path.isdir(place) else []
        return [os.path.join(place, name) for name in names if name.endswith(".store")]

    def kill(self, process):
        """The recorder, and what it recorded."""
        pid = self.session(process)["pid"]
        process.kill()
        process.wait()
        os.kill(pid, signal.SIGKILL)
        return pid


def consecutive(numbers):
    return all(b == a + 1 for a, b in zip(numbers, numbers[1:]))


@case
def exact(scene):
    """The calls kept are the last ones, each with its argument, and what is said of the others is their number."""
    program = scene.build(COUNT)
    not_kept = scene.last("1M", "--args", "--trace", "step", "--", program, "600")
    steps = scene.steps()
    expect(consecutive(steps), "not all of the last calls")
    if scene.info()["dropped"]:
        return f"{len(steps)} calls; the machine was too busy for more"
    expect(steps[-1] == 599999, "not the last calls")
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
    text = scene.execute(scene.contrail, "record", "-v", "-o", "other", "--last", "1M", "--args", "--", program, "1000").stderr
    expect(re.search(r", the last [\d.]+ \w+ of the recording; next: contrail report other\n", text), text)
    expect(rows["step"]["calls"] == 20000 and rows["main"]["calls"] == 1 and rows["main"]["entered_before"] == 0, "calls")
    expect(scene.info()["warnings"] == [], "there are warnings")


@case(some=("dear", 2))
def open_calls(scene):
    """Those that were open at the begin are entered there: they count as time, not as calls."""
    program = scene.build(COUNT)
    scene.last("1M", "--args", "--trace", "step", "--trace", "outer", "--trace", "main", "--", program, "1000")
    rows = scene.rows()
    expect(rows["main"]["calls"] == 0 and rows["main"]["entered_before"] == 1, "main is a call")
    share = rows["main"]["total_ns"] / max(1, rows["outer"]["total_ns"])
    expect(0.9 < share < 1.1 + 1e6, f"main has {share} of the time of outer")
    expect(rows["outer"]["calls"] * 1000 <= rows["step"]["calls"] <= (rows["outer"]["calls"] + 1) * 1000, "calls are missing")


@case(some=("dear", 2))
def checks(scene):
    """What was not kept is not taken for what was not called: a check has a bound. A piece of what is there is all there."""
    not_kept = scene.last("1M", "--args", "--", scene.build(COUNT), "1000")
    expect(not_kept > 0, "all was kept")
    answers = {
        "program!step.calls > 3": "holds", "program!step.calls <= 3": "fails", "program!step.calls < 100G": "unanswered", "program!step.p99 < 100s": "unanswered",
        "program!step.total > 1ns": "holds", "program!step.min < 1s": "holds", "_init.calls == 0": "unanswered", "no losses": "fails"}
    if json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["dropped"] == 0:
        told = json.loads(scene.run(scene.contrail, "check", "--json", scene.trace, *answers, status=1))["checks"]
        expect({answer["check"]: answer["result"] for answer in told} == answers, told)
        expect(told[0]["bound"] == "at least", told)
    piece = f"{scene.trace}@{scene.begin_ns() / 1e9 + 0.001:.9f}.."
    if "lost" not in scene.run(scene.contrail, "report", piece):
        scene.run(scene.contrail, "check", piece, "program!step.calls > 3", "program!step.calls < 100G", "program!step.p99 < 100s", "_init.calls == 0", "no losses")


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


@case(some=("dear", 2))
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
    if scene.info()["dropped"]:
        raise harness.Skip("the machine is too busy: events were lost")
    begin = scene.begin_ns()
    steps = [int(line["args"][0], 16) for line in lines if line["ts_ns"] > begin]
    expect(steps[-1] == 999999 and consecutive(steps) and len(steps) > 500, "not the last calls, or not all of them")
    expect(0 <= not_kept - 2 * (1000000 - len(lines)) <= len(lines) - len(steps), f"{not_kept} events not kept")
    expect(scene.info()["events"] + not_kept == 2000000, "the sums are wrong")


@case(some=("dear", 2))
def threads_without_end(scene):
    """Those that have ended, and of which nothing is kept, are a sum: the list does not grow."""
    program = scene.build("""#include <pthread.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
void *run(void *a) { for (long i = 0; i < 500; i++) step(i); return 0; }
int main(void) { for (long n = 0; n < 3000; n++) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0); }
  return 0; }
""", "-pthread")
    not_kept = scene.last("1M", "--args", "--trace", "step", "--", program)
    manifest, info = scene.manifest(), scene.info()
    gone = manifest["kept"]["threads_gone"]
    expect(gone > 500 and gone + len(manifest["threads"]) == 3000, f"{gone} threads are a sum")
    expect(info["events"] + not_kept + info["dropped"] == 3000000, "the sums are wrong")
    expect(info["warnings"] == [info["warnings"][0]], "there is damage")
    return f"{len(manifest['threads'])} threads of 3000 are listed"


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
    expect(scene.stores() == [], "a store is left")


@case
def output_too(scene):
    """What the program wrote goes with the events of the same time."""
    program = scene.build('#include <stdio.h>\nint main(void) { for (int i = 0; i < 40000; i++) { printf("line %d %0100d\\n", i, i); '
                          "fflush(stdout); } }\n")
    scene.last("1M", "--trace", "main", "--", program)
    text = scene.run(scene.contrail, "output", scene.trace)
    lines = [line for line in text.splitlines() if "line " in line]
    numbers = [int(re.search(r"line (\d+) ", line)[1]) for line in lines]
    falls = [pair for pair in zip(numbers, numbers[1:]) if pair[1] < pair[0]]
    expect(not falls and numbers[0] > 1000,
           f"not the last lines: {len(numbers)} from {numbers[:1]} to {numbers[-1:]}, out of order {falls[:3]}; {scene.manifest()['output']}")
    expect(1000 < len(lines) < 39000, f"{len(lines)} lines were kept")


@case(some=("dear", 2))
def dump_while_running(scene):
    """Dumps are whole traces, each of what was last, and the recording goes on to its end. (While a dump is written the oldest
    events go; of a mebibyte, on a busy machine, nearly all.)"""
    program = scene.build(COUNT)
    process = scene.start_last("1M", "--args", "--trace", "step", "--", program, "1000000", "rests")
    last = 0
    for turn in (1, 2):
        answer = json.loads(scene.run(scene.contrail, "dump", "--json", str(scene.session(process)["pid"])))["dump"]
        expect(answer["directory"] == f"{scene.trace}.dump-{turn}", "not the name that was to be expected")
        info, steps = scene.info(answer["directory"]), scene.steps(answer["directory"])
        if info["dropped"] and not steps:
            continue  # a busy machine: what was last is a loss
        expect(info["complete"] and info["events"] == answer["events"], "not complete")
        if turn == 1:
            end = scene.run("/bin/sh", "-c", f"{scene.contrail} replay --json {answer['directory']} | tail -n 100")
            typed = [line["arguments"][0] for line in harness.parse_lines(end) if "arguments" in line]
            expect(typed and typed[-1]["name"] == "n" and typed[-1]["value"] == steps[-1],
                   f"values have no names: {typed[-1:]} after {len(typed)}, but {steps[-1:]}")
        expect(consecutive(steps) and (len(steps) > 20000 or info["dropped"]) and steps[-1] > last,
               f"not the last calls, or not all: {len(steps)} from {steps[:1]} to {steps[-1:]}, before {last}, dropped {info['dropped']}")
        if info["dropped"] == 0:
            expect(answer["not_kept"] in (2 * steps[0], 2 * steps[0] - 1), "not all the others are counted")
        last = steps[-1]
    for words in (("sql", scene.trace, "SELECT count(*) FROM spans"), ("report", scene.trace), ("replay", scene.trace), ("check", scene.trace, "no losses")):
        said = scene.execute(scene.contrail, *words).stderr  # the events are in memory: that is no damage
        expect("damaged" not in said.lower(), f"{words}: {said}")
    expect(scene.execute(scene.contrail, "dump", "-o", answer["directory"]).returncode == 1, "written over")
    scene.run(scene.contrail, "dump", "-o", "here")
    scene.run(scene.contrail, "info", "here")
    scene.run(scene.contrail, "stop", "--end")
    process.wait(60)
    expect(scene.info()["complete"] and scene.not_kept(scene.trace) > answer["not_kept"], "the end was not written")
    expect(scene.stores() == [], "the store is left")


@case
def dump_of_others(scene):
    process = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, "--", "/bin/sleep", "100")
    wait_for("the session", lambda: scene.kept(process) == {} and "sleep" in scene.run(scene.contrail, "sessions"))
    result = scene.execute(scene.contrail, "dump")
    expect(result.returncode == 1 and "keeps all events" in result.stderr, result.stderr)
    scene.run(scene.contrail, "stop", "--end")


@case
def killed(scene):
    """The recorder dies by SIGKILL: recover has all but what was in the last block."""
    program = scene.build(COUNT)
    process = scene.start_last("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    expect(scene.execute(scene.contrail, "recover", scene.trace).returncode == 1, "recovered while it is recorded")
    expect(scene.trace not in scene.execute(scene.contrail, "recover", "2000000000").stderr, "one that lives is named")
    recorded = scene.session(process)["events"]
    pid = scene.kill(process)
    text = scene.run(scene.contrail, "info", scene.trace)
    expect("contrail recover" in text.splitlines()[0], text)
    result = scene.execute(scene.contrail, "recover", f"program-{pid}")
    expect(result.returncode == 0 and f"in {scene.trace}" in result.stderr, result.stderr)
    expect(scene.stores() == [], "the store is left")
    steps = scene.steps()
    holes = [pair for pair in zip(steps, steps[1:]) if pair[1] != pair[0] + 1][:3]
    expect(not holes and (len(steps) > 50000 or scene.info()["dropped"]),
           f"not all of the last calls: {len(steps)} steps, {steps[:1]} to {steps[-1:]}, dropped {scene.info()['dropped']}, holes {holes}")
    expect(scene.info()["dropped"] or 2 * steps[-1] > recorded - 100000, f"up to call {steps[-1:]}, but {recorded} events had been recorded")
    expect(scene.manifest()["state"] == "recovered", "the state is wrong")
    first = scene.run(scene.contrail, "info", scene.trace).splitlines()
    expect(first[0].startswith("holds the last ") and first[1].startswith("RECOVERED"), first[0])
    expect(scene.execute(scene.contrail, "recover", str(pid)).returncode == 3, "recovered twice")
    expect(scene.execute(scene.contrail, "recover", scene.trace).returncode == 0, "nothing to do is an error")
    return f"{len(steps)} calls"


def recovers_the_second(scene, first):
    result = scene.execute(scene.contrail, "recover", str(first))
    expect(result.returncode == 1 and "has gone" in result.stderr and "rm gives the memory back" in result.stderr, result.stderr)
    result = scene.execute(scene.contrail, "recover", scene.trace)
    expect(result.returncode == 0 and f"in {scene.trace}" in result.stderr and len(scene.stores()) == 1, result.stderr)
    expect(len(scene.steps()) > 10000, "nothing is recovered")


@case(some=("killed", 2))
def killed_twice(scene):
    """The memory of a recording whose trace was removed is in nobody's way: that of the one that is there is recovered."""
    program = scene.build(COUNT)
    words = ("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    first = scene.kill(scene.start_last(*words))
    os.rename(scene.trace, scene.trace + ".removed")
    scene.kill(scene.start_last(*words))
    recovers_the_second(scene, first)


@case(some=("killed", 2))
def killed_in_one_directory(scene):
    """Even if the second one has the directory of the first, whose files were removed."""
    program = scene.build(COUNT)
    words = ("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    first = scene.kill(scene.start_last(*words))
    for name in os.listdir(scene.trace):
        path = os.path.join(scene.trace, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    scene.kill(scene.start_last(*words))
    recovers_the_second(scene, first)


@case(some=("killed", 2))
def killed_ordinary(scene):
    """An ordinary trace gets its end."""
    program = scene.build(COUNT)
    process = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, "--args", "--trace", "step", "--", program, "100000000", "rests")
    index = os.path.join(scene.trace, "thread_0", "index.ctb")
    wait_for("some events", lambda: os.path.exists(index) and os.path.getsize(index) > 300000)
    result = scene.execute(scene.contrail, "recover", scene.trace)
    expect(result.returncode == 1 and "is being recorded" in result.stderr, result.stderr)
    scene.kill(process)
    with open(index, "r+b") as file:  # the last block was written in part
        file.truncate(os.path.getsize(index) - 5)
    before = scene.steps()
    result = scene.execute(scene.contrail, "recover", scene.trace)
    expect(result.returncode == 0 and "written in part" in result.stderr, result.stderr)
    expect(scene.steps() == before and consecutive(before) and before[0] == 0, "other calls than before")
    info = scene.info()
    lost = sum(map(int, re.findall(r"([\d,]+) events are lost", result.stderr.replace(",", ""))))
    expect(info["complete"] and 0 <= info["events"] - lost - 2 * len(before) + 1 <= 2,
           f"complete {info['complete']}, {info['events']} events, {lost} lost, but {len(before)} steps, {before[-3:]}; dropped {info['dropped']}")
    expect(len(info["warnings"]) == (2 if lost else 1) and info["warnings"][0].startswith("RECOVERED"), str(info["warnings"]))


@case(some=("killed", 2))
def killed_counted(scene):
    """The manifest knows of more events than the files hold: how many are gone is said wherever the trace is read."""
    program = scene.build(COUNT)
    process = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "step", "--", program, "100000000", "rests")
    path = os.path.join(scene.trace, "manifest.json")

    def counted():
        return sum(thread["events"] for thread in scene.manifest()["threads"]) if os.path.exists(path) else 0

    wait_for("a count", counted)
    first = counted()
    wait_for("a later one", lambda: counted() > first)
    scene.kill(process)
    manifest = scene.manifest()
    manifest["threads"][0]["events"] = 10**9
    with open(path, "w") as file:
        json.dump(manifest, file)
    result = scene.execute(scene.contrail, "recover", scene.trace)
    (step,) = json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"]
    steps = step["calls"]
    (lost,) = re.findall(r"thread_0\): ([\d,]+) events are lost", result.stderr)
    lost = int(lost.replace(",", ""))
    expect(0 <= 10**9 - lost - 2 * steps + 1 <= 2, f"{lost} lost, {steps} steps")
    for command in ("info", "report", "replay"):
        result = scene.execute(scene.contrail, command, *(["--limit", "1"] if command == "replay" else []), scene.trace)
        expect(f"{lost} of {10**9} events are gone" in result.stdout + result.stderr, f"{command}: no word of it")


def check_dropped(scene, *words):
    """Events were lost before the recorder was killed: how many is in the blocks, whatever the manifest says."""
    program = scene.build(COUNT)
    process = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, *words, "--no-wait", "--args", "--trace", "step", "--",
                          program, "100000000")
    wait_for("the session", lambda: "program" in scene.run(scene.contrail, "sessions"))
    wait_for("events", lambda: scene.session(process)["events"])
    target = scene.session(process)["pid"]
    begin = scene.used(target)
    process.send_signal(signal.SIGSTOP)
    wait_for("more than the ring holds", lambda: scene.used(target) > begin + 1)
    process.send_signal(signal.SIGCONT)
    wait_for("a loss", lambda: scene.session(process)["dropped"])
    before = scene.session(process)["events"]
    wait_for("its block", lambda: scene.session(process)["events"] > before + 200000)
    scene.kill(process)
    manifest = scene.manifest()
    manifest["dropped_total"] = 0
    for thread in manifest["threads"]:
        thread["dropped"] = 0
    with open(os.path.join(scene.trace, "manifest.json"), "w") as file:
        json.dump(manifest, file)
    scene.run(scene.contrail, "recover", scene.trace)
    lines = scene.run(scene.contrail, "replay", "--type", "lost", scene.trace)
    lost = sum(int(count.replace(",", "")) for count in re.findall("events lost: ([0-9,]+)", lines))
    info, manifest = scene.info(), scene.manifest()
    expect(lost > 0 and info["dropped"] == lost == manifest["dropped_total"] == manifest["threads"][0]["dropped"],
           f"{lost} lost, but {info['dropped']} in info, {manifest['dropped_total']} in all")


@case(some=("killed", 2))
def killed_dropped(scene):
    check_dropped(scene)


@case(some=("killed", 2))
def killed_dropped_last(scene):
    check_dropped(scene, "--last", "128M")


@case(some=("dear", 2))
def fuzzed_store(scene):
    """Stores that are cut and scribbled over: a trace, or one clear line, and never anything else."""
    program = scene.build(COUNT)
    process = scene.start_last("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    scene.kill(process)
    (store,) = scene.stores()
    with open(store, "rb") as file:
        whole = file.read()
    saved = scene.path("saved")
    shutil.copytree(scene.trace, saved)
    drawn = random.Random(13)
    outcomes = {0: 0, 1: 0}
    turns = scene.rounds(100, 300)
    for _ in range(turns):
        data = bytearray(whole)
        for _ in range(drawn.choice((1, 1, 5, 50))):
            at = drawn.randrange(128) if drawn.random() < 0.3 else drawn.randrange(len(data))
            data[at:at + 8] = drawn.randbytes(drawn.choice((1, 4, 8)))
        data = data[:len(whole) if drawn.random() < 0.7 else drawn.randrange(len(data))]
        with open(store, "wb") as file:  # the same file, or the one that the last turn removed
            os.chmod(store, 0o600)
            file.write(data)
        with open(os.path.join(saved, "manifest.json"), "rb") as source:
            scene.write("trace/manifest.json", source.read(), 0o600)
        result = scene.execute(scene.contrail, "recover", scene.trace)
        lines = result.stderr.splitlines()
        expect(result.returncode in (0, 1) and len(lines) == 1 and lines[0].startswith("contrail: "), result.stderr)
        outcomes[result.returncode] += 1
        if result.returncode == 0 and "recovered" in lines[0]:
            scene.run(scene.contrail, "report", scene.trace)
    expect(outcomes[0] > turns // 3, f"only {outcomes[0]} gave a trace")
    return f"{outcomes[0]} traces, {outcomes[1]} refusals"


@case
def small_tmpfs(scene):
    """Both places are full: a refusal that names them, and nothing left."""
    need_root()
    harness.need("unshare", "mount")
    runtime = scene.runtime
    script = (f"mount -t tmpfs -o size=2m none {runtime} && mount -t tmpfs -o size=2m none /dev/shm || exit 77; "
              f"{scene.contrail} record -o {scene.trace} --last 8M -- /bin/true; status=$?; "
              f"ls {runtime}/contrail /dev/shm/contrail-* | grep store && exit 78; exit $status")
    result = scene.execute("unshare", "-m", "sh", "-c", script)
    if result.returncode in (1, 77):
        raise harness.Skip("no mount here: " + result.stderr.strip()[-100:])
    expect(result.returncode == 125 and "too little room" in result.stderr, f"{result.returncode}: {result.stderr}")
    expect(not os.path.exists(scene.trace), "a directory is left")


@case(some=("dear", 2))
def followed(scene):
    """Children have memory of their own, and their traces what was last in them."""
    program = scene.build("#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
                          'long step(long n) { __asm__ volatile("" ::: "memory"); return n; }\n'
                          "int main(void) { for (int c = 0; c < 3; c++) if (fork() == 0) {\n"
                          "for (long n = 0; n < 500000; n++) step(n); exit(0); }\n"
                          "while (wait(0) > 0) ; return 0; }\n")
    scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--follow", "--last", "4M", "--trace", "step", "--args", "--",
              program)
    children = [child["directory"] for child in scene.manifest()["children"]]
    expect(len(children) == 3, f"{len(children)} children")
    for child in children:
        steps, dropped = scene.steps(os.path.join(scene.trace, child)), scene.info(os.path.join(scene.trace, child))["dropped"]
        expect(consecutive(steps), "not all of the last calls")
        expect(dropped or (steps[-1] == 499999 and 10000 < len(steps) < 450000),  # with --last nobody waits on a busy machine
               f"not the last calls: {len(steps)}, {steps[:1]} to {steps[-1:]}")
    expect(scene.stores() == [], "stores are left")


@case
def flat(scene):
    """Neither memory nor disk grow while it runs."""
    program = scene.build(COUNT)
    process = scene.start_last("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")

    def sizes():
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            resident = int(re.search(r"RssAnon:\s+(\d+)", file.read())[1])
        return resident, sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(scene.trace) for name in names)

    def kept():
        return json.loads(scene.run(scene.contrail, "status", "--json"))["kept"]
    wait_for("full memory", lambda: kept()["bytes"] > 0.7 * kept()["limit_bytes"])
    begin = sizes()
    for _ in range(scene.options.seconds):
        time.sleep(1)  # a second each, of which nothing may be kept
        end = sizes()
        expect(end[0] < begin[0] + 4096, f"{end[0]} KiB of memory, {begin[0]} at the begin")
        expect(end[1] < begin[1] + 65536, f"{end[1]} bytes on the disk, {begin[1]} at the begin")
    scene.run(scene.contrail, "stop", "--end")
    process.wait(60)
    return f"{begin[0]} to {end[0]} KiB, {begin[1]} to {end[1]} bytes"


def arguments(parser):
    parser.add_argument("--seconds", type=int, default=2, help="of the long run")


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
