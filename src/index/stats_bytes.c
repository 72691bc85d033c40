/* SPDX-License-Identifier: MIT */
/*
 * Statistics of functions as bytes: varints. Time in gaps, lost events, how many functions; for each function: id,
 * points,
 * total, self, least and most duration, untimed, orphans, passed over, counted, off, partial, before; a word with a bit
 * for each way of ending that occurs, and how often each; sum of the durations, how many buckets are not empty, and for
 * each its distance from the one before and its count.
 *
 * Self times (span/selves.h), of the same functions in the same order, are bytes of their own: shift of the batches,
 * how many, calls and ticks of each; then their sum and buckets likewise.
 */
#include "index/index_internal.h"
#include "index/take.h"

struct putting {
  struct ct_span_bytes *bytes;
  uint64_t buckets;
  unsigned last;
  bool failed;
};

static void
put(struct putting *p, uint64_t value)
{
  p->failed |= ct_span_bytes_put(p->bytes, value) != 0;
}

static void
count_bucket(void *arg, unsigned bucket, uint64_t count)
{
  (void)bucket;
  (void)count;
  ((struct putting *)arg)->buckets++;
}

static void
put_bucket(void *arg, unsigned bucket, uint64_t count)
{
  struct putting *p = arg;
  put(p, bucket - p->last);
  put(p, count);
  p->last = bucket;
}

static void
put_histogram(struct putting *p, const struct ct_histogram *histogram)
{
  put(p, histogram->sum);
  p->buckets = p->last = 0;
  ct_histogram_each(histogram, count_bucket, p);
  put(p, p->buckets);
  ct_histogram_each(histogram, put_bucket, p);
}

static void
put_selves(struct putting *p, const struct ct_selves *selves)
{
  static const struct ct_selves none;
  const struct ct_batches *batches = selves != NULL ? &selves->batches : &none.batches;
  put(p, batches->shift);
  put(p, batches->count);
  for (uint32_t i = 0; i < batches->count; i++) {
    put(p, batches->list[i].calls);
    put(p, batches->list[i].ticks);
  }
  put_histogram(p, selves != NULL ? &selves->histogram : &none.histogram);
}

static void
put_function(struct putting *p, const struct ct_stats *stats, uint32_t id)
{
  const struct ct_fn_stats *fn = &stats->fns[id];
  const uint64_t *unwound = stats->unwound[id];
  const uint64_t numbers[] = {id < stats->fn_count ? id : UINT32_MAX,
                              fn->points,
                              fn->total_ticks,
                              fn->self_ticks,
                              fn->min_ticks,
                              fn->max_ticks,
                              fn->untimed,
                              fn->orphans,
                              stats->passed_over[id],
                              stats->counted[id],
                              stats->off[id],
                              stats->partial[id],
                              stats->before[id]};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    put(p, numbers[i]);
  }
  uint64_t ends = 0;
  for (int end = 0; unwound != NULL && end < CT_SPAN_ENDS; end++) {
    ends |= unwound[end] != 0 ? 1ull << end : 0;
  }
  put(p, ends);
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    if (ends >> end & 1) {
      put(p, unwound[end]);
    }
  }
  put_histogram(p, fn->histogram);
}

int
ct_stats_put(const struct ct_stats *stats, struct ct_span_bytes *bytes)
{
  struct putting p = {.bytes = bytes};
  put(&p, stats->gap_ticks);
  put(&p, stats->lost);
  put(&p, stats->touched_count);
  for (uint32_t i = 0; i < stats->touched_count && !p.failed; i++) {
    put_function(&p, stats, stats->touched[i]);
  }
  return p.failed ? CT_ENOMEM : 0;
}

int
ct_selves_put(const struct ct_stats *stats, struct ct_span_bytes *bytes)
{
  struct putting p = {.bytes = bytes};
  for (uint32_t i = 0; stats->selves != NULL && i < stats->touched_count && !p.failed; i++) {
    put_selves(&p, stats->selves[stats->touched[i]]);
  }
  return p.failed ? CT_ENOMEM : 0;
}

/* ---- and back ---- */

