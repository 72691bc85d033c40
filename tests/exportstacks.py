#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail export, formats of stacks and sums (speedscope, firefox, folded, flame graphs, pprof), and what all formats say of other stacks,
points, damage and losses: read by decoders made from the published descriptions, against report and replay.

    tests/exportstacks.py [--filter PATTERN] [--build DIR]
"""
import base64
import collections
import gzip
import json
import os
import random
import re
import xml.etree.ElementTree

import harness
from export import (FILTERS, FORMATS, HOSTILE, Scene, Span, chrome, clean, compare_sums, csv_rows,
                   folded, jsonl_rows, leaves, message, near, packed, perfetto, replayed, row_spans)
from harness import NO_LOADER, case, expect, main


# ---- speedscope ----

def speedscope(data):
    """(spans, self times by (pid, tid, name)) of a document, checked as its schema and its importer have it."""
    document = json.loads(data)
    expect(document["$schema"] == "https://www.speedscope.app/file-format-schema.json", "another schema")
    frames = document["shared"]["frames"]
    expect(all(isinstance(frame["name"], str) and isinstance(frame.get("line", 1), int) for frame in frames), "frames")
    spans, selves, lost = [], collections.Counter(), 0
    for profile in document["profiles"]:
        expect(profile["type"] == "evented" and profile["unit"] == "nanoseconds", "profile")
        pid, tid = map(int, profile["name"].rsplit(" ", 1)[1].split("/"))
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            name, at = frames[event["frame"]]["name"], event["at"]
            expect(last <= at <= profile["endValue"], f"{event}: after {last}")
            if stack:
                selves[pid, tid, frames[stack[-1][0]]["name"]] += at - last
            last = at
            if event["type"] == "O":
                stack.append((event["frame"], at))
                continue
            frame, start = stack.pop()
            expect(event["type"] == "C" and frame == event["frame"], f"{event} closes {frame}")
            if name == "(events lost)":
                lost += 1
            else:
                spans.append(Span(pid, tid, name, None, start, at, None, None, None, 1, None, None))
        expect(not stack, "frames without a close")
    return spans, selves, lost


def raw_selves(scene, *options):
    return {name: row[1] for name, row in scene.functions("--raw", *options).items()}


def compare_selves(what, found, scene, calls, *options):
    """Times on the clock, against report's raw self times; each of so many calls may be rounded."""
    sums = collections.Counter()
    for (_, _, name), ns in found.items():
        sums[name] += ns
    near(what, sums, raw_selves(scene, *options), 2 + calls)


