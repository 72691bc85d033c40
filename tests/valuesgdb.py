#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The detail lane against gdb as a witness: what --detail records of a call is what gdb finds at the same call of another run,
both without random addresses. Programs written at random, in C and C++, with types; programs of the system by their registers.

    tests/valuesgdb.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import math
import os
import random
import re
import shlex
import shutil
import struct
import sys

import harness
from harness import Skip, case, expect, main, need

FUNCTIONS, CALLS, LOOKS = 60, 1000, 200 if "--long" in sys.argv else 120
LIBRARY_LOOKS, STOPS = 200, 8000  # with more calls of a function gdb takes too long
REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10")

# Runs in gdb. request: where breakpoints are and at which of their calls to look; seen: a line of JSON for each of these.
IN_GDB = r"""
import json
import gdb

request, out = json.load(open("request")), open("seen", "w")
stopped, waiting = [], {}
gdb.events.stop.connect(lambda event: stopped.append([b.number for b in getattr(event, "breakpoints", [])]))


def registers(*names):
    frame = gdb.newest_frame()
    return [int(frame.read_register(name)) & (1 << 64) - 1 for name in names]


def vectors(count):
    frame = gdb.newest_frame()
    return [int(frame.read_register("xmm%d" % n)["v2_int64"][0]) & (1 << 64) - 1 for n in range(count)]


def frame_of_call():
    # Not that of a function that was made part of this one, which may begin with it.
    frame = gdb.newest_frame()
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame


def plain(value):
    # The kind of its type, its bytes as a number of that many bytes, and more to compare.
    type = value.type.strip_typedefs()
    if value.is_optimized_out:
        return None
    if type.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return ["pointer", int(value.address), 8, None]
    if type.code == gdb.TYPE_CODE_PTR:
        text, target = None, type.target().strip_typedefs()
        if target.code == gdb.TYPE_CODE_INT and target.sizeof == 1 and int(value) != 0:
            text = value.string("latin-1", length=-1)
        if target.code == gdb.TYPE_CODE_FUNC and int(value) != 0:
            text = str(gdb.block_for_pc(int(value)).function)
        return ["code" if target.code == gdb.TYPE_CODE_FUNC else "pointer", int(value), 8, text]
    if type.code == gdb.TYPE_CODE_FLT:
        return ["float", repr(float(value)), type.sizeof, None]
    if type.code == gdb.TYPE_CODE_ENUM:
        return ["enum", int(value) & (1 << 8 * type.sizeof) - 1, type.sizeof, str(value).split("::")[-1]]
    if type.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL):
        kind = "bool" if type.code == gdb.TYPE_CODE_BOOL else "char" if type.sizeof == 1 else "int"
        return [kind, int(value) & (1 << 8 * type.sizeof) - 1, type.sizeof, int(value)]
    if type.sizeof > 16:  # in memory: what comes after it says whether its place is known
        return None
    return ["struct", [int(value[field.name]) & (1 << 8 * field.type.sizeof) - 1 for field in type.fields()
                       if field.type.strip_typedefs().code == gdb.TYPE_CODE_INT], type.sizeof, None]


def places(values):
    # Where these point to: a file and the offset from its first byte in memory, or what kind of memory that is.
    starts, found = {}, [None] * len(values)
    for line in open("/proc/%d/maps" % gdb.selected_inferior().pid):
        words = line.split(None, 5)
        begin, end = (int(word, 16) for word in words[0].split("-"))
        path = words[5].strip() if len(words) == 6 else ""
        first = starts.setdefault(path, begin)
        for n, value in enumerate(values):
            if begin <= value < end:
                found[n] = path, value - first
    return found


class Point:
    def __init__(self, name, place, calls):
        self.name, self.calls, self.place = name, calls, place
        self.breakpoint = gdb.Breakpoint(place, internal=True)
        self.next()

    def next(self):
        later = [n for n in self.calls if n >= self.breakpoint.hit_count]
        self.breakpoint.ignore_count = later[0] - self.breakpoint.hit_count if later else 1 << 30

    def look(self):
        look = {"name": self.name, "call": self.breakpoint.hit_count - 1, "registers": registers(*request["registers"]),
                "vectors": vectors(8), "sp": registers("rsp")[0], "bp": registers("rbp")[0]}
        self.next()
        # With debug information the result; of functions without, a signal handler or longjmp may be on the way.
        if request["typed"]:
            frame = frame_of_call()
            while frame.older().type() == gdb.TAILCALL_FRAME:  # the one whose caller is returned to
                frame = frame.older()
            end = gdb.FinishBreakpoint(frame, internal=True)
            if not request["optimised"]:
                after = gdb.Breakpoint(self.place[1:], internal=True, temporary=True)
                gdb.execute("continue", to_string=True)
            frame, block = frame_of_call(), frame_of_call().block()
            while block.function is None or block.function.name != frame.function().name:
                block = block.superblock
            look["arguments"] = {s.name: plain(s.value(frame)) for s in block if s.is_argument}
            waiting[end.number] = look, end
        else:
            look["places"] = places(look["registers"])
            write(look)


def finish(look, end):
    value = end.return_value
    look["returned"] = None if value is None else plain(value)
    look["results"] = registers("rax", "rdx") + vectors(2)
    write(look)


def write(look):
    out.write(json.dumps(look) + "\n")


gdb.execute("set confirm off")
gdb.execute("set breakpoint pending on" if not request["typed"] else "set breakpoint pending off")
gdb.execute("set startup-with-shell off")
gdb.execute("set breakpoint always-inserted on")
gdb.execute("unset environment LINES")
gdb.execute("unset environment COLUMNS")
gdb.execute("set args " + request["arguments"])
if not request["typed"]:  # the library's functions by their addresses, from when it is there
    first = gdb.Breakpoint("__libc_start_main", internal=True)
    gdb.execute("run", to_string=True)
    first.delete()
    for line in open("/proc/%d/maps" % gdb.selected_inferior().pid):
        if line.rstrip().endswith(request["library"]):
            base = int(line.split("-")[0], 16) - int(line.split()[2], 16)
            break
    points = [Point(name, "*0x%x" % (base + address), calls) for name, address, calls in request["points"]]
    stopped.clear()
    gdb.execute("continue", to_string=True)
else:
    points = [Point(name, "*" + place, calls) for name, place, calls in request["points"]]
    gdb.execute("run", to_string=True)
by_number = {point.breakpoint.number: point for point in points}
while gdb.selected_inferior().pid != 0:
    here = stopped[-1] if stopped else []
    for number in here:
        if number in waiting:
            finish(*waiting.pop(number))
    for number in here:
        if number in by_number:
            by_number[number].look()
    gdb.execute("continue", to_string=True)
out.write(json.dumps({point.name: point.breakpoint.hit_count for point in points}) + "\n")
out.close()
"""

