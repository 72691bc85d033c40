#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What documents name exists. Words of the project's own that gave way to the field's (docs/glossary.md) do not come back, in names, files, comments or documents.
Words of the command line and of JSON stay (--family, born, busiest, left, held), and so do plain English words where they mean what
they mean everywhere: what is looked at, a place in a file, a slot of a table, room for a line."""
import functools
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, check, main  # noqa: E402

# Stems, of which a line has one (a search for a pattern in all lines takes half a minute), the pattern, what stands there now, and the
# lines where it may stand all the same.
WORDS = [
    ("visitor|visit page|visit_page|be_visited", r"\bvisitors?\b|visit[_ ]page|be_visited", "child handshake, handshake page", None),
    ("birth|be_born", r"\bbirths?\b|\bbirth_|_birth\b|be_born", "child start-up", None),
    ("born", r"\bborn\b", "child start-up", r"[\"'`*]born[\"'`]|->born|\*born;|manifest\.born"),
    ("orphanage|past_hooks|hooks_past", r"orphanage|\bpast_hooks|hooks_past", "lingering image, hook history", None),
    ("ct_family|family_|process_family", r"\bct_family|\bfamily_(?!of\b|is_drawn)\w|\bprocess_family", "process tree", None),
    ("errand|way back", r"\berrands?\b|\bway back\b", "injected system call, restore stub", None),
    ("let go|lets go|letting go", r"\b(?:is|are|was|be|been|and|to) let go\b|\blets? go of\b|\bletting go\b", "resume", None),
    ("pulse|heartbeat", r"\bpulses?\b|heartbeat", "controller liveness, drain liveness counter", None),
    ("precedence|give way|gives way|hurry|hurried", r"\bprecedence\b|\bgives? way\b|hurry|\bhurried\b", "pause request, yield, raise priority", None),
    ("bell", r"\bbells?\b|\bct_bell|_bell\b", "doorbell", None),
    ("take stock|takes stock|settle|untold|is_told|un_told", r"\btakes? stock\b|\bct_settle|\buntold\b|\bis_told\b|un_told", "summarise, reconcile, unpublished", None),
    ("ring_place|socket_place|agent_place", r"\bring_place\b|\bct_ring_place|socket_place|agent_place", "entry, layout, runtime directory", None),
    ("wish", r"\bwish(?:es|ed)?\b|\bct_wish|_wish\b", "requested mode", None),
    ("ct_choice|ct_chosen|is_chosen", r"\bct_choice|\bct_chosen|is_chosen\b", "filter result, selected", None),
    ("loose|quiet hook", r"\bloose\b|\bct_loose|_loose\b|\bquiet hooks?\b", "stackless, passthrough", None),
    ("ct_leaving|leaving_|why_left", r"\bct_leaving|\bleaving_(?:of|reason)|why_left\b", "unwind reason", None),
    ("busiest", r"\bbusiest\b", "hot functions", r"[\"']busiest[\"']|BR busiest|`busiest`|busiest_thread"),
    ("prints|output_thread", r"\bprints\.[ch]\b|\bct_prints\b|output_thread\b", "stdio capture, writer thread", None),
    ("nearby|ct_room", r"\bnearby\b|\bct_nearby|\bct_room\b", "springboard, near allocation", None),
    ("late_refus|ct_late", r"\blate_refus\w+|\bct_late\b", "install refusals", None),
    ("ct_wall|walls|wall_of", r"\bct_wall\b|\bwalls\b|wall_of\b", "scope boundary, scope", None),
    ("remark", r"\bremarks?\b|\bct_remark", "warning", None),
    ("told of|make out|makes out|made out", r"\btold of\b|\bmakes? out\b|\bmade out\b", "reported, amounts to", None),
    ("as it stands|whoever is|on what that", r"\bas it stands, an\b|\bwhoever is killed on the way\b|\bon what that was tried\b", "plain English", None),
]
KEPT = ("NEWS.md", "tests/static/words.py", "docs/pictures/", "tests/static/golden", "tests/commands/", "tests/fuzz/corpus", "LICENSE")


@functools.cache
def texts():
    """Of all files of the tree."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if names == [""]:  # no checkout: all but what is built
        names = [os.path.relpath(os.path.join(path, name), ROOT) for path, folders, files in os.walk(ROOT) for name in files
                 if not os.path.relpath(path, ROOT).startswith(("build", ".git"))]
    found = {}
    for name in names:
        path = os.path.join(ROOT, name)
        if not name.startswith(KEPT) and not name.endswith(".json") and os.path.isfile(path):
            with open(path, "rb") as file:
                data = file.read()
            if b"\0" not in data:
                found[name] = data.decode(errors="replace")
    return found


