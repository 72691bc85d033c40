#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pieces of a trace: --from, --to and --window show what the whole shows of that time, counted here from the whole.

    tests/pieces.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import shutil

import harness
from harness import NO_LOADER, case, expect, main

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
static volatile long sum;
static jmp_buf back;
void leaf(int i) { sum += i; }
void jumps(int i) { leaf(i); if (i % 3 == 0) longjmp(back, 1); sum += i; }
void mid(int i) { for (int k = 0; k < 3; k++) leaf(k); if (setjmp(back) == 0 && i == 7) jumps(i * 3); sum += i; }
void work(int i) { for (int k = 0; k < 3; k++) leaf(k); sum += i; }
void handler(int n) { work(n); }
void outer(int i) { for (int k = 0; k < 150; k++) work(k); usleep(500); sum += i; }
void *run(void *a) { for (int i = 0; i < 20; i++) outer(i); return a; }
int main(void) {
  pthread_t t[2];
  signal(SIGUSR1, handler);
  for (int i = 0; i < 2; i++) pthread_create(t + i, 0, run, 0);
  for (int i = 0; i < 20; i++) { outer(i); for (int k = 0; k < 10; k++) mid(k); raise(SIGUSR1); printf("%d\n", i); fflush(stdout); }
  for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
  return 0;
}
"""


class Scene(harness.Scene):
    def run(self, *words, status=0):
        result = self.execute(self.contrail, *words)
        expect(result.returncode == status, f"{words}: status {result.returncode}: {result.stderr[:500]}")
        return result.stdout if status == 0 else result.stderr

    def record(self, *words):
        self.compile(self.write("pieces.c", PROGRAM), "-O1", "-fno-inline", "-w", "-pthread")
        self.trace = self.path("trace")
        shutil.rmtree(self.trace, ignore_errors=True)
        self.run("record", "-q", "-o", self.trace, *(() if self.options.long else NO_LOADER), *words, "--", self.path("pieces"))

    def replay(self, *words):
        return [json.loads(line) for line in self.run("replay", "--json", *words, self.trace).splitlines()]


def plain(line):
    return line["kind"], line["ts_ns"], line.get("name"), line.get("depth")


def is_of_the_piece(line):
    """Neither a call that is entered at the edge for being open there, nor one that is ended at the other edge for that."""
    return not line.get("entered_before") and not line.get("unfinished")


def compare(scene, whole, begin, end):
    """The piece from begin to end (in ns from the start) against the whole."""
    piece = scene.replay("--from", f"{begin / 1e9:.9f}", "--to", f"{end / 1e9:.9f}")
    # A tick is less than a nanosecond: what lies on the edges may be in or out.
    inside = [line for line in whole if begin + 1 < line["ts_ns"] < end - 1]
    for tid in {line["tid"] for line in whole if "tid" in line}:
        want = [plain(line) for line in inside if line.get("tid") == tid and line["kind"] != "lost"]
        open_before = [plain(line) for line in piece if line.get("tid") == tid and line.get("entered_before") and line["kind"] == "enter"]
        got = [plain(line) for line in piece if line.get("tid") == tid and begin + 1 < line["ts_ns"] < end - 1 and not line.get("unfinished")
               and not (line.get("entered_before") and line["kind"] == "enter")]
        expect(got == want, f"thread {tid}, {begin} to {end}: {len(got)} lines and not {len(want)}; first difference: "
               f"{next(((a, b) for a, b in zip(got, want) if a != b), (got[-2:], want[-2:]))}")
        depth = 0
        for line in whole:
            if line.get("tid") == tid and line["ts_ns"] < begin - 1 and line.get("stack", 0) == 0:
                depth += (line["kind"] == "enter") - (line["kind"] in ("return", "left"))
        if not any(line.get("tid") == tid and abs(line["ts_ns"] - begin) <= 1 for line in whole):
            expect(len(open_before) in (depth, 0), f"thread {tid}: {len(open_before)} calls open at {begin}, not {depth}")
            expect(len(open_before) == depth or not want, f"thread {tid}: calls open at {begin} are missing")
    return inside


def count(scene, inside, begin, end):
    """The report's calls are those that begin in the piece."""
    report = json.loads(scene.run("report", "--json", "--from", f"{begin / 1e9:.9f}", "--to", f"{end / 1e9:.9f}", scene.trace))
    want = collections.Counter(line["name"] for line in inside if line["kind"] == "enter")
    got = {row["name"]: row["calls"] for row in report["functions"] if row["calls"]}
    for name in ("leaf", "jumps", "mid", "work", "outer", "handler", "run"):
        expect(abs(want[name] - got.get(name, 0)) <= 2, f"{name}: {got.get(name, 0)} calls from {begin} to {end}, not {want[name]}")


