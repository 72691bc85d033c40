/* SPDX-License-Identifier: MIT */
/*
 * Children of the traced process. A forked one has a copy of everything, hooks and all, but for the ring, which it
 * shares with its parent: it asks the controller for one of its own, and is a traced process from then on. One of vfork
 * or posix_spawn has the parent's memory: it says that it is about to exec, so that the controller goes along.
 *
 * The wait is bounded as in request.c. The controller puts the new ring where the old one is, under our feet: with a
 * copy of this page in it.
 */
#include "agent/agent.h"

#define WAIT_STEP_NS (100 * 1000 * 1000)
#define STEPS_MAX    600 /* a minute in all */

static int
may_exec(const struct ct_hook_desc *desc)
{
  return desc->callout == CT_CALLOUT_EXEC || desc->callout == CT_CALLOUT_SYSCALL ||
         desc->callout == CT_CALLOUT_GO_SYSCALL;
}

uint64_t
agent_visit(struct ct_visitor *visitor, uint64_t sp, const struct ct_hook_desc *desc, uint32_t tid)
{
  struct ct_ring_header *r = agent_ring();
  int forked = *(const uint64_t *)(agent_config.controls + CT_CONTROL_OWN) == 0;
  if (r->closed != 0 || !controller_answers() || (!forked && !may_exec(desc))) {
    return 0;
  }
  visitor->kind = forked ? CT_VISIT_FORK : CT_VISIT_EXEC;
  visitor->pid = (uint32_t)(visitor->owner >> 32);
  visitor->tid = tid;
  visitor->path = forked ? 0 : agent_exec_path(desc, sp);
  visitor->hooks_version = agent_config.hooks_version;
  struct agent_patience patience = agent_patience();
  uint64_t index = ((uint64_t)visitor - agent_config.visitors) / CT_VISITOR_BYTES;
  /* release: pairs with the controller's acquire of PENDING */
  __atomic_store_n(&visitor->state, CT_VISIT_PENDING, __ATOMIC_RELEASE);
  __atomic_fetch_or(&r->visit_map, 1ull << index, __ATOMIC_RELEASE);
  agent_ring_control_bell();
  for (uint32_t step = 0; step < STEPS_MAX && controller_answers() &&
                          __atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0 &&
                          __atomic_load_n(&visitor->state, __ATOMIC_ACQUIRE) == CT_VISIT_PENDING;) {
    step += (uint32_t)agent_wait(&visitor->state, CT_VISIT_PENDING, WAIT_STEP_NS, &patience);
  }
  uint32_t state = __atomic_exchange_n(&visitor->state, CT_VISIT_NONE, __ATOMIC_ACQ_REL);
  return forked && state == CT_VISIT_DONE;
}
