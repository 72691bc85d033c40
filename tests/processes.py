# SPDX-License-Identifier: MIT
"""Of the processes that contrail record starts, the program's: not the further one that watches signals."""
import os

WITNESS = "group-witness\n"


def children_of(pid):
    """The process ids of the children, whichever thread has started them; [] when there is no such process."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return [child for child in found if not is_witness(child)]


def is_witness(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read() == WITNESS
    except OSError:
        return True # it has gone
