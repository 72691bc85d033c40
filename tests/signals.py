#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Signals: to the process group of a recorded program, to contrail alone, and the keys of a real terminal (tmux). Each
scene is played without contrail and with it, and must look the same.

    tests/signals.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import select
import signal
import struct
import subprocess
import time

import harness
from harness import Running, Skip, case, expect, main, need, wait_for
from processes import POLL, SIGTIMEDWAIT, held, held_at, is_pending, stat_of, state_of, threads_of, waits_in

WAIT_S = 300
CHECK_MS = 500


def children_by_name(pid):
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return {name.strip(): int(number) for number, name in (line.split(None, 1) for line in found.splitlines())}


def state_lines(pids):
    """What each thread of these does, and which signals wait for it."""
    lines = []
    for pid in pids:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            lines += [f"{pid}: " + ", ".join(re.findall(r"(?:Name|State|TracerPid|ShdPnd):.*", file.read()))]
        lines += [f"  {tid}: {' '.join(stat_of(f'{pid}/task/{tid}')[:1] + waits_in(pid, tid)[:4])}" for tid in threads_of(pid)]
    return "\n".join(lines)


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.job = self.compile("programs/job.c", "-O2", "-g", "-D_GNU_SOURCE")
        self.processes = []
        self.turn = 0

    def words(self, traced, *words, options=()):
        self.turn += 1
        trace = os.path.join(self.folder, f"trace{self.turn}")
        return ([self.contrail, "record", *options, "-o", trace, "--"] if traced else []) + list(words)

    def start(self, *words):
        """A process group of its own, its output in a file."""
        self.out = os.path.join(self.folder, f"out{self.turn}")
        with open(self.out, "wb") as out:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                       start_new_session=True, cwd=self.folder)
        self.processes.append(process)
        return process

    def text(self):
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ready(self, process, traced):
        """The program's process id, once it runs."""
        wait_for("the program", lambda: "ready" in self.text() or process.poll() is not None)
        return children_by_name(process.pid)["job"] if traced else process.pid

    def heard(self, number):
        """So many signals have come."""
        try:
            wait_for(f"signal {number}", lambda: f"now {number}\n" in self.text(), WAIT_S)
        except AssertionError as error:
            pid = self.processes[-1].pid
            raise AssertionError(f"{error}: {self.text()!r}\n{state_lines([pid, *children_by_name(pid).values()])}") from error

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()

    def both(self, play):
        """play(traced) must give the same without contrail and with it."""
        expected, got = play(False), play(True)
        if expected != got:
            raise AssertionError(f"untraced {expected!r}\n     with contrail {got!r}")
        return got


def tell(status):
    return 128 - status if status < 0 else status


@case(alone=True)
def to_group(scene):
    """kill(0, N) by the program: it reaches the program once each time, and does not end contrail."""
    def play(traced, number):
        process = scene.start(*scene.words(traced, scene.job, "group", str(number)))
        return number, tell(process.wait(WAIT_S)), scene.text()
    for number in random.sample([1, 2, 3, 10, 13, 15, 17, 18, 20, 21, 22, 28, 34, 64], scene.rounds(6, 14)):
        scene.both(lambda traced: play(traced, number))
    if "came 2" not in scene.text():
        raise AssertionError(scene.text())


@case
def to_group_from_outside(scene):
    """kill(-PGID, N), as a shell does it for its jobs."""
    def play(traced):
        process = scene.start(*scene.words(traced, scene.job, "count", "6"))
        scene.ready(process, traced)
        for so_far, number in enumerate((signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGRTMIN), 1):
            os.killpg(process.pid, number)
            scene.heard(so_far)
        return process.wait(WAIT_S), scene.text()
    if "10:2 15:1" not in scene.both(play)[1]:
        raise AssertionError(scene.text())


@case
def default_to_group(scene):
    """A program that dies of it."""
    def play(traced, number):
        process = scene.start(*scene.words(traced, scene.job, "run"))
        scene.ready(process, traced)
        os.killpg(process.pid, number)
        return number, tell(process.wait(WAIT_S))
    for number in (1, 2, 3, 10, 14, 15, 34):
        scene.both(lambda traced: play(traced, number))


