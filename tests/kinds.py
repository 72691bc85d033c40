#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kinds of programs: other languages and their runtimes, other linkage, sanitizers, crowds of threads, forks and
functions. Each is built from tests/kinds, run untraced and under contrail: the same output and end, and a trace that
holds as many calls of some functions as the program, or arithmetic, says.

    tests/kinds.py                     the short set, part of `make test`
    tests/kinds.py --long              all of them
    tests/kinds.py --filter 'go*'      those that match (several: any)
    tests/kinds.py --repeat 20         each so often; its first failure ends the repetition
    tests/kinds.py --list

A kind whose compiler is not installed is skipped, with the reason. tools/setup.sh installs the cheap ones.
"""
import fcntl
import fnmatch
import hashlib
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from harness import HERE, Skip, case, expect, main

SOURCES = os.path.join(HERE, "kinds")
SHARED = "/dev/shm"
LIMIT = 600
KINDS = []


class Kind:
    """One program and how it is run. In words, %build stands for the folder it is built in, %source for tests/kinds."""

    def __init__(self, name, build, run, status=0, needs=(), counts=None, enter_only=None, drops=False,
                 record=(), stderr=True, tells=b"", environment=None, long=False, has_names=True):
        self.name, self.build, self.run, self.status = name, build, run, status
        self.needs, self.counts, self.enter_only = needs, counts, enter_only
        self.drops, self.record, self.stderr, self.tells = drops, list(record), stderr, tells
        self.environment, self.long, self.has_names = environment or {}, long, has_names
        KINDS.append(self)


def rust():
    for name, flags, status in (("release", "-O", 4), ("debug", "-g", 4), ("stripped", "-O -C strip=symbols", 4),
                                ("static", "-O -C target-feature=+crt-static", 4),
                                ("lto", "-O -C lto=fat -C codegen-units=1", 4), ("abort", "-O -C panic=abort", -6)):
        Kind(f"rust-{name}", [["rustc", *flags.split(), "--edition=2021", "-o", "%build/panics", "%source/panics.rs"]],
             ["%build/panics"], status=status, needs=["rustc"], has_names=name != "stripped",
             long=name in ("debug", "lto", "abort"))
    # Linked with musl and LLVM's unwinder, where that target is installed.
    Kind("rust-musl", [["rustc", "-O", "--target=x86_64-unknown-linux-musl", "--edition=2021", "-o", "%build/panics",
                        "%source/panics.rs"]], ["%build/panics"], status=4, needs=["rustc", "rust-target:musl"])


def go():
    only = "Go's runtime"
    counts = {"main.grows": 1_005_000 + 10_001, "main.throws": 1100, "main.catches": 100, "main.leaf": 10_000,
              "main.each": 10_000, "main.catches.func1": 100}
    for name, flags in (("", []), ("-stripped", ["-ldflags=-s -w"]), ("-pie", ["-buildmode=pie"]),
                        ("-pie-stripped", ["-buildmode=pie", "-ldflags=-s -w"])):
        Kind(f"go{name}", [["go", "build", *flags, "-o", "%build/goroutines", "%source/goroutines.go"]],
             ["%build/goroutines"], status=3, needs=["go"], counts=counts, enter_only=only, long="pie" in name,
             record=["--lossless"])
    counts = {"back_to_go": 25_760 + 10_000, "c_calls": 10_000, "c_compare": 12_880, "main.callsC": 200}
    for name, flags in (("", []), ("-stripped", ["-ldflags=-s -w"]), ("-pie-stripped", ["-buildmode=pie", "-ldflags=-s -w"])):
        Kind(f"cgo{name}", [["go", "build", *flags, "-o", "%build/cgo", "%source/cgo.go"]], ["%build/cgo"],
             needs=["go", "gcc"], counts={} if name else counts, enter_only=only, long="pie" in name)
    build = [["go", "build", "-o", "%build/runtime", "%source/runtime.go"]]
    for name, end, status, environment in (("", "", 5, {}), ("-exec", "exec", 5, {}), ("-fault", "fault", 2, {}),
                                           ("-overflow", "overflow", 2, {}),
                                           ("-gccheckmark", "", 5, {"GODEBUG": "gccheckmark=1"}),
                                           ("-gcstoptheworld", "", 5, {"GODEBUG": "gcstoptheworld=1"}),
                                           ("-gc-often", "", 5, {"GOGC": "5"}),
                                           ("-one-processor", "", 5, {"GOMAXPROCS": "1"})):
        Kind(f"go-runtime{name}", build, ["%build/runtime"] + [end] * bool(end), status=status, needs=["go"],
             environment=environment, enter_only=only, stderr=False, drops=True, long=name not in ("", "-exec"))


def collectors():
    build = [["javac", "-d", "%build", "%source/Collects.java"]]
    for name, flags in (("", []), ("-serial", ["-XX:+UseSerialGC"]), ("-parallel", ["-XX:+UseParallelGC"]),
                        ("-z", ["-XX:+UseZGC"]), ("-interpreted", ["-Xint"])):
        Kind(f"java{name}", build, ["java", "-Xmx200m", "-XX:-UsePerfData", *flags, "-cp", "%build", "Collects"],
             status=6, needs=["javac", "java"], drops=True, long=True)
    Kind("node", [], ["node", "--expose-gc", "--stack-size=500", "%source/collects.js"], status=8, needs=["node"], drops=True,
         long=True)
    Kind("node-addon", [["gcc", "-O2", "-shared", "-fPIC", "-o", "%build/addon.node", "%source/addon.c"]],
         ["node", "%source/addon.js", "%build/addon.node"], needs=["node", "gcc"], record=["--lossless"],
         counts={"addon_constructor": 1, "napi_register_module_v1": 1, "addon_call": 1000, "addon_triple": 1000})
    for name, flags in (("", []), ("-interpreted", ["-joff"])):
        Kind(f"luajit{name}", [], ["luajit", *flags, "%source/coroutines.lua"], status=3, needs=["luajit"])
    Kind("pypy", [], ["pypy3", "%source/../programs/script.py"], needs=["pypy3"], drops=True, long=True, status=5)
    Kind("ocaml", [["sh", "-c", "cp %source/collects.ml %build && cd %build && ocamlopt -o collects collects.ml"]],
         ["%build/collects"], status=6, needs=["ocamlopt"], record=["--lossless"], enter_only="return addresses",
         counts={"camlCollects__fib_*": 21891, "camlCollects__thrower_*": 11000})
    Kind("ocaml-bytecode", [["sh", "-c", "cp %source/collects.ml %build && cd %build && ocamlc -o bytes collects.ml"]],
         ["%build/bytes"], status=6, needs=["ocamlc"], long=True)


def compiled():
    Kind("pascal", [["fpc", "-v0", "-Xs-", "-FE%build", "%source/throws.pas"]], ["%build/throws"], status=7, needs=["fpc"],
         counts={"P$THROWS_$$_THROWER$LONGINT": 5500, "P$THROWS_$$_FIB$LONGINT$$LONGINT": 4 * 1973 + 21891})
    Kind("ada", [["sh", "-c", "cd %build && gnatmake -q -O2 -fstack-check -gnatws %source/throws.adb"]],
         ["%build/throws"], status=8, needs=["gnatmake"], long=True)
    Kind("fortran", [["gfortran", "-O2", "-fopenmp", "-J%build", "-o", "%build/parallel", "%source/parallel.f90"]],
         ["%build/parallel"], status=9, needs=["gfortran"])
    Kind("cobol", [["cobc", "-x", "-o", "%build/sums", "%source/sums.cob"]], ["%build/sums"], status=3, needs=["cobc"])
    for compiler, output in (("gdc", "-o"), ("ldc2", "-of")):
        Kind(f"d-{compiler}", [[compiler, "-O2", *([output, "%build/throws"] if output == "-o" else
                                                   [f"{output}=%build/throws", "-od=%build"]), "%source/throws.d"]],
             ["%build/throws"], status=5, needs=[compiler], counts={"counted_leaf": 80_000}, record=["--lossless"],
             long=compiler == "ldc2")


def sanitizers():
    counts = {"counted_thrower": 1800, "counted_jumper": 300}
    for compiler in ("g++", "clang++"):
        for name, errors in (("address", {"beyond": b"heap-buffer-overflow", "freed": b"heap-use-after-free",
                                          "leak": b"77 byte(s) leaked"}),
                             ("undefined", {"overflow": b"signed integer overflow"}),
                             ("leak", {"leak": b"77 byte(s) leaked"}), ("thread", {})):
            build = [[compiler, "-g", "-O1", "-pthread", f"-fsanitize={name}", "-o", "%build/sanitized",
                      "%source/sanitized.cpp"]]
            for error, tells in {"": b"", **errors}.items():
                Kind(f"sanitize-{name}-{compiler}{'-' if error else ''}{error}", build,
                     ["%build/sanitized"] + [error] * bool(error), status=None, needs=[compiler], counts=counts,
                     stderr=False, tells=tells, long=True)
    for compiler in ("g++", "clang++"):
        Kind(f"profiled-{compiler}", [["sh", "-c", f"cd %build && {compiler} -O1 -pthread --coverage -o sanitized "
                                                   "%source/sanitized.cpp"]],
             ["%build/sanitized"], status=7, needs=[compiler], counts=counts, long=True)


def crowds():
    build = [["gcc", "-O2", "-pthread", "-o", "%build/manythreads", "%source/manythreads.c"]]
    counts = {"counted_thread": 2000, "counted_work": 80_000}
    Kind("threads-2000", build, ["%build/manythreads"], counts=counts, record=["--ring-size", "256"])
    Kind("threads-2000-in-a-small-ring", build, ["%build/manythreads"], counts=counts)
    busy = {"counted_thread": 2000, "counted_work": 8_000_000}
    Kind("threads-2000-busy", build, ["%build/manythreads", "2000"], counts=busy, long=True)
    Kind("threads-2000-busy-in-a-small-ring", build, ["%build/manythreads", "2000"], counts=busy, record=["--ring-size", "24"], long=True)
    Kind("forks-5000", [["gcc", "-O2", "-pthread", "-o", "%build/manyforks", "%source/manyforks.c"]],
         ["%build/manyforks"], counts={"counted_fork": 5000, "counted_work": 5000})
    Kind("functions-200000", [["gcc", "-o", "%build/manyfunctions", "%source/manyfunctions.S"]],
         ["%build/manyfunctions"], counts={"function_*": 400_000}, needs=["gcc"], long=True)


def copied_stacks():
    # Debian's python has Debian's modules, whatever python3 is here.
    for module in ("greenlet", "gevent", "eventlet", "sqlalchemy"):
        needs = [f"python-module:{name}" for name in ([module, "aiosqlite"] if module == "sqlalchemy" else [module])]
        Kind(module, [], ["/usr/bin/python3", "%source/greenlets.py", module], needs=["/usr/bin/python3", *needs],
             drops=True, long=module not in ("greenlet", "gevent"))
    Kind("callcc", [], ["ruby", "-W0", "%source/callcc.rb"], needs=["ruby"], drops=True)
    Kind("continulets", [], ["pypy3", "%source/continulets.py"], needs=["pypy3"], drops=True, long=True)


for group in (rust, go, collectors, compiled, sanitizers, crowds, copied_stacks):
    group()


def missing(need):
    if need.startswith("python-module:"):
        words = ["/usr/bin/python3", "-c", f"import {need[14:]}"]
        return subprocess.run(words, capture_output=True).returncode and f"no {need[14:]} for Debian's python"
    if need == "rust-target:musl":
        found = subprocess.run(["rustc", "--print", "target-libdir", "--target=x86_64-unknown-linux-musl"],
                               capture_output=True, text=True)
        return None if found.returncode == 0 and os.path.isdir(found.stdout.strip()) else "no Rust target for musl"
    return None if shutil.which(need) else f"no {need}"


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Scene(harness.Scene):
    def __init__(self, options, folder, kind):
        super().__init__(options, folder)
        self.kind = kind
        self.into = os.path.join(options.build, "tests", "kinds")
        self.counts = self.path("counts")
        # In memory, where there is such a place: some of these traces are long.
        self.memory = tempfile.TemporaryDirectory(prefix="contrail-kind.", dir=SHARED if os.access(SHARED, os.W_OK) else None)
        self.trace = os.path.join(self.memory.name, "trace")

    def close(self):
        if self.options.keep and os.path.isdir(self.trace):
            shutil.move(self.trace, self.folder)
        self.memory.cleanup()

    def fill(self, words, build):
        return [word.replace("%build", build).replace("%source", SOURCES) for word in words]

    def make(self):
        """The folder that the kind's program is built in; kinds that are built in the same way share it."""
        folder = os.path.join(self.into, f"{hash_of(json.dumps(self.kind.build)):x}")
        os.makedirs(self.into, exist_ok=True)
        with open(folder + ".lock", "w", encoding="ascii") as lock:  # the other part of the group may make the same
            fcntl.flock(lock, fcntl.LOCK_EX)
            return folder if made_before(self.kind, folder) else self.make_anew(folder)

    def make_anew(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        environment = dict(os.environ, GOCACHE=os.path.join(self.into, "gocache"), GO111MODULE="off", LC_ALL="C")
        for command in self.kind.build:
            words = self.fill(command, folder)
            result = self.execute("nice", *words, env=environment, timeout=600)
            expect(result.returncode == 0, f"does not build: {shlex.join(words)}\n{result.stdout}{result.stderr}")
        with open(os.path.join(folder, STAMP), "w", encoding="ascii") as file:
            file.write(stamp_of(self.kind))
        return folder

    def outcome(self, words):
        """Status, output and errors of the kind's program, run in an empty folder."""
        environment = dict(os.environ, LC_ALL="C", CT_COUNTS=self.counts, **self.kind.environment)
        environment.pop("LD_PRELOAD", None)
        self.command = shlex.join(words)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                       preexec_fn=no_core)
            try:
                out, err = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise AssertionError(f"no end within {LIMIT} s") from None
        return process.returncode, out, err

    def compare(self, plain, traced):
        kind = self.kind
        notes = b"".join(line for line in traced[2].splitlines(True) if line.startswith(b"contrail: "))
        err = b"".join(line for line in traced[2].splitlines(True) if not line.startswith(b"contrail: "))
        expect(not notes or kind.drops, f"notes: {notes.decode(errors='replace').strip()}")
        status, got = (128 - code if code < 0 else code for code in (plain[0], traced[0]))
        expect(got == status, f"status {traced[0]}, untraced {plain[0]}: {err[-1000:].decode(errors='replace')}")
        expect(plain[1] == traced[1], f"stdout differs: {plain[1][-300:]!r}, traced {traced[1][-300:]!r}")
        expect(kind.tells in plain[2] and kind.tells in err,
               f"{kind.tells!r} is not in stderr: {plain[2][-300:]!r}, traced {err[-300:]!r}")
        expect(not kind.stderr or plain[2] == err, f"stderr differs: {plain[2][-300:]!r}, traced {err[-300:]!r}")

    def judge(self):
        kind, info = self.kind, self.info()
        expected = dict(kind.counts or {})
        if os.path.exists(self.counts) and kind.has_names:
            with open(self.counts, encoding="utf-8") as file:
                for line in file:
                    function, _, number = line.strip().rpartition(" ")
                    expected[function] = expected.get(function, 0) + int(number)
        expect(not info["dropped"] or kind.drops, f"{info['dropped']} of {info['events']} events dropped")
        expect(info["events"] >= 1000, f"only {info['events']} events")
        reasons = " ".join(module["enter_only_because"] for module in info["modules"] if "enter_only_because" in module)
        expect(bool(kind.enter_only) == bool(reasons) and (kind.enter_only or "") in reasons,
               f"enter only: {reasons!r}, not {kind.enter_only!r}")
        if expected and not info["dropped"]:
            report = self.run(self.contrail, "report", "--json", "--limit", "0", self.trace, timeout=LIMIT)
            rows = json.loads(report)["functions"]
            for function, number in expected.items():
                seen = sum(row["calls"] for row in rows if fnmatch.fnmatchcase(row["name"], function))
                expect(seen == number, f"{function}: {seen} calls in the report, {number} in truth")
        return f"{info['events']} events, {info['dropped']} dropped, {len(info['threads'])} threads, {len(expected)} counts"


