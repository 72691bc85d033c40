#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SQL in bounded memory: many processes, percentiles of many values, many of the longest calls; the same answers. What is refused.

    tests/sqlbounds.py [--filter PATTERN] [--build DIR]
"""
import json
import math
import os
import random
import resource
import sqlite3
import subprocess

from filters import OWN
from harness import NO_LOADER, case, expect, main
from processes import peak_kib
from sql import HEADER_BYTES, LOOP, Scene


TWIN = """static __attribute__((noinline)) long twin(long n) { __asm__ volatile("" ::: "memory"); return n; }
long OUTER(long n) { return twin(n) + 1; }
#ifdef MAIN
long other(long n);
int main(void) { for (long n = 0; n < 5; n++) other(n); for (long n = 0; n < 20; n++) outer(n); return 0; }
#endif
"""


@case
def one_of_two(scene):
    """A name that two functions have, and the id of one: a LIMIT is of its calls, not of both's."""
    source, program = scene.write("twin.c", TWIN), scene.path("twins")
    for name, words in (("main.o", ["-DOUTER=outer", "-DMAIN"]), ("other.o", ["-DOUTER=other"])):
        subprocess.run(["gcc", "-O1", "-c", "-o", scene.path(name), *words, source], check=True)
    subprocess.run(["gcc", "-o", program, scene.path("main.o"), scene.path("other.o")], check=True)
    scene.record("-q", "--", program)
    ids = scene.sql("SELECT function_id AS f, count(*) AS n FROM spans WHERE function = 'twin' GROUP BY f ORDER BY n")
    expect([row["n"] for row in ids] == [5, 20], str(ids))
    for way in ("", " DESC"):
        for row in ids:
            got = scene.sql(f"SELECT start FROM spans WHERE function = 'twin' AND function_id = {row['f']} ORDER BY start{way} LIMIT 8")
            expect(len(got) == min(row["n"], 8), f"{got} of {row}")


@case
def compared(scene):
    """Text that is a number, a fraction that is none, text that is no number, names without case: compared as with a table of SQLite's own."""
    scene.own(OWN)
    rows = scene.sql("SELECT id, thread, depth, start, duration, \"end\", function, function_id FROM spans")
    row = rows[len(rows) // 2]
    columns = list(row)
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE spans(" + ", ".join(f'"{name}" {"TEXT" if name == "function" else "INTEGER"}' for name in columns) + ")")
        db.executemany(f"INSERT INTO spans VALUES({','.join('?' * len(columns))})", [[int(row["id"])] + list(row.values())[1:] for row in rows])
        texts = [f'"{name}" {sign} {value}' for name in columns if name != "function" for sign in ("=", "<", ">=", "IN")
                 for value in (f"('{row[name]}')", f"('{row[name]}.0')", f"({row[name]}.0)", f"({row[name]}.5)", "(' 7 ')", "('x')", "(x'31')", "(NULL)")
                 if name != "id" or "." not in value]
        texts += [f"function = '{row['function'].upper()}' COLLATE NOCASE", "function = 'MAIN' COLLATE NOCASE AND depth >= 0"]
        wanted = [db.execute(f"SELECT count(*) + count(duration) FROM spans WHERE {text}").fetchone()[0] for text in texts]
    asked = ";".join(f"SELECT count(*) + count(duration) AS n FROM spans WHERE {text}" for text in texts)
    got = [int(line) for line in scene.run(scene.contrail, "sql", "--csv", scene.trace, asked).split() if line != "n"]
    wrong = [(text, n, want) for text, n, want in zip(texts, got, wanted) if n != want]
    expect(len(got) == len(texts) and not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:5]}")
    events = [scene.sql(f"SELECT count(*) AS n FROM events WHERE thread = {thread}") for thread in ("0", "'0'", "0.0")]
    names = [scene.sql(f"SELECT count(*) AS n FROM functions WHERE id = {number}") for number in ("3", "'3'", "3.0")]
    expect(events[0] == events[1] == events[2] != [{"n": 0}] and names == [[{"n": 1}]] * 3, f"{events}, {names}")
    return f"{len(texts)} conditions"


BEGINS = """
#include <pthread.h>
static volatile long sum;
#define OWN __attribute__((noinline, noclone))
OWN void leaf(long n) { sum += n; }
OWN void deep(long n) { if (n > 0) deep(n - 1); leaf(n); }
OWN void piece(long n) { for (long i = 0; i < 3000; i++) { leaf(i); if (i % 100 == 0) deep(n % 40); } }
OWN void *thread(void *arg) { for (long i = 0; i < (long)arg; i++) piece(i); return arg; }
int main(void) {
  pthread_t other;
  pthread_create(&other, 0, thread, (void *)12);
  thread((void *)36);
  return pthread_join(other, 0);
}
"""


