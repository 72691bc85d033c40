/* SPDX-License-Identifier: MIT */
/*
 * The readers of src/target against files made on the spot from small sources (whole, stripped, with mini debug info,
 * without section headers, with DWARF only), and against damaged copies of these. A test that needs a tool that is
 * missing is skipped. The order matters to the last two, which damage what the others built.
 */
#include <elf.h>
#include <limits.h>
#include <sys/stat.h>

#include "target_sources.h"

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

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_program),         cmocka_unit_test(layout),
      cmocka_unit_test(stripped_program),      cmocka_unit_test(mini_debug_info),
      cmocka_unit_test(dwarf_without_symbols), cmocka_unit_test(no_section_headers),
      cmocka_unit_test(exception_tables),      cmocka_unit_test(truncated_files),
      cmocka_unit_test(flipped_bytes),
  };
  return cmocka_run_group_tests_name("target", tests, set_up, remove_folder);
}
