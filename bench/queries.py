# SPDX-License-Identifier: MIT
"""What questions to a trace take, and the same trace's report; beside DuckDB, and uftrace's report and graph of the same program.

    bench/run.sh queries [--quick] [--events N]

A program with a hot pair of functions, a rare slow call and a few threads' worth of depth is recorded with some million and some
ten million events, or N. Printed for each size: how long the index takes to make (events a second) and how large it is; then
each question three ways: the first time, with the index to be made; the whole command afterwards (process, opening, CRCs of the
index, answer); and the question alone, warm, in a session that has asked it before. Then the report, callers, callees, modules and
the graph without an index and with it. The largest trace is exported to Parquet, and DuckDB (its npm package, if npm and node are there) is asked the same on one
thread, in a session that has asked before; the export comes first, so it is printed too. uftrace records the same program, compiled for it (-pg), and reports. Medians of several runs on one processor. Times are those
of a clock; events a second and core are of processor time, which other work on the machine changes less.

With --events of a hundred million or more the table of questions.py is printed instead, that of docs/questions.md.
"""
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time

import questions

PROCESSOR = max(os.sched_getaffinity(0))
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#define N __attribute__((noinline))
static volatile long sum;
N void leaf1(long x) { sum += x; }
N void leaf2(long x) { sum ^= x; }
N void leaf3(long x) { sum -= x; if ((x & 0xffff) == 1) for (volatile int i = 0; i < 1000000; i++) {} }
N void mid(long x) { leaf1(x); leaf2(x); if (x & 1) leaf3(x); }
N void top(long x) { mid(x); mid(x + 1); leaf1(x); }
N void chunk(long from, long to) { for (long i = from; i < to; i++) top(i); }
int main(int c, char **v) {
  long n = atol(v[1]);
  for (long i = 0; i < n; i += 10000) chunk(i, i + 10000 < n ? i + 10000 : n);
  printf("%ld\n", sum);
}
"""
LONG = 100_000_000
EVENTS_OF_TOP = 18  # nine calls
QUESTIONS = {
    "totals per function": "SELECT name, calls, total, self FROM functions WHERE calls > 0 ORDER BY self DESC LIMIT 20",
    "who calls leaf1": "SELECT caller, calls, total FROM edges WHERE callee = 'leaf1'",
    "self per function in 2 ms": "SELECT function, count(*), sum(self) FROM spans WHERE start BETWEEN {t} AND {t} + 2000000 GROUP BY 1",
    "slowest 20 of a hot function": "SELECT id, start, duration FROM spans WHERE function = 'leaf3' ORDER BY duration DESC LIMIT 20",
    "children of a call": "SELECT id, function, duration FROM spans WHERE parent_id = {id}",
    "calls of f in 1 ms": "SELECT count(*), sum(duration) FROM spans WHERE function = 'leaf1' AND start BETWEEN {t} AND {t} + 1000000",
    "longer than 1 ms on a thread": "SELECT count(*), max(duration) FROM spans WHERE thread = 0 AND duration >= 1000000",
}

# The same of the exported tables.
DUCKDB_QUESTIONS = {
    "totals per function": "SELECT f.name, sum(s.calls), sum(s.duration_ns), sum(s.self_ns) FROM {spans} s JOIN {functions} f "
                           "ON s.function = f.id GROUP BY 1 ORDER BY 4 DESC LIMIT 20",
    "who calls leaf1": "SELECT caller.function, count(*), sum(s.duration_ns) FROM {spans} s LEFT JOIN {spans} caller ON caller.id = s.parent "
                       "WHERE s.function = (SELECT id FROM {functions} WHERE name = 'leaf1') GROUP BY 1",
    "self per function in 2 ms": "SELECT function, count(*), sum(self_ns) FROM {spans} WHERE start_ns BETWEEN {t} AND {t} + 2000000 GROUP BY 1",
    "slowest 20 of a hot function": "SELECT id, start_ns, duration_ns FROM {spans} WHERE function = (SELECT id FROM {functions} WHERE "
                                    "name = 'leaf3') ORDER BY duration_ns DESC LIMIT 20",
    "children of a call": "SELECT id, function, duration_ns FROM {spans} WHERE parent = {id}",
    "calls of f in 1 ms": "SELECT count(*), sum(duration_ns) FROM {spans} WHERE function = (SELECT id FROM {functions} WHERE name = 'leaf1') "
                          "AND start_ns BETWEEN {t} AND {t} + 1000000",
    "longer than 1 ms on a thread": "SELECT count(*), max(duration_ns) FROM {spans} WHERE duration_ns >= 1000000",
}
DUCKDB = """import { DuckDBInstance } from '@duckdb/node-api';
const c = await (await DuckDBInstance.create(':memory:')).connect();
await c.run('SET threads = 1');
for (const q of process.argv.slice(2)) {
  const times = [];
  for (let i = 0; i < 6; i++) {
    const begin = performance.now();
    const rows = (await c.runAndReadAll(q)).getRows();
    times.push(performance.now() - begin);
  }
  console.log(times.slice(1).sort((a, b) => a - b)[2]);
}
"""


def run(words, **more):
    return subprocess.run(["taskset", "-c", str(PROCESSOR), *words], capture_output=True, text=True, check=True, **more)


VIEWS = {"report --callers": ["report", "--callers", "leaf1"], "report --callees": ["report", "--callees", "mid"],
         "report --by module": ["report", "--by", "module"], "graph": ["graph"]}


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed_both(words, turns, before=lambda: None, **more):
    """By the clock and of the processor: medians, in ms."""
    times, processor = [], []
    for _ in range(turns):
        before()
        begin, begin_spent = time.perf_counter(), spent()
        run(words, **more)
        times.append(1000 * (time.perf_counter() - begin))
        processor.append(1000 * (spent() - begin_spent))
    return statistics.median(times), statistics.median(processor)


def timed(words, turns, before=lambda: None):
    return timed_both(words, turns, before)[0]


class Trace:
    def __init__(self, options, folder, events):
        self.contrail, self.path, self.turns = options.contrail, os.path.join(folder, "trace"), 3 if options.quick else 7
        program = os.path.join(folder, "program")
        if not os.path.exists(program):
            with open(program + ".c", "w", encoding="utf-8") as file:
                file.write(SOURCE)
            subprocess.run(["gcc", "-O2", "-fno-inline", "-o", program, program + ".c"], check=True)
            subprocess.run(["gcc", "-O2", "-fno-inline", "-pg", "-o", program + "-pg", program + ".c"], check=True)
        self.program, self.tops = program, str(max(events // EVENTS_OF_TOP, 1))
        shutil.rmtree(self.path, ignore_errors=True)
        subprocess.run([self.contrail, "record", "-q", "-o", self.path, "--", program, self.tops], check=True, capture_output=True)
        self.info = json.loads(run([self.contrail, "info", "--json", self.path]).stdout)
        self.index = os.path.join(self.path, "spans.cti")

    def ask(self, query):
        return [self.contrail, "sql", "--json", self.path, query]

    def forget(self):
        if os.path.exists(self.index):
            os.unlink(self.index)

    def places(self):
        """A moment in the middle and a call there, that the questions are about."""
        rows = json.loads(run(self.ask("SELECT max(start) / 2 AS t FROM spans WHERE function = 'main' OR depth = 3")).stdout)
        at = rows[0]["t"] or 0
        call = json.loads(run(self.ask(f"SELECT id FROM spans WHERE function = 'top' AND start >= {at} LIMIT 1")).stdout)
        return {"t": at, "id": call[0]["id"]}

    def alone(self, query):
        """In a session: many times less once, each."""
        many = 20
        once, often = (timed(self.ask(";".join([query] * n)), self.turns) for n in (1, 1 + many))
        return max(often - once, 0) / many


def uftrace(trace, folder):
    if shutil.which("uftrace") is None:
        print("uftrace is not installed: nothing to compare with")
        return None
    data = os.path.join(folder, "uftrace.data")
    tops = str(min(int(trace.tops), 1000000 // EVENTS_OF_TOP))  # its files are some fifty times as large
    shutil.rmtree(data, ignore_errors=True)
    run(["uftrace", "record", "-d", data, trace.program + "-pg", tops], cwd=folder)
    events = int(tops) * EVENTS_OF_TOP
    size = sum(os.path.getsize(os.path.join(data, name)) for name in os.listdir(data))
    result = {"events": events, "bytes_per_event": size / events}
    for name, words in {"report": ["report"], "graph": ["graph"]}.items():
        result[name + "_ms"] = timed(["uftrace", *words, "-d", data], trace.turns)
        print(f"  uftrace {name:8} {result[name + '_ms']:9.1f} ms of {events:,} events: {events / result[name + '_ms'] / 1000:6.1f} M events/s")
    return result


def duckdb(trace, folder):
    """The same questions, to tables that were exported; None: it is not to be had."""
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, "@duckdb/node-api"]
    if not all(map(shutil.which, ("npm", "node"))) or subprocess.run(npm, capture_output=True, check=False).returncode != 0:
        print("DuckDB is not to be had from npm: nothing to compare with")
        return None
    tables, script = os.path.join(folder, "tables"), os.path.join(folder, "ask.mjs")
    with open(script, "w", encoding="utf-8") as file:
        file.write(DUCKDB)
    shutil.rmtree(tables, ignore_errors=True)
    export = timed([trace.contrail, "export", "--to", "parquet", "-o", tables, trace.path], 1)
    names = {name: f"'{tables}/{name}.parquet'" for name in ("spans", "functions")}
    questions = [query.format(**names, **trace.places()) for query in DUCKDB_QUESTIONS.values()]
    times = [float(line) for line in run(["node", script, *questions]).stdout.split()]
    size = sum(os.path.getsize(os.path.join(tables, name)) for name in os.listdir(tables))
    print(f"\nDuckDB over the exported Parquet, of {trace.info['events']:,} events: {size:,} bytes, exported in {export:.0f} ms")
    for name, ms in zip(DUCKDB_QUESTIONS, times):
        print(f"  {name:30} {'':10} {ms:7.2f} ms")
    return {"export_ms": export, "bytes": size, "alone_ms": dict(zip(DUCKDB_QUESTIONS, times))}


def measure(trace):
    events, size = trace.info["events"], trace.info["bytes"]
    trace.forget()
    first, first_spent = timed_both(trace.ask(QUESTIONS["totals per function"]), 3, trace.forget)
    made = os.path.exists(trace.index)
    index = os.path.getsize(trace.index) if made else 0
    print(f"\n{events:,} events, {size:,} bytes; the first question {first:.1f} ms"
          + (f" ({events / first_spent / 1000:.1f} M events/s and core), index {index:,} bytes, {100 * index / size:.1f} %" if made else ", no index is kept"))
    print(f"  {'':30} {'command':>10} {'alone':>10}")
    places = trace.places()
    result = {"events": events, "bytes": size, "first_ms": first, "first_processor_ms": first_spent, "index_bytes": index, "questions": {}}
    for name, query in QUESTIONS.items():
        query = query.format(**places)
        command, alone = timed(trace.ask(query), trace.turns), trace.alone(query)
        result["questions"][name] = {"command_ms": command, "alone_ms": alone}
        print(f"  {name:30} {command:7.1f} ms {alone:7.2f} ms")
    report = [trace.contrail, "report", "--json", trace.path]
    with_index = timed(report, trace.turns)
    without, without_spent = timed_both(report, 3 if events > 5e7 else trace.turns, trace.forget)
    result["report_ms"], result["report_processor_ms"], result["report_indexed_ms"] = without, without_spent, with_index
    print(f"  {'report, with the index':30} {with_index:7.1f} ms\n  {'report, without':30} {without:7.1f} ms   {events / without_spent / 1000:.1f} M events/s and core")
    result["views"] = {}
    never = dict(os.environ, CONTRAIL_TEST_INDEX_EVENTS=str(10**15))
    run([trace.contrail, *VIEWS["graph"], trace.path])
    for name, words in VIEWS.items():
        words = [trace.contrail, *words, "--json", trace.path]
        with_index = timed(words, trace.turns)
        kept = trace.index + ".kept"
        if os.path.exists(trace.index):
            os.rename(trace.index, kept)
        without, without_spent = timed_both(words, 1 if events > 5e7 else trace.turns, env=never)
        if os.path.exists(kept):
            os.rename(kept, trace.index)
        result["views"][name] = {"indexed_ms": with_index, "ms": without, "processor_ms": without_spent}
        print(f"  {name:30} {with_index:7.1f} ms, without the index {without:7.1f} ms   {events / without_spent / 1000:.1f} M events/s and core")
    memory = re.search(r"(\d+)$", run(["/usr/bin/time", "-f", "%M", *report]).stderr.strip())
    result["report_kib"] = int(memory.group(1))
    print(f"  {'memory of the report':30} {result['report_kib'] / 1024:7.1f} MiB")
    return result


def queries(options, folder):
    sizes = [options.events] if options.events else [1_000_000] if options.quick else [1_000_000, 10_000_000]
    results = []
    for events in sizes:
        trace = Trace(options, folder, events)
        if events >= LONG:
            return [questions.table(trace)]
        results.append(measure(trace))
    results.append({"duckdb": duckdb(trace, folder) if trace.info["events"] < 1e8 else None})
    results.append({"uftrace": uftrace(trace, folder)})
    return results
