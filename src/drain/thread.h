/* SPDX-License-Identifier: MIT */
/* Inside the drain: one thread of the target, and how its events become calls. */
#ifndef CT_DRAIN_THREAD_H
#define CT_DRAIN_THREAD_H

#include "drain/drain.h"
#include "trace/encoder.h"

#define DRAIN_STACKS 8

/* A stack of the thread: what its events' slots lie in. */
struct drain_stack {
  uint32_t low;    /* low half of its lowest address */
  uint32_t length; /* in bytes */
  uint32_t context;
};

struct drain_thread {
  struct ct_encoder *encoder;
  uint32_t info; /* index into the drain's list of infos */
  uint32_t tid;
  uint32_t generation; /* of the slot */
  uint32_t next_seq;   /* position of the segment expected next */
  uint32_t gap_seq;    /* a position expected next that was not there ... */
  uint64_t gap_round;  /* ... in this round of the drain */
  uint64_t holes;
  uint64_t polled_seq; /* activation number of the segment that was read in part ... */
  uint32_t polled;     /* ... and how many of its events */
  uint64_t held_seq;   /* activation number of a full segment that waits for a place to be written ... */
  uint32_t held;       /* ... and which it is */
  /* The stack of the last switch; length UINT32_MAX while it is not known. Behind it those of switches before. */
  uint32_t stack_low, stack_length;
  struct drain_stack stacks[DRAIN_STACKS]; /* the last one first */
  uint32_t stack_count;
  bool own_point; /* on a stack of length 0: the next point is a call on it, all else is not */
  bool has_base;  /* the thread's own stack is known */
  uint32_t base_context;
  uint32_t max_depth; /* calls further in are left out */
  uint64_t lights;    /* events of light hooks encoded */
};

/* Encodes count events, all valid. modes is indexed by function id, function_count of them known. */
void drain_thread_events(struct drain_thread *thread, const struct ct_ring_event *events, size_t count,
                         const uint8_t *modes, uint32_t function_count);

#endif
