#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Families of processes while they are recorded: status, live changes, and what is reported of processes that cannot be seen yet.

    tests/followlive.py [--filter PATTERN] [--repeat N] [--build DIR]
"""
import functools
import glob
import json
import os
import shutil
import signal
import subprocess
import time

from follow import Scene
from harness import case, expect, main, wait_for
from processes import all_stopped


class Live:
    """A recording of the fixture that goes on, with what its processes leave in its folder."""

    def __init__(self, scene, *words, trace="nothing_of_that_name", environment=()):
        self.scene = scene
        self.folder = os.path.join(scene.folder, "live")
        self.trace = os.path.join(scene.folder, "live-trace")
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.trace, ignore_errors=True)
        os.mkdir(self.folder)
        words = [self.folder if word == "FOLDER" else word for word in words]
        self.recorder = subprocess.Popen([scene.contrail, "record", "--follow", "--trace", trace,
                                          "-o", self.trace, scene.fixture, *words],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         env=dict(os.environ, **dict(environment)))
        self.name = None

    def ask(self, *words):
        # To stop a family of two hundred takes some seconds of a processor, of which there may be little.
        told = subprocess.run([self.scene.contrail, *words, "--json"], capture_output=True, text=True, timeout=300,
                              check=False)
        assert told.returncode == 0 or "matches no function" in told.stderr, (words, told.stderr)
        return json.loads(told.stdout)

    def find(self):
        for session in self.ask("sessions")["sessions"]:
            if session.get("controller") == self.recorder.pid and session["state"] == "running":
                self.name = session["id"]
        return self.name

    def until(self, holds):
        def held():
            assert self.recorder.poll() is None, self.recorder.stderr.read()
            return holds()
        wait_for("the processes", held)

    def leave(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
            pass

    def kill(self):
        """After a failure: nothing is left running."""
        if self.recorder.poll() is None:
            for number in range(1, 9):
                self.leave(f"begin-{number}")
            self.leave("late-0")
            self.leave("stop-0")
            self.leave("end-0")
            self.recorder.wait(60)

    def finish(self, lost=False):
        out, err = self.recorder.communicate(timeout=120)
        assert self.recorder.returncode == 0, (self.recorder.returncode, out, err)
        assert all("matched no function" in line or lost and line.endswith("reports why")
                   for line in err.splitlines()), err
        return self.trace

    def end(self):
        tree = self.scene.tree(self.finish(), few=True)
        for process in tree:
            assert process["exit"] and "status" in process["exit"], (process["pid"], process["exit"])
        return tree


def lives(*words, **options):
    """For a test that has the fixture recorded."""
    def wrap(test):
        @functools.wraps(test)
        def run(scene):
            live = Live(scene, *words, **options)
            try:
                live.until(live.find)
                test(scene, live)
            finally:
                live.kill()
        return run
    return wrap


def all_have_counted(status, events):
    """As the status of the session says."""
    live = status["children_live"]
    assert status["children"] == 5 and len(live) == 5, status
    pids = {status["pid"], *(child["pid"] for child in live)}
    for child in live:
        assert child["parent"] in pids and child["state"] == "running" and child["hooked"] > 0, status
        assert child["program"] == status["program"], status
    return all(process["events"] >= events for process in [status, *live])


@case
@lives("workers", "FOLDER", "6")
def live_workers(scene, live):
    """What is traced is changed while six processes run: each is changed, and counts exactly what it did in between."""
    counted = 0
    for phase in range(1, 7):
        if phase % 2 == 0:
            change = live.ask("trace", live.name, "add", "work" if phase % 4 else "wor?", "--mode",
                              "light" if phase == 4 else "full")
            counted += 1000 * phase
        elif phase > 1:
            change = live.ask("trace", live.name, "remove", "work" if phase % 4 == 3 else "wor?")
        if phase > 1:
            assert change["children"] == 5 and change["hooked"] - change["before"] == (-1) ** phase, (phase, change)
        live.leave(f"begin-{phase}")
        live.until(lambda: len(glob.glob(os.path.join(live.folder, f"done-{phase}-*"))) == 6)
        if phase == 2:
            live.until(lambda: all_have_counted(live.ask("status", live.name), 2 * counted))
    tree = live.end()
    assert len(tree) == 6, len(tree)
    for process in tree:
        assert process["exit"] == {"status": 0}, process["exit"]
        assert scene.calls(process, "work") == counted, (process["path"], scene.calls(process, "work"))
        changes = [change["what"] for change in process["changes"]]
        assert changes == ["trace", "untrace", "trace", "untrace", "trace"], changes


def unseen_phase(live, number):
    live.leave(f"begin-{number}")
    live.until(lambda: len(glob.glob(os.path.join(live.folder, f"done-{number}-*"))) == 2)


def why_not(live):
    """The children of a recording that has ended, and why those were not recorded that were not."""
    with open(os.path.join(live.finish(lost=True), "manifest.json"), encoding="utf-8") as file:
        children = json.load(file)["children"]
    return children, [child["not_recorded_because"] for child in children if child["directory"] is None]


REMEMBERED = 64  # changes, of those within the last second (record/handshakes.c)


@case
@lives("unseen", "FOLDER", trace="work", environment={"CONTRAIL_TEST_LINGER_MS": "600000"})
def live_unseen(scene, live):
    """Children that were forked before a change and come to a hook after it: one soon, which has every change from
    then on, and one that comes when nobody remembers any more what it has, and runs on unrecorded. Here changes are
    remembered for ten minutes in place of a second, so that only their number counts."""
    live.ask("trace", live.name, "add", "other")
    unseen_phase(live, 1)
    live.until(lambda: glob.glob(os.path.join(live.trace, "process-*", "manifest.json")))
    live.until(lambda: live.ask("trace", live.name, "add", "nothing_else")["children"] == 1)
    unseen_phase(live, 2)
    assert live.ask("trace", live.name, "remove", "other")["children"] == 1
    unseen_phase(live, 3)
    for turn in range(REMEMBERED + 1):
        change = live.ask("trace", live.name, "remove" if turn % 2 else "add", "other")
        assert change["children"] == 1 and change["hooked"] - change["before"] == (-1) ** turn, (turn, change)
    live.leave("late-0")
    unseen_phase(live, 4)
    children, why = why_not(live)
    assert len(children) == 2 and len(why) == 1 and "had been forked" in why[0], children
    soon = os.path.join(live.trace, next(child["directory"] for child in children if child["directory"]))
    for path in (live.trace, soon):
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
            process = json.load(file)
        process["path"] = path
        assert process["exit"] == {"status": 0}, process["exit"]
        assert scene.calls(process, "work") == 10000, (path, scene.calls(process, "work"))
        first = scene.calls(process, "other") - 20 - 40  # it may not have been there yet in the first phase
        assert first == 10 if path == live.trace else 0 <= first <= 10, (path, first)


@case
@lives("unseen", "FOLDER", trace="work", environment={"CONTRAIL_TEST_LINGER_MS": "0"})
def live_forgotten(_, live):
    """The same where a change is not remembered for any time, once there is another: neither of the children is recorded."""
    live.ask("trace", live.name, "add", "other")
    live.ask("trace", live.name, "remove", "other")
    live.leave("late-0")
    for number in range(1, 5):
        unseen_phase(live, number)
    children, why = why_not(live)
    assert len(children) == len(why) == 2 and all("had been forked" in each for each in why), children


@case(some=("live", 1))
@lives("many", "FOLDER", trace="other")
def live_many(scene, live):
    """contrail stop while children come as fast as they can, half of them by a fork that nobody sees: nothing of
    contrail is left in any."""
    live.until(lambda: len(glob.glob(os.path.join(live.trace, "process-*"))) >= 5)
    live.ask("stop", live.name)
    live.leave("stop-0")
    live.until(lambda: os.path.exists(os.path.join(live.folder, "ready-0")))
    pids = subprocess.run(["pgrep", "-f", live.folder], check=True, capture_output=True, text=True).stdout.split()
    with_traces = []
    for pid in pids:
        if int(pid) in (live.recorder.pid, os.getpid()):
            continue
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            if "memfd:contrail" in file.read():
                with_traces.append(int(pid))
    live.leave("end-0")
    live.finish()
    assert len(pids) > 10 and not with_traces, (len(pids), with_traces)


@case(some=("live", 1))
@lives("stream", "FOLDER")
def live_stream(scene, live):
    """The same while two threads fork and one spawns as fast as they can: who is made after a change has it from the
    beginning. A thread that waits for its vfork child's exec does not hold the change up, which the exec waits for."""
    for mark in range(1, 10):
        begin = time.monotonic()
        change = live.ask("trace", live.name, "add" if mark % 2 else "remove", "work")
        assert change["busy"] == 0 and change["hooked"] - change["before"] == -(-1) ** mark, (mark, change)
        assert time.monotonic() - begin < 300, time.monotonic() - begin
        live.leave(f"mark-{mark}")
        so_far = len(glob.glob(os.path.join(live.trace, "process-*")))
        live.until(lambda: len(glob.glob(os.path.join(live.trace, "process-*"))) >= so_far + 8)
    live.leave("end-0")
    counts = {}
    for process in live.end()[1:]:
        marks, calls = process["exit"]["status"], scene.calls(process, "work")
        counts.setdefault(marks, []).append(calls)
        assert calls <= 100 + marks, (process["path"], marks, calls)
    assert len(counts) >= 6, counts
    assert set(counts[9]) == {109}, counts
    for marks in counts.keys() - {0, 9}:  # the next change may have come while the last of them ran
        assert (100 + marks if marks % 2 else 0) in counts[marks], counts


