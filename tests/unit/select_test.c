/* SPDX-License-Identifier: MIT */
/*
 * Selection on a small module in assembly, whose names are those of C, C++ and Rust functions: which patterns match
 * which, in which mode, and what becomes of a list that changes.
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

#include "select/select.h"

static char folder[64];
static struct ct_plan *plan, *other;
static struct ct_filter_result filter_result;

static const char source[] =
    ".section .note.GNU-stack, \"\", @progbits\n"
    ".text\n"
    ".macro fn name body:vararg\n .balign 16, 0xcc\n .globl \"\\name\"\n .type \"\\name\", @function\n \"\\name\":\n "
    ".cfi_startproc\n"
    " \\body\n push %rbx\n .cfi_adjust_cfa_offset 8\n mov %rdi, %rbx\n nop\n nop\n pop %rbx\n"
    " .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n .size \"\\name\", .-\"\\name\"\n .endm\n"
    "fn plain\n"
    "fn memory_copy\n"
    ".globl copy_alias\n.set copy_alias, memory_copy\n"
    "fn part.isra.0\n"
    "fn plain.cold\n"
    "fn versioned_1\n"
    ".symver versioned_1, versioned@@V1\n"
    "fn _ZN3foo3barEi\n"                          /* foo::bar(int) */
    "fn _ZN3foo3bazEPPc\n"                        /* foo::baz(char**) */
    "fn _ZN3foo3maxIN1a1bEEEvT_\n"                /* void foo::max<a::b>(a::b) */
    "fn _ZN3foo4deep3oneEv\n"                     /* foo::deep::one() */
    "fn _ZN3foo12_GLOBAL__N_16hiddenEv\n"         /* foo::(anonymous namespace)::hidden() */
    "fn _ZZN3foo3barEiENKUliE_clEi\n"             /* foo::bar(int)::{lambda(int)#1}::operator()(int) const */
    "fn _ZNK3fooclEv\n"                           /* foo::operator()() const */
    "fn _ZNK3fooltERKS_\n"                        /* foo::operator<(foo const&) const */
    "fn _ZNK3foocvN1a1bEEv\n"                     /* foo::operator a::b() const */
    "fn _ZNSt6vectorIiSaIiEEixEm\n"               /* std::vector<int, ...>::operator[](unsigned long) */
    "fn _ZN3foo3barEi.part.0\n"                   /* foo::bar(int) [clone .part.0] */
    "fn _ZN9crate_one4main17h0123456789abcdefE\n" /* crate_one::main */
    "fn _ZN58_$LT$crate_one..Thing$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE\n" /* <... as
                                                                                                       ...>::drop */
    "fn _Znotmangled\n"
    "fn \"two words\"\n"
    "fn touches mov (%rsp), %rax\n"
    ".globl short_one\n .type short_one, @function\n short_one:\n .cfi_startproc\n ret\n .cfi_endproc\n .size "
    "short_one, 1\n"
    "nop\nnop\nnop\n";

static int
run(const char *format, ...)
{
  char command[512];
  va_list ap;
  va_start(ap, format);
  vsnprintf(command, sizeof(command), format, ap);
  va_end(ap);
  return system(command);
}

static int
write_file(const char *name, const char *text)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  return file == NULL || fputs(text, file) < 0 || fclose(file) != 0 ? -1 : 0;
}

static int
set_up(void **state)
{
  char path[128];
  struct ct_diag diag = {""};
  snprintf(folder, sizeof(folder), "/tmp/select_test.XXXXXX");
  if (mkdtemp(folder) == NULL || write_file("module.s", source) != 0 ||
      write_file("map", "V1 { global: *; };\n") != 0 || write_file("other.s", source) != 0) {
    return -1;
  }
  if (run("cd %s && gcc -shared -nostdlib -Wl,-soname,libthing.so.1,--version-script,map -o libthing-2.so module.s && "
          "gcc -shared -nostdlib -Wl,-soname,libother.so.1,--version-script,map -o libother.so other.s",
          folder) != 0) {
    return -1;
  }
  snprintf(path, sizeof(path), "%s/libthing-2.so", folder);
  if (ct_plan_create(path, &plan, &diag) != 0) {
    return -1;
  }
  snprintf(path, sizeof(path), "%s/libother.so", folder);
  return ct_plan_create(path, &other, &diag);
}

