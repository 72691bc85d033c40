/* SPDX-License-Identifier: MIT */
/* Writing registers and stack bytes of calls: a file for each thread that has any, in blocks; see format.h. */
#include "trace/detail.h"

#include "base/crc32c.h"
#include "trace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

struct ct_detail_stream {
  struct ct_stream stream;
  uint32_t blocks;
  uint32_t records; /* of the block in progress */
  uint64_t first_tsc, last_tsc;
  uint64_t total; /* records so far */
  size_t fill;
  uint8_t bytes[CT_DETAIL_BLOCK_BYTES];
};

/* The file is created with the first record. NULL: no memory. */
static struct ct_detail_stream *
stream_of(struct ct_encoder *encoder)
{
  if (encoder->detail != NULL) {
    return encoder->detail;
  }
  struct ct_detail_stream *detail = malloc(sizeof(*detail));
  if (detail == NULL) {
    ct_writer_fail(encoder->writer, CT_ENOMEM, "out of memory for the detail of a thread");
    return NULL;
  }
  memset(detail, 0, offsetof(struct ct_detail_stream, bytes));
  detail->stream.fd = -1;
  detail->stream.index = encoder->stream->index;
  detail->stream.name = CT_TRACE_DETAIL;
  detail->stream.tid = encoder->stream->tid;
  detail->stream.pid = encoder->stream->pid;
  encoder->detail = detail;
  struct ct_file_header header = {.magic = CT_DETAIL_FILE_MAGIC,
                                  .version = CT_TRACE_VERSION,
                                  .header_bytes = sizeof(header),
                                  .thread_index = encoder->stream->index,
                                  .tid = encoder->tid};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  memcpy(ct_writer_thread_reserve(encoder->writer, sizeof(header)), &header, sizeof(header));
  ct_writer_thread_commit(encoder->writer, CT_WRITER_CREATE, &detail->stream, sizeof(header), 0);
  return detail;
}

void
ct_detail_flush(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_trace_writer *writer = encoder->writer;
  if (detail == NULL || detail->records == 0 || ct_writer_error(writer) != CT_OK) {
    return;
  }
  struct ct_detail_block_header header = {.magic = CT_DETAIL_BLOCK_MAGIC,
                                          .header_bytes = sizeof(header),
                                          .records = detail->records,
                                          .number = detail->blocks++,
                                          .first_tsc = detail->first_tsc,
                                          .last_tsc = detail->last_tsc};
  uint8_t *block = ct_writer_thread_reserve(writer, sizeof(header) + ZSTD_compressBound(detail->fill));
  uint8_t *payload = block + sizeof(header);
  size_t stored =
      ZSTD_compress2(writer->compressor, payload, ZSTD_compressBound(detail->fill), detail->bytes, detail->fill);
  if (ZSTD_isError(stored) || stored >= detail->fill) {
    stored = detail->fill;
    memcpy(payload, detail->bytes, stored);
  }
  header.payload = (struct ct_section_size){(uint32_t)stored, (uint32_t)detail->fill};
  header.payload_crc = ct_crc32c(0, payload, stored);
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(block, &header, sizeof(header));
  ct_writer_thread_commit(writer, CT_WRITER_BLOCK, &detail->stream, sizeof(header) + stored, 0);
  detail->records = 0;
  detail->fill = 0;
}

void
ct_encode_detail(struct ct_encoder *encoder, const struct ct_detail_entry *entry, const void *words)
{
  struct ct_detail_stream *detail = stream_of(encoder);
  if (detail == NULL || ct_writer_error(encoder->writer) != CT_OK) {
    return;
  }
  if (entry->record_bytes > sizeof(detail->bytes) - detail->fill) {
    ct_detail_flush(encoder);
  }
  if (detail->records++ == 0) {
    detail->first_tsc = detail->last_tsc = entry->tsc;
  }
  detail->first_tsc = entry->tsc < detail->first_tsc ? entry->tsc : detail->first_tsc;
  detail->last_tsc = entry->tsc > detail->last_tsc ? entry->tsc : detail->last_tsc;
  ct_writer_note_values(encoder->writer, entry->fn);
  uint8_t *to = detail->bytes + detail->fill;
  memcpy(to, entry, sizeof(*entry));
  memcpy(to + sizeof(*entry), words, entry->record_bytes - sizeof(*entry));
  detail->fill += entry->record_bytes;
  detail->total++;
}

void
ct_detail_close(struct ct_encoder *encoder)
{
  ct_detail_flush(encoder);
  if (encoder->detail != NULL) {
    ct_writer_thread_reserve(encoder->writer, 0);
    ct_writer_thread_commit(encoder->writer, CT_WRITER_CLOSE, &encoder->detail->stream, 0, 0);
  }
}

uint64_t
ct_detail_records(const struct ct_encoder *encoder)
{
  return encoder->detail != NULL ? encoder->detail->total : 0;
}

void
ct_detail_free(struct ct_encoder *encoder)
{
  free(encoder->detail);
  encoder->detail = NULL;
}
