/* SPDX-License-Identifier: MIT */
/* See frames.h. */
#include "record/frames.h"

#include "base/json.h"
#include "record/manifest.h"

#include <stdio.h>

void
ct_json_set_address(json_t *object, const char *key, uint64_t value)
{
  char text[32];
  snprintf(text, sizeof(text), "0x%llx", (unsigned long long)value);
  json_object_set_new(object, key, json_string(text));
}

const struct ct_module *
ct_module_at(const struct ct_modules *modules, uint64_t pc)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    if (module->loaded && module->plan != NULL && ct_elf_is_code(module->plan->elf, pc - module->base)) {
      return module;
    }
  }
  return NULL;
}

const struct ct_planned *
ct_function_at(const struct ct_plan *plan, uint64_t address)
{
  size_t low = 0, high = plan->count;
  while (low < high) { /* the first after address */
    size_t middle = (low + high) / 2;
    if (plan->functions[middle].address <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const struct ct_planned *function = low != 0 ? &plan->functions[low - 1] : NULL;
  return function != NULL && address - function->address < function->size ? function : NULL;
}

json_t *
ct_frame_json(const struct ct_modules *modules, struct ct_backtracer *tracer, const struct ct_stack_frame *frame)
{
  json_t *json = json_object();
  uint64_t inside = ct_frame_inside(frame), address;
  const struct ct_module *module = ct_module_at(modules, inside);
  ct_json_set_address(json, "pc", frame->pc);
  if (module == NULL) {
    const char *name = ct_backtrace_module(tracer, inside, &address);
    if (name != NULL) {
      json_object_set_new(json, "module", ct_json_string(name));
      ct_json_set_address(json, "offset", address + (frame->pc - inside));
    }
    return json;
  }
  const struct ct_planned *function = ct_function_at(module->plan, inside - module->base);
  json_object_set_new(json, "module", ct_json_string(module->path));
  ct_json_set_address(json, "offset", frame->pc - module->base);
  if (function != NULL && function->name != NULL) {
    json_object_set_new(json, "function", ct_json_string(function->name));
  }
  if (function != NULL) {
    json_object_set_new(json, "function_offset",
                        json_integer((json_int_t)(frame->pc - module->base - function->address)));
  }
  return json;
}
