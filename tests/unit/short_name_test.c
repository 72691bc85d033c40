/* SPDX-License-Identifier: MIT */
/* Long names of C++ functions made shorter: a table, and that nothing grows or breaks, whatever the text is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <contrail/text.h>

static const struct {
  const char *name, *shown;
} cases[] = {
    {"main", "main"},
    {"std::vector<int>::push_back(int&&)", "std::vector<int>::push_back(int&&)"},
    {"std::map<std::string, std::vector<int>, std::less<std::string> >::find", "std::map<...>::find"},
    {"std::map<std::string, std::vector<int>, std::less<std::string> >::find(std::string const&)",
     "std::map<...>::find(std::string const&)"},
    {"std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
     "std::ostream& std::operator<< <...>(std::ostream&, char const*)"},
    {"bool std::operator< <char, std::char_traits<char>, std::allocator<char> >(int)",
     "bool std::operator< <...>(int)"},
    {"a_long_namespace::type<int, long>::operator->() const::again<x, y, z>",
     "a_long_namespace::type<...>::operator->() const::again<...>"},
    {"std::function<void (int)>::operator()(int) const and more than fits here",
     "std::function<...>::operator()(int) const and more than fits here"},
    {"array<(a > b), std::integral_constant<bool, (1 < 2)> >::get_the_element_of_it()",
     "array<...>::get_the_element_of_it()"},
    {"broken<without<an_end::of_a_name_that_is_longer_than_that",
     "broken<without<an_end::of_a_name_that_is_longer_than_that"},
    {"(anonymous namespace)::f(a_very_long_type_name_number_one, a_very_long_type_name_number_two) const",
     "(anonymous namespace)::f(...) const"},
};

static void
test_cases(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char *name = strdup(cases[i].name);
    ct_shorten_name(name);
    assert_string_equal(name, cases[i].shown);
    ct_shorten_name(name);
    assert_string_equal(name, cases[i].shown);
    free(name);
  }
}

static void
test_random(void **state)
{
  static const char *const pieces[] = {"<",           ">",  "(",  ")",  "operator", "::",      "a",
                                       "std::vector", "->", ", ", "<<", " ",        "\xc3\xa9"};
  (void)state;
  srand(4711);
  for (int i = 0; i < 200000; i++) {
    char text[600] = "";
    int count = rand() % 60;
    for (int k = 0; k < count && strlen(text) < 560; k++) {
      strcat(text, pieces[(size_t)rand() % (sizeof(pieces) / sizeof(pieces[0]))]);
    }
    char *name = strdup(text);
    ct_shorten_name(name);
    assert_true(strlen(name) <= strlen(text));
    free(name);
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
