/* SPDX-License-Identifier: MIT */
/* See matches.h. */
#include "steps/matches.h"

#include <emmintrin.h>
#include <stdlib.h>

enum {
  TABLE_SHIFT = 13,
  CHUNK = 64, /* bytes that are compared at once */
  GAP_MORE = 255,
  WHAT_DISTANCE = 0,
  WHAT_BYTES = 2,
  TINY_RECORD = 6, /* zstd alone is as fast as the list of these */
  LONG_RECORD = 17,
  SHARE = 4, /* of the bytes of records that are so long, on average ... */
  SHARE_OF_SHORT = 10,
  AT_ONCE = 2048 /* bytes that may be made in any case */
};

struct ct_matcher {
  uint32_t table[1 << TABLE_SHIFT]; /* by a unit and the two before it: where that was, plus 1; 0: nowhere */
  uint32_t *list;                   /* of where records begin */
  uint8_t *made, *tokens;
  uint32_t *numbers;
  size_t size; /* the rooms are for so many bytes of a segment */
};

/* While it is made. */
struct maker {
  const uint8_t *bytes;
  const uint32_t *list;
  uint32_t *table;
  uint32_t size, count, share;
  uint32_t record;   /* number of the one that we are in */
  uint32_t distance; /* 0: none */
  uint32_t done;     /* bytes before it are said, but for the gap */
  uint32_t noted;    /* number of the record that the table was told last, plus 1 */
  uint8_t *tokens, *made;
  uint32_t *numbers;
  uint8_t *tokens_begin, *made_begin;
  uint32_t *numbers_begin;
};

static uint32_t
word_at(const uint8_t *at)
{
  uint32_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

/* ---- room ---- */

struct ct_matcher *
ct_matcher_create(void)
{
  return calloc(1, sizeof(struct ct_matcher));
}

static void
free_rooms(struct ct_matcher *matcher)
{
  free(matcher->list);
  free(matcher->made);
  free(matcher->tokens);
  free(matcher->numbers);
  matcher->list = matcher->numbers = NULL;
  matcher->made = matcher->tokens = NULL;
  matcher->size = 0;
}

void
ct_matcher_free(struct ct_matcher *matcher)
{
  if (matcher != NULL) {
    free_rooms(matcher);
    free(matcher);
  }
}

/*
 * What may be made of the first so many bytes of a segment: zstd alone takes less time where it is more. (Each record
 * takes time, and each value that differs: where there are many records to a byte fewer may differ.)
 */
static size_t
most_at(size_t at, size_t size, uint32_t share)
{
  return AT_ONCE + size / 32 + at / share;
}

/* Before each chunk there is room for it: at most 16 tokens, since records are that short, and 64 bytes. Gaps have a
 * byte more for each 255. */
static bool
reserve(struct ct_matcher *matcher, size_t size)
{
  size_t most = most_at(size, size, SHARE) + size / GAP_MORE + 4 * CHUNK;
  if (matcher->list != NULL && size <= matcher->size) {
    return true;
  }
  free_rooms(matcher);
  matcher->list = malloc(CT_STREAM_LIST_ROOM(size) * sizeof(*matcher->list));
  matcher->made = malloc(CT_MATCHED_HEAD_BYTES + 3 * most); /* all come to lie in it */
  matcher->tokens = malloc(most);
  matcher->numbers = malloc(most);
  if (matcher->list == NULL || matcher->made == NULL || matcher->tokens == NULL || matcher->numbers == NULL) {
    free_rooms(matcher);
    return false;
  }
  matcher->size = size;
  return true;
}

static bool
has_room(const struct maker *m, uint32_t at, uint32_t more)
{
  size_t used = (size_t)(m->tokens - m->tokens_begin) + (size_t)(m->made - m->made_begin) +
                (size_t)(m->numbers - m->numbers_begin) * sizeof(*m->numbers);
  return used + more <= most_at(at, m->size, m->share);
}

/* ---- making ---- */

static void
put_token(struct maker *m, uint32_t at, unsigned what)
{
  uint32_t gap = at - m->done;
  for (; CT_UNLIKELY(gap >= GAP_MORE); gap -= GAP_MORE) {
    *m->tokens++ = GAP_MORE;
  }
  m->tokens[0] = (uint8_t)gap;
  m->tokens[1] = (uint8_t)what;
  m->tokens += 2;
}

/* Of a record and the two before it. */
static uint32_t
place_in_table(const struct maker *m, uint32_t record)
{
  uint64_t sum = word_at(m->bytes + m->list[record]) * 0x9e3779b97f4a7c15ull;
  if (record > 0) {
    sum += word_at(m->bytes + m->list[record - 1]) * 0xc2b2ae3d27d4eb4full;
  }
  if (record > 1) {
    sum += word_at(m->bytes + m->list[record - 2]) * 0x165667b19e3779f9ull;
  }
  return (uint32_t)(sum >> (64 - TABLE_SHIFT));
}

static void
note(struct maker *m)
{
  if (m->noted != m->record + 1) {
    m->table[place_in_table(m, m->record)] = m->list[m->record] + 1;
    m->noted = m->record + 1;
  }
}

/* The record has no unit of before at the distance: another distance, or, and it is the next one's turn, its bytes. */
static bool
begin_record(struct maker *m)
{
  uint32_t at = m->list[m->record], *entry = &m->table[place_in_table(m, m->record)], before = *entry;
  *entry = at + 1;
  if (before != 0 && before - 1 < at && word_at(m->bytes + before - 1) == word_at(m->bytes + at)) {
    if (!has_room(m, at, 0)) {
      return false;
    }
    m->distance = at - (before - 1);
    put_token(m, at, WHAT_DISTANCE);
    *m->numbers++ = m->distance;
    m->done = at;
    return true;
  }
  uint32_t size = m->list[m->record + 1] - at;
  if (!has_room(m, at, size)) {
    return false;
  }
  put_token(m, at, WHAT_BYTES);
  *m->numbers++ = size;
  memcpy(m->made, m->bytes + at, size);
  m->made += size;
  m->done = at + size;
  m->distance = 0;
  m->record++;
  return true;
}

/* Which of the CHUNK bytes differ from those at the distance; fewer at the end. */
static uint64_t
difference(const struct maker *m, uint32_t at)
{
  const uint8_t *a = m->bytes + at, *b = a - m->distance;
  uint64_t same = 0;
  if (CT_UNLIKELY(m->size - at < CHUNK)) {
    for (uint32_t i = 0; i < m->size - at; i++) {
      same |= (uint64_t)(a[i] != b[i]) << i;
    }
    return same;
  }
  for (unsigned i = 0; i < CHUNK; i += 16) {
    __m128i equal = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)(a + i)),
                                   _mm_loadu_si128((const __m128i *)(const void *)(b + i)));
    same |= (uint64_t)(unsigned)_mm_movemask_epi8(equal) << i;
  }
  return ~same;
}

