/* SPDX-License-Identifier: MIT */
/*
 * What the agent in the target and the controller share: the memfd with its header,
 * thread slots, segment table and segments; the private control page that gs points to;
 * and the descriptors after each trampoline. Fixed width, no pointers of the
 * controller's in it; addresses of the target are plain u64.
 *
 *   memfd:  | header | tids | slots | segment table | segments ... |
 *
 * The event, 16 bytes, written in two stores, the word last:
 *
 *    0         8         12        16
 *   +---------+---------+---------+
 *   |   tsc   |  word   | ra_slot |
 *   +---------+---------+---------+
 *   word  31            4 3    2 1    0
 *        |   function    | kind | tag  |  ra_slot: low half of the address of the
 *        +---------------+------+------+     frame's return-address slot
 *
 * An event of CT_HOOK_SAMPLED says in bits 23..26 of its function field for how many calls it stands, as the power of
 * two plus 1; 0 in all others. So a function id has 23 bits.
 *
 * tag is 1..3, the lap of the segment, 0 never is valid: the drain tells an event that was
 * reserved but not yet (or never) written from a whole event by it.
 *
 * Words here are plain integers, and both sides use the compiler's __atomic functions on them: assembler code and
 * another process share them, and their layout must not depend on what a compiler makes of _Atomic. What only one
 * process has is _Atomic, with <stdatomic.h>.
 */
#ifndef CT_RING_LAYOUT_H
#define CT_RING_LAYOUT_H

#include "ring/callouts.h"
#include "ring/detail.h"
#include "ring/itrace_probe.h"
#include "ring/offsets.h"

#include <stddef.h>
#include <stdint.h>

#define CT_RING_MAGIC   0x31474e4952544e43ull /* "CNTRING1" */
#define CT_RING_VERSION 10u
#define CT_RING_NAME    "contrail" /* of the memfd */

#define CT_PAGE_BYTES     4096u
#define CT_SEGMENT_BYTES  65536u
#define CT_SEGMENT_STRIDE 131072u /* of address space: half of it is never touched, see CT_CURSOR_VALID */
#define CT_EVENT_BYTES    16u
#define CT_SEGMENT_EVENTS (CT_SEGMENT_BYTES / CT_EVENT_BYTES)
#define CT_SEGMENT_MAX    4096u
#define CT_SEGMENT_ROUND  128u /* a multiple of 64: threads take these in turn, before any other */
#define CT_SEGMENT_NONE   UINT32_MAX

/* One byte of the table stands for 64 KiB of the target's address space. */
#define CT_TABLE_BYTES (1ull << (47 - CT_TABLE_SHIFT))
enum ct_text_kind { CT_TEXT_OTHER = 0, CT_TEXT_MODULE = 1, CT_TEXT_TRAMPOLINE = 2 };

/* Event word. */
#define CT_WORD_KIND_SHIFT 2
#define CT_FN_MAX          ((1u << CT_FN_WEIGHT_SHIFT) - 1) /* an id; in CT_KIND_OTHER bit 27 marks an enter-only event */
#define CT_FN_WEIGHT(fn)   ((fn) >> CT_FN_WEIGHT_SHIFT & 15) /* of a sampled hook's event: 1 + log2 of its weight */
#define CT_SAMPLE_LOG2_MAX 8u
enum ct_kind { CT_KIND_OTHER = 0, CT_KIND_ENTER = 1, CT_KIND_TAIL = 2, CT_KIND_RETURN = 3 };
/* CT_KIND_OTHER without the point bit: low 4 bits of the function field say what, the upper 23 carry a value. */
enum ct_other {
  CT_OTHER_SWITCH = 1,   /* the thread is on another stack now; the value says which */
  CT_OTHER_TAIL_OUT = 2, /* the frame at ra_slot ended by a tail call to a function that is not recorded */
  CT_OTHER_UNWIND = 4,   /* a longjmp: frames below ra_slot, the rsp that it goes to, are unwound */
  CT_OTHER_ARG_1 = 5,    /* value of the call at ra_slot, in place of the clock: rdi, rsi; rax, before its return */
  CT_OTHER_ARG_2 = 6,
  CT_OTHER_RESULT = 7,
  /*
   * A part of the thread's stack is copied, or it leaves all frames on it: where that part begins (ra_slot), and enum
   * ct_copy. After it where that ends (ra_slot), and in the value what tells the copy: the distance between it
   * and its place on the stack, in units of 8 bytes.
   */
  CT_OTHER_COPY = 8,
  CT_OTHER_COPY_END = 9,
  CT_OTHER_AWAY = 10,   /* contrail kept the thread waiting until now; the value is a kind (enum ct_ring_away), and
                          ra_slot says how long, in units of 2^CT_AWAY_SHIFT ticks */
  CT_OTHER_UNSEEN = 11, /* the frame at ra_slot has its true return address back: it will return unseen */
  CT_OTHER_DETAIL =
      12, /* the next event at ra_slot has a detail record: in place of the clock its address in the target */
  CT_OTHER_VALUE = 13, /* as ARG_1 and so on; the value says which, CT_RING_VALUE_INTEGER and after */
  CT_OTHER_STACK = 3,  /* after a SWITCH: low half of the stack's lowest address; the value is its size in pages;
                           0: ra_slots do not tell whether an event is on it, only the next point is */
};
/* Whether an entry is a call or a return; the others, values among them, only belong to one. */
static inline int
ct_word_is_event(uint64_t word)
{
  return (word >> CT_WORD_KIND_SHIFT & 3) != CT_KIND_OTHER || (word >> CT_WORD_FN_SHIFT & CT_FN_POINT_BIT) != 0;
}

