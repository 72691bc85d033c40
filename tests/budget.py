#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--budget: what is counted equals what the program counts itself, whatever is done about the budget meanwhile.

    tests/budget.py [--filter PATTERN] [--build DIR]
"""
import json
import math
import os
import re
import signal
import subprocess
import time

import callgrind
import harness
from harness import Running, case, expect, lot, main, need, wait_for
from processes import children_of, state_of, ticks_of

NAMES = ("hottest", "hot", "warm", "cool", "jumps", "rare")

FORKS = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) void in_child(void) { sum++; }
__attribute__((noinline)) void in_parent(void) { sum++; }
__attribute__((noinline)) void busy(void) { for (volatile int i = 0; i < 3000000; i++) sum += i; }
int main(int argc, char **argv) {
  for (int n = 0; n < 8; n++) {
    for (int i = 0; i < 30000; i++) in_parent();
    busy();
    if (fork() == 0) {
      for (int k = 0; k < 5; k++) { for (int i = 0; i < 20000; i++) in_child(); busy(); }
      _exit(n);
    }
  }
  int status, all = 0;
  while (wait(&status) > 0) all += WEXITSTATUS(status);
  printf("%d\n", all);
  fflush(stdout);
  if (argc > 1) execl(argv[0], argv[0], (char *)0);
  return 3;
}
"""


