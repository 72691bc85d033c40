/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers of the agent's in a process that is stopped: put in where the program leaves a signal
 * of a fault at SIG_DFL (agent/crash.c), and given back.
 */
#ifndef CT_HOOK_SIGNALS_H
#define CT_HOOK_SIGNALS_H

#include "hook/install.h"

#define CT_SIGNAL_SCRATCH_BYTES 64
#define SA_RESTORER             0x04000000 /* asm/signal.h */

/* rt_sigaction in the process's name; scratch: memory of the process, CT_SIGNAL_SCRATCH_BYTES. 0 or an error. */
int ct_signal_set(const struct ct_remote *remote, uint64_t scratch, int number, const struct ct_signal_action *action);
int ct_signal_get(const struct ct_remote *remote, uint64_t scratch, int number, struct ct_signal_action *action);

/* Does it report a fault in the program itself? */
bool ct_signal_is_fault(int number);
/*
 * but_trap: SIGTRAP is handled in another way. later: each handler is put in when the program asks for, or sets, the
 * signal's disposition the next time.
 */
int ct_signals_take(const struct ct_remote *remote, const struct ct_agent_layout *layout, bool but_trap, bool later);
/* What of these is a handler in the agent's pages [agent, agent + bytes) is what the program has set again. */
int ct_signals_give_back(const struct ct_remote *remote, uint64_t config, uint64_t agent, uint64_t bytes);

#endif
