/* SPDX-License-Identifier: MIT */
/* Structures between a program and a library of different versions: both ways, shorter, longer, and never set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sized.h"

struct older {
  size_t struct_size;
  int first;
};

struct newer {
  size_t struct_size;
  int first;
  int pad;
  long added;
  const char *more;
};

static void
test_older_program(void **state)
{
  (void)state;
  struct older given = {.struct_size = sizeof(given), .first = 7};
  struct newer own;
  memset(&own, 0xaa, sizeof(own));
  assert_int_equal(ct_sized_take(&own, sizeof(own), &given, NULL), CT_OK);
  assert_int_equal(own.struct_size, sizeof(own));
  assert_int_equal(own.first, 7);
  assert_int_equal(own.added, 0);
  assert_null(own.more);

  struct {
    struct older wanted;
    uint64_t guard;
  } caller = {{.struct_size = sizeof(caller.wanted)}, UINT64_MAX};
  own.first = 9;
  own.added = 10;
  assert_int_equal(ct_sized_give(&caller.wanted, &own, sizeof(own), NULL), CT_OK);
  assert_int_equal(caller.wanted.struct_size, sizeof(caller.wanted));
  assert_int_equal(caller.wanted.first, 9);
  assert_true(caller.guard == UINT64_MAX);
}

static void
test_newer_program(void **state)
{
  (void)state;
  struct newer given = {.struct_size = sizeof(given), .first = 7};
  struct older own;
  struct ct_diag diag = {""};
  assert_int_equal(ct_sized_take(&own, sizeof(own), &given, &diag), CT_OK);
  assert_int_equal(own.struct_size, sizeof(own));
  assert_int_equal(own.first, 7);

  given.more = "an option that the library has never heard of";
  own.first = 1;
  assert_int_equal(ct_sized_take(&own, sizeof(own), &given, &diag), CT_EUNSUPPORTED);
  assert_int_equal(own.first, 1);
  assert_non_null(strstr(diag.text, "version"));

  struct newer wanted = {.struct_size = sizeof(wanted), .added = 5};
  assert_int_equal(ct_sized_give(&wanted, &own, sizeof(own), NULL), CT_OK);
  assert_int_equal(wanted.struct_size, sizeof(wanted));
  assert_int_equal(wanted.first, 1);
  assert_int_equal(wanted.added, 0);
}

static void
test_never_set(void **state)
{
  (void)state;
  static const size_t wrong[] = {0, 1, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    struct newer given = {.struct_size = wrong[i], .first = 3}, own = {.first = 4};
    struct ct_diag diag = {""};
    assert_int_equal(ct_sized_take(&own, sizeof(own), &given, &diag), CT_EINVAL);
    assert_non_null(strstr(diag.text, "struct_size"));
    assert_int_equal(own.first, 4);
    assert_int_equal(ct_sized_give(&given, &own, sizeof(own), NULL), CT_EINVAL);
    assert_int_equal(given.first, 3);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_older_program),
      cmocka_unit_test(test_newer_program),
      cmocka_unit_test(test_never_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
