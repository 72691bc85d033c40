/* SPDX-License-Identifier: MIT */
/*
 * The walk over exception tables, on bytes: a small ELF image is made around each table so that the file ends with the
 * table's last byte, and the image ends at a page that cannot be read. Cut at every length, and with every byte
 * changed, it must give an answer without a read past the end.
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
#include <unistd.h>

#include <cmocka.h>

#include "target/lsda.h"
#include "xorshift.h"

#define TABLE_ADDRESS 0x2000ull /* of the table's first byte; a page that the image's segment begins below */
#define FUNCTION      0x401000ull
#define HEADERS       (sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr))

struct pads {
  uint64_t address[64];
  size_t count;
};

static void
note_pad(void *context, uint64_t address)
{
  struct pads *pads = context;
  if (pads->count < 64) {
    pads->address[pads->count] = address;
  }
  pads->count++;
}

static uint8_t *fence; /* the first byte that cannot be read */
enum { IMAGE_MAX = 65536 };

/* Walks the table as the last bytes of a file. */
static size_t
walk(const void *table, size_t size, struct pads *pads)
{
  size_t image_bytes = HEADERS + size;
  uint8_t *image = fence - image_bytes;
  Elf64_Ehdr header = {.e_type = ET_DYN,
                       .e_machine = EM_X86_64,
                       .e_version = EV_CURRENT,
                       .e_phoff = sizeof(Elf64_Ehdr),
                       .e_ehsize = sizeof(Elf64_Ehdr),
                       .e_phentsize = sizeof(Elf64_Phdr),
                       .e_phnum = 1,
                       .e_shentsize = sizeof(Elf64_Shdr)};
  memcpy(header.e_ident, ELFMAG "\x02\x01\x01", 7);
  Elf64_Phdr segment = {.p_type = PT_LOAD,
                        .p_flags = PF_R | PF_X,
                        .p_offset = HEADERS,
                        .p_vaddr = TABLE_ADDRESS,
                        .p_filesz = size,
                        .p_memsz = size};
  memcpy(image, &header, sizeof(header));
  memcpy(image + sizeof(header), &segment, sizeof(segment));
  memcpy(image + HEADERS, table, size);
  struct ct_elf *elf;
  struct ct_diag diag = {{0}};
  if (ct_elf_open_bytes(image, image_bytes, "table", NULL, &elf, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  assert_int_equal(ct_elf_bytes_left(elf, TABLE_ADDRESS), size);
  struct ct_cfi_fde fde = {.start = FUNCTION, .end = FUNCTION + 0x1000, .lsda = TABLE_ADDRESS};
  memset(pads, 0, sizeof(*pads));
  size_t count = ct_lsda_landing_pads(elf, &fde, note_pad, pads);
  assert_int_equal(count, pads->count);
  ct_elf_close(elf);
  return count;
}

#define WALK(bytes, pads) walk(bytes, sizeof(bytes) - 1, pads)

static void
expect_pads(const struct pads *pads, size_t count, const uint64_t *expected)
{
  assert_int_equal(pads->count, count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(pads->address[i], expected[i]);
  }
}

/* As gcc writes it: no LPStart, types, uleb128 call sites; a pad of 0 is none. */
static const char common[] = "\xff\x9b\x19\x01\x10"
                             "\x04\x05\x00\x00"     /* no pad */
                             "\x10\x05\x30\x01"     /* pad at +0x30 */
                             "\x20\x05\xb0\x02\x00" /* pad at +0x130 */
                             "\x30\x81\x01";        /* start 0x30, length 0x81, then cut: pad missing */

static void
uleb128_call_sites(void **state)
{
  struct pads pads;
  static const char table[] = "\xff\x9b\x15\x01\x0d"
                              "\x04\x05\x00\x00"
                              "\x10\x05\x30\x01"
                              "\x20\x05\xb0\x02\x00"
                              "types and more";
  WALK(table, &pads);
  expect_pads(&pads, 2, (uint64_t[]){FUNCTION + 0x30, FUNCTION + 0x130});
  WALK("\xff\xff\x01\x04\x10\x05\x30\x01", &pads); /* no types */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0x30});
  WALK("\xff\xff\x01\x00", &pads); /* nothing */
  expect_pads(&pads, 0, NULL);
  WALK("\xff\xff\x01\x05\x10\x05\x30\xff\x7f", &pads); /* an action of two bytes */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0x30});
  WALK("\xff\x9b\xff\xff\x03\x01\x04\x10\x05\x30\x01", &pads); /* a distance of three */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0x30});
}

