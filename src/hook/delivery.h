/* SPDX-License-Identifier: MIT */
/*
 * Writing into the target from a second thread while the first emits what comes next. With nothing to write it touches
 * the pages of text that will be patched, so that they are the target's own copies by then.
 */
#ifndef CT_HOOK_DELIVERY_H
#define CT_HOOK_DELIVERY_H

#include "hook/text.h"
#include "plan/plan.h"
#include "process/process.h"

struct ct_delivery;

/*
 * Starts the thread. The plan's module lies at base; plan, filter_result and texts, its text, must live until the end.
 * Buffers that are handed over have buffer_bytes and come from malloc. NULL when there is no thread or no memory to be
 * had: then one writes oneself.
 */
struct ct_delivery *ct_delivery_start(const struct ct_process *process, const struct ct_plan *plan,
                                      const struct ct_filter_result *filter_result, const struct ct_texts *texts,
                                      uint64_t base, size_t buffer_bytes);

/* Has the first `bytes` of *buffer written at address, and gives another buffer for it. Waits for the write before. */
void ct_delivery_put(struct ct_delivery *delivery, uint64_t address, void **buffer, size_t bytes);

/* Waits until all is written, ends the thread and frees all but the caller's buffers. 0, or why a write failed. */
int ct_delivery_end(struct ct_delivery *delivery);

#endif
