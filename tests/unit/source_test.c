/* SPDX-License-Identifier: MIT */
/* Paths of source files; and what is not where one would look: nested functions, assembly, parts of functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "target/functions.h"
#include "target/source.h"

static char folder[64];

static const char c_source[] = "volatile int sink; __attribute__((cold, noinline)) void rarely(int n) { sink = n; }\n"
                               "void take(int (*f)(int)) { sink = f(1); }\n"
                               "int\n"
                               "outer(int n)\n"
                               "{\n"
                               "  int inner(int m) { return m + n; }\n"
                               "  take(inner);\n"
                               "  if (n == 77) { rarely(n); sink = 3; rarely(4); }\n"
                               "  return n;\n"
                               "}\n";
static const char assembly[] = ".section .note.GNU-stack, \"\", @progbits\n"
                               ".text\n.globl by_hand\n.type by_hand, @function\n"
                               "by_hand:\n"
                               ".cfi_startproc\n mov %rdi, %rax\n ret\n.cfi_endproc\n.size by_hand, .-by_hand\n";

static int
set_up(void **state)
{
  char path[128], command[512];
  snprintf(folder, sizeof(folder), "/tmp/source_test.XXXXXX");
  if (mkdtemp(folder) == NULL) {
    return -1;
  }
  const struct {
    const char *name, *text;
  } files[] = {{"code.c", c_source}, {"hand.s", assembly}};
  for (size_t i = 0; i < 2; i++) {
    snprintf(path, sizeof(path), "%s/%s", folder, files[i].name);
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(files[i].text, file) < 0 || fclose(file) != 0) {
      return -1;
    }
  }
  snprintf(command, sizeof(command),
           "cd %s && gcc -g -O2 -fno-inline -shared -fPIC -z execstack -o both.so code.c hand.s && "
           "gcc -g0 -O2 -shared -fPIC -o none.so hand.s",
           folder);
  return system(command);
}

static int
tear_down(void **state)
{
  char command[128];
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

static void
paths(void **state)
{
  static const struct {
    const char *path, *expected;
  } table[] = {{"", ""},
               {"/", "/"},
               {"a", "a"},
               {"/a/b.c", "/a/b.c"},
               {"/a//b///c.c", "/a/b/c.c"},
               {"/a/./b.c", "/a/b.c"},
               {"./a.c", "a.c"},
               {"/a/b/../c.c", "/a/c.c"},
               {"/a/../../c.c", "/c.c"},
               {"/..", "/"},
               {"a/../b.c", "b.c"},
               {"a/..", ""},
               {"../a.c", "../a.c"},
               {"../../a/../b.c", "../../b.c"},
               {"a/../../b.c", "../b.c"},
               {"/a/b/", "/a/b"},
               {"/a/..b/c", "/a/..b/c"},
               {"/a/.b/c.", "/a/.b/c."}};
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
    char *path = strdup(table[i].path); /* exactly as long as it is, for a sanitizer */
    assert_non_null(path);
    ct_source_path_normalize(path);
    if (strcmp(path, table[i].expected) != 0) {
      fail_msg("'%s' becomes '%s', not '%s'", table[i].path, path, table[i].expected);
    }
    free(path);
  }
}

static struct ct_sources *
read_sources(struct ct_elf *elf, const struct ct_function **functions, size_t *count)
{
  struct ct_sources *sources = NULL;
  assert_int_equal(ct_elf_functions(elf, functions, count, NULL), CT_OK);
  uint64_t *addresses = calloc(*count + 1, sizeof(*addresses));
  assert_non_null(addresses);
  for (size_t i = 0; i < *count; i++) {
    addresses[i] = (*functions)[i].address;
  }
  int code = ct_sources_read(elf, addresses, *count, &sources);
  free(addresses);
  assert_true(code == CT_OK || code == CT_ENOENT);
  return sources;
}

static void
unusual_functions(void **state)
{
  static const struct {
    const char *prefix, *file;
    uint32_t line;
  } expected[] = {{"take", "code.c", 2}, {"outer", "code.c", 4}, {"inner.", "code.c", 6}, {"by_hand", "hand.s", 0}};
  char path[128], file[192];
  struct ct_elf *elf;
  const struct ct_function *functions;
  size_t count, parts = 0;
  snprintf(path, sizeof(path), "%s/both.so", folder);
  assert_int_equal(ct_elf_open(path, &elf, NULL), CT_OK);
  struct ct_sources *sources = read_sources(elf, &functions, &count);
  assert_non_null(sources);
  for (size_t e = 0; e < 4; e++) {
    bool found = false;
    for (size_t i = 0; i < count; i++) {
      const char *name = functions[i].name != NULL ? functions[i].name : "";
      if (strncmp(name, expected[e].prefix, strlen(expected[e].prefix)) != 0) {
        continue;
      }
      snprintf(file, sizeof(file), "%s/%s", folder, expected[e].file);
      if (sources->functions[i].file == CT_NO_SOURCE) {
        fail_msg("%s has no file", name);
      }
      assert_string_equal(sources->files[sources->functions[i].file], file);
      if (expected[e].line != 0) {
        assert_int_equal(sources->functions[i].line, expected[e].line);
      }
      parts += strcmp(name, "outer.cold") == 0;
      found = true;
    }
    if (!found) {
      fail_msg("no function %s", expected[e].prefix);
    }
  }
  assert_int_equal(parts, 1); /* it belongs where the rest is */
  assert_int_equal(sources->file_count, 2);
  ct_sources_free(sources);
  ct_elf_close(elf);
}

static void
without_any(void **state)
{
  char path[128];
  struct ct_elf *elf;
  const struct ct_function *functions;
  size_t count;
  snprintf(path, sizeof(path), "%s/none.so", folder);
  assert_int_equal(ct_elf_open(path, &elf, NULL), CT_OK);
  assert_null(read_sources(elf, &functions, &count));
  ct_sources_free(NULL);
  ct_elf_close(elf);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paths),
      cmocka_unit_test(unusual_functions),
      cmocka_unit_test(without_any),
  };
  return cmocka_run_group_tests_name("source", tests, set_up, tear_down);
}
