#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What recording costs, as ratios to a bare rdtsc and to the untraced call, and the same workload under uftrace.

    bench/run.py [--build DIR] [--quick] [--json FILE] [--only PROGRAM,...] [SECTION...]

    hooks       cost per call and per event of a full hook, from bench/workload.c
    threads     the same with two threads
    exclude     what an excluded function costs
    coroutines  what a visit of a coroutine costs with 1, 100 and 10,000 of them
    disk        events per second into a file, dropped events, bytes per event
    install     how long a program is stopped before it begins, per thousand functions
    arrival     how much longer dlopen takes
    uftrace     the same workload under Debian's uftrace: -pg, -finstrument-functions, dynamic patching
    programs    sqlite3 and python3: time, events, bytes per event
    native      perf stat of the untraced workload, where the machine counts
    library     the library's own micro benchmarks (bench/*_bench.c)

By name only, since they take long (bench/overhead.py):

    event       what an event costs real programs in user time, as a multiple of rdtsc, with the drain at work
    overhead    real programs: what recording costs them, everything and with --exclude-hot
    hot         which functions the events of these programs are of
    budget      what --budget 2%, 5%, 10% leave of servers and other programs, and none (bench/budget.py)
    cost        how good the estimate of a recording's own cost is (bench/cost.py)
    detail      what --args and --detail cost more than events alone (bench/detail.py)
    translated  what a thread costs that runs translated code, and programs from start to end (bench/translated.py)
    itrace_calls  what record --itrace F costs, calls that are recorded as instructions and others (bench/itrace_calls.py)
    mcp         what contrail mcp takes to answer: warm queries, and the first answer after a launch (bench/mcp.py)
    queries     what questions to a trace take, cold and warm, and its report, beside uftrace's (bench/queries.py)
    exports     how fast exports are written, and how large they are (bench/exports.py)
    streams     what sending a trace while it is recorded costs, how much it carries, how soon it is there (bench/streams.py)
    last        a recording of the last stretch that is left on: memory, disk, and whether the last events are there (bench/last.py)

Figures are the median of several runs in a mount that the kernel keeps in memory (TMPDIR, /dev/shm by default). They are written, as
data, to a file of BUILD/bench/results, or to FILE, with the date, the sources, the machine and its load before and after; from
there `tools/overhead.py --merge FILE TABLE` takes them over into a table of docs/overhead.md.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FLAVOURS = {  # how a copy of the workload is built, and how uftrace is told to hook it
    "uftrace -pg": (["-pg"], []),
    "uftrace -finstrument-functions": (["-finstrument-functions"], []),
    "uftrace -P . (patchable entries)": (["-fpatchable-function-entry=5", "-DPATCHABLE"], ["-P", "."]),
    "uftrace -P . (any binary)": ([], ["-P", "."]),
}


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.repeat = 3 if options.quick else 5
        self.scale = 10 if options.quick else 1
        self.results = {}
        self.plain = self.compile("workload", [])

    def compile(self, name, flags):
        path = os.path.join(self.folder, name)
        subprocess.run(["gcc", "-O2", "-g", "-pthread", "-w", *flags, "-o", path, os.path.join(HERE, "workload.c")],
                       check=True)
        return path

    def trace_path(self):
        path = os.path.join(self.folder, "trace")
        shutil.rmtree(path, ignore_errors=True)
        return path

    def run(self, words):
        result = subprocess.run(words, capture_output=True, text=True, cwd=self.folder, timeout=600)
        lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{' '.join(words)}: status {result.returncode}: {result.stderr.strip()[-300:]}")
        return json.loads(lines[-1])

    def native(self, *words):
        return median_of([self.run([self.plain, *words]) for _ in range(self.repeat)])

    def contrail(self, *words):
        """What hooks cost: without what waiting for the drain costs, which the section disk has in it."""
        runs, infos = [], []
        for _ in range(self.repeat):
            trace = self.trace_path()
            runs.append(self.run([self.options.contrail, "record", "--no-wait", "-o", trace, "--", self.plain, *words]))
            infos.append(self.info(trace))
        return median_of(runs), max(infos, key=lambda info: info["dropped"])

    def info(self, trace):
        return json.loads(subprocess.run([self.options.contrail, "info", "--json", trace], capture_output=True, text=True,
                                         check=True).stdout)

    def keep(self, section, **values):
        self.results.setdefault(section, {}).update(values)


