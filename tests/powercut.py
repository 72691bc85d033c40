#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The machine loses its power: what had been written of a trace until then opens, and is a beginning of the whole.

    tests/powercut.py [--filter PATTERN] [--build DIR]

While a recording goes on its files are copied, again and again. Of each copy traces are made as a power cut may leave them:
each file has what it had in the copy before and a random part of what has come since; some end in zeros, that were allotted
and never written; the manifest is the copy's or that of the copy before. Of each such trace the events are counted: those of
the whole blocks that are there, by their headers, no more and no less; and of some, call for call, that they are the first
of the thread's.
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


class Scene(harness.Scene):
    def copies(self, *options):
        """What the files held at some moments of a recording, and in the end."""
        program = self.compile(self.write("cut.c", PROGRAM), "-O1", "-pthread")
        recorder = subprocess.Popen([self.contrail, "record", "-q", "-o", self.trace, *options, "--", program])
        taken = []
        while recorder.poll() is None:
            files = files_of(self.trace)
            if "manifest.json" in files and any(name.endswith(".ctb") and len(data) > 64 for name, data in files.items()):
                taken.append(files)
            time.sleep(0.02)
        expect(recorder.returncode == 0, f"status {recorder.returncode}")
        expect(len(taken) >= COPIES, f"only {len(taken)} copies: too short")
        return [taken[i * (len(taken) - 1) // (COPIES - 1)] for i in range(COPIES)] + [files_of(self.trace)]

    def calls_of(self, trace):
        """What each thread called, in order, by thread."""
        calls = {}
        for line in self.lines(trace=trace):
            if line["kind"] in ("enter", "point") and "tid" in line:
                calls.setdefault(line["tid"], []).append((line["name"], line["depth"]))
        return calls


def cut(lots, before, after):
    """A trace that a power cut between two copies may leave, and the events in whole blocks of it."""
    left, there = {}, 0
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
            there += whole_blocks(data[:end]) if name.endswith(".ctb") else 0
    return left, there


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
        left, there = cut(lots, copies[which], copies[which + 1])
        trace = scene.path("cut-trace")
        shutil.rmtree(trace, ignore_errors=True)
        for name, data in left.items():
            os.makedirs(os.path.dirname(os.path.join(trace, name)), exist_ok=True)
            with open(os.path.join(trace, name), "wb") as file:
                file.write(data)
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


if __name__ == "__main__":
    main(__doc__, Scene)
