/* SPDX-License-Identifier: MIT */
/* Demangling of C++ and Rust names, and of names that mean harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/demangle.h"

static void
check(const char *raw, const char *expected)
{
  char *text = ct_demangle(raw);
  if (expected == NULL) {
    assert_null(text);
  } else {
    assert_non_null(text);
    assert_string_equal(text, expected);
  }
  free(text);
}

static void
cplusplus(void **state)
{
  check("_ZN3foo3barEi", "foo::bar(int)");
  check("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)");
  check("_ZN3foo3barEi.cold", "foo::bar(int) [clone .cold]");
  check("_ZNSs4swapERSs@@GLIBCXX_3.4", "std::string::swap(std::string&)@@GLIBCXX_3.4");
}

static void
rust(void **state)
{
  check("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
  check("_RNvCs1234_7mycrate3foo", "mycrate::foo");
  check("_RINvNtC0std3mem8ali3mem8aliafdE", NULL); /* libiberty hands over an empty piece at NULL */
}

static void
not_mangled(void **state)
{
  check(NULL, NULL);
  check("", NULL);
  check("main", NULL);
  check("_start", NULL);
  check("__libc_malloc", NULL);
  check("_Z", NULL);
  check("_ZN", NULL);
}

/* Long names, deep names and names whose text is exponentially long: an answer or none, soon. */
static void
harmful(void **state)
{
  static char raw[100000];

  for (size_t length = 64; length < sizeof(raw); length *= 3) {
    memcpy(raw, "_Z1f", 4);
    memset(raw + 4, 'P', length - 4);
    raw[length - 1] = 'i';
    raw[length] = 0;
    free(ct_demangle(raw));
  }
  /* Pairs of pairs of pairs: each parameter doubles the text of the one before. */
  static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  size_t used = (size_t)sprintf(raw, "_Z1f1AIiiE");
  for (int i = 0; i < 30; i++) {
    used += (size_t)sprintf(raw + used, "S_IS%c_S%c_E", digits[i], digits[i]);
    if (i == 0) {
      check(raw, "f(A<int, int>, A<A<int, int>, A<int, int> >)");
    }
  }
  check(raw, NULL);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cplusplus),
      cmocka_unit_test(rust),
      cmocka_unit_test(not_mangled),
      cmocka_unit_test(harmful),
  };
  return cmocka_run_group_tests_name("demangle", tests, NULL, NULL);
}
