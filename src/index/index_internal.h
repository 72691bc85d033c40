/* SPDX-License-Identifier: MIT */
/* What build.c and read.c make, file.c writes and reads, and scan.c asks. Nothing outside src/index includes this. */
#ifndef CT_INDEX_INDEX_INTERNAL_H
#define CT_INDEX_INDEX_INTERNAL_H

#include "index/index.h"
#include "span/tree_sums.h"
#include "trace/batch.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
  CT_GRANULE_BLOCKS_MAX = 16,
  CT_GRANULE_MARKS = 1,      /* flag: there is something that replay shows whatever it is asked for */
  CT_GRANULE_UNFINISHED = 2, /* flag: calls ended in it that are not over (ct_span_is_unfinished) */
  CT_GRANULES_READ = 16,     /* so many are read at a time */
  CT_GRANULE_OFF = 1,        /* in the word of a long span: it was off the processor; */
  CT_GRANULE_CONTEXT = 2,    /* it was on another stack than the thread's own; */
  CT_GRANULE_WORD_SHIFT = 2, /* how it ended, and more by this: what is uncertain */
  CT_GRANULE_UNCERTAIN_SHIFT = 5,
  CT_INDEX_SHARE = 48, /* what is kept of a granule is to be at most this part of its blocks' bytes */
};

/*
 * As in the file:
 *      0    8  offset of its first block in the thread's file
 *      8    8  first_tsc, of its first block
 *     16    8  last_tsc, of its last event or, of the last granule, where what was open has ended
 *     24    8  first_ordinal, of its first call
 *     32    8  max_ticks, the longest duration that ended in it
 *     40    8  blob, where its bytes are among the thread's: state, functions, long spans, one after the other
 *     48   12  their sizes
 *     60    4  crc, CRC-32C of these bytes
 *     64    4  least_depth, and
 *     68    4  most_depth of spans that ended in it
 *     72    4  spans that ended in it
 *     76    1  blocks
 *     77    1  flags
 *     78    2  long_from: all spans of at least so many ticks are among its long ones; M << E as E << 8 | M
 */
struct ct_granule {
  uint64_t offset;
  uint64_t first_tsc, last_tsc;
  uint64_t first_ordinal;
  uint64_t max_ticks;
  uint64_t blob;
  uint32_t state_bytes, function_bytes, long_bytes;
  uint32_t crc;
  uint32_t least_depth, most_depth;
  uint32_t spans;
  uint8_t blocks;
  uint8_t flags;
  uint16_t long_from;
};
static_assert(sizeof(struct ct_granule) == 80, "as in the file");

/* Of E << 8 | M. */
static inline uint64_t
ct_index_ticks(uint32_t code)
{
  unsigned shift = code >> 8;
  return shift <= 56 ? (uint64_t)(code & 0xff) << shift : UINT64_MAX;
}

static inline uint64_t
ct_granule_long_ticks(const struct ct_granule *granule)
{
  return ct_index_ticks(granule->long_from);
}

/* A span that ended in a later granule than it began in. */
struct ct_crossing {
  uint64_t ordinal;
  uint32_t granule; /* where it ended */
  uint32_t depth;
};
static_assert(sizeof(struct ct_crossing) == 16, "as in the file");

/* The bytes of CT_GRANULES_READ granules in the file: as they are if that is how many they are, or one zstd frame. */
struct ct_index_frame {
  uint64_t offset;
  uint32_t bytes;
  uint32_t crc;
};

/* Arrays that grow, or lie in the file as it was read (capacity 0). */
struct ct_index_part {
  struct ct_granule *granules;
  struct ct_crossing *crossings; /* by ordinal, once it is finished */
  uint8_t *blob;
  uint64_t granule_count, crossing_count, blob_bytes;
  uint64_t granule_capacity, crossing_capacity, blob_capacity;
  /* Of the blob's granules, CT_GRANULES_READ at a time: they have been read from the file. NULL: all are there. */
  _Atomic uint8_t *is_read;
  struct ct_index_frame *frames; /* where they are in it */
};

