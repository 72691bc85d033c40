#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Live sessions from outside: contrail sessions, status, pause, resume, stop, and the socket behind them, with programs
that run meanwhile and count for themselves.

    tests/control.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import harness
from harness import Running, case, expect, main, need, need_root, wait_for
from processes import state_of

WAIT = 300


class Program:
    """One that is running: by itself, or under contrail record."""

    def __init__(self, words, environment=None):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                        stderr=subprocess.PIPE)
        self.hear("ready")

    def hear(self, expected):
        line = self.process.stdout.readline().strip()
        if line != expected:
            raise AssertionError(f"the program says {line!r}, not {expected!r}")

    def say(self, name, count):
        self.process.stdin.write(f"{name} {count}\n")
        self.process.stdin.flush()

    def call(self, name, count):
        self.say(name, count)
        self.hear(f"{name} {count}")

    def end(self):
        """Its status, and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=WAIT)
        return self.process.returncode, errors


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.runtime = os.path.join(folder, "runtime")
        self.sockets = os.path.join(self.runtime, "contrail")
        os.mkdir(self.runtime, 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.runtime)
        self.program = self.compile("programs/calls.c", "-O1", name="program", compiler="cc")
        self.programs, self.others, self.traces = [], [], 0

    def next_trace(self):
        self.traces += 1
        return os.path.join(self.folder, f"{self.traces}.trace")

    def run(self, *words, status=0, prefix=()):
        result = self.execute(*prefix, self.contrail, *words)
        if result.returncode != status:
            raise AssertionError(f"contrail {' '.join(words)}: status {result.returncode}, not {status}: "
                                 f"{result.stdout.strip()} {result.stderr.strip()}")
        return result.stdout if status == 0 else result.stderr

    def json(self, *words, status=0):
        """Of a failure too the answer is on stdout."""
        result = self.execute(self.contrail, *words, "--json")
        equal(result.returncode, status, f"status of {words}: {result.stderr}")
        return json.loads(result.stdout)

    def start(self):
        self.programs.append(Program([self.program]))
        return self.programs[-1]

    def record(self, *options):
        trace = self.next_trace()
        program = Program([self.contrail, "record", "-o", trace, *options, "--", self.program], self.environment)
        self.programs.append(program)
        return program, trace

    def attach(self, program, *options, prefix=()):
        """(contrail, id, trace) of a session whose hooks are in."""
        trace = self.next_trace()
        words = [*prefix, self.contrail, "attach", "-o", trace, *options, str(program.process.pid)]
        contrail = subprocess.Popen(words, env=self.environment, stderr=subprocess.PIPE, text=True)
        self.others.append(contrail)
        line = contrail.stderr.readline()
        if "attached to" not in line:
            raise AssertionError(f"not attached: {line}{contrail.communicate(timeout=WAIT)[1]}")
        return contrail, f"program-{program.process.pid}", trace

    def session_of(self, pid):
        return next(s for s in self.json("sessions")["sessions"] if s["controller"] == pid)

    def calls(self, trace, *names):
        """How often each was called, by the trace, which must be whole."""
        info, report = self.json("info", trace), self.json("report", trace)
        if any(thread["dropped"] for thread in info["threads"]):
            raise AssertionError("events were dropped")
        found = {f["name"]: f["calls"] for f in report["functions"] if f["module"] == "program"}
        return tuple(found.get(name, 0) for name in names)

    def connect(self, session):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(os.path.join(self.sockets, session + ".sock"))
        client.settimeout(WAIT)
        return client

    def ask(self, session, request):
        """The answer to a request, sent as it is when it is bytes."""
        with self.connect(session) as client:
            client.sendall(request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n")
            client.shutdown(socket.SHUT_WR)
            text = b"".join(iter(lambda: client.recv(65536), b""))
        return json.loads(text) if text else None

    def close(self):
        for child in [program.process for program in self.programs] + self.others:
            if child.poll() is None:
                child.kill()
            child.communicate()


def equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r}, not {wanted!r}")


def call(method, number=1, **params):
    return {"jsonrpc": "2.0", "method": method, "id": number, **({"params": params} if params else {})}


# ---- the commands ----


@case("sessions and status")
def listed(scene):
    """A recording of each kind, what is shown of them, and how they are named."""
    equal(scene.json("sessions"), {"sessions": []}, "sessions before there was one")
    equal(scene.run("sessions"), "", "sessions before there was one")
    scene.run("status", status=3), scene.run("stop", status=3)
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    program.call("first", 1000)
    status = scene.json("status")
    wanted = {"id": name, "pid": program.process.pid, "controller": contrail.pid, "program": scene.program, "trace": trace,
              "state": "running", "attached": True, "ended": False, "detached": False, "dropped": 0, "interval": 1}
    equal({key: status[key] for key in wanted}, wanted, "status")
    if not 0 < status["hooked"] <= status["functions"] or not abs(status["since_wall_ns"] / 1e9 - time.time()) < 3600:
        raise AssertionError(f"status: {status}")
    for word in (name, str(program.process.pid), "program"):
        equal(scene.json("status", word)["id"], name, f"status {word}")
    text = scene.run("status")
    if name not in text or "state      running" not in text:
        raise AssertionError(f"status as text: {text}")

    other, other_trace = scene.record()
    sessions = scene.json("sessions")["sessions"]
    equal(sorted(s["controller"] for s in sessions), sorted([contrail.pid, other.process.pid]), "two sessions")
    second = scene.session_of(other.process.pid)
    equal((second["attached"], second["trace"]), (False, other_trace), "the recorded program")
    lines = scene.run("sessions").splitlines()
    equal([line.split()[0] for line in lines], ["session"] + sorted([name, second["id"]]), "sessions as text")
    if "which one" not in scene.run("status", status=2):
        raise AssertionError("several sessions, and none is asked for")
    scene.run("status", "program", status=2), scene.run("status", "progra", status=3), scene.run("status", "1", status=3), scene.run("status", "../x", status=3)
    scene.run("status", name, name, status=2), scene.run("stop", "--never", status=2)
    scene.run("stop", name), scene.run("stop", second["id"])
    contrail.wait(20)
    left = [s["id"] for s in scene.json("sessions")["sessions"]]
    if name in left or not set(left) <= {second["id"]}:  # the recorder of the other goes on until its program ends
        raise AssertionError(f"the end: {left}")


@case("stop, attached")
def stop_attached(scene):
    """What is called up to there is in the trace, what comes later is not, and it can be attached to again."""
    program = scene.start()
    for turn in range(3):
        contrail, name, trace = scene.attach(program)
        program.call("first", 1000 + turn), program.call("second", 10)
        status = scene.json("stop", name)
        equal((status["detached"], status["state"]), (True, "initialized"), "status of a session that was stopped")
        program.call("first", 500)
        equal(contrail.wait(WAIT), 0, "status of contrail attach")
        equal(scene.calls(trace, "first", "second"), (1000 + turn, 10), "calls")
        equal(os.listdir(scene.sockets), [], "sockets after the end")
        scene.run("stop", name, status=3)
    equal(program.end()[0], 7, "the program's status")


@case("stop, recorded")
def stop_recorded(scene):
    """The program runs on; its status is that of contrail record."""
    program, trace = scene.record()
    program.call("first", 1234)
    session = scene.session_of(program.process.pid)["id"]
    scene.run("stop", session)
    program.call("first", 500)
    equal(program.end()[0], 7, "the program's status")
    equal(scene.calls(trace, "first"), (1234,), "calls")


@case("stop, twice")
def stop_twice(scene):
    program, _ = scene.record()
    session = scene.session_of(program.process.pid)["id"]
    scene.run("stop", session)
    if "detach" not in scene.run("stop", session, status=1):
        raise AssertionError("stopped twice")
    equal(scene.json("status", session)["detached"], True, "status after stop")
    equal(program.end()[0], 7, "the program's status")


@case("stopped with its program")
def stopped(scene):
    """A recorder that is stopped as its program is does not answer; whoever asks is told so, and need not wait."""
    program, _ = scene.record()
    session = scene.session_of(program.process.pid)["id"]
    child = int(session.rsplit("-", 1)[1])
    os.kill(child, signal.SIGSTOP)
    wait_for("the recorder stops with its program", lambda: state_of(program.process.pid) == "T")
    said = scene.run("mark", session, "seen", status=1)
    expect(f"its recorder, process {program.process.pid}, is stopped" in said, said)
    os.kill(child, signal.SIGCONT), os.kill(program.process.pid, signal.SIGCONT)
    scene.run("mark", session, "seen")
    scene.run("stop", "--end")
    program.end()


@case("stop --end")
def end(scene):
    """With --end it is recorded to the last call before SIGTERM."""
    program, trace = scene.record()
    program.call("second", 77)
    scene.run("stop", "--end")
    equal(program.end()[0], 128 + signal.SIGTERM, "contrail's status")
    equal(scene.calls(trace, "second"), (77,), "calls")
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    program.call("second", 78)
    scene.run("stop", "--end", name)
    equal(program.end()[0], -signal.SIGTERM, "the program's status")
    equal(contrail.wait(WAIT), 0, "status of contrail attach")
    equal(scene.calls(trace, "second"), (78,), "calls")


@case("pause and resume")
def pause(scene):
    """While it is paused it does nothing; then it goes on, and nothing is lost or counted twice."""
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    for turn in range(5):
        equal(scene.json("pause", name)["state"], "attached", "state when paused")
        program.say("third", 100)
        with open(f"/proc/{program.process.pid}/stat", encoding="ascii") as file:
            equal(file.read().rpartition(")")[2].split()[0], "t", "the program's own state")
        if "paus" not in scene.run("pause", name, status=1):
            raise AssertionError("paused twice")
        equal(scene.json("resume", name)["state"], "running", "state when resumed")
        program.hear("third 100")
        scene.run("resume", name, status=1)
    scene.run("pause", name)
    scene.run("stop", name)
    program.call("third", 10)
    contrail.wait(WAIT)
    equal(scene.calls(trace, "third"), (500,), "calls")


@case("pause of a program that record has started")
def pause_started(scene):
    """It stays stopped, though it is contrail's child; then it goes on, and can be stopped again for a change."""
    program, trace = scene.record()
    program.call("third", 1)
    session = scene.session_of(program.process.pid)
    equal(scene.json("pause", session["id"])["state"], "attached", "state when paused")
    program.say("third", 100)
    begin = time.monotonic()
    while time.monotonic() - begin < 0.5:  # a look at its end comes every few milliseconds
        with open(f"/proc/{session['pid']}/stat", encoding="ascii") as file:
            equal(file.read().rpartition(")")[2].split()[0], "t", "the program's own state")
        time.sleep(0.02)
    equal(scene.json("resume", session["id"])["state"], "running", "state when resumed")
    program.hear("third 100")
    scene.run("exclude", session["id"], "add", "second")
    program.call("second", 10)
    equal(program.end()[0], 7, "the program's status")
    equal(scene.calls(trace, "third", "second"), (101, 0), "calls")