@case
def begun(scene):
    """How many calls began in a time, which is known without a look at most of them: what a look at each says, wherever the time begins and ends."""
    scene.record("-q", *NO_LOADER, "--", scene.compile(scene.write("begins.c", BEGINS), "-O1", "-pthread"))
    rows = scene.sql("SELECT start, thread FROM spans")
    seed = random.randrange(1 << 30)
    lots, last = random.Random(seed), max(row["start"] for row in rows)
    asked = []
    for n in range(scene.rounds(60, 200)):
        low, high = sorted(lots.choice([lots.choice(rows)["start"], lots.randrange(last)]) for _ in range(2))
        where = lots.choice(["{c} BETWEEN {a} AND {b}", "{c} >= {a} AND {c} < {b}", "{c} > {a}", "{c} <= {b}", "{c} > {a}.5 AND {c} < {b}.5"])
        of = lots.choice(["", f" AND thread = {lots.choice(rows)['thread']}"])
        asked += [f"SELECT count(*) AS n FROM spans WHERE {where.format(a=low, b=high, c=column)}{of}" for column in ("start", "+start")]
    answers = [json.loads(text)[0]["n"] for text in scene.run(scene.contrail, "sql", "--json", scene.trace, ";".join(asked)).split("]\n[")
               for text in ["[" + text.strip().strip("[]") + "]"]]
    wrong = [(text, counted, read) for text, counted, read in zip(asked[::2], answers[::2], answers[1::2]) if counted != read]
    expect(len(answers) == len(asked) and not wrong, f"seed {seed}: {len(wrong)} wrong, {wrong[:3]}")
    plans = [scene.sql("EXPLAIN QUERY PLAN " + text) for text in asked[:2]]
    expect("start_sums" in str(plans[0]) and "start_sums" not in str(plans[1]), str(plans))
    info = scene.info()
    return f"seed {seed}, {info['events']:,} events, {len(set(answers))} answers"


@case
def refused(scene):
    """What writes, opens files or loads code; what is no SQL; what takes too long."""
    scene.own(OWN)
    for text in ("CREATE TABLE t(a)", "DELETE FROM spans", "INSERT INTO spans(id) VALUES(1)", "ATTACH '/tmp/x.db' AS x", "DROP VIEW slice",
                 "SELECT load_extension('x')", "PRAGMA writable_schema = 1", "VACUUM INTO '/tmp/x'", "SELECT nothing FROM spans", "SELECT"):
        result = scene.execute(scene.contrail, "sql", scene.trace, text)
        expect(result.returncode == 1 and result.stderr.count("\n") == 1 and not result.stdout, f"{text}: {result}")
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    for timeout in ("1", "0.05", "20ms", "0.0001", "0.001s"):  # less than a ms, too, is a limit
        result = scene.execute(scene.contrail, "sql", "--timeout", timeout, scene.trace, endless)
        expect(result.returncode == 1 and "--timeout" in result.stderr, f"{timeout}: {result}")
    for timeout in ("0", "-1", "1x", "", "nan", "inf", "1e300", "0.5.5"):
        result = scene.execute(scene.contrail, "sql", f"--timeout={timeout}", scene.trace, "SELECT 1")
        expect(result.returncode == 2 and "--timeout takes a time" in result.stderr, f"{timeout}: {result}")
    result = scene.execute(scene.contrail, "sql", scene.path("nothing"), "SELECT 1")
    expect(result.returncode == 1 and result.stderr.count("\n") == 1, str(result))


