#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents' examples: docs/questions.md and docs/sql.md are played, each command that they show, on traces that are made as they
say; what comes has the documented heading, and of the documented lines most are there again when numbers, times and addresses
are not looked at. And docs/sql.md has every table and every column that there is, and no others.

    tests/examples.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

import harness
from harness import HERE, Running, case, expect, free_port, main, need, wait_for

DOCS = os.path.join(os.path.dirname(HERE), "docs")
LEAST = 0.5  # of the documented lines, those that are there again
# Of these many lines are of functions that are there or not by luck: the first words of the command.
LESS = {
    "slowest": 0.3, "slowest processCommand": 0.3, "diff jobs.trace jobs2.trace": 0.3,
    "replay --from 0.21": 0.3,  # who waits at that moment
    "sql t.steps": 0.3,  # which instructions the loader executes
}
PROGRAM_OF_STEPS = r"""
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long n) { return 3 * n + 1; }
OWN long tail(long n) { return leaf(n); }
OWN long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static jmp_buf place;
int main(void)
{
  long sum = setjmp(place);
  char line[40];
  for (long i = 1; i <= 1000; i++) { sum += tail(i) + fib(i % 8); }
  snprintf(line, sizeof(line), "%ld", sum);
  puts(line);
  return strlen(line) == 0;
}
"""
PROGRAM_OF_VALUES = r"""
#include <unistd.h>
int main(void) { int fds[2]; char text[16]; return pipe(fds) != 0 || write(fds[1], "vm\n", 3) != 3 || read(fds[0], text, sizeof(text)) != 3; }
"""
Example = collections.namedtuple("Example", "words output")


# ---- the documents ----

def document(name):
    with open(os.path.join(DOCS, name), encoding="utf-8") as file:
        return file.read()


def blocks(text):
    """What is indented by four columns, without these."""
    return [re.sub(r"(?m)^    ", "", block) for block in re.findall(r"(?m)(?:^    .*\n)+", text)]


def examples(text):
    """Every command with its output, in order; a query alone is asked of the trace with recorded instructions."""
    for block in blocks(text):
        for part in re.split(r"(?m)^\$ (?=contrail )", block)[1:]:
            command, _, output = part.partition("\n")
            yield Example(shlex.split(command)[1:], output.splitlines())
        if block.startswith("SELECT "):
            yield Example(["sql", "i.trace", " ".join(block.split())], [])


def form(line):
    """The words of a line, and how many numbers, times and addresses it has, whatever they are. Time off the processor has a column only
    where there was some."""
    line, times = re.subn(r"\b\d[\d,]*(?:\.\d+)? (?:ns|us|ms|s|KiB|MiB|B)\b|(?<= )-(?= )", "", line)
    line = re.sub(r"0x[0-9a-f]+", "0x#", line)
    line, numbers = re.subn(r"(?<![\w.+#])-?\d[\d,]*(?:\.\d+)?(?!\w)", "", line)
    line = re.sub(r"\d+", "#", line)
    return [word for word in line.split() if word != "off"], times + numbers


def is_like(documented, other):
    """Dots end what was cut there."""
    (words, count), (others, others_count) = documented, other
    if words and words[-1].endswith("..."):
        text = " ".join(words)[:-3]
        return text.strip() != "" and " ".join(others).startswith(text)
    return words == others and abs(count - others_count) <= 1


def alike(output, shown):
    """Which part of the documented lines are there again, but for the last ones, that lines were left out."""
    shown = [form(line) for line in shown]
    asked = [form(line) for line in output if not re.fullmatch(r"\.\.\. .*(?:lines more\)|shows all)|", line)]
    return sum(any(is_like(line, other) for other in shown) for line in asked) / len(asked) if asked else 1.0


def named_tables():
    """The names of tables and views in the sources, but for the two that blocks is made of."""
    source = ""
    for name in ("sql.c", "tables.c"):
        with open(os.path.join(os.path.dirname(HERE), "src", "sql", name), encoding="utf-8") as file:
            source += file.read()
    listed = re.search(r"read_out\[\] = \{([^}]*)\}", source)[1]
    names = re.findall(r"CREATE TEMP VIEW (\w+)", source) + re.findall(r"\"(\w+)\"", listed) + re.findall(r"(?m)^    \{\"(\w+)\",", source)
    return set(names) - {"event_blocks", "step_blocks"}


