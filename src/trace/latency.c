/* SPDX-License-Identifier: MIT */
/* See latency.h. Bucket 4 * n + k is of times from (1 + k / 4) * 2^n ns up to the next one's. */
#include "trace/latency.h"

#include "trace/writer_internal.h"

static uint32_t
bucket_of(uint64_t ns)
{
  uint64_t at_least_4 = ns | 4;
  uint32_t power = 63 - (uint32_t)__builtin_clzll(at_least_4);
  return ns < 4 ? 0 : 4 * power + (uint32_t)(ns >> (power - 2) & 3);
}

/* The first time that is not in it any more. */
static uint64_t
end_of(uint32_t bucket)
{
  uint32_t power = bucket / 4;
  uint64_t quarters = 4 + bucket % 4 + 1;
  return power < 2 ? 4 : power >= 61 ? UINT64_MAX : quarters << (power - 2);
}

void
ct_latency_add(struct ct_latency *latency, uint64_t ns)
{
  /* relaxed: plain counters */
  atomic_fetch_add_explicit(&latency->counts[bucket_of(ns)], 1, memory_order_relaxed);
  if (ns > atomic_load_explicit(&latency->most_ns, memory_order_relaxed)) {
    atomic_store_explicit(&latency->most_ns, ns, memory_order_relaxed);
  }
}

static uint64_t
percentile(const uint64_t *counts, uint64_t count, uint32_t percent)
{
  uint64_t wanted = (count * percent + 99) / 100, seen = 0;
  uint32_t bucket = 0;
  for (; bucket < CT_LATENCY_BUCKETS - 1 && (seen += counts[bucket]) < wanted; bucket++)
    ;
  return end_of(bucket);
}

void
ct_latency_read(const struct ct_latency *latency, struct ct_latency_figures *figures)
{
  uint64_t counts[CT_LATENCY_BUCKETS];
  struct ct_latency_figures own = {.most_ns = atomic_load_explicit(&latency->most_ns, memory_order_relaxed)};
  for (uint32_t i = 0; i < CT_LATENCY_BUCKETS; i++) {
    counts[i] = atomic_load_explicit(&latency->counts[i], memory_order_relaxed);
    own.count += counts[i];
  }
  if (own.count != 0) {
    own.p50_ns = percentile(counts, own.count, 50);
    own.p99_ns = percentile(counts, own.count, 99);
    own.p50_ns = own.p50_ns < own.most_ns ? own.p50_ns : own.most_ns;
    own.p99_ns = own.p99_ns < own.most_ns ? own.p99_ns : own.most_ns;
  }
  *figures = own;
}

struct ct_latency_figures
ct_trace_writer_latency(const struct ct_trace_writer *writer)
{
  struct ct_latency_figures figures;
  ct_latency_read(&writer->writer_thread.latency, &figures);
  return figures;
}

struct ct_latency_figures
ct_trace_writer_detail_latency(const struct ct_trace_writer *writer)
{
  struct ct_latency_figures figures;
  ct_latency_read(&writer->writer_thread.detail_latency, &figures);
  return figures;
}
