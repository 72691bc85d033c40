#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail itrace of some calls only (--function, --when, --limit, --from and --to): the steps of these, and no others.

    tests/itraceselected.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import subprocess

import harness
from harness import case, expect, main, wait_for

SECONDS = 300

Scene = harness.Scene


SCOPES = r"""
extern "C" int puts(const char *);
extern "C" __attribute__((noinline)) int three(int x) { __asm__ volatile(""); return x + 1; }
namespace outer {
namespace inner {
__attribute__((noinline)) int two(int x) { __asm__ volatile(""); return three(x) * 2; }
}
__attribute__((noinline)) int one(int x) { __asm__ volatile(""); return inner::two(x) + 1; }
}
int main(int argc, char **) { return outer::one(argc) == 99 || puts("1") < 0; }
"""
CHOSEN = r"""
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#define APART __attribute__((noinline))
static jmp_buf place;
APART int leaf(int x) { return x * 3 + 1; }
APART int twice(int n) { return n < 2 ? leaf(n) : twice(n - 1) + twice(n - 2); }
APART int text(int x) { char b[64]; snprintf(b, sizeof b, "%d", x); return (int)strlen(b) + leaf(x); }
APART void jumps(int x) { if (x % 2) longjmp(place, 1); leaf(x); }
int main(int c, char **v)
{
  long s = 0;
  do {
    for (int i = 0; i < 50; i++) s += text(i);
    for (int i = 0; i < 6; i++) s += twice(i);
    for (volatile int i = 0; i < 20; i++) if (!setjmp(place)) jumps(i);
    if (c > 1) usleep(100);
  } while (c > 1 && write(1, "", 0) == 0 && access(v[1], F_OK) == 0);
  printf("%ld\n", c > 1 ? 0 : s);
  return 0;
}
"""


def selected_program(scene):
    with open(scene.path("selected.c"), "w", encoding="ascii") as file:
        file.write(CHOSEN)
    return scene.compile(scene.path("selected.c"), "-O1", "-fno-inline")


def stretches(scene, *words):
    """The steps that `contrail itrace` records with those options: addresses, functions and stack pointers."""
    folder = scene.path("-".join(words).translate({ord(c): None for c in " /=<>"}))
    done = scene.execute(scene.contrail, "itrace", "--no-vector", "-o", folder, *words[:-1], "--", "setarch", "-R", words[-1], timeout=SECONDS)
    expect(done.returncode == 0 and done.stdout.strip().isdigit() and "contrail: " in done.stderr, f"{done.returncode} {done.stderr[-200:]}")
    shown = scene.execute(scene.contrail, "steps", "--json", folder, timeout=SECONDS)
    steps, stack = [], 0
    for step in harness.parse_lines(shown.stdout):
        if "code" in step:
            steps.append((step["pc"], step["function"].split("+")[0], stack, step["code"]))
            stack = int(step["changed"].get("rsp") or "0x0", 16) or stack
    return steps, done.stderr


def calls_of(steps, name, entry):
    """By all steps of the program: those of the calls of a function that are in no other call of it, by the stack pointer."""
    found, inside = [], None
    for step in steps:
        if inside is not None and inside < step[2] < inside + 65536:
            inside = None
        if inside is None and step[0] == entry:
            inside = step[2]
        if inside is not None:
            found.append(step[0])
    return found


@case
def only_calls(scene):
    """--function: the very steps that a recording of everything has of these calls, also of those that longjmp leaves."""
    program, told = selected_program(scene), []
    every, _ = stretches(scene, program)
    names = (("text", 50), ("leaf", 50 + 20), ("twice", 6), ("jumps", 20))
    for name, count in random.sample(names, scene.rounds(2, len(names))):
        selected, told_here = stretches(scene, "--function", name, program)
        entry = next(step[0] for step in every if step[1] == name)
        expected = calls_of(every, name, entry)
        # What leaves by longjmp is recorded up to where the stack pointer is another one.
        got = [step[0] for step in selected]
        expect(got == expected, f"{name}: {len(got)} steps, {len(expected)} in truth")
        expect(f" {count} calls " in told_here, told_here)
        told.append(f"{name} {len(got)}")
    return ", ".join(told)