@case
def many_processes(scene):
    """More processes than there may be indexes at a time: the same answers, whatever is closed meanwhile, and damage is said."""
    scene.record("-q", "--follow", "--", "/bin/sh", "-c", "i=0; while [ $i -lt 9 ]; do /bin/true; i=$((i+1)); done")
    queries = ["SELECT process, count(*), sum(self) FROM spans GROUP BY 1", "SELECT * FROM edges", "SELECT * FROM functions WHERE calls > 0",
               "SELECT function, sum(calls) FROM histogram GROUP BY 1", "SELECT id, duration FROM spans ORDER BY duration DESC LIMIT 30",
               "SELECT a.process, a.function, count(*) FROM spans a JOIN spans b ON b.id = a.parent_id WHERE b.function = 'main' GROUP BY 1, 2",
               "SELECT e.process, f.name, e.calls FROM edges e JOIN functions f ON f.id = e.callee_id ORDER BY 1, 2, 3",
               "SELECT h.function, h.calls, e.calls FROM edges e JOIN histogram h ON h.function_id = e.callee_id WHERE e.caller = 'main' ORDER BY 1, 2, 3",
               "SELECT * FROM open_frames", "SELECT s.id, f.max FROM spans s JOIN functions f USING (function_id) WHERE s.depth = 1 ORDER BY 1"]
    middle = scene.sql("SELECT avg(start) AS middle FROM spans")[0]["middle"]
    asked = ";\n".join(queries)
    for trace in (scene.trace, f"{scene.trace}@{middle / 2:.0f}ns..{middle:.0f}ns"):
        wanted = scene.run(scene.contrail, "sql", "--json", trace, asked + "; SELECT * FROM threads; SELECT pid, lost FROM processes")
        for most in (1, 2, 5):
            got = scene.run(scene.contrail, "sql", "--json", trace, asked + "; SELECT * FROM threads; SELECT pid, lost FROM processes",
                            env=dict(os.environ, CONTRAIL_TEST_SQL_INDEXES=str(most)))
            expect(got == wanted, f"{most} indexes: other answers")
    peaks = {most: peak_kib([scene.contrail, "sql", scene.trace, queries[0]], dict(os.environ, CONTRAIL_TEST_SQL_INDEXES=str(most))) for most in (1, 100)}
    expect(peaks[1] + 2000 < peaks[100], f"memory does not depend on how many indexes there may be: {peaks} KiB")
    child = next(name for name in os.listdir(scene.trace) if name.startswith("process-"))
    path = os.path.join(scene.trace, child, "thread_0", "index.ctb")
    with open(path, "r+b") as file:
        file.seek(64 + HEADER_BYTES + 20)
        file.write(b"\x55" * 40)
    for most in (1, 100):
        said = scene.execute(scene.contrail, "sql", scene.trace, queries[0], env=dict(os.environ, CONTRAIL_TEST_SQL_INDEXES=str(most)))
        expect("damaged" in said.stderr, f"{most} indexes: damage is not said: {said.stderr}")
    return f"{peaks[1]} KiB with one index, {peaks[100]} with all"


@case(some=("dear", 2))
def percentiles(scene):
    """Nearest ranks, of few and many values, of few and many different ones; of more than memory should hold: refused."""
    scene.record("-q", "--", "/bin/true")
    for count, modulus in ((1, 10), (7, 3), (1000, 1), (1000, 7), (5000, 4999), (300000, 100003), (300000, 10**9)):
        values = sorted(n * 7919 % modulus for n in range(count))
        asked = [0, 0.01, 50, random.uniform(0, 100), 99, 99.999, 100]
        row = scene.sql(f"WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c WHERE x < {count - 1}) SELECT "
                        + ", ".join(f"percentile(x * 7919 % {modulus}, {percent!r}) AS p{n}" for n, percent in enumerate(asked)) + " FROM c")[0]
        wanted = [values[max(math.ceil(percent / 100 * count), 1) - 1] for percent in asked]
        expect(list(row.values()) == wanted, f"{count} values, {modulus} different: {row}, not {wanted}")
    said = scene.execute(scene.contrail, "sql", scene.trace, "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c WHERE x < 4300000) "
                         "SELECT percentile(x, 50) FROM c")
    expect(said.returncode == 1 and "4,000,000 different values" in said.stderr, str(said))


SCALED = """__attribute__((noinline)) double scaled(double x) { __asm__ volatile("" ::: "memory"); return x * 2; }
__attribute__((noinline)) long summed(long x) { __asm__ volatile("" ::: "memory"); return x + 2; }
int main(void) { for (int i = 0; i < 3; i++) { if (scaled(i) > 9 || summed(i) > 9) { return 1; } } return 0; }
"""


@case
def results_without_types(scene):
    """A result in xmm0 alone, of a function whose type is not known any more: no number is made up for it, as replay shows none."""
    program = scene.compile(scene.write("scaled.c", SCALED), "-O1", "-g")
    scene.record("-q", *NO_LOADER, "--args", "--", program)
    os.remove(os.path.join(scene.trace, "prototypes.tsv"))  # as after a recorder that was killed
    ends = {line["id"]: line.get("result") for line in scene.lines() if line["kind"] == "return"}
    rows = scene.sql("SELECT id, function, raw FROM \"values\" WHERE kind = 'result' AND function IN ('scaled', 'summed') ORDER BY function, time")
    expect([row["raw"] for row in rows if row["function"] == "summed"] == [2, 3, 4], str(rows))
    expect(not [row for row in rows if ends[row["id"]] is None], f"results that replay does not have: {rows}")


