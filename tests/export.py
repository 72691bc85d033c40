#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exports: what contrail export writes in the formats of other programs is read here by decoders of our own, made from the
published descriptions, and its sums are those of report, its calls those of replay: with threads, tail calls, longjmp,
exceptions, signal stacks, sampled points, children, names that are no names, and with each filter.

    tests/export.py [--filter PATTERN] [--build DIR]
"""
import collections
import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import zlib

import harness
from harness import case, expect, main

HOSTILE = b'=x"\'</script>&]]>;,\\\x01\x1b\xff\xc3\xa9|'  # what somebody may have written into the trace in place of a name, as long
PROGRAM = r"""
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
static jmp_buf back;
static char stack_of_signals[1 << 16];
extern "C" {
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long x) { sum += x; return x * 2; }
OWN long tail(long x) { return leaf(x + 1); }
OWN long deep(long x) { return x == 0 ? leaf(1) : deep(x - 1) + 1; }
OWN void odd_name_ooooooooooooooooo(void) { leaf(2); }
OWN void jumps(void) { leaf(3); longjmp(back, 1); }
OWN void thrower(long x) { leaf(x); if (x % 2) throw std::runtime_error("x"); sum += x; }
OWN void passes(long x) { thrower(x); sum++; }
OWN void catcher(long x) { try { passes(x); } catch (const std::exception &) { sum += 2; } }
OWN void handler(int n) { leaf(n); }
OWN void slow(long us) { usleep(us); }
OWN void *thread(void *a) {
  for (long i = 0; i < 16; i++) { tail(i); catcher(i); deep(i % 30); odd_name_ooooooooooooooooo(); }
  return a;
}
OWN void child(long n) { for (long i = 0; i < n; i++) tail(i); slow(2000); }
OWN void leaves(int status) { leaf(status); exit(status); }
}
int main(int argc, char **) {
  pthread_t t[2];
  stack_t own = {stack_of_signals, 0, sizeof(stack_of_signals)};
  struct sigaction act = {};
  act.sa_handler = handler;
  act.sa_flags = SA_ONSTACK;
  sigaltstack(&own, nullptr);
  sigaction(SIGUSR1, &act, nullptr);
  for (int i = 0; i < 2; i++) pthread_create(t + i, nullptr, thread, nullptr);
  for (int i = 0; i < 20; i++) { if (setjmp(back) == 0) jumps(); raise(SIGUSR1); catcher(i); slow(500); }
  for (int i = 0; i < 2; i++) pthread_join(t[i], nullptr);
  if (argc > 1) for (int i = 0; i < 2; i++) if (fork() == 0) { child(50 * (i + 1)); leaves(0); }
  if (argc > 1) while (wait(nullptr) > 0) {}
  leaves(0);
}
"""
FILTERS = [(), ("--function", "deep"), ("--module", "libc*"), ("--min-duration", "3us"), ("--max-duration", "2us"), ("--depth", "4"),
           ("--depth", "2..3"), ("--reason", "exception,longjmp"), ("--reason", "enter-only,tail-call"), ("--time", "cpu"), ("--raw",),
           ("--function", "leaf", "--min-duration", "100ns")]
SPAN_FORMATS = ("chrome", "perfetto", "csv", "jsonl", "parquet", "speedscope", "firefox")  # those that have single calls
FORMATS = ("folded", "chrome", "perfetto", "csv", "jsonl", "speedscope", "flamegraph", "pprof", "firefox")  # those that are files
SHARED = {}  # traces that cases only read, and what replay and report say of them


def filters_of(scene, form):
    """A third of the filters, so that each is played by two formats or more: what a filter lets through is not the format's doing."""
    return FILTERS if scene.options.long else FILTERS[SPAN_FORMATS.index(form) % 3::3]


