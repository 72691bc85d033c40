# SPDX-License-Identifier: MIT
"""What sending a trace while it is recorded costs, how many events a second it carries, and how soon they are there.

    bench/run.sh streams [--quick] [--events N]

A program that does nothing but call is recorded (100 million events, or N): by itself, and to a receiver over loopback, a
socket of a file, a pipe, and a NATS server (Debian's, if it is installed and contrail has NATS) with one and two receivers.
For each, medians: events a second of the clock, from the start of the program until the receiver has confirmed all; and
nanoseconds of a processor for an event, of the recording with its sender (less what the recording alone takes: the sender),
and of the receiver. The processor times can be compared on a machine that others use, the clock only on one that is idle.

What the way itself carries is seen where no program runs: a whole trace that is sent again (contrail send), events a second. Then the
line is cut in the middle of a recording, for five seconds (one with --quick), by a relay between the two: all must be there in the end.

Then how long bytes that the recorder has written take until they can be read at the far end: both files are looked at every
half millisecond while the program, slowed down, makes some million events a second.
"""
import filecmp
import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

TOKEN = "a token of the benchmark"
EVENTS_OF_TURN = 30  # the workload has five rounds of N turns, each of three calls
SLOW = r"""
#include <stdlib.h>
#include <time.h>
static volatile long sum;
__attribute__((noinline)) void call(void) { sum += 1; } /* of five bytes or more, or it has no hook */
int main(int c, char **v)
{
  for (long ms = atol(v[1]); ms > 0; ms--) {
    for (int i = 0; i < 1500; i++)
      call();
    nanosleep(&(struct timespec){0, 1000000}, 0);
  }
  return 0;
}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Server:
    """nats-server, if there is one and contrail can speak to it."""

    def __init__(self, contrail, folder):
        self.port, self.child, self.why = free_port(), None, "nats-server is not installed"
        program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        if not os.path.exists(program):
            return
        said = subprocess.run([contrail, "receive", "-o", os.path.join(folder, "none"), "nats://127.0.0.1:1/x"], capture_output=True,
                              text=True, check=False).stderr
        if "built without NATS" in said or "NATS needs" in said:
            self.why = said.strip()
            return
        self.child = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(self.port), "-l", os.path.join(folder, "nats.log")],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("nats-server does not answer")

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()


def finish(child):
    """Seconds of a processor that it took, with those of the children that it waited for."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(child.args)}: status {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def receive(contrail, address, directory):
    child = subprocess.Popen([contrail, "receive", "--token", TOKEN, "-o", directory, address], stderr=subprocess.PIPE, text=True)
    line = child.stderr.readline()
    if "waiting at" not in line:
        raise RuntimeError(f"the receiver does not begin: {line}")
    return child