@case("what came before a pause can be read while it lasts")
def pause_is_read(scene):
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    program.call("third", 100)
    scene.run("pause", name)
    wait_for("the calls before the pause", lambda: scene.calls(trace, "third") == (100,))
    scene.run("resume", name)
    scene.run("stop", name)
    program.call("third", 10)
    equal(contrail.wait(WAIT), 0, "status of contrail attach")


@case("several sessions")
def several(scene):
    """Each has its own target; none is recorded twice."""
    programs = [scene.start() for _ in range(4)]
    sessions = [scene.attach(program) for program in programs]
    equal(len(scene.json("sessions")["sessions"]), 4, "sessions")
    for i, program in enumerate(programs):
        program.call("first", 100 + i)
    called = sessions[0][1].rsplit("-", 1)[0]
    error = scene.run("status", called, status=2)
    if "there are 4 sessions of " + called not in error:
        raise AssertionError(f"four of one name: {error}")
    trace = scene.next_trace()
    error = scene.run("attach", "-o", trace, str(programs[0].process.pid), status=125)
    if len(error.splitlines()) != 1 or os.path.exists(trace):
        raise AssertionError(f"attached twice: {error}")
    for i, (contrail, name, trace) in enumerate(sessions):
        programs[i].call("second", 5)
        scene.run("stop", str(programs[i].process.pid))
        equal(contrail.wait(WAIT), 0, "status of contrail attach")
        equal(scene.calls(trace, "first", "second"), (100 + i, 5), "calls")
        equal(len(scene.json("sessions")["sessions"]), 3 - i, "sessions left")
        if i == 2:
            equal(scene.json("status", called)["id"], sessions[3][1], "the last one, by its name")


