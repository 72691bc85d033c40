#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How what was built is built, by readelf and objdump: the command and the shared library are position independent,
have full RELRO (all relocations are made at the start, the tables are read-only then), no executable stack and no
segment that can be written to and executed, a guard in front of return addresses, checked copies (FORTIFY), and
functions that begin with endbr64 (CET). The agent, which runs in other programs, has none of these that needs a
library. See docs/security.md.

    tests/static/hardening.py [--build DIR]
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import case, check, expect, main  # noqa: E402


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, errors="replace").stdout


def is_sanitized(symbols):
    return "__asan_init" in symbols


def look_at(path):
    """Nothing, or what is missing."""
    header, segments, dynamic = run("readelf", "-hW", path), run("readelf", "-lW", path), run("readelf", "-dW", path)
    symbols = run("readelf", "--dyn-syms", "-W", path)
    if "Type:                              DYN" not in header:
        yield "it is not position independent"
    if "GNU_RELRO" not in segments:
        yield "no RELRO segment"
    if not re.search(r"\(FLAGS\).*BIND_NOW|\(BIND_NOW\)|\(FLAGS_1\).*NOW", dynamic):
        yield "relocations are made late (no BIND_NOW), so RELRO is not full"
    if "(TEXTREL)" in dynamic:
        yield "its text has relocations"
    for line in segments.splitlines():
        if re.match(r"\s*GNU_STACK", line) and "RWE" in line:
            yield "the stack is executable"
        if re.match(r"\s*LOAD", line) and "RWE" in line:
            yield "a segment can be written to and executed"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if not is_sanitized(symbols) and len(re.findall(r"__\w+_chk\b", symbols)) < 5:
        yield "no checked copies (FORTIFY)"


def endbr_share(path):
    """Of the functions that the library exports, how many begin with endbr64: what is called by a pointer must."""
    exported = set(re.findall(r"FUNC\s+GLOBAL\s+DEFAULT\s+\d+\s+(ct_\w+)", run("readelf", "--dyn-syms", "-W", path)))
    starts = re.findall(r"^[0-9a-f]+ <(ct_\w+)(?:@@\S+)?>:\n\s*[0-9a-f]+:\s+(\w+)",
                        run("objdump", "-d", "--no-show-raw-insn", path), re.M)
    firsts = {name: first for name, first in starts if name in exported}
    return sum(first == "endbr64" for first in firsts.values()), len(exported)


def built(options, name):
    path = os.path.realpath(os.path.join(options.build, name))
    expect(os.path.exists(path), f"{path} is not built")
    return path


@check("hardening contrail")
def command(options):
    return look_at(built(options, "contrail"))


@check("hardening libcontrail.so")
def library(options):
    return look_at(built(options, "libcontrail.so"))


@case("hardening CET")
def functions(scene):
    has, all_of_them = endbr_share(built(scene.options, "libcontrail.so"))
    text = f"{has} of {all_of_them} functions begin with endbr64"
    expect(all_of_them > 50 and has == all_of_them, text)
    return text


@check("hardening agent")
def agent(options):
    symbols = run("readelf", "-sW", built(options, "agent"))
    return [f"it needs {name}" for name in ("__stack_chk_fail", "_chk@") if name in symbols]


if __name__ == "__main__":
    main(__doc__)
