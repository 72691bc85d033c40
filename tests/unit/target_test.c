/* SPDX-License-Identifier: MIT */
/*
 * The readers of src/target against files made on the spot from small sources, in all the forms in which programs come
 * (whole, stripped, with a separate debug file, with mini debug info, static, without section headers), against the
 * system's libc, and against damaged copies. A test that needs a tool that is missing is skipped.
 *
 * Longer than others: all cases build on the same few sources and compilers' calls, which are made once.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>
#include <limits.h>

#include "target/functions.h"
#include "target/golang.h"

static char folder[64];

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

/* Runs a shell command in the folder of the test files. */
static int
shell(const char *fmt, ...)
{
  char command[4096];
  va_list ap;
  int used = snprintf(command, sizeof(command), "cd %s && { ", folder);
  va_start(ap, fmt);
  used += vsnprintf(command + used, sizeof(command) - (size_t)used, fmt, ap);
  va_end(ap);
  snprintf(command + used, sizeof(command) - (size_t)used, "; } >log 2>&1");
  return system(command);
}

#define NEED(...)                                                                                                      \
  do {                                                                                                                 \
    if (shell(__VA_ARGS__) != 0)                                                                                       \
      skip();                                                                                                          \
  } while (0)

static const char *
in_folder(const char *name)
{
  static char path[256];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}

static void
put_file(const char *name, const void *bytes, size_t size)
{
  FILE *file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
}

static uint8_t *
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
static struct ct_elf *
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

static struct ct_elf *
open_file(const char *name)
{
  return open_file_with(name, 0);
}

static size_t
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

static bool
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

static void
whole_program(void **state)
{
  struct ct_elf *elf = open_file("prog");
  const struct ct_function *f = find(elf, "whole");

  assert_non_null(f);
  assert_int_equal(f->entry, CT_ENTRY_CALLABLE);
  assert_int_not_equal(f->size, 0);
  assert_int_equal(f->sources, CT_SRC_SYMTAB | CT_SRC_EHFRAME);
  assert_true(has_alias(elf, f, "also_whole"));
  assert_true(has_alias(elf, f, "__under"));
  assert_false(has_alias(elf, f, "whole"));
  assert_ptr_equal(ct_elf_function_at(elf, f->address), f);
  assert_ptr_equal(ct_elf_function_around(elf, f->address + f->size - 1), f);
  assert_null(ct_elf_function_at(elf, f->address + 1));
  assert_non_null(ct_elf_bytes(elf, f->address, f->size));
  assert_true(ct_elf_is_code(elf, f->address));

  assert_non_null(find(elf, "hidden_one"));
  f = find(elf, "chosen");
  assert_non_null(f);
  assert_true((f->flags & CT_FN_IFUNC) != 0);
  f = find(elf, "_start");
  assert_non_null(f);
  assert_int_equal(f->entry, CT_ENTRY_ODD_CFI); /* its return address is undefined */
  assert_int_equal(f->address, ct_elf_entry(elf));
  f = find(elf, "splits.cold");
  if (f != NULL) {
    assert_true((f->flags & CT_FN_PART) != 0);
  }

  assert_int_equal(ct_elf_type(elf), ET_DYN);
  assert_non_null(ct_elf_interp(elf));
  assert_null(ct_elf_soname(elf));
  assert_null(ct_elf_debug_path(elf));
  assert_int_equal(strlen(ct_elf_build_id(elf)), 40);
  uint64_t address;
  assert_int_equal(ct_elf_symbol(elf, "whole", &address), CT_OK);
  assert_int_equal(address, find(elf, "whole")->address);
  assert_int_equal(ct_elf_symbol(elf, "no such symbol", &address), CT_ENOENT);
  ct_elf_close(elf);
}

static void
layout(void **state)
{
  struct ct_elf *elf = open_file("prog");
  const struct ct_elf_segment *segments;
  const struct ct_elf_section *sections;
  bool plt = false, text = false;

  size_t count = ct_elf_segments(elf, &segments);
  assert_true(count >= 2);
  for (size_t i = 0; i < count; i++) {
    assert_non_null(ct_elf_bytes(elf, segments[i].address, segments[i].file_bytes));
    assert_null(ct_elf_bytes(elf, segments[i].address, segments[i].file_bytes + 1));
    assert_int_equal(ct_elf_bytes_left(elf, segments[i].address), segments[i].file_bytes);
  }
  assert_null(ct_elf_bytes(elf, UINT64_MAX, 1));
  assert_null(ct_elf_bytes(elf, UINT64_MAX - 4, 16));
  count = ct_elf_exec_sections(elf, &sections);
  for (size_t i = 0; i < count; i++) {
    plt |= sections[i].is_plt;
    text |= strcmp(sections[i].name, ".text") == 0;
    assert_ptr_equal(ct_elf_exec_section_at(elf, sections[i].address), &sections[i]);
  }
  assert_true(plt && text);
  const struct ct_function *functions;
  count = list(elf, &functions);
  for (size_t i = 0; i < count; i++) {
    const struct ct_elf_section *section = ct_elf_exec_section_at(elf, functions[i].address);
    assert_int_equal((functions[i].flags & CT_FN_PLT) != 0, section != NULL && section->is_plt);
    assert_int_not_equal(functions[i].size, 0);
  }
  ct_elf_close(elf);
}

