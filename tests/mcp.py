#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp, by a client of our own that speaks the protocol: the handshake of each version, malformed messages, what is
cancelled, other clients, clients and servers that are killed at any moment. The tools are in mcptools.py.

    tests/mcp.py [--filter PATTERN] [--build DIR] [--moments N]
"""
import collections
import glob
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

import harness
from harness import case, expect, main, wait_for

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
TICKS = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int tick(int x) { volatile int i; for (i = 0; i < 1000; i++) { } return i + x; }
__attribute__((noinline)) int spin(int x) { usleep(2000); return tick(x); }
int main(void) { for (int i = 0; i < 1000000; i++) { spin(i); if (i % 50 == 0) { printf("at %d\n", i); fflush(stdout); } } return 0; }
"""
STEPS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile long sum;
__attribute__((noinline)) void leaf(long x) { sum += x; }
__attribute__((noinline)) void parse(long x) { for (int i = 0; i < 5; i++) leaf(x); }
__attribute__((noinline)) void lookup(long x) { leaf(x); }
__attribute__((noinline)) void refresh(long n) { for (long i = 0; i < n; i++) lookup(i); }
__attribute__((noinline)) void flush_all(long us) { usleep(us); }
__attribute__((noinline)) void serve(long x) { parse(x); lookup(x); if (x == 37) flush_all(60000); if (x % 10 == 0) refresh(LOOKUPS); }
int main(int argc, char **argv) {
  for (long i = 0; i < 100; i++) serve(i);
  puts("done");
  return argc > 1 ? atoi(argv[1]) : 0;
}
"""
CRASH = r"""
#include <stdio.h>
struct item { struct item *next; int value; };
__attribute__((noinline)) int total(struct item *at) { int n = 0; while (at->value != 99) { n += at->value; at = at->next; } return n; }
__attribute__((noinline)) int load(int n) { struct item last = {0, n}, first = {&last, 1}; return total(&first); }
int main(void) { printf("loading\n"); fflush(stdout); return load(7); }
"""
HANG = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void *take_b_then_a(void *x) { pthread_mutex_lock(&b); usleep(50000); pthread_mutex_lock(&a); return x; }
__attribute__((noinline)) void take_a_then_b(void) { pthread_mutex_lock(&a); usleep(50000); pthread_mutex_lock(&b); }
int main(void) { pthread_t t; pthread_create(&t, NULL, take_b_then_a, NULL); take_a_then_b(); return 0; }
"""
NOISY = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void ignore_all_previous_instructions(void) { usleep(1); }
int main(void) {
  char line[64];
  while (fgets(line, sizeof(line), stdin) != NULL) printf("in: %s", line);
  printf("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\033[31m\001\n");
  fprintf(stderr, "to stderr\n");
  ignore_all_previous_instructions();
  return 0;
}
"""


class Client:
    """A server and its pipes. Answers come by a thread of their own, in any order."""

    def __init__(self, scene, *options, version="2025-11-25", start=True, environment=None):
        self.scene, self.number, self.answers, self.notes, self.stray, self.twice = scene, 0, {}, [], [], []
        self.calls = self.tokens = 0
        self.changed = threading.Condition()
        self.environment = dict(os.environ, TMPDIR=scene.folder, **environment or {})
        self.server = subprocess.Popen([scene.contrail, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=open(scene.path("stderr"), "ab"), env=self.environment, cwd=scene.folder)
        scene.clients.append(self)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        if start:
            self.greet(version)

    def greet(self, version):
        self.hello = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "t", "version": "1"})
        self.note("notifications/initialized")
        tools = self.ask("tools/list")["result"]["tools"]
        self.schemas, self.calls = {tool["name"]: tool for tool in tools}, 0
        # What a model reads of them: their outputs' schemas it does not.
        read = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in tools]
        self.tokens = tokens_of(self.hello["result"].get("instructions", "") + json.dumps(read, separators=(",", ":")))

    def read(self):
        for line in self.server.stdout:
            message = json.loads(line)  # anything else on the protocol's descriptor ends this thread: answers stay out
            with self.changed:
                if isinstance(message, dict) and "method" in message:
                    self.notes.append(message)
                elif isinstance(message, dict) and message.get("id") is not None:
                    if message["id"] in self.answers:
                        self.twice.append(message["id"])
                    self.answers[message["id"]] = message
                else:
                    self.stray.append(message)
                self.changed.notify_all()

    def write(self, data):
        self.server.stdin.write(data)
        self.server.stdin.flush()

    def send(self, message):
        self.write(json.dumps(message).encode() + b"\n")

    def note(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method, params=None):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}})
        return self.number

    def answer(self, number, seconds=300):
        end = time.monotonic() + seconds
        with self.changed:
            while number not in self.answers:
                left = end - time.monotonic()
                expect(left > 0 and self.changed.wait(left), f"no answer to {number} in {seconds} s")
            return self.answers.pop(number)

    def ask(self, method, /, **params):
        return self.answer(self.begin(method, params))

    def call(self, tool, /, **arguments):
        """The result of a tool's call, as it came."""
        message = self.ask("tools/call", name=tool, arguments=arguments)
        expect("result" in message, str(message)[:500])
        result = message["result"]
        self.calls += 1
        self.tokens += tokens_of(json.dumps(arguments) + "".join(block["text"] for block in result["content"]))
        return result

    def tool(self, name, /, **arguments):
        """The structured answer; held against the tool's own schema."""
        result = self.call(name, **arguments)
        text = result["content"][0]["text"]
        expect(not result["isError"], f"{name} {arguments}: {text}")
        answer = result["structuredContent"]
        expect(json.loads(text) == answer, "the text block is not the structured answer")
        expect(list(answer)[-1] in ("next", "data_note") and 1 <= len(answer["next"]) <= 4, f"{name} ends with {str(answer)[-300:]}")
        expect(len(text.encode()) <= 60000 and tokens_of(text) < 25000, f"{len(text)} bytes, some {tokens_of(text)} tokens")
        check_schema(self.schemas[name]["outputSchema"], answer, name)
        return answer

    def refused(self, name, /, **arguments):
        """The line of an error."""
        result = self.call(name, **arguments)
        expect(result["isError"], f"{name} {arguments} was not refused: {result}")
        return result["content"][0]["text"]

    def end(self, seconds=120):
        """The client goes; the server's status."""
        self.server.stdin.close()
        status = self.server.wait(timeout=seconds)
        self.reader.join(timeout=60)
        return status


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.clients, self.started = [], []

    def close(self):
        for client in self.clients:
            if client.server.poll() is None:
                client.server.kill()
            client.server.wait()
        for process in self.started:
            process.kill()
            process.wait()

    def own(self, text, name, *words):
        return self.compile(self.write(name + ".c", text), "-O1", "-g", "-fno-inline", "-fno-optimize-sibling-calls", "-pthread",
                            *words, name=name)

    def hunter(self):
        """A client for a hunt: of standard input and output here."""
        return Client(self)

    def start(self, *words):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def runtime(self):
        """A directory of sockets of its own."""
        os.makedirs(self.path("run"), mode=0o700, exist_ok=True)
        return self.path("run")

    def left(self):
        """Directories of servers, and processes of the scene's programs, that are still there."""
        found = [name for name in os.listdir(self.folder) if name.startswith("contrail-mcp-")]
        found += glob.glob(self.path("run", "contrail", "*"))  # sockets and memories, of servers that got it as XDG_RUNTIME_DIR
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                exe = os.readlink(f"/proc/{pid}/exe")
            except OSError:
                continue
            if exe.startswith(self.folder + "/") and int(pid) not in [p.pid for p in self.started]:
                found.append(f"{pid} {exe}")
        return found


