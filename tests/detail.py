#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls with detail: registers, results, the stack, against what the program says itself and what gdb sees; with threads,
signals, tail calls, children; what is lost is said; a damaged file.

    tests/detail.py [--filter PATTERN] [--build DIR]
"""
import collections
import os
import random
import re
import struct

import harness
from harness import case, expect, main, need

FUNCTIONS = ("mix", "weigh", "swap", "first")


class Scene(harness.Scene):
    def program(self, *words):
        return self.compile("programs/detail.c", "-g", "-pthread", *(words or ("-O2",)))

    def recorded(self, *options, calls="200", threads="1", more=(), build=()):
        """Records the program: the trace, and what each thread says of its calls."""
        program, trace = self.program(*build), self.path("trace")
        self.execute("rm", "-rf", trace)
        result = self.execute(self.contrail, "record", *options, "-o", trace, "--", program, calls, threads, *more,
                              cwd=self.folder)
        expect(result.returncode == 0 and result.stdout == "done\n", f"{result.returncode} {result.stdout} {result.stderr}")
        self.said = result.stderr
        said = []
        for n in range(int(threads)):
            with open(self.path(f"counts.{n}"), encoding="ascii") as file:
                said.append([line.split() for line in file])
        return trace, said

    def replayed(self, trace, *options):
        result = self.execute(self.contrail, "replay", "--json", *options, trace)
        expect(result.returncode == 0 and result.stderr == "", result.stderr)
        return harness.parse_lines(result.stdout)


def calls_of(lines, names=FUNCTIONS):
    """For each thread its calls of these functions in order: name, detail of the call, results."""
    found, opened = collections.defaultdict(list), collections.defaultdict(list)
    for line in lines:
        key = line["tid"], line["depth"]
        if line["kind"] == "enter" and line["name"] in names:
            call = [line["name"], line.get("detail"), None]
            found[line["tid"]].append(call)
            opened[key] = call
        elif line["kind"] == "tail" and key in opened:
            opened[key].append(line)  # its results are those of the function that took its place
        elif line["kind"] == "return" and key in opened:
            opened.pop(key)[2] = line.get("results")
    return found


def words_of(detail):
    stack = bytes.fromhex(detail["stack"])
    return [value for (value,) in struct.iter_unpack("<Q", stack[:len(stack) // 8 * 8])]


def agrees(call, said, build):
    """Does what was recorded of a call agree with what the program says?"""
    name, detail, results = call[0], call[1], call[2]
    registers = [int(value, 16) for value in detail["registers"]]
    results = [int(value, 16) for value in results]
    given, returned = said[1:said.index("=")], [int(word, 16) for word in said[said.index("=") + 1:]]
    given = [int(word, 16) for word in given]
    if name != said[0]:
        return False
    stack = words_of(detail)
    if stack[0] != int(detail["return_address"], 16):
        return False
    if name == "mix":
        return registers[:6] == given[:6] and stack[1:3] == given[6:] and results[0] == returned[0]
    if name == "weigh":
        vectors = [int(value, 16) for value in detail["vectors"]]
        return vectors[:2] == given[:2] and registers[0] & 0xffffffff == given[2] and results[2] == returned[0]
    if name == "swap":
        return registers[:2] == given and results[:2] == returned
    return registers[:2] == given and results[0] == returned[0]


def check_all(scene, trace, said, build=""):
    found = calls_of(scene.replayed(trace))
    expect(len(found) == len(said), f"{len(found)} threads, not {len(said)}")
    for calls in found.values():
        lines = next(lines for lines in said if lines[0][1] == f"{int(calls[0][1]['registers'][0], 16):x}")
        expect(len(calls) == len(lines), f"{len(calls)} calls, not {len(lines)}")
        for call, line in zip(calls, lines):
            expect(agrees(call, line, build), f"{call} is not {line}")
    return found


@case(some=("dear", 2))
def agrees_with_the_program(scene):
    others = (("-O0",), ("-O3", "-fcf-protection=full"))
    for build in (("-O2",), *random.sample(others, scene.rounds(1, 2))):
        kinds = (("--detail", "all"), ("--detail", "mix", "--detail", "weigh", "--detail", "[sfl]*"))
        for own in kinds if build == ("-O2",) else random.sample(kinds, scene.rounds(1, 2)):
            trace, said = scene.recorded("--vectors", *own, build=build)
            check_all(scene, trace, said)


@case(some=("dear", 2))
def threads_and_signals(scene):
    trace, said = scene.recorded("--vectors", "--trace", "detail!**", "--detail", "detail!**", calls=str(scene.rounds(1500, 3000)), threads="4", more=["signals"])
    check_all(scene, trace, said)
    # A handler may take the place of what says where a record is; nothing else may be missing.
    made = scene.manifest(trace)["detail"]
    expect(made["overwritten"] == made["refused"] == made["no_room"] == 0, made)


def seen_by_gdb(scene, function, shown, result):
    """What gdb prints at 200 random calls of 400, at the first instruction and when the caller has the result."""
    script, before = ["set pagination off", "set confirm off", f"break *{function}", "run 400 1 >/dev/null"], 0
    for at in sorted(random.Random(7).sample(range(400), 200)):
        if at > before:
            script += [f"ignore 1 {at - before - 1}", "continue"]
        before = at
        formats = " ".join(["%lx"] * len(shown))
        script += [f'printf "GDB {formats}\\n", {", ".join(shown)}', "finish", f'printf "FIN %lx\\n", {result}']
    scene.write("script", "\n".join(script + ["kill", ""]))
    done = scene.execute("gdb", "-q", "-nx", "-batch", "-x", scene.path("script"), scene.program(), timeout=300)
    seen = [([int(word, 16) for word in words.split()], int(returned, 16))
            for words, returned in re.findall(r"GDB ([0-9a-f ]+)\n.*?FIN ([0-9a-f]+)", done.stdout, re.S)]
    expect(len(seen) == 200, f"gdb stopped {len(seen)} times: {done.stdout[-1000:]} {done.stderr[-500:]}")
    return seen


@case(some=("dear", 2))
def as_gdb_sees_them(scene):
    need("gdb")
    trace, _ = scene.recorded("--detail", "mix", "--detail", "weigh", "--vectors", calls="400")
    calls = next(iter(calls_of(scene.replayed(trace)).values()))
    mixed = {int(call[1]["registers"][0], 16): call for call in calls if call[0] == "mix"}
    registers = ["$rdi", "$rsi", "$rdx", "$rcx", "$r8", "$r9", "*(long *)($rsp + 8)", "*(long *)($rsp + 16)"]
    for given, returned in seen_by_gdb(scene, "mix", registers, "$rax"):
        call = mixed[given[0]]
        recorded = [int(value, 16) for value in call[1]["registers"][:6]] + words_of(call[1])[1:3]
        expect(recorded == given and int(call[2][0], 16) == returned, f"{call} is not {given} = {returned}")
    weighed = {int(call[1]["vectors"][0], 16): call for call in calls if call[0] == "weigh"}
    vectors = ["$xmm0.v2_int64[0]", "$xmm1.v2_int64[0]", "$edi & 0xffffffff"]
    for given, returned in seen_by_gdb(scene, "weigh", vectors, "$xmm0.v2_int64[0]"):
        call = weighed[given[0]]
        recorded = [int(value, 16) for value in call[1]["vectors"][:2]] + [int(call[1]["registers"][0], 16) & 0xffffffff]
        expect(recorded == given and int(call[2][2], 16) == returned, f"{call} is not {given} = {returned}")


@case(some=("dear", 2))
def every_call_and_return(scene):
    """As many records as the trace has calls and returns of these functions; no more of the stack than there is."""
    for stack in ("0", *random.sample(("8", "64"), scene.rounds(1, 2)), "512"):
        trace, _ = scene.recorded("--detail", "all", "--stack", stack, calls="50", threads="3")
        lines = scene.replayed(trace)
        records = sum(("detail" in line) + ("results" in line) for line in lines)
        full = sum(line["kind"] in ("enter", "tail") and "detail" in line for line in lines)
        expect(records == scene.manifest(trace)["detail"]["records"], f"{records} of {scene.manifest(trace)['detail']}")
        without = [line["name"] for line in lines if line["kind"] == "enter" and "detail" not in line]
        expect(not without and full > 1000, f"without detail: {without[:10]}")
        longest = max(len(line["detail"]["stack"]) // 2 for line in lines if "detail" in line)
        expect(longest == int(stack), f"{longest} bytes of the stack, not {stack}")


@case
def hooks_as_many(scene):
    """The longer trampolines find room for all functions, whatever is recorded."""
    def hooked(*options):
        trace, _ = scene.recorded(*options, calls="1")
        return {module["path"]: module["hooked"] for module in scene.manifest(trace)["modules"]}
    expected = hooked()
    for options in (("--detail", "all"), ("--detail", "all", "--vectors", "--stack", "512"), ("--detail", "all", "--stack", "0")):
        expect(hooked(*options) == expected, f"{options}: {hooked(*options)}, not {expected}")


@case
def only_what_was_asked_for(scene):
    trace, _ = scene.recorded("--detail", "mix", "--trace", "weigh")
    lines = scene.replayed(trace)
    expect({line["name"] for line in lines if "detail" in line} == {"mix"}, "detail of others")
    expect({line["name"] for line in lines} <= {"mix", "weigh", None}, "others are recorded")
    text = scene.run(scene.contrail, "replay", "--limit", "4", trace)
    expect(re.search(r"mix\(a=-?\d+, b=-?\d+, .*, h=-?\d+\) (= -?\d+;|\{)", text), text)  # the last two from the stack
    trace, _ = scene.recorded()
    expect(not os.path.exists(os.path.join(trace, "thread_0", "detail.ctd")), "a file of detail without being asked")
    expect("detail" not in scene.manifest(trace), "detail in the manifest")


@case
def children_have_theirs(scene):
    script = scene.write("children", "#!/bin/sh\n./detail 50 1 >/dev/null\n(./detail 20 1)\n", 0o755)
    program = scene.program()
    os.link(program, scene.path("detail")) if not os.path.exists(scene.path("detail")) else None
    result = scene.execute(scene.contrail, "record", "--follow", "--detail", "mix", "-o", scene.path("trace"), "--", script,
                           cwd=scene.folder)
    expect(result.returncode == 0, result.stderr)
    counts = []
    for name in sorted(os.listdir(scene.path("trace"))):
        if name.startswith("process-"):
            made = scene.manifest(scene.path("trace", name)).get("detail", {})
            counts.append(made.get("records"))
    expect(100 in counts and 40 in counts, counts)


@case
def returns_without_a_call(scene):
    """A forked child returns from frames of its parent's: these returns have no record, and nothing is said to make no sense."""
    scene.run(scene.contrail, "record", "-q", "--follow", "--detail", "all", "-o", scene.path("trace"), "--", "/bin/sh", "-c", "(echo a); (echo b)", status=0)
    children = [name for name in os.listdir(scene.path("trace")) if name.startswith("process-")]
    expect(len(children) == 2, str(children))
    for child in children:
        made = scene.manifest(scene.path("trace", child))["detail"]
        orphans = scene.run(scene.contrail, "sql", os.path.join(scene.path("trace"), child), "SELECT count(*) FROM events WHERE type = 'orphan'")
        expect(int(orphans.split()[-1]) > 0, f"{child}: no return without a call")
        expect(made["records"] > 50 and made["refused"] == 0, f"{child}: {made}")


