#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a first user meets: what is said at the end, where traces go and whose they are, processes by name, what is said when
there is nothing.

    tests/use.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import pty
import re
import shutil
import subprocess

import harness
from harness import case, main, need_root, wait_for
from processes import NANOSLEEP, system_call_of

CRASH = "int wrong(volatile int *p) { return *p; } /* line 1 */\nint main(void) { return wrong((int *)0) + 1; }\n"
BARE = ".globl _start\n_start: mov $60, %eax\n mov $7, %edi\n syscall\n"
LOOP = ("#include <unistd.h>\nint step(int n) { usleep(5000); return n + 1; }\n"
        "int main(void) { int n = 0; while (n < 4000) n = step(n); return n == 0; }\n")


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.processes = []

    def build(self, name, text, *flags):
        source = self.write(name + (".s" if text is BARE else ".c"), text)
        subprocess.run(["gcc", "-O1", "-g", "-fno-inline", "-w", *flags, "-o", self.path(name), source], check=True)
        return self.path(name)

    def run(self, *words, status=0, environment=None):
        """Standard error; the status must be that."""
        result = self.execute(self.contrail, *words, env=dict(os.environ, **(environment or {})))
        if result.returncode not in (status if isinstance(status, tuple) else (status,)):
            raise AssertionError(f"status {result.returncode}, not {status}: {result.stderr}")
        self.out = result.stdout
        return result.stderr

    def on_terminal(self, *words):
        """What is written to a terminal."""
        front, back = pty.openpty()
        process = subprocess.Popen([self.contrail, *words], cwd=self.folder, stdin=back, stdout=back, stderr=back,
                                   start_new_session=True)
        os.close(back)
        text = b""
        while True:
            try:
                got = os.read(front, 4096)
            except OSError:
                break
            if not got:
                break
            text += got
        os.close(front)
        process.wait(60)
        return text.decode().replace("\r", "")

    def start(self, *words):
        self.processes.append(subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL))
        return self.processes[-1]

    def sleeper(self, *words):
        """Started, and in its first sleep: the dynamic linker is done."""
        process = self.start(*words)
        wait_for("its first sleep", lambda: system_call_of(process.pid) == NANOSLEEP)
        return process

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def tells(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise AssertionError(f"{pattern!r} is not in {text!r}")


@case
def closing_line(scene):
    """On a terminal and with -v, not else, and not with -q."""
    line = r"contrail: [\d,]+ events of 1 thread, [\d.]+ .iB, nothing lost; next: contrail report\n"
    tells(scene.on_terminal("record", "--", "/bin/true"), line)
    tells(scene.run("record", "-v", "--", "/bin/true"), line)
    tells(scene.run("record", "-v", "-o", "named", "--", "/bin/true"), "next: contrail report named\n")
    for words in (("record", "--", "/bin/true"), ("record", "-q", "--", "/bin/true"), ("record", "-qv", "--", "/bin/true")):
        if scene.run(*words):
            raise AssertionError(f"{words} said something")
    if scene.on_terminal("record", "-q", "--", "/bin/true"):
        raise AssertionError("-q said something on a terminal")


@case
def crash_line(scene):
    scene.build("crash", CRASH)
    tells(scene.run("record", "-v", "--", "./crash", status=139),
           r"ended by SIGSEGV in wrong at crash.c:1\n", r"next: contrail info\n")


@case
def old_directory(scene):
    """Two traces are kept, what is no trace is left alone, and so is one that is being recorded."""
    def words(name):
        with open(scene.path(name + "/manifest.json"), encoding="utf-8") as file:
            return json.load(file)["command"][-1]
    for word in ("1", "2", "3"):
        scene.run("record", "--", "/bin/echo", word)
    if (words("contrail.out"), words("contrail.out.old")) != ("3", "2"):
        raise AssertionError("not the last two")
    scene.run("record", "--", "/no/such/program", status=127)
    if words("contrail.out") != "3":
        raise AssertionError("moved for a program that is not there")
    tells(scene.run("record", "-o", "contrail.out", "--", "/bin/true", status=125), "already exists")
    shutil.rmtree(scene.path("contrail.out.old"))
    os.mkdir(scene.path("contrail.out.old"))
    with open(scene.path("contrail.out.old/precious"), "w", encoding="utf-8"):
        pass
    tells(scene.run("record", "--", "/bin/true", status=125), "contrail.out.old")
    if os.listdir(scene.path("contrail.out.old")) != ["precious"] or words("contrail.out") != "3":
        raise AssertionError("something was touched")
    shutil.rmtree(scene.path("contrail.out.old"))
    shutil.rmtree(scene.path("contrail.out"))
    scene.start(scene.contrail, "record", "--", "/bin/sleep", "30")
    wait_for("a manifest", lambda: os.path.exists(scene.path("contrail.out/manifest.json")))
    tells(scene.run("record", "--", "/bin/true", status=125), "still goes on")


@case
def no_link_followed(scene):
    """A link in the place of the default directory, or in an old trace, leads nowhere."""
    scene.run("record", "--", "/bin/true")
    os.rename(scene.path("contrail.out"), scene.path("elsewhere"))
    os.symlink("elsewhere", scene.path("contrail.out"))
    scene.run("record", "--", "/bin/true", status=125)
    os.unlink(scene.path("contrail.out"))
    for turn in range(2):
        scene.run("record", "--", "/bin/true")
    os.symlink(scene.path("elsewhere"), scene.path("contrail.out.old/link"))
    scene.run("record", "--", "/bin/true")
    if not os.path.exists(scene.path("elsewhere/manifest.json")) or os.path.exists(scene.path("contrail.out.old/link")):
        raise AssertionError("a link was followed, or left")


@case
def under_sudo(scene):
    need_root()
    scene.run("record", "--follow", "-o", "t", "--", "sh", "-c", "/bin/true; /bin/true",
              environment={"SUDO_UID": "12345", "SUDO_GID": "23456"})
    found = []
    for folder, _, names in os.walk(scene.path("t")):
        found += [os.lstat(path) for path in [folder] + [os.path.join(folder, name) for name in names]]
    if len(found) < 9 or any((file.st_uid, file.st_gid) != (12345, 23456) for file in found):
        raise AssertionError([(file.st_uid, file.st_gid) for file in found])


@case
def children_missed(scene):
    command = ("sh", "-c", "/bin/true; /bin/true; :")
    tells(scene.run("record", "-v", "--", *command), "children were not recorded; contrail record --follow")
    scene.run("info")
    tells(scene.out, r"children +not recorded", r"started +2\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d", r"hooked \(\d+\.\d %\)")
    for words in (("-v", "--follow", "--", *command), ("-v", "--", "/bin/true")):
        if "children were not" in scene.run("record", *words):
            raise AssertionError(f"children are missed in {words}")


@case
def option_p(scene):
    tells(scene.run("record", "-p", "1", status=2), "contrail attach PID")


@case
def by_name(scene):
    program = scene.build("uniquely-named", LOOP)
    scene.sleeper(program)
    tells(scene.run("attach", "--for", "300ms", "uniquely-named", "step"), "attached to process", r"[1-9]\d* events")
    scene.sleeper(program)
    tells(scene.run("attach", "--for", "300ms", "uniquely-named", status=2), r"2 processes are named .* \(\d+, \d+\)")
    tells(scene.run("attach", "no-such-name-anywhere", status=2), "there is no process named")


@case
def nothing_recorded(scene):
    scene.build("bare", BARE, "-nostdlib", "-static", "-s")
    tells(scene.run("record", "--", "./bare", status=7), "nothing was recorded: no function of the program is known")
    tells(scene.run("record", "--trace", "nosuch", "--", "/bin/true"), "nothing was recorded: none of the functions")
    process = scene.sleeper(scene.build("loop", LOOP))
    tells(scene.run("attach", "--for", "300ms", str(process.pid), "nosuch", status=125), "nothing was recorded: none of the")


@case
def trace_none(scene):
    """Nothing is hooked; output and the crash are there, and patterns may come."""
    scene.build("crash", CRASH)
    if "nothing was recorded" in scene.run("record", "--trace", "none", "--", "./crash", status=139):
        raise AssertionError("it was asked for")
    scene.run("info", "--json")
    info = json.loads(scene.out)
    if info["events"] != 0 or sum(module["hooked"] for module in info["modules"]) != 0 or info["crash"]["name"] != "SIGSEGV":
        raise AssertionError(info)
    tells(scene.run("record", "-v", "--trace", "none", "--", "/bin/echo", "words"), r"next: contrail output\n")
    scene.run("output")
    tells(scene.out, "words")
    scene.start(scene.contrail, "record", "-o", "live", "--trace", "none", "--", scene.build("none-loop", LOOP))
    def sessions():
        scene.run("sessions", "--json")
        return [s["id"] for s in json.loads(scene.out)["sessions"] if "none-loop" in json.dumps(s)]
    mine = wait_for("a session", sessions)[0]
    scene.run("trace", mine, "add", "step")

    def events():
        scene.run("status", "--json", mine)
        return json.loads(scene.out)["events"]
    wait_for("events", events)
    scene.run("stop", mine)
    scene.run("report", "--json", "live")
    if [row["name"] for row in json.loads(scene.out)["functions"]] != ["step"]:
        raise AssertionError(scene.out)


@case
def little_known(scene):
    """A program of whose text little is known."""
    text = "int main(void) { return 0; }\nasm(\".text\\n.fill 200000, 1, 0x90\\n\");\n"
    scene.build("vast", text, "-s")
    tells(scene.run("record", "--", "./vast"), r"note: only [\d.]+ % of the text of vast belongs to known functions")
    scene.run("info")
    tells(scene.out, r"note +only", r"0\.\d\d %  .*/vast")
    scene.run("plan", "vast")
    tells(scene.out, r"0\.\d\d % of 19\d\.\d KiB of text belongs to known functions; calls in the rest")


@case
def nothing_matches(scene):
    """It is said, with names that may be meant; with --json and -q it is status 1."""
    scene.build("crash", CRASH)
    scene.run("record", "--", "./crash", status=139)
    for command in ("report", "replay"):
        tells(scene.run(command, "--function", "wrogn"), "no function matches 'wrogn'; perhaps wrong\n")
        tells(scene.run(command, "--function", "Wrong*", "--json", status=1), "perhaps wrong\n")
        tells(scene.run(command, "--module", "nosuch", "-q", status=1), "no module matches 'nosuch'")
        if scene.run(command, "--function", "wrong", "-q") or scene.out:
            raise AssertionError("-q showed something")
        if scene.run(command, "--function", "wrong", "--json") or "wrong" not in scene.out:
            raise AssertionError("not found")
    tells(scene.run("report", "--function", "deregister_tm_clones", "--json", "--module", "crash", status=(0, 1)), "^$|none was called")


@case
def places(scene):
    tells(scene.run("record", "-o", "/proc/trace", "--", "/bin/true", status=125), "no directory can be made in /proc")


@case
def patterns_match_nothing(scene):
    """Patterns of record, attach, plan, trace and exclude: the same, of all modules that were looked at."""
    scene.build("loop", LOOP)
    for pattern, likely in (("stpe", "perhaps step"), ("ste", "perhaps step"), ("loop!maim", "perhaps main"),
                            ("libc.so.6!mallocc", "perhaps malloc"), ("looop!main", "no such module; perhaps loop"),
                            ("@file:looop.c", "perhaps loop.c")):
        tells(scene.run("plan", "--trace", pattern, "--json", "./loop", status=1), "matched no function")
        target = scene.start("./loop")
        err = scene.run("attach", "--for", "50ms", "-o", "t", str(target.pid), pattern, status=125)
        tells(err, f"--trace '{re.escape(pattern)}' matched no function: {re.escape(likely)}")
        shutil.rmtree(scene.path("t"))
        target.kill()
    tells(scene.run("record", "--exclude", "stpe", "--trace", "none", "--", "/bin/true"), "--exclude 'stpe' matched no function")
    target = scene.start("./loop")
    attach = scene.start(scene.contrail, "attach", "-q", "-o", "t", str(target.pid), "main")
    wait_for("a session", lambda: scene.execute(scene.contrail, "status", str(target.pid)).returncode == 0)
    for verb in ("trace", "exclude"):
        said = f"^contrail {verb}: 'stpe' matches no function of the process: perhaps step\n$"
        tells(scene.run(verb, str(target.pid), "add", "stpe"), said)
        tells(scene.run(verb, str(target.pid), "add", "--json", "stpe", status=1), said)
    if scene.run("trace", str(target.pid), "add", "--json", "step"):
        raise AssertionError("a pattern that matches")
    attach.terminate()
    attach.wait(60)


if __name__ == "__main__":
    main(__doc__, Scene)
