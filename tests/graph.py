#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Callers and callees, groups and the graph, against sums that are made of `replay --json` (graphmodel.py).

    tests/graph.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

from graphmodel import AWAY, SELF, Frame, Scene, Sums, Thread, folded
from harness import Running, Skip, case, expect, main, need, wait_for
from processes import state_of


def key_of(row):
    return (row["module"], row["name"]) if row.get("kind", "function") == "function" else row["name"]


def check_edges(scene, model, which, *options, pattern="**"):
    """Each row of --callers or --callees is that of the model, and none is missing."""
    mine = model.callers if which == "callers" else model.callees
    shown = scene.json("report", f"--{which}", pattern, *options)["functions"]
    expect(shown, f"--{which}: no function")
    names = collections.Counter((function["module"], function["name"]) for function in scene.json("report")["functions"])
    for function in shown:
        key = (function["module"], function["name"])
        if names[key] > 1:
            continue
        model.functions[key].check(function, f"{which} of {key}")
        rows = {key_of(row): row for row in function[which]}
        twins = {other for other in rows if names[other] > 1}
        expect(twins or len(rows) == len(function[which]), f"{which} of {key}: a row twice")
        for other, sums in mine[key].items():
            if other in (AWAY, SELF) and other not in rows:
                expect(sums.total <= sums.pieces + 3, f"{which} of {key}: {other} is missing, {sums.total} ns")
                continue
            expect(other in rows, f"{which} of {key}: {other} is missing")
            if other in twins:
                continue
            sums.check(rows[other], f"{which} of {key}, {other}", ("total",) if other in (AWAY, SELF) else ("calls", "total", "own"))
        expect(set(rows) <= set(mine[key]) | {SELF}, f"{which} of {key}: {set(rows) - set(mine[key])} is not by the events")
        total = sum(row["total_ns"] or 0 for row in function[which])
        expect(abs(total - (function["total_ns"] or 0)) <= len(rows) + 1, f"{which} of {key}: rows have {total}, it {function['total_ns']}")
        if which == "callers":
            own = sum(row["self_ns"] or 0 for row in function[which])
            expect(abs(own - (function["self_ns"] or 0)) <= len(rows) + 1, f"callers of {key}: selves {own}, its {function['self_ns']}")
            off = sum(row["off_ns"] or 0 for row in function[which])
            expect(abs(off - (function["off_ns"] or 0)) <= len(rows) + 1, f"callers of {key}: off {off}, its {function['off_ns']}")
    return len(shown)


def check_groups(scene, model, *options, whats=("module", "class", "thread", "process", "file")):
    for what in whats:
        shown = scene.json("report", "--by", what, *options)["groups"]
        rows = {}
        for row in shown:
            key = row["tid"] if what == "thread" and "tid" in row else row["pid"] if what == "process" and "pid" in row else row["name"]
            rows[os.path.basename(key) if what == "module" else key] = row
        gap = rows.pop("(events lost)", {"self_ns": 0, "total_ns": 0})
        expect(abs(gap["self_ns"] - model.gap) <= 1000, f"by {what}: {gap['self_ns']} ns are lost, by the events {model.gap}")
        mine = {key: sums for key, sums in model.groups[what].items() if sums.calls or sums.total}
        for key, sums in mine.items():
            expect(key in rows, f"by {what}: {key!r} is missing of {sorted(rows)}")
            sums.check(rows[key], f"by {what}: {key}")
        if not any(sums.own for sums in mine.values()):
            expect(all(row["self_percent"] is None and row["self_ns"] is None for row in shown), f"by {what}: times without any: {shown}")
            continue
        percent = sum(row["self_percent"] for row in shown)
        expect(abs(percent - 100) < 0.001, f"by {what}: {percent} % in all")


@case(some=("dear", 2))
def callers(scene):
    """All callers of all functions: threads, coroutines, exceptions, recursions, tail calls."""
    model = scene.shared_model()
    count = check_edges(scene, model, "callers")
    keys = ("module", "name", "calls", "total_ns", "self_ns", "off_ns")
    mine = sorted(json.dumps([row[key] for key in keys]) for row in scene.json("report")["functions"]
                  if row["calls"] or row["total_ns"])  # others have returns without their calls alone
    its = sorted(json.dumps([row[key] for key in keys]) for row in scene.json("report", "--callers", "**")["functions"])
    expect(mine == its, f"not as in the report: {[row for row in its if row not in mine][:5]}")
    leaf = scene.json("report", "--callers", "leaf")["functions"]
    expect(len(leaf) == 1 and {row["name"] for row in leaf[0]["callers"]} >= {"fib", "twice", "ping", "tail_begin", "tail_end", "thrower",
                                                                              "jumper", "catcher", "sleeps", "resumes", "ns::Box::set(int)"},
           f"callers of leaf: {leaf}")
    return f"{count} functions"


@case
def callees(scene):
    """All callees, and what a function has of its total while another stack is on."""
    model = scene.shared_model()
    count = check_edges(scene, model, "callees")
    fib = scene.json("report", "--callees", "fib")["functions"][0]["callees"]
    rows = {row["name"]: row for row in fib}
    expect(rows["fib"]["total_ns"] == 0 and rows["fib"]["calls"] > 100 and rows[SELF]["self_ns"] > 0, f"{fib}")
    resume = {row["name"]: row for row in scene.json("report", "--callees", "resume")["functions"][0]["callees"]}
    expect(AWAY in resume, f"resume has no time on other stacks: {resume}")
    return f"{count} functions"


