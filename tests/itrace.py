#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Translated code (src/itrace, src/x86/translate.c), by the tool build/tests/translated: what a program prints and how it ends
is the same with it and without.

    tests/itrace.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import harness
from harness import case, expect, main, need, wait_for

FLAGS = ("-O2", "-D_GNU_SOURCE", "-pthread", "-w")
SECONDS = 60


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.tool = os.path.join(options.build, "tests", "translated")
        self.processes = []

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def made(self, name, *words):
        """A program of tests/itrace."""
        return self.compile(f"itrace/{name}.c", *FLAGS, *words)

    def outcome(self, *words):
        """The status as a shell has it: with a core limit of 0 the tool ends by exit, in place of a signal that would dump."""
        result = self.execute(*words, timeout=SECONDS)
        status = result.returncode
        return status if status >= 0 else 128 - status, result.stdout, result.stderr

    def same(self, *words):
        """Plays it both ways; what it printed."""
        expected, got = self.outcome(*words), self.outcome(self.tool, "--", *words)
        for name, one, other in zip(("status", "output", "errors"), expected, got):
            if one != other:
                lines = [f"{a}\n     translated: {b}" for a, b in zip(str(one).split("\n"), str(other).split("\n")) if a != b]
                raise AssertionError(f"{name} of {os.path.basename(words[0])} {' '.join(words[1:])}:\n     "
                                     + "\n     ".join(lines[:5] or [repr(one)[-300:], repr(other)[-300:]]))
        return got[1]

    def well(self, *words):
        """Likewise, of a program that looks at itself."""
        text = self.same(*words)
        expect(text.endswith(": all right\n"), text)
        return text

    def start(self, *words):
        """With pipes in and out."""
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   cwd=self.folder)
        self.processes.append(process)
        return process

    def ready(self, *words):
        process = self.start(*words)
        expect(process.stdout.readline() == "ready\n", "it is not ready")
        return process


def each(names, *kinds, **keywords):
    """A case NAME for each."""
    def wrap(function):
        for name in names:
            case(name, **keywords)(lambda scene, name=name: function(scene, name))
        return function
    return wrap


@each(("faults", "faults-static", "faults-nopie"))
def faults(scene, name):
    """Forty instructions that fault: signal, code, address, every register, rip as its label says."""
    words = {"faults": (), "faults-static": ("-static",), "faults-nopie": ("-no-pie", "-fno-pie")}[name]
    lines = scene.same(scene.made("faults", *words)).splitlines()
    expect(len(lines) >= 70 and not [line for line in lines if ": signal 0 " in line], "not all of them got a signal")
    expect(lines[0].startswith("load: signal 11 code 1 ") and " addr=10 rip=at+0 " in lines[0], lines[0])


@each(("registers", "strings", "nested", "overflow", "calls", "changes", "stops", "masked"))
def signals(scene, name):
    scene.well(scene.made("signals"), name)


@case
def signals_musl(scene):
    need("musl-gcc")
    program = scene.compile("itrace/signals.c", *FLAGS, "-static", compiler="musl-gcc")
    for name in ("registers", "nested", "changes"):
        scene.well(program, name)


@case
def ended_by_signal(scene):
    program = scene.made("signals")
    for words in (("abort",), ("kill", "6"), ("kill", "9"), ("kill", "11"), ("kill", "14"), ("kill", "64")):
        scene.same(program, *words)


@each(("rewritten", "protected", "by_thread", "by_protecting_thread", "instructions", "old_system_calls", "vsyscall", "vdso", "coroutines", "x87"))
def code(scene, name):
    scene.same(scene.made("code"), name)


def recorded_twice(scene, *words):
    """Natively, and recorded by the command."""
    expected = scene.outcome(*words)
    got = scene.outcome(scene.contrail, "itrace", "-q", "-o", scene.path("steps"), "--", *words)
    expect(got == expected, f"{got}, not {expected}")
    expect("contradicts" not in scene.run(scene.contrail, "steps", scene.path("steps")), "records contradict each other")


@each(("sanitizers/address-gcc", "sanitizers/address-clang", "sanitizers/thread-gcc", "sanitizers/thread-clang", "sanitizers/memory-clang"))
def sanitizers(scene, name):
    """Programs that check where everything is mapped, from the first instruction on; with all threads, as these come and go."""
    kind, compiler = name.partition("/")[2].split("-")
    program = scene.compile("itrace/sanitized.c", "-O1", "-D_GNU_SOURCE", "-pthread", f"-fsanitize={kind}", compiler=need(compiler))
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # the search for leaks is by ptrace
    for number, words in enumerate(((program, "3"), (program, "1", "wrong"))[:2 if kind == "address" else 1]):
        status, output, errors = scene.outcome(*words)
        for options in ((), ("--all-threads",)):
            got = scene.outcome(scene.contrail, "itrace", "-q", *options, "-o", scene.path(f"steps{number}{len(options)}"), "--", *words)
            found = [re.findall("ERROR: AddressSanitizer: [a-z-]*", text) for text in (errors, got[2])]
            expect(got[:2] == (status, output) and found[0] == found[1] and output and len(found[0]) == number,
                   f"{words[1:]} {options}: {got[:2]} {got[2][:300]}, not {status, output, errors[:300]}")


