/* SPDX-License-Identifier: MIT */
/*
 * Blocks on their way to the file: the open section, the compression of the columns; the queue; the thread that
 * creates and writes the files. The columns' memory is of the pool (buffers.c).
 *
 *   caller (the drain)                                      writer thread
 *   events -> columns -> block, made in the queue's ring -> mkdir, open, write, close
 *
 * Queue: one for all files, first in, first out; so a file's blocks keep their order and function
 * lines come before the blocks that use them. The caller reserves as much as a
 * block may need at most, builds it there and commits what it took. It waits only when that much is not
 * free; as long as the writer thread keeps up the ring starts again at its front, and little of it is touched.
 *
 * Files: at most open_limit are open; the one written to longest ago is closed first.
 * Blocks are written at an offset that we keep, so reopening needs no seeking and
 * a block of which only a part could be written is cut off or written over.
 *
 * Failure: the first one, of either thread, stays in the writer. From then on the caller drops its blocks, and
 * the writer thread what is in the queue, counting it as unwritten; files are still closed.
 */
#include "trace/detail.h"
#include "trace/writer_internal.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/worker.h"
#include "trace/lanes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RAW_SECTION_MAX 64u /* so few bytes are stored as they are: zstd takes a microsecond to begin */
static_assert(sizeof(struct ct_block_header) + ZSTD_COMPRESSBOUND(CT_OPEN_BYTES_MAX) +
                      ZSTD_COMPRESSBOUND(CT_BLOCK_OPS_MAX) + ZSTD_COMPRESSBOUND(IDS_BYTES) +
                      ZSTD_COMPRESSBOUND(DELTAS_BYTES) + ZSTD_COMPRESSBOUND(LARGE_EXTRA_BYTES) <=
                  QUEUE_BYTES_MIN / 2,
              "every block fits the queue");
static_assert(FUNCTIONS_BUFFER <= QUEUE_BYTES_MIN / 2, "every batch of function lines fits the queue");

/* ---- files ---- */

bool
ct_writer_write_at(int fd, const void *data, size_t size, uint64_t offset, size_t *written)
{
  const char *p = data;
  size_t done = 0;
  while (done < size) {
    ssize_t n = pwrite(fd, p + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n == 0) {
      errno = ENOSPC;
    }
    if (n <= 0) {
      break;
    }
    done += (size_t)n;
  }
  *written = done;
  return done == size;
}

/* ---- queue, the caller's side ---- */

/* Makes the space at head the one for the next record, if it is there. */
static bool
find_room(struct ct_writer_thread *writer_thread, size_t need)
{
  if (writer_thread->used == 0) {
    writer_thread->head = writer_thread->tail = 0; /* memory that is still in the cache */
  }
  bool wrapped = writer_thread->head < writer_thread->tail || writer_thread->used == writer_thread->capacity;
  size_t end = wrapped ? writer_thread->tail : writer_thread->capacity;
  if (end - writer_thread->head >= need) {
    return true;
  }
  if (wrapped || writer_thread->tail < need) {
    return false;
  }
  size_t rest = writer_thread->capacity - writer_thread->head;
  struct ct_writer_record skip = {.kind = CT_WRITER_SKIP, .record_bytes = (uint32_t)rest};
  memcpy(writer_thread->ring + writer_thread->head, &skip, sizeof(skip));
  writer_thread->used += rest;
  writer_thread->head = 0;
  return true;
}

static size_t
record_size(size_t data_bytes)
{
  size_t unit = sizeof(struct ct_writer_record);
  return unit + (data_bytes + unit - 1) / unit * unit;
}

/* Under the lock. */
static void
wake(struct ct_writer_thread *writer_thread)
{
  if (writer_thread->state == CT_WRITER_AWAKE) {
    return;
  }
  writer_thread->state = CT_WRITER_AWAKE;
  pthread_cond_signal(&writer_thread->work);
}

/* Under the lock; the caller looks again for what it needs. */
static void
wait_for_record(struct ct_writer_thread *writer_thread)
{
  wake(writer_thread);
  writer_thread->caller_waits = true;
  pthread_cond_wait(&writer_thread->room, &writer_thread->lock);
}

