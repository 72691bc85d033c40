#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exports: what contrail export writes in the formats of other programs is read here by decoders of our own, made from the
published descriptions, and its sums are those of report, its calls those of replay: with threads, tail calls, longjmp,
exceptions, signal stacks, sampled points, children, names that are no names, and with each filter.

    tests/export.py [--filter PATTERN] [--build DIR]
"""
import base64
import collections
import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree
import zlib

import fixture as fx
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
FORMATS = ("folded", "chrome", "perfetto", "csv", "jsonl", "speedscope", "flamegraph", "pprof", "firefox")  # those that are files


class Scene(harness.Scene):
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
            slack = 2 + wanted[name][0]
            expect(abs(found[name][i] - wanted[name][i]) <= slack, f"{what}: {name}: {('', 'self', 'off')[i]} {found[name][i]} ns, not {wanted[name][i]}")


def compare_spans(scene, form, decode, timed=True, renamed=lambda name: name):
    """All calls against replay's, then with each filter the sums against the report's; a family. What is not in a format's
    names is taken out of the report's by renamed."""
    def functions(*options):
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        for name, row in scene.functions(*options).items():
            sums[renamed(name)] = [a + b for a, b in zip(sums[renamed(name)], row)]
        return sums
    scene.own()
    pid = scene.manifest()["pid"]
    total = 0
    for options in [()] + scene.pieces():
        spans = decode(scene.export(form, *options))
        found = collections.Counter(span[:3] + span[4:6] for span in spans)
        wanted = collections.Counter()
        for (of, tid, name, start, end), count in replayed(scene.lines(*options), pid).items():
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
    for options in FILTERS:
        if timed or options[:1] not in (("--time",), ("--raw",)):
            compare_sums(f"{form} {options}", decode(scene.export(form, *options)), functions(*options), timed)
    scene.own("children", options=("--follow",))
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


@case
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


@case
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
    expect(few == rows[:100], f"{form}: --limit")
    expect(decode(scene.export(form, "--type", "output")) == [] and "nothing passes" in scene.said, f"{form}: --type output")
    return said


@case
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


@case
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


def parquet_table(path, unpack):
    """{column: values} of a file, with its statistics checked."""
    with open(path, "rb") as file:
        data = file.read()
    expect(data[:4] == data[-4:] == b"PAR1", "magic")
    size = int.from_bytes(data[-8:-4], "little")
    meta, end = thrift(data[-8 - size:-8], 0)
    expect(end == size, "metadata")
    names = [element[4].decode() for element in meta[2][1:]]
    expect(meta[2][0][5] == len(names) and all(element[3] == 0 for element in meta[2][1:]), "schema")
    table = {name: [] for name in names}
    for group in meta[4]:
        for name, element, chunk in zip(names, meta[2][1:], group[1]):
            chunk = chunk[3]
            expect(chunk[3] == [name.encode()] and chunk[1] == element[1] and chunk[4] == 6, f"{name}: its chunk")
            head, at = thrift(data, chunk[9])
            page = unpack(data[at:at + head[3]])
            expect(len(page) == head[2] and head[5][1] == chunk[5] == group[3], f"{name}: its page")
            if head[5][2] == 5:
                values = delta_packed(page)
                width = 4 if element[1] == 1 else 8
                found = tuple(int.from_bytes(chunk[12][i], "little", signed=True) for i in (6, 5))
                expect((min(values), max(values)) == found and len(chunk[12][5]) == width, f"{name}: statistics {found}")
            else:
                values, at = [], 0
                while at < len(page):
                    length = int.from_bytes(page[at:at + 4], "little")
                    values.append(page[at + 4:at + 4 + length].decode())
                    at += 4 + length
            expect(len(values) == group[3], f"{name}: {len(values)} values of {group[3]}")
            table[name] += values
    expect(all(len(values) == meta[3] for values in table.values()), "rows")
    return table


def parquet_rows(scene, folder):
    def unpack(data):
        result = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=False)
        expect(result.returncode == 0, "zstd")
        return result.stdout
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


DUCKDB = """import { DuckDBInstance } from '@duckdb/node-api';
const c = await (await DuckDBInstance.create(':memory:')).connect();
for (const q of process.argv.slice(2))
  console.log(JSON.stringify((await c.runAndReadAll(q)).getRows(), (k, v) => typeof v === 'bigint' ? Number(v) : v));
"""


@case
def parquet_calls(scene):
    """The four tables, by a decoder of our own."""
    harness.need("zstd")
    return compare_rows(scene, "parquet", lambda folder: parquet_rows(scene, folder))


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


# ---- speedscope ----

