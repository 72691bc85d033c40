#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: its tools on real programs while they run, pages, errors that change nothing, what is allowed.

    tests/mcptools.py [--filter PATTERN] [--build DIR]
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from harness import Running, Skip, case, expect, main, need_root, wait_for
from mcp import HANG, NOISY, STEPS, TICKS, VERSIONS, Client, Scene, has_patches, tokens_of
from processes import all_stopped

ENDLESS = r"""
#include <unistd.h>
#ifndef REST_US
#define REST_US 100
#endif
__attribute__((noinline)) int leaf(volatile int *x) { return (*x)++; }
__attribute__((noinline)) int work(volatile int *x) { int s = 0; for (int i = 0; i < 20; i++) s += leaf(x); return s; }
int main(void) { volatile int x = 0; for (;;) { work(&x); usleep(REST_US); } }
"""


# ---- the tools ----

@case
def said(scene):
    """A pattern that chose nothing is reported after the end too; a number beyond those of processes is none, and no query makes a value of gigabytes."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    ended = client.tool("launch", program=steps, patterns=["parse", "prase"], wait_s=60)
    expect(ended["state"] == "done" and any("'prase' matched no function" in one for one in ended["uncertain"]), str(ended))
    expect(not any("'parse'" in one for one in ended["uncertain"]), str(ended))
    for number in (2**32 + client.server.pid, str(2**32 + client.server.pid), 2**40, -5, "99999999999999999999"):
        expect(f"no process {number}" in client.refused("attach", process=number), f"attach to {number}")
    expect("too big" in client.refused("query", sql="SELECT length(replace(hex(zeroblob(30000000)), '00', 'abcdefgh'))"), "a value of 240 MB")
    expect(client.tool("query", sql="SELECT length(printf('%.*c', 9000000, 'x'))")["rows"] == [[9000000]], "one of 9 MB")


@case
def whole(scene):
    """Launch, add patterns while it runs, ask while it runs, mark, pause, stop, ask."""
    client, ticks = Client(scene), scene.own(TICKS, "ticks")
    first = client.tool("launch", program=ticks, patterns=[])
    session = first["session"]
    expect(first["hooked"] == 0 and any("trace action=add" in one for one in first["next"]), str(first))
    tried = client.tool("trace", action="try", patterns=["spin", "tik"])
    expect([p["matched"] for p in tried["patterns"]] == [1, 0] and tried["patterns"][1]["likely"] == "perhaps tick", str(tried))
    added = client.tool("trace", action="add", patterns=["spin", "tik"])
    expect(added["hooked"] == 1 and added["unmatched"] == ["tik"] and "tick" in added["uncertain"][0], str(added))
    count = "SELECT name, calls FROM functions WHERE name IN ('spin', 'tick')"
    seen = wait_for("calls of spin", lambda: [r for r in client.tool("query", sql=count)["rows"] if r == ["spin", r[1]] and r[1] > 10])
    live = client.tool("query", sql=count)
    expect(any("goes on" in one for one in live["uncertain"]), str(live))
    expect(client.tool("trace", action="add", patterns=["tick"])["hooked"] == 2, "tick was not hooked")
    client.tool("trace", action="mark", name="here")
    wait_for("calls of tick", lambda: dict(client.tool("query", sql=count)["rows"]).get("tick", 0) > 5)
    expect(client.tool("session", action="pause")["state"] == "paused", "pause")

    def stands_still():
        before = client.tool("session", action="status")["events"]
        time.sleep(0.3)  # a duration in which nothing may come
        return client.tool("session", action="status")["events"] == before
    wait_for("what was in the ring to be out, and nothing more to come", stands_still)
    client.tool("session", action="resume")
    expect(any("spin" in line for line in client.tool("analyze", view="threads")["lines"]), "threads")
    stopped = client.tool("session", action="stop")
    expect(stopped["state"] == "done" and "signal 15" in stopped["end"], str(stopped))
    done = client.tool("query", sql=count, trace=session)
    expect(dict(done["rows"])["spin"] >= seen[0][1] and not any("goes on" in one for one in done["uncertain"]), str(done))
    expect(client.tool("query", trace=session, sql="SELECT reason FROM windows")["rows"] == [["here"]] or
           client.tool("query", trace=session, sql="SELECT marks FROM windows")["rows"] == [[1]], "the mark")
    expect("at 0" in client.tool("query", trace=session, sql="SELECT text FROM output LIMIT 1")["rows"][0][0], "output")
    expect("at 0" in client.ask("resources/read", uri=f"contrail://{session}/stdout")["result"]["contents"][0]["text"], "stdout")
    expect("spin" in "".join(client.tool("query", filter={"function": "spin"}, limit=3, trace=session)["lines"]), "replay")
    expect(client.end() == 0 and not scene.left(), str(scene.left()))
    return f"{client.calls} calls"


@case
def goes_on(scene):
    """A view of a recording that goes on is of the moment when it was asked: it comes to an end, and both its passes say the same."""
    client = Client(scene)
    # What is asked of main is all that has been recorded: on a busy machine that grows faster than it is read.
    directory = client.tool("launch", program=scene.own(ENDLESS, "endless", "-DREST_US=2000"), patterns=["main", "work", "leaf"])["directory"]
    wait_for("calls", lambda: client.tool("query", sql="SELECT calls FROM functions WHERE name = 'work'")["rows"] > [[300]])
    expect("reason: returned" in client.tool("analyze", view="slowest", count=1)["next"][0], "main hides the others")
    lines = client.tool("analyze", view="slowest", count=1, filter={"function": "main"})["lines"]
    for text in ("\n".join(lines), *(scene.run(scene.contrail, "slowest", "-n", "1", "main", directory) for _ in range(6))):
        head, tree = re.search(r"1: main +(\S+ \w+),", text), re.search(r"0 ns +(\S+ \w+) .*main\(\)  -- still open", text)
        expect(head and tree and head[1] == tree[1], text)
    client.tool("session", action="stop")


@case
def untimed(scene):
    """Where calls have no times an answer says so, and why: patterns with many matches, and programs whose runtime looks at return addresses."""
    client = Client(scene)
    many = "".join(f"__attribute__((noinline)) int many{i}(int x) {{ volatile int y = x; return y + {i}; }}\n" for i in range(15))
    main_ = "int main(void) { int s = 0; for (int i = 0; i < 1000; i++) { s += many3(i); } return s == 1; }\n"
    plain, collected = scene.own(many + main_, "plain"), scene.own("long caml_frametable[2];\n" + many + main_, "collected")
    for program, arguments, words in ((plain, {"patterns": ["plain!**"]}, ("'plain!**'", "mode: full")), (plain, {"patterns": ["plain!*"]}, ()),
                                      (plain, {"patterns": ["plain!**"], "mode": "full"}, ()), (collected, {}, ("collected", "no returns", "return addresses"))):
        answers = [client.tool("launch", program=program, wait_s=60, **arguments), client.tool("analyze", view="slowest"),
                   client.tool("analyze", view="report"), client.tool("query", sql="SELECT name, total FROM functions WHERE name = 'many3'")]
        expect((answers[3]["rows"] == [["many3", None]]) == bool(words), str(answers[3]))
        for answer in answers:
            said_so = [one for one in answer["uncertain"] if "no returns" in one]
            expect(len(said_so) == bool(words) and all(word in str(said_so) for word in words), f"{arguments}: {answer['uncertain']}")
    client.tool("launch", program=scene.own(ENDLESS, "endless"), patterns=["work"])
    wait_for("calls", lambda: client.tool("query", sql="SELECT calls FROM functions WHERE name = 'work'")["rows"] > [[3]])  # libraries are there
    added = client.tool("trace", action="add", patterns=["libc*!str**"])
    expect(any("'libc*!str**'" in one and "mode: full" in one for one in added["uncertain"]), str(added["uncertain"]))


@case
def hung_before(scene):
    """A process that hung when it was attached to: its calls began before, which is said, and what each thread waits in is shown."""
    process = scene.start(scene.own(HANG, "hangs"))

    def waits():
        found = []
        for tid in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{tid}/syscall", encoding="ascii") as file:
                words = file.read().split()
            found += [f"{tid}  futex({words[1]}, ...)"] if words[0] == "202" else []
        return len(found) == 2 and sorted(found)
    need_root()
    found = wait_for("both threads to wait", waits)
    client = Client(scene)
    client.tool("attach", process=process.pid)
    threads = client.tool("analyze", view="threads")
    expect(sorted(line.strip() for line in threads["lines"] if "futex" in line) == found, f"{threads} for {found}")
    expect("before the attach" in threads["uncertain"][0] and any("gdb" in one for one in threads["next"]), str(threads))
    rows = client.tool("query", sql="SELECT * FROM open_frames")
    expect(rows["rows"] == [] and "damaged" not in str(rows["uncertain"]), str(rows))
    for sql, words in (("SELECT 1; SELECT 2", "one statement"), ("SELECT 1; -- one\nSELECT 2", "one statement"), ("SELECT 1; /* */ SELEC", "one statement"),
                       ("SELECT 'a;' AS b FROM; SELECT 2", "syntax error"), ("ATTACH '/tmp/x' AS x", "only reads"), ("VACUUM INTO '/tmp/x'", "only reads")):
        expect(words in client.refused("query", sql=sql), sql)
    for sql in ("SELECT 1;", "SELECT 1; -- done", "SELECT ';' || 1 ;;", "SELECT 1 /* ; */", "; -- here;\nSELECT 1; /* ; */ ;-- there"):
        expect(client.tool("query", sql=sql)["shown"] == 1, sql)
    expect(client.end() == 0 and process.poll() is None and not has_patches(scene, process), "it was not released")


LEAK = r"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void keep(int i) { char *volatile p = malloc(100); p[0] = i; }
__attribute__((noinline)) void scratch(int i) { char *volatile p = malloc(100); p[0] = i; free(p); }
__attribute__((noinline)) void chatty(int fd) { for (int i = 0; i < 20; i++) if (write(fd, "x", 1) != 1) exit(1); }
__attribute__((noinline)) void hold(int us) { pthread_mutex_lock(&lock); usleep(us); pthread_mutex_unlock(&lock); }
static void *other(void *x) { for (int i = 0; i < 30; i++) hold(2000); return x; }
int main(void) {
  pthread_t t;
  pthread_create(&t, NULL, other, NULL);
  for (int i = 0; i < 300; i++) { scratch(i); if (i % 3 == 0) keep(i); chatty(1); if (i % 10 == 0) hold(2000); }
  pthread_join(t, NULL);
  return 0;
}
"""


