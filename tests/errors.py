#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What goes wrong before or while recording or attaching: one clear line on stderr, the right status (127 not found, 126 not
executable, 125 all else), and what the program wrote is untouched.

    tests/errors.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import HERE, Running, Skip, case, longer, main, need, need_root, wait_for
from processes import end_family, state_of

# A program with output of its own, and enough calls to fill a small disk.
BUSY = "print('begin'); import json; x = [json.loads(json.dumps(list(range(200)))) for _ in range(1500)]; print('end')"


class Scene(harness.Scene):
    def record(self, *words, before=(), output=None, inside=()):
        command = [*before, self.contrail, "record", "-o", output or self.path("out.trace"), *inside, "--", *words]
        return self.run(*command)

    def run(self, *command):
        result = self.execute(*command)
        return result.returncode, result.stdout, result.stderr


def judge(outcome, status, stdout="", lines=1, words=()):
    got, out, err = outcome
    wanted = status if isinstance(status, tuple) else (status,)
    faults = []
    if got not in wanted:
        faults.append(f"status {got}, not {' or '.join(map(str, wanted))}")
    if out != stdout:
        faults.append(f"stdout is {out[:200]!r}, not {stdout!r}")
    if len(err.splitlines()) != lines or any(not line.startswith("contrail: ") for line in err.splitlines()):
        faults.append(f"stderr is not {lines} line(s) of contrail's")
    faults += [f"stderr does not say {word!r}" for word in words if word.lower() not in err.lower()]
    if faults:
        raise AssertionError("; ".join(faults) + f"\n     stderr: {err.strip()[:500]}")


def as_nobody(scene):
    """Words that run a command as another user, to whom the folder is open but not its files."""
    need_root(), need("setpriv")
    os.chmod(scene.folder, 0o777)
    if not os.access(scene.contrail, os.X_OK):
        raise Skip("contrail cannot be reached by another user")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def with_mount(scene, options, *command):
    """COMMAND in a mount namespace in which SCENE/disk is a tmpfs with OPTIONS."""
    need_root(), need("unshare")
    disk = scene.path("disk")
    os.makedirs(disk, exist_ok=True)
    script = f"mount -t tmpfs -o {options} tmpfs {shlex.quote(disk)} && exec \"$@\""
    return scene.run("unshare", "-m", "sh", "-c", script, "sh", *command)


@case
def missing_path(scene):
    judge(scene.record(scene.path("nowhere")), 127, words=["nowhere"])


@case
def missing_in_path(scene):
    judge(scene.record("no-such-program-anywhere"), 127, words=["no-such-program-anywhere"])


@case
def missing_makes_no_trace(scene):
    scene.record("no-such-program-anywhere")
    if os.path.exists(scene.path("out.trace")):
        raise AssertionError("an output directory was left behind")


@case
def directory(scene):
    os.mkdir(scene.path("folder"))
    judge(scene.record(scene.path("folder")), 126, words=["folder"])


@case
def not_executable(scene):
    judge(scene.record(scene.write("text", b"#!/bin/sh\necho no\n")), 126, words=["text"])


@case
def path_is_no_folder(scene):
    judge(scene.record(scene.write("file", b"x", 0o755) + "/below"), (126, 127))


@case
def missing_interpreter(scene):
    judge(scene.record(scene.write("script", b"#!/no/such/interpreter\n", 0o755)), (126, 127))


@case
def garbage(scene):
    judge(scene.record(scene.write("garbage", b"\x7fELF\x02\x01\x01garbage" * 20, 0o755)), (125, 126))


@case
def other_machine(scene):
    header = bytearray(open("/bin/true", "rb").read(4096))
    header[18:20] = b"\xb7\x00"  # aarch64
    judge(scene.record(scene.write("arm", bytes(header), 0o755)), (125, 126))


@case
def program_32_bit(scene):
    program = scene.path("tiny32")
    for command in (["as", "--32", "-o", program + ".o", os.path.join(HERE, "programs", "tiny32.S")],
                    ["ld", "-m", "elf_i386", "-o", program, program + ".o"]):
        if subprocess.run(command, capture_output=True).returncode:
            raise Skip("no 32-bit assembler")
    judge(scene.record(program), 125, words=["64-bit"])


@case
def unreadable(scene):
    words = as_nobody(scene)
    shutil.copy("/bin/true", scene.path("secret"))
    os.chmod(scene.path("secret"), 0o711)
    judge(scene.record(scene.path("secret"), before=words), 125, words=["secret"])


