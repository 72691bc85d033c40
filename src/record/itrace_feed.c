/* SPDX-License-Identifier: MIT */
/*
 * Those who have subscribed to the ends of calls that are recorded as instructions; see <contrail/session.h>.
 *
 * A feed belongs to two: to the session, whose thread puts events into it, and to who subscribed. The last of them
 * frees it. What is in it is under its own lock, so that no subscriber waits for the session's thread, or it for them.
 * Its descriptor can be read exactly while it has an event, or is over.
 */
#include "record/session_internal.h"

#include "base/sized.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { OWNERS = 2, OVERS = CT_ITRACE_PROBES }; /* ends of probes have room of their own: they are not missed */

struct ct_itrace_feed {
  struct ct_itrace_feed *next; /* of the session's list */
  pthread_mutex_t lock;
  int fd;
  int owners;
  uint32_t number; /* CT_ITRACE_EVERY: of all probes */
  uint64_t serial;
  bool is_over; /* nothing more is put in */
  struct ct_itrace_event *events;
  size_t first, count, capacity; /* events[first] is the next one */
  uint64_t missed;
};

/* ---- in and out, under the lock ---- */

static void
ring(struct ct_itrace_feed *feed)
{
  uint64_t one = 1;
  while (write(feed->fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

static bool
make_room(struct ct_itrace_feed *feed, size_t most)
{
  if (feed->first + feed->count < feed->capacity) {
    return true;
  }
  if (feed->first != 0) {
    memmove(feed->events, feed->events + feed->first, feed->count * sizeof(*feed->events));
    feed->first = 0;
    return true;
  }
  size_t capacity = feed->capacity == 0 ? 16 : 2 * feed->capacity;
  capacity = capacity < most ? capacity : most;
  struct ct_itrace_event *events =
      capacity > feed->capacity ? reallocarray(feed->events, capacity, sizeof(*events)) : NULL;
  if (events == NULL) {
    return false;
  }
  feed->events = events;
  feed->capacity = capacity;
  return true;
}

static void
put(struct ct_itrace_feed *feed, const struct ct_itrace_event *event)
{
  size_t most = CT_ITRACE_FEED_CALLS + (event->kind == CT_ITRACE_PROBE_OVER ? OVERS : 0);
  if (feed->count >= most || !make_room(feed, CT_ITRACE_FEED_CALLS + OVERS)) {
    feed->missed++;
    return;
  }
  struct ct_itrace_event *own = &feed->events[feed->first + feed->count++];
  *own = *event;
  own->missed = feed->missed;
  feed->missed = 0;
  ring(feed);
}

static void
release(struct ct_itrace_feed *feed)
{
  pthread_mutex_lock(&feed->lock);
  bool is_last = --feed->owners == 0;
  pthread_mutex_unlock(&feed->lock);
  if (is_last) {
    pthread_mutex_destroy(&feed->lock);
    close(feed->fd);
    free(feed->events);
    free(feed);
  }
}

/* ---- the session's side: its thread ---- */

static bool
is_about(const struct ct_itrace_feed *feed, uint32_t number, uint64_t serial)
{
  return feed->number == CT_ITRACE_EVERY || (feed->number == number && feed->serial == serial);
}

/* To all whom it concerns; those that are over, or have been closed, leave the list. */
static void
put_to_all(struct ct_session *session, uint64_t serial, const struct ct_itrace_event *event)
{
  for (struct ct_itrace_feed **at = &session->sync.feeds; *at != NULL;) {
    struct ct_itrace_feed *feed = *at;
    pthread_mutex_lock(&feed->lock);
    if (is_about(feed, event->number, serial) && feed->owners == OWNERS) {
      put(feed, event);
      feed->is_over = event->kind == CT_ITRACE_PROBE_OVER && feed->number != CT_ITRACE_EVERY;
    }
    bool is_done = feed->is_over || feed->owners < OWNERS;
    pthread_mutex_unlock(&feed->lock);
    if (is_done) {
      *at = feed->next;
      release(feed);
    } else {
      at = &feed->next;
    }
  }
}

static void
fill(uint32_t number, const struct itrace_ended *ended, struct ct_itrace_event *event)
{
  *event = (struct ct_itrace_event){.struct_size = sizeof(*event),
                                    .kind = CT_ITRACE_CALL_ENDED,
                                    .number = number,
                                    .outcome = ended->outcome,
                                    .call = ended->ordinal,
                                    .first_step = ended->first_step,
                                    .steps = ended->steps,
                                    .tid = ended->tid,
                                    .fn = ended->fn};
  snprintf(event->function, sizeof(event->function), "%s", ended->name != NULL ? ended->name : "");
}

void
session_feed_call(struct ct_session *session, uint32_t number, const struct itrace_ended *ended)
{
  struct ct_itrace_event event;
  if (session->sync.feeds != NULL) {
    fill(number, ended, &event);
    put_to_all(session, ended->serial, &event);
  }
}

void
session_feed_over(struct ct_session *session, uint32_t number, uint64_t serial, const char *why)
{
  const struct ct_itrace_event event = {
      .struct_size = sizeof(event), .kind = CT_ITRACE_PROBE_OVER, .number = number, .outcome = why};
  put_to_all(session, serial, &event);
}

void
session_end_feeds(struct ct_session *session)
{
  while (session->sync.feeds != NULL) {
    struct ct_itrace_feed *feed = session->sync.feeds;
    session->sync.feeds = feed->next;
    pthread_mutex_lock(&feed->lock);
    feed->is_over = true;
    ring(feed);
    pthread_mutex_unlock(&feed->lock);
    release(feed);
  }
}

/* What has become of the probe so far. */
static void
put_past(struct ct_session *session, struct ct_itrace_feed *feed, const char *outcome)
{
  const struct session_itrace *itrace = &session->itrace;
  uint64_t count = itrace->ended_count, kept = count < ITRACE_ENDED_KEPT ? count : ITRACE_ENDED_KEPT;
  struct ct_itrace_event event;
  for (uint64_t i = count - kept; i < count; i++) {
    const struct itrace_ended *ended = &itrace->ended[i % ITRACE_ENDED_KEPT];
    if (ended->serial == feed->serial) {
      fill(feed->number, ended, &event);
      put(feed, &event);
    }
  }
  if (outcome != NULL) {
    event = (struct ct_itrace_event){
        .struct_size = sizeof(event), .kind = CT_ITRACE_PROBE_OVER, .number = feed->number, .outcome = outcome};
    put(feed, &event);
    feed->is_over = true;
  }
}

/* Takes out those that have been closed: nobody can make us keep ever more of them. */
static void
forget_closed(struct ct_session *session)
{
  for (struct ct_itrace_feed **at = &session->sync.feeds; *at != NULL;) {
    struct ct_itrace_feed *feed = *at;
    pthread_mutex_lock(&feed->lock);
    bool is_closed = feed->owners < OWNERS;
    pthread_mutex_unlock(&feed->lock);
    if (is_closed) {
      *at = feed->next;
      release(feed);
    } else {
      at = &feed->next;
    }
  }
}

void
session_feed_begin(struct ct_session *session, struct ct_itrace_feed *feed, uint64_t serial, const char *outcome)
{
  forget_closed(session);
  feed->serial = serial;
  if (feed->number != CT_ITRACE_EVERY) {
    put_past(session, feed, outcome);
  }
  if (feed->is_over) {
    feed->owners--; /* the session has no part in it */
  } else {
    feed->next = session->sync.feeds;
    session->sync.feeds = feed;
  }
}

/* ---- the subscriber's side ---- */

struct ct_itrace_feed *
session_feed_create(uint32_t number)
{
  struct ct_itrace_feed *feed = calloc(1, sizeof(*feed));
  int fd = feed != NULL ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (fd < 0) {
    free(feed);
    return NULL;
  }
  *feed = (struct ct_itrace_feed){.fd = fd, .owners = OWNERS, .number = number};
  pthread_mutex_init(&feed->lock, NULL);
  return feed;
}

void
session_feed_drop(struct ct_itrace_feed *feed)
{
  feed->owners = 1;
  release(feed);
}

int
ct_itrace_feed_fd(const struct ct_itrace_feed *feed)
{
  return feed->fd;
}

int
ct_itrace_feed_next(struct ct_itrace_feed *feed, struct ct_itrace_event *event)
{
  uint64_t rung;
  pthread_mutex_lock(&feed->lock);
  int code = feed->count != 0 ? ct_sized_give(event, &feed->events[feed->first], sizeof(*event), NULL)
             : feed->is_over  ? CT_ESRCH
                              : CT_ENOENT;
  if (code == 0) {
    feed->first++;
    feed->count--;
  }
  if (feed->count == 0 && !feed->is_over) {
    while (read(feed->fd, &rung, sizeof(rung)) < 0 && errno == EINTR) {
    }
  }
  pthread_mutex_unlock(&feed->lock);
  return code;
}

void
ct_itrace_feed_close(struct ct_itrace_feed *feed)
{
  if (feed != NULL) {
    release(feed);
  }
}
