/* SPDX-License-Identifier: MIT */
/* See reader.h. */
#include "steps/reader.h"

#include "base/crc32.h"
#include "base/file.h"
#include "steps/stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

/* A block has less in it: a segment is some 100 KiB, units are written by the MiB. */
#define BLOCK_BYTES_MAX (256u << 20)

struct ct_steps_reader {
  int fd;
  uint64_t file_bytes;
  char *path;
  struct ct_steps_file head;
  struct ct_units *units;
  struct ct_steps_place *places;
  size_t count, capacity;
  struct ct_steps_modules *modules;
  size_t module_count;
  uint64_t steps;
  struct ct_steps_unpacked scratch;
  ZSTD_DStream *stream; /* for the heads of blocks */
  char damage[256];
};

void
ct_steps_reader_note(struct ct_steps_reader *reader, const char *fmt, ...)
{
  va_list args;
  if (reader->damage[0] == 0) {
    va_start(args, fmt);
    vsnprintf(reader->damage, sizeof(reader->damage), fmt, args);
    va_end(args);
  }
}

/* Bigger than before when it has to be; false: out of memory. */
static bool
reserve(uint8_t **bytes, size_t *capacity, size_t size)
{
  if (size > *capacity) {
    free(*bytes);
    *bytes = malloc(size);
    *capacity = *bytes != NULL ? size : 0;
  }
  return *bytes != NULL || size == 0;
}

static int
unpack(struct ct_steps_reader *reader, const struct ct_steps_place *place, struct ct_steps_unpacked *out)
{
  uint64_t stamp_bytes = (uint64_t)place->stamps * sizeof(struct ct_stream_stamp);
  size_t packed = place->stored - stamp_bytes; /* checked in add_place */
  size_t aligned = (packed + 15) & ~(size_t)15;
  if (!reserve(&out->raw, &out->raw_capacity, aligned + stamp_bytes + 16) ||
      !reserve(&out->bytes, &out->capacity, place->bytes + 16)) {
    return CT_ENOMEM;
  }
  uint64_t at = place->offset + sizeof(struct ct_steps_block);
  out->stamps = (struct ct_stream_stamp *)(out->raw + aligned);
  out->stamp_count = place->stamps;
  if (ct_read_at(reader->fd, out->raw, packed, at) != packed ||
      ct_read_at(reader->fd, out->stamps, stamp_bytes, at + packed) != stamp_bytes) {
    ct_steps_reader_note(reader, "the block at %llu cannot be read", (unsigned long long)place->offset);
    return CT_EFORMAT;
  }
  if (ct_crc32(ct_crc32(0, out->raw, packed), out->stamps, stamp_bytes) != place->check) {
    ct_steps_reader_note(reader, "the block at %llu is damaged: its checksum differs",
                         (unsigned long long)place->offset);
    return CT_EFORMAT;
  }
  if (place->packing == CT_STEPS_RAW) {
    memcpy(out->bytes, out->raw, packed);
    out->size = packed;
    return 0;
  }
  size_t got = ZSTD_decompress(out->bytes, place->bytes, out->raw, packed);
  if (ZSTD_isError(got) || got != place->bytes) {
    ct_steps_reader_note(reader, "the block at %llu cannot be unpacked", (unsigned long long)place->offset);
    return CT_EFORMAT;
  }
  out->size = got;
  return 0;
}

int
ct_steps_reader_unpack(struct ct_steps_reader *reader, size_t block, struct ct_steps_unpacked *out)
{
  return unpack(reader, &reader->places[block], out);
}

void
ct_steps_unpacked_free(struct ct_steps_unpacked *unpacked)
{
  free(unpacked->bytes);
  free(unpacked->raw);
  memset(unpacked, 0, sizeof(*unpacked));
}

/* The first bytes of what a block has packed; false: there are fewer. No checksum is made: the block is checked when it
 * is read. */
static bool
unpack_head(struct ct_steps_reader *reader, uint64_t at, size_t packed, void *head, size_t size)
{
  uint8_t raw[4096];
  ZSTD_outBuffer out = {head, size, 0};
  size_t left = reader->stream != NULL ? ZSTD_initDStream(reader->stream) : 0;
  for (size_t done = 0; out.pos < out.size && left != 0 && !ZSTD_isError(left) && done < packed;) {
    size_t want = packed - done < sizeof(raw) ? packed - done : sizeof(raw);
    ZSTD_inBuffer in = {raw, ct_read_at(reader->fd, raw, want, at + done), 0};
    done += in.size;
    if (in.size == 0) {
      break;
    }
    while (in.pos < in.size && out.pos < out.size && left != 0 && !ZSTD_isError(left)) {
      left = ZSTD_decompressStream(reader->stream, &out, &in);
    }
  }
  return out.pos == out.size;
}

