/* SPDX-License-Identifier: MIT */
/* See noise.h. */
#include "views/noise.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

#define LEVEL         0.01 /* that anything is said to have changed by chance alone */
#define COMMON_MAX    0.1
#define SPREAD_LEAST  0.01
#define SPREAD_GUESS  0.015 /* of too few functions */
#define CALL_NS       2.0   /* least of what is not known of a call: its hooks' cost, the steps of the clock */
#define SHORT_NS      200.0 /* calls so short tell how much it is */
#define TRIMMED       0.1   /* of each end */
#define CLUSTERING    2.0   /* calls one after the other are alike: what the error of a typical call is larger by */
#define FEW_LEAST_NS  50e3
#define FEW_LEAST_LOG 0.25
#define MAD_SIGMA     1.4826 /* of a normal distribution, by its median absolute deviation */

enum { TYPICAL_LEAST = 50, WELL_KNOWN_LEAST = 8, GROUP_LEAST = 20, TAIL_LEAST = 20 };

/* ---- distributions ---- */

static double
normal_quantile(double probability)
{
  double low = 0, high = 40;
  for (int i = 0; i < 60; i++) {
    double middle = (low + high) / 2;
    if (erfc(middle / M_SQRT2) > probability) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return high;
}

/* Cornish and Fisher's expansion, good to some per cent from 6 degrees of freedom on. */
double
ct_noise_quantile(double probability, unsigned freedom)
{
  double z = normal_quantile(probability), n = freedom;
  if (freedom == 0) {
    return z;
  }
  double z2 = z * z;
  return z + z * (z2 + 1) / (4 * n) + z * ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n);
}

