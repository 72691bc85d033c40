#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `contrail itrace` records: of programs of all kinds to their ends, against their single steps, and by itself: what is loaded
is what was stored.

    tests/itracerecords.py [--filter PATTERN] [--build DIR]
"""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import harness
import itrace
from harness import case, expect, main, need, wait_for
from itrace import SECONDS, Scene, child_of, each, files_of
from processes import all_stopped, state_of


@case
def killed_in_exec(scene):
    """The process is killed in an exec, when the first memory of its new space is there (base/test_point.h): it has ended by that."""
    tracer = scene.start("env", "CONTRAIL_TEST_POINT=space-begun", scene.contrail, "itrace", "-q", "-o", scene.path("steps"), "--",
                         scene.made("rough", "-static"), "self")
    wait_for("its first space", lambda: state_of(tracer.pid) == "T")
    tracer.send_signal(signal.SIGCONT)
    pid = int(tracer.stdout.readline())
    wait_for("that of the exec", lambda: state_of(tracer.pid) == "T")
    os.kill(pid, signal.SIGKILL)
    tracer.send_signal(signal.SIGCONT)
    got = tracer.stdout.read()
    expect(tracer.wait(SECONDS) == 128 + signal.SIGKILL and got == "", f"{tracer.returncode} {got!r}")


@case
def shared_units(scene):
    """Threads that execute the same code have units of each other; each is compared with a translation (shared_units.c, which aborts)."""
    program, out = scene.made("many"), scene.path("steps")
    os.mkdir(out)
    expected = scene.outcome(program, "all")
    status, text, errors = scene.outcome("env", "CONTRAIL_TEST_COMPARE_UNITS=1", scene.tool, "-v", "-a", "-l", "-o", out, "--", program, "all")
    expect((status, text) == expected[:2] and status == 3, f"{status} {text!r} {errors}, not {expected}")
    units, shared = (int(re.search(rf"(\d+) {word}", errors).group(1)) for word in ("units", "shared"))
    expect(shared > units // 2, f"{shared} of {units} units")


WAITING = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *waits(void *x) { pause(); return x; }
int main(void)
{
  pthread_t thread;
  for (int i = 0; i < 11; i++) pthread_create(&thread, 0, waits, 0);
  puts("ready");
  fflush(stdout);
  getchar();
  return 0;
}
"""


@case
def regions(scene):
    """Each of twelve threads has more than 16 MiB for units near its libraries, or near the program: there is room for that. The fifth had 16."""
    running = scene.ready(*itrace.RANDOM, scene.contrail, "itrace", "-q", "-a", "-o", scene.path("steps"), "--",
                          scene.compile(scene.write("waiting.c", WAITING), "-O1", "-pthread", name="waiting"))
    with open(f"/proc/{child_of(running.pid, 'waiting')}/maps", encoding="ascii", errors="replace") as file:
        ranges = [line.split()[0].split("-") for line in file if " r-xs " in line and "/memfd:contrail " in line]
    sizes = sorted(int(end, 16) - int(start, 16) >> 20 for start, end in ranges)
    running.stdin.close()
    expect(running.wait(SECONDS) == 0 and sum(size > 16 for size in sizes) > 12 and sizes[0] >= 4, f"{sizes}")


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


