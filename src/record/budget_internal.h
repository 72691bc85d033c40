/* SPDX-License-Identifier: MIT */
/* What a session knows of its budget; budget.c, budget_tick.c. */
#ifndef CT_RECORD_BUDGET_INTERNAL_H
#define CT_RECORD_BUDGET_INTERNAL_H

#include "record/budget_cold.h"
#include "record/budget_counters.h"
#include "record/budget_drain.h"
#include "record/budget_factor.h"
#include "record/budget_look.h"
#include "record/budget_spent.h"
#include "record/session_internal.h"
#include "ring/counters.h"

#define BUDGET_STEPS_KEPT      1000u
#define CT_BUDGET_STEADY_STEPS 20u /* in a tick: with more of them there is no experiment */

/* Where the level of a function is set: there may be several, of the hooks that it has had. */
struct budget_gate {
  uint64_t at; /* struct ct_gate in the process */
  uint32_t fn : 31;
  uint32_t is_set : 1; /* its level is the one by which the function is seen */
  uint32_t next;       /* the function's next one, counted from 1; 0: there is none */
};

/* ... and one that is to be written. */
struct budget_level {
  uint64_t at;
  uint8_t seen;
};

struct budget_step {
  uint64_t ns;
  double rate, own_ns; /* what was known of the function then: as in ct_budget_function */
  uint32_t fn;
  uint8_t from, to, because;
};

struct session_budget {
  struct ct_budget_function *functions; /* by id */
  uint8_t *was_out;                     /* by id: at some time */
  uint32_t *places;                     /* by id: which one of its module's plan it is */
  size_t function_count;
  uint8_t *is_alive;   /* of CT_DRAIN_TALLY_RUN functions: bits of those that were in `sorted` in the last tick */
  uint8_t *is_settled; /* ... at the last look at all, each of these was seen in full, or has no gate */
  struct ct_budget_function **sorted;
  struct ct_budget_rank *ranks; /* for two times as many */
  uint32_t *first_gate;         /* by id, counted from 1 */
  struct budget_gate *gates;
  size_t gate_count;
  struct budget_level *levels; /* to be written, with the others of the tick */
  size_t level_count;
  uint64_t modules_seen; /* what of the modules the gates were made of */
  uint64_t begun_ns, tick_ns, cpu_ns, drain_cpu_ns, thread_cpu_ns, events, stopped_ns;
  uint64_t installed_ns; /* what hooks had taken when the process began to run */
  double had_ns;         /* of the process's time, until the last tick */
  uint64_t whole_ns;     /* all functions were looked at then; 0: that is due */
  uint64_t switches;
  double switch_share;   /* of the process's time, of late, what reports of its threads' switches take */
  uint32_t switch_ticks; /* that this is the mean of; 0: it was given up */
  double points;         /* calls of functions without gates, in the last tick */
  struct ct_budget_drain drain;
  double out_ns;                      /* of a call of a function that is out, and patched */
  double recorder_ns;                 /* what the recorder has used in the last tick */
  struct ct_budget_spent spent, life; /* of late; in all */
  struct ct_budget_factor factor;
  struct ct_budget_cold cold;
  struct ct_budget_counters counters;
  uint64_t measure_ns;  /* when own times are to be measured next */
  uint64_t measured_ns; /* when they were last ... */
  uint32_t measured;    /* ... and how often */
  bool is_measuring;    /* they are, until the next tick: all that is patched is recorded */
  struct ct_budget_looks looks;
  struct ct_budget_look_cost look_cost; /* of the look that goes on */
  double processors;                    /* that the process used when it began */
  bool is_looking;                      /* some that are out are seen, until the next tick */
  bool is_long;                         /* the tick that goes on: an experiment needs more of the process's time */
  size_t seen[CT_SEEN_LEVELS];          /* how many functions with gates are seen so */
  size_t last_steps;                    /* of the last tick, but those of functions that went out */
  bool asked;                           /* the drain, for a tick */
  uint64_t rest_ns;                     /* the process has too little time until then */
  uint32_t quiet_ticks;                 /* without a step */
  double tick_cost_ns;                  /* of this thread's time, of late */
  double tick_share;                    /* of the time by the clock: how much of it ticks may take */
  bool moves_counters; /* functions get counters and give them back: not in a tree, whose processes ... */
  bool
      has_points; /* ... know nothing of each other. Functions that have no gate can go out: patches may be taken out */
  bool was_once;  /* since the last tick something was done that is done once */
  bool has_begun; /* the process runs */
  bool is_closing;  /* it has ended, and the last calls are not read yet */
  bool is_over;     /* in the last tick hooks took more than the limit */
  bool has_decided; /* once at least */
  bool has_raised;  /* functions may be seen better than at the begin */
  bool has_opened;  /* what nobody has called is recorded when it is called */
  bool failed;      /* levels cannot be set: the process is about to end */
  uint64_t steps;
  struct budget_step kept[BUDGET_STEPS_KEPT]; /* number n at n % BUDGET_STEPS_KEPT */
};

