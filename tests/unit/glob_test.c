/* SPDX-License-Identifier: MIT */
/* Globs: a table of cases, what is malformed, and random ones held against fnmatch(3). */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/glob.h"
#include "base/scopes.h"

static struct ct_glob *
compiled(const char *text)
{
  struct ct_glob *glob = NULL;
  struct ct_diag diag = {""};
  if (ct_glob_compile(text, strlen(text), &glob, &diag) != 0) {
    fail_msg("%s: %s", text, diag.text);
  }
  return glob;
}

static bool
matches(const char *text, const char *name)
{
  struct ct_glob *glob = compiled(text);
  /* Exactly as long as it says, so that a sanitizer sees a look past it. */
  size_t length = strlen(name);
  char *exact = malloc(length + 1);
  assert_non_null(exact);
  memcpy(exact, name, length);
  bool result = ct_glob_matches(glob, exact, length);
  free(exact);
  ct_glob_free(glob);
  return result;
}

static void
cases(void **state)
{
  static const struct {
    const char *glob, *name;
    bool expected;
  } table[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"***", "abc", true},
      {"memcpy", "memcpy", true},
      {"memcpy", "memcpy2", false},
      {"memcpy", "memcp", false},
      {"mem*", "mem", true},
      {"mem*", "me", false},
      {"*cpy", "memcpy", true},
      {"*cpy", "cpycpyc", false},
      {"*cpy", "cpycpy", true},
      {"a*b*c", "a--b--b--c", true},
      {"a*b*c", "a--c--b", false},
      {"a*bc", "abbc", true},
      {"?", "", false},
      {"?x", "ax", true},
      {"?x", "x", false},
      {"[abc]", "b", true},
      {"[abc]", "d", false},
      {"[a-c]x", "cx", true},
      {"[!a-c]x", "cx", false},
      {"[^a-c]x", "dx", true},
      {"[!]]", "]", false},
      {"[!]]", "[", true},
      {"[a-]", "-", true},
      {"[\\]]", "]", true},
      {"[\\a-\\c]", "b", true},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"[]", "[]", true},
      {"operator[]*", "operator[](unsigned long)", true},
      {"std::vector<*>::operator[]*", "std::vector<int, std::allocator<int> >::operator[](unsigned long)", true},
      {"std::vector<*>::operator[]*", "std::vector<int, std::allocator<int> >::operator(unsigned long)", false},
      {"*[!_]x*", "__xx", true},
      {"[\x80-\xff]", "\xc3", true},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    if (matches(table[i].glob, table[i].name) != table[i].expected) {
      fail_msg("'%s' on '%s' must%s match", table[i].glob, table[i].name, table[i].expected ? "" : " not");
    }
  }
}

static void
malformed(void **state)
{
  static const struct {
    const char *glob, *reason;
  } table[] = {
      {"foo[", "no ']' for the '[' at character 4"},
      {"[a", "no ']'"},
      {"[!", "no ']'"},
      {"[!]", "no ']'"},
      {"[a-", "no ']'"},
      {"[z-a]", "z-a runs backwards"},
      {"a\\", "nothing after the backslash"},
      {"[\\", "no ']'"},
      {"a\nb", "control character at character 2"},
      {"\x7f", "control character at character 1"},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    struct ct_glob *glob = (struct ct_glob *)&table;
    struct ct_diag diag = {""};
    assert_int_equal(ct_glob_compile(table[i].glob, strlen(table[i].glob), &glob, &diag), CT_EINVAL);
    assert_ptr_equal(glob, &table);
    if (strstr(diag.text, table[i].reason) == NULL) {
      fail_msg("'%s': %s", table[i].glob, diag.text);
    }
  }
  char *text = malloc(CT_GLOB_BYTES_MAX + 2);
  struct ct_glob *glob;
  memset(text, '[', CT_GLOB_BYTES_MAX + 1);
  assert_int_equal(ct_glob_compile(text, CT_GLOB_BYTES_MAX + 1, &glob, NULL), CT_EINVAL);
  memset(text, '*', CT_GLOB_BYTES_MAX);
  assert_int_equal(ct_glob_compile(text, CT_GLOB_BYTES_MAX, &glob, NULL), CT_OK);
  assert_true(ct_glob_is_all(glob));
  ct_glob_free(glob);
  for (size_t i = 0; i < CT_GLOB_BYTES_MAX; i += 2) {
    memcpy(text + i, "[]", 2);
  }
  assert_int_equal(ct_glob_compile(text, CT_GLOB_BYTES_MAX, &glob, NULL), CT_OK);
  assert_true(ct_glob_matches(glob, text, CT_GLOB_BYTES_MAX));
  ct_glob_free(glob);
  free(text);
  ct_glob_free(NULL);
}

