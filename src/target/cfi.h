/* SPDX-License-Identifier: MIT */
/*
 * The call frame information of a ct_elf: an index over the FDEs of its .eh_frame, sorted by start, and the rows
 * that each one gives. The index is built by ct_elf_open; everything here is a pure read.
 *
 * Damage: a record that makes no sense is left out of the index; the rows of an FDE end with a row of
 * cfa_reg == CT_CFA_UNKNOWN where its instructions stop making sense.
 */
#ifndef CT_TARGET_CFI_H
#define CT_TARGET_CFI_H

#include <stddef.h>
#include <stdint.h>

#include "target/elf.h"

enum { CT_FDE_NONE = UINT32_MAX };

/* What the row in force at an address says about it as a place to be called. */
enum ct_entry_state {
  CT_ENTRY_CALLABLE, /* CFA = rsp+8, return address at CFA-8, no signal frame */
  CT_ENTRY_NOCFI,    /* no FDE covers it */
  CT_ENTRY_ODD_CFI,  /* any other row */
  CT_ENTRY_SIGNAL,   /* augmentation 'S' */
};

struct ct_cfi_fde {
  uint64_t start;
  uint64_t end;                 /* one past the last byte */
  uint64_t lsda;                /* vaddr, 0 without one */
  uint64_t personality;         /* vaddr, 0 without one */
  uint8_t personality_indirect; /* personality is the address of a pointer to it (DW_EH_PE_indirect) */
  uint8_t lsda_encoding;        /* DW_EH_PE_*, 0xff without one */
  uint8_t signal_frame;
  uint8_t ra_register; /* 16 in all sane code */
  uint64_t code_align;
  int64_t data_align;
  const uint8_t *cie_code; /* instructions of the CIE and of the FDE, in the file */
  uint32_t cie_code_bytes;
  const uint8_t *code;
  uint32_t code_bytes;
};

#define CT_CFA_EXPRESSION 0xff /* the CFA is a DWARF expression, or of a register above 0xfd */
#define CT_CFA_UNKNOWN    0xfe /* the instructions are damaged from here on, or no CFA is defined */

struct ct_cfi_row {
  uint64_t pc;        /* in force from here up to the next row or the end of the FDE */
  int32_t cfa_offset; /* CFA = cfa_reg + cfa_offset */
  uint8_t cfa_reg;    /* DWARF number (7 = rsp, 6 = rbp) or CT_CFA_* */
  uint8_t ra_at_cfa_minus_8;
};

uint32_t ct_cfi_count(const struct ct_elf *elf);
/* The FDE around address, or CT_FDE_NONE. */
uint32_t ct_cfi_find(const struct ct_elf *elf, uint64_t address);
/* 0, or CT_ERANGE when there is no such FDE. */
int ct_cfi_get(const struct ct_elf *elf, uint32_t fde, struct ct_cfi_fde *out);

enum ct_entry_state ct_cfi_entry_state(const struct ct_elf *elf, uint32_t fde, uint64_t address);
/* The first max rows, sorted by pc, one for each distinct pc. Returns how many there are (may be more than max). */
size_t ct_cfi_rows(const struct ct_elf *elf, uint32_t fde, struct ct_cfi_row *rows, size_t max);
/* The row in force at address: 0, or CT_ENOENT when the FDE does not cover it. */
int ct_cfi_row_at(const struct ct_elf *elf, uint32_t fde, uint64_t address, struct ct_cfi_row *row);

#endif
