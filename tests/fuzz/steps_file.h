/* SPDX-License-Identifier: MIT */
/*
 * A thread's file of steps, made of a fuzz target's input: good blocks whose units and records are the input's bytes,
 * with some bytes spoiled afterwards.
 *
 *   input:  flags u8 | place u16, change u8 of a byte of the file | blocks
 *   block:  kind u8 (its low 2 bits; 4: the head says one step more; 16, 32: blocks before it are missing; 64: its
 *           checksum is wrong, and its steps begin later) | bytes u16 | these
 *   flags:  1 the byte is changed    2 vectors    4 each block of records is given a good context    8 JSON
 *           16 backwards    32 registers    64 as of version 2    128 with an end
 */
#ifndef CT_TESTS_FUZZ_STEPS_FILE_H
#define CT_TESTS_FUZZ_STEPS_FILE_H

#include "fuzz.h"

#include "base/crc32.h"
#include "steps/matches.h"
#include "steps/reader.h"

#include <fcntl.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 21 };

static char folder[64], path[96], index_path[112], writes_path[112];
static uint8_t file[FILE_MAX];
static size_t file_bytes;
static uint64_t steps;
static uint32_t file_check, numbers;

static void
leave(void)
{
  unlink(path);
  unlink(index_path);
  unlink(writes_path);
  rmdir(folder);
}

static void
enter(void)
{
  snprintf(folder, sizeof(folder), "/dev/shm/contrail-fuzz-steps-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof(path), "%s/steps.7", folder);
  snprintf(index_path, sizeof(index_path), "%s/steps.7.index", folder);
  snprintf(writes_path, sizeof(writes_path), "%s/steps.7.writes.index", folder);
  atexit(leave);
}

static void
append(const void *bytes, size_t size)
{
  CHECK(size <= FILE_MAX - file_bytes);
  memcpy(file + file_bytes, bytes, size);
  file_bytes += size;
}

/* Its number and checksum, which the input may have wrong; or as in version 2. */
static void
append_head(struct ct_steps_block *block, uint8_t kind, bool is_old)
{
  block->magic = is_old ? CT_STEPS_BLOCK_MAGIC_2 : CT_STEPS_BLOCK_MAGIC;
  numbers += kind >> 4 & 3;
  block->number = numbers++;
  block->head_check = ct_crc32(file_check, block, offsetof(struct ct_steps_block, head_check)) ^ (kind >> 6 & 1);
  append(block, is_old ? CT_STEPS_BLOCK_BYTES_2 : sizeof(*block));
}

/* What is made of records can be undone; and any bytes may be taken for what was made. */
static void
check_matches(const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
              const struct ct_stream_stamp *stamps, uint32_t stamp_count, const struct ct_stream_count *wanted)
{
  struct ct_matcher *matcher = ct_matcher_create();
  struct ct_stream_count count;
  const uint8_t *made = NULL;
  size_t made_size = 0;
  uint8_t *undone = malloc(size + 1);
  CHECK(matcher != NULL && undone != NULL);
  enum ct_matching matching =
      ct_matcher_make(matcher, sizes, bytes, size, stamps, stamp_count, &count, &made, &made_size);
  CHECK(matching == CT_NOT_COUNTED || count.steps == wanted->steps);
  CHECK(matching != CT_MATCHED || (made_size <= ct_matched_most(size) &&
                                   ct_matched_undo(made, made_size, undone, size) && memcmp(undone, bytes, size) == 0));
  (void)ct_matched_undo(bytes, size, undone, size);
  free(undone);
  ct_matcher_free(matcher);
}

static void
check_sized(struct ct_units *units, const uint8_t *bytes, size_t size, const struct ct_stream_stamp *stamps,
            uint32_t stamp_count, const struct ct_stream_count *wanted)
{
  struct ct_unit_sizes *sizes = ct_unit_sizes_create();
  struct ct_stream_count count;
  for (size_t i = 0; sizes != NULL && i < ct_units_count(units); i++) {
    const struct ct_steps_plan *plan = ct_units_decode(units, ct_units_item(units, i)->id);
    if (plan != NULL) {
      ct_unit_sizes_add(sizes, plan->id, (uint32_t)sizeof(plan->id) + plan->bytes, (uint8_t)plan->insns);
    }
  }
  CHECK(sizes != NULL);
  CHECK(!ct_stream_count_sized(sizes, bytes, size, stamps, stamp_count, &count) ||
        (wanted->is_whole && count.steps == wanted->steps && count.first_tsc == wanted->first_tsc &&
         count.last_tsc == wanted->last_tsc));
  check_matches(sizes, bytes, size, stamps, stamp_count, wanted);
  ct_unit_sizes_free(sizes);
}

static void
append_block(struct input *input, struct ct_units *units, uint8_t flags)
{
  static uint8_t bytes[65536 + 4096];
  uint8_t kind = (uint8_t)input_number(input, 1);
  size_t wanted = input_number(input, 2), taken, size = 0;
  uint8_t *part = input_part(input, wanted, &taken);
  struct ct_steps_block block = {.kind = kind & 3, .packing = CT_STEPS_RAW, .first_step = steps + (kind >> 5 & 2)};
  if (block.kind == CT_STEPS_RECORDS && (flags & 4) != 0) {
    uint16_t vectors = (flags & 2) != 0 ? 16 : 0;
    struct ct_stream_context context = {
        .event = {CT_STREAM_EVENT | CT_STREAM_CONTEXT, (uint32_t)sizeof(context) + vectors * 32u},
        .rip = 0x1000,
        .flags = 0x202,
        .reason = CT_CONTEXT_SEGMENT,
        .vectors = vectors,
        .vector_bytes = 32};
    memcpy(bytes, &context, sizeof(context));
    memset(bytes + sizeof(context), 0x11, vectors * 32u);
    size = sizeof(context) + vectors * 32u;
  }
  memcpy(bytes + size, part, taken);
  size += taken;
  free(part);
  if (block.kind == CT_STEPS_UNITS) {
    (void)ct_units_add_block(units, bytes, size);
  } else if (block.kind == CT_STEPS_RECORDS) {
    enum { STAMPS = 16 };
    struct ct_stream_count count, divided;
    struct ct_stream_stamp stamps[STAMPS];
    for (unsigned i = 0; i < STAMPS; i++) { /* where records may begin, or not */
      stamps[i] = (struct ct_stream_stamp){.at = (size * i + (flags & 3) * i) / STAMPS};
    }
    ct_stream_count(units, bytes, size, NULL, 0, &count);
    ct_stream_count(units, bytes, size, stamps, STAMPS, &divided);
    CHECK(count.is_whole == divided.is_whole && count.steps == divided.steps);
    check_sized(units, bytes, size, NULL, 0, &count);
    check_sized(units, bytes, size, stamps, STAMPS, &count);
    block.steps = count.steps + (kind >> 2 & 1);
    steps = block.first_step + block.steps;
  }
  block.stored = block.bytes = size;
  block.check = ct_crc32(0, bytes, size);
  append_head(&block, kind, (flags & 64) != 0);
  append(bytes, size);
}

static void
put_file(void)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && write(fd, file, file_bytes) == (ssize_t)file_bytes && close(fd) == 0);
}

