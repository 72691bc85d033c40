/* SPDX-License-Identifier: MIT */
/*
 * What a thread that runs translated and its tracer share: one block of memory for each such thread, at an address
 * below 2 GiB in the target, so that translated code reaches it without a register and whatever gs is.
 *
 *   0        struct ct_itrace_slots
 *   0x1000   table: 65,536 addresses, where an indirect branch goes by the low 16 bits of its target
 *   0x81000  syscalls: a byte for each system call's number, enum ct_itrace_call
 *   0x91000  blocks: a byte for each block of the segment of records, CT_ITRACE_BLOCK_KNOWN: records have been written
 *            there; else 0, and one for each says why: CT_ITRACE_BLOCK_FRESH: the time has to be stamped first;
 *            CT_ITRACE_BLOCK_FULL: the tracer has to come
 *   0x92000  stamps: the time stamp counter when each block was begun, then where in it
 *
 * Segments of records (itrace_stream.h) lie elsewhere in the target, each in a window of CT_ITRACE_BLOCKS blocks that
 * begins at a multiple of its size, so that the bits above those within a block are the block's number.
 *
 * The target can write all of it: the tracer believes nothing that it reads here. It copies each word once, and checks.
 */
#ifndef CT_RING_ITRACE_H
#define CT_RING_ITRACE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
  CT_ITRACE_TABLE_AT = 0x1000,
  CT_ITRACE_TABLE_ENTRIES = 1 << 16,
  CT_ITRACE_SYSCALLS_AT = CT_ITRACE_TABLE_AT + CT_ITRACE_TABLE_ENTRIES * 8,
  CT_ITRACE_SYSCALLS = 1 << 16,
  CT_ITRACE_BLOCKS_AT = CT_ITRACE_SYSCALLS_AT + CT_ITRACE_SYSCALLS,
  CT_ITRACE_BLOCKS = 256,
  CT_ITRACE_STAMPS_AT = CT_ITRACE_BLOCKS_AT + 0x1000,
  CT_ITRACE_SHARED_BYTES = CT_ITRACE_STAMPS_AT + 2 * 8 * CT_ITRACE_BLOCKS,
  CT_ITRACE_BLOCK_SHIFT = 14,     /* log2 of the bytes of a block */
  CT_ITRACE_BLOCK_SHIFT_OLD = 16, /* on processors without BMI2 */
};
/* Of a thread's request. The step from CT_ITRACE_WAITS is the tracer's or the thread's: both take it by one exchange.
 */
enum ct_itrace_request_state {
  CT_ITRACE_ANSWERED,
  CT_ITRACE_WAITS,
  CT_ITRACE_LEFT, /* it has waited in vain, and has gone on natively at target, or is about to */
};

enum { CT_ITRACE_BLOCK_KNOWN = 1 };
enum { CT_ITRACE_BLOCK_FULL = 0, CT_ITRACE_BLOCK_FRESH = 1 };

/* Of a system call: whether the tracer has to see it before it is made, or, because it writes memory, afterwards. */
enum ct_itrace_call { CT_ITRACE_CALL_SEEN = 0, CT_ITRACE_CALL_QUIET = 1, CT_ITRACE_CALL_WRITES = 2 };

/*
 * request: enum ct_itrace_request_state; the thread waits there (a futex) for CT_ITRACE_ANSWERED, and goes on at
 * resume. exit is why it has come: the number of an exit, or CT_ITRACE_EXIT_MISS; target is where the program would be.
 * After so many of its waits (CT_ITRACE_WAIT_NS each) in which liveness did not change the thread takes the tracer for
 * dead, and goes on natively. A tracer that was only kept from running sees CT_ITRACE_LEFT, and gets the thread back.
 */
struct ct_itrace_slots {
  uint64_t regs[16]; /* in the order of enum ct_reg; of those that the wait changes */
  uint64_t flags;    /* as lahf and seto leave them: ah, al */
  uint64_t target;
  uint64_t resume;
  uint64_t spill_rcx;     /* the program's rcx, on the way through an indirect branch */
  uint64_t spill;         /* of a register that is borrowed for an address out of reach */
  uint64_t app_r10;       /* likewise r10, which values go through */
  uint64_t app_r11;       /* the program's r11, between units that make records */
  uint64_t spill_record;  /* of the register that says where the record is, in a unit that uses r11 */
  uint64_t spill_scratch; /* of a register that values go through */
  uint64_t spill_place;   /* where records go: to be read in part, or to be moved on by the tracer */
  uint32_t call;          /* number of the system call that is made, or was the last */
  uint32_t call_kind;     /* enum ct_itrace_call */
  uint32_t exit;
  uint32_t request;
  uint32_t doorbell; /* counts requests; the tracer waits there (a futex) */
  uint32_t liveness; /* counted up by the tracer */
  uint32_t last_liveness;
  uint32_t silent;      /* waits left before the tracer is taken for dead */
  uint64_t timeout[2];  /* of one wait, a struct timespec */
  uint64_t parked_mask; /* if is_parked: the program's signal mask, which a thread that leaves the wait puts back */
  uint32_t wait_end;    /* of one wait, when signals interrupt it: the time stamp counter >> CT_ITRACE_TICK_SHIFT */
  uint32_t is_parked;   /* it waits to be seized for the first time, with all signals blocked */
};

enum {
  CT_ITRACE_EXIT_MISS = 0, /* an indirect branch to where no unit is known; exits have numbers from 1 on */
  CT_ITRACE_WAIT_NS = 100000000,
  CT_ITRACE_SILENT_WAITS = 10, /* the tests' may be more: CONTRAIL_TEST_SILENT_WAITS */
  CT_ITRACE_TICK_SHIFT = 26,   /* some 22 ms at 3 GHz */
  CT_ITRACE_WAIT_TICKS = 6,    /* such a wait is at least as long as CT_ITRACE_WAIT_NS up to 4 GHz */
};

static_assert(sizeof(struct ct_itrace_slots) <= CT_ITRACE_TABLE_AT, "the slots lie before the table");
static_assert(offsetof(struct ct_itrace_slots, flags) == 0x80, "the registers come first");

#endif
