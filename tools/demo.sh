#!/bin/sh
# SPDX-License-Identifier: MIT
# Records a real program and shows what the trace tells. The trace is kept for a look around.
set -eu
cd "$(dirname "$0")/.."
contrail=build/contrail
dir=$(mktemp -d "${TMPDIR:-/tmp}/contrail-demo.XXXXXX")
trace=$dir/python.trace

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
head_of() { # head_of LINES COMMAND...: the first lines, the rest read and dropped so that no writer meets a closed pipe
  lines=$1
  shift
  printf '\n$ %s | head -n %s\n' "$*" "$lines"
  "$@" | sed -n "1,${lines}p"
}

script='
import json, re
words = re.findall(r"\w+", "the quick brown fox jumps over the lazy dog " * 200)
print("words:", len(words), "bytes of JSON:", len(json.dumps(words)))'
show $contrail record -o "$trace" -- /usr/bin/python3 -c "$script"
head_of 40 $contrail info "$trace"
head_of 25 $contrail report "$trace"
head_of 40 $contrail replay --limit 40 "$trace"
printf '\nThe trace stays in %s: try  %s report --json %s\n' "$trace" "$contrail" "$trace"
