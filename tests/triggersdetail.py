#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Detail around marks, and by rules (record --detail with --on, --on '...: detail PATTERN'), with programs that know which of their calls matter.

    tests/triggersdetail.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import shutil
import subprocess

from harness import case, expect, main, wait_for
from triggers import Scene


def detail_of(scene, *words, status=0):
    """The numbers of the calls of work that have detail, by thread; and the times of the calls, and the window."""
    program = scene.compile("programs/marked.c", "-O1", "-pthread", name="marked")
    shutil.rmtree(scene.trace, ignore_errors=True)
    how = words[-1]
    result = subprocess.run([scene.contrail, "record", "-q", "-o", scene.trace, "--detail", "work", *words[:-1], "--", program, how],
                            cwd=scene.folder, env=scene.environment, capture_output=True, text=True, timeout=120)
    expect(result.returncode == status and result.stdout == "12000 calls\n", result)
    calls = {}
    for line in enters(scene, "work"):
        calls.setdefault(line["tid"], []).append((line["ts_ns"], int(line["detail"]["registers"][0], 16) if "detail" in line else None))
    return calls, json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))


def files_of_detail(scene):
    return [name for _, _, names in os.walk(scene.trace) for name in names if name == "detail.ctd"]


@case
def detail_around_marks(scene):
    """Every call in the window has its detail, with the right argument, and those far from it have none."""
    calls, info = detail_of(scene, "--on", "call matters", "--pre", "300ms", "--post", "200ms", "matters")
    window, = info["windows"]
    expect(len(calls) == 2, calls.keys())
    for tid, list_of in calls.items():
        expect(len(list_of) == 6000, len(list_of))
        for number, (when, argument) in enumerate(list_of):
            expect(argument in (None, number), (tid, number, argument))
            if window["begin_ns"] <= when <= window["end_ns"]:
                expect(argument == number, f"call {number} of thread {tid} is in the window and has no detail")
        with_detail = sum(argument is not None for _, argument in list_of)
        expect(0 < with_detail < 5500, with_detail)
    detail = info["detail"]
    expect(detail["records"] + detail["outside_windows"] == 24000 and detail["no_memory"] == detail["overwritten"] == 0, detail)


@case
def detail_without_marks(scene):
    """No mark, no file of detail; --detail-always, and without rules, all of it; a crash has what went before it."""
    calls, info = detail_of(scene, "--on", "call matters", "plain")
    expect(files_of_detail(scene) == [] and info["detail"]["outside_windows"] == 24000 and info["detail"]["records"] == 0, info["detail"])
    expect(all(argument is None for list_of in calls.values() for _, argument in list_of), "detail is shown")
    for words in (["--on", "call matters", "--detail-always"], []):
        calls, info = detail_of(scene, *words, "plain")
        expect(all(argument == number for list_of in calls.values() for number, (_, argument) in enumerate(list_of)), "all")
        expect(info["detail"]["records"] == 24000 and "outside_windows" not in info["detail"], info["detail"])
    calls, info = detail_of(scene, "--on", "crash", "--pre", "1s", "crash", status=139)
    begin = info["windows"][0]["begin_ns"]
    for list_of in calls.values():
        expect(all(argument == number for number, (when, argument) in enumerate(list_of) if when >= begin), (begin, list_of[-1]))
    expect(max(when for list_of in calls.values() for when, argument in list_of if argument is not None) >= begin, begin)
    expect(any(argument is None for list_of in calls.values() for _, argument in list_of), "all have detail")


def enters(scene, function):
    shown = [json.loads(line) for line in scene.run(scene.contrail, "replay", "--json", "--function", function, scene.trace).splitlines()]
    return [line for line in shown if line["kind"] == "enter" and line["name"] == function]


def details_and_calls(scene, function):
    """The recorded calls of a function, in the order of their times: when, and whether with detail."""
    return sorted((line["ts_ns"], "detail" in line) for line in enters(scene, function))


def numbers_with_detail(scene):
    """The numbers of the calls of work that have detail, by thread."""
    calls = {}
    for line in enters(scene, "work"):
        if "detail" in line:
            calls.setdefault(line["tid"], []).append(int(line["detail"]["registers"][0], 16))
    return calls