@case("time over before it is waited for")
def time_over_at_once(scene):
    """--for 10ms, and contrail gets no processor between the moment it takes the time and its wait: it detaches at once."""
    late = scene.compile("programs/latestart.c", "-shared", "-fPIC", name="latestart.so")
    program, trace = scene.start(), scene.next_trace()
    with harness.Running([scene.contrail, "attach", "-q", "--for", "10ms", "-o", trace, str(program.process.pid)], cwd=scene.folder,
                         env=dict(scene.environment, LD_PRELOAD=late, ASAN_OPTIONS="verify_asan_link_order=0"),
                         stderr=subprocess.PIPE, text=True) as contrail:
        error = contrail.communicate(timeout=WAIT)[1]
    equal((contrail.returncode, error), (0, ""), "contrail attach")
    program.call("first", 1)


# ---- patterns ----


@case("patterns changed")
def changed(scene):
    """What is traced changes by commands, and the trace has exactly the calls of what was hooked."""
    program = scene.start()
    contrail, name, trace = scene.attach(program, "--exclude", "program!third")
    equal(scene.json("trace", "list")["patterns"], [], "patterns of a session that traces everything")
    equal(scene.json("exclude", "list")["patterns"], ["program!third"], "exclusions")
    program.call("first", 3), program.call("second", 4), program.call("third", 5)
    answer = scene.json("trace", name, "add", "program!first", "program!nothing")
    equal([(p["pattern"], p["class"], p["matched"], p["hooked"]) for p in answer["patterns"]],
          [("program!first", "exact", 1, 1), ("program!nothing", "exact", 0, 0)], "patterns")
    equal((answer["hooked"], answer["busy"], answer["before"] > 100), (1, 0, True), "numbers")
    program.call("first", 10), program.call("second", 20), program.call("third", 30)
    scene.run("trace", str(program.process.pid), "add", "program!*")
    program.call("first", 100), program.call("second", 200), program.call("third", 300)
    text = scene.run("trace", "list")
    if "program!first  (exact, full): 1 matched, 1 hooked" not in text or "1 excluded" not in text:
        raise AssertionError(f"list as text: {text}")
    equal(scene.json("exclude", "remove", "program!third")["patterns"], [], "exclusions")
    equal(scene.json("exclude", "add", "program!second")["patterns"], ["program!second"], "exclusions")
    program.call("first", 1000), program.call("second", 2000), program.call("third", 3000)
    scene.run("trace", "remove", "program!*", "program!first")
    program.call("first", 10000), program.call("second", 20000), program.call("third", 30000)
    for words, status in ((("trace", "remove", "program!first"), 1), (("exclude", "remove", "first"), 1),
                          (("trace", "add", "[a-"), 1), (("exclude", "add", ""), 1), (("trace", "add"), 2),
                          (("trace", "list", "x"), 2), (("trace", "add", "--mode", "fast", "x"), 2), (("exclude",), 2),
                          (("trace", "remove", "--mode", "full", "x"), 2), (("trace", "1", "list"), 3)):
        if len(scene.run(*words, status=status).splitlines()) != 1:
            raise AssertionError(f"{words}: not one line")
    scene.run("stop")
    equal(contrail.wait(WAIT), 0, "status of contrail attach")
    equal(scene.calls(trace, "first", "second", "third"), (3 + 10 + 100 + 1000, 4 + 200, 3000), "calls")


