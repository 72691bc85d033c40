#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--exclude, --exclude-from and --exclude-hot as the user sees them: what is malformed, what matches nothing, what
plan, info and the manifest say; then the fixtures, each with several sets of functions excluded: behaviour and counts
of what remains must be as ever.

    tests/exclude.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import re
import subprocess

import harness
from harness import Counts, HERE, case, expect, main

SETS = {"libc": "libc.so.6!*", "a-m": "[a-m]*", "n-z": "[n-z]*", "all": "*"}


class Scene(harness.Scene):
    def __init__(self, options, folder, excluded=None, half=0):
        super().__init__(options, folder)
        self.excluded, self.half = excluded, half

    def run(self, *words):
        result = self.execute(self.contrail, *words, timeout=300)
        return result.returncode, result.stdout, result.stderr

    def record(self, *options, program=("/bin/echo", "text")):
        trace = os.path.join(self.folder, f"trace{len(os.listdir(self.folder))}")
        status, out, err = self.run("record", *options, "-o", trace, "--", *program)
        assert status == 0 and out == "text\n", (status, out, err)
        return trace, err

    def json(self, *words):
        status, out, err = self.run(*words)
        assert status == 0, (words, status, err)
        return json.loads(out)


def libc():
    with open("/proc/self/maps", encoding="ascii") as maps:
        return next(line.split()[-1] for line in maps if re.search(r"/libc\.so\.6$|/libc-[\d.]+\.so$", line))


@case
def malformed(scene):
    for command in (["record"], ["plan"]):
        for pattern, reason in (("", "empty"), ("!foo", "no module"), ("foo[", "no ']'"), ("[z-a]", "runs backwards"),
                                ("a\\", "backslash")):
            status, out, err = scene.run(*command, "--exclude", pattern, "/bin/true")
            assert status == 2 and not out and len(err.splitlines()) == 1, (pattern, status, out, err)
            assert f"--exclude '{pattern}'" in err and reason in err, err
    status, _, err = scene.run("record", "--exclude-from", "nowhere", "/bin/true")
    assert status == 2 and "nowhere" in err and len(err.splitlines()) == 1, err
    with open(os.path.join(scene.folder, "list"), "w", encoding="ascii") as file:
        file.write("# hm\nmalloc\n\nfoo[\n")
    status, _, err = scene.run("record", "--exclude-from", "list", "/bin/true")
    assert status == 2 and "list:4: 'foo['" in err and len(err.splitlines()) == 1, err
    assert not os.path.exists(os.path.join(scene.folder, "contrail.out"))


@case
def matches_nothing(scene):
    _, err = scene.record("--exclude", "no_such_function", "--exclude", "malloc", "--exclude", "libnone*!")
    assert err == ("contrail: --exclude 'no_such_function' matched no function\n"
                   "contrail: --exclude 'libnone*!' matched no function: no such module\n"), err
    _, err = scene.record(*[f"--exclude=none_{i}" for i in range(20)])
    assert len(err.splitlines()) == 9 and "12 more" in err, err
    status, out, err = scene.run("plan", "--exclude", "none", "--exclude", "malloc", libc())
    assert status == 0 and out and err.startswith("contrail: --exclude 'none' matched no function: perhaps "), err
    _, err = scene.record("--exclude-hot")
    assert err == "", err


@case
def reported_by_plan(scene):
    plain = scene.json("plan", "--json", libc())
    plan = scene.json("plan", "--json", "--exclude", "mem*", "--exclude", "setjmp", "--exclude", "prctl", libc())
    before = {function["address"]: function for function in plain["functions"]}
    excluded = [function for function in plan["functions"] if function.get("refused") == "excluded"]
    assert len(excluded) > 10 and plan["totals"]["refused"]["excluded"] == len(excluded)
    assert plan["totals"]["hooked"] == plain["totals"]["hooked"] - len(excluded)
    assert plan["totals"]["callable"] == plain["totals"]["callable"]
    for function in excluded:
        assert "refused" not in before[function["address"]] and function["callable"]
    trampolines = {function["name"] for function in excluded if function["trampoline"]}
    assert {"setjmp", "prctl"} <= trampolines and "memfrob" not in trampolines, trampolines
    for function in plan["functions"]:
        if function.get("refused") != "excluded":
            assert function == before[function["address"]], function


@case
def reported_by_info(scene):
    trace, _ = scene.record("--exclude", "libc.so.6!", "--exclude=main", "--exclude-hot")
    info = scene.json("info", "--json", trace)
    assert info["exclude"] == {"patterns": ["libc.so.6!", "main"], "hot": True}, info["exclude"]
    by_name = {os.path.basename(module["path"]): module for module in info["modules"]}
    name = os.path.basename(libc())
    assert by_name[name]["hooked"] == 0 and by_name[name]["excluded"] == by_name[name]["refused"]["excluded"] > 3000
    status, out, _ = scene.run("info", trace)
    assert status == 0 and "known hot functions, 'libc.so.6!', main" in out and re.search(r"\d excluded\n", out), out
    with open(os.path.join(trace, "functions.tsv"), encoding="utf-8") as file:
        assert re.search(r"\texcluded\tmalloc\n", file.read())
    trace, _ = scene.record()
    info = scene.json("info", "--json", trace)
    assert info["exclude"] == {"patterns": [], "hot": False} and not any(m["excluded"] for m in info["modules"])
    assert "exclude" not in scene.run("info", trace)[1]


