/* SPDX-License-Identifier: MIT */
/*
 * One thread of the process makes system calls for us at a time. Tracers take turns, first come, first served: where
 * the traced threads make others all the time, each of which needs a turn, no thread that is to be traced as well has
 * to wait behind those that come after it.
 */
#include "itrace/tracer.h"

#include "base/error.h"
#include "base/worker.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SERVE_NS 5000000

/* On the stack of who waits. */
struct ct_turn {
  struct ct_turn *next; /* under the lock of all */
  _Atomic uint32_t has; /* 1: it is mine */
};

/* Others may wait meanwhile for the maker of its thread, which has stopped, to forget translations. */
static void
take_turn(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  struct ct_turn turn = {.next = NULL};
  pthread_mutex_lock(&all->lock);
  bool has = !all->is_borrowed;
  all->is_borrowed = true;
  if (!has) {
    *all->last_turn = &turn;
    all->last_turn = &turn.next;
  }
  pthread_mutex_unlock(&all->lock);
  while (!has && atomic_load_explicit(&turn.has, memory_order_acquire) == 0) { /* pairs with end_turn */
    struct timespec wait = {0, SERVE_NS};
    syscall(SYS_futex, &turn.has, FUTEX_WAIT_PRIVATE, 0, tracer->maker != NULL ? &wait : NULL, NULL, 0);
    if (tracer->maker != NULL) {
      ct_tracer_serve_flush(tracer->maker);
    }
  }
}

static void
end_turn(struct ct_itrace *all)
{
  pthread_mutex_lock(&all->lock);
  struct ct_turn *next = all->first_turn;
  all->is_borrowed = next != NULL;
  if (next != NULL) {
    all->first_turn = next->next;
    all->last_turn = all->first_turn != NULL ? all->last_turn : &all->first_turn;
    atomic_store_explicit(&next->has, 1, memory_order_release); /* pairs with take_turn: it may be gone from here on */
    syscall(SYS_futex, &next->has, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  }
  pthread_mutex_unlock(&all->lock);
}

/* What threads that have ended have left mapped. */
static void
remove_gone(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  pthread_mutex_lock(&all->lock);
  struct ct_itrace_space *gone = all->gone;
  all->gone = NULL;
  pthread_mutex_unlock(&all->lock);
  while (gone != NULL) {
    struct ct_itrace_space *space = gone;
    gone = space->next;
    space->process = &tracer->process;
    if (space->image == tracer->image) { /* else exec has taken it away */
      ct_space_remove(space);
    }
    free(space);
  }
}

/* It has not begun, and is not to any more. */
static bool
is_too_late(const struct ct_tracer *tracer)
{
  return (tracer->is_found || tracer->maker != NULL) &&
         atomic_load_explicit(&tracer->begun, memory_order_relaxed) == 0 &&
         atomic_load_explicit(&tracer->stop, memory_order_acquire) != 0;
}

int
ct_tracer_borrow(struct ct_tracer *tracer, bool is_to_stay, struct ct_diag *diag)
{
  take_turn(tracer);
  int code = is_too_late(tracer) ? ct_fail(diag, CT_ECANCELED, "the recording was ended before it had begun with it")
                                 : ct_traced_borrow(&tracer->process, tracer->tid, is_to_stay, diag);
  if (code != 0) {
    end_turn(tracer->all);
    return code;
  }
  tracer->is_raised =
      ct_priority_raise(); /* each of some dozen calls waits for a processor, and all others wait for it */
  remove_gone(tracer);
  return 0;
}

int
ct_tracer_give_back(struct ct_tracer *tracer)
{
  int code = ct_traced_return(&tracer->process);
  if (tracer->is_raised) {
    ct_priority_restore();
  }
  tracer->is_raised = false;
  end_turn(tracer->all);
  return code;
}
