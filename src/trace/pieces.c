/* SPDX-License-Identifier: MIT */
/*
 * The files of a recording of bounded size (contrail record --max-size): each file of a thread, and what the program
 * wrote, is a row of pieces (format.h), of which only the last is written to. When the next block would go over the
 * limit, the piece whose last event is the oldest goes, whoever's it is: not the one that was written to first, since
 * what a busy thread did may be written long after what a quiet one did later.
 *
 *   thread 0   index-1  index-2  index-3          list, by the time of the last event:
 *   thread 1   index-1                            0/index-1  1/index-1  0/index-2  1/detail-1  0/index-3
 *              detail-1                           goes next                                    written to
 *
 * A disk that is full is such a limit, too: then the oldest pieces make room.
 */
#include "trace/pieces.h"

#include "base/clock.h"
#include "base/json.h"
#include "trace/block_file.h"
#include "trace/writer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECES      64u         /* a piece is so much smaller than the limit ... */
#define PIECE_MAX   (64u << 20) /* ... and no larger than this ... */
#define PIECE_LEAST (64u << 10) /* ... nor smaller */

struct ct_piece {
  struct ct_piece *older, *newer; /* in the list of all */
  struct ct_piece *next;          /* of the same stream, newer */
  struct ct_stream *stream;
  uint32_t number;
  uint64_t bytes, events, last_tsc, last_ns;
};

/* The writer thread's, but under the lock what ct_pieces_get_state and ct_pieces_has look at. */
struct ct_pieces {
  pthread_mutex_t lock;
  uint64_t limit, piece_bytes;
  struct ct_piece *oldest, *newest;
  struct ct_stream captures;
  struct ct_pieces_state state;
};

int
ct_pieces_create(uint64_t limit, struct ct_pieces **out)
{
  struct ct_pieces *pieces = calloc(1, sizeof(*pieces));
  if (pieces == NULL) {
    return CT_ENOMEM;
  }
  pthread_mutex_init(&pieces->lock, NULL);
  pieces->limit = limit;
  pieces->captures = (struct ct_stream){.fd = -1, .index = CT_BLOCK_FILE_NO_THREAD, .name = CT_TRACE_CAPTURES};
  struct ct_file_header header = ct_file_header_make(0, 0, 0, CT_TRACE_VERSION_KEPT);
  header.magic = CT_CAPTURES_MAGIC;
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  pieces->captures.header = header;
  pieces->state = (struct ct_pieces_state){.limit = limit, .since_ns = ct_now_ns()};
  *out = pieces;
  return CT_OK;
}

void
ct_pieces_destroy(struct ct_pieces *pieces)
{
  if (pieces == NULL) {
    return;
  }
  for (struct ct_piece *piece = pieces->oldest, *next; piece != NULL; piece = next) {
    next = piece->newer;
    free(piece);
  }
  pthread_mutex_destroy(&pieces->lock);
  free(pieces);
}

struct ct_stream *
ct_pieces_captures(struct ct_pieces *pieces)
{
  return &pieces->captures;
}

/* ---- the list; under the lock ---- */

static void
unlink_piece(struct ct_pieces *pieces, struct ct_piece *piece)
{
  *(piece->older != NULL ? &piece->older->newer : &pieces->oldest) = piece->newer;
  *(piece->newer != NULL ? &piece->newer->older : &pieces->newest) = piece->older;
}

/* After those whose last event is no later. */
static void
insert_piece(struct ct_pieces *pieces, struct ct_piece *piece)
{
  piece->older = pieces->newest;
  while (piece->older != NULL && piece->older->last_tsc > piece->last_tsc) {
    piece->older = piece->older->older;
  }
  struct ct_piece **next = piece->older != NULL ? &piece->older->newer : &pieces->oldest;
  piece->newer = *next;
  *next = piece;
  *(piece->newer != NULL ? &piece->newer->older : &pieces->newest) = piece;
}

/* ---- pieces ---- */

void
ct_stream_file_name(const struct ct_stream *stream, char name[CT_BLOCK_FILE_NAME_BYTES])
{
  ct_block_file_name(name, stream->index, stream->name, stream->last_piece != NULL ? stream->last_piece->number : 0);
}