@case
def setuid_program(scene):
    """It would run without its privileges when traced by another user."""
    words = as_nobody(scene)
    for name, mode in (("setuid", 0o4755), ("setgid", 0o2755)):
        shutil.copy("/bin/true", scene.path(name))
        os.chmod(scene.path(name), mode)
        judge(scene.record(scene.path(name), before=words, output=scene.path("t." + name)), 125, words=["setuid", name])


@case
def limit_on_tasks(scene):
    """RLIMIT_NPROC of a user who is not root: just enough for the program, which contrail's threads do not count for. A hard
    limit cannot be raised: then a line tells, whether the program fails or contrail."""
    need("prlimit")
    words = as_nobody(scene)
    user = 54000 + os.getpid() % 5000  # nobody else's
    words = [words[0], f"--reuid={user}", f"--regid={user}", *words[3:]]
    program = scene.compile("programs/tasks.c", "-O1", "-pthread")
    for limit, *way in ("10:500",), ("500:500", "set"), ("400:500", "set"):
        before = [*words, "prlimit", f"--nproc={limit}"]
        alone = scene.run(*before, program, *way)
        if alone[0] != 0 or "child 0\n" not in alone[1] or "no more: Resource" not in alone[1]:
            raise AssertionError(f"{limit}: untraced {alone}")
        traced = scene.record(program, *way, before=before, output=scene.path("t." + limit))
        if traced != alone:
            raise AssertionError(f"{limit} {way}: {traced}, untraced {alone}")
    followed = scene.record(program, inside=["-f"], before=[*words, "prlimit", "--nproc=10:500"],
                            output=scene.path("t.follow"))
    children = json.loads(scene.run(scene.contrail, "info", "--json", scene.path("t.follow"))[1])["children"]
    if "was not recorded" in followed[2] or len(children) != 1:  # its threads come when the program has all it may have
        raise AssertionError(f"{followed}, {children}")
    outcome = scene.record(program, before=[*words, "prlimit", "--nproc=10:10"], output=scene.path("t.hard"))
    judge(outcome, 1, stdout=outcome[1], words=["limit of 10", "ulimit -u"])
    judge(scene.record(program, before=[*words, "prlimit", "--nproc=3:3"], output=scene.path("t.none")), 125, words=["ulimit -u"])


@case
def before_a_pid_namespace(scene):
    """unshare -p without -f: what runs then has its children in the new namespace, is not in it itself, and can have no threads."""
    need_root(), need("unshare")
    judge(scene.record("/bin/true", before=["unshare", "-p"]), 125, words=["pid namespace", "-f"])
    judge(scene.record("/bin/echo", "yes", before=["unshare", "-pf", "--mount-proc"], output=scene.path("t.forked")), 0, stdout="yes\n", lines=0)


@case
def existing_output(scene):
    os.mkdir(scene.path("out.trace"))
    scene.write("out.trace/precious", b"data")
    judge(scene.record("/bin/echo", "ran"), 125, words=["out.trace"])
    if os.listdir(scene.path("out.trace")) != ["precious"]:
        raise AssertionError("the existing directory was touched")


@case
def output_is_a_file(scene):
    scene.write("out.trace", b"data")
    judge(scene.record("/bin/echo", "ran"), 125, words=["out.trace"])


@case
def output_without_parent(scene):
    judge(scene.record("/bin/echo", "ran", output=scene.path("a/b/c")), 125, words=["a/b/c"])


@case
def read_only_output(scene):
    outcome = with_mount(scene, "ro", scene.contrail, "record", "-o", scene.path("disk/t"), "--", "/bin/echo", "ran")
    judge(outcome, 125, words=["read-only"])


@case
def no_permission_for_output(scene):
    words = as_nobody(scene)
    os.mkdir(scene.path("closed"))
    os.chmod(scene.path("closed"), 0o755)
    judge(scene.record("/bin/echo", "ran", before=words, output=scene.path("closed/t")), 125, words=["permission"])


@case
def output_is_a_link(scene):
    os.mkdir(scene.path("elsewhere"))
    os.symlink("elsewhere", scene.path("out.trace"))
    judge(scene.record("true"), 125, words=["out.trace", "symbolic link"])
    if os.listdir(scene.path("elsewhere")):
        raise AssertionError("the link was followed")


@case
def output_of_another_user(scene):
    """Who owns a folder can put links in the place of what we make in it."""
    need_root()
    os.mkdir(scene.path("out.trace"))
    os.chown(scene.path("out.trace"), 65534, 65534)
    judge(scene.record("true"), 125, words=["out.trace", "another user"])


