#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Values by their types: what replay shows of arguments and results is what gdb finds at the same calls, of C and C++, with
and without optimisation; and of calls of the C library what the program says of them itself.

    tests/typed.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import urllib.request

import harness
from harness import case, expect, free_port, main, need

# Runs in gdb: each call of the functions, with its arguments and its result, as a line of JSON.
IN_GDB = r"""
import json
import gdb

functions, at_entry, out = json.loads(open("request").read()), OPTIMISED, open("calls", "w")


def plain(value):
    type = value.type.strip_typedefs()
    if value.is_optimized_out:
        return None
    if type.code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        address = int(value.address if type.code != gdb.TYPE_CODE_PTR else value)
        target = type.target().strip_typedefs()
        return ["code" if target.code == gdb.TYPE_CODE_FUNC else "pointer", address, value.format_string(symbols=True)]
    if type.code == gdb.TYPE_CODE_BOOL:
        return ["bool", bool(value)]
    if type.code == gdb.TYPE_CODE_ENUM:
        return ["enum", str(value)]
    if type.code == gdb.TYPE_CODE_FLT:
        return ["float%d" % type.sizeof, float(value)]
    if type.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR):
        return ["char" if type.sizeof == 1 else "int", int(value)]
    return ["other", str(value)]


def call(function):
    frame = gdb.newest_frame()
    arguments = {symbol.name: plain(symbol.value(frame)) for symbol in frame.block() if symbol.is_argument}
    result = frame.function().symtab and frame.function().type.target().strip_typedefs()
    returned = None
    if result.code != gdb.TYPE_CODE_VOID and not function.endswith("calls_changed"):
        text = gdb.execute("finish", to_string=True)
        returned = plain(gdb.history(0)) if "Value returned" in text else None
    out.write(json.dumps([function, arguments, returned, result.code == gdb.TYPE_CODE_VOID]) + "\n")


gdb.execute("set confirm off")
gdb.execute("set breakpoint pending off")
gdb.execute("set startup-with-shell off")
points = {gdb.Breakpoint(("*'%s'" if at_entry else "%s") % place, internal=True).number: name
          for place, name in functions}
stopped = []
gdb.events.stop.connect(lambda event: stopped.append([b.number for b in getattr(event, "breakpoints", [])]))
gdb.execute("run", to_string=True)
while gdb.selected_inferior().pid != 0:
    here = [points[number] for number in (stopped[-1] if stopped else []) if number in points]
    if here:
        call(here[0])
    gdb.execute("continue", to_string=True)
out.close()
"""
C_FUNCTIONS = ["t_small", "t_wide", "t_floats", "t_half", "t_enums", "t_data", "t_pointers", "t_point", "t_big", "t_complex",
               "t_long_double", "t_void", "t_none", "t_variadic", "t_changed", "t_calls_changed"]
CPP_FUNCTIONS = ["space::Member::add", "space::Member::twice", "space::Member::value", "space::references",
                 "space::by_address", "space::holds", "space::gives", "space::empty", "space::member_pointer",
                 "space::same<long>", "space::same<double>"]


