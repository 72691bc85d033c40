#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What light hooks cost a busy program: its throughput, as a ratio to untraced, with the functions of one file hooked and
with all of 73 files, every call recorded, sampled as the recorder keeps up, and one of 256 calls.

    bench/light.py [--build DIR] [--seconds N] [--runs N] [--threads N] [--json FILE]

The program is made for it: 73 files of 69 functions, called in no order from a loop on each thread. A call does some
70 ns of arithmetic (busy), or next to nothing (calls): the first is what programs are like that do something, the second
the worst that there is. Throughput is what the program itself counts, by its own processor time, so that a machine
that has other things to do does not enter it. redis-server, with
all its functions and those of its libraries, is asked by redis-benchmark, where both are installed; with two
processors, these two and the recorder compete for them.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FILES, PER_FILE = 73, 69
HEAD = """#include <stdint.h>
#ifndef WORK
#define WORK 1
#endif
static inline __attribute__((always_inline)) uint64_t work(uint64_t x) {
  for (int i = 0; i < WORK; i++) { x = x * 6364136223846793005u + 1442695040888963407u; x ^= x >> 29; }
  return x;
}
"""
MAIN = """#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static atomic_int stop;
static uint64_t (*const all[])(uint64_t) = {%s};
static void *run(void *arg) {
  uint64_t x = (uint64_t)arg, *count = calloc(1, 8);
  while (!atomic_load_explicit(&stop, memory_order_relaxed))
    for (int i = 0; i < 64; i++, ++*count) { x = x * 2862933555777941757u + 3037000493u; x ^= all[(x >> 32) %% %d](x); }
  return count;
}
int main(int argc, char **argv) {
  int threads = atoi(argv[1]);
  pthread_t ids[64];
  struct timespec t;
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, (void *)(long)(i + 1));
  usleep((useconds_t)(atof(argv[2]) * 1e6));
  atomic_store(&stop, 1);
  uint64_t sum = 0;
  for (int i = 0; i < threads; i++) { void *count; pthread_join(ids[i], &count); sum += *(uint64_t *)count; }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  printf("%%lu %%.3f\\n", sum, t.tv_sec + t.tv_nsec / 1e9);
  return 0;
}
"""


