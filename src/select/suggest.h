/* SPDX-License-Identifier: MIT */
/*
 * For a pattern that matches nothing: what may have been meant. Looked for in the files that were planned, of which
 * those count whose module the pattern names; where there is none, the modules' own names are what is looked at.
 */
#ifndef CT_SELECT_SUGGEST_H
#define CT_SELECT_SUGGEST_H

#include "plan/plan.h"

#include "base/likely.h"

#define CT_SUGGESTIONS_MAX 8 /* patterns of a list for which it is looked for */

struct ct_suggestion {
  struct ct_likely functions, modules, files;
  bool by_file;     /* @file: */
  bool has_module;  /* MODULE!... */
  bool module_seen; /* ... and there was one */
  char text[400];   /* "perhaps a, b"; "" while nothing is like it */
};

/* What a selection or exclusion has of it; NULL: out of memory. */
struct ct_suggestion *ct_suggestion_create(const char *pattern);
/* in_module: the pattern is about this one. */
void ct_suggestion_match(struct ct_suggestion *suggestion, const struct ct_plan *plan, const char *path,
                         bool in_module);

#endif
