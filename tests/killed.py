#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail is killed (SIGKILL) at random moments: while it plans, while it has the process stopped to put hooks in, while it
records, while its patterns change, while it has it stopped to take hooks out. The program under load lives and answers right, and what is left in it is
taken out by `contrail clean` or by the next `contrail attach`: then every byte of code is as in the file, nothing of
ours is mapped or open, gs is 0, and the trace so far can be read.

    tests/killed.py [--turns N] [--seconds N] [--filter PATTERN] [--build DIR] [--seed N]
"""
import ctypes
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import attach
import harness
from attach import Counting, Target
from harness import SEED, Running, case, expect, lot, main, need, wait_for
from processes import children_of, state_of

STORES = range(0x5c0000000000, 0x600000000000)  # the stacks' addresses, less 2^45
REGISTERS = 27 * 8  # struct user_regs_struct
GS_BASE = 22  # its place there
PTRACE_GETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 17, 0x4206, 0x4207
WALL = 0x40000000

EXECS = 'n=$(($1 + 1)); echo $n; exec sh "$0" $n\n'
FORKS = "n=0; while :; do /bin/true; n=$((n + 1)); echo $n; done\n"
LOADS = """
import ctypes, _ctypes
n = 0
while True:
    for name in ("libbz2.so.1.0", "liblzma.so.5", "libcrypt.so.1", "libexpat.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        assert hasattr(library, "BZ2_bzlibVersion") == (name == "libbz2.so.1.0")
        _ctypes.dlclose(library._handle)
    n += 1
    print(n, flush=True)
"""


def execs(folder):
    return Counting(folder, [need("sh"), Target(folder).write("execs.sh", EXECS), "0"])


def forks(folder):
    return Counting(folder, [need("sh"), Target(folder).write("forks.sh", FORKS)])


def loads(folder):
    return Counting(folder, [need("python3"), Target(folder).write("loads.py", LOADS)])


# Those that contrail record starts, by the words for it; they are its children.
def recorded(name, words):
    def make(folder, contrail):
        target = Target(folder)
        target.out = os.path.join(folder, "out")
        with open(target.out, "wb") as out:
            target.recorder = target.start(contrail, "record", "-o", os.path.join(folder, "trace"), "--",
                                           *words(target), stdout=out, stderr=out)
        return target
    make.__name__ = name
    return make


RECORDED = [
    recorded("record_python", lambda target: [need("python3"), target.write("load.py", attach.PYTHON)]),
    recorded("record_threads", lambda target: [attach.compiled(target.folder, "threads.cpp"), str(attach.THREADS["count"])]),
    recorded("record_execs", lambda target: [need("sh"), target.write("execs.sh", EXECS), "0"]),
    recorded("record_loads", lambda target: [need("python3"), target.write("loads.py", LOADS)]),
    recorded("record_forks", lambda target: [need("sh"), target.write("forks.sh", FORKS)]),
]


def status_of(pid, key):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((line.split()[1] for line in file if line.startswith(key + ":")), None)
    except OSError:
        return None


def is_stopped(pid):
    return status_of(pid, "TracerPid") not in ("0", None)


def our_descriptors(pid):
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += [name] if "memfd:contrail" in os.readlink(f"/proc/{pid}/fd/{name}") else []
        except OSError:
            pass
    return found


def extra_mappings(pid):
    """What of ours is mapped: the ring, what lies near it, return stores, code that is in no file."""
    extra = []
    for line in attach.maps_of(pid):
        fields = line.split(None, 5)
        lo = int(fields[0].split("-")[0], 16)
        if attach.is_ours(line) or lo in STORES or (
                fields[1] == "r-xp" and len(fields) < 6):
            extra.append(line)
    return extra


def gs_bases(pid):
    """Of the threads that live through the question."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    registers = (ctypes.c_ulonglong * (REGISTERS // 8))()
    found = set()
    for tid in [int(name) for name in os.listdir(f"/proc/{pid}/task")]:
        if libc.ptrace(PTRACE_SEIZE, tid, None, None) != 0:
            continue
        libc.ptrace(PTRACE_INTERRUPT, tid, None, None)
        try:
            _, status = os.waitpid(tid, WALL)
        except ChildProcessError:
            continue
        if os.WIFSTOPPED(status):
            if libc.ptrace(PTRACE_GETREGS, tid, None, ctypes.byref(registers)) == 0:
                found.add(registers[GS_BASE])
            number = os.WSTOPSIG(status) if status >> 16 == 0 else 0
            libc.ptrace(PTRACE_DETACH, tid, None, number)
    return found


def what_is_left(pid):
    """Where the killed one had come to, by what it left in the process."""
    if not extra_mappings(pid) and not our_descriptors(pid):
        return "nothing"
    return "hooks" if attach.code_differs(pid) else "no hooks"


class Killer:
    """Starts contrail attach, and kills it in a phase, at a moment of that phase that is drawn by lot."""

    PHASES = ("plan",) + 3 * ("put in",) + 2 * ("run",) + 3 * ("change",) + 3 * ("take out",)
    PATTERN = "lib*.so*!*"  # the others are hooked or not in turn

    def __init__(self, options, folder, pid, dice):
        self.options, self.folder, self.pid, self.dice = options, folder, pid, dice
        self.trace = os.path.join(folder, "trace")
        self.plan_s = self.stop_s = self.undo_s = 0.05

    def words(self, seconds, *patterns):
        return [self.options.contrail, "attach", "--for", f"{seconds * 1000:.0f}ms", "-o", self.trace, str(self.pid),
                *patterns]

    def measure(self):
        """How long its phases take, by letting it be."""
        for _ in range(3):
            begin = time.monotonic()
            process = subprocess.Popen(self.words(0.02), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            first = process.stderr.readline().decode()
            attached = time.monotonic() - begin
            rest = first + process.communicate(timeout=300)[1].decode(errors="replace")
            if not attach.was_given_up(process.returncode, rest):
                break
        held = [float(number) / 1e3 for number in re.findall(r"stopped for ([0-9.]+) ms", rest)]
        assert process.returncode == 0 and len(held) == 2, rest
        self.stop_s, self.undo_s = held
        self.plan_s = max(attached - held[0], 0.001)
        shutil.rmtree(self.trace)

    def await_stop(self, process, end):
        while not is_stopped(self.pid) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.0002)  # who is waited for needs the processor

    def change(self, process):
        """Patterns come and go until it is dead; who asked for them is told then."""
        trace = shlex.join([self.options.contrail, "trace", str(self.pid)])
        asking = subprocess.Popen(["sh", "-c", f"while {trace} add '*!*' && {trace} remove '*!*'; do :; done"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(self.dice.randrange(1, 4)):  # one of the first times that it is stopped
            self.await_stop(process, time.monotonic() + 30)
            time.sleep(self.dice.uniform(0, self.stop_s))
        process.kill()
        error = asking.communicate(timeout=300)[1].decode(errors="replace")
        assert error.startswith("contrail") and error.count("\n") == 1, f"who asked for a change was told {error!r}"

    def kill(self, phase):
        shutil.rmtree(self.trace, ignore_errors=True)
        run_s = 30 if phase in ("run", "change") else 0.03
        patterns = [self.PATTERN] if phase == "change" else []
        process = subprocess.Popen(self.words(run_s, *patterns), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        end = time.monotonic() + 30
        if phase == "plan":
            time.sleep(self.dice.uniform(0, self.plan_s))
        elif phase == "put in":
            self.await_stop(process, end)
            time.sleep(self.dice.uniform(0, self.stop_s))
        else:
            process.stderr.readline()  # it is attached
            if phase == "run":
                time.sleep(self.dice.uniform(0, 0.2))
            elif phase == "change":
                self.change(process)
            else:
                time.sleep(0.02)  # a moment like any other
                self.await_stop(process, end)
                time.sleep(self.dice.uniform(0, self.undo_s))
        process.kill()
        process.communicate()
        return process.returncode


def run(*words, timeout=300):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def check_trace(options, trace):
    """It can be read up to its last whole block, or was not begun."""
    if os.path.exists(os.path.join(trace, "manifest.json")):
        status, out, err = run(options.contrail, "info", "--json", trace)
        assert status == 0 and "events" in json.loads(out), f"the trace cannot be read: {err}"
    shutil.rmtree(trace, ignore_errors=True)


def place_of_memmove():
    """The path of libc, and the offset in it of the memmove that this processor takes."""
    address = ctypes.cast(ctypes.CDLL(None).memmove, ctypes.c_void_p).value
    for line in attach.maps_of(os.getpid()):
        span, _, offset, _, _, *path = line.split(None, 5)
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high and path:
            return path[0], address - low + int(offset, 16)
    return None, 0


GUARDED = ("libc.so", "libgcc_s", "ld-linux", "greenlet")  # they have guards themselves, which go one after the other


def lacks_guard(pid):
    """There are other hooks than guards, and none on memmove, which keeps trampolines' addresses out of copied stacks."""
    libc, offset = place_of_memmove()
    if not any(all(name not in place for name in GUARDED) for place in attach.code_differs(pid)):
        return False
    for line in attach.maps_of(pid):
        span, _, start, _, _, *path = line.split(None, 5)
        low, high = (int(part, 16) for part in span.split("-"))
        if path and path[0] == libc and 0 <= offset - int(start, 16) < high - low:
            with open(f"/proc/{pid}/mem", "rb") as memory, open(libc, "rb") as file:
                memory.seek(low + offset - int(start, 16))
                file.seek(offset)
                return memory.read(16) == file.read(16)
    return False


def check_restored(pid, before):
    wrong = attach.code_differs(pid)
    assert not wrong, f"code is not as in the file: {wrong[:3]}"
    extra = [line for line in extra_mappings(pid) if line.split()[0] not in before]
    assert not extra, f"left mapped: {extra[:5]}"
    assert not our_descriptors(pid), f"left open: {our_descriptors(pid)}"
    bases = gs_bases(pid)
    assert bases <= {0}, f"gs is {[hex(base) for base in bases]}"


def restore(options, pid, by_attach, trace):
    """A thread may be in a handler above one of our places for a while, or find no processor; then once more."""
    for _ in range(10):
        if by_attach:
            status, _, err = run(options.contrail, "attach", "--for", "50ms", "-o", trace, str(pid))
            assert status == 0 or attach.was_given_up(status, err), f"attach after a kill: status {status}: {err}"
            check_trace(options, trace)
        else:
            status, _, err = run(options.contrail, "clean", str(pid))
            assert status == 0 or attach.was_given_up(status, err), f"clean after a kill: status {status}: {err}"
        if status == 0 and "note: a thread has not left" not in err:
            return
        time.sleep(0.2)  # between two tries
    raise AssertionError(f"ten times: {err}")


def other_tools(pid):
    """A debugger and a system call tracer can attach to it as to any other process."""
    if shutil.which("gdb"):
        status, out, err = run("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex",
                               "set auto-solib-add off", "-p", str(pid), "-ex", "info registers rip")
        assert status == 0 and "rip" in out, f"gdb: {err[-300:]}"
    if shutil.which("strace"):
        # not -f: it hangs by itself when the process has made children by vfork meanwhile
        tracer = subprocess.Popen(["strace", "-o", "/dev/null", "-p", str(pid)], stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        first = tracer.stderr.readline().decode()
        time.sleep(0.05)  # some calls of the system under strace
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=300)
        assert "attached" in first, f"strace: {first}"
    assert not is_stopped(pid)


def speed(target):
    """What it gets done in a second."""
    begin, first = time.monotonic(), target.done()
    time.sleep(0.3)  # a duration of which the work is counted
    return (target.done() - first) / (time.monotonic() - begin)


def add_done(target):
    if isinstance(target, attach.Redis):
        target.done = lambda: int(re.search(r"total_commands_processed:(\d+)", target.ask("INFO stats"))[1])
    else:
        target.done = lambda: os.stat(target.out).st_size
    return target


class Tally:
    def __init__(self):
        self.hits, self.speeds, self.turns = {}, {"before": [], "killed": [], "after": []}, 0
        self.bare = 0  # kills that left hooks without the one on memmove

    def hit(self, phase, left):
        self.hits[(phase, left)] = self.hits.get((phase, left), 0) + 1

    def __str__(self):
        phases = {}
        for (phase, left), count in sorted(self.hits.items()):
            phases.setdefault(phase, []).append(f"{left} {count}")
        text = "; ".join(f"{phase}: {', '.join(lefts)}" for phase, lefts in phases.items())
        middle = {key: sorted(values)[len(values) // 2] for key, values in self.speeds.items() if values}
        if middle.get("before"):
            text += "; speed" + "".join(f", {key} {value / middle['before']:.2f}" for key, value in middle.items())
        return f"{self.turns} kills; left behind by kills in " + text


def attach_turns(options, make, dice):
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="contrail-killed-") as folder:
        target = add_done(make(folder))
        pid = target.process.pid
        try:
            before = {line.split()[0] for line in extra_mappings(pid)}
            jit = bool(before) or make.__name__ == "node"
            killer = Killer(options, folder, pid, dice)
            killer.measure()
            tally.speeds["before"] += [speed(target) for _ in range(3 if options.long else 1)]
            end = time.monotonic() + options.seconds
            while tally.turns < options.turns and time.monotonic() < end:
                turn = tally.turns
                phase = dice.choice(Killer.PHASES)
                status = killer.kill(phase)
                assert target.process.poll() is None, f"turn {turn}, {phase}: it ended with {target.process.returncode}"
                left = what_is_left(pid) if not jit else "-"
                tally.bare += left == "hooks" and lacks_guard(pid)
                # once a thread may have stood in memmove's first bytes when the hooks were put in
                assert tally.bare < 2, f"turn {turn}, killed in {phase}: hooks, but none on memmove, for the second time"
                if status == 0:
                    left += " (too late)"
                try:
                    target.check()
                    if phase == "run" and turn % 4 == 0:
                        tally.speeds["killed"].append(speed(target))
                    check_trace(options, killer.trace)
                    restore(options, pid, dice.random() < 0.5, killer.trace)
                    if jit:  # mappings of its own come and go
                        before = {line.split()[0] for line in extra_mappings(pid) if not attach.is_ours(line)}
                    check_restored(pid, before)
                    target.check()
                    if turn % 10 == 9:
                        other_tools(pid)
                except (AssertionError, OSError) as error:
                    raise AssertionError(f"turn {turn}, killed in {phase}, left {left}: {error}; "
                                         f"status {target.process.poll()}") from error
                assert target.process.poll() is None, f"turn {turn}, {phase}: it ended with {target.process.returncode}"
                tally.hit(phase, left)
                tally.turns += 1
            tally.speeds["after"] += [speed(target) for _ in range(3 if options.long else 1)]
        finally:
            target.stop()
    return str(tally)


def child_of(pid):
    """Any thread may have started it."""
    return next(iter(children_of(pid)), None)


def counted(path, whole):
    """The lines of numbers it has written, each one more than the last."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    lines = [line for line in lines if not line.startswith(b"contrail: ")]
    wrong = [line for number, line in enumerate(lines, 1) if line != b"%d" % number]
    assert not wrong or not whole, f"it wrote {wrong[:3]}"
    return len(lines)


def one_recorded(options, make, dice, folder, tally):
    target = make(folder, options.contrail)
    pid = None
    try:
        late = dice.random() < 0.5
        end = time.monotonic() + 60
        while late and counted(target.out, True) < 2:
            assert target.recorder.poll() is None, f"contrail ended: {open(target.out, 'rb').read()[-300:]}"
            assert time.monotonic() < end, "it does not begin"
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.1 if late else 0.15))
        pid = child_of(target.recorder.pid)
        target.recorder.kill()
        target.recorder.wait()
        own = os.path.realpath(options.contrail)
        for _ in range(200):  # one that had not become the program yet ends by itself
            if pid is None or not os.path.exists(f"/proc/{pid}/exe") or os.path.realpath(f"/proc/{pid}/exe") != own:
                break
            time.sleep(0.01)  # one of some looks
        lives = pid is not None and status_of(pid, "State") not in (None, "Z")
        begun = counted(target.out, True) > 0
        assert lives or not begun, "the program did not go on"
        if not lives:
            tally.hit("start", "not begun")
            return
        left = what_is_left(pid)
        first, end = counted(target.out, True), time.monotonic() + 60
        while counted(target.out, True) < first + 3:
            assert status_of(pid, "State") not in (None, "Z"), "the program died"
            assert time.monotonic() < end, f"the program does nothing any more (left {left})"
            time.sleep(0.01)
        check_trace(options, os.path.join(folder, "trace"))
        restore(options, pid, dice.random() < 0.5 and "execs" not in make.__name__, os.path.join(folder, "trace"))
        check_restored(pid, set())
        first, end = counted(target.out, True), time.monotonic() + 60
        while counted(target.out, True) < first + 2:
            assert status_of(pid, "State") not in (None, "Z"), "the program died after it was cleaned"
            assert time.monotonic() < end, "the program does nothing any more, cleaned"
            time.sleep(0.01)
        tally.hit("run" if late else "start", left)
    finally:
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        target.stop()


def record_turns(options, make, dice):
    tally = Tally()
    end = time.monotonic() + options.seconds
    while tally.turns < options.turns and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="contrail-killed-") as folder:
            one_recorded(options, make, dice, folder, tally)
        tally.turns += 1
    return str(tally)


class Scene(harness.Scene):
    def __init__(self, options, folder, make, turns=None, point=None, by_attach=False):
        super().__init__(options, folder)
        self.point, self.by_attach = point, by_attach
        seed = SEED if options.seed is None else options.seed
        self.make, self.turns, self.dice = make, turns, random.Random(f"{seed} {make.__name__}")
        self.again = f" --seed {seed}"


def kill_often(scene):
    # With hooks a hundred threads keep all processors, and contrail gets its share of them, some hundredths: a turn takes a minute or two.
    attach.THREADS["count"] = 15 if scene.options.few else 100
    return scene.turns(scene.options, scene.make, scene.dice)


# Where contrail stands, and what of it is in the process when it is killed there.
POINTS = {"attach-planned": "nothing", "attach-stopped": "nothing", "attach-mapped": "no hooks", "attach-hooked": "hooks",
          "session-resumed": "hooks", "detach-stopped": "hooks", "detach-unhooked": "nothing", "detach-resumed": "nothing"}


def kill_at_point(scene):
    """Killed at a test point (base/test_point.h): no matter of luck."""
    target = scene.make(scene.folder)
    try:
        pid = target.process.pid
        before = {line.split()[0] for line in extra_mappings(pid)}
        words = [scene.contrail, "attach", "--for", "50ms", "-o", scene.trace, str(pid)]
        with Running(words, env=dict(os.environ, CONTRAIL_TEST_POINT=scene.point), stderr=subprocess.DEVNULL) as recorder:
            wait_for(scene.point, lambda: state_of(recorder.pid) == "T" or recorder.poll() is not None)
            expect(recorder.poll() is None, f"contrail ended with {recorder.returncode}")
            held = is_stopped(pid)
            recorder.kill()
        expect(held == (scene.point not in ("attach-planned", "session-resumed", "detach-resumed")), f"the process was {'' if held else 'not '}held")
        wait_for("the end of the hold", lambda: not is_stopped(pid))
        target.check()
        left = what_is_left(pid)
        expect(left == POINTS[scene.point], f"left behind: {left}, not {POINTS[scene.point]}")
        check_trace(scene.options, scene.trace)
        restore(scene.options, pid, scene.by_attach, scene.trace)
        check_restored(pid, before)
        target.check()
        return left
    finally:
        target.stop()


def choose(cases, options):
    """--few: of the programs that are killed at random moments a third, by lot."""
    often = [one for one in cases if one.function is kill_often]
    left_out = lot("killed").sample(often, 2 * len(often) // 3) if options.few and not options.filter else []
    return [one for one in cases if one not in left_out]


def arguments(parser):
    parser.add_argument("--few", action="store_true", help="of the programs half, by lot; all test points")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=600, help="at most so long for each target")
    parser.add_argument("--seed", type=int, default=None)


for point_reached in POINTS:
    for with_attach in (False, True):
        case(f"at_{point_reached}_{'attach' if with_attach else 'clean'}", make=attach.coroutines, point=point_reached,
             by_attach=with_attach)(kill_at_point)
for target_made in attach.TARGETS + [loads, forks]:
    case(target_made.__name__, make=target_made, turns=attach_turns, alone=True)(kill_often)
for target_made in RECORDED:
    case(target_made.__name__, make=target_made, turns=record_turns, alone=True)(kill_often)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose)
