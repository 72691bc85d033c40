/* SPDX-License-Identifier: MIT */
/*
 * A thread's file of steps: reader, cursor, index and view. The file is made of the input: good blocks whose units and
 * records are the input's bytes, with some bytes spoiled afterwards.
 *
 *   input:  flags u8 | place u16, change u8 of a byte of the file | blocks
 *   block:  kind u8 (its low 2 bits; 4: the head says one step more; 16, 32: blocks before it are missing; 64: its
 *           checksum is wrong, and its steps begin later) | bytes u16 | these
 *   flags:  1 the byte is changed    2 vectors    4 each block of records is given a good context    8 JSON
 *           16 backwards    32 registers    64 as of version 2    128 with an end
 */
#include "fuzz.h"

#include "base/crc32.h"
#include "steps/cursor.h"
#include "steps/stream.h"
#include "steps/view.h"

#include <fcntl.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 18 };

static char folder[64], path[96], index_path[112];
static uint8_t file[FILE_MAX];
static size_t file_bytes;
static uint64_t steps;
static uint32_t file_check, numbers;

static void
leave(void)
{
  unlink(path);
  unlink(index_path);
  rmdir(folder);
}

static void
enter(void)
{
  snprintf(folder, sizeof(folder), "/dev/shm/contrail-fuzz-steps-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof(path), "%s/steps.7", folder);
  snprintf(index_path, sizeof(index_path), "%s/steps.7.index", folder);
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

static bool
count_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  uint64_t *count = context;
  (*count)++;
  CHECK(step->number + 1 == ct_steps_cursor_at(cursor));
  CHECK(step->did.store_count <= 2 && step->did.load_size <= 8);
  return true;
}

/* One after the other, by blocks, and each of some places give the same. */
static void
check_places(struct ct_steps_reader *reader)
{
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader), *other = ct_steps_cursor_open(reader);
  const struct ct_steps_step *step;
  uint64_t made = 0, scanned = 0, last = 0;
  CHECK(cursor != NULL && other != NULL);
  while ((step = ct_steps_cursor_next(cursor)) != NULL) {
    CHECK(made == 0 || step->number > last);
    last = step->number;
    made++;
    if (made % 7 == 1 && made < 300) {
      CHECK(ct_steps_cursor_seek(other, last));
      const struct ct_steps_step *again = ct_steps_cursor_next(other);
      CHECK(again != NULL && again->number == last && again->pc == step->pc);
      const struct ct_steps_state *a = ct_steps_cursor_state(cursor), *b = ct_steps_cursor_state(other);
      CHECK(a->unknown == b->unknown && memcmp(a->cpu.reg, b->cpu.reg, sizeof(a->cpu.reg)) == 0);
    }
  }
  CHECK(made <= ct_steps_reader_steps(reader));
  for (size_t block = 0; block < ct_steps_reader_blocks(reader); block++) {
    ct_steps_cursor_scan(other, block, UINT64_MAX, count_step, &scanned);
  }
  CHECK(scanned == made);
  while (ct_steps_cursor_back(cursor) && made-- > 200) {
  }
  ct_steps_cursor_close(cursor);
  ct_steps_cursor_close(other);
}

static void
check_index(struct ct_steps_reader *reader)
{
  struct ct_steps_index *index = NULL, *again = NULL;
  unlink(index_path);
  CHECK(ct_steps_index_open(reader, &index) == 0);
  CHECK(ct_steps_index_open(reader, &again) == 0); /* from its file */
  for (size_t block = 0; block < ct_steps_reader_blocks(reader); block++) {
    for (uint64_t address = 0; address < 400; address += 56) {
      CHECK(ct_steps_index_may_write(index, block, address, 8) == ct_steps_index_may_write(again, block, address, 8));
    }
  }
  ct_steps_index_close(index);
  ct_steps_index_close(again);
}

static void
check_view(uint8_t flags)
{
  struct ct_steps_options options = {.struct_size = sizeof(options),
                                     .json = (flags & 8) != 0,
                                     .back = (flags & 16) != 0,
                                     .registers = (flags & 32) != 0,
                                     .limit = 500};
  static const char *const targets[] = {NULL, "rax", "0x11:16"};
  for (int i = 0; i < 3; i++) {
    char *text = NULL;
    size_t bytes;
    struct ct_steps_notes notes = {.struct_size = sizeof(notes)};
    struct ct_diag diag = {""};
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    options.last_write = targets[i];
    int code = ct_steps_write(folder, &options, out, &notes, &diag);
    CHECK(code == 0 || diag.text[0] != 0);
    CHECK(fclose(out) == 0);
    free(text);
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct input input = {data, data + (size < 4096 ? size : 4096)};
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
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
  if (ct_steps_reader_open(path, &reader, &diag) == 0) {
    check_places(reader);
    check_index(reader);
    ct_steps_reader_close(reader);
  } else {
    CHECK(diag.text[0] != 0);
  }
  check_view(flags);
  return 0;
}
