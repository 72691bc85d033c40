# SPDX-License-Identifier: MIT
"""What recording costs real programs: each runs untraced, with everything recorded, and with --exclude-hot.

    bench/run.sh overhead [--only NAME,...]      the table of docs/overhead.md
    bench/run.sh event [--only NAME,...]         what an event costs a program, against a bare rdtsc of the same minute
    bench/run.sh hot [--only NAME,...]           which functions the events are of (how the built-in list was made)

Wall time is that of the whole command, start of the recorder and installation of the hooks included. Processor time is that
of the program alone (user and system), as the kernel counts it, without the recorder's. Of a server the figure is requests
per second, and its processor time per request.
"""
import collections
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WAYS = [("untraced", None), ("all", []), ("hot", ["--exclude-hot"])]


class Missing(Exception):
    pass


def need(*names):
    for name in names:
        path = shutil.which(name) or (name if os.access(name, os.X_OK) else None)
        if path is None:
            raise Missing(f"no {name}")
    return path


class Run:
    """One execution: seconds, processor seconds of the program and those of them in user mode, work done (1, or requests),
    and the trace's figures."""

    def __init__(self, wall, usage, work=1, info=None):
        self.wall, self.work, self.info = wall, work, info
        self.user = usage.ru_utime if info is None else info["user_ns"] / 1e9
        self.cpu = self.user + (usage.ru_stime if info is None else info["system_ns"] / 1e9)


class Scene:
    def __init__(self, contrail, folder, scale):
        self.contrail, self.folder, self.scale = contrail, folder, scale
        self.trace = os.path.join(folder, "trace")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def words(self, options, command):
        if options is None:
            return list(command)
        shutil.rmtree(self.trace, ignore_errors=True)
        return [self.contrail, "record", *options, "-o", self.trace, "--", *command]

    def environment(self):
        return dict(os.environ, LC_ALL="C", TZ="UTC", GIT_PAGER="cat", HOME=self.folder)

    def info(self):
        out = subprocess.run([self.contrail, "info", "--json", self.trace], capture_output=True, text=True, check=True).stdout
        return json.loads(out)

    def run(self, options, command, stdin=None, user=None):
        """A command that ends by itself."""
        words = self.words(options, command)
        source = open(stdin, "rb") if stdin else subprocess.DEVNULL
        begin = time.monotonic()
        process = subprocess.Popen(words, cwd=self.folder, env=self.environment(), stdin=source, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, user=user, group=user)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if stdin:
            source.close()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: status {process.returncode}")
        info = self.info() if options is not None else None
        return Run(wall, usage, 1, info)

    def serve(self, options, command, ready, load, stop):
        """A server: load() returns the number of requests answered and the seconds."""
        words = self.words(options, command)
        process = subprocess.Popen(words, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 120
            while not ready():
                if time.monotonic() > end or process.poll() is not None:
                    raise RuntimeError(f"{' '.join(words)}: does not come up")
                time.sleep(0.05)
            requests, seconds = load()
            stop(process)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        info = self.info() if options is not None else None
        return Run(seconds, usage, requests, info)


# ---- the programs: each prepares its files and returns a function of the options of contrail record ----

PYTHON = """
import json, re, collections
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class Point:
    def __init__(self, x, y): self.x, self.y = x, y
    def norm(self): return (self.x ** 2 + self.y ** 2) ** 0.5
words = [("word%d" % (i * 7919 % 997)) for i in range(SCALE)]
count = collections.Counter(words)
points = sorted((Point(i % 101, i % 37) for i in range(SCALE // 4)), key=Point.norm)
text = json.dumps({w: [c, str(c)] for w, c in count.items()})
found = sum(len(re.findall(r"\\d+7", w)) for w in words)
print(fib(20), len(text), len(json.loads(text)), found, points[0].x)
"""


def python_script(scene):
    python = need("/usr/bin/python3")
    script = scene.write("work.py", PYTHON.replace("SCALE", str(int(200000 * scene.scale))))
    return lambda options: scene.run(options, [python, script])


def python_start(scene):
    python = need("/usr/bin/python3")
    return lambda options: scene.run(options, [python, "-c", "import json, re, argparse, subprocess"])


def sqlite(scene):
    need("sqlite3")
    sys.path.insert(0, os.path.join(ROOT, "tests"))
    from programs import SQL
    script = scene.write("work.sql", SQL.replace("100000", str(int(100000 * scene.scale))))
    return lambda options: scene.run(options, ["sqlite3", ":memory:", ".read " + script])


def git_log(scene):
    need("git")
    repository = scene.path("git-log")
    source = make_repository(repository, 400, 60)
    return lambda options: scene.run(options, ["git", "--no-pager", "-C", source, "log", "-p", "--stat"])


def git_status(scene):
    need("git")
    source = make_repository(scene.path("git-status"), 3, int(3000 * scene.scale) + 10)
    return lambda options: scene.run(options, ["git", "-C", source, "status", "--porcelain"])


def make_repository(folder, commits, files):
    """Some history, always the same; by fast-import, so that it takes no time."""
    lines = []
    for c in range(commits):
        lines.append(f"commit refs/heads/main\nmark :{c + 1}\ncommitter A <a@b> {1600000000 + c * 60} +0000\n"
                     f"data 9\ncommit {c % 10}\n")
        if c:
            lines.append(f"from :{c}\n")
        for f in range(files) if c == 0 else range(c % 7, files, 13):
            body = "".join(f"line {i} of {f} {(i * 31 + c * (i % 11 == c % 11)) % 1009}\n" for i in range(40))
            lines.append(f"M 644 inline dir{f % 20}/file{f}.txt\ndata {len(body)}\n{body}\n")
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input="".join(lines), text=True, check=True)
    subprocess.run(["git", "-C", folder, "checkout", "-q", "main"], check=True)
    return folder