uint8_t *
ct_writer_thread_reserve(struct ct_trace_writer *writer, size_t size)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  assert(size <= QUEUE_BYTES_MIN / 2);
  pthread_mutex_lock(&writer_thread->lock);
  while (!find_room(writer_thread, record_size(size))) {
    uint64_t begin = ct_now_ns();
    wait_for_record(writer_thread);
    ct_writer_note_wait(writer_thread, begin);
  }
  uint8_t *data = writer_thread->ring + writer_thread->head + sizeof(struct ct_writer_record);
  pthread_mutex_unlock(&writer_thread->lock);
  return data;
}

void
ct_writer_thread_commit(struct ct_trace_writer *writer, enum ct_writer_kind kind, struct ct_stream *stream,
                        size_t data_bytes, uint32_t events)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  size_t size = record_size(data_bytes);
  if (writer->store != NULL && (kind == CT_WRITER_CREATE || kind == CT_WRITER_CLOSE)) {
    return; /* it gets a file when there is something to write into it */
  }
  if (writer->store != NULL && (kind == CT_WRITER_BLOCK || kind == CT_WRITER_CAPTURES)) {
    ct_writer_put(writer, kind, stream, writer_thread->ring + writer_thread->head + sizeof(struct ct_writer_record),
                  data_bytes, events);
    writer->queued_bytes += data_bytes;
    return;
  }
  struct ct_writer_record record = {
      .stream = stream,
      .kind = kind,
      .record_bytes = (uint32_t)size,
      .data_bytes = (uint32_t)data_bytes,
      .events = events,
      .queued_ns = kind == CT_WRITER_BLOCK ? ct_now_ns() : 0,
  };
  memcpy(writer_thread->ring + writer_thread->head, &record, sizeof(record));
  pthread_mutex_lock(&writer_thread->lock);
  writer_thread->used += size;
  writer_thread->head = writer_thread->head + size == writer_thread->capacity ? 0 : writer_thread->head + size;
  bool wanted = writer_thread->state == CT_WRITER_ASLEEP ||
                (writer_thread->state == CT_WRITER_NAPPING && writer_thread->used >= QUEUE_WAKE_BYTES);
  if (wanted) {
    writer_thread->state = CT_WRITER_AWAKE;
  }
  pthread_mutex_unlock(&writer_thread->lock);
  if (wanted) { /* not under the lock, which is the first thing that the woken thread wants */
    pthread_cond_signal(&writer_thread->work);
  }
  writer->queued_bytes += data_bytes;
}

void
ct_writer_thread_wait(struct ct_trace_writer *writer)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  pthread_mutex_lock(&writer_thread->lock);
  while (writer_thread->used > 0) {
    wait_for_record(writer_thread);
  }
  pthread_mutex_unlock(&writer_thread->lock);
}

/* ---- writer thread: files ---- */

void
ct_writer_close_file(struct ct_trace_writer *writer, struct ct_stream *stream)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  if (stream->fd < 0) {
    return;
  }
  for (uint32_t i = 0; i < writer_thread->open_count; i++) {
    if (writer_thread->open_files[i] == stream) {
      writer_thread->open_files[i] = writer_thread->open_files[--writer_thread->open_count];
      break;
    }
  }
  if (close(stream->fd) != 0 && errno != EINTR) {
    char name[CT_BLOCK_FILE_NAME_BYTES];
    int err = errno;
    ct_stream_file_name(stream, name);
    ct_writer_fail(writer, ct_err_from_errno(err), "%s/%s: %s", writer->path, name, strerror(err));
  }
  stream->fd = -1;
}

static bool
close_oldest_file(struct ct_trace_writer *writer)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  struct ct_stream *oldest = NULL;
  for (uint32_t i = 0; i < writer_thread->open_count; i++) {
    if (oldest == NULL || writer_thread->open_files[i]->written_at < oldest->written_at) {
      oldest = writer_thread->open_files[i];
    }
  }
  if (oldest == NULL) {
    return false;
  }
  ct_writer_close_file(writer, oldest);
  return true;
}

