/* SPDX-License-Identifier: MIT */
/*
 * Hooks that come and go in a process that runs; see modules.h.
 *
 * Each function has an entry, patched or not, and perhaps several trampolines: in what was first installed for the
 * module, and in layers, one for each change that needed trampolines not made before. A change makes what is missing,
 * then switches entries: to another trampoline, or back to the function's own bytes. Trampolines stay: frames may
 * return through them, and what comes again needs no new one. A layer into which nothing could be put has no region.
 */
#include "record/modules.h"

#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 4096

static bool
can_change(const struct ct_module *module)
{
  return module->loaded && module->plan != NULL && module->why_not == NULL && module->modes != NULL;
}

int
ct_module_filter(struct ct_modules *modules, const struct ct_module *module, bool is_program,
                 struct ct_filter_result *filter_result)
{
  ct_select_details_on(modules->selection, modules->details_on); /* it is other processes' too */
  return ct_select_filter(modules->selection, modules->exclude, module->plan, module->path, is_program, filter_result);
}

struct ct_filter_result *
ct_modules_filter(struct ct_modules *modules, int pid)
{
  const struct ct_plan *program = ct_modules_program(modules, pid);
  struct ct_filter_result *filter_results = calloc(modules->count + 1, sizeof(*filter_results));
  int code = filter_results == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    const struct ct_module *module = &modules->items[i];
    if (can_change(module)) {
      code = ct_select_count(modules->selection, module->plan, module->path, module->plan == program);
    }
  }
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    const struct ct_module *module = &modules->items[i];
    if (can_change(module)) {
      code = ct_module_filter(modules, module, module->plan == program, &filter_results[i]);
    }
  }
  if (code != 0) {
    ct_modules_filter_results_free(modules, filter_results);
    return NULL;
  }
  return filter_results;
}

void
ct_modules_filter_results_free(struct ct_modules *modules, struct ct_filter_result *filter_results)
{
  for (size_t i = 0; filter_results != NULL && i < modules->count; i++) {
    ct_filter_result_free(&filter_results[i]);
  }
  free(filter_results);
}

static const uint16_t *
modes_of(const struct ct_module *module, size_t which)
{
  return which == 1 ? module->modes : module->layers[which - 2].modes;
}

/* Of what a function shall have (ct_planned_sort). */
static uint16_t
wanted_mode(const struct ct_module *module, const struct ct_filter_result *filter_result, size_t i)
{
  const struct ct_planned *planned = &module->plan->functions[i];
  return planned->refusal != CT_REFUSED_NOT ? 0 : ct_planned_sort(module->plan, filter_result, i);
}

/* The trampoline of a function for this mode, 0 when there is none yet. */
static size_t
find_trampoline(const struct ct_module *module, size_t i, uint16_t mode)
{
  for (size_t which = 1; which < module->layer_count + 2; which++) {
    if (modes_of(module, which)[i] == mode) {
      return which;
    }
  }
  return 0;
}

/* Nothing was changed before: what is in place is what was installed. */
static int
begin_active(struct ct_module *module)
{
  if (module->active != NULL) {
    return 0;
  }
  module->active = calloc(module->plan->count + 1, sizeof(*module->active));
  for (size_t i = 0; module->active != NULL && i < module->plan->count; i++) {
    module->active[i] = module->modes[i] != 0;
  }
  return module->active != NULL ? 0 : CT_ENOMEM;
}

/* It was tried, and failed for a reason that stays. */
static bool
cannot_be(const struct ct_module *module, size_t i)
{
  uint8_t install_refusal =
      module->installed.install_refusals != NULL ? module->installed.install_refusals[i] : CT_REFUSED_NOT;
  return install_refusal != CT_REFUSED_NOT && install_refusal != CT_REFUSED_BUSY &&
         !ct_refusal_by_user((enum ct_refusal)install_refusal);
}

