/* SPDX-License-Identifier: MIT */
/*
 * A recording that keeps to a budget (--budget). Ten times a second, at a tick, the session reads how often each
 * function was called and what processor time the process and the drain have used, and decides how each function is
 * seen (budget_policy.c).
 *
 * Nobody is stopped for that: hooks have gates (x86/trampoline.c), whose levels are a byte each in the process. What a
 * function that is out still costs, a jump there and back, is saved by taking its patch out, many at once, with one
 * stop; so is putting it in again. In a process tree no patch is taken out: a forked child would not know of it.
 *
 * A hook begins counting, one of 64 calls is recorded (CT_LEVEL_MASK_FIRST). The first ticks are close together, since
 * a short program has no time to lose. When the limit has allowed what that may cost, what was called and is not hot is
 * recorded. What nobody has called for a second is recorded, too, when it is called; where the limit is far, that is so
 * after 50 ms. A program's age is that of its own time: not that by the clock in which it waited for its hooks.
 *
 * Costs are those that were measured when the recording began, times a factor that is found in the program itself
 * (budget_factor.c). The drain's time is what its clock says.
 */
#include "base/clock.h"
#include "record/budget_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_NS             100000000ull
#define RAISE_NS            4e6           /* what functions that are seen better may cost until the next tick */
#define RAISE_WAIT_NS       1e9           /* of the process's time: then it is allowed in any case, ... */
#define RAISE_AGE_NS        1500000000ull /* ... or so long after the begin, if no more is spent than is allowed */
#define FIRST_TICK_NS       4000000ull    /* the least; at the begin a tick takes half of the time until then */
#define CPU_NS_LEAST        3000000ull /* of its time: with less nothing can be said, for CT_BUDGET_IDLE_NS (TICK_NS at the begin) */
#define ASKED_NS            200000000ull /* until the drain has answered, should it not say so */
#define QUIET_TICKS         20u          /* so many without a step: then it is enough ... */
#define QUIET_TICK_NS       250000000ull /* ... so often */
#define COST_PART           0.1          /* of the limit: for ticks. Where they take more they are rarer, up to that */
#define BUSY_LEAST          0.05         /* of a processor: what the process is taken to use at least */
#define COST_OLD            0.75         /* how much of what they took before counts */
#define REST_TICKS          4.0          /* a process that has next to no time is looked at so much more rarely */
#define SPARE               0.5 /* of the limit: with less spent, what is not called yet is to be recorded ... */
#define SPARE_NS            50000000ull  /* ... from then on, ... */
#define OPEN_NS             250.0        /* ... if what that takes of the recorder, for each gate, ... */
#define OPEN_SHARE          0.5          /* ... is so much at most of what the limit has allowed until then */
#define EXPERIMENT_NS_LEAST 20000000.0   /* of processor time in each of its ticks */
#define COLD_NS_LEAST       10000000ull  /* ... of those with patches ... */
#define COLD_NS_MOST        400000000ull /* ... which wait no longer for it */
#define LOOK_CPU_NS         2000000ull   /* of the process's time: a look at what is out */
#define MEASURE_NS          20000000ull  /* own times are measured for so long, ... */
#define MEASURE_CPU_NS      5000000ull   /* ... and for so long of the process's time, ... */
#define MEASURE_NS_MOST     500000000ull
#define MEASURE_COST        0.8           /* of that time it is what hooks take, which is to be within the limit ... */
#define MEASURE_WAIT_NS     1000000000ull /* ... by then */
#define MEASURE_SOON        3u            /* the first times, at the begin and then ... */
#define MEASURE_SOON_NS     700000000ull
#define MEASURE_LATER_NS    20000000000ull
#define UNKNOWN_RATE        2000.0 /* calls a second: with less of them that is measured some time */
#define MEASURE_UNKNOWN     0.1    /* of the limit, to measure what is not known */

/* ---- a tick ---- */

