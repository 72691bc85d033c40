#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pages: what contrail html writes is read by a decoder made from docs/exports.md, and compared with report and replay: with
threads, children, other stacks, values, runs of short calls, names that are no names. And in Chromium, driven over its pipe:
what it draws, shows and says, with the keys and the search, and that nothing is loaded and nothing goes wrong.

    tests/page.py [--filter PATTERN] [--build DIR]
"""
import base64
import collections
import hashlib
import html.parser
import json
import os
import re
import subprocess
import time
import zlib

import harness
from harness import case, expect, main

HOSTILE = b'=x"\'</script><b>&]]><!--\\\x01\x1b\xff\xc3\xa9'
PLACE = "odd_name_" + "o" * (len(HOSTILE) - 9)
PROGRAM = r"""
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
static jmp_buf back;
static char stack_of_signals[1 << 16];
extern "C" {
#define OWN __attribute__((noinline, noipa))
OWN long leaf(long x) { sum += x; return x * 2; }
OWN long tail(long x) { return leaf(x + 1); }
OWN long deep(long x) { return x == 0 ? leaf(1) : deep(x - 1) + 1; }
OWN void ODD(void) { leaf(2); }
OWN void jumps(void) { leaf(3); longjmp(back, 1); }
OWN void handler(int n) { leaf(n); }
OWN long slow(long us) { usleep(us); return us * 3; }
OWN void says(const char *text) { printf("%s\n", text); fflush(stdout); }
OWN void *thread(void *a) {
  for (long i = 0; i < 80; i++) { tail(i); deep(i % 30); ODD(); }
  return a;
}
OWN void child(long n) { for (long i = 0; i < n; i++) tail(i); slow(2000); }
OWN void leaves(int status) { leaf(status); exit(status); }
OWN void wild(int *p) { *p = 1; }
}
int main(int argc, char **argv) {
  pthread_t t[2];
  stack_t own = {stack_of_signals, 0, sizeof(stack_of_signals)};
  struct sigaction act = {};
  act.sa_handler = handler;
  act.sa_flags = SA_ONSTACK;
  sigaltstack(&own, nullptr);
  sigaction(SIGUSR1, &act, nullptr);
  for (int i = 0; i < 2; i++) pthread_create(t + i, nullptr, thread, nullptr);
  for (int i = 0; i < 10; i++) { if (setjmp(back) == 0) jumps(); raise(SIGUSR1); slow(500); }
  says("a line </script><script>alert(1)</script>");
  for (int i = 0; i < 2; i++) pthread_join(t[i], nullptr);
  if (argc > 1 && !strcmp(argv[1], "family")) for (int i = 0; i < 2; i++) if (fork() == 0) { child(50 * (i + 1)); leaves(0); }
  if (argc > 1) while (wait(nullptr) > 0) {}
  if (argc > 1 && !strcmp(argv[1], "crash")) wild((int *)16);
  leaves(0);
}
""".replace("ODD", PLACE)
IS_RUN, POINT, ORPHAN = 256, 18, 17


class Scene(harness.Scene):
    def own(self, *arguments, options=()):
        program = self.compile(self.write("own.cc", PROGRAM), "-O2", "-g", "-fno-inline", "-w", "-pthread", compiler="g++")
        status = {"crash": 139}.get(arguments[0], 0) if arguments else 0
        self.run(self.contrail, "record", "-o", self.trace, "-q", *options, "--", program, *arguments, status=status)
        for folder, _, names in os.walk(self.trace):
            for name in set(names) & {"functions.tsv"}:
                with open(os.path.join(folder, name), "rb+") as file:
                    data = file.read().replace(b"\t" + PLACE.encode() + b"\n", b"\t" + HOSTILE + b"\n")
                    file.seek(0)
                    file.write(data)

    def page(self, *options, trace=None):
        path = self.path("view.html")
        if os.path.exists(path):
            os.unlink(path)
        result = self.execute(self.contrail, "html", "-o", path, *options, trace or self.trace)
        expect(result.returncode == 0, f"html: status {result.returncode}: {result.stderr}")
        self.said = result.stderr
        with open(path, encoding="utf-8") as file:
            return Decoded(file.read())

    def functions(self, *options):
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        for row in json.loads(self.run(self.contrail, "report", "--json", *options, self.trace))["functions"]:
            for i, key in enumerate(("calls", "total_ns", "self_ns", "off_ns")):
                sums[row["name"]][i] += row[key] or 0
        return sums


# ---- a decoder ----

class Elements(html.parser.HTMLParser):
    """The elements as a browser finds them, and the text of scripts and styles."""
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.contents, self.inside = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.contents.append((tag, dict(attrs), []))
            self.inside = self.contents[-1][2]

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside is not None:
            self.inside.append(data)


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self):
        return unzigzag(self.number())

    def take(self, size):
        self.at += size
        expect(self.at <= len(self.data), "a piece is cut short")
        return self.data[self.at - size:self.at]

    def part(self):
        return Bytes(self.take(self.number()))

    def left(self):
        return self.at < len(self.data)


def unzigzag(value):
    return value >> 1 if value % 2 == 0 else -(value >> 1) - 1


Entry = collections.namedtuple("Entry", "thread stack name depth begin end own self off ordinal more calls")


class Decoded:
    def __init__(self, text):
        self.text = text
        self.elements = Elements(text)
        scripts = {attrs.get("id"): "".join(parts) for tag, attrs, parts in self.elements.contents if tag == "script"}
        self.about = json.loads(scripts["about"])
        stream = Bytes(zlib.decompress(base64.b64decode(scripts["data"], validate=True)))
        expect(len(stream.data) == self.about["raw_bytes"], "another size than the page says")
        self.entries, self.away, self.values, self.paths, self.lost = [], [], {}, [], []
        self.inside = collections.defaultdict(int)
        while stream.left():
            kind, piece = stream.number(), stream.part()
            (self.read_entries, self.read_away, self.read_values, self.read_paths, self.read_lost)[kind - 1](piece)
            expect(not piece.left(), f"a piece of kind {kind} has more than that")

    def read_entries(self, piece):
        head, *columns = [piece.part() for _ in range(10)]
        shape, function, ends, length, own, inside, off, ordinals, more = columns
        thread, stack, count = head.number(), head.number(), head.number()
        depth = end = ordinal = 0
        for _ in range(count):
            step = shape.number()
            depth += unzigzag(step >> 1)
            end += ends.signed()
            ordinal += ordinals.signed()
            clock = length.number()
            took = clock - own.signed()
            key = (thread, stack, depth + 1)
            bits = more.number() if step & 1 else 0
            calls = more.number() if bits & IS_RUN or bits & 31 == POINT else 1
            self.entries.append(Entry(thread, stack, self.about["functions"][function.number()][0], depth, end - clock, end, took,
                                      took - self.inside[key] - inside.signed(), off.number(), ordinal, bits, calls))
            self.inside[key] = 0
            self.inside[thread, stack, depth] += took
        expect(not any(column.left() for column in columns), "a column is longer than the others")

    def read_away(self, piece):
        head, ends, lengths, reasons = [piece.part() for _ in range(4)]
        thread, end = head.number(), 0
        while ends.left():
            end += ends.signed()
            self.away.append((thread, end - lengths.number(), end, reasons.number()))

    def read_values(self, piece):
        thread, ordinal = piece.number(), 0
        while piece.left():
            head = piece.number()
            ordinal += unzigzag(head >> 1)
            self.values[thread, ordinal, head & 1] = piece.take(piece.number()).decode()

    def read_paths(self, piece):
        while piece.left():
            depth, name, own, off, calls = [piece.number() for _ in range(5)]
            self.paths.append((depth, self.about["path_names"][name], own, off, calls))

    def read_lost(self, piece):
        self.lost.append((piece.number(), piece.number(), piece.number()))

    def sums(self):
        """Of the list of functions, as Scene.functions gives them."""
        sums = collections.defaultdict(lambda: [0, 0, 0, 0])
        for name, _, _, _, _, calls, total, own, off, *_ in self.about["functions"]:
            for i, number in enumerate((calls, total, own, off)):
                sums[name][i] += number or 0
        return sums


def compare(what, found, wanted, columns=4):
    """Sums of functions with those of the report: calls exactly, times but for what was rounded."""
    names = {name for sums in (found, wanted) for name, row in sums.items() if row[0] != 0}
    for name in names:
        for i in range(columns):
            slack = 0 if i == 0 else 4 + wanted[name][0]
            expect(abs(found[name][i] - wanted[name][i]) <= slack, f"{what}: {name}: {found[name]}, not {wanted[name]}")
    return len(names)


def replayed(lines):
    """Calls with begin and end, of replay's lines: how often each (tid, name, begin, end)."""
    calls, stacks = collections.Counter(), collections.defaultdict(list)
    for line in lines:
        kind, key = line["kind"], (line["tid"], line.get("stack"))
        if kind in ("return", "left", "tail") and line["duration_ns"] is not None:
            name, start = stacks[key].pop()
            calls[line["tid"], name, start, line["ts_ns"]] += 1
        if kind in ("enter", "tail"):
            stacks[key].append((line["name"], line["ts_ns"]))
    return calls


