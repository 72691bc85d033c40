/* SPDX-License-Identifier: MIT */
/* See calls.h. Each call has a tracer of its own (tracer.c), which ends with it; what stays is the thread's recorder.
 */
#include "itrace/tracer.h"

#include "base/error.h"

#include <stdlib.h>
#include <time.h>

/* ---- recorders ---- */

struct ct_recorder *
ct_calls_take_recorder(struct ct_itrace *all, pid_t tid)
{
  struct ct_recorder *found = NULL;
  pthread_mutex_lock(&all->lock);
  for (struct ct_kept_recorder **at = &all->kept; *at != NULL; at = &(*at)->next) {
    if ((*at)->tid == tid) {
      struct ct_kept_recorder *kept = *at;
      *at = kept->next;
      found = kept->recorder;
      free(kept);
      break;
    }
  }
  pthread_mutex_unlock(&all->lock);
  return found;
}

static int
finish(struct ct_itrace *all, struct ct_recorder *recorder, struct ct_diag *diag)
{
  struct ct_recorder_counts counts;
  int code = ct_recorder_finish(recorder, &counts, diag);
  pthread_mutex_lock(&all->lock);
  all->summary.recorded += counts.steps;
  all->summary.record_bytes += counts.bytes;
  all->summary.lost_bytes += counts.lost;
  all->summary.file_bytes += counts.stored;
  pthread_mutex_unlock(&all->lock);
  return code;
}

/* It has left its space: all of the call is written. */
int
ct_calls_keep_recorder(struct ct_tracer *tracer, struct ct_recorder *recorder)
{
  struct ct_itrace *all = tracer->all;
  struct ct_kept_recorder *kept = malloc(sizeof(*kept));
  tracer->steps = ct_recorder_steps(recorder) - tracer->first_step;
  if (kept == NULL) {
    return finish(all, recorder, &tracer->diag);
  }
  *kept = (struct ct_kept_recorder){.tid = tracer->tid, .recorder = recorder};
  pthread_mutex_lock(&all->lock);
  kept->next = all->kept;
  all->kept = kept;
  pthread_mutex_unlock(&all->lock);
  return 0;
}

/* ---- calls ---- */

static enum ct_itrace_outcome
outcome_of(const struct ct_tracer *tracer)
{
  return tracer->watch == NULL || ct_watch_stretches(tracer->watch) == 0 ? CT_ITRACE_MISSED
         : tracer->summary.has_ended                                     ? CT_ITRACE_ENDED
         : ct_watch_is_done(tracer->watch)                               ? CT_ITRACE_RETURNED
                                                                         : CT_ITRACE_CUT;
}

void
ct_calls_done(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  struct ct_itrace_done *done = calloc(1, sizeof(*done));
  if (done == NULL) {
    return;
  }
  *done = (struct ct_itrace_done){.tid = tracer->tid,
                                  .number = tracer->wanted.number,
                                  .first_step = tracer->first_step,
                                  .steps = tracer->steps,
                                  .outcome = outcome_of(tracer)};
  if (tracer->code_of_end != 0) {
    ct_fail(&done->why, tracer->code_of_end, "%s",
            tracer->diag.text[0] != 0 ? tracer->diag.text : ct_err_text(tracer->code_of_end));
  }
  *all->done_last = done;
  all->done_last = &done->next;
}

int
ct_itrace_calls_create(const struct ct_itrace_calls_options *options, struct ct_itrace **out, struct ct_diag *diag)
{
  struct ct_itrace_options wanted = {.struct_size = sizeof(wanted),
                                     .directory = options->directory,
                                     .no_vectors = options->no_vectors,
                                     .is_lossless = options->is_lossless};
  struct ct_itrace *all = ct_itrace_new(&wanted, diag);
  if (all == NULL) {
    return CT_ENOMEM;
  }
  all->is_calls = true;
  all->ended = options->ended;
  all->context = options->context;
  *out = all;
  return 0;
}

/*
 * An earlier call of the thread, which has been released: its records are still being written. False: the thread is
 * traced.
 */
static bool
await_earlier(struct ct_itrace *calls, pid_t tid)
{
  struct timespec step = {0, 50000};
  bool found = true, is_held = false;
  while (found && !is_held) {
    found = false;
    pthread_mutex_lock(&calls->lock);
    for (const struct ct_tracer *tracer = calls->first; tracer != NULL; tracer = tracer->next) {
      bool is_of = tracer->tid == tid && !tracer->is_done;
      found |= is_of;
      is_held |= is_of && !atomic_load_explicit(&tracer->is_released, memory_order_relaxed);
    }
    pthread_mutex_unlock(&calls->lock);
    if (found && !is_held) {
      nanosleep(&step, NULL);
    }
  }
  return !is_held;
}

int
ct_itrace_call_begin(struct ct_itrace *calls, const struct ct_wanted_call *call, struct ct_diag *diag)
{
  calls->pid = call->pid;
  if (!await_earlier(calls, call->tid)) {
    free(call->hidden);
    return ct_fail(diag, CT_EEXIST, "thread %d is in another call that is recorded", (int)call->tid);
  }
  return ct_itrace_begin_tracer(calls, call->tid, call, diag);
}

bool
ct_itrace_calls_live(struct ct_itrace *calls)
{
  pthread_mutex_lock(&calls->lock);
  bool live = calls->first != NULL;
  pthread_mutex_unlock(&calls->lock);
  return live;
}

void
ct_itrace_calls_stop(struct ct_itrace *calls)
{
  pthread_mutex_lock(&calls->lock);
  ct_itrace_ask_all(calls);
  pthread_mutex_unlock(&calls->lock);
  ct_itrace_join(calls, true);
}

struct ct_itrace_done *
ct_itrace_calls_done(struct ct_itrace *calls)
{
  ct_itrace_join(calls, false);
  pthread_mutex_lock(&calls->lock);
  struct ct_itrace_done *done = calls->done_first;
  calls->done_first = NULL;
  calls->done_last = &calls->done_first;
  pthread_mutex_unlock(&calls->lock);
  return done;
}

bool
ct_itrace_calls_process_ended(struct ct_itrace *calls, int *status)
{
  pthread_mutex_lock(&calls->lock);
  bool has_ended = calls->summary.has_ended;
  *status = has_ended ? calls->summary.wait_status : *status;
  pthread_mutex_unlock(&calls->lock);
  return has_ended;
}

void
ct_itrace_calls_image(struct ct_itrace *calls)
{
  ct_itrace_calls_stop(calls);
  calls->image++;
}

int
ct_itrace_calls_end(struct ct_itrace *calls, struct ct_itrace_calls_summary *summary, struct ct_diag *diag)
{
  int code = 0;
  *summary = (struct ct_itrace_calls_summary){.threads = 0};
  if (calls == NULL) {
    return 0;
  }
  ct_itrace_calls_stop(calls);
  while (calls->kept != NULL) {
    struct ct_kept_recorder *kept = calls->kept;
    calls->kept = kept->next;
    int failed = finish(calls, kept->recorder, code == 0 ? diag : NULL);
    code = code != 0 ? code : failed;
    summary->threads++;
    free(kept);
  }
  summary->steps = calls->summary.recorded;
  summary->lost_bytes = calls->summary.lost_bytes;
  summary->file_bytes = calls->summary.file_bytes;
  for (struct ct_itrace_done *done = calls->done_first, *next; done != NULL; done = next) {
    next = done->next;
    free(done);
  }
  ct_itrace_free(calls);
  return code;
}