bool
ct_steps_reader_begin(struct ct_steps_reader *reader, size_t block, uint64_t *rip)
{
  struct ct_stream_context context;
  const struct ct_steps_place *place = &reader->places[block];
  size_t packed = place->stored - (uint64_t)place->stamps * sizeof(struct ct_stream_stamp);
  uint64_t at = place->offset + sizeof(struct ct_steps_block);
  bool good =
      place->packing == CT_STEPS_RAW
          ? packed >= sizeof(context) && ct_read_at(reader->fd, &context, sizeof(context), at) == sizeof(context)
          : unpack_head(reader, at, packed, &context, sizeof(context));
  if (!good || context.event.word != (CT_STREAM_EVENT | CT_STREAM_CONTEXT) || context.reason != CT_CONTEXT_SEGMENT) {
    return false;
  }
  *rip = context.rip;
  return true;
}

/* ---- opening ---- */

static int
add_place(struct ct_steps_reader *reader, const struct ct_steps_place *place)
{
  if (place->first_step != reader->steps || place->steps / 64 > place->bytes) { /* 4 bytes have 255 at most */
    ct_steps_reader_note(reader, "the block at %llu has other steps than it can have",
                         (unsigned long long)place->offset);
    return CT_EFORMAT;
  }
  if (reader->count == reader->capacity) {
    size_t capacity = reader->capacity == 0 ? 64 : 2 * reader->capacity;
    struct ct_steps_place *places = realloc(reader->places, capacity * sizeof(*places));
    if (places == NULL) {
      return CT_ENOMEM;
    }
    reader->places = places;
    reader->capacity = capacity;
  }
  reader->places[reader->count++] = *place;
  reader->steps += place->steps;
  return 0;
}

static int
add_modules(struct ct_steps_reader *reader, const struct ct_steps_place *place)
{
  int code = unpack(reader, place, &reader->scratch);
  if (code != 0) {
    return code == CT_ENOMEM ? code : 0;
  }
  struct ct_steps_modules *modules = realloc(reader->modules, (reader->module_count + 1) * sizeof(*modules));
  if (modules == NULL) {
    return CT_ENOMEM;
  }
  reader->modules = modules;
  char *text = strndup((const char *)reader->scratch.bytes, reader->scratch.size);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  modules[reader->module_count++] = (struct ct_steps_modules){.first_step = reader->steps, .text = text};
  return 0;
}

static int
add_block(struct ct_steps_reader *reader, const struct ct_steps_place *place, unsigned kind)
{
  if (kind == CT_STEPS_RECORDS) {
    return add_place(reader, place);
  }
  if (kind == CT_STEPS_MODULES) {
    return add_modules(reader, place);
  }
  if (kind != CT_STEPS_UNITS) {
    return 0; /* of a later version */
  }
  int code = unpack(reader, place, &reader->scratch);
  if (code == 0) {
    code = ct_units_add_block(reader->units, reader->scratch.bytes, reader->scratch.size);
  }
  if (code == CT_EFORMAT) {
    ct_steps_reader_note(reader, "the units in the block at %llu are damaged", (unsigned long long)place->offset);
    return 0;
  }
  return code;
}

/* CT_EFORMAT: none is there, or one that ends behind the file. */
static int
read_head(struct ct_steps_reader *reader, uint64_t at, struct ct_steps_place *place, unsigned *kind)
{
  struct ct_steps_block block;
  if (ct_read_at(reader->fd, &block, sizeof(block), at) != sizeof(block) || block.magic != CT_STEPS_BLOCK_MAGIC ||
      block.stored > reader->file_bytes - at - sizeof(block) || block.bytes > BLOCK_BYTES_MAX ||
      (uint64_t)block.stamps * sizeof(struct ct_stream_stamp) > block.stored) {
    return CT_EFORMAT;
  }
  uint64_t packed = block.stored - (uint64_t)block.stamps * sizeof(struct ct_stream_stamp);
  bool is_raw = block.packing == CT_STEPS_RAW;
  /* zstd packs to some 1/32000 at most; what claims more is not worth the memory. */
  if ((!is_raw && block.packing != CT_STEPS_ZSTD) || (is_raw ? packed != block.bytes : block.bytes / 40000 > packed)) {
    return CT_EFORMAT;
  }
  *place = (struct ct_steps_place){.offset = at,
                                   .stored = block.stored,
                                   .bytes = block.bytes,
                                   .first_step = block.first_step,
                                   .steps = block.steps,
                                   .first_tsc = block.first_tsc,
                                   .last_tsc = block.last_tsc,
                                   .stamps = block.stamps,
                                   .check = block.check,
                                   .packing = block.packing};
  *kind = block.kind;
  return 0;
}