# What the programs have besides their functions.
HEAD = """
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
enum color { RED, GREEN = 2, BLUE, DARK = -5 };
struct point { long x; int y; };
struct small { int a, b; };
struct wide { long a, b; };
struct big { long a, b, c; };
struct aligned { long double a; long b; };
struct far { int a[5]; char c __attribute__((aligned(32))); };
struct packed { char c; long double a; long b; } __attribute__((packed));
typedef int (*number_type)(int);
static int one(int n) { return n + 1; }
static int two(int n) { return n + 2; }
static const number_type numbers[] = {one, two, 0};
static const enum color colors[] = {RED, GREEN, BLUE, DARK};
static const char *const texts[] = {"", "one", "two words", "the third"};
static struct point points[4];
static double reals[] = {0, -0.0, 1e300, -3.25, INFINITY, NAN, 5e-324};
static volatile uint64_t sink;
static int level;
static uint64_t state = SEED;
static uint64_t r(void) { state = state * 6364136223846793005u + 1442695040888963407u; return state >> 9 ^ state << 40; }
static double real(void) { return r() % 4 ? (double)(int64_t)r() / 1024 : reals[r() % 7]; }
"""
TYPES = {  # how a value is made, and how one is used
    "int": ("(int)r()", "{}"), "long": ("(long)r()", "{}"), "unsigned": ("(unsigned)r()", "{}"),
    "unsigned long": ("r()", "{}"), "short": ("(short)r()", "{}"), "unsigned short": ("(unsigned short)r()", "{}"),
    "char": ("(char)r()", "{}"), "signed char": ("(signed char)r()", "{}"), "unsigned char": ("(unsigned char)r()", "{}"),
    "bool": ("(bool)(r() & 1)", "{}"), "int64_t": ("(int64_t)r()", "{}"), "double": ("real()", "({} > 0)"),
    "float": ("(float)real()", "({} > 0)"), "enum color": ("colors[r() % 4]", "{}"),
    "const char *": ("texts[r() % 4]", "(uintptr_t){}"), "char *": ("on_stack", "(uintptr_t){}"),
    "struct point *": ("&points[r() % 4]", "(uintptr_t){}"), "void *": ("(void *)r()", "(uintptr_t){}"),
    "number_type": ("numbers[r() % 3]", "(uintptr_t){}"), "struct small": ("small()", "{}.b"),
    "struct wide": ("wide()", "{}.a"), "struct big": ("big()", "{}.c"),
    "struct far": ("far()", "{}.c"), "struct aligned": ("aligned()", "{}.b"), "struct packed": ("packed()", "{}.b"),
}
LARGE = ("struct big", "struct aligned", "struct far", "struct packed", "owner", "holder")  # returned in memory
CPP_TYPES = {"struct point &": ("points[r() % 4]", "{}.y"), "hue": ("(hue)(r() % 3)", "(int){}"),
             "const long &": ("longs[r() % 4]", "{}"), "owner": ("owner()", "{}.a"), "holder": ("holder()", "{}.n")}
