/* SPDX-License-Identifier: MIT */
/*
 * Requests to the controller: the loader's rendezvous and an exec to come. The thread waits in here, bounded: it
 * goes on when the controller has answered, or when its liveness counter stands still. While it waits it can be
 * asked to make a system call (mapping memory) in the target's name.
 */
#include "agent/agent.h"

#define WAIT_STEP_NS     (100 * 1000 * 1000)
#define SILENT_STEPS     10  /* controller_liveness stood still for a second: is the controller there? */
#define SILENT_STEPS_MAX 100 /* it is, and still nothing */
#define STEPS_MAX        600 /* a minute in all */

/* The loader has said that it is about to change its list: there is nothing to see yet, it calls again. */
static int
loader_is_busy(const struct ct_hook_desc *desc)
{
  return desc->callout == CT_CALLOUT_RENDEZVOUS && agent_config.loader_state != 0 &&
         *(const volatile uint32_t *)agent_config.loader_state != 0;
}

void
agent_ring_control_doorbell(void)
{
  struct ct_ring_header *r = agent_ring();
  __atomic_fetch_add(&r->control_doorbell, 1, __ATOMIC_RELEASE);
  agent_syscall(SYS_futex, (long)&r->control_doorbell, FUTEX_WAKE, 1, 0, 0, 0);
}

struct agent_patience
agent_patience(void)
{
  return (struct agent_patience){__atomic_load_n(&agent_ring()->controller_liveness, __ATOMIC_RELAXED), 0};
}

int
agent_wait(uint32_t *word, uint32_t value, int64_t step_ns, struct agent_patience *patience)
{
  struct agent_timespec wait = {0, step_ns};
  if (agent_syscall(SYS_futex, (long)word, FUTEX_WAIT, value, (long)&wait, 0, 0) != -110 /* ETIMEDOUT */) {
    return 0;
  }
  uint64_t now = __atomic_load_n(&agent_ring()->controller_liveness, __ATOMIC_RELAXED);
  patience->silent = now == patience->last ? patience->silent + 1 : 0;
  patience->last = now;
  if (patience->silent >= SILENT_STEPS_MAX || (patience->silent >= SILENT_STEPS && controller_is_gone())) {
    __atomic_store_n(&agent_dead_controller, now, __ATOMIC_RELAXED);
  }
  return 1;
}

uint64_t
agent_exec_path(const struct ct_hook_desc *desc, uint64_t sp)
{
  switch (desc->callout) {
  case CT_CALLOUT_SYSCALL:
    return *(const uint64_t *)(sp - 48); /* rsi */
  case CT_CALLOUT_GO_SYSCALL:
    return *(const uint64_t *)(sp - 80); /* rbx */
  default:
    return *(const uint64_t *)(sp - 56); /* rdi */
  }
}

int
agent_request(struct ct_slot *slot, const struct ct_hook_desc *desc, uint64_t sp)
{
  const struct ct_ring_header *r = agent_ring();
  struct ct_request *request = &slot->request;
  if (agent_is_silent() || r->closed != 0 || !controller_answers() || loader_is_busy(desc)) {
    return 0;
  }
  request->kind = desc->callout == CT_CALLOUT_RENDEZVOUS ? CT_REQUEST_RENDEZVOUS : CT_REQUEST_EXEC;
  request->arg[0] = agent_exec_path(desc, sp);
  return agent_ask(slot);
}

int
agent_ask(struct ct_slot *slot)
{
  struct ct_ring_header *r = agent_ring();
  struct ct_request *request = &slot->request;
  struct agent_patience patience = agent_patience();
  uint32_t pending = CT_REQ_WITH(request->state + 4, CT_REQ_PENDING);
  /* release: pairs with the controller's acquire of PENDING */
  __atomic_store_n(&request->state, pending, __ATOMIC_RELEASE);
  uint32_t index = (uint32_t)(slot - (struct ct_slot *)((uint8_t *)r + r->slots_offset));
  __atomic_fetch_or(&r->request_map[index / 64], 1ull << (index % 64), __ATOMIC_RELEASE);
  agent_ring_control_doorbell();
  for (uint32_t step = 0;
       step < STEPS_MAX && controller_answers() && __atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0;) {
    uint32_t state = __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
    if (CT_REQ_CODE(state) == CT_REQ_DONE) {
      break;
    }
    if (CT_REQ_CODE(state) == CT_REQ_SYSCALL) {
      request->result =
          agent_syscall((long)request->number, (long)request->arg[0], (long)request->arg[1], (long)request->arg[2],
                        (long)request->arg[3], (long)request->arg[4], (long)request->arg[5]);
      __atomic_store_n(&request->state, pending, __ATOMIC_RELEASE);
      agent_ring_control_doorbell();
      continue;
    }
    step += (uint32_t)agent_wait(&request->state, pending, WAIT_STEP_NS, &patience);
  }
  __atomic_store_n(&request->state, CT_REQ_WITH(pending, CT_REQ_IDLE), __ATOMIC_RELEASE);
  return 1;
}
