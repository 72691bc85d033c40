#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the pictures of README.md anew, of real output: docs/pictures/top.svg (contrail top beside redis-benchmark, in tmux) and
docs/pictures/difference.svg (a flame graph of two builds of a program). Needs gcc, tmux and redis.

    tools/pictures.py [--contrail build/contrail]
"""
import argparse
import os
import re
import socket
import subprocess
import tempfile
import time
import xml.sax.saxutils

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURES = os.path.join(ROOT, "docs", "pictures")
COLUMNS, ROWS = 116, 16
SERVICE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define OWN __attribute__((noinline, noipa))
static char words[4000][16], sorted[4000][16];
static volatile long hits;
OWN int compare(const void *a, const void *b) { return strcmp(a, b); }
OWN void read_words(void) { for (int i = 0; i < 4000; i++) snprintf(words[i], 16, "%08x", i * 2654435761u); }
OWN void sort_words(void) { memcpy(sorted, words, sizeof(words)); qsort(sorted, 4000, 16, compare); }
OWN long find_by_scan(const char *word) { for (int i = 0; i < 4000; i++) if (strcmp(sorted[i], word) == 0) return i; return -1; }
OWN long find_by_search(const char *word) { char *at = bsearch(word, sorted, 4000, 16, compare); return at ? (at - sorted[0]) / 16 : -1; }
OWN void answer(int i) { hits += FIND(words[i]) >= 0; }
OWN void serve(void) { for (int i = 0; i < 400; i++) answer(i * 7 % 4000); }
int main(void) { for (int i = 0; i < 20; i++) { read_words(); sort_words(); serve(); } return hits != 8000; }
"""
PALETTE = {30: "#000", 31: "#c33", 32: "#3a3", 33: "#a80", 34: "#36c", 35: "#a3a", 36: "#088", 37: "#aaa"}


def svg_of(screen):
    """A terminal's screen, as tmux's capture-pane -e gives it."""
    width, height = COLUMNS * 7.25 + 20, ROWS * 17 + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">',
           "<style>text{font:12px ui-monospace,monospace;white-space:pre;fill:#ddd}</style>",
           '<rect width="100%" height="100%" rx="6" fill="#16181c"/>']
    bold = reverse = False
    colour = None
    for row, line in enumerate(screen.split("\n")[:ROWS]):
        column = 0
        for piece in re.split(r"(\x1b\[[\d;]*m)", line):
            code = re.fullmatch(r"\x1b\[([\d;]*)m", piece)
            for number in map(int, (code[1] or "0").split(";")) if code else ():
                if number == 0:
                    bold = reverse = False
                    colour = None
                bold, reverse = bold or number == 1, (reverse or number == 7) and number != 27
                colour = PALETTE.get(number, None if number == 39 else colour)
            if code or not piece:
                continue
            x, y = 10 + column * 7.25, row * 17 + 23
            if reverse:
                out.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{len(piece) * 7.25:.1f}" height="17" fill="#ddd"/>')
            style = ('font-weight="bold" ' if bold else "") + (f'fill="{colour}" ' if colour else 'style="fill:#16181c" ' if reverse else "")
            if piece.strip():
                out.append(f'<text {style}x="{x:.1f}" y="{y}" textLength="{len(piece) * 7.25:.1f}">{xml.sax.saxutils.escape(piece)}</text>')
            column += len(piece)
    return "\n".join(out) + "\n</svg>\n"


def top(contrail, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    tmux = ["tmux", "-f", "/dev/null", "-S", os.path.join(folder, "tmux")]
    children = [subprocess.Popen(["redis-server", "--port", port, "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)]
    try:
        time.sleep(1)
        children.append(subprocess.Popen(["redis-benchmark", "-p", port, "-t", "set,get,lpush", "-n", "100000000", "-l", "-c", "1"],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        children.append(subprocess.Popen([contrail, "attach", "-q", "--no-wait", "--budget", "10%", "-o", os.path.join(folder, "redis.trace"), str(children[0].pid)]))
        time.sleep(4)
        subprocess.run([*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS + 1), f"{contrail} top {children[0].pid}"], check=True)
        for _ in range(20):  # until it has caught up with what there was
            time.sleep(2)
            screen = subprocess.run([*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=True).stdout
            if "behind" not in screen and len(re.findall(r"^ +\d", screen, re.MULTILINE)) > 8:
                break
        subprocess.run([*tmux, "kill-server"], check=False)
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()
    return svg_of(screen)


def difference(contrail, folder):
    traces = []
    for name, find in (("before", "find_by_scan"), ("after", "find_by_search")):
        os.mkdir(os.path.join(folder, name))
        program = os.path.join(folder, name, "service")
        with open(program + ".c", "w", encoding="utf-8") as file:
            file.write(SERVICE)
        subprocess.run(["gcc", "-O1", "-fno-builtin", f"-DFIND={find}", "-o", program, program + ".c"], check=True)
        traces.append(program + ".trace")
        subprocess.run([contrail, "record", "-q", "-o", traces[-1], "--", program], check=True)
    return subprocess.run([contrail, "export", "--to", "flamegraph", *traces], capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contrail", default=os.path.join(ROOT, "build", "contrail"))
    contrail = os.path.abspath(parser.parse_args().contrail)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        pictures = {"top": top(contrail, folder), "difference": difference(contrail, folder)}
    os.makedirs(PICTURES, exist_ok=True)
    for name, text in pictures.items():
        with open(os.path.join(PICTURES, name + ".svg"), "w", encoding="utf-8") as file:
            file.write(text)
        print(f"docs/pictures/{name}.svg: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
