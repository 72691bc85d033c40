/* SPDX-License-Identifier: MIT */
/* The tracer's way to a thread that runs already, and back when nothing comes of it. */
#include "itrace/tracer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/test_point.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GIVE_UP_NS 2000000000ull
#define STOP_NS    10000000000ull /* for a thread to stop: one that waits for a disk, or for its child of vfork */
#define CHILD_NS   1000000000ull  /* ... and for those that it has just made */
#define REST_MIN   20000
#define REST_MAX   1000000
#define USER_CS_64 0x33

void
ct_tracer_has_taken(struct ct_tracer *tracer)
{
  atomic_store_explicit(&tracer->taken, 1, memory_order_release); /* pairs with await_taken and supersede */
  syscall(SYS_futex, &tracer->taken, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Not of one that another tracer has, or is to have. The lock is not held meanwhile: during an exec this waits for
 * other threads to end. */
static int
take_hold(struct ct_tracer *tracer)
{
  pthread_mutex_lock(&tracer->all->lock);
  tracer->is_taking = !tracer->is_superseded;
  pthread_mutex_unlock(&tracer->all->lock);
  int code = tracer->is_taking ? ct_traced_seize(tracer->tid, &tracer->diag)
                               : ct_fail(&tracer->diag, CT_EEXIST, "the thread is traced already");
  if (code == 0) { /* else when that is known, too */
    ct_tracer_has_taken(tracer);
  }
  return code;
}

/* It has become another program. */
static int
open_again(struct ct_tracer *tracer)
{
  struct ct_process fresh;
  int code = ct_process_open(tracer->process.pid, &fresh, &tracer->diag);
  if (code == 0) {
    ct_process_close(&tracer->process, false);
    tracer->process = fresh;
  }
  return code;
}

/* What it has come to before it stops for us. *code: 0, when it has; else as long as *waits. */
static int
take_event(struct ct_tracer *tracer, const struct ct_traced_event *event, bool *waits)
{
  int code = 0;
  switch (event->stop) {
  case CT_TRACED_INTERRUPTED:
    *waits = false;
    return 0;
  case CT_TRACED_GONE:
    if (event->is_reaped) {
      ct_process_note_end(&tracer->process, tracer->tid, event->status);
    }
    if (ct_traced_is_ours(tracer->process.pid) && tracer->tid != tracer->process.pid) {
      return ct_fail(&tracer->diag, CT_EUNSUPPORTED, "thread %d became another program just then", (int)tracer->tid);
    }
    return ct_fail(&tracer->diag, CT_ESRCH, "the thread has ended");
  case CT_TRACED_GROUP_STOP:
    ct_traced_detach(tracer->tid, 0);
    return ct_fail(&tracer->diag, CT_EUNSUPPORTED, "the process is stopped: continue it first (kill -CONT)");
  case CT_TRACED_CHILD: /* held, like all that it makes from now on */
    ct_tracer_has_child(tracer, (pid_t)event->message);
    break;
  case CT_TRACED_EXEC:
    code = open_again(tracer);
    break;
  default:
    break;
  }
  ct_traced_interrupt(tracer->tid); /* any stop is taken for the one that was asked for */
  ct_traced_go(tracer->tid, CT_TRACED_RUN, event->stop == CT_TRACED_SIGNAL ? event->signal : 0);
  return code;
}

static int
await_stop(struct ct_tracer *tracer)
{
  struct ct_traced_event event;
  struct timespec rest = {0, REST_MIN};
  uint64_t until = ct_now_ns() + ct_test_duration_ns("CONTRAIL_TEST_ITRACE_STOP", STOP_NS);
  bool waits = true;
  int code = 0;
  while (waits && code == 0) {
    ct_traced_poll(tracer->tid, &event);
    if (event.stop != CT_TRACED_RUNS) {
      code = take_event(tracer, &event, &waits);
      rest.tv_nsec = REST_MIN;
    } else if (atomic_load_explicit(&tracer->stop, memory_order_acquire) != 0) {
      code = ct_fail(&tracer->diag, CT_ECANCELED, "cancelled");
    } else if (ct_now_ns() > until) {
      code = ct_fail(&tracer->diag, CT_ETIMEOUT, "thread %d does not stop", (int)tracer->tid);
    } else {
      ct_tracer_see_to_children(tracer); /* it may be in vfork, and wait for one */
      nanosleep(&rest, NULL);
      rest.tv_nsec = rest.tv_nsec * 2 < REST_MAX ? rest.tv_nsec * 2 : REST_MAX;
    }
  }
  return code;
}

/* They are held by a thread that ends now, and then run where they are. */
static void
leave_children(struct ct_tracer *tracer)
{
  uint64_t until = ct_now_ns() + CHILD_NS;
  for (struct timespec rest = {0, REST_MAX}; tracer->child_count != 0 && ct_now_ns() < until;) {
    ct_tracer_see_to_children(tracer);
    nanosleep(&rest, NULL);
  }
  for (uint32_t i = 0; i < tracer->child_count; i++) {
    ct_itrace_not_recorded(tracer->all, NULL);
  }
}

/* The watch of one that was found is made when it is held: nobody waits for that. */
int
ct_tracer_begin_thread(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  int code = tracer->is_found ? 0 : ct_tracer_begin_watch(tracer);
  code = code != 0 ? code
                   : ct_process_open(tracer->all->is_calls ? tracer->wanted.pid : tracer->all->options.pid,
                                     &tracer->process, &tracer->diag);
  code = code != 0 ? code : take_hold(tracer);
  if (code != 0) {
    return code;
  }
  code = await_stop(tracer);
  if (code != 0) {
    leave_children(tracer);
    return code;
  }
  if (ct_traced_regs(tracer->tid, &regs) != 0 || regs.cs != USER_CS_64) {
    ct_traced_detach(tracer->tid, 0);
    return ct_fail(&tracer->diag, CT_EUNSUPPORTED, "the thread runs 32-bit code");
  }
  return 0;
}

/* After a failure the thread goes on where it is, if it can. */
void
ct_tracer_give_up(struct ct_tracer *tracer)
{
  uint64_t until = ct_now_ns() + GIVE_UP_NS;
  struct ct_traced_event event;
  ct_traced_interrupt(tracer->tid);
  do {
    struct timespec wait = {0, 100000};
    nanosleep(&wait, NULL);
    ct_traced_poll(tracer->tid, &event);
  } while (event.stop == CT_TRACED_RUNS && ct_now_ns() < until && ct_traced_detach(tracer->tid, 0) != 0);
  ct_traced_detach(tracer->tid, event.stop == CT_TRACED_SIGNAL ? event.signal : 0);
}
