/* SPDX-License-Identifier: MIT */
/*
 * One Parquet file, written row by row: see parquet_file.c. All columns are required, numbers or texts. Rows of a group
 * are in memory, encoded, until it is full.
 */
#ifndef CT_EXPORT_PARQUET_H
#define CT_EXPORT_PARQUET_H

#include "export/out.h"

enum {
  CT_PARQUET_COLUMNS_MAX = 24,
  CT_PARQUET_WINDOW = 1024,
  CT_PARQUET_GROUP_ROWS = 128 * CT_PARQUET_WINDOW + 1,
  CT_PARQUET_APART = 24
};

enum ct_parquet_type { CT_PARQUET_INT32 = 1, CT_PARQUET_INT64 = 2, CT_PARQUET_TEXT = 6 }; /* as the format has them */

struct ct_parquet_column {
  const char *name;
  enum ct_parquet_type type;
  bool is_various; /* numbers, hardly two of which are equal: no dictionary is tried */
  /* Of texts of a fixed list: ct_parquet_number gives the number in it. */
  const char *const *texts;
};

/* What a file begins with. The numbers of a few rows, by column, which stay in the processor's cache. */
struct ct_parquet_rows {
  uint64_t numbers[CT_PARQUET_COLUMNS_MAX][CT_PARQUET_WINDOW + CT_PARQUET_APART];
  uint32_t count;
};
struct ct_parquet; /* opaque but for that */
enum { CT_PARQUET_AS_THEY_COME = -1 };
/*
 * A new file; columns live as long as it. by: a column of numbers by which rows that are near each other are put in
 * order, or CT_PARQUET_AS_THEY_COME. *out goes to ct_parquet_close. 0, CT_ENOMEM, and as ct_out_open.
 */
int ct_parquet_open(const char *path, const struct ct_parquet_column *columns, unsigned count, int by,
                    struct ct_parquet **out, struct ct_diag *diag);
/* The next value of the row; text: valid UTF-8 of so many bytes. */
static inline void
ct_parquet_number(struct ct_parquet *file, unsigned column, uint64_t value)
{
  struct ct_parquet_rows *rows = (struct ct_parquet_rows *)file;
  rows->numbers[column][rows->count] = value;
}
void ct_parquet_text(struct ct_parquet *file, unsigned column, const char *text, size_t bytes);
/* A row of full windows: ct_parquet_end_row has more to do. */
int ct_parquet_end_window(struct ct_parquet *file);
/* All columns have one. 0, CT_ENOMEM or CT_EIO. */
static inline int
ct_parquet_end_row(struct ct_parquet *file)
{
  struct ct_parquet_rows *rows = (struct ct_parquet_rows *)file;
  return CT_LIKELY(++rows->count < CT_PARQUET_WINDOW) ? CT_OK : ct_parquet_end_window(file);
}
/* Writes the rest, as ct_out_close: `code` is an error of others, then there is no file. Accepts NULL. */
int ct_parquet_close(struct ct_parquet *file, int code, uint64_t *bytes, struct ct_diag *diag);

#endif