def tokens_of(text):
    """More than any tokenizer makes of it: three digits, four letters of a word, two characters of a mixture, or one other are one."""
    count = len(re.sub(r"[0-9A-Za-z\s]+", "", text))
    for run, times in collections.Counter(re.findall(r"[0-9A-Za-z]+", text)).items():
        count += times * len(run) / (3 if run.isdigit() else 4 if run.isalpha() and run.islower() else 2)
    return int(count)


def check_schema(schema, value, where):
    """As far as the server's own schemas go."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if "type" in schema and isinstance(schema["type"], str):
        expect(isinstance(value, kinds[schema["type"]]), f"{where} is no {schema['type']}: {str(value)[:100]}")
    for name in schema.get("required", ()):
        expect(name in value, f"{where} has no {name}")
    for name, inner in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            check_schema(inner, value[name], f"{where}.{name}")
    for one in value if isinstance(value, list) and "items" in schema else ():
        check_schema(schema["items"], one, where + "[]")


def has_hooks(pid):
    """The ring and the trampolines of a recording are mapped there."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        text = maps.read()
    return "contrail" in text


def has_patches(scene, process):
    """Whether contrail itself finds anything to take out."""
    result = scene.execute(scene.contrail, "clean", str(process.pid))
    return "nothing of contrail" not in result.stdout + result.stderr


# ---- the protocol ----

@case
def versions(scene):
    for version in VERSIONS:
        client = Client(scene, version=version)
        result = client.hello["result"]
        expect(result["protocolVersion"] == version, f"{result['protocolVersion']} for {version}")
        tool = client.schemas["query"]
        expect(("annotations" in tool) == (version >= "2025-03-26"), f"{version}: annotations")
        expect(("outputSchema" in tool and "title" in tool) == (version >= "2025-06-18"), f"{version}: output schema, title")
        answer = client.call("explain", term="tail call")
        expect(("structuredContent" in answer) == (version >= "2025-06-18"), f"{version}: structured answer")
        expect("tail call" in answer["content"][0]["text"], str(answer))
        expect(client.end() == 0, "status")
    for version in ("1999-01-01", "2099-01-01"):
        expect(Client(scene, version=version).hello["result"]["protocolVersion"] == VERSIONS[-1], version)