/* The same functions, but for those without an FDE, and no names. */
static void
stripped_program(void **state)
{
  NEED("strip -o prog.stripped prog");
  struct ct_elf *whole = open_file("prog"), *elf = open_file("prog.stripped");
  const struct ct_function *functions;
  char label[64], expected[64];

  list(elf, &functions);
  size_t count = list(whole, &functions);
  for (size_t i = 0; i < count; i++) {
    if ((functions[i].sources & CT_SRC_EHFRAME) == 0) {
      continue;
    }
    const struct ct_function *f = ct_elf_function_at(elf, functions[i].address);
    assert_non_null(f);
    assert_int_equal(f->entry, functions[i].entry);
    assert_int_equal(f->sources, CT_SRC_EHFRAME);
    assert_null(f->name);
    snprintf(expected, sizeof(expected), "prog.stripped+0x%llx", (unsigned long long)f->address);
    assert_string_equal(ct_function_label(label, sizeof(label), ct_elf_path(elf), f), expected);
  }
  ct_elf_close(whole);
  ct_elf_close(elf);
}

static void
assert_names_from_debugfile(const char *program, const char *debug)
{
  struct ct_elf *elf = open_file(program);
  assert_non_null(ct_elf_debug_path(elf));
  assert_string_equal(ct_elf_debug_path(elf), in_folder(debug));
  const struct ct_function *f = find(elf, "hidden_one");
  assert_non_null(f);
  assert_int_equal(f->sources, CT_SRC_DEBUGFILE | CT_SRC_EHFRAME);
  uint64_t address;
  assert_int_equal(ct_elf_symbol(elf, "hidden_one", &address), CT_OK);
  assert_int_equal(address, f->address);
  ct_elf_close(elf);
  elf = open_file_with(program, CT_SRC_DYNSYM | CT_SRC_EHFRAME);
  assert_null(ct_elf_debug_path(elf));
  assert_null(find(elf, "hidden_one"));
  ct_elf_close(elf);
}

static void
assert_no_debugfile(const char *program)
{
  struct ct_elf *elf = open_file(program);
  assert_null(ct_elf_debug_path(elf));
  assert_null(find(elf, "hidden_one"));
  ct_elf_close(elf);
}

static void
debug_file_by_link(void **state)
{
  /* by the checksum, in each of the places; then by the build-id */
  NEED("mkdir -p l && gcc -O2 -Wl,--build-id=none -o l/p prog.c && cd l && objcopy --only-keep-debug p p.debug && "
       "strip p && objcopy --add-gnu-debuglink=p.debug p");
  assert_names_from_debugfile("l/p", "l/p.debug");
  NEED("mkdir -p l/.debug && mv l/p.debug l/.debug/");
  assert_names_from_debugfile("l/p", "l/.debug/p.debug");
  NEED("mkdir -p root/$(realpath l) && mv l/.debug/p.debug root/$(realpath l)/");
  char expected[PATH_MAX + 32];
  char real[PATH_MAX];
  assert_non_null(realpath(in_folder("l"), real));
  snprintf(expected, sizeof(expected), "root%s/p.debug", real);
  assert_names_from_debugfile("l/p", expected);
  NEED("mv root/$(realpath l)/p.debug l/ && printf x >>l/p.debug");
  assert_no_debugfile("l/p"); /* its checksum is wrong now */
}

