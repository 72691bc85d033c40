/* SPDX-License-Identifier: MIT */
/*
 * What a call costs under a budget, and what was spent in a tick: by hooks, by the kernel's reports of switches, and by
 * the recorder's threads that serve this process. The last two are told whole, but only what comes again in each tick
 * is taken from what is left for hooks: not what is done once (all levels are set at the begin and when functions that
 * nobody has called are opened, hooks of a library are put in).
 */
#include "record/budget_internal.h"

#include <time.h>

#define FULL_NS_LEAST    15.0 /* of a hook, whatever was measured: two readings of the clock, ... */
#define COUNTED_NS_LEAST 1.0
#define OUT_NS_LEAST     0.7
#define OWN_LEAST        0.1    /* of a process's time: without hooks, whatever these are said to cost */
#define LEFT_LEAST       0.25   /* of the limit: for hooks, whatever all else takes */
#define RULED_MOST       0.5    /* of the limit: for what rules are about, even if all else has to go for that */
#define SWITCH_NS        3000.0 /* that a thread goes and comes again, and both are reported */
#define SWITCH_MOST      0.25   /* of the limit, for such reports */
#define SWITCH_TICKS     8u

static double
at_least(double x, double least)
{
  return x > least ? x : least;
}

/* But on a machine that was busy what was measured may be anything. */
struct ct_budget_costs
ct_budget_measured_costs(const struct ct_session *session)
{
  const struct ct_hook_costs *c = &session->recording.manifest.costs;
  double tick_ns = ct_manifest_tick_ns(&session->recording.manifest);
  double full = (c->enter_before + c->enter_after + c->return_before + c->return_after) * tick_ns;
  return (struct ct_budget_costs){.full = at_least(full, FULL_NS_LEAST),
                                  .counted = at_least(c->counted * tick_ns, COUNTED_NS_LEAST),
                                  .out = at_least(c->out * tick_ns, OUT_NS_LEAST)};
}

struct ct_budget_costs
ct_budget_costs_here(const struct ct_session *session)
{
  double factor = ct_budget_factor(&session->budget->factor);
  struct ct_budget_costs costs = ct_budget_measured_costs(session);
  costs.full = costs.full * factor + 2 * ct_budget_drain_event_ns(&session->budget->drain);
  costs.counted *= factor;
  costs.out *= factor;
  costs.ruled = RULED_MOST * session->options.budget * 1e9;
  return costs;
}

void
ct_budget_begin_time(struct ct_session *session, uint64_t now)
{
  struct session_budget *budget = session->budget;
  budget->begun_ns = budget->tick_ns = now;
  budget->installed_ns = session->recording.manifest.install_ns;
}

uint64_t
ct_budget_age_ns(const struct ct_session *session, uint64_t now)
{
  const struct session_budget *budget = session->budget;
  uint64_t age = now - budget->begun_ns, installed = session->recording.manifest.install_ns - budget->installed_ns;
  return age > installed ? age - installed : 0;
}

/* What hooks have cost in this tick, in ns, without what the drain does for their events. */
static double
sum_up_hooks(const struct session_budget *budget, const struct ct_budget_costs *costs, size_t count, double used_ns)
{
  double sum = 0, recorded = budget->points / 2;
  for (size_t i = 0; i < count; i++) {
    const struct ct_budget_function *function = budget->sorted[i];
    recorded += function->calls - function->passed;
    sum += function->passed * costs->counted + function->calls * function->cold;
    if (function->seen == CT_SEEN_OUT && !function->is_unpatched && !function->is_point) {
      sum += function->rate * (used_ns / 1e9) * (costs->out + function->cold);
    }
  }
  return sum + recorded * (costs->full - 2 * ct_budget_drain_event_ns(&budget->drain));
}

/*
 * The kernel's reports of each switch cost the thread that goes or comes microseconds: what waits for requests of some
 * 100 us spends a tenth of its time for them. Where that is a good part of the limit they are given up.
 */
