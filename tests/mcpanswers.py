#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: its answers are of what there is now, and say what they leave out; its errors change nothing of anybody's.

    tests/mcpanswers.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import shutil

from harness import case, expect, main, wait_for
from mcp import STEPS, TICKS, Client, Scene


@case
def in_the_way(scene):
    """A launch that fails removes what it has made, and nothing of anybody else's that is in its way."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    for name in ("stdout", "stderr"):
        scene.write(f"mine.{name}", "keep me\n")
        expect("exists" in client.refused("launch", program=steps, directory=scene.path("mine")), name)
        with open(scene.path(f"mine.{name}"), encoding="utf-8") as file:
            expect(file.read() == "keep me\n", "it was written to")
        os.unlink(scene.path(f"mine.{name}"))
        expect(not [one for one in os.listdir(scene.folder) if one.startswith("mine")], str(os.listdir(scene.folder)))
    expect(client.tool("launch", program=steps, directory=scene.path("mine"), wait_s=30)["state"] == "done", "nothing is in the way")


@case
def recorded_elsewhere(scene):
    """A trace that somebody else records, and one in whose place another has been put: each answer is of what there is now."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    ticks = scene.own(TICKS.replace("1000000", "20000"), "ticks")  # ends, whatever becomes of this
    calls = "SELECT calls FROM functions WHERE name = '%s'"

    def rows(name="spin"):
        return client.tool("query", trace=scene.trace, sql=calls % name)["rows"]

    def reported(name="spin"):
        found = [line for line in client.tool("analyze", view="report", trace=scene.trace)["lines"] if name in line]
        return found[0].split() if found else []
    recorder = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "spin", "--", ticks)
    wait_for("a first call", lambda: os.path.exists(os.path.join(scene.trace, "manifest.json")) and rows() not in ([], [[0]]))
    first, line, events = rows()[0][0], reported(), client.tool("session", action="status", session="t1")["events"]
    wait_for("more calls in a query", lambda: rows()[0][0] > first)
    wait_for("more calls in a report", lambda: reported() != line)
    wait_for("more events in the status", lambda: client.tool("session", action="status", session="t1")["events"] > events)
    recorder.terminate()
    recorder.wait()
    whole = json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"][0]["calls"]
    expect(rows() == [[whole]] and not client.tool("query", trace="t1", sql="SELECT 1")["uncertain"], f"{rows()}, {whole} calls")
    shutil.rmtree(scene.trace)
    scene.record(steps)
    expect(rows("serve") == [[100]] and reported("serve") and not reported(), f"of the trace before: {rows('serve')}")
    expect(not any("another" in one for one in client.tool("query", trace="t1", sql="SELECT 1")["uncertain"]), "it was not opened anew")
    expect(client.tool("session", action="list")["sessions"][0]["trace"] == "t1", "it is the same directory")


@case
def dumps(scene):
    """Dumps are in the server's directory: none is begun that may have no room there, and one that was made can be removed."""
    client = Client(scene, "--max-disk", "12M")
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"], last="4M")
    wait_for("calls of tick", lambda: client.tool("session", action="status")["events"] > 0)
    dump = client.tool("session", action="dump")["dump"]["directory"]
    filler = os.path.join(os.path.dirname(dump), "filler")
    with open(filler, "wb") as file:
        file.write(os.urandom(9 << 20))
    expect("--max-disk" in client.refused("session", action="dump"), "a dump without room")
    expect("with its files" in client.tool("session", action="forget", session=dump, remove=True)["state"] and not os.path.exists(dump), "the dump is there")
    os.unlink(filler)
    expect(os.path.isdir(client.tool("session", action="dump")["dump"]["directory"]), "there is room again")


@case
def waits_for_nobody(scene):
    """A program that is a FIFO is refused at once: whoever opens it would wait for a writer."""
    os.mkfifo(scene.path("fifo"), 0o700)
    for words in ((), ("--allow", scene.folder)):
        client = Client(scene, *words)
        for tool, arguments in (("launch", {}), ("itrace", {"action": "record"})):
            number = client.begin("tools/call", {"name": tool, "arguments": {"program": scene.path("fifo"), **arguments}})
            result = client.answer(number, seconds=20)["result"]
            expect(result["isError"] and ("regular" in (said := result["content"][0]["text"]) or "denied" in said), f"{tool}: {result}")


if __name__ == "__main__":
    main(__doc__, Scene)
