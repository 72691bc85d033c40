/* SPDX-License-Identifier: MIT */
/*
 * What reader.c (directory and threads), manifest.c, functions.c and cursor.c share.
 * Nothing outside src/trace includes this.
 */
#ifndef CT_TRACE_READER_INTERNAL_H
#define CT_TRACE_READER_INTERNAL_H

#include "trace/batch.h"
#include "trace/block_file.h"
#include "trace/format.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
#include <zstd.h>

/* All frames that are open where the block at offset begins. It stays as it is as long as the range does. */
struct ct_trace_past {
  struct ct_trace_past *next;
  uint64_t offset;
  size_t count;
  struct ct_trace_past_frame frames[]; /* by context and depth */
};

/* What unpacking one block needs besides the cursor's own storage; lent to one cursor at a time. */
struct ct_unpacker {
  struct ct_unpacker *next;
  ZSTD_DCtx *decompressor;
  uint8_t *input; /* the payload as stored */
  size_t input_capacity;
};

struct ct_trace_source {
  const char *file; /* NULL: not known */
  uint32_t line;    /* 0: not known */
};

struct ct_atf;

/* A part of functions.tsv that came later, or the name of a function whose line is not there; names point into it. */
struct ct_functions_text {
  struct ct_functions_text *next;
  char text[];
};

struct ct_trace {
  char *path;
  int dir_fd;
  json_t *manifest;
  struct ct_atf *atf; /* of a trace in ATF V2, see atf_internal.h; NULL: it is ours */
  json_t *crash;      /* NULL: none */
  json_t *stacks;     /* likewise */
  bool complete;
  bool recovered;            /* complete, but what contrail had not written when it was killed */
  struct ct_trace_kept kept; /* of a trace of the last stretch */
  uint64_t bytes;
  char **damage; /* a line for each file that is not as the manifest says, damage_count of them */
  uint32_t damage_count;
  uint64_t missing_events; /* in what is gone */

  struct ct_trace_thread *threads; /* by index */
  uint32_t thread_count;
  bool threads_sorted;
  uint16_t newer_version; /* of a thread's file, which this reader cannot read; 0: there is none */
  uint32_t newer_index;   /* the thread's */
  uint64_t folders;       /* links of the directory when threads were looked for, by ct_trace_add_threads */
  struct ct_trace_module *modules;
  uint32_t module_count;

  char *functions_text;                /* functions.tsv with its line ends made zero bytes */
  struct ct_trace_function *functions; /* raw_name NULL: the table has no such id */
  uint32_t function_count;

  char *sources_text;              /* sources.tsv, likewise */
  struct ct_trace_source *sources; /* of each function; NULL without that file */
  bool sources_read;

  struct ct_trace_prototypes *prototypes; /* NULL: not read yet */

  uint64_t tsc0, ns0, start_ns;
  uint64_t end_tsc;                    /* 0: not known yet */
  uint64_t last_tsc;                   /* of the blocks that were looked at */
  uint32_t place_trace, place_process; /* batch.h: ct_trace_set_place */
  struct stat manifest_seen;           /* the file that the manifest was read from */
  uint64_t functions_bytes;            /* of the function table, that were read */
  struct ct_functions_text *more_functions;
  json_t **past; /* texts of manifests before that are pointed to */
  size_t past_count;
  bool skips_begun; /* of a range: which calls are open where it begins */
  bool has_range;   /* cursors give the events of [range_from, range_to] only, see range.c */
  uint64_t range_from, range_to;
  bool *goes_on; /* each thread, after the range */
  struct ct_trace_places {
    struct ct_trace_place *list;
    size_t count;
  } *places;                    /* of each thread; NULL: none are known */
  struct ct_trace_past **pasts; /* of each thread, under the lock; NULL: none are known */
  bool pasts_are_full;          /* one found no room: they go with the range */
  size_t past_frames;           /* in all of them */
  uint64_t tick_scale;          /* ns = ticks * tick_scale >> tick_shift */
  unsigned tick_shift;

  struct ct_held_file {
    uint32_t index;
    struct ct_block_file *file;
  } *held;                         /* reader.c: of threads whose oldest pieces may go at any time, held_count of them */
  uint32_t held_count, held_files; /* at most open_files_max */

  pthread_mutex_t lock; /* over what follows, and names of functions */
  struct ct_unpacker *unpackers;
  uint32_t open_files;     /* kept by cursors ... */
  uint32_t open_files_max; /* ... at most; never changes */
};

