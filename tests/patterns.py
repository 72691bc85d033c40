#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--trace, --mode and --project-root as the user sees them: what is malformed, which functions each kind of pattern
chooses and in which mode, with exact counts of calls; source files from debug information of several makers and
places; what plan, info and the manifest tell.

    tests/patterns.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import subprocess

import harness
from harness import case, main, need

# Each function says in its name how often it is called. Two files of one name, a header, and one from elsewhere.
SOURCES = {
    "project/main.cc": """
#include "shared.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
extern "C" void first_util(void), second_util(void), foreign(int);
volatile int sink;
int main(int argc, char **argv)
{
  for (int i = 0; i < 10; i++) first_util();
  second_util();
  for (int i = 0; i < 5; i++) foreign(i);
  for (int i = 0; i < 7; i++) all::levels::once_each(i);
  for (int i = 0; i < 6; i++) sink += shared_twice(i) + shared_twice(-i - 1);
  if (argc > 1) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) return 1;
    void (*call)() = (void (*)())dlsym(library, "plugin_thrice");
    for (int i = 0; i < 3; i++) call();
  }
  return 0;
}
""",
    "project/shared.h": """
#pragma once
namespace all { namespace levels { void once_each(int); } }
__attribute__((noinline)) static int shared_twice(int i) { return i + 1; }
""",
    "project/names.cc": """
#include "shared.h"
#include <string>
#define FN __attribute__((noinline))
namespace all {
struct thing { int n; };
FN int plain(int i) { return i + 1; }
FN int pointers(char **p) { return p == nullptr; }
template <class T> FN int made_of(T) { return 3; }
namespace { FN int hidden(int i) { return i + 2; } }
namespace levels {
namespace below { FN int deepest(int i) { return i; } }
struct op {
  FN int operator()(int i) const { return i; }
  FN bool operator<(const op &) const { return true; }
  FN operator thing() const { return {4}; }
  FN int operator[](int i) { return i; }
};
FN void once_each(int i)
{
  volatile int sum = plain(i) + pointers(nullptr) + made_of(thing{1}) + made_of(i) + hidden(i) + below::deepest(i);
  op o;
  thing t = o;
  auto each = [](int x) __attribute__((noinline)) { return x * 2; };
  sum = sum + o(i) + (o < o) + o[i] + t.n + each(i);
}
}
}
""",
    "project/a/util.c": "int first_sink;\n__attribute__((noinline)) static void first_inner(void) { first_sink++; }\n"
                        "void first_util(void)\n{\n  first_inner();\n  first_inner();\n}\n",
    "project/b/util.c": "int second_sink;\nvoid second_util(void)\n{\n  second_sink++;\n}\n",
    "project/plugin.c": "int plugin_sink;\nvoid plugin_thrice(void)\n{\n  plugin_sink++;\n}\n",
    "elsewhere/foreign.c": "int foreign_sink;\n__attribute__((noinline)) static void foreign_inner(void) { foreign_sink++; }\n"
                           "void foreign(int i)\n{\n  foreign_inner();\n}\n",
}
LEVELS = {"all::plain(int)": 7, "all::pointers(char**)": 7, "int all::made_of<all::thing>(all::thing)": 7,
          "int all::made_of<int>(int)": 7, "all::(anonymous namespace)::hidden(int)": 7,
          "all::levels::below::deepest(int)": 7, "all::levels::op::operator()(int) const": 7,
          "all::levels::op::operator<(all::levels::op const&) const": 7, "all::levels::op::operator all::thing() const": 7,
          "all::levels::op::operator[](int)": 7, "all::levels::once_each(int)": 7,
          "all::levels::once_each(int)::{lambda(int)#1}::operator()(int) const": 7}
A_UTIL = {"first_util": 10, "first_inner": 20}
B_UTIL = {"second_util": 1}
FOREIGN = {"foreign": 5, "foreign_inner": 5}
MAIN = {"main": 1, "shared_twice(int)": 12}
USERS = {**LEVELS, **A_UTIL, **B_UTIL, **MAIN}


