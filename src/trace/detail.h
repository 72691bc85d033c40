/* SPDX-License-Identifier: MIT */
/* Writing the detail of calls, beside a thread's events. Threads: as trace/writer.h. */
#ifndef CT_TRACE_DETAIL_H
#define CT_TRACE_DETAIL_H

#include "trace/encoder.h"

/* Appends a record: entry->record_bytes in all, those after the entry from words. */
void ct_encode_detail(struct ct_encoder *encoder, const struct ct_detail_entry *entry, const void *words);
/* Queues the block in progress, if there is one. */
void ct_detail_flush(struct ct_encoder *encoder);
/*
 * Which blocks are written: asked for each, with the times of its first and its last record, again and again as long as
 * the answer is HOLD; is_last: there is no other time. What is held lies in memory, max_bytes at most of all threads;
 * what does not fit any more is dropped, the oldest first. Before the first record; without it all are written.
 */
enum ct_detail_fate {
  CT_DETAIL_HOLD,
  CT_DETAIL_WRITE,
  CT_DETAIL_DROP,
  CT_DETAIL_REFUSE /* as DROP, for its size on disk */
};
typedef enum ct_detail_fate ct_detail_judge(void *context, uint64_t from_tsc, uint64_t to_tsc, bool is_last);
void ct_trace_writer_judge_detail(struct ct_trace_writer *writer, ct_detail_judge *judge, void *context,
                                  size_t max_bytes);
/* is_behind: from now on records are lost, unless blocks are written in less time, and as large as they are. */
void ct_trace_writer_set_behind(struct ct_trace_writer *writer, bool is_behind);
/* Asks about what is held of all threads, and about blocks in progress. */
void ct_trace_writer_reconcile_detail(struct ct_trace_writer *writer);
/* No mark comes any more: asks for the last time. Before the last manifest, when encoders are closed. */
void ct_trace_writer_end_detail(struct ct_trace_writer *writer);
/* Records that are not in the trace, because nobody wanted them; because they did not fit into memory; on disk. */
struct ct_detail_dropped {
  uint64_t unwanted, no_memory, no_disk;
};
/* What has been written of what was asked for, in files that nothing else bounds. */
uint64_t ct_trace_writer_detail_bytes(const struct ct_trace_writer *writer);
struct ct_detail_dropped ct_trace_writer_detail_dropped(const struct ct_trace_writer *writer);
/* Its file; NULL: there is none. Valid as long as the encoder. */
const struct ct_stream *ct_detail_stream(const struct ct_encoder *encoder);
/* The end of the file: with the encoder's. */
void ct_detail_close(struct ct_encoder *encoder);
void ct_detail_free(struct ct_encoder *encoder);
uint64_t ct_detail_records(const struct ct_encoder *encoder); /* so far */

#endif
