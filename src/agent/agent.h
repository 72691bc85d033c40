/* SPDX-License-Identifier: MIT */
/* Inside the agent only: raw system calls, the configuration, and what its files offer each other. */
#ifndef CT_AGENT_AGENT_H
#define CT_AGENT_AGENT_H

#include "ring/layout.h"

/* From the kernel's x86-64 system call table and uapi headers; the agent includes none of them. */
#define SYS_read              0
#define SYS_open              2
#define SYS_close             3
#define SYS_pwrite64          18
#define SYS_pwritev           296
#define SYS_mmap              9
#define SYS_munmap            11
#define SYS_mprotect          10
#define SYS_rt_sigaction      13
#define SYS_rt_sigprocmask    14
#define SYS_ioctl             16
#define SYS_madvise           28
#define SYS_mremap            25
#define SYS_nanosleep         35
#define SYS_getpid            39
#define SYS_arch_prctl        158
#define SYS_gettid            186
#define SYS_tgkill            234
#define SYS_sched_yield       24
#define SYS_mincore           27
#define SYS_kill              62
#define SYS_futex             202
#define SYS_sigaltstack       131
#define SYS_rt_tgsigqueueinfo 297
#define SYS_process_vm_readv  310
#define SYS_pkey_mprotect     329
#define FUTEX_WAIT            0 /* not private: the controller waits on the same words */
#define FUTEX_WAKE            1

#define PROT_RW             3
#define MAP_PRIVATE_ANON    0x22
#define MAP_NORESERVE       0x4000
#define MADV_DONTDUMP       16
#define MAP_FIXED_NOREPLACE 0x100000
#define MADV_DONTNEED       4
#define MADV_POPULATE_WRITE 23

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
slot_of(const struct ct_control_page *control)
{
  return (struct ct_slot *)(agent_config.ring + agent_ring()->slots_offset) + control->slot;
}

/*
 * Whether the drain still counts its liveness counter up: a wait that saw it stand still for a second notes its value,
 * and while the counter has that value nobody waits again.
 */
extern AGENT_HIDDEN uint64_t agent_dead_drain;

static inline int
controller_lives(void)
{
  return __atomic_load_n(&agent_ring()->drain_liveness, __ATOMIC_RELAXED) !=
         __atomic_load_n(&agent_dead_drain, __ATOMIC_RELAXED);
}

/* The same of controller_liveness, for those that wait for an answer. */
extern AGENT_HIDDEN uint64_t agent_dead_controller;

static inline int
controller_answers(void)
{
  return __atomic_load_n(&agent_ring()->controller_liveness, __ATOMIC_RELAXED) !=
         __atomic_load_n(&agent_dead_controller, __ATOMIC_RELAXED);
}

/*
 * controller_liveness stands still when the controller is dead, and when nothing lets it run. The second is waited for
 * longer. (In another pid namespace it looks dead.) A process that has ended and that nobody has waited for yet has no
 * memory any more, which the kernel says before it asks for rights; of a live one nothing is read, at address 8.
 */
static inline int
controller_is_gone(void)
{
  struct {
    void *base;
    uint64_t bytes;
  } here = {&here, 1}, there = {(void *)8, 1};
  long pid = (long)agent_ring()->controller_pid;
  return agent_syscall(SYS_kill, pid, 0, 0, 0, 0, 0) == -3 /* ESRCH */ ||
         agent_syscall(SYS_process_vm_readv, pid, (long)&here, 1, (long)&there, 1, 0) == -3;
}

/* The agent makes no system call: in this process, or on this thread. gs must be ours. */
static inline int
agent_is_silent(void)
{
  uint32_t silent;
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(silent) : "i"(CT_GS_SILENT));
  return silent != 0 || __atomic_load_n(&agent_config.no_syscalls, __ATOMIC_RELAXED) != 0;
}

/*
 * Whether this is the traced process, and no child of it. In another pid namespace a child may have its number: a
 * forked one finds 0 in the control pages.
 */
static inline int
agent_is_traced(void)
{
  return *(const uint64_t *)(agent_config.controls + CT_CONTROL_OWN) != 0 &&
         agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0) == (long)agent_config.pid;
}

/* stack.c: the stack on which sp lies, its return store mapped, is the thread's now; 0 when that cannot be had. */
AGENT_HIDDEN int agent_stack_range(struct ct_control_page *control, uint64_t sp, struct ct_stack_range *range);
/* The first part of a range of addresses whose return store is mapped; 0 when none is. */
AGENT_HIDDEN int agent_store_part(uint64_t *lo, uint64_t *hi);