def start_late(scene, **environment):
    """A recording whose patterns have been changed to a function of a library that is still to come; (program, trace, library)."""
    library = scene.compile("programs/latefunction.c", "-O1", "-shared", "-fPIC", "-nostdlib", name="late.so", compiler="cc")
    scene.program = scene.compile("programs/latelib.c", "-O1", name="latelib", compiler="cc")
    scene.environment.update(environment)
    program, trace = scene.record("-q", "--trace", "nothing_yet")
    scene.run("trace", "add", "late")
    return program, trace, library


def modules_of(trace):
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        return [os.path.basename(module["path"]) for module in json.load(file)["modules"]]


@case
def listed_before_they_run(scene):
    """Once patterns have been changed, a library is in the manifest before calls of its functions are recorded, also where no loader
    has reported it: contrail has stopped itself when the program goes on with the hooks (base/test_point.h)."""
    need("nm")
    program, trace, library = start_late(scene, CONTRAIL_TEST_POINT="modules-found")
    offset = next(line.split()[0] for line in subprocess.check_output(["nm", "-D", library], text=True).splitlines() if line.endswith(" late"))
    program.say("map", f"{library} {offset}")
    wait_for("the library is found", lambda: state_of(program.process.pid) == "T")
    listed = modules_of(trace)
    program.process.send_signal(signal.SIGCONT)
    program.hear("map")
    program.call("late", 100)
    program.end()
    equal(scene.json("report", trace)["functions"][0]["calls"], 100, "calls of late")
    expect("late.so" in listed, f"the program went on, and the manifest listed {listed}")


