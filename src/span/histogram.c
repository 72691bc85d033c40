/* SPDX-License-Identifier: MIT */
/* The cold half of the duration histogram; see histogram.h. */
#include "span/histogram.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { FEW = 64 }; /* values that are sorted by insertion */

static int
add_block(struct ct_histogram *h, unsigned block)
{
  size_t slots = h->slots_used;
  uint32_t *counts = reallocarray(h->counts, slots + 1, CT_HISTOGRAM_BUCKETS * sizeof(*counts));
  if (counts == NULL) {
    return CT_ENOMEM;
  }
  memset(counts + slots * CT_HISTOGRAM_BUCKETS, 0, CT_HISTOGRAM_BUCKETS * sizeof(*counts));
  h->counts = counts;
  h->slots_used++;
  h->slot[block] = h->slots_used;
  return 0;
}

/* Adds n values to one bucket without touching count and sum. */
static int
add_to_bucket(struct ct_histogram *h, unsigned block, unsigned bucket, uint32_t n)
{
  if (h->slot[block] == 0 && add_block(h, block) != 0) {
    return CT_ENOMEM;
  }
  uint32_t *counter = &h->counts[(h->slot[block] - 1) * CT_HISTOGRAM_BUCKETS + bucket];
  *counter = *counter > UINT32_MAX - n ? UINT32_MAX : *counter + n;
  return 0;
}

/* From the log to counters. On failure some values are lost from the percentiles, nothing else. */
static int
spread(struct ct_histogram *h)
{
  uint16_t *log = h->log;
  int code = 0;
  h->log_capacity = 0;
  h->counts = NULL;
  h->is_spread = 1;
  for (uint64_t i = 0; i < h->count && code == 0; i++) {
    code = add_to_bucket(h, log[i] / CT_HISTOGRAM_BUCKETS, log[i] % CT_HISTOGRAM_BUCKETS, 1);
  }
  free(log);
  return code;
}

static int
grow_log(struct ct_histogram *h)
{
  uint16_t capacity = h->log_capacity == 0 ? CT_HISTOGRAM_LOG_MIN : (uint16_t)(h->log_capacity * 2);
  uint16_t *log = reallocarray(h->log, capacity, sizeof(*log));
  if (log == NULL) {
    return CT_ENOMEM;
  }
  h->log = log;
  h->log_capacity = capacity;
  return 0;
}

int
ct_histogram_add_slow(struct ct_histogram *h, uint64_t value)
{
  unsigned block = ct_histogram_block(value);
  if (!h->is_spread && h->log_capacity < CT_HISTOGRAM_LOG_MAX) {
    return grow_log(h) != 0 ? CT_ENOMEM : ct_histogram_add(h, value);
  }
  if (!h->is_spread && spread(h) != 0) {
    return CT_ENOMEM;
  }
  if (add_to_bucket(h, block, ct_histogram_bucket(value, block), 1) != 0) {
    return CT_ENOMEM;
  }
  h->count++;
  h->sum += value;
  return 0;
}

/* The log of `from` goes after that of `into`, or into its counters. */
static int
merge_log(struct ct_histogram *into, const struct ct_histogram *from)
{
  while (!into->is_spread && into->count + from->count > into->log_capacity) {
    if ((into->log_capacity < CT_HISTOGRAM_LOG_MAX ? grow_log(into) : spread(into)) != 0) {
      return CT_ENOMEM;
    }
  }
  if (!into->is_spread) {
    if (from->count != 0) {
      memcpy(into->log + into->count, from->log, from->count * sizeof(*from->log));
    }
    return 0;
  }
  int code = 0;
  for (uint64_t i = 0; i < from->count && code == 0; i++) {
    code = add_to_bucket(into, from->log[i] / CT_HISTOGRAM_BUCKETS, from->log[i] % CT_HISTOGRAM_BUCKETS, 1);
  }
  return code;
}

