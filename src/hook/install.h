/* SPDX-License-Identifier: MIT */
/*
 * Putting a plan into a process: a region of trampolines near the module, descriptors, the byte table, the
 * agent's list of regions, and last the jumps at the functions' entries.
 */
#ifndef CT_HOOK_INSTALL_H
#define CT_HOOK_INSTALL_H

#include "hook/plan.h"
#include "process/process.h"

/* How system calls are made in the target: by ptrace while it is stopped, or by a thread that waits in the agent. */
struct ct_remote {
  const struct ct_process *process;
  int (*syscall)(void *context, long number, const uint64_t args[6], int64_t *result);
  void *context;
};

/* The agent in one image of the target, as install_agent left it. Addresses are of the target. */
struct ct_agent_place {
  uint64_t base;
  uint64_t config;
  uint64_t page_off;
  uint64_t page_lookup;
  uint64_t table; /* byte table */
  uint64_t ring;  /* the memfd's mapping */
  uint64_t controls;
  int64_t store_delta;
  uint32_t region_count;
  struct ct_region_head head; /* what every region begins with */
};

struct ct_installed {
  uint32_t first_fn; /* ids first_fn .. first_fn + hooked - 1, in the order of the hooked functions of the plan */
  uint32_t hooked;
  size_t refused_late; /* planned, but the displacement did not reach from the region */
  uint64_t region;     /* address and bytes of the trampolines */
  uint64_t region_bytes;
  uint64_t install_ns;
};

/*
 * Installs the plan of the module whose load bias is base. Functions that could not be emitted become refused in *plan.
 */
int ct_install_module(const struct ct_remote *remote, struct ct_agent_place *place, struct ct_plan *plan, uint64_t base,
                      uint32_t first_fn, struct ct_installed *out, struct ct_diag *diag);

/* Marks the executable segments of a module in the table as kind (enum ct_text_kind). 0 or CT_EIO. */
int ct_install_mark_text(const struct ct_remote *remote, const struct ct_agent_place *place, const struct ct_plan *plan,
                         uint64_t base, uint8_t kind);

#endif
