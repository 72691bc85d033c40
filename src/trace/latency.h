/* SPDX-License-Identifier: MIT */
/*
 * How long blocks take from the moment when they are encoded until the kernel has them for their file: counts by powers
 * of the fourth root of 2, so a percentile is a fifth too high at most. One thread adds, others read.
 */
#ifndef CT_TRACE_LATENCY_H
#define CT_TRACE_LATENCY_H

#include <stdatomic.h>
#include <stdint.h>

#define CT_LATENCY_BUCKETS 256u

struct ct_latency {
  _Atomic uint64_t counts[CT_LATENCY_BUCKETS];
  _Atomic uint64_t most_ns;
};

struct ct_latency_figures {
  uint64_t count;
  uint64_t p50_ns, p99_ns, most_ns; /* 0 where count is */
};

void ct_latency_add(struct ct_latency *latency, uint64_t ns);
void ct_latency_read(const struct ct_latency *latency, struct ct_latency_figures *figures);

#endif
