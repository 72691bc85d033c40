#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Translated code (src/itrace, src/x86/translate.c), by the tool build/tests/translated: what a program prints and how it ends
is the same with it and without. What is recorded by it: itracerecords.py, itraceselected.py.

    tests/itrace.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import harness
from harness import case, expect, main, need, wait_for
from processes import state_of

FLAGS = ("-O2", "-D_GNU_SOURCE", "-pthread", "-w")
SECONDS = 300
RANDOM = ("setarch", "x86_64")  # addresses differ from run to run, also under setarch -R, which leaves hardly any room above libraries


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
            def play(scene, name=name):
                return function(scene, name)
            play.__module__ = function.__module__
            case(name, **keywords)(play)
        return function
    return wrap


@each(("faults", "faults-static", "faults-nopie"))
def faults(scene, name):
    """Forty instructions that fault: signal, code, address, every register, rip as its label says."""
    words = {"faults": (), "faults-static": ("-static",), "faults-nopie": ("-no-pie", "-fno-pie")}[name]
    lines = scene.same(scene.made("faults", *words)).splitlines()
    expect(len(lines) >= 70 and not [line for line in lines if ": signal 0 " in line], "not all of them got a signal")
    expect(lines[0].startswith("load: signal 11 code 1 ") and " addr=10 rip=at+0 " in lines[0], lines[0])


@case
def recent(scene):
    """Instructions that few processors have, that the kernel executes, or that there are none of here."""
    scene.same(scene.made("recent"))


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


@each(("sanitizers/address-gcc", "sanitizers/address-clang", "sanitizers/thread-gcc", "sanitizers/thread-clang", "sanitizers/memory-clang"), some=("sanitizers", 2))
def sanitizers(scene, name):
    """Programs that check where everything is mapped, from the first instruction on; with all threads, as these come and go."""
    kind, compiler = name.partition("/")[2].split("-")
    program = scene.compile("itrace/sanitized.c", "-O1", "-D_GNU_SOURCE", "-pthread", f"-fsanitize={kind}", compiler=need(compiler))
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # the search for leaks is by ptrace
    for number, words in enumerate(((program, "3"), (program, "1", "wrong"))[:2 if kind == "address" else 1]):
        status, output, errors = scene.outcome(*words)
        for options in random.sample(((), ("--all-threads",)), scene.rounds(1, 2)):
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
    for words in (("--thread", "5", "--", "true"), ("--thread", "5", "-a", "1"), ("--thread", "5", "word"), ("1", "2"), ("--for", "0s", "1")):
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
    for turn in range(scene.rounds(6, 200)):
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
    """Of a program to which a signal comes each 3 ms: its thread leaves the translated code by itself all the same, and then clean,
    attach, or the next recorder takes out what the one before has left."""
    program = scene.made("ticking")
    expected = scene.execute(program, "20").stdout
    for turn, how in enumerate(("clean", "attach", "itrace")):
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
            # In so short a time the thread need not have had a processor, nor left the translated code.
            expect(done.returncode == 0 or "nothing was recorded" in done.stderr, f"{done}")
            return done.returncode == 0 and mappings_of(running.pid) == 0

        def recorded_again():
            scene.run(scene.contrail, "itrace", "-q", "--for", "100ms", "-o", scene.path(f"steps{time.monotonic_ns()}"), str(running.pid))
            return mappings_of(running.pid) == 0
        wait_for("the thread to leave, and what is left to go", {"clean": cleaned, "attach": attached, "itrace": recorded_again}[how])
        expect("nothing of contrail" in scene.execute(scene.contrail, "clean", str(running.pid)).stderr, "it is not clean")
        running.stdin.close()
        got = running.stdout.read()
        expect(running.wait(SECONDS) == 7 and f"ready\n{got}" == expected, f"{running.returncode} {got!r}, not {expected!r}")


IDLE = r"""
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *idle(void *end) { return (void *)(long)read(*(int *)end, &(char){0}, 1); }
int main(void)
{
  int ends[2];
  pthread_t thread;
  struct pollfd over = {.events = POLLHUP | POLLIN};
  if (pipe(ends) != 0 || pthread_create(&thread, NULL, idle, &ends[0]) != 0) return 1;
  puts("ready");
  fflush(stdout);
  for (volatile unsigned n = 0; poll(&over, 1, 0) == 0; n++) { }
  if (write(ends[1], "x", 1) != 1) return 2;
  void *got;
  pthread_join(thread, &got);
  return 6 + (int)(long)got;
}
"""