def own_calls(page):
    """The same of the page."""
    threads = page.about["threads"]
    return collections.Counter((threads[e.thread]["tid"], e.name, e.begin, e.end) for e in page.entries if e.more & 31 < ORPHAN)


# ---- the data ----

@case
def sums(scene):
    """The functions have the report's sums, the entries are the calls of replay, self times of entries add up."""
    scene.own()
    page = scene.page()
    count = compare("functions", page.sums(), scene.functions())
    expect(own_calls(page) == replayed(scene.lines()), "other calls than replay has")
    once = collections.Counter(row[0] for row in page.about["functions"])
    least = {row[0]: (row[9], row[10]) for row in page.about["functions"] if once[row[0]] == 1}
    for row in json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"]:
        expect(once[row["name"]] != 1 or least[row["name"]] == (row["min_ns"], row["max_ns"]), f"{row}: {least.get(row['name'])}")
    by_entry = collections.defaultdict(lambda: [0, 0, 0, 0])
    for entry in page.entries:
        by_entry[entry.name][0] += entry.calls if entry.more & 31 != ORPHAN and not entry.more & 64 else 0
        by_entry[entry.name][2] += entry.self
    for name, row in scene.functions().items():
        expect(by_entry[name][0] == row[0], f"{name}: {by_entry[name][0]} entries, not {row[0]} calls")
        expect(abs(by_entry[name][2] - row[2]) <= 4 + row[0], f"{name}: {by_entry[name][2]} ns by its entries, not {row[2]}")
    expect(sum(path[4] for path in page.paths) == sum(row[0] for row in scene.functions().values()), "calls of the paths")
    ends = collections.Counter(page.about["ends"][entry.more & 31] for entry in page.entries)
    expect(ends["longjmp"] >= 10 and ends["tail call"] >= 160, f"ends: {ends}")
    expect({entry.stack for entry in page.entries} == {0, 1}, "the stack of signals")
    return f"{count} functions, {len(page.entries)} entries"


