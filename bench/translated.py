# SPDX-License-Identifier: MIT
"""What a thread costs that runs translated code, and that of the instruction tracer's records, against the same untraced.

    bench/run.sh translated [--quick]

Five workloads (bench/translated.c), each by its own processor time: a CRC, recursive calls, libc's qsort, a search tree, sqlite;
untraced, translated, and recorded in turns, the median ratio, without the first run of each, which makes the units. Recorded
to a file on the other processor at work: with loss where that does not keep up (what a record costs the thread), without
vector registers and with them; then without loss, by the clock. Then programs from start to end: time by the clock and processor
time of program and tracer, and what was translated.

--quick: a quarter of the workloads, and of what others are given a tenth, two of the workloads only and not qemu's registers; programs
once.
"""
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

PROCESSOR = max(os.sched_getaffinity(0))
PROGRAMS = [("python3", ["/usr/bin/python3", "-c", "import json; print(len(json.dumps(list(range(100000)))))"]),
            ("clang", ["clang-14", "-O2", "-c", "-o", "/dev/null", "bench/translated.c"]),
            ("gcc", ["gcc", "-O2", "-c", "-o", "/dev/null", "bench/translated.c"])]


NAMES = ("crc", "calls", "sort", "tree", "sqlite")
QUICK_PART, QUICK_LESS, QUICK_SECONDS, SECONDS = 4, 10, 30, 120


def workloads(words, *arguments):
    """Of each the three times, by the clock that is asked for, and what was said on stderr."""
    result = subprocess.run([*words, *map(str, arguments)], capture_output=True, text=True, check=True)
    return {name: [float(time) for time in times.split()] for name, times in re.findall(r"^(\w+) ([\d. ]+)$", result.stdout, re.M)}, result.stderr


def whole(words):
    """Seconds by the clock, of the processor, and what was said on stderr."""
    before, begin = os.times(), time.perf_counter()
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    after, end = os.times(), time.perf_counter()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return end - begin, spent, result.stderr


def by_gdb(binary, name):
    """gdb records the first turn. It cannot record AVX and later, which the C library chooses, nor rdtscp, which the clock is read by."""
    return ["env", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-XSAVEC,-XSAVE,-ERMS,-FSRM,-BMI2,-BMI1,-LZCNT,-MOVBE,-RTM", "LD_BIND_NOW=1",
            "gdb", "-q", "-nx", "-batch", "-ex", "set pagination off", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-ex", "set record full insn-number-max 0",
            "-ex", f"break {'database' if name == 'sqlite' else name}", "-ex", "run", "-ex", "delete", "-ex", "record full", "-ex", "finish", "-ex", "record stop",
            "-ex", "continue", "--args", binary, name, "wall"]


