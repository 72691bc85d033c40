/* SPDX-License-Identifier: MIT */
/*
 * A thread that mostly waits, and is to go on as soon as what it waits for is there, on processors that others want
 * too: of the real-time class for as long as it takes less than a fifth of a processor.
 *
 *     struct ct_prompt prompt;
 *     ct_prompt_begin(&prompt);
 *     while (wait_and_work()) {
 *       ct_prompt_turn(&prompt);
 *     }
 *     ct_prompt_end(&prompt);
 *
 * All by the same thread, of the normal class at the begin; one that is in another class, or may not change it
 * (CAP_SYS_NICE, RLIMIT_RTPRIO), is left as it is. The threads and processes that it starts are of the normal class.
 */
#ifndef CT_BASE_PROMPT_H
#define CT_BASE_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

struct ct_prompt {
  bool is_allowed, is_raised;
  uint64_t window_ns; /* the begin of the time that is looked at */
  uint64_t worked_ns; /* what the thread had then had of a processor */
};

void ct_prompt_begin(struct ct_prompt *prompt);
/* To be called after each piece of work, which takes a millisecond or less. */
void ct_prompt_turn(struct ct_prompt *prompt);
void ct_prompt_end(struct ct_prompt *prompt);

#endif
