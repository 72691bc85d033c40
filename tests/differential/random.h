/* SPDX-License-Identifier: MIT */
/* Numbers that follow from a seed and a case: one case can be made again without those before it. */
#ifndef CT_TESTS_RANDOM_H
#define CT_TESTS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rng {
  uint64_t state;
};

/* splitmix64 */
static inline uint64_t
rng_next(struct rng *rng)
{
  uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static inline struct rng
rng_of(uint64_t seed, uint64_t number)
{
  struct rng rng = {seed};
  rng.state = rng_next(&rng) ^ number * 0xd1342543de82ef95ull;
  rng_next(&rng);
  return rng;
}

static inline uint64_t
rng_below(struct rng *rng, uint64_t bound)
{
  return bound == 0 ? 0 : rng_next(rng) % bound;
}

static inline bool
rng_chance(struct rng *rng, unsigned percent)
{
  return rng_next(rng) % 100 < percent;
}

static inline void
rng_fill(struct rng *rng, void *bytes, size_t size)
{
  uint8_t *at = bytes;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = rng_next(rng);
    memcpy(at + i, &word, size - i < 8 ? size - i : 8);
  }
}

#endif
