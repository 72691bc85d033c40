/* SPDX-License-Identifier: MIT */
/* A check as parsed, and how a bound answers it; see <contrail/check.h>. */
#ifndef CT_VIEWS_CHECK_H
#define CT_VIEWS_CHECK_H

#include <contrail/check.h>

#include "base/error.h"

enum ct_check_kind { CT_CHECK_FIELD, CT_CHECK_NO_LOSSES, CT_CHECK_NO_CRASH, CT_CHECK_EXIT };

enum ct_check_field {
  CT_FIELD_CALLS,
  CT_FIELD_OPEN, /* up to here: counts */
  CT_FIELD_TOTAL,
  CT_FIELD_SELF, /* up to here: 0 of a function that was never called */
  CT_FIELD_MIN,
  CT_FIELD_AVG,
  CT_FIELD_P50,
  CT_FIELD_P95,
  CT_FIELD_P99,
  CT_FIELD_MAX,
};

enum ct_check_op {
  CT_CHECK_LESS,
  CT_CHECK_LESS_EQUAL,
  CT_CHECK_MORE,
  CT_CHECK_MORE_EQUAL,
  CT_CHECK_EQUAL,
  CT_CHECK_NOT_EQUAL,
};

struct ct_check {
  enum ct_check_kind kind;
  enum ct_check_field field; /* of CT_CHECK_FIELD */
  enum ct_check_op op;       /* of CT_CHECK_FIELD and CT_CHECK_EXIT */
  double number;             /* nanoseconds, or a count */
  char *pattern;             /* of CT_CHECK_FIELD */
  char *text;                /* as it was given, without blanks around it */
};

struct ct_checks {
  struct ct_check *list;
  size_t count;
};

/* 0, CT_ENOMEM, or CT_EINVAL with a line. *check goes to ct_check_destroy. */
int ct_check_parse(const char *text, struct ct_check *check, struct ct_diag *diag);
void ct_check_destroy(struct ct_check *check);

static inline bool
ct_check_is_count(const struct ct_check *check)
{
  return check->kind != CT_CHECK_FIELD || check->field <= CT_FIELD_OPEN;
}

/* What is known of a value. */
enum ct_check_bound { CT_BOUND_EXACT, CT_BOUND_AT_LEAST, CT_BOUND_AT_MOST, CT_BOUND_NONE };

/* Whether the check holds for a value of which this is known. */
enum ct_check_result ct_check_answer(const struct ct_check *check, double value, enum ct_check_bound bound);
/* How far the value is on the wrong side, or how near to it: of several the greatest is the worst. */
double ct_check_badness(const struct ct_check *check, double value);

#endif
