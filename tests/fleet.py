#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets: what docs/fleet.md has, as it is there: its shell function puts traces of several hosts, builds and days into the
layout, DuckDB and ClickHouse (from npm) run its statements, and the sums are those of contrail report. Where the registry is
not to be had the engines' cases are skipped, with the reason.

    tests/fleet.py [--filter PATTERN] [--build DIR]
"""
import collections
import glob
import json
import os
import re
import subprocess

import harness
from harness import case, expect, main

PROGRAM = r"""
#include <stdlib.h>
#include <unistd.h>
static volatile long sum;
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long x) { sum += x; return x * 2; }
OWN long both(long n) { for (long i = 0; i < n; i++) leaf(i); return 1; }
#if BUILD == 1
OWN long handle(long n) { return both(n) + leaf(1); }
#else
OWN long handle(long n) { for (long i = 0; i < 20000; i++) sum += i; return both(n); }
#endif
int main(int argc, char **argv) { for (long i = 0; i < 40; i++) handle(atol(argv[1])); usleep(2000); return argc == 9; }
"""
RUNS = [("web-1", 1, 0), ("web-2", 1, 0), ("web-1", 2, 1), ("web-3", 2, 1), ("web-2", 2, 1)]  # host, build, day
DUCKDB = """import { DuckDBInstance } from '@duckdb/node-api';
import { readFileSync } from 'fs';
const c = await (await DuckDBInstance.create(':memory:')).connect();
for (const q of JSON.parse(readFileSync(process.argv[2])))
  console.log(JSON.stringify((await c.runAndReadAll(q)).getRows(), (k, v) => typeof v === 'bigint' ? Number(v) : v?.micros ? Number(v.micros) : v));
"""
CHDB = """import chdb from 'chdb';
import { readFileSync } from 'fs';
const session = new chdb.Session(process.argv[3]);
for (const q of JSON.parse(readFileSync(process.argv[2])))
  console.log(JSON.stringify(session.query(q, 'JSONCompactEachRowWithNames').trim().split('\\n').filter(l => l).slice(1).map(l => JSON.parse(l))));
