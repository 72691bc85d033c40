/* SPDX-License-Identifier: MIT */
/* What a budget was spent on of late; see budget_spent.c. */
#ifndef CT_RECORD_BUDGET_SPENT_H
#define CT_RECORD_BUDGET_SPENT_H

/* In ns of processor time. */
struct ct_budget_spent {
  double hooks;    /* in the process: by hooks, of whatever level, and what code that is cold waits for them ... */
  double switches; /* ... and by the kernel's reports of its threads' switches */
  double recorder; /* by the threads that serve it */
  double own;      /* by the process, without hooks and reports */
};

/* What a tick of so many seconds had. What was before weighs less, the longer ago the less. */
void ct_budget_spent_add(struct ct_budget_spent *spent, const struct ct_budget_spent *tick, double seconds);
/* Of the process's own time. */
double ct_budget_hooks_share(const struct ct_budget_spent *spent);
double ct_budget_spent_share(const struct ct_budget_spent *spent);

#endif
