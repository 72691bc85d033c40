#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail is killed while it records the instructions of a program that executes again and again what has no record of its own
(src/itrace/step.c): the program goes on, and nothing is left of a single step, whose trap nobody would take.

    tests/itracekilled.py [--filter PATTERN] [--build DIR]
"""
import os
import random
import time

from harness import case, expect, main, wait_for
from itrace import SECONDS, Scene, each, files_of

# Turns that take some seconds when they are recorded, and how many are played to their end.
KINDS = {"popf": (100000, 300), "restores": (100000, 300), "far": (100000, 200), "faults": (20000, 100), "nested": (20000, 3)}


def words_of(name):
    return ("-F", "nested") if name == "nested" else ()


@each(tuple(f"killed/{name}" for name in KINDS), alone=True)
def killed(scene, case_name):
    """Started by contrail and attached to."""
    name = case_name.split("/")[1]
    program, turns = scene.made("apart", "-O1"), str(KINDS[name][0])
    expected = scene.run(program, name, turns).split("\n", 1)[1]
    tried = scene.rounds(8, 60)
    for turn in range(tried):
        words = (scene.contrail, "itrace", "-q", "--lossy", *words_of(name), "-o", scene.path(f"{name}{turn}"))
        running = scene.ready(program, name, turns) if turn % 2 else scene.ready(*words, "--", program, name, turns)
        recorder = scene.start(*words, str(running.pid)) if turn % 2 else running
        if turn % 2:
            wait_for("its steps", lambda n=turn: os.path.exists(scene.path(f"{name}{n}/steps.{running.pid}")) or recorder.poll() is not None)
        time.sleep(0.1 + random.random() * 0.3)  # at any moment
        recorder.kill()
        recorder.wait(SECONDS)
        got = running.stdout.read()
        expect(got == expected, f"turn {turn} of {tried}: {got!r}, not {expected!r}, status {running.wait(SECONDS)}")
        expect(not turn % 2 or running.wait(SECONDS) == 0, f"turn {turn} of {tried}: status {running.returncode}")


@each(tuple(f"recorded/{name}" for name in KINDS))
def recorded(scene, case_name):
    """The same to its end: it is as without, and its records do not contradict each other."""
    name = case_name.split("/")[1]
    program, turns, out = scene.made("apart", "-O1"), str(KINDS[name][1]), scene.path("steps")
    expected = scene.run(program, name, turns)
    done = scene.execute(scene.contrail, "itrace", *words_of(name), "-o", out, "--", program, name, turns, timeout=SECONDS)
    expect((done.returncode, done.stdout) == (0, expected), f"{done.returncode} {done.stdout[-200:]!r} {done.stderr[-200:]!r}")
    (file,) = files_of(out)
    walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(out, file))
    expect(walked.returncode == 0, walked.stdout + walked.stderr)
    return walked.stdout.strip()


if __name__ == "__main__":
    main(__doc__, Scene)
