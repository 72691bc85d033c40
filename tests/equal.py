#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs of the system recorded by the instruction tracer, and the same once more by single steps under ptrace, along with the
recording: the same addresses, registers, flags, vector registers, loads, stores, what the kernel wrote, signals (tests/steps/follow.h).

    tests/equal.py                     a third of the short set, by lot, the first 50,000 steps of each: part of `make test`
    tests/equal.py --long              all of them, a million steps of each
    tests/equal.py --steps N           so many
    tests/equal.py --filter perl       those that match
"""
import os
import random
import re
import signal
import subprocess
import time

import harness
from harness import case, expect, main, need, wait_for

SECONDS = 900
SHORT, LONG = 50000, 1000000
TEXT = "/usr/share/common-licenses/GPL-3"

PERL = "my %h; $h{$_ % 977} .= chr(65 + $_ % 26) for 1 .. 3000; print join(',', map { \"$_=$h{$_}\" } keys %h), time() > 0, $$ > 0, rand(), qq(\\n)"
PYTHON = "import json, random; print(json.dumps({str(k): [k * 0.5, str(k)] for k in range(800)}), len({random.random(), hash('a')}))"
# In all of them: the environment LC_ALL=C and PATH, / as the folder, nothing to read, nothing that is looked at of what they print.
PROGRAMS = {
    "gzip": "gzip -c /etc/services",
    "sha256sum": f"sha256sum {TEXT}",
    "sqlite3": ("sqlite3", ":memory:", "create table t(a, b); insert into t select value, random() from generate_series(1, 3000);"
                "create index i on t(b); select count(*), sum(a * 1.5), max(b) from t where a % 7 < 5 order by b"),
    "openssl": f"openssl dgst -sha512 {TEXT}",
    "sort": f"sort -n {TEXT}",
    "sed": ("sed", "-n", "s/\\([a-z]*\\) \\(the\\)/\\2 \\1/gp", TEXT),
    "grep": ("grep", "-n", "-E", "(free|soft)[a-z]+ .*[ou]r", TEXT),
    "perl": ("perl", "-e", PERL),
    "python3": ("/usr/bin/python3", "-c", PYTHON),
    "bc": ("bc", "-l", "%folder/sums"),
    "xz": f"xz -c {TEXT}",
    "mawk": ("mawk", "{ n[$1] += length($0) / 3 } END { for (k in n) print k, n[k] }", TEXT),
    "jq": ("jq", "-n", "[range(3000) | {a: ., b: (. * 1.5 | tostring)}] | map(.b) | join(\",\")"),
    "tar": ("tar", "-cf", "-", "/usr/share/common-licenses", "/usr/share/common-licenses"),
    "bzip2": f"bzip2 -c {TEXT}",
    "zstd": f"zstd -c --single-thread -q {TEXT}",
    "cc1": ("%cc1", "-quiet", "-O2", "%folder/file.c", "-o", "/dev/null"),
    "objdump": ("objdump", "-d", "/usr/bin/gzip"),
    "lua": ("lua", "-e", "local t = {} for i = 1, 20000 do t[i] = math.sin(i) .. '' end table.sort(t) print(t[1], os.time() > 0)"),
    "bash": ("bash", "-c", "for ((i = 0; i < 3000; i++)); do a[i % 50]=$((i * RANDOM)); done; echo ${a[@]} $SECONDS"),
    "gawk": ("gawk", "{ n[substr($1, 1, 3)] += length($0) / 3; gsub(/[aeiou]+/, \"<&>\"); k = k $2 } END { for (i in n) print i, n[i]; print toupper(k) }", TEXT),
    "tclsh": ("tclsh", "%folder/lists.tcl"),
    "guile": ("guile", "--no-auto-compile", "-c", "(let loop ((i 0) (l '())) (if (< i 3000) (loop (+ i 1) (cons (* i 1.5 (sin i)) l)) (display (apply + (sort l <)))))"),
    "sox": ("sox", "-n", "-t", "wav", "-", "synth", "0.5", "pluck", "440", "reverb"),
    "flac": ("flac", "-s", "-c", "%folder/tone.wav"),
    "lame": ("lame", "--quiet", "%folder/tone.wav", "-"),
    "openssl_enc": ("openssl", "enc", "-aes-256-ctr", "-K", "0f" * 32, "-iv", "a5" * 16, "-in", TEXT),
    "gp": ("gp", "-q", "-f", "%folder/numbers.gp"),
    "swipl": ("swipl", "-q", "-g", "numlist(1, 3000, L), foldl([X, A, B]>>(B is A + X * 1.5), L, 0, S), print(S), nl", "-t", "halt"),
    "gforth": ("gforth", "-e", ": f dup 2 < if exit then dup 1- recurse swap 2 - recurse + ; 20 f . bye"),
    "ocaml": "%made/ocaml",
    "haskell": "%made/haskell",
    "rust": "%made/rust",
    "pdftotext": ("pdftotext", "%folder/page.pdf", "-"),
}
MADE = {  # programs of other languages' compilers: file, compiler, its options, text
    "ocaml": ("p.ml", "ocamlopt", ("-w", "-a", "-o"), """
