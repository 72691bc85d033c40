/* SPDX-License-Identifier: MIT */
/*
 * The records of the instruction tracer, as they lie in a segment of a thread's ring and in the blocks of its file.
 * Little endian, nothing is aligned.
 *
 * A segment begins with an event CT_STREAM_CONTEXT: it can be read without those before it. Then, one after the other:
 *
 *   u32 id, values        unit id was executed to its end; the values of its instructions (x86/recorded.h)
 *   u32 CT_STREAM_EVENT | kind, u32 bytes, ...     an event: bytes is the size of all of it
 *   u32 CT_STREAM_PART, u32 id, u16 first, u16 end, values    instructions first to end - 1 of unit id
 *
 * A unit is code that is executed from its first instruction on: a stretch of it, or several, each of which but the
 * last ends with a jump, a call or a return to the next, direct or not, or with a conditional branch that was taken to
 * there. Each id is given once for a thread. The last instruction goes to where the next record is; that of a unit that
 * ends otherwise goes to the next instruction. What comes after an event CT_STREAM_CONTEXT goes on at its rip.
 */
#ifndef CT_RING_ITRACE_STREAM_H
#define CT_RING_ITRACE_STREAM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define CT_STREAM_EVENT 0x80000000u
#define CT_STREAM_PART  0xc0000000u

enum ct_stream_kind {
  CT_STREAM_CONTEXT = 1, /* struct ct_stream_context, and vector registers */
  CT_STREAM_STEP,        /* struct ct_stream_step: an instruction executed where it is; a context follows */
  CT_STREAM_SIGNAL,      /* struct ct_stream_signal; a context, or the end, follows */
  CT_STREAM_MEMORY,      /* struct ct_stream_memory and the bytes: what the kernel wrote */
  CT_STREAM_GAP,         /* struct ct_stream_gap; a context follows */
  CT_STREAM_END,         /* struct ct_stream_end */
};

struct ct_stream_event {
  uint32_t word; /* CT_STREAM_EVENT | kind */
  uint32_t bytes;
};

struct ct_stream_part {
  uint32_t word; /* CT_STREAM_PART */
  uint32_t unit;
  uint16_t first, end;
} __attribute__((packed));

enum ct_context_reason {
  CT_CONTEXT_BEGIN,   /* of the recording */
  CT_CONTEXT_SEGMENT, /* the same state as at the end of the segment before */
  CT_CONTEXT_STEP,    /* after an instruction that was executed where it is; or where the records end for a while */
  CT_CONTEXT_HANDLER, /* at the first instruction of a signal handler */
  CT_CONTEXT_GAP,     /* what came between is lost, or was not recorded */
  CT_CONTEXT_EXEC     /* at the first instruction of a new program */
};

/* The whole state. After it: vector_bytes for each of the vector registers 0 .. vectors - 1, then the mask registers.
 */
struct ct_stream_context {
  struct ct_stream_event event;
  uint64_t tsc;
  uint64_t reg[16]; /* by enum ct_reg */
  uint64_t rip, flags, fs_base, gs_base;
  uint32_t reason;      /* enum ct_context_reason */
  uint16_t vectors;     /* how many: 0, 16 or 32 */
  uint8_t vector_bytes; /* 16, 32 or 64 */
  uint8_t masks;        /* 0 or 8, of 8 bytes each */
  uint64_t hole;        /* 0 */
};

struct ct_stream_step {
  struct ct_stream_event event;
  uint64_t tsc, pc;
  uint8_t length; /* bytes of code; 0: could not be read */
  uint8_t code[15];
};

struct ct_stream_signal {
  struct ct_stream_event event;
  uint64_t tsc, pc; /* the program was there, before that instruction */
  uint64_t address; /* si_addr */
  int32_t signal, code;
};

struct ct_stream_memory {
  struct ct_stream_event event;
  uint64_t address, size; /* size: as much as was written; the bytes that follow may be fewer, or 0 */
};

struct ct_stream_gap {
  struct ct_stream_event event;
  uint64_t tsc;
  uint64_t bytes; /* of records that are lost; 0: not known how much */
};

enum ct_stream_end_reason { CT_STREAM_ASKED, CT_STREAM_EXITED, CT_STREAM_KILLED, CT_STREAM_FAILED };

struct ct_stream_end {
  struct ct_stream_event event;
  uint64_t tsc;
  uint32_t reason; /* enum ct_stream_end_reason */
  int32_t status;  /* as waitpid gives it */
};

/* A time stamp: the record that is at or after that offset of the segment was written at tsc or later. */
struct ct_stream_stamp {
  uint64_t tsc;
  uint64_t at;
};

