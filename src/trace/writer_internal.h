/* SPDX-License-Identifier: MIT */
/*
 * What writer.c (directory, tables, manifest), block.c (blocks, buffers, queue, writer thread) and
 * encoder.c (the rare ops) share. Nothing outside src/trace includes this.
 */
#ifndef CT_TRACE_WRITER_INTERNAL_H
#define CT_TRACE_WRITER_INTERNAL_H

#include "base/crc32c.h"
#include "trace/detail.h"
#include "trace/encoder.h"
#include "trace/format.h"
#include "trace/latency.h"
#include "trace/pieces.h"
#include "trace/store.h"
#include "trace/writer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <zstd.h>

#define OPEN_FILES_MAX   256u
#define FUNCTIONS_BUFFER (256u << 10)
#define CAPTURES_BUFFER  (256u << 10)
#define FRAMES_AT_START  64u
#define FRAMES_HELD_MAX  (9ull << 23) /* of all threads: 2.25 GiB */
#define QUEUE_BYTES_MIN  (1u << 20)   /* more than the largest piece of output needs */
#define QUEUE_WAKE_BYTES (256u << 10) /* as much ends the nap of the writer thread */
#define QUEUE_NAP_NS     (10u * 1000 * 1000)
#define QUEUE_OFTEN_NS   (30u * 1000 * 1000) /* so soon after the one before a record makes a nap worth it */

/*
 * The columns of a block in progress. Those for times and ids are sized for common
 * blocks (2.25 and 1.25 bytes an op); a block that needs more ends earlier.
 */
#define DELTAS_BYTES      (72u << 10)
#define IDS_BYTES         (40u << 10)
#define EXTRA_BYTES       (16u << 10)
#define LARGE_EXTRA_BYTES (128u << 10) /* of a block of calls with values */
#define LARGE_EXTRA_SHARE 8            /* of the sets of buffers one in so many, and one more, has as much */
#define COLUMN_SLACK      16u          /* the hot path stores a few bytes more than it keeps */

struct ct_buffers {
  struct ct_encoder *owner; /* NULL: free */
  uint32_t prediction[CT_PREDICTION_ENTRIES];
  uint8_t ops[CT_BLOCK_OPS_MAX];
  uint8_t deltas[DELTAS_BYTES + COLUMN_SLACK];
  uint8_t ids[IDS_BYTES + COLUMN_SLACK];
  uint64_t *near; /* NULL: not needed so far */
  uint8_t *extra; /* small_extra, or a larger one */
  uint32_t extra_bytes;
  uint8_t small_extra[EXTRA_BYTES];
  uint8_t open[CT_OPEN_BYTES_MAX];
};

/* One of a thread's files. The writer thread's, but for index and name, which never change, and the atomic. */
struct ct_stream {
  uint64_t file_bytes; /* whole blocks; 0: not even the header */
  uint64_t written_at; /* stamp of the last use of fd */
  int fd;              /* -1 while not open */
  uint32_t index;
  uint64_t device, inode;            /* of the file that was made for it; 0: not yet */
  const char *name;                  /* in the thread's folder */
  _Atomic uint64_t unwritten_events; /* in blocks that were queued, but came to nothing */
  /* Where blocks go to a store: */
  uint32_t tid, pid;
  char thread_name[CT_STORE_NAME_BYTES];
  struct ct_store_share share;
  /* Where it is in pieces (pieces.c); is_closed and first_piece under their lock: */
  struct ct_file_header header;
  struct ct_piece *first_piece, *last_piece;
  uint32_t piece_count;
  bool is_closed;
  uint64_t gone_events;
};

enum ct_writer_kind {
  CT_WRITER_CREATE = 1, /* the thread's directory and file, with its header as data */
  CT_WRITER_BLOCK,      /* appended to the file, all of it or nothing */
  CT_WRITER_CLOSE,      /* the file's end; no data */
  CT_WRITER_FUNCTIONS,  /* whole lines of the function table; no stream */
  CT_WRITER_CAPTURES,   /* whole records of what the program wrote; no stream */
  CT_WRITER_SKIP,       /* the rest of the ring was too short for the next record */
};

/* A piece of output in the queue; its data follows. */
struct ct_writer_record {
  struct ct_stream *stream;
  uint32_t kind;
  uint32_t record_bytes; /* with this header; a multiple of its size */
  uint32_t data_bytes;
  uint32_t events;    /* in the block */
  uint64_t queued_ns; /* of a block: when it was encoded */
};
static_assert(sizeof(struct ct_writer_record) == 32, "sizes are in units of it, so that CT_WRITER_SKIP always fits");

/*
 * Waking a thread costs as much as writing a block. So when the queue has run empty the writer thread naps
 * first, and is woken only when there is much to do; when nothing comes, it sleeps until something does.
 */
enum ct_writer_state { CT_WRITER_AWAKE, CT_WRITER_NAPPING, CT_WRITER_ASLEEP };

