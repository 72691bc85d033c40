#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""contrail mcp: its answers are of what there is now, and say what they leave out; its errors change nothing of anybody's.

    tests/mcpanswers.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import re
import shutil
import subprocess
import time

from harness import case, expect, main, need_root, wait_for
from mcp import STEPS, TICKS, Client, Scene


@case
def in_the_way(scene):
    """A launch that fails removes what it has made, and nothing of anybody else's that is in its way."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    for name in ("stdout", "stderr"):
        scene.write(f"mine.{name}", "keep me\n")
        expect("exists" in client.refused("launch", program=steps, directory=scene.path("mine")), name)
        with open(scene.path(f"mine.{name}"), encoding="utf-8") as file:
            expect(file.read() == "keep me\n", "it was written to")
        os.unlink(scene.path(f"mine.{name}"))
        expect(not [one for one in os.listdir(scene.folder) if one.startswith("mine")], str(os.listdir(scene.folder)))
    expect(client.tool("launch", program=steps, directory=scene.path("mine"), wait_s=30)["state"] == "done", "nothing is in the way")


@case
def cancelled_as_it_answers(scene):
    """A launch that is cancelled when its answer is nearly made: it is answered, or what it has launched is ended."""
    client, ticks, took, unanswered = Client(scene), scene.own(TICKS, "ticks"), [], 0

    def all_ended():
        return all(one["state"] in ("done", "failed") for one in client.tool("session", action="list")["sessions"])
    for turn in range(scene.rounds(45, 500)):
        begun = time.monotonic()
        number = client.begin("tools/call", {"name": "launch", "arguments": {"program": ticks, "patterns": ["tick"]}})
        if turn >= 5:
            time.sleep(sorted(took)[1] * random.uniform(0.9, 1.2))  # a moment near its end
            client.note("notifications/cancelled", requestId=number)
            wait_for(f"an answer, or the end of what nobody knows of, in turn {turn}", lambda: number in client.answers or all_ended())  # pylint: disable=cell-var-from-loop
            unanswered += number not in client.answers
        if turn < 5 or number in client.answers:
            client.answer(number)
            took.append(time.monotonic() - begun)
            client.tool("session", action="stop")
    wait_for("the end of all", all_ended)
    return f"{unanswered} were not answered"


@case
def recorded_elsewhere(scene):
    """A trace that somebody else records, and one in whose place another has been put: each answer is of what there is now."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=3")
    ticks = scene.own(TICKS.replace("1000000", "20000"), "ticks")  # ends, whatever becomes of this
    calls = "SELECT calls FROM functions WHERE name = '%s'"

    def rows(name="spin"):
        return client.tool("query", trace=scene.trace, sql=calls % name)["rows"]

    def reported(name="spin"):
        found = [line for line in client.tool("analyze", view="report", trace=scene.trace)["lines"] if name in line]
        return found[0].split() if found else []
    recorder = scene.start(scene.contrail, "record", "-q", "-o", scene.trace, "--trace", "spin", "--", ticks)
    wait_for("a first call", lambda: os.path.exists(os.path.join(scene.trace, "manifest.json")) and rows() not in ([], [[0]]))
    first, line, events = rows()[0][0], reported(), client.tool("session", action="status", session="t1")["events"]
    wait_for("more calls in a query", lambda: rows()[0][0] > first)
    wait_for("more calls in a report", lambda: reported() != line)
    wait_for("more events in the status", lambda: client.tool("session", action="status", session="t1")["events"] > events)
    recorder.terminate()
    recorder.wait()
    whole = json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"][0]["calls"]
    expect(rows() == [[whole]] and not client.tool("query", trace="t1", sql="SELECT 1")["uncertain"], f"{rows()}, {whole} calls")
    shutil.rmtree(scene.trace)
    scene.record(steps)
    expect(rows("serve") == [[100]] and reported("serve") and not reported(), f"of the trace before: {rows('serve')}")
    expect(not any("another" in one for one in client.tool("query", trace="t1", sql="SELECT 1")["uncertain"]), "it was not opened anew")
    expect(client.tool("session", action="list")["sessions"][0]["trace"] == "t1", "it is the same directory")


