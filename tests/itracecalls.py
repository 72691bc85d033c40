#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls that are recorded as instructions while functions are recorded as ever (src/record/itrace.c, src/itrace/calls.c): the
program cannot tell, its calls are in the trace as ever, and the steps are those of contrail itrace.

    tests/itracecalls.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import signal
import socket
import subprocess

import harness
from harness import Running, case, expect, main, wait_for

FLAGS = ("-O1", "-g", "-pthread", "-ldl")


class Scene(harness.Scene):
    def program(self):
        return self.compile("programs/itraced.cpp", *FLAGS, compiler="g++")

    def traced(self, *words, options=(), status=7, name="trace"):
        """What it printed, and its trace; it must be as without."""
        program = self.program()
        plain = self.execute(program, *words)
        trace = self.path(name)
        done = self.execute(self.contrail, "record", "-o", trace, *options, "--", program, *words)
        ended = 128 - plain.returncode if plain.returncode < 0 else plain.returncode
        expect((done.returncode, done.stdout) == (ended, plain.stdout),
               f"{words}: {done.returncode} {done.stdout[-300:]!r} {done.stderr[-600:]!r}, untraced {plain.returncode} {plain.stdout[-300:]!r}")
        expect(done.returncode == status, f"status {done.returncode}")
        return trace

    def calls(self, trace):
        """tid, function id, tsc, first step, steps, outcome."""
        with open(os.path.join(trace, "itrace.tsv"), encoding="ascii") as file:
            return [[int(field) for field in line.split("\t")[:5]] + [line.split("\t")[5].rstrip()] for line in file]

    def facts(self, trace):
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            return json.load(file)

    def ask(self, trace, query):
        return json.loads(self.run(self.contrail, "sql", "--json", trace, query) or "[]")

    def good(self, trace, count, outcome="returned"):
        """So many calls, all of that outcome, whose steps contradict nothing."""
        calls = self.calls(trace)
        expect(len(calls) == count, f"{len(calls)} calls: {calls[:5]}, {self.facts(trace).get('itrace')}, {self.facts(trace).get('notes')}")
        expect(all(call[5] == outcome for call in calls), f"{calls}")
        for name in os.listdir(trace):
            if name.startswith("steps."):
                done = self.execute(self.contrail, "steps", os.path.join(trace, name))
                expect(done.returncode == 0 and done.stderr == "", f"steps of {name}: {done.returncode} {done.stderr[-300:]}")
        return calls


def bodies(scene, trace, first, steps):
    """The function's offsets of these steps."""
    rows = scene.run(scene.contrail, "steps", "--json", "--step", str(first), "-n", str(steps), trace).splitlines()
    return [json.loads(row) for row in rows]


@case("the steps are those of contrail itrace")
def same_steps(scene):
    trace = scene.traced("c", "6", options=("--itrace", "work", "--itrace-plain"))
    calls = scene.good(trace, 6)
    alone = scene.path("alone")
    scene.execute(scene.contrail, "itrace", "-q", "-F", "work", "-o", alone, "--", scene.program(), "c", "6")
    other = [json.loads(line) for line in scene.run(scene.contrail, "steps", "--json", alone).splitlines()]
    ours = [json.loads(line) for line in scene.run(scene.contrail, "steps", "--json", trace).splitlines()]
    keys = [key for key in ("function", "offset", "text", "code") if key in other[0]]
    expect(keys, f"{other[0]}")
    names = [[(row.get("function"), row.get("offset")) for row in rows if "function" in row] for rows in (ours, other)]
    expect(names[0] == names[1], f"{len(names[0])} and {len(names[1])} steps: {[pair for pair in zip(*names) if pair[0] != pair[1]][:3]}")
    expect(sum(call[4] for call in calls) == len(names[0]), f"{calls}")


@case("calls are recorded as ever")
def as_ever(scene):
    trace = scene.traced("cr", "6", options=("--itrace", "work"))
    calls = scene.good(trace, 8)
    told = f"8 calls of work as instructions, {sum(call[4] for call in calls):,} of them"
    expect(told in scene.run(scene.contrail, "info", trace), f"info does not say {told}")
    spans = scene.ask(trace, "SELECT function, count(*) AS calls FROM spans WHERE function IN ('leaf', 'work') GROUP BY 1 ORDER BY 1")
    expect([row["calls"] for row in spans] == [21 + 21, 6 + 21 + 6], f"{spans}")