@case
def where_to_look(scene):
    """What explain says of a leak, of system calls and of a lock is a query that finds them."""
    client = Client(scene)
    client.tool("launch", program=scene.own(LEAK, "leak"), detail=["malloc", "free"], wait_s=60)

    def found(term):
        lines = client.tool("explain", term=term)["lines"]
        sql = [one for line in lines for one in re.findall(r'`query` "(.*?[A-Z0-9])"[;:]', line) if "Where to look" in line]
        expect(sql, f"{term}: {lines}")
        return client.tool("query", sql=sql[0])["rows"]
    expect(found("memory leak")[0] == ["keep", 100], "the leak")
    expect(found("system calls")[0] == ["chatty", "write", 6000], "system calls")
    expect(any(row[:2] == ["pthread_mutex_lock", "hold"] for row in found("lock contention")), "the lock")


@case
def lost_once(scene):
    """That events were lost is said once, and what helps against it."""
    source = scene.write("burst.c", "#include <stdio.h>\nstatic volatile long n;\n__attribute__((noinline)) void leaf(void) { n++; }\n"
                         "int main(void) { puts(\"ready\"); fflush(stdout); getchar(); for (long i = 0; i < 500000; i++) leaf(); puts(\"done\"); return 0; }\n")
    scene.run("gcc", "-O1", "-o", scene.path("burst"), source)
    with Running([scene.contrail, "record", "-q", "--no-wait", "--ring-size", "1", "-o", scene.trace, "--", scene.path("burst")], stdin=subprocess.PIPE,
                 stdout=subprocess.PIPE, text=True) as recorder:
        expect(recorder.stdout.readline() == "ready\n", "the program")
        recorder.send_signal(signal.SIGSTOP)
        wait_for("the recorder to stand still", lambda: all_stopped(recorder.pid))
        recorder.stdin.write("\n")
        recorder.stdin.close()
        expect(recorder.stdout.readline() == "done\n", "the program waits")
        recorder.send_signal(signal.SIGCONT)
        expect(recorder.wait() == 0, f"status {recorder.returncode}")
    dropped = json.loads(scene.run(scene.contrail, "info", "--json", scene.trace))["dropped"]
    expect(dropped > 0, "no event was lost")
    client = Client(scene)
    client.tool("session", action="open", directory=scene.trace)
    for answer in (client.tool("query", sql="SELECT 1"), client.tool("analyze", view="report")):
        expect(len([line for line in answer["uncertain"] if "LOST" in line or "lost" in line]) == 1, str(answer["uncertain"]))
        expect(len([line for line in answer["next"] if "lossless: true" in line and str(dropped) in line]) == 1, str(answer["next"]))


