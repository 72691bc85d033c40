/* SPDX-License-Identifier: MIT */
/*
 * See parquet.h. Of a file:
 *
 *   PAR1, row groups, metadata, its length in four bytes, PAR1
 *
 * and of a row group a chunk for each column (parquet_values.c), pages of which each has a header in Thrift's compact
 * protocol and is packed by zstd. The least and the greatest value of each chunk are in the metadata.
 *
 * Rows are gathered in windows, of 1024, before they are encoded: their numbers have not left the processor's cache
 * then, and of a column that does not change, as many are, nothing is looked at but that. In a window they are put in
 * order by one column. Calls come when they end; in the order of their begin their ids are a row of numbers.
 */
#include "export/parquet_values.h"

#include <contrail/version.h>

#include <stdlib.h>
#include <zstd.h>

enum { RLE = 3, ZSTD = 6, LEVEL = 1, WINDOW = CT_PARQUET_WINDOW, SPAN = 4 * WINDOW };
enum page_type { DATA_PAGE = 0, DICTIONARY_PAGE = 2 };

struct ct_parquet {
  struct ct_parquet_rows fresh; /* not encoded yet */
  struct ct_sink out;
  const struct ct_parquet_column *columns;
  unsigned count;
  int by;
  uint16_t order[WINDOW + 1], old[WINDOW + 1], row_of[SPAN];
  uint64_t ordered[WINDOW + 1];
  struct ct_parquet_values values[CT_PARQUET_COLUMNS_MAX];
  uint32_t rows; /* of the group, without the fresh ones */
  uint64_t all_rows, offset;
  ZSTD_CCtx *packer;
  struct ct_export_bytes packed, groups; /* groups: their metadata */
  uint32_t group_count;
  bool failed; /* no memory */
};

/* ---- the order of rows ---- */

static int
compare_rows(const void *a, const void *b, void *arg)
{
  const uint64_t *keys = arg;
  uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
  return keys[x] != keys[y] ? (keys[x] < keys[y] ? -1 : 1) : (x > y) - (x < y);
}

/*
 * The order of the fresh rows by their keys. Nearly all keys are among the SPAN greatest that there can be (the bits
 * that no two differ in aside): each has a place of its own there. The others, calls that began long before, are few.
 */
static void
put_in_order(struct ct_parquet *file)
{
  const uint64_t *keys = file->fresh.numbers[file->by];
  uint32_t count = file->fresh.count, old = 0, at = 0;
  uint64_t differ = 0, greatest = 0;
  for (uint32_t i = 0; i < count; i++) {
    differ |= keys[i] ^ keys[0];
    greatest = keys[i] > greatest ? keys[i] : greatest;
  }
  unsigned shift = differ != 0 ? (unsigned)__builtin_ctzll(differ) : 0;
  memset(file->row_of, 0, sizeof(file->row_of));
  for (uint32_t i = 0; i < count; i++) {
    uint64_t below = (greatest >> shift) - (keys[i] >> shift);
    if (CT_LIKELY(below < SPAN && file->row_of[SPAN - 1 - below] == 0)) {
      file->row_of[SPAN - 1 - below] = (uint16_t)(i + 1);
    } else {
      file->old[old++] = (uint16_t)i;
    }
  }
  qsort_r(file->old, old, sizeof(*file->old), compare_rows, (void *)keys);
  uint32_t next = 0;
  for (uint32_t i = 0; i < SPAN; i++) {
    if (file->row_of[i] != 0) {
      uint16_t row = (uint16_t)(file->row_of[i] - 1);
      for (; next < old && compare_rows(&file->old[next], &row, (void *)keys) < 0; next++) {
        file->order[at++] = file->old[next];
      }
      file->order[at++] = row;
    }
  }
  for (; next < old; next++) {
    file->order[at++] = file->old[next];
  }
}

static const uint64_t *
numbers_of(struct ct_parquet *file, unsigned column)
{
  const uint64_t *numbers = file->fresh.numbers[column];
  uint32_t count = file->fresh.count;
  if (file->by < 0 || memcmp(numbers, numbers + 1, (count - 1) * sizeof(*numbers)) == 0) {
    return numbers;
  }
  for (uint32_t i = 0; i < count; i++) {
    file->ordered[i] = numbers[file->order[i]];
  }
  return file->ordered;
}

