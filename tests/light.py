#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Light hooks and their sampling as the user sees them: the options; the numbers of a program that knows its own,
scaled back, at fixed intervals; what report, replay and the manifest say of it. Then the fixtures with light hooks.

    tests/light.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time

import fixture as fx
import harness
from harness import Counts, HERE, Running, case, expect, main, wait_for

# One variant of each fixture, and those of the hazards that concern stacks, threads and signals in all of theirs.
FIXTURES = ["*/gcc-O2", "*/gcc-O2/*", "altstack*", "coroutines*", "handlerfull*", "longjmp*", "signals*", "tail*"]


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        fixture = fx.Fixture(os.path.join(fx.FIXTURES, "light.c"))
        self.program = fx.build(fixture, "gcc-O2", os.path.join(self.build_dir, "tests", "fixtures"))
        self.traces = 0

    def run(self, *words):
        environment = dict(os.environ, CT_COUNTS=os.path.join(self.folder, "counts"))
        result = self.execute(self.contrail, *words, timeout=300, env=environment)
        return result.returncode, result.stdout, result.stderr

    def record(self, *options, arguments=()):
        """The trace, what contrail said, and the numbers that the program told."""
        self.traces += 1
        trace, counts = (os.path.join(self.folder, name) for name in (f"trace{self.traces}", "counts"))
        if os.path.exists(counts):
            os.unlink(counts)
        status, out, err = self.run("record", "--mode", "light", *options, "-o", trace, "--", self.program, *arguments)
        assert status == 0 and out == "done\n", (status, out, err)
        with open(counts, encoding="ascii") as file:
            truth = {name: int(number) for name, number in (line.split() for line in file)}
        return trace, err, truth

    def json(self, *words):
        status, out, err = self.run(*words)
        assert status == 0, (words, status, err)
        return json.loads(out)

    def calls(self, trace):
        """The rows of the program's own functions, by name."""
        report = self.json("report", "--json", "--limit", "0", trace)
        return {row["name"]: row for row in report["functions"] if row["module"] == "light"}


OWN = ("--exclude=lib*!", "--exclude=ld-*!")  # all calls are the program's own then


@case
def options(scene):
    for words, reason in ((["--mode", "faint"], "full"), (["--sample", "3"], "power of two"),
                          (["--sample", "512"], "256"), (["--sample", "0"], "power of two")):
        status, out, err = scene.run("record", *words, "/bin/true")
        assert status == 2 and not out and len(err.splitlines()) == 1 and reason in err, (words, status, out, err)


@case
def every_call(scene):
    """Interval 1, in which all light hooks begin: exact, of all threads, and nothing is said of sampling."""
    for arguments in ((), ("handlers",)):
        trace, err, truth = scene.record("--no-sampling", "--lossless", arguments=arguments)
        rows = scene.calls(trace)
        assert err == "", err
        assert {name: rows[name]["calls"] if name in rows else 0 for name in truth} == truth, (truth, rows)
        assert all(not row["sampled"] and row["recorded"] == row["calls"] for row in rows.values())
        status, out, _ = scene.run("report", trace)
        assert status == 0 and "~" not in out and "sampl" not in out, out
        status, out, _ = scene.run("replay", "--function", "light_rare", "--limit", "3", trace)
        assert status == 0 and out.count("light_rare()  -- enter only\n") == 3, out
        manifest = scene.json("info", "--json", trace)
        assert manifest["dropped"] == 0, manifest["dropped"]


@case
def scaled_back(scene):
    """A fixed interval: the sum over all functions differs from the truth by less than one interval for each thread; each
    function's number by what chance allows."""
    for arguments in ((), ("handlers",)):
        trace, _, truth = scene.record("--no-sampling", "--lossless", *OWN, arguments=arguments)
        unsampled = {name: row["calls"] for name, row in scene.calls(trace).items() if name not in truth}
        for interval in (2, 8, 64, 256):
            trace, _, truth = scene.record("--sample", str(interval), "--lossless", *OWN, arguments=arguments)
            others = dict(unsampled)
            others["on_signal"] = truth["light_handled"] // 3
            total = sum(truth.values()) + sum(others.values())
            rows = scene.calls(trace)
            for row in rows.values():
                assert row["calls"] == interval * row["recorded"] and row["sampled"], (interval, row)
            threads = len(scene.json("info", "--json", trace)["threads"])
            found = sum(row["calls"] for row in rows.values())
            # A thread without an event has no stream: count all that there were.
            threads = max(threads, 400 + 9)
            assert abs(found - total) < interval * threads, (interval, arguments, found, total, threads)
            for name, number in truth.items():
                row = rows.get(name, {"calls": 0})
                allowed = 7 * math.sqrt(number * interval) + 2 * interval
                assert abs(row["calls"] - number) <= allowed, (interval, arguments, name, row["calls"], number)


