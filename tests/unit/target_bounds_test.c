/* SPDX-License-Identifier: MIT */
/*
 * Files that are small and mean much work: functions that all reach to the end of the code, names that share their
 * ends, frames that share one exception table or one set of rows, segments far apart. What is asserted is the amount
 * of what comes out, which is what the rest of the work is proportional to; and that the address space that a plan
 * takes stays below a gigabyte.
 *
 *   file:   | headers | text | exception table | .eh_frame | symbols | strings | section names | section headers |
 */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "target/functions.h"
#include "target/lsda.h"

enum { BASE = 0x10000, TEXT = 0x4000, FILE_MAX = 4 << 20 };
static const char section_names[] = "\0.eh_frame\0.text\0.shstrtab";

struct file {
  uint8_t *bytes;
  size_t size;
  size_t segments; /* in the table; the first one is the whole file */
  size_t text, text_bytes;
  size_t table;
  size_t frames, frame_bytes;
  size_t symbols, symbol_count;
  size_t strings, string_bytes;
};

static struct timespec begun; /* the test, in processor time */

static void
begin(struct file *file, size_t text_bytes)
{
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
  *file = (struct file){
      .bytes = calloc(1, FILE_MAX), .size = TEXT + text_bytes, .segments = 1, .text = TEXT, .text_bytes = text_bytes};
  assert_non_null(file->bytes);
  memset(file->bytes + TEXT, 0x90, text_bytes);
}

static void
put(struct file *file, const void *bytes, size_t size)
{
  assert_true(file->size + size < FILE_MAX);
  memcpy(file->bytes + file->size, bytes, size);
  file->size += size;
}

/* Other segments are in place before. */
static void
add_segment(struct file *file, uint64_t address, uint64_t bytes)
{
  Elf64_Phdr segment = {.p_type = PT_LOAD,
                        .p_flags = PF_R | PF_X,
                        .p_offset = TEXT,
                        .p_vaddr = address,
                        .p_filesz = bytes,
                        .p_memsz = bytes};
  size_t at = sizeof(Elf64_Ehdr) + file->segments++ * sizeof(segment);
  assert_true(at + sizeof(segment) <= TEXT);
  memcpy(file->bytes + at, &segment, sizeof(segment));
}

static void
begin_frames(struct file *file)
{
  static const uint8_t cie[] = {24,   0,  0, 0,    0, 0,  0, 0, 1,    'z', 'L', 'R', 0, 1,
                                0x78, 16, 2, 0x1b, 0, 12, 7, 8, 0x90, 1,   0,   0,   0, 0};
  file->size = (file->size + 7) & ~(size_t)7;
  file->frames = file->size;
  put(file, cie, sizeof(cie));
}

/* table: whether it names the exception table. code: 4 bytes that are repeated. */
static void
add_frame(struct file *file, uint64_t start, uint32_t range, bool table, const char *code, uint32_t repeats)
{
  struct {
    uint32_t length, cie;
    uint64_t start;
  } __attribute__((packed)) head;
  size_t at = file->size;
  /* As the CIE says: starts absolute, pointers to tables relative to where they stand. */
  head.length = 4 + 8 + 8 + 5 + 4 * repeats;
  head.cie = (uint32_t)(at + 4 - file->frames);
  head.start = start;
  put(file, &head, sizeof(head));
  uint64_t wide = range;
  put(file, &wide, sizeof(wide));
  put(file, "\x04", 1);
  int32_t distance = table ? (int32_t)(file->table - file->size) : 0;
  put(file, &distance, sizeof(distance));
  for (uint32_t i = 0; i < repeats; i++) {
    put(file, code, 4);
  }
  file->frame_bytes = file->size - file->frames;
}

static void
begin_symbols(struct file *file)
{
  file->size = (file->size + 7) & ~(size_t)7;
  file->symbols = file->size;
  put(file, &(Elf64_Sym){0}, sizeof(Elf64_Sym));
  file->symbol_count = 1;
}

static void
add_symbol(struct file *file, uint32_t name, uint64_t address, uint64_t size)
{
  Elf64_Sym symbol = {.st_name = name,
                      .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                      .st_shndx = 1,
                      .st_value = address,
                      .st_size = size};
  put(file, &symbol, sizeof(symbol));
  file->symbol_count++;
}

