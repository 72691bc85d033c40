/* SPDX-License-Identifier: MIT */
/*
 * A thread that has left translated code by itself, while its tracer got no processor, and comes back. It has run as if
 * it were not traced: its records have a gap, and code may have been mapped, changed and unmapped unseen.
 */
#include "itrace/tracer.h"

void
ct_tracer_is_back(struct ct_tracer *tracer, const struct user_regs_struct *regs)
{
  if (ct_tracer_records(tracer)) {
    ct_tracer_close_left(tracer, regs);
  }
  tracer->summary.left++;
  tracer->state = CT_TRACER_STEPS; /* that is, not in translated code */
  tracer->reason = CT_CONTEXT_SEGMENT;
  tracer->steps_call = false;
  tracer->wants_step = tracer->wants_room = tracer->wants_watched = tracer->wants_sequence = false;
  tracer->wants_back = false;
  tracer->changes--;            /* it may have mapped something: see_changes */
  tracer->flushes_after = true; /* and may have changed code */
  tracer->changed_start = 0;
  tracer->changed_end = UINT64_MAX - 4096;
  __atomic_store_n(&tracer->space->slots->request, CT_ITRACE_ANSWERED, __ATOMIC_RELAXED);
}

void
ct_tracer_make_changes(struct ct_tracer *tracer)
{
  if (tracer->flushes_after) {
    tracer->flushes_after = false;
    ct_tracer_flush(tracer);
    ct_itrace_changed(tracer, tracer->changed_start, tracer->changed_end);
  }
}
