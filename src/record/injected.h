/* SPDX-License-Identifier: MIT */
/*
 * One process image (from an exec to the next, or the end): the ring shared with it and the agent placed in it.
 */
#ifndef CT_RECORD_INJECTED_H
#define CT_RECORD_INJECTED_H

#include "hook/install.h"
#include "process/process.h"
#include "ring/layout.h"

struct ct_injected_options {
  uint64_t ring_bytes;   /* of all segments together */
  uint64_t detail_bytes; /* of those of the detail lane; 0: there is none */
  struct ct_detail_form detail;
  bool detail_always;     /* all of it is written */
  bool has_gates;         /* hooks have gates, threads have counters: there is a budget ... */
  uint32_t first_counted; /* ... and these are of functions from this id on */
  bool lossless;
  bool no_stores;        /* no stack has a return store: enters only */
  bool running;          /* the process is not at its beginning */
  bool int3;             /* SIGTRAP is handled by the agent, for hooks by int3 */
  bool follow;           /* children ask to be recorded too */
  uint32_t task_share;   /* how many of the user's processes and threads (RLIMIT_NPROC) are contrail's; 0: not known */
  uint32_t tasks_raised; /* by so much the soft limit has been raised for them ... */
  uint64_t task_limit;   /* ... to that */
  bool no_crash; /* fatal signals are left alone (a runtime that asks the kernel itself what their handlers are) */
};

struct ct_injected {
  struct ct_ring_header *ring; /* our mapping of the memfd */
  size_t ring_bytes;
  uint64_t at;                /* where our mappings were to lie */
  struct ct_ring_parts parts; /* of that; what the header says of them is for the target */
  struct ct_agent_layout layout;
};

/*
 * Puts ring and agent into a process that is stopped. sp: the main thread's stack pointer, 0 when it is not known.
 * Nothing is hooked yet; the caller sets gs of all threads to layout.page_lookup, so that their first hook registers
 * them. On failure the process is as it was, apart from a few unused mappings.
 */
int ct_injected_create(const struct ct_remote *remote, uint64_t sp, const struct ct_injected_options *options,
                       struct ct_injected *image, struct ct_diag *diag);
/*
 * A forked child, stopped, still has its parent's ring: it gets one of its own in the same place, not larger than the
 * old one, and from then on it is the process that the image is of. image->layout is that of the parent's image, a copy
 * of its own; page: the address of the handshake page in which it waits, 0: not known. diag must not be NULL.
 */
int ct_injected_adopt(const struct ct_remote *remote, const struct ct_injected_options *options, uint64_t page,
                      struct ct_injected *image, struct ct_diag *diag);
/* D, of every image. */
int64_t ct_injected_store_delta(void);
/* Gives our mapping of the ring back. */
void ct_injected_free(struct ct_injected *image);

/* ct_remote over ptrace, for a process that is stopped after its exec. */
struct ct_remote ct_injected_remote(struct ct_process *process);

#endif
