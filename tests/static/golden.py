#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces of earlier versions of the format stay readable: each file tests/static/golden/NAME.txt holds one, as text, and
what the commands must say of it.

    tests/static/golden.py [--build DIR]
    tests/static/golden.py --unpack NAME DIR       the trace of NAME.txt, as it was
    tests/static/golden.py --refresh [NAME...]     the expected output is what the build says now: look at the difference
    tests/static/golden.py --pack DIR NAME         a new one, of a trace

A part begins with `== file PATH hex`, `== file PATH text` (whose lines end in a bar, since there may be tabs and no end of
line at the end) or `== expect WORD...`, the words of a command, whose output follows, each line after a bar.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import harness  # noqa: E402
from harness import expect, main  # noqa: E402

FOLDER = os.path.join(HERE, "golden")
COMMANDS = ["info", "report", "replay", "output"]
WIDTH = 60  # bytes of a line of hex


def path_of(name):
    return os.path.join(FOLDER, name + ".txt")


def read(name):
    """The parts as (kind, words, lines), and what stands before the first of them."""
    head, parts = [], []
    with open(path_of(name), encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line.startswith("== "):
                kind, *words = line[3:].split()
                parts.append((kind, words, []))
            else:
                (parts[-1][2] if parts else head).append(line)
    return head, parts


def write(name, head, parts):
    with open(path_of(name), "w", encoding="utf-8") as file:
        file.write("\n".join(head) + "\n")
        for kind, words, lines in parts:
            file.write(f"== {' '.join([kind, *words])}\n" + "".join(line + "\n" for line in lines))


def unpack(parts, folder):
    for kind, words, lines in parts:
        if kind != "file":
            continue
        if words[1] == "hex":
            data = bytes.fromhex("".join(lines))
        else:
            data = "\n".join(line[:-1] for line in lines).encode()
        path = os.path.join(folder, words[0])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def pack(folder, name):
    parts = []
    for where, _, files in sorted(os.walk(folder)):
        for file in sorted(files):
            path = os.path.join(where, file)
            with open(path, "rb") as opened:
                data = opened.read()
            text = file.endswith((".json", ".tsv"))
            if text:
                lines = [line + "|" for line in data.decode().split("\n")]
            else:
                lines = [data[at:at + WIDTH].hex() for at in range(0, len(data), WIDTH)]
            parts.append(("file", [os.path.relpath(path, folder), "text" if text else "hex"], lines))
    parts += [("expect", command.split(), []) for command in COMMANDS]
    write(name, [], parts)


def said(options, folder, words):
    """The output of a command, the trace's path made TRACE and times of day those of UTC."""
    command = [os.path.join(options.build, "contrail"), words[0], "TRACE", *words[1:]]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, TZ="UTC"))
    lines = ["|" + line for line in (done.stdout + done.stderr).splitlines()]
    return lines + ([f"status {done.returncode}"] if done.returncode else [])


class Scene(harness.Scene):
    def __init__(self, options, folder, trace_name):
        super().__init__(options, folder)
        self.name = trace_name


def as_it_was(scene):
    head, parts = read(scene.name)
    unpack(parts, scene.path("TRACE"))
    fresh = [(kind, words, said(scene.options, scene.folder, words) if kind == "expect" else lines) for kind, words, lines in parts]
    if scene.options.refresh:
        write(scene.name, head, fresh)
    found = [difference(words, lines, now) for (_, words, lines), (_, _, now) in zip(parts, fresh) if lines != now]
    expect(not found, "\n     ".join(found))


def difference(words, lines, now):
    """Of the output of a command, the first line that is another."""
    for n in range(max(len(lines), len(now))):
        old, new = (part[n] if n < len(part) else "(no line)" for part in (lines, now))
        if old != new:
            return f"contrail {' '.join(words)}: line {n + 1}\n     expected {old}\n     got      {new}"
    return f"contrail {' '.join(words)}"


def arguments(parser):
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("words", nargs="*")


def choose(cases, options):
    if options.pack:
        pack(*options.words)
        sys.exit(0)
    if options.unpack:
        unpack(read(options.words[0])[1], options.words[1])
        sys.exit(0)
    return [one for one in cases if not options.words or one.keywords["trace_name"] in options.words]


for each_name in sorted(re.sub(r"\.txt$", "", file) for file in os.listdir(FOLDER)):
    harness.case(f"golden {each_name}", trace_name=each_name)(as_it_was)


if __name__ == "__main__":
    main(__doc__, Scene, arguments, choose)
