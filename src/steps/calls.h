/* SPDX-License-Identifier: MIT */
/*
 * The calls that a thread's steps show: each call instruction and the return that belongs to it, tail calls, and what
 * ends without a return. Read in one go, from the first step to the last.
 *
 * Rules:
 *  - A call is a call instruction that goes elsewhere than to the instruction after it. Its function is the one at
 * which it arrives; of a stub without a name (a PLT entry), the one to which that jumps.
 *  - A jump to the first instruction of another function, with the return address on top of the stack, is a tail call.
 * One to a part that the compiler has put elsewhere (NAME.cold) is none.
 *  - A return ends the call whose return address it takes. Calls above it on that stack, and those that the stack
 * pointer has left when a jump or return is made, were unwound (longjmp, exceptions).
 *  - A signal's handler is a call by nobody, in the function that was interrupted, or on a stack of its own.
 *  - A stack pointer that is set, and neither lies on the current stack as far as that was used nor just above it, is
 * that of another stack. So stacks that nobody has used before are distinguished by where they lie; two in one place at
 * different times are one.
 *  - Where the recording begins, or goes on after a gap, the function that runs is entered then (`before`, unless that
 * is its first instruction); its callers are known only when they go on.
 *
 * Times: between two time stamps as many ticks for each instruction; a system call has what is left of the time until
 * its end. So they are interpolated, and only sums over many instructions mean something. Steps are exact.
 */
#ifndef CT_STEPS_CALLS_H
#define CT_STEPS_CALLS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_steps_call_kind {
  CT_STEPS_CALL_ENTER,
  CT_STEPS_CALL_TAIL, /* in place of the top one */
  CT_STEPS_CALL_RETURN,
  CT_STEPS_CALL_UNWOUND, /* the top one, by a jump or return that left its part of the stack */
  CT_STEPS_CALL_GONE,    /* the top one: not known when, steps are missing */
  CT_STEPS_CALL_LOST,    /* steps are lost here */
  CT_STEPS_CALL_SWITCH,  /* to another stack */
  CT_STEPS_CALL_EXEC,    /* all stacks are gone */
};

struct ct_steps_call {
  uint8_t kind;
  bool before;    /* of an enter: it was open already */
  uint32_t fn;    /* of an enter and a tail call */
  uint32_t stack; /* that it is on, or is switched to; 0: the first one */
  uint64_t step;  /* before that one */
  uint64_t tsc;   /* interpolated */
};

struct ct_steps_call_function {
  uint32_t id;        /* from 0 up */
  const char *module; /* path; NULL: not known */
  const char *raw;    /* as in the symbols; NULL: none */
  const char *build_id;
  uint64_t address, size; /* in the module's file; in memory where there is none */
  uint64_t base;
};

struct ct_steps_calls_facts {
  int32_t pid, tid;
  uint64_t tsc_hz, tsc, clock_ns;
  int64_t wall_ns;
  uint64_t steps, bytes;
  uint64_t first_tsc, last_tsc;
  uint64_t gaps, inconsistent;
  bool has_ended;    /* the thread has */
  int32_t status;    /* as waitpid gives it, if so */
  char program[512]; /* its path; "": not known */
  char damage[256];
};

/* Each function before the first event of it. 0, or what ends the reading. */
struct ct_steps_calls_callbacks {
  int (*function)(void *context, const struct ct_steps_call_function *function);
  int (*event)(void *context, const struct ct_steps_call *event);
  void *context;
};

/* 0; as ct_steps_reader_open; CT_ENOMEM; what the callbacks has returned. */
int ct_steps_calls_read(const char *path, const struct ct_steps_calls_callbacks *callbacks,
                        struct ct_steps_calls_facts *facts, struct ct_diag *diag);

#endif
