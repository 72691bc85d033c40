#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a first user meets: what is said at the end, where traces go and whose they are, processes by name, what is said when
there is nothing.

    tests/use.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import pty
import re
import shutil
import signal
import subprocess

import harness
from harness import case, longer, main, need_root, wait_for
from processes import NANOSLEEP, system_call_of

CRASH = "int wrong(volatile int *p) { return *p; } /* line 1 */\nint main(void) { return wrong((int *)0) + 1; }\n"
BARE = ".globl _start\n_start: mov $60, %eax\n mov $7, %edi\n syscall\n"
LOOP = ("#include <unistd.h>\nint step(int n) { usleep(5000); return n + 1; }\n"
        "int main(void) { int n = 0; while (n < 4000) n = step(n); return n == 0; }\n")
CALLS = ("#include <stdlib.h>\nint step(int n) { __asm__ volatile(\"\"); return n + 1; }\n"
         "int main(int argc, char **argv) {\n  int n = 0;\n  for (long i = atol(argv[1]); i != 0; i--) n = step(n);\n"
         "  return n < 0;\n}\n")


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.processes = []

    def build(self, name, text, *flags):
        source = self.write(name + (".s" if text is BARE else ".c"), text)
        return self.compile(source, "-O1", "-g", "-fno-inline", "-w", *flags, name=name)

    def run(self, *words, status=0, environment=None):
        """Standard error; the status must be that."""
        result = self.execute(self.contrail, *words, env=dict(os.environ, **(environment or {})))
        if result.returncode not in (status if isinstance(status, tuple) else (status,)):
            raise AssertionError(f"status {result.returncode}, not {status}: {result.stderr}")
        self.out = result.stdout
        return result.stderr

    def on_terminal(self, *words):
        """What is written to a terminal."""
        front, back = pty.openpty()
        process = subprocess.Popen([self.contrail, *words], cwd=self.folder, stdin=back, stdout=back, stderr=back,
                                   start_new_session=True)
        os.close(back)
        text = b""
        while True:
            try:
                got = os.read(front, 4096)
            except OSError:
                break
            if not got:
                break
            text += got
        os.close(front)
        process.wait(60)
        return text.decode().replace("\r", "")

    def start(self, *words):
        self.processes.append(subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL))
        return self.processes[-1]

    def sleeper(self, *words):
        """Started, and in its first sleep: the dynamic linker is done."""
        process = self.start(*words)
        wait_for("its first sleep", lambda: system_call_of(process.pid) == NANOSLEEP)
        return process

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def tells(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise AssertionError(f"{pattern!r} is not in {text!r}")


@case
def closing_line(scene):
    """On a terminal and with -v, not else, and not with -q."""
    line = r"contrail: [\d,]+ events of 1 thread, [\d.]+ .iB, nothing lost(, hooks took about \d+ % of its processor time( \(--budget 10% holds that\))?)?; next: " \
        r"contrail report\n"
    tells(scene.on_terminal("record", "--", "/bin/true"), line)
    tells(scene.run("record", "-v", "--", "/bin/true"), line)
    tells(scene.run("record", "-v", "-o", "named", "--", "/bin/true"), "next: contrail report named\n")
    for words in (("record", "--", "/bin/true"), ("record", "-q", "--", "/bin/true"), ("record", "-qv", "--", "/bin/true")):
        if scene.run(*words):
            raise AssertionError(f"{words} said something")
    if scene.on_terminal("record", "-q", "--", "/bin/true"):
        raise AssertionError("-q said something on a terminal")


def cost_of(scene, name):
    """The cost that info says of a trace, which is the same in JSON and as text."""
    scene.run("info", "--json", name)
    cost = json.loads(scene.out)["cost"]
    if not 0 <= cost["hooks_ns"] <= cost["program_cpu_ns"] or not 0 <= cost["share"] <= 1 or cost["recorder_cpu_ns"] <= 0:
        raise AssertionError(f"{cost}")
    if abs(cost["share"] - cost["hooks_ns"] / cost["program_cpu_ns"]) > 0.001:
        raise AssertionError(f"{cost}: the share is another one")
    scene.run("info", name)
    share = 100 * cost["share"]
    got = re.search(r"^cost +hooks took ([\d.]+) (\w+), ([\d.]+) % of the program's processor time \(estimated\); the recorder "
                    r"[\d.]+ \w+(; not in it: .*)?$", scene.out, re.M)
    if not got or abs(float(got[3]) - share) > (0.006 if share < 1 else 0.51):
        raise AssertionError(f"{cost} and {scene.out}")
    unit = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[got[2]]
    if abs(float(got[1]) * unit - cost["hooks_ns"]) > 0.01 * cost["hooks_ns"] + 1 or bool(got[4]) != bool(cost["left_out"]):
        raise AssertionError(f"{cost} and {got[0]}")
    return cost


@case
def cost(scene):
    """What recording took of the program's processor time: much where it does nothing but call, little where it sleeps."""
    scene.build("calls", CALLS)
    calls = scene.rounds(3000000, 20000000)
    line = scene.run("record", "-v", "-o", "bound", "--", "./calls", str(calls))
    bound = cost_of(scene, "bound")
    if not bound["share"] > 0.2 or bound["left_out"]:
        raise AssertionError(f"of a program that is bound by its calls: {bound}")
    tells(line, rf", hooks took about {100 * bound['share']:.0f} % of its processor time \(--budget 10% holds that\); next: ")
    line = scene.run("record", "-v", "-o", "asleep", "--", "/bin/sleep", "0.3")
    asleep = cost_of(scene, "asleep")
    if not asleep["share"] < 0.3 or not asleep["share"] < bound["share"] / 2 or not asleep["hooks_ns"] < bound["hooks_ns"] / 20:
        raise AssertionError(f"of one that sleeps: {asleep}")
    if ("hooks took" in line) != (asleep["share"] >= 0.01):
        raise AssertionError(f"{asleep} and {line}")
    # Each kind of event at the price that was measured when its recording began; those that are not in the trace took their
    # time as well. What a record of detail costs nobody has measured.
    whole = {"enter_before": calls, "enter_after": calls, "return_before": calls, "return_after": calls, "value": 2 * calls}
    for name, options, prices in (
            ("full", (), whole),  # with its one argument and its result, since the pattern is exact
            ("shallow", ("--trace", "main", "--max-depth", "1"), whole),
            ("light", ("--mode", "light", "--sample", "64"), {"sampled": calls / 64, "passed_over": calls * 63 / 64})):
        scene.run("record", "-o", name, "--trace", "step", *options, "--", "./calls", str(calls))
        with open(scene.path(name + "/manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        clock = manifest["clock"]
        tick = (clock["ns1"] - clock["ns0"]) / (clock["tsc1"] - clock["tsc0"])
        got = cost_of(scene, name)
        wanted = min(sum(manifest["hook_costs"][key] * count for key, count in prices.items()) * tick, got["program_cpu_ns"])
        if abs(got["hooks_ns"] - wanted) > 0.01 * wanted + 1000 or got["left_out"]:
            raise AssertionError(f"{name}: {got}, not {wanted}: {manifest['hook_costs']}")
    scene.run("record", "-o", "detailed", "--trace", "step", "--detail", "step", "--", "./calls", "1000")
    if "detail" not in cost_of(scene, "detailed")["left_out"]:
        raise AssertionError("nothing was left out")


@case
def cost_attached(scene):
    """Only the processor time since the attach counts; status says what it cost so far."""
    scene.build("calls", CALLS)
    process = scene.start(scene.path("calls"), "-1")
    wait_for("a second of its processor time", lambda: processor_ticks(process.pid) >= os.sysconf("SC_CLK_TCK"))
    attached = scene.start(scene.contrail, "attach", "-o", "trace", str(process.pid), "step")

    def status():
        result = scene.execute(scene.contrail, "status", "--json")
        got = json.loads(result.stdout)["cost"] if result.returncode == 0 else {"hooks_ns": 0, "program_cpu_ns": None}
        return got if got["program_cpu_ns"] and got["hooks_ns"] else None
    first = wait_for("a cost", status)
    second = wait_for("a higher cost", lambda: (status() or first)["hooks_ns"] > first["hooks_ns"] and status())
    if not 0.05 < second["share"] <= 1 or not second["program_cpu_ns"] > first["program_cpu_ns"]:
        raise AssertionError(f"{first}, then {second}")
    scene.run("status")
    tells(scene.out, r"\ncost +hooks took [\d.]+ \w+, \d+ % of the program's processor time \(estimated\); the recorder [\d.]+ ")
    scene.run("stop")
    attached.wait(60)
    before = processor_ticks(process.pid) / os.sysconf("SC_CLK_TCK") * 1e9
    last = cost_of(scene, "trace")
    if not second["hooks_ns"] <= last["hooks_ns"] or not last["program_cpu_ns"] < before - 0.9e9:
        raise AssertionError(f"{second}, at last {last}; the process has {before} ns by now")


def processor_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        words = file.read().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


@case
def cost_of_each(scene):
    """After an exec the process is the same one; each child that is followed has a cost of its own."""
    scene.build("calls", CALLS)
    scene.run("record", "-o", "tree", "--follow", "--", "/bin/sh", "-c", "./calls 5000000; exec ./calls 1000")
    child, = [name for name in os.listdir(scene.path("tree")) if name.startswith("process-")]
    first, of_child = cost_of(scene, "tree"), cost_of(scene, os.path.join("tree", child))
    if not of_child["share"] > 0.2 or not first["hooks_ns"] < of_child["hooks_ns"]:
        raise AssertionError(f"{first}, of the child {of_child}")
    scene.run("record", "-o", "exec", "--", "/bin/sh", "-c", "exec ./calls 5000000")
    if not cost_of(scene, "exec")["share"] > 0.2:
        raise AssertionError(f"{cost_of(scene, 'exec')}")


@case
def crash_line(scene):
    scene.build("crash", CRASH)
    tells(scene.run("record", "-v", "--", "./crash", status=139),
           r"ended by SIGSEGV in wrong at crash.c:1\n", r"next: contrail info\n")


@case
def old_directory(scene):
    """Two traces are kept, what is no trace is left alone, and so is one that is being recorded."""
    def words(name):
        with open(scene.path(name + "/manifest.json"), encoding="utf-8") as file:
            return json.load(file)["command"][-1]
    for word in ("1", "2", "3"):
        scene.run("record", "--", "/bin/echo", word)
    if (words("contrail.out"), words("contrail.out.old")) != ("3", "2"):
        raise AssertionError("not the last two")
    scene.run("record", "--", "/no/such/program", status=127)
    if words("contrail.out") != "3":
        raise AssertionError("moved for a program that is not there")
    tells(scene.run("record", "-o", "contrail.out", "--", "/bin/true", status=125), "already exists")
    shutil.rmtree(scene.path("contrail.out.old"))
    os.mkdir(scene.path("contrail.out.old"))
    with open(scene.path("contrail.out.old/precious"), "w", encoding="utf-8"):
        pass
    tells(scene.run("record", "--", "/bin/true", status=125), "contrail.out.old")
    if os.listdir(scene.path("contrail.out.old")) != ["precious"] or words("contrail.out") != "3":
        raise AssertionError("something was touched")
    shutil.rmtree(scene.path("contrail.out.old"))
    shutil.rmtree(scene.path("contrail.out"))
    scene.start(scene.contrail, "record", "--", "/bin/sleep", "30")
    wait_for("a manifest", lambda: os.path.exists(scene.path("contrail.out/manifest.json")))
    tells(scene.run("record", "--", "/bin/true", status=125), "still goes on")


@case
def old_instructions(scene):
    """Recorded instructions go out of the way, and into contrail.out.old, as traces do; not while they are recorded, nor
    with anything else beside them."""
    def what(name):
        path = scene.path(name)
        return sorted({entry.split(".")[0] for entry in os.listdir(path)}) if os.path.isdir(path) else None
    scene.run("record", "--", "/bin/true")
    scene.run("itrace", "-q", "--", "/bin/true")
    if (what("contrail.out"), "manifest" in what("contrail.out.old")) != (["steps"], True):
        raise AssertionError(f"not a trace before steps: {what('contrail.out')}, {what('contrail.out.old')}")
    scene.run("report")  # makes the calls, beside them
    scene.run("itrace", "-q", "--", "/bin/true")
    if (what("contrail.out"), what("contrail.out.old")) != (["steps"], ["calls", "steps"]):
        raise AssertionError(f"not steps twice: {what('contrail.out')}, {what('contrail.out.old')}")
    scene.run("record", "--", "/bin/true")
    if ("manifest" in what("contrail.out"), what("contrail.out.old")) != (True, ["steps"]):
        raise AssertionError(f"not steps before a trace: {what('contrail.out')}, {what('contrail.out.old')}")
    scene.run("itrace", "-q", "--", "/bin/true")
    scene.write("contrail.out/precious", "")
    for words in (("itrace", "-q"), ("record",)):
        tells(scene.run(*words, "--", "/bin/true", status=125), "already exists and is not empty")
    os.unlink(scene.path("contrail.out/precious"))
    scene.run("itrace", "-q", "--", "/bin/true")
    scene.write("contrail.out.old/precious", "")
    tells(scene.run("itrace", "-q", "--", "/bin/true", status=125), "contrail.out.old")
    if what("contrail.out") != ["steps"]:
        raise AssertionError("something was touched")
    shutil.rmtree(scene.path("contrail.out.old"))
    shutil.rmtree(scene.path("contrail.out"))
    scene.start(scene.contrail, "itrace", "-q", "--", "/bin/sleep", "30")
    wait_for("steps", lambda: what("contrail.out"))
    for words in (("itrace", "-q"), ("record",)):
        tells(scene.run(*words, "--", "/bin/true", status=125), "still goes on")


@case
def which_word_is_the_program(scene):
    """itrace takes a program as record does, and a number for a process; what --detail has taken is said."""
    scene.run("itrace", "-q", "-o", "a", "/bin/sh", "-c", "exit 5", status=5)
    tells(scene.run("itrace", "-q", "-o", "b", "4000000", "x", status=2), "one process at a time")
    tells(scene.run("record", "--detail", "/bin/echo", "no such program", status=127), "'/bin/echo' is the pattern of --detail")
    tells(scene.run("record", "--detail", "/bin/echo", status=2), "which program.*'/bin/echo' is the pattern of --detail")
    for words in (("--detail", "--"), ("--detail", "all", "--"), ()):
        said = scene.run("record", *words, "no such program", status=127)
        if "pattern" in said and "all" not in words:
            raise AssertionError(said)
    scene.run("record", "--detail", "--", "/bin/echo", "1")


@case
def last_lines(scene):
    """replay --tail: the last lines of the whole, whatever the filters and however many; of calls that began before what
    was read it is said."""
    scene.build("calls", CALLS)
    scene.run("record", "-o", "t", "--", "./calls", "30000")
    def lines(*words, status=0):
        scene.run("replay", *words, "t", status=status)
        return scene.out.splitlines()
    def known(line):
        row = json.loads(line)
        return [row.get(key) for key in ("ts_ns", "tid", "id", "kind", "name", "depth")]
    middle = str(json.loads(lines("--json", "-F", "step")[15000])["ts_ns"] / 1e9)
    for filters in ((), ("-F", "step"), ("-F", "main", "--depth", "1"), ("--type", "output"), ("--reason", "exit"), ("--to", middle)):
        whole = lines("--json", *filters, status=(0, 1))
        for count in (1, 7, 1000, 10 ** 9):
            got = lines("--json", *filters, "--tail", str(count), status=(0, 1))
            if [known(line) for line in got] != [known(line) for line in whole[-count:]]:
                raise AssertionError(f"{filters}, {count}: {got[:3]} ... {got[-3:]}")
    # Without the durations: some nanoseconds of hooks may be taken from other calls in a piece.
    text, tail = ([re.sub(r" +[0-9.]+ [nu]s ", " ", line) for line in lines("-F", "step", *words)] for words in ((), ("--tail", "50")))
    if tail != text[:1] + text[-50:]:
        raise AssertionError(f"not the same text: {[pair for pair in zip(tail, text[:1] + text[-50:]) if pair[0] != pair[1]][:3]}")
    scene.run("record", "-o", "longer", "--", "./calls", "2000000")
    scene.run("replay", "--tail", "1", "longer")
    tells(scene.out, r"\n.*entered before what is shown\n$")
    for words in (("--tail", "0"), ("--tail", "3", "-n", "3"), ("--tail", "3", "--live"), ("--tail", "3", "--from", "0.1")):
        lines(*words, status=2)


@case
def no_link_followed(scene):
    """A link in the place of the default directory, or in an old trace, leads nowhere."""
    scene.run("record", "--", "/bin/true")
    os.rename(scene.path("contrail.out"), scene.path("elsewhere"))
    os.symlink("elsewhere", scene.path("contrail.out"))
    scene.run("record", "--", "/bin/true", status=125)
    os.unlink(scene.path("contrail.out"))
    for turn in range(2):
        scene.run("record", "--", "/bin/true")
    os.symlink(scene.path("elsewhere"), scene.path("contrail.out.old/link"))
    scene.run("record", "--", "/bin/true")
    if not os.path.exists(scene.path("elsewhere/manifest.json")) or os.path.exists(scene.path("contrail.out.old/link")):
        raise AssertionError("a link was followed, or left")


@case
def under_sudo(scene):
    need_root()
    scene.run("record", "--follow", "-o", "t", "--", "sh", "-c", "/bin/true; /bin/true",
              environment={"SUDO_UID": "12345", "SUDO_GID": "23456"})
    found = []
    for folder, _, names in os.walk(scene.path("t")):
        found += [os.lstat(path) for path in [folder] + [os.path.join(folder, name) for name in names]]
    if len(found) < 9 or any((file.st_uid, file.st_gid) != (12345, 23456) for file in found):
        raise AssertionError([(file.st_uid, file.st_gid) for file in found])


@case
def children_missed(scene):
    command = ("sh", "-c", "/bin/true; /bin/true; :")
    tells(scene.run("record", "-v", "--", *command), "children were not recorded; contrail record --follow")
    scene.run("info")
    tells(scene.out, r"children +not recorded", r"started +2\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d", r"hooked \(\d+\.\d %\)")
    for words in (("-v", "--follow", "--", *command), ("-v", "--", "/bin/true")):
        if "children were not" in scene.run("record", *words):
            raise AssertionError(f"children are missed in {words}")
    tells(scene.run("record", "-v", "--follow", "--", *command), r"2 children were followed, \d{1,3}(,\d{3})+ events in them")
    tells(scene.run("record", "-v", "--follow", "--", "sh", "-c", "/bin/true; :"), r"1 child was followed, [\d,]+ events in it")


def faults_of_children(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[8])


def children_of(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        return file.read().split()


@case
def children_of_attached(scene):
    """A process that is attached to: which children it had before, and whether it made others meanwhile, is said: they are not recorded."""
    process = scene.start("sh", "-c", "trap : USR1; sleep 1000 & sleep 1001 & while :; do wait; /bin/true; done")
    pids = wait_for("its children", lambda: len(children_of(process)) == 2 and children_of(process))
    before, made = rf"note: 2 processes .* before are not recorded \({pids[0]}, {pids[1]}\): attach to them", "children of the process were not recorded"
    try:
        for words in ((), ("--follow",)):
            faults = faults_of_children(process.pid)
            with subprocess.Popen([scene.contrail, "attach", *words, str(process.pid)], cwd=scene.folder, stderr=subprocess.PIPE, text=True) as attached:
                said = attached.stderr.readline()
                process.send_signal(signal.SIGUSR1)  # it makes one, which ends at once
                wait_for("a child", lambda: faults_of_children(process.pid) > faults)  # pylint: disable=cell-var-from-loop
                attached.send_signal(signal.SIGINT)
                said += attached.stderr.read()
            tells(said, "attached to", before)
            if (made in said) != (not words):
                raise AssertionError(f"with {words}: {said}")
            scene.run("info")
            tells(scene.out, "note +2 processes .* before are not recorded", *(["children +not recorded; contrail attach --follow"] if not words else []))
        said = scene.run("attach", "--for", "100ms", str(process.pid), status=(0, 125))
        tells(said, before)
        if made in said:
            raise AssertionError(f"it made none: {said}")
    finally:
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)


@case
def times_of_none(scene):
    """A module of which only enters are recorded: the report says why no function of it has times."""
    program = scene.build("withnames", CALLS, "-static")
    reason = "functions of (\\w+) have no times: its unwinder has no name"
    scene.run("record", "-q", "--", program, "100")
    scene.run("report", "-n", "1")
    if re.search(reason, scene.out):
        raise AssertionError(scene.out)
    shutil.copy(program, scene.path("nameless"))
    subprocess.run(["strip", "-s", scene.path("nameless")], check=True)
    scene.run("record", "-q", "--", scene.path("nameless"), "100")
    scene.run("report", "-n", "1")
    found = re.search(reason, scene.out)
    if not found or found[1] != "nameless":
        raise AssertionError(scene.out)


@case
def option_p(scene):
    tells(scene.run("record", "-p", "1", status=2), "contrail attach PID")


@case
def by_name(scene):
    program = scene.build("uniquely-named", LOOP)
    scene.sleeper(program)

    def records(words):
        said = scene.run("attach", *words, "uniquely-named", "step", status=(0, 125))
        tells(said, "attached to process", r"[1-9]\d* events|nothing was recorded")
        return "nothing was recorded" not in said
    longer(0.3, records)
    scene.sleeper(program)
    tells(scene.run("attach", "--for", "300ms", "uniquely-named", status=2), r"2 processes are named .* \(\d+, \d+\)")
    tells(scene.run("attach", "no-such-name-anywhere", status=2), "there is no process named")


@case
def nothing_recorded(scene):
    scene.build("bare", BARE, "-nostdlib", "-static", "-s")
    tells(scene.run("record", "--", "./bare", status=7), "nothing was recorded: no function of the program is known")
    tells(scene.run("record", "--trace", "nosuch", "--", "/bin/true"), "nothing was recorded: none of the functions")
    process = scene.sleeper(scene.build("loop", LOOP))
    tells(scene.run("attach", "--for", "300ms", str(process.pid), "nosuch", status=125), "nothing was recorded: none of the")


@case
def trace_none(scene):
    """Nothing is hooked; output and the crash are there, and patterns may come."""
    scene.build("crash", CRASH)
    if "nothing was recorded" in scene.run("record", "--trace", "none", "--", "./crash", status=139):
        raise AssertionError("it was asked for")
    scene.run("info", "--json")
    info = json.loads(scene.out)
    if info["events"] != 0 or sum(module["hooked"] for module in info["modules"]) != 0 or info["crash"]["name"] != "SIGSEGV":
        raise AssertionError(info)
    tells(scene.run("record", "-v", "--trace", "none", "--", "/bin/echo", "words"), r"next: contrail output\n")
    scene.run("output")
    tells(scene.out, "words")
    scene.start(scene.contrail, "record", "-o", "live", "--trace", "none", "--", scene.build("none-loop", LOOP))
    def sessions():
        scene.run("sessions", "--json")
        return [s["id"] for s in json.loads(scene.out)["sessions"] if "none-loop" in json.dumps(s)]
    mine = wait_for("a session", sessions)[0]
    scene.run("trace", mine, "add", "step")

    def events():
        scene.run("status", "--json", mine)
        return json.loads(scene.out)["events"]
    wait_for("events", events)
    scene.run("stop", mine)
    scene.run("report", "--json", "live")
    if [row["name"] for row in json.loads(scene.out)["functions"]] != ["step"]:
        raise AssertionError(scene.out)


@case
def little_known(scene):
    """A program of whose text little is known."""
    text = "int main(void) { return 0; }\nasm(\".text\\n.fill 200000, 1, 0x90\\n\");\n"
    scene.build("vast", text, "-s")
    tells(scene.run("record", "--", "./vast"), r"note: only [\d.]+ % of the text of vast belongs to known functions")
    scene.run("info")
    tells(scene.out, r"note +only", r"0\.\d\d %  .*/vast")
    scene.run("plan", "vast")
    tells(scene.out, r"0\.\d\d % of 19\d\.\d KiB of text belongs to known functions; calls in the rest")
    text = "#include <sys/wait.h>\n#include <unistd.h>\n" + text.replace("return 0;", "if (fork() != 0) wait(0); return 0;")
    scene.build("vasts", text, "-s")
    said = scene.run("record", "--follow", "-o", "vasts.out", "--", "./vasts")
    if said.count("belongs to known functions") != 1:
        raise AssertionError(f"not once: {said}")


@case
def nothing_matches(scene):
    """It is said, with names that may be meant; with --json and -q it is status 1."""
    scene.build("crash", CRASH)
    scene.run("record", "--", "./crash", status=139)
    for command in ("report", "replay"):
        tells(scene.run(command, "--function", "wrogn"), "no function matches 'wrogn'; perhaps wrong\n")
        tells(scene.run(command, "--function", "Wrong*", "--json", status=1), "perhaps wrong\n")
        tells(scene.run(command, "--module", "nosuch", "-q", status=1), "no module matches 'nosuch'")
        if scene.run(command, "--function", "wrong", "-q") or scene.out:
            raise AssertionError("-q showed something")
        if scene.run(command, "--function", "wrong", "--json") or "wrong" not in scene.out:
            raise AssertionError("not found")
    tells(scene.run("report", "--function", "deregister_tm_clones", "--json", "--module", "crash", status=(0, 1)), "^$|none was called")


@case
def places(scene):
    tells(scene.run("record", "-o", "/proc/trace", "--", "/bin/true", status=125), "no directory can be made in /proc")


@case
def patterns_match_nothing(scene):
    """Patterns of record, attach, plan, trace and exclude: the same, of all modules that were looked at."""
    scene.build("loop", LOOP)
    for pattern, likely in (("stpe", "perhaps step"), ("ste", "perhaps step"), ("loop!maim", "perhaps main"),
                            ("libc.so.6!mallocc", "perhaps malloc"), ("looop!main", "no such module; perhaps loop"),
                            ("@file:looop.c", "perhaps loop.c")):
        tells(scene.run("plan", "--trace", pattern, "--json", "./loop", status=1), "matched no function")
        target = scene.start("./loop")
        err = scene.run("attach", "--for", "50ms", "-o", "t", str(target.pid), pattern, status=125)
        tells(err, f"--trace '{re.escape(pattern)}' matched no function: {re.escape(likely)}")
        shutil.rmtree(scene.path("t"))
        target.kill()
    tells(scene.run("record", "--exclude", "stpe", "--trace", "none", "--", "/bin/true"), "--exclude 'stpe' matched no function")
    target = scene.start("./loop")
    attach = scene.start(scene.contrail, "attach", "-q", "-o", "t", str(target.pid), "main")
    wait_for("a session", lambda: scene.execute(scene.contrail, "status", str(target.pid)).returncode == 0)
    for verb in ("trace", "exclude"):
        said = f"^contrail {verb}: 'stpe' matches no function of the process: perhaps step\n$"
        tells(scene.run(verb, str(target.pid), "add", "stpe"), said)
        tells(scene.run(verb, str(target.pid), "add", "--json", "stpe", status=1), said)
    if scene.run("trace", str(target.pid), "add", "--json", "step"):
        raise AssertionError("a pattern that matches")
    attach.terminate()
    attach.wait(60)


if __name__ == "__main__":
    main(__doc__, Scene)
