/* SPDX-License-Identifier: MIT */
/*
 * Blocks on their way to the file: buffers from the pool, the open section, the
 * compression of the columns, and one write for each block.
 *
 * Pool: at most pool_limit sets of buffers exist. An encoder takes one with its first
 * event and keeps it until its thread ends, it is flushed for age, or another encoder
 * needs it: then the block of the encoder with the oldest last event is written out.
 *
 * Files: at most open_limit are open; the one written to longest ago is closed first.
 * Blocks are written at an offset that we keep, so reopening needs no seeking and
 * a block of which only a part could be written is cut off or written over.
 *
 * Failure: the first one stays in the writer and from then on blocks are dropped.
 */
#include "trace/writer_internal.h"

#include "trace/crc32c.h"
#include "trace/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t
ct_block_capacity(void)
{
  return sizeof(struct ct_block_header) + ZSTD_compressBound(CT_OPEN_BYTES_MAX) + ZSTD_compressBound(CT_BLOCK_OPS_MAX) +
         ZSTD_compressBound(IDS_BYTES) + ZSTD_compressBound(DELTAS_BYTES) + ZSTD_compressBound(EXTRA_BYTES);
}

/* ---- pool ---- */

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
    if (oldest == NULL || buffers->owner->last_tsc < oldest->owner->last_tsc)
      oldest = buffers;
  }
  if (writer->pool_count < writer->pool_limit) {
    struct ct_buffers *buffers = malloc(sizeof(*buffers));
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
  if (encoder->buffers == NULL)
    return;
  encoder->buffers->owner = NULL;
  encoder->buffers = NULL;
  encoder->op = encoder->op_limit = NULL;
}

/* ---- files ---- */

bool
ct_writer_write_at(int fd, const void *data, size_t size, uint64_t offset, size_t *written)
{
  const char *p = data;
  size_t done = 0;
  while (done < size) {
    ssize_t n = pwrite(fd, p + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n == 0)
      errno = ENOSPC;
    if (n <= 0)
      break;
    done += (size_t)n;
  }
  *written = done;
  return done == size;
}

void
ct_thread_file_close(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  if (encoder->fd < 0)
    return;
  for (uint32_t i = 0; i < writer->open_count; i++) {
    if (writer->open_files[i] == encoder) {
      writer->open_files[i] = writer->open_files[--writer->open_count];
      break;
    }
  }
  if (close(encoder->fd) != 0 && errno != EINTR)
    ct_writer_fail(writer, ct_err_from_errno(errno), "%s/%s%u/%s: %s", writer->path, CT_TRACE_THREAD_DIR,
                   encoder->index, CT_TRACE_INDEX, strerror(errno));
  encoder->fd = -1;
}

static bool
close_oldest_file(struct ct_trace_writer *writer)
{
  struct ct_encoder *oldest = NULL;
  for (uint32_t i = 0; i < writer->open_count; i++) {
    if (oldest == NULL || writer->open_files[i]->written_at < oldest->written_at)
      oldest = writer->open_files[i];
  }
  if (oldest == NULL)
    return false;
  ct_thread_file_close(oldest);
  return true;
}

static int
open_file(struct ct_encoder *encoder, int flags)
{
  struct ct_trace_writer *writer = encoder->writer;
  char name[64];
  snprintf(name, sizeof(name), "%s%u/%s", CT_TRACE_THREAD_DIR, encoder->index, CT_TRACE_INDEX);
  if (writer->open_count >= writer->open_limit)
    close_oldest_file(writer);
  int fd;
  do
    fd = openat(writer->dir_fd, name, O_WRONLY | O_CLOEXEC | flags, 0666);
  while (fd < 0 && (errno == EINTR || ((errno == EMFILE || errno == ENFILE) && close_oldest_file(writer))));
  if (fd < 0)
    return ct_writer_fail(writer, ct_err_from_errno(errno), "cannot open %s/%s: %s", writer->path, name,
                          strerror(errno));
  encoder->fd = fd;
  writer->open_files[writer->open_count++] = encoder;
  return CT_OK;
}

