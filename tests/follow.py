#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Families of processes: children followed across fork, vfork, posix_spawn and exec. Output and status are those of the
program alone, every process has a whole trace with nothing dropped, and calls are counted exactly.

    tests/follow.py [--filter PATTERN] [--repeat N] [--build DIR]
"""
import glob
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import harness
from harness import Skip, case, free_port, main, need, need_root, wait_for, waited_s


class Scene(harness.Scene):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.fixture = self.compile("follow/process_tree.c", "-O2", "-pthread", name="tree")

    def record(self, *words, options=(), **more):
        """Runs it alone and followed: the same output and status. The manifests of the process tree, by pid."""
        trace = os.path.join(self.folder, "trace")
        shutil.rmtree(trace, ignore_errors=True)
        alone = subprocess.run(words, capture_output=True, timeout=300, check=False, **more)
        told = subprocess.run([self.contrail, "record", "--follow", *options, "-o", trace, *words],
                              capture_output=True, timeout=600, check=False, **more)
        status = alone.returncode if alone.returncode >= 0 else 128 - alone.returncode
        assert told.returncode == status, (told.returncode, alone.returncode, told.stderr)
        assert sorted(told.stdout.splitlines()) == sorted(alone.stdout.splitlines()), (told.stdout, alone.stdout)
        assert told.stderr == alone.stderr, (told.stderr, self.not_recorded(trace))
        return self.tree(trace)

    @staticmethod
    def not_recorded(trace):
        """Children that are not, and why; how many are not in the list."""
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        return [child for child in manifest["children"] if "not_recorded_because" in child], manifest["children_lost"]

    @staticmethod
    def tree(trace, few=False):
        """few: so few functions are traced that a process may call none of them."""
        with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
            first = json.load(file)
        assert first["state"] == "complete" and first["dropped_total"] == 0, (first["state"], first["dropped_total"])
        assert first.get("children_lost", 0) == 0, ("children that are not in the list", first["children_lost"], len(first["children"]))
        first["path"] = trace
        processes = [first]
        for child in first["children"]:
            assert "not_recorded_because" not in child, child
            with open(os.path.join(trace, child["directory"], "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            assert manifest["state"] == "complete", child
            assert manifest["dropped_total"] == 0, (manifest["dropped_total"], child)
            assert manifest["pid"] == child["pid"] and manifest["parent"] == child["parent"], child
            assert few or sum(thread["events"] for thread in manifest["threads"]) > 0, child
            manifest["path"] = os.path.join(trace, child["directory"])
            processes.append(manifest)
        on_disk = {os.path.basename(path) for path in glob.glob(os.path.join(trace, "process-*"))}
        assert on_disk == {child["directory"] for child in first["children"]}, on_disk
        return processes

    def calls(self, manifest, function):
        report = json.loads(subprocess.run([self.contrail, "report", "--json", manifest["path"]], check=True,
                                           capture_output=True, timeout=300).stdout)
        return sum(row["calls"] for row in report["functions"] if row["name"] == function)


@case
def fork_counts(scene):
    """Children by fork, of a fork's child, and from threads: each has worked as often as its status says."""
    for way in ("fork", "nested", "threads"):
        tree = scene.record(scene.fixture, way)
        assert len(tree) > 10, (way, len(tree))
        for process in tree[1:]:
            assert process["born"] == "fork"
            assert scene.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