/* What of a call a hook with CT_HOOK_VALUES_FEW records. */
#define CT_VALUES_STACK_WORDS 32u
#define CT_VALUES_STACK_MAX   16u
#define CT_VALUES_MAX         (6u + 8u + CT_VALUES_STACK_MAX) /* events, of either half */
struct ct_values_form {
  uint32_t stack;   /* a bit for each of the first words above the return-address slot, CT_VALUES_STACK_MAX of them */
  uint8_t integers; /* likewise of rdi rsi rdx rcx r8 r9 */
  uint8_t vectors;  /* of xmm0 .. xmm7 */
  uint8_t results;  /* of enum ct_values_result */
  uint8_t pad;
};
enum ct_values_result {
  CT_VALUES_RAX = 1,
  CT_VALUES_RDX = 2,
  CT_VALUES_XMM0 = 4,
  CT_VALUES_XMM1 = 8,
  CT_VALUES_ERRNO = 16, /* when eax is -1 */
};
_Static_assert(sizeof(struct ct_values_form) == 8, "values form");

enum ct_copy {
  CT_COPY_OUT = 0,  /* from the stack: return addresses in it are the true ones now, its frames return natively */
  CT_COPY_IN = 1,   /* to the stack */
  CT_COPY_NONE = 2, /* no copy, but the thread goes on elsewhere on the stack; return addresses as with CT_COPY_OUT */
};
#define CT_AWAY_SHIFT 8
enum ct_ring_away { CT_RING_AWAY_ROOM = 3, CT_RING_AWAY_HELD = 4 }; /* as enum ct_away of the trace */

struct ct_ring_event {
  uint64_t tsc;
  uint64_t word; /* low half: function, kind, tag; high half: ra_slot */
};
_Static_assert(sizeof(struct ct_ring_event) == CT_EVENT_BYTES, "ring event");

/* Segment state word: bits 0..1 state, 2..15 thread slot, 16..63 activation sequence number. */
enum ct_segment_state { CT_SEG_FREE = 0, CT_SEG_ACTIVE = 1, CT_SEG_FULL = 2, CT_SEG_DRAINING = 3 };
#define CT_SEG_WORD(state, slot, seq) ((uint64_t)(state) | (uint64_t)(slot) << 2 | (uint64_t)(seq) << 16)
#define CT_SEG_STATE(w)               ((unsigned)((w)&3))
#define CT_SEG_SLOT(w)                ((unsigned)((w) >> 2 & 0x3fff))
#define CT_SEG_SEQ(w)                 ((w) >> 16)

struct ct_segment_entry {
  uint64_t state;      /* atomic, CT_SEG_WORD */
  uint32_t tag;        /* lap, 1..3; the owner's while active; of the detail lane 1; 0: it was never used */
  uint32_t reserved;   /* events reserved, valid from CT_SEG_FULL on */
  uint32_t thread_seq; /* position among the segments of the slot's thread, from 0 */
  uint32_t generation; /* of the slot */
  uint64_t seen;       /* the agent's (agent/relieve.c): where its thread's cursor was, and when */
};
_Static_assert(sizeof(struct ct_segment_entry) == 32, "segment entry");

/*
 * A request of a thread to the controller. state is a futex, serial << 2 | enum ct_request_state: the thread waits
 * while it is not DONE. The serial counts the slot's requests: an answer to one that was given up is not taken for that
 * to the next.
 */
#define CT_REQ_CODE(state)       ((state)&3u)
#define CT_REQ_WITH(state, code) (((state) & ~3u) | (uint32_t)(code))
enum ct_request_state {
  CT_REQ_IDLE = 0,
  CT_REQ_PENDING = 1, /* set by the agent, read by the controller */
  CT_REQ_SYSCALL = 2, /* set by the controller: do this system call, then PENDING again */
  CT_REQ_DONE = 3,    /* set by the controller */
};
enum ct_request_kind {
  CT_REQUEST_NONE = 0,
  CT_REQUEST_RENDEZVOUS = 1,
  CT_REQUEST_EXEC = 2,
  CT_REQUEST_ITRACE = 3, /* arg: enum ct_itrace_request */
};

struct ct_request {
  uint32_t state; /* atomic */
  uint32_t kind;
  uint64_t arg[6];
  uint64_t number; /* system call number for CT_REQ_SYSCALL */
  int64_t result;
};

struct ct_slot {
  uint32_t generation;          /* counts the threads that had this slot; changed by the agent at registration */
  uint32_t tid;                 /* of this generation */
  uint32_t active_segment;      /* index, CT_SEGMENT_NONE */
  uint32_t thread_seq;          /* next segment's position */
  uint64_t dropped_no_segment;  /* atomic: events not recorded because every segment was in use */
  uint64_t dropped_overwritten; /* atomic: events in segments taken away before the drain had them */
  uint64_t dropped_unsupported; /* atomic: events not recorded because nothing could be found out about the stack */
  uint64_t skipped_busy; /* hooks that were not recorded because the thread was in the agent; of this generation */
  struct ct_request request;
  uint64_t start_tsc;
  uint32_t detail_segment;     /* index of the active one, CT_SEGMENT_NONE */
  uint32_t detail_seq;         /* next detail segment's position among the thread's */
  uint64_t detail_skipped;     /* atomic: records that found no room */
  uint64_t detail_overwritten; /* atomic: segments taken away before the drain was done with them */
  uint64_t itraced;            /* atomic, the controller's: a call of it is recorded as instructions just now */
  uint64_t pad[4];
};
_Static_assert(sizeof(struct ct_slot) == 192, "slot");

/* What lies where in the target, for a controller that comes later. Mapped where it is not 0. */
struct ct_inside {
  uint64_t agent, agent_bytes;
  uint64_t controls, controls_bytes;
  uint64_t table, table_bytes;
  uint64_t stacks, stacks_bytes; /* struct ct_stack_map */
  uint64_t config;               /* struct ct_agent_config */
  uint64_t back;                 /* where functions return to that the agent calls in the program's place */
  uint64_t controller_start;     /* of the process controller_pid: field 22 of /proc/PID/stat */
  /* Mappings that are just being made or taken away, which the other fields and the agent's lists need not describe. */
  struct ct_pending {
    uint64_t start, bytes;
  } pending[2]; /* enum ct_pending_kind */
};
enum ct_pending_kind { CT_PENDING_REGION = 0, CT_PENDING_OTHER = 1 };
/* struct sigaction of the rt_sigaction system call (asm/signal.h). */
struct ct_signal_action {
  uint64_t handler, flags, restorer, mask;
};
#define CT_SIGNALS         32 /* those without a queue, and 0 */
#define CT_HANDLED_SIGNALS 65

