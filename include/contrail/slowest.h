/* SPDX-License-Identifier: MIT */
/*
 * The slowest calls of the functions that are selected, each with the tree of all that it called: a first pass over the
 * trace finds them, a second one, over their threads, makes the trees. Times are those of report and replay. Of calls
 * that took equally long the first in the order of processes, threads and calls comes first.
 *
 * What a call has called more than four times becomes one entry, with the number of these calls, their total and the
 * slowest of them with its own tree. So the memory that a tree needs depends on what was called, and not on how often;
 * beyond 50,000 calls shown the innermost ones are counted only.
 */
#ifndef CONTRAIL_SLOWEST_H
#define CONTRAIL_SLOWEST_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_SLOWEST_DEFAULT = 5, CT_SLOWEST_MAX = 1000 };

struct ct_slowest_options {
  size_t struct_size;
  const struct ct_filter *filter; /* functions, threads, calls; NULL: all */
  uint32_t count;                 /* 0: CT_SLOWEST_DEFAULT */
  bool by_off;                    /* not the slowest, but those that were off the processor longest */
  uint32_t depth;                 /* so many levels of a tree; 0: all */
  uint64_t min_ns;                /* calls inside that took less are counted only */
  bool json;
  struct ct_view_progress progress;
  enum ct_view_time time;
  unsigned workers;   /* threads to read with; 0: one */
  bool family;        /* of all processes that were followed too; no tids in the filter */
  double min_percent; /* calls inside that took less of the whole are counted only; 0: none */
  bool short_names;   /* text: long names shortened (ct_shorten_name) */
};

/* As ct_replay_write. */
int ct_slowest_write(struct ct_trace *trace, const struct ct_slowest_options *options, FILE *out,
                     struct ct_view_notes *notes, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
