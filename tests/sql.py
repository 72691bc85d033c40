#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SQL over traces, and the index behind it: queries at random give what a real table of SQLite gives that was filled from the
whole replay; the sums of functions, edges and threads are those of the spans; an index that is damaged, of another trace, cut,
or that cannot be written changes no answer, nor does a trace that grows or was cut.

    tests/sql.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import time

import harness
from filters import OWN, THROWS
from harness import NO_LOADER, Running, Skip, case, expect, main, need, need_root, wait_for
from processes import state_of
from sqlqueries import ANSWERED, BOUNDED, COLUMNS, COUNTED, query

QUERIES = 200
HEADER_BYTES = 128  # of a block
HIDDEN = ("function_id",)  # of these only WHERE is asked: replay does not tell functions of one name apart
LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
static volatile long sum;
#define LEAF(n) __attribute__((noinline)) void leaf##n(long x) { sum += x * n; }
LEAF(1) LEAF(2) LEAF(3) LEAF(5)
__attribute__((noinline)) void slow(long x) { for (volatile int i = 0; i < 20000; i++) { } sum += x; }
__attribute__((noinline)) void mid(long x) { leaf1(x); leaf2(x); if (x & 1) leaf3(x); if (x % 5000 == 0) slow(x); }
__attribute__((noinline)) void deep(long n) { if (n > 0) deep(n - 1); leaf5(n); }
__attribute__((noinline)) void chunk(long from, long to) { for (long i = from; i < to; i++) mid(i); deep(from % 300); }
int main(int c, char **v) {
  long n = atol(v[1]);
  for (long i = 0; i < n; i += 10000) { chunk(i, i + 10000 < n ? i + 10000 : n); if (c > 2) { fflush(stdout); } }
  return 0;
}
"""


class Scene(harness.Scene):
    def sql(self, query, *traces, status=0):
        out = self.run(self.contrail, "sql", "--json", *(traces or [self.trace]), query, status=status)
        return json.loads(out) if status == 0 else out

    def own(self, text, *words, name="own.c"):
        program = self.compile(self.write(name, text), "-O1", "-g", "-fno-inline", "-pthread", name="program-" + name,
                               compiler="g++" if name.endswith(".cc") else "gcc")
        shutil.rmtree(self.trace, ignore_errors=True)
        self.record("-q", *(() if self.options.long else NO_LOADER), *words, "--", program)

    def spans(self, trace=None, process=None):
        """Rows as those of the table, from the replay alone."""
        info = self.info(trace and trace.split("@")[0].split("#")[0]) if process is None else {"pid": process}
        rows, stacks = {}, {}
        for line in self.lines("--limit", "0", trace=trace):
            kind, where = line.get("kind"), (line.get("tid"), line.get("stack"))
            stack = stacks.setdefault(where, [])
            if kind == "exec":
                for frames in stacks.values():
                    frames.clear()
            if kind == "tail" and stack and line["duration_ns"] is not None:
                rows[stack.pop()]["duration"] = line["duration_ns"]
            if kind in ("enter", "tail", "point"):
                row = dict(id=int(line["id"]), parent_id=line["parent"] and int(line["parent"]), tid=line["tid"],
                           process=info["pid"], function=line["name"], module=line["module"], start=line["ts_ns"],
                           duration=None, depth=line["depth"], stack=line["stack"])
                expect(row["id"] not in rows, f"two calls have the id {row['id']}")
                rows[row["id"]] = row
                if kind != "point":
                    stack.append(row["id"])
            elif kind in ("return", "left") and line["id"] is not None:
                rows[int(line["id"])]["duration"] = line["duration_ns"]
                expect(stack and stack[-1] == int(line["id"]), f"{line} does not end the innermost call")
                stack.pop()
        return list(rows.values())


def database(rows):
    db = sqlite3.connect(":memory:")
    columns = COLUMNS + HIDDEN
    db.execute(f"CREATE TABLE spans({', '.join(columns)})")
    db.executemany(f"INSERT INTO spans VALUES({','.join('?' * len(columns))})", [[row[c] for c in columns] for row in rows])
    return db


def number_rows(scene, rows, traces):
    """Numbers of threads and functions, which replay does not have. None: several functions have that name."""
    threads = scene.sql("SELECT id, tid FROM threads", *traces)
    expect(len({row["tid"] for row in threads}) == len(threads), f"two threads with one number: {threads}")
    threads, functions = {row["tid"]: row["id"] for row in threads}, {}
    for row in scene.sql("SELECT id, name, module FROM functions", *traces):
        key = row["name"], row["module"]
        functions[key] = None if key in functions else row["id"]
    for row in rows:
        row.update(thread=threads[row["tid"]], function_id=functions[row["function"], row["module"]])


def number(value):
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def compare(scene, rows, traces=(), queries=None):
    seed = random.randrange(1 << 30)
    number_rows(scene, rows, traces or [scene.trace])
    queries = queries or scene.rounds(QUERIES // 2, QUERIES)
    lots, db = random.Random(seed), database(rows)
    texts = [query(lots, rows) for _ in range(queries)] + list(COUNTED + ANSWERED + BOUNDED)
    out = scene.run(scene.contrail, "sql", "--json", *(traces or [scene.trace]), ";\n".join(texts))
    answers, decoder, at = [], json.JSONDecoder(), 0
    while at < len(out.rstrip()):
        answer, at = decoder.raw_decode(out, at)
        answers.append(answer)
        at += 1
    expect(len(answers) == len(texts), f"seed {seed}: {len(answers)} answers")
    for text, answer in zip(texts, answers):
        cursor = db.execute(text)
        want = [dict(zip([c[0] for c in cursor.description], row)) for row in cursor]
        got = [{k: number(v) for k, v in row.items()} for row in answer]
        expect(got == want, f"seed {seed}: {text}: {str(got)[:300]} for {str(want)[:300]}")
    return f"seed {seed}, {len(rows):,} calls"


def compare_sums(scene, *traces):
    """Functions, edges and threads against the spans."""
    sums = {row["function_id"]: row for row in scene.sql(
        "SELECT function_id, sum(calls) AS calls, sum(self) AS self FROM spans WHERE coalesce(flags, '') NOT LIKE '%before%' "
        "GROUP BY function_id", *traces)}
    for row in scene.sql("SELECT id, name, calls, self FROM functions WHERE calls > 0", *traces):
        want = sums.pop(row["id"], {"calls": 0, "self": None})
        expect(row["calls"] == want["calls"], f"{row} for {want}")
        # Each span's ticks are rounded to ns by themselves.
        expect(abs((row["self"] or 0) - (want["self"] or 0)) <= want["calls"], f"{row} for {want}")
    expect(not sums, f"functions has no row for {list(sums.values())[:3]}")
    edges = {(row["caller_id"], row["callee_id"]): row["calls"] for row in scene.sql(
        "SELECT caller_id, callee_id, calls FROM edges", *traces)}
    expect(sum(edges.values()) == scene.sql("SELECT sum(calls) AS n FROM spans", *traces)[0]["n"], "edges have other calls")


def compare_threads(scene, *traces):
    """Threads against the spans; and the selves of a thread are the durations of its outermost calls."""
    sums = {row["thread"]: row for row in scene.sql(
        "SELECT thread, count(*) AS n, sum(self) AS self, sum(CASE WHEN parent_id IS NULL THEN duration END) AS roots, "
        "sum(duration IS NULL) AS ends FROM spans GROUP BY thread", *traces)}
    for row in scene.sql("SELECT id, events, lost FROM threads", *traces):
        want = sums.pop(row["id"], {"n": 0, "ends": 1})
        expect(row["lost"] == 0 and row["events"] >= want["n"], f"{row} for {want}")
        expect(want["ends"] or abs(want["self"] - want["roots"]) <= 2 * want["n"], f"selves are not their roots': {want}")
    expect(not sums, f"threads has no row for {list(sums.values())[:3]}")


@case
def threads_longjmp_tails(scene):
    scene.own(OWN)
    rows = scene.spans()
    compare_sums(scene)
    compare_threads(scene)
    return compare(scene, rows)


@case
def either(scene):
    """OR reads a table once for each side, each by another way: no row is dropped for one that was found otherwise, and none comes twice."""
    scene.own(OWN)
    middle = scene.sql("SELECT avg(start) AS t FROM spans")[0]["t"]
    for table, one, other in (("spans", f"start < {int(middle)}", "depth >= 2"), ("spans", "reason = 'returned'", "duration < 1000"),
                              ("events", "thread = 0", "(thread = 1 AND type = 'enter')")):
        both, plain = scene.sql(f"SELECT count(*) AS n FROM {table} WHERE {one} OR {other}"), scene.sql(
            f"SELECT sum(({one}) IS TRUE OR ({other}) IS TRUE) AS n, sum(({one}) IS TRUE) AS one FROM {table}")
        expect(both[0]["n"] == plain[0]["n"] > plain[0]["one"] > 0, f"{table}: {one} OR {other}: {both}, one by one {plain}")


@case(some=("dear", 2))
def exceptions(scene):
    scene.own(THROWS, name="throws.cc")
    rows = scene.spans()
    compare_sums(scene)
    compare_threads(scene)
    return compare(scene, rows)


@case
def coroutines(scene):
    program = scene.compile("fixtures/coroutines.c", "-O1", "-fno-inline", "-pthread", f"-DTURNS={scene.rounds(300, 1000)}")
    scene.record("-q", "--", program)
    rows = scene.spans()
    expect(len({row["stack"] for row in rows}) > 2, "all on one stack")
    times = sorted(row["start"] for row in rows)
    for share in (0.3, 0.6):
        compare_ids(scene, f"{scene.trace}@{times[int(len(times) * share)]}ns..{times[int(len(times) * (share + 0.2))]}ns", rows)
    compare_sums(scene)
    return compare(scene, rows)


@case
def children(scene):
    """A family is one database; ids are those of each process."""
    program = scene.path("family")
    subprocess.run(["gcc", "-O1", "-fno-inline", "-pthread", "-o", program, scene.write("family.c", OWN)], check=True)
    scene.record("-q", "--follow", "--", program, "more")
    processes = scene.sql("SELECT pid, path FROM processes")
    expect(len(processes) == 3, str(processes))
    per_process = {row["process"]: row["n"] for row in scene.sql("SELECT process, count(*) AS n FROM spans GROUP BY process")}
    for process in processes:
        expect(len(scene.spans(process["path"], process["pid"])) == per_process[process["pid"]], str(process))
    ids = scene.sql("SELECT count(*) AS n, count(DISTINCT id) AS d FROM spans")[0]
    expect(ids["n"] == ids["d"], f"ids are not unique: {ids}")
    compare_sums(scene)
    begin, end = scene.sql("SELECT min(middle) AS a, max(middle) AS b FROM (SELECT CAST(avg(start) AS INTEGER) AS middle FROM spans "
                           "WHERE function = 'slow' GROUP BY process)")[0].values()
    inside = "SELECT process, count(*) AS n, min(id) AS a, max(id) AS b FROM spans WHERE start > {} AND start < {} GROUP BY process"
    want = scene.sql(inside.format(begin, end))
    got = scene.sql(inside.format(begin, end), f"{scene.trace}@{begin}ns..{end}ns")
    expect(got == want and len(want) == 3, f"the processes of a piece: {got}, not {want}")


@case
def sampled(scene):
    scene.own(OWN, "--mode", "light", "--sample", "4")
    return compare(scene, scene.spans())


NOISY = r"""
static volatile long sum;
__attribute__((noinline)) void leaf(long x) { sum += x; }
__attribute__((noinline)) void mid(long x) { leaf(x * 5); if (x & 64) leaf(x * 7); }
__attribute__((noinline)) void outer(long n) { for (long x = 88172645463325252; n > 0; n--) { x ^= x << 13; x ^= (unsigned long)x >> 7; x ^= x << 17; mid(x); } }
int main(void) { outer(200000); return 0; }
"""


def stretch(scene, *words):
    """What is left of a long run of calls whose arguments cannot be packed: the first frames are those that were open there."""
    program = scene.path("noisy")
    subprocess.run(["gcc", "-O1", "-o", program, scene.write("noisy.c", NOISY)], check=True)
    scene.record("-q", "--args", *words, "--", program)
    rows = scene.spans()
    before = scene.sql("SELECT function FROM spans WHERE flags LIKE '%uncounted%'")
    expect({"function": "main"} in before, str(before[:3]))
    expect(rows[0]["start"] > 0 and len(rows) < 400000, f"all of it: {len(rows):,} calls")
    times = sorted(row["start"] for row in rows)
    piece = f"{scene.trace}@{times[len(times) // 2]}ns..{times[len(times) // 2 + 1000]}ns"
    expect(compare_ids(scene, piece, rows) > 1, "no call began before the piece")
    return compare(scene, rows, queries=scene.rounds(QUERIES // 4, QUERIES // 2))


@case(some=("stretch", 1))
def last(scene):
    return stretch(scene, "--last", "1M")


@case(some=("stretch", 1))
def bounded(scene):
    return stretch(scene, "--max-size", "1M")


@case
def answered(scene):
    """Whatever sums and extremes ask of spans is answered by the index, and what is none of these is asked of spans."""
    scene.own(OWN)
    for text in ANSWERED:
        plan = [row["detail"] for row in scene.sql("EXPLAIN QUERY PLAN " + text)]
        read = [line for line in plan if "SCAN spans" in line]
        expect(all(line[-1] in "LAZBY" for line in read) and (read or "_sums VIRTUAL" in str(plan)), f"{text}: {plan}")
    for text in ("SELECT count(*), sum(start) FROM spans", "SELECT function, count(*) FROM spans", "SELECT count(*) FROM spans WHERE depth > 1",
                 "SELECT count(DISTINCT function) FROM spans", "SELECT count(*) FROM spans, functions", "SELECT count(*) FROM spans s",
                 "SELECT module, count(*) FROM spans GROUP BY function", "SELECT count(*) FROM spans -- all of them",
                 "SELECT count(*) AS calls FROM spans GROUP BY function HAVING calls > 1", "SELECT max(start) FROM spans WHERE tid = 1",
                 "SELECT max(start) FROM spans WHERE start > 1 OR start < 5", "SELECT sum(duration + 1) FROM spans",
                 "SELECT count(*) OVER () FROM spans", "SELECT max(start, 1) FROM spans"):
        plan = [row["detail"] for row in scene.sql("EXPLAIN QUERY PLAN " + text)]
        expect("_sums" not in str(plan) and any(" VIRTUAL TABLE INDEX" in line and line[-1] not in "AZBY" for line in plan), f"{text}: {plan}")
    out = scene.run(scene.contrail, "sql", "--csv", scene.trace, "SELECT count( * ), 'a;b' FROM spans ; SELECT \"function\", COUNT(*) c "
                    "FROM spans GROUP BY 1 LIMIT 1")
    expect(out.startswith("count( * ),'a;b'"), out)


@case
def two_traces(scene):
    scene.own(OWN)
    first, second = scene.trace, scene.path("second")
    os.rename(first, second)
    scene.own(THROWS, name="throws.cc")
    both = scene.sql("SELECT count(*) AS n, count(DISTINCT id) AS d, count(DISTINCT process) AS p FROM spans", scene.trace, second)[0]
    one = [scene.sql("SELECT count(*) AS n FROM spans", trace)[0]["n"] for trace in (scene.trace, second)]
    expect(both == {"n": sum(one), "d": sum(one), "p": 2}, f"{both} for {one}")


def compare_ids(scene, piece, whole):
    """Calls of a piece have the ids that they have in the whole, those too that were open before it."""
    want = {row["id"]: row for row in whole}
    count = 0
    for row in scene.sql("SELECT id, function, depth, stack, parent_id, flags FROM spans", piece):
        own = want.get(number(row["id"]), {"function": "none"})
        same = all(row[key] == own.get(key) for key in ("function", "depth", "stack"))
        # The outer frames of a stack that the thread was not on are not known in a piece.
        expect(same and (row["parent_id"] is None or number(row["parent_id"]) == own["parent_id"]), f"{piece}: {row} is {own}")
        count += "before" in (row["flags"] or "")
    return count


def compare_piece(scene, piece, whole):
    """A piece in a trace's name: its spans are the replay's, its sums the report's."""
    rows = scene.spans(piece)
    compare_ids(scene, piece, whole)
    expect(rows or scene.sql("SELECT * FROM spans", piece) == [], f"{piece}: calls in an empty piece")
    note = compare(scene, rows, traces=[piece], queries=20) if rows else "nothing"
    report = json.loads(scene.run(scene.contrail, "report", "--json", "--limit", "0", piece))
    want = sorted([row["module"], row["name"], row["calls"], row["total_ns"] or 0, row["self_ns"] or 0] for row in report["functions"])
    got = sorted([row["module"], row["name"], row["calls"], number(row["total"] or 0), number(row["self"] or 0)] for row in scene.sql(
        "SELECT f.module, name, f.calls, total, self FROM functions AS f WHERE id IN (SELECT function_id FROM spans)", piece))
    expect(got == want, f"{piece}: functions {[row for row in got if row not in want][:3]}, not {[row for row in want if row not in got][:3]}")
    threads = {(row["tid"], row["events"]) for row in report["threads"] if row["events"]}
    got = {(row["tid"], row["events"]) for row in scene.sql("SELECT tid, events FROM threads", piece) if row["events"]}
    expect(got == threads, f"{piece}: threads {got}, not {threads}")
    calls = scene.sql("SELECT sum(calls) AS n FROM spans", piece)[0]["n"] or 0
    edges = sum(row["calls"] for row in scene.sql("SELECT calls FROM edges", piece))
    expect(edges == calls, f"{piece}: edges have {edges} calls, spans {calls}")
    lines = scene.lines("--limit", "0", trace=piece)
    output = scene.sql("SELECT time FROM output", piece)
    expect([row["time"] for row in output] == [line["ts_ns"] for line in lines if line["kind"] == "output"], f"{piece}: output {output}")
    return note


