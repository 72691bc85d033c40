/* SPDX-License-Identifier: MIT */
/* The modules of a forked child; see modules.h. */
#include "record/modules.h"

#include <stdlib.h>
#include <string.h>

static void *
copy_of(const void *bytes, size_t size, int *code)
{
  void *copy = bytes == NULL ? NULL : malloc(size + 1);
  if (copy != NULL) {
    memcpy(copy, bytes, size);
  } else if (bytes != NULL) {
    *code = CT_ENOMEM;
  }
  return copy;
}

static void
copy_installed(struct ct_installed *installed, size_t functions, int *code)
{
  installed->install_refusals = copy_of(installed->install_refusals, functions, code);
  installed->gates = copy_of(installed->gates, functions * sizeof(*installed->gates), code);
  installed->patches = copy_of(installed->patches, installed->patch_count * sizeof(*installed->patches), code);
}

static char *
copy_of_text(const char *text, int *code)
{
  return text == NULL ? NULL : copy_of(text, strlen(text) + 1, code);
}

int
ct_modules_clone(const struct ct_modules *modules, struct ct_modules *child)
{
  int code = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    const struct ct_module *from = &modules->items[i];
    struct ct_module *to = ct_modules_append(child);
    if (to == NULL) {
      return CT_ENOMEM;
    }
    *to = *from;
    to->path = copy_of_text(from->path, &code);
    to->build_id = copy_of_text(from->build_id, &code);
    to->why_not = copy_of_text(from->why_not, &code);
    size_t functions = from->plan != NULL ? from->plan->count : 0;
    copy_installed(&to->installed, functions, &code);
    to->modes = copy_of(from->modes, functions * sizeof(*from->modes), &code);
    to->active = copy_of(from->active, functions * sizeof(*from->active), &code);
    to->first_filter_result = (struct ct_filter_result){0};
    to->unpublished = false;
    to->layers = copy_of(from->layers, from->layer_count * sizeof(*from->layers), &code);
    to->layer_count = to->layers != NULL ? to->layer_count : 0;
    for (size_t n = 0; n < to->layer_count; n++) {
      copy_installed(&to->layers[n].installed, functions, &code);
      to->layers[n].modes = copy_of(to->layers[n].modes, functions * sizeof(*to->layers[n].modes), &code);
    }
    to->plan_ns = to->install_ns = 0;
    to->image = 0;
  }
  child->next_fn = modules->next_fn;
  return code;
}

static bool
has_a_patch(const struct ct_module *module, const struct ct_remote *remote)
{
  for (size_t i = 0; i < module->installed.patch_count; i++) {
    const struct ct_patch *patch = &module->installed.patches[i];
    uint8_t bytes[sizeof(patch->bytes)];
    if (ct_process_read(remote->process, patch->address, bytes, patch->length) == 0 &&
        memcmp(bytes, patch->bytes, patch->length) == 0) {
      return true;
    }
  }
  return false;
}

int
ct_modules_complete(struct ct_modules *modules, const struct ct_remote *remote, uint64_t since_ns)
{
  int code = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    struct ct_module *module = &modules->items[i];
    const struct ct_installed *installed = &module->installed;
    size_t strange;
    if (!module->loaded || module->changed_ns < since_ns || installed->patch_count == 0 || module->active != NULL) {
      continue;
    }
    if (has_a_patch(module, remote)) {
      code = ct_patches_write(remote->process, installed->patches, NULL, installed->patch_count, false, &strange);
      continue;
    }
    /* Its trampolines may be incomplete: nobody will ever come there. */
    free(module->why_not);
    module->why_not = strdup("the process was forked while it was being hooked");
    module->hooked = 0;
  }
  return code;
}
