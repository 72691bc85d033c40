/* SPDX-License-Identifier: MIT */
/*
 * The file of the index, little endian:
 *
 *   head     struct ct_index_head
 *   chunks   struct ct_index_chunk for each: a part of a block of CT_INDEX_CHUNK steps or some more; block after block
 *   data     of each chunk: the words that it writes, those that it loads and does not write, and the units that it
 *            executes (keys.h), its ranges, and the state at its begin, if that is not the block's (checkpoint.h)
 */
#ifndef CT_STEPS_INDEX_INTERNAL_H
#define CT_STEPS_INDEX_INTERNAL_H

#include "steps/index.h"
#include "steps/keys.h"

#define CT_INDEX_MAGIC        "ctsidx7"
#define CT_INDEX_MAGIC_WRITES "ctswri1" /* of one that knows of writes only: a chunk is a block */
enum { CT_INDEX_CHUNK = 1 << 17 };

struct ct_index_head {
  char magic[8];
  uint64_t file_bytes; /* of the steps */
  uint64_t steps, blocks;
  uint64_t chunks, data_bytes;
  uint32_t blocks_check; /* of the blocks' heads: two files of the same size are distinguished */
  uint32_t check;        /* crc32c of what follows this head */
};

enum { CT_INDEX_WRITTEN, CT_INDEX_LOADED, CT_INDEX_UNITS, CT_INDEX_SETS };

struct ct_index_chunk {
  uint64_t at;        /* in the data */
  uint64_t step;      /* its first one */
  uint64_t registers; /* written, a bit each (ct_steps_index_register) */
  uint32_t block;
  uint32_t gap; /* its last one: step from the first of the block, + 1; 0: none */
  struct {
    uint32_t groups, bytes;
  } set[CT_INDEX_SETS];
  uint32_t ranges, state_bytes;
  uint8_t is_unread; /* some of its block could not be read: anything may be in it */
  uint8_t has_alone;
  uint8_t hole[6];
};

/* Of long stores: each byte of start to end is written. */
struct ct_index_range {
  uint64_t start, end;
};

struct ct_steps_index {
  struct ct_index_head head;
  uint8_t *bytes; /* chunks and data */
  size_t size, capacity;
  const struct ct_index_chunk *chunks; /* in bytes */
  size_t *first;                       /* chunk of each block, and their number */
  const uint8_t *data;
};

/* Reads all of the blocks, by a thread for each processor: index->bytes, head.chunks, head.data_bytes. 0, CT_ENOMEM. */
int ct_index_make(struct ct_steps_reader *reader, bool has_writes_only, struct ct_steps_index *index);

#endif
