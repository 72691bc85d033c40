/* SPDX-License-Identifier: MIT */
/* The numbers of a session's status. */
#include "record/session_internal.h"

#include "base/clock.h"
#include "trace/pieces.h"
#include "trace/store.h"

#include <string.h>

/* What a session that keeps the last stretch only holds of it. */
static void
count_kept(struct ct_session *session)
{
  struct ct_store_state store;
  struct ct_pieces_state files;
  struct ct_session_status *status = &session->sync.status;
  if (session->recording.writer != NULL && ct_trace_writer_kept(session->recording.writer, &store)) {
    status->kept_limit_bytes = store.capacity + CT_STORE_HEADER_BYTES;
    status->kept_bytes = store.bytes;
    status->kept_events = store.events;
    status->kept_ns = ct_now_ns() - store.since_ns;
  }
  if (session->recording.writer != NULL && ct_trace_writer_limited(session->recording.writer, &files)) {
    status->kept_limit_bytes = files.limit;
    status->kept_bytes = files.bytes;
    status->kept_events = files.events;
    status->kept_ns = ct_now_ns() - files.since_ns;
  }
}

void
session_count_detail(struct ct_session *session, const struct ct_detail_stats *detail)
{
  session->sync.status.detail_records = detail->recorded - detail->no_memory;
  session->sync.status.detail_lost = detail->overwritten + detail->skipped + detail->no_memory;
}

void
session_count(struct ct_session *session)
{
  struct ct_drain_stats stats;
  struct ct_sampling_state sampling;
  if (session->recording.drain == NULL) {
    return;
  }
  pthread_mutex_lock(&session->recording.writer_lock);
  ct_drain_stats(session->recording.drain, &stats);
  ct_drain_sampling(session->recording.drain, &sampling);
  struct ct_detail_stats detail = ct_drain_detail_stats(session->recording.drain);
  pthread_mutex_unlock(&session->recording.writer_lock);
  session_read_cpu(session);
  struct ct_cost cost = session_cost(session, stats.hook_events, stats.dropped_by);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.status.events = stats.events;
  session->sync.status.dropped = stats.dropped;
  memcpy(session->sync.status.dropped_by, stats.dropped_by, sizeof(stats.dropped_by));
  session->sync.status.cost = cost;
  session->sync.status.sample_interval = sampling.interval;
  session->sync.status.sample_changes = sampling.changes;
  session_count_detail(session, &detail);
  count_kept(session);
  session_count_windows(session);
  session_count_budget(session);
  ct_modules_count(&session->recording.modules, &session->sync.status.functions, &session->sync.status.hooked);
  pthread_mutex_unlock(&session->sync.guard);
}

/* The same, waiting for nobody: while requests of the process may come. */
void
session_count_roughly(struct ct_session *session)
{
  struct ct_drain_numbers numbers;
  if (session->recording.drain == NULL) {
    return;
  }
  session->recording.counted_ns = ct_now_ns();
  ct_drain_numbers(session->recording.drain, &numbers);
  session_read_cpu(session);
  struct ct_cost cost = session_cost(session, numbers.hook_events, numbers.dropped_by);
  pthread_mutex_lock(&session->sync.guard);
  struct ct_session_status *status = &session->sync.status;
  if (numbers.interval != 0 && numbers.events >= status->events) { /* it has reported them, and since the last count */
    status->events = numbers.events;
    status->dropped = numbers.dropped;
    memcpy(status->dropped_by, numbers.dropped_by, sizeof(numbers.dropped_by));
    status->cost = cost;
    status->sample_interval = numbers.interval;
    status->sample_changes = numbers.changes;
  }
  count_kept(session);
  session_count_windows(session);
  session_count_budget(session);
  ct_modules_count(&session->recording.modules, &status->functions, &status->hooked);
  pthread_mutex_unlock(&session->sync.guard);
}

void
session_begin_cpu(struct ct_session *session)
{
  struct ct_cpu_times *cpu = &session->recording.cpu;
  if (cpu->begun) {
    return;
  }
  cpu->begun = true; /* a child's clock begins with its fork */
  if (!session->node.is_child) {
    ct_program_cpu_ns(session->target.process.pid, session->target.process.pidfd, &cpu->begin_ns);
  }
}

void
session_read_cpu(struct ct_session *session)
{
  struct ct_cpu_times *cpu = &session->recording.cpu;
  uint64_t ns;
  if (cpu->begun && ct_program_cpu_ns(session->target.process.pid, session->target.process.pidfd, &ns) &&
      ns > cpu->begin_ns && ns - cpu->begin_ns > cpu->program_ns) {
    cpu->program_ns = ns - cpu->begin_ns;
  }
}

struct ct_cost
session_cost(struct ct_session *session, const uint64_t hook_events[CT_HOOK_EVENT_COUNT],
             const uint64_t dropped_by[CT_DROP_COUNT])
{
  const struct ct_manifest *manifest = &session->recording.manifest;
  const struct ct_cpu_times *cpu = &session->recording.cpu;
  struct ct_cost cost =
      ct_estimate_cost(&manifest->costs, hook_events, dropped_by, ct_manifest_tick_ns(manifest), cpu->program_ns);
  uint64_t own = ct_recorder_cpu_ns();
  cost.recorder_cpu_ns = own > cpu->recorder0_ns ? own - cpu->recorder0_ns : 0;
  cost.left_out |= session->options.int3 ? 1u << CT_COST_BREAKPOINTS : 0;
  cost.left_out |= session->options.budget > 0 ? 1u << CT_COST_COUNTED : 0; /* the budget's own sums have them */
  return cost;
}

bool
session_has_children(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  bool has = session->sync.status.children_live != 0;
  pthread_mutex_unlock(&session->sync.guard);
  return has;
}
