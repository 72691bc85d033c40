#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replay of some functions passes over what has none of their calls, by the index, and a piece of a trace begins at a place that the
index knows: with it, all is byte for byte what it is without; with threads, coroutines, exceptions, longjmp, tail calls, lost events, sampling, values, children, and on traces of which a part is left.

    tests/passover.py [--filter PATTERN] [--build DIR]      of half of the functions, a set of options by lot: part of `make test`
    tests/passover.py --long                                all of them
"""
import json
import os
import random
import shutil
import subprocess

import harness
from harness import NO_LOADER, Skip, case, expect, main, need

# Between all that is asked about there is a long stretch of other calls, so that most granules have none of it.
PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#define N extern "C" __attribute__((noinline))
static volatile long sum;
static thread_local unsigned long seed = 88172645463325252;
static thread_local jmp_buf back;
static thread_local ucontext_t home, other;
static char stacks[2][256 << 10];
static thread_local int number;
N void leaf(long x) { sum += x; }
N void leaf2(long x) { sum ^= x; }
N void mid(long x) { leaf(x * 5); if (x & 64) leaf2(x * 7); if ((x & 0xff00) == 0x1200) leaf2(x); }
N void filler(long n) { for (; n > 0; n--) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; mid((long)seed); } }
N void rare(long n) { leaf(n); sum += n; }
N void says(long n) { rare(n); char text[40]; int bytes = snprintf(text, sizeof text, "round %ld\n", n); if (write(1, text, bytes) < 0) abort(); }
N void held(long n) { rare(n); filler(n); rare(n); }
N void tailed(long n) { filler(n); leaf(n); }
N void tails(long n) { leaf2(n); tailed(n); }
N void jumps(long n) { filler(n); longjmp(back, 1); }
N void lands(long n) { if (setjmp(back) == 0) jumps(n); }
N void throws(long n) { filler(n); if (n) throw n; }
N void catches(long n) { try { throws(n); } catch (long) { sum++; } }
N long recurs(long n) { if (n % 50 == 0) filler(300); return n == 0 ? 0 : recurs(n - 1) + 1; }
N void naps(long us) { usleep(us); }
N void yields(long n) { leaf(n); swapcontext(&other, &home); leaf2(n); }
N void coroutine(void) { for (;;) { yields(1); filler(200); yields(2); } }
N void switches(long n) { for (long i = 0; i < n; i++) { swapcontext(&home, &other); filler(3000); } }
N void round_of(long n) {
  filler(n); rare(n); filler(n); says(n); filler(n); tails(n); filler(n); lands(n); filler(n); catches(n); filler(n);
  recurs(120); filler(n); naps(300); filler(n); held(n); filler(n); switches(3); filler(n);
}
N void *run(void *a) {
  getcontext(&other); other.uc_stack.ss_sp = stacks[(long)a]; other.uc_stack.ss_size = sizeof stacks[0]; other.uc_link = 0;
  makecontext(&other, coroutine, 0);
  for (int i = 0; i < 2; i++) round_of(ROUND);
  return a;
}
int main(int argc, char **) {
  pthread_t t;
  int children = 0;
  for (int i = 0; argc > 1 && i < 2; i++) if (++children && fork() == 0) { run(0); _exit(0); }
  pthread_create(&t, 0, run, (void *)1L);
  run((void *)0L);
  pthread_join(t, 0);
  while (children-- > 0) wait(0);
  filler(20000); rare(0); filler(20000);
  if (argc > 2) abort();
  return 0;
}
"""
# A thread of which no call is open all the time, and whose last long one ends early.
EARLY = r"""
#include <pthread.h>
#include <unistd.h>
#define N extern "C" __attribute__((noinline))
static volatile long sum;
N void leaf(long x) { sum += x; }
N void mid(long x) { leaf(x); sum += x; }
N void nap(long us) { usleep(us); }
void *run(void *a) { nap(200000); for (long i = 0; i < ROUND; i++) mid(i); for (long i = 0; i < 400000000; i++) __asm__ volatile(""); return a; }
int main(void) { pthread_t t; return pthread_create(&t, 0, run, 0) || pthread_join(t, 0); }
"""
# Of which most granules are nothing but calls of one function at one depth, and begin and end in the middle of one.
ALIKE = r"""
#include <unistd.h>
extern "C" __attribute__((noinline)) void leaf(long us) { if (us) usleep(us); __asm__ volatile(""); }
int main(void) { for (int i = 0; i < NAPS; i++) { for (long k = 0; k < ROUND; k++) leaf(0); leaf(60000); } }
"""
FUNCTIONS = ("rare", "says", "held", "tails", "tailed", "jumps", "lands", "throws", "catches", "recurs", "naps", "yields", "coroutine",
             "switches", "main", "leaf2", "write", "no_such", "*throw*", "{rare,naps}")
