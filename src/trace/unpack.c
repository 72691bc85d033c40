/* SPDX-License-Identifier: MIT */
/*
 * From a block's payload to its columns: checksum, decompression, and that each column has as many numbers as the
 * others ask for. What the unpacking needs is lent out by the trace, since cursors are many and few of them unpack at a
 * time.
 */
#include "trace/cursor_internal.h"

#include "base/branch.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "trace/lanes.h"
#include "trace/ops.h"

#include <stdlib.h>
#include <string.h>

#define COLUMN_SLACK 16u

/* ---- storage ---- */

static struct ct_unpacker *
unpacker_borrow(struct ct_trace *trace)
{
  pthread_mutex_lock(&trace->lock);
  struct ct_unpacker *unpacker = trace->unpackers;
  if (unpacker != NULL) {
    trace->unpackers = unpacker->next;
  }
  pthread_mutex_unlock(&trace->lock);
  if (unpacker != NULL) {
    return unpacker;
  }
  unpacker = calloc(1, sizeof(*unpacker));
  if (unpacker == NULL) {
    return NULL;
  }
  unpacker->decompressor = ZSTD_createDCtx();
  if (unpacker->decompressor == NULL) {
    free(unpacker);
    return NULL;
  }
  return unpacker;
}

static void
unpacker_give_back(struct ct_trace *trace, struct ct_unpacker *unpacker)
{
  pthread_mutex_lock(&trace->lock);
  unpacker->next = trace->unpackers;
  trace->unpackers = unpacker;
  pthread_mutex_unlock(&trace->lock);
}

static bool
reserve(void **storage, size_t *capacity, size_t size)
{
  if (size <= *capacity) {
    return true;
  }
  void *bigger = malloc(size + size / 4);
  if (bigger == NULL) {
    return false;
  }
  free(*storage);
  *storage = bigger;
  *capacity = size + size / 4;
  return true;
}

/* ---- unpacking ---- */

/* Numbers in a column of LEB128, that is bytes below 0x80. */
static size_t
count_numbers(const uint8_t *p, size_t size)
{
  size_t count = 0, i = 0;
  for (size_t run; (run = ct_lanes_run(size - i)) > 0;) {
    ct_lanes sum = {0};
    for (size_t end = i + run; i < end; i += sizeof(sum)) {
      sum -= (ct_lanes)(ct_lanes_load(p + i) < 0x80);
    }
    count += ct_lanes_sum(sum);
  }
  for (; i < size; i++) {
    count += p[i] < 0x80;
  }
  return count;
}

/* Ops that have an id; SIZE_MAX when some op is none. *timed: those that have a delta. */
static size_t
count_ops_with_id(const uint8_t *ops, size_t size, size_t *timed)
{
  size_t count = 0, i = 0;
  *timed = 0;
  ct_lanes unknown = {0};
  for (size_t run; (run = ct_lanes_run(size - i)) > 0;) {
    ct_lanes sum = {0}, times = {0};
    for (size_t end = i + run; i < end; i += sizeof(sum)) {
      ct_lanes op = ct_lanes_load(ops + i);
      times -= (ct_lanes)(op < CT_TRACE_OP_NEAR);
      unknown |= (ct_lanes)(op >= CT_TRACE_OP_COUNT);
      sum -=
          (ct_lanes)((op == CT_TRACE_OP_ENTER) | (op == CT_TRACE_OP_TAIL) | (op == CT_TRACE_OP_POINT) |
                     (op == CT_TRACE_OP_RETURN_ORPHAN) | (op == CT_TRACE_OP_RETURN_ID) | (op == CT_TRACE_OP_SAMPLED));
    }
    count += ct_lanes_sum(sum);
    *timed += ct_lanes_sum(times);
  }
  bool valid = ct_lanes_sum(unknown) == 0;
  for (; i < size; i++) {
    valid &= ops[i] < CT_TRACE_OP_COUNT;
    count += CT_OPS_WITH_ID >> (ops[i] & 31) & 1;
    *timed += (size_t)ct_op_has_time(ops[i]);
  }
  return valid ? count : SIZE_MAX;
}

static inline uint32_t
number_in(uint32_t word)
{
  return (word & 0x7f) | (word >> 1 & 0x3f80) | (word >> 2 & 0x1fc000) | (word >> 3 & 0xfe00000);
}

/*
 * False when a number is too long. Without branches between lengths, and two at a time, since where a number begins is
 * known when that before it has been read; a pair has 8 bytes at most. The column has slack after it, and out has room
 * for one more.
 */
static bool
decode_ids(const uint8_t *p, const uint8_t *end, uint32_t *out)
{
  while (p < end) {
    uint64_t words;
    memcpy(&words, p, sizeof(words));
    uint64_t ends = ~words & 0x8080808080808080u, later = ends & (ends - 1);
    unsigned first = (unsigned)__builtin_ctzll(ends | 1ull << 63) + 1; /* bits */
    unsigned both = (unsigned)__builtin_ctzll(later | 1ull << 63) + 1;
    bool is_last = p + first / 8 >= end;
    if (CT_UNLIKELY(first > 32 || (!is_last && (later == 0 || both - first > 32)))) {
      return false;
    }
    *out++ = number_in((uint32_t)(words & ((1ull << first) - 1)));
    *out++ = number_in((uint32_t)((words & (~0ull >> (64 - both))) >> first));
    p += both / 8;
  }
  return true;
}

