/* SPDX-License-Identifier: MIT */
/* The text of an instruction. */
#ifndef CT_X86_DISASSEMBLE_H
#define CT_X86_DISASSEMBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_syntax { CT_SYNTAX_ATT, CT_SYNTAX_INTEL };

/* The instruction at code (size bytes), which stands at pc; "(bad)" and false when it is none. Any thread. */
bool ct_disassemble(const uint8_t *code, size_t size, uint64_t pc, enum ct_syntax syntax, char *text, size_t bytes);

#endif
