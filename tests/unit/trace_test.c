/* SPDX-License-Identifier: MIT */
/* The compact format: what the encoder was given is what the reader delivers, whole or damaged. */
#include "unit/trace_model.h"

#include "base/crc32c.h"
#include "rounds.h"

static void
test_crc32c(void **state)
{
  (void)state;
  uint8_t bytes[300];
  assert_int_equal(ct_crc32c(0, "123456789", 9), 0xe3069283u);
  assert_int_equal(ct_crc32c_table(0, "123456789", 9), 0xe3069283u);
  for (size_t i = 0; i < sizeof(bytes); i++) {
    bytes[i] = (uint8_t)(i * 7 + i / 5);
  }
  for (size_t at = 0; at < 9; at++) {
    for (size_t size = 0; size + at <= sizeof(bytes); size++) {
      assert_int_equal(ct_crc32c(5, bytes + at, size), ct_crc32c_table(5, bytes + at, size));
    }
  }
  assert_int_equal(ct_crc32c(ct_crc32c(0, bytes, 100), bytes + 100, 200), ct_crc32c(0, bytes, 300));
}

/* ---- blocks ---- */

struct block {
  uint64_t offset;
  size_t first; /* event */
  struct ct_block_header header;
};

static size_t
list_blocks(const uint8_t *file, size_t size, struct block *blocks, size_t max)
{
  size_t count = 0, first = 0;
  for (size_t at = sizeof(struct ct_file_header); at < size;) {
    assert_true(count < max && at + sizeof(struct ct_block_header) <= size);
    struct block *block = &blocks[count++];
    memcpy(&block->header, file + at, sizeof(block->header));
    block->offset = at;
    block->first = first;
    first += block->header.ops;
    at += sizeof(block->header) + block->header.payload_bytes;
  }
  return count;
}

/* As the event before the whole, or with what a block alone cannot know left out. */
static void
assert_event_compatible(const struct ct_event *got, struct ct_event expected, size_t position)
{
  bool closes = expected.kind == CT_EV_RETURN || expected.kind == CT_EV_UNWOUND || expected.kind == CT_EV_TAIL;
  if (closes && got->uncertain && got->enter_tsc == 0) {
    expected.uncertain = 1;
    expected.enter_tsc = 0;
    expected.closed_fn = UINT32_MAX;
    if (expected.kind == CT_EV_UNWOUND) {
      expected.fn = UINT32_MAX;
    }
  }
  if ((expected.kind == CT_EV_VALUE || expected.kind == CT_EV_AWAY) && got->fn == UINT32_MAX) {
    expected.fn = UINT32_MAX;
  }
  assert_event_equal(got, &expected, position);
}

static void
check_block_alone(struct ct_cursor *cursor, const struct block *block, const struct model *m)
{
  const struct ct_event *expected = m->events + block->first, *events;
  bool whole = block->header.open_count == block->header.depth_start;
  uint32_t calls = 0, returns = 0;
  for (uint32_t i = 0; i < block->header.ops; i++) {
    uint8_t kind = expected[i].kind;
    whole = whole && kind != CT_EV_SWITCH;
    calls += kind == CT_EV_ENTER || kind == CT_EV_TAIL || kind == CT_EV_POINT;
    returns += kind == CT_EV_RETURN || kind == CT_EV_ORPHAN_RETURN;
  }
  assert_int_equal(block->header.calls, calls);
  assert_int_equal(block->header.returns, returns);
  assert_int_equal(block->header.first_tsc, expected[0].tsc);
  assert_int_equal(block->header.last_tsc, expected[block->header.ops - 1].tsc);
  assert_int_equal(ct_cursor_seek(cursor, block->offset), CT_OK);
  size_t got = 0;
  while (got < block->header.ops) {
    size_t n = ct_cursor_next(cursor, &events);
    assert_true(n > 0 && got + n <= block->header.ops);
    for (size_t i = 0; i < n; i++, got++) {
      if (whole) {
        assert_event_equal(&events[i], &expected[got], block->first + got);
      } else {
        assert_event_compatible(&events[i], expected[got], block->first + got);
      }
    }
  }
}

