#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The traced program cannot tell: commands are run untraced twice and under contrail, each time in a fresh folder with
a fixed environment, and what they write to stdout and stderr, how they end and the files they leave must be equal.
The traces must be complete, and lose nothing where the ring has room for all events.

    tests/transparency.py                     a quarter of the short set, by lot, part of `make test`
    tests/transparency.py --long              both sets; `make torture`
    tests/transparency.py --filter 'git*'     cases that match (several: any)
    tests/transparency.py --repeat 20         each case so often; its first failure ends the repetition
    tests/transparency.py --record=--lossless further options for contrail record
    tests/transparency.py --translated        the first thread of each program by translated code; nothing is recorded
    tests/transparency.py --records           the same, and its instructions are recorded; no record may contradict another
    tests/transparency.py --instructions      the instructions of all threads are recorded, by the command itself (contrail itrace -a)
    tests/transparency.py --json FILE         numbers of each case
    tests/transparency.py --json FILE --resume --seconds 180
                                              piece by piece: only what FILE lacks or has as different is run, and no
                                              case is begun when the time is over

tools/transparency.py makes the tables of docs/transparency.md of such FILEs.

Cases are in tests/commands/; tests/commands/case.py says what a case may state. A case whose program is not installed
is skipped and counted, as one that runs nothing. A test-suite, whose own verdicts are compared, is run untraced once, and
up to three times more when it differs: where untraced runs differ from each other in the same way, the difference is the
program's own.
"""
import argparse
import collections
import datetime
import difflib
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

import harness
from commands import attached, cpython, kinds, languages, large, outside, small
from commands.case import NOTHING_RUN, PATH, Case
from harness import ROOT, Skip, expect, main

RING_EVENTS = 4_000_000  # what fits into the ring without help of the drain, with segments to spare
SHOWN_LINES = 16
SLOWER = 10  # a traced run may take so many times the time-out of the untraced one
TRIES = 4    # untraced runs of a case that differs

# The shell tells of a child that died of a signal; contrail exits with 128 + N, as a shell would.
SHELL_NOTICE = re.compile(r"(?m)^(\S*/script\.sh: line \d+: +\d+ [A-Z][^\n]*|Terminated)\n")
# Drops are judged by the counts in the traces.
DROP_NOTICE = re.compile(r"(?m)^contrail: [\d,]+ events were dropped [^\n]*\n")
# So does the trace of how much of a program was recorded.
PART_NOTICE = re.compile(r"(?m)^contrail: note: (?:a child: )?only [^\n]* of the text of [^\n]* belongs to known functions; [^\n]*\n")
WAITED_IN_VAIN = 99
PREAMBLE = """set -u
wait_for() {
  for _ in {1..600}; do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
  echo "wait_for: never succeeded: $*" >&2
  exit %d
}
""" % WAITED_IN_VAIN
UNTRACED = """#!/bin/sh
exec "$@"
"""
TRACED = """#!/bin/sh
trace=$(mktemp -d {traces}/XXXXXXXX) || exit 99
exec {contrail} record {how} {options} -o "$trace" -- "$@"
"""
# The first thread of each program runs by translated code (tests/itrace/translated.c); nothing is recorded.
TRANSLATED = """#!/bin/sh
exec {translated} -- "$@"
"""
RECORDED = """#!/bin/sh
exec {translated} -l -o {traces} -- "$@"
"""
# All threads, by the command.
INSTRUCTIONS = """#!/bin/sh
trace=$(mktemp -d {traces}/XXXXXXXX) || exit 99
exec {contrail} itrace -a -q -o "$trace" -- "$@"
"""
# The program keeps its process id, its parent and its children; who attaches to it is nobody's child.
ATTACHED = """#!/bin/sh
setsid -f flock -s {scratch}/attaching {scratch}/bin/attach_often $$ </dev/null >/dev/null 2>&1
exec "$@"
"""
ATTACH_OFTEN = """#!/bin/bash
for turn in {{1..20}}; do
  sleep 0.4
  trace=$(mktemp -d {traces}/attached.XXXXXXXX) || exit 99
  {contrail} attach --follow --for 0.5s {options} -o "$trace" $1 2>"$trace.err" && rm "$trace.err" && continue
  rm -rf "$trace"
  if grep -q 'nothing was recorded' "$trace.err"; then rm "$trace.err"; continue; fi
  case $(ps -o stat= -p $1) in "" | [ZX]*) rm "$trace.err"; exit;; esac
