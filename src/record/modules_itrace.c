/* SPDX-License-Identifier: MIT */
/* What calls that are recorded as instructions need to know of the hooks in a recording's modules. */
#include "record/modules.h"

#include <stdlib.h>

/* The entry of the function goes to this trampoline now. */
static bool
is_active(const struct ct_module *module, size_t which, const struct ct_patch *patch)
{
  return !ct_patch_is_relay(patch) && (module->active == NULL ? which == 1 : module->active[patch->function] == which);
}

static const struct ct_patch *
patch_at(const struct ct_installed *installed, uint64_t address)
{
  size_t low = 0, high = installed->patch_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (installed->patches[middle].address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < installed->patch_count && installed->patches[low].address == address ? &installed->patches[low] : NULL;
}

bool
ct_modules_patch_at(const struct ct_modules *modules, uint64_t address, struct ct_patch *out)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    for (size_t which = 1; module->loaded && which < module->layer_count + 2; which++) {
      const struct ct_patch *patch = patch_at(ct_module_installed(module, which), address);
      if (patch != NULL && is_active(module, which, patch)) {
        *out = *patch;
        return true;
      }
    }
  }
  return false;
}

static int
compare(const void *a, const void *b)
{
  const struct ct_patch *left = a, *right = b;
  return left->address < right->address ? -1 : left->address > right->address;
}

/* Unwinders, copies of stacks, forks and the like need their hooks, and so do functions that look at their slots. */
static bool
only_records(const struct ct_module *module, const struct ct_patch *patch)
{
  return patch->kind == 0 && ct_requested_for_none(&module->plan->functions[patch->function]) == CT_REQUESTED_NONE;
}

struct ct_patch *
ct_modules_patches(const struct ct_modules *modules, size_t *count)
{
  size_t capacity = 0, used = 0;
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    for (size_t which = 1; module->loaded && which < module->layer_count + 2; which++) {
      capacity += ct_module_installed(module, which)->patch_count;
    }
  }
  struct ct_patch *all = malloc((capacity + 1) * sizeof(*all));
  for (size_t i = 0; all != NULL && i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    for (size_t which = 1; module->loaded && module->plan != NULL && which < module->layer_count + 2; which++) {
      const struct ct_installed *installed = ct_module_installed(module, which);
      for (size_t k = 0; k < installed->patch_count; k++) {
        if (is_active(module, which, &installed->patches[k]) && only_records(module, &installed->patches[k])) {
          all[used++] = installed->patches[k];
        }
      }
    }
  }
  if (all != NULL) {
    qsort(all, used, sizeof(*all), compare);
  }
  *count = all != NULL ? used : 0;
  return all;
}

size_t
ct_modules_probed(const struct ct_modules *modules, uint32_t probe)
{
  size_t count = 0;
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    for (size_t f = 0; module->modes != NULL && module->plan != NULL && f < module->plan->count; f++) {
      size_t which = module->active != NULL ? module->active[f] : 1;
      const uint16_t *modes = which == 0 ? NULL : which == 1 ? module->modes : module->layers[which - 2].modes;
      count += modes != NULL && modes[f] >> CT_SORT_PROBE_SHIFT == probe + 1;
    }
  }
  return count;
}

const char *
ct_modules_name(const struct ct_modules *modules, uint32_t fn)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    if (module->known_plan == NULL || fn < module->first_fn || fn - module->first_fn >= module->known_plan->count) {
      continue;
    }
    uint32_t id = module->first_fn;
    for (size_t f = 0; f < module->known_plan->count; f++) {
      if (module->known_plan->functions[f].refusal == CT_REFUSED_NOT && id++ == fn) {
        return module->known_plan->functions[f].name;
      }
    }
  }
  return NULL;
}
