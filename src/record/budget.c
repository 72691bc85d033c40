/* SPDX-License-Identifier: MIT */
/* A budget as the session has it, from its begin to the manifest; what is done about it is in budget_tick.c. */
#include "base/cost.h"
#include "base/clock.h"
#include "record/budget_internal.h"

#include <stdlib.h>

#define OUT_KEPT           10000u /* functions listed in the manifest */
#define STEPS_MEANWHILE    100u   /* steps in the manifest of a recording that goes on, which is written often */
#define PATCHES_KEPT       3u
#define PATCH_SHARE_LEAST  0.001
#define SPENT_OWN_NS_LEAST 1e7 /* of the last two seconds or so */
#define IN_ALL_NS_LEAST    1e6

static const char *const seen_names[CT_SEEN_LEVELS] = {"full", "sampled", "counted", "out"};
static const char *const because_names[CT_BUDGET_BECAUSE_COUNT] = {"limit", "exchange", "room", "look"};

static bool
has_budget(const struct ct_session *session)
{
  return session->options.budget > 0;
}

void
session_begin_budget(struct ct_session *session)
{
  if (!has_budget(session)) {
    return;
  }
  if (session->budget == NULL) {
    session->budget = calloc(1, sizeof(*session->budget));
  }
  struct session_budget *budget = session->budget;
  if (budget == NULL) {
    return;
  }
  budget->has_begun = false;
  ct_budget_begin_time(session, ct_now_ns());
  budget->cpu_ns = 0; /* what it has had when it cannot have called anything yet */
  ct_program_cpu_ns(session->target.process.pid, session->target.process.pidfd, &budget->cpu_ns);
  budget->drain_cpu_ns = budget->thread_cpu_ns = 0;
  budget->had_ns = 0;
  budget->is_over = true; /* until the first tick shows that it is not */
  ct_budget_drain_begin(&budget->drain);
  budget->has_points = budget->moves_counters = session->node.tree == NULL;
  budget->measure_ns = 0;
  budget->measured = 0;
  budget->is_measuring = false;
  budget->modules_seen = budget->whole_ns = 0;
  budget->has_decided = budget->has_raised = budget->has_opened = budget->asked = budget->was_once = false;
  budget->is_long = budget->is_looking = false;
  budget->rest_ns = 0;
  budget->quiet_ticks = 0;
  budget->tick_cost_ns = 0;
  budget->tick_share = 1;
  budget->switches = 0;
  budget->switch_share = 0;
  budget->switch_ticks = 1;
  ct_budget_factor_begin(&budget->factor, budget->begun_ns);
  ct_budget_cold_begin(&budget->cold);
  ct_drain_measure_own(session->recording.drain, true); /* until the first decision, see budget_own.c */
  ct_budget_looks_begin(&budget->looks);
  ct_budget_counters_begin(&budget->counters);
  for (size_t fn = 0; fn < budget->function_count; fn++) { /* of an image before */
    budget->functions[fn].counter = 0;
    budget->functions[fn].has_counter = false;
    budget->functions[fn].takes_counter = 0;
  }
  budget->failed = false;
}

void
session_end_budget(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  if (budget != NULL) {
    if (!budget->failed) {
      ct_budget_begin_closing(session);
    }
    budget->gate_count = budget->level_count = 0;
    budget->failed = true;
  }
}

void
session_free_budget(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  if (budget != NULL) {
    free(budget->functions);
    free(budget->was_out);
    free(budget->places);
    free(budget->is_alive);
    free(budget->is_settled);
    free(budget->sorted);
    free(budget->ranks);
    free(budget->first_gate);
    free(budget->gates);
    free(budget->levels);
    free(budget);
    session->budget = NULL;
  }
}

static struct ct_budget_status
sum_up(const struct ct_session *session)
{
  const struct session_budget *budget = session->budget;
  struct ct_budget_status sums = {.limit = session->options.budget};
  if (budget != NULL && (budget->has_decided || budget->steps != 0)) {
    sums.full = budget->seen[CT_SEEN_FULL];
    sums.sampled = budget->seen[CT_SEEN_SAMPLED];
    sums.counted = budget->seen[CT_SEEN_COUNTED];
    sums.out = budget->seen[CT_SEEN_OUT];
    /* Beside a program that had next to no processor time a recorder takes any number of times as much: that says
     * nothing. */
    if (budget->spent.own > SPENT_OWN_NS_LEAST) {
      sums.spent = ct_budget_spent_share(&budget->spent);
      sums.hooks = budget->spent.hooks / budget->spent.own;
      sums.switches = budget->spent.switches / budget->spent.own;
      sums.recorder = budget->spent.recorder / budget->spent.own;
    }
    sums.steps = budget->steps;
  }
  return sums;
}

void
session_count_budget(struct ct_session *session)
{
  session->sync.status.budget = sum_up(session);
}

