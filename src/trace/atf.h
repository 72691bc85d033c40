/* SPDX-License-Identifier: MIT */
/*
 * ATF V2, an interchange format: the structures of its files, which reader (atf_*.c here) and writer (src/export)
 * share. docs/atf.md has the whole.
 *
 *   SESSION/pid_P/manifest.json, functions.tsv
 *   SESSION/pid_P/thread_N/index.atf     header, events of 32 bytes, footer
 *   SESSION/pid_P/thread_N/detail.atf    header, records, footer
 *
 * Little endian, packed.
 */
#ifndef CT_TRACE_ATF_H
#define CT_TRACE_ATF_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define CT_ATF_FORMAT_NAME "atf"
#define CT_ATF_VERSION     2 /* of the layout, as the manifest has it; that of the files is 1 */
#define CT_ATF_INDEX       "index.atf"
#define CT_ATF_DETAIL      "detail.atf"
#define CT_ATF_FUNCTIONS   "functions.tsv"
#define CT_ATF_PROCESS_DIR "pid_"

#define CT_ATF_INDEX_MAGIC         0x32495441u /* "ATI2" */
#define CT_ATF_INDEX_FOOTER_MAGIC  0x41544932u /* "2ITA" */
#define CT_ATF_DETAIL_MAGIC        0x32445441u /* "ATD2" */
#define CT_ATF_DETAIL_FOOTER_MAGIC 0x41544432u /* "2DTA" */

enum ct_atf_kind { CT_ATF_CALL = 1, CT_ATF_RETURN = 2, CT_ATF_EXCEPTION = 3 };
enum { CT_ATF_DETAIL_CALL = 3, CT_ATF_DETAIL_RETURN = 4 };

#define CT_ATF_LITTLE_ENDIAN  1u
#define CT_ATF_FILE_VERSION   1u
#define CT_ATF_ARCH_X86_64    1u
#define CT_ATF_OS_LINUX       4u
#define CT_ATF_CLOCK_BOOTTIME 3u
#define CT_ATF_HAS_DETAIL     1u /* flag of the header of the index */
#define CT_ATF_NO_DETAIL      UINT32_MAX
#define CT_ATF_EVENTS_MAX     UINT32_MAX /* of a thread: what its counts hold */
#define CT_ATF_NO_MODULE      UINT32_MAX /* module id of functions of which no module is known */
#define CT_ATF_NO_FUNCTION    UINT64_MAX

#pragma pack(push, 1)
struct ct_atf_head { /* begins all headers */
  uint32_t magic;
  uint8_t endian, version, arch, os;
  uint32_t flags;
  uint32_t tid;
};

struct ct_atf_index_header {
  struct ct_atf_head head;
  uint8_t clock;
  uint8_t reserved[7];
  uint32_t event_bytes;
  uint32_t event_count;
  uint64_t events_offset;
  uint64_t footer_offset;
  uint64_t first_ns;
  uint64_t last_ns;
};

struct ct_atf_event {
  uint64_t ns;
  uint64_t function; /* module id << 32 | symbol index */
  uint32_t tid;
  uint32_t kind; /* enum ct_atf_kind */
  uint32_t depth;
  uint32_t detail; /* number of its record in detail.atf, or CT_ATF_NO_DETAIL */
};

struct ct_atf_index_footer {
  uint32_t magic;
  uint32_t crc; /* CRC-32 of the events */
  uint64_t event_count;
  uint64_t first_ns;
  uint64_t last_ns;
  uint64_t event_bytes; /* of all of them */
  uint8_t reserved[24];
};

struct ct_atf_detail_header {
  struct ct_atf_head head;
  uint32_t reserved;
  uint64_t events_offset;
  uint64_t event_count;
  uint64_t event_bytes;
  uint64_t first_sequence; /* in the index */
  uint64_t last_sequence;
  uint32_t rest;
};

struct ct_atf_detail {
  uint32_t record_bytes; /* with all of this, and the stack after it */
  uint16_t type;
  uint16_t flags;
  uint32_t sequence; /* of its event in the index */
  uint32_t tid;
  uint64_t ns;
  uint64_t function;
  uint64_t registers[8]; /* call: rdi rsi rdx rcx r8 r9 rax r10; return: rax rdx xmm0 xmm1, zeros */
  uint64_t return_address;
  uint64_t frame_pointer;
  uint64_t stack_pointer;
  uint16_t stack_bytes;
  uint16_t reserved;
};

struct ct_atf_detail_footer {
  uint32_t magic;
  uint32_t crc; /* CRC-32 of the records */
  uint64_t event_count;
  uint64_t event_bytes;
  uint64_t first_ns;
  uint64_t last_ns;
  uint8_t reserved[24];
};
#pragma pack(pop)

static_assert(sizeof(struct ct_atf_index_header) == 64, "index header");
static_assert(offsetof(struct ct_atf_index_header, event_bytes) == 24, "index header");
static_assert(offsetof(struct ct_atf_index_header, events_offset) == 32, "index header");
static_assert(offsetof(struct ct_atf_index_header, last_ns) == 56, "index header");
static_assert(sizeof(struct ct_atf_event) == 32, "event");
static_assert(offsetof(struct ct_atf_event, detail) == 28, "event");
static_assert(sizeof(struct ct_atf_index_footer) == 64, "index footer");
static_assert(offsetof(struct ct_atf_index_footer, event_bytes) == 32, "index footer");
static_assert(sizeof(struct ct_atf_detail_header) == 64, "detail header");
static_assert(offsetof(struct ct_atf_detail_header, events_offset) == 20, "detail header");
static_assert(sizeof(struct ct_atf_detail) == 124, "detail: 24 of a header, 100 of a payload");
static_assert(offsetof(struct ct_atf_detail, function) == 24, "detail");
static_assert(offsetof(struct ct_atf_detail, stack_bytes) == 120, "detail");
static_assert(sizeof(struct ct_atf_detail_footer) == 64, "detail footer");
#define CT_ATF_DETAIL_BYTES_MAX (sizeof(struct ct_atf_detail) + UINT16_MAX)

#endif