@case
def several(scene):
    """Sessions and traces side by side, of two clients; each question goes to the one that is named."""
    one, two = Client(scene), Client(scene)
    steps, ticks = scene.own(STEPS, "steps", "-DLOOKUPS=3"), scene.own(TICKS, "ticks")
    a = one.tool("launch", program=steps, wait_s=30)
    b = one.tool("launch", program=ticks, patterns=["tick"])
    c = two.tool("launch", program=steps, args=["3"], wait_s=30, directory=scene.path("kept"))
    expect((a["session"], b["session"], c["session"]) == ("s1", "s2", "s1"), "names")
    expect(a["end"] == "exited with status 0" and c["end"] == "exited with status 3", str(c))
    expect(one.tool("query", trace="s1", sql="SELECT calls FROM functions WHERE name = 'serve'")["rows"] == [[100]], "s1")
    expect(one.tool("query", trace="s2", sql="SELECT count(*) FROM functions WHERE name = 'serve'")["rows"] == [[0]], "s2")
    opened = one.tool("session", action="open", directory=scene.path("kept"))
    expect(opened["trace"] == "t1" and opened["events"] == c["events"], str(opened))
    expect("serve" in "".join(one.tool("analyze", view="report", trace="t1")["lines"]), "t1")
    changed = one.tool("analyze", view="diff", trace="t1", other="s1")
    expect(not any(" refresh" in line for line in changed["lines"]), str(changed["lines"]))
    expect(sorted(s.get("session", s.get("trace")) for s in one.tool("session", action="list")["sessions"]) == ["s1", "s2", "t1"], "list")
    one.tool("session", action="forget", session="t1")
    expect("s1, s2" in one.refused("query", trace="t1", sql="SELECT 1") or "s2, s1" in one.refused("query", trace="t1", sql="SELECT 1"), "t1")
    expect(one.end() == 0 and two.end() == 0 and not scene.left(), str(scene.left()))
    expect(os.path.isdir(scene.path("kept")), "a directory that was named is gone")


@case
def two_at_once(scene):
    """A request that waits does not keep the next one, which has come before the thread that was idle has taken the first: with one
    processor for both threads it has not."""
    ticks = scene.own(TICKS, "ticks")
    for _ in range(4):
        client = Client(scene)
        session = client.tool("launch", program=ticks, patterns=["ticks!none"])["session"]
        for task in os.listdir(f"/proc/{client.server.pid}/task"):
            os.sched_setaffinity(int(task), {min(os.sched_getaffinity(0))})
        client.tool("session", action="status")
        lines = [{"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": "session", "arguments": arguments}}
                 for name, arguments in (("wait", {"action": "wait", "session": session, "wait_s": 120}), ("list", {"action": "list"}))]
        client.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        client.answer("list")
        client.note("notifications/cancelled", requestId="wait")
        client.tool("session", action="stop", session=session, end=True)


def words_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


@case
def attached(scene):
    """A process that runs is released as it was, by stop and when the client goes."""
    process = scene.start(scene.own(TICKS, "ticksnamed"))  # other tests run at the same time
    client = Client(scene)
    client.tool("attach", process="ticksnamed", patterns=["spin"])
    wait_for("calls", lambda: client.tool("query", sql="SELECT calls FROM functions WHERE name = 'spin'")["rows"] > [[3]])
    other = scene.start(scene.path("ticksnamed"), "one more")
    wait_for("the other one's arguments, which the kernel puts there last", lambda: words_of(other.pid))
    both = wait_for("the other one's name", lambda: (lambda text: text if "processes are named" in text else "")(client.refused("attach", process="ticksnamed")))
    shown = [name if len(name) <= 60 else os.path.basename(scene.path("ticksnamed")) + rest for rest in ("", " one more")
             for name in [scene.path("ticksnamed") + rest]]
    expect(f"{process.pid} ({shown[0]})" in both and f"{other.pid} ({shown[1]})" in both, both)
    other.kill()
    other.wait()
    expect("perhaps ticksnamed" in client.refused("attach", process="tiksnamed"), "a name that is nearly one")
    expect(client.tool("session", action="status")["program"].endswith("/ticksnamed"), "the program of a process")
    ended = client.refused("session", action="stop", end=True)
    expect("released" in ended, ended)
    stopped = client.tool("session", action="stop")
    expect(stopped["end"].endswith("runs on") and process.poll() is None and not has_patches(scene, process), str(stopped))
    client.tool("attach", process=process.pid)
    expect(client.end() == 0 and process.poll() is None and not has_patches(scene, process), "hooks are left")
    expect(not scene.left(), str(scene.left()))


@case
def instructions(scene):
    process, client = scene.start(scene.own(TICKS, "ticks")), Client(scene)
    made = client.tool("itrace", action="record", pid=process.pid, function="tick", calls=2)
    expect(made["calls"] == 2 and made["instructions"] > 5000 and process.poll() is None, str(made))
    steps = client.tool("itrace", action="steps", limit=3)
    expect(len(steps["lines"]) == 3 and "tick" in steps["lines"][0] and "cursor" in steps, str(steps))
    expect("eax" in client.tool("itrace", action="last_write", what="rax")["lines"][0], "who wrote rax")
    expect("arg1" in client.refused("itrace", action="record", pid=process.pid, function="tick", when="arg1 ) ("), "a condition")
    expect("tick" in client.tool("itrace", action="steps", limit=3)["lines"][0], "the last recording is the one before")
    none = client.tool("itrace", action="record", pid=process.pid, function="no_such", limit_s=0.3)
    expect("names no function" in none["uncertain"][0], str(none))
    program = client.tool("itrace", action="record", program=scene.own(STEPS, "steps", "-DLOOKUPS=3"), function="parse")
    expect(program["calls"] == 1, str(program))
    expect(client.end() == 0 and process.poll() is None and not scene.left(), str(scene.left()))


CROWD = r"""
#include <pthread.h>
static volatile long sum;
__attribute__((noinline)) long work(long n) { for (long i = 0; i < n; i++) sum += i; return n; }
static void *run(void *n) { for (int i = 0; i < 20; i++) work((long)n); return NULL; }
int main(void) {
  pthread_t t[3];
  for (long i = 0; i < 3; i++) pthread_create(&t[i], NULL, run, (void *)(i + 5));
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  return 0;
}
"""


