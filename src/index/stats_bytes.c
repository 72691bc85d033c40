/* SPDX-License-Identifier: MIT */
/*
 * Statistics of functions as bytes. Three columns of varints, for what is alike packs better together: how long the
 * first two are, then functions, distances of buckets, counts of buckets.
 *
 * Functions: time in gaps, lost events, how many; for each: id less that of the one before, folded; a word (below) that
 * says what there is; points; untimed, orphans, passed over, counted, partial, before; bits of the ways of ending that
 * occur, and how often each; off; the sum of the durations; that less self, folded; total less the sum, folded. Of one
 * call that is timed the duration is the sum; of two the least one is put; of three the least one, and the greatest one
 * less that. Otherwise: how many buckets are not empty; if there are any, the least duration; the greatest one less
 * that, folded.
 *
 * Distances: of each bucket from the one before, the first one from that of the least duration. Counts: of each. Of
 * those few calls there are none.
 *
 * Self times (span/selves.h), of the same functions in the same order, are bytes of their own: shift of the batches,
 * how many, calls and ticks of each; then their sum, how many buckets, and distance and count of each.
 */
#include "index/index_internal.h"
#include "index/take.h"

#include <stdlib.h>
#include <string.h>

enum { HAS_POINTS = 1, HAS_REST = 2, HAS_ENDS = 4, HAS_OFF = 8, HAS_MORE_TOTAL = 16 };
/* How its durations are put: by how many there are, if these are all that is known of them. */
enum { ONE = 0, MANY = 32, TWO = 64, THREE = 96, HOW_MANY = 96, FEW_MOST = 3 };
enum { REST = 6 };

struct putting {
  struct ct_span_bytes *bytes;
  struct ct_span_bytes *distances, *counts; /* of buckets: the same, or columns of their own */
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
  p->failed |= ct_span_bytes_put(p->distances, bucket - p->last) != 0 || ct_span_bytes_put(p->counts, count) != 0;
  p->last = bucket;
}

static uint64_t
buckets_of(struct putting *p, const struct ct_histogram *histogram)
{
  p->buckets = 0;
  ct_histogram_each(histogram, count_bucket, p);
  return p->buckets;
}

static unsigned
bucket_of(uint64_t value)
{
  unsigned block = ct_histogram_block(value);
  return block * CT_HISTOGRAM_BUCKETS + ct_histogram_bucket(value, block);
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
  const struct ct_histogram *histogram = selves != NULL ? &selves->histogram : &none.histogram;
  put(p, histogram->sum);
  put(p, buckets_of(p, histogram));
  p->last = 0;
  ct_histogram_each(histogram, put_bucket, p);
}

static void
put_ends(struct putting *p, const uint64_t *unwound)
{
  uint64_t ends = 0;
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    ends |= unwound[end] != 0 ? 1ull << end : 0;
  }
  put(p, ends);
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    if (ends >> end & 1) {
      put(p, unwound[end]);
    }
  }
}

/* Few durations, by their sum, the least and the greatest one. How many there are. */
static int
few_durations(unsigned how, uint64_t sum, uint64_t least, uint64_t greatest, uint64_t durations[FEW_MOST])
{
  durations[0] = how == ONE ? sum : least;
  durations[1] = how == TWO ? sum - least : sum - least - greatest;
  durations[2] = greatest;
  return how == ONE ? 1 : how == TWO ? 2 : 3;
}

struct comparing {
  const uint64_t *durations;
  int count, at;
  bool differs;
};

static void
compare_bucket(void *arg, unsigned bucket, uint64_t count)
{
  struct comparing *c = arg;
  for (; count > 0 && !c->differs; count--) {
    c->differs = c->at == c->count || bucket_of(c->durations[c->at++]) != bucket;
  }
}

/* ONE, TWO or THREE: durations that are found again from the three numbers. */
static unsigned
how_many(const struct ct_fn_stats *fn)
{
  const struct ct_histogram *histogram = fn->histogram;
  unsigned how = histogram->count == 1 ? ONE : histogram->count == 2 ? TWO : histogram->count == 3 ? THREE : MANY;
  uint64_t durations[FEW_MOST], sum = histogram->sum;
  if (how == MANY) {
    return MANY;
  }
  struct comparing c = {durations, few_durations(how, sum, fn->min_ticks, fn->max_ticks, durations), 0, false};
  for (int i = 1; i < c.count; i++) {
    c.differs |= durations[i] < durations[i - 1];
  }
  c.differs |= durations[0] != fn->min_ticks || durations[c.count - 1] != fn->max_ticks;
  ct_histogram_each(histogram, compare_bucket, &c);
  return c.differs ? MANY : how;
}

