# SPDX-License-Identifier: MIT
"""What a budget leaves of a program: --budget 2%, 5% and 10% on servers under load, and on programs that compute.

    bench/run.sh budget [--only NAME,...] [--budgets 2%,10%,none]

Each program runs all the time, beside a twin: the same program under the same load, on the same processor. In turns both are left
alone, and one of them is attached to with a budget for some seconds, of which the first two do not count (it settles in them).
What is measured is work for a second of the program's own processor time, against the twin's in the same seconds; that ratio against the
ratio of the turns beside it in which both were left alone is *work*: the median of the turns, with the least and the greatest. So
neither a load generator that shares the processors, nor other programs, nor a machine that changes its pace is taken for a
cost. *processor* is how much of one the program had meanwhile: beside other programs it has little, and what the recorder takes in any case weighs
more. *recorder* is the processor time of the recorder's process in the same seconds, as a share of the program's, *hooks* what hooks cost by
the recorder's own account, and *with it* the work for a second of the program's and the recorder's time together: a budget of 5 % is for both.

After that one more turn says what is still seen. *functions* are those in full at its end. *time* is the share of the program's
own time that these take, *exact* that of all whose calls have their exact number: which functions take how much is known from a
second that was recorded without a budget. It is *settled* after so many seconds, when what hooks cost in 0.2 s (by the recorder's own account) stays within the budget from then
on: at most a tenth of it and half a point above.
"""
import bisect
import glob
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BUDGETS = ("2%", "5%", "10%", "")
SETTLE, MEASURE, TURNS = 2.0, 2.5, 5
CPU_LEAST = 0.4  # of each program in a turn: beside other programs that takes longer
PROCESSORS = sorted(os.sched_getaffinity(0))
MUCH_MORE = 0.15  # of a program's time, that exact numbers of calls are shown for beside those in full
ON_FIRST = ["taskset", "-c", str(PROCESSORS[0])]  # the programs; all else is on the others, where there are any
ON_OTHERS = ["taskset", "-c", ",".join(map(str, PROCESSORS[1:] or PROCESSORS))]

PYTHON = """
import json, re, sys, time, hashlib
n = 0
while True:
    d = {str(i): [i, i * 2, {"a": i}] for i in range(300)}
    s = json.dumps(d); json.loads(s); len(re.findall(r"\\\\d+", s)); hashlib.md5(s.encode()).hexdigest()
    n += 1
    if n % 2 == 0:
        sys.stdout.seek(0); sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
"""
NODE = """
const fs = require('fs'); let n = 0;
function work() { const o = {}; for (let i = 0; i < 3000; i++) o['k' + i % 100] = JSON.stringify({a: i, b: [i, i + 1]});
  return Object.keys(o).map(k => JSON.parse(o[k]).a).sort().length; }
function turn() { for (let i = 0; i < 2; i++) { work(); n++; } fs.writeSync(1, n + '\\\\n', 0); setImmediate(turn); }
turn();
"""
CXX = r"""
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>
struct Item { virtual ~Item() {} virtual long price(long n) const = 0; };
struct Plain : Item { long price(long n) const override; };
struct Sale : Item { long price(long n) const override; };
__attribute__((noinline)) long Plain::price(long n) const { return n * 3; }
__attribute__((noinline)) long Sale::price(long n) const { return n * 2 + 1; }
struct Order { std::string name; std::vector<std::unique_ptr<Item>> items; long total() const; };
__attribute__((noinline)) long Order::total() const { long sum = 0; for (auto &i : items) sum += i->price(sum % 7); return sum; }
__attribute__((noinline)) Order parse(const std::string &line) {
  Order order; std::istringstream in(line); in >> order.name; long kind;
  while (in >> kind) { if (kind % 2) order.items.emplace_back(new Plain); else order.items.emplace_back(new Sale); }
  return order; }
__attribute__((noinline)) long handle(std::map<std::string, long> &book, const std::string &line) {
  Order order = parse(line); long total = order.total(); book[order.name] += total; return total; }
int main() { std::map<std::string, long> book; long n = 0, sum = 0;
  for (;;) { for (int i = 0; i < 200; i++, n++) { std::ostringstream out; out << "customer" << n % 977; for (int k = 0; k < 12; k++) out << ' ' << n + k;
      sum += handle(book, out.str()); }
    char text[64]; int length = snprintf(text, sizeof(text), "%ld\n", n); if (pwrite(1, text, length, 0) < 0) return 1; } }
"""


