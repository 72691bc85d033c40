/* SPDX-License-Identifier: MIT */
/*
 * The instruction tracer: a thread of the target, and a thread of ours that holds it by ptrace.
 *
 *   the target's thread    runs units out of its code cache; where it does not know the way it waits in the shared
 * slots the tracer's thread    (tracer_main) translates, answers, delivers signals, makes all calls of ptrace the
 * waiter             (waiter_main) waits for stops of the thread, and rings the bell; takes no stop itself
 *
 * The tracer waits for one word, the bell, which the target's thread and the waiter ring.
 *
 * A thread that is TRANSLATED comes to a stop for a signal, or because it was interrupted: to make one instruction
 * where it is (wants_step), or to be let go (is_leaving). What cannot be translated, system calls that change where the
 * thread goes on or make a child, and the way into a handler are single steps (STEPS), after which it goes on
 * translated. Children run where they are.
 *
 * Should we be killed, the kernel lets the thread run on, translated. The next time that it does not know the way it
 * notices that nobody answers, and goes on where the program is (emit_wait, x86/translate_runtime.c).
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
#define LEAVE_NS      20000000000ull
#define CHILD_WAIT_NS 2000000000ull
#define NOT_KNOWN     "the thread is at a place where the program's state is not known"
#define USER_CS_64    0x33

static void
ring(_Atomic uint32_t *bell)
{
  atomic_fetch_add_explicit(bell, 1, memory_order_release); /* pairs with the look of the tracer before it sleeps */
  syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* ---- the waiter ---- */

static void *
waiter_main(void *context)
{
  struct ct_itrace *tracer = context;
  bool is_there = true; /* else the tracer is to see, once, that it is not */
  while (is_there && atomic_load_explicit(&tracer->stop, memory_order_acquire) < 2) {
    is_there = ct_traced_await(tracer->tid);
    atomic_store_explicit(&tracer->event, 1, memory_order_release); /* pairs with look() */
    pthread_mutex_lock(&tracer->bell_lock);
    ring(tracer->bell);
    pthread_mutex_unlock(&tracer->bell_lock);
    while (atomic_load_explicit(&tracer->event, memory_order_acquire) == 1) {
      struct timespec wait = {0, TICK_NS};
      syscall(SYS_futex, &tracer->event, FUTEX_WAIT_PRIVATE, 1, &wait, NULL, 0);
      if (atomic_load_explicit(&tracer->stop, memory_order_acquire) == 2) {
        return NULL;
      }
    }
  }
  return NULL;
}

static void
event_is_taken(struct ct_itrace *tracer)
{
  atomic_store_explicit(&tracer->event, 0, memory_order_release);
  syscall(SYS_futex, &tracer->event, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- the space ---- */

/* The old one may be unmapped afterwards: the waiter does not ring it any more. */
static void
set_bell(struct ct_itrace *tracer, _Atomic uint32_t *bell)
{
  pthread_mutex_lock(&tracer->bell_lock);
  tracer->bell = bell;
  pthread_mutex_unlock(&tracer->bell_lock);
}

static void
leave_space(struct ct_itrace *tracer)
{
  struct ct_code_cache_stats stats;
  set_bell(tracer, &tracer->no_bell);
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
    }
    ct_space_free(&tracer->spaces[i]);
  }
  tracer->space = &tracer->spaces[0];
}

static void
choose_space(struct ct_itrace *tracer, struct ct_itrace_space *space)
{
  tracer->space = space;
  set_bell(tracer, (_Atomic uint32_t *)&space->slots->doorbell);
}

