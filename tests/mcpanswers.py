#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: its answers are of what there is now, and say what they leave out; its errors change nothing of anybody's.

    tests/mcpanswers.py [--filter PATTERN] [--build DIR]
"""
import os

from harness import case, expect, main
from mcp import STEPS, Client, Scene


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
