/* SPDX-License-Identifier: MIT */
/*
 * The drain's thread takes time for each event, and time for wake-ups and empty looks, however few events there are.
 * Only the first can be saved by seeing less. It is the slope of the line through (events, time) of the last ticks.
 * The whole time divided by the events would be wrong where it matters most: the fewer events are left, the dearer
 * each would seem, and nothing would ever be recorded again.
 *
 * Where all ticks are alike there is no slope. So the line is drawn to what an event usually takes, as if there were
 * two ticks PRIOR_EVENTS apart that say so.
 *
 * The rest is what was used in the last seconds without that, against what the process used in the same seconds: of
 * sums, not of ticks, since one in which the process had no processor would say that the recorder takes any share.
 */
#include "record/budget_drain.h"

#define USUAL_NS     15.0
#define PRIOR_EVENTS 10000.0
#define LEAST_NS     5.0
#define MOST_NS      40.0
#define FORGET       0.97 /* a tick */
#define SECONDS      2.0
#define PROCESS_NS   1.0 /* at least, in these */

void
ct_budget_drain_begin(struct ct_budget_drain *drain)
{
  *drain = (struct ct_budget_drain){0};
}

void
ct_budget_drain_add(struct ct_budget_drain *drain, double events, double drain_ns, double looks_ns, double process_ns,
                    double seconds)
{
  drain->count = FORGET * drain->count + 1;
  drain->events = FORGET * drain->events + events;
  drain->drain_ns = FORGET * drain->drain_ns + drain_ns;
  drain->squares = FORGET * drain->squares + events * events;
  drain->products = FORGET * drain->products + events * drain_ns;
  double left = SECONDS / (SECONDS + seconds);
  drain->recent_ns = left * drain->recent_ns + drain_ns + looks_ns;
  drain->recent_events = left * drain->recent_events + events;
  drain->process_ns = left * drain->process_ns + process_ns;
}

double
ct_budget_drain_event_ns(const struct ct_budget_drain *drain)
{
  double prior = PRIOR_EVENTS * PRIOR_EVENTS / 2, products = 0, squares = 0;
  if (drain->count > 0) {
    products = drain->products - drain->events * drain->drain_ns / drain->count;
    squares = drain->squares - drain->events * drain->events / drain->count;
  }
  double slope = (products + USUAL_NS * prior) / ((squares > 0 ? squares : 0) + prior);
  return slope < LEAST_NS ? LEAST_NS : slope > MOST_NS ? MOST_NS : slope;
}

double
ct_budget_drain_rest(const struct ct_budget_drain *drain)
{
  double rest = drain->recent_ns - drain->recent_events * ct_budget_drain_event_ns(drain);
  return rest > 0 ? 1e9 * rest / (drain->process_ns > PROCESS_NS ? drain->process_ns : PROCESS_NS) : 0;
}
