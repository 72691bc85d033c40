/* SPDX-License-Identifier: MIT */
/*
 * See keys.h. Packed, little endian:
 *
 *   groups x 8   the first key of each group of 64
 *   groups x 4   where its keys begin, from the first group's on
 *   keys         each a number, seven bits a byte, the lowest ones first: twice the distance from the key before (of
 *                the group's first one: 0), and 1 if its mask follows; else that is 255
 *
 * A word that is written as a whole, next to others, takes one byte.
 */
#include "steps/keys.h"

#include "base/branch.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 64, WHOLE = 255, PER_GROUP = 12, KEY_MAX = 11 };

static inline uint64_t
hash_of(uint64_t key)
{
  key *= 0x9e3779b97f4a7c15ull;
  key ^= key >> 32;
  return key * 0xd6e8feb86659fd93ull;
}

/* ---- filling ---- */

static bool
grow(struct ct_keys *keys)
{
  size_t size = keys->slots == NULL ? 1024 : 2 * (keys->mask + 1);
  struct ct_key *slots = calloc(size, sizeof(*slots));
  uint32_t *used = reallocarray(keys->used, size / 2, sizeof(*used));
  keys->used = used != NULL ? used : keys->used;
  if (slots == NULL || used == NULL || size > UINT32_MAX) {
    free(slots);
    return false;
  }
  for (size_t i = 0; i < keys->count; i++) {
    const struct ct_key *key = &keys->slots[used[i]];
    size_t at = hash_of(key->key) & (size - 1);
    while (slots[at].mask != 0) {
      at = (at + 1) & (size - 1);
    }
    slots[at] = *key;
    used[i] = (uint32_t)at;
  }
  free(keys->slots);
  keys->slots = slots;
  keys->mask = size - 1;
  keys->capacity = size / 2;
  return true;
}

bool
ct_keys_add(struct ct_keys *keys, uint64_t key, uint8_t mask)
{
  if (CT_UNLIKELY(keys->count == keys->capacity) && !grow(keys)) {
    return false;
  }
  size_t at = hash_of(key) & keys->mask;
  while (keys->slots[at].mask != 0 && keys->slots[at].key != key) {
    at = (at + 1) & keys->mask;
  }
  if (keys->slots[at].mask == 0) {
    keys->slots[at].key = key;
    keys->used[keys->count++] = (uint32_t)at;
  }
  keys->slots[at].mask |= mask;
  return true;
}

/* Those bytes of the word that are in first to last. */
static inline uint8_t
mask_in(uint64_t word, uint64_t first, uint64_t last)
{
  unsigned from = first >> 3 == word ? first & 7 : 0, to = last >> 3 == word ? last & 7 : 7;
  return (uint8_t)((WHOLE << from) & (WHOLE >> (7 - to)));
}

bool
ct_keys_add_bytes(struct ct_keys *keys, uint64_t address, uint64_t bytes)
{
  uint64_t last = address + bytes - 1 < address ? UINT64_MAX : address + bytes - 1;
  bool good = true;
  for (uint64_t word = address >> 3; bytes != 0 && word <= last >> 3; word++) {
    good = ct_keys_add(keys, word, mask_in(word, address, last)) && good;
  }
  return good;
}

void
ct_keys_empty(struct ct_keys *keys)
{
  for (size_t i = 0; i < keys->count; i++) {
    keys->slots[keys->used[i]].mask = 0;
  }
  keys->count = 0;
}

void
ct_keys_free(struct ct_keys *keys)
{
  free(keys->slots);
  free(keys->used);
  free(keys->sorted);
  *keys = (struct ct_keys){.slots = NULL};
}

static uint32_t
mask_of(const struct ct_keys *keys, uint64_t key)
{
  size_t at = hash_of(key) & keys->mask;
  while (keys->count != 0 && keys->slots[at].mask != 0) {
    if (keys->slots[at].key == key) {
      return keys->slots[at].mask;
    }
    at = (at + 1) & keys->mask;
  }
  return 0;
}

void
ct_keys_subtract(struct ct_keys *keys, const struct ct_keys *others)
{
  /* A slot must not become free before those after it are looked for: 256 is nothing, but not free. */
  for (size_t i = 0; i < keys->count; i++) {
    struct ct_key *key = &keys->slots[keys->used[i]];
    key->mask = (key->mask & ~mask_of(others, key->key)) | (WHOLE + 1);
  }
}

/* ---- packing ---- */

static int
compare(const void *a, const void *b)
{
  const struct ct_key *x = a, *y = b;
  return x->key < y->key ? -1 : x->key > y->key;
}

size_t
ct_keys_bound(const struct ct_keys *keys)
{
  return (keys->count + GROUP - 1) / GROUP * PER_GROUP + keys->count * KEY_MAX;
}

static uint8_t *
put_key(uint8_t *at, uint64_t distance, uint8_t mask)
{
  /* The lowest bit and six of the distance are in the first byte: 64 bits of it fit into ten. */
  uint64_t rest = distance >> 6;
  *at++ = (uint8_t)((distance & 63) << 1 | (mask != WHOLE) | (rest != 0 ? 128 : 0));
  for (; rest != 0; rest >>= 7) {
    *at++ = (uint8_t)((rest & 127) | (rest >> 7 != 0 ? 128 : 0));
  }
  if (mask != WHOLE) {
    *at++ = mask;
  }
  return at;
}

