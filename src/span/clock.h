/* SPDX-License-Identifier: MIT */
/*
 * The clock of a thread's own time: what its events' clock readings tell, less what was nobody's until then.
 *
 *   own time = reading - taken
 *
 * taken grows by what hooks take before and after each reading, as it was measured when the recording began, and by the
 * time in which contrail had the thread stopped or waiting; if only processor time counts, by all time off the
 * processor too. All views take durations as differences of this clock: so every view shows the same ones, the self
 * times in a call add up to its total, and none is negative, since the clock never goes back. A stretch that was
 * shorter than its hooks should have been leaves a debt, which the next ones pay: in the mean nothing is added. The
 * debt is bounded, so that hooks that were cheaper than when they were measured cost what comes after them no more than
 * that.
 */
#ifndef CT_SPAN_CLOCK_H
#define CT_SPAN_CLOCK_H

#include <contrail/span.h>

#include "base/branch.h"
#include "trace/batch.h"

enum { CT_CLOCK_KINDS = 3 }; /* RETURN, ENTER, TAIL: by enum ct_event_kind */

struct ct_span_clock {
  uint64_t now;                   /* own time of the last event */
  uint64_t off;                   /* how long the thread has been off the processor, of its own time */
  uint64_t taken;                 /* in units of CT_COST_UNIT, like the costs; modulo 2^64, as sums from a file are */
  int64_t before[CT_CLOCK_KINDS]; /* of an event's reading */
  int64_t after[CT_CLOCK_KINDS];
  int64_t value, point, sampled, passed_over;
  int64_t debt_max;
  uint64_t off_since, off_until; /* readings: the last interval off the processor ... */
  uint64_t preempted;            /* of that time, how long it could have run */
  uint64_t own_until;            /* ... and the end of the last one that was contrail's own */
  bool in_gap;                   /* events were lost since gap_since */
  uint64_t gap_since, gap_ticks; /* a reading; all gaps together */
  enum ct_view_time time;
};

static inline void
ct_span_clock_init(struct ct_span_clock *clock, const struct ct_trace *trace, enum ct_view_time time)
{
  *clock = (struct ct_span_clock){.time = time};
  if (time == CT_TIME_RAW) {
    return;
  }
  struct ct_trace_costs costs;
  ct_trace_costs(trace, &costs);
  clock->before[CT_EV_ENTER] = clock->before[CT_EV_TAIL] = costs.enter_before;
  clock->after[CT_EV_ENTER] = clock->after[CT_EV_TAIL] = costs.enter_after;
  clock->before[CT_EV_RETURN] = costs.return_before;
  clock->after[CT_EV_RETURN] = costs.return_after;
  clock->value = costs.value;
  clock->point = costs.point;
  clock->sampled = costs.sampled;
  clock->passed_over = costs.passed_over;
  clock->debt_max = 4 * (costs.enter_before + costs.enter_after + costs.return_before + costs.return_after);
}

/* Own time at a reading. */
static inline uint64_t
ct_span_clock_read(struct ct_span_clock *clock, uint64_t tsc)
{
  int64_t ahead = (int64_t)((tsc - clock->now) * CT_COST_UNIT - clock->taken);
  if (CT_LIKELY(ahead >= 0)) {
    clock->now += (uint64_t)ahead / CT_COST_UNIT;
  } else if (ahead < -clock->debt_max) {
    clock->taken += (uint64_t)(ahead + clock->debt_max);
  }
  return clock->now;
}

/* An ENTER, RETURN or TAIL: own time when it happened. */
static inline uint64_t
ct_span_clock_call(struct ct_span_clock *clock, unsigned kind, uint64_t tsc)
{
  clock->taken += (uint64_t)clock->before[kind];
  uint64_t now = ct_span_clock_read(clock, tsc);
  clock->taken += (uint64_t)clock->after[kind];
  return now;
}

/* After lost events: does the event show that the thread's own are there again? The kernel reports its switches all
 * the time. */
static inline bool
ct_span_clock_goes_on(const struct ct_event *event)
{
  return event->kind != CT_EV_AWAY && event->kind != CT_EV_LOST && event->kind != CT_EV_COUNTED;
}

/* The first event after lost ones: the time since is nobody's, for nobody knows what the thread called in it. */
void ct_span_clock_end_gap(struct ct_span_clock *clock, uint64_t tsc);

/*
 * clock_ops.c. The events of a block's ops, up to and with the call with this ordinal. 0: it is there; CT_EFORMAT: it
 * is not among them, the ops are at their end; CT_ENOENT: there is something else that only events tell, and the clock
 * is undefined.
 */
struct ct_ops;
int ct_span_clock_ops(struct ct_span_clock *clock, struct ct_ops *ops, uint64_t ordinal);

/* Any event. */
uint64_t ct_span_clock_event(struct ct_span_clock *clock, const struct ct_event *event);

/*
 * After the last event of a thread, which was at last_tsc: the calls that are open there went on until the thread or
 * the recording ended; where the rest of the stream is gone nothing is known of them. The reading at which they end.
 */
uint64_t ct_span_clock_end(struct ct_span_clock *clock, const struct ct_trace *trace, uint32_t thread,
                           enum ct_cursor_state state, uint64_t last_tsc);

#endif
