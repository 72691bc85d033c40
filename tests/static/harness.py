#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/harness.py itself: what it says of small groups that are written here, in which everything that can happen does."""
import ast
import glob
import importlib
import os
import re
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
from harness import FAMILIES, check, lot, main  # noqa: E402

HEAD = f"import sys\nsys.path.insert(0, {TESTS!r})\nfrom harness import Counts, Scene, Skip, case, expect, main, need, wait_for, Running\n"
GOOD = "@case\ndef good(scene):\n    pass\n"
# What is in the group, the last line, and words that are said.
GROUPS = {
    "a case that returns": (GOOD, "1 passed, 0 failed, 0 skipped", ["ok   group good ("]),
    "facts": ("@case\ndef good(scene):\n    return 'seven'\n", "1 passed, 0 failed, 0 skipped", ["ok   group good: seven ("]),
    "a failure": (GOOD + "@case\ndef bad(scene):\n    expect(1 == 2, 'two is one')\n", "1 passed, 1 failed, 0 skipped",
                  ["FAIL group bad: two is one", "expect(1 == 2", "again: CONTRAIL_TEST_SEED=", " tests/group.py --filter bad"]),
    "an error": ("@case\ndef bad(scene):\n    {}['x']\n", "0 passed, 1 failed, 0 skipped", ["FAIL group bad: KeyError: 'x'"]),
    "a command that fails": ("@case\ndef bad(scene):\n    scene.run('sh', '-c', 'echo why >&2; exit 3')\n",
                             "0 passed, 1 failed, 0 skipped", ["status 3, not 0: why", "command: sh -c "]),
    "a scene that cannot be made": ("class Mine(Scene):\n    def __init__(self, *_):\n        raise OSError('no room')\n" + GOOD,
                                    "0 passed, 1 failed, 0 skipped", ["OSError: no room"]),
    "what was left behind": ("class Mine(Scene):\n    def close(self):\n        print('closed')\n@case\ndef bad(scene):\n    assert 0\n",
                             "0 passed, 1 failed, 0 skipped", ["closed"]),
    "a wait in vain": ("@case\ndef bad(scene):\n    wait_for('rain', lambda: 0, seconds=0.02)\n", "0 passed, 1 failed, 0 skipped",
                       ["waited 0.02 s in vain: rain"]),
    "a program that is missing": (GOOD + "@case\ndef lacks(scene):\n    need('sh', 'no-such-program')\n",
                                  "1 passed, 0 failed, 1 skipped", ["skip group lacks: no no-such-program"]),
    "what runs when a case fails": ("@case\ndef bad(scene):\n    with Running(['sh', '-c', 'trap : TERM; while :; do sleep 0.1; done']):\n"
                                    "        expect(0, 'rain')\n", "0 passed, 1 failed, 0 skipped", ["FAIL group bad: rain"]),
    "an end from outside": (GOOD + "@case\ndef long(scene):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGTERM)\n",
                            "1 passed, 1 failed, 0 skipped", ["ok   group good (", "FAIL group long: ended from outside after 0 s", "line 10: os.kill"]),
    "many in one": ("@case\ndef many(scene):\n    return Counts(5, 0, 2)\n", "5 passed, 0 failed, 2 skipped", []),
    "a forgotten case": (GOOD + "def lost(scene):\n    report = 1\n    return lost(report)\n", "1 passed, 1 failed, 0 skipped",
                         ["line 7: lost is no case"]),
    "a name that another function has for itself": (GOOD + "def lost(scene):\n    pass\ndef other():\n    lost = 1\n    return lost\n",
                                                    "1 passed, 1 failed, 0 skipped", ["lost is no case"]),
    "a function that a case calls": ("def used(scene):\n    pass\n@case\ndef good(scene):\n    used(scene)\n",
                                     "1 passed, 0 failed, 0 skipped", []),
    "comprehensions": (GOOD + "a = {x: 1 for x in 'a'}\nb = {x: 1 for x in 'b'}\n", "1 passed, 0 failed, 0 skipped", []),
    "two of one name": (GOOD + GOOD, "2 passed, 2 failed, 0 skipped", ["good is defined 2 times", "2 cases of this name"]),
    "keywords": ("class Mine(Scene):\n    def __init__(self, options, folder, number):\n        super().__init__(options, folder)\n"
                 "        self.number = number\ndef odd(scene):\n    assert scene.number % 2\n"
                 "for n in (1, 2):\n    case(f'odd/{n}', number=n)(odd)\n", "1 passed, 1 failed, 0 skipped", ["ok   group odd/1", "FAIL group odd/2"]),
}


