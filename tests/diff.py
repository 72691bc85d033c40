#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail diff: its numbers against those of the report; that a trace does not differ from itself, nor two runs of a
program from each other; that a planted change is found, and comes first.

    tests/diff.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import shutil

import harness
import noisemodel
from harness import Skip, case, expect, main, parse_lines

PROGRAM = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define OWN __attribute__((noinline, noclone))
OWN unsigned alpha(unsigned n) { unsigned s = n; for (int i = 0; i < 700; i++) { s = s * 31 + (s >> 3); } return s; }
OWN unsigned beta(unsigned n) { unsigned s = n; for (int i = 0; i < WORK; i++) { s = s * 33 + (s >> 5); } return s; }
OWN unsigned delta(unsigned n) { unsigned s = n; for (int i = 0; i < 2000; i++) { s = s * 35 + (s >> 7); } return s; }
#ifdef NEW
OWN unsigned fresh(unsigned n) { __asm__ volatile(""); return n * 3; }
#else
OWN unsigned stale(unsigned n) { __asm__ volatile(""); return n * 3; }
#define fresh stale
#endif
#define STEADY(N) OWN unsigned steady##N(unsigned n) { unsigned s = n; for (int i = 0; i < 200 * N; i++) { s = s * 37 + (s >> N); } return s; }
STEADY(1) STEADY(2) STEADY(3) STEADY(4) STEADY(5) STEADY(6) STEADY(7) STEADY(8)
OWN unsigned steady(unsigned n)
{
  return steady1(n) + steady2(n) + steady3(n) + steady4(n) + steady5(n) + steady6(n) + steady7(n) + steady8(n);
}
OWN unsigned turn(unsigned n) { return alpha(n) + beta(n) + delta(n) + steady(n); }
int main(void)
{
  unsigned s = fresh(1);
  for (int i = 0; i < TURNS; i++) { s += turn(i); }
  for (int i = 0; i < CHILDREN; i++) { if (fork() == 0) { for (int k = 0; k < 100; k++) { s += alpha(k); } _exit(s == 1); } }
  while (wait(NULL) > 0) { }
  printf("%u\n", s);
  return 0;
}
"""
KEYS = ("calls", "self_ns", "total_ns", "avg_ns", "p50_ns", "p95_ns", "p99_ns")


class Scene(harness.Scene):
    def traced(self, name, *options, work=1000, turns=5000, new=False, children=0):
        """A trace of the program, so compiled."""
        self.write("program.c", PROGRAM)
        os.makedirs(self.path("bin" + name))
        program = self.path("bin" + name, "program" + name)
        self.run("gcc", "-O2", "-g", f"-DWORK={work}", f"-DTURNS={turns}", f"-DCHILDREN={children}", *(["-DNEW"] if new else []),
                 "-o", program, self.path("program.c"))
        self.run(self.contrail, "record", "-q", "-o", self.path(name), *options, "--", program)
        return self.path(name)

    def recorded(self, name, *words):
        self.run(self.contrail, "record", "-q", "-o", self.path(name), "--", *words)
        return self.path(name)

    def diff(self, *words):
        return json.loads(self.run(self.contrail, "diff", "--json", *words))


def states(diff, *wanted):
    return {row["name"]: row for row in diff["functions"] if row["state"] in wanted}


@case
def with_itself(scene):
    """Nothing differs, whatever the times are made of."""
    trace = scene.traced("a")
    for options in ([], ["--time", "cpu"], ["--raw"], ["--all"]):
        diff = scene.diff(*options, trace, trace)
        expect(set(name for name, count in diff["counts"].items() if count) == {"same"}, diff["counts"])
        expect(len(diff["functions"]) == (diff["counts"]["same"] if options == ["--all"] else 0), "rows")
    shown = scene.run(scene.contrail, "diff", trace, trace)
    expect("nothing has changed beyond noise" in shown, shown)


@case
def as_the_report(scene):
    """The numbers of both sides are the report's."""
    traces = scene.traced("a"), scene.traced("b", work=1300, new=True)
    for options in ([], ["--time", "cpu"], ["--module", "libc*"], ["--function", "[abd]*"]):
        diff = scene.diff("--all", *options, *traces)
        for side, trace in zip(("before", "after"), traces):
            report = json.loads(scene.run(scene.contrail, "report", "--json", *options, trace))["functions"]
            sums = {}
            for row in report:
                sums.setdefault((row["name"], row["module"].partition(".so")[0]), []).append(row)
            rows = [(row, row[side]) for row in diff["functions"] if row[side]]
            expect(len(rows) == len(sums) > 2, f"{options} {side}: {len(rows)} functions, the report has {len(sums)}")
            for row, numbers in rows:
                module = os.path.basename(trace) if row["module"].startswith("program") else None
                found = sums[row["name"], "program" + module if module else row["module"].partition(".so")[0]]
                expect(sum(one["calls"] for one in found) == numbers["calls"], f"{numbers} {found}")
                expect(len(found) > 1 or all(found[0][key] == numbers[key] for key in KEYS), f"{options} {side}: {numbers} {found}")


THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#define OWN __attribute__((noinline, noclone))
static long turns;
OWN long leaf(long n) { for (volatile int i = 0; i < n % 50; i++) { } return n + 1; }
OWN long nested(long n) { return n % 4 == 0 ? leaf(n) : nested(n - 1) + leaf(n); }
OWN void *one(void *wanted) { for (long i = 0; i < turns * (1 + (long)wanted); i++) { nested(i); } return NULL; }
int main(int argc, char **argv)
{
  pthread_t threads[3];
  turns = atol(argv[1]);
  for (long i = 0; i < 3; i++) { pthread_create(&threads[i], NULL, one, (void *)i); }
  for (int i = 0; i < 3; i++) { pthread_join(threads[i], NULL); }
  if (argc > 2) { abort(); }
  return 0;
}
"""
INDEX = "spans.cti"


def without_index(scene, words, *traces):
    """The same from every call: filters of calls that all of them pass have the threads read."""
    diff = scene.diff("--all", "--depth", "0..", *words, *traces)
    expect("counted" in diff, "it does not say that calls are selected")
    del diff["counted"]
    return diff


@case
def from_the_index(scene):
    """With the index, as it makes it, and without: the same to the last digit, with noise and batches of several threads."""
    program = scene.compile(scene.write("threads.c", THREADS), "-O1", "-pthread")
    traces = scene.recorded("a", program, "6000"), scene.recorded("b", program, "7000")
    plain = without_index(scene, (), *traces)
    expect(plain["counts"]["changed"] and not any(os.path.exists(os.path.join(trace, INDEX)) for trace in traces), plain["counts"])
    expect(scene.diff("--all", *traces) == plain, "the index as it is made says something else")
    stamps = [os.stat(os.path.join(trace, INDEX)).st_mtime_ns for trace in traces]
    expect(scene.diff("--all", *traces) == plain, "the index says something else")
    expect(stamps == [os.stat(os.path.join(trace, INDEX)).st_mtime_ns for trace in traces], "it was made anew")
    text = scene.run(scene.contrail, "diff", *traces)
    lines = scene.run(scene.contrail, "diff", "--depth", "0..", *traces).splitlines(True)
    expect([line for line in lines if not line.startswith("counted:")] == text.splitlines(True), "the text differs")
    for words in (["--function", "leaf"], ["--module", "libc*"], ["--sort", "p99", "--limit", "3"]):
        expect(scene.diff("--all", *words, *traces) == without_index(scene, words, *traces), words)
    with open(os.path.join(traces[0], INDEX), "r+b") as file:  # damaged: made again
        file.seek(os.path.getsize(file.name) - 40)
        file.write(bytes(20))
    expect(scene.diff("--all", *traces) == plain, "a damaged index is believed")
    index, query = os.path.join(traces[0], INDEX), "SELECT name, calls, total, self, p99 FROM functions ORDER BY id"
    with_selves, rows = os.path.getsize(index), scene.run(scene.contrail, "sql", "--json", traces[0], query)
    os.remove(index)
    expect(scene.run(scene.contrail, "sql", "--json", traces[0], query) == rows, "without self times other sums")
    without = os.path.getsize(index)
    expect(without < with_selves, f"{without} bytes made by sql, {with_selves} by diff")
    expect(scene.diff("--all", *traces) == plain and os.path.getsize(index) == with_selves, "diff did not add what it needs")
    stamp = os.stat(index).st_mtime_ns
    expect(scene.run(scene.contrail, "sql", "--json", traces[0], query) == rows and os.stat(index).st_mtime_ns == stamp, "sql made it again")
    return f"{plain['before']['events']:,} events; its index {without:,} bytes, {with_selves:,} with self times"


@case
def damaged_threads(scene):
    """A thread's file that is cut, with an index of the whole beside it: the same as without one, and the damage is said."""
    program = scene.compile(scene.write("threads.c", THREADS), "-O1", "-pthread")
    traces = scene.recorded("a", program, "6000"), scene.recorded("b", program, "6000")
    scene.diff(*traces)
    path = os.path.join(traces[1], "thread_1", "index.ctb")
    os.truncate(path, os.path.getsize(path) * 2 // 3)
    for words in ([], ["--depth", "0.."]):
        result = scene.execute(scene.contrail, "diff", "--json", "--all", *words, *traces)
        expect("damaged or cut" in result.stderr, f"{words}: {result.stderr}")
    expect(json.loads(scene.execute(scene.contrail, "diff", "--json", "--all", *traces).stdout)["functions"] ==
           json.loads(result.stdout)["functions"], "not the same")


@case
def of_some_calls(scene):
    """Durations, depths, reasons and types: the numbers of both sides are those of the report with the same words."""
    program = scene.compile(scene.write("threads.c", THREADS), "-O1", "-pthread")
    traces = scene.recorded("a", program, "3000"), scene.recorded("b", program, "3500")
    for words in (["--min-duration", "500ns"], ["--max-duration", "1us"], ["--depth", "2..4"], ["--depth", "3"],
                  ["--reason", "returned"], ["--type", "call"], ["--min-duration", "400ns", "--time", "cpu"]):
        diff = scene.diff("--all", *words, *traces)
        for side, trace in zip(("before", "after"), traces):
            report = json.loads(scene.run(scene.contrail, "report", "--json", *words, trace))
            rows = {row["name"]: row for row in report["functions"] if row["module"].startswith("threads")}
            mine = {row["name"]: row[side] for row in diff["functions"] if row["module"].startswith("threads") and row[side]}
            expect(rows.keys() == mine.keys() and rows and diff["counted"] == report["counted"], f"{words}: {rows.keys()} {mine.keys()}")
            for name, row in mine.items():
                expect(all(rows[name][key] == row[key] for key in KEYS), f"{words} {name}: {row}, the report has {rows[name]}")
    result = scene.execute(scene.contrail, "diff", "--type", "output", *traces)
    expect(result.returncode != 0 and "point" in result.stderr, str(result))
    for option in ("from", "to", "window", "thread", "process"):
        result = scene.execute(scene.contrail, "diff", f"--{option}", "1", *traces)
        expect(result.returncode != 0 and "unknown option" in result.stderr, f"{option}: {result}")


@case
def of_two_windows(scene):
    """Of two pieces of a trace: what is said of each is of the piece, how long it is too."""
    trace = scene.traced("a", turns=50)
    whole = json.loads(scene.run(scene.contrail, "info", "--json", trace))["duration_ns"]
    ends = [round(whole * share / 8e9, 9) for share in (1, 3, 5)]
    diff = scene.diff("--all", f"{trace}@{ends[0]}..{ends[1]}", f"{trace}@{ends[1]}..{ends[2]}")
    for side, low, high in (("before", ends[0], ends[1]), ("after", ends[1], ends[2])):
        expect(abs(diff[side]["duration_ns"] - (high - low) * 1e9) < 1000, f"{side}: {diff[side]}, {low} to {high} s")
    text = scene.run(scene.contrail, "diff", "--all", f"{trace}@{ends[0]}..{ends[1]}", f"{trace}@{ends[1]}..{ends[2]}")
    expect("different lengths" not in text, text)


@case
def of_a_file(scene):
    """--file: the functions that report --file has; of traces that do not say where functions are written, none."""
    before, after = scene.traced("a", "--source", turns=50), scene.traced("b", "--source", turns=60)
    names = {row["name"] for trace in (before, after)
             for row in json.loads(scene.run(scene.contrail, "report", "--json", "--file", "program.c", trace))["functions"]}
    expect({"alpha", "beta", "main"} <= names, names)
    got = {row["name"] for row in scene.diff("--all", "--file", "program.c", before, after)["functions"]}
    expect(got == names, f"only one has {got ^ names}")
    whole = {row["name"] for row in scene.diff("--all", before, after)["functions"]}
    expect(names < whole, "all functions are in the file")
    plain = scene.traced("c", turns=50)
    expect(not scene.diff("--all", "--file", "program.c", plain, plain)["functions"], "without --source")


def finds_beta(scene, traces):
    """Of two traces, in which beta takes three tenths more in the second one: what is wrong with what is found, or None."""
    diff, back = scene.diff(*traces), scene.diff(*reversed(traces))
    if len(states(diff, "changed")) > 2 or not diff["functions"] or not back["functions"]:
        return states(diff, "changed")
    row, other = diff["functions"][0], back["functions"][0]
    good = row["name"] == other["name"] == "beta" and row["state"] == "changed"
    return None if good and 1.1 < row["typical_factor"] < 1.6 and 0.6 < other["typical_factor"] < 0.92 else (row, other)


@case
def planted(scene):
    """Three tenths more work in one function of a program, whose file has another name: found, and first. A machine that is faster for one
    of two runs changes others, too, and truly; and what is subtracted for each call is measured in each run (limits.md)."""
    wrong = []
    for turn in range(40):
        traces = scene.traced(f"a{turn}"), scene.traced(f"b{turn}", work=1300)
        costs = [sum(cost for cost in scene.info(trace)["hook_costs"].values() if isinstance(cost, (int, float))) for trace in traces]
        if max(costs) > 1.1 * min(costs):
            continue
        wrong.append(finds_beta(scene, traces))
        if wrong[-1] is None:
            break
        expect(len(wrong) < 15, f"{len(wrong)} pairs of runs: {wrong[-1]}")
    if not wrong or wrong[-1] is not None:
        raise Skip(f"the machine changes its pace: {len(wrong)} pairs of runs can be compared")
    shown = scene.run(scene.contrail, "diff", *traces)
    expect("beta" in shown and "a typical call's self" in shown, shown)
    return f"the {len(wrong)}. pair of runs"


@case
def new_and_vanished(scene):
    """And more calls of all."""
    diff = scene.diff(scene.traced("a"), scene.traced("b", new=True, turns=6000))
    expect(set(states(diff, "new")) == {"fresh"} and set(states(diff, "vanished")) == {"stale"}, diff["functions"])
    changed = states(diff, "changed")
    for name in ("alpha", "beta", "delta", "turn"):
        expect(changed[name]["calls_changed"] and changed[name]["calls_change"] == 1000, changed.get(name))
    names = [row["name"] for row in scene.diff("--sort", "name", scene.path("a"), scene.path("b"))["functions"]]
    expect(names == sorted(names) and len(names) >= 6, names)
    expect(len(scene.diff("--limit", "2", scene.path("a"), scene.path("b"))["functions"]) == 2, "--limit")


@case
def two_runs(scene):
    """Pairs of runs of real programs: next to nothing has changed."""
    programs = {"ls": ["/bin/ls", "-lR", "/usr/include/linux"], "perl": ["perl", "-e", "$h{$_ % 97} .= 'x' for 1..5000; print 1"],
                "sort": ["sort", "-n", scene.write("numbers", "\n".join(str(n * 7919 % 10007) for n in range(10007)))]}
    pairs = functions = changed = 0
    seen = []
    for name, words in programs.items():
        for turn in range(2):
            traces = [scene.recorded(f"{name}.{turn}.{side}", *words) for side in "ab"]
            diff = scene.diff("--time", "cpu", *traces)
            pairs, functions = pairs + 1, functions + sum(diff["counts"].values())
            changed += diff["counts"]["changed"]
            seen += [row["name"] for row in states(diff, "changed").values()]
    expect(functions > 1000 and changed <= functions / 200, f"{changed} of {functions} functions in {pairs} pairs: {seen}")
    return f"{changed} of {functions} functions in {pairs} pairs"


PARENT = r"""
#define OWN __attribute__((noinline, noclone))
OWN void empty(void) { __asm__ volatile(""); }
OWN void parent(void) { for (int i = 0; i < 5000; i++) { empty(); } }
OWN unsigned work(unsigned n) { unsigned s = n; for (int i = 0; i < 3000; i++) { s = s * 31 + (s >> 3); } return s; }
int main(void) { unsigned s = 0; for (int i = 0; i < 40; i++) { parent(); s += work(i); } return s == 1; }
"""


def same_noise(noise, diff, twice):
    """What the lines say against what diff says, of each function that both have; how many numbers. twice: functions
    that are two of one name, whose calls diff numbers apart."""
    told, count = diff["noise"], 0

    def alike(mine, its, what, slack=1.01):
        nonlocal count
        count += 1
        expect(abs(mine - its) <= slack, f"{what}: {its}, by the lines {mine}")
    for mine, key, digits in ((noise.common, "common_factor", 6), (noise.spread, "spread", 6), (noise.call, "call_ns", 1),
                              (noise.overdispersion, "overdispersion", 3), (noise.disturbance, "disturbance_ns", 0)):
        expect(abs(mine - told[key]) <= 10.0**-digits + 1e-9 * mine, f"{key}: {told[key]}, by the lines {mine}")
    for row in diff["functions"]:
        key = row["name"], row["module"]
        if not (row["before"] and row["after"]) or any(one.points for one in noise.pairs[key]):
            continue
        alike(noise.calls_noise(key), row["calls_noise"], f"calls of {key}")
        if key not in noise.times or key in twice:
            continue
        rounded = 0.05 * any(noise.hooks)  # what diff says of hooks is
        alike(noise.self_noise(key), row["self_noise_ns"], f"self of {key}", 1.01 + rounded * sum(one.calls + one.children for one in noise.pairs[key]))
        changed, margin = noise.is_self_changed(key)
        expect(changed == row["self_changed"] or margin < 1e-6, f"{row}: changed {changed}")
        expect((row["typical_factor"] is not None) == (key in noise.typical), f"{row}: a typical call")
        if key in noise.typical:
            (before, _), (after, _) = noise.typical[key]
            expect(abs(after / before - row["typical_factor"]) < 1e-9 * row["typical_factor"], f"{row}: typical {before} and {after}")
            its = noisemodel.math.log(row["typical_noise_factor"])
            slack = 1e-9 + rounded * 2 * (1 + max(one.children / one.calls for one in noise.pairs[key])) / min(before, after)
            alike(noise.typical_noise(key), its, f"typical of {key}", slack)
            changed, margin = noise.is_typical_changed(key)
            expect(changed == row["typical_changed"] or margin < 1e-6, f"{row}: typical changed {changed}")
    return count


@case
def noise_by_the_lines(scene):
    """Each bound of chance, and what is a change, as computed from the lines of replay; threads and one; hooks that differ."""
    program = scene.compile(scene.write("threads.c", THREADS), "-O1", "-pthread")
    pairs = [(scene.traced("a", turns=300), scene.traced("b", turns=harness.lot("turns").choice((300, 340)), work=1300)),
             (scene.recorded("c", program, "400"), scene.recorded("d", program, "450"))]
    count = 0
    for traces in pairs:
        for trace in traces:
            noisemodel.one_tick_a_ns(trace, traces[0] if traces == pairs[0] else None)
        sides = [noisemodel.side(parse_lines(scene.run(scene.contrail, "replay", "--json", "--raw", trace))) for trace in traces]
        names = {(row["name"], row["module"]) for row in scene.diff("--all", "--raw", *traces)["functions"]}
        for (functions, _), trace in zip(sides, traces):  # each program is the other's, whatever it is called
            own = os.path.basename(json.loads(scene.run(scene.contrail, "info", "--json", trace))["command"][0])
            for key in [key for key in functions if key[1] == own and key not in names]:
                functions[key[0], next(module for name, module in names if name == key[0] and module.startswith("program"))] = functions.pop(key)
        diff = scene.diff("--all", "--raw", *traces)
        rows = collections.Counter((trace, row["name"], row["module"]) for trace in traces
                                   for row in json.loads(scene.run(scene.contrail, "report", "--json", trace))["functions"])
        twice = {row[1:] for row, number in rows.items() if number > 1}
        hooks = diff["noise"]["hooks_ns"], diff["noise"]["hooks_in_caller_ns"]
        expect(traces != pairs[0] or not any(hooks), f"hooks of the same costs differ by {hooks}")
        count += same_noise(noisemodel.Noise(sides, hooks), diff, twice)
        count += same_noise(noisemodel.Noise(sides, hooks, cpu=True), diff | {
            "functions": [], "noise": diff["noise"] | {"disturbance_ns": scene.diff("--time", "cpu", *traces)["noise"]["disturbance_ns"]}}, twice)
    expect(count > 300, f"{count} numbers")
    return f"{count} numbers"


@case
def dearer_hooks(scene):
    """What hooks cost differs from recording to recording: the time of a function that makes many calls has not changed by that."""
    before = scene.recorded("a", scene.compile(scene.write("parent.c", PARENT), "-O2"))
    after = shutil.copytree(before, scene.path("b"))
    os.remove(os.path.join(after, INDEX)) if os.path.exists(os.path.join(after, INDEX)) else None
    with open(os.path.join(after, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    manifest["hook_costs"] = {key: 0.4 * cost for key, cost in manifest["hook_costs"].items()}
    with open(os.path.join(after, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    for words in (["--time", "cpu"], []):
        diff = scene.diff("--all", *words, before, after)
        rows = states(diff, *diff["counts"])
        slower = rows["parent"]["self_change_ns"] > 0.1 * rows["parent"]["before"]["self_ns"]
        expect(slower or not words, f"the hooks make no difference: {rows['parent']}")
        changed = states(diff, "changed")
        expect(not changed, f"{words}: {list(changed.values())[:3]}")
    text = scene.run(scene.contrail, "diff", before, after)
    expect("hooks took" in text and "nothing has changed beyond noise" in text, text)


@case
def family(scene):
    """Of all processes: the children's calls are in it with --family alone."""
    traces = [scene.traced(name, "--follow", children=count, turns=50) for name, count in (("a", 2), ("b", 8))]
    alone, whole = (scene.diff("--all", *options, *traces) for options in ([], ["--family"]))
    calls = [[states(diff, *diff["counts"])["alpha"][side]["calls"] for side in ("before", "after")] for diff in (alone, whole)]
    expect(calls == [[50, 50], [250, 850]], calls)
    expect(whole["after"]["processes"] == 9 and states(whole, "changed")["alpha"]["calls_changed"], whole["after"])


@case
def not_comparable(scene):
    """Sampled calls are no numbers to compare; functions without times have calls."""
    plain = scene.traced("a", "--mode", "light", "--trace", "alpha", "--trace", "beta", "--no-sampling")
    sampled = scene.traced("b", "--mode", "light", "--trace", "alpha", "--trace", "beta", "--sample", "16")
    diff = scene.diff("--all", plain, sampled)
    expect(states(diff, "not known").keys() >= {"alpha", "beta"}, diff["functions"])
    more = scene.traced("c", "--mode", "light", "--trace", "alpha", "--trace", "beta", "--no-sampling", turns=9000)
    row = states(scene.diff(plain, more), "changed")["alpha"]
    expect(row["calls_change"] == 4000 and row["self_change_ns"] is None, row)
    expect("cannot be compared" in scene.run(scene.contrail, "diff", plain, sampled), "not said")


@case
def wrong_usage(scene):
    trace = scene.traced("a", turns=10)
    for words, status in (([trace], 2), ([trace, trace, trace], 2), (["--sort", "x", trace, trace], 2),
                          ([trace, scene.path("none")], 1), (["--function", "[", trace, trace], 2), (["--from", "1", trace, trace], 2),
                          (["--family", trace + "@..1", trace], 2), (["--family", trace, trace + "@..1"], 2)):
        result = scene.execute(scene.contrail, "diff", *words)
        expect(result.returncode == status and result.stderr and not result.stdout, f"{words}: {result}")


if __name__ == "__main__":
    main(__doc__, Scene)
