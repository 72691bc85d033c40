#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail export --to parquet: the four tables, by a decoder made from the published description, and by DuckDB, against report and
replay.

    tests/exportparquet.py [--filter PATTERN] [--build DIR]
"""
import collections
import json
import os
import subprocess

import harness
from export import Scene, compare_rows, csv_rows, near, varint
from harness import case, expect, main


def zigzag(value):
    return value >> 1 ^ -(value & 1)


def thrift(data, at):
    """(fields, end) of a structure in the compact protocol."""
    values, number = {}, 0

    def value_of(kind, at):
        if kind in (3, 4, 5, 6):
            value, at = varint(data, at)
            return zigzag(value), at
        if kind == 8:
            size, at = varint(data, at)
            return data[at:at + size], at + size
        if kind == 9:
            head, at = data[at], at + 1
            size = head >> 4
            if size == 15:
                size, at = varint(data, at)
            items = []
            for _ in range(size):
                item, at = value_of(head & 15, at)
                items.append(item)
            return items, at
        expect(kind == 12, f"a Thrift type {kind}")
        return thrift(data, at)

    while data[at] != 0:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = varint(data, at)
            number = zigzag(number)
        values[number], at = value_of(head & 15, at)
    return values, at + 1


def delta_packed(data):
    """The values of DELTA_BINARY_PACKED."""
    block, at = varint(data, 0)
    parts, at = varint(data, at)
    count, at = varint(data, at)
    value, at = varint(data, at)
    values, size = [zigzag(value)], block // parts
    while len(values) < count:
        least, at = varint(data, at)
        widths, at = data[at:at + parts], at + parts
        for width in widths:
            bits, at = int.from_bytes(data[at:at + size * width // 8], "little"), at + size * width // 8
            for i in range(min(size, count - len(values))):
                values.append(values[-1] + zigzag(least) + (bits >> i * width & (1 << width) - 1))
    expect(at == len(data), "bytes after the last block")
    return values


def plain(data, kind):
    values, at = [], 0
    while at < len(data):
        if kind == 6:
            length = int.from_bytes(data[at:at + 4], "little")
            at += 4 + length
            values.append(data[at - length:at].decode())
        else:
            at += 4 if kind == 1 else 8
            values.append(int.from_bytes(data[at - (4 if kind == 1 else 8):at], "little", signed=True))
    expect(at == len(data), "bytes after the last value")
    return values


def hybrid(data, count):
    """The values of RLE and bit-packed runs, of the width that the first byte says."""
    width, at, values = data[0], 1, []
    while at < len(data):
        head, at = varint(data, at)
        if head & 1:
            size = (head >> 1) * width
            for eight in range(at, at + size, width):
                bits = int.from_bytes(data[eight:eight + width], "little")
                values += [bits >> i * width & (1 << width) - 1 for i in range(8)]
        else:
            size = (width + 7) // 8
            values += [int.from_bytes(data[at:at + size], "little")] * (head >> 1)
        at += size
    expect(at == len(data) and count <= len(values) < count + 8 and not any(values[count:]), "runs")
    return values[:count]


def chunk_values(data, chunk, kind, unpack):
    """(values, (type, encoding, 1) of each page, how many differ): the pages of a column in a group."""
    values, entries, pages, sizes = [], None, [], [0, 0]
    at = begin = chunk.get(11, chunk[9])
    while at < begin + chunk[7]:
        where = at
        head, at = thrift(data, at)
        page, at = unpack(data[at:at + head[3]]), at + head[3]
        expect(len(page) == head[2], f"{chunk[3]}: its page")
        sizes = [sizes[0] + at - where - head[3] + head[2], sizes[1] + at - where]
        if head[1] == 2:
            expect(not pages and head[7][2] == 0 and where == chunk[11], f"{chunk[3]}: its dictionary")
            entries = plain(page, kind)
            expect(len(entries) == head[7][1] == len(set(entries)), f"{chunk[3]}: entries of its dictionary")
            pages.append((2, 0, 1))
            continue
        expect(head[1] == 0 and (values or where == chunk[9]), f"{chunk[3]}: its first page")
        encoding, before = head[5][2], len(values)
        if encoding == 8:
            values += [entries[index] for index in hybrid(page, head[5][1])]
            expect(set(values) == set(entries), f"{chunk[3]}: the dictionary has more than there is")
        else:
            values += delta_packed(page) if encoding == 5 else plain(page, kind)
        expect(len(values) - before == head[5][1], f"{chunk[3]}: values of a page")
        pages.append((0, encoding, 1))
    expect([page[1] for page in pages] == chunk[2] and len(values) == chunk[5] and sizes == [chunk[6], chunk[7]], f"{chunk[3]}: its chunk")
    return values, pages, len(set(values))


class Table(dict):
    def __init__(self, columns):
        super().__init__(columns)
        self.pages = collections.defaultdict(list)


def parquet_table(path, unpack, wanted=None):
    """{column: values} of a file, or of some columns, with its statistics checked. The pages of each go to table.pages."""
    with open(path, "rb") as file:
        data = file.read()
    expect(data[:4] == data[-4:] == b"PAR1", "magic")
    size = int.from_bytes(data[-8:-4], "little")
    meta, end = thrift(data[-8 - size:-8], 0)
    expect(end == size, "metadata")
    names = [element[4].decode() for element in meta[2][1:]]
    expect(meta[2][0][5] == len(names) and all(element[3] == 0 for element in meta[2][1:]), "schema")
    table = Table((name, []) for name in names if wanted is None or name in wanted)
    expect(len(meta[7]) == len(names) and all(order == {1: {}} for order in meta[7]), "orders of columns")
    for group in meta[4]:
        sizes = [0, 0]
        for name, element, chunk in zip(names, meta[2][1:], group[1]):
            chunk = chunk[3]
            sizes = [sizes[0] + chunk[6], sizes[1] + chunk[7]]
            if name not in table:
                continue
            expect(chunk[3] == [name.encode()] and chunk[1] == element[1] and chunk[4] == 6, f"{name}: its chunk")
            values, encodings, distinct = chunk_values(data, chunk, element[1], unpack)
            expect(encodings == [tuple(page[i] for i in (1, 2, 3)) for page in chunk[13]], f"{name}: its pages {encodings}")
            told = chunk[12]
            if element[1] == 6:
                found = tuple(told[i].decode() if i in told else None for i in (6, 5))
                least, greatest = (text if len(text.encode()) <= 256 else None for text in (min(values, key=str.encode), max(values, key=str.encode)))
                expect((least, greatest) == found, f"{name}: statistics {found}")
            else:
                found = tuple(int.from_bytes(told[i], "little", signed=True) for i in (6, 5))
                expect((min(values), max(values)) == found and len(told[5]) == (4 if element[1] == 1 else 8), f"{name}: statistics {found}")
            expect(told[3] == 0 and told.get(4, distinct) == distinct, f"{name}: distinct {told.get(4)}")
            table.pages[name].append([page[1] for page in encodings])
            expect(len(values) == group[3], f"{name}: {len(values)} values of {group[3]}")
            table[name] += values
        expect(sizes == [group[2], group[6]], "sizes of a group")
    expect(all(len(values) == meta[3] for values in table.values()), "rows")
    return table


def unpack(data):
    result = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=False)
    expect(result.returncode == 0, "zstd")
    return result.stdout


def parquet_rows(scene, folder):
    expect(sorted(os.listdir(folder)) == ["edges.parquet", "functions.parquet", "spans.parquet", "threads.parquet"], "files")
    spans, functions, edges = (parquet_table(os.path.join(folder, f"{name}.parquet"), unpack) for name in ("spans", "functions", "edges"))
    expect(functions["id"] == list(range(len(functions["id"]))), "ids of functions")
    threads = parquet_table(os.path.join(folder, "threads.parquet"), unpack)
    expect(set(zip(spans["pid"], spans["tid"])) <= set(zip(threads["pid"], threads["tid"])), "threads")
    # Edges are the sums of the spans, by caller and callee.
    of = dict(zip(zip(spans["pid"], spans["id"]), spans["function"]))
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for pid, parent, function, lost, *numbers in zip(*(spans[key] for key in ("pid", "parent", "function", "lost", "calls", "duration_ns", "self_ns"))):
        if not lost and ((pid, parent) in of or not parent):
            for i, number in enumerate(numbers):
                sums[of[pid, parent] if parent else -1, function][i] += number
    sums = dict(sums)
    if all(not parent or (pid, parent) in of for pid, parent in zip(spans["pid"], spans["parent"])):  # no caller is left out
        found = {(caller, callee): numbers for caller, callee, *numbers in zip(*edges.values())}
        expect(found == sums, f"edges: {[key for key in found if found[key] != sums.get(key)][:3]}")
    return [dict(zip(("name", "module", *spans), (functions["name"][function], functions["module"][function], *row)))
            for function, row in zip(spans["function"], zip(*spans.values()))]


# Few depths and then many, in a row group that has room for a dictionary of them and in one that has not.
DEPTHS = r"""
static volatile long sum;
__attribute__((noinline)) long leaf(long n) { return sum += n; }
__attribute__((noinline)) long deep(long n) { return n == 0 ? 0 : deep(n - 1) + leaf(1); }
static void leaves(long n) { for (long i = 0; i < n; i++) leaf(i); }
int main(void) { leaves(80000); deep(20000); leaves(20000); deep(20000); leaves(10000); }
"""


DUCKDB = """import { DuckDBInstance } from '@duckdb/node-api';
const c = await (await DuckDBInstance.create(':memory:')).connect();
for (const q of process.argv.slice(2))
  console.log(JSON.stringify((await c.runAndReadAll(q)).getRows(), (k, v) => typeof v === 'bigint' ? Number(v) : v));
