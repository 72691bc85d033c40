/* SPDX-License-Identifier: MIT */
/*
 * The compact trace file, DIR/thread_N/index.ctb: the structures and numbers that
 * writer and reader share. docs/format.md explains them with an example.
 *
 *   file   = file header (64 bytes), block, block, ... to the end of the file
 *   block  = block header (128 bytes), payload = sections open, ops, ids, deltas, extra
 *
 * Everything is little endian and pointer free. A block is readable alone: its
 * prediction table starts empty, its times start at first_tsc, its open section
 * lists the innermost frames, and an op that needs a frame from before the block
 * which is not in that list carries the function id itself (RETURN_ID).
 */
#ifndef CT_TRACE_FORMAT_H
#define CT_TRACE_FORMAT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the trace file is little endian");

#define CT_TRACE_VERSION      2u
#define CT_TRACE_VERSION_OLD  1u /* is read as well; its blocks have no number */
#define CT_TRACE_VERSION_KEPT 3u /* of the last stretch of a recording: the first block of a file has any number */
#define CT_TRACE_VERSION_PIECES                                                                                        \
  4u                               /* likewise, and files are in pieces: index-1.ctb, index-2.ctb, each with a header  \
                                    */
#define CT_TRACE_VERSION_NEAR   5u /* of a file, as 2; with the ops from CT_TRACE_OP_NEAR on */
#define CT_TRACE_VERSION_NEWEST CT_TRACE_VERSION_NEAR
#define CT_TRACE_FORMAT_NAME    "contrail"
#define CT_TRACE_MANIFEST       "manifest.json"
#define CT_TRACE_CRASH          "crash.json"
#define CT_TRACE_STACKS         "stacks.json"
#define CT_TRACE_FUNCTIONS      "functions.tsv"
#define CT_TRACE_SOURCES        "sources.tsv"
#define CT_TRACE_PROTOTYPES     "prototypes.tsv"
#define CT_PROTOTYPES_HEAD      "prototypes\t1\t" /* its first line, up to the checksum */
#define CT_TRACE_INDEX          "index.ctb"
#define CT_TRACE_DETAIL         "detail.ctd"
#define CT_TRACE_THREAD_DIR     "thread_"

#define CT_FILE_MAGIC         0x42525443u /* "CTRB" */
#define CT_BLOCK_MAGIC        0x4b425443u /* "CTBK" */
#define CT_DETAIL_FILE_MAGIC  0x52445443u /* "CTDR" */
#define CT_DETAIL_BLOCK_MAGIC 0x42445443u /* "CTDB" */

#define CT_BLOCK_OPS_MAX  32768u
#define CT_BLOCK_OPEN_MAX 1024u
#define CT_FUNCTION_ID_MAX                                                                                             \
  ((1u << 28) - 1) /* the id column has at most 4 bytes for it; in the ring it is below 2^23                           \
                    */
#define CT_FUNCTION_NONE UINT32_MAX
#define CT_DEPTH_MAX     (1u << 28) /* frames of one stack */

#define CT_PREDICTION_ENTRIES 4096u

/* Bytes that one op can need in each column. */
#define CT_DELTA_BYTES_MAX 10u
#define CT_ID_BYTES_MAX    4u
#define CT_EXTRA_BYTES_MAX 21u
#define CT_OPEN_BYTES_MAX  (5u + CT_BLOCK_OPEN_MAX * (CT_ID_BYTES_MAX + CT_DELTA_BYTES_MAX + 1u))

