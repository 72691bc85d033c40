/* SPDX-License-Identifier: MIT */
/*
 * A histogram of durations for percentiles, small enough for one per function.
 *
 * Log-linear: values below 64 exactly, and each octave [2^k, 2^(k+1)) from 64 on in 64 equal
 * buckets. A percentile is reported as the middle of its bucket: the relative error is at most
 * half a bucket, 1/128 = 0.79 %.
 *
 *   value   0..63   64..127   128..255   ...   2^63..2^64-1
 *   block     0        1          2                58         64 buckets each; bucket number = block * 64 + n
 *
 * At first the bucket numbers of the values are kept in a log (2 bytes a call), so that many rarely called
 * functions need little memory. After CT_HISTOGRAM_LOG_MAX values it becomes counters of 32 bits; a block of
 * them is allocated when first hit (256 bytes). A counter that is full stays full.
 */
#ifndef CT_VIEWS_HISTOGRAM_H
#define CT_VIEWS_HISTOGRAM_H

#include <stdint.h>

enum {
  CT_HISTOGRAM_LOG_MIN = 16, /* values; the log doubles up to the maximum */
  CT_HISTOGRAM_LOG_MAX = 512,
  CT_HISTOGRAM_BLOCKS = 59,
  CT_HISTOGRAM_BUCKETS = 64,
};

struct ct_histogram {
  uint64_t count; /* values added */
  uint64_t sum;
  union {
    uint16_t *log;    /* bucket numbers of the `count` values, until is_spread */
    uint32_t *counts; /* block slot s: counts[(s - 1) * 64 ...] */
  };
  uint16_t log_capacity; /* 0 when is_spread */
  uint8_t is_spread;
  uint8_t slots_used;                /* blocks allocated */
  uint8_t slot[CT_HISTOGRAM_BLOCKS]; /* of each block, from 1; 0: none */
};

/* A zeroed struct is an empty histogram. Cold part of ct_histogram_add; 0 or CT_ENOMEM. */
int ct_histogram_add_slow(struct ct_histogram *histogram, uint64_t value);
int ct_histogram_merge(struct ct_histogram *into, const struct ct_histogram *from);
/*
 * The smallest recorded value that at least permille/1000 of the values do not exceed
 * (nearest rank), within the error above. 0 when the histogram is empty.
 */
uint64_t ct_histogram_quantile(const struct ct_histogram *histogram, uint32_t permille);
/* Buckets are numbered block * 64 + n. Calls visit for those that are not empty, in the order of their values. */
void ct_histogram_each(const struct ct_histogram *histogram, void (*visit)(void *arg, unsigned bucket, uint64_t count),
                       void *arg);
/* The least value in a bucket, and how many values it is for. */
uint64_t ct_histogram_bucket_least(unsigned bucket, uint64_t *width);
/* Adds n values to a bucket, and to count, not to sum; a bucket that does not exist is CT_EINVAL. */
int ct_histogram_add_many(struct ct_histogram *histogram, unsigned bucket, uint64_t n);
/* The values in ascending order, each the middle of its bucket, with how many there are. */
void ct_histogram_each_value(const struct ct_histogram *histogram,
                             void (*take)(void *arg, uint64_t value, uint64_t count), void *arg);
void ct_histogram_destroy(struct ct_histogram *histogram);

static inline unsigned
ct_histogram_block(uint64_t value)
{
  return 58u - (unsigned)__builtin_clzll(value | 32);
}

static inline unsigned
ct_histogram_bucket(uint64_t value, unsigned block)
{
  return (unsigned)(value >> (block - (block != 0))) & (CT_HISTOGRAM_BUCKETS - 1);
}

static inline int
ct_histogram_add(struct ct_histogram *histogram, uint64_t value)
{
  unsigned block = ct_histogram_block(value);
  unsigned bucket = ct_histogram_bucket(value, block);
  unsigned slot = histogram->slot[block];
  if (slot != 0) {
    uint32_t *counter = &histogram->counts[(slot - 1) * CT_HISTOGRAM_BUCKETS + bucket];
    *counter += *counter != UINT32_MAX;
  } else if (histogram->count < histogram->log_capacity) {
    histogram->log[histogram->count] = (uint16_t)(block * CT_HISTOGRAM_BUCKETS + bucket);
  } else {
    return ct_histogram_add_slow(histogram, value);
  }
  histogram->count++;
  histogram->sum += value;
  return 0;
}

#endif
