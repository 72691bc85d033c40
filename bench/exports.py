# SPDX-License-Identifier: MIT
"""How fast exports are written, and how large they are.

    bench/run.sh exports [--quick] [--events N]

Two programs are recorded, each with more than ten million calls (or N events): one whose calls are all alike, and one whose
calls differ in function, depth and time (SQLite, if it is installed). Each format goes to a file in memory and is timed as a
whole process; printed are calls a second of the clock and of processor time, bytes a call, and memory at its most. Medians.
"""
import json
import os
import shutil
import statistics
import subprocess
import time

SOURCE = r"""
#include <stdlib.h>
static volatile long sum;
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long n) { sum += n; return n; }
OWN long mid(long n) { return leaf(n) + leaf(n + 1) + 1; }
OWN long work(long n) { long s = 0; for (long i = 0; i < n % 7; i++) s += mid(i); return s; }
OWN long fib(long n) { return n < 2 ? leaf(n) : fib(n - 1) + fib(n - 2); }
int main(int c, char **v) { long n = atol(v[1]); for (long i = 0; i < n; i++) { work(i); if (i % 64 == 0) fib(i % 13); } return 0; }
"""
EVENTS_OF_WORK = 24
QUERY = ("CREATE TABLE t(a, b, c); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
         "INSERT INTO t SELECT i, i * 7 % 1000, 'row ' || i FROM n; CREATE INDEX i ON t(b); SELECT count(*), sum(a), max(c) FROM t "
         "GROUP BY b % 10 ORDER BY 2; SELECT count(*) FROM t x JOIN t y ON x.a = y.b;")
EVENTS_OF_ROW = 470
FORMATS = ["perfetto", "csv", "jsonl", "parquet", "chrome", "speedscope", "firefox", "folded", "flamegraph", "pprof"]


def programs(folder, events):
    """Words of each program that makes so many events."""
    program = os.path.join(folder, "alike")
    with open(program + ".c", "w", encoding="utf-8") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-o", program, program + ".c"], check=True)
    yield "calls alike", [program, str(events // EVENTS_OF_WORK)]
    if shutil.which("sqlite3") is not None:
        yield "sqlite3", ["sqlite3", ":memory:", QUERY.format(rows=events // EVENTS_OF_ROW)]


def run(words):
    """(seconds, seconds of processors, KiB of memory at most)."""
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: status {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def measure(options, folder, trace, turns):
    report = json.loads(subprocess.run([options.contrail, "report", "--json", trace], capture_output=True, check=True).stdout)
    calls = sum(row["calls"] for row in report["functions"])
    print(f"  {calls:,} calls\n  {'':12} {'calls/s':>9} {'per processor':>14} {'bytes/call':>11} {'memory':>9}")
    results = {"calls": calls}
    for form in FORMATS:
        path, times = os.path.join(folder, "export"), []
        for _ in range(turns):
            shutil.rmtree(path, ignore_errors=True)
            if os.path.exists(path):
                os.unlink(path)
            times.append(run([options.contrail, "export", "--to", form, "-o", path, trace]))
        seconds, used, memory = (statistics.median(values) for values in zip(*times))
        files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
        size = sum(map(os.path.getsize, files))
        results[form] = {"calls_per_s": calls / seconds, "calls_per_processor_s": calls / used, "bytes": size, "kib": memory}
        print(f"  {form:12} {calls / seconds / 1e6:7.2f} M {calls / used / 1e6:12.2f} M {size / calls:11.2f} {memory / 1024:6.1f} MiB")
    return results


def exports(options, folder):
    events = options.events or (2_500_000 if options.quick else 25_000_000)
    results = {}
    for name, words in programs(folder, events):
        trace = os.path.join(folder, "trace")
        shutil.rmtree(trace, ignore_errors=True)
        subprocess.run([options.contrail, "record", "-q", "-o", trace, "--", *words], check=True, stdout=subprocess.DEVNULL)
        print(f"\n{name}: {os.path.basename(words[0])}")
        results[name] = measure(options, folder, trace, 1 if options.quick else 3)
        shutil.rmtree(trace)
    return results