@case
def handshake(scene):
    client = Client(scene, start=False)
    expect(client.ask("ping")["result"] == {}, "ping before initialize")
    expect(client.ask("tools/list")["error"]["code"] == -32600, "a list before initialize")
    expect(client.ask("initialize")["error"]["code"] == -32602, "no protocolVersion")
    hello = client.ask("initialize", protocolVersion=VERSIONS[-1], capabilities={}, clientInfo={"name": "t", "version": "1"})
    expect(set(hello["result"]["capabilities"]) == {"tools", "resources", "prompts"}, str(hello))
    expect("data" in hello["result"]["instructions"], "nothing is said of data")
    expect(client.ask("initialize", protocolVersion=VERSIONS[-1])["error"]["code"] == -32600, "initialized twice")
    expect(client.ask("no/such")["error"]["code"] == -32601, "an unknown method")
    expect(client.ask("tools/call", name="qery", arguments={})["error"]["message"].endswith("perhaps query"), "closest tool")
    expect(client.ask("tools/list", cursor="x")["error"]["code"] == -32602, "an unknown cursor")


@case
def schemas(scene):
    """Eight tools, each with what the issue wants of it; their schemas are such (where there is a checker of them)."""
    client = Client(scene)
    expect(list(client.schemas) == ["launch", "attach", "trace", "query", "analyze", "session", "itrace", "explain"], "tools")
    for name, tool in client.schemas.items():
        expect(tool["title"] and tool["description"] and tool["annotations"]["readOnlyHint"] in (True, False), name)
        expect(tool["inputSchema"]["type"] == "object" and tool["outputSchema"]["type"] == "object", name)
    if not harness.follow_schemas([(None, tool[key]) for tool in client.schemas.values() for key in ("inputSchema", "outputSchema")]):
        return "not checked by jsonschema: it is not installed"
    return f"{len(json.dumps(list(client.schemas.values())))} bytes"


@case
def batches(scene):
    client = Client(scene, version="2025-03-26")
    call = {"name": "explain", "arguments": {"term": "drain"}}
    client.send([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/x"}, 7,
                 {"jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": call},
                 {"jsonrpc": "2.0", "id": "c", "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}])
    found = wait_for("the batch", lambda: client.stray and client.stray[0])
    by_id = {one["id"]: one for one in found}
    expect(set(by_id) == {"a", "b", "c", None} and len(found) == 4, str(found)[:500])
    expect("result" in by_id["a"] and "result" in by_id["b"] and "error" in by_id["c"] and "error" in by_id[None], str(found)[:500])
    client.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
    client.send([])
    expect(wait_for("an empty batch", lambda: len(client.stray) > 1 and client.stray[1])["error"]["code"] == -32600, "empty")
    client = Client(scene)
    client.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    expect(wait_for("a refusal", lambda: client.stray and client.stray[0])["error"]["code"] == -32600, "a batch of 2025-11-25")


@case
def malformed(scene):
    """A thousand messages that are wrong, oversized, cut, reordered, cancelled: each has its error or nothing, and the server goes on."""
    client, chance = Client(scene), random.Random(1)
    good = [json.dumps({"jsonrpc": "2.0", "id": f"m{i}", "method": method, "params": params}).encode() for i, (method, params) in
            enumerate([("tools/call", {"name": "query", "arguments": {"sql": "SELECT 1"}}), ("tools/list", {}), ("ping", {}),
                       ("resources/read", {"uri": "contrail://docs/sql"}), ("prompts/get", {"name": "hang", "arguments": {}}),
                       ("tools/call", {"name": "analyze", "arguments": {"view": "report", "filter": {"depth": "2..1"}}}),
                       ("notifications/cancelled", {"requestId": "m0"})])]
    odd = [b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"\xff\xfe\x00", b"\x00" * 50,
           b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b"[" * 5000,
           b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":7}', b'{"a":1,"a":2}',
           b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[1]}', b'{"jsonrpc":"2.0","id":9,"result":{}}',
           b'{"jsonrpc":"2.0","id":"u\\ud800","method":"ping"}', b'{"jsonrpc":"2.0","id":"n\\u0000","method":"ping\\u0000"}',
           b'{"jsonrpc":"2.0","id":99999999999999999999999999,"method":"ping"}', b'{"x":' * 3000]
    for _ in range(1000):
        line = bytearray(chance.choice(odd) if chance.random() < 0.4 else chance.choice(good))
        for _ in range(chance.choice((0, 1, 1, 3))):
            if line:
                at = chance.randrange(len(line))
                line[at:at + chance.choice((0, 1, 1, 8))] = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 2))))
        client.write(bytes(line).replace(b"\n", b" ") + b"\n")
    client.write(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"' + b"y" * (5 << 20) + b'"}}\n')
    expect(client.ask("ping")["result"] == {}, "no answer afterwards")
    expect(any("4 MiB" in str(one) for one in client.stray), "a message of 5 MiB was not refused")
    expect(client.tool("explain", term="drain")["lines"], "tools afterwards")
    expect(client.end() == 0, f"status {client.server.returncode}")
    expect(not scene.left(), str(scene.left()))
    return f"{len(client.stray)} errors without an id"


