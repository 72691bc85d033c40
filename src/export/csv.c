/* SPDX-License-Identifier: MIT */
/*
 * A row for each call, as CSV (RFC 4180, with LF) under a line of names; times in nanoseconds since the begin of the
 * recording, durations in the thread's own time as report has them. For databases and tables.
 */
#include "export/rows.h"

static int
write_csv(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct ct_row_format format = {.after = "\n", .none = "", .no = "0", .yes = "1", .quote = ct_csv_quoted};
  for (int i = 0; i < CT_ROW_COLUMNS; i++) {
    format.before[i] = i != 0 ? "," : "";
    ct_out_text(out, format.before[i]);
    ct_out_text(out, ct_row_names[i]);
  }
  ct_out_byte(out, '\n');
  return ct_rows_write(job, out, &format, diag);
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_csv, diag);
}

const struct ct_export_writer ct_export_csv = {
    .format = {.name = "csv", .summary = "a row for each call", .takes_filters = true},
    .write = write_format,
};
