/* SPDX-License-Identifier: MIT */
/*
 * The processor's user state as data, and running code from such a state, instruction by instruction, in this process:
 * a signal's frame is filled with the state and the trap flag, and each stop is looked at by the caller, who says
 * whether to go on. Faults end a run and are part of its outcome. Nothing of the state is lost on the way: general
 * registers, flags, x87, SSE, AVX and AVX-512 with the masks, as far as the machine has them.
 */
#ifndef CT_TESTS_MACHINE_H
#define CT_TESTS_MACHINE_H

#include "random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_EXTENDED_BYTES = 4096 };

/* rax rcx rdx rbx rsp rbp rsi rdi r8 .. r15, as instructions number them. */
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 };

struct machine {
  uint64_t reg[16];
  uint64_t rip;
  uint64_t flags;                                        /* the six arithmetic ones and DF */
  _Alignas(64) uint8_t extended[MACHINE_EXTENDED_BYTES]; /* an XSAVE image; what is unused is zero */
};

#define MACHINE_FLAGS 0xcd5ull /* OF DF SF ZF AF PF CF */

/* How a run has ended. */
struct ending {
  int signal;       /* 0: the caller ended it; else the fault's */
  int code;         /* si_code */
  uint64_t address; /* of the data that could not be reached, when the signal tells */
  uint64_t error;   /* the processor's error code: read, write, fetch */
  uint64_t steps;
  /*
   * The stack pointer is no address and the run was to go on: it ended there. Processors of AMD fault when they return
   * from a trap into such a state, whoever made it.
   */
  bool no_step;
};

/* Called after each instruction. False ends the run there. */
typedef bool machine_look(void *context, const uint64_t reg[16], uint64_t rip);

/* From a look only: the run goes on there instead. */
void machine_redirect(uint64_t rip);
/* From a look only: rflags as they are; and the run goes on with that state of general registers and MACHINE_FLAGS. */
uint64_t machine_flags(void);
void machine_replace(const uint64_t reg[16], uint64_t rip, uint64_t flags);

/* That is what it is, up to the next run. */
void machine_rests(const struct machine *machine);
/* From a look, or after a run: vector registers as they are, in the form of an XSAVE image; what is not there is 0. */
void machine_now(struct machine *machine);
/* The same as ptrace has it, with the header that says what is there; MACHINE_EXTENDED_BYTES. */
void machine_picture(uint8_t *bytes);

/* 0, or -1 when this machine cannot do it. */
int machine_set_up(void);
/* Any state that does not fault by itself; rsp and rip are the caller's to set. */
void machine_random(struct machine *machine, struct rng *rng);
void machine_run(const struct machine *begin, machine_look *look, void *context, struct machine *end,
                 struct ending *ending);
/* The bytes of vector register n, 16 for each of the three parts that the machine has; parts is set. */
uint8_t *machine_vector(struct machine *machine, unsigned n, unsigned part);
/* The 8 bytes of mask register n; NULL on a machine without. */
uint8_t *machine_mask(struct machine *machine, unsigned n);
unsigned machine_vector_parts(void);
unsigned machine_vector_count(void);
/* Says what differs, or returns false. flags: those that are compared. */
bool machine_differs(const struct machine *a, const struct machine *b, uint64_t flags, char *text, size_t size);
/*
 * The same for what calls come back with, begun with the same state: a register that neither keeps a value across calls
 * nor holds a result (results: so many of rax and rdx; result_words: so many words of xmm0 and xmm1) may differ when
 * the function itself has changed it: it may hold what happened to be on the stack.
 */
bool machine_results_differ(const struct machine *begin, const struct machine *a, const struct machine *b,
                            unsigned results, unsigned result_words, char *text, size_t size);

/*
 * Calls code with begin's registers and stack pointer, all at once; what it returns with is end (without flags). A
 * fault ends it.
 */
void machine_call(const struct machine *begin, uint64_t code, struct machine *end, struct ending *ending);
extern const char machine_call_returns[]; /* the address that machine_call pushes */

/* Steps that a run may take; more are an endless loop. */
enum { MACHINE_STEPS_MAX = 100000 };

#endif