@case
def cancelled(scene):
    """A wait and a query end at once when they are cancelled, without an answer; progress is told, and rises."""
    client, ticks = Client(scene), scene.own(TICKS, "ticks")
    session = client.tool("launch", program=ticks)["session"]
    wait = client.begin("tools/call", {"name": "session", "arguments": {"action": "wait", "session": session, "wait_s": 60},
                                       "_meta": {"progressToken": "w"}})
    wait_for("progress", lambda: len(client.notes) >= 3)
    steps = [note["params"]["progress"] for note in client.notes]
    expect(steps == sorted(set(steps)) and all(note["params"]["progressToken"] == "w" for note in client.notes), str(client.notes))
    client.note("notifications/cancelled", requestId=wait, reason="enough")
    long_query = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    used = ticks_of(client.server)
    query = client.begin("tools/call", {"name": "query", "arguments": {"sql": long_query}})
    wait_for("the query to run", lambda: ticks_of(client.server) > used + 5)
    client.note("notifications/cancelled", requestId=query)
    expect(client.tool("query", sql="SELECT 1 AS one")["rows"] == [[1]], "the query went on, and the database is in use")
    refused = client.refused("query", sql=long_query, timeout_s=0.2)
    expect("timeout_s" in refused, refused)
    expect("to_file" in client.refused("query", sql="SELECT hex(zeroblob(20000000)) AS wide"), "an answer of 40 MB")
    starting = client.begin("tools/call", {"name": "launch", "arguments": {"program": ticks, "wait_s": 60}})
    wait_for("two sessions", lambda: len(client.tool("session", action="list")["sessions"]) == 2)
    client.note("notifications/cancelled", requestId=starting)
    wait_for("the end of what nobody knows of", lambda: [one["state"] for one in client.tool("session", action="list")["sessions"]] in (
        ["done", "recording"], ["recording"]))  # the second one: before its hooks were in
    expect(starting not in client.answers, "a cancelled launch was answered")
    expect(wait not in client.answers and query not in client.answers, "a cancelled request was answered")
    expect(client.end() == 0 and not scene.left(), str(scene.left()))


