#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gdb over recorded instructions (src/debug): from a crash back to the store that caused it, breakpoints and watchpoints both ways,
what gdb is shown against what it shows of the program itself; and what is no protocol."""
import os
import random
import re
import socket
import subprocess

import harness
from harness import Running, Skip, case, expect, main, need, wait_for

SECONDS = 300
CRASHES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct item { char name[24]; struct item *next; long value; };
static struct item *head;
static void add(const char *name, long value)
{
  struct item *i = calloc(1, sizeof *i);
  strncpy(i->name, name, 23);
  i->value = value;
  i->next = head;
  head = i;
}
static void spoil(struct item *i)
{
  long *p = (long *)(void *)i;
  p[3] = 0x41; /* the culprit */
}
static long sum(void)
{
  long s = 0;
  for (struct item *i = head; i; i = i->next)
    s += i->value; /* the crash */
  return s;
}
int main(int c, char **v)
{
  char text[32];
  for (int k = 0; k < 50; k++) {
    snprintf(text, sizeof text, "item %d", k);
    add(text, k);
  }
  printf("%ld\n", sum());
  if (c > 1) return (int)sum() % 100;
  spoil(head->next->next);
  for (int k = 0; k < 300; k++)
    snprintf(text, sizeof text, "more %d", k);
  printf("%ld\n", sum());
  return 0;
}
"""

HALF = r"""
#include <stdlib.h>
#include <unistd.h>
static const char *const words[] = {"alpha", "beta", "gamma"};
static char *area, buffer[64];
static void stop(void) { __asm__ volatile(""); }
int main(int c, char **v)
{
  int fds[2];
  area = malloc(100000);
  for (int k = 0; k < 100000; k += 64)
    area[k] = (char)(k / 64 % 10); /* 63 bytes in between are never touched */
  for (int k = 0; k < 8; k++)
    area[70001 + k] = "needle!\n"[k];
  if (pipe(fds) != 0 || write(fds[1], "from the kernel", 15) != 15) return 1;
  buffer[0] = words[c][0];
  if (read(fds[0], buffer, sizeof buffer) != 15) return 2;
  stop();
  return 7;
}
"""


WIDE = r"""
#include <stdlib.h>
#include <string.h>
static char *area;
static void stop(void) { __asm__ volatile(""); }
int main(void)
{
  static const int at[] = {4093, 1 << 20, (16 << 20) + 4090, (16 << 20) + 8189, (20 << 20) - 5};
  area = aligned_alloc(4096, 20 << 20);
  for (int k = 0; k < 5; k++)
    for (int i = 0; i < 5; i++)
      area[at[k] + i] = "hello"[i];
  for (int k = 0; k < 2000; k++)
    area[(2 << 20) + 4096 * k] = (char)k; /* one known byte in each page */
  area[(1 << 20) - 1] = 'h'; /* before the second one */
  stop();
  return 7;
}
""", (4093, 1 << 20, (16 << 20) + 4090, (16 << 20) + 8189, (20 << 20) - 5)


class Scene(harness.Scene):
    GROUP = "debug"

    def recorded(self, *arguments, is_own=False):
        """A folder with the steps of the program above, which the first case that wants them makes for all; the line numbers of what
        matters in it. Those who ask write an index there: who wants to be without has steps of its own."""
        need("gdb", "setarch")
        self.lines = {text: number for number, line in enumerate(CRASHES.split("\n"), 1) for text in ("the culprit", "the crash") if text in line}
        place = self.folder if is_own else self.options.top
        self.program, folder = os.path.join(place, "crashes"), os.path.join(place, "steps" + "".join(arguments))
        if os.path.exists(folder):
            return folder
        self.compile(self.write("crashes.c", CRASHES), "-O1", "-g", "-fno-inline", name=self.program)
        done = self.execute(self.contrail, "itrace", "-q", "-o", folder, "--", self.program, *arguments, timeout=SECONDS)
        expect(done.returncode == (139 if not arguments else 25), f"{done}")
        return folder

    def gdb(self, folder, *commands):
        """What gdb says to these commands."""
        words = [word for command in commands for word in ("-x", command)]
        done = self.execute(self.contrail, "debug", *words, folder, timeout=SECONDS)
        expect("Remote communication error" not in done.stderr and "warning" not in done.stderr, done.stderr)
        return done.stdout