class Scene(harness.Scene):
    def shared(self, *arguments, options=()):
        """The trace that others, who only read it, have already made."""
        if arguments not in SHARED:
            self.trace = os.path.join(self.options.top, "shared" + "-".join(("", *arguments)))
            self.own(*arguments, options=options)
            SHARED[arguments] = self.trace
        self.trace = SHARED[arguments]

    def known(self, ask, *options):
        """What ask(*options) says of the shared trace."""
        key = (ask.__name__, self.trace, options)
        if key not in SHARED:
            SHARED[key] = ask(*options)
        return SHARED[key]

    def own(self, *arguments, options=()):
        """A trace of the program above."""
        program = self.compile(self.write("own.cc", PROGRAM), "-O2", "-g", "-fno-inline", "-w", "-pthread", compiler="g++")
        self.record("-q", *options, "--", program, *arguments)
        for folder, _, names in os.walk(self.trace):
            for name in set(names) & {"functions.tsv"}:
                with open(os.path.join(folder, name), "rb+") as file:
                    data = file.read().replace(b"\todd_name_ooooooooooooooooo\n", b"\t" + HOSTILE + b"\n")
                    file.seek(0)
                    file.write(data)

    def pieces(self):
        """Options for pieces of the trace in which something goes on."""
        begin = next(line["ts_ns"] for line in self.lines("--function", "main")) // 1000
        return [("--from", f"{begin + 3000}us", "--to", f"{begin + 9000}us"), ("--from", f"{begin + 4000}us"), ("--to", f"{begin + 7000}us")]

    def export(self, form, *options, trace=None, status=0, into="out"):
        """The bytes of the file, or the name of the directory."""
        path = self.path(into)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
        result = self.execute(self.contrail, "export", "--to", form, "-o", path, *options, trace or self.trace)
        expect(result.returncode == status, f"export: status {result.returncode}: {result.stderr}")
        self.said = result.stderr
        if status != 0:
            expect(not os.path.exists(path), "a file was left")
            return result.stderr
        if os.path.isdir(path):
            return path
        with open(path, "rb") as file:
            return file.read()

    def run_bad(self, *words, status=1):
        """Standard error."""
        result = self.execute(self.contrail, *words)
        expect(result.returncode == status, f"status {result.returncode}: {result.stderr}")
        return result.stderr

    def functions(self, *options, trace=None):
        """The report's sums by name: calls, self and time off the processor; of all processes."""
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        result = self.execute(self.contrail, "report", "--json", *options, trace or self.trace)
        is_empty = result.returncode == 1 and "passes the other filters" in result.stderr
        expect(result.returncode == 0 or is_empty, f"status {result.returncode}: {result.stderr}")
        for row in [] if is_empty else json.loads(result.stdout)["functions"]:
            for i, key in enumerate(("calls", "self_ns", "off_ns", "total_ns")):
                sums[row["name"]][i] += row[key] or 0
        return sums


def near(what, found, wanted, slack):
    """Both have the names, with numbers that differ by so much at most: nanoseconds that were rounded one by one."""
    names = {name for name, value in found.items() if value > slack} | {name for name, value in wanted.items() if value > slack}
    for name in names:
        expect(abs(found.get(name, 0) - wanted.get(name, 0)) <= slack, f"{what}: {name}: {found.get(name)}, not {wanted.get(name)}")


def clean(name, separator=None):
    """As a line of text has a name of a function."""
    return "".join("?" if ord(c) < 32 or ord(c) == 127 else ":" if c == separator else c for c in name)


def folded(data):
    """The weights by path."""
    paths = collections.Counter()
    for line in data.decode().splitlines():
        path, weight = line.rsplit(" ", 1)
        expect(int(weight) > 0, line)
        paths[tuple(path.split(";"))] += int(weight)  # functions of one name have a line each
    return paths


def leaves(paths):
    sums = collections.Counter()
    for path, weight in paths.items():
        sums[path[-1]] += weight
    return sums


# ---- single calls ----

# start and end: on the clock, nanoseconds since the begin; ns, self_ns, off_ns: own time, None where the format has none.
Span = collections.namedtuple("Span", "pid tid name module start end ns self_ns off_ns calls how flags")
HOW = ("tail call", "longjmp", "exception", "exit", "thread exit", "orphan", "enter only", "counted")


def replayed(lines, pid):
    """The calls of replay's lines, as (pid, tid, name, start, end)."""
    calls, stacks = [], collections.defaultdict(list)
    for line in lines:
        kind, key = line["kind"], (line["tid"], line.get("stack"))
        if kind in ("return", "left", "tail") and line["duration_ns"] is not None:
            name, start = stacks[key].pop()
            ended = line["ended"] if kind == "tail" else line
            expect(name == ended["name"], f"{line}: not {name}")
            calls.append((pid, line["tid"], name, start, line["ts_ns"]))
        if kind in ("enter", "tail"):
            stacks[key].append((line["name"], line["ts_ns"]))
        if kind in ("point", "orphan"):
            calls.append((pid, line["tid"], line["name"], line["ts_ns"], line["ts_ns"]))
    return collections.Counter(calls)


def by_name(spans):
    """As Scene.functions gives them."""
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for span in spans:
        for i, number in enumerate((span.calls, span.self_ns, span.off_ns)):
            sums[span.name][i] += number or 0
    return sums


def compare_sums(what, spans, wanted, timed=True, off=True):
    """With a report: calls, and self time where the format has it. off: time off the processor too, which of a family report may
    know as a bound only."""
    found = by_name(spans)
    names = set(found) | {name for name, row in wanted.items() if row[0] != 0}
    near(f"{what}: calls", {name: found[name][0] for name in names}, {name: wanted[name][0] for name in names if name in wanted}, 0)
    for i in (1, 2)[:1 + off] if timed else ():
        for name in names:
            # Each process of a family has measured its clock for itself: a millionth of a long call is theirs.
            slack = 2 + wanted[name][0] + wanted[name][i] / 1e6
            expect(abs(found[name][i] - wanted[name][i]) <= slack, f"{what}: {name}: {('', 'self', 'off')[i]} {found[name][i]} ns, not {wanted[name][i]}")


