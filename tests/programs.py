#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real programs, untraced and traced: the same output, the same exit status, a trace whose drops, if any, are
counted, and not more bytes per event than promised.

    tests/programs.py [--filter PATTERN] [--build DIR] [--keep] [--record OPTIONS]
"""
import glob
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from harness import HERE, ROOT, Skip, case, main, need, wait_for

LIMIT = 300


class Scene(harness.Scene):
    def __init__(self, options, folder, program):
        super().__init__(options, folder)
        self.program = program


def program(function):
    case(function.__name__, program=function, some=("programs", 5))(lambda scene: compared(scene))
    return function


class Bench:
    """Where one program runs: a fresh folder, and the words that put contrail in front or not."""

    def __init__(self, folder, trace_words, is_long=False):
        self.folder, self.trace_words, self.is_long = folder, trace_words, is_long

    def run(self, *words, **options):
        """Runs WORDS, with %trace filled in, to the end; (status, stdout, stderr)."""
        filled = []
        for word in words:
            filled += self.trace_words if word == "%trace" else [word]
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("cwd", self.folder)
        environment = dict(os.environ, LC_ALL="C", TZ="UTC", GIT_PAGER="cat")
        environment.pop("LD_PRELOAD", None)
        process = subprocess.Popen(filled, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                                   start_new_session=True, preexec_fn=no_core, **options)
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise AssertionError(f"no end within {LIMIT} s: {shlex.join(filled)}") from None
        return process.returncode, out, err

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@program
def python_shim(bench):
    for folder in os.environ["PATH"].split(":") + [os.path.expanduser("~/.pyenv/shims")]:
        path = os.path.join(folder, "python3")
        if os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if file.read(2) == b"#!":
                    return bench.run("%trace", path, os.path.join(HERE, "programs", "script.py"))
    raise Skip("no python3 in PATH is a script")


def pythons():
    found = []
    for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))):
        if b".symtab" in subprocess.run(["readelf", "-SW", path], capture_output=True).stdout:
            found.append(os.path.realpath(path))
    return found


@program
def python_unstripped(bench):
    found = pythons()
    if not found:
        raise Skip("no unstripped python found")
    return [bench.run("%trace", path, os.path.join(HERE, "programs", "script.py")) for path in found[-1:]]


@program
def python_debian(bench):
    if not os.path.exists("/usr/bin/python3"):
        raise Skip("no /usr/bin/python3")
    return bench.run("%trace", "/usr/bin/python3", os.path.join(HERE, "programs", "script.py"))


SQL = """
create table t(id integer primary key, a integer, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
  insert into t select i, i * 7919 % 100003, printf('text %d', i % 977), i / 7.0 from n;
create index t_a on t(a);
create index t_b on t(b, c);
select count(*), sum(a), min(b), max(c) from t;
select b, count(*), avg(a) from t group by b order by 2 desc, 1 limit 10;
select count(*) from t x join t y on x.a = y.id where y.a % 11 = 3;
update t set c = c + 1 where a between 1000 and 20000;
delete from t where id % 3 = 0;
select count(*), round(sum(c), 3) from t;
select a from t where b like 'text 12%' order by a limit 5;
pragma integrity_check;
"""


@program
def sqlite(bench):
    need("sqlite3")
    bench.write("script.sql", SQL if bench.is_long else SQL.replace("100000", "30000"))
    return bench.run("%trace", "sqlite3", "data.db", ".read script.sql")


@program
def redis(bench):
    need("redis-server"), need("redis-benchmark")
    socket = bench.path("redis.sock")
    log = open(bench.path("log"), "wb")
    words = bench.trace_words + ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly",
                                 "no", "--daemonize", "no", "--dir", bench.folder]
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                              cwd=bench.folder, preexec_fn=no_core)
    try:
        wait_for("redis-server", lambda: os.path.exists(socket) or server.poll() is not None)
        if server.poll() is not None:
            raise AssertionError("redis-server does not come up: " + tail_of(bench.path("log")))
        for turn in ("set,get,incr,lpush,lrange_100", "hset,spop,zadd,mset"):
            status, out, err = bench.run("redis-benchmark", "-s", socket, "-n", "4000" if bench.is_long else "1500", "-c", "20", "-q", "-r", "1000",
                                         "-t", turn)
            if status:
                raise AssertionError(f"redis-benchmark: {status} {err.decode()[-300:]}")
        stats = bench.run("redis-cli", "-s", socket, "info", "commandstats")[1].decode()
        calls = sorted(re.findall(r"cmdstat_(set|get|incr|lpush|lrange|hset|spop|zadd|mset):calls=(\d+)", stats))
        bench.run("redis-cli", "-s", socket, "shutdown", "nosave")
        return calls, server.wait(60)
    finally:
        log.close()
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def tail_of(path):
    with open(path, "rb") as file:
        return file.read()[-500:].decode(errors="replace")


@program
def git(bench):
    need("git")
    if not os.path.isdir(os.path.join(ROOT, ".git")):
        raise Skip("the project is not a git work tree")
    first = subprocess.run(["git", "-C", ROOT, "rev-list", "--max-count=60", "HEAD"], capture_output=True, text=True)
    newest = first.stdout.split()[0]
    return bench.run("%trace", "git", "--no-pager", "-C", ROOT, "log", "-p", "-60", newest)


SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *n, int key) {
  if (!n) { n = calloc(1, sizeof *n); n->key = key; return n; }
  if (key < n->key) n->left = insert(n->left, key); else n->right = insert(n->right, key);
  return n;
}
static long sum(const struct node *n) { return n ? n->key + sum(n->left) + sum(n->right) : 0; }
int main(int c, char **v) {
  struct node *root = NULL;
  for (int i = 0; i < 1000; i++) root = insert(root, (i * 7919) % 10007);
  double m[16][16]; memset(m, 0, sizeof m);
  for (int i = 0; i < 16; i++) for (int j = 0; j < 16; j++) m[i][j] = i * j + c;
  for (int k = 0; k < 10; k++) for (int i = 1; i < 15; i++) for (int j = 1; j < 15; j++)
    m[i][j] = (m[i-1][j] + m[i+1][j] + m[i][j-1] + m[i][j+1]) / 4;
  printf("%ld %.3f\\n", sum(root), m[7][7]);
}
"""


@program
def gcc(bench):
    need("gcc")
    bench.write("source.c", SOURCE)
    result = bench.run("%trace", "gcc", "-O2", "-Wall", "-c", "source.c", "-o", "object.o")
    with open(bench.path("object.o"), "rb") as file:
        return result, file.read()


@program
def compiler_proper(bench):
    """gcc is only the driver: cc1 itself, with its 30,000 functions."""
    need("gcc")
    path = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    if not os.path.exists(path):
        raise Skip("no cc1")
    bench.write("source.c", "int f(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x; return s; }\n")
    result = bench.run("%trace", path, "-quiet", "-O1", "source.c", "-o", "source.s")
    with open(bench.path("source.s"), "rb") as file:
        return result, file.read()


THROWING = """
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
static int parse(const std::string &s, size_t at) {
  if (at >= s.size()) throw std::out_of_range("end of " + s);
  if (s[at] < '0' || s[at] > '9') throw std::invalid_argument(s.substr(at));
  return at + 1 < s.size() ? (s[at] - '0') * 2 + parse(s, at + 1) : s[at] - '0';
}
int main() {
  std::map<std::string, int> kinds;
  long sum = 0;
  for (int i = 0; i < 2000; i++) {
    std::vector<std::string> texts = {std::to_string(i), std::to_string(i) + "x", ""};
    for (auto &text : texts)
      try { sum += parse(text, 0); kinds["fine"]++; }
      catch (const std::invalid_argument &e) { kinds[e.what()]++; }
      catch (const std::logic_error &e) { kinds[e.what()]++; }
  }
  for (auto &[kind, count] : kinds) printf("%s: %d\\n", kind.c_str(), count);
  printf("%ld\\n", sum);
  throw std::runtime_error("the end");
}
"""


@program
def cpp_throws(bench):
    need("g++")
    bench.write("throws.cpp", THROWING)
    status, _, err = Bench(bench.folder, []).run("g++", "-O2", "-std=c++17", "throws.cpp", "-o", "throws")
    if status:
        raise AssertionError(err.decode())
    return bench.run("%trace", "./throws")


PERL = r"""
use strict; use warnings; use POSIX qw(floor); use List::Util qw(sum reduce); use Data::Dumper; $Data::Dumper::Sortkeys = 1;
my %count; $count{$_ % 7}++ for 1 .. 20000;
my $text = join ' ', map { "word$_" } 1 .. 5000;
my $n = () = $text =~ /\bword\d*7\b/g;
sub deep { my $d = shift; die { depth => $d } if $d == 50; deep($d + 1) }
my $died = 0; for (1 .. 100) { eval { deep(0) }; $died++ if ref $@ }
print Dumper(\%count), "$n $died ", sum(1 .. 1000), " ", floor(3.7), "\n";
my $out = `echo from a child`; print $out; warn "to stderr\n"; exit 4;
"""


@program
def perl(bench):
    need("perl")
    return bench.run("%trace", "perl", bench.write("script.pl", PERL))


BASH = r"""
set -u
total=0
for i in {1..300}; do total=$((total + i * i)); done
echo $total
printf '%s\n' {z..a} | sort | tr a-z A-Z | paste -sd, -
seq 1 2000 | while read n; do ((n % 500)) || echo "multiple $n"; done
declare -A map; for w in red green blue red; do map[$w]=$((${map[$w]:-0} + 1)); done
for k in red green blue; do echo $k ${map[$k]}; done
diff <(seq 1 5) <(seq 1 2 7); echo "diff $?"
trap 'echo trapped' USR1; kill -USR1 $$
(exit 9); echo "subshell $?"
cat <<< "here $(echo nested $(basename /a/b))"
exit 6
"""


@program
def bash(bench):
    need("bash")
    return bench.run("%trace", "bash", bench.write("script.sh", BASH))


@program
def xz(bench):
    need("xz")
    text = "".join(f"line {i} {i * 7919 % 10007} {'abcdefgh' * (i % 5)}\n" for i in range(60000))
    bench.write("data.txt", text)
    return bench.run("%trace", "xz", "-T2", "--block-size=256KiB", "-2", "-k", "-c", "data.txt")


NODE = """
const rows = []; for (let i = 0; i < 20000; i++) rows.push({ id: i, name: 'name ' + (i * 7919 % 1009), list: [i, i * 2] });
const groups = new Map(); for (const r of rows) groups.set(r.name, (groups.get(r.name) || 0) + r.list[1]);
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
let caught = 0; for (let i = 0; i < 2000; i++) try { null.x } catch (e) { caught++ }
const text = JSON.stringify(rows); const back = JSON.parse(text);
let garbage = 0; for (let i = 0; i < 200; i++) garbage += Buffer.alloc(100000, i).length + new Array(10000).fill(i).length;
(async () => { let s = 0; for (let i = 0; i < 500; i++) s += await Promise.resolve(i);
  console.log(groups.size, fib(24), caught, text.length, back.length, garbage, s, /(a+)b/.exec('xaaab')[1]);
  console.error('to stderr'); setTimeout(() => process.exit(8), 20); })();
"""


@program
def node(bench):
    need("node")
    return bench.run("%trace", "node", "-e", NODE if bench.is_long else NODE.replace("20000", "3000").replace("i < 200;", "i < 40;"))


BYTES_PER_EVENT = {"python_shim": 3, "python_unstripped": 3, "python_debian": 3, "sqlite": 3}


def without_notes(value):
    """Takes contrail's own lines (drops, what was left out) out of what is compared."""
    if isinstance(value, bytes):
        return b"".join(line for line in value.splitlines(True) if not line.startswith(b"contrail: "))
    if isinstance(value, (list, tuple)):
        return [without_notes(item) for item in value]
    return value


def statuses(value):
    """A shell and a recorder tell signal N as 128 + N."""
    if isinstance(value, list):
        return [statuses(item) for item in value]
    return 128 - value if isinstance(value, int) and value < 0 else value


def tell(value):
    return repr(value)[:400]


def difference(a, b):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for x, y in zip(a, b):
            if x != y:
                return difference(x, y)
    if isinstance(a, bytes) and isinstance(b, bytes):
        left, right = a.splitlines(), b.splitlines()
        for i, (x, y) in enumerate(zip(left + [b"(end)"], right + [b"(end)"])):
            if x != y:
                return f"line {i + 1}: untraced {tell(x)}, traced {tell(y)}"
    return f"untraced {tell(a)}, traced {tell(b)}"


def compared(scene):
    """Untraced and traced: the same, and a trace that says so."""
    options, name, function = scene.options, scene.program.__name__, scene.program
    if options.no_trace:
        return steady(function)
    with tempfile.TemporaryDirectory(dir=scene.folder) as scratch:
        folders = [os.path.join(scratch, "work") for _ in range(2)]
        results, seconds = [], []
        trace = os.path.join(options.build, "tests", "traces", "program." + name)
        shutil.rmtree(trace, ignore_errors=True)
        os.makedirs(os.path.dirname(trace), exist_ok=True)
        for folder, words in zip(folders, ([], [options.contrail, "record"] + shlex.split(options.record) + ["-o", trace, "--"])):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            begin = time.monotonic()
            results.append(statuses(without_notes(function(Bench(folder, words, options.long)))))
            seconds.append(time.monotonic() - begin)
        if results[0] != results[1]:
            raise AssertionError("differs: " + difference(*results))
        text = subprocess.run([options.contrail, "info", "--json", trace], capture_output=True, text=True, timeout=LIMIT)
        if text.returncode:
            raise AssertionError(f"contrail info: {text.stderr.strip()}")
        info = json.loads(text.stdout)
        report = subprocess.run([options.contrail, "report", "--json", trace], capture_output=True, text=True,
                                timeout=LIMIT)
        if report.returncode:
            raise AssertionError(f"contrail report: {report.stderr.strip()}")
        calls = sum(row["calls"] for row in json.loads(report.stdout)["functions"])
        per_event = info["bytes"] / max(info["events"], 1)
        hooked = sum(module["hooked"] for module in info["modules"])
        known = sum(module["functions"] for module in info["modules"])
        # Parts of functions, stubs and the like are no functions that anyone could hook.
        parts = sum(module["refused"].get(reason, 0) for module in info["modules"]
                    for reason in ("not-callable", "plt", "signal-frame", "no-cfi", "part", "no-code"))
        unexplained = [f"{module['path']}: {module['functions']} functions, {module['hooked']} hooked, "
                       f"{sum(module['refused'].values())} refused" for module in info["modules"]
                       if module["functions"] != module["hooked"] + sum(module["refused"].values())]
        facts = (f"{seconds[0]:.2f} s, traced {seconds[1]:.2f} s, {info['events']} events, {info['dropped']} dropped, "
                 f"{per_event:.2f} bytes per event, {hooked} of {known - parts} functions hooked (and {parts} parts of "
                 f"functions), {len(info['threads'])} threads")
        if info["events"] < 1000 or calls == 0:
            raise AssertionError("hardly anything was recorded: " + facts)
        if unexplained:
            raise AssertionError("functions without a hook and without a reason: " + "; ".join(unexplained))
        if hooked < 0.999 * (known - parts):
            raise AssertionError("too few functions are hooked: " + facts)
        if per_event > BYTES_PER_EVENT.get(name, 1000):
            raise AssertionError("too many bytes per event: " + facts)
        if not options.keep:
            shutil.rmtree(trace, ignore_errors=True)
        return facts


def steady(program):
    results = []
    begin = time.monotonic()
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="contrail-program.") as scratch:
            folder = os.path.join(scratch, "work")
            os.mkdir(folder)
            results.append(program(Bench(folder, [])))
    if results[0] != results[1]:
        raise AssertionError("differs from run to run: " + difference(*results))
    return f"{(time.monotonic() - begin) / 2:.2f} s untraced"


def arguments(parser):
    parser.add_argument("--record", default="")
    parser.add_argument("--no-trace", action="store_true", help="untraced twice: are the programs themselves steady?")


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
