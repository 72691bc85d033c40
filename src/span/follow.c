/* SPDX-License-Identifier: MIT */
/* The builder of spans on a trace that grows; see spans.h. */
#include "span/spans_internal.h"

#include <stdlib.h>

void
ct_spans_follow(struct ct_spans *spans, bool follows)
{
  struct ct_span_bounds *bounds = &spans->bounds;
  spans->follows = follows;
  free(bounds->inside);
  free(bounds->before);
  free(bounds->at_most);
  free(bounds->touched);
  free(bounds->marks);
  *bounds = (struct ct_span_bounds){0};
}

int
ct_spans_grow(struct ct_spans *spans)
{
  struct ct_trace *trace = spans->unwind_reason.trace;
  uint32_t count = ct_trace_function_count(trace), old = spans->fn_count;
  struct ct_unwind_reason reason;
  if (ct_unwind_reason_init(&reason, trace) != 0) { /* how the recording ended may be known now, too */
    return CT_ENOMEM;
  }
  ct_unwind_reason_destroy(&spans->unwind_reason);
  spans->unwind_reason = reason;
  if (count <= old) {
    return 0;
  }
  struct ct_span_presence *present = reallocarray(spans->present, (size_t)count + 1, sizeof(*present));
  if (present == NULL) {
    return CT_ENOMEM;
  }
  spans->present = present;
  present[count] = present[old]; /* the one for ids that the table does not have */
  for (uint32_t fn = old; fn < count; fn++) {
    present[fn] = (struct ct_span_presence){0};
  }
  spans->fn_count = count;
  return 0;
}

void
ct_spans_pause(struct ct_spans *spans)
{
  spans->paused = true;
}

bool
ct_spans_is_paused(const struct ct_spans *spans)
{
  return spans->paused;
}
