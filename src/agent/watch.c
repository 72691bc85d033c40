/* SPDX-License-Identifier: MIT */
/*
 * Calls that may change what hooks may do. Only their result shows: a program asks for a seccomp filter that cannot be,
 * to find out whether there are filters at all. So such a function is called from here (entry.S, watch): before, hooks
 * do what is right in both cases; after, what the result says.
 *
 *   a seccomp filter           no system call of ours is made from here on, in the whole process: it might be killed
 *   strict seccomp, PR_SET_TSC the kernel forbids rdtsc to this thread too: it is recorded no more
 *   PR_SET_SYSCALL_USER_DISPATCH  each system call of ours would come to the program, on this thread: it makes none
 *   sigaction                  where rules are about signals the controller learns which function handles which;
 *                              what it reports of a signal that is handled by us is put right (crash.c)
 *
 * Where none may be made the handlers of fatal signals could not do what they must: they are taken away before, and
 * come back when it has failed.
 *
 * A child of vfork has its parent's memory, and a process of its own that is confined: it gets a page at gs that says
 * so.
 */
#include "agent/agent.h"

/* From the kernel's uapi headers linux/prctl.h, linux/seccomp.h, asm/prctl.h. */
#define SYS_getrlimit                97
#define SYS_setrlimit                160
#define SYS_prlimit                  302
#define SYS_prctl                    157
#define SYS_seccomp                  317
#define PR_SET_SECCOMP               22
#define PR_SET_TSC                   26
#define PR_TSC_SIGSEGV               2
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define SECCOMP_MODE_STRICT          1
#define SECCOMP_MODE_FILTER          2
#define SECCOMP_SET_MODE_STRICT      0
#define SECCOMP_SET_MODE_FILTER      1
#define SECCOMP_FILTER_FLAG_TSYNC    1
#define SECCOMP_FILTER_FLAG_LISTENER 8
#define ARCH_SET_GS                  0x1001

enum kind {
  KIND_NONE,
  KIND_SIGACTION,
  KIND_FILTER,
  KIND_STRICT,
  KIND_CLOCK,
  KIND_DISPATCH,
  KIND_DISPATCH_OFF,
  KIND_LIMIT
};

extern AGENT_HIDDEN struct ct_control_page agent_page_silent;

static void
set_gs(uint64_t page)
{
  if (agent_config.have_wrgsbase != 0) {
    __asm__ volatile("wrgsbase %0" : : "r"(page) : "memory");
  } else {
    agent_syscall(SYS_arch_prctl, ARCH_SET_GS, (long)page, 0, 0, 0, 0);
  }
}

/* The thread's own control page, or 0. */
static struct ct_control_page *
own_page(void)
{
  uint32_t mode;
  uint64_t top;
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(mode) : "i"(CT_GS_MODE));
  if (mode != CT_MODE_ON) {
    return 0;
  }
  __asm__ volatile("movq %%gs:%c1, %0" : "=r"(top) : "i"(CT_GS_AGENT_SP));
  return (struct ct_control_page *)(top - CT_CONTROL_STRIDE);
}

enum process { MINE, FORKED, IN_FOREIGN_MEMORY /* a child of vfork, in that of the traced one */ };

static enum process
process_here(void)
{
  if (agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0) == (long)agent_config.pid) {
    return MINE;
  }
  return *(const uint64_t *)(agent_config.controls + CT_CONTROL_OWN) != 0 ? IN_FOREIGN_MEMORY : FORKED;
}

static enum kind
kind_of_prctl(uint32_t option, uint64_t value)
{
  switch (option) {
  case PR_SET_SECCOMP:
    return value == SECCOMP_MODE_STRICT ? KIND_STRICT : value == SECCOMP_MODE_FILTER ? KIND_FILTER : KIND_NONE;
  case PR_SET_TSC:
    return value == PR_TSC_SIGSEGV ? KIND_CLOCK : KIND_NONE;
  case PR_SET_SYSCALL_USER_DISPATCH:
    return value != 0 ? KIND_DISPATCH : KIND_DISPATCH_OFF;
  default:
    return KIND_NONE;
  }
}

static enum kind
kind_of_sigaction(uint64_t signal)
{
  uint32_t number = (uint32_t)signal;
  return number < CT_SIGNALS && (agent_config.crash_signals >> number & 1) != 0 ? KIND_SIGACTION : KIND_NONE;
}

static enum kind
kind_of(const struct agent_watch *watch)
{
  const uint64_t *args = watch->args;
  switch (watch->number) {
  case SYS_rt_sigaction:
    return kind_of_sigaction(args[watch->what == CT_WATCH_SYSCALL]);
  case SYS_prctl:
    args += watch->what == CT_WATCH_SYSCALL;
    return kind_of_prctl((uint32_t)args[0], args[1]);
  case SYS_seccomp:
    return (uint32_t)args[1] == SECCOMP_SET_MODE_STRICT   ? KIND_STRICT
           : (uint32_t)args[1] == SECCOMP_SET_MODE_FILTER ? KIND_FILTER
                                                          : KIND_NONE;
  default:
    return KIND_NONE;
  }
}

/* This thread is recorded no more, or perhaps not. */
static void
leave_thread(struct agent_watch *watch)
{
  struct ct_control_page *own = own_page();
  watch->on_own_page = own != 0;
  if (own != 0) {
    own->parked = 1; /* it finds its page by its id, should it come back */
  }
  set_gs((uint64_t)&agent_page_silent);
}

