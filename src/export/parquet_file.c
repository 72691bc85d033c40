/* SPDX-License-Identifier: MIT */
/*
 * See parquet.h. Of a file:
 *
 *   PAR1, row groups, metadata, its length in four bytes, PAR1
 *
 * and of a row group one page for each column: a header in Thrift's compact protocol, and the values, packed by zstd.
 * Numbers are DELTA_BINARY_PACKED, with the least and the greatest of them in the metadata; texts are PLAIN.
 *
 *   delta:  128 to a block, 4 parts in a block, how many values, the first one; then of each block the least
 * difference, the width of each part in bits, and the parts: 32 differences less the least one, lowest bits first
 *
 * A block is packed as soon as it is full: its numbers have not left the processor's cache then, and of a column that
 * does not change, as many are, nothing is looked at but that.
 */
#include "export/parquet.h"

#include <contrail/version.h>

#include <stdlib.h>
#include <zstd.h>

enum {
  BLOCK = CT_PARQUET_BLOCK,
  PARTS = 4,
  PART = BLOCK / PARTS,
  PLAIN = 0,
  DELTA = 5,
  RLE = 3,
  ZSTD = 6,
  LEVEL = 1,
  DELTA_HEAD_MAX = 24, /* how many values, and the first one: known at the end of a group */
  BLOCK_MAX = 10 + PARTS + BLOCK * 8
};
enum thrift { T_I32 = 5, T_I64 = 6, T_BINARY = 8, T_LIST = 9, T_STRUCT = 12 };

struct bytes {
  uint8_t *data;
  size_t size, capacity;
};

struct column {
  struct bytes page; /* of numbers: room for DELTA_HEAD_MAX, then blocks; of texts: PLAIN already */
  uint64_t first, last;
  int64_t least, greatest;
};

struct ct_parquet {
  struct ct_parquet_rows fresh; /* not packed yet */
  struct ct_sink out;
  const struct ct_parquet_column *columns;
  unsigned count;
  struct column values[CT_PARQUET_COLUMNS_MAX];
  uint32_t rows; /* of the group, without the fresh ones */
  uint64_t all_rows, offset;
  struct bytes packed, groups; /* groups: their metadata */
  uint32_t group_count;
  bool failed; /* no memory */
};

/* ---- bytes, and Thrift's compact protocol ---- */

/* Room for so many more at the end; NULL: out of memory. */
static uint8_t *
room(struct bytes *bytes, size_t more)
{
  if (bytes->capacity - bytes->size < more) {
    size_t capacity = 2 * bytes->capacity + more + 256;
    uint8_t *data = realloc(bytes->data, capacity);
    if (data == NULL) {
      return NULL;
    }
    bytes->data = data;
    bytes->capacity = capacity;
  }
  return bytes->data + bytes->size;
}