@case
def found_after_the_manifest(scene):
    """A reader that had read the manifest when a library came, and its calls after that, gives them their module."""
    program, trace, library = start_late(scene)
    reading = [scene.contrail, "report", "--json", trace]
    with Running(reading, env=dict(os.environ, CONTRAIL_TEST_POINT="manifest-read"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                 text=True) as reader:
        wait_for("a reader", lambda: state_of(reader.pid) == "T")
        program.say("open", library)
        program.hear("open")
        program.call("late", 100)
        wait_for("calls", lambda: '"late"' in subprocess.run(reading, capture_output=True, text=True, check=True).stdout)
        reader.send_signal(signal.SIGCONT)
        rows = [(row["name"], row["module"], row["calls"]) for row in json.loads(reader.communicate(timeout=WAIT)[0])["functions"]]
    equal(rows, [("late", "late.so", 100)], "functions")
    program.end()


@case("patterns changed at random")
def changed_often(scene):
    """A hundred changes at random over the socket, while other clients ask for the status: counts are exact."""
    names = ("first", "second", "third")
    dice = random.Random(7)
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    traced, excluded, counts, stop, wrong = set(), set(), dict.fromkeys(names, 0), threading.Event(), []

    def watch():
        try:
            with scene.connect(name) as client:
                stream = client.makefile("rwb")
                while not stop.is_set():
                    stream.write(json.dumps(call("status")).encode() + b"\n")
                    stream.flush()
                    if json.loads(stream.readline())["result"]["dropped"] != 0:
                        wrong.append("dropped")
        except (OSError, ValueError, KeyError) as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=watch) for _ in range(3)]
    scene.ask(name, call("trace.add", patterns=["program!none"]))
    for thread in threads:
        thread.start()
    for _ in range(100):
        which, target = dice.choice((("trace", traced), ("exclude", excluded)))
        function = dice.choice(names)
        verb = "remove" if function in target else "add"
        (target.remove if verb == "remove" else target.add)(function)
        answer = scene.ask(name, call(f"{which}.{verb}", patterns=["program!" + function]))
        equal(answer.get("error"), None, f"{which}.{verb}")
        equal((answer["result"]["hooked"], answer["result"]["busy"]), (len(traced - excluded), 0), "hooked")
        for function in names:
            number = dice.randrange(200)
            program.call(function, number)
            counts[function] += number if function in traced - excluded else 0
    stop.set()
    for thread in threads:
        thread.join()
    equal(wrong[:3], [], "other clients")
    scene.run("stop")
    equal(contrail.wait(WAIT), 0, "status of contrail attach")
    equal(scene.calls(trace, *names), tuple(counts[function] for function in names), "calls")


