/* SPDX-License-Identifier: MIT */
/* The layers of a module: what was first installed for it is number 1, then those of changes (change.c). */
#include "record/modules.h"

#include <stdlib.h>

#define SAMPLES 8 /* at patches, to find out whether a module's are in place */

void
ct_module_drop_layers(struct ct_module *module)
{
  for (size_t i = 0; i < module->layer_count; i++) {
    ct_installed_free(&module->layers[i].installed);
    free(module->layers[i].modes);
  }
  free(module->layers);
  free(module->active);
  free(module->modes);
  free(module->without_patch);
  module->without_patch = NULL;
  module->layers = NULL;
  module->layer_count = 0;
  module->active = NULL;
  module->modes = NULL;
}

const struct ct_installed *
ct_module_installed(const struct ct_module *module, size_t which)
{
  return which == 1 ? &module->installed : &module->layers[which - 2].installed;
}

/* The entry of the function goes to this trampoline now. */
static bool
is_active(const struct ct_module *module, size_t which, const struct ct_patch *patch)
{
  bool is_out = module->without_patch != NULL && module->without_patch[patch->function] != 0;
  return !is_out && !ct_patch_is_relay(patch) &&
         (module->active == NULL ? which == 1 : module->active[patch->function] == which);
}

bool
ct_module_holds(const struct ct_module *module, const struct ct_remote *remote)
{
  size_t sampled = 0;
  for (size_t which = 1; which < module->layer_count + 2; which++) {
    const struct ct_installed *installed = ct_module_installed(module, which);
    size_t stride = installed->patch_count / SAMPLES + 1, next = 0;
    for (size_t i = 0; i < installed->patch_count; i++) {
      if (i >= next && is_active(module, which, &installed->patches[i])) {
        if (ct_patch_holds(remote, &installed->patches[i])) {
          return true;
        }
        sampled++;
        next = i + stride;
      }
    }
  }
  return sampled == 0;
}