static uint64_t
zigzag(int64_t value)
{
  return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

/* A message that is being made; failed: out of memory. */
struct writer {
  struct bytes *to;
  int last; /* number of the last field */
  bool failed;
};

static void
add(struct writer *w, const void *data, size_t bytes)
{
  uint8_t *at = room(w->to, bytes);
  w->failed |= at == NULL;
  if (at != NULL) {
    memcpy(at, data, bytes);
    w->to->size += bytes;
  }
}

static void
add_varint(struct writer *w, uint64_t value)
{
  uint8_t bytes[10];
  add(w, bytes, (size_t)(ct_varint_put(bytes, value) - bytes));
}

/* Numbers of fields go up by at most 15 here. */
static void
add_field(struct writer *w, int number, enum thrift type)
{
  uint8_t head = (uint8_t)((number - w->last) << 4 | type);
  add(w, &head, 1);
  w->last = number;
}

static void
add_number(struct writer *w, int number, enum thrift type, int64_t value)
{
  add_field(w, number, type);
  add_varint(w, zigzag(value));
}

static void
add_binary(struct writer *w, const void *data, size_t bytes)
{
  add_varint(w, bytes);
  add(w, data, bytes);
}

static void
add_list(struct writer *w, int number, enum thrift type, uint32_t count)
{
  add_field(w, number, T_LIST);
  uint8_t head = (uint8_t)((count < 15 ? count : 15) << 4 | type);
  add(w, &head, 1);
  if (count >= 15) {
    add_varint(w, count);
  }
}

/* A structure inside: its fields count from 0. What its end gives back is where the outer one goes on. */
static int
begin_struct(struct writer *w)
{
  int last = w->last;
  w->last = 0;
  return last;
}

static void
end_struct(struct writer *w, int last)
{
  uint8_t stop = 0;
  add(w, &stop, 1);
  w->last = last;
}

/* ---- values ---- */

static unsigned
width_of(uint64_t value)
{
  return value == 0 ? 0 : 64 - (unsigned)__builtin_clzll(value);
}

/* The differences of a part, so many bits each. */
static uint8_t *
pack_part(uint8_t *at, const uint64_t *values, unsigned width)
{
  uint64_t pending = 0;
  unsigned bits = 0;
  for (unsigned i = 0; i < PART; i++) {
    pending |= values[i] << bits;
    bits += width;
    if (bits >= 64) {
      memcpy(at, &pending, sizeof(pending)); /* little-endian, as this machine */
      at += sizeof(pending);
      bits -= 64;
      pending = bits != 0 ? values[i] >> (width - bits) : 0;
    }
  }
  memcpy(at, &pending, sizeof(uint32_t)); /* 32 values: it ends there, or four bytes later */
  return at + bits / 8;
}

static uint8_t *
pack_block(uint8_t *at, struct column *column, const uint64_t *values, uint32_t count)
{
  uint64_t deltas[BLOCK], last = column->last;
  bool is_constant = values[0] == last && memcmp(values, values + 1, (count - 1) * sizeof(*values)) == 0;
  if (is_constant) { /* the least difference 0, and four times no bits */
    memset(at, 0, 1 + PARTS);
    return at + 1 + PARTS;
  }
  int64_t least = column->least, greatest = column->greatest, least_delta = INT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    int64_t value = (int64_t)values[i], delta = (int64_t)(values[i] - last);
    deltas[i] = (uint64_t)delta;
    last = values[i];
    least = value < least ? value : least;
    greatest = value > greatest ? value : greatest;
    least_delta = delta < least_delta ? delta : least_delta;
  }
  column->last = last;
  column->least = least;
  column->greatest = greatest;
  for (uint32_t i = count; i < BLOCK; i++) {
    deltas[i] = (uint64_t)least_delta;
  }
  at = ct_varint_put(at, zigzag(least_delta));
  uint8_t *widths = at;
  at += PARTS;
  for (unsigned part = 0; part < PARTS; part++) {
    uint64_t all = 0, *differences = &deltas[part * PART];
    for (uint32_t i = 0; i < PART; i++) {
      differences[i] -= (uint64_t)least_delta;
      all |= differences[i];
    }
    widths[part] = (uint8_t)width_of(all);
    at = all != 0 ? pack_part(at, differences, widths[part]) : at;
  }
  return at;
}

/* The fresh rows of a column of numbers. The first value of a group is in no block. */
static int
pack_numbers(struct column *column, const uint64_t *values, uint32_t count, bool is_first)
{
  if (is_first) {
    column->page.size = 0;
    column->first = column->last = values[0];
    column->least = column->greatest = (int64_t)values[0];
  }
  uint8_t *at = room(&column->page, DELTA_HEAD_MAX + BLOCK_MAX);
  if (at == NULL) {
    return CT_ENOMEM;
  }
  column->page.size += is_first ? DELTA_HEAD_MAX : 0;
  at = column->page.data + column->page.size;
  if (count > is_first) {
    at = pack_block(at, column, values + is_first, count - is_first);
  }
  column->page.size = (size_t)(at - column->page.data);
  return CT_OK;
}

static int
pack_rows(struct ct_parquet *file)
{
  int rc = file->failed ? CT_ENOMEM : CT_OK;
  for (unsigned i = 0; i < file->count && file->fresh.count != 0 && rc == CT_OK; i++) {
    if (file->columns[i].type != CT_PARQUET_TEXT) {
      rc = pack_numbers(&file->values[i], file->fresh.numbers[i], file->fresh.count, file->rows == 0);
    }
  }
  file->rows += file->fresh.count;
  file->fresh.count = 0;
  return rc;
}