def median_of(runs):
    middle = dict(runs[0])
    for key, value in runs[0].items():
        if isinstance(value, float):
            middle[key] = statistics.median(run[key] for run in runs)
    return middle


def row(label, *cells):
    print(f"  {label:<44}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def heading(text, *cells):
    print(f"\n{text}")
    if cells:
        row("", *cells)


def hooks(bench):
    heading("full hook: enter and return, all checks", "untraced", "traced", "hook", "/ 2 rdtsc", "per event")
    for mode, turns in (("leaf", 4000000), ("pair", 1000000), ("fib", 27), ("work", 1000000)):
        turns = turns - 5 if mode == "fib" and bench.scale > 1 else turns if mode == "fib" else turns // bench.scale
        plain = bench.native(mode, str(turns))
        traced, info = bench.contrail(mode, str(turns))
        cost = traced["ns_per_call"] - plain["ns_per_call"]
        ratio = cost / (2 * plain["rdtsc_ns"])
        row(mode, f"{plain['ns_per_call']:.2f} ns", f"{traced['ns_per_call']:.2f} ns", f"{cost:.2f} ns", f"{ratio:.2f}",
            f"{cost / 2:.2f} ns")
        bench.keep("hooks", **{mode: {"untraced_ns": plain["ns_per_call"], "hook_ns": cost, "per_two_rdtsc": ratio,
                                      "dropped": info["dropped"]}})
        rdtsc = plain["rdtsc_ns"]
    row("a bare rdtsc", f"{rdtsc:.2f} ns")
    bench.keep("hooks", rdtsc_ns=rdtsc)


def threads(bench):
    heading("full hook, two threads at once; processor time is without what the drain takes of the processors", "untraced",
            "traced", "hook", "processor time", "dropped")
    turns = str(1000000 // bench.scale)
    plain = bench.native("pair", turns, "2")
    traced, info = bench.contrail("pair", turns, "2")
    row("pair", f"{plain['ns_per_call']:.2f} ns", f"{traced['ns_per_call']:.2f} ns",
        f"{traced['ns_per_call'] - plain['ns_per_call']:.2f} ns",
        f"{traced['cpu_ns_per_call'] - plain['cpu_ns_per_call']:.2f} ns", info["dropped"])
    bench.keep("threads", hook_ns=traced["ns_per_call"] - plain["ns_per_call"],
               hook_cpu_ns=traced["cpu_ns_per_call"] - plain["cpu_ns_per_call"], dropped=info["dropped"])


def exclude(bench):
    heading("an excluded function", "untraced", "traced", "cost", "events")
    for mode, turns, options in (("leaf", 4000000, ["--exclude", "leaf"]), ("pair", 1000000, ["--exclude", "workload!"]),
                                 ("work", 1000000, ["--exclude", "w*k"])):
        turns = str(turns // bench.scale)
        plain, runs, info = [], [], None
        for _ in range(bench.repeat):  # in turns: the cost is the difference of two small numbers
            plain.append(bench.run([bench.plain, mode, turns]))
            trace = bench.trace_path()
            runs.append(bench.run([bench.options.contrail, "record", *options, "-o", trace, "--", bench.plain, mode, turns]))
            info = bench.info(trace)
        untraced, traced = median_of(plain)["ns_per_call"], median_of(runs)["ns_per_call"]
        row(f"{mode}, {' '.join(options)}", f"{untraced:.2f} ns", f"{traced:.2f} ns", f"{traced - untraced:.2f} ns",
            info["events"])
        bench.keep("exclude", **{mode: {"untraced_ns": untraced, "traced_ns": traced}})


def coroutines(bench):
    heading("coroutines: two switches and ten calls", "untraced", "traced", "cost", "/ one coroutine", "dropped")
    program = os.path.join(bench.folder, "coroutines")
    subprocess.run(["gcc", "-O2", "-w", "-o", program, os.path.join(HERE, "coroutines.c")], check=True)
    visits, counts = str(1000000 // bench.scale), (1, 100, 10000)
    for mode in ("own", "ucontext"):
        plain, traced, dropped = {count: [] for count in counts}, {count: [] for count in counts}, 0
        for _ in range(bench.repeat):  # in turns: what the machine does meanwhile is the same for all
            for count in counts:
                words = [program, mode, str(count), visits, "10"]
                plain[count].append(bench.run(words)["ns_per_visit"])
                trace = bench.trace_path()
                words = [bench.options.contrail, "record", "-o", trace, "--", *words]
                traced[count].append(bench.run(words)["ns_per_visit"])
                dropped = max(dropped, bench.info(trace)["dropped"])
        costs = {count: statistics.median(traced[count]) - statistics.median(plain[count]) for count in counts}
        for count in counts:
            row(f"{mode}, {count:,}", f"{statistics.median(plain[count]):.1f} ns", f"{statistics.median(traced[count]):.1f} ns",
                f"{costs[count]:.1f} ns", f"{costs[count] / costs[1]:.2f}", dropped)
        bench.keep("coroutines", **{mode: {str(count): costs[count] for count in counts}})
    for depth in (1, 200, 1000):
        plain, traced, dropped = [], [], 0
        for _ in range(bench.repeat):
            words = [program, "copied", str(depth), visits, "10"]
            plain.append(bench.run(words)["ns_per_visit"])
            trace = bench.trace_path()
            traced.append(bench.run([bench.options.contrail, "record", "-o", trace, "--", *words])["ns_per_visit"])
            dropped = max(dropped, bench.info(trace)["dropped"])
        cost = statistics.median(traced) - statistics.median(plain)
        row(f"copied, {depth:,} frames deep", f"{statistics.median(plain):.1f} ns", f"{statistics.median(traced):.1f} ns",
            f"{cost:.1f} ns", "", dropped)
        bench.keep("coroutines", **{f"copied {depth}": cost})


def disk(bench):
    heading("sustained to a file", "events", "dropped", "events/s", "bytes/event")
    for mode, turns in (("pair", 20000000), ("fib", 34), ("work", 10000000)):
        turns = turns - 5 if mode == "fib" and bench.scale > 1 else turns if mode == "fib" else turns // bench.scale
        trace = bench.trace_path()
        begin = time.monotonic()
        bench.run([bench.options.contrail, "record", "-o", trace, "--", bench.plain, mode, str(turns)])
        info = bench.info(trace)
        seconds = time.monotonic() - begin - info["install_ns"] / 1e9
        rate = info["events"] / seconds
        per_event = info["bytes"] / info["events"]
        row(mode, info["events"], info["dropped"], f"{rate / 1e6:.1f} M", f"{per_event:.3f}")
        bench.keep("disk", **{mode: {"events": info["events"], "dropped": info["dropped"], "per_second": rate,
                                     "bytes_per_event": per_event}})


def with_and_without_cache(bench, run):
    """run(environment) twice the usual number of times: each with an empty analysis cache, then with a filled one."""
    results = []
    for fresh in (True, False):
        figures = []
        for _ in range(bench.repeat):
            cache = os.path.join(bench.folder, "cache")
            if fresh:
                shutil.rmtree(cache, ignore_errors=True)
            figures.append(run(dict(os.environ, CONTRAIL_CACHE=cache)))
        results.append(figures)
    return results


def install(bench):
    heading("installation: how long the program is stopped before its first instruction", "functions", "first run",
            "per 1,000", "from the cache", "per 1,000")
    programs = [("workload", [bench.plain, "leaf", "10"])]
    for name, words in (("git", ["git", "--version"]), ("python3", ["/usr/bin/python3", "-c", "0"]),
                        ("node", ["node", "--version"]), ("clang-14", ["/usr/lib/llvm-14/bin/clang", "--version"])):
        if shutil.which(words[0]):
            programs.append((name, words))
    for name, words in programs:
        hooked = 0

        def run(environment):
            nonlocal hooked
            trace = bench.trace_path()
            subprocess.run([bench.options.contrail, "record", "-o", trace, "--", *words], capture_output=True, check=True,
                           env=environment)
            info = bench.info(trace)
            hooked = sum(module["hooked"] for module in info["modules"])
            return info["install_ns"] / 1e6
        first, cached = (statistics.median(figures) for figures in with_and_without_cache(bench, run))
        row(name, hooked, f"{first:.1f} ms", f"{first / hooked * 1000:.2f} ms", f"{cached:.1f} ms",
            f"{cached / hooked * 1000:.2f} ms")
        bench.keep("install", **{name: {"functions": hooked, "ms": first, "cached_ms": cached}})


LIBRARIES = ["libz.so.1", "libsqlite3.so.0", "libstdc++.so.6", "libcrypto.so.3", "libpython3.11.so.1.0", "libLLVM-14.so.1"]


def arrival(bench):
    heading("a library's arrival: dlopen longer than untraced", "functions", "untraced", "first run", "per 1,000",
            "from the cache", "per 1,000")
    program = os.path.join(bench.folder, "arrival")
    subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "arrival.c"), "-ldl"], check=True)
    for library in LIBRARIES:
        plain = [subprocess.run([program, library], capture_output=True, text=True) for _ in range(bench.repeat)]
        if plain[0].returncode != 0:
            continue
        untraced = statistics.median(int(result.stdout) / 1e6 for result in plain)
        hooked = 0

        def run(environment):
            nonlocal hooked
            trace = bench.trace_path()
            out = subprocess.run([bench.options.contrail, "record", "-o", trace, "--", program, library],
                                 capture_output=True, text=True, check=True, env=environment)
            modules = [module for module in bench.info(trace)["modules"]]
            hooked = sum(module["hooked"] for module in modules[bench.modules_at_start:])
            return int(out.stdout) / 1e6 - untraced
        bench.modules_at_start = count_modules(bench, program)
        first, cached = (statistics.median(figures) for figures in with_and_without_cache(bench, run))
        row(library, hooked, f"{untraced:.1f} ms", f"{first:.1f} ms", f"{first / hooked * 1000:.2f} ms", f"{cached:.1f} ms",
            f"{cached / hooked * 1000:.2f} ms")
        bench.keep("arrival", **{library: {"functions": hooked, "ms": first, "cached_ms": cached}})


def count_modules(bench, program):
    trace = bench.trace_path()
    subprocess.run([bench.options.contrail, "record", "-o", trace, "--", program], capture_output=True, check=True)
    return len(bench.info(trace)["modules"])


def uftrace(bench):
    if not shutil.which("uftrace"):
        print("\nuftrace: not installed")
        return
    heading("the same workload under uftrace " + subprocess.run(["uftrace", "--version"], capture_output=True,
            text=True).stdout.split()[1], "untraced", "traced", "per call hooked", "calls hooked", "lost")
    turns = str(1000000 // bench.scale)
    for name, (flags, words) in FLAVOURS.items():
        program = bench.compile("w" + str(abs(hash(name)) % 1000), flags)
        plain = bench.native("pair", turns)
        runs, sizes, lost = [], [], 0
        try:
            for _ in range(bench.repeat):
                data = os.path.join(bench.folder, "uftrace.data")
                shutil.rmtree(data, ignore_errors=True)
                command = ["uftrace", "record", "-d", data, *words, program, "pair", turns]
                result = subprocess.run(command, capture_output=True, text=True, cwd=bench.folder, timeout=600)
                lost += sum(int(n) for n in re.findall(r"LOST (\d+)", result.stderr + result.stdout))
                lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
                if not lines:
                    raise RuntimeError((result.stderr.strip() or f"status {result.returncode}").splitlines()[-1])
                runs.append(json.loads(lines[-1]))
                sizes.append(sum(os.path.getsize(os.path.join(data, f)) for f in os.listdir(data) if f.endswith(".dat")))
        except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
            row(name, "", f"does not run: {str(error)[:80]}")
            continue
        traced = median_of(runs)
        share = statistics.median(sizes) / 16 / (2 * traced["calls"] * traced["rounds"])
        cost = traced["ns_per_call"] - plain["ns_per_call"]
        if share < 0.01:
            row(name, f"{plain['ns_per_call']:.2f} ns", f"{traced['ns_per_call']:.2f} ns", "nothing hooked")
            continue
        row(name, f"{plain['ns_per_call']:.2f} ns", f"{traced['ns_per_call']:.2f} ns", f"{cost / share:.2f} ns",
            f"{min(share, 1):.0%}", lost)
        bench.keep("uftrace", **{name: {"hook_ns": cost / share, "bytes_per_event": 16, "calls_hooked": share,
                                        "lost": lost}})


def programs(bench):
    heading("programs", "untraced", "traced", "events", "dropped", "bytes/event")
    sys.path.insert(0, os.path.join(ROOT, "tests"))
    from programs import SQL, pythons
    script = os.path.join(bench.folder, "script.sql")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SQL)
    python_script = os.path.join(ROOT, "tests", "programs", "script.py")
    cases = [("sqlite3, 100,000 rows", ["sqlite3", ":memory:", ".read " + script]),
             ("/usr/bin/python3 (stripped)", ["/usr/bin/python3", python_script])]
    if pythons():
        cases.append(("python3 (unstripped)", [pythons()[-1], python_script]))
    for name, words in cases:
        if not shutil.which(words[0]):
            continue
        seconds = []
        for _ in range(bench.repeat):
            begin = time.monotonic()
            subprocess.run(words, capture_output=True, cwd=bench.folder)
            seconds.append(time.monotonic() - begin)
        trace = bench.trace_path()
        begin = time.monotonic()
        subprocess.run([bench.options.contrail, "record", "-o", trace, "--", *words], capture_output=True,
                       cwd=bench.folder)
        info = bench.info(trace)
        traced = time.monotonic() - begin
        row(name, f"{statistics.median(seconds):.2f} s", f"{traced:.2f} s", info["events"], info["dropped"],
            f"{info['bytes'] / info['events']:.3f}")
        bench.keep("programs", **{name: {"untraced_s": statistics.median(seconds), "traced_s": traced,
                                         "events": info["events"], "dropped": info["dropped"],
                                         "bytes_per_event": info["bytes"] / info["events"]}})


def native(bench):
    heading("the untraced workload, as the processor counts it")
    if not shutil.which("perf"):
        print("  no perf")
        return
    result = subprocess.run(["perf", "stat", "-e", "instructions:u,cycles:u,branches:u,branch-misses:u,task-clock", "--",
                             bench.plain, "pair", str(5000000 // bench.scale)], capture_output=True, text=True)
    lines = [line.strip() for line in result.stderr.splitlines() if re.match(r"\s+[\d<]", line)]
    print("\n".join("  " + line for line in lines) or "  nothing")


def library(bench):
    for source in sorted(name for name in os.listdir(HERE) if name.endswith("_bench.c")):
        name = source[:-2]
        heading(name)
        built = subprocess.run(["ninja", "-C", bench.options.build, "--quiet", f"bench/{name}"], capture_output=True,
                               text=True)
        if built.returncode:
            print("  does not build: " + built.stdout.strip()[-300:])
            continue
        result = subprocess.run([os.path.join(bench.options.build, "bench", name)], capture_output=True, text=True,
                                cwd=bench.folder)
        print("\n".join("  " + line for line in result.stdout.splitlines()))


def overhead(bench):
    import overhead as programs_of
    bench.results["overhead"] = programs_of.overhead(bench.options, bench.folder)


def event(bench):
    import overhead as programs_of
    bench.results["event"] = programs_of.event(
        bench.options, bench.folder, lambda: bench.run([bench.plain, "leaf", "200000"])["rdtsc_ns"])


def hot(bench):
    import overhead as programs_of
    bench.results["hot"] = programs_of.hot(bench.options, bench.folder)


def cost(bench):
    import cost as of_programs
    bench.options.rounds = bench.repeat
    bench.results["cost"] = of_programs.cost(bench.options, bench.folder)


def budget(bench):
    import budget as programs_of
    bench.results["budget"] = programs_of.main(bench.options)


def detail(bench):
    import detail as programs_of
    bench.results["detail"] = programs_of.main(bench.options, bench.folder)


def mcp(bench):
    import mcp as of_agents
    bench.results["mcp"] = of_agents.answers(bench.options, bench.folder)


def queries(bench):
    import queries as of_traces
    bench.results["queries"] = of_traces.queries(bench.options, bench.folder)


def itrace_calls(bench):
    import itrace_calls as code
    bench.results["itrace_calls"] = code.itrace_calls(bench.options, bench.folder)


def translated(bench):
    import translated as code
    bench.results["translated"] = code.translated(bench.options, bench.folder)


def exports(bench):
    import exports as of_formats
    bench.results["exports"] = of_formats.exports(bench.options, bench.folder)


def streams(bench):
    import streams as of_traces
    print("streams")
    bench.results["streams"] = of_traces.streams(bench)


def last(bench):
    import last as of_recordings
    bench.results["last"] = of_recordings.last(bench.options, bench.folder)


SECTIONS = [hooks, threads, exclude, coroutines, disk, install, arrival, uftrace, programs, native, library]
BY_NAME = [event, overhead, hot, budget, cost, detail, queries, mcp, exports, itrace_calls, streams, translated, last]


def about_the_run(options, load):
    """Where, when and of what the figures are: as docs/overhead.json has it of each table."""
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True, check=False).stdout.strip()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    run = {"date": time.strftime("%Y-%m-%d"), "commit": commit or None, "machine": f"{len(os.sched_getaffinity(0))} processors, {model}",
           "load": f"{load:.1f}, at the end {os.getloadavg()[0]:.1f}"}
    return {**run, "quick": True} if options.quick else run


def write_results(options, results, load):
    path = options.json or os.path.join(options.build, "bench", "results", time.strftime("%Y-%m-%d-%H%M%S.json"))
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"run": about_the_run(options, load), **results}, file, indent=2)
    print(f"\nfigures: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a look")
    parser.add_argument("--json", help="write the figures to this file, not to one of the day and time")
    parser.add_argument("--only", help="these programs of overhead, hot, budget and detail, by a part of the name")
    parser.add_argument("--budgets", help="budget: these instead of 2, 5, 10 %% and none")
    parser.add_argument("--top", type=int, default=40, help="hot: so many functions of each program")
    parser.add_argument("--record", default="", help="hot: options for contrail record")
    parser.add_argument("--events", type=int, default=0, help="queries, exports, streams, last: a trace with so many events")
    parser.add_argument("sections", nargs="*")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.contrail = os.path.join(options.build, "contrail")
    known = {section.__name__: section for section in SECTIONS + BY_NAME}
    for name in options.sections:
        if name not in known:
            parser.error(f"no section {name}; there are: {' '.join(known)}")
    load = os.getloadavg()[0]
    base = os.environ.get("TMPDIR") or ("/dev/shm" if os.path.isdir("/dev/shm") else None)
    with tempfile.TemporaryDirectory(prefix="contrail-bench.", dir=base) as folder:
        bench = Bench(options, folder)
        for section in [known[name] for name in options.sections] or SECTIONS:
            try:
                section(bench)
            except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                print(f"  {section.__name__} failed: {error}")
        write_results(options, bench.results, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
