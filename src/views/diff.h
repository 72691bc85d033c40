/* SPDX-License-Identifier: MIT */
/* The difference of two profiles as rows; see <contrail/diff.h>. */
#ifndef CT_VIEWS_DIFF_H
#define CT_VIEWS_DIFF_H

#include "views/profile.h"

enum ct_diff_state {
  CT_DIFF_CHANGED,
  CT_DIFF_NEW,
  CT_DIFF_VANISHED,
  CT_DIFF_WITHIN_NOISE,
  CT_DIFF_SAME,      /* the same numbers of calls and times */
  CT_DIFF_NOT_KNOWN, /* sampled, or not seen for some time, in one of the two */
  CT_DIFF_STATES,
};

struct ct_diff_row {
  const struct ct_profile_function *functions[2]; /* before, after; NULL: it has none of these */
  struct ct_report_row numbers[2];
  struct ct_noise_pair pair;
  enum ct_diff_state state;
  double key;
};

struct ct_diff {
  struct ct_diff_row *rows; /* sorted, those that are shown first */
  size_t count, shown;
  size_t states[CT_DIFF_STATES];
  struct ct_noise noise;
};

/* 0 or CT_ENOMEM; free(diff->rows). */
int ct_diff_make(const struct ct_profile profiles[2], const struct ct_diff_options *options, struct ct_diff *diff);
int ct_diff_put(const struct ct_profile profiles[2], const struct ct_diff *diff, const struct ct_diff_options *options,
                FILE *out);

static inline const struct ct_profile_function *
ct_diff_function(const struct ct_diff_row *row)
{
  return row->functions[1] != NULL ? row->functions[1] : row->functions[0];
}

#endif
