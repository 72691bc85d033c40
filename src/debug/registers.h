/* SPDX-License-Identifier: MIT */
/* Registers as gdb numbers them, and the document that says so. */
#ifndef CT_DEBUG_REGISTERS_H
#define CT_DEBUG_REGISTERS_H

#include "steps/machine.h"

#include <stdio.h>

/* The document target.xml. */
void ct_registers_describe(FILE *out);
/* All of them, two hexadecimal digits a byte, lowest byte first; "xx": not known. */
void ct_registers_put(const struct ct_steps_state *state, FILE *out);
/* That one; false: there is none of that number. */
bool ct_register_put(const struct ct_steps_state *state, unsigned number, FILE *out);

#endif
