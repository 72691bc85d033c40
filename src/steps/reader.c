/* SPDX-License-Identifier: MIT */
/* See reader.h. */
#include "steps/reader.h"

#include "base/crc32.h"
#include "base/file.h"
#include "base/test_point.h"
#include "steps/matches.h"

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
  ZSTD_DStream *stream; /* for the beginnings of blocks */
  uint32_t block_head_bytes;
  uint32_t next_number; /* of the next block */
  uint32_t check;       /* of the blocks' heads */
  bool after_hole;      /* blocks are missing, and none of records came since */
  bool has_end;
  bool is_growing; /* what is not whole may become so */
  uint64_t at;     /* blocks before that have been taken */
  char damage[256];
  struct ct_steps_watch *watch; /* NULL: none */
};

void
ct_steps_reader_set_watch(struct ct_steps_reader *reader, struct ct_steps_watch *watch)
{
  reader->watch = watch;
}

struct ct_steps_watch *
ct_steps_reader_watch(const struct ct_steps_reader *reader)
{
  return reader->watch;
}

bool
ct_steps_reader_is_over(const struct ct_steps_reader *reader)
{
  return reader->watch != NULL && atomic_load_explicit(&reader->watch->is_over, memory_order_relaxed);
}

/* The owner's thread asks whether it is still wanted. */
static void
ask(struct ct_steps_watch *watch, uint64_t done)
{
  if (!atomic_load_explicit(&watch->is_over, memory_order_relaxed) &&
      pthread_equal(watch->owner, pthread_self()) != 0 &&
      watch->progress(watch->context, done < watch->total ? done : watch->total, watch->total) != 0) {
    atomic_store_explicit(&watch->is_over, true, memory_order_relaxed);
  }
}

void
ct_steps_reader_ask(struct ct_steps_reader *reader)
{
  if (reader->watch != NULL) {
    ask(reader->watch, atomic_load_explicit(&reader->watch->done, memory_order_relaxed));
  }
}

/* One block more. False: no more is wanted. */
static bool
goes_on(struct ct_steps_reader *reader)
{
  struct ct_steps_watch *watch = reader->watch;
  if (watch == NULL) {
    return true;
  }
  ask(watch, atomic_fetch_add_explicit(&watch->done, 1, memory_order_relaxed) + 1);
  if (ct_steps_reader_is_over(reader)) {
    return false;
  }
  ct_test_point("steps-progress");
  return true;
}

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

/* What is in out->raw, into out->bytes. False: it is damaged. */
static bool
unpack_bytes(const struct ct_steps_place *place, size_t packed, struct ct_steps_unpacked *out)
{
  if (place->packing == CT_STEPS_RAW) {
    memcpy(out->bytes, out->raw, packed);
    return true;
  }
  if (place->packing == CT_STEPS_ZSTD) {
    size_t got = ZSTD_decompress(out->bytes, place->bytes, out->raw, packed);
    return !ZSTD_isError(got) && got == place->bytes;
  }
  size_t got = ZSTD_decompress(out->made, out->made_capacity, out->raw, packed);
  return !ZSTD_isError(got) && ct_matched_undo(out->made, got, out->bytes, place->bytes);
}

static int
unpack(struct ct_steps_reader *reader, const struct ct_steps_place *place, struct ct_steps_unpacked *out)
{
  uint64_t stamp_bytes = (uint64_t)place->stamps * sizeof(struct ct_stream_stamp);
  size_t packed = place->stored - stamp_bytes; /* checked in add_place */
  size_t aligned = (packed + 15) & ~(size_t)15;
  if (!reserve(&out->raw, &out->raw_capacity, aligned + stamp_bytes + 16) ||
      !reserve(&out->bytes, &out->capacity, place->bytes + 16) ||
      (place->packing == CT_STEPS_MATCHED &&
       !reserve(&out->made, &out->made_capacity, ct_matched_most(place->bytes)))) {
    return CT_ENOMEM;
  }
  uint64_t at = place->offset + reader->block_head_bytes;
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
  if (!unpack_bytes(place, packed, out)) {
    ct_steps_reader_note(reader, "the block at %llu cannot be unpacked", (unsigned long long)place->offset);
    return CT_EFORMAT;
  }
  out->size = place->bytes;
  return 0;
}

