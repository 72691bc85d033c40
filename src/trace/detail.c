/* SPDX-License-Identifier: MIT */
/* Writing registers and stack bytes of calls: a file for each thread that has any, in blocks; see format.h. */
#include "trace/detail.h"

#include "base/crc32c.h"
#include "trace/near.h"
#include "trace/writer_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * A block that may be wanted. Most never are. So it is compressed when it is written: until then it is what differs
 * from earlier records (near.h), which takes a tenth of the time. When all of them take the memory that they may take,
 * that is compressed too, of those that have waited longest. So the ones that are not compressed are a thread's last.
 */
struct held {
  struct held *next;
  struct ct_detail_block_header header; /* but for its number, its checksums, and what is stored */
  uint32_t near_bytes;                  /* what differs */
  uint32_t bytes;                       /* of the payload: fewer where it is packed */
  bool is_packed;
  uint8_t payload[];
};
#define QUICK_LEVEL    -7 /* half of the time, and two thirds of what it saves */
#define BURST          3  /* times the memory, while the drain is behind */
#define PACKED_AT_ONCE 4

struct ct_detail_scratch {
  uint8_t near[2 * CT_DETAIL_BLOCK_BYTES];
  uint8_t records[CT_DETAIL_BLOCK_BYTES];
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
  struct held **plain; /* where the first one that is not packed hangs; &newest->next, or &oldest, if there is none */
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
  detail->plain = &detail->oldest;
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
  header.payload_crc = ct_crc32c(0, block + sizeof(header), header.payload.stored_bytes);
  header.header_crc = 0;
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(block, &header, sizeof(header));
  ct_writer_thread_commit(encoder->writer, CT_WRITER_BLOCK, &detail->stream,
                          sizeof(header) + header.payload.stored_bytes, 0);
}

/* To payload, which has room for its bound, by this compressor, if there is one; how many bytes there are. */
static uint32_t
pack(ZSTD_CCtx *compressor, uint8_t *payload, const uint8_t *bytes, size_t count)
{
  size_t stored =
      compressor != NULL ? ZSTD_compress2(compressor, payload, ZSTD_compressBound(count), bytes, count) : count;
  if (ZSTD_isError(stored) || stored >= count) {
    stored = count;
    memcpy(payload, bytes, stored);
  }
  return (uint32_t)stored;
}

/* For what goes to the disk now. While records are about to be lost it takes more of the disk in place of time. */
static ZSTD_CCtx *
compressor_of(struct ct_trace_writer *writer)
{
  return writer->detail_is_behind ? NULL : writer->compressor;
}

/* For what stays in memory, which then has the less room for the time before a mark. */
static ZSTD_CCtx *
quick_compressor_of(struct ct_trace_writer *writer)
{
  if (writer->quick_compressor == NULL && (writer->quick_compressor = ZSTD_createCCtx()) != NULL) {
    ZSTD_CCtx_setParameter(writer->quick_compressor, ZSTD_c_compressionLevel, QUICK_LEVEL);
  }
  return writer->detail_is_behind && writer->quick_compressor != NULL ? writer->quick_compressor : writer->compressor;
}

/* Of the block in progress, which ends. */
static struct ct_detail_block_header
end_block(struct ct_detail_stream *detail)
{
  struct ct_detail_block_header header = {.magic = CT_DETAIL_BLOCK_MAGIC,
                                          .header_bytes = sizeof(header),
                                          .records = detail->records,
                                          .first_tsc = detail->first_tsc,
                                          .last_tsc = detail->last_tsc,
                                          .payload = {(uint32_t)detail->fill, (uint32_t)detail->fill}};
  detail->records = 0;
  detail->fill = 0;
  return header;
}

/* ---- what is held ---- */

static size_t
held_bytes(const struct held *held)
{
  return sizeof(*held) + held->bytes;
}

/* Memory for a block on its way, which is the drain's alone; NULL: none. */
static struct ct_detail_scratch *
scratch_of(struct ct_trace_writer *writer)
{
  if (writer->detail_scratch == NULL) {
    writer->detail_scratch = malloc(sizeof(*writer->detail_scratch));
  }
  return writer->detail_scratch;
}

/* Its records, in the scratch memory; NULL: no memory. */
static const uint8_t *
records_of(struct ct_trace_writer *writer, const struct held *held)
{
  struct ct_detail_scratch *scratch = scratch_of(writer);
  const uint8_t *near = held->payload;
  if (scratch == NULL) {
    return NULL;
  }
  if (held->is_packed) {
    size_t got = ZSTD_decompress(scratch->near, sizeof(scratch->near), held->payload, held->bytes);
    if (ZSTD_isError(got) || got != held->near_bytes) {
      return NULL;
    }
    near = scratch->near;
  }
  return ct_near_unpack(near, held->near_bytes, scratch->records, held->header.payload.raw_bytes) ? scratch->records
                                                                                                  : NULL;
}