static int
compare(const void *a, const void *b)
{
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Of sorted values. */
static double
part(const double *values, size_t count, double share)
{
  return count == 0 ? 0 : values[(size_t)(share * (double)(count - 1) + 0.5)];
}

/* A spread by which most of these deviations, and the last tenth of them, are no surprise. Sorts them. */
static double
robust_spread(double *deviations, size_t count)
{
  qsort(deviations, count, sizeof(*deviations), compare);
  double spread = MAD_SIGMA * part(deviations, count, 0.5);
  double tail = count >= TAIL_LEAST ? part(deviations, count, 0.9) / 1.645 : 0;
  return spread > tail ? spread : tail;
}

/* ---- one function ---- */

static uint64_t
timed_calls(const struct ct_batches *batches)
{
  uint64_t calls = 0;
  for (uint32_t i = 0; i < batches->count; i++) {
    calls += batches->list[i].calls;
  }
  return calls;
}

static double
mean_of(const struct ct_noise_side *side)
{
  uint64_t ticks = 0, calls = timed_calls(side->batches);
  for (uint32_t i = 0; i < side->batches->count; i++) {
    ticks += side->batches->list[i].ticks;
  }
  return calls != 0 ? (double)ticks * side->ns_per_tick / (double)calls : 0;
}

static bool
has_many(const struct ct_noise_pair *pair)
{
  return pair->before.batches->count >= CT_BATCHES_MANY && pair->after.batches->count >= CT_BATCHES_MANY;
}

static bool
is_paired(const struct ct_batches *a, const struct ct_batches *b)
{
  bool is_same = a->count == b->count;
  for (uint32_t i = 0; i < a->count && is_same; i++) {
    is_same = a->list[i].calls == b->list[i].calls;
  }
  return is_same;
}

/* The variance of the sum of a side's values, by the residuals of its batches from their common mean. */
static double
own_variance(const struct ct_noise_side *side)
{
  double mean = mean_of(side), sum = 0, count = side->batches->count;
  for (uint32_t i = 0; i < side->batches->count; i++) {
    const struct ct_batch *batch = &side->batches->list[i];
    double residual = (double)batch->ticks * side->ns_per_tick - mean * (double)batch->calls;
    sum += residual * residual;
  }
  return sum * count / (count - 1);
}

/* The variance of the difference of the sums. */
static double
variance_of(const struct ct_noise_pair *pair)
{
  const struct ct_batches *a = pair->before.batches, *b = pair->after.batches;
  if (!is_paired(a, b)) {
    return own_variance(&pair->before) + own_variance(&pair->after);
  }
  double sum = 0, squares = 0, count = a->count;
  for (uint32_t i = 0; i < a->count; i++) {
    double d = (double)b->list[i].ticks * pair->after.ns_per_tick - (double)a->list[i].ticks * pair->before.ns_per_tick;
    sum += d;
    squares += d * d;
  }
  double rest = squares - sum * sum / count;
  return rest > 0 ? rest * count / (count - 1) : 0;
}

static double
log_ratio(const struct ct_noise_pair *pair)
{
  double before = pair->before.self, after = pair->after.self;
  return before > 0 && after > 0 ? log(after / before) : 0;
}

/* ---- typical calls ---- */

struct trimming {
  double from, to, at; /* ranks */
  double count, sum, squares;
  double low, high; /* the outermost values that are left */
};

static void
trim(void *arg, uint64_t value, uint64_t count)
{
  struct trimming *trimming = arg;
  double begin = trimming->at > trimming->from ? trimming->at : trimming->from;
  double end = trimming->at + (double)count < trimming->to ? trimming->at + (double)count : trimming->to;
  trimming->at += (double)count;
  if (end <= begin) {
    return;
  }
  trimming->low = trimming->count == 0 ? (double)value : trimming->low;
  trimming->high = (double)value;
  trimming->count += end - begin;
  trimming->sum += (end - begin) * (double)value;
  trimming->squares += (end - begin) * (double)value * (double)value;
}

/* The error is by the winsorized variance, in which the tenths have the value of what is next to them. */
struct ct_typical
ct_typical_of(const struct ct_histogram *histogram)
{
  double count = (double)histogram->count;
  struct trimming t = {.from = TRIMMED * count, .to = (1 - TRIMMED) * count};
  if (histogram->count == 0) {
    return (struct ct_typical){0};
  }
  ct_histogram_each_value(histogram, trim, &t);
  if (t.count <= 0) {
    return (struct ct_typical){0};
  }
  double ends = TRIMMED * count, sum = t.sum + ends * (t.low + t.high);
  double squares = t.squares + ends * (t.low * t.low + t.high * t.high), mean = sum / count;
  double variance = squares / count - mean * mean;
  return (struct ct_typical){.mean = t.sum / t.count,
                             .error =
                                 CLUSTERING * sqrt(variance > 0 ? variance : 0) / ((1 - 2 * TRIMMED) * sqrt(count)),
                             .calls = histogram->count};
}

static double
typical_ratio(const struct ct_noise_pair *pair)
{
  return log(pair->after.typical.mean * pair->after.ns_per_tick /
             (pair->before.typical.mean * pair->before.ns_per_tick));
}

static bool
has_typical(const struct ct_noise_pair *pair)
{
  const struct ct_typical *b = &pair->before.typical, *a = &pair->after.typical;
  return pair->has_times && b->calls >= TYPICAL_LEAST && a->calls >= TYPICAL_LEAST && b->mean > 0 && a->mean > 0;
}

/* ---- what all functions tell ---- */

/* Those with many calls, which are not so short that the clock's steps show. */
static bool
is_well_known(const struct ct_noise_pair *pair)
{
  return has_typical(pair) && pair->before.typical.mean * pair->before.ns_per_tick > 25 * CALL_NS;
}

static void
find_spread(struct ct_noise *noise, const struct ct_noise_pair *pairs, size_t count, double *scratch)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (is_well_known(&pairs[i])) {
      scratch[n++] = typical_ratio(&pairs[i]);
    }
  }
  noise->well_known = n;
  noise->common = 1;
  noise->spread = SPREAD_GUESS;
  if (n < WELL_KNOWN_LEAST) {
    return;
  }
  qsort(scratch, n, sizeof(*scratch), compare);
  double common = part(scratch, n, 0.5);
  for (size_t i = 0; i < n; i++) {
    scratch[i] = fabs(scratch[i] - common);
  }
  double spread = robust_spread(scratch, n);
  noise->common = fabs(common) <= COMMON_MAX ? exp(common) : 1;
  noise->spread = spread > SPREAD_LEAST ? spread : SPREAD_LEAST;
}

