/* SPDX-License-Identifier: MIT */
/*
 * Landing pads: where the unwinder continues a function after an exception. They are reached from the
 * LSDA only, by no branch. Layout: Itanium C++ ABI, Exception Handling, 7.3, as gcc writes it (except.c).
 */
#ifndef CT_TARGET_LSDA_H
#define CT_TARGET_LSDA_H

#include "target/cfi.h"

/* Calls visit with the address of each landing pad of the FDE. Damage ends the walk. Returns the number of pads. */
size_t ct_lsda_landing_pads(const struct ct_elf *elf, const struct ct_cfi_fde *fde,
                            void (*visit)(void *context, uint64_t address), void *context);

#endif