def speedscope(data):
    """(spans, self times by (pid, tid, name)) of a document, checked as its schema and its importer have it."""
    document = json.loads(data)
    expect(document["$schema"] == "https://www.speedscope.app/file-format-schema.json", "another schema")
    frames = document["shared"]["frames"]
    expect(all(isinstance(frame["name"], str) and isinstance(frame.get("line", 1), int) for frame in frames), "frames")
    spans, selves, lost = [], collections.Counter(), 0
    for profile in document["profiles"]:
        expect(profile["type"] == "evented" and profile["unit"] == "nanoseconds", "profile")
        pid, tid = map(int, profile["name"].rsplit(" ", 1)[1].split("/"))
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            name, at = frames[event["frame"]]["name"], event["at"]
            expect(last <= at <= profile["endValue"], f"{event}: after {last}")
            if stack:
                selves[pid, tid, frames[stack[-1][0]]["name"]] += at - last
            last = at
            if event["type"] == "O":
                stack.append((event["frame"], at))
                continue
            frame, start = stack.pop()
            expect(event["type"] == "C" and frame == event["frame"], f"{event} closes {frame}")
            if name == "(events lost)":
                lost += 1
            else:
                spans.append(Span(pid, tid, name, None, start, at, None, None, None, 1, None, None))
        expect(not stack, "frames without a close")
    return spans, selves, lost


def raw_selves(scene, *options):
    return {name: row[1] for name, row in scene.functions("--raw", *options).items()}


def compare_selves(what, found, scene, calls, *options):
    """Times on the clock, against report's raw self times; each of so many calls may be rounded."""
    sums = collections.Counter()
    for (_, _, name), ns in found.items():
        sums[name] += ns
    near(what, sums, raw_selves(scene, *options), 2 + calls)