bool
ct_writer_open_file(struct ct_trace_writer *writer, struct ct_stream *stream, int flags)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  char name[CT_BLOCK_FILE_NAME_BYTES];
  ct_stream_file_name(stream, name);
  if (writer_thread->open_count >= writer_thread->open_limit) {
    close_oldest_file(writer);
  }
  int fd;
  do {
    fd = ct_stream_open(writer, stream, name, flags);
  } while (fd < 0 && (errno == EINTR || ((errno == EMFILE || errno == ENFILE) && close_oldest_file(writer)) ||
                      (errno == ENOSPC && ct_pieces_make_room(writer, stream))));
  if (fd < 0) {
    int err = errno;
    ct_writer_fail(writer, ct_err_from_errno(err), "cannot open %s/%s: %s", writer->path, name,
                   err == ESTALE ? "another file is in its place" : strerror(err));
    return false;
  }
  stream->fd = fd;
  writer_thread->open_files[writer_thread->open_count++] = stream;
  return true;
}

static void
create_file(struct ct_trace_writer *writer, struct ct_stream *stream)
{
  char name[32];
  snprintf(name, sizeof(name), "%s%u", CT_TRACE_THREAD_DIR, stream->index);
  if (mkdirat(writer->dir_fd, name, 0700) != 0 && errno != EEXIST) {
    ct_writer_fail(writer, ct_err_from_errno(errno), "cannot create %s/%s: %s", writer->path, name, strerror(errno));
  } else {
    ct_writer_open_file(writer, stream, O_CREAT | O_EXCL);
  }
}

static bool
append_failed(struct ct_trace_writer *writer, struct ct_stream *stream, int err)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  ct_stream_file_name(stream, name);
  ct_writer_fail(writer, ct_err_from_errno(err), "cannot write %s/%s: %s", writer->path, name, strerror(err));
  return false;
}

/* Appends to the thread's file all of it or nothing; false when it is nothing. */
static bool
append(struct ct_trace_writer *writer, struct ct_stream *stream, const void *data, size_t size)
{
  size_t written;
  if (ct_writer_error(writer) != CT_OK) {
    return false;
  }
  if (writer->pieces != NULL && !ct_pieces_prepare(writer, stream, size)) {
    return append_failed(writer, stream, errno);
  }
  if (stream->fd < 0 && !ct_writer_open_file(writer, stream, 0)) {
    return false;
  }
  stream->written_at = ++writer->writer_thread.stamp;
  ct_stream_look(writer, stream);
  while (!ct_writer_write_at(stream->fd, data, size, stream->file_bytes, &written)) {
    int saved = errno;
    /* Should this fail too, the reader stops before the partial block all the same. */
    if (written > 0 && ftruncate(stream->fd, (off_t)stream->file_bytes) != 0) {
      saved = saved != 0 ? saved : errno;
    }
    if (saved != ENOSPC || !ct_pieces_make_room(writer, stream)) {
      return append_failed(writer, stream, saved);
    }
  }
  stream->file_bytes += size;
  return true;
}

/* Appends whole lines to the function table; returns how many bytes of them are there. */
static size_t
append_functions(struct ct_trace_writer *writer, const char *lines, size_t size)
{
  uint64_t *end = &writer->writer_thread.functions_bytes;
  size_t written;
  ct_writer_look(writer, CT_TRACE_FUNCTIONS, writer->functions_fd, *end);
  bool ok;
  do {
    ok = ct_writer_write_at(writer->functions_fd, lines, size, *end, &written);
  } while (!ok && errno == ENOSPC && ct_pieces_make_room(writer, NULL));
  if (!ok) {
    int saved = errno;
    while (written > 0 && lines[written - 1] != '\n') {
      written--;
    }
    /* Should this fail too, the reader passes over the partial line all the same. */
    if (ftruncate(writer->functions_fd, (off_t)(*end + written)) != 0) {
      saved = saved != 0 ? saved : errno;
    }
    ct_writer_fail(writer, ct_err_from_errno(saved), "cannot write %s/%s: %s", writer->path, CT_TRACE_FUNCTIONS,
                   strerror(saved));
  }
  *end += written;
  return written;
}

/* The file of what the program wrote, made when there is something for it. */
static bool
open_captures(struct ct_trace_writer *writer)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  struct ct_file_header header = {
      .magic = CT_CAPTURES_MAGIC, .version = CT_TRACE_VERSION, .header_bytes = sizeof(header)};
  size_t written;
  if (writer_thread->captures_fd >= 0) {
    return true;
  }
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  writer_thread->captures_fd = openat(writer->dir_fd, CT_TRACE_CAPTURES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (writer_thread->captures_fd < 0 ||
      !ct_writer_write_at(writer_thread->captures_fd, &header, sizeof(header), 0, &written)) {
    ct_writer_fail(writer, ct_err_from_errno(errno), "cannot write %s/%s: %s", writer->path, CT_TRACE_CAPTURES,
                   strerror(errno));
    return false;
  }
  writer_thread->captures_bytes = sizeof(header);
  return true;
}

