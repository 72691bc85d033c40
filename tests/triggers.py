#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rules, marks and windows (record --on, contrail mark, contrail trigger), with a program that does what it is told and counts
for itself.

    tests/triggers.py [--filter PATTERN] [--build DIR]
"""
import contextlib
import json
import os
import re
import shutil
import select
import signal
import subprocess
import sys
import time

import harness
from harness import Running, Skip, case, expect, main, wait_for
from processes import NANOSLEEP, all_stopped, children_of, system_call_of, ticks_of

LATE = 'void late(long i) { static volatile long seen; seen = i; }\n'


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        runtime = self.path("runtime")
        os.mkdir(runtime, 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=runtime)
        self.program = self.compile("programs/triggers.c", "-O1", "-w", "-ldl")
        self.process = None
        self.target = None

    def close(self):
        if self.process is not None and self.process.poll() is None:
            for pid in children_of(self.process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it has ended meanwhile
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def start(self, *options, words=()):
        """The program, under contrail record."""
        self.process = subprocess.Popen([self.contrail, "record", "-o", self.trace, *options, "--", self.program, *words],
                                        cwd=self.folder, env=self.environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline().strip()
        expect(line == "ready", f"the program says {line!r}: {self.process.stderr.read() if line == '' else ''}")

    def say(self, what, number):
        self.process.stdin.write(f"{what} {number}\n")
        self.process.stdin.flush()

    def do(self, what, number):
        """What the program has counted."""
        self.say(what, number)
        line = self.process.stdout.readline().strip()
        expect(line.startswith(f"{what} {number}: "), f"the program says {line!r}")
        return int(line.split(": ")[1])

    def finish(self, status=7):
        """The end of the input, and of the program: what contrail said."""
        _, said = self.process.communicate(timeout=60)
        expect(self.process.returncode == status, f"status {self.process.returncode}, not {status}: {said[-1000:]}")
        return said

    def long_calls(self, function, ns):
        """The durations of its calls that took longer, and of the times between two of them that did."""
        between = f"SELECT start - lag(start + duration) OVER (ORDER BY start) duration FROM spans WHERE function = '{function}'"
        asked = (f"SELECT duration FROM spans WHERE function = '{function}' AND duration > {ns}", f"SELECT duration FROM ({between}) WHERE duration > {ns}")
        return [[row["duration"] for row in json.loads(self.run(self.contrail, "sql", "--json", self.trace, one))] for one in asked]

    def ask(self, *words):
        return json.loads(self.run(self.contrail, *words, "--json"))

    def rule(self, text):
        found = [rule for rule in self.manifest()["rules"] if rule["rule"] == text]
        expect(len(found) == 1, f"rule {text!r}: {self.manifest()['rules']}")
        return found[0]

    def windows(self, count, trace=None):
        """Of the manifest; they are well formed."""
        manifest = self.manifest(trace)
        windows = manifest["windows"]
        expect(len(windows) == count, f"{len(windows)} windows, not {count}: {windows}")
        last = 0
        for number, window in enumerate(windows, 1):
            expect(window["number"] == number, f"number {window['number']}, not {number}")
            expect(last < window["begin_tsc"] <= window["end_tsc"], f"out of order: {windows}")
            expect(window["end_ns"] <= manifest["end_ns"] + 1000000, "it ends after the recording")
            expect(window["begin_ns"] >= manifest["start_ns"] - 1000000, "it begins before the recording")
            expect(len(window["reasons"]) == min(window["marks"], 16), f"reasons: {window}")
            last = window["end_tsc"]
        return windows


@case
def slow_among_millions(scene):
    """One slow call of two million: marked once, at the time when it was too slow, with pre- and post-roll as asked for."""
    scene.start("--on", "work > 500ms", "--pre", "100ms", "--post", "300ms")
    slow = scene.do("work", 2000000)
    scene.do("nap", 400)
    said = scene.finish()
    expect(slow == 1, f"{slow} slow calls")
    rule = scene.rule("work > 500ms")
    # One that is taken off the processor between the clock of its return and the event is marked, too (docs/limits.md).
    took, between = scene.long_calls("work", 500000000)
    expect(len(took) <= rule["marks"] <= len(took) + len(between) and rule["functions"] == 1, f"{rule}, but so long took {took}, and between {between}")
    if rule["marks"] > 1:
        return f"{rule['marks']} marks, {len(took)} slow calls: the program had to wait for a processor"
    window, = scene.windows(1)
    reason, = window["reasons"]
    expect(abs(reason["ns"] - window["begin_ns"] - 100000000) < 2000000, f"pre-roll: {window}")
    expect(abs(window["end_ns"] - reason["ns"] - 300000000) < 2000000, f"post-roll: {window}")
    row = scene.rows()["work"]
    expect(row["calls"] == 2000000, f"{row['calls']} calls")
    expect("1 window (contrail info" in said, said)
    return f"{row['calls']} calls"


def enters_around(scene, number, mark):
    """Calls of step in a window, before and after the call that made the mark."""
    lines = [json.loads(line) for line in scene.run(scene.contrail, "replay", "--json", "--window", str(number), scene.trace).splitlines()]
    names = [line["name"] for line in lines if line["kind"] == "enter"]
    at = names.index(mark)
    return names[:at].count("step"), names[at:].count("step")


@case(some=("dear", 2))
def rolls_of_events(scene):
    """As many events as asked for on both sides; more where they are many; marks of the same thread move the end."""
    for pre, post in ((100, 50), (4000, 1000), (20000, 12000)):
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.start("--trace", "step", "--on", "call other", "--pre", f"{pre}ev", "--post", f"{post}ev")
        scene.do("step", 50000)
        scene.do("other", 1)
        scene.do("step", 50000)
        scene.do("nap", 50)
        scene.do("other", 1)
        scene.do("step", 10)
        scene.do("other", 1)
        scene.do("step", 50000)
        scene.finish()
        scene.windows(2)
        before, after = enters_around(scene, 1, "other")
        most = 1 if pre < 4096 else 1.002
        expect(pre / 2 <= before <= pre / 2 * most, f"{before} calls before, {pre} events")
        expect(post / 2 <= after + 0.5 <= post / 2 * most + (0.5 if most == 1 else 50), f"{after} calls after, {post} events")
        before, after = enters_around(scene, 2, "other")
        expect(pre / 2 <= before <= pre / 2 * most, f"{before} calls before, {pre} events")
        expect(post / 2 + 10 <= after + 0.5 <= post / 2 * most + 60, f"{after} calls after two marks, {post} events")
    rolls = scene.manifest()["rolls"]
    expect((rolls["pre_events"], rolls["post_events"]) == (20000, 12000), f"{rolls}")


@case
def rolls_of_few_events(scene):
    """Where there are fewer: all of the thread's. Marks of no thread have their second. Actions wait for the window's end."""
    scene.start("--trace", "step", "--on", "call other: stop", "--on", "every 300ms", "--pre", "1000ev", "--post", "100ev")
    scene.do("step", 5)
    scene.do("nap", 1000)
    scene.do("other", 1)
    scene.do("step", 40)
    scene.do("nap", 300)
    expect(not scene.ask("status")["detached"], "stopped before the window was over")
    scene.do("step", 100)
    wait_for("the end of the recording", lambda: scene.ask("status")["detached"])
    scene.finish()
    before, after = enters_around(scene, 1, "other")
    expect(before == 5 and after >= 50, f"{before} before, {after} after")
    shutil.rmtree(scene.trace)
    scene.start("--trace", "step", "--on", "crash", "--pre", "300ev", "--post", "300ev")
    scene.do("step", 100000)
    scene.say("crash", 0)
    scene.process.communicate(timeout=60)
    window, = scene.windows(1)
    lines = scene.run(scene.contrail, "replay", "--json", "--window", "1", scene.trace).splitlines()
    count = sum(json.loads(line)["kind"] in ("enter", "return") for line in lines)
    expect(300 <= count <= 310, f"{count} events before the crash, {window}")
    for option in ("--pre", "--post"):
        for value in ("0ev", "ev", "1000001ev", "-1ev", "5 ev"):
            refused = scene.execute(scene.contrail, "record", "-o", scene.trace + "-2", option, value, "true")
            expect(refused.returncode == 2 and "events" in refused.stderr, f"{option} {value}: {refused}")


@case
def while_it_goes_on(scene):
    """A call that has not returned is marked when it has taken too long."""
    for ms in (3000, 30000):  # the second one where the first has ended before somebody looked
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.start("--on", "nap > 200ms")
        scene.say("nap", ms)
        wait_for("a mark", lambda: scene.ask("status")["marks"] == 1)
        is_seen = not select.select([scene.process.stdout], [], [], 0)[0]
        expect(scene.process.stdout.readline().strip() == f"nap {ms}: 0", "it ends")
        scene.finish()
        if is_seen:
            break
    expect(is_seen, "it is marked when it returns")
    expect(scene.rule("nap > 200ms")["marks"] == 1, "it is marked again at its end")
    call, = [line for line in scene.lines("--function", "nap") if line["name"] == "nap" and line["kind"] == "enter"]
    late = scene.windows(1)[0]["reasons"][0]["ns"] - scene.manifest()["start_ns"] - call["ts_ns"] - 200000000
    expect(abs(late) < 2000000, f"the mark is {late} ns off")


@case
def a_late_recorder(scene):
    """Where the recorder is late, calls that have returned long ago are no slow ones: no more are marked than there are."""
    scene.start("--on", "step > 50ms", "--no-wait", "--pre", "0", "--post", "0", "--max-windows", "10000", "-q")
    scene.do("step", 10000)
    for _ in range(3):
        os.kill(scene.process.pid, signal.SIGSTOP)
        scene.do("step", 6000000)  # more than there is room for
        scene.say("step", 1000000)
        os.kill(scene.process.pid, signal.SIGCONT)
        scene.process.stdout.readline()
    scene.finish()
    result = scene.execute(scene.contrail, "report", "--json", "--function", "step", "--min-duration", "50ms", scene.trace)
    slow = json.loads(result.stdout)["functions"] if result.returncode == 0 else []  # else there is none
    marks, most = scene.rule("step > 50ms")["marks"], sum(row["calls"] for row in slow)
    if marks > most:  # one that is taken off the processor between the clock of its return and the event is marked, too (docs/limits.md)
        most += len(scene.long_calls("step", 50000000)[1])
    expect(marks <= most, f"{scene.rule('step > 50ms')}, truly {slow}, {most} with what was between two calls")


@case
def calls(scene):
    """As many marks as the program counts calls; in one window, of whose reasons the first 16 are told."""
    scene.start("--on", "call step", "--on", "call main", "--on", "call nothing_such")
    count = scene.do("step", 12345)
    scene.do("other", 100)
    said = scene.finish()
    expect(scene.rule("call step")["marks"] == count == 12345, f"{scene.rule('call step')}, counted {count}")
    expect(scene.rule("call main")["marks"] == 1, "main")
    expect(scene.rows()["step"]["calls"] == count, "the report has others")
    expect(sum(window["marks"] for window in scene.windows(len(scene.manifest()["windows"]))) == count + 1, "marks")
    expect("rule 'call nothing_such' was about no function" in said, said)


@case
def only_what_is_asked_for(scene):
    """Functions of rules are hooked in full although --trace selects others, which it does as without rules."""
    scene.start("--trace", "other", "--on", "work > 500ms", "--on", "may_fail returns < 0")
    scene.do("step", 100)
    scene.do("other", 100)
    failed = scene.do("fail", 5000)
    scene.finish()
    expect(scene.rule("may_fail returns < 0")["marks"] == failed == 5, f"{failed} failed")
    names = set(scene.rows())
    expect(names == {"other", "may_fail"}, f"{names}")


@case
def failures_with_detail(scene):
    """Where the result is in the record of the detail lane, and in no event."""
    for words in (["--detail", "may_fail"], ["--detail", "all"], ["--args"]):
        scene.start(*words, "--on", "may_fail returns < 0")
        failed = scene.do("fail", 5000)
        scene.finish()
        expect(scene.rule("may_fail returns < 0")["marks"] == failed == 5, f"{words}: {scene.rule('may_fail returns < 0')}")
        shutil.rmtree(scene.trace)


@case
def failures(scene):
    """Results, of 32 and of 64 bits."""
    scene.start("--on", "may_fail returns < 0", "--on", "may_fail_long returns == -5", "--on", "may_fail returns > 3")
    failed, failed_long = scene.do("fail", 200000), scene.do("fail_long", 100000)
    scene.finish()
    expect(scene.rule("may_fail returns < 0")["marks"] == failed == 200, f"{failed} counted")
    expect(scene.rule("may_fail_long returns == -5")["marks"] == failed_long == 100, f"{failed_long} counted")
    expect(scene.rule("may_fail returns > 3")["marks"] == 0, "larger than 3 is none")
    row = scene.rows()["may_fail"]
    expect(row["calls"] == 200000, f"{row['calls']} calls")


@case
def rate(scene):
    """Fifty a second are no 5000; ten thousand at once are."""
    scene.start("--on", "rate step > 5000/s")
    scene.do("steps", 60)
    expect(scene.ask("status")["marks"] == 0, "marked too early")
    scene.do("step", 10000)
    scene.finish()
    expect(scene.rule("rate step > 5000/s")["marks"] == 1, f"{scene.rule('rate step > 5000/s')}")


@case
def every(scene):
    scene.start("--on", "every 200ms", "--pre", "10ms", "--post", "10ms")
    scene.do("nap", 1500)
    scene.finish()
    manifest = scene.manifest()
    most = (manifest["end_ns"] - manifest["start_ns"]) / 2e8 + 1
    marks = scene.rule("every 200ms")["marks"]
    expect(6 <= marks <= most, f"{marks} marks, at most {most}")
    windows = scene.windows(marks)
    for one, next_one in zip(windows, windows[1:]):
        apart = next_one["reasons"][0]["ns"] - one["reasons"][0]["ns"]
        expect(abs(apart - 200000000) < 2000000, f"{apart} ns apart")


@case
def every_from_the_beginning(scene):
    """Time that contrail takes until the program runs does not count: it stands for a second (base/test_point.h)."""
    rule = ("-o", scene.trace, "--on", "every 200ms", "--pre", "0", "--post", "0")
    for point in ("trace-opened", "attach-planned"):
        shutil.rmtree(scene.trace, ignore_errors=True)
        with Running(["/bin/sleep", "100"]) as other:
            words = ("attach", *rule, "--for", "500ms", str(other.pid)) if point == "attach-planned" else ("record", *rule, "--", "/bin/sleep", "0.5")
            with Running([scene.contrail, *words], env=dict(scene.environment, CONTRAIL_TEST_POINT=point), stderr=subprocess.PIPE) as recorder:
                wait_for("the test point", lambda: all_stopped(recorder.pid))  # pylint: disable=cell-var-from-loop
                time.sleep(1)  # that is the time
                recorder.send_signal(signal.SIGCONT)
                said = recorder.communicate(timeout=60)[1]
            other.kill()
        manifest, marks = scene.manifest(), scene.rule("every 200ms")["marks"]
        took = manifest["end_ns"] - manifest["start_ns"]
        expect(1 <= marks <= took / 2e8, f"{point}: {marks} marks in {took} ns: {said}")
        first = manifest["windows"][0]["reasons"][0]["ns"] - manifest["start_ns"]
        expect(abs(first - 200000000) < 2000000, f"{point}: the first one at {first} ns")


@case
def ended_by_a_signal(scene):
    scene.start("--on", "signal", "--on", "signal SIGTERM", "--on", "signal SIGUSR1", "--on", "crash")
    scene.say("raise", int(signal.SIGTERM))
    scene.process.communicate(timeout=60)
    marks = [scene.rule(text)["marks"] for text in ("signal", "signal SIGTERM", "signal SIGUSR1", "crash")]
    expect(marks == [1, 1, 0, 0], f"{marks}")
    scene.windows(1)


@case
def handled_signals(scene):
    """The calls of functions that handle them; of handlers that come while it runs, and of one signal alone."""
    scene.start("--on", "signal SIGUSR1", "--on", "signal", "--on", "signal SIGALRM")
    scene.do("handle", int(signal.SIGUSR1))
    for _ in range(5):
        scene.do("raise", int(signal.SIGUSR1))
    scene.do("handle_too", int(signal.SIGUSR2))
    for _ in range(3):
        scene.do("raise", int(signal.SIGUSR2))
    scene.finish()
    marks = [scene.rule(text)["marks"] for text in ("signal SIGUSR1", "signal", "signal SIGALRM")]
    expect(marks == [5, 8, 0], f"{marks}")


def doorbell_waiters(pid):
    """The threads that wait in a shared futex: for one of the ring's doorbells. The session's is older than the drain's."""
    waiting = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{pid}/task/{tid}/syscall", encoding="utf-8") as file:
                words = file.read().split()
            if words[0] == "202" and words[2] == "0x0":
                waiting.append(int(tid))
    return waiting