def c_source(scene):
    body = []
    for i in range(int(400 * scene.scale) + 5):
        body.append(f"static int table_{i}[16];\nint work_{i}(int a, const char *s) {{\n  int sum = 0;\n"
                    f"  for (int j = 0; j < 16 && s[j]; j++) {{ table_{i}[j] += s[j] * a; sum ^= table_{i}[(j + a) & 15]; }}\n"
                    f"  switch (sum & 7) {{ case 0: return printf(\"%d\", sum); case 1: return sum + {i}; "
                    f"case 3: return work_{max(i - 1, 0)}(a - 1, s + 1); default: return (int)strlen(s) * {i}; }}\n}}\n")
    return scene.write("work.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" + "".join(body))


def cc1(scene):
    need("gcc")
    path = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
    need(path)
    source = c_source(scene)
    return lambda options: scene.run(options, [path, "-quiet", "-O2", "-imultiarch", "x86_64-linux-gnu", source, "-o",
                                               scene.path("work.s")])


CPP = """
#include <algorithm>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>
struct Item { std::string name; std::vector<int> values; };
std::map<std::string, std::unique_ptr<Item>> items;
int add(const std::string &name, int value) {
  auto &item = items[name];
  if (!item) item = std::make_unique<Item>(Item{name, {}});
  item->values.push_back(value);
  std::sort(item->values.begin(), item->values.end(), [](int a, int b) { return a > b; });
  return std::regex_match(name, std::regex("[a-z]+[0-9]*")) ? item->values.front() : -1;
}
"""


def clang(scene):
    path = next((p for p in ("clang++-14", "clang++") if shutil.which(p)), None)
    if path is None:
        raise Missing("no clang++")
    source = scene.write("work.cpp", CPP)
    return lambda options: scene.run(options, [path, "-std=c++17", "-O1", "-c", source, "-o", scene.path("work.o")])


PERL = r"""
my (%count, @rows); srand 1;
for my $i (1 .. SCALE) { my $w = "word" . ($i * 7919 % 997); $count{$w}++; push @rows, [$w, $i % 101] if $i % 4 == 0; }
my $text = join ' ', map { "$_=$count{$_}" } sort keys %count;
my $n = () = $text =~ /\bword\d*7=(\d+)/g;
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
my @sorted = sort { $a->[1] <=> $b->[1] || $a->[0] cmp $b->[0] } @rows;
(my $copy = $text) =~ s/(\w+)=(\d+)/$2:$1/g;
print length($copy), " $n ", fib(18), " $sorted[0][0]\n";
"""


def perl(scene):
    need("perl")
    script = scene.write("work.pl", PERL.replace("SCALE", str(int(300000 * scene.scale))))
    return lambda options: scene.run(options, ["perl", script])


