/* SPDX-License-Identifier: MIT */
/*
 * Taking everything out of a process again: what a session of ours put into it, or one that died. All that is needed
 * for it lies in the process. See undo.c.
 */
#ifndef CT_HOOK_UNDO_H
#define CT_HOOK_UNDO_H

#include "process/stop.h"
#include "ring/layout.h"

/* An image of ours in a process. */
struct ct_detection {
  uint64_t ring, ring_bytes;     /* its mapping in the process */
  struct ct_ring_header *header; /* a copy */
  int descriptor;                /* of the memfd, should it be open in the process and not mapped: ring is 0 then */
};

struct ct_undone {
  size_t patches; /* taken back */
  size_t strange; /* not: somebody else has written there since */
  size_t frames;  /* return addresses put back on stacks */
  size_t threads;
  uint64_t pause_ns; /* how long the process was stopped, the longest time */
  bool kept;         /* a signal handler will go on in our code: that stays mapped, out of use */
  bool is_filtered;  /* kept, since no system call may be made in its name (ct_stopped_may_call) */
};

/*
 * Looks for an image of ours in the process. 0; CT_ENOENT: none; CT_EUNSUPPORTED: one of another version of contrail.
 * found goes to ct_detection_free.
 */
int ct_detect(const struct ct_process *process, struct ct_detection *found, struct ct_diag *diag);
void ct_detection_free(struct ct_detection *found);
/* True when the controller of the image lives; its id is in found->header->controller_pid. One that has just been
 * killed is waited for. */
bool ct_detection_is_in_use(const struct ct_detection *found);

/* Who waits for the hooks to be out. */
struct ct_undo_wait {
  /* Called at most once, with the process stopped: patches are taken back, all but those of functions that are answered
   * for unwinders, and true return addresses are in their return-address slots. */
  void (*out)(void *context);
  void (*failed)(
      void *context); /* called by whoever could not begin with that, or not end it; NULL: nobody is notified */
  void *context;
  /* Not 0: of a thread that waits in our code for it to be gone, the address of its struct ct_leave_frame. It is sent
   * there when nobody else is in our code, or when that has been waited for in vain. */
  uint64_t frame;
};

/*
 * Takes the image out. stopped: of ct_process_stop; it is stopped on return as well, unless an error says otherwise
 * (CT_ETIMEOUT, CT_ESRCH: it is not stopped then). In between the process may run for some moments, so that threads
 * leave our code. For up to deadline_ms. wait: NULL when nobody does.
 */
int ct_undo(struct ct_stopped *stopped, const struct ct_detection *found, int deadline_ms,
            const struct ct_undo_wait *wait, struct ct_undone *undone, struct ct_diag *diag);

#endif
