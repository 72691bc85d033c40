/* SPDX-License-Identifier: MIT */
/* When told to, it loads argv[1] and with that an unwinder, and has exceptions thrown past its own frames. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void (*hurl)(int);

__attribute__((noinline)) static int
down(int n)
{
  if (n == 0) {
    hurl(42);
  }
  int got = down(n - 1);
  __asm__ volatile("" ::: "memory");
  return got + 1;
}

int
main(int argc, char **argv)
{
  char c;
  int good = 0;
  printf("%d\n", (int)getpid());
  fflush(stdout);
  if (argc < 2 || read(0, &c, 1) < 0) {
    return 9;
  }
  void *library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) {
    return 8;
  }
  int (*guard)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "guard");
  hurl = (void (*)(int))dlsym(library, "hurl");
  for (int i = 0; i < 1000; i++) {
    good += guard(down, 10) == 42;
  }
  return good == 1000 ? 3 : 7;
}
