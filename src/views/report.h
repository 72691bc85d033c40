/* SPDX-License-Identifier: MIT */
/*
 * The parts of the report, see <contrail/report.h>. What counts to which number is written in stats.h, the error of the
 * percentiles in histogram.h.
 */
#ifndef CT_VIEWS_REPORT_H
#define CT_VIEWS_REPORT_H

#include <contrail/report.h>

#include "span/stats.h"
#include "views/text.h"

#include <jansson.h>

/* One function. The times other than total and self are of `timed` calls, 0 when there are none. */
struct ct_report_row {
  const char *name;
  const char *module;
  uint64_t calls;
  uint64_t points;
  uint64_t counted;     /* of the calls: counted only, nothing is known of their times (a budget) */
  bool was_out;         /* for some time its calls were not seen (a budget): there were more */
  uint64_t passed_over; /* of the calls: not in the trace, the number is an estimate */
  bool is_gap;          /* no function: the time in which events were lost */
  uint64_t timed;
  uint64_t total_ns;
  uint64_t self_ns;
  uint64_t off_ns;
  bool off_is_bound; /* it may be less */
  uint64_t min_ns;
  uint64_t max_ns;
  uint64_t avg_ns;
  uint64_t p50_ns;
  uint64_t p95_ns;
  uint64_t p99_ns;
  uint64_t sort_key;
  uint64_t uncertain;
  uint64_t before;     /* no calls: open when the recording began, with their time since then */
  uint64_t unfinished; /* calls that had not ended when the program or the trace did */
  uint64_t partial;    /* the trace has only a part of each; max is of these and the timed ones */
  uint64_t orphans;
  const uint64_t *unwound; /* as in struct ct_stats, whose it is */
  const char *file;        /* that it is written in; NULL: not known */
  uint32_t line;           /* 0: not known */
  uint32_t fn;             /* UINT32_MAX: calls of functions that the table does not have */
  bool enter_only;
};

/* Inside, options->filter is never NULL. */

/* Not all functions, or not all of their calls, are in the rows. */
bool ct_report_is_filtered(const struct ct_filter *filter);
/* The rows of the functions that pass the filters, sorted; *rows is to be freed. Not cut to filter->limit. */
int ct_report_rows(struct ct_trace *trace, const struct ct_stats *stats, const struct ct_report_options *options,
                   struct ct_report_row **rows, size_t *count, struct ct_diag *diag);

/* The numbers of one thread that go with its rows. */
struct ct_report_thread {
  uint32_t index;
  bool damaged;
  uint64_t events;
};

/* Reads the selected threads into stats and threads[0..*thread_count), to be freed. */
int ct_report_collect(struct ct_trace *trace, const struct ct_report_options *options, struct ct_stats *stats,
                      struct ct_report_thread **threads, size_t *thread_count, struct ct_diag *diag);

/* By function id, not 0: for some time, of the range that was set, its calls were not seen. To be freed; NULL: there is
 * no such function. */
uint8_t *ct_report_were_out(const struct ct_trace *trace, uint32_t fn_count);
/* The numbers of a row. enter_only: the function's returns are not recorded. */
void ct_report_fill_row(const struct ct_trace *trace, const struct ct_stats *stats, uint32_t id, bool enter_only,
                        enum ct_report_sort sort, struct ct_report_row *row);
void ct_report_sort_rows(struct ct_report_row *rows, size_t count, enum ct_report_sort sort);

/* Parts of the output. What is wrong with the stream, it remembers. */
struct ct_report_totals {
  uint64_t events, dropped;
  size_t threads;
  size_t processes; /* 0: it is of one, and that is not said */
};
int ct_report_put_json(FILE *out, json_t *json);                      /* takes it over; NULL: CT_ENOMEM */
void ct_report_put_end(FILE *out, uint64_t events, uint64_t dropped); /* of an array of rows, and of all */
/* Which calls count, if not all do: before the table, or before a member of the JSON. */
void ct_report_put_counted(FILE *out, const struct ct_report_options *options);
int ct_report_put_rows(FILE *out, const struct ct_report_row *rows, size_t count,
                       const struct ct_report_options *options);
void ct_report_put_totals(FILE *out, const struct ct_report_totals *totals, const struct ct_report_row *rows,
                          size_t count, const struct ct_report_options *options);

/* Ten columns and a blank; six and a blank; so many of text. */
void ct_report_put_time(FILE *out, bool known, uint64_t ns);
void ct_report_put_share(FILE *out, bool known, uint64_t part, uint64_t whole);
void ct_report_put_padded(FILE *out, const char *text, size_t columns);
/* A member of an object: null where it is not known. */
void ct_report_put_ns(json_t *json, const char *key, bool known, uint64_t ns);
struct ct_view_reading; /* reading.h */
/* A footer as that of the functions: events, threads, processes. */
void ct_report_put_reading(FILE *out, const struct ct_view_reading *reading);
/* How the trace is read, as the options say. */
struct ct_view_reading ct_report_reading(struct ct_trace *trace, const struct ct_report_options *options);
/* The end of a report, also of one that failed: what was written gets out, notes say what was shown. Returns code, or
 * an error. */
int ct_report_end(int code, FILE *out, const struct ct_view_reading *reading, size_t shown, struct ct_view_notes *notes,
                  struct ct_diag *diag);
/* CT_EINVAL: rows of callers and groups have no such key. */
int ct_report_check_sort(enum ct_report_sort sort, struct ct_diag *diag);

/* With rows of other things than functions (enum ct_report_rows). */
int ct_report_write_edges(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                          struct ct_view_notes *notes, struct ct_diag *diag);
int ct_report_write_groups(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                           struct ct_view_notes *notes, struct ct_diag *diag);

/* Of the trace's process and those that were followed from it. */
int ct_report_write_tree(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                         struct ct_view_notes *notes, struct ct_diag *diag);

/* Parts of ct_report_collect, for a reader that wants the threads one by one. */
int ct_report_choose_threads(struct ct_trace *trace, const struct ct_report_options *options,
                             struct ct_report_thread **threads, size_t *count, struct ct_diag *diag);
int ct_report_read_thread(struct ct_trace *trace, struct ct_report_thread *thread,
                          const struct ct_report_options *options, struct ct_stats *stats,
                          int (*moved)(void *arg, uint64_t bytes), void *arg, struct ct_diag *diag);

#endif