static uint64_t
later(uint64_t a, uint64_t b)
{
  return a > b ? a : b;
}

/*
 * The first time that functions are seen better. What has been called so far says little of what will be: a program
 * that has only been loaded calls other functions a moment later, thousands of times. So what such a moment may cost,
 * until the next tick, has to be allowed by then; or the process has so little time that it would take too long.
 */
static bool
may_raise(const struct ct_session *session, uint64_t now)
{
  const struct session_budget *budget = session->budget;
  return budget->has_raised || session->options.budget * budget->life.own >= budget->life.hooks + RAISE_NS ||
         budget->had_ns >= RAISE_WAIT_NS || (!budget->is_over && ct_budget_age_ns(session, now) >= RAISE_AGE_NS);
}

/*
 * Functions that nobody has called yet are to be recorded from their first call on: after a second, or when less than a
 * part of the limit is spent. Not while more is spent than is allowed: a program that comes to another part of its work
 * then calls hundreds for the first time. True when that begins.
 */
static bool
open_uncalled(struct ct_session *session, uint64_t now)
{
  struct session_budget *budget = session->budget;
  uint64_t age = ct_budget_age_ns(session, now);
  double limit = session->options.budget;
  bool is_spare = ct_budget_hooks_share(&budget->spent) < SPARE * limit &&
                  (double)budget->gate_count * OPEN_NS <= OPEN_SHARE * limit * budget->had_ns;
  bool is_time = (age >= SPARE_NS && is_spare && may_raise(session, now)) ||
                 (age >= CT_BUDGET_IDLE_NS && (!budget->is_over || budget->had_ns >= CT_BUDGET_IDLE_NS));
  if (budget->has_opened || !is_time) {
    return false;
  }
  for (size_t fn = 0; fn < budget->function_count; fn++) {
    struct ct_budget_function *function = &budget->functions[fn];
    if (function->has_gate && function->rate == 0 && function->since_ns == 0) {
      function->wanted = CT_SEEN_FULL;
    }
  }
  budget->has_opened = true;
  return true;
}

/* ---- the whole ---- */

static double
at_least(double x, double least)
{
  return x > least ? x : least;
}

/* Of functions that nobody calls: these are no steps. */
static void
set_idle(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  for (size_t fn = 0; fn < budget->function_count; fn++) {
    struct ct_budget_function *function = &budget->functions[fn];
    if (budget->is_settled[fn / CT_DRAIN_TALLY_RUN] != 0) {
      fn |= CT_DRAIN_TALLY_RUN - 1; /* and the rest of the run */
      continue;
    }
    if (function->has_gate && function->rate == 0 && function->wanted != function->seen) {
      ct_budget_put_levels(session, function, function->wanted);
      budget->seen[function->seen]--;
      budget->seen[function->wanted]++;
      function->seen = function->wanted;
      ct_budget_note_return(function);
    }
  }
  ct_budget_write_levels(session);
}

/* Of functions whose level is another one than it should be. */
static void
set_levels(struct ct_session *session, size_t count)
{
  struct session_budget *budget = session->budget;
  for (size_t i = 0; i < count; i++) {
    if (budget->sorted[i]->wanted != budget->sorted[i]->seen) {
      ct_budget_put_levels(session, budget->sorted[i], budget->sorted[i]->wanted);
    }
  }
  ct_budget_write_levels(session);
}

static void
set_apart(struct ct_session *session, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (session->budget->sorted[i]->is_apart) {
      ct_budget_put_levels(session, session->budget->sorted[i], CT_SEEN_COUNTED);
    }
  }
  ct_budget_write_levels(session);
}