static int
read_blocks(struct ct_steps_reader *reader)
{
  struct ct_steps_place place;
  unsigned kind;
  int code = 0;
  for (uint64_t at = reader->head.head_bytes; at < reader->file_bytes && code == 0;
       at += sizeof(struct ct_steps_block) + place.stored) {
    code = read_head(reader, at, &place, &kind);
    if (code != 0) {
      ct_steps_reader_note(reader, "from byte %llu on there is no whole block: %llu bytes are left out",
                           (unsigned long long)at, (unsigned long long)(reader->file_bytes - at));
      break;
    }
    code = add_block(reader, &place, kind);
  }
  return code == CT_EFORMAT ? 0 : code;
}

static int
open_file(struct ct_steps_reader *reader, struct ct_diag *diag)
{
  struct stat status;
  struct ct_steps_file *head = &reader->head;
  reader->fd = ct_open_regular(reader->path);
  if (reader->fd < 0 || fstat(reader->fd, &status) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", reader->path, strerror(errno));
  }
  reader->file_bytes = (uint64_t)status.st_size;
  if (ct_read_at(reader->fd, head, sizeof(*head), 0) != sizeof(*head) ||
      memcmp(head->magic, CT_STEPS_MAGIC, sizeof(CT_STEPS_MAGIC)) != 0) {
    return ct_fail(diag, CT_EFORMAT, "%s: no file of an instruction tracer", reader->path);
  }
  if (head->version != CT_STEPS_VERSION || head->head_bytes < sizeof(*head) || head->head_bytes > 4096) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: version %u of the format; this contrail knows %d", reader->path,
                   head->version, CT_STEPS_VERSION);
  }
  reader->units = ct_units_create(head->has_vectors != 0);
  reader->stream = ZSTD_createDStream();
  int code = reader->units != NULL ? read_blocks(reader) : CT_ENOMEM;
  return code == 0 ? 0 : ct_fail(diag, code, "%s: %s", reader->path, ct_err_text(code));
}

int
ct_steps_reader_open(const char *path, struct ct_steps_reader **out, struct ct_diag *diag)
{
  struct ct_steps_reader *reader = calloc(1, sizeof(*reader));
  if (reader == NULL || (reader->path = strdup(path)) == NULL) {
    free(reader);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = open_file(reader, diag);
  if (code != 0) {
    ct_steps_reader_close(reader);
    return code;
  }
  *out = reader;
  return 0;
}

void
ct_steps_reader_close(struct ct_steps_reader *reader)
{
  if (reader == NULL) {
    return;
  }
  if (reader->fd >= 0) {
    close(reader->fd);
  }
  for (size_t i = 0; i < reader->module_count; i++) {
    free(reader->modules[i].text);
  }
  free(reader->modules);
  free(reader->places);
  free(reader->path);
  ct_units_free(reader->units);
  ct_steps_unpacked_free(&reader->scratch);
  ZSTD_freeDStream(reader->stream);
  free(reader);
}

/* ---- what is in it ---- */

const struct ct_steps_file *
ct_steps_reader_head(const struct ct_steps_reader *reader)
{
  return &reader->head;
}

const char *
ct_steps_reader_path(const struct ct_steps_reader *reader)
{
  return reader->path;
}

struct ct_units *
ct_steps_reader_units(struct ct_steps_reader *reader)
{
  return reader->units;
}

uint64_t
ct_steps_reader_steps(const struct ct_steps_reader *reader)
{
  return reader->steps;
}

uint64_t
ct_steps_reader_bytes(const struct ct_steps_reader *reader)
{
  return reader->file_bytes;
}

size_t
ct_steps_reader_blocks(const struct ct_steps_reader *reader)
{
  return reader->count;
}

const struct ct_steps_place *
ct_steps_reader_place(const struct ct_steps_reader *reader, size_t block)
{
  return &reader->places[block];
}

size_t
ct_steps_reader_find(const struct ct_steps_reader *reader, uint64_t step)
{
  size_t low = 0, high = reader->count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (reader->places[middle].first_step <= step) {
      low = middle;
    } else {
      high = middle;
    }
  }
  /* Of several that begin there, all but the last have no step. */
  return low;
}

size_t
ct_steps_reader_modules(const struct ct_steps_reader *reader, const struct ct_steps_modules **modules)
{
  *modules = reader->modules;
  return reader->module_count;
}

const char *
ct_steps_reader_damage(const struct ct_steps_reader *reader)
{
  return reader->damage;
}
