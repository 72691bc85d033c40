#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that a signal ends, and programs that only might be: output, status and core dump as untraced; crash.json
and `contrail info` tell the signal, where, and in which thread.

    tests/crash.py [--filter PATTERN] [--build DIR]       PATTERN: of BUILD/MODE, as in gcc-O2/null
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from harness import Skip, case, expect, main, need, wait_for
from processes import PAUSE, children_of, system_call_of

BUILDS = {
    "gcc-O2": ["gcc", "-O2", "-g"],
    "gcc-O0": ["gcc", "-O0", "-g"],
    "clang-O2": ["clang", "-O2", "-g", "-Wno-unknown-warning-option"],
    "static": ["gcc", "-O2", "-g", "-static"],
    "stripped": ["gcc", "-O2", "-s", "-static"],
    "nopie": ["gcc", "-O2", "-g", "-no-pie", "-fno-pie"],
    "musl": ["musl-gcc", "-O2", "-g"],
    # None of its functions is known: no handler is put in, since what sigaction tells could not be put right.
    "musl-stripped": ["musl-gcc", "-O2", "-s", "-static"],
}
WILD = ["store_wild", "middle", "outer"]
# mode: signal and si_code by name (None: no crash.json), functions that the backtrace begins with
MODES = {
    "main": ("SIGSEGV", "SEGV_MAPERR", WILD),
    "thread": ("SIGSEGV", "SEGV_MAPERR", WILD + ["crasher"]),
    "many": ("SIGSEGV", "SEGV_MAPERR", WILD + ["both"]),
    "handler": ("SIGSEGV", "SEGV_MAPERR", WILD),
    "null": ("SIGSEGV", "SEGV_MAPERR", [None, "call_nothing"]),
    "noncanonical": ("SIGSEGV", "SI_KERNEL", ["jump_to_noncanonical"]),
    "rbx": ("SIGSEGV", "SEGV_MAPERR", ["says_nothing", "found_by_rbx", "keeps_rbx"]),
    "first": ("SIGSEGV", "SEGV_MAPERR", ["load_first", "call_first"]),
    "divide": ("SIGFPE", "FPE_INTDIV", ["divide"]),
    "int3": ("SIGTRAP", "SI_KERNEL", ["breakpoint"]),
    "ud2": ("SIGILL", "ILL_ILLOPN", ["illegal"]),
    "bus": ("SIGBUS", "BUS_ADRERR", ["beyond_file"]),
    "abort": ("SIGABRT", "SI_TKILL", []),
    "itself": ("SIGBUS", "SI_USER", []),
    "overflow": (None, None, []),
    "overflow-alternate": ("SIGSEGV", "SEGV_MAPERR", ["recurse", "recurse", "recurse"]),
    "own": (None, None, []),
    "chain": ("SIGSEGV", "SEGV_MAPERR", WILD),
    "reset": (None, None, []),
    "blocked": (None, None, []),
    "ignored": (None, None, []),
    "fork": (None, None, []),
    "vfork": (None, None, []),
    "pipe": (None, None, []),
    "dispositions": (None, None, []),
}


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def with_core():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def run(words, folder, before=no_core):
    return subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, preexec_fn=before)


def status_of(returncode):
    """As contrail record tells a program's end."""
    return 128 - returncode if returncode < 0 else returncode


class Scene(harness.Scene):
    def __init__(self, options, folder, variant="gcc-O2", mode=None):
        super().__init__(options, folder)
        compiler, *words = BUILDS[variant]
        self.variant, self.mode = variant, mode
        self.program = self.compile("programs/crash.c", *words, "-D_GNU_SOURCE", "-pthread", name=variant, compiler=compiler)

    def record(self, *words, before=no_core):
        return run([self.contrail, "record", "-o", self.trace, "--", self.program, *words], self.folder, before)

    def crash(self):
        if self.crash_is_missing():
            return None
        with open(self.path("trace", "crash.json"), encoding="utf-8") as file:
            return json.load(file)

    def crash_is_missing(self):
        return not os.path.exists(self.path("trace", "crash.json"))

    def info(self, *options):
        result = run([self.contrail, "info", *options, self.trace], self.folder)
        expect(result.returncode == 0, f"info: {result.stderr}")
        return result.stdout.decode()


