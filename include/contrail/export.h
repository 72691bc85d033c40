/* SPDX-License-Identifier: MIT */
/* Traces in the formats of other programs. */
#ifndef CONTRAIL_EXPORT_H
#define CONTRAIL_EXPORT_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_export_format {
  const char *name;    /* as --to takes it */
  const char *summary; /* in some words */
  bool is_directory;   /* of what is written; else it is a file */
  bool has_weight;     /* it takes a weight: it is of sums, and not of single calls */
  bool takes_filters;  /* of functions, calls, processes; else only threads and the range ("contrail": a process) */
  bool takes_two;      /* it can show the difference of two traces */
};
/* n from 0 on; NULL after the last one. */
const struct ct_export_format *ct_export_format(size_t n);

enum ct_export_weight { CT_WEIGHT_TIME = 0, CT_WEIGHT_CALLS = 1, CT_WEIGHT_OFF = 2 }; /* OFF: off the processor */

struct ct_export_options {
  size_t struct_size;
  const char *format;   /* a name of ct_export_format */
  const char *path;     /* where it goes: nothing is written over, a directory may be there if it is empty; a file whose
                           name ends in .gz or .zst is compressed */
  const uint32_t *tids; /* only these threads; all when tid_count is 0 */
  size_t tid_count;
  struct ct_view_progress progress;
  const struct ct_filter *filter; /* in place of tids: which calls, threads and processes; NULL: all */
  enum ct_view_time time;         /* what durations are made of, but for places on a time line: these are the clock's */
  enum ct_export_weight weight;
  int fd;           /* where a file goes when path is NULL, more than 0; it stays open */
  unsigned workers; /* threads to read with, where sums are made; 0: one */
  uint64_t single;  /* html: about so many calls at most have an entry of their own, the longest; 0: two millions */
  struct ct_trace *before; /* NULL, or a trace that the trace is compared with, of a format that takes two ... */
  const struct ct_filter *before_filter; /* ... and what is selected of it; NULL: all */
};

struct ct_export_summary {
  size_t struct_size;
  uint64_t processes, threads, events, bytes; /* written */
  char mapped[512];    /* what the format cannot hold, and what became of it: one line, "" when there is nothing */
  uint64_t lost;       /* events that the recording lost, in what is written */
  char warnings[1024]; /* what is said of the trace: lines, each with a line end */
};

/*
 * Writes the trace, in its range where one is set (ct_trace_set_range), with the processes that were followed. 0;
 * CT_EEXIST, CT_EINVAL for a format that is not known or has no such filter, CT_ERANGE for a thread that is not there
 * or more than the format holds, CT_EIO, CT_ENOSPC, CT_ENOMEM: what was written is removed again.
 */
int ct_export_write(struct ct_trace *trace, const struct ct_export_options *options, struct ct_export_summary *summary,
                    struct ct_view_notes *notes, struct ct_diag *diag);

/* Whether the directory, or file, has instructions (contrail itrace): ct_export_steps writes them, not ct_export_write.
 */
bool ct_export_has_steps(const char *path);

struct ct_export_steps_options {
  size_t struct_size;
  const char *format; /* "contrail": a trace of the calls, for all views; "itrace": the stream of one thread, a file */
  const char *path;   /* as above */
  const uint32_t *tids;
  size_t tid_count;
  bool by_instructions; /* of contrail: a ns of the trace is an instruction, counted for each thread; else times are
                           interpolated between time stamps */
};
/* As ct_export_write, of a recording of instructions. CT_EINVAL: not in that format. */
int ct_export_steps(const char *recording, const struct ct_export_steps_options *options,
                    struct ct_export_summary *summary, struct ct_diag *diag);
/*
 * The trace of the calls of a recording of instructions, in its directory: made when it is not there, or of another
 * state of the recording. path: its directory, PATH_MAX bytes. 0, and errors as above.
 */
int ct_export_steps_calls(const char *recording, char *path, size_t size, struct ct_diag *diag);

struct ct_export_owner {
  bool give; /* to another user ... */
  uid_t uid; /* ... this one */
  gid_t gid;
};
/*
 * Puts an export in the place of the trace in `directory`, which is removed when all is written. Until then the trace
 * is there, and it stays when this fails or is killed; what is written meanwhile lies in DIRECTORY.FORMAT. Errors as
 * above, and CT_EFORMAT: the trace is damaged.
 */
int ct_export_replace(const char *directory, const char *format, const struct ct_export_owner *owner,
                      struct ct_export_summary *summary, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