@each(("writers/nested", "writers/sqlite3", "writers/python3", "writers/perl", "writers/find"), some=("writers", 1))
def writers(scene, name):
    """What a program loads is what its stores and system calls have written before, by the records: no writer is missing."""
    words = {"nested": (scene.made("signals"), "nested", str(scene.rounds(80, 300))),
             "sqlite3": ("sqlite3", scene.path("db"), "create table t(a, b); insert into t select value, value * 7 from "
                         "generate_series(1, 2000); update t set b = b + 1 where a % 3 = 0; select sum(b) from t"),
             "python3": ("/usr/bin/python3", "-I", "-S", "-c", "import os; print(len(os.listdir('/etc')), os.stat('/tmp').st_mode, open('/etc/passwd').read())"),
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


@each(("records/strings", "records/nested", "records/overflow", "records/changes", "records/stops", "records/masked"), some=("signals", 2))
def records_with_signals(scene, name):
    program, mode = scene.made("signals"), name.split("/")[1]
    words = (program, mode, *([str(scene.rounds(80, 300))] if mode == "nested" else []))
    return steps_of(scene, scene.outcome(*words), *words)


@each(("records/sort", "records/sqlite3", "records/python3", "records/bash"), some=("programs", 1))
def records_of_programs(scene, name):
    words = {"sort": ("sort", "-n", "/etc/services"), "sqlite3": ("sqlite3", ":memory:", "select sum(value * 7 % 3) from generate_series(1, 3000)"),
             "python3": ("/usr/bin/python3", "-c", "import json; print(len(json.dumps(list(range(5000)))))"),
             "bash": ("bash", "-c", "trap 'echo trapped' USR1; for i in 1 2 3; do kill -USR1 $$; echo $i | cat; done; exit 4")}[name.split("/")[1]]
    need(words[0])
    return steps_of(scene, scene.outcome(*words), *words)


PATCHED = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
  static const uint8_t code[] = {0xb8, 0, 0, 0, 0, 0xc3}; /* mov $0, %eax; ret */
  uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned sum = 0;
  memcpy(page, code, sizeof(code));
  for (int i = 0; i < 2000; i++) {
    page[1] = (uint8_t)(i % atoi(argv[1]));
    sum = sum * 31 + ((unsigned (*)(void))(uintptr_t)page)();
  }
  printf("%x\n", sum);
  return 0;
}
"""


@case
def patched(scene):
    """Code that changes and changes back, as a compiler patches what it has made: what else is translated stays."""
    program = scene.compile(scene.write("patched.c", PATCHED), "-O1", "-w", name="patched")
    for versions, most in ((5, 4), (200, 250)):  # with a space for each thread some more
        expected = scene.run(program, str(versions))
        done = scene.execute(scene.tool, "-v", "--", program, str(versions), timeout=SECONDS)
        flushes = int(re.search(r"(\d+) flushes", done.stderr).group(1))
        expect((done.returncode, done.stdout) == (0, expected) and flushes <= most, f"{versions} versions: {done}")
        steps_of(scene, scene.outcome(program, str(versions)), program, str(versions))
        shutil.rmtree(scene.path("steps"))


GUESSED = r"""
#include <stdio.h>
__attribute__((noinline)) static long leaf(long x) { return x * 3 + 1; }
__attribute__((noinline)) static long other(long x) { return x * 5 + 2; }
__attribute__((noinline)) static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static long (*volatile way)(long) = leaf;
int main(void)
{
  long sum = 0;
  for (long i = 0; i < 600000; i++) {
    sum += leaf(i) ^ way(i);
    way = i < 400000 || i % 3 == 0 ? leaf : other;
    sum += i % 10000 == 0 ? fib(15) : 0;
  }
  printf("%ld\n", sum);
}
"""


@case("records/guessed")
def records_of_guesses(scene):
    """Units go on after returns and indirect branches, to where they nearly always go, also when that is wrong later."""
    program, directory = scene.path("guessed"), scene.path("steps")
    subprocess.run(["gcc", "-O1", "-o", program, scene.write("guessed.c", GUESSED)], check=True)
    os.mkdir(directory)
    done = scene.execute(os.path.join(scene.options.build, "tests", "translated"), "-v", "-l", "-g", "-o", directory, "--", program,
                         env={**os.environ, "CONTRAIL_TEST_LONG_RUN": str(4 << 20)}, timeout=SECONDS)
    expect((done.returncode, done.stdout) == (0, scene.run(program)), f"{done.returncode} {done.stdout} {done.stderr}")
    steps, size = (int(number) for number in re.search(r"records: (\d+) instructions, (\d+) bytes", done.stderr).groups())
    (name,) = os.listdir(directory)
    walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(directory, name))
    expect(walked.returncode == 0 and " 0 inconsistent" in walked.stdout, walked.stdout + walked.stderr)
    expect(size < 0.75 * steps, f"{size} bytes for {steps} steps")
    return f"{size / steps:.2f} bytes a step; {walked.stdout.strip()}"


@each(tuple(f"records/guesses/{way}" for way in ("returns", "tables", "jumps", "longjumps", "contexts", "stacks", "signals", "unmapped",
                                                 "rewritten", "returned_to")), some=("guesses", 3))
def records_of_wrong_guesses(scene, name):
    """Returns to elsewhere than after the call, changed by 23 ways; tables, stacks and code that change when units go on by them."""
    os.environ["CONTRAIL_TEST_LONG_RUN"] = str(4 << 20)
    program, way = scene.made("guesses"), name.rpartition("/")[2]
    return steps_of(scene, scene.outcome(program, way), program, way)


# Programs that write megabytes of records without a branch back, a far one or a call that does not surely come back.
ROOM = {
    # Returns, one after the other, from 400,000 calls.
    "returns": r"""
