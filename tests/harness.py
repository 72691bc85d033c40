# SPDX-License-Identifier: MIT
"""What the groups of tests share. A group is a program:

    from harness import Scene, case, expect, main

    @case
    def what_is_true(scene):
        scene.record("/bin/true")
        expect(scene.rows()["main"]["calls"] == 1, "main was not called")

    if __name__ == "__main__":
        main(__doc__)

Each case has a scene of its own, in a fresh folder, and is named after its function. It passes when it returns, with a line
of facts if it likes; it fails by any exception; Skip and need() skip it. A function whose only argument is `scene`, which
nobody calls and which is no case, is a forgotten test: the group fails. The last line of a group is `N passed, N failed,
N skipped`, and each result has a line before it.
"""
import argparse
import collections
import fcntl
import fnmatch
import functools
import gc
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from processes import end_family

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
Case = collections.namedtuple("Case", "name function keywords alone also some")
Counts = collections.namedtuple("Counts", "passed failed skipped")  # what a case returns that is many tests in one
CASES = []
JOBS = int(os.environ.get("CONTRAIL_TEST_JOBS") or len(os.sched_getaffinity(0)))  # fewer when others run beside
# Of all that is selected by lot, in this program and in those that it starts: the same seed is the same choice.
SEED = int(os.environ.setdefault("CONTRAIL_TEST_SEED", str(random.randrange(10**9))))
DRAWN = []  # what has been selected by it
NO_LOADER = ("--exclude", "ld-linux-x86-64.so.2!")  # whose calls are half of those of a program of C++ that does little
PLACES = {"build": os.path.join(ROOT, "build")}  # as main() was told


def lot(*names):
    """Random numbers that are the same again with CONTRAIL_TEST_SEED; the names tell them from those of other choices."""
    DRAWN.append(names)
    return random.Random(" ".join(map(str, (SEED, *names))))


class Skip(Exception):
    """The machine lacks what the case needs."""


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def need(*programs, places=()):
    """Skips the case unless all of these are installed; the path of the first."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", *places))
    found = [shutil.which(program, path=path) for program in programs]
    for program, place in zip(programs, found):
        if place is None:
            raise Skip(f"no {program}")
    return found[0]


def need_root():
    if os.geteuid() != 0:
        raise Skip("not root")


def wait_for(what, condition, seconds=300):
    """Until the condition holds, whose value is returned; a case that waits in vain fails. The time only bounds what would not come at all."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        expect(time.monotonic() < end, f"waited {seconds} s in vain: {what}")
        time.sleep(0.005)