static int
encode_rows(struct ct_parquet *file)
{
  int code = file->failed ? CT_ENOMEM : CT_OK;
  if (file->fresh.count == 0 || code != CT_OK) {
    return code;
  }
  if (file->by >= 0) {
    put_in_order(file);
  }
  for (unsigned i = 0; i < file->count && code == CT_OK; i++) {
    code = ct_parquet_values_add(&file->values[i], numbers_of(file, i), file->fresh.count);
  }
  file->rows += file->fresh.count;
  file->fresh.count = 0;
  return code;
}

void
ct_parquet_text(struct ct_parquet *file, unsigned column, const char *text, size_t bytes)
{
  uint32_t number = ct_parquet_values_text(&file->values[column], text, bytes);
  file->failed |= number == UINT32_MAX;
  ct_parquet_number(file, column, number);
}

/* ---- row groups ---- */

struct sizes {
  uint64_t packed, unpacked;
};

static int
put_page(struct ct_parquet *file, enum page_type type, const struct ct_parquet_page *page, struct sizes *sizes)
{
  size_t most = ZSTD_compressBound(page->bytes);
  file->packed.size = 0;
  uint8_t *to = ct_export_bytes_room(&file->packed, most);
  size_t packed = to != NULL ? ZSTD_compressCCtx(file->packer, to, most, page->data, page->bytes, LEVEL) : 0;
  if (to == NULL || ZSTD_isError(packed)) {
    return CT_ENOMEM;
  }
  struct ct_export_bytes head = {0};
  struct ct_thrift w = {.to = &head};
  ct_thrift_number(&w, 1, CT_THRIFT_I32, type);
  ct_thrift_number(&w, 2, CT_THRIFT_I32, (int64_t)page->bytes);
  ct_thrift_number(&w, 3, CT_THRIFT_I32, (int64_t)packed);
  int outer = ct_thrift_begin_field(&w, type == DATA_PAGE ? 5 : 7);
  ct_thrift_number(&w, 1, CT_THRIFT_I32, page->values);
  ct_thrift_number(&w, 2, CT_THRIFT_I32, page->encoding);
  if (type == DATA_PAGE) { /* of levels, of which there are none */
    ct_thrift_number(&w, 3, CT_THRIFT_I32, RLE);
    ct_thrift_number(&w, 4, CT_THRIFT_I32, RLE);
  }
  ct_thrift_end(&w, outer);
  ct_thrift_end(&w, 0);
  if (!w.failed) {
    ct_out_put(&file->out, head.data, head.size);
    ct_out_put(&file->out, to, packed);
  }
  sizes->packed += head.size + packed;
  sizes->unpacked += head.size + page->bytes;
  file->offset += head.size + packed;
  ct_export_bytes_free(&head);
  return w.failed ? CT_ENOMEM : CT_OK;
}

static void
report_statistics(struct ct_thrift *meta, const struct ct_parquet_chunk *chunk)
{
  int outer = ct_thrift_begin_field(meta, 12);
  ct_thrift_number(meta, 3, CT_THRIFT_I64, 0); /* nulls */
  if (chunk->distinct != 0) {
    ct_thrift_number(meta, 4, CT_THRIFT_I64, chunk->distinct);
  }
  if (chunk->greatest != NULL) {
    ct_thrift_binary(meta, 5, chunk->greatest, chunk->greatest_bytes);
  }
  if (chunk->least != NULL) {
    ct_thrift_binary(meta, 6, chunk->least, chunk->least_bytes);
  }
  ct_thrift_end(meta, outer);
}

/* How many pages there are of each kind: who reads knows whether all values are in the dictionary. */
static void
report_pages(struct ct_thrift *meta, const struct ct_parquet_chunk *chunk)
{
  ct_thrift_list(meta, 13, CT_THRIFT_STRUCT, chunk->count + chunk->has_dictionary);
  for (unsigned i = chunk->has_dictionary ? 0 : 1; i <= chunk->count; i++) {
    const struct ct_parquet_page *page = i != 0 ? &chunk->pages[i - 1] : &chunk->dictionary;
    int outer = ct_thrift_begin(meta);
    ct_thrift_number(meta, 1, CT_THRIFT_I32, i != 0 ? DATA_PAGE : DICTIONARY_PAGE);
    ct_thrift_number(meta, 2, CT_THRIFT_I32, page->encoding);
    ct_thrift_number(meta, 3, CT_THRIFT_I32, 1);
    ct_thrift_end(meta, outer);
  }
}