/*
 * A fatal signal, reported by the agent's handler from the thread that got it (agent/crash.c), in a page of the memfd.
 * state is a futex: the thread waits while it is PENDING.
 */
enum ct_crash_state {
  CT_CRASH_NONE = 0,
  CT_CRASH_TAKEN = 1,   /* a thread is writing its record; others that crash meanwhile wait */
  CT_CRASH_PENDING = 2, /* set by the agent, read by the controller */
  CT_CRASH_DONE = 3,    /* set by the controller: the thread may go on to its end */
};
#define CT_CRASH_SIGINFO_BYTES 128
/* As the kernel has them in a signal frame (struct sigcontext): r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip,
 * eflags, segments, error code, trap number, signal mask, cr2. */
enum ct_crash_register {
  CT_CRASH_R8 = 0,
  CT_CRASH_RDI = 8,
  CT_CRASH_RSI = 9,
  CT_CRASH_RBP = 10,
  CT_CRASH_RBX = 11,
  CT_CRASH_RDX = 12,
  CT_CRASH_RAX = 13,
  CT_CRASH_RCX = 14,
  CT_CRASH_RSP = 15,
  CT_CRASH_RIP = 16,
  CT_CRASH_EFLAGS = 17,
  CT_CRASH_SEGMENTS = 18,
  CT_CRASH_ERROR = 19,
  CT_CRASH_TRAP = 20,
  CT_CRASH_MASK = 21,
  CT_CRASH_CR2 = 22,
  CT_CRASH_REGISTERS = 23,
};
struct ct_crash {
  uint32_t state; /* atomic, enum ct_crash_state */
  uint32_t signal;
  uint32_t tid;
  uint32_t pad;
  uint64_t tsc;
  uint8_t siginfo[CT_CRASH_SIGINFO_BYTES]; /* siginfo_t */
  uint64_t registers[CT_CRASH_REGISTERS];
};
_Static_assert(sizeof(struct ct_crash) == 24 + 128 + 184, "crash");

/*
 * What the program writes to its standard output and error. The pool is a page of the memfd, its pieces lie after it.
 * A thread takes a run of free ones (bits of one word of free_map are set), fills them, and sets the bit of the first
 * in full_map; the drain takes those, and sets the bits in free_map again. A thread that never finishes keeps its run.
 */
#define CT_CAPTURE_PIECES    4096u
#define CT_CAPTURE_BYTES     1024u /* of a piece */
#define CT_CAPTURE_RUN_MAX   32u   /* pieces of one call */
#define CT_CAPTURE_DATA_MAX  (CT_CAPTURE_RUN_MAX * CT_CAPTURE_BYTES - 40)
#define CT_CAPTURE_MAP_WORDS (CT_CAPTURE_PIECES / 64)
enum ct_capture_mode {
  CT_CAPTURE_OFF = 0,
  CT_CAPTURE_ON = 1,
  CT_CAPTURE_COUNT = 2, /* the trace takes no more of it */
};
/* At the begin of a run; after it the data. */
struct ct_capture {
  uint64_t tsc;
  uint64_t given; /* bytes that the call was given */
  uint32_t tid;
  uint16_t fd; /* 1 or 2 */
  uint16_t pieces;
  uint32_t bytes; /* of data: fewer than given when not all could be taken */
  uint32_t pad[3];
  uint8_t data[];
};
_Static_assert(sizeof(struct ct_capture) == 40, "capture");
struct ct_capture_pool {
  uint32_t mode; /* atomic, enum ct_capture_mode; the controller's */
  uint32_t pad;
  uint64_t given[2]; /* atomic: bytes that calls were given for descriptor 1 and 2 */
  uint64_t dropped;  /* atomic: those of them that could not be taken */
  uint64_t free_map[CT_CAPTURE_MAP_WORDS];
  uint64_t full_map[CT_CAPTURE_MAP_WORDS];
};
_Static_assert(sizeof(struct ct_capture_pool) <= CT_PAGE_BYTES, "capture pool");

/*
 * A process that is not the traced one has come into the agent: its child. The page is taken by it, by a
 * compare-and-swap of owner; state is a futex, on which it waits while it is PENDING. The rest of the page is its stack
 * meanwhile. What it says of itself is as it sees it: its ids may be others outside (process/ids.h), so the controller
 * looks for the process that has this page, by a challenge that it writes into it, and whose thread waits there.
 */
enum ct_handshake_state {
  CT_HANDSHAKE_NONE = 0,
  CT_HANDSHAKE_PENDING = 1, /* set by the agent; the bit in handshake_map is set then */
  CT_HANDSHAKE_DONE = 2,    /* set by the controller: a forked child is its own process now; go on with the exec */
  CT_HANDSHAKE_REFUSED = 3, /* set by the controller: it is not recorded */
};
enum ct_handshake_kind { CT_HANDSHAKE_FORK = 0, CT_HANDSHAKE_EXEC = 1 };
struct ct_handshake {
  uint64_t owner; /* atomic: 0 free, else its process id << 32 | a number drawn << 1 | CT_HANDSHAKE_TAKEN */
  uint32_t state; /* atomic */
  uint32_t kind;
  uint32_t pid; /* as its own getpid() returns */
  uint32_t tid;
  uint64_t path;          /* address of the path of the exec to come */
  uint64_t hooks_version; /* of a forked one: its configuration's, which says which hooks it has */
  uint64_t challenge;     /* by the controller */
};

