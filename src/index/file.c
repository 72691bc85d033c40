/* SPDX-License-Identifier: MIT */
/*
 * The file of the index, spans.cti in the directory of the trace; docs/format.md has the same. Little endian; every
 * part begins at a multiple of 8. The granules' bytes have a CRC each, which is looked at when one is used.
 *
 *   header     below, 144 bytes
 *   threads    below, 176 bytes each
 *   and where these say: granules (index_internal.h, 80 bytes), crossings (16), or both packed (lists_bytes.c); bytes
 *   of granules in frames,
 *   frames (8), the builder's state;
 *   statistics and, where they were asked for, self times (stats_bytes.c), edges (edges.c) of threads without a tree,
 *   trees (trees.c)
 *
 * Nothing in it is believed: sizes and offsets are compared with the file's size, CRCs are checked, and each thread's
 * last block must be in the trace as it was. Read and not mapped: a file that is cut short meanwhile must not become a
 * bus error. Whoever asks for sums alone has the rest of it neither read nor checked. The bytes of granules, which are
 * most of it, are checked when it is opened, and read when a question needs them.
 */
#include "index/index_internal.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/pages.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define FILE_NAME    "spans.cti"
#define FILE_NEW     "spans.cti.new"
#define FILE_MAGIC   0x58495443u /* "CTIX" */
#define FILE_VERSION 12u

struct piece {
  uint64_t offset, bytes;
};

struct file_header {
  uint32_t magic;
  uint32_t version;
  uint32_t header_crc; /* of the header and the threads, with this field 0 */
  uint32_t sums_crc;   /* of the statistics and the edges */
  uint64_t file_bytes;
  uint64_t start_ns; /* of the trace */
  uint32_t thread_count;
  uint32_t function_count;
  struct piece stats, edges;         /* each one zstd frame ... */
  uint64_t stats_bytes, edges_bytes; /* ... of so many bytes */
  struct piece trees;                /* likewise: the threads' trees, one after the other */
  uint64_t trees_bytes;
  uint32_t trees_crc, selves_crc;
  struct piece selves; /* likewise, of the functions of the statistics; of no bytes: there are none */
  uint64_t selves_bytes;
};
static_assert(sizeof(struct file_header) == 144, "as in the file");

enum {
  CHECKED_AT_ONCE = 128 << 10,
  PACKED_MOST = 4 << 20,  /* bytes of granules: of a thread that has more they are not packed, to be read sooner */
  LISTS_MOST = 512 << 10, /* granules and crossings: likewise */
  PACKS_TO = 1024,        /* and not to less than this part, or they are not of a granule */
};
enum { WHOLE = 1, DAMAGED = 2, TREE_IS_SUMS = 4, PACKED_LISTS = 8, ZSTD_LEVEL = 9, SUMS_MOST = 1 << 30 };
struct file_thread {
  uint32_t index; /* N of thread_N */
  uint32_t flags;
  uint64_t end_offset, last_offset;
  uint32_t last_crc;
  uint32_t lists_crc;   /* of granules, crossings and state */
  uint64_t trace_bytes; /* of the thread's file, when it was whole */
  uint64_t preempted, long_bytes, payload_bytes;
  uint64_t spans, events, lost;
  struct piece granules, crossings, blob, state;
  uint64_t tree_bytes;
  uint32_t frames_crc;
  uint32_t lists_bytes; /* of granules and crossings, unpacked, where they are packed */
  uint64_t blob_bytes;  /* of granules, unpacked */
};
static_assert(sizeof(struct file_thread) == 176, "as in the file");

/* Of CT_GRANULES_READ granules each, in front of them. */
struct file_frame {
  uint32_t bytes, crc; /* as they are in the file */
};

/* ---- reading ---- */

/* The bytes of a piece, which is to be of items of a size; NULL: it is not in the file, or not of whole items. */
static uint8_t *
piece_of(const struct ct_index *index, const struct piece *piece, size_t item_bytes, uint64_t *count)
{
  if (piece->offset > index->file_bytes || piece->bytes > index->file_bytes - piece->offset ||
      (piece->offset & 7) != 0 || piece->bytes % item_bytes != 0) {
    return NULL;
  }
  *count = piece->bytes / item_bytes;
  return index->file + piece->offset;
}