int
ct_histogram_merge(struct ct_histogram *into, const struct ct_histogram *from)
{
  if (!from->is_spread) {
    if (merge_log(into, from) != 0) {
      return CT_ENOMEM;
    }
  } else if (!into->is_spread && spread(into) != 0) {
    return CT_ENOMEM;
  }
  for (unsigned block = 0; from->is_spread && block < CT_HISTOGRAM_BLOCKS; block++) {
    if (from->slot[block] == 0) {
      continue;
    }
    const uint32_t *counts = &from->counts[(from->slot[block] - 1) * CT_HISTOGRAM_BUCKETS];
    for (unsigned bucket = 0; bucket < CT_HISTOGRAM_BUCKETS; bucket++) {
      if (counts[bucket] != 0 && add_to_bucket(into, block, bucket, counts[bucket]) != 0) {
        return CT_ENOMEM;
      }
    }
  }
  into->count += from->count;
  into->sum += from->sum;
  return 0;
}

/* The middle of a bucket. */
static uint64_t
bucket_value(unsigned block, unsigned bucket)
{
  if (block == 0) {
    return bucket;
  }
  uint64_t width = UINT64_C(1) << (block - 1);
  return (CT_HISTOGRAM_BUCKETS + (uint64_t)bucket) * width + (width - 1) / 2;
}

static uint64_t
rank_of(uint64_t count, uint32_t permille)
{
  uint64_t rank = count / 1000 * permille + (count % 1000 * permille + 999) / 1000;
  return rank == 0 ? 1 : rank;
}

/* The value of a rank, from 1: first its block, then its bucket in it, by counting. */
static uint64_t
log_quantile(const struct ct_histogram *h, uint64_t rank)
{
  uint16_t blocks[CT_HISTOGRAM_BLOCKS] = {0}, buckets[CT_HISTOGRAM_BUCKETS] = {0};
  for (uint64_t i = 0; i < h->count; i++) {
    blocks[h->log[i] / CT_HISTOGRAM_BUCKETS]++;
  }
  unsigned block = 0, bucket = 0;
  for (; rank > blocks[block]; block++) {
    rank -= blocks[block];
  }
  for (uint64_t i = 0; i < h->count; i++) {
    buckets[h->log[i] % CT_HISTOGRAM_BUCKETS] += h->log[i] / CT_HISTOGRAM_BUCKETS == block;
  }
  for (; rank > buckets[bucket]; bucket++) {
    rank -= buckets[bucket];
  }
  return bucket_value(block, bucket);
}

uint64_t
ct_histogram_quantile(const struct ct_histogram *h, uint32_t permille)
{
  if (h->count == 0) {
    return 0;
  }
  if (!h->is_spread) {
    return log_quantile(h, rank_of(h->count, permille));
  }
  uint64_t total = 0; /* not h->count: a full counter has stopped counting */
  for (size_t i = 0; i < (size_t)h->slots_used * CT_HISTOGRAM_BUCKETS; i++) {
    total += h->counts[i];
  }
  uint64_t rank = rank_of(total, permille), seen = 0;
  for (unsigned block = 0; block < CT_HISTOGRAM_BLOCKS; block++) {
    if (h->slot[block] == 0) {
      continue;
    }
    const uint32_t *counts = &h->counts[(h->slot[block] - 1) * CT_HISTOGRAM_BUCKETS];
    for (unsigned bucket = 0; bucket < CT_HISTOGRAM_BUCKETS; bucket++) {
      seen += counts[bucket];
      if (seen >= rank) {
        return bucket_value(block, bucket);
      }
    }
  }
  return 0;
}

/* Most functions are called a few times: of these no table of all buckets is made. */
static void
each_of_few(const struct ct_histogram *h, void (*visit)(void *arg, unsigned bucket, uint64_t count), void *arg)
{
  uint16_t sorted[FEW];
  unsigned count = (unsigned)h->count;
  for (unsigned i = 0; i < count; i++) {
    unsigned at = i;
    for (; at > 0 && sorted[at - 1] > h->log[i]; at--) {
      sorted[at] = sorted[at - 1];
    }
    sorted[at] = h->log[i];
  }
  for (unsigned i = 0, next; i < count; i = next) {
    for (next = i + 1; next < count && sorted[next] == sorted[i]; next++) {
    }
    visit(arg, sorted[i], next - i);
  }
}

