/* SPDX-License-Identifier: MIT */
/* See writer.h. */
#include "steps/writer.h"

#include "base/crc32.h"
#include "steps/matches.h"
#include "steps/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

enum {
  LEVEL = 1,
  LEVEL_IN_HASTE = -2,
  MATCH_IN_HASTE = 7,
  UNITS_KEPT = 1 << 20,
  PASSED_OVER = 7 /* segments, after one whose records are not by what came before */
};

struct ct_steps_packer {
  ZSTD_CCtx *zstd;
  struct ct_matcher *matcher; /* NULL: none */
  uint32_t passed_over;       /* segments that still are */
  uint8_t *room;
  size_t capacity;
  /* Of what was packed last: */
  const void *bytes;
  size_t size, stored_size;
  const struct ct_stream_stamp *stamps;
  uint32_t stamp_count, check;
  enum ct_steps_packing packing;
  bool failed; /* no memory for it */
  bool is_counted;
  struct ct_stream_count count;
};

struct ct_steps_writer {
  int fd, code, error; /* error: of errno */
  struct ct_units *units;
  struct ct_steps_packer *packer; /* for what is packed here */
  uint8_t *pending;               /* units that are to be written before the next segment */
  size_t pending_bytes, pending_capacity;
  struct ct_steps_written written;
  uint32_t file_check, block_count;
  bool has_end;
};

/* ---- packing ---- */

struct ct_steps_packer *
ct_steps_packer_create(void)
{
  struct ct_steps_packer *packer = calloc(1, sizeof(*packer));
  if (packer != NULL) {
    packer->zstd = ZSTD_createCCtx();
  }
  if (packer != NULL && packer->zstd == NULL) {
    free(packer);
    packer = NULL;
  }
  return packer;
}

void
ct_steps_packer_free(struct ct_steps_packer *packer)
{
  if (packer != NULL) {
    ZSTD_freeCCtx(packer->zstd);
    ct_matcher_free(packer->matcher);
    free(packer->room);
    free(packer);
  }
}

/* Counts the records, and makes of them what is packed then: NULL, they are packed as they are. */
static const uint8_t *
count_and_match(struct ct_steps_packer *packer, const struct ct_unit_sizes *sizes, size_t *size)
{
  const uint8_t *made = NULL;
  enum ct_matching matching = CT_NOT_SIMILAR;
  if (packer->matcher == NULL) {
    packer->matcher = ct_matcher_create();
  }
  if (packer->passed_over > 0 || packer->matcher == NULL) {
    packer->passed_over -= packer->passed_over > 0;
    packer->is_counted =
        ct_stream_count_sized(sizes, packer->bytes, packer->size, packer->stamps, packer->stamp_count, &packer->count);
    return NULL;
  }
  matching = ct_matcher_make(packer->matcher, sizes, packer->bytes, packer->size, packer->stamps, packer->stamp_count,
                             &packer->count, &made, size);
  packer->passed_over = matching == CT_NOT_SIMILAR ? PASSED_OVER : 0;
  packer->is_counted = matching != CT_NOT_COUNTED;
  return matching == CT_MATCHED ? made : NULL;
}

void
ct_steps_pack(struct ct_steps_packer *packer, const struct ct_unit_sizes *sizes, const void *bytes, size_t size,
              const struct ct_stream_stamp *stamps, uint32_t stamp_count, bool in_haste)
{
  size_t bound = ZSTD_compressBound(size);
  if (bound > packer->capacity) {
    free(packer->room);
    packer->room = malloc(bound);
    packer->capacity = packer->room != NULL ? bound : 0;
  }
  packer->bytes = bytes;
  packer->size = size;
  packer->stamps = stamps;
  packer->stamp_count = stamp_count;
  packer->failed = packer->room == NULL;
  packer->is_counted = false;
  size_t made_size = 0;
  const void *made = sizes != NULL ? count_and_match(packer, sizes, &made_size) : NULL;
  if (packer->failed) {
    return;
  }
  /* In haste it looks for longer matches only, of which it finds fewer; 0: as usual at that level. */
  ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_compressionLevel, in_haste ? LEVEL_IN_HASTE : LEVEL);
  ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_minMatch, in_haste && made == NULL ? MATCH_IN_HASTE : 0);
  size_t packed = made != NULL ? ZSTD_compress2(packer->zstd, packer->room, packer->capacity, made, made_size)
                               : ZSTD_compress2(packer->zstd, packer->room, packer->capacity, bytes, size);
  packer->packing = made != NULL ? CT_STEPS_MATCHED : CT_STEPS_ZSTD;
  packer->stored_size = packed;
  if (ZSTD_isError(packed) || packed >= size) {
    packer->packing = CT_STEPS_RAW;
    memcpy(packer->room, bytes, size);
    packer->stored_size = size;
  }
  packer->check = ct_crc32(ct_crc32(0, packer->room, packer->stored_size), stamps, stamp_count * sizeof(*stamps));
}