@contextlib.contextmanager
def no_processor_for(tid):
    """The thread runs only when no other wants to, and on each processor one wants to."""
    os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
    loops = [subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]) for cpu in os.sched_getaffinity(0)]
    try:
        wait_for("a loop on each processor", lambda: all(ticks_of(loop.pid) > 1 for loop in loops))
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        with contextlib.suppress(PermissionError):  # who is not root may not take it back, and need not: nobody else wants to run then
            os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))


@case
def handled_at_once(scene):
    """Signals that come right after their handler, while the thread that finds out who handles them is kept waiting."""
    scene.start("--on", "signal SIGUSR1")
    scene.do("step", 1)
    wait_for("both threads wait", lambda: len(doorbell_waiters(scene.process.pid)) == 2)
    with no_processor_for(min(doorbell_waiters(scene.process.pid))) as loops:
        scene.do("handle", int(signal.SIGUSR1))
        for _ in range(5):
            scene.do("raise", int(signal.SIGUSR1))
        before = [ticks_of(loop.pid) for loop in loops]
        wait_for("both processors to be used by others", lambda: all(ticks_of(loop.pid) > was + 4 for loop, was in zip(loops, before)))
    scene.finish()
    expect(scene.rule("signal SIGUSR1")["marks"] == 5, f"{scene.rule('signal SIGUSR1')}")