/* Why less is recorded from some moment on: what the program has done, see agent/watch.c. */
enum ct_cut {
  CT_CUT_FILTER = 1 << 0,   /* a seccomp filter */
  CT_CUT_STRICT = 1 << 1,   /* strict seccomp, in a thread */
  CT_CUT_CLOCK = 1 << 2,    /* rdtsc is forbidden to a thread */
  CT_CUT_DISPATCH = 1 << 3, /* system calls of a thread are dispatched to it */
};

/* In the ring: after the header and the threads' ids, whatever the header says. */
#define CT_HANDSHAKES_OFFSET (CT_PAGE_BYTES + CT_SLOT_COUNT * 4u)
_Static_assert(CT_HANDSHAKES_OFFSET % CT_PAGE_BYTES == 0, "handshakes");

/* A thread is about to set the base of gs, or to map over what is ours (agent/leave.c): it waits while the state is
 * PENDING. */
enum ct_leave_state {
  CT_LEAVE_NONE = 0,
  CT_LEAVE_PENDING = 1, /* set by the agent */
  CT_LEAVE_DONE = 2,    /* set by the controller: all hooks are out */
  CT_LEAVE_REFUSED = 3, /* set by the controller: it cannot take them out (somebody debugs the process) */
};
/* General registers at the entry of a function, in the order of enum ct_register (rax, rdx, rcx, rbx, rsi, rdi, rbp,
 * rsp, r8 to r15, rip): a thread that waits for all of ours to be gone, our code too, goes on with them. */
#define CT_LEAVE_REGISTERS 17
struct ct_leave_frame {
  uint64_t values[CT_LEAVE_REGISTERS];
};

struct ct_ring_header {
  uint64_t magic;
  uint32_t version;
  uint32_t target_pid; /* as the target's own getpid() tells */
  uint32_t slot_count;
  uint32_t segment_count;
  uint64_t tids_offset;
  uint64_t slots_offset;
  uint64_t table_offset;
  uint64_t segments_offset;
  uint64_t total_bytes;
  uint32_t lossless; /* wait for a free segment instead of taking the oldest */
  uint32_t closed;   /* the controller is done: record nothing more */
  uint32_t controller_pid;
  uint32_t sample_log2;       /* atomic: what new threads begin with, see struct ct_control_page */
  uint64_t crash_offset;      /* struct ct_crash */
  uint64_t handshakes_offset; /* CT_HANDSHAKE_COUNT pages */
  uint64_t handshake_map;     /* atomic bits: the handshake is PENDING; cleared before it is looked at */
  uint32_t forks;             /* atomic: how often a thread may have made a process (or a thread) */
  uint32_t unwoken;           /* atomic: threads may not wake the drain, it has to look by itself */
  uint64_t capture_offset;    /* struct ct_capture_pool, a page; after it the pieces */
  uint64_t cuts;              /* atomic bits, enum ct_cut: what has made the recording end in part of the program */
  /* cache line of the drain's futex */
  uint32_t drain_doorbell; /* atomic, futex */
  uint32_t drain_waiting;  /* atomic */
  uint64_t drain_liveness; /* counts up while the drain empties the ring */
  uint32_t free_doorbell;  /* atomic, futex: a segment was freed (lossless) */
  uint32_t free_waiters;   /* atomic */
  uint64_t pad1[5];
  /* cache line of the control futex */
  uint32_t control_doorbell;    /* atomic, futex */
  uint32_t reap_passes;         /* atomic: how often the drain has looked for dead threads */
  uint64_t dropped_no_slot;     /* atomic: calls of threads that found no slot */
  uint64_t controller_liveness; /* counts up while the controller lives, whatever its other threads wait for */
  uint32_t handshake_doorbell;  /* atomic, futex: a handshake page is free */
  uint32_t handshakes_waiting;  /* atomic: how many wait for one */
  uint32_t handshakes_end;      /* atomic: by the controller, nobody is followed any more */
  uint32_t handshakes_lost;     /* atomic: children that were not answered in time, or found no page */
  uint32_t slots_freed;         /* by the controller: how many slots of dead threads it has given back */
  uint32_t pad4;
  uint64_t pad2[2];
  uint64_t segment_seq; /* atomic: next activation sequence number */
  uint64_t
      request_map[CT_SLOT_COUNT / 64]; /* atomic bits: the slot has made a request; cleared before it is looked at */
  uint32_t leave;                      /* atomic, futex, enum ct_leave_state */
  uint32_t pad3;
  uint64_t leave_frame; /* of whoever has asked, for a mapping: address of its struct ct_leave_frame */
  uint64_t free_map[CT_SEGMENT_MAX / 64]; /* atomic bits: 1 = free */
  uint32_t detail_count;                  /* segments of the detail lane, in the table after segment_count; 0: none */
  uint32_t detail_waits;                  /* a thread waits for a free one, where lossless is set: all are written */
  uint64_t detail_free_map[CT_DETAIL_SEGMENT_MAX / 64];
  struct ct_inside inside;
  uint32_t handlers_wanted;  /* by the controller: the agent keeps these up to date */
  uint32_t handlers_changes; /* atomic: how often one has been changed */
  uint64_t
      handlers[CT_HANDLED_SIGNALS]; /* what sigaction is about to set for each signal, as the program's own address */
  uint64_t counters_offset;         /* after all segments; 0: there are none */
  struct ct_itrace_probe itrace[CT_ITRACE_PROBES];
};
_Static_assert(sizeof(struct ct_ring_header) <= CT_PAGE_BYTES, "ring header");

/*
 * Where the parts of a ring lie: the controller's own knowledge. It has laid the ring out, and goes by this, never by
 * the header's words, which the target can write to. Pointers are into the controller's mapping of bytes bytes, which
 * is sealed (F_SEAL_SHRINK): each of these parts lies in it for as long as it is mapped.
 */
