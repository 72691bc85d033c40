# SPDX-License-Identifier: MIT
"""What a case of tests/transparency.py is.

A case is a bash script that runs in a scratch folder of its own. `t COMMAND...` in it is the command under test: run
as it is the first times, under `contrail record` the last. Everything else in the script runs as always, so that one
case can trace one command, each stage of a pipeline, or what a Makefile calls. What the script writes to stdout and
stderr, its end and the files that it leaves must be equal.

`followed COMMAND...` is the same with --follow, for a command that does its work in children.
`attached COMMAND...` is a command that runs untraced at first and is attached to with --follow again and again, for half a
second each time, up to 20 times.

    case(NAME, SCRIPT,
         needs="PROGRAM...",       else the case is skipped, with the reason
         prepare=SCRIPT,           run once, untraced; each run starts with a copy of the folder as it left it
         normal=[(PATTERN, REPLACEMENT, WHY)...],   for text that differs from run to run untraced; put over stdout and
                                   stderr. The harness runs the case untraced twice and says so when they still differ.
         ignore=[(GLOB, WHY)...],  files whose contents differ from run to run untraced
         unordered=WHY,            lines of stdout and stderr are compared sorted
         outcome=FUNCTION,         FUNCTION(folder, stdout, stderr): lines that are compared in place of stdout, stderr
                                   and files: a test-suite's own verdict, test by test; one line that begins with
                                   NOTHING_RUN when it has left everything out: then the case is skipped
         known=[(PATTERN, MECHANISM)...],  lines of the outcome that may differ: see docs/limits.md
         shows=[TEXT...],          what the untraced run must write to stdout: else the case has tested nothing, and fails
         notes=WHY,                contrail may write lines of its own to stderr
         timeout=SECONDS)          of the untraced run; the traced one has ten times as much

`wait_for COMMAND...` in a script tries until COMMAND succeeds, for a minute at most; a case whose untraced run waits in vain
fails.
"""
import os
import shutil

NOTHING_RUN = "nothing run"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Case:
    def __init__(self, group, name, script, needs="", prepare="", normal=(), ignore=(), unordered="", outcome=None,
                 known=(), notes="", shows=(), timeout=60, environment=None):
        self.group, self.name, self.script, self.needs, self.prepare = group, name, script, needs.split(), prepare
        self.normal, self.ignore, self.unordered, self.outcome = list(normal), list(ignore), unordered, outcome
        self.known, self.notes, self.shows = list(known), notes, list(shows)
        self.timeout, self.environment = timeout, environment or {}

    def missing(self):
        for need in self.needs:
            if need == "root":
                if os.geteuid() != 0:
                    return "not root"
            elif "/" in need:
                if not os.path.exists(need):
                    return f"no {need}"
            elif not shutil.which(need, path=PATH):
                return f"no {need}"
        return None


class Cases:
    """A list that is filled by calls, so that the files of cases read as lists."""

    def __init__(self, group):
        self.group, self.list = group, []

    def __call__(self, name, script, **options):
        self.list.append(Case(self.group, name, script, **options))