MANY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
long often(long x), seldom(long x);
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int argc, char **argv) {
  long rounds = 0, sum = 0;
  double end = now() + atof(argv[argc - 1]);
  for (; now() < end; rounds++) {
    for (int i = 0; i < 100; i++) sum += often(i);
    sum += seldom(rounds);
    for (volatile int i = 0; i < 20000; i++) {}
  }
  printf("often %ld\nseldom %ld\n", rounds * 100, rounds);
  return sum == 42;
}
"""


# A library of eight functions and nothing else. Each other one is called all the time.
FEW = "#define F(n) __attribute__((noinline)) long few##n(long x) { return (x ^ n) * 7 + n * 13; }\n" + "".join(f"F({n})\n" for n in range(8))

OTHER = "int other(void) { return 42; }\n"

LOADS = r"""
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
long few0(long), few1(long), few2(long), few3(long), few4(long), few5(long), few6(long), few7(long);
int main(int argc, char **argv) {
  struct pollfd input = {0, POLLIN, 0};
  long x = 1;
  while (poll(&input, 1, 0) == 0) for (int i = 0; i < 20000; i++) x = few6(few4(few2(few0(x))));
  void *other = dlopen(argv[1], RTLD_NOW);
  int (*function)(void) = (int (*)(void))dlsym(other, "other");
  printf("%ld %d\n", few7(few5(few3(few1(few6(few4(few2(few0(1)))))))), function());
  return x == 42;
}
"""


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.program = self.compile("programs/budget.c", "-O2", "-g", "-pthread")

    def ask(self, *words, status=0):
        result = self.execute(self.contrail, *words)
        expect(result.returncode == status, f"{words}: status {result.returncode}: {result.stderr[:500]}")
        return result.stdout if status == 0 else result.stderr

    def rows(self, *words):
        return super().rows("--limit", "0", *words)

    def budget(self):
        return self.info()["budget"]

    def status_cost(self):
        """What hooks have cost so far, and the program in all."""
        cost = json.loads(self.ask("status", "--json"))["cost"]
        return cost["hooks_ns"], cost["program_cpu_ns"]

    def compare(self, out, missing=()):
        truth = {name: int(number) for name, number in (line.split() for line in out.splitlines())}
        expect(set(truth) == set(NAMES), f"output {out!r}")
        rows = self.rows()
        seen = []
        for name in NAMES:
            row = rows[name]
            if row["was_out"] or name in missing:
                expect(row["calls"] <= truth[name], f"{name}: {row['calls']} calls, {truth[name]} in truth")
            else:
                expect(row["calls"] == truth[name], f"{name}: {row['calls']} calls, {truth[name]} in truth")
            expect(row["calls"] == row["counted"] + row["recorded"], f"{name}: {row}")
            seen.append(f"{name} {'out' if row['was_out'] else 'all of'} {truth[name]:,}")
        return ", ".join(seen)


def compared(scene, limit, seconds="2"):
    out = scene.execute(scene.contrail, "record", "-o", scene.trace, "--budget", limit, "--", scene.program, seconds, "7")
    expect(out.returncode == 7, f"status {out.returncode}: {out.stderr[:500]}")
    told = scene.compare(out.stdout)
    budget = scene.budget()
    expect(abs(budget["limit"] - float(limit[:-1]) / 100) < 1e-9, f"{budget['limit']}")
    expect(all(step["from"] != step["to"] for step in budget["last_steps"]), "a step that is none")
    expect(budget["full"] > 10 * (budget["sampled"] + budget["counted"] + budget["out"]), f"few functions are fully seen: {budget}")
    return f"{told}; {budget['steps']} steps, spent {100 * budget['spent']:.1f} %"


@case(some=("limits", 1))
def two_percent(scene):
    """Threads that come and go, a function whose rate jumps: counts are those of the program."""
    return compared(scene, "2%")


@case(some=("limits", 1))
def ten_percent(scene):
    return compared(scene, "10%", "2")  # what nobody has called is recorded after a second


@case(some=("limits", 1))
def much(scene):
    told = compared(scene, "900%", scene.rounds("0.7", "2"))
    expect(not scene.budget()["were_out"], "functions were out although there was time for all")
    return told


@case
def pieces(scene):
    """The counted calls of all pieces of the time are those of the whole."""
    scene.ask("record", "-q", "-o", scene.trace, "--budget", "10%", "--", scene.program, "1.5")
    whole = scene.rows()
    seconds = scene.info()["duration_ns"] / 1e9
    cuts = [0, seconds / 3, seconds / 2, seconds + 1]
    for name in NAMES:
        expect(whole[name]["counted"] > 0 or name in ("rare",), f"{name} was never counted")
    sums = dict.fromkeys(NAMES, 0)
    for begin, end in zip(cuts, cuts[1:]):
        rows = scene.rows("--from", f"{begin:.9f}", "--to", f"{end:.9f}")
        for name in NAMES:
            sums[name] += rows[name]["counted"] if name in rows else 0
    for name in NAMES:
        expect(sums[name] == whole[name]["counted"], f"{name}: {sums[name]} counted in the pieces, {whole[name]['counted']} in the whole")


@case
def shown(scene):
    """Where a number is not all, or not of all calls, the text says it."""
    scene.ask("record", "-q", "-o", scene.trace, "--budget", "1%", "--", scene.program, "2")
    text = scene.ask("report", "--limit", "0", scene.trace)
    rows = scene.rows()
    for line in text.splitlines():
        name = line.split()[-1] if line.split() else ""
        if name in NAMES:
            mark = ">" if rows[name]["was_out"] else "+" if rows[name]["counted"] else ""
            expect(f" {mark}{rows[name]['calls']:,} " in line, f"{name}: {line!r}")
    expect("calls with + are exact" in text, "the report does not say what + is")
    expect(not any(row["was_out"] for row in rows.values()) or "calls with > are not all" in text, "the report does not say what > is")
    for row in json.loads(scene.ask("sql", "--json", scene.trace, f"SELECT name, calls, counted, was_out FROM functions WHERE name IN {NAMES}")):
        told = {key: int(rows[row["name"]][key]) for key in ("calls", "counted", "was_out")}
        expect(told == {key: row[key] for key in told}, f"sql says {row}, report {told}")
    found = re.search(r"\nbudget     1 %, of late ([\d.]+) % spent \(hooks ([\d.]+), the recorder ([\d.]+)(?:, reports of switches ([\d.]+))?\);", scene.ask("info", scene.trace))
    expect(found, "info does not say it")
    expect(abs(float(found[1]) - sum(float(part or 0) for part in found.groups()[1:])) < 0.06, f"the parts do not add up: {found[0]}")
    lines = [json.loads(line) for line in scene.ask("replay", "--json", "--function", "hot", scene.trace).splitlines()]
    counted = sum(line["calls"] for line in lines if line["kind"] == "counted")
    expect(counted == rows["hot"]["counted"], f"replay: {counted} counted, report: {rows['hot']['counted']}")
    expect(counted > 0, "no call of hot was counted")
    for depths in ("0..", "9999"):
        expect(not any(row["counted"] for row in scene.rows("--depth", depths).values()), f"calls that were counted have a depth in {depths}")
        shown = scene.ask("replay", "--json", "--depth", depths, scene.trace)
        expect('"enter"' in shown and '"counted"' not in shown, f"replay --depth {depths}: calls that were counted have a depth")


@case
def of_patterns(scene):
    """What patterns select is held, too, however many functions that is; none is hooked light unless that is asked for."""
    scene.ask("record", "-q", "-o", scene.trace, "--budget", "2%", "--trace", "**", "--", scene.program, "2")
    budget = scene.budget()
    expect(budget["full"] + budget["sampled"] + budget["counted"] + budget["out"] > 20 and budget["steps"] > 0, f"{budget}"[:300])
    (pattern,) = json.loads(scene.ask("info", "--json", scene.trace))["patterns"]
    expect(pattern["mode"] == "full", f"{pattern}")


def ran_ticks(pid):
    """Of processor time."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))


