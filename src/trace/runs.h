/* SPDX-License-Identifier: MIT */
/*
 * Many ops at once. Who takes a run of events writes one byte for each into the ops column and notes the rest here:
 *
 *   times   times[0] is that of the op before the run; times[n + 1] that of the run's op n, none before the one before
 * it ids     the functions that have to be in the ids column
 *
 * and both become the columns' bytes when the run has ended: without an op's branches in between, and where the
 * processor can, eight times in one go. The bytes are those that ct_columns_time and ct_columns_id give one by one.
 */
#ifndef CT_TRACE_RUNS_H
#define CT_TRACE_RUNS_H

#include "trace/encoder.h"

#define CT_RUN_OPS 256u

struct ct_run {
  uint64_t times[CT_RUN_OPS + 1];
  uint32_t ids[CT_RUN_OPS + 1]; /* one more is stored than kept */
};

/* The differences of `count` times from the one before each, times[0] the first that is one before; returns the end.
 * Up to 16 bytes are written beyond it. */
uint8_t *ct_run_put_times(uint8_t *p, const uint64_t *times, size_t count);
uint8_t *ct_run_put_times_plain(uint8_t *p, const uint64_t *times, size_t count); /* the same, on any processor */
/* Each is at most CT_FUNCTION_ID_MAX. Up to 4 bytes are written beyond the end. */
uint8_t *ct_run_put_ids(uint8_t *p, const uint32_t *ids, size_t count);

/* Appends op `predicted` or `predicted + 1`, and notes the id at `id` where it has to be there; the next place for one.
 */
static inline uint32_t *
ct_columns_note_call(struct ct_columns *columns, uint32_t fn, uint8_t predicted, uint32_t *id)
{
  uint32_t *slot = &columns->prediction[ct_prediction_slot(columns->last)];
  uint32_t missed = *slot != fn + 1;
  *slot = fn + 1;
  columns->last = fn * 2;
  *columns->op++ = (uint8_t)(predicted + missed);
  *id = fn;
  return id + missed;
}

/* The run has `ops` ops that have a time, whose bytes are in the ops column, and `ids` ids. */
static inline void
ct_columns_put_run(struct ct_columns *columns, const struct ct_run *run, size_t ops, size_t ids)
{
  columns->delta = ct_run_put_times(columns->delta, run->times, ops);
  columns->last_tsc = run->times[ops];
  columns->id = ct_run_put_ids(columns->id, run->ids, ids);
}

#endif