static uint64_t
frames_of(uint64_t granules)
{
  return (granules + CT_GRANULES_READ - 1) / CT_GRANULES_READ;
}

/* One after the other in the piece, behind their table. */
static int
place_frames(struct ct_index_part *part, const struct piece *piece, const struct file_frame *frames)
{
  uint64_t count = frames_of(part->granule_count), at = count * sizeof(*frames);
  for (uint64_t i = 0; i < count; i++) {
    part->frames[i] = (struct ct_index_frame){piece->offset + at, frames[i].bytes, frames[i].crc};
    at += frames[i].bytes;
    if (at > piece->bytes) {
      return CT_EFORMAT;
    }
  }
  return 0;
}

/* Where the frames are, and room for what is in them. */
static int
load_frames(const struct ct_index *index, struct ct_index_part *part, const struct file_thread *record)
{
  uint64_t count = frames_of(part->granule_count), table = count * sizeof(struct file_frame), stored;
  if (piece_of(index, &record->blob, 1, &stored) == NULL || table > stored ||
      record->blob_bytes / PACKS_TO > stored - table) {
    return CT_EFORMAT;
  }
  struct file_frame *frames = malloc(table + 1);
  part->frames = calloc(count + 1, sizeof(*part->frames));
  part->is_read = calloc(count + 1, sizeof(*part->is_read));
  part->blob = ct_pages_alloc(record->blob_bytes + 1);
  part->blob_capacity = part->blob != NULL ? record->blob_bytes + 1 : 0;
  int code = CT_ENOMEM;
  if (frames == NULL || part->frames == NULL || part->is_read == NULL || part->blob == NULL) {
    goto free_frames;
  }
  bool is_there = ct_read_at(index->fd, frames, table, record->blob.offset) == table &&
                  ct_crc32c(0, frames, table) == record->frames_crc;
  code = is_there ? place_frames(part, &record->blob, frames) : CT_EFORMAT;
free_frames:
  free(frames);
  return code;
}

/* All frames, through a buffer that a cache holds: to have them in memory costs several times as much. */
static bool
frame_is_whole(int fd, const struct ct_index_frame *frame, uint8_t *buffer)
{
  uint32_t crc = 0;
  for (uint64_t at = 0, some; at < frame->bytes; at += some) {
    some = frame->bytes - at < CHECKED_AT_ONCE ? frame->bytes - at : CHECKED_AT_ONCE;
    if (ct_read_at(fd, buffer, some, frame->offset + at) != some) {
      return false;
    }
    crc = ct_crc32c(crc, buffer, some);
  }
  return crc == frame->crc;
}

static int
check_frames(const struct ct_index *index, const struct ct_index_part *part)
{
  uint8_t *buffer = malloc(CHECKED_AT_ONCE);
  if (buffer == NULL) {
    return CT_ENOMEM;
  }
  uint64_t i = 0, count = frames_of(part->granule_count);
  while (i < count && frame_is_whole(index->fd, &part->frames[i], buffer)) {
    i++;
  }
  free(buffer);
  return i == count ? 0 : CT_EFORMAT;
}

/* Of so many bytes, packed or not, into their place. */
static int
read_frame(int fd, const struct ct_index_frame *frame, uint8_t *to, uint64_t bytes)
{
  if (frame->bytes == bytes) {
    return ct_read_at(fd, to, bytes, frame->offset) == bytes ? 0 : CT_EFORMAT;
  }
  uint8_t *packed = malloc((size_t)frame->bytes + 1);
  if (packed == NULL) {
    return CT_ENOMEM;
  }
  bool ok = ct_read_at(fd, packed, frame->bytes, frame->offset) == frame->bytes &&
            ZSTD_decompress(to, bytes, packed, frame->bytes) == bytes;
  free(packed);
  return ok ? 0 : CT_EFORMAT;
}