module M = Map.Make(String)
let () =
  let m = ref M.empty in
  for i = 1 to 4000 do
    let k = string_of_int (i * 7919 mod 503) in
    m := M.update k (function None -> Some 1.5 | Some x -> Some (x *. 1.01)) !m
  done;
  M.iter (fun k v -> Printf.printf "%s=%.3f " k v) !m
"""),
    "haskell": ("p.hs", "ghc", ("-v0", "-O1", "-o"), """
import qualified Data.Map as M
main :: IO ()
main = print (M.foldr (+) 0 (M.fromListWith (+) [(i * 7919 `mod` 503, fromIntegral i * 1.5 :: Double) | i <- [1 .. 20000 :: Int]]))
"""),
    "rust": ("p.rs", "rustc", ("-O", "-o"), """
use std::collections::BTreeMap;
fn main() {
    let mut map: BTreeMap<String, f64> = BTreeMap::new();
    for i in 0u64..20000 {
        *map.entry(format!("{:x}", i * 7919 % 503)).or_insert(0.5) += (i as f64).sqrt();
    }
    let mut words: Vec<_> = map.iter().map(|(k, v)| format!("{k}={v:.3}")).collect();
    words.sort_by(|a, b| b.cmp(a));
    println!("{}", words.join(" "));
}
"""),
}
RANDOM = ("gzip", "sha256sum", "sqlite3", "openssl", "sort", "sed", "grep", "perl", "python3", "bc", "bzip2", "mawk")  # with signals, too
LOADS = {"sqlite3": LONG, "openssl": 4 * LONG, "openssl_enc": 4 * LONG, "guile": 3 * LONG, "lame": 3 * LONG, "sox": 3 * LONG, "lua": 3 * LONG, "pdftotext": 3 * LONG}  # steps until their libraries are there, and with them the handlers
SHORT_UNITS = ("gzip", "sqlite3", "python3")  # as they are before a recording has become long, too
CI = ("gzip", "sqlite3", "sort", "perl", "python3", "random_signals/sort", "short_units/gzip")


class Scene(harness.Scene):
    def __init__(self, options, folder, **_):
        super().__init__(options, folder)
        self.processes, self.recordings = [], 0
        self.stepped = os.path.join(options.build, "tests", "stepped")
        self.alike = {"env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, "cwd": "/", "stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.pinned = ("taskset", "-c", str(min(os.sched_getaffinity(0))), "setarch", "-R", self.stepped)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def recorded(self, words, during=None, status=0, short_units=False):
        """The file of the steps of a program that was held before its first instruction. during(pid): called when it has begun.
        Units go on where jumps and calls lead from the first instruction on, and where half of the branches lead, selected by lot;
        else they do so in long recordings only, and where branches went."""
        self.recordings += 1
        out = self.path(f"steps{self.recordings}")
        held = subprocess.Popen((*self.pinned, "hold", self.path("printed"), *words), stdout=subprocess.PIPE, **self.alike)
        self.processes.append(held)
        pid, slot, first = map(int, held.stdout.readline().split())
        try:
            environment = os.environ if short_units else {**os.environ, "CONTRAIL_TEST_LONG_RUN": "0", "CONTRAIL_TEST_TAKEN": "50"}
            with open(f"{out}.said", "wb") as said:
                recorder = subprocess.Popen((self.contrail, "itrace", "-q", "-o", out, str(pid)), env=environment, stderr=said)
            self.processes.append(recorder)
            file = os.path.join(out, f"steps.{pid}")
            wait_for("steps of the loop", lambda: os.path.exists(file) and os.path.getsize(file) > 4096)
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                os.pwrite(memory.fileno(), first.to_bytes(8, "little"), slot)
            if during:
                during(pid)
            ends = (held.wait(SECONDS), recorder.wait(SECONDS))
            expect(ends == (status, 0), f"the program and its recorder end with {ends}")
        finally:
            if held.poll() is None:
                os.kill(pid, signal.SIGKILL)
            held.stdout.close()
        return file

    def followed(self, file, words, steps):
        """The lines of what was compared, and a dictionary of their numbers."""
        result = subprocess.run((*self.pinned, "follow", str(steps), file, self.path("printed"), *words), stdout=subprocess.PIPE, text=True,
                                timeout=SECONDS, check=False, **self.alike)
        numbers = {name: int(number) for number, name in re.findall(r"(\d+) ([a-z ]+)", result.stdout)}
        return result.returncode, result.stdout, numbers

    def same(self, words, steps, least=None, **how):
        """Compares so many steps, or all that there are, if those are at least so many."""
        for _ in range(5):
            file = self.recorded(words, **how)
            with open(f"{os.path.dirname(file)}.said", encoding="utf-8") as said:
                text = said.read()
            if "ran on unrecorded" not in text:  # else the recorder got no processor for a second, and says so: that is no comparison
                break
        expect(not text, text)
        status, text, numbers = self.followed(file, words, steps)
        expect(status == 0 and numbers["steps"] >= (least or steps) and numbers["differ"] == 0 and numbers["inconsistent"] == 0, text)
        return "; ".join(text.splitlines()), numbers


def asked(scene):
    return scene.options.steps or (LONG if scene.options.long else SHORT)


def words_of(scene, name):
    words = PROGRAMS[name]
    words = list(words.split() if isinstance(words, str) else words)
    if words[0] == "%cc1":
        need("gcc")
        words[0] = scene.run("gcc", "-print-prog-name=cc1").strip()
    with open(scene.path("sums"), "w", encoding="ascii") as file:
        file.write("scale = 60\nx = 0\nfor (i = 1; i < 600; i++) { x += sqrt(i) / (i + 1) }\nx\ne(1.5)\na(1) * 4\nquit\n")
    with open(scene.path("file.c"), "w", encoding="ascii") as file:
        file.write("int f(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) { s += p[i] * 3 ^ i; } return s; }\n")
    with open(scene.path("lists.tcl"), "w", encoding="ascii") as file:
        file.write("for {set i 0} {$i < 3000} {incr i} { lappend l [expr {sin($i) * $i}]; dict incr d [expr {$i % 97}] $i }\n"
                   "puts [lsort -real $l]; puts $d; puts [regsub -all {[0-9]+} $l <&>]\n")
    with open(scene.path("numbers.gp"), "w", encoding="ascii") as file:
        file.write("print(sum(i = 1, 300, sqrt(i))); print(factor(2^101 - 1)); print(bernfrac(60)); quit\n")
    words = [word.replace("%folder", scene.folder) for word in words]
    if words[0].startswith("%made/"):
        file, compiler, options, text = MADE[words[0].removeprefix("%made/")]
        with open(scene.path(file), "w", encoding="ascii") as out:
            out.write(text)
        words[0] = scene.path("program")
        scene.run(need(compiler), *options, words[0], scene.path(file))
    if scene.path("tone.wav") in words:
        scene.run(need("sox"), "-n", "-R", scene.path("tone.wav"), "synth", "0.5", "sine", "300:3000")
    if scene.path("page.pdf") in words:
        with open(scene.path("page.ps"), "w", encoding="ascii") as file:
            file.write("/Times-Roman findfont 12 scalefont setfont\n" + "".join(f"72 {720 - 14 * i} moveto (Line {i} of {i * i}.) show\n" for i in range(45)) + "showpage\n")
        scene.run(need("ps2pdf"), scene.path("page.ps"), scene.path("page.pdf"))
    words[0] = need(words[0])
    need("setarch", "taskset")
    return words


def equal(scene, name, **how):
    """A program at the same addresses, by the recorder and by single steps."""
    words, steps = words_of(scene, name), asked(scene)
    text, _ = scene.same(words, steps, **how)
    return text


for program in PROGRAMS:
    case(program, program=program, some=("programs", 2) if program in CI else None)(lambda scene, program=program: equal(scene, program))
for program in SHORT_UNITS:
    case(f"short_units/{program}", program=program, some=("programs", 2) if f"short_units/{program}" in CI else None)(lambda scene, program=program: equal(scene, program, short_units=True))


@case(some=("signals", 1))
def raised_signals(scene):
    """Signals that a program sends to itself, and faults, at the very same instructions; handlers nested, on a stack of their own."""
    program = scene.compile("itrace/raises.c", "-O2", "-w", "-D_GNU_SOURCE")
    text, numbers = scene.same((program,), max(asked(scene), 230000))
    expect(numbers["signals"] > 60 and numbers["signals sent"] == 0 and numbers["with unknown registers"] == 0, text)
    return text


@case(some=("signals", 1))
def recent(scene):
    """Instructions that few processors have, and the signals of those that this one has not."""
    program = scene.compile("itrace/recent.c", "-O2", "-w", "-D_GNU_SOURCE")
    text, numbers = scene.same((program, "stepped"), LONG, least=200000)
    expect(numbers["signals"] > 15 and numbers["signals sent"] == 0 and numbers["with unknown vector registers"] == 0, text)
    return text


@case(some=("signals", 1))
def apart(scene):
    """Instructions that have no record of their own: flags that are popped, registers that are restored, far returns."""
    program, texts = scene.compile("itrace/apart.c", "-O1", "-w", "-D_GNU_SOURCE"), []
    for name in ("popf", "restores", "far", "faults"):
        text, numbers = scene.same((program, name, "100"), LONG, least=90000)
        expect(numbers["with unknown registers"] == 0, f"{name}: {text}")
        texts.append(f"{name}: {numbers['steps']} steps, {numbers['signals']} signals")
    return "; ".join(texts)


@case(some=("signals", 1))
def timers_and_faults(scene):
    """A timer's signals, wherever they came; the handler may be left by siglongjmp."""
    program = scene.compile("steps/signals.c", "-O2", "-w")
    text, numbers = scene.same((program,), 10 * LONG, least=20000, status=3)
    expect(numbers["signals sent"] > 0 and numbers["signals"] > numbers["signals sent"], text)
    return text


