/* SPDX-License-Identifier: MIT */
/* Rules in the rounds of the drain: what does not wait for events. rules.c is the rules themselves. */
#include "drain/drain_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RULES_WAIT_NS 5000000000 /* for the controller, on a busy machine, to find out who handles a signal */

void
ct_drain_rules(struct ct_drain *drain, struct ct_rules *rules)
{
  drain->rules = rules;
}

struct drain_rolls *
ct_drain_rolls(struct ct_drain *drain, uint32_t index)
{
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && index != UINT32_MAX; slot++) {
    if (drain->threads[slot] != NULL && drain->threads[slot]->index == index) {
      return drain->threads[slot]->rolls;
    }
  }
  return NULL;
}

void
drain_check_rules(struct ct_drain *drain, uint64_t now)
{
  if (drain->rules == NULL || !drain->rules->any) {
    return;
  }
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && drain->rules->slow != 0; slot++) {
    struct drain_thread *thread = drain->threads[slot];
    /* Where events have not been read yet a call that seems to go on may have returned long ago. */
    if (thread != NULL && (!rules_have_open_call(thread, now) || !drain_has_unread(drain, slot))) {
      rules_open_calls(thread, now);
    }
  }
  for (size_t n = 0; n < drain->stacks.count && drain->rules->slow != 0; n++) {
    if (drain->early[n].thread != NULL) {
      rules_open_calls(drain->early[n].thread, now);
    }
  }
  rules_time(drain->rules, now);
}

/*
 * The agent has notified the controller before the kernel knew the handler, so before its first call. The controller's
 * thread may be slow: a short while is given to it, as long as there is room in the rings. The round's answer does not
 * go back to false: what follows a segment that has been left alone must not be read before it.
 */
bool
drain_waits_for_rules(struct ct_drain *drain)
{
  const struct ct_rules *rules = drain->rules;
  if (drain->waits_for_rules || rules == NULL || rules->signals == 0) {
    return drain->waits_for_rules;
  }
  if (__atomic_load_n(&drain->ring->handlers_changes, __ATOMIC_ACQUIRE) == rules->handlers_known) {
    drain->unknown_since = 0;
    return false;
  }
  drain->unknown_since = drain->unknown_since != 0 ? drain->unknown_since : drain->now;
  drain->waits_for_rules = drain->now - drain->unknown_since < RULES_WAIT_NS && !drain_is_short(drain);
  return drain->waits_for_rules;
}

void
drain_ring_for_session(struct ct_drain *drain)
{
  /* acquire: pairs with the release of ct_rules_mark */
  bool acts = drain->rules != NULL && atomic_load_explicit(&drain->rules->actions, memory_order_acquire) != 0;
  if (acts || drain->counts.is_answer) {
    drain->counts.is_answer = false;
    __atomic_fetch_add(&drain->ring->control_doorbell, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &drain->ring->control_doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
}