/* They are as they were when the file was opened, or it is an error. */
static int
fetch(const struct ct_index *index, const struct ct_index_part *part, uint64_t number)
{
  uint64_t first = number * CT_GRANULES_READ, end = first + CT_GRANULES_READ;
  end = end < part->granule_count ? end : part->granule_count;
  uint64_t from = part->granules[first].blob,
           to = end < part->granule_count ? part->granules[end].blob : part->blob_bytes;
  int code = read_frame(index->fd, &part->frames[number], part->blob + from, to - from);
  for (uint64_t i = first; i < end && code == 0; i++) {
    const struct ct_granule *g = &part->granules[i];
    size_t size = (size_t)g->state_bytes + g->function_bytes + g->long_bytes;
    code = ct_crc32c(0, part->blob + g->blob, size) == g->crc ? 0 : CT_EFORMAT;
  }
  return code;
}

int
ct_granule_fetch(const struct ct_index *index, const struct ct_index_part *part, uint64_t granule)
{
  uint64_t number = granule / CT_GRANULES_READ;
  if (part->is_read == NULL || atomic_load_explicit(&part->is_read[number], memory_order_acquire) != 0) {
    return 0; /* pairs with the release below: the bytes are there */
  }
  pthread_mutex_t *lock = (pthread_mutex_t *)&index->lock;
  pthread_mutex_lock(lock);
  int code = 0;
  if (atomic_load_explicit(&part->is_read[number], memory_order_relaxed) == 0) { /* relaxed: written under the lock */
    code = fetch(index, part, number);
    atomic_store_explicit(&part->is_read[number], code == 0, memory_order_release);
  }
  pthread_mutex_unlock(lock);
  return code;
}

int
ct_index_fetch_all(struct ct_index *index)
{
  int code = 0;
  for (uint32_t i = 0; i < index->thread_count && code == 0; i++) {
    struct ct_index_part *part = &index->threads[i].part;
    for (uint64_t k = 0; part->is_read != NULL && k < frames_of(part->granule_count) && code == 0; k++) {
      code = fetch(index, part, k);
    }
    free((void *)part->is_read);
    part->is_read = NULL;
  }
  return code;
}

/* Is the trace's thread what the record is about? */
static bool
thread_fits(const struct ct_index *index, uint32_t number, const struct file_thread *record)
{
  const struct ct_trace_thread *thread = ct_trace_thread(index->trace, number);
  if (record->flags & WHOLE) {
    if (!ct_trace_is_complete(index->trace) || thread->file_bytes != record->trace_bytes) {
      return false;
    }
  } else if (thread->file_bytes < record->end_offset || ct_trace_has_bounds(index->trace)) {
    return false;
  }
  if (record->last_crc == 0) {
    return record->end_offset <= CT_FIRST_BLOCK_OFFSET || (record->flags & WHOLE) != 0;
  }
  struct ct_block_place place;
  size_t count;
  ct_trace_block_places(index->trace, number, record->last_offset, &place, 1, &count);
  return count == 1 && place.header_crc == record->last_crc;
}

/* What is in a piece that is one zstd frame; to be freed. NULL: it is not, or out of memory. */
static uint8_t *
unpack(const struct ct_index *index, const struct piece *piece, uint64_t bytes, uint32_t *crc)
{
  uint64_t stored = 0;
  const uint8_t *frame = piece_of(index, piece, 1, &stored);
  uint8_t *data = frame != NULL && bytes <= SUMS_MOST ? malloc(bytes + 1) : NULL;
  if (data == NULL) {
    return NULL;
  }
  *crc = ct_crc32c(*crc, frame, stored);
  if (ZSTD_decompress(data, bytes, frame, stored) != bytes) {
    free(data);
    return NULL;
  }
  return data;
}