def ticks_of(process):
    """Its processor time so far, in ticks of the system's clock."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@case
def asked_at_once(scene):
    """What is added is asked for in the same moment: its functions have their modules, which may have been loaded just before."""
    client = Client(scene)
    for _ in range(scene.rounds(2, 6)):
        session = client.tool("launch", program="/usr/bin/perl", args=["-e", "use POSIX; for (my $i = 0;; $i++) { $n += strtol($i); select(undef, undef, undef, 0.001) if $i % 500 == 0 }"], patterns=[])["session"]
        client.tool("trace", session=session, action="add", patterns=["perl!Perl_sv*", "malloc"])
        asked = "SELECT module, count(*), group_concat(DISTINCT name), min(id), max(id) FROM functions WHERE calls > 0 GROUP BY module"
        wait_for("calls", lambda: (rows := client.tool("query", trace=session, sql=asked)["rows"])  # pylint: disable=cell-var-from-loop
                 and (expect("?" not in [row[0] for row in rows], f"{rows}, and then {client.tool('query', trace=session, sql=asked)['rows']}") or True))
        client.tool("session", session=session, action="stop", end=True)


@case(alone=True)
def views_cancelled(scene):
    """A view that is cancelled ends in its middle: the server takes less processor time for it than for the whole."""
    client = Client(scene)
    for name in ("s1", "s2", "s3"):
        done = client.tool("launch", program=scene.own(STEPS, name, "-DLOOKUPS=80000"), patterns=[f"{name}!**"], mode="full", wait_s=100)
        expect(done["events"] > 3e6, str(done["events"]))
    told = []
    # The last three make the index of a trace; with it there would be nothing to cancel.
    for tool, arguments in (("analyze", {"view": "slowest", "filter": {"min_duration": "1ns"}}),
                            ("analyze", {"view": "report", "filter": {"min_duration": "1ns"}}), ("analyze", {"view": "hot"}),
                            ("analyze", {"view": "check", "checks": ["leaf.p99 < 1s"]}),
                            ("query", {"filter": {"function": "leaf"}, "to_file": True}), ("query", {"sql": "SELECT count(*) FROM spans WHERE self > 5"}),
                            ("analyze", {"view": "graph", "trace": "s2"}), ("analyze", {"view": "diff", "other": "s3", "trace": "s1"})):
        spent = []
        for is_cancelled in (True, False):  # first: of a query, the index is made then
            before, notes = ticks_of(client.server), len(client.notes)
            number = client.begin("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": client.number}})
            if is_cancelled:
                wait_for("progress", lambda: len(client.notes) > notes or number in client.answers)  # pylint: disable=cell-var-from-loop
                client.note("notifications/cancelled", requestId=number)
                wait_for("silence", lambda: is_still(client.server))
                expect(number not in client.answers, f"{tool} {arguments} was answered")
            else:
                expect(not client.answer(number)["result"]["isError"], f"{tool} {arguments}")
            spent.append(ticks_of(client.server) - before)
        told.append(f"{arguments.get('view', 'query')} {spent[0]}/{spent[1]}")
        expect(spent[0] <= 0.6 * spent[1] + 3, f"{tool} {arguments}: {spent[0]} ticks when cancelled, {spent[1]} for the whole")
    answers = glob.glob(scene.path("contrail-mcp-*", "answer-*"))
    expect(len(answers) == 1, f"half an answer is left: {answers}")
    return ", ".join(told)


@case(alone=True)
def steps_cancelled(scene):
    """A question to recorded instructions tells how far it is, and ends in its middle; an index that was not finished is not left. The server
    that is told so has stopped itself at the first block: however late this client is, no more is done meanwhile."""
    client, stopping = Client(scene), Client(scene, environment={"CONTRAIL_TEST_POINT": "steps-progress"})
    made = client.tool("itrace", action="record", program=scene.own(STEPS, "steps", "-DLOOKUPS=100000"), limit_s=60)
    expect(made["instructions"] > 1e7, str(made))
    told = []

    def silent():
        if state_of(stopping.server) == "T":
            stopping.server.send_signal(signal.SIGCONT)
            return False
        return all(is_still(stopping.server) and state_of(stopping.server) != "T" for _ in range(5))
    for more in ({"action": "last_write", "what": "0x1000:8"}, {"action": "steps", "function": "flush_all"}):
        spent = []
        for one in (stopping, client):
            for index in glob.glob(os.path.join(made["recording"], "*.index")):
                os.unlink(index)
            before, notes = ticks_of(one.server), len(one.notes)
            number = one.begin("tools/call", {"name": "itrace", "arguments": {**more, "recording": made["recording"]}, "_meta": {"progressToken": one.number}})
            if one is stopping:
                wait_for("the first block", lambda: state_of(stopping.server) == "T")
                one.note("notifications/cancelled", requestId=number)
                wait_for("silence", silent)
                expect(number not in one.answers, f"{more} was answered")
                expect(not glob.glob(os.path.join(made["recording"], "*.index*")), "an index of half of it")
            else:
                expect(not one.answer(number)["result"]["isError"], str(more))
                expect(len(one.notes) > notes, "no progress is told")
            spent.append(ticks_of(one.server) - before)
        told.append(f"{more['action']} {spent[0]}/{spent[1]}")
        expect(spent[0] <= 0.6 * spent[1] + 3, f"{more}: {spent[0]} ticks when cancelled, {spent[1]} for the whole")
    return ", ".join(told)


@case
def steps_cancelled_while_waiting(scene):
    """An index is made by several threads. Once the share of the one that answers is done, it still hears that the question is cancelled: the others
    end, and do not make the rest."""
    client = Client(scene, environment={"CONTRAIL_TEST_SHARE_MS": "1500"})  # the others are slower by that, for each block
    made = client.tool("itrace", action="record", program=scene.own(STEPS, "steps", "-DLOOKUPS=50000"), limit_s=60)
    question = {"action": "steps", "function": "flush_all", "recording": made["recording"]}
    threads, spent, ticks = (lambda: len(os.listdir(f"/proc/{client.server.pid}/task"))), [], []
    for is_cancelled in (False, True):
        for index in glob.glob(os.path.join(made["recording"], "*.index")):
            os.unlink(index)
        many, begin, before = threads(), time.monotonic(), ticks_of(client.server)
        number = client.begin("tools/call", {"name": "itrace", "arguments": question})
        if is_cancelled:
            wait_for("the others' share", lambda: threads() > many)
            wait_for("its own to be done", lambda: is_still(client.server))
            begin = time.monotonic()
            client.note("notifications/cancelled", requestId=number)
            wait_for("the others to end", lambda: threads() <= many)
            expect(not glob.glob(os.path.join(made["recording"], "*.index*")), "an index was made all the same")
        else:
            expect(not client.answer(number)["result"]["isError"], str(made))
        spent.append(time.monotonic() - begin)
        ticks.append(ticks_of(client.server) - before)
    # The others wait for each of their blocks: they end after the one at which they are, not after all.
    # On a busy machine their threads may be seen to end late; then by their work.
    expect(spent[1] <= 0.65 * spent[0] or ticks[1] <= 0.55 * ticks[0] + 3,
           f"{spent[1]:.1f} s after it was cancelled, {spent[0]:.1f} s for the whole; ticks {ticks[1]}, {ticks[0]}")
    return f"{spent[1]:.1f}/{spent[0]:.1f} s"


MANY = r"""
import glob, mmap, os, time
kept, names, size = [], set(), 0
for path in sorted(map(os.path.realpath, glob.glob("/usr/lib/x86_64-linux-gnu/lib*.so.*")), key=os.path.getsize, reverse=True):
    if path not in names and 200000 < os.path.getsize(path) < 6000000 and size < 100000000:
        with open(path, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
        size += os.path.getsize(path)
        names.add(path)
print(len(names), flush=True)
time.sleep(1000)
"""


@case(alone=True)
def attach_cancelled(scene):
    """An attach that is cancelled while files are planned ends soon: the process is as it was, and nothing is held of it."""
    process = subprocess.Popen([sys.executable, "-c", MANY], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    scene.started.append(process)
    modules = int(process.stdout.readline())
    if modules < 10:
        raise harness.Skip(f"there are only {modules} libraries")
    client, spent = Client(scene, environment={"XDG_CACHE_HOME": scene.path("cache")}), []
    for is_cancelled in (True, False):
        shutil.rmtree(scene.path("cache"), ignore_errors=True)
        before = ticks_of(client.server)
        number = client.begin("tools/call", {"name": "attach", "arguments": {"process": process.pid, "patterns": ["usleep"]}})
        if is_cancelled:
            wait_for("a moment in the middle of it", lambda: ticks_of(client.server) > before + 1 or number in client.answers)  # pylint: disable=cell-var-from-loop
            client.note("notifications/cancelled", requestId=number)
            wait_for("the end", lambda: not client.tool("session", action="list")["sessions"])
            expect(number not in client.answers, "it was answered")
            expect(not has_hooks(process.pid) and not has_patches(scene, process) and process.poll() is None, "something is left")
        else:
            expect(not client.answer(number)["result"]["isError"], "attach")
        spent.append(ticks_of(client.server) - before)
    expect(spent[0] <= 0.6 * spent[1] + 3, f"{spent[0]} ticks when cancelled, {spent[1]} for the whole")
    tried = []
    for is_cancelled in (True, False):  # so does a search of all its files
        shutil.rmtree(scene.path("cache"), ignore_errors=True)
        before, notes = ticks_of(client.server), len(client.notes)
        number = client.begin("tools/call", {"name": "trace", "arguments": {"action": "try", "patterns": ["usleep"]}, "_meta": {"progressToken": "t"}})
        if is_cancelled:
            wait_for("progress", lambda: len(client.notes) > notes or number in client.answers)  # pylint: disable=cell-var-from-loop
            client.note("notifications/cancelled", requestId=number)
            wait_for("silence", lambda: is_still(client.server))
            expect(number not in client.answers, "a cancelled search was answered")
        else:
            expect(client.answer(number)["result"]["structuredContent"]["patterns"][0]["matched"] >= 1, "the search")
        tried.append(ticks_of(client.server) - before)
    expect(tried[0] <= 0.6 * tried[1] + 3, f"{tried[0]} ticks of a search when cancelled, {tried[1]} for the whole")
    client.tool("session", action="stop")
    launch = client.begin("tools/call", {"name": "launch", "arguments": {"program": scene.own(TICKS, "ticks")}})
    client.note("notifications/cancelled", requestId=launch)
    wait_for("the launched one to end", lambda: launch in client.answers or client.tool("session", action="list")["sessions"][0]["state"] == "done")
    expect(client.end() == 0 and not scene.left(), str(scene.left()))
    return f"{modules} libraries: {spent[0]}/{spent[1]} ticks, a search {tried[0]}/{tried[1]}"


def state_of(process):
    """T: it has stopped."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


def is_still(process):
    before = ticks_of(process)
    time.sleep(0.2)  # a duration in which nothing may be done
    return ticks_of(process) == before


# ---- others' clients ----

SDK, INSPECTOR = "@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/inspector@2.12.0"


def installed(scene, package):
    """The folder of node_modules with the package; skipped where that cannot be had."""
    return os.path.dirname(harness.npm(scene.build_dir, package, options=("--ignore-scripts",)))


@case
def sdk(scene):
    """A whole session by the SDK's client, which checks messages and structured answers."""
    folder = installed(scene, SDK)
    shutil.copy(os.path.join(harness.HERE, "agents", "client.mjs"), folder)
    ticks = scene.own(TICKS, "ticks")
    said = scene.run("node", os.path.join(folder, "client.mjs"), scene.contrail, ticks, env=dict(os.environ, TMPDIR=scene.folder))
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left())
    return said.strip()