/* What the new layer consists of: the trampolines that are wanted and not there. Their number. */
static size_t
choose_missing(const struct ct_module *module, const struct ct_filter_result *filter_result,
               struct ct_filter_result *missing)
{
  const struct ct_plan *plan = module->plan;
  size_t count = 0;
  *missing = (struct ct_filter_result){.requested_modes = malloc(plan->count + 1),
                                       .more = filter_result->more,
                                       .itrace = filter_result->itrace,
                                       .ruled = filter_result->ruled};
  for (size_t i = 0; missing->requested_modes != NULL && i < plan->count; i++) {
    uint16_t mode = wanted_mode(module, filter_result, i);
    bool is_missing = mode != 0 && !cannot_be(module, i) && find_trampoline(module, i, mode) == 0;
    missing->requested_modes[i] = is_missing ? ct_filter_result_mode(filter_result, i) : CT_REQUESTED_NONE;
    missing->excluded += plan->functions[i].refusal == CT_REFUSED_NOT && !is_missing;
    count += is_missing;
  }
  return count;
}

/* A layer into which nothing could be put: it only says why. The next one takes its place. */
static void
drop_empty_layer(struct ct_module *module)
{
  struct ct_layer *last = module->layer_count != 0 ? &module->layers[module->layer_count - 1] : NULL;
  if (last != NULL && last->installed.region == 0) {
    ct_installed_free(&last->installed);
    free(last->modes);
    module->layer_count--;
  }
}

static int
add_layer(struct ct_module *module, const struct ct_remote *remote, struct ct_agent_layout *layout,
          const struct ct_filter_result *missing, struct ct_diag *diag)
{
  const struct ct_plan *plan = module->plan;
  drop_empty_layer(module);
  if (module->layer_count == LAYERS_MAX) {
    return ct_fail(diag, CT_ERANGE, "%s has been changed too often in this session", module->path);
  }
  struct ct_layer *layers = reallocarray(module->layers, module->layer_count + 1, sizeof(*layers));
  if (layers == NULL) {
    return CT_ENOMEM;
  }
  module->layers = layers;
  const struct ct_installed **others = calloc(module->layer_count + 1, sizeof(*others));
  struct ct_layer layer = {.modes = calloc(plan->count + 1, sizeof(uint16_t))};
  int code = others == NULL || layer.modes == NULL ? CT_ENOMEM : 0;
  for (size_t which = 1; which < module->layer_count + 2 && code == 0; which++) {
    others[which - 1] = ct_module_installed(module, which);
  }
  if (code == 0) {
    code = ct_install_layer(remote, layout, plan, missing, module->base, module->installed.first_fn, others,
                            module->layer_count + 1, &layer.installed, diag);
  }
  free(others);
  if (code != 0) {
    free(layer.modes);
    return code;
  }
  for (size_t i = 0; i < plan->count; i++) {
    uint8_t install_refusal =
        layer.installed.install_refusals == NULL ? CT_REFUSED_NOT : layer.installed.install_refusals[i];
    enum ct_requested_mode requested = ct_filter_result_mode(missing, i);
    bool there = plan->functions[i].refusal == CT_REFUSED_NOT && requested != CT_REQUESTED_NONE &&
                 (install_refusal == CT_REFUSED_NOT || ct_refusal_by_user(install_refusal));
    layer.modes[i] = there ? ct_planned_sort(plan, missing, i) : 0;
  }
  module->layers[module->layer_count++] = layer;
  return 0;
}

/* The newest layer has none for it, since a thread stood in its first bytes. */
static bool
was_busy(const struct ct_module *module, size_t i)
{
  const uint8_t *install_refusals =
      module->layer_count != 0 ? module->layers[module->layer_count - 1].installed.install_refusals : NULL;
  return install_refusals != NULL && install_refusals[i] == CT_REFUSED_BUSY;
}

/* Which function goes from which trampoline to which. Returns how many had a thread in their first bytes. */
static size_t
switch_all(struct ct_module *module, const struct ct_filter_result *filter_result, const struct ct_remote *remote,
           int *code)
{
  const struct ct_plan *plan = module->plan;
  size_t busy = 0;
  uint16_t *next = calloc(plan->count + 1, sizeof(*next));
  uint8_t *switches = malloc(plan->count + 1);
  *code = next == NULL || switches == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < plan->count && *code == 0; i++) {
    uint16_t mode = wanted_mode(module, filter_result, i);
    bool is_there = module->active[i] != 0 && modes_of(module, module->active[i])[i] == mode;
    next[i] = mode == 0 ? 0 : is_there ? module->active[i] : (uint16_t)find_trampoline(module, i, mode);
    busy += mode != 0 && next[i] == 0 && was_busy(module, i);
  }
  for (size_t which = 1; which < module->layer_count + 2 && *code == 0; which++) {
    bool any = false;
    for (size_t i = 0; i < plan->count; i++) {
      bool off = module->active[i] == which && next[i] == 0;
      bool on = next[i] == which && module->active[i] != which;
      switches[i] = off ? CT_SWITCH_OFF : on ? CT_SWITCH_ON : CT_SWITCH_LEAVE;
      any |= off || on;
    }
    *code = any ? ct_install_switch(remote, ct_module_installed(module, which), switches) : 0;
    for (size_t i = 0; i < plan->count && *code == 0; i++) {
      if (switches[i] == CT_SWITCH_ON || switches[i] == CT_SWITCH_OFF) {
        module->active[i] = next[i];
      }
      busy += switches[i] == CT_SWITCH_BUSY;
    }
  }
  free(next);
  free(switches);
  return busy;
}

