#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the fuzz targets with clang, ASan and UBSan, and runs each for some time.

    tests/fuzz/run.py [--seconds N] [--jobs N] [--filter PATTERN] [TARGET...]
    tests/fuzz/run.py --plain ...              the targets are not optimised, and only what they call is compiled, for make test
    tests/fuzz/run.py --again FILE TARGET      one input again, as a failure says
    tests/fuzz/run.py --reduce TARGET...       what was found goes into tests/fuzz/corpus, reduced

The inputs to begin with are the lines of tests/fuzz/corpus/TARGET-made.hex (made by hand), TARGET-found.hex (found
by earlier runs) and TARGET-made.txt (as they stand), and, for elf and plan, small files that are compiled here. What a
run finds stays in build-fuzz/corpus and is where the next one goes on. A failing input is kept in build-fuzz/failed.
"""
import hashlib
import json
import lzma
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import harness  # noqa: E402
from harness import ROOT, Skip, expect, lot, main  # noqa: E402

CORPUS = os.path.join(HERE, "corpus")
BUILD = os.path.join(ROOT, "build-fuzz")
PLAIN = os.path.join(BUILD, "plain")
# Largest input, and what else the target is told.
TARGETS = {
    "relocate": ["-max_len=72"],
    "decode": ["-max_len=64"],
    "cfi": ["-max_len=4096"],
    "elf": ["-max_len=40000", "-len_control=0"],
    "plan": ["-max_len=40000", "-len_control=0"],
    "trace": ["-max_len=8192"],
    "index": ["-max_len=1024"],
    "atf": ["-max_len=8192"],
    "demangle": ["-max_len=2048"],
    "cache": ["-max_len=256"],
    "pattern": ["-max_len=128"],
    "rpc": ["-max_len=1024"],
    "mcp": ["-max_len=2048"],
    "mcphttp": ["-max_len=4096"],
    "values": ["-max_len=1024"],
    "store": ["-max_len=256"],
    "check": ["-max_len=128"],
    "steps": ["-max_len=4096"],
    "calls": ["-max_len=4096"],
}
# Those that call some forty objects and more, most of the time is spent on compiling these.
LARGE = ("plan", "trace", "index", "atf", "cache", "pattern", "mcp", "mcphttp", "steps", "calls")
FOUND_BYTES_MAX = 40000
LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-print_final_stats=1"]
ENVIRONMENT = dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1:detect_stack_use_after_return=0",
                   UBSAN_OPTIONS="print_stacktrace=1")

C_SOURCE = r"""
extern int puts(const char *);
static int table[64];
static const void *labels[2];
int shared_value = 3;
__attribute__((weak)) int twice(int x) { return x * 2; }
int alias(int) __attribute__((alias("twice")));
static __attribute__((noinline)) int inner(int x) { return x < 2 ? x : inner(x - 1) + inner(x - 2) + table[x & 63]; }
int outer(int x)
{
  switch (x) {
  case 1: return puts("one");
  case 2: return inner(7) / x;
  case 3: return alias(x) + shared_value;
  case 4: return twice(x) ^ 77;
  case 5: __builtin_trap();
  default: return puts("many") + inner(x);
  }
}
void tail(void) { puts("tail"); }
void *address(void) { return __builtin_return_address(0); }
__asm__(".text\n.type short_one,@function\nshort_one: .cfi_startproc\nret\n.cfi_endproc\n.size short_one,.-short_one\n"
        ".type into,@function\n.globl into\ninto: .cfi_startproc\nxor %eax,%eax\n1: inc %eax\ncmp $9,%eax\njne 1b\nret\n"
        ".cfi_endproc\n.size into,.-into\n"
        ".type calls,@function\ncalls: .cfi_startproc\ncall into\njmp into\n.cfi_endproc\n.size calls,.-calls\n");
