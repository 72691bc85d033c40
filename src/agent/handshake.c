/* SPDX-License-Identifier: MIT */
/*
 * Children of the traced process. A forked one has a copy of everything, hooks and all, but for the ring, which it
 * shares with its parent: it asks the controller for one of its own, and is a traced process from then on. One of vfork
 * or posix_spawn has the parent's memory: it says that it is about to exec, so that the controller goes along.
 *
 * There are so many pages for those who ask: who finds none waits for one. Every wait is bounded as in request.c, and
 * ends when nobody is followed any more: then all go on untraced. The controller puts the new ring where the old one
 * is, under our feet: with a copy of this page in it.
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

static struct ct_handshake *
free_page(uint64_t owner)
{
  for (uint64_t i = 0; i < CT_HANDSHAKE_COUNT; i++) {
    struct ct_handshake *handshake = (struct ct_handshake *)(agent_config.handshakes + i * CT_HANDSHAKE_BYTES);
    uint64_t none = 0;
    if (__atomic_load_n(&handshake->owner, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(&handshake->owner, &none, owner, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      return handshake;
    }
  }
  return 0;
}

static int
is_welcome(void)
{
  const struct ct_ring_header *r = agent_ring();
  return __atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0 &&
         __atomic_load_n(&r->handshakes_end, __ATOMIC_SEQ_CST) == 0 && controller_answers();
}

/* A child goes on without an answer. When nobody is followed any more it is none of ours. */
static void
count_lost(void)
{
  struct ct_ring_header *r = agent_ring();
  if (__atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0 &&
      __atomic_load_n(&r->handshakes_end, __ATOMIC_SEQ_CST) == 0) {
    __atomic_fetch_add(&r->handshakes_lost, 1, __ATOMIC_RELAXED);
  }
}

struct ct_handshake *
agent_take_handshake_page(uint32_t pid)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t drawn;
  __asm__ volatile("rdtsc" : "=a"(drawn) : : "edx"); /* distinguishes it from another owner with the same id */
  uint64_t owner = (uint64_t)pid << 32 | (uint32_t)(drawn << 1) | CT_HANDSHAKE_TAKEN;
  struct ct_handshake *handshake = is_welcome() ? free_page(owner) : 0;
  struct agent_patience patience = agent_patience();
  for (uint32_t step = 0; step < STEPS_MAX && handshake == 0 && is_welcome();) {
    uint32_t doorbell = __atomic_load_n(&r->handshake_doorbell, __ATOMIC_ACQUIRE);
    __atomic_fetch_add(&r->handshakes_waiting, 1, __ATOMIC_SEQ_CST);
    handshake = free_page(owner);
    if (handshake == 0) {
      step += (uint32_t)agent_wait(&r->handshake_doorbell, doorbell, WAIT_STEP_NS, &patience);
      handshake = free_page(owner);
    }
    __atomic_fetch_sub(&r->handshakes_waiting, 1, __ATOMIC_SEQ_CST);
  }
  if (handshake == 0) {
    count_lost();
  }
  return handshake;
}

/* Nobody is followed any more: true when the controller has not taken notice of this one, and will not. */
static int
withdraws(uint64_t bit)
{
  struct ct_ring_header *r = agent_ring();
  /* sequentially consistent, as the bit is set: pairs with the controller's handshakes_end and its look at the bits */
  return __atomic_load_n(&r->handshakes_end, __ATOMIC_SEQ_CST) != 0 &&
         (__atomic_fetch_and(&r->handshake_map, ~bit, __ATOMIC_SEQ_CST) & bit) != 0;
}

uint64_t
agent_child_handshake(struct ct_handshake *handshake, uint64_t sp, const struct ct_hook_desc *desc, uint32_t tid)
{
  struct ct_ring_header *r = agent_ring();
  int forked = *(const uint64_t *)(agent_config.controls + CT_CONTROL_OWN) == 0;
  if (!forked && !may_exec(desc)) {
    return 0;
  }
  if (!is_welcome()) {
    count_lost();
    return 0;
  }
  handshake->kind = forked ? CT_HANDSHAKE_FORK : CT_HANDSHAKE_EXEC;
  handshake->pid = (uint32_t)(handshake->owner >> 32);
  handshake->tid = tid;
  handshake->path = forked ? 0 : agent_exec_path(desc, sp);
  handshake->hooks_version = agent_config.hooks_version;
  struct agent_patience patience = agent_patience();
  uint64_t index = ((uint64_t)handshake - agent_config.handshakes) / CT_HANDSHAKE_BYTES;
  /* release: pairs with the controller's acquire of PENDING */
  __atomic_store_n(&handshake->state, CT_HANDSHAKE_PENDING, __ATOMIC_RELEASE);
  __atomic_fetch_or(&r->handshake_map, 1ull << index, __ATOMIC_SEQ_CST);
  if (withdraws(1ull << index)) {
    __atomic_store_n(&handshake->state, CT_HANDSHAKE_NONE, __ATOMIC_RELAXED);
    return 0;
  }
  agent_ring_control_doorbell();
  for (uint32_t step = 0; step < STEPS_MAX && controller_answers() &&
                          __atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0 &&
                          __atomic_load_n(&handshake->state, __ATOMIC_ACQUIRE) == CT_HANDSHAKE_PENDING;) {
    step += (uint32_t)agent_wait(&handshake->state, CT_HANDSHAKE_PENDING, WAIT_STEP_NS, &patience);
  }
  uint32_t state = __atomic_exchange_n(&handshake->state, CT_HANDSHAKE_NONE, __ATOMIC_ACQ_REL);
  if (state == CT_HANDSHAKE_PENDING) {
    count_lost();
  }
  return forked && state == CT_HANDSHAKE_DONE;
}
