/* SPDX-License-Identifier: MIT */
/* How long dlopen takes: the libraries named, each once; prints nanoseconds, one line for each. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static long long
now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int
main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    long long begin = now();
    if (dlopen(argv[i], RTLD_NOW) == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    printf("%lld\n", now() - begin);
  }
  return 0;
}
