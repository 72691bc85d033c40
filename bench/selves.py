#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How true a parent's self time is that makes 100 calls, each of which takes next to nothing: a hundred hooks, of which
most of what the clock has seen is taken out, and what is left is to be what the parent takes untraced.

    bench/selves.py [--build DIR] [--runs N]

Three parents: one does nothing but call ("nothing"), the others do some 5 ns or 200 ns of arithmetic for each child ("some",
"much"). Untraced, in the same minute: a parent's time, as the median of batches of calls, by the time stamp counter. Traced:
the median of the spans' self times; and of these the median of the runs. A line for each run shows how far they scatter: on
a machine with other things to do the cost of a hook, which is measured at the begin of each recording, is not what
it is later, and 20 % of 200 ns are 0.4 ns of a hook.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ("nothing", "some", "much")
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>
enum { CHILDREN = 100, BATCHES = 400, BATCH = 10 };
static long word = 1;
#define NI __attribute__((noinline, noclone))
NI void none(void) { __asm__ volatile("nop; nop; nop; nop; nop"); }
static inline __attribute__((always_inline)) void work(int n)
{
  for (int i = 0; i < n; i++)
    __asm__ volatile("imul $3, %0, %0" : "+r"(word));
}
NI void nothing(void) { for (int i = 0; i < CHILDREN; i++) none(); __asm__ volatile(""); }
NI void some(void) { for (int i = 0; i < CHILDREN; i++) { none(); work(5); } __asm__ volatile(""); }
NI void much(void) { for (int i = 0; i < CHILDREN; i++) { none(); work(200); } __asm__ volatile(""); }
static int compare(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }
static double ticks_per_ns;
static double median(void (*f)(void), int batch)
{
  static double all[BATCHES];
  for (int i = 0; i < BATCHES; i++) {
    unsigned long begin = __rdtsc();
    for (int k = 0; k < batch; k++) f();
    all[i] = (double)(__rdtsc() - begin) / batch / ticks_per_ns;
  }
  qsort(all, BATCHES, sizeof all[0], compare);
  return all[BATCHES / 2];
}
static double ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC_RAW, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(void)
{
  static void (*const parents[])(void) = {nothing, some, much};
  double begin = ns();
  unsigned long ticks = __rdtsc();
  while (ns() < begin + 2e7) ;
  ticks_per_ns = (double)(__rdtsc() - ticks) / (ns() - begin);
  double took[3];
  for (int i = 0; i < 3; i++) took[i] = median(parents[i], BATCH);
  printf("%.1f %.1f %.1f\n", took[0], took[1], took[2]);
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    contrail = os.path.join(os.path.abspath(options.build), "contrail")
    folder = tempfile.mkdtemp(prefix="contrail-selves.")
    program, trace = os.path.join(folder, "selves"), os.path.join(folder, "trace")
    plain, shown = {name: [] for name in NAMES}, {name: [] for name in NAMES}
    try:
        subprocess.run(["gcc", "-O2", "-w", "-x", "c", "-", "-o", program], input=PROGRAM, text=True, check=True)
        print(f"{'':12}" + "".join(f"{name:>22}" for name in NAMES) + "   self, traced / untraced, ns")
        for run in range(options.runs):
            untraced = [float(word) for word in subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.split()]
            shutil.rmtree(trace, ignore_errors=True)
            hooked = [word for name in ("none", *NAMES) for word in ("--trace", f"selves!{name}")]
            subprocess.run([contrail, "record", "-q", "--no-args", "-o", trace, *hooked, "--", program], stdout=subprocess.DEVNULL, check=True)
            line = f"run {run + 1:<8}"
            for name, own in zip(NAMES, untraced):
                rows = subprocess.run([contrail, "sql", "--json", trace, f"SELECT self FROM spans WHERE function = '{name}'"],
                                      stdout=subprocess.PIPE, text=True, check=True).stdout
                selves = [row["self"] for row in json.loads(rows)]
                plain[name].append(own)
                shown[name].append(statistics.median(selves))
                line += f"{shown[name][-1]:12.0f} /{own:8.0f}"
            print(line, flush=True)
        for what, take in ("median", statistics.median), ("least", min):
            pairs = [(take(shown[name]), take(plain[name])) for name in NAMES]
            print(f"{what:12}" + "".join(f"{a:12.0f} /{b:8.0f}" for a, b in pairs))
            print(f"{'off by':12}" + "".join(f"{100 * (a / b - 1):20.1f} %" for a, b in pairs))
        print("within 20 %:  " + ", ".join(f"{name} in {sum(abs(a / b - 1) <= 0.2 for a, b in zip(shown[name], plain[name]))} of {options.runs} runs" for name in NAMES))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
