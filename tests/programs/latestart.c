/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into contrail attach: what a busy machine does to it once in many thousand times. The thread that waits for
 * the end of --for has just taken the time, makes its descriptor for signals, and gets no processor for a while.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LATE_NS = 100000000 };

int
signalfd(int fd, const sigset_t *mask, int flags)
{
  struct timespec wait = {0, LATE_NS};
  nanosleep(&wait, NULL);
  return (int)syscall(SYS_signalfd4, fd, mask, (size_t)_NSIG / 8, flags);
}
