#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp --http, and those who mean it no good, or come and go as they like: a thousand malformed, oversized, cut,
reordered and cancelled requests while another client works; connections that dawdle, and more of them than there may be; clients,
sessions and servers that are killed at any moment.

    tests/mcpattack.py [--filter PATTERN] [--build DIR] [--moments N]
"""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import mcp
import mcphttp
from harness import case, expect, main, wait_for
from mcp import TICKS, VERSIONS, has_patches
from mcphttp import Client, Scene, Server, answer_of

ODD = [b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"\xff\xfe\x00", b"\x00" * 50, b"[" * 5000,
       b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b'{"a":1,"a":2}',
       b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":7}', b'{"jsonrpc":"2.0","id":9,"result":{}}',
       b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}', b'{"jsonrpc":"2.0","id":"u\\ud800","method":"ping"}',
       b'{"jsonrpc":"2.0","id":"n\\u0000","method":"ping\\u0000"}', b'{"jsonrpc":"2.0","id":99999999999999999999999999,"method":"ping"}',
       b'{"x":' * 3000, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * (5 << 20) + b'"}}']


def mutated(chance, line):
    line = bytearray(line)
    for _ in range(chance.choice((0, 1, 1, 3))):
        if line:
            at = chance.randrange(len(line))
            line[at:at + chance.choice((0, 1, 1, 8))] = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 2))))
    return bytes(line)


@case
def malformed(scene):
    """A thousand requests, each with a status that is one of its own; the other client works all the time; nothing is left."""
    server, chance, seen, failures = Server(scene), random.Random(7), {}, []
    client, other = Client(server), Client(server)
    ticks = scene.own(TICKS, "ticks")
    other.tool("launch", program=ticks, patterns=["tick"])
    client.tool("launch", program=ticks, patterns=["spin"])
    done = threading.Event()

    def work():
        try:
            while not done.is_set():
                expect(other.tool("query", sql="SELECT count(*) FROM functions")["rows"][0][0] > 0, "the other client")
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)
    worker = threading.Thread(target=work)
    worker.start()
    for turn in range(1000):
        good = [json.dumps(client.request(method, **params)).encode() for method, params in (
            ("tools/call", {"name": "query", "arguments": {"sql": "SELECT 1"}}), ("ping", {}), ("resources/read", {"uri": "contrail://s1"}),
            ("tools/call", {"name": "session", "arguments": {"action": "wait", "wait_s": 0.05}, "_meta": {"progressToken": turn}}),
            ("notifications/cancelled", {"requestId": client.number}), ("prompts/get", {"name": "hang", "arguments": {}}))]
        body = mutated(chance, chance.choice(ODD[:-1]) if chance.random() < 0.4 else chance.choice(good)) if turn % 100 else ODD[-1]
        more = {chance.choice(("Accept", "Content_Type", "Mcp_Session_Id", "MCP_Protocol_Version", "Last_Event_ID", "Origin", "Host")):
                chance.choice((None, "", "x", "0" * 32, "text/event-stream", "http://localhost", VERSIONS[0]))} if chance.random() < 0.3 else {}
        try:
            if chance.random() < 0.15:  # the connection breaks in the middle, or before the answer
                connection = http.client.HTTPConnection("127.0.0.1", server.port)
                connection.putrequest("POST", "/mcp")
                for name, value in (("Authorization", f"Bearer {server.token}"), ("Accept", mcphttp.BOTH), ("Content-Type", "application/json"),
                                    ("Mcp-Session-Id", client.session), ("Content-Length", str(len(body) + chance.choice((0, 0, 7))))):
                    connection.putheader(name, value)
                connection.endheaders()
                connection.send(body[:chance.randrange(len(body) + 1)] if chance.random() < 0.5 else body)
                connection.close()
                continue
            status = client.status(method=chance.choice(("POST", "POST", "POST", "POST", "PUT", "GET")), body=body or None, **more)
        except (OSError, http.client.HTTPException):
            status = 0
        seen[status] = seen.get(status, 0) + 1
    done.set()
    worker.join()
    expect(not failures, str(failures))
    expect(set(seen) <= {0, 200, 202, 400, 403, 404, 405, 406, 409, 410, 413, 415} and seen.get(0, 0) < 20, str(seen))
    expect(client.ask("ping")["result"] == {} and client.tool("explain", term="drain")["lines"], "afterwards")
    expect(client.delete() == 204 and other.delete() == 204 and server.end() == 0, server.text())
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left())
    return str(dict(sorted(seen.items())))


@case
def dawdling(scene):
    """Connections that send a byte now and then, and more of them than there may be, keep nobody out; each is shut after a while."""
    server = Server(scene)
    client, held = Client(server), []
    begun = time.monotonic()
    for number in range(150):
        one = socket.create_connection(("127.0.0.1", server.port))
        one.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"")
        held.append(one)
    expect(client.ask("ping")["result"] == {}, "somebody was kept out")
    kept, expired = len(os.listdir(f"/proc/{server.process.pid}/fd")), time.monotonic() - begun > 9
    expect(kept > 32 or expired, f"it was let in when only {kept} descriptors were open")

    def is_open(one):
        try:
            one.sendall(b"X")
            one.settimeout(0.001)
            return one.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False
    wait_for("most of them to be shut", lambda: sum(map(is_open, held)) <= 40)
    expect(any(map(is_open, held)) or time.monotonic() - begun > 9, "none was left")
    wait_for("all of them to be shut", lambda: time.sleep(0.5) or not any(map(is_open, held)))  # each look sends a byte
    spent = time.monotonic() - begun
    for one in held:
        one.close()
    expect(client.ask("ping")["result"] == {} and server.end() == 0, server.text())
    return f"all shut after {spent:.0f} s"


@case
def deceiving(scene):
    """Heads that two readers would read in two ways, and pages of others that come by a name of theirs."""
    server = Server(scene)
    good = f"Authorization: Bearer {server.token}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    length = f"Content-Length: {len(ping)}\r\n"
    for status, head in ((403, f"Host: localhost\r\nHost: evil.example\r\n{good}{length}"), (403, f"{good}{length}"),
                         (403, f"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n{good}{length}"),
                         (403, f"Host: evil.example\r\n{good}{length}"), (403, f"Host: localhost.evil.example\r\n{good}{length}"),
                         (401, f"Host: localhost\r\nAuthorization: Bearer {'0' * 64}\r\n{good}{length}"),
                         (401, f"Host: localhost\r\nAuthorization: Bearer {server.token[:-1]}\r\n{length}"),
                         (401, f"Host: localhost\r\n{length}"), (401, f"Host: localhost\r\nAuthorization: Bearer\r\n{length}"),
                         (400, f"Host: localhost\r\n{good}{length}")):  # ping of no session
        found = answer_of(server.port, f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + ping)
        expect(f" {status} " in found, f"{found}, not {status}, for {head}")
    for path in ("/mcp/", "/mcp%2f..", "//mcp", "/MCP", "/mcp/../mcp", "http://evil.example/mcp"):
        found = answer_of(server.port, f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{good}{length}\r\n".encode() + ping)
        expect(" 404 " in found or " 400 " in found, f"{found} for {path}")
    for body in (f"Content-Length: {len(ping)}\r\nContent-Length: 5\r\n", f"{length}Transfer-Encoding: chunked\r\n",
                 "Content-Length: -1\r\n", "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: chunked\r\n",
                 f"Content-Length : {len(ping)}\r\n", f"Content-Length: +{len(ping)}\r\n", f"Content-Length: 0x{len(ping):x}\r\n"):
        found = answer_of(server.port, f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{good}{body}\r\n".encode() + ping)
        expect(found == "" or " 4" in found, f"{found} for {body}")
    for body in (length * 2, f"Transfer-Encoding: gzip\r\n{length}", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: identity\r\n",
                 "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", f"{length}Mcp-Session-Id: {'0' * 32}\r\nMcp-Session-Id: x\r\n"):
        found = answer_of(server.port, f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{good}{body}\r\n".encode() + ping)
        expect(" 400 " in found, f"{found} for {body}")
    expect(not server.children(), "a session was begun")
    expect(Client(server).ask("ping")["result"] == {}, "it goes on")


@case
def attached(scene):
    """By HTTP as well, what was attached to is released by stop, by DELETE, and when the session was idle too long."""
    process = scene.start(scene.own(TICKS, "ticksheld"))
    server = Server(scene, "--max-idle", "2")
    for end in ("stop", "delete", "idle"):
        client = Client(server)
        client.tool("attach", process=process.pid, patterns=["spin", "tick"])
        wait_for("calls", lambda: client.tool("query", sql="SELECT calls FROM functions WHERE name = 'spin'")["rows"] > [[3]])  # pylint: disable=cell-var-from-loop
        if end == "stop":
            expect(client.tool("session", action="stop")["end"].endswith("runs on"), "stop")
        elif end == "delete":
            expect(client.delete() == 204, "delete")
        if end != "stop":
            wait_for("the session's end", lambda: not server.children())
        wait_for(f"no hook to be left ({end})", lambda: not has_patches(scene, process))
        expect(process.poll() is None, f"the process has ended ({end})")
        client.delete()
    expect(server.end() == 0 and not scene.left(), server.text())


KILLED_CLIENT = r"""
import http.client, json, sys, time
port, token, program, pid = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
session, number = None, 0
def post(method, **params):
    global session, number
    number += 1
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": "Bearer " + token, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if session:
        headers["Mcp-Session-Id"] = session
    connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}), headers)
    answer = connection.getresponse()
    session = session or answer.headers["Mcp-Session-Id"]
    answer.read()
    connection.close()