/* Granules and crossings: as they are in the file, or packed. */
static int
take_lists(const struct ct_index *index, struct ct_index_part *part, const struct file_thread *record, uint32_t *crc)
{
  if ((record->flags & PACKED_LISTS) == 0) {
    part->granules = (void *)piece_of(index, &record->granules, sizeof(*part->granules), &part->granule_count);
    part->crossings = (void *)piece_of(index, &record->crossings, sizeof(*part->crossings), &part->crossing_count);
    if (part->granules == NULL || part->crossings == NULL) {
      return CT_EFORMAT;
    }
    *crc = ct_crc32c(0, part->granules, record->granules.bytes);
    *crc = ct_crc32c(*crc, part->crossings, record->crossings.bytes);
    return 0;
  }
  uint8_t *lists = unpack(index, &record->granules, record->lists_bytes, crc);
  int code = lists != NULL ? ct_lists_take(lists, record->lists_bytes, part) : CT_EFORMAT;
  free(lists);
  return code;
}

/* What can be looked up in it. */
static int
load_lists(const struct ct_index *index, struct ct_index_thread *thread, unsigned parts,
           const struct file_thread *record)
{
  struct ct_index_part *part = &thread->part;
  uint64_t state_bytes;
  uint32_t crc = 0;
  const uint8_t *state = piece_of(index, &record->state, 1, &state_bytes);
  int code = state != NULL ? take_lists(index, part, record, &crc) : CT_EFORMAT;
  if (code != 0) {
    return code;
  }
  part->blob_bytes = record->blob_bytes;
  crc = ct_crc32c(crc, state, state_bytes);
  if (crc != record->lists_crc || !ct_index_part_makes_sense(part)) {
    return CT_EFORMAT;
  }
  if (parts & CT_INDEX_BLOBS) {
    code = load_frames(index, part, record);
    code = code == 0 ? check_frames(index, part) : code;
    if (code != 0) {
      return code;
    }
  }
  thread->end_state.data = malloc(state_bytes + 1);
  if (thread->end_state.data == NULL) {
    return CT_ENOMEM;
  }
  memcpy(thread->end_state.data, state, state_bytes);
  thread->end_state.size = thread->end_state.capacity = state_bytes;
  thread->kept_granules = part->granule_count;
  thread->kept_crossings = part->crossing_count;
  thread->kept_blob = part->blob_bytes;
  return 0;
}

static int
load_thread(struct ct_index *index, uint32_t number, unsigned parts, const struct file_thread *record)
{
  struct ct_index_thread *thread = &index->threads[number];
  if (!thread_fits(index, number, record)) {
    return CT_EFORMAT;
  }
  int code = (parts & CT_INDEX_LISTS) != 0 ? load_lists(index, thread, parts, record) : 0;
  if (code != 0) {
    return code;
  }
  thread->is_whole = (record->flags & WHOLE) != 0;
  thread->is_damaged = (record->flags & DAMAGED) != 0;
  thread->kept_is_sums = (record->flags & TREE_IS_SUMS) != 0;
  thread->end_offset = record->end_offset;
  thread->last_offset = record->last_offset;
  thread->last_crc = record->last_crc;
  thread->long_bytes = record->long_bytes;
  thread->payload_bytes = record->payload_bytes;
  thread->spans = thread->kept_spans = record->spans;
  thread->events = record->events;
  thread->lost = record->lost;
  thread->preempted = record->preempted;
  return 0;
}

static int
load_selves(const struct ct_index *index, const struct file_header *header, struct ct_index_sums *kept)
{
  uint32_t crc = 0;
  uint8_t *selves = unpack(index, &header->selves, header->selves_bytes, &crc);
  int code = selves == NULL || crc != header->selves_crc ? CT_EFORMAT : 0;
  code = code == 0 ? ct_selves_take(&kept->stats, selves, header->selves_bytes) : code;
  free(selves);
  return code;
}

static int
load_sums(struct ct_index *index, const struct file_header *header, struct ct_index_sums *kept)
{
  uint32_t crc = 0;
  uint8_t *stats = unpack(index, &header->stats, header->stats_bytes, &crc);
  uint8_t *edges = stats != NULL ? unpack(index, &header->edges, header->edges_bytes, &crc) : NULL;
  int code = edges == NULL || crc != header->sums_crc ? CT_EFORMAT : 0;
  code = code == 0 ? ct_stats_take(&kept->stats, stats, header->stats_bytes) : code;
  code = code == 0 ? ct_edges_take(&kept->edges, edges, header->edges_bytes) : code;
  free(stats);
  free(edges);
  return code;
}

