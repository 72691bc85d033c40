#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What becomes of events for which there is no room: the program waits, or they are lost, and either is said.

    tests/losses.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import harness
from harness import Skip, case, expect, main, wait_for
from processes import children_of, state_of, threads_of, ticks_of

ROUNDS = 2_000_000
OWN = ["--trace", "leaf", "--trace", "pair", "--no-args"]


def waits_for_room(program):
    """For some time its ticks stand still, and none of its threads asks for a processor."""
    before = ticks_of(program)
    for _ in range(20):
        if ticks_of(program) != before or any(state_of(f"{program}/task/{tid}") == "R" for tid in threads_of(program)):
            return False
        time.sleep(0.01)  # one of some looks
    return True


def fills_ring(program):
    """Until it has had a processor for so long that a small ring is full; or it waits for room, or has ended."""
    begin = ticks_of(program)
    wait_for("a full ring", lambda: ticks_of(program) > begin + 20 or state_of(program) in ("", "Z") or waits_for_room(program))


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.program = self.compile("programs/losses.c", "-O2", "-g", "-pthread")

    def start(self, *options, rounds=2_000_000):
        return subprocess.Popen([self.contrail, "record", "-o", self.trace, *OWN, *options, "--", self.program, str(rounds)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stopped(self, seconds, *options, rounds=2_000_000):
        """A recording in which contrail stands still for some time, as soon as there are events."""
        recorder = self.start(*options, rounds=rounds)
        wait_for("events", lambda: os.path.exists(os.path.join(self.trace, "thread_0", "index.ctb")))
        recorder.send_signal(signal.SIGSTOP)
        fills_ring(child_of(recorder.pid))
        time.sleep(seconds)  # it is the duration that is told
        recorder.send_signal(signal.SIGCONT)
        out, err = recorder.communicate(timeout=300)
        expect(recorder.returncode == 0 and out == f"{4 * rounds} {2 * rounds}\n", f"{recorder.returncode} {out!r} {err!r}")
        return err

    def view(self, *words):
        return self.run(self.contrail, *words, self.trace, timeout=300)

    def ask(self, *words):
        return self.run(self.contrail, *words, timeout=300)

    def row(self, name, *options):
        return next(row for row in json.loads(self.view("report", "--json", *options))["functions"] if row["name"] == name)

    def leaf_is_short(self, nobodys):
        """A leaf of some ns has nothing of the time in which its thread waited for contrail, or was not heard of."""
        leaf = self.row("leaf", "--time", "cpu")
        expect(leaf["self_ns"] < max(nobodys / 2, 150 * leaf["calls"]), f"{leaf['calls']} calls of leaf have {leaf['self_ns']} ns; {nobodys} ns are nobody's")
        print(f"     a leaf has {leaf['self_ns'] / leaf['calls']:.0f} ns")


@case
def cancelled(scene):
    """Threads that are cancelled in the middle of a hook, where segments are scarce: such a hook has no event, and none is lost."""
    program = scene.compile("fixtures/cancel_async.c", "-O2", "-pthread", name="cancel_async")
    scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--args", "--ring-size", "1", "--", program, timeout=300)
    info = json.loads(scene.view("info", "--json"))
    expect(info["dropped"] == 0, f"{info['dropped']} of {info['events']} events were dropped")


@case
def waits(scene):
    """record: nothing is lost, and the time waited is told."""
    err = scene.stopped(1, "--ring-size", "4", "-v", rounds=ROUNDS)
    expect("nothing lost, the program waited " in err and " for room, " in err and "; next: " in err, f"stderr: {err!r}")
    info = json.loads(scene.view("info", "--json"))
    expect(info["dropped"] == 0, f"{info['dropped']} events were dropped")
    expect(info["waited_ns"] > 5e8, f"waited for {info['waited_ns']} ns")
    expect("for room for events" in scene.view("info"), "info does not say it")
    expect(scene.row("leaf")["calls"] == 4 * ROUNDS and scene.row("pair")["calls"] == 2 * ROUNDS, "other counts")
    scene.leaf_is_short(info["waited_ns"])


@case
def killed(scene):
    """The program goes on soon when contrail is killed while it waits, also when nobody has waited for contrail, up to its end."""
    recorder = scene.start("--ring-size", "4", rounds=3_000_000)
    wait_for("events", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    program = child_of(recorder.pid)
    recorder.send_signal(signal.SIGSTOP)
    wait_for("the program to wait", lambda: waits_for_room(program))
    before = ticks_of(program)
    recorder.send_signal(signal.SIGKILL)
    wait_for("the end of contrail", lambda: state_of(recorder.pid) == "Z")
    begin, seen = time.monotonic(), before
    while state_of(program) not in ("", "Z") and seen - before < 50:
        if ticks_of(program) - seen >= 5:  # it has gone on, as far as a busy machine lets it
            begin, seen = time.monotonic(), ticks_of(program)
        expect(time.monotonic() - begin < 60, "the program still waits for one that is dead")
        time.sleep(0.05)
    recorder.communicate(timeout=300)


def blocks_of(path):
    """Where the blocks of a thread's file begin, and its end."""
    with open(path, "rb") as file:
        data = file.read()
    at, found = 64, []
    while at < len(data):
        found.append(at)
        at += 128 + int.from_bytes(data[at + 16:at + 20], "little")
    return data, found + [at]


def rewrite(path, data):
    with open(path, "wb") as file:
        file.write(data)


def cut(folder, name, lines=False):
    path = os.path.join(folder, name)
    with open(path, "rb") as file:
        data = file.read()
    rewrite(path, data[:data.rindex(b"\n", 0, len(data) // 2) + 1] if lines else data[:-7])


def without_block(folder, which):
    path = os.path.join(folder, "thread_0", "index.ctb")
    data, blocks = blocks_of(path)
    expect(len(blocks) > 4, f"{len(blocks)} blocks")
    rewrite(path, data[:blocks[which]] + data[blocks[which + 1]:] if which >= 0 else data[:blocks[which - 1]])


DAMAGES = {
    "a middle block": (lambda folder: without_block(folder, 1), ["thread_0/index.ctb", "block 1 is not there"]),
    "the last block": (lambda folder: without_block(folder, -1), ["thread_0/index.ctb", "shorter"]),
    "half a block": (lambda folder: cut(folder, "thread_1/index.ctb"), ["thread_1/index.ctb", "7 bytes shorter"]),
    "a thread": (lambda folder: shutil.rmtree(os.path.join(folder, "thread_1")), ["thread_1/index.ctb", "is missing"]),
    "functions": (lambda folder: rewrite(os.path.join(folder, "functions.tsv"), b""), ["functions.tsv", "is missing"]),
    "some functions": (lambda folder: cut(folder, "functions.tsv", lines=True), ["functions.tsv", "shorter"]),
    "output": (lambda folder: cut(folder, "output.cto"), ["output.cto", "7 bytes shorter"]),
}


@case
def damaged(scene):
    """What is gone from a trace is said by every command that reads it, as text and as JSON."""
    recorder = scene.start(rounds=100_000)
    expect(recorder.wait(timeout=300) == 0, "the recording failed")
    whole = {words: scene.view(*words) for words in VIEWS}
    expect(not any("DAMAGED" in text for text in whole.values()), "damage in a trace that is whole")
    for what, (damage, words) in DAMAGES.items():
        scene.trace = os.path.join(scene.folder, "damaged")
        shutil.copytree(os.path.join(scene.folder, "trace"), scene.trace)
        damage(scene.trace)
        for view in VIEWS:
            said = scene.view(*view)
            for word in ["DAMAGED", *words]:
                expect(word in said, f"without {what}: {' '.join(view)} does not say {word!r}: {said[:300]}")
        if what == "functions":
            rows = [row["name"] for row in json.loads(scene.view("report", "--json"))["functions"]]
            expect(sorted(row[:10] for row in rows) == ["(function "] * 2 and len(set(rows)) == 2, f"without functions: {rows}")
        shutil.rmtree(scene.trace)


@case
def changed_by_the_program(scene):
    """The program cuts a file of its own trace short, puts another in its place, takes it away or writes into it: contrail says so at the end."""
    program = scene.compile("programs/changes_trace.c", "-O1")
    ways = {"none": None, "cut": "was cut short", "take": "was taken away", "replace": "was replaced", "append": "was appended to"}
    for how, name, options in [(how, "thread_0/index.ctb", []) for how in ways] + [("cut", "functions.tsv", []), ("take", "functions.tsv", []),
                                                                               ("cut", "thread_0/index-1.ctb", ["--max-size", "10M"])]:
        trace = scene.path(f"changed-{how}-{name.replace('/', '-')}")
        result = subprocess.run([scene.contrail, "record", "-o", trace, "--trace", f"{os.path.basename(program)}!", *options, "--", program,
                                 os.path.join(trace, name), how], capture_output=True, text=True, timeout=300, check=False)
        said = f"note: {name} {ways[how]} by somebody else while it was written"
        expect(result.returncode == 0 and result.stdout == "1\n", f"{how} {name}: {result}")
        expect(said in result.stderr if ways[how] else "somebody" not in result.stderr, f"{how} {name}: {result.stderr!r}")
        info = scene.ask("info", trace)
        expect(said.removeprefix("note: ") in info if ways[how] else "somebody" not in info, f"{how} {name}: {info}")


@case(some=("reasons", 1))
def full_disk(scene):
    """The disk is full: the program does not notice, contrail says it, and so does whatever reads the trace."""
    disk = os.path.join(scene.folder, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("no right to mount a small disk")
    try:
        scene.trace = os.path.join(disk, "trace")
        rounds = scene.rounds(2, 8) * ROUNDS
        recorder = scene.start("-v", rounds=rounds)
        out, err = recorder.communicate(timeout=300)
        expect(out == f"{4 * rounds} {2 * rounds}\n" and recorder.returncode == 125, f"{recorder.returncode} {out!r}")
        expect(err.startswith("contrail: cannot write ") and "No space left on device" in err, f"stderr: {err!r}")
        for view in some_views(scene):
            said = scene.view(*view)
            said = said if "--json" in view else said.splitlines()[0]
            expect("INCOMPLETE: the recording ended early: cannot write" in said and "No space left on device" in said,
                   f"{view} begins with {said[:200]!r}")
        expect(json.loads(scene.view("info", "--json"))["exit"] == {"status": 0}, "the exit is not known")
    finally:
        subprocess.run(["umount", disk], check=True)


VIEWS = [("info",), ("info", "--json"), ("report",), ("report", "--json"), ("replay", "--limit", "10"),
         ("replay", "--json", "--limit", "10"), ("output",), ("output", "--json"), ("report", "--family"),
         ("report", "--family", "--json"), ("exclude-list", "--share", "90"), ("exclude-list", "--share", "90", "--json")]
LOST = "% of events LOST, counts are too low"


@case(some=("reasons", 1))
def loses(scene):
    """--no-wait: what was lost is said first, and the time of the gap is no function's."""
    rounds = scene.rounds(3, 8) * ROUNDS
    err = scene.stopped(0.5, "--ring-size", "4", "--no-wait", rounds=rounds)
    expect("were dropped" in err, f"stderr: {err!r}")
    info = json.loads(scene.view("info", "--json"))
    expect(info["dropped"] > 0 and info["waited_ns"] < 1e9, f"{info['dropped']} dropped, {info['waited_ns']} ns waited")
    ring, files = info["lanes"]["events"], info["lanes"]["files"]
    expect(ring["high_times"] >= 1 and ring["segments"] * 3 // 4 < ring["full_most"] <= ring["segments"], f"{ring}")
    expect(ring["handed_over"] > ring["segments"] and files["blocks"] > 0, f"{info['lanes']}")
    expect(0 < files["p50_ns"] <= files["p99_ns"] <= files["most_ns"], f"{files}")
    published_everywhere(scene, info, some_views(scene))
    gap, leaf = scene.row("(events lost)"), scene.row("leaf")
    expect(5e7 < gap["total_ns"] < 2.1 * info["duration_ns"], f"the gap has {gap['total_ns']} ns")
    expect(leaf["calls"] < 4 * rounds, f"{leaf}")
    scene.leaf_is_short(gap["total_ns"])


def some_views(scene):
    """Of traces that take long to read: all of them are asked for of the small one of loses_by_memory."""
    return random.sample(VIEWS, scene.rounds(4, len(VIEWS)))


def published_everywhere(scene, info, views=VIEWS):
    """Each view of a trace with losses begins with them, and the reasons are of all of them."""
    expect(sum(info["dropped_by_reason"].values()) == info["dropped"], f"{info['dropped_by_reason']}")
    for view in views:
        said = scene.view(*view)
        expect(LOST in (said if "--json" in view else said.splitlines()[0]), f"{view} begins with {said[:200]!r}")


@case(some=("reasons", 1))
def loses_by_the_disk(scene):
    """--no-wait, and a disk that is slower than the program: that is the reason, everywhere."""
    scene.environment = dict(os.environ, CONTRAIL_TEST_DISK_MS="10")
    rounds = scene.rounds(5, 16) * ROUNDS
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, *OWN, "--ring-size", "4", "--no-wait", "--",
                                 scene.program, str(rounds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=scene.environment)
    out, err = recorder.communicate(timeout=300)
    expect(recorder.returncode == 0 and out == f"{4 * rounds} {2 * rounds}\n", f"{recorder.returncode} {out!r} {err!r}")
    expect("the disk was slower" in err and "a faster disk" in err, err)
    info = json.loads(scene.view("info", "--json"))
    by = info["dropped_by_reason"]
    expect(by["disk_slow"] > 0.5 * info["dropped"] > 0 and by["memory_limit"] == 0, f"{by}")
    published_everywhere(scene, info, some_views(scene))


TURNS = 16


def with_little_memory(scene, program):
    """It may have 2 MiB more than when it has begun."""
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, "--trace", "step", "--", program], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect(recorder.stdout.readline() == "ready\n", "the program has not begun")
    # The recorder is idle when it has reported the first thread.
    wait_for("the first thread", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    with open(f"/proc/{recorder.pid}/status", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmData:"))
    resource.prlimit(recorder.pid, resource.RLIMIT_DATA, ((kib << 10) + (2 << 20), resource.RLIM_INFINITY))
    out, err = recorder.communicate("\n", timeout=300)
    return recorder, out, err


@case
def loses_by_memory(scene):
    """contrail gets no more memory: the threads that it has none for are lost, and all of their events are counted; the others and
    the program are as ever."""
    program = scene.compile("programs/manythreads.c", "-O2", "-pthread")
    for _ in range(TURNS):
        recorder, out, err = with_little_memory(scene, program)
        if recorder.returncode != 0 or err:
            break  # else what the search for functions has given back was enough for all threads, and nothing has been shown
        shutil.rmtree(scene.trace)
    calls = int(out)
    expect(recorder.returncode == 0 and "no memory for contrail to record their thread" in err, f"{recorder.returncode} {err!r}")
    info = json.loads(scene.view("info", "--json"))
    by = info["dropped_by_reason"]
    expect(by["memory_limit"] == info["dropped"] > 0, f"{by}")
    expect(2 * scene.row("step")["calls"] + info["dropped"] == 2 * calls, f"{scene.row('step')}, {by}, {calls} calls in truth")
    expect(1 < len(info["threads"]) < 201, f"{len(info['threads'])} threads")
    published_everywhere(scene, info)
    return f"{len(info['threads'])} of 201 threads, {info['dropped']:,} events lost"


@case
def more_threads_than_slots(scene):
    """More live threads than contrail records at a time: the others go on at once, and what is missing is said to the call."""
    program = scene.compile("programs/manythreads.c", "-O2", "-pthread")
    done = subprocess.run([scene.contrail, "record", "-o", scene.trace, "--trace", "step", "--", program, "4300"], input="\n",
                          text=True, capture_output=True, timeout=120)
    calls = int(done.stdout.split()[-1])
    expect(done.returncode == 0 and calls == 1 + 4300 * 500 and "more threads at a time" in done.stderr, f"{done}")
    info = json.loads(scene.view("info", "--json"))
    by = info["dropped_by_reason"]
    expect(by["no_slot"] == info["dropped"] > 0, f"{by}")
    expect(2 * scene.row("step")["calls"] + info["dropped"] == 2 * calls, f"{scene.row('step')}, {by}, {calls} calls in truth")
    return f"{len(info['threads'])} of 4,301 threads, {info['dropped']:,} events lost"


@case
def skipped_in_the_agent(scene):
    """Hooks of a handler that has interrupted the agent, which blocks no signal under a seccomp filter: they are counted, and
    with what was recorded and lost they make up all calls."""
    program = scene.compile("programs/interrupted.c", "-O2")
    out = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "step", "--trace", "in_handler", "--", program)
    made = sum(map(int, out.split()))
    thread, = scene.manifest()["threads"]
    recorded = sum(row["calls"] for row in scene.rows().values() if row["name"] in ("step", "in_handler"))
    expect(thread["skipped"] > 10, f"{thread}")
    expect(recorded + thread["dropped"] // 2 + thread["skipped"] == made, f"{recorded} recorded, {thread}, {made} in truth")
    return f"{thread['skipped']} skipped"


@case(some=("reasons", 1))
def loses_light(scene):
    """Light hooks: the same, and the sum of what is left and lost is what was called."""
    rounds = scene.rounds(3, 8) * ROUNDS
    err = scene.stopped(0.5, "--ring-size", "4", "--no-wait", "--no-sampling", "--mode", "light", rounds=rounds)
    expect("were dropped" in err and ("contrail did not run" in err or "faster than contrail" in err) and "--lossless" in err, f"stderr: {err!r}")
    info = json.loads(scene.view("info", "--json"))
    published_everywhere(scene, info, some_views(scene))
    calls = scene.row("leaf")["calls"] + scene.row("pair")["calls"]
    expect(calls < 6 * rounds <= calls + info["dropped"] < 6 * rounds + 1000, f"{calls} calls, {info['dropped']} dropped")


@case
def published_meanwhile(scene):
    """status, sessions and stop say it while the recording is under way, with the reasons."""
    recorder = scene.start("--ring-size", "4", "--no-wait", rounds=100_000_000)
    wait_for("events", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    program = child_of(recorder.pid)
    recorder.send_signal(signal.SIGSTOP)
    fills_ring(program)
    recorder.send_signal(signal.SIGCONT)
    try:
        wait_for("losses", lambda: json.loads(scene.ask("status", "--json", str(program)))["dropped"] != 0)
        status = json.loads(scene.ask("status", "--json", str(program)))
        expect(sum(status["dropped_by_reason"].values()) == status["dropped"], f"{status}")
        expect(LOST in scene.ask("status", str(program)).splitlines()[0], "status does not begin with it")
        expect(LOST in scene.ask("sessions"), "sessions does not say it")
        expect(LOST in scene.ask("stop", "--end", str(program)), "stop does not say it")
    finally:
        recorder.communicate(timeout=300)


def child_of(pid):
    children = children_of(pid)
    expect(children, "contrail has no child")
    return children[0]


if __name__ == "__main__":
    main(__doc__, Scene)