class Scene(harness.Scene):
    def replayed(self):
        """What replay shows; a call during which the thread was off its processor is one line, as those are that were not."""
        return re.sub(r"^([^\n]*\)) \{\n(?:[^\n]* -- [^\n]* off: [^\n]* --\n)+[^\n]*\} [^\n]*?\(\)( = [^\n]*|;)?$", r"\1\2",
                      self.run(self.contrail, "replay", self.trace), flags=re.MULTILINE)

    def build(self, source, *words):
        compiler = words[0]
        return self.compile(source, "-g", "-fno-pie", "-no-pie", *words[1:], compiler=compiler, name="typed")

    def calls(self, program, options):
        """By function, in order: (arguments by name, what it returned), as replay has them."""
        shutil.rmtree(self.trace, ignore_errors=True)
        self.run(self.contrail, "record", "-q", "-o", self.trace, "--trace", "typed!**", "--mode", "full",
                 *options, "--", program)
        by_function, opened = {}, []
        for line in harness.parse_lines(self.run(self.contrail, "replay", "--json", self.trace)):
            if line["kind"] == "enter":
                calls = by_function.setdefault(name_of(line["name"]), [])
                calls.append([{a["name"]: a for a in line.get("arguments", [])}, None])
                opened.append(calls[-1])
            elif line["kind"] in ("return", "left"):
                opened.pop()[1] = line.get("returned")
        return by_function

    def in_gdb(self, program, functions, optimised):
        with open(self.path("request"), "w", encoding="utf-8") as file:
            json.dump(functions, file)
        script = self.write("script.py", IN_GDB.replace("OPTIMISED", repr(optimised)))
        self.execute("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", script, program)
        with open(self.path("calls"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


NAMED = []  # what pointers were found to point to


def name_of(name):
    """Without parameters, result and the marks of clones."""
    name = re.sub(r"\.(constprop|isra|part|lto_priv)\.\d+.*", "", name)
    return re.sub(r"\(.*", "", name).split(" ")[-1]


def same(ours, kind, value, text):
    if kind == "pointer":
        named = re.search(r"<(\w+)(\+\d+)?>", text or "")
        shown = "text" in ours and re.search(r"<(.*?)(\+0x[0-9a-f]+)?>", ours["text"])
        if named and '"' not in ours.get("text", ""):
            NAMED.append(named[1])
            return shown and shown[1] == named[1] and int(shown[2] or "0", 16) == int(named[2] or "0")
        return (int(ours["raw"], 16) != 0) == (value != 0)
    if kind == "code":
        return int(ours["raw"], 16) == value and (value == 0 or text.split("<")[1][:-1] in ours["text"])
    if kind == "bool":
        return ours["value"] is value
    if kind == "enum":
        shown = ours.get("text", str(ours["value"]))
        return shown == re.sub(r"[() ]|\w+::", "", value)
    if kind == "float4":
        return struct.pack("f", float(ours["value"])) == struct.pack("f", value)
    if kind.startswith("float"):
        return float(ours.get("value", ours.get("text"))) == value
    if kind == "char":
        return ours["value"] == value & 0xff
    if kind == "int":
        return int(ours["value"], 0) == value if isinstance(ours["value"], str) else ours["value"] == value
    # A structure, or where its copy lies; members that gdb or we do not know are not compared.
    shown, theirs = re.sub(r"^0x\w+ ", "", ours.get("text", "")), value.replace(" = ", "=")
    return shown in ("", "{...}", theirs) or "<" in theirs or "{..." in shown or ", ...}" in shown


def compare(scene, source, functions, words, optional):
    """optional: what need not be known, as (function, parameter)."""
    need("gdb")
    program = scene.build(source, *words)
    seen = scene.in_gdb(program, [[name, name] for name in functions], "-O0" not in words)
    small = compare_calls(scene.calls(program, ["--args"]), seen, functions, words + ["--args"], optional)
    detail = ["--vectors", "--detail", "typed!**", "--stack", "512"]
    compared = compare_calls(scene.calls(program, detail), seen, functions, words, optional)
    expect(small == compared, f"{words}: with --args {small} values, with --detail {compared}")
    return compared


def compare_calls(ours, seen, functions, words, optional):
    compared = 0
    for function, arguments, returned, is_void in seen:
        expect(ours.get(function), f"{words}: a call of {function} is missing")
        got, got_return = ours[function].pop(0)
        if is_void:
            expect(got_return in (None, {"type": "void"}), f"{words}: {function} returned {got_return}")
        elif returned is not None and ("value" in (got_return or {}) or "text" in (got_return or {})):
            expect(same(got_return, *(returned + [None])[:3]), f"{words}: {function} = {got_return}, gdb: {returned}")
            compared += 1
        elif returned is not None and returned[0] != "other":
            expect((function, "=") in optional, f"{words}: the result of {function} is not known: {got_return}")
        for name, value in arguments.items():
            if value is None:
                continue
            expect(name in got, f"{words}: {function} has no {name}: {got}")
            if "raw" not in got[name]:
                expect((function, name) in optional, f"{words}: {name} of {function} is not known: {got}")
                continue
            expect(same(got[name], *(value + [None])[:3]), f"{words}: {function}, {name}: {got[name]}, gdb: {value}")
            compared += 1
    left = {name: len(calls) for name, calls in ours.items() if name in functions and calls}
    expect(not left, f"{words}: calls that gdb did not see: {left}")
    return compared


UNKNOWN = {("t_big", "by_value"), ("t_long_double", "="), ("t_changed", "="), ("t_changed", "unused"),
           ("t_changed", "constant"), ("t_changed", "a"), ("t_changed", "b")}


@case(some=("dear", 1))
def c_values(scene):
    builds = (["gcc", "-O0"], ["gcc", "-O2"], ["clang", "-O0"], ["clang", "-O2"], ["gcc", "-O2", "-gdwarf-4"])
    for words in random.sample(builds, scene.rounds(3, len(builds))):
        NAMED.clear()
        compared = compare(scene, "programs/typed.c", C_FUNCTIONS, words, UNKNOWN)
        expect(len(set(NAMED)) > 1, (words, NAMED))
        expect(compared > 200, (words, compared))


@case(some=("dear", 1))
def cplusplus_values(scene):
    for words in (["g++", "-O0"], ["g++", "-O2"]):
        compared = compare(scene, "programs/typed.cpp", CPP_FUNCTIONS, words, set())
        expect(compared > 60, (words, compared))


LIBRARY_CALLS = ["open", "write", "lseek", "fstat", "close", "read", "unlink", "mmap", "mprotect", "munmap", "socket",
                 "socketpair", "send", "shutdown", "pthread_mutex_lock", "pthread_mutex_trylock", "pthread_create",
                 "sigprocmask", "sigaction", "qsort", "clock_nanosleep", "clock_gettime", "access", "malloc", "free",
                 "getenv"]


def library_calls(scene, module, *words):
    program = scene.compile("programs/libcalls.c", *words, "-pthread", name="libcalls")
    details = [word for name in LIBRARY_CALLS for word in ("--detail", f"{module}!{name}")]
    shutil.rmtree(scene.trace, ignore_errors=True)
    for name in ("compare", "main", "thread"):
        details += ["--trace", "libcalls!" + name]
    said = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, *details, "--", program,
                     scene.path("file")).splitlines()
    shown = scene.replayed()
    expect(len(said) > 25, said)
    for line in said:
        expect(line in shown, f"{line} is not in the replay:\n" + shown)


@case
def known_calls(scene):
    """Without debug information, the library's and the program's."""
    library_calls(scene, "libc.so.6", "-O1")
    library_calls(scene, "libcalls", "-O1", "-static")


@case
def errors_by_name(scene):
    """What errno was after calls of the library that failed, and only of these."""
    program = scene.compile("programs/errors.c", "-O1", "-fno-builtin", "-pthread", name="errors")
    details = [word for name in ("open", "close", "read", "mmap", "lseek", "atoi") for word in ("--detail", f"libc.so.6!{name}")]
    shutil.rmtree(scene.trace, ignore_errors=True)
    said = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, *details, "--", program).splitlines()
    expect(len(said) == 6 and said[-1] == "threads 1200", said)
    shown = [json.loads(line) for line in scene.run(scene.contrail, "replay", "--json", scene.trace).splitlines()]
    ends = [(call["name"], call["returned"].get("error")) for call in shown
            if call.get("returned", {}).get("raw") in ("0xffffffff", "0xffffffffffffffff")]
    for line in said[:-1]:
        name, error = line.split()
        name = "llseek" if name == "lseek" else name  # glibc's list of functions has that name of it
        expect((name, None if error == "-" else error) in ends, (line, ends[:20]))
    expect([error for name, error in ends if name == "atoi"] == [None], ends[:20])
    expect(ends.count(("close", "EBADF")) == 600 and ends.count(("open", "EISDIR")) == 600, ends[:20])
    text = scene.run(scene.contrail, "replay", scene.trace)
    expect("= -1 ENOENT" in text and "atoi" in text, text[:2000])


