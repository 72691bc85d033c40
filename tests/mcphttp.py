#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp --http, by a client of our own: sessions of MCP, streams, whom the server refuses, its limits, and that nothing
is left when a client, a session or the server goes. What is asked there is tested in mcp.py and mcptools.py: it is the same server.

    tests/mcphttp.py [--filter PATTERN] [--build DIR]
"""
import http.client
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import harness
import mcp
import mcphunts
from harness import case, expect, main, wait_for
from mcp import SDK, STEPS, TICKS, VERSIONS, installed
from processes import POLL, waits_in

BOTH = "application/json, text/event-stream"


def queues(host, port, other):
    """A connection between two ports of the host, by what the kernel says of the end with the first one: bytes that are not
    acknowledged, and not read. None for both: there is none."""
    ends = [f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{one:04X}" for one in (port, other)]
    with open("/proc/net/tcp", encoding="ascii") as file:
        found = [line.split()[4] for line in file if line.split()[1:3] == ends]
    return [int(count, 16) for count in found[0].split(":")] if found else (None, None)


class Server:
    def __init__(self, scene, *options, address="0"):
        self.said = scene.path(f"said-{len(scene.servers)}")
        self.process = subprocess.Popen([scene.contrail, "mcp", "--http", address, *options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=open(self.said, "wb"), cwd=scene.folder,
                                        env=dict(os.environ, TMPDIR=scene.folder, XDG_RUNTIME_DIR=scene.runtime()))
        scene.servers.append(self)
        wait_for("the server to listen", lambda: "listening" in self.text() and self.text().count("\n") >= 2)
        self.port = int(self.text().split("/mcp")[0].rsplit(":", 1)[1])
        words = self.text().split("Bearer ")
        self.token = words[1].split()[0] if len(words) > 1 else None

    def text(self):
        with open(self.said, encoding="utf-8") as file:
            return file.read()

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="utf-8") as file:
            return file.read().split()

    def has_read(self, connection):
        """All that the connection's client has sent has arrived, was read, and then the server waits for more."""
        host, port = connection.sock.getsockname()
        of_client, of_server = queues(host, port, self.port), queues(host, self.port, port)
        words = waits_in(self.process.pid, self.process.pid)
        return of_client[0] == 0 and of_server[1] == 0 and words[:1] == [POLL] and int(words[3], 16) != 0

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(timeout=300)