/* Appends whole records; returns the bytes of them that are there, all or none. */
static size_t
append_captures(struct ct_trace_writer *writer, const struct ct_writer_record *records)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  size_t written, size = records->data_bytes;
  if (writer->pieces != NULL) {
    struct ct_stream *stream = ct_pieces_captures(writer->pieces);
    if (!append(writer, stream, records + 1, size)) {
      return 0;
    }
    ct_pieces_wrote(writer, stream, records + 1, size, 0);
    return size;
  }
  if (!open_captures(writer)) {
    return 0;
  }
  ct_writer_look(writer, CT_TRACE_CAPTURES, writer_thread->captures_fd, writer_thread->captures_bytes);
  if (!ct_writer_write_at(writer_thread->captures_fd, records + 1, size, writer_thread->captures_bytes, &written)) {
    int saved = errno;
    /* Should this fail too, the reader stops before the partial record all the same. */
    if (written > 0 && ftruncate(writer_thread->captures_fd, (off_t)writer_thread->captures_bytes) != 0) {
      saved = saved != 0 ? saved : errno;
    }
    ct_writer_fail(writer, ct_err_from_errno(saved), "cannot write %s/%s: %s", writer->path, CT_TRACE_CAPTURES,
                   strerror(saved));
    return 0;
  }
  writer_thread->captures_bytes += size;
  return size;
}

/* ---- writer thread: queue ---- */

static void
put_out(struct ct_trace_writer *writer, const struct ct_writer_record *record)
{
  const void *data = record + 1;
  size_t done = 0;
  switch (record->kind) {
  case CT_WRITER_CREATE:
    if (writer->pieces != NULL) { /* the header comes with each piece */
      ct_pieces_create_stream(writer, record->stream, data);
      break;
    }
    if (ct_writer_error(writer) == CT_OK) {
      create_file(writer, record->stream);
    }
    /* fall through */
  case CT_WRITER_BLOCK:
    if (append(writer, record->stream, data, record->data_bytes)) {
      done = record->data_bytes;
      if (writer->pieces != NULL) {
        ct_pieces_wrote(writer, record->stream, data, record->data_bytes, record->events);
      }
    } else {
      /* relaxed: ct_writer_thread_wait brings it to the caller */
      atomic_fetch_add_explicit(&record->stream->unwritten_events, record->events, memory_order_relaxed);
    }
    break;
  case CT_WRITER_FUNCTIONS:
    if (ct_writer_error(writer) == CT_OK) {
      done = append_functions(writer, data, record->data_bytes);
    }
    break;
  case CT_WRITER_CAPTURES:
    if (ct_writer_error(writer) == CT_OK) {
      done = append_captures(writer, record);
    }
    break;
  case CT_WRITER_CLOSE:
    ct_writer_close_file(writer, record->stream);
    if (writer->pieces != NULL) {
      ct_pieces_close_stream(writer, record->stream);
    }
    break;
  default:
    break;
  }
  if (done < record->data_bytes) {
    atomic_fetch_add_explicit(&writer->unwritten_bytes, record->data_bytes - done, memory_order_relaxed);
  }
}

static bool
is_to_nap(struct ct_writer_thread *writer_thread)
{
  if (writer_thread->used != 0 || writer_thread->ending) {
    return false;
  }
  uint64_t before = writer_thread->done_ns;
  writer_thread->done_ns = ct_now_ns();
  return writer_thread->done_ns - before < QUEUE_OFTEN_NS;
}

/*
 * Under the lock, which the writer thread gives up meanwhile: until there is a record or the end. Where records come
 * one after the other it naps first, so that not each of them needs a call to wake it; where they are rare the nap
 * would be one more time to wake up.
 */