@case
def from_a_file(scene):
    with open(os.path.join(scene.folder, "list"), "w", encoding="ascii") as file:
        file.write("# all of libc\nlibc.so.6!*\n  \n  ld-linux*!*  \n")
    trace, err = scene.record("--exclude-from", "list")
    assert err == ""
    report = scene.json("report", "--json", "--limit", "0", trace)
    assert {os.path.basename(f["module"]) for f in report["functions"] if f["calls"]} == {"echo"}, report["functions"][:3]


@case
def the_list(scene):
    """What exclude-list prints can be given back, and does the same."""
    status, out, err = scene.run("exclude-list")
    assert status == 0 and err == "" and out.startswith("# ")
    with open(os.path.join(scene.folder, "list"), "w", encoding="utf-8") as file:
        file.write(out)
    entries = scene.json("exclude-list", "--json")["hot"]
    lines = [line for line in out.splitlines() if line and not line.startswith("#")]
    assert [entry["pattern"] for entry in entries] == lines and all(entry["what"] for entry in entries)
    counts = []
    for options in (["--exclude-hot"], ["--exclude-from", "list"]):
        info = scene.json("info", "--json", scene.record(*options)[0])
        counts.append([module["excluded"] for module in info["modules"]])
    assert counts[0] == counts[1] and sum(counts[0]) > 20, counts


TIMES = 100000 # so that no pause of the machine makes their average one of functions that do much
NAMES = ["plain", "a*b", "c[1]d", "e?f", "not!me", "@leaf:9", "operator[]"]


@case
def of_a_trace(scene):
    """The list of a recording, given back: what it names is gone, whatever characters are in the names; all else stays."""
    source = f"int main(void) {{ for (int i = 0; i < {TIMES}; i++) all_of_them(); return 0; }}\n"
    calls = "".join(f'  call "{name}"\n' for name in NAMES)
    bodies = "".join(f'  .globl "{name}"\n  .type "{name}", @function\n"{name}":\n  .cfi_startproc\n  mov %rdi, %rax\n'
                     f'  nop\n  nop\n  ret\n  .cfi_endproc\n  .size "{name}", .-"{name}"\n' for name in NAMES)
    with open(os.path.join(scene.folder, "odd.c"), "w", encoding="ascii") as file:
        file.write("void all_of_them(void);\n" + source)
    with open(os.path.join(scene.folder, "names.s"), "w", encoding="ascii") as file:
        file.write("  .text\n  .globl all_of_them\n  .type all_of_them, @function\nall_of_them:\n  .cfi_startproc\n"
                   "  sub $8, %rsp\n  .cfi_adjust_cfa_offset 8\n" + calls + "  add $8, %rsp\n  .cfi_adjust_cfa_offset -8\n"
                   "  ret\n  .cfi_endproc\n  .size all_of_them, .-all_of_them\n" + bodies +
                   '  .section .note.GNU-stack, "", @progbits\n')
    subprocess.run(["gcc", "-no-pie", "-o", "odd!program", "odd.c", "names.s"], cwd=scene.folder, check=True)
    program = os.path.join(scene.folder, "odd!program")
    status, _, err = scene.run("record", "-o", "first", "--", program)
    assert status == 0, err

    def counts(trace):
        report = scene.json("report", "--json", "--limit", "0", trace)
        return {row["name"]: row["calls"] for row in report["functions"] if row["module"].endswith("odd!program")}
    first = counts("first")
    assert all(first[name] == TIMES for name in NAMES + ["all_of_them"]), first
    status, out, err = scene.run("exclude-list", "--share", "100", "first")
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert status == 0 and "odd\\!program!a\\*b" in lines and "odd\\!program!\\@leaf:9" in lines, (out, err)
    entries = scene.json("exclude-list", "--share", "100", "--json", "first")
    assert [entry["pattern"] for entry in entries["busiest"]] == lines
    with open(os.path.join(scene.folder, "list"), "w", encoding="ascii") as file:
        file.write("".join(line + "\n" for line in lines if "all_of_them" not in line))
    status, _, err = scene.run("record", "--exclude-from", "list", "-o", "second", "--", program)
    assert status == 0 and err == "", err
    second = counts("second")
    assert second["all_of_them"] == TIMES and not any(second.get(name) for name in NAMES), second
    out = scene.run("exclude-list", "--share", "50", "first")[1]
    short = [line for line in out.splitlines() if not line.startswith("#")]
    assert 0 < len(short) < len(lines) and short == lines[:len(short)]
    assert scene.run("exclude-list", "--share", "0", "first")[0] == 2
    assert scene.run("exclude-list", "nowhere")[0] == 1


def fixtures(scene):
    command = [os.path.join(HERE, "run.py"), "--build", scene.build_dir, "--filter", "*/gcc-O2", "--filter", "*/gcc-O2/*",
               "--exclude", scene.excluded, "--half", str(scene.half), "--share", "0.12", "--long" if scene.options.long else "--few"]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stdout.splitlines()
    found = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped", lines[-1] if lines else "")
    expect(found, f"no summary: {result.stderr[-500:]}")
    print("\n".join(lines[:-1]) + "\n" if lines[:-1] else "", end="", flush=True)
    return Counts(*map(int, found.groups()))


# Each fixture with every other one of them.
for number, (name_of_set, pattern_of_set) in enumerate(SETS.items()):
    case(f"fixtures/{name_of_set}", excluded=pattern_of_set, half=number % 2)(fixtures)


if __name__ == "__main__":
    main(__doc__, Scene)
