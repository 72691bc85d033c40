/* SPDX-License-Identifier: MIT */
/* What the files of this folder share about a ct_elf. Nobody else includes this. */
#ifndef CT_TARGET_INTERNAL_H
#define CT_TARGET_INTERNAL_H

#include "target/cfi.h"
#include "target/elf.h"
#include "target/functions.h"
#include "target/image.h"

/* A part of the address space, [start, end). */
struct ct_extent {
  uint64_t start;
  uint64_t end;
};

/* The state of a CFI row; what ct_cfi_row says, without the pc. */
struct ct_cfi_rule {
  int32_t cfa_offset;
  uint8_t cfa_reg;
  uint8_t ra_at_cfa_minus_8;
};

struct ct_cie {
  uint64_t code_align;
  int64_t data_align;
  uint64_t personality;
  uint32_t offset; /* of the record in .eh_frame */
  uint32_t code;   /* offset of the initial instructions */
  uint32_t code_bytes;
  uint32_t ra_register;
  uint8_t fde_encoding;
  uint8_t lsda_encoding;
  uint8_t personality_indirect;
  uint8_t has_z;
  uint8_t signal_frame;
  struct ct_cfi_rule initial; /* after the initial instructions */
};

struct ct_fde {
  uint64_t start;
  uint64_t end;
  uint32_t cie;  /* index */
  uint32_t body; /* offset of the encoded start */
  uint32_t body_bytes;
  uint32_t code_bytes; /* the last bytes of the body */
};

struct ct_cfi {
  const uint8_t *bytes; /* .eh_frame, NULL without one */
  uint32_t size;
  uint64_t address;
  struct ct_cie *cies; /* sorted by offset */
  uint32_t cie_count;
  struct ct_fde *fdes; /* sorted by start */
  uint32_t fde_count;
};

struct ct_alias {
  uint64_t address;
  const char *name;
};

struct ct_dwarf;

struct ct_elf {
  char *path;
  char *debug_root;
  char *debug_path;
  uint32_t sources;
  bool layout_only;
  struct ct_image main;
  struct ct_image debug;
  struct ct_image mini;
  char build_id[2 * CT_BUILD_ID_BYTES_MAX + 1];
  const char *interp;
  const char *soname;
  struct ct_elf_segment *segments;
  size_t segment_count;
  struct ct_elf_section *exec_sections;
  size_t exec_section_count;
  struct ct_extent *data_in_code; /* sorted, disjoint: data sections that lie inside executable segments */
  size_t data_in_code_count;
  struct ct_symbols dynsym;
  struct ct_symbols symtab;
  struct ct_symbols debug_symtab;
  struct ct_symbols mini_symtab;
  struct ct_cfi cfi;
  struct ct_dwarf *dwarf; /* owns the names that come from DWARF */
  struct ct_function *functions;
  size_t function_count;
  struct ct_alias *aliases; /* sorted by address */
  size_t alias_count;
};

/* dynamic.c: soname, and .dynsym of a file without section headers. */
void ct_dynamic_read(struct ct_elf *elf);

/* debugfile.c: fills elf->debug and elf->mini. What cannot be used is passed over; only CT_ENOMEM is an error. */
int ct_debugfile_find(struct ct_elf *elf);
int ct_minidebug_unpack(struct ct_elf *elf);

/* cfi.c. Address is that of .eh_frame; until_zero: the size is only a bound, a zero length ends the records. */
int ct_cfi_build(struct ct_elf *elf, const uint8_t *bytes, size_t size, uint64_t address, bool until_zero);
/* cfi_rows.c: cie->initial. */
void ct_cfi_run_initial(const struct ct_cfi *cfi, struct ct_cie *cie);
/* cfi_rows.c: the entry state of functions sorted by address, in one pass over each FDE. */
void ct_cfi_enter_functions(const struct ct_elf *elf, struct ct_function *functions, size_t count);
/* cfi.c: a pointer as .eh_frame encodes it at *at; false when it does not fit before end or is of an unknown form. */
bool ct_cfi_pointer(const struct ct_cfi *cfi, const uint8_t **at, const uint8_t *end, uint8_t encoding,
                    uint64_t *value);
/* cfi.c: a CIE with its offset set; at: after its id. False: it cannot be read. */
bool ct_cfi_parse_cie(const struct ct_cfi *cfi, struct ct_cie *cie, const uint8_t *at, const uint8_t *end);
/* cfi.c: the CIE whose record begins at offset, or UINT32_MAX. */
uint32_t ct_cfi_find_cie(const struct ct_cfi *cfi, uint64_t offset);
/* cfi_rows.c: the instructions can be run to their end, and name no registers that no processor has. */
bool ct_cfi_runs(const struct ct_cfi *cfi, const struct ct_cie *cie, const uint8_t *code, size_t bytes);
bool ct_cfi_uleb(const uint8_t **at, const uint8_t *end, uint64_t *value);
bool ct_cfi_sleb(const uint8_t **at, const uint8_t *end, int64_t *value);

/* dwarf.c: calls found for each subprogram with code. NULL when there is no DWARF to read. */
typedef void ct_dwarf_found(void *arg, uint64_t address, uint64_t size, const char *name, bool external);
struct ct_dwarf *ct_dwarf_read(const struct ct_image *image, ct_dwarf_found *found, void *arg);
void ct_dwarf_close(struct ct_dwarf *dwarf);

/* golang.c: calls found for each function of Go's own table; the name may be NULL. */
typedef void ct_golang_found(void *arg, uint64_t address, uint64_t size, const char *name);
void ct_golang_functions(const struct ct_elf *elf, ct_golang_found *found, void *arg);

#endif
