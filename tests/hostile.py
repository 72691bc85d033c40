#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A target that writes over what it shares with contrail, and over what contrail has put into it: the header of the ring,
lists, counts, requests, events, details, counters, output, crash records, descriptors; and that makes holes in the ring and
tries to cut it off (hostile/scribble.c). It is recorded, with all kinds of options, followed, attached to and detached from,
left by a killed contrail and cleaned; and its instructions are recorded, while it writes over what its thread and the
tracer share. Whatever becomes of the target: contrail ends in time, by itself or by SIGTERM, with a status and a line,
not by a signal, and AddressSanitizer finds nothing where it is built with it (make asan).

    tests/hostile.py [--seconds N] [--patience N] [--seed N] [--filter 'WAY WHAT WHO'] [--build DIR] [--keep]

Each case once, those first that have found most; then by lot, for as long as --seconds allows. The first ones are played
however long they take. With --seconds 3600 and the build of `make asan` it is the long run. The seed of a round is in what
is printed of it.
"""
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time

import harness
from harness import HERE, ROOT, SEED, Skip, case, expect, main, wait_for
from processes import children_of, threads_of

KINDS = {"header": "h", "counts": "n", "inside": "i", "requests": "q", "handshakes": "v", "crashes": "k", "activations": "a",
         "events": "e", "generations": "g", "output": "p", "config": "c", "stores": "t", "regions": "r", "holes": "m",
         "anywhere": "s", "walks": "w", "detail": "d", "counters": "b", "lists": "ict", "ring": "hnaeps", "rows": "ae", "all": "hniqvkaepctrmsdb"}
# What has parts of the ring, and threads of contrail's, of its own.
OPTIONS = (["--detail"], ["--detail", "--members"], ["--args"], ["--budget", "10%"], ["--last", "1s"], ["--last", "8M", "--detail"],
           ["--on", "nested > 1us: dump", "--last", "1s"], ["--on", "signal"], ["--on", "leaf > 1us: detail nested"], ["--max-size", "8M"],
           ["--mode", "light"], ["--itrace", "nested", "--itrace-calls", "50"], ["--no-wait", "--ring-size", "2"], ["--max-depth", "3"])
KINDS_OF_ITRACE = {"steps": "j"}
STALLS = ("exec", "regions", "vfork", "unmap", "vdso", "frames", "family")
TARGET_MS = 900
ROUNDS_MIN = 11  # the first kinds in all ways, however busy the machine is
END_S = 120  # for contrail, from when its target has ended or it was told to end (131,072 files, perhaps)
FOUND = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|Assertion|stack smashing|buffer overflow detected")
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:handle_abort=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
PLAYED, RECORDED = {}, {}  # rounds of each way, and traces that came of them


class Scene(harness.Scene):
    def __init__(self, options, folder, way, kind, who):
        super().__init__(options, folder)
        self.way, self.kind, self.who = way, kind, who
        self.seed = options.seed + options.rounds
        options.rounds += 1
        self.again = f" --seed {self.seed}"
        self.log = self.path("stderr")
        self.traces = 0
        for name in ("stall", "scribble"):
            if not os.path.exists(os.path.join(options.top, name)):
                self.run("gcc", "-O2", "-g", "-I", os.path.join(ROOT, "src"), "-o", os.path.join(options.top, name),
                         os.path.join(HERE, "hostile", name + ".c"), "-lpthread")

    def scribbler(self, ms=TARGET_MS):
        return [os.path.join(self.options.top, "scribble"), str(self.seed), str(ms), {**KINDS, **KINDS_OF_ITRACE}[self.kind], self.who]

    def start(self, *words):
        self.command = shlex.join([self.contrail, *words])
        with open(self.log, "ab") as log:
            return subprocess.Popen([self.contrail, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=log, env=dict(os.environ, **SANITIZERS))

    def judge(self, process, what, told=False):
        """Waits for the end of a contrail; told: it was sent SIGTERM, perhaps before it was ready for that."""
        timeout = self.options.patience
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            stacks = self.stacks(process.pid)
            process.kill()
            process.wait()
            raise AssertionError(f"{what}: has not ended after {timeout} s\n{stacks}") from None
        expect(status >= 0 or told and status == -signal.SIGTERM, f"{what}: ended by signal {-status}")
        self.look()
        return status

    def is_sanitized(self):
        with open(self.contrail, "rb") as file:
            return b"__asan_init" in file.read()

    def said(self):
        with open(self.log, errors="replace", encoding="utf-8") as file:
            return file.read()

    def look(self):
        text = self.said()
        found = FOUND.search(text)
        if found:
            raise AssertionError(f"found: {text[max(0, found.start() - 100):found.start() + 3000]}")

    @staticmethod
    def stacks(pid):
        if not shutil.which("gdb"):
            return ""
        result = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], capture_output=True,
                                text=True, errors="replace", timeout=300, check=False)
        return result.stdout[-6000:]

    def read(self):
        """The trace that has come of it can be read, or is refused with a line."""
        if os.path.exists(os.path.join(self.trace, "manifest.json")):
            self.traces += 1
            for words in (["info", "trace"], ["report", "trace"], ["replay", "--limit", "50", "trace"]):
                self.judge(self.start(*words), words[0])


def record(scene):
    scene.judge(scene.start("record", "-o", "trace", "--", *scene.scribbler()), "record")
    scene.read()


def options(scene):
    words = random.Random(scene.seed).choice(OPTIONS)
    scene.judge(scene.start("record", *words, "-o", "trace", "--", *scene.scribbler()), f"record {shlex.join(words)}")
    scene.read()


def itrace(scene):
    """The instructions of a thread, from the program's start, or of one that runs."""
    draw = random.Random(scene.seed)
    words = draw.choice(([], ["-a"], ["--lossy"], ["--no-vector"], ["--live"], ["--function", "nested"]))

    def judge(contrail):
        scene.judge(contrail, "itrace", told=True)
        if os.path.isdir(scene.trace) and any(name.startswith("steps.") for name in os.listdir(scene.trace)):
            scene.traces += 1
            scene.judge(scene.start("steps", "trace", "--tail", "-n", "50"), "steps")

    def then(pid):
        contrail = scene.start("itrace", "-q", *words, "-o", "trace", pid)
        try:
            contrail.wait(draw.random() * 1.5)
        except subprocess.TimeoutExpired:
            contrail.send_signal(signal.SIGTERM)
        judge(contrail)
    if draw.random() < 0.5:
        judge(scene.start("itrace", "-q", *words, "-o", "trace", "--", *scene.scribbler()))
    else:
        with_target(scene, scene.scribbler(2500), then)