def compare_spans(scene, form, decode, timed=True, renamed=lambda name: name):
    """All calls against replay's, then with each filter the sums against the report's; a family. What is not in a format's
    names is taken out of the report's by renamed."""
    def functions(*options):
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        for name, row in scene.known(scene.functions, *options).items():
            sums[renamed(name)] = [a + b for a, b in zip(sums[renamed(name)], row)]
        return sums
    scene.shared()
    pid = scene.manifest()["pid"]
    total = 0

    def calls_of_replay(*options):
        return replayed(scene.lines(*options), pid)
    for options in [()] + scene.known(scene.pieces):
        spans = decode(scene.export(form, *options))
        found = collections.Counter(span[:3] + span[4:6] for span in spans)
        wanted = collections.Counter()
        for (of, tid, name, start, end), count in scene.known(calls_of_replay, *options).items():
            wanted[of, tid, renamed(name), start, end] += count
        expect(found == wanted, f"{form} {options}: {list((found - wanted).items())[:3]} and not {list((wanted - found).items())[:3]}")
        compare_sums(f"{form} {options}", spans, functions(*options), timed)
        total += len(spans)
        is_open, before = (sum(flag in span.flags for span in spans if span.flags is not None) for flag in ("open", "before"))
        expect(spans[0].flags is None or (is_open > 2) == ("--to" in options), f"{form} {options}: {is_open} open calls")
        expect(spans[0].flags is None or (before > 2) == ("--from" in options), f"{form} {options}: {before} from before")
        ends = collections.Counter(span.how for span in spans if span.how is not None)
        if not options and ends:
            expect(ends["longjmp"] >= 20 and ends["exception"] >= 26 and ends["tail call"] >= 32, str(ends))
    for options in filters_of(scene, form):
        if timed or options[:1] not in (("--time",), ("--raw",)):
            compare_sums(f"{form} {options}", decode(scene.export(form, *options)), functions(*options), timed)
    scene.shared("children", options=("--follow",))
    spans = decode(scene.export(form))
    compare_sums(f"{form} of a family", spans, functions("--family"), timed, off=False)
    pids = {child["pid"] for child in scene.manifest()["children"]} | {scene.manifest()["pid"]}
    expect({span.pid for span in spans} == pids, f"{form}: not all processes")
    first = min(span.start for span in spans if span.pid != scene.manifest()["pid"])
    parent = max(span.end for span in spans if span.pid == scene.manifest()["pid"])
    expect(1_000_000 < first < parent, f"{form}: the children are from {first} on, the parent ends at {parent}")
    return f"{total} calls"


def microseconds(value):
    """Nanoseconds of a decimal number of microseconds, without an error: what is beyond them is for floating point numbers."""
    whole, _, rest = str(value).partition(".")
    return int(whole) * 1000 + int((rest + "000")[:3]) + (len(rest) > 3 and rest[3] >= "5")


# ---- chrome ----

def chrome(data):
    document = json.loads(data, parse_float=str)  # digits as they are
    threads, spans = {}, []
    for event in document["traceEvents"]:
        if event["ph"] == "M":
            threads[event["pid"], event["tid"]] = event["args"].get("of_tid", event["tid"])
            continue
        expect(event["ph"] in "Xi", str(event))
        if event["name"] == "events lost":
            continue
        arguments, start = event["args"], microseconds(event["ts"])
        expect((event["pid"], event["tid"]) in threads, f"{event}: no thread")
        end = start + microseconds(event["dur"]) if event["ph"] == "X" else start
        how = arguments.get("end")
        calls = arguments.get("calls", 0 if how == "orphan" or "before" in arguments else 1)
        flags = [flag for flag in ("open", "uncertain", "before") if flag in arguments]
        spans.append((arguments.get("stack", 0), Span(event["pid"], event["tid"], event["name"], event["cat"], start, end,
                      arguments["ns"], arguments["self_ns"], arguments.get("off_ns", 0), calls, how, flags)))
    # What is on another stack is a thread by itself, and nests there.
    nested = collections.defaultdict(list)
    for stack, span in spans:
        expect((span.tid >= 1 << 30) == (stack != 0), f"{span} on stack {stack}")
        if span.end > span.start:
            nested[span.pid, span.tid].append(span)
    for lane in nested.values():
        check_nesting(lane)
    return [span._replace(tid=threads[span.pid, span.tid]) for _, span in spans]


