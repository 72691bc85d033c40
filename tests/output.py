#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What programs write to their standard output and error: it arrives as without contrail, and is in the trace, with time
and thread.

    tests/output.py [--filter PATTERN] [--build DIR]       PATTERN: of BUILD/MODE, as in gcc-O2/threads
"""
import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SOURCE = os.path.join(HERE, "programs", "output.c")
BUILDS = {
    "gcc-O2": ["gcc", "-O2", "-g"],
    "static": ["gcc", "-O0", "-g", "-static"],
    "musl": ["musl-gcc", "-O2", "-g"],
}


class Skip(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


class Scene:
    def __init__(self, options, folder, build, program):
        self.contrail, self.folder, self.build, self.program = options.contrail, folder, build, program
        self.trace = os.path.join(folder, "trace")

    def run(self, words, stdout=subprocess.PIPE):
        return subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                              timeout=120)

    def both(self, mode, *options, stdout=subprocess.PIPE):
        """The outcomes without and with contrail; they must be the same."""
        plain = self.run([self.program, mode], stdout)
        traced = self.run([self.contrail, "record", "-o", self.trace, *options, "--", self.program, mode], stdout)
        order = sorted if mode == "threads" else lambda lines: lines
        if stdout == subprocess.PIPE:
            expect(order(traced.stdout.splitlines()) == order(plain.stdout.splitlines()),
                   f"stdout {traced.stdout[:200]!r}, untraced {plain.stdout[:200]!r}")
        expect(traced.stderr == plain.stderr, f"stderr {traced.stderr!r}, untraced {plain.stderr!r}")
        expect(traced.returncode == plain.returncode, f"status {traced.returncode}, untraced {plain.returncode}")
        return traced

    def view(self, *words):
        result = self.run([self.contrail, *words, self.trace])
        expect(result.returncode == 0, f"{words}: {result.stderr!r}")
        return result.stdout

    def raw(self, *words):
        return self.view("output", "--raw", *words)

    def calls(self):
        return [json.loads(line) for line in self.view("output", "--json").splitlines()]

    def info(self):
        return json.loads(self.view("info", "--json"))["output"]


def mixed(scene):
    traced = scene.both("mixed")
    if scene.build != "musl":  # whose stdio makes the system call in a function of its own
        expect(scene.raw("--stdout") == traced.stdout, "another stdout")
        expect(scene.raw("--stderr") == traced.stderr, "another stderr")
        info = scene.info()
        expect((info["stdout_bytes"], info["stderr_bytes"]) == (len(traced.stdout), len(traced.stderr)), f"{info}")
        expect(info["recorded_bytes"] == len(traced.stdout + traced.stderr) and info["dropped_bytes"] == 0, f"{info}")
        replay = scene.view("replay", "--function", "main").decode()
        for text in ("stdout | one", "stderr | two 2", "stdout | three", "stderr | four: "):
            expect(text in replay, f"replay has no {text}")
        expect(replay.index("stdout | one") < replay.index("stderr | two 2") < replay.index("stdout | three"), "order")
        expect(b"stdout |" not in scene.view("replay", "--no-output"), "replay --no-output has it")
        lines = scene.view("output").decode().splitlines()
        expect(len(lines) == 4 and lines[0].endswith("  out  one") and lines[1].endswith("  err  two 2"), f"{lines}")


def threads(scene):
    traced = scene.both("threads")
    calls = scene.calls()
    expect(sorted(call["text"].encode() for call in calls) == sorted(traced.stdout.splitlines(True)), "other lines")
    for name in "abcd":
        own = [call for call in calls if call["text"].startswith(name)]
        expect([call["text"] for call in own] == [f"{name} {n:03}\n" for n in range(500)], f"thread {name}: another order")
        expect(len({call["tid"] for call in own}) == 1, f"thread {name} has several ids")
    expect(len({call["tid"] for call in calls}) == 4, "not four threads")
    expect(scene.view("output", "--raw", "--thread", str(calls[0]["tid"])).splitlines() ==
           [call["text"].strip().encode() for call in calls if call["tid"] == calls[0]["tid"]], "--thread")


def bad_pointers(scene):
    scene.both("bad")
    given = [(call["bytes"], call["given"]) for call in scene.calls() if call["fd"] == 1]
    expect(given == [(96, 106), (4096, 2**63 - 1)], f"{given}")


def in_handler(scene):
    traced = scene.both("handler")
    expect(scene.raw() == traced.stdout, "another text")


def forked(scene):
    for mode in ("fork", "vfork"):
        scene.both(mode)
        expect(scene.raw() == b"parent before\nparent after\n", f"{mode}: {scene.raw()!r}")
        shutil.rmtree(scene.trace)


def raw_system_calls(scene):
    traced = scene.both("raw")
    expect(scene.raw() == traced.stdout == b"raw\nvector\n", f"{scene.raw()!r}")


def vectors(scene):
    traced = scene.both("vectors")
    expect(scene.raw() == traced.stdout, "another text")


def binary(scene):
    traced = scene.both("binary")
    expect(scene.raw() == traced.stdout, "other bytes")
    expect([call["bytes"] for call in scene.calls()] == [300, 4055, 4056, 4057, 20000], "other calls")


def large(scene):
    """Of one call no more than 32 KiB are taken."""
    traced = scene.both("large")
    info, got = scene.info(), scene.raw()
    expect(len(traced.stdout) == 200000 == info["stdout_bytes"], f"{info}")
    expect(0 < len(got) <= 32768 and set(got) == {ord("l")}, f"{len(got)} bytes")
    expect(info["dropped_bytes"] + info["recorded_bytes"] == 200000, f"{info}")
    expect(b"-- not all of it" in scene.view("output"), "output does not say so")


def much(scene):
    """100 MiB: counted, and recorded up to the limit."""
    traced = scene.both("much", "--max-output", "4", stdout=subprocess.DEVNULL)
    info = scene.info()
    expect(info["stdout_bytes"] == 1600 * 65536 and info["recorded_bytes"] <= 4 << 20 == info["limit_bytes"], f"{info}")
    expect(os.path.getsize(os.path.join(scene.trace, "output.cto")) < 5 << 20, "a larger file")
    expect(traced.returncode == 0, "status")


def elsewhere(scene):
    scene.both("elsewhere")
    expect(scene.raw() == b"to the device\nback\n", f"{scene.raw()!r}")


def closed(scene):
    scene.both("closed")
    expect(scene.raw("--stdout") == b"nobody\n", f"{scene.raw('--stdout')!r}")


def full_disk(scene):
    with open("/dev/full", "wb") as full:
        scene.both("full", stdout=full)


def cancelled(scene):
    scene.both("cancelled")


def left_out(scene):
    scene.both("mixed", "--no-output")
    expect(not os.path.exists(os.path.join(scene.trace, "output.cto")), "output.cto")
    expect(scene.info()["stdout_bytes"] == 0 and scene.raw() == b"", "something was recorded")


def cut(scene):
    """The file opens up to its last whole record, wherever it is cut."""
    scene.both("binary")
    path, whole = os.path.join(scene.trace, "output.cto"), scene.raw()
    with open(path, "rb") as file:
        data = file.read()
    for size in (len(data) - 1, len(data) - 5000, len(data) // 2, 4500, 400, 100, 64):
        with open(path, "wb") as file:
            file.write(data[:size])
        got = scene.raw()
        expect(whole.startswith(got) and len(got) < len(whole), f"cut to {size}: {len(got)} bytes")
    os.truncate(path, 10)
    result = scene.run([scene.contrail, "output", scene.trace])
    expect(result.returncode == 1 and result.stderr.startswith(b"contrail output: "), f"{result.stderr!r}")


CASES = [mixed, threads, bad_pointers, in_handler, forked, raw_system_calls, vectors, binary, large, much, elsewhere, closed,
         full_disk, cancelled, left_out, cut]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--filter", default="*")
    options = parser.parse_args()
    options.contrail = os.path.join(os.path.abspath(options.build), "contrail")
    count = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory(prefix="contrail-output.") as into:
        for build, command in BUILDS.items():
            cases = [case for case in CASES if fnmatch.fnmatch(f"{build}/{case.__name__}", options.filter)]
            program = os.path.join(into, build)
            if cases and shutil.which(command[0]):
                subprocess.run(["nice", *command, "-D_GNU_SOURCE", "-pthread", "-w", "-o", program, SOURCE], check=True)
            for case in cases:
                with tempfile.TemporaryDirectory(prefix="scene.", dir=into) as folder:
                    try:
                        if not os.path.exists(program):
                            raise Skip("no compiler")
                        case(Scene(options, folder, build, program))
                        count["passed"] += 1
                    except Skip as reason:
                        count["skipped"] += 1
                        print(f"skip output {build}/{case.__name__}: {reason}", flush=True)
                    except (AssertionError, OSError, KeyError, IndexError, ValueError, subprocess.SubprocessError) as error:
                        count["failed"] += 1
                        print(f"FAIL output {build}/{case.__name__}: {error!r}\n"
                              f"     again: tests/output.py --filter {build}/{case.__name__}", flush=True)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
