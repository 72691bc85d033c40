/* SPDX-License-Identifier: MIT */
/*
 * The clock of a thread along the ops of a block, for who wants nothing but what it is at a call: without stacks and
 * functions, on which it does not depend. A tail call counts as an enter does, and what ends a frame is the same to the
 * clock whatever frame that was.
 */
#include "base/error.h"
#include "span/clock.h"
#include "trace/ops.h"

/* What comes of the extra column; false: it is damaged. */
static bool
take_number(struct ct_ops *ops, uint64_t *value)
{
  const uint8_t *next = ct_varint_get(ops->extra, ops->extra_end, value);
  ops->extra = next != NULL ? next : ops->extra;
  return next != NULL;
}

static bool
take_byte(struct ct_ops *ops, uint8_t *value)
{
  if (ops->extra == ops->extra_end) {
    return false;
  }
  *value = *ops->extra++;
  return true;
}

static bool
away(struct ct_ops *ops, struct ct_event *event)
{
  uint64_t age;
  event->kind = CT_EV_AWAY;
  if (!take_byte(ops, &event->reason) || !take_number(ops, &age) || age > event->tsc ||
      !take_number(ops, &event->value) || event->value > event->tsc - age) {
    return false;
  }
  event->enter_tsc = event->tsc - age - event->value;
  return true;
}

/* Any op but enters, returns, tail calls and points. False: it is damaged, or one of those that are left to others. */
static bool
take_odd(struct ct_span_clock *clock, struct ct_ops *ops, uint32_t op)
{
  struct ct_event event = {.tsc = ops->tsc};
  uint64_t number;
  bool good = true;
  switch (op) {
  case CT_TRACE_OP_RETURN_ID:
    event.kind = CT_EV_RETURN;
    break;
  case CT_TRACE_OP_RETURN_ORPHAN:
    event.kind = CT_EV_ORPHAN_RETURN;
    break;
  case CT_TRACE_OP_UNWOUND:
    event.kind = CT_EV_UNWOUND;
    good = take_byte(ops, &event.reason);
    break;
  case CT_TRACE_OP_SWITCH:
    event.kind = CT_EV_SWITCH;
    good = take_number(ops, &number) && take_number(ops, &number);
    break;
  case CT_TRACE_OP_COUNTED:
    event.kind = CT_EV_COUNTED;
    good = take_number(ops, &number) && take_number(ops, &number);
    break;
  case CT_TRACE_OP_AWAY:
    good = away(ops, &event);
    break;
  case CT_TRACE_OP_VALUE:
  case CT_TRACE_OP_NEAR:
    event.kind = CT_EV_VALUE;
    good = take_byte(ops, &event.reason) && take_number(ops, &number);
    break;
  case CT_TRACE_OP_NEAR_1:
  case CT_TRACE_OP_NEAR_1 + 1:
  case CT_TRACE_OP_NEAR_3:
    event.kind = CT_EV_VALUE;
    event.reason = (uint8_t)(op - CT_TRACE_OP_NEAR);
    good = take_number(ops, &number);
    break;
  default: /* events lost, another program, sampling */
    return false;
  }
  if (good) {
    ct_span_clock_event(clock, &event);
  }
  return good;
}

int
ct_span_clock_ops(struct ct_span_clock *clock, struct ct_ops *ops, uint64_t ordinal)
{
  static const uint8_t kinds[] = {[CT_TRACE_OP_RETURN] = CT_EV_RETURN,
                                  [CT_TRACE_OP_ENTER_PREDICTED] = CT_EV_ENTER,
                                  [CT_TRACE_OP_ENTER] = CT_EV_ENTER,
                                  [CT_TRACE_OP_TAIL_PREDICTED] = CT_EV_TAIL,
                                  [CT_TRACE_OP_TAIL] = CT_EV_TAIL};
  if (clock->in_gap) {
    return CT_ENOENT;
  }
  for (; ops->op != ops->end; ops->op++) {
    uint32_t op = *ops->op;
    if (ct_op_has_time((uint8_t)op)) {
      uint64_t delta;
      ops->delta = ct_ops_delta(ops->delta, &delta);
      ops->tsc += delta;
    }
    if (op <= CT_TRACE_OP_TAIL) {
      ct_span_clock_call(clock, kinds[op], ops->tsc);
    } else if (op <= CT_TRACE_OP_POINT) {
      clock->taken += (uint64_t)clock->point;
      ct_span_clock_read(clock, ops->tsc);
    } else if (!take_odd(clock, ops, op)) {
      return CT_ENOENT;
    }
    bool is_call = op - CT_TRACE_OP_ENTER_PREDICTED <= CT_TRACE_OP_POINT - CT_TRACE_OP_ENTER_PREDICTED;
    if (is_call && ops->ordinal++ == ordinal) {
      return 0;
    }
  }
  return CT_EFORMAT;
}
