/* SPDX-License-Identifier: MIT */
/*
 * What the writers of formats share. A format is one file here, ending in its entry; export.c has the table. Writers
 * ask the stages before for events or spans, never for files or blocks of a trace.
 */
#ifndef CT_EXPORT_EXPORT_H
#define CT_EXPORT_EXPORT_H

#include <contrail/export.h>

#include "trace/batch.h"

/* What a writer gets: options are whole and have a filter, notes and summary are zero. */
struct ct_export_job {
  struct ct_trace *trace;
  const struct ct_export_options *options;
  struct ct_export_summary *summary;
  struct ct_view_notes *notes;
};

struct ct_export_writer {
  struct ct_export_format format;
  int (*write)(const struct ct_export_job *job, struct ct_diag *diag);
};

extern const struct ct_export_writer ct_export_atf2, ct_export_contrail, ct_export_folded, ct_export_chrome,
    ct_export_perfetto, ct_export_csv, ct_export_jsonl, ct_export_speedscope, ct_export_flamegraph, ct_export_pprof,
    ct_export_firefox, ct_export_parquet, ct_export_html;

/* What is said of the traces, as lines of the summary. */
void ct_export_warn(const struct ct_export_job *job);

/*
 * The course of a format that is one file: opens it, has it written, closes it, and says in the summary what a reader
 * should know. body: as the writer's write; what it returns goes on to the caller.
 */
struct ct_sink;
int ct_export_file(const struct ct_export_job *job, int packing,
                   int (*body)(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag),
                   struct ct_diag *diag);

/*
 * Opens the trace of a child, an entry of the parent's manifest under "children", in the parent's range. CT_ENOENT: it
 * has none that can be read.
 */
int ct_export_open_child(const struct ct_trace *parent, const json_t *child, struct ct_trace **out);

#endif
