#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the reading commands write to a terminal: colours, a pager, columns that have room, shortened names. And that
elsewhere it is what it was.

    tests/terminal.py [--filter PATTERN] [--build DIR]
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import harness
from harness import Running, case, expect, main, wait_for
from processes import PPOLL, held_after, is_pending, system_call_of

NAME = ("std::map<int, std::vector<long, std::allocator<long> >, std::less<int>, "
        "std::allocator<std::pair<int const, std::vector<long, std::allocator<long> > > > >")
PROGRAM = """
#include <map>
#include <vector>
int main() {
  std::map<int, std::vector<long>> map;
  for (int i = 0; i < 50; i++) map[i % 7].push_back(i);
  return map.size() == 0;
}
"""


class Scene(harness.Scene):
    def recorded(self):
        self.compile(self.write("names.cpp", PROGRAM), "-O0", compiler="g++")
        self.record("--trace", "names!**", "--mode", "full", "--", self.path("names"))

    def begin(self, *words, columns=120, lines=30, **environment):
        """The command on a terminal of its own: process id and the terminal."""
        pid, fd = pty.fork()
        if pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
                kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LESS")}
                os.execve(self.contrail, [self.contrail, *words], {**kept, "TERM": "xterm", "PAGER": "", **environment})
            finally:
                os._exit(99)
        return pid, fd

    def rest(self, pid, fd, seconds=300, keys=b""):
        """What it writes to its end, and its status. keys: pressed each second, since what is pressed while less begins may be flushed."""
        out, end, pressed = b"", time.monotonic() + seconds, 0
        while True:
            expect(time.monotonic() < end, f"no end: {out[-300:]}")
            if keys and time.monotonic() > pressed + 1:
                pressed = time.monotonic()
                os.write(fd, keys)
            if not select.select([fd], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            out += data
        os.close(fd)
        return out.decode("utf-8", "replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def shell(self, command):
        """The words of a shell on a terminal."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execve("/bin/sh", ["sh", "-c", command], dict(os.environ, TERM="xterm", XDG_RUNTIME_DIR=self.folder))
        return self.rest(pid, fd)

    def shown(self, *words, **more):
        return self.rest(*self.begin(*words, **more))


@case("colours")
def colours(scene):
    """On a terminal, unless NO_COLOR or --color never says no; in a pipe only by --color always; never in JSON."""
    scene.recorded()
    escape, commands = "\x1b[", (("report",), ("graph",), ("replay", "--limit", "20"), ("slowest", "main"))
    for words in commands:
        colored, _ = scene.shown(*words, "--names", "full", scene.trace)
        expect(escape in colored, f"no colours: {words} {colored[:300]!r}")
        for more, environment in (((), {"NO_COLOR": "1"}), (("--color", "never"), {}), ((), {"TERM": "dumb"})):
            text, _ = scene.shown(*words, *more, "--names", "full", scene.trace, **environment)
            expect(escape not in text, f"colours: {words} {more} {environment}")
            expect(re.sub(r"\x1b\[\d*m", "", colored) == text, f"colours change the text: {words}")
        plain = scene.run(scene.contrail, *words, scene.trace)
        always = scene.run(scene.contrail, *words, "--color", "always", scene.trace)
        expect(escape not in plain and escape in always and re.sub(r"\x1b\[\d*m", "", always) == plain, f"in a pipe: {words}")
    expect(escape not in scene.shown("report", "--json", scene.trace)[0], "colours in JSON")
    wrong = scene.execute(scene.contrail, "report", "--color", "perhaps", scene.trace)
    expect(wrong.returncode == 2 and "auto, always or never" in wrong.stderr, f"{wrong}")


@case("colours and pager of sql, steps, plan")
def others(scene):
    """The same rules; what is painted is not what the rows have in them. In a pipe and as JSON the bytes are the plain ones."""
    scene.recorded()
    steps = scene.path("steps")
    scene.run(scene.contrail, "itrace", "-q", "-o", steps, "--", "/bin/true")
    odd = "SELECT ' -- a comment' AS text, name FROM functions WHERE calls > 0 ORDER BY name LIMIT 20"
    program = pager(scene, f"cat >{scene.path('taken')}; echo the pager ends\n")
    for words, json_words in ((("sql", scene.trace, odd), ("sql", "--json", scene.trace, odd)),
                              (("steps", "-n", "300", steps), ("steps", "--json", "-n", "300", steps)),
                              (("plan", scene.path("names")), ("plan", "--json", scene.path("names")))):
        plain = timeless(scene.run(scene.contrail, *words))
        colored = timeless(scene.shown(*words)[0])
        expect("\x1b[" in colored and re.sub(r"\x1b\[\d*m", "", colored) == plain and "\x1b[" not in plain, f"{words}: {colored[:300]!r}")
        always = timeless(scene.run(scene.contrail, words[0], "--color", "always", *words[1:]))
        expect(always == colored, f"{words} --color always: {always[:300]!r}")
        for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            expect(timeless(scene.shown(*words, **more)[0]) == plain, f"{words} {more}")
        text, status = scene.shown(*words, PAGER=program, NO_COLOR="1")
        with open(scene.path("taken"), encoding="utf-8") as file:
            expect(text == "the pager ends\n" and status == 0 and timeless(file.read()) == plain, f"{words}: {text!r} {status}")
        for selected in (json_words, (words[0], "--no-pager", *words[1:])):
            text, status = scene.shown(*selected, PAGER=program)
            expect("the pager ends" not in text and status == 0, f"{selected}: {text[:300]}")
        text, status = scene.shown(*words, PAGER=pager(scene, "exit 0\n"), NO_COLOR="1")
        expect((text, status) == ("", 0), f"{words}: a pager that ends: {text!r} {status}")
        program = pager(scene, f"cat >{scene.path('taken')}; echo the pager ends\n")
    colored, _ = scene.shown("sql", scene.trace, odd)
    bold = re.findall(r"\x1b\[1m(.*)\x1b\[m", colored)
    expect([line.split() for line in bold] == [["text", "name"]] and colored.count("\x1b[") == 2, f"headings: {bold} {colored[:300]!r}")
    colored, _ = scene.shown("sql", scene.trace, f"{odd}; SELECT 'x' AS first, '' AS second; SELECT 1 AS one WHERE 0; SELECT 'one' AS last")
    bold = re.findall(r"\x1b\[1m(.*)\x1b\[m", colored)
    expect([line.split() for line in bold] == [["text", "name"], ["first", "second"], ["one"], ["last"]], f"headings: {bold}")


def timeless(text):
    """Without the time that a plan took."""
    return re.sub(r"planned in [\d.]+ ms", "planned", text)


def pager(scene, text):
    path = scene.path("pager")
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


@case("pager")
def paged(scene):
    """$PAGER has the text, and its end is waited for; not with --json, --no-pager, or without a terminal."""
    scene.recorded()
    program = pager(scene, f"cat >{scene.path('taken')}; echo the pager ends\n")
    plain = scene.run(scene.contrail, "report", scene.trace)
    text, status = scene.shown("report", "--color", "never", "--names", "full", scene.trace, columns=1000, PAGER=program)
    with open(scene.path("taken"), encoding="utf-8") as file:
        taken = file.read()
    expect(text == "the pager ends\n" and status == 0 and taken == plain, f"{text!r} {status} {taken[:300]}")
    for words in (("report", "--json"), ("report", "--no-pager"), ("report", "--quiet")):
        text, status = scene.shown(*words, scene.trace, PAGER=program)
        expect("the pager ends" not in text and status == 0, f"{words}: {text[:300]}")
    expect(scene.run(scene.contrail, "report", scene.trace, env=dict(os.environ, PAGER=program)) == plain, "a pager in a pipe")


@case("status with a pager")
def statuses(scene):
    """A check that fails has its status, a pager that ends at once is no error, one that does not exist is told."""
    scene.recorded()
    for check, status in (("main.calls == 1", 0), ("main.calls == 2", 1)):
        expect(scene.shown("check", scene.trace, check, PAGER=pager(scene, "cat\n"))[1] == status, f"status of {check}")
    text, status = scene.shown("replay", scene.trace, PAGER=pager(scene, "exit 0\n"))
    expect((text, status) == ("", 0), f"a pager that ends: {text!r} {status}")
    text, status = scene.shown("replay", scene.trace, PAGER="/nothing/here")
    expect("the pager '/nothing/here' cannot be run" in text, f"no pager: {text!r}")


@case("less, and Ctrl-C in it")
def less(scene):
    """What fits on the screen is not held; what does not is, Ctrl-C does not end it, and q does."""
    harness.need("less")
    scene.recorded()
    environment = {"PAGER": "less -FRX"}
    text, status = scene.shown("report", "--limit", "3", "--function", "main", scene.trace, **environment)
    expect("main" in text and status == 0, f"a short text: {text!r}")
    pid, fd = scene.begin("replay", scene.trace, lines=10, **environment)
    out = b""

    def has_begun():
        nonlocal out
        if select.select([fd], [], [], 0.1)[0]:
            out += os.read(fd, 65536)
        return out.endswith(b":") or b":\x1b" in out[-20:]
    wait_for("less", has_begun)
    os.write(fd, b"\x03")
    time.sleep(0.3)  # what it may not do, it does not do later either
    expect(os.waitpid(pid, os.WNOHANG) == (0, 0), "Ctrl-C ends it")
    _, status = scene.rest(pid, fd, keys=b"q")
    expect(status == 0, f"after q: {status}")


@case("columns")
def columns_fit(scene):
    """No line is wider than the terminal; which columns are not there is said; in a pipe all of them are."""
    scene.recorded()
    plain = scene.run(scene.contrail, "report", scene.trace)
    expect("not shown" not in plain and " p50 " in plain.splitlines()[0], f"in a pipe: {plain[:300]}")

    def columns_of(header):
        return re.split(r"  +| (?=self %)", header.strip())
    rare = [name for name in columns_of(plain.splitlines()[0]) if name == "off"]  # when the threads have been off the processor
    for columns in (200, 120, 100, 80, 60):
        text, _ = scene.shown("report", "--color", "never", scene.trace, columns=columns)
        lines = [line for line in text.splitlines() if not line.startswith("not shown")]
        expect(all(len(line) <= columns for line in lines), f"{columns}: {[line for line in lines if len(line) > columns]}")
        said = re.findall(r"^not shown, for want of columns: (.*)$", text, re.M)
        gone = [name for name in ("min", "avg", "p50", "p95", "p99", "max", "self %", "module", *rare) if name not in columns_of(lines[0])]
        expect(sorted(said[0].split(", ") if said else []) == sorted(gone), f"{columns}: said {said}, gone {gone}: {lines[0]}")


@case("names")
def names(scene):
    """Short on a terminal, whole elsewhere and with --names full; the same in all commands."""
    scene.recorded()
    short = "std::map<...>::operator[](int&&)"
    full = f"{NAME}::operator[](int&&)"
    for words in (("report", "--limit", "0"), ("graph", "--min-share", "0"), ("replay",), ("slowest", "main"), ("report", "--callees", "main")):
        text, _ = scene.shown(*words, scene.trace, columns=400)
        expect("std::map<...>::" in text and NAME not in text, f"{words} on a terminal: {text[:500]}")
        expect(words[0] == "slowest" or short in text, f"{words}: {text[:900]}")
        for more in ((), ("--names", "full")):
            plain = scene.run(scene.contrail, *words, *more, scene.trace)
            expect("<...>" not in plain and NAME in plain, f"{words} {more} in a pipe")
        expect("std::map<...>::" in scene.run(scene.contrail, *words, "--names", "short", scene.trace), f"{words} --names short")
        text, _ = scene.shown(*words, "--names", "full", scene.trace, columns=400)
        expect("<...>" not in text and full[:200] in text, f"{words} --names full on a terminal")
    rows = scene.rows()
    expect(any(name.startswith(NAME) for name in rows) and "<...>" not in str(list(rows)), "JSON has whole names")


@case("record --live")
def record_live(scene):
    """A table each second on standard error, the last one of the whole trace; the program's output has nothing else, and
    what stands in the way is told."""
    ticks = scene.compile("programs/ticks.c", "-O1", "-pthread", name="ticks", compiler="cc")
    out, command = scene.path("out"), f"{scene.contrail} record -q --live -o {scene.trace} --trace 'ticks!*' -- {ticks}"
    text, status = scene.shell(f"sleep 2.5 | {command} >{out}")
    with open(out, encoding="utf-8") as file:
        found = re.fullmatch(r"ready\nquick (\d+) slow (\d+)\n", file.read())
    expect(found and status == 0, f"the program's output, status {status}: {text}")
    tables = text.split(" events, ")
    last = re.search(r"([\d,]+) +\S+ \w+ +\S+ \w+ +\d+  quick \[ticks\]", tables[-1])
    expect(len(tables) >= 3 and "ended: " in text and last and last[1].replace(",", "") == found[1] == str(scene.rows()["quick"]["calls"]),
           f"tables: {text}")
    for more, why in (("", "between the program's output"), (f" >{out} 2>{scene.path('errors')}", "")):
        text, status = scene.shell(f"{command.replace('-q', '')}{more} </dev/null")
        if more:
            with open(scene.path("errors"), encoding="utf-8") as file:
                text, why = file.read(), "no terminal here"
        expect(status == 2 and why in text, f"{more}: {status} {text}")
    expect(scene.execute(scene.contrail, "record", "--live", "--last", "1s", "--", "true").returncode == 2, "--last")


@case("attach --live")
def attach_live(scene):
    """A screen beside the recording; Ctrl-C detaches and leaves both."""
    ticks = scene.compile("programs/ticks.c", "-O1", "-pthread", name="ticks", compiler="cc")
    with Running([ticks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        pid, fd = scene.begin("attach", "--live", "-o", scene.trace, str(process.pid), "ticks!*")
        out = ""

        def shows():
            nonlocal out
            if select.select([fd], [], [], 0.1)[0]:
                out += os.read(fd, 65536).decode("utf-8", "replace")
            return "sorted by" in out and "quick [ticks]" in out
        wait_for("the screen", shows)
        os.write(fd, b"\x03")
        rest, status = scene.rest(pid, fd)
        expect(status == 0 and "detached from process" in rest, f"{status} {rest[-300:]}")
        process.stdin.close()
    expect(scene.rows()["quick"]["calls"] > 0, "nothing was recorded")


FOREVER = b"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c;\n"


def is_canonical(fd):
    return bool(termios.tcgetattr(fd)[3] & termios.ICANON)


def asked(scene, *steps, options=(), at_end=None):
    """A session of contrail sql on a terminal. Steps: keys, and texts that come then, one after the other. at_end(pid, fd): before Ctrl-D."""
    pid, fd = scene.begin("sql", *options, scene.trace, HOME=scene.path("home"), XDG_STATE_HOME="", LC_ALL="C.UTF-8")
    for keys, *wanted in ((b"", b"sql> "), *steps):
        os.write(fd, keys)
        comes(fd, *wanted)
        if wanted[-1] == b"sql> ":
            expect(not is_canonical(fd), "what is typed after the prompt is read as the terminal's own line")
    if at_end:
        at_end(pid, fd)
    os.write(fd, b"\x04")
    _, status = scene.rest(pid, fd)
    expect(status == 0, f"status {status}")


def comes(fd, *wanted):
    """The terminal shows these texts, one after the other, and nothing after the last."""
    out, seen, end = b"", 0, time.monotonic() + 300
    for words in wanted:
        while words not in out[seen:]:
            expect(time.monotonic() < end, f"{words} does not come: {out[-500:]}")
            if select.select([fd], [], [], 0.2)[0]:
                out += os.read(fd, 65536)
        seen = out.index(words, seen) + len(words)


@case
def sql_asks(scene):
    """Queries on a terminal: completion, .schema, Ctrl-C, and a history that the next session has."""
    scene.recorded()
    os.mkdir(scene.path("home"))
    asked(scene, (b"SELECT 40 + 2 AS answer FROM proces\t", b"proces"), (b"es;\n", b"42", b"sql> "), (b".schema edges\n", b"callee_id", b"sql> "),
          (b".nothing\n", b"no such command", b"sql> "), (FOREVER, b"FROM c;", b"\n"), (b"\x03", b"interrupted", b"sql> "),
          (b"SELECT 7 * 11;\n", b"77", b"sql> "))
    history = scene.path("home", ".local/state/contrail/sql_history")
    expect(os.stat(history).st_mode & 0o777 == 0o600, "anybody can read the history")
    asked(scene, (b"\x1b[A\n", b"77", b"sql> "))
    dropped = (b"SELECT 'none\n", b"...> "), (b"\x03", b"sql> "), (b"SELECT 'n\xc3\xa9", b"SELECT 'n"), (b"\x03", b"sql> ")
    asked(scene, (b"\x03", b"sql> "), *dropped, (FOREVER, b"FROM c;", b"\n"), (b"\x03", b"interrupted", b"sql> "), (b"SELECT 6 * 8;\n", b"48", b"sql> "),
          (b"\x03", b"sql> "), (b"SELECT 'caf\xc3\xa9' || (6 * 8);\n", "\ncafé48".encode(), b"sql> "))


@case
def sql_typed_ahead(scene):
    """Ctrl-D while a query runs, which the terminal keeps as the end of a line of its own: it is one at the next prompt."""
    scene.recorded()
    asked(scene, (FOREVER, b"FROM c;", b"\n"), options=("--timeout", "1"),
          at_end=lambda pid, fd: wait_for("the query to run, or to be over", lambda: is_canonical(fd) or system_call_of(pid) == PPOLL))


@case
def sql_taken_back(scene):
    """Ctrl-C takes a key back of which contrail has been told, and which it has not read yet."""
    scene.recorded()

    def at_end(pid, fd):
        with held_after(pid, PPOLL, lambda: os.write(fd, b"S")):
            os.write(fd, b"\x03")
            wait_for("the signal", lambda: is_pending(pid, signal.SIGINT))
        comes(fd, b"sql> ")
    asked(scene, at_end=at_end)


if __name__ == "__main__":
    main(__doc__, Scene)