static void
report_chunk(const struct ct_parquet *file, const struct ct_parquet_column *info, const struct ct_parquet_chunk *chunk,
             struct ct_thrift *meta, const struct sizes *sizes, uint64_t data_at)
{
  uint64_t begin = file->offset - sizes->packed;
  int outer = ct_thrift_begin(meta);
  ct_thrift_number(meta, 2, CT_THRIFT_I64, (int64_t)begin);
  int inner = ct_thrift_begin_field(meta, 3);
  ct_thrift_number(meta, 1, CT_THRIFT_I32, info->type);
  ct_thrift_list(meta, 2, CT_THRIFT_I32, chunk->count + chunk->has_dictionary);
  if (chunk->has_dictionary) {
    ct_thrift_varint(meta, ct_zigzag(CT_PARQUET_PLAIN));
  }
  for (unsigned i = 0; i < chunk->count; i++) {
    ct_thrift_varint(meta, ct_zigzag(chunk->pages[i].encoding));
  }
  ct_thrift_list(meta, 3, CT_THRIFT_BINARY, 1);
  ct_thrift_varint(meta, strlen(info->name));
  ct_thrift_add(meta, info->name, strlen(info->name));
  ct_thrift_number(meta, 4, CT_THRIFT_I32, ZSTD);
  ct_thrift_number(meta, 5, CT_THRIFT_I64, file->rows);
  ct_thrift_number(meta, 6, CT_THRIFT_I64, (int64_t)sizes->unpacked);
  ct_thrift_number(meta, 7, CT_THRIFT_I64, (int64_t)sizes->packed);
  ct_thrift_number(meta, 9, CT_THRIFT_I64, (int64_t)data_at);
  if (chunk->has_dictionary) {
    ct_thrift_number(meta, 11, CT_THRIFT_I64, (int64_t)begin);
  }
  report_statistics(meta, chunk);
  report_pages(meta, chunk);
  ct_thrift_end(meta, inner);
  ct_thrift_end(meta, outer);
}

/* The chunk of a column, and in `meta` what the metadata says of it. */
static int
put_column(struct ct_parquet *file, unsigned number, struct ct_thrift *meta, struct sizes *total)
{
  struct ct_parquet_values *values = &file->values[number];
  struct ct_parquet_chunk chunk;
  struct sizes sizes = {0};
  int code = ct_parquet_values_end(values, &chunk);
  if (code == CT_OK && chunk.has_dictionary) {
    code = put_page(file, DICTIONARY_PAGE, &chunk.dictionary, &sizes);
  }
  uint64_t data_at = file->offset;
  for (unsigned i = 0; i < chunk.count && code == CT_OK; i++) {
    code = put_page(file, DATA_PAGE, &chunk.pages[i], &sizes);
  }
  if (code == CT_OK) {
    report_chunk(file, &file->columns[number], &chunk, meta, &sizes, data_at);
  }
  total->packed += sizes.packed;
  total->unpacked += sizes.unpacked;
  ct_parquet_values_clear(values);
  return code == CT_OK && meta->failed ? CT_ENOMEM : code;
}

static int
put_group(struct ct_parquet *file)
{
  struct ct_thrift meta = {.to = &file->groups};
  struct sizes total = {0};
  int code = encode_rows(file);
  if (file->rows == 0 || code != CT_OK) {
    return code;
  }
  ct_thrift_list(&meta, 1, CT_THRIFT_STRUCT, file->count);
  for (unsigned i = 0; i < file->count && code == CT_OK; i++) {
    code = put_column(file, i, &meta, &total);
  }
  ct_thrift_number(&meta, 2, CT_THRIFT_I64, (int64_t)total.unpacked);
  ct_thrift_number(&meta, 3, CT_THRIFT_I64, file->rows);
  ct_thrift_number(&meta, 6, CT_THRIFT_I64, (int64_t)total.packed);
  ct_thrift_end(&meta, 0);
  file->all_rows += file->rows;
  file->group_count++;
  file->rows = 0;
  return code != CT_OK || meta.failed ? CT_ENOMEM : CT_OK;
}

/* A row is there that may be the last one of a window. */
int
ct_parquet_end_window(struct ct_parquet *file)
{
  uint32_t most = WINDOW + (file->rows == 0);
  bool is_full = file->rows + file->fresh.count >= CT_PARQUET_GROUP_ROWS;
  if (file->fresh.count < most && !is_full) {
    return CT_OK;
  }
  int code = encode_rows(file);
  for (unsigned i = 0; i < file->count; i++) {
    is_full |= ct_parquet_values_are_full(&file->values[i]);
  }
  code = code == CT_OK && is_full ? put_group(file) : code;
  return code == CT_OK && ct_out_failed(&file->out) ? CT_EIO : code;
}

/* ---- begin and end ---- */