@case
def what_is_missing(scene):
    """An answer says what it leaves out: of a filter that a view has no use for, of another trace, of an output, of further pages."""
    client, steps = Client(scene), scene.own(STEPS, "steps", "-DLOOKUPS=300")
    client.tool("launch", program=steps, wait_s=30)
    for view, arguments in (("threads", {}), ("crash", {}), ("check", {"checks": ["no crash"]}), ("output", {}), ("info", {})):
        answer = client.tool("analyze", view=view, filter={"function": "leaf"}, **arguments)
        expect(any("filter.function" in one for one in answer["uncertain"]), f"{view}: {answer['uncertain']}")
    tid = client.tool("query", sql="SELECT tid FROM threads")["rows"][0][0]
    expect(not any("filter" in one for one in client.tool("analyze", view="threads", filter={"thread": tid})["uncertain"]), "a thread")
    expect(not any("steps" in one for one in client.tool("analyze", view="threads", filter={"thread": tid + 1})["lines"]), "another thread's")
    expect(not any("filter" in one for one in client.tool("analyze", view="report", filter={"function": "leaf"})["uncertain"]), "a report")
    for filter_ in ({"thread": 2**32 + tid}, {"process": 2**40}):
        expect("2147483647" in client.refused("query", filter=filter_).replace("2.14748e+09", "2147483647"), str(filter_))
    for number in (2**32 + client.server.pid, 2**40):
        expect("pid" in client.refused("itrace", action="record", pid=number), str(number))
    for number in (1, client.server.pid):
        expect("not recorded" in (said := client.refused("itrace", action="record", pid=number)) or "server itself" in said, said)
    ticks = client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick", "spin"])["session"]
    wait_for("calls", lambda: client.tool("query", sql="SELECT count(*) FROM spans")["rows"] > [[300]])
    answer = client.tool("query", sql="SELECT id FROM spans", limit=10)
    later = client.tool("query", cursor=answer["cursor"], limit=10)
    expect(answer["uncertain"] and later["uncertain"] == answer["uncertain"], f"{answer['uncertain']}, then {later['uncertain']}")
    diff = client.tool("analyze", view="diff", trace="s1", other=ticks)["uncertain"]
    expect(any(one.startswith(f"{ticks} (before): ") and "goes on" in one for one in diff) and not any(one.startswith("the rec") for one in diff), str(diff))
    client.tool("session", action="stop", session=ticks)
    lines = client.tool("launch", program="sh", args=["-c", "i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i + 1)); done"], patterns=[], wait_s=60)
    for part, word in (("stdout", "action=status"), ("output", "view=output")):
        text = client.ask("resources/read", uri=f"contrail://{lines['session']}/{part}")["result"]["contents"][0]["text"]
        left_out = re.match(r"\(contrail: (\d+) bytes before this are left out; .*" + word, text)
        expect(left_out and int(left_out[1]) > 50000 and text.endswith("line 8999\n"), f"{part}: {text[:200]} ... {text[-50:]}")
    short = client.ask("resources/read", uri="contrail://s1/stdout")["result"]["contents"][0]["text"]
    expect(short == "done\n", short)


@case
def zero_bytes(scene):
    """A zero byte hides nothing that comes after it, in whatever answer."""
    client = Client(scene)
    done = client.tool("launch", program="sh", args=["-c", "printf 'one\\0two, and more words so that it is text\\n'"], patterns=[], wait_s=30)
    answers = [done["stdout"]["text"], client.tool("query", sql="SELECT text FROM output")["rows"][0][0],
               client.tool("query", sql="SELECT text FROM output", full_names=True)["rows"][0][0],
               client.tool("query", sql="SELECT 'one' || char(0) || 'two, and'")["rows"][0][0], client.tool("analyze", view="output")["lines"][0],
               *[client.ask("resources/read", uri=f"contrail://s1/{part}")["result"]["contents"][0]["text"] for part in ("stdout", "output")]]
    expect(all("one?two, and" in answer for answer in answers), str(answers))