def spaces_of(pid):
    """The memory of each thread that a recorder has left."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        return {line.split()[4] for line in file if "/memfd:contrail " in line}


@case(alone=True)
def recorder_killed_idle_thread(scene):
    """Of two threads one waits, in translated code, for what does not come: the other one's memory is taken out all the same."""
    running = scene.ready(scene.compile(scene.write("idle.c", IDLE), "-O1", "-pthread", name="idle"))
    recorder = subprocess.Popen((scene.contrail, "itrace", "-a", "--lossy", "-q", "-o", scene.path("steps"), str(running.pid)))
    try:
        wait_for("two threads", lambda: len(spaces_of(running.pid)) == 2)
        wait_for("steps", lambda: os.path.exists(scene.path(f"steps/steps.{running.pid}")) and os.path.getsize(scene.path(f"steps/steps.{running.pid}")) > 8192)
    finally:
        recorder.kill()
        recorder.wait()

    def cleaned():
        done = scene.execute(scene.contrail, "clean", str(running.pid))
        expect(done.returncode == 0 and "clean again later" in done.stderr, f"{done}")
        return len(spaces_of(running.pid)) == 1
    wait_for("the busy thread to leave, and its memory to go", cleaned)
    running.stdin.close()
    expect(running.wait(SECONDS) == 7, f"{running.returncode}")


SWITCHES = r"""
#include <alloca.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
volatile unsigned sum;
/* Its end takes the stack pointer back from rbp. */
__attribute__((noinline)) unsigned wanted(unsigned n) { char *p = alloca(n); memset(p, (int)n, n); for (unsigned i = 0; i < n; i++) sum += p[i]; return sum; }
int main(void)
{
  char c;
  struct pollfd end = {.events = POLLHUP | POLLIN};
  puts("ready");
  fflush(stdout);
  for (unsigned i = 0; i < 2000; i++) wanted(i % 50 + 1);
  while (poll(&end, 1, 0) == 0) for (unsigned i = 0; i < 100; i++) wanted(i % 50 + 1);
  return read(0, &c, 1) == 0 ? 7 : 8;
}
"""


@case(alone=True)
def switches_killed(scene):
    """The recorder of calls that take their stack pointer from another register is killed: nothing is a single step then, whose trap nobody would take."""
    program = scene.compile(scene.write("switches.c", SWITCHES), "-O1", name="switches")
    for turn in range(scene.rounds(6, 20)):
        running = scene.ready(program)
        recorder = subprocess.Popen((scene.contrail, "itrace", "-q", "-F", "wanted", "-o", scene.path(f"switches{turn}"), str(running.pid)))
        file = scene.path(f"switches{turn}/steps.{running.pid}")
        try:
            wait_for("steps", lambda f=file: os.path.exists(f))
            time.sleep(0.2 + random.random() * 0.3)
        finally:
            recorder.kill()
            recorder.wait()
        running.stdin.close()
        expect(running.wait(SECONDS) == 7, f"turn {turn}: {running.returncode}")


RESTORES = r"""
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
static _Alignas(64) char area[4096];
int main(int c, char **v)
{
  unsigned n = atoi(v[1]), sum = 0;
  puts("ready");
  fflush(stdout);
  for (unsigned i = 0; i < n; i++) {
    _xsave64(area, 2);
    __asm__ volatile("pxor %%xmm0, %%xmm0" ::: "xmm0");
    _xrstor64(area, 2);
    sum = sum * 31 + i;
  }
  printf("%u\n", sum);
  return 0;
}
"""


@case(alone=True)
def restores_killed(scene):
    """contrail is killed while it records a program, started by it or attached to, that restores all vector registers again and again, as the
    dynamic linker does at the first call of a function: that is no single step either."""
    program = scene.compile(scene.write("restores.c", RESTORES), "-O1", "-mxsave", name="restores")
    expected = scene.run(program, "1000000").split("\n", 1)[1]
    for turn in range(scene.rounds(8, 40)):
        words = (scene.contrail, "itrace", "-q", "--lossy", "-o", scene.path(f"restores{turn}"))
        running = scene.ready(program, "1000000") if turn % 2 else scene.ready(*words, "--", program, "1000000")
        recorder = scene.start(*words, str(running.pid)) if turn % 2 else running
        time.sleep(0.2 + random.random() * 0.3)
        recorder.kill()
        recorder.wait(SECONDS)
        got = running.stdout.read()
        expect(got == expected, f"turn {turn}: {got!r}, not {expected!r}")


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
    """A server under load, attached to and released again."""
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