def check_nesting(spans):
    """Each lies in another one, or beside it."""
    ends = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        while ends and ends[-1] <= span.start:
            ends.pop()
        expect(not ends or span.end <= ends[-1], f"{span} crosses one that ends at {ends[-1:]}")
        ends.append(span.end)


@case(some=("formats", 3))
def chrome_calls(scene):
    """Each call at its place, and nested; sums under all filters; a family; a name that is none."""
    said = compare_spans(scene, "chrome", chrome)
    names = {span.name for span in chrome(scene.export("chrome"))}
    expect(HOSTILE.decode(errors="replace") in names, "the odd name")
    expect(json.loads(scene.export("chrome"))["otherData"]["lost_events"] == 0, "lost events")
    return said


# ---- protobuf ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of a message: an integer, or bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            expect(at + size <= end, "a field is longer than its message")
            value, at = data[at:at + size], at + size
        else:
            raise AssertionError(f"wire type {key & 7}")
        yield key >> 3, value


def message(data):
    """The last value of each field, and lists of all."""
    last, every = {}, collections.defaultdict(list)
    for number, value in fields(data):
        last[number] = value
        every[number].append(value)
    return last, every


def packed(value):
    """The integers of a repeated field, packed or one by one."""
    numbers = []
    for item in value:
        if isinstance(item, int):
            numbers.append(item)
            continue
        at = 0
        while at < len(item):
            number, at = varint(item, at)
            numbers.append(number)
    return numbers


# ---- perfetto ----

def packets(data):
    """The packets of a trace, those that are deflated too (compressed_packets = 50)."""
    for number, packet in fields(data):
        expect(number == 1, f"field {number} of Trace")
        last, _ = message(packet)
        if 50 in last:
            expect(len(packet) < 512 * 1024, f"{len(packet)} bytes of compressed packets")
            yield from packets(zlib.decompress(last[50]))
        else:
            yield last, packet


class Sequence:
    """What a reader keeps of a packet sequence."""

    def __init__(self):
        self.names, self.clocks, self.incremental, self.clock, self.track, self.is_valid = {}, {}, set(), 6, None, False

    def time(self, clock, stamp):
        """Nanoseconds of BOOTTIME."""
        if clock == 6:
            return stamp
        expect(clock in self.clocks, f"clock {clock} without a snapshot")
        if clock in self.incremental:
            stamp += self.clocks[clock][0]
            self.clocks[clock] = (stamp, self.clocks[clock][1])
        return stamp + self.clocks[clock][1]


def perfetto(data):
    sequences, tracks, open_calls, spans, lost = collections.defaultdict(Sequence), {}, collections.defaultdict(list), [], 0
    for last, packet in packets(data):
        sequence = sequences[last.get(10)]
        flags = last.get(13, 0)
        if flags & 1:
            sequences[last[10]] = sequence = Sequence()
            sequence.is_valid = True
        if flags & 2:
            expect(sequence.is_valid, "a packet needs state that there is not")
        if 59 in last:
            defaults, _ = message(last[59])
            sequence.clock = defaults.get(58, 6)
            sequence.track = message(defaults[11])[0][11]
        if 6 in last:
            clocks = [message(clock)[0] for clock in message(last[6])[1][1]]
            boot = next(clock[2] for clock in clocks if clock[1] == 6)
            for clock in clocks:
                # An absolute time is that of the clock; a difference goes on from it.
                sequence.clocks[clock[1]] = (clock[2], boot - clock[2])
                if clock.get(3):
                    sequence.incremental.add(clock[1])
        if 60 in last:
            track, _ = message(last[60])
            thread = message(track[4])[0] if 4 in track else message(track[3])[0] if 3 in track else None
            parent = tracks.get(track.get(5))
            expect(track[1] not in tracks and (3 in track or parent), "tracks")
            tracks[track[1]] = (thread[1], thread.get(2), 0) if thread is not None else (*parent[:2], track[1])
        if 12 in last:
            for entry in message(last[12])[1][2]:
                entry, _ = message(entry)
                expect(entry[1] not in sequence.names, "an interned name twice")
                sequence.names[entry[1]] = entry[2].decode()
        if 11 not in last:
            continue
        event, every = message(last[11])
        notes = {}
        for note in every[4]:
            note, _ = message(note)
            notes[note[10].decode()] = note[6].decode() if 6 in note else note[3]
        ns = sequence.time(last.get(58, sequence.clock), last[8])
        uuid = event.get(11, sequence.track)
        pid, tid, stack = tracks[uuid]
        if event.get(23) == b"events lost":
            lost += notes["events"]
        elif event[9] == 1:
            open_calls[uuid].append((sequence.names[event[10]], ns))
        elif event[9] in (2, 3):
            name, start = open_calls[uuid].pop() if event[9] == 2 else (sequence.names[event[10]], ns)
            expect(start <= ns, "an end before its begin")
            how = notes.get("end")
            calls = notes.get("calls", 0 if how == "orphan" or "before" in notes else 1)
            spans.append(Span(pid, tid, name, None, start, ns, None, None, None, calls, how,
                              [flag for flag in ("open", "uncertain", "before") if flag in notes]))
        else:
            raise AssertionError(f"an event of type {event[9]}")
    expect(not any(open_calls.values()), "calls without an end")
    perfetto.lost = lost
    return spans


