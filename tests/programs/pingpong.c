/* SPDX-License-Identifier: MIT */
/* Two threads that take turns by pipes: ping, pong, ping ..., 50 times each. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int a[2], b[2];
__attribute__((noinline)) void
ping(char c)
{
  if (write(a[1], &c, 1) != 1) {
    _exit(3);
  }
}
__attribute__((noinline)) void
pong(char c)
{
  if (write(b[1], &c, 1) != 1) {
    _exit(3);
  }
}
static void *
other(void *x)
{
  char c;
  for (int i = 0; i < 50; i++) {
    if (read(a[0], &c, 1) != 1) {
      _exit(4);
    }
    pong(c);
  }
  return x;
}
int
main(void)
{
  pthread_t t;
  char c;
  pipe(a);
  pipe(b);
  pthread_create(&t, 0, other, 0);
  for (int i = 0; i < 50; i++) {
    ping(i);
    if (read(b[0], &c, 1) != 1) {
      _exit(5);
    }
  }
  pthread_join(t, 0);
  return 0;
}
