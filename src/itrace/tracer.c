/* SPDX-License-Identifier: MIT */
/*
 * The instruction tracer: a thread of the target, and a thread of ours that traces it.
 *
 *   the target's thread    runs units out of its code cache; where it does not know the way it waits in the shared
 * slots the tracer's thread    (tracer_main) translates, answers, delivers signals, makes all calls of ptrace the
 * waiter             (waiter_main) waits for stops of the thread, and rings the doorbell; takes no stop itself
 *
 * The tracer waits for one word, the doorbell, which the target's thread and the waiter ring.
 *
 * A thread that is TRANSLATED comes to a stop for a signal, or because it was interrupted: to make one instruction
 * where it is (wants_step), or to be released (to_release). What cannot be translated, system calls that change where
 * the thread goes on or make a child, and the way into a handler are single steps (STEPS), after which it goes on
 * translated. Children run where they are; of threads see itrace.c.
 *
 * Should we be killed, the kernel lets the thread run on, translated. The next time that it does not know the way it
 * notices that nobody answers, and goes on where the program is (emit_wait, x86/translate_runtime.c). So it does if we
 * only get no processor for as long: then we get it back (CT_ITRACE_LEFT), and the records have a gap.
 */
#include "itrace/tracer.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/worker.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS       50000000 /* how often the thread sees that we live */
#define CHILD_TICK_NS 1000000
#define LEAVE_NS      20000000000ull
#define NOTE_NS       100000000 /* how long mappings are taken to be the same at the begin of a stretch */
#define USER_CS_64    0x33
#define NOT_KNOWN     "the thread is at a place where the program's state is not known"