def serving_thread(pid):
    """The thread that takes signals, and the descriptor by which it is told to end: it waits for both, and no other has such a poll."""
    for tid in threads_of(pid):
        words = waits_in(pid, tid)
        if words[:1] == [POLL] and words[2:4] == ["0x2", hex(CHECK_MS)]:
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                return int(tid), struct.unpack("ihhihh", os.pread(memory.fileno(), 16, int(words[1], 16)))[3]
    return None


@case
def taken_late(scene):
    """What ends the program is taken by contrail only after the program's end: contrail dies of it all the same."""
    for number in (signal.SIGINT, signal.SIGTERM):
        process = scene.start(*scene.words(True, scene.job, "run"))
        scene.ready(process, True)
        tid, fd = wait_for("the thread that takes signals", lambda: serving_thread(process.pid))
        with held(tid), open(f"/proc/{process.pid}/fd/{fd}", "rb", buffering=0) as told:
            os.killpg(process.pid, number)
            wait_for("the end of the program to be seen", lambda: select.select([told], [], [], 0)[0])
        if process.wait(WAIT_S) != -number:
            raise AssertionError(f"status {process.returncode}, not {-number}")


@case
def to_contrail_alone(scene):
    """Whoever started contrail knows no other process: it is handed on, once."""
    def play(traced):
        process = scene.start(*scene.words(traced, scene.job, "count", "8"))
        scene.ready(process, traced)
        for so_far, number in enumerate((signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1,
                                         signal.SIGRTMIN, signal.SIGWINCH, signal.SIGALRM), 1):
            os.kill(process.pid, number)
            scene.heard(so_far)
        return process.wait(WAIT_S), scene.text()
    if "1:1 2:1 10:2 14:1 15:1" not in scene.both(play)[1]:
        raise AssertionError(scene.text())


def has_accounted_for(pid, number):
    """contrail has taken the signal, and then waits for the next one: it is done with it."""
    return not is_pending(pid, number) and serving_thread(pid) is not None


def witness_of(pid):
    """Its process that counts what the group is sent, once it has its name: it gives itself that."""
    return wait_for("the witness", lambda: children_by_name(pid).get("group-witness"))


def has_taken(pid, number):
    """No such signal is pending for the process, and all of its threads sleep."""
    states = [stat_of(f"{pid}/task/{tid}")[:1] for tid in os.listdir(f"/proc/{pid}/task")]
    return not is_pending(pid, number) and all(state in (["S"], []) for state in states)


@case(alone=True)
def mixed(scene):
    """To the group and to contrail alone in turn: counted right each time."""
    times = scene.rounds(24, 50)

    def play(traced):
        process = scene.start(*scene.words(traced, scene.job, "count", str(times)))
        scene.ready(process, traced)
        for turn in range(times):
            if turn % 3 == 0:
                os.killpg(process.pid, signal.SIGUSR1)
            else:
                os.kill(process.pid, signal.SIGUSR1)
            scene.heard(turn + 1)
            # One to contrail alone that comes before contrail has accounted for the same one to the group is taken for a
            # copy of that (docs/limits.md).
            if traced and turn < times - 1:
                wait_for("contrail to account for it", lambda: has_accounted_for(process.pid, signal.SIGUSR1))
        return process.wait(WAIT_S), scene.text()
    if f"10:{times}" not in scene.both(play)[1]:
        raise AssertionError(scene.text())


@case
def beside_others(scene):
    """To the group, while contrail hears that the program stopped and went on; the next one to contrail alone is handed on."""
    process = scene.start(*scene.words(True, scene.job, "count", "2"))
    program = scene.ready(process, True)
    tid, _ = wait_for("the thread that takes signals", lambda: serving_thread(process.pid))
    with held(tid):
        os.killpg(process.pid, signal.SIGUSR1)
        scene.heard(1)
        os.kill(program, signal.SIGSTOP)
        wait_for("the program to stop", lambda: state_of(program) == "T")
        os.kill(program, signal.SIGCONT)
        wait_for("the program to go on", lambda: state_of(program) != "T")
        expect(is_pending(process.pid, signal.SIGCHLD) and is_pending(process.pid, signal.SIGUSR1), "contrail has not both")
    wait_for("contrail to account for it", lambda: has_accounted_for(process.pid, signal.SIGUSR1))
    os.kill(process.pid, signal.SIGUSR1)
    if process.wait(WAIT_S) != 0 or "10:2" not in scene.text():
        raise AssertionError(f"status {process.returncode}, {scene.text()!r}")