MORE = ((), ("--json",), ("--type", "call"), ("--depth", "3..6"), ("--min-duration", "5us"), ("--json", "--min-duration", "1us"), ("--max-duration", "1us"),
        ("--limit", "7"), ("--reason", "longjmp"), ("--no-output",), ("--depth", "2"), ("--time", "cpu"))


RARE = (("--min-duration", "1ms"), ("--min-duration", "20us", "--json"), ("--min-duration", "5us"), ("--min-duration", "100us", "--max-duration", "10ms"),
        ("--min-duration", "30us", "--module", "own", "--json"), ("--min-duration", "10us", "--depth", "2..5"), ("--min-duration", "10us", "--depth", "4"),
        ("--min-duration", "20us", "--reason", "returned,longjmp"), ("--min-duration", "1s"), ("--reason", "killed,exit,still-open"), ("--type", "lost"),
        ("--type", "output,crash", "--json"), ("--type", "output"), ("--type", "lost,crash", "--json"), ("--min-duration", "50us", "--type", "call", "--json"))
PLACES = (("--module", "libc*"), ("--module", "ld-linux*", "--json"), ("--module", "own", "--limit", "3000"), ("--file", "own.cc", "--limit", "3000"),
          ("--function", "rare", "--module", "libc*"), ("--function", "says", "--module", "libc*"))
LONG = ("main", "coroutine", "held", "tailed", "switches", "leaf2", "leaf", "mid")  # of which there are many lines


class Scene(harness.Scene):
    def make(self, *words, arguments=(), size=6000, source=PROGRAM):
        self.write("own.cc", source)
        program = self.compile(self.path("own.cc"), "-O1", "-g", "-fno-inline", "-fno-ipa-cp", "-fno-ipa-ra", "-foptimize-sibling-calls", "-w", "-pthread",
                               f"-DROUND={size}", compiler="g++")
        result = self.execute(self.contrail, "record", "-q", "-o", self.trace, *(() if self.options.long else NO_LOADER), *words, "--", program, *arguments)
        expect(os.path.exists(os.path.join(self.trace, "manifest.json")), f"nothing was recorded: {result}")

    def index(self, trace=None):
        """Makes it; how many events it is about."""
        trace = trace or self.trace
        self.run(self.contrail, "sql", "--json", trace, "SELECT count(*) FROM spans")
        place = os.path.join(trace, "spans.cti")
        expect(os.path.exists(place), f"no index of {self.info(trace)['events']:,} events was kept")
        return place

    def replay(self, *words):
        result = self.execute(self.contrail, "replay", *words, text=False, errors=None)
        return result.returncode, result.stdout, result.stderr


def without(index, ask):
    os.rename(index, index + ".away")
    try:
        return ask()
    finally:
        os.rename(index + ".away", index)


def same(scene, index, *words):
    got, want = scene.replay(*words), without(index, lambda: scene.replay(*words))
    if got != want:
        lines = [side[1].decode(errors="replace").splitlines() for side in (got, want)]
        at = next((i for i, pair in enumerate(zip(*lines)) if pair[0] != pair[1]), min(map(len, lines)))
        raise AssertionError(f"{words}: with the index {got[0]}, {len(lines[0])} lines, {got[2]}, not {want[0]}, {len(lines[1])} lines, {want[2]}; line {at}: "
                             f"{lines[0][at:at + 2]} for {lines[1][at:at + 2]}")
    return want[1].count(b"\n")


