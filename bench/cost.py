#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How good the estimate of what a recording costs is (`cost` of contrail info), held against what programs take more.

    bench/cost.py [--rounds N] [--build DIR], or bench/run.sh cost

Each program runs untraced and traced in turns. `more` is the processor time (user and system) that it takes more traced than
untraced, as a share of the traced; `estimate` is the share that info says. Medians of the rounds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests"))
from programs import SQL  # noqa: E402

LOOP = ("int step(int n) { __asm__ volatile(\"\"); return n + 1; }\n"
        "int main(void) { int n = 0; for (long i = 0; i < 20000000; i++) n = step(n); return n < 0; }\n")
SCRIPT = ("def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
          "words = sorted('word%d' % (i * 7919 % 997) for i in range(100000))\nprint(fib(22), len(set(words)))\n")


def programs(folder):
    """(name, command) of those that this machine has."""
    def write(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    subprocess.run(["gcc", "-O1", "-fno-inline", "-o", os.path.join(folder, "loop"), write("loop.c", LOOP)], check=True)
    yield "call-bound loop", [os.path.join(folder, "loop")]
    if shutil.which("sqlite3"):
        yield "sqlite3", ["sqlite3", ":memory:", ".read " + write("work.sql", SQL)]
    if os.access("/usr/bin/python3", os.X_OK):
        yield "python3", ["/usr/bin/python3", write("work.py", SCRIPT)]
    yield "sleep 0.3", ["sleep", "0.3"]


def processor_seconds(command):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def traced(contrail, folder, command):
    trace = os.path.join(folder, "trace")
    shutil.rmtree(trace, ignore_errors=True)
    subprocess.run([contrail, "record", "-q", "-o", trace, "--", *command], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, check=True, timeout=300)
    info = json.loads(subprocess.run([contrail, "info", "--json", trace], capture_output=True, text=True, check=True).stdout)
    return info


def cost(options, folder):
    """The rows of the table, printed and returned."""
    print("| program | events | untraced, s | traced, s | more | estimate | recorder, s |\n|---|" + "---:|" * 6)
    results = {}
    for name, command in programs(folder):
        rows = []
        traced(options.contrail, folder, command)  # its plans are in the cache from now on
        for _ in range(options.rounds):
            plain = processor_seconds(command)
            info = traced(options.contrail, folder, command)
            full = (info["user_ns"] + info["system_ns"]) / 1e9
            own = info["cost"]
            rows.append((info["events"], plain, full, (full - plain) / full, own["share"], own["recorder_cpu_ns"] / 1e9))
        events, plain, full, more, estimate, recorder = (statistics.median(column) for column in zip(*rows))
        print(f"| {name} | {events / 1e6:.2f} M | {plain:.3f} | {full:.3f} | {100 * more:.0f} % | {100 * estimate:.0f} % | "
              f"{recorder:.2f} |", flush=True)
        results[name] = {"events": events, "untraced_s": plain, "traced_s": full, "more": more, "estimate": estimate, "recorder_s": recorder}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    options.contrail = os.path.join(os.path.abspath(options.build), "contrail")
    with tempfile.TemporaryDirectory() as folder:
        cost(options, folder)


if __name__ == "__main__":
    main()
