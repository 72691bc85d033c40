# SPDX-License-Identifier: MIT
"""What the lines of `replay --json` amount to, for graph.py and slowest.py: sums by function, caller, callee, path and group.

The sums are made by going through the moments: the time between two events of a thread belongs to the stack that it has
then. With --raw that time is the difference of two timestamps, so that all sums can be compared.
"""
import collections
import json
import os
import re

import harness
from harness import NO_LOADER, expect, parse_lines

ROOT, OTHER, SELF, AWAY, COUNTED = "(root)", "(root of another stack)", "(self)", "(on other stacks)", "(counted only)"
NESTED = ("(folded)", "(other)")
SHARED = {}  # the trace that only is read, and its model


class Sums:
    """calls, total, self, and of how many pieces these are put together: each may be wrong by a nanosecond."""

    def __init__(self):
        self.calls = self.total = self.own = self.pieces = 0

    def check(self, row, what, keys=("calls", "total", "own")):
        names = {"calls": "calls", "total": "total_ns", "own": "self_ns"}
        for key in keys:
            mine, its = getattr(self, key), row[names[key]] or 0
            margin = 0 if key == "calls" else self.pieces + 3
            expect(abs(mine - its) <= margin, f"{what}: {names[key]} is {its}, by the events {mine} (within {margin})")


class Frame:
    def __init__(self, line, function, caller):
        self.function, self.caller, self.enter, self.id = function, caller, line["ts_ns"], line["id"]
        self.before = line.get("entered_before", False)


class Model:
    """What the lines of a replay amount to. A function is (module, name)."""

    def __init__(self):
        self.functions = collections.defaultdict(Sums)
        self.callers = collections.defaultdict(lambda: collections.defaultdict(Sums))
        self.callees = collections.defaultdict(lambda: collections.defaultdict(Sums))
        self.paths = collections.defaultdict(Sums)  # by a tuple of functions, recursions folded
        self.groups = collections.defaultdict(lambda: collections.defaultdict(Sums))
        self.calls = {}  # by id: what the return says
        self.gap = 0
        self.files, self.counted = {}, 0

    def add(self, lines, process):
        threads = collections.defaultdict(list)
        for line in lines:
            if line["kind"] != "warning":
                threads[line["tid"]].append(line)
        for tid, own in threads.items():
            Thread(self, process, tid).run(own)
        return self

    def keys(self, function, process, tid):
        module, name = function
        return {"module": module, "thread": tid, "process": process, "class": class_of(name),
                "file": self.files.get(function, "(not known)")}


def class_of(name):
    """What is before the last ::, without a return type; of names like those of the test's program."""
    name = re.sub("<.*>", "", name.split("(")[0].split(" ")[-1])
    return name.rpartition("::")[0] or "(no class)"


def folded(path):
    """A function that is on the path already goes on from there."""
    out = []
    for function in path:
        if function in out:
            del out[out.index(function) + 1:]
        else:
            out.append(function)
    return tuple(out)