/* The page of a column: of numbers with its head, which fits before the blocks. */
static const uint8_t *
page_of(struct column *column, bool is_text, uint32_t rows, size_t *bytes)
{
  uint8_t head[DELTA_HEAD_MAX];
  if (is_text) {
    *bytes = column->page.size;
    return column->page.data;
  }
  uint8_t *end = ct_varint_put(ct_varint_put(ct_varint_put(head, BLOCK), PARTS), rows);
  end = ct_varint_put(end, zigzag((int64_t)column->first));
  size_t length = (size_t)(end - head);
  uint8_t *begin = column->page.data + DELTA_HEAD_MAX - length;
  memcpy(begin, head, length);
  *bytes = column->page.size - DELTA_HEAD_MAX + length;
  return begin;
}

void
ct_parquet_text(struct ct_parquet *file, unsigned column, const char *text, size_t bytes)
{
  struct bytes *texts = &file->values[column].page;
  uint8_t *at = room(texts, bytes + 4);
  file->failed |= at == NULL;
  if (at != NULL) {
    uint32_t length = (uint32_t)bytes;
    memcpy(at, &length, sizeof(length));
    memcpy(at + 4, text, bytes);
    texts->size += bytes + 4;
  }
}

/* ---- row groups ---- */

/* The page of a column, and in `groups` what the metadata says of it. */
static int
put_column(struct ct_parquet *file, unsigned number, struct writer *meta, uint64_t *total)
{
  struct column *column = &file->values[number];
  const struct ct_parquet_column *info = &file->columns[number];
  bool is_text = info->type == CT_PARQUET_TEXT;
  size_t bytes;
  const uint8_t *page = page_of(column, is_text, file->rows, &bytes);
  file->packed.size = 0;
  uint8_t *to = room(&file->packed, ZSTD_compressBound(bytes));
  size_t packed = to != NULL ? ZSTD_compress(to, ZSTD_compressBound(bytes), page, bytes, LEVEL) : 0;
  if (to == NULL || ZSTD_isError(packed)) {
    return CT_ENOMEM;
  }
  struct bytes head = {0};
  struct writer w = {.to = &head};
  add_number(&w, 1, T_I32, 0);
  add_number(&w, 2, T_I32, (int64_t)bytes);
  add_number(&w, 3, T_I32, (int64_t)packed);
  add_field(&w, 5, T_STRUCT);
  int outer = begin_struct(&w);
  add_number(&w, 1, T_I32, file->rows);
  add_number(&w, 2, T_I32, is_text ? PLAIN : DELTA);
  add_number(&w, 3, T_I32, RLE);
  add_number(&w, 4, T_I32, RLE);
  end_struct(&w, outer);
  end_struct(&w, 0);
  if (!w.failed) {
    ct_out_put(&file->out, head.data, head.size);
    ct_out_put(&file->out, to, packed);
  }
  uint64_t unpacked_bytes = head.size + bytes, packed_bytes = head.size + packed;
  free(head.data);
  int chunk = begin_struct(meta);
  add_number(meta, 2, T_I64, (int64_t)file->offset);
  add_field(meta, 3, T_STRUCT);
  int inner = begin_struct(meta);
  add_number(meta, 1, T_I32, info->type);
  add_list(meta, 2, T_I32, 1);
  add_varint(meta, zigzag(is_text ? PLAIN : DELTA));
  add_list(meta, 3, T_BINARY, 1);
  add_binary(meta, info->name, strlen(info->name));
  add_number(meta, 4, T_I32, ZSTD);
  add_number(meta, 5, T_I64, file->rows);
  add_number(meta, 6, T_I64, (int64_t)unpacked_bytes);
  add_number(meta, 7, T_I64, (int64_t)packed_bytes);
  add_number(meta, 9, T_I64, (int64_t)file->offset);
  if (!is_text) {
    size_t size = info->type == CT_PARQUET_INT32 ? 4 : 8; /* little-endian, as this machine */
    add_field(meta, 12, T_STRUCT);
    int statistics = begin_struct(meta);
    add_field(meta, 5, T_BINARY);
    add_binary(meta, &column->greatest, size);
    add_field(meta, 6, T_BINARY);
    add_binary(meta, &column->least, size);
    end_struct(meta, statistics);
  }
  end_struct(meta, inner);
  end_struct(meta, chunk);
  column->page.size = 0;
  file->offset += packed_bytes;
  *total += packed_bytes;
  return w.failed || meta->failed ? CT_ENOMEM : CT_OK;
}

