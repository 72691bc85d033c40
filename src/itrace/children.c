/* SPDX-License-Identifier: MIT */
/*
 * Threads and processes that a traced thread has made. The tracer's thread traces them from their first instruction on;
 * when they have stopped there, itrace.c says what becomes of them.
 */
#include "itrace/tracer.h"

#include "base/clock.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#define CHILD_WAIT_NS 5000000ull

/* Has the new thread or process stopped, or ended? Then it is seen to. */
static bool
see_to_child(struct ct_tracer *tracer, pid_t child)
{
  struct ct_traced_event event;
  ct_traced_poll(child, &event);
  switch (event.stop) {
  case CT_TRACED_GONE:
    return true;
  case CT_TRACED_RUNS:
    return false;
  case CT_TRACED_ENDS: /* killed before its first instruction */
    ct_traced_detach(child, 0);
    return true;
  default:
    return ct_itrace_child(tracer, child, event.stop == CT_TRACED_SIGNAL ? event.signal : 0);
  }
}

void
ct_tracer_has_child(struct ct_tracer *tracer, pid_t child)
{
  uint64_t until = ct_now_ns() + CHILD_WAIT_NS;
  struct timespec wait = {0, 20000};
  bool has_room = tracer->child_count < CT_CHILDREN, is_done = see_to_child(tracer, child);
  while (!is_done && (!has_room || ct_now_ns() < until)) {
    nanosleep(&wait, NULL);
    is_done = see_to_child(tracer, child);
  }
  if (!is_done) {
    tracer->children[tracer->child_count++] = child;
  }
}

void
ct_tracer_see_to_children(struct ct_tracer *tracer)
{
  uint32_t left = 0;
  for (uint32_t i = 0; i < tracer->child_count; i++) {
    if (!see_to_child(tracer, tracer->children[i])) {
      tracer->children[left++] = tracer->children[i];
    }
  }
  tracer->child_count = left;
}

void
ct_tracer_see_to_stray(struct ct_tracer *tracer)
{
  pid_t stray = tracer->child_count == 0 ? ct_traced_stray(tracer->tid) : 0;
  if (stray != 0) {
    ct_tracer_has_child(tracer, stray);
  }
}

bool
ct_tracer_has_made_untraced(const struct ct_tracer *tracer, int64_t result)
{
  const struct ct_system_call *call = &tracer->call;
  uint64_t flags = call->number == SYS_clone ? call->args[0] : 0;
  if (call->number == SYS_clone3 &&
      ct_process_read(&tracer->process, call->args[0], &flags, sizeof(flags)) != 0) { /* the first word of clone_args */
    return false;
  }
  return result > 0 && (flags & CLONE_UNTRACED) != 0 && (flags & CLONE_THREAD) != 0;
}