def compare(scene, trace=None, functions=FUNCTIONS):
    trace = trace or scene.trace
    index = scene.index(trace)
    seed = random.randrange(1 << 30)
    lots, lines = random.Random(seed), 0
    for function in functions if scene.options.long else lots.sample(functions, (len(functions) + 1) // 2):
        limit = ("--limit", "0") if function not in LONG else ("--limit", "20000")
        selected = [lots.choice(MORE)] if not scene.options.long else MORE
        for words in selected:
            lines += same(scene, index, "--function", function, *(words if "--limit" in words else (*limit, *words)), trace)
    for words in PLACES if scene.options.long else lots.sample(PLACES, 3):
        lines += same(scene, index, *(words if "--limit" in words else (*words, "--limit", "0")), trace)
    for words in RARE if scene.options.long else lots.sample(RARE, 3):
        lines += same(scene, index, *words, "--limit", "20000", trace)
    info = scene.info(trace)
    length = info["duration_ns"] if "duration_ns" in info else 1000000000
    for _ in range(6 if scene.options.long else 1):
        first, last = sorted(lots.randrange(length) for _ in range(2))
        function = lots.choice(("rare", "tails", "held", "yields", "lands"))
        lines += same(scene, index, "--function", function, "--to", f"{last}ns", "--limit", "20000", trace)
        lines += same(scene, index, "--function", function, "--json", "--limit", "20000", f"{trace}@{first}ns..{last}ns")
        lines += same(scene, index, "--json", "--limit", "500", f"{trace}@{first}ns..")
        lines += same(scene, index, "--json", "--limit", "500", f"{trace}@{last}ns..{last + lots.randrange(100000)}ns")
    tids = [thread["tid"] for thread in info["threads"] if thread["events"]]
    lines += same(scene, index, "--function", "rare", "--limit", "0", f"{trace}#{lots.choice(tids)}")
    part = "" if scene.options.long else f", 1 of {len(MORE)} sets of options for each function"
    return f"seed {seed}, {lines:,} lines{part}"


@case(some=("dear", 2))
def all_kinds(scene):
    scene.make()
    note = compare(scene)
    rows = [json.loads(line) for line in scene.replay("--json", "--function", "rare", scene.trace)[1].splitlines()]
    entered = [row for row in rows if row["kind"] in ("enter", "tail") and row["name"] == "rare"]
    expect(len(entered) == 17, f"{len(entered)} calls of rare")
    for row in (entered[2], entered[9]):
        same(scene, os.path.join(scene.trace, "spans.cti"), "--json", "--function", "rare", "--limit", "5", "--after", str(row["id"]), scene.trace)
    return note


@case(some=("dear", 2))
def piece_is_found(scene):
    """Where the index knows a place nothing before it is looked at, but the blocks of the calls that are open there."""
    need("strace")
    scene.make(size=40000)
    index = scene.index()
    length = scene.info()["duration_ns"]
    words = ("report", "--json", f"{scene.trace}@{length * 9 // 10}ns..{length * 9 // 10 + 1000000}ns")

    def reads():
        log = scene.path("log")
        out = scene.run("strace", "-f", "-e", "trace=pread64", "-o", log, scene.contrail, *words)
        with open(log, encoding="utf-8") as file:
            return out, sum("pread64" in line for line in file)
    (got, few), (want, many) = reads(), without(index, reads)
    expect(got == want, "the report of the piece differs")
    blocks = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n FROM blocks"))[0]["n"]
    expect(few < many / 3 and many > blocks / 2, f"{few} reads, not {many}, of {blocks} blocks")
    return f"{few} reads, {many} without the index"


@case(some=("dear", 2))
def is_passed_over(scene):
    """What is damaged between is not seen: it was not read."""
    scene.make(size=40000)
    index = scene.index()
    want = scene.replay("--function", "naps", scene.trace)
    expect(want == without(index, lambda: scene.replay("--function", "naps", scene.trace)), "differs")
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) * 6 // 10)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xff]))
    expect(scene.replay("--function", "naps", scene.trace) == want, "the damage was read")
    got = without(index, lambda: scene.replay("--function", "naps", scene.trace))
    expect(got != want, "the damage is none")