static int
put_group(struct ct_parquet *file)
{
  struct writer meta = {.to = &file->groups};
  uint64_t total = 0;
  int rc = pack_rows(file);
  if (file->rows == 0 || rc != CT_OK) {
    return rc;
  }
  add_list(&meta, 1, T_STRUCT, file->count);
  for (unsigned i = 0; i < file->count && rc == CT_OK; i++) {
    rc = put_column(file, i, &meta, &total);
  }
  add_number(&meta, 2, T_I64, (int64_t)total);
  add_number(&meta, 3, T_I64, file->rows);
  end_struct(&meta, 0);
  file->all_rows += file->rows;
  file->group_count++;
  file->rows = 0;
  return rc != CT_OK || meta.failed ? CT_ENOMEM : CT_OK;
}

int
ct_parquet_end_row(struct ct_parquet *file)
{
  uint32_t most = BLOCK + (file->rows == 0);
  if (++file->fresh.count < most && file->rows + file->fresh.count < CT_PARQUET_GROUP_ROWS) {
    return file->failed ? CT_ENOMEM : CT_OK;
  }
  int rc = pack_rows(file);
  if (rc != CT_OK || file->rows < CT_PARQUET_GROUP_ROWS) {
    return rc;
  }
  rc = put_group(file);
  return rc == CT_OK && ct_out_failed(&file->out) ? CT_EIO : rc;
}

/* ---- begin and end ---- */

static int
put_metadata(struct ct_parquet *file)
{
  struct bytes bytes = {0};
  struct writer w = {.to = &bytes};
  static const char writer[] = "contrail " CT_VERSION;
  add_number(&w, 1, T_I32, 2);
  add_list(&w, 2, T_STRUCT, file->count + 1);
  for (unsigned i = 0; i <= file->count; i++) {
    const struct ct_parquet_column *column = i != 0 ? &file->columns[i - 1] : NULL;
    const char *name = column != NULL ? column->name : "schema";
    int outer = begin_struct(&w);
    if (column != NULL) {
      add_number(&w, 1, T_I32, column->type);
      add_number(&w, 3, T_I32, 0); /* required */
    }
    add_field(&w, 4, T_BINARY);
    add_binary(&w, name, strlen(name));
    if (column == NULL) {
      add_number(&w, 5, T_I32, file->count);
    } else if (column->type == CT_PARQUET_TEXT) {
      add_number(&w, 6, T_I32, 0); /* UTF8 */
    }
    end_struct(&w, outer);
  }
  add_number(&w, 3, T_I64, (int64_t)file->all_rows);
  add_list(&w, 4, T_STRUCT, file->group_count);
  add(&w, file->groups.data, file->groups.size);
  add_field(&w, 6, T_BINARY);
  add_binary(&w, writer, sizeof(writer) - 1);
  end_struct(&w, 0);
  if (!w.failed) {
    uint8_t length[4];
    for (int i = 0; i < 4; i++) {
      length[i] = (uint8_t)(bytes.size >> (8 * i));
    }
    ct_out_put(&file->out, bytes.data, bytes.size);
    ct_out_put(&file->out, length, sizeof(length));
    ct_out_literal(&file->out, "PAR1");
  }
  free(bytes.data);
  return w.failed ? CT_ENOMEM : CT_OK;
}

static void
free_file(struct ct_parquet *file)
{
  for (unsigned i = 0; i < file->count; i++) {
    free(file->values[i].page.data);
  }
  free(file->packed.data);
  free(file->groups.data);
  free(file);
}

int
ct_parquet_open(const char *path, const struct ct_parquet_column *columns, unsigned count, struct ct_parquet **out,
                struct ct_diag *diag)
{
  struct ct_parquet *file = calloc(1, sizeof(*file));
  bool has_room = file != NULL && count <= CT_PARQUET_COLUMNS_MAX;
  int rc = has_room ? ct_out_open(&file->out, path, -1, CT_OUT_PLAIN, diag)
                    : ct_fail(diag, CT_ENOMEM, "out of memory for a Parquet file");
  if (rc != CT_OK) {
    if (file != NULL) {
      free_file(file);
    }
    return rc;
  }
  file->columns = columns;
  file->count = count;
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
  int rc = code == CT_OK ? put_group(file) : code;
  rc = rc == CT_OK ? put_metadata(file) : rc;
  if (rc == CT_ENOMEM && code == CT_OK) {
    ct_fail(diag, rc, "out of memory for a Parquet file");
  }
  rc = ct_out_close(&file->out, rc, &written, diag);
  *bytes += written;
  free_file(file);
  return rc;
}