/*
 * copy.c: a thread with return-address slot sp is about to copy or to leave a part of its stack (half: CT_HALF_COPY,
 * CT_HALF_MOVE, CT_HALF_REMAP, CT_HALF_MAP of syscall, CT_HALF_FRAMES), with registers saved below sp.
 */
AGENT_HIDDEN void agent_stack_copied(struct ct_control_page *control, uint64_t sp, const struct ct_hook_desc *desc,
                                     uint32_t half);
/* The thread is on this stack from here on; of len 0: on none that is known. */
AGENT_HIDDEN void agent_set_stack(struct ct_control_page *control, uint64_t lo, uint64_t len);
/* True when sp is on the thread's stack, further out than where it was when that was looked through: it may have
 * hooked frames there now. */
AGENT_HIDDEN int agent_goes_out(struct ct_control_page *control, uint64_t sp);

/*
 * relieve.c: each segment may be some live thread's active one: hands over those of threads that have recorded nothing
 * for a while. 0: nothing comes to the drain now, so there is nothing to wait for.
 */
AGENT_HIDDEN int agent_relieve(void);

/* A segment that nobody has used yet is about to be filled: one system call for its pages, in place of a fault for
 * each, which takes five to ten times as long. Before Linux 5.14 they fault. */
static inline void
agent_populate(uint64_t segment)
{
  if (!agent_is_silent()) {
    agent_syscall(SYS_madvise, (long)segment, CT_SEGMENT_BYTES, MADV_POPULATE_WRITE, 0, 0, 0);
  }
}

/* agent.c: room for count events in the thread's segment, perhaps a new one; and an event of that room. */
AGENT_HIDDEN int agent_has_room(struct ct_control_page *control, uint32_t count);
AGENT_HIDDEN void agent_put_event(struct ct_control_page *control, uint32_t kind, uint32_t function,
                                  uint32_t ra_slot_low);
/* The thread is on that stack from here on, unless that was the last word on it; for two events there is room. */
AGENT_HIDDEN void agent_put_switch(struct ct_control_page *control, uint64_t stack_lo, uint64_t stack_len,
                                   uint32_t context, uint64_t sp);
/* unwind.c: is it the point after the call of a trampoline? */
AGENT_HIDDEN int agent_is_return_point(uint64_t address);

/*
 * request.c: rings the controller's doorbell; waits while *word is value, for one step at most. Whoever waits for an
 * answer asks controller_answers() between steps: it says no when controller_liveness has stood still for too long in
 * these steps.
 */
struct agent_patience {
  uint64_t last;
  uint32_t silent;
};
AGENT_HIDDEN struct agent_patience agent_patience(void);
AGENT_HIDDEN void agent_ring_control_doorbell(void);
/* True when the step has passed. */
AGENT_HIDDEN int agent_wait(uint32_t *word, uint32_t value, int64_t step_ns, struct agent_patience *patience);
/* Notifies the controller and waits for its answer, bounded. 0: there was nothing to tell. */
AGENT_HIDDEN int agent_request(struct ct_slot *slot, const struct ct_hook_desc *desc, uint64_t sp);
/* The same of a request that is filled in but for its state. */
AGENT_HIDDEN int agent_ask(struct ct_slot *slot);
/* itrace.c: the call that has just begun is perhaps to be recorded as instructions. Likewise. */
AGENT_HIDDEN int agent_itrace(const struct ct_control_page *control, const struct ct_hook_desc *desc, uint64_t sp);

/*
 * handshake.c, called by entry.S: a child of the traced process reports itself to the controller, with a handshake page
 * for a stack. 1: it is a traced process itself now.
 */
AGENT_HIDDEN struct ct_handshake *
agent_take_handshake_page(uint32_t pid); /* on the caller's stack; NULL: none is to be had */
AGENT_HIDDEN uint64_t agent_child_handshake(struct ct_handshake *handshake, uint64_t sp,
                                            const struct ct_hook_desc *desc, uint32_t tid);
/*
 * The path of an execve, as entry.S has saved registers in the 128 bytes below the target's stack pointer. Of execveat
 * and the like it is no address, and nothing is found there.
 */
AGENT_HIDDEN uint64_t agent_exec_path(const struct ct_hook_desc *desc, uint64_t sp);

struct dwarf_eh_bases; /* unwind.c */
struct dl_find_object;