static void
fixed_call_sites(void **state)
{
  struct pads pads;
  static const char u4[] = "\xff\xff\x03\x1a"
                           "\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00"
                           "\x10\x00\x00\x00\x05\x00\x00\x00\x78\x56\x34\x12\x01";
  WALK(u4, &pads);
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0x12345678});
  WALK("\xff\xff\x0b\x0d\x10\0\0\0\x05\0\0\0\xf0\xff\xff\xff\x01", &pads); /* sdata4, below the start */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION - 16});
  WALK("\xff\xff\x03\x0d\x10\0\0\0\x05\0\0\0\xf0\xff\xff\xff\x01", &pads); /* udata4, the same bytes */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0xfffffff0});
  WALK("\xff\xff\x02\x07\x10\0\x05\0\xfe\xff\x01", &pads); /* udata2 */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0xfffe});
  WALK("\xff\xff\x0a\x07\x10\0\x05\0\xfe\xff\x01", &pads); /* sdata2 */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION - 2});
  WALK("\xff\xff\x04\x19\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0\x01", &pads); /* udata8 */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION + 0x1234});
  WALK("\xff\xff\x09\x04\x10\x05\x7f\x01", &pads); /* sleb128 -1 */
  expect_pads(&pads, 1, (uint64_t[]){FUNCTION - 1});
}

/* Pads may count from elsewhere than the function (gcc does so for parts that it split off). */
static void
another_start_for_pads(void **state)
{
  struct pads pads;
  WALK("\x00\x00\x90\x40\0\0\0\0\0\xff\x01\x04\x10\x05\x30\x01", &pads); /* absptr */
  expect_pads(&pads, 1, (uint64_t[]){0x409000 + 0x30});
  WALK("\x1b\x00\x01\x00\x00\xff\x01\x04\x10\x05\x30\x01", &pads); /* pcrel sdata4, from its own place */
  expect_pads(&pads, 1, (uint64_t[]){TABLE_ADDRESS + 1 + 0x100 + 0x30});
  WALK("\x1b\x00\xff\xff\xff\xff\x01\x04\x10\x05\x30\x01", &pads); /* and backwards */
  expect_pads(&pads, 1, (uint64_t[]){TABLE_ADDRESS + 1 - 0x100 + 0x30});
  WALK("\x01\x80\x02\xff\x01\x04\x10\x05\x30\x01", &pads); /* uleb128 */
  expect_pads(&pads, 1, (uint64_t[]){0x100 + 0x30});
}

static void
damage(void **state)
{
  struct pads pads;
  assert_int_equal(WALK("\xff\xff\x0f\x04\x10\x05\x30\x01", &pads), 0); /* encodings that are none */
  assert_int_equal(WALK("\xff\xff\xff\x04\x10\x05\x30\x01", &pads), 0); /* */
  assert_int_equal(WALK("\x07\xff\x01\x04\x10\x05\x30\x01", &pads), 0); /* */
  assert_int_equal(WALK("\xff\xff\x01\x05\x10\x05\x30\x01", &pads), 0); /* a table longer than the file */
  assert_int_equal(WALK("\xff\xff\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x05\x30\x01", &pads), 0);
  assert_int_equal(WALK("\xff\xff\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", &pads), 0); /* no end */
  assert_int_equal(WALK("\xff\x9b\x80\x80\x80", &pads), 0);
  struct ct_elf *elf = NULL;
  struct ct_cfi_fde fde = {.start = FUNCTION};
  walk("\xff\xff\x01\x00", 4, &pads);
  assert_int_equal(ct_elf_open_bytes(fence - HEADERS - 4, HEADERS + 4, "table", NULL, &elf, NULL), CT_OK);
  assert_int_equal(ct_lsda_landing_pads(elf, &fde, note_pad, &pads), 0); /* none */
  fde.lsda = TABLE_ADDRESS - 1;
  assert_int_equal(ct_lsda_landing_pads(elf, &fde, note_pad, &pads), 0); /* not in the file */
  fde.lsda = TABLE_ADDRESS + 4;
  assert_int_equal(ct_lsda_landing_pads(elf, &fde, note_pad, &pads), 0);
  fde.lsda = UINT64_MAX;
  assert_int_equal(ct_lsda_landing_pads(elf, &fde, note_pad, &pads), 0);
  ct_elf_close(elf);
}

