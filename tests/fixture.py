# SPDX-License-Identifier: MIT
"""Fixtures: what the comment at the top of a source of tests/fixtures says, and how it is built.

A directive is one line of that comment, `key: value`:

    build: gcc-O0 gcc-O2 clang-O2-static   variants; COMPILER-LEVEL[-MODIFIER]...  (default: gcc and clang, -O0, -O2 and -O3)
    flags: -pthread                        compiler flags             link: -ldl   after the objects
    with: lib/other.c lib/asm.S            further sources, paths below tests/fixtures
    lib: lib/plugin.c ...                  shared libraries to link with         dlopen: lib/x.c    built, not linked
    run: NAME: WORDS                       a case; %trace stands where `contrail record -o DIR --` goes, %prog for
                                           the program (default: `%trace %prog`, with no name); %dir its folder,
                                           %{name} the same variant of fixture `name`
    record: NAME: WORDS                    further options for contrail record in the case of that name
    exit: 3  |  signal: SEGV               how it ends (default: exit: 0)
    calls: FUNCTION N                      exact number of calls of FUNCTION, summed over the fixture's own modules;
    calls: MODULE!FUNCTION N               ... of that module
    maybe: FUNCTION N                      the same, but the function may have been refused
    left: FUNCTION N                       frames of FUNCTION that ended without a return (of all others that are named
                                           here, none did, but for those open when their thread or the program ended)
    left: FUNCTION N REASON                the same, and the trace gives this reason, spaces as hyphens: longjmp exception
                                           setcontext cancellation pthread_exit unwound tail-call exit thread-exit killed exec
    ends: unknown                          nothing is said of how frames end
    needs: root | PROGRAM | cpu:FLAG       else skipped
    drops: allowed                         events may be dropped, and then no counts are compared
    drops: N                               up to N events may be dropped, counts are compared
    refused: WORD                          contrail may refuse to start it: status 125, one line with WORD, not run at all
    notes: allowed                         contrail may write lines of its own to stderr: what it had to leave out
    note: NAME: WORDS                      contrail must say a note with WORDS in the case of that name
    timeout: SECONDS
    stdout: unordered                      lines are compared sorted (several processes print)

A program can tell numbers that only it knows: lines `FUNCTION N` appended to the file that CT_COUNTS names are
expectations like `calls:`, lines `left: FUNCTION N REASON` like `left:`; `least: FUNCTION N` are N calls or more.

In a variant with the modifier `witness` the trace is compared frame by frame with what the functions themselves told
(witness.py).
"""
import fcntl
import os
import re
import shlex
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "fixtures")
UNWINDING = ("longjmp", "setcontext", "exception", "cancellation", "pthread_exit", "unwound", "lost", "stack switched")
DEFAULT_BUILD = "gcc-O0 gcc-O2 gcc-O3 clang-O0 clang-O2 clang-O3"
DIRECTIVE = re.compile(r"^[ \t]*(?:\*|//|#)?[ \t]*(build|flags|link|with|lib|dlopen|run|record|exit|signal|calls|maybe|left|ends|"
                       r"needs|drops|notes|note|refused|timeout|stdout):[ \t]*(.*?)[ \t]*$")
MODIFIERS = {
    "static": ["-static"],
    "staticpie": ["-static-pie"],
    "nopie": ["-no-pie", "-fno-pie"],
    "cet": ["-fcf-protection=full"],
    "now": ["-Wl,-z,now"],
    "lazy": ["-Wl,-z,lazy"],
    "noplt": ["-fno-plt"],
    "pg": ["-pg"],
    "pad": ["-fpatchable-function-entry=5"],
    "frame": ["-fno-omit-frame-pointer"],
    "strip": [],
    "gnudebug": ["-g"],
    # Each function tells lib/witness.c that it begins and ends; so what is called is what the source calls.
    "witness": ["-finstrument-functions", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-inline",
                "-fno-optimize-sibling-calls"],
}
WITNESS = os.path.join(FIXTURES, "lib", "witness.c")


def parse_left(text):
    """(function, number, reason) of `left:`, the reason "" when it does not matter."""
    head, _, last = text.rpartition(" ")
    if last.isdigit():
        return head.strip(), int(last), ""
    function, _, number = head.rpartition(" ")
    return function.strip(), int(number), last.replace("-", " ")