@case
def output_open_to_all(scene):
    os.mkdir(scene.path("out.trace"))
    os.chmod(scene.path("out.trace"), 0o777)
    judge(scene.record("true"), 125, words=["out.trace", "others may write"])


@case
def output_is_private(scene):
    """Whatever the umask."""
    script = 'umask 0; exec "$@"'
    status, _, err = scene.run("sh", "-c", script, "sh", scene.contrail, "record", "-o", "out.trace", "--", "echo", "x")
    if status != 0:
        raise AssertionError(f"status {status}: {err}")
    for folder, folders, files in os.walk(scene.path("out.trace")):
        for name, wanted in [(".", 0o700)] + [(f, 0o600) for f in files]:
            mode = os.stat(os.path.join(folder, name)).st_mode & 0o777
            if mode != wanted:
                raise AssertionError(f"{os.path.join(folder, name)} has mode {mode:o}, not {wanted:o}")


@case
def runtime_directory_is_taken(scene):
    """Somebody else has a folder of our name in /tmp: the next name is taken, and found by who looks for sessions."""
    need_root()
    script = """cp "$1" /dev/shm/contrail.$$ && mount -t tmpfs -o mode=1777 tmpfs /tmp && mkdir /tmp/contrail-0 &&
                chown 65534 /tmp/contrail-0 && { /dev/shm/contrail.$$ record -o /tmp/t -- sleep 2 & } &&
                for n in $(seq 100); do /dev/shm/contrail.$$ sessions | grep . && break; sleep 0.02; done; wait; ls -d /tmp/contrail-0.1; rm -f /dev/shm/contrail.$$"""
    status, out, err = scene.run("unshare", "-m", "env", "-u", "XDG_RUNTIME_DIR", "sh", "-c", script, "sh", scene.contrail)
    if "sleep" not in out or "/tmp/contrail-0.1" not in out:
        raise AssertionError(f"status {status}: {out!r} {err!r}")


@case
def names_for_a_terminal(scene):
    """A program whose name and threads would drive a terminal, in all that shows names."""
    evil = "a\x1b]0;x\x07\x1b[2J\xc2\x9b31mb"
    program = scene.path("evil" + evil)
    shutil.copy(shutil.which("sleep"), program)
    crash = ("import ctypes, os; ctypes.CDLL(None).prctl(15, os.fsencode('t\\x1b[2J'), 0, 0, 0); os.abort()")
    shown = [scene.record(program, "0"), scene.record(sys.executable, "-c", crash, output=scene.path("crash.trace"))]
    for trace in ("out.trace", "crash.trace"):
        for words in (["info"], ["info", "-v"], ["report", "--limit", "3"], ["replay", "--limit", "3"]):
            shown.append(scene.run(scene.contrail, *words, scene.path(trace)))
    shown.append(scene.run(scene.contrail, "plan", program))
    shown.append(scene.run(scene.contrail, "plan", program + "\x1b[2J"))
    shown.append(scene.run(scene.contrail, "info", program))
    recorder = subprocess.Popen([scene.contrail, "record", "-o", scene.path("third"), "--", program, "3"], cwd=scene.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("a session", lambda: "evil" in scene.run(scene.contrail, "sessions")[1])
    shown += [scene.run(scene.contrail, "sessions"), scene.run(scene.contrail, "status")]
    recorder.send_signal(signal.SIGTERM)
    recorder.wait(30)
    for _, out, err in shown:
        for text in (out, err):
            bad = [c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0)]
            if bad:
                at = text.index(bad[0])
                raise AssertionError(f"{bad[0]!r} in {text[max(0, at - 60):at + 60]!r}")


@case
def debug_file_is_a_fifo(scene):
    """What a debuglink leads to, and what a crash looks at, is a FIFO: nobody waits for who writes into it."""
    need("gcc", "objcopy")
    scene.write("x.c", "int main(void) { __builtin_trap(); }\n")
    for words in (["gcc", "-g", "-o", "x", "x.c"], ["objcopy", "--only-keep-debug", "x", "x.debug"],
                  ["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", "--add-gnu-debuglink=x.debug", "x"]):
        subprocess.run(words, cwd=scene.folder, check=True)
    os.unlink(scene.path("x.debug"))
    os.mkfifo(scene.path("x.debug"))
    status, _, err = scene.run("timeout", "-s", "KILL", "300", scene.contrail, "record", "--source", "-o", "out.trace", "--",
                               scene.path("x"))
    if status != 132: # 128 + SIGILL
        raise AssertionError(f"status {status}: {err}")
    for words in (["plan", scene.path("x")], ["info", "out.trace"]):
        status, _, err = scene.run("timeout", "-s", "KILL", "300", scene.contrail, *words)
        if status != 0:
            raise AssertionError(f"{words[0]}: status {status}: {err}")


