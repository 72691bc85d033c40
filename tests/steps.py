#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reader of the instruction tracer's files (src/steps): the state that it makes of the records after each step is the one
that single steps by ptrace have seen (build/tests/stepped), forward and at any place; damaged files; the command `steps`.

    tests/steps.py [--filter PATTERN] [--build DIR]
"""
import hashlib
import json
import os
import random
import shutil
import struct

import harness
from harness import case, expect, main, need, parse_lines

STEPS = 60000


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.tool = os.path.join(options.build, "tests", "stepped")
        self.states = self.path("states")

    def stepped(self, *words, steps=STEPS, options=("-v",)):
        """A trace of a program, as contrail steps opens it: a folder with one file."""
        os.makedirs(self.trace, exist_ok=True)
        file = os.path.join(self.trace, "steps.1")
        self.run(self.tool, "record", *options, "-n", str(steps), "-w", self.states, file, "--", *words)
        return file

    def compared(self, file):
        result = self.execute(self.tool, "compare", file, self.states)
        expect(result.returncode == 0, result.stdout)
        return result.stdout.split("\n", 1)[0]


PROGRAMS = {
    "ls": ["ls", "-l", "/usr"],
    "sh": ["sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); done"],
    "sort": ["sort", "-n", "/proc/self/maps"],
    "gzip": ["gzip", "-c", "/etc/services"],
    "python3": ["python3", "-c", "print(sum(x * x % 7 / 3 for x in range(99)))"],
}


def add_program(name, words):
    @case(f"equal_to_single_steps/{name}", some=("equal_to_single_steps", 1))
    def _(scene):
        need(words[0])
        return scene.compared(scene.stepped(*words, options=("-v", "-s", "20000")))


for each, arguments in PROGRAMS.items():
    add_program(each, arguments)


@case
def without_vectors(scene):
    need("sort")
    return scene.compared(scene.stepped(*PROGRAMS["sort"], options=("-s", "3000")))


@case(some=("dear", 2))
def signals(scene):
    """From a timer, by itself, nested, faults that are left by siglongjmp, and one that is ignored."""
    program = scene.compile("steps/signals.c", "-O1", "-g", "-w", "-static")  # without the loader's steps
    return scene.compared(scene.stepped(program, steps=120000, options=("-v", "-s", "30000")))


@case
def a_wrong_value_is_seen(scene):
    """The comparison can fail: states of another run of the same length."""
    file = scene.stepped("ls", "-l", "/usr", steps=3000)
    with open(scene.states, "r+b") as states:
        states.seek(176 * 1500 + 8 * 3)  # rdx after step 1500
        states.write(b"\xa5\x5a\xa5")
    result = scene.execute(scene.tool, "compare", file, scene.states)
    expect(result.returncode == 1 and "step 1500" in result.stdout and "3000 steps, 1 differ" in result.stdout, result.stdout)


# ---- contrail steps ----

WITNESS = struct.Struct("<22Q")  # stepped.c's: pc, 16 registers, rip, flags, fs, gs, vectors
NAMES = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")


def lines(scene, *words):
    return parse_lines(scene.run(scene.contrail, "steps", "--json", *words, scene.trace))


def steps_only(found):
    return [line for line in found if "code" in line]


def witnesses(scene):
    with open(scene.states, "rb") as states:
        return [WITNESS.unpack(part) for part in iter(lambda: states.read(WITNESS.size), b"")]


@case
def lines_have_the_registers(scene):
    """Each line's address and changed registers, and the whole state before it, are those that single steps have seen."""
    scene.stepped("ls", "-l", "/usr", steps=9000, options=("-v", "-s", "9000"))
    real, found = witnesses(scene), steps_only(lines(scene, "--registers"))
    expect([line["step"] for line in found] == list(range(9000)) and len(real) == 9000, f"{len(found)} lines")
    unknown = 0
    for line, now, past in zip(found[1:], real[1:], real):  # what is wrong is put into words when it is: that takes most of the time
        if int(line["pc"], 16) != now[0]:
            raise AssertionError(f"{line} is not at {now[0]:x}")
        for name, value in line["changed"].items():
            if name in NAMES and value is not None and int(value, 16) != now[1 + NAMES.index(name)]:
                raise AssertionError(f"{line}: {name} is {now[1 + NAMES.index(name)]:x}")
        for number, name in enumerate(NAMES):
            value = line["before"][name]
            unknown += value is None
            if value is not None and int(value, 16) != past[1 + number]:
                raise AssertionError(f"before {line}: {name} is {past[1 + number]:x}")
            if name not in line["changed"] and now[1 + number] != past[1 + number]:
                raise AssertionError(f"{line}: {name} became {now[1 + number]:x} and is not told")
    return f"{unknown} registers unknown of {16 * len(found)}"