/* The thread of the trace with this N; UINT32_MAX: it has none. They are in the same order nearly always. */
static uint32_t
find_thread(const struct ct_trace *trace, uint32_t guess, uint32_t index)
{
  uint32_t count = ct_trace_thread_count(trace);
  if (guess < count && ct_trace_thread(trace, guess)->index == index) {
    return guess;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (ct_trace_thread(trace, i)->index == index) {
      return i;
    }
  }
  return UINT32_MAX;
}

/* The trees of the threads, whose records say how many bytes each has. */
static int
load_trees(struct ct_index *index, const struct file_header *header)
{
  uint32_t crc = 0;
  uint64_t at = 0;
  uint8_t *trees = unpack(index, &header->trees, header->trees_bytes, &crc);
  int code = trees == NULL || crc != header->trees_crc ? CT_EFORMAT : 0;
  for (uint32_t i = 0; i < header->thread_count && code == 0; i++) {
    struct file_thread record;
    memcpy(&record, index->file + sizeof(*header) + i * sizeof(record), sizeof(record));
    struct ct_span_bytes *tree = &index->threads[find_thread(index->trace, i, record.index)].kept_tree;
    if (record.tree_bytes > header->trees_bytes - at) {
      code = CT_EFORMAT;
    } else if (record.tree_bytes != 0 && (code = ct_span_bytes_reserve(tree, record.tree_bytes)) == 0) {
      memcpy(tree->data, trees + at, record.tree_bytes);
      tree->size = record.tree_bytes;
      at += record.tree_bytes;
    }
  }
  free(trees);
  return code;
}

static int
load_parts(struct ct_index *index, unsigned parts, struct ct_index_sums *kept)
{
  struct file_header header;
  memcpy(&header, index->file, sizeof(header));
  uint64_t lists = sizeof(header) + (uint64_t)header.thread_count * sizeof(struct file_thread);
  if (header.magic != FILE_MAGIC || header.version != FILE_VERSION || header.file_bytes != index->file_bytes ||
      lists > index->file_bytes || header.start_ns != ct_trace_start_ns(index->trace) ||
      header.function_count > ct_trace_function_count(index->trace)) {
    return CT_EFORMAT;
  }
  uint32_t crc = header.header_crc;
  memset(index->file + offsetof(struct file_header, header_crc), 0, sizeof(crc));
  if (ct_crc32c(0, index->file, lists) != crc) {
    return CT_EFORMAT;
  }
  for (uint32_t i = 0; i < header.thread_count; i++) {
    struct file_thread record;
    memcpy(&record, index->file + sizeof(header) + i * sizeof(record), sizeof(record));
    uint32_t number = find_thread(index->trace, i, record.index);
    int code = number != UINT32_MAX && index->threads[number].end_offset == 0
                   ? load_thread(index, number, parts, &record)
                   : CT_EFORMAT;
    if (code != 0) {
      return code;
    }
  }
  int code = (parts & CT_INDEX_TREES) != 0 ? load_trees(index, &header) : 0;
  code = code == 0 && (parts & CT_INDEX_SUMS) != 0 ? load_sums(index, &header, kept) : code;
  bool selves = (parts & CT_INDEX_SELVES) != 0 && header.selves.bytes != 0;
  return code == 0 && selves ? load_selves(index, &header, kept) : code;
}

static bool
read_piece(int fd, const struct ct_index *index, struct piece piece)
{
  return piece.offset <= index->file_bytes && piece.bytes <= index->file_bytes - piece.offset &&
         ct_read_at(fd, index->file + piece.offset, piece.bytes, piece.offset) == piece.bytes;
}