/* The file at path, of the input; its flags. */
static uint8_t
make_file(const uint8_t *data, size_t size)
{
  struct input input = {data, data + (size < 4096 ? size : 4096)};
  if (folder[0] == 0) {
    enter();
  }
  uint8_t flags = (uint8_t)input_number(&input, 1);
  size_t place = input_number(&input, 2);
  uint8_t change = (uint8_t)input_number(&input, 1);
  bool is_old = (flags & 64) != 0;
  struct ct_steps_file head = {.magic = CT_STEPS_MAGIC,
                               .version = is_old ? CT_STEPS_VERSION_OLDEST : CT_STEPS_VERSION,
                               .head_bytes = is_old ? CT_STEPS_FILE_BYTES_2 : sizeof(head),
                               .tid = 7,
                               .has_vectors = flags >> 1 & 1};
  struct ct_units *units = ct_units_create((flags & 2) != 0);
  file_bytes = 0;
  steps = 0;
  head.check = file_check = ct_crc32(0, &head, offsetof(struct ct_steps_file, check));
  numbers = 0;
  append(&head, head.head_bytes);
  while (input.at < input.end) {
    append_block(&input, units, flags);
  }
  ct_units_free(units);
  if ((flags & 128) != 0) {
    append_head(&(struct ct_steps_block){.kind = CT_STEPS_END, .first_step = steps}, 0, is_old);
  }
  if ((flags & 1) != 0 && place < file_bytes) {
    file[place] ^= change;
  }
  put_file();
  return flags;
}

#endif
