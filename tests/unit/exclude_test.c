/* SPDX-License-Identifier: MIT */
/*
 * Exclusion on a small module in assembly, whose names are those of C, C++ and Rust functions: which patterns match
 * which, what an excluded function becomes, and what is said about patterns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "select/excluding.h"

static char folder[64];
static struct ct_plan *plan;
static struct ct_filter_result filter_result;

static const char source[] =
    ".section .note.GNU-stack, \"\", @progbits\n"
    ".text\n"
    ".macro fn name body:vararg\n .balign 16, 0xcc\n .globl \\name\n .type \\name, @function\n \\name:\n "
    ".cfi_startproc\n"
    " \\body\n push %rbx\n .cfi_adjust_cfa_offset 8\n mov %rdi, %rbx\n nop\n nop\n pop %rbx\n"
    " .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n .size \\name, .-\\name\n .endm\n"
    "fn plain\n"
    "fn memory_copy\n"
    ".globl copy_alias\n.set copy_alias, memory_copy\n"
    "fn part.isra.0\n"
    "fn versioned_1\n"
    ".symver versioned_1, versioned@@V1\n"
    "fn _ZN3foo3barEi\n"            /* foo::bar(int) */
    "fn _ZNK3foo3bazEv\n"           /* foo::baz() const */
    "fn _ZNSt6vectorIiSaIiEEixEm\n" /* std::vector<int, std::allocator<int> >::operator[](unsigned long) */
    "fn _ZSt7forwardIiEOT_RNSt16remove_referenceIS0_E4typeE\n" /* int&&
                                                                  std::forward<int>(std::remove_reference<int>::type&)
                                                                */
    "fn _ZN5other7forwardIiEESt6vectorIiSaIiEET_\n"            /* std::vector<int, ...> other::forward<int>(int) */
    "fn _ZN3foontEv\n"                                         /* foo::operator!() */
    "fn _ZN9crate_one4main17h0123456789abcdefE\n"              /* crate_one::main */
    "fn touches mov (%rsp), %rax\n"
    "fn caller call *%rax\n"
    "fn jumper jmp plain\n"
    "fn asker syscall\n"
    "fn prctl\n"
    "fn execve\n"
    ".globl short_one\n .type short_one, @function\n short_one:\n .cfi_startproc\n ret\n .cfi_endproc\n .size "
    "short_one, 1\n"
    "nop\nnop\nnop\n";

static int
set_up(void **state)
{
  char path[128], command[256];
  struct ct_diag diag = {""};
  snprintf(folder, sizeof(folder), "/tmp/exclude_test.XXXXXX");
  if (mkdtemp(folder) == NULL) {
    return -1;
  }
  snprintf(path, sizeof(path), "%s/module.s", folder);
  FILE *file = fopen(path, "w");
  if (file == NULL || fputs(source, file) < 0 || fclose(file) != 0) {
    return -1;
  }
  snprintf(path, sizeof(path), "%s/map", folder);
  file = fopen(path, "w");
  if (file == NULL || fputs("V1 { global: *; };\n", file) < 0 || fclose(file) != 0) {
    return -1;
  }
  snprintf(command, sizeof(command),
           "cd %s && gcc -shared -nostdlib -Wl,-soname,libthing.so.1,--version-script,map -o libthing-2.so module.s",
           folder);
  if (system(command) != 0) {
    return -1;
  }
  snprintf(path, sizeof(path), "%s/libthing-2.so", folder);
  return ct_plan_create(path, &plan, &diag);
}

static int
tear_down(void **state)
{
  char command[128];
  ct_filter_result_free(&filter_result);
  ct_plan_free(plan);
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

static const struct ct_planned *
planned(const char *name)
{
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].name != NULL && strcmp(plan->functions[i].name, name) == 0) {
      return &plan->functions[i];
    }
  }
  fail_msg("no function %s", name);
  return NULL;
}

static struct ct_exclude *
with(const char *first, ...)
{
  struct ct_exclude *exclude = ct_exclude_create();
  struct ct_diag diag = {""};
  va_list ap;
  assert_non_null(exclude);
  va_start(ap, first);
  for (const char *pattern = first; pattern != NULL; pattern = va_arg(ap, const char *)) {
    if (ct_exclude_add(exclude, pattern, &diag) != 0) {
      fail_msg("%s: %s", pattern, diag.text);
    }
  }
  va_end(ap);
  return exclude;
}

