/* SPDX-License-Identifier: MIT */
/*
 * For formats that know one stack for each thread: what is on the stack that the thread runs on. When it goes to
 * another stack (a coroutine, a signal stack), the frames of the one close and those of the other open again. Times
 * never go back.
 */
#ifndef CT_EXPORT_RUNNING_H
#define CT_EXPORT_RUNNING_H

#include "export/frames.h"
#include "export/lanes.h"
#include "export/walk.h"

#include <stddef.h>

struct ct_running_stack {
  uint32_t *frames;
  uint32_t count, capacity;
};

struct ct_running {
  /* Of the frame that is now the innermost, or was until now. 0, or what the functions below return. */
  int (*open)(void *arg, uint32_t frame, uint64_t ns);
  int (*close)(void *arg, uint32_t frame, uint64_t ns);
  void *arg;
  struct ct_export_lanes lanes;
  struct ct_running_stack *stacks; /* by lane */
  uint32_t stack_count, current;
  uint64_t ns; /* of the last event */
};

/* 0, CT_ENOMEM, or what open and close return. */
int ct_running_enter(struct ct_running *running, uint32_t context, uint32_t frame, uint64_t ns);
int ct_running_leave(struct ct_running *running, uint32_t context, uint64_t ns);
/* The thread is on that stack from now on, whatever is on it. */
int ct_running_switch(struct ct_running *running, uint32_t context, uint64_t ns);
/* One that comes and goes at once: a call without an end. */
int ct_running_point(struct ct_running *running, uint32_t context, uint32_t frame, uint64_t ns);
/* For so long nobody knows what the thread did: the frame lies over what is open, and is closed again. */
int ct_running_gap(struct ct_running *running, uint32_t frame, uint64_t begin_ns, uint64_t end_ns);
/* The walker's calls of it (walk.h): a frame with the number that frames has for its function. */
int ct_running_entered(struct ct_running *running, struct ct_export_frames *frames, const struct ct_walk_place *place,
                       const struct ct_span_frame *frame, uint64_t context);
void ct_running_clear(struct ct_running *running); /* for the next thread; frees */

#endif
