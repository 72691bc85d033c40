/* SPDX-License-Identifier: MIT */
/*
 * Writes a thread's file of steps (ring/itrace_stream.h). Errors stay: after one nothing more is written, and each
 * further call gives it again. What has been written is whole blocks, so it can be read whatever comes after; a file
 * that was not closed has no end, which readers tell.
 *
 * Costs a walk over the records and zstd's fastest, for whoever calls: a thread of its own. A writer belongs to one
 * thread at a time.
 */
#ifndef CT_STEPS_WRITER_H
#define CT_STEPS_WRITER_H

#include "base/error.h"
#include "ring/itrace_stream.h"

#include <stdbool.h>
#include <stddef.h>

struct ct_steps_writer;

/*
 * Packs and counts segments, apart from the file, so that several threads can at once: each has its own. The packer
 * itself has what was packed last until it is written; the stamps must stay until then.
 */
struct ct_steps_packer;
struct ct_unit_sizes;
struct ct_steps_packer *ct_steps_packer_create(void);      /* NULL: out of memory */
void ct_steps_packer_free(struct ct_steps_packer *packer); /* accepts NULL */
/* sizes: of all units of the records; NULL: not known. in_haste: faster, and a fifth more of it. */
void ct_steps_pack(struct ct_steps_packer *packer, const struct ct_unit_sizes *sizes, const void *bytes, size_t size,
                   const struct ct_stream_stamp *stamps, uint32_t stamp_count, bool in_haste);
/* The writer has to see the bytes again: they could not be counted without it. They must stay until then. */
bool ct_steps_packer_wants_bytes(const struct ct_steps_packer *packer);

/* Makes the file, or empties it. head: magic, version, head_bytes and check are put in here. 0 or an error. */
int ct_steps_writer_open(const char *path, const struct ct_steps_file *head, struct ct_steps_writer **out,
                         struct ct_diag *diag);
/* struct ct_steps_unit with its code, one after the other; before the segments that use them. 0 or an error. */
int ct_steps_writer_units(struct ct_steps_writer *writer, const void *bytes, size_t size);
/*
 * A segment's records, which begin with a context, and its stamps. 0; CT_EFORMAT: it is written, but a reader will not
 * be able to read all of it (this does not stay); or another error.
 */
int ct_steps_writer_segment(struct ct_steps_writer *writer, const void *bytes, size_t size,
                            const struct ct_stream_stamp *stamps, uint32_t stamp_count);
/* The same with what has been packed. */
int ct_steps_writer_packed(struct ct_steps_writer *writer, const struct ct_steps_packer *packed);
/* The text of /proc/PID/maps, as it is from the next segment on. 0 or an error. */
int ct_steps_writer_modules(struct ct_steps_writer *writer, const char *text, size_t size);
/* Nothing comes after this; closing does it, too. 0 or an error. */
int ct_steps_writer_end(struct ct_steps_writer *writer);
/* What has been written. */
struct ct_steps_written {
  uint64_t steps, bytes, raw_bytes; /* of records; of the file; of records before they were packed */
};
struct ct_steps_written ct_steps_writer_written(const struct ct_steps_writer *writer);
/* 0, or the first error, described in diag. Frees it; accepts NULL. */
int ct_steps_writer_close(struct ct_steps_writer *writer, struct ct_diag *diag);

#endif
