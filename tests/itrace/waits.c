/* SPDX-License-Identifier: MIT */
/*
 * Waits, by the library, for calls of `leaf` that are recorded as instructions: waits DIR PROGRAM [ARGUMENT]...
 * The program calls it without end. Says "ok", or what is wrong.
 */
#include <contrail/contrail.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
  EXPECT(ct_session_itrace_open(session, &none, &never, NULL, &diag), 0);
  wait_while(kill_it);
  EXPECT(ct_session_itrace_wait(session, never, -1), 0);
  EXPECT(ct_session_wait(session, SOON_MS), 0);
  EXPECT(ct_session_close(session, NULL, &diag), 0);
  puts("ok");
  return 0;
}
