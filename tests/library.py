#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libcontrail as its users have it: `meson install` into a DESTDIR, the programs of examples/ built there through
pkg-config, shared and static, and run; what they print is what the command says of the same file and trace.

    tests/library.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import re

import harness
from harness import ROOT, case, main

PROGRAM = r"""
#include <pthread.h>
static volatile int seen;
__attribute__((noinline)) int step(int x) { seen = x; return x * 3 + 1; }
static void *work(void *arg) { int sum = 0; for (int i = 0; i < 700; i++) sum += step(i); return (void *)(long)sum; }
int main(void)
{
  pthread_t thread;
  pthread_create(&thread, 0, work, 0);
  work(0);
  for (int i = 0; i < 23; i++) step(i);
  return pthread_join(thread, 0);
}
"""


class Scene(harness.Scene):
    """What `meson install` puts into a root, with a program that was recorded by the command there: once for all cases."""

    is_installed = False

    def __init__(self, options, folder):
        super().__init__(options, os.path.join(options.top, "installed"))
        self.root = self.path("root")
        if not Scene.is_installed:
            os.makedirs(self.root)
            super().run("meson", "install", "-C", options.build, "--no-rebuild", "--quiet", "--destdir", self.root)
        self.installed = {os.path.relpath(os.path.join(path, name), self.root)
                          for path, _, names in os.walk(self.root) for name in names}
        pc = next(name for name in self.installed if name.endswith("pkgconfig/contrail.pc"))
        self.lib = os.path.dirname(os.path.dirname(pc))
        self.prefix = self.lib.split("/lib")[0]
        path = super().run("pkg-config", "--variable=pc_path", "pkg-config").strip()
        self.for_build = dict(os.environ, PKG_CONFIG_LIBDIR=os.path.join(self.root, os.path.dirname(pc)) + ":" + path,
                              PKG_CONFIG_SYSROOT_DIR=self.root)
        self.shared = dict(self.for_build, LD_LIBRARY_PATH=os.path.join(self.root, self.lib))
        self.contrail = os.path.join(self.root, self.prefix, "bin", "contrail")
        self.trace = self.path("out.trace")
        if not Scene.is_installed:
            self.run(self.contrail, "record", "-o", self.trace, "--", self.make("program", source=PROGRAM, words=["-O1", "-pthread"]))
            Scene.is_installed = True

    def run(self, *command, environment=None, status=0):
        return super().run(*command, env=environment, status=status)

    def pkg_config(self, *words):
        return self.run("pkg-config", *words, "contrail", environment=self.for_build).split()

    def make(self, name, source=None, path=None, words=(), compiler="cc"):
        target = os.path.join(self.folder, name)
        if source is not None:
            path = target + (".cpp" if compiler == "c++" else ".c")
            with open(path, "w", encoding="utf-8") as file:
                file.write(source)
        self.run(compiler, "-Wall", "-Werror", path, "-o", target, *words)
        return target

    def example(self, name, static=False):
        path = os.path.join(ROOT, "examples", name + ".c")
        words = ["-std=gnu17", *self.pkg_config("--cflags")]
        if static:
            libs = self.pkg_config("--static", "--libs")
            words += ["-l:libcontrail.a" if word == "-lcontrail" else word for word in libs]
        else:
            words += self.pkg_config("--libs")
        return self.make(name + ("-static" if static else ""), path=path, words=words)


@case("what is installed")
def files(scene):
    wanted = ["bin/contrail", "include/contrail/contrail.h", "share/man/man1/contrail.1",
              "share/bash-completion/completions/contrail", "share/zsh/site-functions/_contrail",
              "share/fish/vendor_completions.d/contrail.fish"]
    wanted = [os.path.join(scene.prefix, name) for name in wanted] + [os.path.join(scene.lib, name) for name in (
        "libcontrail.a", "libcontrail.so", "libcontrail.so.0", "pkgconfig/contrail.pc")]
    missing = [name for name in wanted if name not in scene.installed]
    headers = {os.path.basename(name) for name in scene.installed if "/include/contrail/" in name}
    missing += sorted(set(os.listdir(os.path.join(ROOT, "include", "contrail"))) ^ headers)
    if missing:
        raise AssertionError(f"not installed: {missing}")


@case("the command stands alone")
def self_contained(scene):
    """The command needs no libcontrail.so, and no other file of ours."""
    text = scene.run("readelf", "-dW", scene.contrail)
    if "libcontrail" in text or "RPATH" in text or "RUNPATH" in text:
        raise AssertionError("the command is linked with the shared library")
    version = scene.pkg_config("--modversion")[0]
    if scene.run(scene.contrail, "version") != f"contrail {version}\n":
        raise AssertionError(f"the command is not version {version}")


@case("a program needs libcontrail.so.0 and no other library of ours")
def soname(scene):
    text = scene.run("readelf", "-dW", scene.example("refused"))
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    if not set(needed) <= {"libcontrail.so.0", "libc.so.6"} or "libcontrail.so.0" not in needed:
        raise AssertionError(f"a program needs {needed}")
    if "CONTRAIL_0.1" not in scene.run("readelf", "-VW", scene.example("refused")):
        raise AssertionError("a program's symbols have no version")