@case
def ranges(scene):
    """A clock of three ticks a nanosecond: each range of durations is one row of histogram, with the calls that are in it."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    scene.record("-q", *NO_LOADER, "--", program, "3000")
    told = scene.manifest()
    told["clock"]["ns1"] = told["clock"]["ns0"] + (told["clock"]["tsc1"] - told["clock"]["tsc0"]) // 3
    with open(os.path.join(scene.trace, "manifest.json"), "w", encoding="ascii") as file:
        json.dump(told, file)
    rows = scene.sql("SELECT function_id AS f, least, most, calls FROM histogram")
    expect(rows and len({(row["f"], row["least"], row["most"]) for row in rows}) == len(rows), f"a range twice: {rows}")
    spans = scene.sql("SELECT function_id AS f, duration FROM spans WHERE duration IS NOT NULL AND flags IS NULL")
    bounds = [(row["f"], ns) for row in rows for ns in {row["least"], row["most"]}]
    exact = 0
    for row in rows:
        if all(bounds.count((row["f"], row[bound])) == 1 for bound in ("least", "most")):
            within = sum(span["f"] == row["f"] and row["least"] <= span["duration"] <= row["most"] for span in spans)
            expect(within == row["calls"], f"{row}, but {within} calls")
            exact += 1
    expect(exact >= 10, f"{exact} of {len(rows)} ranges compared")


@case(some=("dear", 2))
def grouped(scene):
    """Rows by functions and modules as they come out of the table, with room for all of them, for some, and for none: as SQLite sorts them."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    scene.record("-q", *NO_LOADER, "--", program, str(scene.rounds(400, 1500)))
    every = ("count(*) AS n, min(id) AS a, max(parent_id) AS b, sum(thread) AS c, max(tid) AS d, max(caller) AS e, sum(start % 1000) AS f, "
             "sum(\"end\" % 1000) AS g, sum(duration) AS h, sum(self) AS i, sum(off) AS j, sum(depth) AS k, max(reason) AS l, max(stack) AS m, "
             "sum(calls) AS o, count(flags) AS p, max(flags) AS q")
    for room in (10**8, 9000, 1):
        environment = dict(os.environ, CONTRAIL_TEST_SQL_GROUPED=str(room))
        for keys, where in ((["function"], "depth > 2"), (["module", "function"], "start > 1000"), (["function_id"], "duration < 100"),
                            (["thread"], "depth > 1"), (["function", "module"], "function IN ('mid', 'leaf2')")):
            asked, sorted_by = (f"SELECT {', '.join(keys)}, {every} FROM spans WHERE {where} GROUP BY " + ", ".join(sign + key for key in keys)
                                for sign in ("", "+"))
            got, wanted = (scene.run(scene.contrail, "sql", "--json", scene.trace, query, env=environment) for query in (asked, sorted_by))
            expect(json.loads(got) == json.loads(wanted) != [], f"room for {room}: {asked}: {got[:300]} for {wanted[:300]}")
        rows = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT function AS f, id FROM spans WHERE depth > 1 ORDER BY function",
                                    env=environment))
        expect([row["f"] for row in rows] == sorted(row["f"] for row in rows), f"room for {room}: not in the order of the functions")
        wanted = scene.sql("SELECT id FROM spans WHERE depth > 1 ORDER BY id")
        expect(sorted(int(row["id"]) for row in rows) == [int(row["id"]) for row in wanted], f"room for {room}: other calls")
    said = scene.execute(scene.contrail, "sql", scene.trace, "SELECT function, max(rowid) FROM spans WHERE depth > 1 GROUP BY function")
    expect(said.returncode == 1 and "no rowid" in said.stderr, str(said))