@case
def family(scene):
    """All processes are in the page; --process chooses."""
    scene.own("family", options=("--follow",))
    page = scene.page()
    expect(len(page.about["processes"]) == 3, str(page.about["processes"]))
    compare("family", page.sums(), scene.functions("--family"), columns=3)
    pid = page.about["processes"][1]["pid"]
    one = scene.page("--process", str(pid))
    expect({thread["pid"] for thread in one.about["threads"]} == {pid}, "other processes")
    compare("a child", one.sums(), scene.functions("--process", str(pid)), columns=3)


@case
def filters(scene):
    """Filters choose what they choose elsewhere."""
    scene.own()
    begin = next(line["ts_ns"] for line in scene.lines("--function", "main")) // 1000
    count = 0
    for options in (("--function", "deep"), ("--module", "libc*"), ("--min-duration", "3us"), ("--depth", "2..3"), ("--reason", "longjmp"), ("--time", "cpu"),
                    ("--raw",), ("--from", f"{begin + 1000}us", "--to", f"{begin + 4000}us"), ("--thread", str(scene.lines()[0]["tid"]))):
        page = scene.page(*options)
        compare(" ".join(options), page.sums(), scene.functions(*options))
        expect(page.about["spans"] == len(page.entries), f"{options}: {len(page.entries)} entries of {page.about['spans']}")
        expect(page.about["has_range"] == ("--from" in options), "a piece")
        count += len(page.entries)
    return f"{count} entries"


