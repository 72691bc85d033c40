# SPDX-License-Identifier: MIT
"""PyPy's coroutines, whose stacks are copied."""
from _continuation import continulet
def gen(c, n):
    for i in range(n):
        c.switch(i)
    return "end"
def deep(c, n, k):
    return c.switch(k) if n == 0 else deep(c, n-1, k)
def f(c, base):
    for i in range(20): deep(c, 5+base, base*i)
    return "x"
a = continulet(gen, 5)
print([a.switch() for _ in range(6)])
cs = [continulet(f, b) for b in range(6)]
t = 0
while any(c.is_pending() for c in cs):
    for c in cs:
        if c.is_pending():
            r = c.switch()
            if r != "x": t += r
print(t)