def many_functions(count, turns):
    """A program of so many functions, which are called one after the other. In assembly: a compiler takes 2 ms for each of them."""
    one = r'"f{i}: .cfi_startproc\nlea {i}(%rdi), %rax\nnopl 0(%rax)\nret\n.cfi_endproc\n.type f{i}, @function\n.size f{i}, . - f{i}\n"' + "\n"
    table = ", ".join(f"f{i}" for i in range(count))
    return (f'__asm__(".text\\n"\n{"".join(one.format(i=i) for i in range(count))}".section .data.rel.ro, \\"aw\\"\\nall: .quad {table}\\n.text\\n");\n'
            f"extern long (*const all[{count}])(long);\n"
            f"int main(void) {{ long s = 0; for (long t = 0; t < {turns}; t++) {{ for (long i = 0; i < {count}; i++) {{ s += all[i](t); }} }} return s == 42; }}\n")


@case(some=("dear", 2))
def unknown_functions(scene):
    """Calls of many functions that the trace does not know any more: in groups as before, and not each by a walk through all groups."""
    program = scene.compile(scene.write("many.c", many_functions(3000, 60)), "-O1")
    scene.record("-q", "--mode", "full", "--", program)
    query = "SELECT function_id, count(*) AS n, sum(duration) AS t, sum(self) AS s FROM spans GROUP BY function_id"

    def asked():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        rows = json.loads(scene.execute(scene.contrail, "sql", "--json", scene.trace, query).stdout)
        return rows, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    asked()  # makes the index
    rows, seconds = asked()
    manifest = os.path.join(scene.trace, "manifest.json")
    with open(manifest, encoding="utf-8") as file:
        text = json.load(file)
    text["function_count"] = 0
    with open(manifest, "w", encoding="utf-8") as file:
        json.dump(text, file)
    os.truncate(os.path.join(scene.trace, "functions.tsv"), 0)
    asked()
    unknown, longer = asked()
    expect(unknown == rows and len(rows) > 3000, f"{len(unknown)} groups, {len(rows)} with a table of functions")
    expect(longer < 5 * seconds + 0.2, f"{longer:.2f} s of a processor, {seconds:.2f} where they are known")
    return f"{len(rows)} functions: {longer:.2f} s of a processor, {seconds:.2f} where they are known"


@case
def grouped_unknown(scene):
    """A damaged trace whose events name functions that it does not have: their calls are there once, with room for all or for some."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    scene.record("-q", "--", program, "1500")
    table, manifest = (os.path.join(scene.trace, name) for name in ("functions.tsv", "manifest.json"))
    with open(manifest, encoding="utf-8") as file:
        told = json.load(file)
    rows = scene.sql("SELECT function_id AS f, count(*) AS n FROM spans GROUP BY +function_id")
    kept = min(row["f"] for row in rows) + 1
    with open(table, "rb") as file:
        lines = file.read().split(b"\n")[:kept]
    with open(table, "wb") as file:
        told["files"]["functions.tsv"] = file.write(b"\n".join(lines) + b"\n")
    told["function_count"] = kept
    with open(manifest, "w", encoding="utf-8") as file:
        json.dump(told, file)
    for room in (10**8, 20000, 9000, 4000, 1):
        environment = dict(os.environ, CONTRAIL_TEST_SQL_GROUPED=str(room))
        got = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT function_id AS f, count(*) AS n FROM spans GROUP BY 1",
                                   env=environment))
        expect(got == rows, f"room for {room}: {[(a, b) for a, b in zip(got, rows) if a != b][:3]}")


@case(some=("dear", 2))
def many_longest(scene):
    """The longest calls, few and so many that the index does not keep them all: the same order."""
    program = scene.compile(scene.write("loop.c", LOOP), "-O1")
    scene.record("-q", "--", program, "120000")
    every = [row["d"] for row in scene.sql("SELECT duration AS d FROM spans")]
    expect(len(every) > 410000, f"{len(every)} spans")
    every.sort(key=lambda duration: -1 if duration is None else duration, reverse=True)
    for limit in (0, 1, 1000, 199999, 200001, 300000, 10**7):
        got = [row["d"] for row in scene.sql(f"SELECT duration AS d FROM spans ORDER BY duration DESC LIMIT {limit}")]
        expect(got == every[:limit], f"LIMIT {limit}: {len(got)} rows, or another order")
    peak = peak_kib([scene.contrail, "sql", "--csv", scene.trace, "SELECT duration FROM spans ORDER BY duration DESC LIMIT 410000"])
    expect(peak < 40000, f"{peak} KiB of memory")
    limits = scene.sql("SELECT duration AS d FROM spans ORDER BY duration DESC LIMIT (SELECT 5)")
    expect([row["d"] for row in limits] == every[:5], "a limit that is a query")


if __name__ == "__main__":
    main(__doc__, Scene)