def between_stacks(lines):
    """Options for pieces that begin where a thread is on a stack that has no frames: a handler has returned, and the kernel has not;
    or has been there and not begun."""
    places, last = [], {}
    for line in lines:
        before = last.get(line["tid"])
        if before and line["stack"] != before["stack"] and line["ts_ns"] - before["ts_ns"] > 100:
            places.append((before["ts_ns"] + line["ts_ns"]) // 2)
        elif before and before["kind"] == "switch" and line["ts_ns"] - before["ts_ns"] > 100:
            places.append((before["ts_ns"] + line["ts_ns"]) // 2)
        last[line["tid"]] = line
    expect(len(places) > 3, "the handler's stack")
    return [("--from", f"{place}ns", "--to", f"{place + 10000}ns") for place in places[:6]]


@case
def speedscope_calls(scene):
    """Opens and closes in order; each call of the threads that have one stack; the time on top of the stack; a family."""
    scene.own()
    pid, total = scene.manifest()["pid"], 0
    for options in [()] + scene.pieces() + between_stacks(scene.lines()):
        lines = scene.lines(*options)
        spans, selves, _ = speedscope(scene.export("speedscope", *options))
        switching = {line["tid"] for line in lines if line.get("stack")}
        wanted = collections.Counter({key: count for key, count in replayed(lines, pid).items() if key[1] not in switching})
        found = collections.Counter(span[:3] + span[4:6] for span in spans if span.tid not in switching)
        expect(found == wanted and (found or options), f"{options}: {found - wanted} and not {wanted - found}")
        compare_selves(f"{options}", selves, scene, len(lines), *options)
        total += len(spans)
    expect("(events lost)" not in {span.name for span in spans}, "lost events")
    expect(HOSTILE.decode(errors="replace") in {span.name for span in speedscope(scene.export("speedscope"))[0]}, "the odd name")
    # With filters: where a call is left out, its time is that of the calls around it that are in.
    for options in (("--function", "deep"), ("--min-duration", "3us"), ("--reason", "exception,longjmp")):
        calls = collections.Counter(span.name for span in speedscope(scene.export("speedscope", *options))[0])
        wanted = {name: row[0] for name, row in scene.functions(*options).items()}
        expect(all(calls[name] >= count for name, count in wanted.items()) and set(calls) == set(wanted), f"{options}: {calls}, not {wanted}")
    scene.own("children", options=("--follow",))
    spans, selves, _ = speedscope(scene.export("speedscope"))
    compare_selves("family", selves, scene, len(spans), "--family")
    expect(len({span.pid for span in spans}) == 3, "processes")
    return f"{total} calls"


@case(some=("browsers", 1))
def speedscope_page(scene):
    """speedscope's own page, from its npm package, imports the file: in Chromium it shows the threads' names; and it fits the
    schema of the package."""
    harness.need("chromium")
    release = os.path.join(harness.npm(scene.build_dir, "speedscope"), "speedscope", "dist", "release")
    scene.own("children", options=("--follow",))
    data = scene.export("speedscope")
    with open(os.path.join(release, "file-format-schema.json"), encoding="utf-8") as file:
        harness.follow_schemas([(json.loads(data), json.load(file))])
    script = scene.write("profile.js", f'speedscope.loadFileFromBase64("x.speedscope.json", "{base64.b64encode(data).decode()}")')
    dom = scene.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                    f"--user-data-dir={scene.path('profile')}", "--virtual-time-budget=8000", "--dump-dom",
                    f"file://{release}/index.html#localProfilePath={script}")
    names = {profile["name"] for profile in json.loads(data)["profiles"]}
    expect(len(names) == 5 and all(name in dom for name in names), f"not all of {names}: {dom[:300]}")
    return f"{len(names)} threads"


# ---- firefox ----

TABLES = {  # columns of version 48 of the processed format, and what their values are indexes of
    "samples": {"time": None, "weight": None, "stack": "stackTable"},
    "markers": {"data": None, "name": "stringArray", "startTime": None, "endTime": None, "phase": None, "category": "categories"},
    "stackTable": {"frame": "frameTable", "prefix": "stackTable", "category": "categories", "subcategory": None},
    "frameTable": {"address": None, "inlineDepth": None, "category": "categories", "subcategory": None, "func": "funcTable",
                   "nativeSymbol": None, "innerWindowID": None, "implementation": None, "line": None, "column": None},
    "funcTable": {"name": "stringArray", "isJS": None, "relevantForJS": None, "resource": "resourceTable", "fileName": "stringArray",
                  "lineNumber": None, "columnNumber": None},
    "resourceTable": {"lib": None, "name": "stringArray", "host": None, "type": None},
    "nativeSymbols": {"libIndex": None, "address": None, "name": "stringArray", "functionSize": None},
}


def nanoseconds(milliseconds):
    whole, _, rest = str(milliseconds).partition(".")
    return int(whole) * 1_000_000 + int((rest + "000000")[:6])


def firefox(data):
    """(self times by (pid, tid, name), markers as (tid, name, start, end, data))."""
    document = json.loads(data, parse_float=str)
    meta = document["meta"]
    expect(meta["preprocessedProfileVersion"] == 48 and any(category["color"] == "grey" for category in meta["categories"]), "meta")
    selves, markers = collections.Counter(), []
    for thread in document["threads"]:
        sizes = {name: thread[name]["length"] for name in TABLES}
        sizes.update(stringArray=len(thread["stringArray"]), categories=len(meta["categories"]))
        for name, columns in TABLES.items():
            for column, of in columns.items():
                values = thread[name][column]
                expect(len(values) == sizes[name], f"{name}.{column} has {len(values)} of {sizes[name]}")
                expect(of is None or all(value is None or 0 <= value < sizes[of] for value in values), f"{name}.{column}: no {of}")
        strings, stacks, samples = thread["stringArray"], thread["stackTable"], thread["samples"]
        expect(samples["weightType"] == "tracing-ms" and isinstance(thread["pid"], str), "thread")
        expect(all(prefix is None or prefix < i for i, prefix in enumerate(stacks["prefix"])), "a stack before its prefix")
        names = [strings[thread["funcTable"]["name"][thread["frameTable"]["func"][frame]]] for frame in stacks["frame"]]
        last = 0
        for stack, time, weight in zip(samples["stack"], samples["time"], samples["weight"]):
            expect(nanoseconds(time) >= last, "samples overlap")
            last = nanoseconds(time) + nanoseconds(weight)
            selves[int(thread["pid"]), thread["tid"], names[stack]] += nanoseconds(weight)
        table = thread["markers"]
        for name, start, end, phase, data in zip(*(table[column] for column in ("name", "startTime", "endTime", "phase", "data"))):
            expect((phase == 1) == (end is not None), "phases")
            markers.append((thread["tid"], strings[name], nanoseconds(start), nanoseconds(end or 0), data))
    return selves, markers


@case
def firefox_calls(scene):
    """Weights of samples are self times on the clock; open and uncertain calls are markers; tables fit together."""
    scene.own()
    for options in [()] + scene.pieces():
        lines = scene.lines(*options)
        selves, markers = firefox(scene.export("firefox", *options))
        compare_selves(f"{options}", selves, scene, len(lines), *options)
        points = [line["name"] for line in lines if line["kind"] in ("point", "orphan")]
        rest = [marker for marker in markers if not {"open", "before", "uncertain"} & set(marker[4])]
        expect(collections.Counter(points) == collections.Counter(marker[1] for marker in rest), f"{options}: points")
        expect(("--to" in options) == any("open" in marker[4] for marker in markers), f"{options}: open calls")
        expect(("--from" in options) == any("before" in marker[4] for marker in markers), f"{options}: calls from before")
    names = {name for _, _, name in firefox(scene.export("firefox"))[0]}
    expect(HOSTILE.decode(errors="replace") in names, "the odd name")
    selves, _ = firefox(scene.export("firefox", "--function", "deep"))
    expect({name for _, _, name in selves} == {"deep"}, "--function")
    scene.own("children", options=("--follow",))
    selves, _ = firefox(scene.export("firefox"))
    compare_selves("family", selves, scene, 50000, "--family")
    expect(len({pid for pid, _, _ in selves}) == 3, "processes")
    return f"{len(selves)} functions"


@case
def coroutines(scene):
    """What is on other stacks: tracks and threads of its own, where it nests; for formats of one stack what runs."""
    program = scene.compile("fixtures/coroutines.c", "-O2", "-g", "-w", "-pthread", f"-DTURNS={scene.rounds(300, 1000)}")
    scene.record("-q", *(() if scene.options.long else NO_LOADER), "--", program)
    lines, pid = scene.lines(), scene.manifest()["pid"]
    stacks = {line["stack"] for line in lines if line.get("stack")}
    expect(len(stacks) > 1, f"{len(stacks)} stacks")
    wanted = replayed(lines, pid)
    tables = (("chrome", chrome), ("perfetto", perfetto), ("csv", lambda data: row_spans(csv_rows(data))))
    for form, decode in random.sample(tables, scene.rounds(1, 3)):
        found = collections.Counter(span[:3] + span[4:6] for span in decode(scene.export(form)))
        expect(found == wanted, f"{form}: {list((found - wanted).items())[:3]} and not {list((wanted - found).items())[:3]}")
    tracks = {line["stack"] for line in csv_rows(scene.export("csv"))}
    expect(tracks >= stacks, "stacks of rows")
    for form, decode in random.sample((("speedscope", speedscope), ("firefox", firefox)), scene.rounds(1, 2)):
        selves = decode(scene.export(form))[form == "speedscope"]
        # Which stack runs is known from the next call on it on, so single frames differ from report's; but there is no more time
        # than the threads had, and most of what report has.
        total, lives, most = sum(raw_selves(scene).values()), collections.defaultdict(list), sum(selves.values())
        for line in lines:
            lives[line["tid"]].append(line["ts_ns"])
        longest = sum(max(times) - min(times) for times in lives.values())
        expect(total / 2 < most <= longest, f"{form}: {most} ns, report {total}, the threads {longest}")
    return f"{len(stacks)} stacks, {sum(wanted.values())} calls"


@case
def points_and_counts(scene):
    """Sampled points stand for several calls, and calls that were only counted are there: sums are those of report."""
    scene.own(options=("--mode", "light", "--sample", "16"))
    wanted = scene.functions()
    sampled = 0
    for form, decode in (("chrome", chrome), ("perfetto", perfetto), ("csv", lambda data: row_spans(csv_rows(data))),
                         ("jsonl", lambda data: row_spans(jsonl_rows(data)))):
        spans = decode(scene.export(form))
        compare_sums(form, spans, wanted, timed=False)
        sampled = sum(span.calls > 1 for span in spans)
        expect(sampled > 0 and all(span.start == span.end for span in spans if span.calls > 1), f"{form}: no sampled points")
    calls = folded(scene.export("folded", "--weight", "calls"))
    near("folded", leaves(calls), {clean(name, ";"): row[0] for name, row in wanted.items()}, 0)
    return f"{sampled} points for several calls"


@case
def damaged(scene):
    """Of a thread's file that is cut, what is before that place is exported, and it is said."""
    scene.own()
    before = len(csv_rows(scene.export("csv")))
    path = max((os.path.join(folder, name) for folder, _, names in os.walk(scene.trace) if os.path.basename(folder).startswith("thread")
                for name in names), key=os.path.getsize)
    os.truncate(path, os.path.getsize(path) * 2 // 3)
    for form in FORMATS:
        data = scene.export(form)
        expect("damaged or cut" in scene.said and "DAMAGED" in scene.said, f"{form}: {scene.said}")
        expect(data, form)
    after = len(csv_rows(scene.export("csv")))
    expect(0 < after < before, f"{after} rows, before {before}")
    compare_sums("csv", row_spans(csv_rows(scene.export("csv"))), scene.functions())
    return f"{after} of {before} calls"


@case
def lost_events(scene):
    """Events that the recording lost are said on standard error, and where they are by formats that have a place for it."""
    source = scene.write("burst.c", "static volatile long n;\n__attribute__((noinline)) void leaf(void) { n++; }\n"
                         "int main(void) { for (long i = 0; i < 120000; i++) leaf(); return 0; }\n")
    program = scene.path("burst")
    scene.run("gcc", "-O1", "-o", program, source)
    scene.record("-q", "--no-wait", "--ring-size", "1", "--", program)
    dropped = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["dropped"]
    if dropped == 0:
        raise harness.Skip("no event was lost")
    found = chrome(scene.export("chrome"))
    expect("LOST" in scene.said, scene.said)
    with open(scene.path("out"), "rb") as file:
        document = json.load(file)
    said = sum(event["args"]["events"] for event in document["traceEvents"] if event["name"] == "events lost")
    expect(said == document["otherData"]["lost_events"] == dropped, f"chrome: {said} of {dropped}")
    expect(any("uncertain" in span.flags or span.how == "lost" for span in found) or said, "nothing is uncertain")
    perfetto(scene.export("perfetto"))
    expect(perfetto.lost == dropped, f"perfetto: {perfetto.lost} of {dropped}")
    wanted = scene.functions()
    compare_sums("calls", found, wanted)
    gap = wanted["(events lost)"][1]
    for form, decode in (("csv", csv_rows), ("jsonl", jsonl_rows)):
        rows = decode(scene.export(form))
        expect(sum(row["lost"] for row in rows) == dropped, f"{form}: {sum(row['lost'] for row in rows)} of {dropped}")
        rows = [row for row in rows if row["lost"]]
        expect(all(row["name"] == "(events lost)" and row["calls"] == 0 for row in rows), f"{form}: lost events")
        for ns in (sum(row["self_ns"] for row in rows), sum(row["end_ns"] - row["start_ns"] for row in rows)):
            expect(0 < gap and abs(ns - gap) <= 2 * len(rows), f"{form}: events were lost for {ns} ns, not {gap}")
    spans, selves, lost = speedscope(scene.export("speedscope"))
    expect(lost > 0 and "LOST" in scene.said, f"speedscope: {lost}")
    compare_selves("speedscope", selves, scene, len(spans) + lost)
    selves, markers = firefox(scene.export("firefox"))
    compare_selves("firefox", selves, scene, len(spans) + lost)
    said = sum(int(marker[4]["events"]) for marker in markers if marker[1] == "events lost")
    expect(said == dropped, f"firefox: {said} of {dropped}")
    return f"{dropped} lost"


# ---- folded ----

def compare_folded(scene, *options, **more):
    wanted = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, numbers in scene.functions(*options, **more).items():
        wanted[clean(name, ";")] = numbers
    times = folded(scene.export("folded", *options))
    near("time", leaves(times), {name: row[1] for name, row in wanted.items()}, 2 + len(times))
    calls = folded(scene.export("folded", "--weight", "calls", *options))
    # Calls of functions that were only counted are in no path.
    near("calls", leaves(calls), {name: row[0] for name, row in wanted.items()}, 0)
    return times, calls


@case
def folded_sums(scene):
    """Self times and calls of each function, under all filters, as report has them; and a path is who called whom."""
    scene.own()
    for options in FILTERS + scene.pieces():
        times, calls = compare_folded(scene, *options)
    calls = folded(scene.export("folded", "--weight", "calls"))
    ends = collections.Counter(path[-2:] for path in calls.elements())
    expect(ends[("passes", "thrower")] == 52, str(ends[("passes", "thrower")]))
    hostile = clean(HOSTILE.decode(errors="replace"), ";")
    expect(any(path[-1] == hostile and count == 32 for path, count in calls.items()), f"no {hostile!r}")
    off = folded(scene.export("folded", "--weight", "off"))
    slept = sum(weight for path, weight in off.items() if "usleep" in path)
    expect(slept >= 20 * 500_000, f"{slept} ns off the processor")
    return f"{len(calls)} paths"


@case
def folded_family(scene):
    """All processes in one file; one of them; threads of two of them."""
    scene.own("children", options=("--follow",))
    calls = folded(scene.export("folded", "--weight", "calls"))
    expect(sum(weight for path, weight in calls.items() if path[-2:] == ("child", "tail")) == 150, "calls of the children")
    wanted = scene.functions("--family")
    near("calls", leaves(calls), {clean(name, ";"): row[0] for name, row in wanted.items()}, 0)
    children = [child for child in scene.manifest()["children"]]
    pids = [child["pid"] for child in children]
    for pid, count in zip(pids, (50, 100)):
        one = folded(scene.export("folded", "--weight", "calls", "--process", str(pid)))
        near(f"process {pid}", leaves(one), {name: row[0] for name, row in scene.functions("--process", str(pid)).items()}, 0)
    both = folded(scene.export("folded", "--weight", "calls", "--thread", str(pids[0]), "--thread", str(pids[1])))
    expect(leaves(both)["tail"] == 150 and "main" not in leaves(both), str(leaves(both)))
    expect("process 1" in scene.export("folded", "--process", "1", status=2), "a process that is not there")
    expect("no thread 1" in scene.export("folded", "--thread", "1", status=2), "a thread that is not there")


# ---- flame graphs ----

def flamegraph(data):
    """(name, row, x, width, title) of each frame of the picture."""
    ns = "{http://www.w3.org/2000/svg}"
    root = xml.etree.ElementTree.fromstring(data)
    expect(root.tag == ns + "svg" and b"http" not in data.replace(b"http://www.w3.org/2000/svg", b""), "something from outside")
    expect(len(root.findall(f".//{ns}script")) == 1, "scripts")
    frames = []
    for group in root.findall(ns + "g"):
        rect, title = group.find(ns + "rect"), group.find(ns + "title").text
        x, width = float(group.get("data-x")), float(group.get("data-w"))
        expect(abs(float(rect.get("x")) - x - 10) < 0.01 and float(rect.get("width")) == width, "a rectangle elsewhere")
        frames.append((group.get("data-n"), int(group.get("data-d")), x, width, title))
    return frames


THIN = 0.2  # what is not drawn


@case
def flamegraph_picture(scene):
    """The widths are the weights, each frame lies on its caller, names are nothing but text; without a colour or a script
    the picture says the same."""
    scene.own()
    for weight in ("time", "calls", "off"):
        paths = folded(scene.export("folded", "--weight", weight))
        frames = flamegraph(scene.export("flamegraph", "--weight", weight))
        total = sum(paths.values())
        expect(frames[0][:4] == ("all", 0, 0.0, 1180.0), str(frames[0]))
        open_frames, found = [], collections.Counter()
        for name, row, x, width, title in frames:
            del open_frames[row:]
            expect(len(open_frames) == row, f"{name} on row {row}")
            expect(not open_frames or (open_frames[-1][1] - 0.01 <= x and x + width <= open_frames[-1][2] + 0.01), f"{name} hangs over")
            open_frames.append((clean(name, ";"), x, x + width))
            found[tuple(frame[0] for frame in open_frames[1:])] += width
            expect(title.startswith(name + ": "), title)
        wanted = collections.Counter()
        for path, number in paths.items():
            for i in range(len(path) + 1):
                wanted[path[:i]] += number * 1180 / total
        for path, width in found.items():
            expect(-0.05 < wanted[path] - width < THIN + 0.05, f"{weight}: {path}: {width}, not {wanted[path]}")
        # Two functions of one name are two frames, of which one may be too thin; what is wide is there.
        expect(all(path in found for path, width in wanted.items() if width > 1), f"{weight}: a wide one is not there")
    names = {frame[0] for frame in flamegraph(scene.export("flamegraph", "--weight", "calls"))}
    # XML has no control characters at all.
    expect(clean(HOSTILE.decode(errors="replace")) in names, "the odd name")
    return f"{len(frames)} frames"


@case(some=("browsers", 1))
def flamegraph_in_a_browser(scene):
    """Chromium runs the script: the search marks what matches, a click goes into a frame; no error, nothing loaded."""
    browser = harness.need("chromium")
    scene.own()
    svg = scene.export("flamegraph", "--weight", "calls", into="picture.svg").decode()
    tail = ("<script><![CDATA[search('deep');const hits=document.querySelectorAll('.f.m').length;const f=[...frames].find(g=>g.dataset.n==='main');"
            "zoom(f);const w=f.querySelector('rect').getAttribute('width');const hidden=document.querySelectorAll('.f.h').length;"
            "document.documentElement.setAttribute('data-result',hits+' '+w+' '+hidden+' '+found.textContent);]]></script></svg>")
    page = scene.write("page.svg", svg.replace("</svg>", tail))
    dom = scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
                    "--virtual-time-budget=3000", "--dump-dom", "file://" + page)
    result = re.search(r'data-result="(\d+) ([\d.]+) (\d+) (\d+) frames match: ([\d.]+) %"', dom)
    expect(result is not None, dom[:300])
    hits, width, hidden = int(result[1]), float(result[2]), int(result[3])
    frames = flamegraph(svg.encode())
    expect(hits == int(result[4]) == sum("deep" in frame[0] for frame in frames if frame[1] > 0), f"{hits} hits")
    expect(width == 1180 and hidden > 0, f"{width} wide, {hidden} hidden")
    picture = scene.path("picture.png")
    scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
              "--window-size=1220,800", f"--screenshot={picture}", "file://" + scene.path("picture.svg"))
    expect(os.path.getsize(picture) > 10000, "an empty picture")
    return f"{hits} hits"