@case
def witness_late(scene):
    """To the group, while its witness has no processor for longer than contrail waits for it; then to contrail
    alone, while the witness still has none and when it has counted."""
    process = scene.start(*scene.words(True, scene.job, "count", "3"))
    scene.ready(process, True)
    witness = witness_of(process.pid)
    wait_for("the thread that takes signals", lambda: serving_thread(process.pid))
    with held(witness):
        os.killpg(process.pid, signal.SIGUSR1)
        scene.heard(1)
        wait_for("contrail to account for it", lambda: has_accounted_for(process.pid, signal.SIGUSR1))
        os.kill(process.pid, signal.SIGUSR1)
        scene.heard(2)
        wait_for("contrail to account for it", lambda: has_accounted_for(process.pid, signal.SIGUSR1))
        expect(is_pending(witness, signal.SIGUSR1), "the witness has taken it")
    wait_for("the witness to count it", lambda: has_taken(witness, signal.SIGUSR1))
    os.kill(process.pid, signal.SIGUSR1)
    if process.wait(WAIT_S) != 0 or "10:3" not in scene.text():
        raise AssertionError(f"status {process.returncode}, {scene.text()!r}")


@case
def witness_between(scene):
    """To the group, while its witness stands still where it is about to take it, or where it has taken it and not counted it yet;
    then to contrail alone, and to the group."""
    for is_taken, alone, said in ((False, signal.SIGUSR1, "10:2 12:1"), (True, signal.SIGUSR2, "10:1 12:2")):
        process = scene.start(*scene.words(True, scene.job, "count", "3"))
        scene.ready(process, True)
        witness = witness_of(process.pid)
        wait_for("the thread that takes signals", lambda process=process: serving_thread(process.pid))
        with held_at(witness, SIGTIMEDWAIT, is_taken, lambda process=process: os.killpg(process.pid, signal.SIGUSR1)):
            scene.heard(1)
            wait_for("contrail to account for it", lambda process=process: has_accounted_for(process.pid, signal.SIGUSR1))
        wait_for("the witness to count it", lambda witness=witness: has_taken(witness, signal.SIGUSR1))
        os.kill(process.pid, alone)
        scene.heard(2)
        os.killpg(process.pid, signal.SIGUSR2)
        if process.wait(WAIT_S) != 0 or said not in scene.text():
            raise AssertionError(f"status {process.returncode}, {scene.text()!r} and not {said}")


@case
def to_parent(scene):
    """What the program sends to its parent does not come back to it."""
    for number in (signal.SIGUSR1, signal.SIGTERM):
        process = scene.start(*scene.words(True, scene.job, "parent", str(int(number))))
        if process.wait(WAIT_S) != 5 or "came 0" not in scene.text():
            raise AssertionError(f"status {process.returncode}, {scene.text()!r}")


@case
def inherited_alarm(scene):
    """An alarm that was set before contrail was executed would have been the program's."""
    need("perl")
    scene.both(lambda traced: tell(scene.start("perl", "-e", "alarm 1; exec @ARGV", *scene.words(
        traced, scene.job, "run")).wait(WAIT_S)))


@case
def timeout_ends(scene):
    """timeout(1) sends to the process and then to the group, which are one signal or two, as it happens. Its time is over when the program is ready."""
    def play(traced):
        process = scene.start("timeout", "1000", *scene.words(traced, scene.job, "count", "1"))
        wait_for("the program", lambda: "ready" in scene.text() or process.poll() is not None)
        process.send_signal(signal.SIGALRM)  # its timer's
        status = process.wait(WAIT_S)
        return status, re.sub(r"now 2\n|:[12] ", "", scene.text())
    scene.both(play)