@case
def report(scene):
    """report --family is the sum of the reports of each process; what cannot be read is reported."""
    tree = scene.record("sh", "-c", "for i in 1 2 3; do ls / | sort | head -n $i; done; (true); wc -l </etc/passwd; exec true")
    trace = tree[0]["path"]

    def rows(*words):
        return json.loads(subprocess.run([scene.contrail, "report", "--json", *words], check=True, capture_output=True,
                                         timeout=300).stdout)

    def add(counts, told):
        for row in told["functions"]:
            key = (row["module"], row["name"])
            before = counts.get(key, (0, 0, 0, 0))
            counts[key] = tuple(a + b for a, b in zip(before, (row["calls"], row["recorded"], row["orphans"],
                                                               sum(row["left"].values()))))
    wanted, got = {}, {}
    for process in tree:
        add(wanted, rows(process["path"]))
    told = rows("--family", trace)
    add(got, told)
    assert got == wanted, {key: (got.get(key), wanted.get(key)) for key in {*got, *wanted} if got.get(key) != wanted.get(key)}
    assert len(tree) > 10 and [process["pid"] for process in told["processes"]] == [process["pid"] for process in tree]
    assert told["events"] == sum(thread["events"] for process in tree for thread in process["threads"]), told["events"]
    some = rows("--family", "--function", "malloc", "--module", "libc*", trace)["functions"]
    assert [row["name"] for row in some] == ["malloc"] and some[0]["calls"] == wanted[("libc.so.6", "malloc")][0], some
    os.unlink(os.path.join(tree[2]["path"], "functions.tsv"))
    text = subprocess.run([scene.contrail, "report", "--family", trace], check=True, capture_output=True, text=True).stdout
    assert text.startswith(f"process {tree[2]['pid']}: DAMAGED: "), text[:200]
    told = rows("--family", trace)
    assert told["processes"][2]["damage"] and len(told["warnings"]) == 1, (told["processes"][2], told["warnings"])
    os.unlink(os.path.join(tree[1]["path"], "manifest.json"))
    text = subprocess.run([scene.contrail, "report", "--family", trace], check=True, capture_output=True, text=True).stdout
    assert f"of {len(tree)} processes" in text and f"process {tree[1]['pid']} is not in it: " in text, text
    assert "not_read_because" in rows("--family", trace)["processes"][1]
    alone = subprocess.run([scene.contrail, "report", trace], check=True, capture_output=True, text=True).stdout
    assert f"{len(tree) - 1} other processes were followed" in alone, alone
    for wrong in ("--per-thread", "--thread=1"):
        assert subprocess.run([scene.contrail, "report", "--family", wrong, trace], stderr=subprocess.DEVNULL).returncode == 2


@case(some=("many", 1))
def storm(scene):
    """Two hundred forks, as fast as they go, from four threads."""
    tree = scene.record(scene.fixture, "storm")
    assert len(tree) == 201, len(tree)
    for process in tree[1:]:
        assert scene.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


@case(some=("many", 1))
def crowd(scene):
    """More children at a time than there are pages to ask on, which live on with a ring of their own."""
    tree = scene.record(scene.fixture, "crowd")
    assert len(tree) == 151, len(tree)
    for process in tree[1:]:
        assert scene.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


@case
def new_namespaces(scene):
    """Children that are the first ones of pid namespaces, which ask at a time and all call themselves 1; and theirs. Also in
    so many groups that /proc/PID/status begins with kilobytes of them."""
    need_root()
    nested = (need("unshare"), "--pid", "--fork", "--mount-proc")
    grouped = (need("setpriv"), "--groups", ",".join(map(str, range(100000, 102000))))
    for words, workers in (((scene.fixture, "newpids"), 8), ((*grouped, scene.fixture, "newpids"), 8), ((*nested, scene.fixture, "nested"), 6),
                           ((*nested, scene.fixture, "vfork"), 10), ((*nested, *nested, scene.fixture, "fork"), 12)):
        counts = []
        for process in scene.record(*words)[1:]:
            counts.append(scene.calls(process, "work"))
            assert counts[-1] in (0, 100 + process["exit"]["status"]), (process["path"], counts[-1], process["exit"])
        assert sum(count > 0 for count in counts) >= workers, (words, counts)


@case
def no_proc(scene):
    """Where /proc has other numbers than contrail nothing can be found: said at once."""
    need_root()
    for words in (["record", "-o", os.path.join(scene.folder, "t"), scene.fixture, "fork"], ["attach", "1"]):
        told = subprocess.run([need("unshare"), "--pid", "--fork", scene.contrail, *words], capture_output=True,
                              timeout=60, check=False)
        assert told.returncode == 125 and b"another pid namespace" in told.stderr, (told.returncode, told.stderr)
        assert told.stdout == b"" and told.stderr.count(b"\n") == 1, told


