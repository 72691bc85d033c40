/* SPDX-License-Identifier: MIT */
/*
 * Fatal signals. Where the program leaves a signal that reports a fault at SIG_DFL the controller has put a handler of
 * ours (config.crash_signals says for which). It writes down what the kernel reported, lets the controller look at the
 * other threads, and then has the same signal, with the same siginfo, end the process at the same place, by SIG_DFL:
 * wait status and core dump are as without it.
 *
 * The program does not see it: what sigaction reports about such a signal is what it has set itself
 * (agent_sigaction_done, after each call of libc's function). What it sets comes into force; when it goes back to
 * SIG_DFL the handler comes back too.
 *
 * In a forked child, which is not traced, the handler only lets the signal end it. Before a seccomp filter or strict
 * mode comes into force the handlers are taken away (agent_crash_withdraw): there they could not do what they must.
 *
 * The handler runs on the target's stack or its alternate one, wherever the kernel has put the frame, with all signals
 * blocked, and takes a few hundred bytes of it. It neither needs nor touches gs.
 */
#include "agent/agent.h"

#define WAIT_STEP_NS (100 * 1000 * 1000)
#define STEPS_MAX    150 /* 15 s in all, if controller_liveness goes on */

#define SIGTRAP_NUMBER 5
#define SIG_SETMASK    2
#define SA_RESTORER    0x04000000 /* asm/signal.h */
#define SA_SIGINFO     4
#define SA_ONSTACK     0x08000000

/* What libc's sigaction takes (glibc and musl). */
struct libc_action {
  uint64_t handler, mask[16];
  uint32_t flags, pad;
  uint64_t restorer;
};

static int
is_ours(uint64_t handler)
{
  return handler == (uint64_t)agent_crash;
}

static long
set_action(uint32_t signal, const struct ct_signal_action *action, struct ct_signal_action *old)
{
  return agent_syscall(SYS_rt_sigaction, signal, (long)action, (long)old, 8, 0, 0);
}

/* Another thread's crash is being reported: it ends us too. */
static void
wait_for_the_end(struct ct_crash *crash)
{
  struct agent_patience patience = agent_patience();
  for (uint32_t step = 0; step < STEPS_MAX && controller_answers() && agent_ring()->closed == 0; step++) {
    uint32_t state = __atomic_load_n(&crash->state, __ATOMIC_ACQUIRE);
    if (state != CT_CRASH_TAKEN && state != CT_CRASH_PENDING) {
      return;
    }
    agent_wait(&crash->state, state, WAIT_STEP_NS, &patience);
  }
}

