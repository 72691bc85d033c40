/* SPDX-License-Identifier: MIT */
/* See sums.h. */
#include "export/sums.h"

#include "export/walk.h"

int
ct_export_sums_collect(const struct ct_export_job *job, struct ct_export_sums *sums, struct ct_diag *diag)
{
  const struct ct_export_options *options = job->options;
  *sums = (struct ct_export_sums){.paths = {.is_filtered = true}};
  sums->reading = (struct ct_view_reading){.trace = job->trace,
                                           .filter = options->filter,
                                           .family = true,
                                           .time = options->time,
                                           .progress = &options->progress,
                                           .workers = options->workers};
  int err = ct_paths_collect(&sums->paths, &sums->reading, diag);
  if (err != CT_OK) {
    return err;
  }
  const struct ct_path *top = &sums->paths.paths[CT_PATH_TOP];
  struct ct_export_summary *summary = job->summary;
  summary->events = top->total_calls;
  summary->threads = sums->reading.threads;
  summary->processes = sums->reading.processes;
  summary->lost = sums->reading.dropped;
  ct_export_say(summary, "calls that were only counted", sums->paths.counted);
  ct_export_say(summary, "paths, the thinnest, that are in one named (other)", sums->paths.folded);
  ct_export_say(summary, "threads whose time off the processor is known as a bound only, and not in it",
                sums->reading.off_is_bound ? sums->reading.threads : 0);
  *job->notes = sums->reading.notes;
  job->notes->struct_size = sizeof(*job->notes);
  job->notes->shown = top->total_calls + (top->total_ticks != 0);
  return CT_OK;
}

void
ct_export_sums_destroy(struct ct_export_sums *sums)
{
  ct_view_reading_destroy(&sums->reading);
  ct_paths_destroy(&sums->paths);
}

static uint64_t
weigh(const struct ct_export_job *job, uint64_t ticks, uint64_t off_ticks, uint64_t calls)
{
  switch (job->options->weight) {
  case CT_WEIGHT_CALLS:
    return calls;
  case CT_WEIGHT_OFF:
    return ct_trace_ticks_ns(job->trace, off_ticks);
  case CT_WEIGHT_TIME:
    break;
  }
  return ct_trace_ticks_ns(job->trace, ticks);
}

uint64_t
ct_export_weight(const struct ct_export_job *job, const struct ct_path *path)
{
  return weigh(job, path->self_ticks, path->self_off_ticks, path->calls);
}

uint64_t
ct_export_total_weight(const struct ct_export_job *job, const struct ct_path *path)
{
  return weigh(job, path->total_ticks, path->total_off_ticks, path->total_calls);
}