PEERS = [("gdb's record full", 10000, "gdb", by_gdb),
         ("valgrind's none", 100, "valgrind", lambda binary, name: ["valgrind", "-q", "--tool=none", binary, name, "wall"]),
         ("valgrind's lackey, memory", 100, "valgrind", lambda binary, name: ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null", binary, name, "wall"]),
         ("qemu's user mode, emulation alone", 100, "qemu-x86_64", lambda binary, name: ["qemu-x86_64", binary, name, "wall"]),
         ("qemu, registers of each instruction", 100000, "qemu-x86_64", lambda binary, name: ["qemu-x86_64", "-singlestep", "-d", "cpu,nochain", "-D", "/dev/null", binary, name, "wall"])]
SLOWEST = PEERS[-1][0]
# Debian has no package of DynamoRIO, nor of qemu's plugins (their header is in none).
SHORT = 10000  # so small a part of the work may be over too soon for the clock: then what it should take counts


def peers(binary, quick, seconds):
    """Others that look at each instruction, on a part of the work, by the clock: times untraced."""
    results = {}
    for label, part, tool, words in PEERS:
        if quick and label == SLOWEST:
            continue
        part = part * QUICK_LESS if quick else part
        if shutil.which(tool) is None:
            print(f"  {label}: not installed")
            continue
        line = []
        for name in seconds if not quick else ("crc", "sqlite"):
            plain, _ = workloads([binary], name, "wall", str(part))
            try:
                done = subprocess.run([*words(binary, name), str(part)], capture_output=True, text=True, timeout=QUICK_SECONDS if quick else SECONDS)
                times = None if "failed to record" in done.stdout + done.stderr else re.search(rf"(?m)^{name} ([\d. ]+)$", done.stdout)
            except subprocess.TimeoutExpired:
                times = None
            if times is None:
                line.append(f"{name} cannot be done")
                continue
            is_short = part >= SHORT
            moved = float(times.group(1).split()[0]) if is_short else min(float(each) for each in times.group(1).split())
            alone = max(statistics.median(seconds[name]) * (QUICK_PART if quick else 1) / part, plain[name][0]) if is_short else min(plain[name][1:])
            results.setdefault(label, {})[name] = moved / alone
            line.append(f"{name} {results[label][name]:,.0f} x")
        print(f"  {label} (1/{part} of the work): " + ", ".join(line))
    return results


def translated(options, folder):
    command = os.path.join(options.build, "tests", "translated")
    results = {}
    binary = os.path.join(folder, "workloads")
    subprocess.run(["gcc", "-O2", "-o", binary, "bench/translated.c", "-lsqlite3"], check=True)
    rounds, part = (2, QUICK_PART) if options.quick else (5, 1)
    ways = [("translated", []), ("recorded", ["-g", "-o"]), ("vectors", ["-o"]), ("no loss", ["-l", "-o"])]
    ratios, seconds, told = {}, {}, {}
    for _ in range(rounds):
        plain = {name: workloads(["taskset", "-c", str(PROCESSOR), binary], name, "cpu", part)[0][name] for name in NAMES}
        for name, times in plain.items():
            seconds.setdefault(name, []).append(min(times[1:]))
        for way, words in ways:
            for name in plain if way != "no loss" else ("sqlite",) if seconds["sqlite"][1:] == [] else ():
                steps = tempfile.mkdtemp(dir=folder)
                if way == "no loss":
                    os.sync()  # what was written before is written back while the clock runs, and not this recorder's
                moved, said = workloads([command, "-v", *words, *([steps] if words else []), "--", binary], name, "wall" if way == "no loss" else "cpu", part)
                ratios.setdefault(name, {}).setdefault(way, []).append(min(moved[name][1:]) / min(plain[name][1:]))
                told[name, way] = re.search(r"^records: (\d+) instructions, (\d+) bytes, lost (\d+), file (\d+)", said, re.M)
                shutil.rmtree(steps)
    print(f"times untraced, medians of {rounds}: translated; recorded without vector registers, and with them (to a file, with loss: the\n"
          "thread's processor time); without loss (by the clock)")
    for name, found in ratios.items():
        results[name] = {way: statistics.median(each) for way, each in found.items()}
        print(f"  {name:<8}" + "".join(f" {statistics.median(found[way]):6.2f} x" for way, _ in ways if way in found) +
              f"   (untraced {statistics.median(seconds[name]):.3f} s)")
    steps, raw, _, stored = (int(number) for number in told["sqlite", "no loss"].groups())
    results["sqlite"].update(bytes=stored / steps, raw_bytes=raw / steps)
    print(f"  sqlite's file: {stored / steps:.3f} bytes an instruction, {raw / steps:.2f} in memory")
    print("others, by the clock")
    results["peers"] = peers(binary, options.quick, seconds)
    print("from start to end, with the tracer")
    rounds = 1 if options.quick else rounds
    for name, words in PROGRAMS:
        if shutil.which(words[0]) is None:
            print(f"  {name:<8} not installed")
            continue
        plain = [whole(words) for _ in range(rounds)]
        moved = [whole([command, "-v", "--", *words]) for _ in range(rounds)]
        numbers = [int(number) for number in re.findall(r"\d+", moved[-1][2].strip().splitlines()[-1])]
        clock, spent = (statistics.median(one[i] for one in plain) for i in (0, 1))
        clock_moved, spent_moved = (statistics.median(one[i] for one in moved) for i in (0, 1))
        results[name] = {"seconds": clock, "translated_seconds": clock_moved, "cpu": spent, "translated_cpu": spent_moved, "units": numbers[0]}
        print(f"  {name:<8} {clock:6.2f} s becomes {clock_moved:6.2f} s by the clock, {spent:6.2f} s becomes {spent_moved:6.2f} s of a processor; "
              f"{numbers[0]:,} units, {numbers[2] / 1e6:.1f} MB of code made of {numbers[3] / 1e6:.1f}, {numbers[4]:,} requests")
    return results