@case
def selected(scene):
    """By number, from the end, backwards, by address and by function."""
    scene.stepped("ls", "-l", "/usr", steps=20000, options=("-s", "3000"))
    every = steps_only(lines(scene))
    expect(steps_only(lines(scene, "--step", "7000", "--limit", "50")) == every[7000:7050], "--step")
    expect(steps_only(lines(scene, "--tail", "-n", "77")) == every[-77:], "--tail")
    expect(steps_only(lines(scene, "--back", "--step", "9000", "-n", "3000")) == every[9000:6000:-1], "--back")
    counts = {}
    for line in every:
        counts.setdefault(line["pc"], []).append(line)
    for address in sorted(counts, key=lambda pc: -len(counts[pc]))[:2] + sorted(counts)[:2]:
        expect(steps_only(lines(scene, "--address", address)) == counts[address], f"--address {address}")
    inside = [line for line in every if line["function"].split("+")[0] == "_dl_start"]
    expect(inside and steps_only(lines(scene, "--function", "_dl_start")) == inside, "--function")
    expect(steps_only(lines(scene, "--function", "_dl_start", "--tail", "-n", "9")) == inside[-9:], "--function --tail")
    result = scene.execute(scene.contrail, "steps", "--step", "20000", scene.trace)
    expect(result.returncode == 1 and "has no step 20000" in result.stderr, result.stderr)
    return f"{len(counts)} addresses"


def overlap(store, address, size):
    start = int(store["address"], 16)
    return start < address + size and address < start + store["size"] * store.get("count", 1)


@case(some=("dear", 2))
def last_writer(scene):
    """Of registers and of bytes, as all lines tell; with the index and without."""
    scene.stepped("sort", "-n", "/proc/self/maps", steps=60000, options=("-s", "2000"))
    every, chance, index, kernel = lines(scene), random.Random(15), os.path.join(scene.trace, "steps.1.index"), 0
    for _ in range(12):
        before, name = chance.randrange(30, 60000), chance.choice(NAMES)
        expected = next(line for line in reversed(every) if "code" in line and line["step"] < before and name in line["changed"])
        found = steps_only(lines(scene, "--last-write", name, "--step", str(before)))
        expect(found == [expected], f"{name} before {before}: {found}, not {expected}")
    stores = [(line["step"], store) for line in every for store in line.get("stores", ()) if store["address"]]
    written = [(line["step"], {"address": words[6], "size": int(words[3])}) for line in every if "kernel wrote" in line.get("event", "")
               for words in (line["event"].split(),)]
    expect(len(written) > 1, f"the kernel wrote {len(written)} times")
    for turn in range(30):
        step, store = chance.choice(stores if turn % 3 != 0 else written)
        address, size, before = int(store["address"], 16) + chance.randrange(4), chance.choice((1, 4, 8)), \
            chance.randrange(step + 1, 60000)
        found = lines(scene, "--last-write", f"{address:#x}:{size}", "--step", str(before))
        own = [number for number, other in stores if number < before and overlap(other, address, size)]
        kernels = [number - 1 for number, other in written if number <= before and overlap(other, address, size)]
        kernel += max(kernels, default=-1) > max(own, default=-1)
        expected = max(own + kernels, default=None)
        expect(steps_only(found)[0]["step"] == expected, f"{address:#x}:{size} before {before}: {found}, not {expected}")
    result = scene.execute(scene.contrail, "steps", "--last-write", "0x10", scene.trace)  # asks all blocks
    expect(result.returncode == 1 and "nothing in the trace wrote that" in result.stderr, result.stderr)
    expect(not os.path.exists(index), "an index was made of a short recording")
    lines(scene, "--address", every[0]["pc"], "-n", "1")
    expect(os.path.exists(index), "no index was made")
    with open(index, "r+b") as file:  # a spoiled one is not believed
        file.seek(3000)
        file.write(b"\x55" * 40)
    step, store = stores[100]
    found = steps_only(lines(scene, "--last-write", f"{store['address']}:{store['size']}", "--step", str(step + 1)))
    expect(found[0]["step"] == step, f"{found}, not {step}")
    expect(kernel > 0, "never the kernel")
    return f"{len(stores)} stores, {kernel} of 30 times the kernel"


