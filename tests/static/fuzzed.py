#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each fuzz target links what it calls, seen without building one: by what objects of the ordinary build define and use, and
which sources tests/fuzz/meson.build gives to which target. make test builds few of them, drawn by lot."""
import ast
import functools
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, check, expect, main  # noqa: E402
from fuzz.run import TARGETS  # noqa: E402

FUZZ = os.path.join(ROOT, "tests", "fuzz")
INCLUDE = re.compile(r'^#include "(?:tests/)?(?:fuzz/)?(\w+\.h)"', re.M)
DEFINED = re.compile(r"^(?!static\b)[A-Za-z][\w \t*]*\n(\w+)\(|^struct \w+ (\w+) = ", re.M)
PASTED = re.compile(r"^  \w+ (\w+_)##\w+\(", re.M)  # a macro that defines a function for each of some names
# As meson.build has it: in this order, the folders of each part.
FOLDERS = {"near": ("base", "target", "x86"), "plans": ("plan", "select"), "traces": ("trace", "span", "index", "views"), "steps": ("steps",)}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def literal(text, begin):
    """The list or table after these words; None: there is none."""
    at = text.find(begin)
    found = re.compile(r"\[[^]]*\]|\{(?:[^{}]*)\}").search(text, at + len(begin)) if at >= 0 else None
    return ast.literal_eval(found[0]) if found else None


def sources_of(text):
    """Of each target, the names of objects (folder, file) that it is linked with always, and those that it can take from."""
    not_called, alone, linked = literal(text, "\nnot_called ="), literal(text, "\ncalled_alone ="), literal(text, "foreach target, libs :")
    expect(None not in (not_called, alone, linked), "tests/fuzz/meson.build is not written as this case reads it")
    parts = {"near": set(re.findall(r"src/(\w+)/(\w+\.c)", text[text.index("'near': files("):].split(")")[0])), "emitted": set()}
    for part, folders in FOLDERS.items():
        parts.setdefault(part, set())
        for folder in folders:
            for path in glob.glob(os.path.join(ROOT, "src", folder, "*.c")):
                name = os.path.basename(path)
                if name not in not_called:
                    to = "emitted" if name.startswith("trampoline") else "near" if name in alone and part == "traces" else part
                    parts[to].add((folder, name))
    targets = {target: (set(), parts["near"].union(*(parts[lib] for lib in libs))) for target, libs in linked.items()}
    for target, words in re.findall(r"^executable\('fuzz_(\w+)',(.*?)\n  include_directories", text, re.M | re.S):
        fixed = set(re.findall(r"src/(\w+)/(\w+\.c)", words))
        more = re.findall(rf"static_library\('fuzz_{target}_\w+', '[./]*src/(\w+)/(\w+\.c)'", text)
        targets[target] = (fixed | set(more), parts["near"])
    return targets, not_called + alone


@functools.cache
def objects(build):
    """What each object defines, and what it uses of others."""
    paths = [path for folder in ("libcontrail.a.p", "contrail.p") for path in glob.glob(os.path.join(build, folder, "src_*.c.o"))]
    expect(paths, f"{build} is not built")
    defined, used = {}, {}
    for words, found in ((("-g", "--defined-only"), defined), (("-u",), used)):
        for line in subprocess.run(["nm", "-A", *words, *paths], check=True, capture_output=True, text=True).stdout.splitlines():
            path, rest = line.rsplit(":", 1)
            _, folder, name = os.path.basename(path)[:-2].split("_", 2)
            found.setdefault((folder, name), set()).add(rest.split()[-1])
    return defined, used


def text_of(target):
    """The target's own file, with the headers beside it."""
    texts, names = "", [f"fuzz_{target}.c"]
    for name in names:
        path = os.path.join(FUZZ, name)
        if os.path.exists(path):
            texts += read(path)
            names += [one for one in INCLUDE.findall(texts) if one not in names]
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", texts, flags=re.S)


def faults(build, text):
    targets, named = sources_of(text)
    defined, used = objects(build)
    homes = {symbol: one for one, symbols in defined.items() for symbol in symbols}
    for target in sorted(set(TARGETS) ^ set(targets)):
        yield f"{target}: is a target in one of tests/fuzz/run.py and meson.build only"
    for target, (fixed, may) in targets.items():
        own = text_of(target)
        mine = {"main", *(name for names in DEFINED.findall(own) for name in names)}
        mine |= {begin + word for begin in PASTED.findall(own) for word in set(re.findall(r"\w+", own))}
        taken, wanted = set(), [(f"fuzz_{target}.c", word) for word in set(re.findall(r"\w+", own)) & set(homes) - mine]
        wanted += [(one[1], symbol) for one in fixed for symbol in used.get(one, ())]
        while wanted:
            by, symbol = wanted.pop()
            one = homes.get(symbol)
            if symbol in mine or one is None or one in fixed or one in taken:
                continue
            taken.add(one)
            if one not in may:
                yield f"{target}: does not link: {by} uses {symbol} of src/{'/'.join(one)}, which is in no part of the library that this target has"
            else:
                wanted += [(one[1], other) for other in used.get(one, ())]
    names = {os.path.basename(path) for path in glob.glob(os.path.join(ROOT, "src", "*", "*.c"))}
    for name in named:
        if name not in names:
            yield f"tests/fuzz/meson.build names {name}, and there is no such file"


@check("fuzz targets have what they call")
def check_targets(options):
    yield from faults(options.build, read(os.path.join(FUZZ, "meson.build")))


@check("a source that a fuzz target misses is seen")
def check_missed(options):
    """Each of the names that broke it, or would: a file that was split, and one that a target calls after all."""
    text = read(os.path.join(FUZZ, "meson.build"))
    for planted in (text.replace("'values_json.c', ", ""), text.replace("\nnot_called = [", "\nnot_called = ['json.c', "),
                    text.replace("'../../src/mcp/results.c'", "'../../src/mcp/json.c'"), text.replace("'steps': ['steps']", "'steps': []"),
                    text.replace("'../../src/control/runtime_dir.c'", "'../../src/control/rpc.c'")):
        expect(planted != text, "nothing was planted")
        if not any("does not link" in fault for fault in faults(options.build, planted)):
            yield "not seen"


if __name__ == "__main__":
    main(__doc__)