@case
def unanswered(scene):
    """A recorder that stands still for as long as a program waits for it: the children that go on without an answer meanwhile, also
    those that no longer wait as their parent has done so in vain, are counted."""
    recorder = subprocess.Popen([scene.contrail, "record", "--follow", "-o", scene.trace, scene.compile("follow/unanswered.c", "-O2"), scene.folder],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def leave(name):
        with open(scene.path(name), "w", encoding="utf-8"):
            pass
    try:
        wait_for("the program", lambda: os.path.exists(scene.path("ready")))
        recorder.send_signal(signal.SIGSTOP)
        wait_for("a recorder that stands still", lambda: all_stopped(recorder.pid))
        leave("begin")
        wait_for("the children", lambda: os.path.exists(scene.path("done")))
    finally:
        recorder.send_signal(signal.SIGCONT)
        leave("begin")
        leave("end")
        said = recorder.communicate(timeout=60)[1]
    expect(recorder.returncode == 0, f"status {recorder.returncode}: {said}")
    manifest = scene.manifest()
    expect(manifest["children"] == [] and manifest["children_lost"] == 3, f"{manifest['children']}, lost {manifest['children_lost']}")
    expect("3 child" in said, f"it is not said: {said}")


if __name__ == "__main__":
    main(__doc__, Scene)
