#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which share of the callable functions is hooked, by file: what `contrail plan` says, and what a recording of a
program that has the file loaded says. Prints docs/coverage.md.

    tools/coverage.py [--all] [FILE...]     --all: every ELF file of /usr/bin and of the library folder, as one line
"""
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONTRAIL = os.path.join(ROOT, "build", "contrail")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
NOT_CALLABLE = {"not-callable", "signal-frame", "no-cfi", "part", "no-code", "plt"}


def plan(path):
    result = subprocess.run([CONTRAIL, "plan", "--json", path], capture_output=True, text=True)
    return json.loads(result.stdout) if result.returncode == 0 else None


def live(path):
    """The file as a recording has it: run, or loaded into python. The module's entry in the manifest, or None."""
    with tempfile.TemporaryDirectory(prefix="contrail-coverage.") as folder:
        trace = os.path.join(folder, "trace")
        if os.access(path, os.X_OK) and ".so" not in os.path.basename(path):
            command = [path, "--version"]
        else:
            command = ["/usr/bin/python3", "-c", f"import ctypes; ctypes.CDLL({path!r})"]
        subprocess.run([CONTRAIL, "record", "-o", trace, "--"] + command, capture_output=True, timeout=600)
        try:
            with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
                modules = json.load(file)["modules"]
        except OSError:
            return None
    real = os.path.realpath(path)
    return next((m for m in modules if os.path.realpath(m["path"]) == real), None)


def numbers(planned):
    totals = planned["totals"]
    left = {key: n for key, n in totals["refused"].items() if key not in NOT_CALLABLE}
    return totals["callable"], totals["hooked"], left, totals["tactics"], totals["enter_only"]


def usual_files():
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    wanted = [f"{LIBRARIES}/{name}" for name in (
        "libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libcrypto.so.3",
        "libssl.so.3", "libsqlite3.so.0", "libz.so.1", "libpython3.11.so.1.0", "libLLVM-14.so.1",
        "libclang-cpp.so.14", "libperl.so.5.36")]
    wanted += ["/usr/bin/python3.11", compiler, "/usr/bin/git", "/usr/bin/bash", "/usr/bin/perl",
               "/usr/bin/redis-server", "/usr/bin/gdb", "/usr/bin/node", "/usr/lib/llvm-14/bin/clang"]
    return [path for path in wanted if os.path.exists(path)]


def table(paths):
    print("| file | functions | callable | hooked | share | live | enter only | left out |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    tactics = {}
    for path in paths:
        planned = plan(path)
        if planned is None:
            continue
        callable_, hooked, left, by_tactic, enter = numbers(planned)
        there = live(path)
        for key, n in by_tactic.items():
            tactics[key] = tactics.get(key, 0) + n
        print(f"| {os.path.basename(path)} | {planned['totals']['functions']:,} | {callable_:,} | {hooked:,} | "
              f"{100 * hooked / callable_ if callable_ else 100:.3f} % | "
              f"{'not tried' if there is None else 'the same' if there['hooked'] == hooked else there['hooked']} | "
              f"{enter:,} | {', '.join(f'{n} {key}' for key, n in sorted(left.items())) or '-'} |")
    print()
    print("By tactic, all of these together: " + ", ".join(f"{key} {n:,}" for key, n in tactics.items()) + ".")


def is_elf(path):
    try:
        with open(path, "rb") as file:
            return file.read(5) == b"\x7fELF\x02"
    except OSError:
        return False


def everything():
    paths = {os.path.realpath(p) for pattern in ("/usr/bin/*", f"{LIBRARIES}/*.so*") for p in glob.glob(pattern)}
    paths = sorted(p for p in paths if os.path.isfile(p) and is_elf(p))
    callable_sum = hooked_sum = 0
    reasons = {}
    worst = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for path, planned in zip(paths, pool.map(plan, paths)):
            if planned is None:
                continue
            callable_, hooked, left, _, _ = numbers(planned)
            callable_sum += callable_
            hooked_sum += hooked
            for key, n in left.items():
                reasons[key] = reasons.get(key, 0) + n
            worst.append((callable_ - hooked, path))
    print(f"All {len(worst):,} ELF files of /usr/bin and {LIBRARIES}: {hooked_sum:,} of {callable_sum:,} callable "
          f"functions are hooked, {100 * hooked_sum / callable_sum:.3f} %; left out: "
          + ", ".join(f"{n} {key}" for key, n in sorted(reasons.items(), key=lambda r: -r[1])) + ".")
    most = [f"{os.path.basename(path)} {n}" for n, path in sorted(worst, reverse=True)[:5] if n]
    print(f"Most are left out in: {', '.join(most)}.")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    if not shutil.which(CONTRAIL):
        sys.exit(f"no {CONTRAIL}: run make first")
    print("# Coverage\n\nWritten by `make coverage`; do not edit.\n")
    print("*Callable* functions have a normal entry. The parts that compilers split off, PLT stubs, signal return code, the\n"
          "process's entry point and code without call frame information are not callable. *Hooked* is what `contrail plan\n"
          "FILE` reports, without running anything. *Live* compares that with a recording that has the file loaded. Functions\n"
          "that access their own return address are hooked *enter only*. *Left out* are callable functions that are not hooked.\n")
    table(arguments or usual_files())
    if "--all" in sys.argv or not arguments:
        print()
        everything()
    print("\n| left out as | because |\n|---|---|")
    for key, text in (
            ("too-short", "it is shorter than a jump, the next function follows directly, and no other tactic fits: "
                          "mostly functions of one byte (`ret`)"),
            ("branch-into", "a branch goes into the bytes of the jump, mostly to the second one, and no other tactic fits"),
            ("entry-into", "another function begins in the bytes of the jump, and no other tactic fits"),
            ("indirect-call", "an indirect call would return into the bytes of the jump, and no other tactic fits"),
            ("flags", "it takes arguments or returns results in the flags register (hand-written code)"),
            ("undecodable", "its first bytes are not valid instructions"),
            ("unreachable", "an operand does not reach from the trampoline"),
            ("runtime", "its runtime enters it after its first byte")):
        print(f"| {key} | {text} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
