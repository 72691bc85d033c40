/* SPDX-License-Identifier: MIT */
/*
 * Functions by their rates, ten times a second, thousands of them. By the upper bits of the rate, in two passes, and
 * then each to its place among its neighbours, which is not far: no rate is negative, so their bits are in the same
 * order as they are.
 */
#include "record/budget_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PASS_BITS  11
#define FIRST_BIT  41 /* of the two passes: 11 bits of the exponent, 11 of what comes after it */
#define PLACES     (1u << PASS_BITS)
#define FEW        64 /* are put in place at once */
#define STEPS_MOST 64 /* for each */
static_assert(FIRST_BIT + 2 * PASS_BITS == 63, "all but the sign");

static unsigned
place_of(double rate, unsigned first_bit)
{
  uint64_t bits;
  memcpy(&bits, &rate, sizeof(bits));
  return bits >> first_bit & (PLACES - 1);
}

static void
pass(const struct ct_budget_rank *from, size_t count, unsigned first_bit, struct ct_budget_rank *to)
{
  uint32_t at[PLACES] = {0}, sum = 0;
  for (size_t i = 0; i < count; i++) {
    at[place_of(from[i].rate, first_bit)]++;
  }
  for (unsigned place = 0; place < PLACES; place++) {
    uint32_t here = at[place];
    at[place] = sum;
    sum += here;
  }
  for (size_t i = 0; i < count; i++) {
    to[at[place_of(from[i].rate, first_bit)]++] = from[i];
  }
}

static int
compare_ranks(const void *a, const void *b)
{
  const struct ct_budget_rank *left = a, *right = b;
  return left->rate < right->rate ? -1 : left->rate > right->rate;
}

/* False when that takes too long: they are all alike, and the other way round. */
static bool
put_in_place(struct ct_budget_rank *ranks, size_t count)
{
  size_t steps = 0, most = STEPS_MOST * count;
  for (size_t i = 1; i < count && steps <= most; i++) {
    struct ct_budget_rank rank = ranks[i];
    size_t to = i;
    for (; to > 0 && ranks[to - 1].rate > rank.rate; to--) {
      ranks[to] = ranks[to - 1];
      steps++;
    }
    ranks[to] = rank;
  }
  return steps <= most;
}

void
ct_budget_sort(struct ct_budget_function **functions, size_t count, struct ct_budget_rank *ranks)
{
  for (size_t i = 0; i < count; i++) {
    ranks[i] = (struct ct_budget_rank){functions[i]->rate, functions[i]};
  }
  if (count > FEW) {
    pass(ranks, count, FIRST_BIT, ranks + count);
    pass(ranks + count, count, FIRST_BIT + PASS_BITS, ranks);
  }
  if (!put_in_place(ranks, count)) {
    qsort(ranks, count, sizeof(*ranks), compare_ranks);
  }
  for (size_t i = 0; i < count; i++) {
    functions[i] = ranks[i].function;
  }
}