def between_stacks(lines):
    """Options for pieces that begin where a thread is on a stack that has no frames: a handler has returned, and the kernel has not;
    or has been there and not begun."""
    places, last = [], {}
    for line in lines:
        before = last.get(line["tid"])
        if before and line["stack"] != before["stack"] and line["ts_ns"] - before["ts_ns"] > 100:
            places.append((before["ts_ns"] + line["ts_ns"]) // 2)
        elif before and before["kind"] == "switch" and line["ts_ns"] - before["ts_ns"] > 100:
            places.append((before["ts_ns"] + line["ts_ns"]) // 2)
        last[line["tid"]] = line
    expect(len(places) > 3, "the handler's stack")
    return [("--from", f"{place}ns", "--to", f"{place + 10000}ns") for place in places[:6]]


@case
def speedscope_calls(scene):
    """Opens and closes in order; each call of the threads that have one stack; the time on top of the stack; a family."""
    scene.own()
    pid, total = scene.manifest()["pid"], 0
    for options in [()] + scene.pieces() + between_stacks(scene.lines()):
        lines = scene.lines(*options)
        spans, selves, _ = speedscope(scene.export("speedscope", *options))
        switching = {line["tid"] for line in lines if line.get("stack")}
        wanted = collections.Counter({key: count for key, count in replayed(lines, pid).items() if key[1] not in switching})
        found = collections.Counter(span[:3] + span[4:6] for span in spans if span.tid not in switching)
        expect(found == wanted and (found or options), f"{options}: {found - wanted} and not {wanted - found}")
        compare_selves(f"{options}", selves, scene, len(lines), *options)
        total += len(spans)
    expect("(events lost)" not in {span.name for span in spans}, "lost events")
    expect(HOSTILE.decode(errors="replace") in {span.name for span in speedscope(scene.export("speedscope"))[0]}, "the odd name")
    # With filters: where a call is left out, its time is that of the calls around it that are in.
    for options in (("--function", "deep"), ("--min-duration", "3us"), ("--reason", "exception,longjmp")):
        calls = collections.Counter(span.name for span in speedscope(scene.export("speedscope", *options))[0])
        wanted = {name: row[0] for name, row in scene.functions(*options).items()}
        expect(all(calls[name] >= count for name, count in wanted.items()) and set(calls) == set(wanted), f"{options}: {calls}, not {wanted}")
    scene.own("children", options=("--follow",))
    spans, selves, _ = speedscope(scene.export("speedscope"))
    compare_selves("family", selves, scene, len(spans), "--family")
    expect(len({span.pid for span in spans}) == 3, "processes")
    return f"{total} calls"


@case
def speedscope_page(scene):
    """speedscope's own page, from its npm package, imports the file: in Chromium it shows the threads' names; and it fits the
    schema of the package."""
    harness.need("chromium")
    release = os.path.join(harness.npm(scene.build_dir, "speedscope"), "speedscope", "dist", "release")
    scene.own("children", options=("--follow",))
    data = scene.export("speedscope")
    try:
        import jsonschema  # pylint: disable=import-outside-toplevel
        with open(os.path.join(release, "file-format-schema.json"), encoding="utf-8") as file:
            jsonschema.validate(json.loads(data), json.load(file))
    except ImportError:
        pass
    script = scene.write("profile.js", f'speedscope.loadFileFromBase64("x.speedscope.json", "{base64.b64encode(data).decode()}")')
    dom = scene.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                    f"--user-data-dir={scene.path('profile')}", "--virtual-time-budget=8000", "--dump-dom",
                    f"file://{release}/index.html#localProfilePath={script}")
    names = {profile["name"] for profile in json.loads(data)["profiles"]}
    expect(len(names) == 5 and all(name in dom for name in names), f"not all of {names}: {dom[:300]}")
    return f"{len(names)} threads"


# ---- firefox ----

TABLES = {  # columns of version 48 of the processed format, and what their values are indexes of
    "samples": {"time": None, "weight": None, "stack": "stackTable"},
    "markers": {"data": None, "name": "stringArray", "startTime": None, "endTime": None, "phase": None, "category": "categories"},
    "stackTable": {"frame": "frameTable", "prefix": "stackTable", "category": "categories", "subcategory": None},
    "frameTable": {"address": None, "inlineDepth": None, "category": "categories", "subcategory": None, "func": "funcTable",
                   "nativeSymbol": None, "innerWindowID": None, "implementation": None, "line": None, "column": None},
    "funcTable": {"name": "stringArray", "isJS": None, "relevantForJS": None, "resource": "resourceTable", "fileName": "stringArray",
                  "lineNumber": None, "columnNumber": None},
    "resourceTable": {"lib": None, "name": "stringArray", "host": None, "type": None},
    "nativeSymbols": {"libIndex": None, "address": None, "name": "stringArray", "functionSize": None},
}


def nanoseconds(milliseconds):
    whole, _, rest = str(milliseconds).partition(".")
    return int(whole) * 1_000_000 + int((rest + "000000")[:6])


def firefox(data):
    """(self times by (pid, tid, name), markers as (tid, name, start, end, data))."""
    document = json.loads(data, parse_float=str)
    meta = document["meta"]
    expect(meta["preprocessedProfileVersion"] == 48 and any(category["color"] == "grey" for category in meta["categories"]), "meta")
    selves, markers = collections.Counter(), []
    for thread in document["threads"]:
        sizes = {name: thread[name]["length"] for name in TABLES}
        sizes.update(stringArray=len(thread["stringArray"]), categories=len(meta["categories"]))
        for name, columns in TABLES.items():
            for column, of in columns.items():
                values = thread[name][column]
                expect(len(values) == sizes[name], f"{name}.{column} has {len(values)} of {sizes[name]}")
                expect(of is None or all(value is None or 0 <= value < sizes[of] for value in values), f"{name}.{column}: no {of}")
        strings, stacks, samples = thread["stringArray"], thread["stackTable"], thread["samples"]
        expect(samples["weightType"] == "tracing-ms" and isinstance(thread["pid"], str), "thread")
        expect(all(prefix is None or prefix < i for i, prefix in enumerate(stacks["prefix"])), "a stack before its prefix")
        names = [strings[thread["funcTable"]["name"][thread["frameTable"]["func"][frame]]] for frame in stacks["frame"]]
        last = 0
        for stack, time, weight in zip(samples["stack"], samples["time"], samples["weight"]):
            expect(nanoseconds(time) >= last, "samples overlap")
            last = nanoseconds(time) + nanoseconds(weight)
            selves[int(thread["pid"]), thread["tid"], names[stack]] += nanoseconds(weight)
        table = thread["markers"]
        for name, start, end, phase, data in zip(*(table[column] for column in ("name", "startTime", "endTime", "phase", "data"))):
            expect((phase == 1) == (end is not None), "phases")
            markers.append((thread["tid"], strings[name], nanoseconds(start), nanoseconds(end or 0), data))
    return selves, markers


@case
def firefox_calls(scene):
    """Weights of samples are self times on the clock; open and uncertain calls are markers; tables fit together."""
    scene.own()
    for options in [()] + scene.pieces():
        lines = scene.lines(*options)
        selves, markers = firefox(scene.export("firefox", *options))
        compare_selves(f"{options}", selves, scene, len(lines), *options)
        points = [line["name"] for line in lines if line["kind"] in ("point", "orphan")]
        rest = [marker for marker in markers if not {"open", "before", "uncertain"} & set(marker[4])]
        expect(collections.Counter(points) == collections.Counter(marker[1] for marker in rest), f"{options}: points")
        expect(("--to" in options) == any("open" in marker[4] for marker in markers), f"{options}: open calls")
        expect(("--from" in options) == any("before" in marker[4] for marker in markers), f"{options}: calls from before")
    names = {name for _, _, name in firefox(scene.export("firefox"))[0]}
    expect(HOSTILE.decode(errors="replace") in names, "the odd name")
    selves, _ = firefox(scene.export("firefox", "--function", "deep"))
    expect({name for _, _, name in selves} == {"deep"}, "--function")
    scene.own("children", options=("--follow",))
    selves, _ = firefox(scene.export("firefox"))
    compare_selves("family", selves, scene, 50000, "--family")
    expect(len({pid for pid, _, _ in selves}) == 3, "processes")
    return f"{len(selves)} functions"


@case
def coroutines(scene):
    """What is on other stacks: tracks and threads of its own, where it nests; for formats of one stack what runs."""
    program = fx.build(fx.Fixture(os.path.join(fx.FIXTURES, "coroutines.c")), "gcc-O2", os.path.join(scene.build_dir, "tests", "fixtures"))
    scene.environment = dict(os.environ, CT_COUNTS=scene.path("counts"))
    scene.record("-q", "--", program)
    lines, pid = scene.lines(), scene.manifest()["pid"]
    stacks = {line["stack"] for line in lines if line.get("stack")}
    expect(len(stacks) > 1, f"{len(stacks)} stacks")
    wanted = replayed(lines, pid)
    for form, decode in (("chrome", chrome), ("perfetto", perfetto), ("csv", lambda data: row_spans(csv_rows(data)))):
        found = collections.Counter(span[:3] + span[4:6] for span in decode(scene.export(form)))
        expect(found == wanted, f"{form}: {list((found - wanted).items())[:3]} and not {list((wanted - found).items())[:3]}")
    tracks = {line["stack"] for line in csv_rows(scene.export("csv"))}
    expect(tracks >= stacks, "stacks of rows")
    for form, decode in (("speedscope", speedscope), ("firefox", firefox)):
        selves = decode(scene.export(form))[form == "speedscope"]
        # Which stack runs is known from the next call on it on, so single frames differ from report's; but there is no more time
        # than the threads had, and most of what report has.
        total, lives, most = sum(raw_selves(scene).values()), collections.defaultdict(list), sum(selves.values())
        for line in lines:
            lives[line["tid"]].append(line["ts_ns"])
        longest = sum(max(times) - min(times) for times in lives.values())
        expect(total / 2 < most <= longest, f"{form}: {most} ns, report {total}, the threads {longest}")
    return f"{len(stacks)} stacks, {sum(wanted.values())} calls"


@case
def points_and_counts(scene):
    """Sampled points stand for several calls, and calls that were only counted are there: sums are those of report."""
    scene.own(options=("--mode", "light", "--sample", "16"))
    wanted = scene.functions()
    sampled = 0
    for form, decode in (("chrome", chrome), ("perfetto", perfetto), ("csv", lambda data: row_spans(csv_rows(data))),
                         ("jsonl", lambda data: row_spans(jsonl_rows(data)))):
        spans = decode(scene.export(form))
        compare_sums(form, spans, wanted, timed=False)
        sampled = sum(span.calls > 1 for span in spans)
        expect(sampled > 0 and all(span.start == span.end for span in spans if span.calls > 1), f"{form}: no sampled points")
    calls = folded(scene.export("folded", "--weight", "calls"))
    near("folded", leaves(calls), {clean(name, ";"): row[0] for name, row in wanted.items()}, 0)
    return f"{sampled} points for several calls"


@case
def damaged(scene):
    """Of a thread's file that is cut, what is before that place is exported, and it is said."""
    scene.own()
    before = len(csv_rows(scene.export("csv")))
    path = max((os.path.join(folder, name) for folder, _, names in os.walk(scene.trace) if os.path.basename(folder).startswith("thread")
                for name in names), key=os.path.getsize)
    os.truncate(path, os.path.getsize(path) * 2 // 3)
    for form in FORMATS:
        data = scene.export(form)
        expect("damaged or cut" in scene.said and "DAMAGED" in scene.said, f"{form}: {scene.said}")
        expect(data, form)
    after = len(csv_rows(scene.export("csv")))
    expect(0 < after < before, f"{after} rows, before {before}")
    compare_sums("csv", row_spans(csv_rows(scene.export("csv"))), scene.functions())
    return f"{after} of {before} calls"


@case
def lost_events(scene):
    """Events that the recording lost are said on standard error, and where they are by formats that have a place for it."""
    source = scene.write("burst.c", "static volatile long n;\n__attribute__((noinline)) void leaf(void) { n++; }\n"
                         "int main(void) { for (long i = 0; i < 200000; i++) leaf(); return 0; }\n")
    program = scene.path("burst")
    scene.run("gcc", "-O1", "-o", program, source)
    scene.record("-q", "--no-wait", "--ring-size", "1", "--", program)
    dropped = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["dropped"]
    if dropped == 0:
        raise harness.Skip("no event was lost")
    found = chrome(scene.export("chrome"))
    expect("LOST" in scene.said, scene.said)
    document = json.loads(scene.export("chrome"))
    said = sum(event["args"]["events"] for event in document["traceEvents"] if event["name"] == "events lost")
    expect(said == document["otherData"]["lost_events"] == dropped, f"chrome: {said} of {dropped}")
    expect(any("uncertain" in span.flags or span.how == "lost" for span in found) or said, "nothing is uncertain")
    perfetto(scene.export("perfetto"))
    expect(perfetto.lost == dropped, f"perfetto: {perfetto.lost} of {dropped}")
    compare_sums("calls", found, scene.functions())
    for form, decode in (("csv", csv_rows), ("jsonl", jsonl_rows)):
        rows = decode(scene.export(form))
        expect(sum(row["lost"] for row in rows) == dropped, f"{form}: {sum(row['lost'] for row in rows)} of {dropped}")
        expect(all(row["name"] == "(events lost)" and row["calls"] == 0 for row in rows if row["lost"]), f"{form}: lost events")
    spans, _, lost = speedscope(scene.export("speedscope"))
    expect(lost > 0 and "LOST" in scene.said, f"speedscope: {lost}")
    _, markers = firefox(scene.export("firefox"))
    said = sum(int(marker[4]["events"]) for marker in markers if marker[1] == "events lost")
    expect(said == dropped, f"firefox: {said} of {dropped}")
    return f"{dropped} lost"


# ---- folded ----

def compare_folded(scene, *options, **more):
    wanted = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, numbers in scene.functions(*options, **more).items():
        wanted[clean(name, ";")] = numbers
    times = folded(scene.export("folded", *options))
    near("time", leaves(times), {name: row[1] for name, row in wanted.items()}, 2 + len(times))
    calls = folded(scene.export("folded", "--weight", "calls", *options))
    # Calls of functions that were only counted are in no path.
    near("calls", leaves(calls), {name: row[0] for name, row in wanted.items()}, 0)
    return times, calls


@case
def folded_sums(scene):
    """Self times and calls of each function, under all filters, as report has them; and a path is who called whom."""
    scene.own()
    for options in FILTERS + scene.pieces():
        times, calls = compare_folded(scene, *options)
    calls = folded(scene.export("folded", "--weight", "calls"))
    ends = collections.Counter(path[-2:] for path in calls.elements())
    expect(ends[("passes", "thrower")] == 116, str(ends[("passes", "thrower")]))
    hostile = clean(HOSTILE.decode(errors="replace"), ";")
    expect(any(path[-1] == hostile and count == 96 for path, count in calls.items()), f"no {hostile!r}")
    off = folded(scene.export("folded", "--weight", "off"))
    slept = sum(weight for path, weight in off.items() if "usleep" in path)
    expect(slept >= 20 * 500_000, f"{slept} ns off the processor")
    return f"{len(calls)} paths"


@case
def folded_family(scene):
    """All processes in one file; one of them; threads of two of them."""
    scene.own("children", options=("--follow",))
    calls = folded(scene.export("folded", "--weight", "calls"))
    expect(sum(weight for path, weight in calls.items() if path[-2:] == ("child", "tail")) == 150, "calls of the children")
    wanted = scene.functions("--family")
    near("calls", leaves(calls), {clean(name, ";"): row[0] for name, row in wanted.items()}, 0)
    children = [child for child in scene.manifest()["children"]]
    pids = [child["pid"] for child in children]
    for pid, count in zip(pids, (50, 100)):
        one = folded(scene.export("folded", "--weight", "calls", "--process", str(pid)))
        near(f"process {pid}", leaves(one), {name: row[0] for name, row in scene.functions("--process", str(pid)).items()}, 0)
    both = folded(scene.export("folded", "--weight", "calls", "--thread", str(pids[0]), "--thread", str(pids[1])))
    expect(leaves(both)["tail"] == 150 and "main" not in leaves(both), str(leaves(both)))
    expect("process 1" in scene.export("folded", "--process", "1", status=2), "a process that is not there")
    expect("no thread 1" in scene.export("folded", "--thread", "1", status=2), "a thread that is not there")


# ---- flame graphs ----

def flamegraph(data):
    """(name, row, x, width, title) of each frame of the picture."""
    ns = "{http://www.w3.org/2000/svg}"
    root = xml.etree.ElementTree.fromstring(data)
    expect(root.tag == ns + "svg" and b"http" not in data.replace(b"http://www.w3.org/2000/svg", b""), "something from outside")
    expect(len(root.findall(f".//{ns}script")) == 1, "scripts")
    frames = []
    for group in root.findall(ns + "g"):
        rect, title = group.find(ns + "rect"), group.find(ns + "title").text
        x, width = float(group.get("data-x")), float(group.get("data-w"))
        expect(abs(float(rect.get("x")) - x - 10) < 0.01 and float(rect.get("width")) == width, "a rectangle elsewhere")
        frames.append((group.get("data-n"), int(group.get("data-d")), x, width, title))
    return frames


THIN = 0.2  # what is not drawn


@case
def flamegraph_picture(scene):
    """The widths are the weights, each frame lies on its caller, names are nothing but text; without a colour or a script
    the picture says the same."""
    scene.own()
    for weight in ("time", "calls", "off"):
        paths = folded(scene.export("folded", "--weight", weight))
        frames = flamegraph(scene.export("flamegraph", "--weight", weight))
        total = sum(paths.values())
        expect(frames[0][:4] == ("all", 0, 0.0, 1180.0), str(frames[0]))
        open_frames, found = [], collections.Counter()
        for name, row, x, width, title in frames:
            del open_frames[row:]
            expect(len(open_frames) == row, f"{name} on row {row}")
            expect(not open_frames or (open_frames[-1][1] - 0.01 <= x and x + width <= open_frames[-1][2] + 0.01), f"{name} hangs over")
            open_frames.append((clean(name, ";"), x, x + width))
            found[tuple(frame[0] for frame in open_frames[1:])] += width
            expect(title.startswith(name + ": "), title)
        wanted = collections.Counter()
        for path, number in paths.items():
            for i in range(len(path) + 1):
                wanted[path[:i]] += number * 1180 / total
        for path, width in found.items():
            expect(-0.05 < wanted[path] - width < THIN + 0.05, f"{weight}: {path}: {width}, not {wanted[path]}")
        # Two functions of one name are two frames, of which one may be too thin; what is wide is there.
        expect(all(path in found for path, width in wanted.items() if width > 1), f"{weight}: a wide one is not there")
    names = {frame[0] for frame in flamegraph(scene.export("flamegraph", "--weight", "calls"))}
    # XML has no control characters at all.
    expect(clean(HOSTILE.decode(errors="replace")) in names, "the odd name")
    return f"{len(frames)} frames"


@case
def flamegraph_in_a_browser(scene):
    """Chromium runs the script: the search marks what matches, a click goes into a frame; no error, nothing loaded."""
    browser = harness.need("chromium")
    scene.own()
    svg = scene.export("flamegraph", "--weight", "calls", into="picture.svg").decode()
    tail = ("<script><![CDATA[search('deep');const hits=document.querySelectorAll('.f.m').length;const f=[...frames].find(g=>g.dataset.n==='main');"
            "zoom(f);const w=f.querySelector('rect').getAttribute('width');const hidden=document.querySelectorAll('.f.h').length;"
            "document.documentElement.setAttribute('data-result',hits+' '+w+' '+hidden+' '+found.textContent);]]></script></svg>")
    page = scene.write("page.svg", svg.replace("</svg>", tail))
    dom = scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
                    "--virtual-time-budget=3000", "--dump-dom", "file://" + page)
    result = re.search(r'data-result="(\d+) ([\d.]+) (\d+) (\d+) frames match: ([\d.]+) %"', dom)
    expect(result is not None, dom[:300])
    hits, width, hidden = int(result[1]), float(result[2]), int(result[3])
    frames = flamegraph(svg.encode())
    expect(hits == int(result[4]) == sum("deep" in frame[0] for frame in frames if frame[1] > 0), f"{hits} hits")
    expect(width == 1180 and hidden > 0, f"{width} wide, {hidden} hidden")
    picture = scene.path("picture.png")
    scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
              "--window-size=1220,800", f"--screenshot={picture}", "file://" + scene.path("picture.svg"))
    expect(os.path.getsize(picture) > 10000, "an empty picture")
    return f"{hits} hits"


