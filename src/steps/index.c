/* SPDX-License-Identifier: MIT */
/* See index.h and index_internal.h: the file, and questions. */
#include "steps/index_internal.h"

#include "base/crc32c.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file ---- */

static struct ct_index_head
head_of(const struct ct_steps_reader *reader, bool has_writes_only)
{
  size_t blocks = ct_steps_reader_blocks(reader);
  struct ct_index_head head = {.magic = CT_INDEX_MAGIC,
                               .file_bytes = ct_steps_reader_bytes(reader),
                               .steps = ct_steps_reader_steps(reader),
                               .blocks = blocks,
                               .blocks_check = ct_steps_reader_check(reader)};
  if (has_writes_only) {
    memcpy(head.magic, CT_INDEX_MAGIC_WRITES, sizeof(CT_INDEX_MAGIC_WRITES));
  }
  return head;
}

/* What the sets and ranges of a chunk take. */
static uint64_t
set_bytes(const struct ct_index_chunk *chunk)
{
  uint64_t bytes = (uint64_t)chunk->ranges * sizeof(struct ct_index_range);
  for (int i = 0; i < CT_INDEX_SETS; i++) {
    bytes += chunk->set[i].bytes;
  }
  return bytes;
}

/* Whether what the chunks say lies in the data, and each block has its chunks. */
static bool
set_pointers(struct ct_steps_index *index)
{
  size_t blocks = index->head.blocks, known = 0;
  index->chunks = (const struct ct_index_chunk *)index->bytes;
  index->data = index->bytes + index->head.chunks * sizeof(struct ct_index_chunk);
  index->first = calloc(blocks + 1, sizeof(*index->first));
  for (uint64_t i = 0; i < index->head.chunks && index->first != NULL; i++) {
    const struct ct_index_chunk *s = &index->chunks[i];
    uint64_t bytes = set_bytes(s) + s->state_bytes;
    if (s->at > index->head.data_bytes || bytes > index->head.data_bytes - s->at || s->block >= blocks ||
        s->block + 1u < known || s->block > known) {
      return false;
    }
    if (s->block == known) {
      index->first[known++] = i;
    }
  }
  if (index->first != NULL) {
    index->first[blocks] = index->head.chunks;
  }
  return index->first != NULL && known == blocks;
}

static bool
load(const char *path, const struct ct_index_head *wanted, struct ct_steps_index *index)
{
  struct stat status;
  struct ct_index_head head;
  int fd = ct_open_regular(path);
  bool good = fd >= 0 && fstat(fd, &status) == 0 && ct_read_at(fd, &head, sizeof(head), 0) == sizeof(head) &&
              memcmp(head.magic, wanted->magic, sizeof(head.magic)) == 0 && head.file_bytes == wanted->file_bytes &&
              head.steps == wanted->steps && head.blocks == wanted->blocks &&
              head.blocks_check == wanted->blocks_check && head.data_bytes <= (uint64_t)status.st_size &&
              head.chunks <= (uint64_t)status.st_size / sizeof(struct ct_index_chunk) &&
              (uint64_t)status.st_size == sizeof(head) + head.chunks * sizeof(struct ct_index_chunk) + head.data_bytes;
  if (good) {
    size_t size = (size_t)status.st_size - sizeof(head);
    index->bytes = malloc(size + 1);
    good = index->bytes != NULL && ct_read_at(fd, index->bytes, size, sizeof(head)) == size &&
           ct_crc32c(0, index->bytes, size) == head.check;
    index->size = index->capacity = size;
    index->head = head;
  }
  if (fd >= 0) {
    close(fd);
  }
  good = good && set_pointers(index);
  if (!good) {
    free(index->first);
    free(index->bytes);
    *index = (struct ct_steps_index){.bytes = NULL};
  }
  return good;
}

/* Under another name first: whoever reads it has the old one or the new one. */
static void
save(const char *path, const struct ct_steps_index *index)
{
  char name[4200];
  snprintf(name, sizeof(name), "%s.%d", path, (int)getpid());
  int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return;
  }
  bool good = write(fd, &index->head, sizeof(index->head)) == sizeof(index->head);
  for (size_t at = 0; at < index->size && good;) {
    ssize_t n = write(fd, index->bytes + at, index->size - at);
    good = n > 0 || (n < 0 && errno == EINTR);
    at += n > 0 ? (size_t)n : 0;
  }
  good = close(fd) == 0 && good;
  if (!good || rename(name, path) != 0) {
    unlink(name);
  }
}