@case
def as_the_whole(scene):
    """Some pieces, of some blocks and of none, of three threads with longjmp and a handler."""
    scene.record()
    whole = scene.replay()
    last = max(line["ts_ns"] for line in whole)
    first = min(line["ts_ns"] for line in whole if line["kind"] == "enter")
    draw = random.Random(7)
    for _ in range(scene.rounds(4, 16)):
        a, b = sorted((draw.randrange(first, last), draw.randrange(first, last)))
        count(scene, compare(scene, whole, a, b), a, b)
    for length in (3000, 100_000, 2_000_000):
        for _ in range(scene.rounds(2, 12)):
            a = draw.randrange(first, last)
            compare(scene, whole, a, a + length)
    compare(scene, whole, 0, last + 10**9)
    # from alone, to alone
    half = (first + last) // 2
    early, late = scene.replay("--to", f"{half / 1e9:.9f}"), scene.replay("--from", f"{half / 1e9:.9f}")
    ends = sum(is_of_the_piece(line) and line["kind"] == "enter" for line in early + late)
    expect(abs(ends - sum(line["kind"] == "enter" for line in whole)) <= 3, ends)
    lines = scene.run("output", "--raw", "--to", f"{half / 1e9:.9f}", scene.trace) + scene.run(
        "output", "--raw", "--from", f"{half / 1e9:.9f}", scene.trace)
    expect(lines.split() == [str(i) for i in range(20)], lines)


@case
def of_the_last_stretch(scene):
    """A trace whose begin was not kept."""
    for ms in (60, 120, 250, 500, 1000, 2000):  # on a busy machine the recording ends long after the last call
        scene.record("--last", f"1M,{ms}ms")
        whole = scene.replay()
        times = [line["ts_ns"] for line in whole if line["kind"] != "warning" and not line.get("entered_before")]
        if len(times) > 1000:
            break
    expect(len(times) > 1000, f"{len(times)} calls were kept of the last 2 s")
    draw = random.Random(8)
    for _ in range(6):
        a, b = sorted((draw.randrange(times[0], times[-1]), draw.randrange(times[0], times[-1])))
        piece = scene.replay("--from", f"{a / 1e9:.9f}", "--to", f"{b / 1e9:.9f}")
        want = sum(a + 1 < line["ts_ns"] < b - 1 and line["kind"] in ("enter", "return") and not line.get("entered_before", False)
                   for line in whole)
        got = sum(a + 1 < line["ts_ns"] < b - 1 and line["kind"] in ("enter", "return") and not line.get("entered_before", False)
                  for line in piece)
        returns = sum(a + 1 < line["ts_ns"] < b - 1 and line["kind"] == "return" for line in piece)
        expect(returns == sum(a + 1 < line["ts_ns"] < b - 1 and line["kind"] == "return" for line in whole), (a, b, returns))
        expect(got <= want, (a, b, got, want))


