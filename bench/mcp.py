# SPDX-License-Identifier: MIT
"""What contrail mcp takes to answer.

    bench/run.sh mcp [--quick] [--events N]

A trace of ten million events (or N) is asked the same few questions again and again, when it is warm: the median of what an
answer takes by the clock, and the server's processor time for one, which other work on the machine changes less. Then the first
answer after a launch: of a small program with everything hooked, and with nothing hooked. The aims are 20 and 300 ms.
"""
import json
import os
import statistics
import subprocess
import time

SOURCE = r"""
#include <stdlib.h>
#include <unistd.h>
#define N __attribute__((noinline))
static volatile long sum;
N void leaf(long x) { sum += x; }
N void lookup(long x) { leaf(x); }
N void refresh(long n) { for (long i = 0; i < n; i++) lookup(i); }
N void flush_all(void) { usleep(20000); }
N void serve(long x, long n) { leaf(x); if (x == 37) flush_all(); refresh(n); }
int main(int argc, char **argv) { for (long i = 0; i < 100; i++) serve(i, argc > 1 ? atol(argv[1]) : 10); return 0; }
"""
QUESTIONS = ("SELECT name, calls, total FROM functions ORDER BY total DESC LIMIT 10", "SELECT caller, calls FROM edges WHERE callee = 'lookup'",
             "SELECT function, duration FROM spans WHERE duration > 10000000 ORDER BY duration DESC LIMIT 10",
             "SELECT start, duration FROM spans WHERE function = 'serve' ORDER BY duration DESC LIMIT 5")


class Server:
    def __init__(self, contrail, folder):
        self.process = subprocess.Popen([contrail, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=folder))
        self.number = 0
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "bench", "version": "1"})

    def ask(self, method, **params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer["result"]
        raise SystemExit("the server has ended")

    def tool(self, name, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)
        if result["isError"]:
            raise SystemExit(result["content"][0]["text"])
        return result["structuredContent"]

    def processor_ms(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def timed(work):
    begun = time.monotonic()
    work()
    return 1e3 * (time.monotonic() - begun)


def answers(options, folder):
    program = os.path.join(folder, "serve")
    with open(program + ".c", "w", encoding="utf-8") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-o", program, program + ".c"], check=True)
    events = options.events or (1_000_000 if options.quick else 10_000_000)
    rounds = 40 if options.quick else 400
    server = Server(options.contrail, folder)
    done = server.tool("launch", program=program, args=[str(events // 400 + 1)], patterns=["serve!**"], mode="full", wait_s=600)
    for question in QUESTIONS:
        server.tool("query", sql=question)
    before = server.processor_ms()
    spent = [timed(lambda: server.tool("query", sql=QUESTIONS[turn % len(QUESTIONS)])) for turn in range(rounds)]  # pylint: disable=cell-var-from-loop
    found = {"events": done["events"], "query_p50_ms": statistics.median(spent), "query_max_ms": max(spent),
             "query_processor_ms": (server.processor_ms() - before) / rounds}
    for name, more in (("launch_all_ms", {}), ("launch_nothing_ms", {"patterns": []})):
        firsts = []
        for _ in range(3 if options.quick else 11):
            firsts.append(timed(lambda: server.tool("launch", program=program, args=["100000000"], **more)))  # pylint: disable=cell-var-from-loop
            server.tool("session", action="stop")
        found[name] = statistics.median(firsts)
    server.end()
    print(f"mcp: {found['events']} events: a warm query takes {found['query_p50_ms']:.2f} ms (median of {rounds}; at most {found['query_max_ms']:.1f} ms), "
          f"{found['query_processor_ms']:.2f} ms of a processor\n"
          f"     first answer after launch: {found['launch_all_ms']:.0f} ms with everything hooked, {found['launch_nothing_ms']:.0f} ms with nothing")
    return found
