/* SPDX-License-Identifier: MIT */
/*
 * Metrics of a live session, for who asks: of the lanes, of threads, of the analysis cache. They are the session's
 * thread's to find out, since the drain is; who asks wakes it, and waits a moment. Where the writer's lock is taken (a
 * slow disk) those from before stand.
 */
#include "record/session_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_NS     300000000
#define LOCK_NS     100000000 /* for the writer's lock, which the drain has most of the time when there is much to do */
#define THREADS_MAX 1024      /* that are reported, those with the most events */

static struct timespec
in_ns(long ns)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += ns;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return until;
}

static int
compare_threads(const void *a, const void *b)
{
  uint64_t x = ((const struct ct_drain_thread_info *)a)->events, y = ((const struct ct_drain_thread_info *)b)->events;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Those of which nothing is kept any more are in no list. */
static json_t *
threads_json(struct ct_session *session)
{
  const struct ct_drain_thread_info *threads;
  size_t count = ct_drain_threads(session->recording.drain, &threads);
  struct ct_drain_thread_info *sorted = malloc((count + 1) * sizeof(*sorted));
  json_t *list = json_array();
  if (sorted != NULL && count != 0) {
    memcpy(sorted, threads, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_threads);
  }
  for (size_t i = 0; sorted != NULL && i < count && i < THREADS_MAX; i++) {
    json_array_append_new(list, ct_manifest_thread(&sorted[i]));
  }
  free(sorted);
  return list;
}

void
session_serve_metrics(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  bool wanted = session->sync.metrics_wanted;
  pthread_mutex_unlock(&session->sync.guard);
  struct timespec until = in_ns(LOCK_NS);
  if (!wanted || session->recording.drain == NULL || session->recording.writer == NULL ||
      pthread_mutex_timedlock(&session->recording.writer_lock, &until) != 0) {
    return;
  }
  json_t *json = json_object();
  json_object_set_new(json, "lanes", ct_manifest_lanes(session->recording.drain, session->recording.writer));
  json_object_set_new(json, "thread_metrics", threads_json(session));
  pthread_mutex_unlock(&session->recording.writer_lock);
  json_object_set_new(json, "analysis", ct_manifest_analysis(&session->recording.manifest));
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  pthread_mutex_lock(&session->sync.guard);
  free(session->sync.metrics);
  session->sync.metrics = text;
  session->sync.metrics_wanted = false;
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
}

char *
ct_session_metrics(struct ct_session *session)
{
  struct timespec until = in_ns(WAIT_NS);
  pthread_mutex_lock(&session->sync.guard);
  session->sync.metrics_wanted = true;
  pthread_mutex_unlock(&session->sync.guard);
  session_ring(session);
  pthread_mutex_lock(&session->sync.guard);
  while (session->sync.metrics_wanted && !session->sync.finished &&
         pthread_cond_timedwait(&session->sync.changed, &session->sync.guard, &until) == 0) {
  }
  char *text = strdup(session->sync.metrics != NULL ? session->sync.metrics : "{}");
  pthread_mutex_unlock(&session->sync.guard);
  return text;
}
