#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ATF V2: what contrail export writes is read here by a reader of our own, event by event, and compared with what replay
says; and what a writer of our own makes is read by contrail. Reader and writer are made from the description of the format
(docs/atf.md) and share no code with contrail.

    tests/atf.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import shutil
import struct
import subprocess
import zlib

import harness
from harness import case, expect, longer, main

CALL, RETURN, EXCEPTION = 1, 2, 3
EXCLUDED = ("--exclude", "ld-linux-x86-64.so.2!")
NONE = 0xffffffff
INDEX_HEADER = struct.Struct("<4sBBBBII B7x IIQQQQ".replace(" ", ""))
EVENT = struct.Struct("<QQIIII")
INDEX_FOOTER = struct.Struct("<4sIQQQQ24x")
DETAIL_HEADER = struct.Struct("<4sBBBBIIIQQQQQ4x")
DETAIL = struct.Struct("<IHHIIQQ8QQQQHH")
DETAIL_FOOTER = struct.Struct("<4sIQQQQ24x")
Event = collections.namedtuple("Event", "ns function tid kind depth detail")
Detail = collections.namedtuple("Detail", "sequence type function registers return_address fp sp stack ns")

PROGRAM = r"""
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
static jmp_buf back;
extern "C" {
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long x) { sum += x; return x * 2; }
OWN long tail(long x) { return leaf(x + 1); }
OWN long deep(long x) { return x == 0 ? leaf(1) : deep(x - 1) + 1; }
OWN void jumps(void) { leaf(3); longjmp(back, 1); }
OWN void thrower(long x) { leaf(x); if (x % 2) throw std::runtime_error("x"); sum += x; }
OWN void passes(long x) { thrower(x); sum++; }
OWN void catcher(long x) { try { passes(x); } catch (const std::exception &) { sum += 2; } }
OWN void handler(int n) { leaf(n); }
OWN void *thread(void *a) { for (long i = 0; i < 300; i++) { tail(i); catcher(i); deep(i % 30); } return a; }
OWN void child(void) { for (long i = 0; i < 50; i++) tail(i); }
}
int main(int argc, char **) {
  pthread_t t[2];
  signal(SIGUSR1, handler);
  for (int i = 0; i < 2; i++) pthread_create(t + i, nullptr, thread, nullptr);
  for (int i = 0; i < 20; i++) { if (setjmp(back) == 0) jumps(); raise(SIGUSR1); catcher(i); usleep(1000); }
  for (int i = 0; i < 2; i++) pthread_join(t[i], nullptr);
  if (argc > 1 && fork() == 0) { child(); _exit(3); }
  if (argc > 1) wait(nullptr);
  puts("done");
}
"""


# ---- a reader of our own ----

class Index:
    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        (magic, endian, version, self.arch, self.os, self.flags, self.tid, self.clock, size, count, first, footer,
         self.first_ns, self.last_ns) = INDEX_HEADER.unpack_from(data)
        expect((magic, endian, version, size, first) == (b"ATI2", 1, 1, 32, 64), f"{path}: header {data[:64]!r}")
        expect(len(data) == footer + 64 and (footer - first) % 32 == 0, f"{path}: {len(data)} bytes, footer at {footer}")
        events = data[first:footer]
        magic, crc, footer_count, footer_first, footer_last, size = INDEX_FOOTER.unpack_from(data, footer)
        expect(magic == b"2ITA" and crc == zlib.crc32(events), f"{path}: footer {magic!r} {crc:x}")
        expect(size == len(events) == 32 * count and count == footer_count, f"{path}: {count} {footer_count} {size}")
        self.events = [Event(*item) for item in EVENT.iter_unpack(events)]
        if self.events:
            ends = (self.events[0].ns, self.events[-1].ns)
            expect(ends == (self.first_ns, self.last_ns) == (footer_first, footer_last), f"{path}: times {ends}")
        expect(all(a.ns <= b.ns for a, b in zip(self.events, self.events[1:])), f"{path}: time runs backwards")
        expect(all(event.tid == self.tid for event in self.events), f"{path}: another thread's events")