static void
release_oldest(struct ct_encoder *encoder)
{
  struct ct_detail_stream *detail = encoder->detail;
  struct held *held = detail->oldest;
  detail->plain = detail->plain == &held->next ? &detail->oldest : detail->plain;
  detail->oldest = held->next;
  detail->newest = held->next != NULL ? detail->newest : NULL;
  encoder->writer->detail_held_bytes -= held_bytes(held);
  free(held);
}

static void
write_held(struct ct_encoder *encoder, const struct held *held)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_detail_block_header header = held->header;
  size_t bytes = header.payload.raw_bytes;
  const uint8_t *records = records_of(writer, held);
  if (records == NULL) {
    writer->detail_dropped.no_memory += header.records;
    return;
  }
  uint8_t *block = reserve_block(encoder, ZSTD_compressBound(bytes));
  header.payload.stored_bytes = pack(compressor_of(writer), block + sizeof(header), records, bytes);
  put_block(encoder, block, header);
  writer->detail_bytes += sizeof(header) + header.payload.stored_bytes;
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
      write_held(encoder, held);
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

/* The thread with the oldest block of all that is not packed; NULL: all are. */
static struct ct_encoder *
find_plain(struct ct_trace_writer *writer)
{
  struct ct_encoder *found = NULL;
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    struct ct_encoder *encoder = writer->encoders[i];
    const struct held *held = encoder->detail != NULL ? *encoder->detail->plain : NULL;
    if (held != NULL && (found == NULL || held->header.first_tsc < (*found->detail->plain)->header.first_tsc)) {
      found = encoder;
    }
  }
  return found;
}

/* Its first one that is not. False: no memory. */
static bool
pack_held(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_detail_stream *detail = encoder->detail;
  struct held *plain = *detail->plain;
  struct held *packed = malloc(sizeof(*packed) + ZSTD_compressBound(plain->near_bytes));
  if (packed == NULL) {
    return false;
  }
  *packed = *plain;
  packed->bytes = pack(quick_compressor_of(writer), packed->payload, plain->payload, plain->near_bytes);
  packed->is_packed = packed->bytes < plain->near_bytes;
  struct held *smaller = realloc(packed, held_bytes(packed));
  packed = smaller != NULL ? smaller : packed;
  writer->detail_held_bytes -= held_bytes(plain) - held_bytes(packed);
  *detail->plain = packed;
  detail->plain = &packed->next;
  detail->newest = detail->newest == plain ? packed : detail->newest;
  free(plain);
  return true;
}

/*
 * Packing takes time, and while the drain is behind there is none: then they may take more memory for a while. After
 * that a few are packed for each one that comes.
 */
static void
make_room(struct ct_trace_writer *writer)
{
  size_t most = BURST * writer->detail_held_max;
  for (unsigned n = 0; writer->detail_held_bytes > writer->detail_held_max; n++) {
    if (writer->detail_held_bytes <= most && (writer->detail_is_behind || n == PACKED_AT_ONCE)) {
      return;
    }
    struct ct_encoder *with_plain = find_plain(writer);
    if (with_plain == NULL || !pack_held(with_plain)) {
      struct ct_encoder *with_oldest = find_oldest(writer);
      writer->detail_dropped.no_memory += with_oldest->detail->oldest->header.records;
      release_oldest(with_oldest);
    }
  }
}

/* The block in progress joins what is held. */
static void
hold(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  struct ct_detail_stream *detail = encoder->detail;
  struct ct_detail_scratch *scratch = scratch_of(writer);
  uint32_t bytes = scratch != NULL ? (uint32_t)ct_near_pack(detail->bytes, detail->fill, scratch->near) : 0;
  struct held *held = scratch != NULL ? malloc(sizeof(*held) + bytes) : NULL;
  if (held == NULL) {
    writer->detail_dropped.no_memory += detail->records;
    detail->records = 0;
    detail->fill = 0;
    return;
  }
  memcpy(held->payload, scratch->near, bytes);
  held->next = NULL;
  held->is_packed = false;
  held->near_bytes = held->bytes = bytes;
  held->header = end_block(detail);
  if (detail->newest != NULL) {
    detail->newest->next = held;
  } else {
    detail->oldest = held;
  }
  detail->newest = held;
  writer->detail_held_bytes += held_bytes(held);
  make_room(writer);
}

void
ct_trace_writer_set_behind(struct ct_trace_writer *writer, bool is_behind)
{
  writer->detail_is_behind = is_behind;
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
  size_t bytes = detail->fill;
  struct ct_detail_block_header header = end_block(detail);
  uint8_t *block = reserve_block(encoder, ZSTD_compressBound(bytes));
  header.payload.stored_bytes = pack(compressor_of(encoder->writer), block + sizeof(header), detail->bytes, bytes);
  put_block(encoder, block, header);
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
  ct_encoder_note_values(encoder, entry->fn);
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