/* Appends to the thread's file all of it or nothing. */
static int
append(struct ct_encoder *encoder, const void *data, size_t size)
{
  struct ct_trace_writer *writer = encoder->writer;
  if (writer->error == CT_OK && encoder->fd < 0)
    open_file(encoder, 0);
  if (writer->error != CT_OK)
    return writer->error;
  encoder->written_at = ++writer->stamp;
  size_t written;
  if (!ct_writer_write_at(encoder->fd, data, size, encoder->file_bytes, &written)) {
    int saved = errno;
    /* Should this fail too, the reader stops before the partial block all the same. */
    if (written > 0 && ftruncate(encoder->fd, (off_t)encoder->file_bytes) != 0)
      saved = saved != 0 ? saved : errno;
    return ct_writer_fail(writer, ct_err_from_errno(saved), "cannot write %s/%s%u/%s: %s", writer->path,
                          CT_TRACE_THREAD_DIR, encoder->index, CT_TRACE_INDEX, strerror(saved));
  }
  encoder->file_bytes += size;
  writer->threads_bytes += size;
  return CT_OK;
}

int
ct_thread_file_create(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  char name[32];
  snprintf(name, sizeof(name), "%s%u", CT_TRACE_THREAD_DIR, encoder->index);
  if (mkdirat(writer->dir_fd, name, 0777) != 0 && errno != EEXIST)
    return ct_writer_fail(writer, ct_err_from_errno(errno), "cannot create %s/%s: %s", writer->path, name,
                          strerror(errno));
  int err = open_file(encoder, O_CREAT | O_EXCL);
  if (err != CT_OK)
    return err;
  struct ct_file_header header = {
      .magic = CT_FILE_MAGIC,
      .version = CT_TRACE_VERSION,
      .header_bytes = sizeof(header),
      .thread_index = encoder->index,
      .tid = encoder->tid,
      .pid = encoder->pid,
  };
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  return append(encoder, &header, sizeof(header));
}

/* ---- blocks ---- */

/* The context and its innermost frames as they are before the block's first op. */
static void
put_open_section(struct ct_encoder *encoder)
{
  uint32_t depth = ct_encoder_depth(encoder);
  uint32_t count = depth < CT_BLOCK_OPEN_MAX ? depth : CT_BLOCK_OPEN_MAX;
  uint8_t *p = ct_varint_put(encoder->buffers->open, encoder->context);
  encoder->floor = encoder->top - count;
  for (const struct ct_frame *frame = encoder->floor; frame < encoder->top; frame++) {
    p = ct_varint_put(p, frame->fn);
    p = ct_varint_put(p, encoder->first_tsc - frame->enter_tsc);
    *p++ = frame->flags & CT_FRAME_UNCERTAIN ? CT_OPEN_UNCERTAIN : 0;
  }
  encoder->depth_start = depth;
  encoder->open_count = count;
  encoder->open_bytes = (uint32_t)(p - encoder->buffers->open);
}

void
ct_block_begin(struct ct_encoder *encoder, uint64_t tsc)
{
  struct ct_buffers *buffers = encoder->buffers;
  encoder->op = buffers->ops;
  encoder->delta = buffers->deltas;
  encoder->id = buffers->ids;
  encoder->extra = buffers->extra;
  encoder->prediction = buffers->prediction;
  memset(buffers->prediction, 0, sizeof(buffers->prediction));
  encoder->last = 0;
  if (tsc > encoder->last_tsc)
    encoder->last_tsc = tsc;
  encoder->first_tsc = encoder->last_tsc;
  encoder->block_lost = 0;
  encoder->block++;
  put_open_section(encoder);
}

uint32_t
ct_block_room(const struct ct_encoder *encoder)
{
  const struct ct_buffers *buffers = encoder->buffers;
  size_t ops = (size_t)(buffers->ops + CT_BLOCK_OPS_MAX - encoder->op);
  size_t deltas = (size_t)(buffers->deltas + DELTAS_BYTES - encoder->delta) / CT_DELTA_BYTES_MAX;
  size_t ids = (size_t)(buffers->ids + IDS_BYTES - encoder->id) / CT_ID_BYTES_MAX;
  size_t extra = (size_t)(buffers->extra + EXTRA_BYTES - encoder->extra) / CT_EXTRA_BYTES_MAX;
  /* The last few ops that would fit are not worth a call for each of them. */
  if (deltas < 16 || ids < 16 || extra < 1)
    return 0;
  size_t room = ops < deltas ? ops : deltas;
  return (uint32_t)(room < ids ? room : ids);
}

