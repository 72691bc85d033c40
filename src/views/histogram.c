/* SPDX-License-Identifier: MIT */
/* The cold half of the duration histogram; see histogram.h. */
#include "views/histogram.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int
add_block(struct ct_histogram *h, unsigned block)
{
  size_t slots = h->slots_used;
  uint32_t *counts = reallocarray(h->is_spread ? h->counts : NULL, slots + 1, CT_HISTOGRAM_BUCKETS * sizeof(*counts));
  if (counts == NULL)
    return CT_ENOMEM;
  memset(counts + slots * CT_HISTOGRAM_BUCKETS, 0, CT_HISTOGRAM_BUCKETS * sizeof(*counts));
  h->counts = counts;
  h->is_spread = 1;
  h->slots_used++;
  h->slot[block] = h->slots_used;
  return 0;
}

/* Adds n values to one bucket without touching count and sum. */
static int
add_to_bucket(struct ct_histogram *h, unsigned block, unsigned bucket, uint32_t n)
{
  if (h->slot[block] == 0 && add_block(h, block) != 0)
    return CT_ENOMEM;
  uint32_t *counter = &h->counts[(h->slot[block] - 1) * CT_HISTOGRAM_BUCKETS + bucket];
  *counter = *counter > UINT32_MAX - n ? UINT32_MAX : *counter + n;
  return 0;
}

/* From samples to buckets. On failure some samples are lost from the percentiles, nothing else. */
static int
spread(struct ct_histogram *h)
{
  uint64_t samples[CT_HISTOGRAM_SAMPLES];
  size_t n = h->count < CT_HISTOGRAM_SAMPLES ? h->count : CT_HISTOGRAM_SAMPLES;
  if (n != 0)
    memcpy(samples, h->samples, n * sizeof(*samples));
  free(h->samples);
  h->samples = NULL;
  h->is_spread = 1;
  for (size_t i = 0; i < n; i++) {
    unsigned block = ct_histogram_block(samples[i]);
    int rc = add_to_bucket(h, block, ct_histogram_bucket(samples[i], block), 1);
    if (rc != 0)
      return rc;
  }
  return 0;
}

int
ct_histogram_add_slow(struct ct_histogram *h, uint64_t value)
{
  if (!h->is_spread && h->count < CT_HISTOGRAM_SAMPLES) {
    if (h->samples == NULL && (h->samples = malloc(CT_HISTOGRAM_SAMPLES * sizeof(*h->samples))) == NULL)
      return CT_ENOMEM;
    h->samples[h->count] = value;
  } else {
    unsigned block = ct_histogram_block(value);
    if (!h->is_spread && spread(h) != 0)
      return CT_ENOMEM;
    if (add_to_bucket(h, block, ct_histogram_bucket(value, block), 1) != 0)
      return CT_ENOMEM;
  }
  h->count++;
  h->sum += value;
  return 0;
}

int
ct_histogram_merge(struct ct_histogram *into, const struct ct_histogram *from)
{
  if (!from->is_spread) {
    for (uint64_t i = 0; i < from->count; i++) {
      int rc = ct_histogram_add(into, from->samples[i]);
      if (rc != 0)
        return rc;
    }
    return 0;
  }
  if (!into->is_spread && spread(into) != 0)
    return CT_ENOMEM;
  for (unsigned block = 0; block < CT_HISTOGRAM_BLOCKS; block++) {
    if (from->slot[block] == 0)
      continue;
    const uint32_t *counts = &from->counts[(from->slot[block] - 1) * CT_HISTOGRAM_BUCKETS];
    for (unsigned bucket = 0; bucket < CT_HISTOGRAM_BUCKETS; bucket++) {
      if (counts[bucket] != 0 && add_to_bucket(into, block, bucket, counts[bucket]) != 0)
        return CT_ENOMEM;
    }
  }
  into->count += from->count;
  into->sum += from->sum;
  return 0;
}

static int
compare_u64(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The middle of a bucket. */
static uint64_t
bucket_value(unsigned block, unsigned bucket)
{
  if (block == 0)
    return bucket;
  uint64_t width = UINT64_C(1) << (block - 1);
  return (CT_HISTOGRAM_BUCKETS + (uint64_t)bucket) * width + (width - 1) / 2;
}

static uint64_t
rank_of(uint64_t count, uint32_t permille)
{
  uint64_t rank = count / 1000 * permille + (count % 1000 * permille + 999) / 1000;
  return rank == 0 ? 1 : rank;
}

uint64_t
ct_histogram_quantile(const struct ct_histogram *h, uint32_t permille)
{
  if (h->count == 0)
    return 0;
  if (!h->is_spread) {
    uint64_t sorted[CT_HISTOGRAM_SAMPLES];
    memcpy(sorted, h->samples, h->count * sizeof(*sorted));
    qsort(sorted, h->count, sizeof(*sorted), compare_u64);
    return sorted[rank_of(h->count, permille) - 1];
  }
  uint64_t total = 0; /* not h->count: a full counter has stopped counting */
  for (size_t i = 0; i < (size_t)h->slots_used * CT_HISTOGRAM_BUCKETS; i++)
    total += h->counts[i];
  uint64_t rank = rank_of(total, permille), seen = 0;
  for (unsigned block = 0; block < CT_HISTOGRAM_BLOCKS; block++) {
    if (h->slot[block] == 0)
      continue;
    const uint32_t *counts = &h->counts[(h->slot[block] - 1) * CT_HISTOGRAM_BUCKETS];
    for (unsigned bucket = 0; bucket < CT_HISTOGRAM_BUCKETS; bucket++) {
      seen += counts[bucket];
      if (seen >= rank)
        return bucket_value(block, bucket);
    }
  }
  return 0;
}

void
ct_histogram_destroy(struct ct_histogram *h)
{
  if (h->is_spread)
    free(h->counts);
  else
    free(h->samples);
  *h = (struct ct_histogram){0};
}