/* By how much calls differ that are so short that it is their hooks and not they that differ. */
static void
find_call_noise(struct ct_noise *noise, const struct ct_noise_pair *pairs, size_t count, double *scratch)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    double before = pairs[i].before.typical.mean * pairs[i].before.ns_per_tick;
    double after = pairs[i].after.typical.mean * pairs[i].after.ns_per_tick;
    if (has_typical(&pairs[i]) && before < SHORT_NS && after < SHORT_NS) {
      scratch[n++] = fabs(after - before);
    }
  }
  double spread = n >= WELL_KNOWN_LEAST ? robust_spread(scratch, n) : 0;
  noise->call = spread > CALL_NS ? spread : CALL_NS;
}

static void
find_overdispersion(struct ct_noise *noise, const struct ct_noise_pair *pairs, size_t count, double *scratch)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    double sum = (double)pairs[i].before.calls + (double)pairs[i].after.calls;
    if (pairs[i].has_calls && pairs[i].before.calls != 0 && pairs[i].after.calls != 0) {
      scratch[n++] = fabs((double)pairs[i].after.calls - (double)pairs[i].before.calls) / sqrt(sum);
    }
  }
  double spread = n >= WELL_KNOWN_LEAST ? robust_spread(scratch, n) : 0;
  noise->overdispersion = spread > 1 ? spread * spread : 1;
}

/* ---- verdicts ---- */

static void
judge_calls(const struct ct_noise *noise, double z, struct ct_noise_pair *pair)
{
  double before = (double)pair->before.calls, after = (double)pair->after.calls;
  pair->calls_change = after - before;
  pair->calls_noise = z * sqrt(noise->overdispersion * (before + after));
  pair->is_calls_changed = pair->has_calls && fabs(pair->calls_change) > pair->calls_noise;
}

/* What the hooks of its calls, and of those made in it, may have added to its time, or taken from it. */
static double
hooks_of(const struct ct_noise *noise, const struct ct_noise_pair *pair)
{
  double sum = noise->hooks.own * ((double)pair->before.calls + (double)pair->after.calls);
  for (int i = 0; i < CT_CHILDREN; i++) {
    sum += noise->hooks.child[i] * ((double)pair->before.children[i] + (double)pair->after.children[i]);
  }
  return sum / 2;
}

static void
judge_many(const struct ct_noise *noise, double level, double z, struct ct_noise_pair *pair)
{
  uint32_t batches = pair->before.batches->count < pair->after.batches->count ? pair->before.batches->count
                                                                              : pair->after.batches->count;
  double before = (double)pair->before.calls, after = (double)pair->after.calls, mean = mean_of(&pair->before);
  double timed = (double)timed_calls(pair->before.batches);
  double scale = timed > 0 ? before / timed : 1; /* from the calls with times to all */
  double within = ct_noise_quantile(level, batches - 1) * sqrt(variance_of(pair)) * (scale > 1 ? scale : 1);
  double between = z * noise->spread * (pair->before.self + pair->after.self) / 2;
  double calls = before != after ? z * mean * sqrt(noise->overdispersion * (before + after)) : 0;
  pair->self_noise = sqrt(within * within + between * between + calls * calls) + noise->call * (before + after) / 2 +
                     hooks_of(noise, pair);
  pair->is_self_changed = fabs(pair->after.self / noise->common - pair->before.self) > pair->self_noise;
}

