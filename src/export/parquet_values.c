/* SPDX-License-Identifier: MIT */
/*
 * See parquet_values.h. Three encodings:
 *
 *   dictionary  each value once, PLAIN, in a page of its own; and for each row its index, all of so many bits:
 *               one run of RLE when there is one value, else one bit-packed run. Widths are 1, 2, 4, 8 or 16 bits: what
 *               fills bytes alike zstd packs better than what does not, though there is more of it
 *   delta       DELTA_BINARY_PACKED: 128 to a block, 4 parts in a block, how many values, the first one; then of each
 *               block the least difference, the width of each part in bits, and the parts: 32 differences less the
 *               least one, lowest bits first
 *   plain       of texts
 *
 * A group begins with a dictionary. When it is full, what follows in the group is delta. When a value has come fewer
 * than four times on the average the dictionary does not pay: then its rows are encoded again, as delta or plain.
 * Texts have numbers in their group, which go the same way; a group ends before there are too many of them.
 *
 * Blocks of delta are full but for a group's last, so what goes there at a time is 1 + 128 n values at first, then
 * 128 n: windows are so, and of the window with which a dictionary gives up it takes the first 127.
 */
#include "export/parquet_values.h"

#include <stdlib.h>

enum {
  BLOCK = 128,
  PARTS = 4,
  PART = BLOCK / PARTS,
  DELTA_HEAD_MAX = 24, /* how many values, and the first one: known at the end of a group */
  BLOCK_MAX = 10 + PARTS + BLOCK * 8,
  ENTRIES_MAX = 1 << 14, /* and up to a block more */
  DIRECT = 1 << 12,
  SLOT_BITS = 15, /* of twice as many as there are entries */
  SLOTS = 1 << SLOT_BITS,
  PAYS = 4,
  TEXTS_MAX = ENTRIES_MAX - 2 * (CT_PARQUET_WINDOW + 1),
  TEXT_BYTES_MAX = 4 << 20,
  REPORTED_MAX = 256, /* longer texts are not in the statistics */
};

/* ---- delta ---- */

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

static bool
are_equal(const uint64_t *values, uint32_t count)
{
  return count <= 1 || memcmp(values, values + 1, (count - 1) * sizeof(*values)) == 0;
}