static void
come_back(const struct agent_watch *watch)
{
  set_gs(watch->on_own_page != 0 ? agent_config.page_lookup : agent_config.page_off);
}

static uint32_t
number_of_limits(const struct ct_hook_desc *desc, uint32_t number)
{
  switch (desc->callout) {
  case CT_CALLOUT_LIMIT_GET:
    return SYS_getrlimit;
  case CT_CALLOUT_LIMIT_SET:
    return SYS_setrlimit;
  case CT_CALLOUT_LIMIT_BOTH:
    return SYS_prlimit;
  default:
    return number;
  }
}

/* For rules about signals: which function is about to handle which. The handler comes first in both structures. */
static void
note_handler(const struct agent_watch *watch)
{
  struct ct_ring_header *ring = agent_ring();
  const uint64_t *args = watch->args + (watch->what == CT_WATCH_SYSCALL);
  uint32_t signal = (uint32_t)args[0];
  const uint64_t *action = (const uint64_t *)args[1];
  if (ring->handlers_wanted == 0 || ring->closed != 0 || agent_config.no_syscalls != 0 ||
      signal >= CT_HANDLED_SIGNALS || action == 0 || !agent_is_traced() || !agent_is_readable(action)) {
    return;
  }
  __atomic_store_n(&ring->handlers[signal], *action, __ATOMIC_RELAXED);
  /* release: pairs with the controller's acquire; it sees the handler */
  __atomic_fetch_add(&ring->handlers_changes, 1, __ATOMIC_RELEASE);
  agent_ring_control_doorbell();
}

uint32_t
agent_watch(struct agent_watch *watch)
{
  static const uint32_t numbers[] = {
      [CT_WATCH_SIGACTION] = SYS_rt_sigaction, [CT_WATCH_PRCTL] = SYS_prctl, [CT_WATCH_SYSCALL] = 0};
  uint64_t what = watch->what;
  watch->number = what == CT_WATCH_SYSCALL ? (uint32_t)watch->args[0] : numbers[what];
  watch->number = number_of_limits((const struct ct_hook_desc *)watch->desc, watch->number);
  if (watch->number == SYS_getrlimit || watch->number == SYS_setrlimit || watch->number == SYS_prlimit) {
    watch->kind = KIND_LIMIT;
    return agent_limit(watch, watch->args + (what == CT_WATCH_SYSCALL));
  }
  if (watch->number == SYS_rt_sigaction) {
    note_handler(watch);
  }
  watch->kind = kind_of(watch);
  if (watch->kind == KIND_SIGACTION) {
    watch->by_syscall = what == CT_WATCH_SYSCALL;
    watch->signal = (uint32_t)watch->args[watch->by_syscall];
    watch->old = watch->args[2 + watch->by_syscall];
    return 1;
  }
  if (watch->kind == KIND_NONE || watch->kind == KIND_DISPATCH_OFF) {
    return watch->kind == KIND_DISPATCH_OFF;
  }
  int silent = agent_is_silent(), process = silent ? MINE : process_here();
  watch->signals = silent ? 0 : agent_crash_withdraw();
  watch->recorded = process == MINE;
  watch->counted = watch->kind == KIND_FILTER && process != IN_FOREIGN_MEMORY;
  watch->flags = watch->number == SYS_seccomp ? (uint32_t)watch->args[2] : 0;
  if (watch->counted) {
    __atomic_fetch_add(&agent_config.no_syscalls, 1, __ATOMIC_SEQ_CST);
  } else if (watch->kind == KIND_DISPATCH && own_page() != 0 && agent_config.have_wrgsbase != 0) {
    own_page()->silent = 1;
  } else {
    leave_thread(watch);
  }
  return 1;
}

/* A filter that could not be put on another thread: that one's id. */
static int
has_failed(const struct agent_watch *watch)
{
  int32_t result = (int32_t)watch->result;
  uint32_t flags = watch->kind == KIND_FILTER ? watch->flags : 0;
  return result < 0 || (result > 0 && (flags & (SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LISTENER)) ==
                                          SECCOMP_FILTER_FLAG_TSYNC);
}

static void
note_cut(enum kind kind)
{
  uint64_t cut = kind == KIND_FILTER   ? CT_CUT_FILTER
                 : kind == KIND_STRICT ? CT_CUT_STRICT
                 : kind == KIND_CLOCK  ? CT_CUT_CLOCK
                                       : CT_CUT_DISPATCH;
  __atomic_fetch_or(&agent_ring()->cuts, cut, __ATOMIC_RELAXED);
}

void
agent_watched(struct agent_watch *watch)
{
  int failed = has_failed(watch);
  if (watch->kind == KIND_SIGACTION) {
    agent_sigaction_done(watch->signal, (void *)watch->old, (long)watch->result, watch->by_syscall);
    return;
  }
  if (watch->kind == KIND_LIMIT) {
    agent_limited_done(watch);
    return;
  }
  if (watch->kind == KIND_DISPATCH_OFF) {
    struct ct_control_page *own = own_page();
    if (own != 0 && !failed) {
      own->silent = 0;
    }
    return;
  }
  if (!failed) {
    if (watch->recorded) {
      note_cut((enum kind)watch->kind);
    }
    return;
  }
  if (watch->counted) {
    __atomic_fetch_sub(&agent_config.no_syscalls, 1, __ATOMIC_SEQ_CST);
  } else if (watch->kind == KIND_DISPATCH && own_page() != 0) {
    own_page()->silent = 0;
  } else {
    come_back(watch);
  }
  agent_crash_resume(watch->signals);
}