def read_details(path, tid):
    with open(path, "rb") as file:
        data = file.read()
    magic, endian, version, arch, system, _, of, _, begin, count, size, first, last = DETAIL_HEADER.unpack_from(data)
    expect((magic, endian, version, arch, system, of, begin) == (b"ATD2", 1, 1, 1, 4, tid, 64), f"{path}: {data[:64]!r}")
    expect(len(data) == begin + size + 64, f"{path}: {len(data)} bytes, {size} of records")
    magic, crc, footer_count, footer_size, first_ns, last_ns = DETAIL_FOOTER.unpack_from(data, begin + size)
    records, at = [], begin
    while at < begin + size:
        fields = DETAIL.unpack_from(data, at)
        length, kind, _, sequence, thread, ns, function = fields[:7]
        stack = data[at + DETAIL.size:at + length]
        expect(length == DETAIL.size + fields[18] and len(stack) == fields[18] and thread == tid, f"{path}: at {at}")
        records.append(Detail(sequence, kind, function, fields[7:15], *fields[15:18], stack, ns))
        at += length
    expect((magic, crc, footer_count, footer_size) == (b"2DTA", zlib.crc32(data[begin:-64]), count, size), f"{path}: footer")
    expect(len(records) == count and count > 0, f"{path}: {len(records)} records of {count}")
    expect((records[0].sequence, records[-1].sequence) == (first, last), f"{path}: sequences")
    expect((records[0].ns, records[-1].ns) == (first_ns, last_ns), f"{path}: times")
    return records


class Process:
    def __init__(self, path):
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        expect((self.manifest["format"], self.manifest["version"]) == ("atf", 2), "another format")
        self.names, self.details, lines = {}, {}, collections.defaultdict(bytes)
        modules = {module["id"]: module for module in self.manifest["modules"]}
        with open(os.path.join(path, "functions.tsv"), "rb") as file:
            for line in file:
                module, index, address, _, _, name = line.rstrip(b"\n").split(b"\t", 5)
                self.names[int(module) << 32 | int(index)] = (name.decode() or
                    f"{os.path.basename(modules[int(module)]['path'])}+0x{int(address, 16):x}")
                lines[int(module)] += line
        for number, module in modules.items():
            functions = module["functions"]
            expect(functions["hash"] == f"crc32:{zlib.crc32(lines[number]):08x}", f"{module}: another hash")
            expect(functions["count"] == lines[number].count(b"\n"), f"{module}: another count")
        self.threads = {}
        for thread in self.manifest["threads"]:
            index = Index(os.path.join(path, thread["index_file"]))
            kinds = collections.Counter(event.kind for event in index.events)
            counts = tuple(thread[key] for key in ("calls", "returns", "exceptions", "events"))
            expect(counts == (kinds[CALL], kinds[RETURN], kinds[EXCEPTION], len(index.events)), f"{thread}: {kinds}")
            expect(index.tid == thread["tid"] and (index.arch, index.os, index.clock) == (1, 4, 3), "thread, arch, os, clock")
            detail = os.path.join(path, f"thread_{thread['index']}", "detail.atf")
            expect(os.path.exists(detail) == bool(index.flags & 1) == (thread["detail_file"] is not None), f"{thread}: detail")
            if index.flags & 1:
                self.details[thread["index"]] = read_details(detail, index.tid)
            self.threads[thread["index"]] = index
        boot, start = self.manifest["start_boot_ns"], self.manifest["start_ns"]
        self.begin = boot or start  # both are the same moment


def linked(process):
    """Both ways."""
    for number, records in process.details.items():
        events = process.threads[number].events
        expect([event.detail for event in events if event.detail != NONE] == list(range(len(records))), "numbers of details")
        for place, record in enumerate(records):
            event = events[record.sequence]
            expect(event.detail == place and event.function == record.function and event.ns == record.ns, f"{record}")
            expect(event.kind == {3: CALL, 4: RETURN}[record.type], f"{record} of {event}")


# ---- what replay says ----

AS_RETURN = {"return not seen", "lost"}


