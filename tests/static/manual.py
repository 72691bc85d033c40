#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual page and the completion know each command and each option that the command itself knows."""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def contrail(options, *words):
    return subprocess.run([os.path.join(options.build, "contrail"), *words], check=True, capture_output=True, text=True).stdout


def commands(options):
    """(name, its long options) of all commands, as the command's help tells."""
    for name in re.findall(r"(?m)^  ([a-z-]+)  +\S", contrail(options, "help")):
        if name != "contrail":
            yield name, sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", contrail(options, "help", name))))


def sections():
    """The text of each `.SS contrail NAME` of the manual page, plain."""
    text = read("docs", "contrail.1").replace("\\-", "-").replace("\\&", "")
    return {part.split("\n", 1)[0].split()[-1]: part for part in re.split(r"(?m)^\.SS (?=contrail )", text)[1:]}


def page(options):
    found, synopsis = sections(), read("docs", "contrail.1").split(".SH DESCRIPTION")[0].replace("\\-", "-")
    for name, words in commands(options):
        if f"contrail {name}\n" not in synopsis:
            yield f"docs/contrail.1: contrail {name} is not in the synopsis"
        if words and name not in found:
            yield f"docs/contrail.1 has no section of contrail {name}"
            continue
        for word in words:
            if not re.search(re.escape(word) + r"(?![a-z-])", found[name]):
                yield f"docs/contrail.1: contrail {name} does not tell of {word}"


def completion(options):
    text = read("completions", "contrail.bash")
    for name, words in commands(options):
        for word in [name, *words]:
            if not re.search(r"(?<![\w-])" + re.escape(word) + r"(?![\w-])", text):
                yield f"completions/contrail.bash does not know {word} (contrail {name})"


CHECKS = [("manual page", page), ("completion", completion)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    failed = 0
    for title, check in CHECKS:
        faults = list(check(options))
        failed += bool(faults)
        print(f"{'FAIL' if faults else 'ok  '} static {title}")
        for fault in faults:
            print(f"     {fault}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