TWO = r"""
#include <stdlib.h>
#include <unistd.h>
#define OWN __attribute__((noinline, noipa))
static volatile long sum;
OWN long leaf(long n) { for (long i = 0; i < n; i++) sum += i; return sum; }
OWN long parse(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
OWN long stem(long n) __asm__(STEM);
OWN long stem(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
OWN long ways(long n) __asm__(WAYS);
OWN long ways(long n) { for (long i = 0; i < n; i++) leaf(20); return sum; }
int main(int argc, char **argv) {
  for (int i = 0; i < 50; i++) { parse(40); stem(10 * atoi(argv[1])); ways(10 * atoi(argv[1])); }
  usleep(1000 * atoi(argv[1]));
  return argc == 9;
}
"""


def folded_twice(data):
    """(before, after) by path."""
    paths = collections.defaultdict(lambda: [0, 0])
    for line in data.decode().splitlines():
        path, before, after = line.rsplit(" ", 2)
        paths[tuple(path.split(";"))][0] += int(before)
        paths[tuple(path.split(";"))][1] += int(after)
    return {path: tuple(numbers) for path, numbers in paths.items()}


def two_traces(scene):
    """Of two programs, whose file and some of whose functions have other names."""
    source, traces = scene.write("two.c", TWO), []
    for version, stem, ways in ((1, "stem", "old_way"), (2, "stem.part.0", "new_way")):
        program = scene.compile(source, "-O1", f'-DSTEM="{stem}"', f'-DWAYS="{ways}"', name=f"two{version}")
        traces.append(scene.path(f"trace{version}"))
        scene.run(scene.contrail, "record", "-q", "-o", traces[-1], "--", program, str(version))
    return traces