# And the same where the group chooses, or plays several at a time.
TWO = "@case\ndef one(scene):\n    wait_for('two', lambda: here(scene, 'one', 'two'))\n" \
      "@case\ndef two(scene):\n    wait_for('one', lambda: here(scene, 'two', 'one'))\n" \
      "def here(scene, own, other):\n    open(f'{scene.options.top}/{own}', 'w').close()\n" \
      "    return __import__('os').path.exists(f'{scene.options.top}/{other}')\n"
CHOOSE = "import itertools\ndef choose(cases, options):\n" \
         "    yield from itertools.islice(itertools.cycle(reversed(cases)), 3) if len(cases) > 1 else cases\n"
CHOICES = {
    "a choice of cases": (GOOD + GOOD.replace("good", "other") + CHOOSE, "choose=choose", "3 passed, 0 failed, 0 skipped",
                          ["ok   group other", "ok   group good"]),
    "two at a time": (TWO, "jobs=2", "2 passed, 0 failed, 0 skipped", ["ok   group one", "ok   group two"]),
}


def judge(body, summary, words, *options, more=""):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "group.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(HEAD + body + f"main('', {'Mine' if 'class Mine' in body else 'Scene'}, {more})\n")
        result = subprocess.run([sys.executable, path, "--build", folder, *options], capture_output=True, text=True, timeout=60, check=False)
    said = result.stdout + result.stderr
    faults = [f"does not say {word!r}" for word in words if word not in said]
    if result.stdout.splitlines()[-1:] != [summary]:
        faults.append(f"does not end with {summary!r}")
    if result.returncode != (0 if ", 0 failed" in summary else 1):
        faults.append(f"status {result.returncode}")
    return [f"{fault}: {said.strip()}" for fault in faults]

OTHERS = ("differential/run.py",)  # a program in C, which has its own parts


def says(name, *group, **more):
    @check(f"harness: {name}")
    def it_does(_):
        return judge(*group, **more)


for each_name, each_group in GROUPS.items():
    says(each_name, *each_group)
for each_name, (each_body, each_more, each_summary, each_words) in CHOICES.items():
    says(each_name, each_body, each_summary, each_words, more=each_more)
says("no case of the name", GOOD, "0 passed, 1 failed, 0 skipped", ["no case is named x*"], "--filter", "x*")


SLEEPS = ("time.sleep", "sleep")