@case("each call has its span")
def linked(scene):
    trace = scene.traced("c", "12", options=("--itrace", "work", "--itrace-calls", "5", "--itrace-when", "arg2 > 3"))
    scene.good(trace, 5)
    rows = scene.ask(trace, "SELECT c.steps, c.span_id, p.function, p.start, p.end, (SELECT count(*) FROM spans l WHERE l.parent_id = p.id) AS leaves, "
                            "(SELECT count(*) FROM steps s WHERE s.tid = c.tid AND s.step BETWEEN c.first_step AND c.first_step + c.steps - 1 "
                            "AND s.time BETWEEN p.start AND p.end) AS inside FROM itrace_calls c JOIN spans p ON p.id = c.span_id")
    expect([row["leaves"] for row in rows] == [4, 5, 6, 7, 8], f"{rows}")
    expect(all(row["function"] == "work" and row["inside"] == row["steps"] for row in rows), f"{rows}")


@case("what is hard to follow")
def rough(scene):
    for options in ((), ("--itrace-plain",)):
        trace = scene.traced("ctxjfpda", "2", options=("--itrace", "work", "--itrace-calls", "100", *options), name="trace" + "".join(options))
        scene.good(trace, 8 * 2)


@case("a thread that ends in a call")
def ends(scene):
    trace = scene.traced("ec", "3", options=("--itrace", "work", "--itrace-calls", "100"))
    scene.good(trace, 6)  # pthread_exit leaves the function before the thread ends


@case("an exec in a call")
def execs(scene):
    trace = scene.traced("E", "1", options=("--itrace", "work", "--itrace-calls", "100"))
    calls = scene.calls(trace)
    expect([call[5] for call in calls] == ["cut"] + ["returned"] * 5, f"{calls}")


@case("a crash in a call")
def crashes(scene):
    trace = scene.traced("v", "1", options=("--itrace", "work",), status=139)
    calls = scene.calls(trace)
    expect(len(calls) == 1 and calls[0][5] in ("cut", "ended"), f"{calls}")
    expect("signal 11" in scene.run(scene.contrail, "steps", trace), "the steps do not come to the fault")
    expect("SIGSEGV" in scene.run(scene.contrail, "info", trace), "no crash is reported")


@case("detached in the middle of a call")
def detached(scene):
    program = scene.program()
    with Running([program, "s", "1"], stdout=subprocess.PIPE, text=True) as running:
        try:
            expect(running.stdout.readline() == "ready\n", "it is not ready")
            trace = scene.path("trace")
            scene.run(scene.contrail, "attach", "--itrace", "leaf", "--itrace-calls", "3", "-o", trace, "--for", "1s", str(running.pid))
            scene.good(trace, 3)
            with open(f"/proc/{running.pid}/status", encoding="ascii") as file:
                expect("TracerPid:\t0\n" in file.read(), "it is still traced")
            with open(f"/proc/{running.pid}/maps", encoding="ascii") as file:
                expect("memfd:contrail" not in file.read(), "something of ours is left")
            expect(running.poll() is None, "it has ended")
        finally:
            running.kill()