def changes(data):
    """(name, row, x, width, mark, change as a signed width, title) of each frame of the picture of a difference."""
    ns = "{http://www.w3.org/2000/svg}"
    frames = []
    for group in xml.etree.ElementTree.fromstring(data).findall(ns + "g"):
        rects = group.findall(ns + "rect")
        x, width, change = float(group.get("data-x")), float(group.get("data-w")), 0.0
        expect(len(rects) in (1, 2) and float(rects[0].get("width")) == width, "rectangles")
        if len(rects) == 2:
            change = float(rects[1].get("width"))
            expect(abs(float(rects[1].get("x")) + change - x - width - 10) < 0.01, "the change is not at the end of the frame")
            change *= {"url(#more)": 1, "url(#less)": -1}[rects[1].get("fill")]
        label = group.find(ns + "text").text or ""
        expect(not label or label.startswith(group.get("data-m")), label)
        frames.append((group.get("data-n"), int(group.get("data-d")), x, width, group.get("data-m"), change, group.find(ns + "title").text))
    return frames


@case
def two_traces_folded(scene):
    """The weights of both in a line, path by path: those that each trace has by itself; of what was renamed by the compiler
    too; of a piece; with filters."""
    before, after = two_traces(scene)
    for options in ((), ("--weight", "calls"), ("--weight", "off"), ("--function", "leaf"), ("--time", "cpu")):
        both = folded_twice(scene.export("folded", *options, before, trace=after))
        for side, trace in enumerate((before, after)):
            wanted = collections.Counter()
            for path, weight in folded(scene.export("folded", *options, trace=trace)).items():
                wanted[tuple("stem.part.0" if name == "stem" and any("stem.part.0" in p for p in both) else name for name in path)] += weight
            found = {path: numbers[side] for path, numbers in both.items() if numbers[side]}
            expect(found == dict(wanted), f"{options} {side}: {set(found.items()) ^ set(wanted.items())}")
    calls = {path[-2:]: numbers for path, numbers in folded_twice(scene.export("folded", "--weight", "calls", before, trace=after)).items()}
    wanted = {("main", "parse"): (50, 50), ("parse", "leaf"): (2000, 2000), ("main", "stem.part.0"): (50, 50),
              ("stem.part.0", "leaf"): (500, 1000), ("old_way", "leaf"): (500, 0), ("new_way", "leaf"): (0, 1000)}
    expect({key: calls.get(key) for key in wanted} == wanted, str(calls))
    piece = folded_twice(scene.export("folded", f"{before}@1ms..", trace=after + "@..1ns"))
    expect(not any(numbers[1] for path, numbers in piece.items() if path[-1] == "leaf"), "a piece")
    same = folded_twice(scene.export("folded", before, trace=before))
    expect(same and all(a == b for a, b in same.values()), "a trace differs from itself")
    for words, why in (("--thread 1", "in its name"), ("--from 1", "in its name"), (f"{after}", "at a time"), ("--to pprof", "one trace")):
        line = scene.run_bad("export", *(() if "pprof" in words else ("--to", "folded")), *words.split(), before, after, status=2)
        expect(why in line and line.count("\n") == 1, f"{words}: {line}")
    return f"{len(both)} paths"


