/* SPDX-License-Identifier: MIT */
/*
 * Sets of numbers with a mask of 8 bits each: words of memory, and which of their bytes are meant. Filled by adding,
 * then packed: sorted, in groups, so that a question reads one group. What is packed says exactly what was added.
 */
#ifndef CT_STEPS_KEYS_H
#define CT_STEPS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_key {
  uint64_t key;
  uint32_t mask; /* 1 to 255; of a free slot 0 */
};

/* Zeroed before the first use. */
struct ct_keys {
  struct ct_key *slots;
  uint32_t *used; /* slots that are not free, in the order in which they were taken */
  struct ct_key *sorted;
  size_t count, mask, capacity;
};

/* False: out of memory. mask is not 0. */
bool ct_keys_add(struct ct_keys *keys, uint64_t key, uint8_t mask);
/* The bytes from address on, as words of 8: bytes is so small that each word is worth a key. */
bool ct_keys_add_bytes(struct ct_keys *keys, uint64_t address, uint64_t bytes);
void ct_keys_empty(struct ct_keys *keys);
void ct_keys_free(struct ct_keys *keys);
/* Takes out of them what others has. */
void ct_keys_subtract(struct ct_keys *keys, const struct ct_keys *others);

struct ct_keys_packed {
  const uint8_t *at;
  uint32_t groups, bytes; /* bytes: of all of it */
};

/* What packing them takes at most. */
size_t ct_keys_bound(const struct ct_keys *keys);
/* False: out of memory. to has ct_keys_bound bytes. */
bool ct_keys_pack(struct ct_keys *keys, uint8_t *to, struct ct_keys_packed *packed);

/* Nothing that is packed is believed: what is wrong is not found, and nothing is read beyond its bytes. */
bool ct_keys_have(const struct ct_keys_packed *packed, uint64_t key);
/*
 * Is one of the bytes from address on in it, one with open[i] == wanted, if open is not NULL? The last one is at most
 * the last address that there is.
 */
bool ct_keys_touch(const struct ct_keys_packed *packed, uint64_t address, uint64_t bytes, const uint8_t *open,
                   uint8_t wanted);

#endif