# A function whose name, it says, stands in the file that .gnu_debugaltlink names.
ALTERNATE = """
        .globl main
        .type main, @function
main:   .cfi_startproc
        mov $1, %eax
        mov $2, %ecx
        ud2
        .cfi_endproc
.Lend:  .size main, .Lend - main
        .section .debug_abbrev, "", @progbits
        .uleb128 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0             # a unit: low_pc, high_pc
        .uleb128 2, 0x2e, 0, 3, 0x1f21, 0x11, 1, 0x12, 7, 0, 0  # a function: name, by DW_FORM_GNU_strp_alt
        .uleb128 0
        .section .debug_info, "", @progbits
        .long 2f - 1f
1:      .value 4
        .long .debug_abbrev
        .byte 8
        .uleb128 1
        .quad main, .Lend - main
        .uleb128 2
        .long 0
        .quad main, .Lend - main
        .uleb128 0
2:      .section .gnu_debugaltlink, "", @progbits
        .asciz "FIFO"
        .zero 20, 1
        .section .note.GNU-stack, "", @progbits
"""


@case
def debug_info_names_a_fifo(scene):
    """What debug information refers to, the other part of a split unit or what several files share, is a FIFO."""
    need("gcc")
    scene.write("split.c", "int main(void) { __builtin_trap(); }\n")
    scene.write("shared.s", ALTERNATE.replace("FIFO", scene.path("fifo")))
    for words in (["gcc", "-g", "-gsplit-dwarf", "-c", "split.c"], ["gcc", "-o", "split", "split.o"],
                  ["gcc", "-no-pie", "-o", "shared", "shared.s"]):
        subprocess.run(words, cwd=scene.folder, check=True)
    os.unlink(scene.path("split.dwo"))
    for name in ("split.dwo", "fifo"):
        os.mkfifo(scene.path(name))
    for name in ("split", "shared"):
        for words in (["record", "--source", "--args", "-o", name + ".trace", "--", scene.path(name)], ["plan", scene.path(name)]):
            status, _, err = scene.run("timeout", "-s", "KILL", "300", scene.contrail, *words)
            if status != (132 if words[0] == "record" else 0): # 128 + SIGILL
                raise AssertionError(f"{name}, {words[0]}: status {status}: {err}")


@case
def asks_to_be_traced(scene):
    """A program has its parent trace it (PTRACE_TRACEME), which is contrail: it goes on when a signal has come."""
    program = scene.compile("programs/traceme.c")
    status, out, err = scene.run("timeout", "-s", "KILL", "300", scene.contrail, "record", "-o", "out.trace", "--", program)
    if (status, out) != (0, "went on\n"):
        raise AssertionError(f"status {status}: {out!r} {err!r}")


@case
def full_disk(scene):
    """The program runs to its end; what fitted can be read."""
    trace = scene.path("disk/t")
    script = (f"{scene.contrail} record -o {trace} -- /usr/bin/python3 -c \"$1\"; status=$?; "
              f"{scene.contrail} report --json {trace} >{scene.path('report')} || echo unreadable; exit $status")
    outcome = with_mount(scene, "size=600k", "sh", "-c", script, "sh", BUSY)
    judge(outcome, 125, stdout="begin\nend\n", words=["space"])


@case
def disk_full_at_once(scene):
    outcome = with_mount(scene, "size=4k", scene.contrail, "record", "-o", scene.path("disk/t"), "--", "/bin/echo", "ran")
    if outcome[1] not in ("", "ran\n"):
        raise AssertionError(f"stdout is {outcome[1]!r}")
    judge((outcome[0], "", outcome[2]), 125, words=["space"])


@case
def ptrace_forbidden(scene):
    helper = scene.path("deny_ptrace")
    subprocess.run(["gcc", "-o", helper, os.path.join(HERE, "programs", "deny_ptrace.c")], check=True)
    judge(scene.record("/bin/echo", "ran", before=[helper]), 125, words=["ptrace"])