static void
wait_for_work(struct ct_writer_thread *writer_thread)
{
  if (is_to_nap(writer_thread)) {
    uint64_t until_ns = writer_thread->done_ns + QUEUE_NAP_NS;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    writer_thread->state = CT_WRITER_NAPPING;
    while (writer_thread->state == CT_WRITER_NAPPING &&
           pthread_cond_timedwait(&writer_thread->work, &writer_thread->lock, &until) != ETIMEDOUT)
      ;
  }
  while (writer_thread->used == 0 && !writer_thread->ending) {
    writer_thread->state = CT_WRITER_ASLEEP;
    pthread_cond_wait(&writer_thread->work, &writer_thread->lock);
  }
  writer_thread->state = CT_WRITER_AWAKE;
}

static void *
writer_main(void *context)
{
  struct ct_trace_writer *writer = context;
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  pthread_mutex_lock(&writer_thread->lock);
  for (;;) {
    wait_for_work(writer_thread);
    if (writer_thread->used == 0) {
      break;
    }
    const struct ct_writer_record *record =
        (const struct ct_writer_record *)(writer_thread->ring + writer_thread->tail);
    pthread_mutex_unlock(&writer_thread->lock);
    put_out(writer, record);
    if (record->kind == CT_WRITER_BLOCK) {
      ct_writer_note_block(writer_thread, record);
    }
    size_t size = record->record_bytes;
    pthread_mutex_lock(&writer_thread->lock);
    writer_thread->tail = writer_thread->tail + size == writer_thread->capacity ? 0 : writer_thread->tail + size;
    writer_thread->used -= size;
    if (writer_thread->caller_waits) {
      writer_thread->caller_waits = false;
      pthread_cond_broadcast(&writer_thread->room); /* the drain, and who waits for all of it */
    }
  }
  pthread_mutex_unlock(&writer_thread->lock);
  while (close_oldest_file(writer))
    ;
  return NULL;
}

static uint32_t
open_files_limit(void)
{
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
    files.rlim_cur = 64;
  }
  rlim_t share = files.rlim_cur / 4; /* the rest of the program needs some too */
  return share > OPEN_FILES_MAX ? OPEN_FILES_MAX : share < 8 ? 8 : (uint32_t)share;
}

int
ct_writer_thread_start(struct ct_trace_writer *writer, uint64_t queue_bytes)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  writer_thread->open_limit = open_files_limit();
  writer_thread->capacity = queue_bytes < QUEUE_BYTES_MIN ? QUEUE_BYTES_MIN : queue_bytes;
  writer_thread->capacity -= writer_thread->capacity % sizeof(struct ct_writer_record);
  writer_thread->ring = malloc(writer_thread->capacity); /* pages that are never reached take no memory */
  if (writer_thread->ring == NULL) {
    return CT_ENOMEM;
  }
  /* No handler of the program runs there, and a write beyond RLIMIT_FSIZE is EFBIG and nothing else. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  writer_thread->running = ct_worker_create(&writer_thread->thread, NULL, writer_main, writer) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return writer_thread->running ? CT_OK : CT_ENOMEM;
}

void
ct_writer_thread_stop(struct ct_trace_writer *writer)
{
  struct ct_writer_thread *writer_thread = &writer->writer_thread;
  if (!writer_thread->running) {
    return;
  }
  pthread_mutex_lock(&writer_thread->lock);
  writer_thread->ending = true;
  wake(writer_thread);
  pthread_mutex_unlock(&writer_thread->lock);
  pthread_join(writer_thread->thread, NULL);
  writer_thread->running = false;
}

void
ct_thread_file_create(struct ct_encoder *encoder, uint32_t pid)
{
  struct ct_stream *stream = encoder->stream;
  struct ct_file_header header = ct_file_header_make(stream->index, encoder->tid, pid,
                                                     encoder->is_near ? CT_TRACE_VERSION_NEAR : CT_TRACE_VERSION);
  stream->tid = encoder->tid;
  stream->pid = pid;
  memcpy(ct_writer_thread_reserve(encoder->writer, sizeof(header)), &header, sizeof(header));
  ct_writer_thread_commit(encoder->writer, CT_WRITER_CREATE, stream, sizeof(header), 0);
}

/* ---- blocks ---- */

