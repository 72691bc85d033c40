#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Writes what follows from the commands' tables of options, as `contrail help --json` gives them, to standard output:

  reference.py CONTRAIL man TEMPLATE    the manual page; see docs/contrail.1.in for the directives
  reference.py CONTRAIL bash|zsh|fish   a completion

What a kind of value or operand ("@trace") means for a shell is here, in KINDS.
"""
import json
import re
import subprocess
import sys

KINDS = ["@file", "@directory", "@trace", "@thread", "@process", "@session", "@program", "@command", "@pattern", "@verb"]


def tables(contrail):
    return json.loads(subprocess.run([contrail, "help", "--json"], check=True, capture_output=True, text=True).stdout)


def check_kinds(commands):
    for command in commands:
        for word in command["operands"] + [word for option in command["options"] for word in option.get("values", [])]:
            if word.startswith("@") and word not in KINDS:
                sys.exit(f"reference.py: contrail {command['name']}: unknown kind {word}")


# ---- the manual page ----

def roff(text):
    """Plain text, so that roff shows it as it is."""
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def heading(option):
    argument = f" \\fI{roff(option['argument'])}\\fR" if "argument" in option else ""
    joined = f"=\\fI{roff(option['argument'])}\\fR" if "argument" in option else ""
    letter = f"\\fB\\-{option['letter']}\\fR{argument}, " if "letter" in option else ""
    return f"{letter}\\fB{roff('--' + option['name'])}\\fR{joined}"


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def synopsis(commands):
    lines = []
    for command in commands:
        for form in command["synopsis"] or [""]:
            words = roff(form)
            words = re.sub(r"\b[A-Z]{2,}\b|\bN\b", r"\\fI\g<0>\\fR", words)
            words = re.sub(r"(?<![\w\\])(\\-\\-[a-z]+(\\-[a-z]+)*|\b(?:add|remove|list)\b)", r"\\fB\1\\fR", words)
            lines.append(f"\\fBcontrail {roff(command['name'])}\\fR {words}".rstrip())
    return "\n.br\n".join(lines)


def option_list(command, commands, block):
    """The entries of one @options block: all options of the command, with the block's own texts where it has some."""
    texts, same, groups = {}, None, {}
    for part in re.split(r'(?m)^\.\\" @(?=option |same )', block):
        if part.startswith("same "):
            same = next(other for other in commands if other["name"] == part.split()[1])
        elif part.startswith("option "):
            names, _, text = part.partition("\n")
            names = [name[2:] for name in names.split()[1:]]
            texts[names[0]] = text.rstrip("\n")
            groups.update({name: names[0] for name in names})
    known = {option["name"]: option for option in command["options"]}
    for name in groups:
        if name not in known:
            sys.exit(f"reference.py: contrail {command['name']} has no option --{name}")
    lines, as_there = [], []
    there = {option["name"]: option["help"] for option in same["options"]} if same else {}
    for name, option in known.items():
        first = groups.get(name, name)
        if first not in texts and there.get(name) == option["help"]:
            as_there.append(name)
        elif first == name:
            members = [other for other in known if groups.get(other, other) == name]
            for n, member in enumerate(members):
                lines += [".TP" if n == 0 else ".TQ", heading(known[member])]
            lines.append(texts.get(name, roff(sentence(option["help"]))))
    if as_there:
        names = ",\n".join(f"\\fB{roff('--' + name)}\\fR" for name in as_there)
        lines = [f".PP\nThese options are as for \\fBcontrail {roff(same['name'])}\\fR:\n{names}.\nAnd there are these:"] + lines
    return "\n".join(lines) + "\n"


def man(commands, version, template):
    with open(template, encoding="utf-8") as file:
        text = file.read()
    by_name = {command["name"]: command for command in commands}
    told = set()

    def expand(match):
        told.add(match[1])
        return option_list(by_name[match[1]], commands, match[2])
    text = re.sub(r'(?ms)^\.\\" @options (\S+)\n(.*?)^\.\\" @end\n', expand, text)
    for command in commands:
        if command["options"] and command["name"] not in told:
            sys.exit(f"reference.py: {template} has no @options {command['name']}")
    text = text.replace('.\\" @synopsis\n', synopsis(commands) + "\n").replace("@version@", version)
    if re.search(r'(?m)^\.\\" @', text):
        sys.exit(f"reference.py: {template}: " + re.search(r'(?m)^\.\\" @.*', text)[0])
    return text


