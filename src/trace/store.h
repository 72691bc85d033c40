/* SPDX-License-Identifier: MIT */
/*
 * The memory of a recording that keeps the last stretch only: a file of fixed size, mapped by the recorder, with a
 * header and a circular log of records. A record is one block as it would stand in one of its thread's files, or some
 * of what the program wrote. The oldest records go when room is needed, whatever thread they are of, or when they are
 * too old.
 *
 *   0        8192                                                      8192 + capacity
 *   | header | ... free | tail: record, record, ... record | head: free ... |
 *
 * head and tail are positions that only grow; position p lies at p mod capacity. A record does not go over the end: a
 * skip record fills what is left there, or nothing where not even its header fits.
 *
 * Whenever the recorder is killed, the records from tail to head are whole: tail has moved before the bytes after it
 * are written over, head moves when the record before it is written.
 *
 * The recorder never reads what is in the file to find its way: an index in its own memory has that. A reader after a
 * recorder's death believes nothing: ct_store_open and ct_store_next check each length and each checksum.
 *
 * The file is 0600 in the runtime directory or in /dev/shm (base/runtime_dir.h), allocated whole, and locked (fcntl) as
 * long as the recorder lives.
 */
#ifndef CT_TRACE_STORE_H
#define CT_TRACE_STORE_H

#include "base/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CT_STORE_SUFFIX       ".store"
#define CT_STORE_MAGIC        0x54535443u /* "CTST" */
#define CT_STORE_RECORD_MAGIC 0x52535443u /* "CTSR" */
#define CT_STORE_VERSION      1u
#define CT_STORE_HEADER_BYTES 8192u
#define CT_STORE_PATH_BYTES   4096u
#define CT_STORE_NAME_BYTES   32u
#define CT_STORE_BYTES_MIN    (1ull << 20) /* more than the largest record */
#define CT_STORE_BYTES_MAX    (1ull << 40)
#define CT_STORE_DATA_MAX     (1u << 19)

enum ct_store_kind { CT_STORE_SKIP = 0, CT_STORE_BLOCK = 1, CT_STORE_CAPTURES = 2, CT_STORE_DETAIL = 3 };

/*
 * offset size
 *      0    4  magic "CTST"
 *      4    4  version, 1
 *      8    8  capacity of the log, a multiple of 32
 *     16    8  limit_ns, 0: none
 *     24    8  device and
 *     32    8  inode of the trace directory
 *     40    4  pid of the recorder
 *     44    4  pid of the process, 0: not known
 *     48    8  start_wall_ns
 *     56    4  reserved, 0
 *     60    4  header_crc, CRC-32C of the 60 bytes before
 *     64    8  tail, position of the oldest record
 *     72    8  head, position after the newest one
 *     80    8  sequence number of the oldest record
 *     88    8  begin_tsc, of the last event in the records that have gone; 0: none has
 *     96    8  events in the records that have gone
 *    128 4096  path of the trace directory, with a zero byte
 */
struct ct_store_header {
  uint32_t magic;
  uint32_t version;
  uint64_t capacity;
  uint64_t limit_ns;
  uint64_t device;
  uint64_t inode;
  int32_t recorder;
  int32_t pid;
  uint64_t start_wall_ns;
  uint32_t reserved;
  uint32_t header_crc;
  uint64_t tail;
  uint64_t head;
  uint64_t first_sequence;
  uint64_t begin_tsc;
  uint64_t gone_events;
  uint64_t reserved2[3];
  char path[CT_STORE_PATH_BYTES];
};
static_assert(offsetof(struct ct_store_header, header_crc) == 60, "store header");
static_assert(offsetof(struct ct_store_header, tail) == 64, "store header");
static_assert(offsetof(struct ct_store_header, path) == 128, "store header");
static_assert(sizeof(struct ct_store_header) <= CT_STORE_HEADER_BYTES, "store header");

/*
 * offset size
 *      0    4  magic "CTSR"
 *      4    4  record_bytes, with this header; a multiple of 32
 *      8    4  data_bytes after this header
 *     12    4  kind (enum ct_store_kind)
 *     16    8  sequence, one more than that of the record before
 *     24    4  thread index
 *     28    4  tid
 *     32    4  pid
 *     36    4  crc, CRC-32C of these 128 bytes with this field 0
 *     40    8  last_tsc, of the data
 *     48    8  put_tsc and
 *     56    8  put_ns: both clocks when it was put here
 *     64   32  name of the thread, with a zero byte
 *     96    4  events
 *    100   28  reserved, 0
 */