class Thread:
    def __init__(self, model, process, tid):
        self.model, self.process, self.tid = model, process, tid
        self.stacks, self.stack, self.now, self.gap = collections.defaultdict(list), 0, None, None
        self.known_keys = {}

    def frames(self):
        return self.stacks[self.stack]

    def advance(self, line):
        """The time since the last event, with the stack that there was."""
        ticks, self.now = line["ts_ns"] - (self.now if self.now is not None else line["ts_ns"]), line["ts_ns"]
        if self.gap is not None:
            self.model.gap += ticks
            self.gap = None
            return
        model, frames = self.model, self.frames()
        on = [frame.function for frame in frames]
        here, innermost, first = set(on), {function: at for at, function in enumerate(on)}, {}
        for stack in self.stacks.values():  # the outermost of them all is the first that was entered
            for frame in stack:
                if frame.function not in first or frame.order < first[frame.function].order:
                    first[frame.function] = frame
        for function, outermost in first.items():
            self.put(model.functions[function], ticks)
            self.put(model.callers[function][outermost.caller], ticks)
            if function in here:
                at = innermost[function] + 1
                self.put(model.callees[function][on[at] if at < len(on) else SELF], ticks)
            else:
                self.put(model.callees[function][AWAY], ticks)
        for what, key in set().union(*map(self.keys, first)):
            self.put(model.groups[what][key], ticks)
        if frames:
            top = frames[-1]
            for sums in self.about(top):
                sums.own += ticks
                sums.pieces += 1
            model.callees[top.function][SELF].own += ticks
            path = (("(other stacks)",) if self.stack else ()) + folded(on)
            model.paths[path].own += ticks
            for length in range(1, len(path) + 1):
                self.put(model.paths[path[:length]], ticks)
            if len(frames) > 1:
                sums = model.callees[frames[-2].function][top.function]
                sums.own += ticks
                sums.pieces += 1

    def keys(self, function):
        """(what, key) of the groups that it belongs to."""
        known = function, self.model.files.get(function)
        if known not in self.known_keys:
            self.known_keys[known] = tuple(self.model.keys(function, self.process, self.tid).items())
        return self.known_keys[known]

    @staticmethod
    def put(sums, ticks):
        sums.total += ticks
        sums.pieces += 1

    def about(self, frame):
        """The sums that a call counts to, but for paths and callees."""
        model = self.model
        yield model.functions[frame.function]
        yield model.callers[frame.function][frame.caller]
        for what, key in self.keys(frame.function):
            yield model.groups[what][key]

    def enter(self, line, is_point=False, calls=1):
        function = (line["module"], line["name"])
        if "file" in line:
            self.model.files[function] = line["file"]
        frames = self.frames()
        caller = frames[-1].function if frames else OTHER if self.stack else ROOT
        frame = Frame(line, function, caller)
        frame.order = self.order = getattr(self, "order", 0) + 1
        calls = 0 if frame.before else calls
        for sums in self.about(frame):
            sums.calls += calls
        if frames:
            self.model.callees[frames[-1].function][function].calls += calls
        path = (("(other stacks)",) if self.stack else ()) + folded([one.function for one in frames] + [function])
        self.model.paths[path].calls += calls
        if not is_point:
            frames.append(frame)

    def leave(self, line, duration):
        frames = self.stacks[line["stack"]]
        frame = frames.pop()
        self.model.calls[frame.id] = {"function": frame.function, "duration": duration, "ts": frame.enter, "tid": self.tid,
                                      "uncertain": line.get("uncertain", False), "reason": line.get("reason", "returned"),
                                      "before": frame.before}

    def run(self, lines):
        for line in lines:
            kind = line["kind"]
            if kind in ("away", "output", "value", "interval"):
                continue
            if kind == "lost" and self.gap is not None:
                continue
            if kind == "counted":
                self.model.functions[(line["module"], line["name"])].calls += line["calls"]
                continue
            self.advance(line)
            if kind == "enter":
                self.enter(line)
            elif kind == "point":
                self.enter(line, True, line.get("interval", 1))
            elif kind in ("return", "left"):
                if self.stacks[line["stack"]]:
                    self.leave(line, line["duration_ns"])
            elif kind == "tail":
                if "ended" in line:
                    self.leave(dict(line, reason="tail call"), line["duration_ns"])
                self.enter(line)
            elif kind == "switch":
                self.stack = line["stack"]
            elif kind == "exec":
                self.stacks.clear()
                self.stack = 0
            elif kind == "lost":
                self.gap = True


class Scene(harness.Scene):
    def made(self, *words, options=(), mode="full"):
        program = self.compile("programs/graph.cpp", "-O0", "-g", "-pthread", compiler="g++")
        self.record("-q", "--source", "--mode", mode, *(() if self.options.long else NO_LOADER), *options, "--", program, *words)

    def view(self, *words, trace=None, status=0):
        return self.run(self.contrail, *words, trace or self.trace, status=status, timeout=300)

    def json(self, *words, trace=None):
        return json.loads(self.view(*words, "--json", "--raw", trace=trace))

    def raw_lines(self):
        return [line for line in parse_lines(self.view("replay", "--json", "--raw")) if line["kind"] != "warning"]

    def view_graph(self, name):
        return json.loads(self.run(self.contrail, "graph", "--json", "--raw", name, self.trace))

    def shared_model(self):
        """That of a trace of the program that others have made and looked at too: it is only read."""
        if not SHARED:
            self.trace = os.path.join(self.options.top, "shared")
            self.made()
            SHARED[self.trace] = self.model()
        self.trace, = SHARED
        return SHARED[self.trace]

    def model(self, family=False, options=()):
        """Of the trace; of a family with its children."""
        manifest = self.manifest()
        model = Model()
        model.add(parse_lines(self.view("replay", "--json", "--raw", *options)), manifest["pid"])
        for child in manifest.get("children", []) if family else []:
            if child.get("directory"):
                model.add(parse_lines(self.view("replay", "--json", "--raw", trace=os.path.join(self.trace, child["directory"]))),
                          child["pid"])
        return model