static void
reconcile(struct ct_modules *modules, const struct ct_module *module)
{
  ct_plans_lock(modules->plans);
  ct_select_reconcile(modules->selection, module->plan, module->path, module->installed.install_refusals);
  ct_plans_unlock(modules->plans);
}

void
ct_modules_reconcile(struct ct_modules *modules)
{
  for (size_t i = 0; i < modules->count; i++) {
    if (can_change(&modules->items[i])) {
      reconcile(modules, &modules->items[i]);
    }
  }
}

/* Why each function is not hooked, as if it had been installed so; and how many are. */
static int
summarise(struct ct_modules *modules, struct ct_module *module, const struct ct_filter_result *filter_result)
{
  const struct ct_plan *plan = module->plan;
  if (module->installed.install_refusals == NULL) {
    module->installed.install_refusals = calloc(plan->count + 1, 1);
    if (module->installed.install_refusals == NULL) {
      return CT_ENOMEM;
    }
  }
  memcpy(module->refused, plan->refused, sizeof(module->refused));
  module->hooked = 0;
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].refusal != CT_REFUSED_NOT) {
      continue;
    }
    enum ct_requested_mode requested = ct_filter_result_mode(filter_result, i);
    uint8_t install_refusal = CT_REFUSED_NOT;
    if (cannot_be(module, i)) {
      install_refusal = module->installed.install_refusals[i];
    } else if (!ct_requested_has_event(requested)) {
      install_refusal = (uint8_t)ct_filter_result_reason(filter_result, i);
    } else if (module->active[i] == 0) {
      uint8_t before =
          module->layer_count != 0 && module->layers[module->layer_count - 1].installed.install_refusals != NULL
              ? module->layers[module->layer_count - 1].installed.install_refusals[i]
              : CT_REFUSED_NOT;
      install_refusal = before != CT_REFUSED_NOT && !ct_refusal_by_user(before) ? before : CT_REFUSED_BUSY;
    }
    module->installed.install_refusals[i] = install_refusal;
    module->refused[install_refusal] += install_refusal != CT_REFUSED_NOT;
    module->hooked += install_refusal == CT_REFUSED_NOT;
  }
  reconcile(modules, module);
  return 0;
}

static int
change_module(struct ct_modules *modules, struct ct_module *module, const struct ct_remote *remote,
              struct ct_agent_layout *layout, const struct ct_filter_result *filter_result, size_t *busy,
              struct ct_diag *diag)
{
  struct ct_filter_result missing;
  int code = begin_active(module);
  if (code != 0) {
    return code;
  }
  if (choose_missing(module, filter_result, &missing) != 0) {
    code = add_layer(module, remote, layout, &missing, diag);
  } else if (missing.requested_modes == NULL) {
    code = CT_ENOMEM;
  }
  free(missing.requested_modes);
  if (code == 0) {
    *busy += switch_all(module, filter_result, remote, &code);
  }
  return code == 0 ? summarise(modules, module, filter_result) : code;
}

int
ct_modules_change(struct ct_modules *modules, const struct ct_remote *remote, struct ct_agent_layout *layout,
                  struct ct_filter_result *filter_results, size_t *busy, struct ct_diag *diag)
{
  int code = 0;
  *busy = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    if (can_change(&modules->items[i])) {
      code = change_module(modules, &modules->items[i], remote, layout, &filter_results[i], busy, diag);
    }
  }
  return code;
}