@case
def members(scene):
    """What structures hold: of those that are passed, and with --members of those that pointers point to, at the call."""
    program = scene.compile("programs/members.cpp", "-g", "-O1", compiler="g++", name="members")
    shutil.rmtree(scene.trace, ignore_errors=True)
    names = ["take", "give", "text"]
    details = [word for name in names for word in ("--detail", f"members!{name}", "--trace", f"members!{name}")]
    said = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--members", *details, "--", program, "200").splitlines()
    lines = [line for line in harness.parse_lines(scene.run(scene.contrail, "replay", "--json", scene.trace)) if line["name"]]
    calls = {name: [line for line in lines if name_of(line["name"]) == name and line["kind"] == "enter"] for name in names}
    given = [line["returned"] for line in lines if line["name"] == "give" and line["kind"] == "return"]
    expect(len(said) == 200 and all(len(calls[name]) == 200 for name in names), {name: len(calls[name]) for name in names})
    for line, take, text, result in zip(said, calls["take"], calls["text"], given):
        thing, passed, at_end, words = line.split(" | ")
        first, small, real, is_set, negated = thing.split()
        ours = [{member["name"]: member.get("value") for member in argument.get("members", [])} for argument in take["arguments"]]
        expect(ours[0] == {"first": int(first), "small": int(small), "real": float(real), "name": None, "both": None,
                           "is_set": is_set == "1"}, (line, take))
        expect(list(ours[1].values()) == [int(n) for n in passed.split()], (line, take))
        expect(list(ours[2].values()) == [int(n) for n in at_end.split()], (line, take))
        expect(not ours[3] and take["arguments"][3]["raw"] == "0x10", take)
        expect([m["value"] for m in result["members"]] == [int(negated), -int(negated)], (line, result))
        for argument, whole in zip(text["arguments"], (words, "!")):
            shown = re.search(r'"(.*)"(\.\.\.)?', argument["text"])
            expect(shown and shown[1] == whole[:64] and bool(shown[2]) == (len(whole) > 64), (whole, argument))
    replayed = scene.run(scene.contrail, "replay", "--function", "take", "--limit", "1", scene.trace)
    expect(re.search(r"take\(in=0x\w+ \{first=-?\d+, small=-?\d+, .*, \.\.\.\}, value=\{a=0, b=-?\d+\}, at_end=0x\w+ \{a=-?\d+, "
                     r"b=3\}, nowhere=0x10\)", replayed), replayed)


