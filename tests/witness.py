# SPDX-License-Identifier: MIT
"""The trace of a fixture's -witness variant against what its functions told fixtures/lib/witness.c while it was
recorded: thread by thread the same frames in the same order, each with the same caller among these functions at the same
depth, and ended by a return in the trace when and only when the function came to its end (or was on its way out by an
exception, when compilers tell of the end too)."""
import collections
import json
import os
import re
import struct
import subprocess

# The witness itself is not recorded: its calls are in none of its own lists.
RECORD = ["--exclude", "__cyg_profile_func_*", "--exclude", "witness_*"]
EVENT = struct.Struct("<QQQ")
LINE = re.compile(rb'^\{"ts_ns":\d+,"tid":(\d+),"id":[^,]*,"parent":[^,]*,"depth":(\d+),"stack":(\d+),"kind":"(\w+)",'
                  rb'"name":(?:null|("(?:[^"\\]|\\.)*")),'
                  rb'"module":(?:null|"[^"]*"),"duration_ns":(?:null|\d+)(?:,"ended":\{[^}]*\})?'
                  rb'(?:,"reason":"([^"]*)")?[^\n]*\}$', re.M)


class Frame:
    def __init__(self, names, depth, parent):
        self.names, self.depth, self.parent = names, depth, parent
        self.end = None  # "return", the reason of an UNWOUND, or None: open


def functions_of(program):
    """Names of each address above the program's start, demangled."""
    names = collections.defaultdict(set)
    start = 0
    for line in subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = line[:16], line[17:18], line[19:]
        if name == "__executable_start":
            start = int(address, 16)
        elif kind in "tTwWi" and address.strip():
            names[int(address, 16)].add(name)
    return {address - start: found for address, found in names.items()}


class Hearing:
    """One thread as the witness heard it. A frame ends when it tells so; or when a frame of the same stack is entered
    whose caller is further out: the caller is known by its frame pointer, or, when a function without one was between, by
    where its frame lies."""

    def __init__(self):
        self.frames = []
        self.stacks = {0: [], 2: []}  # of (frame pointer, index into frames), outermost first
        self.places = {0: {}, 2: {}}  # of frame pointers in these

    def cut(self, which, count):
        stack, places = self.stacks[which], self.places[which]
        while len(stack) > count:
            del places[stack.pop()[0]]

    def hear(self, names, pointer, word):
        which, caller = word & 2, word & ~3
        stack, places = self.stacks[which], self.places[which]
        if word & 1:
            place = places.get(pointer)
            if place is None or self.frames[stack[place][1]].names != names:
                return f"the witness heard of the end of {sorted(names)[0]}, which is not open"
            self.frames[stack[place][1]].end = "return"
            self.cut(which, place)
            return None
        if caller in places:
            self.cut(which, places[caller] + 1)
        while stack and stack[-1][0] <= pointer:
            self.cut(which, len(stack) - 1)
        self.frames.append(Frame(names, len(stack), stack[-1][1] if stack else None))
        places[pointer] = len(stack)
        stack.append((pointer, len(self.frames) - 1))
        return None


def read_witness(path, functions):
    """tid: frames; and a fault, or None."""
    with open(path, "rb") as file:
        data = file.read()
    start, at, threads = struct.unpack_from("<Q", data)[0], 8, {}
    while at < len(data):
        tid, count = struct.unpack_from("<QQ", data, at)
        at += 16
        hearing = threads.setdefault(tid, Hearing())
        for function, pointer, word in EVENT.iter_unpack(data[at:at + count * EVENT.size]):
            fault = hearing.hear(functions.get(function - start, {"?"}), pointer, word)
            if fault:
                return {}, fault
        at += count * EVENT.size
    return {tid: hearing.frames for tid, hearing in threads.items()}, None


