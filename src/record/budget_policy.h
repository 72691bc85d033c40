/* SPDX-License-Identifier: MIT */
/* Which functions are seen how under a budget: a pure function of what calls cost and how many there are. */
#ifndef CT_RECORD_BUDGET_POLICY_H
#define CT_RECORD_BUDGET_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_seen {
  CT_SEEN_FULL = 0,    /* every call is recorded */
  CT_SEEN_SAMPLED = 1, /* every call is counted, one of CT_SEEN_SAMPLED_CALLS is recorded too */
  CT_SEEN_COUNTED = 2, /* every call is counted */
  CT_SEEN_OUT = 3,     /* no call is seen */
  CT_SEEN_LEVELS = 4,
};
#define CT_SEEN_SAMPLED_CALLS 64

struct ct_budget_function {
  double rate;          /* calls a second of the process's time (of a point: half of them, since such a call has half
                         * of the events); of one that is out, when that was last known */
  double cold;          /* ns that a call costs more, seen in whatever way, while it is patched (budget_cold.c) */
  double calls, passed; /* in the last tick: all, and those that were counted only */
  double own_ns;        /* of a call, when that was last measured; 0: it is not known */
  double before, apart; /* calls a ns of processor time, of an experiment (budget_factor.c) */
  uint64_t recorded, counted;    /* calls so far, at the last tick */
  uint64_t own_calls, own_ticks; /* what own_ns is of, so far */
  uint64_t since_ns;             /* of the last step */
  uint64_t retry_ns;             /* of one that is out: it is tried again then */
  uint8_t seen, wanted;          /* enum ct_seen: now, and by the last decision */
  bool has_gate;                 /* how it is seen can be changed, by its gate or its patch ... */
  bool has_counter;              /* ... and its calls can be counted */
  bool is_apart;                 /* it is only counted, until the next tick */
  bool is_unpatched;             /* its patch is out, and it costs nothing */
  bool is_point;                 /* a call is one event; it is recorded, or out when its patch is: it has no gate */
  bool keeps_patch;              /* even when it is out: its trampoline does more than record */
  bool is_witness;               /* of an experiment with patches: it is seen as before */
  uint8_t backoff;               /* how often in a row it had to go out again, up to CT_BUDGET_BACKOFF_MAX */
};
#define CT_BUDGET_BACKOFF_MAX 5u

struct ct_budget_costs {
  double full, counted, out; /* ns of a call; full: with what the recorder does for its events */
};

/* What a call of a function that is seen so costs, in ns. */
double ct_budget_call_cost(const struct ct_budget_costs *costs, uint8_t seen);

/*
 * Sets `wanted` of count functions, which are sorted by rate, the least first: so that all of them together cost at
 * most allowed_ns a second of the process's time. As many as possible are fully seen: first those with the longest own
 * times, which take most of the program's time for what their events cost, then those that are called least.
 * now_ns: by the clock of since_ns. is_first: nothing was decided before. may_try: functions that are out may come back
 * for a moment, to see how they are called now: patches can be changed at once. Returns what is expected to be spent,
 * ns a second.
 */
double ct_budget_choose(struct ct_budget_function **functions, size_t count, const struct ct_budget_costs *costs,
                        double allowed_ns, uint64_t now_ns, bool is_first, bool may_try);

/* Is there something that is worth a stop of the process, age_ns after the last one: patches that are to go and cost
 * something, or to come back? Patches that stay anyway are not. */
bool ct_budget_wants_stop(struct ct_budget_function *const *functions, size_t count,
                          const struct ct_budget_costs *costs, double allowed_ns, uint64_t age_ns);
#define CT_BUDGET_STOP_NS 1000000000ull /* between two stops, but where much is to be saved */

#endif