static bool
unpack_section(struct ct_unpacker *unpacker, const uint8_t **from, struct ct_section_size size, uint8_t **to)
{
  const uint8_t *stored = *from;
  uint8_t *raw = *to;
  *from += size.stored_bytes;
  *to += size.raw_bytes + COLUMN_SLACK;
  memset(raw + size.raw_bytes, 0, COLUMN_SLACK);
  if (size.stored_bytes == size.raw_bytes) {
    memcpy(raw, stored, size.raw_bytes);
    return true;
  }
  return ZSTD_decompressDCtx(unpacker->decompressor, raw, size.raw_bytes, stored, size.stored_bytes) == size.raw_bytes;
}

/* Unpacks the payload in unpacker->input for the header in c->header. */
static bool
unpack(struct ct_cursor *c, struct ct_unpacker *unpacker)
{
  const struct ct_section_size *size = c->header.section;
  size_t total = 0;
  for (int i = 0; i < CT_SECTIONS; i++) {
    total += size[i].raw_bytes + COLUMN_SLACK;
  }
  if (!reserve((void **)&c->columns, &c->columns_capacity, total) ||
      !reserve((void **)&c->ids, &c->ids_capacity, (size[CT_SECTION_IDS].raw_bytes + 1) * sizeof(uint32_t))) {
    return false;
  }
  uint8_t *begin[CT_SECTIONS + 1];
  const uint8_t *from = unpacker->input;
  begin[0] = c->columns;
  for (int i = 0; i < CT_SECTIONS; i++) {
    begin[i + 1] = begin[i];
    if (!unpack_section(unpacker, &from, size[i], &begin[i + 1])) {
      return false;
    }
  }
  const uint8_t *ids = begin[CT_SECTION_IDS], *deltas = begin[CT_SECTION_DELTAS];
  size_t ids_bytes = size[CT_SECTION_IDS].raw_bytes, deltas_bytes = size[CT_SECTION_DELTAS].raw_bytes;
  size_t timed, with_id = count_ops_with_id(begin[CT_SECTION_OPS], c->header.ops, &timed);
  if (with_id == SIZE_MAX || count_numbers(ids, ids_bytes) != with_id || count_numbers(deltas, deltas_bytes) != timed ||
      (deltas_bytes != 0 && deltas[deltas_bytes - 1] > 0x7f) || !decode_ids(ids, ids + ids_bytes, c->ids)) {
    return false;
  }
  c->ids[with_id] = 0;                                /* the decoder looks one further than it goes */
  begin[CT_SECTION_OPS][c->header.ops] = CT_OPS_NONE; /* for who takes ops until there are no more */
  c->ops = begin[CT_SECTION_OPS];
  c->delta = deltas;
  c->deltas_end = deltas + deltas_bytes;
  c->extra = begin[CT_SECTION_EXTRA];
  c->extra_end = c->extra + size[CT_SECTION_EXTRA].raw_bytes;
  c->open = begin[CT_SECTION_OPEN];
  c->open_end = c->open + size[CT_SECTION_OPEN].raw_bytes;
  return true;
}

const uint8_t *
ct_block_unpack_ops(struct ct_cursor *c, const struct ct_block_file *file, const struct ct_block_header *header,
                    uint64_t offset)
{
  struct ct_section_size size = header->section[CT_SECTION_OPS];
  uint64_t at = offset + sizeof(*header) + header->section[CT_SECTION_OPEN].stored_bytes;
  struct ct_unpacker *unpacker = unpacker_borrow(c->trace);
  if (unpacker == NULL) {
    return NULL;
  }
  bool ok = reserve((void **)&unpacker->input, &unpacker->input_capacity, (size_t)size.stored_bytes + 1) &&
            reserve((void **)&c->columns, &c->columns_capacity, size.raw_bytes + COLUMN_SLACK) &&
            ct_block_file_read(file, unpacker->input, size.stored_bytes, at) == size.stored_bytes;
  if (ok) {
    const uint8_t *from = unpacker->input;
    uint8_t *to = c->columns;
    ok = unpack_section(unpacker, &from, size, &to);
  }
  unpacker_give_back(c->trace, unpacker);
  return ok ? c->columns : NULL;
}

bool
ct_block_unpack(struct ct_cursor *c, const struct ct_block_file *file, uint64_t offset)
{
  const struct ct_block_header *header = &c->header;
  struct ct_unpacker *unpacker = unpacker_borrow(c->trace);
  if (unpacker == NULL) {
    return false;
  }
  bool ok = reserve((void **)&unpacker->input, &unpacker->input_capacity, (size_t)header->payload_bytes + 1) &&
            ct_block_file_read(file, unpacker->input, header->payload_bytes, offset) == header->payload_bytes &&
            ct_crc32c(0, unpacker->input, header->payload_bytes) == header->payload_crc && unpack(c, unpacker);
  unpacker_give_back(c->trace, unpacker);
  return ok;
}