static void
ring(_Atomic uint32_t *doorbell)
{
  atomic_fetch_add_explicit(doorbell, 1, memory_order_release); /* pairs with the look of the tracer before it sleeps */
  syscall(SYS_futex, doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* ---- the waiter ---- */

void
ct_tracer_ring(struct ct_tracer *tracer)
{
  pthread_mutex_lock(&tracer->doorbell_lock);
  ring(tracer->doorbell);
  pthread_mutex_unlock(&tracer->doorbell_lock);
}

static void
set_tid(struct ct_tracer *tracer, pid_t tid)
{
  tracer->tid = tid;
  atomic_store_explicit(&tracer->waited_tid, tid, memory_order_release); /* pairs with waiter_main() */
}

static void *
waiter_main(void *context)
{
  struct ct_tracer *tracer = context;
  bool is_there = true; /* else the tracer is to see, once, that it is not */
  int ignored;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
  while (is_there && atomic_load_explicit(&tracer->stop, memory_order_acquire) < 2) {
    pid_t tid = atomic_load_explicit(&tracer->waited_tid, memory_order_acquire);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored); /* who joins it may not want to wait */
    is_there = ct_traced_await(tid);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
    atomic_store_explicit(&tracer->event, 1, memory_order_release); /* pairs with look() */
    ct_tracer_ring(tracer);
    while (atomic_load_explicit(&tracer->event, memory_order_acquire) == 1) {
      struct timespec wait = {0, TICK_NS};
      syscall(SYS_futex, &tracer->event, FUTEX_WAIT_PRIVATE, 1, &wait, NULL, 0);
      if (atomic_load_explicit(&tracer->stop, memory_order_acquire) == 2) {
        break;
      }
    }
    is_there |= tid != atomic_load_explicit(&tracer->waited_tid, memory_order_acquire);
  }
  atomic_store_explicit(&tracer->waiter_ends, true, memory_order_release); /* pairs with join_tracers */
  return NULL;
}

static void
event_is_taken(struct ct_tracer *tracer)
{
  atomic_store_explicit(&tracer->event, 0, memory_order_release);
  syscall(SYS_futex, &tracer->event, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- the space ---- */

/* The old one may be unmapped afterwards: the waiter does not ring it any more. */
static void
set_doorbell(struct ct_tracer *tracer, _Atomic uint32_t *doorbell)
{
  pthread_mutex_lock(&tracer->doorbell_lock);
  tracer->doorbell = doorbell;
  pthread_mutex_unlock(&tracer->doorbell_lock);
}

void
ct_tracer_leave_space(struct ct_tracer *tracer)
{
  struct ct_code_cache_stats stats;
  set_doorbell(tracer, &tracer->no_doorbell);
  pthread_mutex_lock(&tracer->all->lock);
  tracer->is_made = false;
  pthread_mutex_unlock(&tracer->all->lock);
  if (tracer->recorder != NULL) {
    ct_recorder_leave(tracer->recorder);
  }
  for (int i = 0; i < 2; i++) {
    if (tracer->spaces[i].cache != NULL) {
      ct_code_cache_stats(tracer->spaces[i].cache, &stats);
      tracer->stats.units += stats.units;
      tracer->stats.insns += stats.insns;
      tracer->stats.source_bytes += stats.source_bytes;
      tracer->stats.code_bytes += stats.code_bytes;
      tracer->stats.flushes += stats.flushes;
      tracer->stats.shared += stats.shared;
    }
    ct_space_free(&tracer->spaces[i]);
  }
  tracer->space = &tracer->spaces[0];
}

static void
choose_space(struct ct_tracer *tracer, struct ct_itrace_space *space)
{
  tracer->space = space;
  set_doorbell(tracer, (_Atomic uint32_t *)&space->slots->doorbell);
}

int
ct_tracer_make(struct ct_tracer *tracer)
{
  bool no_vectors = tracer->all->options.no_vectors;
  int code = tracer->watch == NULL ? ct_tracer_begin_watch(tracer) : 0;
  code = code == 0 && tracer->recorder == NULL ? ct_tracer_begin_records(tracer) : code;
  code = code != 0 ? code : ct_tracer_borrow(tracer, true, &tracer->diag);
  if (code != 0) {
    return code;
  }
  struct ct_itrace_space *recorded = &tracer->spaces[tracer->watch != NULL ? 1 : 0];
  code = ct_space_create(&tracer->process, tracer->recorder != NULL ? ct_recorder_units(tracer->recorder) : NULL,
                         !no_vectors, tracer->all->crowd, recorded, &tracer->diag);
  if (code == 0 && tracer->watch != NULL) {
    code = ct_space_create(&tracer->process, NULL, !no_vectors, tracer->all->crowd, &tracer->spaces[0], &tracer->diag);
  }
  if (code != 0) {
    ct_space_remove(recorded);
  }
  int back = ct_tracer_give_back(tracer);
  if (code != 0 || back != 0) {
    return code != 0 ? code : ct_fail(&tracer->diag, back, "the thread has ended");
  }
  for (int i = 0; i < 2 && tracer->all->shared_units != NULL; i++) {
    if (tracer->spaces[i].cache != NULL) {
      ct_code_cache_share(tracer->spaces[i].cache, tracer->all->shared_units);
    }
  }
  ct_code_pages_forget(tracer->code);
  choose_space(tracer, &tracer->spaces[0]);
  if (tracer->recorder != NULL) {
    ct_recorder_enter(tracer->recorder, recorded, tracer->tid);
    ct_live_choose_calls(tracer, recorded);
  }
  if (tracer->watch != NULL) {
    ct_watch_forget(tracer->watch);
    if (tracer->all->options.function != NULL || tracer->all->is_calls) {
      ct_code_cache_ask_at_switches(recorded->cache);
    }
    code =
        ct_watch_look(tracer->watch, &tracer->process, tracer->spaces[0].cache, tracer->spaces[1].cache, &tracer->diag);
  }
  pthread_mutex_lock(&tracer->all->lock);
  tracer->is_made = code == 0;
  pthread_mutex_unlock(&tracer->all->lock);
  return code;
}

/* ---- stops ---- */

/* The thread has stopped for the first time since it was parked. */
static void
unpark(struct ct_tracer *tracer)
{
  if (!tracer->is_parked) {
    return;
  }
  tracer->is_parked = false;
  if (__atomic_load_n(&tracer->space->slots->is_parked, __ATOMIC_ACQUIRE) != 0) {
    ct_traced_set_mask(tracer->tid, tracer->mask);
    tracer->space->slots->is_parked = 0;
  } /* else we have come late, it has left, and its mask is its own again */
}

/* Where the records end, with the program's registers: the last return led there, at that time. */
static void
note_end(struct ct_tracer *tracer, const struct user_regs_struct *regs, bool is_last)
{
  struct user_regs_struct at = *regs;
  bool is_recorded = tracer->state == CT_TRACER_TRANSLATED || tracer->state == CT_TRACER_STEPS;
  if (is_recorded && ct_tracer_records(tracer)) {
    ct_traced_before_syscall(&at); /* one that is about to be made again */
    ct_recorder_leaves(tracer->recorder, &at, is_last);
  }
}

/* The thread has stopped and is to be released. */
static int
release(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  bool spoilt = false;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  unpark(tracer);
  bool was_translated = ct_tracer_recover(tracer, &regs, &spoilt, NULL);
  if (was_translated && (spoilt || ct_traced_set_regs(tracer->tid, &regs) != 0)) {
    return ct_fail(&tracer->diag, CT_EIO, "%s", NOT_KNOWN);
  }
  if (tracer->recorder != NULL) {
    ct_tracer_note_mappings(tracer);
    note_end(tracer, &regs, true);
    ct_recorder_end(tracer->recorder, CT_STREAM_ASKED, 0);
  }
  if (tracer->space->slots != NULL && !ct_itrace_leaves_spaces(tracer) && ct_tracer_borrow(tracer, false, NULL) == 0) {
    ct_space_remove(&tracer->spaces[0]);
    ct_space_remove(&tracer->spaces[1]);
    ct_tracer_give_back(tracer);
  }
  tracer->state = CT_TRACER_DONE;
  atomic_store_explicit(&tracer->is_released, true, memory_order_relaxed);
  if (tracer->wanted.flag != NULL) {
    __atomic_store_n(tracer->wanted.flag, 0, __ATOMIC_RELAXED);
  }
  return ct_traced_detach(tracer->tid, 0);
}

/* What follows is not recorded. The thread has stopped, with the program's registers. */
static int
end_stretch(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  note_end(tracer, &regs, ct_watch_is_done(tracer->watch));
  if (tracer->all->options.is_live && ct_tracer_records(tracer)) {
    ct_live_hand_over(tracer);
  }
  choose_space(tracer, &tracer->spaces[0]);
  if (!ct_watch_is_done(tracer->watch)) {
    return ct_tracer_enter(tracer);
  }
  if (tracer->all->options.pid != 0 || tracer->all->is_calls) {
    return release(tracer);
  }
  tracer->state = CT_TRACER_NATIVE; /* up to the program's end, which is waited for */
  return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
}

/* It stands before the call that puts it under a filter. One that is waited for runs on by itself, all others are let
 * go. */
static int
leave_filtered(struct ct_tracer *tracer)
{
  tracer->is_filtered = true;
  if (tracer->number != 0 || tracer->all->options.pid != 0 || tracer->all->is_calls) {
    return release(tracer);
  }
  ct_tracer_note_mappings(tracer);
  tracer->state = CT_TRACER_NATIVE;
  return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
}

static int
at_watched(struct ct_tracer *tracer, struct user_regs_struct *regs)
{
  bool records = ct_tracer_records(tracer);
  switch (ct_watch_arrived(tracer->watch, &tracer->process, regs, tracer->spaces[1].cache, records)) {
  case CT_WATCH_BEGIN:
    choose_space(tracer, &tracer->spaces[1]);
    tracer->has_new_mappings |= ct_now_ns() - tracer->noted_ns > NOTE_NS;
    ct_tracer_note_mappings(tracer);
    tracer->reason =
        ct_watch_stretches(tracer->watch) == 1 && tracer->first_step == 0 ? CT_CONTEXT_BEGIN : CT_CONTEXT_GAP;
    tracer->is_at_call = tracer->all->is_calls && tracer->own_patch.length != 0;
    regs->rip = tracer->is_at_call ? tracer->wanted.function : regs->rip;
    return ct_traced_set_regs(tracer->tid, regs) != 0 ? CT_ESRCH : ct_tracer_enter(tracer);
  case CT_WATCH_END:
    return end_stretch(tracer);
  default: /* a begin that is none, the return of a nested call, or an unwinder that is about to return elsewhere */
    if (records ? ct_watch_has_left(tracer->watch, &tracer->process, regs) : ct_watch_is_done(tracer->watch)) {
      return end_stretch(tracer);
    }
    tracer->passes_watched = true;
    tracer->reason = CT_CONTEXT_SEGMENT;
    return ct_tracer_enter(tracer);
  }
}

/* Of all that have been asked for so far. */
static void
flush_is_made(struct ct_tracer *tracer)
{
  uint32_t asked = atomic_load_explicit(&tracer->flush_asked, memory_order_acquire);
  atomic_store_explicit(&tracer->flush_made, asked, memory_order_release); /* pairs with ct_itrace_changed */
}

void
ct_tracer_serve_flush(struct ct_tracer *tracer)
{
  if (atomic_load_explicit(&tracer->flush_asked, memory_order_acquire) ==
      atomic_load_explicit(&tracer->flush_made, memory_order_relaxed)) {
    return;
  }
  if (tracer->state != CT_TRACER_TRANSLATED) { /* it is not in there */
    ct_tracer_flush(tracer);
    flush_is_made(tracer);
  } else if (!tracer->wants_flush) {
    tracer->wants_flush = true;
    ct_traced_interrupt(tracer->tid);
  }
}

/* It had left translated code by itself. */
static int
has_come_back(struct ct_tracer *tracer, const struct user_regs_struct *regs, bool is_first)
{
  ct_tracer_make_changes(tracer);
  flush_is_made(tracer);
  tracer->reason = is_first ? CT_CONTEXT_BEGIN : CT_CONTEXT_SEGMENT;
  tracer->has_new_mappings = true;
  ct_tracer_note_mappings(tracer);
  if (tracer->watch != NULL && ct_tracer_records(tracer) && ct_watch_has_left(tracer->watch, &tracer->process, regs)) {
    return end_stretch(tracer);
  }
  return ct_tracer_enter(tracer);
}

static int
interrupted(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  bool spoilt;
  if (tracer->to_release) {
    return release(tracer);
  }
  bool is_step = tracer->wants_step, is_watched = tracer->wants_watched, is_room = tracer->wants_room;
  bool is_flush = tracer->wants_flush && tracer->state == CT_TRACER_TRANSLATED, is_first = tracer->is_parked;
  tracer->wants_flush = false;
  bool is_sequence = tracer->wants_sequence, is_back = tracer->wants_back, is_end = tracer->wants_end;
  if (!is_step && !is_room && !is_watched && !is_flush && !is_first && !is_sequence && !is_back && !is_end) {
    return ct_tracer_go_on(tracer, 0);
  }
  tracer->wants_step = tracer->wants_room = tracer->wants_watched = tracer->wants_sequence = tracer->wants_back = false;
  tracer->wants_end = false;
  unpark(tracer);
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  uint64_t left = tracer->summary.left;
  if (ct_tracer_recover(tracer, &regs, &spoilt, NULL) && (spoilt || ct_traced_set_regs(tracer->tid, &regs) != 0)) {
    return spoilt ? ct_fail(&tracer->diag, CT_EIO, "%s", NOT_KNOWN) : CT_ESRCH;
  }
  if (tracer->summary.left != left) {
    return has_come_back(tracer, &regs, is_first);
  }
  __atomic_store_n(&tracer->space->slots->request, CT_ITRACE_ANSWERED, __ATOMIC_RELAXED);
  if (is_flush) {
    ct_tracer_flush(tracer);
    flush_is_made(tracer);
  }
  if (is_step) {
    return ct_tracer_step(tracer, &regs, tracer->steps_call);
  }
  if (is_watched) {
    return at_watched(tracer, &regs);
  }
  if (is_end) {
    return leave_filtered(tracer);
  }
  if (!is_room) {
    tracer->reason = is_first ? CT_CONTEXT_BEGIN : CT_CONTEXT_SEGMENT;
    return ct_tracer_enter(tracer);
  }
  ct_tracer_note_mappings(tracer);
  ct_live_hand_over(tracer);
  tracer->reason = CT_CONTEXT_SEGMENT;
  if (tracer->watch != NULL && ct_watch_has_left(tracer->watch, &tracer->process, &regs)) {
    return end_stretch(tracer);
  }
  return ct_tracer_enter(tracer);
}

static int
has_exec(struct ct_tracer *tracer)
{
  struct ct_process fresh;
  if (tracer->is_filtered) { /* it has the filter still */
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
  }
  if (ct_tracer_has_left(tracer)) {
    ct_tracer_is_back(tracer, &(struct user_regs_struct){.rip = 0});
    tracer->flushes_after = false;
  }
  ct_tracer_leave_space(tracer);
  tracer->has_new_image = true;
  tracer->image++;
  tracer->reason = CT_CONTEXT_EXEC;
  tracer->state = CT_TRACER_STEPS;
  int code = ct_process_open(tracer->process.pid, &fresh, &tracer->diag);
  if (code != 0) {
    return code;
  }
  ct_process_close(&tracer->process, false);
  tracer->process = fresh;
  set_tid(tracer, fresh.pid);
  tracer->steps_call = tracer->is_in_call = true;
  tracer->to_release |= tracer->all->is_calls; /* the call has ended */
  tracer->asked_ns = ct_now_ns();
  return ct_tracer_go_on(tracer, 0);
}

int
ct_tracer_stepped(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  ct_tracer_in_handler(tracer);
  if (tracer->to_release) {
    return release(tracer);
  }
  ct_tracer_make_changes(tracer);
  if (!tracer->has_new_image) {
    ct_tracer_call_made(tracer);
    if (tracer->watch != NULL && ct_tracer_records(tracer) && ct_traced_regs(tracer->tid, &regs) == 0 &&
        ct_watch_has_left(tracer->watch, &tracer->process, &regs)) {
      return end_stretch(tracer);
    }
    return ct_tracer_enter(tracer);
  }
  tracer->has_new_image = false;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  if (regs.cs != USER_CS_64) { /* 32-bit code */
    tracer->state = CT_TRACER_NATIVE;
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
  }
  int code = ct_tracer_make(tracer);
  /* It has been killed meanwhile, which is no failure. It may have stopped once more on its way, with registers. */
  if (code == CT_ESRCH || (code != 0 && ct_traced_regs(tracer->tid, &regs) != 0)) {
    tracer->diag.text[0] = 0;
    return CT_ESRCH;
  }
  return code != 0 ? code : ct_tracer_enter(tracer);
}

/* The thread ends where it is: what it was executing belongs to its records. */
static void
reconcile_records(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  bool spoilt;
  ct_tracer_reconcile_held(tracer, NULL);
  if (tracer->recorder != NULL && ct_traced_regs(tracer->tid, &regs) == 0) {
    ct_tracer_recover(tracer, &regs, &spoilt, NULL);
    ct_tracer_note_not_made(tracer, &regs);
    ct_tracer_note_mappings(tracer);
  }
}

/* It is not there under its id: does it go on with that of the process, whose other threads its exec has ended? */
static bool
has_changed_id(struct ct_tracer *tracer, const struct ct_traced_event *event)
{
  pid_t pid = tracer->process.pid;
  if (event->is_reaped || tracer->tid == pid || !ct_traced_is_ours(pid)) {
    return false;
  }
  set_tid(tracer, pid);
  return true;
}

void
ct_tracer_abort_sequence(struct ct_tracer *tracer, struct user_regs_struct *regs)
{
  const struct ct_sequence *sequence = ct_sequences_around(ct_code_cache_sequences(tracer->space->cache), regs->rip);
  if (sequence == NULL) {
    return;
  }
  regs->rip = sequence->abort;
  if (ct_tracer_records(tracer)) {
    ct_recorder_context(tracer->recorder, regs, CT_CONTEXT_GAP);
  }
}

static int
handle_stop(struct ct_tracer *tracer, struct ct_traced_event *event)
{
  if (tracer->hides_trap && event->stop != CT_TRACED_RUNS && event->stop != CT_TRACED_GONE) {
    ct_traced_block_trap(tracer->tid, true);
    tracer->hides_trap = false;
  }
  switch (event->stop) {
  case CT_TRACED_RUNS:
    return 0;
  case CT_TRACED_GONE:
    if (has_changed_id(tracer, event)) {
      return 0;
    }
    tracer->state = CT_TRACER_DONE;
    tracer->summary.has_ended = true;
    tracer->is_reaped = event->is_reaped;
    tracer->summary.wait_status = event->status;
    ct_tracer_reconcile_held(tracer, NULL);
    if (tracer->recorder != NULL) {
      ct_recorder_end(tracer->recorder, WIFSIGNALED(event->status) ? CT_STREAM_KILLED : CT_STREAM_EXITED,
                      event->status);
    }
    ct_process_note_end(&tracer->process, tracer->tid, event->status);
    return 0;
  case CT_TRACED_SIGNAL:
    return tracer->state == CT_TRACER_NATIVE ? ct_traced_go(tracer->tid, CT_TRACED_RUN, event->signal)
                                             : ct_tracer_signal(tracer, event);
  case CT_TRACED_STEPPED:
    if (tracer->state == CT_TRACER_STEPS) {
      return ct_tracer_stepped(tracer);
    }
    event->stop = CT_TRACED_SIGNAL; /* the program's own */
    return tracer->state == CT_TRACER_NATIVE ? ct_traced_go(tracer->tid, CT_TRACED_RUN, event->signal)
                                             : ct_tracer_signal(tracer, event);
  case CT_TRACED_CALL:
    if (tracer->state == CT_TRACER_STEPS && tracer->is_in_call) {
      return ct_tracer_stepped(tracer);
    }
    tracer->is_in_call = true;
    return ct_tracer_go_on(tracer, 0);
  case CT_TRACED_INTERRUPTED:
    return interrupted(tracer);
  case CT_TRACED_GROUP_STOP:
    if (tracer->to_release) {
      return release(tracer);
    }
    return ct_traced_go(tracer->tid, CT_TRACED_LISTEN, 0);
  case CT_TRACED_CHILD:
    ct_tracer_has_child(tracer, (pid_t)event->message);
    return ct_tracer_go_on(tracer, 0);
  case CT_TRACED_EXEC:
    return has_exec(tracer);
  case CT_TRACED_ENDS:
    reconcile_records(tracer);
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
  default:
    return ct_tracer_go_on(tracer, event->signal);
  }
}

/* ---- the tracer's thread ---- */

static bool
all_is_recorded(const struct ct_tracer *tracer)
{
  return tracer->watch != NULL && tracer->all->options.pid != 0 && ct_watch_is_done(tracer->watch);
}

/* It has been interrupted for what it waits for, and is about to stop. */
static bool
is_asked_to_stop(const struct ct_tracer *tracer)
{
  return tracer->wants_step || tracer->wants_watched || tracer->wants_room || tracer->wants_sequence ||
         tracer->wants_end;
}

static bool
waits_for_stop(const struct ct_tracer *tracer)
{
  return tracer->to_release || is_asked_to_stop(tracer) || tracer->wants_back || tracer->wants_flush;
}

/* What the thread has come to by itself, and is to be answered. */
static int
look_at_thread(struct ct_tracer *tracer)
{
  int code = 0;
  if (atomic_load_explicit(&tracer->event, memory_order_acquire) == 1) {
    struct ct_traced_event event;
    ct_traced_poll(tracer->tid, &event);
    code = handle_stop(tracer, &event);
    if (code == 0 && event.stop == CT_TRACED_SIGNAL && tracer->state == CT_TRACER_TRANSLATED &&
        waits_for_stop(tracer)) {
      ct_traced_interrupt(tracer->tid); /* any stop is taken for the one that was asked for just then */
    }
    event_is_taken(tracer);
  }
  if (code != 0 || tracer->to_release) {
    return code;
  }
  if (tracer->state != CT_TRACER_DONE) {
    ct_tracer_serve_flush(tracer);
    ct_live_serve(tracer);
  }
  if (tracer->state == CT_TRACER_TRANSLATED && !is_asked_to_stop(tracer) && !tracer->to_release && !tracer->is_parked &&
      __atomic_load_n(&tracer->space->slots->request, __ATOMIC_ACQUIRE) == CT_ITRACE_WAITS) {
    code = ct_tracer_answer(tracer);
  }
  return code;
}

static int
look(struct ct_tracer *tracer)
{
  int code = look_at_thread(tracer);
  if (code == 0 && !tracer->to_release && !tracer->is_parked && !tracer->wants_back && ct_tracer_has_left(tracer)) {
    tracer->wants_back = true;
    code = ct_traced_interrupt(tracer->tid);
  }
  if (code == 0 && !tracer->to_release && tracer->state != CT_TRACER_DONE &&
      (atomic_load_explicit(&tracer->stop, memory_order_acquire) != 0 || all_is_recorded(tracer))) {
    tracer->to_release = true;
    tracer->asked_ns = ct_now_ns();
    if (tracer->state != CT_TRACER_STEPS) {
      ct_traced_interrupt(tracer->tid);
    }
  }
  return code;
}

/* It has been killed. It stops once more on its way, and may not have stopped there yet. */
static int
await_end(struct ct_tracer *tracer)
{
  struct ct_traced_event event = {.stop = CT_TRACED_RUNS};
  for (struct timespec wait = {0, CHILD_TICK_NS}; event.stop != CT_TRACED_GONE; nanosleep(&wait, NULL)) {
    ct_tracer_see_to_stray(tracer);
    ct_traced_poll(tracer->tid, &event);
    if (event.stop == CT_TRACED_ENDS) {
      reconcile_records(tracer);
    }
    if (event.stop != CT_TRACED_GONE && event.stop != CT_TRACED_RUNS) {
      ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
    }
  }
  event.stop = CT_TRACED_GONE;
  if (!event.is_reaped && tracer->process.dead && tracer->tid == tracer->process.pid) { /* while it made our calls */
    event.is_reaped = true;
    event.status = tracer->process.wait_status;
  }
  return handle_stop(tracer, &event);
}

static int
start_waiter(struct ct_tracer *tracer)
{
  if (ct_worker_create(&tracer->waiter, NULL, waiter_main, tracer) != 0) {
    return ct_fail(&tracer->diag, CT_ENOMEM, "cannot start a thread");
  }
  tracer->has_waiter = true;
  return 0;
}

void
ct_tracer_loop(struct ct_tracer *tracer)
{
  int code = start_waiter(tracer);
  while (code == 0 && tracer->state != CT_TRACER_DONE) {
    _Atomic uint32_t *doorbell = tracer->doorbell;
    uint32_t rung = atomic_load_explicit(doorbell, memory_order_acquire);
    code = look(tracer);
    ct_tracer_see_to_children(tracer);
    if (tracer->space->slots != NULL) {
      __atomic_fetch_add(&tracer->space->slots->liveness, 1, __ATOMIC_RELAXED);
    }
    if (tracer->to_release && tracer->state != CT_TRACER_DONE && ct_now_ns() - tracer->asked_ns > LEAVE_NS) {
      code = ct_fail(&tracer->diag, CT_ETIMEOUT, "the thread does not stop");
    }
    if (code == 0 && tracer->state != CT_TRACER_DONE && tracer->doorbell == doorbell) {
      struct timespec wait = {0, tracer->child_count == 0 ? TICK_NS : CHILD_TICK_NS};
      if (syscall(SYS_futex, doorbell, FUTEX_WAIT, rung, &wait, NULL, 0) != 0 && errno == ETIMEDOUT) {
        ct_tracer_see_to_stray(tracer);
      }
    }
  }
  if (code == CT_ESRCH && tracer->diag.text[0] == 0) {
    code = await_end(tracer);
  }
  for (struct timespec wait = {0, CHILD_TICK_NS}; tracer->child_count != 0; ct_tracer_see_to_children(tracer)) {
    nanosleep(&wait, NULL);
  }
  tracer->code_of_end = code;
}

int
ct_tracer_begin_program(struct ct_tracer *tracer)
{
  const struct ct_itrace_options *options = &tracer->all->options;
  struct ct_process_setup setup = {.streams = options->streams,
                                   .own_group = options->own_group,
                                   .device = options->program_device,
                                   .inode = options->program_inode};
  if (options->signal_mask != NULL) {
    memcpy(&setup.mask, options->signal_mask, sizeof(setup.mask));
  } else {
    pthread_sigmask(SIG_SETMASK, NULL, &setup.mask);
  }
  int code = ct_tracer_begin_watch(tracer);
  if (code != 0) {
    return code;
  }
  code = ct_process_spawn(options->argv, &setup, &tracer->process, &tracer->all->exec_errno, &tracer->diag);
  set_tid(tracer, tracer->process.pid);
  return code != 0 ? code : ct_traced_adopt(&tracer->process, &tracer->diag);
}

int
ct_tracer_finish(struct ct_tracer *tracer)
{
  struct ct_recorder_counts counts;
  ct_tracer_leave_space(tracer);
  if (tracer->recorder == NULL) {
    return 0;
  }
  if (tracer->all->is_calls) {
    struct ct_recorder *recorder = tracer->recorder;
    tracer->recorder = NULL;
    return ct_calls_keep_recorder(tracer, recorder);
  }
  int code = ct_recorder_finish(tracer->recorder, &counts, &tracer->diag);
  tracer->recorder = NULL;
  tracer->summary.record_bytes = counts.bytes;
  tracer->summary.lost_bytes = counts.lost;
  tracer->summary.file_bytes = counts.stored;
  tracer->summary.recorded = counts.steps;
  return code;
}