"""
TYPES_SOURCE = r"""
enum color { red, green = 5, blue = -1 };
struct inner { float f[2]; };
struct small { struct inner i; long n; };
struct big { struct small s[3]; unsigned bit : 3; };
union any { double d; struct inner i; };
typedef const char *text;
__attribute__((noinline)) struct small one(enum color c, text t, struct small s, struct big b, union any u, _Bool k)
{ s.n += c + t[0] + b.bit + (long)u.d + k; return s; }
__attribute__((noinline)) long double two(long double x, double _Complex z, __int128 w, int (*f)(int), ...)
{ return x + (long)w + f(1) + __real__ z; }
struct big three(int n) { struct big b = {}; b.bit = n; return b; }
"""
CPP_SOURCE = r"""
struct Text { Text(); ~Text(); int n; };
int may_throw(int);
namespace space {
template <class T> T keep(T a) { Text t; try { return may_throw(a) + t.n; } catch (int e) { return e; } }
}
int use(int a) { Text one; int b = space::keep(a); Text two; return b + may_throw(one.n) + two.n; }
"""


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          **more)


def missing():
    """Why no fuzz target can be built here, or None."""
    if shutil.which("clang") is None:
        return "no clang"
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "a.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("int LLVMFuzzerTestOneInput(const char *a, long b) { return 0; }\n")
        tried = run(["clang", "-fsanitize=fuzzer,address,undefined", "-o", source + ".out", source])
        return None if tried.returncode == 0 else "clang has no libFuzzer here (Debian: libclang-rt-14-dev)"


def build(targets, options):
    run([os.path.join(ROOT, "tools", "sources.sh")], cwd=ROOT)
    folder = PLAIN if options.plain else BUILD
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        level = ["-Ddebug=false", "-Doptimization=0", "-Dc_args=-gline-tables-only"] if options.plain else []
        made = run(["meson", "setup", "-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false", *level, folder, ROOT],
                   env=dict(os.environ, CC="clang"))
        if made.returncode:
            return made.stdout
    if options.plain and all(link_what_is_called(folder, name, options) for name in targets):
        return None
    made = ninja(folder, [f"tests/fuzz/fuzz_{name}" for name in targets])
    return made.stdout if made.returncode else None


def ninja(folder, outputs):
    return run(["ninja", "-C", folder, f"-j{harness.JOBS}", "--quiet", *outputs])


def symbols(objects, cwd):
    """What each of the objects defines, and what it needs."""
    defined, needed, name = {}, {}, None
    for line in run(["nm", "-g", *objects], cwd=cwd).stdout.splitlines():
        words = line.split()
        if line.endswith(":"):
            name = line[:-1]
        elif len(words) == 2 and words[0] in "Uw":
            needed.setdefault(name or objects[0], set()).add(words[1])
        elif len(words) == 3:
            defined.setdefault(words[2], name or objects[0])
    return defined, needed


def objects_by_source(folder):
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
        return [(os.path.realpath(os.path.join(one["directory"], one["file"])), one["output"]) for one in json.load(file)]


def link_what_is_called(folder, target, options):
    """Links a target from those objects of the library that it calls, of which no others are compiled: a target needs 2 to 110 of 250. Which
    those are the build's own library tells first, then what was compiled. False where that does not give a program."""
    output = f"tests/fuzz/fuzz_{target}"
    command = run(["ninja", "-C", folder, "-t", "commands", "-s", output]).stdout.strip()
    pieces = [word for word in command.split() if re.match(r".*/libcontrail_fuzz_\w+\.a$", word)]
    fuzzed = {source: made for source, made in objects_by_source(folder) if os.path.dirname(made)[:-2] in pieces}
    mains = {source: made for source, made in objects_by_source(options.build) if "libcontrail.a.p" in made and source in fuzzed}
    sources = {made: source for source, made in mains.items()}
    if not pieces or not mains or any(not os.path.exists(os.path.join(options.build, made)) for made in mains.values()):
        return False
    defined, needed = symbols(list(mains.values()), options.build)
    own = [word for word in command.split() if word.endswith((".o", ".a")) and word not in pieces and not os.path.isabs(word)]
    linked, known = set(), set()
    while True:
        wanted = own + [fuzzed[source] for source in sorted(linked)]
        if ninja(folder, wanted).returncode:
            return False
        asked = {symbol for some in symbols(wanted, folder)[1].values() for symbol in some} - known
        if not asked:
            break
        while asked:
            known |= asked
            called = {defined[symbol] for symbol in asked if symbol in defined}
            linked |= {sources[made] for made in called}
            asked = {symbol for made in called for symbol in needed.get(made, ())} - known
    words, objects = [], [fuzzed[source] for source in sorted(linked)]
    for word in shlex.split(command):
        words += objects if word in pieces else [word]
        objects = [] if word in pieces else objects
    return run(words, cwd=folder).returncode == 0


