/* SPDX-License-Identifier: MIT */
/* See signals.h. */
#include "hook/signals.h"

#include <signal.h>
#include <sys/syscall.h>

/* Those that report a fault in the program itself. */
static const int fault_signals[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
#define FAULT_SIGNALS (sizeof(fault_signals) / sizeof(fault_signals[0]))

bool
ct_signal_is_fault(int number)
{
  for (size_t i = 0; i < FAULT_SIGNALS; i++) {
    if (fault_signals[i] == number) {
      return true;
    }
  }
  return false;
}

static int
call(const struct ct_remote *remote, int number, uint64_t action, uint64_t old)
{
  uint64_t args[6] = {(uint64_t)number, action, old, sizeof(uint64_t)};
  int64_t result = -1;
  int code = remote->syscall(remote->context, SYS_rt_sigaction, args, &result);
  return code != 0 ? code : result != 0 ? CT_EUNSUPPORTED : 0;
}

int
ct_signal_set(const struct ct_remote *remote, uint64_t scratch, int number, const struct ct_signal_action *action)
{
  int code = ct_process_write(remote->process, scratch, action, sizeof(*action));
  return code != 0 ? code : call(remote, number, scratch, 0);
}

int
ct_signal_get(const struct ct_remote *remote, uint64_t scratch, int number, struct ct_signal_action *action)
{
  int code = call(remote, number, 0, scratch);
  return code != 0 ? code : ct_process_read(remote->process, scratch, action, sizeof(*action));
}

static uint64_t
shown_at(uint64_t config, int number)
{
  return config + offsetof(struct ct_agent_config, shown) + (uint64_t)number * sizeof(struct ct_signal_action);
}

static int
set_signals(const struct ct_remote *remote, uint64_t config, uint32_t signals)
{
  return ct_process_write(remote->process, config + offsetof(struct ct_agent_config, crash_signals), &signals,
                          sizeof(signals));
}

/* Ours in place of the default; the program is shown that it has it still. */
static int
take_signal(const struct ct_remote *remote, const struct ct_agent_layout *layout, int number)
{
  const struct ct_signal_action ours = {layout->crash, SA_SIGINFO | SA_ONSTACK | SA_RESTORER, layout->restorer, ~0ull};
  struct ct_signal_action now;
  int code = ct_signal_get(remote, layout->scratch, number, &now);
  if (code != 0 || now.handler != 0) { /* SIG_DFL */
    return code;
  }
  code = ct_process_write(remote->process, shown_at(layout->config, number), &now, sizeof(now));
  return code != 0 ? code : ct_signal_set(remote, layout->scratch, number, &ours);
}

int
ct_signals_take(const struct ct_remote *remote, const struct ct_agent_layout *layout, bool but_trap, bool later)
{
  uint32_t signals = 0;
  for (size_t i = 0; i < FAULT_SIGNALS; i++) {
    signals |= but_trap && fault_signals[i] == SIGTRAP ? 0 : 1u << fault_signals[i];
  }
  int code = set_signals(remote, layout->config, signals); /* from here on the program reads what it has set */
  for (int number = 1; number < CT_SIGNALS && code == 0 && !later; number++) {
    code = (signals >> number & 1) != 0 ? take_signal(remote, layout, number) : 0;
  }
  if (code != 0) {
    ct_signals_give_back(remote, layout->config, layout->base, layout->bytes);
  }
  return code;
}

int
ct_signals_give_back(const struct ct_remote *remote, uint64_t config, uint64_t agent, uint64_t bytes)
{
  uint64_t scratch = agent + bytes - CT_SIGNAL_SCRATCH_BYTES;
  struct ct_signal_action now, shown;
  int code = set_signals(remote, config, 0);
  for (size_t i = 0; i < FAULT_SIGNALS && code == 0; i++) {
    int number = fault_signals[i];
    code = ct_signal_get(remote, scratch, number, &now);
    if (code != 0) {
      return code;
    }
    if (now.handler - agent < bytes) {
      code = ct_process_read(remote->process, shown_at(config, number), &shown, sizeof(shown));
      code = code != 0 ? code : ct_signal_set(remote, scratch, number, &shown);
    }
  }
  return code;
}