int
ct_steps_reader_unpack(struct ct_steps_reader *reader, size_t block, struct ct_steps_unpacked *out)
{
  return goes_on(reader) ? unpack(reader, &reader->places[block], out) : CT_ECANCELED;
}

void
ct_steps_unpacked_free(struct ct_steps_unpacked *unpacked)
{
  free(unpacked->bytes);
  free(unpacked->raw);
  free(unpacked->made);
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
  struct {
    uint8_t head[CT_MATCHED_HEAD_BYTES];
    struct ct_stream_context context;
  } __attribute__((packed)) begin;
  const struct ct_steps_place *place = &reader->places[block];
  size_t packed = place->stored - (uint64_t)place->stamps * sizeof(struct ct_stream_stamp);
  uint64_t at = place->offset + reader->block_head_bytes;
  struct ct_stream_context context;
  bool good =
      place->packing == CT_STEPS_RAW
          ? packed >= sizeof(context) && ct_read_at(reader->fd, &context, sizeof(context), at) == sizeof(context)
      : place->packing == CT_STEPS_ZSTD ? unpack_head(reader, at, packed, &context, sizeof(context))
                                        : unpack_head(reader, at, packed, &begin, sizeof(begin));
  if (good && place->packing == CT_STEPS_MATCHED) {
    context = begin.context;
  }
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
  bool follows = place->first_step == reader->steps || (place->first_step > reader->steps && reader->after_hole);
  if (!follows || place->first_step >> 62 != 0 || place->steps / 64 > place->bytes) { /* 4 bytes have 255 at most */
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
  reader->places[reader->count] = *place;
  reader->places[reader->count++].after_hole = reader->after_hole;
  reader->after_hole = false;
  reader->steps = place->first_step + place->steps;
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

/* ---- the heads of blocks ---- */

static bool
is_head(const struct ct_steps_reader *reader, const struct ct_steps_block *block)
{
  return reader->head.version == CT_STEPS_VERSION_OLDEST
             ? block->magic == CT_STEPS_BLOCK_MAGIC_2
             : block->magic == CT_STEPS_BLOCK_MAGIC &&
                   block->head_check ==
                       ct_crc32(reader->head.check, block, offsetof(struct ct_steps_block, head_check));
}

/* False: it is none, or of a block that ends after the file's end. */
static bool
take_head(const struct ct_steps_reader *reader, uint64_t at, const struct ct_steps_block *block)
{
  uint32_t head_bytes = reader->block_head_bytes;
  if (!is_head(reader, block) || block->stored > reader->file_bytes - at - head_bytes ||
      block->bytes > BLOCK_BYTES_MAX || (uint64_t)block->stamps * sizeof(struct ct_stream_stamp) > block->stored) {
    return false;
  }
  uint64_t packed = block->stored - (uint64_t)block->stamps * sizeof(struct ct_stream_stamp);
  bool is_raw = block->packing == CT_STEPS_RAW;
  /* zstd packs to some 1/32000 at most, and the bytes of matches make 255 each at most; what claims more is not worth
   * the memory. */
  uint64_t least = block->packing == CT_STEPS_ZSTD ? block->bytes / 40000 : block->bytes / 40000 / 255;
  return is_raw ? packed == block->bytes : block->packing <= CT_STEPS_MATCHED && least <= packed;
}

static bool
read_head(const struct ct_steps_reader *reader, uint64_t at, struct ct_steps_block *block)
{
  uint32_t head_bytes = reader->block_head_bytes;
  memset(block, 0, sizeof(*block));
  return reader->file_bytes - at >= head_bytes && ct_read_at(reader->fd, block, head_bytes, at) == head_bytes &&
         take_head(reader, at, block);
}

/* The first head that is whole, from there on; the file's end: there is none. */
static uint64_t
find_head(const struct ct_steps_reader *reader, uint64_t from, struct ct_steps_block *block)
{
  enum { PART = 1 << 16 };
  const uint32_t magic = CT_STEPS_BLOCK_MAGIC;
  uint8_t *part = reader->head.version > CT_STEPS_VERSION_OLDEST ? malloc(PART) : NULL;
  uint64_t found = reader->file_bytes;
  for (uint64_t at = from; part != NULL && found == reader->file_bytes; at += PART - sizeof(*block) + 1) {
    size_t have = at < reader->file_bytes ? ct_read_at(reader->fd, part, PART, at) : 0;
    if (have < sizeof(*block)) {
      break;
    }
    const uint8_t *end = part + have - sizeof(*block) + sizeof(magic), *hit = part;
    while (found == reader->file_bytes && (hit = memmem(hit, (size_t)(end - hit), &magic, sizeof(magic))) != NULL) {
      memcpy(block, hit, sizeof(*block));
      found = take_head(reader, at + (uint64_t)(hit - part), block) ? at + (uint64_t)(hit - part) : found;
      hit++;
    }
  }
  free(part);
  return found;
}

/* Whether the block is the next one; else those before it are missing, or it is one that was there already. */
static bool
take_number(struct ct_steps_reader *reader, uint64_t at, const struct ct_steps_block *block)
{
  if (reader->head.version == CT_STEPS_VERSION_OLDEST) {
    return true;
  }
  if (block->number != reader->next_number) {
    reader->after_hole = true;
    ct_steps_reader_note(reader, "before the block at %llu others are missing (%u comes after %lld)",
                         (unsigned long long)at, block->number, (long long)reader->next_number - 1);
  }
  if (block->number < reader->next_number) {
    return false;
  }
  reader->next_number = block->number + 1;
  reader->has_end |= block->kind == CT_STEPS_END;
  return true;
}

static int
take_block(struct ct_steps_reader *reader, uint64_t at, const struct ct_steps_block *block)
{
  const struct ct_steps_place place = {.offset = at,
                                       .stored = block->stored,
                                       .bytes = block->bytes,
                                       .first_step = block->first_step,
                                       .steps = block->steps,
                                       .first_tsc = block->first_tsc,
                                       .last_tsc = block->last_tsc,
                                       .stamps = block->stamps,
                                       .check = block->check,
                                       .packing = block->packing};
  if (!take_number(reader, at, block)) {
    return 0;
  }
  reader->check = ct_crc32(reader->check, block, sizeof(*block));
  return add_block(reader, &place, block->kind);
}

static int
read_blocks(struct ct_steps_reader *reader)
{
  struct ct_steps_block block;
  int code = 0;
  uint64_t at = reader->at;
  while (at < reader->file_bytes && code == 0 && !reader->has_end) {
    if (!read_head(reader, at, &block)) {
      if (reader->is_growing) {
        break;
      }
      uint64_t next = find_head(reader, at + 1, &block);
      ct_steps_reader_note(reader, "from byte %llu on there is no whole block: %llu bytes are left out",
                           (unsigned long long)at, (unsigned long long)(next - at));
      if (next == reader->file_bytes) {
        break;
      }
      reader->after_hole = true;
      at = next;
    }
    code = take_block(reader, at, &block);
    if (code == CT_EFORMAT && reader->head.version != CT_STEPS_VERSION_OLDEST) {
      reader->after_hole = true; /* that block is left out */
      code = 0;
    }
    at += reader->block_head_bytes + block.stored;
  }
  reader->at = at;
  if (reader->is_growing) {
    return code == CT_EFORMAT ? 0 : code;
  }
  if (reader->head.version != CT_STEPS_VERSION_OLDEST && !reader->has_end) {
    ct_steps_reader_note(reader, "the end is missing: the file was cut off, or its recorder has not ended it");
  } else if (at < reader->file_bytes) {
    ct_steps_reader_note(reader, "%llu bytes follow its end", (unsigned long long)(reader->file_bytes - at));
  }
  return code == CT_EFORMAT ? 0 : code;
}

/* CT_EFORMAT: it is damaged, or none of ours. */
static int
read_file_head(struct ct_steps_reader *reader, struct ct_diag *diag)
{
  struct ct_steps_file *head = &reader->head;
  size_t have = ct_read_at(reader->fd, head, sizeof(*head), 0);
  if (have < CT_STEPS_FILE_BYTES_2 || memcmp(head->magic, CT_STEPS_MAGIC, sizeof(CT_STEPS_MAGIC)) != 0) {
    return ct_fail(diag, CT_EFORMAT, "%s: no file of an instruction tracer", reader->path);
  }
  if (head->version < CT_STEPS_VERSION_OLDEST || head->version > CT_STEPS_VERSION) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: version %u of the format; this contrail knows %d to %d", reader->path,
                   head->version, CT_STEPS_VERSION_OLDEST, CT_STEPS_VERSION);
  }
  bool is_old = head->version == CT_STEPS_VERSION_OLDEST;
  bool is_whole =
      is_old || (have == sizeof(*head) && head->check == ct_crc32(0, head, offsetof(struct ct_steps_file, check)));
  if (!is_whole || head->head_bytes < (is_old ? CT_STEPS_FILE_BYTES_2 : sizeof(*head)) || head->head_bytes > 4096) {
    return ct_fail(diag, CT_EFORMAT, "%s: the head of the file is damaged; without it nothing can be read",
                   reader->path);
  }
  reader->block_head_bytes = is_old ? CT_STEPS_BLOCK_BYTES_2 : (uint32_t)sizeof(struct ct_steps_block);
  return 0;
}