@case
def rewritten_ahead_recorded(scene):
    """Stores at addresses relative to rip, over what follows in their blocks."""
    recorded_twice(scene, scene.made("code"), "rewritten_ahead")


@case
def wrong_usage(scene):
    """One line, status 2, and no directory is left."""
    out = scene.path("steps")
    for words in (("--thread", "5", "--", "true"), ("--thread", "5", "-a", "1"), ("word",), ("1", "2"), ("--for", "0s", "1")):
        status, _, errors = scene.outcome(scene.contrail, "itrace", "-o", out, *words)
        expect(status == 2 and errors.count("\n") == 1, f"{words}: {status} {errors}")
        expect(not os.path.exists(out), f"{words}: a directory is left")


@case
def libraries(scene):
    """Other code at the same address, 200 times."""
    program = scene.made("code")
    two = [scene.compile("itrace/library.c", "-shared", "-fPIC", "-O1", *define, name=name)
           for name, define in (("one.so", ()), ("two.so", ("-DTWO",)))]
    scene.well(program, "libraries", *two)


@each(("start_and_end", "children"))
def threads(scene, name):
    scene.well(scene.made("threads"), name)


@case
def ends(scene):
    program = scene.made("threads")
    for way in ("thread", "main", "fault", "abort"):
        scene.same(program, "ends", way)


@case
def exec_chain(scene):
    """exec by the thread that is traced, by another, and by a shell."""
    program = scene.made("threads")
    scene.well(program, "chain", "5")
    scene.same("/bin/sh", "-c", f"{program} exit 3; exec {program} exit 4")


@case
def no_room(scene):
    """Nothing is free below 2 GiB: a reason, and the program goes on."""
    program = scene.ready(scene.made("threads"), "low")
    result = scene.execute(scene.tool, "-s", "0.1", str(program.pid))
    expect(result.returncode != 0 and "no room below 2 GiB" in result.stderr, f"{result.returncode} {result.stderr}")
    program.stdin.write("\n")
    program.stdin.close()
    expect(program.wait(SECONDS) == 0, "it ended otherwise")


def work(scene, rounds):
    program = scene.made("threads")
    return program, scene.run(program, "work", str(rounds)).split("\n", 1)[1]


@case(alone=True)
def tracer_killed(scene):
    """At random moments: the program goes on by itself, and ends as it does alone."""
    program, expected = work(scene, 60000)
    chance = random.Random(scene.options.seed if getattr(scene.options, "seed", None) is not None else 15)
    for turn in range(12):
        running = scene.ready(program, "work", "60000")
        tracer = scene.start(scene.tool, "-s", "60", str(running.pid))
        time.sleep(chance.random() * 0.3)
        tracer.kill()
        tracer.wait()
        got = running.stdout.read()
        expect(running.wait(SECONDS) == 0 and got == expected, f"turn {turn}: {running.returncode} {got!r}, not {expected!r}")


def mappings_of(pid):
    """Of ours."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        return file.read().count("/memfd:contrail ")


@case(alone=True)
def recorder_killed(scene):
    """Of a program to which a signal comes each 3 ms: its thread leaves the translated code by itself all the same, and then clean, or
    attach, takes out what the recorder has left."""
    program = scene.made("ticking")
    expected = scene.execute(program, "20").stdout
    for turn, attaches in enumerate((False, True)):
        running = scene.ready(program)
        recorder = subprocess.Popen((scene.contrail, "itrace", "-q", "-o", scene.path(f"steps{turn}"), str(running.pid)))
        try:
            file = scene.path(f"steps{turn}/steps.{running.pid}")
            wait_for("steps", lambda: os.path.exists(file) and os.path.getsize(file) > 8192)
            done = scene.execute(scene.contrail, "clean", str(running.pid))
            expect(done.returncode == 125 and "is being traced" in done.stderr, f"it is cleaned while it is recorded: {done}")
        finally:
            recorder.kill()
            recorder.wait()
        expect(mappings_of(running.pid) > 3, "nothing is left")

        def cleaned():
            done = scene.execute(scene.contrail, "clean", str(running.pid))
            expect(done.returncode == 0, f"{done}")
            return mappings_of(running.pid) == 0

        def attached():
            done = scene.execute(scene.contrail, "attach", "-q", "--for", "100ms", "-o", scene.path(f"trace{time.monotonic_ns()}"), str(running.pid))
            expect(done.returncode == 0, f"{done}")
            return mappings_of(running.pid) == 0
        wait_for("the thread to leave, and what is left to go", attached if attaches else cleaned, 30)
        expect("nothing of contrail" in scene.execute(scene.contrail, "clean", str(running.pid)).stderr, "it is not clean")
        running.stdin.close()
        got = running.stdout.read()
        expect(running.wait(SECONDS) == 7 and f"ready\n{got}" == expected, f"{running.returncode} {got!r}, not {expected!r}")


def has_ended(running):
    """Or is just about to: a process that ends has no memory some time before it can be waited for."""
    try:
        running.wait(5)
    except subprocess.TimeoutExpired:
        return False
    return True


@case(alone=True)
def attached_often(scene):
    """In and out of a program that works: it goes on."""
    program, expected = work(scene, 60000)
    turns = 0
    for _ in range(2):
        running = scene.ready(program, "work", "60000")
        while running.poll() is None:
            result = scene.execute(scene.tool, "-s", "0.02", str(running.pid))
            expect(result.returncode == 0 or has_ended(running), f"turn {turns}: {result.stderr}")
            turns += 1
        got = running.stdout.read()
        expect(running.returncode == 0 and got == expected, f"{running.returncode} {got!r}, not {expected!r}")
    expect(turns > 4, "it was never attached to")


@case(alone=True)
def redis(scene):
    """A server under load, attached to and let go again."""
    need("redis-server", "redis-benchmark", "redis-cli")
    socket = scene.path("socket")
    server = scene.start("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--daemonize", "no")
    wait_for("the server", lambda: os.path.exists(socket))
    load = subprocess.Popen(["redis-benchmark", "-s", socket, "-q", "-l", "-c", "4", "-t", "set,get"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    try:
        for turn in range(20):
            scene.run(scene.tool, "-s", "0.05", str(server.pid))
            scene.run("redis-cli", "-s", socket, "set", f"key{turn}", str(turn * 7))
            got = scene.run("redis-cli", "-s", socket, "get", f"key{turn}").strip()
            expect(got == str(turn * 7), f"turn {turn}: {got}")
    finally:
        load.kill()
        load.wait()
    scene.run("redis-cli", "-s", socket, "shutdown", "nosave")
    wait_for("the server's end", lambda: server.poll() is not None)
    expect(server.returncode == 0, f"status {server.returncode}")


PYTHON = """import json, sys
print("ready", flush=True)
total = 0
for i in range(30000):
    total += len(json.dumps({"a": [i, i * 0.5, str(i)], "b": {str(k): k for k in range(i % 17)}}))
