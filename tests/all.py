#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All tests of the project, or the groups named, and one last line with the sum.

    tests/all.py [--build DIR] [GROUP...]      groups: static unit fixtures exclude patterns light values errors crash
                                               output attach follow changes killed cache library control programs kinds
                                               transparency callgrind libraries differential fuzz

A group is a program that prints what it likes and, as its last line, `N passed, N failed, N skipped`.
The unit tests are cmocka programs and are counted here from their TAP output.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped")
GROUPS = {
    "static": [[os.path.join(HERE, "static", "layers.py")], [os.path.join(HERE, "static", "agent.py")],
               [os.path.join(HERE, "static", "hazards.py")], [os.path.join(HERE, "static", "library.py")],
               [os.path.join(HERE, "static", "manual.py")]],
    "fixtures": [[os.path.join(HERE, "run.py")]],
    "exclude": [[os.path.join(HERE, "exclude.py")]],
    "patterns": [[os.path.join(HERE, "patterns.py")]],
    "light": [[os.path.join(HERE, "light.py")]],
    "values": [[os.path.join(HERE, "values.py")]],
    "errors": [[os.path.join(HERE, "errors.py")]],
    "attach": [[os.path.join(HERE, "attach.py"), "--turns", "6"]],
    "follow": [[os.path.join(HERE, "follow.py")]],
    "changes": [[os.path.join(HERE, "changes.py")]],
    "output": [[os.path.join(HERE, "output.py")]],
    "killed": [[os.path.join(HERE, "killed.py"), "--seconds", "5"]],
    "crash": [[os.path.join(HERE, "crash.py")]],
    "cache": [[os.path.join(HERE, "cache.py")]],
    "library": [[os.path.join(HERE, "library.py")]],
    "control": [[os.path.join(HERE, "control.py")]],
    "programs": [[os.path.join(HERE, "programs.py")]],
    "kinds": [[os.path.join(HERE, "kinds.py")]],
    "transparency": [[os.path.join(HERE, "transparency.py")]],
    "callgrind": [[os.path.join(HERE, "callgrind.py")]],
    "libraries": [[os.path.join(HERE, "dlstorm.py")]],
    "differential": [[os.path.join(HERE, "differential", "run.py")]],
    "fuzz": [[os.path.join(HERE, "fuzz", "run.py"), "--seconds", "6"]],
}
ORDER = ["static", "unit", "fixtures", "exclude", "patterns", "light", "values", "errors", "crash", "output", "attach",
         "follow", "changes", "killed", "cache", "library", "control", "programs", "kinds", "transparency", "callgrind",
         "libraries", "differential", "fuzz"]


def run_group(command, build):
    """Passes the output through and returns the three counts; a program without the last line has failed."""
    counts = None
    process = subprocess.Popen(command + ["--build", build], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in process.stdout:
        found = SUMMARY.match(line)
        if found:
            counts = tuple(int(n) for n in found.groups())
        else:
            print(line, end="", flush=True)
    status = process.wait()
    if counts is None:
        print(f"FAIL {' '.join(command)}: ended with status {status} and no summary")
        return 0, 1, 0
    if status != 0 and counts[1] == 0:
        print(f"FAIL {' '.join(command)}: status {status} although no test failed")
        return counts[0], 1, counts[2]
    return counts


def run_unit(build):
    folder = os.path.join(build, "tests")
    sources = os.path.join(HERE, "unit")
    passed = failed = skipped = 0
    for name in sorted(os.listdir(sources)):
        if not name.endswith(".c"):
            continue
        program = os.path.join(folder, name[:-2])
        environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", CT_SOURCE_ROOT=ROOT, CT_BUILD_ROOT=build)
        try:
            result = subprocess.run([program], cwd=ROOT, env=environment, capture_output=True, text=True,
                                    errors="replace", timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"FAIL unit {name}: {error}")
            failed += 1
            continue
        lines = result.stdout.splitlines()
        skips = sum(bool(re.match(r"(not )?ok .*# SKIP", line)) for line in lines)
        good = sum(line.startswith("ok ") for line in lines) - sum(
            bool(re.match(r"ok .*# SKIP", line)) for line in lines)
        bad = sum(line.startswith("not ok ") and "# SKIP" not in line for line in lines)
        if result.returncode != 0 and bad == 0:
            bad = 1
        passed, failed, skipped = passed + good, failed + bad, skipped + skips
        print(f"{'FAIL' if bad else 'ok  '} unit {name[:-2]}: {good} passed" + (f", {bad} failed" if bad else ""))
        if bad:
            print(result.stdout + result.stderr)
            print(f"     again: {program}")
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    os.environ.setdefault("CONTRAIL_CACHE", os.path.join(build, "analysis-cache"))  # not the user's own
    unknown = [group for group in options.groups if group not in ORDER]
    if unknown:
        parser.error(f"no such group: {' '.join(unknown)} (there are: {' '.join(ORDER)})")

    # Programs that are to die by these do not, when nohup or a shell's & has them ignored.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    total = [0, 0, 0]
    for group in options.groups or ORDER:
        begin = time.monotonic()
        print(f"== {group}", flush=True)
        results = [run_unit(build)] if group == "unit" else [run_group(c, build) for c in GROUPS[group]]
        counts = [sum(column) for column in zip(*results)]
        print(f"== {group}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped, "
              f"{time.monotonic() - begin:.1f} s", flush=True)
        total = [a + b for a, b in zip(total, counts)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
