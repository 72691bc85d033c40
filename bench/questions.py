# SPDX-License-Identifier: MIT
"""The table of docs/questions.md: what each question costs on one long trace, in one command.

    bench/run.sh queries --events 2000000000

It is part of `queries` (queries.py), whose program is recorded. Printed first: the events, the bytes of the trace and of its index, what
making the index took, and the report without it. Then, for each question, the processor time of the whole command on one processor, the
minimum and the median of five runs, warm; and the time by the clock of one run whose files the kernel does not have in memory (cold),
which needs a TMPDIR on a disk.
"""
import os
import resource
import statistics
import subprocess
import time

RUNS = 5
TMPFS = 0x01021994


def questions(trace):
    places = trace.places()
    between = "start BETWEEN {t} AND {t} + {ns}"

    def sql(text, **more):
        return ["sql", "--json", trace.path, text.format(**places, **more)]

    def view(*words):
        return [*words, "--json", trace.path]
    return {
        "report": view("report"),
        "info": view("info"),
        "report --callers F": view("report", "--callers", "leaf1"),
        "report --callees F": view("report", "--callees", "mid"),
        "report --by module": view("report", "--by", "module"),
        "report --by thread": view("report", "--by", "thread"),
        "graph": view("graph"),
        "graph F": view("graph", "mid"),
        "sql: totals per function": sql("SELECT name, calls, total, self FROM functions WHERE calls > 0 ORDER BY self DESC LIMIT 20"),
        "sql: callers of a function": sql("SELECT caller, calls, total FROM edges WHERE callee = 'leaf1'"),
        "sql: self time per function within 2 ms": sql(f"SELECT function, count(*), sum(self) FROM spans WHERE {between} GROUP BY 1", ns=2000000),
        "sql: calls of a function within 1 ms": sql(f"SELECT count(*), sum(duration) FROM spans WHERE function = 'leaf1' AND {between}", ns=1000000),
        "sql: the 20 longest calls of a function that was called often":
            sql("SELECT id, start, duration FROM spans WHERE function = 'leaf3' ORDER BY duration DESC LIMIT 20"),
        "sql: the calls that one call made": sql("SELECT id, function, duration FROM spans WHERE parent_id = {id}"),
        "sql: the number of calls of 1 ms or more on a thread":
            sql("SELECT count(*), max(duration) FROM spans WHERE thread = 0 AND duration >= 1000000"),
        "sql: of 5 ms or more": sql("SELECT count(*), max(duration) FROM spans WHERE duration >= 5000000"),
        "sql: the number of calls; the last begin": sql("SELECT count(*), max(start) FROM spans"),
        "sql: by function, number, shortest and longest":
            sql("SELECT function, count(*), min(duration), max(duration) FROM spans GROUP BY 1"),
        "sql: by thread, number and longest": sql("SELECT thread, count(*), max(duration) FROM spans GROUP BY 1"),
        "sql: the 20 last calls": sql('SELECT id, function, "end" FROM spans ORDER BY start DESC LIMIT 20'),
        "slowest: the longest call of a function": view("slowest", "leaf3", "-n", "1"),
        "slowest: the 5 longest": view("slowest", "leaf3", "-n", "5"),
        "slowest: the 20 longest": view("slowest", "leaf3", "-n", "20"),
        "slowest: the 5 longest of one with many calls inside": view("slowest", "chunk", "-n", "5"),
    }


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(trace, words):
    """By the clock and of the processor, in ms."""
    begin, begin_spent = time.perf_counter(), spent()
    subprocess.run(["taskset", "-c", str(max(os.sched_getaffinity(0))), trace.contrail, *words], stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.perf_counter() - begin), 1000 * (spent() - begin_spent)


def make_cold(path):
    """The kernel gives up what it has of these files; False: they are nowhere else."""
    kind = subprocess.run(["stat", "-f", "-c", "%t", path], capture_output=True, text=True, check=True).stdout
    if int(kind, 16) == TMPFS:
        return False
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
    return True


def table(trace):
    events, size = trace.info["events"], trace.info["bytes"]
    trace.forget()
    _, report = run(trace, ["report", "--json", trace.path])  # it makes no index
    _, making = run(trace, trace.ask("SELECT name FROM functions WHERE calls > 0")[1:])
    index = os.path.getsize(trace.index) if os.path.exists(trace.index) else 0
    print(f"\n{events:,} events in {size:,} bytes; the index {index:,} bytes, {100 * index / size:.1f} %")
    print(f"making the index, once: {making / 1000:.1f} s of a processor, {events / making / 1000:.1f} M events/s and core")
    print(f"report without an index: {report / 1000:.1f} s of a processor, {events / report / 1000:.1f} M events/s and core")
    print("\n| question | minimum | median | cold, by the clock |\n|---|---|---|---|")
    result = {"events": events, "bytes": size, "index_bytes": index, "index_processor_ms": making,
              "report_processor_ms": report, "questions": {}}
    for name, words in questions(trace).items():
        times = [run(trace, words)[1] for _ in range(RUNS)]
        cold = run(trace, words)[0] if make_cold(trace.path) else None
        result["questions"][name] = {"minimum_ms": min(times), "median_ms": statistics.median(times), "cold_ms": cold}
        print(f"| {name} | {min(times):.1f} ms | {statistics.median(times):.1f} ms | {'' if cold is None else f'{cold:.0f} ms'} |", flush=True)
    return result
