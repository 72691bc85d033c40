#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of docs/transparency.md, between the page's two markers, from docs/transparency.json.

    tools/transparency.py                  write the page
    tools/transparency.py --check          change nothing; status 1 when the page and the data differ
    tools/transparency.py --merge FILE...  first take the results that `tests/transparency.py --json FILE` wrote; a later
                                           result of a case replaces an earlier one

docs/transparency.json has one case a line:

    program    what was run
    group      the table that it is in
    run        "record": started by contrail; "attach": attached to while it worked
    result     "equal", "different" or "skipped"
    note       why it was skipped or differs; that it varies untraced too
    date, commit    of the run and of the sources measured; null where no commit was kept for the single case
    tests      number of verdicts compared, of a test-suite
    known      number of known differences
    machine    only where it was not the machine at the head of the file
    hooked, events, dropped, untraced_seconds, traced_seconds, ratio    absent when nothing was run

The file also has the machine, the options of contrail record, notes for the page, and `runs_without_commits`: how many of
the cases whose commit is null ran with which sources.
"""
import argparse
import collections
import json
import os
import shlex
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "docs", "transparency.json")
PAGE = os.path.join(ROOT, "docs", "transparency.md")
BEGIN, END = "<!-- begin of the tables -->\n", "<!-- end of the tables -->"
HEAD = ["| case | result | functions hooked | events | dropped | untraced | traced | ratio |",
        "|---|---|---:|---:|---:|---:|---:|---:|"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def write_data(data):
    """JSON with one case a line, so that a diff shows the cases that changed."""
    cases = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in data["cases"])
    head = json.dumps({key: value for key, value in data.items() if key != "cases"}, indent=1, ensure_ascii=False)
    write(DATA, head[:-2] + ',\n "cases": [\n' + cases + "\n ]\n}\n")


def case_of(result):
    """A case of our data from one that tests/transparency.py wrote."""
    case = {"program": result["name"], "group": result["group"],
            "run": "attach" if result["group"] == "attached" else "record",
            "result": result["verdict"], "note": result["note"] or (result["faults"] or [""])[0],
            "date": result["date"], "commit": result["commit"]}
    if result.get("tests") is not None:
        case["tests"] = result["tests"]
    if result["known"]:
        case["known"] = len(result["known"])
    if "untraced_seconds" in result:
        untraced, traced = result["untraced_seconds"], result["traced_seconds"]
        case.update({key: result[key] for key in ("hooked", "events", "dropped")})
        case.update(untraced_seconds=round(untraced, 2), traced_seconds=round(traced, 2),
                    ratio=round(traced / max(untraced, 0.001), 1))
    return case


def merge(data, paths):
    cases = {case["program"]: case for case in data["cases"]}
    for path in paths:
        results = json.loads(read(path))
        if results["record"] != data["options"]:
            sys.exit(f"{path}: was run with other options of contrail record: {shlex.join(results['record'])}")
        elsewhere = {"machine": results["machine"]} if results["machine"] != data["machine"] else {}
        cases.update({result["name"]: {**case_of(result), **elsewhere} for result in results["cases"]})
    data["cases"] = sorted(cases.values(), key=lambda case: (case["group"], case["program"]))


def runs(data):
    """The first line: when, of which sources, how many cases each, on which machine."""
    count = collections.Counter({(data["machine"], run["date"], run["commit"]): run["cases"]
                                 for run in data["runs_without_commits"]})
    count.update((case.get("machine", data["machine"]), case["date"], case["commit"])
                 for case in data["cases"] if case["commit"])
    machines = []
    for machine in sorted({key[0] for key in count}, key=lambda machine: (machine != data["machine"], machine)):
        parts = [f"{date}, sources of {commit}" + (f" ({number} cases)" if len(count) > 1 else "")
                 for (where, date, commit), number in sorted(count.items()) if where == machine]
        machines.append(", ".join(parts) + f", on {machine}")
    again = sum(count.values()) - len(data["cases"])
    return ("Run on " + "; ".join(machines) + (f", with `{shlex.join(data['options'])}`" if data["options"] else "")
            + (f"; {again} of the cases without a commit were run again since" if again else "") + ".")


def row(case):
    if "events" not in case:
        return f"| {case['program']} | {case['result']}: {case['note']} | | | | | | |"
    result = case["result"] + (f", {case['tests']:,} tests" if "tests" in case else "")
    result += f", {case['known']} known differences" if "known" in case else ""
    result += ", varies untraced too" if case["note"] else ""
    return (f"| {case['program']} | {result} | {case['hooked']:,} | {case['events']:,} | {case['dropped']:,} | "
            f"{case['untraced_seconds']:.2f} s | {case['traced_seconds']:.2f} s | {case['ratio']:.1f} |")


def tables(data):
    cases = data["cases"]
    count = collections.Counter(case["result"] for case in cases)
    events = sum(case.get("events", 0) for case in cases)
    lines = [runs(data), "",
             f"**{len(cases)} cases: {count['equal']} equal, {count['different']} different, {count['skipped']} skipped; "
             f"{events:,} events recorded.**", ""]
    for note in data["notes"]:
        lines += [note, ""]
    for group in sorted({case["group"] for case in cases}, key=lambda group: (group != "short", group)):
        lines += [f"### {group}", "", *HEAD, *(row(case) for case in cases if case["group"] == group), ""]
    return "\n".join(lines[:-1]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--merge", metavar="FILE", nargs="+")
    options = parser.parse_args()
    data = json.loads(read(DATA))
    if options.merge:
        merge(data, options.merge)
        write_data(data)
    text = read(PAGE)
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE} has lost its markers")
    page = head + begin + tables(data) + end + tail
    if options.check:
        if page != text:
            first = next(number for number, (one, other) in enumerate(zip(page.split("\n"), text.split("\n") + [None]), 1)
                         if one != other)
            print(f"docs/transparency.md:{first}: differs from docs/transparency.json: run tools/transparency.py")
        return page != text
    write(PAGE, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