@case
def lines_of_stacks(scene):
    """Each line of a replay names its stack: what begins or ends on another one than before comes after a switch, but for what the
    exit ends, and on each stack depths and parents are those of its open calls."""
    scene.shared_model()
    stacks, current, switches = collections.defaultdict(list), {}, 0
    for line in scene.lines():
        kind, key = line["kind"], (line["tid"], line["stack"])
        if kind == "switch":
            current[line["tid"]] = line["stack"]
            switches += 1
            continue
        if kind not in ("enter", "tail", "return", "left"):
            continue
        ends = kind == "left" and line["reason"] in ("exit", "thread exit")
        expect(ends or line["stack"] == current.get(line["tid"], 0), f"no switch before {line}")
        mine = stacks[key]
        if kind == "enter":
            expect(line["depth"] == len(mine) and line["parent"] == (mine[-1] if mine else None), f"{line} on {mine}")
            mine.append(line["id"])
        elif kind == "tail":
            mine[-1] = line["id"]
        else:
            expect(mine and mine[-1] == line["id"], f"{line} on {mine}")
            mine.pop()
    expect(switches >= 2 and len(stacks) >= 3, f"{switches} switches, {len(stacks)} stacks")
    return f"{switches} switches, {len(stacks)} stacks"


@case
def groups(scene):
    """By module, class, thread, process and file."""
    check_groups(scene, scene.shared_model(), whats=("module", "thread", "process", "file"))
    scene.trace = scene.path("trace")
    scene.made(options=("--trace", "graph!"))
    check_groups(scene, scene.model())
    names = {row["name"] for row in scene.json("report", "--by", "class")["groups"]}
    expect({"ns", "ns::Box", "(no class)"} <= names and not any(name.startswith("ns::Box ") for name in names), f"classes: {names}")


@case
def points(scene):
    """Light hooks: calls without times."""
    scene.made(mode="light", options=("--no-sampling", "--trace", "graph!"))
    model = scene.model()
    check_edges(scene, model, "callers")
    check_groups(scene, model, whats=("module", "thread"))
    rows = scene.json("report", "--callees", "leaf")["functions"]
    expect(rows[0]["calls"] == scene.json("report", "--function", "leaf")["functions"][0]["calls"] > 0, f"{rows}")


@case
def sampled(scene):
    """Light hooks that are called all the time: one event stands for many calls."""
    program = scene.compile("programs/losses.c", "-O2", "-g", "-pthread")
    scene.record("-q", "--mode", "light", "--sample", "16", "--trace", "leaf", "--trace", "pair", "--no-args", "--", program, "100000")
    model = scene.model()
    row = scene.json("report", "--function", "leaf")["functions"][0]
    expect(row["sampled"] and row["calls"] > row["recorded"], f"nothing was sampled: {row}")
    check_edges(scene, model, "callers")
    check_groups(scene, model, whats=("module", "thread"))
    nodes = {node["name"]: node for node in scene.json("graph")["graph"]}
    expect(nodes["leaf"]["calls"] == row["calls"] == model.functions[row["module"], "leaf"].calls, f"{nodes}, {row}")
    expect(nodes["leaf"]["total_ns"] is None and sum(node["percent"] for node in nodes.values()) > 99.9, f"{nodes}")


@case
def family(scene):
    """With children; and one of them alone."""
    scene.made("fork", "6", options=("--follow",))
    model = scene.model(family=True)
    check_edges(scene, model, "callers", "--family", pattern="graph!")
    check_edges(scene, model, "callees", "--family", pattern="graph!")
    check_groups(scene, model, "--family", whats=("module", "process"))
    pids = [child["pid"] for child in scene.manifest()["children"]]
    rows = scene.json("report", "--by", "process", "--family", "--process", str(pids[0]))["groups"]
    expect([row["pid"] for row in rows] == pids[:1], f"{rows}, asked for {pids[0]}")


@case
def processors(scene):
    """What is shown does not depend on how many processors read, nor on when they are done."""
    scene.made("40")
    views = (("report",), ("report", "--callers", "**"), ("report", "--callees", "**"), ("report", "--by", "class"), ("report", "--by", "file"),
             ("report", "--by", "thread"), ("report", "--by", "process"), ("graph",), ("graph", "--per-thread"), ("graph", "fib"),
             ("graph", "--paths", "40"), ("slowest", "fib", "-n", "100"), ("slowest", "**", "-n", "1000", "--depth", "1"),
             ("slowest", "--by", "off", "**"))
    need("taskset")
    several = sorted(os.sched_getaffinity(0))
    if len(several) < 2:
        raise Skip("one processor")
    for words in random.sample(views, scene.rounds(9, len(views))):
        for options in (("--json",), ()):
            alone = scene.run("taskset", "-c", str(several[0]), scene.contrail, *words, *options, scene.trace)
            for _ in range(scene.rounds(2, 4)):
                both = scene.run(scene.contrail, *words, *options, scene.trace)
                expect(both == alone, f"{words}: differs on {len(several)} processors:\n{both[:2000]}\n{alone[:2000]}")


