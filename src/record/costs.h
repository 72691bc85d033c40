/* SPDX-License-Identifier: MIT */
/* What a hook costs on this machine, now; see costs.c. */
#ifndef CT_RECORD_COSTS_H
#define CT_RECORD_COSTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* In ticks of the clock. An event's clock is read in the middle of its half of the hook: each half has two parts. */
struct ct_hook_costs {
  bool known;
  double enter_before, enter_after;   /* a full hook's first half, before and after its clock reading ... */
  double return_before, return_after; /* ... and its second half */
  double value;                       /* each argument or result that is recorded too */
  double point;                       /* an enter-only hook */
  double sampled;                     /* a sampled hook that records its call ... */
  double passed_over;                 /* ... and one that sampling passes over */
  double counted;                     /* under a budget: a call that is counted only ... */
  double out;                         /* ... and one of a function that is out, but still has its patch */
};

/* Takes some milliseconds. Where it cannot be measured known is false, and durations stay as the clock gave them. */
struct ct_hook_costs ct_measure_hook_costs(int64_t store_delta);

/* The "hook_costs" of the manifest; null when they are not known. */
json_t *ct_hook_costs_json(const struct ct_hook_costs *costs);

#endif
