/* SPDX-License-Identifier: MIT */
/* DWARF of a file; see debuginfo.h. */
#include "target/debuginfo.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
  int code = ct_image_map(&files->alt, fd, path, NULL);
  close(fd);
  size_t id_bytes = code == CT_OK ? ct_image_build_id(&files->alt, id) : 0;
  if (id_bytes == 0 || size - length - 1 != id_bytes || memcmp(name + length + 1, id, id_bytes) != 0) {
    return;
  }
  files->alt_bytes = ct_image_writable(&files->alt);
  files->alt_elf = files->alt_bytes != NULL ? elf_memory(files->alt_bytes, files->alt.size) : NULL;
  files->alt_dwarf = files->alt_elf != NULL ? dwarf_begin_elf(files->alt_elf, DWARF_C_READ, NULL) : NULL;
  if (files->alt_dwarf != NULL) {
    dwarf_setalt(files->dwarf, files->alt_dwarf);
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
  elf_version(EV_CURRENT);
  files->image = image;
  files->bytes = ct_image_writable(image);
  files->elf = files->bytes != NULL ? elf_memory(files->bytes, image->size) : NULL;
  files->dwarf = files->elf != NULL ? dwarf_begin_elf(files->elf, DWARF_C_READ, NULL) : NULL;
  if (files->dwarf == NULL) {
    return NULL;
  }
  open_alternate(elf, image, files);
  return image;
}

void
ct_debug_info_close(struct ct_debug_info *files)
{
  dwarf_end(files->dwarf);
  dwarf_end(files->alt_dwarf);
  elf_end(files->elf);
  elf_end(files->alt_elf);
  if (files->image != NULL) {
    ct_image_release_writable(files->image, files->bytes);
  }
  ct_image_release_writable(&files->alt, files->alt_bytes);
  ct_image_clear(&files->alt);
}