static const struct {
  const char *bytes;
  size_t size;
} tables[] = {
    {common, sizeof(common) - 1},
    {"\x00\x00\x90\x40\0\0\0\0\0\xff\x01\x04\x10\x05\x30\x01", 16},
    {"\x1b\x00\x01\x00\x00\x9b\x20\x03\x0d\x10\0\0\0\x05\0\0\0\xf0\xff\xff\xff\x01", 22},
    {"\xff\xff\x04\x19\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\x34\x12\0\0\0\0\0\0\x01", 29},
    {"\xff\xff\x09\x0c\x10\x05\xff\xff\x7e\x01\x90\x80\x01\x05\x7f\x01", 16},
};

/* The length of the call sites is told at the start, so a cut table is one that goes beyond the file: no pad. */
static void
cut_at_every_length(void **state)
{
  for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
    struct pads pads;
    size_t whole = walk(tables[t].bytes, tables[t].size, &pads);
    assert_true(t == 0 || whole != 0);
    for (size_t size = 1; size < tables[t].size; size++) {
      size_t count = walk(tables[t].bytes, size, &pads);
      assert_true(count <= whole);
      if (t != 0) {
        assert_int_equal(count, 0);
      }
    }
  }
}

static void
every_byte_changed(void **state)
{
  for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
    for (size_t at = 0; at < tables[t].size; at++) {
      for (unsigned value = 0; value < 256; value++) {
        uint8_t table[64];
        struct pads pads;
        memcpy(table, tables[t].bytes, tables[t].size);
        table[at] = (uint8_t)value;
        assert_true(walk(table, tables[t].size, &pads) <= tables[t].size / 4);
      }
    }
  }
}

static void
random_bytes(void **state)
{
  uint64_t random = 0x2545f4914f6cdd1dull;
  for (int round = 0; round < 20000; round++) {
    uint8_t table[64];
    struct pads pads;
    for (size_t i = 0; i < sizeof(table); i++) {
      table[i] = (uint8_t)(xorshift(&random) >> 32);
    }
    if (round % 2 == 0) { /* a head that leads on to the call sites */
      table[0] = table[1] = 0xff;
      table[2] = (uint8_t)(table[2] & 0x0f);
      table[3] = (uint8_t)(table[3] & 0x3f);
    }
    walk(table, 1 + random % sizeof(table), &pads);
  }
}

static int
set_up(void **state)
{
  uint8_t *map = mmap(NULL, IMAGE_MAX + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    return -1;
  }
  fence = map + IMAGE_MAX;
  return mprotect(fence, 4096, PROT_NONE);
}

static int
tear_down(void **state)
{
  return munmap(fence - IMAGE_MAX, IMAGE_MAX + 4096);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(uleb128_call_sites),     cmocka_unit_test(fixed_call_sites),
      cmocka_unit_test(another_start_for_pads), cmocka_unit_test(damage),
      cmocka_unit_test(cut_at_every_length),    cmocka_unit_test(every_byte_changed),
      cmocka_unit_test(random_bytes),
  };
  return cmocka_run_group_tests_name("lsda", tests, set_up, tear_down);
}