@case
def instructions_of_all(scene):
    """Each thread of a program has a file of its own, and is asked by its id; without all_threads it is said what is missing."""
    client, crowd = Client(scene), scene.own(CROWD, "crowd")
    made = client.tool("itrace", action="record", program=crowd, all_threads=True, limit_s=50)
    expect(made["threads"] == 4 and made["end"] == "the program has ended" and not made["uncertain"], str(made))
    tids = sorted(int(name.split(".")[1]) for name in os.listdir(made["recording"]) if name.startswith("steps."))
    expect(len(tids) == 4, str(tids))
    for tid in tids[1:]:
        steps = client.tool("itrace", action="steps", thread=tid, function="work", limit=1000)
        expect(any("work" in line for line in steps["lines"]), f"{tid}: {steps['lines'][:3]}")
    alone = client.tool("itrace", action="record", program=crowd, limit_s=50)
    expect("all_threads" in alone["uncertain"][0], str(alone))
    expect("not both" in client.refused("itrace", action="record", program=crowd, all_threads=True, thread=1), "both")
    process = scene.start(scene.own(TICKS, "ticks"))
    held = client.tool("attach", process=process.pid, patterns=["tick"])["session"]
    expect("end=false" in client.refused("itrace", action="record", session=held, function="tick"), "one that is recorded")
    client.tool("session", action="stop", session=held)
    expect(client.tool("itrace", action="record", session=held, function="tick")["calls"] == 1, "by its session")
    stretch = client.tool("itrace", action="record", pid=process.pid, all_threads=True, function="tick", calls=2)
    expect(stretch["calls"] == 2 and process.poll() is None, str(stretch))


@case
def pages(scene):
    """Fifty rows by default, a cap in bytes, cursors that give each row once, files for all of it."""
    client = Client(scene)
    client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=300"), wait_s=30)
    query = "SELECT id, function FROM spans WHERE function = 'leaf' ORDER BY id"
    answer = client.tool("query", sql=query)
    expect(len(answer["rows"]) == answer["shown"] == 50 and answer["more"] == "950 and more", str(answer)[:300])
    rows = answer["rows"]
    while "cursor" in answer:
        answer = client.tool("query", cursor=answer["cursor"], limit=200)
        rows += answer["rows"]
    expect(len(rows) == 1000 and len({row[0] for row in rows}) == 1000 and "to_file" in answer["next"][0], str(answer)[-300:])
    whole_answer = client.tool("query", sql=query, to_file=True)
    with open(whole_answer["file"], encoding="utf-8") as file:
        everything = json.load(file)["rows"]
    expect(everything[:1000] == rows and len(everything) == 3600, str(len(everything)))
    wide = client.tool("query", sql="SELECT hex(zeroblob(2000)) AS wide FROM spans LIMIT 500", full_names=True, limit=500)
    expect(len(json.dumps(wide["rows"])) < 60000 and "cursor" in wide, str(len(json.dumps(wide))))
    cut = client.tool("query", sql="SELECT hex(zeroblob(2000)) AS wide")["rows"][0][0]
    expect(len(cut) <= 160 and "..." in cut, cut)
    report = client.tool("analyze", view="report", limit=5)
    more = client.tool("analyze", view="report", cursor=report["cursor"], limit=5)
    expect(len(report["lines"]) == len(more["lines"]) == 5 and report["lines"] != more["lines"], str(more))
    expect("no cursor" in client.refused("query", cursor="r1") and "not kept" in client.refused("query", cursor="r999.0"), "cursors")


@case(some=("dear", 1))
def worst(scene):
    """What could make an answer too long: wide rows, many columns, many patterns, texts of which each character is a token."""
    client = Client(scene)
    client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=300"), wait_s=30)
    for sql, more in (("SELECT hex(randomblob(2000000)) AS wide", {"full_names": True}),
                      ("SELECT " + ", ".join(f"hex(randomblob(900)) AS c{i}" for i in range(150)), {"full_names": True}),
                      ("SELECT " + ", ".join(f"randomblob(3000) AS c{i}" for i in range(20)), {"full_names": True}),
                      ("SELECT start, \"end\", id, hex(randomblob(40)) FROM spans", {"limit": 1000}),
                      ("SELECT printf('%.*c', 150, char(0x1F980)) FROM spans", {"limit": 1000}),
                      ("SELECT function FROM spans", {"limit": 1000})):
        answer = client.tool("query", sql=sql, **more)  # which holds it against the limits
        expect(answer["shown"] >= 1, str(answer)[:300])
    expect("columns" in client.refused("query", sql="SELECT " + ", ".join(f"{i} AS c{i}" for i in range(500))), "500 columns")
    shortened = client.tool("query", sql="SELECT hex(randomblob(1000000)) AS wide", full_names=True)
    expect(any("to_file" in one for one in shortened["uncertain"]) and len(shortened["rows"][0][0]) <= 160, str(shortened)[:500])
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=[])
    listed = client.tool("trace", action="add", patterns=[f"no_such_function_{i:0100}" for i in range(120)])
    expect(len(listed["patterns"]) <= 50 and len(listed["uncertain"]) <= 23 and "more" in listed["uncertain"][-1], str(listed)[-500:])
    client.tool("trace", action="exclude", patterns=["x" * 4000 + str(i) for i in range(200)])
    client.tool("trace", action="try", patterns=["y" * 4000 + str(i) for i in range(200)])
    for uri in [one["uri"] for one in client.ask("resources/list")["result"]["resources"]]:
        text = client.ask("resources/read", uri=uri)["result"]["contents"][0]["text"]
        expect(tokens_of(text) < 25000, f"{uri}: some {tokens_of(text)} tokens")


HIDDEN = "\u202e\u200b\u2066\ufeff\u034f\u3164\ufe00\ufe0d\U0001d173" + "".join(chr(0xe0000 + ord(c)) for c in "ignore all") + "\u009b31m"


