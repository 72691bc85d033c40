#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Words that no command understands: one line on stderr that says what is wrong, status 2, nothing on stdout.

    tests/usage.py [--filter PATTERN] [--build DIR]
"""
import os
import shutil

from harness import Scene, case, main


def usage_error(scene, words, part, guesses=False):
    result = scene.execute(scene.contrail, *words)
    got, out, err = result.returncode, result.stdout, result.stderr
    if got != 2 or out or len(err.splitlines()) != 1 or part not in err or ("perhaps" in err) != guesses:
        raise AssertionError(f"status {got}, stdout {out!r}, stderr {err!r}")


@case
def mistyped(scene):
    """A command or an option that is nearly one of ours: the one that may be meant is named."""
    for words, hint in [(["reprot"], "perhaps report?"), (["recrod", "--", "true"], "perhaps record?"),
                        (["report", "--functoin", "x"], "perhaps --function?"),
                        (["record", "--exculde=x", "--", "true"], "perhaps --exclude?"), (["frobnicate"], "unknown command"),
                        (["plan", "--frobnicate", "x"], "unknown option")]:
        usage_error(scene, words, hint, "perhaps" in hint)


@case
def said_otherwise(scene):
    """A trace where the function is wanted, a thread by its name, a variable by its name, a table's columns: each tells how."""
    trace = scene.path("t")
    scene.execute(scene.contrail, "record", "-q", "-o", trace, "--", "/bin/true")
    usage_error(scene, ["slowest", trace], "give a function before it")
    usage_error(scene, ["replay", "--thread", "main", trace], "contrail report --by thread shows them")
    told = scene.execute(scene.contrail, "sql", trace, ".schema spans")
    assert told.returncode == 0 and "duration" in told.stdout, told
    told = scene.execute(scene.contrail, "sql", trace, "SELECT name FROM spans")
    assert told.returncode != 0 and "no such column: name; .tables" in told.stderr, told
    usage_error(scene, ["export", "--to", "perfeto", trace], "there is no format 'perfeto': folded chrome perfetto")
    for word, instead in (("callers", "report --callers FUNCTION"), ("flamegraph", "--to flamegraph"), ("ls", "contrail sessions")):
        told = scene.execute(scene.contrail, word, "x")
        assert told.returncode == 2 and instead in told.stderr, told
    os.symlink(trace, scene.path("contrail.out"))
    shutil.copy("/bin/true", scene.path("here-only"))
    usage_error(scene, ["graph", "main"], "contrail graph main contrail.out")
    told = scene.execute(scene.contrail, "record", "-o", scene.path("u"), "here-only")
    assert told.returncode == 127 and "not found in PATH; here: ./here-only" in told.stderr, told
    told = scene.execute(scene.contrail, "sql", trace, ".nosuch")
    assert told.returncode != 0 and ".tables, .schema TABLE" in told.stderr, told
    scene.execute(scene.contrail, "itrace", "-q", "-o", scene.path("steps"), "--", "/bin/sh", "-c", "kill -SEGV $$")
    told = scene.execute(scene.contrail, "steps", scene.path("steps"), "--last-write", "count")
    assert told.returncode != 0 and "print &NAME" in told.stderr, told
    told = scene.execute(scene.contrail, "info", scene.path("steps"))
    assert "by SIGSEGV" in told.stdout and "contrail steps --tail" in told.stdout and "nothing more" not in told.stdout, told


@case
def given_twice(scene):
    """An option with a value replaces no earlier one silently: it is refused, or adds up."""
    for words in [["report", "--sort", "self", "-s", "calls"], ["replay", "-n", "3", "--limit", "4"], ["report", "-F", "a", "-f", "b"],
                  ["record", "-o", "a", "--output", "b", "--", "true"], ["plan", "--mode", "full", "--mode", "light", "/bin/true"]]:
        usage_error(scene, words, "is given twice")
    result = scene.execute(scene.contrail, "plan", "--exclude", "main", "--exclude", "exit", "/bin/true")
    if result.returncode != 0:
        raise AssertionError(f"--exclude does not add up: {result.stderr}")


@case
def words_repeated(scene):
    """What a line repeats of a wrong word is printable: no line end, nothing that drives a terminal."""
    for words in [["record", "--last", "5\n", "--", "true"], ["report", "--by", "\x1b[2J"], ["\x1b]0;x\x07"], ["report", "--s\x1b[2J", "x"],
                  ["record", "--on", "\x01\x1b[31m > 1ms", "--", "true"], ["replay", "--thread", "a\xc2\x9b31m"]]:
        usage_error(scene, words, "?")
        err = scene.execute(scene.contrail, *words).stderr
        assert err[-1:] == "\n" and not any(ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0 for c in err[:-1]), err


@case
def numbers_are_decimal(scene):
    """strtod also takes 0x10, a blank before, and a sign."""
    for option, unit in [("--last", "s"), ("--last", "M"), ("--max-size", "M"), ("--pre", "s"), ("--budget", "%")]:
        for number in ("0x10", " 10", "+10"):
            usage_error(scene, ["record", option, number + unit, "--", "true"], "takes a")
    usage_error(scene, ["record", "--on", "main > 0x10ms", "--", "true"], "0x10ms")
    usage_error(scene, ["attach", "--for", "0x10s", "1"], "takes a time")
    usage_error(scene, ["graph", "--min-share", "0x10%"], "is no share")


@case
def contradictions(scene):
    """Two options of which one would silently win are refused; so are operands that nobody looks at."""
    for words in [["report", "--time", "cpu", "--raw"], ["record", "--args", "--no-args", "--", "true"], ["report", "--family", "-t", "1"],
                  ["record", "--no-wait", "--lossless", "--", "true"], ["output", "--stderr", "--stdout"],
                  ["record", "--sample", "2", "--no-sampling", "--", "true"]]:
        usage_error(scene, words, "contradict each other")
    usage_error(scene, ["report", "--s", "x"], "may be one of --sort, --source")
    usage_error(scene, ["report", "--sort", "x"], "--sort 'x' is none of: total self")
    usage_error(scene, ["report", "--json=yes"], "takes no value")
    usage_error(scene, ["help", "report", "replay"], "is too much")
    usage_error(scene, ["version", "x"], "is too much")
    usage_error(scene, ["attach", "--detail", "4711"], "'4711' is the pattern of --detail")


if __name__ == "__main__":
    main(__doc__, Scene)
