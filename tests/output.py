#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What programs write to their standard output and error: it arrives as without contrail, and is in the trace, with time
and thread.

    tests/output.py [--filter PATTERN] [--build DIR]       PATTERN: of BUILD/MODE, as in gcc-O2/threads
"""
import json
import os
import shutil
import subprocess

import harness
from harness import case, expect, main

BUILDS = {
    "gcc-O2": ["gcc", "-O2", "-g"],
    "static": ["gcc", "-O0", "-g", "-static"],
    "musl": ["musl-gcc", "-O2", "-g"],
}


class Scene(harness.Scene):
    def __init__(self, options, folder, variant):
        super().__init__(options, folder)
        compiler, *words = BUILDS[variant]
        self.variant = variant
        self.program = self.compile("programs/output.c", *words, "-D_GNU_SOURCE", "-pthread", "-w", compiler=compiler)

    def outcome(self, words, stdout=subprocess.PIPE):
        return subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                              timeout=120, check=False)

    def both(self, mode, *options, stdout=subprocess.PIPE):
        """The outcomes without and with contrail; they must be the same."""
        plain = self.outcome([self.program, mode], stdout)
        traced = self.outcome([self.contrail, "record", "-o", self.trace, *options, "--", self.program, mode], stdout)
        order = sorted if mode == "threads" else lambda lines: lines
        if stdout == subprocess.PIPE:
            expect(order(traced.stdout.splitlines()) == order(plain.stdout.splitlines()),
                   f"stdout {traced.stdout[:200]!r}, untraced {plain.stdout[:200]!r}")
        expect(traced.stderr == plain.stderr, f"stderr {traced.stderr!r}, untraced {plain.stderr!r}")
        expect(traced.returncode == plain.returncode, f"status {traced.returncode}, untraced {plain.returncode}")
        return traced

    def view(self, *words):
        result = self.outcome([self.contrail, *words, self.trace])
        expect(result.returncode == 0, f"{words}: {result.stderr!r}")
        return result.stdout

    def raw(self, *words):
        return self.view("output", "--raw", *words)

    def calls(self):
        return [json.loads(line) for line in self.view("output", "--json").splitlines()]

    def info(self):
        return json.loads(self.view("info", "--json"))["output"]


def in_all_builds(function):
    for variant in BUILDS:
        case(f"{variant}/{function.__name__}", variant=variant)(function)
    return function


@in_all_builds
def mixed(scene):
    traced = scene.both("mixed")
    if scene.variant != "musl":  # whose stdio makes the system call in a function of its own
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


@in_all_builds
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


@in_all_builds
def bad_pointers(scene):
    scene.both("bad")
    given = [(call["bytes"], call["given"]) for call in scene.calls() if call["fd"] == 1]
    expect(given == [(96, 106), (4096, 2**63 - 1)], f"{given}")


@in_all_builds
def in_handler(scene):
    traced = scene.both("handler")
    expect(scene.raw() == traced.stdout, "another text")


@in_all_builds
def forked(scene):
    for mode in ("fork", "vfork"):
        scene.both(mode)
        expect(scene.raw() == b"parent before\nparent after\n", f"{mode}: {scene.raw()!r}")
        shutil.rmtree(scene.trace)


@in_all_builds
def raw_system_calls(scene):
    traced = scene.both("raw")
    expect(scene.raw() == traced.stdout == b"raw\nvector\n", f"{scene.raw()!r}")


@in_all_builds
def vectors(scene):
    traced = scene.both("vectors")
    expect(scene.raw() == traced.stdout, "another text")


@in_all_builds
def binary(scene):
    traced = scene.both("binary")
    expect(scene.raw() == traced.stdout, "other bytes")
    expect([call["bytes"] for call in scene.calls()] == [300, 4055, 4056, 4057, 20000], "other calls")


@in_all_builds
def large(scene):
    """Of one call no more than 32 KiB are taken."""
    traced = scene.both("large")
    info, got = scene.info(), scene.raw()
    expect(len(traced.stdout) == 200000 == info["stdout_bytes"], f"{info}")
    expect(0 < len(got) <= 32768 and set(got) == {ord("l")}, f"{len(got)} bytes")
    expect(info["dropped_bytes"] + info["recorded_bytes"] == 200000, f"{info}")
    expect(b"-- not all of it" in scene.view("output"), "output does not say so")


@in_all_builds
def much(scene):
    """100 MiB: counted, and recorded up to the limit."""
    traced = scene.both("much", "--max-output", "4", stdout=subprocess.DEVNULL)
    info = scene.info()
    expect(info["stdout_bytes"] == 1600 * 65536 and info["recorded_bytes"] <= 4 << 20 == info["limit_bytes"], f"{info}")
    expect(os.path.getsize(os.path.join(scene.trace, "output.cto")) < 5 << 20, "a larger file")
    expect(traced.returncode == 0, "status")


@in_all_builds
def elsewhere(scene):
    scene.both("elsewhere")
    expect(scene.raw() == b"to the device\nback\n", f"{scene.raw()!r}")


@in_all_builds
def closed(scene):
    scene.both("closed")
    expect(scene.raw("--stdout") == b"nobody\n", f"{scene.raw('--stdout')!r}")


@in_all_builds
def full_disk(scene):
    with open("/dev/full", "wb") as full:
        scene.both("full", stdout=full)


@in_all_builds
def cancelled(scene):
    scene.both("cancelled")


@in_all_builds
def left_out(scene):
    scene.both("mixed", "--no-output")
    expect(not os.path.exists(os.path.join(scene.trace, "output.cto")), "output.cto")
    expect(scene.info()["stdout_bytes"] == 0 and scene.raw() == b"", "something was recorded")


@in_all_builds
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
    result = scene.outcome([scene.contrail, "output", scene.trace])
    expect(result.returncode == 1 and result.stderr.startswith(b"contrail output: "), f"{result.stderr!r}")


if __name__ == "__main__":
    main(__doc__, Scene)