print(total)
"""


@case(alone=True)
def python(scene):
    script = scene.write("busy.py", PYTHON)
    need("python3")
    expected = scene.run("python3", script).split("\n")[1]
    running = scene.ready("python3", script)
    while running.poll() is None:
        result = scene.execute(scene.tool, "-s", "0.05", str(running.pid))
        expect(result.returncode == 0 or has_ended(running), result.stderr)
    got = running.stdout.read().strip()
    expect(running.returncode == 0 and got == expected, f"{running.returncode} {got!r}, not {expected!r}")


def child_of(pid, name):
    result = subprocess.run(["pgrep", "-x", "-P", str(pid), name], capture_output=True, text=True)
    return int(result.stdout) if result.returncode == 0 else None


def files_of(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("steps.") and not name.endswith(".index"))


@case(alone=True)
def all_threads(scene):
    """Code that one thread writes and another runs, libraries that come and go, threads that end; a file for each of them."""
    program = scene.made("many")
    expected, out = scene.outcome(program, "all"), scene.path("steps")
    status, text, errors = scene.outcome(scene.contrail, "itrace", "--all-threads", "-o", out, "--", program, "all")
    expect((status, text) == expected[:2] and status == 3, f"{status} {text!r} {errors}, not {expected}")
    expect(len(files_of(out)) == 1 + 8 + 60 and " of 69 threads" in errors and errors.count("\n") == 1,
           f"{len(files_of(out))} files; {errors}")


@case
def all_threads_counted(scene):
    """Instructions of a function by three threads, as callgrind counts them."""
    need("valgrind", "callgrind_annotate")
    program, out = scene.made("many", "-O1", "-g"), scene.path("steps")
    scene.run(scene.contrail, "itrace", "-q", "-a", "-o", out, "--", program, "work", "3", "2000")
    counts = sorted(scene.execute(scene.contrail, "steps", "-t", name.split(".")[1], "-F", "leaf", out).stdout.count("leaf")
                    for name in files_of(out))
    subprocess.run(["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={scene.path('grind')}",
                    program, "work", "3", "2000"], capture_output=True, check=True)
    witness = 0  # it has one file for threads that follow each other
    for name in os.listdir(scene.path(".")):
        if name.startswith("grind-"):
            text = scene.run("callgrind_annotate", "--threshold=100", "--auto=no", scene.path(name))
            found = [line.split()[0] for line in text.splitlines() if line.split()[2:3] and line.split()[2].endswith(":leaf")]
            witness += sum(int(count.replace(",", "")) for count in found)
    expect(sum(counts) == witness and counts[0] == 0 and counts[1] == counts[3] >= 4000, f"{counts}, callgrind: {witness}")


@case(alone=True)
def all_threads_attached(scene):
    """In and out of a process whose threads make others meanwhile; killed, too. It goes on each time."""
    running = scene.ready(scene.made("many"), "serve")
    chance = random.Random(scene.options.seed if getattr(scene.options, "seed", None) is not None else 15)
    for turn in range(scene.rounds(3, 12)):
        out = scene.path(f"steps{turn}")
        words = (scene.contrail, "itrace", "-a", "-o", out, "--for", f"{int(100 + chance.random() * 200)}ms", str(running.pid))
        if turn % 3 != 2:
            result = scene.execute(*words)
            expect(result.returncode == 0 and len(files_of(out)) >= 4, f"turn {turn}: {result.stderr}")
            continue
        tracer = scene.start(*words)
        time.sleep(chance.random() * 0.3)
        tracer.kill()
        tracer.wait()
    time.sleep(1.2)  # those that were killed for: their threads leave within a second
    running.stdin.write("\n")
    running.stdin.close()
    got = running.stdout.read()
    expect(running.wait(SECONDS) == 0 and got == "all right\n", f"{running.returncode} {got!r}")


@case
def all_threads_some_calls(scene):
    """--limit counts the calls of all threads."""
    program, out = scene.made("many"), scene.path("steps")
    expected = scene.run(program, "work", "4", "3000")
    result = scene.execute(scene.contrail, "itrace", "-a", "-F", "leaf", "-n", "50", "-o", out, "--", program, "work", "4", "3000")
    expect(result.returncode == 0 and result.stdout == expected and " of 50 calls" in result.stderr, f"{result}")


def rough(scene, *words, limit=None):
    """Both ways: the same. What contrail says of it."""
    program, out = scene.made("rough"), scene.path("steps")
    expected = scene.outcome(program, *words)
    prefix = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh") if limit else ()
    got = scene.outcome(*prefix, scene.contrail, "itrace", "-a", "-o", out, "--", program, *words)
    expect(got[:2] == expected[:2], f"{got}, not {expected}")
    return got[2]


@case(alone=True)
def all_threads_killed_by_exec(scene):
    """Threads that an exec kills while they are handed over: nothing of them is missing, nobody waits for them."""
    errors = rough(scene, "exec", "8")
    expect("recorded" not in errors and errors.count("\n") == 1, errors)


@case(alone=True)
def all_threads_beside_maps(scene):
    """Another thread maps something at the very place that has just been found free."""
    errors = rough(scene, "maps", "60")
    expect(" of 62 threads" in errors and errors.count("\n") == 1, errors)


@case
def all_threads_few_files(scene):
    """Where contrail can open no more files, the program has none of its."""
    errors = rough(scene, "files", "30", limit=48)
    expect("other threads that it made are not recorded" in errors, errors)


@case
def all_threads_id_again(scene):
    """A thread with the id of one that has ended: whose records are kept."""
    program, out = scene.made("rough"), scene.path("steps")
    result = scene.execute(scene.contrail, "itrace", "-a", "-o", out, "--", program, "again")
    if result.returncode == 77:
        raise harness.Skip("a thread's id cannot be chosen")
    tid = result.stdout.strip()
    expect(result.returncode == 0 and f"thread {tid} has the id of an earlier one" in result.stderr, f"{result}")
    expect(scene.execute(scene.contrail, "steps", "-t", tid, out).returncode == 0, "it is gone")


@case
def all_threads_moved_code(scene):
    """Code of a file that is moved to where other code of a file has been translated, by mremap; of one thread, too."""
    rough(scene, "moves")
    expect(scene.same(scene.made("rough"), "moves") == "0 and 0 wrong\n", "natively it is wrong, too")


@case(alone=True)
def all_threads_killed_in_exec(scene):
    """Killed at any moment of an exec, while its new space is made, too: it has ended by that, which is no failure."""
    program = scene.made("rough", "-static")
    chance = random.Random(scene.options.seed if getattr(scene.options, "seed", None) is not None else 15)
    for turn in range(scene.rounds(12, 30)):
        words = ("-a",) if turn % 2 else ()
        tracer = scene.start(scene.contrail, "itrace", "-q", *words, "-o", scene.path(f"steps{turn}"), "--", program, "self")
        pid = int(tracer.stdout.readline())
        time.sleep(0.02 + chance.random() * 0.05)
        os.kill(pid, signal.SIGKILL)
        got = "\n".join(line for line in tracer.stdout.read().split("\n") if "other thread" not in line)
        expect(tracer.wait(SECONDS) == 128 + signal.SIGKILL and got == "", f"turn {turn}: {tracer.returncode} {got!r}")


@case(alone=True)
def all_threads_masks(scene):
    """contrail is killed while threads wait to be seized, with all signals blocked: they go on with their own masks."""
    program = scene.made("rough")
    chance = random.Random(scene.options.seed if getattr(scene.options, "seed", None) is not None else 15)
    for turn in range(scene.rounds(3, 6)):
        running = scene.ready(program, "masks")
        tracer = scene.start(scene.contrail, "itrace", "-a", "-o", scene.path(f"steps{turn}"), str(running.pid))
        time.sleep(0.01 + chance.random() * 0.12)
        tracer.kill()
        tracer.wait()
        got = running.stdout.read()
        expect(running.wait(SECONDS) == 0 and got == "0 others\n", f"turn {turn}: {running.returncode} {got!r}")


@case(alone=True)
def all_threads_late(scene):
    """contrail stands still for longer than threads wait for it, and the program ends while it seizes others: it ends, too."""
    program = scene.made("rough")
    chance = random.Random(scene.options.seed if getattr(scene.options, "seed", None) is not None else 15)
    for turn in range(scene.rounds(1, 3)):
        running = scene.ready(program, "masks")
        tracer = scene.start(scene.contrail, "itrace", "-q", "-a", "-o", scene.path(f"steps{turn}"), str(running.pid))
        time.sleep(0.01 + chance.random() * 0.2)
        tracer.send_signal(signal.SIGSTOP)
        time.sleep(1.4)
        tracer.send_signal(signal.SIGCONT)
        expect(running.wait(SECONDS) == 0, f"turn {turn}: {running.returncode}")
        expect(tracer.wait(SECONDS) == 0, f"turn {turn}: {tracer.returncode}")


@case
def other_threads_are_named(scene):
    """What is not recorded is said."""
    program = scene.made("many")
    result = scene.execute(scene.contrail, "itrace", "-o", scene.path("steps"), "--", program, "work", "3", "10")
    expect("contrail: 3 other threads that it made are not recorded (see --all-threads)" in result.stderr, result.stderr)


HOOKED = r"""
#include <stdio.h>
#include <stdlib.h>
#define N __attribute__((noinline))
N long step(long n) { __asm__ volatile(""); return n * 3 + 1; }
N long outer(long n) { return step(n) + step(n + 1); }
int main(int c, char **v) { long s = 0; for (long i = atol(v[1]); i != 0; i--) s ^= outer(i); printf("%lx\n", s); return 0; }
"""


@case(alone=True)
def recorded(scene):
    """A thread that is being recorded runs translated for a while: its hooks stay, and every call is in the trace."""
    need("pgrep")
    calls = 1000000
    program = scene.path("hooked")
    subprocess.run(["gcc", "-O1", "-o", program, scene.write("hooked.c", HOOKED)], check=True)
    expected = scene.run(program, str(calls))
    running = scene.start(scene.contrail, "record", "-q", "-o", scene.path("trace"), "--trace", "step", "--trace", "outer", "--",
                          program, str(calls))
    pid = wait_for("the program", lambda: child_of(running.pid, "hooked"))
    turns = 0
    while running.poll() is None:
        result = scene.execute(scene.tool, "-s", "0.02", str(pid))
        turns += result.returncode == 0
    expect(running.returncode == 0 and running.stdout.read() == expected, f"{running.returncode}")
    report = json.loads(scene.run(scene.contrail, "report", "--json", scene.path("trace")))
    counts = {row["name"]: row["calls"] for row in report["functions"]}
    expect(counts == {"step": 2 * calls, "outer": calls} and report["dropped"] == 0, f"{counts}")
    expect(turns > 0, "it was never translated")
    return f"{turns} times"


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


def chosen_program(scene):
    with open(scene.path("chosen.c"), "w", encoding="ascii") as file:
        file.write(CHOSEN)
    return scene.compile(scene.path("chosen.c"), "-O1", "-fno-inline")


def stretches(scene, *words):
    """The steps that `contrail itrace` records with those options: addresses, functions and stack pointers."""
    folder = scene.path("-".join(words).translate({ord(c): None for c in " /=<>"}))
    done = scene.execute(scene.contrail, "itrace", "--no-vector", "-o", folder, *words[:-1], "--", "setarch", "-R", words[-1], timeout=SECONDS)
    expect(done.returncode == 0 and done.stdout.strip().isdigit() and "contrail: " in done.stderr, f"{done.returncode} {done.stderr[-200:]}")
    shown = scene.execute(scene.contrail, "steps", "--json", folder, timeout=SECONDS)
    steps, stack = [], 0
    for line in shown.stdout.splitlines():
        step = json.loads(line)
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
    program, told = chosen_program(scene), []
    every, _ = stretches(scene, program)
    for name, count in (("text", 50), ("leaf", 50 + 20), ("twice", 6), ("jumps", 20)):
        chosen, told_here = stretches(scene, "--function", name, program)
        entry = next(step[0] for step in every if step[1] == name)
        expected = calls_of(every, name, entry)
        # What leaves by longjmp is recorded up to where the stack pointer is another one.
        got = [step[0] for step in chosen]
        expect(got == expected, f"{name}: {len(got)} steps, {len(expected)} in truth")
        expect(f" {count} calls " in told_here, told_here)
        told.append(f"{name} {len(got)}")
    return ", ".join(told)


@case
def only_some_calls(scene):
    """--when and --limit, and --from with --to."""
    program = chosen_program(scene)
    chosen, told = stretches(scene, "--function", "text", "--when", "arg1 == 7", program)
    expect(" 1 call " in told and chosen[0][1] == "text" and chosen[-1][3] == "ret", told)
    chosen, told = stretches(scene, "--function", "text", "--when", "rdi >= 48", program)
    expect(" 2 calls " in told, told)
    chosen, told = stretches(scene, "--function", "leaf", "--limit", "3", program)
    expect(" 3 calls " in told and {step[1] for step in chosen} == {"leaf"}, told)
    chosen, told = stretches(scene, "--from", "text", "--to", "leaf", program)
    expect(" 50 stretches " in told and chosen[0][1] == "text" and "leaf" not in {step[1] for step in chosen}, told)
    _, told = stretches(scene, "--function", "no_such", program)
    expect("no_such names no function" in told, told)
    for words in (("--function", "leaf", "--when", "arg9 > 1"), ("--from", "leaf"), ("--limit", "3"), ("--from", "0x12x", "--to", "leaf")):
        wrong = scene.execute(scene.contrail, "itrace", "-o", scene.path("wrong"), *words, "--", program)
        expect(wrong.returncode in (2, 125) and wrong.stdout == "" and wrong.stderr.count("\n") <= 2, f"{words}: {wrong}")


@case
def calls_of_a_process(scene):
    """Calls of a process that runs, again and again; it is let go when there were enough, and goes on."""
    program, flag = chosen_program(scene), scene.path("flag")
    open(flag, "w", encoding="ascii").close()
    process = subprocess.Popen([program, flag], stdout=subprocess.PIPE, text=True)
    wait_for("its loop", lambda: os.path.exists(f"/proc/{process.pid}/stat") and process.poll() is None)
    for turn in range(5):
        done = scene.execute(scene.contrail, "itrace", "-o", scene.path(f"steps{turn}"), "-F", "snprintf", "-n", "3", str(process.pid), timeout=SECONDS)
        expect(done.returncode == 0 and " 3 calls " in done.stderr, f"{done.returncode} {done.stderr}")
    os.remove(flag)
    out, _ = process.communicate(timeout=SECONDS)
    expect(process.returncode == 0 and out == "0\n", f"{process.returncode} {out!r}")


class Ends:
    """How a program may end while its steps are recorded: the mode, its status, and what the last step is."""
    SOURCE = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int x;
static void *other(void *mode) { usleep(100000); if (*(char *)mode == 'k') kill(getpid(), SIGKILL); _exit(3); }
int main(int c, char **v)
{
  pthread_t thread;
  if (*v[1] == 'r') return 5;
  if (*v[1] == 'a') abort();
  if (*v[1] == 's') { x = 8; __asm__ volatile("bad: movl $1, (%0)" :: "r"((long)x) : "memory"); }
  pthread_create(&thread, 0, other, v[1]);
  for (;;) x++;
}
"""
    WAYS = {"returns": (5, "syscall"), "aborts": (134, "syscall"), "segfault": (139, "movslq|movsxd|cltq|cdqe"), "killed": (137, ""),
            "exit_elsewhere": (3, "")}