/* What an op does to the stack of frames, and what it has in the columns ids (I) and extra (E). */
enum ct_trace_op {
  CT_TRACE_OP_RETURN = 0,          /* closes the top frame, which the block knows */
  CT_TRACE_OP_ENTER_PREDICTED = 1, /* opens a frame */
  CT_TRACE_OP_ENTER = 2,           /* I: function */
  CT_TRACE_OP_TAIL_PREDICTED = 3,  /* closes the top frame, if any; a new one takes its place */
  CT_TRACE_OP_TAIL = 4,            /* I: function */
  CT_TRACE_OP_POINT_PREDICTED = 5, /* no frame */
  CT_TRACE_OP_POINT = 6,           /* I: function */
  CT_TRACE_OP_UNWOUND = 7,         /* closes the top frame; E: u8 reason (enum ct_unwound_reason) */
  CT_TRACE_OP_RETURN_ORPHAN = 8,   /* closes nothing; I: function */
  CT_TRACE_OP_LOST = 9,            /* open frames of all contexts become uncertain; E: varint count */
  CT_TRACE_OP_SWITCH = 10,         /* E: varint context, varint frames open in it */
  CT_TRACE_OP_EXEC = 11,           /* all contexts are empty afterwards, the current one is 0 */
  CT_TRACE_OP_RETURN_ID = 12, /* RETURN of a frame from before the block and not in its open section; I: function */
  CT_TRACE_OP_SAMPLED_PREDICTED = 13, /* POINT that stands for as many calls as the interval in force says */
  CT_TRACE_OP_SAMPLED = 14,           /* I: function */
  CT_TRACE_OP_INTERVAL = 15,          /* E: u8 log2 of the interval from here on, at most CT_INTERVAL_LOG2_MAX */
  CT_TRACE_OP_VALUE = 16,             /* of the top frame; E: u8 which (enum ct_value), varint */
  CT_TRACE_OP_AWAY = 17,    /* the thread was away; E: u8 kind (enum ct_away), varint op - end, varint end - begin */
  CT_TRACE_OP_COUNTED = 18, /* calls that have no event; E: varint function, varint how many */
  /*
   * As VALUE; in place of the number varint how it differs from the latest of these in the block that has the same
   * place in the table of them (ct_near_place): 2 n of one that is greater by n, 2 n - 1 of one that is less by n. It
   * has no delta: its time is that of the op before.
   */
  CT_TRACE_OP_NEAR = 19,   /* E: u8 which, varint */
  CT_TRACE_OP_NEAR_1 = 20, /* the same of which 1, 2, 3; E: varint */
  CT_TRACE_OP_NEAR_3 = 22,
  CT_TRACE_OP_COUNT = 23,
};
#define CT_INTERVAL_LOG2_MAX 15u

static inline int
ct_op_has_time(uint8_t op)
{
  return op < CT_TRACE_OP_NEAR;
}

/* Bit n set: op n has an entry in the ids column; is a call; is a return. */
#define CT_OPS_WITH_ID 0x5154u
#define CT_OPS_CALLS   0x607eu
#define CT_OPS_RETURNS 0x1101u

enum ct_section { CT_SECTION_OPEN, CT_SECTION_OPS, CT_SECTION_IDS, CT_SECTION_DELTAS, CT_SECTION_EXTRA, CT_SECTIONS };

#define CT_OPEN_UNCERTAIN 1u /* flag byte of an entry of the open section */

/*
 * offset size
 *      0    4  magic "CTRB"
 *      4    2  version, 2; 1, 3 and 4 are read as well
 *      6    2  header_bytes, 64
 *      8    4  thread_index, the N of thread_N
 *     12    4  tid
 *     16    4  pid
 *     20    4  flags, 0
 *     24   36  reserved, 0
 *     60    4  header_crc, CRC-32C of the 60 bytes before
 */
struct ct_file_header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint32_t thread_index;
  uint32_t tid;
  uint32_t pid;
  uint32_t flags;
  uint32_t reserved[9];
  uint32_t header_crc;
};
static_assert(sizeof(struct ct_file_header) == 64, "file header");
static_assert(offsetof(struct ct_file_header, thread_index) == 8, "file header");
static_assert(offsetof(struct ct_file_header, flags) == 20, "file header");
static_assert(offsetof(struct ct_file_header, header_crc) == 60, "file header");

/* stored_bytes == raw_bytes: the bytes themselves; stored_bytes < raw_bytes: one zstd frame. */
struct ct_section_size {
  uint32_t stored_bytes;
  uint32_t raw_bytes;
};