static void
each_of_log(const struct ct_histogram *h, void (*visit)(void *arg, unsigned bucket, uint64_t count), void *arg)
{
  if (h->count <= FEW) {
    each_of_few(h, visit, arg);
    return;
  }
  uint16_t counts[CT_HISTOGRAM_BLOCKS * CT_HISTOGRAM_BUCKETS] = {0};
  for (uint64_t i = 0; i < h->count; i++) {
    counts[h->log[i]]++;
  }
  for (unsigned i = 0; i < CT_HISTOGRAM_BLOCKS * CT_HISTOGRAM_BUCKETS; i++) {
    if (counts[i] != 0) {
      visit(arg, i, counts[i]);
    }
  }
}

void
ct_histogram_each(const struct ct_histogram *h, void (*visit)(void *arg, unsigned bucket, uint64_t count), void *arg)
{
  if (!h->is_spread) {
    each_of_log(h, visit, arg);
    return;
  }
  for (unsigned block = 0; block < CT_HISTOGRAM_BLOCKS; block++) {
    const uint32_t *counts = h->slot[block] != 0 ? &h->counts[(h->slot[block] - 1) * CT_HISTOGRAM_BUCKETS] : NULL;
    for (unsigned bucket = 0; counts != NULL && bucket < CT_HISTOGRAM_BUCKETS; bucket++) {
      if (counts[bucket] != 0) {
        visit(arg, block * CT_HISTOGRAM_BUCKETS + bucket, counts[bucket]);
      }
    }
  }
}

uint64_t
ct_histogram_bucket_least(unsigned number, uint64_t *width)
{
  unsigned block = number / CT_HISTOGRAM_BUCKETS, bucket = number % CT_HISTOGRAM_BUCKETS;
  *width = block == 0 ? 1 : UINT64_C(1) << (block - 1);
  return block == 0 ? bucket : (CT_HISTOGRAM_BUCKETS + (uint64_t)bucket) * *width;
}

int
ct_histogram_add_many(struct ct_histogram *h, unsigned number, uint64_t n)
{
  if (number >= CT_HISTOGRAM_BLOCKS * CT_HISTOGRAM_BUCKETS) {
    return CT_EINVAL;
  }
  while (!h->is_spread && (n > CT_HISTOGRAM_LOG_MAX || h->count + n > h->log_capacity)) {
    if ((n <= CT_HISTOGRAM_LOG_MAX && h->log_capacity < CT_HISTOGRAM_LOG_MAX ? grow_log(h) : spread(h)) != 0) {
      return CT_ENOMEM;
    }
  }
  if (!h->is_spread) {
    for (uint64_t i = 0; i < n; i++) {
      h->log[h->count++] = (uint16_t)number;
    }
    return 0;
  }
  h->count += n;
  return add_to_bucket(h, number / CT_HISTOGRAM_BUCKETS, number % CT_HISTOGRAM_BUCKETS,
                       n > UINT32_MAX ? UINT32_MAX : (uint32_t)n);
}

void
ct_histogram_each_value(const struct ct_histogram *h, void (*take)(void *arg, uint64_t value, uint64_t count),
                        void *arg)
{
  uint16_t logged[CT_HISTOGRAM_BLOCKS * CT_HISTOGRAM_BUCKETS] = {0};
  for (uint64_t i = 0; !h->is_spread && i < h->count; i++) {
    logged[h->log[i]]++;
  }
  for (unsigned block = 0; block < CT_HISTOGRAM_BLOCKS; block++) {
    for (unsigned bucket = 0; bucket < CT_HISTOGRAM_BUCKETS && (!h->is_spread || h->slot[block] != 0); bucket++) {
      uint64_t count = h->is_spread ? h->counts[(h->slot[block] - 1u) * CT_HISTOGRAM_BUCKETS + bucket]
                                    : logged[block * CT_HISTOGRAM_BUCKETS + bucket];
      if (count != 0) {
        take(arg, bucket_value(block, bucket), count);
      }
    }
  }
}

void
ct_histogram_destroy(struct ct_histogram *h)
{
  if (h->is_spread) {
    free(h->counts);
  } else {
    free(h->log);
  }
  *h = (struct ct_histogram){0};
}
