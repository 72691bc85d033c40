#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the fixtures and runs each untraced and under contrail: output and end must be the same, nothing
may be dropped, and the counts of calls must be those that the fixture states.

    tests/run.py                      all
    tests/run.py --filter 'tail*'     fixtures, or fixture/variant, or fixture/variant/run that match (several: any)
    tests/run.py --no-trace           untraced only: do the fixtures hold by themselves?
    tests/run.py --repeat 20          every case traced so often (untraced once); five failures end a case's repetition
    tests/run.py --exclude '[a-m]*'   with these functions excluded; of the others the counts must be right all the same
    tests/run.py --light              with light hooks: the counts must be the same, of frames there are none
    tests/run.py --long               each fixture by all its compilers and levels, as make torture plays them; without it, and
                                      without --filter, by gcc -O2, and by lot a twelfth of the others: one of the usual ones, and those that
                                      it asks for, by each of which one of its runs is played
    tests/run.py --list               the cases
    tests/run.py --keep               keep the traces, in build/tests/traces, as those of failures always are

What a fixture may say is described in tests/fixture.py.
"""
import collections
import fnmatch
import json
import os
import resource
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import zlib

import fixture as fx
import harness
import witness
from harness import Skip, expect, lot, main

SHARED = "/dev/shm"


class Outcome:
    def __init__(self, stdout, stderr, status, late):
        self.stdout, self.stderr, self.status, self.late = stdout, stderr, status, late


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def execute(words, timeout, environment, folder):
    """Runs to the end, or kills the process group that was started here when time is up."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
                                   env=environment, start_new_session=True, preexec_fn=no_core)
        end = os.pidfd_open(process.pid)  # Popen.wait with a timeout looks now and then, and up to 50 ms late
        try:
            late = not select.select([end], [], [], timeout)[0]
        finally:
            os.close(end)
        if late:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        out.seek(0)
        err.seek(0)
        return Outcome(out.read(), err.read(), process.returncode, late)


def same_status(expected, status):
    """A shell, and a recorder that is no shell, tell a fatal signal N as 128 + N or die of it."""
    code, name = expected
    if name is None:
        return status == code
    number = getattr(signal, "SIG" + name)
    return status in (-number, 128 + number)


def tell_status(status):
    return f"signal {-status}" if status < 0 else f"status {status}"


class Variation:
    """A fixture, as one compiler makes it, and one of the ways in which it is run."""

    def __init__(self, fixture, variant, run_name, words):
        self.fixture, self.variant, self.run_name, self.words = fixture, variant, run_name, words
        self.name = "/".join(part for part in (fixture.name, variant, run_name) if part)

    def is_witnessed(self):
        return "witness" in self.variant.split("-")

    def fill(self, options, program, trace):
        folder = os.path.dirname(program)
        result = []
        for word in self.words:
            if word == "%trace":
                if trace:
                    own = self.fixture.record(self.run_name) + (witness.RECORD if self.is_witnessed() else [])
                    result += [options.contrail, "record"] + options.record + own + ["-o", trace, "--"]
                continue
            word = word.replace("%prog", program).replace("%dir", folder)
            while "%{" in word:
                head, _, rest = word.partition("%{")
                other, _, tail = rest.partition("}")
                found = next(f for f in FIXTURES if f.name == other)
                word = head + fx.build(found, self.variant, options.into) + tail
            result.append(word)
        return result