# Static, so that the bytes between its fields are the same each time.
BUILDERS = "".join(f"static struct {name} {name}(void) {{ static struct {name} v; {values} return v; }}\n" for name, values in
                   (("small", "v.a = (int)r(); v.b = (int)r();"), ("wide", "v.a = (long)r(); v.b = (long)r();"),
                    ("big", "v.a = (long)r(); v.b = 2; v.c = (long)r();"), ("aligned", "v.a = 1; v.b = (long)r();"),
                    ("far", "v.a[0] = 3; v.c = 'c';"), ("packed", "v.c = 'a'; v.a = 1; v.b = (long)r();")))
CPP_HEAD = """
enum class hue : unsigned char { warm, cold, none };
static long longs[4];
struct owner { long a, b, c; owner() : a(1), b(2), c(3) {} ~owner() { sink += (uint64_t)a; } };
struct holder { owner own; int n; };
struct box { long kept; METHODS };
"""


def write_program(seed, is_cpp):
    """A program whose calls are all drawn by lot, and the names of its functions."""
    lot = random.Random(seed)
    types = {**TYPES, **(CPP_TYPES if is_cpp else {})}
    results = [name for name in types if name not in LARGE and name != "char *" and "&" not in name]
    functions, bodies, methods, last = [], [], [], {}
    for n in range(FUNCTIONS):
        parameters = lot.choices(list(types), k=lot.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12)))
        if n == 2:  # what is large has places on the stack that depend on its alignment
            parameters = ["struct big", "struct aligned", "struct big", "struct far", "struct packed", "double"] + ["long"] * 7
        result, is_method = lot.choice(["void"] + results), is_cpp and n % 4 == 1
        follows = last.get(result) if n % 5 == 4 else None  # ends by a call of that one: a tail call where optimised
        names = [f"{name} p{k}" for k, name in enumerate(parameters)]
        used = [k for k in range(len(parameters)) if lot.random() < 0.8]
        lines = [f"sink += (uint64_t){types[parameters[k]][1].format(f'p{k}')};" for k in used]
        if functions:
            lines.append(f"if (level < 3 && r() % 4 == 0) {{ level++; call_{lot.randrange(n)}(); level--; }}")
        if follows is not None and not any("on_stack" in given for given in follows[1]):
            lines.append(("" if result == "void" else "return ") + f"{follows[0]}({', '.join(follows[1])});")
        elif result != "void":
            lines.append(f"return {types[result][0]};")
        given = [types[name][0] for name in parameters]
        call, variadic = f"f{n}", not is_method and n % 20 == 7 and parameters
        if is_method:
            methods.append(f"{result} f{n}({', '.join(names)});")
            call = f"boxes[r() % 2].f{n}"
        head = f"{result} {'box::' if is_method else ''}f{n}({', '.join(names + ['...'] * bool(variadic)) or 'void'})"
        written = '__asm__ volatile("" : : "r"(on_stack) : "memory");'  # else it may be left out where nobody reads it
        bodies.append(f"static void call_{n}(void);\n__attribute__((noinline)) {head}\n{{ __asm__ volatile(\"\"); {' '.join(lines)} }}\n"
                      f"static void call_{n}(void)\n{{ char on_stack[16] = {{(char)('a' + r() % 26), (char)('a' + r() % 26)}}; {written}\n"
                      f"  {call}({', '.join(given + ['r()'] * bool(variadic))}); sink += on_stack[0]; }}\n")
        if not is_method and not variadic:
            last[result] = call, given
        functions.append(("box::" if is_method else "") + f"f{n}")
    middle = (CPP_HEAD.replace("METHODS", " ".join(methods)) + "static box boxes[2];\n") if is_cpp else ""
    table = ", ".join(f"call_{n}" for n in range(FUNCTIONS))
    return (HEAD.replace("SEED", str(seed)) + BUILDERS + middle + "".join(bodies) + f"static void (*const calls[])(void) = {{{table}}};\n"
            f"int main(void) {{ for (int i = 0; i < {CALLS}; i++) calls[r() % {FUNCTIONS}](); "
            "printf(\"%d\\n\", (int)(sink & 1) * 0 + 7); }\n"), functions


