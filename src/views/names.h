/* SPDX-License-Identifier: MIT */
/*
 * Functions of one trace or of all processes of a family, under numbers of their own: every process numbers its
 * functions itself, so what is known of them is copied to an entry for module, address and name.
 */
#ifndef CT_VIEWS_NAMES_H
#define CT_VIEWS_NAMES_H

#include "trace/batch.h"

#define CT_NO_NAME UINT32_MAX

struct ct_view_name {
  char *name;
  char *module; /* the last part of its path */
  char *path;
  char *file; /* NULL: not known */
  uint64_t address;
  uint32_t line;  /* 0: not known */
  bool is_chosen; /* it passes the filter that was given when it was first met */
};

struct ct_view_names {
  struct ct_view_name *names;
  uint32_t count, capacity;
  uint32_t *buckets; /* number + 1, 0: free */
  uint32_t bucket_count;
  struct ct_trace *trace; /* the one at hand ... */
  uint32_t *of;           /* ... of its functions, fn_count + 1: number + 1, 0: not met yet */
  uint32_t fn_count;
};

struct ct_filter_compiled;
/* From now on functions are those of this trace. 0 or CT_ENOMEM. */
int ct_view_names_begin(struct ct_view_names *names, struct ct_trace *trace);
/* chooses: of this trace; may be NULL. CT_NO_NAME: out of memory. */
uint32_t ct_view_names_add(struct ct_view_names *names, uint32_t fn, struct ct_filter_compiled *chooses);
void ct_view_names_destroy(struct ct_view_names *names); /* accepts a zeroed one */

/* The number of a function of the trace at hand. */
static inline uint32_t
ct_view_names_of(struct ct_view_names *names, uint32_t fn, struct ct_filter_compiled *chooses)
{
  uint32_t known = names->of[fn < names->fn_count ? fn : names->fn_count];
  return known != 0 ? known - 1 : ct_view_names_add(names, fn, chooses);
}

#endif