class Checker:
    """One run of one case; faults are collected as text."""

    def __init__(self, options, case):
        self.options, self.case = options, case
        self.faults = []
        self.command = ""
        self.published_left = []  # by the program itself
        self.published_least = []
        self.compared = 0    # frames compared with the witness's

    def fault(self, text):
        self.faults.append(text)

    def go(self, scratch, plain):
        """One traced run, compared with `plain`."""
        case, options = self.case, self.options
        program = fx.build(case.fixture, case.variant, options.into)
        counts = os.path.join(scratch, "counts")
        if os.path.exists(counts):
            os.unlink(counts)
        kept = self.kept()
        trace = os.path.join(options.memory, os.path.basename(kept))
        words = case.fill(options, program, trace)
        self.command = shlex.join(case.fill(options, program, kept))
        traced = execute(words, 4 * case.fixture.timeout(), self.environment(scratch), scratch)
        if self.is_refusal(traced):
            return
        self.compare(plain, traced)
        if os.path.isdir(trace):
            self.check_trace(trace, counts, program)
            if self.case.is_witnessed():
                faults, self.compared = witness.compare(options.contrail, trace, os.path.join(scratch, "witness"), program)
                self.faults += faults
        elif not self.faults:
            self.fault("no trace directory was written")
        if (self.faults or options.keep) and os.path.isdir(trace) and not os.path.exists(kept):
            shutil.move(trace, kept)
        shutil.rmtree(trace, ignore_errors=True)

    def kept(self):
        """Where its trace is kept after a failure; not where that of a run with other options is."""
        options = "".join(word.replace("/", ".") for word in self.options.record)
        return os.path.join(self.options.traces, (self.case.name.replace("/", ".") + options)[:200])

    def untraced(self, scratch):
        case, options = self.case, self.options
        shutil.rmtree(self.kept(), ignore_errors=True)
        words = case.fill(options, fx.build(case.fixture, case.variant, options.into), None)
        self.command = shlex.join(words)
        plain = execute(words, case.fixture.timeout(), self.environment(scratch), scratch)
        self.check_plain(plain)
        return plain

    def environment(self, scratch):
        environment = dict(os.environ, CT_COUNTS=os.path.join(scratch, "counts"), LC_ALL="C")
        if self.case.is_witnessed():
            environment["CT_WITNESS"] = os.path.join(scratch, "witness")
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        return environment

    def is_refusal(self, traced):
        word = self.case.fixture.said.get("refused", [None])[0]
        lines = traced.stderr.decode(errors="replace").splitlines()
        return (word is not None and traced.status == 125 and not traced.stdout and len(lines) == 1 and
                lines[0].startswith("contrail: ") and word in lines[0])

    def check_plain(self, plain):
        if plain.late:
            self.fault("UNTRACED: no end in time")
        elif not same_status(self.case.fixture.status(), plain.status):
            self.fault(f"UNTRACED: {tell_status(plain.status)}")
        if self.faults:
            self.show(plain)

    def show(self, outcome):
        for name, data in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
            for line in data.decode(errors="replace").splitlines()[-12:]:
                self.fault(f"  {name}: {line}")

    def compare(self, plain, traced):
        if traced.late:
            self.fault("traced: no end in time")
        if not same_status(self.case.fixture.status(), traced.status):
            self.fault(f"traced: {tell_status(traced.status)} in place of {tell_status(plain.status)}")
        unordered = "unordered" in self.case.fixture.words("stdout")
        wanted = self.case.fixture.wanted_notes(self.case.run_name)
        said = [line for line in traced.stderr.decode(errors="replace").splitlines() if line.startswith("contrail: note: ")]
        for words in wanted:
            if not any(words in line for line in said):
                self.fault(f"contrail has said nothing of '{words}'")
        own = bool(wanted) or self.case.fixture.drops() > 0 or "allowed" in self.case.fixture.words("notes")
        mine = b"contrail: " if own else None
        if self.options.exclude and not own:
            mine = (b"contrail: --exclude ", b"contrail: nothing was recorded")
        stderr = b"".join(line for line in traced.stderr.splitlines(True) if not (mine and line.startswith(mine)))
        for name, a, b in (("stdout", plain.stdout, traced.stdout), ("stderr", plain.stderr, stderr)):
            if unordered:
                a, b = b"\n".join(sorted(a.split(b"\n"))), b"\n".join(sorted(b.split(b"\n")))
            if a != b:
                self.fault(f"{name} differs")
                self.differ(a, b)

    def differ(self, a, b):
        left, right = (data.decode(errors="replace").splitlines() for data in (a, b))
        for i in range(max(len(left), len(right))):
            x, y = (lines[i] if i < len(lines) else "(end)" for lines in (left, right))
            if x != y:
                self.fault(f"  line {i + 1} untraced: {x[:200]}")
                self.fault(f"  line {i + 1} traced:   {y[:200]}")
                break

    def ask(self, *words):
        result = subprocess.run([self.options.contrail, *words], capture_output=True, text=True, errors="replace",
                                timeout=300)
        if result.returncode:
            self.fault(f"contrail {shlex.join(words)}: status {result.returncode}: {result.stderr.strip()[:300]}")
            return None
        return result.stdout

    def check_trace(self, trace, counts, program):
        text = self.ask("info", "--json", trace)
        if text is None:
            return
        info = json.loads(text)
        allowed = self.case.fixture.drops() == float("inf")
        if info["dropped"] > self.case.fixture.drops():
            self.fault(f"{info['dropped']} of {info['events']} events dropped")
        self.check_exit(info)
        for module in info["modules"]:
            if "not_hooked_because" not in module and module["functions"] != module["hooked"] + sum(module["refused"].values()):
                self.fault(f"{module['path']}: {module['functions']} functions, {module['hooked']} hooked, "
                           f"{sum(module['refused'].values())} refused: some have no reason")
        expected = list(self.case.fixture.counts("calls"))
        if os.path.exists(counts):
            with open(counts, encoding="utf-8") as file:
                told = {}
                for line in file:
                    if line.startswith("left: "):
                        self.published_left.append(fx.parse_left(line[6:].strip()))
                        continue
                    if line.startswith("least: "):
                        function, _, number = line[7:].strip().rpartition(" ")
                        self.published_least.append((function, int(number)))
                        continue
                    function, _, number = line.rstrip("\n").rpartition(" ")
                    told[function] = told.get(function, 0) + int(number)
                expected += told.items()
        expected = [pair for pair in expected if not self.is_excluded(pair[0])]
        maybe = [pair for pair in self.case.fixture.counts("maybe") if not self.is_excluded(pair[0])]
        if fx.is_static(self.case.variant):
            expected = [(function.rpartition("!")[2], number) for function, number in expected]
        stripped = "strip" in self.case.variant.split("-")
        if not stripped and not (allowed and info["dropped"]):
            self.check_functions(trace, expected, maybe, info["dropped"])

    def check_exit(self, info):
        code, name = self.case.fixture.status()
        wanted = {"status": code} if name is None else {"signal": int(getattr(signal, "SIG" + name))}
        if info.get("exit") != wanted:
            self.fault(f"info says exit {info.get('exit')}, not {wanted}")

    def is_excluded(self, function):
        plain = function.rpartition("!")[2]
        return any(fnmatch.fnmatchcase(name, glob.rpartition("!")[2].replace("[^", "[!"))
                   for glob in self.options.exclude for name in (plain, plain.partition("(")[0]))

    def own(self, module):
        return module and not module.startswith(("lib", "ld-", "[")) or module in self.own_libraries()

    def own_libraries(self):
        sources = self.case.fixture.words("lib") + self.case.fixture.words("dlopen")
        return {"lib" + os.path.splitext(os.path.basename(path))[0] + ".so" for path in sources}

    def check_functions(self, trace, expected, maybe, dropped):
        text = self.ask("report", "--json", "--limit", "0", trace)
        if text is None:
            return
        seen, left, orphans = {}, {}, {}
        for row in json.loads(text)["functions"]:
            module, own = os.path.basename(row["module"]), self.own(os.path.basename(row["module"]))
            for key in [f"{module}!{row['name']}"] + ([row["name"]] if own else []):
                seen[key] = seen.get(key, 0) + row["calls"]
            if own:
                left.setdefault(row["name"], collections.Counter()).update(row["left"])
                orphans[row["name"]] = orphans.get(row["name"], 0) + row["orphans"]
        for function, number in expected:
            if seen.get(function, 0) != number:
                self.fault(f"{function}: {seen.get(function, 'no')} calls in the report, {number} in truth")
        for function, number in self.published_least:
            if seen.get(function, 0) < number and not self.is_excluded(function):
                self.fault(f"{function}: {seen.get(function, 'no')} calls in the report, {number} or more in truth")
        for function, number in maybe:
            if seen.get(function, number) != number:
                self.fault(f"{function}: {seen[function]} calls in the report, {number} in truth")
        if not dropped and not self.options.light and "unknown" not in self.case.fixture.words("ends"):
            names = {function.rpartition("!")[2] for function, _ in expected + maybe}
            self.check_ends(names, left, orphans)

    def check_ends(self, names, left, orphans):
        """Every frame of the functions that the fixture counts has returned, but those that it says were left, for the
        reason that it gives, and those open at the end."""
        told = {}
        for function, number, reason in list(self.case.fixture.left()) + self.published_left:
            if not self.is_excluded(function):
                reasons = told.setdefault(function, {})
                reason = reason if not self.options.exclude or reason not in fx.UNWINDING else ""
                reasons[reason] = reasons.get(reason, 0) + number
        for function in sorted(names | set(told)):
            if function not in left and any(word.startswith("--exclude") for word in self.case.fixture.record(self.case.run_name)):
                continue
            if orphans.get(function):
                self.fault(f"{function}: {orphans[function]} returns without an enter")
            seen = left.get(function, {})
            for reason, number in told.get(function, {}).items():
                if reason and seen.get(reason, 0) != number:
                    self.fault(f"{function}: {seen.get(reason, 0)} frames left by {reason}, {number} in truth: {dict(seen)}")
            count = sum(seen.get(reason, 0) for reason in fx.UNWINDING)
            number = sum(n for reason, n in told.get(function, {}).items() if not reason or reason in fx.UNWINDING)
            if count != number:
                self.fault(f"{function}: {count} frames left, {number} in truth: {dict(seen)}")