def expected(lines):
    """Events as the export makes them of replay's lines of one thread: (ns, kind, depth, name)."""
    out = []
    for line in lines:
        ns, depth, name, kind = line["ts_ns"], line["depth"], line["name"], line["kind"]
        if kind in ("enter", "point", "tail"):
            if kind == "tail" and line.get("ended"):
                out.append((ns, RETURN, depth, line["ended"]["name"]))
            out.append((ns, CALL, depth, name))
            if kind == "point":
                out.append((ns, RETURN, depth, name))
        elif kind in ("return", "orphan"):
            out.append((ns, RETURN, depth, name))
        elif kind == "left":
            out.append((ns, RETURN if line["reason"] in AS_RETURN | {"tail call"} else EXCEPTION, depth, name))
    return out


def seconds(ns):
    return f"{ns / 1e9:.9f}"


class Scene(harness.Scene):
    def build(self):
        return self.compile(self.write("program.cpp", PROGRAM), "-O2", "-w", "-pthread", compiler="g++")

    def replay(self, trace=None, *options):
        text = self.run(self.contrail, "replay", "--json", *options, trace or self.trace)
        threads = collections.defaultdict(list)
        for line in map(json.loads, text.splitlines()):
            threads[line["tid"]].append(line)
        return threads

    def export(self, *options, trace=None, status=0, into="atf"):
        result = self.execute(self.contrail, "export", "--to", "atf2", "-o", self.path(into), *options, trace or self.trace)
        expect(result.returncode == status, f"export: status {result.returncode}: {result.stderr}")
        return result.stderr

    def compare(self, process, replay):
        """Every event with its time, kind, depth and function. Calls that were open at the end have an end in replay only."""
        shown = {}  # C++ names as replay has them, each always the same
        count = 0
        for index in process.threads.values():
            wanted = expected(replay[index.tid])
            for event, line in zip(index.events, wanted):
                name = process.names[event.function]
                shown.setdefault(event.function, line[3] if name.startswith("_Z") else name)
            found = [(e.ns - process.begin, e.kind, e.depth, shown.get(e.function)) for e in index.events]
            for place, (event, line) in enumerate(zip(found, wanted)):
                expect(event == line, f"thread {index.tid}, event {place}: {event}, replay has {line}")
            expect(len(found) <= len(wanted), f"thread {index.tid}: {len(found)} events, replay has {len(wanted)}")
            rest = [line for line in wanted[len(found):] if line[1] != EXCEPTION]
            expect(not rest, f"thread {index.tid}: replay goes on with {rest[:3]}")
            count += len(found)
        expect(count > 1000 or len(process.threads) == 1, f"{count} events only")
        return count

    def report(self, trace, *options):
        return json.loads(self.run(self.contrail, "report", "--json", *options, trace))


def only_process(scene, into="atf"):
    folders = [name for name in os.listdir(scene.path(into)) if name.startswith("pid_")]
    expect(len(folders) == 1 and os.listdir(scene.path(into)) == folders, f"{os.listdir(scene.path(into))}")
    return scene.path(into, folders[0])


@case(some=("dear", 2))
def every_event(scene):
    scene.record(*EXCLUDED, "--", scene.build())
    said = scene.export()
    path = only_process(scene)
    process = Process(path)
    replayed = scene.replay()
    scene.compare(process, replayed)
    expect(said.count("\n") == 1 and "tail calls" in said, f"said {said!r}")
    mapped = process.manifest["lanes"]["index"]["mapped"]
    kinds = collections.Counter(line["kind"] for lines in replayed.values() for line in lines)
    expect(mapped["tail_calls"] == sum(1 for lines in replayed.values() for line in lines
                                       if line["kind"] == "tail" and line.get("ended")), f"{mapped}")
    expect(mapped["enter_only"] == kinds["point"] and mapped["times_off_processor_left_out"] == kinds["away"], f"{mapped}")
    exceptions = sum(event.kind == EXCEPTION for index in process.threads.values() for event in index.events)
    expect(exceptions > 20 * 2, f"{exceptions} exceptions")


@case
def coroutines(scene):
    scene.record(*EXCLUDED, "--",
                 scene.compile("fixtures/coroutines.c", "-O2", "-w", "-pthread", f"-DTURNS={scene.rounds(300, 1000)}"))
    said = scene.export()
    scene.compare(Process(only_process(scene)), scene.replay())
    expect("stack switches left out" in said, f"said {said!r}")
    scene.run(scene.contrail, "report", scene.path("atf"))


