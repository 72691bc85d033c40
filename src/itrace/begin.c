/* SPDX-License-Identifier: MIT */
/* The tracer's way to a thread that runs already, and back when nothing comes of it. */
#include "itrace/tracer.h"

#include "base/clock.h"
#include "base/error.h"

#include <time.h>

#define GIVE_UP_NS 2000000000ull
#define USER_CS_64 0x33

static int
await_stop(struct ct_tracer *tracer)
{
  struct ct_traced_event event;
  while (ct_traced_await_own(tracer->tid)) {
    ct_traced_poll(tracer->tid, &event);
    switch (event.stop) {
    case CT_TRACED_INTERRUPTED:
      return 0;
    case CT_TRACED_GONE:
      return ct_fail(&tracer->diag, CT_ESRCH, "the thread has ended");
    case CT_TRACED_GROUP_STOP:
      ct_traced_detach(tracer->tid, 0);
      return ct_fail(&tracer->diag, CT_EUNSUPPORTED, "the process is stopped: continue it first (kill -CONT)");
    default:
      ct_traced_go(tracer->tid, CT_TRACED_RUN, event.stop == CT_TRACED_SIGNAL ? event.signal : 0);
    }
  }
  return ct_fail(&tracer->diag, CT_ESRCH, "the thread has ended");
}

int
ct_tracer_begin_thread(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  int code = ct_tracer_begin_watch(tracer);
  code = code != 0 ? code
                   : ct_process_open(tracer->all->is_calls ? tracer->wanted.pid : tracer->all->options.pid,
                                     &tracer->process, &tracer->diag);
  code = code != 0 ? code : ct_traced_seize(tracer->tid, &tracer->diag);
  code = code != 0 ? code : await_stop(tracer);
  if (code != 0) {
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
