/* SPDX-License-Identifier: MIT */
/*
 * Functions of one trace or of all processes of a tree, under numbers of their own: every process numbers its
 * functions itself, so what is known of them is copied to an entry for module, address and name.
 *
 * Several threads may ask for numbers between ct_view_names_begin and the next one: there is room for all functions of
 * the trace, so entries stay where they are. Which function gets which number depends on who asks first; order by
 * ct_view_names_compare.
 */
#ifndef CT_VIEWS_NAMES_H
#define CT_VIEWS_NAMES_H

#include "trace/batch.h"

#include <pthread.h>
#include <stdatomic.h>

#define CT_NO_NAME UINT32_MAX

struct ct_view_name {
  char *name;
  char *module; /* the last part of its path */
  char *path;
  char *file; /* NULL: not known */
  uint64_t address;
  uint32_t line;    /* 0: not known */
  bool is_selected; /* it passes the filter that was given when it was first met */
};

struct ct_view_names {
  struct ct_view_name *names;
  uint32_t count, capacity;
  uint32_t *buckets; /* number + 1, 0: free */
  uint32_t bucket_count;
  struct ct_trace *trace; /* the one at hand ... */
  /* ... of its functions, fn_count + 1: number + 1, 0: not met yet. Release pairs with acquire: who has the number has
   * the entry. */
  _Atomic uint32_t *of;
  uint32_t fn_count;
  pthread_mutex_t lock; /* of whoever adds one; there is one when trace is not NULL */
};

struct ct_filter_compiled;
/* From now on functions are those of this trace. 0 or CT_ENOMEM. */
int ct_view_names_begin(struct ct_view_names *names, struct ct_trace *trace);
/* chooses: of this trace; may be NULL. CT_NO_NAME: out of memory. */
uint32_t ct_view_names_add(struct ct_view_names *names, uint32_t fn, struct ct_filter_compiled *chooses);
void ct_view_names_destroy(struct ct_view_names *names); /* accepts a zeroed one */
/* <0, 0, >0: by name, path and address. */
int ct_view_names_compare(const struct ct_view_names *names, uint32_t a, uint32_t b);

/* The number of a function of the trace at hand. */
static inline uint32_t
ct_view_names_of(struct ct_view_names *names, uint32_t fn, struct ct_filter_compiled *chooses)
{
  uint32_t known = atomic_load_explicit(&names->of[fn < names->fn_count ? fn : names->fn_count], memory_order_acquire);
  return known != 0 ? known - 1 : ct_view_names_add(names, fn, chooses);
}

#endif
