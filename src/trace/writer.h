/* SPDX-License-Identifier: MIT */
/*
 * Writing a trace directory. One ct_encoder per thread of the target; the drain
 * calls the inline functions of trace/encoder.h for each event, and this file's
 * functions for everything rare. Not thread safe: one writer belongs to one thread at a time.
 *
 * The calls build blocks and queue them; a thread of the writer's own, which takes no signals, creates
 * the files and writes them. A call waits for the disk only when the queue is full. One queue for all:
 * what was queued first is in its file first, so function lines are there before the blocks that use them.
 * What the queue holds is lost when the process is killed.
 *
 * A failure to write (full disk, read-only) is kept in the writer as soon as the writer thread meets
 * it: what is still in the queue is dropped, all later calls do nothing and return the same code, what is on
 * the disk stays readable, ct_trace_writer_error gives the line. A file-size limit (RLIMIT_FSIZE) is such
 * a failure too: SIGXFSZ does not come.
 *
 * Memory: max_buffer_bytes is divided into the queue (a third, at least 1 MiB) and the columns of the
 * blocks in progress (the rest, at least one set of some 0.2 MB); the frames of the stacks come on top, and where calls
 * have values up to a fourth more for these, and 0.1 MB.
 */
#ifndef CT_TRACE_WRITER_H
#define CT_TRACE_WRITER_H

#include "base/error.h"
#include "trace/latency.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ct_trace_writer;
struct ct_encoder;

/* Creates DIR (must not exist unless it is an empty directory). For max_buffer_bytes see above. */
int ct_trace_writer_create(const char *dir, uint64_t max_buffer_bytes, struct ct_trace_writer **out,
                           struct ct_diag *diag);
/* A descriptor of its directory, which stays the writer's. */
int ct_trace_writer_directory(const struct ct_trace_writer *writer);
/* Flushes and closes every encoder and waits for the disk; accepts NULL. Returns the first error of the recording. */
int ct_trace_writer_close(struct ct_trace_writer *writer, struct ct_diag *diag);
int ct_trace_writer_error(const struct ct_trace_writer *writer, struct ct_diag *diag);
/* Processor time of its thread; 0: not known. By who creates and closes it. */
uint64_t ct_trace_writer_cpu_ns(const struct ct_trace_writer *writer);
/* Waits until all that was queued is in its file, or has failed to get there. */
int ct_trace_writer_sync(struct ct_trace_writer *writer);
/* Level of zstd for the blocks from now on; 1 at first, negative ones are faster and larger. */
void ct_trace_writer_set_level(struct ct_trace_writer *writer, int level);

/*
 * Threads to come have values: they are written by how they differ from those before, in files of a version of their
 * own. Not those of a last stretch or of a bounded size, whose version says that.
 */
void ct_trace_writer_near_values(struct ct_trace_writer *writer);

/*
 * Appends one function table line; ids are given in order from 0 by the caller. Buffered, and queued
 * before the next block or by ct_trace_writer_flush_functions.
 */
int ct_trace_writer_function(struct ct_trace_writer *writer, uint32_t id, uint32_t module, uint64_t address,
                             uint64_t size, const char *mode, const char *raw_name);
int ct_trace_writer_flush_functions(struct ct_trace_writer *writer);
/*
 * The same by one thread more, beside the writer's caller and without waiting for it: {writer} at first, then lines
 * added, then their end. From then on they are queued before the next block. Out of memory is the writer's failure.
 */
struct ct_function_lines {
  struct ct_trace_writer *writer;
  struct ct_function_chunk *chunk; /* NULL: none is added */
  uint32_t count;                  /* the highest id, plus 1 */
};
int ct_function_lines_add(struct ct_function_lines *lines, uint32_t id, uint32_t module, uint64_t address,
                          uint64_t size, const char *mode, const char *raw_name);
void ct_function_lines_end(struct ct_function_lines *lines);

/*
 * Writes manifest.json atomically (temporary file, rename) before it returns, past the queue; one with the
 * state "complete" waits for the queue first. Borrows the object. Tried even after a failure, when it
 * still returns that failure's code.
 */
int ct_trace_writer_manifest(struct ct_trace_writer *writer, const json_t *manifest);
/* After the last one, which says it too: files of the trace that somebody else has changed; "": none. */
const char *ct_trace_writer_changed(const struct ct_trace_writer *writer);

