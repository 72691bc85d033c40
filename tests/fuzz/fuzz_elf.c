/* SPDX-License-Identifier: MIT */
/* The ELF reader: files as they come, all that can be asked about them. Their debug files are not looked for. */
#include "elf_mutate.h"

#include "target/functions.h"

static void
check_functions(struct ct_elf *elf, const char *path)
{
  const struct ct_function *functions;
  size_t count;
  char label[300];
  if (ct_elf_functions(elf, &functions, &count, NULL) != CT_OK) {
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const struct ct_function *f = &functions[i];
    CHECK(i == 0 || functions[i - 1].address < f->address);
    CHECK(f->size <= ct_elf_bytes_left(elf, f->address) && ct_elf_is_code(elf, f->address));
    CHECK(f->size == 0 || ct_elf_bytes(elf, f->address, f->size) != NULL);
    CHECK(f->fde == CT_FDE_NONE || f->fde < ct_cfi_count(elf));
    CHECK((f->fde == CT_FDE_NONE) == (f->entry == CT_ENTRY_NOCFI));
    CHECK(ct_elf_function_at(elf, f->address) == f);
    const struct ct_function *around = ct_elf_function_around(elf, f->address);
    CHECK(f->size == 0 || around == f);
    CHECK(strlen(ct_function_label(label, sizeof(label), path, f)) != 0);
    const char *alias;
    for (size_t n = 0; (alias = ct_function_alias(elf, f, n)) != NULL; n++) {
      CHECK(alias[0] != 0 && f->name != NULL && strcmp(alias, f->name) != 0);
    }
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const struct ct_elf_options options = {.debug_root = "/nonexistent"};
  struct ct_diag diag = {""};
  struct ct_elf *elf;
  uint8_t *copy = malloc(size == 0 ? 1 : size);
  CHECK(copy != NULL);
  memcpy(copy, data, size);
  int code = ct_elf_open_bytes(copy, size, NULL, &options, &elf, &diag);
  if (code != CT_OK) {
    CHECK(diag.text[0] != 0);
    free(copy);
    return 0;
  }
  const struct ct_elf_segment *segments;
  const struct ct_elf_section *sections;
  size_t count = ct_elf_segments(elf, &segments);
  for (size_t i = 0; i < count; i++) {
    const uint8_t *bytes = ct_elf_bytes(elf, segments[i].address, 1);
    CHECK(bytes == NULL || (bytes >= copy && bytes < copy + size));
    (void)ct_elf_is_code(elf, segments[i].address + segments[i].memory_bytes - 1);
  }
  count = ct_elf_exec_sections(elf, &sections);
  for (size_t i = 0; i < count; i++) {
    CHECK(i == 0 || sections[i - 1].address <= sections[i].address);
  }
  uint64_t address;
  (void)ct_elf_symbol(elf, "main", &address);
  (void)ct_elf_symbol(elf, "_dl_debug_state", &address);
  CHECK(ct_elf_build_id(elf) != NULL && ct_elf_path(elf) != NULL && ct_elf_debug_path(elf) == NULL);
  if (ct_elf_interp(elf) != NULL) {
    (void)strlen(ct_elf_interp(elf));
  }
  if (ct_elf_soname(elf) != NULL) {
    (void)strlen(ct_elf_soname(elf));
  }
  check_functions(elf, "(memory)");
  ct_elf_close(elf);
  free(copy);
  return 0;
}
