/* SPDX-License-Identifier: MIT */
/* Writing the detail of calls, beside a thread's events. Threads: as trace/writer.h. */
#ifndef CT_TRACE_DETAIL_H
#define CT_TRACE_DETAIL_H

#include "trace/encoder.h"

/* Appends a record: entry->record_bytes in all, those after the entry from words. */
void ct_encode_detail(struct ct_encoder *encoder, const struct ct_detail_entry *entry, const void *words);
/* Queues the block in progress, if there is one. */
void ct_detail_flush(struct ct_encoder *encoder);
/* The end of the file: with the encoder's. */
void ct_detail_close(struct ct_encoder *encoder);
void ct_detail_free(struct ct_encoder *encoder);
uint64_t ct_detail_records(const struct ct_encoder *encoder); /* so far */

#endif