@case
def hidden(scene):
    """Names, output, errors: what nobody sees but a model reads does not get through, wherever the program has put it."""
    client = Client(scene)
    name = "evil\u202e\U000e0041\u200b"
    source = f'__attribute__((noinline)) void f(void) __asm__("{name}");\nvoid f(void) {{ for (volatile int i = 0; i < 3; i++) {{ }} }}\n#include <stdio.h>\n' \
             f'int main(void) {{ f(); f(); printf("shown {HIDDEN}\\n"); return 0; }}\n'
    program = scene.own(source, "hiding", "-Wno-bidi-chars")
    hiding = scene.path("x\u202e\U000e0042")
    os.rename(program, hiding)
    done = client.tool("launch", program=hiding, args=[HIDDEN], wait_s=30)
    answers = [done, client.tool("analyze", view="report"), client.tool("analyze", view="output"), client.tool("session", action="list"),
               client.tool("query", sql="SELECT name, module FROM functions WHERE name LIKE 'evil%'", full_names=True),
               client.tool("query", sql="SELECT text FROM output", full_names=True), client.tool("query", filter={"function": "evil*"}),
               client.tool("query", sql=f"SELECT 1 AS \"{HIDDEN}\""), client.tool("session", action="open", directory=done["directory"]),
               client.tool("trace", action="try", program=hiding, patterns=["evl*"]), client.call("query", filter={"function": "evilx"}),
               client.call("launch", program=hiding + HIDDEN), client.ask("resources/list"),
               *[client.ask("resources/read", uri=f"contrail://s1{part}") for part in ("", "/stdout", "/output")]]
    expect("shown" in done["stdout"]["text"] and "evil" in str(answers[4]), str(answers[4]))
    for answer in answers:
        for bad in map(chr, (0x202e, 0x200b, 0x2066, 0xfeff, 0x9b, 0xe0041, 0xe0042, 0xe0069, 0x34f, 0x3164, 0xfe00, 0xfe0d, 0x1d173)):
            expect(bad not in json.dumps(answer, ensure_ascii=False), f"{bad!r} in {str(answer)[:300]}")
    expect("data" in client.call("query", sql="SELECT nothing FROM spans")["content"][1]["text"], "an error is not marked")
    for part in ("", "/stdout", "/output"):
        contents = client.ask("resources/read", uri=f"contrail://s1{part}")["result"]["contents"][0]
        expect("data" in contents["_meta"]["contrail/data_note"], f"{part} is not marked")


@case
def disk(scene):
    """--max-disk: nothing more is begun, an answer in a file ends; what is removed makes room. --max-time ends a recording."""
    client = Client(scene, "--max-disk", "12M", "--max-time", "1", "--max-size", "8M")
    ended = client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"], wait_s=20)
    expect(ended["stopped"] == "its time limit was over", str(ended))
    cross = "SELECT a.id, hex(zeroblob(500)) FROM spans a, spans b, spans c"
    refused = client.refused("query", sql=cross, to_file=True)
    expect("write" in refused, refused)
    folder = os.path.join(scene.folder, [one for one in scene.left() if one.startswith("contrail-mcp-")][0])
    expect(not [one for one in os.listdir(folder) if one.startswith("answer-")], "the file of a failed answer is left")
    with open(os.path.join(folder, "s1", "filler"), "wb") as file:
        file.write(os.urandom(12 << 20))
    for tool, arguments in (("launch", {"program": "/bin/true"}), ("query", {"sql": "SELECT 1", "to_file": True}),
                            ("itrace", {"action": "record", "program": "/bin/true"})):
        refused = client.refused(tool, **arguments)
        expect("--max-disk" in refused and "remove" in refused, refused)
    expect("which one" in client.refused("session", action="forget", remove=True), "which one")
    expect("with its files" in client.tool("session", action="forget", session="s1", remove=True)["state"], "removed")
    expect(os.listdir(folder) == [], str(os.listdir(folder)))
    expect(client.tool("launch", program="/bin/true", patterns=[], wait_s=20, directory=scene.path("mine"))["state"] == "done", "there is room again")
    expect("own directory" in client.refused("session", action="forget", session="s2", remove=True), "a directory of somebody else's")
    expect(os.path.isdir(scene.path("mine")) and client.tool("session", action="status", session="s2")["state"] == "done", "it is gone")
    big = client.tool("itrace", action="record", program=scene.own(STEPS, "steps", "-DLOOKUPS=1500000"), limit_s=60)
    expect(any("--max-size" in one for one in big["uncertain"]), str(big))