static void
take_steps(struct ct_session *session, size_t count, bool has_idle, uint64_t now)
{
  struct session_budget *budget = session->budget;
  bool any = false;
  budget->last_steps = 0;
  for (size_t i = 0; i < count; i++) {
    const struct ct_budget_function *function = budget->sorted[i];
    bool is_step = function->wanted != function->seen, is_first = function->since_ns == 0;
    budget->last_steps += is_step && !is_first && function->wanted != CT_SEEN_OUT;
    any |= is_step;
  }
  if (!any && !has_idle) {
    return;
  }
  set_levels(session, count);
  for (size_t i = 0; i < count; i++) {
    if (budget->sorted[i]->wanted != budget->sorted[i]->seen) {
      ct_budget_take_step(budget, budget->sorted[i], now);
    }
  }
  if (has_idle) {
    set_idle(session);
  }
}

/* After an experiment. */
static void
set_back(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  for (size_t fn = 0; fn < budget->function_count; fn++) {
    if (budget->functions[fn].is_apart) {
      ct_budget_put_levels(session, &budget->functions[fn], budget->functions[fn].seen);
    }
  }
  ct_budget_write_levels(session);
}

/* The first time: it is not to cost more than the limit has allowed of the process's time until then; but what is out
 * is looked at only after that, so a second is enough. */
static bool
may_measure(const struct ct_session *session, double used_ns, double seconds, uint64_t now)
{
  const struct session_budget *budget = session->budget;
  double had = budget->life.own, processors = used_ns / 1e9 / at_least(seconds, 1e-9);
  double takes = MEASURE_COST * at_least((double)MEASURE_NS * processors, (double)MEASURE_CPU_NS);
  bool is_time = ct_budget_age_ns(session, now) >= MEASURE_WAIT_NS;
  return budget->measured != 0 || is_time || budget->had_ns >= MEASURE_WAIT_NS ||
         had * session->options.budget >= budget->life.hooks + takes;
}

/* Also what is out and has its patch: what was called most went out before its own time was known, and might have the
 * longest ones. */
static bool
is_to_measure(const struct ct_budget_function *function)
{
  bool may_be = function->seen != CT_SEEN_FULL && !function->is_unpatched && !function->is_point;
  return may_be && (function->seen != CT_SEEN_OUT || function->own_ns == 0);
}

/* Is one that is called often there whose own time is not known? */
static bool
has_unknown(const struct session_budget *budget, size_t count)
{
  for (size_t i = count; i-- > 0 && budget->sorted[i]->rate > UNKNOWN_RATE;) {
    const struct ct_budget_function *function = budget->sorted[i];
    if (function->own_ns == 0 && function->seen != CT_SEEN_OUT && !function->is_unpatched && !function->is_point) {
      return true;
    }
  }
  return false;
}

/* The next time; sooner for such a function, when no more than a part of the limit has gone into the last time. */
static bool
is_time_to_measure(const struct session_budget *budget, size_t count, double limit, uint64_t now)
{
  double since = (double)(now - budget->measured_ns), between = MEASURE_COST * (double)MEASURE_NS / limit;
  return now >= budget->measure_ns ||
         (budget->measured >= MEASURE_SOON && since * MEASURE_UNKNOWN > between && has_unknown(budget, count));
}

/*
 * Own times of calls are seen where callees are recorded too. So for a moment all that is patched is recorded: soon
 * after the begin, some more times, when a program has come to its work, and rarely then. True while that goes on:
 * nothing is decided then.
 */
