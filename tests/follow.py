#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Families of processes: children followed across fork, vfork, posix_spawn and exec. Output and status are those of the
program alone, every process has a whole trace with nothing dropped, and calls are counted exactly.

    tests/follow.py [--filter PATTERN] [--repeat N] [--build DIR]
"""
import argparse
import fnmatch
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FIXTURE = os.path.join(HERE, "follow", "family.c")


class Skip(Exception):
    pass


def need(program, *places):
    path = shutil.which(program, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin") + places))
    if not path:
        raise Skip(f"no {program}")
    return path


class Bench:
    def __init__(self, contrail, folder):
        self.contrail, self.folder = contrail, folder
        self.fixture = os.path.join(folder, "family")
        subprocess.run(["gcc", "-O2", "-pthread", "-o", self.fixture, FIXTURE], check=True)

    def record(self, *words, options=(), **more):
        """Runs it alone and followed: the same output and status. The manifests of the family, by pid."""
        trace = os.path.join(self.folder, "trace")
        shutil.rmtree(trace, ignore_errors=True)
        alone = subprocess.run(words, capture_output=True, timeout=300, check=False, **more)
        told = subprocess.run([self.contrail, "record", "--follow", *options, "-o", trace, *words],
                              capture_output=True, timeout=600, check=False, **more)
        status = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
        assert told.returncode == status, (told.returncode, alone.returncode, told.stderr)
        assert sorted(told.stdout.splitlines()) == sorted(alone.stdout.splitlines()), (told.stdout, alone.stdout)
        assert told.stderr == alone.stderr, told.stderr
        return self.family(trace)

    @staticmethod
    def family(trace):
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            first = json.load(file)
        assert first["state"] == "complete" and first["dropped_total"] == 0
        first["path"] = trace
        processes = [first]
        for child in first["children"]:
            assert "not_recorded_because" not in child, child
            with open(os.path.join(trace, child["directory"], "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            assert manifest["state"] == "complete", child
            assert manifest["dropped_total"] == 0, child
            assert manifest["pid"] == child["pid"] and manifest["parent"] == child["parent"]
            assert sum(thread["events"] for thread in manifest["threads"]) > 0, child
            manifest["path"] = os.path.join(trace, child["directory"])
            processes.append(manifest)
        on_disk = {os.path.basename(path) for path in glob.glob(os.path.join(trace, "process-*"))}
        assert on_disk == {child["directory"] for child in first["children"]}, on_disk
        return processes

    def calls(self, manifest, function):
        report = json.loads(subprocess.run([self.contrail, "report", "--json", manifest["path"]], check=True,
                                           capture_output=True, timeout=300).stdout)
        return sum(row["calls"] for row in report["functions"] if row["name"] == function)


def fork_counts(bench):
    """Children by fork, of a fork's child, and from threads: each has worked as often as its status says."""
    for way in ("fork", "nested", "threads"):
        family = bench.record(bench.fixture, way)
        assert len(family) > 10, (way, len(family))
        for process in family[1:]:
            assert process["born"] == "fork"
            assert bench.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


def storm(bench):
    """Two hundred forks, as fast as they go, from four threads."""
    family = bench.record(bench.fixture, "storm")
    assert len(family) == 201, len(family)
    for process in family[1:]:
        assert bench.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


def executes(bench):
    """vfork, posix_spawn and fork, each with an exec of the program itself, which then works; and execs that fail."""
    for way in ("vfork", "spawn", "forkexec"):
        family = bench.record(bench.fixture, way)
        assert len(family) == 11, (way, [process["command"] for process in family])
        for process in family[1:]:
            assert process["born"] == ("fork" if way == "forkexec" else "vfork")
            assert process["command"][1] == "work"
            assert bench.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


def pipeline(bench):
    family = bench.record("sh", "-c", "ls /usr | sort | tr a-z A-Z; (exit 3); echo $?; kill -9 $$")
    assert sum(process["exit"] == {"status": 0} for process in family) >= 3
    assert {"status": 3} in [process["exit"] for process in family]


def daemon(bench):
    """The first process ends at once: with --wait-for-all the recording goes on, and is whole."""
    family = bench.record(bench.fixture, "daemon", options=["--wait-for-all"])
    assert len(family) == 2 and family[1]["exit"] == {"status": 7}, family[1]["exit"]
    assert bench.calls(family[1], "work") == 107


