/* SPDX-License-Identifier: MIT */
/* The table of error codes and the one-line reason; checksums. */
#include "base/crc32.h"
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

/* All lengths, from all addresses in a word, and in two pieces, by tables and by what the processor has. */
static void
checksums_are_those_of_zlib(void **state)
{
  uint8_t bytes[700];
  uint32_t word = 1;
  for (size_t i = 0; i < sizeof(bytes); i++) {
    bytes[i] = (uint8_t)((word = word * 1103515245u + 12345u) >> 16);
  }
  assert_int_equal(ct_crc32(0, "123456789", 9), 0xcbf43926);
  assert_int_equal(ct_crc32_by_tables(0, "123456789", 9), 0xcbf43926);
  uint8_t zeros[128] = {0};
  assert_int_equal(ct_crc32(0, zeros, sizeof(zeros)), 0xc2a8fa9d);
  for (size_t size = 0; size <= 600; size++) {
    const uint8_t *from = bytes + size % 17;
    uint32_t whole = ct_crc32_by_tables(word, from, size);
    assert_int_equal(ct_crc32(word, from, size), whole);
    assert_int_equal(ct_crc32(ct_crc32(word, from, size / 3), from + size / 3, size - size / 3), whole);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_a_text),
      cmocka_unit_test(the_reason_is_formatted_and_the_code_returned),
      cmocka_unit_test(a_long_reason_is_cut),
      cmocka_unit_test(checksums_are_those_of_zlib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
