/* SPDX-License-Identifier: MIT */
/* Hooks of a process that is stopped are put in place, or taken out; see install.h. */
#include "hook/install_internal.h"

#include <stdlib.h>

bool
ct_install_is_occupied(const struct ct_remote *remote, uint64_t address, size_t bytes)
{
  size_t low = 0, high = remote->pc_count;
  while (low < high) { /* the first after address */
    size_t middle = low + (high - low) / 2;
    if (remote->pcs[middle] <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < remote->pc_count && remote->pcs[low] < address + bytes;
}

/* The patches of functions that are to be switched: of a large module few, and all else is done with these alone. */
static struct ct_patch *
find_patches(const struct ct_installed *installed, const uint8_t *functions, size_t *count)
{
  size_t capacity = 64;
  struct ct_patch *found = malloc(capacity * sizeof(*found));
  *count = 0;
  for (size_t i = 0; i < installed->patch_count && found != NULL; i++) {
    if (functions[installed->patches[i].function] == CT_SWITCH_LEAVE) {
      continue;
    }
    if (*count == capacity) {
      capacity *= 2;
      struct ct_patch *more = reallocarray(found, capacity, sizeof(*found));
      if (more == NULL) {
        free(found);
        return NULL;
      }
      found = more;
    }
    found[(*count)++] = installed->patches[i];
  }
  return found;
}

/* Which functions cannot be switched on now. */
static void
find_busy(const struct ct_remote *remote, const struct ct_patch *patches, size_t count, uint8_t *functions)
{
  for (size_t i = 0; i < count; i++) {
    const struct ct_patch *patch = &patches[i];
    if (functions[patch->function] == CT_SWITCH_ON && ct_install_is_occupied(remote, patch->address, patch->length)) {
      functions[patch->function] = CT_SWITCH_BUSY;
    }
  }
}

int
ct_install_switch(const struct ct_remote *remote, const struct ct_installed *installed, uint8_t *functions)
{
  size_t strange, count;
  struct ct_patch *patches = find_patches(installed, functions, &count);
  uint8_t *which = patches != NULL ? malloc(count + 1) : NULL;
  if (which == NULL) {
    free(patches);
    return CT_ENOMEM;
  }
  find_busy(remote, patches, count, functions);
  for (size_t i = 0; i < count; i++) { /* nobody comes by relays */
    which[i] = functions[patches[i].function] == CT_SWITCH_OFF && !ct_patch_is_relay(&patches[i]);
  }
  int code = ct_patches_write(remote->process, patches, which, count, true, &strange);
  for (size_t i = 0; i < count; i++) {
    which[i] = functions[patches[i].function] == CT_SWITCH_ON;
  }
  if (code == 0) {
    code = ct_patches_write(remote->process, patches, which, count, false, &strange);
  }
  free(patches);
  free(which);
  return code;
}