@case
def crash(scene):
    """The mark is of the thread that crashed, and at the time of crash.json."""
    scene.start("--on", "crash", "--on", "signal SIGSEGV", "--pre", "50ms")
    scene.do("step", 1000)
    scene.do("nap", 200)
    scene.say("crash", 0)
    scene.process.communicate(timeout=60)
    window, = scene.windows(1)
    with open(scene.path("trace", "crash.json"), encoding="utf-8") as file:
        tsc = json.load(file)["tsc"]
    expect(window["reasons"] == [dict(window["reasons"][0], rule=rule, thread=0, tsc=tsc) for rule in ("crash", "signal SIGSEGV")],
           f"{window}")
    expect(scene.rule("crash")["marks"] == scene.rule("signal SIGSEGV")["marks"] == 1, "marked twice")


@case
def in_every_command(scene):
    """A window is the same piece in all commands: by --window, or in the trace's name where a command takes several or none."""
    scene.start("--on", "call other", "--pre", "100ms", "--post", "100ms")
    for calls in (2000, 3000):
        scene.do("step", 1000)
        scene.do("other", calls)
        scene.do("nap", 300)
    scene.finish()
    scene.windows(2)
    for number, calls in ("1", 2000), ("2", 3000):
        named = f"{scene.trace}@window:{number}"
        rows = {row["name"]: row["calls"] for row in json.loads(scene.run(scene.contrail, "report", "--json", "--window", number, scene.trace))["functions"]}
        same = {row["name"]: row["calls"] for row in json.loads(scene.run(scene.contrail, "report", "--json", named))["functions"]}
        expect(rows == same and rows["other"] == calls, f"{rows} {same}")
        found, = json.loads(scene.run(scene.contrail, "sql", "--json", named, "select count(*) n from spans where function = 'other'"))
        expect(found["n"] == rows["other"], f"{found}, {rows}")
    expect("other" in scene.run(scene.contrail, "diff", "--all", "--limit", "0", f"{scene.trace}@window:1", f"{scene.trace}@window:2"), "diff")
    for command in ("report", "replay", "info", "graph", "export", "cut", "check", "slowest", "html", "tui", "output"):
        expect("--window N" in scene.run(scene.contrail, "help", command), command)
    for words in (["report", f"{scene.trace}@window:3"], ["sql", f"{scene.trace}@window:3", "select 1"]):
        refused = scene.execute(scene.contrail, *words)
        expect(refused.returncode != 0 and "no window 3" in refused.stderr, f"{words}: {refused}")


