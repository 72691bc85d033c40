/* SPDX-License-Identifier: MIT */
#include "base/worker.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX 64   /* further ones are not looked after */
#define POLL_MS     20   /* between two polls while a worker works ... */
#define IDLE_MS     200  /* ... and while none does */
#define WORK_SHARE  20   /* this part of the time between two polls, of a processor, is work */
#define STAT_BYTES  1024 /* of /proc/self/task/TID/stat that hold the name and the state */
#define STACK_LEAST                                                                                                    \
  (1u << 20) /* also where the user has few by ulimit -s: what belongs to each thread lies on it, too */

struct worker {
  pid_t tid; /* 0: the entry is free */
  clockid_t clock;
  uint64_t ran_ns; /* at the last poll ... */
  uint64_t at_ns;  /* ... which was then */
  int stat;        /* /proc/self/task/TID/stat; -1: not open */
  bool is_known;   /* it has been looked at */
  bool is_raised;  /* by who looks after it */
  bool is_held;    /* by itself (ct_priority_raise) */
};

static _Thread_local struct worker *own_entry; /* NULL: none */

static struct {
  pthread_mutex_t lock; /* who waits for it lends its priority to who has it */
  struct worker workers[WORKERS_MAX];
  _Atomic uint32_t guards;
  pthread_key_t of_thread;
  bool is_running; /* the thread that looks after the others */
  bool stopping;
  pthread_t thread;
  pthread_mutex_t sleep_lock;
  pthread_cond_t wake;
} all = {.sleep_lock = PTHREAD_MUTEX_INITIALIZER};

/* One call at a time, through the start and the end of its thread. */
static pthread_mutex_t guarding = PTHREAD_MUTEX_INITIALIZER;

static void leave(void *entry);

static pthread_once_t begun = PTHREAD_ONCE_INIT;

static void
begin(void)
{
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&all.lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  pthread_key_create(&all.of_thread, leave);
}

static void
lock(void)
{
  pthread_once(&begun, begin);
  pthread_mutex_lock(&all.lock);
}

struct start {
  void *(*run)(void *);
  void *context;
  bool is_raised;
};

/* ---- the class ---- */

static bool
set_real_time(pid_t tid, int priority)
{
  struct sched_param param = {.sched_priority = priority};
  return sched_setscheduler(tid, SCHED_RR | SCHED_RESET_ON_FORK, &param) == 0;
}

static bool
is_normal(pid_t tid)
{
  return (sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER;
}

static bool
raise_priority(pid_t tid)
{
  return is_normal(tid) && set_real_time(tid, sched_get_priority_min(SCHED_RR));
}

static void
restore_priority(pid_t tid)
{
  struct sched_param none = {0};
  /* By a limit alone one may not take SCHED_RESET_ON_FORK back (sched(7)). */
  if (sched_setscheduler(tid, SCHED_OTHER, &none) != 0) {
    sched_setscheduler(tid, SCHED_OTHER | SCHED_RESET_ON_FORK, &none);
  }
}

bool
ct_priority_raise(void)
{
  lock();
  bool raised = (own_entry != NULL && own_entry->is_raised) || raise_priority(0);
  if (own_entry != NULL) {
    own_entry->is_held = raised;
    own_entry->is_raised = false;
  }
  pthread_mutex_unlock(&all.lock);
  return raised;
}

void
ct_priority_restore(void)
{
  lock();
  restore_priority(0);
  if (own_entry != NULL) {
    own_entry->is_held = false;
  }
  pthread_mutex_unlock(&all.lock);
}

void
ct_priority_hold(void)
{
  lock();
  if (own_entry != NULL) {
    if (own_entry->is_raised) {
      restore_priority(0);
    }
    own_entry->is_raised = false;
    own_entry->is_held = true;
  }
  pthread_mutex_unlock(&all.lock);
}

void
ct_priority_release(void)
{
  lock();
  if (own_entry != NULL) {
    own_entry->is_held = false;
  }
  pthread_mutex_unlock(&all.lock);
}

/* ---- workers ---- */

static int
open_stat(void)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)gettid());
  return open(path, O_RDONLY | O_CLOEXEC);
}

