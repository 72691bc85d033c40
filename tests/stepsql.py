#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SQL over recordings of instructions (src/sql/steps*.c): the tables have what `contrail steps --json` shows, line for line; what
a WHERE leaves out by the index is what SQLite would have left out by itself.

    tests/stepsql.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import shutil
import sqlite3
import struct

import harness
from harness import case, expect, lot, main, need

NAMES = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
FLAGS = {"CF": 1, "PF": 4, "AF": 16, "ZF": 64, "SF": 128, "DF": 1024, "OF": 2048}


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.tool = os.path.join(options.build, "tests", "stepped")

    def stepped(self, *words, steps=20000, segment=2000):
        os.makedirs(self.trace, exist_ok=True)
        file = os.path.join(self.trace, "steps.1")
        # Without an environment: the C library looks through that first, which may take all the steps.
        self.run("env", "-i", self.tool, "record", "-v", "-s", str(segment), "-n", str(steps), "-w", self.path("states"), file, "--", *words)
        return file

    def sql(self, query, *traces, status=0):
        out = self.run(self.contrail, "sql", "--json", *(traces or [self.trace]), query, status=status)
        return json.loads(out) if status == 0 else out

    def told(self, *words):
        return harness.parse_lines(self.run(self.contrail, "steps", "--json", *words, self.trace))


def number(value):
    """As the tables have it: JSON numbers beyond 2^53 are texts, addresses of the upper half are negative."""
    return None if value is None else int(value)


def signed(text):
    if text is None:
        return None
    value = int(text, 16)
    return value - (1 << 64) if value >> 63 else value


def make(scene, name, steps=24000):
    if name == "signals":
        return scene.stepped(scene.compile("steps/signals.c", "-O1", "-g", "-w", "-static"), steps=36000, segment=4000)
    words = {"ls": ("ls", "-l", "/usr"), "sort": ("sort", "-n", "/proc/self/maps")}[name]
    need(words[0])
    return scene.stepped(*words, steps=steps if name == "sort" else 12000)


def each(*names):
    def wrap(function):
        for name in names:
            case(f"{function.__name__}/{name}", some=(function.__name__, 1))(lambda scene, name=name: function(scene, name))
        return function
    return wrap


@each("ls", "signals")
def steps(scene, name):
    """Every column of every step."""
    make(scene, name)
    lines = [line for line in scene.told("--registers", "--source") if "code" in line]
    rows = scene.sql("SELECT * FROM steps ORDER BY step")
    expect(len(lines) == len(rows) > 10000, f"{len(rows)} rows, {len(lines)} lines")
    known = 0
    for line, row in zip(lines, rows):
        where = row["function"] or row["module"] or None
        label = (where + (f"+{number(row['offset']):#x}" if number(row["offset"]) or not row["function"] else "")) if where else line["pc"]
        load = line.get("load", {})
        got = (row["step"], row["tid"], number(row["address"]), row["code"], label, number(row["load_address"]), row["load_size"],
               number(row["loaded"]), row["file"], row["line"], row["time"])
        told = (line["step"], line["tid"], signed(line["pc"]), line["code"], line["function"], signed(load.get("address")),
                load.get("size"), signed(load.get("value")), line.get("file"), line.get("line"), line.get("time_ns"))
        if got != told:
            raise AssertionError(f"{got}, not {told}")
        before, bits = line["before"], row["rflags"]
        wrong = [register for register in NAMES if number(row[register]) != signed(before[register])]
        known += sum(row[register] is not None for register in NAMES)
        flags = None if bits is None else " ".join(flag for flag, bit in FLAGS.items() if bits & bit)
        if wrong or (flags is None) != ("?" in before["flags"]) or (flags is not None and flags != before["flags"]):
            raise AssertionError(f"{wrong}, flags {flags} before {line}: {row}")
    return f"{len(rows)} steps, {known} registers known"