MODULES = r"""
import mmap, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE))
print("mapped", flush=True)
time.sleep(1000)
"""


@case
def many_modules(scene):
    """Of a process with very many files of code not all are looked at for a pattern: that is said."""
    client = Client(scene)
    with open(scene.own("int f(void) { return 1; } int main(void) { return f(); }\n", "small"), "rb") as file:
        small = file.read()
    copies = []
    for i in range(230):
        copies.append(scene.path(f"copy{i}"))
        with open(copies[-1], "wb") as file:
            file.write(small)
    session = client.tool("launch", program="python3", args=["-c", MODULES, *copies], patterns=["no_such_function"])
    wait_for("the files", lambda: "mapped" in client.tool("session", action="status")["stdout"].get("text", ""))
    tried = client.tool("trace", action="try", patterns=["no_such_function"])
    expect(any("only the first of them" in one for one in tried["uncertain"]), str(tried))
    added = client.tool("trace", action="add", patterns=["copy229!f"])
    expect(not any("names no module" in one for one in added["uncertain"]), str(added["uncertain"]))
    expect("data_note" in client.tool("trace", action="add_trigger", rule="nosuch > 1ms"), "names that may be meant are the program's")
    client.tool("session", action="stop", session=session["session"])


@case
def dumps(scene):
    """Dumps are in the server's directory: none is begun that may have no room there, and one that was made can be removed."""
    client = Client(scene, "--max-disk", "12M")
    client.tool("launch", program=scene.own(TICKS, "ticks"), patterns=["tick"], last="4M")
    wait_for("calls of tick", lambda: client.tool("session", action="status")["events"] > 0)
    dump = client.tool("session", action="dump")["dump"]["directory"]
    filler = os.path.join(os.path.dirname(dump), "filler")
    with open(filler, "wb") as file:
        file.write(os.urandom(9 << 20))
    expect("--max-disk" in client.refused("session", action="dump"), "a dump without room")
    expect("with its files" in client.tool("session", action="forget", session=dump, remove=True)["state"] and not os.path.exists(dump), "the dump is there")
    os.unlink(filler)
    expect(os.path.isdir(client.tool("session", action="dump")["dump"]["directory"]), "there is room again")


@case
def waits_for_nobody(scene):
    """A program that is a FIFO is refused at once: whoever opens it would wait for a writer."""
    os.mkfifo(scene.path("fifo"), 0o700)
    for words in ((), ("--allow", scene.folder)):
        client = Client(scene, *words)
        for tool, arguments in (("launch", {}), ("itrace", {"action": "record"})):
            number = client.begin("tools/call", {"name": tool, "arguments": {"program": scene.path("fifo"), **arguments}})
            result = client.answer(number, seconds=20)["result"]
            expect(result["isError"] and ("regular" in (said := result["content"][0]["text"]) or "denied" in said), f"{tool}: {result}")
    client = Client(scene)
    done = client.tool("launch", program=scene.own(STEPS, "steps", "-DLOOKUPS=3"), wait_s=30)
    os.unlink(done["stdout"]["file"])  # what its program can do as well
    os.mkfifo(done["stdout"]["file"])
    result = client.answer(client.begin("tools/call", {"name": "session", "arguments": {"action": "status"}}), seconds=20)["result"]
    expect(not result["isError"] and "text" not in result["structuredContent"]["stdout"], str(result)[:500])


@case
def prompts_are_whole(scene):
    """What is given for a prompt stands in it as a whole, however long."""
    client = Client(scene)
    words = "/bin/x " + "ä" * 3000 + " --last"
    for name, given in (("slow_call", {"program": words}), ("before_after", {"before": words, "after": "y" * 20000})):
        text = client.ask("prompts/get", name=name, arguments=given)["result"]["messages"][0]["content"]["text"]
        expect(all(one in text for one in given.values()), f"{name}: {len(text)} characters")
    text = client.ask("prompts/get", name="hang", arguments={"process": "7\0; and more"})["result"]["messages"][0]["content"]["text"]
    expect("7?; and more" in text, text[:200])