static int
put_metadata(struct ct_parquet *file)
{
  struct ct_export_bytes bytes = {0};
  struct ct_thrift w = {.to = &bytes};
  static const char writer[] = "contrail version " CT_VERSION;
  ct_thrift_number(&w, 1, CT_THRIFT_I32, 2);
  ct_thrift_list(&w, 2, CT_THRIFT_STRUCT, file->count + 1);
  for (unsigned i = 0; i <= file->count; i++) {
    const struct ct_parquet_column *column = i != 0 ? &file->columns[i - 1] : NULL;
    const char *name = column != NULL ? column->name : "schema";
    int outer = ct_thrift_begin(&w);
    if (column != NULL) {
      ct_thrift_number(&w, 1, CT_THRIFT_I32, column->type);
      ct_thrift_number(&w, 3, CT_THRIFT_I32, 0); /* required */
    }
    ct_thrift_binary(&w, 4, name, strlen(name));
    if (column == NULL) {
      ct_thrift_number(&w, 5, CT_THRIFT_I32, file->count);
    } else if (column->type == CT_PARQUET_TEXT) {
      ct_thrift_number(&w, 6, CT_THRIFT_I32, 0); /* UTF8 */
    }
    ct_thrift_end(&w, outer);
  }
  ct_thrift_number(&w, 3, CT_THRIFT_I64, (int64_t)file->all_rows);
  ct_thrift_list(&w, 4, CT_THRIFT_STRUCT, file->group_count);
  ct_thrift_add(&w, file->groups.data, file->groups.size);
  ct_thrift_binary(&w, 6, writer, sizeof(writer) - 1);
  ct_thrift_list(&w, 7, CT_THRIFT_STRUCT, file->count);
  for (unsigned i = 0; i < file->count; i++) { /* least and greatest are by the order of the type */
    int outer = ct_thrift_begin(&w), inner = ct_thrift_begin_field(&w, 1);
    ct_thrift_end(&w, inner);
    ct_thrift_end(&w, outer);
  }
  ct_thrift_end(&w, 0);
  if (!w.failed) {
    uint8_t length[4];
    for (int i = 0; i < 4; i++) {
      length[i] = (uint8_t)(bytes.size >> (8 * i));
    }
    ct_out_put(&file->out, bytes.data, bytes.size);
    ct_out_put(&file->out, length, sizeof(length));
    ct_out_literal(&file->out, "PAR1");
  }
  ct_export_bytes_free(&bytes);
  return w.failed ? CT_ENOMEM : CT_OK;
}

static void
free_file(struct ct_parquet *file)
{
  for (unsigned i = 0; i < file->count; i++) {
    ct_parquet_values_free(&file->values[i]);
  }
  ZSTD_freeCCtx(file->packer);
  ct_export_bytes_free(&file->packed);
  ct_export_bytes_free(&file->groups);
  free(file);
}

int
ct_parquet_open(const char *path, const struct ct_parquet_column *columns, unsigned count, int by,
                struct ct_parquet **out, struct ct_diag *diag)
{
  struct ct_parquet *file = calloc(1, sizeof(*file));
  ZSTD_CCtx *packer = ZSTD_createCCtx();
  bool has_room = file != NULL && packer != NULL && count <= CT_PARQUET_COLUMNS_MAX;
  int code = has_room ? ct_out_open(&file->out, path, -1, CT_OUT_PLAIN, diag)
                      : ct_fail(diag, CT_ENOMEM, "out of memory for a Parquet file");
  if (code != CT_OK) {
    ZSTD_freeCCtx(packer);
    free(file);
    return code;
  }
  file->columns = columns;
  file->count = count;
  file->by = by;
  file->packer = packer;
  for (unsigned i = 0; i < count; i++) {
    file->values[i].info = &columns[i];
  }
  ct_out_literal(&file->out, "PAR1");
  file->offset = 4;
  *out = file;
  return CT_OK;
}

int
ct_parquet_close(struct ct_parquet *file, int code, uint64_t *bytes, struct ct_diag *diag)
{
  uint64_t written = 0;
  if (file == NULL) {
    return code;
  }
  bool has_failed = code != CT_OK; /* which was reported then */
  code = has_failed ? code : put_group(file);
  code = code == CT_OK ? put_metadata(file) : code;
  if (code == CT_ENOMEM && !has_failed) {
    ct_fail(diag, code, "out of memory for a Parquet file");
  }
  code = ct_out_close(&file->out, code, &written, diag);
  *bytes += written;
  free_file(file);
  return code;
}