def record_detail_by_a_rule(scene, rule, program, more):
    """Whether its functions had detail soon enough, and not much longer than the window: a machine may be too busy for that."""
    shutil.rmtree(scene.trace, ignore_errors=True)
    scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--on", rule, "--post", "500ms", *more, "--", program, "matters")
    window, = scene.windows(1)
    start = scene.manifest()["start_ns"]
    mark, end = window["reasons"][0]["ns"] - start, window["end_ns"] - start
    recorded = details_and_calls(scene, "work")
    times = [when for when, has_detail in recorded if has_detail]
    calls = scene.rows()["work"]["calls"]
    budget = scene.manifest().get("budget", {})
    may_be_fewer = bool(budget.get("were_out"))  # not even counted: of what a busy machine leaves the process, nine times may be little
    expect(len(recorded) == calls if "--trace" in more else calls == 12000 or calls < 12000 and may_be_fewer,
           f"{calls} calls, {len(recorded)} of them recorded; {budget}")
    detail = scene.rule(rule)["detail"]
    expect((detail["pattern"], detail["times"] + detail["missed"], detail["on"]) == ("work", 1, False), f"{detail}")
    expect(not any(has_detail for _, has_detail in details_and_calls(scene, "matters")), "matters has detail")
    if times:
        expect(mark < times[0], f"{times[0]} to {times[-1]}, the window: {mark} to {end}")
        expect(all(has_detail for when, has_detail in recorded if times[0] <= when <= end), "a call in the window has none")
        expect(times[0] == recorded[0][0] or "--trace" not in more, "calls before the mark are recorded")
        for tid, numbers in numbers_with_detail(scene).items():
            expect(numbers == list(range(numbers[0], numbers[-1] + 1)), f"thread {tid}: {len(numbers)} of the calls {numbers[0]} to {numbers[-1]} have detail")
    # What was recorded together with the last of the window is kept, too.
    return detail["times"] == 1 and len(times) > 100 and times[0] - mark < 250000000 and times[-1] < end + 300000000


@case
def detail_by_a_rule(scene):
    """A rule's functions have detail from its mark to the end of its window, and no others; calls before and after have none."""
    rule = "call matters: detail work"
    program = scene.compile("programs/marked.c", "-O1", "-pthread", name="marked")
    late = 0
    for more in ((), ("--trace", "main"), ("--last", "32M"), ("--budget", "900%")):
        while not record_detail_by_a_rule(scene, rule, program, more):
            late += 1
            expect(late < 10, f"too late {late} times: {scene.rule(rule)['detail']}")
    return f"hooked in {scene.rule(rule)['detail']['slowest_ns'] / 1e6:.1f} ms" + (f", {late} times too late" if late else "")


@case
def detail_by_rules_live(scene):
    """It comes and goes, again and again; with the rule when that is removed; and needs a lane from the start."""
    scene.start("--on", "call other: detail step", "--post", "1s", "--pre", "0")  # over before a busy recorder comes to it: missed

    def detail(of="call other: detail step"):
        return {rule["rule"]: rule for rule in scene.ask("trigger", "list")["rules"]}[of]["detail"]
    for times in (1, 2, 3):
        scene.do("step", 100)
        scene.do("other", 1)
        wait_for("detail", lambda: detail()["times"] == times)
        scene.do("step", 10)
        wait_for("its end", lambda: not detail()["on"])
    scene.ask("trigger", "add", "call nap: detail other")
    scene.do("nap", 1)
    wait_for("detail", lambda: detail("call nap: detail other")["on"] or detail("call nap: detail other")["times"] == 1)
    scene.run(scene.contrail, "trigger", "remove", "call nap: detail other")
    scene.do("nap", 1)
    scene.finish()
    steps = details_and_calls(scene, "step")
    with_detail = sum(has_detail for _, has_detail in steps)
    expect(len(steps) == 330 and with_detail <= 30, f"{with_detail} of {len(steps)}")
    scene.windows(4 if scene.rule("call other: detail step")["marks"] == 3 else 0)
    shutil.rmtree(scene.trace)
    scene.start("--on", "call other")
    refused = scene.execute(scene.contrail, "trigger", "add", "call other: detail step")
    expect(refused.returncode == 1 and "no memory for detail" in refused.stderr, f"{refused}")
    scene.finish()
    refused = scene.execute(scene.contrail, "record", "-o", scene.trace + "-2", "--on", "call other: detail step", "--post", "0", "true")
    expect(refused.returncode == 125 and "--post 0" in refused.stderr, f"{refused}")


if __name__ == "__main__":
    main(__doc__, Scene)