def some(*names):
    return {name: calls for name, calls in {**USERS, **FOREIGN}.items() if name in names}


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        for name, text in SOURCES.items():
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            self.write(name, text)
        self.project = self.path("project")
        self.traces = 0

    def build(self, name="program", flags=("-g",), compilers=("gcc", "g++"), after=()):
        """Each file is compiled where it lies, by relative names: debug information knows the folder by itself."""
        objects = []
        for source in SOURCES:
            if source.endswith(".h") or source.endswith("plugin.c"):
                continue
            folder, file = os.path.split(self.path(source))
            target = self.path(f"{name}.{len(objects)}.o")
            language = compilers[1] if file.endswith(".cc") else compilers[0]
            subprocess.run([language, "-O1", *(["-fno-ipa-sra"] if language[0] == "g" else []), *flags, "-c", file, "-o",
                            target], cwd=folder, check=True, capture_output=True)
            objects.append(target)
        program = self.path(name)
        subprocess.run([compilers[1], *flags, "-o", program, *objects, "-ldl"], check=True)
        for command in after:
            subprocess.run([word.replace("PROGRAM", program) for word in command], cwd=self.folder, check=True)
        return program

    def run(self, *words, cwd=None):
        result = self.execute(self.contrail, *words, cwd=cwd or self.project, timeout=300)
        return result.returncode, result.stdout, result.stderr

    def record(self, options, *program, cwd=None):
        self.traces += 1
        trace = self.path(f"trace{self.traces}")
        status, out, err = self.run("record", *options, "-o", trace, "--", *program, cwd=cwd)
        assert status == 0 and out == "", (options, status, out, err)
        return trace, err

    def json(self, *words):
        status, out, err = self.run(*words)
        assert status == 0 or status == 1 and "matched no function" in err, (words, status, err)  # of one pattern
        return json.loads(out)

    def calls(self, trace):
        """Of each function that was called: the calls, whatever module it is in."""
        report = self.json("report", "--json", "--limit", "0", trace)
        return {row["name"]: row["calls"] for row in report["functions"] if row["calls"]}

    def patterns(self, trace):
        return {pattern["pattern"]: pattern for pattern in self.json("info", "--json", trace)["patterns"]}

    def modes(self, trace):
        with open(os.path.join(trace, "functions.tsv"), encoding="utf-8") as file:
            return {mode for mode in (line.split("\t")[4] for line in file) if mode != "unchosen"}


def given(*patterns):
    return [f"--trace={pattern}" for pattern in patterns]


@case
def malformed(scene):
    for command in (["record", "-o", "never"], ["plan"]):
        for words, reason in ((["--trace", ""], "empty"), (["--trace", "!foo"], "no module"), (["--trace", "foo["], "no ']'"),
                              (["--trace", "@files:x"], "@usercode"), (["--trace", "@file:"], "name of a file"),
                              (["--trace", "a\\"], "backslash"), (["--mode", "some"], "full, light or auto"),
                              (["--project-root", "/nowhere"], "no such directory")):
            status, out, err = scene.run(*command, *words, "/bin/true")
            assert status == 2 and not out and len(err.splitlines()) == 1, (words, status, out, err)
            assert reason in err and f"'{words[1]}'" in err, (words, err)
    assert not os.path.exists(os.path.join(scene.project, "never"))