void
ct_worker_enter(void)
{
  clockid_t clock;
  if (own_entry != NULL || pthread_getcpuclockid(pthread_self(), &clock) != 0) {
    return;
  }
  lock();
  for (size_t i = 0; i < WORKERS_MAX && own_entry == NULL; i++) {
    if (all.workers[i].tid == 0) {
      own_entry = &all.workers[i];
      *own_entry = (struct worker){.tid = gettid(), .clock = clock, .stat = open_stat()};
      pthread_setspecific(all.of_thread, own_entry);
    }
  }
  pthread_mutex_unlock(&all.lock);
}

/* With the lock. */
static void
free_entry(struct worker *worker)
{
  if (worker->stat >= 0) {
    close(worker->stat);
  }
  worker->tid = 0;
}

static void
leave(void *entry)
{
  struct worker *worker = entry;
  lock();
  if (worker->is_raised) {
    restore_priority(0);
  }
  free_entry(worker);
  pthread_mutex_unlock(&all.lock);
}

void
ct_worker_leave(void)
{
  if (own_entry != NULL) {
    pthread_setspecific(all.of_thread, NULL);
    leave(own_entry);
    own_entry = NULL;
  }
}

/*
 * The caller is about to end, and others wait for that (pthread_join): nobody looks after it on its last steps, so it
 * makes them in the real-time class, where it may.
 */
static void
leave_and_end(void)
{
  lock();
  if (own_entry != NULL) {
    free_entry(own_entry);
    own_entry = NULL;
    pthread_setspecific(all.of_thread, NULL);
  }
  pthread_mutex_unlock(&all.lock);
  if (atomic_load_explicit(&all.guards, memory_order_relaxed) != 0) {
    (void)raise_priority(0);
  }
}

static void *
worker_main(void *argument)
{
  struct start start = *(struct start *)argument;
  free(argument);
  ct_worker_enter();
  if (start.is_raised) {
    restore_priority(0);
  }
  void *result = start.run(start.context);
  leave_and_end();
  return result;
}

/* Nobody looks after a thread that has not entered yet, so one that is guarded begins in the real-time class. */
static int
create_raised(pthread_t *thread, pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
  struct sched_param param = {.sched_priority = sched_get_priority_min(SCHED_RR)};
  pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setschedpolicy(attributes, SCHED_RR);
  pthread_attr_setschedparam(attributes, &param);
  int code = pthread_create(thread, attributes, run, context);
  pthread_attr_setinheritsched(attributes, PTHREAD_INHERIT_SCHED);
  return code;
}

static bool
may_begin_raised(void)
{
  if (atomic_load_explicit(&all.guards, memory_order_relaxed) == 0) {
    return false;
  }
  lock();
  bool may = is_normal(0) || (own_entry != NULL && (own_entry->is_raised || own_entry->is_held));
  pthread_mutex_unlock(&all.lock);
  return may;
}

int
ct_worker_create(pthread_t *thread, pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
  pthread_attr_t plain;
  struct start *start = malloc(sizeof(*start));
  if (start == NULL) {
    return ENOMEM;
  }
  *start = (struct start){.run = run, .context = context, .is_raised = true};
  pthread_attr_init(&plain);
  size_t size;
  if (pthread_attr_getstacksize(&plain, &size) == 0 && size < STACK_LEAST) {
    pthread_attr_setstacksize(&plain, STACK_LEAST);
  }
  attributes = attributes != NULL ? attributes : &plain;
  int code = may_begin_raised() ? create_raised(thread, attributes, worker_main, start) : EPERM;
  if (code != 0) {
    start->is_raised = false;
    code = pthread_create(thread, attributes, worker_main, start);
  }
  pthread_attr_destroy(&plain);
  if (code != 0) {
    free(start);
  }
  return code;
}

