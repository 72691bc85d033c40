/* SPDX-License-Identifier: MIT */
/* See selves.h. */
#include "span/selves.h"

static void
halve(struct ct_batches *batches)
{
  struct ct_batch *list = batches->list;
  for (uint32_t i = 0; i < CT_BATCHES / 2; i++) {
    list[i].calls = list[2 * i].calls + list[2 * i + 1].calls;
    list[i].ticks = list[2 * i].ticks + list[2 * i + 1].ticks;
  }
  for (uint32_t i = CT_BATCHES / 2; i < CT_BATCHES; i++) {
    list[i] = (struct ct_batch){0, 0};
  }
  batches->count = (batches->count + 1) / 2;
  batches->shift++;
}

void
ct_batches_make_room(struct ct_batches *batches, uint64_t number)
{
  while (number >> batches->shift >= CT_BATCHES) {
    halve(batches);
  }
}

void
ct_batches_merge(struct ct_batches *into, const struct ct_batches *from)
{
  struct ct_batches other = *from;
  while (into->shift < other.shift) {
    halve(into);
  }
  while (other.shift < into->shift) {
    halve(&other);
  }
  for (uint32_t i = 0; i < other.count; i++) {
    into->list[i].calls += other.list[i].calls;
    into->list[i].ticks += other.list[i].ticks;
  }
  into->count = other.count > into->count ? other.count : into->count;
}