print("begun", flush=True)
post("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "k", "version": "1"})
post("tools/call", name="launch", arguments={"program": program, **({"last": "5s,16M"} if sys.argv[5] == "1" else {})})
post("tools/call", name="attach", arguments={"process": pid, "patterns": ["spin", "tick"]})
for turn in range(1000):
    post("tools/call", **[{"name": "query", "arguments": {"sql": "SELECT count(*) FROM spans"}},
         {"name": "trace", "arguments": {"action": "add", "patterns": ["usleep"]}}, {"name": "analyze", "arguments": {"view": "report"}},
         {"name": "session", "arguments": {"action": "wait", "wait_s": 0.1}, "_meta": {"progressToken": turn}}][turn % 4])
"""


def kill_one(scene, script, ticks, process, chance, whom):
    """A client by HTTP with a session of each kind; it, its session or the server is killed at some moment. Until all is gone."""
    server = Server(scene, "--max-idle", "1")
    client = subprocess.Popen([sys.executable, script, str(server.port), server.token, ticks, str(process.pid), str(chance.randrange(2))], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        expect(client.stdout.readline() == "begun\n", "the client")
        time.sleep(chance.random() * chance.choice((0.02, 0.2, 0.6)))
        if whom == "client":
            client.kill()
        elif whom == "session":
            for pid in server.children():
                os.kill(int(pid), signal.SIGKILL)
        else:
            server.process.send_signal(whom)
        if whom in ("client", "session"):
            client.kill()
            wait_for(f"the end of the session ({whom})", lambda: not server.children())
            expect(Client(server).ask("ping")["result"] == {}, "the server goes on")
            expect(server.end() == 0, server.text())
        server.process.wait(timeout=300)
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    wait_for(f"nothing to be left ({whom}): {scene.left()}", lambda: not scene.left())
    expect(process.poll() is None, f"the attached process has ended ({whom})")
    wait_for(f"no hook to be left ({whom})", lambda: not has_patches(scene, process))


@case
def killed(scene):
    """A client, its session, the server (SIGTERM, SIGKILL), killed at random moments: no process, file or hook is left."""
    chance = random.Random(6)
    ticks, script = scene.own(TICKS, "ticks"), scene.write("client.py", KILLED_CLIENT)
    process = scene.start(scene.own(TICKS, "other"))
    kinds = ["client", "session", signal.SIGTERM, signal.SIGKILL]
    for turn in range(scene.options.moments):
        kill_one(scene, script, ticks, process, chance, kinds[turn % len(kinds)])
    return f"{scene.options.moments} moments"


def arguments(parser):
    parser.add_argument("--moments", type=int, default=4, help="at which somebody is killed")


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
