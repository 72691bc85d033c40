/* SPDX-License-Identifier: MIT */
/*
 * What checks need of all processes of a tree: the sums of each function that a check matches, where functions of
 * several processes are one when module, name and address are the same, as in the report of a tree.
 */
#ifndef CT_VIEWS_CHECK_TREE_H
#define CT_VIEWS_CHECK_TREE_H

#include "views/check.h"
#include "views/names.h"
#include "views/report.h"

#include <jansson.h>

/* What is known of how whole a trace is, or several. */
struct ct_check_losses {
  uint64_t dropped;  /* and what is missing of the files */
  uint64_t not_kept; /* events before a last stretch (--last, --max-size), as far as they are asked for */
  bool is_cut;       /* a recording ended early, or something of it is gone */
};

struct ct_check_function {
  bool is_called, enter_only, was_out;
  struct ct_stats stats; /* is_called: of no function but the one that stands for all others */
};

struct ct_check_tree {
  struct ct_view_names names;
  struct ct_check_function *functions; /* as names */
  uint8_t **matched;                   /* for each check a byte for each of names */
  size_t capacity, check_count;
  struct ct_check_losses losses;
  json_t *crashed;  /* a list of lines: processes that a signal ended */
  bool has_unended; /* of some process the end is not known */
  json_t *warnings;
};

/* Fills a zeroed one, which goes to ct_check_tree_destroy in either case. 0, or an error with a line. */
int ct_check_tree_read(struct ct_trace *trace, const struct ct_checks *checks, const struct ct_check_options *options,
                       struct ct_check_tree *tree, struct ct_view_notes *notes, struct ct_diag *diag);
void ct_check_tree_destroy(struct ct_check_tree *tree);

/* check.c: reads a trace into statistics, and adds what it has lost. */
int ct_check_collect(struct ct_trace *trace, const struct ct_check_options *options, struct ct_stats *stats,
                     struct ct_check_losses *losses, struct ct_view_notes *notes, struct ct_diag *diag);
/* How the process ended, of the manifest. false: it does not say, as of one that was detached from. */
bool ct_check_exit_of(const struct ct_trace *trace, json_int_t *status, json_int_t *signal);

#endif