/* Of the process's time, what it takes to jump to the trampoline of a function that is out, and back. */
static double
patch_share(const struct session_budget *budget, const struct ct_budget_function *function)
{
  bool is_left = function->has_gate && function->seen == CT_SEEN_OUT && !function->is_unpatched;
  return is_left ? function->rate * (budget->out_ns + function->cold) / 1e9 : 0;
}

/* Functions that are out, and keep their patches: what all of them cost, and the dearest ones of those that cost
 * something.
 */
static json_t *
patches_json(const struct session_budget *budget)
{
  json_t *json = json_object(), *list = json_array();
  double sum = 0, most[PATCHES_KEPT + 1] = {0};
  size_t at[PATCHES_KEPT + 1] = {0}; /* the last one is for what falls out */
  for (size_t fn = 0; fn < budget->function_count; fn++) {
    if (budget->was_out[fn] == 0) { /* a byte of each is soon read, all there is to know of them is not */
      continue;
    }
    double share = patch_share(budget, &budget->functions[fn]);
    size_t n = share >= PATCH_SHARE_LEAST ? PATCHES_KEPT : 0;
    sum += share;
    for (; n > 0 && share > most[n - 1]; n--) {
      most[n] = most[n - 1];
      at[n] = at[n - 1];
      most[n - 1] = share;
      at[n - 1] = fn;
    }
  }
  for (size_t n = 0; n < PATCHES_KEPT && most[n] != 0; n++) {
    json_array_append_new(list, json_pack("{s:I, s:f}", "function", (json_int_t)at[n], "share", most[n]));
  }
  json_object_set_new(json, "share", json_real(sum));
  json_object_set_new(json, "functions", list);
  return json;
}

static json_t *
step_json(const struct budget_step *step)
{
  json_t *json = json_pack("{s:I, s:I, s:s, s:s, s:s, s:I}", "ns", (json_int_t)step->ns, "function",
                           (json_int_t)step->fn, "from", seen_names[step->from], "to", seen_names[step->to], "because",
                           because_names[step->because], "rate", (json_int_t)step->rate);
  if (json != NULL && step->own_ns > 0) {
    json_object_set_new(json, "own_ns", json_integer((json_int_t)(step->own_ns + 0.5)));
  }
  return json;
}

/* From the begin to the end, of the process's own time. */
static json_t *
in_all_json(const struct ct_budget_spent *life)
{
  return json_pack("{s:f, s:f, s:f, s:f, s:I}", "spent", ct_budget_spent_share(life), "hooks", life->hooks / life->own,
                   "switches", life->switches / life->own, "recorder", life->recorder / life->own, "own_ns",
                   (json_int_t)life->own);
}

json_t *
session_budget_json(struct ct_session *session, bool complete)
{
  const struct session_budget *budget = session->budget;
  if (!has_budget(session)) {
    return NULL;
  }
  struct ct_budget_status sums = sum_up(session);
  json_t *out = json_array(), *during = json_array(), *steps = json_array();
  for (size_t fn = 0; budget != NULL && fn < budget->function_count && json_array_size(out) < OUT_KEPT; fn++) {
    if (budget->was_out[fn] != 0) {
      const struct ct_budget_function *function = &budget->functions[fn];
      json_array_append_new(out, json_integer((json_int_t)fn));
      if (function->out_until_ns != UINT64_MAX) {
        json_array_append_new(during, json_pack("[I, I, I]", (json_int_t)fn, (json_int_t)function->out_from_ns,
                                                (json_int_t)function->out_until_ns));
      }
    }
  }
  uint64_t count = budget != NULL ? budget->steps : 0, most = complete ? BUDGET_STEPS_KEPT : STEPS_MEANWHILE;
  for (uint64_t n = count > most ? count - most : 0; n < count; n++) {
    json_array_append_new(steps, step_json(&budget->kept[n % BUDGET_STEPS_KEPT]));
  }
  json_t *json = ct_budget_json(&sums);
  json_object_set_new(json, "cost_factor", json_real(budget != NULL ? ct_budget_factor(&budget->factor) : 1));
  json_object_set_new(json, "experiments", json_integer(budget != NULL ? (json_int_t)budget->factor.done : 0));
  json_object_set_new(json, "cold_factor", json_real(budget != NULL ? ct_budget_cold_factor(&budget->cold) : 1));
  json_object_set_new(json, "cold_experiments", json_integer(budget != NULL ? (json_int_t)budget->cold.done : 0));
  json_object_set_new(json, "were_out", out);
  json_object_set_new(json, "out_during", during);
  json_object_set_new(json, "last_steps", steps);
  if (budget != NULL) {
    json_object_set_new(json, "patches_left", patches_json(budget));
  }
  if (budget != NULL && budget->life.own >= IN_ALL_NS_LEAST) {
    json_object_set_new(json, "in_all", in_all_json(&budget->life));
  }
  return json;
}