static void
add_strings(struct file *file, const void *strings, size_t bytes)
{
  if (file->strings == 0) {
    file->strings = file->size;
  }
  put(file, strings, bytes);
  file->string_bytes = file->size - file->strings;
}

static void
finish(struct file *file)
{
  size_t names = file->size, sections = 1;
  put(file, section_names, sizeof(section_names));
  file->size = (file->size + 7) & ~(size_t)7;
  Elf64_Shdr table[8] = {{0}};
  table[sections++] = (Elf64_Shdr){.sh_name = 11,
                                   .sh_type = SHT_PROGBITS,
                                   .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                   .sh_addr = BASE + file->text,
                                   .sh_offset = file->text,
                                   .sh_size = file->text_bytes};
  if (file->frames != 0) {
    table[sections++] = (Elf64_Shdr){.sh_name = 1,
                                     .sh_type = SHT_PROGBITS,
                                     .sh_flags = SHF_ALLOC,
                                     .sh_addr = BASE + file->frames,
                                     .sh_offset = file->frames,
                                     .sh_size = file->frame_bytes};
  }
  if (file->symbols != 0) {
    table[sections] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                   .sh_offset = file->symbols,
                                   .sh_size = file->symbol_count * sizeof(Elf64_Sym),
                                   .sh_link = (uint32_t)sections + 1};
    sections++;
    table[sections++] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = file->strings, .sh_size = file->string_bytes};
  }
  table[sections++] =
      (Elf64_Shdr){.sh_name = 17, .sh_type = SHT_STRTAB, .sh_offset = names, .sh_size = sizeof(section_names)};
  Elf64_Ehdr header = {.e_type = ET_DYN,
                       .e_machine = EM_X86_64,
                       .e_version = EV_CURRENT,
                       .e_phoff = sizeof(header),
                       .e_shoff = file->size,
                       .e_ehsize = sizeof(header),
                       .e_phentsize = sizeof(Elf64_Phdr),
                       .e_phnum = (uint16_t)file->segments,
                       .e_shentsize = sizeof(Elf64_Shdr),
                       .e_shnum = (uint16_t)sections,
                       .e_shstrndx = (uint16_t)(sections - 1)};
  memcpy(header.e_ident, ELFMAG "\2\1\1", 7);
  put(file, table, sections * sizeof(table[0]));
  memcpy(file->bytes, &header, sizeof(header));
  Elf64_Phdr whole = {
      .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = BASE, .p_filesz = file->size, .p_memsz = file->size};
  memcpy(file->bytes + sizeof(header), &whole, sizeof(whole));
}