@case
def windows(scene):
    """A piece of the trace, and a thread."""
    whole = next(call for call in scene.shared_model().calls.values() if call["function"][1] == "main")
    options = ("--from", f"{(whole['ts'] + 0.3 * whole['duration']) / 1e9:.9f}", "--to",
               f"{(whole['ts'] + 0.7 * whole['duration']) / 1e9:.9f}")
    model = scene.model(options=options)
    check_edges(scene, model, "callers", *options, pattern="graph!")
    check_groups(scene, model, *options, whats=("module",))
    tid = scene.manifest()["threads"][1]["tid"]
    check_edges(scene, scene.model(options=("--thread", str(tid))), "callees", "--thread", str(tid))


def paths_of(tree, above=()):
    """All nodes of a graph by their path."""
    found = []
    for node in tree:
        if node["name"] == "(folded)":
            continue
        path = above + ((node["name"] if node["module"] is None else (node["module"], node["name"])),)
        found += [(path, node)] + paths_of(node["children"], path)
    return found


def check_graph(mine, shown):
    """Each path with its sums; functions of one name in one place are left out, with what is below them. Totals of some calls have
    what others took inside."""
    nodes = paths_of(shown["graph"])
    times = collections.Counter(path for path, _ in nodes)
    twice = [path for path, count in times.items() if count > 1]
    seen = set()
    for path, node in nodes:
        if path == ("(events lost)",) or any(path[:len(other)] == other for other in twice):
            continue
        expect(path in mine, f"the path {path} is not by the events")
        mine[path].check(node, f"graph: {path}")
        seen.add(path)
        total = node["self_ns"] + sum(child["total_ns"] for child in node["children"])
        margin = len(node["children"]) + 2
        expect(total <= node["total_ns"] + margin and ("filter" in shown or node["total_ns"] <= total + margin), f"{path}: self and children have {total}: {node['total_ns']}")
    missing = [path for path, sums in mine.items() if path not in seen and sums.calls and
               not any(path[:len(other)] == other for other in twice)]
    expect(not missing, f"{len(missing)} paths are missing, {missing[:3]}")
    roots = sum(node["total_ns"] for node in shown["graph"])
    expect(abs(roots - shown["total_ns"]) <= len(shown["graph"]) + 1 and len(nodes) == shown["paths"], f"{roots}, {shown['total_ns']}")
    return len(nodes) - len(twice)


@case(some=("dear", 2))
def graph(scene):
    """All paths; selves of a thread sum up to its roots' totals."""
    scene.made(options=("--trace", "graph!"))
    model = scene.model()
    check_graph(model.paths, scene.json("graph"))
    model = scene.shared_model()
    count = check_graph(model.paths, scene.json("graph"))
    lines = scene.raw_lines()
    for name in ("fib", "pong", "work"):
        check_graph(limited(model, lines, lambda call, depth: True, (name,)), scene.view_graph(name))
    threads = scene.json("graph", "--per-thread")["graph"]
    groups = {row["tid"]: row for row in scene.json("report", "--by", "thread")["groups"]}
    for thread in threads:
        row = groups[thread["tid"]]
        expect(abs(thread["total_ns"] - row["self_ns"]) <= row["calls"], f"{thread['total_ns']}, by thread {row}")
    return f"{count} paths"


class Limited(Thread):
    """The paths of the calls that pass: a moment belongs to the innermost of them on the stack, if it is at or below the focus."""

    def passes(self, frame):
        return self.model.passes(self.model.calls.get(frame.id), frame.depth)

    def put_path(self, frames):
        """Of the path that ends with these frames; None: it is not shown."""
        on, focus = [frame.function for frame in frames], self.model.focus
        first = next((at for at, (_, name) in enumerate(on) if not focus or name in focus), None)
        last = next((at for at in range(len(on) - 1, -1, -1) if self.passes(frames[at])), None)
        if first is None or last is None or last < first:
            return None, None
        return (("(other stacks)",) if self.stack and not focus else ()) + folded(on[first:last + 1]), last == len(on) - 1

    def advance(self, line):
        ticks, self.now = line["ts_ns"] - (self.now if self.now is not None else line["ts_ns"]), line["ts_ns"]
        if self.gap is not None:
            self.gap = None
            return
        path, is_own = self.put_path(self.frames())
        for length in range(1, len(path or ()) + 1):
            self.put(self.model.limited[path[:length]], ticks)
        if path and is_own:
            self.model.limited[path].own += ticks

    def enter(self, line, is_point=False, calls=1):
        frame = Frame(line, (line["module"], line["name"]), None)
        frame.depth = line["depth"]
        if is_point:
            self.model.calls[frame.id] = {"duration": None, "reason": "enter only"}
        self.frames().append(frame)
        path, is_own = self.put_path(self.frames())
        if path and is_own and not frame.before:
            self.model.limited[path].calls += calls
        if is_point:
            self.frames().pop()

    def leave(self, line, duration):
        if self.stacks[line["stack"]]:
            self.stacks[line["stack"]].pop()


def limited(model, lines, passes, focus=()):
    """The paths of the calls that pass."""
    model.limited, model.passes, model.focus = collections.defaultdict(Sums), passes, set(focus)
    threads = collections.defaultdict(list)
    for line in lines:
        threads[line["tid"]].append(line)
    for tid, own in threads.items():
        Limited(model, None, tid).run(own)
    return model.limited