/* The context and its innermost frames as they are before the block's first op. */
static void
put_open_section(struct ct_encoder *encoder)
{
  uint32_t depth = ct_encoder_depth(encoder);
  uint32_t count = depth < CT_BLOCK_OPEN_MAX ? depth : CT_BLOCK_OPEN_MAX;
  uint8_t *p = ct_varint_put(encoder->buffers->open, encoder->context);
  encoder->columns.floor = encoder->columns.top - count;
  for (const struct ct_frame *frame = encoder->columns.floor; frame < encoder->columns.top; frame++) {
    p = ct_varint_put(p, frame->fn);
    p = ct_varint_put(p, encoder->first_tsc - frame->enter_tsc);
    *p++ = frame->flags & CT_FRAME_UNCERTAIN ? CT_OPEN_UNCERTAIN : 0;
  }
  encoder->depth_start = depth;
  encoder->open_count = count;
  encoder->open_bytes = (uint32_t)(p - encoder->buffers->open);
}

void
ct_block_begin(struct ct_encoder *encoder, uint64_t tsc)
{
  struct ct_buffers *buffers = encoder->buffers;
  encoder->columns.op = buffers->ops;
  encoder->columns.delta = buffers->deltas;
  encoder->columns.id = buffers->ids;
  encoder->extra = buffers->extra;
  encoder->near = NULL;
  encoder->extra_limit = buffers->extra + buffers->extra_bytes - CT_EXTRA_BYTES_MAX;
  encoder->columns.prediction = buffers->prediction;
  memset(buffers->prediction, 0, sizeof(buffers->prediction));
  encoder->columns.last = 0;
  if (tsc > encoder->columns.last_tsc) {
    encoder->columns.last_tsc = tsc;
  }
  encoder->first_tsc = encoder->columns.last_tsc;
  encoder->block_lost = 0;
  encoder->interval_start = encoder->interval_log2;
  encoder->block++;
  put_open_section(encoder);
}

uint32_t
ct_block_room(const struct ct_encoder *encoder)
{
  const struct ct_buffers *buffers = encoder->buffers;
  size_t ops = (size_t)(buffers->ops + CT_BLOCK_OPS_MAX - encoder->columns.op);
  size_t deltas = (size_t)(buffers->deltas + DELTAS_BYTES - encoder->columns.delta) / CT_DELTA_BYTES_MAX;
  size_t ids = (size_t)(buffers->ids + IDS_BYTES - encoder->columns.id) / CT_ID_BYTES_MAX;
  /* The last few ops that would fit are not worth a call for each of them. */
  if (deltas < 16 || ids < 16 || encoder->extra > encoder->extra_limit) {
    return 0;
  }
  size_t room = ops < deltas ? ops : deltas;
  return (uint32_t)(room < ids ? room : ids);
}

static void
count_ops(const uint8_t *ops, size_t count, uint32_t *calls, uint32_t *returns)
{
  size_t i = 0;
  *calls = *returns = 0;
  for (size_t run; (run = ct_lanes_run(count - i)) > 0;) {
    ct_lanes call = {0}, ret = {0};
    for (size_t end = i + run; i < end; i += sizeof(call)) {
      ct_lanes op = ct_lanes_load(ops + i);
      call -= (ct_lanes)((op - CT_TRACE_OP_ENTER_PREDICTED <= CT_TRACE_OP_POINT - CT_TRACE_OP_ENTER_PREDICTED) |
                         (op - CT_TRACE_OP_SAMPLED_PREDICTED <= CT_TRACE_OP_SAMPLED - CT_TRACE_OP_SAMPLED_PREDICTED));
      ret -= (ct_lanes)((op == CT_TRACE_OP_RETURN) | (op == CT_TRACE_OP_RETURN_ORPHAN) | (op == CT_TRACE_OP_RETURN_ID));
    }
    *calls += ct_lanes_sum(call);
    *returns += ct_lanes_sum(ret);
  }
  for (; i < count; i++) {
    *calls += CT_OPS_CALLS >> ops[i] & 1;
    *returns += CT_OPS_RETURNS >> ops[i] & 1;
  }
}

struct column {
  const uint8_t *bytes;
  size_t size;
};

/* What put_section may need, with the room that lets zstd run without checks. */
static size_t
section_bound(size_t size)
{
  return size <= RAW_SECTION_MAX ? size : ZSTD_compressBound(size);
}

