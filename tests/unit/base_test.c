/* SPDX-License-Identifier: MIT */
/* The table of error codes and the one-line reason. */
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

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_a_text),
      cmocka_unit_test(the_reason_is_formatted_and_the_code_returned),
      cmocka_unit_test(a_long_reason_is_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