static bool
measure(struct ct_session *session, size_t count, double used_ns, double seconds, uint64_t now)
{
  struct session_budget *budget = session->budget;
  struct ct_drain *drain = session->recording.drain;
  if (!budget->is_measuring) {
    if (!is_time_to_measure(budget, count, session->options.budget, now) ||
        !may_measure(session, used_ns, seconds, now) ||
        (budget->has_decided && budget->last_steps >= CT_BUDGET_STEADY_STEPS)) {
      return false;
    }
    ct_drain_measure_own(drain, true);
    for (size_t i = 0; i < count; i++) {
      const struct ct_budget_function *function = budget->sorted[i];
      if (is_to_measure(function)) {
        ct_budget_put_levels(session, function, CT_SEEN_FULL);
      }
    }
    ct_budget_write_levels(session);
    budget->is_measuring = true;
    return true;
  }
  const struct ct_drain_own *own = ct_drain_own(drain);
  double tick_ns = ct_manifest_tick_ns(&session->recording.manifest);
  ct_drain_measure_own(drain, false);
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = budget->sorted[i];
    const struct ct_drain_own *its = own != NULL ? &own[function - budget->functions] : NULL;
    bool was_measured = is_to_measure(function);
    if (its != NULL) {
      ct_budget_read_own(function, its, tick_ns);
    }
    if (was_measured) {
      ct_budget_put_levels(session, function, function->seen);
    }
  }
  ct_budget_write_levels(session);
  budget->is_measuring = false;
  budget->measured++;
  budget->measured_ns = now;
  budget->measure_ns = now + (budget->measured < MEASURE_SOON ? MEASURE_SOON_NS : MEASURE_LATER_NS);
  return false;
}

/* Before the first decision: what is known of functions that may go out at once, see budget_own.c. */
static void
first_look(struct ct_session *session, size_t count)
{
  struct session_budget *budget = session->budget;
  const struct ct_drain_own *own = ct_drain_own(session->recording.drain);
  double tick_ns = ct_manifest_tick_ns(&session->recording.manifest);
  ct_drain_measure_own(session->recording.drain, false);
  for (size_t i = 0; i < count && own != NULL; i++) {
    ct_budget_first_look(budget->sorted[i], &own[budget->sorted[i] - budget->functions], tick_ns);
  }
}

/* True while an experiment goes on: nothing is decided then. */
static bool
experiment(struct ct_session *session, size_t count, double used, bool was_long, uint64_t now)
{
  struct session_budget *budget = session->budget;
  struct ct_budget_factor *factor = &budget->factor;
  struct ct_budget_costs costs = ct_budget_measured_costs(session);
  bool suffices = used >= EXPERIMENT_NS_LEAST;
  if (factor->phase == CT_BUDGET_APART) {
    set_back(session);
    ct_budget_factor_again(factor, budget->sorted, count, at_least(used, 1));
  } else if (factor->phase == CT_BUDGET_AGAIN) {
    double *room = suffices ? malloc((2 * count + 1) * sizeof(*room)) : NULL;
    if (room != NULL) {
      ct_budget_factor_end(factor, budget->sorted, count, used, now, room);
    }
    free(room);
  } else if (budget->has_decided && now >= factor->next_ns && budget->last_steps < CT_BUDGET_STEADY_STEPS) {
    if (!suffices && !was_long) {
      budget->is_long = true; /* the next one */
      return false;
    }
    if (suffices && ct_budget_factor_apart(factor, budget->sorted, count, &costs, used)) {
      set_apart(session, count);
      return true;
    }
    ct_budget_factor_give_up(factor, now);
    return false;
  }
  if (!suffices && factor->phase != CT_BUDGET_NO_EXPERIMENT) {
    ct_budget_factor_give_up(factor, now);
  }
  return factor->phase != CT_BUDGET_NO_EXPERIMENT;
}

static void
keep_down(const struct session_budget *budget, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = budget->sorted[i];
    if (function->wanted < function->seen && !function->is_ruled) {
      function->wanted = function->seen;
    }
  }
}