@case(some=("dear", 2))
def details(scene):
    scene.record("--detail", "deep", "--detail", "leaf", "--", scene.build())
    scene.export()
    process = Process(only_process(scene))
    linked(process)
    scene.compare(process, scene.replay())
    names = collections.Counter(process.names[record.function] for records in process.details.values()
                                for record in records)
    expect(set(names) >= {"deep", "leaf"}, f"details of {names}")
    for number, records in process.details.items():
        for record in records:
            if process.names[record.function] == "deep" and record.type == 3:
                expect(record.registers[0] < 64, f"deep({record.registers[0]})")
    own = scene.replay(None, "--function", "deep")
    back = scene.replay(scene.path("atf"), "--function", "deep")
    told = lambda lines: [(line["kind"], line["ts_ns"], line.get("detail"), line.get("results")) for line in lines
                          if line["name"] == "deep" and line["kind"] in ("enter", "return")]
    expect(any(line[2] for lines in own.values() for line in told(lines)), "no details")
    for tid, lines in own.items():
        for mine, other in zip(told(lines), told(back[tid])):
            expect(mine == other, f"thread {tid}: {other}, not {mine}")


@case(some=("dear", 2))
def read_back(scene):
    """What contrail reads of its own export is what it reads of the trace, but for what ATF does not hold."""
    scene.record(*EXCLUDED, "--", scene.build())
    scene.export()
    own = scene.replay()
    for path in (scene.path("atf"), only_process(scene)):
        back = scene.replay(path)
        for tid in own:
            expect(expected(own[tid]) == expected(back[tid]), f"thread {tid} differs")
    calls = {row["name"]: row["calls"] for row in scene.report(scene.trace)["functions"]}
    again = {row["name"]: row["calls"] for row in scene.report(scene.path("atf"))["functions"]}
    expect(calls == again, f"{dict(set(calls.items()) ^ set(again.items()))}")
    info = json.loads(scene.run(scene.contrail, "info", "--json", scene.path("atf")))
    expect(info["exit"] == {"status": 0} and info["command"] == scene.manifest()["command"], f"{info}")
    scene.run(scene.contrail, "output", scene.path("atf"))
    expect(scene.export(trace=scene.path("atf"), into="again").count("cannot hold") == 0, "an export of an export loses")
    first, second = Process(only_process(scene)), Process(only_process(scene, "again"))
    for number, index in first.threads.items():
        expect(index.events == second.threads[number].events, f"thread {number}: an export of an export differs")


@case(some=("dear", 2))
def family(scene):
    scene.record("--follow", *EXCLUDED, "--", scene.build(), "fork")
    scene.export()
    manifest = scene.manifest()
    pids = [manifest["pid"]] + [child["pid"] for child in manifest["children"]]
    expect(sorted(os.listdir(scene.path("atf"))) == sorted(f"pid_{pid}" for pid in pids), f"{os.listdir(scene.path('atf'))}")
    scene.compare(Process(scene.path("atf", f"pid_{pids[0]}")), scene.replay())
    child = Process(scene.path("atf", f"pid_{pids[1]}"))
    scene.compare(child, scene.replay(os.path.join(scene.trace, manifest["children"][0]["directory"])))
    counts = lambda path: {row["name"]: row["calls"] for row in scene.report(path, "--family")["functions"]}
    expect(counts(scene.trace) == counts(scene.path("atf")), "the report of the family differs")
    expect(counts(scene.trace)["child"] == 1, "no child")