/* Chooses afresh; the sums hold. */
static void
choose(struct ct_exclude *exclude, const char *path)
{
  size_t excluded = 0, passthrough = 0;
  ct_filter_result_free(&filter_result);
  assert_int_equal(ct_exclude_filter(exclude, plan, path, &filter_result), CT_OK);
  for (size_t i = 0; i < plan->count && filter_result.requested_modes != NULL; i++) {
    excluded += filter_result.requested_modes[i] != CT_REQUESTED_HOOK;
    passthrough += filter_result.requested_modes[i] == CT_REQUESTED_PASSTHROUGH;
    assert_true(filter_result.requested_modes[i] == CT_REQUESTED_HOOK || plan->functions[i].refusal == CT_REFUSED_NOT);
  }
  assert_int_equal(filter_result.excluded, excluded);
  assert_int_equal(filter_result.passthrough, passthrough);
}

static enum ct_requested_mode
requested_mode(const char *name)
{
  return filter_result.requested_modes == NULL ? CT_REQUESTED_HOOK
                                               : filter_result.requested_modes[planned(name) - plan->functions];
}

/* One pattern alone: the functions it excludes, by the symbol's name, separated by spaces. */
static void
expect(const char *pattern, const char *names)
{
  struct ct_exclude *exclude = with(pattern, NULL);
  char expected[1024], *rest = NULL;
  size_t count = 0;
  choose(exclude, "/usr/lib/libthing-2.so");
  snprintf(expected, sizeof(expected), "%s", names);
  for (char *name = strtok_r(expected, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest), count++) {
    if (requested_mode(name) == CT_REQUESTED_HOOK) {
      fail_msg("'%s' does not exclude %s", pattern, name);
    }
  }
  if (filter_result.excluded != count) {
    fail_msg("'%s' excludes %zu functions, not %zu", pattern, filter_result.excluded, count);
  }
  assert_int_equal(ct_exclude_has_matched(exclude, 0), count != 0);
  ct_exclude_free(exclude);
}

#define VECTOR  "_ZNSt6vectorIiSaIiEEixEm"
#define FORWARD "_ZSt7forwardIiEOT_RNSt16remove_referenceIS0_E4typeE"

static void
names(void **state)
{
  expect("plain", "plain");
  expect("plai", "");
  expect("plain2", "");
  expect("pl*", "plain");
  expect("memory_copy", "copy_alias"); /* by either name */
  expect("copy_alias", "copy_alias");
  expect("part", "part.isra.0");
  expect("part.isra.0", "part.isra.0");
  expect("part.isra", "");
  expect("versioned", "versioned");
}

static void
demangled_names(void **state)
{
  expect("_ZN3foo3barEi", "_ZN3foo3barEi");
  expect("foo::bar", "_ZN3foo3barEi");
  expect("foo::bar(int)", "_ZN3foo3barEi");
  expect("foo::bar(long)", "");
  expect("bar", "");
  expect("foo::baz", "_ZNK3foo3bazEv");
  expect("foo::baz() const", "_ZNK3foo3bazEv");
  expect("foo::*", "_ZN3foo3barEi _ZNK3foo3bazEv _ZN3foontEv");
  expect("foo::b*", "_ZN3foo3barEi _ZNK3foo3bazEv");
  expect("std::vector<*>::operator[]*", VECTOR);
  expect("std::vector<int, std::allocator<int> >::operator[]", VECTOR);
  expect("std::*", VECTOR " " FORWARD); /* the return type of a template is no part of its name */
  expect("std::forward<int>", FORWARD);
  expect("other::forward<int>", "_ZN5other7forwardIiEESt6vectorIiSaIiEET_");
  expect("foo::operator!", "_ZN3foontEv");
  expect("crate_one::main", "_ZN9crate_one4main17h0123456789abcdefE");
}

static void
modules(void **state)
{
  expect("libthing-2.so!plain", "plain");
  expect("libthing.so.1!plain", "plain"); /* the soname */
  expect("/usr/lib/libthing-2.so!plain", "plain");
  expect("/usr/*!plain", "plain");
  expect("libthing*!pl*", "plain");
  expect("libthing!plain", "");
  expect("libother.so!plain", "");
  expect("lib[!o]*!plain", "plain");
  expect("libthing*!foo::operator!", "_ZN3foontEv");
  struct ct_exclude *exclude = with("libthing.so.1!", NULL);
  choose(exclude, "libthing-2.so");
  assert_int_equal(filter_result.excluded, plan->hooked);
  ct_exclude_free(exclude);
}

