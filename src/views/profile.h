/* SPDX-License-Identifier: MIT */
/* All functions of a trace, or of a process tree, by module and name: to be compared with those of another one. */
#ifndef CT_VIEWS_PROFILE_H
#define CT_VIEWS_PROFILE_H

#include "views/noise.h"
#include "views/report.h"

#include <contrail/diff.h>

struct ct_profile_function {
  char *key;    /* of the module: what it is matched by */
  char *module; /* its file name */
  char *name;
  struct ct_stats stats;          /* of no function but the one that stands for all others; with self times */
  uint64_t children[CT_CHILDREN]; /* calls that it made (noise.h) */
  bool enter_only, was_out;
};

struct ct_profile {
  struct ct_profile_function **list; /* by key and name */
  size_t count, capacity;
  void *tree;             /* of tsearch: the same ones */
  struct ct_trace *trace; /* the first one's clock is that of all ticks */
  json_t *warnings;
  uint64_t events, dropped;
  size_t threads, processes;
  uint64_t duration_ns;  /* of the recording */
  uint64_t preempted_ns; /* all threads together */
  struct ct_noise_hooks hooks;
  uint32_t damaged_threads, first_damaged_tid;
};

/* What is read of each of the two. */
struct ct_profile_wanted {
  const struct ct_diff_options *options;
  const uint32_t *tids;
  size_t tid_count;
  struct ct_filter filter; /* of calls */
  unsigned workers;
  int (*moved)(void *arg, uint64_t bytes);
  void *arg;
};

/* 0, or an error with a line. The profile goes to ct_profile_destroy in either case. */
int ct_profile_read(struct ct_trace *trace, const struct ct_profile_wanted *wanted, struct ct_profile *profile,
                    struct ct_diag *diag);
void ct_profile_destroy(struct ct_profile *profile);

/* <0, 0, >0 as strcmp, by key and name. */
int ct_profile_compare(const struct ct_profile_function *a, const struct ct_profile_function *b);
/* How much of the file name of a module is no version: "libx.so" of "libx.so.1.2". */
size_t ct_profile_module_length(const char *name);
/* How much of a function's name is not what the compiler appended: "f" of "f.constprop.0", "f [clone .part.1]". */
size_t ct_profile_stem_length(const char *name);

#endif