/* Called by entry.S, on the agent's stack with all signals blocked. */
AGENT_HIDDEN uint64_t agent_slow_path(struct ct_control_page *control, uint64_t sp, const struct ct_hook_desc *desc,
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
 * After a call of sigaction(signal, action, old) for a signal of config.crash_signals, by_syscall: old is the kernel's
 * struct.
 */
AGENT_HIDDEN void agent_sigaction_done(uint32_t signal, void *old, long result, uint32_t by_syscall);
/* The handlers go, before a seccomp filter comes into force; which they were. They come back, after all. */
AGENT_HIDDEN uint32_t agent_crash_withdraw(void);
AGENT_HIDDEN void agent_crash_resume(uint32_t signals);

/*
 * watch.c, called by entry.S on the caller's stack: around the call of a function that may change what hooks may do.
 * The first returns 1 when the caller must call the function from here and then report to the second.
 */
struct agent_watch {
  uint64_t args[6]; /* rdi, rsi, rdx, rcx, r8, r9: as it will be called with */
  uint64_t what;    /* CT_WATCH_...; of no meaning after the call */
  uint64_t desc;    /* likewise: struct ct_hook_desc */
  uint64_t result;
  /* What is kept from before the call until after it. */
  uint32_t number, kind;
  uint32_t by_syscall, signal; /* of a sigaction */
  uint64_t old;
  uint32_t signals; /* whose handlers have been withdrawn */
  uint32_t flags;   /* of seccomp */
  uint32_t recorded, counted, on_own_page;
  uint32_t which; /* of a limit */
  uint64_t share, limit[2], given[2];
};
AGENT_HIDDEN uint32_t agent_watch(struct agent_watch *watch);
AGENT_HIDDEN void agent_watched(struct agent_watch *watch);
/* limits.c: getrlimit, setrlimit, prlimit (watch->number), before and after; an exec is to come. */
AGENT_HIDDEN uint32_t agent_limit(struct agent_watch *watch, uint64_t *args);
AGENT_HIDDEN void agent_limited_done(struct agent_watch *watch);
AGENT_HIDDEN void agent_limits_exec(const struct ct_hook_desc *desc);
/* crash.c */
AGENT_HIDDEN int agent_is_readable(const void *address);
/* leave.c: the base of gs is about to be set; returns when no hook is left, if that can be. Likewise. With a frame:
 * what is ours is about to be mapped over; returns where nobody could take it out. */
AGENT_HIDDEN void agent_leave(const struct ct_leave_frame *frame);
/* stdio_capture.c: the program writes to a descriptor, from a buffer of count bytes or from count vectors. Likewise. */
AGENT_HIDDEN void agent_capture(uint32_t fd, uint64_t address, uint64_t count, uint32_t is_vector);
/*
 * remap.c: the program calls mmap, munmap, mremap, mprotect, madvise, makecontext, make_fcontext. Is anything of ours
 * concerned (CT_CONCERNS_...)? Called on its stack. And, with all signals blocked: then stacks and stores are removed
 * or moved aside.
 */
AGENT_HIDDEN uint32_t agent_map_concerns(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                                         const struct ct_hook_desc *desc);
AGENT_HIDDEN void agent_mappings_change(const struct ct_control_page *control, uint64_t sp,
                                        const struct ct_hook_desc *desc);
/* agent.c: takes a bit that is set in a map of so many words, after the one that was taken last (UINT32_MAX: none was),
 * which is remembered; CT_SEGMENT_NONE: none is set. */
AGENT_HIDDEN uint32_t agent_take_bit(uint64_t *map, uint32_t words, uint32_t *last);
/* Takes the full one of these segments that was begun first away from the drain; *victim: whose it was. */
AGENT_HIDDEN uint32_t agent_take_oldest(uint32_t first, uint32_t count, struct ct_slot **victim);
/* Waits, bounded, until the drain has freed a segment that `take` finds. CT_SEGMENT_NONE: it has not. */
AGENT_HIDDEN uint32_t agent_wait_for(uint32_t (*take)(struct ct_ring_header *));
/* detail.c: a new segment for the thread's detail records; 0: there is none. The thread's last one is the drain's. */
AGENT_HIDDEN int agent_next_detail(struct ct_control_page *control);
AGENT_HIDDEN void agent_detail_hand_over(struct ct_control_page *control);
/* texts.c: what arguments point to, for a record of a call, or what was filled, of a return. On the caller's stack,
 * with signals as they are. */
AGENT_HIDDEN void agent_read_texts(struct ct_detail_record *record, uint32_t wanted, const struct ct_hook_desc *desc);
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