def name_of(name):
    return re.sub(r"\(.*", "", name).split(" ")[-1]


def calls_of(lines):
    """By function, in order: [the line of its enter or tail, that of its return or None]."""
    calls, opened = collections.defaultdict(list), {}
    for line in lines:
        if line["kind"] in ("enter", "tail"):
            call = [line, None]
            calls[name_of(line["name"] or "")].append(call)
            opened[line["depth"]] = call  # a tail call takes the place of the one before, whose result is its own
        elif line["kind"] == "return":
            opened.pop(line["depth"])[1] = line
    return calls


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        need("gdb", "setarch", "gcc", "g++")
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": folder, "PYTHONHASHSEED": "0",
                            "CONTRAIL_CACHE": os.environ["CONTRAIL_CACHE"], "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}
        if self.execute("setarch", "-R", "true").returncode != 0:
            raise Skip("addresses are random here")

    def recorded(self, *words, lines=False):
        shutil.rmtree(self.trace, ignore_errors=True)
        self.run("setarch", "-R", self.contrail, "record", "-q", "-o", self.trace, "--vectors", "--stack", "256", *words)
        lost = self.manifest().get("detail", {"overwritten": 0, "no_room": 0, "refused": 0})
        expect(lost["overwritten"] == lost["no_room"] == lost["refused"] == 0, lost)
        return self.lines() if lines else calls_of(self.lines())

    def in_gdb(self, program, points, **request):
        """What gdb has seen at these calls, and how often each function was called."""
        request = {"registers": REGISTERS, "points": points, "arguments": "", "optimised": True, **request}
        self.write("request", json.dumps(request))
        script = self.write("script.py", IN_GDB)
        done = self.execute("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script, program)
        with open(self.path("seen"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        expect(lines and all("name" in line for line in lines[:-1]), f"{done.stdout[-500:]} {done.stderr[-1000:]}")
        return lines[:-1], lines[-1]


def selected(calls, names, count, seed):
    """So many calls of these functions, drawn by lot: function -> the ordinals of its calls."""
    every = [(name, n) for name in names for n in range(len(calls.get(name, ())))]
    by_name = collections.defaultdict(list)
    for name, n in sorted(random.Random(seed).sample(every, min(count, len(every)))):
        by_name[name].append(n)
    return by_name


def bits(words):
    return [int(word, 16) for word in words]


def differs(ours, kind, value, size, more):
    """How contrail's value differs from gdb's, or None."""
    raw = ours.get("raw")
    if kind == "struct":
        if raw is None:
            return "no value"
        data = b"".join(word.to_bytes(8, "little") for word in bits(raw if isinstance(raw, list) else [raw]))
        width = size // len(value)
        return None if [int.from_bytes(data[n * width:(n + 1) * width], "little") for n in range(len(value))] == value else "bytes"
    if raw is None:
        return "no value"
    raw, shown = int(raw, 16) & (1 << 8 * size) - 1, ours.get("value")
    if kind == "float":
        own = struct.unpack("<f" if size == 4 else "<d", raw.to_bytes(size, "little"))[0]
        text = float(shown if shown is not None else ours["text"])
        value = float(value)
        alike = own == value and math.copysign(1, own) == math.copysign(1, value) or math.isnan(own) and math.isnan(value)
        text = struct.unpack("f", struct.pack("f", text))[0] if size == 4 and abs(text) < 1e38 else text
        return None if alike and (text == own or math.isnan(text) and math.isnan(own)) else "number"
    if raw != value:
        return "bits"
    if kind == "enum":
        return None if ours.get("text") == more else "name"
    if kind == "pointer":
        shown = re.fullmatch(r'0x[0-9a-f]+ "(.*)"', ours.get("text", ""))
        return None if shown is None or shown[1] == more else "text"
    if kind == "code":
        return None if more is None or more in ours.get("text", "") else "function"
    if kind == "bool":
        return None if shown is bool(value) else "truth"
    if kind == "char":
        return None if shown & 0xff == value else "character"
    return None if int(shown) == more else "number"


def check_registers(seen, enter, end):
    """Differences between the registers that gdb saw and those recorded, both ways."""
    detail, name = enter["detail"], f"call {seen['call']} of {seen['name']}"
    pairs = [("registers", bits(detail["registers"]), seen["registers"]), ("vectors", bits(detail["vectors"]), seen["vectors"]),
             ("sp, bp", bits([detail["sp"], detail["bp"]]), [seen["sp"], seen["bp"]])]
    if end is not None and "results" in seen:
        pairs.append(("results", bits(end["results"]), seen["results"]))
    return [f"{name}: {what}: {[hex(n) for n in ours]}, gdb {[hex(n) for n in theirs]}" for what, ours, theirs in pairs if ours != theirs]


def compare(scene, seed, is_cpp, *words):
    source, names = write_program(seed, is_cpp)
    path, program = scene.write("calls.cc" if is_cpp else "calls.c", source), scene.path("calls")
    scene.run("g++" if is_cpp else "gcc", "-g", "-w", "-fno-pie", "-no-pie", *words, path, "-o", program)
    calls = scene.recorded("--detail", "calls!**", "--trace", "calls!**", "--mode", "full", "--", program)
    points = selected(calls, names, LOOKS, seed)
    looks, totals = scene.in_gdb(program, [[name, name, points.get(name, [])] for name in names], typed=True,
                                 optimised="-O0" not in words)
    counted = {name: len(calls.get(name, ())) for name in names}
    expect(totals == counted, f"{words}: calls: {counted}, gdb {totals}")
    expect(len(looks) == LOOKS, f"{words}: gdb has looked at {len(looks)} calls")
    values, texts = compare_values(calls, looks, words, True)
    small = scene.recorded("--args", "--trace", "calls!**", "--mode", "full", "--", program)
    of_small, _ = compare_values(small, looks, [*words, "--args"], False)
    expect(of_small == values, f"{words}: {of_small} values with --args, {values} with detail")
    return f"{values} values, {texts} texts"


def compare_values(calls, looks, words, has_detail):
    """How many values and texts are what gdb has found; with --args there are no texts, and no more than six words of the
    stack."""
    faults, values, texts = [], 0, 0
    for seen in looks:
        enter, end = calls[seen["name"]][seen["call"]]
        faults += check_registers(seen, enter, end) if has_detail else []
        ours = {argument["name"]: argument for argument in enter.get("arguments", [])}
        pairs = [(name, ours.get(name), value) for name, value in seen["arguments"].items()]
        if end is not None:
            pairs.append(("=", end.get("returned"), seen["returned"]))
        for name, own, value in pairs:
            if value is None:
                continue
            values += 1
            texts += own is not None and own.get("type") == "const char *" and own.get("text", "").endswith('"')
            fault = "missing" if own is None else differs(own, *value)
            if fault is not None:
                faults.append(f"call {seen['call']} of {seen['name']}: {name}: {fault}: {own}, gdb {value}")
    expect(not faults, f"{words}: {len(faults)} differences:\n     " + "\n     ".join(faults[:12]))
    expect(values > 3 * LOOKS, f"{words}: only {values} values were compared")
    expect(texts > 5 or not has_detail, f"{words}: only {texts} texts were compared")
    return values, texts


@case(some=("own", 1))
def c_calls(scene):
    return ", ".join(compare(scene, seed, False, *words) for seed, words in random.sample(((1, ["-O0"]), (2, ["-O2"])), scene.rounds(1, 2)))


@case(some=("own", 1))
def cplusplus_calls(scene):
    return ", ".join(compare(scene, seed, True, *words) for seed, words in random.sample(((3, ["-O0"]), (4, ["-O2"])), scene.rounds(1, 2)))


# How many arguments these have; the library's variants of them (__strlen_avx2) have as many.
LIBRARY_CALLS = {"open": 2, "openat": 3, "read": 3, "write": 3, "close": 1, "malloc": 1, "free": 1, "memcpy": 3, "memmove": 3,
                 "strlen": 1, "strchr": 2, "strrchr": 2, "memset": 3, "memchr": 3, "strcmp": 2, "realloc": 2, "getenv": 1}


def arguments_of(name):
    found = re.fullmatch(r"(?:__libc_|__)?([a-z]+?)(?:64)?(?:_(?:evex|avx|sse|erms)\w*)?", name)
    return LIBRARY_CALLS.get(found[1], 0) if found else 0


def points_alike(ours, theirs, place, bases):
    """Trampolines lie near libraries, so with them what is mapped later may lie lower, by whole pages."""
    if ours == theirs or place is None:
        return ours == theirs
    path, offset = place
    if path in bases:
        return ours == bases[path] + offset
    return not path.startswith("[") and ours % 4096 == theirs % 4096


def compare_library(scene, program, *words):
    """Calls of the C library after its start, whose functions gdb has by their addresses."""
    library = os.path.realpath("/lib/x86_64-linux-gnu/libc.so.6")
    program = os.path.realpath(need(program))  # as gdb starts it
    if not os.path.exists(library):
        raise Skip("no " + library)
    by_name = collections.defaultdict(list)
    lines = scene.recorded("--detail", "libc.so.6!**", "--trace", "libc.so.6!**", "--mode", "full", "--detail-size", "64",
                           "--", program, *words, lines=True)
    modules = [module["path"].endswith("/libc.so.6") for module in scene.manifest()["modules"]]
    bases = {module["path"]: int(str(module["base"]), 0) for module in scene.manifest()["modules"]}
    with open(scene.path("trace", "functions.tsv"), encoding="utf-8") as file:
        for line in file:
            _, module, address, _, _, name = line.rstrip("\n").split("\t")
            if modules[int(module)] and arguments_of(name):
                by_name[name].append(int(address, 16))
    begin = next(n for n, line in enumerate(lines) if line["name"] == "__libc_start_main")
    calls = calls_of(lines[begin:])
    names = [name for name, addresses in by_name.items() if len(addresses) == 1 and 0 < len(calls.get(name, ())) <= STOPS]
    points = selected(calls, names, LIBRARY_LOOKS, 5)
    looks, totals = scene.in_gdb(program, [[name, by_name[name][0], points.get(name, [])] for name in names], typed=False,
                                 arguments=shlex.join(words), library="/libc.so.6")
    counted = {name: len(calls[name]) for name in names}
    expect(totals == counted, f"calls: {counted}, gdb {totals}")
    expect(len(looks) == LIBRARY_LOOKS, f"gdb has looked at {len(looks)} calls")
    faults = []
    for seen in looks:
        detail = calls[seen["name"]][seen["call"]][0]["detail"]
        pairs = list(zip(bits(detail["registers"]), seen["registers"], seen["places"]))[:arguments_of(seen["name"])]
        if not all(points_alike(*pair, bases) for pair in pairs):
            faults.append(f"call {seen['call']} of {seen['name']}: {[hex(ours) for ours, _, _ in pairs]}, gdb "
                          f"{[(hex(theirs), place) for _, theirs, place in pairs]}")
    expect(not faults, f"{len(faults)} differences:\n     " + "\n     ".join(faults[:12]))
    return f"{len(names)} functions, {sum(counted.values())} calls"


@case(some=("library", 1))
def library_calls_of_ls(scene):
    os.mkdir(scene.path("listed"))
    for name in ("one", "two", "three"):
        scene.write("listed/" + name, name)
    return compare_library(scene, "/bin/ls", "-l", "--color=always", scene.path("listed"))


@case(some=("library", 1))
def library_calls_of_python(scene):
    # Its objects in the heap: others move with what is mapped, and order in sets by address with them.
    scene.environment.update(PYTHONMALLOC="malloc", MALLOC_MMAP_MAX_="0")
    script = scene.write("of_python.py", "print(open('/etc/hostname').read() * 2, len({str(n): [n] for n in range(100)}))\n")
    return compare_library(scene, "/usr/bin/python3", "-s", "-S", script)


@case(some=("library", 1))
def library_calls_of_sqlite3(scene):
    scene.environment.update(MALLOC_MMAP_MAX_="0")
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
    script = scene.write("rows.sql", f"CREATE TABLE t(a, b); INSERT INTO t {rows} SELECT i, i * i FROM n;\n"
                         "SELECT sum(b) FROM t WHERE a > 10;\n")
    return compare_library(scene, "/usr/bin/sqlite3", "-batch", "-init", script, ":memory:", ".exit")  # gdb divides at spaces


if __name__ == "__main__":
    main(__doc__, Scene, name="witness_values")