STRINGS_AND_STRUCTURES = r"""
#include <string>
struct A { int x, y; };
struct B { double d; };
__attribute__((noinline)) int one(const std::string &s, A *a, B *b) { asm volatile("" ::"r"(a), "r"(b) : "memory"); return s.size(); }
__attribute__((noinline)) int two(A *a, const std::string &s, const std::string &t) { asm volatile("" ::"r"(a) : "memory"); return s.size() + t.size(); }
int main() { A a{1, 2}; B b{3}; std::string s(40, 'q'), t(50, 'z'); return one(s, &a, &b) + two(&a, s, t) != 130; }
"""


@case
def texts_before_members(scene):
    """What --members reads takes no string its text: three things of a call are read, and strings come first."""
    scene.write("both.cpp", STRINGS_AND_STRUCTURES)
    scene.run("g++", "-g", "-O1", "-w", "-o", scene.path("both"), scene.path("both.cpp"))
    for more in ([], ["--members"]):
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.run(scene.contrail, "record", "-q", "-o", scene.trace, *more, "--detail", "one(*", "--detail", "two(*", "--trace", "one(*",
                  "--trace", "two(*", "--", scene.path("both"))
        replayed = scene.run(scene.contrail, "replay", scene.trace)
        expect(re.search(r'one\(s=0x\w+ "q{40}"', replayed) and re.search(r's=0x\w+ "q{40}", t=', replayed), f"{more}: {replayed}")


@case
def texts(scene):
    """What arguments point to; nothing where it cannot be read, or where a filter may forbid to."""
    program = scene.compile("programs/texts.c", "-O1", "-fno-builtin", name="texts")
    details = [word for name in ("open", "rename", "setenv", "strlen") for word in ("--detail", f"libc.so.6!{name}")]
    for how in ("plain", "filter"):
        shutil.rmtree(scene.trace, ignore_errors=True)
        said = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, *details, "--", program, how).splitlines()
        expect(len(said) == (9 if how == "plain" else 10), said)
        shown = scene.replayed()
        for line in said:
            expect(line in shown, f"{line} is not in the replay:\n" + "\n".join(x for x in shown.splitlines() if "path=" in x))
    shutil.rmtree(scene.trace, ignore_errors=True)
    result = subprocess.run([scene.contrail, "record", "-q", "-o", scene.trace, *details, "--", program, "crash"],
                            capture_output=True, text=True, timeout=60)
    expect(result.returncode == 139, result)
    info = scene.run(scene.contrail, "info", scene.trace)
    expect(re.search(r'setenv\(name=0x\w+ "NAME", value=0x10, overwrite=1\)', info), info[:3000])


FILLING = ["read", "fstatat", "pipe", "getcwd", "getenv", "clock_gettime", "getrlimit", "waitpid", "recv"]