/* The parts, each into its place in memory, but for the bytes of granules, which are read when they are asked for. */
static bool
read_file(int fd, const struct ct_index *index, unsigned parts)
{
  struct file_header header;
  struct piece head = {0, sizeof(header)};
  if (!read_piece(fd, index, head)) {
    return false;
  }
  memcpy(&header, index->file, sizeof(header));
  struct piece threads = {sizeof(header), (uint64_t)header.thread_count * sizeof(struct file_thread)};
  bool ok = read_piece(fd, index, threads);
  if (parts & CT_INDEX_SUMS) {
    ok = ok && read_piece(fd, index, header.stats) && read_piece(fd, index, header.edges);
  }
  if (parts & CT_INDEX_SELVES) {
    ok = ok && read_piece(fd, index, header.selves);
  }
  if (parts & CT_INDEX_TREES) {
    ok = ok && read_piece(fd, index, header.trees);
  }
  for (uint32_t i = 0; i < header.thread_count && ok && (parts & CT_INDEX_LISTS); i++) {
    struct file_thread thread;
    memcpy(&thread, index->file + threads.offset + i * sizeof(thread), sizeof(thread));
    ok = read_piece(fd, index, thread.granules) && read_piece(fd, index, thread.crossings) &&
         read_piece(fd, index, thread.state);
  }
  return ok;
}

/* The file of the index, as far as its parts are asked for, and what they mean. */
static int
load_from(int fd, struct ct_index *index, unsigned parts, struct ct_index_sums *kept)
{
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct file_header)) {
    return CT_EFORMAT;
  }
  index->file_bytes = (uint64_t)st.st_size;
  index->file = malloc(index->file_bytes);
  if (index->file == NULL) {
    return CT_ENOMEM;
  }
  if (!read_file(fd, index, parts)) {
    return CT_EFORMAT;
  }
  index->fd = fd; /* it stays open where something is left to be read */
  return load_parts(index, parts, kept);
}

int
ct_index_load(struct ct_index *index, unsigned parts, struct ct_index_sums *kept)
{
  int fd = openat(ct_trace_dir_fd(index->trace), FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return CT_ENOENT;
  }
  int code = load_from(fd, index, parts, kept);
  if (code != 0 || (parts & CT_INDEX_BLOBS) == 0) {
    close(fd);
    index->fd = -1;
  }
  return code;
}

/* ---- writing ---- */

struct storing {
  FILE *out;
  uint64_t at;
  bool failed;
};

static struct piece
put_piece(struct storing *s, const void *data, uint64_t bytes)
{
  static const uint8_t zeros[8];
  struct piece piece = {s->at, bytes};
  uint64_t padding = (0 - bytes) & 7;
  s->failed |= (bytes != 0 && fwrite(data, 1, bytes, s->out) != bytes) || fwrite(zeros, 1, padding, s->out) != padding;
  s->at += bytes + padding;
  return piece;
}

/* Bytes of granules, packed where that is asked for and makes them fewer. */
static struct file_frame
put_frame(struct storing *s, const uint8_t *bytes, size_t size, bool packs)
{
  size_t most = ZSTD_compressBound(size), stored = size;
  void *packed = packs ? malloc(most) : NULL;
  if (packed != NULL) {
    stored = ZSTD_compress(packed, most, bytes, size, ZSTD_LEVEL);
  }
  bool is_packed = packed != NULL && !ZSTD_isError(stored) && stored < size;
  const void *data = is_packed ? packed : bytes;
  stored = is_packed ? stored : size;
  struct file_frame frame = {(uint32_t)stored, ct_crc32c(0, data, stored)};
  s->failed |= stored > UINT32_MAX || (stored != 0 && fwrite(data, 1, stored, s->out) != stored);
  s->at += stored;
  free(packed);
  return frame;
}