class Scene(mcp.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.servers = []

    def hunter(self):
        return Hunter(Server(self))

    def close(self):
        for server in self.servers:
            server.process.kill()
            server.process.wait()
        super().close()


def events(answer, ids=None):
    """The messages of a stream, as they come; their ids, and those of events without a message, go into a list."""
    for line in answer:
        if line.startswith(b"id: ") and ids is not None:
            ids.append(line[4:].decode().strip())
        if line.startswith(b"data: ") and line.strip() != b"data:":
            yield json.loads(line[6:])


class Client:
    def __init__(self, server, version="2025-11-25", start=True):
        self.server, self.session, self.version, self.number = server, None, None, 0
        if start:
            status, self.hello, answer = self.post(self.request("initialize", protocolVersion=version, capabilities={},
                                                                clientInfo={"name": "t", "version": "1"}))
            expect(status == 200, f"{status} {self.hello}")
            self.session, self.version = answer["Mcp-Session-Id"], self.hello["result"]["protocolVersion"]
            expect(len(self.session) == 32, str(self.session))
            expect(self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})[:2] == (202, None), "initialized")

    def request(self, method, /, **params):
        self.number += 1
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    def send(self, method="POST", body=None, path="/mcp", **more):
        """The connection, when the request is sent. A header that is None is left out."""
        headers = {"Authorization": f"Bearer {self.server.token}", "Accept": BOTH, "Content-Type": "application/json",
                   "Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version,
                   **{name.replace("_", "-"): value for name, value in more.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request(method, path, body, {name: value for name, value in headers.items() if value is not None})
        return connection

    def open(self, *words, **more):
        """The connection and its response."""
        connection = self.send(*words, **more)
        return connection, connection.getresponse()

    def post(self, message, **more):
        """Status, message (the last one of a stream), headers."""
        return self.answer_of(self.send("POST", message if isinstance(message, bytes) else json.dumps(message).encode(), **more))

    def answer_of(self, connection):
        with connection:
            answer = connection.getresponse()
            if answer.headers.get("Content-Type") == "text/event-stream":
                self.events = list(events(answer))
                return answer.status, self.events[-1] if self.events else None, answer.headers
            text = answer.read()
            return answer.status, json.loads(text) if text else None, answer.headers

    def ask(self, method, /, **params):
        status, message, _ = self.post(self.request(method, **params))
        expect(status == 200 and message["id"] == self.number, f"{status} {message}")
        return message

    def tool(self, name, /, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        expect(not result["isError"], str(result)[:500])
        return json.loads(result["content"][0]["text"])

    def status(self, method="POST", body=b"{}", **more):
        connection, answer = self.open(method, body, **more)
        connection.close()
        return answer.status

    def delete(self):
        return self.status("DELETE", None)


http.client.HTTPConnection.__enter__ = lambda self: self
http.client.HTTPConnection.__exit__ = lambda self, *_: self.close()


class Hunter(mcp.Client):
    """What the hunts of mcphunts.py take for their client, by HTTP."""

    def __init__(self, server):  # pylint: disable=super-init-not-called
        self.client, self.calls, self.tokens = Client(server), 0, 0
        self.greet(VERSIONS[-1])

    def ask(self, method, /, **params):
        return self.client.ask(method, **params) if method != "initialize" else self.client.hello

    def note(self, method, **params):
        expect(self.client.post({"jsonrpc": "2.0", "method": method, "params": params})[0] == 202, method)


@case
def hunts(scene):
    """The five hunts by HTTP, as by standard input and output."""
    return "; ".join(hunt(scene) for hunt in (mcphunts.hunt_slow, mcphunts.hunt_hot_caller, mcphunts.hunt_crash, mcphunts.hunt_hang,
                                             mcphunts.hunt_regression))


@case
def versions(scene):
    server = Server(scene)
    for version in VERSIONS:
        client = Client(server, version)
        expect(client.version == version and len(client.ask("tools/list")["result"]["tools"]) == 8, version)
        expect("tail call" in str(client.tool("explain", term="tail call")), version)
        batch = [client.request("ping"), client.request("tools/list")]
        status, found, _ = client.post(batch)
        if version == "2025-03-26":
            expect(status == 200 and {one["id"] for one in found} == {client.number, client.number - 1}, str(found)[:200])
        else:
            expect(status == 400 and "batches" in str(found), f"{version}: {status} {found}")
        expect(client.delete() == 204 and client.status() == 404, "a session that was deleted")
    expect(server.end() == 0, server.text())


@case
def session(scene):
    """A whole session: launch, patterns while it runs, query, stop; two clients see nothing of each other."""
    server = Server(scene)
    client, other = Client(server), Client(server)
    ticks = scene.own(TICKS, "ticks")
    expect(client.tool("launch", program=ticks, patterns=[])["session"] == "s1", "the first session")
    expect(client.tool("trace", action="add", patterns=["spin", "tick"])["hooked"] == 2, "hooked")
    expect(other.ask("tools/call", name="session", arguments={"action": "stop", "session": "s1"})["result"]["isError"], "another's session")
    expect(other.tool("launch", program=ticks, patterns=["tick"])["session"] == "s1", "its own first")
    live = wait_for("calls", lambda: client.tool("query", sql="SELECT calls FROM functions WHERE name = 'spin' AND calls > 0")["rows"])
    client.tool("session", action="stop", session="s1")
    done = client.tool("query", trace="s1", sql="SELECT calls FROM functions WHERE name = 'spin'")["rows"]
    expect(done[0][0] >= live[0][0], f"{done} after {live}")
    expect(client.delete() == 204, "deleted")
    expect(other.tool("session", action="status", session="s1")["state"] == "recording", "the other goes on")
    expect(other.delete() == 204, "deleted")
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left() and not server.children())


@case
def streams(scene):
    """Progress makes a stream of an answer; a long one becomes a stream; what is cancelled ends without an answer."""
    client = Client(Server(scene))
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"])
    wait = {"name": "session", "arguments": {"action": "wait", "wait_s": 1.5}}
    status, last, headers = client.post(client.request("tools/call", **wait, _meta={"progressToken": "p"}))
    notes = [one["params"]["progressToken"] for one in client.events[:-1]]
    expect(status == 200 and last["id"] == client.number and set(notes) == {"p"} and len(notes) > 2, str(client.events)[:500])
    expect(headers["Content-Type"] == "text/event-stream", str(headers))
    _, last, headers = client.post(client.request("tools/call", **wait))
    expect(headers["Content-Type"] == "text/event-stream" and last["id"] == client.number, "a long answer")
    slow = client.request("tools/call", name="session", arguments={"action": "wait", "wait_s": 600})
    connection = client.send("POST", json.dumps(slow).encode())
    wait_for("the request to come in", lambda: client.server.has_read(connection))
    expect(client.post(slow)[0] == 400, "an id that is not answered yet")
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow["id"]}}
    expect(client.post(cancelled)[0] == 202, "cancelled")
    found = client.answer_of(connection)
    expect(found[:2] == (200, None), str(found))


