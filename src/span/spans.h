/* SPDX-License-Identifier: MIT */
/*
 * Spans in batches, and from places in the middle of a stream: beyond what <contrail/span.h> gives to everybody.
 *
 * Memory: 24 bytes per function of the trace and the open frames.
 */
#ifndef CT_SPAN_SPANS_H
#define CT_SPAN_SPANS_H

#include <contrail/span.h>

#include "span/clock.h"

static inline bool
ct_span_is_unfinished(unsigned end)
{
  return end >= CT_SPAN_EXITED && end <= CT_SPAN_OPEN;
}

/*
 * The next spans, as a batch in the builder's storage, valid until the next call; *count is 0 at the
 * end of the stream (whole or damaged, see ct_spans_state) and only there.
 */
int ct_spans_next(struct ct_spans *spans, const struct ct_span **batch, size_t *count);

/* Of what was read so far: enters, returns, tail calls and points; events that the trace says were lost. */
uint64_t ct_spans_events(const struct ct_spans *spans);
uint64_t ct_spans_lost(const struct ct_spans *spans);
/*
 * At the end of the stream of a trace that has bounds (ct_trace_has_bounds): how long the function was off the
 * processor at most. fn: an id, or the number of functions for all other ids.
 */
uint64_t ct_spans_off_at_most(const struct ct_spans *spans, uint32_t fn);
uint64_t ct_spans_gap_ticks(const struct ct_spans *spans); /* in which events were lost */
uint64_t ct_spans_offset(const struct ct_spans *spans);    /* bytes of the thread's file */

#endif
