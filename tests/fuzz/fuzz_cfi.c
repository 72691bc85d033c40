/* SPDX-License-Identifier: MIT */
/*
 * Call frame information and exception tables, in an ELF file made around them: one segment with code, .eh_frame and
 * the exception tables, one section header table that names .eh_frame.
 *
 *   input:  bytes of the exception tables (u16), these, .eh_frame
 *
 *   file:   | headers | text | tables | .eh_frame | section names | section headers |
 */
#include "fuzz.h"

#include "target/cfi.h"
#include "target/functions.h"
#include "target/lsda.h"

#include <elf.h>

enum { BASE = 0x10000, TEXT = 0x200, TEXT_BYTES = 0x800, TABLES = TEXT + TEXT_BYTES };
static const char names[] = "\0.eh_frame\0.text\0.shstrtab";

static size_t
make_file(const uint8_t *tables, size_t table_bytes, const uint8_t *frames, size_t frame_bytes, uint8_t **out)
{
  size_t frames_at = (TABLES + table_bytes + 7) & ~(size_t)7;
  size_t names_at = frames_at + frame_bytes;
  size_t sections_at = (names_at + sizeof(names) + 7) & ~(size_t)7;
  size_t size = sections_at + 4 * sizeof(Elf64_Shdr);
  uint8_t *file = calloc(1, size);
  CHECK(file != NULL);
  Elf64_Ehdr *header = (Elf64_Ehdr *)file;
  memcpy(header->e_ident, ELFMAG "\2\1\1", 7);
  header->e_type = ET_DYN;
  header->e_machine = EM_X86_64;
  header->e_version = 1;
  header->e_phoff = sizeof(*header);
  header->e_shoff = sections_at;
  header->e_ehsize = sizeof(*header);
  header->e_phentsize = sizeof(Elf64_Phdr);
  header->e_phnum = 1;
  header->e_shentsize = sizeof(Elf64_Shdr);
  header->e_shnum = 4;
  header->e_shstrndx = 3;
  *(Elf64_Phdr *)(file + sizeof(*header)) = (Elf64_Phdr){
      .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = BASE, .p_filesz = sections_at, .p_memsz = sections_at};
  memset(file + TEXT, 0xc3, TEXT_BYTES);
  memcpy(file + TABLES, tables, table_bytes);
  memcpy(file + frames_at, frames, frame_bytes);
  memcpy(file + names_at, names, sizeof(names));
  Elf64_Shdr *sections = (Elf64_Shdr *)(file + sections_at);
  sections[1] = (Elf64_Shdr){.sh_name = 1,
                             .sh_type = SHT_PROGBITS,
                             .sh_flags = SHF_ALLOC,
                             .sh_addr = BASE + frames_at,
                             .sh_offset = frames_at,
                             .sh_size = frame_bytes};
  sections[2] = (Elf64_Shdr){.sh_name = 11,
                             .sh_type = SHT_PROGBITS,
                             .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                             .sh_addr = BASE + TEXT,
                             .sh_offset = TEXT,
                             .sh_size = TEXT_BYTES};
  sections[3] = (Elf64_Shdr){.sh_name = 17, .sh_type = SHT_STRTAB, .sh_offset = names_at, .sh_size = sizeof(names)};
  *out = file;
  return size;
}

static void
count_pad(void *context, uint64_t address)
{
  (void)address;
  ++*(size_t *)context;
}

/* The rows as a list and one by one must be the same, and end where the FDE does. */
static void
check_rows(const struct ct_elf *elf, uint32_t index, const struct ct_cfi_fde *fde)
{
  enum { ROWS = 64 };
  struct ct_cfi_row *rows = malloc(ROWS * sizeof(*rows)), one;
  CHECK(rows != NULL);
  size_t count = ct_cfi_rows(elf, index, rows, ROWS);
  CHECK(count >= 1 && rows[0].pc == fde->start);
  for (size_t i = 0; i < count && i < ROWS; i++) {
    CHECK(rows[i].pc >= fde->start && rows[i].pc < fde->end && (i == 0 || rows[i - 1].pc < rows[i].pc));
    CHECK(ct_cfi_row_at(elf, index, rows[i].pc, &one) == CT_OK);
    CHECK(one.pc == rows[i].pc && one.cfa_reg == rows[i].cfa_reg && one.cfa_offset == rows[i].cfa_offset &&
          one.ra_at_cfa_minus_8 == rows[i].ra_at_cfa_minus_8);
  }
  CHECK(ct_cfi_row_at(elf, index, fde->end, &one) != CT_OK);
  free(rows);
}

static void
check_frames(struct ct_elf *elf)
{
  const struct ct_function *functions;
  size_t function_count, pads = 0;
  uint32_t count = ct_cfi_count(elf);
  uint64_t before = 0;
  for (uint32_t i = 0; i < count; i++) {
    struct ct_cfi_fde fde;
    CHECK(ct_cfi_get(elf, i, &fde) == CT_OK && fde.start < fde.end && fde.start >= before);
    CHECK(ct_elf_is_code(elf, fde.start));
    before = fde.start;
    check_rows(elf, i, &fde);
    size_t visited = 0;
    pads = ct_lsda_landing_pads(elf, &fde, count_pad, &visited);
    CHECK(pads == visited);
  }
  CHECK(ct_elf_functions(elf, &functions, &function_count, NULL) == CT_OK && function_count <= count);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct input input = {data, data + size};
  size_t table_bytes = input_number(&input, 2), frame_bytes;
  uint8_t *tables = input_part(&input, table_bytes, &table_bytes);
  uint8_t *frames = input_part(&input, 1 << 16, &frame_bytes);
  uint8_t *file;
  size_t bytes = make_file(tables, table_bytes, frames, frame_bytes, &file);
  struct ct_elf *elf;
  CHECK(ct_elf_open_bytes(file, bytes, NULL, NULL, &elf, NULL) == CT_OK);
  check_frames(elf);
  ct_elf_close(elf);
  free(file);
  free(frames);
  free(tables);
  return 0;
}
