#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Call counts per function, contrail's against those of valgrind's callgrind, for deterministic single-threaded
programs with thousands of functions. Every difference is listed, with its explanation from the table below; one
without an explanation is a failure.

    tests/callgrind.py [--filter NAME] [--build DIR] [--show]

Both sides are put on addresses: callgrind writes the ELF address of each callee (--dump-instr=yes), contrail's function
table has it too. So aliases and demangling play no part.
"""
import bisect
import collections
import fnmatch
import json
import os
import random
import re
import shutil
import subprocess

import harness
from harness import case, compiled, expect, main, need

LIMIT = 600
# valgrind's processor has no AVX-512 and no RTM, and its C library picks other string functions: the same for both.
TUNABLES = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512ER,-AVX512PF,-RTM,"\
           "-Prefer_No_VZEROUPPER"

# Callers before the rendezvous, and the one entry into libc: what they call is over when hooks come to the libraries.
EARLY = {"_dl_relocate_object", "__libc_early_init", "__pthread_initialize_minimal_internal", "__pthread_tunables_init",
         "_dl_relocate_static_pie", "__lll_elision_init"}
EARLY_TEXT = "called while the loader relocates (IFUNC resolvers) or by __libc_early_init, before its rendezvous"
TAIL_TEXT = "entered by tail calls that callgrind cannot see: without symbols it takes a jump for one inside a function"
LOOP_TEXT = "it branches to its own first instruction: a turn of a loop to contrail, a call to callgrind"
# (module, function, explanation); patterns of fnmatch. A difference is explained by the first that fits.
EXPLANATIONS = [
    ("ld-linux-x86-64.so.2", "*", "the loader has more to do under valgrind, which preloads a library of its own, and "
                                  "contrail's loader rendezvous and valgrind's are not the same"),
    ("vgpreload*", "*", "valgrind's own library"),
    ("*", "_init", "valgrind's own library is initialised too"),
    ("*", "_fini", "valgrind's own library is finished too"),
    ("libc.so.6", "__cxa_finalize", "called once more for valgrind's own library"),
    ("libc.so.6", "__unregister_atfork", "called once more for valgrind's own library"),
    ("libc.so.6", "getenv", "valgrind adds variables to the environment (LD_PRELOAD and others)"),
    ("libc.so.6", "__str*cmp*", "getenv and the loader compare what valgrind added to the environment"),
    ("libc.so.6", "*clock_gettime*", "there is no vdso under valgrind"),
]


class Count:
    def __init__(self):
        self.callgrind = self.contrail = self.early = 0
        self.place = None
        self.notes = set()


def run(words, folder, environment=None):
    process = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                             timeout=LIMIT)
    return process.returncode, process.stdout, process.stderr


def read_callgrind(path):
    """{(object path, address): (calls, name, early)}: the sums of all lines calls=COUNT ADDRESS by callee; early are
    those made by the loader's relocation or by what it calls directly in libc, before it tells that all is loaded."""
    names = {"ob": {}, "fn": {}}
    result = {}
    here, caller, callee_object, callee = None, None, None, None

    def expand(space, text):
        found = re.match(r"\((\d+)\)(?: (.*))?", text)
        if not found:
            return text
        if found.group(2) is not None:
            names[space][found.group(1)] = found.group(2)
        return names[space][found.group(1)]

    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.rstrip("\n").partition("=")
            if key == "ob":
                here = expand("ob", value)
            elif key == "fn":
                caller = expand("fn", value)
            elif key == "cob":
                callee_object = expand("ob", value)
            elif key == "cfn":
                callee = expand("fn", value)
            elif key == "calls":
                number, address = value.split()[:2]
                place = (callee_object or here, int(address, 16))
                calls, _, early = result.get(place, (0, None, 0))
                early += int(number) * (caller.split("'")[0] in EARLY or callee in EARLY)
                result[place] = (calls + int(number), callee, early)
                callee_object = callee = None
    return result


def read_contrail(contrail, trace):
    """{(module file name, function name): calls}, and the table {module path: {address: name}}."""
    report = subprocess.run([contrail, "report", "--json", "--limit", "0", trace], capture_output=True, timeout=LIMIT)
    if report.returncode:
        raise AssertionError("contrail report: " + report.stderr.decode())
    calls = collections.Counter()
    for row in json.loads(report.stdout)["functions"]:
        calls[os.path.basename(row["module"]), row["name"]] += row["calls"]
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        modules = {module["index"]: module["path"] for module in json.load(file)["modules"]}
    table = collections.defaultdict(dict)
    raw = []
    with open(os.path.join(trace, "functions.tsv"), encoding="utf-8", errors="replace") as file:
        for line in file:
            _, module, address, _, _, name = line.rstrip("\n").split("\t")
            raw.append((modules[int(module)], int(address, 16), name))
    demangled = subprocess.run(["c++filt"], input="\n".join(name for *_, name in raw), capture_output=True,
                               text=True).stdout.split("\n")
    for (path, address, _), name in zip(raw, demangled):
        table[path][address] = name or f"{os.path.basename(path)}+0x{address:x}"
    return calls, table


