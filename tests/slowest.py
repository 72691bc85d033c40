#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The slowest calls and their trees, against what `replay --json` says of each call.

    tests/slowest.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import re

from graphmodel import Model, Scene
from harness import case, expect, main, parse_lines


class CallsOf:
    """The calls of all processes of a family, by function, from their replays."""

    def __init__(self, scene):
        self.calls, self.first = [], None
        manifest = scene.manifest()
        pids = [manifest["pid"]] + [child["pid"] for child in manifest["children"] if child.get("directory")]
        for order, pid in enumerate(pids):  # with the ids of the family, which a child's own directory has not
            model = Model().add(parse_lines(scene.view("replay", "--json", "--process", str(pid))), pid)
            self.calls += [(call, number, pid, order) for number, call in model.calls.items()]

    def slowest(self, name, count):
        found = [(-call["duration"], order, number, pid) for call, number, pid, order in self.calls
                 if call["function"][1] == name and not call["uncertain"] and call["reason"] not in ("lost", "stack switched")]
        return [(-duration, number, pid) for duration, order, number, pid in sorted(found, key=lambda call: call[0])[:count]]


@case
def slowest_family(scene):
    """The slowest calls of all processes, with their trees; of one of them."""
    scene.made("fork", "6", options=("--follow",))
    mine = CallsOf(scene)
    pids = {pid for _, _, pid, _ in mine.calls}
    expect(len(pids) > 1, f"one process: {pids}")
    seen = set()
    for name, count in (("fib", 40), ("work", 9), ("main", 3), ("catcher", 11)):
        shown = json.loads(scene.view("slowest", "--family", name, "-n", str(count), "--json"))["slowest"]
        its = mine.slowest(name, count)
        expect([call["duration_ns"] for call in shown] == [duration for duration, _, _ in its], f"{name}: {shown}, by the events {its}")
        durations = collections.Counter(duration for duration, _, _ in its)
        by_duration = {duration: (number, pid) for duration, number, pid in its if durations[duration] == 1}
        for call in shown[:-1]:
            expect(by_duration.get(call["duration_ns"], (call["id"], call["pid"])) == (call["id"], call["pid"]), f"{name}: {call}, {its}")
            seen.add(call["pid"])
            expect(call["inside_of"] or call["tree"]["id"] == call["id"], f"{call}")
    expect(len(seen) > 1, f"of one process: {seen}")
    alone = sorted(pids)[-1]
    rows = json.loads(scene.view("slowest", "--family", "--process", str(alone), "fib", "--json"))["slowest"]
    expect({call["pid"] for call in rows} <= {alone}, f"asked for {alone}: {rows}")
    text = scene.view("slowest", "--family", "main")
    expect(all(f"of process {pid}" in text for pid in {pid for _, _, pid in mine.slowest("main", 5)}), text[:3000])
    expect(scene.execute(scene.contrail, "slowest", "--family", "main", scene.trace + "@1..2").returncode == 2, "a piece of a family")


