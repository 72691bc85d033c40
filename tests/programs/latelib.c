// SPDX-License-Identifier: MIT
// Each line of its input is a command; it answers with its first word, of `late` with all of it, when it is done.
// `open PATH`: a library, by the loader, with a function `late`. `map PATH OFFSET`: the same by itself, so that no
// loader tells of it; `late` lies there in the file. `late N`: so many calls of it.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int (*late)(int);

static void
map_library(const char *path, size_t offset)
{
  struct stat file;
  int fd = open(path, O_RDONLY);
  char *base =
      fd >= 0 && fstat(fd, &file) == 0 ? mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  if (base == MAP_FAILED || mprotect(base + (offset & ~4095ul), 4096, PROT_READ | PROT_EXEC) != 0) {
    exit(1);
  }
  late = (int (*)(int))(base + offset);
}

int
main(void)
{
  char name[8], rest[4096], *end;
  int sum = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  while (scanf("%7s %4095[^\n]", name, rest) == 2) {
    if (strcmp(name, "open") == 0) {
      void *library = dlopen(rest, RTLD_NOW);
      late = library != NULL ? (int (*)(int))dlsym(library, "late") : NULL;
    } else if (strcmp(name, "map") == 0 && (end = strchr(rest, ' ')) != NULL) {
      *end = '\0';
      map_library(rest, strtoul(end + 1, NULL, 16));
    } else {
      for (int i = atoi(rest); i > 0 && late != NULL; i--) {
        sum += late(i);
      }
    }
    printf(strcmp(name, "late") == 0 ? "%s %s\n" : "%s\n", late != NULL ? name : "failed", rest);
  }
  return sum == 1;
}