NAMES = (
    ("main", "exact", "full", some("main")),
    ("all::plain", "exact", "full", some("all::plain(int)")),
    ("all::made_of<all::thing>", "exact", "full", some("int all::made_of<all::thing>(all::thing)")),
    ("all::pointers(char**)", "level", "full", some("all::pointers(char**)")),
    ("all::(anonymous namespace)::hidden", "exact", "full", some("all::(anonymous namespace)::hidden(int)")),
    ("all::levels::op::operator()", "exact", "full", some("all::levels::op::operator()(int) const")),
    ("all::*", "level", "full", some("all::plain(int)", "all::pointers(char**)", "int all::made_of<int>(int)",
                                     "int all::made_of<all::thing>(all::thing)")),
    ("all::levels::op::*", "level", "full", {name: 7 for name in LEVELS if "::op::" in name}),
    ("all::*::hidden", "level", "full", some("all::(anonymous namespace)::hidden(int)")),
    ("all::levels::**", "deep", "full", {name: 7 for name in LEVELS if name.startswith("all::levels")}),
    ("all::**", "deep", "light", LEVELS),
    ("**::deepest", "deep", "full", some("all::levels::below::deepest(int)")),
    ("first_*", "level", "full", A_UTIL),
    ("pro*!second_util", "exact", "full", B_UTIL),
    ("lib*!second_util", "exact", "full", {}),
    ("no::such", "exact", "full", {}))


@case
def by_name(scene):
    """Each kind of pattern, alone: the functions that are called are those selected, as often as they are, and no other."""
    program = scene.build()
    for pattern, kind, mode, expected in NAMES:
        trace, err = scene.record(given(pattern), program)
        assert scene.calls(trace) == expected, (pattern, scene.calls(trace))
        told = scene.patterns(trace)[pattern]
        assert (told["class"], told["asked"], told["mode"]) == (kind, "auto", mode), told
        assert told["matched"] == told["hooked"] == len(expected) and told["refused"] == {}, told
        assert err == ("" if expected else f"contrail: --trace '{pattern}' matched no function\ncontrail: nothing was recorded: "
                       "none of the functions that were to be traced was hooked\n"), err
        # `operator thing` looks like a JIT's to nobody: what is selected in full is full, and the same for light.
        assert scene.modes(trace) <= {mode} | ({"full"} if mode == "light" else set()), (pattern, scene.modes(trace))


@case
def together(scene):
    """Several patterns: a function is full when one says so; excluded ones are left out, by reason; --mode says more."""
    program = scene.build()
    trace, _ = scene.record(given("all::**", "all::plain", "first_util") + ["--exclude=all::levels::*"], program)
    expected = {**LEVELS, "first_util": 10}
    excluded = [name for name in expected if name.startswith("all::levels")]
    assert scene.calls(trace) == {name: calls for name, calls in expected.items() if name not in excluded}
    told = scene.patterns(trace)
    assert told["all::**"]["mode"] == "light" and told["all::**"]["matched"] == len(LEVELS), told
    assert told["all::**"]["refused"] == {"excluded": len(excluded)}, told
    report = scene.json("report", "--json", "--raw", "--limit", "0", trace)  # without our own time a call may have taken none
    timed = {row["name"] for row in report["functions"] if row["total_ns"]}
    assert timed == {"all::plain(int)", "first_util"}, timed
    trace, _ = scene.record(given("all::plain", "first_*") + ["--mode=light"], program)
    assert scene.modes(trace) == {"light"} and scene.calls(trace) == {**some("all::plain(int)"), **A_UTIL}
    trace, _ = scene.record(given("all::**") + ["--mode=full"], program)
    assert scene.modes(trace) == {"full"} and scene.calls(trace) == LEVELS
    assert scene.patterns(trace)["all::**"]["asked"] == "full"


FILES = (("@file:util.c", {**A_UTIL, **B_UTIL}), ("@file:util", {**A_UTIL, **B_UTIL}), ("@file:a/util.c", A_UTIL),
         ("@file:b/util", B_UTIL), ("@file:project/a/util.c", A_UTIL), ("@file:./a/util.c", A_UTIL),
         ("@file:/a/util.c", {}), ("@file:til.c", {}), ("@file:u*l.?", {**A_UTIL, **B_UTIL}), ("@file:*/b/*", B_UTIL),
         ("@file:shared.h", some("shared_twice(int)")), ("@file:shared", some("shared_twice(int)")),
         ("@file:names", LEVELS), ("@file:main.cc", some("main")), ("@file:foreign.c", FOREIGN),
         ("pro*!@file:foreign.c", FOREIGN), ("libc*!@file:foreign.c", {}))