def ticks(pid):
    """Processor time in seconds, as the kernel's scheduler has it, to the nanosecond, of all threads."""
    used = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                used += int(file.read().split()[0])
        except OSError:
            pass  # it has ended
    return used / 1e9


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Counter:
    """A program that writes how much it has done to the begin of its standard output."""

    def __init__(self, folder, name, words):
        self.out = open(os.path.join(folder, name + ".out"), "w+b", buffering=0)
        self.load = None
        self.program = subprocess.Popen(ON_FIRST + words, stdout=self.out, stdin=subprocess.DEVNULL)
        self.pid = self.program.pid
        time.sleep(1)
        while self.done() == 0:
            time.sleep(0.1)
        for path in os.listdir("/proc"):  # behind a launcher there may be another process
            if path.isdigit() and path != str(self.pid):
                try:
                    with open(f"/proc/{path}/stat", encoding="utf-8") as file:
                        if int(file.read().rsplit(")", 1)[1].split()[1]) == self.pid:
                            self.pid = int(path)
                except OSError:
                    pass

    def done(self, at=None):
        text = os.pread(self.out.fileno(), 64, 0).split(b"\n")[0]
        return int(text) if text.isdigit() else 0

    def close(self):
        for process in (self.load, self.program):
            if process is not None:
                process.terminate()
                process.wait()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def wait_for(what, is_there, seconds=120):
    end = time.monotonic() + seconds
    while not (there := is_there()):
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} within {seconds} s")
        time.sleep(0.05)
    return there


class Redis(Counter):
    def __init__(self, folder):
        self.port = free_port()
        self.program = subprocess.Popen([*ON_FIRST, "redis-server", "--port", str(self.port), "--save", "", "--dir", folder],
                                        stdout=subprocess.DEVNULL)
        self.pid = self.program.pid
        time.sleep(0.5)
        self.load = subprocess.Popen([*ON_OTHERS, "redis-benchmark", "-p", str(self.port), "-q", "-l", "-c", "20", "-r", "10000", "-t",
                                      "set,get,lpush,lpop,zadd"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)

    def done(self, at=None):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"INFO stats\r\n")
            return int(re.search(rb"total_commands_processed:(\d+)", s.recv(65536)).group(1))


