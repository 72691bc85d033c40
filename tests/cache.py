#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The analysis cache on real programs: a second recording of the same files takes its plans from it and hooks the very
same functions; what cannot be cached, written or trusted is planned anew, without a word.

    tests/cache.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import shutil
import subprocess

import harness
from harness import case, expect, main, need, need_root

PROGRAM = ["sort", "--version"]


class Scene(harness.Scene):
    """A cache in the scene's folder unless the case says otherwise."""

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.environment = dict(os.environ, CONTRAIL_CACHE=self.path("cache"))
        self.count = 0

    def run(self, *command, status=0, silent=True):
        result = self.execute(*command)
        expect(result.returncode == status, f"status {result.returncode}, not {status}: {result.stderr.strip()[-300:]}")
        expect(not silent or not result.stderr, f"stderr is not empty: {result.stderr.strip()[-300:]}")
        return result.stdout

    def record(self, *inside, before=(), program=PROGRAM):
        """The manifest, and the function table without its ids."""
        self.count += 1
        trace = self.path(f"trace{self.count}")
        self.run(*before, self.contrail, "record", "-o", trace, *inside, "--", *program)
        with open(os.path.join(trace, "functions.tsv"), encoding="utf-8", errors="surrogateescape") as file:
            functions = [line.split("\t", 1)[1] for line in file]
        return self.manifest(trace), functions

    def files(self):
        return sorted(os.listdir(self.path("cache"))) if os.path.isdir(self.path("cache")) else []