def check_frames(thread, names, stripped):
    frames = thread["backtrace"]
    expect(len(frames) >= len(names), f"only {len(frames)} frames: {frames}")
    for frame, name in zip(frames, names):
        if name is None:
            expect("module" not in frame, f"{frame} is no place in a module")
        elif stripped:
            expect("offset" in frame and "function_offset" in frame, f"no place: {frame}")
        else:
            expect(frame.get("function") == name, f"{frame.get('function')} in place of {name}")


def check_replay(scene, crash):
    """replay has a line for the signal, in the call that was open then."""
    result = scene.execute(scene.contrail, "replay", "--json", "--type", "crash", scene.trace)
    lines = [line for line in harness.parse_lines(result.stdout) if line["kind"] != "warning"]
    if crash is None:
        expect(not lines and result.returncode == 1, f"a line about a signal that crash.json does not tell of: {lines}")
        return
    expect(len(lines) == 1, f"{len(lines)} lines: {result.stderr}")
    line, frame = lines[0], (crash["threads"][0]["backtrace"] or [{}])[0]
    expect((line["kind"], line["tid"], line["signal"], line["signal_name"]) == ("crash", crash["tid"], crash["signal"], crash["name"]) and
           line["address"] == crash.get("address") and line["function"] == frame.get("function"), f"{line} of {crash['threads'][0]}")
    if line["parent"] is not None:
        query = f"SELECT tid, depth, flags FROM spans WHERE id = {line['parent']}"
        row = json.loads(scene.run(scene.contrail, "sql", "--json", scene.trace, query))
        expect(len(row) == 1 and row[0]["tid"] == line["tid"] and row[0]["depth"] == line["depth"] - 1 and
               "unfinished" in row[0]["flags"], f"{line} is in {row}")
    text = scene.run(scene.contrail, "replay", "--type", "crash", scene.trace)
    expect(f"-- {crash['name']}: {crash['meaning']}" in text and frame.get("function", "") in text, text)


def check_crash(scene, mode, stripped, tells):
    name, code, names = MODES[mode] if tells else (None, None, [])
    crash, info = scene.crash(), json.loads(scene.info("--json"))["crash"]
    text = scene.info()
    check_replay(scene, crash)
    if name is None:
        expect(crash is None, f"crash.json tells of {crash}")
        return
    expect(crash is not None, "no crash.json")
    expect((crash["name"], crash["code_name"]) == (name, code), f"{crash['name']}, {crash['code_name']}")
    thread = crash["threads"][0]
    expect(thread["tid"] == crash["tid"], "the first thread is not the one that crashed")
    check_frames(thread, names, stripped)
    expect(text.startswith(f"crashed    {name}"), f"info begins with {text[:80]!r}")
    expect(info["threads"][0]["last_calls"], "no last calls")
    if names and names[0] is not None and not stripped and mode != "bus": # which calls much before it faults
        called = [call["name"] for call in info["threads"][0]["last_calls"]]
        expect(names[0] in called, f"{names[0]} is not among the last calls {called}")
        expect(f"{names[0]}+0x" in text, "info does not tell where")
    if mode in ("thread", "many"):
        expect(len(crash["threads"]) == 10, f"{len(crash['threads'])} threads")
        expect(all(other["backtrace"] for other in crash["threads"]), "a thread without backtrace")
    if mode == "many" and not stripped: # the others wait in handlers of their own, or have not got there yet
        for other in crash["threads"][1:]:
            functions = [frame.get("function") for frame in other["backtrace"]]
            known = {"both", "start_thread", "start", "among_threads"} & set(functions)
            expect(known or scene.program.endswith("musl"), f"{functions}, {other.get('ends_because')}") # whose clone tells nothing
    if code == "SI_USER":
        expect(crash["sender_pid"] == crash["pid"] and crash["sender_uid"] == os.getuid(), "another sender")
    if mode == "main":
        expect(crash["address"] == "0x10" and crash["registers"]["cr2"] == "0x10", "another address")
        expect(crash["registers"]["rip"] == thread["backtrace"][0]["pc"], "rip is not that of the first frame")