TWO = r"""
#include <stdlib.h>
#include <unistd.h>
#define OWN __attribute__((noinline, noipa))
static volatile long sum;
OWN long leaf(long n) { for (long i = 0; i < n; i++) sum += i; return sum; }
OWN long parse(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
OWN long stem(long n) __asm__(STEM);
OWN long stem(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
OWN long ways(long n) __asm__(WAYS);
OWN long ways(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
int main(int argc, char **argv) {
  for (int i = 0; i < 50; i++) { parse(40); stem(10 * atoi(argv[1])); ways(10 * atoi(argv[1])); }
  usleep(1000 * atoi(argv[1]));
  return argc == 9;
}
"""


def folded_twice(data):
    """(before, after) by path."""
    paths = collections.defaultdict(lambda: [0, 0])
    for line in data.decode().splitlines():
        path, before, after = line.rsplit(" ", 2)
        paths[tuple(path.split(";"))][0] += int(before)
        paths[tuple(path.split(";"))][1] += int(after)
    return {path: tuple(numbers) for path, numbers in paths.items()}


def two_traces(scene):
    """Of two programs, whose file and some of whose functions have other names."""
    source, traces = scene.write("two.c", TWO), []
    for version, stem, ways in ((1, "stem", "old_way"), (2, "stem.part.0", "new_way")):
        program = scene.compile(source, "-O1", f'-DSTEM="{stem}"', f'-DWAYS="{ways}"', name=f"two{version}")
        traces.append(scene.path(f"trace{version}"))
        scene.run(scene.contrail, "record", "-q", "-o", traces[-1], "--", program, str(version))
    return traces


