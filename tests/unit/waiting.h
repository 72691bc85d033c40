/* SPDX-License-Identifier: MIT */
/* Until another thread waits for something: one that has no processor goes on by itself. */
#ifndef CT_TEST_WAITING_H
#define CT_TEST_WAITING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool
is_waiting(pid_t tid)
{
  char path[100], text[500] = "";
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
  FILE *file = fopen(path, "r");
  bool is_read = file != NULL && fgets(text, sizeof(text), file) != NULL;
  if (file != NULL) {
    fclose(file);
  }
  const char *name_end = strrchr(text, ')');
  return is_read && name_end != NULL && name_end[2] == 'S';
}

/* For a second, in which it has made no progress. 0: not at all. */
static void
wait_until_still(atomic_uint *progress, pid_t tid)
{
  unsigned seen = atomic_load(progress);
  for (int still = 0; seen != 0 && still < 10;) {
    usleep(100000);
    unsigned now = atomic_load(progress);
    still = now == seen && is_waiting(tid) ? still + 1 : 0;
    seen = now;
  }
}

#endif