@case
def handled_crash(scene):
    """A program that handles the fault, and ends by it then, has crashed; one that is ended by another signal has not."""
    scene.start("--on", "crash", "--pre", "50ms", "--post", "10ms")
    scene.do("handle_fault", int(signal.SIGSEGV))
    scene.say("crash", 0)
    scene.process.communicate(timeout=60)
    window, = scene.windows(1)
    expect(window["reasons"][0]["rule"] == "crash" and scene.rule("crash")["marks"] == 1, f"{window}")
    shown = scene.run(scene.contrail, "report", "--limit", "0", "--window", "1", scene.trace)
    expect("on_fault" in shown, shown)
    shutil.rmtree(scene.trace)
    scene.start("--on", "crash")
    scene.do("handle_fault", int(signal.SIGTERM))
    scene.say("raise", int(signal.SIGTERM))
    scene.process.communicate(timeout=60)
    expect(scene.rule("crash")["marks"] == 0, "SIGTERM is no fault")


@case
def by_hand(scene):
    scene.start()
    said = scene.run(scene.contrail, "mark", "first one")
    expect("marked; 1 mark in 1 window" in said, said)
    session = scene.ask("status")["id"]
    status = scene.ask("mark", session, "second")
    expect((status["marks"], status["windows"], status["windows_refused"]) == (2, 1, 0), f"{status}")
    scene.run(scene.contrail, "mark")
    expect("3 in 1 windows, 0 refused" in scene.run(scene.contrail, "status"), "status")
    scene.finish()
    window, = scene.windows(1)
    expect([reason.get("name") for reason in window["reasons"]] == ["first one", "second", None], f"{window}")
    expect({reason["rule"] for reason in window["reasons"]} == {"by hand"}, f"{window}")
    scene.run(scene.contrail, "mark", status=3)
    text = scene.run(scene.contrail, "info", scene.trace)
    expect(re.search(r", by hand \(first one\) at [\d.]+ s, by hand \(second\) at [\d.]+ s, by hand at [\d.]+ s\n", text), text)
    told = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["windows"][0]["reasons"]
    expect([(reason["reason"], reason["name"]) for reason in told] == [("by hand", name) for name in ("first one", "second", None)], told)