@case(some=("dear", 2))
def by_file(scene):
    program = scene.build()
    for pattern, expected in FILES:
        trace, err = scene.record(given(pattern), program)
        assert scene.calls(trace) == expected, (pattern, scene.calls(trace))
        told = scene.patterns(trace)[pattern]
        assert told["class"] == "file" and told["matched"] == told["hooked"] == len(expected), told
        assert told["mode"] == "full", told  # unless there are more than 500
        assert bool(err) != bool(expected), (pattern, err)
    whole = scene.path("project/a/util.c")
    trace, _ = scene.record(given(f"@file:{whole}"), program)
    assert scene.calls(trace) == A_UTIL


@case
def in_views(scene):
    """report and replay --function choose by the same patterns, from a recording of everything, what record chooses."""
    program = scene.build()
    trace, _ = scene.record(["--source"], program)
    for pattern, expected in [(row[0], row[3]) for row in NAMES] + list(FILES):
        status, out, err = scene.run("report", "--json", "--limit", "0", "--function", pattern, "--module", "program", trace)
        called = {row["name"]: row["calls"] for row in json.loads(out)["functions"] if row["calls"]}
        assert called == expected and status == (0 if expected else 1), (pattern, called, status, err)
        status, out, err = scene.run("replay", "--json", "--depth", "1", "--function", pattern, trace)
        entered = {line["name"] for line in map(json.loads, out.splitlines()) if line["kind"] in ("enter", "tail", "point")}
        assert set(expected) >= entered and bool(expected) == bool(entered), (pattern, entered)
    usercode = {**USERS, **LEVELS}
    called = {row["name"] for row in scene.json("report", "--json", "--limit", "0", "--function", "@usercode", trace)["functions"]}
    assert set(usercode) & called and not set(FOREIGN) & called, called
    for pattern, reason in (("", "empty"), ("!foo", "no module"), ("foo[", "no ']'"), ("@files:x", "@usercode"), ("@file:", "name of a file")):
        for view in ("report", "replay"):
            status, out, err = scene.run(view, "--function", pattern, trace)
            assert status == 2 and not out and reason in err and len(err.splitlines()) == 1, (pattern, status, out, err)


def chosen(scene, program, *options):
    """What plan says would be hooked, by the demangled names."""
    plan = scene.json("plan", "--no-cache", "--json", *options, program)
    names = "\n".join(function["name"] for function in plan["functions"] if "mode" in function)
    text = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True).stdout
    return set(text.splitlines()), plan