@case
def pieces(scene):
    scene.record(*EXCLUDED, "--", scene.build())
    times = [line["ts_ns"] for lines in scene.replay().values() for line in lines]
    low, high = sorted(times)[len(times) // 3], sorted(times)[len(times) * 2 // 3]
    piece = ("--from", seconds(low), "--to", seconds(high))
    scene.export(*piece)
    process = Process(only_process(scene))
    replay = scene.replay(None, *piece)
    for index in process.threads.values():
        wanted = [line for line in expected([line for line in replay[index.tid] if not line.get("unfinished")])]
        found = [(e.ns - process.begin, e.kind, e.depth) for e in index.events]
        expect(found == [line[:3] for line in wanted][:len(found)], f"thread {index.tid} differs")
        expect(all(low - 1 <= event[0] <= high + 1 for event in found), "events outside")
    tid = next(iter(replay))
    scene.export("--thread", str(tid), into="one")
    expect([index.tid for index in Process(only_process(scene, "one")).threads.values()] == [tid], "other threads")


@case
def recorded_so(scene):
    """record --format atf2, and what is there when that is killed, or cannot be done."""
    program = scene.build()
    scene.record("--format", "atf2", *EXCLUDED, "--", program)
    expect(sorted(os.listdir(scene.folder)) == ["program", "program.cpp", "trace"], f"{os.listdir(scene.folder)}")
    process = Process(only_process(scene, "trace"))
    expect(sum(len(index.events) for index in process.threads.values()) > 1000, "no events")
    shutil.rmtree(scene.trace)
    os.mkdir(scene.path("trace.atf2"))
    scene.write("trace.atf2/in the way", "x")
    result = scene.execute(scene.contrail, "record", "--format", "atf2", "-o", scene.trace, "--", program)
    expect(result.returncode == 125 and "as contrail's own" in result.stderr, f"{result.returncode} {result.stderr}")
    expect(scene.manifest()["format"] == "contrail" and os.path.exists(scene.path("trace.atf2/in the way")), "it is gone")
    for words in (["--format", "atf2"], ["--format", "atf3", "-o", "x"]):
        result = scene.execute(scene.contrail, "record", *words, "--", "/bin/true")
        expect(result.returncode == 2, f"{words}: {result.returncode}")


@case
def attached_so(scene):
    program = subprocess.Popen(["/usr/bin/python3", "-c", "import time\nwhile True: time.sleep(0.001)"])

    def has_events(words):
        shutil.rmtree(scene.trace, ignore_errors=True)
        done = scene.execute(scene.contrail, "attach", *words, "--format", "atf2", "-o", scene.trace, str(program.pid))
        expect(done.returncode == 0 or "nothing was recorded" in done.stderr, f"{done}")
        return done.returncode == 0 and sum(len(index.events) for index in Process(only_process(scene, "trace")).threads.values()) > 100
    try:
        longer(0.3, has_events)
    finally:
        program.kill()
        program.wait()


@case
def refusals(scene):
    scene.record("--", "/bin/true")
    scene.export()
    expect("not empty" in scene.export(status=1), "it wrote over what was there")
    expect("no thread" in scene.export("--thread", "1", status=2, into="other"), "a thread that is not there")
    expect(not os.path.exists(scene.path("other")), "it left a directory")
    manifest = scene.manifest()
    manifest["threads"][0]["events"] = 2**32
    scene.write("trace/manifest.json", json.dumps(manifest))
    said = scene.export(status=2, into="other")
    expect("more events than ATF V2 counts, 4294967295" in said and "--from" in said, said)
    expect(not os.path.exists(scene.path("other")), "it left a directory")
    for words in (["--to", "atf3", "-o", "x"], ["-o", "x"], ["--to", "atf2"], ["--to", "atf2", "--to", "atf2", "-o", "x"]):
        result = scene.execute(scene.contrail, "export", *words, scene.trace)
        expect(result.returncode == 2, f"{words}: status {result.returncode}")


@case
def too_many(scene):
    """A thread with more events than the counts hold is refused, however late that shows; a piece of it, and other threads, are not."""
    program = scene.build()
    scene.record(*EXCLUDED, "--", program)
    scene.export()
    threads = {index.tid: len(index.events) for index in Process(only_process(scene)).threads.values()}
    most, least = max(threads, key=threads.get), min(threads, key=threads.get)
    recorded = next(thread["events"] for thread in scene.info()["threads"] if thread["tid"] == most)
    expect(threads[least] < threads[most] > recorded, f"{threads}, recorded {recorded}: what tail calls add is known only when it is written")

    def limited(limit, *words, into="limited"):
        env = dict(os.environ, CONTRAIL_TEST_ATF_EVENTS=str(limit))
        result = scene.execute(scene.contrail, "export", "--to", "atf2", *words, "-o", scene.path(into), scene.trace, env=env)
        return result.returncode, result.stderr
    for limit in (1, recorded - 1, recorded, threads[most] - 1):
        status, said = limited(limit)
        named = [tid for tid in threads if threads[tid] > limit
                 and f"thread {tid} has more events than ATF V2 counts, {limit} in a thread: export a piece (--from" in said]
        expect(status == 2 and len(named) == 1, f"{limit}: {status} {said}")
        expect(not os.path.exists(scene.path("limited")), f"{limit}: it left a directory")
        expect(os.listdir(scene.trace), "the trace is gone")
    status, said = limited(threads[most], into="enough")
    expect(status == 0, f"as many as there are: {status} {said}")
    expect(len(Process(only_process(scene, "enough")).threads) == len(threads), "threads are missing")
    status, said = limited(threads[least], "--thread", str(least), into="other")
    expect(status == 0 and [index.tid for index in Process(only_process(scene, "other")).threads.values()] == [least], f"{status} {said}")
    times = [line["ts_ns"] for line in scene.lines("--limit", "0", "--thread", str(most))]
    piece = ("--from", seconds(times[10]), "--to", seconds(times[60]))
    status, said = limited(threads[most] // 2, *piece, into="piece")
    expect(status == 0, f"a piece: {status} {said}")
    result = scene.execute(scene.contrail, "record", "--format", "atf2", "-o", scene.path("recorded"), *EXCLUDED, "--", program,
                           env=dict(os.environ, CONTRAIL_TEST_ATF_EVENTS="100"))
    expect(result.returncode == 125 and "more events than ATF V2 counts" in result.stderr and "as contrail's own" in result.stderr, f"{result}")
    expect(scene.manifest(scene.path("recorded"))["format"] == "contrail", "what was recorded is gone")


# ---- a writer of our own ----

def write_index(path, tid, events, footer=True, flags=0, placeholder=False):
    data = b"".join(EVENT.pack(ns, function, tid, kind, depth, detail) for ns, function, kind, depth, detail in events)
    ends = (events[0][0], events[-1][0]) if events else (0, 0)
    counts = (0, 64, 0, 0, 0) if placeholder else (len(events), 64, 64 + len(data), *ends)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(INDEX_HEADER.pack(b"ATI2", 1, 1, 1, 4, flags, tid, 3, 32, *counts))
        file.write(data)
        if footer:
            file.write(INDEX_FOOTER.pack(b"2ITA", zlib.crc32(data), len(events), *ends, len(data)))


def write_detail(path, tid, records):
    """records: sequence, type, ns, function, registers, return address, frame pointer, stack pointer, stack"""
    data = b"".join(DETAIL.pack(DETAIL.size + len(stack), kind, 0, sequence, tid, ns, function, *registers, ra, fp, sp,
                                len(stack), 0) + stack
                    for sequence, kind, ns, function, registers, ra, fp, sp, stack in records)
    with open(path, "wb") as file:
        file.write(DETAIL_HEADER.pack(b"ATD2", 1, 1, 1, 4, 0, tid, 0, 64, len(records), len(data), records[0][0],
                                      records[-1][0]))
        file.write(data)
        file.write(DETAIL_FOOTER.pack(b"2DTA", zlib.crc32(data), len(records), len(data), records[0][2], records[-1][2]))


MODULE = 7
F, G, H = (MODULE << 32 | n for n in range(3))
SMALL = [(1000, F, CALL, 0, NONE), (1100, G, CALL, 1, 0), (1200, H, CALL, 2, NONE), (1300, H, EXCEPTION, 2, NONE),
         (1400, G, RETURN, 1, 1), (1500, H, CALL, 1, NONE), (1600, H, RETURN, 1, NONE), (1700, F, RETURN, 0, NONE)]


def write_small(scene, name="small", events=None, **more):
    events = SMALL if events is None else events
    path = scene.path(name, "pid_42")
    write_index(os.path.join(path, "thread_0", "index.atf"), 43, events, flags=1, **more)
    manifest = {"format": "atf", "version": 2, "command": ["prog", "x"], "pid": 42, "exit": {"status": 5},
                "modules": [{"id": MODULE, "path": "/opt/lib.so", "build_id": "ab", "base": 4096,
                             "functions": {"table": [{"name": "f"}, {"name": "g"}, {"name": "_Z1hv", "address": 16}]}}],
                "threads": [{"index": 0, "tid": 43, "name": "worker"}]}
    with open(os.path.join(path, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    return path


@case
def written_by_others(scene):
    path = write_small(scene)
    write_detail(os.path.join(path, "thread_0", "detail.atf"), 43,
                 [(1, 3, 1100, G, range(1, 9), 0x1234, 0x7000, 0x6000, b"\x01" * 16),
                  (4, 4, 1400, G, (77, 0, 0, 0, 0, 0, 0, 0), 0, 0, 0x6008, b"")])
    for name in (scene.path("small"), path):
        lines = scene.replay(name)[43]
        told = [(line["kind"], line["ts_ns"], line["depth"], line["name"]) for line in lines]
        expect(told == [("enter", 1000, 0, "f"), ("enter", 1100, 1, "g"), ("enter", 1200, 2, "h()"), ("left", 1300, 2, "h()"),
                        ("return", 1400, 1, "g"), ("enter", 1500, 1, "h()"), ("return", 1600, 1, "h()"),
                        ("return", 1700, 0, "f")], f"{told}")
    rows = {row["name"]: row for row in scene.report(path)["functions"]}
    expect((rows["f"]["total_ns"], rows["f"]["self_ns"], rows["g"]["self_ns"], rows["h()"]["calls"]) == (700, 300, 200, 2),
           f"{rows}")
    text = scene.run(scene.contrail, "replay", path)
    expect("/43" in text and "g(" in text, text)
    info = json.loads(scene.run(scene.contrail, "info", "--json", path))
    expect((info["pid"], info["exit"], info["command"]) == (42, {"status": 5}, ["prog", "x"]), f"{info}")
    piece = [line["name"] for line in scene.replay(path, "--from", seconds(1250), "--to", seconds(1450))[43] if line["kind"] == "enter"]
    expect(piece == ["f", "g", "h()"], f"open in the piece: {piece}")


@case
def without_footer(scene):
    for name, more in (("cut", {"footer": False}), ("placeholder", {"footer": False, "placeholder": True})):
        path = write_small(scene, name, **more)
        index = os.path.join(path, "thread_0", "index.atf")
        for extra in (0, 1, 31):
            size = 64 + 5 * 32 + extra
            whole = open(index, "rb").read()
            os.truncate(index, size)
            result = scene.execute(scene.contrail, "replay", "--json", path)
            lines = [json.loads(line) for line in result.stdout.splitlines()]
            lines = [line for line in lines if not line.get("unfinished") and line["kind"] != "warning"]
            expect([line["ts_ns"] for line in lines[:5]] == [1000, 1100, 1200, 1300, 1400], f"{name}, {extra}: {lines}")
            expect(result.returncode == 0 and "damaged or cut" in result.stderr, f"{result.returncode} {result.stderr}")
            scene.write(os.path.relpath(index, scene.folder), whole)


@case
def damaged(scene):
    """Bad bytes at random, and the worst that they can say: never a crash, and a wrong checksum is told."""
    path = write_small(scene)
    index = os.path.join(path, "thread_0", "index.atf")
    whole = open(index, "rb").read()
    chance = random.Random(4711)
    for turn in range(120):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7f, 0xff, chance.randrange(256)))
        scene.write(os.path.relpath(index, scene.folder), bytes(data[:chance.choice((len(data), chance.randrange(len(data))))]))
        for words in (["replay", "--json"], ["report"]) if turn % 4 == 0 else (["report"],):
            result = scene.execute(scene.contrail, *words, path)
            expect(result.returncode in (0, 1), f"turn {turn}: {words}: status {result.returncode}: {result.stderr}")
    data = bytearray(whole)
    data[64 + 8 + 4] ^= 1  # another module
    scene.write(os.path.relpath(index, scene.folder), bytes(data))
    expect("damaged" in scene.execute(scene.contrail, "report", path).stderr, "a wrong checksum is not told")
    deep = [(1000 + n, F, CALL, depth, NONE) for n, depth in enumerate((0, 5, 2, 1 << 27, 0, 3))]
    for events in (deep, [(5, F, RETURN, 3, NONE), (4, G, EXCEPTION, 0, NONE), (9, 12345 << 32, CALL, 0, NONE)]):
        write_small(scene, events=events)
        scene.run(scene.contrail, "report", path)
        scene.run(scene.contrail, "replay", path)


if __name__ == "__main__":
    main(__doc__, Scene)