/* The bytes of granules that are for good: a table of frames, and these, one after the other. */
static void
put_blob(struct storing *s, const struct ct_index_thread *thread, struct file_thread *record)
{
  const struct ct_index_part *part = &thread->part;
  uint64_t count = frames_of(thread->kept_granules), table = count * sizeof(struct file_frame), begin = s->at;
  struct file_frame *frames = calloc(count + 1, sizeof(*frames));
  if (frames == NULL || s->failed) {
    s->failed = true;
    free(frames);
    return;
  }
  put_piece(s, frames, table); /* room for it */
  for (uint64_t i = 0; i < count && !s->failed; i++) {
    uint64_t end = (i + 1) * CT_GRANULES_READ, from = part->granules[i * CT_GRANULES_READ].blob;
    uint64_t to = end < thread->kept_granules ? part->granules[end].blob : thread->kept_blob;
    frames[i] = put_frame(s, part->blob + from, to - from, thread->kept_blob <= PACKED_MOST);
  }
  record->blob = (struct piece){begin, s->at - begin};
  record->blob_bytes = thread->kept_blob;
  record->frames_crc = ct_crc32c(0, frames, table);
  static const uint8_t zeros[8];
  uint64_t padding = (0 - s->at) & 7;
  s->failed |= fwrite(zeros, 1, padding, s->out) != padding;
  s->at += padding;
  s->failed |= fseeko(s->out, (off_t)begin, SEEK_SET) != 0 || fwrite(frames, 1, table, s->out) != table ||
               fseeko(s->out, (off_t)s->at, SEEK_SET) != 0;
  free(frames);
}

static struct piece
put_packed(struct storing *s, const struct ct_span_bytes *bytes, uint32_t *crc)
{
  size_t most = ZSTD_compressBound(bytes->size);
  void *frame = malloc(most);
  size_t stored = frame != NULL ? ZSTD_compress(frame, most, bytes->data, bytes->size, ZSTD_LEVEL) : 0;
  struct piece piece = {0};
  s->failed |= frame == NULL || ZSTD_isError(stored);
  if (!s->failed) {
    piece = put_piece(s, frame, stored);
    *crc = ct_crc32c(*crc, frame, stored);
  }
  free(frame);
  return piece;
}

/* Granules and crossings, packed where they are few. */
static void
put_lists(struct storing *s, const struct ct_index_thread *thread, struct file_thread *record)
{
  const struct ct_index_part *part = &thread->part;
  uint64_t granules = thread->kept_granules * sizeof(*part->granules),
           crossings = thread->kept_crossings * sizeof(*part->crossings);
  struct ct_span_bytes bytes = {0};
  if (granules + crossings > LISTS_MOST) {
    record->granules = put_piece(s, part->granules, granules);
    record->crossings = put_piece(s, part->crossings, crossings);
    record->lists_crc = ct_crc32c(0, part->granules, granules);
    record->lists_crc = ct_crc32c(record->lists_crc, part->crossings, crossings);
    return;
  }
  s->failed |= ct_lists_put(thread, &bytes) != 0;
  if (!s->failed) {
    record->flags |= PACKED_LISTS;
    record->lists_bytes = (uint32_t)bytes.size;
    record->granules = put_packed(s, &bytes, &record->lists_crc);
  }
  free(bytes.data);
}

static void
put_thread(struct storing *s, const struct ct_index *index, uint32_t number, struct file_thread *record)
{
  const struct ct_index_thread *thread = &index->threads[number];
  *record = (struct file_thread){.index = ct_trace_thread(index->trace, number)->index,
                                 .flags = (thread->is_whole ? WHOLE : 0u) | (thread->is_damaged ? DAMAGED : 0u) |
                                          (thread->kept_is_sums ? TREE_IS_SUMS : 0u),
                                 .end_offset = thread->end_offset,
                                 .last_offset = thread->last_offset,
                                 .last_crc = thread->last_crc,
                                 .trace_bytes = ct_trace_thread(index->trace, number)->file_bytes,
                                 .tree_bytes = thread->kept_tree.size,
                                 .long_bytes = thread->long_bytes,
                                 .payload_bytes = thread->payload_bytes,
                                 .spans = thread->kept_spans,
                                 .events = thread->is_whole ? thread->events : 0,
                                 .lost = thread->is_whole ? thread->lost : 0,
                                 .preempted = index->keeps_selves ? thread->preempted : 0};
  put_lists(s, thread, record);
  put_blob(s, thread, record);
  record->state = put_piece(s, thread->end_state.data, thread->end_state.size);
  record->lists_crc = ct_crc32c(record->lists_crc, thread->end_state.data, thread->end_state.size);
}

