/* SPDX-License-Identifier: MIT */
/* The DWARF of a file, of its separate debug file, and of what dwz has moved out of that, open for libdw. */
#ifndef CT_TARGET_DEBUGINFO_H
#define CT_TARGET_DEBUGINFO_H

#include <elfutils/libdw.h>
#include <libelf.h>

#include "target/target_internal.h"

/* One image, open for libdw. */
struct ct_dwarf_image {
  const struct ct_image *image;
  char *bytes;
  Elf *elf;
  Dwarf *dwarf; /* NULL: not open */
};

struct ct_debug_info {
  struct ct_image alt_image;
  struct ct_dwarf_image own, alt;
};

/* A walk over the functions of units. */
struct ct_dwarf_walk {
  void (*visit)(void *context, Dwarf_Die *function); /* each entry, declarations too */
  void *context;
  size_t *budget; /* entries left: there cannot be more of them than bytes */
};

/*
 * libdw opens what .gnu_debugaltlink names when it comes upon a reference into it, and so would wait for a FIFO. Of
 * that file it is not to know then: ct_debug_info_open opens it where it is one. Before such a reference is followed.
 */
void ct_dwarf_hide_alternate(Elf *elf);

/*
 * Of a file that others may write to, before libdw is given it as a whole: what it has to unpack, and to run to find
 * callers (cfi_bounds.c), is no more than compilers write. is_debug_file: a separate one.
 */
bool ct_image_is_moderate(const struct ct_image *image, bool is_debug_file);
bool ct_cfi_is_moderate(const struct ct_image *image, bool is_debug_file); /* a part of that */

/* Gives whether it can be read. *dwarf (all zero) goes to ct_dwarf_image_close in either case. */
bool ct_dwarf_image_open(struct ct_dwarf_image *dwarf, const struct ct_image *image);
void ct_dwarf_image_close(struct ct_dwarf_image *dwarf);

/*
 * The image that it is in, or NULL when there is none; *files (all zero) goes to ct_debug_info_close in either case.
 * The ct_elf may be one of the layout only; its debug file is looked for if that has not been done.
 */
const struct ct_image *ct_debug_info_open(struct ct_elf *elf, struct ct_debug_info *files);
void ct_debug_info_close(struct ct_debug_info *files);

/* The functions at the outermost level and in namespaces; deep: those inside of types, blocks and functions too. */
void ct_dwarf_walk_functions(const struct ct_dwarf_walk *walk, Dwarf_Die *unit, bool deep);
/* Goes on to the next unit with code, that of a split file in place of its skeleton; false: there is none. */
bool ct_dwarf_next_unit(Dwarf *dwarf, Dwarf_CU **unit, Dwarf_Die *die);

#endif
