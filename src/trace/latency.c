/* SPDX-License-Identifier: MIT */
/* See latency.h. Bucket 4 * n + k is of times from (1 + k / 4) * 2^n ns up to the next one's. */
#include "trace/latency.h"

#include "base/branch.h"
#include "base/clock.h"
#include "trace/writer_internal.h"

#include <string.h>
#include <time.h>

#define WAITS_NS  500000000u /* of each of the times for which it is summed up how long the caller has waited */
#define WAITED_NS 5000000u   /* less is no wait */

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

/* ---- of a writer ---- */

void
ct_writer_note_block(struct ct_writer_thread *writer_thread, const struct ct_writer_record *record)
{
  bool is_detail = record->stream->name != NULL && strcmp(record->stream->name, CT_TRACE_DETAIL) == 0;
  if (CT_UNLIKELY(writer_thread->test_ns != 0)) {
    nanosleep(&(struct timespec){.tv_nsec = (long)writer_thread->test_ns}, NULL);
  }
  ct_latency_add(is_detail ? &writer_thread->detail_latency : &writer_thread->latency, ct_now_ns() - record->queued_ns);
}

void
ct_writer_note_wait(struct ct_writer_thread *writer_thread, uint64_t begin)
{
  struct ct_writer_wait *waits = writer_thread->waits;
  uint64_t now = ct_now_ns();
  if (now - waits[0].begin_ns > WAITS_NS) {
    waits[1] = begin - waits[0].begin_ns < 2 * WAITS_NS ? waits[0] : (struct ct_writer_wait){.begin_ns = begin};
    waits[0] = (struct ct_writer_wait){.begin_ns = begin};
  }
  waits[0].waited_ns += now - begin;
}

bool
ct_trace_writer_waits(const struct ct_trace_writer *writer)
{
  const struct ct_writer_wait *waits = writer->writer_thread.waits;
  uint64_t now = ct_now_ns(), since = waits[1].begin_ns;
  uint64_t waited = waits[0].waited_ns + waits[1].waited_ns;
  return waited > WAITED_NS && now - since < waited * 4;
}