@case(some=("dear", 2))
def graph_of_some_calls(scene):
    """With durations, depths and reasons: calls that pass have all of their time, others only what is of these."""
    scene.made("8")
    model, lines = scene.model(), scene.raw_lines()
    durations = sorted(call["duration"] for call in model.calls.values())
    low, high = (durations[len(durations) * share // 100] for share in (70, 95))
    tid = max(line["tid"] for line in lines)
    of_thread = [line for line in lines if line["tid"] == tid]
    paths = 0

    def took(call, least=0, most=1 << 62):
        return call["duration"] is not None and least <= call["duration"] <= most

    def reason(*names):
        return lambda call, depth: call["reason"] in names
    kinds = ((("--min-duration", f"{low}ns"), lambda call, depth: took(call, low)),
             (("--max-duration", f"{low}ns"), lambda call, depth: took(call, 0, low)),
             (("--min-duration", f"{low}ns", "--max-duration", f"{high}ns"), lambda call, depth: took(call, low, high)),
             (("--depth", "2..4"), lambda call, depth: 2 <= depth <= 4),
             (("--depth", "3..", "--min-duration", f"{low}ns"), lambda call, depth: depth >= 3 and took(call, low)),
             (("--reason", "exception,longjmp"), reason("exception", "longjmp")), (("--reason", "tail-call"), reason("tail call")))
    for words, passes in random.sample(kinds, scene.rounds(3, len(kinds))):
        known = lambda call, depth, passes=passes: call is not None and passes(call, depth)
        shown = scene.json("graph", *words)
        paths += check_graph(limited(model, lines, known), shown)
        expect(shown["filter"].startswith("calls ") and shown["paths"] > 0, f"{words}: {shown['filter']}, {shown['paths']} paths")
        focused = json.loads(scene.execute(scene.contrail, "graph", "--json", "--raw", *words, "fib", scene.trace).stdout)
        check_graph(limited(model, lines, known, ("fib",)), focused)
        check_graph(limited(model, of_thread, known), scene.json("graph", *words, "--thread", str(tid)))
    few, whole = (scene.json("graph", "--min-duration", f"{low}ns", *more) for more in (("--paths", "50"), ()))
    expect(few["folded"] > 0 and abs(few["total_ns"] - whole["total_ns"]) <= 2, f"few paths: {few['total_ns']}, {whole['total_ns']} ns")
    text = scene.view("graph", "--min-duration", f"{low}ns", "--depth", "2")
    expect(text.startswith("counted: calls of at least ") and " more\n" in text, text[:500])
    for words, part in ((("--type", "call"), "unknown option"), (("--depth", "5..2"), "'5..2' is no depth"), (("--depth", "x"), "of levels")):
        result = scene.execute(scene.contrail, "graph", *words, scene.trace)
        expect(result.returncode == 2 and part in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result}")
    result = scene.execute(scene.contrail, "graph", "--json", "--min-duration", "1h", scene.trace)
    expect(result.returncode == 1 and "nothing passes the filters" in result.stderr, f"{result}")
    return f"{paths} paths"


@case
def graph_of_some_points(scene):
    """Without times: of the calls that have no end."""
    scene.made(mode="light", options=("--no-sampling", "--trace", "graph!"))
    lines = scene.raw_lines()
    want = collections.Counter(line["name"] for line in lines if line["kind"] == "point" and 0 <= line["depth"] <= 2)
    got = collections.Counter()
    for path, node in paths_of(scene.json("graph", "--reason", "enter-only", "--depth", "..2")["graph"]):
        got[path[-1][1]] += node["calls"]
    expect(want and +got == want, f"{got}, by the events {want}")


@case
def graph_folds(scene):
    """Few paths are kept: what is folded is in the sums, and is said; thin and deep paths are put together."""
    scene.made()
    whole, few = scene.json("graph"), scene.json("graph", "--paths", "50")
    expect(few["folded"] > 100 and few["paths"] < 150 < whole["paths"], f"{few['folded']} folded, {few['paths']} paths of {whole['paths']}")
    expect(abs(few["total_ns"] - whole["total_ns"]) <= 2, f"{few['total_ns']} ns of {whole['total_ns']}")
    calls = [sum(node["calls"] for _, node in paths_of(shown["graph"])) for shown in (whole, few)]
    expect(calls[0] == calls[1], f"calls: {calls}")
    expect("(other)" in json.dumps(few) and "there were more paths than" in scene.view("graph", "--paths", "50"), "not said")
    heaviest = sorted((node["total_ns"] for _, node in paths_of(whole["graph"])), reverse=True)
    for limit in (1, 7, 40, 10000):
        some = paths_of(scene.json("graph", "--limit", str(limit))["graph"])
        expect([path for path, _ in some] == [path for path, _ in paths_of(whole["graph"]) if path in dict(some)], f"--limit {limit}: {some}")
        expect(sorted((node["total_ns"] for _, node in some), reverse=True) == heaviest[:limit], f"--limit {limit}: {some}")
        expect(all(path[:-1] in dict(some) for path, _ in some if len(path) > 1), f"--limit {limit}: what is above is missing")
    expect("2 of " in scene.view("graph", "--limit", "2", "--min-share", "0") and
           scene.view("graph", "--limit", "0") == scene.view("graph"), "--limit as text")
    thin = scene.json("graph", "--min-share", "5%")
    total = sum(node["total_ns"] for node in thin["graph"])
    expect(abs(total - thin["total_ns"]) <= len(thin["graph"]) + 1 and "(folded)" in json.dumps(thin), f"{thin['graph']}")
    text = scene.view("graph", "--depth", "1", "--min-share", "0")
    expect(len(text.splitlines()) < 60 and "more" in text, text)


@case
def graph_of_children(scene):
    """The processes of a family, as one tree."""
    scene.made("fork", "6", options=("--follow", "--trace", "graph!"))
    check_graph(scene.model(family=True).paths, scene.json("graph", "--family"))


QUESTIONS = (("graph", "--min-share", "0", "--depth", "0"), ("graph", "--per-thread", "--source"), ("graph", "--paths", "40", "--min-share", "0"),
             ("graph", "-n", "5"), ("report", "--callers", "**", "--limit", "0"), ("report", "--callees", "**", "--limit", "0"),
             *(("report", "--by", what, "--limit", "0") for what in ("function", "module", "file", "thread", "process", "class")),
             ("report", "--by", "module", "--sort", "off", "--module", "graph"), ("graph", "--module", "libc*"))
BLOCK_FILE_HEADER, BLOCK_HEADER = 64, 128  # of a thread's events (docs/format.md)
TREE_BYTES = (144, 176, 152)  # of the threads in spans.cti: where the first begins, how long each is, where in it this is
SUMS_ONLY = 4  # of the flags, at 4: what it has are the sums of a tree that was too large


def trees(trace):
    """How many threads of its index have a calling context tree, how many the sums of one, and how many it has."""
    with open(os.path.join(trace, "spans.cti"), "rb") as file:
        data = file.read()
    first, size, at = TREE_BYTES
    places = [first + i * size for i in range(struct.unpack_from("<I", data, 32)[0])]
    counts = [(struct.unpack_from("<Q", data, place + at)[0], struct.unpack_from("<I", data, place + 4)[0] & SUMS_ONLY) for place in places]
    return sum(count > 0 and not sums for count, sums in counts), sum(count > 0 and sums > 0 for count, sums in counts), len(counts)


def compare_indexed(scene, names=(), options=(), trace=None, nodes=None, keeps=True, status=0, questions=QUESTIONS):
    """What is shown by the index, made at the first question, is what is shown without. The number of answers."""
    trace = trace or scene.trace
    own = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS="0", **({"CONTRAIL_TEST_TREE_NODES": str(nodes)} if nodes else {}))
    never = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS=str(10**15))
    index = os.path.join(trace, "spans.cti")
    asked = [*questions, *(("graph", name) for name in names), *(("report", which, name) for name in names for which in ("--callers", "--callees"))]
    # As text or as JSON, which are made of the same sums; by lot, for each question.
    words = [(scene.contrail, *question, *options, *form, trace) for question in asked for form in random.sample(((), ("--json",)), scene.rounds(1, 2))]
    show = lambda environment: [(result.returncode, result.stdout) for result in (scene.execute(*line, env=environment, timeout=300) for line in words)]
    expect(not os.path.exists(index), "there is an index already")
    without = show(never)
    expect(not os.path.exists(index), "an index was made")
    expect(all(code == status for code, _ in without), f"status: {[(line, code) for line, (code, _) in zip(words, without) if code != status][:3]}")
    for line, its, mine in zip(words, show(own), without):
        expect(its == mine, f"{line[1:]}: {its[0]}\n{its[1][:3000]}\nwithout an index: {mine[0]}\n{mine[1][:3000]}")
    expect(not keeps or sum(trees(trace)[:2]) > 0, "no thread has a tree, or sums of one")
    return len(words)