static void
judge_typical(const struct ct_noise *noise, double z, struct ct_noise_pair *pair)
{
  const struct ct_typical *b = &pair->before.typical, *a = &pair->after.typical;
  double error_b = b->error / b->mean, error_a = a->error / a->mean, spread = noise->spread;
  double shorter = b->mean * pair->before.ns_per_tick, other = a->mean * pair->after.ns_per_tick;
  shorter = other < shorter ? other : shorter;
  double hooks = 2 * hooks_of(noise, pair) / ((double)pair->before.calls + (double)pair->after.calls);
  pair->typical_change = typical_ratio(pair);
  pair->typical_noise =
      z * sqrt(spread * spread + error_b * error_b + error_a * error_a) + log(1 + (z * noise->call + hooks) / shorter);
  pair->is_typical_changed = fabs(pair->typical_change - log(noise->common)) > pair->typical_noise;
}

static int
octave(const struct ct_noise_pair *pair)
{
  double self = pair->before.self > pair->after.self ? pair->before.self : pair->after.self;
  return self > 1 ? (int)log2(self) : 0;
}

/* The spread of the ratios of functions with few calls and about as much time. */
static double
spread_of_few(const struct ct_noise_pair *pairs, size_t count, int from, int to, double *scratch)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    int at = octave(&pairs[i]);
    if (pairs[i].has_times && !has_many(&pairs[i]) && pairs[i].before.self > 0 && pairs[i].after.self > 0 &&
        at >= from && at <= to) {
      scratch[n++] = fabs(log_ratio(&pairs[i]));
    }
  }
  return n >= GROUP_LEAST ? robust_spread(scratch, n) : -1;
}

enum { OCTAVES = 64 };

static void
find_spreads_of_few(const struct ct_noise_pair *pairs, size_t count, double spreads[OCTAVES], double *scratch)
{
  for (int at = 0; at < OCTAVES; at++) {
    double spread = -1;
    for (int around = 1; spread < 0 && around <= OCTAVES; around *= 2) {
      spread = spread_of_few(pairs, count, at - around, at + around, scratch);
    }
    spreads[at] = spread < 0 ? FEW_LEAST_LOG : spread;
  }
}

static void
judge_few(const struct ct_noise *noise, double z, double spread, struct ct_noise_pair *pair)
{
  double bound = z * spread > FEW_LEAST_LOG ? z * spread : FEW_LEAST_LOG;
  double larger = pair->before.self > pair->after.self ? pair->before.self : pair->after.self;
  double least = noise->disturbance > FEW_LEAST_NS ? noise->disturbance : FEW_LEAST_NS;
  double by_ratio = larger * (1 - exp(-bound));
  pair->self_noise = (by_ratio > least ? by_ratio : least) + hooks_of(noise, pair);
  pair->is_self_changed = fabs(pair->self_change) > pair->self_noise;
}

int
ct_noise_judge(struct ct_noise *noise, struct ct_noise_pair *pairs, size_t count)
{
  double *scratch = calloc(count + 1, sizeof(*scratch)), spreads[OCTAVES];
  if (scratch == NULL) {
    return CT_ENOMEM;
  }
  find_spread(noise, pairs, count, scratch);
  find_call_noise(noise, pairs, count, scratch);
  find_overdispersion(noise, pairs, count, scratch);
  find_spreads_of_few(pairs, count, spreads, scratch);
  double level = LEVEL / 2 / (count != 0 ? (double)count : 1), z = ct_noise_quantile(level, 0);
  for (size_t i = 0; i < count; i++) {
    struct ct_noise_pair *pair = &pairs[i];
    judge_calls(noise, z, pair);
    pair->self_change = pair->after.self - pair->before.self;
    if (!pair->has_times) {
      continue;
    }
    if (has_typical(pair)) {
      judge_typical(noise, z, pair);
    }
    if (has_many(pair)) {
      judge_many(noise, level, z, pair);
    } else {
      int at = octave(pair);
      judge_few(noise, z, spreads[at < OCTAVES ? at : OCTAVES - 1], pair);
    }
  }
  free(scratch);
  return 0;
}
