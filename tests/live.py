#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Recordings that are looked at while they go on: contrail top, by its JSON, its tables and its screen (tmux), and
contrail replay --live; with a program that counts for itself.

    tests/live.py [--filter PATTERN] [--build DIR]
"""
import json
import math
import os
import re
import signal
import statistics
import subprocess
import time

import harness
from harness import Skip, case, expect, main, need, wait_for


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        os.mkdir(self.path("runtime"), 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.path("runtime"))
        self.program = self.compile("programs/ticks.c", "-O1", "-pthread", name="ticks", compiler="cc")
        self.children, self.terminal = [], None

    def start(self, *options):
        """The program under contrail record, when it is ready."""
        words = [self.contrail, "record", "-q", "-o", self.trace, *options, "--", self.program]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.children.append(process)
        expect(process.stdout.readline() == "ready\n", "the program does not begin")
        return process

    def end(self, process):
        """What it says it called: quick, slow."""
        out, errors = process.communicate(timeout=60)  # the line before it was flushed and read
        found = re.fullmatch(r"quick (\d+) slow (\d+)\n", out)
        expect(found and process.returncode == 0, f"the program's end: {process.returncode} {out!r} {errors}")
        return int(found[1]), int(found[2])

    def watch(self, *words):
        process = subprocess.Popen([self.contrail, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.children.append(process)
        return process

    def rest(self, process):
        """What it still writes, beside lines that were read, and its errors."""
        out = process.stdout.read()
        errors = process.stderr.read()
        process.wait(60)
        return out, errors

    def tmux(self, *words):
        environment = {k: v for k, v in self.environment.items() if k not in ("TMUX", "TMUX_PANE")}
        return subprocess.run(["tmux", "-S", self.path("tmux"), *words], capture_output=True, text=True, check=False,
                              env=dict(environment, TERM="xterm", LC_ALL="C.UTF-8"))

    def screen(self):
        return self.tmux("capture-pane", "-p").stdout

    def close(self):
        if self.terminal:
            self.tmux("kill-server")
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()


def functions_of(line):
    return {row["name"]: row for row in line["functions"]}


@case("top --json", alone=True)
def top_json(scene):
    """Each second by itself and since the start; the last line has what the program says it called, and the report has."""
    program = scene.start()
    top = scene.watch("top", "--json", "--limit", "0")
    lines = [json.loads(top.stdout.readline()) for _ in range(2)]
    program.stdin.write("\n")
    program.stdin.flush()

    def all_seen():
        """A look at the second thread, and a last second with calls: the third look at the latest, if nobody else has the processors."""
        lines.append(json.loads(top.stdout.readline()))
        second, slow = (functions_of(lines[-1]).get(name) for name in ("second_thread_waits", "slow"))
        return second and (second["last"] is None or second["last"]["calls"] > 5) and any(
            functions_of(line)["slow"]["last"]["calls"] for line in lines if line["last_ns"] is not None)
    wait_for("all to be seen", lambda: all_seen() and len(lines) >= 5)
    seen, counts = len(lines), scene.end(program)
    rest, errors = scene.rest(top)
    expect(top.returncode == 0 and not errors, f"the end of top: {top.returncode} {errors}")
    lines += [json.loads(line) for line in rest.splitlines()]
    first, last = lines[0], lines[-1]
    expect(all(row["last"] is None for row in first["functions"]) and first["last_ns"] is None,
           "the first look has a last second")
    expect(first["events_per_second"] is None, f"nor events a second: {first['events_per_second']}")
    told = [line for line in lines[1:seen] if line["last_ns"] is not None]
    # What is not known is null: a look that had no time to read all there was, and the one after it. It says so.
    late = [line for line in lines[1:seen] if line["last_ns"] is None]
    expect(all(row["last"] is None for line in late for row in line["functions"]), f"a last second of no known length: {late}")
    for line in told:
        rows, seconds = functions_of(line), line["last_ns"] / 1e9
        quick, slow = rows["quick"]["last"], rows["slow"]["last"]
        # 100 rounds a second at most, and on a busy machine fewer, or none; ten quick ones to each slow one.
        expect(slow["calls"] <= 101 * seconds + 10, f"calls of slow in {seconds} s: {slow}")
        expect(abs(quick["calls"] - 10 * slow["calls"]) <= 20, f"quick and slow: {quick} {slow}")
        # It reads the clock for 2 ms by the wall; the hooks of that, most of it on a quick machine, are not in its time.
        expect(slow["self_ns"] < 1.1e9 * seconds and (slow["calls"] == 0 or 1e5 < slow["p99_ns"] < 1e9), f"times of slow: {slow}")
        expect(rows["main"]["open"] == 1 and rows["main"]["calls"] == 0, f"main: {rows['main']}")
        expect(line["events_per_second"] is None or line["events_per_second"] > 0, f"events a second: {line}")
        expect(line["events"] > 0 and line["dropped"] == 0, f"counts: {line}")
    expect("second_thread_waits" not in functions_of(lines[0]), "the second thread ran before it was made")
    expect(len(lines[seen - 1]["threads"]) == 3, f"threads: {lines[seen - 1]['threads']}")
    expect(last["state"] == "ended" and last["read"]["ended"] and last["read"]["bytes_left"] == 0, f"the end: {last}")
    rows, report = functions_of(last), scene.rows()
    expect((rows["quick"]["calls"], rows["slow"]["calls"]) == counts, f"calls at the end: {rows['quick']} {counts}")
    for name, row in report.items():
        same = [r for r in last["functions"] if (r["name"], r["module"]) == (name, row["module"])]
        expect(sum(r["calls"] for r in same) >= row["calls"], f"{name}: report {row['calls']}, top {same}")
    for line in lines:  # half a second of them at least, and so no more than there are
        expect((line["events_per_second"] or 0) / 2 <= line["events"] + 1, f"events a second: {line}")
        nameless = [r for r in line["functions"] if r["name"] == "?" or r["name"].startswith("(function ")]
        expect(not nameless, f"functions without a name: {nameless}")
    for name in ("quick", "slow", "main"):
        expect(rows[name]["calls"] == report[name]["calls"] and rows[name]["self_ns"] == report[name]["self_ns"],
               f"{name}: report {report[name]}, top {rows[name]}")
    return f"{len(lines)} looks, {len(told)} of {seen - 1} with a last second, {counts[0]} and {counts[1]} calls"


@case("top --once and tables")
def top_tables(scene):
    """A table after a second, without a terminal too; what is selected and how it is sorted; wrong words."""
    program = scene.start()
    wait_for("calls", lambda: "quick" in scene.rows())
    table = scene.run(scene.contrail, "top", "--once", "--sort", "calls", "--function", "quick").splitlines()
    expect(table[0].startswith("ticks-") and "events" in table[0], f"heading: {table[0]}")
    expect(table[1].split()[-1] == "function" and len([t for t in table if "[ticks]" in t]) == 1, f"table: {table}")
    two = scene.run(scene.contrail, "top", "--count", "2", "--interval", "0.3", "--limit", "3")
    expect(two.count("more functions") == 2, f"two tables: {two}")
    line = json.loads(scene.run(scene.contrail, "top", "--once", "--json", "--sort", "name", "--limit", "4"))
    names = [row["name"] for row in line["functions"]]
    expect(names == sorted(names) and len(names) == 4 < line["function_count"], f"sorted by name: {names}")
    for words, status in ((("--sort", "no"), 2), (("--interval", "0"), 2), (("--function", "a[", "--once"), 2),
                          (("nobody",), 3)):
        result = scene.execute(scene.contrail, "top", *words)
        expect(result.returncode == status and result.stderr.count("\n") <= 2, f"top {words}: {result}")
    scene.end(program)
    expect(scene.execute(scene.contrail, "top").returncode == 3, "no session any more")


@case("top of what cannot be followed")
def top_refuses(scene):
    program = scene.start("--last", "10s")
    result = scene.execute(scene.contrail, "top", "--once")
    expect(result.returncode == 1 and "last stretch" in result.stderr, f"--last: {result}")
    scene.end(program)


def end_program(pid, recorder):
    """The program that a contrail that was killed has left."""
    recorder.kill()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    recorder.communicate()


@case("top when contrail is killed")
def top_killed(scene):
    """It ends with a line that says so."""
    program = scene.start()
    session = json.loads(scene.run(scene.contrail, "status", "--json"))
    top = scene.watch("top", "--json", "--interval", "0.2")
    top.stdout.readline()
    os.kill(session["controller"], signal.SIGKILL)
    _, errors = scene.rest(top)
    expect(top.returncode == 1 and "recover" in errors, f"{top.returncode} {errors}")
    end_program(session["pid"], program)


@case("top on a terminal")
def top_screen(scene):
    """Keys: sort, choose by a pattern, exclude, threads, leave."""
    need("tmux")
    program = scene.start()
    result = scene.tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30", f"exec {scene.contrail} top")
    if result.returncode:
        raise Skip(f"tmux does not start: {result.stderr.strip()}")
    scene.terminal = True

    def shows(*texts):
        wait_for(f"{texts} on the screen", lambda: all(text in scene.screen() for text in texts))

    shows("sorted by last-self", "slow [ticks]", "hooks", "quick [ticks]")
    scene.tmux("send-keys", "s")
    shows("sorted by last-calls")
    scene.tmux("send-keys", "S")
    shows("sorted by last-self")
    scene.tmux("send-keys", "?")
    shows("leave; the recording goes on")
    scene.tmux("send-keys", "/")
    shows("only functions that match:")
    scene.tmux("send-keys", "-l", "qui*")
    scene.tmux("send-keys", "Enter")
    shows("only qui*", "1 functions", "quick [ticks]")
    expect("slow [ticks]" not in scene.screen(), f"what is not selected: {scene.screen()}")
    scene.tmux("send-keys", "x")
    shows("exclude what matches:")
    scene.tmux("send-keys", "Enter")  # the function with the bar
    shows("exclude.add quick: done")
    expect(json.loads(scene.run(scene.contrail, "exclude", "list", "--json"))["patterns"] == ["quick"], "the session's list")
    scene.tmux("send-keys", "t")
    shows("events last", "ticks")
    scene.tmux("send-keys", "q")
    wait_for("the end of the screen", lambda: scene.tmux("list-sessions").returncode != 0)
    quick, _ = scene.end(program)
    calls = scene.rows()["quick"]["calls"]
    expect(0 < calls < quick, f"quick was not excluded: {calls} of {quick} recorded")


@case("top in a narrow terminal")
def top_narrow(scene):
    """The name of the function and what is sorted by are there at any width, on the screen and in tables; other columns go."""
    need("tmux")
    program = scene.start()
    for words in ("", " </dev/null"):  # the screen, and tables
        result = scene.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
                            f"{scene.contrail} top --sort calls --function 'ticks!*' {words}")
        if result.returncode:
            raise Skip(f"tmux does not start: {result.stderr.strip()}")
        scene.terminal = True
        for width, heading in ((80, r"calls last +self last +calls +self  function"), (60, "self last +calls  function"), (40, "calls  function")):
            scene.tmux("resize-window", "-x", str(width), "-y", "24")
            wait_for(f"columns of {width}", lambda: re.search(rf"^ *{heading}$.*^[> ].*\d.*slow \[ticks\]$", scene.screen(), re.M | re.S))
        scene.tmux("kill-server")
        wait_for("the end of tmux", lambda: scene.tmux("list-sessions").returncode != 0)
    scene.terminal = False
    scene.end(program)


# ---- contrail replay --live ----


def told(line):
    """What must be the same while it is recorded and after: durations may differ by what is known of the clock."""
    return tuple(line.get(key) for key in ("kind", "tid", "name", "depth", "id", "parent", "text", "result"))


@case("replay --live", alone=True)
def replay_live(scene):
    """Lines come while the program runs, in order, and are in the end those of a replay of the whole trace."""
    program = scene.start("--trace", "ticks!*")
    replay = scene.watch("replay", "--live", "--json", scene.trace)
    lines, late = [], []
    deadline = time.monotonic() + 300

    def lateness():
        """Of the last ones: a machine that does something else may be late for a while."""
        return statistics.median(late[-50:] or [math.inf])
    while len(late) < 250 or lateness() >= 1e9:
        expect(time.monotonic() < deadline, f"lines come {lateness() / 1e6} ms late")
        line = json.loads(replay.stdout.readline())
        lines.append(line)
        if line["name"] == "slow" and line["kind"] == "return":
            late.append(time.monotonic() * 1e9 - scene.manifest()["start_ns"] - line["ts_ns"])
        if len(lines) == 500:
            program.stdin.write("\n")
            program.stdin.flush()
    expect(program.poll() is None and replay.poll() is None, "the program or the replay has ended")
    counts = scene.end(program)
    rest, errors = scene.rest(replay)
    expect(replay.returncode == 0 and not errors, f"the end of replay: {replay.returncode} {errors}")
    lines += harness.parse_lines(rest)
    after = scene.lines()
    expect(sorted(map(str, map(told, lines))) == sorted(map(str, map(told, after))),
           f"{len(lines)} lines, {len(after)} after; {set(map(told, lines)) ^ set(map(told, after))}"[:2000])
    quick = sum(line["name"] == "quick" and line["kind"] == "enter" for line in lines)
    expect(quick == counts[0], f"{quick} calls of quick, not {counts[0]}")
    back = sum(a["ts_ns"] > b["ts_ns"] for a, b in zip(lines, lines[1:]))
    expect(back <= len(lines) // 100, f"{back} of {len(lines)} lines are older than those before them")
    return f"{len(lines)} lines, {sorted(late)[len(late) // 2] / 1e6:.0f} ms late, {back} out of order"


@case("replay --live that is left")
def replay_left(scene):
    """Ctrl-C ends it in order, --limit too; filters hold; text; a trace that is complete is as without it."""
    program = scene.start("--trace", "ticks!*")
    replay = scene.watch("replay", "--live", "--function", "slow", scene.trace)
    for _ in range(6):
        line = replay.stdout.readline()
    expect("slow" in line or " off: " in line, f"a line: {line}")
    replay.send_signal(signal.SIGINT)
    rest, errors = scene.rest(replay)
    expect(replay.returncode == 0 and not errors and "still open" not in rest, f"Ctrl-C: {replay.returncode} {errors}")
    expect(all("slow" in line or " off: " in line for line in rest.splitlines()), f"what was not asked for: {rest[-500:]}")
    expect(len(scene.run(scene.contrail, "replay", "--live", "--json", "--limit", "7", scene.trace).splitlines()) == 7, "--limit")
    for words in (("--from", "0.1"), ("--window", "1")):
        expect(scene.execute(scene.contrail, "replay", "--live", *words, scene.trace).returncode == 2, f"{words} is taken")
    piece = scene.execute(scene.contrail, "replay", "--live", scene.trace + "@0..1")
    expect(piece.returncode != 0 and "leave out the piece" in piece.stderr, f"a piece is taken: {piece}")
    scene.end(program)
    expect(scene.run(scene.contrail, "replay", "--live", scene.trace) == scene.run(scene.contrail, "replay", scene.trace),
           "a complete trace is shown in another way")


@case("threads that come and go", alone=True)
def short_threads(scene):
    """Each is followed from its first call to its last, by top and by replay --live."""
    program = scene.compile("programs/shortthreads.c", "-O1", "-pthread", compiler="cc")
    recorder = scene.watch("record", "-q", "-o", scene.trace, "--trace", "shortthreads!*", "--", program)
    wait_for("the session", lambda: json.loads(scene.run(scene.contrail, "sessions", "--json"))["sessions"])
    replay = scene.watch("replay", "--live", "--json", scene.trace)
    top = scene.watch("top", "--json", "--interval", "0.3")
    lines, looks = harness.parse_lines(scene.rest(replay)[0]), harness.parse_lines(scene.rest(top)[0])
    expect(recorder.wait(60) == 0 and replay.returncode == 0 and top.returncode == 0, "status")
    last = functions_of(looks[-1])
    expect((last["leaf"]["calls"], last["body"]["calls"]) == (10000, 200), f"top: {last['leaf']} {last['body']}")
    expect(len(looks[-1]["threads"]) == 201, f"{len(looks[-1]['threads'])} threads")
    after = scene.lines()
    expect(sorted(map(str, map(told, lines))) == sorted(map(str, map(told, after))),
           f"{len(lines)} lines, {len(after)} after; {set(map(told, lines)) ^ set(map(told, after))}"[:900])
    return f"{len(looks)} looks, {len(lines)} lines"


@case("replay --live when contrail is killed")
def replay_killed(scene):
    """What had been written is shown to its end, and it says that the recording was cut."""
    program = scene.start("--trace", "ticks!*")
    session = json.loads(scene.run(scene.contrail, "status", "--json"))
    replay = scene.watch("replay", "--live", "--json", scene.trace)
    replay.stdout.readline()
    os.kill(session["controller"], signal.SIGKILL)
    rest, _ = scene.rest(replay)
    lines = harness.parse_lines(rest)
    expect(replay.returncode == 0 and any(line["kind"] == "warning" for line in lines), f"{replay.returncode} {lines[-3:]}")
    end_program(session["pid"], program)
    result = scene.execute(scene.contrail, "replay", "--live", "--json", scene.trace)
    expect(result.returncode == 0 and "no session" in result.stderr, f"nobody records it: {result.stderr}")


if __name__ == "__main__":
    main(__doc__, Scene)
