/* SPDX-License-Identifier: MIT */
/*
 * Subprograms with code, from DWARF through libdw. Read only for the rare file that has debug information and no
 * symbol table, because it costs a walk over every unit.
 */
#include <dwarf.h>
#include <stdlib.h>

#include "target/debuginfo.h"

struct ct_dwarf {
  struct ct_dwarf_image image;
};

struct receiver {
  ct_dwarf_found *found;
  void *arg;
};

static void
visit_function(void *context, Dwarf_Die *die)
{
  const struct receiver *receiver = context;
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
  receiver->found(receiver->arg, entry, high - entry, name, external);
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

  if (!ct_dwarf_image_open(&dwarf->image, image)) {
    ct_dwarf_close(dwarf);
    return NULL;
  }
  struct receiver receiver = {.found = found, .arg = arg};
  size_t budget = image->size;
  struct ct_dwarf_walk walk = {.visit = visit_function, .context = &receiver, .budget = &budget};
  Dwarf_CU *unit = NULL;
  Dwarf_Die die;
  while (ct_dwarf_next_unit(dwarf->image.dwarf, &unit, &die)) {
    ct_dwarf_walk_functions(&walk, &die, true);
  }
  return dwarf;
}

void
ct_dwarf_close(struct ct_dwarf *dwarf)
{
  if (dwarf == NULL) {
    return;
  }
  ct_dwarf_image_close(&dwarf->image);
  free(dwarf);
}