class Calls:
    """The calls of a replay by their ids: duration, function, what each has called."""

    def __init__(self, lines):
        self.known, self.called, self.points = {}, collections.defaultdict(list), collections.defaultdict(collections.Counter)
        tops = collections.defaultdict(list)
        for line in lines:
            stack = tops[line.get("tid"), line.get("stack")]
            if line["kind"] == "tail" and "ended" in line:
                self.end(stack.pop(), line)
            if line["kind"] in ("enter", "tail"):
                stack.append(line["id"])
                self.known[line["id"]] = {"function": (line["module"], line["name"]), "ts": line["ts_ns"], "depth": line["depth"]}
                if line["parent"] is not None:
                    self.called[line["parent"]].append(line["id"])
            elif line["kind"] in ("return", "left") and stack:
                self.end(stack.pop(), line)
            elif line["kind"] == "point" and line["parent"] is not None:
                self.points[line["parent"]][line["module"], line["name"]] += line.get("interval", 1)

    def end(self, number, line):
        self.known[number].update(duration=line["duration_ns"], uncertain=line.get("uncertain", False),
                                  reason="tail call" if line["kind"] == "tail" else line.get("reason", "returned"))

    def inside(self, number):
        """How many, at any depth."""
        todo, count = [number], -1
        while todo:
            number = todo.pop()
            count += 1 + sum(self.points[number].values())
            todo += self.called[number]
        return count

    def slowest(self, name, count, passes=lambda call: True):
        found = [(-call["duration"], call["ts"], number) for number, call in self.known.items()
                 if call["function"][1] == name and passes(call) and not call["uncertain"] and call["reason"] not in ("lost", "stack switched")]
        return [(number, -duration) for duration, _, number in sorted(found)[:count]]

    def check(self, node, least=0):
        """The tree of a call: what has called more than four times is one entry."""
        call, what = self.known[node["id"]], f"the tree of {node['name']} {node['id']}"
        expect(node["duration_ns"] == call["duration"] and node["reason"] == call["reason"], f"{what}: {node}, by the events {call}")
        expect(node["inside"] == self.inside(node["id"]), f"{what}: {node['inside']} calls inside, by the events {self.inside(node['id'])}")
        mine, its = collections.defaultdict(list), collections.defaultdict(list)
        hidden, hidden_ns, points = 0, 0, collections.Counter()
        for number in self.called[node["id"]]:
            inner = self.known[number]
            if inner["duration"] < least:
                hidden, hidden_ns = hidden + 1 + self.inside(number), hidden_ns + inner["duration"]
            else:
                mine[inner["function"]].append(number)
        for entry in node["calls"]:
            if entry["kind"] in ("call", "repetition"):
                its[entry["module"], entry["name"]].append(entry)
            elif entry["kind"] == "point":
                points[entry["module"], entry["name"]] += entry["count"]
        if least:
            hidden += sum(self.points[node["id"]].values())
        else:
            expect(points == self.points[node["id"]], f"{what}: points {points}, by the events {self.points[node['id']]}")
        expect(set(mine) == set(its), f"{what}: has called {set(mine)}, shown are {set(its)}")
        for function, numbers in mine.items():
            entries, durations = its[function], [self.known[number]["duration"] for number in numbers]
            if len(numbers) <= 4:
                expect([entry["id"] for entry in entries] == numbers, f"{what}: calls of {function}: {numbers}, shown {entries}")
                for entry in entries:
                    self.check(entry, least)
                continue
            expect(len(entries) == 1 and entries[0]["kind"] == "repetition", f"{what}: {len(numbers)} calls of {function} are not one entry")
            entry = entries[0]
            expect(entry["count"] == len(numbers) and abs(entry["total_ns"] - sum(durations)) <= len(numbers) and
                   entry["max_ns"] == max(durations) == entry["slowest"]["duration_ns"], f"{what}: {function}: {entry}")
            expect(entry["slowest"]["id"] in numbers, f"{what}: {function}: {entry['slowest']['id']} is none of them")
            self.check(entry["slowest"], least)
        expect(node["hidden"]["calls"] == hidden and abs(node["hidden"]["total_ns"] - hidden_ns) <= hidden, f"{what}: hidden {node['hidden']}, {hidden}")


@case
def slowest(scene):
    """The slowest calls, by their durations in a replay, and their trees."""
    scene.made()
    calls = Calls(scene.lines())
    trees = 0
    for name, count in (("work", 3), ("fib", 20), ("catcher", 7), ("tail_begin", 5), ("in_coroutine", 4), ("ns::boxes(int)", 6),
                        ("__libc_start_main", 5), ("jumper", 2), ("thread(void*)", 1)):
        shown = json.loads(scene.run(scene.contrail, "slowest", name, "-n", str(count), "--json", scene.trace))["slowest"]
        mine = calls.slowest(name, count)
        expect([call["duration_ns"] for call in shown] == [duration for _, duration in mine], f"{name}: {shown}, by the events {mine}")
        found = {call["id"]: calls.known[call["id"]] for call in shown}  # of calls that took equally long it may be any
        expect(len(found) == len(shown) and all(found[call["id"]]["duration"] == call["duration_ns"] and found[call["id"]]["function"][1] == name
                                                for call in shown), f"{name}: {shown} {mine}")
        for call in shown:
            if call["inside_of"] is None:
                calls.check(call["tree"])
                trees += 1
            else:
                expect(call["tree"] is None and call["inside_of"] in [other["id"] for other in shown], f"{call}")
    return f"{trees} trees"