/*
 * The queue to the writer thread, a ring of records:
 *
 *   tail <= head:  free | tail: records | head: free                used = head - tail, or 0, or all
 *   head <  tail:  records | head: free | tail: records, SKIP       used = head + capacity - tail
 *
 * Bytes between tail and head are the writer thread's, the others the caller's; lock guards the borders.
 */
struct ct_writer_thread {
  pthread_t thread;
  pthread_mutex_t lock; /* also for the writer's first error */
  pthread_cond_t work;  /* for the writer thread, unless it is awake; with CLOCK_MONOTONIC */
  pthread_cond_t room;  /* for the caller, when caller_waits */
  bool running;
  enum ct_writer_state state;
  bool ending;
  bool caller_waits;
  /* What the caller has waited for the disk, in the time at hand and in the one before; the caller's. */
  struct ct_writer_wait {
    uint64_t begin_ns, waited_ns;
  } waits[2];
  uint64_t test_ns; /* that a test makes the disk slower by, at each block; the queue is small then */
  uint8_t *ring;
  size_t capacity, head, tail, used;

  /* the writer thread's */
  uint64_t done_ns; /* when there was nothing left to do, last */
  struct ct_stream *open_files[OPEN_FILES_MAX];
  uint32_t open_count, open_limit;
  uint64_t stamp;
  uint64_t functions_bytes;         /* in the table's file, whole lines */
  int captures_fd;                  /* -1: not yet */
  uint64_t captures_bytes;          /* in that file, whole records */
  struct ct_latency latency;        /* of blocks; read by others */
  struct ct_latency detail_latency; /* of the detail lane's blocks */
};

struct ct_trace_writer {
  char *path;
  int dir_fd;
  int functions_fd;
  atomic_int error; /* the first one; release when it is set, acquire where error_diag is read after it */
  struct ct_diag error_diag;

  struct ct_encoder **encoders;
  uint32_t encoder_count, encoder_capacity;

  struct ct_buffers **pool; /* pool_count exist, of at most pool_limit */
  uint32_t pool_count, pool_limit;
  bool has_near;         /* of files to come: values are written by their differences */
  uint32_t large_extras; /* of them, so many have a large one */

  ZSTD_CCtx *compressor;
  ZSTD_CCtx *quick_compressor;   /* for detail; NULL: not made yet */
  ct_detail_judge *detail_judge; /* NULL: all detail is written */
  void *detail_context;
  struct ct_detail_scratch *detail_scratch; /* NULL: not made yet */
  bool detail_is_over;                      /* no mark comes any more */
  bool detail_is_behind;                    /* records are lost soon */
  size_t detail_held_bytes, detail_held_max;
  struct ct_detail_dropped detail_dropped;
  uint64_t detail_bytes;                           /* of what was judged and written */
  struct ct_function_lines own_lines;              /* of ct_trace_writer_function */
  _Atomic(struct ct_function_chunk *) given;       /* lines not yet queued, newest first */
  _Atomic(struct ct_function_chunk *) spare_lines; /* memory for the next ones, if it is not NULL */
  _Atomic uint32_t function_count;
  uint8_t *captures; /* records not yet queued; NULL: none yet */
  size_t captures_fill;
  struct ct_diag
      changed; /* which file somebody else has changed, and how; the writer thread's, until it is waited for */
  uint64_t manifest_bytes;
  uint64_t sources_bytes;           /* 0: there is no such file */
  uint64_t prototypes_bytes;        /* likewise */
  _Atomic uint8_t *has_values;      /* a bit for each possible function id, reserved address space; NULL: no memory */
  uint64_t frames_held;             /* by all encoders, at most FRAMES_HELD_MAX */
  uint64_t queued_bytes;            /* for thread files and function table */
  _Atomic uint64_t unwritten_bytes; /* of queued_bytes, what came to nothing */
  struct ct_writer_thread writer_thread;
  struct ct_store *store;   /* NULL: blocks go to their files */
  bool store_described;     /* whose it is */
  bool store_stays;         /* when the writer is closed: what is in it has not got to the files */
  struct ct_pieces *pieces; /* NULL: files grow as they will */
};

/* Of the function table: the highest id whose line was given, plus 1. */
uint32_t ct_function_lines_count(const struct ct_trace_writer *writer);
/* Makes memory ready for the first lines: half of the time that they take is page faults. */
void ct_function_lines_begin(struct ct_trace_writer *writer);
void ct_function_lines_free(struct ct_trace_writer *writer);

/* A file header, with its checksum. */
static inline struct ct_file_header
ct_file_header_make(uint32_t index, uint32_t tid, uint32_t pid, uint16_t version)
{
  struct ct_file_header header = {.magic = CT_FILE_MAGIC,
                                  .version = version,
                                  .header_bytes = sizeof(header),
                                  .thread_index = index,
                                  .tid = tid,
                                  .pid = pid};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  return header;
}