def program(target, options):
    return os.path.join(PLAIN if options.plain else BUILD, "tests", "fuzz", "fuzz_" + target)


# ---- what to begin with ----

def without_symtab(data):
    """The section type of .symtab becomes 0, so that DWARF is read."""
    data = bytearray(data)
    at, = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        if struct.unpack_from("<I", data, at + i * entry + 4)[0] == 2:
            struct.pack_into("<I", data, at + i * entry + 4, 0)
    return bytes(data)


def without_sections(data):
    return data[:40] + bytes(8) + data[48:58] + bytes(6) + data[64:]


def elf_seeds():
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, source, *words):
            path, out = os.path.join(folder, name), os.path.join(folder, "out.so")
            with open(path, "w", encoding="ascii") as file:
                file.write(source)
            tool = "g++" if name.endswith("cpp") else "gcc"
            made = run([tool, "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,-z,norelro",
                        "-Wl,--hash-style=both", "-o", out, path, *words])
            if made.returncode:
                return
            with open(out, "rb") as file:
                yield file.read()

        plain = list(compiled("a.c", C_SOURCE, "-O2", "-fcf-protection", "-Wl,--build-id"))
        yield from plain
        for data in list(compiled("a.c", C_SOURCE, "-Os", "-s", "-Wl,--hash-style=gnu")):
            yield data
            yield without_sections(data)
        yield from compiled("b.cpp", CPP_SOURCE, "-O1")
        for data in list(compiled("a.c", C_SOURCE, "-O1", "-gdwarf-4")) + list(compiled("a.c", C_SOURCE, "-O1", "-g")):
            yield without_symtab(data)
        for level in ("-O0", "-O2"):
            yield from compiled("t.c", TYPES_SOURCE, level, "-g")
        yield from compiled("t.cpp", CPP_SOURCE, "-O1", "-g")
        if plain and shutil.which("objcopy"):
            path = os.path.join(folder, "mini.so")
            with open(path, "wb") as file:
                file.write(plain[0])
            packed = os.path.join(folder, "mini.xz")
            with open(packed, "wb") as file:
                file.write(lzma.compress(plain[0], preset=0))
            if run(["objcopy", "--strip-all", path]).returncode == 0 and \
                    run(["objcopy", f"--add-section=.gnu_debugdata={packed}", path]).returncode == 0:
                with open(path, "rb") as file:
                    yield file.read()


def seeds(target):
    if target in ("elf", "plan"):
        yield from elf_seeds()
    for name, convert in ((target + "-made.hex", bytes.fromhex), (target + "-found.hex", bytes.fromhex),
                          (target + "-made.txt", str.encode)):
        path = os.path.join(CORPUS, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file.read().splitlines():
                    if line and not line.startswith("#"):
                        yield convert(line)


def prepare(target):
    folder = os.path.join(BUILD, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    count = 0
    for data in seeds(target):
        with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), "wb") as file:
            file.write(data)
        count += 1
    return folder, count


# ---- running ----

def tell(target, output):
    """What is said of a failure."""
    found = re.search(r"Test unit written to (\S+)", output)
    telling = re.compile(r"ERROR:|SUMMARY:|runtime error|does not hold|    #[0-9] ")
    lines = [line.strip() for line in output.splitlines() if telling.search(line)][:20]
    if found is None:
        return lines + output.splitlines()[-10:]
    with open(found.group(1), "rb") as file:
        data = file.read()
    lines.append(f"tests/fuzz/run.py --again {found.group(1)} {target}")
    return lines + ([f"input: {data.hex()}"] if len(data) <= 200 else [])