static bool
name_of(const struct ct_steps_reader *reader, bool has_writes_only, char *path, size_t size)
{
  return snprintf(path, size, "%s%s.index", ct_steps_reader_path(reader), has_writes_only ? ".writes" : "") < (int)size;
}

static bool
load_file(struct ct_steps_reader *reader, bool has_writes_only, struct ct_steps_index **out)
{
  char path[4096];
  struct ct_steps_index *index = calloc(1, sizeof(*index));
  struct ct_index_head head = head_of(reader, has_writes_only);
  bool good = index != NULL && name_of(reader, has_writes_only, path, sizeof(path)) && load(path, &head, index);
  if (good) {
    *out = index;
  } else {
    free(index);
  }
  return good;
}

static int
open_file(struct ct_steps_reader *reader, bool has_writes_only, struct ct_steps_index **out)
{
  char path[4096];
  if (load_file(reader, has_writes_only, out)) {
    return 0;
  }
  struct ct_steps_index *index = calloc(1, sizeof(*index));
  int code = index != NULL ? ct_index_make(reader, has_writes_only, index) : CT_ENOMEM;
  code = code == 0 && ct_steps_reader_is_over(reader) ? CT_ECANCELED : code;
  if (code == 0) {
    struct ct_index_head head = head_of(reader, has_writes_only);
    head.chunks = index->head.chunks;
    head.data_bytes = index->head.data_bytes;
    head.check = ct_crc32c(0, index->bytes, index->size);
    index->head = head;
    code = set_pointers(index) ? 0 : CT_ENOMEM;
  }
  if (code != 0) {
    ct_steps_index_close(index);
    return code;
  }
  if (name_of(reader, has_writes_only, path, sizeof(path))) {
    save(path, index);
  }
  *out = index;
  return 0;
}

bool
ct_steps_index_load(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  return load_file(reader, false, out);
}

int
ct_steps_index_open(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  return open_file(reader, false, out);
}

bool
ct_steps_index_load_writes(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  return load_file(reader, true, out);
}

int
ct_steps_index_open_writes(struct ct_steps_reader *reader, struct ct_steps_index **out)
{
  return open_file(reader, true, out);
}

bool
ct_steps_index_is_due(const struct ct_steps_reader *reader, size_t block, uint64_t read)
{
  enum { MANY = 30000, LONG_BLOCK = 4 * CT_INDEX_CHUNK };
  return read > MANY || ct_steps_reader_place(reader, block)->steps > LONG_BLOCK;
}

int
ct_steps_index_want(struct ct_steps_reader *reader, size_t block, uint64_t read, uint64_t most,
                    struct ct_steps_index **index)
{
  if (*index != NULL || !ct_steps_index_is_due(reader, block, read) || ct_steps_index_load(reader, index)) {
    return 0;
  }
  return read > most ? ct_steps_index_open(reader, index) : 0;
}

void
ct_steps_index_close(struct ct_steps_index *index)
{
  if (index != NULL) {
    free(index->first);
    free(index->bytes);
    free(index);
  }
}

/* ---- questions ---- */

bool
ct_steps_index_is_worth(const struct ct_steps_reader *reader)
{
  enum { BLOCKS = 48, STEPS = 2000000 }; /* a loop's block may have a million of them */
  size_t blocks = ct_steps_reader_blocks(reader);
  return blocks > BLOCKS || ct_steps_reader_steps(reader) > STEPS;
}

static struct ct_keys_packed
set_of(const struct ct_steps_index *index, const struct ct_index_chunk *chunk, int which)
{
  struct ct_keys_packed packed = {index->data + chunk->at, chunk->set[which].groups, chunk->set[which].bytes};
  for (int i = 0; i < which; i++) {
    packed.at += chunk->set[i].bytes;
  }
  return packed;
}

static bool
in_ranges(const struct ct_steps_index *index, const struct ct_index_chunk *chunk, uint64_t address, uint64_t size,
          const uint8_t *open, uint8_t wanted)
{
  const uint8_t *ranges = index->data + chunk->at + set_bytes(chunk) - chunk->ranges * sizeof(struct ct_index_range);
  for (uint32_t i = 0; i < chunk->ranges; i++) {
    struct ct_index_range range;
    memcpy(&range, ranges + i * sizeof(range), sizeof(range));
    uint64_t first = range.start > address ? range.start - address : 0;
    if (range.end < address || first >= size) {
      continue;
    }
    uint64_t last = range.end - address < size - 1 ? range.end - address : size - 1;
    if (open == NULL || memchr(open + first, wanted, last - first + 1) != NULL) {
      return true;
    }
  }
  return false;
}

