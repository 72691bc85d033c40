/* SPDX-License-Identifier: MIT */
/* The bytes that lead from a function to its trampoline, and the marks in code that hooking knows by their bytes. */
#ifndef CT_X86_PATCH_H
#define CT_X86_PATCH_H

#include "x86/relocate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_SHORT_JUMP_BYTES 2  /* jmp rel8 */
#define CT_STUB_BYTES       14 /* jmp *0(%rip), and the address */
#define CT_ENDBR_BYTES      4

/* Each writes what goes from an address to another one: 0, or -1 when that is too far. */
int ct_jump_bytes(uint64_t from, uint64_t to, uint8_t bytes[CT_JUMP_BYTES]);
int ct_short_jump_bytes(uint64_t from, uint64_t to, uint8_t bytes[CT_SHORT_JUMP_BYTES]);

/* A stub at any address, which goes to any other. */
void ct_stub_bytes(uint64_t to, uint8_t bytes[CT_STUB_BYTES]);

extern const uint8_t ct_int3_byte;

/* Does the code begin with endbr64? */
bool ct_is_endbr(const uint8_t *code, size_t size);

#endif