class Fixture:
    def __init__(self, path):
        self.path = path
        self.name = os.path.splitext(os.path.basename(path))[0]
        self.said = {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                found = DIRECTIVE.match(line)
                if found:
                    self.said.setdefault(found.group(1), []).append(found.group(2))
                elif re.match(r"\s*#\s*include|.*\*/", line) and self.said:
                    break

    def words(self, key):
        return shlex.split(" ".join(self.said.get(key, [])))

    def variants(self):
        return self.words("build") or DEFAULT_BUILD.split()

    def timeout(self):
        return float(self.said.get("timeout", ["60"])[0])

    def status(self):
        """The expected end as (exit status, None) or (None, signal name)."""
        if "signal" in self.said:
            return None, self.said["signal"][0]
        return int(self.said.get("exit", ["0"])[0]), None

    def runs(self):
        for text in self.said.get("run", [": %trace %prog"]):
            name, _, words = text.partition(":")
            yield name.strip(), shlex.split(words)

    def record(self, run_name):
        """Further options for contrail record."""
        words = []
        for text in self.said.get("record", []):
            name, _, options = text.partition(":")
            if name.strip() == run_name:
                words += shlex.split(options)
        return words

    def wanted_notes(self, run_name):
        """What contrail must say of itself."""
        notes = [text.partition(":") for text in self.said.get("note", [])]
        return [words.strip() for name, _, words in notes if name.strip() == run_name]

    def counts(self, key):
        for text in self.said.get(key, []):
            function, _, number = text.rpartition(" ")
            yield function.strip(), int(number, 0)

    def left(self):
        return [parse_left(text) for text in self.said.get("left", [])]

    def drops(self):
        """How many events may be dropped."""
        text = self.said.get("drops", ["0"])[0]
        return float("inf") if text == "allowed" else int(text)

    def missing(self):
        """What this machine lacks for the fixture, or None."""
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
        for need in self.words("needs"):
            if need == "root":
                if os.geteuid() != 0:
                    return "not root"
            elif need.startswith("cpu:"):
                if need[4:] not in flags:
                    return f"the cpu has no {need[4:]}"
            elif not shutil.which(need):
                return f"no {need}"
        return None


def all_fixtures():
    return [Fixture(os.path.join(FIXTURES, name)) for name in sorted(os.listdir(FIXTURES))
            if name.endswith((".c", ".cpp", ".S"))]


class BuildError(Exception):
    pass


def run_compiler(command):
    result = subprocess.run(["nice"] + command, capture_output=True, text=True, errors="replace")
    if result.returncode:
        raise BuildError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")


def newer(output, inputs):
    try:
        age = os.stat(output).st_mtime
    except OSError:
        return False
    return all(os.stat(path).st_mtime <= age for path in inputs)


def compiler_of(variant, is_cpp):
    compiler, level, *modifiers = variant.split("-")
    program = {"gcc": ("gcc", "g++"), "clang": ("clang", "clang++"), "musl": ("musl-gcc", None)}[compiler][is_cpp]
    flags = ["-" + level, "-g", "-Wall", "-Wno-unused-function", "-D_GNU_SOURCE", "-I" + FIXTURES,
             "-fno-strict-aliasing"]
    for modifier in modifiers:
        flags += MODIFIERS[modifier]
    if "witness" in modifiers and compiler == "gcc":
        flags += ["-fno-ipa-icf", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-partial-inlining"]
    if compiler == "clang" and is_cpp:
        flags.append("-Wno-unused-command-line-argument")
    return program, flags, modifiers


def is_static(variant):
    """No shared library then: what `lib:` names is linked into the program."""
    return bool({"static", "staticpie"} & set(variant.split("-")))


def instrumented(compiler, flags, source, folder):
    """Assembles SOURCE, instrumented, without the instructions by which its functions read where they were called from, to
    tell the witness: who reads its return address is recorded by its enter only, and the witness does not want to know."""
    assembly = os.path.join(folder, "instrumented.s")
    run_compiler([compiler] + flags + ["-S", "-o", assembly, source])
    with open(assembly, encoding="utf-8") as file:
        text = file.read()
    with open(assembly, "w", encoding="utf-8") as file:
        file.write(re.sub(r"\bmovq\s+8\(%rbp\), (%r\w+)", r"movq $0, \1", text))
    return assembly


def build(fixture, variant, into):
    """Builds one variant into INTO/<fixture>/<variant>/<fixture> and returns that path."""
    folder = os.path.join(into, fixture.name, variant)
    program = os.path.join(folder, fixture.name)
    os.makedirs(folder, exist_ok=True)
    extra = [os.path.join(FIXTURES, path) for path in fixture.words("with")]
    libraries = [os.path.join(FIXTURES, path) for path in fixture.words("lib")]
    plugins = [os.path.join(FIXTURES, path) for path in fixture.words("dlopen")]
    shared = [os.path.join(HERE, "fixture.py"), os.path.join(FIXTURES, "check.h"), WITNESS]
    with open(os.path.join(folder, ".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if newer(program, [fixture.path] + extra + libraries + plugins + shared):
            return program
        is_cpp = any(path.endswith(".cpp") for path in [fixture.path] + extra)
        compiler, flags, modifiers = compiler_of(variant, is_cpp)
        if compiler is None or not shutil.which(compiler):
            raise BuildError(f"no compiler for {variant}")
        flags += fixture.words("flags")
        if is_static(variant):
            extra, libraries = extra + libraries, []
        link = ["-Wl,-rpath," + folder] if (libraries or plugins) and not is_static(variant) else []
        for source in libraries + plugins:
            name = "lib" + os.path.splitext(os.path.basename(source))[0] + ".so"
            own_compiler, own_flags, _ = compiler_of(variant, source.endswith(".cpp"))
            own_flags = [flag for flag in own_flags if flag not in ("-no-pie", "-fno-pie", "-static", "-static-pie",
                                                                             "-finstrument-functions")]
            run_compiler([own_compiler] + own_flags + fixture.words("flags") +
                         ["-shared", "-fPIC", "-Wl,-soname," + name, "-o", os.path.join(folder, name), source])
            if source in libraries:
                link.append(os.path.join(folder, name))
        if "witness" in modifiers:
            extra = extra + [os.path.join(folder, "witness.o")]
            run_compiler(["gcc", "-O2", "-g", "-Wall", "-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-c", WITNESS, "-o", extra[-1]])
        main = instrumented(compiler, flags, fixture.path, folder) if "witness" in modifiers else fixture.path
        run_compiler([compiler] + flags + ["-o", program + ".new", main] + extra + link + fixture.words("link"))
        if "strip" in modifiers:
            run_compiler(["strip", program + ".new"])
        os.rename(program + ".new", program)
    return program