class Nginx(Counter):
    def __init__(self, folder):
        for tool in ("nginx", "ab"):  # what starts them, taskset, does not tell
            if shutil.which(tool) is None:
                raise FileNotFoundError(2, "no such program", tool)
        self.port = free_port()
        self.log = os.path.join(folder, "access.log")
        config = os.path.join(folder, "nginx.conf")
        with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
            file.write("hello " * 200)
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
                       f"events {{}} http {{ gzip on; gzip_min_length 10; access_log {self.log}; "
                       f"server {{ listen 127.0.0.1:{self.port}; root {folder};\n location /status {{ stub_status; }} }} }}\n")
        os.chmod(folder, 0o755)
        self.program = subprocess.Popen([*ON_FIRST, "nginx", "-c", config], stderr=subprocess.DEVNULL)
        self.pid = self.program.pid
        time.sleep(0.5)
        self.load = subprocess.Popen([*ON_OTHERS, "sh", "-c", f"while :; do ab -q -k -c 10 -t 60 -n 100000000 -H 'Accept-Encoding: gzip' "
                                      f"http://127.0.0.1:{self.port}/index.html; done"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(1)

    def done(self, at=None):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            text = b""
            while part := s.recv(65536):
                text += part
            return int(re.search(rb"handled requests\s+\d+ \d+ (\d+)", text).group(1))

    def close(self):
        os.killpg(self.load.pid, 15)
        self.load.wait()
        self.program.terminate()
        self.program.wait()


class Postgres(Counter):
    """The server's process of one client, which looks up rows, sums up ranges of them and changes some. pgbench writes a
    line for each transaction."""

    WORK = ("\\set a random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :a;\n"
            "SELECT count(*), sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :a AND :a + 300;\n"
            "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1 + :a % 10;\n")

    def __init__(self, folder):
        tools = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not tools:
            raise FileNotFoundError(2, "no such program", "postgres")
        own = os.path.join(folder, "postgres")
        os.mkdir(own)
        self.user = {}
        if os.geteuid() == 0:
            import pwd
            user = pwd.getpwnam("postgres")
            self.user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chmod(folder, 0o755)
            os.chown(own, user.pw_uid, user.pw_gid)
        environment = dict(os.environ, HOME=own, PATH=tools[-1] + os.pathsep + os.environ["PATH"])
        quiet = {"cwd": own, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **self.user}
        subprocess.run(["initdb", "-D", own + "/data", "-A", "trust", "--no-sync"], check=True, **quiet)
        self.server = subprocess.Popen([*ON_FIRST, "postgres", "-D", own + "/data", "-k", own, "-c", "listen_addresses=", "-c", "fsync=off",
                                        "-c", "autovacuum=off"], **quiet)
        self.program, self.load = self.server, None
        there = ["-h", own, "postgres"]
        wait_for("postgres", lambda: subprocess.run(["pg_isready", "-q", "-h", own], check=False, **quiet).returncode == 0)
        subprocess.run(["pgbench", "-i", "-q", *there], check=True, **quiet)
        script = os.path.join(own, "work.sql")
        with open(script, "w", encoding="ascii") as file:
            file.write(self.WORK)
        os.chmod(script, 0o644)
        before = set(children(self.server.pid))
        self.load = subprocess.Popen([*ON_OTHERS, "pgbench", "-n", "-c", "1", "-T", "100000", "-M", "prepared", "-l", "--log-prefix",
                                      own + "/log", "-f", script, *there], **quiet)
        self.log, self.stamps, self.rest = os.path.join(own, f"log.{self.load.pid}"), [], b""
        self.file = wait_for("transaction", lambda: os.path.exists(self.log) and open(self.log, "rb"))
        wait_for("transaction", self.done)
        self.pid = max(set(children(self.server.pid)) - before)  # pgbench's first connection has ended
        time.sleep(1)

    def done(self, at=None):
        """By the lines that were written until then; pgbench keeps some in its hands, so a later one has to be there."""
        def is_there():
            self.rest += self.file.read()
            lines = self.rest.split(b"\n")
            self.rest = lines.pop()
            self.stamps += [int(line.split()[4]) + int(line.split()[5]) / 1e6 for line in lines]
            return self.stamps and self.stamps[-1] > at
        at = at or time.time()
        wait_for("transaction", is_there)
        return bisect.bisect_right(self.stamps, at)

    def close(self):
        super().close()
        self.file.close()


class PostgresSelect(Postgres):
    """pgbench -S"""

    WORK = "\\set a random(1, 100000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :a;\n"


def cxx(folder):
    source = os.path.join(folder, "service.cc")
    with open(source, "w", encoding="utf-8") as file:
        file.write(CXX)
    subprocess.run(["g++", "-O2", "-o", os.path.join(folder, "service"), source], check=True)
    return Counter(folder, "c++", [os.path.join(folder, "service")])


def python(folder):
    return Counter(folder, "python", [sys.executable, "-c", PYTHON.replace("\\\\", "\\")])


def node(folder):
    return Counter(folder, "node", ["node", "-e", NODE.replace("\\\\", "\\")])


PROGRAMS = {"redis": Redis, "nginx": Nginx, "postgres": Postgres, "postgres-select": PostgresSelect, "node": node, "python": python, "c++": cxx}


class Both:
    """What two programs have done and used since the last look."""

    def __init__(self, programs):
        self.programs = programs
        self.look()

    def look(self):
        self.used, at = [ticks(one.pid) for one in self.programs], time.time()
        self.done = [one.done(at) for one in self.programs]

    def wait(self, seconds):
        """Work of the first for a second of its processor time, against the second's; the processor time that the first has used, and how
        much of a processor that is."""
        used, done, begin = self.used, self.done, time.monotonic()
        while True:
            time.sleep(seconds)
            self.look()
            least = min(now - before for now, before in zip(self.used, used))
            if least >= CPU_LEAST or time.monotonic() - begin > 40:
                break
            seconds = min(max((CPU_LEAST - least) / max(least, 0.01) * seconds, 0.2), 5)
        if any(cpu == before for cpu, before in zip(self.used, used)):
            raise RuntimeError("a program has used no processor time within 40 s")
        paces = [(now - before) / (cpu - cpu_before) for now, before, cpu, cpu_before in zip(self.done, done, self.used, used)]
        used = self.used[0] - used[0]
        return paces[0] / paces[1], used, used / (time.monotonic() - begin)


def cost_of(contrail, pid):
    """What hooks have cost and the program has used, in ns, by the recorder's account."""
    done = subprocess.run([contrail, "status", "--json", str(pid)], capture_output=True, check=False)
    found = json.loads(done.stdout).get("cost") if done.returncode == 0 else None
    values = (found or {}).get("hooks_ns"), (found or {}).get("program_cpu_ns")
    return None if None in values else values


def turn(contrail, programs, folder, budget):
    """The ratio of the work, the recorder's share, the hooks' by its account, and how much of a processor the program has."""
    trace = os.path.join(folder, "trace")
    shutil.rmtree(trace, ignore_errors=True)
    options = ["--budget", budget] if budget else []
    pid = programs[0].pid
    with open(os.path.join(folder, "recorder.err"), "w+", encoding="utf-8") as said:
        recorder = subprocess.Popen([*ON_OTHERS, contrail, "attach", "-q", "-o", trace, *options, str(pid)], stderr=said)
        wait_for("session", lambda: cost_of(contrail, pid) or recorder.poll() is not None)  # the hooks are in place
        if recorder.returncode is not None:
            said.seek(0)
            raise RuntimeError(f"the recorder ended with status {recorder.returncode}: {said.read()[:500]}")
    time.sleep(SETTLE)
    cost = wait_for("session", lambda: cost_of(contrail, pid))
    both, own = Both(programs), ticks(recorder.pid)
    work, used, busy = both.wait(MEASURE)
    own = (ticks(recorder.pid) - own) / used
    cost_now = wait_for("session", lambda: cost_of(contrail, pid))
    hooks, program = cost_now[0] - cost[0], cost_now[1] - cost[1]
    recorder.send_signal(2)
    recorder.wait(timeout=120)
    return work, own, hooks / max(program - hooks, hooks / 99, 1), busy  # an estimate, of all its time at most


def asked(contrail, *words):
    return json.loads(subprocess.run([contrail, *words], capture_output=True, check=True).stdout)


def own_times(contrail, trace, *words):
    """The functions of a report, by module and name: their own time on the processor, whether all their calls are there in
    full, and whether their number is exact."""
    rows = asked(contrail, "report", "--json", "--limit", "0", *words, trace)["functions"]
    return {(row["module"], row["name"]):
            (max((row["self_ns"] or 0) - (row["off_ns"] or 0), 0), not (row["was_out"] or row["counted"] or row["sampled"]),
             not (row["was_out"] or row["sampled"])) for row in rows}


def unlimited(contrail, program, folder):
    """What the functions take, from a second without a budget."""
    trace = os.path.join(folder, "whole")
    said = subprocess.run([contrail, "attach", "-q", "-o", trace, "--for", "1s", str(program.pid)], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise RuntimeError(f"attach ended with status {said.returncode}: {said.stderr[:500]}")
    times = own_times(contrail, trace)
    shutil.rmtree(trace)
    return times


def last_turn(contrail, program, folder, budget, whole):
    """Shares of functions and of time that are seen in full, and after how many seconds the budget has settled, or None."""
    trace, limit = os.path.join(folder, "trace"), float(budget.rstrip("%")) / 100
    shutil.rmtree(trace, ignore_errors=True)
    recorder = subprocess.Popen([*ON_OTHERS, contrail, "attach", "-q", "-o", trace, "--budget", budget, str(program.pid)], stderr=subprocess.DEVNULL)

    def cost():
        values = cost_of(contrail, program.pid)
        return values and (time.monotonic(), *values)
    before = wait_for("session", cost)
    begin, settled = before[0], 0.0
    while before[0] - begin < SETTLE + MEASURE:
        time.sleep(0.2)
        now = wait_for("session", cost)
        hooks, used = now[1] - before[1], now[2] - before[2]
        if hooks / max(used - hooks, 1) > 1.1 * limit + 0.005:
            settled = None
        elif settled is None:
            settled = now[0] - begin
        before = now
    recorder.send_signal(2)
    recorder.wait(timeout=120)
    state = asked(contrail, "info", "--json", trace)["budget"]
    seen = own_times(contrail, trace, "--from", str(SETTLE))
    times = [sum(row[0] for key, row in whole.items() if seen.get(key, (0, False, False))[way]) for way in (1, 2)]
    whole_time = max(sum(row[0] for row in whole.values()), 1)
    functions = sum(state[way] for way in ("full", "sampled", "counted", "out"))
    return state["full"] / functions, [time / whole_time for time in times], settled


def of(values):
    return f"{100 * statistics.median(values):5.1f} %"


def measure(contrail, name, folder, options):
    folders = [os.path.join(folder, side) for side in ("one", "twin")]
    programs, result = [], {"work": {}, "in_full": {}, "recorder": {}, "with_it": {}}
    try:
        os.chmod(folder, 0o755)  # servers that are somebody else's find theirs
        for path in folders:
            os.mkdir(path)
            programs.append(PROGRAMS[name](path))
        whole = unlimited(contrail, programs[0], folder)
        for budget in ["" if each == "none" else each for each in options.budgets.split(",")] if options.budgets else BUDGETS:
            turns = []
            before = Both(programs).wait(MEASURE)[0]
            for _ in range((2 if options.quick else TURNS) if budget else 2):
                work, own, hooks, busy = turn(contrail, programs, folder, budget)
                after = Both(programs).wait(MEASURE)[0]
                ratio = work / ((before + after) / 2)
                turns.append((ratio, own, hooks, 1 / (1 / ratio + own), busy))
                before = after
            ratios, owns, hooks, sums, busy = zip(*turns)
            row = f"| {name:15} | {budget or 'none':6} | {of(ratios)} ({100 * min(ratios):.0f} to {100 * max(ratios):.0f})"
            row += f" | {of(busy)} | {of(owns)} | {of(hooks)} | {of(sums)} "
            for what, values in (("work", ratios), ("recorder", owns), ("with_it", sums)):
                result[what][budget or "none"] = [statistics.median(values), min(values), max(values)]
            if budget:
                functions, (full, exact), settled = last_turn(contrail, programs[0], folder, budget, whole)
                result["in_full"][budget] = [full, exact] if exact > full + MUCH_MORE else full
                row += f"| {100 * functions:.1f} % | {100 * full:.0f} % | {100 * exact:.0f} % | {'not' if settled is None else f'{settled:.1f} s'} |"
            else:
                row += "| 100.0 % | 100 % | 100 % | |"
            print(row, flush=True)
        return result
    finally:
        for program in programs:
            program.close()


def main(options):
    print("| program  | budget | work for a second of its time | processor | recorder | hooks | with it | functions | time | exact | settled |\n|---|---|---|---|---|---|---|---|---|---|---|")
    results = {}
    for name in PROGRAMS:
        if options.only is None or any(part in name for part in options.only.split(",")):
            with tempfile.TemporaryDirectory(prefix="contrail-budget.") as folder:
                try:
                    results[name] = measure(options.contrail, name, folder, options)
                except FileNotFoundError as error:
                    print(f"{name:15} skipped: {error.filename} is not there")
    return results