@case
def shell_kills_group(scene):
    """A shell script's `trap 'kill 0' EXIT`."""
    script = "trap 'echo usr1' USR1; trap 'kill 0' EXIT; sleep 30 & kill -USR1 0; echo here; sleep 0.2; echo leaving"
    scene.both(lambda traced: (tell(scene.start(*scene.words(traced, "sh", "-c", script)).wait(WAIT_S)), scene.text()))


@case
def sigterm_unheard(scene):
    """A program that ignores SIGTERM goes on, and is recorded no longer; the trace is whole."""
    process = scene.start(*scene.words(True, scene.job, "ignore", "15", "600000"))
    program = scene.ready(process, True)
    os.kill(process.pid, signal.SIGTERM)
    manifest = os.path.join(scene.folder, f"trace{scene.turn}", "manifest.json")

    def ended():
        with open(manifest, encoding="utf-8") as file:
            return json.load(file).get("detached")
    wait_for("the recording to end", ended)
    goes_on = state_of(program) in ("S", "R") and process.poll() is None
    os.kill(program, signal.SIGUSR1)
    if process.wait(WAIT_S) != 128 + signal.SIGUSR1 or not goes_on:
        raise AssertionError(f"the program did not go on: status {process.returncode}")


@case
def stopped_program(scene):
    """The program is stopped, by its own id: so is contrail. Continued, by its own id, contrail goes on too."""
    process = scene.start(*scene.words(True, scene.job, "run", "3000"))
    program = scene.ready(process, True)
    for way in (program, process.pid, program):
        os.kill(program, signal.SIGSTOP)
        wait_for("contrail to stop", lambda: state_of(process.pid) == "T")
        os.kill(way, signal.SIGCONT)
        wait_for("contrail to go on", lambda: state_of(process.pid) != "T" and state_of(program) != "T")
    if process.wait(WAIT_S) != 3:
        raise AssertionError(f"status {process.returncode}")


@case
def stopped_group(scene):
    """kill -STOP and kill -CONT for a job."""
    process = scene.start(*scene.words(True, scene.job, "run", "2000"))
    program = scene.ready(process, True)
    for number in (signal.SIGSTOP, signal.SIGTTIN, signal.SIGSTOP):
        os.killpg(process.pid, number)
        if number == signal.SIGSTOP:
            wait_for("both to stop", lambda: state_of(process.pid) == "T" and state_of(program) == "T")
        else:  # it stops nobody here: the group is orphaned
            wait_for("it to be delivered", lambda: has_taken(process.pid, number) and not is_pending(program, number))
        os.killpg(process.pid, signal.SIGCONT)
        wait_for("both to go on", lambda: state_of(process.pid) != "T" and state_of(program) != "T")
    if process.wait(WAIT_S) != 3:
        raise AssertionError(f"status {process.returncode}")


# ---- under a terminal ----

# job_is STATE PID: until it is, as the kernel has it. A command in the foreground: the shell hears of a job when it ends, and says nothing by itself.
JOB_IS = """#!/bin/sh
seen=0
while [ $seen -lt 3 ]; do
  read -r _ _ state _ </proc/"$2"/stat
  if [ "$state" = "$1" ]; then seen=$((seen + 1)); else seen=0; fi
  sleep 0.05
done
"""