@case
def filled(scene):
    """What calls of the C library have filled in, at their return: nothing where they failed."""
    program = scene.compile("programs/filled.c", "-O1", "-fno-builtin", name="filled")
    details = [word for name in FILLING for word in ("--detail", f"libc.so.6!{name}")]
    environment = {**os.environ, "PLANTED": "a value"}
    result = subprocess.run([scene.contrail, "record", "-q", "-o", scene.trace, *details, "--", program],
                            capture_output=True, text=True, timeout=60, env=environment)
    expect(result.returncode == 0, result)
    shown = scene.replayed()
    said = result.stdout.splitlines()
    expect(len(said) == 14, said)
    for line in said:
        expect(all(part in shown for part in line.split("%s")),
               f"{line} is not in the replay:\n" + "\n".join(x for x in shown.splitlines() if line.split("(")[0] in x))
    calls = [json.loads(line) for line in scene.run(scene.contrail, "replay", "--json", scene.trace).splitlines()]
    filled = {call["name"]: call["returned"]["filled"][0] for call in calls if "filled" in call.get("returned", {})}
    expect(filled["recv"] == {"name": "buf", "bytes": b"across the end of a page".hex(), "text": '"across the end of a page"'},
           filled["recv"])
    expect(filled["fstatat"]["value"]["st_mode"] == os.stat("/dev/null").st_mode, filled["fstatat"])


@case
def texts_of_own_functions(scene):
    """char * and std::string by debug information, when the function is named; not when all functions have detail."""
    harness.need("c++")
    program = scene.compile("programs/strings.cc", "-O1", "-g", compiler="c++", name="strings")
    said = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--detail", "take", "--detail", "copy", "--", program)
    shown = scene.replayed()
    expect(len(said.splitlines()) == 14, said)
    for line in said.splitlines():
        expect(line in shown, f"{line} is not in the replay:\n" + "\n".join(x for x in shown.splitlines() if "s=" in x))
    shutil.rmtree(scene.trace)
    scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--detail", "all", "--", program)
    calls = [line for line in scene.run(scene.contrail, "replay", scene.trace).splitlines() if "copy(to=" in line and "printf" not in line and "stdout" not in line]
    expect(len(calls) == 2 and not any('"new"' in line for line in calls), calls)


