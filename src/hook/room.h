/* SPDX-License-Identifier: MIT */
/* Room in the target's address space: regions near a module, and stubs where a punned jump points. */
#ifndef CT_HOOK_ROOM_H
#define CT_HOOK_ROOM_H

#include "hook/install.h"

#define CT_ROOM_UNIT        (1ull << CT_TABLE_SHIFT)
#define CT_STUB_BYTES       14                  /* jmp *0(%rip), and the address */
#define CT_STUB_PAGES_BYTES (2 * CT_PAGE_BYTES) /* so that a stub can begin at any byte of the first */

/*
 * Notes in the process that the mapping at start is about to be made, or taken away, so that it is found should we be
 * killed before anything else tells of it; bytes 0: no more.
 */
int ct_room_announce(const struct ct_remote *remote, const struct ct_agent_place *place, enum ct_pending_kind kind,
                     uint64_t start, uint64_t bytes);

/* Maps size bytes, readable and executable, within reach of [lo, hi), aligned to CT_ROOM_UNIT. Announced. */
int ct_room_region(const struct ct_remote *remote, const struct ct_agent_place *place, uint64_t lo, uint64_t hi,
                   uint64_t size, uint64_t *region, struct ct_diag *diag);

/*
 * Finds CT_STUB_BYTES that begin in [lo, hi), on pages mapped for stubs before or, *new_pages then being their address
 * (else 0), now. Owner (not 0) names whom they belong to. CT_ERANGE when something else lies there.
 */
int ct_room_stub(const struct ct_remote *remote, struct ct_agent_place *place, uint32_t owner, uint64_t lo, uint64_t hi,
                 uint64_t *address, uint64_t *new_pages);
void ct_room_free_stubs(struct ct_agent_place *place, uint32_t owner);

#endif
