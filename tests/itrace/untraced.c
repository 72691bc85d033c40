/* SPDX-License-Identifier: MIT */
/* A program with a thread that was made with CLONE_UNTRACED. */
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int done;

static int
other(void *argument)
{
  (void)argument;
  done = 1;
  return 0;
}

int
main(void)
{
  enum { BYTES = 1 << 16 };
  char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int made =
      clone(other, stack + BYTES,
            CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_UNTRACED, NULL);
  while (made > 0 && !done) {
    usleep(1000);
  }
  puts(made > 0 ? "made" : "not made");
  return 0;
}
