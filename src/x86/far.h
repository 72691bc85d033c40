/* SPDX-License-Identifier: MIT */
/* Far returns, as long as they stay in their segments: what they make of the registers is known beforehand. Pure. */
#ifndef CT_X86_FAR_H
#define CT_X86_FAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_far_kind {
  CT_FAR_NOT,             /* another instruction, or none */
  CT_FAR_CALL,            /* int $0x80: a system call */
  CT_FAR_RETURN,          /* lretq */
  CT_FAR_INTERRUPT_RETURN /* iretq */
};

struct ct_far {
  uint8_t kind;   /* enum ct_far_kind */
  uint16_t drops; /* bytes that it takes from the stack besides */
};

/* As the instruction changes them; of flags all bits of rflags. */
struct ct_far_state {
  uint64_t rip, rsp, flags, cs, ss;
};

/* The instruction that begins at code, of which size bytes can be read. */
struct ct_far ct_far_of(const uint8_t *code, size_t size);

/*
 * Such a return, of the `words` (CT_FAR_WORDS; lretq has fewer) at the stack pointer. False, and the state is as it
 * was: it would go to another segment, or fault, or set or clear a flag that only the processor can, the trap flag
 * among them.
 */
enum { CT_FAR_WORDS = 5, CT_FAR_RETURN_WORDS = 2 };
bool ct_far_return(const struct ct_far *far, const uint64_t words[CT_FAR_WORDS], struct ct_far_state *state);

#endif
