/* SPDX-License-Identifier: MIT */
/* The file of what the program wrote (format.h): up to its last whole record. */
#include "trace/reader_internal.h"

#include "base/crc32c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The record at text + at, when it is whole. */
static bool
read_record(const char *text, size_t size, size_t at, struct ct_capture_record *record)
{
  if (size - at < sizeof(*record)) {
    return false;
  }
  memcpy(record, text + at, sizeof(*record));
  return record->record_bytes >= sizeof(*record) && record->record_bytes <= CT_CAPTURE_RECORD_MAX &&
         record->record_bytes <= size - at && (record->fd == 1 || record->fd == 2) &&
         ct_crc32c(0, text + at + sizeof(record->crc), record->record_bytes - sizeof(record->crc)) == record->crc;
}

/* The whole file, or its pieces; *text is malloc'd. */
static int
read_all(const struct ct_trace *trace, char **text, size_t *size)
{
  struct ct_block_file *file = ct_block_file_open(trace->dir_fd, CT_BLOCK_FILE_NO_THREAD, CT_TRACE_CAPTURES);
  if (file == NULL) {
    return ct_err_from_errno(errno);
  }
  uint64_t bytes = ct_block_file_size(file);
  char *buffer = bytes < PTRDIFF_MAX ? malloc((size_t)bytes + 1) : NULL;
  if (buffer != NULL) {
    *size = ct_block_file_read(file, buffer, (size_t)bytes, 0);
    *text = buffer;
  }
  ct_block_file_close(file);
  return buffer != NULL ? CT_OK : CT_ENOMEM;
}

uint64_t
ct_trace_captures_bytes(const struct ct_trace *trace)
{
  struct ct_block_file *file = ct_block_file_open(trace->dir_fd, CT_BLOCK_FILE_NO_THREAD, CT_TRACE_CAPTURES);
  uint64_t bytes = file != NULL ? ct_block_file_size(file) : 0;
  ct_block_file_close(file);
  return bytes;
}

/* By time; of one thread in the order of the file. */
static int
compare(const void *a, const void *b)
{
  const struct ct_captured *x = a, *y = b;
  if (x->tsc != y->tsc) {
    return x->tsc < y->tsc ? -1 : 1;
  }
  return x->data < y->data ? -1 : x->data > y->data;
}

int
ct_trace_captures(const struct ct_trace *trace, struct ct_captures *out)
{
  struct ct_captures captures = {0};
  struct ct_file_header header;
  struct ct_capture_record record;
  size_t size = 0, at = sizeof(header), capacity = 0;
  int code = read_all(trace, &captures.text, &size);
  if (code != CT_OK) {
    return code;
  }
  code = CT_EFORMAT;
  if (size < sizeof(header)) {
    goto free_captures;
  }
  memcpy(&header, captures.text, sizeof(header));
  if (header.magic != CT_CAPTURES_MAGIC || !ct_trace_version_ok(header.version) ||
      header.header_bytes != sizeof(header) ||
      header.header_crc != ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc))) {
    goto free_captures;
  }
  code = CT_ENOMEM;
  for (; read_record(captures.text, size, at, &record); at += record.record_bytes) {
    if (!ct_trace_in_range(trace, record.tsc)) {
      continue;
    }
    if (captures.count == capacity) {
      capacity = capacity == 0 ? 256 : capacity * 2;
      struct ct_captured *grown = realloc(captures.items, capacity * sizeof(*grown));
      if (grown == NULL) {
        goto free_captures;
      }
      captures.items = grown;
    }
    captures.items[captures.count++] = (struct ct_captured){.tsc = record.tsc,
                                                            .given = record.given,
                                                            .tid = record.tid,
                                                            .fd = record.fd,
                                                            .bytes = record.record_bytes - (uint32_t)sizeof(record),
                                                            .data = captures.text + at + sizeof(record)};
    captures.bytes += record.record_bytes - sizeof(record);
  }
  captures.is_damaged = at != size;
  if (captures.count != 0) {
    qsort(captures.items, captures.count, sizeof(*captures.items), compare);
  }
  *out = captures;
  return CT_OK;

free_captures:
  ct_captures_free(&captures);
  return code;
}

void
ct_captures_free(struct ct_captures *captures)
{
  free(captures->items);
  free(captures->text);
  memset(captures, 0, sizeof(*captures));
}
