/* SPDX-License-Identifier: MIT */
/* What the headers of a thread's blocks say, as a list. */
#include "trace/reader_internal.h"

#include "trace/batch.h"

#include <assert.h>
#include <stdlib.h>

static int
add(struct ct_block_info **list, size_t *count, size_t *capacity, const struct ct_block_info *block)
{
  if (*count == *capacity) {
    size_t more = *capacity == 0 ? 256 : *capacity * 2;
    struct ct_block_info *grown = reallocarray(*list, more, sizeof(**list));
    if (grown == NULL) {
      return CT_ENOMEM;
    }
    *list = grown;
    *capacity = more;
  }
  (*list)[(*count)++] = *block;
  return CT_OK;
}

void
ct_trace_block_name(const struct ct_trace *trace, uint32_t thread, const struct ct_block_info *block,
                    char out[CT_BLOCK_INFO_NAME_BYTES])
{
  static_assert((int)CT_BLOCK_INFO_NAME_BYTES == (int)CT_BLOCK_FILE_NAME_BYTES, "the names are those of the files");
  ct_block_file_name(out, trace->threads[thread].index, CT_TRACE_INDEX, block->piece);
}

/* Of a trace in ATF V2 there are none. */
int
ct_trace_blocks(const struct ct_trace *trace, uint32_t thread, struct ct_block_info **list, size_t *count)
{
  struct ct_block_file *file =
      ct_trace_is_atf(trace) ? NULL : ct_trace_open_thread_file(trace, trace->threads[thread].index);
  struct ct_file_header head = {0};
  struct ct_block_header header;
  uint64_t offset = sizeof(head), events = 0;
  size_t capacity = 0;
  uint32_t numbered = 0, piece = 0;
  int code = CT_OK;
  *list = NULL;
  *count = 0;
  if (file != NULL && ct_block_file_read(file, &head, sizeof(head), 0) == sizeof(head)) {
    numbered = head.version > CT_TRACE_VERSION_OLD;
  }
  uint64_t next_piece = file != NULL ? ct_block_file_next_piece(file, offset) : 0;
  uint64_t last = ct_trace_end_offset(trace, thread, file);
  while (file != NULL && code == CT_OK && offset < last) {
    for (; offset >= next_piece; piece++) {
      next_piece = ct_block_file_next_piece(file, next_piece);
    }
    if (ct_block_file_read(file, &header, sizeof(header), offset) != sizeof(header) || !ct_block_header_ok(&header)) {
      if (next_piece == UINT64_MAX) {
        break;
      }
      offset = next_piece;
      continue;
    }
    struct ct_block_info block = {.number = numbered ? header.number : (uint32_t)*count,
                                  .events = header.calls + header.returns,
                                  .first_event = numbered ? header.first_event : events,
                                  .lost = header.lost,
                                  .first_tsc = header.first_tsc,
                                  .last_tsc = header.last_tsc,
                                  .bytes = (uint32_t)sizeof(header) + header.payload_bytes,
                                  .piece = ct_block_file_piece(file, piece, &(uint64_t){0})};
    if (ct_trace_in_range(trace, header.first_tsc) || ct_trace_in_range(trace, header.last_tsc) ||
        (header.first_tsc < trace->range_from && header.last_tsc > trace->range_to)) {
      code = add(list, count, &capacity, &block);
    }
    events += block.events;
    offset += block.bytes;
  }
  ct_block_file_close(file);
  if (code != CT_OK) {
    free(*list);
    *list = NULL;
    *count = 0;
  }
  return code;
}
