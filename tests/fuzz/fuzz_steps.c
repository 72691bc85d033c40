/* SPDX-License-Identifier: MIT */
/* A thread's file of steps (steps_file.h): reader, cursor, index, sweep and view. */
#include "steps_file.h"

#include "steps/cursor.h"
#include "steps/sweep.h"

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
      CHECK(ct_steps_index_may_touch(index, block, address, 8) == ct_steps_index_may_touch(again, block, address, 8));
    }
  }
  unlink(writes_path);
  struct ct_steps_index *writes = NULL;
  CHECK(ct_steps_index_open_writes(reader, &writes) == 0);
  for (size_t block = 0; block < ct_steps_reader_blocks(reader); block++) {
    size_t chunk;
    CHECK(ct_steps_index_chunks(writes, block, &chunk) == 1);
    bool after_hole = ct_steps_reader_place(reader, block)->after_hole; /* to one anything, to the other a gap */
    for (uint64_t address = 0; address < 400; address += 56) {
      CHECK(after_hole || !ct_steps_index_may_write(index, block, address, 8) ||
            ct_steps_index_chunk_writes(writes, chunk, address, 8));
    }
  }
  ct_steps_index_close(writes);
  ct_steps_index_close(index);
  ct_steps_index_close(again);
}

/* The last writer of some bytes by a cursor. */
struct writer {
  const struct ct_steps_target *target;
  uint64_t before;
  struct ct_steps_write found;
};

static bool
note_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct writer *writer = context;
  (void)cursor;
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    if (ct_steps_target_meets(writer->target, store->address, ct_mem_store_bytes(store))) {
      writer->found.kind = CT_STEPS_WRITE_STEP;
      writer->found.step = step->number;
    }
  }
  return true;
}

static void
note_event(void *context, const struct ct_steps_event *event)
{
  struct writer *writer = context;
  struct ct_stream_memory memory;
  if (event->step > writer->before) {
    return;
  }
  if (event->kind == CT_STREAM_MEMORY && event->step > 0) {
    memcpy(&memory, event->data, sizeof(memory));
    if (ct_steps_target_meets(writer->target, memory.address, memory.size)) {
      writer->found.kind = CT_STEPS_WRITE_KERNEL;
      writer->found.step = event->step - 1;
    }
  }
  if (ct_steps_is_gap(event)) {
    ct_steps_write_gap(&writer->found, event->step);
  }
}

/* What a sweep says of a block is what a cursor says. */
static void
check_sweep(struct ct_steps_reader *reader)
{
  static const struct ct_steps_target targets[] = {{.kind = CT_STEPS_MEMORY_BYTES, .address = 0x11, .size = 16},
                                                   {.kind = CT_STEPS_MEMORY_BYTES, .address = 0, .size = 4096},
                                                   {.kind = CT_STEPS_MEMORY_BYTES, .address = 1ull << 63, .size = 64}};
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  struct ct_steps_sweep *sweep = ct_steps_sweep_open(reader);
  CHECK(cursor != NULL && sweep != NULL);
  for (size_t block = 0; block < ct_steps_reader_blocks(reader); block++) {
    const struct ct_steps_place *place = ct_steps_reader_place(reader, block);
    for (size_t i = 0; i < 2 * sizeof(targets) / sizeof(targets[0]); i++) {
      struct ct_steps_write swept = {.kind = CT_STEPS_WRITE_NONE};
      struct writer writer = {.target = &targets[i / 2],
                              .before = i % 2 == 0 ? UINT64_MAX : place->first_step + place->steps / 2};
      if (ct_steps_sweep_block(sweep, block, writer.target, writer.before, &swept)) {
        ct_steps_cursor_events(cursor, note_event, &writer);
        ct_steps_cursor_scan(cursor, block, writer.before, note_step, &writer);
        ct_steps_cursor_pass_events(cursor);
        CHECK(swept.kind == writer.found.kind && swept.step == writer.found.step);
        CHECK(swept.has_gap == writer.found.has_gap && swept.gap == writer.found.gap);
      }
    }
  }
  ct_steps_sweep_close(sweep);
  ct_steps_cursor_close(cursor);
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
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  uint8_t flags = make_file(data, size);
  if (ct_steps_reader_open(path, &reader, &diag) == 0) {
    check_places(reader);
    check_index(reader);
    check_sweep(reader);
    ct_steps_reader_close(reader);
  } else {
    CHECK(diag.text[0] != 0);
  }
  check_view(flags);
  return 0;
}