def steps_of(scene, expected, *words):
    """Plays it with its steps recorded; how many there are. Output and status are the same, and the records agree."""
    directory = scene.path("steps")
    result = scene.execute(scene.contrail, "itrace", "-q", "-o", directory, "--", *words, timeout=SECONDS)
    status = result.returncode if result.returncode >= 0 else 128 - result.returncode
    expect((status, result.stdout) == expected[:2] and result.stderr == expected[2], f"{status} {result.stdout[-200:]} {result.stderr[-200:]}")
    (name,) = os.listdir(directory)
    walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(directory, name))
    expect(walked.returncode == 0, walked.stdout + walked.stderr)
    return walked.stdout.strip()


@each(("writers/nested", "writers/sqlite3", "writers/python3", "writers/perl", "writers/find"))
def writers(scene, name):
    """What a program loads is what its stores and system calls have written before, by the records: no writer is missing."""
    words = {"nested": (scene.made("signals"), "nested"),
             "sqlite3": ("sqlite3", scene.path("db"), "create table t(a, b); insert into t select value, value * 7 from "
                         "generate_series(1, 2000); update t set b = b + 1 where a % 3 = 0; select sum(b) from t"),
             "python3": ("/usr/bin/python3", "-c", "import os; print(len(os.listdir('/etc')), os.stat('/tmp').st_mode, open('/etc/passwd').read())"),
             "perl": ("perl", "-e", "$SIG{ALRM} = sub { print qq(x\\n) }; alarm 1; sleep 2; open(F, '/etc/services'); $n++ while <F>; print $n"),
             "find": ("find", "/usr/share/doc", "-maxdepth", "1", "-name", "a*")}[name.split("/")[1]]
    need(words[0])
    directory = scene.path("steps")
    done = scene.execute(scene.contrail, "itrace", "-q", "-o", directory, "--", *words, timeout=SECONDS)
    expect(done.returncode == 0 and done.stderr == "", f"{done.returncode} {done.stderr[-200:]}")
    (file,) = os.listdir(directory)
    compared = scene.execute(os.path.join(scene.options.build, "tests", "shadow"), os.path.join(directory, file), timeout=SECONDS)
    expect(compared.returncode == 0, compared.stdout[-400:] + compared.stderr[-400:])
    return compared.stdout.strip()


