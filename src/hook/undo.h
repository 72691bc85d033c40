/* SPDX-License-Identifier: MIT */
/*
 * Taking everything out of a process again: what a session of ours put into it, or one that died. All that is needed
 * for it lies in the process. See undo.c.
 */
#ifndef CT_HOOK_UNDO_H
#define CT_HOOK_UNDO_H

#include "process/freeze.h"
#include "ring/layout.h"

/* An image of ours in a process. */
struct ct_found {
  uint64_t ring, ring_bytes;     /* its mapping in the process */
  struct ct_ring_header *header; /* a copy */
  int descriptor;                /* of the memfd, should it be open in the process and not mapped: ring is 0 then */
};

struct ct_undone {
  size_t patches; /* taken back */
  size_t strange; /* not: somebody else has written there since */
  size_t frames;  /* return addresses put back on stacks */
  size_t threads;
  uint64_t pause_ns; /* how long the process was held, the longest time */
  bool kept;         /* a signal handler will go on in our code: that stays mapped, out of use */
};

/*
 * Looks for an image of ours in the process. 0; CT_ENOENT: none; CT_EUNSUPPORTED: one of another version of contrail.
 * found goes to ct_found_free.
 */
int ct_found_in(const struct ct_process *process, struct ct_found *found, struct ct_diag *diag);
void ct_found_free(struct ct_found *found);
/* True when the controller of the image lives; its id is in found->header->controller_pid. One that has just been
 * killed is waited for. */
bool ct_found_is_in_use(const struct ct_found *found);

/*
 * Takes the image out. frozen: of ct_process_freeze; it is held on return as well, unless an error says otherwise
 * (CT_ETIMEOUT, CT_ESRCH: it is not held then). In between the process may run for some moments, so that threads leave
 * our code. For up to deadline_ms.
 */
int ct_undo(struct ct_frozen *frozen, const struct ct_found *found, int deadline_ms, struct ct_undone *undone,
            struct ct_diag *diag);

#endif