static size_t
check_blocks_alone(void **state, struct ct_trace *trace, const struct model *m)
{
  static struct block blocks[4096];
  size_t size;
  uint8_t *file = read_bytes(path_in(state, "t/thread_0/index.ctb"), &size);
  size_t count = list_blocks(file, size, blocks, 4096);
  struct ct_cursor *cursor;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  uint64_t before = 0, calls = 0;
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(blocks[i].header.number, i);
    assert_int_equal(blocks[i].header.first_event, before);
    assert_int_equal(blocks[i].header.first_enter, calls);
    before += blocks[i].header.calls + blocks[i].header.returns;
    calls += blocks[i].header.calls;
  }
  for (size_t i = count; i-- > 0;) {
    check_block_alone(cursor, &blocks[i], m);
  }
  assert_int_equal(ct_cursor_seek(cursor, 65), CT_EFORMAT);
  /* The tail: the fewest whole blocks that have so many ops. */
  for (uint64_t ops = 1; count != 0 && ops <= m->count; ops = ops * 7 + 1) {
    size_t first = count - 1;
    while (first > 0 && m->count - blocks[first].first < ops) {
      first--;
    }
    const struct ct_event *events;
    assert_int_equal(ct_cursor_seek_tail(cursor, ops), CT_OK);
    assert_true(ct_cursor_next(cursor, &events) != 0);
    assert_event_compatible(&events[0], m->events[blocks[first].first], blocks[first].first);
  }
  ct_cursor_close(cursor);
  free(file);
  return count;
}

/* ---- round trips ---- */

static void
round_trip(void **state, uint64_t seed, uint32_t functions, size_t ops, bool wild)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = seed * 0x9e3779b97f4a7c15ull + 1, .tsc = 0};
  if (seed % 2 == 1) {
    ct_trace_writer_near_values(writer);
  }
  assert_int_equal(ct_trace_writer_thread(writer, 0, 11, 10, &m.encoder), CT_OK);
  uint64_t counted = 0;
  for (size_t i = 0; i < ops; i++) {
    model_step(&m, functions, wild);
    if (model_random(&m, 5000) == 0) {
      assert_int_equal(ct_encoder_flush(m.encoder), CT_OK);
    }
    assert_int_equal(ct_encoder_depth(m.encoder), model_stack(&m)->count);
  }
  for (size_t i = 0; i < m.count; i++) {
    counted += m.events[i].kind <= CT_EV_POINT || m.events[i].kind == CT_EV_ORPHAN_RETURN;
  }
  assert_int_equal(ct_encoder_events(m.encoder), counted);
  assert_int_equal(ct_encoder_close(m.encoder), CT_OK);
  assert_int_equal(ct_encoder_events(m.encoder), counted);
  uint64_t bytes = ct_trace_writer_bytes(writer);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);

  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_bytes(trace), bytes);
  assert_int_equal(ct_trace_thread(trace, 0)->events, counted);
  assert_int_equal(ct_trace_thread(trace, 0)->tid, 11);
  assert_int_equal(ct_trace_thread(trace, 0)->pid, 10);
  assert_int_equal(compare_thread(trace, 0, &m, CT_CURSOR_END), m.count);
  check_blocks_alone(state, trace, &m);
  ct_trace_close(trace);
  model_free(&m);
  remove_tree(path_in(state, "t"));
}

static void
test_round_trip(void **state)
{
  for (uint64_t seed = 1; seed <= rounds(2, 12); seed++) {
    round_trip(state, seed, 20, 3000, true);
    round_trip(state, seed, 5000, 100000, seed % 2);
    round_trip(state, seed, CT_FUNCTION_ID_MAX, 100000, true);
  }
  round_trip(state, 99, 300000, rounds(100000, 1000000), true);
}

