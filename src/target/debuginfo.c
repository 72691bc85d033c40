/* SPDX-License-Identifier: MIT */
/* DWARF of a file; see debuginfo.h. */
#include "target/debuginfo.h"

#include <dwarf.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

bool
ct_dwarf_image_open(struct ct_dwarf_image *dwarf, const struct ct_image *image)
{
  elf_version(EV_CURRENT);
  dwarf->image = image;
  dwarf->bytes = ct_image_writable(image);
  dwarf->elf = dwarf->bytes != NULL ? elf_memory(dwarf->bytes, image->size) : NULL;
  dwarf->dwarf = dwarf->elf != NULL ? dwarf_begin_elf(dwarf->elf, DWARF_C_READ, NULL) : NULL;
  return dwarf->dwarf != NULL;
}

void
ct_dwarf_image_close(struct ct_dwarf_image *dwarf)
{
  dwarf_end(dwarf->dwarf);
  elf_end(dwarf->elf);
  if (dwarf->image != NULL) {
    ct_image_release_writable(dwarf->image, dwarf->bytes);
  }
}

/* What dwz has moved out of several debug files into one, named in .gnu_debugaltlink. */
static void
open_alternate(const struct ct_elf *elf, const struct ct_image *image, struct ct_debug_info *files)
{
  char path[PATH_MAX], real[PATH_MAX];
  uint8_t id[CT_BUILD_ID_BYTES_MAX];
  size_t size;
  const char *own = image == &elf->main ? elf->path : elf->debug_path;
  const char *name = (const char *)ct_image_section_bytes(image, ct_image_section(image, ".gnu_debugaltlink"), &size);
  size_t length = name != NULL ? strnlen(name, size) : 0;
  if (length == 0 || length == size || realpath(own, real) == NULL) {
    return;
  }
  int written = name[0] == '/' ? snprintf(path, sizeof(path), "%s", name)
                               : snprintf(path, sizeof(path), "%s/%s", dirname(real), name);
  int fd =
      written > 0 && (size_t)written < sizeof(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
  if (fd < 0) {
    return;
  }
  int code = ct_image_map(&files->alt_image, fd, path, NULL);
  close(fd);
  size_t id_bytes = code == CT_OK ? ct_image_build_id(&files->alt_image, id) : 0;
  if (id_bytes == 0 || size - length - 1 != id_bytes || memcmp(name + length + 1, id, id_bytes) != 0) {
    return;
  }
  if (ct_dwarf_image_open(&files->alt, &files->alt_image)) {
    dwarf_setalt(files->own.dwarf, files->alt.dwarf);
  }
}

const struct ct_image *
ct_debug_info_open(struct ct_elf *elf, struct ct_debug_info *files)
{
  const struct ct_image *image = &elf->main;
  if (ct_image_section(image, ".debug_info") == NULL && ct_image_section(image, ".zdebug_info") == NULL) {
    if (elf->debug.bytes == NULL) {
      ct_debugfile_find(elf);
    }
    image = &elf->debug;
    if (image->bytes == NULL || ct_image_section(image, ".debug_info") == NULL) {
      return NULL;
    }
  }
  if (!ct_dwarf_image_open(&files->own, image)) {
    return NULL;
  }
  open_alternate(elf, image, files);
  return image;
}

void
ct_debug_info_close(struct ct_debug_info *files)
{
  ct_dwarf_image_close(&files->own);
  ct_dwarf_image_close(&files->alt);
  ct_image_clear(&files->alt_image);
}

static void
walk_children(const struct ct_dwarf_walk *walk, Dwarf_Die *parent, bool deep, unsigned depth)
{
  Dwarf_Die die;
  if (depth == DEPTH_MAX || dwarf_child(parent, &die) != 0) {
    return;
  }
  do {
    if (*walk->budget == 0) {
      return;
    }
    --*walk->budget;
    switch (dwarf_tag(&die)) {
    case DW_TAG_subprogram:
      walk->visit(walk->context, &die);
      if (deep) {
        walk_children(walk, &die, deep, depth + 1);
      }
      break;
    case DW_TAG_namespace:
    case DW_TAG_module:
      walk_children(walk, &die, deep, depth + 1);
      break;
    case DW_TAG_structure_type:
    case DW_TAG_class_type:
    case DW_TAG_union_type:
    case DW_TAG_lexical_block:
      if (deep) {
        walk_children(walk, &die, deep, depth + 1);
      }
      break;
    }
  } while (dwarf_siblingof(&die, &die) == 0);
}

void
ct_dwarf_walk_functions(const struct ct_dwarf_walk *walk, Dwarf_Die *unit, bool deep)
{
  walk_children(walk, unit, deep, 0);
}

bool
ct_dwarf_next_unit(Dwarf *dwarf, Dwarf_CU **unit, Dwarf_Die *die)
{
  Dwarf_Half version;
  uint8_t type;
  Dwarf_Die split;
  while (dwarf_get_units(dwarf, *unit, unit, &version, &type, die, &split) == 0) {
    if (type == DW_UT_skeleton && split.addr != NULL) {
      *die = split;
      return true;
    }
    if (type == DW_UT_compile) { /* partial ones, of dwz, have nothing with an address */
      return true;
    }
  }
  return false;
}