@case
def few_threads(scene):
    """Threads of many calls alone: the bound is some thousandth of the number, which a step in time with the loop, or a
    weight that is wrong, misses by far."""
    interval = 256
    trace, _, truth = scene.record("--sample", str(interval), "--lossless", *OWN, "--exclude=light_brief",
                                   "--exclude=brief_thread")
    rows = scene.calls(trace)
    found = sum(row["calls"] for row in rows.values())
    total = sum(number for name, number in truth.items() if name != "light_brief")
    assert total > 1000000 and abs(found - total) < interval * 9 + 1000, (found, total)


@case
def told(scene):
    trace, err, _ = scene.record("--sample", "16", "--verbose")
    assert "contrail: light hooks: the sampling interval changed 0 times and is 16" in err.splitlines(), err
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        sampling = json.load(file)["sampling"]
    assert sampling == {"adapts": False, "interval": 16, "changes": 0, "last_changes": []}, sampling
    assert scene.json("info", "--json", trace)["sampling"] == sampling
    status, out, _ = scene.run("info", trace)
    assert status == 0 and re.search(r"sampling +of light hooks' calls 1 of 16\n", out), out
    with open(os.path.join(trace, "functions.tsv"), encoding="utf-8") as file:
        modes = dict((line.split("\t")[5].rstrip("\n"), line.split("\t")[4]) for line in file)
    assert modes["light_often"] == "light" and modes["dlopen"] == "enter", modes
    status, out, _ = scene.run("report", trace)
    assert status == 0 and re.search(r"~[\d,]+ .* light_often\n", out) and "calls with ~ are estimated" in out, out
    status, out, _ = scene.run("replay", "--limit", "2000", trace)
    assert status == 0 and "-- sampling: of light hooks' calls 1 of 16 is recorded from here on --" in out, out[:500]
    assert re.search(r"light_often\(\)  -- enter only, sampled: 1 of 16\n", out), out[:500]
    status, out, _ = scene.run("replay", "--json", "--limit", "2000", trace)
    lines = [json.loads(line) for line in out.splitlines()]
    assert any(line["kind"] == "interval" and line["interval"] == 16 for line in lines), lines[:5]
    assert all(line["sampled"] and line["interval"] == 16 for line in lines if line["name"] == "light_often")


@case(alone=True)
def adapts(scene):
    """As it stands in the manifest when nothing was sampled: on, and never changed where the recorder keeps up."""
    trace, _, truth = scene.record("--exclude=light_often", "--exclude=light_half", "--exclude=light_mix", *OWN)
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        sampling = json.load(file)["sampling"]
    assert sampling["adapts"] and sampling["interval"] == 1 and sampling["changes"] == 0, sampling
    assert scene.calls(trace)["light_rare"]["calls"] == truth["light_rare"]