# ---- completions ----

HEADER = """# SPDX-License-Identifier: MIT
# {shell} completion for contrail(1), made by tools/reference.py from the commands' tables of options.
"""

BASH = r"""
# Of each command: its options, and the kinds of its operands. Of each option with an argument: what it may be.
declare -A _contrail_options _contrail_operands _contrail_values
@tables@

# Index of the command's word, or nothing while it is not there.
_contrail_command_index() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      printf '%s' "$i"
      return
    fi
  done
}

# Index of the first operand of record, the program, or nothing while it is not begun.
_contrail_program_index() {
  local i
  for ((i = $1 + 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      printf '%s' $((i + 1))
      return
    elif [[ -n ${_contrail_values[$2:${COMP_WORDS[i]}]+set} ]]; then
      ((i++))
      # bash splits --output=DIR into three words
      [[ ${COMP_WORDS[i]} == = ]] && ((i++))
    elif [[ ${COMP_WORDS[i]} != -* ]]; then
      printf '%s' "$i"
      return
    fi
  done
}

# Thread ids of the trace on the command line, or of the default one.
_contrail_threads() {
  local word dir=contrail.out
  for word in "${COMP_WORDS[@]:2}"; do
    [[ -e $word/manifest.json ]] && dir=$word
  done
  [[ -e $dir/manifest.json ]] || return
  contrail info --json "$dir" 2>/dev/null | sed -n 's/^ *"tid": \([0-9]*\),\{0,1\}$/\1/p'
}

_contrail_sessions() {
  contrail sessions --json 2>/dev/null | sed -n 's/^ *"id": "\(.*\)",$/\1/p'
}

# Adds to COMPREPLY what one kind stands for; words stand for themselves.
_contrail_add() {
  local -a found=()
  case $1 in
    @file)
      compopt -o filenames 2>/dev/null
      mapfile -t found < <(compgen -f -- "$cur")
      ;;
    @directory | @trace)
      compopt -o filenames 2>/dev/null
      mapfile -t found < <(compgen -d -- "$cur")
      ;;
    @thread) mapfile -t found < <(compgen -W "$(_contrail_threads)" -- "$cur") ;;
    @process) mapfile -t found < <(compgen -W "$(ps -u "$EUID" -o pid= 2>/dev/null)" -- "$cur") ;;
    @session) mapfile -t found < <(compgen -W "$(_contrail_sessions)" -- "$cur") ;;
    @program) mapfile -t found < <(compgen -c -- "$cur") ;;
    @command) mapfile -t found < <(compgen -W "${!_contrail_options[*]}" -- "$cur") ;;
    @pattern) mapfile -t found < <(compgen -W '@file: @usercode' -- "$cur") ;;
    @verb) mapfile -t found < <(compgen -W 'add remove list' -- "$cur") ;;
    *) mapfile -t found < <(compgen -W "$1" -- "$cur") ;;
  esac
  COMPREPLY+=("${found[@]}")
}

_contrail() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} index command program kind
  COMPREPLY=()
  # The value of --option=VALUE comes as the words --option = VALUE.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  index=$(_contrail_command_index)
  if [[ -z $index ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${!_contrail_options[*]} --help --version" -- "$cur")
    return
  fi
  command=${COMP_WORDS[index]}
  if [[ ${_contrail_operands[$command]-} == @program ]]; then
    program=$(_contrail_program_index "$index" "$command")
    if [[ -n $program ]] && ((COMP_CWORD >= program)); then
      if declare -F _command_offset >/dev/null; then
        _command_offset "$program"
      elif ((COMP_CWORD == program)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
    fi
  fi
  if [[ -n ${_contrail_values[$command:$prev]+set} ]]; then
    for kind in ${_contrail_values[$command:$prev]}; do
      _contrail_add "$kind"
    done
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${_contrail_options[$command]-}" -- "$cur")
  else
    for kind in ${_contrail_operands[$command]-}; do
      _contrail_add "$kind"
    done
  fi
}

complete -F _contrail contrail
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(commands):
    lines = []
    for command in commands:
        name = command["name"]
        options = ["--" + option["name"] for option in command["options"]] + ["--help"]
        options += ["--"] if command["stops_at_operand"] else []
        lines.append(f"_contrail_options[{name}]={quoted(' '.join(options))}")
        lines.append(f"_contrail_operands[{name}]={quoted(' '.join(command['operands']))}")
        for option in command["options"]:
            if "argument" in option:
                for word in ["--" + option["name"]] + (["-" + option["letter"]] if "letter" in option else []):
                    lines.append(f"_contrail_values[{name}:{word}]={quoted(' '.join(option['values']))}")
    return HEADER.format(shell="bash") + BASH.replace("@tables@", "\n".join(lines))


ZSH_KINDS = {"@file": "_files", "@directory": "_files -/", "@trace": "_files -/", "@thread": "_contrail_thread", "@process": "_contrail_process",
             "@session": "_contrail_session", "@program": "_contrail_program", "@command": "_contrail_command",
             "@pattern": "_contrail_pattern", "@verb": "_contrail_verb"}

ZSH = r"""
_contrail_thread() {
  local word dir=contrail.out
  local -a ids
  for word in $words; do
    [[ -e $word/manifest.json ]] && dir=$word
  done
  [[ -e $dir/manifest.json ]] && ids=(${(f)"$(contrail info --json $dir 2>/dev/null | sed -n 's/^ *"tid": \([0-9]*\),\{0,1\}$/\1/p')"})
  compadd -a ids
}

