/* SPDX-License-Identifier: MIT */
/*
 * A thread's file of steps, opened: its list of blocks, its units, and a block's records unpacked. Nothing that the
 * file says is believed. A block that is damaged is as none; after damage it goes on with the next head that is whole.
 * What is damaged, missing or cut off is noted when the file is opened, or when the block is read. Not for several
 * threads, but for several readers of one file.
 */
#ifndef CT_STEPS_READER_H
#define CT_STEPS_READER_H

#include "base/error.h"
#include "steps/units.h"

#include <pthread.h>
#include <stdatomic.h>

struct ct_steps_reader;

/*
 * Whoever reads much is asked now and then whether it is still wanted (ct_steps_options.progress). Once it is not, no
 * block of any reader with this watch can be read. The owner's thread asks; the others follow.
 */
struct ct_steps_watch {
  int (*progress)(void *context, uint64_t done, uint64_t total);
  void *context;
  pthread_t owner;
  uint64_t total; /* blocks */
  _Atomic uint64_t done;
  atomic_bool is_over; /* a hint: nothing else follows from it */
};

/* A block of records. */
struct ct_steps_place {
  uint64_t offset; /* of its head in the file */
  uint64_t stored, bytes;
  uint64_t first_step, steps;
  uint64_t first_tsc, last_tsc;
  uint32_t stamps, check;
  uint16_t packing;
  bool after_hole; /* blocks are missing before it */
};

struct ct_steps_modules {
  uint64_t first_step; /* from here on */
  char *text;
};

/* CT_ENOENT and the like; CT_EFORMAT: none of ours. */
int ct_steps_reader_open(const char *path, struct ct_steps_reader **out, struct ct_diag *diag);
/*
 * Of a file that is being written: what is not whole yet is no damage. ct_steps_reader_more takes what has been added;
 * is_last: nothing will be any more. 0, CT_ENOMEM.
 */
int ct_steps_reader_open_growing(const char *path, struct ct_steps_reader **out, struct ct_diag *diag);
int ct_steps_reader_more(struct ct_steps_reader *reader, bool is_last);
/* The head of a file alone; false: it cannot be read. */
bool ct_steps_reader_peek(const char *path, struct ct_steps_file *head);
void ct_steps_reader_close(struct ct_steps_reader *reader); /* accepts NULL */
/* watch: as long as the reader; NULL: nobody asks. */
void ct_steps_reader_set_watch(struct ct_steps_reader *reader, struct ct_steps_watch *watch);
struct ct_steps_watch *ct_steps_reader_watch(const struct ct_steps_reader *reader);
/* Asks for the owner, which waits while other threads read; of another thread nothing. */
void ct_steps_reader_ask(struct ct_steps_reader *reader);
/* What is read is not wanted any more. */
bool ct_steps_reader_is_over(const struct ct_steps_reader *reader);

const struct ct_steps_file *ct_steps_reader_head(const struct ct_steps_reader *reader);
const char *ct_steps_reader_path(const struct ct_steps_reader *reader);
struct ct_units *ct_steps_reader_units(struct ct_steps_reader *reader);
uint64_t ct_steps_reader_steps(const struct ct_steps_reader *reader); /* up to the end of the last block */
uint32_t ct_steps_reader_check(const struct ct_steps_reader *reader); /* of the heads of all blocks */
uint64_t ct_steps_reader_bytes(const struct ct_steps_reader *reader); /* of the file */
size_t ct_steps_reader_blocks(const struct ct_steps_reader *reader);
const struct ct_steps_place *ct_steps_reader_place(const struct ct_steps_reader *reader, size_t block);
/* The last block that begins at or before the step; the first one's number when there is none. */
size_t ct_steps_reader_find(const struct ct_steps_reader *reader, uint64_t step);
size_t ct_steps_reader_modules(const struct ct_steps_reader *reader, const struct ct_steps_modules **modules);

/* A line about what of the file could not be read; "": nothing so far. */
const char *ct_steps_reader_damage(const struct ct_steps_reader *reader);
/* Notes damage, if it is the first one. */
void ct_steps_reader_note(struct ct_steps_reader *reader, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A block in memory: records (bytes of them) and stamps. Zeroed before the first use. */
struct ct_steps_unpacked {
  uint8_t *bytes, *raw, *made; /* made: what ct_matched_undo takes */
  size_t size, capacity, raw_capacity, made_capacity;
  struct ct_stream_stamp *stamps; /* in raw, aligned */
  uint32_t stamp_count;
};
/* 0, CT_EFORMAT (noted), CT_ENOMEM, CT_EIO, CT_ECANCELED (by the watch). Into memory that is there from the last time.
 */
int ct_steps_reader_unpack(struct ct_steps_reader *reader, size_t block, struct ct_steps_unpacked *out);
void ct_steps_unpacked_free(struct ct_steps_unpacked *unpacked);
/* The rip that a block begins with which goes on where the one before ended; false: it does not. */
bool ct_steps_reader_begin(struct ct_steps_reader *reader, size_t block, uint64_t *rip);

#endif
