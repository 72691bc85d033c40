/* SPDX-License-Identifier: MIT */
/* The clock of a thread's own time; see clock.h. */
#include "span/clock.h"

/* An interval that was contrail's own is nobody's; the thread is off the processor meanwhile, which then does not
 * count. */
static void
take_own(struct ct_span_clock *clock, uint64_t since, uint64_t until)
{
  since = since > clock->own_until ? since : clock->own_until;
  if (since >= until) {
    return;
  }
  clock->own_until = until;
  uint64_t from = since > clock->off_since ? since : clock->off_since;
  uint64_t to = until < clock->off_until ? until : clock->off_until;
  uint64_t both = from < to ? to - from : 0;
  both = both < clock->off ? both : clock->off;
  clock->off -= both;
  if (clock->time != CT_TIME_RAW) {
    clock->taken += (until - since - (clock->time == CT_TIME_CPU ? both : 0)) * CT_COST_UNIT;
  }
}

static void
take_off(struct ct_span_clock *clock, uint64_t since, uint64_t until)
{
  since = since > clock->own_until ? since : clock->own_until;
  since = since > clock->off_until ? since : clock->off_until;
  if (since >= until) {
    return;
  }
  clock->off_since = since;
  clock->off_until = until;
  clock->off += until - since;
  if (clock->time == CT_TIME_CPU) {
    clock->taken += (until - since) * CT_COST_UNIT;
  }
}

void
ct_span_clock_end_gap(struct ct_span_clock *clock, uint64_t tsc)
{
  uint64_t since = clock->gap_since > clock->own_until ? clock->gap_since : clock->own_until;
  if (!clock->in_gap) {
    return;
  }
  clock->in_gap = false;
  if (tsc <= since) {
    return;
  }
  clock->gap_ticks += tsc - since;
  clock->taken += (tsc - since) * CT_COST_UNIT;
  clock->own_until = tsc; /* what else is reported of the thread in that time does not count */
}

uint64_t
ct_span_clock_event(struct ct_span_clock *clock, const struct ct_event *event)
{
  if (clock->in_gap && !ct_span_clock_goes_on(event)) {
    return clock->now;
  }
  ct_span_clock_end_gap(clock, event->tsc);
  switch (event->kind) {
  case CT_EV_LOST:
    ct_span_clock_read(clock, event->tsc);
    clock->in_gap = true;
    clock->gap_since = event->tsc;
    return clock->now;
  case CT_EV_RETURN:
  case CT_EV_ENTER:
  case CT_EV_TAIL:
    return ct_span_clock_call(clock, event->kind, event->tsc);
  case CT_EV_ORPHAN_RETURN:
    return ct_span_clock_call(clock, CT_EV_RETURN, event->tsc);
  case CT_EV_POINT:
    if (event->value > 1) {
      clock->taken += (uint64_t)clock->sampled + (event->value - 1) * (uint64_t)clock->passed_over;
    } else {
      clock->taken += (uint64_t)clock->point;
    }
    return ct_span_clock_read(clock, event->tsc);
  case CT_EV_AWAY: /* what it takes is taken from the time until the next event */
    if (event->reason == CT_AWAY_PREEMPTED || event->reason == CT_AWAY_BLOCKED) {
      take_off(clock, event->enter_tsc, event->enter_tsc + event->value);
      clock->preempted += event->reason == CT_AWAY_PREEMPTED ? event->value : 0;
    } else if (event->reason == CT_AWAY_ROOM || event->reason == CT_AWAY_HELD) {
      take_own(clock, event->enter_tsc, event->enter_tsc + event->value);
    }
    return clock->now;
  case CT_EV_COUNTED: /* of calls some time before */
    return clock->now;
  case CT_EV_VALUE:
    if (event->reason == CT_VALUE_BEFORE) { /* there was no hook to its enter */
      clock->taken -= (uint64_t)(clock->before[CT_EV_ENTER] + clock->after[CT_EV_ENTER]);
      return clock->now;
    }
    clock->taken += (uint64_t)clock->value;
    return clock->now;
  default:
    return ct_span_clock_read(clock, event->tsc);
  }
}

uint64_t
ct_span_clock_end(struct ct_span_clock *clock, const struct ct_trace *trace, uint32_t thread,
                  enum ct_cursor_state state, uint64_t last_tsc)
{
  const struct ct_trace_thread *info = ct_trace_thread(trace, thread);
  bool is_whole = state != CT_CURSOR_DAMAGED && info->missing == 0;
  uint64_t end = is_whole && info->end_tsc > last_tsc ? info->end_tsc : last_tsc;
  ct_span_clock_end_gap(clock, end);
  ct_span_clock_read(clock, end);
  return end;
}