struct ct_ring_parts {
  struct ct_ring_header *header;
  uint32_t *tids;
  struct ct_slot *slots;
  struct ct_segment_entry *entries;
  uint8_t *segments;
  uint8_t *counters; /* counter_blocks blocks for each slot (ring/counters.h); NULL: none */
  uint32_t counter_blocks;
  int fd; /* of the file that the ring is, to see where it has memory; -1: not known */
  struct ct_crash *crash;
  uint8_t *handshakes; /* CT_HANDSHAKE_COUNT pages */
  struct ct_capture_pool *captures;
  uint64_t bytes;
  uint64_t tids_offset, handshakes_offset, segments_offset, counters_offset; /* for addresses in the target */
  uint32_t segment_count, detail_count;
};

static inline struct ct_handshake *
ct_ring_handshake(const struct ct_ring_parts *parts, uint32_t index)
{
  return (struct ct_handshake *)(parts->handshakes + (uint64_t)(index % CT_HANDSHAKE_COUNT) * CT_HANDSHAKE_BYTES);
}

/*
 * A call that is on its way and fills memory that its arguments point to: the registers that its return needs, found by
 * the address of its return-address slot. One that has left by a jump stays until its entry is taken by another.
 */
#define CT_PENDING_CALLS     16u
#define CT_PENDING_REGISTERS 4u
struct ct_pending_call {
  uint64_t sp;          /* 0: none */
  uint32_t outs, order; /* CT_DETAIL_OUT_REGISTER: of the function that a tail call has gone to, if it did */
  uint64_t registers[CT_PENDING_REGISTERS]; /* the first of enum ct_detail_register */
};

/*
 * The control page of a thread, at gs. Private, wiped on fork: in a forked child the
 * stack range is empty, so that the first check of every trampoline fails before anything shared is touched.
 */
struct ct_control_page {
  /* Address of the next event, and in its lowest bits the tag of the segment; advanced by xadd. After the segment's
   * end CT_CURSOR_VALID is not set in it, nor in 0, which stands for no segment. */
  uint64_t cursor;
  uint64_t segment_base;
  uint64_t stack_lo;
  uint64_t stack_len; /* 0: every hook takes the slow path */
  uint64_t table;     /* address of the byte table */
  /*
   * Sampled hooks: of each block of 2^log2 calls one is recorded, at a place in it that is drawn by lot,
   * and stands for all of them. While countdown is 1 and sample_log2 0, read as one word, every call is.
   */
  int32_t countdown;    /* how many calls there are to come to the next event, with its own */
  uint32_t sample_log2; /* of the blocks to come; the controller's, by /proc/PID/mem */
  uint64_t magic;       /* CT_CONTROL_MAGIC in a registered thread's page */
  uint32_t mode;        /* enum ct_control_mode */
  uint32_t tid;
  uint64_t agent_sp;        /* top of the agent's stack of this thread */
  uint32_t slot;            /* index */
  uint32_t parked;          /* the thread went into clone and has not come back yet */
  uint64_t stack_published; /* lower end of the stack of `context`, as the drain knows it */
  uint32_t segment;         /* index of the active segment, CT_SEGMENT_NONE */
  uint32_t busy;            /* in the agent; a signal handler that finds it set is not recorded */
  uint64_t storeless_lo;    /* stack without return store: enter events only */
  uint64_t storeless_len;
  uint32_t context; /* of the stack that the drain believes the thread to be on, plus 1 */
  uint32_t draw;    /* the last number drawn by lot */
  /* The block at hand, taken and put by one instruction: calls after its event in the low half, log2 in the high. */
  uint64_t block;
  uint32_t mistakable; /* the thread is on a stack without return store only because its return-address slots have the
                          low halves of the stack before */
  uint32_t silent;     /* the agent makes no system call on this thread */
  uint32_t storeless_context; /* of the stack without return store */
  uint32_t copies;            /* the thread has copied a part of its stack that had frames */
  /*
   * Where on its stack the thread may have return-address slots with trampolines' addresses: as stack_lo and stack_len,
   * also when nothing is recorded any more. Both ranges end below stack_hi, the stack's end, once the thread has gone
   * from one place on the stack to another: frames further out than it was then have their true addresses.
   */
  uint64_t hooked_lo;
  uint64_t hooked_len;
  uint64_t stack_hi;
  uint64_t enters; /* how often an enter half has taken the slow path: what hook it was in before has been left then */
  /* How often any hook has taken it; one hook up to CT_HOOK_VISITS_MAX times once the ring is closed. */
  uint64_t visits;
  uint64_t detail_cursor; /* address of the next detail record; 0, or without CT_CURSOR_VALID: there is no room */
  uint64_t detail_base;
  uint32_t detail_segment; /* index, CT_SEGMENT_NONE */
  uint32_t busy_skips;     /* as skipped_busy, those that are not in the slot's yet */
  uint64_t counters;       /* address of the thread's struct ct_counter; 0: there are none, calls are not counted */
  /* The memory that the thread was about to take out of its place when its cursor was this one (agent/map.h). */
  uint64_t going_lo;
  uint64_t going_hi;
  uint64_t going_cursor;
  uint64_t detail_tag; /* of detail_segment, see CT_DETAIL_TAG */
  struct ct_pending_call pending[CT_PENDING_CALLS];
  uint32_t pending_order; /* of the last one */
};
#define CT_HOOK_VISITS_MAX 4 /* for room, its enter half again, room for its detail record, its callout */
#define CT_CONTROL_MAGIC   0x4c4f52544e4f4354ull

_Static_assert(offsetof(struct ct_control_page, cursor) == CT_GS_CURSOR, "gs");
_Static_assert(CT_SEGMENT_BYTES == CT_CURSOR_VALID && CT_SEGMENT_STRIDE == 2 * CT_CURSOR_VALID, "segments");
_Static_assert(offsetof(struct ct_control_page, stack_lo) == CT_GS_STACK_LO, "gs");
_Static_assert(offsetof(struct ct_control_page, stack_len) == CT_GS_STACK_LEN, "gs");
_Static_assert(offsetof(struct ct_control_page, table) == CT_GS_TABLE, "gs");
_Static_assert(offsetof(struct ct_control_page, countdown) == CT_GS_COUNTDOWN, "gs");
_Static_assert(offsetof(struct ct_control_page, sample_log2) == CT_GS_SAMPLE && CT_GS_SAMPLE == CT_GS_COUNTDOWN + 4,
               "gs");
