#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: its answers are of what there is now, and say what they leave out; its errors change nothing of anybody's.

    tests/mcpanswers.py [--filter PATTERN] [--build DIR]
"""
import os

from harness import case, expect, main
from mcp import Client, Scene


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
