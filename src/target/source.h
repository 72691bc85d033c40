/* SPDX-License-Identifier: MIT */
/*
 * Where functions are written: source file and line, from the DWARF of a file or of its separate debug file. Read only
 * when somebody asks, because it costs a walk over every unit; see source.c.
 */
#ifndef CT_TARGET_SOURCE_H
#define CT_TARGET_SOURCE_H

#include "target/elf.h"

#define CT_NO_SOURCE UINT32_MAX

struct ct_source_line {
  uint32_t file; /* index, or CT_NO_SOURCE */
  uint32_t line; /* 0: not known */
};

struct ct_sources {
  struct ct_source_line *functions; /* in the order of the addresses that were asked for */
  size_t count;
  size_t known; /* of count, those with a file */
  char **files; /* each once, without `.`, `..` and doubled `/`; absolute where the compiler wrote the folder */
  size_t file_count;
};

/*
 * The sources of the functions at these addresses, which are sorted. 0, CT_ENOENT when the file has no debug
 * information, or CT_ENOMEM. *out goes to ct_sources_free. The ct_elf may be one of the layout only; its debug file is
 * looked for if that has not been done.
 */
int ct_sources_read(struct ct_elf *elf, const uint64_t *addresses, size_t count, struct ct_sources **out);
void ct_sources_free(struct ct_sources *sources); /* accepts NULL */

/* The path in place, as in ct_sources.files. */
void ct_source_path_normalize(char *path);

#endif
