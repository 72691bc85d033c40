/* SPDX-License-Identifier: MIT */
/*
 * Patches under a budget: those of functions that are out are taken out, many at once, with one stop of the process,
 * and put back. See budget_tick.c.
 */
#include "base/clock.h"
#include "record/budget_internal.h"

#include <stdlib.h>
#include <string.h>

#define EARLY_NS   1000000000ull /* until then what is out keeps its patch until its own time has been measured, ... */
#define EARLY_MORE 4.0           /* ... but where patches cost so many times what is worth a stop that comes soon */

static bool
wants_out(const struct ct_budget_function *function)
{
  return function->seen == CT_SEEN_OUT && !function->keeps_patch && !function->is_looked;
}

/* Those whose patch is not as it should be. */
struct switches {
  struct ct_budget_function **functions;
  size_t count;
};

static size_t
find_switches(const struct session_budget *budget, size_t count, struct ct_budget_function **out)
{
  size_t found = 0;
  for (size_t i = 0; i < count; i++) { /* all such are sorted */
    if (budget->sorted[i]->is_unpatched != wants_out(budget->sorted[i])) {
      out[found++] = budget->sorted[i];
    }
  }
  return found;
}

/* The function's place in the plan of the module, if it is one of its own. */
static bool
find_place(const struct session_budget *budget, const struct ct_module *module,
           const struct ct_budget_function *function, size_t *place)
{
  size_t fn = (size_t)(function - budget->functions), first = module->installed.first_fn;
  bool is_its = fn >= first && fn - first < module->plan->hooked;
  *place = is_its ? budget->places[fn] : 0;
  return is_its;
}

/* switches: as many as the plan has functions, all CT_SWITCH_LEAVE, before and after. */
static bool
switch_installed(const struct session_budget *budget, const struct ct_remote *remote, struct ct_module *module,
                 size_t which, const struct switches *wanted, uint8_t *switches)
{
  const struct ct_installed *installed = ct_module_installed(module, which);
  bool any = false;
  size_t i;
  for (size_t n = 0; n < wanted->count; n++) {
    const struct ct_budget_function *function = wanted->functions[n];
    if (!find_place(budget, module, function, &i)) {
      continue;
    }
    bool is_active = module->active == NULL ? which == 1 : module->active[i] == which;
    if (is_active && installed->gates != NULL && (installed->gates[i] == 0) == function->is_point) {
      switches[i] = wants_out(function) ? CT_SWITCH_OFF : CT_SWITCH_ON;
      any = true;
    }
  }
  bool ok = !any || ct_install_switch(remote, installed, switches) == 0;
  for (size_t n = 0; n < wanted->count && any; n++) {
    struct ct_budget_function *function = wanted->functions[n];
    if (find_place(budget, module, function, &i)) {
      bool is_done = ok && (switches[i] == CT_SWITCH_OFF || switches[i] == CT_SWITCH_ON); /* BUSY: the next time */
      function->is_unpatched = is_done ? switches[i] == CT_SWITCH_OFF : function->is_unpatched;
      module->without_patch[i] = function->is_unpatched;
      ct_budget_note_return(function);
      switches[i] = CT_SWITCH_LEAVE;
    }
  }
  return ok;
}

/* Patches of functions that are out are taken out, and those of functions that are not are put back. */
static void
switch_module(const struct session_budget *budget, const struct ct_remote *remote, struct ct_module *module,
              const struct switches *wanted)
{
  size_t place;
  bool ok = false;
  for (size_t n = 0; n < wanted->count && !ok; n++) {
    ok = find_place(budget, module, wanted->functions[n], &place);
  }
  uint8_t *switches = ok ? calloc(module->plan->count + 1, 1) : NULL;
  if (switches != NULL && module->without_patch == NULL) {
    module->without_patch = calloc(module->plan->count + 1, 1);
    ok = module->without_patch != NULL;
  }
  for (size_t which = 1; which < module->layer_count + 2 && switches != NULL && ok; which++) {
    ok = switch_installed(budget, remote, module, which, wanted, switches);
  }
  free(switches);
}

static bool
is_worth_a_stop(const struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns, size_t count,
                uint64_t now)
{
  const struct session_budget *budget = session->budget;
  uint64_t age = now - budget->stopped_ns;
  if (budget->measured == 0 && ct_budget_age_ns(session, now) < EARLY_NS) {
    allowed_ns *= EARLY_MORE;
    age = age < CT_BUDGET_STOP_NS ? age : CT_BUDGET_STOP_NS - 1;
  }
  return ct_budget_wants_stop(budget->sorted, count, costs, allowed_ns, age);
}