static void
remove_folder(const struct ct_trace_writer *writer, uint32_t thread)
{
  char folder[32];
  snprintf(folder, sizeof(folder), "%s%" PRIu32, CT_TRACE_THREAD_DIR, thread);
  unlinkat(writer->dir_fd, folder, AT_REMOVEDIR); /* unless another of its files is there */
}

/* A share of the limit, or of what the disk has room for where that is less: or a disk would be full of a single one.
 */
static void
choose_piece_bytes(struct ct_trace_writer *writer)
{
  struct ct_pieces *pieces = writer->pieces;
  struct statvfs disk;
  uint64_t limit = pieces->limit;
  if (fstatvfs(writer->dir_fd, &disk) == 0) {
    uint64_t room = pieces->state.bytes + (uint64_t)disk.f_bavail * disk.f_frsize;
    limit = room < limit ? room : limit;
  }
  uint64_t share = limit / PIECES;
  pieces->piece_bytes = share > PIECE_MAX ? PIECE_MAX : share < PIECE_LEAST ? PIECE_LEAST : share;
}

/* The piece, the first one of its stream, goes. False: it cannot be removed, or is NULL. */
static bool
remove_piece(struct ct_trace_writer *writer, struct ct_piece *piece)
{
  struct ct_pieces *pieces = writer->pieces;
  char name[CT_BLOCK_FILE_NAME_BYTES];
  if (piece == NULL) {
    return false;
  }
  struct ct_stream *stream = piece->stream;
  ct_block_file_name(name, stream->index, stream->name, piece->number);
  if (unlinkat(writer->dir_fd, name, 0) != 0 && errno != ENOENT) {
    ct_writer_fail(writer, ct_err_from_errno(errno), "cannot remove %s/%s: %s", writer->path, name, strerror(errno));
    return false;
  }
  if (stream->last_piece == piece) { /* the next block begins another */
    ct_writer_close_file(writer, stream);
  }
  pthread_mutex_lock(&pieces->lock);
  unlink_piece(pieces, piece);
  stream->first_piece = piece->next; /* those of a stream are in the list in the order of their numbers */
  stream->last_piece = stream->last_piece == piece ? NULL : stream->last_piece;
  stream->gone_events += piece->events;
  pieces->state.bytes -= piece->bytes;
  pieces->state.events -= piece->events;
  pieces->state.gone_bytes += piece->bytes;
  pieces->state.gone_events += piece->events;
  pieces->state.begin_tsc = piece->last_tsc > pieces->state.begin_tsc ? piece->last_tsc : pieces->state.begin_tsc;
  pieces->state.since_ns = piece->last_ns > pieces->state.since_ns ? piece->last_ns : pieces->state.since_ns;
  pthread_mutex_unlock(&pieces->lock);
  if (stream->is_closed && stream->first_piece == NULL) {
    remove_folder(writer, stream->index);
  }
  free(piece);
  return true;
}

/* A stream's first piece is among the oldest before it has events. */
static struct ct_piece *
oldest_but(const struct ct_pieces *pieces, const struct ct_piece *piece)
{
  return pieces->oldest == piece && piece != NULL ? piece->newer : pieces->oldest;
}

static bool
begin_piece(struct ct_trace_writer *writer, struct ct_stream *stream)
{
  struct ct_pieces *pieces = writer->pieces;
  struct ct_piece *piece = calloc(1, sizeof(*piece));
  size_t written;
  if (piece == NULL) {
    ct_writer_fail(writer, CT_ENOMEM, "out of memory for the files of %s", writer->path);
    return false;
  }
  ct_writer_close_file(writer, stream);
  choose_piece_bytes(writer);
  *piece = (struct ct_piece){.stream = stream, .number = ++stream->piece_count, .bytes = sizeof(stream->header)};
  pthread_mutex_lock(&pieces->lock);
  if (stream->last_piece != NULL) { /* those of a stream are in the list in the order of their numbers */
    stream->last_piece->next = piece;
    piece->last_tsc = stream->last_piece->last_tsc;
  }
  insert_piece(pieces, piece);
  pieces->state.bytes += piece->bytes;
  stream->first_piece = stream->first_piece == NULL ? piece : stream->first_piece;
  stream->last_piece = piece;
  pthread_mutex_unlock(&pieces->lock);
  stream->file_bytes = 0;
  if (!ct_writer_open_file(writer, stream, O_CREAT | O_EXCL)) {
    return false;
  }
  while (!ct_writer_write_at(stream->fd, &stream->header, sizeof(stream->header), 0, &written)) {
    int err = errno;
    if (err != ENOSPC || !remove_piece(writer, oldest_but(pieces, piece))) {
      errno = err;
      return false;
    }
  }
  stream->file_bytes = sizeof(stream->header);
  return true;
}

