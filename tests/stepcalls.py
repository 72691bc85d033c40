#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls of a recording of instructions (src/steps/calls.c, src/export/steps*.c): as often and of as many instructions as valgrind's
callgrind counts, and as a program says of itself; and the stream of blocks (export --to itrace), which a decoder of this
file's own reads.

    tests/stepcalls.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import re
import struct
import subprocess

import harness
from harness import case, expect, main, need

FLAGS = ("-g", "-D_GNU_SOURCE", "-w")


class Scene(harness.Scene):
    def itrace(self, *words, folder="steps", status=0):
        self.run(self.contrail, "itrace", "-q", "-o", self.path(folder), "--", *words, status=status)
        (file,) = [name for name in os.listdir(self.path(folder)) if re.fullmatch(r"steps\.\d+", name)]
        return self.path(folder), os.path.join(self.path(folder), file)

    def told(self, trace, *words):
        return harness.parse_lines(self.run(self.contrail, "steps", "--json", *words, trace))

    def sql(self, trace, query):
        return json.loads(self.run(self.contrail, "sql", "--json", trace, query))

    def by_instructions(self, trace, name="counted"):
        self.run(self.contrail, "export", "-q", "--to", "contrail", "--by-instructions", "-o", self.path(name), trace)
        return self.path(name)