@case
def sandbox(scene):
    """Namespaces of all kinds, as an ordinary user makes them."""
    bwrap = need("bwrap")
    words = (bwrap, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")
    for more in (("--unshare-pid",), ("--unshare-all",)):
        begin = time.monotonic()
        tree = scene.record(*words, *more, scene.fixture, "forkexec")
        assert sum(process["command"][1:2] == ["work"] for process in tree) == 10, len(tree)
        assert time.monotonic() - begin < 60


def make_root(scene):
    """A root with the fixture, its libraries, and absolute links in it, which outside lead elsewhere."""
    root = os.path.join(scene.folder, "root")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(os.path.join(root, "real"))
    shutil.copy(scene.fixture, os.path.join(root, "tree"))
    told = subprocess.run(["ldd", scene.fixture], check=True, capture_output=True, text=True).stdout
    for path in {word for line in told.splitlines() for word in line.split() if word.startswith("/")}:
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, os.path.join(root, "real"))
        os.symlink("/real/" + os.path.basename(path), root + path)
    return root


@case
def other_root(scene):
    """In a chroot, of this mount namespace and of another, functions are found in the files that are mapped."""
    need_root()
    root = make_root(scene)
    for words in ((), (need("unshare"), "--mount")):
        tree = scene.record(*words, need("chroot"), root, "/tree", "fork")
        assert len(tree) == 13, len(tree)
        for process in tree[1:]:
            assert scene.calls(process, "work") == 100 + process["exit"]["status"], process["path"]
            assert not any(module.get("not_hooked_because") for module in process["modules"]), process["modules"]


class Circle:
    """tests/follow/circle.c, which runs from when it is made until it is asked for its output."""

    def __init__(self, scene, *before):
        program = scene.compile("follow/circle.c", "-O2")
        self.folder = tempfile.mkdtemp(dir=scene.folder)
        self.process = subprocess.Popen([*before, program, self.folder], stdout=subprocess.PIPE)
        wait_for("circle", lambda: os.path.exists(os.path.join(self.folder, "ready")) or self.process.poll() is not None)
        assert self.process.poll() is None

    def leave(self):
        with open(os.path.join(self.folder, "end"), "w", encoding="utf-8"):
            pass

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """After a failure, too, it ends."""
        self.leave()

    def end(self):
        self.leave()
        told = self.process.communicate(timeout=120)[0]
        assert self.process.returncode == 0 and told == b"0 failures, many workers\n", (self.process.returncode, told)


def attach_circle(scene, pid, few):
    """The trace, and how long the detach took, without what somebody waited for a processor, which is begun when there are more children than few."""
    trace = os.path.join(scene.folder, "circle-trace")
    shutil.rmtree(trace, ignore_errors=True)
    recorder = subprocess.Popen([scene.contrail, "attach", "--follow", "--child-ring-size=1", "-o", trace, str(pid)],
                                stderr=subprocess.PIPE)
    wait_for("children", lambda: len(glob.glob(os.path.join(trace, "process-*"))) > few or recorder.poll() is not None)
    assert recorder.poll() is None, recorder.stderr.read()
    begin, waited = time.monotonic(), waited_s()
    recorder.terminate()
    err = recorder.communicate(timeout=300)[1]
    assert recorder.returncode == 0, (recorder.returncode, err)
    return trace, time.monotonic() - begin - (waited_s() - waited)


@case(alone=True)
def circle(scene):
    """A detach waits for nobody who waits for it: for a backend that waits, in a handler above a hook, for a child of
    the first process that asks. Done again, since it is a matter of luck where it stands."""
    with Circle(scene) as program:
        for few in range(2, 14, 2):
            trace, took = attach_circle(scene, program.process.pid, few)
            assert took < 10, took
            with open(f"/proc/{program.process.pid}/maps", encoding="utf-8") as file:
                assert "memfd:contrail" not in file.read()
            with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
                assert len(json.load(file)["children"]) > 2
        program.end()


