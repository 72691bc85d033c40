#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail tui under tmux: its panes against report, graph and replay; keys, sizes, hostile names, damage, growth.

    tests/tui.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import re
import shutil
import subprocess
import time

import harness
from harness import Skip, case, expect, main, need, wait_for


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        os.mkdir(self.path("runtime"), 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.path("runtime"))
        self.terminal, self.child = False, None

    def tmux(self, *words):
        environment = {k: v for k, v in self.environment.items() if k not in ("TMUX", "TMUX_PANE")}
        return subprocess.run(["tmux", "-S", self.path("tmux"), *words], capture_output=True, text=True, check=False,
                              env=dict(environment, TERM="xterm", LC_ALL="C.UTF-8"))

    def open(self, *words, columns=150, lines=40):
        need("tmux")
        command = f"{self.contrail} tui {' '.join(words)} 2>{self.path('errors')}; echo status=$? >{self.path('status')}"
        result = self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), command)
        if result.returncode:
            raise Skip(f"tmux does not start: {result.stderr.strip()}")
        self.terminal = True

    def screen(self):
        return self.tmux("capture-pane", "-p").stdout

    def shows(self, *texts, without=()):
        wait_for(f"{texts} on the screen, without {without}",
                 lambda: all(t in self.screen() for t in texts) and not any(t in self.screen() for t in without), 60)
        return self.screen()

    def keys(self, *keys):
        for key in keys:
            self.tmux("send-keys", key)

    def type(self, text):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def leave(self, key="q"):
        self.keys(key)
        wait_for("the end of the screen", lambda: os.path.exists(self.path("status")) and os.path.getsize(self.path("status")))
        with open(self.path("status"), encoding="utf-8") as status, open(self.path("errors"), encoding="utf-8") as errors:
            expect((status.read(), errors.read()) == ("status=0\n", ""), "status and errors at the end")

    def close(self):
        if self.terminal:
            self.tmux("kill-server")
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.communicate()


CALLS = """
#include <stdlib.h>
#define HERE __attribute__((noinline))
HERE int leaf(int x) { __asm__ volatile(".nops 16"); return x + 1; }
HERE int middle(int x) { for (int i = 0; i < 5; i++) x = leaf(x); return x; }
HERE int rare(int x) { for (volatile int i = 0; i < 100000; i++) { } return leaf(x); }
HERE int again(int n) { return n == 0 ? leaf(0) : again(n - 1) + 1; }
int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1000, x = 0;
  for (int i = 0; i < n; i++) { x = middle(x); if (i == n / 2) x = rare(x); }
  return again(3) + x == 0;
}
"""