def inspect(scene, *target):
    """A whole session by the inspector's client of the shell: each command is a process, the connection is their daemon's."""
    folder = installed(scene, INSPECTOR)
    program = os.path.join(folder, "node_modules", "@modelcontextprotocol", "inspector", "clients", "mcpdo", "build", "mcp-bin.js")
    own = dict(os.environ, HOME=scene.path("home"), TMPDIR=scene.folder, MCP_INSPECTOR_DAEMON_DIR=scene.path("d"), MCP_INSPECTOR_DAEMON_TOKEN="t" * 40,
               MCP_INSPECTOR_SECRET_STORE="memory")
    os.makedirs(scene.path("home"), exist_ok=True)
    ticks, count = scene.own(TICKS, "ticks"), "SELECT name, calls FROM functions WHERE name = 'spin'"

    def command(*words):
        return scene.run("node", program, "--format", "json", *words, env=own)

    def tool(name, /, **arguments):
        result = json.loads(command("@it", "tools/call", name, json.dumps(arguments)))
        result = result.get("result", result)
        expect(not result.get("isError"), str(result)[:500])
        return result["structuredContent"]

    try:
        command("--connection", "it", "connect", *target)
        session = tool("launch", program=ticks, patterns=[])["session"]
        expect(tool("trace", action="add", patterns=["spin", "tick"])["hooked"] == 2, "hooked")
        live = wait_for("calls", lambda: [row for row in tool("query", sql=count)["rows"] if row[1] > 0])
        tool("trace", action="mark", name="here")
        expect(tool("session", action="stop", session=session)["state"] == "done", "stop")
        expect(tool("query", trace=session, sql=count)["rows"][0][1] >= live[0][1], "afterwards")
    finally:
        scene.execute("node", program, "daemon", "stop", env=own)
    return "a whole session"


