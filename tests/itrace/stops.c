/* SPDX-License-Identifier: MIT */
/*
 * For tests/itracerecords.py: does what its input says, a letter a time, counts it and says the count: 'n' nothing
 * more, 's' by a signal's handler, 'e' execs itself (which counts from 100 on), 'q' ends.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile int count;

__attribute__((noinline)) static void
counted(void)
{
  count++;
}

static void
handle(int number)
{
  (void)number;
  counted();
}

int
main(int argc, char **argv)
{
  char letter;
  signal(SIGUSR1, handle);
  count = argc > 1 ? 100 : 0;
  do {
    printf("%d\n", count);
    fflush(stdout);
    if (read(0, &letter, 1) != 1) {
      return 1;
    }
    if (letter == 's') {
      raise(SIGUSR1);
    } else {
      counted();
    }
    if (letter == 'e') {
      execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    }
  } while (letter != 'q');
  return 7;
}
