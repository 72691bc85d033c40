#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Filters: what report, replay and output show with them is what a filter of our own leaves of the whole replay; on traces
with threads, coroutines, exceptions, longjmp, points, lost events and children. And traces that are named with a piece.

    tests/filters.py [--filter PATTERN] [--build DIR]
"""
import collections
import datetime
import fnmatch
import json
import os
import random
import shutil

import harness
from harness import NO_LOADER, case, expect, main, parse_lines

OWN = r"""
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static jmp_buf back;
static volatile long sum;
long leaf(long n) { sum += n; return n; }
void jump(long n) { leaf(n); longjmp(back, 1); }
long fib(long n) { return n < 2 ? leaf(n) : fib(n - 1) + fib(n - 2); }
long odd(long n);
long even(long n) { return n == 0 ? leaf(n) : odd(n - 1) + 1; }
long odd(long n) { return n == 0 ? leaf(n) : even(n - 1) + 1; }
void slow(long us) { usleep(us); }
void *run(void *a) {
  for (volatile int i = 0; i < 20; i++) { fib(i % 9); even(i); slow(100 * i); if (setjmp(back) == 0) jump(i); }
  return a;
}
int main(int argc, char **argv) {
  pthread_t t;
  puts("begin"); fflush(stdout);
  if (argc > 1) for (int i = 0; i < 2; i++) if (fork() == 0) { run(0); puts("child"); exit(0); }
  if (argc > 1) while (wait(0) > 0) {}
  run(0);
  pthread_create(&t, 0, run, 0); pthread_join(t, 0);
  puts("end"); fflush(stdout);
  return 0;
}
"""
THROWS = r"""
#include <string>
static volatile long sum;
void leaf(long n) { sum += n; if (n % 3 == 0) throw std::string("three"); }
void mid(long n) { leaf(n); sum += n; }
void outer(long n) { try { mid(n); } catch (const std::string &) { sum += 1; } }
int main() { for (long n = 0; n < 100; n++) outer(n); return 0; }
"""
ENDS = ("return", "left", "tail")
TYPES = {"enter": "call", "return": "call", "left": "call", "tail": "call", "orphan": "call", "value": "call", "point": "point",
         "counted": "point", "interval": "point", "output": "output", "switch": "switch", "away": "switch", "exec": "switch",
         "lost": "lost", "crash": "crash"}


class Scene(harness.Scene):
    def own(self, *arguments, options=(), loader=False):
        """A trace of the program above."""
        program = self.compile(self.write("own.c", OWN), "-O1", "-g", "-fno-inline", "-fno-ipa-cp", "-fno-ipa-ra",
                               "-foptimize-sibling-calls", "-w", "-pthread")
        self.record("-q", *(() if loader or self.options.long else NO_LOADER), *options, "--", program, *arguments)

    def lines(self, *options, trace=None):
        return lines_of(self.run(self.contrail, "replay", "--json", *options, trace or self.trace))

    def refused(self, *words):
        """One line, and the status of wrong usage."""
        result = self.execute(self.contrail, *words)
        lines = result.stderr.splitlines()
        expect(result.returncode == 2 and len(lines) == 1 and not result.stdout,
               f"{words}: status {result.returncode}, {lines or result.stdout[:200]}")
        return lines[0]


def reason_of(line):
    """How the call ended that the line tells the end of; None: it does not."""
    if line["kind"] == "tail":
        return "tail call" if "ended" in line else None
    return {"return": "returned", "orphan": "orphan", "point": "enter only", "counted": "counted"}.get(line["kind"], line.get("reason")
                                                                                                       if line["kind"] == "left" else None)


class Line(dict):
    """Of replay, with its text."""


def lines_of(text):
    parsed = [Line(line) for line in harness.parse_lines(text)]
    for line, raw in zip(parsed, text.splitlines()):
        line.raw = raw
    return parsed


def plain(lines):
    return [line.raw for line in lines]


def same(scene, whole, what, *words):
    """The lines of replay with these words are those of the whole for which `what` holds."""
    want = plain(line for line in whole if line["kind"] != "warning" and what(line))
    words = [*words, scene.trace] if not words[-1].startswith(scene.trace) else words
    text = scene.run(scene.contrail, "replay", "--json", *words, status=0 if want else 1)
    got = [line for line in text.splitlines() if '"kind":"warning"' not in line]
    differs = next(((a, b) for a, b in zip(got, want) if a != b), (got[len(want):][:1], want[len(got):][:1]))
    expect(got == want, f"{words}: {len(got)} lines, not {len(want)}; the first that differs: {differs}")
    return len(want)


def durations_of(whole):
    """Some that calls took, drawn over all magnitudes."""
    all_of_them = sorted({line["duration_ns"] for line in whole if line["kind"] in ENDS and line["duration_ns"]})
    return [all_of_them[len(all_of_them) * share // 100] for share in (2, 30, 60, 90, 99)] if all_of_them else [1000] * 5


def compare(scene):
    """All filters of lines, on the trace of the scene."""
    whole = scene.lines()
    for ns in durations_of(whole):
        same(scene, whole, lambda line: line["kind"] in ENDS and reason_of(line) and line["duration_ns"] >= ns, "--min-duration", f"{ns}ns")
        same(scene, whole, lambda line: line["kind"] in ENDS and reason_of(line) and line["duration_ns"] <= ns, "--max-duration", f"{ns}ns")
    for reason in sorted({reason_of(line) for line in whole} - {None}):
        found = same(scene, whole, lambda line: reason_of(line) == reason, "--reason", reason.replace(" ", "-"))
        expect(found, reason)
    for name in sorted(set(TYPES.values())):
        same(scene, whole, lambda line: TYPES[line["kind"]] == name, "--type", name)
    same(scene, whole, lambda line: TYPES[line["kind"]] in ("output", "lost"), "--type", "lost,output")
    low, high = durations_of(whole)[1:4:2]
    same(scene, whole, lambda line: line["kind"] in ("return", "left") and low <= line["duration_ns"] <= high and line["depth"] >= 2
         or line["kind"] == "tail" and "ended" in line and low <= line["duration_ns"] <= high and line["depth"] >= 2,
         "--min-duration", f"{low}ns", "--max-duration", f"{high}ns", "--depth", "2..", "--type", "call")
    calls = ("enter", "return", "left", "tail", "point", "counted", "orphan")
    for first, last in ((0, 2), (3, 5), (4, 4)):
        same(scene, whole, lambda line: line["kind"] == "interval" or line["kind"] in calls and first <= line["depth"] <= last,
             "--depth", f"{first}..{last}",
             "--type", "call,point", "--no-output")
    for tid in sorted({line["tid"] for line in whole if line["tid"]})[:3]:
        same(scene, whole, lambda line: line["tid"] == tid, f"{scene.trace}#{tid}")
    for limit in (1, 7):
        some = [line for line in scene.lines("--limit", str(limit), "--type", "call,point") if line["kind"] != "warning"]
        expect(plain(some) == plain([line for line in whole if TYPES.get(line["kind"]) in ("call", "point")][:limit]), f"--limit {limit}")
    compare_report(scene, whole, low, high)
    return f"{len(whole)} lines"


def ended_calls(whole):
    """Of each call that has ended: function, depth, thread, stack, begin, end, duration, reason."""
    opened, ended = collections.defaultdict(list), []
    for line in whole:
        stack = opened[line["tid"], line.get("stack", 0)]
        if line["kind"] in ("return", "left") or line["kind"] == "tail" and "ended" in line:
            begin = stack.pop() if stack else None
            name = line["ended"]["name"] if line["kind"] == "tail" else line["name"]
            ended.append((name, line["depth"], line["tid"], line.get("stack", 0), begin, line["ts_ns"], line["duration_ns"], reason_of(line),
                          line.get("entered_before", False)))
        if line["kind"] in ("enter", "tail"):
            stack.append(line["ts_ns"])
    return ended


def compare_report(scene, whole, low, high):
    """report counts the calls that pass, and those alone."""
    ended = ended_calls(whole)

    def counts(what):
        return collections.Counter(one[0] for one in ended if what(one) and not one[8])
    for what, words in ((lambda one: one[6] >= low, ["--min-duration", f"{low}ns"]), (lambda one: one[6] <= high, ["--max-duration", f"{high}ns"]),
                        (lambda one: low <= one[6] <= high, ["--min-duration", f"{low}ns", "--max-duration", f"{high}ns"]),
                        (lambda one: one[7] in ("longjmp", "exception", "tail call"), ["--reason", "longjmp,exception,tail-call"]),
                        (lambda one: 2 <= one[1] <= 4 and one[6] >= low, ["--depth", "2..4", "--min-duration", f"{low}ns"])):
        want = counts(what)
        report = json.loads(scene.run(scene.contrail, "report", "--json", *words, scene.trace, status=0 if want else 1))
        got = {row["name"]: 0 for row in report["functions"]}
        for row in report["functions"]:
            got[row["name"]] += row["calls"]
        got = {name: calls for name, calls in got.items() if calls}
        differs = next(((name, want[name], got.get(name, 0)) for name in {*want, *got} if want[name] != got.get(name, 0)), None)
        expect(differs is None, f"report {words}: function, calls, calls of report: {differs}")
        expect(report["counted"].startswith("calls"), report["counted"])
    want = {"call": counts(lambda one: True), "point": collections.Counter()}
    for line in whole:
        if line["kind"] in ("point", "counted"):
            want["point"][line["name"]] += line["calls"] if line["kind"] == "counted" else line.get("interval", 1)
    want["call,point"] = want["call"] + want["point"]
    for name, calls in want.items():
        report = json.loads(scene.execute(scene.contrail, "report", "--json", "--type", name, scene.trace).stdout)
        got = collections.Counter()
        for row in report["functions"]:
            got[row["name"]] += row["calls"]
        expect(+got == +calls, f"report --type {name}: {sum(got.values())} calls, not {sum(calls.values())}")


@case
def threads_and_jumps(scene):
    scene.own()
    return compare(scene)


@case
def coroutines(scene):
    program = scene.compile("fixtures/coroutines.c", "-O2", "-g", "-w", "-pthread", f"-DTURNS={scene.rounds(300, 1000)}")
    scene.record("-q", *(() if scene.options.long else NO_LOADER), "--", program)
    return compare(scene)


@case
def exceptions(scene):
    source = scene.write("throws.cc", THROWS)
    scene.run("g++", "-O1", "-g", "-fno-inline", "-w", "-o", scene.path("throws"), source)
    scene.record("-q", "--", scene.path("throws"))
    expect(any(reason_of(line) == "exception" for line in scene.lines()), "no exception")
    return compare(scene)


@case
def enter_only_and_sampled(scene):
    scene.own(options=["--mode", "light", "--sample", "4"])
    expect(any(line.get("sampled") for line in scene.lines()), "nothing is sampled")
    return compare(scene)


@case
def losses(scene):
    """A ring that is much too small, and nobody waits."""
    program = scene.compile("programs/losses.c", "-O2", "-g", "-pthread")
    for rounds in (20000, 40000, 80000, 160000):  # contrail is sometimes fast enough for the first ones
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.record("-q", "--no-wait", "--ring-size", "1", "--trace", "leaf", "--trace", "pair", "--trace", "libc.so.6!start_thread", "--no-args", "--",
                     program, str(rounds))
        lines = scene.lines()
        if any(line["kind"] == "lost" for line in lines):
            unsure = {line["id"] for line in lines if line["kind"] in ("return", "left") and line.get("uncertain")}
            rows = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT id FROM spans WHERE flags LIKE '%uncertain%'"))
            expect(unsure == {row["id"] for row in rows}, f"uncertain in replay, and in spans: {unsure}, {rows}")
            return compare(scene)
    expect(False, f"nothing is lost of {rounds} rounds")


@case
def pages(scene):
    """Page by page, each from the last call that the one before begins (or ends, where lines are about ends), is the whole."""
    scene.own()
    for words in ([], ["--function", "fib"], ["--min-duration", "2us"], ["--type", "call,output", "--depth", "2.."]):
        whole, got, after = scene.lines(*words), [], []
        while True:
            page = scene.lines(*words, "--limit", "997", *after)
            heads = {}
            for position, line in enumerate(page):
                if line.get("id") is not None and line["kind"] in ("enter", "tail", "point", "return", "left"):
                    heads.setdefault(line["id"], position)
            known = {line["id"] for line in got if line.get("id") is not None}
            last = [(position, one) for one, position in heads.items() if one not in known]
            if len(page) < 997:
                got += page
                break
            position, one = max(last)
            got += page[:position + 1]
            after = ["--after", str(one)]
        expect(got == whole and len(whole) > 100, f"{words}: {len(got)} lines of {len(whole)}")
    for wrong in ("1", "x", "0", str(1 << 50)):
        result = scene.execute(scene.contrail, "replay", "--json", "--after", wrong, scene.trace)
        expect(result.returncode == 2 and result.stderr.count("\n") == 1 and result.stdout == "", f"{wrong}: {result}")


@case
def totals_of_recursions(scene):
    """The total of a function is the time in which a call that passes was on the stack, no moment twice; by the clock's readings,
    which replay shows."""
    scene.own()
    whole = scene.lines("--raw")
    ended = ended_calls(whole)
    for words, passes in ((["--max-duration", "3us"], lambda one: one[6] <= 3000), (["--min-duration", "2us"], lambda one: one[6] >= 2000),
                          (["--depth", "5..8"], lambda one: 5 <= one[1] <= 8), (["--reason", "returned"], lambda one: one[7] == "returned")):
        rows = scene.rows("--raw", *words)
        for name in ("fib", "even", "odd", "leaf", "slow"):
            spans = sorted((one[4], one[5], one[2]) for one in ended if one[0] == name and passes(one))
            want = 0
            for tid in {span[2] for span in spans}:
                at = 0
                for begin, end, _ in (span for span in spans if span[2] == tid):
                    want += max(0, end - max(begin, at))
                    at = max(at, end)
            got = rows[name]["total_ns"] if name in rows else 0
            expect(abs(got - want) <= 2 * len(spans) + 2, f"{words} {name}: {got} and not {want}, of {len(spans)} calls")
            expect(len(spans) == (rows[name]["calls"] if name in rows else 0), f"{words} {name}: calls")


@case
def files_and_modules(scene):
    scene.own(options=["--source"], loader=True)
    whole = scene.lines()
    calls = ("enter", "return", "left", "tail")
    mine = {row["name"] for row in scene.rows().values() if row["module"] == "own"}
    expect({"fib", "even", "main"} <= mine, mine)

    def by_file(line, glob):
        return line["kind"] in calls and any(fnmatch.fnmatch(one.get("file", ""), glob) for one in (line, line.get("ended", {})))
    place = next(row["file"] for row in scene.rows("--function", "main").values())
    for file, glob in (("own.c", "*/own.c"), ("own", "*/own.c"), ("*.c", "*.c"), ("/".join(place.split("/")[-2:]), "*/own.c")):
        same(scene, whole, lambda line, glob=glob: by_file(line, glob), "--file", file, "--type", "call")
    rows = scene.rows("--file", "own.c")
    expect({"fib", "even", "odd", "leaf", "jump", "slow", "run", "main"} <= set(rows) and all(row["file"].endswith("own.c") for row in rows.values()),
           list(rows))
    for glob in ("own", "libc*", "*ld*"):
        want = {row["name"] for row in scene.rows().values() if fnmatch.fnmatch(row["module"], glob)}
        got = set(scene.rows("--module", glob))
        expect(want <= got, f"--module {glob}: {want - got}")
    result = scene.execute(scene.contrail, "replay", "--json", "--file", "other.c", scene.trace)
    expect(result.returncode == 1 and "no file matches 'other.c'" in result.stderr, result.stderr)


@case
def processes(scene):
    """--process chooses a process's own trace; report --family takes several."""
    scene.own("fork", options=["--follow"])
    children = [child for child in scene.manifest()["children"] if child.get("directory")]
    expect(len(children) == 2, children)
    for child in children:
        own = scene.path(scene.trace, child["directory"])
        for view in ("report", "info"):
            got = scene.run(scene.contrail, view, "--json", "--process", str(child["pid"]), scene.trace)
            expect(got == scene.run(scene.contrail, view, "--json", own), f"{view} of process {child['pid']}")
        for view in ("replay", "output"):
            got = parse_lines(scene.run(scene.contrail, view, "--json", "--process", str(child["pid"]), scene.trace))
            expect(without_ids(got) == without_ids(parse_lines(scene.run(scene.contrail, view, "--json", own))), f"{view} of process {child['pid']}")
    pids = [child["pid"] for child in children]
    family = scene.rows("--family", *[word for pid in pids for word in ("--process", str(pid))])
    alone = [scene.rows("--process", str(pid)) for pid in pids]
    for name in ("fib", "leaf", "slow"):
        expect(family[name]["calls"] == sum(rows[name]["calls"] for rows in alone), name)
    first = scene.manifest()["pid"]
    expect(scene.rows("--family", "--process", str(first))["fib"]["calls"] == scene.rows()["fib"]["calls"], "the first alone")
    expect("no process 1 in the trace" in scene.refused("replay", "--process", "1", scene.trace), "process 1")
    expect("no trace of a process 1" in scene.refused("report", "--family", "--process", "1", scene.trace), "process 1 of a family")
    expect("one --process at a time" in scene.refused("report", "--process", str(pids[0]), "--process", str(pids[1]), scene.trace), "two")


