# SPDX-License-Identifier: MIT
"""A recording that is left on: does it grow, and are the last events kept, and they alone?

    bench/run.sh last [--quick] [--events N]

A program calls eight functions in an order that can be computed from any place on: 10 billion events (--quick: 400 million), or N. It
is recorded with --last 64M, with a pause of 0.3 ms each 65,536 calls, as a busy server has them. While it runs the recorder's memory (anonymous, and shared
with the program: ring and store) and the trace's place on the disk are looked at every two seconds; the first and the last of these and
the extremes are printed, without the first tenth of the time. Afterwards the calls of each function in the trace must be those of as
many last calls of the program, and its first and its last half million calls the same in the same order.
"""
import json
import os
import shutil
import subprocess
import time

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define F(n) __attribute__((noinline)) uint64_t f##n(uint64_t x) { __asm__ volatile("" : "+r"(x)); return x + n; }
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
static inline uint64_t mix(uint64_t i) { i ^= i >> 31; i *= 0x9e3779b97f4a7c15u; return i ^ i >> 29; }
static unsigned which(uint64_t i) { return mix(i >> 3) >> 3 * (i & 7) & 7; }
static uint64_t (*const table[])(uint64_t) = {f0, f1, f2, f3, f4, f5, f6, f7};
int main(int argc, char **argv) {
  uint64_t from = strtoull(argv[2], 0, 10), end = strtoull(argv[3], 0, 10), x = 0, m = 0, n[8] = {0};
  if (argv[1][0] == 'n') for (uint64_t i = from; i < end; i++) printf("f%u\n", which(i)); /* names */
  if (argv[1][0] == 's') { /* sums */
    for (uint64_t i = from; i < end; i++) n[which(i)]++;
    for (int k = 0; k < 8; k++) printf("f%d %lu\n", k, n[k]);
  }
  if (argv[1][0] == 'c') { /* calls */
    for (uint64_t i = from; i < end; i++) {
      if ((i & 65535) == 0) nanosleep(&(struct timespec){0, 300000}, 0);
      if ((i & 7) == 0) m = mix(i >> 3);
      x = table[m & 7](x);
      m >>= 3;
    }
    printf("%lu\n", x);
  }
  return argc < 4;
}
"""
ORDER = 500_000 # calls of which the order is compared, at either end


def memory(pid):
    """KiB: anonymous, shared; None when it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["RssAnon"].split()[0]), int(lines["RssShmem"].split()[0])
    except (OSError, KeyError):
        return None


def on_disk(folder):
    """KiB."""
    return sum(os.lstat(os.path.join(path, name)).st_blocks for path, _, names in os.walk(folder) for name in names) // 2


def watched(recorder, folder):
    samples = []
    while recorder.poll() is None:
        time.sleep(2)
        now = memory(recorder.pid)
        if now:
            samples.append((*now, on_disk(folder)))
    return samples[len(samples) // 10:]


def called(contrail, trace, *words, keep):
    """The names of the calls that replay prints; keep: of them, so many first (positive) or last ones."""
    names = []
    with subprocess.Popen([contrail, "replay", "--json", "--function", "f?", *words, trace], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if '"enter"' in line:
                names.append(json.loads(line)["name"])
                if len(names) == keep:
                    process.kill()
                    break
                del names[:-2 * abs(keep)]
    return names[:keep] if keep > 0 else names[keep:]


def is_the_last(contrail, trace, program, calls, kept):
    """Whether the trace has the program's last calls, and has its first and its last ones in their order."""
    def truth(what, begin, end):
        return subprocess.run([program, what, str(begin), str(end)], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    info = json.loads(subprocess.run([contrail, "info", "--json", trace], stdout=subprocess.PIPE, check=True).stdout)
    n = min(ORDER, sum(kept.values()))
    sums = truth("sums", calls - sum(kept.values()), calls)
    first = called(contrail, trace, keep=n)
    last = called(contrail, trace, "--from", str(max(0, info["duration_ns"] / 1e9 - 0.5)), keep=-n)
    return (kept == dict(zip(sums[::2], map(int, sums[1::2]))), first == truth("names", calls - sum(kept.values()), calls - sum(kept.values()) + n),
            bool(last) and last == truth("names", calls - len(last), calls))


def last(options, folder):
    calls = (options.events or (400_000_000 if options.quick else 10_000_000_000)) // 2
    program, trace = os.path.join(folder, "last"), os.path.join(folder, "trace")
    subprocess.run(["gcc", "-O2", "-x", "c", "-o", program, "-"], input=SOURCE, text=True, check=True)
    begin = time.monotonic()
    with subprocess.Popen([options.contrail, "record", "-q", "-o", trace, "--last", "64M", "--ring-size", "256", "--no-args", "--trace", "f?", "--",
                           program, "calls", "0", str(calls)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        samples = watched(recorder, trace)
    took = time.monotonic() - begin
    report = json.loads(subprocess.run([options.contrail, "report", "--json", "--limit", "0", trace], stdout=subprocess.PIPE, check=True).stdout)
    kept = {row["name"]: row["calls"] for row in report["functions"] if row["name"] in {f"f{n}" for n in range(8)}}
    info = json.loads(subprocess.run([options.contrail, "info", "--json", trace], stdout=subprocess.PIPE, check=True).stdout)
    print(f"{2 * calls:,} events in {took:.0f} s, status {recorder.returncode}: {report['events']:,} kept; before them {info['kept']['not_kept']:,} more were recorded, "
          f"and {info['dropped']:,} lost")
    result = {"events": 2 * calls, "seconds": took, "kept": report["events"], "not_kept": info["kept"]["not_kept"], "dropped": info["dropped"]}
    for name, values in zip(("anonymous memory", "shared memory", "on the disk"), zip(*samples)):
        result[name] = {"first": values[0], "last": values[-1], "least": min(values), "most": max(values)}
        print(f"  {name}, KiB: {values[0]:,} at first, {values[-1]:,} at last, {min(values):,} to {max(values):,} in {len(values)} looks")
    result["checks"] = is_the_last(options.contrail, trace, program, calls, kept)
    for what, is_so in zip(("calls of each function are those of the program's last ones", "the first calls are in their order", "the last calls are in their order"),
                           result["checks"]):
        print(f"  {what}: {'yes' if is_so else 'NO'}")
    shutil.rmtree(trace)
    return result
