/* SPDX-License-Identifier: MIT */
/*
 * The bytes of one ELF file and its header tables, checked. Private to this folder: the main file, its debug file and
 * its mini debug info are each an image. Tables are copied out (the file may have them unaligned); contents are not.
 */
#ifndef CT_TARGET_IMAGE_H
#define CT_TARGET_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ct_image {
  const uint8_t *bytes; /* NULL: no such image */
  size_t size;
  uint16_t type;
  uint64_t entry;
  Elf64_Phdr *segments;
  uint32_t segment_count;
  Elf64_Shdr *sections; /* none when the table is damaged: programs run without it */
  uint32_t section_count;
  const char *section_names;
  size_t section_names_bytes;
  void *mapping; /* munmapped by ct_image_clear when mapping_bytes != 0, else freed */
  size_t mapping_bytes;
};

/* A symbol table and what is needed to read it; count == 0 when there is none. Strings end in a NUL. */
struct ct_symbols {
  const uint8_t *entries; /* Elf64_Sym, unaligned */
  size_t count;
  const char *strings;
  size_t strings_bytes;
  const uint8_t *versions; /* u16 each, or NULL */
  size_t version_count;
};

/* image->bytes and size are set. Fills the rest or says why not; ct_image_clear afterwards in either case. */
int ct_image_parse(struct ct_image *image, const char *path, struct ct_diag *diag);
/* Maps a regular file; then ct_image_parse. */
int ct_image_map(struct ct_image *image, int fd, const char *path, struct ct_diag *diag);
void ct_image_clear(struct ct_image *image);

const char *ct_image_section_name(const struct ct_image *image, const Elf64_Shdr *section);
const Elf64_Shdr *ct_image_section(const struct ct_image *image, const char *name);
const Elf64_Shdr *ct_image_section_of_type(const struct ct_image *image, uint32_t type);
/* The section's bytes in the file, cut to the file's end; NULL for none. */
const uint8_t *ct_image_section_bytes(const struct ct_image *image, const Elf64_Shdr *section, size_t *size);

/* The symbol table in the first section of this type (SHT_SYMTAB, SHT_DYNSYM). */
void ct_image_symbols(const struct ct_image *image, uint32_t section_type, struct ct_symbols *out);
/* Cuts the strings to the last NUL, so that every offset inside is a terminated string. */
void ct_symbols_set_strings(struct ct_symbols *symbols, const char *strings, size_t bytes);

/* The GNU build-id; 0 bytes without one. At most 64. */
enum { CT_BUILD_ID_BYTES_MAX = 64 };
size_t ct_image_build_id(const struct ct_image *image, uint8_t out[CT_BUILD_ID_BYTES_MAX]);

/*
 * The image's bytes for libdw, which unpacks compressed sections in place: the image itself when it has none, else a
 * copy. NULL: out of memory. Goes to ct_image_release_writable.
 */
char *ct_image_writable(const struct ct_image *image);
void ct_image_release_writable(const struct ct_image *image, char *bytes);

static inline Elf64_Sym
ct_symbol_at(const struct ct_symbols *symbols, size_t index)
{
  Elf64_Sym symbol;
  __builtin_memcpy(&symbol, symbols->entries + index * sizeof(symbol), sizeof(symbol));
  return symbol;
}

static inline const char *
ct_symbol_name(const struct ct_symbols *symbols, const Elf64_Sym *symbol)
{
  return symbol->st_name < symbols->strings_bytes ? symbols->strings + symbol->st_name : "";
}

/* Defined in this file, at an address of it. */
static inline bool
ct_symbol_is_defined(const Elf64_Sym *symbol)
{
  return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS && symbol->st_shndx != SHN_COMMON;
}

#endif
