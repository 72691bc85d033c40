#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail check: its answers against the numbers of the report, its status, and what it cannot answer.

    tests/check.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import operator
import os
import shutil
import signal
import subprocess

import losses
from harness import case, expect, main, parse_lines, wait_for

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define OWN __attribute__((noinline, noclone))
static inline int twice(int x) { return x * 2; }
OWN int work(int n) { int s = 0; for (int i = 0; i < n; i++) { s += i ^ (s << 1); } return s; }
OWN int helper(int n) { int s = work(n) + twice(n); __asm__ volatile(""); return s; }
OWN void never(void) { puts("never"); }
OWN void ends(int how) { if (how == 1) { exit(7); } if (how == 2) { abort(); } __asm__ volatile(""); }
int main(int argc, char **argv)
{
  int s = 0;
  for (int i = 0; i < 300; i++) { s += helper(i); }
  if (argc > 5) { never(); }
  ends(argc > 1 ? atoi(argv[1]) : 0);
  return s == 1;
}
"""
FIELDS = {"calls": "calls", "open": "unfinished", "total": "total_ns", "self": "self_ns", "min": "min_ns", "avg": "avg_ns",
          "p50": "p50_ns", "p95": "p95_ns", "p99": "p99_ns", "max": "max_ns"}
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


class Scene(losses.Scene):
    def made(self, *words):
        """A trace of the program above."""
        self.compile(self.write("program.c", PROGRAM), "-O2", "-g")
        shutil.rmtree(self.trace, ignore_errors=True)
        self.execute(self.contrail, "record", "-q", "-o", self.trace, *words)
        return self.trace

    def check(self, *checks, status, options=()):
        """The answers, by check."""
        out = self.run(self.contrail, "check", "--json", *options, self.trace, *checks, status=status)
        answers = json.loads(out)
        by_result = [answer["result"] for answer in answers["checks"]]
        expect([by_result.count(name) for name in ("holds", "fails", "unanswered")] ==
               [answers[name] for name in ("holds", "fails", "unanswered")], "the counts are not those of the lines")
        return {answer["check"]: answer for answer in answers["checks"]}

    def program_trace(self, *words):
        return self.made(*words, "--", self.path("program"))


@case
def as_the_report(scene):
    """Every field and operator of every function, below, at and above its value."""
    scene.program_trace()
    rows = [row for name, row in scene.rows("--module", "program").items() if name.isidentifier()]
    checks = {}
    for row in rows:
        for field, key in FIELDS.items():
            for sign, holds in OPERATORS.items():
                for number in (row[key] - 1, row[key], row[key] + 1) if row[key] is not None else ():
                    if number >= 0:
                        unit = "" if field in ("calls", "open") else "ns"
                        checks[f"program!{row['name']}.{field} {sign} {number}{unit}"] = (holds(row[key], number), row[key])
    expect(len(checks) > 300, f"only {len(checks)} checks")
    answers = scene.check(*checks, status=1)
    for text, (holds, value) in checks.items():
        expect(answers[text]["result"] == ("holds" if holds else "fails"), f"{answers[text]}, the report has {value}")
        expect(answers[text]["value"] == value and answers[text]["bound"] == "exact", f"{answers[text]}, the report has {value}")
    return f"{len(checks)} checks"


@case
def statuses(scene):
    """0, 1, 2 as documented, a failure before what cannot be answered; 125 for what is no check."""
    scene.program_trace()
    good, bad, unknown = "work.calls == 300", "work.calls < 300", "nothing_like_it.calls < 3"
    for checks, status in (([good], 0), ([bad], 1), ([unknown], 2), ([good, bad], 1), ([good, unknown], 2),
                           ([unknown, bad], 1), ([bad, unknown, good], 1)):
        scene.check(*checks, status=status)
        shown = scene.run(scene.contrail, "check", scene.trace, *checks, status=status)
        expect(len(shown.splitlines()) == len(checks), f"{checks}: {shown}")
        expect(scene.run(scene.contrail, "check", "--quiet", scene.trace, *checks, status=status) == "", "--quiet is not")
    for words in ([], [scene.trace], [scene.trace, "work"], [scene.trace, "work.p99 < 3"], [scene.path("none"), good],
                  ["--from-file", scene.path("none"), scene.trace], ["--no-such-option", scene.trace, good],
                  ["--thread", "1", scene.trace, good], [scene.trace, "[.calls < 3"]):
        result = scene.execute(scene.contrail, "check", *words)
        expect(result.returncode == 125 and result.stdout == "" and result.stderr != "", f"{words}: {result}")


@case
def several_functions(scene):
    """All have to hold, the worst is shown; those that were never called have no durations, and 0 calls."""
    scene.program_trace()
    rows = scene.rows("--module", "program")
    answers = scene.check("program!w*.calls == 300", "program![hw]*.total < 1ns", "program!*.p99 < 100s", "program!never.calls == 0",
                          "program!never.total == 0", "program!never.max < 1s", "program!*e*.calls >= 1", status=1)
    slowest = max(("work", "helper"), key=lambda name: rows[name]["total_ns"])
    answer = answers["program![hw]*.total < 1ns"]
    expect((answer["result"], answer["function"], answer["matched"], answer["value"]) ==
           ("fails", slowest, 2, rows[slowest]["total_ns"]), answer)
    expect(answers["program!*.p99 < 100s"]["result"] == "holds", answers)
    expect(answers["program!never.calls == 0"]["result"] == answers["program!never.total == 0"]["result"] == "holds", answers)
    answer = answers["program!never.max < 1s"]
    expect(answer["result"] == "unanswered" and answer["why"] == "it was never called", answer)
    answer = answers["program!*e*.calls >= 1"]
    expect(answer["result"] == "fails" and answer["value"] == 0, answer)


@case
def not_there(scene):
    """Names that are like it; that it was inlined; neither."""
    scene.program_trace()
    answers = scene.check("hepler.calls > 1", "twice.calls > 1", "program!tw*.calls > 1", "libc.so.6!twice.calls > 1",
                          "qqqqqqqqqq.calls > 1", status=2)
    expect(answers["hepler.calls > 1"]["likely"][0] == "helper", answers)
    for text in ("twice.calls > 1", "program!tw*.calls > 1"):
        expect("twice was inlined" in answers[text]["why"] and answers[text]["result"] == "unanswered", answers[text])
    for text in ("libc.so.6!twice.calls > 1", "qqqqqqqqqq.calls > 1"):
        expect("inlined" not in answers[text]["why"], answers[text])
    shown = scene.run(scene.contrail, "check", scene.trace, "hepler.calls > 1", status=2)
    expect("perhaps helper" in shown, shown)


@case
def ends(scene):
    """Exit status, crash, and what was open then."""
    scene.program_trace()
    scene.check("no crash", "exit == 0", "exit < 1", "no open main", "no losses", status=0)
    scene.made("--", scene.path("program"), "1")
    answers = scene.check("no crash", "exit == 7", "no open work", "exit != 7", status=1)
    expect([answer["result"] for answer in answers.values()] == ["holds", "holds", "holds", "fails"], answers)
    scene.made("--", scene.path("program"), "2")
    answers = scene.check("no open work", "no crash", "exit == 0", "exit != 0", "no open main", "program!ends.open == 1", status=1)
    expect([answer["result"] for answer in answers.values()] == ["holds", "fails", "fails", "fails", "fails", "holds"], answers)


@case
def one_process(scene):
    """Of those that were followed: its own calls and its own end."""
    scene.program_trace()
    script = scene.write("two", f"#!/bin/sh\n{scene.path('program')} 1\n{scene.path('program')}\nexit 3\n", 0o755)
    scene.made("--follow", "--trace", "work", "--", script)
    children = [child for child in scene.info()["children"] if child["exit"]]
    pids = {child["exit"].get("status"): child["pid"] for child in children}
    expect(set(pids) >= {0, 7}, str(children))
    scene.check("exit == 3", "no crash", status=0)
    for status, pid in pids.items():
        if status in (0, 7):
            scene.check(f"exit == {status}", "work.calls == 300", status=0, options=("--process", str(pid)))
    result = scene.execute(scene.contrail, "check", "--process", "7777777", scene.trace, "no crash")
    expect(result.returncode == 125 and "no process" in result.stderr, str(result))


@case
def from_a_file(scene):
    scene.program_trace()
    file = scene.write("checks", "# the program's\nwork.calls == 300   # each round\n\nno losses\n")
    answers = scene.check("helper.calls == 300", status=0, options=("--from-file", file))
    expect(list(answers) == ["work.calls == 300", "no losses", "helper.calls == 300"], answers)
    bad = scene.write("bad", "no losses\nwork.calls\n")
    result = scene.execute(scene.contrail, "check", "-f", bad, scene.trace)
    expect(result.returncode == 125 and "line 2" in result.stderr, result)
    result = scene.execute(scene.contrail, "check", "-f", file, scene.trace)
    expect(result.returncode == 0 and "-f is --follow in other commands; here use --from-file" in result.stderr, result)


@case
def with_losses(scene):
    """What was seen is a bound: it answers where it is enough."""
    scene.stopped(0.5, "--ring-size", "4", "--no-wait", rounds=8 * losses.ROUNDS)
    dropped = scene.manifest()["dropped_total"]
    expect(dropped > 0, "nothing was lost")
    answers = scene.check("leaf.calls > 3", "leaf.calls <= 3", "leaf.calls < 100G", "leaf.p99 < 100s", "leaf.total > 1ns",
                          "no losses", status=1)
    expect([answer["result"] for answer in answers.values()] ==
           ["holds", "fails", "unanswered", "unanswered", "unanswered", "fails"], answers)
    expect(answers["no losses"]["value"] >= dropped and answers["leaf.calls > 3"]["bound"] == "at least", answers)
    scene.check("leaf.calls > 3", "leaf.calls < 100G", status=2)


@case
def sampled(scene):
    """Light hooks have no times, and sampled ones no exact numbers."""
    scene.program_trace("--mode", "light", "--trace", "work", "--trace", "helper", "--no-sampling")
    answers = scene.check("work.calls == 300", "work.total < 1s", "work.max < 1s", "no open work", status=2)
    expect([answer["result"] for answer in answers.values()] == ["holds", "unanswered", "unanswered", "unanswered"], answers)
    scene.program_trace("--mode", "light", "--trace", "work", "--trace", "helper", "--sample", "16")
    answer = scene.check("work.calls < 1M", status=2)["work.calls < 1M"]
    expect("sampled" in answer["why"], answer)


@case
def while_it_goes_on(scene):
    """A recording that has not ended: what was seen of it is a bound."""
    scene.write("slow.c", "#include <unistd.h>\n"
                "__attribute__((noinline)) long leaf(long n) { __asm__ volatile(\"\" ::: \"memory\"); return n + 3; }\n"
                "int main(void) { for (long n = 0;; n = leaf(n)) { usleep(100); } }\n")
    scene.run("gcc", "-O2", "-o", scene.path("slow"), scene.path("slow.c"))
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "leaf", "--", scene.path("slow")])
    try:
        wait_for("calls", lambda: os.path.exists(scene.trace) and
                 scene.execute(scene.contrail, "check", "-q", scene.trace, "leaf.calls > 3").returncode == 0)
        answers = scene.check("leaf.calls > 3", "leaf.calls < 100G", "exit == 0", status=2)
        expect([answer["result"] for answer in answers.values()] == ["holds", "unanswered", "unanswered"], answers)
    finally:
        recorder.send_signal(signal.SIGTERM)
        recorder.wait(60)



@case
def family(scene):
    """Checks of all processes together: the sums of the events of each, the report's values, and what became of the children."""
    program = scene.compile("programs/graph.cpp", "-O0", "-g", "-pthread", compiler="g++")
    scene.record("-q", "--follow", "--", program, "fork", "6")
    manifest = scene.manifest()
    traces = [scene.trace] + [os.path.join(scene.trace, child["directory"]) for child in manifest["children"]]
    calls = collections.Counter()
    for trace in traces:
        lines = parse_lines(scene.run(scene.contrail, "replay", "--json", trace))
        calls.update(line["name"] for line in lines
                     if line["kind"] in ("enter", "tail") and line["module"] == "graph" and not line.get("entered_before"))
    alone = {row["name"]: row for row in json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"]}
    rows = {row["name"]: row for row in json.loads(scene.run(scene.contrail, "report", "--family", "--json", scene.trace))["functions"]
            if row["module"] == "graph" and row["name"].isidentifier()}
    checks = {}
    for name, row in rows.items():
        for field, key in FIELDS.items():
            if row[key] is not None and key in row:
                unit = "" if field in ("calls", "open") else "ns"
                checks[f"graph!{name}.{field} == {row[key]}{unit}"] = True
                checks[f"graph!{name}.{field} > {row[key]}{unit}"] = False
    counted = {f"graph!{name}.calls == {calls[name]}": True for name in rows if calls[name]}
    expect(len(checks) > 100 and len(counted) > 10, f"{len(checks)} and {len(counted)} checks")
    expect(sum(alone[name]["calls"] != calls[name] for name in rows if name in alone) > 3, "the children called nothing")
    answers = scene.check(*checks, *counted, "no losses", "no crash", "exit == 0", status=1, options=("--family",))
    for text, holds in {**checks, **counted, "no losses": True, "no crash": True, "exit == 0": True}.items():
        expect(answers[text]["result"] == ("holds" if holds else "fails"), f"{answers[text]}")
    scene.write("abort.c", "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
                           "int main(void) { if (fork() == 0) abort(); wait(NULL); return 3; }\n")
    scene.run("gcc", "-o", scene.path("abort"), scene.path("abort.c"))
    shutil.rmtree(scene.trace)
    scene.execute(scene.contrail, "record", "-q", "--follow", "-o", scene.trace, "--", scene.path("abort"))
    pid = scene.manifest()["children"][0]["pid"]
    expect(scene.check("no crash", "exit == 3", status=0)["no crash"]["result"] == "holds", "of the first one")
    answers = scene.check("no crash", "exit == 3", "nothing_like_it.calls == 0", status=1, options=("--family",))
    expect(answers["no crash"]["result"] == "fails" and f"process {pid}: signal 6" in answers["no crash"]["why"], f"{answers}")
    expect(answers["exit == 3"]["result"] == "holds" and answers["nothing_like_it.calls == 0"]["result"] == "unanswered", f"{answers}")
    status = scene.execute(scene.contrail, "check", "--family", scene.trace + "@0..1", "no crash").returncode
    expect(status == 125, f"a piece of a family: status {status}")


if __name__ == "__main__":
    main(__doc__, Scene)
