# SPDX-License-Identifier: MIT
"""What record --itrace F costs: calls of F that are not recorded as instructions, and each that is.

    bench/run.sh itrace_calls [--quick]

A program calls work() in turns of a million, by its own processor time (median of the turns), and calls rare() before each turn:
recorded; with --itrace of rare, of which calls are still wanted; of work, the calls wanted being over; of work under a condition that does not hold.
Then calls of work (some 1000 instructions) that are recorded as instructions: by the clock, the program's processor time and contrail's, each.
"""
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
volatile unsigned long sum;
__attribute__((noinline)) unsigned long work(unsigned long n) { unsigned long x = n; for (int i = 0; i < LENGTH; i++) x = x * 31 + i; return x; }
__attribute__((noinline)) void rare(void) { sum++; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int argc, char **argv)
{
  int turns = atoi(argv[1]), calls = atoi(argv[2]);
  for (int turn = 0; turn < turns; turn++) {
    if (argc > 3) rare();
    double begin = now();
    for (int i = 0; i < calls; i++) sum += work(i & 7);
    printf("%.9f\\n", (now() - begin) / calls);
  }
  return 0;
}
"""
PROCESSOR = max(os.sched_getaffinity(0))
CALLS = 50


def turns(words):
    """Seconds of the program's processor time for a call, the median of the turns but for the first; and what else the command took."""
    begin, before = time.perf_counter(), os.times()
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    after, end = os.times(), time.perf_counter()
    each = [float(line) for line in result.stdout.split()]
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return statistics.median(each[1:] or each), end - begin, spent, result.stderr


def itrace_calls(options, folder):
    contrail = os.path.join(options.build, "contrail")
    source = os.path.join(folder, "calls.c")
    with open(source, "w", encoding="ascii") as file:
        file.write(SOURCE)
    binaries = {}
    for length in (1, 250):
        binaries[length] = os.path.join(folder, f"calls{length}")
        subprocess.run(["gcc", "-O1", f"-DLENGTH={length}", "-o", binaries[length], source], check=True)
    rounds, million = (3, "300000") if options.quick else (5, "1000000")
    program = [binaries[1], "6", million]
    ways = {"recorded": ([], []),
            "--itrace rare, calls are wanted": (["--itrace", "rare", "--itrace-calls", "1000"], ["rare"]),
            "--itrace work, the one call that is wanted is over": (["--itrace", "work", "--itrace-calls", "1"], []),
            "--itrace work, under a condition that never holds": (["--itrace", "work", "--itrace-when", "arg1 > 1000", "--itrace-calls", "1000"], [])}
    found, results = {}, {}
    for _ in range(rounds):
        found.setdefault("untraced", []).append(turns(["taskset", "-c", str(PROCESSOR), *program])[0])
        for way, (words, more) in ways.items():
            trace = tempfile.mkdtemp(dir=folder)
            found.setdefault(way, []).append(turns([contrail, "record", "-q", *words, "-o", os.path.join(trace, "t"), "--", *program, *more])[0])
            shutil.rmtree(trace)
    bare = statistics.median(found["recorded"])
    print(f"a call that is not recorded as instructions, the program's processor time, medians of {rounds}")
    for way, each in found.items():
        results[way] = statistics.median(each)
        print(f"  {way:<52} {results[way] * 1e9:7.1f} ns   {results[way] / bare:5.2f} x recorded")
    program, costs = [binaries[250], "1", str(CALLS)], []
    for _ in range(rounds):
        trace = os.path.join(tempfile.mkdtemp(dir=folder), "t")
        plain = turns([contrail, "record", "-q", "-o", trace, "--", *program])
        shutil.rmtree(trace)
        some = turns([contrail, "record", "-q", "--itrace", "work", "--itrace-calls", str(CALLS), "-o", trace, "--", *program])
        with open(os.path.join(trace, "itrace.tsv"), encoding="ascii") as file:
            count = len(re.findall(r"^\d", file.read(), re.M))
        costs.append([(some[i] - plain[i]) / count for i in (1, 2)])
        shutil.rmtree(trace)
    clock, spent = (statistics.median(one[i] for one in costs) for i in (0, 1))
    results["a recorded call"] = {"clock": clock, "processor": spent, "calls": count}
    print(f"  a call that is ({count} of them, some 1000 instructions): {clock * 1e3:.1f} ms by the clock, {spent * 1e3:.1f} ms of a processor, program and contrail")
    return results
