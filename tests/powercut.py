#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The machine loses its power: what had been written of a trace until then opens, and is a beginning of the whole.

    tests/powercut.py [--filter PATTERN] [--build DIR]

While a recording goes on its files are copied, again and again. Of each copy traces are made as a power cut may leave them:
each file has what it had in the copy before and a random part of what has come since; some end in zeros, that were allotted
and never written; the manifest is the copy's or that of the copy before. Of each such trace the events are counted: those of
the whole blocks that are there, by their headers, no more and no less; and of some, call for call, that they are the first
of the thread's. Of recorded instructions likewise, the steps.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import time

import harness
from harness import case, expect, main

CUTS, COPIES, COMPARED = (20, 300), 10, 4
PAGE = 4096

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <time.h>
static __thread volatile long sum;
__attribute__((noinline)) void leaf(long i) { sum += i; }
__attribute__((noinline)) void mid(long i) { for (int k = 0; k < 3; k++) leaf(k); sum += i; }
__attribute__((noinline)) void outer(long i) { mid(i); leaf(i); struct timespec t = {0, 200000}; if (i % 3 == 0) nanosleep(&t, 0); }
static void *run(void *rounds) { for (long i = 0; i < (long)rounds; i++) outer(i); return 0; }
int main(void) {
  pthread_t t[3];
  for (long n = 0; n < 3; n++) pthread_create(t + n, 0, run, (void *)(6000 + 1500 * n));
  run((void *)4000L);
  for (int n = 0; n < 3; n++) pthread_join(t[n], 0);
  return 0;
}
"""


STEPPED = r"""
#include <pthread.h>
#include <time.h>
static __thread volatile long sum;
__attribute__((noinline)) static void leaf(long i) { sum += i; }
static void *run(void *rounds) {
  struct timespec t = {0, 1000000};
  for (long i = 0; i < (long)rounds; i++) { for (int k = 0; k < 20000; k++) leaf(i ^ k); nanosleep(&t, 0); }
  return 0;
}
int main(void) {
  pthread_t t[2];
  for (long n = 0; n < 2; n++) pthread_create(t + n, 0, run, (void *)(150 + 30 * n));
  run((void *)120L);
  for (int n = 0; n < 2; n++) pthread_join(t[n], 0);
  return 0;
}
"""


def files_of(trace):
    found = {}
    for folder, _, names in os.walk(trace):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, name), trace)] = file.read()
            except OSError:
                pass  # renamed meanwhile
    return found


def whole_blocks(data):
    """Calls and returns in the whole blocks at the begin of an index.ctb (docs/format.md)."""
    at, events = 64, 0
    while at + 128 <= len(data) and data[at:at + 4] == b"CTBK":
        payload, = struct.unpack_from("<I", data, at + 16)
        calls, returns = struct.unpack_from("<II", data, at + 24)
        if at + 128 + payload > len(data):
            break
        at += 128 + payload
        events += calls + returns
    return events


def whole_steps(data):
    """Steps in the whole blocks at the begin of a steps.TID (docs/format.md)."""
    at, steps = struct.unpack_from("<I", data, 12)[0] if len(data) >= 72 else len(data), 0
    while at + 72 <= len(data) and data[at:at + 4] == b"ctb3":
        size, = struct.unpack_from("<Q", data, at + 8)
        count, = struct.unpack_from("<Q", data, at + 32)
        if at + 72 + size > len(data):
            break
        at += 72 + size
        steps += count
    return steps


def has_head(data):
    """Of a steps.TID."""
    return len(data) >= 72 and len(data) >= struct.unpack_from("<I", data, 12)[0]


def copies_until_end(recorder, trace, is_begun, least=COPIES):
    """What the files held at some moments of a recording, and in the end."""
    taken = []
    while recorder.poll() is None:
        files = files_of(trace)
        if is_begun(files):
            taken.append(files)
        time.sleep(0.02)
    expect(recorder.returncode == 0, f"status {recorder.returncode}")
    expect(len(taken) >= least, f"only {len(taken)} copies: too short")
    return [taken[i * (len(taken) - 1) // (COPIES - 1)] for i in range(COPIES)] + [files_of(trace)]


def has_blocks(files):
    return "manifest.json" in files and any(name.endswith(".ctb") and len(data) > 64 for name, data in files.items())


class Scene(harness.Scene):
    def copies(self, *options):
        """What the files held at some moments of a recording, and in the end."""
        program = self.compile(self.write("cut.c", PROGRAM), "-O1", "-pthread")
        recorder = subprocess.Popen([self.contrail, "record", "-q", "-o", self.trace, *options, "--", program])
        return copies_until_end(recorder, self.trace, has_blocks)

    def lay(self, files):
        """A trace of these files."""
        trace = self.path("cut-trace")
        shutil.rmtree(trace, ignore_errors=True)
        for name, data in files.items():
            os.makedirs(os.path.dirname(os.path.join(trace, name)), exist_ok=True)
            with open(os.path.join(trace, name), "wb") as file:
                file.write(data)
        return trace

    def calls_of(self, trace):
        """What each thread called, in order, by thread."""
        calls = {}
        for line in self.lines(trace=trace):
            if line["kind"] in ("enter", "point") and "tid" in line:
                calls.setdefault(line["tid"], []).append((line["name"], line["depth"]))
        return calls


def cut(lots, before, after):
    """A trace that a power cut between two copies may leave, and of each file what of that was written."""
    left, written = {}, {}
    for name, data in after.items():
        old = before.get(name)
        if name == "manifest.json" or name.endswith(".json"):  # written whole, and renamed
            left[name] = data if old is None or lots.random() < 0.5 else old
            continue
        begin = len(old) if old is not None and data.startswith(old) else 0
        end = lots.choice([len(data), lots.randint(begin, len(data)), lots.randint(begin, min(len(data), begin + 300))])
        zeros = lots.choice([0, 0, lots.randint(1, PAGE), len(data) - end])
        if old is not None or end > 0 or lots.random() < 0.5:
            left[name] = data[:end] + bytes(zeros)
            written[name] = data[:end]
    return left, written


def events_in(written, folder=""):
    """In whole blocks of its files."""
    return sum(whole_blocks(data) for name, data in written.items() if name.startswith(folder) and name.endswith(".ctb"))


def play(scene, options, is_beginning=True):
    copies = scene.copies(*options)
    whole = scene.calls_of(scene.trace)
    seed = random.randrange(1 << 30)
    lots = random.Random(seed)
    least = len(json.dumps(whole))
    expect(least > 100000, "hardly any calls")
    cuts = scene.rounds(*CUTS)
    for number in range(cuts):
        which = number % (len(copies) - 1)
        left, written = cut(lots, copies[which], copies[which + 1])
        there, trace = events_in(written), scene.lay(left)
        said = f"seed {seed}, cut {number}"
        report = scene.execute(scene.contrail, "report", "--json", trace)
        expect(report.returncode == 0, f"{said}: report: status {report.returncode}: {report.stderr[:500]}")
        info = scene.execute(scene.contrail, "info", "--json", trace)
        expect(info.returncode == 0, f"{said}: info: status {info.returncode}: {info.stderr[:500]}")
        got = json.loads(report.stdout)["events"]
        # After a gap between pieces the calls that were entered in it and are still open are entered there.
        expect(there <= got <= there + (0 if is_beginning else 100), f"{said}: {got} events in the report, {there} in whole blocks")
        if is_beginning and number % (cuts // COMPARED) == 0:
            for tid, calls in scene.calls_of(trace).items():
                # The names of the functions that came last may be gone: "(function N)", or "?" where the manifest does not
                # know yet how many there are. The clock is measured until the end.
                wrong = [(i, got, want) for i, (got, want) in enumerate(zip(calls, whole[tid])) if got != want and
                         not ((got[0] == "?" or got[0].startswith("(function ")) and got[1] == want[1])]
                expect(not wrong and len(calls) <= len(whole[tid]),
                       f"{said}, thread {tid}: call, got, in the whole: {wrong[:1]}; {len(calls)} of {len(whole[tid])}")
    return f"seed {seed}"


@case(some=("recorded", 1))
def bounded(scene):
    """The last of it, in pieces: those that were removed after a copy was taken may be there or not."""
    return play(scene, ["--max-size", "1M", "--args"], is_beginning=False)


@case(some=("recorded", 1))
def plain(scene):
    """All that is recorded, in files."""
    return play(scene, [])


@case(some=("recorded", 1))
def values(scene):
    """With the arguments of each call in its event."""
    return play(scene, ["--args"])


@case(some=("recorded", 1))
def detail(scene):
    """The records of the detail lane are cut too."""
    return play(scene, ["--detail", "leaf", "--stack", "0"])


@case(some=("recorded", 1))
def budget(scene):
    """Counted calls are in the same blocks."""
    return play(scene, ["--budget", "100%"])


@case(some=("recorded", 1))
def instructions(scene):
    """Recorded instructions of three threads: of each file the steps of its whole blocks are shown, and it is said that the rest is missing."""
    program = scene.compile(scene.write("stepped.c", STEPPED), "-O1", "-pthread", name="stepped")
    recorder = subprocess.Popen([scene.contrail, "itrace", "-q", "-a", "-o", scene.trace, "--", program])
    copies = copies_until_end(recorder, scene.trace, lambda files: any(len(data) > PAGE for data in files.values()), 3)
    seed = random.randrange(1 << 30)
    lots, shown, cuts = random.Random(seed), 0, scene.rounds(*CUTS)
    for number in range(cuts):
        which = number % (len(copies) - 1)
        left, written = cut(lots, copies[which], copies[which + 1])
        trace = scene.lay(left)
        for name, data in left.items():
            steps, said = whole_steps(written[name]), f"seed {seed}, cut {number}, {name}, {len(data)} bytes"
            result = scene.execute(scene.contrail, "steps", "--json", "--tail", "-n", "1", os.path.join(trace, name))
            expect(result.returncode == (0 if steps != 0 else 1), f"{said}: status {result.returncode}, {steps} steps: {result.stderr[:500]}")
            expect(steps == 0 or json.loads(result.stdout)["step"] == steps - 1, f"{said}: {result.stdout}, of {steps}")
            whole = data == copies[-1].get(name)
            missed = "DAMAGED" if has_head(written[name]) else "the head of the file is damaged"
            expect(whole or missed in result.stderr or len(data) < 72, f"{said}: {result.stderr}")
            shown += steps != 0
        if number % 5 == 0:
            whole = scene.execute(scene.contrail, "steps", "--json", "--tail", "-n", "1", trace)
            expect(whole.returncode in (0, 1), f"seed {seed}, cut {number}: {whole}")
    expect(shown > cuts // 2, f"of {cuts} cuts only {shown} files had steps")
    return f"seed {seed}, {shown} files"


@case(some=("recorded", 1))
def last(scene):
    """Dumps of the last stretch: one that was cut opens, once it has its manifest, with its whole blocks. What is in memory only is gone."""
    program = scene.compile(scene.write("cut.c", PROGRAM), "-O1", "-pthread")
    folder = scene.path("dumps")
    os.mkdir(folder)
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", os.path.join(folder, "trace"), "--last", "1M", "--on", "every 100ms: dump", "--pre", "0",
                                 "--post", "0", "--args", "--", program])
    copies = copies_until_end(recorder, folder, lambda files: any(name.endswith("manifest.json") for name in files))
    before = {}  # calls in whole blocks that are from before the stretch that the manifest has
    for name in os.listdir(folder):
        events = json.loads(scene.run(scene.contrail, "report", "--json", os.path.join(folder, name)))["events"]
        before[name] = events_in(copies[-1], name + "/") - events
    seed = random.randrange(1 << 30)
    lots, opened = random.Random(seed), 0
    for number in range(scene.rounds(*CUTS)):
        which = number % (len(copies) - 1)
        left, written = cut(lots, copies[which], copies[which + 1])
        cut_folder = scene.lay(left)
        for name in {path.split("/")[0] for path in left}:
            trace, said = os.path.join(cut_folder, name), f"seed {seed}, cut {number}, {name}"
            there = events_in(written, name + "/")
            report = scene.execute(scene.contrail, "report", "--json", trace)
            if not os.path.exists(os.path.join(trace, "manifest.json")):
                expect(report.returncode == 1 and "manifest" in report.stderr, f"{said}: without manifest: {report.returncode} {report.stderr[:300]}")
                continue
            expect(report.returncode == 0, f"{said}: report: status {report.returncode}: {report.stderr[:500]}")
            got = json.loads(report.stdout)["events"]
            expect(there - before[name] <= got <= there + 100, f"{said}: {got} events in the report, {there} in whole blocks, {before[name]} too early")
            opened += there != 0
    expect(opened != 0, "no dump had a block")
    return f"seed {seed}, {opened} opened with calls"


@case(some=("recorded", 1))
def bounded_detail(scene):
    """The last of it in pieces, with detail and values."""
    return play(scene, ["--max-size", "1M", "--detail", "leaf", "--stack", "0", "--args"], is_beginning=False)


if __name__ == "__main__":
    main(__doc__, Scene)
