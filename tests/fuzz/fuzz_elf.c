/* SPDX-License-Identifier: MIT */
/* The ELF reader: files as they come, all that can be asked about them. Their debug files are not looked for. */
#include "elf_mutate.h"

#include "target/functions.h"
#include "target/prototypes.h"

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

static uint32_t
take_constants(void *arg, const struct ct_constant *list, uint32_t count)
{
  size_t *total = arg;
  for (uint32_t i = 0; i < count; i++) {
    *total += strlen(list[i].name);
  }
  return count;
}

static uint32_t
take_members(void *arg, const char *fields)
{
  size_t *total = arg;
  *total += strlen(fields);
  return (uint32_t)(*total % 7); /* now and then there is no room for more */
}

/* What is found can be written and read again. */
static void
take_prototype(void *arg, size_t index, const struct ct_prototype *prototype)
{
  static struct ct_prototype again;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out != NULL);
  ct_prototype_write(out, prototype);
  CHECK(fclose(out) == 0 && ct_prototype_parse(text, &again));
  CHECK(again.count == prototype->count && again.is_variadic == prototype->is_variadic);
  free(text);
}

static void
check_prototypes(struct ct_elf *elf)
{
  const struct ct_function *functions;
  size_t count, total = 0;
  struct ct_prototype_sink sink = {
      .arg = &total, .constants = take_constants, .members = take_members, .prototype = take_prototype};
  if (ct_elf_functions(elf, &functions, &count, NULL) != CT_OK) {
    return;
  }
  struct ct_prototype_wanted *wanted = calloc(count + 1, sizeof(*wanted));
  CHECK(wanted != NULL);
  for (size_t i = 0; i < count; i++) {
    wanted[i] = (struct ct_prototype_wanted){functions[i].address, functions[i].name};
  }
  int code = ct_prototypes_read(elf, wanted, count, &sink);
  CHECK(code == CT_OK || code == CT_ENOENT || code == CT_ENOMEM);
  free(wanted);
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
  check_prototypes(elf);
  ct_elf_close(elf);
  free(copy);
  return 0;
}