def follow(scene):
    scene.judge(scene.start("record", "--follow", "-o", "trace", "--", *scene.scribbler()), "record --follow")
    scene.read()


def with_target(scene, words, then, lines=1):
    """then(its pid), once it works, which so many lines say."""
    target = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for _ in range(lines):
            target.stdout.readline()
        then(str(target.pid))
    finally:
        if target.poll() is None:
            target.kill()
        target.wait()
        target.stdout.close()


def attach(scene):
    draw = random.Random(scene.seed)

    def then(pid):
        contrail = scene.start("attach", "-o", "trace", *(["--follow"] if draw.random() < 0.3 else []), pid)
        try:
            contrail.wait(draw.random() * 1.2)
        except subprocess.TimeoutExpired:
            contrail.send_signal(signal.SIGTERM)
        scene.judge(contrail, "attach", told=True)
        scene.read()
    with_target(scene, scene.scribbler(2500), then)


def clean(scene):
    draw = random.Random(scene.seed)

    def then(pid):
        contrail = scene.start("attach", "-o", "trace", pid)
        try:
            contrail.wait(0.2 + draw.random() * 0.6)
        except subprocess.TimeoutExpired:
            contrail.kill()
        contrail.wait()
        scene.traces += os.path.exists(scene.trace)
        scene.judge(scene.start("clean", pid), "clean")
        scene.judge(scene.start("attach", "-o", "trace2", "--for", "100ms", pid), "attach after clean")
    with_target(scene, scene.scribbler(2500), then)