def sleeps_without_reason(text):
    """The lines of those that last a constant time, stand in no loop that waits for something, and do not say what for: that nothing
    shows what is waited for says it not."""
    tree, lines = ast.parse(text), text.split("\n")
    loops = [range(node.lineno, node.end_lineno + 1) for node in ast.walk(tree) if isinstance(node, ast.While)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and all(isinstance(word, ast.Constant) for word in node.args):
            _, has_reason, reason = lines[node.lineno - 1].partition("  # ")
            if not any(node.lineno in loop for loop in loops) and not has_reason or "nothing shows" in reason:
                yield node.lineno


@check("harness: no sleep is a guess")
def check_sleeps(_):
    """A case waits for what it needs (wait_for, test points). Who sleeps says why it is a duration that counts."""
    planted = "def f():\n    time.sleep(3)\n    time.sleep(3)  # a duration that counts\n    time.sleep(3)  # nothing shows it\n"
    if list(sleeps_without_reason(planted)) != [2, 4] or list(sleeps_without_reason("while g():\n    time.sleep(3)\ntime.sleep(a)\n")):
        yield "a sleep without a reason is not seen, or one with a reason is"
    for path in sorted(glob.glob(os.path.join(TESTS, "**", "*.py"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if re.search(r"\bsleep\([\d.]+\)(?!.*  # )|nothing shows", text):
            for line in sleeps_without_reason(text):
                yield f"{os.path.relpath(path, TESTS)}:{line}: sleeps for a time that nothing is said of, or guesses"


@check("harness: lots are the same again by their seed")
def lots(_):
    """In all programs; those of other names, of another seed and of another case are others. Who has drawn says by what."""
    body = "from harness import lot\nimport random\n" + "".join(
        f"@case\ndef {name}(scene):\n    return f'{name} {{lot(1).random()}} {{lot(2).random()}} {{random.random()}}'\n" for name in ("one", "two"))
    told = []
    for seed in ("7", "7", "8"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "group.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(HEAD + body + "main('')\n")
            said = subprocess.run([sys.executable, path, "--build", folder], env=dict(os.environ, CONTRAIL_TEST_SEED=seed), capture_output=True,
                                  text=True, timeout=60, check=False).stdout
        if f"by lot: CONTRAIL_TEST_SEED={seed}\n" not in said:
            yield f"does not say the seed: {said}"
        told.append([word for word in said.split() if len(word) > 10 and word.startswith("0.")])
    if told[0] != told[1] or len(told[0]) != 6 or len(set(told[0] + told[2])) != 8:
        yield f"{told}"


@check("harness: failures are said again at the end")
def said_again(_):
    """With what follows them, wherever they stand, and nothing of what went well."""
    lines = ["ok   group one", "FAIL group two: not this\nnor that\n     line 7: expect(0)", "ok   group three", "word", "not ok 1 - four", "# why"]
    said = importlib.import_module("all").reasons(lines)
    wanted = ["FAIL group two: not this", "nor that", "     line 7: expect(0)", "not ok 1 - four", "# why"]
    return [] if said == wanted else [f"{said} and not {wanted}"]


@check("harness: what takes too long is told and ended")
def too_long(_):
    """With what it has left behind; that, too, when it holds the output of what has ended by itself."""
    watch = importlib.import_module("watch")
    watch.END_SECONDS = 2
    for script, seconds, wanted, words in (("sleep 1234 & sleep 1233", 0.5, -15, ("longer than 0.5 s", "sleep 1233", "sleep 1234")),
                                           ("setsid sleep 1235 & exit 3", 60, 3, ("others still hold its output", "sleep 1235"))):
        watched = watch.Watched(["sh", "-c", "echo begun; " + script], dict(os.environ), seconds)
        lines = list(watched.lines())
        status, _ = watched.wait()
        said = "\n".join(watched.fault)
        if lines != ["begun\n"] or status != wanted or watched.all_of_it():
            yield f"{script}: {lines}, status {status}, left: {watched.all_of_it()}"
        yield from (f"{script}: does not say {word!r}: {said}" for word in words if word not in said)


@check("harness: every group begins")
def begins(options):
    """Its options, its cases and what it imports are right as far as that. By lot, a dozen of them: make test begins them all."""
    programs = {words.split()[0] for group in importlib.import_module("all").GROUPS.values() for words in group.programs} - set(OTHERS)
    programs = sorted(programs) if options.long else lot("begins").sample(sorted(programs), 12)
    for program in programs:
        result = subprocess.run([sys.executable, os.path.join(TESTS, program), "--build", options.build, "--list"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        if result.returncode or not result.stdout:
            yield f"tests/{program} --list: status {result.returncode}: {result.stderr.strip()[-300:]}"


@check("harness: each program of a group is played whole")
def whole(_):
    """In its parts, and what is marked at once; with the words that are for all of them, be it the second of its group."""
    every = importlib.import_module("all")
    for name, group in every.GROUPS.items():
        for job in every.jobs_of(name, ["--long"]):
            if job.words is None:
                continue
            is_marked = "--alone" in job.words and "none" not in job.words
            if job.words.count("--part") != (group.parts > 1 and not is_marked) or "--long" not in job.words:
                yield f"{name}: {' '.join(job.words)}"


@check("harness: families of several groups have their members")
def families(_):
    """Each is a case of its file, of no other family, and not all of them are played."""
    for family, (count, *members) in FAMILIES.items():
        if not 0 < count < len(members):
            yield f"{family}: {count} of {len(members)}"
        for member in members:
            group, _, name = member.partition(" ")
            with open(os.path.join(TESTS, group + ".py"), encoding="utf-8") as file:
                found = re.findall(rf'^(@case.*)\n(?:@.*\n)*def {name}\(|^(@case\("{name}".*)', file.read(), re.M)
            if len(found) != 1 or "some=" in "".join(found[0]):
                yield f"{family}: {member}: {found or 'no case'}"


@check("harness: of families that are in several groups some are played")
def family_is_drawn(_):
    """The same number with each seed, whatever the groups are, and others with other seeds."""
    script = ("import harness\nfrom collections import namedtuple\nOne = namedtuple('One', 'name some')\n"
              "for family, (count, *members) in harness.FAMILIES.items():\n"
              "    played = [m for m in members if harness.drawn([One(m.partition(' ')[2], None)], m.partition(' ')[0])]\n"
              "    print(family, len(played) == count, *sorted(played))\n")
    said = {subprocess.run([sys.executable, "-c", script], env=dict(os.environ, CONTRAIL_TEST_SEED=str(seed), PYTHONPATH=TESTS),
                           capture_output=True, text=True, check=True).stdout for seed in range(5)}
    if len(said) < 2 or "False" in "".join(said):
        yield f"{said}"


if __name__ == "__main__":
    main(__doc__)