@each(("records/strings", "records/nested", "records/overflow", "records/changes", "records/stops", "records/masked"))
def records_with_signals(scene, name):
    program, mode = scene.made("signals"), name.split("/")[1]
    return steps_of(scene, scene.outcome(program, mode), program, mode)


@each(("records/sort", "records/sqlite3", "records/python3", "records/bash"))
def records_of_programs(scene, name):
    words = {"sort": ("sort", "-n", "/etc/services"), "sqlite3": ("sqlite3", ":memory:", "select sum(value * 7 % 3) from generate_series(1, 3000)"),
             "python3": ("/usr/bin/python3", "-c", "import json; print(len(json.dumps(list(range(5000)))))"),
             "bash": ("bash", "-c", "trap 'echo trapped' USR1; for i in 1 2 3; do kill -USR1 $$; echo $i | cat; done; exit 4")}[name.split("/")[1]]
    need(words[0])
    return steps_of(scene, scene.outcome(*words), *words)


@each(tuple(f"records/{name}" for name in Ends.WAYS))
def records_to_the_end(scene, name):
    """Nothing is missing at the end, however it comes."""
    way = name.split("/")[1]
    program = scene.path("ends")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, scene.write("ends.c", Ends.SOURCE)], check=True)
    status, last = Ends.WAYS[way]
    steps_of(scene, (status, "", ""), program, way)
    lines = scene.run(scene.contrail, "steps", "--json", "--tail", "-n", "1", scene.path("steps")).splitlines()
    text = json.dumps([json.loads(line) for line in lines])
    expect(any(word in text for word in last.split("|")), text)