static void
debug_file_by_build_id(void **state)
{
  NEED("mkdir -p i && cp prog i/p && cd i && objcopy --only-keep-debug p p.debug && strip p && "
       "objcopy --add-gnu-debuglink=p.debug p");
  assert_names_from_debugfile("i/p", "i/p.debug");
  NEED("printf x >>i/p.debug");
  assert_names_from_debugfile("i/p", "i/p.debug"); /* the same build-id: no checksum is made */

  struct ct_elf *elf = open_file("i/p");
  char place[128];
  snprintf(place, sizeof(place), "root/.build-id/%.2s/%s.debug", ct_elf_build_id(elf), ct_elf_build_id(elf) + 2);
  ct_elf_close(elf);
  NEED("mkdir -p $(dirname %s) && mv i/p.debug %s", place, place);
  assert_names_from_debugfile("i/p", place);
  NEED("gcc -O2 -o other prog.c -DOTHER -Wl,--build-id=0x0102030405 && objcopy --only-keep-debug other %s", place);
  assert_no_debugfile("i/p"); /* another file's build-id */
  NEED("rm %s", place);
}

static void
debug_link_stays_in_its_folder(void **state)
{
  NEED("mkdir -p m/sub && cp l/p.debug m/p.debug 2>/dev/null || objcopy --only-keep-debug prog m/p.debug; "
       "cp prog m/sub/p && strip m/sub/p && printf '../p.debug\\0\\0' >m/link && printf 'abcd' >>m/link && "
       "objcopy --add-section .gnu_debuglink=m/link m/sub/p");
  assert_no_debugfile("m/sub/p");
}

static void
mini_debug_info(void **state)
{
  NEED("nm -D prog --format=posix --defined-only | awk '{print $1}' | sort >dyn; "
       "nm prog --format=posix --defined-only | awk '$2==\"T\"||$2==\"t\"{print $1}' | sort >all; "
       "comm -13 dyn all >keep; objcopy -S --remove-section .gnu_debuglink --remove-section .comment "
       "--keep-symbols=keep prog mini && rm -f mini.xz && xz mini && cp prog prog.mini && strip prog.mini && "
       "objcopy --add-section .gnu_debugdata=mini.xz prog.mini");
  struct ct_elf *elf = open_file("prog.mini");
  const struct ct_function *f = find(elf, "hidden_one");
  assert_non_null(f);
  assert_int_equal(f->sources, CT_SRC_MINIDEBUG | CT_SRC_EHFRAME);
  uint64_t address;
  assert_int_equal(ct_elf_symbol(elf, "hidden_one", &address), CT_OK);
  assert_int_equal(address, f->address);
  ct_elf_close(elf);
}

static void
static_program(void **state)
{
  NEED("gcc -O2 -static -o prog.static prog.c");
  struct ct_elf *elf = open_file("prog.static");
  assert_int_equal(ct_elf_type(elf), ET_EXEC);
  assert_null(ct_elf_interp(elf));
  assert_non_null(find(elf, "hidden_one"));
  const struct ct_function *f = find(elf, "malloc");
  assert_non_null(f);
  assert_int_equal(f->entry, CT_ENTRY_CALLABLE);
  ct_elf_close(elf);
}

static void
dwarf_without_symbols(void **state)
{
  NEED("gcc -O2 -g -o prog.g prog.c && strip -s --keep-section='.debug_*' -o prog.dwarf prog.g");
  struct ct_elf *whole = open_file("prog.g");
  struct ct_elf *elf = open_file("prog.dwarf");
  const struct ct_function *f = find(elf, "hidden_one"), *g = find(whole, "hidden_one");
  if (f == NULL) {
    ct_elf_close(elf);
    ct_elf_close(whole);
    skip(); /* this strip kept no debug information */
  }
  assert_int_equal(f->sources, CT_SRC_DWARF | CT_SRC_EHFRAME);
  assert_int_equal(f->address, g->address);
  assert_int_equal(f->size, g->size);
  assert_int_equal(g->sources & CT_SRC_DWARF, 0);
  ct_elf_close(elf);
  ct_elf_close(whole);
}

/* What the loader needs is enough. */
/* A table as Go 1.18 writes it, of two functions and one whose name lies outside; and tables that are none. */
static const char go_source[] = "  .text\n  .globl _start\n"
                                "begin: nop\n_start: ret\n  .p2align 4\n"
                                "one: ret\n  .p2align 4\n"
                                "two: ret\n  .p2align 4\n"
                                "three: ret\n  .p2align 4\n"
                                "end:\n.ifdef MORE\n  .fill MORE\n.endif\n"
                                "  .section .gopclntab,\"a\"\n"
                                "table: .long MAGIC\n  .byte 0, 0, 1, 8\n"
                                "  .quad COUNT, 0\n.ifdef NO_TEXT\n  .quad 0\n.else\n  .quad begin\n.endif\n"
                                "  .quad names - table, 0, 0, 0, entries - table\n"
                                "names: .asciz \"main.one\"\nsecond: .asciz \"main.(*T).two\"\n  .p2align 3\n"
                                "entries: .long one - begin, first_of - entries, two - begin, second_of - entries\n"
                                "  .long three - begin, third_of - entries, end - begin, 0\n"
                                "first_of: .long one - begin, 0\n"
                                "second_of: .long two - begin, second - names\n"
                                "third_of: .long three - begin, 0x7fffffff\n"
                                ".ifdef MODULE\n"
                                "  .section .go.module,\"aw\"\n  .quad 0, table\n  .fill 15, 8, 0\n  .quad entries\n"
                                "  .fill 3, 8, 0\n  .quad one + MODULE, end, begin, end\n.endif\n";

