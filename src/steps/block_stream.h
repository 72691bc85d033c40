/* SPDX-License-Identifier: MIT */
/* A thread's steps as the stream that readers of blocks and register writes take: contrail export --to itrace. */
#ifndef CT_STEPS_BLOCK_STREAM_H
#define CT_STEPS_BLOCK_STREAM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct ct_steps_streamed {
  uint64_t blocks, bytes; /* written */
  char left_out[512];     /* what the stream cannot hold */
};

/*
 * Writes the steps of a thread's file to a new file. 0; as ct_steps_reader_open; CT_EEXIST and what else creating it
 * gives; CT_EIO, CT_ENOSPC, CT_ENOMEM: nothing is left of it.
 */
int ct_steps_stream_write(const char *file, const char *path, struct ct_steps_streamed *streamed, struct ct_diag *diag);

#endif
