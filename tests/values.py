#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Arguments and results: of a program whose results follow from its arguments, call by call; which functions have them, by
option and by pattern; and that a recording without them has none.

    tests/values.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import re

import fixture as fx
import harness
from harness import case, main

WORD = (1 << 64) - 1
RESULTS = {"values_mix": lambda a, b: (a * 31 & WORD) ^ b, "values_handled": lambda a, b: (a + b) & WORD,
           "values_deep": lambda a, b: (a + b) & WORD}


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.traces = 0

    def program(self, variant="gcc-O2"):
        fixture = fx.Fixture(os.path.join(fx.FIXTURES, "values.c"))
        return fx.build(fixture, variant, os.path.join(self.build_dir, "tests", "fixtures"))

    def run(self, *words):
        environment = dict(os.environ, CT_COUNTS=os.path.join(self.folder, "counts"))
        result = self.execute(self.contrail, *words, timeout=300, env=environment)
        return result.returncode, result.stdout, result.stderr

    def record(self, *options, variant="gcc-O2", loops=()):
        self.traces += 1
        trace, counts = (os.path.join(self.folder, name) for name in (f"trace{self.traces}", "counts"))
        if os.path.exists(counts):
            os.unlink(counts)
        status, out, err = self.run("record", "--lossless", *options, "-o", trace, "--", self.program(variant), *loops)
        assert status == 0 and out == "done\n" and err == "", (status, out, err)
        with open(counts, encoding="ascii") as file:
            pairs = [line.split() for line in file if not line.startswith("left")]
        return trace, {name: int(number) for name, number in pairs}

    def lines(self, trace, *words):
        status, out, err = self.run("replay", "--json", *words, trace)
        assert status == 0 and err == "", (status, err)
        return harness.parse_lines(out)


class Calls:
    """The calls of the program's functions, put together from enters, returns and what stands apart."""

    def __init__(self, lines):
        self.done = collections.defaultdict(list)  # by function: (arguments, result)
        self.apart = 0
        opened = {}
        for line in lines:
            key = line["tid"], line["depth"], line["name"]
            if line["name"] not in RESULTS:
                continue
            if line["kind"] == "enter":
                opened[key] = {"args": line.get("args", [])}
            elif line["kind"] == "value":
                self.apart += 1
                opened[key].setdefault("late", {})[line["which"]] = line["value"]
            elif line["kind"] in ("return", "left"):
                self.done[line["name"]].append((opened.pop(key), line.get("result")))

    def check(self, name, total, missing_allowed):
        calls = self.done[name]
        assert len(calls) == total, (name, len(calls), total)
        missing, seen = 0, set()
        for call, result in calls:
            late = call.get("late", {})
            values = list(call["args"])
            if len(values) < 2:
                values += [late[which] for which in ("argument 1", "argument 2") if which in late]
            result = result or late.get("result")
            if len(values) != 2 or result is None:
                missing += 1
                continue
            a, b = (int(value, 16) for value in values)
            assert int(result, 16) == RESULTS[name](a, b), (name, call, result)
            seen.add((a, b))
        assert missing <= missing_allowed, (name, missing, missing_allowed)
        assert len(seen) == total - missing, (name, len(seen), total, missing)  # each call has its own


