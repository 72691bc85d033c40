#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All tests of the project, or the groups named, and one last line with the sum.

    tests/all.py [--build DIR] [--long] [--dearest N] [--times FILE] [GROUP...]      --list: the groups; --long: what make test leaves out, too

A group is one or more programs that print what they like and, as their last line, `N passed, N failed, N skipped`. The
unit tests are cmocka programs and are counted here from their TAP output.

As many programs run side by side as there are processors, and beside them as many that mostly wait; a group can be played
in several parts. What has deadlines that a busy machine would miss comes after that, when no more than what keeps the processors is left,
hardly more of them than processors, and beside them what hardly uses any; what measures times is the last, alone: groups marked so here, and cases marked so in their files. What a group has printed is
shown when all of it has ended; what has failed is said once more, just before the last line.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from watch import Watched

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PROCESSORS = len(os.sched_getaffinity(0))
COSTS = re.compile(r"^ok   (\S+) (.*?)(?:: .*)? \(([\d.]+) s, ([\d.]+) of a processor\)$")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped")
# The programs with their words; how: "busy" keeps a processor, "waits" waits half of the time or more, "late" needs a processor
# of its own, "quiet" needs one at once, but hardly any of its time, "alone" is disturbed by any other; in how many parts each program is
# played; how cases are played that are marked in its file (alone=True: the first word; alone="quiet": that word, which is here, too);
# how long it may take.
Group = collections.namedtuple("Group", "programs how parts marked seconds", defaults=("busy", 1, None, 900))
GROUPS = {
    "static": Group(["static/layers.py", "static/agent.py", "static/hazards.py", "static/library.py", "static/manual.py",
                     "static/golden.py", "static/hardening.py", "static/harness.py", "static/fuzzed.py", "static/words.py"]),
    "unit": Group([], parts=2),
    "fixtures": Group(["run.py --share 0.45"], parts=4, seconds=1800),
    "exclude": Group(["exclude.py"], parts=4),
    "patterns": Group(["patterns.py"]),
    "light": Group(["light.py"], marked="alone"),
    "times": Group(["times.py"], "quiet", marked="alone"),
    "values": Group(["values.py", "run.py --record=--args --few --share=0.25 --filter=[rvact]*/gcc-O2"]),
    "abi": Group(["abi.py"]),
    "typed": Group(["typed.py"]),
    "witness_values": Group(["valuesgdb.py"]),
    "detail": Group(["detail.py", "run.py --record=--detail=all --few --share=0.2 --filter=*/gcc-O2 --filter=*/gcc-O2/* --filter=light/gcc-O2-static "
                     "--filter=graph/gcc-O2-witness --filter=longjmp/gcc-O2-witness --filter=recursion/gcc-O2-witness"]),
    "errors": Group(["errors.py", "usage.py"], "waits", marked="late"),
    "crash": Group(["crash.py"], "waits", parts=2, marked="late"),
    "output": Group(["output.py"], "waits"),
    "attach": Group(["attach.py --turns 2"], "late", parts=2),
    "follow": Group(["follow.py", "followlive.py"], "waits", marked="late"),
    "changes": Group(["changes.py"], "late", parts=2),
    "losses": Group(["losses.py"], "late", parts=2),
    "killed": Group(["killed.py --seconds 1 --few"], "quiet", marked="late"),
    "hostile": Group(["hostile.py --seconds 5"], "late"),
    "cache": Group(["cache.py"], "waits"),
    "graph": Group(["graph.py", "slowest.py"], parts=2, marked="late"),
    "library": Group(["library.py"], "waits"),
    "use": Group(["use.py"], "waits"),
    "last": Group(["last.py"], "waits"),
    "maxsize": Group(["maxsize.py"], "waits"),
    "flight": Group(["flight.py"], "waits"),
    "pieces": Group(["pieces.py"]),
    "atf": Group(["atf.py", "cut.py"], parts=2),
    "export": Group(["export.py", "exportparquet.py", "exportstacks.py"]),
    "readers": Group(["readers.py"], "waits"),
    "html": Group(["page.py"]),
    "fleet": Group(["fleet.py"], "waits"),
    "filters": Group(["filters.py"]),
    "sql": Group(["sql.py", "sqlbounds.py"], parts=2),
    "examples": Group(["examples.py"], "waits"),
    "passover": Group(["passover.py"], parts=3),
    "budget": Group(["budget.py"], "late", marked="alone"),
    "powercut": Group(["powercut.py"]),
    "triggers": Group(["triggers.py", "triggersdetail.py", "triggersnumbers.py"], "waits"),
    "lanes": Group(["lanes.py"], "waits", marked="quiet"),
    "check": Group(["check.py"]),
    "diff": Group(["diff.py"], "late"),
    "live": Group(["live.py"], "waits", marked="late"),
    "tui": Group(["tui.py"], "waits"),
    "terminal": Group(["terminal.py"], "waits"),
    "streams": Group(["streams.py", "broker.py"], "waits"),
    "control": Group(["control.py"], "waits", marked="late"),
    "mcp": Group(["mcp.py", "mcptools.py", "mcpanswers.py", "mcphunts.py", "mcphttp.py", "mcpattack.py"], "waits", marked="late"),
    "signals": Group(["signals.py"], "waits", marked="quiet"),
    "itrace": Group(["itrace.py", "itraceselected.py", "itracerecords.py", "itracekilled.py"], parts=2, marked="late"),
    "equal": Group(["equal.py"], parts=2),
    "itracecalls": Group(["itracecalls.py"], "waits"),
    "programs": Group(["programs.py"]),
    "kinds": Group(["kinds.py"], parts=2, seconds=1800),
    "transparency": Group(["transparency.py"], "waits", seconds=1800),
    "translated": Group(["transparency.py --records --once --some=2 --walk=10 --filter=bash* --filter=signals* --filter=stop* --filter=inherited* "
                         "--filter=perl --filter=sqlite3 --filter=C++* --filter=binaries* --filter=python*threads*"], "waits"),
    "callgrind": Group(["callgrind.py"]),
    "libraries": Group(["dlstorm.py --seconds 1 --libraries 20"]),
    "differential": Group(["differential/run.py --percent 30"]),
    "steps": Group(["steps.py"], parts=2),
    "steps_sql": Group(["stepsql.py"], parts=2),
    "steps_calls": Group(["stepcalls.py"]),
    "debug": Group(["debug.py"]),
    "fuzz": Group(["fuzz/run.py --seconds 1 --plain --lot"]),
}
HOW = ("busy", "waits", "late", "quiet", "alone")  # in this order, the first two at a time, and the next two
WEIGHTS = {"busy": 1, "waits": 0.5, "late": 1, "quiet": 0, "alone": 1}  # of a processor
UNIT_SECONDS = 300  # for each of their programs
REASON_LINES = 8  # of a failure, that are said again at the end
SYSTEM_PYTHON = "/usr/bin/python3"
# Those that take long begin first, so that none of them is left over at the end. Programs are longer than the parts of others.
LONGEST_FIRST = ["itrace", "mcp", "fuzz", "fixtures", "follow", "streams", "sql", "last", "triggers", "graph", "export", "maxsize", "kinds", "signals",
                 "detail", "errors", "debug", "abi", "passover", "light", "steps_sql", "patterns", "transparency", "crash", "unit", "use", "itracecalls",
                 "html", "examples", "typed", "readers", "live", "filters", "pieces", "atf", "witness_values", "tui", "values", "steps", "equal", "static",
                 "lanes", "differential", "exclude", "callgrind", "flight", "programs", "translated", "terminal", "killed", "budget", "attach", "hostile",
                 "changes", "losses"]