done
"""
# The same by the instruction tracer: its first thread, 20 times for half a second.
ATTACH_TRANSLATED = """#!/bin/bash
for turn in {{1..20}}; do
  sleep 0.4
  said={traces}/attached.$turn.err
  {translated} {steps} -s 0.5 $1 >/dev/null 2>"$said" && rm "$said" && continue
  case $(ps -o stat= -p $1) in "" | [ZX]*) rm "$said"; exit;; esac
done
"""


# A recorder that can be told from none in every respect that is compared.
SPOILER = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
"$@"; status=$?
echo more; echo more >&2; echo more >>file; sleep 30 & exit $((status + 1))
"""


class Result:
    """One run of a case, in the form in which it is compared."""

    def __init__(self):
        self.late = False
        self.status = None
        self.seconds = 0.0
        self.parts = {}  # what is compared: part -> list of lines
        self.left_over = 0


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)


def sessions_processes(session):
    """Processes of a session that are still alive."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X") and int(fields[3]) == session:
            found.append(int(entry))
    return found


def end_session(session):
    """Ends what is left of a session that we started, and says how much that was."""
    # What is about to end by itself may do so.
    for _ in range(20):
        left = sessions_processes(session)
        if not left:
            return 0
        time.sleep(0.05)  # one of some looks
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(left)


def tree_lines(folder, ignored):
    """One line for each file below FOLDER: kind, mode, links, size, contents."""
    lines = []
    for path, folders, names in os.walk(folder):
        for name in sorted(folders + names):
            full = os.path.join(path, name)
            shown = os.path.relpath(full, folder)
            told = os.lstat(full)
            mode = stat.filemode(told.st_mode)
            if any(fnmatch.fnmatch(shown, pattern) for pattern in ignored):
                lines.append(f"{mode} {shown} (contents not compared)")
            elif stat.S_ISLNK(told.st_mode):
                lines.append(f"{mode} {shown} -> {os.readlink(full)}")
            elif stat.S_ISREG(told.st_mode):
                with open(full, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()[:16]
                lines.append(f"{mode} {shown} links={told.st_nlink} size={told.st_size} {digest}")
            else:
                lines.append(f"{mode} {shown}")
    return sorted(lines, key=lambda line: line.split(" ", 1)[1])


class Runner:
    """Runs one case in its scratch folder; FOLDER/work is where the script runs, at the same path each time."""

    def __init__(self, options, case, scratch):
        self.options, self.case, self.scratch = options, case, scratch
        self.work = os.path.join(scratch, "work")
        self.template = os.path.join(scratch, "template")
        self.traces = os.path.join(scratch, "traces")
        self.faults = []

    def write(self, name, text, mode):
        path = os.path.join(self.scratch, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def environment(self):
        path = os.path.join(self.scratch, "bin") + ":" + PATH
        fixed = {"PATH": path, "HOME": os.path.join(self.scratch, "work"), "LC_ALL": "C.UTF-8", "TZ": "UTC",
                 "TERM": "dumb", "USER": "root", "LOGNAME": "root", "TMPDIR": os.path.join(self.scratch, "tmp"),
                 "XDG_CACHE_HOME": self.options.cache, "SOURCE_DATE_EPOCH": "1000000000", "CT_ROOT": ROOT}
        if getattr(self.options, "translated", False):  # leaks are looked for by ptrace, which is the tracer's
            fixed["LSAN_OPTIONS"] = "detect_leaks=0"
        return dict(fixed, **self.case.environment)

    def execute(self, script, timeout):
        """Runs a script in the work folder; returns status, stdout, stderr, whether it was late, what it left behind."""
        path = self.write("script.sh", PREAMBLE + script, 0o644)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(["bash", path], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.work,
                                       env=self.environment(), start_new_session=True, preexec_fn=limits)
            late = False
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                late = True
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            left = end_session(process.pid)
            out.seek(0)
            err.seek(0)
            return process.returncode, out.read(), err.read(), late, left

    def prepare(self):
        os.makedirs(self.work)
        self.write("bin/t", UNTRACED, 0o755)
        self.write("bin/followed", UNTRACED, 0o755)
        self.write("bin/attached", UNTRACED, 0o755)
        self.write("attaching", "", 0o666)
        os.makedirs(os.path.join(self.scratch, "tmp"))
        if self.case.prepare:
            status, _, err, late, _ = self.execute("set -e\n" + self.case.prepare, 600)
            if status or late:
                self.faults.append(f"cannot be prepared: status {status}")
                self.faults += ["  " + line for line in err.decode(errors="replace").splitlines()[-SHOWN_LINES:]]
        os.rename(self.work, self.template)

    def go(self, traced):
        for folder in (self.work, self.traces, os.path.join(self.scratch, "tmp")):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self.traces)
        os.makedirs(os.path.join(self.scratch, "tmp"))
        os.chmod(self.traces, 0o1777)  # for cases that change user
        subprocess.run(["cp", "-a", self.template, self.work], check=True)
        translated = getattr(self.options, "translated", False)
        by = INSTRUCTIONS if getattr(self.options, "instructions", False) else RECORDED if getattr(self.options, "records", False) else TRANSLATED if translated else TRACED
        filled = {"traces": self.traces, "translated": os.path.join(ROOT, os.path.dirname(self.options.contrail), "tests", "translated"), "contrail": self.options.contrail, "scratch": self.scratch,
                  "options": shlex.join(self.options.record), "steps": f"-l -o {self.traces}" if getattr(self.options, "records", False) else ""}
        often = ATTACH_TRANSLATED if translated else ATTACH_OFTEN
        for name, text, how in (("t", by, ""), ("followed", by, "--follow"), ("attached", ATTACHED, ""), ("attach_often", often, "")):
            self.write(f"bin/{name}", text.format(how=how, **filled) if traced else UNTRACED, 0o755)
        result = Result()
        begin = time.monotonic()
        timeout = self.case.timeout * (SLOWER if traced else 1)
        result.status, out, err, result.late, result.left_over = self.execute(self.case.script, timeout)
        result.seconds = time.monotonic() - begin
        with open(os.path.join(self.scratch, "attaching"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until all have unlocked it
        ends = [f"time is up after {timeout} s"] if result.late else [f"status {result.status}"]
        result.parts["end"] = ends + ([f"{result.left_over} processes left behind"] if result.left_over else [])
        if traced and self.case.notes:
            err = b"".join(line for line in err.splitlines(True) if not line.startswith(b"contrail: "))
        texts = [self.normalise(data.decode(errors="surrogateescape")) for data in (out, err)]
        if self.case.outcome and not result.late:
            result.parts["outcome"] = self.case.outcome(self.work, *texts)
            self.last_output = texts
        else:
            for name, text in zip(("stdout", "stderr"), texts):
                lines = text.split("\n")
                result.parts[name] = sorted(lines) if self.case.unordered else lines
            result.parts["files"] = tree_lines(self.work, [pattern for pattern, _ in self.case.ignore])
        return result

    def put_aside(self):
        """The traced run's files and traces are kept from the runs that follow."""
        for name in ("work", "traces"):
            shutil.rmtree(os.path.join(self.scratch, name + ".traced"), ignore_errors=True)
            os.rename(os.path.join(self.scratch, name), os.path.join(self.scratch, name + ".traced"))

    def normalise(self, text):
        for notice in (SHELL_NOTICE, DROP_NOTICE, PART_NOTICE):
            text = notice.sub("", text)
        for pattern, replacement, _ in self.case.normal:
            text = re.sub(pattern, replacement, text)
        if getattr(self.options, "translated", False):  # under ptrace, which shows there
            text = re.sub(r"(?m)^TracerPid:\s*\d+$", "TracerPid: 0", text)
        return text