"""


@case
def parquet_calls(scene):
    """The four tables, by a decoder of our own."""
    harness.need("zstd")
    return compare_rows(scene, "parquet", lambda folder: parquet_rows(scene, folder))


@case
def parquet_falls_back(scene):
    """A column whose values become too many for a dictionary goes on as differences; one of many from the begin is nothing else; rows
    of two groups are those of CSV."""
    harness.need("zstd")
    scene.record("-q", "--trace", "leaf", "--trace", "deep", "--", scene.compile(scene.write("depths.c", DEPTHS), "-O1"))
    wanted = csv_rows(scene.export("csv"))
    path = os.path.join(scene.export("parquet", into="tables"), "spans.parquet")
    table = parquet_table(path, unpack, ("id", "start_ns", "duration_ns", "self_ns", "depth", "end"))
    found = sorted(zip(*(table[key] for key in table)))
    expect(found == sorted(tuple(row[key] for key in table) for row in wanted), "the rows differ from CSV's")
    pages = table.pages
    expect(pages["depth"] == [[0, 8, 5], [5]] and pages["id"] == [[5], [5]] and pages["end"] == [[0, 8]] * 2, f"{dict(pages)}")
    return f"{len(found)} calls"


@case
def duckdb_reads(scene):
    """DuckDB, from its npm package, reads Parquet, CSV and JSON lines: the sums of each function are report's."""
    os.symlink(harness.npm(scene.build_dir, "@duckdb/node-api"), scene.path("node_modules"))
    scene.own("children", options=("--follow",))
    folder = scene.export("parquet", into="tables")
    scene.export("csv", into="x.csv")
    scene.export("jsonl", into="x.jsonl.gz")
    script = scene.write("ask.mjs", DUCKDB)
    sums = "SELECT name, sum(calls), sum(self_ns) FROM {} GROUP BY 1"
    answers = scene.run("node", script, sums.format(f"'{folder}/spans.parquet' s JOIN '{folder}/functions.parquet' f ON s.function = f.id"),
                        sums.format(f"read_csv('{scene.path('x.csv')}')"), sums.format(f"read_json('{scene.path('x.jsonl.gz')}')")).splitlines()
    wanted = scene.functions("--family")
    for form, answer in zip(("parquet", "csv", "jsonl"), answers):
        rows = {name: numbers for name, *numbers in json.loads(answer)}
        near(f"{form} calls", {name: row[0] for name, row in rows.items()}, {name: row[0] for name, row in wanted.items()}, 0)
        for name, (calls, self_ns) in rows.items():
            expect(abs(self_ns - wanted[name][1]) <= 2 + calls, f"{form}: {name}: {self_ns} ns, not {wanted[name][1]}")
    return f"{len(rows)} functions"


if __name__ == "__main__":
    main(__doc__, Scene)