/*
 * offset size
 *      0    4  magic "CTBK"
 *      4    4  header_bytes, 128
 *      8    4  header_crc, CRC-32C of the 128 bytes with this field 0
 *     12    4  payload_crc, CRC-32C of the payload as stored
 *     16    4  payload_bytes, sum of the sections' stored_bytes
 *     20    4  ops, 1..32768
 *     24    4  calls: ENTER, TAIL and POINT ops
 *     28    4  returns: RETURN, RETURN_ID and RETURN_ORPHAN ops
 *     32    8  first_tsc, time of the first op
 *     40    8  last_tsc, time of the last op
 *     48    8  lost, sum of the LOST ops' counts
 *     56    4  depth_start, frames open before the first op, in the current context
 *     60    4  open_count, how many of them are in the open section
 *     64   40  sizes of open, ops, ids, deltas, extra
 *    104    4  interval_log2, of the interval in force before the first op
 *    108    4  number of the block in its file, from 0        (version 1: 0, as the next two)
 *    112    8  first_event, calls and returns in the blocks before it
 *    120    8  first_enter, calls in the blocks before it
 */
struct ct_block_header {
  uint32_t magic;
  uint32_t header_bytes;
  uint32_t header_crc;
  uint32_t payload_crc;
  uint32_t payload_bytes;
  uint32_t ops;
  uint32_t calls;
  uint32_t returns;
  uint64_t first_tsc;
  uint64_t last_tsc;
  uint64_t lost;
  uint32_t depth_start;
  uint32_t open_count;
  struct ct_section_size section[CT_SECTIONS];
  uint32_t interval_log2;
  uint32_t number;
  uint64_t first_event;
  uint64_t first_enter;
};
static_assert(sizeof(struct ct_block_header) == 128, "block header");
static_assert(offsetof(struct ct_block_header, payload_bytes) == 16, "block header");
static_assert(offsetof(struct ct_block_header, first_tsc) == 32, "block header");
static_assert(offsetof(struct ct_block_header, depth_start) == 56, "block header");
static_assert(offsetof(struct ct_block_header, section) == 64, "block header");
static_assert(offsetof(struct ct_block_header, interval_log2) == 104, "block header");
static_assert(offsetof(struct ct_block_header, first_event) == 112, "block header");

/*
 * Slot of the prediction table for the state `last`: 2 * function + 1 when the latest of
 * enter, tail, point and return was a return, else 2 * function; 0 at the start of a block.
 */
static inline uint32_t
ct_prediction_slot(uint32_t last)
{
  return (last * 2654435761u) >> 20;
}
static_assert(CT_PREDICTION_ENTRIES == 1u << (32 - 20), "the hash gives 12 bits");

#define CT_NEAR_ENTRIES 4096u /* at 0 at the start of a block */

/* Of a value of a function. */
static inline uint32_t
ct_near_place(uint32_t fn, uint32_t which)
{
  return ((fn << 6 | which) * 2654435761u) >> 20;
}

static inline uint64_t
ct_near_of(uint64_t value, uint64_t before)
{
  uint64_t difference = value - before;
  return difference << 1 ^ (0 - (difference >> 63));
}

static inline uint64_t
ct_near_value(uint64_t near, uint64_t before)
{
  return before + (near >> 1 ^ (0 - (near & 1)));
}

/* LEB128, at most 10 bytes. Returns the end. */
static inline uint8_t *
ct_varint_put(uint8_t *p, uint64_t value)
{
  while (value > 0x7f) {
    *p++ = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  *p++ = (uint8_t)value;
  return p;
}

/* NULL when the number does not end before `end` or is longer than 10 bytes. */
static inline const uint8_t *
ct_varint_get(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
  uint64_t v = 0;
  for (unsigned shift = 0; shift < 70 && p < end; shift += 7) {
    uint8_t byte = *p++;
    v |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = v;
      return p;
    }
  }
  return NULL;
}

/*
 * The file of what the program wrote to descriptors 1 and 2: a header as of a thread's file with this magic, index, tid
 * and pid 0, then records to the end of the file:
 *
 *    0      4       8      16    20      24      32
 *   | crc  | bytes | tsc  | tid | fd    | given | data ...
 *
 * crc: of the record from its fifth byte on; bytes: of the record, this header included; given: how many bytes the call
 * was given, of which data has the first ones.
 */
#define CT_TRACE_ITRACED  "itrace.tsv"
#define CT_TRACE_CAPTURES "output.cto"
#define CT_CAPTURES_MAGIC 0x4f525443u /* "CTRO" */