static struct ct_elf *
open_it(struct file *file)
{
  struct ct_elf *elf;
  struct ct_diag diag = {""};
  finish(file);
  if (ct_elf_open_bytes(file->bytes, file->size, NULL, NULL, &elf, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return elf;
}

/* Plans it, with a bound to the address space. */
static struct ct_plan *
plan_it(struct file *file)
{
  char path[64];
  struct rlimit before, bound;
  struct ct_plan *plan;
  struct ct_diag diag = {""};
  finish(file);
  int fd = memfd_create("bounds", 0);
  assert_true(fd >= 0);
  assert_int_equal(pwrite(fd, file->bytes, file->size, 0), file->size);
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  bound = before;
#ifndef __SANITIZE_ADDRESS__
  bound.rlim_cur = 1ul << 30;
#endif
  assert_int_equal(setrlimit(RLIMIT_AS, &bound), 0);
  int code = ct_plan_create(path, &plan, &diag);
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  close(fd);
  if (code != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return plan;
}

static void
functions_that_overlap(void **state)
{
  enum { COUNT = 20000 };
  struct file file;
  const struct ct_function *functions;
  size_t count;
  uint64_t sum = 0;
  begin(&file, 500000);
  begin_symbols(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_symbol(&file, 1, BASE + TEXT + 8 * i, 500000 - 8 * i);
  }
  add_strings(&file, "\0f", 3);
  struct ct_elf *elf = open_it(&file);
  assert_int_equal(ct_elf_functions(elf, &functions, &count, NULL), CT_OK);
  assert_int_equal(count, COUNT);
  for (size_t i = 0; i < count; i++) {
    sum += functions[i].size;
  }
  assert_in_range(sum, 500000, 4 * file.size + (1 << 20));
  ct_elf_close(elf);
  struct ct_plan *plan = plan_it(&file);
  assert_int_equal(plan->count, COUNT);
  ct_plan_free(plan);
  free(file.bytes);
}

static void
names_that_share_their_ends(void **state)
{
  enum { COUNT = 20000, STRINGS = 400000 };
  struct file file;
  const struct ct_function *functions;
  size_t count;
  uint64_t sum = 0;
  begin(&file, COUNT);
  begin_symbols(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_symbol(&file, STRINGS - 16000 + i % 8000, BASE + TEXT + i, 1);
  }
  char *strings = calloc(1, STRINGS);
  assert_non_null(strings);
  memset(strings + 1, 'a', STRINGS - 2);
  add_strings(&file, strings, STRINGS);
  free(strings);
  struct ct_elf *elf = open_it(&file);
  assert_int_equal(ct_elf_functions(elf, &functions, &count, NULL), CT_OK);
  assert_int_equal(count, COUNT);
  for (size_t i = 0; i < count; i++) {
    sum += functions[i].name != NULL ? strlen(functions[i].name) : 0;
  }
  assert_non_null(functions[0].name);
  assert_in_range(sum, STRINGS, 4 * STRINGS + (1 << 20));
  ct_elf_close(elf);
  free(file.bytes);
}

static void
count_pad(void *context, uint64_t address)
{
  ++*(size_t *)context;
}

static void
frames_that_share_a_table(void **state)
{
  enum { COUNT = 15000, SITES = 50000 };
  struct file file;
  size_t pads = 0, visited = 0;
  begin(&file, 4 * COUNT);
  file.table = file.size;
  put(&file, "\xff\xff\x01\xc0\x9a\x0c", 6); /* uleb128, SITES * 4 bytes */
  for (unsigned i = 0; i < SITES; i++) {
    put(&file, "\0\0\1\0", 4);
  }
  begin_frames(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_frame(&file, BASE + TEXT + 4 * i, 4, true, "", 0);
  }
  struct ct_elf *elf = open_it(&file);
  assert_int_equal(ct_cfi_count(elf), COUNT);
  for (uint32_t i = 0; i < COUNT; i++) {
    struct ct_cfi_fde fde;
    assert_int_equal(ct_cfi_get(elf, i, &fde), CT_OK);
    assert_int_equal(fde.lsda, BASE + file.table);
    pads += ct_lsda_landing_pads(elf, &fde, count_pad, &visited);
  }
  assert_int_equal(pads, visited);
  assert_int_equal(pads, 4 * COUNT); /* a site is a byte at least */
  ct_elf_close(elf);
  free(file.bytes);
}

/* Frames that overlap: each address belongs to the last one that begins at or before it, and no two share an address.
 */
static void
frames_that_overlap(void **state)
{
  static const struct {
    uint32_t start, range;
  } frames[] = {{0, 1000}, {100, 50}, {120, 900}, {300, 10}, {300, 20}, {310, 40}, {2000, 16}};
  static const struct {
    uint32_t start, end;
  } kept[] = {{0, 100}, {100, 120}, {120, 300}, {300, 310}, {310, 350}, {2000, 2016}};
  enum { KEPT = sizeof(kept) / sizeof(kept[0]) };
  struct file file;
  begin(&file, 4096);
  begin_frames(&file);
  for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
    add_frame(&file, BASE + TEXT + frames[i].start, frames[i].range, false, "", 0);
  }
  struct ct_elf *elf = open_it(&file);
  assert_int_equal(ct_cfi_count(elf), KEPT);
  for (uint32_t i = 0; i < KEPT; i++) {
    struct ct_cfi_fde fde;
    assert_int_equal(ct_cfi_get(elf, i, &fde), CT_OK);
    assert_int_equal(fde.start, BASE + TEXT + kept[i].start);
    assert_int_equal(fde.end, BASE + TEXT + kept[i].end);
    assert_int_equal(ct_cfi_find(elf, fde.start), i);
    assert_int_equal(ct_cfi_find(elf, fde.end - 1), i);
  }
  assert_int_equal(ct_cfi_find(elf, BASE + TEXT + 350), CT_FDE_NONE);
  ct_elf_close(elf);
  free(file.bytes);
}

/* The state of many entries in one frame is that which each has by itself. */
static void
functions_inside_a_frame(void **state)
{
  enum { COUNT = 200 };
  struct file file;
  const struct ct_function *functions;
  size_t count, callable = 0;
  begin(&file, 4096);
  begin_frames(&file);
  add_frame(&file, BASE + TEXT, 2000, false, "\x41\x0e\x10\0", 40);       /* forward by 1, CFA = rsp + 16, nop */
  add_frame(&file, BASE + TEXT + 3000, 20, false, "\x45\x0e\x08\x0b", 1); /* ends in a restore of nothing */
  begin_symbols(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_symbol(&file, 1, BASE + TEXT + 17 * i, 4);
  }
  add_strings(&file, "\0f", 3);
  struct ct_elf *elf = open_it(&file);
  assert_int_equal(ct_elf_functions(elf, &functions, &count, NULL), CT_OK);
  assert_int_equal(count, COUNT + 1); /* the second frame's own start */
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(functions[i].entry, ct_cfi_entry_state(elf, functions[i].fde, functions[i].address));
    callable += functions[i].entry == CT_ENTRY_CALLABLE;
  }
  assert_int_equal(callable, 2); /* the two starts */
  ct_elf_close(elf);
  free(file.bytes);
}

/* The same code at many addresses, gigabytes of them, and the furthest one far away. */
static void
segments_far_apart(void **state)
{
  struct file file;
  begin(&file, 200000);
  for (uint64_t i = 1; i < 200; i++) {
    add_segment(&file, BASE + i * (256 << 20), 150000);
  }
  begin_symbols(&file);
  for (uint64_t i = 0; i < 200; i++) {
    for (unsigned j = 0; j < 5; j++) {
      add_symbol(&file, 1, BASE + i * (256 << 20) + (i == 0 ? TEXT : 0) + 64 * j, 64);
    }
  }
  add_strings(&file, "\0f", 3);
  struct ct_plan *plan = plan_it(&file);
  assert_int_equal(plan->count, 1000);
  assert_int_equal(plan->hooked, 1000);
  ct_plan_free(plan);
  free(file.bytes);
}

/* What a test has taken of the processor's time so far is nothing next to what it would be with each of them against
 * each. */
static void
assert_soon(void)
{
  struct timespec used;
  assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  assert_true(used.tv_sec - begun.tv_sec < 60);
}

/* Each needs a jump springboard, and finds room. */
static void
many_short_jumps(void **state)
{
  enum { COUNT = 60000 };
  struct file file;
  begin(&file, 16 * COUNT);
  memset(file.bytes + TEXT, 0xcc, 16 * COUNT);
  for (unsigned i = 0; i < COUNT; i++) { /* xor eax; 1: inc eax; jne 1b; ret */
    memcpy(file.bytes + TEXT + 16 * i, "\x31\xc0\xff\xc0\x75\xfc\xc3", 7);
  }
  begin_symbols(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_symbol(&file, 1, BASE + TEXT + 16 * i, 7);
  }
  add_strings(&file, "\0f", 3);
  struct ct_plan *plan = plan_it(&file);
  assert_int_equal(plan->hooked, COUNT);
  assert_int_equal(plan->springboard_count, COUNT);
  assert_soon();
  ct_plan_free(plan);
  free(file.bytes);
}

static void
many_functions_in_a_frame_of_many_rows(void **state)
{
  enum { COUNT = 30000 };
  struct file file;
  begin(&file, 150000);
  begin_frames(&file);
  add_frame(&file, BASE + TEXT, 150000, false, "\x41\x0e\x10\0", 100000);
  begin_symbols(&file);
  for (unsigned i = 0; i < COUNT; i++) {
    add_symbol(&file, 1, BASE + TEXT + 100000 + i, 1);
  }
  add_strings(&file, "\0f", 3);
  struct ct_plan *plan = plan_it(&file);
  assert_int_equal(plan->count, COUNT + 1);
  assert_soon();
  ct_plan_free(plan);
  free(file.bytes);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_that_overlap),    cmocka_unit_test(names_that_share_their_ends),
      cmocka_unit_test(frames_that_share_a_table), cmocka_unit_test(frames_that_overlap),
      cmocka_unit_test(functions_inside_a_frame),  cmocka_unit_test(segments_far_apart),
      cmocka_unit_test(many_short_jumps),          cmocka_unit_test(many_functions_in_a_frame_of_many_rows),
  };
  return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