@case
def memory(scene):
    """Bytes before a step: what all lines before it stored and loaded."""
    scene.stepped("sort", "-n", "/proc/self/maps", steps=60000, options=("-s", "2000"))
    every, chance, known = lines(scene), random.Random(4), 0
    places = [store for line in every for store in line.get("stores", ()) if store["address"]]
    touched = []  # the step before which it is there, where, and of what size; what is there, None: the kernel's, which lines do not show
    for line in every:
        if "code" in line:
            ones = ([dict(line["load"], known=True)] if "load" in line else []) + line.get("stores", [])
            touched += [(line["step"] + 1, int(one["address"], 16), one["size"] * one.get("count", 1), one) for one in ones if one["address"] is not None]
        elif "kernel wrote" in line["event"]:
            words = line["event"].split()
            touched.append((line["step"], int(words[6], 16), int(words[3]), None))
    for _ in range(25):
        before, place = chance.randrange(2000, 60000), chance.choice(places)
        address = int(place["address"], 16) - 5
        expected = [None] * 24
        for step, start, size, one in touched:
            if step > before or start >= address + 24 or start + size <= address:
                continue
            is_known = one is not None and one["value"] is not None and not one.get("perhaps")
            for at in range(max(start, address), min(start + size, address + 24)):
                value = is_known and int(one["value"], 16) >> 8 * ((at - start) % one["size"]) & 255
                expected[at - address] = "kernel" if one is None else value if is_known else None
        result = scene.execute(scene.contrail, "steps", "--json", "--memory", f"{address:#x}:24", "--step", str(before), scene.trace)
        found = json.loads(result.stdout)["bytes"]
        known += sum(byte is not None for byte in found)
        expect(all(one == other or (other == "kernel" and one is not None) for one, other in zip(found, expected)),
               f"{address:#x} before {before}: {found}, not {expected}")
    expect(known > 100, f"{known} bytes are known")
    return f"{known} of 600 bytes known"


@case(some=("dear", 2))
def merged(scene):
    """Threads that take turns by pipes: by the time stamps their calls are in the order in which they were made, in SQL, too."""
    program = scene.compile("programs/pingpong.c", "-O1", "-w", "-pthread")
    scene.run(scene.contrail, "itrace", "-q", "--all-threads", "-o", scene.trace, "--", program)
    result = scene.execute(scene.contrail, "steps", "--json", scene.trace)
    found = parse_lines(result.stdout)
    expect(result.stderr.count("\n") == 1 and "2 threads, merged by time stamps" in result.stderr, result.stderr)
    turns = [line["function"] for line in steps_only(found) if line["function"] in ("ping", "pong")]
    expect(turns == ["ping", "pong"] * 50, f"{turns}")
    times = [line["time_ns"] for line in steps_only(found)]
    expect(times == sorted(times), "the times are not in order")
    alone, tids = 0, {line["tid"] for line in found}
    for tid in tids:
        own = lines(scene, "--thread", str(tid))
        expect(own == [line for line in found if line["tid"] == tid], f"thread {tid}: other lines than by itself")
        alone += len(own)
    expect(alone == len(found) and len(tids) == 2, f"{alone} lines of threads, {len(found)} in all")
    some = scene.run(scene.contrail, "steps", "--limit", "3", "-F", "p?ng", scene.trace).splitlines()
    expect(len(some) == 3 and all(" ping" in line for line in some), f"{some}")
    rows = scene.run(scene.contrail, "sql", "--csv", scene.trace, 'SELECT function FROM steps WHERE "offset" = 0 AND function LIKE '
                     "'p_ng' ORDER BY time, tid, step").split()[1:]
    expect(rows == turns, f"{rows}")
    return f"{len(found)} lines"


