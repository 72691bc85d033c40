/* SPDX-License-Identifier: MIT */
/*
 * A progress line on stderr for operations that take long: shown only on a terminal
 * and only after the first second, rewritten at most ten times a second, erased at the end.
 *
 *   struct ct_progress progress;
 *   ct_progress_start(&progress, "reading the trace");
 *   ... ct_progress_update(&progress, done, total) as often as you like ...
 *   ct_progress_end(&progress);
 */
#ifndef CT_CLI_PROGRESS_H
#define CT_CLI_PROGRESS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_progress {
  const char *what;
  uint64_t start_ns;
  uint64_t next_ns; /* when the line may be written again */
  bool enabled;
  bool visible;
};

void ct_progress_start(struct ct_progress *progress, const char *what);
/* total 0: unknown, the line shows what and the time only. The signatures fit ct_view_progress. */
int ct_progress_update(void *progress, uint64_t done, uint64_t total);
void ct_progress_end(void *progress); /* may be called again */

/* The line of what cannot tell how far it is: a thread rewrites it, from begin to end. */
struct ct_progress_alone {
  struct ct_progress line;
  pthread_t thread;
  sem_t over;
  bool has_thread;
};

void ct_progress_alone_begin(struct ct_progress_alone *alone, const char *what);
void ct_progress_alone_end(struct ct_progress_alone *alone);

#endif
