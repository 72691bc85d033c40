/* SPDX-License-Identifier: MIT */
/*
 * The files of a recording of bounded size, see pieces.c. The writer thread calls these, unless it is said otherwise.
 */
#ifndef CT_TRACE_PIECES_H
#define CT_TRACE_PIECES_H

#include "base/error.h"
#include "trace/block_file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define CT_PIECES_LIMIT_MIN (1ull << 20) /* more than the largest block */
#define CT_PIECES_LIMIT_MAX (1ull << 50)

struct ct_pieces; /* opaque */
struct ct_piece;  /* likewise */
struct ct_stream;
struct ct_trace_writer;

/* Files of at most limit bytes in all, besides the function table and the manifest. 0 or CT_ENOMEM. */
int ct_pieces_create(uint64_t limit, struct ct_pieces **out);
void ct_pieces_destroy(struct ct_pieces *pieces); /* accepts NULL */

/* The file of what the program wrote. */
struct ct_stream *ct_pieces_captures(struct ct_pieces *pieces);
/* The name of the file that is written to, in the trace directory; also where there are no pieces. */
void ct_stream_file_name(const struct ct_stream *stream, char name[CT_BLOCK_FILE_NAME_BYTES]);

/* A thread's file begins: header is that of its pieces, but for the version. */
void ct_pieces_create_stream(struct ct_trace_writer *writer, struct ct_stream *stream, const void *header);
/* It ends. */
void ct_pieces_close_stream(struct ct_trace_writer *writer, struct ct_stream *stream);
/* Before so many bytes are appended: old pieces go, a new one begins if need be. False: that failed, errno is set. */
bool ct_pieces_prepare(struct ct_trace_writer *writer, struct ct_stream *stream, size_t bytes);
/* The disk is full: the oldest piece goes; where it is the stream's own, another one of it begins. stream: what is to
 * be written, NULL: something else than a piece. False: nothing has gone. */
bool ct_pieces_make_room(struct ct_trace_writer *writer, struct ct_stream *stream);
/* A block was appended. */
void ct_pieces_wrote(struct ct_trace_writer *writer, struct ct_stream *stream, const void *data, size_t bytes,
                     uint32_t events);

struct ct_pieces_state {
  uint64_t limit;
  uint64_t bytes, events;           /* what is there */
  uint64_t gone_bytes, gone_events; /* what was */
  uint64_t begin_tsc;               /* everything after that is there; 0: everything */
  uint64_t since_ns;                /* likewise, CLOCK_MONOTONIC; its creation when nothing has gone */
};
/* Any thread. */
void ct_pieces_get_state(struct ct_pieces *pieces, struct ct_pieces_state *state);
/* Whether there are pieces of it, or may come. Any thread. */
bool ct_pieces_has(struct ct_pieces *pieces, const struct ct_stream *stream);

/*
 * Makes the manifest one of a recording of bounded size: version, "threads", "files", "output", "kept". When all is
 * written; any thread.
 */
int ct_pieces_amend(struct ct_trace_writer *writer, json_t *manifest);

#endif
