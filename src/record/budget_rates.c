/* SPDX-License-Identifier: MIT */
/*
 * How often functions are called, under a budget: read at each tick (budget_tick.c), and once more when an image has
 * ended, for what was spent since the last one.
 */
#include "base/clock.h"
#include "record/budget_internal.h"

#define COUNTING_RUNS (CT_COUNTERS / CT_DRAIN_COUNTING_RUN)
#define RATE_LEAST    0.2 /* calls a second: with less it is not called */

static void
read_calls(const struct ct_drain_tally *tally, struct ct_budget_function *function)
{
  uint64_t recorded = atomic_load_explicit(&tally->recorded, memory_order_relaxed);
  uint64_t counted = atomic_load_explicit(&tally->counted, memory_order_relaxed);
  function->passed = (double)(counted - function->counted);
  function->calls = (double)(recorded - function->recorded) * (function->is_point ? 0.5 : 1) + function->passed;
  function->recorded = recorded;
  function->counted = counted;
}

/* With the calls of this tick. Does it belong into budget->sorted? */
static bool
read_rate(struct session_budget *budget, struct ct_budget_function *function, double used_ns, uint64_t now)
{
  if (!function->has_gate) {
    budget->points += function->calls;
    return false;
  }
  if (function->seen != CT_SEEN_OUT && !function->is_unpatched) {
    double rate = function->calls * (1e9 / used_ns);
    function->rate = rate > function->rate ? rate : 0.7 * function->rate + 0.3 * rate;
  } else if (function->is_looked) {
    ct_budget_looks_read(function, used_ns, now);
  }
  if (function->rate < RATE_LEAST) {
    function->rate = 0;
  }
  function->wanted = function->seen;
  return function->rate != 0 || function->seen == CT_SEEN_OUT || function->is_unpatched;
}

/* Where the drain need not look for counts: `counting` says where one has counted since the last tick, of the functions
 * before `end`. */
static void
unmark_counting(struct ct_session *session, const uint8_t *counting, size_t end)
{
  size_t first = session->recording.image.layout.first_counted;
  _Atomic uint8_t *marks = ct_drain_counting(session->recording.drain);
  for (size_t run = 0; run < COUNTING_RUNS; run++) {
    size_t at = run * CT_DRAIN_COUNTING_RUN;
    bool is_known = at < CT_COUNTERS_BY_NEED || first + at - CT_COUNTERS_BY_NEED + CT_DRAIN_COUNTING_RUN <= end;
    if (is_known && counting[run] == 0) {
      atomic_store_explicit(&marks[run], 0, memory_order_relaxed);
    }
  }
}

static void
note_counting(const struct session_budget *budget, const struct ct_budget_function *function, uint8_t *counting)
{
  bool is_apart = function->is_apart && budget->factor.phase == CT_BUDGET_APART;
  bool is_counting = ct_budget_is_counting(function->seen) || function->is_looked || is_apart;
  if (function->has_gate && is_counting && function->counter != 0) {
    counting[(function->counter - 1u) / CT_DRAIN_COUNTING_RUN] = 1;
  }
}

/* One function in a tick. True when it belongs into budget->sorted. */
static bool
look_at(struct session_budget *budget, struct ct_budget_function *function, double used_ns, uint64_t now,
        bool *has_idle)
{
  bool is_alive = read_rate(budget, function, used_ns, now);
  bool is_time = function->since_ns == 0 ? budget->has_opened : now - function->since_ns >= CT_BUDGET_IDLE_NS;
  is_time |= function->is_ruled && function->seen != CT_SEEN_OUT;
  if (!is_alive && function->has_gate && function->seen != CT_SEEN_FULL && is_time) {
    function->wanted = CT_SEEN_FULL; /* nobody calls it */
    *has_idle = true;
  }
  return is_alive;
}

/*
 * Brings the rates up to date; how many functions are in budget->sorted: all that are called, or are out. Most are
 * neither: of a program with 66,000 functions a look at all of them takes longer than all else that is done in a tick,
 * and takes the caches from the program. So these are looked at once a second, to see whether they are idle, and not
 * even then where all are in full and nobody has called one.
 */
