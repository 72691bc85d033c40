#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exports in the programs that they are for: the DevTools page of Debian's Chromium shows a chrome trace; hyparquet, and Apache
Arrow by parquet-wasm, read Parquet (npm packages; skipped with npm's reason where they are not to be had). DuckDB, SQLite,
speedscope's page and go tool pprof are in tests/exportstacks.py, ClickHouse in tests/fleet.py.

    tests/readers.py [--filter PATTERN] [--build DIR]
"""
import base64
import collections
import json
import os

import export
import harness
import page
from harness import case, expect, main

PARQUET = """import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { readParquet } from 'parquet-wasm/node';
import { tableFromIPC } from 'apache-arrow';
import { readFileSync } from 'fs';
const folder = process.argv[2];
const hyparquet = async name => parquetReadObjects({ file: await asyncBufferFromFile(`${folder}/${name}.parquet`), compressors });
const arrow = async name => tableFromIPC(readParquet(new Uint8Array(readFileSync(`${folder}/${name}.parquet`))).intoIPCStream()).toArray();
for (const read of [hyparquet, arrow]) {
  const functions = new Map(), sums = {}, edges = {};
  for (const row of await read('functions')) functions.set(row.id, row.name);
  for (const row of await read('spans')) {
    const sum = sums[functions.get(row.function)] ??= [0, 0];
    sum[0] += Number(row.calls); sum[1] += Number(row.self_ns);
  }
  for (const row of await read('edges')) {
    const sum = edges[functions.get(row.callee)] ??= [0, 0];
    sum[0] += Number(row.calls); sum[1] += Number(row.self_ns);
  }
  console.log(JSON.stringify([sums, edges, (await read('threads')).length]));
}
"""
# What a page of DevTools shows: titles, begins (ms), lengths and rows of all entries, and the names of the groups of rows.
SHOWN = """(() => {
  const provider = panel.getFlameChart().getMainDataProvider(), data = provider.timelineData(), entries = [];
  for (let i = 0; i < data.entryLevels.length; i++)
    entries.push([provider.entryTitle(i), data.entryStartTimes[i], data.entryTotalTimes[i], data.entryLevels[i]]);
  return JSON.stringify([entries, data.groups.map(group => group.name)]);
})()"""


class DevTools(page.Browser):
    """The DevTools page itself, on its Performance panel."""

    def __init__(self, scene):
        super().__init__(scene)
        self.session = None
        target = self.call("Target.createTarget", url="devtools://devtools/bundled/devtools_app.html?panel=timeline")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        # The panel is made when it is first shown.
        harness.wait_for("DevTools", lambda: self.value(
            "document.title === 'DevTools' && import('./panels/timeline/timeline.js').then(all => { globalThis.panel ="
            " all.TimelinePanel.TimelinePanel.instance(); return true }).catch(() => false)"))

    def load(self, data):
        """As its button does; what it shows then."""
        self.value("globalThis.parts = []; 1")
        for at in range(0, len(data), 1 << 20):
            self.value(f"parts.push(Uint8Array.from(atob('{base64.b64encode(data[at:at + (1 << 20)]).decode()}'), c => c.charCodeAt(0)))")
        self.value("panel.loadFromFile(new File(parts, 'trace.json', {type: 'application/json'}))")
        harness.wait_for("the calls in DevTools", lambda: self.value("panel.hasActiveTrace() && (panel.getFlameChart()?.getMainDataProvider()"
                                                                   "?.timelineData()?.entryLevels.length ?? 0) > 0"))
        return json.loads(self.value(SHOWN))

    def unfold(self):
        self.value("(() => { const chart = panel.getFlameChart().getMainFlameChart(); for (const i of"
                   " panel.getFlameChart().getMainDataProvider().timelineData().groups.keys()) chart.toggleGroupExpand(i); return 1 })()")
        self.settle()


@case
def devtools_shows_the_calls(scene):
    """The DevTools page loads a chrome trace: each call is there, by name, begin, length and nesting; threads by their names."""
    scene.own("children", options=("--follow",))
    data = scene.export("chrome")
    spans = export.chrome(data)
    browser = DevTools(scene)
    try:
        entries, groups = browser.load(data)
        browser.unfold()
        picture = base64.b64decode(browser.call("Page.captureScreenshot")["data"])
        errors = [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
    finally:
        browser.close()
    # What is a point and no call, and what is on another stack's row, is not counted here: DevTools has no place for points.
    # A length of nothing it takes for a microsecond.
    calls = collections.Counter((span.name, span.start, span.end - span.start or 1000) for span in spans if span.how not in ("enter only", "counted", "orphan"))
    found = collections.Counter((name, round(start * 1e6), round(length * 1e6)) for name, start, length, _ in entries)
    expect(found == calls, f"{list((found - calls).items())[:3]} and not {list((calls - found).items())[:3]}")
    rows = collections.defaultdict(list)  # by row: nothing lies over another one
    for name, start, length, row in entries:
        rows[row].append((start, start + length * (round(length * 1e6) != 1000), name))
    crossing = sum(b[0] < a[1] - 1e-9 for row in rows.values() for a, b in zip(sorted(row), sorted(row)[1:]))
    expect(crossing == 0, f"{crossing} entries lie over each other")
    names = {thread["name"] for thread in scene.manifest()["threads"]}
    expect(all(any(name in group for group in groups) for name in names), f"{groups}")
    expect(not errors and len(picture) > 20000, f"{errors[:1]}")
    keep = os.environ.get("CONTRAIL_TEST_PICTURES")  # a folder, for who wants to look at it
    if keep:
        with open(os.path.join(keep, "devtools.png"), "wb") as file:
            file.write(picture)
    return f"{len(entries)} calls"


@case
def parquet_in_hyparquet_and_arrow(scene):
    """Both read all four tables; the sums of each function are report's."""
    os.symlink(harness.npm(scene.build_dir, "hyparquet", "hyparquet-compressors", "parquet-wasm", "apache-arrow"), scene.path("node_modules"))
    scene.own()
    folder = scene.export("parquet", into="tables")
    answers = scene.run("node", scene.write("read.mjs", PARQUET), folder).splitlines()
    wanted = scene.functions()
    for reader, answer in zip(("hyparquet", "arrow"), map(json.loads, answers)):
        for sums in answer[:2]:
            export.near(f"{reader} calls", {name: row[0] for name, row in sums.items()}, {name: row[0] for name, row in wanted.items()}, 0)
            for name, (calls, self_ns) in sums.items():
                expect(abs(self_ns - wanted[name][1]) <= 2 + calls, f"{reader}: {name}: {self_ns} ns, not {wanted[name][1]}")
        expect(answer[2] == len(scene.manifest()["threads"]), f"{reader}: {answer[2]} threads")
    expect(len(answers) == 2, "a reader has said nothing")
    return f"{len(wanted)} functions"


if __name__ == "__main__":
    main(__doc__, export.Scene)