static int
open_file(struct ct_steps_reader *reader, struct ct_diag *diag)
{
  struct stat status;
  reader->fd = ct_open_regular(reader->path);
  if (reader->fd < 0 || fstat(reader->fd, &status) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", reader->path, strerror(errno));
  }
  reader->file_bytes = (uint64_t)status.st_size;
  int code = read_file_head(reader, diag);
  if (code != 0) {
    return code;
  }
  reader->units = ct_units_create(reader->head.has_vectors != 0);
  reader->stream = ZSTD_createDStream();
  reader->at = reader->head.head_bytes;
  code = reader->units != NULL ? read_blocks(reader) : CT_ENOMEM;
  return code == 0 ? 0 : ct_fail(diag, code, "%s: %s", reader->path, ct_err_text(code));
}

static int
open_reader(const char *path, bool is_growing, struct ct_steps_reader **out, struct ct_diag *diag)
{
  struct ct_steps_reader *reader = calloc(1, sizeof(*reader));
  if (reader == NULL || (reader->path = strdup(path)) == NULL) {
    free(reader);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  reader->is_growing = is_growing;
  int code = open_file(reader, diag);
  if (code != 0) {
    ct_steps_reader_close(reader);
    return code;
  }
  *out = reader;
  return 0;
}

int
ct_steps_reader_open(const char *path, struct ct_steps_reader **out, struct ct_diag *diag)
{
  return open_reader(path, false, out, diag);
}

int
ct_steps_reader_open_growing(const char *path, struct ct_steps_reader **out, struct ct_diag *diag)
{
  return open_reader(path, true, out, diag);
}

int
ct_steps_reader_more(struct ct_steps_reader *reader, bool is_last)
{
  struct stat status;
  if (!reader->is_growing) {
    return 0;
  }
  reader->is_growing = !is_last;
  if (fstat(reader->fd, &status) == 0 && (uint64_t)status.st_size > reader->file_bytes) {
    reader->file_bytes = (uint64_t)status.st_size;
  }
  return read_blocks(reader);
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

bool
ct_steps_reader_peek(const char *path, struct ct_steps_file *head)
{
  struct ct_steps_reader reader = {.path = (char *)path, .fd = ct_open_regular(path)};
  bool good = reader.fd >= 0 && read_file_head(&reader, NULL) == 0;
  if (reader.fd >= 0) {
    close(reader.fd);
  }
  if (good) {
    *head = reader.head;
  }
  return good;
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

uint32_t
ct_steps_reader_check(const struct ct_steps_reader *reader)
{
  return reader->check;
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
