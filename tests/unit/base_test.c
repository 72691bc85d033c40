/* SPDX-License-Identifier: MIT */
/* The table of error codes and the one-line reason. */
#include "base/content.h"
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void
every_code_has_a_text(void **state)
{
  for (int code = CT_OK; code >= CT_ERANGE; code--) {
    assert_non_null(ct_err_text(code));
    assert_true(strlen(ct_err_text(code)) > 0);
    for (int other = CT_OK; other > code; other--) {
      assert_string_not_equal(ct_err_text(code), ct_err_text(other));
    }
  }
  assert_non_null(ct_err_text(-9999));
  assert_non_null(ct_err_text(5));
}

static void
the_reason_is_formatted_and_the_code_returned(void **state)
{
  struct ct_diag diag;
  assert_int_equal(ct_fail(&diag, CT_EIO, "%s at %d", "broken", 7), CT_EIO);
  assert_string_equal(diag.text, "broken at 7");
  assert_int_equal(ct_fail(NULL, CT_ENOMEM, "%s", "nobody asks"), CT_ENOMEM);
}

static void
a_long_reason_is_cut(void **state)
{
  struct {
    struct ct_diag diag;
    char guard[8];
  } box;
  char text[2000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  memset(box.guard, 0x5a, sizeof box.guard);
  ct_fail(&box.diag, CT_EFORMAT, "%s", text);
  assert_int_equal(strlen(box.diag.text), sizeof box.diag.text - 1);
  for (size_t i = 0; i < sizeof box.guard; i++) {
    assert_int_equal(box.guard[i], 0x5a);
  }
}

static void
sum_of(const uint8_t *bytes, size_t size, size_t piece, uint64_t sum[2])
{
  struct ct_content content;
  ct_content_begin(&content);
  for (size_t at = 0; at < size; at += piece) {
    ct_content_add(&content, bytes + at, size - at < piece ? size - at : piece);
  }
  ct_content_end(&content, sum);
}

/* Every bit, the size, and the place of a word count; the pieces that it comes in do not. */
static void
contents_are_told_apart(void **state)
{
  enum { SIZE = 333 };
  uint8_t bytes[SIZE + 1] = {0};
  uint64_t whole[2], other[2];
  for (size_t i = 0; i < SIZE; i++) {
    bytes[i] = (uint8_t)(i * 7);
  }
  sum_of(bytes, SIZE, SIZE, whole);
  for (size_t piece = CT_CONTENT_STEP; piece <= SIZE; piece += CT_CONTENT_STEP) {
    sum_of(bytes, SIZE, piece, other);
    assert_memory_equal(whole, other, sizeof(whole));
  }
  for (size_t bit = 0; bit < SIZE * 8; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    sum_of(bytes, SIZE, SIZE, other);
    assert_true(whole[0] != other[0] && whole[1] != other[1]);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (size_t size = 0; size <= SIZE + 1; size++) { /* the last of them by a zero more */
    sum_of(bytes, size, 64, other);
    assert_int_equal(memcmp(whole, other, sizeof(whole)) == 0, size == SIZE);
  }
  for (size_t at = 0; at + 8 <= SIZE - 8; at += 8) {
    uint8_t swapped[SIZE];
    memcpy(swapped, bytes, SIZE);
    memcpy(swapped + at, bytes + at + 8, 8);
    memcpy(swapped + at + 8, bytes + at, 8);
    sum_of(swapped, SIZE, SIZE, other);
    assert_true(whole[0] != other[0] && whole[1] != other[1]);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_a_text),
      cmocka_unit_test(the_reason_is_formatted_and_the_code_returned),
      cmocka_unit_test(a_long_reason_is_cut),
      cmocka_unit_test(contents_are_told_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
