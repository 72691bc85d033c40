/* SPDX-License-Identifier: MIT */
/* The file of what the program wrote (format.h): up to its last whole record. */
#include "trace/reader_internal.h"

#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

/* The record at text + at, when it is whole. */
static bool
read_record(const char *text, size_t size, size_t at, struct ct_print_record *record)
{
  if (size - at < sizeof(*record))
    return false;
  memcpy(record, text + at, sizeof(*record));
  return record->record_bytes >= sizeof(*record) && record->record_bytes <= CT_PRINT_RECORD_MAX &&
         record->record_bytes <= size - at && (record->fd == 1 || record->fd == 2) &&
         ct_crc32c(0, text + at + sizeof(record->crc), record->record_bytes - sizeof(record->crc)) == record->crc;
}

/* By time; of one thread in the order of the file. */
static int
compare(const void *a, const void *b)
{
  const struct ct_printed *x = a, *y = b;
  if (x->tsc != y->tsc)
    return x->tsc < y->tsc ? -1 : 1;
  return x->data < y->data ? -1 : x->data > y->data;
}

int
ct_trace_prints(const struct ct_trace *trace, struct ct_prints *out)
{
  struct ct_prints prints = {0};
  struct ct_file_header header;
  struct ct_print_record record;
  size_t size, at = sizeof(header), capacity = 0;
  int rc = ct_trace_read_file(trace, CT_TRACE_PRINTS, &prints.text, &size);
  if (rc != CT_OK)
    return rc;
  rc = CT_EFORMAT;
  if (size < sizeof(header))
    goto fail;
  memcpy(&header, prints.text, sizeof(header));
  if (header.magic != CT_PRINTS_MAGIC || header.version != CT_TRACE_VERSION || header.header_bytes != sizeof(header) ||
      header.header_crc != ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc)))
    goto fail;
  rc = CT_ENOMEM;
  for (; read_record(prints.text, size, at, &record); at += record.record_bytes) {
    if (prints.count == capacity) {
      capacity = capacity == 0 ? 256 : capacity * 2;
      struct ct_printed *grown = realloc(prints.items, capacity * sizeof(*grown));
      if (grown == NULL)
        goto fail;
      prints.items = grown;
    }
    prints.items[prints.count++] = (struct ct_printed){.tsc = record.tsc,
                                                       .given = record.given,
                                                       .tid = record.tid,
                                                       .fd = record.fd,
                                                       .bytes = record.record_bytes - (uint32_t)sizeof(record),
                                                       .data = prints.text + at + sizeof(record)};
    prints.bytes += record.record_bytes - sizeof(record);
  }
  prints.is_damaged = at != size;
  if (prints.count != 0)
    qsort(prints.items, prints.count, sizeof(*prints.items), compare);
  *out = prints;
  return CT_OK;

fail:
  ct_prints_free(&prints);
  return rc;
}

void
ct_prints_free(struct ct_prints *prints)
{
  free(prints->items);
  free(prints->text);
  memset(prints, 0, sizeof(*prints));
}