def changes(data):
    """(name, row, x, width, mark, change as a signed width, title) of each frame of the picture of a difference."""
    ns = "{http://www.w3.org/2000/svg}"
    frames = []
    for group in xml.etree.ElementTree.fromstring(data).findall(ns + "g"):
        rects = group.findall(ns + "rect")
        x, width, change = float(group.get("data-x")), float(group.get("data-w")), 0.0
        expect(len(rects) in (1, 2) and float(rects[0].get("width")) == width, "rectangles")
        if len(rects) == 2:
            change = float(rects[1].get("width"))
            expect(abs(float(rects[1].get("x")) + change - x - width - 10) < 0.01, "the change is not at the end of the frame")
            change *= {"url(#more)": 1, "url(#less)": -1}[rects[1].get("fill")]
        label = group.find(ns + "text").text or ""
        expect(not label or label.startswith(group.get("data-m")), label)
        frames.append((group.get("data-n"), int(group.get("data-d")), x, width, group.get("data-m"), change, group.find(ns + "title").text))
    return frames


@case
def two_traces_folded(scene):
    """The weights of both in a line, path by path: those that each trace has by itself; of what was renamed by the compiler
    too; of a piece; with filters."""
    before, after = two_traces(scene)
    for options in ((), ("--weight", "calls"), ("--weight", "off"), ("--function", "leaf"), ("--time", "cpu")):
        both = folded_twice(scene.export("folded", *options, before, trace=after))
        for side, trace in enumerate((before, after)):
            wanted = collections.Counter()
            for path, weight in folded(scene.export("folded", *options, trace=trace)).items():
                wanted[tuple("stem.part.0" if name == "stem" and any("stem.part.0" in p for p in both) else name for name in path)] += weight
            found = {path: numbers[side] for path, numbers in both.items() if numbers[side]}
            expect(found == dict(wanted), f"{options} {side}: {set(found.items()) ^ set(wanted.items())}")
    calls = {path[-2:]: numbers for path, numbers in folded_twice(scene.export("folded", "--weight", "calls", before, trace=after)).items()}
    wanted = {("main", "parse"): (50, 50), ("parse", "leaf"): (2000, 2000), ("main", "stem.part.0"): (50, 50),
              ("stem.part.0", "leaf"): (500, 1000), ("old_way", "leaf"): (500, 0), ("new_way", "leaf"): (0, 1000)}
    expect({key: calls.get(key) for key in wanted} == wanted, str(calls))
    piece = folded_twice(scene.export("folded", f"{before}@1ms..", trace=after + "@..1ns"))
    expect(not any(numbers[1] for path, numbers in piece.items() if path[-1] == "leaf"), "a piece")
    same = folded_twice(scene.export("folded", before, trace=before))
    expect(same and all(a == b for a, b in same.values()), "a trace differs from itself")
    for words, why in (("--thread 1", "in its name"), ("--from 1", "in its name"), (f"{after}", "at a time"), ("--to pprof", "one trace")):
        line = scene.run_bad("export", *(() if "pprof" in words else ("--to", "folded")), *words.split(), before, after, status=2)
        expect(why in line and line.count("\n") == 1, f"{words}: {line}")
    return f"{len(both)} paths"


