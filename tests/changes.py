#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Patterns added to and removed from a live session under load, at random: each function has been recorded exactly as
often as it was called while it was hooked, in full or light as it was asked for. And, in turn, while the program loads
and unloads libraries.

    tests/changes.py [--changes N] [--repeat N] [--seed N] [--build DIR] [--keep]
"""
import fnmatch
import json
import os
import random
import shutil
import signal
import subprocess
import time

import attach
import harness
import killed
from harness import HERE, ROOT, SEED, Running, case, expect, main, wait_for
from processes import state_of, system_call_of

FUNCTIONS = {f"{group}_leaf_{k}": (g, k) for g, group in enumerate(("red", "green", "blue", "black")) for k in range(5)}
PATTERNS = ["red_*", "green_*", "*_leaf_1", "*_leaf_3", "black_leaf_4", "rounds!bl*_*", "rounds!*_leaf_[02]", "noise_inner",
            "blue_leaf_2", "red_leaf_0", "rounds!*leaf*"]


def matches(pattern, function):
    return fnmatch.fnmatchcase(function, pattern.split("!")[-1])


class Model:
    """What must be hooked, and what has been called since."""

    def __init__(self):
        self.traced, self.excluded = {"red_leaf_0": "full"}, set()
        self.calls = {name: 0 for name in FUNCTIONS}
        self.full = {name: 0 for name in FUNCTIONS}
        self.rounds = 0

    def mode_of(self, name):
        modes = {mode for pattern, mode in self.traced.items() if matches(pattern, name)}
        if any(matches(pattern, name) for pattern in self.excluded):
            return None
        return "full" if "full" in modes else "light" if modes else None

    def play(self):
        self.rounds += 1
        for name, (g, k) in FUNCTIONS.items():
            mode = self.mode_of(name)
            number = 4 * (self.rounds % 7 + k + 3 * g + 1)
            self.calls[name] += number if mode else 0
            self.full[name] += number if mode == "full" else 0

    def hooked(self):
        return sum(1 for name in [*FUNCTIONS, "noise_inner"] if self.mode_of(name))


def ask(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    assert answer, f"no answer to {line!r}"
    return answer


def choose(model):
    kind = random.random()
    if kind < 0.45 or not model.traced:
        pattern, mode = random.choice(PATTERNS), random.choice(("full", "light"))
        model.traced[pattern] = mode
        return f"add {mode} {pattern}"
    if kind < 0.75:
        pattern = random.choice(sorted(model.traced))
        del model.traced[pattern]
        return f"remove auto {pattern}"
    if kind < 0.88 or not model.excluded:
        pattern = random.choice(PATTERNS[:6])
        if pattern not in model.excluded:
            model.excluded.add(pattern)
            return f"exclude auto {pattern}"
        return None
    pattern = random.choice(sorted(model.excluded))
    model.excluded.discard(pattern)
    return f"include auto {pattern}"


def report(contrail, trace):
    out = subprocess.run([contrail, "report", "--json", "--limit", "0", trace], capture_output=True, check=True)
    return {row["name"]: row for row in json.loads(out.stdout)["functions"]}


def run_once(options, folder):
    flags = ["-I", os.path.join(ROOT, "include")]
    target, driver = os.path.join(folder, "rounds"), os.path.join(folder, "changes")
    trace = os.path.join(folder, "trace")
    subprocess.run(["gcc", "-O2", "-g", "-o", target, os.path.join(HERE, "attach", "rounds.c"), "-lpthread"], check=True)
    subprocess.run(["gcc", "-O2", "-o", driver, os.path.join(HERE, "attach", "changes.c"), *flags, "-L", options.build,
                    f"-Wl,-rpath,{options.build}", "-lcontrail"], check=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    model, held = Model(), []
    with Running([target], **pipes) as program:
        try:
            assert program.stdout.readline().strip() == "ready"
            with Running([driver, str(program.pid), trace], **pipes) as session:
                assert session.stdout.readline().strip() == "ready"
                for number in range(options.changes):
                    line = choose(model)
                    if line is None:
                        continue
                    answer = ask(session, line)
                    assert not answer.startswith("error"), f"{line}: {answer}"
                    hooked, _, busy, pause = (int(word) for word in answer.split())
                    assert busy == 0, f"{line}: {busy} functions could not be changed"
                    assert hooked == model.hooked(), f"{line}: {hooked} functions hooked, not {model.hooked()}"
                    held.append(pause / 1e6)
                    for _ in range(random.randrange(3)):
                        model.play()
                        assert ask(program, "go") == str(model.rounds), f"change {number}: the program is wrong"
                session.stdin.close()
                listed = json.loads(session.stdout.readline())
                assert {item["pattern"] for item in listed} == set(model.traced), listed
                assert session.wait(60) == 0
            assert ask(program, "go") == str(model.rounds + 1)
            program.stdin.close()
            assert program.wait(60) == 0
        finally:
            if program.poll() is None:
                program.kill()
    rows = report(options.contrail, trace)
    wrong = []
    for name, calls in model.calls.items():
        got = rows.get(name, {}).get("calls", 0)
        if got != calls:
            wrong.append(f"{name}: {got} calls recorded, not {calls}")
    assert not wrong, "; ".join(wrong[:4])
    if options.keep:
        shutil.copytree(trace, os.path.join(options.build, "tests", "changes.trace"), dirs_exist_ok=True)
    held.sort()
    return (f"{len(held)} changes, {model.rounds} rounds, {sum(model.calls.values()):,} calls recorded of "
            f"{len(FUNCTIONS)} functions, {sum(model.full.values()):,} in full; held {held[len(held) // 2]:.1f} ms each "
            f"(most {held[-1]:.1f})")


def run_loads(options, folder):
    target = killed.loads(folder)
    trace = os.path.join(folder, "trace")
    try:
        pid = str(target.process.pid)
        words = [options.contrail, "attach", "-o", trace, pid, "lib*.so*!*"]
        with Running(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as session:
            assert "attached" in session.stderr.readline()
            for number in range(options.changes // 5):
                command = [options.contrail, "trace", pid, ("remove", "add")[number % 2], "*!*"]
                if number > 0:
                    subprocess.run(command, check=True, capture_output=True, timeout=60)
                time.sleep(random.uniform(0, 0.05))
                assert target.process.poll() is None, f"change {number}: it ended with {target.process.returncode}"
            session.send_signal(signal.SIGINT)
            assert "detached" in session.communicate(timeout=60)[1]
            assert session.returncode == 0
        target.check()
        wrong = attach.code_differs(target.process.pid)
        assert not wrong, f"code is not as in the file: {wrong[:3]}"
        return f"{number} changes while libraries come and go, {target.last()} rounds of those"
    finally:
        target.stop()


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        seed = options.seed if options.seed is not None else SEED
        random.seed(seed)
        options.changes = options.changes or self.rounds(30, 100)
        self.again = f" --seed {seed}"


@case
def rounds(scene):
    return "; ".join(run_once(scene.options, scene.folder) for _ in again_and_again(scene))


@case
def loads(scene):
    """Patterns change while the program loads and unloads libraries."""
    return "; ".join(run_loads(scene.options, scene.folder) for _ in again_and_again(scene))


def regions_of(pid):
    return {line.split()[0] for line in killed.extra_mappings(pid)}


@case
def busy(scene):
    """A thread waits in a function's first bytes, so that it cannot be hooked: the trampolines made for nothing are gone, and the function is hooked
    once the thread has left. With contrail killed after that everything is taken out."""
    program = scene.compile("attach/busy.c")
    with Running([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        def say(byte):
            target.stdin.write(byte)
            target.stdin.flush()
            return target.stdout.readline().strip()
        pid = target.pid
        before = regions_of(pid)
        expect(target.stdout.readline() == "ready\n", "it does not begin")
        wait_for("a read", lambda: state_of(pid) == "S")
        with Running([scene.contrail, "attach", "-o", scene.trace, str(pid), "main"], stderr=subprocess.PIPE, text=True) as session:
            expect("attached" in session.stderr.readline(), "not attached")
            trace, hooked = [scene.contrail, "trace", str(pid)], regions_of(pid)
            for _ in range(2):
                wait_for("the read again, which a stop interrupts: until then it stands before the function", lambda: state_of(pid) == "S")
                expect("1 could not be hooked: a thread stood in" in scene.run(*trace, "add", "waits"), "it was hooked")
                expect("not hooked: 1 busy" in scene.run(*trace, "list"), "the reason")
                scene.run(*trace, "remove", "waits")
                expect(regions_of(pid) == hooked, f"mapped for nothing: {regions_of(pid) - hooked}")
            expect(say("a") == "read", "the program is wrong")
            expect("waits  (exact, full): 1 matched, 1 hooked" in scene.run(*trace, "add", "waits"), "it is not hooked")
            session.kill()
        killed.restore(scene.options, pid, False, scene.trace)
        killed.check_restored(pid, before)
        expect(say("b") == "between" and say("c") == "read", "the program is wrong")
        target.stdin.close()
        expect(target.wait(60) == 0, "its end")


def steps_over(scene, *words, hooked="main"):
    program = scene.compile("attach/restores.c", "-O2", "-pthread")
    with Running([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        expect(target.stdout.readline() == "ready\n", "it does not begin")
        with Running([scene.contrail, "attach", "-o", scene.trace, str(target.pid), hooked], stderr=subprocess.PIPE, text=True) as session:
            expect("attached" in session.stderr.readline(), "not attached")
            if len(words) > 1:
                target.stdin.write("x")
                target.stdin.flush()
                expect(target.stdout.readline() == "waits\n", "it does not wait in its handler")
            told = scene.run(scene.contrail, "trace", str(target.pid), "add", "undefined")
            expect("1 could not be hooked: a thread stood in" in told, f"it was hooked: {told}")
            target.stdin.write("x")
            target.stdin.flush()
            expect(target.stdout.readline() == "42\n", "the program is wrong")
            expect(target.wait(60) == 0, "its end")
            session.wait(60)


@case
def restores(scene):
    """A handler that has stepped over a function's first instruction has returned, into the code that makes the system call of its end: where the
    thread goes on then, in the function's second instruction, there is no jump."""
    steps_over(scene)