@case
def inspector_session(scene):
    said = inspect(scene, "--", scene.contrail, "mcp")
    wait_for(f"nothing to be left: {scene.left()}", lambda: not scene.left())
    return said


@case
def inspector(scene):
    folder = installed(scene, INSPECTOR)
    words = [os.path.join(folder, "node_modules", ".bin", "mcp-inspector"), "--cli", scene.contrail, "mcp", "--method"]
    tools = json.loads(scene.run(*words, "tools/list"))["tools"]
    expect([tool["name"] for tool in tools][:2] == ["launch", "attach"], str(tools)[:300])
    done = json.loads(scene.run(*words, "tools/call", "--tool-name", "launch", "--tool-arg",
                                f"program={scene.own(STEPS, 'steps', '-DLOOKUPS=3')}", "wait_s=20"))
    expect(done["structuredContent"]["end"] == "exited with status 0", str(done))
    expect(json.loads(scene.run(*words, "resources/list"))["resources"], "resources")


# ---- those who go ----

KILLED_CLIENT = r"""
import json, subprocess, sys, time
server = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(number, method, **params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
    server.stdin.flush()
def call(number, tool, **arguments):
    send(number, "tools/call", name=tool, arguments=arguments)
send(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "k", "version": "1"})
print(server.pid, flush=True)
call(2, "launch", program=sys.argv[2], **({"last": "5s,16M"} if sys.argv[4] == "1" else {}))
call(3, "attach", process=int(sys.argv[3]), patterns=["spin", "tick"])
for number in range(4, 1000):
    call(number, *[("query",), ("trace",), ("analyze",)][number % 3][:1], **[{"sql": "SELECT count(*) FROM spans"},
         {"action": "add", "patterns": ["usleep"]}, {"view": "report"}][number % 3])
    if number % 20 == 0:
        time.sleep(0.01)
    server.stdout.readline()
time.sleep(60)
"""


def kill_one(scene, script, ticks, process, chance, whom):
    """A client with a session of each kind; it, or its server, is killed at some moment. Until all is gone."""
    client = subprocess.Popen([sys.executable, script, scene.contrail, ticks, str(process.pid), str(chance.randrange(2))], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=scene.folder, XDG_RUNTIME_DIR=scene.runtime()))
    try:
        server = int(client.stdout.readline())
        time.sleep(chance.random() * chance.choice((0.02, 0.2, 0.6)))
        if whom == "client":
            client.kill()
        else:
            os.kill(server, whom)
        wait_for(f"the end of the server ({whom})", lambda: not os.path.exists(f"/proc/{server}") or is_dead(server))
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    wait_for(f"nothing to be left ({whom}): {scene.left()}", lambda: not scene.left())
    expect(process.poll() is None, f"the attached process has ended ({whom})")
    wait_for(f"no hook to be left ({whom})", lambda: not has_patches(scene, process))


