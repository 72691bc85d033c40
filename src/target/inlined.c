/* SPDX-License-Identifier: MIT */
/*
 * See inlined.h. A function that was inlined has an entry of its own, the abstract instance, without code: its
 * attribute DW_AT_inline says that the compiler did so, with or without the word `inline` in the source.
 */
#include "target/inlined.h"

#include "target/debuginfo.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
  bool (*matches)(void *arg, const char *name);
  void *arg;
  char *found;
};

static void
visit_function(void *context, Dwarf_Die *die)
{
  struct search *search = context;
  Dwarf_Attribute attribute;
  Dwarf_Word inlined;
  if (search->found != NULL || dwarf_attr(die, DW_AT_inline, &attribute) == NULL ||
      dwarf_formudata(&attribute, &inlined) != 0 || (inlined != DW_INL_inlined && inlined != DW_INL_declared_inlined)) {
    return;
  }
  const char *name = dwarf_diename(die), *linkage = NULL;
  if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) != NULL) {
    linkage = dwarf_formstring(&attribute);
  }
  if ((name != NULL && search->matches(search->arg, name)) ||
      (linkage != NULL && search->matches(search->arg, linkage))) {
    search->found = strdup(name != NULL ? name : linkage);
  }
}

int
ct_inlined_find(const char *path, bool (*matches)(void *arg, const char *name), void *arg, char **found,
                struct ct_diag *diag)
{
  static const struct ct_elf_options layout = {.layout_only = true};
  struct search search = {.matches = matches, .arg = arg};
  struct ct_debug_info files = {0};
  struct ct_elf *elf;
  int fd = ct_elf_open_file(path, diag);
  if (fd < 0) {
    return fd;
  }
  int code = ct_elf_open_fd(fd, path, &layout, &elf, diag);
  close(fd);
  if (code != 0) {
    return code;
  }
  const struct ct_image *image = ct_debug_info_open(elf, &files);
  if (image != NULL) {
    size_t budget = image->size;
    struct ct_dwarf_walk walk = {.visit = visit_function, .context = &search, .budget = &budget};
    Dwarf_CU *unit = NULL;
    Dwarf_Die die;
    while (search.found == NULL && ct_dwarf_next_unit(files.own.dwarf, &unit, &die)) {
      ct_dwarf_walk_functions(&walk, &die, true);
    }
    *found = search.found;
  } else {
    code = ct_fail(diag, CT_ENOENT, "%s has no debug information", path);
  }
  ct_debug_info_close(&files);
  ct_elf_close(elf);
  return code;
}