@case
def listening(scene):
    """GET: one stream for each session, which ends with it."""
    client = Client(Server(scene))
    connection, answer = client.open("GET", Accept="text/event-stream")
    expect(answer.status == 200 and answer.readline().startswith(b"id: ") and answer.readline() == b"data: \n", "the stream")
    expect(client.status("GET", None) == 409, "a second one")
    expect(client.ask("ping")["result"] == {}, "asked while it is open")
    expect(client.delete() == 204 and answer.read().strip() == b": listening", "it has ended")
    connection.close()


@case
def not_lost(scene):
    """A connection that breaks before the answer to a call of a tool: what was done is known all the same, and done once."""
    client = Client(Server(scene))
    ticks = scene.own(TICKS, "ticks")
    for name, arguments in (("launch", {"program": ticks, "patterns": []}), ("explain", {"term": "drain"}), ("trace", {"action": "add", "patterns": ["tick"]})):
        connection, answer = client.open("POST", json.dumps(client.request("tools/call", name=name, arguments=arguments)).encode())
        line = answer.readline()
        expect(answer.headers["Content-Type"] == "text/event-stream" and line.startswith(b"id: ") and answer.readline() == b"data: \n", str(line))
        connection.sock.shutdown(socket.SHUT_RDWR) if connection.sock else answer.close()
        connection.close()
        answer.close()
        again = Broken(client, None, Last_Event_ID=line[4:].decode().strip()).read()
        expect(len(again.messages) == 1 and again.messages[0]["id"] == client.number and not again.messages[0]["result"]["isError"], str(again.messages)[:300])
    expect(len(client.tool("session", action="list")["sessions"]) == 1, "it was launched twice")
    old = Client(client.server, "2025-06-18")
    expect(old.post(old.request("tools/call", name="explain", arguments={"term": "drain"}))[2]["Content-Type"] == "application/json", "of an older version")


class Broken:
    """A stream that is read for a while, and broken."""

    def __init__(self, client, message, **more):
        self.ids, self.messages = [], []
        self.connection, self.answer = client.open("POST" if message else "GET", json.dumps(message).encode() if message else None, **more)
        expect(self.answer.status == 200 and self.answer.headers["Content-Type"] == "text/event-stream", str(self.answer.status))
        self.source = events(self.answer, self.ids)

    def read(self, count=None):
        for one in self.source:
            self.messages.append(one)
            if len(self.messages) == count:
                break
        return self

    def broken(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR) if self.connection.sock else self.answer.close()
        self.connection.close()
        self.answer.close()
        return self.ids[-1]