static void
tick(struct ct_session *session, uint64_t now, uint64_t cpu)
{
  struct session_budget *budget = session->budget;
  double seconds = (double)(now - budget->tick_ns) / 1e9;
  double used = at_least(cpu > budget->cpu_ns ? (double)(cpu - budget->cpu_ns) : 0, 1);
  budget->tick_ns = now;
  budget->cpu_ns = cpu;
  budget->had_ns += used;
  bool was_long = budget->is_long;
  budget->is_long = false;
  ct_budget_read_recorder(session, used, seconds);
  struct ct_budget_costs costs = ct_budget_costs_here(session);
  budget->out_ns = costs.out;
  bool has_idle;
  size_t count = ct_budget_read_rates(session, used, now, &has_idle);
  double allowed = ct_budget_account(session, &costs, count, used, seconds);
  if (!budget->has_decided && budget->measured == 0 && !budget->is_measuring) {
    first_look(session, count);
  }
  if (open_uncalled(session, now)) {
    set_idle(session); /* whatever else is done now: nobody has called them */
    budget->was_once = true;
  }
  ct_budget_looks_add(&budget->looks, allowed, used);
  if (budget->is_looking) {
    ct_budget_end_look(session, &costs, allowed, count, used, now);
    budget->whole_ns = 0; /* what was to be done about all is still to be done */
    return;
  }
  if (budget->cold.goes_on) {
    ct_budget_cold_after(&budget->cold, budget->sorted, count, budget->points, used);
  } else if ((!budget->is_measuring && experiment(session, count, used, was_long, now)) ||
             measure(session, count, used, seconds, now)) {
    budget->whole_ns = 0; /* the same */
    budget->quiet_ticks = 0;
    return;
  }
  bool may_try = session->node.tree != NULL || now - budget->stopped_ns >= CT_BUDGET_STOP_NS;
  ct_budget_give_counters(session, &costs, allowed, count);
  ct_budget_choose(budget->sorted, count, &costs, allowed, now, !budget->has_raised, may_try);
  bool raises = may_raise(session, now);
  if (!raises) {
    keep_down(budget, count);
  }
  uint64_t steps = budget->steps;
  take_steps(session, count, has_idle, now);
  budget->quiet_ticks = budget->steps == steps ? budget->quiet_ticks + 1 : 0;
  budget->has_decided = true;
  budget->has_raised = raises;
  ct_budget_switch_patches(session, &costs, allowed, count, used, now);
  if (budget->measured != 0 && !budget->is_long && !budget->cold.goes_on && used >= (double)CPU_NS_LEAST) {
    ct_budget_begin_look(session, &costs, allowed, count, used / 1e9 / seconds, now);
  }
}

/* ---- when ticks come ---- */

/* How much of the process's time a tick needs, and how long it takes at most. */
static void
find_length(const struct session_budget *budget, uint64_t *least, uint64_t *most)
{
  bool is_experiment = budget->is_long || budget->factor.phase != CT_BUDGET_NO_EXPERIMENT;
  if (budget->is_measuring) {
    *least = MEASURE_CPU_NS;
    *most = MEASURE_NS_MOST;
    return;
  }
  if (budget->is_looking) {
    *least = LOOK_CPU_NS;
    *most = TICK_NS;
    return;
  }
  *least = is_experiment ? (uint64_t)EXPERIMENT_NS_LEAST : budget->cold.goes_on ? COLD_NS_LEAST : CPU_NS_LEAST;
  *most = budget->cold.goes_on ? COLD_NS_MOST : budget->has_decided ? CT_BUDGET_IDLE_NS : TICK_NS;
}

/* Of the time by the clock. */
static uint64_t
tick_length(const struct ct_session *session, uint64_t now)
{
  const struct session_budget *budget = session->budget;
  if (budget->is_measuring) {
    return MEASURE_NS;
  }
  if (budget->is_looking) {
    return CT_BUDGET_LOOK_NS;
  }
  uint64_t age = ct_budget_age_ns(session, now);
  uint64_t had = (uint64_t)budget->had_ns; /* while too much is spent, the process's own time decides */
  uint64_t length = later(FIRST_TICK_NS, (budget->is_over && had < age ? had : age) / 2);
  double affordable = budget->tick_cost_ns / budget->tick_share;
  uint64_t most = budget->quiet_ticks >= QUIET_TICKS || affordable >= (double)QUIET_TICK_NS
                      ? QUIET_TICK_NS
                      : later(TICK_NS, (uint64_t)affordable);
  return length < most ? length : most;
}