@case
def flamegraph_of_a_difference(scene):
    """A frame is as wide as the wider of both; what is hatched is what its own weight has changed by; all of it without a
    colour too: by the hatchings, marks and titles. Chromium runs it, and a hatched part stays where it is in its frame."""
    before, after = two_traces(scene)
    for weight in ("calls", "time", "off"):
        both = folded_twice(scene.export("folded", "--weight", weight, before, trace=after))
        frames = changes(scene.export("flamegraph", "--weight", weight, before, trace=after))
        scale = 1180 / sum(max(numbers) for numbers in both.values())
        sums = [sum(numbers[side] for numbers in both.values()) * scale for side in (0, 1)]
        expect(abs(sum(frame[5] for frame in frames) - (sums[1] - sums[0])) < THIN * len(both), f"{weight}: the changes are not all of it")
        open_frames, own = [], {}
        for name, row, x, width, mark, change, title in frames:
            del open_frames[row:]
            open_frames.append(name)
            own[tuple(open_frames[1:])] = own.get(tuple(open_frames[1:]), 0) + change
            expect((mark in ("+ ", "\u2212 ")) == ("(" not in title), f"{mark} {title}")
        for path, (a, b) in both.items():
            expect(abs(own.get(path, 0) - (b - a) * scale) < THIN * 2, f"{weight}: {path}: {own.get(path)}, not {(b - a) * scale}")
    frames = {frame[0]: frame for frame in changes(scene.export("flamegraph", "--weight", "calls", before, trace=after, into="x.svg"))}
    marks = {name: frames[name][4] for name in ("parse", "stem.part.0", "old_way", "new_way", "main")}
    expect(marks == {"parse": "", "stem.part.0": "\u25b2 ", "old_way": "\u2212 ", "new_way": "+ ", "main": "\u25b2 "}, str(marks))
    title = frames["stem.part.0"][6]
    expect(title == "stem.part.0: 1,050 calls, before 550 calls: +500 calls (+90.9 %); own 0 calls (+0.0 %); 50 calls, before 50", title)
    browser = harness.need("chromium")
    with open(scene.path("x.svg"), encoding="utf-8") as file:
        svg = file.read()
    tail = ("<script><![CDATA[const f=[...frames].find(g=>g.dataset.n==='new_way');zoom(f);const r=f.querySelector('rect'),"
            "l=[...frames].filter(g=>g.dataset.n==='leaf'&&!g.classList.contains('h'))[0],b=l.querySelector('rect'),e=l.querySelector('.e');"
            "const n=(x,a)=>+x.getAttribute(a);document.documentElement.setAttribute('data-result',[n(r,'width'),n(b,'x'),n(b,'width'),"
            "n(e,'x'),n(e,'width'),l.querySelector('text').textContent].join(' '));]]></script></svg>")
    page = scene.write("page.svg", svg.replace("</svg>", tail))
    dom = scene.run(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={scene.path('profile')}",
                    "--virtual-time-budget=3000", "--dump-dom", "file://" + page)
    result = re.search(r'data-result="([\d. ]+) \+ leaf"', dom)
    expect(result is not None, dom[:300])
    width, x, inner, part, part_width = map(float, result[1].split())
    expect(width == 1180 and abs(part - x) < 0.5 and abs(part_width - inner) < 0.5, result[1])
    return f"{len(frames)} names"


