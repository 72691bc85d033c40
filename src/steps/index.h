/* SPDX-License-Identifier: MIT */
/*
 * What each chunk of a thread's steps does, in some kilobytes: so that a question about a billion steps reads the
 * chunks that it is about. Kept in a file beside the steps; made anew when it does not belong to them.
 *
 * For each chunk, exactly: the registers that are written; the bytes of memory that are written, and those that are
 * loaded and not written; the units that are executed; the state at its begin.
 */
#ifndef CT_STEPS_INDEX_H
#define CT_STEPS_INDEX_H

#include "steps/checkpoint.h"
#include "steps/reader.h"

struct ct_steps_index;

/*
 * Reads it, or makes it (some 20 to 40 ns a step) and tries to write it; that it cannot be written is no error. 0,
 * CT_ENOMEM.
 */
int ct_steps_index_open(struct ct_steps_reader *reader, struct ct_steps_index **out);
void ct_steps_index_close(struct ct_steps_index *index); /* accepts NULL */

/* The same if it is there already; false: it is not, or does not fit the file. */
bool ct_steps_index_load(struct ct_steps_reader *reader, struct ct_steps_index **out);

/*
 * One of which only ct_steps_index_chunk_writes and ct_steps_index_chunk_gap are of use, and blocks have one chunk:
 * made some four times as soon, by a sweep (sweep.h). In a file of its own.
 */
int ct_steps_index_open_writes(struct ct_steps_reader *reader, struct ct_steps_index **out);
bool ct_steps_index_load_writes(struct ct_steps_reader *reader, struct ct_steps_index **out);

/*
 * For a search backwards that comes to a block after `read` steps: loads the index when that is sooner than to go on
 * without, and makes it when more than `most` have been read. 0 or CT_ENOMEM.
 */
int ct_steps_index_want(struct ct_steps_reader *reader, size_t block, uint64_t read, uint64_t most,
                        struct ct_steps_index **index);
/* Is it sooner? */
bool ct_steps_index_is_due(const struct ct_steps_reader *reader, size_t block, uint64_t read);

/* Whether a question about some of the steps is answered sooner with an index than without. */
bool ct_steps_index_is_worth(const struct ct_steps_reader *reader);

/* False: no byte of it is written in the block. */
bool ct_steps_index_may_write(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size);
/* False: nor is one loaded, as far as loads have values. */
bool ct_steps_index_may_touch(const struct ct_steps_index *index, size_t block, uint64_t address, uint64_t size);
/* False: the unit is not executed in the block. */
bool ct_steps_index_may_run(const struct ct_steps_index *index, size_t block, uint32_t unit);
/* False: no instruction is executed where it is in the block (CT_STREAM_STEP). */
bool ct_steps_index_has_alone(const struct ct_steps_index *index, size_t block);
/* True: something is not recorded in the block, or before it: the last time before that step, counted in the block. */
bool ct_steps_index_gap(const struct ct_steps_index *index, size_t block, uint64_t *step);

/*
 * Blocks are indexed in chunks of some 100,000 steps: *first is the number of the block's first one, and they follow
 * each other; how many there are, at least one. An event between two chunks is in the later one.
 */
size_t ct_steps_index_chunks(const struct ct_steps_index *index, size_t block, size_t *first);
/* Its first step. */
uint64_t ct_steps_index_chunk_step(const struct ct_steps_index *index, size_t chunk);
/* As ct_steps_index_may_write and so on. */
bool ct_steps_index_chunk_writes(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size);
/* open: NULL, or for each byte something; then only those are asked for of which that is `wanted`. */
bool ct_steps_index_chunk_touches(const struct ct_steps_index *index, size_t chunk, uint64_t address, uint64_t size,
                                  const uint8_t *open, uint8_t wanted);
/* False: the register is not written: a general one, CT_STEPS_INDEX_FLAGS, or a vector register from
 * CT_STEPS_INDEX_VECTORS on. */
enum { CT_STEPS_INDEX_FLAGS = 16, CT_STEPS_INDEX_VECTORS };
bool ct_steps_index_chunk_register(const struct ct_steps_index *index, size_t chunk, unsigned number);
bool ct_steps_index_chunk_runs(const struct ct_steps_index *index, size_t chunk, uint32_t unit);
bool ct_steps_index_chunk_has_alone(const struct ct_steps_index *index, size_t chunk);
bool ct_steps_index_chunk_gap(const struct ct_steps_index *index, size_t chunk, uint64_t *step);
/* The state at the last chunk's begin at or before the step; false: the block's begin is that. Nothing of it is
 * believed. */
bool ct_steps_index_checkpoint(const struct ct_steps_index *index, size_t block, uint64_t step,
                               struct ct_steps_checkpoint *checkpoint);
uint64_t ct_steps_index_bytes(const struct ct_steps_index *index);

#endif
