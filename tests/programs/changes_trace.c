/* SPDX-License-Identifier: MIT */
/* Calls functions, and changes a file of the trace that is being made of that: changes_trace DIR/FILE HOW. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 64 };

__attribute__((noinline)) static int
fib(int n)
{
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static int
change(const char *path, const char *how)
{
  char other[4096];
  snprintf(other, sizeof(other), "%s.other", path);
  if (strcmp(how, "cut") == 0) {
    return truncate(path, HEADER);
  }
  if (strcmp(how, "take") == 0) {
    return rename(path, other);
  }
  FILE *file = fopen(strcmp(how, "append") == 0 ? path : other, "a");
  if (file == NULL || fputs("not a block\n", file) < 0 || fclose(file) != 0) {
    return -1;
  }
  return strcmp(how, "replace") == 0 ? rename(other, path) : 0;
}

/* No call: it would be recorded. */
__attribute__((always_inline)) static inline long
size_of(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 ? (long)st.st_size : 0;
}

int
main(int argc, char **argv)
{
  int sum = 0;
  for (int i = 0; i < 3000 && access(argv[1], F_OK) != 0; i++) {
    usleep(10000);
    sum += fib(8);
  }
  sum += fib(20);
  for (long i = 0, before = -1; i < 300 && (size_of(argv[1]) <= HEADER || size_of(argv[1]) != before); i++) {
    before = size_of(argv[1]);
    usleep(200000); /* until that is written */
  }
  if (argc == 3 && strcmp(argv[2], "none") != 0 && change(argv[1], argv[2]) != 0) {
    perror(argv[2]);
    return 1;
  }
  sum += fib(20);
  printf("%d\n", sum > 0);
  return 0;
}