@case
def runs(scene):
    """With few entries the shorter calls are in runs, which lie in their callers; no call is missing, and it is said."""
    scene.own()
    whole = scene.page()
    functions = scene.functions()
    for single in (1, 30, 300, 2000):
        page = scene.page("--single", str(single))
        about, bound = page.about, page.about["bound_ns"]
        parts = [entry for entry in page.entries if entry.more & IS_RUN]
        others = [entry for entry in page.entries if not entry.more & IS_RUN]
        expect(about["single"] == len(others) and about["runs"] == len(parts), f"{single}: {about}")
        expect(about["in_runs"] == sum(entry.calls for entry in parts) and len(others) + about["in_runs"] == len(whole.entries) == about["spans"],
               f"{single}: {len(others)} and {about['in_runs']} of {len(whole.entries)}")
        wanted = collections.Counter(e for e in whole.entries if e.end - e.begin >= bound or 14 <= e.more & 31 <= 16)
        of = lambda entries: collections.Counter((e.thread, e.stack, e.name, e.depth, e.begin, e.end, e.own, e.ordinal) for e in entries)
        expect(of(others) == of(wanted.elements()), f"{single}: not the calls of {bound} ns and more")
        expect(len(others) <= single + sum(14 <= e.more & 31 <= 16 for e in whole.entries), f"{single}: {len(others)} entries")
        expect("together in runs" in scene.said, scene.said)
        compare(f"--single {single}", page.sums(), functions)
        places = collections.defaultdict(list)
        for entry in page.entries:
            places[entry.thread, entry.stack, entry.depth].append(entry)
        for key, row in places.items():
            expect(all(a.end <= b.begin for a, b in zip(row, row[1:])), f"{single}: entries of {key} overlap")
        for entry in parts:
            callers = places[entry.thread, entry.stack, entry.depth - 1]
            expect(entry.depth == 0 or sum(c.begin <= entry.begin and entry.end <= c.end and not c.more & IS_RUN for c in callers) >= 1,
                   f"{single}: a run is in no call: {entry}")
    return f"{len(whole.entries)} entries"


@case
def doubts(scene):
    """A program that is killed: its calls are open; output and crash are there, with the time and the thread."""
    scene.own("crash")
    page = scene.page()
    expect(page.about["open"] == sum(14 <= entry.more & 31 <= 16 for entry in page.entries) != 0, "open calls")
    [crash] = page.about["crashes"]
    expect(crash["crash"]["name"] == "SIGSEGV" and crash["in_range"], str(crash)[:300])
    wild = next(entry for entry in page.entries if entry.name == "wild")
    expect(wild.begin <= crash["ns"] <= wild.end + 10_000_000, f"{wild} and a crash at {crash['ns']}")
    [line] = [line for line in page.about["output"] if "a line" in line[4]]
    expect(line[3] == 1 and line[4] == "a line </script><script>alert(1)</script>\n", str(line))
    asked = [json.loads(text) for text in scene.run(scene.contrail, "output", "--json", scene.trace).splitlines()]
    expect([(item["time_ns"], item["tid"], item["text"]) for item in asked if item["bytes"]] == [(item[0], item[2], item[4]) for item in page.about["output"]],
           "other output")


@case
def values(scene):
    """Arguments and results, as replay shows them."""
    scene.own(options=("--detail", "slow"))
    page = scene.page()
    slow = [entry for entry in page.entries if entry.name == "slow"]
    expect(len(slow) == 10, f"{len(slow)} calls")
    for entry in slow:
        text = page.values.get((entry.thread, entry.ordinal, 0))
        expect(text == "us=500", f"the argument is {text}")
        expect(page.values.get((entry.thread, entry.ordinal, 1)) == " = 1500", f"the result is {page.values.get((entry.thread, entry.ordinal, 1))}")
    return f"{len(page.values)} values"


@case
def away(scene):
    """Stretches off the processor are those of replay."""
    scene.own()
    page = scene.page()
    threads = page.about["threads"]
    lines = [line for line in scene.lines() if line["kind"] == "off"]
    found = collections.Counter((threads[thread]["tid"], end - begin) for thread, begin, end, reason in page.away if reason in (1, 2))
    wanted = collections.Counter((line["tid"], line["duration_ns"]) for line in lines)
    if not page.about["off_is_bound"]:
        expect(sum(found.values()) >= 10, f"{len(page.away)} stretches: the program sleeps ten times")
        near = sum(1 for (tid, ns), count in wanted.items() if any((tid, ns + d) in found for d in (-1, 0, 1)) and count)
        expect(near == len(wanted), f"{near} of {len(wanted)} stretches of replay")
    return f"{len(page.away)} stretches"