static void
put_sums(struct storing *s, const struct ct_index_sums *kept, struct file_header *header)
{
  struct ct_span_bytes stats = {0}, edges = {0}, selves = {0};
  if (ct_stats_put(&kept->stats, &stats) != 0 || ct_edges_put(&kept->edges, &edges) != 0 ||
      ct_selves_put(&kept->stats, &selves) != 0 || stats.size > SUMS_MOST || edges.size > SUMS_MOST ||
      selves.size > SUMS_MOST) {
    s->failed = true;
  } else {
    header->stats_bytes = stats.size;
    header->edges_bytes = edges.size;
    header->stats = put_packed(s, &stats, &header->sums_crc);
    header->edges = put_packed(s, &edges, &header->sums_crc);
  }
  if (!s->failed && kept->stats.selves != NULL) {
    header->selves_bytes = selves.size;
    header->selves = put_packed(s, &selves, &header->selves_crc);
  }
  free(stats.data);
  free(edges.data);
  free(selves.data);
}

static void
put_trees(struct storing *s, const struct ct_index *index, struct file_header *header)
{
  struct ct_span_bytes trees = {0};
  for (uint32_t i = 0; i < index->thread_count && !s->failed; i++) {
    const struct ct_span_bytes *tree = &index->threads[i].kept_tree;
    s->failed |= ct_span_bytes_reserve(&trees, tree->size + 1) != 0;
    if (!s->failed && tree->size != 0) {
      memcpy(trees.data + trees.size, tree->data, tree->size);
      trees.size += tree->size;
    }
  }
  s->failed |= trees.size > SUMS_MOST;
  if (!s->failed) {
    header->trees_bytes = trees.size;
    header->trees = put_packed(s, &trees, &header->trees_crc);
  }
  free(trees.data);
}

static bool
put_file(FILE *out, struct ct_index *index, const struct ct_index_sums *kept)
{
  size_t lists = sizeof(struct file_header) + index->thread_count * sizeof(struct file_thread);
  uint8_t *head = calloc(1, lists);
  struct storing s = {.out = out};
  if (head == NULL) {
    return false;
  }
  struct file_header *header = (void *)head;
  struct file_thread *threads = (void *)(head + sizeof(*header));
  put_piece(&s, head, lists); /* room for it */
  for (uint32_t i = 0; i < index->thread_count && !s.failed; i++) {
    put_thread(&s, index, i, &threads[i]);
  }
  *header = (struct file_header){.magic = FILE_MAGIC,
                                 .version = FILE_VERSION,
                                 .start_ns = ct_trace_start_ns(index->trace),
                                 .thread_count = index->thread_count,
                                 .function_count = ct_trace_function_count(index->trace)};
  put_sums(&s, kept, header);
  put_trees(&s, index, header);
  header->file_bytes = s.at;
  header->header_crc = ct_crc32c(0, head, lists);
  bool ok = !s.failed && fseek(out, 0, SEEK_SET) == 0 && fwrite(head, 1, lists, out) == lists && fflush(out) == 0;
  index->file_bytes = s.at;
  free(head);
  return ok;
}

void
ct_index_store(struct ct_index *index, const struct ct_index_sums *kept)
{
  int dir = ct_trace_dir_fd(index->trace);
  unlinkat(dir, FILE_NEW, 0);
  int fd = openat(dir, FILE_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (out == NULL) {
    if (fd >= 0) {
      close(fd);
      unlinkat(dir, FILE_NEW, 0);
    }
    return;
  }
  bool ok = put_file(out, index, kept);
  if (fclose(out) != 0 || !ok || renameat(dir, FILE_NEW, dir, FILE_NAME) != 0) {
    unlinkat(dir, FILE_NEW, 0);
  }
}