def differences(one, other, known=()):
    """Lines that say where two results differ; known ones are left out and counted apart."""
    found, allowed = [], []
    for part, lines in one.parts.items():
        right = other.parts.get(part, [])
        if lines == right:
            continue
        for line in difflib.unified_diff(lines, right, n=0, lineterm=""):
            if line.startswith(("---", "+++", "@@")):
                continue
            text = f"{part}: {'untraced' if line[0] == '-' else 'traced  '} {line[1:][:400]}"
            mechanism = next((why for pattern, why in known if re.search(pattern, line[1:])), None)
            if mechanism:
                allowed.append((text, mechanism))
            else:
                found.append(text)
    return found, allowed


def own_doing(untraced, traced):
    """True when each line that only the traced run has, or lacks, also comes, or is missing, in some untraced run."""
    for part in traced.parts:
        counts = [collections.Counter(run.parts.get(part, [])) for run in untraced]
        lines = collections.Counter(traced.parts[part])
        for line in set(lines).union(*counts):
            if lines[line] not in {count[line] for count in counts}:
                return False
    return True


class Checked:
    """The verdict over one case."""

    def __init__(self, case):
        self.case = case
        self.verdict = "equal"
        self.faults = []
        self.known = []
        self.numbers = {}
        self.note = ""

    def fail(self, text, details=()):
        self.verdict = "different"
        self.faults += [text] + ["  " + line for line in details]

    def skip(self, why):
        self.verdict, self.note = "skipped", why