static void
go_functions(void **state)
{
  static const struct {
    const char *flags;
    size_t functions;
  } tables[] = {{"-Wa,--defsym,MAGIC=0xfffffff0 -Wa,--defsym,COUNT=3", 3},
                {"-Wa,--defsym,MAGIC=0xfffffff1 -Wa,--defsym,COUNT=3", 3},
                {"-Wa,--defsym,MAGIC=0xfffffffb -Wa,--defsym,COUNT=3", 0},
                {"-Wa,--defsym,MAGIC=0xfffffff0 -Wa,--defsym,COUNT=0x1000000000000000", 0},
                /* Go 1.26: by its moduledata; by .text that it covers; not by a moduledata that says something else. */
                {"-Wa,--defsym,MAGIC=0xfffffff1 -Wa,--defsym,COUNT=3 -Wa,--defsym,NO_TEXT=1 -Wa,--defsym,MODULE=0 "
                 "-Wa,--defsym,MORE=1000",
                 3},
                {"-Wa,--defsym,MAGIC=0xfffffff1 -Wa,--defsym,COUNT=3 -Wa,--defsym,NO_TEXT=1", 3},
                {"-Wa,--defsym,MAGIC=0xfffffff1 -Wa,--defsym,COUNT=3 -Wa,--defsym,NO_TEXT=1 -Wa,--defsym,MORE=1000", 0},
                {"-Wa,--defsym,MAGIC=0xfffffff1 -Wa,--defsym,COUNT=3 -Wa,--defsym,NO_TEXT=1 -Wa,--defsym,MODULE=8 "
                 "-Wa,--defsym,MORE=1000",
                 0}};
  put_file("go.s", go_source, sizeof(go_source) - 1);
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    NEED("gcc -nostdlib -static -no-pie -s %s -o prog.go go.s", tables[i].flags);
    struct ct_elf *elf = open_file("prog.go");
    assert_true(ct_elf_is_go(elf));
    const struct ct_function *functions;
    assert_int_equal(list(elf, &functions), tables[i].functions);
    if (tables[i].functions != 0) {
      assert_string_equal(functions[0].name, "main.one");
      assert_string_equal(functions[1].name, "main.(*T).two");
      assert_null(functions[2].name);
      assert_int_equal(functions[0].sources, CT_SRC_GO);
      assert_int_equal(functions[0].size, 16);
      assert_int_equal(functions[1].address, functions[0].address + 16);
    }
    ct_elf_close(elf);
  }
  struct ct_elf *elf = open_file("prog");
  assert_false(ct_elf_is_go(elf));
  ct_elf_close(elf);
}

static void
no_section_headers(void **state)
{
  NEED("gcc -O2 -shared -fPIC -Wl,-soname,libthing.so.7 -o lib.so rows.s prog.c");
  struct ct_elf *whole = open_file_with("lib.so", CT_SRC_DYNSYM | CT_SRC_EHFRAME);
  size_t size, count;
  uint8_t *bytes = get_file(in_folder("lib.so"), &size);
  ((Elf64_Ehdr *)bytes)->e_shoff = 0;
  ((Elf64_Ehdr *)bytes)->e_shnum = 0;
  ((Elf64_Ehdr *)bytes)->e_shstrndx = 0;
  put_file("lib.bare", bytes, size);
  free(bytes);
  struct ct_elf *bare = open_file("lib.bare");
  const struct ct_function *expected, *functions;

  assert_string_equal(ct_elf_soname(whole), "libthing.so.7");
  assert_string_equal(ct_elf_soname(bare), "libthing.so.7");
  assert_string_equal(ct_elf_build_id(bare), ct_elf_build_id(whole));
  assert_int_equal(ct_cfi_count(bare), ct_cfi_count(whole));
  count = list(whole, &expected);
  assert_int_equal(list(bare, &functions), count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(functions[i].address, expected[i].address);
    assert_int_equal(functions[i].entry, expected[i].entry);
    if (expected[i].name == NULL) {
      assert_null(functions[i].name);
    } else {
      assert_string_equal(functions[i].name, expected[i].name);
    }
  }
  ct_elf_close(bare);
  ct_elf_close(whole);
}