/* The time of the last of whole records of what the program wrote. */
static uint64_t
last_tsc_of_captures(const uint8_t *data, size_t bytes)
{
  struct ct_capture_record record = {0};
  for (size_t at = 0; bytes - at >= sizeof(record); at += record.record_bytes) {
    memcpy(&record, data + at, sizeof(record));
    if (record.record_bytes < sizeof(record) || record.record_bytes > bytes - at) {
      break;
    }
  }
  return record.tsc;
}

/* The time of its last event. */
static uint64_t
last_tsc_of(const struct ct_stream *stream, const uint8_t *data, size_t bytes)
{
  struct ct_block_header block;
  struct ct_detail_block_header detail;
  if (stream->index == CT_BLOCK_FILE_NO_THREAD) {
    return last_tsc_of_captures(data, bytes);
  }
  if (strcmp(stream->name, CT_TRACE_DETAIL) == 0) {
    memcpy(&detail, data, sizeof(detail));
    return detail.last_tsc;
  }
  memcpy(&block, data, sizeof(block));
  return block.last_tsc;
}

bool
ct_pieces_make_room(struct ct_trace_writer *writer, struct ct_stream *stream)
{
  struct ct_pieces *pieces = writer->pieces;
  if (pieces == NULL) {
    return false;
  }
  choose_piece_bytes(writer);
  struct ct_piece *own = stream != NULL ? stream->last_piece : NULL;
  if (own != NULL && pieces->oldest == own && stream->file_bytes > sizeof(stream->header)) {
    return remove_piece(writer, own) && begin_piece(writer, stream);
  }
  return remove_piece(writer, oldest_but(pieces, own));
}

bool
ct_pieces_prepare(struct ct_trace_writer *writer, struct ct_stream *stream, size_t bytes)
{
  struct ct_pieces *pieces = writer->pieces;
  while (pieces->state.bytes + bytes + sizeof(stream->header) > pieces->limit && remove_piece(writer, pieces->oldest)) {
  }
  bool is_full = stream->last_piece != NULL && stream->file_bytes > sizeof(stream->header) &&
                 stream->file_bytes + bytes > pieces->piece_bytes;
  return (stream->last_piece != NULL && !is_full) || begin_piece(writer, stream);
}

void
ct_pieces_wrote(struct ct_trace_writer *writer, struct ct_stream *stream, const void *data, size_t bytes,
                uint32_t events)
{
  struct ct_pieces *pieces = writer->pieces;
  struct ct_piece *piece = stream->last_piece;
  uint64_t now = ct_now_ns(), tsc = last_tsc_of(stream, data, bytes);
  pthread_mutex_lock(&pieces->lock);
  piece->last_tsc = tsc > piece->last_tsc ? tsc : piece->last_tsc;
  unlink_piece(pieces, piece);
  insert_piece(pieces, piece);
  piece->bytes += bytes;
  piece->events += events;
  piece->last_ns = now;
  pieces->state.bytes += bytes;
  pieces->state.events += events;
  pthread_mutex_unlock(&pieces->lock);
}

void
ct_pieces_create_stream(struct ct_trace_writer *writer, struct ct_stream *stream, const void *header)
{
  char folder[32];
  memcpy(&stream->header, header, sizeof(stream->header));
  stream->header.version = CT_TRACE_VERSION_KEPT;
  stream->header.header_crc = ct_crc32c(0, &stream->header, offsetof(struct ct_file_header, header_crc));
  snprintf(folder, sizeof(folder), "%s%" PRIu32, CT_TRACE_THREAD_DIR, stream->index);
  if (mkdirat(writer->dir_fd, folder, 0700) != 0 && errno != EEXIST) {
    ct_writer_fail(writer, ct_err_from_errno(errno), "cannot create %s/%s: %s", writer->path, folder, strerror(errno));
  }
}

