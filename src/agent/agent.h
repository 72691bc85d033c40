/* SPDX-License-Identifier: MIT */
/* Inside the agent only: raw system calls, the configuration, and what its files offer each other. */
#ifndef CT_AGENT_AGENT_H
#define CT_AGENT_AGENT_H

#include "ring/layout.h"

/* From the kernel's x86-64 system call table and uapi headers; the agent includes none of them. */
#define SYS_read              0
#define SYS_open              2
#define SYS_close             3
#define SYS_mmap              9
#define SYS_rt_sigaction      13
#define SYS_rt_sigprocmask    14
#define SYS_getpid            39
#define SYS_gettid            186
#define SYS_tgkill            234
#define SYS_sched_yield       24
#define SYS_mincore           27
#define SYS_kill              62
#define SYS_futex             202
#define SYS_sigaltstack       131
#define SYS_rt_tgsigqueueinfo 297
#define SYS_process_vm_readv  310
#define FUTEX_WAIT            0 /* not private: the controller waits on the same words */
#define FUTEX_WAKE            1

#define PROT_RW             3
#define MAP_PRIVATE_ANON    0x22
#define MAP_NORESERVE       0x4000
#define MAP_FIXED_NOREPLACE 0x100000

struct agent_timespec {
  int64_t seconds;
  int64_t nanoseconds;
};

/* stack_t, as in the kernel's <asm/signal.h>. */
struct agent_signal_stack {
  uint64_t sp;
  int32_t flags;
  int32_t pad;
  uint64_t size;
};

#define AGENT_HIDDEN __attribute__((visibility("hidden")))

extern AGENT_HIDDEN struct ct_agent_config agent_config;

static inline long
agent_syscall(long number, long a, long b, long c, long d, long e, long f)
{
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

static inline struct ct_ring_header *
agent_ring(void)
{
  return (struct ct_ring_header *)agent_config.ring;
}

static inline struct ct_segment_entry *
segment_entry(uint32_t index)
{
  return (struct ct_segment_entry *)(agent_config.ring + agent_ring()->table_offset) + index;
}

static inline struct ct_slot *
slot_of(const struct ct_control *control)
{
  return (struct ct_slot *)(agent_config.ring + agent_ring()->slots_offset) + control->slot;
}

/*
 * Whether the controller still counts its heartbeat up: a wait that saw no beat for a second notes the value it stood
 * at, and as long as it stands there nobody waits again.
 */
extern AGENT_HIDDEN uint64_t agent_dead_beat;

static inline int
controller_lives(void)
{
  return __atomic_load_n(&agent_ring()->heartbeat, __ATOMIC_RELAXED) !=
         __atomic_load_n(&agent_dead_beat, __ATOMIC_RELAXED);
}

/* The same of the pulse, for those that wait for an answer. */
extern AGENT_HIDDEN uint64_t agent_dead_pulse;

static inline int
controller_answers(void)
{
  return __atomic_load_n(&agent_ring()->pulse, __ATOMIC_RELAXED) !=
         __atomic_load_n(&agent_dead_pulse, __ATOMIC_RELAXED);
}

/*
 * The pulse stands still when the controller is dead, and when nothing lets it run. The second is waited for longer.
 * (In another pid namespace it looks dead.)
 */
static inline int
controller_is_gone(void)
{
  return agent_syscall(SYS_kill, (long)agent_ring()->controller_pid, 0, 0, 0, 0, 0) == -3 /* ESRCH */;
}

/* stack.c: the stack on which sp lies, its return store mapped; 0 when that cannot be had. */
AGENT_HIDDEN int agent_stack_range(uint64_t sp, struct ct_stack_range *range);
/*
 * request.c: rings for the controller; waits while *word is value, for one step at most. Whoever waits for an answer
 * asks controller_answers() between steps: it says no when the pulse has stood still for too long in these steps.
 */
struct agent_patience {
  uint64_t pulse;
  uint32_t silent;
};
AGENT_HIDDEN struct agent_patience agent_patience(void);
AGENT_HIDDEN void agent_ring_control_bell(void);
/* True when the step has passed. */
AGENT_HIDDEN int agent_wait(uint32_t *word, uint32_t value, int64_t step_ns, struct agent_patience *patience);
/* Tells the controller and waits for its answer, bounded. */
AGENT_HIDDEN void agent_request(struct ct_slot *slot, const struct ct_hook_desc *desc, uint64_t sp);

/*
 * visit.c, called by entry.S: a child of the traced process tells the controller of itself, with visitor's page for a
 * stack. 1: it is a traced process itself now.
 */
AGENT_HIDDEN uint64_t agent_visit(struct ct_visitor *visitor, uint64_t sp, const struct ct_hook_desc *desc,
                                  uint32_t tid);
/*
 * The path of an execve, as entry.S has saved registers in the 128 bytes below the target's stack pointer. Of execveat
 * and the like it is no address, and nothing is found there.
 */
AGENT_HIDDEN uint64_t agent_exec_path(const struct ct_hook_desc *desc, uint64_t sp);

struct dwarf_eh_bases; /* unwind.c */
struct dl_find_object;

/* Called by entry.S, on the agent's stack with all signals blocked. */
AGENT_HIDDEN uint64_t agent_slow_path(struct ct_control *control, uint64_t sp, const struct ct_hook_desc *desc,
                                      uint32_t half, uint32_t tid, uint32_t found);

/* siginfo_t and ucontext_t as the kernel lays them out (asm/siginfo.h, asm/sigcontext.h). */
struct agent_siginfo {
  int32_t number, error, code;
};
struct agent_context {
  uint64_t flags, link, stack[3];
  uint64_t registers[CT_CRASH_REGISTERS];
};
/* Called by the kernel: trap.c, the handler of SIGTRAP for hooks by int3; crash.c, that of fatal signals. */
AGENT_HIDDEN void agent_trap(long number, const struct agent_siginfo *info, struct agent_context *context);
AGENT_HIDDEN void agent_crash(long number, const struct agent_siginfo *info, struct agent_context *context);
AGENT_HIDDEN void agent_restorer(void); /* what they return to */
/*
 * Called by entry.S, on the caller's stack: behind a call of sigaction(signal, action, old) for a signal of
 * config.crash_signals, by_syscall: old is the kernel's struct; and before a seccomp filter comes into force.
 */
AGENT_HIDDEN void agent_sigaction_done(uint32_t signal, void *old, long result, uint32_t by_syscall);
AGENT_HIDDEN void agent_crash_withdraw(void);
/* print.c: the program writes to a descriptor, from a buffer of count bytes or from count vectors. Likewise. */
AGENT_HIDDEN void agent_print(uint32_t fd, uint64_t address, uint64_t count, uint32_t is_vector);
/* agent.c: wakes the drain if it sleeps. */
AGENT_HIDDEN void agent_wake_drain(void);
/* Called by entry.S on the unwinder's stack. */
struct dl_phdr_info;
/* dl_iterate_phdr: an int, or CT_NOT_OURS. */
AGENT_HIDDEN uint64_t agent_modules(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data,
                                    const struct ct_hook_desc *self);
AGENT_HIDDEN void *agent_find_fde(uint64_t pc, struct dwarf_eh_bases *bases, const struct ct_hook_desc *self);
AGENT_HIDDEN uint64_t agent_find_object(uint64_t pc, struct dl_find_object *result, const struct ct_hook_desc *self);

#endif
