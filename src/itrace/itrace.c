/* SPDX-License-Identifier: MIT */
/*
 * A recording: its threads, each with a tracer of its own (tracer.c), a code cache, a file.
 *
 * A thread that a traced thread makes has stopped before its first instruction, stopped for its maker's tracer, and
 * ptrace wants all calls for a thread from the one that seized it. So the maker's tracer makes the spaces of the new
 * thread, puts it where threads wait for their tracer (park), with all signals blocked, and releases it; the new tracer
 * seizes it there. Should we be killed in between, it leaves by itself, as every thread does that waits for a tracer.
 *
 * What one thread maps or changes of the code, others may have translated: before it goes on after the system call,
 * those have forgotten it (ct_itrace_changed). A thread that ends cannot unmap what is ours; the next one that makes
 * system calls for us does it (struct ct_itrace.gone).
 */
#include "itrace/tracer.h"

#include "base/error.h"
#include "base/worker.h"
#include "itrace/leftovers.h"
#include "steps/folder.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS      50000
#define ASK_NS       20000000      /* between two looks whether somebody has had enough */
#define CHANGE_NS    5000000000ull /* that a thread has to forget translations */
#define SUPERSEDE_NS 100000000
#define ALL_SIGNALS  UINT64_MAX

/* ---- tracers ---- */

/* Under the lock. */
static struct ct_tracer *
tracer_of(struct ct_itrace *all, pid_t tid)
{
  struct ct_tracer *tracer = all->first;
  while (tracer != NULL && (tracer->tid != tid || tracer->is_done)) {
    tracer = tracer->next;
  }
  return tracer;
}

/* NULL: out of memory, or the recording is ending; or, of a thread that was found, it is traced already. */
static struct ct_tracer *
add_tracer(struct ct_itrace *all, pid_t tid, const struct ct_wanted_call *call, bool is_found)
{
  struct ct_tracer *tracer = calloc(1, sizeof(*tracer));
  struct ct_code_pages *code = calloc(1, sizeof(*code));
  pthread_mutex_lock(&all->lock);
  if (tracer == NULL || code == NULL || all->is_ending || (is_found && tracer_of(all, tid) != NULL)) {
    pthread_mutex_unlock(&all->lock);
    free(tracer);
    free(code);
    return NULL;
  }
  *tracer = (struct ct_tracer){.all = all,
                               .tid = tid,
                               .waited_tid = tid,
                               .process = {.mem_fd = -1, .pidfd = -1},
                               .code = code,
                               .spaces = {{.fd = -1}, {.fd = -1}},
                               .number = all->made++,
                               .is_found = is_found,
                               .image = all->image,
                               .changes = atomic_load_explicit(&all->changes, memory_order_acquire),
                               .next = all->first};
  tracer->code->process = &tracer->process;
  tracer->space = &tracer->spaces[0];
  tracer->doorbell = &tracer->no_doorbell;
  if (call != NULL) {
    tracer->wanted = *call;
    tracer->own_patch = call->own != NULL ? *call->own : (struct ct_itrace_patch){.length = 0};
    tracer->wanted.own = NULL; /* the caller's */
    code->hidden = call->hidden;
    code->hidden_count = call->hidden_count;
  }
  pthread_mutex_init(&tracer->doorbell_lock, NULL);
  all->first = tracer;
  all->running++;
  pthread_mutex_unlock(&all->lock);
  return tracer;
}

/* Nobody else knows it any more. */
static void
free_tracer(struct ct_tracer *tracer)
{
  ct_tracer_finish(tracer);
  ct_process_close(&tracer->process, false);
  ct_mappings_free(&tracer->code->mappings);
  free(tracer->code);
  free(tracer->wanted.hidden);
  ct_watch_free(tracer->watch);
  free(tracer);
}

/* Under the lock. */
static void
unlink_tracer(struct ct_itrace *all, const struct ct_tracer *tracer)
{
  struct ct_tracer **at = &all->first;
  while (*at != NULL && *at != tracer) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    *at = tracer->next;
  }
}