@case
def sampled(scene):
    """Points stand for several calls: the page has their sum, and says that it is estimated."""
    scene.own(options=("--mode", "light", "--sample", "16"))
    page = scene.page()
    rows = {row["name"]: row for row in json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"]}
    compare("sampled", page.sums(), scene.functions(), columns=1)
    stand = collections.Counter()
    for row in page.about["functions"]:
        stand[row[0]] += row[11]
        expect((row[6] is None) == (rows[row[0]]["total_ns"] is None), f"{row}: its time, {rows[row[0]]}")
    expect(stand["leaf"] > 50 and stand["leaf"] == rows["leaf"]["calls"] - rows["leaf"]["recorded"], f"{stand['leaf']}: {rows['leaf']}")
    expect(sum(entry.calls for entry in page.entries if entry.name == "leaf") == rows["leaf"]["calls"], "calls of the entries")
    return f"{sum(stand.values())} calls that others stand for"


@case
def damaged(scene):
    """A thread's file that is cut: what is there is shown, and the damage is said."""
    scene.own()
    path = max((os.path.join(folder, name) for folder, _, names in os.walk(scene.trace) if os.path.basename(folder).startswith("thread")
                for name in names), key=os.path.getsize)
    os.truncate(path, os.path.getsize(path) * 2 // 3)
    page = scene.page()
    expect(page.about["damaged"] == 1, f"{page.about['damaged']} damaged threads")
    expect("damaged or cut" in scene.said and len(page.entries) > 0, scene.said)
    compare("damaged", page.sums(), scene.functions(), columns=3)
    expect(own_calls(page) == replayed(scene.lines()), "other calls than replay has")


# ---- the page ----

@case
def markup(scene):
    """Whatever the names are, the page has the elements that it has, runs only its own script, and loads nothing."""
    scene.own()
    page = scene.page()
    expect(any(name.startswith("=x\"'</script><b>&]]><!--\\") for name in page.sums()), "the odd name")
    tags = collections.Counter(tag for tag, _ in page.elements.tags)
    expect(tags["script"] == 3 and tags["style"] == 1 and tags["b"] == 0 and not tags["img"] + tags["link"] + tags["iframe"], str(tags))
    expect(page.text.count("</script") == 3 and page.text.count("<script") == 3 and "<!--" not in page.text, "script elements")
    for tag, attrs in page.elements.tags:
        expect(not {"src", "href", "style", "onclick", "onload"} & set(attrs), f"{tag}: {attrs}")
    policy = next(attrs["content"] for tag, attrs in page.elements.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    digest = lambda text: "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
    [style] = ["".join(parts) for tag, _, parts in page.elements.contents if tag == "style"]
    [script] = ["".join(parts) for tag, attrs, parts in page.elements.contents if tag == "script" and "id" not in attrs]
    expect(policy == f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; base-uri 'none'; form-action 'none'", policy)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setAttribute('on", "http:", "https:", "fetch(", "import("):
        expect(word not in script, f"the script has {word}")


class Browser:
    """Chromium, over its debugging pipe."""
    def __init__(self, scene, dark=False):
        program = harness.need("chromium")
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars",
                 "--window-size=1400,900", "--no-first-run", "--disable-background-networking", f"--user-data-dir={scene.path('profile')}", "about:blank"]
        high = [os.dup2(to_read, 100), os.dup2(from_write, 101)]
        self.process = subprocess.Popen(["bash", "-c", 'exec "$@" 3<&100 4>&101', "sh", *words], pass_fds=high, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for fd in (to_read, from_write, *high):
            os.close(fd)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def message(self):
        while b"\0" not in self.rest:
            data = os.read(self.back, 1 << 20)
            expect(data, "Chromium has ended")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        words = {"id": self.number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(words).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                expect("error" not in answer, f"{method}: {answer.get('error')}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        expect("exceptionDetails" not in result, f"{expression}: {result}")
        return result["result"].get("value")

    def open(self, path, place=""):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + path + place)
        harness.wait_for("the page", lambda: self.value("document.documentElement?.dataset.state || ''") in ("ready", "failed"))
        expect(self.value("document.documentElement.dataset.state") == "ready", self.value("document.getElementById('summary')?.textContent || ''"))

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if kind == "keyDown" and len(key) == 1 else {}))
        self.settle()

    def settle(self):
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def data(self, name):
        return self.value(f"document.documentElement.dataset.{name}")

    def drawn(self):
        return json.loads(self.data("drawn"))

    def text(self, element):
        return self.value(f"document.getElementById('{element}').textContent")

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def errors(self):
        """What went wrong, or was asked of a network."""
        bad = [e for e in self.events if e.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")]
        loads = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return bad + [url for url in loads if not url.startswith(("file:", "about:", "blob:", "data:"))]

    def close(self):
        os.close(self.to)
        os.close(self.back)
        self.process.terminate()
        self.process.wait()


def browse(function):
    """The case gets a browser, which is closed, and must not have found anything wrong."""
    def play(scene):
        browser = Browser(scene)
        try:
            said = function(scene, browser)
            expect(browser.errors() == [], f"errors: {str(browser.errors())[:600]}")
            return said
        finally:
            browser.close()
    play.__name__, play.__doc__ = function.__name__, function.__doc__
    return case(play)


@browse
def drawn(scene, browser):
    """What Chromium draws is what there is: each entry of the stretch in sight, one by one or together."""
    scene.own("crash")
    page = scene.page()
    browser.open(scene.path("view.html"))
    expect(int(browser.data("entries")) == len(page.entries), "entries")
    count = f"{sum(row[5] for row in page.about['functions']):,}"
    expect(count + " calls of 3 threads" in browser.text("summary"), browser.text("summary"))
    browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=3000, deviceScaleFactor=1, mobile=False)
    browser.settle()
    drawn = browser.drawn()
    expect(drawn["single"] + drawn["merged"] == len(page.entries) and drawn["runs"] == 0, f"{drawn} of {len(page.entries)}")
    expect(drawn["outputs"] == len(page.about["output"]), str(drawn))
    wide = (page.about["end_ns"] or 1) / 1000  # a pixel or more: such a call is drawn by itself
    expect(drawn["single"] >= sum(entry.end - entry.begin > 2 * wide for entry in page.entries) > 5, f"{drawn}: long calls are not drawn")
    main = next(entry for entry in page.entries if entry.name == "thread")
    begin, end = main.begin, main.end
    browser.open(scene.path("view.html"), f"#from={begin}&to={end}")
    browser.settle()
    wanted = sum(entry.begin <= end and entry.end > begin or begin <= entry.begin <= end for entry in page.entries)
    drawn = browser.drawn()
    expect(abs(drawn["single"] + drawn["merged"] - wanted) <= 4, f"{drawn} of {wanted} in sight")
    expect(len(browser.picture()) > 15000, "an empty picture")
    return f"{drawn['single']} single, {drawn['merged']} merged"


@browse
def drawn_runs(scene, browser):
    """Runs are drawn, and said with their number."""
    scene.own()
    page = scene.page("--single", "100")
    browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=3000, deviceScaleFactor=1, mobile=False)
    browser.open(scene.path("view.html"))
    drawn, about = browser.drawn(), page.about
    expect(drawn["single"] + drawn["runs"] + drawn["merged"] == len(page.entries) == about["single"] + about["runs"], f"{drawn}, {about['runs']} runs")
    number = f"{about['in_runs']:,}"
    expect(number + " short ones are together" in browser.text("summary"), browser.text("summary"))
    expect(number + " calls shorter than" in browser.text("known"), browser.text("known"))


@browse
def details(scene, browser):
    """A call that is selected: its name, times, parents, values; arrows go to its caller and back; the address keeps it."""
    scene.own(options=("--detail", "slow"))
    page = scene.page()
    browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=3000, deviceScaleFactor=1, mobile=False)
    browser.open(scene.path("view.html"), "#search=/^(slow|deep)$/")
    wanted = sum(entry.name in ("slow", "deep") for entry in page.entries)
    expect(browser.drawn()["hits"] == wanted, f"{browser.drawn()}: {wanted} calls match")
    browser.open(scene.path("view.html"), "#search=/^slow$/")
    browser.key("n")
    said = browser.text("details")
    slow = min((entry for entry in page.entries if entry.name == "slow"), key=lambda entry: entry.begin)
    for part in ("slow", "us=500", "result1500", "main", f"{slow.begin / 1e9:.9f} s", "returned"):
        expect(part in said, f"{part} is not said: {said}")
    calls = page.sums()["slow"][0]
    expect(browser.text("found") == f"1 function, {calls} call{'' if calls == 1 else 's'}", browser.text("found"))
    # The address follows some time later, so each one is waited for.
    harness.wait_for("the address", lambda: "entry=" in browser.value("location.hash"))
    place = browser.value("location.hash")
    browser.key("ArrowUp")
    expect(browser.text("details").startswith("main"), browser.text("details"))
    harness.wait_for("the caller's address", lambda: browser.value("location.hash") != place)
    place = browser.value("location.hash")
    browser.key("ArrowDown")
    harness.wait_for("the called one's address", lambda: browser.value("location.hash") != place)
    place, said = browser.value("location.hash"), browser.text("details")
    browser.open(scene.path("view.html"), place)
    expect(browser.text("details") == said, "the address shows another call")
    time.sleep(0.4)  # nothing may change it later
    expect(browser.value("location.hash") == place, f"{browser.value('location.hash')}, not {place}")
    browser.open(scene.path("view.html"), "#view=x&entry=99999999&from=z&to=3&path=-4&sort=y&theme=q&weight=w&search=/(/")
    expect(browser.text("found") == "no such expression", browser.text("found"))