/* The process is stopped. */
static void
switch_modules(struct ct_session *session, size_t count)
{
  struct session_budget *budget = session->budget;
  struct ct_modules *modules = &session->recording.modules;
  struct ct_remote remote = session_stopped_remote(session);
  struct switches wanted = {.functions = malloc((count + 1) * sizeof(*wanted.functions))};
  wanted.count = wanted.functions != NULL ? find_switches(budget, count, wanted.functions) : 0;
  for (size_t i = 0; i < modules->count && wanted.count != 0; i++) {
    struct ct_module *module = &modules->items[i];
    if (module->loaded && module->plan != NULL && module->installed.gates != NULL &&
        module->installed.first_fn + module->plan->hooked <= budget->function_count) {
      switch_module(budget, &remote, module, &wanted);
    }
  }
  free(wanted.functions);
  ct_budget_take_counters_back(session, &remote);
}

void
ct_budget_switch_patches(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns,
                         size_t count, double used_ns, uint64_t now)
{
  struct session_budget *budget = session->budget;
  struct ct_diag diag = {""};
  if (session->node.tree != NULL || session->target.is_stopped ||
      !is_worth_a_stop(session, costs, allowed_ns, count, now)) {
    return;
  }
  budget->stopped_ns = now;
  if (session_stop_threads(session, &diag) != 0) {
    return; /* the next time */
  }
  ct_budget_cold_before(&budget->cold, budget->sorted, count, costs, budget->points, used_ns);
  budget->cold.goes_on = budget->cold.goes_on && budget->last_steps < CT_BUDGET_STEADY_STEPS;
  switch_modules(session, count);
  session_resume_threads(session);
}

/* ---- looks ---- */

static bool
switch_for_look(struct ct_session *session, size_t count)
{
  struct ct_budget_look_cost *cost = &session->budget->look_cost;
  struct ct_diag diag = {""};
  uint64_t ended = session->target.process.ended_calls, cpu = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  if (session_stop_threads(session, &diag) != 0) {
    return false;
  }
  switch_modules(session, count);
  cost->pause_ns += session_resume_threads(session);
  cost->ended_calls += session->target.process.ended_calls - ended;
  cost->recorder_ns += ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return true;
}

/* is_seen: as it is looked at; or not at all. True where one of them has no patch, or is to have none. */
static bool
set_looked(struct ct_session *session, size_t count, bool is_seen)
{
  struct session_budget *budget = session->budget;
  bool needs_stop = false;
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = budget->sorted[i];
    if (function->is_looked) {
      ct_budget_put_levels(session, function, is_seen ? ct_budget_seen_to_look(function) : CT_SEEN_OUT);
      needs_stop |= function->is_unpatched;
    }
    function->is_looked &= is_seen;
  }
  ct_budget_write_levels(session);
  return needs_stop;
}

void
ct_budget_begin_look(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns, size_t count,
                     double processors, uint64_t now)
{
  struct session_budget *budget = session->budget;
  budget->look_cost = (struct ct_budget_look_cost){0};
  budget->processors = processors;
  if (session->target.is_stopped || budget->stopped_ns == now ||
      ct_budget_looks_choose(&budget->looks, budget->sorted, count, costs, allowed_ns, processors, now) == 0) {
    return;
  }
  budget->is_looking = !set_looked(session, count, true) || switch_for_look(session, count);
  if (!budget->is_looking) {
    set_looked(session, count, false);
  }
}

void
ct_budget_end_look(struct ct_session *session, const struct ct_budget_costs *costs, double allowed_ns, size_t count,
                   double used_ns, uint64_t now)
{
  struct session_budget *budget = session->budget;
  bool needs_stop = false;
  budget->is_looking = false;
  ct_budget_looks_end(&budget->looks, budget->sorted, count, costs, allowed_ns, used_ns, now);
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = budget->sorted[i];
    if (!function->is_looked) {
      continue;
    }
    function->is_looked = false;
    ct_budget_put_levels(session, function, function->wanted);
    if (function->wanted != CT_SEEN_OUT) {
      ct_budget_take_step(budget, function, now);
    }
    needs_stop |= wants_out(function) && !function->is_unpatched;
  }
  ct_budget_write_levels(session);
  if (needs_stop && session->node.tree == NULL && !session->target.is_stopped) {
    switch_for_look(session, count); /* should that fail, they go with the next stop */
  }
  ct_budget_looks_pace(&budget->looks, &budget->look_cost, session->options.budget, budget->processors);
}