@case
def attached(scene):
    """To a process that runs; and it runs on as before."""
    program = subprocess.Popen([scene.program, "300", "5"], stdout=subprocess.PIPE, text=True)
    wait_for("its work", lambda: ran_ticks(program.pid) >= 10)
    recorder = subprocess.Popen([scene.contrail, "attach", "-o", scene.trace, "--budget", "5%", str(program.pid)],
                                stderr=subprocess.PIPE, text=True)
    wait_for("the session", lambda: scene.execute(scene.contrail, "status", "--json", str(program.pid)).returncode == 0)

    def budget():
        return json.loads(scene.execute(scene.contrail, "status", "--json", str(program.pid)).stdout)["budget"]
    wait_for("functions that are out or counted", lambda: budget()["full"] > 0 and budget()["counted"] + budget()["out"] > 0)
    expect(budget()["limit"] == 0.05, f"status: {budget()}")
    expect("budget " in scene.execute(scene.contrail, "status", str(program.pid)).stdout, "status does not show it")
    recorder.send_signal(signal.SIGINT)
    err = recorder.communicate(timeout=60)[1]
    program.terminate()  # ends its time
    out = program.communicate(timeout=60)[0]
    expect(program.returncode == 5, f"status {program.returncode}; {err}")
    scene.compare(out, missing=NAMES)


@case
def recorder_killed(scene):
    """At any moment, while levels are set and patches are taken out: the program does not notice."""
    lots = lot("killed")
    for _ in range(scene.rounds(4, 12)):
        trace = scene.path(f"trace-{lots.random()}")
        recorder = subprocess.Popen([scene.contrail, "record", "-o", trace, "--budget", "1%", "--", scene.program, "1.2", "9"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        wait_for("the trace", lambda: os.path.exists(os.path.join(trace, "thread_0", "index.ctb")) or recorder.poll() is not None)
        time.sleep(lots.random() * 0.9)
        recorder.kill()
        out = recorder.communicate(timeout=60)[0]  # the program has it open until its end
        expect(sorted(line.split()[0] for line in out.splitlines()) == sorted(NAMES), f"output {out!r}")


@case
def killed_in_a_step(scene):
    """When some levels are set and others are not: the program does not notice, and what there is can be read."""
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, "--budget", "1%", "--", scene.program, "2", "9"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                env=dict(os.environ, CONTRAIL_TEST_POINT="budget step"))
    wait_for("the middle of a step", lambda: state_of(recorder.pid) in ("T", "t") or recorder.poll() is not None)
    expect(recorder.poll() is None, "no step was taken")
    recorder.kill()
    out = recorder.communicate(timeout=60)[0]  # the program has it open until its end
    expect(sorted(line.split()[0] for line in out.splitlines()) == sorted(NAMES), f"output {out!r}")
    expect(all(int(line.split()[1]) > 0 for line in out.splitlines()), f"output {out!r}")
    scene.ask("recover", scene.trace)
    truth = {name: int(number) for name, number in (line.split() for line in out.splitlines())}
    rows = scene.rows()
    expect(all(rows[name]["calls"] <= truth[name] for name in NAMES if name in rows), f"{rows}, {truth}")


@case
def few_functions(scene):
    """A library whose patches are mostly out is not taken for one that was mapped anew when another one comes."""
    few, other = scene.path("libfew.so"), scene.path("libother.so")
    for source, library, text in (("few.c", few, FEW), ("other.c", other, OTHER)):
        subprocess.run(["gcc", "-O1", "-fno-toplevel-reorder", "-nostdlib", "-shared", "-fPIC", "-o", library, scene.write(source, text)], check=True)
    program = scene.compile(scene.write("loads.c", LOADS), "-O1", few, "-Wl,-rpath," + scene.folder, "-ldl", name="loads")
    plain = subprocess.run([program, other], input="\n", capture_output=True, text=True, check=True)
    with open(few, "rb") as file:
        clean = file.read()
    symbols = {line.split()[2]: int(line.split()[0], 16) for line in scene.run("nm", few).splitlines() if " T few" in line}
    expect(sorted(symbols) == [f"few{n}" for n in range(8)], f"{symbols}")
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "1%", "--", program, other],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_clean(pid, base, name):
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(base + symbols[name])
            return memory.read(5) == clean[symbols[name]:symbols[name] + 5]  # its text lies in the file as in memory

    def are_out():
        for pid in children_of(recorder.pid):
            with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
                bases = [int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(few)]
            if bases and not is_clean(pid, bases[0], "few1"):
                return all(is_clean(pid, bases[0], f"few{n}") for n in (0, 2, 4, 6))
        return False
    wait_for("patches that are out", are_out)
    out, err = recorder.communicate("\n", timeout=60)
    expect(recorder.returncode == 0 and out == plain.stdout, f"{recorder.returncode} {out!r} {err}, without contrail {plain.stdout!r}")
    loads = {os.path.basename(module["path"]): module["loads"] for module in scene.manifest()["modules"]}
    expect(loads["libfew.so"] == loads["libother.so"] == 1, f"{loads}")