# ---- pprof ----

def pprof(data):
    """Samples as (path of (name, file of the module), calls, time, off), outermost first."""
    last, every = message(gzip.decompress(data))
    strings = [text.decode() for text in every[6]]
    expect(strings[0] == "", "the first string")
    types = [message(item)[0] for item in every[1]]
    expect([(strings[item[1]], strings[item[2]]) for item in types] ==
           [("calls", "count"), ("time", "nanoseconds"), ("off", "nanoseconds")], "types")
    expect(strings[last[14]] == "time", "the type that is shown")
    mappings = {item[1]: strings[item[5]] for item in (message(item)[0] for item in every[3])}
    functions = {item[1]: strings[item[2]] for item in (message(item)[0] for item in every[5])}
    locations = {}
    for item in every[4]:
        item, _ = message(item)
        locations[item[1]] = (functions[message(item[4])[0][1]], mappings.get(item.get(2, 0)))
    samples = []
    for item in every[2]:
        _, sample = message(item)
        samples.append((tuple(locations[number] for number in reversed(packed(sample[1]))), *packed(sample[2])))
    return samples


@case
def pprof_sums(scene):
    """The values of all samples, by a decoder of our own, under all filters; and what go tool pprof makes of them."""
    scene.own()
    for options in FILTERS + scene.pieces():
        samples = pprof(scene.export("pprof", *options))
        wanted = scene.functions(*options)
        for i, slack in ((0, 0), (1, 2 + len(samples))):
            sums = collections.Counter()
            for path, *values in samples:
                sums[path[-1][0]] += values[i]
            near(f"{options} {i}", sums, {name: row[i] for name, row in wanted.items()}, slack)
    samples = pprof(scene.export("pprof", into="x.pb.gz"))
    off = folded(scene.export("folded", "--weight", "off"))
    expect(sum(sample[3] for sample in samples) == sum(off.values()) > 0, "time off the processor")
    expect(any(path[-1][0] == HOSTILE.decode(errors="replace") for path, *_ in samples), "the odd name")
    harness.need("go")
    scene.environment = dict(os.environ, HOME=scene.folder, PPROF_TMPDIR=scene.folder)
    for index, column in (("time", 1), ("calls", 0)):
        text = scene.run("go", "tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", "-unit=ns", f"-sample_index={index}",
                         scene.path("x.pb.gz"))
        found = collections.Counter()
        for line in text.splitlines():
            row = re.match(r"\s*(\d+)(?:ns)?\s+[\d.e-]+%\s+[\d.e-]+%\s+\d+(?:ns)?\s+[\d.e-]+%\s+(\S.*)$", line)  # also 2.3e-05%
            if row and int(row[1]):
                found[row[2]] += int(row[1])
        wanted = {name: row[column] for name, row in scene.functions().items()}
        plain = {name for name in wanted if re.fullmatch(r"[A-Za-z_]\w*", name)}  # others it writes in its own way
        near(index, {name: found[name] for name in plain}, {name: wanted[name] for name in plain}, 0 if column == 0 else 2 + len(samples))
        expect(found["deep"] > 0 or column == 1, text[:500])  # of its own it may have no whole nanosecond
    return f"{len(samples)} samples"


if __name__ == "__main__":
    main(__doc__, Scene)
