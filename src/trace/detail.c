/* SPDX-License-Identifier: MIT */
/* Writing registers and stack bytes of calls: a file for each thread that has any, in blocks; see format.h. */
#include "trace/detail.h"

#include "base/crc32c.h"
#include "trace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

/* A block that is ready, but for its number. */
struct held {
  struct held *next;
  struct ct_detail_block_header header;
  uint8_t payload[];
};

struct ct_detail_stream {
  struct ct_stream stream;
  bool is_begun;    /* the file */
  bool is_closed;   /* likewise */
  uint32_t blocks;  /* in it */
  uint32_t records; /* of the block in progress */
  uint64_t first_tsc, last_tsc;
  uint64_t total; /* records so far */
  struct held *oldest, *newest;
  size_t fill;
  uint8_t bytes[CT_DETAIL_BLOCK_BYTES];
};

/* NULL: no memory. */
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
  return detail;
}

/* The file is created with its first block. */
static void
begin_file(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_file_header header = {.magic = CT_DETAIL_FILE_MAGIC,
                                  .version = CT_TRACE_VERSION,
                                  .header_bytes = sizeof(header),
                                  .thread_index = encoder->stream->index,
                                  .tid = encoder->tid};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  memcpy(ct_writer_thread_reserve(encoder->writer, sizeof(header)), &header, sizeof(header));
  ct_writer_thread_commit(encoder->writer, CT_WRITER_CREATE, &detail->stream, sizeof(header), 0);
  detail->is_begun = true;
}

/* Room for a block in the writer's queue, which is to be taken with put_block. */
static uint8_t *
reserve_block(struct ct_encoder *encoder, size_t payload_bytes)
{
  if (!encoder->detail->is_begun) {
    begin_file(encoder);
  }
  return ct_writer_thread_reserve(encoder->writer, sizeof(struct ct_detail_block_header) + payload_bytes);
}

/* Its payload is there already. */
static void
put_block(struct ct_encoder *encoder, uint8_t *block, struct ct_detail_block_header header)
{
  struct ct_detail_stream *detail = encoder->detail;
  header.number = detail->blocks++;
  header.header_crc = 0;
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(block, &header, sizeof(header));
  ct_writer_thread_commit(encoder->writer, CT_WRITER_BLOCK, &detail->stream,
                          sizeof(header) + header.payload.stored_bytes, 0);
}

/* The block in progress, to payload, which has room for its bound. */
static struct ct_detail_block_header
pack(struct ct_encoder *encoder, uint8_t *payload)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_detail_block_header header = {.magic = CT_DETAIL_BLOCK_MAGIC,
                                          .header_bytes = sizeof(header),
                                          .records = detail->records,
                                          .first_tsc = detail->first_tsc,
                                          .last_tsc = detail->last_tsc};
  size_t bound = ZSTD_compressBound(detail->fill);
  size_t stored = ZSTD_compress2(encoder->writer->compressor, payload, bound, detail->bytes, detail->fill);
  if (ZSTD_isError(stored) || stored >= detail->fill) {
    stored = detail->fill;
    memcpy(payload, detail->bytes, stored);
  }
  header.payload = (struct ct_section_size){(uint32_t)stored, (uint32_t)detail->fill};
  header.payload_crc = ct_crc32c(0, payload, stored);
  detail->records = 0;
  detail->fill = 0;
  return header;
}

/* ---- what is held ---- */

static size_t
held_bytes(const struct held *held)
{
  return sizeof(*held) + held->header.payload.stored_bytes;
}

static void
release_oldest(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct held *held = detail->oldest;
  detail->oldest = held->next;
  detail->newest = held->next != NULL ? detail->newest : NULL;
  encoder->writer->detail_held_bytes -= held_bytes(held);
  free(held);
}

static void
judge_held(struct ct_encoder *encoder, bool is_last)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_detail_stream *detail = encoder->detail;
  while (detail->oldest != NULL) {
    const struct held *held = detail->oldest;
    const struct ct_detail_block_header *header = &held->header;
    enum ct_detail_fate fate =
        writer->detail_judge(writer->detail_context, header->first_tsc, header->last_tsc, is_last);
    if (fate == CT_DETAIL_HOLD && !is_last) {
      return;
    }
    if (fate == CT_DETAIL_WRITE && ct_writer_error(writer) == CT_OK) {
      uint8_t *block = reserve_block(encoder, header->payload.stored_bytes);
      memcpy(block + sizeof(*header), held->payload, header->payload.stored_bytes);
      put_block(encoder, block, *header);
      writer->detail_bytes += sizeof(*header) + header->payload.stored_bytes;
    } else if (fate == CT_DETAIL_REFUSE) {
      writer->detail_dropped.no_disk += header->records;
    } else {
      writer->detail_dropped.unwanted += header->records;
    }
    release_oldest(encoder);
  }
}