NODE = """
const rows = []; for (let i = 0; i < SCALE; i++) rows.push({ id: i, name: 'name ' + (i * 7919 % 1009), list: [i, i * 2] });
const groups = new Map(); for (const r of rows) groups.set(r.name, (groups.get(r.name) || 0) + r.list[1]);
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
const text = JSON.stringify(rows), back = JSON.parse(text);
back.sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id);
let found = 0; for (const r of back) if (/7\\d*9/.test(r.name)) found++;
console.log(groups.size, fib(30), text.length, found);
"""


def node(scene):
    path = need("node")
    script = scene.write("work.js", NODE.replace("SCALE", str(int(200000 * scene.scale))))
    return lambda options: scene.run(options, [path, script])


def text_file(scene, name, megabytes):
    path = scene.path(name)
    if not os.path.exists(path):
        line = "".join(f"{i * 7919 % 99991} some words of line {i % 1013} {'abcdefgh' * (i % 5)}\n" for i in range(20000))
        with open(path, "w", encoding="ascii") as file:
            while file.tell() < megabytes * 1000000 * scene.scale:
                file.write(line)
    return path


def xz(scene):
    need("xz")
    source = text_file(scene, "text", 16)
    return lambda options: scene.run(options, ["xz", "-T2", "-3", "--block-size=2MiB", "-k", "-c", source])


def sort(scene):
    need("sort")
    source = text_file(scene, "text", 16)
    return lambda options: scene.run(options, ["sort", source])


def grep(scene):
    need("grep")
    source = text_file(scene, "much-text", 300)
    return lambda options: scene.run(options, ["grep", "-c", "line 77[0-9] .*abcdefgh", source])


def tree(scene):
    folder = scene.path("tree")
    if not os.path.isdir(folder):
        for d in range(40):
            os.makedirs(os.path.join(folder, f"d{d}"))
            for f in range(100):
                with open(os.path.join(folder, f"d{d}", f"f{f}"), "w", encoding="ascii") as file:
                    file.write(f"file {d} {f}\n" * (200 + 37 * f % 500))
    return folder


def tar(scene):
    need("tar")
    folder = tree(scene)
    return lambda options: scene.run(options, ["tar", "-cf", scene.path("tree.tar"), "-C", folder, "."])


def tar_large(scene):
    need("tar")
    folder = scene.path("large")
    if not os.path.isdir(folder):
        os.makedirs(folder)
        for i in range(20):
            with open(os.path.join(folder, str(i)), "wb") as file:
                file.write(os.urandom(int(40e6 * scene.scale)))
    return lambda options: scene.run(options, ["tar", "-cf", scene.path("large.tar"), "-C", folder, "."])


def cp(scene):
    need("cp")
    folder = tree(scene)

    def go(options):
        shutil.rmtree(scene.path("copy"), ignore_errors=True)
        return scene.run(options, ["cp", "-r", folder, scene.path("copy")])
    return go


BASH = r"""
total=0
for ((i = 0; i < SCALE; i++)); do total=$((total + i * i % 7)); w="word$((i % 97))"; map[i%97]=${w^^}; done
declare -A count
while read -r a b rest; do ((count[$a]++)); [[ $b == s* ]] && n=$((n + 1)); done < "$1"
echo $total ${#map[@]} ${#count[@]} $n
"""


def bash(scene):
    need("bash")
    script = scene.write("work.sh", BASH.replace("SCALE", str(int(30000 * scene.scale))))
    lines = text_file(scene, "few-lines", 0.5)
    return lambda options: scene.run(options, ["bash", script, lines])


JAVA = """
import java.util.*;
public class Work {
  public static void main(String[] args) {
    Map<String, Integer> count = new TreeMap<>();
    for (int i = 0; i < SCALE; i++) count.merge("word" + (long) i * 7919 % 997, 1, Integer::sum);
    List<String> words = new ArrayList<>(count.keySet());
    words.sort(Comparator.comparing(String::length).thenComparing(Comparator.reverseOrder()));
    System.out.println("hello " + words.size() + " " + words.get(0));
  }
}
"""


def java(scene):
    need("java"), need("javac")
    source = scene.write("Work.java", JAVA.replace("SCALE", str(int(300000 * scene.scale))))
    subprocess.run(["javac", "-d", scene.folder, source], check=True, capture_output=True)
    return lambda options: scene.run(options, ["java", "-Xshare:auto", "-cp", scene.folder, "Work"])


def sha256sum(scene):
    need("sha256sum")
    source = text_file(scene, "much-text", 300)
    return lambda options: scene.run(options, ["sha256sum", source])


