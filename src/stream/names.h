/* SPDX-License-Identifier: MIT */
/* The files of a trace that are sent: a closed set of names, so that no name from a socket leads anywhere else. */
#ifndef CT_STREAM_NAMES_H
#define CT_STREAM_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { CT_STREAM_NAME_BYTES = 64 };

enum ct_stream_file_kind {
  CT_STREAM_FOREIGN,  /* no file of a trace */
  CT_STREAM_APPENDED, /* only ever grows */
  CT_STREAM_REPLACED, /* written beside and renamed */
};

#define CT_STREAM_PROCESS_DIR "process-"

/* Of a name of size bytes, which need not end in a zero byte: [process-N/](FILE|thread_N/FILE). */
enum ct_stream_file_kind ct_stream_kind(const char *name, size_t size);
/* "thread_N" and "process-N", N without leading zeros, at most ten digits. */
bool ct_stream_is_numbered(const char *name, size_t size, const char *prefix);

#endif