/* Until the process has had the rest of the time that a tick needs, at its rate so far. */
static uint64_t
wait_for_rest(const struct session_budget *budget, uint64_t each, uint64_t now, uint64_t used, uint64_t least)
{
  double rest = (double)(now - budget->tick_ns) * ((double)least / at_least((double)used, 1) - 1);
  double most = (double)each * REST_TICKS;
  return rest >= most ? (uint64_t)most : later((uint64_t)at_least(rest, 0), each / 4);
}

static int
until(uint64_t now, uint64_t at, int ms)
{
  int left = at > now ? (int)((at - now + 999999) / 1000000) : 0;
  return ms < left ? ms : left;
}

/* Ahead, so that a tick is one wake-up of this thread: the drain answers in its first round after that, and rings. At
 * the begin, and in measurements, it is woken. */
static int
ask(struct ct_session *session, uint64_t at, uint64_t each, uint64_t now, int ms)
{
  struct session_budget *budget = session->budget;
  bool is_ahead = each >= TICK_NS;
  if (!is_ahead && now < at) {
    return until(now, at, ms);
  }
  ct_drain_ask_counts(session->recording.drain, is_ahead ? at : 0);
  budget->asked = true;
  return until(now, later(at, now) + ASKED_NS, ms);
}

/* What a process that has next to no time has of a processor is no measure. */
static void
note_share(struct session_budget *budget, double limit, double used_ns, double wall_ns)
{
  double share = COST_PART * limit * at_least(used_ns / at_least(wall_ns, 1), BUSY_LEAST);
  budget->tick_share = COST_OLD * budget->tick_share + (1 - COST_OLD) * share;
}

static void
note_cost(struct session_budget *budget, double cost_ns)
{
  budget->tick_cost_ns = COST_OLD * budget->tick_cost_ns + (1 - COST_OLD) * cost_ns;
}

int
session_serve_budget(struct ct_session *session, int ms)
{
  struct session_budget *budget = session->budget;
  uint64_t now = ct_now_ns(), cpu = 0;
  if (budget == NULL || budget->failed || ct_drain_tallies(session->recording.drain) == NULL) {
    return ms;
  }
  if (!budget->has_begun) { /* from here on it runs */
    ct_budget_begin_time(session, now);
    budget->has_begun = true;
  }
  uint64_t each = tick_length(session, now), least, most, due = budget->tick_ns + each;
  if (!budget->asked) {
    if (!ct_budget_find_gates(session)) { /* which takes its time: between reading the clock and the counts is none */
      budget->failed = true;
      return ms;
    }
    return ask(session, later(due, budget->rest_ns), each, now, ms);
  }
  if (!ct_drain_has_counts(session->recording.drain)) {
    return until(now, now + ASKED_NS, ms);
  }
  find_length(budget, &least, &most);
  budget->asked = false;
  bool has_cpu = ct_program_cpu_ns(session->target.process.pid, session->target.process.pidfd, &cpu);
  uint64_t at_counts = ct_drain_counts_cpu_ns(session->recording.drain);
  cpu =
      at_counts != 0 && at_counts < cpu ? at_counts : cpu; /* on a busy machine this thread comes to look much later */
  uint64_t used = has_cpu && cpu > budget->cpu_ns ? cpu - budget->cpu_ns : 0;
  if (!has_cpu || now < due || (used < least && now - budget->tick_ns < most)) {
    budget->rest_ns = now < due ? due : now + wait_for_rest(budget, each, now, used, least);
    return ask(session, budget->rest_ns, each, now, ms);
  }
  uint64_t began = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  note_share(budget, session->options.budget, (double)used, (double)(now - budget->tick_ns));
  tick(session, now, cpu);
  note_cost(budget, (double)(ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - began));
  now = ct_now_ns();
  each = tick_length(session, now);
  return ask(session, budget->tick_ns + each, each, now, ms);
}
