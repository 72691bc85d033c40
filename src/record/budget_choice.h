/* SPDX-License-Identifier: MIT */
/* The functions of a budget, and what tells most for what may be spent; see budget_choice.c. */
#ifndef CT_RECORD_BUDGET_CHOICE_H
#define CT_RECORD_BUDGET_CHOICE_H

#include "ring/counters.h"

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
#define CT_SEEN_SAMPLED_CALLS CT_COUNTERS_RECORDED_EACH

enum ct_budget_because {
  CT_BUDGET_BECAUSE_LIMIT = 0,    /* more was spent than is allowed */
  CT_BUDGET_BECAUSE_EXCHANGE = 1, /* others tell more for what it costs, and do not fit beside it */
  CT_BUDGET_BECAUSE_ROOM = 2,     /* there is room for it */
  CT_BUDGET_BECAUSE_LOOK = 3,     /* it was out: to see how it is called now */
  CT_BUDGET_BECAUSE_COUNT = 4,
};

/*
 * Thousands of them are gone through ten times a second, and each line of memory that is touched is taken from the
 * program: what a tick reads of all is in the first line, what a choice reads besides in the second.
 */
struct ct_budget_function {
  double rate;          /* calls a second of the process's time (of a point: half of them, since such a call has half
                         * of the events); of one that is out, when that was last known */
  double cold;          /* ns that a call costs more, seen in whatever way, while it is patched (budget_cold.c) */
  double calls, passed; /* in the last tick: all, and those that were counted only */
  uint64_t recorded, counted;  /* calls so far, at the last tick */
  uint8_t packed, packed_sure; /* budget_choice.c: how it would be seen, while it works ... */
  uint8_t best, sure;          /* ... and what it has found */
  uint8_t seen, wanted;        /* enum ct_seen: now, and by the last decision */
  uint8_t because;             /* enum ct_budget_because: where these differ */
  uint8_t backoff;             /* how often in a row it had to go out again, up to CT_BUDGET_BACKOFF_MAX */
  bool has_gate;               /* how it is seen can be changed, by its gate or its patch ... */
  bool has_counter;            /* ... and its calls can be counted */
  bool is_apart;               /* it is only counted, until the next tick */
  bool is_unpatched;           /* its patch is out, and it costs nothing */
  bool is_point;               /* a call is one event; it is recorded, or out when its patch is: it has no gate */
  bool keeps_patch;            /* even when it is out: its trampoline does more than record */
  bool is_looked;              /* it is out, and seen for a moment */
  bool is_witness;             /* of an experiment with patches: it is seen as before */

  double own_ns;                      /* of a call, when that was last measured; 0: it is not known */
  double steady;                      /* 0: calls take now long, now short; or that is not known. 1: always as long */
  uint64_t since_ns;                  /* of the last step */
  uint64_t retry_ns;                  /* of one that is out: it is tried again then */
  uint64_t looked_ns;                 /* ... and when it was last looked at (budget_look.c) */
  uint32_t next_step[CT_SEEN_OUT];    /* budget_choice.c: after the step to this level; 0: none */
  uint32_t counter : 30;              /* which one it has, counted from 1 */
  uint32_t takes_counter : 1;         /* it may get one, and give it back (budget_moved.c) */
  uint32_t is_ruled : 1;              /* a rule is about it (budget_rules.c) */
  uint64_t out_until_ns, out_from_ns; /* what was out of it lies in this time; UINT64_MAX: it still is */
  double before, apart;               /* calls a ns of processor time, of an experiment (budget_factor.c) */
  uint64_t own_calls, own_ticks;      /* what own_ns is of, so far */
  uint64_t unused[3];                 /* the next one begins another line */
};
#define CT_BUDGET_FUNCTION_LINE 64
_Static_assert(offsetof(struct ct_budget_function, own_ns) == CT_BUDGET_FUNCTION_LINE, "the first line");
_Static_assert(offsetof(struct ct_budget_function, out_until_ns) == 2 * CT_BUDGET_FUNCTION_LINE - 8, "the second");
_Static_assert(sizeof(struct ct_budget_function) % CT_BUDGET_FUNCTION_LINE == 0, "of an array that begins a line");
#define CT_BUDGET_BACKOFF_MAX 5u

struct ct_budget_costs {
  double full, counted, out; /* ns of a call; full: with what the recorder does for its events */
  double ruled;              /* ns a second of the process's time, that functions may cost which rules are about */
};

/* How one that was out is seen for a moment, to know how it is called now. */
uint8_t ct_budget_seen_to_look(const struct ct_budget_function *function);

/* What a call of a function that is seen so costs, in ns. */
double ct_budget_call_cost(const struct ct_budget_costs *costs, uint8_t seen);

/*
 * Sets `best` of count functions: how each would be seen if nothing had been decided before, so that all together cost
 * at most aim_ns a second of the process's time; and `sure`: how it would be seen even if its calls were PROMOTE_RATE
 * times as many. They are sorted by rate, the least first.
 */
void ct_budget_best(struct ct_budget_function *const *functions, size_t count, const struct ct_budget_costs *costs,
                    double aim_ns);

/* Nobody sees how it is called now: its rate is what it was. */
bool ct_budget_is_stale(const struct ct_budget_function *function);

#endif
