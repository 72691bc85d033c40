/* SPDX-License-Identifier: MIT */
/*
 * Subprograms with code, from DWARF through libdw. Read only for the rare file that has debug information and no
 * symbol table, because it costs a walk over every unit.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <stdlib.h>

#include "target/private.h"

enum { DEPTH_MAX = 64 };

struct ct_dwarf {
  const struct ct_image *image;
  char *bytes;
  Elf *elf;
  Dwarf *dwarf;
};

struct walk {
  ct_dwarf_found *found;
  void *arg;
  size_t budget; /* entries left: there cannot be more of them than bytes */
};

static void
visit_subprogram(struct walk *walk, Dwarf_Die *die)
{
  Dwarf_Attribute attribute;
  Dwarf_Addr entry, high;
  bool external = false;

  if (dwarf_hasattr(die, DW_AT_declaration) || dwarf_entrypc(die, &entry) != 0) {
    return;
  }
  if (dwarf_highpc(die, &high) != 0 || high < entry) {
    high = entry; /* in pieces: the symbol's own size is not known */
  }
  const char *name = NULL;
  if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) != NULL) {
    name = dwarf_formstring(&attribute);
  }
  if (name == NULL) {
    name = dwarf_diename(die);
  }
  if (dwarf_attr_integrate(die, DW_AT_external, &attribute) != NULL) {
    (void)dwarf_formflag(&attribute, &external);
  }
  walk->found(walk->arg, entry, high - entry, name, external);
}

/* The entries below parent that are subprograms or may contain some. */
static void
visit_children(struct walk *walk, Dwarf_Die *parent, unsigned depth)
{
  Dwarf_Die die;

  if (depth == DEPTH_MAX || dwarf_child(parent, &die) != 0) {
    return;
  }
  do {
    if (walk->budget == 0) {
      return;
    }
    walk->budget--;
    switch (dwarf_tag(&die)) {
    case DW_TAG_subprogram:
      visit_subprogram(walk, &die);
      visit_children(walk, &die, depth + 1);
      break;
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type:
    case DW_TAG_lexical_block:
      visit_children(walk, &die, depth + 1);
      break;
    }
  } while (dwarf_siblingof(&die, &die) == 0);
}

struct ct_dwarf *
ct_dwarf_read(const struct ct_image *image, ct_dwarf_found *found, void *arg)
{
  if (image->bytes == NULL || (ct_image_section(image, ".debug_info") == NULL)) {
    return NULL;
  }
  struct ct_dwarf *dwarf = calloc(1, sizeof(*dwarf));
  if (dwarf == NULL) {
    return NULL;
  }

  elf_version(EV_CURRENT);
  dwarf->image = image;
  dwarf->bytes = ct_image_writable(image);
  dwarf->elf = dwarf->bytes != NULL ? elf_memory(dwarf->bytes, image->size) : NULL;
  dwarf->dwarf = dwarf->elf != NULL ? dwarf_begin_elf(dwarf->elf, DWARF_C_READ, NULL) : NULL;
  if (dwarf->dwarf == NULL) {
    ct_dwarf_close(dwarf);
    return NULL;
  }
  struct walk walk = {.found = found, .arg = arg, .budget = image->size};
  Dwarf_CU *unit = NULL;
  Dwarf_Half version;
  uint8_t type;
  Dwarf_Die die;
  while (dwarf_get_units(dwarf->dwarf, unit, &unit, &version, &type, &die, NULL) == 0) {
    if (type == DW_UT_compile || type == DW_UT_partial) {
      visit_children(&walk, &die, 0);
    }
  }
  return dwarf;
}

void
ct_dwarf_close(struct ct_dwarf *dwarf)
{
  if (dwarf == NULL) {
    return;
  }
  dwarf_end(dwarf->dwarf);
  elf_end(dwarf->elf);
  ct_image_release_writable(dwarf->image, dwarf->bytes);
  free(dwarf);
}
