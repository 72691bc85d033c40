/* SPDX-License-Identifier: MIT */
/* Which functions of a recording's modules its rules are about. */
#include "record/modules.h"

struct watching {
  struct ct_modules *modules;
  const struct ct_plan *plan;
  uint32_t slot, fn; /* fn: the next id, of the first function with one from `at` on */
  size_t at;
  void (*watch)(struct ct_rules *rules, uint32_t slot, uint32_t fn);
};

static void
watch_function(void *context, size_t function)
{
  struct watching *watching = context;
  const struct ct_planned *functions = watching->plan->functions;
  if (function < watching->at) {
    return;
  }
  for (; watching->at < function; watching->at++) {
    watching->fn += functions[watching->at].refusal == CT_REFUSED_NOT;
  }
  if (functions[function].refusal == CT_REFUSED_NOT) {
    watching->watch(watching->modules->rules, watching->slot, watching->fn);
    watching->modules->watched[watching->slot]++;
  }
}

static int
watch_module(struct watching watching, const struct ct_module *module, bool is_program)
{
  watching.plan = module->plan;
  watching.fn = module->first_fn;
  return ct_select_each_watched(watching.modules->selection, watching.slot, module->plan, module->path, is_program,
                                watch_function, &watching);
}

int
ct_module_watch(struct ct_modules *modules, const struct ct_module *module, uint32_t slot, bool is_program)
{
  return watch_module((struct watching){.modules = modules, .slot = slot, .watch = ct_rules_watch}, module, is_program);
}

int
ct_modules_watch(struct ct_modules *modules, uint32_t slot, int pid)
{
  const struct ct_plan *program = ct_modules_program(modules, pid);
  const struct watching watching = {.modules = modules, .slot = slot, .watch = ct_rules_watch_late};
  int code = 0;
  modules->watched[slot] = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    if (modules->items[i].plan != NULL && modules->items[i].why_not == NULL) {
      code = watch_module(watching, &modules->items[i], modules->items[i].plan == program);
    }
  }
  return code;
}

/* Of the functions before `address`: how many. */
static size_t
functions_before(const struct ct_plan *plan, uint64_t address)
{
  size_t low = 0, high = plan->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (plan->functions[middle].address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

uint32_t
ct_modules_function_at(const struct ct_modules *modules, uint64_t address)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    if (!module->loaded || module->plan == NULL || module->why_not != NULL) {
      continue;
    }
    const struct ct_planned *functions = module->plan->functions;
    size_t at = functions_before(module->plan, address - module->base);
    if (at == module->plan->count || functions[at].address != address - module->base ||
        functions[at].refusal != CT_REFUSED_NOT) {
      continue;
    }
    uint32_t fn = module->first_fn;
    for (size_t f = 0; f < at; f++) {
      fn += functions[f].refusal == CT_REFUSED_NOT;
    }
    return fn;
  }
  return UINT32_MAX;
}
