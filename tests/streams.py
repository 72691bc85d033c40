#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces that are sent while they are recorded: record --to and receive. What has arrived is compared byte by byte with
what was recorded, over both kinds of sockets, over connections that are cut at any place, and with ends that are killed; and
frames are sent that no contrail sends.

    tests/streams.py [--filter PATTERN] [--build DIR]
"""
import glob
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import harness
from harness import case, expect, free_port, main, wait_for

TOKEN = "a token of the tests"
HELLO, DATA, WHOLE, CHECK, END, PING = range(1, 7)
HAVE, READY, REFUSED, WRONG, VERDICT = range(16, 21)


def files_of(directory):
    """All files below it, by path: their bytes."""
    found = {}
    for path, _, names in os.walk(directory):
        for name in names:
            full = os.path.join(path, name)
            with open(full, "rb") as file:
                found[os.path.relpath(full, directory)] = file.read()
    return found


class Proxy:
    """Hands on what comes at a port of its own, and cuts: after so many bytes of the sender for each connection, or now."""

    def __init__(self, port, limits=()):
        self.to, self.limits, self.pairs, self.cuts, self.is_closed = port, list(limits), [], 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_closed:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            limit = self.limits.pop(0) if self.limits else None
            self.pairs.append((near, far))
            threading.Thread(target=self.pump, args=(near, far, limit), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, None), daemon=True).start()

    def pump(self, source, target, limit):
        try:
            while True:
                data = source.recv(65536 if limit is None else min(65536, limit))
                if not data:
                    break
                target.sendall(data)
                if limit is not None:
                    limit -= len(data)
                    if limit <= 0:
                        self.cuts += 1
                        break
        except OSError:
            pass
        self.part(source, target)

    @staticmethod
    def part(*ends):
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, is_closed):
        self.is_closed = is_closed
        for pair in self.pairs:
            self.part(*pair)
        self.pairs = []

    def close(self):
        self.cut(True)
        self.listener.close()


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        os.mkdir(self.path("runtime"), 0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.path("runtime"))
        self.there = self.path("there")
        self.unix = "unix:" + self.path("socket")
        self.children, self.proxies = [], []

    def begin(self, *words, **more):
        child = subprocess.Popen([self.contrail, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=self.environment, **more)
        self.children.append(child)
        return child

    def receive(self, *options, address=None, port=None, directory=None):
        """A receiver that listens."""
        words = ["--token", TOKEN] if port else []
        child = self.begin("receive", *words, *options, "-o", directory or self.there,
                           address or (f"tcp://127.0.0.1:{port}" if port else self.unix))
        line = child.stderr.readline()
        expect(line.startswith("contrail: waiting at"), f"the receiver does not begin: {line}")
        return child

    def start(self, *options, name="ticks"):
        """A program that is recorded, when it is ready; it ends with its input."""
        program = self.compile(f"programs/{name}.c", "-O1", "-pthread", compiler="cc")
        child = self.begin("record", "-o", self.trace, *options, "--", program, stdin=subprocess.PIPE)
        line = child.stdout.readline()
        expect(line == "ready\n", f"the program does not begin: {line!r} {child.stderr.read() if not line else ''}")
        return child

    def proxy(self, port, limits=()):
        self.proxies.append(Proxy(port, limits))
        return self.proxies[-1]

    def end(self, child, status=0, **more):
        out, errors = child.communicate(timeout=100, **more)
        expect(child.returncode == status, f"status {child.returncode}, not {status}: {errors}")
        return errors

    def compare(self, directory=None):
        """What has arrived is what was recorded, and so are the reports of it."""
        here, there = files_of(self.trace), files_of(directory or self.there)
        expect(set(here) == set(there), f"other files: {sorted(set(here) ^ set(there))}")
        for name, data in here.items():
            expect(data == there[name], f"{name} differs: {len(data)} bytes, {len(there[name])} there")
        reports = [json.loads(self.run(self.contrail, "report", "--json", trace)) for trace in (self.trace, directory or self.there)]
        expect(reports[0]["functions"] == reports[1]["functions"] and reports[0]["functions"], "the reports differ")
        return here

    def close(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        for proxy in self.proxies:
            proxy.close()


@case
def unix(scene):
    receiver = scene.receive()
    mode = os.stat(scene.path("socket")).st_mode & 0o777
    expect(mode == 0o600, f"the socket can be used by others: {mode:o}")
    scene.record("--to", scene.unix, "--", "/usr/bin/python3", "-c", "print(sum(range(10)))")
    scene.end(receiver)
    scene.compare()
    expect(not os.path.exists(scene.path("socket")), "the socket stays")


@case
def tcp(scene):
    """The token in a file at one end, as a text at the other; the program's status is the command's."""
    port = free_port()
    receiver = scene.begin("receive", "--token", scene.write("token", TOKEN + "\n"), "-o", scene.there, f"tcp://localhost:{port}")
    receiver.stderr.readline()
    scene.run(scene.contrail, "record", "-o", scene.trace, "--token", TOKEN, "--to", f"tcp://localhost:{port}", "--",
              "/bin/sh", "-c", "ls / >/dev/null; exit 7", status=7)
    scene.end(receiver)
    scene.compare()


@case("while it grows")
def grows(scene):
    """The trace at the far end is read while it is recorded: calls of the last moment, and the state."""
    receiver = scene.receive()
    recorder = scene.start("--to", scene.unix)

    def calls():
        rows = scene.rows(trace=scene.there) if os.path.exists(scene.path("there", "manifest.json")) else {}
        return rows["quick"]["calls"] if "quick" in rows else 0
    wait_for("calls at the far end", lambda: calls() > 0)
    first = calls()
    wait_for("more of them", lambda: calls() > first + 100)
    expect(scene.manifest(scene.there)["state"] == "recording", "the state is another")
    recorder.stdin.write("\n")
    recorder.stdin.flush()
    wait_for("the second thread", lambda: os.path.exists(scene.path("there", "thread_2", "index.ctb")))
    scene.end(recorder)
    scene.end(receiver)
    files = scene.compare()
    expect("thread_2/index.ctb" in files, "no second thread")


@case
def family(scene):
    receiver = scene.receive()
    scene.record("--to", scene.unix, "--follow", "--", "/bin/sh", "-c", "ls / >/dev/null; (ls /etc >/dev/null); true")
    scene.end(receiver)
    files = scene.compare()
    expect(any(name.startswith("process-") for name in files), "no child")


@case("detail, output, crash, values")
def more_files(scene):
    receiver = scene.receive()
    result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--to", scene.unix, "--detail=all", "--args", "--",
                           "/bin/sh", "-c", "echo text; kill -SEGV $$")
    expect(result.returncode in (139, -signal.SIGSEGV), f"status {result.returncode}: {result.stderr}")
    scene.end(receiver)
    names = scene.compare()
    expect({"output.cto", "crash.json", "thread_0/detail.ctd"} <= set(names), f"too few files: {sorted(names)}")


def arrived(scene, where="there"):
    """Bytes of events that are there."""
    return sum(map(os.path.getsize, glob.glob(scene.path(where, "thread_*", "index.ctb"))))


def more_arrives(scene, where="there", bytes_more=1):
    had = arrived(scene, where)
    wait_for(f"more events in {where}", lambda: arrived(scene, where) >= had + bytes_more)


@case("receiver killed")
def receiver_killed(scene):
    """Killed in the middle, twice, and started again after some seconds: nothing is missing."""
    receiver = scene.receive()
    recorder = scene.start("--to", scene.unix)
    for pause in (0.3, 5):
        wait_for("events", lambda: os.path.exists(scene.path("there", "thread_1", "index.ctb")))
        more_arrives(scene)
        receiver.kill()
        receiver.wait()
        time.sleep(pause)  # it is for how long that is tried
        receiver = scene.receive()
    more_arrives(scene)
    errors = scene.end(recorder)
    expect("the connection was lost 2 times" in errors, f"no word of the cuts: {errors}")
    scene.end(receiver)
    scene.compare()


@case("receiver with damage")
def damaged(scene):
    """What is in the directory when it comes back is not what was sent: one file is changed, one is longer, one is gone."""
    receiver = scene.receive()
    recorder = scene.start("--to", scene.unix)
    wait_for("events", lambda: os.path.exists(scene.path("there", "thread_1", "index.ctb")))
    more_arrives(scene)
    receiver.kill()
    receiver.wait()
    with open(scene.path("there", "functions.tsv"), "r+b") as file:
        file.seek(100)
        file.write(b"!!!")
    with open(scene.path("there", "thread_0", "index.ctb"), "ab") as file:
        file.write(b"x" * 1000000)
    os.unlink(scene.path("there", "thread_1", "index.ctb"))
    os.mkdir(scene.path("there", "thread_77"))
    shutil.copy(scene.path("there", "thread_0", "index.ctb"), scene.path("there", "thread_77", "index.ctb"))
    receiver = scene.receive()
    scene.end(recorder)
    scene.end(receiver)
    scene.compare()


@case("connection cut")
def cut(scene):
    """By a proxy, after any number of bytes: in the first frame, in a head, in a piece."""
    port = free_port()
    receiver = scene.receive(port=port)
    proxy = scene.proxy(port, [400, 3000, 50000, 100001, 200003, 70, 5])
    recorder = scene.begin("record", "-o", scene.trace, "--token", TOKEN, "--to", f"tcp://127.0.0.1:{proxy.port}", "--",
                           "/usr/bin/python3", "-c", "print(sum(range(10)))")
    scene.end(recorder)
    scene.end(receiver)
    expect(proxy.cuts == 7, f"{proxy.cuts} cuts")
    scene.compare()


@case("cut of seconds")
def cut_of_seconds(scene):
    """Nobody is reached for five seconds, the program goes on, and nothing is lost."""
    port = free_port()
    receiver = scene.receive(port=port)
    proxy = scene.proxy(port)
    recorder = scene.start("--token", TOKEN, "--to", f"tcp://127.0.0.1:{proxy.port}")
    more_arrives(scene)
    proxy.cut(True)
    time.sleep(5)  # it is the duration that is tried
    proxy.cut(False)
    more_arrives(scene)
    errors = scene.end(recorder)
    expect("the connection was lost 1 time\n" in errors, f"no word of the cut: {errors}")
    scene.end(receiver)
    scene.compare()


@case("program ends while cut")
def ends_while_cut(scene):
    """What is left is sent after the end, when the receiver is there again."""
    receiver = scene.receive()
    recorder = scene.start("--to", scene.unix)
    receiver.kill()
    receiver.wait()
    recorder.stdin.close()
    wait_for("the end of the recording", lambda: scene.manifest()["state"] == "complete")
    receiver = scene.receive()
    recorder.stdin = None
    scene.end(recorder)
    scene.end(receiver)
    scene.compare()


@case("interrupted while it waits for the receiver")
def interrupted(scene):
    receiver = scene.receive()
    recorder = scene.start("--to", scene.unix)
    receiver.kill()
    receiver.wait()
    recorder.stdin.close()
    recorder.stdin = None
    wait_for("the end of the recording", lambda: scene.manifest()["state"] == "complete")
    time.sleep(1)  # that it waits is what is tried
    expect(recorder.poll() is None, "it does not wait")
    recorder.terminate()
    errors = scene.end(recorder, 125)
    expect("interrupted" in errors, errors)


@case("two receivers, one directory")
def two_receivers(scene):
    receiver = scene.receive()
    result = scene.execute(scene.contrail, "receive", "-o", scene.there, "unix:" + scene.path("other"))
    expect(result.returncode == 1 and "another contrail" in result.stderr, f"{result.returncode} {result.stderr}")
    receiver.kill()


@case("sender killed")
def sender_killed(scene):
    """The receiver says that it is not whole; what is there is a beginning of what was recorded, and can be recovered."""
    receiver = scene.receive("--wait", "1")
    recorder = scene.start("--to", scene.unix)
    wait_for("events", lambda: os.path.exists(scene.path("there", "thread_1", "index.ctb")))
    wait_for("calls", lambda: scene.rows(trace=scene.there).get("quick", {}).get("calls", 0) > 100)
    recorder.kill()
    recorder.wait()
    errors = scene.end(receiver, 1)
    expect("is not whole" in errors, f"no word of it: {errors}")
    here, there = files_of(scene.trace), files_of(scene.there)
    for name, data in there.items():
        if name not in ("manifest.json", ".receiving"):
            expect(here[name].startswith(data), f"{name} is no beginning of what was recorded")
    expect(len(there["thread_1/index.ctb"]) > 200, "nothing has arrived")
    scene.run(scene.contrail, "recover", scene.there)
    expect(scene.rows(trace=scene.there)["quick"]["calls"] > 100, "the calls are not there")


@case("attach --to")
def attached(scene):
    """A process that runs already: sent while it is recorded, and after the detach all is there."""
    program = scene.compile("programs/ticks.c", "-O1", "-pthread", compiler="cc")
    target = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    scene.children.append(target)
    expect(target.stdout.readline() == "ready\n", "the program does not begin")
    receiver = scene.receive()
    recorder = scene.begin("attach", "-o", scene.trace, "--to", scene.unix, str(target.pid))
    wait_for("events at the other end", lambda: arrived(scene) > 5000)
    recorder.send_signal(signal.SIGINT)
    scene.end(recorder)
    scene.end(receiver)
    expect(target.poll() is None, "the program has ended")
    target.stdin.close()
    target.stdin = None
    scene.compare()
    result = scene.execute(scene.contrail, "attach", "-o", scene.path("other"), "--to", scene.unix, str(os.getpid()))
    expect(result.returncode == 125 and not os.path.exists(scene.path("other")), f"no receiver: {result}")


@case("send after a kill")
def sent_later(scene):
    """What a recorder that was killed had not sent: the receiver that waits for it gets the rest, and no more than that."""
    receiver = scene.receive("--wait", "60")
    recorder = scene.start("--to", scene.unix)
    wait_for("events", lambda: arrived(scene) > 5000)
    more_arrives(scene)
    index = max((path for path in glob.glob(scene.path("there", "thread_*", "index.ctb"))), key=os.path.getsize)
    mark = files_of(scene.trace)[".sending"]
    result = scene.execute(scene.contrail, "send", "--to", scene.unix, scene.trace)
    expect(result.returncode == 1 and "is being recorded" in result.stderr, f"{result}")
    recorder.send_signal(signal.SIGSTOP)  # so that there is something that it has not sent
    recorder.kill()
    recorder.wait()
    with open(index.replace(scene.there, scene.trace), "ab") as file:
        file.write(b"more")  # of a block that did not become whole
    before = os.path.getsize(index)
    inode = os.stat(index).st_ino
    said = scene.execute(scene.contrail, "send", "--to", scene.unix, scene.trace)
    expect(said.returncode == 0 and "sent to unix:" in said.stderr, f"{said}")
    errors = scene.end(receiver)
    expect("the sender is back" in errors, errors)
    expect(os.stat(index).st_ino == inode and os.path.getsize(index) >= before + 4, "it began anew")
    here, there = files_of(scene.trace), files_of(scene.there)
    expect(here == there and ".sending" not in here and len(mark) == 33, f"{set(here) ^ set(there)}")
    for trace in (scene.trace, scene.there):
        scene.run(scene.contrail, "recover", trace)
    expect(scene.rows(trace=scene.there)["quick"]["calls"] == scene.rows()["quick"]["calls"] > 0, "the calls are not there")


@case("send a trace that is complete")
def sent_whole(scene):
    """To a new receiver, twice; what is no trace is not sent, and nobody is spoken to."""
    scene.record("-q", "--", "/bin/true")
    for n in range(2):
        receiver = scene.receive(directory=scene.path(f"there{n}"))
        scene.run(scene.contrail, "send", "-q", "--to", scene.unix, scene.trace)
        scene.end(receiver)
        scene.compare(scene.path(f"there{n}"))
    for words, status, why in ((("--to", scene.unix, scene.folder), 1, "no trace"), (("--to", scene.unix, scene.path("none")), 1, "No such file"),
                               (("--to", scene.unix, scene.trace), 1, "socket"), ((scene.trace,), 2, "where to"),
                               (("--to", "fd:77", scene.trace), 1, "Bad file descriptor"), (("--to", "fd:1", scene.trace), 2, "from 3 on"),
                               (("--to", "fd:x", scene.trace), 2, "fd:N"), (("--token", TOKEN, scene.trace), 2, "where to")):
        result = scene.execute(scene.contrail, "send", *words)
        expect(result.returncode == status and why in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result}")


@case("down a pipe")
def piped(scene):
    """--to -: the trace goes to standard output, and what the program writes there to standard error; fd:3: the program's standard
    output stays its own, and it does not inherit the pipe; by way of a file; families too."""
    script = 'exec "$0" record -q -o "$1" --to - --follow -- /bin/sh -c "echo out; echo err >&2; ls -l /proc/self/fd | wc -l" | "$0" receive -q -o "$2" -'
    result = scene.execute("sh", "-c", script, scene.contrail, scene.trace, scene.there)
    plain = scene.execute("sh", "-c", "ls -l /proc/self/fd | wc -l").stdout
    expect(result.returncode == 0 and result.stdout == "" and sorted(result.stderr.split()) == sorted(["out", "err", plain.strip()]), f"{result}")
    scene.compare()
    shutil.rmtree(scene.trace)
    script = 'exec 4>&1; { "$0" record -q -o "$1" --to fd:3 -- /bin/sh -c "echo out; ls -l /proc/self/fd | wc -l" 3>&1 >&4 4>&-; } | "$0" receive -q -o "$2" - 4>&-'
    result = scene.execute("sh", "-c", script, scene.contrail, scene.trace, scene.path("there3"))
    expect(result.returncode == 0 and result.stdout == "out\n" + plain and result.stderr == "", f"{result}")
    scene.compare(scene.path("there3"))
    scene.run("sh", "-c", '"$0" send -q --to - "$1" >file && "$0" receive -q -o later - <file', scene.contrail, scene.trace)
    scene.compare(scene.path("later"))
    return f"{os.path.getsize(scene.path('file'))} bytes"


@case("a pipe that ends")
def pipe_ends(scene):
    """The reader goes, or the stream ends in its middle, or is none: each end says so, and the trace here is whole."""
    result = scene.execute("bash", "-c", '"$0" record -o "$1" --to - -- /usr/bin/python3 -c "print(1)" | head -c 1000 >/dev/null; echo ${PIPESTATUS[0]}',
                           scene.contrail, scene.trace)
    expect(result.stdout == "125\n" and "nobody reads it any more" in result.stderr and scene.manifest()["state"] == "complete", f"{result}")
    scene.run("sh", "-c", '"$0" send -q --to - "$1" >file', scene.contrail, scene.trace)
    with open(scene.path("file"), "rb") as file:
        data = file.read()
    for name, text, why in (("half", data[:len(data) // 2], "has ended"), ("none", b"x" * 4000, "no stream of contrail"), ("empty", b"", "in time"),
                            ("other", data[:2000] + b"\xff" * 64 + data[2064:], "")):
        scene.write("in", text)
        result = scene.execute("sh", "-c", '"$0" receive -o "$1" - <in', scene.contrail, scene.path(name))
        expect(result.returncode == 1 and why in result.stderr, f"{name}: {result}")


@case("a pipe whose reader is slow")
def pipe_slow(scene):
    """Twelve seconds nobody reads: longer than a connection may be silent. The program does not wait for it, and nothing is lost."""
    fifo = scene.path("fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY)
    os.set_inheritable(writer, True)
    os.dup2(writer, 30)
    recorder = scene.begin("record", "-q", "-o", scene.trace, "--to", "fd:30", "--", "/usr/bin/python3", "-c", "print(sum(range(9)))", pass_fds=[30])
    os.close(30)
    os.close(writer)
    expect(recorder.stdout.readline() == "36\n", "the program's output")
    wait_for("the end of the recording", lambda: os.path.exists(scene.path("trace", "manifest.json")) and scene.manifest()["state"] == "complete")
    time.sleep(12)  # it is the duration that is tried
    expect(recorder.poll() is None, "it does not wait for the reader")
    os.set_blocking(reader, True)
    receiver = subprocess.run([scene.contrail, "receive", "-q", "-o", scene.there, "-"], stdin=reader, capture_output=True, check=False)
    os.close(reader)
    expect(receiver.returncode == 0, f"{receiver}")
    scene.end(recorder)
    scene.compare()


@case("no receiver")
def no_receiver(scene):
    """Nothing is run, and one line says why."""
    for words in (["--to", scene.unix], ["--token", TOKEN, "--to", f"tcp://127.0.0.1:{free_port()}"],
                  ["--to", f"tcp://127.0.0.1:{free_port()}"], ["--to", "ftp:x"], ["--to", "tcp://::1:80"], ["--to", "unix:"],
                  ["--token", "short", "--to", scene.unix], ["--token", "/nothing", "--to", scene.unix]):
        result = scene.execute(scene.contrail, "record", "-o", scene.trace, *words, "--", "/bin/touch", scene.path("ran"))
        expect(result.returncode == 125 and len(result.stderr.splitlines()) == 1, f"{words}: {result.returncode} {result.stderr}")
        expect(not os.path.exists(scene.path("ran")) and not os.path.exists(scene.trace), f"{words}: it was run")
    for words in (["--to", scene.unix, "--last", "1M"], ["--to", scene.unix, "--max-size", "1M"], ["--token", TOKEN]):
        result = scene.execute(scene.contrail, "record", "-o", scene.trace, *words, "--", "/bin/true")
        expect(result.returncode == 2, f"{words}: {result.returncode} {result.stderr}")


@case("receiver gives up")
def receiver_gives_up(scene):
    """The limit is reached: both ends say so, the trace at the sender is whole; another receiver does not take its place."""
    receiver = scene.receive("--limit", "100K")
    result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--to", scene.unix, "--", "/usr/bin/python3", "-c", "0")
    expect(result.returncode == 125 and "not sent whole" in result.stderr, f"{result.returncode} {result.stderr}")
    errors = scene.end(receiver, 1)
    expect("limit" in errors, errors)
    expect(sum(map(len, files_of(scene.there).values())) <= 102400 + 64, "more than the limit")
    expect(scene.manifest()["state"] == "complete", "the trace here is not whole")


@case("receiver's limit, empty files")
def limit_of_files(scene):
    """Files without a byte, and their folders, take room as well: with the token no more of it than the limit."""
    port = free_port()
    receiver = scene.receive("--limit", "400K", port=port)
    peer = Peer(port)
    expect(peer.answers(READY)[-1][0] == READY, "not let in")
    for number in range(2000):
        peer.send(CHECK, struct.pack("<QI", 0, 0) + f"thread_{number}/index.ctb".encode())
    answer = peer.answer()
    expect(answer is not None and answer[0] == REFUSED and b"limit" in answer[1], f"{answer}")
    peer.close()
    expect("limit" in scene.end(receiver, 1), "it is not said")
    expect(len(files_of(scene.there)) <= 101, f"{len(files_of(scene.there))} files")


@case("program not found")
def not_found(scene):
    receiver = scene.receive()
    result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--to", scene.unix, "--", "/nothing")
    expect(result.returncode == 127 and len(result.stderr.splitlines()) == 1, f"{result.returncode} {result.stderr}")
    expect("given up" in scene.end(receiver, 1), "the receiver does not say so")


@case("receive, wrong usage")
def wrong_usage(scene):
    os.mkdir(scene.path("full"))
    scene.write("full/file", "x")
    for status, words in ((2, ["-o", scene.there]), (2, [scene.unix]), (2, ["-o", scene.there, "tcp://127.0.0.1:1"]),
                          (2, ["-o", scene.there, "nowhere"]), (2, ["-o", scene.there, scene.unix, scene.unix]),
                          (2, ["-o", scene.there, "--wait", "x", scene.unix]), (2, ["-o", scene.there, "--limit", "x", scene.unix]),
                          (1, ["-o", scene.path("full"), scene.unix]), (1, ["-o", scene.path("no", "where"), scene.unix]),
                          (1, ["-o", scene.there, "unix:/proc/nothing/socket"])):
        result = scene.execute(scene.contrail, "receive", *words)
        expect(result.returncode == status and result.stderr.startswith("contrail receive: "), f"{words}: {result.returncode} {result.stderr}")
    expect(files_of(scene.path("full")) == {"file": b"x"}, "the directory was changed")
    receiver = scene.receive()
    result = scene.execute(scene.contrail, "receive", "-o", scene.path("other"), scene.unix)
    expect(result.returncode == 1, "two receivers at one address")
    receiver.kill()


# ---- frames that no contrail sends ----


class Peer:
    """A connection to a receiver, by hand."""

    def __init__(self, port, token=TOKEN, stream=b"s" * 16, hello=None):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(300)
        self.send(HELLO, hello if hello is not None else b"CTST" + struct.pack("<I", 1) + stream + token.encode())

    def send(self, kind, payload=b"", length=None):
        self.raw(struct.pack("<IB3x", len(payload) if length is None else length, kind) + payload)

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def data(self, name, data, offset=0, total=0, kind=DATA, length=None):
        name = name if isinstance(name, bytes) else name.encode()
        self.send(kind, struct.pack("<QQI", offset, total, len(name) if length is None else length) + name + data)

    def read(self, size):
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            data += more
        return data

    def answer(self):
        """Type and payload of a frame; None at the end."""
        head = self.read(8)
        if head is None:
            return None
        length, kind = struct.unpack("<IB3x", head)
        return kind, self.read(length)

    def answers(self, last):
        found = []
        while not found or (found[-1] is not None and found[-1][0] != last):
            found.append(self.answer())
        return found

    def close(self):
        self.socket.close()


@case("wrong token")
def wrong_token(scene):
    """Also a prefix, a longer one, none; and the right one is let in afterwards."""
    port = free_port()
    receiver = scene.receive(port=port)
    for token in ("", TOKEN[:-1], TOKEN + "x", TOKEN * 2, "b" + TOKEN[1:], "x" * 256):
        peer = Peer(port, token)
        expect(peer.answer() == (REFUSED, b"wrong token"), f"{token!r} was let in")
        peer.close()
    result = scene.execute(scene.contrail, "record", "-o", scene.trace, "--token", "another one", "--to", f"tcp://127.0.0.1:{port}",
                           "--", "/bin/true")
    expect(result.returncode == 125 and "wrong token" in result.stderr, f"{result.returncode} {result.stderr}")
    expect(files_of(scene.there) == {}, "something was written")
    scene.run(scene.contrail, "record", "-o", scene.trace, "--token", TOKEN, "--to", f"tcp://127.0.0.1:{port}", "--", "/bin/true")
    scene.end(receiver)
    scene.compare()


@case("hostile frames")
def hostile(scene):
    """Nothing outside of the directory, no name that is none of a trace; the connection ends, the receiver goes on."""
    port = free_port()
    receiver = scene.receive(port=port)
    names = ["../x", "/tmp/x", "..", ".", "", "x", "manifest.json.tmp", ".receiving", "thread_0/../../x", "thread_0", "thread_0/x",
             "thread_01/index.ctb", "thread_/index.ctb", "thread_99999999999/index.ctb", "thread_-1/index.ctb", "process-1/../functions.tsv",
             "process-1/process-2/functions.tsv", "thread_0/index.ctb/x", "functions.tsv/", "/functions.tsv", "functions.tsv\0x",
             b"functions.tsv\xff", "thread_0//index.ctb", "process-1/thread_0/x", "index.ctb", "x" * 5000]
    for name in names:
        for kind in (DATA, WHOLE):
            peer = Peer(port)
            expect(peer.answers(READY)[-1][0] == READY, "not let in")
            peer.data(name, b"data", total=4, kind=kind)
            expect(peer.answer()[0] == REFUSED, f"{name!r} was taken")
            peer.close()
    frames = [lambda peer: peer.send(DATA), lambda peer: peer.send(DATA, b"x" * 19), lambda peer: peer.send(99), lambda peer: peer.send(HAVE),
              lambda peer: peer.send(DATA, b"", (1 << 20) + 1), lambda peer: peer.send(DATA, b"", (1 << 32) - 1),
              lambda peer: peer.data("functions.tsv", b"x", length=1 << 31), lambda peer: peer.data("functions.tsv", b"x", length=(1 << 32) - 1),
              lambda peer: peer.data("functions.tsv", b"x", offset=5), lambda peer: peer.data("functions.tsv", b"x", offset=(1 << 64) - 1),
              lambda peer: peer.data("manifest.json", b"x"), lambda peer: peer.data("functions.tsv", b"x", kind=WHOLE),
              lambda peer: peer.data("manifest.json", b"xx", total=1, kind=WHOLE), lambda peer: peer.data("manifest.json", b"x", offset=9, total=99, kind=WHOLE),
              lambda peer: peer.send(CHECK, b"x" * 12), lambda peer: peer.send(CHECK, b"x" * 20), lambda peer: peer.send(END),
              lambda peer: peer.send(END, struct.pack("<I", 0)), lambda peer: peer.send(END, struct.pack("<I", 7)), lambda peer: peer.raw(b"GET / HTTP/1.1\r\n\r\n"),
              lambda peer: peer.raw(b"\0" * 4 + b"\6\1\1\1")]
    for number, frame in enumerate(frames):
        peer = Peer(port)
        expect(peer.answers(READY)[-1][0] == READY, "not let in")
        frame(peer)
        expect((peer.answer() or (None,))[0] == REFUSED, f"frame {number} was taken")
        peer.close()
    for hello in (b"", b"CTST", b"XXXX" + b"x" * 40, b"CTST" + struct.pack("<I", 2) + b"s" * 16 + TOKEN.encode(), b"x" * 4000):
        peer = Peer(port, hello=hello)
        expect((peer.answer() or (None,))[0] == REFUSED, f"{hello[:40]} was let in")
        peer.close()
    peer = Peer(port, stream=b"t" * 16)
    expect(peer.answer() == (REFUSED, b"another recording is received here"), "another stream was let in")
    peer.close()
    expect(set(files_of(scene.folder)) - {"runtime"} == {os.path.join("there", ".receiving")}, f"files: {sorted(files_of(scene.folder))}")
    expect(receiver.poll() is None, "the receiver has ended")


@case("links in the directory")
def links(scene):
    """Somebody else's links there lead nowhere."""
    port = free_port()
    receiver = scene.receive(port=port)
    Peer(port).answers(READY)
    scene.write("victim", "untouched")
    os.mkdir(scene.path("outside"))
    os.symlink(scene.path("victim"), scene.path("there", "functions.tsv"))
    os.symlink(scene.path("outside"), scene.path("there", "thread_0"))
    peer = Peer(port)
    peer.answers(READY)
    peer.data("functions.tsv", b"overwritten")
    expect(peer.answer()[0] == REFUSED, "a link was followed")
    scene.end(receiver, 1)
    with open(scene.path("victim"), encoding="utf-8") as file:
        expect(file.read() == "untouched", "the file was overwritten")
    os.unlink(scene.path("there", "functions.tsv"))
    receiver = scene.begin("receive", "--token", TOKEN, "-o", scene.there, f"tcp://127.0.0.1:{port}")
    scene.end(receiver, 1)  # a link in the place of a folder
    expect(os.listdir(scene.path("outside")) == [], "a file outside")