@each("sort", "signals")
def writes(scene, name):
    """Each store of each line, and what the kernel wrote."""
    make(scene, name)
    lines, kernel = scene.told(), 0
    expected = []
    for line in lines:
        for store in line.get("stores", ()):
            count = store.get("count", 1)
            if count != 0:
                size = store["size"] * count
                expected.append((line["step"], signed(store["address"]), size or None, "perhaps" if store.get("perhaps") else "step",
                                 None if store["value"] is None or size > 8 or count != 1 else signed(store["value"]), line["code"]))
        words = line.get("event", "").split()
        if words[:3] == ["the", "kernel", "wrote"]:
            kernel += 1
            expected.append((line["step"] - 1, signed(words[6]), int(words[3]), "kernel", ..., "syscall"))
    rows = scene.sql("SELECT * FROM writes")
    middle = rows[len(rows) // 2]["step"]
    some = {(row["step"], row["address"], row["size"]): row["old_bytes"] for row in
            scene.sql(f"SELECT *, old_bytes FROM writes WHERE step BETWEEN {middle - 500} AND {middle + 500}")}
    often = collections.Counter((row["address"], number(row["size"])) for row in rows if number(row["size"]) and number(row["size"]) <= 8).most_common(3)
    for (address, size), count in often:  # forwards what was there is followed from row to row, backwards it is looked for each time
        both = [scene.sql(f"SELECT step, old_bytes FROM writes({address}, {size}) ORDER BY step {way}") for way in ("ASC", "DESC")]
        expect(len(both[0]) >= count and sorted(both[0], key=str) == sorted(both[1], key=str), f"what was at {address} before")
    got = [(row["step"], number(row["address"]), number(row["size"]), row["by"], number(row["value"]), row["code"]) for row in rows]
    order = lambda row: (row[0], row[1] or 0, row[2] or 0)  # noqa: E731
    for one, other in zip(sorted(got, key=order), sorted(expected, key=order)):
        same = [a == b or b is ... for a, b in zip(one, other)]
        short = one[4] is not None and other[4] is None and one[3] == "step"  # a store that is repeated, up to 8 bytes
        expect(all(same) or (short and same.count(False) == 1), f"{one}, not {other}")
    expect(len(got) == len(expected) > 100, f"{len(got)} rows, {len(expected)} stores")
    sized = [row for row in rows if row["bytes"] is not None and row["value"] is not None]
    for row in sized:
        value = int.from_bytes(bytes.fromhex(row["bytes"]), "little")
        if number(row["value"]) % (1 << 64) != value or len(row["bytes"]) != 2 * number(row["size"]):
            raise AssertionError(str(row))
    memory, known = {}, 0  # what the rows before have written, byte for byte; None: nobody can say
    for row in rows:
        address, size = number(row["address"]), number(row["size"])
        span = range(address, address + min(size, 4096)) if address is not None and size else ()
        old = [memory.get(at) for at in span]
        if 0 < len(old) <= 8 and None not in old and ... not in old:
            key = (row["step"], row["address"], row["size"])
            known += key in some
            if some.get(key, bytes(old).hex()) != bytes(old).hex():
                raise AssertionError(f"{row}: before it {bytes(old).hex()}, not {some[key]}")
        data = None if row["bytes"] is None or "??" in row["bytes"] else bytes.fromhex(row["bytes"])
        memory.update((at, data[i] if data else ...) for i, at in enumerate(span))
    expect(known > 10, f"{known} old values are known")
    return f"{len(rows)} writes, {kernel} by the kernel, {known} old values known"


@each("ls", "signals")
def changes(scene, name):
    """Each register that a line tells of, and what it was before."""
    make(scene, name)
    lines = [line for line in scene.told("--registers") if "code" in line]
    rows = scene.sql("SELECT * FROM changes")
    others = [row for row in rows if row["by"] != "step"]
    got = {(row["step"], row["register"]): row for row in rows if row["by"] == "step"}
    count = 0
    for line in lines:
        for register in NAMES:
            row = got.get((line["step"], register))
            told = (signed(line["changed"][register]), signed(line["before"][register])) if register in line["changed"] else None
            if (row and (number(row["value"]), number(row["old_value"]))) != told:
                raise AssertionError(f"{register} of {line}: {row}, not {told}")
            count += row is not None
        if ((line["step"], "rflags") in got) != ("flags" in line["changed"]):
            raise AssertionError(f"flags of {line}")
        count += "flags" in line["changed"]
    expect(count == len(got) > 5000, f"{len(got)} rows, {count} changes")
    expect({row["by"] for row in others} >= ({"begin", "signal"} if name == "signals" else {"begin"}), f"{others[:2]}")
    return f"{len(rows)} changes, {len(others)} by no step"


TEXTS = ("function", "code", "bytes", "by", "register", "module", "type", "reason")
COLUMNS = {"steps": ("step", "tid", "time", "address", "function", "code", "bytes", "loaded", "rdi", "rflags"),
           "writes": ("step", "tid", "time", "address", "function", "code", "size", "value", "bytes", "by")}


def values_of(row):
    """Without names: the numbers that JSON has as texts are numbers again, as SQLite has them."""
    return tuple(int(value) if isinstance(value, str) and name not in TEXTS and value.lstrip("-").isdigit() else value for name, value in row.items())


def kept_apart(scene, tables):
    """The tables as a whole in a database of Python's own, which knows nothing of an index of ours."""
    apart = sqlite3.connect(":memory:")
    for table in tables:
        names = ", ".join(f'"{name}"' for name in COLUMNS.get(table, ())) or "*"
        rows = scene.sql(f"SELECT {names} FROM {table}")
        columns = ", ".join(f'"{name}"' for name in rows[0])
        apart.execute(f"CREATE TABLE {table} ({columns})")
        apart.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", map(values_of, rows))
    return apart


@each("sort", "signals")
def vectors(scene, name):
    """Each vector register that a line tells of, what it was before, and the same by the register's name."""
    make(scene, name)
    lines = [line for line in scene.told("--registers") if "code" in line]
    rows = scene.sql("SELECT * FROM vector_changes")
    got = {(row["step"], row["register"]): row for row in rows if row["by"] == "step" and row["bytes"] and row["register"][0] == "x"}

    def read(registers):
        return {"xmm" + key[3:]: int(value, 16) for key, value in registers.items() if key[1:3] == "mm"}
    count = 0
    for line in lines:
        before = read(line["before"])
        for register, value in read(line["changed"]).items():
            row = got.pop((line["step"], register))
            now, old = (int.from_bytes(bytes.fromhex(row[key] or ""), "little") for key in ("bytes", "old_bytes"))
            expect(now == value and (row["old_bytes"] is None or old == before[register]) and row["code"] == line["code"], f"{line}: {row}")
            count += 1
    expect(not got and count > 300, f"{count} changes, {list(got.values())[:1]} are of no line")
    expect({row["by"] for row in rows} >= ({"begin", "signal", "step"} if name == "signals" else {"begin", "step"}), "by whom")
    chance = random.Random(3)
    for register in chance.sample(sorted({row["register"] for row in rows}), 3) + ["k1"]:
        step = chance.randrange(len(lines))
        expected = [row for row in rows if row["register"] == register and row["step"] < step]
        asked = scene.sql(f"SELECT * FROM vector_changes WHERE register = '{register}' AND step < {step} ORDER BY step DESC LIMIT 5")
        expect(asked == expected[::-1][:5], f"{register} before {step}: {asked} {expected[-5:]}")
    expect(scene.sql("SELECT * FROM vector_changes WHERE register IN ('ymm1', 'xmm32', 'xmm01', 'k8', 'rax')") == [], "there are no such registers")
    return f"{len(rows)} rows, {count} of lines"


@each("sort", "signals")
def conditions(scene, name):
    """What is looked for by the index, against the same of the whole tables, by an SQLite of its own."""
    make(scene, name)
    chance, found, asked = random.Random(20), 0, 0
    apart = kept_apart(scene, ("steps", "writes", "changes", "step_events"))
    ask = lambda query: apart.execute(query).fetchall()  # noqa: E731
    ((tid,),) = ask("SELECT DISTINCT tid FROM steps")
    expect(scene.sql("SELECT DISTINCT tid FROM step_blocks") == [{"tid": tid}], f"blocks of others than {tid}")
    stores = ask("SELECT address, step, function FROM writes WHERE size < 100")
    ran = ask("SELECT address, step, function FROM steps WHERE step % 50 = 7")
    ((last,),) = ask("SELECT max(step) FROM steps")
    queries = []
    for _ in range(2):
        (stored, _, writer), (address, _, function), low = chance.choice(stores), chance.choice(ran), chance.randrange(last)
        high = low + chance.randrange(last // 3)
        queries += [("steps", f"WHERE address = {address}"),
                    ("steps", f"WHERE step BETWEEN {low} AND {high} AND function = 'main'"),
                    ("steps", f"WHERE address >= {address} AND address < {address + 40} AND tid = {tid}"),
                    ("steps", f"WHERE function = '{function}' AND step > {low}"),
                    ("writes", f"WHERE address = {stored} AND step < {high}"),
                    ("writes", f"WHERE address BETWEEN {stored - 30} AND {stored + 10}"),
                    ("writes", f"WHERE function = '{writer}'"),
                    ("changes", f"WHERE register = '{chance.choice(NAMES + ('rflags',))}' AND step < {low}"),
                    ("changes", f"WHERE step = {low} AND tid = {tid}"),
                    ("step_events", f"WHERE step >= {low}")]
    for number_of, (table, where) in enumerate(queries):
        columns = ", ".join(f'"{name}"' for name in COLUMNS.get(table, ())) or "*"
        slow = ask(f"SELECT {columns} FROM {table} {where}")
        at = 0  # the step
        for order in ("", " ORDER BY step DESC") if number_of < len(queries) // 2 else (" ORDER BY step LIMIT 7",):
            quick = list(map(values_of, scene.sql(f"SELECT {columns} FROM {table} {where}{order}")))
            steps_seen = [row[at] for row in quick]
            expect(not order or steps_seen == sorted(steps_seen, reverse="DESC" in order), f"{table} {where}{order}: the order")
            if "LIMIT" in order:  # of those of one step any may be the last
                same = steps_seen == sorted(row[at] for row in slow)[:7] and not collections.Counter(quick) - collections.Counter(slow)
            else:
                same = collections.Counter(quick) == collections.Counter(slow)
            expect(same, f"{table} {where}{order}: {len(quick)} rows, not {len(slow)}: {quick[:1]} {slow[:1]}")
            asked, found = asked + 1, found + len(quick)
    expect(os.path.exists(os.path.join(scene.trace, "steps.1.index")) or name == "signals", "no index was made")
    return f"{asked} queries, {found} rows"


@each("ls", "signals")
def either(scene, name):
    """OR reads a table once for each side: each row comes once, whichever side has found it, and rows that are alike stay as many."""
    make(scene, name)
    ((tid, last),) = map(lambda row: row.values(), scene.sql("SELECT tid, max(step) AS last FROM steps"))
    asked = 0
    for table, one, other in (("steps", f"step < {last // 3}", "function LIKE '%a%'"), ("steps", f"step = {last // 2}", f"step = {last // 3}"),
                              ("writes", f"step > {last // 2}", f"tid = {tid}"), ("writes", f"step BETWEEN 10 AND {last // 2}", "value = 0"),
                              ("changes", f"step < {last // 4}", "register = 'rax'"), ("vector_changes", f"step < {last // 2}", "register LIKE 'xmm%'"),
                              ("step_events", f"step < {last // 2}", f"tid = {tid}"), ("step_blocks", f"tid = {tid}", "steps > 1000")):
        (both,), (plain,) = scene.sql(f"SELECT count(*) AS n FROM {table} WHERE {one} OR {other}"), scene.sql(
            f"SELECT sum(({one}) IS TRUE OR ({other}) IS TRUE) AS n, sum(({one}) IS TRUE) AS one FROM {table}")
        expect(both["n"] == plain["n"] and (plain["one"] or table == "vector_changes"), f"{table}: {one} OR {other}: {both}, one by one {plain}")
        asked += plain["n"] or 0
    for order in ("", " DESC"):
        rows = scene.sql(f"SELECT step FROM steps WHERE step = 5 OR step = {last - 5} ORDER BY step{order}")
        expect(sorted(row["step"] for row in rows) == [5, last - 5], f"{order}: {rows}")
    return f"{asked} rows"


@each("sort", "signals")
def old_bytes(scene, name):
    """What many rows replaced, which is followed from the first step on; against each row alone, late enough to be looked for by the index."""
    make(scene, name, 36000)
    every = "SELECT step, address, size, bytes, old_bytes, old_value FROM writes WHERE"
    rows = scene.sql(f"{every} true ORDER BY step")
    late = [row for row in rows if row["step"] > 30000 and row["size"] <= 64]
    expect(len(rows) > 1000 and len(late) > 20 and any("?" not in (row["old_bytes"] or "?") for row in late), f"{len(rows)}, {len(late)} of them late")
    for row in random.Random(6).sample(late, 4):
        alone = scene.sql(f"{every} step = {row['step']} AND address = {row['address']}")
        expect(row in alone, f"{row}, alone {alone}")
    memory, compared, wrong = {}, 0, []  # by the stores alone, of each byte
    for row in rows:
        if row["size"] > 1 << 20:
            memory.clear()
            continue
        new, old = row["bytes"] or "??" * row["size"], row["old_bytes"] or "??" * row["size"]
        for at in range(row["size"]):
            said, was = old[2 * at:2 * at + 2], memory.get(row["address"] + at, "??")
            if "??" not in (said, was):
                compared += 1
                wrong += [(row, at, was)] if said != was else []
            memory[row["address"] + at] = new[2 * at:2 * at + 2] or "??"
    # A load may have shown what nobody was seen to write.
    expect(compared > 5000 and len(wrong) <= compared // 1000, f"{len(wrong)} of {compared} bytes: {wrong[:3]}")
    return f"{len(rows)} rows, {compared} bytes"


@case
def last_writer(scene):
    """writes(ADDRESS, SIZE), the last one before a step, and the last change of a register: what --last-write finds."""
    scene.stepped("sort", "-n", "/proc/self/maps", steps=60000, segment=6000)
    chance, kernel = random.Random(5), 0
    places = scene.sql("SELECT step, address, size, \"by\" FROM writes WHERE size BETWEEN 1 AND 9000 AND (step % 9 = 0 OR \"by\" = 'kernel')")
    asked = []  # the query, and the words for `contrail steps` that say the same
    for turn in range(24):
        place = chance.choice([one for one in places if one["by"] == "kernel"] if turn % 3 == 0 else places)
        address, size, before = number(place["address"]) + chance.randrange(3), chance.choice((1, 4, 8)), \
            min(59999, place["step"] + 1) if turn % 6 == 0 else chance.randrange(place["step"] + 1, 60000)
        asked.append((f"SELECT step, \"by\" FROM writes({address}, {size}) WHERE step < {before} ORDER BY step DESC LIMIT 1",
                      ("--last-write", f"{address:#x}:{size}", "--step", str(before))))
        register, step = chance.choice(NAMES), chance.randrange(100, 60000)
        asked.append((f"SELECT step, 'register' AS \"by\" FROM changes WHERE register = '{register}' AND step < {step} ORDER BY step DESC LIMIT 1",
                      ("--last-write", register, "--step", str(step))))
    # All by one program, which else would read the recording for each of them.
    found = scene.sql(" UNION ALL ".join(f"SELECT {turn} AS turn, step, \"by\" FROM ({query})" for turn, (query, _) in enumerate(asked)))
    for turn, (query, words) in enumerate(asked):
        rows = [row for row in found if row["turn"] == turn]
        lines = [line for line in scene.told(*words) if "code" in line] if rows or words[1].startswith("r") else []
        expect([row["step"] for row in rows] == [line["step"] for line in lines], f"{query}: {rows} {lines}")
        kernel += bool(rows) and rows[0]["by"] == "kernel"
    return f"{kernel} of 24 by the kernel"


BUSY = r"""
#include <stdio.h>
#include <stdlib.h>
static long table[64];
volatile long rare, often;
__attribute__((noinline)) void seldom(long i) { rare = i; }
int main(int c, char **v)
{
  long n = atol(v[1]);
  for (long i = 0; i < n; i++) {
    table[i * 7 % 64] += i;
    often = table[i % 64];
    if (i == n / 5) seldom(i);
  }
  printf("%p %p\n", (void *)&rare, (void *)seldom);
  return 0;
}
"""


@case(some=("dear", 1))
def quick(scene):
    """Of millions of steps: who wrote an address, when a function was executed; by the index a small part of what reading takes, of a processor."""
    program, turns = scene.path("busy"), 600000
    scene.run("gcc", "-O1", "-o", program, scene.write("busy.c", BUSY))
    address, function = scene.run(scene.contrail, "itrace", "-q", "-o", scene.trace, "--", program, str(turns)).split()

    def timed(query, times=2):  # the first time may make the index
        best = None
        for _ in range(times):
            begin = harness.processor_seconds()
            rows = scene.sql(query)
            taken = harness.processor_seconds() - begin
            best = taken if best is None else min(best, taken)
        return rows, best
    count, reading = timed("SELECT count(*) AS n FROM steps", 1)
    who, by_memory = timed(f"SELECT step, function, value FROM writes({int(address, 16)}, 8) ORDER BY step DESC LIMIT 1")
    when, by_address = timed(f"SELECT step, rdi FROM steps WHERE address = {int(function, 16)}")
    expect(len(who) == len(when) == 1 and who[0]["function"] == "seldom" and who[0]["value"] == when[0]["rdi"] == turns // 5, f"{who} {when}")
    expect(count[0]["n"] > 10 * turns and by_memory < reading / 3 and by_address < reading / 3,
           f"{by_memory:.3f} s and {by_address:.3f} s, of {reading:.3f} s")
    return f"{count[0]['n']} steps read in {reading:.2f} s; {1000 * by_memory:.0f} ms, {1000 * by_address:.0f} ms"


@case(some=("dear", 1))
def chunks(scene):
    """Within a block of a million steps: any step by the checkpoints of the index, and who last wrote a register or memory before it, as
    without them."""
    program = scene.path("busy")
    scene.run("gcc", "-O1", "-o", program, scene.write("busy.c", BUSY.replace("main(int c", "main(int c")))
    rare, _ = scene.run(scene.contrail, "itrace", "-q", "-o", scene.trace, "--", program, "200000").split()
    last = scene.sql("SELECT max(first_step + steps) AS n, max(steps) AS m FROM step_blocks")[0]
    expect(last["m"] > 1000000, f"the largest block has {last['m']} steps")
    chance, seen = lot("chunks"), 0
    steps = [chance.randrange(last["n"]) for _ in range(scene.rounds(3, 6))]
    asked = [("--step", str(step), "-n", "4", "--registers", *words) for step in steps for words in ((), ("--last-write", "rbx"), ("--last-write", "xmm0"))]
    asked = [[word for word in words if "--last-write" not in words or word not in ("-n", "4")] for words in asked]
    asked.append(("--last-write", rare))
    without = [scene.told(*words) for words in asked]
    index = [name for name in os.listdir(scene.trace) if name.endswith(".index")]
    expect(not index, "there is an index already")
    low = int(rare, 16) - 512
    stores = scene.sql(f"SELECT step, address, size FROM (SELECT step, address, size FROM writes LIMIT -1) WHERE address BETWEEN {low} AND "
                       f"{low + 1024} AND (address % 128 = {low % 128} OR address = {int(rare, 16)})")
    expect(len(stores) > 1000, f"{len(stores)} stores")
    scene.told("-F", "main", "-n", "1")
    expect(any(name.endswith(".index") for name in os.listdir(scene.trace)), "no index was made")
    for words, told in zip(asked, without):
        found = scene.told(*words)
        expect(found == told, f"{words}: {found[:1]}, not {told[:1]}")
        seen += len(found)
    for step in steps:
        rows = scene.sql(f"SELECT * FROM steps WHERE step BETWEEN {step} AND {step + 2}")
        slow = scene.sql(f"SELECT * FROM steps WHERE +step BETWEEN {step} AND {step + 2}")
        expect(rows == slow, f"step {step}: {rows[:1]} {slow[:1]}")
        for address in chance.sample(sorted({row["address"] for row in stores}), 2) + [int(rare, 16)]:
            real = max((row["step"] for row in stores if row["address"] == address and row["step"] < step), default=None)
            result = scene.execute(scene.contrail, "steps", "--json", "--last-write", f"{number(address):#x}:8", "--step", str(step), scene.trace)
            found = [line["step"] for line in map(json.loads, result.stdout.splitlines()) if "code" in line]
            expect(found == [real] if real is not None else (not found or found[0] < step), f"{number(address):#x} before {step}: {found}, not {real}")
    return f"{last['n']} steps, {len(stores)} stores, {seen} lines"


@case
def several(scene):
    """Threads of a recording, beside a trace of calls: all in one database, and some alone."""
    os.makedirs(scene.path("steps"))
    tids = []
    for words in (("ls", "/"), ("sort", "/etc/hosts"), ("ls", "-l", "/")):
        file = scene.stepped(*words, steps=3000 + len(words))
        tids.append(scene.sql("SELECT tid FROM step_blocks LIMIT 1")[0]["tid"])
        os.rename(file, scene.path(f"steps/steps.{tids[-1]}"))
    tids.sort()
    shutil.rmtree(scene.trace)
    rows = scene.sql("SELECT tid, count(*) AS n FROM steps GROUP BY tid ORDER BY tid", scene.path("steps"))
    blocks = scene.sql("SELECT tid, sum(steps) AS n FROM blocks GROUP BY tid ORDER BY tid", scene.path("steps"))
    expect(rows == blocks and [row["tid"] for row in rows] == tids, f"{rows} {blocks}")
    calls = scene.sql("SELECT tid, id, parent_id, function FROM step_calls", scene.path("steps"))
    for tid in tids:
        alone = scene.sql(f"SELECT tid, id, parent_id, function FROM step_calls WHERE tid = {tid}", scene.path("steps"))
        expect(alone == [row for row in calls if row["tid"] == tid] != [], f"step_calls of {tid}: {alone[:2]}, not of {calls[:2]} ...")
    expect(scene.sql(f"SELECT function FROM step_calls WHERE id = {calls[-1]['id']}", scene.path("steps")) == [{"function": calls[-1]["function"]}], "by id")
    both = scene.sql(f"SELECT count(*) AS n FROM step_calls WHERE tid = {tids[0]} OR tid = {tids[2]}", scene.path("steps"))
    expect(both == [{"n": sum(row["tid"] != tids[1] for row in calls)}], f"step_calls of two threads: {both}")
    one = scene.sql("SELECT DISTINCT tid FROM steps", f"{scene.path('steps')}#{tids[1]}")
    expect(one == [{"tid": tids[1]}], f"{one}")
    file = scene.sql("SELECT DISTINCT tid FROM changes", scene.path(f"steps/steps.{tids[0]}"), scene.path(f"steps/steps.{tids[2]}"))
    expect([row["tid"] for row in file] == [tids[0], tids[2]], f"{file}")
    scene.record("-q", "--", "ls", "/")
    both = scene.sql("SELECT count(*) AS n, count(DISTINCT id) AS d, sum(steps) AS s FROM blocks", scene.trace, scene.path("steps"))
    expect(both[0]["n"] == both[0]["d"] and both[0]["s"] == sum(row["n"] for row in rows), f"{both}")
    times = scene.sql("SELECT tid, min(time) AS first FROM steps GROUP BY tid", scene.path("steps"))
    expect(min(row["first"] for row in times) >= 0 and max(row["first"] for row in times) > 0, f"{times}")
    for form, status in (("@1ms..2ms", 2), ("@..2ms", 2), ("@window:1", 2), (f"#{max(tids) + 1}", 2)):
        result = scene.execute(scene.contrail, "sql", scene.path("steps") + form, "SELECT 1")
        expect(result.returncode == status and result.stderr.count("\n") == 1, f"{form}: {result.returncode} {result.stderr}")


def heads(data):
    """Where the heads of blocks are, and the end."""
    at = struct.unpack_from("<I", data, 12)[0]
    while at < len(data):
        yield at
        at += 72 + struct.unpack_from("<Q", data, at + 8)[0]
    yield at


def spoil(good, chance):
    """One kind of damage, of any byte: changed, cut, blocks gone or there twice, bytes taken out, put in, or overwritten."""
    bad, places = bytearray(good), list(heads(good))
    first = chance.randrange(len(places) - 1)
    begin, end = places[first], places[chance.randrange(first + 1, len(places))]
    kind = chance.randrange(8)
    if kind == 0:
        del bad[chance.randrange(len(bad)):]
    elif kind == 1:
        del bad[chance.choice(places[:-1]):]
    elif kind == 2:
        del bad[begin:end]
    elif kind == 3:
        bad[end:end] = bad[begin:end]
    elif kind == 4:
        at = chance.choice(places[:-1]) + chance.randrange(72)
        bad[at] ^= 1 << chance.randrange(8)
    elif kind == 5:
        for _ in range(chance.randrange(1, 5)):
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    elif kind == 6:
        at = chance.randrange(len(bad))
        del bad[at:at + chance.randrange(1, 3000)]
    else:
        at, size = chance.randrange(len(bad)), chance.randrange(1, 3000)
        bad[at:at + chance.choice((0, size))] = chance.randbytes(size)
    return bytes(bad)


@case
def damaged(scene):
    """Whatever is done to the file is told, by every command that reads it; the steps that are shown are those that were recorded."""
    file = scene.stepped("sort", "-n", "/proc/self/maps", steps=6000, segment=500)
    with open(file, "rb") as whole:
        good = whole.read()
    query = "SELECT step, address, code, rax, rdi FROM steps"
    real = {row["step"]: row for row in scene.sql(query)}
    expect(len(real) == 6000, f"{len(real)} steps")
    seed, lost = random.randrange(1 << 30), 0
    chance = random.Random(seed)
    others = (("sql", "SELECT count(*), max(CASE WHEN step % 100 = 7 THEN old_bytes END) FROM writes; SELECT count(*) FROM changes; SELECT count(*) FROM step_events"),
              ("steps",), ("export", "--to", "itrace"), ("report",), ("sql", "SELECT count(*) FROM step_calls"))
    for turn in range(int(os.environ.get("DAMAGED_TURNS", 6))):
        bad = spoil(good, chance)
        if bad == good:
            continue
        shutil.rmtree(scene.trace)
        os.mkdir(scene.trace)
        with open(file, "wb") as out:
            out.write(bad)
        result = scene.execute(scene.contrail, "sql", "--json", scene.trace, query)
        head, *words = others[turn % len(others)]
        after = [scene.trace, *words] if head == "sql" else [*words, *(["-o", scene.path(f"out{turn}")] if head == "export" else []), scene.trace]
        other = scene.execute(scene.contrail, head, *after)
        for done, what in ((result, "sql"), (other, f"{head} {words}")):
            told = "DAMAGED" in done.stderr + done.stdout if done.returncode == 0 else done.returncode == 1 and done.stderr.count("\n") == 1
            expect(told, f"seed {seed}, {turn}: {what} has told nothing: status {done.returncode} {done.stderr}")
        rows = json.loads(result.stdout) if result.returncode == 0 and result.stdout else []
        wrong = [row for row in rows if real.get(row["step"]) != row]
        expect(not wrong, f"seed {seed}, {turn}: {wrong[:1]} was {real.get(wrong[0]['step']) if wrong else None}")
        lost += 6000 - len(rows)
    return f"seed {seed}: {lost} steps lost"


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene)