@case("stopped in the middle of a call")
def cut(scene):
    program, trace = scene.program(), scene.path("trace")
    with Running([scene.contrail, "record", "--itrace", "work", "-o", trace, "--", program, "s", "1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        expect(running.stdout.readline() == "ready\n", "it is not ready")
        wait_for("steps", lambda: any(name.startswith("steps.") and os.path.getsize(os.path.join(trace, name)) > 10000
                                      for name in os.listdir(trace)))
        session = json.loads(scene.run(scene.contrail, "sessions", "--json"))
        pid = next(row["pid"] for row in session["sessions"] if row.get("trace", "").endswith("trace")) if isinstance(session, dict) else session[0]["pid"]
        os.kill(pid, signal.SIGTERM)
        running.wait(60)
    expect([call[5] for call in scene.calls(trace)][0] in ("cut", "ended"), f"{scene.calls(trace)}")


@case("contrail is killed in the middle of a call")
def killed(scene):
    program, trace = scene.program(), scene.path("trace")
    plain = scene.execute(program, "ca", "100")
    for turn in range(2):
        log = scene.path(f"log{turn}")
        with open(log, "w", encoding="ascii") as file:
            with Running([scene.contrail, "record", "--itrace", "work", "--itrace-calls", "1000", "-o", trace + str(turn), "--",
                                   program, "ca", "100"], stdout=file) as running:
                wait_for("some calls", lambda: os.path.exists(os.path.join(trace + str(turn), "itrace.tsv")))
                running.kill()
        wait_for("the program's end", lambda: open(log, encoding="ascii").read() == plain.stdout)


@case("a rule has the next call recorded")
def ruled(scene):
    trace = scene.traced("ca", "5", options=("--on", "work > 5ms: itrace 2"))
    rules = [row for row in scene.facts(trace)["itrace"] if row["number"] == 0]
    expect(rules and rules[0]["begun"] >= 1 and rules[0]["recorded"] == rules[0]["begun"], f"{rules}")
    calls = scene.calls(trace)
    expect(all(call[5] == "returned" for call in calls), f"{calls}")


@case("in a live session")
def live(scene):
    program, trace = scene.program(), scene.path("trace")
    runtime = scene.path("runtime")
    os.makedirs(runtime, mode=0o700)
    environment = dict(os.environ, XDG_RUNTIME_DIR=runtime)
    with Running([scene.contrail, "record", "-o", trace, "--", program, "s", "1"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=environment) as running:
        expect(running.stdout.readline() == "ready\n", "it is not ready")

        def sockets():
            folder = os.path.join(runtime, "contrail")
            return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".sock")] if os.path.isdir(folder) else []

        def ask(method, **params):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.connect(sockets()[0])
                client.sendall(json.dumps({"jsonrpc": "2.0", "method": method, "id": 1, "params": params}).encode() + b"\n")
                client.shutdown(socket.SHUT_WR)
                return json.loads(client.makefile().read())
        wait_for("the session", sockets)
        done = scene.execute(scene.contrail, "trigger", "add", "call leaf: itrace 2", env=environment)
        expect(done.returncode == 0, f"{done.stderr}")
        answer = ask("itrace.open", function="leaf", condition="arg1 != 7", calls=4)["result"]
        number = answer["number"]
        expect(number == 32 and not answer["unmatched"], f"{answer}")

        def done_row():
            row = next(row for row in ask("itrace.list")["result"]["itrace"] if row["number"] == number)
            return row if row["state"] == "done" else None
        row = wait_for("its calls", done_row)
        expect(row["recorded"] == 4, f"it is done, and yet: {row}")
        expect("error" in ask("itrace.close", number=39) and "error" in ask("itrace.open", function="leaf", calls=0), "what is wrong is taken")
        expect("error" in ask("itrace.open", function="leaf", condition="x"), "a condition that is none is taken")
        rows = ask("itrace.close", number=number)["result"]["itrace"]
        expect([row["recorded"] for row in rows if row["number"] == number] == [4], f"{rows}")
        scene.execute(scene.contrail, "stop", "--end", env=environment)
        running.wait(60)
    wishes = {row["number"]: row for row in scene.facts(trace)["itrace"]}
    expect(wishes[32]["state"] == "closed" and wishes[32]["recorded"] == 4, f"{wishes}")


@case("what cannot be is said")
def refused(scene):
    program = scene.program()
    for words, text in (((("--itrace", "work", "--itrace-when", "r12 > 5")), "arg1 to arg6"), (("--itrace-calls", "5"), "follows the --itrace"),
                        (("--itrace", "work", "--itrace-calls", "0"), "1 to 1000000"), (("--on", "work > 1ms: itrace 0"), "from 1 to")):
        done = scene.execute(scene.contrail, "record", "-o", scene.path("no"), *words, "--", program, "c", "1")
        expect(done.returncode != 7 and text in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    trace = scene.traced("c", "3", options=("--itrace", "nosuchfunction"))
    expect(any("nosuchfunction" in note for note in scene.facts(trace)["notes"]), f"{scene.facts(trace).get('notes')}")


if __name__ == "__main__":
    main(__doc__, Scene)
