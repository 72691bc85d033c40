# SPDX-License-Identifier: MIT
"""What /proc tells of processes. Of those that contrail record starts, the program's: not the further one that watches signals."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_GETREGS, WALL = 0x4206, 0x4207, 17, 24, 12, 0x40000000
RAX, ORIG_RAX, ENOSYS = 10, 15, 38
WITNESS = "group-witness\n"


def children_of(pid):
    """The process ids of the children, whichever thread has started them; [] when there is no such process."""
    found = []
    for task in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass # the thread has ended
    return [child for child in found if not is_witness(child)]


def is_witness(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read() == WITNESS
    except OSError:
        return True # it has gone


def stat_of(pid):
    """The words after the name; [] when it has gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def threads_of(pid):
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def state_of(pid):
    """R, S, T, Z and so on; "" when it has gone."""
    return (stat_of(pid) + [""])[0]


def all_stopped(pid):
    """By SIGSTOP, each of its threads: the last one is so some time after the signal was sent."""
    return {(stat_of(f"{pid}/task/{tid}") + [""])[0] for tid in threads_of(pid)} == {"T"}


def ticks_of(pid):
    """How long it has run, in ticks of the clock."""
    words = stat_of(pid)
    return int(words[11]) + int(words[12]) if words else 0


def waits_in(pid, tid):
    """The system call that a thread waits in: its number, its arguments; ["running"] when it runs, [] when it has gone."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def system_call_of(pid):
    """The number of that of the main thread; "running" when it runs, "" when it has gone."""
    return (waits_in(pid, pid) + [""])[0]


FUTEX, NANOSLEEP, PAUSE, POLL, PPOLL, SIGTIMEDWAIT = "202", "230", "34", "7", "271", "128"


def is_pending(pid, number):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return int(re.search(r"ShdPnd:\s*(\w+)", file.read()).group(1), 16) >> (number - 1) & 1 != 0


def ptrace(request, tid, data=None):
    import ctypes  # pylint: disable=import-outside-toplevel # few programs need it, and it takes as long to import as Python to start
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, data) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace of thread {tid}")


@contextlib.contextmanager
def held(tid):
    """One thread of a process stands still, as one does for which there is no processor; by the thread that calls this alone."""
    ptrace(PTRACE_SEIZE, tid)
    ptrace(PTRACE_INTERRUPT, tid)
    os.waitpid(tid, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, tid)


@contextlib.contextmanager
def held_after(tid, call, make):
    """A thread that waits in this system call stands still when that has given something, which make() has made."""
    import ctypes  # pylint: disable=import-outside-toplevel
    registers = (ctypes.c_ulonglong * 27)()
    with held(tid):
        is_made = False
        while True:
            ptrace(PTRACE_GETREGS, tid, ctypes.byref(registers))
            result, number = ctypes.c_longlong(registers[RAX]).value, registers[ORIG_RAX]
            if number == int(call) and result > 0 and is_made:
                break
            ptrace(PTRACE_SYSCALL, tid)
            if number == int(call) and result == -ENOSYS and not is_made: # it has just begun
                make()
                is_made = True
            os.waitpid(tid, WALL)
        yield


@contextlib.contextmanager
def held_at(tid, call, is_made, make):
    """A thread stands still where it is about to make this system call, or has made it, for what make() has given it to do."""
    import ctypes  # pylint: disable=import-outside-toplevel
    registers = (ctypes.c_ulonglong * 27)()
    with held(tid):
        make()
        while True:
            ptrace(PTRACE_SYSCALL, tid)
            os.waitpid(tid, WALL)
            ptrace(PTRACE_GETREGS, tid, ctypes.byref(registers))
            result, number = ctypes.c_longlong(registers[RAX]).value, registers[ORIG_RAX]
            if number == int(call) and (result != -ENOSYS) == is_made:
                break
        yield


def family_of(pid):
    """It and its descendants."""
    found = [pid]
    for member in found:
        found += children_of(member)
    return found


def begin_of(pid):
    """When it began, in ticks; None when it has gone."""
    words = stat_of(pid)
    return words[19] if words else None


def end_family(pid, seconds=5):
    """Asks it to end, and kills what has not ended then: contrail's end is not that of what it records."""
    family, end = {member: begin_of(member) for member in family_of(pid)}, time.monotonic() + seconds
    send(signal.SIGTERM, pid)
    while time.monotonic() < end and state_of(pid) not in ("", "Z"):
        time.sleep(0.02)
    for member, begin in family.items():
        if begin is not None and begin_of(member) == begin: # and no other that has its id now
            send(signal.SIGKILL, member)


def send(number, pid):
    try:
        os.kill(pid, number)
    except OSError:
        pass # it has gone


def peak_kib(words, env=None):
    """The memory that a command has taken at most: of a child of a small program, for what forks it counts, too."""
    small = ("import resource, subprocess, sys\n"
             "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)\n"
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    return int(subprocess.run([sys.executable, "-S", "-c", small, *words], env=env, capture_output=True, text=True, check=True).stdout)