@case(some=("dear", 2))
def back_to_the_store(scene):
    """A pointer is overwritten long before the crash: a watchpoint and reverse-continue come to the very line."""
    folder = scene.recorded()
    said = scene.gdb(folder, "bt", "print *i", "print i", "watch -l head->next->next->next", "reverse-continue", "bt", "reverse-stepi", "info sharedlibrary",
                     "info threads")
    culprit, crash = scene.lines["the culprit"], scene.lines["the crash"]
    expect(f"sum () at" in said and f"crashes.c:{crash}" in said and "#1 " in said and "main" in said, said)
    expect("Old value = (struct item *) 0x41" in said and f"crashes.c:{culprit}" in said and "spoil (i=0x" in said, said)
    expect("libc.so" in said and "ld-linux" in said and "* 1    Thread" in said, said)
    expect("Cannot access memory" not in said, said)


SMASH = r"""
#include <stdio.h>
#include <stdlib.h>
static void put(char *to, int n) { for (int i = 0; i < n; i++) to[i] = (char)('a' + i); /* the culprit */ }
static int fill(int n)
{
  char text[16];
  put(text, n);
  return text[n % 16];
} /* the crash */
static void next(int n) { printf("%d\n", n); }
struct table { void (*call)(int); } table = {next};
static void called(int n)
{
  put((char *)&table, n % 2 * 8);
  table.call(n); /* the call */
}
int main(int c, char **v)
{
  (c > 1 ? (void (*)(int))called : (void (*)(int))(void *)fill)(8);
  (c > 1 ? (void (*)(int))called : (void (*)(int))(void *)fill)(61);
  return 0;
}
"""


@case
def smashed_addresses(scene):
    """A return address, and a pointer to a function, that were overwritten by text: gdb stands at the return, or the call, with its frame, as the
    processor does, which faults there; reverse-continue leads to the store."""
    need("gdb")
    line = {text: number for number, at in enumerate(SMASH.split("\n"), 1) for text in ("the culprit", "the crash", "the call") if text in at}
    program = scene.compile(scene.write("smash.c", SMASH), "-O1", "-g", "-fno-inline", "-fno-stack-protector", "-U_FORTIFY_SOURCE")
    for arguments, function, place, commands in (((), "fill", "the crash", ("watch -l *(long *)$rsp", "reverse-continue")),
                                                 (("call",), "called", "the call", ("watch -l table.call", "reverse-continue"))):
        folder = scene.path(f"smashed{len(arguments)}")
        done = scene.execute(scene.contrail, "itrace", "-q", "-o", folder, "--", program, *arguments, timeout=SECONDS)
        expect(done.returncode == 139, f"{done}")
        said = scene.gdb(folder, "bt 1", "x/i $pc", *commands, "bt")
        expect(f"{function} (n=" in said and f"smash.c:{line[place]}" in said and ("ret" if not arguments else "call") in said, said)
        expect(f"put (to=" in said and f"smash.c:{line['the culprit']}" in said, said)


@case(some=("dear", 2))
def forwards_and_backwards(scene):
    """Each hit of a breakpoint, in both directions; steps there and back; the two ends."""
    folder = scene.recorded()
    said = scene.gdb(folder, "break add", "ignore 1 1000", "reverse-continue", "info breakpoints", "continue", "info breakpoints")
    hits = [int(number) for number in re.findall(r"already hit (\d+) times", said)]
    expect(hits == [50, 100], f"{hits}: {said}")
    expect("No more reverse-execution history" in said and "SIGSEGV" in said, said)
    said = scene.gdb(folder, "break spoil", "reverse-continue", "print $rsp", "stepi 20", "reverse-stepi 20", "print $rsp", "finish", "reverse-finish", "print text[5]", "print text[6]")
    stacks = re.findall(r"\$\d+ = \(void \*\) (0x\w+)", said)
    expect(len(stacks) == 2 and stacks[0] == stacks[1] and "52 '4'" in said and "57 '9'" in said, said)