@case
def live_result_without_a_type(scene):
    """A rule about the result of a function that gives nothing by its type, which is recorded with --args: from when the rule comes
    its results are recorded, and then no more."""
    scene.program = scene.compile("programs/triggers.c", "-g", "-O1", "-w", "-ldl")
    scene.start("--args", "--trace", "fails_silently")
    scene.do("fail_silently", 2000)
    for _ in range(2):
        scene.ask("trigger", "add", "fails_silently returns < 0")
        scene.do("fail_silently", 3000)
        wait_for("the marks", lambda: any(rule["marks"] == 3 for rule in scene.ask("trigger", "list")["rules"]))
        scene.run(scene.contrail, "trigger", "remove", "fails_silently returns < 0")
        scene.do("fail_silently", 1000)
    scene.finish()
    lines = scene.lines("--function", "fails_silently")
    values = [line["arguments"][0]["value"] for line in lines if line["kind"] == "enter"]
    results = [int(line["result"], 16) for line in lines if line.get("result") is not None]
    expect(values == [*range(2000), *range(3000), *range(1000), *range(3000), *range(1000)], f"{len(values)} calls")
    expect(len(results) == 6000 and results.count((1 << 64) - 5) == 6, f"{len(results)} results")
    expect(sum(window["marks"] for window in scene.manifest()["windows"]) == 6, "marks")