static void
count_ops(const uint8_t *ops, size_t count, uint32_t *calls, uint32_t *returns)
{
  size_t i = 0;
  *calls = *returns = 0;
  for (size_t run; (run = ct_lanes_run(count - i)) > 0;) {
    ct_lanes call = {0}, ret = {0};
    for (size_t end = i + run; i < end; i += sizeof(call)) {
      ct_lanes op = ct_lanes_load(ops + i);
      call -= (ct_lanes)(op - CT_OP_ENTER_PREDICTED <= CT_OP_POINT - CT_OP_ENTER_PREDICTED);
      ret -= (ct_lanes)((op == CT_OP_RETURN) | (op == CT_OP_RETURN_ORPHAN) | (op == CT_OP_RETURN_ID));
    }
    *calls += ct_lanes_sum(call);
    *returns += ct_lanes_sum(ret);
  }
  for (; i < count; i++) {
    *calls += CT_OPS_CALLS >> ops[i] & 1;
    *returns += CT_OPS_RETURNS >> ops[i] & 1;
  }
}

/* Stores a section at p, compressed where that makes it smaller; returns the end. */
static uint8_t *
put_section(struct ct_trace_writer *writer, uint8_t *p, const uint8_t *raw, size_t size, struct ct_section_size *out)
{
  size_t room = (size_t)(writer->block + writer->block_capacity - p);
  size_t stored = size;
  if (size > 16) {
    size_t n = ZSTD_compress2(writer->compressor, p, room, raw, size);
    if (!ZSTD_isError(n) && n < size)
      stored = n;
  }
  if (stored == size)
    memcpy(p, raw, size);
  *out = (struct ct_section_size){.stored_bytes = (uint32_t)stored, .raw_bytes = (uint32_t)size};
  return p + stored;
}

static void
write_block(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  const struct ct_buffers *buffers = encoder->buffers;
  struct ct_block_header header = {
      .magic = CT_BLOCK_MAGIC,
      .header_bytes = sizeof(header),
      .ops = (uint32_t)(encoder->op - buffers->ops),
      .first_tsc = encoder->first_tsc,
      .last_tsc = encoder->last_tsc,
      .lost = encoder->block_lost,
      .depth_start = encoder->depth_start,
      .open_count = encoder->open_count,
  };
  count_ops(buffers->ops, header.ops, &header.calls, &header.returns);
  uint8_t *payload = writer->block + sizeof(header);
  uint8_t *p = payload;
  p = put_section(writer, p, buffers->open, encoder->open_bytes, &header.section[CT_SECTION_OPEN]);
  p = put_section(writer, p, buffers->ops, header.ops, &header.section[CT_SECTION_OPS]);
  p = put_section(writer, p, buffers->ids, (size_t)(encoder->id - buffers->ids), &header.section[CT_SECTION_IDS]);
  p = put_section(writer, p, buffers->deltas, (size_t)(encoder->delta - buffers->deltas),
                  &header.section[CT_SECTION_DELTAS]);
  p = put_section(writer, p, buffers->extra, (size_t)(encoder->extra - buffers->extra),
                  &header.section[CT_SECTION_EXTRA]);
  header.payload_bytes = (uint32_t)(p - payload);
  header.payload_crc = ct_crc32c(0, payload, header.payload_bytes);
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(writer->block, &header, sizeof(header));

  /* The names of functions first, so that what a killed recorder leaves behind has them. */
  ct_trace_writer_flush_functions(writer);
  if (append(encoder, writer->block, (size_t)(p - writer->block)) == CT_OK) {
    encoder->events += (uint64_t)header.calls + header.returns;
    encoder->lost += header.lost;
  }
}

void
ct_block_end(struct ct_encoder *encoder)
{
  if (encoder->buffers == NULL || encoder->op == NULL)
    return;
  if (encoder->op > encoder->buffers->ops && encoder->writer->error == CT_OK)
    write_block(encoder);
  encoder->op = encoder->op_limit = NULL;
}

int
ct_encoder_flush(struct ct_encoder *encoder)
{
  ct_block_end(encoder);
  ct_buffers_release(encoder);
  return encoder->writer->error;
}

uint64_t
ct_encoder_events(const struct ct_encoder *encoder)
{
  uint32_t calls = 0, returns = 0;
  if (encoder->op != NULL && encoder->writer->error == CT_OK)
    count_ops(encoder->buffers->ops, (size_t)(encoder->op - encoder->buffers->ops), &calls, &returns);
  return encoder->events + calls + returns;
}
