#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: hunts, which use only what the answers say, and few calls.

    tests/mcphunts.py [--filter PATTERN] [--build DIR]
"""
import re

from harness import case, expect, main
from mcp import CRASH, HANG, STEPS, Scene

HUNT_CALLS, HUNT_TOKENS = 10, 20000


def within(client):
    """All that an agent has to read and to write: the instructions, tools/list, its calls and their answers."""
    expect(client.calls <= HUNT_CALLS and client.tokens <= HUNT_TOKENS, f"{client.calls} calls, some {client.tokens} tokens")
    return f"{client.calls} calls, at most {client.tokens} tokens"


def named(lines, pattern=r"(\w+)(?:\(\))?$"):
    """The functions that the lines of a report end with."""
    return [found[1] for found in (re.search(pattern, line.split("  --")[0].rstrip()) for line in lines) if found]


@case
def hunt_slow(scene):
    client = scene.hunter()
    client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=3"), wait_s=30)
    rows = client.tool("query", sql="SELECT function, duration, parent_id FROM spans WHERE module = 'steps' AND function NOT IN ('main') "
                                    "ORDER BY duration DESC LIMIT 3")["rows"]
    expect("flush_all" in [row[0] for row in rows[:2]] and rows[1][1] > 5e7, str(rows))
    slow = client.tool("analyze", view="slowest", filter={"function": "serve"}, count=1, levels=3)
    expect(any("flush_all" in line for line in slow["lines"]), str(slow["lines"]))
    return within(client)


@case
def hunt_hot_caller(scene):
    client = scene.hunter()
    client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=2000"), wait_s=30)
    report = client.tool("analyze", view="report", sort="calls", filter={"module": "steps"}, limit=6)
    hot = [name for name in named(report["lines"]) if name in ("leaf", "lookup", "parse", "serve")]
    expect(hot[:2] in (["leaf", "lookup"], ["lookup", "leaf"]), str(report["lines"]))
    callers = client.tool("analyze", view="callers", filter={"function": "lookup"})
    # Not by the total: a moment without a processor in a call of the other caller puts that one first.
    calls = {line.split()[-1]: int(line.split()[-3].replace(",", "")) for line in callers["lines"][2:4]}
    expect(max(calls, key=calls.get) == "refresh" and len(calls) == 2, str(callers["lines"]))
    return within(client)


@case
def hunt_crash(scene):
    client = scene.hunter()
    done = client.tool("launch", program=scene.own(CRASH, "crash"), wait_s=30)
    expect("signal 11" in done["end"] and any("view=crash" in one for one in done["next"]), str(done))
    crash = "\n".join(client.tool("analyze", view="crash")["lines"])
    expect("SIGSEGV" in crash and "total" in crash and "load" in crash, crash)
    ended = client.tool("query", sql="SELECT function FROM spans WHERE reason = 'killed' ORDER BY depth DESC")["rows"]
    expect(ended[:3] == [["total"], ["load"], ["main"]], str(ended))
    return within(client)


@case
def hunt_hang(scene):
    client = scene.hunter()
    client.tool("launch", program=scene.own(HANG, "hang"), wait_s=0.5)
    expect(client.tool("session", action="status")["threads"] == 2, "threads")
    lines = client.tool("analyze", view="threads")["lines"]
    text = "\n".join(lines)
    expect("take_a_then_b" in text and "take_b_then_a" in text and "mutex_lock" in text, text)
    waits = [line for line in lines if "mutex_lock" in line and re.search(r"[3-9]\d\d\.\d ms|\d s$", line)]
    expect(len({line.split()[0] for line in waits}) == 2, text)
    return within(client)


@case
def hunt_regression(scene):
    client = scene.hunter()
    before = client.tool("launch", program=scene.own(STEPS, "before", "-DLOOKUPS=3"), wait_s=30)["session"]
    after = client.tool("launch", program=scene.own(STEPS, "after", "-DLOOKUPS=300"), wait_s=30)["session"]
    changed = client.tool("analyze", view="diff", trace=after, other=before, sort="calls", filter={"module": "*"})
    text = "\n".join(changed["lines"])
    expect("lookup" in text and "leaf" in text, text)
    callers = client.tool("analyze", view="callers", filter={"function": "lookup"}, trace=after)
    # By the calls: a moment without a processor in one of the other caller's puts that one first by its total.
    expect(any("refresh" in line and " 3,000 " in line for line in callers["lines"][2:4]), str(callers["lines"]))
    return within(client)


if __name__ == "__main__":
    main(__doc__, Scene)