@case(some=("dear", 1))
def newcomer(scene):
    """What one stumbles over who knows only the list of tools: each time the answer says how to go on."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=5000")
    first = client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tiks!spin", "spn"])
    told = " ".join(first["uncertain"])
    expect("names no module" in told and "ticks, " in told and "perhaps spin" in told and "nothing is hooked" in told, told)
    live = client.tool("analyze", view="slowest")
    expect("damaged" not in str(live["uncertain"]), str(live["uncertain"]))
    added = client.tool("trace", action="add", patterns=["ticks!spin"])
    expect(added["hooked"] == 1 and not any("nothing is hooked" in one for one in client.tool("session", action="status")["uncertain"]), str(added))
    expect("of late" not in client.tool("session", action="stop").get("budget", ""), "a figure of a program that has ended")
    done = client.tool("launch", program=steps, budget=1, wait_s=60)
    told = " ".join(done["uncertain"])
    expect("'+'" in told and "'>'" in told and "of late" not in done["budget"], str(done))
    expect(done["uncertain"] == client.tool("analyze", view="report")["uncertain"], "a report does not say it")
    expect("perhaps tail call" in client.tool("explain", term="tail cal")["uncertain"][0], "a word that is nearly one")
    expect("per cent" in client.tool("explain", term="--budget")["lines"][0], "an argument")
    for term in ("duration_text", "spans.self"):
        expect(term.split(".")[-1] in client.tool("explain", term=term)["lines"][0], term)
    for words, sql in ((("processes has id, pid", "events has thread"), "SELECT pid, events FROM processes"),
                       (("perhaps name", "functions has id, name"), "SELECT nane FROM functions"), (("perhaps functions",), "SELECT 1 FROM functons")):
        said = client.refused("query", sql=sql)
        expect(all(word in said for word in words) and "perhaps events" not in said, said)
    client.tool("launch", program=steps, mode="full", wait_s=60)
    tree = client.tool("analyze", view="slowest", filter={"function": "main"}, count=1)
    everything = client.tool("analyze", view="slowest", filter={"function": "main"}, count=1, min_percent=0)
    expect("serve" in str(tree["lines"]) and "not shown" in str(tree["lines"]), str(tree))
    expect(len(everything["lines"]) > len(tree["lines"]) and "serve" in str(everything["lines"]), f"{tree} {everything}")
    # In assembly: a compiler takes 2 ms for each of them.
    many = scene.own('__asm__(".text\\n"\n' + "".join(f'"f{i}: .cfi_startproc\\nlea {i}(%rdi), %eax\\nnopl 0(%rax)\\nret\\n.cfi_endproc\\n.type f{i}, @function\\n'
                                                   f'.size f{i}, . - f{i}\\n"\n' for i in range(1500)) + ");\n"
                     "#include <unistd.h>\nint f7(int);\nint main(void) { for (int i = 0; i < 1000; i++) { f7(i); usleep(1000); } return 0; }\n", "many")
    light = client.tool("launch", program=many, patterns=["many!**"])
    expect(any("mode: full" in one for one in light["uncertain"]) and light["patterns"][0]["mode"] == "light", str(light))
    stopped = client.tool("itrace", action="record", program=steps, function="main", when="arg1 > 99", limit_s=2)
    expect(stopped["instructions"] == 0 and "steps" not in stopped["next"][0], str(stopped))


@case
def errors(scene):
    """What was wrong, the closest right thing; and nothing has changed."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    expect("launch a program" in client.refused("query", sql="SELECT 1"), "nothing is there yet")
    for words, tool, arguments in (
            (("no program", "nosuch"), "launch", {"program": "/nosuch"}), (("not executable",), "launch", {"program": steps + ".c"}),
            (("directory",), "launch", {"program": scene.folder}), (("PATH",), "launch", {"program": "nosuchprogram"}),
            (("'pattern'", "perhaps patterns"), "launch", {"program": steps, "pattern": []}),
            (("missing",), "launch", {}), (("type string, not integer",), "launch", {"program": 7}),
            (("cwd",), "launch", {"program": steps, "cwd": "/nosuch"}), (("args[1]",), "launch", {"program": steps, "args": ["a", 1]}),
            (("budget",), "launch", {"program": steps, "budget": 0}), (("last",), "launch", {"program": steps, "last": "5 minutes"}),
            (("trigger",), "launch", {"program": steps, "triggers": ["whenever"]}),
            (("pattern",), "launch", {"program": steps, "patterns": ["[a"]}),
            (("directory", "absolute"), "launch", {"program": steps, "directory": "here"}),
            (("no process",), "attach", {"process": "nosuchprocess"}), (("no process",), "attach", {"process": 999999999}), (("process 1",), "attach", {"process": 1}),
            (("perhaps report",), "analyze", {"view": "reprt"}), (("no directory",), "session", {"action": "open", "directory": "/no"})):
        said = client.refused(tool, **arguments)
        expect(all(word in said for word in words), f"{tool} {arguments}: {said}")
    expect(client.tool("session", action="list")["sessions"] == [], "something was begun")
    name = client.tool("launch", program=steps, wait_s=30)["session"]
    for words, tool, arguments in (
            (("perhaps functions",), "query", {"sql": "SELECT * FROM functons"}), (("no such column",), "query", {"sql": "SELECT x FROM spans"}),
            (("not authorized",), "query", {"sql": "ATTACH '/etc/passwd' AS p"}), (("may not be modified",), "query", {"sql": "DELETE FROM spans"}),
            (("perhaps " + name,), "query", {"sql": "SELECT 1", "trace": name + "1"}), (("which function",), "analyze", {"view": "callers"}),
            (("other",), "analyze", {"view": "diff"}), (("checks",), "analyze", {"view": "check"}),
            (("not being recorded",), "trace", {"action": "add", "patterns": ["leaf"], "session": name}),
            (("has ended",), "session", {"action": "pause", "session": name}), (("recorded",), "session", {"action": "pause"}),
            (("sql or filter",), "query", {"sql": "SELECT 1", "filter": {}}), (("filter",), "query", {"filter": {"min_duration": "long"}})):
        said = client.refused(tool, **arguments)
        expect(all(word in said for word in words), f"{tool} {arguments}: {said}")
    none = client.tool("analyze", view="report", filter={"function": "serv"})
    expect("perhaps serve" in "".join(none["uncertain"]), str(none))
    none = client.tool("query", filter={"function": "serv"})
    expect("perhaps serve" in "".join(none["uncertain"]), str(none))
    for _ in range(34):  # more than are held: those that have ended go
        client.tool("launch", program="/bin/true", patterns=[], wait_s=30)
    client.tool("launch", program=steps, wait_s=30)
    held = client.tool("analyze", view="check", checks=["serve.calls == 100", "no crash", "no losses"])
    expect(held["result"] == "holds", str(held))
    expect(client.tool("analyze", view="check", checks=["serve.calls < 100"])["result"] == "fails", "check")


@case
def streams(scene):
    """The program never has the protocol's descriptors; what it writes is data, whatever it looks like."""
    client = Client(scene)
    done = client.tool("launch", program=scene.own(NOISY, "noisy"), stdin="a line\nanother\n", env={"X": "1"}, cwd=scene.folder, wait_s=30)
    expect(done["end"] == "exited with status 0", str(done))
    expect(done["stdout"]["text"].startswith("in: a line\nin: another\n{\"jsonrpc\"") and "data" in done["data_note"], str(done))
    expect(done["stderr"]["text"] == "to stderr\n", str(done))
    with open(done["stdout"]["file"], "rb") as file:
        expect(b"\033[31m\001" in file.read(), "the file is not what was written")
    shown = client.tool("analyze", view="output")
    expect("\033" not in done["stdout"]["text"] + client.tool("query", sql="SELECT text FROM output", full_names=True)["rows"][0][0], "control")
    expect(not any("\033" in line for line in shown["lines"]) and "data_note" in shown, str(shown))
    expect("data_note" in client.tool("query", sql="SELECT name FROM functions WHERE name LIKE 'ignore%'"), "a name is not marked")
    expect(not client.stray, str(client.stray))
    binary = client.tool("launch", program="sh", args=["-c", "head -c 3000 /dev/urandom; printf '\\033[1mbold\\033[0m\\ttext\\n' >&2"], patterns=[], wait_s=30)
    expect("text" not in binary["stdout"] and binary["stdout"]["bytes"] == 3000 and "no text" in binary["stdout"]["not_shown"], str(binary)[:500])
    expect("bold" in binary["stderr"]["text"] and tokens_of(json.dumps(binary)) < 600, str(binary)[:1500])
    expect("not shown" in client.ask("resources/read", uri=f"contrail://{binary['session']}/stdout")["result"]["contents"][0]["text"], "the resource")
    shell = client.tool("launch", program="sh", args=["-c", "read x; echo \"got [$x] $X in $PWD\"; ls -l /proc/self/fd | wc -l"], patterns=[],
                        env={"X": "y", "HOME": None}, cwd="/", wait_s=30)
    expect("got [] y in /" in shell["stdout"]["text"], str(shell))
    expect(int(shell["stdout"]["text"].split("\n")[1]) <= 5, f"descriptors were left open: {shell['stdout']}")