/* Calls with values of each length: the column of these grows, so that a block has as many calls as without that it
 * would have in more than four. */
static void
values(void **state, bool near)
{
  enum { CALLS = 60000 };
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = 4711};
  if (near) {
    ct_trace_writer_near_values(writer);
  }
  assert_int_equal(ct_trace_writer_thread(writer, 0, 11, 10, &m.encoder), CT_OK);
  for (uint64_t i = 0; i < CALLS; i++) {
    model_enter(&m, 20 * i, (uint32_t)model_random(&m, 300));
    model_value(&m, CT_VALUE_ARG_1, model_random(&m, UINT64_MAX) >> model_random(&m, 64));
    model_value(&m, (uint8_t)(CT_VALUE_INTEGER + 2 + model_random(&m, 4)), 0x7ffd00000000 + model_random(&m, 1 << 20));
    model_value(&m, CT_VALUE_RESULT, i);
    model_return(&m, 20 * i + 10, 0);
  }
  assert_int_equal(ct_encoder_close(m.encoder), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(compare_thread(trace, 0, &m, CT_CURSOR_END), m.count);
  assert_in_range(check_blocks_alone(state, trace, &m), 1, m.count / 12000);
  ct_trace_close(trace);
  model_free(&m);
  remove_tree(path_in(state, "t"));
}

static void
test_values(void **state)
{
  values(state, false);
  values(state, true);
}

/* A million frames down and up again, with blocks that begin deeper than they list. */
static void
test_deep_stack(void **state)
{
  enum { FRAMES = 1000000 };
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = 7, .tsc = 1};
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &m.encoder), CT_OK);
  for (uint32_t i = 0; i < FRAMES; i++) {
    model_enter(&m, m.tsc + model_random(&m, 90), i % 3 == 0 ? 7 : i);
  }
  model_lost(&m, m.tsc + 1, 5);
  for (uint32_t i = 0; i < FRAMES; i++) {
    if (i % 1000 == 0) {
      model_tail(&m, m.tsc + 3, i);
    }
    if (i % 3000 == 5) {
      model_enter(&m, m.tsc + 3, i);
    }
    if (i % 500 == 9) {
      model_unwound(&m, m.tsc, CT_UNWOUND_JUMP);
    } else {
      model_return(&m, m.tsc + model_random(&m, 90), 0);
    }
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(compare_thread(trace, 0, &m, CT_CURSOR_END), m.count);
  assert_true(check_blocks_alone(state, trace, &m) > 60);
  ct_trace_close(trace);
  model_free(&m);
}

/* The drain's fields of a frame, and the top after tail calls and switches. */
static void
test_frames(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct ct_encoder *e;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &e), CT_OK);
  assert_null(ct_encoder_top(e));
  assert_int_equal(ct_encoder_pending_since(e), 0);
  ct_encode_enter(e, 100, 5, 0);
  ct_encoder_top(e)->ra_slot = 77;
  assert_int_equal(ct_encoder_top(e)->root_fn, 5);
  assert_int_equal(ct_encoder_pending_since(e), 100);
  ct_encode_tail(e, 110, 6);
  assert_int_equal(ct_encoder_top(e)->fn, 6);
  assert_int_equal(ct_encoder_top(e)->ra_slot, 77);
  assert_int_equal(ct_encoder_top(e)->root_fn, 5);
  ct_encode_switch(e, 120, 9);
  assert_null(ct_encoder_top(e));
  ct_encode_enter(e, 130, 8, 0);
  assert_int_equal(ct_encoder_top(e)->ra_slot, 0);
  ct_encode_switch(e, 140, 0);
  assert_int_equal(ct_encoder_top(e)->ra_slot, 77);
  assert_int_equal(ct_encoder_depth(e), 1);
  assert_int_equal(ct_encoder_context(e), 0);
  ct_encode_switch(e, 150, 9);
  assert_int_equal(ct_encoder_top(e)->fn, 8);
  ct_encode_exec(e, 160);
  assert_int_equal(ct_encoder_depth(e), 0);
  ct_encode_switch(e, 170, 9);
  assert_int_equal(ct_encoder_depth(e), 0);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
}

