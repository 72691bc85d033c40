#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which call of its function a window is about, with a program that numbers its calls itself.

    tests/triggersnumbers.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import signal
import subprocess
import time

from harness import Skip, case, expect, main, wait_for
from triggers import Scene

RULES = ["--on", "work > 250ms", "--on", "work returns < 0", "--pre", "1ms", "--post", "1ms", "--max-windows", "1000"]


def numbered(scene, how, count, *options, program=None):
    """What the program says: the numbers of its slow calls, and of those that failed; how many there were."""
    program = program or scene.compile("programs/numbered.c", "-O1", "-pthread", name="numbered")
    out = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, *RULES, *options, "--", program, how, str(count), timeout=300)
    lines = [line.split() for line in out.splitlines()]
    return ([int(line[1]) for line in lines if line[0] == "slow"], [int(line[1]) for line in lines if line[0] == "fails"],
            int(lines[-1][0]))


def told(scene, rule):
    """The reasons of that rule, in the order of time."""
    return [reason for window in scene.manifest()["windows"] for reason in window["reasons"] if reason["rule"] == rule]


def agree(scene, slow, failed):
    """Each has its number. On a busy machine others may be slow, too."""
    of_failed, of_slow = told(scene, "work returns < 0"), told(scene, "work > 250ms")
    expect(sorted(reason["call"] for reason in of_failed) == sorted(failed), f"{of_failed}, not {failed}")
    expect(set(slow) <= {reason["call"] for reason in of_slow}, f"{of_slow}, not {slow}")
    expect(all("call_is" not in reason for reason in of_failed + of_slow), f"not exact: {of_failed} {of_slow}")


@case
def of_one_thread(scene):
    """The slow call among two million has its number, and so has the one that failed: manifest, info and sql say it."""
    slow, failed, count = numbered(scene, "one", 2000000)
    expect((slow, failed, count) == ([1000000], [666666], 2000000), f"{slow} {failed} {count}")
    agree(scene, slow, failed)
    shown = scene.run(scene.contrail, "info", scene.trace)
    first = scene.manifest()["windows"][0]["reasons"][0]["call"]
    expect(f" (call {first:,} of work)" in shown, shown)
    windows = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["windows"]
    expect([666666, "work", None] in [[r["call"], r["function"], r["call_is"]] for w in windows for r in w["reasons"]], windows)
    row = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT call, call_is FROM windows WHERE reason LIKE '%returns%'"))
    expect(row == [{"call": 666666, "call_is": None}], row)


@case
def of_several_threads(scene):
    """Calls of all threads count, in the order of their times, though the recorder reads one thread after the other."""
    slow, failed, _ = numbered(scene, "threads", 150000)
    expect(len(slow) == len(failed) == 3, f"{slow} {failed}")
    agree(scene, slow, failed)


@case
def of_coroutines(scene):
    """A call that is open while its thread makes others on another stack keeps its number."""
    slow, failed, _ = numbered(scene, "coroutines", 100000)
    expect(len(slow) == len(failed) == 2, f"{slow} {failed}")
    agree(scene, slow, failed)


@case
def after_losses(scene):
    """Where calls were lost before, the number is a lower bound, and that is said."""
    program = scene.compile("programs/numbered.c", "-O1", "-pthread", name="numbered")
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, *RULES, "--no-wait", "--ring-size", "1", "--", program, "one", "6000000"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_for("events", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    recorder.send_signal(signal.SIGSTOP)
    time.sleep(0.05)  # in which the program makes more calls than there is room for
    recorder.send_signal(signal.SIGCONT)
    out = recorder.communicate(timeout=300)[0]
    truth = int(out.split()[out.split().index("slow") + 1])
    reasons = [reason for reason in told(scene, "work > 250ms") if reason["call"] > 1000]
    if scene.manifest()["dropped_total"] == 0 or not reasons:
        raise Skip("the program was not too fast, or the slow call itself was lost")
    expect(reasons[-1]["call_is"] == "least" and reasons[-1]["call"] <= truth, f"{reasons}, truly {truth}")
    expect("of work, or a later one)" in scene.run(scene.contrail, "info", scene.trace), "info does not say it")


@case
def of_a_later_rule(scene):
    """A rule that comes later has not counted the calls before it."""
    scene.start("--on", "call other")
    scene.do("step", 500)
    scene.ask("trigger", "add", "call step")
    scene.do("step", 3)
    scene.do("other", 1)
    scene.finish()
    later = told(scene, "call step")
    # Of those before the recorder may not have read all when the rule comes.
    expect(later and all(reason["call_is"] == "least" and reason["call"] <= 503 for reason in later), later)
    other, = told(scene, "call other")
    expect(other["call"] == 1 and "call_is" not in other, other)


if __name__ == "__main__":
    main(__doc__, Scene)