static void
take_histogram(struct ct_taking *t, struct ct_histogram *histogram)
{
  histogram->sum += ct_take(t);
  uint64_t bucket = 0;
  for (uint64_t buckets = ct_take(t); buckets > 0 && t->code == 0; buckets--) {
    bucket += ct_take(t);
    uint64_t count = ct_take(t);
    if (t->code == 0 && (bucket > UINT32_MAX || ct_histogram_add_many(histogram, (unsigned)bucket, count) != 0)) {
      t->code = CT_EFORMAT;
    }
  }
}

static void
take_selves(struct ct_taking *t, struct ct_stats *stats, uint32_t id)
{
  struct ct_batches batches = {0};
  uint64_t shift = ct_take(t), count = ct_take(t);
  if (shift >= 64 || count > CT_BATCHES) {
    t->code = CT_EFORMAT;
    return;
  }
  batches.shift = (uint32_t)shift;
  batches.count = (uint32_t)count;
  for (uint32_t i = 0; i < batches.count; i++) {
    batches.list[i].calls = ct_take(t);
    batches.list[i].ticks = ct_take(t);
  }
  struct ct_selves *selves = count != 0 ? ct_stats_selves(stats, id) : NULL;
  struct ct_histogram none = {0};
  if (count != 0 && selves == NULL) {
    t->code = CT_ENOMEM;
    return;
  }
  take_histogram(t, selves != NULL ? &selves->histogram : &none);
  ct_histogram_destroy(&none);
  if (selves != NULL) {
    selves->batches = batches;
  }
}

static void
take_function(struct ct_taking *t, struct ct_stats *stats)
{
  uint64_t id = ct_take(t);
  id = id == UINT32_MAX ? stats->fn_count : id; /* of all that are not in the table */
  struct ct_fn_stats *fn = t->code == 0 && id <= stats->fn_count ? ct_stats_touch(stats, (uint32_t)id) : NULL;
  if (fn == NULL) {
    t->code = t->code != 0 ? t->code : CT_EFORMAT;
    return;
  }
  fn->points += ct_take(t);
  fn->total_ticks += ct_take(t);
  fn->self_ticks += ct_take(t);
  uint64_t min = ct_take(t), max = ct_take(t);
  fn->min_ticks = min < fn->min_ticks ? min : fn->min_ticks;
  fn->max_ticks = max > fn->max_ticks ? max : fn->max_ticks;
  fn->untimed += ct_take(t);
  fn->orphans += ct_take(t);
  stats->passed_over[id] += ct_take(t);
  stats->counted[id] += ct_take(t);
  stats->off[id] += ct_take(t);
  stats->partial[id] += ct_take(t);
  stats->before[id] += ct_take(t);
  uint64_t ends = ct_take(t);
  uint64_t *unwound = ends != 0 ? ct_stats_unwound(stats, (uint32_t)id) : NULL;
  if (ends >> CT_SPAN_ENDS != 0 || (ends != 0 && unwound == NULL)) {
    t->code = CT_EFORMAT;
    return;
  }
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    if (ends >> end & 1) {
      unwound[end] += ct_take(t);
    }
  }
  take_histogram(t, fn->histogram);
}

int
ct_stats_take(struct ct_stats *stats, const uint8_t *bytes, size_t size)
{
  struct ct_taking t = {.at = bytes, .end = bytes + size};
  stats->gap_ticks += ct_take(&t);
  stats->lost += ct_take(&t);
  uint64_t functions = ct_take(&t);
  for (; functions > 0 && t.code == 0; functions--) {
    take_function(&t, stats);
  }
  return t.code != 0 ? t.code : t.at != t.end ? CT_EFORMAT : 0;
}

int
ct_selves_take(struct ct_stats *stats, const uint8_t *bytes, size_t size)
{
  struct ct_taking t = {.at = bytes, .end = bytes + size, .code = ct_stats_keep_selves(stats)};
  for (uint32_t i = 0; i < stats->touched_count && t.code == 0; i++) {
    take_selves(&t, stats, stats->touched[i]);
  }
  return t.code != 0 ? t.code : t.at != t.end ? CT_EFORMAT : 0;
}
