#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A target that writes over what it shares with contrail, and over what contrail has put into it: the header of the ring,
lists, counts, requests, events, output, crash records, descriptors; and that makes holes in the ring and tries to cut it
off (hostile/scribble.c). It is recorded, followed, attached to and detached from, left by a killed contrail and
cleaned. Whatever becomes of the target: contrail ends in time, by itself or by SIGTERM, with a status and a line,
not by a signal, and AddressSanitizer finds nothing where it is built with it (make asan).

    tests/hostile.py [--seconds N] [--seed N] [--filter 'WAY WHAT'] [--build DIR] [--keep]

With --seconds 3600 and the build of `make asan` it is the long run; each round's seed is in what is printed of a
failure.
"""
import argparse
import fnmatch
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
KINDS = {"header": "h", "counts": "n", "inside": "i", "requests": "q", "handshakes": "v", "crashes": "k", "activations": "a",
         "events": "e", "generations": "g", "output": "p", "config": "c", "stores": "t", "regions": "r", "holes": "m", "anywhere": "s",
         "walks": "w", "lists": "ict", "ring": "hnaeps", "rows": "ae", "all": "hniqvkaepctrms"}
TARGET_MS = 900
ROUNDS_MIN = 11  # the first kinds in all ways, however busy the machine is
END_S = 120  # for contrail, from when its target has ended or it was told to end (131,072 files, perhaps)
FOUND = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|Assertion|stack smashing|buffer overflow detected")


class Fault(Exception):
    pass


class Scene:
    def __init__(self, options, folder, target):
        self.contrail, self.folder, self.target = os.path.join(options.build, "contrail"), folder, target
        self.log = os.path.join(folder, "stderr")
        self.traces = 0

    def scribbler(self, seed, kind, who, ms=TARGET_MS):
        return [self.target, str(seed), str(ms), KINDS[kind], who]

    def start(self, *words):
        self.out = open(self.log, "ab")
        return subprocess.Popen([self.contrail, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=self.out)

    def judge(self, process, what, timeout=END_S, told=False):
        """Waits for the end of a contrail; told: it was sent SIGTERM, perhaps before it was ready for that."""
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            stacks = self.stacks(process.pid)
            process.kill()
            process.wait()
            raise Fault(f"{what}: has not ended after {timeout} s\n{stacks}")
        if status < 0 and not (told and status == -signal.SIGTERM):
            raise Fault(f"{what}: ended by signal {-status}")
        self.look()
        return status

    def look(self):
        with open(self.log, errors="replace") as file:
            text = file.read()
        found = FOUND.search(text)
        if found:
            raise Fault(f"found: {text[max(0, found.start() - 100):found.start() + 3000]}")

    @staticmethod
    def stacks(pid):
        if not shutil.which("gdb"):
            return ""
        result = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], capture_output=True,
                                text=True, errors="replace", timeout=60)
        return result.stdout[-6000:]


def way_record(scene, seed, kind, who):
    contrail = scene.start("record", "-o", "trace", "--", *scene.scribbler(seed, kind, who))
    scene.judge(contrail, "record")
    read(scene)


def way_follow(scene, seed, kind, who):
    contrail = scene.start("record", "--follow", "-o", "trace", "--", *scene.scribbler(seed, kind, who))
    scene.judge(contrail, "record --follow")
    read(scene)


def read(scene):
    """The trace that has come of it can be read, or is refused with a line."""
    if os.path.exists(os.path.join(scene.folder, "trace", "manifest.json")):
        scene.traces += 1
        for words in (["info", "trace"], ["report", "trace"], ["replay", "--limit", "50", "trace"]):
            scene.judge(scene.start(*words), words[0])


def attached(scene, seed, kind, who, then):
    target = subprocess.Popen(scene.scribbler(seed, kind, who, 2500), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        target.stdout.readline()
        then(str(target.pid), random.Random(seed))
    finally:
        if target.poll() is None:
            target.kill()
        target.wait()
        target.stdout.close()


def way_attach(scene, seed, kind, who):
    def then(pid, draw):
        contrail = scene.start("attach", "-o", "trace", *(["--follow"] if draw.random() < 0.3 else []), pid)
        try:
            contrail.wait(draw.random() * 1.2)
        except subprocess.TimeoutExpired:
            contrail.send_signal(signal.SIGTERM)
        scene.judge(contrail, "attach", told=True)
        read(scene)
    attached(scene, seed, kind, who, then)


def way_clean(scene, seed, kind, who):
    def then(pid, draw):
        contrail = scene.start("attach", "-o", "trace", pid)
        try:
            contrail.wait(0.2 + draw.random() * 0.6)
        except subprocess.TimeoutExpired:
            contrail.kill()
        contrail.wait()
        scene.traces += os.path.exists(os.path.join(scene.folder, "trace"))
        scene.judge(scene.start("clean", pid), "clean")
        contrail = scene.start("attach", "-o", "trace2", "--for", "100ms", pid)
        scene.judge(contrail, "attach after clean")
    attached(scene, seed, kind, who, then)


def stall(scene, seed, kind, who):
    """What contrail waits for never comes (hostile/stall.c): it ends all the same when it is told to."""
    target = subprocess.Popen([os.path.join(os.path.dirname(scene.target), "stall"), kind], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        target.stdout.readline()
        contrail = scene.start("attach", "-o", "trace", str(target.pid))
        time.sleep(2)
        contrail.send_signal(signal.SIGTERM)
        scene.judge(contrail, "attach", told=True)
        read(scene)
    finally:
        target.kill()
        target.wait()
        target.stdout.close()


WAYS = {name[4:]: function for name, function in globals().items() if name.startswith("way_")}
STALLS = ("exec", "vfork", "unmap")


def rounds(options):
    """Each kind in each way once, in an order that begins with the worst; then by lot, for as long as there is time."""
    every = [("stall", kind, "q") for kind in STALLS[:2]]
    every += [(way, kind, who) for kind in ("counts", "config", "holes", "walks", "all", "inside", "crashes", "handshakes")
             for way, who in (("record", "q"), ("attach", "q"), ("clean", "q"))]
    every += [("stall", kind, "q") for kind in STALLS[2:]]
    every += [(way, kind, who) for kind in KINDS for way in WAYS for who in "qtc"]
    for entry in every:
        if fnmatch.fnmatchcase(f"{entry[0]} {entry[1]}", options.filter):
            yield entry
    draw = random.Random(options.seed)
    chosen = [entry for entry in every if fnmatch.fnmatchcase(f"{entry[0]} {entry[1]}", options.filter)]
    while chosen:
        yield draw.choice(chosen)


def build_target(folder):
    for name in ("stall", "scribble"):
        target = os.path.join(folder, name)
        subprocess.run(["gcc", "-O2", "-g", "-I", os.path.join(ROOT, "src"), "-o", target,
                        os.path.join(HERE, "hostile", name + ".c"), "-lpthread"], check=True)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--filter", default="*")
    parser.add_argument("--verbose", action="store_true", help="each round")
    parser.add_argument("--keep", action="store_true", help="folders of failures stay")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=0:exitcode=99:handle_abort=1"
    os.environ["UBSAN_OPTIONS"] = "print_stacktrace=1"
    os.environ.setdefault("CONTRAIL_CACHE", os.path.join(options.build, "analysis-cache"))
    passed = failed = 0
    counts, traces = {}, {}
    folder = tempfile.mkdtemp(prefix="contrail-hostile-")
    target = build_target(folder)
    end = time.monotonic() + options.seconds
    for n, (way, kind, who) in enumerate(rounds(options)):
        if n >= ROUNDS_MIN and time.monotonic() > end:
            break
        seed = options.seed + n
        place = os.path.join(folder, str(n))
        os.mkdir(place)
        begin = time.monotonic()
        try:
            scene = Scene(options, place, target)
            WAYS.get(way, stall)(scene, seed, kind, who)
            passed += 1
            counts[way] = counts.get(way, 0) + 1
            traces[way] = traces.get(way, 0) + scene.traces
            shutil.rmtree(place, ignore_errors=True)
            if options.verbose:
                print(f"{time.monotonic() - begin:.1f} s: {way} {kind} {who}", flush=True)
        except Fault as fault:
            failed += 1
            print(f"FAIL {way} {kind} ({who}, seed {seed}): {fault}", flush=True)
            if not options.keep:
                shutil.rmtree(place, ignore_errors=True)
    if not options.keep or not failed:
        shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{way}: {count} rounds, {traces[way]} with a trace" for way, count in sorted(counts.items())))
    for way, count in counts.items():
        if count >= 3 and not traces[way]:
            failed += 1
            print(f"FAIL {way}: nothing was ever recorded")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