def each(*names):
    def wrap(function):
        for name in names:
            case(f"{function.__name__}/{name}", some=(function.__name__, len(names) // 2))(lambda scene, name=name: function(scene, name))
        return function
    return wrap


WORK = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N __attribute__((noinline))
static int compared;
N int compare(const void *a, const void *b) { compared++; return *(const int *)a - *(const int *)b; }
N long leaf(long n) { __asm__ volatile(""); return n * 3 + 1; }
N long tail(long n) { __asm__ volatile(""); return leaf(n + 1); }
N long even(long n);
N long odd(long n) { __asm__ volatile(""); return n == 0 ? 0 : even(n - 1); }
N long even(long n) { __asm__ volatile(""); return n == 0 ? 1 : odd(n - 1); }
N long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
N long twice(long (*f)(long), long n) { return f(n) + f(n + 1); }
N long deep(long n) { volatile char room[200]; room[n % 200] = 1; return n == 0 ? room[0] : deep(n - 1) + 1; }
int main(int c, char **v)
{
  int list[300];
  long s = 0, n = atol(v[1]);
  for (long i = 0; i < 300; i++) list[i] = (int)(i * 7919 % 1009);
  qsort(list, 300, sizeof(list[0]), compare);
  for (long i = 0; i < n; i++) s += tail(i) ^ fib(i % 12) ^ twice(leaf, i) ^ twice(tail, i) ^ even(i % 30) ^ deep(i % 50);
  printf("%ld %d %d\n", s, list[7], compared);
  return 0;
}
"""


def callgrind(scene, *words):
    """Calls to, and instructions in, each function, by its name."""
    out = scene.path("callgrind.out")
    subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no", "--compress-pos=no",
                    "--skip-plt=no", *words], check=True, capture_output=True, timeout=120)
    calls, cost, function, called, skip = collections.Counter(), collections.Counter(), None, None, False
    with open(out, encoding="utf-8", errors="replace") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("fn="):
                function = line[3:].split("'")[0]
            elif line.startswith("cfn="):
                called = line[4:].split("'")[0]
            elif line.startswith("calls="):
                calls[called] += int(line[6:].split()[0])
                skip = True
            elif re.match(r"[0-9+*-]", line):
                if not skip and function is not None:
                    cost[function] += int(line.split()[1])
                skip = False
    return calls, cost


@each("O0", "O1", "O2", "clang")
def callgrind_counts(scene, name):
    """Calls and instructions of every function of a program, with recursion, tail calls, pointers and calls by libc."""
    need("valgrind")
    if name == "clang":
        need("clang-14")
    compiler, level = ("clang-14", "-O2") if name == "clang" else ("gcc", "-" + name)
    program = scene.path("work")
    subprocess.run([compiler, level, *FLAGS, "-fno-optimize-sibling-calls" if name == "O1" else "-g", "-o", program,
                    scene.write("work.c", WORK)], check=True)
    trace, _ = scene.itrace(program, "200")
    counted = scene.by_instructions(trace)
    calls, cost = callgrind(scene, program, "200")
    every = json.loads(scene.run(scene.contrail, "report", "--json", counted))["functions"]
    rows = {row["name"]: row for row in every}
    checked = 0
    for function in ("main", "compare", "leaf", "tail", "odd", "even", "fib", "twice", "deep"):
        row = rows.get(function)
        if row is None and calls[function] == 0:
            continue
        expect(row is not None and row["calls"] == calls[function], f"{function}: {row and row['calls']} calls, not {calls[function]}")
        expect(row["self_ns"] == cost[function], f"{function}: {row['self_ns']} instructions, not {cost[function]}")
        checked += 1
    expect(checked >= 8, f"only {checked} functions")
    steps = scene.sql(trace, "SELECT sum(steps) AS n FROM step_blocks")[0]["n"]
    whole = sum(row["self_ns"] or 0 for row in every)
    expect(whole == steps, f"{whole} instructions in all functions, of {steps}")
    asked = {row["function"]: row for row in scene.sql(trace, "SELECT function, count(*) AS n, sum(self_instructions) AS own, sum(instructions) AS "
                                                      "sum FROM step_calls WHERE module = 'work' GROUP BY function")}
    for function, row in asked.items():
        if cost[function] != 0 and function in ("main", "compare", "leaf", "tail", "odd", "even", "fib", "twice", "deep"):
            expect((row["n"], row["own"]) == (calls[function], cost[function]), f"{row}: {calls[function]} {cost[function]}")
    total = scene.sql(trace, "SELECT sum(self_instructions) AS n, count(*) AS calls FROM step_calls")[0]
    expect(total["n"] == steps, f"{total} of {steps}")
    (row,) = scene.sql(trace, "SELECT * FROM step_calls WHERE function = 'main'")
    kids = scene.sql(trace, f"SELECT sum(instructions) AS n FROM step_calls WHERE parent_id = {row['id']}")[0]["n"]
    expect(row["instructions"] == row["self_instructions"] + kids and row["reason"] == "returned", f"{row} {kids}")
    expect(scene.sql(trace, f"SELECT * FROM step_calls WHERE id = {row['id']}") == [row], "by its id")
    first = scene.sql(trace, f"SELECT function, \"offset\" FROM steps WHERE step = {row['first_step']}")
    expect(first == [{"function": "main", "offset": 0}], f"{first}")
    return f"{checked} functions, {sum(row['calls'] for row in every)} calls, {steps} instructions"


WAYS = r"""
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define N __attribute__((noinline))
static jmp_buf back;
static sigjmp_buf out;
static ucontext_t home, away;
static volatile long done;
N void inner(int n) { done++; if (n == 0) longjmp(back, 1); inner(n - 1); done++; }
N void jumps(void) { if (setjmp(back) == 0) inner(3); done++; }
N void in_handler(void) { done++; }
N void handler(int s) { in_handler(); done++; }
N void leaver(int s) { in_handler(); siglongjmp(out, 1); }
N void step_away(void) { done++; }
N void coroutine(void) { for (;;) { step_away(); swapcontext(&away, &home); } }
N void visit(void) { swapcontext(&home, &away); done++; }
N void raises(int s) { raise(s); done++; }
int main(int c, char **v)
{
  static char stack[1 << 16], other[1 << 16];
  stack_t alternate = {.ss_sp = other, .ss_size = sizeof(other)};
  struct sigaction action = {.sa_handler = handler}, leaving = {.sa_handler = leaver, .sa_flags = SA_ONSTACK | SA_NODEFER};
  for (int i = 0; i < 5; i++) jumps();
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < 4; i++) raises(SIGUSR1);
  sigaltstack(&alternate, NULL);
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < 3; i++) raises(SIGUSR1);
  sigaction(SIGUSR2, &leaving, NULL);
  for (volatile int i = 0; i < 2; i++) if (sigsetjmp(out, 1) == 0) raises(SIGUSR2);
  getcontext(&away);
  away.uc_stack.ss_sp = stack;
  away.uc_stack.ss_size = sizeof(stack);
  away.uc_link = &home;
  makecontext(&away, coroutine, 0);
  for (int i = 0; i < 6; i++) visit();
  puts("done");
  return 0;
}
"""


@each("O0", "O2")
def ways(scene, name):
    """What ends without a return, handlers, alternate stacks, a coroutine: counts, how each ended, who called, on which stack."""
    program = scene.path("ways")
    subprocess.run(["gcc", "-" + name, *FLAGS, "-o", program, scene.write("ways.c", WAYS)], check=True)
    trace, _ = scene.itrace(program)
    calls = scene.run(scene.contrail, "report", "--json", trace) and os.path.join(trace, "calls")
    spans = scene.sql(calls, "SELECT function, caller, reason, stack, flags, depth FROM spans WHERE module = 'ways'")
    count = collections.Counter((row["function"], row["reason"]) for row in spans)
    for function, reason, wanted in (("jumps", "returned", 5), ("inner", "longjmp", 20), ("handler", "returned", 7),
                                     ("leaver", "longjmp", 2), ("in_handler", "returned", 9), ("raises", "returned", 7),
                                     ("raises", "unwound", 2), ("visit", "returned", 6), ("step_away", "returned", 6),
                                     ("main", "returned", 1)):
        ends = {end: n for (one, end), n in count.items() if one == function}
        expect(ends.get(reason) == wanted, f"{function}: {ends}, not {wanted} {reason}")
    unfinished = [row for row in spans if row["function"] == "coroutine"]
    expect([row["reason"] for row in unfinished] == ["thread exit"], f"{unfinished}")
    main_stack = [row["stack"] for row in spans if row["function"] == "main"][0]
    handlers = collections.Counter(row["stack"] == main_stack for row in spans if row["function"] == "handler")
    expect(handlers == {True: 4, False: 3}, f"handlers on the main stack: {handlers}")
    expect(all(row["stack"] != main_stack for row in spans if row["function"] in ("coroutine", "step_away", "leaver")), f"{spans}")
    callers = {(row["function"], row["caller"]) for row in spans}
    expect({("in_handler", "handler"), ("in_handler", "leaver"), ("step_away", "coroutine"), ("visit", "main"), ("jumps", "main"),
            ("inner", "inner"), ("inner", "jumps")} <= callers, f"{callers}")
    asked = scene.sql(trace, "SELECT function, reason, stack, count(*) AS n FROM step_calls WHERE module = 'ways' GROUP BY 1, 2, 3")
    of = collections.Counter()
    for row in asked:
        of[row["function"], row["reason"]] += row["n"]
    known = {(function, reason): n for (function, reason), n in count.items() if function in ("jumps", "inner", "handler", "leaver", "visit",
                                                                                           "step_away", "main", "coroutine", "raises")}
    same = {"longjmp": "unwound", "thread exit": "open"}  # what the views make of it
    expect(all(of[function, same.get(reason, reason)] == n for (function, reason), n in known.items()), f"{of}, not {known}")
    total = scene.sql(trace, "SELECT sum(self_instructions) AS n, (SELECT sum(steps) FROM step_blocks) AS steps FROM step_calls")[0]
    expect(total["n"] == total["steps"], f"{total}")
    return f"{len(spans)} calls"


@case
def beside_the_steps(scene):
    """The trace of the calls is made once, made again for other steps, and is marked; what cannot be is refused in a line."""
    program = scene.path("work")
    subprocess.run(["gcc", "-O1", *FLAGS, "-o", program, scene.write("work.c", WORK)], check=True)
    trace, file = scene.itrace(program, "20")
    first = scene.execute(scene.contrail, "report", "--json", trace)
    expect("interpolated" in first.stdout + first.stderr and json.loads(first.stdout)["functions"], first.stderr)
    manifest = os.path.join(trace, "calls", "manifest.json")
    made = os.stat(manifest).st_mtime_ns
    for view in (("graph",), ("replay", "-n", "5"), ("info",)):
        expect("main" in scene.run(scene.contrail, *view, trace) or view[0] in ("info", "replay"), f"{view}")
    expect(os.stat(manifest).st_mtime_ns == made, "it was made again")
    info = scene.run(scene.contrail, "info", trace)
    expect("interpolated" in info, info)
    os.utime(file, ns=(1, 1))
    expect(scene.execute(scene.contrail, "report", trace).stdout == scene.execute(scene.contrail, "report", trace).stdout, "the report differs")
    expect(os.stat(manifest).st_mtime_ns != made, "it was not made again")
    expect(sorted(os.listdir(trace)) == sorted(["calls", os.path.basename(file)]), f"{os.listdir(trace)}")
    counted = scene.by_instructions(trace)
    expect("one instruction" in scene.execute(scene.contrail, "info", counted).stdout, "that a ns is an instruction is not told")
    one, two = ([sorted((row["module"], row["name"], row["calls"]) for row in json.loads(scene.run(scene.contrail, "report", "--json", one))["functions"])
                 for one in (trace, counted)])
    expect(one == two, "other calls")
    for words, status in ((("--to", "atf2", "--by-instructions"), 2), (("--to", "contrail", "--thread", "1"), 2), (("--to", "contrail", "--from", "1ms"), 2),
                          (("--to", "itrace", "--by-instructions"), 2)):
        result = scene.execute(scene.contrail, "export", *words, "-o", scene.path("no"), trace)
        expect(result.returncode == status and result.stderr.count("\n") <= 2 and not os.path.exists(scene.path("no")), f"{words}: {result.returncode} {result.stderr}")
    result = scene.execute(scene.contrail, "export", "--to", "itrace", "-o", scene.path("no"), os.path.join(trace, "calls"))
    expect(result.returncode == 2 and "no instructions" in result.stderr, result.stderr)


@case
def interrupted(scene):
    """Calls that were being made when that was ended do not stay beside the steps; those that somebody is making do."""
    program = scene.path("work")
    subprocess.run(["gcc", "-O1", *FLAGS, "-o", program, scene.write("work.c", WORK)], check=True)
    trace, _ = scene.itrace(program, "5")
    with subprocess.Popen(["true"]) as gone:
        pass
    others = [f"calls.{gone.pid}", f"calls.{os.getpid()}", f"calls.{gone.pid}x"]
    for name in others:
        os.makedirs(os.path.join(trace, name, "thread_0"))
        with open(os.path.join(trace, name, "functions.tsv"), "w", encoding="utf-8") as file:
            file.write("x")
    scene.run(scene.contrail, "info", trace)
    left = sorted(name for name in os.listdir(trace) if name.startswith("calls"))
    expect(left == sorted(["calls", *others[1:]]), str(left))


@case
def damaged(scene):
    """Bytes are changed and the end is gone: what can be read is shown, what cannot is told, nothing else happens."""
    program = scene.compile(scene.write("work.c", WORK), "-O1", *FLAGS, "-static")
    trace, file = scene.itrace(program, "5")
    steps = scene.sql(trace, "SELECT sum(steps) AS n FROM step_blocks")[0]["n"]
    with open(file, "rb") as whole:
        good = whole.read()
    chance, told = random.Random(31), 0
    for turn in range(20):
        bad = bytearray(good[:chance.randrange(200, len(good))] if turn % 3 == 0 else good)
        for _ in range(turn % 3):
            bad[chance.randrange(64, len(bad))] ^= 1 << chance.randrange(8)
        with open(file, "wb") as out:
            out.write(bad)
        for form, name in (("contrail", f"calls{turn}"), ("itrace", f"stream{turn}")):
            result = scene.execute(scene.contrail, "export", "--to", form, "-o", scene.path(name), trace)
            expect(result.returncode in (0, 1), f"{form}: {result.returncode} {result.stderr}")
        report = scene.execute(scene.contrail, "report", f"{scene.path(f'calls{turn}')}")
        expect(report.returncode in (0, 1), f"{report.returncode} {report.stderr}")
        result = scene.execute(scene.contrail, "sql", "--json", trace, "SELECT sum(self_instructions) AS n FROM step_calls")
        expect(result.returncode in (0, 1), f"{result.returncode} {result.stderr}")
        read = json.loads(result.stdout)[0]["n"] if result.returncode == 0 else None
        expect((read or 0) <= steps, f"{read} of {steps} steps")
        if read != steps:
            told += result.stderr != ""
            expect(result.stderr == "" or "DAMAGED" in report.stderr + report.stdout or report.returncode == 1, f"{result.stderr} but {report.stderr}")
            expect(result.stderr != "" or turn % 3 != 0, f"{read} of {steps} steps, and nothing is told")
    expect(told > 5, f"only {told} were told")


# ---- the stream of blocks ----

ORDER = ("rip", "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "rdi", "rsi", "rbp", "rsp", "rbx", "rdx", "rcx", "rax")


class Decoder:
    """Of the events and records, by their layout alone."""

    def __init__(self, data):
        self.data, self.at, self.blocks = data, 0, {}

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def bytes(self, size):
        part = self.data[self.at:self.at + size]
        expect(len(part) == size, "the stream ends within an event")
        self.at += size
        return part

    def items(self):
        while self.at < len(self.data):
            head = self.take("Q")
            if head != 0:
                block = self.blocks[head]
                values = self.take(f"{len(block['writes'])}Q") if block["writes"] else ()
                values = values if isinstance(values, tuple) else (values,)
                expect(block["record_size"] == 8 + 8 * len(values), f"{block}")
                yield "block", head, block, values
                continue
            kind, size = self.take("II")
            end = self.at + size
            if kind == 1:
                address, code_size, record_size, writes, name_size, _, _, base, path_size, reserved = self.take("QIIHHQIQHH")
                pairs = [self.take("II") for _ in range(writes)]
                block = {"writes": pairs, "record_size": record_size, "name": self.bytes(name_size).decode(),
                         "path": self.bytes(path_size).decode(), "code": self.bytes(code_size), "base": base}
                expect(reserved == 0 and address != 0, "reserved")
                self.blocks[address] = block
                yield "compile", address, block, None
            elif kind == 2:
                count, context = self.take("II")
                schema = []
                for _ in range(count):
                    length, text, width = self.take("B6sB")
                    schema.append((text[:length].decode(), width))
                    expect(text[length:].strip(b"\0") == b"", "padding")
                expect(schema == [(name, 8) for name in ORDER] and context == 8 * count, f"{schema}")
                yield "start", None, None, dict(zip(ORDER, struct.unpack(f"<{count}Q", self.bytes(context))))
            elif kind == 3:
                yield "end", None, None, None
            else:
                expect(kind == 4, f"an event of kind {kind}")
                yield "panic", None, None, self.bytes(size).decode()
            expect(self.at == end, f"an event of kind {kind} has {size} bytes")


def compare(scene, trace, stream):
    lines = [line for line in scene.told(trace, "--registers") if "code" in line]
    code = {int(row["address"]) % (1 << 64): row["bytes"] for row in scene.sql(trace, "SELECT DISTINCT address, bytes FROM steps")}
    with open(stream, "rb") as file:
        decoder = Decoder(file.read())
    at, registers, counts, last = 0, None, collections.Counter(), None
    for what, address, block, values in decoder.items():
        counts[what] += 1
        last = what
        if what == "start":
            registers = {name: values[name] for name in ORDER[1:]}
            before = lines[at]["before"]
            wrong = [name for name in ORDER[1:] if before[name] is not None and int(before[name], 16) != registers[name]]
            expect(not wrong and values["rip"] == int(lines[at]["pc"], 16), f"start before {lines[at]}: {wrong}")
        if what != "block":
            continue
        written, place, done = collections.defaultdict(list), address, 0
        for (offset, index), value in zip(block["writes"], values):
            written[offset].append((ORDER[index], value))
        while place < address + len(block["code"]):
            line, length = lines[at], len(code[place]) // 2
            if int(line["pc"], 16) != place or block["code"][place - address:place - address + length].hex() != code[place]:
                raise AssertionError(f"{line} is not at {place:x}")
            mine = written.pop(place - address, [])
            registers.update(mine)
            done += len(mine)
            if at + 1 < len(lines) and "before" in lines[at + 1] and not (set(line["changed"]) & set(ORDER)) <= {name for name, _ in mine}:
                raise AssertionError(f"{line}: {mine}")
            for name, value in mine:
                told = line["changed"].get(name, ...)
                if told is not ... and told is not None and int(told, 16) != value:
                    raise AssertionError(f"{line}: {name} is {value:x}")
            at, place = at + 1, place + length
            if at < len(lines):
                after, follows = lines[at]["before"], True
                wrong = [name for name in ORDER[1:] if after[name] is not None and int(after[name], 16) != registers[name]]
                if wrong and place < address + len(block["code"]):
                    raise AssertionError(f"{wrong} before {lines[at]}")
        expect(not written and done == len(values), f"writes of no instruction: {written}")
    expect(at == len(lines) > 1000, f"{at} of {len(lines)} steps")
    expect(last == "end" and counts["panic"] == 0, f"{counts}")
    return f"{len(lines)} steps, " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


@each("program", "stepped", "signals")
def stream(scene, name):
    """Every register after every step of every block, and all of them at each start."""
    if name == "program":
        program = scene.compile(scene.write("work.c", WORK), "-O1", *FLAGS, "-static")
        trace, _ = scene.itrace(program, "1")
    else:
        words, steps, segment = (("ls", "-l", "/usr"), 20000, 3000) if name == "stepped" else \
            ((scene.compile("steps/signals.c", "-O1", "-g", "-w", "-static"),), 36000, 5000)
        trace = scene.path("steps")
        os.makedirs(trace)
        # Without an environment: the C library looks through that first, which may take all the steps.
        scene.run("env", "-i", os.path.join(scene.options.build, "tests", "stepped"), "record", "-v", "-s", str(segment), "-n", str(steps), "-w",
                  scene.path("states"), os.path.join(trace, "steps.1"), "--", *words)
    scene.run(scene.contrail, "export", "-q", "--to", "itrace", "-o", scene.path("stream"), trace)
    text = compare(scene, trace, scene.path("stream"))
    expect(name != "signals" or int(re.search(r"(\d+) start", text)[1]) > 5, text)
    result = scene.execute(scene.contrail, "export", "--to", "itrace", "-o", scene.path("stream"), trace)
    expect(result.returncode == 1 and "exists" in result.stderr, result.stderr)
    return text


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene)