void
ct_itrace_has_one_less(struct ct_itrace *all)
{
  if (--all->running == 0 && eventfd_write(all->done_fd, 1) != 0) {
    return; /* it has been reported before */
  }
}

/* One whose thread has not been started, or has failed to begin: *why it is not traced, if anybody is to know. */
static void
drop_tracer(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  pthread_mutex_lock(&all->lock);
  unlink_tracer(all, tracer);
  ct_itrace_has_one_less(all);
  pthread_mutex_unlock(&all->lock);
  free_tracer(tracer);
}

/* What others have to know of a thread that is not traced any longer. Under the lock. */
static void
add_summary(struct ct_itrace *all, const struct ct_tracer *tracer)
{
  const struct ct_itrace_summary *s = &tracer->summary;
  struct ct_itrace_summary *sum = &all->summary;
  bool is_leader = tracer->tid == all->pid && tracer->is_reaped;
  if (s->has_ended && (is_leader || !ct_itrace_is_many(all))) {
    sum->has_ended = true;
    sum->wait_status = s->wait_status;
  }
  sum->units += tracer->stats.units;
  sum->instructions += tracer->stats.insns;
  sum->source_bytes += tracer->stats.source_bytes;
  sum->code_bytes += tracer->stats.code_bytes;
  sum->flushes += tracer->stats.flushes;
  sum->shared_units += tracer->stats.shared;
  sum->requests += s->requests;
  sum->steps += s->steps;
  sum->signals += s->signals;
  sum->record_bytes += s->record_bytes;
  sum->lost_bytes += s->lost_bytes;
  sum->file_bytes += s->file_bytes;
  sum->recorded += s->recorded;
  sum->left += s->left;
  sum->threads++;
  if (tracer->watch != NULL) {
    uint64_t places = ct_watch_places(tracer->watch);
    sum->stretches += ct_watch_stretches(tracer->watch);
    sum->places = places > sum->places ? places : sum->places;
  }
  if (tracer->is_filtered) {
    sum->incomplete++;
    ct_fail(&all->unmade, CT_EUNSUPPORTED,
            "thread %d went under a seccomp filter, or Syscall User Dispatch, which may forbid what recording needs",
            (int)tracer->tid);
  } else if (tracer->code_of_end != 0 && tracer->number == 0 && !all->is_calls) {
    all->code_of_end = tracer->code_of_end;
    all->diag = tracer->diag;
  } else if (tracer->code_of_end != 0) {
    sum->incomplete++;
    all->unmade = tracer->diag;
  }
}

/* The thread's mappings of ours stay until another one takes them out. Under the lock. */
static void
leave_mappings(struct ct_itrace *all, const struct ct_tracer *tracer)
{
  for (int i = 0; i < 2; i++) {
    struct ct_itrace_space *left = tracer->spaces[i].shared != 0 ? malloc(sizeof(*left)) : NULL;
    if (left != NULL) {
      *left = tracer->spaces[i];
      left->image = tracer->image;
      left->next = all->gone;
      all->gone = left;
    }
  }
}

/* To take it out each thread would have to wait for its turn. */
bool
ct_itrace_leaves_spaces(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  pthread_mutex_lock(&all->lock);
  bool leaves = all->is_ending && all->options.all_threads;
  all->has_left_spaces |= leaves;
  pthread_mutex_unlock(&all->lock);
  return leaves;
}