static uint8_t *
pack_block(uint8_t *at, struct ct_parquet_values *column, const uint64_t *values, uint32_t count)
{
  uint64_t deltas[BLOCK], last = column->last;
  if (values[0] == last && are_equal(values, count)) { /* the least difference 0, and four times no bits */
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
  at = ct_varint_put(at, ct_zigzag(least_delta));
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

/* The first value of the page is in no block. */
static int
add_delta(struct ct_parquet_values *column, const uint64_t *values, uint32_t count)
{
  uint32_t at = 0;
  if (column->delta_rows == 0) {
    column->delta.size = 0;
    if (ct_export_bytes_room(&column->delta, DELTA_HEAD_MAX) == NULL) {
      return CT_ENOMEM;
    }
    column->delta.size = DELTA_HEAD_MAX;
    column->first = column->last = values[0];
    column->least = column->greatest = (int64_t)values[0];
    at = 1;
  }
  uint8_t *to = ct_export_bytes_room(&column->delta, (size_t)(count / BLOCK + 1) * BLOCK_MAX);
  if (to == NULL) {
    return CT_ENOMEM;
  }
  for (; at < count; at += BLOCK) {
    to = pack_block(to, column, values + at, count - at < BLOCK ? count - at : BLOCK);
  }
  column->delta.size = (size_t)(to - column->delta.data);
  column->delta_rows += count;
  return CT_OK;
}

/* The page, with its head, which fits before the blocks. */
static struct ct_parquet_page
delta_page(struct ct_parquet_values *column)
{
  uint8_t head[DELTA_HEAD_MAX];
  uint8_t *end = ct_varint_put(ct_varint_put(ct_varint_put(head, BLOCK), PARTS), column->delta_rows);
  end = ct_varint_put(end, ct_zigzag((int64_t)column->first));
  size_t length = (size_t)(end - head);
  uint8_t *begin = column->delta.data + DELTA_HEAD_MAX - length;
  memcpy(begin, head, length);
  return (struct ct_parquet_page){begin, column->delta.size - DELTA_HEAD_MAX + length, column->delta_rows,
                                  CT_PARQUET_DELTA};
}

/* ---- texts ---- */

static uint32_t
hash_of(uint64_t value, unsigned bits)
{
  return (uint32_t)(value * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits));
}

static const uint8_t *
text_at(const struct ct_parquet_texts *texts, uint32_t number, uint32_t *bytes)
{
  const uint8_t *at = texts->plain.data + texts->offsets[number];
  memcpy(bytes, at, sizeof(*bytes));
  return at + sizeof(*bytes);
}

static int
make_texts(struct ct_parquet_texts *texts)
{
  if (texts->slots == NULL) {
    texts->slots = calloc(SLOTS, sizeof(*texts->slots));
    texts->offsets = calloc(ENTRIES_MAX, sizeof(*texts->offsets));
  }
  return texts->slots != NULL && texts->offsets != NULL ? CT_OK : CT_ENOMEM;
}

uint32_t
ct_parquet_values_text(struct ct_parquet_values *values, const char *text, size_t bytes)
{
  struct ct_parquet_texts *texts = &values->texts;
  uint64_t sum = bytes;
  uint32_t length = (uint32_t)bytes, other;
  if (make_texts(texts) != CT_OK || bytes > UINT32_MAX / 2) {
    return UINT32_MAX;
  }
  for (size_t i = 0; i < bytes; i++) {
    sum = (sum ^ (uint8_t)text[i]) * UINT64_C(0x100000001B3);
  }
  uint32_t at = hash_of(sum, SLOT_BITS);
  for (; texts->slots[at] != 0; at = (at + 1) % SLOTS) {
    const uint8_t *known = text_at(texts, texts->slots[at] - 1, &other);
    if (other == length && memcmp(known, text, bytes) == 0) {
      return texts->slots[at] - 1;
    }
  }
  uint8_t *to = ct_export_bytes_room(&texts->plain, bytes + sizeof(length));
  if (to == NULL || texts->count == ENTRIES_MAX) {
    return UINT32_MAX;
  }
  memcpy(to, &length, sizeof(length));
  memcpy(to + sizeof(length), text, bytes);
  texts->offsets[texts->count] = (uint32_t)texts->plain.size;
  texts->plain.size += bytes + sizeof(length);
  texts->slots[at] = ++texts->count;
  return texts->count - 1;
}

bool
ct_parquet_values_are_full(const struct ct_parquet_values *values)
{
  return values->texts.count > TEXTS_MAX || values->texts.plain.size > TEXT_BYTES_MAX;
}

/* The text of a value: one of the fixed list, or of the group's. */
static const uint8_t *
text_of(const struct ct_parquet_values *values, uint64_t value, uint32_t *bytes)
{
  if (values->info->texts != NULL) {
    const char *text = values->info->texts[value];
    *bytes = (uint32_t)strlen(text);
    return (const uint8_t *)text;
  }
  return text_at(&values->texts, (uint32_t)value, bytes);
}

/* ---- dictionary ---- */

static int
make_dictionary(struct ct_parquet_values *values)
{
  if (values->entries == NULL) {
    values->entries = calloc(ENTRIES_MAX + BLOCK, sizeof(*values->entries));
    values->direct = calloc(DIRECT, sizeof(*values->direct));
    values->slots = calloc(SLOTS, sizeof(*values->slots));
  }
  return values->entries != NULL && values->direct != NULL && values->slots != NULL ? CT_OK : CT_ENOMEM;
}

/* Which entry it is; a new one, if it has to be, for which there is room. */
static inline uint16_t
index_of(struct ct_parquet_values *values, uint64_t value)
{
  uint16_t *slot = &values->direct[value % DIRECT];
  if (CT_UNLIKELY(value >= DIRECT)) {
    uint32_t at = hash_of(value, SLOT_BITS);
    while (values->slots[at] != 0 && values->entries[values->slots[at] - 1] != value) {
      at = (at + 1) % SLOTS;
    }
    slot = &values->slots[at];
  }
  if (CT_UNLIKELY(*slot == 0)) {
    values->entries[values->count++] = value;
    *slot = (uint16_t)values->count;
  }
  return *slot - 1;
}

/* Until there are two values no row has an index in memory. */
static int
make_indices(struct ct_parquet_values *values)
{
  if (values->indices == NULL) {
    values->indices = malloc(CT_PARQUET_GROUP_ROWS * sizeof(*values->indices));
  }
  if (values->indices == NULL) {
    return CT_ENOMEM;
  }
  memset(values->indices, 0, values->rows * sizeof(*values->indices));
  return CT_OK;
}

static int
add_to_dictionary(struct ct_parquet_values *values, const uint64_t *numbers, uint32_t count)
{
  bool is_constant = are_equal(numbers, count);
  if (count == 0) {
    return CT_OK;
  }
  if (make_dictionary(values) != CT_OK) {
    return CT_ENOMEM;
  }
  bool was_constant = values->count <= 1;
  uint16_t first = index_of(values, numbers[0]);
  if (was_constant && is_constant && values->count == 1) {
    values->rows += count;
    return CT_OK;
  }
  if (was_constant && make_indices(values) != CT_OK) {
    return CT_ENOMEM;
  }
  uint16_t *to = values->indices + values->rows;
  for (uint32_t i = 0; i < count; i++) {
    to[i] = is_constant ? first : index_of(values, numbers[i]);
  }
  values->rows += count;
  return CT_OK;
}

static void
forget_entries(struct ct_parquet_values *values)
{
  bool has_large = false;
  for (uint32_t i = 0; i < values->count; i++) {
    if (values->entries[i] < DIRECT) {
      values->direct[values->entries[i]] = 0;
    } else {
      has_large = true;
    }
  }
  if (has_large) {
    memset(values->slots, 0, SLOTS * sizeof(*values->slots));
  }
  values->rows = values->count = 0;
}

static bool
pays(const struct ct_parquet_values *values)
{
  return (uint64_t)values->count * PAYS <= values->rows;
}

/* The rows of the dictionary, as delta. */
static int
undo_dictionary(struct ct_parquet_values *values)
{
  uint64_t window[CT_PARQUET_WINDOW + 1];
  int code = CT_OK;
  for (uint32_t row = 0; row < values->rows && code == CT_OK;) {
    uint32_t most = CT_PARQUET_WINDOW + (row == 0), left = values->rows - row, count = left < most ? left : most;
    for (uint32_t i = 0; i < count; i++) {
      window[i] = values->entries[values->count > 1 ? values->indices[row + i] : 0];
    }
    code = add_delta(values, window, count);
    row += count;
  }
  forget_entries(values);
  return code;
}

int
ct_parquet_values_add(struct ct_parquet_values *values, const uint64_t *numbers, uint32_t count)
{
  uint32_t lead = 0;
  if (values->info->is_various || values->delta_rows != 0) {
    return add_delta(values, numbers, count);
  }
  if (CT_LIKELY(values->count + count <= ENTRIES_MAX)) {
    return add_to_dictionary(values, numbers, count);
  }
  int code = CT_OK;
  if (pays(values)) {
    lead = (count - 1) % BLOCK;
    code = add_to_dictionary(values, numbers, lead);
  } else {
    code = undo_dictionary(values);
  }
  return code == CT_OK ? add_delta(values, numbers + lead, count - lead) : code;
}

/* ---- pages ---- */

static int
plain_entries(struct ct_parquet_values *values)
{
  struct ct_export_bytes *page = &values->pages[0];
  size_t size = values->info->type == CT_PARQUET_INT32 ? 4 : 8; /* little-endian, as this machine */
  page->size = 0;
  for (uint32_t i = 0; i < values->count; i++) {
    const void *data = &values->entries[i];
    uint32_t bytes = (uint32_t)size;
    if (values->info->type == CT_PARQUET_TEXT) {
      data = text_of(values, values->entries[i], &bytes);
    }
    uint8_t *to = ct_export_bytes_room(page, bytes + sizeof(bytes));
    if (to == NULL) {
      return CT_ENOMEM;
    }
    if (values->info->type == CT_PARQUET_TEXT) {
      memcpy(to, &bytes, sizeof(bytes));
      to += sizeof(bytes);
      page->size += sizeof(bytes);
    }
    memcpy(to, data, bytes);
    page->size += bytes;
  }
  return CT_OK;
}

/* The rows' texts, each as often as it comes. */
static int
plain_rows(struct ct_parquet_values *values)
{
  struct ct_export_bytes *page = &values->pages[1];
  page->size = 0;
  for (uint32_t i = 0; i < values->rows; i++) {
    uint32_t bytes;
    const uint8_t *text = text_of(values, values->entries[values->count > 1 ? values->indices[i] : 0], &bytes);
    uint8_t *to = ct_export_bytes_room(page, bytes + sizeof(bytes));
    if (to == NULL) {
      return CT_ENOMEM;
    }
    memcpy(to, &bytes, sizeof(bytes));
    memcpy(to + sizeof(bytes), text, bytes);
    page->size += bytes + sizeof(bytes);
  }
  return CT_OK;
}

/* Room for `count` indices is there, and for the last of them to be of a group of 8. */
static uint8_t *
pack_indices(uint8_t *to, const uint16_t *indices, uint32_t count, unsigned width)
{
  uint32_t whole = (count + 7) / 8 * 8;
  memset(to + (size_t)whole / 8 * width - width, 0, width);
  if (width == 16) {
    memcpy(to, indices, count * sizeof(*indices)); /* little-endian, as this machine */
  } else if (width == 8) {
    for (uint32_t i = 0; i < count; i++) {
      to[i] = (uint8_t)indices[i];
    }
  } else {
    unsigned each = 8 / width;
    for (uint32_t i = 0; i < count; i += each) {
      unsigned byte = 0;
      for (unsigned k = 0; k < each && i + k < count; k++) {
        byte |= (unsigned)indices[i + k] << k * width;
      }
      to[i / each] = (uint8_t)byte;
    }
  }
  return to + (size_t)whole / 8 * width;
}

/* The width of the indices in a byte, and then one run. */
static int
pack_rows(struct ct_parquet_values *values)
{
  struct ct_export_bytes *page = &values->pages[1];
  uint32_t count = values->count;
  unsigned width = count <= 2 ? 1 : count <= 4 ? 2 : count <= 16 ? 4 : count <= 256 ? 8 : 16;
  page->size = 0;
  uint8_t *to = ct_export_bytes_room(page, 16 + ((size_t)values->rows / 8 + 1) * width);
  if (to == NULL) {
    return CT_ENOMEM;
  }
  *to++ = (uint8_t)width;
  if (count == 1) {
    to = ct_varint_put(to, (uint64_t)values->rows << 1);
    *to++ = 0;
  } else {
    to = ct_varint_put(to, (uint64_t)(values->rows + 7) / 8 << 1 | 1);
    to = pack_indices(to, values->indices, values->rows, width);
  }
  page->size = (size_t)(to - page->data);
  return CT_OK;
}

/* ---- what the metadata says ---- */

static int
compare(const uint8_t *a, uint32_t a_bytes, const uint8_t *b, uint32_t b_bytes)
{
  int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
  return order != 0 ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static void
report_texts(const struct ct_parquet_values *values, struct ct_parquet_chunk *chunk)
{
  uint32_t least_bytes = 0, greatest_bytes = 0, bytes;
  const uint8_t *least = text_of(values, values->entries[0], &least_bytes), *greatest = least;
  greatest_bytes = least_bytes;
  for (uint32_t i = 1; i < values->count; i++) {
    const uint8_t *text = text_of(values, values->entries[i], &bytes);
    if (compare(text, bytes, least, least_bytes) < 0) {
      least = text;
      least_bytes = bytes;
    } else if (compare(text, bytes, greatest, greatest_bytes) > 0) {
      greatest = text;
      greatest_bytes = bytes;
    }
  }
  chunk->least = least_bytes <= REPORTED_MAX ? least : NULL;
  chunk->least_bytes = least_bytes;
  chunk->greatest = greatest_bytes <= REPORTED_MAX ? greatest : NULL;
  chunk->greatest_bytes = greatest_bytes;
}

static void
report_numbers(struct ct_parquet_values *values, struct ct_parquet_chunk *chunk)
{
  if (values->delta_rows == 0) {
    values->least = values->greatest = (int64_t)values->entries[0];
  }
  for (uint32_t i = 0; i < values->count; i++) {
    int64_t value = (int64_t)values->entries[i];
    values->least = value < values->least ? value : values->least;
    values->greatest = value > values->greatest ? value : values->greatest;
  }
  chunk->least = &values->least; /* little-endian, as this machine */
  chunk->greatest = &values->greatest;
  chunk->least_bytes = chunk->greatest_bytes = values->info->type == CT_PARQUET_INT32 ? 4 : 8;
}

int
ct_parquet_values_end(struct ct_parquet_values *values, struct ct_parquet_chunk *chunk)
{
  bool is_text = values->info->type == CT_PARQUET_TEXT, is_dictionary = pays(values);
  int code = CT_OK;
  *chunk = (struct ct_parquet_chunk){.distinct = values->delta_rows == 0 ? values->count : 0};
  if (!is_dictionary && !is_text) {
    code = undo_dictionary(values);
  }
  if (values->rows != 0 && code == CT_OK) {
    struct ct_parquet_page *page = &chunk->pages[chunk->count++];
    code = is_dictionary ? plain_entries(values) : plain_rows(values);
    code = code == CT_OK && is_dictionary ? pack_rows(values) : code;
    *page = (struct ct_parquet_page){values->pages[1].data, values->pages[1].size, values->rows,
                                     is_dictionary ? CT_PARQUET_DICTIONARY : CT_PARQUET_PLAIN};
    chunk->has_dictionary = is_dictionary;
    chunk->dictionary =
        (struct ct_parquet_page){values->pages[0].data, values->pages[0].size, values->count, CT_PARQUET_PLAIN};
  }
  if (values->delta_rows != 0 && code == CT_OK) {
    chunk->pages[chunk->count++] = delta_page(values);
  }
  if (code == CT_OK && chunk->count != 0) {
    if (is_text) {
      report_texts(values, chunk);
    } else {
      report_numbers(values, chunk);
    }
  }
  return code;
}

void
ct_parquet_values_clear(struct ct_parquet_values *values)
{
  forget_entries(values);
  if (values->texts.count != 0) {
    memset(values->texts.slots, 0, SLOTS * sizeof(*values->texts.slots));
  }
  values->texts.count = 0;
  values->texts.plain.size = 0;
  values->delta_rows = 0;
}

void
ct_parquet_values_free(struct ct_parquet_values *values)
{
  free(values->entries);
  free(values->indices);
  free(values->direct);
  free(values->slots);
  free(values->texts.offsets);
  free(values->texts.slots);
  ct_export_bytes_free(&values->texts.plain);
  ct_export_bytes_free(&values->delta);
  ct_export_bytes_free(&values->pages[0]);
  ct_export_bytes_free(&values->pages[1]);
}