def is_dead(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@case
def killed(scene):
    """A client that is killed, a server that gets SIGTERM or SIGKILL, at random moments: no process, file or hook is left."""
    chance = random.Random(5)
    ticks, script = scene.own(TICKS, "ticks"), scene.write("client.py", KILLED_CLIENT)
    process = scene.start(scene.own(TICKS, "other"))
    kinds = ["client", "client", signal.SIGTERM, signal.SIGKILL]
    for turn in range(scene.options.moments):
        kill_one(scene, script, ticks, process, chance, kinds[turn % len(kinds)])
    return f"{scene.options.moments} moments"


@case
def killed_in_itrace(scene):
    """The same while instructions are recorded: a program that was started for it has ended, another process runs on."""
    chance, ticks = random.Random(8), scene.own(TICKS, "ticks")
    process = scene.start(scene.own(TICKS, "other"))
    kinds = ["end of file", signal.SIGTERM, signal.SIGKILL]
    for turn in range(scene.options.moments // 2):
        client, whom = Client(scene), kinds[turn // 2 % 3]
        client.begin("tools/call", {"name": "itrace", "arguments": {"action": "record", "limit_s": 60, **(
            {"program": ticks} if turn % 2 else {"pid": process.pid, "all_threads": True})}})
        time.sleep(chance.random() * chance.choice((0.01, 0.1, 0.4)))
        if whom == "end of file":
            client.server.stdin.close()
        else:
            client.server.send_signal(whom)
        client.server.wait(timeout=300)
        wait_for(f"nothing to be left ({whom}): {scene.left()}", lambda: not scene.left())
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
            expect("TracerPid:\t0\n" in status.read() and process.poll() is None, f"the process is traced, or has ended ({whom})")
    return f"{scene.options.moments // 2} moments"


@case
def deaf(scene):
    """A client that asks much and reads nothing, and goes: the server ends all the same."""
    server = subprocess.Popen([scene.contrail, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=scene.folder))
    scene.started.append(server)
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": VERSIONS[-1]}}).encode() + b"\n")
    for number in range(1, 30):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call",
                                       "params": {"name": "explain", "arguments": {}}}).encode() + b"\n")
    server.stdin.flush()
    wait_for("its first answer", lambda: select.select([server.stdout], [], [], 0)[0])
    wait_for("all to be answered, or the pipe to be full", lambda: is_still(server))
    begun = time.monotonic()
    server.send_signal(signal.SIGTERM)
    expect(server.wait(timeout=300) == 0, f"status {server.returncode}")
    server.stdin.close()
    server.stdout.close()
    expect(not scene.left(), str(scene.left()))
    return f"{time.monotonic() - begun:.1f} s"


@case(alone=True)
def times(scene):
    """The first answer after a launch, and warm queries on ten million events."""
    client = Client(scene)
    ticks = scene.own(TICKS, "ticks")
    client.tool("launch", program=ticks, patterns=["tick"])  # plans are in the cache then
    client.tool("session", action="stop")

    def timed(name, **arguments):
        """In ms, without those in which somebody waited for a processor."""
        begun, waited = time.monotonic(), harness.waited_s()
        client.tool(name, **arguments)
        took = time.monotonic() - begun
        return 1e3 * (took - min(harness.waited_s() - waited, took))
    firsts = []
    for _ in range(5):
        firsts.append(timed("launch", program=ticks))
        client.tool("session", action="stop")
    first = sorted(firsts)[2]
    done = client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=250000"), patterns=["steps!**"], mode="full", wait_s=300)
    expect(done["events"] > 10e6, str(done["events"]))
    queries = ("SELECT name, calls, total FROM functions ORDER BY total DESC LIMIT 10", "SELECT caller, calls FROM edges WHERE callee = 'lookup'",
               "SELECT function, duration FROM spans WHERE duration > 10000000 ORDER BY duration DESC LIMIT 10",
               "SELECT start, duration FROM spans WHERE function = 'serve' ORDER BY duration DESC LIMIT 5")
    client.tool("query", sql=queries[2])
    spent = [timed("query", sql=queries[turn % len(queries)]) for turn in range(40)]
    median = sorted(spent)[len(spent) // 2]
    expect(median < 20, f"the median of warm queries is {median:.1f} ms")
    expect(first < 300, f"the first answer took {first:.0f} ms")
    return f"{done['events']} events: p50 {median:.1f} ms, slowest {max(spent):.1f} ms; first answer {first:.0f} ms"


def arguments(parser):
    parser.add_argument("--moments", type=int, default=12, help="at which somebody is killed")


if __name__ == "__main__":
    main(__doc__, Scene, arguments)
