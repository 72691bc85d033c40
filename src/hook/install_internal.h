/* SPDX-License-Identifier: MIT */
/* Inside hook/: what an installation puts into the process besides trampolines and patches. */
#ifndef CT_HOOK_INSTALL_INTERNAL_H
#define CT_HOOK_INSTALL_INTERNAL_H

#include "hook/install.h"

struct ct_install_region {
  uint64_t start, descs_at;
  size_t desc_count;
  int64_t store_delta;
};

/* Marks the addresses [lo, hi) in the table as kind (enum ct_text_kind). 0 or CT_EIO. */
int ct_install_mark_range(const struct ct_remote *remote, const struct ct_agent_layout *layout, uint64_t lo,
                          uint64_t hi, uint8_t kind);
/* See struct ct_region_frames. 0 or CT_EIO. */
int ct_install_write_frames(const struct ct_process *process, const struct ct_install_region *region,
                            enum ct_region_frames_kind kind);
/* Unmaps the region, which is announced as pending and in no list any more. 0 or why it may still be there. */
int ct_install_give_up_region(const struct ct_remote *remote, const struct ct_agent_layout *layout,
                              struct ct_installed *installed);
/* The agent shall answer this module's unwinder. More of them than there is room for go without. 0 or CT_EIO. */
int ct_install_publish_unwinder(const struct ct_remote *remote, struct ct_agent_layout *layout,
                                const struct ct_plan *plan, uint64_t base, uint32_t owner);

#endif
