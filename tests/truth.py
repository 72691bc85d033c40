#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asks the kernel whether the fixtures' tables of calls are right: a uprobe on each function named, counted by
perf while the fixture runs untraced. For authors of fixtures; needs root, perf and tracefs. `make test` does not run it.

    tests/truth.py [PATTERN...]       fixture or fixture/variant

A uprobe cannot sit on every first instruction and counts children of fork too; such lines are to be judged by hand.
A function that runs to its own first byte again (a loop) counts more often here than it is called.
"""
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

import fixture as fx

TRACEFS = "/sys/kernel/tracing"
ROOT = os.path.dirname(fx.HERE)


def symbols(path):
    """FUNCTION name -> file offset, from the symbol table and the program headers."""
    headers = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
    loads = [tuple(int(x, 16) for x in m) for m in
             re.findall(r"^\s+LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", headers, re.M)]
    table = {}
    for line in subprocess.run(["nm", "-C", path], capture_output=True, text=True).stdout.splitlines():
        found = re.match(r"(\w{16}) [tTwWiu] (.*)", line)
        if found:
            address = int(found.group(1), 16)
            for offset, start, size in loads:
                if start <= address < start + size:
                    table.setdefault(found.group(2), address - start + offset)
    return table


def write_event(text):
    fd = os.open(os.path.join(TRACEFS, "uprobe_events"), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, text.encode() + b"\n")
    finally:
        os.close(fd)


def measure(fixture, variant):
    into = os.path.join(ROOT, "build", "tests", "fixtures")
    program = fx.build(fixture, variant, into)
    folder = os.path.dirname(program)
    expected = dict(fixture.counts("calls")) | dict(fixture.counts("maybe"))
    files = [program] + [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".so")]
    tables = [(path, symbols(path)) for path in files]
    with tempfile.TemporaryDirectory() as scratch:
        counts = os.path.join(scratch, "counts")
        environment = dict(os.environ, CT_COUNTS=counts, LC_ALL="C")
        subprocess.run([program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        dynamic = []
        if os.path.exists(counts):
            with open(counts, encoding="ascii") as file:
                dynamic = [line.rpartition(" ")[0] for line in file]
            os.unlink(counts)
        events = {}
        try:
            for name in list(expected) + dynamic:
                module, _, function = name.rpartition("!")
                for path, table in tables:
                    if module and os.path.basename(path) != module:
                        continue
                    if function in table:
                        event = f"p{len(events)}"
                        write_event(f"p:cttruth/{event} {path}:0x{table[function]:x}")
                        events[event] = name
            output = os.path.join(scratch, "stat")
            subprocess.run(["perf", "stat", "-x", ",", "-o", output] +
                           [word for event in events for word in ("-e", f"cttruth:{event}")] + ["--", program],
                           env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            if os.path.exists(counts):
                with open(counts, encoding="ascii") as file:
                    for line in file:
                        name, _, number = line.strip().rpartition(" ")
                        expected[name] = expected.get(name, 0) + int(number)
            seen = {}
            with open(output, encoding="ascii") as file:
                for line in file:
                    fields = line.split(",")
                    if len(fields) > 2 and fields[2].startswith("cttruth:"):
                        name = events[fields[2].split(":")[1]]
                        seen[name] = seen.get(name, 0) + int(fields[0]) if fields[0].isdigit() else fields[0]
        finally:
            for event in events:
                write_event(f"-:cttruth/{event}")
    wrong = 0
    for name, number in expected.items():
        if seen.get(name) != number:
            print(f"{fixture.name}/{variant}: {name}: the table says {number}, the kernel {seen.get(name)}")
            wrong += 1
    return wrong


def main():
    patterns = sys.argv[1:] or ["*"]
    wrong = 0
    for fixture in fx.all_fixtures():
        for variant in fixture.variants():
            if "strip" in variant or fixture.missing():
                continue
            name = f"{fixture.name}/{variant}"
            if any(fnmatch.fnmatch(fixture.name, p) or fnmatch.fnmatch(name, p) for p in patterns):
                try:
                    wrong += measure(fixture, variant)
                except (fx.BuildError, OSError) as error:
                    print(f"{name}: {error}")
    print(f"{wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