/* writer.c: of one that is closed, or is closed no more. */
void ct_encoder_free(struct ct_encoder *encoder);
/* Adds sources.tsv and prototypes.tsv, as far as they were written, to the manifest's "files". */
void ct_writer_list_tables(const struct ct_trace_writer *writer, json_t *files);

/* latency.c: a block is in its file, by the writer thread. */
void ct_writer_note_block(struct ct_writer_thread *writer_thread, const struct ct_writer_record *record);
/* latency.c: the caller has waited for room in the queue since begin_ns. */
void ct_writer_note_wait(struct ct_writer_thread *writer_thread, uint64_t begin_ns);
/* writer_kept.c: a block or what the program wrote goes to the store. */
void ct_writer_put(struct ct_trace_writer *writer, enum ct_writer_kind kind, struct ct_stream *stream,
                   const uint8_t *data, size_t bytes, uint32_t events);
/* What is in the store goes to the files of the trace, and the manifest becomes theirs. */
int ct_writer_unload(struct ct_trace_writer *writer, json_t *manifest);
/* writer.c: writes a whole file beside and renames it. 0 or an errno value; the old file stays when this fails. */
int ct_file_replace(int dir_fd, const char *name, const char *text, size_t size, bool sync);

/* Keeps the first error; returns the one kept. */
int ct_writer_fail(struct ct_trace_writer *writer, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* All of it, at an offset, through interruptions; on failure errno is set and *written says how far it got. */
bool ct_writer_write_at(int fd, const void *data, size_t size, uint64_t offset, size_t *written);

/* The first error so far. relaxed: whoever needs the text after it calls ct_trace_writer_error */
static inline int
ct_writer_error(const struct ct_trace_writer *writer)
{
  return atomic_load_explicit(&writer->error, memory_order_relaxed);
}

/* block.c: the queue and its thread */
/* Starts the thread, with a queue of so many bytes; 0 or CT_ENOMEM. */
int ct_writer_thread_start(struct ct_trace_writer *writer, uint64_t queue_bytes);
/* Waits for all that is queued, ends the thread, closes the files. Does nothing when it does not run. */
void ct_writer_thread_stop(struct ct_trace_writer *writer);
void ct_writer_thread_wait(struct ct_trace_writer *writer);
/* Room for a record's data (at most QUEUE_BYTES_MIN / 2), waited for if need be; ct_writer_thread_commit must follow.
 */
uint8_t *ct_writer_thread_reserve(struct ct_trace_writer *writer, size_t size);
/* Queues the record whose data was put there: at most what was reserved. */
void ct_writer_thread_commit(struct ct_trace_writer *writer, enum ct_writer_kind kind, struct ct_stream *stream,
                             size_t data_bytes, uint32_t events);

/* block.c: the writer thread's files */
void ct_writer_close_file(struct ct_trace_writer *writer, struct ct_stream *stream);
/* False: it cannot be opened, which is the writer's error now. */
bool ct_writer_open_file(struct ct_trace_writer *writer, struct ct_stream *stream, int flags);

/* changed.c: files that somebody else changes while they are written; see there */
/* The stream's file, by its name. A descriptor; -1 and errno, ESTALE where it is not the one that was made for it. */
int ct_stream_open(const struct ct_trace_writer *writer, struct ct_stream *stream, const char *name, int flags);
/* Before something is appended to what has so many bytes: has it? */
void ct_writer_look(struct ct_trace_writer *writer, const char *name, int fd, uint64_t bytes);
void ct_stream_look(struct ct_trace_writer *writer, const struct ct_stream *stream);
/* At the end: compares with all files that the manifest lists, and adds a note to that if one is not as it was written.
 */
void ct_writer_note_changed(struct ct_trace_writer *writer, json_t *manifest);

/* buffers.c */
struct ct_buffers *ct_buffers_new(void); /* of nobody; NULL: no memory */
void ct_buffers_free(struct ct_buffers *buffers);
/* The latest values of the block in progress, which has none so far; NULL: no memory. */
uint64_t *ct_buffers_near(struct ct_buffers *buffers);
/* Between two blocks: the last one has ended for want of room in its column extra. */
void ct_buffers_grow_extra(struct ct_trace_writer *writer, struct ct_buffers *buffers);
/* Buffers of a free or the least recently used encoder; never NULL. */
struct ct_buffers *ct_buffers_acquire(struct ct_encoder *encoder);
void ct_buffers_release(struct ct_encoder *encoder);

/* block.c: blocks */
/* Begins a block for an event at tsc; the encoder has buffers. */
void ct_block_begin(struct ct_encoder *encoder, uint64_t tsc);
/* Queues the block in progress, if it has an op, and leaves the encoder without one. It keeps its buffers. */
void ct_block_end(struct ct_encoder *encoder);
/* Ops that the buffers still hold for certain. */
uint32_t ct_block_room(const struct ct_encoder *encoder);
/* Has the thread's directory and file created. */
void ct_thread_file_create(struct ct_encoder *encoder, uint32_t pid);

#endif
