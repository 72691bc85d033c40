#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All tests of the project, or the groups named, and one last line with the sum.

    tests/all.py [--build DIR] [GROUP...]      groups: static unit fixtures exclude patterns light times values errors crash
                                               output attach follow changes losses killed hostile cache library use control
                                               signals programs kinds transparency callgrind libraries differential fuzz

A group is a program that prints what it likes and, as its last line, `N passed, N failed, N skipped`.
The unit tests are cmocka programs and are counted here from their TAP output.
"""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped")
GROUPS = {
    "static": [[os.path.join(HERE, "static", "layers.py")], [os.path.join(HERE, "static", "agent.py")],
               [os.path.join(HERE, "static", "hazards.py")], [os.path.join(HERE, "static", "library.py")],
               [os.path.join(HERE, "static", "manual.py")], [os.path.join(HERE, "static", "golden.py")],
               [os.path.join(HERE, "static", "hardening.py")], [os.path.join(HERE, "static", "harness.py")]],
    "fixtures": [[os.path.join(HERE, "run.py")]],
    "exclude": [[os.path.join(HERE, "exclude.py")]],
    "patterns": [[os.path.join(HERE, "patterns.py")]],
    "light": [[os.path.join(HERE, "light.py")]],
    "times": [[os.path.join(HERE, "times.py")]],
    "values": [[os.path.join(HERE, "values.py")]],
    "errors": [[os.path.join(HERE, "errors.py")]],
    "attach": [[os.path.join(HERE, "attach.py"), "--turns", "6"]],
    "follow": [[os.path.join(HERE, "follow.py")]],
    "changes": [[os.path.join(HERE, "changes.py")]],
    "output": [[os.path.join(HERE, "output.py")]],
    "hostile": [[os.path.join(HERE, "hostile.py"), "--seconds", "10"]],
    "losses": [[os.path.join(HERE, "losses.py")]],
    "killed": [[os.path.join(HERE, "killed.py"), "--seconds", "5"]],
    "crash": [[os.path.join(HERE, "crash.py")]],
    "cache": [[os.path.join(HERE, "cache.py")]],
    "library": [[os.path.join(HERE, "library.py")]],
    "signals": [[os.path.join(HERE, "signals.py")]],
    "use": [[os.path.join(HERE, "use.py")]],
    "control": [[os.path.join(HERE, "control.py")]],
    "programs": [[os.path.join(HERE, "programs.py")]],
    "kinds": [[os.path.join(HERE, "kinds.py")]],
    "transparency": [[os.path.join(HERE, "transparency.py")]],
    "callgrind": [[os.path.join(HERE, "callgrind.py")]],
    "libraries": [[os.path.join(HERE, "dlstorm.py")]],
    "differential": [[os.path.join(HERE, "differential", "run.py")]],
    "fuzz": [[os.path.join(HERE, "fuzz", "run.py"), "--seconds", "6"]],
}
ORDER = ["static", "unit", "fixtures", "exclude", "patterns", "light", "times", "values", "errors", "crash", "output", "attach",
         "follow", "changes", "losses", "killed", "hostile", "cache", "library", "use", "control", "signals", "programs", "kinds",
         "transparency", "callgrind", "libraries", "differential", "fuzz"]
# Each of these keeps one processor busy, and nobody else's load changes what it finds: two at a time, the longest first.
PAIRED = ["fuzz", "values", "callgrind", "programs", "patterns", "unit", "libraries", "errors", "differential"]


def run_command(command, build, say):
    """Says each line of the output and returns the three counts; a program without the last line has failed."""
    counts = None
    process = subprocess.Popen(command + ["--build", build], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in process.stdout:
        found = SUMMARY.match(line)
        if found:
            counts = tuple(int(n) for n in found.groups())
        else:
            say(line.rstrip("\n"))
    status = process.wait()
    if counts is None:
        say(f"FAIL {' '.join(command)}: ended with status {status} and no summary")
        return 0, 1, 0
    if status != 0 and counts[1] == 0:
        say(f"FAIL {' '.join(command)}: status {status} although no test failed")
        return counts[0], 1, counts[2]
    return counts


def run_unit(build, say):
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
            say(f"FAIL unit {name}: {error}")
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
        say(f"{'FAIL' if bad else 'ok  '} unit {name[:-2]}: {good} passed" + (f", {bad} failed" if bad else ""))
        if bad:
            say(result.stdout + result.stderr)
            say(f"     again: {program}")
    return passed, failed, skipped


def run_group(group, build, say):
    begin = time.monotonic()
    say(f"== {group}")
    results = [run_unit(build, say)] if group == "unit" else [run_command(c, build, say) for c in GROUPS[group]]
    counts = [sum(column) for column in zip(*results)]
    say(f"== {group}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped, {time.monotonic() - begin:.1f} s")
    return counts


def say_now(line):
    print(line, flush=True)


def run_quietly(group, build):
    """The counts, and what there is to print."""
    lines = []
    return run_group(group, build, lines.append), lines


def run_all(groups, build):
    total = [0, 0, 0]
    for group in groups:
        if group not in PAIRED:
            total = [a + b for a, b in zip(total, run_group(group, build, say_now))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(run_quietly, group, build) for group in PAIRED if group in groups]
        for done in concurrent.futures.as_completed(running):
            counts, lines = done.result()
            say_now("\n".join(lines))
            total = [a + b for a, b in zip(total, counts)]
    return total


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

    # Sessions of ours are none of the user's, nor theirs ours.
    with tempfile.TemporaryDirectory(prefix="contrail-tests-") as sessions:
        os.environ["XDG_RUNTIME_DIR"] = sessions
        total = run_all(options.groups or ORDER, build)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