f: push %rbx
   mov %rdi, %rbx
   xor %eax, %eax
   test %rdi, %rdi
   je 1f
   dec %rdi
   call f
   add %rbx, %rax
1: pop %rbx
   ret
play:
   mov $400000, %edi
   jmp f
""",
    # A row of calls in 64 KiB of code, each of which loads 46 words; a unit begins after the system call, at the first of them.
    "calls": r"""
f: .rept 46
   mov buffer(%rip), %rax
   .endr
   ret
play:
   mov $110, %eax
   syscall
   .rept 9300
   call f
   jmp 1f
1:
   .endr
   ret
.bss
buffer: .zero 8
""",
    # Conditional branches that are not taken, over areas of 64 KiB, and loads of 8 bytes by one.
    "forward": r"""
play:
   mov %rsp, %rdx
   lea stack(%rip), %rsp
   .rept 64000
   pop %rax
   pop %rax
   pop %rax
   pop %rax
   jrcxz 9f
9:
   .endr
   mov %rdx, %rsp
   ret
.bss
stack: .zero 64000 * 32
""",
}


@each(("records/room/returns", "records/room/calls", "records/room/forward"))
def records_have_room(scene, name):
    """Wherever a thread may write many records there is a look for room, or it would write beyond the end of its segment."""
    program = scene.path("room")
    source = scene.write("room.c", '#include <stdio.h>\nlong play(void);\n__asm__(".text\\n"\n' + "".join(
        f'"{line}\\n"\n' for line in ROOM[name.rpartition("/")[2]].splitlines()) +
        '".text\\n");\nint main(void) { for (int i = 0; i < 5; i++) play(); return puts("all right") < 0; }\n')
    subprocess.run(["gcc", "-O1", "-no-pie", "-o", program, source], check=True)
    os.environ["CONTRAIL_TEST_LONG_RUN"] = "0" if name.endswith("calls") else str(64 << 20)
    return steps_of(scene, (0, "all right\n", ""), program)


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
    """A thread that no tracer learns of runs as it is, and that is said."""
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
    files = lambda: sorted(glob.glob(os.path.join(glob.escape(directory), "steps.[0-9]*")))
    wait_for("the file", files)
    tid = os.path.basename(files()[0]).split(".")[1]

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


def while_stopped(scene, before, after):
    """A program is recorded and does these letters (tests/itrace/stops.c), the last of `before` with its recorder stopped, and more of that."""
    program, directory = scene.made("stops"), scene.path(f"steps.{before}.{after}")
    recorder = subprocess.Popen([scene.contrail, "itrace", "-q", "-o", directory, "--", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "CONTRAIL_TEST_SILENT_WAITS": "10"})
    scene.processes.append(recorder)

    def does(letter):
        recorder.stdin.write(letter)
        recorder.stdin.flush()

    def counts(*letters):
        return [int(recorder.stdout.readline()) for letter in letters if does(letter) is None]

    counted = [int(recorder.stdout.readline())] + counts(*before[:-2])
    recorder.send_signal(signal.SIGSTOP)
    try:
        wait_for("all threads of the recorder to stop", lambda: all_stopped(recorder.pid))
        unseen = counts(before[-2])  # it waits for the recorder in vain, and goes on by itself
        does(before[-1])
    finally:
        recorder.send_signal(signal.SIGCONT)
    counted += unseen + [int(recorder.stdout.readline())] + counts(*after[:-1])
    does(after[-1])
    expect(recorder.wait(SECONDS) == 7, f"{recorder.returncode}")
    said = recorder.stderr.read()
    recorder.stderr.close()
    expect("ran on unrecorded" in said, f"it is not said that something is missing: {said!r}")
    return directory, counted, unseen


@case("records/left")
def left(scene):
    """A recorder that gets no processor for a second: the thread goes on by itself, is recorded again later, and that is said, in the steps too."""
    for letters, expected in random.sample(((("nnnn", "nnq"), range(7)), (("nnns", "nnq"), range(7)), (("nnne", "nnq"), (0, 1, 2, 3, 100, 101, 102))),
                                           scene.rounds(2, 3)):
        directory, counted, unseen = while_stopped(scene, *letters)
        expect(counted == list(expected), f"{letters}: {counted}")
        (name,) = os.listdir(directory)
        walked = scene.execute(os.path.join(scene.options.build, "tests", "stepped"), "walk", os.path.join(directory, name))
        expect(walked.returncode == 0 and " 0 inconsistent" in walked.stdout, f"{letters}: {walked.stdout}{walked.stderr}")
        shown = scene.execute(scene.contrail, "steps", os.path.join(directory, name), timeout=SECONDS)
        expect("-- here something is lost" in shown.stdout and "contradict" not in shown.stdout + shown.stderr, f"{letters}: {shown.stderr}")
        lines = map(json.loads, scene.run(scene.contrail, "steps", "--json", "-F", "counted", os.path.join(directory, name)).splitlines())
        stored = [int(store["value"], 16) for line in lines for store in line.get("stores", ())]
        expect(stored == sorted(stored) and not set(stored) & set(unseen), f"{letters}: {stored} are recorded")
    return f"{stored}"


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


@case
def index_of_writes(scene):
    """--index leaves the index that the first question would make, beside each thread's file; steps --index makes it later."""
    program, out = scene.made("many"), scene.path("steps")
    scene.run(scene.contrail, "itrace", "-q", "-a", "--index", "-o", out, "--", program, "work", "2", "300")
    indexes = sorted(name for name in os.listdir(out) if name.endswith(".writes.index"))
    expect([name.removesuffix(".writes.index") for name in indexes] == files_of(out) and len(indexes) == 3, f"{sorted(os.listdir(out))}")
    made = {}
    for name in indexes:
        with open(os.path.join(out, name), "rb") as file:
            made[name] = file.read()
        os.remove(os.path.join(out, name))
    expect(scene.run(scene.contrail, "steps", "--index", out) == "", "lines")
    for name in indexes:
        with open(os.path.join(out, name), "rb") as file:
            expect(file.read() == made[name], f"another {name}")
    result = scene.execute(scene.contrail, "steps", "--index", "--last-write", "rax", out)
    expect(result.returncode == 2 and "--index" in result.stderr, f"{result}")


@case
def other_threads_are_named(scene):
    """What is not recorded is said."""
    program = scene.made("many")
    result = scene.execute(scene.contrail, "itrace", "-o", scene.path("steps"), "--", program, "work", "3", "10")
    expect("contrail: 3 other threads that it made are not recorded (see --all-threads)" in result.stderr, result.stderr)


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene)