@case
def no_program(scene):
    got, out, err = scene.run(scene.contrail, "record")
    if got not in (2, 125) or out or not err.startswith("contrail"):
        raise AssertionError(f"status {got}, stdout {out!r}, stderr {err!r}")


@case
def unknown_option(scene):
    got, out, err = scene.run(scene.contrail, "record", "--no-such-option", "--", "/bin/true")
    if got not in (2, 125) or out or "--no-such-option" not in err:
        raise AssertionError(f"status {got}, stdout {out!r}, stderr {err!r}")


@case
def status_passes(scene):
    for code in (0, 1, 77, 125, 126, 127, 200, 255):
        outcome = scene.record("/bin/sh", "-c", f"echo out; echo err >&2; exit {code}", output=scene.path(f"t{code}"))
        if outcome != (code, "out\n", "err\n"):
            raise AssertionError(f"exit {code}: {outcome}")


@case
def signal_passes(scene):
    for number in (1, 2, 6, 9, 11, 15):
        got, out, err = scene.record("/bin/sh", "-c", f"echo out; kill -{number} $$", output=scene.path(f"t{number}"))
        if got not in (128 + number, -number) or (out, err) != ("out\n", ""):
            raise AssertionError(f"signal {number}: {(got, out, err)}")


@case
def nothing_known(scene):
    need("gcc")
    scene.write("bare.S", b".globl _start\n_start: mov $60, %eax\n mov $7, %edi\n syscall\n")
    subprocess.run(["gcc", "-static", "-nostdlib", "-s", "-Wl,--build-id=none", "-o", scene.path("bare"), scene.path("bare.S")],
                   check=True, stderr=subprocess.DEVNULL)
    judge(scene.record(scene.path("bare")), 7, words=["nothing was recorded", "contrail plan"])


@case
def script_with_interpreter(scene):
    script = scene.write("script", b"#!/bin/sh\necho from a script $1\nexit 3\n", 0o755)
    outcome = scene.record(script, "word")
    if outcome != (3, "from a script word\n", ""):
        raise AssertionError(str(outcome))


@case
def read_nothing(scene):
    for command in ("info", "report", "replay"):
        got, out, err = scene.run(scene.contrail, command, scene.path("nowhere"))
        if got == 0 or out or len(err.splitlines()) != 1 or "nowhere" not in err:
            raise AssertionError(f"{command}: {(got, out, err)}")