def is_free(pid):
    """Nobody traces it."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return "\nTracerPid:\t0\n" in file.read()


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


@case(alone=True)
def all_threads_of_makers(scene):
    """Threads that make others all the time: each of them is recorded after a moment. It took minutes where each had to wait
    behind those that the others made. SIGTERM is heard before that, too."""
    running = scene.ready(scene.made("rough"), "makers", "60")
    tids = lambda: {tid for tid in os.listdir(f"/proc/{running.pid}/task")}
    first, later = tids(), tids()
    for turn, wait in enumerate((None, 0.2, 0.05)):
        out = scene.path(f"steps{turn}")
        os.mkdir(out, 0o700)
        tracer = scene.start(scene.contrail, "itrace", "-a", "-o", out, str(running.pid))
        if wait is None:
            wait_for("files of all makers", lambda: first & later & tids() <= {name.split(".")[1] for name in files_of(out)})
        else:
            time.sleep(wait)
        tracer.send_signal(signal.SIGTERM)
        text = tracer.communicate(timeout=SECONDS)[0]
        early = wait and ((tracer.returncode == 125 and "interrupted" in text) or tracer.returncode == -signal.SIGTERM)
        expect(tracer.returncode == 0 or early, f"turn {turn}: {tracer.returncode} {text}")
        expect(mappings_of(running.pid) == 0, f"turn {turn}: {mappings_of(running.pid)} mappings are left behind")
    running.stdin.write("\n")
    running.stdin.close()
    expect(running.stdout.read() == "all right\n" and running.wait(SECONDS) == 0, f"{running.returncode}")


@case
def seized_while_it_makes_children(scene):
    """A thread that makes a thread, or a child by vfork, after ptrace has hold of it and before it has stopped: that one
    stood still for ever, since nobody looked after it, and its maker with it, or its maker did not stop any more."""
    for kind in ("spawns", "makers"):
        running = scene.ready(scene.made("rough"), kind, "1")
        wait_for("the maker", lambda: len(os.listdir(f"/proc/{running.pid}/task")) > 1)
        maker = sorted(os.listdir(f"/proc/{running.pid}/task"), key=int)[1]
        for turn in range(scene.rounds(25, 200)):
            result = scene.execute(scene.contrail, "itrace", "-q", "-t", maker, "--for", "1ms", "-o", scene.path(f"{kind}{turn}"),
                                   str(running.pid), timeout=SECONDS)
            expect(result.returncode == 0, f"{kind}, turn {turn}: {result.stderr}")
            shutil.rmtree(scene.path(f"{kind}{turn}"))
        running.stdin.write("\n")
        running.stdin.close()
        expect(running.stdout.read() == "all right\n" and running.wait(SECONDS) == 0, f"{kind}: {running.returncode}")


@case
def thread_does_not_stop(scene):
    """A thread that waits for its child of vfork: SIGTERM ends contrail at once, and it gives up by itself, too."""
    running = scene.ready(scene.made("rough"), "vforked")
    wait_for("a child", lambda: state_of(running.pid) == "D")
    for signals, words in ((True, "interrupted before thread"), (False, "does not stop")):
        limit = ("env", f"CONTRAIL_TEST_ITRACE_STOP={600000 if signals else 300}")
        tracer = scene.start(*limit, scene.contrail, "itrace", "-o", scene.path("steps"), str(running.pid))
        if signals:
            wait_for("the tracer", lambda: not is_free(running.pid))
            tracer.send_signal(signal.SIGTERM)
        text = tracer.communicate(timeout=SECONDS)[0]
        expect(tracer.returncode == 125 and words in text, f"{tracer.returncode} {text}")
    running.stdin.write("\n")
    running.stdin.close()
    expect(running.stdout.read() == "all right\n" and running.wait(SECONDS) == 0, f"{running.returncode}")


@case
def all_threads_some_calls(scene):
    """--limit counts the calls of all threads."""
    program, out = scene.made("many"), scene.path("steps")
    expected = scene.run(program, "work", "4", "3000")
    result = scene.execute(scene.contrail, "itrace", "-a", "-F", "leaf", "-n", "50", "-o", out, "--", program, "work", "4", "3000")
    expect(result.returncode == 0 and result.stdout == expected and " of 50 calls" in result.stderr, f"{result}")


def rough(scene, *words, limit=None, before=()):
    """Both ways: the same. What contrail says of it."""
    program, out = scene.made("rough"), scene.path("steps")
    expected = scene.outcome(program, *words)
    prefix = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh") if limit else ()
    got = scene.outcome(*before, *prefix, scene.contrail, "itrace", "-a", "-o", out, "--", program, *words)
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
    errors = rough(scene, "maps", "60", before=RANDOM)  # which takes nearly all that there is below
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
        raise harness.Skip("a thread's id cannot be selected")
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
    for turn in range(scene.rounds(2, 6)):
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
        time.sleep(1.4)  # longer than its threads wait for it
        tracer.send_signal(signal.SIGCONT)
        expect(running.wait(SECONDS) == 0, f"turn {turn}: {running.returncode}")
        expect(tracer.wait(SECONDS) == 0, f"turn {turn}: {tracer.returncode}")


HOOKED = r"""
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#define N __attribute__((noinline))
N long step(long n) { __asm__ volatile(""); return n * 3 + 1; }
N long outer(long n) { return step(n) + step(n + 1); }
int main(int c, char **v) { /* so many calls, or until stdin is closed */
  long s = 0, calls = 0, end = c > 1 ? atol(v[1]) : 0;
  if (c == 1) puts("ready"), fflush(stdout);
  do for (int i = 0; i < 1000; i++) s ^= outer(calls++);
  while (c > 1 ? calls < end : poll(&(struct pollfd){.events = POLLIN}, 1, 0) == 0);
  return printf("%ld %lx\n", calls, s) < 0;
}
"""


@case(alone=True)
def recorded(scene):
    """A thread that is being recorded runs translated for a while: its hooks stay, and every call is in the trace."""
    need("pgrep")
    program = scene.compile(scene.write("hooked.c", HOOKED), "-O1", name="hooked")
    running = scene.ready(scene.contrail, "record", "-q", "-o", scene.path("trace"), "--trace", "step", "--trace", "outer", "--", program)
    for _ in range(scene.rounds(5, 20)):
        scene.run(scene.tool, "-s", "0.02", str(child_of(running.pid, "hooked")))
    running.stdin.close()
    got, status = running.stdout.read(), running.wait(SECONDS)
    expect(status == 0 and got == scene.run(program, got.split()[0]), f"{status} {got}")
    calls = int(got.split()[0])
    report = json.loads(scene.run(scene.contrail, "report", "--json", scene.path("trace")))
    expect({row["name"]: row["calls"] for row in report["functions"]} == {"step": 2 * calls, "outer": calls} and report["dropped"] == 0, f"{calls} {report}")
    return f"{calls:,} calls"


FORBIDS = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
__attribute__((noinline)) int work(int n) { for (int i = 0; i < 1000; i++) { n += i; __asm__ volatile("" : "+r"(n)); } return n; }
void *forbids(void *unused) {
  char byte;
  struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), ALLOW(SYS_read),
    ALLOW(SYS_write), ALLOW(SYS_exit_group), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  work(1);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0); /* a probe, which fails */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)) _exit(2);
  write(1, "ready\n", 6);
  work(2);
  read(0, &byte, 1);
  work(3);
  _exit(7);
}
int main(int argc, char **argv) {
  pthread_t thread;
  if (argc < 2) forbids(0);
  pthread_create(&thread, 0, forbids, 0);
  for (int i = 0; ; i++) work(i), usleep(1000);
}
"""


