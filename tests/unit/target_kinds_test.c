/* SPDX-License-Identifier: MIT */
/*
 * The readers of src/target against other kinds of programs: with a separate debug file, static, Go's, assembly with
 * rows of all kinds, the system's libc; and the refusals of what is no program. A test that needs a tool that is
 * missing is skipped.
 */
#include <elf.h>
#include <limits.h>
#include <sys/stat.h>

#include "target/golang.h"
#include "target_sources.h"

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

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(debug_file_by_link),
      cmocka_unit_test(debug_file_by_build_id),
      cmocka_unit_test(debug_link_stays_in_its_folder),
      cmocka_unit_test(static_program),
      cmocka_unit_test(go_functions),
      cmocka_unit_test(refusals),
      cmocka_unit_test(cut_by_others),
      cmocka_unit_test(entry_states),
      cmocka_unit_test(rows_of_a_function),
      cmocka_unit_test(system_libc),
  };
  return cmocka_run_group_tests_name("target_kinds", tests, set_up, remove_folder);
}