static void
test_open_frames(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = 3, .tsc = 50};
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &m.encoder), CT_OK);
  model_enter(&m, 60, 1);
  model_enter(&m, 70, 2);
  model_lost(&m, 80, 3);
  ct_encoder_flush(m.encoder);
  model_enter(&m, 90, 4);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *events;
  const struct ct_open_frame *frames;
  assert_int_equal(ct_trace_thread(trace, 0)->dropped, 3);
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  while (ct_cursor_next(cursor, &events) > 0)
    ;
  assert_int_equal(ct_cursor_open_frames(cursor, &frames), 3);
  assert_int_equal(ct_cursor_depth(cursor), 3);
  assert_int_equal(frames[0].fn, 1);
  assert_int_equal(frames[1].uncertain, 1);
  assert_int_equal(frames[1].enter_tsc, 70);
  assert_int_equal(frames[2].fn, 4);
  assert_int_equal(frames[2].uncertain, 0);
  for (uint32_t n = 0; n < 3; n++) {
    assert_ptr_equal(ct_cursor_open_frame(cursor, n), &frames[n]);
  }
  assert_null(ct_cursor_open_frame(cursor, 3));
  assert_int_equal(ct_cursor_offset(cursor), ct_trace_thread(trace, 0)->file_bytes);
  ct_cursor_close(cursor);
  assert_int_equal(ct_cursor_open(trace, 1, 0, &cursor, NULL), CT_ERANGE);
  ct_trace_close(trace);
  model_free(&m);
}

/* ---- damage ---- */

/* A small trace of several blocks; the caller frees the file and the model. */
static uint8_t *
small_trace(void **state, struct model *m, size_t ops, size_t flush_every, size_t *size)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  *m = (struct model){.random = 12345, .tsc = 0};
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &m->encoder), CT_OK);
  for (size_t i = 0; i < ops; i++) {
    model_step(m, 100, true);
    if (i % flush_every == flush_every - 1) {
      ct_encoder_flush(m->encoder);
    }
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  return read_bytes(path_in(state, "t/thread_0/index.ctb"), size);
}

static size_t
events_before(const struct block *blocks, size_t count, uint64_t offset)
{
  size_t events = 0;
  for (size_t i = 0; i < count; i++) {
    if (blocks[i].offset + sizeof(blocks[i].header) + blocks[i].header.payload_bytes <= offset) {
      events = blocks[i].first + blocks[i].header.ops;
    }
  }
  return events;
}

/* All that comes out with damaged blocks skipped must fit together, calls with returns. */
static void
check_skipping(struct ct_trace *trace)
{
  struct ct_cursor *cursor;
  const struct ct_event *events;
  uint64_t tsc = 0;
  assert_int_equal(ct_cursor_open(trace, 0, CT_READ_SKIP_DAMAGED, &cursor, NULL), CT_OK);
  for (size_t n; (n = ct_cursor_next(cursor, &events)) > 0;) {
    for (size_t i = 0; i < n; i++) {
      assert_true(events[i].tsc >= tsc);
      assert_true(events[i].enter_tsc <= events[i].tsc);
      tsc = events[i].tsc;
    }
  }
  ct_cursor_close(cursor);
}