void
ct_pieces_close_stream(struct ct_trace_writer *writer, struct ct_stream *stream)
{
  pthread_mutex_lock(&writer->pieces->lock);
  stream->is_closed = true;
  pthread_mutex_unlock(&writer->pieces->lock);
  if (stream->first_piece == NULL) {
    remove_folder(writer, stream->index);
  }
}

/* ---- for others ---- */

void
ct_pieces_get_state(struct ct_pieces *pieces, struct ct_pieces_state *state)
{
  pthread_mutex_lock(&pieces->lock);
  *state = pieces->state;
  pthread_mutex_unlock(&pieces->lock);
}

bool
ct_pieces_has(struct ct_pieces *pieces, const struct ct_stream *stream)
{
  pthread_mutex_lock(&pieces->lock);
  bool has = stream->first_piece != NULL || !stream->is_closed;
  pthread_mutex_unlock(&pieces->lock);
  return has;
}

static void
list_files(json_t *files, const struct ct_stream *stream)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  for (const struct ct_piece *piece = stream->first_piece; piece != NULL; piece = piece->next) {
    ct_block_file_name(name, stream->index, stream->name, piece->number);
    ct_json_put(files, name, piece->bytes);
  }
}

static uint64_t
stream_bytes(const struct ct_stream *stream)
{
  uint64_t bytes = 0;
  for (const struct ct_piece *piece = stream->first_piece; piece != NULL; piece = piece->next) {
    bytes += piece->bytes - sizeof(stream->header);
  }
  return bytes;
}

/* What is there of a thread that the manifest lists; they come in the order of the encoders, from *next on. */
static void
amend_thread(const struct ct_trace_writer *writer, json_t *item, uint32_t *next)
{
  uint64_t index = ct_json_get(item, "index"), events = ct_json_get(item, "events");
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    uint32_t at = (*next + i) % writer->encoder_count;
    const struct ct_stream *stream = writer->encoders[at]->stream;
    if (stream->index == index) {
      ct_json_put(item, "events", events > stream->gone_events ? events - stream->gone_events : 0);
      ct_json_put(item, "not_kept", stream->gone_events);
      *next = at + 1;
      return;
    }
  }
}

int
ct_pieces_amend(struct ct_trace_writer *writer, json_t *manifest)
{
  const struct ct_pieces_state *state = &writer->pieces->state;
  json_t *about = json_object_get(manifest, "kept"), *output = json_object_get(manifest, "output");
  json_t *files = json_object(), *item;
  uint32_t next = 0;
  size_t i;
  json_array_foreach(json_object_get(manifest, "threads"), i, item) amend_thread(writer, item, &next);
  if (!json_is_object(about)) {
    about = json_object();
    json_object_set_new(manifest, "kept", about);
  }
  ct_json_put(about, "limit_bytes", state->limit);
  ct_json_put(about, "begin_tsc", state->begin_tsc);
  ct_json_put(about, "since_ns", state->since_ns);
  ct_json_put(about, "not_kept", state->gone_events);
  ct_json_put(manifest, "version", CT_TRACE_VERSION_PIECES);
  if (json_is_object(output)) {
    ct_json_put(output, "recorded_bytes", stream_bytes(&writer->pieces->captures));
  }
  ct_json_put(files, CT_TRACE_FUNCTIONS, writer->writer_thread.functions_bytes);
  ct_writer_list_tables(writer, files);
  list_files(files, &writer->pieces->captures);
  for (i = 0; i < writer->encoder_count; i++) {
    const struct ct_encoder *encoder = writer->encoders[i];
    list_files(files, encoder->stream);
    if (ct_detail_stream(encoder) != NULL) {
      list_files(files, ct_detail_stream(encoder));
    }
  }
  return json_object_set_new(manifest, "files", files) == 0 ? CT_OK : CT_ENOMEM;
}