static void
plain_ones(void **state)
{
  static const struct {
    const char *glob, *plain;
    bool all;
  } table[] = {{"malloc", "malloc", false},
               {"a\\*b", "a*b", false},
               {"operator[]", "operator[]", false},
               {"", "", false},
               {"*", NULL, true},
               {"**", NULL, true},
               {"a*", NULL, false},
               {"?", NULL, false}};
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    struct ct_glob *glob = compiled(table[i].glob);
    const char *plain = ct_glob_plain(glob);
    assert_true((plain == NULL) == (table[i].plain == NULL));
    if (plain != NULL) {
      assert_string_equal(plain, table[i].plain);
    }
    assert_int_equal(ct_glob_is_all(glob), table[i].all);
    ct_glob_free(glob);
  }
}

/* The letters are few, so that much matches; no "[]", where fnmatch has another opinion. */
static void
random_globs_are_as_fnmatch_has_them(void **state)
{
  static const char *const parts[] = {"a", "b", "ab", "*", "?", "[ab]", "[!a]", "[^b]", "[a-b]", "\\*", "[*]", "::"};
  static const char letters[] = "ab*:";
  uint32_t random = 12345;
#define NEXT(n) ((random = random * 1664525u + 1013904223u) >> 16) % (n)
  unsigned hits = 0;
  for (int i = 0; i < 200000; i++) {
    char glob[64] = "", name[16] = "";
    for (unsigned n = NEXT(7); n > 0; n--) {
      strcat(glob, parts[NEXT(sizeof(parts) / sizeof(parts[0]))]);
    }
    for (unsigned n = NEXT(9), at = 0; at < n; at++) {
      name[at] = letters[NEXT(sizeof(letters) - 1)];
    }
    bool expected = fnmatch(glob, name, 0) == 0;
    if (matches(glob, name) != expected) {
      fail_msg("'%s' on '%s' must%s match", glob, name, expected ? "" : " not");
    }
    hits += expected;
  }
  assert_true(hits > 10000);
}

/* ---- levels ---- */

/* The marks of a name, one character for each: '#' a wall, '.' inside brackets, ' ' neither. */
static void
expect_marks(const char *name, const char *expected)
{
  uint8_t marks[512];
  char shown[512];
  size_t length = strlen(name);
  assert_true(length < sizeof(marks));
  ct_scopes_mark(name, length, marks);
  for (size_t i = 0; i < length; i++) {
    shown[i] = (marks[i] & CT_SCOPE_BOUNDARY) != 0 ? '#' : (marks[i] & CT_SCOPE_INSIDE) != 0 ? '.' : ' ';
  }
  shown[length] = '\0';
  if (strcmp(shown, expected) != 0) {
    fail_msg("\n%s\n%s is not\n%s", name, shown, expected);
  }
}

static void
levels(void **state)
{
  expect_marks("", "");
  expect_marks("a::b", " ## ");
  expect_marks("foo::max<a::b>(int) const", "   ##    .... #...       ");
  expect_marks("a::(anonymous namespace)::f()", " ## ................... ## # ");
  expect_marks("<a::B as c::D>::f", " ............ ## ");
  expect_marks("a::operator()(int)", " ##          #... ");
  expect_marks("a::operator<<<b::c>()", " ##           .... # ");
  expect_marks("a::operator-><b::c>()", " ##           .... # ");
  expect_marks("a::operator b::c()", " ##             # ");
  expect_marks("a::operator new(b::c)", " ##            #.... ");
  expect_marks("my_operator::f", "           ## ");
  expect_marks("f(a::b)::{lambda(c::d)#1}::operator()(e::f) const",
               " #.... ## .............. ##          #....       ");
}

static bool
scope_matches(const char *text, const char *name)
{
  struct ct_glob *glob = NULL;
  struct ct_diag diag = {""};
  uint8_t marks[512];
  if (ct_glob_compile_scopes(text, strlen(text), &glob, &diag) != 0) {
    fail_msg("%s: %s", text, diag.text);
  }
  ct_scopes_mark(name, strlen(name), marks);
  bool result = ct_glob_matches_scopes(glob, name, strlen(name), marks);
  ct_glob_free(glob);
  return result;
}