struct ct_index_thread {
  struct ct_index_part part;
  /* What of it is for good, and goes into the file: up to the last whole granule, or all of a trace that is complete.
   */
  uint64_t kept_granules, kept_crossings, kept_blob;
  uint64_t end_offset;                /* of what is for good, in the thread's file */
  uint32_t last_crc;                  /* header_crc of the last block before that; 0: there is none */
  uint64_t last_offset;               /* where that block begins */
  bool is_whole;                      /* what is for good is all, with the calls open at its end */
  struct ct_span_bytes end_state;     /* what the builder knows at end_offset, where it is not all */
  uint64_t tail_end;                  /* of a recording that goes on: what was there when it was read; 0: all was */
  uint64_t long_bytes, payload_bytes; /* of spans that are kept whole, of all blocks */
  uint64_t spans, events, lost;
  uint64_t preempted; /* ticks; of an index with self times */
  uint64_t kept_spans;
  /* Its calling context tree as bytes (trees.c), up to what is for good, and if that is not all of it, of all. No
   * bytes: there is none, its edges are among those of the sums. */
  struct ct_span_bytes kept_tree, tree;
  bool kept_is_sums, is_sums; /* they are not a tree, but the sums of one that was too large (span/tree_sums.h) */
  bool is_damaged;
  bool is_out; /* not asked about */
};

struct ct_edge_table {
  struct ct_index_edge *slots; /* open addressing; calls 0: free */
  size_t capacity, count;      /* a power of two */
  uint64_t hash_key;           /* base/hash_key.h */
};

struct ct_index {
  struct ct_trace *trace;
  struct ct_index_thread *threads;
  uint32_t thread_count;
  struct ct_stats stats; /* of all */
  struct ct_index_edge *edge_list;
  size_t edge_count;
  enum ct_index_origin origin;
  bool is_piece;     /* of the trace: it is none of its file */
  bool keeps_selves; /* it is made of the whole trace at once, with self times */
  uint64_t file_bytes;
  uint8_t *file;        /* as it was read; parts lie in it until they grow */
  int fd;               /* what of it is read when it is asked for; -1: nothing */
  pthread_mutex_t lock; /* of what is read or made when it is asked for */
  /* Edges are made of these and of the trees. Under the lock until they are there. */
  struct ct_edge_table edges;
  bool has_edges;
};

/* granule.c: what is looked for in the bytes of granules. */
struct ct_granule_wanted {
  uint64_t least_ticks;
  const uint8_t *functions; /* as in struct ct_scan_filter */
  uint32_t fn_count;
  uint64_t last_fn; /* none of them is greater */
};
struct ct_granule_wanted ct_granule_wanted(const uint8_t *functions, uint32_t fn_count);
/* Calls of one of the functions ended in a granule, whose functions these bytes are: of so many ticks, rounded up. */
bool ct_granule_has(const uint8_t *at, const uint8_t *end, const struct ct_granule_wanted *wanted,
                    uint64_t *most_ticks);
/* The next span that is kept whole and is wanted, from *at. thread is set by the caller. 0 or CT_EFORMAT. */
int ct_granule_next_span(const uint8_t **at, const uint8_t *end, const struct ct_granule *granule,
                         const struct ct_granule_wanted *wanted, struct ct_span *span, bool *found);

/* places.c: the last granule that begins with this call or one before it. */
uint64_t ct_granule_of_ordinal(const struct ct_index_part *part, uint64_t ordinal);
/* places.c: gives the trace what is open where the last granule begins before which nothing is that late, of a thread.
 * 0 or CT_ENOMEM. */
int ct_index_give_past(const struct ct_index *index, uint32_t thread, uint64_t from_tsc);

