/* SPDX-License-Identifier: MIT */
/*
 * Sums per group of functions, per thread or per process, in one pass. The total of a group is the time in which
 * any frame of its functions was on one of the thread's stacks, as the total of a function is: no moment of a thread
 * counts twice.
 */
#ifndef CT_VIEWS_GROUPS_H
#define CT_VIEWS_GROUPS_H

#include <contrail/report.h>

#include "views/reading.h"

#include <pthread.h>

struct ct_group {
  char *key;    /* what is one group */
  char *name;   /* of a thread or process; NULL: the key is shown */
  uint64_t id;  /* tid or pid */
  uint64_t pid; /* of a thread */
  uint64_t calls, total_ticks, self_ticks, off_ticks;
  uint32_t functions; /* that were called */
  bool has_time;      /* of some of the calls a time is known */
};

struct ct_groups {
  enum ct_report_rows rows;
  struct ct_view_names names;
  struct ct_group *groups;
  size_t count, capacity;
  uint32_t *buckets; /* position + 1, 0: free */
  size_t bucket_count;
  uint32_t *of; /* as names: position + 1 of the function's group; of threads and processes: where it was met last */
  size_t of_capacity;
  pthread_mutex_t lock; /* of all this: workers look for groups in it */
  struct ct_view_reading *reading;
};

/* Fills a zeroed one whose rows are set; the reading as of ct_edges_collect_callers. Only selected functions count. */
int ct_groups_collect(struct ct_groups *groups, struct ct_view_reading *reading, struct ct_diag *diag);
void ct_groups_destroy(struct ct_groups *groups);

#endif
