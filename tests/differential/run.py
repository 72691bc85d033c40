#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The differential test (differential.c) with the seed that `make test` always takes; all other words are handed on.

    tests/differential/run.py [--build DIR] [--seed N] [--seconds N] [--cases N] [--percent N] [--part NAME] [FILE...]
"""
import os
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    words = sys.argv[1:]
    build = os.path.join(ROOT, "build")
    if "--build" in words:
        build = words[words.index("--build") + 1]
    program = os.path.join(build, "tests", "differential", "differential")
    if not os.path.exists(program):
        print("skip differential: not built with sanitizers")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    done = subprocess.run([program] + words, stdout=subprocess.PIPE, text=True, errors="replace")
    print(done.stdout, end="")
    if done.returncode < 0:
        print(f"FAIL differential: {signal.Signals(-done.returncode).name}\n     again: {program} {' '.join(words)}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
