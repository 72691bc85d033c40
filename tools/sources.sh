#!/bin/sh
# SPDX-License-Identifier: MIT
# Keeps the plain source lists of src/meson.build and tests/unit/meson.build as the folders are. Writes a
# file only when its content changes, so a build that added no file does not configure again.
#   tools/sources.sh            refresh the lists
#   tools/sources.sh --check    fail when a list is stale (the static tests ask this)
set -eu
cd "$(dirname "$0")/.."
check=${1:-}
status=0

put() { # put PATH < new content; fails when it is stale and is only to be checked
  new=$(mktemp)
  stale=0
  cat >"$new"
  if cmp -s "$new" "$1"; then
    :
  elif [ "$check" = --check ]; then
    echo "$1 is stale: run tools/sources.sh" >&2
    stale=1
  else
    cat "$new" >"$1"
    echo "refreshed $1"
  fi
  rm -f "$new"
  return $stale
}

list() { # list VARIABLE PATTERN...: one Meson files() list, in the order of the names
  variable=$1
  shift
  echo "$variable = files("
  for file in "$@"; do
    [ -e "$file" ] && echo "  '$file',"
  done
  echo ")"
}

src_lists() {
  cd src
  echo "# Written by tools/sources.sh; one list per folder, in the direction of the includes."
  for folder in base ring target x86 plan select process steps debug itrace hook trace drain record control stream span index views export sql mcp cli; do
    list "${folder}_sources" "$folder"/*.c
  done
  list agent_sources agent/*.S agent/*.c
}

unit_lists() {
  cd tests/unit
  echo "# Written by tools/sources.sh; each file is one cmocka program."
  echo "unit_tests = ["
  for file in *.c; do
    [ -e "$file" ] && echo "  '${file%.c}',"
  done
  echo "]"
}

export LC_ALL=C
src_lists | put src/meson.build || status=1
unit_lists | put tests/unit/meson.build || status=1
exit $status