@case
def another_by_its_name(scene):
    """--allow: what was opened stays what is asked, though by its name there is a link out of the directory by then."""
    inside, outside = scene.path("in"), scene.path("out")
    os.makedirs(inside)
    steps = scene.own(STEPS, "steps", "-DLOOKUPS=3")
    for place, program in ((inside, steps), (outside, scene.own(TICKS.replace("1000000", "3"), "ticks"))):
        scene.run(scene.contrail, "record", "-q", "-o", os.path.join(place, "t") if place == inside else place, "--", program)
    client, trace = Client(scene, "--allow", inside, "--allow", steps), os.path.join(inside, "t")
    names = {"sql": "SELECT name FROM functions WHERE calls > 0"}
    expect(["serve"] in client.tool("query", trace=trace, **names)["rows"], "its own")
    os.rename(trace, os.path.join(inside, "moved"))
    os.symlink(outside, trace)
    found = client.tool("query", trace="t1", **names)["rows"]
    expect(["serve"] in found and ["spin"] not in found, f"{found}: of the other one")
    report = client.tool("analyze", view="report", trace="t1")["lines"]
    expect(any("serve" in line for line in report) and not any("spin" in line for line in report), str(report[:5]))
    expect("not below" in client.refused("query", trace=outside, **names), "the other one itself")
    expect("not below" in client.refused("query", trace=os.path.join(inside, "t", "."), **names), "by the link")
    os.unlink(trace)
    os.rename(outside, trace)
    found = client.tool("query", trace=trace, **names)
    expect(["spin"] in found["rows"], f"another one that has the name now: {found}")
    new = os.path.join(inside, "new")
    done = client.tool("launch", program=steps, directory=new, wait_s=30)
    expect(done["state"] == "done" and done["directory"] == new and done["stdout"] == {"file": f"{new}.stdout", "bytes": 5, "text": "done\n"}, str(done))
    expect("serve" in scene.run(scene.contrail, "report", new) and os.path.isfile(f"{new}.stderr"), str(os.listdir(inside)))


VICTIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* A process that takes an id as soon as it is free, and makes a group by it. */
int main(int argc, char **argv) {
  pid_t wanted = atoi(argv[1]);
  struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
  time_t until = time(NULL) + 60;
  puts("ready");
  fflush(stdout);
  for (long pid = -1; time(NULL) < until && pid < 0;) {
    pid = syscall(SYS_clone3, &how, sizeof(how));
    if (pid == 0) {
      setpgid(0, 0);
      puts("taken");
      fflush(stdout);
      sleep(30);
      puts("alive");
      return 0;
    }
    if (pid < 0 && errno != EEXIST) {
      perror("clone3");
      return 2;
    }
  }
  sleep(30);
  return argc > 9;
}
"""


def asleep_or_dead(pid):
    """The state of the process pid when it sleeps or has ended; None while it still runs."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "X"
    return state if state in "SZX" else None


@case
def its_number_is_anothers(scene):
    """The group of a program that is ended is its own: whoever gets its number meanwhile, with a group by it, lives on."""
    need_root()
    victim, client = scene.own(VICTIM, "victim"), Client(scene)
    for turn, leaves in enumerate((False, True)):
        script = "sleep 300 & exec sleep 300" if leaves else "exec sleep 300"
        pid = client.tool("launch", program="sh", args=["-c", script], patterns=[])["pid"]
        with subprocess.Popen([victim, str(pid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as other:
            expect(other.stdout.readline() == "ready\n", "the other")
            client.tool("session", action="stop", end=True)
            line = other.stdout.readline()
            expect(line == "taken\n", f"turn {turn}: {line}")
            client.tool("session", action="list")
            state = wait_for("it to sleep, or to be dead", lambda pid=pid: asleep_or_dead(pid))
            expect(state == "S", f"turn {turn}: it was killed ({state})")
            os.kill(pid, 9)
            other.kill()


if __name__ == "__main__":
    main(__doc__, Scene)
