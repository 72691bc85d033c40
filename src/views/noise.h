/* SPDX-License-Identifier: MIT */
/*
 * How much of a difference between two recordings may be chance. The values are self times of functions; what is known
 * of each is its calls in order, put together in up to 32 batches of equally many calls (span/selves.h).
 *
 * Two things are asked of a function: whether its self time as a whole has changed, and whether its typical call has,
 * by the mean of its calls without the shortest and the longest tenth of them: on a busy machine a few interrupted
 * calls take more time than all others together, and say nothing.
 *
 * Two runs of the same program differ for three reasons, and each is measured in the two recordings themselves:
 *   within a run       calls take longer now and then (interrupts, caches). The spread of the batches tells: of the
 *                      differences of batches, when both runs have as many calls (what the calls do cancels out then),
 *                      else of the batches of each run. One preempted call is in one batch, which makes the spread as
 *                      large as the difference: it is no change.
 *   between runs       placement of code and data, frequency, neighbours: all calls of a function take 1.02 times as
 *                      long. Most functions have not changed, so the spread of the ratios of all functions with many
 *                      calls is this noise; what they have in common (their median, up to 10 %) is the machine's.
 *                      The differences of calls under 200 ns, whose hooks take as long as they do, tell what is not
 *                      known of a call whatever its length.
 *   functions with few calls   have no spread of their own. Their ratios are compared with those of the others with few
 *                      calls and as much time; a difference under the time for which threads were preempted in all
 *                      (a hundredth of it when only processor time counts), or under 50 us, is none.
 * Hooks take their time out of the calls by what they cost when a recording began (span/clock.h): of a call's own time,
 * and of its caller's. By how much that differs between the two recordings is how well it is known, so each call, and
 * each call that a function made, may differ by that, all in the same direction: 100,000 empty calls by 10 ns each make
 * a millisecond of their caller's time. It is added to the bound.
 * What chance may make of the difference, at the level of 1 % for all functions together (Bonferroni; Student's t for
 * the batches), is the bound. A number of calls is taken as one of a Poisson process, or of one that spreads more where
 * the numbers of all functions do.
 *
 * Example: 1000 functions; f took 10.0 ms before and 11.0 ms now in 50,000 calls each. The 32 differences of batches
 * have a standard error of 0.05 ms, the ratios of all functions a spread of 1 %: 0.1 ms. The bound is some
 * 5 x sqrt(0.05^2 + 0.1^2) = 0.6 ms, so f has changed.
 */
#ifndef CT_VIEWS_NOISE_H
#define CT_VIEWS_NOISE_H

#include "span/selves.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_BATCHES_MANY = 8 };
/* By whether their end was recorded. */
enum { CT_CHILDREN_CALLS = 0, CT_CHILDREN_POINTS = 1, CT_CHILDREN = 2 };
/* What hooks of a call cost, ns: in its own time, and in its caller's. */
struct ct_noise_hooks {
  double own, child[CT_CHILDREN];
};

/* The mean without the shortest and the longest tenth, and its standard error. */
struct ct_typical {
  double mean, error;
  uint64_t calls;
};
struct ct_typical ct_typical_of(const struct ct_histogram *histogram);

/* A function of both recordings; times in ns. */
struct ct_noise_side {
  const struct ct_batches *batches; /* of the calls whose times are known */
  struct ct_typical typical;        /* of the same, ticks */
  double ns_per_tick;
  double self;
  uint64_t calls;
  uint64_t children[CT_CHILDREN]; /* calls that were made in it directly */
};
struct ct_noise_pair {
  struct ct_noise_side before, after;
  bool has_calls, has_times; /* the numbers of the two can be compared */
  /* What is found out. */
  double self_change, self_noise; /* noise: what chance may make of it */
  double calls_change, calls_noise;
  double typical_change, typical_noise; /* of the logarithm of a typical call's time; noise 0: not known */
  bool is_self_changed, is_typical_changed, is_calls_changed;
};

struct ct_noise {
  double disturbance;          /* given, ns: what may have hit a function by chance, beyond interrupts */
  struct ct_noise_hooks hooks; /* given: by how much they differ */
  double common;               /* functions take so many times as long, by the machine */
  double spread;               /* of the logarithms of the ratios */
  double call;                 /* ns that may be added to each call, or taken from it */
  double overdispersion;
  size_t well_known; /* functions that this is of */
};

/* 0 or CT_ENOMEM. */
int ct_noise_judge(struct ct_noise *noise, struct ct_noise_pair *pairs, size_t count);

/* |t| that chance exceeds with this probability, both sides together; freedom 0: of the normal distribution. */
double ct_noise_quantile(double probability, unsigned freedom);

#endif
