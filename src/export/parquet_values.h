/* SPDX-License-Identifier: MIT */
/* The values of a column in a row group of a Parquet file: see parquet_values.c. */
#ifndef CT_EXPORT_PARQUET_VALUES_H
#define CT_EXPORT_PARQUET_VALUES_H

#include "export/parquet.h"
#include "export/thrift.h"

/* As the format has them. */
enum ct_parquet_encoding { CT_PARQUET_PLAIN = 0, CT_PARQUET_DELTA = 5, CT_PARQUET_DICTIONARY = 8 };

struct ct_parquet_texts {
  struct ct_export_bytes plain; /* length in four bytes and text, of each once */
  uint32_t *offsets, *slots;    /* where each is; numbers + 1, by hash */
  uint32_t count;
};

/* Zeroed but for its info: nothing in it. */
struct ct_parquet_values {
  const struct ct_parquet_column *info;
  /* By the dictionary: so many rows, of so many values. */
  uint32_t rows, count;
  uint64_t *entries;
  uint16_t *indices;        /* of each row; only when count > 1 */
  uint16_t *direct, *slots; /* indices + 1, of small values by themselves, of others by hash */
  struct ct_parquet_texts texts;
  /* The rows after these, as differences. */
  uint32_t delta_rows;
  struct ct_export_bytes delta;
  uint64_t first, last;
  int64_t least, greatest;
  struct ct_export_bytes pages[2]; /* made at the end: of the dictionary, and its indices */
};

struct ct_parquet_page {
  const uint8_t *data;
  size_t bytes;
  uint32_t values;
  enum ct_parquet_encoding encoding;
};
/* What a group has of a column. */
struct ct_parquet_chunk {
  bool has_dictionary;
  struct ct_parquet_page dictionary, pages[2];
  unsigned count;
  uint32_t distinct; /* 0: not known */
  /* PLAIN; NULL: too long to be written */
  const void *least, *greatest;
  size_t least_bytes, greatest_bytes;
};

/* A window of numbers: the first of a group has CT_PARQUET_WINDOW + 1, the last one any. 0 or CT_ENOMEM. */
int ct_parquet_values_add(struct ct_parquet_values *values, const uint64_t *numbers, uint32_t count);
/* The number of a text. UINT32_MAX: out of memory. */
uint32_t ct_parquet_values_text(struct ct_parquet_values *values, const char *text, size_t bytes);
/* There is no room for the texts of another window. */
bool ct_parquet_values_are_full(const struct ct_parquet_values *values);
/* The chunk, good until values change. 0 or CT_ENOMEM. */
int ct_parquet_values_end(struct ct_parquet_values *values, struct ct_parquet_chunk *chunk);
/* For another group. */
void ct_parquet_values_clear(struct ct_parquet_values *values);
void ct_parquet_values_free(struct ct_parquet_values *values);

#endif