@case
def patterns(scene):
    """--function takes the patterns of record --trace, of itrace and of steps alike: one scope and deep, modules, files, @usercode."""
    with open(scene.path("scopes.cc"), "w", encoding="ascii") as file:
        file.write(SCOPES)
    program, whole = scene.path("scopes"), scene.path("whole")
    scene.run("g++", "-O1", "-g", "-o", program, scene.path("scopes.cc"))
    scene.run(scene.contrail, "itrace", "-q", "-o", whole, "--", program)
    one, two, three, every = "outer::one", "outer::inner::two", "three", {"outer::one", "outer::inner::two", "three", "main"}
    inside = {"main": every, one: {two, three}, two: {three}, three: set()}  # what they call is recorded with them
    for pattern, names in (("outer::*", {one}), ("outer::**", {one, two}), ("outer", set()), ("**::two", {two}), ("scopes!outer::one", {one}),
                           ("scop*!outer::**", {one, two}), ("scopes!three", {three}), ("libc.so.6!outer::one", set()), ("@file:scopes.cc", every),
                           ("@file:other.cc", set()), ("@usercode", every), ("scopes!", every)):
        if pattern in ("outer::*", "scop*!outer::**", "libc.so.6!outer::one", "@file:scopes.cc", "@usercode"):
            selected, said = stretches(scene, "--function", pattern, program)
            own = {step[1].split("(")[0] for step in selected} & every
            expect(own == names.union(*(inside[name] for name in names)), f"itrace --function {pattern}: {own}; {said}")
        shown = scene.run(scene.contrail, "steps", whole, "--json", "-n", "0", "--function", pattern, status=0 if names else 1)
        own = {step["function"].split("+")[0].split("(")[0] for step in harness.parse_lines(shown) if "code" in step} & every
        expect(own == names, f"steps --function {pattern}: {own}, not {names}")


@case
def only_some_calls(scene):
    """--when and --limit, and --from with --to."""
    program = selected_program(scene)
    selected, told = stretches(scene, "--function", "text", "--when", "arg1 == 7", program)
    expect(" 1 call " in told and selected[0][1] == "text" and selected[-1][3] == "ret", told)
    selected, told = stretches(scene, "--function", "text", "--when", "rdi >= 48", program)
    expect(" 2 calls " in told, told)
    selected, told = stretches(scene, "--function", "leaf", "--limit", "3", program)
    expect(" 3 calls " in told and {step[1] for step in selected} == {"leaf"}, told)
    selected, told = stretches(scene, "--from", "text", "--to", "leaf", program)
    expect(" 50 stretches " in told and selected[0][1] == "text" and "leaf" not in {step[1] for step in selected}, told)
    _, told = stretches(scene, "--from", "text", "--to", "leaf", "--limit", "1", program)
    expect(" of 1 stretch in " in told, told)
    _, told = stretches(scene, "--function", "no_such", program)
    expect("no_such names no function" in told, told)
    for words in (("--function", "leaf", "--when", "arg9 > 1"), ("--function", "leaf", "--when", "arg1 == 99999999999999999999"),
                  ("--from", "leaf"), ("--limit", "3"), ("--from", "0x12x", "--to", "leaf")):
        wrong = scene.execute(scene.contrail, "itrace", "-o", scene.path("wrong"), *words, "--", program)
        expect(wrong.returncode in (2, 125) and wrong.stdout == "" and wrong.stderr.count("\n") <= 2, f"{words}: {wrong}")