/* The thread has stopped at an instruction of the program. */
static int
enter_space(struct ct_itrace *tracer)
{
  int code = ct_traced_borrow(&tracer->process, tracer->tid, &tracer->diag);
  if (code != 0) {
    return code;
  }
  struct ct_itrace_space *recorded = &tracer->spaces[tracer->watch != NULL ? 1 : 0];
  code = ct_space_create(&tracer->process, tracer->recorder != NULL ? ct_recorder_units(tracer->recorder) : NULL,
                         !tracer->options.no_vectors, recorded, &tracer->diag);
  if (code == 0 && tracer->watch != NULL) {
    code = ct_space_create(&tracer->process, NULL, !tracer->options.no_vectors, &tracer->spaces[0], &tracer->diag);
  }
  int back = ct_traced_return(&tracer->process);
  if (code != 0 || back != 0) {
    return code != 0 ? code : ct_fail(&tracer->diag, back, "the thread has ended");
  }
  ct_code_pages_forget(tracer->code);
  choose_space(tracer, &tracer->spaces[0]);
  if (tracer->recorder != NULL) {
    ct_recorder_enter(tracer->recorder, recorded, tracer->tid);
  }
  if (tracer->watch != NULL) {
    ct_watch_forget(tracer->watch);
    if (tracer->options.function != NULL) {
      ct_code_cache_step_switches(recorded->cache);
    }
    code =
        ct_watch_look(tracer->watch, &tracer->process, tracer->spaces[0].cache, tracer->spaces[1].cache, &tracer->diag);
  }
  return code != 0 ? code : ct_tracer_enter(tracer);
}

/* ---- stops ---- */

/* A new thread or process: it runs where it is. It has stopped, or is about to. */
static void
let_child_go(pid_t child)
{
  struct ct_traced_event event;
  uint64_t until = ct_now_ns() + CHILD_WAIT_NS;
  for (;;) {
    ct_traced_poll(child, &event);
    if (event.stop != CT_TRACED_RUNS || ct_now_ns() > until) {
      break;
    }
    struct timespec wait = {0, 20000};
    nanosleep(&wait, NULL);
  }
  if (event.stop != CT_TRACED_GONE) {
    ct_traced_detach(child, event.stop == CT_TRACED_SIGNAL ? event.signal : 0);
  }
}

/* The thread has stopped and is to be let go. */
static int
let_go(struct ct_itrace *tracer)
{
  struct user_regs_struct regs;
  bool spoilt = false;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  bool was_translated = ct_tracer_recover(tracer, &regs, &spoilt, NULL);
  if (was_translated && (spoilt || ct_traced_set_regs(tracer->tid, &regs) != 0)) {
    return ct_fail(&tracer->diag, CT_EIO, "%s", NOT_KNOWN);
  }
  if (tracer->recorder != NULL) {
    ct_tracer_note_mappings(tracer);
    ct_recorder_end(tracer->recorder, CT_STREAM_ASKED, 0);
  }
  if (tracer->space->slots != NULL && ct_traced_borrow(&tracer->process, tracer->tid, NULL) == 0) {
    ct_space_remove(&tracer->spaces[0]);
    ct_space_remove(&tracer->spaces[1]);
    ct_traced_return(&tracer->process);
  }
  tracer->state = CT_TRACER_DONE;
  return ct_traced_detach(tracer->tid, 0);
}

/* What follows is not recorded. The thread has stopped, with the program's registers. */
static int
end_stretch(struct ct_itrace *tracer)
{
  choose_space(tracer, &tracer->spaces[0]);
  if (!ct_watch_is_done(tracer->watch)) {
    return ct_tracer_enter(tracer);
  }
  if (tracer->options.pid != 0) {
    return let_go(tracer);
  }
  tracer->state = CT_TRACER_NATIVE; /* up to the program's end, which is waited for */
  return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
}

static int
at_watched(struct ct_itrace *tracer, const struct user_regs_struct *regs)
{
  bool records = ct_tracer_records(tracer);
  switch (ct_watch_arrived(tracer->watch, &tracer->process, regs, tracer->spaces[1].cache, records)) {
  case CT_WATCH_BEGIN:
    choose_space(tracer, &tracer->spaces[1]);
    tracer->has_new_mappings = true;
    ct_tracer_note_mappings(tracer);
    tracer->reason = ct_watch_stretches(tracer->watch) == 1 ? CT_CONTEXT_BEGIN : CT_CONTEXT_GAP;
    return ct_tracer_enter(tracer);
  case CT_WATCH_END:
    return end_stretch(tracer);
  default: /* it is executed where it is, and goes on behind that */
    return ct_tracer_step(tracer, regs, ct_tracer_is_syscall(tracer, regs->rip));
  }
}