RATE = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
static _Atomic long rate, calls;
static _Atomic int over;
__attribute__((noinline)) uint64_t called(uint64_t x) { __asm__ volatile("" : "+r"(x)); return x * 25214903917u + 11; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + t.tv_nsec / 1e9; }
static void *run(void *x) {
  uint64_t v = 1;
  while (!over) {                               /* a millisecond each: its calls, then work without any */
    double until = now() + 1e-3;
    long n = rate / 1000;                       /* once: it may change meanwhile */
    for (long i = 0; i < n; i++) v = called(v);
    calls += n;
    while (now() < until) for (int i = 0; i < 1000; i++) { v = v * 25214903917u + 11; __asm__ volatile("" : "+r"(v)); }
  }
  return (void *)(uintptr_t)v;
}
int main(void) {
  pthread_t thread;
  long wanted;
  setvbuf(stdout, NULL, _IOLBF, 0);
  pthread_create(&thread, NULL, run, NULL);
  puts("ready");
  while (scanf("%ld", &wanted) == 1) { rate = wanted; puts("set"); }
  over = 1;
  pthread_join(thread, NULL);
  printf("%ld\n", calls);
  return 0;
}
"""


def record_rate(scene):
    """RATE under a budget of 2 %: its recorder, and what sets how often it calls."""
    program = scene.compile(scene.write("rate.c", RATE), "-O2", "-pthread", name="rate")
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, "--budget", "2%", "--trace", "called", "--", program],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def set_rate(rate):
        expect(recorder.stdout.readline() in ("ready\n", "set\n"), "the program does not answer")
        recorder.stdin.write(f"{rate}\n")
        recorder.stdin.flush()
    return recorder, set_rate


SETTLED_MOST = 20  # seconds: far more than it takes on a machine with nothing else to do


@case(alone=True)
def ten_times_the_rate(scene):
    """What is spent goes over the limit when a rate jumps tenfold, and is held again soon; the count stays exact."""
    recorder, set_rate = record_rate(scene)

    def spent():
        return json.loads(scene.ask("status", "--json"))["budget"]

    def is_settled():
        """In full; or as the recorder's part leaves it, which is most of 2 % for a program that has little of a processor."""
        now = spent()
        expect(abs(now["hooks"] + now["switches"] + now["recorder"] - now["spent"]) < 1e-6, f"the parts do not add up: {now}")
        return 0.0001 < now["hooks"] <= 0.021 and (now["full"] == 1 or now["recorder"] + now["switches"] > 0.005)
    set_rate(100000)
    wait_for("a rate that is within the limit", is_settled)
    set_rate(1000000)
    begin = time.monotonic()
    most, held, before = 0, None, scene.status_cost()
    at_jump = before[1]
    while held is None or time.monotonic() - held < 1.5:  # it stays so
        time.sleep(0.3)  # what is spent in that time is what is measured
        now = scene.status_cost()
        hooks, program = now[0] - before[0], now[1] - before[1]
        share = hooks / max(program - hooks, 1)
        most, before = max(most, share), now
        held = None if share > 0.022 else held or time.monotonic()
        taken = time.monotonic() - begin
        expect(taken < SETTLED_MOST or now[1] - at_jump < 0.8e9 * taken and taken < 10 * SETTLED_MOST, f"{100 * share:.1f} % is spent {taken:.0f} s after the jump")
    out, err = recorder.communicate(timeout=60)
    expect(recorder.returncode == 0, err)
    row = scene.rows()["called"]
    calls = int(out.split()[-1])
    expect(row["calls"] == calls or (row["was_out"] and row["calls"] < calls), f"{row}, {calls} in truth")
    last = [step for step in scene.budget()["last_steps"] if step["ns"] >= begin * 1e9]
    taken = f"; the last of {len(last)} steps {last[-1]['ns'] / 1e9 - begin:.2f} s after it" if last else ""
    return f"held again {held - begin:.1f} s after the jump at most, until then up to {100 * most:.1f} %, the limit is 2{taken}"


BACK_MOST = 20  # seconds: on a machine with nothing else to do two are enough; after a stop that took milliseconds there is no look for eight


@case(alone=True)
def lone_function(scene):
    """One that takes more than the limit by itself is out, and stays within the limit; when it is called less it is back soon."""
    recorder, set_rate = record_rate(scene)

    def is_out():
        return json.loads(scene.ask("status", "--json"))["budget"]["out"] == 1
    set_rate(60000000)
    wait_for("it to be out", is_out)
    time.sleep(2)  # its patch goes; it may have been measured before
    before = scene.status_cost()

    def spent():
        return [now - then for now, then in zip(scene.status_cost(), before)]
    hooks, used = wait_for("the program to have had a processor for some time", lambda: (now := spent())[1] > 4e9 and now)
    expect(hooks <= 0.022 * used, f"{100 * hooks / used:.1f} % is spent on it, the limit is 2")
    expect(is_out(), "it is back although it is called as often")
    program, = children_of(recorder.pid)
    set_rate(100000)
    begin, before = time.monotonic(), ticks_of(program)
    wait_for("it to be back", lambda: not is_out())
    had = (ticks_of(program) - before) / os.sysconf("SC_CLK_TCK")  # it is never idle
    recorder.communicate(timeout=60)
    expect(recorder.returncode == 0, "the recorder failed")
    back = [step for step in scene.budget()["last_steps"] if step["from"] == "out" and step["ns"] >= begin * 1e9]
    expect(back and back[0]["because"] == "look", f"{scene.budget()['last_steps'][-5:]}")
    took = back[0]["ns"] / 1e9 - begin
    expect(took < BACK_MOST or had < 0.8 * took, f"it was back after {took:.1f} s, in which it had a processor for {had:.1f} s")
    return f"{100 * hooks / used:.2f} % of 2 spent to look at it; back {took:.2f} s after it was called less"


