/* SPDX-License-Identifier: MIT */
/*
 * What replay writes for a function, made once per function: its text, its JSON members
 * and whether it passes the filters.
 */
#ifndef CT_VIEWS_LABELS_H
#define CT_VIEWS_LABELS_H

#include "views/pattern.h"

struct ct_label {
  char *text; /* name with "()" unless it has a parameter list; control characters replaced */
  char *json; /* "name":"...","module":"...", and "file":"...","line":N where they are known */
  uint32_t text_length;
  uint32_t name_length;  /* of the text, without parameters and what comes after them ... */
  uint32_t suffix_start; /* ... which is from here on: where the function is written */
  uint32_t fn;
  uint32_t json_length;
  bool function_matches;
  bool place_matches;
};

struct ct_labels {
  struct ct_trace *trace;
  struct ct_view_pattern *pattern;
  bool source;         /* the text says where the function is written */
  bool short_names;    /* the text has long names shortened */
  struct ct_label *of; /* fn_count + 1; the last one stands for ids outside the table */
  uint32_t fn_count;
};

/* Borrows both; 0 or CT_ENOMEM. */
int ct_labels_init(struct ct_labels *labels, struct ct_trace *trace, struct ct_view_pattern *pattern);
void ct_labels_destroy(struct ct_labels *labels); /* accepts a zeroed one */
const struct ct_label *ct_labels_make(struct ct_labels *labels, uint32_t fn);

/* The label of a function; NULL when memory is exhausted. */
static inline const struct ct_label *
ct_label_of(struct ct_labels *labels, uint32_t fn)
{
  const struct ct_label *label = &labels->of[fn < labels->fn_count ? fn : labels->fn_count];
  return label->text != NULL ? label : ct_labels_make(labels, fn);
}

#endif
