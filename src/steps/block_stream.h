/* SPDX-License-Identifier: MIT */
/* A thread's steps as the stream that readers of blocks and register writes take: contrail export --to itrace. */
#ifndef CT_STEPS_BLOCK_STREAM_H
#define CT_STEPS_BLOCK_STREAM_H

#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

struct ct_steps_reader;

struct ct_steps_streamed {
  uint64_t blocks, bytes; /* written */
  char left_out[512];     /* what the stream cannot hold */
};

/*
 * Writes the steps of a thread's file to a new file. 0; as ct_steps_reader_open; CT_EEXIST and what else creating it
 * gives; CT_EIO, CT_ENOSPC, CT_ENOMEM: nothing is left of it.
 */
int ct_steps_stream_write(const char *file, const char *path, struct ct_steps_streamed *streamed, struct ct_diag *diag);

/* The same bit by bit, of a file that grows: what blocks the reader has by now. Failures of out are out's. */
struct ct_steps_stream;
int ct_steps_stream_create(struct ct_steps_reader *reader, FILE *out, struct ct_steps_stream **stream); /* CT_ENOMEM */
void ct_steps_stream_more(struct ct_steps_stream *stream);
void ct_steps_stream_end(struct ct_steps_stream *stream, struct ct_steps_streamed *streamed); /* nothing comes after */
void ct_steps_stream_free(struct ct_steps_stream *stream);                                    /* accepts NULL */

#endif
