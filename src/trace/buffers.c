/* SPDX-License-Identifier: MIT */
/*
 * The memory of blocks in progress.
 *
 * Pool: at most pool_limit sets of buffers exist. An encoder takes one with its first
 * event and keeps it until its thread ends, it is flushed for age, or another encoder
 * needs it: then the block of the encoder with the oldest last event is queued.
 *
 * Column extra: where calls have values it is what fills first, and a block of few ops costs more of each: so a set
 * whose column has been full gets a larger one, which it keeps. One in LARGE_EXTRA_SHARE may.
 */
#include "trace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

struct ct_buffers *
ct_buffers_new(void)
{
  struct ct_buffers *buffers = malloc(sizeof(*buffers));
  if (buffers != NULL) {
    buffers->owner = NULL;
    buffers->near = NULL;
    buffers->extra = buffers->small_extra;
    buffers->extra_bytes = sizeof(buffers->small_extra);
  }
  return buffers;
}

void
ct_buffers_free(struct ct_buffers *buffers)
{
  if (buffers != NULL && buffers->extra != buffers->small_extra) {
    free(buffers->extra);
  }
  if (buffers != NULL) {
    free(buffers->near);
  }
  free(buffers);
}

uint64_t *
ct_buffers_near(struct ct_buffers *buffers)
{
  if (buffers->near == NULL) {
    buffers->near = malloc(CT_NEAR_ENTRIES * sizeof(*buffers->near));
  }
  if (buffers->near != NULL) {
    memset(buffers->near, 0, CT_NEAR_ENTRIES * sizeof(*buffers->near));
  }
  return buffers->near;
}

void
ct_buffers_grow_extra(struct ct_trace_writer *writer, struct ct_buffers *buffers)
{
  if (buffers->extra_bytes == LARGE_EXTRA_BYTES || writer->large_extras > writer->pool_limit / LARGE_EXTRA_SHARE) {
    return;
  }
  uint8_t *large = malloc(LARGE_EXTRA_BYTES);
  if (large != NULL) {
    buffers->extra = large;
    buffers->extra_bytes = LARGE_EXTRA_BYTES;
    writer->large_extras++;
  }
}

struct ct_buffers *
ct_buffers_acquire(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_buffers *oldest = NULL;
  for (uint32_t i = 0; i < writer->pool_count; i++) {
    struct ct_buffers *buffers = writer->pool[i];
    if (buffers->owner == NULL) {
      buffers->owner = encoder;
      return buffers;
    }
    if (oldest == NULL || buffers->owner->columns.last_tsc < oldest->owner->columns.last_tsc) {
      oldest = buffers;
    }
  }
  if (writer->pool_count < writer->pool_limit) {
    struct ct_buffers *buffers = ct_buffers_new();
    if (buffers != NULL) {
      buffers->owner = encoder;
      writer->pool[writer->pool_count++] = buffers;
      return buffers;
    }
    writer->pool_limit = writer->pool_count; /* make do with these */
  }
  ct_block_end(oldest->owner);
  ct_buffers_release(oldest->owner);
  oldest->owner = encoder;
  return oldest;
}

void
ct_buffers_release(struct ct_encoder *encoder)
{
  if (encoder->buffers == NULL) {
    return;
  }
  encoder->buffers->owner = NULL;
  encoder->buffers = NULL;
  encoder->columns.op = encoder->columns.op_limit = NULL;
}
