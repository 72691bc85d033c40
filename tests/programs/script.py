# SPDX-License-Identifier: MIT
"""What tests/programs.py has Python do: imports, exceptions, foreign calls, threads, a child; the output is the same
in every run and for every version."""
import ctypes
import json
import re
import subprocess
import sys
import threading


class Failure(Exception):
    pass


def descend(depth):
    if depth == 0:
        raise Failure("the bottom")
    try:
        descend(depth - 1)
    finally:
        descend.unwound += 1


descend.unwound = 0
for _ in range(50):
    try:
        descend(20)
    except Failure as failure:
        assert str(failure) == "the bottom"
print("unwound", descend.unwound)

words = re.findall(r"(\w+)\s+(?=\w)", "one two  three four five six seven " * 300)
print("words", len(words), sorted(set(words)))

document = {"numbers": list(range(500)), "nested": [{"key": str(i), "value": i / 3} for i in range(200)]}
assert json.loads(json.dumps(document)) == document
print("json", len(json.dumps(document, sort_keys=True)))

libc = ctypes.CDLL(None)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
values = (ctypes.c_int * 200)(*[(i * 7919) % 1009 for i in range(200)])
libc.qsort(values, len(values), ctypes.sizeof(ctypes.c_int), CALLBACK(lambda a, b: a[0] - b[0]))
print("sorted", list(values) == sorted(values), libc.abs(-5))

total = []


def work(seed):
    total.append(sum((i * seed) % 7 for i in range(5000)))


threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", sorted(total))

child = subprocess.run(["/bin/sh", "-c", "read line; echo child got $line; echo to stderr >&2; exit 3"],
                       input=b"a line\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print("child", child.returncode, child.stdout, child.stderr)
print("done", file=sys.stderr)
sys.exit(5)