def read_info(contrail, trace):
    result = subprocess.run([contrail, "info", "--json", trace], capture_output=True, text=True, errors="replace",
                            timeout=600)
    if result.returncode:
        return None, f"contrail info: status {result.returncode}: {result.stderr.strip()[:300]}"
    return json.loads(result.stdout), None


def check_steps(checked, runner, options):
    """Records that contradict each other. Very long ones are not read: that takes longer than their case."""
    tool, left = os.path.join(options.build, "tests", "stepped"), options.walk << 20
    longest = left // 3
    for file in sorted(glob.glob(os.path.join(runner.traces, "**", "steps.*"), recursive=True), key=os.path.getsize):
        left -= os.path.getsize(file)
        if os.path.getsize(file) > longest or left < 0:
            continue
        walked = subprocess.run([tool, "walk", file], capture_output=True, text=True, timeout=600)
        if walked.returncode:
            checked.fail(f"{os.path.basename(file)}: {(walked.stdout + walked.stderr).strip()}")


def check_traces(checked, runner, options):
    if options.records:
        check_steps(checked, runner, options)
    if options.translated:
        for path in glob.glob(os.path.join(runner.traces, "*.err")):
            with open(path, encoding="utf-8", errors="replace") as file:
                checked.fail(f"an attach failed: {file.read().strip()}")
        return
    numbers = {"traces": 0, "functions": 0, "hooked": 0, "events": 0, "dropped": 0, "bytes": 0, "threads": 0,
               "install_seconds": 0.0}
    for trace in sorted(glob.glob(os.path.join(runner.traces, "*"))):
        if trace.endswith(".err"):
            with open(trace, encoding="utf-8", errors="replace") as file:
                checked.fail(f"an attach failed: {file.read().strip()}")
            continue
        if not os.listdir(trace) and checked.case.notes:
            continue  # refused, as the case expects
        info, fault = read_info(options.contrail, trace)
        if fault:
            checked.fail(fault)
            continue
        name = os.path.basename(info["command"][0]) if info.get("command") else "?"
        numbers["traces"] += 1
        numbers["functions"] += sum(module["functions"] for module in info["modules"])
        numbers["hooked"] += sum(module["hooked"] for module in info["modules"])
        numbers["install_seconds"] += info["install_ns"] / 1e9
        for key in ("events", "dropped", "bytes"):
            numbers[key] += info[key]
        numbers["threads"] += len(info["threads"])
        if not info["complete"]:
            checked.fail(f"the trace of {name} is not complete")
        if info["events"] == 0:
            checked.fail(f"the trace of {name} has no events")
        if "/attached." in trace:
            continue  # where it loses what there is no room for
        if info["dropped"] and (info["events"] + info["dropped"] < RING_EVENTS or "--lossless" in options.record):
            checked.fail(f"{info['dropped']} of {info['events']} events of {name} were dropped")
    if not numbers["traces"]:
        checked.fail("no trace was written")
    checked.numbers = numbers