static int
tear_down(void **state)
{
  ct_filter_result_free(&filter_result);
  ct_plan_free(plan);
  ct_plan_free(other);
  return run("rm -rf %s", folder);
}

static size_t
index_of(const char *name)
{
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].name != NULL && strcmp(plan->functions[i].name, name) == 0) {
      return i;
    }
  }
  fail_msg("no function %s", name);
  return 0;
}

static void
add(struct ct_selection *selection, const char *pattern, enum ct_select_mode mode)
{
  struct ct_diag diag = {""};
  if (ct_selection_add(selection, pattern, mode, &diag) != 0) {
    fail_msg("%s: %s", pattern, diag.text);
  }
}

/* A list that NULL ends, all in mode auto. */
static struct ct_selection *
with(const char *first, ...)
{
  struct ct_selection *selection = ct_selection_create();
  va_list ap;
  assert_non_null(selection);
  va_start(ap, first);
  for (const char *pattern = first; pattern != NULL; pattern = va_arg(ap, const char *)) {
    add(selection, pattern, CT_SELECT_AUTO);
  }
  va_end(ap);
  return selection;
}

static struct ct_select_info
info(const struct ct_selection *selection, size_t n)
{
  struct ct_select_info info = {.struct_size = sizeof(info)};
  assert_int_equal(ct_selection_info(selection, n, &info), CT_OK);
  return info;
}

/* Chooses afresh; the sums hold. */
static void
choose(struct ct_selection *selection, struct ct_exclude *exclude, const char *path)
{
  size_t excluded = 0, passthrough = 0, unselected = 0, light = 0;
  ct_filter_result_free(&filter_result);
  assert_int_equal(ct_select_filter(selection, exclude, plan, path, true, &filter_result), CT_OK);
  for (size_t i = 0; i < plan->count && filter_result.requested_modes != NULL; i++) {
    bool left_out = !ct_requested_has_event(filter_result.requested_modes[i]);
    excluded += left_out;
    passthrough += filter_result.requested_modes[i] == CT_REQUESTED_PASSTHROUGH;
    light += filter_result.requested_modes[i] == CT_REQUESTED_LIGHT;
    unselected += left_out && ct_filter_result_reason(&filter_result, i) == CT_REFUSED_UNSELECTED;
    assert_true(filter_result.requested_modes[i] == CT_REQUESTED_HOOK || plan->functions[i].refusal == CT_REFUSED_NOT);
  }
  assert_int_equal(filter_result.excluded, excluded);
  assert_int_equal(filter_result.passthrough, passthrough);
  assert_int_equal(filter_result.light, light);
  assert_int_equal(filter_result.unselected, unselected);
}

static enum ct_requested_mode
requested_mode(const char *name)
{
  return ct_filter_result_mode(&filter_result, index_of(name));
}

