/* SPDX-License-Identifier: MIT */
#include "base/prompt.h"

#include "base/clock.h"
#include "base/worker.h"

#define WINDOW_NS 100000000u
#define SHARE_NS  20000000u /* of a processor in a window, as one of the real-time class */

static void
open_window(struct ct_prompt *prompt, uint64_t now)
{
  prompt->window_ns = now;
  prompt->worked_ns = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  if (prompt->is_allowed && !prompt->is_raised) {
    prompt->is_raised = prompt->is_allowed = ct_priority_raise();
  }
}

void
ct_prompt_begin(struct ct_prompt *prompt)
{
  *prompt = (struct ct_prompt){.is_allowed = true};
  open_window(prompt, ct_now_ns());
}

void
ct_prompt_turn(struct ct_prompt *prompt)
{
  uint64_t now = ct_now_ns();
  if (now - prompt->window_ns > WINDOW_NS) {
    open_window(prompt, now);
  } else if (prompt->is_raised && ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - prompt->worked_ns > SHARE_NS) {
    ct_prompt_end(prompt);
  }
}

void
ct_prompt_end(struct ct_prompt *prompt)
{
  if (prompt->is_raised) {
    ct_priority_restore();
    prompt->is_raised = false;
  }
}