@case
def as_the_program_itself(scene):
    """Registers, arguments and memory at the 30th call of a function: as gdb shows them of the program when it runs. Its stack lies elsewhere."""
    folder = scene.recorded("x")
    ask = ["print name", "print value", "print *head", "print head->next->name", "info registers rsi rdx rip", "bt", "x/8i $pc", "finish", "print $eflags"]
    native = subprocess.run(["gdb", "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", *[word for command in ("break add", "ignore 1 29", "run", *ask) for word in ("-ex", command)],
                             "--args", scene.program, "x"], capture_output=True, text=True, timeout=SECONDS).stdout

    def values(said):
        """What does not depend on where the program lies."""
        found = re.findall(r'"(item \d+)\\?|^\$\d+ = (\d+)$|value = (\d+)|^rsi\s+(0x\w+)|=> .*<(\w+)>|^#(\d) .* in (\w+)|(\[[ A-Z]+\])', said, re.M)
        return ["".join(each) for each in found if "".join(each)]
    # The recording stands at the end: back to its begin, and 29 are passed on the way forward again.
    own = [text for text in values(native) if text.startswith("item")]
    expect(len(own) >= 3, f"{own}")
    at_thirty = scene.gdb(folder, "break main", "reverse-continue", "reverse-continue", "delete", "break add", "ignore 2 29", "continue", *ask)
    expect(values(at_thirty)[:8] == values(native)[:8], f"{values(at_thirty)}\nby itself {values(native)}\n{at_thirty}")


@case(some=("dear", 2))
def known_in_part(scene):
    """find passes over what is not known, and says so; a system call's write is met from right behind it; what the loader relocates is
    not taken from the file."""
    need("gdb")
    program = scene.compile(scene.write("half.c", HALF), "-O0", "-g", "-fPIE", "-pie", name="half")
    folder = scene.path("half.steps")
    done = scene.execute(scene.contrail, "itrace", "-q", "-o", folder, "--", program, timeout=SECONDS)
    expect(done.returncode == 7, f"{done}")
    expect("the thread exited, status 7" in scene.run(scene.contrail, "steps", folder)[-2000:], "how it ended")
    words = [word for command in ("break stop", "reverse-continue", "delete", "print words[1]", "print words[2]",
                                  "find /b area, +100000, 'n', 'e', 'e', 'd', 'l'", "print (long)$_ - (long)area", "find /b area, +100000, 'n', 'e', 'x'", "print buffer[0]@15",
                                  "reverse-finish", "watch buffer[0]", "reverse-continue", "print buffer[0]")
             for word in ("-x", command)]
    done = scene.execute(scene.contrail, "debug", *words, folder, timeout=SECONDS)
    said = done.stdout
    expect('$1 = 0x' in said and '"beta"' in said, f"relocated: {said} {done.stderr}")
    expect("1 pattern found" in said and "= 70001" in said and "Pattern not found" in said, f"find: {said} {done.stderr}")
    unknown = re.findall(r"find: (\d+) of these bytes are not known", done.stderr)
    expect(len(unknown) == 2 and all(95000 < int(number) < 99000 for number in unknown), f"{done.stderr}")
    expect("from the kernel" in said and "Hardware watchpoint" in said and "New value = 98 'b'" in said, f"{said}")