SHORT = """#include <stdio.h>
#include <time.h>
static double at(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec / 1e9; }
__attribute__((noinline)) int called(int n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
int main(void) {
  double end = at(CLOCK_MONOTONIC) + 0.3;
  int n = 0;
  while (at(CLOCK_MONOTONIC) < end) for (int i = 0; i < 1000; i++) n = called(n);
  printf("%.6f %d\\n", at(CLOCK_PROCESS_CPUTIME_ID), n);
}
"""


@case
def short_program(scene):
    """One that ends after 0.3 s has not paid for what a longer one gets: nothing is recorded in full that the limit has not allowed yet."""
    program = scene.compile(scene.write("short.c", SHORT), "-O2", name="short")
    out = scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "2%", "--", program)
    expect(out.returncode == 0, f"{out.returncode} {out.stderr}")
    cpu, calls = float(out.stdout.split()[0]), int(out.stdout.split()[1])
    row = scene.rows()["called"]
    expect(row["calls"] == calls or (row["was_out"] and row["calls"] < calls), f"{row}, {calls} in truth")
    spent = row["recorded"] * 20e-9  # two events, of which none takes less
    # One of 64 of those that were counted was recorded before the first look, which is late where the recorder has no processor.
    expect(spent < 0.04 * cpu or row["recorded"] < row["calls"] / 48, f"{row['recorded']:,} of {calls:,} calls were recorded: more than {100 * spent / cpu:.1f} % of {cpu:.3f} s")
    return f"{row['recorded']:,} of {calls:,} calls were recorded, {100 * spent / cpu:.1f} % of {cpu:.3f} s"


RETURNS = """#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define CALLED(n) __attribute__((noinline)) uint64_t called##n(uint64_t x) { __asm__ volatile("" : "+r"(x)); return x * 25214903917u + n; }
CALLED(1) CALLED(2) CALLED(3) CALLED(4) CALLED(5) CALLED(6) CALLED(7) CALLED(8)
static double at(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int argc, char **argv) {
  struct pollfd input = {0, POLLIN, 0};
  double hot = atof(argv[1]);
  int cool = 0;
  uint64_t v = 1, calls = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int n = 0; n % 100 != 0 || poll(&input, 1, 0) == 0; n++) {
    cool = cool || at(CLOCK_PROCESS_CPUTIME_ID) >= hot;
    long some = cool ? 4 : 400;
    for (long i = 0; i < some; i++) v = called8(called7(called6(called5(called4(called3(called2(called1(v))))))));
    calls += some;
    for (int i = 0; i < 60000; i++) { v = v * 25214903917u + 11; __asm__ volatile("" : "+r"(v)); }
    if (cool) usleep(1000);
    if (n % 100 == 0) printf("%.9f %lu\\n", at(CLOCK_MONOTONIC), calls);
  }
  printf("%.9f %lu\\n", at(CLOCK_MONOTONIC), calls);
  return v == 0;
}
"""


@case
def comes_back(scene):
    """What was out for some time, and came back, is marked where the whole is shown, and not in what was recorded after that."""
    program = scene.compile(scene.write("returns.c", RETURNS), "-O2", name="returns")
    log = []
    with Running([scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "10%", "--trace", "called*", "--", program, "0.7"], stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE, text=True) as recorder:
        def look(calls):
            """What the program says, until it has made so many calls more."""
            least = calls + (log[-1][1] if log else 0)
            while not log or log[-1][1] < least:
                when, number = recorder.stdout.readline().split()
                log.append((float(when), int(number)))

        def cooled():
            """Since when the calls are few; of what was hot too, counts are written every 100 ms."""
            return min((at for (at, calls), (_, then) in zip(log, log[1:]) if then - calls <= 400), default=math.inf)

        def back():
            return [item[2] / 1e9 for item in scene.budget()["out_during"] if item[2] / 1e9 > cooled()]
        look(1)
        wait_for("one that is back", lambda: look(1) or back())
        look(15000)
        recorder.stdin.write("\n")
        recorder.stdin.close()
        log += [(float(when), int(number)) for when, number in map(str.split, recorder.stdout)]
        expect(recorder.wait() == 0, f"status {recorder.returncode}")
    budget, whole = scene.budget(), scene.rows()
    expect(all(step["because"] in ("limit", "exchange", "room", "look") and step["rate"] >= 0 for step in budget["last_steps"]),
           f"{budget['last_steps']}"[:500])
    with open(os.path.join(scene.trace, "manifest.json"), encoding="utf-8") as file:
        begin = json.load(file)["start_ns"] / 1e9
    until = min(back())  # others may come back later
    later = [(at, calls) for at, calls in log if at > until + 0.3]
    truth = log[-1][1] - later[0][1]
    rows, before = scene.rows("--from", f"{later[0][0] - begin:.9f}"), scene.rows("--to", f"{until - begin:.9f}")
    came_back = [name for name in rows if whole[name]["was_out"] and not rows[name]["was_out"]]
    expect(1 <= len(came_back) <= len(budget["out_during"]), f"{came_back}, {budget['out_during']}")
    for name in came_back:
        expect((name not in before or before[name]["was_out"]) and whole[name]["calls"] < log[-1][1], f"it was not out: {before.get(name)}, {whole[name]}")
        expect(abs(rows[name]["calls"] - truth) <= 0.1 * truth + 2000, f"{rows[name]}, {truth} in truth")  # counts are written every 100 ms
    return f"{len(came_back)} back {until - begin:.1f} s after the begin; of {truth:,} calls since {rows[came_back[0]]['calls']:,}"


