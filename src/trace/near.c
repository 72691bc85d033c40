/* SPDX-License-Identifier: MIT */
/*
 * A record is a head, what it has in common with another one, and the words that it has for itself:
 *
 *   head    bits 0 to 7: the place in the table of what it is like; bit 8: there is such a one. If there is, bits 16
 *           to 63 say which of the first 48 words differ; if not, bits 16 to 31 are the number of words, which follow
 *   masks   of 64 further words each, where the record has more than 48
 *   words   those that differ
 *
 * The table has the last record of each place. The third word of a record says of which function and kind it is, and
 * how long; so a record is like one that has the same third word, and both sides know its length.
 */
#include "trace/near.h"

#include "trace/format.h"

#include <contrail/trace.h>

#include <string.h>

#define PLACES      256u
#define KIND_WORD   2u /* of a record: function, length, kind and flags */
#define IN_HEAD     48u
#define IS_LIKE     (1u << 8)
#define HEAD_SHIFT  16
#define WORDS_LEAST (sizeof(struct ct_detail_entry) / 8)
#define WORDS_MOST  (CT_DETAIL_RECORD_MAX / 8)

static_assert(offsetof(struct ct_detail_entry, fn) == KIND_WORD * 8, "which word says what it is");
static_assert(sizeof(struct ct_detail_entry) % 8 == 0 && WORDS_MOST < 1u << 16, "words");

static uint64_t
load(const uint8_t *at)
{
  uint64_t word;
  memcpy(&word, at, sizeof(word));
  return word;
}

static void
store(uint8_t *at, uint64_t word)
{
  memcpy(at, &word, sizeof(word));
}

static uint32_t
place_of(uint64_t kind_word)
{
  return (uint32_t)(kind_word * UINT64_C(0x9e3779b97f4a7c15) >> 56) & (PLACES - 1);
}

static size_t
words_of(const uint8_t *record)
{
  struct ct_detail_entry entry;
  memcpy(&entry, record, sizeof(entry));
  return entry.record_bytes / 8;
}

static size_t
masks_of(size_t words)
{
  return words <= IN_HEAD ? 0 : (words - IN_HEAD + 63) / 64;
}

size_t
ct_near_bound(size_t bytes)
{
  return bytes + (bytes / sizeof(struct ct_detail_entry) + 1) * 8 + bytes / 64;
}

/* The words from first on, count of them, that differ go to *to; which they are. */
static uint64_t
put_different(const uint8_t *record, const uint8_t *like, size_t first, size_t count, uint8_t **to)
{
  uint64_t mask = 0;
  uint8_t *at = *to;
  for (size_t i = 0; i < count; i++) {
    uint64_t word = load(record + (first + i) * 8), differs = word != load(like + (first + i) * 8);
    store(at, word);
    at += differs * 8;
    mask |= differs << i;
  }
  *to = at;
  return mask;
}

static uint8_t *
put_like(const uint8_t *record, const uint8_t *like, size_t words, uint32_t place, uint8_t *to)
{
  uint8_t *masks = to + 8, *at = masks + masks_of(words) * 8;
  uint64_t mask = put_different(record, like, 0, words < IN_HEAD ? words : IN_HEAD, &at);
  store(to, place | IS_LIKE | mask << HEAD_SHIFT);
  for (size_t first = IN_HEAD; first < words; first += 64, masks += 8) {
    size_t count = words - first < 64 ? words - first : 64;
    store(masks, put_different(record, like, first, count, &at));
  }
  return at;
}

size_t
ct_near_pack(const uint8_t *records, size_t bytes, uint8_t *packed)
{
  uint32_t last[PLACES]; /* from the begin, and 1; 0: there was none */
  uint8_t *to = packed;
  memset(last, 0, sizeof(last));
  for (size_t at = 0; at < bytes;) {
    const uint8_t *record = records + at;
    size_t words = words_of(record);
    uint64_t kind_word = load(record + KIND_WORD * 8);
    uint32_t place = place_of(kind_word);
    const uint8_t *like = last[place] != 0 ? records + last[place] - 1 : NULL;
    if (like != NULL && load(like + KIND_WORD * 8) == kind_word) {
      to = put_like(record, like, words, place, to);
    } else {
      store(to, place | (uint64_t)words << HEAD_SHIFT);
      memcpy(to + 8, record, words * 8);
      to += 8 + words * 8;
    }
    last[place] = (uint32_t)at + 1;
    at += words * 8;
  }
  return (size_t)(to - packed);
}

/* ---- back ---- */

struct input {
  const uint8_t *at, *end;
};

static bool
take(struct input *input, uint64_t *word)
{
  if (input->end - input->at < 8) {
    return false;
  }
  *word = load(input->at);
  input->at += 8;
  return true;
}

/* The record is a copy of the one that it is like. */
static bool
take_different(struct input *input, uint64_t mask, size_t first, size_t count, uint8_t *record)
{
  for (; mask != 0; mask &= mask - 1) {
    size_t i = (size_t)__builtin_ctzll(mask);
    uint64_t word;
    if (i >= count || !take(input, &word)) {
      return false;
    }
    store(record + (first + i) * 8, word);
  }
  return true;
}

static bool
take_like(struct input *input, uint64_t head, size_t words, uint8_t *record)
{
  size_t count = masks_of(words);
  uint64_t masks[(WORDS_MOST - IN_HEAD) / 64 + 1];
  for (size_t i = 0; i < count; i++) {
    if (!take(input, &masks[i])) {
      return false;
    }
  }
  bool good = take_different(input, head >> HEAD_SHIFT, 0, words < IN_HEAD ? words : IN_HEAD, record);
  for (size_t i = 0, first = IN_HEAD; i < count && good; i++, first += 64) {
    good = take_different(input, masks[i], first, words - first < 64 ? words - first : 64, record);
  }
  return good;
}

static bool
take_whole(struct input *input, size_t words, uint8_t *record)
{
  if ((size_t)(input->end - input->at) < words * 8) {
    return false;
  }
  memcpy(record, input->at, words * 8);
  input->at += words * 8;
  return words_of(record) == words;
}

bool
ct_near_unpack(const uint8_t *packed, size_t packed_bytes, uint8_t *records, size_t bytes)
{
  struct input input = {packed, packed + packed_bytes};
  uint32_t last[PLACES];
  size_t at = 0;
  memset(last, 0, sizeof(last));
  while (at < bytes) {
    uint64_t head;
    if (!take(&input, &head)) {
      return false;
    }
    uint32_t place = head & (PLACES - 1);
    bool is_like = (head & IS_LIKE) != 0;
    if (is_like && last[place] == 0) {
      return false;
    }
    const uint8_t *like = records + (is_like ? last[place] - 1 : 0);
    size_t words = is_like ? words_of(like) : head >> HEAD_SHIFT & 0xffff;
    if (words < WORDS_LEAST || words > WORDS_MOST || words * 8 > bytes - at) {
      return false;
    }
    if (is_like) {
      memcpy(records + at, like, words * 8);
    }
    if (is_like ? !take_like(&input, head, words, records + at) : !take_whole(&input, words, records + at)) {
      return false;
    }
    if (words_of(records + at) != words) {
      return false;
    }
    last[place] = (uint32_t)at + 1;
    at += words * 8;
  }
  return input.at == input.end;
}