@case(some=("dear", 2))
def find_in_megabytes(scene):
    """Matches over the ends of pages and of what is looked at at once, each once, and the last bytes of the range."""
    need("gdb")
    source, places = WIDE
    program = scene.compile(scene.write("wide.c", source), "-O0", "-g", "-fno-builtin", name="wide")
    folder = scene.path("wide.steps")
    done = scene.execute(scene.contrail, "itrace", "-q", "-o", folder, "--", program, timeout=SECONDS)
    expect(done.returncode == 7, f"{done}")
    words = [word for command in ("break stop", "reverse-continue", "print area", "find /b area, +20971520, 'h', 'e', 'l', 'l', 'o'", "find /b area, +20971519, 'l', 'o'",
                                  "find /b area + 1, +20971519, 'h', 'i'")
             for word in ("-x", command)]
    done = scene.execute(scene.contrail, "debug", *words, folder, timeout=SECONDS)
    base = int(re.search(r"\$1 = (0x\w+)", done.stdout).group(1), 16)
    found = [int(text, 16) - base for text in re.findall(r"^(0x\w+)", done.stdout, re.M)]
    expect(found == [*places, *[place + 3 for place in places[:-1]]], f"{found} {done}")
    expect("Pattern not found" in done.stdout, f"{done}")
    # 25 bytes of the words, one more, 2000; not those behind the last place where the pattern may begin.
    unknown = [int(number) for number in re.findall(r"find: (\d+) of these", done.stderr)]
    expect(unknown == [20971516 - 2022, 20971518 - 2024, 20971518 - 2025], f"{unknown}")


def read_packet(peer):
    data = b""
    while not re.search(rb"\$[^#]*#..", data):
        more = peer.recv(65536)
        if not more:
            return None
        data += more
    return re.search(rb"\$([^#]*)#..", data).group(1)


def packet(text):
    return b"$" + text + b"#%02x" % (sum(text) % 256)