def check_mode(scene):
    mode, stripped, tells = scene.mode, "stripped" in scene.variant, scene.variant != "musl-stripped"
    plain = run([scene.program, mode], scene.folder)
    traced = scene.record(mode)
    if mode in ("thread", "many") and tells and len(scene.crash()["threads"]) == 1:
        expect("others_missing" in scene.crash(), "nothing tells why the other threads are not there")
        traced = scene.record(mode) # the others could not be stopped in time, on a machine that does something else
    expect(traced.stdout == plain.stdout, f"stdout {traced.stdout!r}, untraced {plain.stdout!r}")
    expect(traced.stderr == plain.stderr, f"stderr {traced.stderr!r}, untraced {plain.stderr!r}")
    expect(traced.returncode == status_of(plain.returncode), f"status {traced.returncode}, untraced {plain.returncode}")
    check_crash(scene, mode, stripped, tells)


def from_outside(scene, number):
    """A signal of another process, to a program that sleeps."""
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.trace, "--", scene.program, "outside"],
                                cwd=scene.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=no_core)
    expect(recorder.stdout.readline() == b"outside\n", "it did not begin")
    target = children_of(recorder.pid)[0]
    wait_for("pause", lambda: system_call_of(target) == PAUSE)
    os.kill(target, number)
    expect(recorder.wait(60) == 128 + number, f"status {recorder.returncode}")
    recorder.stdout.close()
    return target


@case("gcc-O2/outside_fault")
def outside_fault(scene):
    target = from_outside(scene, signal.SIGSEGV)
    crash = scene.crash()
    expect(crash is not None and crash["code_name"] == "SI_USER" and crash["sender_pid"] == os.getpid(), f"{crash}")
    expect(crash["pid"] == target and crash["threads"][0]["backtrace"], "no backtrace")
    expect("pause" in [frame.get("function") for frame in crash["threads"][0]["backtrace"]], "not in pause")


@case("gcc-O2/outside_kill")
def outside_kill(scene):
    from_outside(scene, signal.SIGKILL)
    expect(scene.crash() is None, "crash.json")
    text = scene.info()
    expect(text.startswith("killed     by SIGKILL") and "last calls" in text and "pause" in text, text[:300])


def core_of(scene, words, mode):
    """What a debugger says of the core dump."""
    folder = tempfile.mkdtemp(dir=scene.folder)
    run([*words, scene.program, mode], folder, with_core)
    cores = [name for name in os.listdir(folder) if name.startswith("core")]
    expect(len(cores) == 1, f"core dumps: {cores}")
    size = os.path.getsize(os.path.join(folder, cores[0]))
    expect(size < 16 << 20, f"a core dump of {size} bytes")
    result = run(["gdb", "-nx", "-batch", "-ex", "info symbol $pc", "-ex", "p $_siginfo.si_signo",
                  "-ex", "p $_siginfo.si_code", "-ex", "p/x $_siginfo._sifields._sigfault.si_addr",
                  "-ex", "p/x $rdi", "-ex", "p/x $rax", scene.program, os.path.join(folder, cores[0])], folder)
    told = result.stdout.decode().splitlines()
    return [line for line in told if line.startswith("$") or " in section " in line]


@case("gcc-O2/core_dump")
def core_dump(scene):
    need("gdb")
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
        if file.read().strip() != "core":
            raise Skip("core dumps do not go to a file named core")
    modes = ("main", "first", "noncanonical", "int3", "divide")
    for mode in random.sample(modes, scene.rounds(3, len(modes))):
        plain = core_of(scene, [], mode)
        traced = core_of(scene, [scene.contrail, "record", "-o", scene.trace, "--"], mode)
        if mode in ("first", "int3"): # a displaced instruction has its own place
            plain, traced = ([line for line in lines if line.startswith("$")] for lines in (plain, traced))
        if mode in ("divide", "int3", "noncanonical"): # an address in the program's code differs from run to run
            plain, traced = plain[:3], traced[:3]
        expect(plain == traced and plain, f"{mode}: {traced}, untraced {plain}")
        shutil.rmtree(scene.trace)


@case("gcc-O2/recorder_killed", alone=True)
def recorder_killed(scene):
    """What is known of a crash survives the recorder."""
    command = [scene.contrail, "record", "-o", scene.trace, "--", scene.program, "main"]
    recorder = subprocess.Popen(command, cwd=scene.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                preexec_fn=no_core)
    deadline = time.monotonic() + 30
    while scene.crash_is_missing() and time.monotonic() < deadline:
        time.sleep(0.0005)
    recorder.kill()
    recorder.wait()
    expect(scene.crash() is not None, "no crash.json")
    expect("\ncrashed    SIGSEGV" in "\n" + scene.info(), "info does not tell") # after that it is incomplete