/* The durations of a function, where there are many. */
static void
put_durations(struct putting *p, const struct ct_fn_stats *fn)
{
  uint64_t buckets = buckets_of(p, fn->histogram), least = buckets != 0 ? fn->min_ticks : 0;
  put(p, buckets);
  if (buckets != 0) {
    put(p, least);
  }
  put(p, ct_folded(fn->max_ticks - least));
  p->last = bucket_of(least);
  ct_histogram_each(fn->histogram, put_bucket, p);
}

static void
put_function(struct putting *p, const struct ct_stats *stats, uint32_t id)
{
  const struct ct_fn_stats *fn = &stats->fns[id];
  const uint64_t *unwound = stats->unwound[id];
  const uint64_t rest[REST] = {fn->untimed,        fn->orphans,        stats->passed_over[id],
                               stats->counted[id], stats->partial[id], stats->before[id]};
  uint64_t sum = fn->histogram->sum;
  unsigned how = how_many(fn);
  unsigned word = (fn->points != 0 ? HAS_POINTS : 0u) | (unwound != NULL ? HAS_ENDS : 0u) |
                  (stats->off[id] != 0 ? HAS_OFF : 0u) | (fn->total_ticks != sum ? HAS_MORE_TOTAL : 0u) | how;
  for (int i = 0; i < REST; i++) {
    word |= rest[i] != 0 ? HAS_REST : 0u;
  }
  put(p, word);
  if (word & HAS_POINTS) {
    put(p, fn->points);
  }
  for (int i = 0; i < REST && word & HAS_REST; i++) {
    put(p, rest[i]);
  }
  if (word & HAS_ENDS) {
    put_ends(p, unwound);
  }
  if (word & HAS_OFF) {
    put(p, stats->off[id]);
  }
  put(p, sum);
  put(p, ct_folded(sum - fn->self_ticks));
  if (word & HAS_MORE_TOTAL) {
    put(p, ct_folded(fn->total_ticks - sum));
  }
  if (how == MANY) {
    put_durations(p, fn);
  } else if (how != ONE) {
    put(p, fn->min_ticks);
  }
  if (how == THREE) {
    put(p, fn->max_ticks - fn->min_ticks);
  }
}

static bool
append(struct ct_span_bytes *bytes, const struct ct_span_bytes *more)
{
  if (ct_span_bytes_reserve(bytes, more->size + 1) != 0) {
    return false;
  }
  if (more->size != 0) {
    memcpy(bytes->data + bytes->size, more->data, more->size);
    bytes->size += more->size;
  }
  return true;
}

int
ct_stats_put(const struct ct_stats *stats, struct ct_span_bytes *bytes)
{
  struct ct_span_bytes functions = {0}, distances = {0}, counts = {0};
  struct putting p = {.bytes = &functions, .distances = &distances, .counts = &counts};
  put(&p, stats->gap_ticks);
  put(&p, stats->lost);
  put(&p, stats->touched_count);
  for (uint32_t i = 0, before = 0; i < stats->touched_count && !p.failed; i++) {
    uint32_t id = stats->touched[i] < stats->fn_count ? stats->touched[i] : UINT32_MAX;
    put(&p, ct_folded((uint64_t)id - before));
    put_function(&p, stats, stats->touched[i]);
    before = id;
  }
  p.bytes = bytes;
  put(&p, functions.size);
  put(&p, distances.size);
  p.failed = p.failed || !append(bytes, &functions) || !append(bytes, &distances) || !append(bytes, &counts);
  free(functions.data);
  free(distances.data);
  free(counts.data);
  return p.failed ? CT_ENOMEM : 0;
}

int
ct_selves_put(const struct ct_stats *stats, struct ct_span_bytes *bytes)
{
  struct putting p = {.bytes = bytes, .distances = bytes, .counts = bytes};
  for (uint32_t i = 0; stats->selves != NULL && i < stats->touched_count && !p.failed; i++) {
    put_selves(&p, stats->selves[stats->touched[i]]);
  }
  return p.failed ? CT_ENOMEM : 0;
}

/* ---- and back ---- */