def is_traced(pid):
    """Is any of its threads?"""
    for tid in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8", errors="replace") as file:
                if "\nTracerPid:\t0\n" not in file.read():
                    return True
        except OSError:
            pass  # that one has ended
    return False


def stall(scene):
    """What contrail waits for never comes (hostile/stall.c): it ends all the same when it is told to."""
    target = subprocess.Popen([os.path.join(scene.options.top, "stall"), scene.kind], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        pid = target.stdout.readline().decode().strip()
        contrail = scene.start("attach", *(["--follow"] if scene.kind == "family" else []), "-o", "trace", pid)
        if target.stdout.readline() != b"stalls\n":
            contrail.kill()
            contrail.wait()
            raise Skip("no userfaultfd")
        wait_for("the attach", lambda: "attached to process" in scene.said() or contrail.poll() is not None)
        late = scene.is_sanitized() and "timed out" in scene.said()  # to read the stacks takes the sanitizer ten times as long
        expect(scene.kind != "frames" or "attached to process" in scene.said() or late, scene.said())
        if scene.kind == "exec":
            wait_for("the thread to be followed", lambda: is_traced(pid) or contrail.poll() is not None)
        if scene.kind == "vfork":
            wait_for("a child", lambda: children_of(pid) or contrail.poll() is not None)
        contrail.send_signal(signal.SIGTERM)
        scene.judge(contrail, "attach", told=True)
        scene.read()
    finally:
        target.kill()
        target.wait()
        target.stdout.close()


def spaces(scene):
    """What a killed recorder of instructions seems to have left is looked at in a time that the target does not choose."""
    def then(pid):
        scene.judge(scene.start("clean", pid), "clean")
        scene.traces += 1
    target = [os.path.join(scene.options.top, "stall"), "spaces"]
    with_target(scene, target, then, lines=2)


WAYS = {"stall": (stall, STALLS, "q"), **{way.__name__: (way, KINDS, "qtc") for way in (record, options, follow, attach, clean)},
        "itrace": (itrace, KINDS_OF_ITRACE, "q"), "spaces": (spaces, ("clean",), "q")}


def play(scene):
    """One round; a way in which nothing is ever recorded tests nothing."""
    way = scene.way
    WAYS[way][0](scene)
    PLAYED[way], RECORDED[way] = PLAYED.get(way, 0) + 1, RECORDED.get(way, 0) + scene.traces
    expect(PLAYED[way] < 3 or RECORDED[way], f"nothing was recorded in {PLAYED[way]} rounds of {way}")
    return f"seed {scene.seed}"


for each_way, (_, kinds_of_way, whose) in WAYS.items():
    for each_kind in kinds_of_way:
        for each_who in whose:
            case(f"{each_way} {each_kind} {each_who}", way=each_way, kind=each_kind, who=each_who)(play)
WORST = ["stall exec q", "stall vdso q", "stall vfork q", "stall regions q"]
WORST += ["itrace steps q", "options detail q", "options all q", "options counters t"]
WORST += [f"{way} {kind} q" for kind in ("counts", "config", "holes", "walks", "all", "inside", "crashes", "handshakes")
          for way in ("record", "attach", "clean")] + ["stall unmap q", "stall frames q", "stall family q"]


def choose(cases, options):
    """Each once, in an order that begins with the worst; then by lot, for as long as there is time."""
    order = {name: place for place, name in enumerate(WORST)}
    cases = sorted(cases, key=lambda one: order.get(one.name, len(order)))
    if options.list:
        return cases
    return rounds(cases, options)


def rounds(cases, options):
    end, draw = time.monotonic() + options.seconds, random.Random(options.seed)
    least = len(cases) if options.filter else ROUNDS_MIN
    for number in range(10**9 if cases else 0):
        if number >= least and time.monotonic() > end:
            return
        yield cases[number] if number < len(cases) else draw.choice(cases)


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--patience", type=float, default=END_S, metavar="SECONDS", help="for contrail to end, on a busy machine")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.set_defaults(rounds=0)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose)