/* One pattern alone: the functions it chooses, by the symbol's name, separated by `|`. */
static void
expect(const char *pattern, enum ct_select_kind kind, const char *names)
{
  struct ct_selection *selection = with(pattern, NULL);
  char expected[1024], *rest = NULL;
  size_t count = 0, hooked = 0;
  choose(selection, NULL, "/usr/lib/libthing-2.so");
  snprintf(expected, sizeof(expected), "%s", names);
  for (char *name = strtok_r(expected, "|", &rest); name != NULL; name = strtok_r(NULL, "|", &rest), count++) {
    bool has_hook = plan->functions[index_of(name)].refusal == CT_REFUSED_NOT;
    hooked += has_hook;
    if (has_hook && !ct_requested_has_event(requested_mode(name))) {
      fail_msg("'%s' does not choose %s", pattern, name);
    }
  }
  struct ct_select_info reported = info(selection, 0);
  if (reported.matched != count || reported.hooked != hooked || plan->hooked - filter_result.excluded != hooked) {
    fail_msg("'%s' matches %zu functions, not %zu; %zu hooked, not %zu; %zu selected", pattern, reported.matched, count,
             reported.hooked, hooked, plan->hooked - filter_result.excluded);
  }
  if (reported.kind != kind) {
    fail_msg("'%s' is %s, not %s", pattern, ct_select_kind_name(reported.kind), ct_select_kind_name(kind));
  }
  assert_string_equal(reported.pattern, pattern);
  ct_selection_free(selection);
}

#define VECTOR  "_ZNSt6vectorIiSaIiEEixEm"
#define MAX     "_ZN3foo3maxIN1a1bEEEvT_"
#define LAMBDA  "_ZZN3foo3barEiENKUliE_clEi"
#define HIDDEN  "_ZN3foo12_GLOBAL__N_16hiddenEv"
#define PART    "_ZN3foo3barEi.part.0"
#define CONVERT "_ZNK3foocvN1a1bEEv"
#define DROP    "_ZN58_$LT$crate_one..Thing$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE"

static void
exact(void **state)
{
  const enum ct_select_kind kind = CT_SELECT_EXACT;
  expect("plain", kind, "plain"); /* not plain.cold, which is a part of it */
  expect("plain.cold", kind, "plain.cold");
  expect("plai", kind, "");
  expect("copy_alias", kind, "copy_alias");
  expect("memory_copy", kind, "copy_alias");
  expect("part", kind, "part.isra.0");
  expect("versioned", kind, "versioned");
  expect("two words", kind, "two words");
  expect("short_one", kind, "short_one");
  expect("foo::bar", kind, "_ZN3foo3barEi|" PART);
  expect("foo::bar(int)", kind, "_ZN3foo3barEi");
  expect("foo::bar(long)", kind, "");
  expect("_ZN3foo3barEi", kind, "_ZN3foo3barEi");
  expect("bar", kind, "");
  expect("foo::max<a::b>", kind, MAX);
  expect("foo::max", kind, "");
  expect("foo::(anonymous namespace)::hidden", kind, HIDDEN);
  expect("foo::operator()", kind, "_ZNK3fooclEv");
  expect("foo::operator<", kind, "_ZNK3fooltERKS_");
  expect("foo::operator a::b", kind, CONVERT);
  expect("foo::bar(int)::{lambda(int)#1}::operator()", kind, LAMBDA);
  expect("std::vector<int, std::allocator<int> >::operator[]", kind, VECTOR);
  expect("crate_one::main", kind, "_ZN9crate_one4main17h0123456789abcdefE");
  expect("<crate_one::Thing as core::ops::drop::Drop>::drop", kind, DROP);
  expect("_Znotmangled", kind, "_Znotmangled");
  expect("\\@usercode", kind, "");
}

static void
one_scope(void **state)
{
  const enum ct_select_kind kind = CT_SELECT_SCOPE;
  expect("foo::*", kind, "_ZN3foo3barEi|_ZN3foo3bazEPPc|" MAX "|_ZNK3fooclEv|_ZNK3fooltERKS_|" CONVERT "|" PART);
  expect("foo::b*", kind, "_ZN3foo3barEi|_ZN3foo3bazEPPc|" PART);
  expect("foo::operator*", kind, "_ZNK3fooclEv|_ZNK3fooltERKS_|" CONVERT);
  expect("foo::baz(char**)", kind, "_ZN3foo3bazEPPc"); /* no deep one: it is part of a type */
  expect("foo::*::one", kind, "_ZN3foo4deep3oneEv");
  expect("foo::*::hidden", kind, HIDDEN);
  expect("*::drop", kind, DROP);
  expect("pl*", kind, "plain");
  expect("*.cold", kind, "");
  expect("foo*", kind, "");
  expect("_ZN3foo3ba*", kind, "_ZN3foo3barEi|_ZN3foo3bazEPPc|" PART); /* as in the symbol table */
  expect("*not*", kind, "_Znotmangled");
  expect("*words", kind, "two words");
  expect("[m-p]*", kind, "plain|copy_alias|part.isra.0");
}