static void
report(uint32_t signal, const struct agent_siginfo *info, const struct agent_context *context)
{
  struct ct_ring_header *r = agent_ring();
  struct ct_crash *crash = (struct ct_crash *)(agent_config.ring + r->crash_offset);
  uint32_t lo, hi, expected = CT_CRASH_NONE;
  if (r->closed != 0 || !controller_answers()) {
    return;
  }
  if (!__atomic_compare_exchange_n(&crash->state, &expected, CT_CRASH_TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    wait_for_the_end(crash);
    return;
  }
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
  crash->tsc = (uint64_t)hi << 32 | lo;
  crash->signal = signal;
  crash->tid = (uint32_t)agent_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
  for (uint32_t i = 0; i < CT_CRASH_SIGINFO_BYTES; i++) {
    crash->siginfo[i] = ((const uint8_t *)info)[i];
  }
  for (uint32_t i = 0; i < CT_CRASH_REGISTERS; i++) {
    crash->registers[i] = context->registers[i];
  }
  /* release: pairs with the controller's acquire of PENDING */
  __atomic_store_n(&crash->state, CT_CRASH_PENDING, __ATOMIC_RELEASE);
  agent_ring_control_doorbell();
  struct agent_patience patience = agent_patience();
  for (uint32_t step = 0; step < STEPS_MAX && controller_answers() && agent_ring()->closed == 0; step++) {
    if (__atomic_load_n(&crash->state, __ATOMIC_ACQUIRE) != CT_CRASH_PENDING) {
      break;
    }
    agent_wait(&crash->state, CT_CRASH_PENDING, WAIT_STEP_NS, &patience);
  }
  __atomic_store_n(&crash->state, CT_CRASH_NONE, __ATOMIC_RELEASE);
}

void
agent_crash(long number, const struct agent_siginfo *info, struct agent_context *context)
{
  static const struct ct_signal_action by_default;
  /* The handler of SIGTRAP blocks nothing by itself. */
  agent_syscall(SYS_rt_sigprocmask, SIG_SETMASK, (long)&agent_config.signal_mask, 0, 8, 0, 0);
  long pid = agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
  if (agent_is_traced()) {
    report((uint32_t)number, info, context);
  }
  set_action((uint32_t)number, &by_default, 0);
  /* Sent to itself with the kernel's own siginfo, it waits until the mask of the interrupted code is back. */
  long tid = agent_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
  if (agent_syscall(SYS_rt_tgsigqueueinfo, pid, tid, number, (long)info, 0, 0) != 0 &&
      (info->code <= 0 || number == SIGTRAP_NUMBER)) {
    agent_syscall(SYS_tgkill, pid, tid, number, 0, 0, 0);
  } /* and a fault comes again by itself */
}

/* The kernel looks at the set before it finds that there is no such operation. */
int
agent_is_readable(const void *address)
{
  return agent_syscall(SYS_rt_sigprocmask, -1, (long)address, 0, 8, 0, 0) == -22 /* EINVAL */;
}

static int
is_wanted(uint32_t signal)
{
  return (__atomic_load_n(&agent_config.crash_signals, __ATOMIC_ACQUIRE) >> signal & 1) != 0;
}

static void
put_in(uint32_t signal)
{
  struct ct_signal_action now,
      ours = {(uint64_t)agent_crash, SA_SIGINFO | SA_ONSTACK | SA_RESTORER, (uint64_t)agent_restorer, ~0ull};
  if (agent_config.no_syscalls != 0 || !is_wanted(signal) || !agent_is_traced() || set_action(signal, 0, &now) != 0 ||
      now.handler != 0) {
    return;
  }
  agent_config.shown[signal] = now;
  set_action(signal, &ours, 0);
  if (!is_wanted(signal)) { /* the controller is about to leave, and was here meanwhile */
    set_action(signal, &now, 0);
  }
}

void
agent_sigaction_done(uint32_t signal, void *old, long result, uint32_t by_syscall)
{
  struct libc_action *libc = old;
  struct ct_signal_action *kernel = old;
  if ((int32_t)result != 0) {
    return;
  }
  if (old != 0 && agent_is_readable(old) && is_ours(libc->handler)) {
    const struct ct_signal_action *own = &agent_config.shown[signal];
    libc->handler = 0;
    if (by_syscall) {
      *kernel = *own;
    } else {
      libc->mask[0] = own->mask;
      libc->flags = (uint32_t)own->flags;
      if (libc->restorer == (uint64_t)agent_restorer) { /* musl leaves that field alone */
        libc->restorer = own->restorer;
      }
    }
  }
  put_in(signal);
}

uint32_t
agent_crash_withdraw(void)
{
  uint32_t signals = agent_config.crash_signals;
  if (agent_is_traced()) {
    agent_config.crash_signals = 0; /* a child of vfork has the parent's memory, and dispositions of its own */
  }
  for (uint32_t signal = 1; signal < 32; signal++) {
    struct ct_signal_action now;
    if ((signals >> signal & 1) != 0 && set_action(signal, 0, &now) == 0 && is_ours(now.handler)) {
      set_action(signal, &agent_config.shown[signal], 0);
    }
  }
  return signals;
}

void
agent_crash_resume(uint32_t signals)
{
  if (signals == 0 || agent_config.no_syscalls != 0 ||
      agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0) != (long)agent_config.pid) {
    return;
  }
  __atomic_fetch_or(&agent_config.crash_signals, signals, __ATOMIC_RELEASE);
  for (uint32_t signal = 1; signal < CT_SIGNALS; signal++) {
    if ((signals >> signal & 1) != 0) {
      put_in(signal);
    }
  }
}