static inline bool
ct_budget_is_counting(uint8_t seen)
{
  return seen == CT_SEEN_SAMPLED || seen == CT_SEEN_COUNTED;
}

/* Sorts functions by rate, the least first; ranks: room for twice as many. */
struct ct_budget_rank {
  double rate;
  struct ct_budget_function *function;
};
void ct_budget_sort(struct ct_budget_function **functions, size_t count, struct ct_budget_rank *ranks);

/* Of a module: rules that are about some of its functions, and no more of them than CT_RULED_MOST. A bit each. */
uint32_t ct_budget_rules_of(const struct ct_modules *modules, const struct ct_module *module);
/* Another number when rules have come or gone, or are about other functions. */
uint64_t ct_budget_rules_sign(const struct ct_modules *modules);

/* When libraries have come or gone, or hooks have been changed: all functions, gates and levels anew. */
bool ct_budget_find_gates(struct ct_session *session);

/* All gates of a function are to have the level by which it is seen so: with the next ct_budget_write_levels, which
 * sets budget->failed where that cannot be. */
void ct_budget_put_levels(struct ct_session *session, const struct ct_budget_function *function, uint8_t seen);
void ct_budget_write_levels(struct ct_session *session);

/* Functions that may come to need one get a counter, of those in budget->sorted; and give it back, in a stop. */
void ct_budget_give_counters(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                             size_t count);
void ct_budget_take_counters_back(struct ct_session *session, const struct ct_remote *remote);
/* Tells its gates which one it has. False, and budget->failed, where that cannot be. */
bool ct_budget_write_counters(struct ct_session *session, const struct ct_budget_function *function);

/* What calls cost as measured; and as they do in this program, with the drain's part. */
struct ct_budget_costs ct_budget_measured_costs(const struct ct_session *session);
struct ct_budget_costs ct_budget_costs_here(const struct ct_session *session);

/* From now on the process runs. How long it has since, but for the time that hooks were put in. */
void ct_budget_begin_time(struct ct_session *session, uint64_t now);
uint64_t ct_budget_age_ns(const struct ct_session *session, uint64_t now);

/* Brings the rates up to date; how many functions are in budget->sorted: all that are called, or are out. has_idle:
 * there are some that nobody calls, whose level is to be another one. */
size_t ct_budget_read_rates(struct ct_session *session, double used_ns, uint64_t now, bool *has_idle);
#define CT_BUDGET_IDLE_NS 1000000000ull /* what is not called for so long is idle */

/* What has been spent since the last tick belongs to what was spent in all: the recorder's part is read while its
 * threads are there, and session_close_budget reads the calls when all have been drained. */
void ct_budget_begin_closing(struct ct_session *session);

/* What the recorder has used since the last tick: before the costs of calls are asked for. */
void ct_budget_read_recorder(struct ct_session *session, double used_ns, double seconds);

/* Adds what the tick has spent, of count functions in budget->sorted. What is left for hooks, in ns a second of the
 * process's time. */
double ct_budget_account(struct ct_session *session, const struct ct_budget_costs *costs, size_t count, double used_ns,
                         double seconds);

/* What a call takes of its own, from what was added up since the last time, ticks of tick_ns. */
void ct_budget_read_own(struct ct_budget_function *function, const struct ct_drain_own *own, double tick_ns);
/* The first time: only of those that have been recorded in full from the begin on, and cannot be counted. */
void ct_budget_first_look(struct ct_budget_function *function, const struct ct_drain_own *own, double tick_ns);

/* Its calls are seen from now on, if they are; its level and its patch have been set. */
void ct_budget_note_return(struct ct_budget_function *function);

/* It is seen as it is wanted from now on. */
void ct_budget_take_step(struct session_budget *budget, struct ct_budget_function *function, uint64_t now);

/* For functions that are out, of those in budget->sorted: sets is_looking when there are any to be looked at. Ended in
 * the next tick, of used_ns of the process's time. */
void ct_budget_begin_look(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                          size_t count, double processors, uint64_t now);
void ct_budget_end_look(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                        size_t count, double used_ns, uint64_t now);

/* With one stop of the process, if that is worth it: count functions are in budget->sorted, of a tick of used_ns. */
void ct_budget_switch_patches(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                              size_t count, double used_ns, uint64_t now);

#endif