def make(folder, name, work):
    names = [[f"file{f:02}_{n:02}" for n in range(PER_FILE)] for f in range(FILES)]
    sources = []
    for f, functions in enumerate(names):
        sources.append(os.path.join(folder, f"file{f:02}.c"))
        with open(sources[-1], "w", encoding="ascii") as file:
            file.write(HEAD + "".join(f"__attribute__((noinline)) uint64_t {fn}(uint64_t x) {{ return work(x + {n}); }}\n"
                                      for n, fn in enumerate(functions)))
    sources.append(os.path.join(folder, "main.c"))
    flat = [fn for functions in names for fn in functions]
    with open(sources[-1], "w", encoding="ascii") as file:
        file.write("#include <stdint.h>\n" + "".join(f"uint64_t {fn}(uint64_t);\n" for fn in flat) +
                   MAIN % (", ".join(flat), len(flat)))
    program = os.path.join(folder, name)
    subprocess.run(["gcc", "-O2", "-g", "-pthread", f"-DWORK={work}", "-o", program, *sources], check=True)
    return program


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.contrail = os.path.join(options.build, "contrail")
        self.results = {}

    def once(self, program, words):
        trace = os.path.join(self.folder, "trace")
        shutil.rmtree(trace, ignore_errors=True)
        record = [self.contrail, "record", *words, "-o", trace, "--"] if words is not None else []
        done = subprocess.run([*record, program, str(self.options.threads), str(self.options.seconds)], check=True,
                              capture_output=True, text=True)
        count, seconds = done.stdout.split()
        rate = int(count) / float(seconds)
        if words is None:
            return rate, None
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            return rate, json.load(file)

    def row(self, name, program, what, words):
        """Untraced and traced in turn, so that a slower minute hits both."""
        ratios, rates, shares, hooked, changes = [], [], [], 0, 0
        for _ in range(self.options.runs):
            plain, _ = self.once(program, None)
            rate, manifest = self.once(program, words)
            events = sum(thread["events"] for thread in manifest["threads"])
            dropped = manifest["dropped_total"]
            ratios.append(rate / plain)
            rates.append((events + dropped) / self.options.seconds)
            shares.append(dropped / max(1, events + dropped))
            hooked = sum(module["hooked"] for module in manifest["modules"])
            changes = manifest["sampling"]["changes"]
        ratio = statistics.median(ratios)
        self.results[f"{name}, {what}"] = {"ratio": ratio, "hooks": hooked, "events_per_second": statistics.median(rates),
                                           "dropped": statistics.median(shares), "changes": changes}
        print(f"{name:8} {what:34} {hooked:7,} {ratio:8.3f} {min(ratios):7.3f} {max(ratios):7.3f} "
              f"{statistics.median(rates) / 1e6:10.2f} {100 * statistics.median(shares):8.1f} {changes:8}", flush=True)

    def synthetic(self, name, work):
        program = make(self.folder, name, work)
        plain, _ = self.once(program, None)
        print(f"{name}: {plain / 1e6:.1f} million calls a second untraced, "
              f"{self.options.threads} threads")
        other = ["--exclude=lib*!", "--exclude=ld-*!", "--exclude=[!f]*"]
        one = other + ["--exclude=file0[1-9]_*", "--exclude=file[1-9]*"]
        light = ["--mode", "light"]
        for what, selected in (("one file", one), ("all files", other)):
            self.row(name, program, f"{what}, light, every call", [*light, "--no-sampling", *selected])
            self.row(name, program, f"{what}, light, adapted", [*light, *selected])
            self.row(name, program, f"{what}, light, 1 of 256", [*light, "--sample", "256", *selected])
            self.row(name, program, f"{what}, full", selected)

    def redis(self):
        if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
            print("redis-server: not installed")
            return
        light = ["--mode", "light"]
        plain = [self.redis_rate(None)[0] for _ in range(self.options.runs)]
        print(f"redis-server: {statistics.median(plain):,.0f} requests a second untraced")
        for what, words in (("light, every call", [*light, "--no-sampling"]), ("light, adapted", light),
                            ("light, 1 of 256", [*light, "--sample", "256"]), ("full", [])):
            rates = [self.redis_rate(words) for _ in range(self.options.runs)]
            ratio = statistics.median(rate for rate, _ in rates) / statistics.median(plain)
            manifest = rates[-1][1]
            hooked = sum(module["hooked"] for module in manifest["modules"])
            events = sum(thread["events"] for thread in manifest["threads"]) + manifest["dropped_total"]
            self.results[f"redis, {what}"] = {"ratio": ratio, "hooks": hooked, "changes": manifest["sampling"]["changes"],
                                              "dropped": manifest["dropped_total"] / max(1, events)}
            print(f"{'redis':8} {what:34} {hooked:7,} {ratio:8.3f} {'':7} {'':7} {'':10} "
                  f"{100 * manifest['dropped_total'] / max(1, events):8.1f} {manifest['sampling']['changes']:8}", flush=True)

    def redis_rate(self, words):
        trace, path = os.path.join(self.folder, "trace"), os.path.join(self.folder, "redis.sock")
        shutil.rmtree(trace, ignore_errors=True)
        record = [self.contrail, "record", *words, "-o", trace, "--"] if words is not None else []
        server = subprocess.Popen([*record, "redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly",
                                   "no", "--dir", self.folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = ["redis-cli", "-s", path]
        for _ in range(100):
            if b"PONG" in subprocess.run([*client, "ping"], capture_output=True, check=False).stdout:
                break
            time.sleep(0.1)
        done = subprocess.run(["redis-benchmark", "-s", path, "-q", "-n", "100000", "-c", "20", "-P", "16", "-t", "set,get"],
                              capture_output=True, text=True, check=True)
        subprocess.run([*client, "shutdown", "nosave"], capture_output=True, check=False)
        server.wait(60)
        rates = [float(number) for number in re.findall(r"([\d.]+) requests per second", done.stdout)]
        manifest = None
        if words is not None:
            with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
        return statistics.mean(rates), manifest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="contrail-bench.", dir=shared) as folder:
        bench = Bench(options, folder)
        print(f"{'':8} {'':34} {'hooks':>7} {'ratio':>8} {'least':>7} {'most':>7} {'M events/s':>10} {'dropped%':>8} {'changes':>8}")
        bench.synthetic("busy", 12)
        bench.synthetic("calls", 1)
        bench.redis()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(bench.results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