@case(some=("formats", 3))
def perfetto_calls(scene):
    """Begins and ends of a decoder of our own: each call where it is, by threads and stacks; filters, a family; names."""
    said = compare_spans(scene, "perfetto", perfetto, timed=False)
    data = scene.export("perfetto")
    spans = perfetto(data)
    expect(HOSTILE.decode(errors="replace") in {span.name for span in spans}, "the odd name")
    expect(perfetto(gzip.decompress(scene.export("perfetto", into="x.gz"))) == spans, "gzip")
    return f"{said}, {len(data) / len(spans):.1f} bytes a call"


# ---- csv and jsonl ----

def row_spans(rows):
    spans = []
    for row in rows:
        how = row["end"] if row["end"] != "returned" else None
        flags = [flag for flag in ("open", "uncertain", "before") if row[flag]]
        spans.append(Span(row["pid"], row["tid"], row["name"], row["module"], row["start_ns"], row["end_ns"], row["duration_ns"],
                          row["self_ns"], row["off_ns"], row["calls"], how, flags))
        expect((row["end"] in ("exit", "killed", "still open")) >= row["open"], str(row))
    return spans


def csv_rows(data):
    text = {"thread", "name", "module", "end"}
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""))
    return [{key: value if key in text else int(value or 0) for key, value in row.items()} for row in rows]


def jsonl_rows(data):
    return [{key: 0 if value is None else value for key, value in row.items()} for row in harness.parse_lines(data.decode())]


def compare_rows(scene, form, decode):
    said = compare_spans(scene, form, lambda data: row_spans(decode(data)))
    rows = decode(scene.export(form))
    ids = {(line["id"], line["parent"] or 0) for line in scene.lines() if line["kind"] in ("enter", "tail", "point")}
    pid = scene.manifest()["pid"]
    expect({(row["id"], row["parent"]) for row in rows if row["pid"] == pid and row["calls"]} == ids, f"{form}: other ids than replay's")
    expect(HOSTILE.decode(errors="replace") in {row["name"] for row in rows}, f"{form}: the odd name")
    few = decode(scene.export(form, "--limit", "100"))
    if form == "parquet":  # rows that are near each other are in the order of their begin
        few, rows = (collections.Counter(tuple(row.items()) for row in some) for some in (few, rows))
        expect(few.total() == 100 and few <= rows, f"{form}: --limit")
        last = collections.defaultdict(int)
        for row in map(dict, few):
            last[row["pid"], row["tid"]] = max(last[row["pid"], row["tid"]], row["end_ns"])
        expect(all(row["end_ns"] >= last[row["pid"], row["tid"]] for row in map(dict, rows - few)), f"{form}: --limit: not the first")
    else:
        expect(few == rows[:100], f"{form}: --limit")
    expect(decode(scene.export(form, "--type", "output")) == [] and "nothing passes" in scene.said, f"{form}: --type output")
    return said


@case(some=("formats", 3))
def csv_calls(scene):
    """A row for each call, by a reader of CSV; and by SQLite's."""
    said = compare_rows(scene, "csv", csv_rows)
    harness.need("sqlite3")
    rows = csv_rows(scene.export("csv"))
    sums = scene.run("sqlite3", scene.path("db"), ".mode csv", f".import {scene.path('out')} calls", ".mode list",
                     "SELECT count(*), sum(self_ns), sum(calls), count(DISTINCT name) FROM calls")
    wanted = (len(rows), sum(row["self_ns"] for row in rows), sum(row["calls"] for row in rows), len({row["name"] for row in rows}))
    expect(tuple(map(int, sums.split("|"))) == wanted, f"{sums}: not {wanted}")
    return said


@case(some=("formats", 3))
def jsonl_calls(scene):
    """An object for each call, a line each."""
    return compare_rows(scene, "jsonl", jsonl_rows)


# ---- parquet ----

def zigzag(value):
    return value >> 1 ^ -(value & 1)


def thrift(data, at):
    """(fields, end) of a structure in the compact protocol."""
    values, number = {}, 0

    def value_of(kind, at):
        if kind in (3, 4, 5, 6):
            value, at = varint(data, at)
            return zigzag(value), at
        if kind == 8:
            size, at = varint(data, at)
            return data[at:at + size], at + size
        if kind == 9:
            head, at = data[at], at + 1
            size = head >> 4
            if size == 15:
                size, at = varint(data, at)
            items = []
            for _ in range(size):
                item, at = value_of(head & 15, at)
                items.append(item)
            return items, at
        expect(kind == 12, f"a Thrift type {kind}")
        return thrift(data, at)

    while data[at] != 0:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = varint(data, at)
            number = zigzag(number)
        values[number], at = value_of(head & 15, at)
    return values, at + 1


