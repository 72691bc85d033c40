# SPDX-License-Identifier: MIT
"""What the detail lane costs beside the index: a program recorded with events only, with --args, with --detail all --stack 0, and
with --detail all (128 bytes of the stack).

    bench/run.sh detail [--only NAME,...]

The kinds of recording take turns, so that none has the machine's slow minutes to itself; the program has one processor and the
recorder another. Each program does the same work each time. Printed is the median of the turns: processor time of the program,
user and system, and wall time of the recording, both as ratios to the recording with events only; the
nanoseconds of processor time that each call costs more; how long it has waited for room in the ring (the drain reads and packs
all records, which takes longer than making them); what was written. With --detail all every function has records, so it is the
dearest that can be asked for: usually a pattern names some.
"""
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import budget

KINDS = {"index": [], "args": ["--args"], "detail, no stack": ["--detail", "all", "--stack", "0"], "detail": ["--detail", "all"],
         "members": ["--detail", "all", "--members"]}
TURNS = 5
PROCESSORS = sorted(os.sched_getaffinity(0))
ON_FIRST, ON_LAST = (["taskset", "-c", str(PROCESSORS[end])] for end in (0, -1))
PYTHON = """
import hashlib, json, re
for n in range(100):
    d = {str(i): [i, i * 2, {"a": i}] for i in range(100)}
    s = json.dumps(d); json.loads(s); len(re.findall(r"[0-9]+", s)); hashlib.md5(s.encode()).hexdigest()
"""
BENCHMARK = ["redis-benchmark", "-q", "-n", "8000", "-c", "20", "-r", "10000", "-t", "set,get,lpush"]


class Finite:
    """A program that ends by itself."""

    def __init__(self, words):
        self.words = words

    def load(self):
        pass


class Redis(Finite):
    def __init__(self, folder):
        self.port = str(budget.free_port())
        super().__init__(["redis-server", "--port", self.port, "--save", "", "--dir", folder])

    def cli(self, *words):
        return subprocess.run(["redis-cli", "-p", self.port, *words], capture_output=True, check=False).stdout

    def load(self):
        end = time.monotonic() + 60
        while b"PONG" not in self.cli("ping") and time.monotonic() < end:
            time.sleep(0.02)
        subprocess.run([*ON_LAST, *BENCHMARK, "-p", self.port], stdout=subprocess.DEVNULL, timeout=120, check=True)
        self.cli("shutdown", "nosave")


def python(_folder):
    return Finite(["/usr/bin/python3", "-s", "-c", PYTHON])


def cxx(folder):
    """The service of bench/budget.py, which ends after some requests."""
    source, program = os.path.join(folder, "service.cc"), os.path.join(folder, "service")
    with open(source, "w", encoding="utf-8") as file:
        file.write(budget.CXX.replace("for (;;)", "for (int turn = 0; turn < 45; turn++)"))
    subprocess.run(["g++", "-O2", "-o", program, source], check=True)
    return Finite([program])


PROGRAMS = {"python": python, "redis": Redis, "c++": cxx}


def record(contrail, folder, program, options):
    """One recording: seconds of processor time and of wall time, calls, records, seconds waited, bytes."""
    trace, output = os.path.join(folder, "trace"), os.path.join(folder, "service.out")
    shutil.rmtree(trace, ignore_errors=True)
    with open(output, "wb") as out:
        recorder = subprocess.Popen([*ON_LAST, contrail, "record", "-q", "-o", trace, *options, "--", *ON_FIRST, *program.words],
                                    stdout=out, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            program.load()
            status = recorder.wait(timeout=300)
        finally:
            if recorder.poll() is None:
                recorder.terminate()
                recorder.wait()
    if status != 0:
        raise RuntimeError(f"{' '.join(program.words[:1])}: status {status}")
    info = json.loads(subprocess.run([contrail, "info", "--json", trace], capture_output=True, check=True).stdout)
    size = sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(trace) for name in names)
    return {"cpu": (info["user_ns"] + info["system_ns"]) / 1e9, "wall": info["duration_ns"] / 1e9, "calls": info["events"] / 2,
            "records": (info.get("detail") or {}).get("records", 0), "waited": info["waited_ns"] / 1e9, "bytes": size,
            "dropped": info["dropped"]}


def measure(contrail, name, folder, turns):
    program = PROGRAMS[name](folder)
    record(contrail, folder, program, [])  # the plans are in the cache from then on
    runs = {kind: [] for kind in KINDS}
    for _ in range(turns):
        for kind, options in KINDS.items():
            runs[kind].append(record(contrail, folder, program, options))
    middle = {kind: {key: statistics.median(run[key] for run in own) for key in own[0]} for kind, own in runs.items()}
    index = middle["index"]
    middle = {"calls": index["calls"], **middle}
    for kind in KINDS:
        own = middle[kind]
        more = statistics.median((run["cpu"] - alone["cpu"]) / alone["calls"] for run, alone in zip(runs[kind], runs["index"]))
        print(f"{name:8} {kind:17} cpu {own['cpu']:6.3f} s ({own['cpu'] / index['cpu']:5.2f}), wall {own['wall']:6.3f} s "
              f"({own['wall'] / index['wall']:5.2f}), {1e9 * more:6.1f} ns a call more; waited {own['waited']:6.3f} s; "
              f"{own['calls'] / 1e6:.2f} M calls, {own['records'] / 1e6:.2f} M records, {own['bytes'] / 1e6:.1f} MB, "
              f"dropped {own['dropped']:.0f}", flush=True)
        own["ratios"], own["more_ns"] = [own["cpu"] / index["cpu"], own["wall"] / index["wall"]], 1e9 * more
    middle["bytes_per_call"] = [middle[kind]["bytes"] / middle[kind]["calls"] for kind in ("index", "args", "detail, no stack", "detail")]
    return middle


def main(options, folder):
    results = {}
    for name in PROGRAMS:
        if options.only is None or any(part in name for part in options.only.split(",")):
            with tempfile.TemporaryDirectory(prefix="detail.", dir=folder) as own:
                try:
                    results[name] = measure(options.contrail, name, own, 2 if options.quick else TURNS)
                except FileNotFoundError as error:
                    print(f"{name:8} skipped: {error.filename} is not there")
    return results