static void
assert_refused(const char *path, int code, const char *text)
{
  struct ct_elf *elf = (struct ct_elf *)&elf, *before = elf;
  struct ct_diag diag = {{0}};
  int err = ct_elf_open(path, &elf, &diag);
  if (err != code || strstr(diag.text, text) == NULL || strchr(diag.text, '\n') != NULL) {
    fail_msg("%s: code %d, text '%s'", path, err, diag.text);
  }
  assert_ptr_equal(elf, before); /* outputs stay untouched */
}

static void
refusals(void **state)
{
  size_t size;
  uint8_t *bytes = get_file(in_folder("prog"), &size);
  Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
  const Elf64_Ehdr good = *header;

  assert_refused(in_folder("missing"), CT_ENOENT, "No such file");
  assert_refused(folder, CT_EFORMAT, "directory");
  put_file("bad", "", 0);
  assert_refused(in_folder("bad"), CT_EFORMAT, "not an ELF file");
  put_file("bad", "#!/bin/sh\n", 10);
  assert_refused(in_folder("bad"), CT_EFORMAT, "script");
  put_file("bad", "hello", 5);
  assert_refused(in_folder("bad"), CT_EFORMAT, "not an ELF file");
  put_file("bad", bytes, 40);
  assert_refused(in_folder("bad"), CT_EFORMAT, "ends inside its header");
  put_file("bad", bytes, 100);
  assert_refused(in_folder("bad"), CT_EFORMAT, "program headers");
  header->e_ident[EI_CLASS] = ELFCLASS32;
  put_file("bad", bytes, size);
  assert_refused(in_folder("bad"), CT_EUNSUPPORTED, "x32");
  header->e_machine = EM_386;
  put_file("bad", bytes, size);
  assert_refused(in_folder("bad"), CT_EUNSUPPORTED, "x86 (32-bit)");
  *header = good;
  header->e_machine = EM_AARCH64;
  put_file("bad", bytes, size);
  assert_refused(in_folder("bad"), CT_EUNSUPPORTED, "AArch64");
  *header = good;
  header->e_type = ET_CORE;
  put_file("bad", bytes, size);
  assert_refused(in_folder("bad"), CT_EUNSUPPORTED, "core dump");
  *header = good;
  header->e_phnum = 0;
  put_file("bad", bytes, size);
  assert_refused(in_folder("bad"), CT_EFORMAT, "nothing in it is loaded");
  free(bytes);
  NEED("gcc -c -o object.o prog.c && mkfifo -m 600 fifo");
  assert_refused(in_folder("object.o"), CT_EUNSUPPORTED, "object file");
  assert_refused(in_folder("fifo"), CT_EFORMAT, "not a regular file");
}

/* A file that others may write to is not one that changes, or ends, while it is looked at. */
static void
cut_by_others(void **state)
{
  NEED("gcc -shared -fPIC -o cut.so prog.c && chmod 666 cut.so");
  struct ct_elf *elf = open_file("cut.so");
  const struct ct_function *functions;
  size_t count = 0;

  assert_int_equal(truncate(in_folder("cut.so"), 64), 0);
  assert_int_equal(ct_elf_functions(elf, &functions, &count, NULL), CT_OK);
  assert_true(count > 3);
  ct_elf_close(elf);
}

static void
entry_states(void **state)
{
  NEED("gcc -shared -o rows.so rows.s");
  struct ct_elf *elf = open_file("rows.so");
  const struct ct_function *f = find(elf, "rows"), *inside = find(elf, "inside");

  assert_non_null(f);
  assert_non_null(inside);
  assert_int_equal(f->entry, CT_ENTRY_CALLABLE);
  assert_int_equal(inside->entry, CT_ENTRY_ODD_CFI);
  assert_int_equal(inside->fde, f->fde);
  assert_int_equal(inside->size, 2);
  assert_true((inside->flags & CT_FN_INSIDE) != 0);
  assert_int_equal(find(elf, "signal_return")->entry, CT_ENTRY_SIGNAL);
  assert_int_equal(find(elf, "pushed")->entry, CT_ENTRY_ODD_CFI);
  f = find(elf, "without_cfi");
  assert_int_equal(f->entry, CT_ENTRY_NOCFI);
  assert_int_equal(f->fde, CT_FDE_NONE);
  assert_true((f->flags & CT_FN_GUESS) != 0);
  assert_int_equal(f->size, 4); /* up to untyped_with_fde: the symbol between is no function */
  assert_null(find(elf, "untyped_without_fde"));
  f = find(elf, "untyped_with_fde");
  assert_non_null(f);
  assert_true((f->flags & CT_FN_NOTYPE) != 0);
  assert_null(find(elf, "not_code"));
  assert_null(find(elf, "tab\tname"));
  assert_non_null(ct_elf_function_at(elf, f->address + 1)); /* it is listed, without its name */
  assert_null(ct_elf_function_at(elf, f->address + 1)->name);
  ct_elf_close(elf);
}