def delta_packed(data):
    """The values of DELTA_BINARY_PACKED."""
    block, at = varint(data, 0)
    parts, at = varint(data, at)
    count, at = varint(data, at)
    value, at = varint(data, at)
    values, size = [zigzag(value)], block // parts
    while len(values) < count:
        least, at = varint(data, at)
        widths, at = data[at:at + parts], at + parts
        for width in widths:
            bits, at = int.from_bytes(data[at:at + size * width // 8], "little"), at + size * width // 8
            for i in range(min(size, count - len(values))):
                values.append(values[-1] + zigzag(least) + (bits >> i * width & (1 << width) - 1))
    expect(at == len(data), "bytes after the last block")
    return values


def plain(data, kind):
    values, at = [], 0
    while at < len(data):
        if kind == 6:
            length = int.from_bytes(data[at:at + 4], "little")
            at += 4 + length
            values.append(data[at - length:at].decode())
        else:
            at += 4 if kind == 1 else 8
            values.append(int.from_bytes(data[at - (4 if kind == 1 else 8):at], "little", signed=True))
    expect(at == len(data), "bytes after the last value")
    return values


def hybrid(data, count):
    """The values of RLE and bit-packed runs, of the width that the first byte says."""
    width, at, values = data[0], 1, []
    while at < len(data):
        head, at = varint(data, at)
        if head & 1:
            size = (head >> 1) * width
            for eight in range(at, at + size, width):
                bits = int.from_bytes(data[eight:eight + width], "little")
                values += [bits >> i * width & (1 << width) - 1 for i in range(8)]
        else:
            size = (width + 7) // 8
            values += [int.from_bytes(data[at:at + size], "little")] * (head >> 1)
        at += size
    expect(at == len(data) and count <= len(values) < count + 8 and not any(values[count:]), "runs")
    return values[:count]


def chunk_values(data, chunk, kind, unpack):
    """(values, (type, encoding, 1) of each page, how many differ): the pages of a column in a group."""
    values, entries, pages, sizes = [], None, [], [0, 0]
    at = begin = chunk.get(11, chunk[9])
    while at < begin + chunk[7]:
        where = at
        head, at = thrift(data, at)
        page, at = unpack(data[at:at + head[3]]), at + head[3]
        expect(len(page) == head[2], f"{chunk[3]}: its page")
        sizes = [sizes[0] + at - where - head[3] + head[2], sizes[1] + at - where]
        if head[1] == 2:
            expect(not pages and head[7][2] == 0 and where == chunk[11], f"{chunk[3]}: its dictionary")
            entries = plain(page, kind)
            expect(len(entries) == head[7][1] == len(set(entries)), f"{chunk[3]}: entries of its dictionary")
            pages.append((2, 0, 1))
            continue
        expect(head[1] == 0 and (values or where == chunk[9]), f"{chunk[3]}: its first page")
        encoding, before = head[5][2], len(values)
        if encoding == 8:
            values += [entries[index] for index in hybrid(page, head[5][1])]
            expect(set(values) == set(entries), f"{chunk[3]}: the dictionary has more than there is")
        else:
            values += delta_packed(page) if encoding == 5 else plain(page, kind)
        expect(len(values) - before == head[5][1], f"{chunk[3]}: values of a page")
        pages.append((0, encoding, 1))
    expect([page[1] for page in pages] == chunk[2] and len(values) == chunk[5] and sizes == [chunk[6], chunk[7]], f"{chunk[3]}: its chunk")
    return values, pages, len(set(values))


class Table(dict):
    def __init__(self, columns):
        super().__init__(columns)
        self.pages = collections.defaultdict(list)


def parquet_table(path, unpack, wanted=None):
    """{column: values} of a file, or of some columns, with its statistics checked. The pages of each go to table.pages."""
    with open(path, "rb") as file:
        data = file.read()
    expect(data[:4] == data[-4:] == b"PAR1", "magic")
    size = int.from_bytes(data[-8:-4], "little")
    meta, end = thrift(data[-8 - size:-8], 0)
    expect(end == size, "metadata")
    names = [element[4].decode() for element in meta[2][1:]]
    expect(meta[2][0][5] == len(names) and all(element[3] == 0 for element in meta[2][1:]), "schema")
    table = Table((name, []) for name in names if wanted is None or name in wanted)
    expect(len(meta[7]) == len(names) and all(order == {1: {}} for order in meta[7]), "orders of columns")
    for group in meta[4]:
        sizes = [0, 0]
        for name, element, chunk in zip(names, meta[2][1:], group[1]):
            chunk = chunk[3]
            sizes = [sizes[0] + chunk[6], sizes[1] + chunk[7]]
            if name not in table:
                continue
            expect(chunk[3] == [name.encode()] and chunk[1] == element[1] and chunk[4] == 6, f"{name}: its chunk")
            values, encodings, distinct = chunk_values(data, chunk, element[1], unpack)
            expect(encodings == [tuple(page[i] for i in (1, 2, 3)) for page in chunk[13]], f"{name}: its pages {encodings}")
            told = chunk[12]
            if element[1] == 6:
                found = tuple(told[i].decode() if i in told else None for i in (6, 5))
                least, greatest = (text if len(text.encode()) <= 256 else None for text in (min(values, key=str.encode), max(values, key=str.encode)))
                expect((least, greatest) == found, f"{name}: statistics {found}")
            else:
                found = tuple(int.from_bytes(told[i], "little", signed=True) for i in (6, 5))
                expect((min(values), max(values)) == found and len(told[5]) == (4 if element[1] == 1 else 8), f"{name}: statistics {found}")
            expect(told[3] == 0 and told.get(4, distinct) == distinct, f"{name}: distinct {told.get(4)}")
            table.pages[name].append([page[1] for page in encodings])
            expect(len(values) == group[3], f"{name}: {len(values)} values of {group[3]}")
            table[name] += values
        expect(sizes == [group[2], group[6]], "sizes of a group")
    expect(all(len(values) == meta[3] for values in table.values()), "rows")
    return table


def unpack(data):
    result = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=False)
    expect(result.returncode == 0, "zstd")
    return result.stdout


def parquet_rows(scene, folder):
    expect(sorted(os.listdir(folder)) == ["edges.parquet", "functions.parquet", "spans.parquet", "threads.parquet"], "files")
    spans, functions, edges = (parquet_table(os.path.join(folder, f"{name}.parquet"), unpack) for name in ("spans", "functions", "edges"))
    expect(functions["id"] == list(range(len(functions["id"]))), "ids of functions")
    threads = parquet_table(os.path.join(folder, "threads.parquet"), unpack)
    expect(set(zip(spans["pid"], spans["tid"])) <= set(zip(threads["pid"], threads["tid"])), "threads")
    # Edges are the sums of the spans, by caller and callee.
    of = dict(zip(zip(spans["pid"], spans["id"]), spans["function"]))
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for pid, parent, function, lost, *numbers in zip(*(spans[key] for key in ("pid", "parent", "function", "lost", "calls", "duration_ns", "self_ns"))):
        if not lost and ((pid, parent) in of or not parent):
            for i, number in enumerate(numbers):
                sums[of[pid, parent] if parent else -1, function][i] += number
    sums = dict(sums)
    if all(not parent or (pid, parent) in of for pid, parent in zip(spans["pid"], spans["parent"])):  # no caller is left out
        found = {(caller, callee): numbers for caller, callee, *numbers in zip(*edges.values())}
        expect(found == sums, f"edges: {[key for key in found if found[key] != sums.get(key)][:3]}")
    return [dict(zip(("name", "module", *spans), (functions["name"][function], functions["module"][function], *row)))
            for function, row in zip(spans["function"], zip(*spans.values()))]


# Few depths and then many, in a row group that has room for a dictionary of them and in one that has not.
DEPTHS = r"""
static volatile long sum;
__attribute__((noinline)) long leaf(long n) { return sum += n; }
__attribute__((noinline)) long deep(long n) { return n == 0 ? 0 : deep(n - 1) + leaf(1); }
static void leaves(long n) { for (long i = 0; i < n; i++) leaf(i); }
int main(void) { leaves(80000); deep(20000); leaves(20000); deep(20000); leaves(10000); }
"""


DUCKDB = """import { DuckDBInstance } from '@duckdb/node-api';
const c = await (await DuckDBInstance.create(':memory:')).connect();
for (const q of process.argv.slice(2))
  console.log(JSON.stringify((await c.runAndReadAll(q)).getRows(), (k, v) => typeof v === 'bigint' ? Number(v) : v));
"""


@case(some=("formats", 3))
def parquet_calls(scene):
    """The four tables, by a decoder of our own."""
    harness.need("zstd")
    return compare_rows(scene, "parquet", lambda folder: parquet_rows(scene, folder))


@case
def parquet_falls_back(scene):
    """A column whose values become too many for a dictionary goes on as differences; one of many from the begin is nothing else; rows
    of two groups are those of CSV."""
    harness.need("zstd")
    scene.record("-q", "--trace", "leaf", "--trace", "deep", "--", scene.compile(scene.write("depths.c", DEPTHS), "-O1"))
    wanted = csv_rows(scene.export("csv"))
    path = os.path.join(scene.export("parquet", into="tables"), "spans.parquet")
    table = parquet_table(path, unpack, ("id", "start_ns", "duration_ns", "self_ns", "depth", "end"))
    found = sorted(zip(*(table[key] for key in table)))
    expect(found == sorted(tuple(row[key] for key in table) for row in wanted), "the rows differ from CSV's")
    pages = table.pages
    expect(pages["depth"] == [[0, 8, 5], [5]] and pages["id"] == [[5], [5]] and pages["end"] == [[0, 8]] * 2, f"{dict(pages)}")
    return f"{len(found)} calls"


@case
def duckdb_reads(scene):
    """DuckDB, from its npm package, reads Parquet, CSV and JSON lines: the sums of each function are report's."""
    os.symlink(harness.npm(scene.build_dir, "@duckdb/node-api"), scene.path("node_modules"))
    scene.own("children", options=("--follow",))
    folder = scene.export("parquet", into="tables")
    scene.export("csv", into="x.csv")
    scene.export("jsonl", into="x.jsonl.gz")
    script = scene.write("ask.mjs", DUCKDB)
    sums = "SELECT name, sum(calls), sum(self_ns) FROM {} GROUP BY 1"
    answers = scene.run("node", script, sums.format(f"'{folder}/spans.parquet' s JOIN '{folder}/functions.parquet' f ON s.function = f.id"),
                        sums.format(f"read_csv('{scene.path('x.csv')}')"), sums.format(f"read_json('{scene.path('x.jsonl.gz')}')")).splitlines()
    wanted = scene.functions("--family")
    for form, answer in zip(("parquet", "csv", "jsonl"), answers):
        rows = {name: numbers for name, *numbers in json.loads(answer)}
        near(f"{form} calls", {name: row[0] for name, row in rows.items()}, {name: row[0] for name, row in wanted.items()}, 0)
        for name, (calls, self_ns) in rows.items():
            expect(abs(self_ns - wanted[name][1]) <= 2 + calls, f"{form}: {name}: {self_ns} ns, not {wanted[name][1]}")
    return f"{len(rows)} functions"


# ---- where it goes ----

@case
def places(scene):
    """A file, standard output, gzip, zstd; nothing is written over; what cannot be written is said in one line."""
    scene.own()
    for form in FORMATS:
        plain = scene.export(form)
        piped = scene.execute(scene.contrail, "export", "--to", form, scene.trace, text=False, errors=None)
        expect(piped.returncode == 0 and piped.stdout == plain, f"{form}: standard output differs")
        if form in ("perfetto", "pprof"):  # compressed by itself, and as a whole instead
            plain = gzip.decompress(scene.export(form, into="x.gz"))
        expect(gzip.decompress(scene.export(form, into="x.gz")) == plain, f"{form}: gzip differs")
        scene.export(form, into="x.zst")
        expect(scene.execute("zstd", "-dc", scene.path("x.zst"), text=False, errors=None).stdout == plain, f"{form}: zstd differs")
        expect("nothing is written over" in scene.run_bad("export", "--to", form, "-o", scene.path("x.gz"), scene.trace), form)
        for path, why in (("/dev/full", "No space left"), ("/nowhere/x", "No such file"), (scene.folder, "there already")):
            line = scene.run_bad("export", "--to", form, "-o", path, scene.trace)
            expect(why in line and line.count("\n") == 1, f"{form}: {line}")
        with open("/dev/full", "wb") as full:
            result = subprocess.run([scene.contrail, "export", "--to", form, scene.trace], stdout=full, stderr=subprocess.PIPE, check=False)
        expect(result.returncode == 1 and b"No space left" in result.stderr, f"{form}: {result}")


@case
def bad_words(scene):
    """What makes no sense is refused in one line, with status 2."""
    scene.record("-q", "--", "/bin/true")
    for words in (("--to", "nothing"), ("--to", "folded", "--weight", "x"), ("--to", "folded", "--limit", "3"), (),
                  ("--to", "folded", "--min-duration", "x"), ("--to", "atf2"), ("--to", "parquet", "-o", scene.path("p.gz")), ("--to", "contrail", "-o", scene.path("c.zst")),
                  ("--to", "atf2", "-o", scene.path("a"), "--function", "main"), ("--to", "folded", "--function", "[")):
        result = scene.execute(scene.contrail, "export", *words, scene.trace)
        expect(result.returncode == 2 and result.stderr.count("\n") in (1, 2), f"{words}: {result}")
    result = scene.execute(scene.contrail, "export", "--to", "folded", scene.path("nothing"))
    expect(result.returncode == 1 and result.stderr.count("\n") == 1, str(result))


if __name__ == "__main__":
    main(__doc__, Scene)