@case("patterns of a recorded program")
def changed_recorded(scene):
    """The same of a program that was started: patterns given then, and modes."""
    program, trace = scene.record("--trace", "program!first")
    program.call("first", 10), program.call("second", 10)
    session = scene.session_of(program.process.pid)["id"]
    answer = scene.json("trace", session, "add", "--mode", "light", "program!first", "program!second")
    equal([(p["pattern"], p["asked"], p["mode"], p["hooked"]) for p in answer["patterns"]],
          [("program!first", "light", "light", 1), ("program!second", "light", "light", 1)], "patterns")
    program.call("first", 20), program.call("second", 20)
    equal(program.end()[0], 7, "the program's status")
    equal(scene.calls(trace, "first", "second"), (30, 20), "calls")


# ---- the socket ----


@case("mode bits")
def modes(scene):
    umask = os.umask(0)
    try:
        program = scene.start()
        contrail, name, _ = scene.attach(program)
    finally:
        os.umask(umask)
    equal(stat.S_IMODE(os.stat(scene.sockets).st_mode), 0o700, "mode of the directory")
    equal(os.listdir(scene.sockets), [name + ".sock"], "the directory")
    info = os.stat(os.path.join(scene.sockets, name + ".sock"))
    equal((stat.S_ISSOCK(info.st_mode), stat.S_IMODE(info.st_mode)), (True, 0o600), "mode of the socket")
    contrail.send_signal(signal.SIGINT)
    equal(contrail.wait(WAIT) in (0, 125), True, "status of contrail attach")  # 125: nothing was called
    equal(os.listdir(scene.sockets), [], "the directory after the end")


