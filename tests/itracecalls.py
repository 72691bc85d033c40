#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls that are recorded as instructions while functions are recorded as ever (src/record/itrace.c, src/itrace/calls.c): the
program cannot tell, its calls are in the trace as ever, and the steps are those of contrail itrace.

    tests/itracecalls.py [--filter PATTERN] [--build DIR]
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import time

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
    other, ours = (harness.parse_lines(scene.run(scene.contrail, "steps", "--json", one)) for one in (alone, trace))
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


KILLED = """#include <signal.h>
#include <unistd.h>
__attribute__((noinline)) long leaf(long n) { static volatile long s; s += n; return s; }
__attribute__((noinline)) long work(long n) { long s = 0; while (n--) s += leaf(n); return s; }
int main(void) { pid_t me = getpid(); if (fork() == 0) { work(100); kill(me, SIGKILL); _exit(0); } for (;;) work(100); }
"""


@case("a SIGKILL as a call begins")
def killed_as_it_begins(scene):
    """The end of the program is known as ever."""
    program = scene.compile(scene.write("killed.c", KILLED), "-O1", name="killed")
    for turn in range(scene.rounds(12, 60)):
        words = ("--itrace", "leaf", "--itrace-calls", "3", "--itrace", "work", "--itrace-calls", "2", "-o", scene.path(f"turn{turn}"))
        done = scene.execute(scene.contrail, "record", "-f", *words, "--", program)
        expect(done.returncode in (137, -9), f"turn {turn}: {done.returncode} {done.stderr!r}")


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
            with Running([scene.contrail, "attach", "-q", "--itrace", "leaf", "--itrace-calls", "3", "-o", trace, str(running.pid)]) as attached:
                wait_for("three calls", lambda: os.path.exists(os.path.join(trace, "itrace.tsv")) and len(scene.calls(trace)) == 3)
                attached.send_signal(signal.SIGINT)
                expect(attached.wait(60) == 0, f"status {attached.returncode}")
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
    probes = {row["number"]: row for row in scene.facts(trace)["itrace"]}
    expect(probes[32]["state"] == "closed" and probes[32]["recorded"] == 4, f"{probes}")


class Client:
    """Of a session's socket: requests and answers apart."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.socket.settimeout(60)
        self.answers = self.socket.makefile()

    def say(self, request, method, **params):
        self.socket.sendall(json.dumps({"jsonrpc": "2.0", "method": method, "id": request, "params": params}).encode() + b"\n")

    def hear(self, number):
        answer = json.loads(self.answers.readline())
        expect(answer["id"] == number, f"an answer to another: {number}, {answer}")
        return answer.get("result", answer.get("error"))

    def ask(self, method, **params):
        self.say(0, method, **params)
        return self.hear(0)

    def close(self):
        self.answers.close()
        self.socket.close()


@contextlib.contextmanager
def session(scene):
    """A program of which nothing is recorded until somebody asks: the environment in which its session is found, and the path of its
    socket. Who uses it ends it."""
    program, runtime = scene.program(), scene.path("runtime")
    os.makedirs(runtime, mode=0o700)
    environment = dict(os.environ, XDG_RUNTIME_DIR=runtime)
    with Running([scene.contrail, "record", "-o", scene.path("trace"), "--", program, "s", "1"], stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE, text=True, env=environment) as running:
        expect(running.stdout.readline() == "ready\n", "it is not ready")
        folder = os.path.join(runtime, "contrail")
        yield environment, wait_for("the session", lambda: [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".sock")])[0]
        running.wait(60)


def ends_in(scene):
    """What the trace says of the calls' ends, as those who waited for them heard it."""
    return {(call[0], call[1], call[3], call[4], call[5]) for call in scene.calls(scene.path("trace"))}


def ends_of(told):
    return {(call["tid"], call["fn"], call["first_step"], call["steps"], call["outcome"]) for call in told}


def refuse_to_wait(one):
    for wrong in ({"number": 39}, {"number": 40}, {"number": 2**32 - 1}, {"number": 32}):
        expect("no itrace of number" in one.ask("itrace.wait", **wrong)["message"], f"{wrong}")
    for wrong in ({}, {"number": -1}, {"number": "32"}, {"number": 32, "timeout": -5}, {"number": 32, "after": 1.5}, {"number": 2**32},
                  {"number": 32, "timeout": 2**31}, {"number": 32, "often": 1}):
        expect(one.ask("itrace.wait", **wrong)["code"] == -32602, f"{wrong}")