static void
rows_of_a_function(void **state)
{
  NEED("gcc -shared -o rows.so rows.s");
  struct ct_elf *elf = open_file("rows.so");
  const struct ct_function *f = find(elf, "rows");
  static const struct ct_cfi_row expected[] = {
      {0, 8, 7, 1},    {1, 16, 7, 1}, {4, 16, 6, 1}, {5, 8, 7, 1},
      {6, 16, 6, 1},   {7, 16, 6, 0}, {8, 16, 6, 1}, {9, 0, CT_CFA_EXPRESSION, 1},
      {10, 32, 10, 1},
  };
  const size_t count = sizeof(expected) / sizeof(expected[0]);
  struct ct_cfi_row rows[16], row;

  assert_int_equal(ct_cfi_rows(elf, f->fde, rows, 16), count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(rows[i].pc, f->address + expected[i].pc);
    assert_int_equal(rows[i].cfa_reg, expected[i].cfa_reg);
    if (expected[i].cfa_reg != CT_CFA_EXPRESSION) {
      assert_int_equal(rows[i].cfa_offset, expected[i].cfa_offset);
    }
    assert_int_equal(rows[i].ra_at_cfa_minus_8, expected[i].ra_at_cfa_minus_8);
    assert_int_equal(ct_cfi_row_at(elf, f->fde, rows[i].pc, &row), CT_OK);
    assert_int_equal(row.pc, rows[i].pc);
  }
  assert_int_equal(ct_cfi_row_at(elf, f->fde, f->address + 2, &row), CT_OK);
  assert_int_equal(row.pc, f->address + 1);
  memset(rows, 0xee, sizeof(rows));
  assert_int_equal(ct_cfi_rows(elf, f->fde, rows, 2), count); /* counts on, writes no further */
  assert_int_equal(rows[1].pc, f->address + 1);
  assert_int_equal(rows[2].pc, 0xeeeeeeeeeeeeeeee);
  assert_int_equal(ct_cfi_row_at(elf, f->fde, f->address - 1, &row), CT_ENOENT);
  assert_int_equal(ct_cfi_row_at(elf, f->fde, f->address + f->size, &row), CT_ENOENT);
  assert_int_equal(ct_cfi_rows(elf, ct_cfi_count(elf), rows, 16), 0);
  assert_int_equal(ct_cfi_rows(elf, CT_FDE_NONE, rows, 16), 0);
  struct ct_cfi_fde fde;
  assert_int_equal(ct_cfi_get(elf, ct_cfi_count(elf), &fde), CT_ERANGE);
  assert_int_equal(ct_cfi_get(elf, f->fde, &fde), CT_OK);
  assert_int_equal(fde.start, f->address);
  assert_int_equal(fde.end, f->address + f->size);
  assert_int_equal(fde.ra_register, 16);
  assert_int_equal(fde.data_align, -8);
  ct_elf_close(elf);
}

static void
exception_tables(void **state)
{
  static const char source[] = "void g(); int f() { try { g(); } catch (int x) { return x; } return 0; }\n";
  put_file("catch.cc", source, strlen(source));
  NEED("g++ -O2 -shared -fPIC -o catch.so catch.cc");
  struct ct_elf *elf = open_file("catch.so");
  const struct ct_function *f = find(elf, "_Z1fv");
  const struct ct_elf_section *section;
  struct ct_cfi_fde fde;

  assert_non_null(f);
  assert_int_equal(ct_cfi_get(elf, f->fde, &fde), CT_OK);
  assert_int_not_equal(fde.lsda, 0);
  assert_int_equal(fde.lsda_encoding, 0x1b);
  assert_int_not_equal(fde.personality, 0);
  assert_int_equal(fde.personality_indirect, 1);
  /* the tables begin with: no landing pad base, an encoding of types */
  assert_int_equal(*ct_elf_bytes(elf, fde.lsda, 1), 0xff);
  section = ct_elf_exec_section_at(elf, fde.lsda);
  assert_null(section);
  ct_elf_close(elf);
}