static void
scope_cases(void **state)
{
  static const struct {
    const char *glob, *name;
    bool expected;
  } table[] = {
      {"", "", true},
      {"*", "", true},
      {"*", "main", true},
      {"*", "a::b", false},
      {"*", "f(int)", false},
      {"**", "a::b(int)", true},
      {"***", "a::b(int)", true},
      {"foo::*", "foo::bar", true},
      {"foo::*", "foo::", true},
      {"foo::*", "foo::a::b", false},
      {"foo::*", "foo::bar(int)", false},
      {"foo::*(*)", "foo::bar(a::b, c)", true},
      {"foo::*", "foo::operator()", true},
      {"foo::*", "foo::operator<", true},
      {"foo::*", "foo::operator std::string", true},
      {"foo::*", "foo::max<a::b, c<d::e> >", true},
      {"foo::*", "foo::(anonymous namespace)::bar", false},
      {"foo::*::bar", "foo::(anonymous namespace)::bar", true},
      {"foo::*::bar", "foo::x::y::bar", false},
      {"foo::**::bar", "foo::x::y::bar", true},
      {"foo::**::bar", "foo::bar", false},
      {"foo::**bar", "foo::bar", true},
      {"foo::**", "foo::a(int)::{lambda(b::c)#1}::operator()(b::c) const", true},
      {"foo::*::operator()", "foo::{lambda(b::c)#1}::operator()", true},
      {"*::drop", "<a::B as c::D>::drop", true},
      {"a*::drop", "<a::B as c::D>::drop", false},
      {"vec<*>::push", "vec<a::b>::push", true},
      {"vec<*>::push", "vec<a::b>::x::push", false},
      {"foo*", "foobar", true},
      {"foo*", "foo::bar", false},
      {"foo**", "foo::bar", true},
      {"f(char*)", "f(char*)", true},
      {"f(char**)", "f(char**)", true},
      {"f(char**)", "f(char*)::x", false}, /* in brackets a `**` is no deep one */
      {"fo?", "foo", true},
      {"fo?:bar", "foo::bar", false}, /* `?` and sets take no wall */
      {"foo[:]:bar", "foo::bar", false},
      {"foo[!a]:bar", "foo::bar", false},
      {"*x::y*z", "a<x::y>x::y!z", true}, /* the first x::y is the wrong one */
      {"*a*b*c", "xaxbxbxc", true},
      {"*a*b*c", "xaxb::xbxc", false},
      {"**a*b*c", "a::xaxbxbxc", true},
      {"\\*a", "*a", true},
      {"operator[]", "operator[]", true},
  };
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    if (scope_matches(table[i].glob, table[i].name) != table[i].expected) {
      fail_msg("'%s' and '%s'", table[i].glob, table[i].name);
    }
  }
}

/* Longer than a word of places. */
static void
long_scope_globs(void **state)
{
  char glob[1024] = "", name[2048] = "";
  for (int i = 0; i < 60; i++) {
    snprintf(glob + strlen(glob), sizeof(glob) - strlen(glob), "n%d*::", i);
    snprintf(name + strlen(name), sizeof(name) - strlen(name), "n%dxx::", i);
    if (strlen(name) > 500) {
      break;
    }
    assert_true(scope_matches(glob, name));
    glob[strlen(glob) - 1] = '?';
    assert_false(scope_matches(glob, name));
    glob[strlen(glob) - 1] = ':';
  }
}

static void
deep_ones(void **state)
{
  static const struct {
    const char *glob;
    bool deep, plain;
  } table[] = {{"a::b", false, true},       {"a::*", false, false},   {"a::**", true, false},
               {"f(char**)", false, false}, {"a\\*\\*", false, true}, {"**", true, false}};
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    struct ct_glob *glob = NULL;
    assert_int_equal(ct_glob_compile_scopes(table[i].glob, strlen(table[i].glob), &glob, NULL), CT_OK);
    assert_int_equal(ct_glob_is_deep(glob), table[i].deep);
    assert_int_equal(ct_glob_plain(glob) != NULL, table[i].plain);
    ct_glob_free(glob);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cases),
      cmocka_unit_test(malformed),
      cmocka_unit_test(plain_ones),
      cmocka_unit_test(random_globs_are_as_fnmatch_has_them),
      cmocka_unit_test(levels),
      cmocka_unit_test(scope_cases),
      cmocka_unit_test(long_scope_globs),
      cmocka_unit_test(deep_ones),
  };
  return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}
