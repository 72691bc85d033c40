/* SPDX-License-Identifier: MIT */
/*
 * Rules while calls are decoded: which functions they are about, and when they become true. See rules.c. All of it
 * under the writer's lock, but what says otherwise.
 */
#ifndef CT_DRAIN_RULES_H
#define CT_DRAIN_RULES_H

#include "drain/ordinals.h"
#include "drain/windows.h"
#include "select/rule.h"
#include "trace/encoder.h"

#include <stdatomic.h>

#define RULES_FRAME_SHIFT 8 /* of a frame's flags: from here on a bit for each rule that has been true for the call */
static_assert(RULES_FRAME_SHIFT + CT_RULES_MAX <= 32, "a bit for each rule");

struct drain_rolls;
struct drain_thread;

#define RULES_RATE_PARTS 16u /* of a second; for so many of them calls are counted */
struct drain_rule {
  struct ct_rule rule;
  bool used;
  uint32_t number; /* of the session's list of texts */
  uint64_t ticks;  /* rule.ns */
  uint64_t marks, refused;
  uint64_t unseen;   /* calls that were counted only, of a rule that needs more of a call than that there is one */
  uint64_t next_tsc; /* of EVERY */
  bool is_over;      /* of RATE: it is over the limit, and has been marked for that */
  struct {
    uint64_t part, calls;
  } parts[RULES_RATE_PARTS + 1];
};

struct ct_rules {
  struct ct_windows *windows;
  uint64_t ticks_a_second;
  uint32_t *masks;  /* of each function id: the rules about it. NULL: there has been no rule about functions */
  uint32_t last_fn; /* the highest id that a rule was about */
  uint32_t signals; /* rules about signals; functions that handle them have their bits */
  uint32_t calls, times, results, offs; /* rules of these kinds: calls and rates; ... */
  uint32_t slow;                        /* ... of the times those that are true while the call goes on; ... */
  uint32_t others;                      /* ... those about no function */
  uint64_t least_slow, least_off;       /* ticks, the smallest of them */
  bool any;                             /* there is a rule at all */
  struct drain_rule list[CT_RULES_MAX];
  struct drain_ordinals ordinals;
  uint32_t handlers_known;  /* the ring's handlers_changes when the rules about signals were last brought up to it */
  _Atomic uint32_t actions; /* rules whose action is to be done; any thread */
};

int ct_rules_create(struct ct_windows *windows, uint64_t ticks_a_second, struct ct_rules **out); /* 0 or CT_ENOMEM */
void ct_rules_free(struct ct_rules *rules);                                                      /* accepts NULL */
/* The slot of a new one; CT_ERANGE: there are CT_RULES_MAX, or CT_ENOMEM. number: of the session's list of texts. */
int ct_rules_add(struct ct_rules *rules, const struct ct_rule *rule, uint32_t number, uint64_t now_tsc);
void ct_rules_remove(struct ct_rules *rules, uint32_t slot);
/* The recording begins: what goes by the clock is counted from then on. Before the drain is started. */
void ct_rules_begin(struct ct_rules *rules, uint64_t tsc);
/* The rule is about that function. Without the lock while no event of the function can come. */
void ct_rules_watch(struct ct_rules *rules, uint32_t slot, uint32_t fn);
/* Likewise, while events come: the function may have been called before. */
void ct_rules_watch_late(struct ct_rules *rules, uint32_t slot, uint32_t fn);
/* The rule is about no function any more. */
void ct_rules_unwatch(struct ct_rules *rules, uint32_t slot);
/* Rule `slot` is true at tsc. thread: its index, UINT32_MAX: none; fn likewise. rolls: the thread's, or NULL. */
void ct_rules_mark(struct ct_rules *rules, uint32_t slot, uint64_t tsc, uint32_t thread, struct drain_rolls *rolls,
                   uint32_t fn);

/* A call begins, or so many, of a function with that mask. Which one it is; 0: that is not known. */
uint64_t rules_call(struct drain_thread *thread, uint32_t mask, uint64_t tsc, uint32_t fn, uint64_t calls);
/* So many calls of a function with that mask were counted only, since the last look at the counts. */
void rules_counted(struct drain_thread *thread, uint32_t mask, uint32_t fn, uint64_t calls);
/* The top frame of the thread is of a call that ends (before it is taken off), or has given its result. */
void rules_end(struct drain_thread *thread, struct ct_frame *frame, uint32_t mask, uint64_t tsc);
void rules_result(struct drain_thread *thread, const struct ct_frame *frame, uint64_t value);
/* The thread was off the processor; its frames are those of that time. */
void rules_off(struct drain_thread *thread, uint64_t since, uint64_t until);
/* A call that goes on, if it does, has taken too long by now_tsc, and is not marked yet. */
bool rules_have_open_call(const struct drain_thread *thread, uint64_t now_tsc);
/* Calls that go on: those that have taken too long by now_tsc. */
void rules_open_calls(struct drain_thread *thread, uint64_t now_tsc);
/* Rules about the time alone. */
void rules_time(struct ct_rules *rules, uint64_t now_tsc);

/* The rules that are about a function. */
static inline uint32_t
rules_mask(const struct ct_rules *rules, uint32_t fn)
{
  return rules->masks != NULL ? rules->masks[fn] : 0;
}

/* Those of some rules that are about a function. */
static inline uint32_t
rules_about(const struct ct_rules *rules, uint32_t some, uint32_t fn)
{
  return some != 0 ? rules->masks[fn] & some : 0;
}

#endif
