/* SPDX-License-Identifier: MIT */
/* Calls of the C library that fail, in three threads, and one whose -1 is no failure; writes what each was. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TURNS = 200 };

static void *
run(void *argument)
{
  long seen = 0;
  for (int i = 0; i < TURNS; i++) {
    errno = 0;
    close(1000 + i);
    seen += errno == EBADF;
    open("/etc", O_WRONLY);
    seen += errno == EISDIR;
  }
  return (void *)seen;
}

int
main(void)
{
  pthread_t threads[3];
  char byte;
  long seen = 0;
  if (open("/nonexistent", O_RDONLY) == -1) {
    printf("open %s\n", strerrorname_np(errno));
  }
  if (read(998, &byte, 1) == -1) {
    printf("read %s\n", strerrorname_np(errno));
  }
  if (mmap(NULL, 0, PROT_NONE, 0, -1, 0) == MAP_FAILED) {
    printf("mmap %s\n", strerrorname_np(errno));
  }
  if (lseek(0, -5, 77) == -1) {
    printf("lseek %s\n", strerrorname_np(errno));
  }
  if (atoi("-1") == -1) {
    printf("atoi -\n");
  }
  for (int i = 0; i < 3; i++) {
    pthread_create(&threads[i], NULL, run, NULL);
  }
  for (int i = 0; i < 3; i++) {
    void *result;
    pthread_join(threads[i], &result);
    seen += (long)result;
  }
  printf("threads %ld\n", seen);
  return 0;
}