@case
def live(scene):
    """Rules come and go while it runs; what was called before and after does not count."""
    scene.start("--trace", "other")
    scene.do("step", 1000)
    answer = scene.ask("trigger", "add", "call step")
    expect(answer["unmatched"] is False and answer["rules"][0]["functions"] >= 1, f"{answer}")
    answer = scene.ask("trigger", "add", "call no_such_function")
    expect(answer["unmatched"] is True, f"{answer}")
    scene.run(scene.contrail, "trigger", "remove", "call no_such_function")
    count = scene.do("step", 4321)
    scene.ask("trigger", "add", "may_fail returns < 0")
    failed = scene.do("fail", 3000)
    wait_for("the marks", lambda: scene.ask("status")["marks"] == count + failed)
    rules = {rule["rule"]: rule["marks"] for rule in scene.ask("trigger", "list")["rules"]}
    expect(rules == {"call step": count, "may_fail returns < 0": failed}, f"{rules}")
    scene.run(scene.contrail, "trigger", "remove", "call  step")
    scene.do("step", 100)
    expect("there is no rule" in scene.execute(scene.contrail, "trigger", "remove", "call step").stderr, "removed twice")
    wrong = scene.execute(scene.contrail, "trigger", "add", "step >> 1ms")
    expect(wrong.returncode == 2 and "no operator" in wrong.stderr, f"{wrong}")
    twice = scene.execute(scene.contrail, "trigger", "add", "may_fail returns < 0")
    expect(twice.returncode == 1 and "already" in twice.stderr, f"{twice}")
    dump = scene.execute(scene.contrail, "trigger", "add", "call step: dump")
    expect(dump.returncode == 1 and "--last" in dump.stderr, f"{dump}")
    scene.finish()
    expect(scene.rule("may_fail returns < 0")["marks"] == failed == 3, "after the end")
    marks = sum(window["marks"] for window in scene.manifest()["windows"])
    expect(marks == count + failed, f"{marks} marks in windows")


@case
def wrong_texts(scene):
    for text, part in (("step", "no operator"), ("step > 1", "is no time"), ("call", "no function"),
                       ("call step: burn", "no such action"), ("call step: detail", "of which functions"),
                       ("call step: detail [a", "pattern '[a'"),
                       ("signal SIGNONE", "no signal"), ("every never", "no time")):
        result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--on", text, "/bin/true")
        expect(result.returncode == 2 and part in result.stderr and f"--on '{text}'" in result.stderr, f"{result}")
        expect(result.stderr.count("\n") <= 2, result.stderr)
    result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--on", "crash: dump", "/bin/true")
    expect(result.returncode == 125 and "--last" in result.stderr, f"{result}")
    for option in ("--pre", "--post"):
        expect(scene.execute(scene.contrail, "record", option, "soon", "/bin/true").returncode == 2, option)
    expect(not os.path.exists(scene.trace), "there is a trace")


@case
def limit(scene):
    """Windows over the limit are refused and counted; marks within a window are not."""
    scene.start("--on", "call step", "--pre", "0", "--post", "1ms", "--max-windows", "3")
    count = scene.do("steps", 20)
    said = scene.finish()
    scene.windows(3)
    manifest, rule = scene.manifest(), scene.rule("call step")
    expect(rule["marks"] + rule["refused"] == count == 20, f"{rule}")
    expect(manifest["windows_refused"] == rule["refused"] >= 10, f"{manifest['windows_refused']} refused")
    expect("over 3 windows a minute" in said, said)


@case(some=("dear", 2))
def limit_of_size(scene):
    """Dumps and detail have so much on disk, and no more; what is refused for that is said everywhere."""
    scene.start("--last", "8M", "--on", "call other: dump", "--pre", "0", "--post", "10ms", "--max-windows-size", "1M")
    scene.do("step", 15000000)
    scene.do("other", 1)
    wait_for("a dump", lambda: scene.ask("status")["windows_size"]["bytes"] > 1 << 20)
    expect("no more are opened" in scene.run(scene.contrail, "status"), "status does not say it")
    scene.do("nap", 50)
    scene.do("other", 3)
    wait_for("refused marks", lambda: scene.ask("status")["windows_refused"] == 3)
    by_hand = scene.execute(scene.contrail, "mark")
    expect(by_hand.returncode == 1 and "--max-windows-size" in by_hand.stderr, f"{by_hand}")
    said = scene.finish()
    expect("windows have had" in said and "4 later marks were refused" in said, said)
    size = scene.manifest()["windows_size"]
    expect(size["bytes"] > size["limit_bytes"] == 1 << 20 and size["refused"] == scene.manifest()["windows_refused"] == 4, f"{size}")
    expect(os.path.exists(scene.trace + ".dump-1") and not os.path.exists(scene.trace + ".dump-2"), "dumps")
    shutil.rmtree(scene.trace)
    scene.start("--detail", "step", "--on", "call other", "--post", "20s", "--max-windows-size", "1M")
    scene.do("other", 1)
    scene.do("step", 200000)
    wait_for("detail", lambda: scene.ask("status")["windows_size"]["bytes"] >= 1 << 20)
    scene.do("step", 200000)
    scene.finish()
    detail, size = scene.manifest()["detail"], scene.manifest()["windows_size"]
    expect(detail["over_size"] > 100000 and detail["records"] > 1000, f"{detail}")
    expect(detail["records"] + sum(detail[key] for key in ("over_size", "overwritten", "no_room", "outside_windows", "no_memory")) == 800000,
           f"{detail}")
    on_disk = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(scene.trace) for name in names if name == "detail.ctd")
    expect(size["limit_bytes"] <= size["bytes"] <= on_disk < 2 << 20, f"{size}, {on_disk} bytes of detail")
    expect("had all their room on disk" in scene.run(scene.contrail, "info", scene.trace), "info does not say it")


