/* SPDX-License-Identifier: MIT */
/*
 * Putting a plan into a process: a region of trampolines near the module, descriptors, the byte table, the
 * agent's list of regions, and last the jumps at the functions' entries.
 */
#ifndef CT_HOOK_INSTALL_H
#define CT_HOOK_INSTALL_H

#include "plan/plan.h"
#include "hook/text.h"
#include "process/process.h"

#include <stdbool.h>

/* How system calls are made in the target: by ptrace while it is stopped, or by a thread that waits in the agent. */
struct ct_remote {
  const struct ct_process *process;
  int (*syscall)(void *context, long number, const uint64_t args[6], int64_t *result);
  void *context;
  bool (*waits)(void *context); /* the thread in the agent has not given up; NULL: it cannot */
  const uint64_t *pcs; /* where threads stand while the process is stopped, sorted; NULL: none is in what is patched */
  size_t pc_count;
  uint64_t deadline_ns; /* of CLOCK_MONOTONIC; nothing more is put in then (CT_ETIMEOUT). 0: none */
  struct ct_mappings
      *mappings; /* the process's as they were a moment ago, to see where there is room. NULL: not known */
};

/* Does a thread stand in one of these bytes? */
bool ct_install_is_occupied(const struct ct_remote *remote, uint64_t address, size_t bytes);

/* Mapped where punned jumps point; see hook/near_alloc.c. */
struct ct_stub {
  uint64_t address;
  uint32_t owner; /* of the region it belongs to; free when 0 */
};

/* The agent in one image of the target, as install_agent left it. Addresses are of the target. */
struct ct_agent_layout {
  uint64_t base;
  uint64_t bytes; /* of the agent's mapping */
  uint64_t config;
  uint64_t page_off;
  uint64_t page_lookup;
  uint64_t table;  /* byte table */
  uint64_t stacks; /* struct ct_stack_map */
  uint64_t ring;   /* the memfd's mapping */
  uint64_t controls;
  int64_t store_delta;
  struct ct_detail_form detail; /* of hooks with detail */
  bool has_gates;               /* full hooks get gates; they begin counting where they can be counted ... */
  uint32_t first_counted;       /* ... which are the functions from this id on, as many as have counters by it: */
  uint32_t counter_blocks;      /* so many blocks of them has a thread (ring/counters.h) */
  uint64_t crash;               /* handler of fatal signals */
  uint64_t restorer;            /* what the agent's signal handlers return to */
  uint64_t scratch;             /* memory of the agent's for arguments of system calls: CT_SIGNAL_SCRATCH_BYTES */
  struct ct_region_head head;   /* what every region begins with */
  uint32_t region_count;        /* entries of the agent's list that have been in use */
  uint32_t region_used[CT_REGION_MAX]; /* the owner of each, 0: free */
  uint32_t unwinder_owner[CT_UNWINDER_MAX];
  uint32_t last_owner;  /* owners' names are free again when their module is removed; 0 is nobody's */
  uint64_t *stub_pages; /* mapped for stubs */
  size_t stub_page_count;
  struct ct_stub *stubs;
  size_t stub_count;
};

/* What was put into the process for a module. All zero: nothing. */
struct ct_installed {
  uint32_t first_fn; /* the k-th planned hook of the plan has the id first_fn + k, whether it could be put in or not */
  uint32_t hooked;
  uint8_t
      *install_refusals;    /* for each function of the plan, why it was not put in (enum ct_refusal); NULL: all were */
  size_t install_refused;   /* those that could not be put in; the others are excluded */
  uint64_t *gates;          /* for each function of the plan the address of its gate, 0: its hook has none.
                               NULL: none has */
  struct ct_patch *patches; /* sorted by address */
  size_t patch_count;
  uint64_t base;   /* load bias that it was made for */
  uint64_t region; /* address and bytes of the trampolines */
  uint64_t region_bytes;
  uint64_t trampoline_bytes; /* of the region, in use */
  uint64_t text_bytes;       /* of text that is the process's own since it was patched, in whole pages */
  uint32_t owner;            /* names what belongs to it in ct_agent_layout */
  uint64_t install_ns;
  bool unpatched; /* ct_install_patch is still to come */
};

/*
 * Installs what is selected of the plan of the module whose load bias is base; installed must be all zero. A function
 * that cannot be put in here (its bytes differ, something does not reach) is left out; it and those that are excluded
 * are noted in installed->install_refusals. On failure nothing is left in the process but marks in the table.
 *
 * Where the process is stopped (remote->pcs) nothing is patched yet. Whoever has stopped it calls ct_install_patch for
 * all modules: first for their guards (CT_PATCH_GUARD), then for the rest. So whenever we are killed no trampoline is
 * in use without them.
 */
int ct_install_module(const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_plan *plan,
                      const struct ct_filter_result *filter_result, uint64_t base, uint32_t first_fn,
                      struct ct_installed *installed, struct ct_diag *diag);

/* 0, CT_ENOMEM or CT_EIO. Does nothing where all patches are in place. */
int ct_install_patch(const struct ct_remote *remote, struct ct_installed *installed, bool guards_only);

/*
 * Trampolines for further hooks of a module that has others already (count of them), or for the same functions in other
 * modes; not patched in yet: ct_install_switch. Otherwise as ct_install_module.
 */
int ct_install_layer(const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_plan *plan,
                     const struct ct_filter_result *filter_result, uint64_t base, uint32_t first_fn,
                     const struct ct_installed *const *others, size_t count, struct ct_installed *installed,
                     struct ct_diag *diag);
/* What ct_install_switch does with a function. */
enum ct_switch { CT_SWITCH_LEAVE = 0, CT_SWITCH_ON, CT_SWITCH_OFF, CT_SWITCH_BUSY };
/*
 * Puts hooks of a module in place, or takes them out; the process is stopped. functions: enum ct_switch for each
 * function of the plan; ON becomes BUSY where a thread stands in the bytes to be changed. Only those that installed has
 * a trampoline for may be switched. 0, CT_ENOMEM or CT_EIO.
 */
int ct_install_switch(const struct ct_remote *remote, const struct ct_installed *installed, uint8_t *functions);

/*
 * The module is loaded again at the same address after it was gone: the trampolines are still there, the patches are
 * written anew. CT_EFORMAT when its bytes are not those that were patched.
 */
int ct_install_again(const struct ct_remote *remote, const struct ct_agent_layout *layout, const struct ct_plan *plan,
                     struct ct_installed *installed);

/* True when the patch is in place. */
bool ct_patch_holds(const struct ct_remote *remote, const struct ct_patch *patch);

/* The module is gone, and no thread can be in it: its trampolines are unmapped, entries in the agent's lists freed. */
void ct_install_remove(const struct ct_remote *remote, struct ct_agent_layout *layout, struct ct_installed *installed);

/* Frees the controller's part only. */
void ct_installed_free(struct ct_installed *installed);
void ct_agent_layout_free(struct ct_agent_layout *layout);

/* Marks the executable segments of a module in the table as kind (enum ct_text_kind). 0 or CT_EIO. */
int ct_install_mark_text(const struct ct_remote *remote, const struct ct_agent_layout *layout,
                         const struct ct_plan *plan, uint64_t base, uint8_t kind);

#endif