def tail_calls(contrail, trace):
    """{(module file name, function name): how often it was entered by a tail call}"""
    result = collections.Counter()
    replay = subprocess.Popen([contrail, "replay", "--json", trace], stdout=subprocess.PIPE)
    for line in replay.stdout:
        if b'"kind":"tail"' in line:
            row = json.loads(line)
            result[os.path.basename(row["module"]), row["name"]] += 1
    if replay.wait():
        raise AssertionError("contrail replay failed")
    return result


def refusals(contrail, path):
    """{address: (name, why)} of what contrail leaves out in a file, and [(start, end, name)] of all functions."""
    plan = subprocess.run([contrail, "plan", "--json", path], capture_output=True, timeout=LIMIT)
    if plan.returncode:
        return {}, []
    functions = json.loads(plan.stdout)["functions"]
    return ({f["address"]: (f["name"], f.get("why", f["refused"])) for f in functions if "refused" in f},
            sorted((f["address"], f["address"] + f["size"], f["name"]) for f in functions))


def loops_to_entry(path, address, end):
    """Does the body branch to its own first instruction?"""
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address={address}", f"--stop-address={end}",
                           path], capture_output=True, text=True).stdout
    return re.search(rf"\s(?:j\w+|loop\w*)\s+{address:x}\b", code) is not None


def nameless(name):
    return re.search(r"\+0x[0-9a-f]+$", name) is not None


def within(spans, address):
    i = bisect.bisect_right(spans, (address, 1 << 64, "")) - 1
    return spans[i][2] if i >= 0 and spans[i][0] <= address < spans[i][1] else None


def compare(contrail, callgrind_file, trace):
    """[(module, function, callgrind's, contrail's, explanation or None)] and how many agree."""
    valgrind = read_callgrind(callgrind_file)
    calls, table = read_contrail(contrail, trace)
    counts = collections.defaultdict(Count)
    plans = {}
    by_real = {os.path.realpath(path): path for path in table}
    for (path, address), (number, name, early) in valgrind.items():
        real = os.path.realpath(path)
        module = os.path.basename(by_real.get(real, path))
        known = table.get(by_real.get(real), {})
        if address in known:
            entry = counts[module, known[address]]
            entry.callgrind += number
            entry.early += early
            entry.place = (real, address)
            continue
        if real not in plans:
            plans[real] = refusals(contrail, real) if os.path.exists(real) else ({}, [])
        refused, spans = plans[real]
        label = refused.get(address, (None, None))[0] or name or hex(address)
        entry = counts[module, label]
        entry.callgrind += number
        if address in refused:
            entry.notes.add("left out by contrail: " + refused[address][1])
        elif real not in by_real:
            entry.notes.add("a module that contrail did not see: loaded later, or valgrind's own")
        elif not name or name.startswith("0x"):
            entry.notes.add("start-up code without a name and without call frame information" if not within(spans, address)
                            else f"a jump into {within(spans, address)}, which callgrind takes for a call")
        elif within(spans, address):
            entry.notes.add(f"a jump into {within(spans, address)}, which callgrind takes for a call")
    for key, number in calls.items():
        counts[key].contrail += number
    tails = tail_calls(contrail, trace)
    agree, differences = 0, []
    for (module, name), entry in sorted(counts.items()):
        if entry.callgrind == entry.contrail:
            agree += entry.callgrind > 0
            continue
        explanation = "; ".join(sorted(entry.notes)) or None
        if explanation is None and nameless(name) and 0 < entry.contrail - entry.callgrind <= tails[module, name]:
            explanation = TAIL_TEXT
        if explanation is None and entry.callgrind > entry.contrail > 0 and entry.place:
            path, address = entry.place
            spans = plans.setdefault(path, None) or refusals(contrail, path)
            plans[path] = spans
            if any(start == address and loops_to_entry(path, start, end) for start, end, _ in spans[1]):
                explanation = LOOP_TEXT
        if explanation is None and entry.early and entry.callgrind - entry.contrail == entry.early:
            explanation = EARLY_TEXT
        for pattern, function, text in EXPLANATIONS:
            if explanation is None and fnmatch.fnmatch(module, pattern) and fnmatch.fnmatchcase(name, function):
                explanation = text
        differences.append((module, name, entry.callgrind, entry.contrail, explanation))
    return agree, differences