/* Who must find its return address, or has a callout, keeps a trampoline; who has no hook anyway keeps its reason. */
static void
what_becomes_of_them(void **state)
{
  struct ct_exclude *exclude = with("*", NULL);
  choose(NULL, "x");
  assert_null(filter_result.requested_modes);
  assert_int_equal(filter_result.excluded, 0);
  assert_int_not_equal(planned("touches")->why_enter, 0);
  for (int round = 0; round < 2; round++) {
    choose(exclude, "x");
    assert_int_equal(filter_result.excluded, plan->hooked);
    assert_int_equal(requested_mode("plain"), CT_REQUESTED_NONE);
    assert_int_equal(requested_mode("touches"), CT_REQUESTED_PASSTHROUGH);
    assert_int_equal(requested_mode("prctl"), CT_REQUESTED_PASSTHROUGH);
    assert_int_equal(requested_mode("execve"), CT_REQUESTED_PASSTHROUGH);
    assert_int_equal(filter_result.passthrough, 3);
  }
  assert_true(ct_exclude_has_matched(exclude, 0));
  ct_exclude_free(exclude);
}

/* Each pattern is told about by itself, even where another one has been there before. */
static void
which_have_matched(void **state)
{
  struct ct_exclude *exclude = with("*", "plain", "pl*", "nothing", "other!plain", "short_one", NULL);
  static const bool expected[] = {true, true, true, false, false, true};
  assert_false(ct_exclude_has_matched(exclude, 0));
  choose(exclude, "x");
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(ct_exclude_has_matched(exclude, i), expected[i]);
  }
  assert_string_equal(ct_exclude_pattern(exclude, 3), "nothing");
  assert_null(ct_exclude_pattern(exclude, 6));
  assert_false(ct_exclude_has_matched(exclude, 6));
  choose(exclude, "other");
  assert_true(ct_exclude_has_matched(exclude, 4));
  ct_exclude_free(exclude);
}

/* More than any table begins with. */
static void
many_patterns(void **state)
{
  struct ct_exclude *exclude = ct_exclude_create();
  assert_non_null(exclude);
  for (int i = 0; i < 3000; i++) {
    char name[32];
    snprintf(name, sizeof(name), i == 1500 ? "foo::bar" : i == 2999 ? "plain" : "name_%d", i);
    assert_int_equal(ct_exclude_add(exclude, name, NULL), CT_OK);
  }
  choose(exclude, "x");
  assert_int_equal(filter_result.excluded, 2);
  for (size_t i = 0; i < 3000; i++) {
    assert_int_equal(ct_exclude_has_matched(exclude, i), i == 1500 || i == 2999);
  }
  ct_exclude_free(exclude);
}

static void
malformed(void **state)
{
  static const struct {
    const char *pattern, *reason;
  } table[] = {{"", "empty"},           {"!", "no module"},     {"!foo", "no module"},  {"a[!b", "no ']'"},
               {"lib[a!foo", "no ']'"}, {"lib!foo[", "no ']'"}, {"@", "@leaf"},         {"@file:x", "@leaf"},
               {"@leaf:", "1 to"},      {"@leaf:0", "1 to"},    {"@leaf:1025", "1 to"}, {"@leaf:+1", "1 to"},
               {"x!@leaf:1x", "1 to"}};
  struct ct_exclude *exclude = ct_exclude_create();
  assert_non_null(exclude);
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    struct ct_diag diag = {""};
    assert_int_equal(ct_exclude_add(exclude, table[i].pattern, &diag), CT_EINVAL);
    if (strstr(diag.text, table[i].reason) == NULL) {
      fail_msg("'%s': %s", table[i].pattern, diag.text);
    }
  }
  assert_true(ct_exclude_is_empty(exclude));
  assert_true(ct_exclude_is_empty(NULL));
  ct_exclude_free(exclude);
  ct_exclude_free(NULL);
}