@case
def restored_vectors(scene):
    """Signals while a thread waits for the tracer to record what xrstor has changed: not the cleared registers of the handler."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        if not re.search(r"^flags.* xsave ", file.read(), re.MULTILINE):
            raise harness.Skip("xsave")
    text, numbers = scene.same((scene.compile("steps/restored.c", "-O2", "-w"),), LONG, least=30000)
    expect(numbers["signals sent"] > 3 and "the program has ended" in text, text)
    return text


@case(some=("signals", 1))
def interrupted_calls(scene):
    """System calls that a signal interrupts: what fails is a step with its result, before the signal; what is made again is not there yet."""
    program = scene.compile("steps/interrupted.c", "-O2", "-w")
    text, numbers = scene.same((program,), LONG, least=3000)
    expect(numbers["signals sent"] >= 100 and "the program has ended" in text, text)
    return text


def signals_at_random(scene, name, steps):
    """A program into which signals come from outside, at any instruction; all steps of the handlers are compared, too."""
    words = words_of(scene, name)
    scene.alike["env"]["STEPPED_PRELOAD"] = scene.compile("itrace/handlers.c", "-O2", "-w", "-shared", "-fPIC", "-mno-red-zone", name="handlers.so")
    chance = random.Random(scene.options.seed)

    def caught(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return int(re.search(r"SigCgt:\s*(\w+)", file.read())[1], 16) >> (signal.SIGUSR1 - 1) & 1

    def during(pid):
        try:
            wait_for("the handlers", lambda: caught(pid))
            for _ in range(2000):
                os.kill(pid, signal.SIGUSR1)
                time.sleep(chance.random() * 0.0004)
        except (FileNotFoundError, ProcessLookupError, TypeError):
            pass  # it has ended

    text, numbers = scene.same(words, max(steps, scene.rounds(150000, 300000)) + LOADS.get(name, 0), during=during)
    expect(numbers["signals sent"] > 0, text)
    return text


def timers_at_random(scene, name, steps):
    """A program whose own timer (ITIMER_REAL) goes off again and again, at times by lot."""
    words = words_of(scene, name)
    scene.alike["env"]["STEPPED_PRELOAD"] = scene.compile("itrace/timers.c", "-O2", "-w", "-shared", "-fPIC", "-mno-red-zone", name="timers.so")
    text, numbers = scene.same(words, max(steps, scene.rounds(150000, 300000)) + LOADS.get(name, 0))
    expect(numbers["signals sent"] > 0, text)
    return text


for program in sorted(set(PROGRAMS) - {"sort", "gp", "swipl", "gforth"}):  # they set handlers of their own; gforth's, left by a jump, may fault for ever, untraced too
    case(f"random_timers/{program}", program=program)(lambda scene, program=program: timers_at_random(scene, program, asked(scene)))
for program in RANDOM:
    case(f"random_signals/{program}", program=program, some=("signals", 1) if f"random_signals/{program}" in CI else None)(lambda scene, program=program: signals_at_random(scene, program, asked(scene)))


@case(some=("signals", 1))
def own_handlers(scene):
    """A shell's own handlers of signals that it sends to itself."""
    words = (need("dash"), "-c", "trap 'n=$((n + 1))' USR1; trap ': $((m += 3))' WINCH; i=0; while [ $i -lt 1000 ]; do kill -USR1 $$;"
             " kill -WINCH $$; i=$((i + 1)); done; echo $n $m")
    text, numbers = scene.same(words, max(asked(scene), scene.rounds(6, 8) * SHORT))
    expect(numbers["signals"] > scene.rounds(4, 10) and numbers["signals sent"] == 0, text)
    return text


@case
def differences_are_seen(scene):
    """The same program on something else: not the same steps."""
    words = (need("sha256sum"), "/etc/services")
    file = scene.recorded(words)
    for other in random.sample(((words[0], "/etc/protocol"), (words[0], "/etc/passwd--")), scene.rounds(1, 2)):
        status, text, numbers = scene.followed(file, other, scene.rounds(5 * SHORT, LONG))
        expect(status == 1 and numbers["differ"] > 0, text)


def arguments(parser):
    parser.add_argument("--steps", type=int, help="of each program")
    parser.add_argument("--seed", type=int, default=15, help="of when signals come")


def choose(cases, options):
    return [one for one in cases if options.long or options.filter or one.name in CI or not one.keywords]


if __name__ == "__main__":
    harness.patient_threads()
    main(__doc__, Scene, arguments, choose)