_Static_assert(offsetof(struct ct_control_page, draw) == CT_GS_DRAW, "gs");
_Static_assert(offsetof(struct ct_control_page, block) == CT_GS_BLOCK, "gs");
_Static_assert(offsetof(struct ct_control_page, mode) == CT_GS_MODE, "gs");
_Static_assert(offsetof(struct ct_control_page, tid) == CT_GS_TID, "gs");
_Static_assert(offsetof(struct ct_control_page, agent_sp) == CT_GS_AGENT_SP, "gs");
_Static_assert(offsetof(struct ct_control_page, silent) == CT_GS_SILENT, "gs");
_Static_assert(offsetof(struct ct_control_page, slot) == CT_GS_SLOT, "gs");
_Static_assert(offsetof(struct ct_control_page, parked) == CT_GS_PARKED, "gs");
_Static_assert(offsetof(struct ct_control_page, copies) == CT_GS_COPIES, "gs");
_Static_assert(offsetof(struct ct_control_page, hooked_lo) == CT_GS_HOOKED_LO, "gs");
_Static_assert(offsetof(struct ct_control_page, hooked_len) == CT_GS_HOOKED_LEN, "gs");
_Static_assert(CT_GS_HOOKED_LO % 16 == 0 && CT_GS_HOOKED_LEN == CT_GS_HOOKED_LO + 8 && CT_GS_STACK_LO % 16 == 0 &&
                   CT_GS_STACK_LEN == CT_GS_STACK_LO + 8,
               "both change by one instruction");
_Static_assert(offsetof(struct ct_control_page, stack_hi) == CT_GS_STACK_HI, "gs");
_Static_assert(offsetof(struct ct_control_page, detail_cursor) == CT_GS_DETAIL_CURSOR, "gs");
_Static_assert(offsetof(struct ct_control_page, counters) == CT_GS_COUNTERS, "gs");

/*
 * How calls of a function are recorded under a budget: right before its trampoline's first instruction, so that a call
 * that is counted, or passes, needs no line of memory but those of the code that it runs through. The controller's,
 * written while threads run; nobody executes it.
 */
struct ct_gate {
  uint32_t mask;  /* CT_LEVEL_COUNTING: a call whose number has 1 in these bits is recorded, so the first is */
  uint8_t level;  /* CT_LEVEL_* */
  uint8_t pad[3]; /* int3 */
};
_Static_assert(sizeof(struct ct_gate) == 8, "gate");
#define CT_GATE_ALIGN 64u

/* After every trampoline, in the region's descriptor table, sorted by address. */
struct ct_hook_desc {
  uint64_t enter;      /* first instruction of the enter half */
  uint64_t relocated;  /* the function's displaced instructions; where a call goes on that is not recorded */
  uint64_t ret;        /* return half, after the stack adjustment: retry point */
  uint64_t ret_done;   /* return half: restore registers, put the return address back, return */
  uint64_t ret_point;  /* address after the trampoline's call */
  uint64_t function;   /* the function's address */
  uint32_t fn;         /* id */
  uint8_t mode;        /* enum ct_hook_mode */
  uint8_t callout;     /* enum ct_callout */
  uint8_t map_count;   /* displaced instructions */
  uint8_t self_branch; /* the function branches to its own entry */
  uint64_t relocated_end;
  uint64_t after_callout; /* displaced instructions after the callout */
  uint8_t map_new[8];     /* offset from after_callout of each displaced instruction ... */
  uint8_t map_old[8];     /* ... and from function */
  uint8_t values;         /* CT_HOOK_VALUES_* */
  uint8_t itrace;         /* CT_CALLOUT_ITRACE: which probe its calls are for, plus 1 */
  uint16_t detail_tail;   /* offset from enter of where a call goes on that came by a tail jump, with detail; of where
                             arguments are recorded (CT_HOOK_VALUES_FEW), 0: of none */
  uint16_t outs;          /* CT_HOOK_VALUES_DETAIL: what is read at the return, CT_DETAIL_OUT_REGISTER */
  uint16_t return_end;    /* CT_HOOK_FULL: offset from enter of the end of the return half */
  uint64_t start;         /* first instruction of the trampoline: where the function's entry goes */
};
_Static_assert(sizeof(struct ct_hook_desc) == 104, "descriptor");
_Static_assert(offsetof(struct ct_hook_desc, ret_point) == CT_DESC_RET_POINT, "desc");
_Static_assert(offsetof(struct ct_hook_desc, function) == CT_DESC_FUNCTION, "desc");
_Static_assert(offsetof(struct ct_hook_desc, fn) == CT_DESC_FN, "desc");
_Static_assert(offsetof(struct ct_hook_desc, mode) == CT_DESC_MODE, "desc");
_Static_assert(offsetof(struct ct_hook_desc, callout) == CT_DESC_CALLOUT, "desc");
_Static_assert(offsetof(struct ct_hook_desc, self_branch) == CT_DESC_SELF_BRANCH, "desc");
_Static_assert(offsetof(struct ct_hook_desc, after_callout) == CT_DESC_AFTER_CALLOUT, "desc");
_Static_assert(offsetof(struct ct_hook_desc, values) == CT_DESC_VALUES, "desc");
_Static_assert(offsetof(struct ct_hook_desc, itrace) == CT_DESC_ITRACE, "desc");
_Static_assert(offsetof(struct ct_hook_desc, detail_tail) == CT_DESC_DETAIL_TAIL, "desc");

/* What a function's trampoline does besides recording; callouts.h. */
enum ct_callout {
  CT_CALLOUT_NONE = 0,
#define X(name, entry) CT_CALLOUT_##name,
  CT_CALLOUTS(X)
#undef X
      CT_CALLOUT_KINDS
};
_Static_assert(CT_CALLOUT_KINDS <= 256, "struct ct_hook_desc keeps it in a byte");

