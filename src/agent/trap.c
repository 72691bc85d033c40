/* SPDX-License-Identifier: MIT */
/*
 * Hooks by int3 (`--int3`): the handler of SIGTRAP, set by the controller before the program's first instruction. Where
 * the trap is one of ours the thread goes on at the trampoline. A trap whose int3 is no longer there is executed again
 * (a processor may deliver it late). What is somebody else's ends the program as if nobody handled it (crash.c).
 *
 * The handler runs on the target's stack (the kernel has put its frame there already) and touches no memory but the
 * frame and the agent's list.
 */
#include "agent/agent.h"

#define SI_KERNEL_CODE 0x80 /* siginfo.si_code of int3 */

void
agent_trap(long number, const struct agent_siginfo *info, struct agent_context *context)
{
  uint64_t at = context->registers[CT_CRASH_RIP] - 1;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  if (info->code == SI_KERNEL_CODE) {
    for (uint64_t i = 0; i < count; i++) {
      const struct ct_region *region = &agent_config.regions[i];
      if (region->lo == at && region->desc_count == 0 && region->desc != 0) {
        context->registers[CT_CRASH_RIP] = region->desc;
        return;
      }
    }
    if (*(const volatile uint8_t *)at != 0xcc) {
      context->registers[CT_CRASH_RIP] = at;
      return;
    }
  }
  agent_crash(number, info, context);
}