@case(some=("indexed", 1))
def indexed(scene):
    """Callers, callees, groups and paths by the index: threads, coroutines, exceptions, recursion; of a thread; where trees are too large, and where the index is damaged."""
    scene.made("6")
    index = os.path.join(scene.trace, "spans.cti")
    count = compare_indexed(scene, names=random.sample(("work", "fib", "catcher", "in_coroutine", "leaf", "ns::**", "main"), scene.rounds(4, 7)))
    kept, _, threads = trees(scene.trace)
    edges = scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT * FROM edges ORDER BY caller_id, callee_id, calls")
    tid = scene.manifest()["threads"][1]["tid"]
    for options in random.sample((("--thread", str(tid)), ("--raw",), ("--time", "cpu"), ("--from", "0.001", "--to", "1")), scene.rounds(2, 4)):
        os.remove(index)
        few = tuple(question for question in QUESTIONS if question[:2] != ("report", "--by"))[2:]
        count += compare_indexed(scene, options=options, keeps=False, questions=few + ((("report", "--by", "class"),) if options[0] == "--thread" else ()))
        if not os.path.exists(index):
            with open(index, "wb"):
                pass
    for nodes in (20, 150):
        os.remove(index)
        count += compare_indexed(scene, names=("fib",), nodes=nodes, keeps=False)
        trees_then, sums_then, _ = trees(scene.trace)
        expect(trees_then < kept and trees_then + sums_then == kept, f"with {nodes} nodes: {trees(scene.trace)}")
        again = scene.run(scene.contrail, "sql", "--json", scene.trace, "SELECT * FROM edges ORDER BY caller_id, callee_id, calls")
        expect(again == edges, f"edges without a tree: {again[:2000]}\nwith: {edges[:2000]}")
    os.remove(index)
    shown = scene.run(scene.contrail, "graph", "--json", scene.trace)
    environment = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS="0")
    scene.run(scene.contrail, "graph", scene.trace, env=environment)
    with open(index, "rb") as file:
        data = bytearray(file.read())
    for at in range(len(data) - 300, len(data), 37):  # the trees are at its end
        broken = bytearray(data)
        broken[at] ^= 0x55
        with open(index, "wb") as file:
            file.write(broken)
        again = scene.run(scene.contrail, "graph", "--json", scene.trace, env=environment)
        expect(again == shown, f"the index damaged at {at}: {again[:2000]}")
    return f"{count} answers, trees of {kept} of {threads} threads"


