#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reader of the instruction tracer's files (src/steps): the state that it makes of the records after each step is the one
that single steps by ptrace have seen (build/tests/stepped), forward and at any place; damaged files; the command `steps`.

    tests/steps.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random

import harness
from harness import case, expect, main, need

STEPS = 60000


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.tool = os.path.join(options.build, "tests", "stepped")
        self.states = self.path("states")

    def stepped(self, *words, steps=STEPS, options=("-v",)):
        """A trace of a program, as contrail steps opens it: a folder with one file."""
        os.makedirs(self.trace, exist_ok=True)
        file = os.path.join(self.trace, "steps.1")
        self.run(self.tool, "record", *options, "-n", str(steps), "-w", self.states, file, "--", *words)
        return file

    def compared(self, file):
        result = self.execute(self.tool, "compare", file, self.states)
        expect(result.returncode == 0, result.stdout)
        return result.stdout.split("\n", 1)[0]


PROGRAMS = {
    "ls": ["ls", "-l", "/usr"],
    "sh": ["sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); done"],
    "sort": ["sort", "-n", "/proc/self/maps"],
    "gzip": ["gzip", "-c", "/etc/services"],
    "python3": ["python3", "-c", "print(sum(x * x % 7 / 3 for x in range(99)))"],
}


def add_program(name, words):
    @case(f"equal_to_single_steps/{name}")
    def _(scene):
        need(words[0])
        return scene.compared(scene.stepped(*words, options=("-v", "-s", "20000")))


for each, arguments in PROGRAMS.items():
    add_program(each, arguments)


@case
def without_vectors(scene):
    need("sort")
    return scene.compared(scene.stepped(*PROGRAMS["sort"], options=("-s", "3000")))


@case
def signals(scene):
    """From a timer, by itself, nested, faults that are left by siglongjmp, and one that is ignored."""
    program = scene.compile("steps/signals.c", "-O1", "-g", "-w")
    return scene.compared(scene.stepped(program, steps=400000, options=("-v", "-s", "30000")))


@case
def a_wrong_value_is_seen(scene):
    """The comparison can fail: states of another run of the same length."""
    file = scene.stepped("ls", "-l", "/usr", steps=3000)
    with open(scene.states, "r+b") as states:
        states.seek(176 * 1500 + 8 * 3)  # rdx after step 1500
        states.write(b"\xa5\x5a\xa5")
    result = scene.execute(scene.tool, "compare", file, scene.states)
    expect(result.returncode == 1 and "step 1500" in result.stdout and "3000 steps, 1 differ" in result.stdout, result.stdout)


if __name__ == "__main__":
    main(__doc__, Scene)