@case(some=("traces", 2))
def values(scene):
    scene.make("--args", size=3000)
    return compare(scene, functions=("rare", "says", "recurs", "tails", "lands", "write"))


@case(some=("traces", 2))
def detail(scene):
    scene.make("--detail", "all", size=1000)
    return compare(scene, functions=("rare", "says", "recurs", "tails", "throws", "yields"))


@case(some=("traces", 2))
def sampled(scene):
    """The interval changes now and then: each change is shown, whatever is asked for."""
    scene.make("--mode", "light", "--sample", "4", size=8000)
    return compare(scene, functions=("rare", "says", "recurs", "mid"))


@case(some=("traces", 2))
def children(scene):
    scene.make("--follow", arguments=["children"], size=3000)
    processes = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT pid, path FROM processes"))
    expect(len(processes) == 3, str(processes))
    return "; ".join(compare(scene, process["path"], ("rare", "lands", "tails", "main")) for process in processes)


@case
def lost(scene):
    """Losses are shown whatever is asked for."""
    scene.make("--ring-size", "1", "--no-wait", "--no-args", size=12000)
    dropped = scene.info()["dropped"]
    if dropped == 0:
        raise Skip("contrail was fast enough: nothing was lost")
    return f"{dropped:,} events lost, {compare(scene, functions=('rare', 'tails', 'lands', 'recurs', 'no_such', 'yields'))}"


@case
def ends_early(scene):
    """What is open where reading stops is not what is open at the end."""
    scene.make("--no-args", "--trace", "mid", "--trace", "leaf", "--trace", "nap", size=300000, source=EARLY)
    index = scene.index()
    lines = [same(scene, index, *words, "--limit", "0", scene.trace) for words in (("--min-duration", "150ms"), ("--min-duration", "150ms", "--json"))]
    expect(lines[1] >= 1, f"{lines} lines of a nap")  # and of what had no processor for so long


@case(some=("dear", 2))
def alike(scene):
    """A call whose end is passed over is not joined with the end of a later one of the same function."""
    scene.make("--no-args", "--trace", "leaf", "--trace", "main", size=scene.rounds(500001, 1000001), source=ALIKE.replace("NAPS", str(scene.rounds(5, 16))))
    index = scene.index()
    lines = [same(scene, index, "--min-duration", "50ms", *words, "--limit", "0", scene.trace) for words in ((), ("--type", "call"), ("--json",))]
    expect(min(lines) >= 6, f"{lines}")


@case(some=("traces", 2))
def last(scene):
    scene.make("--args", "--last", "1M", size=6000)
    return compare(scene, functions=("rare", "tails", "main", "held", "no_such"))


@case(some=("traces", 2))
def pieces(scene):
    scene.make("--args", "--max-size", "1M", size=6000)
    return compare(scene, functions=("rare", "tails", "main", "held", "no_such"))


@case(some=("traces", 2))
def crash(scene):
    scene.make(arguments=["a", "b"], size=3000)
    return compare(scene, functions=("rare", "main", "abort", "leaf", "no_such"))


@case(some=("dear", 2))
def damaged_index(scene):
    """One that does not fit is as none."""
    scene.make(size=3000)
    index = scene.index()
    want = without(index, lambda: scene.replay("--function", "tails", scene.trace))
    with open(index, "rb") as file:
        whole = file.read()
    seed = random.randrange(1 << 30)
    lots = random.Random(seed)
    for n in range(20):
        data = bytearray(whole)
        data[lots.randrange(len(data))] ^= 1 << lots.randrange(8)
        with open(index, "wb") as file:
            file.write(data if n % 4 else data[:lots.randrange(len(data))])
        expect(scene.replay("--function", "tails", scene.trace) == want, f"seed {seed}, {n}: a damaged index changes the replay")
    shutil.rmtree(scene.trace)
    return f"seed {seed}"


if __name__ == "__main__":
    main(__doc__, Scene)
