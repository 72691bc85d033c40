// SPDX-License-Identifier: MIT
// Each line of its input is `FUNCTION N`: so many calls; it answers when they are done.
#include <stdio.h>
#include <string.h>
static volatile int seen;
__attribute__((noinline)) void
first(int i)
{
  seen = i;
}
__attribute__((noinline)) void
second(int i)
{
  seen = i + 1;
}
__attribute__((noinline)) void
third(int i)
{
  seen = i + 2;
}
int
main(void)
{
  char name[32];
  int n;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (scanf("%31s %d", name, &n) == 2) {
    for (int i = 0; i < n; i++) {
      strcmp(name, "first") == 0 ? first(i) : strcmp(name, "second") == 0 ? second(i) : third(i);
    }
    printf("%s %d\n", name, n);
  }
  return 7;
}