@case
def attached_inside(scene):
    """Attached to from outside its pid namespace: its threads, and its children, are recorded."""
    need_root()
    with Circle(scene, need("unshare"), "--pid", "--fork", "--mount-proc") as program:
        with open(f"/proc/{program.process.pid}/task/{program.process.pid}/children", encoding="utf-8") as file:
            inner = int(file.read())
        trace = attach_circle(scene, inner, 1)[0]
        program.end()
    with open(os.path.join(trace, "manifest.json"), encoding="utf-8") as file:
        first = json.load(file)
    assert first["pid"] == inner and [thread["tid"] for thread in first["threads"]] == [1], first["threads"]
    assert first["threads"][0]["name"] == "circle" and first["threads"][0]["events"] > 0, first["threads"]
    followed = [child for child in first["children"] if child["directory"]]
    assert followed and all(os.path.isdir(os.path.join(trace, child["directory"])) for child in followed)


@case
def executes(scene):
    """vfork, posix_spawn and fork, each with an exec of the program itself, which then works; and execs that fail."""
    for way in ("vfork", "spawn", "forkexec"):
        tree = scene.record(scene.fixture, way)
        assert len(tree) == 11, (way, [process["command"] for process in tree])
        for process in tree[1:]:
            assert process["born"] == ("fork" if way == "forkexec" else "vfork")
            assert process["command"][1] == "work"
            assert scene.calls(process, "work") == 100 + process["exit"]["status"], process["path"]


GOES_ON = """
#include <unistd.h>
__attribute__((noinline)) int work(int i) { __asm__ volatile(""); return i + 1; }
int main(int argc, char **argv)
{
  int n = argc;
  for (int i = 0; i < 1000; i++) {
    n += work(i);
  }
  return execv(argv[1], argv + 1);
}
"""


@case
def goes_on_to_what_is_not_recorded(scene):
    """A 32-bit program: the trace up to there is whole, wherever it is kept. Its files were longer than the manifest said."""
    tiny = os.path.join(scene.folder, "tiny32")
    for command in (["as", "--32", "-o", tiny + ".o", os.path.join(harness.HERE, "programs", "tiny32.S")],
                    ["ld", "-m", "elf_i386", "-o", tiny, tiny + ".o"]):
        if subprocess.run(command, capture_output=True).returncode:
            raise Skip("no 32-bit assembler")
    program = scene.compile(scene.write("goes_on.c", GOES_ON), "-O1")
    for options in ((), ("--last", "4M"), ("--max-size", "4M")):
        trace = os.path.join(scene.folder, "on" + "".join(options))
        told = subprocess.run([scene.contrail, "record", "--follow", *options, "-o", trace, program, tiny], capture_output=True, text=True)
        assert told.returncode == 5 and "not a readable 64-bit" in told.stderr, told
        told = subprocess.run([scene.contrail, "check", trace, "work.calls == 1000", "no losses"], capture_output=True, text=True)
        assert (told.returncode, "DAMAGED" in told.stderr) == (0, False), (options, told)


