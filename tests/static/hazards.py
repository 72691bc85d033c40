#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/hazards.md names every fixture, and only fixtures and tests that exist; docs/transparency.md shows what its data say."""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def named():
    """Words in backticks of the second columns."""
    with open(os.path.join(ROOT, "docs", "hazards.md"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            cells = line.split("|")
            if len(cells) > 3 and not cells[1].startswith("---"):
                for word in re.findall(r"`([^`]+)`", cells[2]):
                    yield number, word


def fixtures():
    folder = os.path.join(ROOT, "tests", "fixtures")
    return {os.path.splitext(name)[0] for name in os.listdir(folder) if name.endswith((".c", ".cpp", ".S"))}


def check_exist():
    for number, word in named():
        if "/" in word and not os.path.exists(os.path.join(ROOT, word)):
            yield f"docs/hazards.md:{number}: there is no {word}"
        elif "/" not in word and word not in fixtures():
            yield f"docs/hazards.md:{number}: there is no fixture {word}"


def check_named():
    for name in sorted(fixtures() - {word for _, word in named()}):
        yield f"tests/fixtures/{name}: not in docs/hazards.md"


def check_rendered():
    result = subprocess.run([os.path.join(ROOT, "tools", "transparency.py"), "--check"], capture_output=True, text=True)
    if result.returncode:
        yield (result.stdout + result.stderr).strip()


CHECKS = [("hazards name fixtures that exist", check_exist), ("every fixture is for a hazard", check_named),
          ("transparency's tables are rendered from their data", check_rendered)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", help="not used")
    parser.parse_args()
    failed = 0
    for title, check in CHECKS:
        faults = list(check())
        failed += bool(faults)
        print(f"{'FAIL' if faults else 'ok  '} static {title}")
        for fault in faults:
            print(f"     {fault}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