def once(contrail, folder, words, address, receivers):
    """(events, seconds, processor seconds of the recording, of all receivers)"""
    here = os.path.join(folder, "here")
    there = [os.path.join(folder, f"there{n}") for n in range(max(receivers, 1))]
    for path in (here, *there):
        shutil.rmtree(path, ignore_errors=True)
    record = [contrail, "record", "-q", "-o", here]
    ends = [] if address in (None, "-") else [receive(contrail, address, path) for path in there]
    begin = time.perf_counter()
    if address == "-":
        child = subprocess.Popen([*record, "--to", "-", "--", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ends = [subprocess.Popen([contrail, "receive", "-q", "-o", there[0], "-"], stdin=child.stdout)]
        child.stdout.close()
    else:
        to = ["--token", TOKEN, "--to", address] if address else []
        child = subprocess.Popen([*record, *to, "--", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    recording = finish(child)
    receiving = sum(finish(end) for end in ends)
    seconds = time.perf_counter() - begin
    with open(os.path.join(here, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    dropped = sum(thread["dropped"] for thread in manifest["threads"])
    if dropped:
        raise RuntimeError(f"{dropped} events were dropped")
    return sum(thread["events"] for thread in manifest["threads"]), seconds, recording, receiving


def delays(contrail, folder, program, address, milliseconds):
    """Seconds from when bytes of the thread's file are here until they are there, for each growth that was seen here."""
    here, there = os.path.join(folder, "here"), os.path.join(folder, "there0")
    for path in (here, there):
        shutil.rmtree(path, ignore_errors=True)
    end = receive(contrail, address, there)
    child = subprocess.Popen([contrail, "record", "-q", "-o", here, "--token", TOKEN, "--to", address, "--", program, str(milliseconds)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    waiting, found, last = [], [], 0

    def size(directory):
        try:
            return os.stat(os.path.join(directory, "thread_0", "index.ctb")).st_size
        except OSError:
            return 0
    while child.poll() is None:
        arrived = size(there)
        now = time.perf_counter()
        while waiting and waiting[0][0] <= arrived:
            found.append(now - waiting.pop(0)[1])
        grown = size(here)
        if grown > last:
            waiting.append((grown, now))
            last = grown
        time.sleep(0.0005)
    finish(end)
    if not found:
        raise RuntimeError("nothing was seen to arrive")
    return sorted(found)


def carried(contrail, folder):
    """Events a second of the trace of the last recording, sent as a whole over loopback; seconds of processors for an event."""
    here, there = os.path.join(folder, "here"), os.path.join(folder, "there0")
    shutil.rmtree(there, ignore_errors=True)
    address = f"tcp://127.0.0.1:{free_port()}"
    end = receive(contrail, address, there)
    begin = time.perf_counter()
    sending = finish(subprocess.Popen([contrail, "send", "-q", "--token", TOKEN, "--to", address, here]))
    receiving = finish(end)
    return events_of(here) / (time.perf_counter() - begin), sending / events_of(here), receiving / events_of(here)


def events_of(directory):
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        return sum(thread["events"] for thread in json.load(file)["threads"])


class Relay:
    """Between a sender and a receiver; can be cut: what is connected is closed, and who comes then is refused."""

    def __init__(self, port):
        self.to, self.is_cut, self.bytes = port, False, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.open = self.socket.getsockname()[1], []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.socket.accept()[0]
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self.open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one, other):
        try:
            while data := one.recv(1 << 18):
                other.sendall(data)
                self.bytes += len(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, seconds):
        self.is_cut = True
        for end in self.open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        time.sleep(seconds)
        self.is_cut = False


def cut(contrail, folder, program, milliseconds, seconds):
    """(events, seconds from the line's return until what was recorded meanwhile is there): of a recording whose line is cut."""
    here, there = os.path.join(folder, "here"), os.path.join(folder, "there0")
    for path in (here, there):
        shutil.rmtree(path, ignore_errors=True)
    port = free_port()
    end, relay = receive(contrail, f"tcp://127.0.0.1:{port}", there), Relay(port)
    child = subprocess.Popen([contrail, "record", "-q", "-o", here, "--token", TOKEN, "--to", f"tcp://127.0.0.1:{relay.port}", "--", program,
                              str(milliseconds)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def size(directory):
        try:
            return os.stat(os.path.join(directory, "thread_0", "index.ctb")).st_size
        except OSError:
            return 0
    while child.poll() is None and size(there) < 100_000:
        time.sleep(0.01)
    relay.cut(seconds)
    begin, wanted = time.perf_counter(), size(here)
    while size(there) < wanted:
        time.sleep(0.001)
    late = time.perf_counter() - begin
    finish(child)
    finish(end)
    relay.socket.close()
    for path in ("thread_0/index.ctb", "manifest.json"):
        if not filecmp.cmp(os.path.join(here, path), os.path.join(there, path), shallow=False):
            raise RuntimeError(f"{path} differs after the cut")
    return events_of(there), late


def streams(bench):
    """All of it; the figures by name."""
    options, contrail = bench.options, bench.options.contrail
    events = options.events or 100_000_000 // bench.scale
    words = [bench.plain, "pair", str(events // EVENTS_OF_TURN)]
    slow = os.path.join(bench.folder, "slow")
    with open(slow + ".c", "w", encoding="utf-8") as file:
        file.write(SLOW)
    subprocess.run(["gcc", "-O1", "-o", slow, slow + ".c"], check=True)
    results = {}
    with tempfile.TemporaryDirectory(prefix="streams", dir=bench.folder) as folder:
        server = Server(contrail, folder)
        try:
            nats = f"nats://127.0.0.1:{server.port}/bench"
            ways = [("recorded alone", None, 0), ("tcp, loopback", "tcp", 1), ("unix socket", f"unix:{folder}/socket", 1), ("pipe", "-", 1)]
            if server.child is not None:
                ways += [("NATS, one receiver", nats, 1), ("NATS, two receivers", nats, 2)]
            else:
                print(f"  without NATS: {server.why}")
            print(f"  {'':22} {'M events/s':>10} {'recording':>10} {'its sender':>10} {'receivers':>10}   ns of a processor for an event")
            alone = None
            for name, address, receivers in ways:
                runs = []
                for _ in range(bench.repeat):
                    to = f"tcp://127.0.0.1:{free_port()}" if address == "tcp" else address
                    runs.append(once(contrail, folder, words, to, receivers))
                rate, recording, receiving = (statistics.median(run[0] / run[1] for run in runs),
                                              statistics.median(run[2] / run[0] for run in runs) * 1e9,
                                              statistics.median(run[3] / run[0] for run in runs) * 1e9)
                alone = recording if alone is None else alone
                results[name] = {"events_per_s": rate, "recording_ns": recording, "sender_ns": recording - alone, "receiving_ns": receiving}
                print(f"  {name:22} {rate / 1e6:10.1f} {recording:10.2f} {recording - alone:10.2f} {receiving:10.2f}")
            rates = [carried(contrail, folder) for _ in range(bench.repeat)]
            rate, sending, receiving = (statistics.median(values) for values in zip(*rates))
            results["whole trace"] = {"events_per_s": rate, "sender_ns": sending * 1e9, "receiving_ns": receiving * 1e9}
            print(f"  a whole trace, by contrail send: {rate / 1e6:.1f} M events/s; {sending * 1e9:.2f} and {receiving * 1e9:.2f} ns of a processor for an event")
            seconds = 1 if bench.scale > 1 else 5
            events, late = cut(contrail, folder, slow, (3 * seconds + 2) * 1000, seconds)
            results["cut"] = {"seconds": seconds, "events": events, "late_s": late}
            print(f"  a cut of {seconds} s: all of {events:,} events are there, what was recorded meanwhile {late:.2f} s after it")
            for name, address in (("tcp, loopback", "tcp"), *((("NATS", nats),) if server.child else ())):
                to = f"tcp://127.0.0.1:{free_port()}" if address == "tcp" else address
                found = delays(contrail, folder, slow, to, 10_000 // bench.scale)
                results[name + ", delay"] = {"pieces": len(found), "median_s": found[len(found) // 2], "p95_s": found[len(found) * 95 // 100],
                                             "max_s": found[-1]}
                print(f"  {name}: what is written here is there after {found[len(found) // 2] * 1e3:.1f} ms in the middle, "
                      f"{found[len(found) * 95 // 100] * 1e3:.1f} ms at p95, {found[-1] * 1e3:.1f} ms at most ({len(found)} pieces)")
        finally:
            server.close()
    return results
