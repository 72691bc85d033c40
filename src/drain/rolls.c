/* SPDX-License-Identifier: MIT */
/*
 * A ring has the times of the last events that count (calls and returns), all of them up to SAMPLES events, else one of
 * `stride`: as many as the pre-roll needs, and those of the segment that is being taken, since marks are found in the
 * middle of it. So a window has at least the events that were asked for, and up to a stride more on each side.
 *
 *   pre 3, stride 1:   ... 100 110 120 130 140 150      mark at 140: its own event counts for neither side
 *                              ^begin      ^mark
 *
 * A crash is marked before the thread's last events have been taken: its window begins too early, until they have.
 * The end is not known at the mark. The window gets the latest that is possible, and is cut when the event comes. A
 * thread that marks again before has its end moved; so it has one end that is open at most.
 */
#include "drain/rolls.h"

#include <stdlib.h>

#define SAMPLES (CT_SEGMENT_BYTES / CT_EVENT_BYTES)

struct drain_rolls {
  uint64_t pre, post; /* events; 0: by time */
  uint64_t stride;
  uint64_t count;             /* events so far */
  size_t capacity, used, end; /* of the ring */
  bool is_open;
  uint64_t mark_tsc, due;        /* of the open end: the mark, and the event that it is */
  uint64_t late_tsc, late_begin; /* a mark that came before the events before it, 0: none; where its window begins */
  struct {
    uint64_t number, tsc;
  } samples[];
};

static struct drain_rolls *
create(const struct ct_windows_limits *limits)
{
  uint64_t stride = limits->pre_events / SAMPLES + 1;
  size_t capacity = (size_t)((limits->pre_events + SAMPLES) / stride + 4);
  struct drain_rolls *rolls = calloc(1, sizeof(*rolls) + capacity * sizeof(rolls->samples[0]));
  if (rolls != NULL) {
    rolls->pre = limits->pre_events;
    rolls->post = limits->post_events;
    rolls->stride = stride;
    rolls->capacity = capacity;
  }
  return rolls;
}

bool
drain_rolls_take(struct drain_rolls **rolls, const struct ct_windows_limits *limits, const struct ct_ring_event *events,
                 size_t count)
{
  if (*rolls == NULL && (*rolls = create(limits)) == NULL) {
    return false;
  }
  struct drain_rolls *to = *rolls;
  for (size_t i = 0; i < count; i++) {
    if (ct_word_is_event(events[i].word) != 0 && to->count++ % to->stride == 0) {
      to->samples[to->end].number = to->count;
      to->samples[to->end].tsc = events[i].tsc;
      to->end = to->end + 1 < to->capacity ? to->end + 1 : 0;
      to->used += to->used < to->capacity;
    }
  }
  return true;
}

/* The nth sample, 0 is the oldest. */
static size_t
sample_at(const struct drain_rolls *rolls, size_t n)
{
  return (rolls->end + rolls->capacity - rolls->used + n) % rolls->capacity;
}

/* How many samples are of events before this time, or (through) by it. */
static size_t
count_before(const struct drain_rolls *rolls, uint64_t tsc, bool through)
{
  size_t low = 0, high = rolls->used;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    uint64_t at = rolls->samples[sample_at(rolls, middle)].tsc;
    if (at < tsc || (through && at == tsc)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Where a window begins whose mark is at tsc; false: that event is not known. */
static bool
find_begin(const struct drain_rolls *rolls, uint64_t tsc, uint64_t *begin)
{
  size_t before = count_before(rolls, tsc, false);
  size_t back = (size_t)(rolls->pre / rolls->stride + (rolls->stride > 1 ? 2 : 0));
  if (before < back) {
    return false;
  }
  *begin = rolls->samples[sample_at(rolls, before - back)].tsc;
  return true;
}

void
drain_rolls_mark(struct drain_rolls *rolls, struct ct_windows *windows, struct ct_mark *mark)
{
  if (rolls == NULL) {
    return;
  }
  if (rolls->pre != 0) {
    if (!find_begin(rolls, mark->tsc, &mark->begin_tsc)) {
      uint64_t most = ct_windows_limits(windows)->most, earliest = mark->tsc > most ? mark->tsc - most : 1;
      mark->begin_tsc = rolls->used != 0 ? rolls->samples[sample_at(rolls, 0)].tsc : earliest;
    }
    if (rolls->used == 0 || rolls->samples[sample_at(rolls, rolls->used - 1)].tsc < mark->tsc) {
      rolls->late_tsc = mark->tsc;
      rolls->late_begin = mark->begin_tsc;
    }
  }
  if (rolls->post != 0) {
    size_t through = count_before(rolls, mark->tsc, true);
    uint64_t number = through != 0 ? rolls->samples[sample_at(rolls, through - 1)].number : rolls->count;
    if (rolls->is_open) {
      ct_windows_close(windows, rolls->mark_tsc, mark->tsc);
    }
    rolls->is_open = mark->is_open = true;
    rolls->mark_tsc = mark->tsc;
    rolls->due = number + rolls->post + rolls->stride - 1;
  }
}

void
drain_rolls_end(struct drain_rolls *rolls, struct ct_windows *windows, bool is_last)
{
  uint64_t begin;
  if (rolls != NULL && rolls->late_tsc != 0 && rolls->used != 0 &&
      (is_last || rolls->samples[sample_at(rolls, rolls->used - 1)].tsc >= rolls->late_tsc)) {
    if (find_begin(rolls, rolls->late_tsc, &begin)) {
      ct_windows_begin_later(windows, rolls->late_tsc, rolls->late_begin, begin);
    }
    rolls->late_tsc = 0;
  }
  if (rolls == NULL || !rolls->is_open || rolls->used == 0 || (rolls->count < rolls->due && !is_last)) {
    return;
  }
  size_t at = rolls->used - 1; /* the first one that is not before the due one */
  while (at > 0 && rolls->samples[sample_at(rolls, at - 1)].number >= rolls->due) {
    at--;
  }
  ct_windows_close(windows, rolls->mark_tsc, rolls->samples[sample_at(rolls, at)].tsc);
  rolls->is_open = false;
}
