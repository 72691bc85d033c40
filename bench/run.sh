#!/bin/sh
# SPDX-License-Identifier: MIT
# The benchmarks; see bench/run.py --help.
exec "$(dirname "$0")/run.py" "$@"
