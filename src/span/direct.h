/* SPDX-License-Identifier: MIT */
/* What takes the ops of a block without events in between: direct.c makes spans of them, direct_sums.c sums. */
#ifndef CT_SPAN_DIRECT_H
#define CT_SPAN_DIRECT_H

#include "span/spans_internal.h"
#include "trace/ops.h"

/* The frame is from before the loop: the cursor knows it, and says the same of it. */
bool ct_direct_agrees(const struct ct_ops *ops, const struct ct_span_stack *stack, const struct ct_span_frame *frame);
/* For ct_cursor_took; arg: the stack. */
struct ct_open_frame ct_direct_frame_at(const void *arg, uint32_t depth);

/* The function of a call; CT_FUNCTION_NONE: the block does not say it. */
static inline __attribute__((always_inline)) uint32_t
ct_direct_called(const uint32_t *id, uint32_t prediction, uint32_t with_id)
{
  return prediction ^ ((prediction ^ *id) & (0u - with_id));
}

/* Adds the ops' calls to stats, which are the builder's. 0 or CT_ENOMEM. */
int ct_direct_sum(struct ct_spans *spans, struct ct_stats *stats, struct ct_ops *ops);
/* What has been added, to where it is looked at, unless there is a code already. That, 0 or CT_ENOMEM. */
int ct_direct_sums_end(struct ct_spans *spans, struct ct_stats *stats, int code);

#endif