static void
test_cut_anywhere(void **state)
{
  struct model m;
  struct block blocks[64];
  size_t size;
  /* Each byte of each block, for each of which all before it is read: the time goes with the square of the blocks. */
  uint64_t events = rounds(700, 2000);
  uint8_t *file = small_trace(state, &m, events, 100, &size);
  size_t count = list_blocks(file, size, blocks, 64);
  assert_true(count >= events / 100);
  for (size_t cut = size + 1; cut-- > 0;) {
    assert_int_equal(truncate(path_in(state, "t/thread_0/index.ctb"), (off_t)cut), 0);
    struct ct_trace *trace = open_trace(state);
    size_t expected = events_before(blocks, count, cut);
    bool at_border = cut == sizeof(struct ct_file_header);
    for (size_t i = 0; i < count; i++) {
      at_border |= cut == blocks[i].offset + sizeof(blocks[i].header) + blocks[i].header.payload_bytes;
    }
    /* In a recording that goes on, or was killed, a block of which only the begin is there is one that is written. */
    bool is_end = at_border || (cut > sizeof(struct ct_file_header) && !ct_trace_is_complete(trace));
    assert_int_equal(compare_thread(trace, 0, &m, is_end ? CT_CURSOR_END : CT_CURSOR_DAMAGED), expected);
    check_skipping(trace);
    ct_trace_close(trace);
  }
  free(file);
  model_free(&m);
}

static void
test_flipped_bytes(void **state)
{
  struct model m;
  struct block blocks[64];
  size_t size;
  uint8_t *file = small_trace(state, &m, rounds(480, 1000), 120, &size);
  size_t count = list_blocks(file, size, blocks, 64);
  for (size_t at = 0; at < size; at++) {
    uint8_t flip =
        (uint8_t)(1u << model_random(&m, 8)) | (model_random(&m, 3) == 0 ? (uint8_t)model_random(&m, 256) : 0);
    file[at] ^= flip;
    write_bytes(path_in(state, "t/thread_0/index.ctb"), file, size);
    struct ct_trace *trace = open_trace(state);
    size_t expected = at < sizeof(struct ct_file_header) ? 0 : events_before(blocks, count, at);
    assert_int_equal(compare_thread(trace, 0, &m, CT_CURSOR_DAMAGED), expected);
    check_skipping(trace);
    ct_trace_close(trace);
    file[at] ^= flip;
  }
  free(file);
  model_free(&m);
}

/* Whole blocks that are not where they belong: missing, or there twice. */
static void
test_numbers(void **state)
{
  struct model m;
  struct block blocks[64];
  size_t size;
  uint8_t *file = small_trace(state, &m, 1000, 100, &size), *other = malloc(2 * size);
  size_t count = list_blocks(file, size, blocks, 64);
  assert_non_null(other);
  assert_true(count >= 10);
  for (size_t i = 0; i < count; i++) {
    uint64_t at = blocks[i].offset, next = i + 1 < count ? blocks[i + 1].offset : size;
    for (int twice = 0; twice < 2; twice++) {
      memcpy(other, file, next);
      memcpy(other + (twice ? next : at), file + (twice ? at : next), size - (twice ? at : next));
      write_bytes(path_in(state, "t/thread_0/index.ctb"), other, twice ? size + next - at : size - (next - at));
      struct ct_trace *trace = open_trace(state);
      bool last = i + 1 == count && !twice; /* only the manifest can tell */
      compare_thread(trace, 0, &m, last ? CT_CURSOR_END : CT_CURSOR_DAMAGED);
      struct ct_cursor *cursor;
      const struct ct_event *events;
      uint64_t lost = 0, reported = 0, expected = 0;
      assert_int_equal(ct_cursor_open(trace, 0, CT_READ_SKIP_DAMAGED, &cursor, NULL), CT_OK);
      for (size_t n; (n = ct_cursor_next(cursor, &events)) > 0;) {
        for (size_t k = 0; k < n; k++) {
          reported += events[k].kind == CT_EV_LOST ? events[k].value : 0;
        }
      }
      assert_int_equal(ct_cursor_state(cursor), last ? CT_CURSOR_END : CT_CURSOR_DAMAGED);
      for (size_t k = 0; k < count; k++) {
        expected += k != i || twice ? blocks[k].header.lost : 0;
      }
      lost = twice || last ? 0 : blocks[i].header.calls + blocks[i].header.returns;
      assert_int_equal(reported, expected + lost);
      ct_cursor_close(cursor);
      check_skipping(trace);
      ct_trace_close(trace);
    }
  }
  free(other);
  free(file);
  model_free(&m);
}