@browse
def keys(scene, browser):
    """w and s, a and d change what is in sight; 1, 2, 3 the view; t the colours; / goes to the search, ? shows the keys."""
    scene.own()
    scene.page()
    browser.open(scene.path("view.html"))
    place = lambda: [float(browser.value(f"new URLSearchParams(location.hash.slice(1)).get('{name}')")) for name in ("from", "to")]

    def after(key):
        before = browser.value("location.hash")
        browser.key(key)
        harness.wait_for("another address", lambda: browser.value("location.hash") != before)
        return place()

    harness.wait_for("an address", lambda: browser.value("location.hash") != "")
    begin, end = place()
    closer = after("w")
    expect(abs((closer[1] - closer[0]) / (end - begin) - 0.7) < 0.01, f"{closer} of {begin} {end}")
    right = after("d")
    expect(right[0] > closer[0] and after("a")[0] < right[0], "to the right and left")
    further = after("s")
    expect(further[1] - further[0] > closer[1] - closer[0], "further")
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.key("t")
    browser.key("t")
    expect(browser.data("theme") == "dark" and browser.value("getComputedStyle(document.body).backgroundColor") != back, "dark")
    browser.key("2")
    expect(browser.data("view") == "flame" and browser.drawn()["frames"] > 5, browser.data("drawn"))
    browser.key("3")
    expect(browser.data("view") == "table", browser.data("view"))
    browser.key("/")
    expect(browser.value("document.activeElement.id") == "search", "the search")
    browser.key("Escape")
    browser.key("?")
    expect(browser.value("document.getElementById('help').open"), "the keys")


