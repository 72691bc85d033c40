#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces that go to several receivers by way of a NATS server, Debian's: record --to nats://HOST:PORT/SUBJECT. The server is
killed, messages are left out by a proxy that speaks its protocol, receivers come late and come back, and strangers publish.

    tests/broker.py [--filter PATTERN] [--build DIR]
"""
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import harness
import streams
from harness import Skip, case, expect, free_port, main, wait_for

SUBJECT = "contrail.test"
CHECK, END = 4, 5  # types of frames, and where a message has its one (docs/streams.md)
FRAME_TYPE = 44
PIECE, ASK = 2, 21  # types of frames


class Peer:
    """A client of the server, as anybody could write one."""

    def __init__(self, port, subject=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.socket.sendall(b'CONNECT {"verbose":false}\r\n')
        if subject:
            self.socket.sendall(f"SUB {subject} 1\r\n".encode())
        self.meet()

    def publish(self, subject, data):
        self.socket.sendall(f"PUB {subject} {len(data)}\r\n".encode() + data + b"\r\n")

    def meet(self):
        """The server has taken all."""
        self.socket.sendall(b"PING\r\n")
        while self.file.readline() != b"PONG\r\n":
            pass

    def next(self):
        while True:
            line = self.file.readline()
            expect(line, "the server has closed")
            if line.startswith(b"MSG"):
                data = self.file.read(int(line.split()[-1]) + 2)
                return data[:-2]

    def close(self):
        self.socket.close()


class Leaky:
    """Hands on between a client and the server, and leaves out messages to the client: each whose number, from 1, is selected,
    and may_pass, if given, may refuse it by its frame's type."""

    def __init__(self, port, is_left_out, may_pass=lambda kind: True):
        self.may_pass = may_pass
        self.to, self.is_left_out, self.seen, self.lost = port, is_left_out, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            threading.Thread(target=self.up, args=(near, far), daemon=True).start()
            threading.Thread(target=self.down, args=(far, near), daemon=True).start()

    @staticmethod
    def up(near, far):
        try:
            while data := near.recv(65536):
                far.sendall(data)
        except OSError:
            pass
        streams.Proxy.part(near, far)

    def down(self, far, near):
        file = far.makefile("rb")
        try:
            while line := file.readline():
                data = file.read(int(line.split()[-1]) + 2) if line.startswith(b"MSG") else b""
                self.seen += bool(data)
                if data and (self.is_left_out(self.seen) or (len(data) > FRAME_TYPE and not self.may_pass(data[FRAME_TYPE]))):
                    self.lost += 1
                else:
                    near.sendall(line + data)
        except OSError:
            pass
        streams.Proxy.part(near, far)

    def close(self):
        self.listener.close()


