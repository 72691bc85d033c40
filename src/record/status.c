/* SPDX-License-Identifier: MIT */
/* The numbers of a session's status. */
#include "record/session_internal.h"

#include "base/clock.h"

#include <string.h>

void
session_count(struct ct_session *session)
{
  struct ct_drain_stats stats;
  struct ct_sampling_state sampling;
  if (session->drain == NULL) {
    return;
  }
  pthread_mutex_lock(&session->writer_lock);
  ct_drain_stats(session->drain, &stats);
  ct_drain_sampling(session->drain, &sampling);
  pthread_mutex_unlock(&session->writer_lock);
  pthread_mutex_lock(&session->guard);
  session->status.events = stats.events;
  session->status.dropped = stats.dropped;
  memcpy(session->status.dropped_by, stats.dropped_by, sizeof(stats.dropped_by));
  session->status.sample_interval = sampling.interval;
  session->status.sample_changes = sampling.changes;
  ct_modules_count(&session->modules, &session->status.functions, &session->status.hooked);
  pthread_mutex_unlock(&session->guard);
}

/* The same, waiting for nobody: while requests of the process may come. */
void
session_count_roughly(struct ct_session *session)
{
  struct ct_drain_numbers numbers;
  if (session->drain == NULL) {
    return;
  }
  session->counted_ns = ct_now_ns();
  ct_drain_numbers(session->drain, &numbers);
  pthread_mutex_lock(&session->guard);
  struct ct_session_status *status = &session->status;
  if (numbers.interval != 0 && numbers.events >= status->events) { /* it has reported them, and since the last count */
    status->events = numbers.events;
    status->dropped = numbers.dropped;
    memcpy(status->dropped_by, numbers.dropped_by, sizeof(numbers.dropped_by));
    status->sample_interval = numbers.interval;
    status->sample_changes = numbers.changes;
  }
  ct_modules_count(&session->modules, &status->functions, &status->hooked);
  pthread_mutex_unlock(&session->guard);
}

bool
session_has_children(struct ct_session *session)
{
  pthread_mutex_lock(&session->guard);
  bool has = session->status.children_live != 0;
  pthread_mutex_unlock(&session->guard);
  return has;
}