def faults(these):
    for name, text in these.items():
        low = text.lower()
        for stems, pattern, now, but in WORDS:
            if not any(stem in low for stem in stems.split("|")):
                continue
            for number, line in enumerate(text.split("\n"), 1):
                if (hit := re.search(pattern, line, re.I)) and not (but and re.search(but, line)):
                    yield f"{name}:{number}: '{hit[0]}': here it is called {now}"


@check("words that were given up")
def check_words(_):
    yield from faults(texts())


# Files of a trace, of the user's, or of the machine's; and names of others.
OTHERS = {"manifest.json", "stacks.json", "crash.json", ".mcp.json", ".vscode/mcp.json", "SESSION/pid_P/manifest.json", "tests/fixtures/NAME.c", "tools/list",
          "unwinder_nongnu", "unw_backtrace", "constant_tsc", "nonstop_tsc", "shmem_enabled"}
CODE = ("src/", "include/", "tests/", "bench/", "tools/", "examples/")
DOCUMENTS = re.compile(r"(?:docs/|tests/)?[\w-]+\.md")
SOURCE = re.compile(r"[\w./-]+\.(?:c|h|S|py|sh|cpp|in|ld|map|md|json)")
FOLDER = re.compile(r"(?:src|tests|docs|tools|bench|include)/[\w/]+")
SYMBOL = re.compile(r"(\w*_\w*)(?:\(\))?")


@functools.cache
def known():
    """Paths of the tree, and the words of what is no document."""
    words = set()
    for name, text in texts().items():
        if name.startswith(CODE) or os.path.basename(name).startswith("meson"):
            words.update(re.findall(r"\w+", text))
    paths = set(texts())
    for folder in ("tests", "docs"):  # with those that are not read here
        paths |= {os.path.relpath(os.path.join(at, name), ROOT) for at, _, names in os.walk(os.path.join(ROOT, folder)) for name in names}
    return paths, words | {os.path.splitext(os.path.basename(path))[0] for path in paths}


def is_missed(word):
    paths, words = known()
    if word in OTHERS:
        return False
    if SOURCE.fullmatch(word):
        return not any(path == word or path.endswith("/" + word) for path in paths)
    if FOLDER.fullmatch(word):
        return not any(path.startswith(word.rstrip("/")) for path in paths)
    return bool((found := SYMBOL.fullmatch(word)) and found[1].strip("_") and found[1] not in words)


def missed(these):
    for name, text in these.items():
        if DOCUMENTS.fullmatch(name):
            for found in re.finditer(r"`([^`\n]+)`", text):
                if is_missed(found[1]):
                    yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: names {found[1]}, which is nowhere in the sources"


@check("what documents name is there")
def check_names(_):
    """Files, folders and names with an underscore, in `backquotes`."""
    yield from missed(texts())
    for planted in ("`plan_none`", "`src/nowhere/x.c`", "`x_none.c`", "`src/nowhere`"):
        if not list(missed({"docs/a.md": planted})):
            yield f"not seen: {planted}"


@check("a word that comes back is seen")
def check_planted(_):
    for planted in ("struct ct_visitor *visitor;", "/* The birth of a child. */", "ring_bell(bell);", "int heartbeat;", "hurry(drain);",
                    "/* It is let go. */", "const char *remark;", "/* which is told of it */", "int wished;", "char born[8];"):
        if not list(faults({"planted": planted})):
            yield f"not seen: {planted}"


if __name__ == "__main__":
    main(__doc__)