def openssl(scene):
    need("openssl")
    source = text_file(scene, "much-text", 300)
    return lambda options: scene.run(options, ["openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-k", "x", "-in", source, "-out",
                                               "/dev/null"])


def dd(scene):
    need("dd")
    return lambda options: scene.run(options, ["dd", "if=/dev/zero", "of=" + scene.path("zeros"), "bs=64k",
                                               f"count={int(16000 * scene.scale)}", "conv=fsync"])


def redis(scene, pipeline=1):
    need("redis-server"), need("redis-benchmark")
    path = scene.path("redis.sock")
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", scene.folder]

    def load():
        count = int(100000 * scene.scale)
        begin = time.monotonic()
        subprocess.run(["redis-benchmark", "-s", path, "-q", "-n", str(count), "-c", "20", "-P", str(pipeline), "-r", "1000",
                        "-t", "set,get,lpush,zadd"], check=True, capture_output=True)
        return 4 * count, time.monotonic() - begin

    def stop(process):
        subprocess.run(["redis-cli", "-s", path, "shutdown", "nosave"], capture_output=True)

    def ready():
        return os.path.exists(path) and b"PONG" in subprocess.run(["redis-cli", "-s", path, "ping"], capture_output=True).stdout

    return lambda options: scene.serve(options, command, ready, load, stop)