@case(some=("dear", 2))
def no_protocol(scene):
    """Packets that are none, too long, unknown, or with numbers that are none: it answers or ends, and never crashes."""
    folder, chance = scene.recorded(), random.Random(11)
    words = [b"?", b"g", b"p0", b"pffffffffffff", b"m0,8", b"mffffffffffffffff,ffffffffffffffff", b"m", b"Z0,0", b"Z0,0,0", b"Z9,1,1", b"z2,7,7", b"Z2,0,ffffffffffffffff",
             b"bs", b"bc", b"s", b"c", b"vCont;s", b"vCont;c", b"qXfer:features:read:target.xml:0,fff", b"qXfer:auxv:read::fffffffffff,1", b"qXfer:::::", b"qXfer:a:read",
             b"vFile:open:2f,0,0", b"vFile:open:2f6574632f686f7374,0,0", b"vFile:pread:1,ffffffff,ffffffffffffffff", b"vFile:pread:99,1,1", b"vFile:close:0", b"vFile:fstat:1", b"qSupported",
             b"M0,1:00", b"P0=00", b"X0,0:", b"H", b"T1", b"!", b"", b"\x01\x02", b"q", b"v", b"Z", b"b", b"Z1,,", b"m1,1,1,1"]
    for turn in range(scene.rounds(10, 30)):
        ours, theirs = socket.socketpair()
        server = subprocess.Popen([scene.contrail, "debug", "--stdio", folder], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        theirs.close()
        ours.settimeout(20)
        try:
            for _ in range(40):
                word = chance.choice(words)
                if chance.random() < 0.2:
                    word = bytes(chance.choice(b"0123456789abcdef,:;") if chance.random() < 0.3 else c for c in word)
                if chance.random() < 0.1:
                    ours.sendall(b"$" + word + b"#00" + bytes([3]) * (turn % 2) + b"-" + chance.randbytes(5).replace(b"$", b"") + b"+")
                    continue
                ours.sendall(packet(word) + b"+")
                read_packet(ours)
        except (OSError, TimeoutError):
            pass
        ours.sendall(packet(b"x" * 0x5000)) if server.poll() is None else None
        ours.close()
        err = server.communicate(timeout=SECONDS)[1]
        expect(server.returncode == 0 and err == b"", f"turn {turn}: {server.returncode} {err[-300:]}")


@case
def over_a_port(scene):
    """--listen: gdb by itself, which finds program and libraries by what it is told; and wrong usage."""
    folder = scene.recorded()
    server = subprocess.Popen([scene.contrail, "debug", "--listen", "0", folder], stderr=subprocess.PIPE, text=True)
    port = re.search(r"target remote :(\d+)", server.stderr.readline()).group(1)
    done = scene.execute("gdb", "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", f"target remote :{port}", "-ex", "bt", "-ex", "info sharedlibrary", timeout=SECONDS)
    expect("sum ()" in done.stdout and "libc.so" in done.stdout, f"{done}")
    expect(server.wait(SECONDS) == 0, f"status {server.returncode}")
    for words, status in ((("--listen", "port", folder), 2), (("--step", "x", folder), 2), (("--step", "99999999999", folder), 1), (("--thread", "1", folder), 1), ((scene.path("none"),), 1),
                          (("--stdio", "--listen", "0", folder), 2)):
        wrong = scene.execute(scene.contrail, "debug", *words)
        expect(wrong.returncode == status and wrong.stderr.count("\n") in (1, 2), f"{words}: {wrong}")


@case
def over_a_port_of_others(scene):
    """--listen: who connects can have files read, so another user is turned away; whose recording it is comes after him."""
    if os.geteuid() != 0:
        raise Skip("needs root, to be somebody else")
    ask = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.settimeout(60)
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    sys.stdout.write(repr(s.recv(100)))
except OSError as error:
    sys.stdout.write(repr(error))
"""
    folder, question = scene.recorded(), packet(b"vFile:open:" + b"/etc/shadow".hex().encode() + b",0,0")
    with Running([scene.contrail, "debug", "--listen", "0", folder], stderr=subprocess.PIPE, text=True) as server:
        port = re.search(r"target remote :(\d+)", server.stderr.readline()).group(1)
        other = scene.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", ask, port, question.hex())
        expect("F1" not in other and (other == "b''" or "Error" in other), f"another user was answered: {other}")
        expect("another user" in server.stderr.readline(), "it is not said")
        own = scene.run("/usr/bin/python3", "-c", ask, port, question.hex())
        expect(own.startswith("b'+"), f"{own}")
        expect(server.wait(SECONDS) == 0, f"status {server.returncode}")


@case
def interrupted_search(scene):
    """Ctrl-C in gdb's find ends it at the next block; what was not read then is no damage, and is read afterwards."""
    folder = scene.recorded(is_own=True)
    ours, theirs = socket.socketpair()
    server = subprocess.Popen([scene.contrail, "debug", "--stdio", folder], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=dict(os.environ, CONTRAIL_TEST_DEBUG_ANSWER_MS="700"))
    theirs.close()
    ours.settimeout(SECONDS)

    def ask(text, then=b""):
        ours.sendall(packet(text) + then)
        return read_packet(ours)
    expect(ask(b"QStartNoAckMode") == b"OK", "no acks")
    ours.sendall(b"+")
    stack = int.from_bytes(bytes.fromhex(ask(b"p7").decode()), "little")
    search = b"qSearch:memory:%x;2000;zqzqzq" % (stack - 0x100)
    expect(ask(search, b"\x03") == b"E01", "interrupted")
    expect(ask(search) == b"0", "it is searched afterwards")
    known = ask(b"m%x,8" % (stack - 8))
    expect(known is not None and len(known) == 16, f"{known}")
    ours.sendall(packet(b"k"))
    err = server.communicate(timeout=SECONDS)[1].decode()
    expect(server.returncode == 0 and "DAMAGED" not in err, f"{server.returncode} {err}")
    ours.close()


@case(some=("dear", 2))
def slow_answers(scene):
    """An answer that takes longer than gdb waits without a word: opening the recording, and a search."""
    folder = scene.recorded()
    server = f"target remote | CONTRAIL_TEST_DEBUG_ANSWER_MS=4500 exec {scene.contrail} debug --stdio {folder}"
    done = scene.execute("gdb", "-q", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set remotetimeout 1", "-ex", server, "-ex", "bt",
                         "-ex", "find /b &head, +8, 0xee, 0xee", "-ex", "print head->value", "-ex", "break spoil", "-ex", "reverse-continue", timeout=SECONDS)
    expect("sum ()" in done.stdout and "Pattern not found" in done.stdout and "spoil (i=0x" in done.stdout, f"{done}")
    expect("packet error" not in done.stdout + done.stderr and "Timed out" not in done.stdout + done.stderr, f"{done}")


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene)