@case(some=("dear", 2))
def debug_information(scene):
    """The same files, from debug information of other versions, of other compilers, and at other places."""
    variants = [("dwarf4", ("-g", "-gdwarf-4"), ("gcc", "g++"), ()), ("dwarf5", ("-g", "-gdwarf-5"), ("gcc", "g++"), ()),
                ("level1", ("-g1",), ("gcc", "g++"), ()), ("types", ("-g", "-fdebug-types-section"), ("gcc", "g++"), ()),
                ("split", ("-g", "-gsplit-dwarf"), ("gcc", "g++"), ()), ("lto", ("-g", "-flto"), ("gcc", "g++"), ()),
                ("clang", ("-g",), ("clang", "clang++"), ()), ("clang4", ("-g", "-gdwarf-4"), ("clang", "clang++"), ()),
                ("clanglines", ("-gline-tables-only",), ("clang", "clang++"), ()),
                ("compressed", ("-g", "-Wl,--compress-debug-sections=zlib"), ("gcc", "g++"), ()),
                ("linked", ("-g",), ("gcc", "g++"),
                 (["objcopy", "--only-keep-debug", "PROGRAM", "PROGRAM.debug"],
                  ["objcopy", "--strip-all", "--add-gnu-debuglink=PROGRAM.debug", "PROGRAM"])),
                ("packed", ("-g",), ("gcc", "g++"),
                 (["objcopy", "--only-keep-debug", "--compress-debug-sections", "PROGRAM", "PROGRAM.debug"],
                  ["objcopy", "--strip-all", "--add-gnu-debuglink=PROGRAM.debug", "PROGRAM"]))]
    for name, flags, compilers, after in random.sample(variants, scene.rounds(3, len(variants))):
        program = scene.build(name, flags, compilers, after)
        for pattern, expected in FILES:
            if pattern.startswith("pro*"):
                pattern = name + pattern[4:]
            found, plan = chosen(scene, program, "--trace", pattern)
            missing = set(expected) - found
            # What a compiler has inlined, or named otherwise, is no matter of source files.
            missing = {word for word in missing if name not in ("lto", "clang", "clang4", "clanglines")}
            assert not missing and (name == "lto" or bool(found) == bool(expected)), (name, pattern, found)
            extra = {word for word in found if word not in expected and not re.search(r"lambda|\$_0|constprop", word)}
            assert not extra or name == "lto", (name, pattern, extra)
            assert plan["patterns"][0]["matched"] >= len(found), (name, plan["patterns"])


@case(some=("dear", 2))
def usercode(scene):
    """Below the root; where nothing is, the program itself: for two reasons, each told."""
    program = scene.build()
    plugin = scene.path("project/plugin.so")
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", plugin, "plugin.c"], cwd=scene.project, check=True)
    trace, err = scene.record(given("@usercode"), program)
    assert scene.calls(trace) == USERS, scene.calls(trace)
    assert err == f"contrail: --trace '@usercode': functions written below {scene.project}\n", err
    told = scene.patterns(trace)["@usercode"]
    assert (told["class"], told["mode"], told["hooked"]) == ("usercode", "full", len(USERS)), told
    assert "@usercode: 17 matched, 17 hooked, full; functions written below" in scene.run("info", trace)[1]

    trace, _ = scene.record(given("@usercode") + ["--project-root", "a"], program)
    assert scene.calls(trace) == A_UTIL
    os.symlink(scene.project, scene.path("link"))
    for root in ("link", "project/../link/b/.."):
        trace, _ = scene.record(given("@usercode") + ["--project-root", scene.path(root)], program)
        assert scene.calls(trace) == USERS, root
    trace, _ = scene.record(given("@usercode"), program, plugin)  # a library that comes later
    assert scene.calls(trace) == {**USERS, "plugin_thrice": 3}
    trace, _ = scene.record(given("plugin_*", "second_util"), program, plugin)
    assert scene.calls(trace) == {"second_util": 1, "plugin_thrice": 3}

    everything = {**USERS, **FOREIGN}
    empty = scene.path("empty")
    os.mkdir(empty)
    trace, err = scene.record(given("@usercode"), program, cwd=empty)
    assert everything.items() <= scene.calls(trace).items(), scene.calls(trace)
    assert f"all of the program itself: no function is written below {empty}\n" in err, err
    bare = scene.path("bare")
    subprocess.run(["objcopy", "--strip-debug", program, bare], check=True)
    trace, err = scene.record(given("@usercode"), bare)
    assert everything.items() <= scene.calls(trace).items(), scene.calls(trace)
    assert "all of the program itself: it has no debug information" in err, err
    report = scene.json("report", "--json", "--limit", "0", trace)
    assert {row["module"] for row in report["functions"] if row["calls"]} == {"bare"}, "no library"
    trace, err = scene.record(given("bare!@file:util.c", "main"), bare)
    assert scene.calls(trace) == some("main") and "matched no function: no module has debug information" in err, err


