/* SPDX-License-Identifier: MIT */
/* What the recorder's time is for an event, and what of it is no event's; see budget_drain.c. */
#ifndef CT_RECORD_BUDGET_DRAIN_H
#define CT_RECORD_BUDGET_DRAIN_H

#include <stdint.h>

struct ct_budget_drain {
  double count, events, drain_ns, squares, products; /* of ticks, what is older weighs less */
  double recent_ns, recent_events, process_ns;       /* of the last seconds: the recorder, and the process */
};

void ct_budget_drain_begin(struct ct_budget_drain *drain);
/* A tick of so many seconds: what the drain's thread and the looks have used, and what the process has. */
void ct_budget_drain_add(struct ct_budget_drain *drain, double events, double drain_ns, double looks_ns,
                         double process_ns, double seconds);
/* The drain's time for one more event. */
double ct_budget_drain_event_ns(const struct ct_budget_drain *drain);
/* The recorder's time that is no event's, ns a second of the process's time. */
double ct_budget_drain_rest(const struct ct_budget_drain *drain);

#endif
