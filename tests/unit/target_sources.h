/* SPDX-License-Identifier: MIT */
/* Sources and files that the tests of src/target share. */
#ifndef CT_TESTS_TARGET_SOURCES_H
#define CT_TESTS_TARGET_SOURCES_H

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "folder.h"
#include "target/functions.h"

static const char program_source[] =
    "#include <stdio.h>\n"
    "#include <stdlib.h>\n"
    "__attribute__((noinline)) int whole(int x) { return x * 3 + 1; }\n"
    "__attribute__((noinline)) static int hidden_one(int x) { return x + whole(x); }\n"
    "extern int also_whole(int) __attribute__((alias(\"whole\")));\n"
    "extern int __under(int) __attribute__((alias(\"whole\"), weak));\n"
    "__attribute__((cold, noinline)) void fail(const char *s) { puts(s); abort(); }\n"
    "__attribute__((noinline)) int splits(int x, int *p) { if (__builtin_expect(x > 1000, 0)) { *p = x; fail(\"big\");"
    " } return whole(x) + *p; }\n"
    "static int fast(void) { return 1; }\n"
    "static void *choose(void) { return fast; }\n"
    "int chosen(void) __attribute__((ifunc(\"choose\")));\n"
    "int main(int c, char **v) { (void)v; return hidden_one(c) + splits(c, &c) + chosen(); }\n";

static const char rows_source[] = "  .text\n"
                                  "  .globl rows\n"
                                  "  .type rows, @function\n"
                                  "rows:\n"
                                  "  .cfi_startproc\n"
                                  "  push %rbp\n"
                                  "  .cfi_def_cfa_offset 16\n"
                                  "  .cfi_offset 6, -16\n"
                                  "  mov %rsp, %rbp\n"
                                  "  .cfi_def_cfa_register 6\n"
                                  "  .cfi_remember_state\n"
                                  "inside:\n"
                                  "  pop %rbp\n"
                                  "  .cfi_def_cfa 7, 8\n"
                                  "  ret\n"
                                  "  .cfi_restore_state\n"
                                  "  nop\n"
                                  "  .cfi_undefined 16\n"
                                  "  nop\n"
                                  "  .cfi_restore 16\n"
                                  "  nop\n"
                                  "  .cfi_escape 0x0f, 3, 0x77, 8, 0x06\n" /* def_cfa_expression: breg7+8, deref */
                                  "  nop\n"
                                  "  .cfi_escape 0x2e, 0x10\n" /* GNU_args_size */
                                  "  .cfi_def_cfa 10, 32\n"
                                  "  ret\n"
                                  "  .cfi_endproc\n"
                                  "  .size rows, .-rows\n"
                                  "  .type inside, @function\n"
                                  "  .size inside, 2\n"
                                  "  .globl signal_return\n"
                                  "  .type signal_return, @function\n"
                                  "signal_return:\n"
                                  "  .cfi_startproc\n"
                                  "  .cfi_signal_frame\n"
                                  "  mov $15, %eax\n"
                                  "  syscall\n"
                                  "  .cfi_endproc\n"
                                  "  .size signal_return, .-signal_return\n"
                                  "  .globl pushed\n"
                                  "  .type pushed, @function\n"
                                  "pushed:\n"
                                  "  .cfi_startproc\n"
                                  "  .cfi_def_cfa_offset 16\n"
                                  "  ret\n"
                                  "  .cfi_endproc\n"
                                  "  .size pushed, .-pushed\n"
                                  "  .globl without_cfi\n"
                                  "  .type without_cfi, @function\n"
                                  "without_cfi:\n"
                                  "  nop\n"
                                  "  nop\n"
                                  "  ret\n"
                                  "untyped_without_fde:\n"
                                  "  ret\n"
                                  "untyped_with_fde:\n"
                                  "  .cfi_startproc\n"
                                  "  ret\n"
                                  "  .cfi_endproc\n"
                                  "  .type \"tab\tname\", @function\n"
                                  "\"tab\tname\":\n"
                                  "  ret\n"
                                  "  .data\n"
                                  "  .globl not_code\n"
                                  "  .type not_code, @function\n"
                                  "not_code: .quad 0\n"
                                  "  .section .note.GNU-stack,\"\",@progbits\n";

static inline uint8_t *
get_file(const char *path, size_t *size)
{
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*size);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

/* Opens with a debug root that holds nothing but what the test puts there. */
static inline struct ct_elf *
open_file_with(const char *name, uint32_t sources)
{
  char root[128];
  struct ct_elf *elf = NULL;
  struct ct_diag diag = {{0}};
  snprintf(root, sizeof(root), "%s/root", folder);
  struct ct_elf_options options = {.debug_root = root, .sources = sources};
  int fd = open(in_folder(name), O_RDONLY);
  assert_true(fd >= 0);
  if (ct_elf_open_fd(fd, in_folder(name), &options, &elf, &diag) != CT_OK) {
    fail_msg("%s: %s", name, diag.text);
  }
  close(fd);
  return elf;
}

static inline struct ct_elf *
open_file(const char *name)
{
  return open_file_with(name, 0);
}

static inline size_t
list(struct ct_elf *elf, const struct ct_function **functions)
{
  size_t count;
  assert_int_equal(ct_elf_functions(elf, functions, &count, NULL), CT_OK);
  for (size_t i = 1; i < count; i++) {
    assert_true((*functions)[i - 1].address < (*functions)[i].address);
  }
  return count;
}

static const struct ct_function *
find(struct ct_elf *elf, const char *name)
{
  const struct ct_function *functions;
  size_t count = list(elf, &functions);
  for (size_t i = 0; i < count; i++) {
    if (functions[i].name != NULL && strcmp(functions[i].name, name) == 0) {
      return &functions[i];
    }
  }
  return NULL;
}

static inline bool
has_alias(const struct ct_elf *elf, const struct ct_function *function, const char *name)
{
  const char *alias;
  for (size_t n = 0; (alias = ct_function_alias(elf, function, n)) != NULL; n++) {
    if (strcmp(alias, name) == 0) {
      return true;
    }
  }
  return false;
}

static inline int
set_up(void **state)
{
  if (make_folder(state) != 0) {
    return -1;
  }
  put_file("prog.c", program_source, strlen(program_source));
  put_file("rows.s", rows_source, strlen(rows_source));
  return shell("mkdir root && gcc -O2 -Wl,--build-id=sha1 -o prog prog.c");
}

#endif
