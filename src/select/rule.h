/* SPDX-License-Identifier: MIT */
/* A rule as parsed; see <contrail/rule.h>. */
#ifndef CT_SELECT_RULE_H
#define CT_SELECT_RULE_H

#include <contrail/rule.h>

#include <stdbool.h>
#include <stdint.h>

enum ct_rule_kind {
  CT_RULE_CALL,
  CT_RULE_TIME, /* of a call */
  CT_RULE_RETURNS,
  CT_RULE_OFF_CPU,
  CT_RULE_RATE,
  CT_RULE_SIGNAL,
  CT_RULE_CRASH,
  CT_RULE_EVERY,
  CT_RULE_BY_HAND, /* never from a text */
};
enum ct_rule_op { CT_OP_LESS, CT_OP_LESS_EQUAL, CT_OP_MORE, CT_OP_MORE_EQUAL, CT_OP_EQUAL, CT_OP_NOT_EQUAL };
enum ct_rule_action { CT_ACTION_MARK, CT_ACTION_DUMP, CT_ACTION_STOP, CT_ACTION_DETAIL, CT_ACTION_ITRACE };

#define CT_RULE_CHARS     512  /* of a text, with its end */
#define CT_RULE_CALLS_MAX 1000 /* of ITRACE, each time */

struct ct_rule {
  enum ct_rule_kind kind;
  enum ct_rule_op op; /* of TIME, RETURNS, OFF_CPU, RATE */
  enum ct_rule_action action;
  uint64_t ns;                 /* of TIME, OFF_CPU, EVERY */
  int64_t number;              /* of RETURNS; of RATE, a second */
  int signal;                  /* of SIGNAL; 0: any */
  char pattern[CT_RULE_CHARS]; /* of functions; "": the rule is about none */
  /* Of DETAIL: the functions that have detail in the window. Of ITRACE: those whose next calls are recorded as
   * instructions. */
  char detail[CT_RULE_CHARS];
  uint32_t calls;           /* of ITRACE: how many */
  char text[CT_RULE_CHARS]; /* with one blank between words */
};

/* 0, or CT_EINVAL with a line; *rule is untouched then. */
int ct_rule_parse(const char *text, struct ct_rule *rule, struct ct_diag *diag);

static inline bool
ct_rule_compare(enum ct_rule_op op, int64_t value, int64_t number)
{
  switch (op) {
  case CT_OP_LESS:
    return value < number;
  case CT_OP_LESS_EQUAL:
    return value <= number;
  case CT_OP_MORE:
    return value > number;
  case CT_OP_MORE_EQUAL:
    return value >= number;
  case CT_OP_EQUAL:
    return value == number;
  default:
    return value != number;
  }
}

#endif