def equal(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, not {wanted!r}")


def analysis(manifest):
    return {key: manifest["analysis"][key] for key in ("hits", "misses", "uncacheable")}


def by_module(functions):
    """Libraries come in another order when addresses are random: the table without the module's number, sorted."""
    return sorted(line.split("\t", 1)[1] for line in functions)


@case
def second_run(scene):
    manifest, functions = scene.record()
    count = len(manifest["modules"])
    equal("analysis of the first run", analysis(manifest), {"hits": 0, "misses": count, "uncacheable": 0})
    equal("files", len(scene.files()), count)
    equal("directory", manifest["analysis"]["cache"], scene.path("cache"))
    again, same = scene.record()
    equal("analysis of the second run", analysis(again), {"hits": count, "misses": 0, "uncacheable": 0})
    equal("functions", by_module(same), by_module(functions))
    for one, other in zip(*(sorted(m["modules"], key=lambda module: module["path"]) for m in (manifest, again))):
        for key in ("path", "build_id", "functions", "hooked", "refused"):
            equal(f"{key} of {one['path']}", other[key], one[key])
    report = json.loads(scene.run(scene.contrail, "report", "--json", scene.path("trace2")))
    if not any(row["calls"] > 0 for row in report["functions"]):
        raise AssertionError("the second trace has no calls")


@case
def no_cache(scene):
    manifest, _ = scene.record("--no-cache")
    equal("cache", manifest["analysis"]["cache"], None)
    equal("hits and misses", (manifest["analysis"]["hits"], manifest["analysis"]["misses"]), (0, 0))
    equal("files", scene.files(), [])


@case
def plan_twice(scene):
    file = os.path.realpath(shutil.which("sort"))
    plans = [json.loads(scene.run(scene.contrail, "plan", "--json", *words, file))
             for words in ([], [], ["--no-cache"])]
    equal("cached", [plan["totals"].pop("cached") for plan in plans], [False, True, False])
    for plan in plans:
        plan["totals"].pop("plan_ns")
    equal("plan from the cache", plans[1], plans[0])
    equal("plan without it", plans[2], plans[0])
    if "from the cache" not in scene.run(scene.contrail, "plan", file):
        raise AssertionError("the text does not say that it is from the cache")


@case
def list_and_clear(scene):
    manifest, _ = scene.record()
    listed = json.loads(scene.run(scene.contrail, "cache", "--json"))
    paths = {os.path.realpath(module["path"]) for module in manifest["modules"]}
    equal("paths", {file["path"] for file in listed["files"]}, paths)
    equal("current", {file["current"] for file in listed["files"]}, {True})
    equal("bytes", listed["bytes"], sum(os.path.getsize(scene.path("cache", name)) for name in scene.files()))
    text = scene.run(scene.contrail, "cache")
    if any(path not in text for path in paths):
        raise AssertionError("the list lacks a file")
    equal("removed", json.loads(scene.run(scene.contrail, "cache", "--clear", "--json"))["removed"], len(paths))
    equal("files", scene.files(), [])
    equal("removed", scene.run(scene.contrail, "cache", "--clear"), f"{scene.path('cache')}: 0 files removed\n")


@case
def damaged(scene):
    _, functions = scene.record()
    for name in scene.files():
        with open(scene.path("cache", name), "r+b") as file:
            file.seek(os.path.getsize(file.name) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
    manifest, same = scene.record()
    equal("hits", manifest["analysis"]["hits"], 0)
    equal("functions", by_module(same), by_module(functions))
    equal("hits", scene.record()[0]["analysis"]["misses"], 0)


@case
def file_replaced(scene):
    shutil.copy(shutil.which("sort"), scene.path("program"))
    scene.record(program=[scene.path("program"), "--version"])
    os.utime(scene.path("program"), (1e9, 1e9))
    manifest, _ = scene.record(program=[scene.path("program"), "--version"])
    equal("misses", manifest["analysis"]["misses"], 1)


@case
def without_build_id(scene):
    """Known by its content, wherever it is and whenever it was made."""
    need("objcopy")
    shutil.copy(shutil.which("sort"), scene.path("program"))
    scene.run("objcopy", "--remove-section", ".note.gnu.build-id", scene.path("program"))
    _, functions = scene.record(program=[scene.path("program"), "--version"])
    shutil.copy(scene.path("program"), scene.path("other"))
    for name in ("program", "other"):
        manifest, same = scene.record(program=[scene.path(name), "--version"])
        equal("analysis", (manifest["analysis"]["misses"], manifest["analysis"]["uncacheable"]), (0, 0))
        equal("functions", len(same), len(functions))
    listed = json.loads(scene.run(scene.contrail, "cache", "--json"))
    equal("files without build-id", [file["path"] for file in listed["files"] if file["build_id"] is None],
          [scene.path("program")])


# Two programs of one size that differ in the first instructions of a function, where a hook goes.
TWO_SOURCE = """
.globl _start
.text
.type changes, @function
changes: .cfi_startproc
%s
ret
.cfi_endproc
.size changes, .-changes
.type _start, @function
_start: .cfi_startproc
.cfi_undefined 16
call changes
mov %%eax, %%edi
mov $60, %%eax
syscall
.cfi_endproc
.size _start, .-_start
.section .note.GNU-stack, "", @progbits
"""
TWO = ["mov $3, %eax\nnop\nnop\nnop", "xor %eax, %eax\nmov $4, %al\nnop\nnop\nnop\nnop"]


@case
def rewritten_in_place(scene):
    """Without build-id, of the same size and in the same inode, within a tick of the clock, and with its times put back."""
    need("gcc")
    contents = []
    for text in TWO:
        with open(scene.path("two.s"), "w", encoding="ascii") as file:
            file.write(TWO_SOURCE % text)
        scene.run("gcc", "-nostdlib", "-static", "-Wl,--build-id=none", "-o", "program", "two.s")
        with open(scene.path("program"), "rb") as file:
            contents.append(file.read())
    equal("size of the second program", len(contents[1]), len(contents[0]))
    if contents[0] == contents[1]:
        raise AssertionError("the two programs are the same")
    times = os.stat(scene.path("program"))
    for _ in range(3):
        for which, content in enumerate(contents):
            with open(scene.path("program"), "r+b") as file:
                file.write(content)
            os.utime(scene.path("program"), ns=(times.st_atime_ns, times.st_mtime_ns))
            plans = [json.loads(scene.run(scene.contrail, "plan", "--json", *words, scene.path("program")))["functions"]
                     for words in ([], ["--no-cache"])]
            equal("plan", plans[0], plans[1])
            scene.count += 1
            scene.run(scene.contrail, "record", "-o", scene.path(f"trace{scene.count}"), "--", scene.path("program"),
                      status=3 + which)
    equal("files", len(scene.files()), 2)


@case
def no_place(scene):
    """Nowhere to put it: nothing is said, nothing is made."""
    for variables in ({"HOME": "/proc/nowhere"}, {"HOME": ""}, {"XDG_CACHE_HOME": scene.path("missing")},
                      {"CONTRAIL_CACHE": ""}, {"CONTRAIL_CACHE": "/dev/null/cache"}):
        scene.environment = {key: value for key, value in os.environ.items()
                             if key not in ("CONTRAIL_CACHE", "XDG_CACHE_HOME", "HOME")}
        scene.environment.update(variables)
        manifest, _ = scene.record()
        equal(f"cache with {variables}", manifest["analysis"]["cache"], None)
        scene.run(scene.contrail, "cache", status=1, silent=False)
    equal("missing", os.path.exists(scene.path("missing")), False)


@case
def home_of_another(scene):
    """Root with somebody else's home leaves nothing there."""
    need_root()
    os.mkdir(scene.path("home"))
    os.chown(scene.path("home"), 12345, 12345)
    scene.environment = dict(os.environ, HOME=scene.path("home"))
    for key in ("CONTRAIL_CACHE", "XDG_CACHE_HOME"):
        scene.environment.pop(key, None)
    manifest, _ = scene.record()
    equal("cache", manifest["analysis"]["cache"], None)
    equal("home", os.listdir(scene.path("home")), [])


@case
def another_user(scene):
    """A cache of root's is not used, and not touched, by another user."""
    need_root()
    need("setpriv")
    os.chmod(scene.folder, 0o777)
    scene.record()
    os.chmod(scene.path("cache"), 0o777)
    before = scene.files()
    manifest, _ = scene.record(before=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    equal("cache", manifest["analysis"]["cache"], None)
    equal("files", scene.files(), before)


@case
def at_once(scene):
    """Several recordings fill one cache."""
    running = []
    for i in range(4):
        running.append(subprocess.Popen([scene.contrail, "record", "-o", scene.path(f"once{i}"), "--", *PROGRAM],
                                        cwd=scene.folder, env=scene.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate(timeout=120)
        equal("outcome", (process.returncode, errors), (0, ""))
    manifest, _ = scene.record()
    equal("misses", manifest["analysis"]["misses"], 0)
    equal("files", len(scene.files()), len(manifest["modules"]))


if __name__ == "__main__":
    main(__doc__, Scene)