static void
deep(void **state)
{
  const enum ct_select_kind kind = CT_SELECT_DEEP;
  expect("foo::**", kind,
         "_ZN3foo3barEi|_ZN3foo3bazEPPc|" MAX "|_ZN3foo4deep3oneEv|" HIDDEN "|" LAMBDA
         "|_ZNK3fooclEv|_ZNK3fooltERKS_|" CONVERT "|" PART);
  expect("foo::d**", kind, "_ZN3foo4deep3oneEv");
  expect("foo::**::one", kind, "_ZN3foo4deep3oneEv");
  expect("foo::**one", kind, "_ZN3foo4deep3oneEv");
  expect("**::operator()", kind, LAMBDA "|_ZNK3fooclEv");
  expect("**not**", kind, "_Znotmangled");
  expect("std::**", kind, VECTOR);
}

static void
modules(void **state)
{
  expect("libthing-2.so!plain", CT_SELECT_EXACT, "plain");
  expect("libthing.so.1!plain", CT_SELECT_EXACT, "plain"); /* the soname */
  expect("/usr/*!plain", CT_SELECT_EXACT, "plain");        /* in a module's glob a `*` takes a `/` */
  expect("libother*!plain", CT_SELECT_EXACT, "");
  expect("libthing*!foo::**", CT_SELECT_DEEP,
         "_ZN3foo3barEi|_ZN3foo3bazEPPc|" MAX "|_ZN3foo4deep3oneEv|" HIDDEN "|" LAMBDA
         "|_ZNK3fooclEv|_ZNK3fooltERKS_|" CONVERT "|" PART);
  struct ct_selection *selection = with("libthing.so.1!", "**", NULL);
  choose(selection, NULL, "libthing-2.so");
  assert_int_equal(filter_result.excluded, 0);
  assert_int_equal(filter_result.light, plan->hooked);
  for (size_t n = 0; n < 2; n++) {
    assert_int_equal(info(selection, n).kind, CT_SELECT_DEEP);
    assert_int_equal(info(selection, n).hooked, plan->hooked);
  }
  ct_selection_free(selection);
}

static void
malformed(void **state)
{
  static const struct {
    const char *pattern, *reason;
  } table[] = {{"", "empty"},
               {"!", "no module"},
               {"!foo", "no module"},
               {"a[!b", "no ']'"},
               {"lib[a!foo", "no ']'"},
               {"lib!foo[", "no ']'"},
               {"a\\", "backslash"},
               {"[z-a]", "runs backwards"},
               {"a\nb", "control character"},
               {"@", "@usercode"},
               {"@file", "@usercode"},
               {"@leaf:9", "@usercode"},
               {"@usercode2", "@usercode"},
               {"x!@nothing", "@usercode"},
               {"@file:", "name of a file"},
               {"@file:./", "name of a file"},
               {"@file:src/", "name of a file"},
               {"@file:a[", "no ']'"},
               {"!@usercode", "no module"}};
  struct ct_selection *selection = ct_selection_create();
  assert_non_null(selection);
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    struct ct_diag diag = {""};
    assert_int_equal(ct_selection_add(selection, table[i].pattern, CT_SELECT_AUTO, &diag), CT_EINVAL);
    if (strstr(diag.text, table[i].reason) == NULL || strchr(diag.text, '\n') != NULL) {
      fail_msg("'%s': %s", table[i].pattern, diag.text);
    }
  }
  struct ct_diag diag = {""};
  assert_int_equal(ct_selection_set_root(selection, "/nowhere/at/all", &diag), CT_EINVAL);
  assert_int_equal(ct_selection_set_root(selection, "/bin/sh", &diag), CT_EINVAL);
  assert_true(ct_selection_is_everything(selection)); /* nothing of all this was added */
  assert_true(ct_selection_is_everything(NULL));
  ct_selection_free(selection);
  ct_selection_free(NULL);
}