struct ct_capture_record {
  uint32_t crc;
  uint32_t record_bytes;
  uint64_t tsc;
  uint32_t tid;
  uint32_t fd;
  uint64_t given;
};
static_assert(sizeof(struct ct_capture_record) == 32, "capture record");
static_assert(offsetof(struct ct_capture_record, given) == 24, "capture record");
#define CT_CAPTURE_RECORD_MAX (64u << 10)

/*
 * DIR/thread_N/detail.ctd: registers and stack bytes of calls and returns. After a file header with the magic "CTDR"
 * blocks of a header and a payload: records one after the other, as they are or one zstd frame.
 *
 * offset size
 *      0    4  magic "CTDB"
 *      4    4  header_bytes, 64
 *      8    4  header_crc, CRC-32C of the 64 bytes with this field 0
 *     12    4  payload_crc, CRC-32C of the payload as stored
 *     16    8  stored_bytes, raw_bytes
 *     24    4  records
 *     28    4  number of the block in its file, from 0
 *     32    8  first_tsc, the least time of its records
 *     40    8  last_tsc, the greatest
 *     48   16  reserved, 0
 */
struct ct_detail_block_header {
  uint32_t magic;
  uint32_t header_bytes;
  uint32_t header_crc;
  uint32_t payload_crc;
  struct ct_section_size payload;
  uint32_t records;
  uint32_t number;
  uint64_t first_tsc;
  uint64_t last_tsc;
  uint64_t reserved[2];
};
static_assert(sizeof(struct ct_detail_block_header) == 64, "detail block header");
#define CT_DETAIL_BLOCK_BYTES (64u << 10) /* of records in a block, at most */

/*
 * A record, a multiple of 8 bytes. Its call is the one of the thread's that was entered at enter_tsc and is of that
 * function; tsc is the enter's own time or the return's, as the clock gave it.
 *
 *   CALL    sp, bp, return address, rdi rsi rdx rcx r8 r9 rax r10; with CT_DETAIL_HAS_VECTORS the low halves of xmm0 to
 *           xmm7; with CT_DETAIL_HAS_TEXTS texts that arguments point to; the rest is the stack from sp upwards. sp:
 *           address of the return-address slot
 *   RETURN  sp, rax, rdx, low halves of xmm0 and xmm1; with CT_DETAIL_HAS_ERROR errno; with CT_DETAIL_HAS_TEXTS what
 * the call has filled, and what the result points to
 */
/*
 * Texts: a word of four fields of 16 bits, for one text each, the lowest first: bit 15 says that there is one, bits 8
 * to 14 are the number of the register that points to it (0 rdi .. 5 r9; of a return 6 rax), with 8 added where it is
 * the first word of what that one points to that does, bits 0 to 7 the bytes that are recorded of it, up to
 * CT_DETAIL_TEXT_MAX; then the bytes of each, filled up to words.
 */
enum ct_detail_kind { CT_DETAIL_KIND_CALL = 1, CT_DETAIL_KIND_RETURN = 2 };
#define CT_DETAIL_HAS_VECTORS 1u
#define CT_DETAIL_HAS_ERROR   2u
#define CT_DETAIL_HAS_TEXTS   4u
#define CT_DETAIL_TEXT_MAX    64u
struct ct_detail_entry {
  uint64_t enter_tsc;
  uint64_t tsc;
  uint32_t fn;
  uint16_t record_bytes; /* with this head */
  uint8_t kind;          /* enum ct_detail_kind */
  uint8_t flags;
};
static_assert(sizeof(struct ct_detail_entry) == 24, "detail record");
#define CT_DETAIL_CALL_WORDS   11u
#define CT_DETAIL_RETURN_WORDS 5u
#define CT_DETAIL_ERROR_WORDS  1u
#define CT_DETAIL_VECTOR_WORDS 8u
#define CT_DETAIL_TEXT_WORDS   (1u + CT_DETAIL_TEXTS_MAX * CT_DETAIL_TEXT_MAX / 8)
#define CT_DETAIL_STACK_BYTES  512u /* at most */
#define CT_DETAIL_RECORD_MAX                                                                                           \
  (sizeof(struct ct_detail_entry) + 8 * (CT_DETAIL_CALL_WORDS + CT_DETAIL_VECTOR_WORDS + CT_DETAIL_TEXT_WORDS) +       \
   CT_DETAIL_STACK_BYTES)

#endif
