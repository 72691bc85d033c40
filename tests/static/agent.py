#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The agent is a flat image that runs anywhere: no undefined symbol, no relocation, no vector or x87 register, no
thread-local storage, no call into a library."""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined(agent):
    return output("nm", "-u", agent).split("\n")[:-1]


def relocations(agent):
    text = output("readelf", "-rW", agent)
    return [line for line in text.splitlines() if "R_X86_64" in line]


def vectors(agent):
    code = output("objdump", "-d", "--no-show-raw-insn", agent)
    wanted = re.compile(r"%(?:[xyz]mm\d|mm\d|st\b|k\d)|\bf(?:ld|st|add|mul)\w*\s")
    return [line.strip() for line in code.splitlines() if wanted.search(line)]


def thread_local(agent):
    code = output("objdump", "-d", "--no-show-raw-insn", agent)
    tls = re.findall(r".*\sTLS\s.*", output("readelf", "-SlW", agent))
    # fs:0x30 is glibc's pointer guard, a word of its ABI (sysdeps/x86_64/nptl/tls.h): jump buffers are read with it.
    return tls + [line.strip() for line in code.splitlines() if "%fs:" in line and "%fs:0x30," not in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    agent = os.path.join(parser.parse_args().build, "agent")
    if not os.path.exists(agent):
        print(f"FAIL static agent: {agent} is not built")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    checks = [("agent has no undefined symbol", undefined), ("agent has no relocation", relocations),
              ("agent uses no vector register", vectors), ("agent uses no thread-local storage", thread_local)]
    failed = 0
    for name, check in checks:
        faults = check(agent)
        print(f"{'FAIL' if faults else 'ok  '} static {name}")
        for fault in faults[:20]:
            print(f"     {fault}")
        failed += bool(faults)
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
