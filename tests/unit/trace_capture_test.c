/* SPDX-License-Identifier: MIT */
/* The file of what the program wrote: what was put in comes out, and of a file that is cut or flipped never anything
 * else. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "trace/format.h"

enum { RECORDS = 40 };

static uint8_t data[RECORDS][300];
static struct ct_capture_record records[RECORDS];
static size_t sizes[RECORDS];

static struct ct_trace *
make_trace(struct make *m)
{
  static const char *const names[] = {"main", NULL};
  make_begin(m, names, 1);
  for (uint32_t i = 0; i < RECORDS; i++) {
    sizes[i] = random_below(sizeof(data[i]));
    for (size_t k = 0; k < sizes[i]; k++) {
      data[i][k] = (uint8_t)random_below(256);
    }
    records[i] =
        (struct ct_capture_record){.tsc = 1000 + i, .tid = 100 + i % 3, .fd = 1 + i % 2, .given = sizes[i] + i % 5};
    assert_int_equal(ct_trace_writer_capture(m->writer, &records[i], data[i], sizes[i]), 0);
    if (i % 7 == 0) {
      assert_int_equal(ct_trace_writer_flush_captures(m->writer), 0);
    }
  }
  return make_open(m, true, 0);
}

static void
assert_is_record(const struct ct_captured *item)
{
  uint64_t i = item->tsc - 1000;
  assert_true(i < RECORDS);
  assert_int_equal(item->tid, records[i].tid);
  assert_int_equal(item->fd, records[i].fd);
  assert_int_equal(item->given, records[i].given);
  assert_int_equal(item->bytes, sizes[i]);
  assert_memory_equal(item->data, data[i], sizes[i]);
}

static void
round_trip(void **state)
{
  (void)state;
  struct make m;
  struct ct_captures captures;
  struct ct_trace *trace = make_trace(&m);
  assert_int_equal(ct_trace_captures(trace, &captures), 0);
  assert_int_equal(captures.count, RECORDS);
  assert_false(captures.is_damaged);
  for (size_t i = 0; i < RECORDS; i++) {
    assert_int_equal(captures.items[i].tsc, 1000 + i);
    assert_is_record(&captures.items[i]);
  }
  ct_captures_free(&captures);
  make_end(&m, trace);
}

static void
write_file(const struct make *m, const uint8_t *bytes, size_t size)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/" CT_TRACE_CAPTURES, m->dir);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

static size_t
read_file(const struct make *m, uint8_t *bytes, size_t max)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/" CT_TRACE_CAPTURES, m->dir);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  size_t size = fread(bytes, 1, max, file);
  fclose(file);
  return size;
}

static void
cut_and_flipped(void **state)
{
  (void)state;
  static uint8_t whole[RECORDS * 400], other[RECORDS * 400];
  struct make m;
  struct ct_captures captures;
  struct ct_trace *trace = make_trace(&m);
  size_t size = read_file(&m, whole, sizeof(whole)), last = 0;
  for (size_t cut = 0; cut <= size; cut += cut < 500 ? 1 : 13) {
    write_file(&m, whole, cut);
    int code = ct_trace_captures(trace, &captures);
    assert_int_equal(code, cut < sizeof(struct ct_file_header) ? CT_EFORMAT : 0);
    if (code != 0) {
      continue;
    }
    assert_true(captures.count >= last && captures.count <= RECORDS);
    last = captures.count;
    for (size_t i = 0; i < captures.count; i++) {
      assert_is_record(&captures.items[i]);
    }
    ct_captures_free(&captures);
  }
  for (int turn = 0; turn < 2000; turn++) {
    memcpy(other, whole, size);
    size_t at = random_below((uint32_t)size);
    other[at] ^= (uint8_t)(1u << random_below(8));
    write_file(&m, other, size);
    if (ct_trace_captures(trace, &captures) == 0) {
      for (size_t i = 0; i < captures.count; i++) {
        assert_is_record(&captures.items[i]);
      }
      assert_true(captures.is_damaged);
      ct_captures_free(&captures);
    } else {
      assert_true(at < sizeof(struct ct_file_header));
    }
  }
  make_end(&m, trace);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(cut_and_flipped)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
