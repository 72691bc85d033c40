# SPDX-License-Identifier: MIT
"""What a budget leaves of a program: --budget 2%, 5% and 10% on servers under load, and on programs that compute.

    bench/run.sh budget [--only NAME,...]

Each program runs all the time. In turns it is left alone, and attached to with a budget for some seconds, of which the first
two do not count (it settles in them). Of a turn the work done for a second of the program's processor time is compared with
the turns beside it in which it was left alone: the median of these ratios is printed, with the least and the greatest. So
neither a load generator that shares the processors nor a machine that changes its pace is taken for a cost. The recorder's
own processor time is that of its process in the same seconds, beside the program's.
"""
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

PYTHON = """
import json, re, sys, time, hashlib
n = 0
while True:
    d = {str(i): [i, i * 2, {"a": i}] for i in range(300)}
    s = json.dumps(d); json.loads(s); len(re.findall(r"\\\\d+", s)); hashlib.md5(s.encode()).hexdigest()
    n += 1
    if n % 20 == 0:
        sys.stdout.seek(0); sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
"""
NODE = """
const fs = require('fs'); let n = 0;
function work() { const o = {}; for (let i = 0; i < 3000; i++) o['k' + i % 100] = JSON.stringify({a: i, b: [i, i + 1]});
  return Object.keys(o).map(k => JSON.parse(o[k]).a).sort().length; }
function turn() { for (let i = 0; i < 20; i++) { work(); n++; } fs.writeSync(1, n + '\\\\n', 0); setImmediate(turn); }
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
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Counter:
    """A program that writes how much it has done to the begin of its standard output."""

    def __init__(self, folder, name, words):
        self.out = open(os.path.join(folder, name + ".out"), "w+b", buffering=0)
        self.load = None
        self.program = subprocess.Popen(words, stdout=self.out, stdin=subprocess.DEVNULL)
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

    def done(self):
        text = os.pread(self.out.fileno(), 64, 0).split(b"\n")[0]
        return int(text) if text.isdigit() else 0

    def close(self):
        for process in (self.load, self.program):
            if process is not None:
                process.terminate()
                process.wait()


class Redis(Counter):
    def __init__(self, folder):
        self.port = free_port()
        self.program = subprocess.Popen(["redis-server", "--port", str(self.port), "--save", "", "--dir", folder],
                                        stdout=subprocess.DEVNULL)
        self.pid = self.program.pid
        time.sleep(0.5)
        self.load = subprocess.Popen(["redis-benchmark", "-p", str(self.port), "-q", "-l", "-c", "20", "-r", "10000", "-t",
                                      "set,get,lpush,lpop,zadd"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)

    def done(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"INFO stats\r\n")
            return int(re.search(rb"total_commands_processed:(\d+)", s.recv(65536)).group(1))


class Nginx(Counter):
    def __init__(self, folder):
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
        self.program = subprocess.Popen(["nginx", "-c", config], stderr=subprocess.DEVNULL)
        self.pid = self.program.pid
        time.sleep(0.5)
        self.load = subprocess.Popen(["sh", "-c", f"while :; do ab -q -k -c 10 -t 60 -n 100000000 -H 'Accept-Encoding: gzip' "
                                      f"http://127.0.0.1:{self.port}/index.html; done"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(1)

    def done(self):
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


PROGRAMS = {"redis": Redis, "nginx": Nginx, "node": node, "python": python, "c++": cxx}


def pace(program, seconds):
    """Work for a second of processor time, and how many processors it has used."""
    begin, cpu, done = time.monotonic(), ticks(program.pid), program.done()
    time.sleep(seconds)
    done, cpu = program.done() - done, ticks(program.pid) - cpu
    return done / cpu, cpu / (time.monotonic() - begin)


def turn(contrail, program, folder, budget):
    trace = os.path.join(folder, "trace")
    shutil.rmtree(trace, ignore_errors=True)
    options = ["--budget", budget] if budget else []
    recorder = subprocess.Popen([contrail, "attach", "-q", "-o", trace, *options, str(program.pid)], stderr=subprocess.DEVNULL)
    time.sleep(SETTLE)
    own, begin = ticks(recorder.pid), time.monotonic()
    work, used = pace(program, MEASURE)
    own = (ticks(recorder.pid) - own) / (time.monotonic() - begin) / used
    recorder.send_signal(2)
    recorder.wait(timeout=120)
    info = json.loads(subprocess.run([contrail, "info", "--json", trace], capture_output=True, check=True).stdout)
    return work, own, info.get("budget")


def measure(contrail, name, folder, turns):
    program = PROGRAMS[name](folder)
    try:
        for budget in BUDGETS:
            ratios, owns, last = [], [], None
            before = pace(program, MEASURE)[0]
            for _ in range(turns if budget else 2):
                work, own, last = turn(contrail, program, folder, budget)
                after = pace(program, MEASURE)[0]
                ratios.append(work / ((before + after) / 2))
                owns.append(own)
                before = after
            seen = "" if last is None else (f"; in full {last['full']:,}, sampled {last['sampled']}, counted {last['counted']}, "
                                            f"out {last['out']}; said to be spent {100 * last['spent']:.1f} %, factor {last['cost_factor']:.1f} of {last['experiments']}")
            print(f"{name:8} {'budget ' + budget if budget else 'no budget':12} work {100 * statistics.median(ratios):5.1f} % "
                  f"({100 * min(ratios):.0f} to {100 * max(ratios):.0f}), recorder {100 * statistics.median(owns):5.1f} %{seen}",
                  flush=True)
    finally:
        program.close()


def main(options):
    for name in PROGRAMS:
        if options.only is None or any(part in name for part in options.only.split(",")):
            with tempfile.TemporaryDirectory(prefix="contrail-budget.") as folder:
                try:
                    measure(options.contrail, name, folder, 2 if options.quick else TURNS)
                except FileNotFoundError as error:
                    print(f"{name:8} skipped: {error.filename} is not there")