/* The example of docs/format.md, byte for byte. */
static void
test_documented_example(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct ct_encoder *e;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 4711, 4700, &e), CT_OK);
  ct_encode_enter(e, 1000, 3, 0);
  for (uint64_t tsc = 1060; tsc <= 1540; tsc += 240) {
    ct_encode_enter(e, tsc, 200, 0);
    ct_encode_return(e, tsc + 190);
  }
  ct_encode_return(e, 1750);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  size_t size, at = 0, compared = 0;
  uint8_t *file = read_bytes(path_in(state, "t/thread_0/index.ctb"), &size);
  const char *root = getenv("CT_SOURCE_ROOT");
  char path[512], line[256];
  snprintf(path, sizeof(path), "%s/docs/format.md", root != NULL ? root : ".");
  FILE *text = fopen(path, "r");
  if (text == NULL) {
    skip();
  }
  while (fgets(line, sizeof(line), text) != NULL) {
    unsigned offset, byte;
    int used, more;
    if (sscanf(line, "    %2x  %n%2x ", &offset, &used, &byte) != 2 || strncmp(line, "    ", 4) != 0) {
      continue;
    }
    at = offset;
    for (const char *p = line + used; sscanf(p, "%2x%n", &byte, &more) == 1 && more == 2; p += more + 1, at++) {
      if (at >= size || file[at] != byte) {
        fail_msg("offset 0x%zx: the file has %02x, docs/format.md %02x", at, at < size ? file[at] : 0, byte);
      }
      compared++;
      if (p[2] != ' ' || p[3] == ' ') {
        break;
      }
    }
  }
  fclose(text);
  assert_int_equal(at + 1, size);
  assert_true(compared > 70);
  free(file);
}

/* One block in the middle is damaged: what is after it comes as before, and the bridge closes and opens the right
 * frames. */
static void
test_skip_damaged(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = 5, .tsc = 0};
  static uint32_t stack[100000];
  size_t depth = 0, size;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &m.encoder), CT_OK);
  for (size_t i = 0; i < 3000; i++) {
    model_step(&m, 50, false);
    if (i % 1000 == 999) {
      ct_encoder_flush(m.encoder);
    }
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct block blocks[8];
  uint8_t *file = read_bytes(path_in(state, "t/thread_0/index.ctb"), &size);
  assert_int_equal(list_blocks(file, size, blocks, 8), 3);
  file[blocks[1].offset + 300] ^= 4;
  write_bytes(path_in(state, "t/thread_0/index.ctb"), file, size);
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t lost = 0, tail = 0;
  assert_int_equal(ct_cursor_open(trace, 0, CT_READ_SKIP_DAMAGED, &cursor, NULL), CT_OK);
  for (size_t n; (n = ct_cursor_next(cursor, &events)) > 0;) {
    for (size_t i = 0; i < n; i++) {
      const struct ct_event *e = &events[i];
      if (e->kind == CT_EV_LOST) {
        assert_int_equal(e->value, blocks[1].header.calls + blocks[1].header.returns);
        lost++;
      } else if (e->kind == CT_EV_ENTER || (e->kind == CT_EV_TAIL && e->closed_fn == UINT32_MAX)) {
        assert_int_equal(e->depth, depth);
        stack[depth++] = e->fn;
      } else if (e->kind == CT_EV_RETURN || e->kind == CT_EV_UNWOUND) {
        assert_int_equal(e->depth, --depth);
        assert_int_equal(e->fn, stack[depth]);
      } else if (e->kind == CT_EV_TAIL) {
        assert_int_equal(e->closed_fn, stack[depth - 1]);
        stack[depth - 1] = e->fn;
      }
      if (e->tsc >= blocks[2].header.first_tsc) {
        assert_int_equal(e->kind, m.events[blocks[2].first + tail++].kind);
      }
    }
  }
  assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_DAMAGED);
  assert_int_equal(lost, 1);
  assert_int_equal(tail, blocks[2].header.ops);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  free(file);
  model_free(&m);
}