static void
system_libc(void **state)
{
  static const char path[] = "/usr/lib/x86_64-linux-gnu/libc.so.6";
  struct ct_elf *elf;
  struct ct_diag diag;
  uint64_t address, other;

  if (access(path, R_OK) != 0) {
    skip();
  }
  assert_int_equal(ct_elf_open(path, &elf, &diag), CT_OK);
  assert_string_equal(ct_elf_soname(elf), "libc.so.6");
  const struct ct_function *functions;
  size_t callable = 0, count = list(elf, &functions);
  assert_in_range(count, 2000, 10000);
  for (size_t i = 0; i < count; i++) {
    callable += functions[i].entry == CT_ENTRY_CALLABLE;
  }
  assert_true(callable * 100 > count * 95);
  static const char *const names[] = {"malloc", "free", "read", "write", "open", "printf", "qsort", "getenv"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    assert_int_equal(ct_elf_symbol(elf, names[i], &address), CT_OK);
    const struct ct_function *f = ct_elf_function_at(elf, address);
    assert_non_null(f);
    assert_int_equal(f->entry, CT_ENTRY_CALLABLE);
    if (strcmp(f->name, names[i]) != 0) {
      assert_true(has_alias(elf, f, names[i]));
    }
  }
  assert_int_equal(ct_elf_symbol(elf, "memcpy", &address), CT_OK);
  assert_int_equal(ct_elf_symbol(elf, "memmove", &other), CT_OK);
  assert_true((ct_elf_function_at(elf, address)->flags & CT_FN_IFUNC) != 0);
  assert_int_not_equal(address, other); /* memcpy@GLIBC_2.2.5 is memmove */
  ct_elf_close(elf);
}

/* Everything that can be asked, so that every byte that is believed is touched. */
static void
exercise(const uint8_t *bytes, size_t size)
{
  uint8_t *copy = malloc(size + 1); /* exact: a read past it is seen */
  struct ct_elf *elf;
  struct ct_cfi_row rows[8];
  char label[256];
  uint64_t address;

  memcpy(copy, bytes, size);
  copy = realloc(copy, size != 0 ? size : 1);
  if (ct_elf_open_bytes(copy, size, NULL, NULL, &elf, NULL) == CT_OK) {
    const struct ct_function *functions;
    const struct ct_elf_section *sections;
    size_t count = list(elf, &functions), sum = 0;
    for (size_t i = 0; i < count; i++) {
      const uint8_t *code = ct_elf_bytes(elf, functions[i].address, functions[i].size);
      for (size_t j = 0; code != NULL && j < functions[i].size; j++) {
        sum += code[j];
      }
      sum += strlen(ct_function_label(label, sizeof(label), ct_elf_path(elf), &functions[i]));
      const char *alias;
      for (size_t n = 0; (alias = ct_function_alias(elf, &functions[i], n)) != NULL; n++) {
        sum += strlen(alias);
      }
      (void)ct_elf_function_around(elf, functions[i].address + functions[i].size - 1);
    }
    struct ct_cfi_fde fde;
    for (uint32_t i = 0; i < ct_cfi_count(elf); i++) {
      sum += ct_cfi_rows(elf, i, rows, 8);
      assert_int_equal(ct_cfi_get(elf, i, &fde), CT_OK);
      for (uint32_t j = 0; j < fde.code_bytes; j++) {
        sum += fde.code[j];
      }
      for (uint32_t j = 0; j < fde.cie_code_bytes; j++) {
        sum += fde.cie_code[j];
      }
    }
    for (size_t i = 0, n = ct_elf_exec_sections(elf, &sections); i < n; i++) {
      sum += strlen(sections[i].name);
    }
    sum += ct_elf_symbol(elf, "whole", &address) == CT_OK;
    sum += strlen(ct_elf_build_id(elf));
    sum += ct_elf_interp(elf) != NULL ? strlen(ct_elf_interp(elf)) : 0;
    sum += ct_elf_soname(elf) != NULL ? strlen(ct_elf_soname(elf)) : 0;
    assert_int_not_equal(sum, SIZE_MAX); /* and so it is not thrown away */
    ct_elf_close(elf);
  }
  free(copy);
}

static void
truncated_files(void **state)
{
  static const char *const names[] = {"prog", "prog.mini", "lib.so", "lib.bare", "prog.dwarf"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (access(in_folder(names[i]), R_OK) != 0) {
      continue;
    }
    size_t size;
    uint8_t *bytes = get_file(in_folder(names[i]), &size);
    for (size_t cut = 0; cut < size; cut += cut < 1024 ? 7 : 61) {
      exercise(bytes, cut);
    }
    free(bytes);
  }
}