@case("by hand")
def by_hand(scene):
    """The protocol as docs/streams.md has it, by another implementation: pieces, a cut, wrong checksums, an end."""
    port = free_port()
    receiver = scene.receive(port=port)
    peer = Peer(port)
    expect(peer.answers(READY) == [(READY, b"")], "something is there already")
    peer.data("functions.tsv", b"12345")
    peer.data("functions.tsv", b"6789", offset=5)
    peer.data("manifest.json", b"{}", total=4, kind=WHOLE)
    peer.send(PING)
    peer.raw(struct.pack("<IB3x", 100, DATA) + b"half of a frame")
    wait_for("the file", lambda: files_of(scene.there).get("functions.tsv") == b"123456789")
    expect("manifest.json" not in files_of(scene.there), "a half manifest is in its place")
    peer.close()
    peer = Peer(port)
    expect(peer.answers(READY) == [(HAVE, struct.pack("<QI", 9, 0xe3069283) + b"functions.tsv"), (READY, b"")], "another checksum")
    peer.data("manifest.json", b"{}", total=2, kind=WHOLE)
    peer.send(CHECK, struct.pack("<QI", 9, 0xe3069284) + b"functions.tsv")
    peer.send(CHECK, struct.pack("<QI", 0, 0) + b"output.cto")
    peer.send(END, struct.pack("<I", 2))
    expect(peer.answers(VERDICT) == [(WRONG, b"functions.tsv"), (VERDICT, struct.pack("<I", 1))], "another verdict")
    expect(set(files_of(scene.there)) == {"functions.tsv", "output.cto", ".receiving"}, f"{files_of(scene.there)}")
    peer.data("functions.tsv", b"123456789")
    peer.send(CHECK, struct.pack("<QI", 9, 0xe3069283) + b"functions.tsv")
    peer.send(END, struct.pack("<I", 1))
    expect(peer.answers(VERDICT) == [(VERDICT, struct.pack("<I", 0))], "another verdict")
    scene.end(receiver)
    expect(files_of(scene.there) == {"functions.tsv": b"123456789"}, f"{files_of(scene.there)}")


@case("silent connections")
def silent(scene):
    """One that says nothing is not waited for longer than some seconds; a sender is let in afterwards."""
    port = free_port()
    receiver = scene.receive(port=port)
    with socket.create_connection(("127.0.0.1", port)) as quiet:
        begin = time.monotonic()
        quiet.settimeout(300)
        while quiet.recv(100):
            pass
        expect(time.monotonic() - begin < 100, "it was waited for too long")
    scene.run(scene.contrail, "record", "-o", scene.trace, "--token", TOKEN, "--to", f"tcp://127.0.0.1:{port}", "--", "/bin/true")
    scene.end(receiver)
    scene.compare()


if __name__ == "__main__":
    main(__doc__, Scene)