/* Right checksums over wrong contents: no crash, and an end. */
static void
test_forged_blocks(void **state)
{
  struct model m;
  struct block blocks[64];
  size_t size;
  uint8_t *file = small_trace(state, &m, 600, 200, &size);
  list_blocks(file, size, blocks, 64);
  for (uint64_t round = rounds(1000, 4000); round > 0; round--) {
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, file, size);
    struct block *block = &blocks[model_random(&m, 3)];
    struct ct_block_header header = block->header;
    uint8_t *payload = copy + block->offset + sizeof(header);
    for (uint64_t n = 1 + model_random(&m, 3); n > 0; n--) {
      if (model_random(&m, 2)) {
        payload[model_random(&m, block->header.payload_bytes)] = (uint8_t)model_random(&m, 256);
      } else {
        ((uint8_t *)&header)[16 + model_random(&m, 88)] ^= (uint8_t)(1u << model_random(&m, 8));
      }
    }
    if (header.payload_bytes <= block->header.payload_bytes) {
      header.payload_crc = ct_crc32c(0, payload, header.payload_bytes);
    }
    header.header_crc = 0;
    header.header_crc = ct_crc32c(0, &header, sizeof(header));
    memcpy(copy + block->offset, &header, sizeof(header));
    write_bytes(path_in(state, "t/thread_0/index.ctb"), copy, size);
    struct ct_trace *trace = open_trace(state);
    for (uint32_t flags = 0; flags < 2; flags++) {
      struct ct_cursor *cursor;
      const struct ct_event *events;
      assert_int_equal(ct_cursor_open(trace, 0, flags, &cursor, NULL), CT_OK);
      for (size_t n, total = 0; (n = ct_cursor_next(cursor, &events)) > 0; total += n) {
        assert_true(total < 1000000);
      }
      ct_cursor_close(cursor);
    }
    ct_trace_close(trace);
    free(copy);
  }
  free(file);
  model_free(&m);
}

static uint8_t *
put_random(struct model *m, uint8_t *p, uint64_t numbers)
{
  while (numbers-- > 0) {
    p = ct_varint_put(p, model_random(m, model_random(m, 4) == 0 ? 1u << 20 : 4));
  }
  return p;
}

/* A block with as many deltas and ids as its ops need and nothing else that makes sense. */
static size_t
random_block(struct model *m, uint8_t *block)
{
  struct ct_block_header header = {.magic = CT_BLOCK_MAGIC, .header_bytes = sizeof(header)};
  header.ops = 1 + (uint32_t)model_random(m, 3000);
  header.open_count = (uint32_t)model_random(m, 20);
  header.depth_start = header.open_count + (uint32_t)model_random(m, 2) * 100;
  header.first_tsc = 1u << 30;
  header.last_tsc = 1u << 31;
  uint8_t *at[CT_SECTIONS + 1];
  uint64_t with_id = 0, timed = 0, likely = 1 + model_random(m, CT_TRACE_OP_COUNT);
  at[CT_SECTION_OPEN] = block + sizeof(header);
  at[CT_SECTION_OPS] = put_random(m, at[CT_SECTION_OPEN], 1);
  for (uint32_t i = 0; i < header.open_count; i++) {
    at[CT_SECTION_OPS] = put_random(m, at[CT_SECTION_OPS], 2);
    *at[CT_SECTION_OPS]++ = (uint8_t)model_random(m, 2);
  }
  at[CT_SECTION_IDS] = at[CT_SECTION_OPS] + header.ops;
  for (uint32_t i = 0; i < header.ops; i++) {
    uint8_t op = (uint8_t)(model_random(m, 100) ? model_random(m, likely) : model_random(m, CT_TRACE_OP_COUNT));
    if (op == CT_TRACE_OP_ENTER_PREDICTED && i == 0) {
      op = CT_TRACE_OP_ENTER;
    }
    with_id += CT_OPS_WITH_ID >> op & 1;
    timed += (uint64_t)ct_op_has_time(op);
    at[CT_SECTION_OPS][i] = op;
  }
  at[CT_SECTION_DELTAS] = put_random(m, at[CT_SECTION_IDS], with_id);
  at[CT_SECTION_EXTRA] = put_random(m, at[CT_SECTION_DELTAS], timed);
  at[CT_SECTIONS] = put_random(m, at[CT_SECTION_EXTRA], model_random(m, header.ops));
  for (int i = 0; i < CT_SECTIONS; i++) {
    header.section[i].stored_bytes = header.section[i].raw_bytes = (uint32_t)(at[i + 1] - at[i]);
  }
  header.payload_bytes = (uint32_t)(at[CT_SECTIONS] - at[0]);
  header.payload_crc = ct_crc32c(0, at[0], header.payload_bytes);
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(block, &header, sizeof(header));
  return sizeof(header) + header.payload_bytes;
}