@case
def chosen_when_loaded(scene):
    """A function with several implementations (IFUNC): the one that its resolver has chosen, as well as the resolver. Of a program of
    one's own, and of libm's sin, which has no names for them; of one that runs already, too."""
    program = scene.compile(scene.write("chosen.c", r"""
        #include <math.h>
        #include <stdio.h>
        __attribute__((noinline)) static int one(int x) { return x + 1; }
        __attribute__((noinline)) static int other(int x) { return x + 2; }
        static int (*resolve(void))(int) { return one(1) == 2 ? other : one; }
        int chosen(int x) __attribute__((ifunc("resolve")));
        volatile double angle = 0.5;
        volatile int number = 5;
        int main(void)
        {
          double sum = 0;
          puts("ready");
          fflush(stdout);
          getchar();
          for (int i = 0; i < 3; i++) sum += sin(angle) + chosen(number);
          printf("%d\n", (int)sum);
          return 0;
        }"""), "-O1", "-lm", name="chosen")
    for name, wanted in (("chosen", "other"), ("sin", "")):
        folder = scene.path(f"steps-{name}")
        done = subprocess.run([scene.contrail, "itrace", "-F", name, "-o", folder, "--", program], input="x", capture_output=True, text=True, timeout=SECONDS)
        steps = [step for step in harness.parse_lines(scene.run(scene.contrail, "steps", "--json", folder)) if "code" in step]
        called = [step for step in steps if step["function"] == wanted or (not wanted and step["code"].startswith("ret"))]
        # libm asks its resolver for itself, too.
        expect(done.stdout == "ready\n22\n" and re.search(" [45] calls ", done.stderr) and len(called) >= 3, f"{name}: {done} {steps[-3:]}")
        shown = scene.run(scene.contrail, "steps", "-F", name, "--json", folder)
        expect(shown.count('"code"') == len(steps), f"{name}: {shown.count(chr(10))} steps are of it, not {len(steps)}")
        attached = scene.path(f"attached-{name}")
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            expect(running.stdout.readline() == "ready\n", "it is not ready")
            with subprocess.Popen([scene.contrail, "itrace", "-F", name, "-n", "3", "-o", attached, str(running.pid)], stderr=subprocess.PIPE, text=True) as recorder:
                wait_for("it to be traced", lambda one=running, file=attached: os.path.exists(f"{file}/steps.{one.pid}"))
                running.stdin.write("x")
                running.stdin.close()
                _, errors = recorder.communicate(timeout=SECONDS)
                expect(" 3 calls " in errors, f"{name}: {errors}")