/*
 * A patch of the target's text, and what was there: kept with the region, so that whoever comes later can take it back.
 * It is in place when the bytes are.
 */
struct ct_patch {
  uint64_t address;
  uint32_t function; /* index in the plan of its file */
  uint8_t length;
  uint8_t kind; /* enum ct_patch_kind */
  uint8_t bytes[5];
  uint8_t old[5];
};
_Static_assert(sizeof(struct ct_patch) == 24, "patch");
/* Bits. Without any: the entry of a function. */
enum ct_patch_kind {
  CT_PATCH_RELAY = 1,   /* where a short jump of such an entry goes on, or instructions that moved out */
  CT_PATCH_GUARD = 2,   /* of a function whose hook keeps trampolines' addresses on stacks harmless, where an unwinder
                           asks or a stack is copied: put in before all others, taken out after them */
  CT_PATCH_COPY = 4,    /* the second of these */
  CT_PATCH_EVICTED = 8, /* a relay of instructions that moved out: who stands before it may execute them instead */
};
static inline int
ct_patch_is_relay(const struct ct_patch *patch)
{
  return (patch->kind & CT_PATCH_RELAY) != 0;
}
static inline int
ct_patch_is_guard(const struct ct_patch *patch)
{
  return (patch->kind & CT_PATCH_GUARD) != 0;
}

/* Of jumps that point elsewhere, in the agent's list as a region without descriptors. */
#define CT_STUB_PAGES_BYTES (2 * CT_PAGE_BYTES) /* so that a stub can begin at any byte of the first */

/* First bytes of every trampoline region: addresses the cold parts jump through. */
struct ct_region_head {
  uint64_t slow_enter;
  uint64_t slow_return;
  uint64_t not_module;
#define X(name) uint64_t callout_##name;
  CT_CALLOUT_ENTRIES(X)
#undef X
  uint64_t restore_ra_slot;     /* enter-only function reached by a tail jump out of a call-through frame */
  uint64_t restore_passthrough; /* the same of an excluded function */
  uint64_t sample_due;          /* a sampled hook under sampling: this call is to be recorded */
  uint64_t detail_full;         /* no room for a detail record */
  uint64_t detail_tail;         /* the record of a call that came by a tail jump is there: its event */
  uint64_t detail_texts;        /* the texts of a record */
  /* Of this region alone. */
  uint64_t region_bytes; /* of its mapping, from the head on */
  uint64_t patches;      /* address of its patches, sorted by address */
  uint64_t patch_count;
};

/* A region, as the agent's table has it. */
struct ct_region {
  uint64_t lo, hi; /* addresses of code */
  uint64_t desc;   /* address of the descriptors; after them two struct ct_region_frames */
  uint64_t desc_count;
};

/*
 * Call frame information of a region for unwinders that look for it as in any module, by an .eh_frame_hdr (LSB Core
 * 5.0, 10.6.2; DWARF 5, 6.4). One row for all of it, that of the points after trampolines' calls: the caller's rsp is
 * rsp, the return address lies at rsp - 8 + D. There are two, one after the other. libgcc tells frames by their CFA,
 * and that is the caller's too, unless one of them is what a signal interrupted: so the second says that trampolines
 * are signal frames, and gives one less than the return address, since a place that was interrupted is taken as it is.
 */
enum ct_region_frames_kind { CT_REGION_FRAMES_PLAIN, CT_REGION_FRAMES_SIGNAL, CT_REGION_FRAMES_COUNT };
struct ct_region_frames {
  uint8_t version, pointer_encoding, count_encoding, table_encoding;
  int32_t eh_frame; /* relative to itself */
  uint32_t count;
  int32_t start, fde_at; /* relative to this struct */
  uint32_t cie_length, cie_id;
  uint8_t cie[32];
  uint32_t fde_length, fde_cie; /* back from itself */
  uint64_t fde_start, fde_bytes;
  uint8_t fde[8];
  uint32_t end;
} __attribute__((packed));

static inline uint64_t
ct_region_frames_at(uint64_t descs, uint64_t count, enum ct_region_frames_kind kind)
{
  return descs + count * sizeof(struct ct_hook_desc) + (uint64_t)kind * sizeof(struct ct_region_frames);
}

/* Text of a module with an unwinder that goes by dl_iterate_phdr alone (LLVM's, nongnu's). */
struct ct_unwinder {
  uint64_t lo, hi;
};
#define CT_UNWINDER_MAX 16u
#define CT_REGION_MAX   8192u

struct ct_stack_range {
  uint64_t lo, hi; /* hi == 0: not known */
  uint32_t storeless, context;
};

/* A part of the return stores; of the stack at [lo, hi) its pages: that of the return-address slot at S is at S +
 * delta, which is no multiple of a page. */
struct ct_store_range {
  uint64_t lo, hi;
};
static inline struct ct_store_range
ct_store_of(uint64_t lo, uint64_t hi, int64_t delta)
{
  uint64_t page = CT_PAGE_BYTES - 1;
  return (struct ct_store_range){(lo + (uint64_t)delta) & ~page, (hi + (uint64_t)delta + page) & ~page};
}
#define CT_RESTORER_MAX  64u
#define CT_UNWINDING_MAX 256u

