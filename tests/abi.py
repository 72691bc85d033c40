#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fixture abi.cpp, which calls in all ways that there are and checks all results itself: what is recorded of arguments and
results is what it has passed; hooks that come, go and change meanwhile change nothing of what it says.

    tests/abi.py [--filter PATTERN] [--build DIR]
"""
import os
import random
import signal
import subprocess

import fixture as fx
import harness
from harness import Skip, case, expect, main, wait_for

KEPT = ("long_double", "longs", "doubles_of")  # those that tests/fixtures/abi.cpp calls with all registers loaded
SAME = 16
WORD = (1 << 64) - 1


class Scene(harness.Scene):
    def __init__(self, options, folder, variant="gcc-O2"):
        super().__init__(options, folder)
        fixture = fx.Fixture(os.path.join(fx.FIXTURES, "abi.cpp"))
        missing = fixture.missing()
        if missing:
            raise Skip(missing)
        self.program = fx.build(fixture, variant, os.path.join(self.build_dir, "tests", "fixtures"))
        self.running = None

    def close(self):
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait()

    def natively(self):
        """What it prints of each batch."""
        lines = self.run(self.program, str(SAME)).splitlines()
        expect(len(lines) == SAME + 1 and lines[-1] == "abi: all right", f"{lines[-3:]}")
        return [line.split(" ", 1)[1] for line in lines[:-1]]

    def told(self, *options):
        """The calls as the program tells them, and the lines of the replay, in the order of time."""
        expect(self.record("-q", *options, "--", self.program, "3", self.path("told")).endswith("abi: all right\n"), "a failed check")
        with open(self.path("told"), encoding="ascii") as file:
            told = [line.split() for line in file]
        return told, sorted(self.lines("--module", "abi"), key=lambda line: line["ts_ns"])


def check_output(text, natively):
    lines = text.splitlines()
    wrong = [line for n, line in enumerate(lines[:-1]) if line != f"{n} {natively[n % SAME]}"]
    expect(not wrong and lines[-1] == "abi: all right", f"{wrong[:3]} {lines[-1:]}")
    return len(lines) - 1


def calls_of(lines, names=KEPT):
    """Of each call what is known of its enter and of its return."""
    found, opened = [], {}
    for line in lines:
        key = line["tid"], line.get("stack"), line["depth"]
        if line["kind"] == "enter" and line["name"] in names:
            found.append([line, {}])
            opened[key] = found[-1]
        elif line["kind"] == "return" and key in opened:
            opened.pop(key)[1] = line
    return found


def raw(values):
    return [int(value["raw"], 16) for value in values]


def results_of(name, rax, rdx, xmm0, xmm1):
    return {"long_double": [rax, xmm0], "longs": [rax, rdx], "doubles_of": [xmm0, xmm1]}[name]


def check_kept(told, lines, with_detail):
    calls = calls_of(lines)
    expect(len(calls) == len(told) > 500, f"{len(calls)} calls, {len(told)} told")
    for (enter, leave), (name, *words) in zip(calls, told):
        words = [int(word, 16) for word in words]
        registers, vectors, stack, results = words[:8], words[8:16], words[16:20], words[20:]
        expect(enter["name"] == name, f"{enter['name']} in place of {name}")
        expect(raw(enter["arguments"]) == registers[:6] + vectors + stack, f"{enter} is not {words}")
        expect([int(word, 16) for word in leave["returned"]["raw"]] == results_of(name, *results), f"{leave} is not {words}")
        if with_detail:
            detail = enter["detail"]
            expect([int(word, 16) for word in detail["registers"]] == registers and
                   [int(word, 16) for word in detail["vectors"]] == vectors, f"{detail} is not {words}")
            expect([int(word, 16) for word in leave["results"]] == results, f"{leave} is not {words}")


def check_narrow(lines):
    """Of the other kinds: narrow integers, floats and doubles on the stack."""
    ints = calls_of(lines, ("ints",))
    for enter, leave in ints:
        a, b, *rest = [argument["value"] for argument in enter["arguments"]]
        expect(rest == [-3, -4 & 0xff, 5, 6, 7, True], f"{enter}")  # characters are numbers without a sign
        expect(leave["returned"]["value"] == a + 2 * b - 9 - 20 + 35 + 66 + 91 + 17, f"{enter} {leave}")
    reals = calls_of(lines, ("doubles",))
    for enter, leave in reals:
        a, *rest = [argument["value"] for argument in enter["arguments"]]
        expect(rest == [0.5, 1, 2, 3, 4, 5, 6, 7, 0.25], f"{enter}")
        expect(leave["returned"]["value"] == a + 384.75, f"{enter} {leave}")
    expect(len(ints) == len(reals) > 500, f"{len(ints)} and {len(reals)} calls")


@case(some=("recorded", 1))
def arguments(scene):
    told, lines = scene.told("--args")
    check_kept(told, lines, False)
    check_narrow(lines)
    return f"{len(told)} calls"


@case(some=("recorded", 1))
def detail(scene):
    told, lines = scene.told("--detail", "abi!**", "--vectors", "--stack", "256", "--members")
    check_kept(told, lines, True)
    check_narrow(lines)
    more = [enter["arguments"][2]["text"] for enter, _ in calls_of(lines, ("aligned",))]
    expect(len(more) > 500 and all("{a={...}, text=0x" in text and "::text>}" in text for text in more), f"{more[:3]}")
    return f"{len(told)} calls"


def check_interrupted(scene, *options):
    """Handlers interrupt hooks: what is there belongs to its call, and hardly anything is missing."""
    expect(scene.record("-q", *options, "--", scene.program, "12").endswith("abi: all right\n"), "a failed check")
    lines, without = scene.lines(), 0
    calls, handlers = calls_of(lines), sum(line["kind"] == "enter" and line["name"].startswith("on_alarm") for line in lines)
    for enter, leave in calls:
        arguments = raw(enter.get("arguments", [])) if all("raw" in one for one in enter.get("arguments", [{}])) else []
        if len(arguments) != 18 or "returned" not in leave or enter["name"] == "doubles_of":
            without += enter["name"] != "doubles_of"
            continue
        a, b, c, d, e, f, *_, o, p, q, r = arguments
        first = a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * o + 17 * p + 19 * q + 23 * r if enter["name"] == "long_double" \
            else a ^ b ^ c ^ d ^ e ^ f ^ o ^ p
        expect(int(leave["returned"]["raw"][0], 16) == first & WORD, f"{enter} {leave}")
    expect(len(calls) > 3000 and handlers > 10 and without <= handlers, f"{without} of {len(calls)} calls lack values, {handlers} handlers")
    return f"{len(calls)} calls, {handlers} handlers, {without} without values"


@case(some=("interrupted", 1))
def interrupted_arguments(scene):
    return check_interrupted(scene, "--args")


@case(some=("interrupted", 1))
def interrupted_detail(scene):
    return check_interrupted(scene, "--detail", "abi!**", "--vectors")


@case
def budget(scene):
    """Levels that go up and down under it."""
    natively, told = scene.natively(), []
    for options in random.sample(((), ("--args",), ("--detail", "abi!**", "--vectors", "--members")), scene.rounds(1, 3)):
        out = scene.record("-q", "--budget", "3%", *options, "--", scene.program, "1200")  # longer than the first decision takes
        expect(check_output(out, natively) == 1200, "not all batches")
        steps = scene.info()["budget"]["steps"]
        expect(steps > 0, f"{options}: no step was taken: {scene.info()}"[:6000])
        told.append(f"{' '.join(options[:1]) or 'events'}: {steps} steps")
    return ", ".join(told)


@case
def attached_and_detached(scene):
    """With all kinds of hooks, in the middle of everything, again and again."""
    natively = scene.natively()
    with open(scene.path("out"), "w", encoding="ascii") as out:
        scene.running = subprocess.Popen([scene.program, "0"], stdout=out, stderr=subprocess.STDOUT)

    def batches():
        with open(scene.path("out"), encoding="ascii") as file:
            return file.read().count("\n")
    turns = [(), ("--args",), ("--detail", "abi!**", "--vectors"), ("--detail", "abi!**", "--members"), ("--budget", "5%", "--args"),
             ("--budget", "2%", "--detail", "abi!**")]
    for number, options in enumerate(random.sample(turns, 4) if not scene.options.long else turns * 2):
        before = wait_for("another batch", lambda: scene.running.poll() is not None or batches())
        expect(scene.running.poll() is None, f"it ended with {scene.running.returncode}")
        scene.run(scene.contrail, "attach", "-q", "-o", scene.path(f"trace{number}"), "--for", f"{50 + 37 * number % 200}ms", *options,
                  str(scene.running.pid))
        wait_for("batches after that", lambda: scene.running.poll() is not None or batches() > before + 2)
        rows = scene.rows(trace=scene.path(f"trace{number}"))
        expect(any(name in rows for name in KEPT + ("ints", "doubles")), f"{options}: nothing was recorded")
    scene.running.send_signal(signal.SIGTERM)
    expect(scene.running.wait(60) == 0, f"it ended with {scene.running.returncode}")
    with open(scene.path("out"), encoding="ascii") as file:
        return f"{check_output(file.read(), natively)} batches"


@case
def open_at_attach(scene):
    """Frames that are open when it is attached to are known whatever is recorded of their calls, and end as they do."""
    program = scene.compile("programs/deep.c", "-O1", "-g", "-fno-optimize-sibling-calls")
    ways = ((), ("--args",), ("--detail", "deep!**"), ("--budget", "50%", "--args"))
    for options in random.sample(ways, scene.rounds(2, 4)):
        scene.running = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
        wait_for("its calls", lambda: sleeps(scene.running.pid))
        scene.run(scene.contrail, "attach", "-q", "-o", scene.path("trace"), *options, str(scene.running.pid))
        expect(scene.running.communicate()[0] == "2002\n" and scene.running.returncode == 0, "another end")
        rows = scene.rows()
        seen = {name: rows[name]["entered_before"] for name in ("main", "middle", "inner") if name in rows}
        expect(seen == {"main": 1, "middle": 1, "inner": 1}, f"{options}: {seen}")
        expect(0 < rows["leaf"]["calls"] < 2000, f"{options}: {rows['leaf']}")
        scene.execute("rm", "-rf", scene.path("trace"))


def sleeps(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().split()[0] in ("35", "230")  # nanosleep, clock_nanosleep


if __name__ == "__main__":
    main(__doc__, Scene)