@case
def read_damaged(scene):
    """Cut anywhere, with bytes changed: an answer or one line, never a crash."""
    if scene.record("/bin/ls", "/")[0]:
        raise AssertionError("cannot record ls")
    trace = scene.path("out.trace")
    index = next(os.path.join(trace, d, "index.ctb") for d in sorted(os.listdir(trace)) if d.startswith("thread_"))
    whole = open(index, "rb").read()
    cuts = [0, 1, 63, 64, 100, 191, 192, len(whole) // 2, len(whole) - 1]
    variants = [whole[:cut] for cut in cuts]
    for place in range(64, len(whole), max(1, len(whole) // 40)):
        variants.append(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1:])
    for data in variants:
        with open(index, "wb") as file:
            file.write(data)
        for command in ("info", "report", "replay"):
            got, _, err = scene.run(scene.contrail, command, trace)
            if got not in (0, 1, 125) or "Sanitizer" in err:
                raise AssertionError(f"{command} on damaged data: status {got}: {err[:300]}")
    for name in ("manifest.json", "functions.tsv"):
        path = os.path.join(trace, name)
        good = open(path, "rb").read()
        for data in (b"", good[:len(good) // 2], b"\x00\xff" * 100, good[:-3]):
            with open(path, "wb") as file:
                file.write(data)
            for command in ("info", "report", "replay"):
                got, _, err = scene.run(scene.contrail, command, trace)
                if got not in (0, 1, 125) or "Sanitizer" in err:
                    raise AssertionError(f"{command} with damaged {name}: status {got}: {err[:300]}")
        os.unlink(path)
        os.mkdir(path)
        for words in (["info", trace], ["report", trace], ["sql", trace, "SELECT 1"], ["check", trace, "no losses"]):
            got, out, err = scene.run(scene.contrail, *words)
            if got != (125 if words[0] == "check" else 1) or out or f"cannot read {path}: damaged or foreign data" not in err:
                raise AssertionError(f"{words[0]} with a directory for {name}: status {got}: {out[:100]} {err[:300]}")
        os.rmdir(path)
        with open(path, "wb") as file:
            file.write(good)


@case
def plan_of_nothing(scene):
    for path in (scene.path("nowhere"), scene.folder, scene.write("text", b"no ELF file\n")):
        got, out, err = scene.run(scene.contrail, "plan", "--json", path)
        if got == 0 or out or len(err.splitlines()) != 1:
            raise AssertionError(f"plan {path}: {(got, out[:200], err)}")


@case
def killed_recorder(scene):
    """SIGKILL to contrail: the program goes on to its end, and the trace so far can be read."""
    process = subprocess.Popen([scene.contrail, "record", "-o", scene.path("out.trace"), "--", "/bin/sh", "-c",
                                "echo begin; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 1; echo end"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = process.stdout.readline()
    wait_for("events", lambda: os.path.exists(scene.path("out.trace", "thread_0", "index.ctb")))
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # to the end of the program, which holds the pipe
    process.wait()
    process.stderr.close()
    scene.command = "contrail record, killed"
    if (first, rest) != (b"begin\n", b"end\n"):
        raise AssertionError(f"the program did not go on: {first!r} {rest!r}")
    got, out, err = scene.run(scene.contrail, "info", "--json", scene.path("out.trace"))
    if got or '"events"' not in out:
        raise AssertionError(f"info after the kill: {(got, out[:200], err)}")


class Odd:
    """tests/attach/odd.c in a state, with contrail attach."""

    def __init__(self, scene, *words):
        self.scene, program = scene, scene.path("odd")
        if not os.path.exists(program):
            scene.compile("attach/odd.c", "-O2", "-g", "-lpthread")
        self.process = subprocess.Popen([program, *words], stdout=subprocess.PIPE, text=True)
        self.pid = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_family(self.process.pid, seconds=0)
        self.process.wait()
        self.process.stdout.close()

    def attach(self, *options, before=()):
        return self.scene.run(*before, self.scene.contrail, "attach", "-o", self.scene.path("out.trace"), *options,
                              str(self.pid))

    def attach_works(self, seconds, least=1):
        """It is recorded, at least so many calls of what it does all the time."""
        def attempt(words):
            shutil.rmtree(self.scene.path("out.trace"), ignore_errors=True)
            outcome = self.attach(*words)
            if outcome[0] == 125 and "nothing was recorded" in outcome[2]:
                return False
            judge(outcome, 0, lines=2)
            return self.calls("step") >= least
        longer(seconds, attempt)

    def calls(self, name):
        out = self.scene.run(self.scene.contrail, "report", "--json", "--limit", "0", self.scene.path("out.trace"))[1]
        return sum(row["calls"] for row in json.loads(out)["functions"] if row["name"] == name)

    def maps(self):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as file:
            return file.read()

    def await_state(self, state):
        wait_for(f"state {state}", lambda: state_of(self.pid) == state)


@case
def attach_nobody(scene):
    for pid, status, words in (("999999999", 125, ["no process"]), ("0", 2, ["process id"]), ("2", 125, ["kernel" if os.geteuid() == 0 else "may not be traced by you"])):
        got, out, err = scene.run(scene.contrail, "attach", "-o", scene.path("out.trace"), pid)
        if pid == "2" and not os.path.exists("/proc/2"):
            continue
        if got != status or out or len(err.splitlines()) != 1 or any(word not in err for word in words):
            raise AssertionError(f"{pid}: status {got}: {err}")


@case
def attach_zombie(scene):
    with Odd(scene, "zombie") as odd:
        judge(odd.attach(), 125, words=["has ended"])


@case
def attach_stopped(scene):
    """It stays stopped while it is attached to and detached from, and works when it is continued."""
    with Odd(scene, "work") as odd:
        odd.process.send_signal(signal.SIGSTOP)
        odd.await_state("T")
        outcome = odd.attach("--for", "200ms") # it calls nothing: with no event at all, that is said
        judge(outcome, 125 if "nothing was recorded" in outcome[2] else 0, lines=2 + ("nothing was recorded" in outcome[2]))
        odd.await_state("T")
        odd.process.send_signal(signal.SIGCONT)
        odd.await_state("S")
        odd.attach_works(0.2, least=3)


@case(alone=True)
def attach_in_vfork(scene):
    """The thread cannot be stopped before the child has ended; the other one runs meanwhile."""
    with Odd(scene, "vfork", "3") as odd:
        begin = time.monotonic()
        got, _, err = odd.attach("--for", "300ms")
        held = float(err.split("stopped for ")[1].split()[0])
        if got != 0 or time.monotonic() - begin < 0.5 or held > 2700:
            raise AssertionError(f"status {got}, stopped for {held} ms: {err}")
        if odd.process.wait(60) != 7 or odd.calls("step") < 3:
            raise AssertionError(f"it ended with {odd.process.returncode}, {odd.calls('step')} calls")


@case
def attach_in_long_vfork(scene):
    with Odd(scene, "vfork", "60") as odd:
        judge(odd.attach("--for", "300ms"), 125, words=["vfork"])
        if os.path.exists(scene.path("out.trace")):
            raise AssertionError("an output directory was left behind")


@case
def attach_heir(scene):
    """The main thread has ended, another one goes on."""
    for words in (["attach", "-o", scene.path("out.trace")], ["record", "-o", scene.path("out.trace"), "--"]):
        if words[0] == "attach":
            with Odd(scene, "heir", "3000") as odd:
                odd.await_state("Z")
                judge(odd.attach(), 0, lines=2)
                status = odd.process.wait(60)
        else:
            status = scene.run(scene.contrail, *words, scene.path("odd"), "heir", "300")[0]
        if status != 5 or (odd.calls("step"), odd.calls("zlibVersion")) != (100, 100):
            raise AssertionError(f"{words[0]}: it ended with {status}; {odd.calls('step')}, {odd.calls('zlibVersion')} calls")
        shutil.rmtree(scene.path("out.trace"))


@case
def attach_under_seccomp(scene):
    """Of the first thread, or of another one, whose filter kills for what we would have it do."""
    for kind in ("seccomp", "seccomp-thread"):
        with Odd(scene, kind) as odd:
            judge(odd.attach(), 125, words=["seccomp"])
            time.sleep(0.3)  # nobody kills it afterwards
            assert odd.process.poll() is None, f"{kind}: ended with {odd.process.poll()}"


@case
def attach_sharer(scene):
    """A process that has its memory and is no thread of it would come into hooks without what they need: it died."""
    with Odd(scene, "sharer") as odd:
        judge(odd.attach("--for", "300ms"), 125, words=["CLONE_VM", str(odd.pid)])
        status = odd.process.wait(60)
        assert status == 3, f"it ended with {status}"


@case
def attach_dispatched(scene):
    """System calls that come to the program itself: it would get ours."""
    with Odd(scene, "dispatch") as odd:
        for command in ("attach", "itrace"):
            got, _, err = scene.run(scene.contrail, command, "--for", "300ms", "-o", scene.path(command), str(odd.pid))
            assert got == 125 and "is under Syscall User Dispatch" in err, (command, got, err)
        status = odd.process.wait(60)
        assert status == 3, f"it ended with {status}"
    got, _, err = scene.run(scene.contrail, "itrace", "-o", scene.path("steps"), "--", scene.path("odd"), "dispatch")
    assert got == 3 and "Syscall User Dispatch" in err, (got, err)


@case
def attach_traced(scene):
    need("strace")
    with Odd(scene, "work") as odd:
        tracer = subprocess.Popen(["strace", "-o", "/dev/null", "-p", str(odd.pid)], stderr=subprocess.PIPE)
        tracer.stderr.readline()
        try:
            judge(odd.attach(), 125, words=["traced by process", str(tracer.pid)])
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=300)
        odd.attach_works(0.1)


@case
def attach_not_ours(scene):
    with Odd(scene, "work") as odd:
        judge(odd.attach(before=as_nobody(scene)), 125, words=["may not be traced"])


@case
def attach_no_place(scene):
    """The output cannot be: the process is not touched."""
    with Odd(scene, "work") as odd:
        os.mkdir(scene.path("out.trace"))
        scene.write("out.trace/file", b"mine")
        judge(odd.attach("--for", "100ms"), 125, words=["out.trace"])
        got = scene.run(scene.contrail, "attach", "--for", "100ms", "-o", scene.path("no/folder"), str(odd.pid))
        judge(got, 125, words=["no/folder"])
        if state_of(odd.pid) not in "SR" or os.listdir(scene.path("out.trace")) != ["file"]:
            raise AssertionError("the process or the folder was touched")


@case
def attach_bad_pattern(scene):
    with Odd(scene, "work") as odd:
        for pattern in ("@nothing:", ""):
            got, _, err = odd.attach("--for", "100ms", "--trace", pattern)
            if got not in (2, 125) or len(err.splitlines()) != 1:
                raise AssertionError(f"{pattern!r}: status {got}: {err}")
            if os.path.exists(scene.path("out.trace")):
                raise AssertionError(f"{pattern!r}: an output directory was left behind")


@case
def attach_at_its_end(scene):
    """It is killed at some moment while it is attached to: one line says so, or it was recorded up to there."""
    for turn in range(30):
        with Odd(scene, "work") as odd:
            attaching = subprocess.Popen([scene.contrail, "attach", "-o", scene.path("out.trace"), str(odd.pid)],
                                         stderr=subprocess.PIPE, text=True)
            time.sleep(turn * 0.002)
            odd.process.kill()
            error = attaching.communicate(timeout=300)[1]
            begun = "attached to" in error
            if attaching.returncode != (0 if begun else 125) or len(error.splitlines()) != 1 + begun:
                raise AssertionError(f"turn {turn}: status {attaching.returncode}: {error}")
            shutil.rmtree(scene.path("out.trace"), ignore_errors=True)


@case
def attach_at_its_end_exactly(scene):
    """The same where contrail stands between two steps (base/test_point.h)."""
    for point, begun in (("attach-planned", False), ("attach-stopped", False), ("attach-hooked", True), ("detach-stopped", True),
                         ("detach-resumed", True)):
        with Odd(scene, "work") as odd:
            attaching = subprocess.Popen([scene.contrail, "attach", "--for", "50ms", "-o", scene.path("out.trace"), str(odd.pid)],
                                         stderr=subprocess.PIPE, text=True, env=dict(os.environ, CONTRAIL_TEST_POINT=point))
            try:
                wait_for(point, lambda: state_of(attaching.pid) == "T" or attaching.poll() is not None)
                odd.process.kill()
                attaching.send_signal(signal.SIGCONT)
                error = attaching.communicate(timeout=300)[1]
            finally:
                attaching.kill()
            if attaching.returncode != (0 if begun else 125) or len(error.splitlines()) != 1 + begun:
                raise AssertionError(f"{point}: status {attaching.returncode}: {error}")
            shutil.rmtree(scene.path("out.trace"), ignore_errors=True)


@case
def killed_just_now(scene):
    """contrail is killed, and who cleans up, or attaches, does not wait until it has gone."""
    with Odd(scene, "work") as odd:
        for turn in range(20):
            with Running([scene.contrail, "attach", "-q", "-o", scene.path("out.trace"), str(odd.pid)]) as recorder:
                wait_for("its memory", lambda: os.path.exists(scene.path("out.trace")) and "memfd:contrail" in odd.maps())
                time.sleep(turn % 5 * 0.02)
                recorder.kill()
                if turn % 2:
                    got = scene.run(scene.contrail, "clean", str(odd.pid))
                else:
                    got = scene.run(scene.contrail, "attach", "--for", "20ms", "-o", scene.path("next.trace"), str(odd.pid))
                    shutil.rmtree(scene.path("next.trace"), ignore_errors=True)
            if got[0] != 0 or "memfd:contrail" in odd.maps():
                raise AssertionError(f"turn {turn}: {got}")
            shutil.rmtree(scene.path("out.trace"))


@case
def unwinder_comes_late(scene):
    """contrail is killed; then the program loads an unwinder, which nobody hooks, and exceptions pass hooked frames."""
    need("g++")
    scene.compile("attach/throws.cpp", "-O2", "-fPIC", "-shared", name="throws.so", compiler="g++")
    scene.compile("attach/hosts.c", "-O2", "-fexceptions")
    with Running([scene.path("hosts"), scene.path("throws.so")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as program:
        pid = int(program.stdout.readline())
        with Running([scene.contrail, "attach", "-o", scene.path("out.trace"), str(pid)],
                              stderr=subprocess.PIPE) as recorder:
            recorder.stderr.readline()
            recorder.kill()
        program.communicate(b"\n", timeout=60)
    if program.returncode != 3:
        raise AssertionError(f"it ended with {program.returncode}")


@case
def stack_copied_inline(scene):
    """A limit, as limits.md says: what copies its stack by an instruction of its own, and goes back by longjmp, breaks. If
    it does not any more, that is to be said there, and the fixture need not exclude anything."""
    scene.compile("fixtures/inlinecopies.c", "-O2", name="copies")
    judge(scene.run(scene.path("copies")), 0, "inlinecopies: all right\n", lines=0)
    before = ("timeout", "20")
    got, out, err = scene.record(scene.path("copies"), before=before)
    if got == 0:
        raise AssertionError(f"it is not broken: {out}{err}")


if __name__ == "__main__":
    main(__doc__, Scene)