/* scan_cache.c: a granule that was asked for. */
struct ct_scan_kept {
  const struct ct_index *index;
  uint32_t thread, granule;
  uint64_t asked;        /* when, the last time; 0: the entry is free */
  uint32_t pins;         /* scans that are at it */
  bool again;            /* it was asked for before that, too: it is worth its memory */
  bool is_there;         /* its spans are: */
  struct ct_span *spans; /* as they ended */
  size_t count, capacity;
  uint32_t *chains[2]; /* of the spans, by ordinal, and by the parent's; NULL: not asked yet */
};
/* Whether so much, which one scan asks for, is to be kept: a larger one would drive out what it has put there. */
bool ct_scan_cache_fits(const struct ct_scan_cache *cache, size_t granules, uint64_t spans);
/* Its entry; NULL: there is none to be had. */
struct ct_scan_kept *ct_scan_cache_ask(struct ct_scan_cache *cache, const struct ct_index *index, uint32_t thread,
                                       uint32_t granule);
/* With all that spans gives, about so many. False: it cannot be kept, or read; the entry is free then. */
bool ct_scan_cache_fill(struct ct_scan_cache *cache, struct ct_scan_kept *entry, struct ct_spans *spans,
                        size_t expected);
/* The spans with that ordinal, or parent's ordinal, in the order of their ends, and some others. False: out of memory.
 */
struct ct_scan_chain {
  const struct ct_span *spans;
  const uint32_t *next;
  uint32_t at; /* the number of the next one and 1; 0: there are no more */
};
bool ct_scan_kept_find(struct ct_scan_kept *entry, bool parents, uint64_t key, struct ct_scan_chain *chain);

/* edges.c */
int ct_edges_add(struct ct_edge_table *table, uint32_t caller, uint32_t fn, uint64_t calls, uint64_t total_ticks,
                 uint64_t self_ticks);
int ct_edges_merge(struct ct_edge_table *into, const struct ct_edge_table *from);
void ct_edges_free(struct ct_edge_table *table);
/* As bytes, and back: adds what is in them; CT_EFORMAT. */
int ct_edges_put(const struct ct_edge_table *table, struct ct_span_bytes *bytes);
int ct_edges_take(struct ct_edge_table *table, const uint8_t *bytes, size_t size);
/* A list of them, by calls, the most first. *list is to be freed. */
int ct_edges_list(const struct ct_edge_table *table, struct ct_index_edge **list, size_t *count);

/* build.c: what is after the threads' parts for good, with what comes for good added to stats and edges, and the rest
 * to those of the tail. */
struct ct_index_sums {
  struct ct_stats stats;
  struct ct_edge_table edges;
};
int ct_index_build(struct ct_index *index, unsigned workers, const struct ct_view_progress *progress,
                   struct ct_index_sums *kept, struct ct_index_sums *tail, struct ct_diag *diag);
int ct_index_sums_init(struct ct_index_sums *sums, const struct ct_trace *trace);
void ct_index_sums_free(struct ct_index_sums *sums);

/*
 * file.c. Loads what fits, and of that only what is wanted besides what it says of each thread: the rest is neither
 * read nor looked at. CT_ENOENT there is none, CT_EFORMAT: it does not fit.
 */
enum ct_index_parts {
  CT_INDEX_SUMS = 1,
  CT_INDEX_LISTS = 2,
  CT_INDEX_BLOBS = 4 /* with the lists */,
  CT_INDEX_TREES = 8,
  CT_INDEX_ALL = 15,
  CT_INDEX_SELVES = 16 /* with the sums: self times, if it has them */
};
int ct_index_load(struct ct_index *index, unsigned parts, struct ct_index_sums *kept);
/* The bytes of a granule are where it says, as they were written. 0 or CT_EFORMAT: the file has become another one. */
int ct_granule_fetch(const struct ct_index *index, const struct ct_index_part *part, uint64_t granule);
/* Likewise all of them, and nothing is read from the file any more. */
int ct_index_fetch_all(struct ct_index *index);
/* Without a word where it cannot be written. */
void ct_index_store(struct ct_index *index, const struct ct_index_sums *kept);
/* part.c */
void ct_index_part_free(struct ct_index_part *part);
/* Places, sizes and numbers are in their order, and within what there is. */
bool ct_index_part_makes_sense(const struct ct_index_part *part);
/* Arrays that lie in the file become the part's own. 0 or CT_ENOMEM. */
int ct_index_part_own(struct ct_index_part *part);

