#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings of bounded size (record --max-size): that the trace never is larger, that what is in it is exactly the last
stretch, while it grows and after it was killed, and that what is gone from it otherwise is said.

    tests/maxsize.py [--filter PATTERN] [--build DIR]
"""
import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import time

import harness
import last
from harness import case, expect, main, need_root, wait_for
from last import COUNT, consecutive


class Scene(last.Scene):
    def bounded(self, size, *words, status=0):
        """The events that were not kept."""
        self.run(self.contrail, "record", "-q", "-o", self.trace, "--max-size", size, *words, status=status)
        return self.not_kept(self.trace)

    def pieces(self, pattern="thread_*/index-*.ctb"):
        return sorted(glob.glob(os.path.join(self.trace, pattern)), key=lambda path: int(re.search(r"-(\d+)\.ct", path)[1]))

    def bytes(self):
        """Of all files that count; one may go meanwhile."""
        total = 0
        for path in self.pieces() + self.pieces("thread_*/detail-*.ctd") + self.pieces("output-*.cto"):
            try:
                total += os.path.getsize(path)
            except FileNotFoundError:
                pass
        return total

    def start_bounded(self, size, *words):
        """A recording that goes on, of which the first events have gone."""
        process = self.start(self.contrail, "record", "-q", "-o", self.trace, "--max-size", size, *words)
        wait_for("the first piece to go",
                 lambda: process.poll() is not None or (self.pieces() and not self.pieces()[0].endswith("-1.ctb")))
        expect(process.poll() is None, "the recording has ended")
        return process


@case
def exact(scene):
    """The calls that are there are the last ones, and the number of the others is said."""
    program = scene.build(COUNT)
    not_kept = scene.bounded("1M", "--args", "--trace", "step", "--", program, "600")
    steps = scene.steps()
    expect(scene.bytes() <= 1 << 20, f"{scene.bytes()} bytes")
    expect(steps[-1] == 599999 and consecutive(steps), "not the last calls, or not all of them")
    manifest, info = scene.manifest(), scene.info()
    if info["dropped"]:
        return f"{len(steps)} calls; the machine was too busy for more"
    before = 600000 - len(steps)
    expect(not_kept in (2 * before, 2 * before - 1), f"{not_kept} events are said not to be kept, of {before} calls")
    expect(info["events"] == 1200000 - not_kept == manifest["threads"][0]["events"], "the sums are wrong")
    expect(manifest["threads"][0]["not_kept"] == not_kept and manifest["state"] == "complete", "the manifest is wrong")
    expect(manifest["version"] == 4 and manifest["kept"]["limit_bytes"] == 1 << 20, "the manifest is wrong")
    row = scene.rows()["step"]
    expect(row["calls"] == len(steps) and row["entered_before"] == not_kept % 2, "the report is wrong")
    expect(len(steps) > 100000, f"only {len(steps)} calls")
    return f"{len(steps)} calls of 600000 in {len(scene.pieces())} pieces"


@case(some=("dear", 2))
def large_enough(scene):
    """Nothing goes, and nothing is said to have."""
    program = scene.build(COUNT)
    scene.bounded("20M", "--args", "--trace", "step", "--", program, "300")
    expect(scene.steps() == list(range(300000)) or scene.info()["dropped"], "not all calls")
    expect(scene.info()["warnings"] == [] or scene.info()["dropped"], f"{scene.info()['warnings']}")
    expect(len(scene.pieces()) > 1, "one file")
    same = scene.path("ordinary")
    scene.run(scene.contrail, "record", "-q", "-o", same, "--trace", "step", "--", program, "300")
    expect(not glob.glob(os.path.join(same, "*", "*-*")), "an ordinary trace is in pieces")


@case
def threads_share(scene):
    """The oldest goes, whoever's it is: a thread that ended early is gone, one that writes seldom keeps what it wrote last."""
    program = scene.build("""#include <pthread.h>
#include <unistd.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
long tick(long n) { __asm__ volatile("" ::: "memory"); return n; }
long early(long n) { __asm__ volatile("" ::: "memory"); return n; }
static volatile int over;
void *seldom(void *a) { long n = 0; while (!over) { tick(n++); usleep(20000); } return 0; }
void *first(void *a) { for (long n = 0; n < 1000; n++) early(n); return 0; }
int main(void) { pthread_t t, f; pthread_create(&f, 0, first, 0); pthread_join(f, 0); pthread_create(&t, 0, seldom, 0);
  for (long n = 0; n < 3000000; n++) step(n); usleep(500000); over = 1; pthread_join(t, 0); return 0; }
""", "-pthread")
    scene.bounded("1M", "--args", "--trace", "step", "--trace", "tick", "--trace", "early", "--", program)
    expect(scene.bytes() <= 1 << 20, f"{scene.bytes()} bytes")
    rows, info, manifest = scene.rows(), scene.info(), scene.manifest()
    expect("early" not in rows and rows["tick"]["calls"] > 0 and rows["step"]["calls"] > 10000, f"{rows.keys()}")
    kept = manifest["kept"]
    expect(kept["threads_gone"] == 1 and kept["threads_gone_events"] == 2000, f"one thread is a sum: {kept}")
    events = sum(thread["events"] + thread["not_kept"] for thread in manifest["threads"]) + kept["threads_gone_events"]
    # In the order in which the recorder saw them, which need not be that in which they began.
    ticks = next(thread for thread in manifest["threads"] if thread["events"] + thread["not_kept"] != 6000000)
    expect(info["dropped"] or events == 6002000 + ticks["events"] + ticks["not_kept"], f"{events} events")
    expect(sum(thread["not_kept"] for thread in manifest["threads"]) + kept["threads_gone_events"] == kept["not_kept"], "the sums are wrong")


