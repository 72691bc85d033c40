# SPDX-License-Identifier: MIT
"""CPython's own regression tests, module by module: each test must come out as it does untraced.

The interpreter is Debian's /usr/bin/python3 with the package libpython3.11-testsuite, or what CT_PYTHON names."""
import os
import re
import subprocess
import xml.etree.ElementTree

from commands.case import NOTHING_RUN, Cases

cases = Cases("cpython")

PYTHON = os.environ.get("CT_PYTHON", "/usr/bin/python3")
# What cannot be compared, and why.
LEFT_OUT = {
    "test_gdb": "runs gdb with python; gdb is a case of its own",
    "test_tools": "tests scripts that Debian does not ship",
    "test_zipfile64": "writes gigabytes",
    "test_largefile": "writes gigabytes",
    "test_bigmem": "needs gigabytes of memory",
    "test_peg_generator": "builds C extensions for ten minutes",
}
# Tests within modules that do not end, or not alike, untraced.
IGNORED_TESTS = {
    "test_socket": ["*VSOCK*"],  # waits forever where the host answers no vsock
}
# Tests that cannot come out alike: (module, pattern over a line of the outcome, mechanism).
KNOWN = []


def outcome(folder, stdout, stderr):
    """One line for each test, from the file that regrtest writes."""
    path = os.path.join(folder, "result.xml")
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        return [f"no result: {type(error).__name__}"] + (stdout + stderr).splitlines()[-12:]
    lines = []
    for test in root.iter("testcase"):
        verdict = "ok"
        for child in test:
            if child.tag in ("failure", "error", "skipped"):
                verdict = child.tag
        if test.get("status") not in (None, "run"):
            verdict = test.get("status")
        lines.append(f"{test.get('name')}: {verdict}")
    if not lines:
        reason = re.search(r"(?m)^test_\w+ skipped -- (.*)", stdout)
        return [f"{NOTHING_RUN}: {reason.group(1) if reason else 'the module has no tests'}"]
    return sorted(lines)


def modules():
    if not os.path.exists(PYTHON):
        return []
    found = subprocess.run([PYTHON, "-m", "test", "--list-tests"], capture_output=True, text=True)
    return found.stdout.split() if found.returncode == 0 else []


def fill():
    for module in modules():
        if module in LEFT_OUT:
            continue
        ignored = "".join(f" -i '{pattern}'" for pattern in IGNORED_TESTS.get(module, []))
        cases(f"cpython {module}", f"t {PYTHON} -m test --junit-xml result.xml -v{ignored} {module}\n",
              needs=PYTHON, outcome=outcome, timeout=600,
              known=[(pattern, why) for name, pattern, why in KNOWN if name == module])


fill()