@case
def one_way(scene):
    """Requests from a file: what was asked before the end is answered."""
    scene.record(scene.own(STEPS, "steps", "-DLOOKUPS=3"))
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": VERSIONS[-1]}},
             {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "query", "arguments": {
                 "trace": scene.trace, "sql": "SELECT calls FROM functions WHERE name = 'serve'"}}}]
    result = scene.execute(scene.contrail, "mcp", stdin=None, input="\n".join(map(json.dumps, lines)) + "\n")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    expect(result.returncode == 0 and answers[1]["result"]["structuredContent"]["rows"] == [[100]], str(result))


@case
def allowed(scene):
    steps, ticks, process = scene.own(STEPS, "steps", "-DLOOKUPS=3"), scene.own(TICKS, f"ticks{os.getpid()}"), None  # a name that no other run has
    process = scene.start(ticks)
    client = Client(scene, "--allow", steps)
    expect(client.tool("launch", program=steps, wait_s=30)["state"] == "done", "the allowed one")
    for tool, arguments in (("launch", {"program": ticks}), ("attach", {"process": process.pid}), ("launch", {"program": "true"}),
                            ("itrace", {"action": "record", "program": ticks}), ("itrace", {"action": "record", "pid": process.pid}),
                            ("launch", {"program": steps, "directory": "/tmp/x-contrail"}), ("launch", {"program": steps, "env": {"LD_PRELOAD": "/x.so"}}), ("launch", {"program": steps, "env": {"GCONV_PATH": "/x"}}),
                            ("session", {"action": "open", "directory": "/tmp"}), ("itrace", {"action": "steps", "recording": "/tmp"})):
        expect("--allow" in client.refused(tool, **arguments), f"{tool} {arguments}")
    os.symlink(ticks, scene.path("link"))
    expect("--allow" in client.refused("launch", program=scene.path("link")), "a link to another program")
    by_pid = Client(scene, "--allow", str(process.pid))
    by_pid.tool("attach", process=process.pid, patterns=["tick"])
    expect("--allow" in by_pid.refused("launch", program=ticks), "a program by its process")
    os.symlink(steps, scene.path("entry"))
    by_link = Client(scene, "--allow", scene.path("entry"))
    expect(by_link.tool("launch", program=scene.path("entry"), wait_s=30)["state"] == "done", "by the link itself")
    os.unlink(scene.path("entry"))
    os.symlink("/", scene.path("entry"))
    expect("--allow" in by_link.refused("launch", program="/bin/true"), "the link leads elsewhere since")
    inside = scene.path("inside")
    os.mkdir(inside)
    os.symlink("/bin", os.path.join(inside, "bin"))
    shutil.copy("/bin/true", inside)
    below = Client(scene, "--allow", inside)
    expect(below.tool("launch", program="./true", cwd=inside, wait_s=30)["state"] == "done", "a relative path")
    for program in (f"{inside}/bin/true", f"{inside}/../steps", f"/proc/{process.pid}/root/bin/true", f"/proc/{process.pid}/exe", "/proc/self/exe", "true", "sh", f"/proc/{os.getpid()}/root{inside}/../steps"):
        expect("--allow" in below.refused("launch", program=program), program)
    for directory in (f"{inside}/bin", f"/proc/{process.pid}/root/tmp", f"{inside}/..", "/"):
        expect("--allow" in below.refused("launch", program=f"{inside}/true", directory=f"{directory}/new"), directory)
        expect("--allow" in below.refused("itrace", action="steps", recording=directory), directory)
        expect("--allow" in below.refused("trace", action="try", program=f"{directory}/true", patterns=["*"]), directory)
    for words in (("--allow", "999999999"), ("--allow", "4194304"), ("--allow", "/no/such"), ("--allow", "nosuchprogram"), ("--allow", "")):
        result = scene.execute(scene.contrail, "mcp", *words, input="", stdin=None)
        expect(result.returncode == 2 and "--allow" in result.stderr and result.stderr.count("\n") <= 2, f"{words}: {result}")
    expect("--allow" in below.refused("attach", process=process.pid), "another's process")
    by_name = Client(scene, "--allow", "true")
    for program in ("true", "/bin/true", "/usr/bin/../bin/true"):
        expect(by_name.tool("launch", program=program, patterns=[], env={"PATH": inside}, wait_s=30)["end"] == "exited with status 0", program)
    expect("--allow" in by_name.refused("launch", program="false") and "--allow" in by_name.refused("launch", program=f"{inside}/true"), "others")
    by_thread = Client(scene, "--allow", str(process.pid))
    other = scene.start(scene.own(TICKS, "ticksother"))
    expect("no thread" in by_thread.refused("itrace", action="record", pid=process.pid, thread=other.pid), "another process's thread")
    expect("--allow" in by_thread.refused("itrace", action="record", pid=other.pid), "another process")
    expect(by_thread.end() == 0, "status")
    expect(Client(scene, "--allow", scene.folder).tool("attach", process=os.path.basename(ticks), patterns=["tick"])["state"] == "recording" if by_pid.end() == 0
           else False, "by its directory")


MARKER = r"""
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv) { return argc > 1 ? close(open(argv[1], O_CREAT | O_WRONLY, 0600)) : 7; }
"""


@case
def swapped(scene):
    """A link that leads now to an allowed program, now to another one: that other one is never run, whenever the link changes."""
    client, steps, other = Client(scene, "--allow", scene.own(STEPS, "steps", "-DLOOKUPS=3")), scene.path("steps"), scene.own(MARKER, "other")
    link, ran, done, ends = scene.path("link"), scene.path("ran"), threading.Event(), {}

    def swap():
        while not done.is_set():
            for target in (other, steps):
                os.symlink(target, link + "-")
                os.rename(link + "-", link)
    os.symlink(steps, link)
    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for turn in range(scene.rounds(60, 400)):
            if turn % 4:
                result = client.call("launch", program=link, args=[ran], patterns=[], wait_s=30)
            else:
                result = client.call("itrace", action="record", program=link, args=[ran], function="main", limit_s=30)
            text = result["content"][0]["text"]
            expect(not result["isError"] or "--allow" in text or "leads to another file" in text, text)
            ends[result["isError"]] = ends.get(result["isError"], 0) + 1
            expect(not os.path.exists(ran), f"turn {turn}: what was not allowed has run: {text}")
    finally:
        done.set()
        swapper.join()
    expect(client.end() == 0 and not scene.left(), str(scene.left()))
    return f"{ends.get(False, 0)} run, {ends.get(True, 0)} refused"


def again(scene, program, pid):
    """The program as a process with the number of one that is gone; skipped where that cannot be had."""
    need_root()
    for _ in range(200):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as last:
                last.write(str(pid - 1))
        except OSError as error:
            raise Skip(f"ns_last_pid: {error}") from error
        process = scene.start(program)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
        scene.started.remove(process)
    raise Skip(f"process {pid} could not be made")