@case(some=("dear", 2))
def threads_without_end(scene):
    """Of threads that have ended, and of which nothing is there, neither folder nor line is left."""
    program = scene.build("""#include <pthread.h>
#include <unistd.h>
long step(long n) { __asm__ volatile("" ::: "memory"); return n; }
void *run(void *a) { for (long i = 0; i < 800; i++) step(i); return 0; }
int main(void) { for (long n = 0; n < 1500; n++) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0);
  if (n % 500 == 0) usleep(100000); } return 0; }
""", "-pthread")
    not_kept = scene.bounded("1M", "--args", "--trace", "step", "--", program)
    manifest, info = scene.manifest(), scene.info()
    gone = manifest["kept"]["threads_gone"]
    expect(gone > 100 and gone + len(manifest["threads"]) == 1500, f"{gone} threads are a sum")
    expect(info["events"] + not_kept + info["dropped"] == 2400000, "the sums are wrong")
    folders = glob.glob(os.path.join(scene.trace, "thread_*"))
    # What is left of a thread may be a block without events: of what came after its last call.
    empty = [folder for folder in folders if not any(os.path.getsize(path) for path in glob.glob(os.path.join(folder, "*")))]
    none = [thread for thread in manifest["threads"] if not thread["events"]]
    expect(len(folders) == len(manifest["threads"]) and not empty and len(none) < 8,
           f"{len(folders)} folders, {len(manifest['threads'])} threads; empty: {empty[:3]}; without events: {none[:3]}")
    return f"{len(folders)} folders of 1500"


@case
def output_too(scene):
    """What the program wrote goes as it gets older."""
    program = scene.build('#include <stdio.h>\nint main(void) { for (int i = 0; i < 40000; i++) { printf("line %d %0100d\\n", i, i); '
                          "fflush(stdout); } }\n")
    scene.bounded("1M", "--trace", "main", "--", program)
    text = scene.run(scene.contrail, "output", scene.trace)
    numbers = [int(found) for found in re.findall(r"line (\d+) ", text)]
    expect(numbers == sorted(numbers) and numbers[0] > 1000 and numbers[-1] == 39999, f"not the last lines: {numbers[:1]}, {numbers[-1:]}, {[(a, b) for a, b in zip(numbers, numbers[1:]) if a > b][:3]}")
    expect(1000 < len(numbers) < 39000 and scene.bytes() <= 1 << 20, f"{len(numbers)} lines were kept")


@case(some=("read", 1))
def values_too(scene):
    """The detail of calls is in pieces as well, and belongs to the calls that are there."""
    program = scene.build(COUNT)
    scene.bounded("4M", "--trace", "step", "--detail", "step", "--", program, "150")
    expect(scene.pieces("thread_0/detail-*.ctd") and scene.bytes() <= 4 << 20, "no pieces")
    calls = [line for line in scene.lines() if line["kind"] == "enter" and line["name"] == "step" and "entered_before" not in line]
    with_values = [line for line in calls if "args" in line]
    expect(len(with_values) > 1000, f"{len(with_values)} calls with values")
    numbers = [int(str(line["args"][0]), 16) for line in with_values]
    expect(consecutive(numbers) and numbers[-1] == 149999, "not the values of the last calls")