@case
def stop(scene):
    """The recording ends after the post-roll, the program does not."""
    scene.start("--on", "call other: stop", "--post", "100ms")
    scene.do("step", 1000)
    scene.do("other", 5)
    wait_for("the end of the recording", lambda: not scene.ask("sessions")["sessions"][0]["hooked"]
             or scene.ask("status")["detached"])
    scene.do("step", 777)
    scene.finish()
    expect(scene.rows()["step"]["calls"] == 1000, "more is recorded")
    expect(scene.rows()["other"]["calls"] == 5, "the post-roll is not there")
    expect(scene.manifest()["detached"], "not detached")
    expect(scene.rule("call other: stop")["marks"] == 5, "marks")


@case
def dump(scene):
    """What --last holds is written when the post-roll is over, once for a window."""
    scene.start("--last", "16M", "--on", "call other: dump", "--pre", "100ms", "--post", "300ms")
    scene.do("step", 1000)
    scene.do("other", 50)
    first = scene.trace + ".dump-1"
    wait_for("a dump", lambda: os.path.exists(os.path.join(first, "manifest.json")))
    scene.do("nap", 600)
    scene.do("other", 3)
    wait_for("another", lambda: os.path.exists(os.path.join(scene.trace + ".dump-2", "manifest.json")))
    scene.finish()
    expect(scene.rows(trace=first)["other"]["calls"] == 50, "calls in the dump")
    expect(scene.rows(trace=scene.trace + ".dump-2")["other"]["calls"] == 53, "calls in the second")
    scene.windows(1, first)
    scene.windows(2)
    expect(not os.path.exists(scene.trace + ".dump-3"), "a third one")


@case(some=("dear", 2))
def what_is_not_kept(scene):
    """With --last windows are cut to what there is, and those before that are gone."""
    for pre in ("100s", "1ms"):
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.start("--last", "1M", "--args", "--on", "call other", "--on", "call nap", "--pre", pre, "--post", "1ms")
        scene.do("other", 1)
        scene.do("step", scene.rounds(1200000, 20000000))
        scene.do("nap", 20)
        scene.do("step", scene.rounds(1200000, 20000000))
        scene.do("nap", 1)
        scene.finish()
        begin, windows = scene.manifest()["kept"]["begin_tsc"], scene.manifest()["windows"]
        expect(begin != 0 and windows, f"kept from {begin} on: {windows}")
        clock = scene.manifest()["clock"]
        rate = (clock["ns1"] - clock["ns0"]) / (clock["tsc1"] - clock["tsc0"])
        for window in windows:
            for end in ("begin", "end"):
                ns = clock["ns0"] + (window[end + "_tsc"] - clock["tsc0"]) * rate
                expect(abs(window[end + "_ns"] - ns) < 10000, f"{end}_ns is not the time of {end}_tsc: {ns - window[end + '_ns']} ns")
        expect(all(window["begin_tsc"] >= begin for window in windows), f"{windows}, kept from {begin} on")
        expect((windows[0]["begin_tsc"] == begin) == (pre == "100s"), f"{windows}, kept from {begin} on")
        expect(windows[0]["number"] == 1 if pre == "100s" else windows[0]["number"] > 1, f"{windows}")


@case
def off_the_processor(scene):
    scene.start("--on", "off-cpu nap > 200ms", "--on", "off-cpu step > 1ms")
    scene.do("nap", 500)
    scene.do("nap", 20)
    scene.finish()
    source = scene.manifest()["switches"]["source"]
    if source == "totals":
        raise Skip("the kernel does not report switches")
    expect(scene.rule("off-cpu nap > 200ms")["marks"] == 1, f"{scene.manifest()['rules']}")
    return source


@case
def a_library_that_comes_later(scene):
    library = scene.compile(scene.write("late.c", LATE), "-shared", "-fPIC", "-O1", name="late.so")
    scene.start("--on", "call late", words=(library,))
    count = scene.do("late", 999)
    scene.finish()
    expect(scene.rule("call late")["marks"] == count == 999, f"{scene.rule('call late')}, counted {count}")


