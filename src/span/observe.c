/* SPDX-License-Identifier: MIT */
/* Reports the calls to an observer; see spans.h. Notes are as the frames of a stack, and grow after them. */
#include "span/spans_internal.h"

#include <stdlib.h>
#include <string.h>

void
ct_spans_observe(struct ct_spans *spans, const struct ct_span_observer *observer)
{
  spans->observer = observer;
}

uint64_t
ct_spans_now(const struct ct_spans *spans)
{
  return spans->clock.now;
}

uint64_t
ct_spans_off_now(const struct ct_spans *spans)
{
  return spans->clock.off;
}

/* Room for notes as there is for frames. */
static int
fit_notes(struct ct_span_stack *stack)
{
  if (stack->note_capacity < stack->capacity) {
    struct ct_span_note *notes = reallocarray(stack->notes, stack->capacity, sizeof(*notes));
    if (notes == NULL) {
      return CT_ENOMEM;
    }
    stack->notes = notes;
    stack->note_capacity = stack->capacity;
  }
  return 0;
}

static int
clear_notes(struct ct_span_stack *stack, void *arg)
{
  (void)arg;
  int code = fit_notes(stack);
  if (code == 0 && stack->count != 0) {
    memset(stack->notes, 0, stack->count * sizeof(*stack->notes));
  }
  return code;
}

int
ct_spans_observe_restored(struct ct_spans *spans)
{
  bool has_notes = spans->observer != NULL && spans->observer->edges == NULL;
  return has_notes ? ct_span_stacks_each(&spans->stacks, clear_notes, NULL) : 0;
}

int
ct_spans_report_enter(struct ct_spans *spans, struct ct_span_stack *stack)
{
  if (spans->observer->edges != NULL) {
    return spans->observer->entered(spans->observer->arg, spans, stack);
  }
  if (fit_notes(stack) != 0) {
    return CT_ENOMEM;
  }
  stack->notes[stack->count - 1] = (struct ct_span_note){0};
  return spans->observer->entered(spans->observer->arg, spans, stack);
}

void
ct_spans_report_end(struct ct_spans *spans, struct ct_span_stack *stack, bool has_note)
{
  static const struct ct_span_note none = {0};
  const struct ct_span *span = &spans->batch[spans->count - 1];
  struct ct_span_call call = {.span = span, .here_ticks = span->self_ticks, .self_off_ticks = span->off_ticks};
  if (has_note && spans->observer->edges != NULL) {
    call.note = &none;
  } else if (has_note) {
    const struct ct_span_note *note = &stack->notes[stack->count];
    call.note = note;
    call.here_ticks += note->inside;
    call.self_off_ticks = span->off_ticks > note->child_off ? span->off_ticks - note->child_off : 0;
    call.here_off_ticks = call.self_off_ticks + note->inside_off;
    if (stack->count != 0) {
      struct ct_span_note *below = &stack->notes[stack->count - 1];
      below->inside += call.here_ticks;
      below->inside_off += call.here_off_ticks;
      below->child_off += span->off_ticks;
    }
  } else {
    call.here_off_ticks = call.self_off_ticks;
  }
  if (spans->observer_code == 0) {
    spans->observer_code = spans->observer->ended(spans->observer->arg, spans, stack, &call);
  }
}