@case
def flamegraph_of_a_difference(scene):
    """A frame is as wide as the wider of both; what is hatched is what its own weight has changed by; all of it without a
    colour too: by the hatchings, marks and titles. Chromium runs it, and a hatched part stays where it is in its frame."""
    before, after = two_traces(scene)
    for weight in ("calls", "time", "off"):
        both = folded_twice(scene.export("folded", "--weight", weight, before, trace=after))
        frames = changes(scene.export("flamegraph", "--weight", weight, before, trace=after))
        scale = 1180 / sum(max(numbers) for numbers in both.values())
        sums = [sum(numbers[side] for numbers in both.values()) * scale for side in (0, 1)]
        expect(abs(sum(frame[5] for frame in frames) - (sums[1] - sums[0])) < THIN * len(both), f"{weight}: the changes are not all of it")
        open_frames, own = [], {}
        for name, row, x, width, mark, change, title in frames:
            del open_frames[row:]
            open_frames.append(name)
            own[tuple(open_frames[1:])] = own.get(tuple(open_frames[1:]), 0) + change
            expect((mark in ("+ ", "\u2212 ")) == ("(" not in title), f"{mark} {title}")
        for path, (a, b) in both.items():
            expect(abs(own.get(path, 0) - (b - a) * scale) < THIN * 2, f"{weight}: {path}: {own.get(path)}, not {(b - a) * scale}")
    frames = {frame[0]: frame for frame in changes(scene.export("flamegraph", "--weight", "calls", before, trace=after, into="x.svg"))}
    marks = {name: frames[name][4] for name in ("parse", "stem.part.0", "old_way", "new_way", "main")}
    expect(marks == {"parse": "", "stem.part.0": "\u25b2 ", "old_way": "\u2212 ", "new_way": "+ ", "main": "\u25b2 "}, str(marks))
    title = frames["stem.part.0"][6]
    expect(title == "stem.part.0: 1,050 calls, before 550 calls: +500 calls (+90.9 %); own 0 calls (+0.0 %); 50 calls, before 50", title)
    browser = harness.need("chromium")
    with open(scene.path("x.svg"), encoding="utf-8") as file:
        svg = file.read()
    tail = ("<script><![CDATA[const f=[...frames].find(g=>g.dataset.n==='new_way');zoom(f);const r=f.querySelector('rect'),"
            "l=[...frames].filter(g=>g.dataset.n==='leaf'&&!g.classList.contains('h'))[0],b=l.querySelector('rect'),e=l.querySelector('.e');"
            "const n=(x,a)=>+x.getAttribute(a);document.documentElement.setAttribute('data-result',[n(r,'width'),n(b,'x'),n(b,'width'),"
            "n(e,'x'),n(e,'width'),l.querySelector('text').textContent].join(' '));]]></script></svg>")
    page = scene.write("page.svg", svg.replace("</svg>", tail))
    dom = scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
                    "--virtual-time-budget=3000", "--dump-dom", "file://" + page)
    result = re.search(r'data-result="([\d. ]+) \+ leaf"', dom)
    expect(result is not None, dom[:300])
    width, x, inner, part, part_width = map(float, result[1].split())
    expect(width == 1180 and abs(part - x) < 0.5 and abs(part_width - inner) < 0.5, result[1])
    return f"{len(frames)} names"


