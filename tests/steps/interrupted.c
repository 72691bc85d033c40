/* SPDX-License-Identifier: MIT */
/*
 * System calls that a timer's signal interrupts: those that fail by it, and those that are made again when the handler
 * returns, by what the call is and by what the handler's action says (signal(7)): for tests/equal.py.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static int ends[2];
static volatile int alarms, writes;

static void
on_alarm(int number, siginfo_t *info, void *context)
{
  int kept = errno;
  alarms++;
  if (writes != 0 && writes-- != 0 && write(ends[1], "x", 1) != 1) { /* what is made again has something to read then */
    _exit(9);
  }
  errno = kept;
}

static void
set(int flags, int writes_too)
{
  struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | flags};
  struct itimerval timer = {{0, 5000}, {0, 5000}}; /* until the call has begun */
  writes = writes_too;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
}

int
main(void)
{
  int failed = 0, made_again = 0;
  char byte;
  if (pipe(ends) != 0) {
    return 9;
  }
  for (int i = 0; i < ROUNDS; i++) {
    struct timespec second = {1, 0}, left = {0, 0};
    struct pollfd one = {.fd = ends[0], .events = POLLIN};
    set(SA_RESTART, 0);
    failed += nanosleep(&second, &left) != 0 && errno == EINTR && left.tv_nsec > 0;
    set(SA_RESTART, 0);
    failed += poll(&one, 1, 1000) < 0 && errno == EINTR;
    set(SA_RESTART, 0);
    failed += pause() < 0 && errno == EINTR;
    set(0, 0);
    failed += read(ends[0], &byte, 1) < 0 && errno == EINTR;
    set(SA_RESTART, 1);
    made_again += read(ends[0], &byte, 1) == 1;
  }
  printf("%d alarms, %d failed, %d made again\n", alarms, failed, made_again);
  return alarms >= 5 * ROUNDS && failed == 4 * ROUNDS && made_again == ROUNDS ? 0 : 1;
}