@case
def pieces(scene):
    """TRACE@FROM..TO and TRACE#TID, and both: nothing else is in the tables."""
    scene.own(OWN)
    seed = random.randrange(1 << 30)
    lots, whole = random.Random(seed), scene.spans()
    times, tids = sorted(row["start"] for row in whole), sorted({row["tid"] for row in whole})
    expect(len(tids) > 1, "one thread")
    for n in range(4):
        first, last = sorted(lots.sample(times, 2))
        piece = f"{scene.trace}@{first}ns..{last}ns" if n else f"{scene.trace}@{first}ns.."
        compare_piece(scene, piece + (f"#{lots.choice(tids)}" if n == 3 else ""), whole)
    for tid in tids:
        note = compare_piece(scene, f"{scene.trace}#{tid}", whole)
        rows = scene.sql("SELECT DISTINCT tid FROM events", f"{scene.trace}#{tid}")
        expect(rows == [{"tid": tid}], str(rows))
    both = scene.sql("SELECT count(*) AS n, count(DISTINCT id) AS d FROM spans", *(f"{scene.trace}#{tid}" for tid in tids))
    expect(both == [{"n": len(whole), "d": len(whole)}], f"{both}, {len(whole)} calls")
    for name, status in (("@5", 2), ("@x..", 2), ("@2..1", 2), ("#7777777", 2)):
        result = scene.execute(scene.contrail, "sql", scene.trace + name, "SELECT 1")
        expect(result.returncode == status and result.stderr.count("\n") == 1 and not result.stdout, str(result))
    return note