def let_go(bench):
    """Without it the daemon is let go, without a hook in it, and lives on."""
    trace = os.path.join(bench.folder, "let_go")
    shutil.rmtree(trace, ignore_errors=True)
    out = os.path.join(bench.folder, "pid")
    subprocess.run([bench.contrail, "record", "--follow", "-o", trace, bench.fixture, "linger", out], check=True,
                   timeout=60)
    with open(out, encoding="utf-8") as file:
        pid = int(file.read())
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            assert "memfd:contrail" not in file.read()
        with open(os.path.join(trace, f"process-{pid}", "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        assert manifest["state"] == "complete" and manifest["detached"], manifest["state"]
    finally:
        os.kill(pid, signal.SIGTERM)


def make(bench):
    """make -j2 of forty files: each compiler, assembler and linker has a trace; the program is the same."""
    project = os.path.join(bench.folder, "project")
    os.makedirs(project, exist_ok=True)
    names = [f"part{n}" for n in range(40)]
    for n, name in enumerate(names):
        with open(os.path.join(project, name + ".c"), "w", encoding="utf-8") as file:
            file.write(f"int {name}(int x) {{ return x + {n}; }}\n")
    with open(os.path.join(project, "main.c"), "w", encoding="utf-8") as file:
        file.write("".join(f"int {name}(int);\n" for name in names))
        file.write("int main(void) { int x = 0;\n")
        file.write("".join(f"x = {name}(x);\n" for name in names))
        file.write("return x == 780 ? 0 : 1; }\n")
    with open(os.path.join(project, "Makefile"), "w", encoding="utf-8") as file:
        objects = " ".join(name + ".o" for name in names + ["main"])
        file.write(f"all: program\nprogram: {objects}\n\t@gcc -o $@ $^\n%.o: %.c\n\t@gcc -c -o $@ $<\n"
                   "clean:\n\t@rm -f *.o program\n")

    built = os.path.join(project, "program")
    subprocess.run(["make", "-s", "-j2", "all"], cwd=project, check=True)
    with open(built, "rb") as file:
        alone = file.read()
    family = bench.record("sh", "-c", f"make -s -C {project} clean; make -s -j2 -C {project} all",
                          options=["--mode", "light", "--trace", "main", "--trace", "_exit"])
    with open(built, "rb") as file:
        assert file.read() == alone
    count = {}
    for process in family:
        name = os.path.basename(process["images"][-1]["path"])
        count[name] = count.get(name, 0) + 1
    assert sum(n for name, n in count.items() if "cc1" in name) == 41, count
    assert sum(n for name, n in count.items() if name.endswith("-as")) == 41, count
    assert sum(n for name, n in count.items() if "-ld" in name) >= 1, count
    subprocess.run([built], check=True)


def nginx(bench):
    """attach --follow to nginx's master, then two new workers by a reload: they are traced, no request fails."""
    program = need("nginx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = os.path.join(bench.folder, "nginx.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"daemon off; pid {bench.folder}/nginx.pid; error_log {bench.folder}/error.log; worker_processes 2;\n"
                   "events { worker_connections 64; }\n"
                   f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n")
    os.chmod(bench.folder, 0o755)
    master = subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trace = os.path.join(bench.folder, "nginx")
    shutil.rmtree(trace, ignore_errors=True)

    def ask():
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                    assert answer.read() == b"hello"
                    return
            except urllib.error.URLError:
                time.sleep(0.05)
        raise AssertionError("nginx does not answer")

    try:
        ask()
        attached = subprocess.Popen([bench.contrail, "attach", "--follow", "-o", trace, str(master.pid)],
                                    stderr=subprocess.PIPE, text=True)
        attached.stderr.readline()
        master.send_signal(signal.SIGHUP)
        time.sleep(3)
        for _ in range(200):
            ask()
        attached.send_signal(signal.SIGINT)
        assert attached.wait(60) == 0, attached.stderr.read()
        attached.stderr.close()
        ask()
        family = Bench.family(trace)
        requests = [bench.calls(process, "ngx_http_process_request") for process in family[1:]]
        assert len(requests) >= 2 and (sum(requests) in (0, 200)), requests  # 0: it is stripped
    finally:
        master.terminate()
        master.wait()


CASES = [fork_counts, storm, executes, pipeline, daemon, let_go, make, nginx]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="*")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    arguments = parser.parse_args()
    failed = passed = skipped = 0
    for case in CASES:
        if not fnmatch.fnmatch(case.__name__, arguments.filter):
            continue
        for _ in range(arguments.repeat):
            with tempfile.TemporaryDirectory(prefix="contrail-follow-") as folder:
                try:
                    case(Bench(os.path.join(arguments.build, "contrail"), folder))
                    passed += 1
                except Skip as why:
                    skipped += 1
                    print(f"skip {case.__name__}: {why}")
                except (AssertionError, OSError, KeyError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"FAIL {case.__name__}: {type(error).__name__} {str(error)[:2000]}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
