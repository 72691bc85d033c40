#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail cut: a piece of a trace as a trace of its own. Its report is that of the same piece of the original, and so is
what replay says of it, but for what stands there about the edges.

    tests/cut.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import shutil

import atf
import harness
import losses as of_losses
from harness import NO_LOADER, expect, main

harness.CASES.clear()  # those of these files are their own
case = harness.case


def differences(these, others):
    """By name, or tid, and key."""
    key = "name" if any("calls" in row for row in [*these, *others]) else "tid"
    table = {row[key]: row for row in others}
    told = [{row[key]: [(name, value, table.get(row[key], {}).get(name)) for name, value in row.items()
                        if table.get(row[key], {}).get(name) != value]} for row in these if table.get(row[key]) != row]
    return told[:3] or f"{len(these)} rows, not {len(others)}, or in another order: {others[:3]}"


class Scene(atf.Scene):
    def edges(self, count, seed=1):
        """Pieces at random, from an event to another, and the ends."""
        times = sorted({line["ts_ns"] for lines in self.replay().values() for line in lines if line["tid"]})
        chance = random.Random(seed)
        pieces = [sorted(chance.sample(times, 2)) for _ in range(count)]
        return [*pieces, (0, times[len(times) // 2]), (times[len(times) // 3], times[-1] + 10**9)]

    def check_piece(self, low, high, *threads, family=()):
        piece = ("--from", atf.seconds(low), "--to", atf.seconds(high), *threads)
        target = self.path("cut")
        shutil.rmtree(target, ignore_errors=True)
        self.run(self.contrail, "cut", *piece, "-o", target, self.trace)
        for words in ((), ("--raw",), ("--time", "cpu"), *((("--per-thread",),) if not threads else ())):
            whole, own = self.report(self.trace, *words, *piece), self.report(target, *words)
            for table in (whole, own):  # what was lost is known of all of a trace, and of the piece of a cut one
                for thread in table["threads"]:
                    thread.pop("dropped")
            for key in ("functions", "threads"):
                expect(whole[key] == own[key], f"{piece} {words}: {key} differ: {differences(whole[key], own[key])}")
        return target


@case
def threads(scene):
    scene.record(*NO_LOADER, "--", scene.build())
    for low, high in scene.edges(4):
        target = scene.check_piece(low, high)
    tid = scene.manifest()["threads"][1]["tid"]
    scene.check_piece(*scene.edges(1, seed=2)[0], "--thread", str(tid))
    whole = scene.path("whole")
    scene.run(scene.contrail, "cut", "-o", whole, scene.trace)
    expect(scene.run(scene.contrail, "replay", "--json", whole) == scene.run(scene.contrail, "replay", "--json", scene.trace),
           "a cut of all of it differs")
    expect(scene.run(scene.contrail, "output", "--raw", whole) == scene.run(scene.contrail, "output", "--raw", scene.trace),
           "another output")
    again = scene.path("again")
    scene.run(scene.contrail, "cut", "-o", again, target)
    expect(scene.report(again)["functions"] == scene.report(target)["functions"], "a cut of a cut differs")
    info = json.loads(scene.run(scene.contrail, "info", "--json", target))
    expect(not info.get("damage") and info["complete"] is True, f"{info}")


@case
def coroutines(scene):
    scene.record(*NO_LOADER, "--", scene.compile("fixtures/coroutines.c", "-O2", "-w", "-pthread", f"-DTURNS={scene.rounds(300, 1000)}"))
    for low, high in scene.edges(3):
        scene.check_piece(low, high)


@case(alone=True)
def losses(scene):
    """Events are lost while contrail stands still; frames that were open then are uncertain in pieces that begin after it."""
    lossy = of_losses.Scene(scene.options, scene.folder)
    lossy.stopped(0.1, "--ring-size", "4", "--no-wait", rounds=scene.rounds(1, 3) * of_losses.ROUNDS)
    info = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))
    expect(info["dropped"] > 0, "nothing was lost")
    seen = False
    chance = random.Random(3)
    for _ in range(scene.rounds(3, 12)):
        low, high = sorted(chance.randrange(int(info["duration_ns"])) for _ in range(2))
        target = scene.check_piece(low, high)
        seen |= any(row["uncertain"] and row["entered_before"] for row in scene.report(target)["functions"])
    for share in (97, 99, 95, 98, 90, 96, 80, 94, 70, 93, 60, 92, 50, 91, 40, 30):  # where the loss is rests on the machine
        if not seen or share == 97:
            scene.check_piece(int(info["duration_ns"] * share / 100), 2 * int(info["duration_ns"]))
            seen |= any(row["uncertain"] for row in scene.report(scene.path("cut"))["functions"])
    expect(seen, "no uncertain frames in any piece")


@case
def details(scene):
    scene.record("--detail", "deep", "--detail", "leaf", *NO_LOADER, "--", scene.build())
    times = sorted(line["ts_ns"] for lines in scene.replay().values() for line in lines if line["name"] == "deep")
    low, high = times[len(times) // 4], times[len(times) * 3 // 4]
    target = scene.check_piece(low, high)
    told = lambda lines: [(line["kind"], line["ts_ns"], line.get("args"), line.get("detail"), line.get("results"))
                          for line in lines if line["name"] == "deep" and not line.get("unfinished")
                          and not line.get("entered_before")]
    piece = scene.replay(None, "--from", atf.seconds(low), "--to", atf.seconds(high), "--function", "deep")
    own = scene.replay(target, "--function", "deep")
    expect(sum(bool(line[3]) for lines in piece.values() for line in told(lines)) > 10, "no details in the piece")
    for tid, lines in piece.items():
        expect(told(lines) == told(own.get(tid, [])), f"thread {tid}: other details")


@case
def family(scene):
    scene.record("--follow", *NO_LOADER, "--", scene.build(), "fork")
    target = scene.path("cut")
    scene.run(scene.contrail, "cut", "-o", target, scene.trace)
    expect(scene.report(target, "--family")["functions"] == scene.report(scene.trace, "--family")["functions"], "differs")
    child = scene.manifest()["children"][0]["directory"]
    expect(os.path.isdir(os.path.join(target, child)), "no child")


@case
def process(scene):
    """One process of a family, alone; a piece of it; as export has it."""
    scene.record("--follow", *NO_LOADER, "--", scene.build(), "fork")
    manifest = scene.manifest()
    pids = [manifest["pid"]] + [child["pid"] for child in manifest["children"] if child.get("directory")]
    expect(len(pids) > 1, manifest["children"])
    for pid in pids:
        times = [line["ts_ns"] for line in json_lines(scene.run(scene.contrail, "replay", "--json", "--process", str(pid), scene.trace))
                 if line["kind"] == "enter"]
        begin, end = times[len(times) // 4], times[len(times) * 3 // 4]
        for number, words in enumerate(((), ("--from", f"{begin}ns", "--to", f"{end}ns"))):
            for form, command in (("cut", ("cut",)), ("export", ("export", "--to", "contrail"))):
                if form == "export" and words and pid != pids[0]:
                    continue  # it counts from the begin of the first process's recording
                target = scene.path(f"{form}{pid}_{number}")
                scene.run(scene.contrail, *command, "--process", str(pid), *words, "-o", target, scene.trace)
                whole, own = scene.report(scene.trace, "--process", str(pid), *words), scene.report(target)
                expect(own["functions"] == whole["functions"] and own["functions"],
                       f"{form} {pid} {words}: {differences(own['functions'], whole['functions'])}")
                with open(os.path.join(target, "manifest.json")) as file:
                    own = json.load(file)
                expect(own["pid"] == pid and not own.get("children"), f"{form} {pid}: {own['pid']}, {own.get('children')}")
    for words in (("cut", "--process", "1"), ("export", "--to", "contrail", "--process", "1"),
                  ("cut", "--process", str(pids[0]), "--process", str(pids[1]))):
        result = scene.execute(scene.contrail, *words, "-o", scene.path("x"), scene.trace)
        expect(result.returncode == 2 and result.stderr.count("\n") == 1 and not os.path.exists(scene.path("x")), f"{words}: {result}")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@case
def refusals(scene):
    scene.record("--", "/bin/true")
    scene.write("full", "x")
    for words, status in ((("-o", scene.folder), 1), ((), 2), (("-o", scene.path("x"), "--thread", "1"), 2)):
        result = scene.execute(scene.contrail, "cut", *words, scene.trace)
        expect(result.returncode == status, f"{words}: status {result.returncode}: {result.stderr}")
    expect(not os.path.exists(scene.path("x")), "it left a directory")
    for name in ("thread_0/index.ctb",):  # damage: what comes before is cut
        path = os.path.join(scene.trace, name)
        os.truncate(path, os.path.getsize(path) * 2 // 3)
    result = scene.execute(scene.contrail, "cut", "-o", scene.path("x"), scene.trace)
    expect(result.returncode == 0 and "damaged or cut" in result.stderr, f"{result.returncode} {result.stderr}")
    scene.run(scene.contrail, "report", scene.path("x"))


if __name__ == "__main__":
    main(__doc__, Scene)
