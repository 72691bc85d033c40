/* SPDX-License-Identifier: MIT */
/*
 * Hooks by int3 (`--int3`): the handler of SIGTRAP, set by the controller before the program's first instruction. Where
 * the trap is one of ours the thread goes on at the trampoline. A trap whose int3 is no longer there is executed again
 * (a processor may deliver it late). What is somebody else's ends the program as if nobody handled it.
 *
 * The handler runs on the target's stack (the kernel has put its frame there already) and touches no memory but the
 * frame and the agent's list.
 */
#include "agent/agent.h"

#define SIGTRAP_NUMBER 5
#define SI_KERNEL_CODE 0x80 /* siginfo.si_code of int3 */

/* struct siginfo and ucontext as the kernel lays them out (asm/siginfo.h, asm/sigcontext.h). */
struct trap_info {
  int32_t number, error, code;
};
struct trap_context {
  uint64_t flags, link, stack[3];
  uint64_t registers[16]; /* r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp */
  uint64_t rip;
};

struct trap_action {
  uint64_t handler, flags, restorer, mask;
};

AGENT_HIDDEN void
agent_trap(long number, const struct trap_info *info, struct trap_context *context)
{
  uint64_t at = context->rip - 1;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  if (info->code == SI_KERNEL_CODE) {
    for (uint64_t i = 0; i < count; i++) {
      const struct ct_region *region = &agent_config.regions[i];
      if (region->lo == at && region->desc_count == 0 && region->desc != 0) {
        context->rip = region->desc;
        return;
      }
    }
    context->rip = at;
    if (*(const volatile uint8_t *)at != 0xcc) {
      return;
    }
  }
  struct trap_action none = {0};
  agent_syscall(SYS_rt_sigaction, SIGTRAP_NUMBER, (long)&none, 0, 8, 0, 0);
  if (info->code != SI_KERNEL_CODE) {
    long pid = agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
    long tid = agent_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
    agent_syscall(SYS_tgkill, pid, tid, number, 0, 0, 0);
  }
}