def caught(pid):
    """The signals that have handlers."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    return {number + 1 for number in range(64) if mask >> number & 1}


@case("gcc-O2/attached", alone=True)
def attached(scene):
    """Attached to and detached from, again and again, while the program asks for dispositions; then it crashes."""
    program = subprocess.Popen([scene.program, "asks"], cwd=scene.folder, stdin=subprocess.DEVNULL, preexec_fn=no_core,
                               stdout=subprocess.PIPE)
    try:
        expect(program.stdout.readline() == b"asks\n", "it did not begin")
        before = {signal.SIGUSR1}
        wait_for("its own handler", lambda: caught(program.pid) == before)
        faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}
        for turn in range(12):
            command = [scene.contrail, "attach", "-o", scene.trace, str(program.pid)]
            recorder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, preexec_fn=no_core)
            deadline = time.monotonic() + 30
            seen = set() # those that the program asks for at least, which it does all the time
            asked = before | {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
            while not asked <= seen and recorder.poll() is None and time.monotonic() < deadline:
                seen = caught(program.pid)
            expect(asked <= seen <= before | faults, f"handlers {seen} while attached")
            if turn == 11:
                break
            recorder.send_signal(signal.SIGINT)
            text = recorder.communicate()[1]
            expect(recorder.returncode == 0, f"attach: status {recorder.returncode}: {text}")
            expect(caught(program.pid) == before, f"handlers {caught(program.pid)}, before {before}: {text}")
            shutil.rmtree(scene.trace)
        program.send_signal(signal.SIGUSR1) # and it crashes
        expect(program.wait(60) == -signal.SIGSEGV, f"status {program.returncode}")
        recorder.communicate()
        expect(program.stdout.read() == b"", "it has seen another disposition")
        crash = scene.crash()
        expect(crash is not None, "no crash.json")
        check_frames(crash["threads"][0], WILD, False)
        expect("\ncrashed    SIGSEGV" in "\n" + scene.info(), "info does not tell") # after that it is incomplete
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


for variant_name in BUILDS:
    for mode_name in MODES:
        case(f"{variant_name}/{mode_name}", variant=variant_name, mode=mode_name, alone=mode_name in ("thread", "many"),
             some=None if variant_name == "gcc-O2" else (variant_name, 5))(check_mode)


# A function that calls itself, with something in its call frame information.
FRAMES = """
        .globl deep
        .type deep, @function
deep:   .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset 3, -16
        ODD
        dec %edi
        jnz 1f
        ud2
1:      call deep
        pop %rbx
        ret
        .cfi_endproc
        .size deep, . - deep
        .globl main
        .type main, @function
main:   .cfi_startproc
        mov $20, %edi
        call deep
        .cfi_endproc
        .size main, . - main
        .section .note.GNU-stack, "", @progbits
"""
ODD_FRAMES = {"none": "", "states": ".rept 500000; .cfi_remember_state; .endr", "bytes": ".rept 50000; .cfi_escape 0x2e, 16; .endr",
              "registers": ".cfi_escape 7, 0xff, 0xff, 0xff, 0x3f"}


@case
def frames_without_end(scene):
    """Call frame information in a file that others may write to takes libdw any time and memory: it is not given that, and the stack ends there."""
    need("gcc")
    for name, odd in ODD_FRAMES.items():
        scene.write(name + ".s", FRAMES.replace("ODD", odd))
        subprocess.run(["gcc", "-o", name, name + ".s"], cwd=scene.folder, check=True)
        os.chmod(scene.path(name), 0o777)
        trace = scene.path(name + ".trace")
        status = subprocess.run(["timeout", "-s", "KILL", "300", scene.contrail, "record", "-q", "-o", trace, "--", scene.path(name)],
                                check=False).returncode
        expect(status == 128 + signal.SIGILL, f"{name}: status {status}")
        info = json.loads(scene.run(scene.contrail, "info", "--json", trace))
        frames, peak = len(info["crash"]["threads"][0]["backtrace"]), info["memory"]["recorder_peak_bytes"]
        expect((frames >= 21 if name == "none" else frames == 1) and peak < 80 << 20, f"{name}: {frames} frames, {peak} bytes of memory")


if __name__ == "__main__":
    main(__doc__, Scene)
