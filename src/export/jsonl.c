/* SPDX-License-Identifier: MIT */
/* An object of JSON for each call, a line each, with the columns of CSV as members. */
#include "base/json.h"
#include "export/rows.h"

#include <stdio.h>

static int
write_jsonl(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct ct_row_format format = {
      .after = "}\n", .none = "null", .no = "false", .yes = "true", .quote = ct_json_quoted, .quotes_large = true};
  char before[CT_ROW_COLUMNS][32];
  for (int i = 0; i < CT_ROW_COLUMNS; i++) {
    snprintf(before[i], sizeof(before[i]), "%c\"%s\":", i != 0 ? ',' : '{', ct_row_names[i]);
    format.before[i] = before[i];
  }
  return ct_rows_write(job, out, &format, diag);
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_jsonl, diag);
}

const struct ct_export_writer ct_export_jsonl = {
    .format = {.name = "jsonl", .summary = "an object of JSON for each call, a line each", .takes_filters = true},
    .write = write_format,
};
