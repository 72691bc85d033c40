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
import random
import shutil
import subprocess
import zlib

import harness
from harness import NO_LOADER, case, expect, main

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
        self.record("-q", *(() if self.options.long else NO_LOADER), *options, "--", program, *arguments)
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
    for options in [()] + random.sample(scene.known(scene.pieces), scene.rounds(2, 3)):
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
        self.names, self.note_names, self.note_values = {}, {}, {}
        self.clocks, self.incremental, self.clock, self.track, self.is_valid = {}, set(), 6, None, False

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
            data = message(last[12])[1]
            for table, number in ((sequence.names, 2), (sequence.note_names, 3), (sequence.note_values, 29)):
                for entry in data[number]:
                    entry, _ = message(entry)
                    expect(entry[1] not in table, "an interned name twice")
                    table[entry[1]] = entry[2].decode()
        if 11 not in last:
            continue
        event, every = message(last[11])
        notes = {}
        for note in every[4]:
            note, _ = message(note)
            name = sequence.note_names[note[1]] if 1 in note else note[10].decode()
            notes[name] = sequence.note_values[note[17]] if 17 in note else note[3]
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


# Few of its paths are alike.
TEMPLATES = r"""
#include <stdio.h>
struct Base { virtual int add(int x) { return x + 1; } virtual ~Base() {} };
template <int N> struct Chain { static int of(int x) { return N + Chain<N - 1>::of(x); } };
template <> struct Chain<0> { static int of(int x) { return x; } };
int main(int count, char **) { Base base; printf("%d\n", Chain<60>::of(base.add(count))); }
"""


@case
def perfetto_of_a_compiler(scene):
    """What a compiler does takes no more than two bytes a call, although no piece of it is like another one; or, where the clock's last
    bits are worth more than that, not much more than the trace."""
    compiler = scene.run("g++", "-print-prog-name=cc1plus").strip()
    scene.run("g++", "-E", "-o", scene.path("x.ii"), scene.write("x.cpp", TEMPLATES))
    scene.record("-q", "--", compiler, "-fpreprocessed", scene.path("x.ii"), "-quiet", "-O2", "-o", scene.path("x.s"))
    size = len(scene.export("perfetto"))
    calls = sum(row[0] for row in scene.functions().values())
    trace = scene.info()["bytes"]
    expect(calls > 1000000 and size <= max(2 * calls, 1.5 * trace), f"{size} bytes of {calls} calls, of a trace of {trace}")
    return f"{calls} calls, {size / calls:.2f} bytes a call"


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