@case(some=("dear", 1))
def slowest_of_some(scene):
    """The slowest of the calls that took so long at most, that ended so, or at some depths."""
    scene.made()
    calls = Calls(scene.lines())
    shown = 0
    for name in ("fib", "leaf", "work", "thrower", "tail_begin"):
        durations = sorted(call["duration"] for call in calls.known.values() if call["function"][1] == name)
        middle = max(durations[len(durations) // 2], 1)
        for words, passes in ((("--max-duration", f"{middle}ns"), lambda call: call["duration"] <= middle),
                              (("--reason", "returned"), lambda call: call["reason"] == "returned"),
                              (("--reason", "exception,tail-call"), lambda call: call["reason"] in ("exception", "tail call")),
                              (("--depth", "4..6"), lambda call: 4 <= call["depth"] <= 6),
                              (("--depth", "..7", "--max-duration", f"{middle}ns"), lambda call: call["depth"] <= 7 and call["duration"] <= middle)):
            mine = calls.slowest(name, 7, passes)
            text = scene.run(scene.contrail, "slowest", name, "-n", "7", "--json", *words, scene.trace, status=0 if mine else 1)
            its = json.loads(text)
            expect([call["duration_ns"] for call in its["slowest"]] == [duration for _, duration in mine], f"{name} {words}: {its}, by the events {mine}")
            expect(all(passes(calls.known[call["id"]]) for call in its["slowest"]) and its["filter"].startswith("calls"), f"{name} {words}: {its}")
            for call in its["slowest"]:
                if call["tree"] is not None:
                    calls.check(call["tree"])
                    shown += 1
    text = scene.run(scene.contrail, "slowest", "fib", "--max-duration", "1ms", scene.trace)
    expect(text.startswith("looked at: calls of at most 1.000 ms\n"), text[:200])
    for words, part in ((("--type", "call"), "unknown option"), (("--reason", "foo"), "is no end of a call")):
        result = scene.execute(scene.contrail, "slowest", "fib", *words, scene.trace)
        expect(result.returncode == 2 and part in result.stderr, f"{words}: {result}")
    return f"{shown} trees"


@case(some=("dear", 1))
def slowest_indexed(scene):
    """Found by the index: what is shown is the same as without."""
    scene.made("120")
    names = ("work", "fib", "catcher", "tail_begin", "in_coroutine", "resume", "ns::boxes(int)", "thread(void*)", "jumper", "main", "leaf", "sleeps", "**")[::scene.rounds(4, 1)]
    choices = [(name, *options) for name in names for options in (("-n", "7"), ("-n", "300", "--depth", "3"))]
    show = lambda words: [scene.view("slowest", *words, *form) for form in (((), ("--json",)) if words[0] == "**" else (("--json",),))]
    before = {words: show(words) for words in choices}
    index = os.path.join(scene.trace, "spans.cti")
    expect(not os.path.exists(index), "there is an index already")
    scene.run(scene.contrail, "sql", scene.trace, "SELECT count(*) FROM spans")
    expect(os.path.exists(index), "no index was made")
    for words in choices:
        expect(show(words) == before[words], f"{words}: {show(words)[0][:3000]}\nwithout an index: {before[words][0][:3000]}")
    tid = scene.manifest()["threads"][1]["tid"]
    shown = json.loads(scene.view("slowest", "fib", "--thread", str(tid), "--json"))["slowest"]
    os.remove(index)
    expect(shown == json.loads(scene.view("slowest", "fib", "--thread", str(tid), "--json"))["slowest"], f"of a thread: {shown}")


@case
def slowest_thin(scene):
    """Thin and deep calls are counted; what is off the processor is marked; text has no less than JSON."""
    scene.made("30")
    calls = Calls(scene.lines())
    run = lambda *words: scene.run(scene.contrail, "slowest", *words, scene.trace)
    for call in json.loads(run("work", "--min-duration", "20us", "--json"))["slowest"]:
        calls.check(call["tree"], 20000)
    flat = json.loads(run("work", "--depth", "1", "-n", "1", "--json"))["slowest"][0]["tree"]
    expect([entry["kind"] for entry in flat["calls"] if entry["kind"] == "call"] == [] and flat["hidden"]["calls"] == flat["inside"] > 100, f"{flat}")
    text = run("work", "-n", "1")
    expect(re.search(r"fib\(\) x 3\d, max ", text) and "slowest: fib()" in text, text[:2000])
    expect("calls not shown" in run("work", "--min-duration", "20us"), "hidden calls are not said")
    slept = json.loads(run("sleeps", "--by", "off", "-n", "50", "--json"))["slowest"]
    if slept[0]["off_ns"] != 0:  # the kernel tells
        offs = [call["off_ns"] for call in slept]
        expect(offs == sorted(offs, reverse=True) and all(off >= 200000 for off in offs), f"{offs}")
        expect(all(call["tree"]["duration_ns"] >= call["off_ns"] == call["tree"]["off_ns"] for call in slept), f"{slept[0]}")
        expect("-- off: blocked --" in run("sleeps", "--by", "off"), "not marked")
        cpu = json.loads(run("sleeps", "--time", "cpu", "-n", "50", "--json"))["slowest"]
        expect(max(call["duration_ns"] for call in cpu) < max(call["duration_ns"] for call in json.loads(run("sleeps", "--json"))["slowest"]), f"{cpu[0]}")
    result = scene.execute(scene.contrail, "slowest", "wrok", "--json", scene.trace)
    expect(result.returncode == 1 and "work" in result.stderr, f"{result}")
    expect(scene.execute(scene.contrail, "slowest").returncode == 2, "without a function")


@case
def slowest_values(scene):
    """Arguments and results, where they were recorded."""
    scene.record("-q", "--detail", "open", "--", "/bin/cat", "/etc/hostname")
    text = scene.run(scene.contrail, "slowest", "open", scene.trace)
    expect('"/etc/hostname", flags=O_RDONLY) = ' in text, text)
    tree = json.loads(scene.run(scene.contrail, "slowest", "open", "--json", scene.trace))["slowest"][0]["tree"]
    line = next(line for line in scene.lines() if line["kind"] == "enter" and line["id"] == tree["id"])
    expect(tree["args"] == line["args"] and tree["arguments"] == line["arguments"] and "result" in tree, f"{tree}, {line}")


@case
def slowest_enter_only(scene):
    """Calls of which only the enter is in the trace are none of the slowest; that they are there is said, by the index too."""
    source = scene.write("few.c", "__attribute__((noinline)) int few(int n) { __asm__ volatile(\"\" ::: \"memory\"); return n ^ 12345; }\n"
                         "int main(void) { int sum = 0; for (int i = 0; i < 300000; i++) sum |= few(i); return sum == 0; }\n")
    scene.record("-q", "--mode", "light", "--no-sampling", "--trace", "few", "--", scene.compile(source, "-O1"))
    tid = str(scene.manifest()["threads"][0]["tid"])
    for form in ((), ("--thread", tid)):
        for turn in ("without an index", "with one"):
            result = scene.execute(scene.contrail, "slowest", "few", *form, scene.trace)
            expect(result.returncode == 0 and result.stderr == "" and "not among them: 300,000 calls" in result.stdout, f"{form} {turn}: {result}")
            shown = json.loads(scene.view("slowest", "few", "--json", *form))
            expect(shown["slowest"] == [] and shown["enter_only"] == 300000, f"{form} {turn}: {shown}")
            scene.run(scene.contrail, "sql", scene.trace, "SELECT count(*) FROM spans")
        os.remove(os.path.join(scene.trace, "spans.cti"))
    result = scene.execute(scene.contrail, "slowest", "main", scene.trace)
    expect("calls of which" not in result.stdout and "nothing" in result.stderr, f"main: {result}")


@case
def slowest_numbers(scene):
    """Values as replay has them, to the letter, in calls inside of others, too; no member twice."""
    source = scene.write("tenth.c", "__attribute__((noinline)) double tenth(double x) { __asm__ volatile(\"\"); return x / 10; }\n"
                         "__attribute__((noinline)) double around(double x) { double y = tenth(x); __asm__ volatile(\"\"); return y; }\n"
                         "int main(void) { return around(1.0) + around(0.3) > 1; }\n")
    scene.record("-q", "--detail", "--", scene.compile(source, "-g", "-O1"))
    wanted = [re.search(r'"result":.*(?=})', line)[0] for line in scene.run(scene.contrail, "replay", "--json", scene.trace).splitlines()
              if '"kind":"return"' in line and re.search('"name":"(tenth|around)"', line)]
    text = scene.run(scene.contrail, "slowest", "around", "--json", scene.trace)
    expect(len(wanted) == 4 and '"value":0.1}' in wanted[0] and all(values in text for values in wanted), f"{wanted}, {text}")
    json.loads(text, object_pairs_hook=lambda pairs: expect(len(dict(pairs)) == len(pairs), f"{pairs}") or dict(pairs))


if __name__ == "__main__":
    main(__doc__, Scene)