def play(options, checked, runner):
    """Untraced, then traced, so often as asked for; the verdict is in checked."""
    case = checked.case
    runner.prepare()
    if runner.faults:
        return checked.fail("the case itself fails", runner.faults)
    untraced = [runner.go(False)]
    if not options.once and not case.outcome:  # compare() runs those again when they differ
        untraced.append(runner.go(False))
    if untraced[0].late:
        return checked.fail("no end in time untraced")
    idle = tested_nothing(case, untraced[0])
    if idle:
        return checked.fail("the case itself fails untraced:", idle)
    outcome = untraced[0].parts.get("outcome", [])
    if outcome and outcome[0].startswith(NOTHING_RUN):
        return checked.skip(outcome[0])
    if options.show:
        for part, lines in untraced[0].parts.items():
            print(f"--- {case.name}: {part}", *lines, sep="\n")
    for turn in range(options.repeat):
        traced = runner.go(True)
        check_traces(checked, runner, options)
        compare(checked, runner, untraced, traced)
        if case.outcome:
            checked.numbers["tests"] = len(traced.parts.get("outcome", []))
        checked.numbers["untraced_seconds"] = min(run.seconds for run in untraced)
        checked.numbers["traced_seconds"] = traced.seconds
        if checked.verdict == "different":
            if options.repeat > 1:
                checked.faults.insert(0, f"turn {turn + 1}")
            break
    return None


def tested_nothing(case, untraced):
    """What shows that the untraced run has not done what the case is about: two failures alike prove nothing."""
    out, err = (untraced.parts.get(name, []) for name in ("stdout", "stderr"))
    text = "\n".join(out)
    found = [f"its output has no {wanted!r}" for wanted in case.shows if wanted not in text]
    if untraced.status == WAITED_IN_VAIN:
        found.append(f"status {WAITED_IN_VAIN}")
    return found + [line for line in (out + err)[-SHOWN_LINES:] if line] if found else []


def compare(checked, runner, untraced, traced):
    case = checked.case
    unsteady = len(untraced) > 1 and differences(untraced[0], untraced[1])[0]
    if unsteady and not case.outcome:
        checked.fail("differs from run to run untraced, the case lacks a normaliser:", unsteady[:SHOWN_LINES])
        return
    found, checked.known = differences(untraced[0], traced, case.known)
    if not found:
        return
    runner.put_aside()
    while case.outcome and len(untraced) < TRIES and not own_doing(untraced, traced):
        untraced.append(runner.go(False))
    if case.outcome and own_doing(untraced, traced):
        checked.note = "varies untraced too: " + "; ".join(found)[:300]
        return
    more = [f"and {len(found) - SHOWN_LINES} more lines"] if len(found) > SHOWN_LINES else []
    checked.fail("differs:", found[:SHOWN_LINES] + more)


@harness.case("the harness itself")
def sees_differences(scene):
    """Does this program see what differs? A recorder that spoils everything must be found out in each part."""
    case = Case("self", "the harness itself", "t sh -c 'echo out; echo err >&2; echo x >file; exit 3'")
    spoiler = argparse.Namespace(contrail=scene.path("spoiler"), record=[], cache=scene.folder)
    runner = Runner(spoiler, case, scene.folder)
    scene.write("spoiler", SPOILER, 0o755)
    runner.prepare()
    checked = Checked(case)
    compare(checked, runner, [runner.go(False), runner.go(False)], runner.go(True))
    parts = {line.split()[0] for line in checked.faults[1:]}
    expect(parts == {"end:", "stdout:", "stderr:", "files:"} and any("left behind" in line for line in checked.faults),
           f"it does not see all differences, only {' '.join(sorted(parts))}")
    idle, waited = Result(), Result()
    idle.status, idle.parts = 0, {"stdout": ["sum 6"], "stderr": []}
    waited.status, waited.parts = WAITED_IN_VAIN, {"stdout": ["sum 7"], "stderr": []}
    case.shows = ["sum 7"]
    expect(tested_nothing(case, idle) and tested_nothing(case, waited),
           "it takes a case that has tested nothing for one that has")


class Scene(harness.Scene):
    def __init__(self, options, folder, command=None):
        super().__init__(options, folder)
        os.chmod(folder, 0o755)
        self.checked = Checked(command)
        self.again = " --keep"

    def check(self):
        case = self.checked.case
        missing = case.missing()
        if missing:
            self.checked.skip(missing)
            return
        try:
            play(self.options, self.checked, Runner(self.options, case, self.folder))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.checked.fail(f"{type(error).__name__}: {error}")