@case
def left_over(scene):
    """The same in the handler, with words below its frame as an older signal's frame leaves them."""
    steps_over(scene, "in the handler")


@case
def hooked_handler(scene):
    """The same in a handler that is hooked: its return address is a trampoline's."""
    steps_over(scene, "in the handler", "later", hooked="step_over")


def hooked_for_a_round(scene, target, answer, *words):
    """The program plays a round for each byte and writes its answer; the second one with hooks, of which nothing is left after that."""
    def play(number):
        target.stdin.write("x")
        target.stdin.flush()
        expect(target.stdout.readline() == f"{answer(number)}\n", f"the program is wrong in round {number}")
        wait_for("the next read", lambda: system_call_of(target.pid) == "0")
    before = regions_of(target.pid)
    play(1)
    with Running([scene.contrail, "attach", "-o", scene.trace, *words[:-1], str(target.pid), words[-1]], stderr=subprocess.PIPE, text=True) as session:
        expect("attached" in session.stderr.readline(), "not attached")
        play(2)
        session.send_signal(signal.SIGINT)
        expect("detached" in session.communicate(timeout=60)[1], "not detached")
    killed.check_restored(target.pid, before)
    play(3)
    target.stdin.close()


@case
def moved_out(scene):
    """Hooks go while a thread waits in a system call before instructions that have moved out for one of them."""
    program = scene.compile("attach/evicted.c", "-O1", "-no-pie")
    tactics = {row["name"]: row["tactic"] for row in json.loads(scene.run(scene.contrail, "plan", "--json", program))["functions"]
               if row.get("tactic")}
    expect(tactics["small"] == "evict", f"small has the tactic {tactics['small']}")
    with Running([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        hooked_for_a_round(scene, target, lambda number: number, "evicted!*")
        expect(target.wait(60) == 7, "its end")
    calls = {name: row["calls"] for name, row in report(scene.contrail, scene.trace).items()}
    expect(calls["small"] == 1, f"{calls}")


# Functions whose second instruction is branched to: a jump goes by way of padding, or where bytes of that instruction say.
CROWD = """#include <stdio.h>
#include <unistd.h>
extern long (*table[])(long);
int main(void)
{
  long sum = 0;
  char byte;
  while (read(0, &byte, 1) == 1) {
    for (int i = 0; i < COUNT; i++) sum += table[i](1);
    printf("%ld\\n", sum);
    fflush(stdout);
  }
  return 0;
}
"""


@case
def crowded(scene):
    """More jumps in padding, and stubs, than the agent's list has room for: functions that need more of these are left out, which is said, and
    nothing stays behind."""
    short, punned = 6200, 1664
    operations = (0x04, 0x0c, 0x24, 0x2c, 0x34, 0x3c, 0xa8, 0xb0, 0xb1, 0xb2, 0xb4, 0xb5, 0xb6)  # on a byte register, with a constant
    text = [".text"]
    for i in range(short + punned):
        second = f".byte {operations[i % 13]}, {128 + i // 13 % 128}"
        body = "xor %eax, %eax\n1: inc %eax" if i < short else f"mov %rdi, %rax\n1: {second}\nmov $1, %eax"
        text.append(f".p2align {4 if i < short else 0}\n.globl g{i}\n.type g{i}, @function\ng{i}:\n.cfi_startproc\n{body}\ndec %edi\njg 1b\nret\n"
                    f".cfi_endproc\n.size g{i}, .-g{i}")
    text += [".data", ".globl table", "table:", *(f".quad g{i}" for i in range(short + punned)), '.section .note.GNU-stack,"",@progbits']
    scene.write("functions.s", "\n".join(text) + "\n")
    scene.write("crowd.c", CROWD)
    program = scene.path("crowd")
    scene.run("gcc", "-O1", f"-DCOUNT={short + punned}", "-o", program, scene.path("crowd.c"), scene.path("functions.s"))
    with Running([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        hooked_for_a_round(scene, target, lambda number: number * (short + punned), "--deadline", "60s", "crowd!*")
        expect(target.wait(60) == 0, "its end")
    info = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))
    refused = next(module["refused"] for module in info["modules"] if module["path"] == program)
    left, others = refused.get("crowded", 0), refused.get("unreachable", 0)  # what stubs would lie on is taken
    calls = sum(row["calls"] for name, row in report(scene.contrail, scene.trace).items() if name.startswith("g"))
    expect(0 < left < punned and calls == short + punned - left - others, f"{refused} left out, {calls} calls recorded of {short + punned}")
    return f"{left} of {short + punned} functions left out"


def again_and_again(scene):
    for turn in range(scene.options.repeat):
        if turn:
            shutil.rmtree(scene.trace, ignore_errors=True)
        yield turn


def arguments(parser):
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None)


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