def waits(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().split()[0] in ("35", "230")  # nanosleep, clock_nanosleep


@case
def thread_that_waited(scene):
    """Of a thread that executes nothing while it is recorded, steps says that; of a function that is not called, that there is none."""
    for words, told in (((), "waited all the time"), (("-F", "strlen"), "no such step")):
        folder = scene.path(f"waited{len(words)}")
        with subprocess.Popen(["sleep", "1000"]) as running:
            try:
                wait_for("its wait", lambda one=running: waits(one.pid))
                scene.execute(scene.contrail, "itrace", "-q", "--for", "200ms", *words, "-o", folder, str(running.pid), timeout=SECONDS)
            finally:
                running.kill()
        shown = scene.execute(scene.contrail, "steps", folder, timeout=SECONDS)
        expect(shown.returncode == 1 and told in shown.stderr, f"{words}: {shown}")


@case
def ends_of_calls(scene):
    """The return of a call that is recorded leads to its caller, not to where the next one begins; that the thread ran on between is said."""
    program = selected_program(scene)
    every, _ = stretches(scene, program)
    to = [after[0] for step, after in zip(every, every[1:]) if step[1] == "leaf" and step[3] == "ret"]
    for count in (1, 3):
        folder = scene.path(f"ends{count}")
        scene.execute(scene.contrail, "itrace", "-q", "-o", folder, "-F", "leaf", "-n", str(count), "--", "setarch", "-R", program, timeout=SECONDS)
        shown = [json.loads(line) for line in scene.run(scene.contrail, "steps", "--json", folder).splitlines()]
        loaded = [row["load"]["value"] for row in shown if row.get("code") == "ret" and "load" in row]
        expect(loaded == to[:count], f"{loaded}, not {to[:count]}")
        events = [row["event"] for row in shown if "event" in row]
        expect(len(events) == count and all("ran on unrecorded" in event for event in events[:-1]) and "exited" in events[-1], f"{events}")
        after = json.loads(scene.run(scene.contrail, "report", "--json", folder))
        (leaf,) = [row for row in after["functions"] if row["name"] == "leaf"]
        expect(leaf["calls"] == count and leaf["max_ns"] < 5000000, f"{leaf}")
    return f"{len(to)} calls"


MANY = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
static volatile long signals;
static void on_signal(int s) { (void)s; signals++; }
/* Each call with other flags, rax and rcx; what it finds of them. */
__asm__(".globl wanted\n.type wanted, @function\nwanted:\n pushf\n pop %rdx\n xor %rcx, %rax\n xor %rdx, %rax\n ret\n.size wanted, .-wanted\n");
int main(int c, char **v)
{
  struct itimerval every = {{0, 500}, {0, 500}};
  unsigned long sum = 0, n = c > 1 ? 200000 : 1;
  struct rusage used;
  signal(SIGALRM, on_signal);
  setitimer(ITIMER_REAL, &every, 0);
  for (unsigned long i = 0; i < n; i++) {
    unsigned long got, x = i * 0x9e3779b97f4a7c15ul, flags = (x >> 40 & 0x8d5) | 2;
    __asm__ volatile("push %3\n popf\n call wanted\n" : "=a"(got) : "0"(x), "c"(i ^ x << 7), "r"(flags), "D"(i) : "rdx", "cc", "memory");
    sum = sum * 31 + (got & ~0x200ul);
  }
  every = (struct itimerval){0};
  setitimer(ITIMER_REAL, &every, 0);
  getrusage(RUSAGE_SELF, &used);
  printf("%lx\n", sum);
  fprintf(stderr, "%ld waits, signals %d\n", used.ru_nvcsw, signals > 0);
  return 0;
}
"""


@case
def calls_that_are_not_wanted(scene):
    """A condition that does not hold is seen without the tracer; flags and registers stay, signals come. All operators."""
    program = scene.compile(scene.write("many.c", MANY), "-O1", "-mno-red-zone")
    alone = subprocess.run([program, "x"], capture_output=True, text=True, timeout=SECONDS)
    for number, (when, calls) in enumerate((("rdi == 77777", 1), ("rdi < 2", 2), ("rdi >= 199997", 3), ("arg1 <= -1", 0), ("rdi > 199995", 4), ("rcx == 0x123456789", 0), ("rax == -7", 0),
                                            ("r12 == 0x7fffffffffffffff", 0))):
        done = scene.execute(scene.contrail, "itrace", "-o", scene.path(f"many{number}"), "--function", "wanted", "--when", when, "--", program, "x", timeout=SECONDS)
        expect(done.returncode == 0 and done.stdout == alone.stdout and "signals 1" in done.stderr, f"{when}: {done} {alone}")
        expect(f" {calls} call" in done.stderr if calls != 0 else "not called with that condition" in done.stderr, f"{when}: {done.stderr}")
        waits = int(re.search(r"(\d+) waits", done.stderr).group(1))
        expect(waits < 50000, f"{when}: {waits} waits for the tracer in 200,000 calls")
    unequal = scene.execute(scene.contrail, "itrace", "-o", scene.path("unequal"), "--function", "wanted", "--when", "rdi != 0", "--", program, timeout=SECONDS)
    expect("not called with that condition" in unequal.stderr, f"{unequal}")


@case
def calls_of_a_process(scene):
    """Calls of a process that runs, again and again; it is released when there were enough, and goes on."""
    program, flag = selected_program(scene), scene.path("flag")
    open(flag, "w", encoding="ascii").close()
    process = subprocess.Popen([program, flag], stdout=subprocess.PIPE, text=True)
    wait_for("its loop", lambda: os.path.exists(f"/proc/{process.pid}/stat") and process.poll() is None)
    for turn in range(5):
        done = scene.execute(scene.contrail, "itrace", "-o", scene.path(f"steps{turn}"), "-F", "snprintf", "-n", "3", str(process.pid), timeout=SECONDS)
        expect(done.returncode == 0 and " 3 calls " in done.stderr, f"{done.returncode} {done.stderr}")
    os.remove(flag)
    out, _ = process.communicate(timeout=SECONDS)
    expect(process.returncode == 0 and out == "0\n", f"{process.returncode} {out!r}")


@case
def alignment_checks(scene):
    """A program that has alignment checks on (EFLAGS.AC): outside of what is recorded, in it, and with hooks."""
    program = scene.compile("itrace/aligned.c", "-O1", "-w")
    natively = scene.execute(program).stdout
    expect(natively.endswith(" 1\n"), natively)
    for turn, words in enumerate((("itrace", "--function", "known"), ("itrace",), ("record", "--args"), ("record", "--mode", "light"))):
        done = scene.execute(scene.contrail, *words, "-o", scene.path(f"aligned{turn}"), "--", program, timeout=SECONDS)
        expect((done.returncode, done.stdout) == (0, natively), f"{words}: {done.returncode} {done.stdout!r} {done.stderr[-200:]}")
        expect(turn != 0 or "of 200 calls" in done.stderr, done.stderr)


if __name__ == "__main__":
    main(__doc__, Scene)