class Scene(harness.Scene):
    def play(self, text, changes):
        """All examples of a document but its recordings; changes: what it says of its own machine, and what that is here."""
        said = []
        for example in examples(text):
            words = []
            for word in example.words:
                for before, after in changes.items():
                    word = word.replace(before, after)
                words.append(word)
            if words[0] in ("record", "attach"):
                continue
            self.play_one(example, words)
            said.append(words[0])
        return ", ".join(f"{said.count(word)} of {word}" for word in dict.fromkeys(said))

    def play_one(self, example, words):
        result = self.execute(self.contrail, *words)
        command = shlex.join(words)
        wanted = (0, 1) if words[0] == "check" else (0,)  # the documented one fails by the time of one call
        expect(result.returncode in wanted, f"{command}: status {result.returncode}: {result.stderr}")
        shown = result.stdout.splitlines()
        if not example.output:
            expect(len(shown) > 1, f"{command}: nothing comes")
            return
        first = example.output[0]
        if words[0] != "diff" and words[0] != "slowest":
            expect(is_like(form(first), form(shown[0])), f"{command}: begins with {shown[0]!r}, documented is {first!r}")
        if words[0] == "sql":
            rows = re.search(r"LIMIT (\d+)$", words[-1])
            documented = len(example.output) - 1
            expect((len(shown) > 1) == (documented > 0), f"{command}: {len(shown) - 1} rows, documented are {documented}")
            expect(rows is None or int(rows[1]) != documented or len(shown) - 1 == documented, f"{command}: {len(shown) - 1} rows, not {documented}")
        key = next((key for key in LESS if " ".join(example.words).startswith(key)), None)
        share = alike(example.output, shown)
        expect(share >= LESS.get(key, LEAST), f"{command}: {share:.0%} of what is documented is there again:\n" + "\n".join(shown[:30])
               + "\nnot there: " + "\n".join(line for line in example.output if alike([line], shown) == 0))

    def rows_of(self, trace, query):
        return json.loads(self.run(self.contrail, "sql", "--json", trace, query))

    def programs(self):
        """jobs and new/jobs, of the text in docs/questions.md."""
        source = next(block for block in blocks(document("questions.md")) if block.startswith("#include"))
        self.compile(self.write("jobs.cc", source), "-O1", "-g", "-pthread", name="jobs", compiler="g++")
        changed = source.replace("load(20)", "load(60)")
        expect(changed != source, "the program is another one")
        os.mkdir(self.path("new"))
        self.compile(self.write("newjobs.cc", changed), "-O1", "-g", "-pthread", name="new/jobs", compiler="g++")

    def hang(self, seconds):
        """./jobs x, ended when both of its threads have hung for that long. Where the second one has done its jobs first, once more."""
        path = self.path("hang.trace")
        for _ in range(20):
            shutil.rmtree(path, ignore_errors=True)
            with Running([self.contrail, "record", "-q", "-o", path, "--", "./jobs", "x"], cwd=self.folder, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL) as recorder:
                wait_for("the program", lambda: os.path.exists(os.path.join(path, "manifest.json")))
                pid = self.manifest(path)["pid"]
                both = wait_for("a thread to hang", lambda: self.hung_threads(path, pid)) == 2
                time.sleep(seconds if both else 0)  # what is to be seen: that nothing happens
                os.kill(pid, signal.SIGABRT)
                expect(recorder.wait(60) == 128 + signal.SIGABRT, f"the recorder's status is {recorder.returncode}")
            if both:
                return
        raise AssertionError("in no recording both threads have hung")

    def hung_threads(self, path, pid):
        """2: both; 1: the other one has ended; 0: not yet."""
        rows = self.rows_of(path, "SELECT DISTINCT tid FROM open_frames WHERE function = '__lll_lock_wait'")
        waits = self.rows_of(path, "SELECT count(*) AS n FROM open_frames WHERE function = 'wait_for_ever()'")[0]["n"]
        alone = len(os.listdir(f"/proc/{pid}/task")) == 1
        return len(rows) if len(rows) == 2 or waits and rows and alone else 0

    def flush_of(self, trace):
        """The call of flush: its thread and when it began, in s; the thread's lock was asked for by the other all that time."""
        row = self.rows_of(trace, "SELECT tid, start, \"end\" FROM spans WHERE function = 'flush(int)' ORDER BY start LIMIT 1")[0]
        return row["tid"], row["start"] / 1e9, row["end"] / 1e9

    def redis(self):
        need("redis-server", "redis-benchmark", "redis-cli")
        port = str(free_port())
        words = next(example.words for example in examples(document("questions.md")) if "redis-server" in example.words)
        words = [port if word == "16399" else word for word in words]
        with Running([self.contrail, *words], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
            ask = ["redis-cli", "-p", port]
            wait_for("redis", lambda: subprocess.run([*ask, "ping"], capture_output=True, text=True, check=False).stdout == "PONG\n")
            self.run("redis-benchmark", "-p", port, "-n", "10000", "-c", "10", "-t", "set,get")
            self.run(*ask, "debug", "sleep", "0.02")
            self.execute(*ask, "shutdown", "nosave")
            expect(recorder.wait(120) == 0, f"the recorder's status is {recorder.returncode}")

    def history(self):
        """A repository with 60 commits in the folder, for git log."""
        need("git")
        self.run("git", "init", "-q", ".")
        stream = "".join(f"commit refs/heads/some\ncommitter A <a@b> {1700000000 + n} +0000\ndata {len(str(n))}\n{n}\n" for n in range(60))
        self.run("git", "fast-import", "--quiet", stdin=None, input=stream)
        self.run("git", "symbolic-ref", "HEAD", "refs/heads/some")

    def recordings(self, text, names):
        """What the document says how its traces were made."""
        for example in examples(text):
            if example.words[0] == "record" and example.words[example.words.index("-o") + 1] in names:
                python = need("/usr/bin/python3") if "python3" in example.words else None  # another one in PATH may be a script
                self.run(self.contrail, *(python if word == "python3" else word for word in example.words))


# ---- the cases ----

@case
def questions(scene):
    """docs/questions.md: twelve questions, each with its traces made as it says."""
    text = document("questions.md")
    scene.programs()
    scene.history()
    scene.recordings(text, ("git.trace", "py.trace", "jobs.trace", "jobs2.trace", "build.trace"))
    scene.hang(1.2)
    scene.redis()
    tid, _, end = scene.flush_of("jobs.trace")
    sleeping = scene.rows_of("jobs.trace", f"SELECT (start + \"end\") / 2 AS middle FROM spans WHERE function = 'clock_nanosleep' AND tid = {tid} LIMIT 1")
    hung = scene.rows_of("hang.trace", "SELECT time FROM crash")[0]["time"] / 1e9
    begun = scene.rows_of("py.trace", "SELECT start FROM spans WHERE function = 'Py_RunMain'")[0]["start"] / 1e9
    moments = {"0.21": f"{sleeping[0]['middle'] / 1e9:.9f}", "0.22": f"{end + 0.001:.9f}", "3.4": f"{hung - 1.016:.9f}", "0.4": f"{begun:.9f}"}
    asked = re.findall(r"(?m)^## (\d+)\. ", text)
    expect(asked == [str(n) for n in range(1, 13)], f"questions {asked}")
    return scene.play(re.sub(r"(?<=--from )[\d.]+|(?<=--to )[\d.]+", lambda moment: moments[moment[0]], text), {})


@case
def sql(scene):
    """docs/sql.md: every example, on the traces that it speaks of."""
    text = document("sql.md")
    scene.programs()
    scene.recordings(document("questions.md"), ("jobs.trace",))
    scene.hang(0.3)
    scene.compile(scene.write("v.c", PROGRAM_OF_VALUES), "-O1", name="v")
    scene.run(scene.contrail, "record", "-q", "--detail", "pipe", "--detail", "read", "-o", "v.trace", "--", "./v")
    scene.compile(scene.write("t.c", PROGRAM_OF_STEPS), "-O1", name="t")
    scene.run(scene.contrail, "itrace", "-q", "-o", "t.steps", "--", "./t")
    scene.run(scene.contrail, "record", "-q", "--itrace", "leaf", "-o", "i.trace", "--", "./t")
    flushing, begin, end = scene.flush_of("jobs.trace")
    late = scene.rows_of("jobs.trace", f"SELECT start FROM spans WHERE function = 'job(int)' AND tid = {flushing} AND start < {begin * 1e9} ORDER BY start DESC LIMIT 100")
    saved = scene.rows_of("t.steps", "SELECT address FROM writes WHERE function = 'main' AND code LIKE 'push %' ORDER BY step LIMIT 1")[0]["address"]
    main_tid = scene.info(scene.path("jobs.trace"))["pid"]
    return scene.play(text, {
        "jobs.trace@0.45..0.46#30222": f"jobs.trace@{late[-1]['start']}ns..{int(end * 1e9) + 100000}ns#{flushing}", "tid = 30203": f"tid = {main_tid}",
        "dur >= 19000000": "dur >= 1000000", "140727407498416": str(saved)})


@case
def columns(scene):
    """Every column of every table in its section of docs/sql.md, and every word there that looks like one in the table."""
    scene.record("-q", "--", "/bin/true")
    sections = {}
    for part in re.split(r"(?m)^## ", document("sql.md"))[1:]:
        heading, _, body = part.partition("\n")
        for name in re.findall(r"[a-z_]+", heading.split(":")[-1]):
            sections[name] = body
    tables = sorted(named_tables())
    expect(len(tables) > 25, tables)
    views = document("sql.md").split("\n## Views\n")[1]
    missing = []
    for table in tables:
        have = {row["name"] for row in scene.rows_of("trace", f"PRAGMA table_info(\"{table}\")")}
        body = sections.get(table)
        if body is None:
            if f"`{table}`" not in document("sql.md"):
                missing.append(table)
            continue
        words = set(re.findall(r"`\"?(\w+)\"?`", re.sub(r"(?m)^    .*\n", "", body)))
        missing += [f"{table}.{column}" for column in have - words if not re.fullmatch(r"r(?:\d+|[a-ds][ipx])|r[sb]p|r[sd]i|rflags", column)]
        first = re.findall(r"(?m)^\| ((?:`[^`]+`(?:, )?)+) \|", body) if len([n for n in sections if sections[n] is body]) == 1 else []
        missing += [f"{table}.{word} (documented)" for cell in first for word in re.findall(r"`\"?(\w+)\"?`", cell) if word not in have]
    expect(not missing, f"docs/sql.md and the tables differ: {missing}")
    expect(all(f"`{view}`" in views for view in ("slice", "thread", "track", "process", "open_frames", "lost", "long_spans")), "views")
    return f"{len(tables)} tables and views"


if __name__ == "__main__":
    main(__doc__, Scene)