class Scene(harness.Scene):
    def __init__(self, options, folder, variation):
        super().__init__(options, folder)
        self.variation = variation
        self.checker = Checker(options, variation)
        self.compared = 0

    def turn(self, job):
        """With a Checker of its own, whose faults are those of the job."""
        self.checker = Checker(self.options, self.variation)
        try:
            return job(self.checker)
        except fx.BuildError as error:
            if "no compiler" in str(error):
                raise Skip(str(error)) from error
            self.checker.fault(f"does not build: {error}")
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.checker.fault(f"{type(error).__name__}: {error}")
        finally:
            self.command = self.checker.command or None
            self.compared += self.checker.compared
        return None

    def turns(self):
        """The program untraced once, then traced so often as asked: faults of the first turn that has any, in how many
        there were faults, and of how many."""
        plain = self.turn(lambda checker: checker.untraced(self.folder))
        if self.checker.faults or self.options.no_trace:
            return self.checker, 1, 1
        first, failed, turns = None, 0, 0
        while turns < self.options.repeat and failed < 5:
            turns += 1
            self.turn(lambda checker: checker.go(self.folder, plain))
            if self.checker.faults:
                first, failed = first or self.checker, failed + 1
        return first or self.checker, failed, turns


def as_untraced(scene):
    lacking = scene.variation.fixture.missing()
    if lacking:
        raise Skip(lacking)
    checker, failed, turns = scene.turns()
    scene.command = checker.command
    of_turns = [f"{failed} of {turns} turns; the first of them:"] if scene.options.repeat > 1 else []
    expect(not checker.faults, "\n     ".join(of_turns + checker.faults))
    return f"{scene.compared} frames compared with what the functions themselves told" if scene.compared else None