/* Stores a section at p, compressed where that makes it smaller; returns the end. */
static uint8_t *
put_section(struct ct_trace_writer *writer, uint8_t *p, struct column column, struct ct_section_size *out)
{
  size_t stored = column.size;
  if (column.size > RAW_SECTION_MAX) {
    size_t n = ZSTD_compress2(writer->compressor, p, section_bound(column.size), column.bytes, column.size);
    if (!ZSTD_isError(n) && n < column.size) {
      stored = n;
    }
  }
  if (stored == column.size) {
    memcpy(p, column.bytes, column.size);
  }
  *out = (struct ct_section_size){.stored_bytes = (uint32_t)stored, .raw_bytes = (uint32_t)column.size};
  return p + stored;
}

static void
queue_block(struct ct_encoder *encoder)
{
  struct ct_trace_writer *writer = encoder->writer;
  const struct ct_buffers *buffers = encoder->buffers;
  const struct column columns[CT_SECTIONS] = {
      [CT_SECTION_OPEN] = {buffers->open, encoder->open_bytes},
      [CT_SECTION_OPS] = {buffers->ops, (size_t)(encoder->columns.op - buffers->ops)},
      [CT_SECTION_IDS] = {buffers->ids, (size_t)(encoder->columns.id - buffers->ids)},
      [CT_SECTION_DELTAS] = {buffers->deltas, (size_t)(encoder->columns.delta - buffers->deltas)},
      [CT_SECTION_EXTRA] = {buffers->extra, (size_t)(encoder->extra - buffers->extra)},
  };
  struct ct_block_header header = {
      .magic = CT_BLOCK_MAGIC,
      .header_bytes = sizeof(header),
      .ops = (uint32_t)columns[CT_SECTION_OPS].size,
      .first_tsc = encoder->first_tsc,
      .last_tsc = encoder->columns.last_tsc,
      .lost = encoder->block_lost,
      .depth_start = encoder->depth_start,
      .open_count = encoder->open_count,
      .interval_log2 = encoder->interval_start,
      .number = encoder->blocks++,
      .first_event = encoder->events,
      .first_enter = encoder->calls,
  };
  /* The names of functions first, so that what a killed recorder leaves behind has them. */
  ct_trace_writer_flush_functions(writer);

  count_ops(buffers->ops, header.ops, &header.calls, &header.returns);
  size_t bound = sizeof(header);
  for (int i = 0; i < CT_SECTIONS; i++) {
    bound += section_bound(columns[i].size);
  }
  uint8_t *block = ct_writer_thread_reserve(writer, bound);
  uint8_t *payload = block + sizeof(header), *end = payload;
  for (int i = 0; i < CT_SECTIONS; i++) {
    end = put_section(writer, end, columns[i], &header.section[i]);
  }
  header.payload_bytes = (uint32_t)(end - payload);
  header.payload_crc = ct_crc32c(0, payload, header.payload_bytes);
  header.header_crc = ct_crc32c(0, &header, sizeof(header));
  memcpy(block, &header, sizeof(header));
  uint32_t events = header.calls + header.returns;
  ct_writer_thread_commit(writer, CT_WRITER_BLOCK, encoder->stream, (size_t)(end - block), events);
  encoder->events += events;
  encoder->calls += header.calls;
}

void
ct_block_end(struct ct_encoder *encoder)
{
  if (encoder->buffers == NULL || encoder->columns.op == NULL) {
    return;
  }
  if (encoder->columns.op > encoder->buffers->ops && ct_writer_error(encoder->writer) == CT_OK) {
    queue_block(encoder);
  }
  encoder->columns.op = encoder->columns.op_limit = NULL;
}

int
ct_encoder_flush(struct ct_encoder *encoder)
{
  ct_block_end(encoder);
  ct_buffers_release(encoder);
  ct_detail_flush(encoder);
  return ct_writer_error(encoder->writer);
}

uint64_t
ct_encoder_events(const struct ct_encoder *encoder)
{
  uint32_t calls = 0, returns = 0;
  if (encoder->columns.op != NULL && ct_writer_error(encoder->writer) == CT_OK) {
    count_ops(encoder->buffers->ops, (size_t)(encoder->columns.op - encoder->buffers->ops), &calls, &returns);
  }
  /* relaxed: the writer thread only counts */
  uint64_t unwritten = atomic_load_explicit(&encoder->stream->unwritten_events, memory_order_relaxed);
  return encoder->events - unwritten + calls + returns;
}