/* So many buckets, the first one's distance from that one. */
static void
take_buckets(struct ct_taking *distances, struct ct_taking *counts, uint64_t buckets, uint64_t bucket,
             struct ct_histogram *histogram)
{
  for (; buckets > 0; buckets--) {
    bucket += ct_take(distances);
    uint64_t count = ct_take(counts);
    bool ended = distances->code != 0 || counts->code != 0;
    if (ended || bucket > UINT32_MAX || ct_histogram_add_many(histogram, (unsigned)bucket, count) != 0) {
      distances->code = CT_EFORMAT;
      return;
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
  struct ct_histogram *histogram = selves != NULL ? &selves->histogram : &none;
  histogram->sum += ct_take(t);
  uint64_t buckets = ct_take(t);
  take_buckets(t, t, buckets, 0, histogram);
  ct_histogram_destroy(&none);
  if (selves != NULL) {
    selves->batches = batches;
  }
}

struct taking_stats {
  struct ct_taking functions, distances, counts;
  struct ct_stats *stats;
};

static void
take_ends(struct ct_taking *t, struct ct_stats *stats, uint32_t id)
{
  uint64_t ends = ct_take(t);
  uint64_t *unwound = t->code == 0 ? ct_stats_unwound(stats, id) : NULL;
  if (ends >> CT_SPAN_ENDS != 0 || unwound == NULL) {
    t->code = CT_EFORMAT;
    return;
  }
  for (int end = 0; end < CT_SPAN_ENDS; end++) {
    if (ends >> end & 1) {
      unwound[end] += ct_take(t);
    }
  }
}

/* Its durations: as put_durations has them, or of few calls. */
static void
take_durations(struct taking_stats *s, struct ct_fn_stats *fn, unsigned how, uint64_t sum)
{
  struct ct_taking *t = &s->functions;
  uint64_t buckets = how == MANY ? ct_take(t) : 1, least = sum, greatest = sum, durations[FEW_MOST];
  if (how != ONE) {
    least = buckets != 0 ? ct_take(t) : 0;
    greatest = how == MANY ? least + ct_unfolded(ct_take(t)) : how == TWO ? sum - least : least + ct_take(t);
  }
  if (how == MANY) {
    take_buckets(&s->distances, &s->counts, buckets, bucket_of(least), fn->histogram);
  }
  int count = how != MANY ? few_durations(how, sum, least, greatest, durations) : 0;
  for (int i = 0; i < count && t->code == 0; i++) {
    t->code = ct_histogram_add_many(fn->histogram, bucket_of(durations[i]), 1);
  }
  fn->histogram->sum += sum;
  fn->min_ticks = buckets != 0 && least < fn->min_ticks ? least : fn->min_ticks;
  fn->max_ticks = greatest > fn->max_ticks ? greatest : fn->max_ticks;
}

static void
take_function(struct taking_stats *s, uint64_t id)
{
  struct ct_taking *t = &s->functions;
  struct ct_stats *stats = s->stats;
  struct ct_fn_stats *fn = t->code == 0 && id <= stats->fn_count ? ct_stats_touch(stats, (uint32_t)id) : NULL;
  if (fn == NULL) {
    t->code = t->code != 0 ? t->code : CT_EFORMAT;
    return;
  }
  uint64_t word = ct_take(t), rest[REST] = {0};
  fn->points += word & HAS_POINTS ? ct_take(t) : 0;
  for (int i = 0; i < REST && word & HAS_REST; i++) {
    rest[i] = ct_take(t);
  }
  fn->untimed += rest[0];
  fn->orphans += rest[1];
  stats->passed_over[id] += rest[2];
  stats->counted[id] += rest[3];
  stats->partial[id] += rest[4];
  stats->before[id] += rest[5];
  if (word & HAS_ENDS) {
    take_ends(t, stats, (uint32_t)id);
  }
  stats->off[id] += word & HAS_OFF ? ct_take(t) : 0;
  uint64_t sum = ct_take(t);
  fn->self_ticks += sum - ct_unfolded(ct_take(t));
  fn->total_ticks += sum + (word & HAS_MORE_TOTAL ? ct_unfolded(ct_take(t)) : 0);
  take_durations(s, fn, word & HOW_MANY, sum);
}

static bool
is_at_end(const struct ct_taking *t)
{
  return t->code == 0 && t->at == t->end;
}

int
ct_stats_take(struct ct_stats *stats, const uint8_t *bytes, size_t size)
{
  struct ct_taking head = {.at = bytes, .end = bytes + size};
  uint64_t first = ct_take(&head), second = ct_take(&head), id = 0;
  size_t left = (size_t)(head.end - head.at);
  if (head.code != 0 || first > left || second > left - first) {
    return CT_EFORMAT;
  }
  struct taking_stats s = {.functions = {.at = head.at, .end = head.at + first},
                           .distances = {.at = head.at + first, .end = head.at + first + second},
                           .counts = {.at = head.at + first + second, .end = head.end},
                           .stats = stats};
  stats->gap_ticks += ct_take(&s.functions);
  stats->lost += ct_take(&s.functions);
  for (uint64_t functions = ct_take(&s.functions); functions > 0 && s.functions.code == 0; functions--) {
    id += ct_unfolded(ct_take(&s.functions));
    take_function(&s, id != UINT32_MAX ? id : stats->fn_count); /* of all that are not in the table */
  }
  return is_at_end(&s.functions) && is_at_end(&s.distances) && is_at_end(&s.counts) ? 0 : CT_EFORMAT;
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