class Terminal:
    """An interactive bash in a tmux of its own, in which `run WORDS` runs WORDS, with contrail or without."""

    def __init__(self, scene, traced):
        need("tmux", "bash")
        self.folder = os.path.join(scene.folder, "traced" if traced else "plain")
        os.makedirs(self.folder)
        self.socket = os.path.join(self.folder, "tmux")
        front = f'exec "{scene.contrail}" record -q -o "{self.folder}/t$$" -- "$@"' if traced else 'exec "$@"'
        for name, text in (("run", f"#!/bin/sh\n{front}\n"), ("rc", f"PS1='$ '; PATH={self.folder}:$PATH\n"),
                           ("job_is", JOB_IS), ("job", f'#!/bin/sh\nexec {scene.job} "$@"\n')):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(os.path.join(self.folder, name), 0o755)
        result = self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "60",
                           f"exec bash --noprofile --rcfile {self.folder}/rc")
        if result.returncode:
            raise Skip(f"tmux does not start: {result.stderr.strip()}")
        self.shell = self.tmux("display-message", "-p", "#{pane_pid}").stdout.strip()
        self.prompts = 0  # that were on the screen when the last line was typed

    def tmux(self, *words):
        environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
        return subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True,
                              env=dict(environment, TERM="xterm", LC_ALL="C.UTF-8"))

    def screen(self):
        lines = [line.rstrip() for line in self.tmux("capture-pane", "-p").stdout.splitlines()]
        text = "\n".join(lines).rstrip()
        return re.sub(r"\b\d{3,}\b", "N", text)  # process ids

    def has_job(self):
        """Is a job in the foreground that runs? Keys go to it then."""
        shell = stat_of(self.shell)
        group = shell[5]
        members = [words for words in map(stat_of, filter(str.isdigit, os.listdir("/proc"))) if words[2:3] == [group]]
        return group != shell[2] and members and all(words[0] != "T" for words in members)

    def prompts_of(self, screen):
        return sum(line[:1] in ("$", "%") for line in screen.splitlines())

    def has_prompt(self):
        """One that came after the last line was typed; a background job may have written on its line."""
        screen = self.screen()
        return screen.rpartition("\n")[2][:1] in ("$", "%") and self.prompts_of(screen) > self.prompts

    def wait_for_prompt(self):
        try:
            wait_for("a prompt", self.has_prompt)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.screen()}") from error

    def play(self, steps):
        """Steps: a command, typed when there is a prompt; "> TEXT" typed at once; C-c and the like; (TEXT,): wait until it is on
        the screen, once more than it was when it was last waited for."""
        seen = {}
        for step in steps:
            if isinstance(step, tuple):
                text, = step
                seen[text] = seen.get(text, 0) + 1
                wait_for(f"{text!r} on the screen:\n{self.screen()}\n", lambda: self.screen().count(text) >= seen[text])
            elif re.fullmatch(r"C-.", step):
                wait_for("a job in the foreground", self.has_job)
                self.tmux("send-keys", step)
            else:
                if not step.startswith("> "):
                    self.wait_for_prompt()
                self.prompts = self.prompts_of(self.screen())
                self.tmux("send-keys", "-l", step.removeprefix("> "))
                self.tmux("send-keys", "Enter")
        self.wait_for_prompt()
        text = re.sub(r"(?m)^\$ ", "", self.screen())  # a background job's first line comes before the prompt or after it, ...
        return re.sub(r"(?m)^ready\n(\[1\] N\n)", r"\1ready\n", text)  # ... and before its number or after it

    def close(self):
        self.tmux("kill-server")


def on_terminal(*steps):
    def test(scene):
        def play(traced):
            terminal = Terminal(scene, traced)
            try:
                return terminal.play(steps)
            finally:
                terminal.close()
        scene.both(play)
    return test


END = ("echo =$?=", ("\n=",))
FG = ("fg", ("fg\nrun job run",))
TERMINAL = {
    "ctrl_c": ("run job run", ("ready",), "C-c", *END),
    "ctrl_c_handled": ("run job ints 3", ("ready",), "C-c", ("interrupt 1",), "C-c", ("interrupt 2",), "C-c", *END),
    "ctrl_c_ends_loop": ("for i in 1 2 3; do run job run; done", ("ready",), "C-c", *END),
    "ctrl_backslash": ("ulimit -c 0; run job run", ("ready",), "C-\\", *END),
    "ctrl_z_fg": ("run job run 1500", ("ready",), "C-z", ("Stopped",), *END, *FG, *END),
    "ctrl_z_fg_ctrl_c": ("run job run", ("ready",), "C-z", ("Stopped",), "jobs", ("Stopped",), *FG, "C-z", ("Stopped",), *FG,
                         "C-c", *END),
    "ctrl_z_bg_fg": ("run job run", ("ready",), "C-z", ("Stopped",), "bg", "jobs", ("Running",), *FG, "C-c", *END),
    "ctrl_z_bg_wait": ("run job run 2000", ("ready",), "C-z", ("Stopped",), "bg; wait", ("Exit 3",), *END),
    "kill_job": ("run job run &", ("ready",), "kill %1; while kill -0 %1 2>&-; do sleep 0.1; done", ("Terminated",), *END),
    "stop_job": ("run job run &", ("ready",), "kill -STOP %1; job_is T $!; jobs", ("Stopped",), "kill -CONT %1; job_is S $!; jobs",
                 ("Running",), *FG, "C-c", *END),
    "background_read": ("run job read & job_is T $!; jobs", ("Stopped",), "fg", ("fg\nrun job read",), "> words",
                        ("read words",), *END),
    "background_write": ("stty tostop; run job run 100 & job_is T $!; stty -tostop; jobs", ("Stopped",), "fg", ("ready",), *END),
    "suspended_shell": ("run bash --norc", ("bash-",), "> PS1='% '", ("\n%",), "echo inner", ("\ninner",), "suspend", ("Stopped",),
                        "echo outer", ("\nouter",), "fg", ("fg\nrun bash",), "", "echo again", ("\nagain",), "exit 7", ("\nexit",), *END),
}