@case
def what_is_lost_is_said(scene):
    trace, _ = scene.recorded("--trace", "detail!**", "--detail", "detail!**", "--detail-size", "1", "--no-wait", "--stack", "512",
                              calls="20000", threads="2")
    made = scene.manifest(trace)["detail"]
    lines = scene.replayed(trace, "--function", "mix")
    have = sum("detail" in line for line in lines)
    if made["overwritten"] + made["no_room"] != 0:
        text = scene.run(scene.contrail, "info", trace)
        expect(re.search(r"detail .*records, [0-9,]+ more were written over", text), text)
        expect(re.search(r"contrail: [0-9,]+ records of detail were lost \([0-9,]+ read\): their calls are shown without values; --lossless, a larger "
                         r"--detail-size, or", scene.said), scene.said)
    expect(have > 0, "no detail at all")
    trace, _ = scene.recorded("--trace", "detail!**", "--detail", "detail!**", "--detail-size", "1", "--stack", "512", calls="8000", threads="2")
    made = scene.manifest(trace)["detail"]
    expect(made["overwritten"] == made["no_room"] == made["refused"] == 0, f"lost although it may wait: {made}")


@case
def a_damaged_file(scene):
    """Cut or changed anywhere: what is whole is shown, with a line, and never a wrong value."""
    trace, _ = scene.recorded("--trace", "mix", "--detail", "mix", calls="2000")
    whole = {line["ts_ns"]: line["args"] for line in scene.replayed(trace, "--function", "mix") if "args" in line}
    path = os.path.join(trace, "thread_0", "detail.ctd")
    with open(path, "rb") as file:
        data = file.read()
    chance = random.Random(3)
    for turn in range(scene.rounds(12, 30)):
        at = chance.randrange(len(data))
        changed = data[:at] if turn % 2 else data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1:]
        with open(path, "wb") as file:
            file.write(changed)
        result = scene.execute(scene.contrail, "replay", "--json", "--function", "mix", trace)
        expect(result.returncode == 0, f"{turn}: {result.returncode} {result.stderr}")
        for line in harness.parse_lines(result.stdout):
            expect("args" not in line or whole[line["ts_ns"]] == line["args"], f"{turn}: {line}")
        if turn % 2 == 0:
            expect("the detail of 1 thread is damaged" in result.stderr, f"{turn} at {at}: {result.stderr}")


@case
def wrong_options(scene):
    for options, text in ((["--stack", "7"], "multiple of 8"), (["--stack", "520"], "0 to 512"),
                          (["--detail-size", "0"], "1 to 256"), (["--detail", "a(b"], "--detail 'a(b'")):
        result = scene.execute(scene.contrail, "record", *options, "-o", scene.path("none"), "--", "true")
        if options == ["--detail", "a(b"] and result.returncode == 0:
            continue  # a pattern like any other
        expect(result.returncode == 2 and text in result.stderr, f"{options}: {result.returncode} {result.stderr}")


if __name__ == "__main__":
    main(__doc__, Scene)
