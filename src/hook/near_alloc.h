/* SPDX-License-Identifier: MIT */
/* Memory in the target's address space: regions near a module, and stubs where a punned jump points. */
#ifndef CT_HOOK_NEAR_ALLOC_H
#define CT_HOOK_NEAR_ALLOC_H

#include "hook/install.h"
#include "x86/patch.h"

#define CT_NEAR_UNIT (1ull << CT_TABLE_SHIFT)

/*
 * Notes in the process that the mapping at start is about to be made, or taken away, so that it is found should we be
 * killed before anything else refers to it; bytes 0: no more.
 */
int ct_near_announce(const struct ct_remote *remote, const struct ct_agent_layout *layout, enum ct_pending_kind kind,
                     uint64_t start, uint64_t bytes);

/* Maps size bytes, readable and executable, within reach of [lo, hi), aligned to CT_NEAR_UNIT. Announced. */
int ct_near_alloc_region(const struct ct_remote *remote, const struct ct_agent_layout *layout, uint64_t lo, uint64_t hi,
                         uint64_t size, uint64_t *region, struct ct_diag *diag);

/*
 * Finds CT_STUB_BYTES that begin in [lo, hi), on pages mapped for stubs before or, *new_pages then being their address
 * (else 0), now. Owner (not 0) names whom they belong to. CT_ERANGE when something else lies there; CT_ENOSPC when
 * there are no such pages and none may be mapped.
 */
int ct_near_alloc_stub(const struct ct_remote *remote, struct ct_agent_layout *layout, uint32_t owner, uint64_t lo,
                       uint64_t hi, bool may_map, uint64_t *address, uint64_t *new_pages);
void ct_near_free_stubs(struct ct_agent_layout *layout, uint32_t owner);

#endif
