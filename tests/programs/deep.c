/* SPDX-License-Identifier: MIT */
/* Calls within calls for some seconds, and then their sum. */
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) long
leaf(long x)
{
  usleep(1000);
  return x + 1;
}
__attribute__((noinline)) long
inner(long n)
{
  long value = 0;
  for (long i = 0; i < n; i++) {
    value = leaf(value);
  }
  return value + 1;
}
__attribute__((noinline)) long
middle(long n)
{
  return inner(n) + 1;
}

int
main(void)
{
  printf("%ld\n", middle(2000));
  return 0;
}