@case
def mapped_paths(scene):
    """Relative paths, by -ffile-prefix-map: they count from the root where there is such a file."""
    program = scene.build("mapped", ("-g", f"-ffile-prefix-map={scene.folder}/project=."))
    trace, _ = scene.record(given("@usercode"), program)
    assert scene.calls(trace) == USERS, scene.calls(trace)
    trace, _ = scene.record(given("@file:a/util.c"), program)
    assert scene.calls(trace) == A_UTIL


@case
def reported_by_plan(scene):
    program = scene.build()
    plain = scene.json("plan", "--json", program)
    plan = scene.json("plan", "--json", *given("all::**", "second_util", "nothing"), program)
    before = {function["address"]: function for function in plain["functions"]}
    for function in plan["functions"]:
        old = before[function["address"]]
        if "mode" in function:
            assert function["mode"] in ("light", old["mode"]) and {**function, "mode": ""} == {**old, "mode": ""}
        elif "refused" in old:
            assert function == old
        else:
            assert function["refused"] == "unchosen" and not function["trampoline"], function
    totals = plan["totals"]
    assert totals["hooked"] == len(LEVELS) + 1 and totals["callable"] == plain["totals"]["callable"], totals
    assert totals["light"] == len(LEVELS) and totals["refused"]["unchosen"] == plain["totals"]["hooked"] - totals["hooked"]
    numbers = [(p["pattern"], p["class"], p["mode"], p["matched"], p["hooked"]) for p in plan["patterns"]]
    assert numbers == [("all::**", "deep", "light", 12, 12), ("second_util", "exact", "full", 1, 1),
                       ("nothing", "exact", "full", 0, 0)], numbers
    assert "patterns" not in plain
    status, out, err = scene.run("plan", *given("all::**", "second_util"), program)
    assert status == 0 and err == "" and len(re.findall(r"(?m)^ +[0-9a-f]+ +\d+  (?:full|light) +\w+ +_Z|second_util$", out)) == 14, out
    assert re.search(r"(?m)^ +12 +12 +0  light deep +all::\*\*$", out), out


@case
def reported_by_info(scene):
    program = scene.build()
    trace, _ = scene.record(given("first_*", "libc.so.6!str*"), program)
    info = scene.json("info", "--json", trace)
    assert [p["pattern"] for p in info["patterns"]] == ["first_*", "libc.so.6!str*"]
    for module in info["modules"]:
        assert module["functions"] == module["hooked"] + sum(module["refused"].values()), module
    assert sum(m["hooked"] for m in info["modules"]) == sum(p["hooked"] for p in info["patterns"])
    out = scene.run("info", trace)[1]
    assert "traced     'first_*': 2 matched, 2 hooked, full\n" in out and " not selected" in out, out
    trace, _ = scene.record([], program)
    assert "patterns" not in scene.json("info", "--json", trace) and "not selected" not in scene.run("info", trace)[1]