static int
interrupted(struct ct_itrace *tracer)
{
  struct user_regs_struct regs;
  bool spoilt;
  if (tracer->is_leaving) {
    return let_go(tracer);
  }
  if (!tracer->wants_step && !tracer->wants_room && !tracer->wants_watched) {
    return ct_traced_go(tracer->tid, ct_tracer_way(tracer), 0);
  }
  bool is_step = tracer->wants_step, is_watched = tracer->wants_watched;
  tracer->wants_step = tracer->wants_room = tracer->wants_watched = false;
  if (ct_traced_regs(tracer->tid, &regs) != 0) {
    return CT_ESRCH;
  }
  if (ct_tracer_recover(tracer, &regs, &spoilt, NULL) && (spoilt || ct_traced_set_regs(tracer->tid, &regs) != 0)) {
    return spoilt ? ct_fail(&tracer->diag, CT_EIO, "%s", NOT_KNOWN) : CT_ESRCH;
  }
  __atomic_store_n(&tracer->space->slots->request, 0, __ATOMIC_RELAXED);
  if (is_step) {
    return ct_tracer_step(tracer, &regs, tracer->steps_call);
  }
  if (is_watched) {
    return at_watched(tracer, &regs);
  }
  ct_tracer_note_mappings(tracer);
  ct_recorder_room(tracer->recorder, UINT64_MAX);
  tracer->reason = CT_CONTEXT_SEGMENT;
  if (tracer->watch != NULL && ct_watch_has_left(tracer->watch, &regs)) {
    return end_stretch(tracer);
  }
  return ct_tracer_enter(tracer);
}

static int
has_exec(struct ct_itrace *tracer)
{
  struct ct_process fresh;
  leave_space(tracer);
  tracer->has_new_image = true;
  tracer->reason = CT_CONTEXT_EXEC;
  tracer->state = CT_TRACER_STEPS;
  int code = ct_process_open(tracer->process.pid, &fresh, &tracer->diag);
  if (code != 0) {
    return code;
  }
  ct_process_close(&tracer->process, false);
  tracer->process = fresh;
  tracer->tid = fresh.pid;
  tracer->steps_call = tracer->is_in_call = true;
  return ct_traced_go(tracer->tid, ct_tracer_way(tracer), 0);
}

