#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The agent is a flat image that runs anywhere: no undefined symbol, no relocation, no vector or x87 register, no
thread-local storage, no call into a library."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import check, expect, main  # noqa: E402


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def image(options):
    path = os.path.join(options.build, "agent")
    expect(os.path.exists(path), f"{path} is not built")
    return path


@check("agent has no undefined symbol")
def undefined(options):
    agent = image(options)
    return output("nm", "-u", agent).split("\n")[:-1]


@check("agent has no relocation")
def relocations(options):
    agent = image(options)
    text = output("readelf", "-rW", agent)
    return [line for line in text.splitlines() if "R_X86_64" in line]


@check("agent uses no vector register")
def vectors(options):
    agent = image(options)
    code = output("objdump", "-d", "--no-show-raw-insn", agent)
    wanted = re.compile(r"%(?:[xyz]mm\d|mm\d|st\b|k\d)|\bf(?:ld|st|add|mul)\w*\s")
    return [line.strip() for line in code.splitlines() if wanted.search(line)]


@check("agent uses no thread-local storage")
def thread_local(options):
    agent = image(options)
    code = output("objdump", "-d", "--no-show-raw-insn", agent)
    tls = re.findall(r".*\sTLS\s.*", output("readelf", "-SlW", agent))
    # fs:0x30 is glibc's pointer guard, a word of its ABI (sysdeps/x86_64/nptl/tls.h): jump buffers are read with it.
    return tls + [line.strip() for line in code.splitlines() if "%fs:" in line and "%fs:0x30," not in line]


if __name__ == "__main__":
    main(__doc__)
