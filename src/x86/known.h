/* SPDX-License-Identifier: MIT */
/* Code that is known by its bytes: what hooking has to treat otherwise, in files that have no names for it. */
#ifndef CT_X86_KNOWN_H
#define CT_X86_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_PLT_JUMP_BYTES 2

/* jmp *disp(%rip), as a procedure linkage table has it. CT_PLT_JUMP_BYTES of code are readable. */
bool ct_is_plt_jump(const uint8_t *code);

/*
 * The end of longjmp, which has no name in a stripped libc: glibc's takes rsp, rbp and rip out of the buffer and takes
 * the pointer guard off them (sysdeps/x86_64/__longjmp.S, the same since 2.4); musl's loads rsp alone.
 */
bool ct_is_glibc_longjmp(const uint8_t *code, size_t size);
bool ct_is_musl_longjmp(const uint8_t *code, size_t size);

/*
 * glibc's __errno_location: the address, in the file, of the word that says where errno is from %fs on, which the
 * loader fills in. 0: it is not of that form.
 */
uint64_t ct_errno_slot(const uint8_t *code, size_t size, uint64_t address);

/* How many bytes a function of Go's spends on asking for stack at its begin; 0 when it does not begin so. */
size_t ct_stack_check_bytes(const uint8_t *code, size_t size);

/* Is there a wrgsbase whose opcode begins in code[from, to)? length bytes of code are there. */
bool ct_has_wrgsbase(const uint8_t *code, size_t length, size_t from, size_t to);

#endif