def without_ids(lines):
    return [{name: value for name, value in line.items() if name not in ("id", "parent")} for line in lines]


@case
def ids_of_processes(scene):
    """A call has one id in SQL, replay --process and slowest --family, and no other call of the family has that."""
    scene.own("fork", options=["--follow"])
    first = scene.manifest()["pid"]
    pids = [first] + [child["pid"] for child in scene.manifest()["children"] if child.get("directory")]
    rows = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace,
                                "SELECT id, parent_id, process, duration, function AS name FROM spans"))
    calls = {row["id"]: row for row in rows}
    expect(len(calls) == len(rows) > 0 and {row["process"] for row in rows} == set(pids), f"{len(calls)} of {len(rows)} ids, {pids}")
    for pid in pids:
        lines = [line for line in scene.lines("--process", str(pid)) if line["kind"] in ("enter", "tail", "point")]
        expect({line["id"]: line["parent"] for line in lines} ==
               {row["id"]: row["parent_id"] for row in rows if row["process"] == pid}, f"ids of process {pid}")
        after = scene.lines("--process", str(pid), "--after", str(lines[5]["id"]))
        expect(after and lines[6]["id"] in [line.get("id") for line in after], f"--after in process {pid}")
    slowest = json.loads(scene.run(scene.contrail, "slowest", "--json", "--family", "-n", "50", "leaf", scene.trace))["slowest"]
    expect({call["pid"] for call in slowest} >= set(pids[1:]), f"{[call['pid'] for call in slowest]}")
    for call in slowest:
        row = calls[call["id"]]
        expect((row["process"], row["name"]) == (call["pid"], "leaf") and abs(row["duration"] - call["duration_ns"]) <= 1, f"{call}: {row}")