def tell_each_end(one, two):
    """To one that asks again and again, and to one that waits for all of them; the calls."""
    number = one.ask("itrace.open", function="leaf", calls=5)["number"]
    two.say(7, "itrace.wait", number=number)
    told, answer = [], {"reason": "calls"}
    while answer["reason"] == "calls":
        answer = one.ask("itrace.wait", number=number, after=len(told))
        expect(answer["calls"] or answer["reason"] == "done", f"nothing has ended, and yet: {answer}")
        told += answer["calls"]
    expect(answer["reason"] == "done" and [call["call"] for call in told] == [1, 2, 3, 4, 5], f"{answer['reason']} {told}")
    expect(all("leaf" in call["function"] and call["outcome"] == "returned" and call["steps"] > 0 for call in told), f"{told}")
    answer = two.hear(7)
    expect(answer["reason"] == "done" and answer["calls"] == told, f"the other one: {answer}")
    expect(one.ask("itrace.wait", number=number)["reason"] == "done", "it is done already")
    return told


def tell_of_none(one, two, gone):
    """None of these is called: nothing comes before the time is over, and others are answered meanwhile."""
    never = one.ask("itrace.open", function="leaf", condition="arg1 == 123456789", calls=1)["number"]
    begin = time.monotonic()
    one.say(1, "itrace.wait", number=never, timeout=1000)
    one.say(2, "status")
    two.say(3, "itrace.wait", number=never)
    gone.say(4, "itrace.wait", number=never)
    expect(one.hear(2)["state"] == "running", "who waits holds others")
    gone.close()
    answer = one.hear(1)
    expect(answer["reason"] == "timeout" and not answer["calls"] and time.monotonic() - begin >= 0.99, f"{answer}")
    expect(one.ask("itrace.wait", number=never, timeout=0)["reason"] == "timeout", "it does not wait at all")
    one.ask("itrace.close", number=never)
    expect(two.hear(3)["reason"] == "closed", "it has been closed")
    probed = {"function": "leaf", "condition": "arg1 == 123456789", "calls": 1}
    expect(one.ask("itrace.open", **probed)["number"] == never, "its place is used again")
    two.say(8, "itrace.wait", number=never)
    two.ask("status")
    one.socket.sendall(json.dumps([{"jsonrpc": "2.0", "method": method, "id": 1, "params": params} for method, params in
                                   (("itrace.close", {"number": never}), ("itrace.open", probed))]).encode() + b"\n")
    expect(json.loads(one.answers.readline())[1]["result"]["number"] == never and two.hear(8)["reason"] == "replaced", "another has its number")
    one.ask("itrace.close", number=never)


def wait_by_the_command(scene, one, environment):
    """Ctrl-C closes what it has opened."""
    done = scene.execute(scene.contrail, "itrace", "--session", "-F", "leaf", "-n", "3", env=environment)
    expect(done.returncode == 0 and "3 calls of leaf" in done.stderr and "steps --live" in done.stderr, f"{done}")
    done = scene.execute(scene.contrail, "itrace", "--session", "-F", "leaf", "--when", "arg1 == 123456789", "--for", "300ms", env=environment)
    expect(done.returncode == 0 and "0 calls of leaf" in done.stderr, f"{done}")
    for words, status in (("-F leaf none-1", 3), ("-F leaf -o x", 2), ("-n 3", 2), ("-F leaf --when x", 1), ("-F leaf a b", 2), ("-F leaf -n 1000001", 2)):
        done = scene.execute(scene.contrail, "itrace", "--session", *words.split(), env=environment)
        expect(done.returncode == status and done.stderr.count("\n") <= 2, f"{words}: {done}")
    with Running([scene.contrail, "itrace", "--session", "-F", "leaf", "--when", "arg1 == 5555555"], stderr=subprocess.PIPE, text=True,
                 env=environment) as command:
        def rows(state):
            return [row for row in one.ask("itrace.list")["itrace"] if row.get("condition") == "arg1 == 5555555" and row["state"] == state]
        wait_for("the command", lambda: rows("open"))
        command.send_signal(signal.SIGINT)
        expect(command.wait(60) == 0 and "0 calls of leaf" in command.stderr.read() and rows("closed"), "Ctrl-C")