/* Writes sources.tsv (docs/format.md) in the same way. 0 or an error, which is not kept. */
int ct_trace_writer_sources(struct ct_trace_writer *writer, const char *text, size_t size);
/* The same of prototypes.tsv; text is what follows its first line. */
int ct_trace_writer_prototypes(struct ct_trace_writer *writer, const char *text, size_t size);
/* ... into a directory that is not the writer's; *bytes: of the file. */
int ct_trace_put_prototypes(int dir_fd, const char *text, size_t size, uint64_t *bytes);
/* An argument or result of the function has been encoded. */
bool ct_trace_writer_has_values(const struct ct_trace_writer *writer, uint32_t fn);
/* Writes crash.json in the same way (docs/format.md). Any thread may call it. 0 or an error, which is not kept. */
int ct_trace_writer_crash(struct ct_trace_writer *writer, const json_t *crash);
/* The same of stacks.json. */
int ct_trace_writer_stacks(struct ct_trace_writer *writer, const json_t *stacks);

/*
 * Appends a record of what the program wrote; crc and record_bytes are filled in. Buffered, and queued by
 * ct_trace_writer_flush_captures, or when it is much.
 */
struct ct_capture_record;
int ct_trace_writer_capture(struct ct_trace_writer *writer, struct ct_capture_record *record, const void *data,
                            size_t bytes);
int ct_trace_writer_flush_captures(struct ct_trace_writer *writer);

/*
 * A new thread stream DIR/thread_<index>/index.ctb, index not yet used. The encoder is owned by the writer. Without
 * memory for it (CT_ENOMEM) the writer goes on with the others.
 */
int ct_trace_writer_thread(struct ct_trace_writer *writer, uint32_t index, uint32_t tid, uint32_t pid,
                           struct ct_encoder **out);
/* Ends the thread's stream: flush, have the file closed, give the buffers back (counters stay readable). */
int ct_encoder_close(struct ct_encoder *encoder);
/* Queues the block in progress, if any (the drain calls it when the block has become old). */
int ct_encoder_flush(struct ct_encoder *encoder);

/*
 * A recording that keeps the last stretch only (store.h), from before its first thread on: blocks and what the program
 * wrote go to the store, which is the writer's then. The complete manifest is written after they have gone from there
 * to the files. When that fails, the store outlives the writer.
 */
struct ct_store;
struct ct_store_state;
struct ct_kept_sums;
void ct_trace_writer_keep(struct ct_trace_writer *writer, struct ct_store *store);
/* The process whose events these are. Returns the path of the store. */
const char *ct_trace_writer_keep_of(struct ct_trace_writer *writer, pid_t pid);
/* False: it does not. Any thread, while the writer lives. */
bool ct_trace_writer_kept(struct ct_trace_writer *writer, struct ct_store_state *state);
/* The name of its thread, for who finds the store. */
void ct_encoder_name(struct ct_encoder *encoder, const char *name);
/*
 * A recording of bounded size (pieces.h), from before its first thread on: the oldest of its files go. 0 or CT_ENOMEM.
 */
struct ct_pieces_state;
int ct_trace_writer_limit(struct ct_trace_writer *writer, uint64_t bytes);
/* False: it is not. Any thread, while the writer lives. */
bool ct_trace_writer_limited(struct ct_trace_writer *writer, struct ct_pieces_state *state);
/* Frees the encoder of a thread that is closed and of which nothing is kept any more. False: something is. */
bool ct_trace_writer_retire(struct ct_trace_writer *writer, struct ct_encoder *encoder);
/* Queues all blocks in progress, function lines, and what the program wrote. */
void ct_trace_writer_flush(struct ct_trace_writer *writer);
/*
 * Writes a trace of what the store holds up to a sequence number, into an empty directory, whole and on the disk;
 * manifest is amended. Any thread, while the writer lives.
 */
int ct_trace_writer_dump(struct ct_trace_writer *writer, uint64_t end_sequence, json_t *manifest, int dir_fd,
                         const char *path, struct ct_kept_sums *sums, struct ct_diag *diag);
/* Opens a new or empty directory, as ct_trace_writer_create does. */
int ct_trace_directory_create(const char *path, int *fd, bool *made, struct ct_diag *diag);

/* Both count what is queued as written, until it turns out that it could not be; exact after ct_trace_writer_sync. */
uint64_t ct_encoder_events(const struct ct_encoder *encoder); /* enter+tail+point+return */
uint64_t ct_trace_writer_bytes(const struct ct_trace_writer *writer);
/* Its caller has waited for the disk for a quarter of the last second or so, or of that since. By the caller. */
bool ct_trace_writer_waits(const struct ct_trace_writer *writer);
/* How long blocks have taken from being encoded to their file; of a trace of the last stretch: when it was written. */
struct ct_latency_figures ct_trace_writer_latency(const struct ct_trace_writer *writer);
struct ct_latency_figures ct_trace_writer_detail_latency(const struct ct_trace_writer *writer); /* of detail's */

#endif