def redis_pipelined(scene):
    return redis(scene, 16)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def nginx(scene, size=4000):
    path = shutil.which("nginx") or "/usr/sbin/nginx"
    need(path), need("wrk")
    port = free_port()
    os.makedirs(scene.path("www"), exist_ok=True)
    scene.write("www/index.html", "<p>" + "some text " * (size // 10) + "</p>\n")
    configuration = scene.write("nginx.conf", f"daemon off; master_process off; worker_processes 1; pid {scene.folder}/pid;\n"
                                f"error_log {scene.folder}/error.log; events {{ }} http {{ access_log {scene.folder}/log;\n"
                                f"client_body_temp_path {scene.folder}; proxy_temp_path {scene.folder};\n"
                                f"fastcgi_temp_path {scene.folder}; uwsgi_temp_path {scene.folder};\n"
                                f"scgi_temp_path {scene.folder}; sendfile on; keepalive_requests 1000000;\n"
                                f"server {{ listen 127.0.0.1:{port}; root {scene.folder}/www; }} }}\n")

    def ready():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    def load():
        seconds = max(1, int(4 * scene.scale))
        out = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", f"http://127.0.0.1:{port}/"], capture_output=True,
                             text=True, check=True).stdout
        found = re.search(r"(\d+) requests in ([\d.]+)s", out)
        return int(found.group(1)), float(found.group(2))

    return lambda options: scene.serve(options, [path, "-c", configuration, "-e", scene.path("error.log")], ready, load,
                                       lambda process: stop_child(process, signal.SIGTERM))


def nginx_large(scene):
    return nginx(scene, 1000000)


def stop_child(process, number):
    """The recorder passes it on; an untraced server has it itself."""
    os.kill(process.pid, number)


POSTGRES = """
create table t(id int primary key, a int, b text, c double precision);
insert into t select i, i * 7919 % 100003, 'text ' || (i % 977), i / 7.0 from generate_series(1, SCALE) i;
create index t_a on t(a);
select count(*), sum(a), min(b), max(c) from t;
select b, count(*), avg(a) from t group by b order by 2 desc, 1 limit 10;
select count(*) from t x join t y on x.a = y.id where y.a % 11 = 3;
update t set c = c + 1 where a between 1000 and 20000;
delete from t where id % 3 = 0;
select count(*), sum(c) from t;
"""


def postgres(scene):
    folder = next((f for f in ("/usr/lib/postgresql/%d/bin" % v for v in range(20, 10, -1)) if os.path.isdir(f)), None)
    if folder is None:
        raise Missing("no postgres")
    if os.geteuid() != 0:
        raise Missing("not root, so no other user to run postgres")
    import pwd
    user = pwd.getpwnam("postgres")
    os.chmod(scene.folder, 0o777)
    os.chmod(os.path.dirname(scene.folder), 0o711)
    data = scene.path("pg")
    subprocess.run([folder + "/initdb", "-D", data, "-A", "trust"], check=True, capture_output=True, user=user.pw_uid,
                   group=user.pw_gid, cwd=scene.folder)
    script = scene.write("work-pg.sql", "\n".join(line for line in POSTGRES.replace("SCALE", str(int(100000 * scene.scale)))
                                                 .splitlines()) + "\ndrop table t;\n")
    return lambda options: scene.run(options, [folder + "/postgres", "--single", "-D", data, "postgres"], stdin=script,
                                     user=user.pw_uid)


PROGRAMS = [
    ("sha256sum, 300 MB", "I/O", sha256sum),
    ("openssl enc, 300 MB", "mixed", openssl),
    ("dd, 1 GB with fsync", "I/O", dd),
    ("tar -c, 20 large files", "I/O", tar_large),
    ("nginx, files of 1 MB", "I/O", nginx_large),
    ("cp -r, 4,000 files", "calls", cp),
    ("tar -c, 4,000 files", "calls", tar),
    ("grep, 300 MB", "I/O", grep),
    ("nginx, files of 4 kB", "calls", nginx),
    ("redis-server", "calls", redis),
    ("redis-server, pipelined", "calls", redis_pipelined),
    ("xz -T2", "mixed", xz),
    ("sort, 16 MB", "calls", sort),
    ("python3 start", "calls", python_start),
    ("python3 script", "calls", python_script),
    ("perl script", "calls", perl),
    ("bash script", "calls", bash),
    ("node script", "mixed", node),
    ("java hello", "mixed", java),
    ("sqlite3 shell", "calls", sqlite),
    ("postgres --single", "calls", postgres),
    ("git log -p", "calls", git_log),
    ("git status", "mixed", git_status),
    ("cc1 -O2", "calls", cc1),
    ("clang++ -O1", "calls", clang),
]


def selected(only):
    names = only.split(",") if only else None
    return [p for p in PROGRAMS if names is None or any(name.strip() in p[0] for name in names)]


def measure(scene, make, repeat):
    """{way: [Run]}; the ways take turns, so that a slow minute of the machine hits all of them."""
    go = make(scene)
    go(None)  # warm
    runs = {name: [] for name, _ in WAYS}
    for _ in range(repeat):
        for name, options in WAYS:
            runs[name].append(go(options))
    return runs


def per_work(runs, what):
    return statistics.median(getattr(run, what) / run.work for run in runs)


EVENTS_FOR_A_PRICE = 1000000  # what starts and ends cost is more than what fewer of them do


def figures(runs):
    result = {}
    base = runs["untraced"]
    result["untraced_s"] = per_work(base, "wall") * base[0].work
    result["untraced_cpu_s"] = per_work(base, "cpu") * base[0].work
    for name in ("all", "hot"):
        infos = [run.info for run in runs[name]]
        events = statistics.median(info["events"] for info in infos)
        seconds = statistics.median(run.wall for run in runs[name])
        result[name] = {
            "wall": per_work(runs[name], "wall") / per_work(base, "wall"),
            "cpu": per_work(runs[name], "cpu") / max(per_work(base, "cpu"), 1e-9),
            "install_s": statistics.median(info["install_ns"] for info in infos) / 1e9,
            "events": events,
            "events_per_second": events / seconds,
            "dropped": max(info["dropped"] for info in infos),
            "bytes_per_event": statistics.median(info["bytes"] / max(info["events"], 1) for info in infos),
        }
        # What an event costs the program: the processor time it takes more, by the number of its events.
        more = per_work(runs[name], "cpu") * runs[name][0].work - result["untraced_cpu_s"] * (runs[name][0].work / base[0].work)
        result[name]["ns_per_event"] = more * 1e9 / events if events >= EVENTS_FOR_A_PRICE else None
        result[name]["dropped_share"] = result[name]["dropped"] / max(events + result[name]["dropped"], 1)
    result["hot"]["fewer_events"] = 1 - result["hot"]["events"] / max(result["all"]["events"], 1)
    return result


def count_text(n):
    return f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"


def show(name, kind, f):
    a, h = f["all"], f["hot"]
    price = "-" if a["ns_per_event"] is None else f"{a['ns_per_event']:.0f}"
    print(f"| {name} | {kind} | {f['untraced_s']:.2f} | {f['untraced_cpu_s']:.2f} | {a['wall']:.2f} | {a['cpu']:.2f} | "
          f"{count_text(a['events'])} | {a['events_per_second'] / 1e6:.1f} | {100 * a['dropped_share']:.1f} % | "
          f"{a['bytes_per_event']:.2f} | {price} | {a['install_s'] * 1e3:.0f} | {h['wall']:.2f} | {h['cpu']:.2f} | "
          f"{100 * h['fewer_events']:.0f} % |", flush=True)


def overhead(options, folder):
    print("| program | kind | s | cpu s | wall | cpu | events | M/s | dropped | bytes/event | ns/event | hooks ms | "
          "hot: wall | cpu | fewer events |\n|---|---|" + "---:|" * 13)
    results = {}
    for name, kind, make in selected(options.only):
        place = os.path.join(folder, re.sub(r"\W+", "-", name))
        os.makedirs(place)
        try:
            runs = measure(Scene(options.contrail, place, 0.2 if options.quick else 1), make, 3 if options.quick else 5)
            results[name] = figures(runs)
            show(name, kind, results[name])
        except Missing as reason:
            print(f"| {name} | {reason} |")
        except (RuntimeError, OSError, subprocess.SubprocessError, AttributeError, KeyError) as error:
            print(f"| {name} | failed: {error} |", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    return results


EVENT = ["python3 script", "sqlite3 shell", "redis-server", "cc1 -O2", "node script"]


def event(options, folder, rdtsc_ns):
    """What an event costs: user time of the program more than untraced, by the number of its events, the drain at work beside
    it; median of the rounds, each with the clock's cost of its own (rdtsc_ns()): the machine's speed changes."""
    print("| program | events | lost | untraced, user s | traced | ns/event | rdtsc ns | event / rdtsc | least, most |\n|---|" +
          "---:|" * 8)
    results = {}
    for name, _, make in [p for p in PROGRAMS if (selected(options.only).count(p) if options.only else p[0] in EVENT)]:
        place = os.path.join(folder, re.sub(r"\W+", "-", name))
        os.makedirs(place)
        try:
            go = make(Scene(options.contrail, place, 0.2 if options.quick else 1))
            go(None)
            rounds = []
            for _ in range(3 if options.quick else 7):
                plain, clock, traced = go(None), rdtsc_ns(), go([])
                more = traced.user - plain.user * traced.work / plain.work
                rounds.append((more * 1e9 / traced.info["events"] / clock, clock, plain, traced))
            rounds.sort(key=lambda row: row[0])
            ratio, clock, plain, traced = rounds[len(rounds) // 2]
            lost = traced.info["dropped"]
            results[name] = {"events": traced.info["events"], "lost": lost, "ns": ratio * clock, "rdtsc_ns": clock,
                             "per_rdtsc": ratio, "range": [rounds[0][0], rounds[-1][0]]}
            print(f"| {name} | {count_text(traced.info['events'])} | {lost} | {plain.user * traced.work / plain.work:.2f} | "
                  f"{traced.user:.2f} | {ratio * clock:.1f} | {clock:.1f} | {ratio:.2f} | {rounds[0][0]:.2f}, "
                  f"{rounds[-1][0]:.2f} |", flush=True)
        except Missing as reason:
            print(f"| {name} | {reason} |")
        except (RuntimeError, OSError, subprocess.SubprocessError, AttributeError, KeyError) as error:
            print(f"| {name} | failed: {error} |", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    return results


def hot(options, folder):
    """Where the events go: for each program the functions with the most calls."""
    everywhere = collections.Counter()
    for name, _, make in selected(options.only):
        place = os.path.join(folder, re.sub(r"\W+", "-", name))
        os.makedirs(place)
        try:
            scene = Scene(options.contrail, place, 0.2 if options.quick else 1)
            make(scene)(options.record.split())
            out = subprocess.run([options.contrail, "report", "--json", "--sort", "calls", "--limit", "0", scene.trace],
                                 capture_output=True, text=True, check=True).stdout
            rows = json.loads(out)["functions"]
            total = sum(row["calls"] for row in rows)
            print(f"\n{name}: {total} calls of {sum(row['calls'] > 0 for row in rows)} functions")
            for row in rows[:options.top]:
                share = 100 * row["calls"] / max(total, 1)
                module = os.path.basename(row["module"])
                everywhere[f"{module}!{row['name']}"] += share
                own = row["self_ns"] / max(row["calls"], 1) if row["self_ns"] else 0
                print(f"  {share:5.1f} %  {row['calls']:>12}  {own:>8.0f} ns  {module}!{row['name'][:100]}", flush=True)
        except (Missing, RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"\n{name}: {error}")
        shutil.rmtree(place, ignore_errors=True)
    return dict(everywhere.most_common())
