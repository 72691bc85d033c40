#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/hazards.md names every fixture, and only fixtures and tests that exist; docs/transparency.md and docs/overhead.md
show what their data say."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, check, main  # noqa: E402


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


@check("hazards name fixtures that exist")
def check_exist(_):
    for number, word in named():
        if "/" in word and not os.path.exists(os.path.join(ROOT, word)):
            yield f"docs/hazards.md:{number}: there is no {word}"
        elif "/" not in word and word not in fixtures():
            yield f"docs/hazards.md:{number}: there is no fixture {word}"


@check("every fixture is for a hazard")
def check_named(_):
    for name in sorted(fixtures() - {word for _, word in named()}):
        yield f"tests/fixtures/{name}: not in docs/hazards.md"


def check_tables(tool):
    result = subprocess.run([os.path.join(ROOT, "tools", tool), "--check"], capture_output=True, text=True)
    if result.returncode:
        yield (result.stdout + result.stderr).strip()


@check("transparency's tables are rendered from their data")
def check_transparency(_):
    return check_tables("transparency.py")


@check("the tables of what recording costs are rendered from their data")
def check_overhead(_):
    return check_tables("overhead.py")


if __name__ == "__main__":
    main(__doc__)