def one_turn(scene, build):
    kind = scene.kind
    words = scene.fill(kind.run, build)
    shutil.rmtree(scene.trace, ignore_errors=True)
    plain = scene.outcome(words)
    expect(kind.status is None or plain[0] == kind.status,
           f"untraced: status {plain[0]}, not {kind.status}: {plain[2][-300:]}")
    if os.path.exists(scene.counts):
        os.unlink(scene.counts)
    begin = time.monotonic()
    traced = scene.outcome([scene.contrail, "record", *kind.record, "-o", scene.trace, "--", *words])
    seconds = time.monotonic() - begin
    scene.compare(plain, traced)
    return f"{scene.judge()}, traced {seconds:.1f} s"


def as_untraced(scene):
    for lacks in filter(None, map(missing, scene.kind.needs)):
        raise Skip(lacks)
    build = scene.make()
    for turn in range(1, scene.options.repeat + 1):
        try:
            facts = one_turn(scene, build)
        except AssertionError as error:
            raise AssertionError(f"turn {turn}: {error}") from error
    return facts


STAMP = ".made-of"


def stamp_of(kind):
    """Of what the program is made: the commands, the sources, the compilers by size and time."""
    digest = hashlib.sha256(json.dumps(kind.build).encode())
    for name in sorted(os.listdir(SOURCES)):
        if os.path.isfile(os.path.join(SOURCES, name)):
            with open(os.path.join(SOURCES, name), "rb") as file:
                digest.update(file.read())
    for need in kind.needs:
        path = shutil.which(need)
        status = os.stat(path) if path else None
        digest.update(repr((need, status and (status.st_size, status.st_mtime))).encode())
    return digest.hexdigest()


def made_before(kind, folder):
    try:
        with open(os.path.join(folder, STAMP), encoding="ascii") as file:
            return file.read() == stamp_of(kind)
    except OSError:
        return False


def hash_of(text):
    """Steady from run to run, unlike hash()."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return value


def arguments(parser):
    parser.add_argument("--repeat", type=int, default=1)


def choose(cases, options):
    return [one for one in cases if options.long or options.filter or not one.keywords["kind"].long]


# Of those that differ in how they are built make test plays so many: what their names begin with.
FAMILIES = ((("go", "cgo"), 2), (("rust",), 1), (("fortran", "pascal", "cobol", "ocaml", "luajit"), 2), (("threads", "forks"), 1),
            (("greenlet", "gevent", "callcc", "node-addon"), 2))

for each_kind in KINDS:
    family = next((words for words in FAMILIES if not each_kind.long and each_kind.name.startswith(words[0])), None)
    case(each_kind.name, kind=each_kind, some=family and (" ".join(family[0]), family[1]))(as_untraced)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose)