static void
end_tracer(struct ct_tracer *tracer)
{
  struct ct_itrace *all = tracer->all;
  if (tracer->code_of_end != 0 && tracer->state != CT_TRACER_DONE) {
    ct_tracer_give_up(tracer);
  }
  atomic_store_explicit(&tracer->stop, 2, memory_order_release);
  atomic_store_explicit(&tracer->event, 0, memory_order_release);
  syscall(SYS_futex, &tracer->event, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  if (ct_itrace_is_many(all) && tracer->summary.has_ended) {
    pthread_mutex_lock(&all->lock);
    leave_mappings(all, tracer);
    pthread_mutex_unlock(&all->lock);
  }
  int code = ct_tracer_finish(tracer);
  tracer->code_of_end = tracer->code_of_end != 0 ? tracer->code_of_end : code;
  pthread_mutex_lock(&all->lock);
  add_summary(all, tracer);
  if (all->is_calls) {
    ct_calls_done(tracer);
  }
  tracer->is_done = true;
  ct_itrace_has_one_less(all);
  void (*ended)(void *context) = all->ended;
  void *context = all->context;
  pthread_mutex_unlock(&all->lock);
  if (ended != NULL) {
    ended(context);
  }
}

static void
join(struct ct_tracer *tracer)
{
  pthread_join(tracer->thread, NULL);
  if (tracer->has_waiter) { /* the thread is not ours any more, or has ended: there is nothing to wait for */
    atomic_store_explicit(&tracer->event, 0, memory_order_release);
    syscall(SYS_futex, &tracer->event, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    if (tracer->all->is_calls) { /* of a child of ours: that can be waited for, whoever traces it, and may run on */
      pthread_cancel(tracer->waiter);
    }
    pthread_join(tracer->waiter, NULL);
  }
  free_tracer(tracer);
}

/*
 * Its waiter may still wait, where another tracer goes on with the thread's id after an exec: until that one's next
 * stop, and the one who joins may be the one who has to make it come about.
 */
static bool
has_no_waiter(const struct ct_tracer *tracer)
{
  return !tracer->has_waiter || tracer->all->is_calls ||
         atomic_load_explicit(&tracer->waiter_ends, memory_order_acquire);
}

void
ct_itrace_join(struct ct_itrace *all, bool waits)
{
  for (;;) {
    pthread_mutex_lock(&all->lock);
    struct ct_tracer *tracer = all->first;
    while (tracer != NULL && (!tracer->has_thread || (!waits && !(tracer->is_done && has_no_waiter(tracer))))) {
      tracer = tracer->next;
    }
    bool is_done = tracer != NULL && tracer->is_done;
    if (is_done) {
      unlink_tracer(all, tracer);
    }
    pthread_mutex_unlock(&all->lock);
    if (tracer == NULL) {
      return;
    }
    if (is_done) {
      join(tracer);
    } else { /* the others may wait for it meanwhile */
      struct timespec wait = {0, LOOK_NS};
      nanosleep(&wait, NULL);
    }
  }
}

/* ---- the first one, and threads that are there ---- */

static void
has_begun(struct ct_tracer *tracer, int code)
{
  tracer->code_of_end = code;
  atomic_store_explicit(&tracer->begun, code == 0 ? 1 : 2, memory_order_release); /* pairs with await_begin */
  if (code != 0) { /* else it has been said, and whoever waits may free it */
    ct_tracer_has_taken(tracer);
  }
  syscall(SYS_futex, &tracer->begun, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* While its thread does not stop, the caller may have had enough of it. */
static uint32_t
await_begin(struct ct_tracer *tracer)
{
  const struct ct_itrace_options *options = &tracer->all->options;
  uint32_t begun;
  while ((begun = atomic_load_explicit(&tracer->begun, memory_order_acquire)) == 0) {
    struct timespec wait = {0, ASK_NS};
    syscall(SYS_futex, &tracer->begun, FUTEX_WAIT_PRIVATE, 0, &wait, NULL, 0);
    if (!tracer->is_found && options->enough != NULL && options->enough(options->enough_context)) {
      atomic_store_explicit(&tracer->stop, 1, memory_order_release);
    }
  }
  return begun;
}

static int
begin_tracer(struct ct_tracer *tracer)
{
  bool is_there = tracer->all->options.pid != 0 || tracer->all->is_calls;
  int code = is_there ? ct_tracer_begin_thread(tracer) : ct_tracer_begin_program(tracer);
  if (tracer->number == 0 && !tracer->all->is_calls) {
    tracer->all->pid = tracer->process.pid;
  }
  if (code != 0) {
    return code;
  }
  code = ct_tracer_make(tracer);
  if (code != 0) {
    goto give_up;
  }
  code = ct_tracer_enter(tracer);
  if (code == 0) {
    return 0;
  }
give_up:
  ct_tracer_give_up(tracer);
  return code;
}

/* The process was killed before the call began, and we have taken its end: nobody else can. */
static void
note_end_before_begin(const struct ct_tracer *tracer, int code)
{
  struct ct_itrace *all = tracer->all;
  if (code != 0 && all->is_calls && tracer->process.dead) {
    pthread_mutex_lock(&all->lock);
    all->summary.has_ended = true;
    all->summary.wait_status = tracer->process.wait_status;
    pthread_mutex_unlock(&all->lock);
  }
}

static void *
tracer_main(void *context)
{
  struct ct_tracer *tracer = context;
  int code = begin_tracer(tracer);
  note_end_before_begin(tracer, code);
  has_begun(tracer, code);
  if (code == 0) {
    ct_tracer_loop(tracer);
    end_tracer(tracer);
  }
  return NULL;
}

static struct ct_tracer *
start(struct ct_itrace *all, pid_t tid, const struct ct_wanted_call *call, bool is_found, struct ct_diag *diag)
{
  struct ct_tracer *tracer = add_tracer(all, tid, call, is_found);
  if (tracer == NULL) {
    if (call != NULL) {
      free(call->hidden);
    }
    ct_fail(diag, CT_ENOMEM, "out of memory");
    return NULL;
  }
  if (ct_worker_create(&tracer->thread, NULL, tracer_main, tracer) != 0) {
    drop_tracer(tracer);
    ct_fail(diag, CT_ENOMEM, "cannot start a thread");
    return NULL;
  }
  return tracer;
}

struct ct_tracer *
ct_itrace_start(struct ct_itrace *all, pid_t tid, struct ct_diag *diag)
{
  return start(all, tid, NULL, true, diag);
}

int
ct_itrace_started(struct ct_tracer *tracer, struct ct_diag *diag)
{
  if (await_begin(tracer) == 2) {
    pthread_join(tracer->thread, NULL);
    int code = tracer->code_of_end;
    ct_fail(diag, code, "%s", tracer->diag.text);
    drop_tracer(tracer);
    return code;
  }
  pthread_mutex_lock(&tracer->all->lock);
  tracer->has_thread = true;
  pthread_mutex_unlock(&tracer->all->lock);
  return 0;
}

int
ct_itrace_begin_tracer(struct ct_itrace *all, pid_t tid, const struct ct_wanted_call *call, struct ct_diag *diag)
{
  struct ct_tracer *tracer = start(all, tid, call, false, diag);
  return tracer == NULL ? CT_ENOMEM : ct_itrace_started(tracer, diag);
}

bool
ct_itrace_is_known(struct ct_itrace *all, pid_t tid)
{
  pthread_mutex_lock(&all->lock);
  bool found = tracer_of(all, tid) != NULL;
  pthread_mutex_unlock(&all->lock);
  return found;
}

void
ct_itrace_not_recorded(struct ct_itrace *all, const struct ct_diag *why)
{
  pthread_mutex_lock(&all->lock);
  all->summary.unrecorded++;
  if (why != NULL) {
    all->unmade = *why;
  }
  pthread_mutex_unlock(&all->lock);
}

void
ct_itrace_untraced(struct ct_itrace *all)
{
  struct ct_diag why = {"a thread was made with CLONE_UNTRACED, which no tracer learns of"};
  ct_itrace_not_recorded(all, &why);
}

/* ---- new threads ---- */

static bool
is_thread_of(pid_t pid, pid_t tid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
  return access(path, F_OK) == 0;
}

/* The thread is where it waits for its tracer, with its registers as it is about to store them. */
static int
park(struct ct_tracer *tracer)
{
  struct user_regs_struct regs;
  struct ct_itrace_slots *slots = tracer->space->slots;
  if (ct_traced_regs(tracer->tid, &regs) != 0 || ct_traced_mask(tracer->tid, &tracer->mask) != 0) {
    return CT_ESRCH;
  }
  struct user_regs_struct parked = regs;
  ct_traced_before_syscall(&parked);
  slots->target = parked.rip;
  slots->exit = CT_ITRACE_EXIT_MISS;
  if (ct_tracer_records(tracer)) {
    slots->app_r10 = parked.r10;
    slots->app_r11 = parked.r11;
    parked.r11 = ct_recorder_place(tracer->recorder);
  }
  parked.rip = ct_code_cache_wait(tracer->space->cache);
  parked.orig_rax = ~0ull;
  slots->parked_mask = tracer->mask;
  slots->is_parked = 1;
  tracer->is_parked = true;
  tracer->state = CT_TRACER_TRANSLATED;
  if (ct_traced_set_regs(tracer->tid, &parked) != 0 || ct_traced_set_mask(tracer->tid, ALL_SIGNALS) != 0 ||
      ct_traced_detach(tracer->tid, 0) != 0) {
    return CT_ESRCH; /* it has been killed */
  }
  return 0;
}

static void *
adopted_main(void *context)
{
  struct ct_tracer *tracer = context;
  if (await_begin(tracer) == 2) {
    return NULL;
  }
  tracer->code_of_end = ct_traced_seize(tracer->tid, &tracer->diag);
  if (tracer->code_of_end == 0) {
    ct_tracer_loop(tracer);
  } else if (tracer->code_of_end == CT_ESRCH) { /* it has been killed */
    tracer->state = CT_TRACER_DONE;
    tracer->summary.has_ended = true;
    tracer->code_of_end = 0;
  }
  end_tracer(tracer);
  return NULL;
}

/* A thread that waits to be told that it has begun, and what it is to follow. */
static int
begin_adopted(struct ct_tracer *tracer, struct ct_tracer *maker)
{
  int code = ct_process_open(maker->process.pid, &tracer->process, &tracer->diag);
  if (code != 0) {
    return code;
  }
  if (ct_worker_create(&tracer->thread, NULL, adopted_main, tracer) != 0) {
    return ct_fail(&tracer->diag, CT_ENOMEM, "cannot start a thread");
  }
  tracer->maker = maker;
  code = ct_tracer_make(tracer);
  tracer->maker = NULL;
  if (code == 0) {
    code = park(tracer);
  }
  bool has_begun = code == 0;
  pthread_mutex_lock(&tracer->all->lock);
  tracer->has_thread = has_begun;
  pthread_mutex_unlock(&tracer->all->lock);
  atomic_store_explicit(&tracer->begun, has_begun ? 1 : 2, memory_order_release); /* pairs with adopted_main */
  syscall(SYS_futex, &tracer->begun, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  if (!has_begun) {
    pthread_join(tracer->thread, NULL);
  }
  return code;
}

/*
 * It may have been found among the threads that are there (others.c) before its maker's tracer was notified of it.
 * Nobody else is to take hold of it when it is released to be taken over; who is about to now, cannot, and gives it up.
 * False: that one waits in the kernel, as during an exec.
 */
static bool
supersede(struct ct_itrace *all, pid_t child)
{
  struct timespec wait = {0, LOOK_NS};
  bool is_taking = true;
  for (uint64_t waited = 0; is_taking && waited < SUPERSEDE_NS; waited += LOOK_NS) {
    pthread_mutex_lock(&all->lock);
    is_taking = false;
    for (struct ct_tracer *other = all->first; other != NULL; other = other->next) {
      if (other->tid == child && other->is_found && !other->is_done) {
        other->is_superseded = true;
        is_taking |= other->is_taking && atomic_load_explicit(&other->taken, memory_order_acquire) == 0;
      }
    }
    pthread_mutex_unlock(&all->lock);
    if (is_taking) {
      nanosleep(&wait, NULL);
    }
  }
  return !is_taking;
}

/* The child has stopped, and is traced by the calling thread; afterwards, if that went well, by one of its own. */
static int
hand_over(struct ct_tracer *maker, pid_t child, struct ct_diag *diag)
{
  struct ct_itrace *all = maker->all;
  ct_itrace_join(all, false);
  if (!supersede(all, child)) {
    return ct_fail(diag, CT_ETIMEOUT, "a thread was made during an exec");
  }
  struct ct_tracer *tracer = add_tracer(all, child, NULL, false);
  if (tracer == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory, or the recording was ending");
  }
  tracer->image = maker->image;
  int code = begin_adopted(tracer, maker);
  if (code != 0) {
    ct_fail(diag, code, "%s", tracer->diag.text);
    drop_tracer(tracer);
  }
  return code;
}

bool
ct_itrace_child(struct ct_tracer *tracer, pid_t child, int signal)
{
  struct ct_diag diag = {""};
  bool is_thread = is_thread_of(tracer->process.pid, child);
  if (is_thread && tracer->all->options.all_threads) {
    int code = signal == 0 ? hand_over(tracer, child, &diag)
                           : ct_fail(&diag, CT_EUNSUPPORTED, "a signal came before its first instruction");
    if (code == 0) {
      return true;
    }
    if (code == CT_ECANCELED) {
      ct_fail(&diag, CT_ETIMEOUT, "the recording was ended before it had begun with them");
    }
    if (code != CT_ESRCH) { /* else it was killed before its first instruction: there is nothing to record */
      ct_itrace_not_recorded(tracer->all, &diag);
    }
  } else if (is_thread) {
    ct_itrace_not_recorded(tracer->all, NULL);
  }
  return ct_traced_detach(child, signal) == 0;
}

/* ---- code that changes ---- */

static bool
covers(const struct ct_tracer *tracer, uint64_t start, uint64_t end)
{
  bool found = false;
  for (int i = 0; i < 2 && tracer->is_made; i++) {
    found |= tracer->spaces[i].cache != NULL && ct_code_cache_covers(tracer->spaces[i].cache, start, end);
  }
  return found;
}

bool
ct_itrace_covers(struct ct_itrace *all, uint64_t start, uint64_t end)
{
  bool found = false;
  pthread_mutex_lock(&all->lock);
  for (const struct ct_tracer *tracer = all->first; tracer != NULL && !found; tracer = tracer->next) {
    found = covers(tracer, start, end);
  }
  pthread_mutex_unlock(&all->lock);
  return found;
}

/* Does any other thread still have such translations? Then its tracer is asked to forget them. */
static bool
ask_others(struct ct_tracer *asker, uint64_t start, uint64_t end, bool is_first)
{
  bool is_open = false;
  pthread_mutex_lock(&asker->all->lock);
  for (struct ct_tracer *tracer = asker->all->first; tracer != NULL; tracer = tracer->next) {
    if (tracer == asker || tracer->is_done || !tracer->is_made) {
      continue;
    }
    if (is_first && end > start && covers(tracer, start, end)) {
      atomic_fetch_add_explicit(&tracer->flush_asked, 1, memory_order_release);
      ct_tracer_ring(tracer);
    }
    is_open |= atomic_load_explicit(&tracer->flush_asked, memory_order_relaxed) !=
               atomic_load_explicit(&tracer->flush_made, memory_order_acquire);
  }
  pthread_mutex_unlock(&asker->all->lock);
  return is_open;
}

void
ct_itrace_changed(struct ct_tracer *tracer, uint64_t start, uint64_t end)
{
  struct ct_itrace *all = tracer->all;
  if (!ct_itrace_is_many(all)) {
    return;
  }
  atomic_fetch_add_explicit(&all->changes, 1, memory_order_acq_rel);
  struct timespec wait = {0, LOOK_NS};
  bool is_open = ask_others(tracer, start, end, true);
  for (uint64_t waited = 0; is_open && waited < CHANGE_NS; waited += LOOK_NS) {
    nanosleep(&wait, NULL);
    ct_tracer_serve_flush(tracer); /* others may wait for this one, which has stopped */
    is_open = ask_others(tracer, start, end, false);
  }
}

/* ---- the interface ---- */

static size_t
min_size(size_t a, size_t b)
{
  return a < b ? a : b;
}

void
ct_itrace_free(struct ct_itrace *all)
{
  while (all->gone != NULL) {
    struct ct_itrace_space *space = all->gone;
    all->gone = space->next;
    free(space);
  }
  if (all->directory_fd >= 0) {
    close(all->directory_fd);
  }
  if (all->done_fd >= 0) {
    close(all->done_fd);
  }
  ct_workers_unguard();
  ct_shared_units_free(all->shared_units);
  free(all);
}

struct ct_itrace *
ct_itrace_new(const struct ct_itrace_options *options, struct ct_diag *diag)
{
  struct ct_itrace *all = calloc(1, sizeof(*all));
  if (all == NULL) {
    ct_fail(diag, CT_ENOMEM, "out of memory");
    return NULL;
  }
  ct_workers_guard(); /* a thread whose tracer does not run goes on unrecorded */
  memcpy(&all->options, options, min_size(options->struct_size, sizeof(*options)));
  pthread_mutex_init(&all->lock, NULL);
  all->last_turn = &all->first_turn;
  all->shared_units = ct_itrace_is_many(all) ? ct_shared_units_create() : NULL;
  all->pid = all->options.pid;
  all->done_last = &all->done_first;
  all->done_fd = eventfd(0, EFD_CLOEXEC);
  all->directory_fd = all->options.directory != NULL ? ct_steps_folder_hold(all->options.directory) : -1;
  if (all->done_fd < 0) {
    ct_fail(diag, CT_EIO, "cannot make an eventfd: %s", strerror(errno));
    ct_itrace_free(all);
    return NULL;
  }
  return all;
}

int
ct_itrace_begin(const struct ct_itrace_options *options, struct ct_itrace **out, int *exec_errno, struct ct_diag *diag)
{
  struct ct_itrace *all = ct_itrace_new(options, diag);
  if (all == NULL) {
    return CT_ENOMEM;
  }
  if (all->options.pid != 0) {
    ct_itrace_clean_before(all->options.pid);
  }
  bool is_crowd = ct_itrace_is_many(all) && all->options.pid != 0,
       has_watches = all->options.function || all->options.from;
  all->crowd = is_crowd ? ct_itrace_count_threads(all->options.pid) * (has_watches ? 2 : 1) : 0;
  int code = ct_itrace_begin_tracer(all, all->options.tid, NULL, diag);
  if (exec_errno != NULL) {
    *exec_errno = all->exec_errno;
  }
  if (code != 0) {
    ct_itrace_free(all);
    return code;
  }
  if (is_crowd) {
    ct_itrace_find_others(all);
  }
  *out = all;
  return 0;
}

pid_t
ct_itrace_pid(const struct ct_itrace *all)
{
  return all->pid;
}

int
ct_itrace_fd(const struct ct_itrace *all)
{
  return all->done_fd;
}

void
ct_itrace_ask_all(struct ct_itrace *all)
{
  for (struct ct_tracer *tracer = all->first; tracer != NULL; tracer = tracer->next) {
    uint32_t none = 0;
    atomic_compare_exchange_strong_explicit(&tracer->stop, &none, 1, memory_order_release, memory_order_relaxed);
    ct_tracer_ring(tracer);
  }
}

int
ct_itrace_end(struct ct_itrace *all, struct ct_itrace_summary *summary, struct ct_diag *diag)
{
  pthread_mutex_lock(&all->lock);
  all->is_ending = true;
  ct_itrace_ask_all(all);
  pthread_mutex_unlock(&all->lock);
  ct_itrace_join_others(all);
  ct_itrace_join(all, true);
  if (all->has_left_spaces) {
    struct ct_itrace_leftovers leftovers; /* what cannot be taken out now is in nobody's way: contrail clean */
    ct_itrace_clean_own(all->pid, &leftovers, NULL);
  }
  snprintf(all->summary.why, sizeof(all->summary.why), "%.255s", all->unmade.text);
  if (summary != NULL) {
    size_t size = min_size(summary->struct_size, sizeof(*summary));
    all->summary.struct_size = size;
    memcpy(summary, &all->summary, size);
  }
  int code = all->code_of_end;
  if (code != 0) {
    ct_fail(diag, code, "%s", all->diag.text);
  }
  ct_itrace_free(all);
  return code;
}