static void
files(void **state)
{
  char path[128];
  struct ct_diag diag = {""};
  struct ct_exclude *exclude = ct_exclude_create();
  snprintf(path, sizeof(path), "%s/list", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs("# a comment\n\n  plain  \r\nfoo::bar(int)\nlast", file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(ct_exclude_add_file(exclude, path, &diag), CT_OK);
  assert_string_equal(ct_exclude_pattern(exclude, 0), "plain");
  assert_string_equal(ct_exclude_pattern(exclude, 1), "foo::bar(int)");
  assert_string_equal(ct_exclude_pattern(exclude, 2), "last");
  assert_null(ct_exclude_pattern(exclude, 3));
  file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs("good\n\nbad[\nnever\n", file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(ct_exclude_add_file(exclude, path, &diag), CT_EINVAL);
  assert_non_null(strstr(diag.text, "list:3: 'bad[': no ']'"));
  assert_int_equal(ct_exclude_add_file(exclude, "/nowhere/at/all", &diag), CT_ENOENT);
  assert_non_null(strstr(diag.text, "/nowhere/at/all"));
  assert_int_equal(ct_exclude_add_file(exclude, folder, &diag), CT_EIO);
  ct_exclude_free(exclude);
}

struct seen {
  char *patterns[2000];
  size_t count;
  size_t longest;
};

static int
look_at(void *context, const struct ct_hot *group, const char *pattern)
{
  struct seen *seen = context;
  for (size_t i = 0; i < seen->count; i++) {
    assert_string_not_equal(seen->patterns[i], pattern);
  }
  assert_true(seen->count < sizeof(seen->patterns) / sizeof(seen->patterns[0]));
  seen->patterns[seen->count++] = strdup(pattern);
  seen->longest = strlen(pattern) > seen->longest ? strlen(pattern) : seen->longest;
  assert_non_null(group->what);
  return 0;
}

static int
stop_at_the_third(void *context, const struct ct_hot *group, const char *pattern)
{
  return ++*(int *)context == 3 ? 7 : 0;
}

static void
the_built_in_list(void **state)
{
  struct ct_exclude *exclude = ct_exclude_create();
  struct ct_diag diag = {""};
  static struct seen seen;
  int turns = 0;
  assert_false(ct_exclude_has_hot(exclude));
  if (ct_exclude_add_hot(exclude, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  assert_int_equal(ct_exclude_add_hot(exclude, &diag), CT_OK);
  assert_true(ct_exclude_has_hot(exclude));
  assert_false(ct_exclude_is_empty(exclude));
  assert_null(ct_exclude_pattern(exclude, 0)); /* those are of the user only */
  assert_int_equal(ct_hot_each(look_at, &seen), 0);
  assert_true(seen.count > 300 && seen.longest < 200);
  while (seen.count > 0) {
    free(seen.patterns[--seen.count]);
  }
  assert_int_equal(ct_hot_each(stop_at_the_third, &turns), 7);
  assert_int_equal(turns, 3);
  choose(exclude, "x");
  assert_int_not_equal(requested_mode(VECTOR), CT_REQUESTED_HOOK);
  assert_int_not_equal(requested_mode(FORWARD), CT_REQUESTED_HOOK);
  ct_exclude_free(exclude);
}

/* Leaves are told by their code. */
static void
leaves(void **state)
{
  struct ct_exclude *exclude = with("@leaf:64", NULL);
  choose(exclude, "x");
  assert_int_not_equal(requested_mode("plain"), CT_REQUESTED_HOOK);
  assert_int_not_equal(requested_mode("_ZN3foo3barEi"), CT_REQUESTED_HOOK);
  assert_int_equal(requested_mode("caller"), CT_REQUESTED_HOOK);
  assert_int_equal(requested_mode("jumper"), CT_REQUESTED_HOOK);
  assert_int_equal(requested_mode("asker"), CT_REQUESTED_HOOK);
  assert_int_equal(requested_mode("touches"), CT_REQUESTED_PASSTHROUGH);
  assert_true(ct_exclude_has_matched(exclude, 0));
  ct_exclude_free(exclude);
  exclude = with("@leaf:7", "/usr/*!@leaf:8", NULL); /* plain has 8 bytes */
  choose(exclude, "other.so");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_HOOK);
  assert_false(ct_exclude_has_matched(exclude, 1));
  choose(exclude, "/usr/lib/x.so");
  assert_int_not_equal(requested_mode("plain"), CT_REQUESTED_HOOK);
  assert_true(ct_exclude_has_matched(exclude, 1));
  ct_exclude_free(exclude);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names),
      cmocka_unit_test(demangled_names),
      cmocka_unit_test(modules),
      cmocka_unit_test(what_becomes_of_them),
      cmocka_unit_test(which_have_matched),
      cmocka_unit_test(many_patterns),
      cmocka_unit_test(malformed),
      cmocka_unit_test(files),
      cmocka_unit_test(the_built_in_list),
      cmocka_unit_test(leaves),
  };
  return cmocka_run_group_tests_name("exclude", tests, set_up, tear_down);
}