static uint32_t
next_random(uint64_t *seed)
{
  *seed = *seed * 6364136223846793005 + 1442695040888963407;
  return (uint32_t)(*seed >> 33);
}

/* The parts whose bytes are interpreted: header tables, symbols, .eh_frame. Flips elsewhere hit code mostly. */
static size_t
interesting_ranges(const uint8_t *bytes, size_t size, size_t ranges[][2])
{
  Elf64_Ehdr header;
  size_t count = 0;
  memcpy(&header, bytes, sizeof(header));
  ranges[count][0] = 0;
  ranges[count++][1] = 64 + header.e_phnum * sizeof(Elf64_Phdr);
  for (unsigned i = 1; i < header.e_shnum && count < 60; i++) {
    Elf64_Shdr section;
    memcpy(&section, bytes + header.e_shoff + i * sizeof(section), sizeof(section));
    if ((section.sh_flags & SHF_EXECINSTR) != 0 || section.sh_type == SHT_NOBITS || section.sh_size == 0) {
      continue;
    }
    ranges[count][0] = section.sh_offset;
    ranges[count++][1] = section.sh_size;
  }
  if (header.e_shnum != 0) {
    ranges[count][0] = header.e_shoff;
    ranges[count++][1] = header.e_shnum * sizeof(Elf64_Shdr);
  }
  assert_true(ranges[count - 1][0] + ranges[count - 1][1] <= size);
  return count;
}

static void
flipped_bytes(void **state)
{
  static const char *const names[] = {"prog", "prog.mini", "lib.so", "lib.bare", "catch.so", "prog.dwarf"};
  const char *rounds_text = getenv("CT_FUZZ_ROUNDS");
  int rounds = rounds_text != NULL ? atoi(rounds_text) : 2000;
  uint64_t seed = 20240607;

  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (access(in_folder(names[i]), R_OK) != 0) {
      continue;
    }
    size_t size, ranges[64][2];
    uint8_t *good = get_file(in_folder(names[i]), &size), *bytes = malloc(size);
    size_t range_count = interesting_ranges(good, size, ranges);
    for (int round = 0; round < rounds; round++) {
      memcpy(bytes, good, size);
      for (unsigned flips = 1 + next_random(&seed) % 8; flips > 0; flips--) {
        const size_t *range = ranges[next_random(&seed) % range_count];
        size_t at = range[0] + next_random(&seed) % range[1];
        static const uint8_t values[] = {0x00, 0xff, 0x7f, 0x80, 0x01};
        unsigned kind = next_random(&seed) % 10;
        bytes[at] = kind < 5 ? values[kind] : (uint8_t)(bytes[at] ^ (1u << (next_random(&seed) & 7)));
      }
      exercise(bytes, size);
    }
    free(bytes);
    free(good);
  }
}

static int
set_up(void **state)
{
  snprintf(folder, sizeof(folder), "/tmp/ct_target_test.XXXXXX");
  if (mkdtemp(folder) == NULL) {
    return -1;
  }
  put_file("prog.c", program_source, strlen(program_source));
  put_file("rows.s", rows_source, strlen(rows_source));
  return shell("mkdir root && gcc -O2 -Wl,--build-id=sha1 -o prog prog.c");
}

static int
tear_down(void **state)
{
  char command[128];
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

int
main(void)
{
  /* The order matters to the last two, which damage what the others built. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_program),
      cmocka_unit_test(layout),
      cmocka_unit_test(stripped_program),
      cmocka_unit_test(debug_file_by_link),
      cmocka_unit_test(debug_file_by_build_id),
      cmocka_unit_test(debug_link_stays_in_its_folder),
      cmocka_unit_test(mini_debug_info),
      cmocka_unit_test(static_program),
      cmocka_unit_test(dwarf_without_symbols),
      cmocka_unit_test(go_functions),
      cmocka_unit_test(no_section_headers),
      cmocka_unit_test(refusals),
      cmocka_unit_test(cut_by_others),
      cmocka_unit_test(entry_states),
      cmocka_unit_test(rows_of_a_function),
      cmocka_unit_test(exception_tables),
      cmocka_unit_test(system_libc),
      cmocka_unit_test(truncated_files),
      cmocka_unit_test(flipped_bytes),
  };
  return cmocka_run_group_tests_name("target", tests, set_up, tear_down);
}