@case(some=("read", 1))
def while_it_runs(scene):
    """The trace can be read at any time: pieces that go meanwhile stay until they are read."""
    program = scene.build(COUNT)
    process = scene.start_bounded("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    last_step = 0
    for _ in range(3):
        sizes = [scene.bytes() for _ in range(3)]  # a piece may come and another go while they are added up
        expect(min(sizes) <= 1 << 20, f"{sizes} bytes")
        steps = scene.steps()
        expect(consecutive(steps) and steps and steps[0] > last_step, "not the calls that are there")
        expect(scene.not_kept(scene.trace) > 0, "it is not said that others have gone")
        result = scene.execute(scene.contrail, "sql", "--json", scene.trace, "SELECT count(*) AS n FROM spans")
        expect(result.returncode == 0 and "DAMAGED" not in result.stderr and "did not fit" not in result.stderr, result.stderr)
        counted = json.loads(result.stdout)[0]["n"]
        expect(counted > len(steps) // 4, f"{counted} calls by SQL, where {len(steps)} were replayed")
        last_step = steps[-1]
    kept = scene.kept(process)
    expect(kept["limit_bytes"] == 1 << 20 and 0 < kept["bytes"] <= 1 << 20 and kept["ns"] > 0, f"{kept}")
    result = scene.execute(scene.contrail, "dump")
    expect(result.returncode == 1 and scene.trace in result.stderr, result.stderr)
    scene.run(scene.contrail, "stop", "--end")
    process.wait(60)
    expect(scene.info()["complete"], "the end was not written")


@case
def killed(scene):
    """The recorder dies by SIGKILL; the last block was written in part."""
    program = scene.build(COUNT)
    process = scene.start_bounded("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    result = scene.execute(scene.contrail, "recover", scene.trace)
    expect(result.returncode == 1 and "is being recorded" in result.stderr, result.stderr)
    scene.kill(process)
    newest = [piece for piece in scene.pieces() if os.path.getsize(piece) > 5][-1]  # the last one may be there without a byte yet
    with open(newest, "r+b") as file:
        file.truncate(os.path.getsize(newest) - 5)
    before = scene.steps()
    result = scene.execute(scene.contrail, "recover", scene.trace)
    expect(result.returncode == 0 and "were not kept" in result.stderr, result.stderr)
    expect(scene.steps() == before and consecutive(before) and before[0] > 0, "other calls than before")
    info = scene.info()
    expect(info["complete"] and scene.not_kept(scene.trace) in (2 * before[0], 2 * before[0] - 1) or info["dropped"],
           f"{scene.not_kept(scene.trace)} events not kept, of {before[0]} calls")
    files = scene.manifest()["files"]
    for path in scene.pieces():
        size, listed = os.path.getsize(path), files.get(os.path.relpath(path, scene.trace))
        expect(listed == size or (listed is None and size < 64 + 128), f"{path} of {size} bytes is not as listed: {listed}")  # not even a block's header


@case
def gone_meanwhile(scene):
    """The oldest pieces go after a reader has begun: it goes on with those that there were."""
    program = scene.build(COUNT)
    process = scene.start_bounded("1M", "--args", "--trace", "step", "--", program, "100000000", "rests")
    scene.kill(process)
    query = "SELECT count(*) AS n, min(start) AS first FROM spans; SELECT count(*) AS n FROM spans WHERE start > 0"
    words = (scene.contrail, "sql", "--json", scene.trace)
    expected = scene.execute(*words, query)
    expect(expected.returncode == 0 and "DAMAGED" not in expected.stderr, expected.stderr)
    index = os.path.join(scene.trace, "spans.cti")
    if os.path.exists(index):
        os.unlink(index)
    reader = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_asked():
        with open(f"/proc/{reader.pid}/syscall", encoding="ascii") as file:
            return file.read().startswith("0 0x0 ")

    wait_for("it to read what is asked", is_asked)
    pieces = scene.pieces()
    for piece in pieces[:len(pieces) // 2]:
        os.unlink(piece)
    out, err = reader.communicate(query, timeout=60)
    expect(out == expected.stdout and "DAMAGED" not in err, f"{out} {err}, not {expected.stdout}")
    fewer = json.loads(scene.execute(*words, "SELECT count(*) AS n FROM spans").stdout)[0]["n"]
    expect(0 < fewer < json.loads(out.split("]")[0] + "]")[0]["n"], "nothing has gone")
    return f"{len(pieces)} pieces"


@case(some=("dear", 2))
def damaged(scene):
    """A piece that is missing, and one that is cut, are said, with what went with them."""
    program = scene.build(COUNT)
    scene.bounded("1M", "--args", "--trace", "step", "--", program, "450")
    pieces = scene.pieces()
    events = scene.info()["events"]
    os.unlink(pieces[len(pieces) // 2])
    info = scene.info()
    expect(info["missing_events"] if "missing_events" in info else info["warnings"], "no word about it")
    text = " ".join(info["warnings"])
    expect("is missing" in text and "events are gone" in text, text)
    entered = scene.run(scene.contrail, "replay", "--json", scene.trace).count('"kind":"enter"')
    expect(0 < entered < events // 2, "nothing can be read")
    with open(pieces[-1], "r+b") as file:
        file.truncate(os.path.getsize(pieces[-1]) - 100)
    expect("shorter" in " ".join(scene.info()["warnings"]), "the cut is not said")
    result = scene.execute(scene.contrail, "report", scene.trace)
    expect(result.returncode in (0, 1) and "step" in result.stdout, result.stderr)


@contextlib.contextmanager
def small_disk(scene):
    """The trace is to be on a disk of 3 MiB."""
    need_root()
    disk = scene.path("disk")
    os.mkdir(disk)
    if scene.execute("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk).returncode != 0:
        raise harness.Skip("no tmpfs can be mounted")
    try:
        scene.trace = os.path.join(disk, "trace")
        yield
    finally:
        scene.run("umount", disk)


@case(some=("dear", 2))
def full_disk(scene):
    """Where the disk has less room than the limit, the oldest go as well, and the recording goes on."""
    with small_disk(scene):
        program = scene.build(COUNT)
        scene.bounded("100M", "--args", "--trace", "step", "--", program, "1000")
        steps = scene.steps()
        expect(steps[-1] == 999999 and consecutive(steps) and len(steps) > 50000, f"{len(steps)} calls")
        expect(scene.info()["complete"] and scene.not_kept(scene.trace) > 0, "not complete")
    return f"{len(steps)} calls"


@case(some=("dear", 2))
def full_disk_of_one_piece(scene):
    """A disk with room for less than a piece of the limit; a thread that wrote before it was full and writes again; one that begins then."""
    with small_disk(scene):
        program = scene.build("#include <pthread.h>\n#include <unistd.h>\n"
                              '__attribute__((noinline)) long step(long n) { __asm__ volatile("" ::: "memory"); return n; }\n'
                              "static void *work(void *n) { for (long i = 0; i < (long)n; i++) step(i); return 0; }\n"
                              "static void run(long n) { pthread_t t; pthread_create(&t, 0, work, (void *)n); pthread_join(t, 0); }\n"
                              "int main(void) { work((void *)1000); usleep(300000); run(2000000); work((void *)400000); run(300000); return 0; }\n")
        scene.bounded("4G", "--args", "--trace", "step", "--", program)
        info = scene.info()
        expect(info["complete"] and not info["dropped"] and scene.not_kept(scene.trace) > 0, f"{info['events']} events, {info['dropped']}")
        steps = scene.steps()
        expect(steps[-1] == 299999 and consecutive(steps[-50000:]), f"{len(steps)} calls, {steps[-1]}")
    return f"{len(steps)} calls"


NO_FALLOCATE = """#include <errno.h>
int fallocate(int fd, int mode, long at, long size) { errno = EOPNOTSUPP; return -1; }
int fallocate64(int fd, int mode, long at, long size) { errno = EOPNOTSUPP; return -1; }
"""


@case
def no_room_for_the_last_manifest(scene):
    """Where nothing could be reserved for it, on a disk that others have filled since, the oldest piece makes room for it."""
    with small_disk(scene):
        program = scene.build("#include <stdio.h>\n"
                              '__attribute__((noinline)) long step(long n) { __asm__ volatile("" ::: "memory"); return n; }\n'
                              'int main(void) { for (long n = 0; n < 300000; n++) step(n); puts("ready"); fflush(stdout); return getchar() != 10; }\n')
        library = scene.compile(scene.write("nofallocate.c", NO_FALLOCATE), "-shared", "-fPIC", "-O1", name="nofallocate.so")
        filler = os.path.join(os.path.dirname(scene.trace), "filler")
        with harness.Running([scene.contrail, "record", "-q", "-o", scene.trace, "--max-size", "4G", "--args", "--trace", "step", "--", program], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, LD_PRELOAD=library)) as recorder:
            expect(recorder.stdout.readline() == "ready\n", "the program")

            def is_written():
                return scene.execute(scene.contrail, "replay", "--json", scene.trace).stdout.count('"kind":"enter"') == 300000
            wait_for("all to be written", is_written)

            def is_full():
                with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
                    while file.write(bytes(4096)):
                        pass
                return os.statvfs(scene.trace).f_bavail == 0
            wait_for("a disk that is full", is_full)
            _, errors = recorder.communicate("\n", timeout=300)
        expect(recorder.returncode == 0, f"status {recorder.returncode}: {errors}")
        info, steps = scene.info(), scene.steps()
        expect(info["complete"] and scene.not_kept(scene.trace) > 0 and steps[-1] == 299999 and consecutive(steps), f"{info['warnings']} {len(steps)} calls")
    return f"{len(steps)} calls"


@case(some=("dear", 2))
def children(scene):
    """Each process has files of its own, a quarter as large."""
    program = scene.build("#include <sys/wait.h>\n#include <unistd.h>\n"
                          'long step(long n) { __asm__ volatile("" ::: "memory"); return n; }\n'
                          "int main(void) { for (int i = 0; i < 2; i++) if (fork() == 0) { "
                          "for (long n = 0; n < 300000; n++) step(n); _exit(0); }\n"
                          "while (wait(0) > 0) ; return 0; }\n")
    scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--follow", "--max-size", "4M", "--trace", "step", "--args", "--",
              program)
    names = [child["directory"] for child in scene.manifest()["children"]]
    expect(len(names) == 2, f"{len(names)} children")
    for name in names:
        child = os.path.join(scene.trace, name)
        steps = scene.steps(child)
        expect(steps[-1] == 299999 and consecutive(steps) and 10000 < len(steps) < 280000, f"{len(steps)} calls")
        total = sum(os.path.getsize(path) for path in glob.glob(os.path.join(child, "thread_*", "*-*")))
        expect(total <= 1 << 20, f"{total} bytes")


@case
def attached(scene):
    program = scene.build(COUNT)
    process = scene.start(program, "100000000", "rests")
    recorder = scene.start(scene.contrail, "attach", "-q", "-o", scene.trace, "--max-size", "1M", "--args", "--trace", "step",
                           str(process.pid))
    wait_for("the first piece to go", lambda: recorder.poll() is not None or
             (scene.pieces() and not scene.pieces()[0].endswith("-1.ctb")))
    os.kill(recorder.pid, signal.SIGINT)
    expect(recorder.wait(60) == 0, "attach failed")
    steps = scene.steps()
    expect(consecutive(steps) and len(steps) > 10000 and process.poll() is None, "not the last calls")


@case
def flat(scene):
    """Neither disk nor descriptors nor memory grow."""
    program = scene.build(COUNT)
    # With arguments two MiB are full after some 600,000 events.
    process = scene.start_bounded("2M", "--args", "--trace", "step", "--", program, "300000000")
    stretch_events = scene.rounds(400000, 1000000)

    def resident():
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"RssAnon:\s+(\d+)", file.read())[1])

    def events():
        return json.loads(scene.run(scene.contrail, "status", "--json"))["events"]
    wait_for("the oldest to be removed", lambda: events() > scene.rounds(2000000, 20000000) and scene.bytes() > 1 << 20)
    begin, descriptors = resident(), len(os.listdir(f"/proc/{process.pid}/fd"))
    # A buffer of the queue to the disk is made when it is first needed (some MiB, once); what grows does so all the time.
    grown = []
    while len(grown) < 5 and (not grown or grown[-1] > 256):
        stretch = resident()
        for _ in range(scene.rounds(4, 8)):
            before = events()
            wait_for("more events", lambda: process.poll() is not None or events() > before + stretch_events)
            expect(scene.bytes() <= 2 << 20, f"{scene.bytes()} bytes")
        grown.append(resident() - stretch)
    expect(grown[-1] <= 256 and resident() < begin + (16 << 10), f"it grows: {grown} KiB in stretches of {scene.rounds(4, 8) * stretch_events} events")
    expect(len(os.listdir(f"/proc/{process.pid}/fd")) <= descriptors + 2, "descriptors")
    scene.run(scene.contrail, "stop", "--end")
    process.wait(60)
    return f"{begin} to {resident() if process.poll() is None else begin} KiB"


@case
def refused(scene):
    for words, text in ((["--max-size", "1M", "--last", "2M"], "last"), (["--max-size", "7"], "1M to 1024T"),
                        (["--max-size", "1M", "--max-output", "3"], "max-output"), (["--max-size", "many"], "a size")):
        result = scene.execute(scene.contrail, "record", *words, "--", "/bin/true")
        expect(result.returncode == 2 and text in result.stderr, f"{words}: {result.returncode}, {result.stderr}")


if __name__ == "__main__":
    main(__doc__, Scene)