class Scene(streams.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.servers = []
        self.port = free_port()
        self.address = f"nats://127.0.0.1:{self.port}/{SUBJECT}"
        self.config = []

    def serve(self, *config):
        """Debian's server, with lines of its configuration; again at the same port after stop()."""
        server = shutil.which("nats-server") or "/usr/sbin/nats-server"
        if not os.path.exists(server):
            raise Skip("nats-server is not installed")
        said = self.execute(self.contrail, "receive", "-o", self.path("none"), "nats://127.0.0.1:1/x")
        if "built without NATS" in said.stderr or "NATS needs" in said.stderr:
            raise Skip(said.stderr.strip())
        path = self.write("nats.conf", "\n".join([f'listen: "127.0.0.1:{self.port}"', *config]) + "\n")
        child = subprocess.Popen([server, "-c", path, "-l", self.path("nats.log")], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.servers.append(child)

        def answers():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
                    return one.recv(4) == b"INFO"
            except OSError:
                return False
        wait_for("the server", answers)
        return child

    @staticmethod
    def stop(server):
        server.kill()
        server.wait()

    def listen(self, name, *options, port=None, to=None):
        """A receiver that waits, into a directory of that name."""
        return self.receive(*options, address=to or f"nats://127.0.0.1:{port or self.port}/{SUBJECT}", directory=self.path(name))

    def follows(self, name):
        path = self.path(name, "thread_1", "index.ctb")
        wait_for(f"events at {name}", lambda: os.path.exists(path) and os.path.getsize(path) > 1000)

    def two_follow(self):
        """A recording, and two receivers that have something of it."""
        receivers = {name: self.listen(name) for name in ("first", "second")}
        recorder = self.start("--to", self.address)
        for name in receivers:
            self.follows(name)
        return receivers, recorder

    def ended(self, receivers):
        """What each said; all have the same as was recorded."""
        said = {}
        for name, child in receivers.items():
            said[name] = self.end(child)
            expect("has the whole trace" in said[name], f"{name}: {said[name]}")
            self.compare(self.path(name))
        return said

    def close(self):
        super().close()
        for server in self.servers:
            if server.poll() is None:
                self.stop(server)


def last_line(text):
    return text.strip().splitlines()[-1]


@case
def many(scene):
    """Two from the begin, one that comes when half of it was sent, and one after the end: all have all of it."""
    scene.serve()
    receivers, recorder = scene.two_follow()
    streams.more_arrives(scene, "first")
    receivers["late"] = scene.listen("late")
    wait_for("calls at the late one", lambda: scene.rows(trace=scene.path("late")).get("quick", {}).get("calls", 0) > 0
             if os.path.exists(scene.path("late", "manifest.json")) else False)
    expect(scene.manifest(scene.path("late"))["state"] == "recording", "it is over already")
    said = scene.end(recorder)
    scene.ended(receivers)
    expect("3 receivers" in said, f"no word of the receivers: {said}")
    receivers = {"after": scene.listen("after")}
    said = scene.run(scene.contrail, "send", "--to", scene.address, scene.trace)
    scene.ended(receivers)
    expect(not os.path.exists(scene.path("trace", ".sending")), "the mark stays")


@case("family, values, crash")
def family(scene):
    """All kinds of files; pieces as small as the server wants them."""
    scene.serve("max_payload: 17000", "max_pending: 1000000")
    receivers = {"there": scene.listen("there")}
    scene.execute(scene.contrail, "record", "-o", scene.trace, "--to", scene.address, "--follow", "--detail=all", "--args", "--",
                  "/bin/sh", "-c", "ls / >/dev/null; (ls /etc >/dev/null); echo text; kill -SEGV $$")
    scene.ended(receivers)
    names = streams.files_of(scene.there)
    expect({"output.cto", "crash.json", "thread_0/detail.ctd"} <= set(names) and any(n.startswith("process-") for n in names),
           f"too few files: {sorted(names)}")


@case("messages that do not arrive")
def left_out(scene):
    """At one of two receivers many messages are missing: it says how many, and has all in the end; the other gets no more than
    it compares."""
    scene.serve()
    leaky = Leaky(scene.port, lambda number: number % 9 == 4 and number < 400)
    scene.proxies.append(leaky)
    receivers = {"whole": scene.listen("whole"), "holes": scene.listen("holes", port=leaky.port)}
    recorder = scene.start("--to", scene.address)
    wait_for("messages that are left out", lambda: leaky.lost >= 10)
    scene.end(recorder)
    said = scene.ended(receivers)
    expect("did not arrive" in said["holes"] and "sent again" in last_line(said["holes"]), said["holes"])
    expect("did not arrive" not in said["whole"], said["whole"])


@case("messages at the end do not arrive")
def end_left_out(scene):
    """What tells a receiver that it has all is lost three times over, and what it is compared by: it is asked for again, and all end well."""
    scene.serve()
    left = {CHECK: 3, END: 3}

    def may_pass(kind):
        if left.get(kind, 0) == 0:
            return True
        left[kind] -= 1
        return False

    leaky = Leaky(scene.port, lambda number: False, may_pass)
    scene.proxies.append(leaky)
    receivers = {"whole": scene.listen("whole"), "holes": scene.listen("holes", port=leaky.port)}
    scene.end(scene.start("--to", scene.address))
    said = scene.ended(receivers)
    expect(left == {CHECK: 0, END: 0} and "did not arrive" in said["holes"], f"{left} {said['holes']}")


@case("server killed")
def server_killed(scene):
    """It is away for seconds, and what was on its way is lost: all connect again and nothing is missing."""
    server = scene.serve()
    receivers, recorder = scene.two_follow()
    scene.stop(server)
    time.sleep(3)  # it is the duration that is tried
    scene.serve()
    for name in receivers:
        streams.more_arrives(scene, name)
    said = scene.end(recorder)
    expect("connection was lost 1 time" in said, f"no word of the cut: {said}")
    for text in scene.ended(receivers).values():
        expect("connecting again" in text, text)


@case("receiver killed")
def receiver_killed(scene):
    """Started again in its directory it goes on, and is one receiver; damage there does not stay."""
    scene.serve()
    receivers, recorder = scene.two_follow()
    streams.more_arrives(scene, "second")
    receivers["second"].kill()
    receivers["second"].wait()
    with open(scene.path("second", "functions.tsv"), "r+b") as file:
        file.seek(100)
        file.write(b"!!!")
    with open(scene.path("second", "thread_0", "index.ctb"), "ab") as file:
        file.write(b"x" * 100000)
    streams.more_arrives(scene, "first")
    receivers["second"] = scene.listen("second")
    said = scene.end(recorder)
    scene.ended(receivers)
    expect("2 receivers" in said, said)


@case("receiver that stops")
def stopped(scene):
    """One that takes nothing for seconds holds up neither the recording nor the others, and gets what the server has dropped."""
    scene.serve("max_payload: 100000", "max_pending: 200000", "write_deadline: \"1s\"")
    source = scene.write("much.c", "static volatile long n;\n__attribute__((noinline)) void leaf(long i) { n += i; }\n"
                         "#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\nint main(void) { puts(\"ready\"); fflush(stdout);\n"
                         "  srand(7); for (int s = 0; s < 40; s++) { for (long i = 0; i < 50000; i++) { leaf(i); if (rand() % 3 == 0) leaf(1); }\n"
                         "    nanosleep(&(struct timespec){0, 50000000}, 0); }\n  return 0; }\n")
    program = scene.compile(source, "-O1")
    receivers = {name: scene.listen(name) for name in ("first", "second")}
    recorder = scene.begin("record", "-o", scene.trace, "--to", scene.address, "--", program)
    wait_for("events", lambda: os.path.exists(scene.path("second", "thread_0", "index.ctb")))
    receivers["second"].send_signal(signal.SIGSTOP)
    wait_for("the end of the recording", lambda: scene.manifest()["state"] == "complete")
    receivers["second"].send_signal(signal.SIGCONT)
    said = scene.end(recorder)
    scene.ended(receivers)
    expect("2 receivers" in said, said)


@case("sender killed")
def sender_killed(scene):
    """contrail send goes on with the same stream, at the receivers that wait for it."""
    scene.serve()
    receivers, recorder = scene.two_follow()
    recorder.kill()
    recorder.communicate()
    wait_for("the lock to be free", lambda: scene.execute(scene.contrail, "recover", scene.trace).returncode == 0)
    said = scene.execute(scene.contrail, "send", "--to", scene.address, scene.trace)
    expect(said.returncode == 0 and "2 receivers" in said.stderr, f"{said.returncode}: {said.stderr}")
    for text in scene.ended(receivers).values():
        expect("another sender goes on" in text or "gone back" in text or "come back" in text, text)


@case("nobody listens")
def nobody(scene):
    """The recording goes on; what to do is said when it is not waited for any longer. No server at all: nothing is run."""
    scene.serve()
    recorder = scene.start("--to", scene.address)
    recorder.stdin.close()
    recorder.stdin = None
    wait_for("the end of the recording", lambda: scene.manifest()["state"] == "complete")
    time.sleep(0.3)  # that it still waits is what is tried
    recorder.send_signal(signal.SIGINT)
    said = scene.end(recorder, 125)
    expect("was not sent whole" in said and "0 receivers" in said and "contrail send" in said, said)
    receivers = {"after": scene.listen("after")}
    scene.run(scene.contrail, "send", "--to", scene.address, scene.trace)
    scene.ended(receivers)
    failed = scene.execute(scene.contrail, "record", "-o", scene.path("other"), "--to", f"nats://127.0.0.1:{free_port()}/x", "--",
                           "/bin/sh", "-c", f"touch {scene.path('run')}")
    expect(failed.returncode == 125 and failed.stderr.count("\n") == 1 and not os.path.exists(scene.path("run")),
           f"{failed.returncode}: {failed.stderr}")


@case
def passwords(scene):
    """By --token, as a token or USER:PASSWORD; wrong ones, and subjects that are forbidden, are one line."""
    server = scene.serve('authorization { token: "a secret of tests" }')
    for token in ((), ("--token", "another secret")):
        failed = scene.execute(scene.contrail, "receive", *token, "-o", scene.path("no"), scene.address)
        expect(failed.returncode == 1 and failed.stderr.count("\n") == 1 and "uthoriz" in failed.stderr, failed.stderr)
    receivers = {"first": scene.listen("first", "--token", scene.write("token", "a secret of tests\n"))}
    scene.record("--token", "a secret of tests", "--to", scene.address, "--", "/bin/true")
    scene.ended(receivers)
    scene.stop(server)
    scene.serve('authorization { users: [{ user: "sends", password: "first word", permissions: { publish: "contrail.>", subscribe: '
                '"contrail.>" } }, { user: "hears", password: "second word", permissions: { publish: "nothing", subscribe: "contrail.>" } }] }')
    failed = scene.execute(scene.contrail, "receive", "--token", "sends:first word", "-o", scene.path("no"),
                           scene.address.replace("contrail.", "other."))
    expect(failed.returncode == 1 and "ermission" in failed.stderr, f"{failed.returncode}: {failed.stderr}")
    failed = scene.execute(scene.contrail, "receive", "--token", "hears:second word", "-o", scene.path("mute"), scene.address)
    expect(failed.returncode == 1 and "ermission" in failed.stderr, f"{failed.returncode}: {failed.stderr}")
    shutil.rmtree(scene.trace)
    receivers = {"second": scene.listen("second", "--token", "sends:first word")}
    scene.record("--token", "sends:first word", "--to", scene.address, "--", "/bin/true")
    scene.ended(receivers)


@case("bad words")
def bad_words(scene):
    for address in ("nats://", "nats:///x", "nats://h:1", "nats://h:1/", "nats://h:x/s", "nats://h:123456/s", "nats://h:1/a b", "nats://h:1/a.*",
                    "nats://h:1/a.>", "nats://h:1/.a", "nats://h:1/a..b", "nats://u:p@h:1/s", "nats://h:1/" + "s" * 129):
        failed = scene.execute(scene.contrail, "receive", "-o", scene.path("no"), address)
        expect(failed.returncode == 2 and failed.stderr.count("\n") == 1, f"{address}: {failed.returncode} {failed.stderr}")
        failed = scene.execute(scene.contrail, "record", "-o", scene.trace, "--to", address, "--", "/bin/true")
        expect(failed.returncode in (2, 125) and failed.stderr.count("\n") == 1, f"{address}: {failed.returncode} {failed.stderr}")


@case("strangers on the subject")
def strangers(scene):
    """What nobody of ours has published harms neither end: no message, frames of all types, other ids, endless lists."""
    scene.serve()
    receivers = {"there": scene.listen("there", "--limit", "100M")}
    stranger = Peer(scene.port, SUBJECT)
    recorder = scene.start("--to", scene.address)
    scene.follows("there")
    told = stranger.next()
    head, ident = told[:40], told[8:24]
    for data in (b"", b"x" * 39, b"CTNS" + b"\0" * 100, os.urandom(5000), head, head + struct.pack("<IB3x", 1 << 30, PIECE)):
        stranger.publish(SUBJECT, data)
        stranger.publish(SUBJECT + ".ask", data)
    for kind in range(256):  # of another stream, then of this one, by another sender
        stranger.publish(SUBJECT, b"CTNS" + struct.pack("<I", 1) + b"\7" * 16 + struct.pack("<QQ", 1, 1) + struct.pack("<IB3x", 0, kind))
        stranger.publish(SUBJECT + ".ask", b"CTNA" + struct.pack("<I", 1) + ident + struct.pack("<QQ", 5, 1 << 60) +
                         struct.pack("<IB3x", 8, kind) + b"\xff" * 8)
    names = [b"../../etc/passwd", b"/etc/passwd", b"thread_0/../x", b"functions.tsv", b"thread_4294967295/index.ctb"]
    for name in names:
        entry = struct.pack("<QII", 1 << 62, 7, len(name)) + name
        stranger.publish(SUBJECT + ".ask", b"CTNA" + struct.pack("<I", 1) + ident + struct.pack("<QQ", 6, 0) +
                         struct.pack("<IB3x", len(entry), ASK) + entry)
        piece = struct.pack("<QQI", 0, 0, len(name)) + name + b"stranger"
        stranger.publish(SUBJECT, b"CTNS" + struct.pack("<I", 1) + b"\7" * 16 + struct.pack("<QQ", 1, 2) +
                         struct.pack("<IB3x", len(piece), PIECE) + piece)
    stranger.meet()
    recorder.stdin.close()  # what comes now comes after all that
    recorder.stdin = None
    said = scene.end(receivers.pop("there"))
    expect("another recording" in said, said)
    recorder.send_signal(signal.SIGINT)  # it waits for the receivers that the stranger has made up
    recorder.communicate(timeout=100)
    os.unlink(scene.path("trace", ".sending"))
    scene.compare()
    stranger.close()


@case("the program does not notice")
def unnoticed(scene):
    """No descriptor of the connection, no signal that is ignored: what it inherits is what it has untraced."""
    scene.serve()
    script = "ls /proc/self/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
    receivers = {"there": scene.listen("there")}
    plain = scene.run("/bin/sh", "-c", script)
    traced = scene.run(scene.contrail, "record", "-q", "-o", scene.trace, "--to", scene.address, "--", "/bin/sh", "-c", script)
    expect(plain == traced, f"untraced:\n{plain}\ntraced:\n{traced}")
    scene.ended(receivers)


if __name__ == "__main__":
    main(__doc__, Scene)