/* ---- looking after them ---- */

static bool
is_runnable(const struct worker *worker)
{
  char text[STAT_BYTES];
  ssize_t got = worker->stat >= 0 ? pread(worker->stat, text, sizeof(text) - 1, 0) : 0;
  text[got > 0 ? got : 0] = '\0';
  const char *end_of_name = strrchr(text, ')');
  return end_of_name != NULL && strncmp(end_of_name, ") R", 3) == 0;
}

/* True when it has worked since the last poll, or waits for a processor. */
static bool
poll_worker(struct worker *worker)
{
  uint64_t ran_ns = ct_clock_ns(worker->clock), now = ct_now_ns();
  bool has_run = !worker->is_known || ran_ns != worker->ran_ns, waits = !has_run && is_runnable(worker);
  bool works =
      !worker->is_known || waits || worker->is_raised || (ran_ns - worker->ran_ns) * WORK_SHARE >= now - worker->at_ns;
  if (worker->is_raised && !waits) {
    restore_priority(worker->tid);
    worker->is_raised = false;
  } else if (waits && !worker->is_raised) {
    worker->is_raised = raise_priority(worker->tid);
  }
  worker->ran_ns = ran_ns;
  worker->at_ns = now;
  worker->is_known = true;
  return works;
}

/* True when one of them works. */
static bool
poll_all(void)
{
  bool works = false;
  lock();
  for (size_t i = 0; i < WORKERS_MAX; i++) {
    if (all.workers[i].tid != 0 && !all.workers[i].is_held) {
      works |= poll_worker(&all.workers[i]);
    }
  }
  pthread_mutex_unlock(&all.lock);
  return works;
}

static void
restore_all(void)
{
  lock();
  for (size_t i = 0; i < WORKERS_MAX; i++) {
    if (all.workers[i].tid != 0 && all.workers[i].is_raised) {
      restore_priority(all.workers[i].tid);
      all.workers[i].is_raised = false;
    }
  }
  pthread_mutex_unlock(&all.lock);
}

static void *
guard_main(void *unused)
{
  (void)unused;
  pthread_setname_np(pthread_self(), "contrail-guard");
  (void)set_real_time(0, sched_get_priority_min(SCHED_RR) + 1); /* before those that it raises, where it may */
  pthread_mutex_lock(&all.sleep_lock);
  while (!all.stopping) {
    pthread_mutex_unlock(&all.sleep_lock);
    uint64_t until = ct_now_ns() + (poll_all() ? POLL_MS : IDLE_MS) * 1000000u;
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    pthread_mutex_lock(&all.sleep_lock);
    while (!all.stopping && pthread_cond_clockwait(&all.wake, &all.sleep_lock, CLOCK_MONOTONIC, &at) == 0) {
    }
  }
  pthread_mutex_unlock(&all.sleep_lock);
  restore_all();
  return NULL;
}

void
ct_workers_guard(void)
{
  pthread_mutex_lock(&guarding);
  if (atomic_fetch_add_explicit(&all.guards, 1, memory_order_relaxed) == 0) {
    sigset_t every, old;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    all.stopping = false;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    all.is_running = create_raised(&all.thread, &attributes, guard_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
  }
  pthread_mutex_unlock(&guarding);
}

void
ct_workers_unguard(void)
{
  pthread_mutex_lock(&guarding);
  if (atomic_fetch_sub_explicit(&all.guards, 1, memory_order_relaxed) == 1 && all.is_running) {
    pthread_mutex_lock(&all.sleep_lock);
    all.stopping = true;
    pthread_cond_signal(&all.wake);
    pthread_mutex_unlock(&all.sleep_lock);
    pthread_join(all.thread, NULL);
    all.is_running = false;
  }
  pthread_mutex_unlock(&guarding);
}

bool
ct_workers_are_guarded(void)
{
  pthread_mutex_lock(&guarding);
  bool guarded = all.is_running;
  pthread_mutex_unlock(&guarding);
  return guarded;
}
