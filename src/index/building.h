/* SPDX-License-Identifier: MIT */
/* What build.c, which has the workers, and read.c, which reads a thread, share. */
#ifndef CT_INDEX_BUILDING_H
#define CT_INDEX_BUILDING_H

#include "index/index_internal.h"

#include <pthread.h>
#include <stdatomic.h>

struct ct_index_job {
  struct ct_index *index;
  uint32_t *order; /* threads */
  const struct ct_view_progress *progress;
  uint64_t total_bytes;
  unsigned workers;
  bool is_complete;
  /* Relaxed: plain counters; the results are handed over by pthread_join. */
  _Atomic uint32_t next;
  _Atomic uint64_t done_bytes;
  _Atomic bool stop;
  _Atomic bool is_cancelled; /* relaxed: all workers end */
  pthread_mutex_t lock;
  struct ct_tree_groupings groupings; /* under the lock, until they are there: made when the first tree needs them */
};

struct ct_index_worker {
  struct ct_index_job *job;
  struct ct_index_sums kept, tail;
  struct ct_span_gather gather; /* of the granule in hand */
  pthread_t thread;
  bool reports_progress;
  int code;
  struct ct_diag diag;
};

/* read.c: from the end of what the thread's index has to the end of its stream. 0, or a failure that diag has. */
int ct_index_read_thread(struct ct_index_worker *worker, uint32_t number);

/* build.c: which functions are grouped together. Borrowed. 0 or CT_ENOMEM. */
int ct_index_job_groupings(struct ct_index_job *job, const struct ct_tree_groupings **groupings);

#endif