struct ct_store_record {
  uint32_t magic;
  uint32_t record_bytes;
  uint32_t data_bytes;
  uint32_t kind;
  uint64_t sequence;
  uint32_t thread;
  uint32_t tid;
  uint32_t pid;
  uint32_t crc;
  uint64_t last_tsc;
  uint64_t put_tsc;
  uint64_t put_ns;
  char name[CT_STORE_NAME_BYTES];
  uint32_t events;
  uint32_t reserved[7];
};
static_assert(sizeof(struct ct_store_record) == 128, "store record");
static_assert(offsetof(struct ct_store_record, name) == 64, "store record");

/* ---- the recorder's side ---- */

struct ct_store; /* opaque */

/* What of one thread is in the store; the thread's, which outlives its records. */
struct ct_store_share {
  uint64_t records, events; /* in the store */
  uint64_t gone_events;     /* were in it */
};

/*
 * Makes a store of so many bytes in all; what is older than limit_ns goes too (0: nothing for its age alone).
 * CT_ENOSPC with the reason where there is too little room.
 */
int ct_store_create(uint64_t bytes, uint64_t limit_ns, struct ct_store **out, struct ct_diag *diag);
/* Whose it is, for who finds it later: the trace directory, which is open, and its path. */
void ct_store_describe(struct ct_store *store, int dir_fd, const char *path, pid_t pid);
/* Unmaps and closes it; keep: the file stays, for contrail recover. Accepts NULL. */
void ct_store_destroy(struct ct_store *store, bool keep);
const char *ct_store_path(const struct ct_store *store);

struct ct_store_item {
  enum ct_store_kind kind;
  uint32_t thread, tid, pid, events;
  const char *name; /* NULL: none */
  uint64_t last_tsc;
  struct ct_store_share *share; /* NULL: none */
};
/* Adds a record with these data, at most CT_STORE_DATA_MAX. One thread at a time, besides others that read. */
void ct_store_put(struct ct_store *store, const struct ct_store_item *item, const void *data, size_t bytes);

/* Whether records with that share are in the store. Any thread. */
bool ct_store_has(struct ct_store *store, const struct ct_store_share *share);

struct ct_store_state {
  uint64_t capacity, limit_ns;
  uint64_t bytes, events;                 /* what is in it */
  uint64_t gone_events;                   /* what was */
  uint64_t begin_tsc;                     /* everything after that is in it; 0: everything */
  uint64_t since_ns;                      /* likewise, CLOCK_MONOTONIC; its creation when nothing has gone */
  uint64_t first_sequence, next_sequence; /* of its records; first_sequence == next_sequence: there is none */
};
/* What is too old by then goes first. Any thread. */
void ct_store_get_state(struct ct_store *store, struct ct_store_state *state);
/*
 * A copy of the record with that sequence number, its data in *data, which grows by realloc. CT_ENOENT: it has gone (or
 * never was). Any thread.
 */
struct ct_store_buffer {
  uint8_t *data;
  size_t capacity;
};
int ct_store_copy(struct ct_store *store, uint64_t sequence, struct ct_store_record *record,
                  struct ct_store_buffer *buffer);

/* ---- after its death ---- */

struct ct_store_image; /* opaque: a store whose recorder is dead */

/*
 * Opens a store in a directory of the user's own. CT_EEXIST: its recorder lives; CT_EACCES: it is not ours, or no
 * regular file; CT_EFORMAT: it is no store, or its header is damaged.
 */
int ct_store_open(int dir_fd, const char *name, struct ct_store_image **out, struct ct_diag *diag);
void ct_store_close(struct ct_store_image *image); /* accepts NULL */
/* Checked: sizes, positions within each other, path ended by a zero byte. */
const struct ct_store_header *ct_store_image_header(const struct ct_store_image *image);
/*
 * The next whole record, from the oldest on; its data in *buffer. False: there is none. What the record says of its
 * data is checked as far as sizes go, the data themselves are not.
 */
bool ct_store_next(struct ct_store_image *image, struct ct_store_record *record, struct ct_store_buffer *buffer);
/* How many times there was none where one should be. */
uint64_t ct_store_image_gaps(const struct ct_store_image *image);

#endif
