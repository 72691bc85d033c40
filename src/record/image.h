/* SPDX-License-Identifier: MIT */
/*
 * One process image (from an exec to the next, or the end): the ring shared with it and the agent placed in it.
 */
#ifndef CT_RECORD_IMAGE_H
#define CT_RECORD_IMAGE_H

#include "hook/install.h"
#include "process/process.h"
#include "ring/layout.h"

struct ct_image_options {
  uint64_t ring_bytes; /* of all segments together */
  bool lossless;
  bool no_stores; /* no stack has a return store: enters only */
  bool int3;      /* SIGTRAP is handled by the agent, for hooks by int3 */
};

struct ct_image {
  struct ct_process *process;
  struct ct_ring_header *ring; /* our mapping of the memfd */
  size_t ring_bytes;
  struct ct_agent_place place;
};

/*
 * Puts ring and agent into a process that is stopped behind its exec, and parks its gs so that the first hook registers
 * the thread. Nothing is hooked yet. On failure the process is as it was, apart from a few unused mappings.
 */
int ct_image_create(struct ct_process *process, const struct ct_image_options *options, struct ct_image *image,
                    struct ct_diag *diag);
/* Gives our mapping of the ring back. */
void ct_image_free(struct ct_image *image);

/* ct_remote over ptrace, for a stopped process. */
struct ct_remote ct_image_remote(struct ct_image *image);

#endif