DENIES = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void work(void) { __asm__ volatile("nop; nop; nop; nop; nop; nop"); }
int main(int argc, char **argv)
{
  char byte;
  if (argc == 1) {
    if (prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0) != 0) return 77;
    puts("ready"), fflush(stdout);
    read(0, &byte, 1);
    if (dlopen("libz.so.1", RTLD_NOW) == NULL) return 3;
    for (int i = 0; i < 100; i++) work();
    pid_t pid = fork();
    if (pid == 0) return execl("/proc/self/exe", argv[0], "again", NULL);
    return waitpid(pid, NULL, 0) != pid;
  }
  for (int i = 0; i < 100; i++) work();
  return 0;
}
"""


@case
def denies_itself_executable_memory(scene):
    """PR_SET_MDWE: what gets memory to execute has never been writable. Followed through exec, and attached to."""
    program = scene.compile(scene.write("denies.c", DENIES), "-O1")
    if subprocess.run([program], input=b"x", capture_output=True).returncode == 77:
        raise Skip("a kernel without PR_SET_MDWE")
    tree = scene.record(program, input=b"x")
    assert [scene.calls(process, "work") for process in tree] == [100, 100] and not any(p.get("notes") for p in tree), tree
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    trace = os.path.join(scene.folder, "attached")
    words = [scene.contrail, "attach", "--follow", "-o", trace, str(process.pid)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as attach:
        said = attach.stderr.readline()
        process.communicate(b"x", timeout=60)
        said += attach.communicate(timeout=60)[1]
    assert process.returncode == 0 and "hooked" in said, (process.returncode, said)
    assert [scene.calls(each, "work") for each in scene.tree(trace)] == [100, 100], said


NAMED = """
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
__attribute__((noinline)) void works(void) { __asm__ volatile(""); }
int main(int argc, char **argv, char **environment)
{
  char *words[] = {argv[0], "child", NULL}, byte;
  pid_t pid;
  if (argc == 1) {
    return posix_spawn(&pid, argv[0], NULL, NULL, words, environment) != 0 || waitpid(pid, NULL, 0) != pid;
  }
  for (puts("ready"), fflush(stdout); read(0, &byte, 1) == 1;) {
    works();
  }
  return 0;
}
"""


@case
def spawned_static(scene):
    """A static program has no loader that reports anything after its exec: its functions have their names while it runs."""
    program = scene.compile(scene.write("named.c", NAMED), "-O2", "-static")
    words = [scene.contrail, "record", "--follow", "-o", scene.trace, "--", program]
    with harness.Running(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout.readline() == "ready\n"
        recorder.stdin.write("x" * 100)
        recorder.stdin.flush()
        child, = wait_for("the child's trace", lambda: glob.glob(os.path.join(scene.trace, "process-*")))

        def seen():
            done = subprocess.run([scene.contrail, "report", "--json", "--limit", "0", child], capture_output=True, text=True)
            rows = json.loads(done.stdout)["functions"] if done.returncode == 0 else []
            nameless = [row["name"] for row in rows if row["name"].startswith("(function ") or row["name"] == "?"]
            assert not nameless, f"of {len(rows)} without a name: {nameless[:5]}"
            return sum(row["calls"] for row in rows if row["name"] == "works") == 100
        wait_for("its calls", seen)
        recorder.stdin.close()
        assert recorder.wait(60) == 0


@case
def pipeline(scene):
    tree = scene.record("sh", "-c", "ls /usr | sort | tr a-z A-Z; (exit 3); echo $?; kill -9 $$")
    exits = [process["exit"] for process in tree]
    assert sum(one == {"status": 0} for one in exits) >= 3 and {"status": 3} in exits, exits


@case
def daemon(scene):
    """The first process ends at once: with --wait-for-all the recording goes on, and is whole."""
    tree = scene.record(scene.fixture, "daemon", options=["--wait-for-all"])
    assert len(tree) == 2 and tree[1]["exit"] == {"status": 7}, tree[1]["exit"]
    assert scene.calls(tree[1], "work") == 107


@case
def detached(scene):
    """Without it contrail detaches from the daemon, which has no hook left and lives on."""
    check_detached(scene)


@case
def stopped_late(scene):
    """With it, but contrail stop comes, after the first process has ended or just then: the same."""
    for after in (0.7, 0.9, 0.95, 1.0, 1.05, 1.2):
        check_detached(scene, after)


@case
def filtered(scene):
    """A child whose seccomp filter kills for whatever it does not use: contrail comes, and goes again before it ends, and it
    never knows. Where the filter can be suspended nothing of contrail's is left in it."""
    need_root()
    need("setpriv")
    program, contrail = scene.compile("programs/filtered.c", "-O1"), scene.path("contrail")
    shutil.copy(scene.contrail, contrail)
    os.chmod(scene.folder, 0o777)
    for prefix in ([], ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]):
        trace = scene.path(f"filtered{len(prefix)}")
        parent = subprocess.Popen([*prefix, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            # Until then it is setpriv, which another user may not attach to.
            wait_for("the program", lambda: os.readlink(f"/proc/{parent.pid}/exe") == program)  # pylint: disable=cell-var-from-loop
            recorder = subprocess.Popen([*prefix, contrail, "attach", "--follow", "-o", trace, str(parent.pid)], cwd=scene.folder,
                                        stderr=subprocess.PIPE, text=True)
            said = recorder.stderr.readline()
            assert "attached" in said, said
            parent.stdin.write(b"x")
            child = int(parent.stdout.readline())
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(60) == 0, recorder.stderr.read()
            recorder.stderr.close()
            with open(f"/proc/{child}/maps", encoding="utf-8") as file:
                assert ("memfd:contrail" in file.read()) == bool(prefix), "what is left in the child"
            parent.stdin.write(b"x")
            assert parent.stdout.readline() == b"1792\n", "the child's status"
        finally:
            parent.kill()
            parent.communicate()
        with open(os.path.join(trace, f"process-{child}", "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        assert any("seccomp filter" in note for note in manifest["notes"]), manifest["notes"]
        assert any("stays mapped" in note for note in manifest["notes"]) == bool(prefix), manifest["notes"]
        manifest["path"] = os.path.join(trace, f"process-{child}")
        assert scene.calls(manifest, "work") == 100
        first = scene.info(trace)
        assert first.get("notes") is None and first["children"][0]["notes"] == manifest["notes"], first
        assert f"note of {child}: the program is under a seccomp filter" in scene.run(contrail, "info", trace)


def check_detached(scene, stop_after=None):
    trace = os.path.join(scene.folder, "detached")
    shutil.rmtree(trace, ignore_errors=True)
    out = os.path.join(scene.folder, "pid")
    if os.path.exists(out):
        os.unlink(out)
    recorder = subprocess.Popen([scene.contrail, "record", "--follow"] + ["--wait-for-all"] * (stop_after is not None) +
                                ["-o", trace, scene.fixture, "linger", out], stdout=subprocess.DEVNULL)
    if stop_after is not None:
        def lingers(): # it lives for a second from then on
            assert recorder.poll() is None
            return os.path.exists(out) and os.path.getsize(out)
        wait_for("linger", lingers)
        time.sleep(stop_after)
        names = [session["id"] for session in json.loads(
            subprocess.run([scene.contrail, "sessions", "--json"], check=True, capture_output=True).stdout)["sessions"]
                 if session.get("controller") == recorder.pid]
        subprocess.run([scene.contrail, "stop", names[0]], check=True, timeout=60, stdout=subprocess.DEVNULL)
    status = recorder.wait(60)
    assert status == 0, status
    with open(out, encoding="utf-8") as file:
        pid = int(file.read())
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            assert "memfd:contrail" not in file.read(), "something of contrail is left in the child"
        with open(os.path.join(trace, f"process-{pid}", "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        assert manifest["state"] == "complete" and manifest["detached"], (manifest["state"], manifest["exit"])
    finally:
        os.kill(pid, signal.SIGTERM)


@case(some=("make", 1))
def make(scene):
    """make -j2 of some files: each compiler, assembler and linker has a trace; the program is the same."""
    project = os.path.join(scene.folder, "project")
    os.makedirs(project, exist_ok=True)
    count_of = scene.rounds(8, 20)
    names = [f"part{n}" for n in range(count_of)]
    for n, name in enumerate(names):
        with open(os.path.join(project, name + ".c"), "w", encoding="utf-8") as file:
            file.write(f"int {name}(int x) {{ return x + {n}; }}\n")
    with open(os.path.join(project, "main.c"), "w", encoding="utf-8") as file:
        file.write("".join(f"int {name}(int);\n" for name in names))
        file.write("int main(void) { int x = 0;\n")
        file.write("".join(f"x = {name}(x);\n" for name in names))
        file.write(f"return x == {sum(range(count_of))} ? 0 : 1; }}\n")
    with open(os.path.join(project, "Makefile"), "w", encoding="utf-8") as file:
        objects = " ".join(name + ".o" for name in names + ["main"])
        file.write(f"all: program\nprogram: {objects}\n\t@gcc -o $@ $^\n%.o: %.c\n\t@gcc -c -o $@ $<\n"
                   "clean:\n\t@rm -f *.o program\n")

    built = os.path.join(project, "program")
    subprocess.run(["make", "-s", "-j2", "all"], cwd=project, check=True)
    with open(built, "rb") as file:
        alone = file.read()
    tree = scene.record("sh", "-c", f"make -s -C {project} clean; make -s -j2 -C {project} all",
                          options=["--mode", "light", "--trace", "main", "--trace", "_exit"])
    with open(built, "rb") as file:
        assert file.read() == alone
    count = {}
    for process in tree:
        name = os.path.basename(process["images"][-1]["path"])
        count[name] = count.get(name, 0) + 1
    assert sum(n for name, n in count.items() if "cc1" in name) == count_of + 1, count
    assert sum(n for name, n in count.items() if name.endswith("-as")) == count_of + 1, count
    assert sum(n for name, n in count.items() if "-ld" in name) >= 1, count
    subprocess.run([built], check=True)


@case(some=("make", 1))
def make_whole(scene):
    """The same with every function of every process hooked, of fewer files; as many traces as there are processes."""
    project = os.path.join(scene.folder, "project")
    os.makedirs(project)
    for n in range(4):
        with open(os.path.join(project, f"part{n}.c"), "w", encoding="utf-8") as file:
            file.write(f"#include <stdio.h>\nint part{n}(int x) {{ return printf(\"%d\\n\", x) + {n}; }}\n")
    with open(os.path.join(project, "Makefile"), "w", encoding="utf-8") as file:
        file.write("all: clean\n\t@$(MAKE) -s parts.so\nparts.so: part0.o part1.o part2.o part3.o\n\t@gcc -shared -o $@ $^\n"
                   "%.o: %.c\n\t@gcc -O2 -fPIC -c -o $@ $<\nclean:\n\t@rm -f *.o parts.so\n")
    seen = os.path.join(scene.folder, "strace")
    subprocess.run([need("strace"), "-f", "-qq", "-e", "trace=execve", "-o", seen, "make", "-s", "-j2", "-C", project],
                   check=True)
    with open(seen, encoding="utf-8") as file:
        processes = {line.split()[0] for line in file}
    with open(os.path.join(project, "parts.so"), "rb") as file:
        alone = file.read()
    tree = scene.record("make", "-s", "-j2", "-C", project, options=["--lossless"])
    with open(os.path.join(project, "parts.so"), "rb") as file:
        assert file.read() == alone
    assert len(tree) == len(processes), (len(tree), len(processes))
    assert sum(thread["events"] for process in tree for thread in process["threads"]) > 1000000


@case
def postgres(scene):
    """The whole of a server, by a user who is not root, with the parallel workers of a query: as many statements parsed
    as the server's own log has, as many children as it forked."""
    home = os.path.join(scene.folder, "postgres")
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    server = need("postgres", places=programs)
    if not os.path.exists(os.path.join(os.path.dirname(server), "initdb")):
        server = os.path.join(programs[-1], "postgres") if programs else server
    tools = os.path.dirname(server)
    other = []
    os.makedirs(home)
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError as error:
            raise Skip("no user postgres") from error
        other = [need("setpriv"), f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chmod(scene.folder, 0o755)
        os.chown(home, user.pw_uid, user.pw_gid)
    environment = dict(os.environ, HOME=home, PATH=tools + os.pathsep + os.environ["PATH"])
    contrail, trace, data = (os.path.join(home, name) for name in ("contrail", "trace", "data"))
    shutil.copy(scene.contrail, contrail)  # where that user can read it

    def run(*words, **more):
        return subprocess.run(other + list(words), env=environment, cwd=home, capture_output=True, text=True,
                              timeout=120, check=True, **more).stdout

    run("initdb", "-D", data, "-A", "trust", "--no-sync")
    with open(os.path.join(data, "postgresql.conf"), "a", encoding="utf-8") as file:
        file.write(f"unix_socket_directories='{home}'\nlisten_addresses=''\nfsync=off\nlog_statement=all\n"
                   "max_parallel_workers_per_gather=2\nmin_parallel_table_scan_size=0\n"
                   "parallel_setup_cost=0\nparallel_tuple_cost=0\n")
    with open(os.path.join(home, "log"), "w", encoding="utf-8") as log:
        recorder = subprocess.Popen(other + [contrail, "record", "--follow", "--lossless", "-o", trace, "--", server,
                                             "-D", data], env=environment, cwd=home, stdout=log, stderr=log)
    ask = ["psql", "-h", home, "-At", "postgres"]
    try:
        wait_for("the server", lambda: subprocess.run(other + ask + ["-c", "select 1"], env=environment, cwd=home,
                                                      capture_output=True, check=False).returncode == 0)
        run(*ask, input="create table t as select i from generate_series(1, 50000) i;\nanalyze t;\n" +
            "".join(f"insert into t values ({n});\n" for n in range(200)))
        got = run(*ask, input="set max_parallel_workers_per_gather=0;\nselect count(*), sum(i) from t;\n")
        assert got == f"SET\n50200|{50000 * 50001 // 2 + 199 * 100}\n", got
        assert "Workers Launched: 2" in run(*ask, "-c", "explain analyze select count(*) from t")
    finally:
        with open(os.path.join(data, "postmaster.pid"), encoding="utf-8") as file:
            os.kill(int(file.readline()), signal.SIGINT)
        status = recorder.wait(60)
    with open(os.path.join(home, "log"), encoding="utf-8") as file:
        text = file.read()
    assert status == 0, text[-2000:]
    tree = Scene.tree(trace)
    parsed, workers = (sum(scene.calls(process, name) for process in tree)
                       for name in ("pg_parse_query", "ParallelWorkerMain"))
    forked = scene.calls(tree[0], "fork")
    assert parsed == text.count("LOG:  statement: "), (parsed, text.count("LOG:  statement: "))
    assert workers == 2, workers
    assert forked == len(tree) - 1, (forked, len(tree))


def workers_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


@case
def nginx(scene):
    """attach --follow to nginx's master, then two new workers by a reload: they are traced, no request fails."""
    program = need("nginx")
    port = free_port()
    config = os.path.join(scene.folder, "nginx.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"daemon off; pid {scene.folder}/nginx.pid; error_log {scene.folder}/error.log; worker_processes 2;\n"
                   "events { worker_connections 64; }\n"
                   f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n")
    os.chmod(scene.folder, 0o755)
    master = subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trace = os.path.join(scene.folder, "nginx")
    shutil.rmtree(trace, ignore_errors=True)

    def ask():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
                assert answer.read() == b"hello"
                return True
        except urllib.error.URLError:
            return False

    try:
        wait_for("nginx", ask)
        attached = subprocess.Popen([scene.contrail, "attach", "--follow", "-o", trace, str(master.pid)],
                                    stderr=subprocess.PIPE, text=True)
        attached.stderr.readline()
        before = set(workers_of(master.pid))
        master.send_signal(signal.SIGHUP)
        wait_for("new workers", lambda: not before & set(workers_of(master.pid)) and len(workers_of(master.pid)) == 2)
        for _ in range(200):
            wait_for("an answer", ask)
        attached.send_signal(signal.SIGINT)
        assert attached.wait(60) == 0, attached.stderr.read()
        attached.stderr.close()
        wait_for("an answer", ask)
        tree = Scene.tree(trace)
        answers = [scene.calls(process, "writev") for process in tree[1:]]  # nginx itself may be stripped
        assert len(answers) >= 2 and sum(answers) == 200, answers
    finally:
        master.terminate()
        master.wait()


if __name__ == "__main__":
    main(__doc__, Scene)