@case
def attached(scene):
    """With calls that were open before; and rules that come when it is paused."""
    with Running([scene.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            expect(program.stdout.readline() == "ready\n", "not ready")
            program.stdin.write("handle 10\nnap 1500\n")
            program.stdin.flush()
            expect(program.stdout.readline() == "handle 10: 0\n", "no handler")
            wait_for("its nap", lambda: system_call_of(program.pid) == NANOSLEEP)
            asleep = time.monotonic()
            wait_for("the nap to be a long one", lambda: time.monotonic() - asleep > 0.25)  # for "nap > 200ms": it is the time that is meant
            scene.process = subprocess.Popen([scene.contrail, "attach", "-o", scene.trace, "--on", "call step", "--on",
                                              "nap > 200ms", "--on", "nap < 1ms", "--on", "signal SIGUSR1",
                                              str(program.pid)], env=scene.environment,
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            wait_for("an attach", lambda: scene.process.poll() is not None or scene.ask("sessions")["sessions"])
            wait_for("a mark", lambda: scene.ask("status")["marks"] == 1)
            expect(program.stdout.readline() == "nap 1500: 0\n", "it has ended")
            scene.run(scene.contrail, "pause")
            scene.ask("trigger", "add", "call other")
            scene.run(scene.contrail, "resume")
            scene.ask("trigger", "add", "signal")
            said = "step 321: 321", "other 123: 123", "raise 10: 10", "raise 10: 10"
            program.stdin.write("".join(line.split(":")[0] + "\n" for line in said))
            program.stdin.flush()
            expect([program.stdout.readline() for _ in said] == [line + "\n" for line in said], "calls")
            scene.run(scene.contrail, "stop")
            _, said = scene.process.communicate(timeout=60)
        finally:
            program.stdin.close()
    expect(scene.process.returncode == 0, said)
    marks = {rule["rule"]: rule["marks"] for rule in scene.manifest()["rules"]}
    expect(marks == {"call step": 321, "nap > 200ms": 1, "nap < 1ms": 0, "call other": 123, "signal SIGUSR1": 2,
                     "signal": 2}, f"{marks}")


@case
def recorder_killed(scene):
    """What was marked is there after contrail recover; windows end with the trace."""
    for last in ((), ("--last", "1M")):
        scene.start(*last, "--on", "call step", "--pre", "50ms", "--post", "1m")
        scene.do("step", 5)
        path = scene.path("trace", "manifest.json")
        wait_for("a window", lambda: os.path.exists(path) and scene.manifest().get("windows"))
        with open(f"/proc/{scene.process.pid}/task/{scene.process.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        wait_for("all marks in it", lambda: scene.manifest()["windows"][0]["marks"] == 5)
        scene.process.kill()
        scene.process.wait()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        scene.run(scene.contrail, "recover", scene.trace)
        manifest = scene.manifest()
        window, = manifest["windows"]
        expect(manifest["state"] == "recovered" and window["marks"] == 5, f"{window}")
        expect(window["begin_tsc"] < window["end_tsc"] <= manifest["end_tsc"], f"{window}, end {manifest['end_tsc']}")
        expect(window["begin_ns"] < window["end_ns"], f"{window}")
        shutil.rmtree(scene.trace)


@case
def recorder_killed_before_the_events(scene):
    """The manifest has a mark whose events had not been written when contrail was killed: its window, and the trace, end with it."""
    scene.start("--on", "call step", "--pre", "50ms", "--post", "1m")
    scene.do("step", 1)
    path = scene.path("trace", "manifest.json")
    wait_for("a window", lambda: os.path.exists(path) and scene.manifest().get("windows"))
    with open(f"/proc/{scene.process.pid}/task/{scene.process.pid}/children", encoding="ascii") as file:
        children = file.read().split()
    scene.process.kill()
    scene.process.wait()
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    manifest = scene.manifest()
    mark = manifest["clock"]["tsc1"]  # later than what was written: as if all that is there were from long before
    manifest["windows"][0].update(begin_tsc=mark - 1000, reasons=[dict(manifest["windows"][0]["reasons"][0], tsc=mark)])
    scene.write("trace/manifest.json", json.dumps(manifest))
    scene.run(scene.contrail, "recover", scene.trace)
    manifest = scene.manifest()
    window, = manifest["windows"]
    expect((window["begin_tsc"], window["end_tsc"], manifest["end_tsc"]) == (mark - 1000, mark, mark), f"{window}, end {manifest['end_tsc']}, mark {mark}")


@case
def exec_and_children(scene):
    """Rules go on in the program that an exec brings, and are not those of children that are followed."""
    script = "import os, sys\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\n" \
             f"os.execv({scene.program!r}, [{scene.program!r}])\n"
    result = scene.execute(scene.contrail, "record", "--follow", "-q", "-o", scene.trace, "--on", "call step", "--",
                           sys.executable, "-c", script, input="step 17\n", stdin=None)
    expect(result.returncode == 7 and "step 17: 17" in result.stdout, f"{result}")
    expect(scene.rule("call step")["marks"] == 17, f"{scene.rule('call step')}")
    children = [name for name in os.listdir(scene.trace) if name.startswith("process-")]
    expect(len(children) == 1, f"{children}")
    expect("windows" not in scene.manifest(scene.path("trace", children[0])), "a child has windows")


if __name__ == "__main__":
    main(__doc__, Scene)