@case
def written_at(scene):
    """Files and lines in the trace: of the modules that a pattern asked about, or with --source of all; readable when
    the program is gone."""
    program = scene.build()
    lines = {name: SOURCES[f"project/{file}"].split("\n").index(text) + 1 for name, file, text in
             (("second_util", "b/util.c", "void second_util(void)"), ("first_util", "a/util.c", "void first_util(void)"),
              ("main", "main.cc", "int main(int argc, char **argv)"))}
    files = {"second_util": "b/util.c", "first_util": "a/util.c", "main": "main.cc"}
    asked, _ = scene.record(given("@usercode"), program)
    all_of_them, _ = scene.record(["--source"], program)
    plain, _ = scene.record(given("main"), program)
    os.unlink(program)
    for trace in (asked, all_of_them):
        report = scene.json("report", "--json", "--limit", "0", trace)
        rows = {row["name"]: row for row in report["functions"]}
        for name, line in lines.items():
            assert rows[name]["line"] == line and rows[name]["file"] == os.path.join(scene.project, files[name]), rows[name]
        out = scene.run("report", "--source", "--limit", "0", trace)[1]
        assert re.search(rf"(?m)  main  {scene.project}/main.cc:{lines['main']}$", out), out
        out = scene.run("replay", "--source", "--function", "second_util", trace)[1]
        assert f"second_util() [{scene.project}/b/util.c:{lines['second_util']}]" in out, out
        status, out, _ = scene.run("replay", "--json", "--function", "second_util", trace)
        first = json.loads(out.splitlines()[0])
        assert first["file"].endswith("b/util.c") and first["line"] == lines["second_util"], first
        assert main_text(scene, "--limit", "0", trace) == [] and "util.c" not in scene.run("replay", "-F", "main", trace)[1]
    assert not os.path.exists(os.path.join(plain, "sources.tsv"))
    status, out, err = scene.run("report", "--source", plain)
    assert status == 0 and "does not say where functions are written" in err, err
    status, out, err = scene.run("report", "--function", "@file:b/util.c", plain)
    assert status == 0 and "no function matches '@file:b/util.c': the trace does not say where" in err, err
    assert all("file" not in row for row in scene.json("report", "--json", plain)["functions"])
    # What is damaged is passed over.
    path = os.path.join(asked, "sources.tsv")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for damaged in ("", "\t1\t2\n" + text, "a\n\t99999999999\t1\n\t1\n\t\t\n\t4000000\t1\n\tx\t1\n" + text, text[:-1],
                    text.replace("\n", "\0"), "no line end"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(damaged)
        assert scene.run("report", "--source", asked)[0] == 0, damaged[:40]
    os.unlink(path)
    out = scene.run("info", asked)[1]
    assert "sources.tsv is missing; functions have no source lines" in out, out


def main_text(scene, *words):
    """Lines of a report that tell of a source file although nobody asked."""
    return [line for line in scene.run("report", *words)[1].splitlines() if "/main.cc" in line]


@case
def rust(scene):
    """Names of Rust, and its source files."""
    source = """
mod shapes {
    pub struct Square(pub u64);
    pub trait Area { fn area(&self) -> u64; }
    impl Area for Square { #[inline(never)] fn area(&self) -> u64 { self.0 * self.0 } }
    #[inline(never)] pub fn generic<T: Area>(t: &T) -> u64 { t.area() + 1 }
}
use shapes::Area;
#[inline(never)] fn plain(n: u64) -> u64 { n + 1 }
fn main() {
    let mut sum = 0;
    for i in 0..9 { let s = shapes::Square(i); sum += unsafe { std::ptr::read_volatile(&&s) }.area() + plain(i) + shapes::generic(&s); }
    std::process::exit((sum == 0) as i32);
}
"""
    need("rustc")
    with open(scene.path("project/prog.rs"), "w", encoding="ascii") as file:
        file.write(source)
    for mangling in ("legacy", "v0"):
        built = subprocess.run(["rustc", "-g", "-O", "-C", f"symbol-mangling-version={mangling}", "-o", "../rusty", "prog.rs"],
                               cwd=scene.project, capture_output=True, text=True, check=False)
        if built.returncode and "symbol-mangling-version" in built.stderr:
            continue  # a rustc that has the other one only
        assert built.returncode == 0, built.stderr
        program = scene.path("rusty")
        for pattern, count in (("prog::plain", 1), ("<prog::shapes::Square as prog::shapes::Area>::area", 1),
                               ("*::area", 1), ("prog::shapes::generic*", 0 if mangling == "v0" else 1),
                               ("prog::shapes::**", 1), ("@file:prog.rs", 4), ("@usercode", 4)):
            trace, _ = scene.record(given(pattern), program)
            calls = {name: number for name, number in scene.calls(trace).items() if "main" not in name}
            assert len(scene.calls(trace)) == count, (mangling, pattern, scene.calls(trace))
            assert set(calls.values()) <= {9, 18}, (mangling, pattern, calls)


if __name__ == "__main__":
    main(__doc__, Scene)