/* lists_bytes.c: what is kept of a thread's granules and crossings as bytes, appended; and back, as the part's own.
 * CT_ENOMEM, CT_EFORMAT. */
int ct_lists_put(const struct ct_index_thread *thread, struct ct_span_bytes *bytes);
int ct_lists_take(const uint8_t *bytes, size_t size, struct ct_index_part *part);

/* trees.c: a tree as bytes, appended, and back. CT_ENOMEM, CT_EFORMAT. */
int ct_tree_put(const struct ct_span_tree *tree, struct ct_span_bytes *bytes);
int ct_tree_take(const uint8_t *bytes, size_t size, struct ct_span_tree *tree);
/* The calls of each function by each other one, as the spans themselves are added. 0 or CT_ENOMEM. */
int ct_tree_add_edges(const struct ct_span_tree *tree, struct ct_edge_table *edges);
int ct_trees_add_edges(const struct ct_index *index, struct ct_edge_table *edges); /* of all that it has */

/* sums_bytes.c: the sums of a tree as bytes, appended, and back. CT_ENOMEM, CT_EFORMAT. */
int ct_tree_sums_put(struct ct_tree_sums *sums, struct ct_span_bytes *bytes);
int ct_tree_sums_take(const uint8_t *bytes, size_t size, struct ct_tree_sums *sums);
int ct_tree_sums_add_edges(const struct ct_tree_sums *sums, struct ct_edge_table *edges); /* as ct_tree_add_edges */

/*
 * growing.c: the tree of a thread while it is made. When it gets too large it is added to sums, and begins anew; when
 * these cannot be made either, edges are kept alone.
 */
struct ct_growing_tree {
  bool is_there;
  struct ct_span_tree tree;
  struct ct_tree_sums sums;
  bool has_sums;
  uint32_t fold_at; /* nodes: then it is added */
};
struct ct_index_job;
/* Goes on from what is kept of the thread, which will have no more bytes of blocks than these. 0 or CT_ENOMEM. */
int ct_growing_tree_begin(struct ct_growing_tree *growing, const struct ct_index_thread *thread, unsigned workers,
                          uint64_t payload_bytes);
void ct_growing_tree_destroy(struct ct_growing_tree *growing); /* accepts a zeroed one */
/*
 * In place of what the bytes were. The tree is not kept where that is too large for so many bytes of blocks: *is_there
 * is false then, and the bytes none.
 */
int ct_growing_tree_keep(struct ct_growing_tree *growing, struct ct_spans *spans, struct ct_index_job *job,
                         uint64_t payload_bytes, struct ct_span_bytes *bytes);
/* It is too large: added to the sums. CT_ENOENT: that cannot be. */
int ct_growing_tree_fold(struct ct_growing_tree *growing, struct ct_spans *spans, struct ct_index_job *job);
int ct_growing_tree_add_edges(const struct ct_growing_tree *growing, struct ct_edge_table *edges);

/* stats_bytes.c: statistics as bytes, without self times. */
int ct_stats_put(const struct ct_stats *stats, struct ct_span_bytes *bytes);
/* Adds what is in the bytes; CT_EFORMAT. */
int ct_stats_take(struct ct_stats *stats, const uint8_t *bytes, size_t size);
/* The self times of the functions that these statistics have; where there are none kept, no bytes. */
int ct_selves_put(const struct ct_stats *stats, struct ct_span_bytes *bytes);
/* Into statistics that were taken, which keep self times then; CT_EFORMAT. */
int ct_selves_take(struct ct_stats *stats, const uint8_t *bytes, size_t size);

#endif