@case
def fit_together(scene):
    for variant in random.sample(("gcc-O0", "clang-O2", "gcc-O2"), scene.rounds(1, 3)):
        trace, truth = scene.record("--args", "--exclude=lib*!", "--exclude=ld-*!", variant=variant)
        calls = Calls(scene.lines(trace))
        signals = truth["values_handled"]
        # What a handler came between is paired all the same; only where it filled the segment a value may be missing.
        for name in RESULTS:
            calls.check(name, truth[name], signals // 20)
        assert signals > 50, signals
    return variant


@case
def looks(scene):
    trace, _ = scene.record("--args")
    status, out, _ = scene.run("replay", "--function", "values_deep", trace)
    assert status == 0 and "values_deep(a=50, b=7) {" in out and "values_deep(a=0, b=57) = 57;" in out, out
    assert "} values_deep() = 57" in out, out
    status, out, _ = scene.run("replay", "--function", "values_jump", trace)
    assert status == 0 and re.search(r"values_jump\(buffer=0x[0-9a-f]+, value=5\) \{", out), out
    assert re.search(r"\} values_jump\(\)  -- left by longjmp\n", out), out
    lines = scene.lines(trace, "--function", "values_deep", "--depth", "1")
    assert lines[0]["args"] == ["0x32", "0x7"] and lines[-1]["result"] == "0x39", (lines[0], lines[-1])


@case
def by_choice(scene):
    """Nothing without being asked; with a pattern that is exact or of one level, those; with --args all, --no-args none."""
    def with_values(*options):
        trace, truth = scene.record(*options, loops=["500"])
        have, calls = set(), collections.Counter()
        for line in scene.lines(trace):
            calls[line["name"]] += line["kind"] == "enter"
            if "args" in line or "result" in line:
                have.add(line["name"])
        for name in have:
            assert calls[name] == truth.get(name, calls[name]), (options, name, calls[name])
        return have

    assert with_values() == set()
    assert with_values("--trace", "values_deep", "--trace", "values_mix") == {"values_deep", "values_mix"}
    assert with_values("--trace", "values_d*") == {"values_deep"}
    assert with_values("--trace", "values_d*", "--no-args") == set()
    assert with_values("--trace", "values_deep", "--trace", "values_**", "--mode", "auto") == {"values_deep"}
    assert with_values("--trace", "values_deep", "--mode", "light") == set()
    everything = with_values("--args", "--trace", "values_**", "--mode", "full")
    assert everything == {"values_mix", "values_handled", "values_deep", "values_jump"}, everything


def told_by(lines):
    """Of calls in the order of their begins: function, arguments, result."""
    calls, opened = [], []
    for line in lines:
        if line["kind"] == "enter":
            calls.append([line["name"], *(int(word, 16) for word in line["args"]), None])
            opened.append(calls[-1])
        elif line["kind"] == "return":
            opened.pop()[-1] = int(line["result"], 16)
    assert opened == [], opened
    return [tuple(call) for call in calls]


@case
def as_the_program_tells(scene):
    """Values of all lengths, the same again, and near those before: in their order, as the program writes them down."""
    program = scene.compile("programs/values_told.c", "-O1")
    told, trace = (os.path.join(scene.folder, name) for name in ("told", "told.trace"))
    calls = scene.rounds(20000, 200000)
    status, _, err = scene.run("record", "-q", "--trace", "told_?", "-o", trace, "--", program, str(random.getrandbits(32)),
                               str(calls), told)
    assert status == 0, err
    with open(told, encoding="ascii") as file:
        truth = [(name, *(int(word, 16) for word in words)) for name, *words in (line.split() for line in file)]
    got = told_by(scene.lines(trace))
    wrong = [at for at, pair in enumerate(zip(got, truth)) if pair[0] != pair[1]]
    assert len(got) == len(truth) >= calls and not wrong, (len(got), len(truth), [(got[at], truth[at]) for at in wrong[:3]])


@case
def as_before(scene):
    """Counts and ends are those of a recording without values."""
    reports = []
    for options in ((), ("--args",)):
        trace, truth = scene.record(*options)
        status, out, _ = scene.run("report", "--json", "--limit", "0", trace)
        assert status == 0
        rows = {row["name"]: row for row in json.loads(out)["functions"] if row["module"] == "values"}
        assert {name: rows[name]["calls"] for name in truth} == truth
        assert rows["values_jump"]["left"] == {"longjmp": 1} and all(row["orphans"] == 0 for row in rows.values())
        reports.append(rows)
    assert set(reports[0]) == set(reports[1])


if __name__ == "__main__":
    main(__doc__, Scene)