session.cleanup();
"""


def blocks(heading):
    """The indented text below a heading of docs/fleet.md."""
    with open(os.path.join(harness.ROOT, "docs", "fleet.md"), encoding="utf-8") as file:
        part = file.read().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))


def statements(heading, words):
    """(those without a name, {name: statement}); words in place of $NAMES."""
    setup, named = [], {}
    for text in blocks(heading).split(";\n"):
        text = re.sub(r"\$([A-Z]+)", lambda match: words[match[1]], text.rstrip(";")).strip()
        name = re.match(r"-- (.*)\n", text)
        if name:
            named[name[1]] = text[name.end():]
        elif text:
            setup.append(text)
    return setup, named


class Scene(harness.Scene):
    def place(self, trace, host, status=0):
        script = blocks("Layout")
        script = script[script.index("contrail_to_fleet()"):] + f'\ncontrail_to_fleet "{trace}" fleet \'{host}\'\n'
        environment = dict(os.environ, PATH=os.path.dirname(os.path.abspath(self.contrail)) + ":" + os.environ["PATH"])
        return self.run("sh", "-c", script, env=environment, status=status)

    def fleet(self):
        """The runs, in their places: (host, build, day, trace, report's functions)."""
        harness.need("jq")
        source, runs = self.write("service.c", PROGRAM), []
        for build in (1, 2):
            os.mkdir(self.path(f"build{build}"))
            self.run("gcc", "-O1", "-Wl,--build-id", f"-DBUILD={build}", "-o", self.path(f"build{build}", "service"), source)
        for i, (host, build, day) in enumerate(RUNS):
            trace = self.path(f"trace{i}")
            self.run(self.contrail, "record", "-q", "-o", trace, "--", self.path(f"build{build}", "service"), str(50 * (i + 1)))
            path = os.path.join(trace, "manifest.json")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            start = json.loads(text)["start_wall_ns"]
            with open(path, "w", encoding="utf-8") as file:  # days apart
                file.write(text.replace(str(start), str(start - (1 - day) * 86400 * 10**9)))
            self.place(trace, host)
            self.place(trace, host)  # again: it is there
            runs.append((host, build, day, trace, json.loads(self.run(self.contrail, "report", "--json", trace))["functions"]))
        return runs

    def words(self, runs):
        """What stands for the names in the document's statements."""
        places = [path.split("/") for path in sorted(glob.glob("host=*/program=*/build=*/day=*/run=*", root_dir=self.path("fleet")))]
        expect(len(places) == len(runs), f"{places}")
        self.builds = {build: self.info(trace)["modules"][0]["build_id"][:20] for _, build, _, trace, _ in runs}
        self.days = sorted({place[3].partition("=")[2] for place in places})
        expect(len(self.days) == 2 and not os.listdir(self.path("fleet", ".writing")), f"{self.days}")
        return {"OLD": self.builds[1], "NEW": self.builds[2], "PROGRAM": "service", "FUNCTION": "leaf", "DAY": self.days[1]}

    def compare(self, runs, named, ask):
        """The answers of an engine against the reports of the traces. ask: rows of each of the statements."""
        answers = dict(zip(named, ask(list(named.values()))))
        wanted = collections.defaultdict(lambda: [0, 0])
        for _, build, _, _, rows in runs:
            for row in rows:
                wanted["service", self.builds[build], row["module"], row["name"]][0] += row["calls"]
                wanted["service", self.builds[build], row["module"], row["name"]][1] += row["self_ns"] or 0
        found = {tuple(row[:4]): row[4:] for row in answers["by build"]}
        expect(set(found) == set(wanted), f"functions: {set(found) ^ set(wanted)}")
        for key, (calls, self_ns) in wanted.items():
            expect(int(found[key][0]) == calls and abs(int(found[key][1]) - self_ns) <= len(runs) + calls, f"{key}: {found[key]}, not {calls} and {self_ns}")
        changed = {row[0]: row[1:] for row in answers["what changed"]}
        expect({"handle", "leaf"} <= set(changed) and changed["handle"][1] > 3 * changed["handle"][0], f"{changed}")
        hosts = {row[0]: row[1:] for row in answers["by host"]}
        calls = collections.Counter()
        for host, _, _, _, rows in runs:
            calls[host] += sum(row["calls"] for row in rows if row["name"] == "leaf")
        expect({host: int(row[0]) for host, row in hosts.items()} == calls, f"{hosts}, not {calls}")
        expect(all(0 <= int(row[1]) <= int(row[2]) for row in hosts.values()), f"{hosts}")  # of a leaf: what is no longer than its hook is 0
        self.compare_slowest(runs, answers["slowest"])
        callers = collections.Counter()
        for host, build, day, trace, _ in runs:
            if day == 1:
                for row in json.loads(self.run(self.contrail, "report", "--json", "--callers", "leaf", trace))["functions"][0]["callers"]:
                    callers[row["name"]] += row["calls"]
        expect({row[0]: int(row[1]) for row in answers["callers"]} == callers, f"{answers['callers']}, not {callers}")
        expect(len(answers["lost"]) == len(runs) and not any(int(row[3]) for row in answers["lost"]), f"{answers['lost']}")
        return f"{len(wanted)} functions of builds"

    def compare_slowest(self, runs, rows):
        """The first one is the slowest call of all, with its time of the day."""
        slowest = max((row["max_ns"], host, trace, row["name"]) for host, _, _, trace, rows in runs for row in rows if row["max_ns"])
        host, run, pid, _, name, duration, at = rows[0]
        expect(len(rows) == 10 and abs(int(duration) - slowest[0]) <= 2 and host == slowest[1], f"{rows[0]}, not {slowest}")
        start = self.info(slowest[2])["start_wall_ns"]
        began, _, process = run.partition("-")  # jq's numbers have 53 bits
        expect(abs(int(began) - start // 1000) <= 1 and process == str(pid), f"{run}, not {start}")
        if isinstance(at, int):  # DuckDB: microseconds
            expect(0 <= at - start // 1000 < 60_000_000, f"{at} and {start}")
        else:
            seconds = self.run("date", "-u", "-d", f"@{start // 10**9}", "+%Y-%m-%d %H:%M").strip()
            expect(at.startswith(seconds), f"{at}, not {seconds}")


@case
def layout(scene):
    """A run is put in its place whole, once; odd names become names of folders."""
    runs = scene.fleet()
    scene.words(runs)
    trace = runs[0][3]
    before = sorted(glob.glob(scene.path("fleet", "*", "*", "*", "*", "*", "*")))
    expect(len(before) == 4 * len(runs), f"{before}")
    scene.place(trace, "a/b=../$(c)\n")
    added = sorted(set(glob.glob(scene.path("fleet", "*", "*", "*", "*", "*", "*"))) - set(before))
    expect(len(added) == 4 and all("/host=a_b_..___c__/" in path for path in added), f"{added}")
    scene.place(scene.path("none"), "x", status=1)


@case
def duckdb(scene):
    """DuckDB asks the files where they lie, and reads only the folders that a WHERE asks for."""
    os.symlink(harness.npm(scene.build_dir, "@duckdb/node-api"), scene.path("node_modules"))
    script = scene.write("ask.mjs", DUCKDB)
    runs = scene.fleet()
    setup, named = statements("DuckDB", scene.words(runs))

    def ask(queries):
        asked = scene.write("asked.json", json.dumps(setup + queries))
        return [json.loads(line) for line in scene.run("node", script, asked).splitlines()[len(setup):]]
    said = scene.compare(runs, named, ask)
    plan = str(ask([f"EXPLAIN ANALYZE SELECT sum(calls) FROM spans WHERE day = '{scene.days[0]}' AND host = 'web-1'"]))
    read = re.search(r"Total Files Read:\s*(\d+)|Scanning Files:\s*(\d+)/5", plan)
    expect(read is not None and int(read[1] or read[2]) == 1, plan)
    return said


@case
def clickhouse(scene):
    """ClickHouse, from npm's chdb, loads a day at a time and asks its tables."""
    modules = harness.npm(scene.build_dir, "chdb", seconds=500)
    os.symlink(modules, scene.path("node_modules"))
    script = scene.write("ask.mjs", CHDB)
    runs = scene.fleet()
    words = scene.words(runs)
    setup, named = statements("ClickHouse", words)
    loads = [text for text in setup if text.startswith("INSERT")]
    expect(len(loads) == 2, f"{setup}")
    other = [text.replace(scene.days[1], scene.days[0]) for text in loads]
    reload = [f"ALTER TABLE {table} DROP PARTITION '{scene.days[0]}'" for table in ("calls", "edges")] + other
    setup += other + reload

    def ask(queries):
        asked = scene.write("asked.json", json.dumps(setup + queries))
        scene.run("rm", "-rf", scene.path("db"))
        result = subprocess.run(["node", script, asked, scene.path("db")], cwd=scene.folder, capture_output=True, text=True, timeout=200, check=False)
        expect(result.returncode == 0, result.stderr[-2000:])
        return [json.loads(line) for line in result.stdout.splitlines()[len(setup):]]
    return scene.compare(runs, named, ask)


if __name__ == "__main__":
    main(__doc__, Scene)
