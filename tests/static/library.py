#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library's face: each public header stands alone, in C and in C++; what they declare is what libcontrail.so
exports, with a version; the version is the same wherever it is written."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, check, main  # noqa: E402
INCLUDE = os.path.join(ROOT, "include")
HEADERS = sorted(os.listdir(os.path.join(INCLUDE, "contrail")))
# What programs may be compiled as; the headers need no extension of the language, and no warning of ours.
LANGUAGES = [["gcc", "-xc", "-std=c99"], ["gcc", "-xc", "-std=gnu17"], ["g++", "-xc++", "-std=c++11"]]
WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Werror"]


def compiler(words, source, *more):
    return subprocess.run([*words, *WARNINGS, f"-I{INCLUDE}", *more, "-"], input=source, capture_output=True, text=True)


@check("public headers stand alone, in C and C++")
def alone(options):
    for header in HEADERS:
        for words in LANGUAGES:
            # Twice: it is guarded.
            source = f"#include <contrail/{header}>\n" * 2 + "int nothing;\n"
            result = compiler(words, source, "-fsyntax-only")
            if result.returncode:
                yield f"{' '.join(words)}: {header}: {result.stderr.strip()[:500]}"


@check("contrail.h has them all")
def umbrella(options):
    with open(os.path.join(INCLUDE, "contrail", "contrail.h"), encoding="utf-8") as file:
        text = file.read()
    for header in HEADERS:
        if header != "contrail.h" and f"#include <contrail/{header}>\n" not in text:
            yield f"contrail.h does not include {header}"


def declared():
    """The functions that the headers declare, by the compiler's own account."""
    with tempfile.NamedTemporaryFile("r") as out:
        compiler(LANGUAGES[0], "#include <contrail/contrail.h>\n", "-fsyntax-only", "-aux-info", out.name)
        return set(re.findall(r"^/\* \S*/contrail/\w+\.h:.*?[ *](\w+) \(", out.read(), re.M))


def exported(options):
    text = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions",
                           os.path.join(options.build, "libcontrail.so")], check=True, capture_output=True, text=True).stdout
    return [line.split()[1:] for line in text.splitlines()]


@check("what is declared is exported, and nothing else")
def symbols(options):
    names = {}
    for kind, name in exported(options):
        bare, _, version = name.replace("@@", "@").partition("@")
        if kind == "A":
            continue  # the version itself
        names[bare] = kind
        if not re.fullmatch(r"CONTRAIL_\d+\.\d+", version):
            yield f"{bare} has no version"
        if not bare.startswith("ct_") or kind != "T":
            yield f"{bare} ({kind}) is no public name of a function"
    functions = declared()
    if len(functions) < 10:
        yield "the compiler tells of no functions in the headers"
    for name in sorted(functions - set(names)):
        yield f"{name} is declared, but not exported (src/libcontrail.map)"
    for name in sorted(set(names) - functions):
        yield f"{name} is exported, but declared in no public header"


@check("the command uses nothing else")
def command(options):
    """What the command's objects take from elsewhere, by name."""
    folder = os.path.join(options.build, "contrail.p")
    objects = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".o")]
    text = subprocess.run(["nm", *objects], check=True, capture_output=True, text=True).stdout
    own = set(re.findall(r"(?m)^[0-9a-f]+ [A-TV-Z] (ct_\w+)$", text))
    used = set(re.findall(r"(?m)^ +U (ct_\w+)$", text))
    if not used:
        yield "the command uses nothing of the library"
    for name in sorted(used - own - declared()):
        yield f"the command uses {name}, which is not public"


@check("one version")
def version(options):
    found = {}

    def find(path, pattern):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            match = re.search(pattern, file.read())
        found[path] = match[1] if match else None

    find("meson.build", r"version: '([^']+)'")
    find("include/contrail/version.h", r'#define CT_VERSION "([^"]+)"')
    find(os.path.join(os.path.abspath(options.build), "contrail.1"), r'"contrail ([^"]+)"')
    find("NEWS.md", r"\n## (\S+)")
    if len(set(found.values())) != 1 or None in found.values():
        yield f"versions differ: {json.dumps(found)}"


if __name__ == "__main__":
    main(__doc__)
