/* SPDX-License-Identifier: MIT */
/*
 * What writer.c (directory, tables, manifest), block.c (blocks, buffers, files) and
 * encoder.c (the rare ops) share. Nothing outside src/trace includes this.
 */
#ifndef CT_TRACE_WRITER_INTERNAL_H
#define CT_TRACE_WRITER_INTERNAL_H

#include "trace/encoder.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <zstd.h>

#define OPEN_FILES_MAX   256u
#define FUNCTIONS_BUFFER (256u << 10)
#define FRAMES_AT_START  64u

/*
 * The columns of a block in progress. Those for times and ids are sized for common
 * blocks (2.25 and 1.25 bytes an op); a block that needs more ends earlier.
 */
#define DELTAS_BYTES (72u << 10)
#define IDS_BYTES    (40u << 10)
#define EXTRA_BYTES  (16u << 10)
#define COLUMN_SLACK 16u /* the hot path stores a few bytes more than it keeps */

struct ct_buffers {
  struct ct_encoder *owner; /* NULL: free */
  uint32_t prediction[CT_PREDICTION_ENTRIES];
  uint8_t ops[CT_BLOCK_OPS_MAX];
  uint8_t deltas[DELTAS_BYTES + COLUMN_SLACK];
  uint8_t ids[IDS_BYTES + COLUMN_SLACK];
  uint8_t extra[EXTRA_BYTES];
  uint8_t open[CT_OPEN_BYTES_MAX];
};

struct ct_trace_writer {
  char *path;
  int dir_fd;
  int error; /* the first one */
  struct ct_diag error_diag;

  struct ct_encoder **encoders;
  uint32_t encoder_count, encoder_capacity;

  struct ct_buffers **pool; /* pool_count exist, of at most pool_limit */
  uint32_t pool_count, pool_limit;

  struct ct_encoder *open_files[OPEN_FILES_MAX];
  uint32_t open_count, open_limit;
  uint64_t stamp;

  ZSTD_CCtx *compressor;
  uint8_t *block; /* where a block is put together, block_capacity bytes */
  size_t block_capacity;

  int functions_fd;
  char *functions; /* lines not yet written */
  size_t functions_fill;
  uint64_t functions_bytes; /* in the file, whole lines */
  uint64_t manifest_bytes;
  uint64_t threads_bytes;
};

/* Keeps the first error; returns the one kept. */
int ct_writer_fail(struct ct_trace_writer *writer, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* All of it, at an offset, through interruptions; on failure errno is set and *written says how far it got. */
bool ct_writer_write_at(int fd, const void *data, size_t size, uint64_t offset, size_t *written);

/* block.c */
size_t ct_block_capacity(void);
/* Buffers of a free or the least recently used encoder; never NULL. */
struct ct_buffers *ct_buffers_acquire(struct ct_encoder *encoder);
void ct_buffers_release(struct ct_encoder *encoder);
/* Begins a block for an event at tsc; the encoder has buffers. */
void ct_block_begin(struct ct_encoder *encoder, uint64_t tsc);
/* Writes the block in progress out, if it has an op, and leaves the encoder without one. It keeps its buffers. */
void ct_block_end(struct ct_encoder *encoder);
/* Ops that the buffers still hold for certain. */
uint32_t ct_block_room(const struct ct_encoder *encoder);
/* Creates the thread's directory and file with its header. */
int ct_thread_file_create(struct ct_encoder *encoder);
void ct_thread_file_close(struct ct_encoder *encoder);

#endif