static void
weigh_switches(struct ct_session *session, double used_ns)
{
  struct session_budget *budget = session->budget;
  struct ct_drain_numbers numbers;
  ct_drain_numbers(session->recording.drain, &numbers);
  double share = (double)(numbers.switches - budget->switches) * SWITCH_NS / used_ns;
  budget->switches = numbers.switches;
  if (budget->switch_ticks == 0) {
    return;
  }
  double part = budget->switch_ticks < SWITCH_TICKS ? 1.0 / budget->switch_ticks : 1.0 / SWITCH_TICKS;
  budget->switch_share += part * ((share < 1 ? share : 1) - budget->switch_share);
  if (++budget->switch_ticks > SWITCH_TICKS && budget->switch_share > SWITCH_MOST * session->options.budget) {
    ct_drain_end_switches(session->recording.drain);
    budget->switch_share = 0;
    budget->switch_ticks = 0;
  }
}

static uint64_t
thread_cpu_ns(void)
{
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

/* What this thread has used, and the one that says that we live. */
static uint64_t
looks_cpu_ns(const struct ct_session *session)
{
  return thread_cpu_ns() + ct_drain_liveness_cpu_ns(session->recording.drain);
}

/* What the threads have used through which events go. */
static uint64_t
events_cpu_ns(const struct ct_session *session)
{
  uint64_t writer = session->recording.writer != NULL ? ct_trace_writer_cpu_ns(session->recording.writer) : 0;
  return ct_drain_cpu_ns(session->recording.drain) + writer;
}

/* What these have used since the last tick; not at the begin, when much is done once. */
static double
read_recorder(struct ct_session *session, double used_ns, double seconds)
{
  struct session_budget *budget = session->budget;
  struct ct_drain_numbers numbers;
  ct_drain_numbers(session->recording.drain, &numbers);
  uint64_t drain = events_cpu_ns(session), thread = looks_cpu_ns(session);
  double drain_ns = drain > budget->drain_cpu_ns ? (double)(drain - budget->drain_cpu_ns) : 0;
  double thread_ns = thread > budget->thread_cpu_ns ? (double)(thread - budget->thread_cpu_ns) : 0;
  double events = numbers.events > budget->events ? (double)(numbers.events - budget->events) : 0;
  bool is_begin = !budget->has_decided && !budget->is_measuring;
  budget->drain_cpu_ns = drain;
  budget->thread_cpu_ns = thread;
  budget->events = numbers.events;
  if (!is_begin) {
    ct_budget_drain_add(&budget->drain, events, drain_ns, budget->was_once ? 0 : thread_ns, used_ns, seconds);
  }
  budget->was_once = is_begin;
  return is_begin ? 0 : drain_ns + thread_ns;
}

double
ct_budget_account(struct ct_session *session, const struct ct_budget_costs *costs, size_t count, double used_ns,
                  double seconds)
{
  struct session_budget *budget = session->budget;
  weigh_switches(session, used_ns);
  struct ct_budget_spent tick = {.hooks = sum_up_hooks(budget, costs, count, used_ns),
                                 .switches = budget->switch_share * used_ns,
                                 .recorder = budget->recorder_ns};
  double own = at_least(1 - (tick.hooks + tick.switches) / used_ns, OWN_LEAST);
  tick.own = own * used_ns;
  ct_budget_spent_add(&budget->spent, &tick, seconds);
  ct_budget_spent_add(&budget->life, &tick, 0);
  budget->is_over = tick.hooks > session->options.budget * tick.own;
  double limit = session->options.budget * own * 1e9;
  double others = ct_budget_drain_rest(&budget->drain) + budget->switch_share * 1e9;
  return at_least(limit - others, limit * LEFT_LEAST);
}

void
ct_budget_read_recorder(struct ct_session *session, double used_ns, double seconds)
{
  session->budget->recorder_ns = read_recorder(session, used_ns, seconds);
}