@case(some=("dear", 2))
def the_last_call_has_no_result(scene):
    """exit_group: the kernel's word for "not yet" is no result of it."""
    program = scene.compile("programs/pingpong.c", "-O1", "-w", "-pthread")
    scene.run(scene.contrail, "itrace", "-q", "--all-threads", "-o", scene.trace, "--", program)
    for tid in {line["tid"] for line in lines(scene)}:
        calls = [line for line in lines(scene, "--thread", str(tid)) if line.get("code") == "syscall"]
        expect(calls[-1]["changed"]["rax"] is None, f"{calls[-1]}")
        expect(len(calls) > 50 and all(line["changed"]["rax"] is not None for line in calls[:-1]), "other results are unknown")


def digest(found):
    told = hashlib.sha256()
    for line in found:
        told.update(repr([line["step"], line["pc"], line["code"], sorted(line["changed"].items()), line.get("load"), line.get("stores"),
                          sorted(line["before"].items())]).encode())
    return told.hexdigest()


GOLDEN = {  # steps, and a digest of all that is reported of each but the last
    "2-itrace": (415, "feb193cedccc74a9565ed61c9c138ab21497a0affedcf4d5ea59c4a4d4eb0790"),
    "2-stepped": (40, "ea06c57e4bdcc118af6cf673d4c49252f03a8ddd9ef33a584cbb2384a6ec4c21"),
    "3-itrace": (174, "cfa245668e3951e888902ee102d2d7ad4d0b44861aeaaf180b80650623279773"),
    "4-itrace": (174, "c92fba120fa618af192d1640265d2ed6d706400e13c2bb89dbada4b8dd55a65a"),
}


@case
def older_versions(scene):
    """Files of earlier versions of the format, and one whose units go on elsewhere: all that is reported of their steps is as it was.
    A later one is refused with a line."""
    for name, (count, told) in GOLDEN.items():
        path = scene.path("steps.1")
        shutil.copy(os.path.join(harness.ROOT, "tests", "steps", f"golden-{name}.steps"), path)
        result = scene.execute(scene.contrail, "steps", "--json", "--registers", path)
        found = steps_only(parse_lines(result.stdout))
        expect(result.returncode == 0 and result.stderr == "" and len(found) == count, f"{name}: {len(found)} steps, {result.stderr}")
        expect(digest(found[:-1]) == told, f"{name}: digest {digest(found[:-1])}")
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(bytes([99]))
    result = scene.execute(scene.contrail, "steps", path)
    expect(result.returncode == 1 and "version 99" in result.stderr and result.stderr.count("\n") == 1, result.stderr)


@case
def damaged(scene):
    """Cut, or spoiled anywhere: what comes before is shown, and a line says so."""
    file = scene.stepped("ls", "-l", "/usr", steps=6000, options=("-v", "-s", "4000"))
    good = steps_only(lines(scene))
    with open(file, "rb") as original:
        data = original.read()
    chance, told, known = random.Random(7), 0, {line["step"]: line for line in good}
    for turn in range(40):
        place = chance.randrange(64, len(data))
        spoiled = data[:place] if turn % 2 == 0 else data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1:]
        with open(file, "wb") as damaged_file:
            damaged_file.write(spoiled)
        result = scene.execute(scene.contrail, "steps", "--json", scene.trace)
        expect(result.returncode in (0, 1), f"{place}: status {result.returncode}")
        found = steps_only(parse_lines(result.stdout))
        expect(len(found) <= len(good), f"{place}: {len(found)} steps")
        if len(found) < len(good):
            expect(result.stderr.count("\n") >= 1, f"{place}: nothing is told")
            told += 1
        expect(turn % 2 == 1 or found == good[:len(found)], f"{place}: {len(found)} steps are not as they were")
        if turn % 2 == 1 and "DAMAGED" in result.stderr:
            expect(all(known[line["step"]]["pc"] == line["pc"] for line in found), f"{place}: other addresses")
    expect(told > 10, f"only {told} were told")
    for name, data in (("empty", b""), ("foreign", b"ctstepz" + bytes(100)), ("later", b"ctsteps\0\x09" + bytes(80))):
        with open(file, "wb") as other:
            other.write(data)
        result = scene.execute(scene.contrail, "steps", scene.trace)
        expect(result.returncode == 1 and result.stderr.count("\n") == 1, f"{name}: {result.stderr}")


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene)