static uint64_t
bounded(uint64_t address, uint64_t size)
{
  return size > 0 && address + size - 1 < address ? UINT64_MAX - address + 1 : size;
}

bool
ct_steps_index_chunk_writes(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size)
{
  const struct ct_index_chunk *c = &index->chunks[chunk];
  struct ct_keys_packed written = set_of(index, c, CT_INDEX_WRITTEN);
  size = bounded(address, size);
  return c->is_unread != 0 || ct_keys_touch(&written, address, size, NULL, 0) ||
         in_ranges(index, c, address, size, NULL, 0);
}

bool
ct_steps_index_chunk_touches(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size,
                             const uint8_t *open, uint8_t wanted)
{
  const struct ct_index_chunk *c = &index->chunks[chunk];
  struct ct_keys_packed written = set_of(index, c, CT_INDEX_WRITTEN), loaded = set_of(index, c, CT_INDEX_LOADED);
  size = bounded(address, size);
  return c->is_unread != 0 || ct_keys_touch(&written, address, size, open, wanted) ||
         ct_keys_touch(&loaded, address, size, open, wanted) || in_ranges(index, c, address, size, open, wanted);
}

bool
ct_steps_index_chunk_register(const struct ct_steps_index *index, size_t chunk, unsigned number)
{
  const struct ct_index_chunk *c = &index->chunks[chunk];
  return c->is_unread != 0 || (c->registers >> number & 1) != 0;
}

bool
ct_steps_index_chunk_runs(const struct ct_steps_index *index, size_t chunk, uint32_t unit)
{
  struct ct_keys_packed units = set_of(index, &index->chunks[chunk], CT_INDEX_UNITS);
  return ct_keys_have(&units, unit);
}

bool
ct_steps_index_chunk_has_alone(const struct ct_steps_index *index, size_t chunk)
{
  return index->chunks[chunk].has_alone != 0;
}

bool
ct_steps_index_chunk_gap(const struct ct_steps_index *index, size_t chunk, uint64_t *step)
{
  uint32_t gap = index->chunks[chunk].gap;
  *step = gap != 0 ? gap - 1 : 0;
  return gap != 0;
}

size_t
ct_steps_index_chunks(const struct ct_steps_index *index, size_t block, size_t *first)
{
  *first = index->first[block];
  return index->first[block + 1] - index->first[block];
}

uint64_t
ct_steps_index_chunk_step(const struct ct_steps_index *index, size_t chunk)
{
  return index->chunks[chunk].step;
}

bool
ct_steps_index_checkpoint(const struct ct_steps_index *index, size_t block, uint64_t step,
                          struct ct_steps_checkpoint *checkpoint)
{
  size_t low = index->first[block], high = index->first[block + 1];
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (index->chunks[middle].step <= step) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const struct ct_index_chunk *s = &index->chunks[low];
  return s->state_bytes != 0 &&
         ct_steps_checkpoint_unpack(index->data + s->at + set_bytes(s), s->state_bytes, checkpoint);
}

/* ---- of a whole block ---- */

bool
ct_steps_index_may_write(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_writes(index, chunk, address, size);
  }
  return may;
}

bool
ct_steps_index_may_touch(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_touches(index, chunk, address, size, NULL, 0);
  }
  return may;
}

bool
ct_steps_index_may_run(const struct ct_steps_index *index, size_t block, uint32_t unit)
{
  bool may = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !may; chunk++) {
    may = ct_steps_index_chunk_runs(index, chunk, unit);
  }
  return may;
}

bool
ct_steps_index_has_alone(const struct ct_steps_index *index, size_t block)
{
  bool has = false;
  for (size_t chunk = index->first[block]; chunk < index->first[block + 1] && !has; chunk++) {
    has = ct_steps_index_chunk_has_alone(index, chunk);
  }
  return has;
}

bool
ct_steps_index_gap(const struct ct_steps_index *index, size_t block, uint64_t *step)
{
  size_t chunk = index->first[block + 1];
  bool has = false;
  while (!has && chunk > index->first[block]) {
    has = ct_steps_index_chunk_gap(index, --chunk, step);
  }
  return has;
}

uint64_t
ct_steps_index_bytes(const struct ct_steps_index *index)
{
  return sizeof(index->head) + index->size;
}