BLOCK_BYTES, STORED_AT = 128, 32  # a block's header, and in it how many bytes are after it (docs/format.md)

SPREAD = r"""
#include <stdlib.h>
static volatile long sum;
long a(long n);
long leaf(long n) { sum += n; return n; }
long b(long n) { sum += n; return n <= 0 ? 1 : (n & 1 ? a(n - 1) : b(n - 1)) + 1; }
long rare(long n) { return leaf(n) + b(n) + 1; }
long a(long n) { if (n == 40) rare(5); sum -= n; return n <= 0 ? 2 : n == 40 ? leaf(n) : (n & 2 ? b(n - 1) : a(n - 2)) + b(n / 2); }
long often(long n) { return leaf(n) + a(n); }
long run(long n) { for (long i = 0; i < n; i++) often(i == n / 2 ? 40 : i % 9); return sum; }
int main(int argc, char **argv) { return run(atol(argv[1])) == 1; }
"""


@case(some=("dear", 2))
def paths_of_a_function_by_sums(scene):
    """`graph FUNCTION` where the index has sums alone: out of their paths, or of those pieces of the trace that have to do with it and of no others."""
    program = scene.compile(scene.write("spread.c", SPREAD), "-O1", "-g", "-fno-inline", "-fno-ipa-cp", "-fno-optimize-sibling-calls")
    scene.record("-q", "--no-args", "--trace", "spread!", "--", program, "70000")
    names = ("main", "run", "often", "rare", "a", "b", "leaf", "ra*")
    count = compare_indexed(scene, nodes=40, questions=(), names=random.sample(names, scene.rounds(3, len(names))))
    expect(trees(scene.trace)[:2] == (0, 1), f"trees: {trees(scene.trace)}")
    own = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS="0", CONTRAIL_TEST_TREE_NODES="40")
    show = lambda name: scene.execute(scene.contrail, "graph", "--json", name, scene.trace, env=own).stdout
    whole = [show(name) for name in names]
    blocks = [BLOCK_FILE_HEADER]
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    with open(path, "rb") as file:
        data = bytearray(file.read())
    while blocks[-1] < len(data):
        blocks.append(blocks[-1] + BLOCK_HEADER + struct.unpack_from("<I", data, blocks[-1] + 16)[0])
    for tenths in (1, 2, 8):  # blocks far from the only call of rare cannot be read any more
        data[blocks[len(blocks) * tenths // 10] + BLOCK_HEADER + 50] ^= 0x55
    with open(path, "wb") as file:
        file.write(data)
    again = [show(name) for name in names]
    same = [name for name, one, other in zip(names, whole, again) if one == other]
    expect({"main", "run", "often", "rare", "ra*"} <= set(same), f"the same when the trace cannot be read elsewhere: {same} ({len(blocks)} blocks)")
    expect("b" not in same, "nothing was damaged")
    return f"{count} answers"


@case
def child_of_a_second_image(scene):
    """A forked child of a program that has called exec: the ids of the image before are nobody's there. All is as without an index, which has sums only."""
    source = scene.write("second.c", """#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
long a(long n);
long b(long n) { sum += n; return n <= 0 ? 1 : (n & 1 ? a(n - 1) : b(n - 1)) + 1; }
long a(long n) { sum -= n; return n <= 0 ? 2 : (n & 2 ? b(n - 1) : a(n - 2)) + b(n / 2); }
int main(int argc, char **argv) {
  if (argc == 1) return execl(argv[0], argv[0], "again", (char *)0);
  if (fork() == 0) { for (long i = 0; i < 3000; i++) a(i % 12); _exit(0); }
  int status;
  wait(&status);
  return status;
}
""")
    program = scene.compile(source, "-O1", "-g", "-fno-inline", "-fno-ipa-cp", "-fno-optimize-sibling-calls")
    scene.record("-q", "--follow", "--no-args", "--", program)
    [child] = [os.path.join(scene.trace, name) for name in os.listdir(scene.trace) if name.startswith("process-")]
    with open(os.path.join(child, "functions.tsv")) as file:
        first = min(int(line.split("\t")[0]) for line in file if line[0].isdigit())
    expect(first > 0, "the child has ids of the image before")
    count = compare_indexed(scene, nodes=40, questions=(("report",), *(("report", "--by", what) for what in ("module", "class", "file"))), names=("a", "b"), trace=child)
    expect(trees(child)[:2] == (0, 1), f"trees: {trees(child)}")
    return f"{count} answers"


@case(some=("indexed", 1))
def indexed_kinds(scene):
    """The same of sampled hooks, of children that were followed, of deep recursion, of a piece that was cut out, and of a trace that ends in the middle."""
    program = scene.compile("programs/losses.c", "-O2", "-g", "-pthread")
    scene.record("-q", "--mode", "light", "--sample", "16", "--trace", "leaf", "--trace", "pair", "--no-args", "--", program, "100000")
    few = tuple(question for question in QUESTIONS if "graph" not in question[-1] and "libc*" not in question)
    count = compare_indexed(scene, names=("leaf",), questions=few)
    scene.made("fork", "3", options=("--follow",))
    count += compare_indexed(scene, names=("leaf",), options=("--family",))
    program = scene.compile("programs/deep.c", "-O1", "-g")
    scene.record("-q", "--", program)
    count += compare_indexed(scene, keeps=False, questions=few)
    scene.made("12")
    part = scene.path("part")
    scene.run(scene.contrail, "cut", scene.trace, "--from", "0.002", "--to", "10", "-o", part)
    count += compare_indexed(scene, names=("fib",), trace=part, questions=few)
    for bytes_left in (4, 2):
        torn = scene.path(f"torn{bytes_left}")
        shutil.copytree(scene.trace, torn)
        path = os.path.join(torn, "thread_0", "index.ctb")
        os.truncate(path, os.path.getsize(path) * bytes_left // 5)
        status = scene.execute(scene.contrail, "graph", torn).returncode
        count += compare_indexed(scene, names=("fib",), trace=torn, keeps=False, status=status, questions=few)
    return f"{count} answers"


def with_and_without(scene, trace, questions, nodes):
    """What is shown by the index that there is, going on with it, and what is shown without one."""
    index = os.path.join(trace, "spans.cti")
    show = lambda **own: [scene.execute(scene.contrail, *question, trace, env=dict(scene.environment or os.environ, CONTRAIL_TEST_TREE_NODES=nodes, **own)).stdout for question in questions]
    if os.path.exists(index):
        os.rename(index, index + ".kept")
    without = show(CONTRAIL_TEST_INDEX_EVENTS=str(10**15))
    if os.path.exists(index + ".kept"):
        os.rename(index + ".kept", index)
    for question, its, mine in zip(questions, show(CONTRAIL_TEST_INDEX_EVENTS="0"), without):
        expect(its == mine, f"{question}: {its[:3000]}\nwithout an index: {mine[:3000]}")
    return len(questions)


def grow(scene, nodes, has, sizes=(30000, 90000, 200000), questions=QUESTIONS):
    """While it is recorded, and recording stands still; the index goes on with it, and in the end says what a fresh one does."""
    program = scene.compile("programs/graph.cpp", "-O0", "-g", "-pthread", compiler="g++")
    index, count, questions = os.path.join(scene.trace, "spans.cti"), 0, questions[::scene.rounds(4, 1)]
    path = os.path.join(scene.trace, "thread_0", "index.ctb")
    size = lambda: os.path.getsize(path) if os.path.exists(path) else 0
    # Of a small ring: while the recorder stands still it fills, and all of it is in the trace then.
    with Running([scene.contrail, "record", "-q", "-o", scene.trace, "--ring-size", "4", "--", program, "100000"], stdout=subprocess.DEVNULL) as recorder:
        wait_for("the modules", lambda: size() > 0 and "libgcc" in open(os.path.join(scene.trace, "manifest.json"), encoding="utf-8").read())
        first = size()
        for least in sizes[:scene.rounds(2, 3)]:
            wait_for("events", lambda least=least: size() > first + least)
            recorder.send_signal(signal.SIGSTOP)
            wait_for("the recorder stands still", lambda: state_of(recorder.pid) == "T")
            count += with_and_without(scene, scene.trace, questions, nodes)
            expect(os.path.exists(index) and has(trees(scene.trace)), "no tree was kept")
            recorder.send_signal(signal.SIGCONT)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=300)
    show = lambda: [scene.execute(scene.contrail, *question, scene.trace, env=dict(scene.environment or os.environ, CONTRAIL_TEST_TREE_NODES=nodes)).stdout for question in questions]
    grown = show()
    expect(has(trees(scene.trace)), "the tree did not go on")
    os.remove(index)
    count += compare_indexed(scene, questions=questions)
    for question, its, mine in zip(questions, grown, show()):
        expect(its == mine, f"{question}: an index that grew says\n{its[:3000]}\none of the whole\n{mine[:3000]}")
    return f"{count} answers"


@case(alone=True, some=("grow", 1))
def indexed_grows(scene):
    """A calling context tree of a trace that grows."""
    return grow(scene, "250000", lambda kept: kept[0] > 0)


@case(alone=True, some=("grow", 1))
def indexed_sums_grow(scene):
    """The same of sums of one."""
    return grow(scene, "40", lambda kept: kept[1] > 0, (20000, 60000), QUESTIONS[:1] + QUESTIONS[4:8])


@case(some=("dear", 2))
def indexed_regroups(scene):
    """Sums in an index that grows, while the modules and then the source files of functions get known: what was one group is several then."""
    scene.made("400")
    whole, scene.trace = scene.trace, scene.path("grown")
    with open(os.path.join(whole, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    shutil.copytree(whole, scene.trace)
    kept, count = [], 0
    for share, modules, sources in ((0.8, 2, False), (0.85, 100, False), (0.95, 100, True), (1, 100, True)):
        for number in range(3):
            name = os.path.join(f"thread_{number}", "index.ctb")
            shutil.copyfile(os.path.join(whole, name), os.path.join(scene.trace, name))
            os.truncate(os.path.join(scene.trace, name), int(os.path.getsize(os.path.join(whole, name)) * share))
        now = dict(manifest, modules=manifest["modules"][:modules], state="complete" if share == 1 else "recording")
        scene.write("grown/manifest.json", json.dumps(now).encode())
        scene.write("grown/sources.tsv", open(os.path.join(whole, "sources.tsv"), "rb").read() if sources else b"")
        count += with_and_without(scene, scene.trace, [("report", "--by", what, "--limit", "0") for what in ("module", "file", "class")], "40")
        kept.append(trees(scene.trace)[1] if os.path.exists(os.path.join(scene.trace, "spans.cti")) else -1)
    expect(kept == [-1, 3, 3, 3], f"threads with sums, step by step: {kept}")
    return f"{count} answers"


@case
def indexed_folded(scene):
    """Sums whose paths are too many: thin ones are in those around them, no time and no call is missing, and it is said; --paths reads them all."""
    scene.made("12")
    never, index = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS=str(10**15)), os.path.join(scene.trace, "spans.cti")
    words = (scene.contrail, "graph", "--min-share", "0", "--depth", "0", scene.trace)
    exact = scene.run(*words, "--json", env=never)
    kept = dict(scene.environment or os.environ, CONTRAIL_TEST_INDEX_EVENTS="0", CONTRAIL_TEST_TREE_NODES="40", CONTRAIL_TEST_PATHS="60")
    folded = json.loads(scene.run(*words, "--json", env=kept))
    expect(trees(scene.trace)[1] > 0, "no sums were kept")

    def walk(nodes, above=()):
        for node in nodes:
            yield (*above, node["name"]), node
            yield from walk(node["children"], (*above, node["name"]))
    whole, some = list(walk(json.loads(exact)["graph"])), list(walk(folded["graph"]))
    expect(len(some) < len(whole) and any(path[-1] == "(other)" for path, _ in some), f"{len(some)} paths of {len(whole)}")
    expect(folded["folded"] > 0 and "paths than are kept" in scene.run(*words, env=kept), "not said")
    for key, margin in (("calls", 0), ("self_ns", len(whole) + len(some))):
        mine, its = (sum(node[key] or 0 for _, node in nodes) for nodes in (whole, some))
        expect(abs(mine - its) <= margin, f"{key}: {its} in all, {mine} in the whole")
    exactly, its = collections.Counter(), collections.Counter()  # two functions of one name may be called by the same one
    for sums, nodes in ((exactly, whole), (its, some)):
        for path, node in nodes:
            sums[path] += node["total_ns"] + 1
    for path in its:
        expect("(other)" in path or its[path] <= exactly[path] + 1, f"{path}: {its[path]} of {exactly[path]}")
    roots = {path: node["total_ns"] for path, node in whole if len(path) == 1}
    its = {path: node["total_ns"] for path, node in some if len(path) == 1}
    expect(abs(sum(roots.values()) - sum(its.values())) <= len(roots) + len(its), f"roots: {its}, {roots}")
    again = scene.run(*words, "--json", "--paths", "300000", env=kept)
    expect(json.loads(again)["graph"] == json.loads(exact)["graph"] and os.path.exists(index), "with more paths the trace was not read")
    return f"{len(some)} paths of {len(whole)}"


@case(alone=True)
def losses(scene):
    """Lost events are a row of their own where all is shown, and what is left of calls counts the same."""
    program = scene.compile("programs/losses.c", "-O2", "-g", "-pthread")
    recorder = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "leaf", "--trace", "pair", "--no-args",
                                 "--ring-size", "4", "--no-wait", "--", program, "300000"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("events", lambda: os.path.exists(os.path.join(scene.trace, "thread_0", "index.ctb")))
    recorder.send_signal(signal.SIGSTOP)
    time.sleep(0.3)  # it is the gap that is looked at
    recorder.send_signal(signal.SIGCONT)
    recorder.wait(timeout=300)
    model = scene.model()
    expect(model.gap > 0, "nothing was lost")
    check_graph(model.paths, scene.json("graph"))
    check_edges(scene, model, "callers")
    check_edges(scene, model, "callees")
    check_groups(scene, model, whats=("module", "thread"))
    compare_indexed(scene, names=("leaf",), questions=tuple(question for question in QUESTIONS if "graph" not in question[-1] and "libc*" not in question))
    expect("LOST" in scene.view("report", "--by", "module") and "LOST" in scene.view("report", "--callers", "leaf"), "not said")


@case
def usage(scene):
    """What does not go together is said."""
    scene.made("1", options=("--trace", "graph!"))
    for words, text in ((("report", "--callers", "leaf", "--sort", "p99"), "sorted by total"),
                        (("report", "--by", "module", "--min-duration", "1ms"), "sums of all calls"),
                        (("report", "--by", "nothing"), "is none of: function"),
                        (("report", "--callers", "leaf", "--callees", "fib"), "--call")):
        result = scene.execute(scene.contrail, *words, scene.trace)
        expect(result.returncode == 2 and text in result.stderr, f"{words}: {result.returncode} {result.stderr!r}")
    result = scene.execute(scene.contrail, "report", "--callers", "laef", "--json", scene.trace)
    expect(result.returncode == 1 and "leaf" in result.stderr, f"{result}")
    text = scene.view("report", "--callers", "leaf", "--sort", "name", "--limit", "2")
    rows = [line.split()[-1] for line in text.splitlines()[2:4]]
    expect(rows == sorted(rows) and "more; --limit 0" in text, text)


if __name__ == "__main__":
    main(__doc__, Scene)