static int
stepped(struct ct_itrace *tracer)
{
  struct user_regs_struct regs;
  ct_tracer_in_handler(tracer);
  if (tracer->is_leaving) {
    return let_go(tracer);
  }
  if (tracer->flushes_after) {
    tracer->flushes_after = false;
    ct_tracer_flush(tracer);
  }
  if (!tracer->has_new_image) {
    ct_tracer_call_made(tracer);
    if (tracer->watch != NULL && ct_tracer_records(tracer) && ct_traced_regs(tracer->tid, &regs) == 0 &&
        ct_watch_has_left(tracer->watch, &regs)) {
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
  return enter_space(tracer);
}

/* The thread ends where it is: what it was executing belongs to its records. */
static void
settle_records(struct ct_itrace *tracer)
{
  struct user_regs_struct regs;
  bool spoilt;
  if (tracer->recorder != NULL && ct_traced_regs(tracer->tid, &regs) == 0) {
    ct_tracer_recover(tracer, &regs, &spoilt, NULL);
    ct_tracer_note_mappings(tracer);
  }
}

static int
handle_stop(struct ct_itrace *tracer, struct ct_traced_event *event)
{
  enum ct_traced_way as_before = ct_tracer_way(tracer);
  switch (event->stop) {
  case CT_TRACED_RUNS:
    return 0;
  case CT_TRACED_GONE:
    tracer->state = CT_TRACER_DONE;
    tracer->summary.has_ended = true;
    tracer->summary.wait_status = event->status;
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
      return stepped(tracer);
    }
    event->stop = CT_TRACED_SIGNAL; /* the program's own */
    return tracer->state == CT_TRACER_NATIVE ? ct_traced_go(tracer->tid, CT_TRACED_RUN, event->signal)
                                             : ct_tracer_signal(tracer, event);
  case CT_TRACED_CALL:
    if (tracer->state == CT_TRACER_STEPS && tracer->is_in_call) {
      return stepped(tracer);
    }
    tracer->is_in_call = true;
    return ct_traced_go(tracer->tid, as_before, 0);
  case CT_TRACED_INTERRUPTED:
    return interrupted(tracer);
  case CT_TRACED_GROUP_STOP:
    if (tracer->is_leaving) {
      return let_go(tracer);
    }
    return ct_traced_go(tracer->tid, CT_TRACED_LISTEN, 0);
  case CT_TRACED_CHILD:
    let_child_go((pid_t)event->message);
    return ct_traced_go(tracer->tid, as_before, 0);
  case CT_TRACED_EXEC:
    return has_exec(tracer);
  case CT_TRACED_ENDS:
    settle_records(tracer);
    return ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
  default:
    return ct_traced_go(tracer->tid, as_before, event->signal);
  }
}

/* ---- the tracer's thread ---- */

static int
look(struct ct_itrace *tracer)
{
  int code = 0;
  if (atomic_load_explicit(&tracer->event, memory_order_acquire) == 1) {
    struct ct_traced_event event;
    ct_traced_poll(tracer->tid, &event);
    code = handle_stop(tracer, &event);
    event_is_taken(tracer);
  }
  if (code == 0 && tracer->state == CT_TRACER_TRANSLATED && !tracer->wants_step && !tracer->is_leaving &&
      __atomic_load_n(&tracer->space->slots->request, __ATOMIC_ACQUIRE) == 1) {
    code = ct_tracer_answer(tracer);
  }
  if (code == 0 && !tracer->is_leaving && tracer->state != CT_TRACER_DONE &&
      atomic_load_explicit(&tracer->stop, memory_order_acquire) != 0) {
    tracer->is_leaving = true;
    tracer->asked_ns = ct_now_ns();
    if (tracer->state != CT_TRACER_STEPS) {
      ct_traced_interrupt(tracer->tid);
    }
  }
  return code;
}

/* It has been killed. It stops once more on its way, and may not have stopped there yet. */
static int
await_end(struct ct_itrace *tracer)
{
  struct ct_traced_event event = {.stop = CT_TRACED_RUNS};
  while (event.stop != CT_TRACED_GONE && ct_traced_await(tracer->tid)) {
    ct_traced_poll(tracer->tid, &event);
    if (event.stop == CT_TRACED_ENDS) {
      settle_records(tracer);
    }
    if (event.stop != CT_TRACED_GONE && event.stop != CT_TRACED_RUNS) {
      ct_traced_go(tracer->tid, CT_TRACED_RUN, 0);
    }
  }
  return handle_stop(tracer, &event);
}

static void
tracer_loop(struct ct_itrace *tracer)
{
  int code = 0;
  while (code == 0 && tracer->state != CT_TRACER_DONE) {
    _Atomic uint32_t *bell = tracer->bell;
    uint32_t rung = atomic_load_explicit(bell, memory_order_acquire);
    code = look(tracer);
    if (tracer->space->slots != NULL) {
      __atomic_fetch_add(&tracer->space->slots->liveness, 1, __ATOMIC_RELAXED);
    }
    if (tracer->is_leaving && tracer->state != CT_TRACER_DONE && ct_now_ns() - tracer->asked_ns > LEAVE_NS) {
      code = ct_fail(&tracer->diag, CT_ETIMEOUT, "the thread does not stop");
    }
    if (code == 0 && tracer->state != CT_TRACER_DONE && tracer->bell == bell) {
      struct timespec wait = {0, TICK_NS};
      syscall(SYS_futex, bell, FUTEX_WAIT, rung, &wait, NULL, 0);
    }
  }
  if (code == CT_ESRCH && tracer->diag.text[0] == 0) {
    code = await_end(tracer);
  }
  tracer->code_of_end = code;
}

static int
await_stop(struct ct_itrace *tracer)
{
  struct ct_traced_event event;
  while (ct_traced_await(tracer->tid)) {
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

static int
begin_thread(struct ct_itrace *tracer)
{
  struct user_regs_struct regs;
  int code = ct_process_open(tracer->options.pid, &tracer->process, &tracer->diag);
  tracer->tid = tracer->options.tid;
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

static int
begin_program(struct ct_itrace *tracer)
{
  sigset_t mask;
  if (tracer->options.signal_mask != NULL) {
    memcpy(&mask, tracer->options.signal_mask, sizeof(mask));
  } else {
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
  }
  int code = ct_process_spawn(tracer->options.argv, &mask, &tracer->process, &tracer->exec_errno, &tracer->diag);
  tracer->is_child = code == 0;
  tracer->tid = tracer->process.pid;
  return code != 0 ? code : ct_traced_adopt(&tracer->process, &tracer->diag);
}

static int
begin_watch(struct ct_itrace *tracer)
{
  const struct ct_itrace_options *options = &tracer->options;
  if (options->function == NULL && (options->from == NULL || options->to == NULL)) {
    return 0;
  }
  return ct_watch_create(options->function, options->from, options->to, options->condition, options->stretches,
                         &tracer->watch, &tracer->diag);
}

static int
begin_records(struct ct_itrace *tracer)
{
  char path[PATH_MAX];
  struct ct_recorder_options options = {
      .path = path, .has_vectors = !tracer->options.no_vectors, .is_lossless = tracer->options.is_lossless};
  if (tracer->options.directory == NULL) {
    return 0;
  }
  snprintf(path, sizeof(path), "%s/steps.%d", tracer->options.directory, (int)tracer->tid);
  return ct_recorder_create(&options, tracer->process.pid, tracer->tid, &tracer->recorder, &tracer->diag);
}

/* After a failure the thread goes on where it is, if it can. */
static void
give_up(struct ct_itrace *tracer)
{
  uint64_t until = ct_now_ns() + CHILD_WAIT_NS;
  struct ct_traced_event event;
  ct_traced_interrupt(tracer->tid);
  do {
    struct timespec wait = {0, 100000};
    nanosleep(&wait, NULL);
    ct_traced_poll(tracer->tid, &event);
  } while (event.stop == CT_TRACED_RUNS && ct_now_ns() < until && ct_traced_detach(tracer->tid, 0) != 0);
  ct_traced_detach(tracer->tid, event.stop == CT_TRACED_SIGNAL ? event.signal : 0);
}

static void *
tracer_main(void *context)
{
  struct ct_itrace *tracer = context;
  int code = begin_watch(tracer);
  code = code != 0 ? code : tracer->options.pid != 0 ? begin_thread(tracer) : begin_program(tracer);
  bool is_ours = code == 0;
  code = code != 0 ? code : begin_records(tracer);
  code = code != 0 ? code : enter_space(tracer);
  if (code == 0 && ct_worker_create(&tracer->waiter, NULL, waiter_main, tracer) == 0) {
    tracer->has_waiter = true;
  } else if (code == 0) {
    code = ct_fail(&tracer->diag, CT_ENOMEM, "cannot start a thread");
  }
  tracer->code_of_end = code;
  atomic_store_explicit(&tracer->begun, code == 0 ? 1 : 2, memory_order_release); /* pairs with ct_itrace_begin */
  syscall(SYS_futex, &tracer->begun, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  if (code == 0) {
    tracer_loop(tracer);
  }
  if (tracer->code_of_end != 0 && is_ours && tracer->state != CT_TRACER_DONE) {
    give_up(tracer);
  }
  atomic_store_explicit(&tracer->stop, 2, memory_order_release);
  if (eventfd_write(tracer->done_fd, 1) != 0) {
    return NULL;
  }
  return NULL;
}

/* ---- the interface ---- */

static size_t
min_size(size_t a, size_t b)
{
  return a < b ? a : b;
}

static void
end_records(struct ct_itrace *tracer)
{
  struct ct_recorder_counts counts;
  if (tracer->recorder == NULL) {
    return;
  }
  int code = ct_recorder_finish(tracer->recorder, &counts, &tracer->diag);
  tracer->recorder = NULL;
  tracer->code_of_end = tracer->code_of_end != 0 ? tracer->code_of_end : code;
  tracer->summary.record_bytes = counts.bytes;
  tracer->summary.lost_bytes = counts.lost;
  tracer->summary.file_bytes = counts.stored;
  tracer->summary.recorded = counts.steps;
}

static void
free_tracer(struct ct_itrace *tracer)
{
  leave_space(tracer);
  end_records(tracer);
  ct_process_close(&tracer->process, false);
  if (tracer->code != NULL) {
    ct_mappings_free(&tracer->code->mappings);
  }
  free(tracer->code);
  ct_watch_free(tracer->watch);
  if (tracer->done_fd >= 0) {
    close(tracer->done_fd);
  }
  free(tracer);
}

int
ct_itrace_begin(const struct ct_itrace_options *options, struct ct_itrace **out, int *exec_errno, struct ct_diag *diag)
{
  struct ct_itrace *tracer = calloc(1, sizeof(*tracer));
  if (tracer == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  memcpy(&tracer->options, options, min_size(options->struct_size, sizeof(*options)));
  tracer->process = (struct ct_process){.mem_fd = -1, .pidfd = -1};
  tracer->spaces[0].fd = tracer->spaces[1].fd = -1;
  tracer->space = &tracer->spaces[0];
  tracer->bell = &tracer->no_bell;
  pthread_mutex_init(&tracer->bell_lock, NULL);
  tracer->done_fd = eventfd(0, EFD_CLOEXEC);
  tracer->code = calloc(1, sizeof(*tracer->code));
  if (tracer->code != NULL) {
    tracer->code->process = &tracer->process;
  }
  if (tracer->code == NULL || tracer->done_fd < 0 ||
      ct_worker_create(&tracer->thread, NULL, tracer_main, tracer) != 0) {
    free_tracer(tracer);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  while (atomic_load_explicit(&tracer->begun, memory_order_acquire) == 0) {
    syscall(SYS_futex, &tracer->begun, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
  }
  if (exec_errno != NULL) {
    *exec_errno = tracer->exec_errno;
  }
  if (atomic_load_explicit(&tracer->begun, memory_order_acquire) == 2) {
    pthread_join(tracer->thread, NULL);
    int code = tracer->code_of_end;
    ct_fail(diag, code, "%s", tracer->diag.text);
    free_tracer(tracer);
    return code;
  }
  *out = tracer;
  return 0;
}

pid_t
ct_itrace_pid(const struct ct_itrace *tracer)
{
  return tracer->process.pid;
}

int
ct_itrace_fd(const struct ct_itrace *tracer)
{
  return tracer->done_fd;
}

int
ct_itrace_end(struct ct_itrace *tracer, struct ct_itrace_summary *summary, struct ct_diag *diag)
{
  uint32_t none = 0;
  atomic_compare_exchange_strong_explicit(&tracer->stop, &none, 1, memory_order_release, memory_order_relaxed);
  pthread_join(tracer->thread, NULL);
  if (tracer->has_waiter) { /* the thread is not ours any more, or has ended: there is nothing to wait for */
    event_is_taken(tracer);
    pthread_join(tracer->waiter, NULL);
  }
  leave_space(tracer);
  end_records(tracer);
  if (summary != NULL) {
    tracer->summary.units = tracer->stats.units;
    tracer->summary.instructions = tracer->stats.insns;
    tracer->summary.source_bytes = tracer->stats.source_bytes;
    tracer->summary.code_bytes = tracer->stats.code_bytes;
    tracer->summary.flushes = tracer->stats.flushes;
    if (tracer->watch != NULL) {
      tracer->summary.stretches = ct_watch_stretches(tracer->watch);
      tracer->summary.places = ct_watch_places(tracer->watch);
    }
    size_t size = min_size(summary->struct_size, sizeof(*summary));
    tracer->summary.struct_size = size;
    memcpy(summary, &tracer->summary, size);
  }
  int code = tracer->code_of_end;
  if (code != 0) {
    ct_fail(diag, code, "%s", tracer->diag.text);
  }
  free_tracer(tracer);
  return code;
}