def program(scene, text=CALLS, name="calls"):
    source = scene.path(f"{name}.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    need("cc")
    scene.run("cc", "-O1", "-g", "-fno-optimize-sibling-calls", "-o", scene.path(name), source)
    return scene.path(name)


def counts_of(screen):
    """Functions of the report pane and the number before the name: calls."""
    return {m[2]: int(m[1].replace(",", "")) for m in re.finditer(r"^ *([\d,]+) .*? (\w+) \[calls\]", screen, re.M)}


@case("panes, search, folding")
def panes(scene):
    """Numbers are the report's, edges those of SQL; the replay's window is the replay's lines; source beside it."""
    scene.record("--source", "--", program(scene))
    rows = scene.rows()
    scene.open("--sort", "calls", "--function", "'calls!*'", scene.trace)
    shown = counts_of(scene.shows("report:", "graph:", "replay:", "source:", "leaf [calls]"))
    expect(shown.items() <= {(name, row["calls"]) for name, row in rows.items() if row["module"] == "calls"} and
           len(shown) > 8 and shown["leaf"] == 5002, f"the report's calls: {shown} {rows}")
    scene.keys("/")
    scene.shows("/_")
    scene.type("rare")
    screen = scene.shows("calls.c:6  rare", "HERE int rare(int x)")
    scene.keys("Enter")  # rare in all panes
    screen = scene.shows("graph: called by rare", "- rare {", "} rare")
    expect(re.search(r"1 +100\.0% - rare", screen) and re.search(r" leaf\s*$", screen, re.M) is not None, screen)
    scene.keys("r")
    scene.shows("graph: who calls rare", "+ main")
    scene.keys("Tab", "Down", "Right")  # the graph's pane: main below rare, unfolded
    scene.shows("- main", "__libc_start_call_main")
    scene.keys("Left", "Tab", "Enter")  # folded; the replay's bar is on rare, which is folded as well
    scene.shows("+ main", "+ rare {...}", without=("} rare",))
    scene.keys("Enter")
    scene.shows("- rare {", "} rare")
    scene.keys("/")
    scene.type("again")
    scene.shows("- again {", "calls.c:7  again")
    scene.keys("i")
    ids = [line["id"] for line in scene.lines() if line["name"] == "again" and line["kind"] == "enter"]
    scene.shows(f"id {ids[0]} ", "in  main [calls]")
    scene.keys("x", "n")
    scene.keys("i")
    scene.shows(f"id {ids[1]} ", "in  again [calls]")
    scene.keys("x", "Home")
    scene.shows("_dl_start", without=("} again",))
    scene.keys("?")
    scene.shows("callers of the function, or what it calls")
    scene.keys("x")
    scene.leave()


@case("replay, line by line")
def every_line(scene):
    """Going down to the end shows each call of the replay, in order, and going up again does too."""
    scene.record("--trace", "calls!*", "--", program(scene), "30")
    calls = [(line["ts_ns"], line["name"]) for line in scene.lines() if line["kind"] == "enter"]
    expect(len(calls) > 180, f"calls: {len(calls)}")
    scene.open(scene.trace, columns=90, lines=24)
    scene.keys("Tab", "Tab", "z")
    scene.shows(f"{calls[0][0] // 10**9}.{calls[0][0] % 10**9:09}")

    def page(before):
        """Another one than before, whole: two looks in a row show it. The first key from an edge moves the bar alone."""
        end, screen = time.monotonic() + 60, scene.screen()
        while time.monotonic() < end:
            time.sleep(0.02)
            last, screen = screen, scene.screen()
            if screen == last and screen != before:
                break
        return screen

    def step(key, last):
        found, screen = set(), None
        for _ in calls:
            screen = page(screen)
            found |= {(int(m[1]) * 10**9 + int(m[2]), m[3])
                      for m in re.finditer(r"^(\d+)\.(\d{9}) +(?:[\d.]+ \w+ )? *(?:- )?(\w+)\(", screen, re.M)}
            if last in found:
                break
            scene.keys(key)
        return found
    for key, last in (("NPage", calls[-1]), ("PPage", calls[0])):
        found = step(key, last)
        expect(set(calls) <= found, f"{key}: {len(set(calls) - found)} of {len(calls)} calls were not shown: {sorted(set(calls) - found)[:3]}")
    scene.keys("End")
    scene.shows("} main")
    scene.leave()


@case("sizes of the terminal")
def sizes(scene):
    """Columns go where there is no room, then panes; a terminal that changes is drawn anew."""
    scene.record("--source", "--", program(scene), "10")
    scene.open(scene.trace, columns=160, lines=40)
    scene.shows("report:", "graph:", "replay:", "source:", "p99")
    for columns, lines, there, gone in ((70, 40, ("report:", "replay:"), ("graph:", "p99")), (40, 12, ("report:",), ("replay:", "calls ")),
                                        (20, 4, ("report",), ("replay",)), (12, 2, (), ()), (160, 40, ("report:", "graph:", "replay:", "source:"), ())):
        scene.tmux("resize-window", "-x", str(columns), "-y", str(lines))
        scene.shows(*there, without=gone)
        scene.keys("Down", "Up")
    scene.keys("Tab")
    scene.tmux("resize-window", "-x", "40", "-y", "12")
    scene.shows("graph:", without=("report:",))
    scene.leave("C-c")


NAMES = {"a": b"bidi\xe2\x80\xaeesrever", "b": "函数名字".encode(), "c": b"broken\xff\xfeu\xc2\x9b2J", "d": b"joined\xe2\x80\x8bname"}


@case("hostile names")
def hostile(scene):
    """Control characters, text that turns others round and broken bytes are '?'; wide characters keep the columns."""
    functions = "".join(f"HERE void hostile_name_number_{key}(void) {{ __asm__ volatile(\".nops 16\"); }}\n" for key in NAMES)
    path = program(scene, f"#define HERE __attribute__((noinline))\n{functions}int main(void) {{"
                   + "".join(f"hostile_name_number_{key}();" for key in NAMES) + "return 0; }", "hostile")
    with open(path, "rb") as file:
        data = file.read()
    for key, name in NAMES.items():
        old = f"hostile_name_number_{key}".encode()
        data = data.replace(old + b"\0", name.ljust(len(old), b"x") + b"\0")
    with open(path, "wb") as file:
        file.write(data)
    scene.record("--", path)
    scene.open("--function", "'hostile!*'", "--sort", "name", scene.trace)
    screen = scene.shows("bidi?esrever", "函数名字", "joined?name")
    expect("\u202e" not in screen and "\x9b" not in screen and "\u200b" not in screen and "??2J" in screen, f"raw: {screen!r}")
    left = [line.index(" replay:") for line in screen.splitlines() if " replay:" in line]
    expect(left == [75], f"the panes' edge: {left}")
    scene.leave()


PATHS = """
#define HERE __attribute__((noinline))
HERE int leaf(int x) { __asm__ volatile(".nops 16"); return x + 1; }
HERE int odd_name_number_one(int x) { for (int i = 0; i < x; i++) leaf(i); return x + 1; }
HERE int first(int x) { return odd_name_number_one(3) + x; }
HERE int second(int x) { return odd_name_number_one(10) + odd_name_number_one(20) + x; }
HERE int even(int n) { return n == 0 ? leaf(0) : even(n - 1) + 1; }
int main(void) { return first(1) + second(2) + even(4) == 0; }
"""
ODD = "odd*[nam]!\\\\@2"


@case("paths")
def paths(scene):
    """Each path has its own numbers, which contrail graph has too; a key shows the sums of each caller in place of them. A function
    whose name has the characters of patterns is one, too."""
    path = program(scene, PATHS, "paths")
    odd = ODD.replace("\\\\", "\\")
    with open(path, "rb") as file:
        data = file.read()
    expect(data.count(b"odd_name_number_one\0") > 0, "the symbol's name")
    with open(path, "wb") as file:
        file.write(data.replace(b"odd_name_number_one\0", odd.encode().ljust(19, b"x") + b"\0"))
    odd = odd.ljust(19, "x")
    scene.record("--", path)
    scene.open("--function", "'paths!*'", "--sort", "name", scene.trace, columns=200, lines=60)
    scene.shows("graph: from the outermost calls (paths)")

    def below(name):
        """Of the graph's pane: calls by the level and name of what is below."""
        lines, found, level = scene.screen().splitlines(), [], None
        for line in lines[[i for i, line in enumerate(lines) if line.startswith(" graph:")][0] + 1:]:
            m = re.match(r" *\S+ \w+ +([\d,]+) +[\d.]+% ( *)[-+ ^] (\S+)", line)
            here = len(m[2]) // 2 if m else 0
            if level is None and m and m[3] == name:
                level = here
            elif level is not None and (not m or here <= level):
                break
            elif level is not None:
                found.append((here - level, m[3], int(m[1])))
        return found

    def unfold(name, *more):
        scene.keys("Tab", "/")
        scene.shows("/_")
        scene.type(name)
        scene.keys("Right")
        for text in more:
            scene.keys("/")
            scene.shows("/_")
            scene.type(text)
            scene.keys("Right")
        scene.keys("BTab")

    tree = json.loads(scene.run(scene.contrail, "graph", "--json", "--module", "paths", "main", scene.trace))["graph"][0]
    wanted = {child["name"]: child["children"] for child in tree["children"]}
    expect([(c["name"], c["calls"]) for c in wanted["second"]] == [(odd, 2)] and wanted["second"][0]["children"][0]["calls"] == 30, f"graph: {tree}")
    scene.keys("/")
    scene.shows("/_")
    scene.type("main")
    scene.keys("Enter")
    scene.shows("graph: called by main (paths)", "+ second", "+ first", "(4 recursive)")
    unfold("second", "odd*", "first", "odd*")
    wait_for("both paths unfolded", lambda: below("second") == [(1, odd, 2), (2, "leaf", 30)] and below("first") == [(1, odd, 1), (2, "leaf", 3)])
    scene.keys("p")
    scene.shows("graph: called by main (sums of each caller)")
    unfold("second", "odd*", "first", "odd*")
    wait_for("sums", lambda: below("second") == [(1, odd, 2), (2, "leaf", 33)] and below("first") == [(1, odd, 1), (2, "leaf", 33)])
    scene.keys("p")
    scene.shows("graph: called by main (paths)")
    scene.keys("/")
    scene.shows("/_")
    scene.type("odd")
    scene.keys("Enter")
    scene.shows(f"graph: called by {odd} (paths)", "leaf")
    expect(below(odd) == [(1, "leaf", 33)], scene.screen())
    scene.leave()


@case("damage, and what is no trace")
def damaged(scene):
    """What is left is shown, and it is said; wrong words and no terminal have a line and a status."""
    scene.record("--", program(scene), "200000")
    largest = max((os.path.join(at, name) for at, _, names in os.walk(scene.trace) for name in names if name.endswith(".ctb")),
                  key=os.path.getsize)
    os.truncate(largest, os.path.getsize(largest) // 2)
    scene.open(scene.trace)
    scene.shows("DAMAGED", "warning")
    scene.keys("w")
    scene.shows("shorter than it was")
    scene.keys("x", "Tab", "Tab", "End")
    scene.shows("middle")
    scene.leave()
    for words, status, text in (((scene.trace,), 2, "must be a terminal"), (("--sort", "no", scene.trace), 2, "--sort takes"),
                                (("nothing.here",), 2, "must be a terminal")):
        result = scene.execute(scene.contrail, "tui", *words)
        expect(result.returncode == status and text in result.stderr, f"tui {words}: {result}")


@case("a piece")
def piece(scene):
    """--from and --to: the numbers of the same piece in report."""
    scene.record("--source", "--", program(scene))
    times = [line["ts_ns"] for line in scene.lines() if line["name"] == "leaf" and line["kind"] == "enter"]
    words = ("--from", f"{times[1000]}ns", "--to", f"{times[3000]}ns")
    want = json.loads(scene.run(scene.contrail, "report", "--json", *words, scene.trace))["functions"]
    calls = next(row["calls"] for row in want if row["name"] == "leaf")
    expect(1900 < calls < 2100, f"{calls} calls of leaf")
    scene.open("--sort", "calls", *words, scene.trace)
    shown = counts_of(scene.shows("report:", "leaf [calls]"))
    expect(shown["leaf"] == calls, f"{shown}, not {calls}")
    scene.leave()


@case("a recording that goes on")
def growing(scene):
    """Numbers grow, the end is followed, and at the end they are the report's."""
    ticks = scene.compile("programs/ticks.c", "-O1", "-pthread", name="ticks", compiler="cc")
    scene.child = subprocess.Popen([scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "ticks!*", "--", ticks], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, env=scene.environment)
    expect(scene.child.stdout.readline() == "ready\n", "the program does not begin")
    wait_for("the manifest", lambda: os.path.exists(os.path.join(scene.trace, "manifest.json")))
    scene.open("--sort", "calls", "--function", "ticks!quick", scene.trace)

    def calls():
        found = re.search(r"^ *([\d,]+) .*quick \[ticks\]", scene.screen(), re.M)
        return int(found[1].replace(",", "")) if found else 0
    scene.shows("it goes on")
    wait_for("calls of quick", lambda: calls() > 0)
    first = calls()
    wait_for("more calls of quick", lambda: calls() > first + 100)
    scene.keys("Tab", "Tab", "F")
    scene.shows("replay: all threads, at the end", "still open")
    scene.child.stdin.close()
    wait_for("the end of the program", lambda: scene.child.poll() is not None)
    scene.shows("quick [ticks]", without=("it goes on",))
    wait_for("all calls", lambda: calls() == scene.rows()["quick"]["calls"])
    scene.leave()


@case("calls from before the trace")
def entered_before(scene):
    """Of a process that was attached to, the outermost functions were called before: report and graph have their names; and the
    graph's numbers grow as the report's do."""
    ticks = scene.compile("programs/ticks.c", "-O1", "-pthread", name="ticks", compiler="cc")
    program = subprocess.Popen([ticks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        expect(program.stdout.readline() == "ready\n", "the program does not begin")
        scene.child = subprocess.Popen([scene.contrail, "attach", "-q", "-o", scene.trace, str(program.pid)], text=True, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=scene.environment)
        wait_for("calls", lambda: os.path.exists(os.path.join(scene.trace, "manifest.json")) and "quick" in scene.rows())
        scene.open(scene.trace)

        def calls():
            """Of quick: in the report, and in the graph."""
            screen = scene.screen()
            found = (re.search(r"([\d,]+) +[\d.]+ [mun]?s quick \[ticks\]", screen), re.search(r"([\d,]+) +[\d.]+% +quick", screen))
            return [int(one[1].replace(",", "")) if one else 0 for one in found]
        scene.shows("quick [ticks]", "- work")
        wait_for("quick in the graph", lambda: min(calls()) > 0)
        first = calls()
        wait_for("more calls in both", lambda: all(now > then + 100 for now, then in zip(calls(), first)))
        screen = scene.screen()
        expect("work [ticks]" in screen and not re.search(r"[-+] \?", screen), f"a function without its name: {screen}")
        scene.leave()
    finally:
        program.kill()
        program.wait()


@case("a file that is no file")
def source_files(scene):
    """A source that is a pipe is not opened for reading; one with control characters is shown without; --sources."""
    path = program(scene)
    scene.record("--source", "--", path, "3")
    source = scene.path("calls.c")
    moved = scene.path("elsewhere")
    os.mkdir(moved)
    shutil.move(source, os.path.join(moved, "calls.c"))
    os.mkfifo(source)
    scene.open("--function", "calls!middle", scene.trace)
    scene.shows("the file is not here")
    scene.leave()
    os.unlink(scene.path("status"))
    with open(os.path.join(moved, "calls.c"), "r+", encoding="utf-8") as file:
        text = file.read().replace("HERE int middle", "HERE\x1b[31m int middle")
        file.seek(0)
        file.write(text)
    scene.open("--sources", moved, "--function", "calls!middle", scene.trace)
    scene.shows("HERE?[31m int middle(int x)")
    scene.leave()


if __name__ == "__main__":
    main(__doc__, Scene)
