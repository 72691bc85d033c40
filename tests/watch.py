# SPDX-License-Identifier: MIT
"""A program that may take so long and no longer: what it and its descendants were doing then is told, and they are ended."""
import os
import shutil
import signal
import subprocess
import threading
import time

from processes import stat_of, threads_of

MARK = "CONTRAIL_TEST_JOB"
END_SECONDS = 20  # for what it does at its end, when asked to
THREADS = 6  # of a process, that are told
TRACE_SECONDS = 30


def read(path, size=4000):
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


class Watched:
    """One program, started; its standard output and errors are `lines()`."""

    def __init__(self, words, environment, seconds):
        self.mark = f"{os.getpid()}.{id(self)}.{time.monotonic_ns()}"
        self.process = subprocess.Popen(words, env=dict(environment, **{MARK: self.mark}), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.seconds, self.is_over = seconds, threading.Event()
        self.fault, self.left = [], []  # why it was given up; what ran yet when it had ended
        threading.Thread(target=self.watch, daemon=True).start()

    def lines(self):
        """Until all that have it have closed it."""
        yield from self.process.stdout
        self.process.stdout.close()
        self.is_over.set()

    def wait(self):
        """The exit status, and what was used."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.left = self.all_of_it() and self.doing()
        self.end()
        return self.process.returncode, usage

    def watch(self):
        end, ended = time.monotonic() + self.seconds, None
        while not self.is_over.wait(min(1, self.seconds)):
            now = time.monotonic()
            if ended is None and stat_of(self.process.pid)[:1] in ([], ["Z"]):
                ended = now
            if ended is not None and now - ended > END_SECONDS:
                return self.give_up("has ended, and others still hold its output:")
            if ended is None and now > end:
                return self.give_up(f"longer than {self.seconds} s; what it was doing:")

    def give_up(self, why):
        self.fault = [why] + self.doing()
        self.end()

    def end(self):
        """The program first, so that it can say where it was; then all that it has left."""
        if self.process.returncode is None:
            os.kill(self.process.pid, signal.SIGTERM)
        end = time.monotonic() + END_SECONDS
        while time.monotonic() < end and self.process.pid in self.all_of_it():
            time.sleep(0.1)
        for pid in self.all_of_it():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it has gone

    def all_of_it(self):
        """The process ids: by the mark in the environment, or by who has started them."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        parents = {pid: int(words[1]) for pid, words in ((pid, stat_of(pid)) for pid in pids) if words and words[0] not in "ZX"}
        mark = f"{MARK}={self.mark}".encode()
        found = {pid for pid in parents if pid == self.process.pid or mark in read(f"/proc/{pid}/environ", 1 << 18)}
        while True:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            if not more:
                return sorted(found)
            found |= more

    def doing(self):
        """A line for each process and each of its first threads; where contrail itself is, function by function."""
        said = []
        for pid in self.all_of_it():
            words = stat_of(pid) or ["gone", "0"]
            command = read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
            said.append(f"     {pid} (of {words[1]}) {command[:200]}")
            for tid in sorted(map(int, threads_of(pid)))[:THREADS]:
                place = f"/proc/{pid}/task/{tid}"
                said.append("       " + " ".join([str(tid), (stat_of(tid) or ["gone"])[0], read(place + "/wchan").decode(), "call",
                                                  read(place + "/syscall").decode()[:30].strip()]))
            if os.path.basename(command.split(" ")[0]) == "contrail":
                said += self.functions_of(pid)
        return said

    def functions_of(self, pid):
        if not shutil.which("gdb"):
            return []
        try:
            result = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all bt 12"], stdin=subprocess.DEVNULL,
                                    capture_output=True, text=True, errors="replace", timeout=TRACE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return ["       " + line for line in result.stdout.splitlines() if line.startswith(("#", "Thread"))][:80]