/* The agent's data, written by the controller before the first hook runs. At the start of the agent's data page. */
struct ct_agent_config {
  uint64_t ring;       /* address of the memfd's mapping */
  uint64_t tids;       /* address of the tid table */
  uint64_t controls;   /* address of the control pages */
  uint64_t table;      /* address of the byte table */
  int64_t store_delta; /* D */
  uint32_t pid;        /* getpid() of the traced process */
  uint32_t have_wrgsbase;
  uint64_t page_off;    /* address of the shared page with CT_MODE_OFF */
  uint64_t page_lookup; /* address of the shared page with CT_MODE_LOOKUP */
  uint64_t signal_mask; /* all ones: what is blocked in the agent */
  uint32_t
      no_syscalls; /* atomic: not 0 while the target is, or may be, under seccomp: the agent makes no system call */
  uint32_t stack_lock;
  uint32_t no_stores;     /* no stack has a return store */
  uint32_t crash_signals; /* bit N: signal N is handled by the agent while the program does not (agent/crash.c) */
  uint64_t handshakes;    /* address of the handshake pages; 0: children are not followed */
  uint64_t stacks;        /* address of struct ct_stack_map, ring/stacks.h */
  uint32_t task_share;    /* of RLIMIT_NPROC: processes and threads of contrail's; 0: nothing is added to it */
  uint32_t tasks_raised;  /* by so much its soft limit has been raised at the begin of the image ... */
  uint64_t task_limit;    /* ... to that */
  uint64_t region_count;
  uint64_t fde_full;                             /* address of the FDE template for CT_HOOK_FULL */
  uint64_t fde_enter;                            /* ... for enter-only trampolines */
  uint64_t fde_values;                           /* ... for CT_HOOK_FULL with values */
  uint64_t fde_detail;                           /* ... for CT_HOOK_FULL with detail */
  struct ct_unwinder unwinders[CT_UNWINDER_MAX]; /* hi == 0: unused */
  struct ct_signal_action shown[CT_SIGNALS];     /* of crash_signals: SIG_DFL as the program has set it */
  uint64_t loader_state; /* address of the loader's r_state (link.h: 0 RT_CONSISTENT), 0 when it is not known */
  struct ct_stack_range main_stack; /* as far down as it may grow */
  struct ct_region regions[CT_REGION_MAX];
  uint64_t restorers[CT_RESTORER_MAX];            /* where signal handlers return to the kernel; 0: unused */
  struct ct_unwinder unwinding[CT_UNWINDING_MAX]; /* functions whose frames hold return addresses; hi == 0: unused */
  uint64_t hooks_version;                         /* by the controller: how often what is hooked has been changed */
  uint64_t counters;                              /* address of the counters of slot 0; 0: there are none */
  uint64_t counters_stride;                       /* from those of a slot to the next one's */
};
_Static_assert(offsetof(struct ct_agent_config, pid) == CT_CFG_PID, "config");
_Static_assert(offsetof(struct ct_agent_config, page_lookup) == CT_CFG_PAGE_LOOKUP, "config");
_Static_assert(offsetof(struct ct_agent_config, no_syscalls) == CT_CFG_NO_SYSCALLS, "config");
_Static_assert(offsetof(struct ct_agent_config, crash_signals) == CT_CFG_CRASH_SIGNALS, "config");
_Static_assert(offsetof(struct ct_agent_config, handshakes) == CT_CFG_HANDSHAKES, "config");
_Static_assert(offsetof(struct ct_agent_config, stacks) == CT_CFG_STACKS, "config");
_Static_assert(offsetof(struct ct_control_page, context) == CT_GS_CONTEXT, "gs");
_Static_assert(offsetof(struct ct_control_page, mistakable) == CT_GS_MISTAKABLE, "gs");
_Static_assert(CT_WORD_SWITCH == CT_OTHER_SWITCH << CT_WORD_FN_SHIFT &&
                   CT_WORD_STACK == CT_OTHER_STACK << CT_WORD_FN_SHIFT && CT_WORD_FN_SHIFT + 4 == 8,
               "word");
_Static_assert(offsetof(struct ct_ring_header, forks) == CT_RING_FORKS, "header");
_Static_assert(offsetof(struct ct_ring_header, handshake_doorbell) == CT_RING_HANDSHAKE_DOORBELL, "header");
_Static_assert(offsetof(struct ct_ring_header, itrace) == CT_RING_ITRACE, "header");
_Static_assert(CT_CONTROL_OWN >= sizeof(struct ct_control_page) && CT_CONTROL_OWN < CT_PAGE_BYTES, "control page");
_Static_assert(offsetof(struct ct_handshake, owner) == 0 && sizeof(struct ct_handshake) < CT_HANDSHAKE_BYTES / 4,
               "handshake");
_Static_assert(offsetof(struct ct_ring_header, dropped_no_slot) == CT_RING_DROPPED_NO_SLOT, "header");
_Static_assert(offsetof(struct ct_ring_header, slots_freed) == CT_RING_SLOTS_FREED, "header");
_Static_assert(offsetof(struct ct_control_page, busy) == CT_GS_BUSY, "gs");
_Static_assert(offsetof(struct ct_control_page, busy_skips) == CT_GS_BUSY_SKIPS, "gs");
_Static_assert(offsetof(struct ct_control_page, detail_tag) == CT_GS_DETAIL_TAG, "gs");
_Static_assert(CT_WORD_ARG_1 == CT_OTHER_ARG_1 << CT_WORD_FN_SHIFT &&
                   CT_WORD_ARG_2 == CT_OTHER_ARG_2 << CT_WORD_FN_SHIFT &&
                   CT_WORD_RESULT == CT_OTHER_RESULT << CT_WORD_FN_SHIFT &&
                   CT_WORD_DETAIL == CT_OTHER_DETAIL << CT_WORD_FN_SHIFT &&
                   CT_WORD_VALUE == CT_OTHER_VALUE << CT_WORD_FN_SHIFT && CT_WORD_VALUE_SHIFT == CT_WORD_FN_SHIFT + 4 &&
                   CT_KIND_OTHER == 0,
               "word");
_Static_assert(CT_WORD_TAIL_OUT == (CT_OTHER_TAIL_OUT << CT_WORD_FN_SHIFT | CT_KIND_OTHER << CT_WORD_KIND_SHIFT),
               "word");
_Static_assert(offsetof(struct ct_agent_config, tasks_raised) == CT_CFG_TASKS_RAISED, "config");
_Static_assert(offsetof(struct ct_agent_config, signal_mask) == CT_CFG_SIGNAL_MASK, "config");

#endif
