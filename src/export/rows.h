/* SPDX-License-Identifier: MIT */
/*
 * What CSV and JSON lines have alike: a row for each call, with the same columns. The formats say what goes before a
 * column and how a text is written; the rows are made in one place, since they are to be fast.
 */
#ifndef CT_EXPORT_ROWS_H
#define CT_EXPORT_ROWS_H

#include "export/out.h"
#include "export/walk.h"

/* In the order of the row. Numbers but for those that are said to be texts. */
enum ct_row_column {
  CT_ROW_PID,
  CT_ROW_TID,
  CT_ROW_THREAD, /* text */
  CT_ROW_ID,
  CT_ROW_PARENT, /* nothing where there is none */
  CT_ROW_NAME,   /* text */
  CT_ROW_MODULE, /* text */
  CT_ROW_START,
  CT_ROW_END,
  CT_ROW_DURATION,
  CT_ROW_SELF,
  CT_ROW_OFF,
  CT_ROW_DEPTH,
  CT_ROW_CALLS,
  CT_ROW_HOW, /* text */
  CT_ROW_OPEN,
  CT_ROW_UNCERTAIN,
  CT_ROW_BEFORE,
  CT_ROW_STACK,
  CT_ROW_LOST,
  CT_ROW_COLUMNS,
};
extern const char *const ct_row_names[CT_ROW_COLUMNS];

struct ct_row_format {
  const char *before[CT_ROW_COLUMNS]; /* what is written before each column */
  const char *after;                  /* and after the last one */
  const char *none;                   /* for a number that there is not */
  const char *no, *yes;               /* for the three that are either */
  char *(*quote)(const char *text);   /* malloc'd, NULL: out of memory */
  bool quotes_large;                  /* ids that a double cannot hold, as in all JSON of ours */
};

/* All rows. As ct_walk. */
int ct_rows_write(const struct ct_export_job *job, struct ct_sink *out, const struct ct_row_format *format,
                  struct ct_diag *diag);

#endif
