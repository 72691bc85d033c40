/* SPDX-License-Identifier: MIT */
/*
 * A thread gets numbers by a real-time signal from another process, more than it can take at once, until SIGTERM: they
 * have to come in their order, and with nothing in between. Status 1 if they do not.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { AT_ONCE = 64, REST_US = 1000 };

static volatile int last, wrong, ends;

static void
take(int number, siginfo_t *info, void *context)
{
  (void)number;
  (void)context;
  wrong |= info->si_code != SI_QUEUE || info->si_value.sival_int != last + 1;
  last = info->si_value.sival_int;
}

static void
end(int number)
{
  (void)number;
  ends = 1;
}

static void
give(pid_t to)
{
  siginfo_t info = {.si_signo = SIGRTMIN, .si_code = SI_QUEUE};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  info.si_pid = getpid();
  info.si_uid = getuid();
  for (int n = 1;; n++) {
    info.si_value.sival_int = n;
    while (syscall(SYS_rt_tgsigqueueinfo, to, to, SIGRTMIN, &info) != 0) {
      usleep(REST_US);
    }
    if (n % AT_ONCE == 0) {
      usleep(REST_US);
    }
  }
}

int
main(void)
{
  struct sigaction action = {.sa_sigaction = take, .sa_flags = SA_SIGINFO | SA_RESTART};
  pid_t self = getpid();
  sigaction(SIGRTMIN, &action, NULL);
  signal(SIGTERM, end);
  puts("ready");
  fflush(stdout);
  if (fork() == 0) {
    give(self);
  }
  while (!ends && !wrong) {
  }
  printf("%s after %d\n", wrong ? "wrong" : "in order", (int)last);
  return wrong;
}