/*
 * A thread's file: struct ct_steps_file, then blocks, each with its head. A block of units comes before the blocks of
 * records that use them. The last block is CT_STEPS_END: a file without it was cut, or its recorder was killed.
 *
 * Blocks are numbered, and heads have checksums, those of blocks begun with that of the file: so what is missing is
 * seen, after damage the next block is found by its magic, and no other file's block is taken for one of this.
 * Version 2 had neither these nor CT_STEPS_END: its heads end before `number` and `check`. Units of versions 2 and 3
 * are one stretch each. Versions before 5 have no blocks CT_STEPS_MATCHED.
 */
#define CT_STEPS_MAGIC "ctsteps"
enum { CT_STEPS_VERSION = 5, CT_STEPS_VERSION_OLDEST = 2 };

struct ct_steps_file {
  char magic[8]; /* CT_STEPS_MAGIC */
  uint32_t version;
  uint32_t head_bytes; /* of this structure: blocks begin there */
  int32_t pid, tid;
  uint32_t has_vectors;   /* of ct_values_of */
  uint32_t saved_parts;   /* what xsave may save: the low half of XCR0; 0: not known */
  uint64_t tsc_hz;        /* ticks per second */
  uint64_t tsc, clock_ns; /* at one moment: of CLOCK_MONOTONIC */
  int64_t wall_ns;        /* at that moment: CLOCK_REALTIME */
  uint32_t hole;          /* 0 */
  uint32_t check;         /* crc32 (zlib) of all before it */
};

enum ct_steps_block_kind {
  CT_STEPS_UNITS = 1, /* struct ct_steps_unit with its joints and its code, one after the other */
  CT_STEPS_RECORDS,   /* a segment's records; then its stamps */
  CT_STEPS_MODULES,   /* text: the lines of /proc/PID/maps, as they were from here on */
  CT_STEPS_END        /* nothing, and nothing comes after it */
};

/* CT_STEPS_MATCHED: of records alone, what steps/matches.h makes of them, packed by zstd. */
enum ct_steps_packing { CT_STEPS_RAW, CT_STEPS_ZSTD, CT_STEPS_MATCHED };

struct ct_steps_block {
  uint32_t magic;             /* CT_STEPS_BLOCK_MAGIC */
  uint16_t kind;              /* enum ct_steps_block_kind */
  uint16_t packing;           /* enum ct_steps_packing */
  uint64_t stored;            /* bytes that follow this head */
  uint64_t bytes;             /* unpacked: without stamps */
  uint64_t first_step, steps; /* of records: instructions before it, and in it */
  uint64_t first_tsc, last_tsc;
  uint32_t stamps;     /* how many, at the end of what is stored, not packed */
  uint32_t check;      /* crc32 (zlib) of what is stored */
  uint32_t number;     /* from 0 on, of all kinds */
  uint32_t head_check; /* crc32 (zlib) of all before it, begun with the check of the file's head */
};
#define CT_STEPS_BLOCK_MAGIC   0x33627463u /* "ctb3" */
#define CT_STEPS_BLOCK_MAGIC_2 0x6b627463u /* of version 2 */
enum { CT_STEPS_FILE_BYTES_2 = 64, CT_STEPS_BLOCK_BYTES_2 = 64 };

struct ct_steps_unit {
  uint64_t pc;
  uint32_t id;
  uint16_t code_bytes;
  uint8_t insns;  /* that are executed when it is executed to its end */
  uint8_t joints; /* after this: so many struct ct_steps_joint, then the code */
};

/* Behind the first `at` bytes of the unit's code comes what is at pc. Ascending. */
struct ct_steps_joint {
  uint64_t pc;
  uint16_t at;
} __attribute__((packed));

/* The bytes that follow the unit's head. */
static inline size_t
ct_steps_unit_rest(const struct ct_steps_unit *unit)
{
  return unit->joints * sizeof(struct ct_steps_joint) + unit->code_bytes;
}

static_assert(sizeof(struct ct_stream_part) == 12, "packed");
static_assert(sizeof(struct ct_stream_context) == 8 + 8 + 16 * 8 + 4 * 8 + 8 + 8, "no hidden holes");
static_assert(sizeof(struct ct_stream_step) == 40, "no hidden holes");
static_assert(offsetof(struct ct_steps_file, hole) == CT_STEPS_FILE_BYTES_2, "version 2 ends there");
static_assert(offsetof(struct ct_steps_block, number) == CT_STEPS_BLOCK_BYTES_2, "version 2 ends there");
static_assert(sizeof(struct ct_steps_file) == 72, "no hidden holes");
static_assert(sizeof(struct ct_steps_block) == 72, "no hidden holes");
static_assert(sizeof(struct ct_steps_unit) == 16, "no hidden holes");
static_assert(sizeof(struct ct_steps_joint) == 10, "packed");

#endif
