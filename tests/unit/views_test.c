/* SPDX-License-Identifier: MIT */
/* What views stand on: histogram, durations, text in JSON. */
#define _GNU_SOURCE 1 /* FTW_DEPTH */
#include "views_make.h"

#include "base/json.h"
#include "span/histogram.h"
#include "views/text.h"

/* ---- Histogram ---- */

static void
check_quantiles(const struct ct_histogram *h, uint64_t *values, size_t count)
{
  qsort(values, count, sizeof(*values), compare_u64);
  for (uint32_t permille = 0; permille <= 1000; permille += 25) {
    assert_within_1_percent(ct_histogram_quantile(h, permille), exact_quantile(values, count, permille));
  }
}

static void
test_histogram(void **state)
{
  (void)state;
  enum { COUNT = 20000 };
  uint64_t *values = malloc(COUNT * sizeof(*values));
  for (unsigned bits = 1; bits <= 64; bits += 3) {
    for (size_t count = 1; count <= COUNT; count = count * 3 + 1) {
      struct ct_histogram all = {0}, half = {0};
      uint64_t sum = 0;
      for (size_t i = 0; i < count; i++) {
        uint64_t wide = (uint64_t)random_below(1u << 31) << 33 ^ (uint64_t)random_below(1u << 31) << 3;
        values[i] = wide >> (64 - bits) >> random_below(bits < 9 ? 1 : 9);
        sum += values[i];
        assert_int_equal(ct_histogram_add(i % 3 == 0 ? &half : &all, values[i]), 0);
      }
      assert_int_equal(ct_histogram_merge(&all, &half), 0);
      assert_int_equal(all.count, count);
      assert_int_equal(all.sum, sum);
      check_quantiles(&all, values, count);
      ct_histogram_destroy(&all);
      ct_histogram_destroy(&half);
    }
  }
  free(values);
}

static void
test_histogram_extremes(void **state)
{
  (void)state;
  struct ct_histogram h = {0};
  assert_int_equal(ct_histogram_quantile(&h, 500), 0);
  for (int i = 0; i < 100; i++) {
    assert_int_equal(ct_histogram_add(&h, 0), 0);
    assert_int_equal(ct_histogram_add(&h, UINT64_MAX), 0);
  }
  assert_int_equal(ct_histogram_quantile(&h, 500), 0);
  assert_within_1_percent(ct_histogram_quantile(&h, 501), UINT64_MAX / 128 * 127);
  ct_histogram_destroy(&h);
}

/* ---- Text ---- */

static void
test_durations(void **state)
{
  (void)state;
  static const struct {
    uint64_t ns;
    const char *text;
  } cases[] = {
      {0, "0 ns"},           {999, "999 ns"},          {1000, "1.000 us"},        {1234, "1.234 us"},
      {12345, "12.35 us"},   {123456, "123.5 us"},     {999949, "999.9 us"},      {999951, "1.000 ms"},
      {9999999, "10.00 ms"}, {61200000000, "61.20 s"}, {3600000000000, "3600 s"}, {UINT64_MAX, "18446744073 s"},
  };
  char buf[CT_DURATION_CHARS];
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    assert_string_equal(ct_format_duration(buf, cases[i].ns), cases[i].text);
  }
  char count[CT_COUNT_CHARS];
  assert_string_equal(ct_format_count(count, 0), "0");
  assert_string_equal(ct_format_count(count, 999), "999");
  assert_string_equal(ct_format_count(count, 1234567), "1,234,567");
  assert_string_equal(ct_format_count(count, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void
test_json_string(void **state)
{
  (void)state;
  static const char *const cases[][2] = {
      {"plain", "plain"},
      {"caf\xC3\xA9", "caf\xC3\xA9"},
      {"a\xFF"
       "b",
       "a\xEF\xBF\xBD"
       "b"},
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"cut\xE2\x82", "cut\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    json_t *json = ct_json_string(cases[i][0]);
    assert_non_null(json);
    assert_string_equal(json_string_value(json), cases[i][1]);
    json_decref(json);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_histogram),
      cmocka_unit_test(test_histogram_extremes),
      cmocka_unit_test(test_durations),
      cmocka_unit_test(test_json_string),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