def tell_the_end(scene, one, two, environment):
    """While three wait."""
    last = one.ask("itrace.open", function="leaf", condition="arg1 == 123456789", calls=1)["number"]
    one.say(5, "itrace.wait", number=last)
    two.say(6, "itrace.wait", number=last, timeout=600000)
    with Running([scene.contrail, "itrace", "--session", "-F", "leaf", "--when", "arg1 == 77777777"], stderr=subprocess.PIPE, text=True,
                 env=environment) as command:
        wait_for("the command", lambda: len(two.ask("itrace.list")["itrace"]) > 1 and
                 any(row.get("condition") == "arg1 == 77777777" for row in two.ask("itrace.list")["itrace"]))
        scene.execute(scene.contrail, "stop", "--end", env=environment)
        for client, request in ((one, 5), (two, 6)):
            answer = client.hear(request)
            expect(answer["reason"] == "ended" and last in [row["number"] for row in answer["itrace"]], f"the session's end: {answer}")
        expect(command.wait(60) == 0 and "session has ended" in command.stderr.read(), "the command at the session's end")


@case("the ends of calls are told")
def ends_told(scene):
    """itrace.wait: each call's end, several who wait, some who go away, the time, numbers that are none, the session's end; and what
    it says of calls is what the trace says."""
    with session(scene) as (environment, path):
        one, two, gone = Client(path), Client(path), Client(path)
        refuse_to_wait(one)
        told = tell_each_end(one, two)
        tell_of_none(one, two, gone)
        wait_by_the_command(scene, one, environment)
        tell_the_end(scene, one, two, environment)
    one.close(), two.close()
    calls = ends_in(scene)
    expect(ends_of(told) <= calls, f"{told}, and the trace: {calls}")
    expect(len(calls) == 8, f"five and three of the command's: {calls}")


def heard_until(client, is_last):
    """The notifications of a subscription."""
    events = []
    while not events or not is_last(events[-1]):
        line = client.answers.readline()
        expect(line, f"the connection is closed after {events}")
        message = json.loads(line)
        expect(message["method"] == "itrace.event" and "id" not in message, f"{message}")
        events.append(message["params"])
    return events


def pure(events):
    return [{name: value for name, value in event.items() if name != "subscription"} for event in events]


def refuse_to_subscribe(one):
    expect("no itrace of number" in one.ask("itrace.subscribe", number=39)["message"], "there is none")
    for method, wrong in (("itrace.subscribe", {"number": -1}), ("itrace.subscribe", {"number": 2**32}), ("itrace.subscribe", {"of": 1}),
                          ("itrace.unsubscribe", {}), ("itrace.unsubscribe", {"subscription": "1"})):
        expect(one.ask(method, **wrong)["code"] == -32602, f"{method} {wrong}")
    expect("no subscription" in one.ask("itrace.unsubscribe", subscription=1)["message"], "there is none")
    one.socket.sendall(b'[{"jsonrpc": "2.0", "method": "itrace.subscribe", "id": 1}]\n')
    expect("one of a batch" in json.loads(one.answers.readline())[0]["error"]["message"], "in a batch")


def push_each_end(one, every, late, gone):
    """To who asked for these, for all, and to who comes late; the events."""
    number = one.ask("itrace.open", function="leaf", calls=5)["number"]
    own = one.ask("itrace.subscribe", number=number)["subscription"]
    told = heard_until(one, lambda event: event["event"] == "over")
    gone.close()
    expect([event.get("call") for event in told] == [1, 2, 3, 4, 5, None] and told[-1]["reason"] == "done", f"{told}")
    expect(all(event["subscription"] == own and event["number"] == number and "missed" not in event for event in told), f"{told}")
    expect(all("leaf" in event["function"] and event["outcome"] == "returned" and event["steps"] > 0 for event in told[:-1]), f"{told}")
    expect(pure(heard_until(every, lambda event: event["event"] == "over")) == pure(told), "who asked for all has others")
    late.ask("itrace.subscribe", number=number)
    expect(pure(heard_until(late, lambda event: event["event"] == "over")) == pure(told), "who comes late has others")
    expect("no subscription" in one.ask("itrace.unsubscribe", subscription=own)["message"], "it is over")
    return told