/* The thread with the oldest block of all; there is one. */
static struct ct_encoder *
find_oldest(struct ct_trace_writer *writer)
{
  struct ct_encoder *found = NULL;
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    struct ct_encoder *encoder = writer->encoders[i];
    const struct held *held = encoder->detail != NULL ? encoder->detail->oldest : NULL;
    if (held != NULL && (found == NULL || held->header.first_tsc < found->detail->oldest->header.first_tsc)) {
      found = encoder;
    }
  }
  return found;
}

/* The block in progress joins what is held. */
static void
hold(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_detail_stream *detail = encoder->detail;
  struct held *held = malloc(sizeof(*held) + ZSTD_compressBound(detail->fill));
  if (held == NULL) {
    writer->detail_dropped.no_memory += detail->records;
    detail->records = 0;
    detail->fill = 0;
    return;
  }
  held->next = NULL;
  held->header = pack(encoder, held->payload);
  struct held *smaller = realloc(held, held_bytes(held));
  held = smaller != NULL ? smaller : held;
  if (detail->newest != NULL) {
    detail->newest->next = held;
  } else {
    detail->oldest = held;
  }
  detail->newest = held;
  writer->detail_held_bytes += held_bytes(held);
  while (writer->detail_held_bytes > writer->detail_held_max) {
    struct ct_encoder *with_oldest = find_oldest(writer);
    writer->detail_dropped.no_memory += with_oldest->detail->oldest->header.records;
    release_oldest(with_oldest);
  }
}

void
ct_trace_writer_judge_detail(struct ct_trace_writer *writer, ct_detail_judge *judge, void *context, size_t max_bytes)
{
  writer->detail_judge = judge;
  writer->detail_context = context;
  writer->detail_held_max = max_bytes;
}

uint64_t
ct_trace_writer_detail_bytes(const struct ct_trace_writer *writer)
{
  return writer->store == NULL && writer->pieces == NULL ? writer->detail_bytes : 0;
}

struct ct_detail_dropped
ct_trace_writer_detail_dropped(const struct ct_trace_writer *writer)
{
  return writer->detail_dropped;
}

static void
reconcile(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_trace_writer *writer = encoder->writer;
  if (detail->records != 0 &&
      writer->detail_judge(writer->detail_context, detail->first_tsc, detail->last_tsc, false) != CT_DETAIL_HOLD) {
    hold(encoder);
  }
  judge_held(encoder, false);
}

void
ct_trace_writer_reconcile_detail(struct ct_trace_writer *writer)
{
  for (uint32_t i = 0; i < writer->encoder_count && writer->detail_judge != NULL; i++) {
    if (writer->encoders[i]->detail != NULL) {
      reconcile(writer->encoders[i]);
    }
  }
}

/* ---- records ---- */

void
ct_detail_flush(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  if (detail == NULL || detail->records == 0 || ct_writer_error(encoder->writer) != CT_OK) {
    return;
  }
  if (encoder->writer->detail_judge != NULL) {
    hold(encoder);
    judge_held(encoder, false);
    return;
  }
  uint8_t *block = reserve_block(encoder, ZSTD_compressBound(detail->fill));
  put_block(encoder, block, pack(encoder, block + sizeof(struct ct_detail_block_header)));
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
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_trace_writer *writer = encoder->writer;
  ct_detail_flush(encoder);
  if (detail == NULL || detail->is_closed || (writer->detail_judge != NULL && !writer->detail_is_over)) {
    return; /* a mark that is to come may want what this thread has done */
  }
  if (writer->detail_judge != NULL) {
    judge_held(encoder, true);
  }
  detail->is_closed = true;
  if (detail->is_begun) {
    ct_writer_thread_reserve(writer, 0);
    ct_writer_thread_commit(writer, CT_WRITER_CLOSE, &detail->stream, 0, 0);
  }
}

void
ct_trace_writer_end_detail(struct ct_trace_writer *writer)
{
  writer->detail_is_over = true;
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    if (writer->encoders[i]->closed) {
      ct_detail_close(writer->encoders[i]);
    }
  }
}

uint64_t
ct_detail_records(const struct ct_encoder *encoder)
{
  return encoder->detail != NULL ? encoder->detail->total : 0;
}

const struct ct_stream *
ct_detail_stream(const struct ct_encoder *encoder)
{
  return encoder->detail != NULL && encoder->detail->is_begun ? &encoder->detail->stream : NULL;
}

void
ct_detail_free(struct ct_encoder *encoder)
{
  while (encoder->detail != NULL && encoder->detail->oldest != NULL) {
    release_oldest(encoder);
  }
  free(encoder->detail);
  encoder->detail = NULL;
}
