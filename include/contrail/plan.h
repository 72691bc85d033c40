/* SPDX-License-Identifier: MIT */
/*
 * What would be hooked in a file, by which tactic, and why each other function is left out. Planning is pure: it reads
 * the ELF file and no process. A plan holds for every address the file is loaded at, and is the same for everybody;
 * what of it a recording wants is a filter result.
 *
 *   struct ct_plan_function function = {.struct_size = sizeof(function)};
 *   if (ct_plan_create("/bin/ls", &plan, &diag) == 0)
 *     for (size_t i = 0; ct_plan_function(plan, NULL, i, &function) == 0; i++)
 *       ...
 *
 * Threads: a plan that nobody changes (ct_plan_use_int3) may be read by several at once.
 * Ownership: texts that are given out are the plan's, or constants.
 * Units: addresses and sizes are in bytes, addresses those of the ELF file.
 * Enumerations may get values at their end: pass over what you do not know.
 */
#ifndef CONTRAIL_PLAN_H
#define CONTRAIL_PLAN_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_plan;          /* opaque */
struct ct_filter_result; /* opaque */

enum ct_tactic {
  CT_TACTIC_NONE = 0,
  CT_TACTIC_JUMP,    /* five-byte jump over whole instructions at the entry */
  CT_TACTIC_ENDBR,   /* the same after endbr64 */
  CT_TACTIC_PADDING, /* the function ends before five bytes; the rest of the jump lies in the padding after it */
  CT_TACTIC_SHORT,   /* two-byte jump to a five-byte jump in near padding */
  CT_TACTIC_PUN,     /* five-byte jump whose last bytes are the next instruction's first */
  CT_TACTIC_EVICT,   /* two-byte jump to a five-byte jump in place of near instructions, which moved out */
  CT_TACTIC_INT3,    /* int3, by the user's choice: ct_plan_use_int3 */
  CT_TACTIC_COUNT
};

enum ct_refusal {
  CT_REFUSED_NOT = 0,
  CT_REFUSED_ODD_ENTRY, /* the CFI row at its first instruction is not that of a callable function */
  CT_REFUSED_SIGNAL_FRAME,
  CT_REFUSED_NO_CFI,  /* no call frame information in a module that has it elsewhere */
  CT_REFUSED_PART,    /* not a function: a part of one, split off by the compiler */
  CT_REFUSED_NO_CODE, /* not in the file's executable bytes */
  CT_REFUSED_UNDECODABLE,
  CT_REFUSED_TOO_SHORT,     /* shorter than a jump and no padding after */
  CT_REFUSED_BRANCH_INTO,   /* a branch into the bytes to be patched */
  CT_REFUSED_ENTRY_INTO,    /* another function begins in the bytes to be patched */
  CT_REFUSED_INDIRECT_CALL, /* an indirect call returns into the bytes to be patched */
  CT_REFUSED_FLAGS,         /* takes or gives values in the flags register */
  CT_REFUSED_UNREACHABLE,   /* a displacement does not reach from the trampoline */
  CT_REFUSED_CHANGED,       /* its first bytes in memory are not those of the file (text relocation, another's patch) */
  CT_REFUSED_PLT,           /* a stub of the procedure linkage table */
  CT_REFUSED_BUSY,          /* a thread stood in the bytes to be patched */
  CT_REFUSED_FAULTS,        /* a handler knows the address at which it may fault */
  CT_REFUSED_RUNTIME,       /* its runtime goes on after its first byte */
  CT_REFUSED_EXCLUDED,      /* by the user's choice: never in a plan, only where one is used (exclude.h) */
  CT_REFUSED_UNSELECTED,    /* likewise: no pattern selects it (select.h) */
  CT_REFUSED_CROWDED,       /* there are as many stubs and traps in the process as can be kept in mind */
  CT_REFUSED_COUNT
};

enum ct_hooked {
  CT_HOOKED_NOT = 0, /* not hooked */
  CT_HOOKED_FULL,    /* enter and return */
  CT_HOOKED_ENTER,   /* enter only: it touches its own return-address slot, or its runtime reads return addresses */
  CT_HOOKED_LIGHT,   /* enter only, by the user's choice */
};

/* Reads the ELF file at path and plans it. *out goes to ct_plan_free. */
int ct_plan_create(const char *path, struct ct_plan **out, struct ct_diag *diag);
void ct_plan_free(struct ct_plan *plan); /* accepts NULL */
/* Hooks what no jump fits by int3, where that is possible. The process must then leave SIGTRAP alone. */
void ct_plan_use_int3(struct ct_plan *plan);

const char *ct_plan_path(const struct ct_plan *plan);
const char *ct_plan_build_id(const struct ct_plan *plan); /* hex; NULL without one */
/* Why all of the file's functions are hooked for enter only; NULL when they are not. */
const char *ct_plan_enter_only_text(const struct ct_plan *plan);
/* Bytes of text in the file, and of these those of known functions. Where few are known most calls are not recorded. */
uint64_t ct_plan_code_bytes(const struct ct_plan *plan);
uint64_t ct_plan_known_bytes(const struct ct_plan *plan);
bool ct_plan_uses_gs(const struct ct_plan *plan); /* a function does: a process with it cannot be recorded */
bool ct_plan_is_cached(const struct ct_plan *plan);
uint64_t ct_plan_ns(const struct ct_plan *plan); /* how long it took to make, or to take out of the cache */

/* With filter_result NULL everything is wanted. */
struct ct_plan_function {
  size_t struct_size;
  uint64_t address;
  uint64_t size;
  const char *name; /* raw (mangled); NULL when nothing is known */
  enum ct_hooked hooked;
  enum ct_tactic tactic;
  enum ct_refusal refusal; /* CT_REFUSED_NOT when it is hooked */
  uint32_t refusal_offset; /* CT_REFUSED_BRANCH_INTO, CT_REFUSED_ENTRY_INTO: where, in bytes from address */
  bool callable;           /* a function that can be called, hooked or not */
  bool passthrough; /* CT_REFUSED_EXCLUDED, CT_REFUSED_UNSELECTED: it keeps a trampoline, which records nothing */
};

size_t ct_plan_function_count(const struct ct_plan *plan);
/* The function at index, in order of addresses. CT_ERANGE after the last one. */
int ct_plan_function(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t index,
                     struct ct_plan_function *function);
/* Its raw name, or `module+0x1234` with the last part of the module's path. Returns buf. */
char *ct_plan_function_label(const struct ct_plan *plan, size_t index, char *buf, size_t size);
/* Its further names, n from 0; NULL ends. */
const char *ct_plan_function_alias(const struct ct_plan *plan, size_t index, size_t n);

size_t ct_plan_hooked(const struct ct_plan *plan, const struct ct_filter_result *filter_result);
size_t ct_plan_refused(const struct ct_plan *plan, const struct ct_filter_result *filter_result,
                       enum ct_refusal refusal);

/* True when what was refused is a function that can be called all the same. */
bool ct_refusal_is_callable(enum ct_refusal refusal);
/* A short stable key ("branch-into") and a sentence. */
const char *ct_refusal_key(enum ct_refusal refusal);
const char *ct_refusal_text(enum ct_refusal refusal);
const char *ct_tactic_name(enum ct_tactic tactic);
const char *ct_hooked_name(enum ct_hooked hooked); /* "full", "enter", "light"; "-" for none */

#ifdef __cplusplus
}
#endif

#endif
