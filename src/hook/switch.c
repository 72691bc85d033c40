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

/* Which functions cannot be switched on now. */
static void
find_busy(const struct ct_remote *remote, const struct ct_installed *installed, uint8_t *functions)
{
  for (size_t i = 0; i < installed->patch_count; i++) {
    const struct ct_patch *patch = &installed->patches[i];
    if (functions[patch->function] == CT_SWITCH_ON && ct_install_is_occupied(remote, patch->address, patch->length)) {
      functions[patch->function] = CT_SWITCH_BUSY;
    }
  }
}

int
ct_install_switch(const struct ct_remote *remote, const struct ct_installed *installed, uint8_t *functions)
{
  size_t strange;
  uint8_t *which = malloc(installed->patch_count + 1);
  if (which == NULL) {
    return CT_ENOMEM;
  }
  find_busy(remote, installed, functions);
  for (size_t i = 0; i < installed->patch_count; i++) {
    const struct ct_patch *patch = &installed->patches[i];
    which[i] = functions[patch->function] == CT_SWITCH_OFF && !ct_patch_is_relay(patch); /* nobody comes by these */
  }
  int code = ct_patches_write(remote->process, installed->patches, which, installed->patch_count, true, &strange);
  for (size_t i = 0; i < installed->patch_count; i++) {
    which[i] = functions[installed->patches[i].function] == CT_SWITCH_ON;
  }
  if (code == 0) {
    code = ct_patches_write(remote->process, installed->patches, which, installed->patch_count, false, &strange);
  }
  free(which);
  return code;
}