@browse
def crash(scene, browser):
    """The crash is on the time line; a click on it says where it was and what the threads were in."""
    scene.own("crash")
    page = scene.page()
    ns = page.about["crashes"][0]["ns"]
    browser.open(scene.path("view.html"), f"#from={ns - 1000000}&to={ns + 1000000}")
    box = browser.value("(() => { const box = document.getElementById('timeline').getBoundingClientRect(); return [box.x, box.y, box.width]; })()")
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + box[2] / 2 + 20, y=box[1] + 30, button="left", clickCount=1)
    browser.settle()
    said = browser.text("details")
    for part in ("SIGSEGV: nothing is mapped there", "0x10", "wild", "main", "Last calls"):
        expect(part in said, f"{part} is not said: {said}")


@browse
def flame(scene, browser):
    """The flame graph is as wide as the report's self times together; a click goes into a frame, a weight is chosen."""
    scene.own()
    page = scene.page()
    browser.open(scene.path("view.html"), "#view=flame&weight=calls")
    calls = sum(row[0] for row in scene.functions().values())
    expect(f"{calls:,}" + " calls in all" in browser.text("flamenote"), browser.text("flamenote"))
    frames = browser.drawn()["frames"]
    expect(5 < frames <= len(page.paths), f"{frames} frames of {len(page.paths)} paths")
    box = browser.value("(() => { const box = document.getElementById('flamegraph').getBoundingClientRect(); return [box.x, box.y]; })()")
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 20, y=box[1] + 8, button="left", clickCount=1)
    browser.settle()
    expect(browser.text("details").startswith(page.paths[0][1] + "calls"), f"{page.paths[0]}: {browser.text('details')}")
    harness.wait_for("the address", lambda: "path=0" in browser.value("location.hash"))