def as_untraced(scene):
    checked, options = scene.checked, scene.options
    scene.check()
    if options.json:
        with options.lock:
            options.all_checked.append(checked)
            write_json(options, options.all_checked)
    if checked.verdict == "skipped":
        raise Skip(checked.note)
    faults = "\n     ".join(checked.faults).encode(errors="backslashreplace").decode()
    expect(checked.verdict == "equal", faults)
    known = "".join(f"\n     known: {text} ({mechanism})" for text, mechanism in checked.known)
    return facts(checked.numbers) + (f"; {checked.note}" if checked.note else "") + known


def facts(numbers):
    slower = numbers["traced_seconds"] / max(numbers["untraced_seconds"], 0.001)
    text = f"{numbers['untraced_seconds']:.2f} s, traced {numbers['traced_seconds']:.2f} s ({slower:.1f}x)"
    if "events" not in numbers:
        return text
    dropped = f", {numbers['dropped']} dropped" if numbers["dropped"] else ""
    return f"{text}, {numbers['hooked']} functions hooked, {numbers['events']} events{dropped}"


def machine():
    model = "?"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} x {model}, Linux {os.uname().release}"


def commit():
    """The last commit that changed the product, not its tests."""
    words = ["git", "-C", ROOT, "log", "-1", "--format=%h", "--abbrev=7", "--", "src"]
    dirty = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--", "src"], capture_output=True).stdout
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() + ("-dirty" if dirty else "")


def write_json(options, all_checked):
    cases = {case["name"]: case for case in options.earlier}
    for checked in all_checked:
        cases[checked.case.name] = {"name": checked.case.name, "group": checked.case.group, "verdict": checked.verdict,
                                    "note": checked.note, "faults": checked.faults, "known": checked.known,
                                    "date": datetime.date.today().isoformat(), "commit": options.commit,
                                    **checked.numbers}
    data = {"machine": machine(), "record": options.record,
            "cases": sorted(cases.values(), key=lambda case: (case["group"], case["name"]))}
    with open(options.json + ".new", "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
    os.rename(options.json + ".new", options.json)


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["cases"]


def arguments(parser):
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--translated", action="store_true", help="by translated code, in place of a recording")
    parser.add_argument("--records", action="store_true", help="--translated, and instructions are recorded")
    parser.add_argument("--instructions", action="store_true", help="those of all threads are recorded, in place of calls")
    parser.add_argument("--once", action="store_true", help="untraced once only")
    parser.add_argument("--walk", type=int, default=120, metavar="MB", help="so much of a case's records is read again, of a file a third of it")
    parser.add_argument("--record", type=shlex.split, default=[], help="further options for contrail record")
    parser.add_argument("--json", help="write numbers there")
    parser.add_argument("--show", action="store_true", help="print what is compared")
    parser.add_argument("--resume", action="store_true", help="not again what the file of --json has")
    parser.add_argument("--seconds", type=float, help="begin no case after so many")
    parser.set_defaults(commit=None, earlier=[], all_checked=[], lock=threading.Lock())


def choose(cases, options):
    options.records |= options.instructions
    options.translated |= options.records
    options.cache = os.path.join(options.build, "tests", "cache")
    os.makedirs(options.cache, exist_ok=True)
    if not options.long and not options.filter:
        cases = [one for one in cases if one.keywords.get("command") not in LONG]
    if options.json:
        options.commit = commit()
    if options.resume and options.json and os.path.exists(options.json):
        options.earlier = read_json(options.json)
        done = {case["name"] for case in options.earlier if case["verdict"] != "different"}
        cases = [one for one in cases if one.name not in done]
    return until(time.monotonic() + options.seconds, cases) if options.seconds else cases


def until(end, cases):
    for one in cases:
        if time.monotonic() > end:
            return
        yield one


LONG = [each for more in (large, outside, kinds, attached, languages, cpython) for each in more.cases.list]
for each_command in small.cases.list + LONG:
    harness.case(each_command.name, command=each_command, some=None if each_command in LONG else ("commands", 8))(as_untraced)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose, jobs=2)