/* Of up to 8 bytes from there on, those of the mask, as they have changed. */
static void
put_changed(struct maker *m, uint32_t at, unsigned mask)
{
  const uint8_t *a = m->bytes + at, *b = a - m->distance;
  put_token(m, at, mask);
  m->done = at + 32 - (uint32_t)__builtin_clz(mask);
  for (; mask != 0; mask &= mask - 1) {
    unsigned i = (unsigned)__builtin_ctz(mask);
    *m->made++ = (uint8_t)(a[i] - b[i]);
  }
}

/* From the record's begin on; false: it becomes too much. m->record: where a unit differs; m->count: nowhere. */
static bool
follow(struct maker *m)
{
  for (uint32_t at = m->list[m->record]; at < m->size; at += CHUNK) {
    uint64_t differs = difference(m, at);
    if (differs != 0 && !has_room(m, at, 0)) {
      return false;
    }
    while (differs != 0) {
      unsigned bit = (unsigned)__builtin_ctzll(differs);
      uint32_t place = at + bit;
      while (m->list[m->record + 1] <= place) {
        m->record++;
      }
      if (place - m->list[m->record] < sizeof(uint32_t)) {
        return true;
      }
      note(m);
      uint32_t left = m->list[m->record + 1] - place;
      unsigned mask = (unsigned)(differs >> bit) & (left < 8 ? (1u << left) - 1 : 0xff);
      put_changed(m, place, mask);
      differs &= ~((uint64_t)mask << bit);
    }
  }
  m->record = m->count;
  return true;
}

static bool
make(struct maker *m)
{
  while (m->record < m->count) {
    uint32_t record = m->record;
    if (!begin_record(m) || (m->record == record && !follow(m))) {
      return false;
    }
  }
  return true;
}