/* Nothing is everything, in full, until there has been a pattern. */
static void
everything(void **state)
{
  struct ct_selection *selection = ct_selection_create();
  choose(NULL, NULL, "x");
  assert_null(filter_result.requested_modes);
  choose(selection, NULL, "x");
  assert_null(filter_result.requested_modes);
  ct_selection_set_mode(selection, CT_SELECT_LIGHT);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.light, plan->hooked);
  ct_selection_set_mode(selection, CT_SELECT_FULL);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.light, 0);
  add(selection, "plain", CT_SELECT_AUTO);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.unselected, plan->hooked - 1);
  assert_int_equal(ct_selection_remove(selection, "plain"), CT_OK);
  assert_int_equal(ct_selection_remove(selection, "plain"), CT_ENOENT);
  assert_false(ct_selection_is_everything(selection));
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.unselected, plan->hooked);
  ct_selection_free(selection);
}

/* Who must find its return address, or has a callout, keeps a trampoline; who has no hook anyway keeps its reason. */
static void
what_becomes_of_the_others(void **state)
{
  struct ct_selection *selection = with("plain", "short_one", NULL);
  assert_int_not_equal(plan->functions[index_of("touches")].why_enter, 0);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_VALUES);
  assert_int_equal(requested_mode("touches"), CT_REQUESTED_PASSTHROUGH);
  assert_int_equal(requested_mode("copy_alias"), CT_REQUESTED_NONE);
  assert_int_equal(filter_result.passthrough, 1);
  ct_selection_free(selection);
}

/* Exclusion says more, and is told apart. */
static void
excluded_ones(void **state)
{
  struct ct_selection *selection = with("foo::*", "plain", NULL);
  struct ct_exclude *exclude = ct_exclude_create();
  assert_int_equal(ct_exclude_add(exclude, "foo::b*", NULL), CT_OK);
  assert_int_equal(ct_exclude_add(exclude, "copy_alias", NULL), CT_OK);
  choose(selection, exclude, "x");
  assert_int_equal(requested_mode("_ZN3foo3barEi"), CT_REQUESTED_NONE);
  assert_int_equal(ct_filter_result_reason(&filter_result, index_of("_ZN3foo3barEi")), CT_REFUSED_EXCLUDED);
  assert_int_equal(ct_filter_result_reason(&filter_result, index_of("copy_alias")), CT_REFUSED_EXCLUDED);
  assert_int_equal(ct_filter_result_reason(&filter_result, index_of("versioned")), CT_REFUSED_UNSELECTED);
  assert_int_equal(info(selection, 0).matched, 7);
  assert_int_equal(info(selection, 0).hooked, 4);
  assert_int_equal(ct_selection_refused(selection, 0, CT_REFUSED_EXCLUDED), 3);
  assert_int_equal(ct_exclude_remove(exclude, "foo::b*"), CT_OK);
  assert_int_equal(ct_exclude_remove(exclude, "foo::b*"), CT_ENOENT);
  choose(selection, exclude, "x");
  assert_int_equal(info(selection, 0).hooked, 7);
  assert_int_equal(ct_selection_refused(selection, 0, CT_REFUSED_EXCLUDED), 0);
  ct_exclude_free(exclude);
  ct_selection_free(selection);
}