size_t
ct_budget_read_rates(struct ct_session *session, double used_ns, uint64_t now, bool *has_idle)
{
  struct session_budget *budget = session->budget;
  const struct ct_drain_tally *tallies = ct_drain_tallies(session->recording.drain);
  _Atomic uint8_t *touched = ct_drain_touched(session->recording.drain);
  size_t count = 0, end = budget->function_count < CT_DRAIN_TALLIES ? budget->function_count : CT_DRAIN_TALLIES;
  bool is_whole = !budget->has_decided || budget->whole_ns == 0 || now - budget->whole_ns >= CT_BUDGET_IDLE_NS;
  uint8_t counting[COUNTING_RUNS] = {0};
  *has_idle = false;
  budget->points = 0;
  budget->whole_ns = is_whole ? now : budget->whole_ns;
  for (size_t first = 0; first < end; first += CT_DRAIN_TALLY_RUN) {
    size_t run = first / CT_DRAIN_TALLY_RUN;
    bool is_all = is_whole && !budget->is_settled[run];
    unsigned called = atomic_load_explicit(&touched[run], memory_order_relaxed);
    if (called == 0 && budget->is_alive[run] == 0 && !is_all) {
      continue;
    }
    /* acquire: pairs with the drain's add() */
    called = called != 0 ? atomic_exchange_explicit(&touched[run], 0, memory_order_acquire) : 0;
    unsigned left = is_all ? 0xff : called | budget->is_alive[run];
    budget->is_alive[run] = 0;
    budget->is_settled[run] |= is_all;
    for (; left != 0; left &= left - 1) {
      unsigned n = (unsigned)__builtin_ctz(left);
      struct ct_budget_function *function = &budget->functions[first + n];
      if (first + n >= end) {
        break;
      }
      function->calls = function->passed = 0;
      if ((called >> n & 1) != 0) {
        read_calls(&tallies[first + n], function);
      }
      note_counting(budget, function, counting);
      budget->is_settled[run] &= !function->has_gate || function->seen == CT_SEEN_FULL;
      if (look_at(budget, function, used_ns, now, has_idle)) {
        budget->is_alive[run] |= (uint8_t)(1u << n);
        budget->is_settled[run] = 0;
        budget->sorted[count++] = function;
      }
    }
  }
  if (is_whole) {
    unmark_counting(session, counting, end);
  }
  ct_budget_sort(budget->sorted, count, budget->ranks);
  ct_budget_cold_costs(&budget->cold, budget->sorted, count);
  return count;
}

/* ---- at the end ---- */

static double
at_least(double x, double least)
{
  return x > least ? x : least;
}

/* By the process, since the last tick, as far as it has been looked at: it may have ended. */
static double
used_since(const struct ct_session *session)
{
  const struct session_budget *budget = session->budget;
  const struct ct_cpu_times *cpu = &session->recording.cpu;
  uint64_t now = cpu->program_ns != 0 ? cpu->begin_ns + cpu->program_ns : 0;
  return at_least(now > budget->cpu_ns ? (double)(now - budget->cpu_ns) : 0, 1);
}

void
ct_budget_begin_closing(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  if (!budget->has_begun || ct_drain_tallies(session->recording.drain) == NULL) {
    return;
  }
  if (budget->modules_seen == 0 && !session->node.is_child) {
    ct_budget_find_gates(session); /* it had no tick */
  }
  ct_budget_read_recorder(session, used_since(session), (double)(ct_now_ns() - budget->tick_ns) / 1e9);
  budget->is_closing = true;
}

void
session_close_budget(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  uint64_t now = ct_now_ns();
  bool has_idle;
  if (budget == NULL || !budget->is_closing) {
    return;
  }
  budget->is_closing = false;
  double used = used_since(session);
  struct ct_budget_costs costs = ct_budget_costs_here(session);
  size_t count = ct_budget_read_rates(session, used, now, &has_idle);
  ct_budget_account(session, &costs, count, used, (double)(now - budget->tick_ns) / 1e9);
}