enum ct_matching
ct_matcher_make(struct ct_matcher *matcher, const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
                const struct ct_stream_stamp *stamps, uint32_t stamp_count, struct ct_stream_count *count,
                const uint8_t **out, size_t *out_size)
{
  struct maker m = {.bytes = bytes, .size = (uint32_t)size};
  if (!reserve(matcher, size)) {
    return ct_stream_count_sized(sizes, bytes, size, stamps, stamp_count, count) ? CT_NOT_SIMILAR : CT_NOT_COUNTED;
  }
  if (!ct_stream_list_sized(sizes, bytes, size, stamps, stamp_count, matcher->list, &m.count, count)) {
    return CT_NOT_COUNTED;
  }
  if (size / TINY_RECORD < m.count) {
    return CT_NOT_SIMILAR;
  }
  m.share = m.count == 0 || size / m.count >= LONG_RECORD ? SHARE : SHARE_OF_SHORT;
  memset(matcher->table, 0, sizeof(matcher->table));
  m.list = matcher->list;
  m.table = matcher->table;
  m.tokens = m.tokens_begin = matcher->tokens;
  m.numbers = m.numbers_begin = matcher->numbers;
  m.made = m.made_begin = matcher->made + CT_MATCHED_HEAD_BYTES;
  if (!make(&m)) {
    return CT_NOT_SIMILAR;
  }
  uint32_t head[3] = {(uint32_t)(m.made - m.made_begin), (uint32_t)(m.numbers - m.numbers_begin),
                      (uint32_t)(m.tokens - m.tokens_begin)};
  static_assert(sizeof(head) == CT_MATCHED_HEAD_BYTES, "where the bytes begin");
  memcpy(matcher->made, head, sizeof(head));
  memcpy(m.made, matcher->numbers, head[1] * sizeof(*m.numbers));
  m.made += head[1] * sizeof(*m.numbers);
  memcpy(m.made, matcher->tokens, head[2]);
  *out = matcher->made;
  *out_size = (size_t)(m.made + head[2] - matcher->made);
  return CT_MATCHED;
}

/* ---- undoing ---- */

struct undoing {
  const uint8_t *bytes, *bytes_end, *numbers, *numbers_end, *tokens, *tokens_end;
  uint8_t *begin, *at, *end;
  size_t distance; /* 0: none */
};

/* So many as at the distance, perhaps of what it makes itself. */
static bool
repeat(struct undoing *u, size_t count)
{
  const uint8_t *from = u->at - u->distance;
  if (count > (size_t)(u->end - u->at) || (count != 0 && u->distance == 0)) {
    return false;
  }
  while (count != 0) {
    size_t there = (size_t)(u->at - from), part = count < there ? count : there;
    memcpy(u->at, from, part);
    u->at += part;
    count -= part;
  }
  return true;
}

static bool
take_number(struct undoing *u, uint32_t *out)
{
  if ((size_t)(u->numbers_end - u->numbers) < sizeof(*out)) {
    return false;
  }
  *out = word_at(u->numbers);
  u->numbers += sizeof(*out);
  return true;
}

static bool
take_changed(struct undoing *u, unsigned mask)
{
  unsigned count = 32 - (unsigned)__builtin_clz(mask);
  if (u->distance == 0 || count > (size_t)(u->end - u->at) ||
      (unsigned)__builtin_popcount(mask) > (size_t)(u->bytes_end - u->bytes)) {
    return false;
  }
  for (; mask != 0; mask >>= 1) {
    uint8_t more = 0;
    if ((mask & 1) != 0) {
      more = *u->bytes++;
    }
    *u->at = (uint8_t)(u->at[-(ptrdiff_t)u->distance] + more);
    u->at++;
  }
  return true;
}

static bool
take_token(struct undoing *u)
{
  size_t gap = 0;
  uint32_t number;
  while (u->tokens < u->tokens_end && *u->tokens == GAP_MORE) {
    gap += *u->tokens++;
  }
  if (u->tokens_end - u->tokens < 2) {
    return false;
  }
  gap += *u->tokens++;
  unsigned what = *u->tokens++;
  if (!repeat(u, gap)) {
    return false;
  }
  if ((what & 1) != 0) {
    return take_changed(u, what);
  }
  if ((what != WHAT_DISTANCE && what != WHAT_BYTES) || !take_number(u, &number)) {
    return false;
  }
  if (what == WHAT_DISTANCE) {
    u->distance = number;
    return number <= (size_t)(u->at - u->begin);
  }
  if (number > (size_t)(u->end - u->at) || number > (size_t)(u->bytes_end - u->bytes)) {
    return false;
  }
  memcpy(u->at, u->bytes, number);
  u->at += number;
  u->bytes += number;
  return true;
}

bool
ct_matched_undo(const uint8_t *made, size_t made_size, uint8_t *bytes, size_t size)
{
  uint32_t head[3];
  if (made_size < sizeof(head)) {
    return false;
  }
  memcpy(head, made, sizeof(head));
  if ((uint64_t)head[0] + (uint64_t)head[1] * sizeof(uint32_t) + head[2] != made_size - sizeof(head)) {
    return false;
  }
  struct undoing u = {.bytes = made + sizeof(head), .begin = bytes, .at = bytes, .end = bytes + size};
  u.bytes_end = u.numbers = u.bytes + head[0];
  u.numbers_end = u.tokens = u.numbers + head[1] * sizeof(uint32_t);
  u.tokens_end = u.tokens + head[2];
  while (u.tokens < u.tokens_end) {
    if (!take_token(&u)) {
      return false;
    }
  }
  return repeat(&u, (size_t)(u.end - u.at)) && u.bytes == u.bytes_end && u.numbers == u.numbers_end;
}
