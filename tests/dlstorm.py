#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Libraries that come and go: dlopen and dlclose of many libraries from several threads, every call counted.

    tests/dlstorm.py [--seconds N] [--libraries N] [--threads N] [--build DIR]

Each library has a constructor, a destructor and functions that call each other; half of them are linked with another
one. The program counts every call by itself, and the report must give the same numbers, for constructors too.
Last line: `N passed, N failed, N skipped`.
"""
import json
import os
import subprocess

from harness import Scene, case, expect, main

LIBRARY = r"""
#define NAME2(f, n) f##n
#define NAME1(f, n) NAME2(f, n)
#define NAME(f) NAME1(f, NUMBER)
#define VISIBLE __attribute__((noipa))
extern long counts[][4];
#ifdef OTHER
int NAME1(leaf_, OTHER)(int);
#endif
static __attribute__((constructor, noipa)) void NAME(begin_)(void) { __atomic_fetch_add(&counts[NUMBER][0], 1, 0); }
static __attribute__((destructor, noipa)) void NAME(end_)(void) { __atomic_fetch_add(&counts[NUMBER][1], 1, 0); }
VISIBLE int NAME(leaf_)(int n) { __atomic_fetch_add(&counts[NUMBER][2], 1, 0); return n + 1; }
VISIBLE int NAME(work_)(int n)
{
  int sum = 0;
  __atomic_fetch_add(&counts[NUMBER][3], 1, 0);
  for (int i = 0; i < n; i++)
    sum += NAME(leaf_)(i);
#ifdef OTHER
  sum += NAME1(leaf_, OTHER)(n) - n - 1;
#endif
  return sum;
}
/* Some more, so that a library has a hundred functions or so. */
#define MORE(k) VISIBLE int NAME1(more_##k##_, NUMBER)(int n) { return n * k + NUMBER; }
#define TEN(k) MORE(k##0) MORE(k##1) MORE(k##2) MORE(k##3) MORE(k##4) MORE(k##5) MORE(k##6) MORE(k##7) MORE(k##8) \
  MORE(k##9)
TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10)
"""

PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
long counts[LIBRARIES][4];
static double until;
static long loads, failures;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void *storm(void *arg)
{
  unsigned seed = (unsigned)(long)arg;
  while (now() < until) {
    char path[200], name[64];
    int n = rand_r(&seed) % LIBRARIES, calls = rand_r(&seed) % 20;
    snprintf(path, sizeof(path), "%s/lib%d.so", getenv("STORM"), n);
    void *handle = dlopen(path, rand_r(&seed) & 1 ? RTLD_NOW : RTLD_LAZY);
    if (!handle) { fprintf(stderr, "%s\n", dlerror()); __atomic_fetch_add(&failures, 1, 0); return 0; }
    snprintf(name, sizeof(name), "work_%d", n);
    int (*work)(int) = (int (*)(int))dlsym(handle, name);
    if (!work || work(calls) != calls * (calls + 1) / 2) __atomic_fetch_add(&failures, 1, 0);
    if (rand_r(&seed) % 4 == 0) { void *again = dlopen(path, RTLD_NOW); if (again) dlclose(again); }
    if (dlclose(handle)) __atomic_fetch_add(&failures, 1, 0);
    __atomic_fetch_add(&loads, 1, 0);
  }
  return 0;
}
int main(void)
{
  pthread_t threads[THREADS];
  until = now() + atof(getenv("SECONDS_TO_RUN"));
  for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, storm, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
  FILE *out = fopen(getenv("TRUTH"), "w");
  static const char *const names[4] = {"begin_%d %ld\n", "end_%d %ld\n", "leaf_%d %ld\n", "work_%d %ld\n"};
  for (int n = 0; n < LIBRARIES; n++) for (int k = 0; k < 4; k++) fprintf(out, names[k], n, counts[n][k]);
  fclose(out);
  printf("%ld loads, %ld failures\n", loads, failures);
  return failures != 0;
}
"""


def build(folder, libraries, threads):
    with open(os.path.join(folder, "lib.c"), "w", encoding="utf-8") as file:
        file.write(LIBRARY)
    with open(os.path.join(folder, "storm.c"), "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    subprocess.run(["gcc", "-O2", "-pthread", "-rdynamic", f"-DLIBRARIES={libraries}", f"-DTHREADS={threads}", "-o",
                    "storm", "storm.c", "-ldl"], cwd=folder, check=True)
    for n in range(libraries):
        command = ["gcc", "-O2", "-shared", "-fPIC", f"-DNUMBER={n}", "-o", f"lib{n}.so", "lib.c"]
        if n % 2:
            command += [f"-DOTHER={n - 1}", "-L.", f"-l{n - 1}", "-Wl,-rpath,$ORIGIN"]
        subprocess.run(command, cwd=folder, check=True)


@case
def storm(scene):
    options, folder, problems = scene.options, scene.folder, []
    build(folder, options.libraries, options.threads)
    trace = scene.trace
    environment = dict(os.environ, STORM=folder, TRUTH=os.path.join(folder, "truth"),
                       SECONDS_TO_RUN=str(options.seconds))
    plain = subprocess.run([os.path.join(folder, "storm")], env=dict(environment, SECONDS_TO_RUN="0.5"), capture_output=True, text=True)
    result = subprocess.run([scene.contrail, "record", "-o", trace, "--", os.path.join(folder, "storm")],
                            env=environment, capture_output=True, text=True, timeout=options.seconds * 10 + 120)
    if result.returncode != 0:
        problems.append(f"status {result.returncode}: {result.stdout}{result.stderr}")
    info = json.loads(subprocess.run([scene.contrail, "info", "--json", trace], capture_output=True, text=True).stdout)
    report = json.loads(subprocess.run([scene.contrail, "report", "--json", "--limit", "0", trace], capture_output=True,
                                       text=True).stdout)
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    counts = {}
    for function in report["functions"]:
        counts[function["name"]] = counts.get(function["name"], 0) + function["calls"]
    with open(environment["TRUTH"], encoding="utf-8") as file:
        wrong = [(name, int(n), counts.get(name, 0)) for name, n in map(str.split, file) if
                 counts.get(name, 0) != int(n)]
    problems += [f"{name}: {got} calls in the report, {n} in truth" for name, n, got in wrong[:10]]
    if wrong:
        problems.append(f"{len(wrong)} functions of {4 * options.libraries} are counted wrong")
    modules = [m for m in manifest["modules"] if "/lib" in m["path"] and folder in m["path"]]
    if len(modules) > options.libraries:
        problems.append(f"{len(modules)} records for {options.libraries} libraries")
    if info["dropped"]:
        problems.append(f"{info['dropped']} events dropped")
    facts = (f"untraced, in half a second: {plain.stdout.strip()}; traced: {result.stdout.strip()}; "
             f"{sum(m['loads'] for m in modules)} installations, last ones "
             f"{sorted(m['install_ns'] for m in modules)[len(modules) // 2] / 1e3:.0f} us for "
             f"{modules[0]['hooked'] if modules else 0} functions in the median")
    expect(not problems, "; ".join(problems))
    return facts


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--libraries", type=int, default=50)
    parser.add_argument("--threads", type=int, default=8)


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