def real_time(*pids):
    """Threads that are of the real-time class, but for the one that looks after contrail's others."""
    found = []
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
                    name, rest = file.read().rsplit(")", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue  # that one has ended
            if rest.split()[41 - 3] != "0" and not name.endswith("contrail-guard"):
                found.append(f"{task} {name}")
    return found


@case("raised priority", alone=True)
def raised_priority(scene):
    """The thread that stops a program's threads has a real-time priority meanwhile, if it may, and nobody has afterwards."""
    need_root()
    need("setpriv")
    unable = ["setpriv", "--bounding-set=-sys_nice"]
    limited = ["prlimit", "--rtprio=1", *unable]
    may_limit = subprocess.run([*limited, "true"], capture_output=True, check=False).returncode == 0
    for prefix in [[], unable] + ([limited] if may_limit else []):
        program = scene.start()
        contrail, name, _ = scene.attach(program, prefix=prefix)
        for turn in range(3):
            scene.run("trace", name, *(("add", "program!first"), ("remove", "program!first"), ("list",))[turn])
            # A thread of contrail's that waits for a processor is raised for a moment.
            wait_for(f"no thread with a real-time priority, {prefix}", lambda: not real_time(contrail.pid, program.process.pid))
        scene.run("stop", name)
        equal(contrail.wait(WAIT) in (0, 125), True, "status of contrail attach")  # 125: nothing was called
        equal(program.end()[0], 7, "the program's status")


@case("no place for sockets")
def no_runtime_dir(scene):
    """Without a directory of one's own the recording is as it is, with a line that says so."""
    os.mkdir(scene.sockets, 0o777)
    os.chmod(scene.sockets, 0o777)
    program, trace = scene.record()
    program.call("first", 10)
    status, errors = program.end()
    equal((status, len(errors.splitlines())), (7, 1), "status and lines")
    if "others may write" not in errors:
        raise AssertionError(f"stderr: {errors}")
    equal(scene.calls(trace, "first"), (10,), "calls")


@case("contrail killed")
def killed(scene):
    """A session that was killed is not shown, its socket goes, and the next one has the name."""
    program = scene.start()
    for _ in range(3):
        contrail, name, _ = scene.attach(program)
        contrail.kill()
        contrail.wait(WAIT)
        equal(os.listdir(scene.sockets), [name + ".sock"], "the directory")
        equal(scene.json("sessions"), {"sessions": []}, "sessions")
        equal(os.listdir(scene.sockets), [], "the directory, cleaned")
    contrail, name, _ = scene.attach(program)
    contrail.kill()
    contrail.wait(WAIT)
    contrail, again, _ = scene.attach(program)
    equal(again, name, "the name")
    equal(scene.json("status", name)["controller"], contrail.pid, "whose session it is")
    program.call("first", 10)
    scene.run("stop")
    equal(program.end()[0], 7, "the program's status")


@case
def requests(scene):
    program = scene.start()
    _, name, _ = scene.attach(program)
    equal(scene.ask(name, call("status", 5))["result"]["id"], name, "status")
    codes = {
        "nowhere": (call("nowhere"), -32601), "wrong parameter": (call("stop", end="now"), -32602),
        "unknown parameter": (call("status", all=True), -32602), "by position": ({**call("stop"), "params": [True]}, -32602),
        "resume, though it runs": (call("resume"), -32003), "no version": ({"method": "status", "id": 1}, -32600),
        "no JSON": (b"{nonsense\n", -32700), "empty batch": ([], -32600),
    }
    for what, (request, code) in codes.items():
        answer = scene.ask(name, request)
        if answer["error"]["code"] != code or not answer["error"]["message"]:
            raise AssertionError(f"{what}: {answer}, not {code}")
    answers = scene.ask(name, [call("status", "a"), {"jsonrpc": "2.0", "method": "pause"}, 3, call("status", "b"), call("resume", "c")])
    states = [answer.get("result", {}).get("state") or answer["error"]["code"] for answer in answers]
    equal(states, ["running", -32600, "attached", "running"], "batch")
    equal(scene.ask(name, {"jsonrpc": "2.0", "method": "stop"}), None, "a notification's answer")
    program.call("first", 1)
    wait_for("no session after a notification to stop", lambda: scene.json("sessions") == {"sessions": []})


@case("fifty clients")
def crowd(scene):
    """Fifty clients at once, and some that send nonsense or say nothing, while the program runs: none is in its way."""
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    wrong, stop = [], threading.Event()

    def ask_often():
        try:
            with scene.connect(name) as client:
                stream = client.makefile("rwb")
                for number in range(40):
                    stream.write(json.dumps(call("status", number)).encode() + b"\n")
                    stream.flush()
                    answer = json.loads(stream.readline())
                    if (answer["id"], answer["result"]["id"]) != (number, name):
                        wrong.append(answer)
        except (OSError, ValueError, KeyError) as error:
            wrong.append(repr(error))

    def annoy():
        silent = [scene.connect(name) for _ in range(5)]
        while not stop.is_set():
            with scene.connect(name) as client:
                try:
                    client.sendall(os.urandom(3000) + b"\n" + b"[" * 3000)
                except OSError:
                    pass
        for client in silent:
            client.close()

    threads = [threading.Thread(target=ask_often) for _ in range(50)]
    pest = threading.Thread(target=annoy)
    pest.start()
    for thread in threads:
        thread.start()
    for _ in range(20):
        program.call("first", 5000)
    for thread in threads:
        thread.join()
    stop.set()
    pest.join()
    equal(wrong[:3], [], "wrong answers")
    program.call("second", 3)
    scene.run("stop")
    equal(contrail.wait(WAIT), 0, "status of contrail attach")
    equal(scene.calls(trace, "first", "second"), (100000, 3), "calls")


@case
def asked_while_full(scene):
    """Who has asked is not idle, however long it takes until the server looks (base/test_point.h): one more than there may be waits."""
    program = scene.start()
    scene.environment["CONTRAIL_TEST_POINT"] = "control-full"
    contrail, name, _ = scene.attach(program)
    clients = [scene.connect(name) for _ in range(64)]
    streams, stop = [client.makefile("rwb") for client in clients], threading.Event()

    def ask():
        for stream in streams:
            stream.write(json.dumps(call("status")).encode() + b"\n")
            stream.flush()

    def go_on():
        while not stop.wait(0.005):
            if state_of(contrail.pid) == "T":
                contrail.send_signal(signal.SIGCONT)

    with scene.connect(name):
        wait_for("a full server", lambda: state_of(contrail.pid) == "T")
        time.sleep(1.1)  # CT_SERVER_QUIET_MS: a duration that counts
        ask()
        going = threading.Thread(target=go_on)
        going.start()
        try:
            equal(sum(b'"result"' in stream.readline() for stream in streams), 64, "answers of those that had asked")
        finally:
            stop.set()
            going.join()
            contrail.send_signal(signal.SIGKILL)
            for client in clients:
                client.close()


@case("a client that does not read")
def slow_client(scene):
    """One that asks for much and reads nothing: it keeps nobody, and is kept at no more than a bound."""
    program = scene.start()
    contrail, name, trace = scene.attach(program)
    with scene.connect(name) as slow:
        slow.setblocking(False)
        line, sent = json.dumps([call("status")] * 100).encode() + b"\n", 0
        try:
            while sent < 64 << 20:
                sent += slow.send(line)
        except BlockingIOError:
            pass
        if sent >= 64 << 20:
            raise AssertionError("all that a client sends is taken, though it reads no answers")
        program.call("first", 5000)
        equal(scene.json("status")["state"], "running", "state")
        with open(f"/proc/{contrail.pid}/status", encoding="ascii") as file:
            before = int(re.search(r"VmRSS:\s*(\d+)", file.read())[1])
        if before > 512 << 10:
            raise AssertionError(f"contrail has taken {before} KiB")
        scene.run("stop")
    equal(contrail.wait(WAIT), 0, "status of contrail attach")
    equal(scene.calls(trace, "first"), (5000,), "calls")


@case("another user")
def other_user(scene):
    """Another user sees nothing, cannot connect, and is not answered when the files let him through."""
    need_root()
    need("setpriv")
    program = scene.start()
    contrail, name, _ = scene.attach(program)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    script = ("import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(60)\n"
              "try:\n  s.connect(sys.argv[1])\nexcept PermissionError:\n  sys.exit(13)\n"
              "try:\n  s.sendall(b'{\"jsonrpc\": \"2.0\", \"method\": \"stop\", \"id\": 1}\\n')\nexcept BrokenPipeError:\n  pass\n"
              "print(s.makefile().readline())\n")
    path = os.path.join(scene.sockets, name + ".sock")

    def connect():
        return subprocess.run([*nobody, sys.executable, "-c", script, path], capture_output=True, text=True, timeout=WAIT)

    os.chmod(scene.folder, 0o711), os.chmod(scene.runtime, 0o711)
    equal(connect().returncode, 13, "connecting as another user")
    os.chmod(scene.sockets, 0o711), os.chmod(path, 0o666)
    answer = connect()
    if "another user" not in answer.stdout:
        raise AssertionError(f"the session answers another user: {answer.stdout} {answer.stderr}")
    os.chmod(scene.sockets, 0o700)
    if os.access(scene.contrail, os.X_OK):
        result = subprocess.run([*nobody, scene.contrail, "sessions", "--json"], env=scene.environment, capture_output=True,
                                text=True, timeout=WAIT)
        if result.returncode != 126 and json.loads(result.stdout or "{}") != {"sessions": []}:
            raise AssertionError(f"another user's sessions: {result.stdout} {result.stderr}")
    equal(scene.json("status")["state"], "running", "state")


if __name__ == "__main__":
    main(__doc__, Scene)
