/* SPDX-License-Identifier: MIT */
/*
 * Reading ATF V2 behind the interface of a trace: atf_manifest.c makes the manifest one of ours, atf_functions.c the
 * table of functions, atf_cursor.c events, atf_details.c details. Ticks are nanoseconds of the files' clock.
 */
#ifndef CT_TRACE_ATF_INTERNAL_H
#define CT_TRACE_ATF_INTERNAL_H

#include "trace/atf.h"
#include "trace/cursor_internal.h"

#define ATF_FUNCTION_CACHE 4096u

struct ct_atf {
  json_t *manifest;    /* as the file has it */
  uint64_t *functions; /* their ids in the files, ascending; ours is the position */
  uint32_t function_count;
};

/* Goes into the directory of the (first) process, where a session's was named. */
int ct_atf_enter(struct ct_trace *trace, struct ct_diag *diag);
/* The manifest that was read is of ATF. */
bool ct_atf_is_manifest(const json_t *manifest);
/* Takes trace->manifest over and puts one of ours in its place. */
int ct_atf_manifest(struct ct_trace *trace, struct ct_diag *diag);
int ct_atf_functions_load(struct ct_trace *trace, struct ct_diag *diag);
void ct_atf_free(struct ct_atf *atf); /* accepts NULL */
/* What the thread's file says, where the manifest does not. */
void ct_atf_inspect(struct ct_trace *trace, struct ct_trace_thread *thread, bool count);
/* Our id of a function; the one after the table's where it is not in it. */
uint32_t ct_atf_function(const struct ct_atf *atf, uint64_t function);

/* An index as it lies on the disk. */
struct ct_atf_index {
  int fd; /* -1: none */
  uint64_t file_bytes;
  uint64_t events; /* whole ones */
  struct ct_atf_index_header header;
  struct ct_atf_index_footer footer;
  bool has_footer; /* else events are what is there */
  bool is_damaged; /* header or footer is not right */
};
/* fd is -1 afterwards when there is no such file; events is 0 when its header is of something else. */
void ct_atf_index_open(const struct ct_trace *trace, uint32_t index, struct ct_atf_index *out);
/* What is there now of a file that grows. */
void ct_atf_index_look(struct ct_atf_index *index);
void ct_atf_index_close(struct ct_atf_index *index);

/* The source of a cursor: what is unread, and how far it is. */
struct ct_atf_source {
  struct ct_atf_index index;
  uint64_t next;  /* the event after those of the buffer */
  size_t at, end; /* in it */
  uint32_t crc;   /* of the events up to next; known when all have been read in order */
  bool in_order;
  uint64_t cached_function[ATF_FUNCTION_CACHE];
  uint32_t cached[ATF_FUNCTION_CACHE];
  struct ct_atf_event buffer[CT_BATCH_EVENTS];
};
int ct_atf_source_open(struct ct_cursor *cursor);
void ct_atf_source_close(struct ct_atf_source *source); /* accepts NULL */
/* The next events before that time into the cursor's batch; 0 at the end, or when the next one is not before it. */
size_t ct_atf_batch(struct ct_cursor *cursor, uint64_t before_ns);
/* Goes to an event. */
void ct_atf_seek(struct ct_cursor *cursor, uint64_t event);
bool ct_atf_at_end(const struct ct_cursor *cursor);

struct ct_atf_details;
int ct_atf_details_open(struct ct_trace *trace, uint32_t thread, struct ct_atf_details **out, struct ct_diag *diag);
void ct_atf_details_close(struct ct_atf_details *details); /* accepts NULL */
const struct ct_detail *ct_atf_details_of(struct ct_atf_details *details, const struct ct_event *event);
enum ct_cursor_state ct_atf_details_state(const struct ct_atf_details *details);

#endif
