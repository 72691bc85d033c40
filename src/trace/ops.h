/* SPDX-License-Identifier: MIT */
/*
 * The ops of a block for who takes enters, returns, tail calls, points and values from the columns itself: events in
 * between cost as much as what is done with them. That is span/direct.c; what it does not know it leaves, and
 * ct_cursor_next goes on there.
 */
#ifndef CT_TRACE_OPS_H
#define CT_TRACE_OPS_H

#include <contrail/trace.h>

#include "base/branch.h"
#include "trace/format.h"

#include <stdbool.h>
#include <string.h>

#define CT_OPS_NONE 0xffu

/* Unpacking has made sure that there are as many deltas and ids as the ops need. */
struct ct_ops {
  const uint8_t *op, *end; /* the next one; the one at the end is CT_OPS_NONE */
  const uint8_t *delta;
  const uint32_t *id;
  const uint8_t *extra, *extra_end;
  uint32_t *prediction; /* CT_PREDICTION_ENTRIES functions, CT_FUNCTION_NONE where there is none */
  uint64_t *near;       /* CT_NEAR_ENTRIES */
  bool has_near;        /* a value was put there */
  uint32_t last;        /* state of ct_prediction_slot */
  uint64_t tsc;         /* of the op before */
  uint64_t ordinal;     /* of the next call */
  /* The frames that are open, of which those below base are not known. */
  const struct ct_open_frame *frames;
  uint32_t count, base;
};

/* What is left of the block at hand; false: what comes next is no op that was read so far, or not wholly of the trace's
 * range. Where it is another block, that is read as events, no more than so many, before there are ops again. */
bool ct_cursor_ops(struct ct_cursor *cursor, uint32_t few, struct ct_ops *ops);
/*
 * They were taken up to `op`, with the other fields as they are there. kept of the frames are as they were; those above
 * them, up to depth count, are put by *frame(arg, depth). 0 or CT_ENOMEM.
 */
int ct_cursor_took(struct ct_cursor *cursor, const struct ct_ops *ops, uint32_t kept,
                   struct ct_open_frame (*frame)(const void *arg, uint32_t depth), const void *arg);

/* The next batch has so many events at most: what is odd is a few of them, and who takes the ops goes on after that. */
void ct_cursor_few(struct ct_cursor *cursor, uint32_t events);

/* A delta of three bytes or more; it ends within the column, which ends with a byte below 0x80. */
const uint8_t *ct_ops_long_delta(const uint8_t *p, uint64_t *delta);

/* The column has slack after it. */
static inline __attribute__((always_inline)) const uint8_t *
ct_ops_delta(const uint8_t *p, uint64_t *delta)
{
  uint64_t word;
  memcpy(&word, p, sizeof(word));
  if (CT_UNLIKELY((word & 0x8080) == 0x8080)) {
    uint64_t slow; /* delta itself has no address then */
    p = ct_ops_long_delta(p, &slow);
    *delta = slow;
    return p;
  }
  uint64_t more = (word >> 7) & 1u;
  *delta = (word & 0x7fu) | ((word >> 1) & (0u - more) & 0x3f80u);
  return p + 1 + more;
}

/* Where the extra column goes on after a value that concerns nobody who only counts calls and time: one that belongs to
 * a call of the trace. NULL: it is none, or damaged. */
static inline __attribute__((always_inline)) const uint8_t *
ct_ops_pass_value(const uint8_t *extra, const uint8_t *end)
{
  uint64_t value;
  return extra == end || *extra == CT_VALUE_BEFORE ? NULL : ct_varint_get(extra + 1, end, &value);
}

/* The same of an op from CT_TRACE_OP_NEAR on, which has no delta, of a frame of this function: later ones need it. */
static inline __attribute__((always_inline)) const uint8_t *
ct_ops_pass_near(uint32_t op, const uint8_t *extra, const uint8_t *end, uint64_t *near, uint32_t fn)
{
  uint64_t difference;
  uint32_t which = op - CT_TRACE_OP_NEAR;
  if (which == 0) {
    if (extra == end) {
      return NULL;
    }
    which = *extra++;
  }
  const uint8_t *next = ct_varint_get(extra, end, &difference);
  if (CT_LIKELY(next != NULL)) {
    uint64_t *before = &near[ct_near_place(fn, which)];
    *before = ct_near_value(difference, *before);
  }
  return next;
}

#endif
