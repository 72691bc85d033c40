/* SPDX-License-Identifier: MIT */
/*
 * The spans of one thread that pass a filter of calls. What depends on the other spans is set anew: fresh and
 * fresh_off, as if those that do not pass had not been (<contrail/span.h>). For that it is remembered how much of each
 * open frame of a function was in frames of the same function further in, which have ended and passed: a number for
 * each level of its recursion.
 */
#ifndef CT_VIEWS_SPAN_FILTER_H
#define CT_VIEWS_SPAN_FILTER_H

#include <contrail/filter.h>

#include "span/spans.h"

/* By level of recursion: time in frames that passed, of the frame at that level that is open or comes next. */
struct ct_covered {
  struct ct_covered_time {
    uint64_t ticks, off_ticks;
  } *times;
  uint32_t levels;
};

struct ct_span_filter {
  const struct ct_filter *filter; /* NULL: all pass as they are */
  struct ct_trace *trace;
  struct ct_span *passed;
  size_t capacity;
  struct ct_covered *covered; /* fn_count + 1, as in stats.h; NULL: no function has recursed so far */
  uint32_t fn_count;
};

/* Borrows both. */
void ct_span_filter_init(struct ct_span_filter *filter, struct ct_trace *trace, const struct ct_filter *wanted);
void ct_span_filter_destroy(struct ct_span_filter *filter);
/* Of a batch those that pass: changes both to a batch in the filter's own storage. 0 or CT_ENOMEM. */
int ct_span_filter_run(struct ct_span_filter *filter, const struct ct_span **batch, size_t *count);

#endif
