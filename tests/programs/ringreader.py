#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what contrail steps --ring writes (docs/format.md), up to its end event.

    ringreader.py RING COPY
"""
import mmap
import os
import struct
import sys
import time

END, HEAD_BYTES = struct.pack("<QII", 0, 3, 0), 32


def main():
    path, copy = sys.argv[1:]
    with open(copy, "wb", buffering=0) as out:
        while not os.path.exists(path) or os.path.getsize(path) <= HEAD_BYTES:
            time.sleep(0.01)
        with open(path, "r+b") as file:
            ring = mmap.mmap(file.fileno(), 0)
        while (capacity := struct.unpack_from("<Q", ring, 24)[0]) == 0:
            time.sleep(0.01)
        head, last = 0, b""
        while not last.endswith(END):
            tail, lost = struct.unpack_from("<QQ", ring, 8)
            assert lost == 0 and tail - head <= capacity, (tail, head, lost)
            if tail == head:
                time.sleep(0.01)
            while head < tail:
                at = head % capacity
                part = ring[HEAD_BYTES + at:HEAD_BYTES + at + min(tail - head, capacity - at)]
                out.write(part)
                last = (last + part)[-len(END):]
                head += len(part)
            struct.pack_into("<Q", ring, 0, head)


main()
