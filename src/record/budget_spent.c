/* SPDX-License-Identifier: MIT */
/*
 * What was spent of late. Each tick adds what it had itself, never a mean of ticks: a mean of means forgets slowly, and
 * what the begin took, when nothing had been decided yet, was still told ten seconds later.
 */
#include "record/budget_spent.h"

#define SECONDS      2.0
#define OWN_NS_LEAST 1.0

void
ct_budget_spent_add(struct ct_budget_spent *spent, const struct ct_budget_spent *tick, double seconds)
{
  double left = SECONDS / (SECONDS + seconds);
  spent->hooks = left * spent->hooks + tick->hooks;
  spent->switches = left * spent->switches + tick->switches;
  spent->recorder = left * spent->recorder + tick->recorder;
  spent->own = left * spent->own + tick->own;
}

double
ct_budget_hooks_share(const struct ct_budget_spent *spent)
{
  return spent->hooks / (spent->own > OWN_NS_LEAST ? spent->own : OWN_NS_LEAST);
}

double
ct_budget_spent_share(const struct ct_budget_spent *spent)
{
  return (spent->hooks + spent->switches + spent->recorder) / (spent->own > OWN_NS_LEAST ? spent->own : OWN_NS_LEAST);
}