@case
def untraced(scene):
    """A thread that no tracer is told of runs as it is, and that is said."""
    program = scene.made("untraced")
    result = scene.execute(scene.contrail, "itrace", "-a", "-o", scene.path("steps"), "--", program, timeout=SECONDS)
    expect((result.returncode, result.stdout) == (0, "made\n") and "CLONE_UNTRACED" in result.stderr, f"{result}")


@case("records/lossy")
def lossy(scene):
    """What the file did not keep up with is a gap: the records around it agree with themselves, and it is shown, also by a
    question that it bears on."""
    need("sqlite3")
    sql = scene.path("sql")
    with open(sql, "w", encoding="ascii") as file:
        file.write("create table t(a, b); insert into t select value, value * 7919 % 10007 from generate_series(1, 10000);"
                   "create index i on t(b); select count(*) from t where exists (select 1 from t u where u.b = t.b and u.a <> t.a);")
    directory = scene.path("steps")
    done = scene.execute("taskset", "-c", "0", scene.contrail, "itrace", "--lossy", "-o", directory, "--", "sqlite3", ":memory:", f".read {sql}",
                         timeout=SECONDS)
    expect(done.returncode == 0 and "of records are lost" in done.stderr, f"{done.returncode} {done.stderr[-200:]}")
    (name,) = os.listdir(directory)
    walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(directory, name), timeout=SECONDS)
    expect(walked.returncode == 0 and " 0 inconsistent" in walked.stdout, walked.stdout + walked.stderr)
    asked = scene.execute(scene.contrail, "steps", "--json", "--last-write", "0x10", directory, timeout=SECONDS)
    expect("a later writer may be missing" in asked.stdout, asked.stdout + asked.stderr)
    gap = json.loads(asked.stdout.splitlines()[-1])["step"]
    shown = scene.run(scene.contrail, "steps", "--json", "--step", str(gap - 2), "-n", "4", directory)
    expect("here something is lost" in shown, shown)
    before = [json.loads(line) for line in scene.run(scene.contrail, "steps", "--json", "--step", str(gap - 300), "-n", "300", directory).splitlines()]
    store = [step for step in before if len(step.get("stores", ())) == 1 and "value" in step["stores"][0] and step["step"] + 1 < gap][-1]
    where = f"{store['stores'][0]['address']}:1"  # not of the last step before the gap: what comes after that one is what was lost
    known, lost = (scene.execute(scene.contrail, "steps", "--json", "--memory", where, "--step", str(step), directory, timeout=SECONDS).stdout
                   for step in (store["step"] + 1, gap))
    expect("[null]" not in known and ("[null]" in lost or lost == ""), f"{where}: {known} {lost}")
    return walked.stdout.strip()