LATE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define OWN __attribute__((noinline, noclone))
static __thread volatile long sum;
static long turns;
OWN void l_one(long i) { sum += i; }
OWN void l_two(long i) { sum -= i; }
OWN void l_outer(long i) { l_one(i); l_two(i); }
OWN void f_full(long n) { for (long i = 0; i < n; i++) { l_one(i); if (i % 3 == 0) l_outer(i); } }
static void *run(void *a) { for (long i = 0; i < turns; i++) f_full(3000); return a; }
int main(int argc, char **argv)
{
  pthread_t thread;
  turns = atol(argv[1]);
  pthread_create(&thread, 0, run, 0);
  run(0);
  pthread_join(thread, 0);
  printf("%ld %ld %ld %ld\n", 2 * turns, 2 * turns * 4000, 2 * turns * 1000, 2 * turns * 1000);
  return 0;
}
"""


def late(scene, turns):
    """The trace of a recorder that has little room and is stopped again and again, and what the program says of its calls."""
    trace = scene.path("trace")
    shutil.rmtree(trace, ignore_errors=True)
    command = [scene.contrail, "record", "-q", "--ring-size", "1", "--trace", "f_full", "--trace", "**", "--exclude=lib*!", "--exclude=ld-*!",
               "-o", trace, "--", scene.program, str(turns)]
    with Running(command, stdout=subprocess.PIPE, text=True) as recorder:
        wait_for("the recording", lambda: os.path.exists(os.path.join(trace, "functions.tsv")))
        while recorder.poll() is None:
            recorder.send_signal(signal.SIGSTOP)
            time.sleep(0.015)  # longer than a cycle of the sampling; the program fills the ring in a tenth of that
            recorder.send_signal(signal.SIGCONT)
            time.sleep(0.003)  # the recorder finds it full
        told = recorder.stdout.read().split()
    expect(recorder.returncode == 0, f"{recorder.returncode}")
    return trace, dict(zip(("f_full", "l_one", "l_outer", "l_two"), map(int, told)))


@case(alone=True)
def grows(scene):
    """A recorder that is late makes the interval larger; every command says of the calls what the lines of replay amount to."""
    scene.program = scene.compile(scene.write("late.c", LATE), "-O1", "-pthread")
    for turns in (40, 120, 240):
        trace, truth = late(scene, turns)
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        lines = [json.loads(line) for line in scene.run("replay", "--json", trace)[1].splitlines()]
        weights = {line["interval"] for line in lines if line["kind"] == "point" and line.get("sampled")}
        if max(weights, default=1) > 1:
            break
    expect(manifest["sampling"]["changes"] and max(weights) > 1, f"{turns} turns: {manifest['sampling']}, {weights}")
    said = sorted({line["interval"] for line in lines if line["kind"] == "interval"})
    expect(set(said) == weights | set(said) and len(said) <= 2 * manifest["sampling"]["changes"] + 2, f"{said}, {weights}")
    calls, recorded = collections.Counter(), collections.Counter()
    for line in lines:
        if line["kind"] in ("enter", "tail", "point"):
            calls[line["name"]] += line.get("interval", 1) if line.get("sampled") else 1
            recorded[line["name"]] += 1
    report = {row["name"]: row for row in scene.json("report", "--json", "--limit", "0", trace)["functions"]}
    table = {row["name"]: row for row in scene.json("sql", "--json", trace, "SELECT name, calls FROM functions WHERE calls > 0")}
    spans = {row["function"]: row for row in scene.json(
        "sql", "--json", trace, "SELECT function, sum(calls) AS calls, count(*) AS n FROM spans GROUP BY function")}
    edges = {row["callee"]: row for row in scene.json("sql", "--json", trace, "SELECT callee, sum(calls) AS calls FROM edges GROUP BY callee")}
    for name, number in calls.items():
        expect(report[name]["calls"] == table[name]["calls"] == spans[name]["calls"] == edges[name]["calls"] == number,
               f"{name}: {report[name]} {table[name]} {spans[name]} {edges[name]}, by the lines {number}")
        expect(report[name]["recorded"] == spans[name]["n"] == recorded[name], f"{name}: {report[name]} {spans[name]}, {recorded[name]} lines")
    expect(calls["f_full"] == truth["f_full"] and not report["f_full"]["sampled"], f"{report['f_full']}, not {truth}")
    if not manifest["dropped_total"]:
        light = [name for name in truth if name != "f_full"]
        found, total, most = sum(calls[name] for name in light), sum(truth[name] for name in light), max(weights)
        expect(abs(found - total) < most * 3, f"{found} calls of {total}, at an interval of at most {most}")
        for name in light:
            expect(abs(calls[name] - truth[name]) <= 7 * math.sqrt(truth[name] * most) + 2 * most, f"{name}: {calls[name]}, not {truth[name]}")
    return f"{len(lines)} lines, intervals of up to {max(weights)}"


@case
def fixtures(scene):
    command = [os.path.join(HERE, "run.py"), "--build", scene.build_dir, "--light", "--share", "0.15", "--long" if scene.options.long else "--few"]
    for pattern in FIXTURES:
        command += ["--filter", pattern]
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    *lines, last = process.stdout.splitlines() or [""]
    found = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    expect(found, f"{last} {process.stderr[-500:]}")
    if lines:
        print("\n".join(lines), flush=True)
    return Counts(*map(int, found.groups()))


if __name__ == "__main__":
    main(__doc__, Scene)