VALUES = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <pthread.h>
__attribute__((noinline)) double mix(int n, const char *text, double d, unsigned long long big) { return n + d + text[0] + (double)big; }
static double sum;
static void *run(void *a) {
  for (int i = 0; i < 20; i++) { sum += mix(i, "text", i / 4.0, 0xffffffffffffff00ull); open("/nowhere", O_RDWR | O_CLOEXEC); }
  return a;
}
int main(void) {
  int f[2];
  char b[8];
  pthread_t t;
  run(0);
  pthread_create(&t, 0, run, 0); pthread_join(t, 0);
  if (pipe(f) == 0 && write(f[1], "abc", 3) == 3 && read(f[0], b, sizeof(b)) == 3) return getenv("NOWHERE") != 0;
  return 1;
}
"""


def values_of(line):
    """What a line of replay has of values, as rows: kind, number, name, type, raw, value, text."""
    def signed(word):
        return word - (1 << 64) if word >> 63 else word

    def typed(kind, place, item):
        raw = item.get("raw")
        raw = None if raw is None else signed(int(raw[0] if isinstance(raw, list) else raw, 16))
        value = item.get("value", raw)
        value = json.dumps(value, separators=(",", ":")) if isinstance(value, (list, dict)) else value
        return kind, place, item.get("name") or None, item.get("type"), raw, number(value), item.get("error", item.get("text"))

    def register(name, word):
        return "register", None, name, None, signed(int(word, 16)), signed(int(word, 16)), None

    rows = [typed("argument", n, item) for n, item in enumerate(line.get("arguments", []), 1) if "raw" in item]
    if "raw" in line.get("returned", {}):
        rows.append(typed("result", None, line["returned"]))
    rows += [typed("filled", None, item) for item in line.get("returned", {}).get("filled", [])]
    detail = line.get("detail")
    if detail:
        rows += [register(name, word) for name, word in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10"), detail["registers"])]
        rows += [register("rsp", detail["sp"]), register("rbp", detail["bp"]), register("return_address", detail["return_address"])]
        rows += [register(f"xmm{n}", word) for n, word in enumerate(detail.get("vectors", []))]
        rows += [("stack", None, None, None, None, None, detail["stack"])] if detail["stack"] else []
    rows += [register(name, word) for name, word in zip(("rax", "rdx", "xmm0", "xmm1"), line.get("results", []))]
    return rows


@case
def values(scene):
    """Arguments, results, registers: those of replay, with the detail lane and with the first two arguments alone."""
    count = 0
    for words in (("--detail", "mix", "--detail", "open", "--detail", "pipe", "--detail", "read", "--vectors"),
                  ("--args", "--trace", "mix", "--trace", "open", "--trace", "getenv")):
        scene.own(VALUES, *words, name="values.c")
        want = []
        for line in scene.lines("--limit", "0"):
            want += [(line["tid"], line["id"], line["ts_ns"], line["name"], line["depth"], *row) for row in values_of(line)]
        columns = "tid, id, time, function, depth, kind, number, name, type, raw, value, text"
        rows = scene.sql(f'SELECT {columns} FROM "values" WHERE coalesce(name, kind) != \'errno\'')
        got = [tuple(number(v) if k in ("id", "raw", "value") else v for k, v in row.items()) for row in rows]
        want, got = sorted(want, key=str), sorted(got, key=str)
        differs = next(((a, b) for a, b in zip(got, want) if a != b), (got[len(want):][:1], want[len(got):][:1]))
        expect(got == want, f"{words}: {len(got)} rows, not {len(want)}; the first that differs: {differs}")
        kinds = {row[5] for row in got}
        expect(kinds >= {"argument", "result"} and ("--args" in words or kinds >= {"filled", "register", "stack"}), str(kinds))
        one = scene.sql("SELECT id, thread, function_id FROM spans WHERE function = 'mix' ORDER BY id DESC LIMIT 1")[0]
        for where in (f"id = {one['id']}", f"thread = {one['thread']} AND kind = 'argument'", f"function_id = {one['function_id']}",
                      "function = 'open' AND kind = 'result'"):
            a = scene.sql(f'SELECT * FROM "values" WHERE {where}')
            slowly = re.sub("([a-z_]+) =", r"+\1 =", where)  # looked at row by row
            b = scene.sql(f'SELECT * FROM "values" WHERE {slowly}')
            expect(a == b and a, f"{where}: {len(a)} rows, {len(b)}")
        count += len(got)
    return f"{count:,} values"


@case(some=("dear", 2))
def blocks(scene):
    """Together they are the threads' events and files; of a bounded trace the first ones are gone."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    for words in ((), ("--max-size", "1M")):
        scene.record("-q", *words, "--", program, str(scene.rounds(6000000, 16000000)) if words else "2000000")
        rows = scene.sql("SELECT * FROM blocks ORDER BY id")
        events = {row["tid"]: row["events"] for row in scene.sql("SELECT tid, events FROM threads")}
        for tid, want in events.items():
            own = [row for row in rows if row["tid"] == tid]
            expect(sum(row["events"] for row in own) == want, f"{tid}: {own} for {want} events")
            for before, row in zip(own, own[1:]):
                expect(row["number"] == before["number"] + 1 and row["first_event"] == before["first_event"] + before["events"] and
                       row["start"] >= before["end"] >= before["start"], f"{before}, {row}")
        for name in {row["file"] for row in rows}:
            here = sum(row["bytes"] for row in rows if row["file"] == name)
            expect(os.path.getsize(scene.path(scene.trace, name)) == here + 64, f"{name}: {here} bytes of blocks")
        expect((rows[0]["number"] == 0) == (not words) and len(rows) > 20, f"{words}: {rows[:2]}")
        middle = rows[len(rows) // 2]
        piece = f"{scene.trace}@{middle['start'] + 1}ns..{middle['end'] - 1}ns"
        got = scene.sql(f"SELECT number FROM blocks WHERE tid = {middle['tid']}", piece)
        expect(got == [{"number": middle["number"]}], f"{piece}: {got}")
    return f"{len(rows)} blocks"


@case
def id_and_parent(scene):
    """Both asked of at once: of the call that has both, of no other."""
    scene.own(OWN)
    rows = [row for row in scene.spans() if row["parent_id"]]
    row, other = rows[len(rows) // 2], next(row for row in rows if row["parent_id"] != rows[len(rows) // 2]["parent_id"])
    for parent, want in ((row["parent_id"], 1), (other["parent_id"], 0)):
        for where in (f"id = {row['id']} AND parent_id = {parent}", f"parent_id = {parent} AND id = {row['id']}"):
            got = scene.sql(f"SELECT count(*) AS n FROM spans WHERE {where}")
            expect(got == [{"n": want}], f"{where}: {got}")


@case
def rowid(scene):
    """It is the call's id; where no call is looked at there is none, and that is said."""
    scene.own(OWN)
    row = scene.sql("SELECT id, rowid AS r FROM spans WHERE function = 'main'")
    expect(row and row[0]["id"] == row[0]["r"], str(row))
    result = scene.execute(scene.contrail, "sql", scene.trace, "SELECT function, max(rowid) FROM spans GROUP BY function")
    expect(result.returncode == 1 and "ask for id" in result.stderr, str(result))


@case
def function_ids(scene):
    """function_id is the same in all tables, and functions.id; atf_id is that of the export."""
    scene.own(OWN)
    rows = scene.sql("SELECT f.name, s.function, f.id, count(*) AS n FROM spans AS s JOIN functions AS f USING (function_id) GROUP BY s.function")
    expect(rows and all(row["name"] == row["function"] for row in rows), str(rows[:3]))
    expect(sum(row["n"] for row in rows) == scene.sql("SELECT count(*) AS n FROM spans")[0]["n"], "calls without a function")
    expect(scene.sql("SELECT count(*) AS n FROM functions WHERE id != function_id") == [{"n": 0}], "id and function_id differ")
    scene.run(scene.contrail, "export", "--to", "atf2", scene.trace, "-o", scene.path("atf"))
    exported = scene.sql("SELECT module, raw_name, atf_id FROM functions WHERE calls > 0 ORDER BY 1, 2, 3", scene.path("atf"))
    expect(exported == scene.sql("SELECT module, raw_name, atf_id FROM functions WHERE calls > 0 ORDER BY 1, 2, 3"), str(exported[:3]))


ASK = ("SELECT count(*) AS n, sum(self) AS s, max(duration) AS m FROM spans; SELECT name, calls, total, self, p99 FROM functions "
       "WHERE calls > 0 ORDER BY id; SELECT id, duration FROM spans ORDER BY duration DESC LIMIT 50; SELECT count(*) AS n FROM spans "
       "WHERE duration >= 20000; SELECT id, start FROM spans WHERE function = 'slow' AND start > 1000000 ORDER BY id; SELECT caller, "
       "callee, calls, total FROM edges ORDER BY id; SELECT count(*) AS n FROM spans WHERE parent_id = (SELECT id FROM spans WHERE "
       "function = 'main')")


@case
def joins(scene):
    """Calls with the calls that made them: what was read for one row is kept for the next, and each is the right one, whatever the way there."""
    scene.record("-q", "--", "seq", "3000")
    rows = scene.sql("SELECT id, parent_id, thread, function, duration, depth FROM spans")
    by = {row["id"]: row for row in rows}
    pairs = collections.Counter((by[row["parent_id"]]["function"], row["function"]) for row in rows if row["parent_id"] in by)
    expect(len(rows) > 5000 and len(pairs) > 20, f"{len(rows)} calls, {len(pairs)} pairs")
    named = collections.Counter(row["function"] for row in rows).most_common(2)[1][0]
    for where, wanted in (("", pairs), (f" AND c.function = '{named}'", {key: n for key, n in pairs.items() if key[1] == named}),
                          (f" AND p.function IN ('{named}', 'main', 'nobody')", {key: n for key, n in pairs.items() if key[0] in (named, "main")})):
        for order in ("spans c JOIN spans p", "spans p CROSS JOIN spans c", "spans c CROSS JOIN spans p"):
            found = scene.sql(f"SELECT p.function AS one, c.function AS other, count(*) AS n FROM {order} WHERE c.parent_id = p.id{where} GROUP BY 1, 2")
            expect({(row["one"], row["other"]): row["n"] for row in found} == dict(wanted), f"{order}{where}: {len(found)} pairs, not {len(wanted)}")
    return f"{len(rows)} calls, {len(pairs)} pairs"


@case(some=("dear", 2))
def index_file(scene):
    """Written once, used, and thrown away when it is not this trace's or was damaged."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    scene.record("-q", "--", program, str(scene.rounds(100000, 200000)))
    index = os.path.join(scene.trace, "spans.cti")

    def ask():
        return scene.run(scene.contrail, "sql", "--json", scene.trace, ASK)

    def report():
        return scene.run(scene.contrail, "report", "--json", scene.trace)

    before = report()
    expect(not os.path.exists(index), "report wrote an index, of which it has nothing")
    first = ask()
    expect(os.path.exists(index), "no index was written")
    expect(report() == before, "the report from the index is another one")
    expect(oct(os.stat(index).st_mode & 0o777) == "0o600", "others may read the index")
    expect(os.path.getsize(index) <= 0.06 * os.path.getsize(os.path.join(scene.trace, "thread_0", "index.ctb")) + 65536,
           f"{os.path.getsize(index)} bytes of index")
    expect(ask() == first, "the index answers otherwise than the trace")
    seed = random.randrange(1 << 30)
    lots = random.Random(seed)
    with open(index, "rb") as file:
        whole = file.read()
    for n in range(scene.rounds(8, 60)):
        data = bytearray(whole)
        if n % 4 == 3:
            data = data[:lots.randrange(len(data))]
        else:
            data[lots.randrange(len(data)) if n % 4 else lots.randrange(400)] ^= 1 << lots.randrange(8)
        with open(index, "wb") as file:
            file.write(data)
        if n % 2:
            expect(report() == before, f"seed {seed}, {n}: a damaged index changes the report")
        result = scene.execute(scene.contrail, "sql", "--json", scene.trace, ASK)
        expect(result.stdout == first, f"seed {seed}, {n}: a damaged index changes the answer")
        expect("it was made again" in result.stderr, f"seed {seed}, {n}: {result.stderr}")
        expect(scene.execute(scene.contrail, "sql", "--json", scene.trace, ASK).stderr == "", "it is made again and again")
    os.unlink(index)
    os.mkdir(index)
    expect(ask() == first, "a directory in its place")
    os.rmdir(index)
    os.symlink("/etc/passwd", index)
    expect(ask() == first, "a link in its place")
    return f"seed {seed}"


@case(some=("dear", 2))
def foreign_index(scene):
    """That of another trace of the same program, and a directory in which nothing can be written, change no answer."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    index, answers = [], []
    for name in ("one", "two"):
        scene.record("-q", "--", program, "400000")
        os.rename(scene.trace, scene.path(name))
        answers.append(scene.run(scene.contrail, "sql", "--json", scene.path(name), ASK))
        index.append(scene.path(name, "spans.cti"))
    shutil.copy(index[0], index[1])
    expect(scene.run(scene.contrail, "sql", "--json", scene.path("two"), ASK) == answers[1], "the index of another trace was believed")
    os.unlink(index[1])
    need_root()
    need("unshare")
    out = scene.run("unshare", "-m", "sh", "-c", 'mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" && exec "$1" sql --json "$2" "$3"',
                    "sh", scene.contrail, scene.path("two"), ASK)
    expect(out == answers[1] and not os.path.exists(index[1]), "another answer where no index can be written")


@case
def lost(scene):
    """Where events were lost: a call whose end is not known has no duration, as in the replay."""
    program = scene.compile("programs/losses.c", "-O2", "-g", "-pthread")
    scene.record("-q", "--ring-size", "1", "--no-wait", "--trace", "leaf", "--trace", "pair", "--no-args", "--", program, "100000")
    dropped = scene.info()["dropped"]
    if dropped == 0:
        raise Skip("contrail was fast enough: nothing was lost")
    return f"{dropped:,} events lost, {compare(scene, scene.spans(), queries=20)}"


def size(scene):
    """Of what is recorded of the first thread so far, in bytes."""
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    return os.path.getsize(path) if os.path.exists(path) else 0


@case(some=("dear", 2))
def grows(scene):
    """Queries while it is recorded; in the end the index that grew with it says what a fresh one does."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--", program, str(scene.rounds(700000, 1500000))])
    seen, taken, lots = [], {}, random.Random(4)
    some = "SELECT id, parent_id, function, start, duration, self, depth FROM spans WHERE "
    while recorder.poll() is None:
        if os.path.exists(os.path.join(scene.trace, "manifest.json")):
            result = subprocess.run([scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n, sum(self) AS s FROM spans; "
                                     f"SELECT sum(calls) AS n FROM functions; {some} flags IS NULL AND duration IS NOT NULL AND start > "
                                     f"{lots.randrange(10**8)} LIMIT 50"], capture_output=True, text=True)
            if result.returncode == 0 and result.stdout.strip():
                parts = [json.loads(part.strip("[]\n") and f"[{part.strip('[]' + chr(10))}]" or "[]") for part in result.stdout.split("]\n[")]
                seen.append(parts[0][0]["n"])
                taken.update({row["id"]: row for row in parts[2]})
        time.sleep(0.05)
    expect(recorder.returncode == 0, f"status {recorder.returncode}")
    expect(seen == sorted(seen), f"calls went away: {seen}")
    grown = scene.run(scene.contrail, "sql", "--json", scene.trace, ASK)
    for row in lots.sample(list(taken.values()), min(len(taken), 60)):
        whole = scene.sql(f"{some} id = {row['id']}")
        # How long a tick is gets known the better the longer it lasts.
        slack = {name: 2 + row[name] // 100000 if name in ("start", "duration", "self") else 0 for name in row}
        same = len(whole) == 1 and all(value == row[name] or slack[name] and abs(value - row[name]) <= slack[name] for name, value in whole[0].items())
        expect(same, f"{row} while it grew, {whole} then")
    index = os.path.join(scene.trace, "spans.cti")
    if os.path.exists(index):
        os.unlink(index)
    expect(scene.run(scene.contrail, "sql", "--json", scene.trace, ASK) == grown, "the index that grew differs from a fresh one")
    return f"{len(seen)} queries meanwhile, {len(taken)} calls of them compared"


STAYS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#define OWN __attribute__((noinline, noclone))
static volatile int ready;
OWN int leaf(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
OWN int work(int n) { return leaf(n) + leaf(n + 1); }
OWN int inner(int turns) { for (int i = 0; i < turns; i++) { work(i); } __sync_fetch_and_add(&ready, 1); while (turns) { usleep(1000); } return 0; }
OWN int outer(int turns) { return inner(turns) + 1; }
OWN void *thread(void *turns) { outer((int)(long)turns); return NULL; }
int main(void)
{
  pthread_t other;
  for (long i = 1; i <= 3; i++) { pthread_create(&other, NULL, thread, (void *)(i * 40000)); }
  while (ready < 3) { usleep(1000); }
  exit(work(1) == 7);
}
"""


@case
def open_frames(scene):
    """What is open at the end: the view has what a look at every call has, and of the trace only its last blocks are read."""
    program = scene.compile(scene.write("stays.c", STAYS), "-O1", "-pthread")
    scene.record("-q", "--", program)
    every = "SELECT * FROM spans WHERE flags || '' LIKE 'unfinished%'"  # no condition on the column: nothing is left out
    whole = scene.sql(every)
    names = [row["function"] for row in whole]
    expect(names.count("outer") == names.count("inner") == 3, names)
    expect(scene.sql("SELECT * FROM open_frames") == whole, "the view has others")
    for thread in {row["thread"] for row in whole}:
        expect(scene.sql(f"SELECT * FROM open_frames WHERE thread = {thread}") == [row for row in whole if row["thread"] == thread], "of a thread")
    expect(scene.sql("SELECT * FROM spans WHERE flags LIKE 'UNFINISHED%'") == whole, "LIKE knows no case")
    expect(not scene.sql("SELECT * FROM spans WHERE flags LIKE 'unfinishe'"), "not that word")
    thread = max(range(4), key=lambda number: os.path.getsize(os.path.join(scene.trace, f"thread_{number}", "index.ctb")))
    path = os.path.join(scene.trace, f"thread_{thread}", "index.ctb")
    with open(path, "r+b") as file:  # what is not read may be anything
        data = file.read()
        ends = [64]
        while ends[-1] < len(data):
            ends.append(ends[-1] + HEADER_BYTES + struct.unpack_from("<I", data, ends[-1] + 16)[0])
        expect(len(ends) > 4, f"{len(ends) - 1} blocks")
        file.seek(ends[1] + HEADER_BYTES)
        file.write(bytes(min(ends[2] - ends[1] - HEADER_BYTES, 1000)))
    expect(scene.sql("SELECT * FROM open_frames") == whole, "blocks in the middle are read")


@case
def half_written(scene):
    """The last block of a recording that goes on, when the recorder has written only a part of it: no damage. Bytes that are none are."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--", program, "3000000000"])
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    wait_for("some blocks", lambda: os.path.exists(path) and os.path.getsize(path) > 60000)
    recorder.kill()
    recorder.wait(60)
    os.kill(scene.manifest()["pid"], signal.SIGKILL)
    with open(path, "rb") as file:
        data = file.read()
    starts, at = [], 64
    while data[at:at + 4] == data[64:68]:
        starts.append(at)
        at += HEADER_BYTES + struct.unpack_from("<I", data, at + 16)[0]
    count = lambda: scene.execute(scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n FROM spans")
    last, end = starts[-2], starts[-1]
    os.truncate(path, last)
    before = count()
    expect("DAMAGED" not in before.stderr and "INCOMPLETE" in before.stderr, before.stderr)
    for more in (1, 20, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, (end - last) // 2, end - last - 1):
        with open(path, "wb") as file:
            file.write(data[:last + more])
        result = count()
        expect("DAMAGED" not in result.stderr and result.stdout == before.stdout, f"{more} bytes of a block: {result}")
        report = scene.execute(scene.contrail, "report", scene.trace)
        expect("DAMAGED" not in report.stderr, f"{more} bytes, report: {report.stderr}")
    with open(path, "wb") as file:
        file.write(data[:last] + b"\x55" * 500)
    expect("DAMAGED" in count().stderr, "bytes that are no block are not said")
    with open(path, "wb") as file:
        file.write(data[:starts[1] + 200] + b"\x55" * 50 + data[starts[1] + 250:])
    index = os.path.join(scene.trace, "spans.cti")
    if os.path.exists(index):  # it has what was there before
        os.unlink(index)
    expect("DAMAGED" in count().stderr, "damage before the end is not said")


@case
def overtaken(scene):
    """What is recorded after a query has begun is not read by it: a program that records faster than it reads would hold it for ever."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    query = [scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n FROM spans"]
    with Running([scene.contrail, "record", "-q", "-o", scene.trace, "--", program, "3000000000"]) as recorder:
        wait_for("events", lambda: size(scene) > 200000)
        with Running(query, env=dict(os.environ, CONTRAIL_TEST_POINT="index-limited"), stdout=subprocess.PIPE) as asked:
            wait_for("the query stands still", lambda: state_of(asked.pid) == "T")
            before = size(scene)
            wait_for("twice as many events", lambda: size(scene) > 2 * before)
            while asked.poll() is None:
                asked.send_signal(signal.SIGCONT)
                time.sleep(0.01)
            first = json.loads(asked.stdout.read())[0]["n"]
        after = scene.sql("SELECT count(*) AS n FROM spans")[0]["n"]
        expect(recorder.poll() is None, "the queries have ended with the recording only")
        recorder.terminate()
    expect(0 < 1.5 * first < after, f"{first} calls when it began, {after} after")
    return f"{first:,} calls, {after:,} after"


@case(some=("dear", 2))
def cut(scene):
    """A trace of which a thread's file was cut anywhere, with an index of the whole beside it: what the replay has of it."""
    program, said = scene.compile(scene.write("loop.c", LOOP), "-O1"), []
    scene.record("-q", "--", program, str(scene.rounds(20000, 50000)))
    scene.sql("SELECT count(*) FROM spans")
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    for _ in range(scene.rounds(2, 5)):
        os.truncate(path, random.randrange(os.path.getsize(path) // 2, os.path.getsize(path)))
        rows = scene.spans()
        if rows:
            said.append(compare(scene, rows, queries=scene.rounds(30, 70)))
        result = scene.execute(scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n FROM spans")
        expect("DAMAGED" in result.stderr, f"not said: {result.stderr}")
        expect(json.loads(result.stdout) == [{"n": len(rows)}], f"{result.stdout}, {len(rows)} calls")
    expect(said or not rows, "nothing was compared")  # the last cut may have been in the first block
    return "; ".join(said)


@case
def forms(scene):
    scene.own(OWN)
    limited = scene.execute(scene.contrail, "sql", "--csv", "--limit", "2", scene.trace, "SELECT 'a,\"b' AS x, 1 AS \"y z\" FROM spans")
    expect(limited.stdout == 'x,y z\n"a,""b",1\n"a,""b",1\n' and "more rows" in limited.stderr, str(limited))
    big = scene.sql("SELECT 9007199254740993 AS a, 5 AS b, NULL AS c, 1.5 AS d")
    expect(big == [{"a": "9007199254740993", "b": 5, "c": None, "d": 1.5}], str(big))
    alike = scene.sql("SELECT s.tid, t.tid, 7 AS tid_1, s.depth FROM spans s JOIN threads t ON t.id = s.thread LIMIT 1")
    expect(list(alike[0]) == ["tid", "tid_1", "tid_1_1", "depth"] and alike[0]["tid_1_1"] == 7, f"columns of one name: {alike}")
    expect(list(scene.sql("SELECT " + ", ".join(["1 AS a"] * 2000))[0]) == ["a", *(f"a_{n}" for n in range(1, 2000))], "2,000 columns of one name")
    endless = scene.sql("SELECT 1e999 AS a, -1e999 AS b, 1 AS c")
    expect(endless == [{"a": "Inf", "b": "-Inf", "c": 1}], str(endless))
    table = scene.run(scene.contrail, "sql", scene.trace, "SELECT name, 1 AS one FROM functions WHERE name = 'fib'")
    expect([line.split() for line in table.splitlines()] == [["name", "one"], ["fib", "1"]], table)
    piped = subprocess.run([scene.contrail, "sql", "--json", scene.trace], input="SELECT 1 AS a;\nSELECT 2 AS b", capture_output=True, text=True)
    expect(piped.returncode == 0 and piped.stdout == '[\n{"a":1}\n]\n[\n{"b":2}\n]\n', str(piped))
    median = scene.sql("SELECT percentile(column1, 50) AS p, duration_text(1500) AS d, demangle('_Z1fv') AS n FROM (VALUES(1),(2),(9))")
    expect(median == [{"p": 2.0, "d": "1.500 us", "n": "f()"}], str(median))


if __name__ == "__main__":
    main(__doc__, Scene)