bool
ct_keys_pack(struct ct_keys *keys, uint8_t *to, struct ct_keys_packed *packed)
{
  struct ct_key *sorted = reallocarray(keys->sorted, keys->count + 1, sizeof(*sorted));
  size_t count = 0;
  if (sorted == NULL) {
    return false;
  }
  keys->sorted = sorted;
  for (size_t i = 0; i < keys->count; i++) {
    sorted[count] = keys->slots[keys->used[i]];
    sorted[count].mask &= WHOLE;
    count += sorted[count].mask != 0;
  }
  qsort(sorted, count, sizeof(*sorted), compare);
  uint32_t groups = (uint32_t)((count + GROUP - 1) / GROUP);
  uint8_t *begin = to + (size_t)groups * PER_GROUP, *at = begin;
  for (size_t i = 0; i < count; i++) {
    bool is_first = i % GROUP == 0;
    if (is_first) {
      uint32_t offset = (uint32_t)(at - begin);
      memcpy(to + i / GROUP * sizeof(sorted->key), &sorted[i].key, sizeof(sorted->key));
      memcpy(to + groups * sizeof(sorted->key) + i / GROUP * sizeof(offset), &offset, sizeof(offset));
    }
    at = put_key(at, is_first ? 0 : sorted[i].key - sorted[i - 1].key, (uint8_t)sorted[i].mask);
  }
  *packed = (struct ct_keys_packed){.at = to, .groups = groups, .bytes = (uint32_t)(at - to)};
  return true;
}

/* ---- questions ---- */

static inline uint64_t
first_key(const struct ct_keys_packed *packed, uint32_t group)
{
  uint64_t key;
  memcpy(&key, packed->at + (size_t)group * sizeof(key), sizeof(key));
  return key;
}

/* Over the keys from a group on. */
struct reading {
  const struct ct_keys_packed *packed;
  const uint8_t *at, *end;
  uint32_t group, in_group;
  uint64_t key;
  uint8_t mask;
};

/* The last group that begins at or before the key; false: none does. */
static bool
begin_at(struct reading *r, const struct ct_keys_packed *packed, uint64_t key)
{
  uint32_t low = 0, high = packed->groups, offset;
  if (high == 0 || (uint64_t)high * PER_GROUP > packed->bytes) {
    return false;
  }
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (first_key(packed, middle) <= key) {
      low = middle;
    } else {
      high = middle;
    }
  }
  uint32_t keys = packed->bytes - packed->groups * PER_GROUP;
  memcpy(&offset, packed->at + packed->groups * sizeof(key) + (size_t)low * sizeof(offset), sizeof(offset));
  if (offset > keys) {
    return false;
  }
  *r = (struct reading){.packed = packed, .end = packed->at + packed->bytes, .group = low};
  r->at = r->end - keys + offset;
  return true;
}

static bool
next_key(struct reading *r)
{
  if (r->in_group == GROUP) {
    r->in_group = 0;
    r->group++;
  }
  if (r->at >= r->end || r->group >= r->packed->groups) {
    return false;
  }
  uint8_t byte = *r->at++;
  bool has_mask = (byte & 1) != 0;
  uint64_t distance = byte >> 1 & 63;
  for (unsigned shift = 6; (byte & 128) != 0 && shift < 64 && r->at < r->end; shift += 7) {
    byte = *r->at++;
    distance |= (uint64_t)(byte & 127) << shift;
  }
  if (has_mask && r->at >= r->end) {
    return false;
  }
  r->mask = has_mask ? *r->at++ : WHOLE;
  r->key = r->in_group++ == 0 ? first_key(r->packed, r->group) : r->key + distance;
  return true;
}

bool
ct_keys_have(const struct ct_keys_packed *packed, uint64_t key)
{
  struct reading reading;
  if (!begin_at(&reading, packed, key)) {
    return false;
  }
  while (next_key(&reading)) {
    if (reading.key >= key) {
      return reading.key == key;
    }
  }
  return false;
}

static bool
is_open(uint64_t word, uint8_t mask, uint64_t address, const uint8_t *open, uint8_t wanted)
{
  for (; mask != 0; mask &= (uint8_t)(mask - 1)) {
    if (open[(word << 3) + (unsigned)__builtin_ctz(mask) - address] == wanted) {
      return true;
    }
  }
  return false;
}

bool
ct_keys_touch(const struct ct_keys_packed *packed, uint64_t address, uint64_t bytes, const uint8_t *open,
              uint8_t wanted)
{
  struct reading reading;
  uint64_t last = address + bytes - 1, first = address >> 3;
  if (bytes == 0 || !begin_at(&reading, packed, first)) {
    return false;
  }
  while (next_key(&reading) && reading.key <= last >> 3) {
    uint8_t mask = reading.key < first ? 0 : reading.mask & mask_in(reading.key, address, last);
    if (mask != 0 && (open == NULL || is_open(reading.key, mask, address, open, wanted))) {
      return true;
    }
  }
  return false;
}