@browse
def losses(scene, browser):
    """Events that the recording lost are marked where they were lost, counted, and what is uncertain says so."""
    source = scene.write("burst.c", "static volatile long n;\n__attribute__((noinline)) void leaf(void) { n++; }\n"
                         "int main(void) { for (long i = 0; i < 400000; i++) leaf(); return 0; }\n")
    scene.run("gcc", "-O1", "-o", scene.path("burst"), source)
    scene.record("-q", "--no-wait", "--ring-size", "1", "--", scene.path("burst"))
    dropped = scene.info()["dropped"]
    if dropped == 0:
        raise harness.Skip("no event was lost")
    page = scene.page("--single", "2000")
    expect(page.about["lost"] == dropped == sum(events for _, _, events in page.lost), f"{page.about['lost']} of {dropped}")
    compare("losses", page.sums(), scene.functions(), columns=1)
    browser.open(scene.path("view.html"))
    expect(f"{dropped:,}" + " events lost" in browser.text("summary"), browser.text("summary"))
    expect(len(page.entries) < 5000 and page.about["in_runs"] + page.about["single"] == page.about["spans"], str(page.about["in_runs"]))
    return f"{dropped} lost"


@browse
def table(scene, browser):
    """The table has the report's functions and calls; names are text, whatever they are."""
    scene.own()
    scene.page()
    browser.open(scene.path("view.html"), "#view=table&sort=calls")
    rows = browser.value("[...document.querySelectorAll('#rows tr')].map(row => [...row.children].map(cell => cell.textContent))")
    wanted = collections.Counter()
    for row in json.loads(scene.run(scene.contrail, "report", "--json", scene.trace))["functions"]:
        wanted[row["name"], row["module"].rsplit("/", 1)[-1]] += row["calls"]
    wanted = {key: calls for key, calls in wanted.items()}
    shown = {(row[0], row[1]): int(row[2].replace(",", "")) for row in rows}
    bare = lambda name: re.sub("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", "\ufffd", name)
    expect(shown == {(bare(name), module): calls for (name, module), calls in wanted.items()} and len(rows) < 500,
           f"{len(shown)} rows: {set(shown.items()) ^ set((k, v) for k, v in wanted.items())}"[:500])
    calls = [int(row[2].replace(",", "")) for row in rows]
    expect(calls == sorted(calls, reverse=True), "the order")
    expect(browser.value("document.querySelectorAll('#rows b, #rows script').length") == 0, "names became markup")
    browser.value("[...document.querySelectorAll('#rows button')].find(button => button.textContent.startsWith('=x')).click()")
    expect("</script><b>" in browser.text("details"), browser.text("details"))
    return f"{len(rows)} rows"


# ---- words ----

@case
def bad_words(scene):
    """What makes no sense, or cannot be written, is one line and a status; nothing is written over."""
    scene.record("-q", "--", "/bin/true")
    scene.page()
    for status, words, why in ((1, ("-o", scene.path("view.html")), "nothing is written over"), (1, ("-o", "/dev/full"), "No space left"),
                               (1, ("-o", "/nowhere/x"), "No such file"), (2, ("--single", "0"), "single"), (2, ("--function", "["), ""),
                               (2, ("--limit", "3"), "limit"), (2, ("--quiet",), "-o FILE"), (2, ("--thread", "1"), "thread")):
        result = scene.execute(scene.contrail, "html", *words, scene.trace)
        expect(result.returncode == status and why in result.stderr and result.stderr.count("\n") in (1, 2), f"{words}: {result}")
    result = scene.execute(scene.contrail, "html", scene.trace)
    expect(result.returncode == 0 and result.stdout.startswith("<!doctype html>") and result.stdout.rstrip().endswith("</html>"), "standard output")
    result = scene.execute(scene.contrail, "export", "--to", "html", scene.trace)
    expect(result.returncode == 0 and result.stdout.startswith("<!doctype html>"), "export --to html")
    result = scene.execute(scene.contrail, "export", "--to", "html", "--limit", "3", scene.trace)
    expect(result.returncode == 2 and "leave out --limit" in result.stderr, str(result))


if __name__ == "__main__":
    main(__doc__, Scene)