COPIES = """#include <string.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static char from[4096], to[4096];
int main(void) {
  void *(*volatile copy)(void *, const void *, size_t) = memcpy;
  double end = now() + 2;
  while (now() < end) for (int i = 0; i < 1000; i++) copy(to + (i & 63), from, 40);
  return 0;
}
"""


@case
def no_time_to_decide(scene):
    """One that has ended before the first look: info does not say that it has no functions."""
    scene.write("short.c", "__attribute__((noinline)) int twice(int n) { return 2 * n; }\nint main(void) { return twice(21) - 42; }\n")
    program = scene.compile(scene.path("short.c"), "-O1")
    scene.run(scene.contrail, "record", "-q", "--budget", "5%", "--trace", "twice", "-o", scene.trace, "--", program)
    line = next(line for line in scene.ask("info", scene.trace).splitlines() if line.startswith("budget "))
    expect("5 %, nothing decided yet: calls are counted, one of 64" in line, line)


@case
def next_to_no_time(scene):
    """What a program calls that sleeps nearly always is recorded soon where the limit is far: its processor time is not waited for."""
    program = scene.compile("programs/marked.c", "-O1", "-pthread", name="marked")

    def early_calls():
        scene.run("rm", "-rf", scene.trace)
        scene.run(scene.contrail, "record", "-q", "--budget", "900%", "-o", scene.trace, "--", program)
        return len(scene.run(scene.contrail, "replay", "--json", "--function", "work", "--to", "0.5", scene.trace).splitlines()) // 2
    calls = []
    while not calls or calls[-1] < 1500:  # of 2,500; a busy recorder comes to it too late
        expect(len(calls) < 5, calls)
        calls.append(early_calls())


@case
def patches_that_stay(scene):
    """What memcpy costs although it is out, since it keeps its patch, is told with the rest."""
    program = scene.compile(scene.write("copies.c", COPIES), "-O2", name="copies")
    scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "2%", "--", program)
    left = scene.budget()["patches_left"]
    text = scene.run(scene.contrail, "info", scene.trace)
    found = re.search(r"out, but with their patches, which take some ([\d.]+) % of the processor time: (\w+) \(([\d.]+) %\)\n", text)
    expect(found and ("mem" in found[2]) and float(found[1]) > 2, f"{left} {text[:1500]}")
    expect(abs(100 * left["share"] - float(found[1])) < 1 and len(left["functions"]) == 1, f"{left}")
    return found[0].strip()


RULED = """__attribute__((noinline)) int often(int n) { return n & 1; }
__attribute__((noinline)) int rare(int n) { return n == 300 ? -1 : 0; }
int main(void) {
  int sum = 0;
  for (int n = 0; n < 500; n++) {
    sum += rare(n);
    for (int k = 0; k < 60000; k++) sum += often(k);
  }
  return sum == 14999999 ? 0 : 1;
}
"""