def waited_s():
    """For how long, so far, somebody on this machine has waited for a processor: what a time is judged without. 0 where the kernel does not tell."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return 0


def longer(seconds, attempt):
    """What attempt(for_words) gives once that is true: a recording for so long, or twice, four times ... as long, where what is
    recorded need not have had a processor in a time that is short."""
    end = time.monotonic() + 300
    while True:
        value = attempt(("--for", f"{seconds * 1000:.0f}ms"))
        if value:
            return value
        expect(time.monotonic() < end, f"nothing of it in {seconds} s")
        seconds *= 2


def case(function=None, /, **keywords):
    """Makes the function a case: @case, or @case("its name", build="gcc-O2"), whose scene is made with build="gcc-O2".
    alone=True: on a busy machine it may fail, so that tests/all.py plays it later, as its table says of the group; alone="quiet": it is
    played so, whatever the others are. also: further names, by which --filter finds it. some=("family", 2): of all of that family make test plays two, by lot, as what each of them shows the
    others show in the main; --long and --filter play them all. A family of FAMILIES has members in several groups."""
    if isinstance(function, str):
        keywords["name"], function = function, None
    if function is None:
        return lambda found: case(found, **keywords)
    name = keywords.pop("name", function.__name__)
    CASES.append(Case(name, function, keywords, keywords.pop("alone", False), keywords.pop("also", ()), keywords.pop("some", None)))
    return function


def check(name):
    """Makes the function a case, which passes when it yields no faults: @check("its name"), above f(options)."""
    def wrap(function):
        @functools.wraps(function)
        def play(scene):
            faults = list(function(scene.options))
            expect(not faults, "\n     ".join(map(str, faults)))
        case(name)(play)
        return function
    return wrap


def npm(build, *packages, seconds=300, options=()):
    """The folder of node_modules with these packages of the npm registry, installed once for a build folder; skips the case,
    with npm's reason, where they are not to be had."""
    need("npm", "node")
    top = os.path.join(build, "tests", "npm")
    folder = os.path.join(top, re.sub(r"[^a-z0-9-]+", "_", "+".join(packages)))
    os.makedirs(top, exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another group may want the same
        if not os.path.exists(folder):
            with tempfile.TemporaryDirectory(dir=top) as scratch:
                try:
                    result = subprocess.run(["npm", "install", "--no-audit", "--no-fund", *options, "--prefix", scratch, *packages], cwd=scratch, text=True,
                                            stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
                except subprocess.TimeoutExpired as late:
                    raise Skip(f"npm has not given {' '.join(packages)} in {seconds} s") from late
                if result.returncode != 0:
                    reason = next((line for line in result.stderr.splitlines() if "npm error" in line), "npm failed")
                    raise Skip(f"no {' '.join(packages)}: {reason[:200]}")
                os.mkdir(os.path.join(scratch, "made"))
                os.rename(os.path.join(scratch, "node_modules"), os.path.join(scratch, "made", "node_modules"))
                os.rename(os.path.join(scratch, "made"), folder)
    return os.path.join(folder, "node_modules")


JSON_SCHEMA = """import json, sys
try:
    import jsonschema
except ImportError:
    sys.exit(77)
for document, schema in json.load(sys.stdin):
    jsonschema.Draft202012Validator.check_schema(schema) if document is None else jsonschema.validate(document, schema)
"""


def follow_schemas(pairs):
    """False where no Python has jsonschema: the one that runs here, or the one in PATH. (document, schema), (None, schema): the
    schema alone."""
    for python in (sys.executable, "python3"):
        result = subprocess.run([python, "-c", JSON_SCHEMA], input=json.dumps(list(pairs)), capture_output=True, text=True, check=False)
        if result.returncode != 77:
            expect(result.returncode == 0, f"not as the schema has it: {result.stderr.strip()[-1000:]}")
            return True
    return False


class Running(subprocess.Popen):
    """A program for `with`: when the case fails there, it and all that it has started are ended, and not waited for."""

    def __exit__(self, kind, *rest):
        if kind is not None:
            end_family(self.pid)
        super().__exit__(kind, *rest)


PORTS = []  # that free_port() has given: each is kept by a socket of that name


def free_port():
    """A port of this machine that nobody has, which no other program of the tests is given while this one runs. It is not one of those that the
    kernel gives to who connects or asks for any."""
    import socket  # pylint: disable=import-outside-toplevel # few programs need it
    while True:
        port, kept = random.SystemRandom().randrange(10000, 32768), socket.socket(socket.AF_UNIX)
        try:
            kept.bind(f"\0contrail test port {port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            kept.close()
            continue
        PORTS.append(kept)
        return port


class Scene:
    """What a case works with: the command, a fresh folder, a trace in it."""

    def __init__(self, options, folder):
        self.options, self.contrail, self.build_dir, self.folder = options, options.contrail, options.build, folder
        self.trace = self.path("trace")
        self.command = None  # the last, for who reads of a failure
        self.again = ""  # further options that play it the same way
        self.environment = None  # that of execute() and run(), if not ours

    def close(self):
        """Ends what the case left behind."""

    def rounds(self, few, many):
        """How often the case does what each time proves a little more: few times in make test, many in make torture."""
        return many if self.options.long else few

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(self.path(name), mode)
        return self.path(name)

    def compile(self, source, *words, name=None, compiler="gcc"):
        """The program of a source file below tests/, or of one that the scene has written, in the scene's folder."""
        need(compiler)
        path = os.path.join(HERE, source)
        if os.path.dirname(path) == self.folder:
            path = lasting(self.build_dir, path)
        target = self.path(name or os.path.splitext(os.path.basename(source))[0])
        shutil.copy(compiled(self.build_dir, path, [compiler, *words]), target)
        return target

    def execute(self, *words, timeout=300, **more):
        """The outcome, whatever it is."""
        self.command = shlex.join(words)
        options = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "env": self.environment, "text": True,
                   "errors": "replace", **more}
        return subprocess.run(words, capture_output=True, timeout=timeout, check=False, **options)

    def run(self, *words, status=0, **more):
        """Standard output; the status must be that."""
        result = self.execute(*words, **more)
        expect(result.returncode == status, f"status {result.returncode}, not {status}: {result.stderr.strip()[-1000:]}")
        return result.stdout

    def record(self, *words):
        """Anew, into the scene's trace."""
        shutil.rmtree(self.trace, ignore_errors=True)
        return self.run(self.contrail, "record", "-o", self.trace, *words)

    def manifest(self, trace=None):
        with open(os.path.join(trace or self.trace, "manifest.json"), encoding="utf-8") as file:
            return json.load(file)

    def info(self, trace=None):
        return json.loads(self.run(self.contrail, "info", "--json", trace or self.trace))

    def rows(self, *options, trace=None):
        """The report's functions, by name."""
        report = json.loads(self.run(self.contrail, "report", "--json", *options, trace or self.trace))
        return {row["name"]: row for row in report["functions"]}

    def lines(self, *options, trace=None):
        """The replay's lines."""
        return parse_lines(self.run(self.contrail, "replay", "--json", *options, trace or self.trace))


def patient_threads():
    """For groups that look at recorded instructions: a thread waits for a recorder that gets no processor for a minute; for a second else, and its
    steps have a gap."""
    os.environ.setdefault("CONTRAIL_TEST_SILENT_WAITS", "600")


def parse_lines(text):
    """The values of lines of JSON; many lines at a time, which takes half the time."""
    lines, values = text.splitlines(), []
    for at in range(0, len(lines), 1000):
        values += json.loads("[" + ",".join(lines[at:at + 1000]) + "]")
    return values


def lasting(build, source):
    """A place of the same source that the next case has, too, and the next run: what is made of it is made once. What includes
    others of its folder stays where it is."""
    with open(source, "rb") as file:
        text = file.read()
    if b'#include "' in text:
        return source
    place = os.path.join(build, "tests", "compiled", "sources", hashlib.sha256(text).hexdigest()[:32], os.path.basename(source))
    if not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(place)) as scratch:
            os.rename(shutil.copy(source, scratch), place)
    return place


def compiled(build, source, command):
    """The program that the command makes of the source file, from an earlier run if neither has changed since."""
    folder = os.path.dirname(source)
    headers = sorted(name for name in os.listdir(folder) if name.endswith(".h"))
    driver = os.stat(shutil.which(command[0]))
    digest = hashlib.sha256(repr((command, source, driver.st_mtime_ns, driver.st_size)).encode())
    for path in [source] + [os.path.join(folder, name) for name in headers]:
        with open(path, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    target = os.path.join(build, "tests", "compiled", digest.hexdigest()[:32])
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
            made = os.path.join(scratch, "program")
            # The source comes first: libraries follow what needs them.
            result = subprocess.run([command[0], source, *command[1:], "-o", made], capture_output=True, text=True,
                                    errors="replace", check=False)
            expect(result.returncode == 0, f"{shlex.join(command)} {source}: {result.stderr.strip()[:1000]}")
            os.rename(made, target)
    return target


def processor_seconds():
    """What this program and those that it has waited for have used."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def forgotten(path):
    """Faults in the file of a group: functions of a scene or a bench that nobody calls or decorates, names given twice."""
    import ast  # pylint: disable=import-outside-toplevel
    import symtable  # both are for one part of a group only
    with open(path, encoding="utf-8") as file:
        text = file.read()
    top = symtable.symtable(text, path, "exec")
    decorated = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    nameless = ("lambda", "listcomp", "setcomp", "dictcomp", "genexpr")
    functions = [child for child in top.get_children() if child.get_type() == "function" and child.get_name() not in nameless]
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    scopes = [(scope, scope.get_name()) for scope in top.get_children()]
    while scopes:
        scope, own = scopes.pop()
        used |= {symbol.get_name() for symbol in scope.get_symbols()
                 if symbol.is_global() and symbol.is_referenced() and symbol.get_name() != own}
        scopes += [(child, own) for child in scope.get_children()]
    used |= decorated | {one.function.__name__ for one in CASES}
    names = collections.Counter(function.get_name() for function in functions)
    return [f"line {f.get_lineno()}: {f.get_name()} is no case and nobody calls it: @case is missing" for f in functions
            if f.get_parameters() in (("scene",), ("bench",)) and f.get_name() not in used] + \
           [f"{name} is defined {count} times" for name, count in names.items() if count > 1]


def explain(error, path):
    """What is said of a failure, and where in the group's file it was."""
    text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    said = getattr(error, "stderr", None)
    if said:
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        text += f"\n     stderr: {said.strip()[-1000:]}"
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.abspath(frame.filename) == path]
    if places:
        text += f"\n     line {places[-1].lineno}: {places[-1].line}"
    return text[:4000]


class Group:
    """The cases of one file, and what became of them. Those of a folder's files are a group of the folder's name."""

    def __init__(self, path, name=None, is_quiet=False):
        self.is_quiet = is_quiet
        self.path, place = path, os.path.relpath(path, HERE).split(os.sep)
        self.program = "/".join(["tests", *place]) if place[0] != os.pardir else "tests/" + place[-1]
        self.name = name or (place[0] if len(place) == 2 else os.path.splitext(place[-1])[0])
        self.counts = [0, 0, 0]
        self.cases = [one for one in CASES if one.function.__module__ == "__main__"]
        self.lock = threading.Lock()  # of the counts, of what is printed, and of the turn to take the next case
        self.playing = {}  # since when, by name

    def say(self, kind, name, text):
        with self.lock:
            self.counts[kind] += 1
            if kind or not self.is_quiet:
                print(f"{('ok  ', 'FAIL', 'skip')[kind]} {self.name} {name}{text}", flush=True)

    def check(self):
        for fault in forgotten(self.path):
            self.say(1, os.path.basename(self.path), f": {fault}")
        for name, count in collections.Counter(one.name for one in self.cases).items():
            if count > 1:
                self.say(1, name, f": {count} cases of this name")

    def play(self, one, scene_class, options):
        scene, begin, used = None, time.monotonic(), processor_seconds()
        self.playing[one.name] = begin
        random.seed(f"{SEED} {self.name} {one.name}")  # for those that draw without lot()
        with tempfile.TemporaryDirectory(prefix=f"{self.name}.", dir=options.top, ignore_cleanup_errors=True) as folder:
            try:
                try:
                    scene = scene_class(options, os.path.realpath(folder), **one.keywords)
                    facts = one.function(scene)
                finally:
                    if scene is not None:
                        scene.close()
                if isinstance(facts, Counts):
                    with self.lock:
                        self.counts = [a + b for a, b in zip(self.counts, facts)]
                else:
                    took = f"{time.monotonic() - begin:.1f} s"
                    if options.jobs == 1:  # else it is that of others too
                        took += f", {processor_seconds() - used:.1f} of a processor"
                    self.say(0, one.name, f"{f': {facts}' if facts else ''} ({took})")
            except Skip as why:
                self.say(2, one.name, f": {why}")
            except Exception as error:  # pylint: disable=broad-except
                self.say(1, one.name, f": {explain(error, self.path)}" + self.how_again(one, scene) +
                         (f"\n     kept: {self.keep(one, folder, options)}" if options.keep else ""))
        self.playing.pop(one.name, None)

    def how_again(self, one, scene):
        command = getattr(scene, "command", None)
        again = f"CONTRAIL_TEST_SEED={SEED} {self.program} --filter {shlex.quote(one.name)}{getattr(scene, 'again', '')}"
        return (f"\n     command: {command}" if command else "") + f"\n     again: {again}"

    def keep(self, one, folder, options):
        """The case's folder, for a look at what was printed, its files, its traces."""
        kept = os.path.join(options.build, "tests", "failed", re.sub(r"[^\w.-]", "_", f"{self.name}.{one.name}"))
        shutil.rmtree(kept, ignore_errors=True)
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        subprocess.run(["cp", "-a", folder, kept], check=False)
        return kept

    def play_all(self, cases, scene_class, options):
        """As many at a time as asked for. Each is taken when the one before it has ended: some choose by the clock."""
        cases = iter(cases)

        def work():
            while True:
                with self.lock:
                    one = next(cases, None)
                if one is None:
                    return
                self.play(one, scene_class, options)
        workers = [threading.Thread(target=work, daemon=True) for _ in range(options.jobs - 1)]
        for worker in workers:
            worker.start()
        try:
            work()
            for worker in workers:
                worker.join()
        except SystemExit as end:
            for name, begin in list(self.playing.items()):
                self.say(1, name, f": ended from outside after {time.monotonic() - begin:.0f} s\n     {explain(end, self.path)}")


def part(text):
    """2/3: every third case from the second one on, while others play the rest."""
    number, _, count = text.partition("/")
    if not 1 <= int(number) <= int(count):
        raise ValueError(text)
    return int(number), int(count)


def isolate(build, folder):
    """Neither the user's analysis cache nor sessions; signals as a terminal's programs have them, and the end as usual by SIGTERM. Stacks have a limit:
    without one all mappings of a program are at low addresses (docs/limits.md)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, hard))
    os.environ.setdefault("CONTRAIL_CACHE", os.path.join(build, "analysis-cache"))
    os.environ.setdefault("HOME", folder)  # without one gdb warns
    os.umask(0o022)  # other users' programs are run, too
    os.environ["XDG_RUNTIME_DIR"] = os.path.join(folder, "sessions")
    os.mkdir(os.environ["XDG_RUNTIME_DIR"], 0o700)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what the cases have started is ended


def is_meant(one, patterns):
    return not patterns or any(fnmatch.fnmatch(name, pattern) for name in (one.name, *one.also) for pattern in patterns)


# Families with members in several groups: how many of them make test plays, and who they are, each in a file of tests/.
FAMILIES = {
    "losses": (1, "check with_losses", "cut losses", "exportstacks lost_events", "filters losses", "graph losses", "passover lost", "sql lost"),
    "flat": (1, "last flat", "maxsize flat"),
    "clients": (1, "mcp sdk", "mcp inspector_session", "mcp inspector", "mcphttp inspector", "mcphttp sdk", "mcphttp sdk_resumes"),
    "formats": (1, "export chrome_calls", "export perfetto_calls", "export csv_calls", "export jsonl_calls", "exportparquet parquet_calls"),
    "engines": (1, "exportparquet duckdb_reads", "fleet clickhouse", "fleet duckdb", "readers parquet_in_hyparquet_and_arrow"),
    "dear": (15, "abi attached_and_detached", "abi budget", "atf pieces", "changes loads", "check family", "check statuses", "cut threads",
             "debug as_the_program_itself", "dlstorm storm", "equal differences_are_seen", "export perfetto_of_a_compiler",
             "exportparquet parquet_falls_back", "filters exceptions", "follow fork_counts", "follow new_namespaces",
             "follow postgres", "graph processors", "itrace all_threads_attached", "itrace all_threads_beside_maps",
             "itrace all_threads_masks", "itrace libraries", "itrace python", "itrace recorder_killed", "itrace redis",
             "itrace restores_killed", "itrace switches_killed", "itracerecords records/lossy", "itracerecords records/race",
             "itraceselected ends_of_calls", "itraceselected only_calls", "itraceselected patterns", "lanes detail_without_room",
             "light scaled_back", "losses more_threads_than_slots", "losses waits", "mcp steps_cancelled",
             "mcp steps_cancelled_while_waiting", "mcp views_cancelled", "pieces as_the_whole", "pieces of_the_last_stretch",
             "readers devtools_shows_the_calls", "triggersdetail detail_by_a_rule", "triggersdetail detail_without_marks", "use cost",
             "use cost_attached", "values fit_together"),
    "budgets": (2, "budget against_callgrind", "budget beyond", "budget children", "budget lone_function", "budget of_patterns", "budget pieces",
                "budget ten_times_the_rate"),
    "coroutines": (1, "atf coroutines", "cut coroutines", "exportstacks coroutines", "filters coroutines", "sql coroutines"),
}


def drawn(cases, group):
    """Those of no family, and of each family as many as it says; each part of a group's cases draws the same."""
    families = collections.defaultdict(list)
    for one in cases:
        if one.some:
            families[one.some].append(one.name)
    left_out = set()
    for family, (count, *names) in FAMILIES.items():
        left_out |= {name.partition(" ")[2] for name in lot("family", family).sample(names, len(names) - count) if name.partition(" ")[0] == group}
    for (family, count), names in sorted(families.items()):
        left_out |= set(lot(group, family).sample(names, max(len(names) - count, 0)))
    return [one for one in cases if one.name not in left_out]


def main(doc, scene_class=Scene, arguments=None, choose=None, jobs=1, name=None, is_quiet=False):
    """Runs the cases of the group whose program this is, and exits. arguments(parser) adds the group's own options.
    choose(cases, options), of those that the filter lets through: which are played, in which order; it may be a generator
    that looks at the clock. jobs: how many are played at a time; with more than one they are played by threads. name: of the
    group, if not the file's. is_quiet: there are so many that those that pass are told with --verbose only."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--filter", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--some", type=int, metavar="N", help="so many of those that the filter lets through, by lot")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--alone", metavar="HOW", help="the cases that are marked so: 'only', or by a word of all.py; 'none': all others")
    parser.add_argument("--long", action="store_true", help="all that make test leaves out, as make torture plays it")
    parser.add_argument("--keep", action="store_true", help="the folders of failures stay, in build/tests/failed")
    parser.add_argument("-j", "--jobs", type=int, default=jobs)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="N/COUNT")
    if arguments:
        arguments(parser)
    options = parser.parse_args()
    options.build = PLACES["build"] = os.path.abspath(options.build)
    options.contrail = os.path.join(options.build, "contrail")
    gc.disable()  # it would look through a million lines of a trace again and again
    group = Group(os.path.abspath(sys.modules["__main__"].__file__), name, is_quiet and not options.verbose)
    selected = [one for one in group.cases if is_meant(one, options.filter)]
    if options.alone:
        marked = {"only": True, "none": False}.get(options.alone, options.alone)
        selected = [one for one in selected if one.alone == marked]
    if not options.filter and not options.long:
        selected = drawn(selected, group.name)
    if options.some and not options.long:
        names = set(lot(group.name, *options.filter).sample([one.name for one in selected], min(options.some, len(selected))))
        selected = [one for one in selected if one.name in names]
    is_unknown = not selected and options.filter
    number, count = options.part
    selected = selected[number - 1::count]
    selected = choose(selected, options) if choose else selected
    if options.list:
        print("\n".join(one.name for one in selected))
        sys.exit(0)
    if number == 1 and options.alone in (None, "none"):
        group.check()
    with tempfile.TemporaryDirectory(prefix="contrail.", ignore_cleanup_errors=True) as options.top:
        os.chmod(options.top, 0o755)  # other users' programs run in it too
        isolate(options.build, options.top)
        group.play_all(selected, scene_class, options)
    if DRAWN:
        print(f"     by lot: CONTRAIL_TEST_SEED={SEED}")
    if is_unknown:
        group.say(1, "", f"no case is named {' or '.join(options.filter)}")
    print("{} passed, {} failed, {} skipped".format(*group.counts))
    sys.exit(1 if group.counts[1] else 0)
