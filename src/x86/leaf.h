/* SPDX-License-Identifier: MIT */
/* Leaf functions: those that call nothing. Pure. */
#ifndef CT_X86_LEAF_H
#define CT_X86_LEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * True when the function whose code is these size bytes stays within them: no call, no jump to elsewhere or to an
 * address from a register, no system call. Code that is not understood is no leaf.
 */
bool ct_is_leaf(const uint8_t *code, size_t size);

#endif