bool
ct_steps_packer_wants_bytes(const struct ct_steps_packer *packer)
{
  return !packer->is_counted;
}

/* ---- the file ---- */

static int
fail(struct ct_steps_writer *writer, int code, int error)
{
  if (writer->code == 0) {
    writer->code = code;
    writer->error = error;
  }
  return writer->code;
}

static int
put(struct ct_steps_writer *writer, const void *bytes, size_t size)
{
  for (size_t at = 0; at < size && writer->code == 0;) {
    ssize_t n = write(writer->fd, (const char *)bytes + at, size - at);
    if (n > 0) {
      at += (size_t)n;
    } else if (n == 0 || errno != EINTR) {
      fail(writer, n == 0 ? CT_EIO : ct_err_from_errno(errno), errno);
    }
  }
  writer->written.bytes += writer->code == 0 ? size : 0;
  return writer->code;
}

int
ct_steps_writer_open(const char *path, const struct ct_steps_file *given, struct ct_steps_writer **out,
                     struct ct_diag *diag)
{
  struct ct_steps_file head = *given;
  struct ct_steps_writer *writer = calloc(1, sizeof(*writer));
  if (writer == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  memset(head.magic, 0, sizeof(head.magic));
  memcpy(head.magic, CT_STEPS_MAGIC, sizeof(CT_STEPS_MAGIC));
  head.version = CT_STEPS_VERSION;
  head.head_bytes = sizeof(head);
  head.hole = 0;
  head.check = writer->file_check = ct_crc32(0, &head, offsetof(struct ct_steps_file, check));
  writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (writer->fd < 0) {
    int code = ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
    free(writer);
    return code;
  }
  writer->units = ct_units_create(head.has_vectors != 0);
  writer->packer = ct_steps_packer_create();
  if (writer->units == NULL || writer->packer == NULL) {
    fail(writer, CT_ENOMEM, ENOMEM);
  }
  if (put(writer, &head, sizeof(head)) != 0) {
    return ct_steps_writer_close(writer, diag);
  }
  *out = writer;
  return 0;
}

static int
put_head(struct ct_steps_writer *writer, struct ct_steps_block *block)
{
  block->magic = CT_STEPS_BLOCK_MAGIC;
  block->number = writer->block_count++;
  block->head_check = ct_crc32(writer->file_check, block, offsetof(struct ct_steps_block, head_check));
  return put(writer, block, sizeof(*block));
}

/* block: kind, steps and times are set. */
static int
put_packed(struct ct_steps_writer *writer, struct ct_steps_block block, const struct ct_steps_packer *packed)
{
  if (packed->failed) {
    return fail(writer, CT_ENOMEM, ENOMEM);
  }
  block.packing = (uint16_t)packed->packing;
  block.stored = packed->stored_size + packed->stamp_count * sizeof(*packed->stamps);
  block.bytes = packed->size;
  block.stamps = packed->stamp_count;
  block.check = packed->check;
  put_head(writer, &block);
  put(writer, packed->room, packed->stored_size);
  return put(writer, packed->stamps, packed->stamp_count * sizeof(*packed->stamps));
}

static int
put_block(struct ct_steps_writer *writer, struct ct_steps_block block, const void *bytes, size_t size)
{
  ct_steps_pack(writer->packer, NULL, bytes, size, NULL, 0, false);
  return put_packed(writer, block, writer->packer);
}

static int
put_pending(struct ct_steps_writer *writer)
{
  struct ct_steps_block block = {.kind = CT_STEPS_UNITS, .first_step = writer->written.steps};
  if (writer->pending_bytes != 0 && writer->code == 0) {
    put_block(writer, block, writer->pending, writer->pending_bytes);
    writer->pending_bytes = 0;
  }
  return writer->code;
}

int
ct_steps_writer_units(struct ct_steps_writer *writer, const void *bytes, size_t size)
{
  if (writer->code != 0) {
    return writer->code;
  }
  if (size > writer->pending_capacity - writer->pending_bytes) {
    size_t capacity = 2 * (writer->pending_bytes + size);
    uint8_t *pending = realloc(writer->pending, capacity);
    if (pending == NULL) {
      return fail(writer, CT_ENOMEM, ENOMEM);
    }
    writer->pending = pending;
    writer->pending_capacity = capacity;
  }
  memcpy(writer->pending + writer->pending_bytes, bytes, size);
  writer->pending_bytes += size;
  int code = ct_units_add_block(writer->units, bytes, size);
  if (code != 0) {
    return fail(writer, code, 0);
  }
  return writer->pending_bytes > UNITS_KEPT ? put_pending(writer) : 0;
}

int
ct_steps_writer_packed(struct ct_steps_writer *writer, const struct ct_steps_packer *packed)
{
  struct ct_stream_count count = packed->count;
  if (put_pending(writer) != 0) {
    return writer->code;
  }
  if (!packed->is_counted) {
    ct_stream_count(writer->units, packed->bytes, packed->size, packed->stamps, packed->stamp_count, &count);
  }
  struct ct_steps_block block = {.kind = CT_STEPS_RECORDS,
                                 .first_step = writer->written.steps,
                                 .steps = count.steps,
                                 .first_tsc = count.first_tsc,
                                 .last_tsc = count.last_tsc};
  for (uint32_t i = 0; i < packed->stamp_count; i++) {
    block.last_tsc = packed->stamps[i].tsc > block.last_tsc ? packed->stamps[i].tsc : block.last_tsc;
  }
  if (put_packed(writer, block, packed) != 0) {
    return writer->code;
  }
  writer->written.steps += count.steps;
  writer->written.raw_bytes += packed->size;
  return count.is_whole ? 0 : CT_EFORMAT;
}

int
ct_steps_writer_segment(struct ct_steps_writer *writer, const void *bytes, size_t size,
                        const struct ct_stream_stamp *stamps, uint32_t stamp_count)
{
  if (put_pending(writer) != 0) {
    return writer->code;
  }
  ct_steps_pack(writer->packer, NULL, bytes, size, stamps, stamp_count, false);
  return ct_steps_writer_packed(writer, writer->packer);
}

int
ct_steps_writer_modules(struct ct_steps_writer *writer, const char *text, size_t size)
{
  struct ct_steps_block block = {.kind = CT_STEPS_MODULES, .first_step = writer->written.steps};
  return put_pending(writer) != 0 ? writer->code : put_block(writer, block, text, size);
}

struct ct_steps_written
ct_steps_writer_written(const struct ct_steps_writer *writer)
{
  return writer->written;
}

int
ct_steps_writer_end(struct ct_steps_writer *writer)
{
  struct ct_steps_block end = {.kind = CT_STEPS_END, .packing = CT_STEPS_RAW};
  if (!writer->has_end && put_pending(writer) == 0) {
    writer->has_end = true;
    end.first_step = writer->written.steps;
    put_head(writer, &end);
  }
  return writer->code;
}

int
ct_steps_writer_close(struct ct_steps_writer *writer, struct ct_diag *diag)
{
  if (writer == NULL) {
    return 0;
  }
  ct_steps_writer_end(writer);
  if (close(writer->fd) != 0) {
    fail(writer, ct_err_from_errno(errno), errno);
  }
  int code = writer->code;
  if (code != 0) {
    ct_fail(diag, code, "cannot write the steps: %s", writer->error != 0 ? strerror(writer->error) : ct_err_text(code));
  }
  ct_units_free(writer->units);
  ct_steps_packer_free(writer->packer);
  free(writer->pending);
  free(writer);
  return code;
}