@case
def under_a_filter(scene):
    """A thread whose seccomp filter kills for what translated code does: it is recorded up to there, or not at all, and never
    knows. Others are."""
    program = scene.compile(scene.write("forbids.c", FORBIDS), *FLAGS)
    for number, words in enumerate(((), ("thread",))):
        process = subprocess.Popen([scene.contrail, "itrace", "-a", "-o", scene.path(f"to{number}"), "--", program, *words],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        scene.processes.append(process)
        said = process.communicate("x", timeout=SECONDS)
        expect((process.returncode, said[0]) == (7, "ready\n"), f"{words}: {process.returncode} {said}")
        expect("1 thread could not be recorded to the end" in said[1] and "went under a seccomp filter" in said[1], said[1])
        process = scene.ready(program, *words)
        done = scene.execute(scene.contrail, "itrace", "-a", "--for", "0.3s", "-o", scene.path(f"of{number}"), str(process.pid),
                             timeout=SECONDS)
        expect(done.returncode == (0 if words else 125) and "runs under seccomp" in done.stderr, f"{done.returncode} {done.stderr}")
        process.communicate("x", timeout=SECONDS)
        expect(process.returncode == 7, f"{words}: it ended with {process.returncode}")


if __name__ == "__main__":
    main(__doc__, Scene)