def rows_of(contrail, trace, module):
    """(tid, depth, kind, name, stack, reason) of each line of the replay that is of this module or a switch of stacks."""
    replay = subprocess.Popen([contrail, "replay", "--json", trace], stdout=subprocess.PIPE)
    lines = subprocess.run(["grep", "-F", "-e", f'"module":"{module}"', "-e", '"kind":"switch"'], stdin=replay.stdout,
                           stdout=subprocess.PIPE, env=dict(os.environ, LC_ALL="C"), check=False).stdout
    replay.stdout.close()
    if replay.wait():
        raise ValueError(f"contrail replay: status {replay.returncode}")
    texts = {}
    for found in LINE.finditer(lines):
        tid, depth, stack, kind, name, reason = found.groups()
        if name is not None and name not in texts:
            texts[name] = json.loads(name)
        yield tid, int(depth), kind, texts.get(name), stack, reason


def read_trace(contrail, trace, module, names):
    """tid: frames, of the functions in names. Depths are those of the trace, less what it shows between."""
    frames = collections.defaultdict(list)
    stacks = collections.defaultdict(list)  # of (depth, index), by tid and stack
    current = collections.defaultdict(bytes)
    sets = {name: {name} for name in names}
    for tid, depth, kind, name, number, reason in rows_of(contrail, trace, module):
        if kind == b"switch":
            current[tid] = number
            continue
        if name not in sets:
            continue
        stack, of_thread = stacks[tid, current[tid] or b"0"], frames[int(tid)]
        if kind == b"enter":
            if stack and stack[-1][0] >= depth:
                return {}, f"{name} begins at depth {depth}, where a frame is still open"
            of_thread.append(Frame(sets[name], len(stack), stack[-1][1] if stack else None))
            stack.append((depth, len(of_thread) - 1))
        elif kind in (b"return", b"left"):
            # At the end of the trace those of all stacks are reported, without a switch.
            owner = stack if stack and of_thread[stack[-1][1]].names == sets[name] else None
            if owner is None and reason in (b"exit", b"thread exit", b"longjmp"):
                owner = next((s for (t, _), s in stacks.items()
                              if t == tid and s and of_thread[s[-1][1]].names == sets[name]), None)
            if owner is None or owner[-1][0] != depth:
                return {}, f"{name} ends at depth {depth}, where it is not open"
            of_thread[owner.pop()[1]].end = reason.decode() if reason else "return"
        else:
            return {}, f"{name}: {kind.decode()} in a program whose calls are all plain ones"
    return frames, None


def difference(heard, seen):
    if heard.depth != seen.depth or heard.parent != seen.parent:
        return f"is at depth {seen.depth} in the trace, below frame {seen.parent}; in truth {heard.depth}, {heard.parent}"
    if heard.end == "return" and seen.end not in ("return", "exception", "cancellation", "pthread_exit"):
        return f"came to its end and is {seen.end or 'open'} in the trace"
    if heard.end is None and seen.end == "return":
        return "returned in the trace and did not come to its end in truth"
    return None


def compare(contrail, trace, path, program):
    """(faults, number of frames compared)."""
    functions = functions_of(program)
    try:
        heard, fault = read_witness(path, functions)
    except OSError as error:
        return [f"the witness has told nothing: {error}"], 0
    names = {name for frames in heard.values() for frame in frames for name in frame.names}
    seen, fault = (None, fault) if fault else read_trace(contrail, trace, program.rpartition("/")[2], names)
    if fault:
        return [fault], 0
    compared = 0
    for tid, frames in heard.items():
        mine = seen.get(tid, [])
        for i, (a, b) in enumerate(zip(frames, mine)):
            if a.names.isdisjoint(b.names):
                return [f"thread {tid}, frame {i}: {b.names} in the trace, {a.names} in truth"], compared
            what = difference(a, b)
            if what:
                return [f"thread {tid}, frame {i}, {sorted(a.names)[0]}: {what}"], compared
            compared += 1
        if len(frames) != len(mine):
            return [f"thread {tid}: {len(mine)} frames in the trace, {len(frames)} in truth"], compared
    return ([] if compared else ["the witness has reported no frames"]), compared