@case
def resumed(scene):
    """A stream that broke is taken up where it was: each event comes once, the answer too, although it was given meanwhile."""
    server = Server(scene)
    client, other = Client(server), Client(server)
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"])
    wait = {"name": "session", "arguments": {"action": "wait", "wait_s": 2}, "_meta": {"progressToken": "p"}}
    first = Broken(client, client.request("tools/call", **wait)).read(2)
    number = client.number
    expect(first.ids[0].endswith(".0") and len(first.ids) == 3, str(first.ids))
    last = first.broken()
    time.sleep(0.5)  # messages come meanwhile, and are kept
    second = Broken(client, None, Last_Event_ID=last).read(2)
    third = Broken(client, None, Last_Event_ID=second.ids[-1])  # the second is not seen to have gone
    expect(second.read().answer.read() == b"" and len(second.messages) < 9, "one that has been taken up is still fed")
    third.read()
    ids = [int(one.split(".")[1]) for one in first.ids[1:] + second.ids + third.ids]
    expect(sorted(set(ids)) == list(range(1, max(ids) + 1)), str(ids))
    expect(third.messages[-1]["id"] == number and third.messages[-1]["result"]["isError"] is False, str(third.messages[-1])[:200])
    steps = [one["params"]["progress"] for one in first.messages + second.messages[:2]]
    expect(steps == sorted(set(steps)), str(steps))
    again = Broken(client, None, Last_Event_ID=last).read()  # after its end, once more
    expect(again.messages[-1]["id"] == number and again.ids[0].split(".")[1] == str(int(last.split(".")[1]) + 1), str(again.ids))
    expect(Broken(client, None, Last_Event_ID=again.ids[-1]).read().messages == [], "after the last event")
    for wrong in ("x", "1", "999.1", last.split(".")[0] + ".999", "-1.1", "1.1x", "9" * 60 + ".1", "+" + last,
                  f"{2**32 + int(last.split('.')[0])}.1", f"{last.split('.')[0]}.{2**32 + 1}"):
        expect(client.status("GET", None, Last_Event_ID=wrong) == 410, wrong)
    expect(other.status("GET", None, Last_Event_ID=last) == 410, "a stream of another session")
    cancelled = client.request("tools/call", name="session", arguments={"action": "wait", "wait_s": 50}, _meta={"progressToken": "q"})
    fourth = Broken(client, cancelled).read(1)
    last = fourth.broken()
    expect(client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled["id"]}})[0] == 202, "cancelled")
    fifth = Broken(client, None, Last_Event_ID=last).read()
    expect(not any("id" in one for one in fifth.messages), "a cancelled request was answered")
    connection, answer = client.open("GET", Accept="text/event-stream")
    mine = answer.readline()[4:].decode().strip()
    connection.close()
    answer.close()
    connection, answer = client.open("GET", Accept="text/event-stream", Last_Event_ID=mine)
    expect(answer.status == 200 and client.status("GET", None) == 409, "the server's own stream, taken up again")
    connection.close()
    return f"{max(ids)} events in three pieces"


@case
def grown(scene):
    """A message that is longer when it is written anew, or has line ends between its values, gets its answer."""
    client = Client(Server(scene))
    for numbers in (",".join(["1e16"] * 400000), ",\r\n".join(["1"] * 400000)):
        body = b'{"jsonrpc":"2.0",\n"id":"grown","method":"ping","params":{"x":[' + numbers.encode() + b"]}}"
        connection = client.send("POST", body)
        connection.sock.settimeout(10)  # less than what keeps a stream open takes
        status, message, _ = client.answer_of(connection)
        expect(status == 200 and message == {"jsonrpc": "2.0", "id": "grown", "result": {}}, f"{status} {str(message)[:200]}")
    expect(client.ask("ping")["result"] == {}, "afterwards")


@case
def large(scene):
    """An answer larger than what is kept for a client that does not read comes, as an event too."""
    client = Client(Server(scene), "2025-03-26")
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"])
    batch = [client.request("tools/call", name="session", arguments={"action": "wait", "wait_s": 2})]
    batch += [client.request("resources/read", uri="contrail://docs/limits") for _ in range(255)]
    status, found, headers = client.post(batch)
    size = len(json.dumps(found or ""))
    expect(status == 200 and headers["Content-Type"] == "text/event-stream" and len(found or []) == 256, f"{status}, {size} bytes")
    expect(size > 17 << 20, f"{size} bytes: too few to tell")
    return f"{size} bytes"


