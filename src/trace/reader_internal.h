/* SPDX-License-Identifier: MIT */
/*
 * What reader.c (directory and threads), manifest.c, functions.c and cursor.c share.
 * Nothing outside src/trace includes this.
 */
#ifndef CT_TRACE_READER_INTERNAL_H
#define CT_TRACE_READER_INTERNAL_H

#include "trace/batch.h"
#include "trace/format.h"

#include <pthread.h>
#include <stddef.h>
#include <zstd.h>

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

struct ct_trace {
  char *path;
  int dir_fd;
  json_t *manifest;
  json_t *crash; /* NULL: none */
  bool complete;
  uint64_t bytes;

  struct ct_trace_thread *threads; /* by index */
  uint32_t thread_count;
  struct ct_trace_module *modules;
  uint32_t module_count;

  char *functions_text;                /* functions.tsv with its line ends made zero bytes */
  struct ct_trace_function *functions; /* raw_name NULL: the table has no such id */
  uint32_t function_count;

  char *sources_text;              /* sources.tsv, likewise */
  struct ct_trace_source *sources; /* of each function; NULL without that file */
  bool sources_read;

  uint64_t tsc0, ns0, start_ns;
  uint64_t tick_scale; /* ns = ticks * tick_scale >> tick_shift */
  unsigned tick_shift;

  pthread_mutex_t lock; /* over what follows, and names of functions */
  struct ct_unpacker *unpackers;
  uint32_t open_files; /* kept by cursors */
};

/* reader.c */
/* A whole file of the trace, with a zero byte behind it. CT_ENOENT, CT_EIO ... without a diag. */
int ct_trace_read_file(const struct ct_trace *trace, const char *name, char **text, size_t *size);
/* The size of a file of the trace, 0 when it is not there. */
uint64_t ct_trace_file_bytes(const struct ct_trace *trace, const char *name);
/* The thread's file for reading, -1 when it cannot be had; *size is set. */
int ct_trace_open_thread_file(const struct ct_trace *trace, uint32_t index, uint64_t *size);
/* Up to size bytes, fewer only at the end of the file or on an error. */
size_t ct_trace_read_at(int fd, void *data, size_t size, uint64_t offset);

/* manifest.c: sets manifest, complete, modules, the clock. */
int ct_manifest_load(struct ct_trace *trace, struct ct_diag *diag);
/* manifest.c: sets crash, if there is one. */
void ct_crash_load(struct ct_trace *trace);
/* functions.c: an absent table is an empty one. */
int ct_functions_load(struct ct_trace *trace, struct ct_diag *diag);
void ct_functions_free(struct ct_trace *trace);
/* sources.c */
void ct_trace_sources_free(struct ct_trace *trace);

/* cursor.c */
bool ct_file_header_ok(const struct ct_file_header *header);
bool ct_block_header_ok(const struct ct_block_header *header);

#endif
