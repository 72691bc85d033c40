/* SPDX-License-Identifier: MIT */
/* The DWARF of a file, of its separate debug file, and of what dwz has moved out of that, open for libdw. */
#ifndef CT_TARGET_DEBUGINFO_H
#define CT_TARGET_DEBUGINFO_H

#include <elfutils/libdw.h>
#include <libelf.h>

#include "target/private.h"

struct ct_debug_info {
  const struct ct_image *image;
  struct ct_image alt;
  char *bytes, *alt_bytes;
  Elf *elf, *alt_elf;
  Dwarf *dwarf, *alt_dwarf;
};

/*
 * The image that it is in, or NULL when there is none; *files (all zero) goes to ct_debug_info_close in either case.
 * The ct_elf may be one of the layout only; its debug file is looked for if that has not been done.
 */
const struct ct_image *ct_debug_info_open(struct ct_elf *elf, struct ct_debug_info *files);
void ct_debug_info_close(struct ct_debug_info *files);

#endif