def arguments(parser):
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--record", type=shlex.split, default=[], help="further options for contrail record")
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--few", action="store_true", help="one run by each compiler, if it is not --long")
    parser.add_argument("--half", choices=["0", "1"], help="half of the fixtures only")
    parser.add_argument("--share", type=float, default=1, help="so many of the fixtures only, by lot, unless it is --long")


def number_of(fixture):
    """The same each time, and as good as any."""
    return zlib.crc32(fixture.name.encode())


def is_drawn(name, share):
    return lot("fixtures", name).random() < share


def is_left_out(variation, is_again=False):
    """By one of the usual compilers and levels, whose turn it is not: of these each fixture has gcc -O2 and one other. is_again: it
    is played with other options besides, and by gcc -O2, too, one of its runs is."""
    usual = [one for one in variation.fixture.variants() if one in fx.DEFAULT_BUILD.split() and one != "gcc-O2"]
    if variation.variant in usual and variation.variant != usual[number_of(variation.fixture) % len(usual)]:
        return True
    # Of several runs those it asks for take turns, a run each: what differs between them is not what differs between runs.
    variants, runs = variation.fixture.variants(), [name for name, _ in variation.fixture.runs()]
    turn = variants.index(variation.variant) + runs.index(variation.run_name)
    return (is_again or variation.variant != "gcc-O2") and turn % len(runs) != number_of(variation.fixture) % len(runs)


def choose(cases, options):
    options.record += ["--exclude=" + glob for glob in options.exclude] + (["--mode=light"] if options.light else [])
    options.into = os.path.join(options.build, "tests", "fixtures")
    options.traces = os.path.join(options.build, "tests", "traces")
    os.makedirs(options.traces, exist_ok=True)
    # In memory: a file system that has just deleted ten thousand files is slow to make the next ten thousand, and what
    # a test sees should not depend on it.
    shared = SHARED if os.access(SHARED, os.W_OK) else None
    options.holder = tempfile.TemporaryDirectory(prefix="contrail-traces.", dir=shared)
    options.memory = options.holder.name
    # What is excluded counts for no depth: with a bound, other calls are in the trace than the truth is of. Depths and the
    # witness are of frames, of which light hooks know nothing.
    variations = [(one, one.keywords["variation"]) for one in cases]
    if not options.long and (options.few or not options.filter):
        variations = [(one, of) for one, of in variations if not is_left_out(of, options.few)]
        if not options.few:  # a twelfth of what is not gcc -O2
            variations = [(one, of) for one, of in variations if of.variant == "gcc-O2" or is_drawn(f"{of.fixture.name}/{of.variant}", 1 / 12)]
    if options.half:
        variations = [(one, of) for one, of in variations if number_of(of.fixture) % 2 == int(options.half)]
    if not options.long:
        variations = [(one, of) for one, of in variations if is_drawn(of.fixture.name, options.share)]
    if options.exclude or options.light:
        variations = [(one, of) for one, of in variations if "--max-depth" not in of.fixture.record(of.run_name)]
    return [one for one, of in variations if not (options.light and of.is_witnessed())]


FIXTURES = fx.all_fixtures()
for each in FIXTURES:
    for each_variant in each.variants():
        for each_run, each_words in each.runs():
            made = Variation(each, each_variant, each_run, each_words)
            harness.case(made.name, variation=made, also=(each.name, f"{each.name}/{each_variant}"))(as_untraced)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose, jobs=harness.JOBS, name="fixtures", is_quiet=True)
