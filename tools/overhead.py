#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of docs/overhead.md, each below a line `<!-- table NAME -->`, from docs/overhead.json.

    tools/overhead.py                       write the page
    tools/overhead.py --check               change nothing; status 1 when the page and the data differ, or a table has no data
    tools/overhead.py --merge FILE NAME...  first take the results of these tables from a FILE that bench/run.sh wrote: all rows, and
                                            with them date, sources, machine and load. What the page says about them in words
                                            is for you to change

docs/overhead.json has for each table:

    section     of bench/run.sh, which measures its rows; absent where figures are of an experiment that is no bench's
    date, commit, machine, load    of the run; absent where only the page's words say it
    columns     head, key of the value in a row, form of the value, "left" where numbers do not stand at the right
    rows        one a line

A value is a number, a list of numbers, a text (which stays as it is) or null (there is none). A form is a format string for as
many numbers as it has fields, or a list of such, one for each length; the value times `scale` is what is formatted, and
`count` is a number in thousands or millions, `digits` are numbers with two of them. A table that is `sideways` has a column for each row,
below the row's `head`, a form of its calls. A table may have `of` in place of rows: it shows rows of another one as columns. `name` is a
row's program as the bench calls it, if the page has other words.
"""
import argparse
import decimal
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "docs", "overhead.json")
PAGE = os.path.join(ROOT, "docs", "overhead.md")
MARKER = re.compile(r"<!-- table ([\w-]+) -->$")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def write_data(data):
    """JSON with a column and a row a line, so that a diff shows what changed."""
    def line(value):
        return json.dumps(value, ensure_ascii=False)

    def member(key, value):
        many = key in ("columns", "rows")
        return f"  {line(key)}: " + ("[\n" + ",\n".join("   " + line(one) for one in value) + "\n  ]" if many else line(value))
    tables = (f" {line(name)}: {{\n" + ",\n".join(member(*pair) for pair in table.items()) + "\n }" for name, table in data.items())
    write(DATA, "{\n" + ",\n".join(tables) + "\n}\n")


def rounded(value, digits):
    """As people round: 4.55 is 4.6, whatever is nearest to it in binary."""
    return str(decimal.Decimal(repr(value)).quantize(decimal.Decimal(1).scaleb(-digits), decimal.ROUND_HALF_UP))


def text_of(column, value):
    form = column.get("form", "{}")
    if value is None:
        return column.get("none", "-")
    if isinstance(value, str):
        return value
    if form == "count":
        return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value / 1e3:.0f} k"
    values = value if isinstance(value, list) else [value]
    if form == "digits":
        return ", ".join(rounded(one, 1 if one < 9.95 else 0) for one in values)
    form = form[len(values) - 1] if isinstance(form, list) else form
    return form.format(*(one * column["scale"] if "scale" in column else one for one in values))


def looked_up(row, key):
    """all.cpu: the member cpu of the member all."""
    for name in key.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def turned(table, data):
    """The columns and rows of a table that shows some rows of another one side by side."""
    rows = {row["program"]: row for row in data[table["of"]]["rows"]}

    def shown(value):
        return rounded(value, 2 if value < 1.2 else 1)
    columns = [{"head": head, "key": program, "left": True} for head, program in table["programs"]]
    return columns, [{program: shown(looked_up(rows[program], key)) for _, program in table["programs"]} for key in table["keys"]]


def laid_down(table):
    """The columns and rows of a table that has a line for each of its columns."""
    rows = table["rows"]
    columns = [{"head": "", "key": "head", "left": True}]
    columns += [{"head": row["head"].format(row["calls"] / 1e6), "key": row["program"], "left": True} for row in rows]
    return columns, [{"head": column["head"], **{row["program"]: text_of(column, looked_up(row, column["key"])) for row in rows}}
                     for column in table["columns"]]


def columns_and_rows(table, data):
    return turned(table, data) if "of" in table else laid_down(table) if "sideways" in table else (table["columns"], table["rows"])


def line_of(cells):
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def rendered(table, data):
    columns, rows = columns_and_rows(table, data)
    lines = [line_of(column["head"] for column in columns),
             "|" + "|".join("---" if column.get("left") else "---:" for column in columns) + "|"]
    return lines + [line_of(text_of(column, looked_up(row, column["key"])) for column in columns) for row in rows]


def page_of(text, data):
    """The page with its tables from the data; and what is wrong with either."""
    lines, faults, seen, old = [], [], [], text.split("\n")
    at = 0
    while at < len(old):
        begin = at
        while at < len(old) and old[at].startswith("|"):
            at += 1
        table = old[begin:at]
        marker = MARKER.match(lines[-1]) if lines else None
        if marker:
            seen.append(marker[1])
            if marker[1] not in data:
                sys.exit(f"docs/overhead.md:{begin}: docs/overhead.json has no table {marker[1]}")
            fresh = rendered(data[marker[1]], data)
            lines += fresh
            if table != fresh:
                faults.append(f"docs/overhead.md:{begin + 1}: differs from table {marker[1]} of docs/overhead.json: run tools/overhead.py")
        elif table:
            faults.append(f"docs/overhead.md:{begin + 1}: a table that is not in docs/overhead.json")
            lines += table
        if at < len(old):
            lines.append(old[at])
            at += 1
    faults += [f"docs/overhead.json: {name} is not on the page, or more than once" for name in data if seen.count(name) != 1]
    return "\n".join(lines), faults


def significant(value):
    """Four digits of it: more say nothing."""
    if isinstance(value, list):
        return [significant(one) for one in value]
    if isinstance(value, dict):
        return {key: significant(one) for key, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def merge(data, path, names):
    results = json.loads(read(path))
    for name in names:
        table = data.get(name) or sys.exit(f"docs/overhead.json has no table {name}; there are: {' '.join(data)}")
        measured = results.get(table.get("section")) or sys.exit(f"{path} has no results of {table.get('section') or 'such a table'}")
        rows = {row.get("name", row["program"]): row for row in table["rows"]}
        missing = sorted(rows.keys() - measured.keys())
        if missing:
            sys.exit(f"{path} has no results of {', '.join(missing)}, which would pass for some of its run in table {name}")
        for program, figures in measured.items():
            words = {key: value for key, value in rows.get(program, {"program": program}).items() if key in ("name", "program", "head")}
            rows[program] = {**words, **significant(figures)}
        kept = {key: value for key, value in table.items() if key not in ("section", "rows", "date", "commit", "machine", "load", "quick")}
        data[name] = {"section": table["section"], **results["run"], **kept, "rows": list(rows.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--merge", metavar=("FILE", "NAME"), nargs="+")
    options = parser.parse_args()
    data = json.loads(read(DATA))
    if options.merge:
        merge(data, options.merge[0], options.merge[1:])
        write_data(data)
    page, faults = page_of(read(PAGE), data)
    if options.check:
        for fault in faults:
            print(fault)
        return bool(faults)
    write(PAGE, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
