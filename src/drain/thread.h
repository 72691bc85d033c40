/* SPDX-License-Identifier: MIT */
/* Inside the drain: one thread of the target, and how its events become calls. */
#ifndef CT_DRAIN_THREAD_H
#define CT_DRAIN_THREAD_H

#include "drain/detail.h"
#include "drain/drain.h"
#include "drain/flows.h"
#include "drain/rolls.h"
#include "drain/rules.h"
#include "trace/encoder.h"

#include <contrail/trace.h> /* enum ct_value */

#define DRAIN_STACKS 8

/* Of a frame's flags: it was open when the recording began. Its return has no hook. */
#define DRAIN_FRAME_BEFORE 2u
/* It is noted that its function has values. */
#define DRAIN_FRAME_VALUES 4u
/* It has the number of its call. */
#define DRAIN_FRAME_NUMBERED 8u

/* A stack of the thread: what its events' slots lie in. */
struct drain_stack {
  uint32_t low;    /* low half of its lowest address */
  uint32_t length; /* in bytes */
  uint32_t context;
};

struct drain_thread {
  struct ct_encoder *encoder;
  uint32_t index; /* in the trace */
  uint32_t info;  /* index into the drain's list of infos */
  uint32_t tid;
  uint32_t outside;    /* the same here, see process/ids.h; 0: it had gone when it was heard of */
  int totals_fd;       /* its schedstat, see drain_read_totals; -1: not open */
  uint32_t generation; /* of the slot */
  uint32_t next_seq;   /* position of the segment expected next */
  uint64_t holes;
  uint64_t polled_seq;    /* activation number of the segment that was read in part ... */
  uint32_t polled;        /* ... and how many of its entries ... */
  uint32_t polled_events; /* ... which have so many events */
  uint64_t held_seq;      /* activation number of a full segment that waits for an entry to be written ... */
  uint32_t held;          /* ... and which it is */
  /* The stack of the last switch; length UINT32_MAX while it is not known. After it those of switches before. */
  uint32_t stack_low, stack_length;
  struct drain_stack stacks[DRAIN_STACKS]; /* the last one first */
  uint32_t stack_count;
  bool own_point; /* on a stack of length 0: the next point is a call on it, all else is not */
  bool has_base;  /* the thread's own stack is known */
  uint32_t base_context;
  /* A copy of a part of the stack, while only its beginning has been reported; and the part whose frames are gone. */
  struct drain_flows *flows; /* of the stack whose parts are copied; NULL: none was */
  uint32_t copy_lo, gone_lo, gone_hi, gone_context;
  uint8_t copy_what;
  bool has_copy;
  bool has_gone;      /* frames further in are still there: those of the part end when they have returned */
  bool has_before;    /* frames that were open when the recording began, and it is not known on which stack it is yet */
  uint32_t max_depth; /* calls further in are left out */
  uint64_t since_tsc; /* it has begun later */
  bool has_values;    /* among its latest events: these are not looked at four at a time (runs.h) */
  uint64_t samples;   /* events of sampled hooks encoded */
  uint64_t waited;    /* ticks for which it has waited for room */
  uint64_t hook_events[CT_HOOK_EVENT_COUNT]; /* but for HALF, which is all the others */
  uint64_t first_clock, last_clock;          /* of the first and last event that have one; 0: none yet */
  struct drain_details *details;             /* the detail lane; NULL: there is none */
  uint32_t detail_seq; /* position among the thread's segments there of the last one with a record */
  struct drain_waiting_details waiting_details;
  struct ct_rules *rules; /* NULL: there are none */
  struct drain_rolls *rolls;
  /* Of the open calls the outermost ones, which no rule about open calls can become true for any more; ... */
  size_t rules_checked;
  uint64_t rules_checked_tsc; /* ... the enter of the last of them, and the context that they are in */
  uint32_t rules_context;
};

/* The time of its last event, or when it had not begun: what has been lost was after that. */
static inline uint64_t
drain_thread_last(const struct drain_thread *thread)
{
  return thread->encoder->columns.last_tsc != 0 ? thread->encoder->columns.last_tsc : thread->since_tsc;
}

/* Of an event of CT_KIND_OTHER: which value (enum ct_value) it is, 0: none, or none that makes sense. */
static inline uint32_t
drain_value_which(uint32_t fn)
{
  static const uint8_t common[16] = {
      [CT_OTHER_ARG_1] = CT_VALUE_ARG_1, [CT_OTHER_ARG_2] = CT_VALUE_ARG_2, [CT_OTHER_RESULT] = CT_VALUE_RESULT};
  uint32_t which = common[fn & 15];
  if (which == 0) {
    which = (fn & 15) == CT_OTHER_VALUE ? fn >> 4 : 0;
    which = which < CT_VALUE_COUNT && which != CT_VALUE_BEFORE ? which : 0;
  }
  return (fn & CT_FN_POINT_BIT) == 0 ? which : 0;
}

/* In place of the clock the event has a value: an argument or a result, or where a detail record is. */
static inline bool
drain_is_value(uint32_t fn)
{
  uint32_t other = fn & 0xf;
  return (fn & CT_FN_POINT_BIT) == 0 &&
         ((other >= CT_OTHER_ARG_1 && other <= CT_OTHER_RESULT) || other == CT_OTHER_DETAIL || other == CT_OTHER_VALUE);
}

/* See there. */
static inline bool
drain_event_has_clock(const struct ct_ring_event *event)
{
  uint32_t fn = (uint32_t)event->word >> CT_WORD_FN_SHIFT;
  return (event->word >> CT_WORD_KIND_SHIFT & 3) != CT_KIND_OTHER || !drain_is_value(fn);
}

/* Encodes count events, all valid. modes is indexed by function id, function_count of them known. */
void drain_thread_events(struct drain_thread *thread, const struct ct_ring_event *events, size_t count,
                         const uint8_t *modes, uint32_t function_count);

/* Begins the thread's stream with the frames that it has at tsc. */
void drain_thread_open(struct drain_thread *thread, uint64_t tsc, const struct ct_drain_frame *frames, size_t count);

#endif