@case
def times_and_forms(scene):
    """The same piece by seconds, with a unit, by the clock, and in the trace's name, with a thread."""
    scene.own()
    whole = scene.lines()
    times = [line["ts_ns"] for line in whole]
    begin, end = times[len(times) // 4], times[len(times) // 2]
    start = scene.manifest()["start_wall_ns"]

    def wall(ns, form):
        seconds, nano = divmod(start + ns, 10**9)
        return datetime.datetime.fromtimestamp(seconds).strftime(form) + f".{nano:09}"
    want = plain(scene.lines("--from", f"{begin / 1e9:.9f}", "--to", f"{end / 1e9:.9f}"))
    expect(len(want) > 100, len(want))
    for form in (lambda ns: f"{ns}ns", lambda ns: f"{ns / 1000:.3f}us", lambda ns: f"{ns / 1e6:.6f}ms", lambda ns: wall(ns, "%H:%M:%S"),
                 lambda ns: wall(ns, "%Y-%m-%dT%H:%M:%S")):
        expect(plain(scene.lines("--from", form(begin), "--to", form(end))) == want, form(begin))
        expect(plain(scene.lines(trace=f"{scene.trace}@{form(begin)}..{form(end)}")) == want, f"@{form(begin)}..{form(end)}")
    tid = whole[-1]["tid"]
    for name in (f"{scene.trace}@{begin}ns..{end}ns#{tid}", f"{scene.trace}#{tid}@{begin}ns..{end}ns"):
        expect(plain(scene.lines(trace=name)) == [line for line in want if json.loads(line)["tid"] == tid], name)
    expect(plain(scene.lines(trace=f"{scene.trace}@..{end}ns")) == plain(scene.lines("--to", f"{end}ns")), "@..TO")
    expect(plain(scene.lines(trace=f"{scene.trace}@{begin}ns..")) == plain(scene.lines("--from", f"{begin}ns")), "@FROM..")
    expect(scene.rows(trace=f"{scene.trace}@{begin}ns..{end}ns") == scene.rows("--from", f"{begin}ns", "--to", f"{end}ns"), "report")
    odd = f"{scene.trace}@1..2#3"
    os.rename(scene.trace, odd)
    expect(plain(scene.lines(trace=odd)) == plain(whole), "a directory of such a name")
    expect(plain(scene.lines(trace=f"{odd}@..{end}ns")) == plain(scene.lines("--to", f"{end}ns", trace=odd)), "a piece of that")
    os.rename(odd, scene.path("contrail.out"))
    scene.trace = scene.path("contrail.out")
    expect(plain(scene.lines(trace=f"@{begin}ns..{end}ns")) == want, "without a directory")


@case
def random_filters(scene):
    """Several at a time."""
    scene.own()
    whole = scene.lines()
    draw = random.Random(11)
    durations, tids = durations_of(whole), sorted({line["tid"] for line in whole})
    reasons = sorted({reason_of(line) for line in whole} - {None})
    for _ in range(25):
        low, high = sorted(draw.sample(durations, 2))
        first, last = sorted((draw.randrange(9), draw.randrange(9)))
        tests, words = [], []
        if draw.randrange(2):
            words += ["--min-duration", f"{low}ns"]
            tests.append(lambda line, low=low: reason_of(line) and line["kind"] in ENDS and line["duration_ns"] >= low)
        if draw.randrange(2):
            words += ["--max-duration", f"{high}ns"]
            tests.append(lambda line, high=high: reason_of(line) and line["kind"] in ENDS and line["duration_ns"] <= high)
        if draw.randrange(2) or not words:
            some = draw.sample(reasons, 2)
            words += ["--reason", ",".join(some)]
            tests.append(lambda line, some=some: reason_of(line) in some)
        if draw.randrange(2):
            words += ["--depth", f"{first}..{last}"]
            tests.append(lambda line, first=first, last=last: first <= line["depth"] <= last)
        if draw.randrange(2):
            tid = draw.choice(tids)
            words += ["--thread", str(tid)]
            tests.append(lambda line, tid=tid: line["tid"] == tid)
        same(scene, whole, lambda line, tests=tests: all(test(line) for test in tests), *words)


@case
def output_of_threads(scene):
    scene.own()
    calls = [json.loads(line) for line in scene.run(scene.contrail, "output", "--json", scene.trace).splitlines()]
    expect([call["text"] for call in calls] == ["begin\n", "end\n"], calls)
    expect(scene.run(scene.contrail, "output", "--raw", "--limit", "1", scene.trace) == "begin\n", "--limit 1")
    middle = (calls[0]["time_ns"] + calls[1]["time_ns"]) // 2
    expect(scene.run(scene.contrail, "output", "--raw", f"{scene.trace}@{middle}ns..") == "end\n", "a piece")
    other = next(tid for tid in {line["tid"] for line in scene.lines()} if tid != calls[0]["tid"])
    expect(scene.run(scene.contrail, "output", "--raw", f"{scene.trace}#{other}") == "", "the other thread")


@case
def text_of_replay(scene):
    """In text too, the lines are some of those of the whole: closing lines, and calls without calls."""
    scene.own()
    whole = scene.run(scene.contrail, "replay", scene.trace).splitlines()
    some = scene.run(scene.contrail, "replay", "--min-duration", "50us", scene.trace).splitlines()
    known = set(whole)
    expect(len(some) > 20 and not [line for line in some if line not in known], [line for line in some if line not in known][:3])
    expect(not any(line.endswith("{") for line in some) and any("} usleep()" in line for line in some), some[:5])
    report = scene.run(scene.contrail, "report", "--min-duration", "1ms", scene.trace)
    expect("counted: calls of at least 1.000 ms\n" in report and "self %" not in report, report[:300])


@case
def bad_values(scene):
    scene.own()
    for words, part in ((["--min-duration", "5"], "'5' is no duration"), (["--max-duration", "x"], "'x' is no duration"),
                        (["--depth", "5..2"], "'5..2' is no depth"), (["--depth", "-1"], "'-1' is no depth"),
                        (["--reason", "foo"], "'foo' is no end of a call: returned, tail call"), (["--type", "calls"], "'calls' is no type: call, point"),
                        (["--limit", "x"], "--limit takes a number"), (["--thread", "x"], "'x' is not a thread id"), (["--thread", "1"], "no thread 1 in the trace"),
                        (["--process", "x"], "'x' is not a process id"), (["--from", "25:00"], "'25:00' is no time"), (["--to", "2026-02-30"], "is no time"),
                        (["--from", "2s", "--to", "1s"], "--from 2s is after --to 1s"), (["--file", "x/"], "--file 'x/'"), (["--function", ""], "--function ''"),
                        (["--min-duration", "1ms", "--min-duration", "2ms"], "given twice")):
        line = scene.refused("replay", *words, scene.trace)
        expect(part in line, f"{words}: {line}")
    for name, part in (("@5", "no piece is named so"), ("#x", "no thread is named so"), ("#1", "no thread 1 in the trace"), ("@x..", "'x' is no time"),
                       ("@2..1", "ends before it begins")):
        line = scene.refused("report", scene.trace + name)
        expect(part in line, f"{name}: {line}")
    expect("the piece is in the name" in scene.refused("report", "--from", "1", scene.trace + "@..2"), "two pieces")
    expect("the thread is in the name" in scene.refused("report", "--thread", "1", scene.trace + "#2"), "two threads")
    expect("whole traces" in scene.refused("report", "--family", scene.trace + "@..2"), "a piece of a family")
    for command, option in (("graph", "--type"), ("slowest", "--type"), ("output", "--depth"), ("info", "--depth")):
        expect("unknown option" in scene.refused(command, option, "1", scene.trace), f"{command} {option}")
    of_filters = ("from", "to", "window", "thread", "process", "function", "module", "file", "min-duration", "max-duration", "depth", "reason", "type", "limit")
    had = {command["name"]: {option["name"] for option in command["options"]}
           for command in json.loads(scene.run(scene.contrail, "help", "--json"))["commands"]}
    for command in ("report", "graph", "slowest", "diff", "info", "output", "replay", "export", "html", "cut", "sql", "tui"):
        for option in of_filters:  # what a command does not have it refuses
            if option not in had[command]:
                expect("unknown option" in scene.refused(command, f"--{option}", "1", scene.trace), f"{command} --{option}")
    for command in ("report", "replay", "export"):
        expect(set(of_filters) <= had[command], f"{command} has no {set(of_filters) - had[command]}")
    expect(set(of_filters) - had["graph"] == {"type"} and set(of_filters) - had["slowest"] == {"type", "function"}, "graph, slowest")
    for words, part in ((["--type", "output"], "its types are call and point"), (["--type", "x"], "'x' is no type"),
                        (["--by", "module", "--type", "call"], "sums of all calls"), (["--callees", "fib", "--type", "call"], "--type")):
        expect(part in scene.refused("report", *words, scene.trace), f"report {words}")
    result = scene.execute(scene.contrail, "report", "--json", "--min-duration", "1h", scene.trace)
    expect(result.returncode == 1 and "nothing passes the filters" in result.stderr, f"{result.returncode} {result.stderr}")
    result = scene.execute(scene.contrail, "report", "--function", "fib", "--min-duration", "1h", scene.trace)
    expect(result.returncode == 0 and "no call passes the other filters" in result.stderr, f"{result.returncode} {result.stderr}")


NAPS = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void nap(void) { usleep(300000); }
int main(void) { puts("one"); fflush(stdout); nap(); puts("three"); fflush(stdout); nap(); return 0; }
"""


@case
def off_in_pieces(scene):
    """Time off the processor that began before a piece, or ends after it, counts as far as it is in the piece."""
    scene.run("gcc", "-O1", "-o", scene.path("naps"), scene.write("naps.c", NAPS))
    scene.record("-q", "--", scene.path("naps"))
    begin = min(line["ts_ns"] for line in scene.lines() if line["name"] == "nap")
    if scene.rows()["nap"]["off_ns"] is None:
        raise harness.Skip("no time off the processor")
    for first, last in ((10, 60), (100, 250), (-20, 100), (200, 400), (250, 310)):
        start = max(begin + first * 10**6, 0)
        piece = f"{scene.trace}@{start}ns..{begin + last * 10**6}ns"
        row, lines = scene.rows(trace=piece)["main"], scene.lines(trace=piece)
        expect(row["total_ns"] * 0.7 < row["off_ns"] <= row["total_ns"], f"{piece}: {row}")
        away = sum(line["duration_ns"] for line in lines if line["kind"] == "away")
        expect((first < 0 or abs(away - row["off_ns"]) < 10**6) and max(line["ts_ns"] for line in lines) <= begin + last * 10**6, f"{piece}: {away}, {row}")
        scene.run(scene.contrail, "cut", "--from", f"{start}ns", "--to", f"{begin + last * 10**6}ns", scene.trace,
                  "-o", scene.path(f"cut{first}"))
        cut = scene.rows(trace=scene.path(f"cut{first}"))["main"]
        expect(cut["off_ns"] == row["off_ns"], f"{piece}: {row}, and of the cut trace {cut}")


@case
def info_of_pieces(scene):
    """Of a piece, a thread, and a trace that was cut: their own events, duration, output and threads."""
    scene.own()
    whole = scene.lines("--limit", "0")
    begin, end = (next(line["ts_ns"] for line in whole if line["kind"] == "output" and word in line["text"]) for word in ("begin", "end"))
    tids = sorted({line["tid"] for line in whole})
    full = scene.info()
    expect(full["piece"] is None and full["output"]["stdout_bytes"] == 10 and len(full["threads"]) == len(tids) == 2, str(full["output"]))
    for form, words, output, low, high in ((f"@..{begin + 1000}ns", ("--to", f"{begin + 1000}ns"), 6, 0, begin + 1000),
                                           (f"@{begin + 1000}ns..{end - 1000}ns", ("--from", f"{begin + 1000}ns", "--to", f"{end - 1000}ns"),
                                            0, begin + 1000, end - 1000)):
        cut = scene.path(f"cut{output}")
        scene.run(scene.contrail, "cut", *words, scene.trace, "-o", cut)
        report = json.loads(scene.run(scene.contrail, "report", "--json", scene.trace + form))
        for name, info in ((form, scene.info(scene.trace + form)), ("cut", scene.info(cut))):
            expect(info["events"] == report["events"], f"{name}: {info['events']} events, not {report['events']}")
            expect(abs(info["duration_ns"] - (high - low)) < 1000, f"{name}: {info['duration_ns']} ns, not {high - low}")
            expect(info["output"]["stdout_bytes"] == info["output"]["recorded_bytes"] == output, f"{name}: {info['output']}")
        by_options = scene.run(scene.contrail, "info", "--json", *words, scene.trace)
        expect(by_options == scene.run(scene.contrail, "info", "--json", scene.trace + form), f"{words}")
        info = scene.info(scene.trace + form)
        expect(abs(info["piece"]["from_ns"] - low) < 10 and abs(info["piece"]["to_ns"] - high) < 10, str(info["piece"]))
        expect(scene.run(scene.contrail, "info", scene.trace + form).startswith("piece "), "not said")
    for tid in tids:
        info = scene.info(f"{scene.trace}#{tid}")
        expect(json.loads(scene.run(scene.contrail, "info", "--json", "--thread", str(tid), scene.trace)) == info, f"--thread {tid}")
        expect([row["tid"] for row in info["threads"]] == [tid] == info["piece"]["tids"], str(info["threads"]))
        expect(info["events"] == next(row["events"] for row in full["threads"] if row["tid"] == tid), str(info["events"]))
    expect("no thread" in scene.refused("info", scene.trace + "#7777777"), "not refused")


if __name__ == "__main__":
    main(__doc__, Scene)