class Scene(harness.Scene):
    def __init__(self, options, folder, target):
        super().__init__(options, folder)
        self.target = target
        self.again = f" --seconds {options.seconds}" + " --plain" * options.plain + (f" --seed {options.seed}" if options.seed else "")


def fuzz(scene):
    target, options = scene.target, scene.options
    if options.missing:
        raise Skip(options.missing)
    expect(options.unbuilt is None, f"the targets do not build:\n{options.unbuilt}")
    folder, count = prepare(target)
    failed = os.path.join(BUILD, "failed")
    os.makedirs(failed, exist_ok=True)
    command = ["nice", "-n", "10", program(target, options), f"-max_total_time={options.seconds}", *LIMITS, *TARGETS[target], f"-timeout={100 if options.plain else 20}",
               f"-artifact_prefix={failed}/{target}-"]
    if options.seed:
        command.append(f"-seed={options.seed}")
    try:
        done = run(command + [folder], env=ENVIRONMENT, cwd=BUILD, timeout=options.seconds * 3 + 300)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"does not end: {error}") from None
    expect(done.returncode == 0, "\n     ".join([f"status {done.returncode}", *tell(target, done.stdout)]))
    runs = re.search(r"number_of_executed_units: (\d+)", done.stdout)
    return f"{runs.group(1) if runs else '?'} runs from {count} seeds, {len(os.listdir(folder))} inputs kept"


def reduce(target, options):
    """What reaches something that no other input reaches, as text."""
    folder, _ = prepare(target)
    with tempfile.TemporaryDirectory() as small:
        done = run([program(target, options), "-merge=1", "-timeout=20", *LIMITS, *TARGETS[target], small, folder], env=ENVIRONMENT)
        if done.returncode:
            print(done.stdout[-2000:])
            return
        inputs = []
        for name in os.listdir(small):
            with open(os.path.join(small, name), "rb") as file:
                inputs.append(file.read())
    path = os.path.join(CORPUS, target + "-found.hex")
    made, size = set(seeds(target)), 0
    with open(path, "w", encoding="utf-8") as file:
        for data in sorted(set(inputs) - made, key=lambda data: (len(data), data)):
            size += 2 * len(data) + 1
            if size > FOUND_BYTES_MAX:
                break
            file.write(data.hex() + "\n")
    print(f"{target}: {len(inputs)} inputs, {os.path.getsize(path)} bytes")


def arguments(parser):
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("FUZZ_SECONDS", 10)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="targets that are not optimised, in build-fuzz/plain")
    parser.add_argument("--lot", action="store_true", help="one target that calls much, and two of the others, by lot")
    parser.add_argument("--again", metavar="FILE")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("targets", nargs="*", metavar="TARGET")


def choose(cases, options):
    """All targets are built before the first is played. An input again, and reducing, are no tests."""
    for target in options.targets:
        if target not in TARGETS:
            sys.exit(f"no such target: {target} (there are: {' '.join(TARGETS)})")
    cases = [one for one in cases if not options.targets or one.name in options.targets]
    if options.lot and not options.long:
        names = {name for number, some in ((1, LARGE), (2, sorted(set(TARGETS) - set(LARGE)))) for name in lot("fuzz", *some).sample(some, number)}
        cases = [one for one in cases if one.name in names]
    if options.list:
        return cases
    options.missing = missing()
    options.unbuilt = None if options.missing else build([one.name for one in cases], options)
    if options.again or options.reduce:
        no_test(options.targets or list(TARGETS), options)
    return cases


def no_test(targets, options):
    why = options.missing or options.unbuilt
    if why:
        sys.exit(why)
    if options.again:
        sys.exit(subprocess.call([program(targets[0], options), "-timeout=100", *LIMITS, options.again], env=ENVIRONMENT))
    for target in targets:
        reduce(target, options)
    sys.exit(0)


for each_target in TARGETS:
    harness.case(each_target, target=each_target)(fuzz)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose, jobs=2)
