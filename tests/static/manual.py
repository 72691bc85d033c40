#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual page and the completions, which tools/reference.py makes of the commands' tables of options: that the page
is good roff and has a section of each command, and that the shells complete from them what the command takes."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import check, lot, main  # noqa: E402


def built(options, *path):
    with open(os.path.join(options.build, *path), encoding="utf-8") as file:
        return file.read()


def contrail(options, *words):
    return subprocess.run([os.path.join(options.build, "contrail"), *words], check=True, capture_output=True, text=True).stdout


def commands(options):
    return json.loads(contrail(options, "help", "--json"))["commands"]


@check("manual page")
def page(options):
    text = built(options, "contrail.1")
    plain = re.sub(r"\\f[BIR]", "", text).replace("\\-", "-").replace("\\&", "")
    sections = {part.split("\n", 1)[0].split()[-1]: part for part in re.split(r"(?m)^\.SS (?=contrail )", plain)[1:]}
    for command in commands(options):
        name = command["name"]
        if name not in sections:
            yield f"docs/contrail.1.in has no section of contrail {name}"
            continue
        for option in command["options"]:
            if not re.search("--" + option["name"] + r"(?![a-z-])", sections[name]):
                yield f"contrail {name} does not tell of --{option['name']}"
    for name in set(sections) - {command["name"] for command in commands(options)}:
        yield f"docs/contrail.1.in has a section of contrail {name}, which is none"
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=text, capture_output=True, text=True)
        yield from done.stderr.splitlines()


@check("usage")
def usage(options):
    """What the table says is what the usage shows: each option with its letter and argument, on lines that fit."""
    for command in commands(options):
        text = contrail(options, "help", command["name"])
        for option in command["options"]:
            words = (f"-{option['letter']}, " if "letter" in option else "") + f"--{option['name']}"
            words += f" {option['argument']}" if "argument" in option else ""
            if not re.search(r"(?m)^ +" + re.escape(words) + r"(?:  | *$)", text):
                yield f"contrail help {command['name']} does not show {words}"
        yield from (f"contrail help {command['name']}: long line: {line}" for line in text.splitlines() if len(line) > 100)


def entries(section):
    """The text of each option in a section of the page."""
    found, names = {}, []
    for line in section.split("\n"):
        head = re.match(r"(?:-\w(?: [^,]*)?, )?--([\w-]+)(?:=.*)?$", line)
        if head or line in (".TP", ".TQ"):
            names = ([] if line == ".TP" else names) + ([head[1]] if head else [])
        else:
            for name in names:
                found[name] = found.get(name, "") + line + "\n"
    return found


@check("an option says by itself what it does")
def alone(options):
    """Its help does not go on from that of the option before; a text of its own in the page says its default, too."""
    plain = re.sub(r"\\f[BIR]", "", built(options, "contrail.1")).replace("\\-", "-").replace("\\&", "")
    sections = {part.split("\n", 1)[0].split()[-1]: part for part in re.split(r"(?m)^\.SS (?=contrail )", plain)[1:]}
    for command in commands(options):
        texts = entries(sections.get(command["name"], ""))
        for option in command["options"]:
            help_text, text = option["help"], texts.get(option["name"], "")
            if re.match(r"(?:and|the same|likewise|of|by|on|in|at) |without |.*\blikewise$|all in any", help_text):
                yield f"contrail {command['name']}: --{option['name']} goes on from what is before it: {help_text}"
            if "default" in help_text.lower() and text and not re.search(r"(?i)default|without|as for|as in", text):
                yield f"the page of contrail {command['name']} does not tell the default of --{option['name']}"


@check("a letter means one option everywhere")
def letters(options):
    meant = {}
    for command in commands(options):
        for option in command["options"]:
            name = meant.setdefault(option.get("letter"), option["name"])
            if "letter" in option and name != option["name"]:
                yield f"contrail {command['name']}: -{option['letter']} is --{option['name']}, and --{name} elsewhere"


# Of each question the number of its words and these, a line each; of each answer its words, and a line of its own.
BASH = r"""
source "$1"
while IFS= read -r count; do
  COMP_WORDS=()
  for ((i = 0; i < count; i++)); do IFS= read -r word; COMP_WORDS+=("$word"); done
  (
    COMP_CWORD=$((count - 1)) COMPREPLY=()
    _contrail </dev/null
    printf '%s\n' "${COMPREPLY[@]}" the-end
  )
done
"""


def completed(options, questions):
    """The words that complete each of the questions; all are asked of one bash, which takes long to begin."""
    environment = {**os.environ, "PATH": os.path.abspath(options.build) + ":" + os.environ["PATH"]}
    asked = "".join("\n".join([str(len(words) + 1), "contrail", *words]) + "\n" for words in questions)
    done = subprocess.run(["bash", "-c", BASH, "bash", os.path.join(options.build, "completions", "contrail")], input=asked,
                          check=True, capture_output=True, text=True, env=environment)
    return [set(answer.split()) for answer in done.stdout.split("the-end\n")[:-1]]


@check("completion for bash")
def completion(options):
    """bash completes all commands, all options and all values of options that are words; of a quarter of the commands, by lot."""
    everything = commands(options)
    wanted = [([""], [command["name"] for command in everything])]
    for command in everything if options.long else lot("completion").sample(everything, len(everything) // 4):
        name = command["name"]
        wanted.append(([name, "--"], ["--" + option["name"] for option in command["options"]]))
        for option in command["options"]:
            words = [word for word in option.get("values", []) if not word.startswith("@")]
            wanted += [([name, "--" + option["name"], ""], words), ([name, "--" + option["name"], "=", ""], words)]
            if "letter" in option:
                wanted.append(([name, "-" + option["letter"], ""], words))
    wanted.append((["record", "--mode", "full", "--", "/bin/tr"], ["/bin/true"]))
    got = completed(options, [words for words, _ in wanted] + [["record", "true", "--mo"]])
    if len(got) != len(wanted) + 1:
        yield f"{len(got)} answers to {len(wanted) + 1} questions"
    for (words, want), found in zip(wanted, got):
        if not set(want) <= found:
            yield f"contrail {' '.join(words)}: {' '.join(sorted(set(want) - found))} missing"
    if got[-1]:
        yield "the program's own options are completed as record's"


@check("completions for zsh and fish")
def other_shells(options):
    for shell, name in (("zsh", "_contrail"), ("fish", "contrail.fish")):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", os.path.join(options.build, "completions", name)], capture_output=True, text=True)
            yield from done.stderr.splitlines()
        text = built(options, "completions", name)
        for command in commands(options):
            for option in command["options"]:
                if not re.search(r"(?<![\w-])" + ("--" if shell == "zsh" else "-l ") + option["name"] + r"(?![\w-])", text):
                    yield f"{name} does not know --{option['name']} (contrail {command['name']})"


if __name__ == "__main__":
    main(__doc__)