_contrail_session() {
  local -a ids=(${(f)"$(contrail sessions --json 2>/dev/null | sed -n 's/^ *"id": "\(.*\)",$/\1/p')"})
  compadd -a ids
}

_contrail_process() { compadd -- ${(f)"$(ps -u $EUID -o pid= 2>/dev/null | tr -d ' ')"} }
_contrail_pattern() { compadd -S '' -- @file: @usercode }
_contrail_verb() { compadd -- add remove list }
_contrail_program() { _command_names -e }
# What the program's own completion makes of it.
_contrail_rest() {
  [[ $words[1] == -- ]] && { shift words; (( CURRENT-- )) }
  _normal
}
# Called with options of its caller's in front.
_contrail_either() { local kind; for kind in ${(M)@:#_contrail_*}; do $kind; done }

_contrail_command() {
  local -a commands=(
@commands@
  )
  _describe command commands
}

_contrail() {
  local curcontext=$curcontext state line
  _arguments -C '(- *)'{-h,--help}'[show the commands]' '(- *)'{-V,--version}'[show the version]' \
    ':command:_contrail_command' '*:: :->rest'
  [[ $state == rest ]] || return
  case $words[1] in
@cases@
  esac
}

_contrail "$@"
"""


def zsh_text(text):
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def zsh_action(kinds):
    """What completes a word of these kinds, or one of these words."""
    if not kinds:
        return ""
    if not kinds[0].startswith("@"):
        return "(" + " ".join(kinds) + ")"
    actions = [ZSH_KINDS[kind] for kind in kinds]
    return actions[0] if len(actions) == 1 else "_contrail_either " + " ".join(actions)


def zsh_option(option, command):
    long = "--" + option["name"]
    against = [other for other in option["against"]] + [other["name"] for other in command["options"] if option["name"] in other["against"]]
    excluded = sorted({"--" + name for name in against} | (set() if option["adds_up"] else {long} | ({"-" + option["letter"]} if "letter" in option else set())))
    head = quoted("*" if option["adds_up"] else "(" + " ".join(excluded) + ")")
    argument = ":" + zsh_text(option["argument"]) + ":" + zsh_action(option["values"]) if "argument" in option else ""
    tail = quoted("[" + zsh_text(option["help"]) + "]" + argument)
    takes = "argument" in option
    names = [long + "=" if takes else long] + (["-" + option["letter"] + ("+" if takes else "")] if "letter" in option else [])
    return head + ("{" + ",".join(names) + "}" if len(names) > 1 else names[0]) + tail


def zsh(commands):
    cases = []
    for command in commands:
        specs = [zsh_option(option, command) for option in command["options"]] + ["'(- *)'{-h,--help}'[show the usage]'"]
        if command["stops_at_operand"]:
            specs += ["'(-)1: :" + zsh_action(command["operands"]) + "'", "'*:: :_contrail_rest'"]
        elif command["operands"]:
            specs.append(quoted("*: :" + zsh_action(command["operands"])))
        cases.append(f"    {command['name']})\n      _arguments -s -S \\\n        " + " \\\n        ".join(specs) + "\n      ;;")
    listing = "\n".join("    " + quoted(command["name"] + ":" + zsh_text(command["summary"])) for command in commands)
    return "#compdef contrail\n" + HEADER.format(shell="zsh") + ZSH.replace("@commands@", listing).replace("@cases@", "\n".join(cases))


FISH_KINDS = {"@file": "-F", "@directory": "-xa '(__fish_complete_directories)'", "@trace": "-xa '(__fish_complete_directories)'",
              "@thread": "-xa '(__contrail_threads)'", "@process": "-xa '(__fish_complete_pids)'", "@session": "-xa '(__contrail_sessions)'",
              "@program": "-xa '(__fish_complete_subcommand --fcs-skip=2)'", "@command": "-xa '(__contrail_commands)'",
              "@pattern": "-xa '@file: @usercode'", "@verb": "-xa 'add remove list'"}

FISH = r"""
function __contrail_threads
  set -l dir contrail.out
  for word in (commandline -opc)
    test -e "$word/manifest.json"; and set dir $word
  end
  test -e $dir/manifest.json; and contrail info --json $dir 2>/dev/null | string match -rg '^ *"tid": ([0-9]+),?$'
end

function __contrail_sessions
  contrail sessions --json 2>/dev/null | string match -rg '^ *"id": "(.*)",$'
end

function __contrail_commands
@commands@
end

# Whether the command is the one given.
function __contrail_is
  set -l words (commandline -opc)
  test (count $words) -ge 2; and test $words[2] = $argv[1]
end

complete -c contrail -f
complete -c contrail -n 'test (count (commandline -opc)) -eq 1' -a '(__contrail_commands)'
complete -c contrail -n 'test (count (commandline -opc)) -eq 1' -s h -l help -d 'show the commands'
complete -c contrail -n 'test (count (commandline -opc)) -eq 1' -s V -l version -d 'show the version'
"""


def fish(commands):
    lines = []
    for command in commands:
        test = f"-n '__contrail_is {command['name']}'"
        for option in command["options"] + [{"name": "help", "letter": "h", "help": "show the usage"}]:
            line = f"complete -c contrail {test} -l {option['name']}" + (f" -s {option['letter']}" if "letter" in option else "")
            if "argument" in option:
                values = option["values"]
                if values and values[0].startswith("@"):
                    line += " -r " + FISH_KINDS[values[0]]
                else:
                    line += " -x" + (" -a " + quoted(" ".join(values)) if values else "")
            lines.append(line + " -d " + quoted(option["help"].replace("\\", "\\\\")))
        lines += [f"complete -c contrail {test} {FISH_KINDS[kind]}" for kind in command["operands"]]
    listing = "\n".join(f"  printf '%s\\t%s\\n' {command['name']} {quoted(command['summary'])}" for command in commands)
    return HEADER.format(shell="fish") + FISH.replace("@commands@", listing) + "\n" + "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != (4 if sys.argv[2:3] == ["man"] else 3):
        sys.exit(__doc__)
    json_tables = tables(sys.argv[1])
    commands = json_tables["commands"]
    check_kinds(commands)
    if sys.argv[2] == "man":
        sys.stdout.write(man(commands, json_tables["version"], sys.argv[3]))
    else:
        sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[sys.argv[2]](commands))


if __name__ == "__main__":
    main()