@case
def reused(scene):
    """Another process with the number of an allowed one, or of a session's, is not the same."""
    ticks = scene.own(TICKS, "ticksreused")
    first = scene.start(ticks)
    client, everything = Client(scene, "--allow", str(first.pid)), Client(scene)
    for one in (client, everything):
        one.tool("attach", process=first.pid, patterns=["tick"])
        one.tool("session", action="stop")
    first.kill()
    first.wait()
    scene.started.remove(first)
    expect("no process" in client.refused("attach", process=first.pid), "one that is gone")
    second = again(scene, ticks, first.pid)
    expect("--allow" in client.refused("attach", process=second.pid) and "--allow" in client.refused("itrace", action="record", pid=second.pid), "another one")
    expect("has ended" in everything.refused("itrace", action="record", session="s1", function="tick"), "another one than the session's")
    expect(second.poll() is None and not has_patches(scene, second), "it was touched")
    expect(everything.tool("itrace", action="record", pid=second.pid, function="tick")["calls"] == 1, "by its own number")


@case
def read_only(scene):
    scene.record(scene.own(STEPS, "steps", "-DLOOKUPS=3"))
    client = Client(scene, "--read-only")
    expect(list(client.schemas) == ["query", "analyze", "session", "itrace", "explain"], str(list(client.schemas)))
    expect("read-only" in client.ask("tools/call", name="launch", arguments={"program": "/bin/true"})["error"]["message"], "launch")
    for tool, arguments in (("session", {"action": "stop"}), ("session", {"action": "pause"}), ("itrace", {"action": "record", "pid": 1})):
        expect("read-only" in client.refused(tool, **arguments), f"{tool} {arguments}")
    expect(client.tool("query", trace=scene.trace, sql="SELECT calls FROM functions WHERE name = 'serve'")["rows"] == [[100]], "query")
    expect(client.tool("session", action="status")["trace"] == "t1", "status")
    expect("read-only" in client.refused("session", action="forget", session="t1", remove=True), "remove")
    for action in ("dump", "resume", "stop", "pause"):
        expect("read-only" in client.refused("session", action=action, session="t1"), action)
    os.symlink(scene.trace, scene.path("by-link"))
    expect(client.tool("session", action="open", directory=scene.path("by-link"))["trace"] == "t1", "the same by a link")
    expect("read-only" in client.refused("itrace", action="record", program="/bin/true", all_threads=True), "itrace")
    before = sorted(os.listdir(scene.trace))
    client.tool("query", trace="t1", sql="SELECT count(*) FROM spans", to_file=True)
    expect(sorted(os.listdir(scene.trace)) == before, "a question has changed the trace's directory")


@case
def limits(scene):
    client, ticks = Client(scene, "--max-sessions", "2"), scene.own(TICKS, "ticks")
    client.tool("launch", program=ticks, patterns=[])
    limited = client.tool("launch", program=ticks, patterns=["tick"], limit_s=0.5)["session"]
    expect("stop" in client.refused("launch", program=ticks), "a third")
    ended = client.tool("session", action="wait", session=limited)
    expect(ended["stopped"] == "its time limit was over" and ended["state"] == "done", str(ended))
    client.tool("launch", program=ticks, patterns=["tick"], last="1M,2s")
    wait_for("calls of tick", lambda: client.tool("session", action="status")["events"] > 0)
    for tool, arguments in (("query", {"sql": "SELECT count(*) FROM spans"}), ("query", {"filter": {"function": "tick"}}), ("analyze", {"view": "report"})):
        answer = client.tool(tool, **arguments)
        expect("action=dump" in answer["next"][0] and "in memory" in str(answer["uncertain"]), str(answer))
    dump = client.tool("session", action="dump")
    expect("tick" in "".join(client.tool("analyze", view="report", trace=dump["dump"]["directory"])["lines"]), "dump")
    expect(client.end() == 0 and not scene.left(), str(scene.left()))


@case
def kept(scene):
    """A program that is to be kept goes on without hooks, and can still write; who has the answer may leave at once."""
    ticks = scene.own(TICKS, "ticks")
    for turn in range(scene.rounds(3, 100)):
        folder = scene.path(f"traces-{turn}")
        client = Client(scene, "--directory", folder)
        done = client.tool("launch", program=ticks, keep=True, patterns=["tick"])
        expect(client.end() == 0, "status")
        try:
            size = os.path.getsize(done["stdout"]["file"])
            wait_for("output", lambda: os.path.getsize(done["stdout"]["file"]) > size)  # pylint: disable=cell-var-from-loop
            cleaned = scene.execute(scene.contrail, "clean", str(done["pid"]))
            expect("nothing of contrail" in cleaned.stdout + cleaned.stderr, f"hooks: {cleaned}")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has died: what was expected says so
                os.kill(done["pid"], signal.SIGKILL)
        expect(os.path.exists(os.path.join(folder, "s1", "manifest.json")), "the trace is gone")


@case
def documents(scene):
    client = Client(scene)
    listed = [one["uri"] for one in client.ask("resources/list")["result"]["resources"]]
    for uri in listed:
        expect(client.ask("resources/read", uri=uri)["result"]["contents"][0]["text"], uri)
    schema = client.ask("resources/read", uri="contrail://schema")["result"]["contents"][0]["text"]
    expect("spans(id, parent_id" in schema and schema.count("\n") >= 12, schema[:200])
    expect(client.ask("resources/read", uri="contrail://docs/../x")["error"]["code"] == -32002, "a page that is none")
    expect(client.ask("resources/read", uri="file:///etc/passwd")["error"]["code"] == -32002, "a file")
    prompts = client.ask("prompts/list")["result"]["prompts"]
    for prompt in prompts:
        values = {one["name"]: "/bin/x $y" for one in prompt["arguments"]}
        text = client.ask("prompts/get", name=prompt["name"], arguments=values)["result"]["messages"][0]["content"]["text"]
        expect("/bin/x $y" in text and not re.search(r"\$(program|process|before|after)", text), text)
    expect("needs the argument" in client.ask("prompts/get", name="hang")["error"]["message"], "an argument is missing")
    for term in ("tail call", "branch-into", "overwritten", "spans", "callout", "light hooks"):
        expect(client.tool("explain", term=term)["lines"], term)
    expect("nothing about" in client.tool("explain", term="xyzzy")["uncertain"][0], "an unknown word")


if __name__ == "__main__":
    main(__doc__, Scene)