for name_of_keys, steps_of_keys in TERMINAL.items():
    # What the shell says of a background job, and when, depends on how soon it runs.
    case("terminal_" + name_of_keys, alone=any(word in str(steps_of_keys) for word in ("job_is", "sleep")))(on_terminal(*steps_of_keys))


@case
def queued(scene):
    """A thread that is held while it is about to get a real-time signal, which others of its number follow: it makes our system
    calls, as the only one, and gets all of them in their order."""
    program = scene.compile("programs/queued.c", "-O2")
    with Running([program], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as target:
        expect(target.stdout.readline() == "ready\n", "the program does not begin")
        for turn in range(scene.rounds(2, 20)):
            command = [scene.contrail, "attach", "--quiet", "--for", "50ms", "-o", scene.path(f"queued{turn}"), str(target.pid)]
            with Running(command, env=dict(os.environ, CONTRAIL_TEST_POINT="thread-seized")) as recorder:
                while recorder.poll() is None:  # seized, it stops for its signal
                    if state_of(recorder.pid) == "T" and state_of(target.pid) in ("t", ""):
                        recorder.send_signal(signal.SIGCONT)
                    time.sleep(0.002)
                expect(recorder.returncode == 0 or target.poll() is not None, f"attach: {recorder.returncode}")
        target.terminate()
        said, status = target.stdout.read(), target.wait(WAIT_S)
    expect(status == 0 and "in order" in said, f"{said!r}, status {status}")
    return said.strip()


@case
def waits_go_on(scene):
    """A stop ends calls with EINTR that wait without a time, which the kernel does not make again: contrail has them made again,
    at an attach, when it detaches, and between. A signal with a handler still ends them."""
    program = scene.compile("programs/waits.c", "-O1", "-D_GNU_SOURCE", "-pthread")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        scene.processes.append(process)
        expect(process.stdout.readline() == "ready\n", "it did not begin")
        for turn in range(3):
            done = scene.execute(scene.contrail, "attach", "--for", "100ms", "-o", scene.path(f"waits{turn}"), str(process.pid))
            expect("hooked" in done.stderr, done.stderr)
        out = process.communicate(timeout=WAIT_S)[0]
    expect((process.returncode, out) == (0, "epoll_wait 1, epoll_pwait 0 and 0, sigwaitinfo 0, semop 1\n"), f"{process.returncode}, {out}")


@case
def waits_go_on_by_instructions(scene):
    """So they do under itrace, which a signal that is ignored stops: natively it wakes nobody."""
    program = scene.compile("programs/waits.c", "-O1", "-D_GNU_SOURCE", "-pthread")
    natively = scene.execute(program, stdin=subprocess.DEVNULL).stdout
    done = scene.execute(scene.contrail, "itrace", "-q", "-a", "-o", scene.path("trace"), "--", program, stdin=subprocess.DEVNULL)
    expect((done.returncode, done.stdout) == (0, natively), f"{done.returncode}, {done.stdout!r}, natively {natively!r}: {done.stderr}")


if __name__ == "__main__":
    main(__doc__, Scene)