/* reader.c */
/* A whole file of the trace, with a zero byte after it. CT_ENOENT, CT_EIO ... without a diag. */
int ct_trace_read_file(const struct ct_trace *trace, const char *name, char **text, size_t *size);
/* The thread may have no file: nothing of it was kept, or what is kept is in the recorder's memory still. */
bool ct_trace_has_no_file(const struct ct_trace *trace, uint32_t thread);
/* The size of a file of the trace, 0 when it is not there. */
uint64_t ct_trace_file_bytes(const struct ct_trace *trace, const char *name);
/*
 * The thread's file for reading; NULL and errno when it cannot be had. While a recording of bounded size goes on, its
 * oldest pieces go, and with them every offset changes: the pieces that there were when the trace was opened stay open
 * until it is closed, or refreshed, and this is always the same file.
 */
struct ct_block_file *ct_trace_open_thread_file(const struct ct_trace *trace, uint32_t index);
/* Where the thread's blocks end for us in that file; UINT64_MAX: where the file does. thread: its position. */
uint64_t ct_trace_end_offset(const struct ct_trace *trace, uint32_t thread, const struct ct_block_file *file);
bool ct_trace_holds_thread_file(const struct ct_trace *trace, uint32_t index);
/* As they are now. What cursors have stays as it was. */
void ct_trace_hold_anew(struct ct_trace *trace);
void ct_trace_held_free(struct ct_trace *trace);

/* range_places.c */
void ct_range_free_places(struct ct_trace *trace);
/* range_stacks.c */
void ct_range_free_pasts(struct ct_trace *trace);
/* reader.c: threads that have a folder and are not known yet, at the end of the list. 0, CT_ENOMEM, CT_EIO. */
int ct_trace_add_threads(struct ct_trace *trace);
/* refresh.c: before the manifest is read. */
void ct_trace_see_manifest(struct ct_trace *trace);
void ct_trace_refresh_free(struct ct_trace *trace);
/* refresh.c: modules of functions that the manifest did not list when it was read, from a newer one. */
int ct_trace_find_modules(struct ct_trace *trace);

/* manifest.c: sets manifest, complete, modules, the clock. */
int ct_manifest_load(struct ct_trace *trace, struct ct_diag *diag);
/* Of this list those that lie behind the ones that are known; the list is pointed into. */
int ct_manifest_add_modules(struct ct_trace *trace, const json_t *modules);
/* manifest.c: sets crash and stacks, if there are any. */
void ct_stacks_load(struct ct_trace *trace);
/* functions.c: one line that ends in a zero byte: id, module, address, size, mode, raw name; false: it is none. */
bool ct_function_line(const char *line, struct ct_trace_function *out);
bool ct_function_is_unknown(const struct ct_trace_function *function);
/* functions.c: an absent table is an empty one. */
int ct_functions_load(struct ct_trace *trace, struct ct_diag *diag);
void ct_functions_free(struct ct_trace *trace);
/* check.c: compares files with the manifest; sets damage, missing_events, and missing of threads. 0 or CT_ENOMEM. */
int ct_trace_check(struct ct_trace *trace);
/* reader.c: what block headers tell. */
struct ct_block_sums {
  uint64_t events, lost;
  uint64_t whole_bytes;    /* up to the end of the last whole block */
  uint64_t last_tsc;       /* of that block; 0: there is none */
  uint64_t missing_block;  /* the first number that is missing between others; UINT64_MAX: none */
  uint64_t missing_events; /* what those that are missing between others had */
  uint64_t not_kept;       /* events before the first block, of a trace of the last stretch ... */
  uint64_t begin_tsc;      /* ... and when that begins; 0: there were none */
};
void ct_trace_sum_blocks(const struct ct_trace *trace, uint32_t index, struct ct_block_sums *sums);
/* detail_reader.c: the record as it lies in the file, after ct_details_of has given it. 0: its file is not ours. */
size_t ct_details_record(const struct ct_details *details, struct ct_detail_entry *entry, const void **words);
/* sources.c */
void ct_trace_sources_free(struct ct_trace *trace);
/* prototypes.c */
void ct_trace_prototypes_free(struct ct_trace *trace);

/* cursor.c */
static inline bool
ct_trace_version_ok(uint64_t version)
{
  return version >= CT_TRACE_VERSION_OLD && version <= CT_TRACE_VERSION_NEWEST;
}
bool ct_file_header_ok(const struct ct_file_header *header);
bool ct_block_header_ok(const struct ct_block_header *header);

#endif