def generate(path, functions, seed):
    """A C program of so many functions that call each other: directly, by pointer, as tail calls, recursively."""
    rng = random.Random(seed)
    out = ["#include <stdio.h>", "#include <string.h>", "typedef unsigned (*fn)(int, unsigned);",
           "#define NI __attribute__((noinline, noclone))", "extern const fn table[];"]
    out += [f"unsigned f{i}(int, unsigned);" for i in range(functions)]
    for i in range(functions):
        a, b, c = (rng.randrange(functions) for _ in range(3))
        kind = rng.randrange(6)
        first = "if (depth == 0) return seed * %du + %du;" % (rng.randrange(3, 99), rng.randrange(99))
        body = {
            0: f"return f{a}(depth - 1, seed + {i}u) + f{b}(depth - 1, seed ^ {c}u);",
            1: f"return f{a}(depth - 1, seed + {i}u);",
            2: f"return table[(seed + {i}u) % {functions}u](depth - 1, seed) + f{b}(depth - 1, seed + 1);",
            3: f"return seed & {1 << rng.randrange(8)}u ? f{a}(depth - 1, seed * 3) : f{b}(depth - 1, seed * 5) + 1;",
            4: f"unsigned s = 0; for (int i = 0; i < 2; i++) s += f{a}(depth - 1, seed + i); return s;",
            5: f"return table[(seed >> 3) % {functions}u](depth - 1, seed + {c}u);",
        }[kind]
        out.append(f"NI unsigned f{i}(int depth, unsigned seed) {{ __asm__ volatile(\"\"); {first} {body} }}")
    out.append("const fn table[] = {" + ",".join(f"f{i}" for i in range(functions)) + "};")
    out.append("int main(void) { unsigned s = 0; for (unsigned i = 0; i < sizeof table / sizeof *table; i++) "
               "s += table[i](7, i); char text[64]; snprintf(text, sizeof text, \"%u\", s); puts(text); "
               "return strlen(text) == 0; }")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(out) + "\n")


def generated(level):
    def make(scene):
        """It is the same each time: what it was compiled to is kept, under its content."""
        functions = scene.rounds(1000, 3000)
        source = os.path.join(scene.build_dir, "tests", "generated", f"generated{level}-{functions}.c")
        os.makedirs(os.path.dirname(source), exist_ok=True)
        generate(source, functions, 2024)
        program = scene.path("generated")
        shutil.copy(compiled(scene.build_dir, source, ["gcc", level, "-g"]), program)
        return [program]
    return make


SQL = """
create table t(id integer primary key, a integer, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
  insert into t select i, i * 7919 % 10003, printf('text %d', i % 97), i / 7.0 from n;
create index t_a on t(a);
select b, count(*), avg(a) from t group by b order by 2 desc, 1 limit 10;
select count(*) from t x join t y on x.a = y.id where y.a % 11 = 3;
update t set c = c + 1 where a between 1000 and 2000;
delete from t where id % 3 = 0;
select group_concat(b) from (select b from t where b like 'text 1%' order by a, id limit 20);
"""


def sqlite(scene):
    scene.write("script.sql", SQL)
    return [need("sqlite3"), "-batch", "-init", "/dev/null", ":memory:", ".read script.sql"]


class Scene(harness.Scene):
    def __init__(self, options, folder, program, at_least):
        super().__init__(options, folder)
        self.program, self.at_least, self.again = program, at_least, " --show"


def agrees(scene):
    need("valgrind")
    options, folder, at_least = scene.options, scene.folder, scene.rounds(*scene.at_least)
    words = scene.program(scene)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "GLIBC_TUNABLES": TUNABLES, "HOME": folder}
    callgrind_file = os.path.join(folder, "callgrind.out")
    plain = run(words, folder, environment)
    under_valgrind = run(["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no",
                          f"--callgrind-out-file={callgrind_file}", *words], folder, environment)
    trace = scene.trace
    traced = run([options.contrail, "record", "-o", trace, "--", *words], folder, environment)
    if not plain[:2] == under_valgrind[:2] == traced[:2]:
        raise AssertionError(f"output or status differ: {plain} {under_valgrind} {traced}"[:600])
    agree, differences = compare(options.contrail, callgrind_file, trace)
    if options.show:
        for module, function, a, b, text in differences:
            print(f"     {module}  {function}: callgrind {a}, contrail {b}: {text or '*** UNEXPLAINED'}")
    reasons = collections.Counter(text or "*** unexplained" for *_, text in differences)
    summary = f"{agree} functions agree, {len(differences)} differ"
    lines = [f"{count} x {reason}" for reason, count in reasons.most_common()]
    bad = [d for d in differences if d[4] is None]
    lines += [f"{module}  {function}: callgrind {a}, contrail {b}" for module, function, a, b, _ in bad[:25]]
    if agree < at_least:
        bad.append(None)
        lines.append(f"only {agree} functions agree, {at_least} are expected at least")
    text = "\n     ".join([summary] + lines)
    expect(not bad, text)
    return text


def arguments(parser):
    parser.add_argument("--show", action="store_true", help="list every difference with its explanation")


case("generated-O2", some=("generated", 1), program=generated("-O2"), at_least=(1000, 3000))(agrees)
case("generated-O0", some=("generated", 1), program=generated("-O0"), at_least=(1000, 3000))(agrees)
case("sqlite", program=sqlite, at_least=(900, 900))(agrees)


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