static void
test_random_blocks(void **state)
{
  struct model m;
  size_t size, events_read = 0;
  uint8_t *file = small_trace(state, &m, 100, 50, &size);
  uint8_t *bytes = malloc(1 << 20);
  assert_non_null(bytes);
  memcpy(bytes, file, sizeof(struct ct_file_header));
  for (uint64_t round = rounds(500, 2000); round > 0; round--) {
    size_t fill = sizeof(struct ct_file_header);
    for (int i = 0; i < 5; i++) {
      fill += random_block(&m, bytes + fill);
    }
    write_bytes(path_in(state, "t/thread_0/index.ctb"), bytes, fill);
    struct ct_trace *trace = open_trace(state);
    for (uint32_t flags = 0; flags < 2; flags++) {
      struct ct_cursor *cursor;
      const struct ct_event *events;
      assert_int_equal(ct_cursor_open(trace, 0, flags, &cursor, NULL), CT_OK);
      for (size_t n; (n = ct_cursor_next(cursor, &events)) > 0; events_read += n)
        ;
      ct_cursor_close(cursor);
    }
    ct_trace_close(trace);
  }
  assert_true(events_read > rounds(2500, 10000));
  free(bytes);
  free(file);
  model_free(&m);
}

/* A percentile is that of the times themselves, or up to a fifth more; never more than the longest. */
static void
test_latency(void **state)
{
  static struct ct_latency latency;
  struct ct_latency_figures figures;
  (void)state;
  ct_latency_read(&latency, &figures);
  assert_true(figures.count == 0 && figures.p50_ns == 0 && figures.p99_ns == 0 && figures.most_ns == 0);
  for (uint64_t ms = 1; ms <= 1000; ms++) {
    ct_latency_add(&latency, ms * 1000000);
  }
  ct_latency_read(&latency, &figures);
  assert_int_equal(figures.count, 1000);
  assert_int_equal(figures.most_ns, 1000000000);
  assert_in_range(figures.p50_ns, 500000000, 625000000);
  assert_in_range(figures.p99_ns, 990000000, 1000000000);
  const uint64_t edges[] = {0, 1, 3, 4, 5, 7, 8, UINT64_MAX / 2, UINT64_MAX};
  for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
    static struct ct_latency one;
    memset(&one, 0, sizeof(one));
    ct_latency_add(&one, edges[i]);
    ct_latency_read(&one, &figures);
    assert_true(figures.count == 1 && figures.p50_ns == edges[i] && figures.most_ns == edges[i]);
  }
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, temporary_setup, temporary_teardown)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crc32c),
      cmocka_unit_test(test_latency),
      TEST(test_round_trip),
      TEST(test_values),
      TEST(test_deep_stack),
      TEST(test_frames),
      TEST(test_open_frames),
      TEST(test_cut_anywhere),
      TEST(test_flipped_bytes),
      TEST(test_skip_damaged),
      TEST(test_forged_blocks),
      TEST(test_random_blocks),
      TEST(test_numbers),
      TEST(test_documented_example),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