/* At most ten matches in all modules together are hooked in full, until there are more. */
static void
few_and_many(void **state)
{
  struct ct_selection *selection = with("foo::**", NULL);
  uint64_t generation = ct_selection_generation(selection);
  choose(selection, NULL, "x");
  assert_int_equal(info(selection, 0).matched, 10);
  assert_int_equal(info(selection, 0).mode, CT_SELECT_FULL);
  assert_int_equal(filter_result.light, 0);
  assert_int_equal(ct_selection_generation(selection), generation);
  assert_int_equal(ct_select_count(selection, other, "y", false), CT_OK);
  assert_int_equal(ct_select_count(selection, other, "y", false), CT_OK); /* once is enough */
  assert_int_not_equal(ct_selection_generation(selection), generation);
  assert_int_equal(info(selection, 0).matched, 20);
  assert_int_equal(info(selection, 0).hooked, 10);
  assert_int_equal(info(selection, 0).mode, CT_SELECT_LIGHT);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.light, 10);
  ct_select_forget(selection, other, "y");
  ct_select_forget(selection, other, "y");
  assert_int_equal(info(selection, 0).matched, 10);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.light, 10); /* it stays so */
  ct_selection_free(selection);
}

/* Of what narrow patterns selected in full; or of all that is full; or of nothing. */
static void
whose_values(void **state)
{
  struct ct_selection *selection = ct_selection_create();
  ct_selection_set_values(selection, CT_VALUES_ALL);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_VALUES);
  ct_selection_set_mode(selection, CT_SELECT_LIGHT);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_LIGHT);
  ct_selection_set_mode(selection, CT_SELECT_AUTO);
  ct_selection_set_values(selection, CT_VALUES_AUTO);
  choose(selection, NULL, "x");
  assert_true(filter_result.requested_modes == NULL || requested_mode("plain") == CT_REQUESTED_HOOK);
  uint64_t generation = ct_selection_generation(selection);
  add(selection, "**", CT_SELECT_FULL);
  add(selection, "plain", CT_SELECT_AUTO);
  add(selection, "versioned", CT_SELECT_LIGHT);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_VALUES); /* full by both, narrow by one */
  assert_int_equal(requested_mode("versioned"), CT_REQUESTED_HOOK);
  assert_int_equal(requested_mode("short_one"), CT_REQUESTED_HOOK);
  ct_selection_set_values(selection, CT_VALUES_NONE);
  assert_true(ct_selection_generation(selection) > generation);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_HOOK);
  ct_selection_set_values(selection, CT_VALUES_ALL);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("short_one"), CT_REQUESTED_VALUES);
  ct_selection_free(selection);
}

/* What is asked for says more than the class; full says more than light. */
static void
modes(void **state)
{
  struct ct_selection *selection = ct_selection_create();
  add(selection, "plain", CT_SELECT_LIGHT);
  add(selection, "**", CT_SELECT_AUTO);
  add(selection, "versioned", CT_SELECT_AUTO);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_LIGHT);
  assert_int_equal(requested_mode("versioned"), CT_REQUESTED_VALUES);
  assert_int_equal(filter_result.light, plan->hooked - 1);
  uint64_t generation = ct_selection_generation(selection);
  add(selection, "**", CT_SELECT_FULL); /* the same pattern, another mode */
  assert_int_not_equal(ct_selection_generation(selection), generation);
  choose(selection, NULL, "x");
  assert_int_equal(filter_result.light, 0);
  assert_int_equal(info(selection, 1).asked, CT_SELECT_FULL);
  assert_int_equal(ct_selection_remove(selection, "**"), CT_OK);
  ct_selection_set_mode(selection, CT_SELECT_LIGHT);
  choose(selection, NULL, "x");
  assert_int_equal(requested_mode("plain"), CT_REQUESTED_LIGHT);
  assert_int_equal(requested_mode("versioned"), CT_REQUESTED_LIGHT);
  assert_int_equal(filter_result.unselected, plan->hooked - 2);
  ct_selection_free(selection);
}

