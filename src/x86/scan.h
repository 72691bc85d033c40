/* SPDX-License-Identifier: MIT */
/*
 * One look at the body of every function of a module, before any is patched: where branches go,
 * and what a function does that decides how it may be hooked. Pure: bytes and frame rows in, facts out.
 */
#ifndef CT_X86_SCAN_H
#define CT_X86_SCAN_H

#include "target/functions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_scan_fact {
  CT_FACT_TOUCHES_RA_SLOT = 1 << 0, /* reads, writes or pops its own return address */
  CT_FACT_RET_IMM = 1 << 1,         /* returns with ret imm16 */
  CT_FACT_CLONE = 1 << 2,           /* system call clone, clone3 or fork */
  CT_FACT_EXEC = 1 << 3,            /* system call execve, execveat */
  CT_FACT_VFORK = 1 << 4,
  CT_FACT_SIGRETURN = 1 << 5,    /* begins with the rt_sigreturn sequence */
  CT_FACT_GS = 1 << 6,           /* memory by gs */
  CT_FACT_GS_SET = 1 << 15,      /* sets the base of gs: by wrgsbase, by system call arch_prctl */
  CT_FACT_FLAGS_IN = 1 << 7,     /* reads flags before it has set any */
  CT_FACT_SELF_BRANCH = 1 << 9,  /* branches to its own first instruction */
  CT_FACT_UNDECODED = 1 << 8,    /* part of the body is not code we know */
  CT_FACT_SIGACTION = 1 << 11,   /* system call rt_sigaction */
  CT_FACT_WRITE = 1 << 12,       /* system call write, writev */
  CT_FACT_RED_ZONE = 1 << 10,    /* uses memory below the stack pointer while that is as at the entry */
  CT_FACT_MOVES_STACK = 1 << 13, /* adds a register to rsp: goes to another place on the stack */
  CT_FACT_COPIES = 1 << 14,      /* memcpy or one like it; not the scanner's to find, see plan/copies.c */
  CT_FACT_COUNTS = 1 << 16,      /* what mcount calls (-pg); plan/counts.c finds it */
  CT_FACT_READS_FRAMES =
      1 << 17, /* reads the slot of its caller's frame by the saved rbp: __builtin_return_address(1) */
};

struct ct_tail_jump {
  uint32_t function; /* index of the jumping function */
  uint64_t target;
  bool conditional;
};

/* After a call an instruction takes flags that nothing has set since. */
struct ct_flag_use {
  uint64_t callee;
  uint64_t after;  /* the instruction after the call */
  uint64_t reader; /* the one that takes the flags */
};

/*
 * One bit for each byte of [start, end): set when a branch or a code reference goes there. In pages that are taken when
 * they are needed, so that code in far-away parts of a module costs nothing, from slabs that are mapped and touched in
 * one go: a library of 48 MB of text has 20,000 pages, and a system call or a page fault for each few is a tenth of a
 * scan.
 */
struct ct_targets {
  uint64_t start, end;
  uint64_t **pages; /* CT_TARGETS_PAGE bytes of code each, NULL: no bit set */
  struct ct_targets_slab *slabs;
  size_t first, last; /* pages with bits lie in [first, last) */
  bool out_of_memory; /* a bit could not be set */
};
#define CT_TARGETS_PAGE 4096u

struct ct_scan {
  struct ct_targets targets;
  struct ct_targets called;       /* those of the targets that are called or referred to */
  struct ct_targets flag_results; /* functions after whose return the caller looks at flags; see ct_scan_reconcile */
  struct ct_tail_jump *tail_jumps;
  size_t tail_jump_count, tail_jump_capacity;
  struct ct_flag_use *flag_uses;
  size_t flag_use_count, flag_use_capacity;
};

/* Makes a scan for code in [start, end) (virtual addresses). 0 or CT_ENOMEM. */
int ct_scan_init(struct ct_scan *scan, uint64_t start, uint64_t end);
void ct_scan_free(struct ct_scan *scan);

/* Adds what part (made for the same range) has found to scan. 0 or CT_ENOMEM. */
int ct_scan_merge(struct ct_scan *scan, const struct ct_scan *part);

/*
 * When all functions have been looked at: fills flag_results. Where a branch goes between the call and the use, the
 * flags may as well be the branch's, and the call one that never comes back: such a use says nothing. 0 or CT_ENOMEM.
 */
int ct_scan_reconcile(struct ct_scan *scan);

/* Addresses outside the range are ignored. */
void ct_targets_add(struct ct_targets *targets, uint64_t address);
bool ct_targets_has(const struct ct_targets *targets, uint64_t address);
/* One of the addresses from start to end, without end. */
bool ct_targets_has_any(const struct ct_targets *targets, uint64_t start, uint64_t end);

/*
 * Looks at one function: size bytes of code at address, after which readable - size more may be read. rows (count of
 * them, may be 0) are its CFI rows. Adds to the scan and returns the facts (enum ct_scan_fact), or a negative error.
 */
int ct_scan_function(struct ct_scan *scan, uint32_t function, const uint8_t *code, uint64_t address, size_t size,
                     size_t readable, const struct ct_cfi_row *rows, size_t row_count);

#endif