@case
def ruled(scene):
    """What a rule is about is recorded from the first call on while it fits; where it does not, calls are told that the rule did not see."""
    program = scene.compile(scene.write("ruled.c", RULED), "-O1", name="ruled")
    rules = ("rare returns < 0", "often returns < 0", "rate often > 1000000/s")
    scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "1%", "--trace", "often", "--trace", "rare",
                  *(word for rule in rules for word in ("--on", rule)), "--", program)
    with open(os.path.join(scene.trace, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    rare, often, rate = manifest["rules"]
    expect((rare["marks"], rare["unseen_calls"], rare["unseen_functions"]) == (1, 0, 0) and rate["marks"] >= 1, f"{manifest['rules']}")
    calls = {row["name"]: row["calls"] for row in json.loads(scene.ask("report", "--json", scene.trace))["functions"]}
    unseen = often["unseen_calls"]
    expect(calls["rare"] == 500 and (unseen > 10000000 or often["unseen_functions"] == 1) and unseen <= calls["often"], f"{often} {calls}")
    expect("rule 'often returns < 0' did not see" in scene.run(scene.contrail, "info", scene.trace), "nothing says what the rule did not see")
    return f"1 of 1 failure seen beside {unseen:,} calls that were counted only"


GO = """package main
import "fmt"
//go:noinline
func called(n int) int { return n + 1 }
//go:noinline
func once(n int) int { return called(n) }
func main() {
	n := once(0)
	for i := 0; i < 60000000; i++ { n = called(n) }
	fmt.Println(n)
}
"""


@case
def points(scene):
    """Of Go's functions only calls are recorded, and they cannot be counted: those that cost too much go out."""
    need("go")
    scene.write("main.go", GO)
    environment = dict(os.environ, GOFLAGS="-mod=mod", GO111MODULE="off", HOME=scene.folder, GOCACHE=scene.path("cache"))
    subprocess.run(["go", "build", "-o", scene.path("points"), scene.path("main.go")], check=True, env=environment, cwd=scene.folder)
    out = scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "5%", "--", scene.path("points"))
    expect((out.returncode, out.stdout) == (0, "60000001\n"), f"{out.returncode} {out.stdout!r} {out.stderr[:300]}")
    rows, budget = scene.rows(), scene.budget()
    called, once = rows["main.called"], rows["main.once"]
    expect(called["was_out"] and called["calls"] < 20000000, f"{called}")
    expect(once["calls"] == 1 and not once["was_out"], f"{once}")
    expect(budget["full"] > 500 and budget["out"] >= 1 and budget["full"] > 5 * budget["out"], f"{budget}")
    return f"{called['calls']:,} of 60,000,001 calls were recorded"


@case(alone=True)
def against_callgrind(scene):
    """What stayed counted or full under 5 % has callgrind's numbers; what was out is marked as such."""
    need("valgrind")
    source = scene.path("generated.c")
    callgrind.generate(source, 1000, 2027)
    with open(source, encoding="ascii") as file:
        text = file.read()
    expect("table[i](7, i)" in text, "another program is generated")
    words = [scene.compile(scene.write("deeper.c", text.replace("table[i](7, i)", "table[i](13, i)")), "-O2", "-g", name="deeper")]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "GLIBC_TUNABLES": callgrind.TUNABLES, "HOME": scene.folder}
    counted = scene.path("callgrind.out")
    plain = callgrind.run(words, scene.folder, environment)
    witness = callgrind.run(["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no",
                             f"--callgrind-out-file={counted}", *words], scene.folder, environment)
    traced = callgrind.run([scene.contrail, "record", "-o", scene.trace, "--budget", "5%", "--", *words], scene.folder, environment)
    expect(plain[:2] == witness[:2] == traced[:2], f"output or status differ: {plain} {witness} {traced}"[:600])
    agree, differences = callgrind.compare(scene.contrail, counted, scene.trace)
    rows = {}
    for row in json.loads(scene.ask("report", "--json", "--limit", "0", scene.trace))["functions"]:
        rows.setdefault((os.path.basename(row["module"]), row["name"]), []).append(row)
    out = {key for key, list_of in rows.items() if any(row["was_out"] for row in list_of)}
    with open(os.path.join(scene.trace, "functions.tsv"), encoding="utf-8") as file:
        names = [line.rstrip("\n").split("\t")[5] for line in file]
    never = {names[number] for number in scene.budget()["were_out"]}
    wrong = [difference[:4] for difference in differences
             if difference[4] is None and difference[:2] not in out and not (difference[3] == 0 and difference[1] in never)]
    more = [difference for difference in differences if difference[4] is None and difference[3] > difference[2]]
    expect(not wrong and not more, f"{len(wrong)} differ: {wrong[:10]}; more than there are: {more[:10]}")
    exact = sum(any(row["counted"] for row in list_of) and key not in out for key, list_of in rows.items())
    expect(agree + len(out) >= 900 and agree >= 100 and exact >= 30, f"{agree} functions agree, of them {exact} counted, {len(out)} were out")
    return f"{agree} functions agree, {exact} of them counted, {len(out)} were out"


def many_functions(scene):
    """A program with 13,000 functions of its own, and two of a library that it calls."""
    functions = "".join(f".globl many{n}\n.type many{n}, @function\nmany{n}: lea 1(%rdi), %eax\nimul $3, %eax, %eax\nret\n.size many{n}, .-many{n}\n"
                        for n in range(13000))
    many = scene.write("many.s", ".text\n" + functions + ".section .note.GNU-stack\n")
    library = scene.path("libcalled.so")
    called = scene.write("called.c", "long often(long x) { return x * 3 + 1; }\nlong seldom(long x) { return x * 5 + 2; }\n")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, called], check=True)
    program = scene.path("many")
    subprocess.run(["gcc", "-O1", "-o", program, scene.write("many.c", MANY), many, library], check=True)
    return program


