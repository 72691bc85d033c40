#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that run under load are attached to and detached from, many times: no error in the load, no leak of memory
or of descriptors, every byte of code as in the file afterwards, the mappings as before, and traces that can be read.

    tests/attach.py [--turns N] [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess

import harness
from harness import HERE, Skip, case, free_port, main, need, wait_for
from processes import state_of


class Target:
    """A program under load: its process, and how the load is asked whether all is well."""

    def __init__(self, folder):
        self.folder, self.children = folder, []

    def start(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        child = subprocess.Popen(words, cwd=self.folder, start_new_session=True, **options)
        self.children.append(child)
        return child

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def stop(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdout, child.stdin):
                if pipe:
                    pipe.close()


class Counting(Target):
    """A program that writes lines of numbers, each one more than the last, and fails when it finds an error itself."""

    def __init__(self, folder, words):
        super().__init__(folder)
        self.out = os.path.join(folder, "out")
        with open(self.out, "wb") as out:
            self.process = self.start(*words, stdout=out, stderr=out)
        self.wait_for(1)

    def last(self):
        with open(self.out, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        wrong = [line for number, line in enumerate(lines, 1) if line != b"%d" % number]
        assert not wrong, f"it wrote {wrong[:3]}"
        return len(lines)

    def wait_for(self, number):
        def reached():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            return self.last() >= number
        wait_for("its next line", reached)

    def check(self):
        self.wait_for(self.last() + 2)


class Redis(Target):
    def __init__(self, folder):
        super().__init__(folder)
        self.port = str(free_port())
        self.process = self.start(need("redis-server"), "--port", self.port, "--save", "", "--io-threads", "2")
        need("redis-benchmark")
        self.wait_until_up()
        self.load = None
        self.check()

    def ask(self, words):
        with socket.create_connection(("127.0.0.1", int(self.port)), 30) as line:
            line.sendall(words.encode() + b"\r\n")
            return line.recv(65536).decode()

    def wait_until_up(self):
        def answers():
            try:
                return self.ask("PING") == "+PONG\r\n"
            except OSError:
                return False
        wait_for("redis", answers)

    def check(self):
        value = str(random.randrange(10**9))
        assert self.ask(f"SET key {value}") == "+OK\r\n"
        assert self.ask("GET key").split("\r\n")[1] == value
        if self.load is None or self.load.poll() is not None:
            if self.load is not None:
                error = self.load.stdout.read().decode()
                assert self.load.returncode == 0 and "rror" not in error, f"redis-benchmark: {error[-300:]}"
                self.load.stdout.close()
            self.load = self.start("redis-benchmark", "-p", self.port, "-q", "-n", "200000", "-c", "20", "-t",
                                   "set,get,lpush,zadd", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


PYTHON = """
import json, re, threading, zlib
n = 0
while True:
    n += 1
    data = {"a": list(range(200)), "b": "x" * n}
    assert json.loads(json.dumps(data)) == data
    assert zlib.decompress(zlib.compress(b"y" * 5000)) == b"y" * 5000
    assert re.sub("[0-9]+", "", "a1b22c333") == "abc"
    try:
        raise KeyError(n)
    except KeyError:
        pass
    t = threading.Thread(target=len, args=("abc",)); t.start(); t.join()
    if n % 50 == 0:
        print(n // 50, flush=True)
"""

NODE = """
let n = 0;
function turn() {
  for (let i = 0; i < 200; i++) {
    const data = {a: Array.from({length: 100}, (_, k) => k * n), b: 'x'.repeat(n % 1000)};
    if (JSON.stringify(JSON.parse(JSON.stringify(data))) !== JSON.stringify(data)) process.exit(3);
  }
  require('fs').writeSync(1, `${++n}\\n`);
  setImmediate(turn);
}
turn();
"""


GEVENT = """
import gevent
from gevent import socket
from gevent.server import StreamServer
number = lines = 0
def later(depth, value):
    if depth:
        return later(depth - 1, value)
    gevent.sleep(0)
    return value
def serve(connection, address):
    file = connection.makefile("rwb")
    for line in file:
        file.write(b"%d\\n" % (later(int(line) % 13, int(line)) * 3))
        file.flush()
def ask(seed):
    global number, lines
    file = socket.create_connection(("127.0.0.1", server.server_port)).makefile("rwb")
    while True:
        seed = (seed * 7 + 1) % 100003
        file.write(b"%d\\n" % seed)
        file.flush()
        assert int(file.readline()) == 3 * seed
        number += 1
        if number % 500 == 0:
            lines += 1
            print(lines, flush=True)
server = StreamServer(("127.0.0.1", 0), serve)
server.start()
gevent.joinall([gevent.spawn(ask, seed) for seed in range(8)], raise_error=True)
"""

CALLCC = """
require 'continuation'
def down(depth, &block)
  depth == 0 ? block.call : down(depth - 1, &block) + 1
end
def round(number)
  got = down(number % 17) { callcc { |k| $k = k; 0 } }
  $tries += 1
  $k.call($tries * 100) if $tries < 4
  got
end
lines = 0
(1..).each do |number|
  $tries = 0
  exit 3 if round(number) != 300 + number % 17
  next if number % 200 != 0
  puts(lines += 1)
  $stdout.flush
end
"""


def redis(folder):
    return Redis(folder)


def python(folder):
    target = Target(folder)
    return Counting(folder, [need("python3"), target.write("load.py", PYTHON)])


def node(folder):
    target = Target(folder)
    return Counting(folder, [need("node"), target.write("load.js", NODE)])


def compiled(folder, name, *flags):
    """In the folder; made once, for all groups that play it."""
    source = os.path.join(HERE, "attach", name)
    made = harness.compiled(harness.PLACES["build"], source, ["g++" if name.endswith("pp") else "gcc", "-O2", "-g", "-lpthread", *flags])
    return shutil.copy(made, os.path.join(folder, name.split(".")[0]))


THREADS = {"count": 100}  # of threads.cpp


def threads(folder):
    return Counting(folder, [compiled(folder, "threads.cpp"), str(THREADS["count"])])


def coroutines(folder):
    return Counting(folder, [compiled(folder, "coroutines.c")])


def deep(folder):
    return Counting(folder, [compiled(folder, "deep.c")])


def stepover(folder):
    return Counting(folder, [compiled(folder, "stepover.c")])


def leftover(folder):
    return Counting(folder, [compiled(folder, "leftover.c")])


def stackcopies(folder):
    return Counting(folder, [compiled(folder, "stackcopies.c")])


def gevent(folder):
    """Debian's python has Debian's gevent, whatever python3 is here."""
    interpreter = need("/usr/bin/python3")
    if subprocess.run([interpreter, "-c", "import gevent"], capture_output=True).returncode:
        raise Skip("no python3-gevent")
    return Counting(folder, [interpreter, Target(folder).write("server.py", GEVENT)])


def callcc(folder):
    return Counting(folder, [need("ruby"), "-W0", Target(folder).write("callcc.rb", CALLCC)])


TARGETS = [redis, threads, python, node, coroutines, deep, stepover, leftover, stackcopies, gevent, callcc]


def maps_of(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


OUR_BYTES = {0x80000000, 0x4000000, 0x2cc1000}  # the byte table, control pages, the map of stacks (ring/layout.h, stacks.h)


def is_ours(line):
    """A line of maps: the ring, or what lies beside it, known by its size."""
    fields = line.split(None, 5)
    lo, hi = (int(end, 16) for end in fields[0].split("-"))
    return "memfd:contrail" in line or (len(fields) < 6 and hi - lo in OUR_BYTES)


def ours_in(pid):
    return [line for line in maps_of(pid) if is_ours(line)]


def code_differs(pid):
    """The executable mappings of files that are not what the file has there."""
    try:
        wrong = look_at_code(pid)
    except OSError:  # unloaded meanwhile
        wrong = ["?"]
    if wrong:  # once more, while nothing can be loaded and unloaded
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for("a stop", lambda: all(state_of(f"{pid}/task/{tid}") in ("T", "Z", "X", "")
                                           for tid in os.listdir(f"/proc/{pid}/task")), seconds=10)
            wrong = look_at_code(pid)
        finally:
            os.kill(pid, signal.SIGCONT)
    return wrong


def look_at_code(pid):
    wrong = []
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps_of(pid):
            span, rights, offset, _, inode, *path = line.split(None, 5)
            if "x" not in rights or inode == "0" or not path or not path[0].startswith("/"):
                continue
            low, high = (int(part, 16) for part in span.split("-"))
            memory.seek(low)
            have = memory.read(high - low)
            if len(have) != high - low:
                raise OSError("unmapped meanwhile")
            with open(path[0], "rb") as file:
                file.seek(int(offset, 16))
                want = file.read(high - low)
            if have[:len(want)] != want:
                at = next(i for i, (a, b) in enumerate(zip(have, want)) if a != b)
                wrong.append(f"{path[0]}+{int(offset, 16) + at:#x}: {have[at:at + 8].hex()}, not {want[at:at + 8].hex()}")
    return wrong


def descriptors_of(pid):
    """How many; without connections, which come and go with the load."""
    count = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:")
        except OSError:  # closed meanwhile
            pass
    return count


def usage(pid):
    """Private memory in KiB, descriptors, mappings."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        private = sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))
    return private, descriptors_of(pid), len(maps_of(pid))


KEPT = "note: a thread has not left"


def was_given_up(status, error):
    """The process does too much, or others have the processors: it was left as it was, and whoever wants to asks again."""
    return status == 125 and any(words in error for words in ("try again", "in time", "cannot stop"))


def one_turn(options, target, turn, figures):
    trace = os.path.join(target.folder, "trace")
    words = [options.contrail, "attach", "--for", f"{random.randrange(1, 80)}ms", "-o", trace,
             str(target.process.pid)]
    for _ in range(3):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        error = done.stderr.decode(errors="replace")
        if not was_given_up(done.returncode, error):
            break
        shutil.rmtree(trace, ignore_errors=True)
    if KEPT in error:
        subprocess.run([options.contrail, "clean", str(target.process.pid)], capture_output=True, timeout=120, check=True)
    assert done.returncode == 0, f"turn {turn}: status {done.returncode}: {error}"
    held = [float(number) for number in re.findall(r"stopped for ([0-9.]+) ms", error)]
    assert len(held) == 2, f"turn {turn}: {error}"
    figures["attach"].append(held[0])
    figures["detach"].append(held[1])
    info = json.loads(subprocess.run([options.contrail, "info", "--json", trace], capture_output=True,
                                     check=True).stdout)
    figures["events"] += info["events"]
    shutil.rmtree(trace)
    assert target.process.poll() is None, f"turn {turn}: it ended with {target.process.returncode}"
    left = ours_in(target.process.pid)
    assert not left, f"turn {turn}: left behind: {left[:3]}; said: {error.strip()}"


class Scene(harness.Scene):
    def __init__(self, options, folder, make):
        super().__init__(options, folder)
        self.make = make


def attach_often(scene):
    THREADS["count"] = scene.rounds(49, 100)
    figures, options = {"attach": [], "detach": [], "events": 0}, scene.options
    target = scene.make(scene.folder)
    try:
        one_turn(options, target, 0, figures)
        target.check()
        before = usage(target.process.pid)
        for turn in range(1, options.turns + 1):
            one_turn(options, target, turn, figures)
            if turn % 5 == 0:
                target.check()
        target.check()
        after = usage(target.process.pid)
        wrong = code_differs(target.process.pid)
        assert not wrong, f"code is not as in the file: {wrong[:3]}"
        assert after[1] <= before[1] + 12, f"descriptors: {before[1]} before, {after[1]} after"
    finally:
        target.stop()
    middle = {key: sorted(figures[key])[len(figures[key]) // 2] for key in ("attach", "detach")}
    return (f"{options.turns} turns, {figures['events']:,} events, held {middle['attach']:.1f} ms to attach, "
            f"{middle['detach']:.1f} to detach (most {max(figures['attach']):.0f}, {max(figures['detach']):.0f}); private "
            f"memory {before[0]} KiB, then {after[0]}; {before[1]} descriptors, then {after[1]}; {before[2]} mappings, "
            f"then {after[2]}")


def arguments(parser):
    parser.add_argument("--turns", type=int, default=15)


for target_made in TARGETS:
    # Of those that take long: the programs of others, and many threads. killed.py attaches to half of its programs, these among them.
    case(target_made.__name__, make=target_made, some=("large", 1) if target_made in (threads, python, node, gevent, redis) else None)(attach_often)


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
