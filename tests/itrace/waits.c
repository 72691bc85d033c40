/* SPDX-License-Identifier: MIT */
/*
 * Waits, by the library, for calls of `leaf` that are recorded as instructions: waits DIR PROGRAM [ARGUMENT]...
 * The program calls it without end. Says "ok", or what is wrong.
 */
#include <contrail/contrail.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAITERS = 3, SOON_MS = 60000 };

static struct ct_session *session;
static uint32_t never;

#define EXPECT(what, wanted)                                                                                           \
  do {                                                                                                                 \
    int found_ = (what);                                                                                               \
    if (found_ != (wanted)) {                                                                                          \
      printf("%s: %d, line %d\n", #what, found_, __LINE__);                                                            \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static void *
wait_for_it(void *timeout_ms)
{
  EXPECT(ct_session_itrace_wait(session, never, *(int *)timeout_ms), 0);
  return NULL;
}

/* Three wait; then what they wait for does not come any more. */
static void
wait_while(void (*end)(void))
{
  static int timeouts[WAITERS] = {-1, SOON_MS, -1};
  pthread_t threads[WAITERS];
  for (int i = 0; i < WAITERS; i++) {
    EXPECT(pthread_create(&threads[i], NULL, wait_for_it, &timeouts[i]), 0);
  }
  usleep(50000);
  end();
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(threads[i], NULL);
  }
}

static void
close_it(void)
{
  EXPECT(ct_session_itrace_close(session, never, NULL), 0);
}

static void
kill_it(void)
{
  struct ct_session_status status = {.struct_size = sizeof(status)};
  ct_session_get_status(session, &status);
  EXPECT(kill(status.pid, SIGTERM), 0);
}

static int
elapsed_ms(const struct timespec *begin)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int)((now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000);
}

/* The descriptor tells of calls, and of the end. */
static void
take(struct ct_itrace_feed *feed, int kind, uint64_t call, const char *outcome)
{
  struct ct_itrace_event event = {.struct_size = sizeof(event)};
  struct pollfd wait = {.fd = ct_itrace_feed_fd(feed), .events = POLLIN};
  EXPECT(poll(&wait, 1, SOON_MS), 1);
  EXPECT(ct_itrace_feed_next(feed, &event), 0);
  EXPECT((int)event.kind, kind);
  EXPECT((int)event.call, (int)call);
  EXPECT(strcmp(event.outcome, outcome), 0);
  EXPECT((int)event.missed, 0);
  EXPECT(kind == CT_ITRACE_CALL_ENDED && (event.steps == 0 || strstr(event.function, "leaf") == NULL), 0);
}

static void
take_calls(struct ct_itrace_feed *feed)
{
  for (uint64_t call = 1; call <= 3; call++) {
    take(feed, CT_ITRACE_CALL_ENDED, call, "returned");
  }
  take(feed, CT_ITRACE_PROBE_OVER, 0, "done");
}

/* Subscribers: of one probe, of all, late; what was closed. */
static void
subscribe(const struct ct_session_itrace *three, const struct ct_session_itrace *none, struct ct_itrace_feed **left)
{
  struct ct_itrace_feed *every, *one, *late, *closed;
  struct ct_itrace_event event = {.struct_size = sizeof(event)};
  struct ct_diag diag = {""};
  uint32_t number;
  EXPECT(ct_session_itrace_subscribe(session, 1000, &every, &diag), CT_ENOENT);
  EXPECT(ct_session_itrace_subscribe(session, CT_ITRACE_EVERY, &every, &diag), 0);
  EXPECT(ct_itrace_feed_next(every, &event), CT_ENOENT);
  EXPECT(ct_session_itrace_open(session, three, &number, NULL, &diag), 0);
  EXPECT(ct_session_itrace_subscribe(session, number, &one, &diag), 0);
  EXPECT(ct_session_itrace_subscribe(session, number, &closed, &diag), 0);
  ct_itrace_feed_close(closed);
  take_calls(one);
  EXPECT(ct_itrace_feed_next(one, &event), CT_ESRCH);
  take_calls(every);
  EXPECT(ct_session_itrace_subscribe(session, number, &late, &diag), 0);
  take_calls(late);
  EXPECT(ct_itrace_feed_next(late, &event), CT_ESRCH);
  ct_itrace_feed_close(late);
  ct_itrace_feed_close(one);
  EXPECT(ct_session_itrace_open(session, none, &number, NULL, &diag), 0);
  EXPECT(ct_itrace_feed_next(every, &event), CT_ENOENT);
  EXPECT(ct_session_itrace_close(session, number, NULL), 0);
  take(every, CT_ITRACE_PROBE_OVER, 0, "closed");
  *left = every;
}

int
main(int argc, char **argv)
{
  const struct ct_session_itrace first = {.function = "leaf", .calls = 3};
  const struct ct_session_itrace none = {.function = "leaf", .condition = "arg1 == 123456789", .calls = 1};
  struct ct_session_options options = {
      .struct_size = sizeof(options), .directory = argv[1], .itrace = &first, .itrace_count = 1};
  struct ct_diag diag = {""};
  struct timespec begin;
  uint32_t number;
  int exec_errno;
  if (argc < 3 || ct_session_create(&options, &session, &diag) != 0 ||
      ct_session_spawn(session, argv + 2, &exec_errno, &diag) != 0 || ct_session_install(session, &diag) != 0 ||
      ct_session_resume(session, &diag) != 0) {
    printf("%s\n", diag.text);
    return 1;
  }
  EXPECT(ct_session_itrace_wait(session, 32, SOON_MS), 0); /* of the options */
  EXPECT(ct_session_itrace_wait(session, 33, 0), CT_ENOENT);
  EXPECT(ct_session_itrace_wait(session, 1000, -1), CT_ENOENT);
  EXPECT(ct_session_itrace_open(session, &first, &number, NULL, &diag), 0);
  EXPECT(ct_session_itrace_wait(session, number, SOON_MS), 0);
  EXPECT(ct_session_itrace_open(session, &none, &never, NULL, &diag), 0);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  EXPECT(ct_session_itrace_wait(session, never, 0), CT_ETIMEOUT);
  EXPECT(ct_session_itrace_wait(session, never, 150), CT_ETIMEOUT);
  EXPECT(elapsed_ms(&begin) >= 149, 1);
  wait_while(close_it);
  struct ct_itrace_feed *feed;
  struct ct_itrace_event event = {.struct_size = sizeof(event)};
  subscribe(&first, &none, &feed);
  EXPECT(ct_session_itrace_open(session, &none, &never, NULL, &diag), 0);
  wait_while(kill_it);
  take(feed, CT_ITRACE_PROBE_OVER, 0, "ended");
  EXPECT(ct_session_itrace_wait(session, never, -1), 0);
  EXPECT(ct_session_wait(session, SOON_MS), 0);
  EXPECT(ct_session_close(session, NULL, &diag), 0);
  EXPECT(ct_itrace_feed_next(feed, &event), CT_ESRCH);
  ct_itrace_feed_close(feed);
  puts("ok");
  return 0;
}