@case("records/live")
def live(scene):
    """Steps are there while the thread waits, in a system call of a minute, and running; lines, stream and ring are in the end what they are
    of the whole file."""
    source = scene.write("live.c", """
        #include <stdio.h>
        #include <unistd.h>
        unsigned state = 1;
        __attribute__((noinline)) void work(void) { for (int i = 0; i < 1000; i++) state = state * 31 + i; }
        __attribute__((noinline)) void busy(void) { work(); }
        int main(void)
        {
          char byte;
          do { busy(); puts("ready"); fflush(stdout); } while (read(0, &byte, 1) == 1 && byte == 'n');
          while (access("stop", F_OK) != 0) { /* which is no call that waits */
            for (int i = 0; i < 2000; i++) { /* of instructions that take their time */
              unsigned a = 0, b, c, d;
              __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "=c"(c), "=d"(d));
            }
          }
          printf("%u\\n", state);
        }""")
    program, directory = scene.compile(source, "-O1", "-w", name="live"), scene.path("steps")
    process = scene.ready(scene.contrail, "itrace", "-q", "--live", "-o", directory, "--", program)
    wait_for("the file", lambda: os.path.isdir(directory) and os.listdir(directory))
    tid = os.listdir(directory)[0].split(".")[1]

    def follow(name, *words):
        with open(scene.path(name), "wb") as out:
            follower = subprocess.Popen([scene.contrail, "steps", "--live", *words, directory], stdout=out, cwd=scene.folder)
        scene.processes.append(follower)
        return follower

    def calls(name):
        with open(scene.path(name), encoding="ascii") as file:
            return file.read().count("busy ")

    followers = [follow("lines", "-t", tid, "-F", "busy"), follow("bytes", "--stream", "-"), follow("nothing", "--ring", "ring", "--ring-size", "64")]
    reader = subprocess.Popen([sys.executable, os.path.join(harness.ROOT, "tests", "programs", "ringreader.py"), scene.path("ring"), scene.path("read")])
    scene.processes.append(reader)
    wait_for("the ring's reader", lambda: os.path.exists(scene.path("read")))
    for count in range(1, 4):
        wait_for(f"call {count} while the program waits", lambda n=count: calls("lines") >= n)
        process.stdin.write("n")
        process.stdin.flush()
        expect(process.stdout.readline() == "ready\n", "it goes on")
    process.stdin.write("x")
    process.stdin.flush()
    size = os.path.getsize(scene.path("read"))
    wait_for("steps of a thread that makes no system call that waits", lambda: os.path.getsize(scene.path("read")) > size + 50000)
    scene.write("stop", "")
    expect(process.wait(SECONDS) == 0, "the program's status")
    expect([follower.wait(SECONDS) for follower in followers] == [0, 0, 0] and reader.wait(SECONDS) == 0, "who follows ends with it")
    scene.run(scene.contrail, "export", "-q", "--to", "itrace", "-o", scene.path("whole"), directory)
    whole, streamed, read = (open(scene.path(name), "rb").read() for name in ("whole", "bytes", "read"))
    expect(whole == streamed == read, f"{len(whole)} {len(streamed)} {len(read)}")
    with open(scene.path("lines"), encoding="ascii") as file:
        expect(file.read() == scene.run(scene.contrail, "steps", "-F", "busy", directory), "lines")
    return f"{len(whole)} bytes by a stream and by a ring of 65,536"