# ---- pprof ----

def pprof(data):
    """Samples as (path of (name, file of the module), calls, time, off), outermost first."""
    last, every = message(gzip.decompress(data))
    strings = [text.decode() for text in every[6]]
    expect(strings[0] == "", "the first string")
    types = [message(item)[0] for item in every[1]]
    expect([(strings[item[1]], strings[item[2]]) for item in types] ==
           [("calls", "count"), ("time", "nanoseconds"), ("off", "nanoseconds")], "types")
    expect(strings[last[14]] == "time", "the type that is shown")
    mappings = {item[1]: strings[item[5]] for item in (message(item)[0] for item in every[3])}
    functions = {item[1]: strings[item[2]] for item in (message(item)[0] for item in every[5])}
    locations = {}
    for item in every[4]:
        item, _ = message(item)
        locations[item[1]] = (functions[message(item[4])[0][1]], mappings.get(item.get(2, 0)))
    samples = []
    for item in every[2]:
        _, sample = message(item)
        samples.append((tuple(locations[number] for number in reversed(packed(sample[1]))), *packed(sample[2])))
    return samples


@case
def pprof_sums(scene):
    """The values of all samples, by a decoder of our own, under all filters; and what go tool pprof makes of them."""
    scene.own()
    for options in FILTERS + scene.pieces():
        samples = pprof(scene.export("pprof", *options))
        wanted = scene.functions(*options)
        for i, slack in ((0, 0), (1, 2 + len(samples))):
            sums = collections.Counter()
            for path, *values in samples:
                sums[path[-1][0]] += values[i]
            near(f"{options} {i}", sums, {name: row[i] for name, row in wanted.items()}, slack)
    samples = pprof(scene.export("pprof", into="x.pb.gz"))
    off = folded(scene.export("folded", "--weight", "off"))
    expect(sum(sample[3] for sample in samples) == sum(off.values()) > 0, "time off the processor")
    expect(any(path[-1][0] == HOSTILE.decode(errors="replace") for path, *_ in samples), "the odd name")
    harness.need("go")
    scene.environment = dict(os.environ, HOME=scene.folder, PPROF_TMPDIR=scene.folder)
    for index, column in (("time", 1), ("calls", 0)):
        text = scene.run("go", "tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", "-unit=ns", f"-sample_index={index}",
                         scene.path("x.pb.gz"))
        found = collections.Counter()
        for line in text.splitlines():
            row = re.match(r"\s*(\d+)(?:ns)?\s+[\d.]+%\s+[\d.]+%\s+\d+(?:ns)?\s+[\d.]+%\s+(\S.*)$", line)
            if row and int(row[1]):
                found[row[2]] += int(row[1])
        wanted = {name: row[column] for name, row in scene.functions().items()}
        plain = {name for name in wanted if re.fullmatch(r"[A-Za-z_]\w*", name)}  # others it writes in its own way
        near(index, {name: found[name] for name in plain}, {name: wanted[name] for name in plain}, 0 if column == 0 else 2 + len(samples))
        expect(found["deep"] > 0, text[:500])
    return f"{len(samples)} samples"


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
