/* SPDX-License-Identifier: MIT */
/* DWARF of a file; see debuginfo.h. */
#include "target/debuginfo.h"

#include "base/file.h"

#include <dwarf.h>
#include <errno.h>
#include <gelf.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

#define UNPACKED_FACTOR 64 /* a compressed section says how large it is: no compiler's is so much larger */
#define UNPACKED_FREE   (1ull << 20)
#define UNPACKED_MAX    (8ull << 30) /* of a file */

/* ---- what libdw would do by itself ---- */

void
ct_dwarf_hide_alternate(Elf *elf)
{
  size_t names;
  Elf_Scn *section = NULL;
  if (elf == NULL || elf_getshdrstrndx(elf, &names) != 0) {
    return;
  }
  while ((section = elf_nextscn(elf, section)) != NULL) {
    GElf_Shdr header;
    const char *name = gelf_getshdr(section, &header) != NULL ? elf_strptr(elf, names, header.sh_name) : NULL;
    Elf_Data *data = name != NULL && strstr(name, "gnu_debugaltlink") != NULL ? elf_getdata(section, NULL) : NULL;
    if (data != NULL) {
      data->d_size = 0;
    }
  }
}

/* How much the section is unpacked, as it says itself; 0: it is not. */
static uint64_t
unpacked_bytes(const struct ct_image *image, const Elf64_Shdr *section, size_t *size)
{
  enum { OLD_HEAD = 12 }; /* "ZLIB" and the size, the highest byte first */
  const uint8_t *bytes = ct_image_section_bytes(image, section, size);
  Elf64_Chdr head;
  if ((section->sh_flags & SHF_COMPRESSED) != 0 && *size >= sizeof(head)) {
    memcpy(&head, bytes, sizeof(head));
    return head.ch_size;
  }
  uint64_t unpacked = 0;
  if (strncmp(ct_image_section_name(image, section), ".z", 2) == 0 && *size >= OLD_HEAD) {
    for (int i = 4; i < OLD_HEAD; i++) {
      unpacked = unpacked << 8 | bytes[i];
    }
  }
  return unpacked;
}

/* A few kilobytes may say that they are gigabytes, and be it. */
static bool
can_be_unpacked(const struct ct_image *image)
{
  uint64_t all = 0;
  for (uint32_t i = 0; i < image->section_count; i++) {
    size_t size;
    uint64_t bytes = unpacked_bytes(image, &image->sections[i], &size);
    if (bytes > UNPACKED_FREE && bytes / UNPACKED_FACTOR > size) {
      return false;
    }
    all += bytes;
  }
  return all <= UNPACKED_MAX;
}

bool
ct_image_is_moderate(const struct ct_image *image, bool is_debug_file)
{
  Elf64_Ehdr header;
  memcpy(&header, image->bytes, sizeof(header));
  bool has_all = header.e_shoff == 0 || image->section_count != 0; /* else libelf may see some that we do not */
  return has_all && can_be_unpacked(image) && ct_cfi_is_moderate(image, is_debug_file);
}

/* libdw opens it, and would wait for a FIFO. What is not there is no harm. */
static bool
may_be_opened(const char *path)
{
  struct stat file;
  return stat(path, &file) == 0 ? S_ISREG(file.st_mode) : errno == ENOENT || errno == ENOTDIR;
}

/* Where libdw looks for the file that the skeleton is of: as it is named, and in the directory of the compiler. */
static bool
split_may_be_opened(Dwarf_Die *skeleton)
{
  Dwarf_Attribute attribute;
  char path[2 * PATH_MAX];
  const char *name = dwarf_formstring(dwarf_attr(skeleton, DW_AT_dwo_name, &attribute));
  name = name != NULL ? name : dwarf_formstring(dwarf_attr(skeleton, DW_AT_GNU_dwo_name, &attribute));
  const char *folder = dwarf_formstring(dwarf_attr(skeleton, DW_AT_comp_dir, &attribute));
  if (name == NULL || !may_be_opened(name)) {
    return false;
  }
  int length = snprintf(path, sizeof(path), "%s/%s", folder != NULL ? folder : ".", name);
  return name[0] == '/' || (length < (int)sizeof(path) && may_be_opened(path));
}

/* ---- files ---- */

bool
ct_dwarf_image_open(struct ct_dwarf_image *dwarf, const struct ct_image *image)
{
  elf_version(EV_CURRENT);
  dwarf->image = image;
  dwarf->bytes = can_be_unpacked(image) ? ct_image_writable(image) : NULL;
  dwarf->elf = dwarf->bytes != NULL ? elf_memory(dwarf->bytes, image->size) : NULL;
  ct_dwarf_hide_alternate(dwarf->elf);
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
  int fd = written > 0 && (size_t)written < sizeof(path) ? ct_open_regular(path) : -1;
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
  while (dwarf_get_units(dwarf, *unit, unit, &version, &type, die, NULL) == 0) {
    if (type == DW_UT_skeleton && split_may_be_opened(die) &&
        dwarf_cu_info(*unit, NULL, NULL, NULL, &split, NULL, NULL, NULL) == 0 && split.addr != NULL) {
      ct_dwarf_hide_alternate(dwarf_getelf(dwarf_cu_getdwarf(split.cu)));
      *die = split;
      return true;
    }
    if (type == DW_UT_compile) { /* partial ones, of dwz, have nothing with an address */
      return true;
    }
  }
  return false;
}