/* The list in its order, and what each pattern matches, through random changes. */
static void
changes(void **state)
{
  static const char *const patterns[] = {"plain",     "foo::*",          "foo::**", "pl*",      "nothing",
                                         "versioned", "libthing*!plain", "**",      "other!**", "*::drop"};
  enum { COUNT = sizeof(patterns) / sizeof(patterns[0]) };
  struct ct_selection *selection = with("short_one", NULL);
  bool there[COUNT] = {false};
  unsigned seed = 1;
  for (int round = 0; round < 300; round++) {
    size_t which = (size_t)rand_r(&seed) % COUNT;
    if (there[which]) {
      assert_int_equal(ct_selection_remove(selection, patterns[which]), CT_OK);
    } else {
      add(selection, patterns[which], CT_SELECT_FULL);
    }
    there[which] = !there[which];
    struct ct_selection *fresh = with("short_one", NULL);
    for (size_t i = 0; i < COUNT; i++) {
      if (there[i]) {
        add(fresh, patterns[i], CT_SELECT_FULL);
      }
    }
    choose(fresh, NULL, "/usr/lib/libthing-2.so");
    struct ct_filter_result expected = filter_result;
    filter_result = (struct ct_filter_result){NULL};
    choose(selection, NULL, "/usr/lib/libthing-2.so");
    assert_memory_equal(filter_result.requested_modes, expected.requested_modes, plan->count);
    assert_memory_equal(filter_result.reasons, expected.reasons, plan->count);
    ct_filter_result_free(&expected);
    ct_selection_free(fresh);
  }
  ct_selection_free(selection);
}

/* What the installation could not put in is told as well. */
static void
reconciled(void **state)
{
  struct ct_selection *selection = with("pl*", NULL);
  uint8_t *late = calloc(plan->count + 1, 1);
  assert_non_null(late);
  late[index_of("plain")] = CT_REFUSED_BUSY;
  choose(selection, NULL, "x");
  assert_int_equal(info(selection, 0).hooked, 1);
  ct_select_reconcile(selection, plan, "x", late);
  assert_int_equal(info(selection, 0).hooked, 0);
  assert_int_equal(ct_selection_refused(selection, 0, CT_REFUSED_BUSY), 1);
  assert_int_equal(ct_selection_refused(selection, 1, CT_REFUSED_BUSY), 0);
  choose(selection, NULL, "x"); /* perhaps it can be now */
  assert_int_equal(info(selection, 0).hooked, 1);
  free(late);
  ct_selection_free(selection);
}

/* Without debug information @usercode is the program, and no file is known. */
static void
without_sources(void **state)
{
  struct ct_selection *selection = with("@usercode", "@file:module.s", NULL);
  assert_int_equal(ct_select_count(selection, other, "libother.so", false), CT_OK);
  choose(selection, NULL, "program");
  assert_int_equal(filter_result.light, 0);
  assert_int_equal(info(selection, 0).hooked, plan->hooked);
  assert_non_null(strstr(info(selection, 0).note, "all of the program itself: it has no debug information"));
  assert_int_equal(info(selection, 1).matched, 0);
  assert_non_null(strstr(info(selection, 1).note, "no module has debug information"));
  ct_filter_result_free(&filter_result);
  assert_int_equal(ct_select_filter(selection, NULL, other, "libother.so", false, &filter_result), CT_OK);
  assert_int_equal(filter_result.unselected, other->hooked);
  ct_selection_free(selection);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact),
      cmocka_unit_test(one_scope),
      cmocka_unit_test(deep),
      cmocka_unit_test(modules),
      cmocka_unit_test(malformed),
      cmocka_unit_test(everything),
      cmocka_unit_test(what_becomes_of_the_others),
      cmocka_unit_test(excluded_ones),
      cmocka_unit_test(few_and_many),
      cmocka_unit_test(modes),
      cmocka_unit_test(whose_values),
      cmocka_unit_test(changes),
      cmocka_unit_test(reconciled),
      cmocka_unit_test(without_sources),
  };
  return cmocka_run_group_tests_name("select", tests, set_up, tear_down);
}