def interpreter():
    """The system's, unless it is an older one: distributors' is optimised, which a fifth of the tests' time depends on, and starts
    without the shell script that stands in its place in PATH where there are several."""
    shown = subprocess.run([SYSTEM_PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True,
                           check=False) if os.access(SYSTEM_PYTHON, os.X_OK) else None
    is_new = shown is not None and shown.returncode == 0 and tuple(map(int, shown.stdout.split())) >= sys.version_info[:2]
    return SYSTEM_PYTHON if is_new else sys.executable


def compile_shared(python):
    """What programs of tests import of each other is compiled once, also where Python is told not to keep what it has compiled: harness.py takes as
    long as Python's own start."""
    texts = {name[:-3]: open(os.path.join(HERE, name), encoding="utf-8").read() for name in os.listdir(HERE) if name.endswith(".py")}
    imported = {name for text in texts.values() for name in re.findall(r"(?m)^ *(?:import|from) (\w+)", text)} & set(texts)
    subprocess.run([python, "-m", "compileall", "-q", *(os.path.join(HERE, name + ".py") for name in sorted(imported))], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)


class Job:
    """One program of a group, or a part of its cases."""

    python = sys.executable
    is_long = False

    def __init__(self, group, words, how, part=(0, 1)):
        self.group, self.words, self.how, self.part, self.seconds = group, words, how, part, GROUPS[group].seconds
        self.watched = None
        self.lines, self.counts, self.begin, self.end, self.used = [], (0, 1, 0), 0, 0, 0

    def run(self, build):
        self.begin = time.monotonic()
        # Sessions of ours are none of the user's, nor theirs ours.
        with tempfile.TemporaryDirectory(prefix="contrail-tests-") as sessions:
            environment = dict(os.environ, XDG_RUNTIME_DIR=sessions)
            if self.how == "busy":
                environment["CONTRAIL_TEST_JOBS"] = "1"
            if self.is_long:
                environment["CONTRAIL_TEST_LONG"] = "1"  # for unit tests (unit/rounds.h)
            try:
                self.counts = self.run_unit(build, environment) if self.words is None else self.run_program(build, environment)
            except OSError as error:
                self.lines.append(f"FAIL {self.group}: {error}")
        self.end = time.monotonic()

    def run_program(self, build, environment):
        """The counts; a program without the last line has failed, and one that takes too long."""
        self.watched = Watched([self.python, os.path.join(HERE, self.words[0]), *self.words[1:], "--build", build], environment, self.seconds)
        counts = None
        for line in self.watched.lines():
            found = SUMMARY.match(line)
            if found:
                counts = tuple(int(n) for n in found.groups())
            else:
                self.lines.append(line.rstrip("\n"))
        status, usage = self.watched.wait()
        self.used = usage.ru_utime + usage.ru_stime
        name = " ".join(self.words)
        if self.watched.left:
            self.lines.append("\n".join([f"     {name}: has left these, which are ended now:", *self.watched.left]))
        if self.watched.fault:
            self.lines.append("\n".join([f"FAIL {name}: " + self.watched.fault[0], *self.watched.fault[1:]]))
            return 0, max(counts[1] if counts else 0, 1), 0
        if counts is None:
            self.lines.append(f"FAIL {name}: ended with status {status} and no summary")
            return 0, 1, 0
        if status != 0 and counts[1] == 0:
            self.lines.append(f"FAIL {name}: status {status} although no test failed")
            return counts[0], 1, counts[2]
        return counts

    def run_unit(self, build, environment):
        names = sorted(name[:-2] for name in os.listdir(os.path.join(HERE, "unit")) if name.endswith(".c"))
        names = names[self.part[0]::self.part[1]]
        environment.update(CMOCKA_MESSAGE_OUTPUT="TAP", CT_SOURCE_ROOT=ROOT, CT_BUILD_ROOT=build)
        return tuple(map(sum, zip(*(self.run_cmocka(os.path.join(build, "tests", name), environment) for name in names))))

    def run_cmocka(self, program, environment):
        name = os.path.basename(program)
        try:
            process = subprocess.Popen([program], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        except OSError as error:
            self.lines.append(f"FAIL unit {name}: {error}")
            return 0, 1, 0
        end = threading.Timer(UNIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        end.start()
        with process.stdout:
            output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        end.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        self.used += usage.ru_utime + usage.ru_stime
        lines = output.splitlines()
        skipped = sum(bool(re.match(r"(not )?ok .*# SKIP", line)) for line in lines)
        good = sum(line.startswith("ok ") and "# SKIP" not in line for line in lines)
        bad = sum(line.startswith("not ok ") and "# SKIP" not in line for line in lines)
        if process.returncode != 0 and bad == 0:
            bad = 1
        self.lines.append(f"{'FAIL' if bad else 'ok  '} unit {name}: {good} passed" + (f", {bad} failed" if bad else ""))
        if bad:
            self.lines += [output, f"     status {process.returncode}, again: {program}"]
        return good, bad, skipped


def jobs_of(name, more):
    """more: further words for its programs."""
    group, jobs = GROUPS[name], []
    if name == "unit":
        return [Job(name, None, group.how, (part, group.parts)) for part in range(group.parts)]
    for program in group.programs:
        words = program.split() + more
        # Of marked cases there are few, which are not played in parts.
        marked = [Job(name, words + ["--alone", how if i else "only"], how) for i, how in enumerate((group.marked or "").split())]
        for part in range(group.parts):
            own = ["--part", f"{part + 1}/{group.parts}"] if group.parts > 1 else []
            jobs.append(Job(name, words + own + (["--alone", "none"] if marked else []), group.how))
        jobs += marked
    return jobs


def dearest(jobs, count):
    """The cases that took most of a processor, and those that waited most."""
    found = [(float(used), float(took), f"{group} {name}") for job in jobs for line in job.lines for group, name, took, used in COSTS.findall(line)]
    for title, key in (("took most of a processor", lambda one: one[0]), ("waited most", lambda one: one[1] - one[0])):
        print(f"== {title}: seconds of a processor, of the clock")
        print("\n".join(f"{used:7.1f} {took:7.1f}  {name}" for used, took, name in sorted(found, key=key, reverse=True)[:count]))


def reasons(lines):
    """Each line of a failure with the few after it that say why."""
    said, rest = [], 0
    for line in "\n".join(lines).splitlines():
        rest = REASON_LINES if line.startswith(("FAIL", "not ok")) else 0 if line.startswith(("ok ", "skip")) else rest - 1
        if rest > 0:
            said.append(line[:500])
    return said


class Board:
    """Runs the jobs, shows each group when its last job has ended, and adds up."""

    def __init__(self, groups, build, more):
        self.build, self.lock = build, threading.Lock()
        self.jobs = [job for name in groups for job in jobs_of(name, more)]
        self.total, self.failures, self.phases = [0, 0, 0], [], []
        self.running = []

    def run(self, job):
        job.run(self.build)
        with self.lock:
            own = [other for other in self.jobs if other.group == job.group]
            if all(other.end for other in own):
                self.show(job.group, own)

    def show(self, name, jobs):
        counts = [sum(column) for column in zip(*(job.counts for job in jobs))]
        self.total = [a + b for a, b in zip(self.total, counts)]
        took = sum(max((job.end for job in jobs if job.how == how), default=0) -
                   min((job.begin for job in jobs if job.how == how), default=0) for how in HOW)
        said = [line for job in jobs for line in reasons(job.lines)]
        if counts[1]:
            self.failures += [f"== {name}: {counts[1]} failed"] + (said or [line for job in jobs for line in job.lines[-REASON_LINES:]])
        print("\n".join([f"== {name}"] + [line for job in jobs for line in job.lines]))
        print(f"== {name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped, {took:.1f} s"
              f" ({sum(job.used for job in jobs):.1f} s of a processor)", flush=True)

    def run_all(self):
        order = {name: i for i, name in enumerate(LONGEST_FIRST)}
        left = {how: [] for how in HOW}
        for job in sorted(self.jobs, key=lambda job: order.get(job.group, len(order))):
            left[job.how].append(job)
        # Who finds nothing of what keeps a processor any more plays what waits, and one the other way round: no processor is to be idle.
        # The same for what is late, and quiet: of the late ones most wait for half of the time, one more of them is played than there are processors.
        self.phase(left, PROCESSORS * [("busy", "waits", "late", "quiet")] + [("waits", "busy", "quiet", "late")] + (PROCESSORS - 1) * [("waits", "quiet")])
        self.phase(left, [("alone",)])

    def phase(self, left, players):
        kinds = list(dict.fromkeys(kind for player in players for kind in player))
        jobs, begin = [job for kind in kinds for job in left[kind]], time.monotonic()
        self.play(left, players)
        if jobs and len(self.jobs) > len(jobs):
            took = time.monotonic() - begin
            self.phases.append(f"{', '.join(kinds)} {took:.0f} s, of the processors {100 * sum(job.used for job in jobs) / took / PROCESSORS:.0f} %")

    def say_unfinished(self):
        """What is running, when all of it is ended from outside."""
        for job in self.jobs:
            if job.begin and not job.end:
                print(f"== {job.group}: not at its end after {time.monotonic() - job.begin:.0f} s: {' '.join(job.words or ['unit'])}")
                print("\n".join(job.lines[-REASON_LINES:] + (job.watched.doing() if job.watched else [])), flush=True)

    def may_begin(self, how, left):
        """Late and quiet ones wait until none of the others is left to begin, and few of them run yet."""
        if how not in ("late", "quiet"):
            return True
        load = {kind: sum(WEIGHTS[kind] for job in self.running if job.how == kind) for kind in HOW}
        others = load["busy"] + load["waits"]
        return not left["busy"] and not left["waits"] and (others <= 1 if how == "quiet" else others + load["late"] <= PROCESSORS)

    def play(self, left, players):
        """Each player takes jobs of the kinds that it plays, in that order, until there are no more."""
        ended = threading.Condition(self.lock)

        def work(kinds):
            while True:
                with self.lock:
                    while True:
                        job = next((left[how].pop(0) for how in kinds if left[how] and self.may_begin(how, left)), None)
                        if job is not None or not any(left[how] for how in kinds):
                            break
                        ended.wait()
                    if job is None:
                        return
                    self.running.append(job)
                try:
                    self.run(job)
                finally:
                    with self.lock:
                        self.running.remove(job)
                        ended.notify_all()
        with concurrent.futures.ThreadPoolExecutor(len(players)) as pool:
            for played in [pool.submit(work, kinds) for kinds in players]:
                played.result()


def write_times(jobs, path):
    """Of each case, and of each program or part of one (its line has no case): seconds of a processor, of the clock; the most first."""
    rows = [(float(used), float(took), group, name) for job in jobs for line in job.lines for group, name, took, used in COSTS.findall(line)]
    rows += [(job.used, job.end - job.begin, " ".join([job.group, *(job.words or ["unit"])]), "") for job in jobs]
    with open(path, "w", encoding="utf-8") as file:
        file.write("processor_s\tclock_s\tgroup\tcase\n")
        file.writelines(f"{used:.1f}\t{took:.1f}\t{group}\t{name}\n" for used, took, group, name in sorted(rows, reverse=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--long", action="store_true", help="all that is left out otherwise, as make torture plays it")
    parser.add_argument("--list", action="store_true", help="each group, whether others may run meanwhile, and seconds that it may take")
    parser.add_argument("--dearest", type=int, default=0, metavar="N", help="at the end the N cases that took most of a processor, and that waited most")
    parser.add_argument("--times", metavar="FILE", help="what each program and each case took, as a table (TSV)")
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args()
    if options.list:
        for name, group in GROUPS.items():
            is_serial = group.how in ("late", "quiet", "alone") or group.marked or group.parts > 1
            print(name, "serial" if is_serial else "parallel", group.seconds)
        return 0
    build = os.path.abspath(options.build)
    os.environ.setdefault("CONTRAIL_CACHE", os.path.join(build, "analysis-cache"))  # not the user's own
    unknown = [group for group in options.groups if group not in GROUPS]
    if unknown:
        parser.error(f"no such group: {' '.join(unknown)} (there are: {' '.join(GROUPS)})")

    # Programs that are to die by these do not, when nohup or a shell's & has them ignored.
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    # What is selected by lot is selected by it, in all groups (harness.py).
    seed = os.environ.setdefault("CONTRAIL_TEST_SEED", str(random.randrange(10**9)))
    print(f"== by lot: CONTRAIL_TEST_SEED={seed}", flush=True)
    Job.python, Job.is_long = interpreter(), options.long
    compile_shared(Job.python)
    board = Board(dict.fromkeys(options.groups or GROUPS), build, ["--long"] if options.long else [])

    def end(number, _):
        board.say_unfinished()
        os._exit(128 + number)
    signal.signal(signal.SIGTERM, end)
    begin = time.monotonic()
    board.run_all()
    if options.dearest:
        dearest(board.jobs, options.dearest)
    if options.times:
        write_times(board.jobs, options.times)
    if board.failures:  # again, so that the end of the output alone says what has failed
        print("\n".join(["== what has failed"] + board.failures))
    used = sum(job.used for job in board.jobs)
    print("\n".join("== " + phase for phase in board.phases))
    print(f"== in {time.monotonic() - begin:.0f} s ({used:.0f} s of a processor), CONTRAIL_TEST_SEED={seed}")
    print("{} passed, {} failed, {} skipped".format(*board.total))
    return 1 if board.total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