@case
def windows(scene):
    """--window N is the N-th of the manifest's; whatever that says, there is a clear answer."""
    scene.record()
    path = os.path.join(scene.trace, "manifest.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    expect("has no windows" in scene.run("replay", "--window", "1", scene.trace, status=1), "none")
    whole = scene.replay()
    middle = [line for line in whole if line["kind"] == "enter"][len(whole) // 4]["ts_ns"]
    clock = manifest["clock"]
    scale = (clock["tsc1"] - clock["tsc0"]) / (clock["ns1"] - clock["ns0"])

    def tsc(ns):
        return int(clock["tsc0"] + (manifest["start_ns"] + ns - clock["ns0"]) * scale)
    good = {"number": 1, "begin_tsc": tsc(middle), "end_tsc": tsc(middle + 1_000_000), "marks": 2,
            "reasons": [{"rule": "f > 1ms\x1b[31m", "tsc": tsc(middle + 500), "ns": 1, "thread": 0, "function": 1}]}
    manifest["windows"] = [good, dict(good, begin_tsc=good["end_tsc"], end_tsc=good["begin_tsc"]), 7, None, {}, dict(good, begin_tsc="x"),
                           dict(good, begin_tsc=-5), dict(good, reasons="none"), dict(good, end_tsc=2**62)] + [good] * 2000
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    times = [line["ts_ns"] for line in scene.replay("--window", "1")]
    expect(times and middle - 2000 <= times[0] and times[-1] <= middle + 1_002_000, (middle, times[:1], times[-1:]))
    for number in range(2, 8):
        said = scene.run("report", "--window", str(number), scene.trace, status=1)
        expect(f"window {number} makes no sense" in said, said)
    scene.run("report", "--window", "8", scene.trace)
    scene.run("report", "--window", "9", scene.trace)
    expect("there is no window 2010: the trace has 2009" in scene.run("report", "--window", "2010", scene.trace, status=1), "number")
    info = scene.run("info", scene.trace)
    expect("1.000 ms long, f > 1ms" in info and " and 1 more mark\n" in info and "\x1b" not in info and "more; --json has all" in info, info[:1500])
    listed = json.loads(scene.run("info", "--json", scene.trace))["windows"]
    expect(len(listed) == 2009 and listed[1] is None and abs(listed[0]["begin_ns"] - middle) < 2000, listed[:3])


@case
def outside(scene):
    """A piece that the trace has not: nothing, and a line that says so; of one that it has in part, there is none."""
    scene.record()
    end = scene.replay()[-1]["ts_ns"] / 1e9
    for words, told in ((("--from", "3600"), "after the end of"), (("--to", "1999-12-31 23:59:59"), "before the start of"),
                        (("--from", "0", "--to", "3600"), None), (("--from", f"{end * 0.9:.9f}"), None)):
        for command in ("report", "replay", "graph"):
            result = scene.execute(scene.contrail, command, *words, scene.trace)
            wanted = f"contrail {command}: nothing: the piece is {told} the trace, which is of 0 to " if told else ""
            expect(result.returncode == 0 and result.stderr.startswith(wanted) and bool(result.stderr) == bool(told),
                   f"{command} {words}: {result.returncode} {result.stderr}")


@case
def wrong_options(scene):
    """One line, status 2."""
    scene.record()
    for words, said in ((["--from", "x"], "'x' is no time"), (["--to", "-1"], "'-1' is no time"), (["--from", ""], "'' is no time"),
                        (["--from", "2", "--to", "1"], "--from 2 is after --to 1"), (["--window", "0"], "--window"),
                        (["--window", "1", "--from", "1"], "--window")):
        text = scene.run("report", *words, scene.trace, status=2)
        expect(said in text and text.count("\n") <= 2, (words, text))
    text = scene.run("report", "--family", "--from", "1", scene.trace, status=2)
    expect("--family shows whole traces" in text, text)
    expect(scene.replay("--from", "999") == [], "after the end")


STACKS = r"""
#include <stdio.h>
#include <ucontext.h>
enum { STACKS = 9 };
static volatile long sum;
static ucontext_t thread, routine[STACKS];
static char stacks[STACKS][65536];
void leaf(int i) { sum += i; }
void suspended(int who) { leaf(who); swapcontext(&routine[who], &thread); leaf(who); }
void deeper(int who, int n) { if (n == 0) suspended(who); else deeper(who, n - 1); leaf(n); }
void body(int who) { for (int i = 0;; i++) { leaf(i); deeper(who, who); } }
void resume(int who) { swapcontext(&thread, &routine[who]); }
void work(int i) { for (int k = 0; k < 8500; k++) leaf(k); sum += i; }
void further(int n) { if (n != 0) further(n - 1); else work(n); leaf(n); }
int main(void) {
  for (int i = 0; i < STACKS; i++) {
    getcontext(&routine[i]);
    routine[i].uc_stack.ss_sp = stacks[i], routine[i].uc_stack.ss_size = sizeof stacks[i];
    makecontext(&routine[i], (void (*)(void))body, 1, i);
  }
  for (int i = 0; i < STACKS; i++) { resume(i); work(i); if (i > 3) resume(i - 4); if (i == 6) further(1500); }
  puts("done");
  return 0;
}
"""  # each round is some blocks


def calls_of(lines):
    """Of the whole: each call by its id."""
    calls, open_calls = {}, {}
    for line in lines:
        kind = line["kind"]
        if kind == "tail":  # it ends one and begins another
            raise AssertionError(f"a tail call: {line}")
        if kind == "enter":
            call = {"function": line["name"], "tid": line["tid"], "depth": line["depth"], "stack": line["stack"], "parent_id": line["parent"],
                    "start": line["ts_ns"], "end": None}
            calls[line["id"]] = open_calls[line["id"]] = call
        elif kind in ("return", "left"):
            open_calls.pop(line["id"])["end"] = line["ts_ns"]
    expect(not open_calls, f"{len(open_calls)} calls have no end")
    return calls


def check_rows(scene, calls, begin, end):
    """The rows of spans and open_frames, and the report's calls, of the piece from begin to end, which is open."""
    where = f"{scene.trace}@{begin}ns..{end}ns"
    rows = json.loads(scene.run("sql", "--json", where, "SELECT * FROM spans"))
    got = {row["id"]: row for row in rows}
    expect(len(got) == len(rows), f"{where}: ids twice")
    want = {id: call for id, call in calls.items() if call["start"] <= end and call["end"] >= begin}
    edge = {id for id, call in calls.items() if call["start"] == end}  # some of its ticks are in
    for id in (got.keys() ^ want.keys()) - edge:
        raise AssertionError(f"{where}: {'missing' if id in want else 'too much'}: {want.get(id) or got.get(id)}")
    for id in got.keys() & want.keys():
        row, call = got[id], want[id]
        expect(all(row[name] == call[name] for name in ("function", "tid", "depth", "stack", "parent_id")), f"{where}: {row}, not {call}")
        expect(abs(row["start"] - max(call["start"], begin)) <= 1 and abs(row["end"] - min(call["end"], end)) <= 1, f"{where}: {row}, not {call}")
        expect(("before" in (row["flags"] or "")) == (call["start"] < begin), f"{where}: {row}, not {call}")
    left = {row["id"] for row in json.loads(scene.run("sql", "--json", where, "SELECT id FROM open_frames"))}
    for id in left ^ {id for id, call in want.items() if call["end"] > end}:
        expect(id in edge or want[id]["end"] == end or want[id].get("unfinished"), f"{where}: open or not: {want[id]}")
    counts = collections.Counter(call["function"] for id, call in want.items() if call["start"] >= begin and id not in edge)
    report = {row["name"]: row for row in json.loads(scene.run("report", "--json", where))["functions"]}
    for name in report:
        most = counts[name] + sum(calls[id]["function"] == name for id in edge)
        expect(counts[name] <= report[name]["calls"] <= most, f"{where}: {name}: {report[name]['calls']} calls, not {counts[name]}")
    return sum(call["start"] < begin and call["stack"] != 0 for call in want.values())


@case
def suspended(scene):
    """Coroutines that were suspended blocks ago, and a recursion that is deeper than a block says: their calls are there too."""
    scene.compile(scene.write("stacks.c", STACKS), "-O0", "-w")
    scene.trace = scene.path("trace")
    scene.run("record", "-q", *NO_LOADER, "--exclude", "libc.so*!", "-o", scene.trace, "--", scene.path("stacks"))
    calls = calls_of(scene.replay())
    times = sorted({call["start"] for call in calls.values()})
    draw = harness.lot("suspended")
    others = 0
    for with_index in (False, True):
        if with_index:
            scene.execute("env", "CONTRAIL_TEST_INDEX_EVENTS=1", scene.contrail, "sql", scene.trace, "SELECT count(*) FROM spans")
            expect(os.path.exists(os.path.join(scene.trace, "spans.cti")), "there is no index")
        for _ in range(scene.rounds(2, 20)):
            begin, end = sorted(draw.choice(times) for _ in range(2))
            others += check_rows(scene, calls, begin, min(end, begin + 300_000))
        begin = times[draw.randrange(len(times) * 8 // 10, len(times) * 9 // 10)]
        others += check_rows(scene, calls, begin, begin + 100_000)
    expect(others > 8, f"{others} calls on other stacks were open")
    begin = times[len(times) * 2 // 3]
    target = scene.path("cut")
    scene.run("cut", "-q", "-o", target, "--from", f"{begin}ns", scene.trace)
    where = f"{scene.trace}@{begin}ns.."
    rows = [collections.Counter(tuple(row.values()) for row in json.loads(scene.run(
        "sql", "--json", trace, "SELECT function, depth, stack, start, end, reason, flags FROM spans"))) for trace in (target, where)]
    expect(rows[0] == rows[1], f"cut: {list((rows[0] - rows[1]).items())[:3]}, not {list((rows[1] - rows[0]).items())[:3]}")


if __name__ == "__main__":
    main(__doc__, Scene)