def check_refused(scene, program, environment):
    for path in (scene.contrail, "/bin/bash", os.path.realpath("/lib64/ld-linux-x86-64.so.2")):
        plan = json.loads(scene.run(scene.contrail, "plan", "--json", "--no-cache", path))
        lines = scene.run(program, path, environment=environment).splitlines()
        refused = [f"{f['address']:x} {f['name']}: {f['why']}" for f in plan["functions"] if f["callable"] and "refused" in f]
        last = f"{path}: {plan['totals']['hooked']} of {plan['totals']['functions']} functions hooked"
        if lines != [*refused, last] or plan["totals"]["hooked"] == 0:
            raise AssertionError(f"{path}: {lines[-1:]}, not {last}; {len(lines) - 1} refused, not {len(refused)}")
    scene.run(program, "/etc/passwd", environment=environment, status=1)


def check_slowest(scene, program, environment):
    text = scene.run(program, scene.trace, "step", environment=environment)
    calls = sorted(int(n) for n in re.findall(r"(?m)^thread \d+: (\d+) calls, the longest \d", text))
    if calls != [700, 723]:
        raise AssertionError(f"calls of the threads are {calls}: {text}")
    report = json.loads(scene.run(scene.contrail, "report", "--raw", "--json", "--function", "step", scene.trace))
    if report["functions"][0]["calls"] != sum(calls):
        raise AssertionError("the report has another number")
    longest = max(report["functions"], key=lambda f: f["calls"])["max_ns"]
    times = re.findall(r"the longest ([\d.]+) (ns|us|ms|s)", text)
    most = max(float(n) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit] for n, unit in times)
    if abs(most - longest) > max(2, longest / 500):
        raise AssertionError(f"the longest call took {most} ns, in the report {longest}")
    scene.run(program, scene.folder, "step", environment=environment, status=1)


def check_record(scene, program, environment):
    """It records as the command does, and is a session as any other."""
    trace = program + ".trace"
    runtime = os.path.join(scene.folder, "runtime")
    os.makedirs(runtime, mode=0o700, exist_ok=True)
    environment = dict(environment, XDG_RUNTIME_DIR=runtime)
    text = scene.run(program, trace, "/bin/sh", "-c", f"{scene.contrail} sessions --json; exit 3", environment=environment,
                     status=3)
    sessions, end = json.JSONDecoder().raw_decode(text)
    found = [(s["trace"], s["state"], s["attached"]) for s in sessions["sessions"]]
    if found != [(os.path.realpath(trace), "running", False)]:
        raise AssertionError(f"sessions: {found}")
    if text[end:].strip() != scene.run(scene.contrail, "report", "--limit", "10", trace).strip():
        raise AssertionError("the report is not the command's")
    scene.run(program, trace, "/bin/true", environment=environment, status=125)
    scene.run(program, trace + "2", "/no/such/program", environment=environment, status=125)


@case("a program in C++")
def umbrella_cpp(scene):
    source = r"""
#include <contrail/contrail.h>
#include <cstdio>
int main(int argc, char **argv)
{
  struct ct_diag diag;
  struct ct_trace *trace = nullptr;
  if (ct_trace_open(argv[1], &trace, &diag) != CT_OK)
    return std::printf("%s\n", diag.text), 1;
  ct_info_options options = {};
  options.struct_size = sizeof(options);
  int code = ct_info_write(trace, &options, stdout, &diag);
  ct_trace_close(trace);
  return code;
}
"""
    program = scene.make("cpp", source=source, compiler="c++", words=scene.pkg_config("--cflags", "--libs"))
    if scene.run(program, scene.trace, environment=scene.shared) != scene.run(scene.contrail, "info", scene.trace):
        raise AssertionError("the library's info is not the command's")


@case("structures of other sizes")
def sizes(scene):
    """A program that never set struct_size is told so, one that knows more options than the library too."""
    source = r"""
#include <contrail/contrail.h>
#include <string.h>
int main(int argc, char **argv)
{
  struct ct_diag diag = {""};
  struct ct_trace *trace;
  struct { struct ct_report_options known; long unknown; } later = {.known = {.struct_size = sizeof(later)}};
  struct ct_report_options none = {0};
  if (ct_trace_open(argv[1], &trace, &diag) != 0) return 1;
  if (ct_report_write(trace, &none, stdout, NULL, &diag) != CT_EINVAL || !strstr(diag.text, "struct_size")) return 2;
  if (ct_report_write(trace, &later.known, stdout, NULL, &diag) != 0) return 3;
  later.unknown = 1;
  if (ct_report_write(trace, &later.known, stdout, NULL, &diag) != CT_EUNSUPPORTED) return 4;
  ct_trace_close(trace);
  return 0;
}
"""
    program = scene.make("sizes", source=source, words=scene.pkg_config("--cflags", "--libs"))
    scene.run(program, scene.trace, environment=scene.shared)


case("refused, shared")(lambda s: check_refused(s, s.example("refused"), s.shared))
case("refused, static")(lambda s: check_refused(s, s.example("refused", True), s.for_build))
case("slowest, shared")(lambda s: check_slowest(s, s.example("slowest"), s.shared))
case("slowest, static")(lambda s: check_slowest(s, s.example("slowest", True), s.for_build))
case("record, shared")(lambda s: check_record(s, s.example("record"), s.shared))
case("record, static")(lambda s: check_record(s, s.example("record", True), s.for_build))
case("as built beside the library")(lambda s: check_slowest(s, os.path.join(s.build_dir, "examples", "slowest"), s.for_build))


if __name__ == "__main__":
    main(__doc__, Scene)