@case("sequences")
def sequences(scene):
    """Restartable sequences are restarted, of all threads, with records and without: all is counted, and no handler sees one. What is
    executed in one is a gap."""
    program, directory = scene.made("rseq"), scene.path("steps")
    if scene.execute(program, "1").returncode == 77:
        raise harness.Skip("no rseq (glibc 2.35, Linux 4.18)")
    bare = scene.outcome(scene.tool, "-a", "--", program, "400000")
    recorded = scene.outcome(scene.contrail, "itrace", "-q", "-a", "-o", directory, "--", program, "2000")
    for status, out, err in (bare, recorded):
        expect((status, out) == (0, "rseq: all right\n"), f"{status} {out} {err}")
    steps = 0
    for name in os.listdir(directory):
        walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(directory, name))
        expect(walked.returncode == 0 and " 0 inconsistent" in walked.stdout, f"{name} {walked.stdout}{walked.stderr}")
        steps += int(walked.stdout.split()[0])
    gaps = int(scene.run(scene.contrail, "sql", "--csv", directory, "SELECT count(*) FROM step_events WHERE type = 'after gap'").split()[1])
    expect(gaps >= 4 * 2000, f"{gaps} gaps of {4 * 2000} sequences")
    return f"{bare[2].strip()}; recorded: {recorded[2].strip()}, {gaps} gaps, {steps} steps"


@case("records/saves")
def saves(scene):
    """The loader's xsavec stores no more than it has made room for: what lies above stays known."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        if " xsavec " not in file.read():
            raise harness.Skip("the processor has no xsavec")
    source = scene.write("lazy.c", "#include <stdio.h>\nint main(void) { puts(\"x\"); printf(\"%d\\n\", getchar()); return 0; }")
    program = scene.compile(source, "-O1", "-Wl,-z,lazy", name="lazy")
    scene.run(scene.contrail, "itrace", "-q", "-o", scene.path("steps"), "--", program)
    steps = [json.loads(line) for line in scene.run(scene.contrail, "steps", "--json", "-n", "0", "-F", "_dl_runtime_resolve_xsave*", scene.path("steps")).splitlines()]
    rooms, room = [], None
    for step in steps:
        code = step.get("code", "")
        if code.startswith("sub ") and "load" in step:
            room = int(step["load"]["value"], 16)
        if code.startswith("xsave"):
            rooms.append((int(step["stores"][0]["size"]), room - int(code.split()[1].split("(")[0], 16)))
    expect(len(rooms) >= 2 and all(0 < size <= space for size, space in rooms), f"{rooms}")
    return f"{rooms[0][0]} of {rooms[0][1]} bytes"


@case("records/race")
def records_of_a_race(scene):
    """Reading for the record and reading for the instruction are one."""
    program = scene.made("race", "-mno-red-zone")
    return steps_of(scene, (0, "race: all right\n", ""), program)


@case("records/equal_to_single_steps")
def equal_to_single_steps(scene):
    """The same program by ptrace, one step after the other, and by the recorder: every register and flag of every step."""
    need("setarch")
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        has_movbe = int(" movbe " in file.read())
    program = scene.compile("itrace/alone.c", f"-DHAS_MOVBE={has_movbe}", "-O2", "-w", "-nostdlib", "-static", "-fno-builtin", "-fno-tree-loop-distribute-patterns")
    stepped, states = os.path.join(scene.options.build, "tests", "stepped"), scene.path("states")
    scene.run("setarch", "-R", stepped, "record", "-v", "-n", "10000000", "-w", states, scene.path("slow"), "--", program)
    scene.run("setarch", "-R", scene.contrail, "itrace", "-q", "-o", scene.path("steps"), "--", program)
    (name,) = os.listdir(scene.path("steps"))
    result = scene.execute(stepped, "compare", os.path.join(scene.path("steps"), name), states)
    first = result.stdout.splitlines()[0]
    expect(" 0 differ, 0 inconsistent" in first and int(first.split()[0]) > 50000, result.stdout)
    return first


if __name__ == "__main__":
    main(__doc__, Scene)