def push_closed(one, every, late):
    """Closed, then another in its place; one that is not wanted any more. The number of the place."""
    probed = {"function": "leaf", "condition": "arg1 == 123456789", "calls": 1}
    never = one.ask("itrace.open", **probed)["number"]
    one.ask("itrace.subscribe", number=never)
    unwanted = late.ask("itrace.subscribe", number=never)["subscription"]
    expect(late.ask("itrace.unsubscribe", subscription=unwanted)["itrace"], "it is there")
    one.ask("itrace.close", number=never)
    expect(heard_until(one, lambda event: True)[0]["reason"] == "closed", "it has been closed")
    expect(heard_until(every, lambda event: True)[0]["reason"] == "closed", "it has been closed, for who asked for all")
    expect(one.ask("itrace.open", **probed)["number"] == never, "its place is used again")
    one.ask("itrace.subscribe", number=never)
    one.ask("status")
    return never


def subscribe_by_the_command(scene, every, environment):
    done = scene.execute(scene.contrail, "itrace", "--session", "-F", "leaf", "-n", "3", env=environment)
    lines = done.stdout.splitlines()
    expect(done.returncode == 0 and len(lines) == 3 and all(line.startswith(f"call {i + 1} of ") and line.endswith(", returned") and "steps " in line
                                                            for i, line in enumerate(lines)), f"{done}")
    done = scene.execute(scene.contrail, "itrace", "--session", "-q", "-F", "leaf", "-n", "2", env=environment)
    expect((done.returncode, done.stdout, done.stderr) == (0, "", ""), f"{done}")
    done = scene.execute(scene.contrail, "itrace", "--session", "--json", "-F", "leaf", "-n", "2", env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    expect(done.returncode == 0 and [line.get("call") for line in lines] == [1, 2, None] and lines[2]["reason"] == "done" and
           lines[2]["recorded"] == 2 and lines[2]["steps"] == lines[0]["steps"] + lines[1]["steps"] and done.stderr == "", f"{done}")
    expect(sum(event["event"] == "call" for event in heard_until(every, lambda event: event.get("call") == 2 and
                                                                 event["first_step"] == lines[1]["first_step"])) == 7, "all of them")


@case("the ends of calls are pushed")
def ends_pushed(scene):
    """itrace.subscribe: nobody asks, and yet each call's end comes, once, in order; to who comes late too; until it is over, unwanted,
    or the session's end."""
    with session(scene) as (environment, path):
        one, every, late, gone = (Client(path) for _ in range(4))
        refuse_to_subscribe(one)
        expect(every.ask("itrace.subscribe")["subscription"] > 0 and gone.ask("itrace.subscribe")["subscription"] > 0, "of all")
        told = push_each_end(one, every, late, gone)
        never = push_closed(one, every, late)
        subscribe_by_the_command(scene, every, environment)
        scene.execute(scene.contrail, "stop", "--end", env=environment)
        expect(heard_until(one, lambda event: True)[0]["reason"] == "ended", "the session's end")
        rest = [json.loads(line)["params"] for line in every.answers.read().splitlines()]
        expect([(event["number"], event["reason"]) for event in rest if event["event"] == "over" and event["reason"] == "ended"] == [(never, "ended")], f"{rest}")
        expect(one.answers.read() == late.answers.read() == "", "more comes after the end")
    one.close(), every.close(), late.close()
    calls = ends_in(scene)
    expect(ends_of(told[:-1]) <= calls and len(calls) == 12, f"{told}, and the trace: {calls}")


@case("the library waits for ends")
def library_waits(scene):
    program, driver, trace = scene.program(), scene.path("waits"), scene.path("trace")
    scene.run("cc", "-O1", "-Wall", "-Werror", "-D_GNU_SOURCE", "-o", driver, os.path.join(harness.ROOT, "tests", "itrace", "waits.c"), "-I",
              os.path.join(harness.ROOT, "include"), "-L", scene.build_dir, f"-Wl,-rpath,{os.path.abspath(scene.build_dir)}", "-lcontrail", "-pthread")
    done = scene.execute(driver, trace, program, "s", "1")
    expect((done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), f"{done}")
    expect([call[5] for call in scene.calls(trace)] == ["returned"] * 9, f"{scene.calls(trace)}")


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