@case
def counted_from_the_begin(scene):
    """Of a program with many functions those of its libraries are counted from the first call on, like all others."""
    program = many_functions(scene)
    out = scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, "--budget", "2%", "--", program, "0.1")
    expect(out.returncode == 0, f"status {out.returncode}: {out.stderr[:500]}")
    row, calls = scene.rows()["often"], int(out.stdout.split()[1])
    expect(row["calls"] == calls or (row["was_out"] and row["calls"] < calls), f"{row}, {calls} in truth")
    expect(row["recorded"] <= calls / 64 + 1, f"{row['recorded']:,} of {calls:,} calls were recorded")
    in_all = scene.budget()["in_all"]
    parts = in_all["hooks"] + in_all["switches"] + in_all["recorder"]
    expect(abs(in_all["spent"] - parts) < 1e-6 and in_all["own_ns"] > 0, f"{in_all}")
    expect("  in all hooks at most " in scene.ask("info", scene.trace), "info does not say what was spent in all")
    return f"{row['recorded']:,} of {calls:,} calls were recorded, {100 * in_all['hooks']:.1f} % spent for hooks in all"


@case
def beyond(scene):
    """Where address space is limited, and there are counters for few, the functions beyond these are counted where they need it."""
    program = many_functions(scene)
    limited = 'ulimit -v 60000000; exec "$@"'
    out = scene.execute("sh", "-c", limited, "sh", scene.contrail, "record", "-o", scene.trace, "--budget", "10%", "--", program, "2")
    expect(out.returncode == 0, f"status {out.returncode}: {out.stderr[:500]}")
    rows = scene.rows()
    for name, number in (line.split() for line in out.stdout.splitlines()):
        row = rows[name]
        expect(row["calls"] == int(number) or (row["was_out"] and row["calls"] < int(number)), f"{name}: {row['calls']} calls, {number} in truth")
        expect(row["calls"] == row["counted"] + row["recorded"], f"{name}: {row}")
    expect(rows["often"]["counted"] > 0, f"often was never counted: {rows['often']}")
    return f"{rows['often']['counted']:,} of {rows['often']['calls']:,} calls were counted"


@case
def children(scene):
    """Forked children that are followed have counters of their own; an exec begins anew."""
    source = scene.write("forks.c", FORKS)
    program = scene.path("forks")
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    out = scene.execute(scene.contrail, "record", "--follow", "-o", scene.trace, "--budget", "50%", "--", program, "again")
    expect(out.returncode == 3 and out.stdout == "28\n28\n", f"{out.returncode} {out.stdout!r} {out.stderr[:300]}")
    rows = scene.rows("--family")
    for name, calls in (("in_child", 16 * 100000), ("in_parent", 16 * 30000)):
        row = rows[name]
        expect(row["calls"] == calls or (row["was_out"] and row["calls"] < calls), f"{name}: {row['calls']} calls, {calls} in truth")


@case
def refused(scene):
    for value in ("0", "x", "-5%", "1001%", "5%%", "", "nan"):
        err = scene.ask("record", "-o", scene.trace, "--budget", value, "--", "true", status=2)
        expect("--budget takes a percentage" in err, f"{value}: {err!r}")


def stands_still(scene, seconds):
    """The recorder, from when it has begun; what the program says, and info."""
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, "--budget", "5%", "--", scene.program, str(seconds + 4), "7"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for("the trace", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    time.sleep(1)  # it is settled, more or less
    recorder.send_signal(signal.SIGSTOP)
    time.sleep(seconds)  # what is asked for
    recorder.send_signal(signal.SIGCONT)
    out, err = recorder.communicate(timeout=60)
    expect(recorder.returncode == 7, f"status {recorder.returncode}: {err[:500]}")
    return out


@case(some=("bad days", 1))
def recorder_stopped(scene):
    """It stands still for seconds: the program goes on, and what was counted meanwhile is not missing."""
    return scene.compare(stands_still(scene, scene.rounds(4, 10)))


@case(some=("bad days", 1))
def slow_disk(scene):
    """Each write takes 20 ms more."""
    out = scene.execute(scene.contrail, "record", "-o", scene.trace, "--budget", "10%", "--", scene.program, "2", "7",
                        env=dict(os.environ, CONTRAIL_TEST_DISK_MS="20"))
    expect(out.returncode == 7, f"status {out.returncode}: {out.stderr[:500]}")
    return scene.compare(out.stdout)


@case(some=("bad days", 1))
def full_disk(scene):
    """The program goes on to its end; what there was room for can be read, and is told to be a part."""
    disk = scene.path("disk")
    os.mkdir(disk)
    if scene.execute("mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk).returncode != 0:
        raise harness.Skip("no right to mount a small disk")
    try:
        scene.trace = os.path.join(disk, "trace")
        out = scene.execute(scene.contrail, "record", "-o", scene.trace, "--budget", "50%", "--", scene.program, "4", "7")
        truth = {name: int(number) for name, number in (line.split() for line in out.stdout.splitlines())}
        expect(out.returncode == 125 and set(truth) == set(NAMES), f"{out.returncode} {out.stdout!r} {out.stderr[:500]}")
        expect("No space left on device" in out.stderr, out.stderr[:500])
        rows = scene.rows()
        expect(rows and all(row["calls"] <= truth[name] for name, row in rows.items() if name in truth), f"{rows}, {truth}")
        expect("INCOMPLETE" in scene.ask("info", scene.trace), "info does not say it")
    finally:
        subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    main(__doc__, Scene)