@case
def refused(scene):
    server = Server(scene)
    client = Client(server)
    ping = json.dumps(client.request("ping")).encode()
    for status, more in ((401, {"Authorization": None}), (401, {"Authorization": "Bearer " + "0" * 64}), (401, {"Authorization": "Bearer"}),
                         (401, {"Authorization": "Basic " + server.token}), (401, {"Authorization": f"Bearer {server.token}0"}),
                         (403, {"Origin": "http://evil.example"}), (403, {"Origin": "null"}), (403, {"Origin": "http://localhost.evil.example"}),
                         (403, {"Origin": "http://127.0.0.1@evil.example"}), (403, {"Origin": "http://192.168.1.1"}),
                         (200, {"Origin": "http://localhost:6274"}), (200, {"Origin": "http://[::1]"}),
                         (403, {"Host": "evil.example"}), (403, {"Host": f"evil.example:{server.port}"}), (403, {"Host": "10.0.0.1"}), (403, {"Host": ""}),
                         (200, {"Host": "localhost"}), (200, {"Host": "[::1]:1"}), (403, {"Host": "127.0.0.1:x"}),
                         (404, {"path": "/"}), (404, {"path": "/mcp/x"}), (406, {"Accept": "application/json"}), (406, {"Accept": None}),
                         (200, {"Accept": "*/*"}), (415, {"Content_Type": "text/plain"}), (415, {"Content_Type": None}),
                         (200, {"Content_Type": "application/json; charset=utf-8"}), (400, {"MCP_Protocol_Version": "2099-01-01"}),
                         (400, {"MCP_Protocol_Version": "2025-06-18"}), (200, {"MCP_Protocol_Version": None}),
                         (404, {"Mcp_Session_Id": "0" * 32}), (400, {"Mcp_Session_Id": None}), (405, {"method": "PUT"}), (405, {"method": "OPTIONS"})):
        found = client.status(body=ping, **more)
        expect(found == status, f"{found} for {more}, not {status}")
    expect(client.status("GET", None, Accept="application/json") == 406 and client.status("DELETE", None, Mcp_Session_Id=None) == 400, "GET, DELETE")
    for body in (b"", b"{", b"7", b"null", b"[]", b"{}", b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
                 b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', b"\xff\xfe", b"[" * 100000):
        status, message, _ = client.post(body)
        expect(status == 400 and message["id"] is None and message["error"]["code"] in (-32600, -32700), f"{status} {message} for {body[:60]}")
    status, message, headers = Client(server, start=False).post({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    expect(status == 200 and message["error"]["code"] == -32602 and headers["Mcp-Session-Id"] is None, str(message))
    expect(client.ask("initialize", protocolVersion=VERSIONS[-1])["error"]["code"] == -32600, "initialized twice")
    wait_for("the failed one to go", lambda: len(server.children()) == 1)
    expect(client.ask("ping")["result"] == {}, "it goes on")
    expect(server.token not in " ".join(open(f"/proc/{server.process.pid}/cmdline", encoding="utf-8")), "the token is seen by all")


def answer_of(port, data):
    """The status line of what is sent as it is; empty: none."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(100).split(b"\r\n")[0].decode(errors="replace")
        except OSError:
            return ""


@case
def limits(scene):
    """Sizes, sessions, connections, time without a request; and rubbish."""
    server = Server(scene, "--max-clients", "2", "--max-idle", "2")
    client, other = Client(server), Client(server)
    expect(Client(server, start=False).status(body=json.dumps(client.request("initialize", protocolVersion=VERSIONS[-1]))) == 503, "a third")
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
    expect(" 413 " in answer_of(server.port, f"{head}Content-Length: 5000000\r\n\r\n".encode()), "a body that is too long")
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + piece * 70 + b"0\r\n\r\n"
    expect(" 413 " in answer_of(server.port, chunked), "a chunked one")
    expect(" 4" in answer_of(server.port, f"{head}X: {'x' * 40000}\r\n\r\n".encode()), "headers that are too long")
    expect(" 403 " in answer_of(server.port, f"{head}Host: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode()), "two hosts")
    chance = random.Random(4)
    for _ in range(300):
        answer_of(server.port, bytes(chance.choice(head.encode() + b"\x00\xff{}[]\r\n") for _ in range(chance.randrange(200))) + b"\r\n\r\n")
    for _ in range(100):
        text = head.encode()
        cut = chance.randrange(len(text))
        answer_of(server.port, text[:cut] + bytes(chance.randrange(256) for _ in range(3)) + text[cut:] + b"Content-Length: 2\r\n\r\n{}")
    client.session = client.session if client.status(body=json.dumps(client.request("ping"))) == 200 else Client(server).session
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    expect(client.ask("ping")["result"] == {}, "with forty others")
    for one in held:
        one.close()
    wait_for("idle sessions to end", lambda: not server.children())
    expect(client.status() == 404 and other.status() == 404, "they have ended")
    expect(Client(server).ask("ping")["result"] == {}, "a new one")
    expect(server.end() == 0, server.text())


@case
def token(scene):
    path = scene.path("token")
    server = Server(scene, "--token-file", path)
    expect(server.token is None and stat.S_IMODE(os.stat(path).st_mode) == 0o600, server.text())
    with open(path, encoding="utf-8") as file:
        server.token = file.read().strip()
    expect(len(server.token) == 64 and server.token not in server.text(), "the token")
    expect(Client(server).ask("ping")["result"] == {}, "by the file's token")
    server.end()
    second = Server(scene, "--token-file", path)
    second.token = server.token
    expect(Client(second).ask("ping")["result"] == {}, "the same again")
    for what, text, mode in (("others", "x" * 20, 0o644), ("no token", "short\n", 0o600), ("no token", "x" * 20 + " y\n", 0o600)):
        result = scene.execute(scene.contrail, "mcp", "--http", "0", "--token-file", scene.write("bad", text, mode))
        expect(result.returncode == 1 and what in result.stderr and result.stderr.count("\n") == 1, result.stderr)
    for words in (("--http", "x"), ("--http", "example.com:1"), ("--http", "127.0.0.1:99999"), ("--http", f"{second.port}")):
        result = scene.execute(scene.contrail, "mcp", *words)
        expect(result.returncode == 1 and "--http" in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result.stderr}")
    result = scene.execute(scene.contrail, "mcp", "--token-file", path)
    expect(result.returncode == 2 and "--http" in result.stderr, result.stderr)
    expect("other machines" in Server(scene, address="0.0.0.0:0").text(), "a warning")


@case
def gone(scene):
    """A server that ends, one that is killed, a session that is killed: no program and no file is left."""
    ticks = scene.own(TICKS, "ticks")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        server = Server(scene)
        client = Client(server)
        client.tool("launch", program=ticks, patterns=["tick"])
        expect(scene.left(), "there is something")
        connection, answer = client.open("GET")
        expect(answer.status == 200, "a stream")
        status = server.end(number)
        expect(status == (-signal.SIGKILL if number == signal.SIGKILL else 0), f"{status} after {number}")
        connection.close()
        wait_for(f"nothing to be left after {number}", lambda: not scene.left())
    server = Server(scene)
    client = Client(server)
    client.tool("launch", program=ticks, patterns=["tick"])
    os.kill(int(server.children()[0]), signal.SIGKILL)
    wait_for("404", lambda: client.status() == 404)
    wait_for("nothing to be left of a session", lambda: not scene.left() and not server.children())
    expect(Client(server).ask("ping")["result"] == {}, "the server goes on")


@case
def directory(scene):
    """With --directory each client's traces have a folder, and stay."""
    server = Server(scene, "--directory", scene.path("kept"))
    for _ in range(2):
        client = Client(server)
        client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=3"), wait_s=20)
        client.delete()
    server.end()
    folders = os.listdir(scene.path("kept"))
    expect(len(folders) == 2 and all(os.path.exists(scene.path("kept", one, "s1", "manifest.json")) for one in folders), str(folders))


class Cutter:
    """Passes connections on to the server, and breaks one, once, after its first note of progress has gone through."""

    def __init__(self, port):
        self.to, self.cuts, self.resumed = port, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.move, args=(*pair, pair[0] is far), daemon=True).start()

    def move(self, source, sink, is_answer):
        try:
            while data := source.recv(65536):
                self.resumed += not is_answer and b"last-event-id: " in data.lower()
                sink.sendall(data)
                if is_answer and self.cuts < 3 and b"notifications/progress" in data:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def run_sdk(scene, server, port):
    folder = installed(scene, SDK)
    script = os.path.join(folder, f"client-{os.path.basename(scene.folder)}.mjs")
    shutil.copy(os.path.join(harness.HERE, "agents", "client.mjs"), script)
    try:
        said = scene.run("node", script, f"http://127.0.0.1:{port or server.port}/mcp", scene.own(TICKS, "ticks"),
                         env=dict(os.environ, TMPDIR=scene.folder, TOKEN=server.token))
    finally:
        os.unlink(script)
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left())
    return said.strip()


@case
def sdk(scene):
    """A whole session by the SDK's client."""
    return run_sdk(scene, Server(scene), None)


@case
def sdk_resumes(scene):
    """The same over connections that break, each in the middle of its first stream of progress: the client takes them up again."""
    server = Server(scene)
    with Cutter(server.port) as cutter:
        said = run_sdk(scene, server, cutter.port)
        expect(cutter.cuts >= 1 and cutter.resumed >= 1, f"{cutter.cuts} cuts, {cutter.resumed} came again")
    return f"{said}; {cutter.cuts} cuts"


@case
def inspector(scene):
    """A whole session by the inspector's own client of the shell, which keeps its connection."""
    server = Server(scene)
    said = mcp.inspect(scene, f"http://127.0.0.1:{server.port}/mcp", "--header", f"Authorization: Bearer {server.token}")
    expect(server.end() == 0, server.text())  # it goes without DELETE
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left())
    return said


if __name__ == "__main__":
    main(__doc__, Scene)