@case
def from_debuginfod(scene):
    """Types of a stripped program from a server, when asked; nothing is asked for otherwise; without one it is refused."""
    for tool in ("debuginfod", "objcopy"):
        need(tool)
    program, served = scene.build("programs/typed.c", "gcc", "-O1", "-Wl,--build-id"), scene.path("served")
    os.makedirs(served)
    subprocess.run(["objcopy", "--only-keep-debug", program, os.path.join(served, "typed.debug")], check=True)
    subprocess.run(["strip", "--strip-debug", program], check=True)
    port = free_port()
    bare = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    bare |= {"DEBUGINFOD_CACHE_PATH": scene.path("client"), "HOME": scene.path("home")}
    asked = {**bare, "DEBUGINFOD_URLS": f"http://127.0.0.1:{port}/"}

    def shown(environment, *options):
        shutil.rmtree(scene.trace, ignore_errors=True)
        result = subprocess.run([scene.contrail, "record", "-q", "-o", scene.trace, *options, "--args", "--trace", "typed!t_*",
                                 "--", program], capture_output=True, text=True, timeout=60, env=environment)
        return result, scene.run(scene.contrail, "replay", scene.trace) if result.returncode != 125 else ""

    result, _ = shown(bare, "--debuginfod")
    expect(result.returncode == 125 and "DEBUGINFOD_URLS names no server" in result.stderr, result)
    server = subprocess.Popen(["debuginfod", "-d", ":memory:", "-p", str(port), "-F", served], env=bare,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        harness.wait_for("the file in the server", lambda: 'found_debuginfo_total{source="files"} 1' in metrics(port))
        _, text = shown(asked)
        expect("t_enums(a=GREEN" not in text and not os.path.exists(scene.path("client")), text[:500])
        _, text = shown(asked, "--debuginfod")
        expect("t_enums(a=GREEN, b=FOUR, c=true, d='b') = GREEN;" in text, text[:3000])
    finally:
        server.terminate()
        server.wait()
    away = {**asked, "DEBUGINFOD_CACHE_PATH": scene.path("empty")}
    _, text = shown(away, "--debuginfod")  # nobody listens there any more
    notes = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["notes"]
    expect("t_enums(a=GREEN" not in text and any("debuginfod: no server has answered" in note for note in notes), (notes, text[:500]))
    _, text = shown(bare)  # what has been fetched is there
    expect("t_enums(a=GREEN, b=FOUR, c=true, d='b') = GREEN;" in text, text[:3000])


def metrics(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


@case
def after_a_crash(scene):
    """The last calls in info, by --args and by --detail."""
    program = scene.compile("programs/crash.c", "-g", "-O1", "-pthread")
    for options in (["--args"], ["--detail", "crash!*"]):
        shutil.rmtree(scene.trace, ignore_errors=True)
        scene.execute(scene.contrail, "record", "-q", "-o", scene.trace, *options, "--", program, "main")
        out = scene.run(scene.contrail, "info", scene.trace)
        expect(re.search(r"  outer\(x=1\) \(crash\)  -- unfinished\n.*  middle\(x=1\) \(crash\)  -- unfinished", out), out)
        calls = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["crash"]["threads"][0]["last_calls"]
        expect(calls[-2]["arguments"] == [{"name": "x", "type": "int", "raw": "0x1", "value": 1}], calls[-2])


@case
def children(scene):
    """The processes of a tree share what was read: each trace has its own, whole."""
    program = scene.build("programs/typed.c", "gcc", "-O1")
    scene.run(scene.contrail, "record", "-q", "--follow", "--args", "-o", scene.trace, "--trace", "typed!*",
              "--", "/bin/sh", "-c", f"{program}; {program}; {program}")
    traces = [entry.path for entry in os.scandir(scene.trace) if entry.name.startswith("process-")]
    texts = [scene.run(scene.contrail, "replay", path) for path in traces]
    expect(len(texts) >= 2, traces)  # the last one may be the shell itself
    for text in texts:
        expect("t_enums(a=GREEN, b=FOUR, c=true, d='b') = GREEN;" in text and
               "t_enums(a=BLUE, b=ONE|FOUR, c=true, d='c') = BLUE;" in text, text)


@case
def damaged(scene):
    """A file of prototypes that is cut, spoiled or gone: said, and the values are there as numbers."""
    scene.calls(scene.build("programs/typed.c", "gcc", "-O1"), ["--detail", "typed!**"])
    path = os.path.join(scene.trace, "prototypes.tsv")
    with open(path, "rb") as file:
        whole = file.read()
    expect("t_void(a=2)" in scene.run(scene.contrail, "replay", scene.trace), "as it is")
    spoiled = bytearray(whole)
    spoiled[len(whole) // 2] ^= 1
    for content, said in ((whole[:-20], "prototypes.tsv is 20 bytes shorter than it was"), (b"", "prototypes.tsv is missing"),
                          (bytes(spoiled), "prototypes.tsv is damaged: values are shown without their types")):
        with open(path, "wb") as file:
            file.write(content)
        out = scene.run(scene.contrail, "replay", scene.trace)
        expect(out.startswith("DAMAGED: " + said), out[:300])
        expect("t_void(0x2, 0x" in out and "t_void(a=" not in out, out[:1000])


@case
def not_written(scene):
    """Tables that cannot be written at the end: the recording is whole, and says what is not there."""
    source = scene.write("pair.c", "#include <sys/stat.h>\nstruct pair { int a, b; };\n"
                         "__attribute__((noinline)) int sum(struct pair *p) { return p->a + p->b; }\n"
                         "int main(int n, char **w) { struct pair p = {n, 2}; "
                         "mkdir(w[1], 0700); mkdir(w[2], 0700); return sum(&p) != 5; }\n")
    program = scene.build(source, "gcc", "-O1")
    scene.run(scene.contrail, "record", "-q", "--args", "--source", "-o", scene.trace, "--", program,
              *(os.path.join(scene.trace, name) for name in ("sources.tsv", "prototypes.tsv")))
    out = scene.run(scene.contrail, "info", scene.trace)
    for effect in "functions have no source lines", "values have no types":
        expect(f"{effect}: what debug information has of them could not be written" in out, out)
    expect("DAMAGED" not in out and "sum(" in scene.run(scene.contrail, "replay", scene.trace), out)


if __name__ == "__main__":
    main(__doc__, Scene)
