/* SPDX-License-Identifier: MIT */
/*
 * The drain: one thread of the controller that empties the rings.
 *
 * Each round it collects the segments that are FULL, oldest activation first, takes each with a compare-and-swap to
 * DRAINING (a producer without a free segment may take it first), encodes its events and gives it back. Then it looks
 * into the ACTIVE segments as far as they are written. Order within a thread is kept by the position that each segment
 * has among its thread's (thread_seq); a position that never comes was taken by a producer, and its events are in the
 * slot's counters.
 *
 * An event is whole when its tag is the segment's. In an ACTIVE segment reading stops at the first slot that is not;
 * what was read is believed only if the segment's state word is still the same afterwards. A FULL one waits for such a
 * slot, which a signal handler has interrupted (segments.c).
 *
 * After the target's death the ACTIVE segments are read to their last whole event: nothing is missed.
 */
#include "drain/drain.h"
#include "base/worker.h"
#include "drain/drain_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define YIELD_NS     (5 * 1000 * 1000) /* of work without a pause, then one of ... */
#define YIELD_FOR_NS 50000
#define RULES_NS     (2 * 1000 * 1000) /* between checks of calls that go on */
#define PUBLISH_NS   (50 * 1000 * 1000)
#define POLL_RUN     16
#define THREADS_MAX  (1u << 17)          /* in a trace: each has a folder and some memory */
#define FRAMES_MAX   256                 /* that were open when the recording began */
#define EARLY_NS     (100 * 1000 * 1000) /* so long a thread may take to its first event */
#define LOST_MAX     (1ull << 48)        /* more is no count of events */

uint64_t
drain_now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t
read_tsc(void)
{
  return __builtin_ia32_rdtsc();
}

int
ct_drain_create(struct ct_trace_writer *writer, pthread_mutex_t *lock, uint32_t max_depth,
                const struct ct_pause_request *pause_request, struct ct_drain **out)
{
  struct ct_drain *drain = calloc(1, sizeof(*drain));
  if (drain == NULL) {
    return CT_ENOMEM;
  }
  void *modes =
      mmap(NULL, (size_t)CT_FN_MAX + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (modes == MAP_FAILED) {
    free(drain);
    return CT_ENOMEM;
  }
  drain->modes = modes;
  drain->writer = writer;
  drain->lock = lock;
  drain->pause_request = pause_request;
  drain->max_depth = max_depth;
  drain->sampling.options.mem_fd = -1;
  drain->retire_at = DRAIN_RETIRE_AT;
  *out = drain;
  return 0;
}

void
ct_drain_function_mode(struct ct_drain *drain, uint32_t fn, uint8_t mode)
{
  drain->modes[fn] = mode;
  drain_counts_hooked(&drain->counts, fn);
  /* release: pairs with the acquire in encode_events; no event of fn exists before its hook does */
  atomic_store_explicit(&drain->function_count, fn + 1, memory_order_release);
}

/* A new thread of the target, without a slot; NULL when there is no memory or no file for it. */
static struct drain_thread *
make_thread(struct ct_drain *drain, uint32_t tid)
{
  if (drain->info_count >= drain->retire_at) {
    ct_drain_retire_threads(drain);
  }
  drain->no_thread = CT_DROP_NO_THREAD;
  if (drain->info_count == THREADS_MAX) {
    return NULL;
  }
  drain->no_thread = CT_DROP_MEMORY; /* the reason why there is none below */
  if (drain->info_count == drain->info_capacity) {
    size_t grown = drain->info_capacity == 0 ? 64 : drain->info_capacity * 2;
    struct ct_drain_thread_info *infos = realloc(drain->infos, grown * sizeof(*infos));
    if (infos == NULL) {
      return NULL;
    }
    drain->infos = infos;
    struct ct_encoder **encoders = realloc(drain->encoders, grown * sizeof(*encoders));
    if (encoders == NULL) {
      return NULL;
    }
    drain->encoders = encoders;
    drain->info_capacity = grown;
  }
  struct drain_thread *thread = calloc(1, sizeof(*thread));
  if (thread == NULL) {
    return NULL;
  }
  if (ct_trace_writer_thread(drain->writer, drain->next_index, tid, (uint32_t)drain->pid, &thread->encoder) != 0 ||
      thread->encoder == NULL) {
    free(thread);
    return NULL;
  }
  drain->no_thread = CT_DROP_NO_THREAD;
  thread->tid = tid;
  thread->totals_fd = -1;
  thread->outside = (uint32_t)ct_thread_ids_outside(&drain->ids, (pid_t)tid);
  thread->since_tsc = drain->alive_tsc;
  thread->polled_seq = NO_SEGMENT_SEQ;
  thread->held_seq = NO_SEGMENT_SEQ;
  thread->stack_length = UINT32_MAX;
  thread->max_depth = drain->max_depth;
  thread->rules = drain->rules;
  thread->index = drain->next_index;
  drain->encoders[drain->info_count] = thread->encoder;
  thread->info = (uint32_t)drain->info_count++;
  drain->infos[thread->info] = (struct ct_drain_thread_info){.index = drain->next_index++, .tid = tid};
  return thread;
}

/* The frames that the nth of the threads with stacks had. */
static void
open_frames(struct ct_drain *drain, struct drain_thread *thread, size_t n)
{
  struct ct_drain_frame frames[FRAMES_MAX];
  size_t count = drain->stacks.frames(drain->stacks.context, n, frames, FRAMES_MAX), known = 0;
  for (size_t i = 0; i < count; i++) {
    if (frames[i].fn < atomic_load_explicit(&drain->function_count, memory_order_acquire)) {
      frames[known++] = frames[i];
    }
  }
  drain_thread_open(thread, drain->stacks.tsc, frames, known);
}

/* A thread of that id has its first event: its stream may have been begun already. */
static struct drain_thread *
begin_thread(struct ct_drain *drain, uint32_t tid)
{
  size_t n = 0;
  while (n < drain->stacks.count && (drain->stacks.tids[n] != tid || drain->early[n].taken)) {
    n++;
  }
  struct drain_thread *thread = n < drain->stacks.count ? drain->early[n].thread : NULL;
  bool is_new = thread == NULL;
  if (is_new) {
    thread = make_thread(drain, tid);
  }
  if (n < drain->stacks.count && thread != NULL) {
    drain->early[n] = (struct early){.taken = true};
    if (is_new) {
      open_frames(drain, thread, n);
    }
  }
  return thread;
}

/* A new thread in a slot; NULL when there is no memory or no file for it. */
static struct drain_thread *
new_thread(struct ct_drain *drain, uint32_t slot)
{
  uint32_t tid = drain->slots[slot].tid;
  if (drain->kept != NULL && drain->kept->tid == tid) {
    struct drain_thread *kept = drain->kept;
    drain->kept = NULL;
    kept->generation = drain->slots[slot].generation;
    kept->next_seq = 0;
    kept->polled_seq = NO_SEGMENT_SEQ;
    kept->polled = kept->polled_events = 0;
    kept->held_seq = NO_SEGMENT_SEQ;
    kept->has_base = false;
    kept->stack_length = UINT32_MAX;
    kept->stack_count = 0;
    kept->has_copy = false;
    kept->has_gone = false;
    free(kept->flows);
    kept->flows = NULL;
    return kept;
  }
  struct drain_thread *thread = begin_thread(drain, tid);
  if (thread != NULL) {
    thread->generation = drain->slots[slot].generation;
  }
  return thread;
}

/* Of events, as the target has counted them: sums of a few thousand of these do not overflow. */
uint64_t
drain_lost_count(const uint64_t *count)
{
  uint64_t value = __atomic_load_n(count, __ATOMIC_RELAXED);
  return value < LOST_MAX ? value : 0;
}

void
drain_drop(struct ct_drain *drain, const struct drain_thread *thread, enum ct_drop reason, uint64_t count)
{
  drain->stats.dropped_by[reason] += count;
  if (thread != NULL) {
    drain->infos[thread->info].dropped += count;
  }
  if (count != 0 && drain->rules != NULL) {
    drain_ordinals_lost(&drain->rules->ordinals, thread != NULL ? drain_thread_last(thread) : 0);
  }
}

/* Counts what the slot's counters say was lost since they were last looked at; returns how much. */
static uint64_t
take_lost(struct ct_drain *drain, const struct drain_thread *thread, uint32_t slot)
{
  const struct ct_slot *at = &drain->slots[slot];
  const uint64_t *const counts[SLOT_DROPS] = {[CT_DROP_OVERWRITTEN] = &at->dropped_overwritten,
                                              [CT_DROP_NO_SEGMENT] = &at->dropped_no_segment,
                                              [CT_DROP_NO_STACK] = &at->dropped_unsupported};
  uint64_t sum = 0;
  for (unsigned reason = 0; reason < SLOT_DROPS; reason++) {
    uint64_t lost = drain_lost_count(counts[reason]), *reported = &drain->slot_reported[slot][reason];
    if (lost > *reported) {
      bool by_disk = reason != CT_DROP_NO_STACK && ct_trace_writer_waits(drain->writer);
      drain_see_late(drain);
      uint64_t late = by_disk ? 0 : drain_late_of(drain, slot, reason, *reported, lost);
      drain_drop(drain, thread, CT_DROP_LATE, late);
      drain_drop(drain, thread, by_disk ? CT_DROP_DISK_SLOW : (enum ct_drop)reason, lost - *reported - late);
      sum += lost - *reported;
      *reported = lost;
    }
  }
  return sum;
}

/* Brings what the slot's counters say was lost into the stream. */
void
drain_report_lost(struct ct_drain *drain, struct drain_thread *thread, uint32_t slot, uint64_t tsc)
{
  uint64_t count = take_lost(drain, thread, slot);
  if (count != 0) {
    ct_encode_lost(thread->encoder, tsc, count);
  }
}

static void
close_stream(struct ct_drain *drain, struct drain_thread *thread)
{
  ct_encoder_close(thread->encoder);
  if (thread->rolls != NULL) {
    drain_rolls_end(thread->rolls, thread->rules->windows, true);
  }
  drain_close_totals(drain, thread);
  free(thread->rolls);
  free(thread->flows);
  free(thread);
}

/* until: no calls are after that. ended: what to take for its end if that is not known, 0: the trace's. */
static void
end_stream(struct ct_drain *drain, struct drain_thread *thread, uint64_t until, uint64_t ended)
{
  drain_read_totals(drain, thread);
  struct ct_drain_thread_info *info = &drain->infos[thread->info];
  bool alive = until != UINT64_MAX && drain_lives(drain, thread);
  uint64_t exit = drain_switches_end(drain->switches, thread, until, alive);
  info->end_tsc = exit != 0 ? exit : alive ? 0 : ended;
  info->end_is_exact = exit != 0;
  drain->last_clock = thread->last_clock > drain->last_clock ? thread->last_clock : drain->last_clock;
  close_stream(drain, thread);
}

static void
end_thread(struct ct_drain *drain, uint32_t slot, uint64_t until, uint64_t ended)
{
  struct drain_thread *thread = drain->threads[slot];
  drain_counts_take_slot(drain, slot);
  if (thread != NULL) {
    drain_read_slot(drain, slot, thread);
  }
  drain->threads[slot] = NULL;
  if (thread != NULL) {
    end_stream(drain, thread, until, ended);
  }
}

/* The streams of threads that have had no event so far: what they wait in is all that there is to report of them. */
static void
begin_early(struct ct_drain *drain)
{
  for (size_t n = 0; n < drain->stacks.count && !drain->early_begun; n++) {
    struct early *early = &drain->early[n];
    if (!early->taken && early->thread == NULL && (early->thread = make_thread(drain, drain->stacks.tids[n])) != NULL) {
      open_frames(drain, early->thread, n);
      drain_read_name(drain, early->thread);
    }
  }
  drain->early_begun = true;
}

/* until UINT64_MAX: of those that have ended; else of all. */
static void
end_early(struct ct_drain *drain, uint64_t until, uint64_t ended)
{
  for (size_t n = 0; n < drain->stacks.count; n++) {
    struct early *early = &drain->early[n];
    bool is_over = until != UINT64_MAX || !ct_thread_ids_live(&drain->ids, (pid_t)drain->stacks.tids[n]);
    if (!early->taken && early->thread != NULL && is_over) {
      end_stream(drain, early->thread, until, ended);
      *early = (struct early){.taken = true};
    }
  }
}

void
ct_drain_stacks(struct ct_drain *drain, const struct ct_drain_stacks *stacks)
{
  struct early *early = calloc(stacks->count + 1, sizeof(*early));
  if (early == NULL) {
    return;
  }
  pthread_mutex_lock(drain->lock);
  drain->stacks = *stacks;
  drain->early = early;
  drain->early_begun = false;
  pthread_mutex_unlock(drain->lock);
}

/* The thread whose segment this is, made if it is new; NULL when the segment is of a generation that has passed. */
struct drain_thread *
drain_thread_of(struct ct_drain *drain, uint32_t slot, uint32_t generation)
{
  struct drain_thread *thread = drain->threads[slot];
  if (thread != NULL && thread->generation == generation) {
    return thread;
  }
  if (thread != NULL) {
    if ((int32_t)(generation - thread->generation) < 0) {
      return NULL;
    }
    end_thread(drain, slot, UINT64_MAX, drain->alive_tsc);
    thread = new_thread(drain, slot);
  } else {
    thread = new_thread(drain, slot);
  }
  if (thread != NULL) {
    thread->generation = generation;
    thread->detail_seq = 0;
    thread->waiting_details.count = 0;
    thread->details = drain->details.count != 0 ? &drain->details : NULL;
    drain->threads[slot] = thread;
    drain_read_name(drain, thread);
    drain_read_totals(drain, thread);
  }
  return thread;
}

/*
 * Takes a slot whose thread has died out of use: true when it is ours to clear. A thread that took the slot over in
 * the meantime has raised the generation.
 */
static bool
seize_dead_slot(struct ct_drain *drain, uint32_t slot)
{
  uint32_t tid = __atomic_load_n(&drain->tids[slot], __ATOMIC_ACQUIRE);
  if (tid == 0 || tid == UINT32_MAX) {
    return false;
  }
  uint32_t generation = __atomic_load_n(&drain->slots[slot].generation, __ATOMIC_ACQUIRE);
  if (ct_thread_ids_live(&drain->ids, (pid_t)tid) || drain->slots[slot].tid != tid) {
    return false;
  }
  if (!__atomic_compare_exchange_n(&drain->tids[slot], &tid, UINT32_MAX, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    return false;
  }
  if (__atomic_load_n(&drain->slots[slot].generation, __ATOMIC_ACQUIRE) != generation) {
    __atomic_store_n(&drain->tids[slot], tid, __ATOMIC_RELEASE);
    return false;
  }
  return true;
}

/* Gives the slots and segments of threads that have died back. */
static void
reap(struct ct_drain *drain)
{
  static _Thread_local struct candidate all[CT_SEGMENT_MAX];
  static _Thread_local bool dead[CT_SLOT_COUNT];
  static _Thread_local uint32_t sorted[CT_SLOT_COUNT];
  bool any = false;
  uint64_t now = read_tsc(), begin = drain_used_ns();
  end_early(drain, UINT64_MAX, drain->alive_tsc);
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    dead[slot] = seize_dead_slot(drain, slot);
    any |= dead[slot];
  }
  drain->reap.took_ns = any ? 0 : drain_used_ns() - begin;
  if (!any) {
    drain->alive_tsc = now;
    __atomic_fetch_add(&drain->ring->reap_passes, 1, __ATOMIC_RELEASE);
    return;
  }
  size_t count = drain_collect(drain, CT_SEG_FULL, all);
  for (size_t i = 0; i < count; i++) {
    if (dead[CT_SEG_SLOT(drain->entries[all[i].index].state) % CT_SLOT_COUNT]) {
      drain_take_full(drain, &all[i], true);
    }
  }
  count = drain_collect(drain, CT_SEG_ACTIVE, all);
  for (size_t i = 0; i < count; i++) {
    if (dead[CT_SEG_SLOT(drain->entries[all[i].index].state) % CT_SLOT_COUNT]) {
      drain_take_dead(drain, &all[i]);
    }
  }
  count = drain_sort_dead(drain, dead, sorted);
  for (size_t i = 0; i < count; i++) {
    uint32_t slot = sorted[i];
    if (drain->threads[slot] != NULL) {
      drain_report_lost(drain, drain->threads[slot], slot, drain_thread_last(drain->threads[slot]));
    }
    end_thread(drain, slot, UINT64_MAX, drain->alive_tsc);
    __atomic_store_n(&drain->tids[slot], 0, __ATOMIC_RELEASE);
    __atomic_fetch_add(&drain->ring->slots_freed, 1, __ATOMIC_RELEASE); /* after the slot: who sees it finds one */
  }
  drain->alive_tsc = now;
  __atomic_fetch_add(&drain->ring->reap_passes, 1, __ATOMIC_RELEASE);
}

static void
flush_old(struct ct_drain *drain, uint64_t ticks_old)
{
  uint64_t now = read_tsc();
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    struct drain_thread *thread = drain->threads[slot];
    if (thread == NULL) {
      continue;
    }
    uint64_t since = ct_encoder_pending_since(thread->encoder);
    if (since != 0 && now > since && now - since > ticks_old) {
      ct_encoder_flush(thread->encoder);
    }
  }
}

/*
 * Peeks into active segments, in turn from where the last peek ended, until a full one has been handed over: with a
 * thousand threads a peek into all of them takes long, and full segments must not wait for it.
 */
static bool
poll_some(struct ct_drain *drain, const struct candidate *all, size_t count)
{
  uint32_t doorbell = __atomic_load_n(&drain->ring->drain_doorbell, __ATOMIC_ACQUIRE);
  bool busy = false;
  for (size_t n = 0; n < count && !ct_pause_requested(drain->pause_request); n++) {
    if (n % POLL_RUN == POLL_RUN - 1 && __atomic_load_n(&drain->ring->drain_doorbell, __ATOMIC_ACQUIRE) != doorbell) {
      return true;
    }
    drain->poll_next = drain->poll_next + 1 < count ? drain->poll_next + 1 : 0;
    size_t found = drain_poll_active(drain, &all[drain->poll_next]);
    busy |= found > CT_SEGMENT_EVENTS / 2;
    drain->idle_rounds = found != 0 ? 0 : drain->idle_rounds;
  }
  return busy;
}

/* One round. Returns true when there was something to do. */
static bool
drain_round(struct ct_drain *drain, bool final)
{
  static _Thread_local struct candidate all[CT_SEGMENT_MAX];
  bool busy = false;
  drain->now = drain_now_ns();
  drain->waits_for_rules = false;
  size_t count = drain_collect(drain, CT_SEG_FULL, all);
  drain->full_count = count;
  for (size_t i = 0; i < count; i++) {
    if (drain->full[all[i].index].seq != all[i].seq) {
      drain->full[all[i].index].seq = all[i].seq;
      drain->full[all[i].index].since = drain->now;
    }
  }
  if (!final) {
    drain_sampling_round(drain, count);
  }
  for (size_t i = 0; i < count && (final || !ct_pause_requested(drain->pause_request)); i++) {
    if (drain_take_full(drain, &all[i], final)) {
      busy = true;
      drain_warm_up(drain, final ? 0 : DRAIN_WARM_MORE);
    }
    if (!final && drain->details.count != 0) { /* a round may be long: what has been read is room again */
      drain_serve_detail(drain);
    }
  }
  if (busy && !final) {
    return true; /* active segments can wait until the full ones are done */
  }
  count = drain_collect(drain, CT_SEG_ACTIVE, all);
  if (final) {
    for (size_t i = 0; i < count; i++) {
      drain_take_dead(drain, &all[i]);
    }
    return busy;
  }
  return poll_some(drain, all, count);
}

/* Ticks of the clock in ns nanoseconds, roughly. */
static uint64_t
ticks_in(uint64_t ns)
{
  static uint64_t per_ms;
  if (per_ms == 0) {
    uint64_t t0 = drain_now_ns(), c0 = read_tsc();
    struct timespec wait = {0, 1000 * 1000};
    nanosleep(&wait, NULL);
    uint64_t t1 = drain_now_ns(), c1 = read_tsc();
    per_ms = (c1 - c0) * 1000000 / (t1 - t0 + 1);
  }
  return per_ms * (ns / 1000000);
}

static void *
drain_main(void *context)
{
  struct ct_drain *drain = context;
  uint64_t ticks_old = ticks_in(BLOCK_AGE_NS);
  uint64_t begun = drain_now_ns(), yielded = 0, named = drain_now_ns(), flushed = 0, published = 0, totalled = 0,
           checked = 0;
  drain_warm_up(drain, DRAIN_WARM_FIRST);
  while (atomic_load_explicit(&drain->stopping, memory_order_acquire) == 0) {
    uint32_t doorbell = __atomic_load_n(&drain->ring->drain_doorbell, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&drain->ring->drain_liveness, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(drain->lock);
    drain_see_late(drain);
    drain->idle_rounds++;
    bool busy = drain_round(drain, false);
    busy |= drain_take_captures(drain);
    drain->idle_rounds = busy ? 0 : drain->idle_rounds;
    drain_serve_detail(drain);
    uint64_t now = drain_now_ns();
    if (now - checked > RULES_NS) {
      drain_check_rules(drain, read_tsc());
      drain_reconcile_details(drain);
      checked = now;
    }
    if (drain_counts_due(drain, now)) {
      drain_counts_take(drain, false);
    }
    if (now - flushed > BLOCK_AGE_NS / 2) {
      flush_old(drain, ticks_old);
      flushed = now;
    }
    if (drain_reap_is_due(drain, now) && !drain->waits_for_rules) {
      reap(drain);
      drain->reap.at_ns = now;
    }
    if (now - named > NAMES_NS) {
      for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
        if (drain->threads[slot] != NULL) {
          drain_read_name(drain, drain->threads[slot]);
        }
      }
      named = now;
    }
    if (now - totalled > drain_totals_ns(drain)) {
      for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
        if (drain->threads[slot] != NULL) {
          drain_read_totals(drain, drain->threads[slot]);
        }
      }
      totalled = now;
    }
    if (!drain->early_begun && now - begun > EARLY_NS) {
      begin_early(drain);
    }
    if (now - published > PUBLISH_NS) {
      drain_publish_numbers(drain);
      published = now;
    }
    pthread_mutex_unlock(drain->lock);
    drain_ring_for_session(drain);
    ct_pause_request_yield(drain->pause_request);
    if (!busy) {
      drain_wait_for_work(drain, doorbell);
    } else if (now - yielded > YIELD_NS) { /* the lock is not fair: who waits for it would never have it */
      struct timespec wait = {0, YIELD_FOR_NS};
      nanosleep(&wait, NULL);
      yielded = now;
    }
  }
  return NULL;
}

static int
start_threads(struct ct_drain *drain)
{
  int code = drain_start_liveness(drain);
  if (code != 0) {
    return code;
  }
  code = ct_worker_create(&drain->thread, NULL, drain_main, drain);
  if (code != 0) {
    drain_stop_liveness(drain);
  }
  return code;
}

int
ct_drain_start(struct ct_drain *drain, const struct ct_ring_parts *parts, uint64_t ring_at, int pid)
{
  drain->ring = parts->header;
  drain->tids = parts->tids;
  drain->slots = parts->slots;
  drain->entries = parts->entries;
  drain->segments = parts->segments;
  drain->segment_count = parts->segment_count;
  drain->pool = parts->captures;
  drain->pid = pid;
  drain->details = (struct drain_details){
      .ring = parts->header,
      .slots = parts->slots,
      .tids = parts->tids,
      .entries = parts->entries + parts->segment_count,
      .segments = parts->segments + (size_t)parts->segment_count * CT_SEGMENT_STRIDE,
      .base = ring_at + parts->segments_offset + (uint64_t)parts->segment_count * CT_SEGMENT_STRIDE,
      .first = parts->segment_count,
      .count = parts->detail_count,
      .form = drain->details.form,
  };
  ct_thread_ids_begin(&drain->ids, pid);
  drain->alive_tsc = read_tsc();
  atomic_store_explicit(&drain->stopping, 0, memory_order_relaxed); /* there are no threads yet */
  memset(drain->full, 0xff, sizeof(drain->full));
  drain_sampling_start(drain);
  drain->switches = drain_switches_open(pid);
  drain_begin_captures(drain);
  drain_counts_begin(drain, parts);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  drain->running = start_threads(drain) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return drain->running ? 0 : CT_ENOMEM;
}

static void
add_switches(struct ct_switch_stats *sum, struct ct_switch_stats more)
{
  sum->source = more.source > sum->source ? more.source : sum->source;
  sum->error = more.error != 0 ? more.error : sum->error;
  sum->is_given_up |= more.is_given_up;
  sum->switches += more.switches;
  sum->lost += more.lost;
}

/* The image that the thread went on to is not recorded: nothing more comes, and what there is has to be in its file. */
static void
end_kept(struct ct_drain *drain)
{
  pthread_mutex_lock(drain->lock);
  if (drain->kept != NULL) {
    close_stream(drain, drain->kept);
    drain->kept = NULL;
  }
  pthread_mutex_unlock(drain->lock);
}

void
ct_drain_stop(struct ct_drain *drain, int exec_tid, uint64_t until)
{
  if (!drain->running) {
    end_kept(drain);
    return;
  }
  atomic_store_explicit(&drain->stopping, 1, memory_order_release);
  drain_wake(drain);
  pthread_join(drain->thread, NULL);
  drain_stop_liveness(drain);
  drain->running = false;
  pthread_mutex_lock(drain->lock);
  drain_round(drain, true);
  drain_check_rules(drain, until);
  drain_counts_take(drain, true);
  drain_counts_end(drain);
  drain_end_captures(drain);
  begin_early(drain);
  end_early(drain, until, exec_tid != 0 ? until : 0);
  drain->stacks.count = 0;
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    struct drain_thread *thread = drain->threads[slot];
    if (thread == NULL) {
      continue;
    }
    drain_report_lost(drain, thread, slot, drain_thread_last(thread));
    if (exec_tid != 0 && thread->tid == (uint32_t)exec_tid) {
      drain_switches_end(drain->switches, thread, until, false);
      ct_encode_exec(thread->encoder, read_tsc());
      drain->threads[slot] = NULL;
      drain->kept = thread;
    } else {
      end_thread(drain, slot, until, exec_tid != 0 ? until : 0);
    }
  }
  if (exec_tid == 0 && drain->kept != NULL) {
    drain->threads[0] = drain->kept;
    drain->kept = NULL;
    end_thread(drain, 0, until, 0);
  }
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    take_lost(drain, NULL, slot); /* of threads that never had a segment */
    memset(drain->slot_reported[slot], 0, sizeof(drain->slot_reported[slot]));
  }
  drain_late_end(drain);
  drain->retired_count = 0; /* nothing comes late any more */
  drain_drop(drain, NULL, CT_DROP_NO_SLOT, drain_lost_count(&drain->ring->dropped_no_slot));
  drain->details_before = ct_drain_detail_stats(drain);
  drain->details = (struct drain_details){.count = 0};
  add_switches(&drain->switches_before, drain_switches_stats(drain->switches));
  drain_switches_close(drain->switches);
  drain->switches = NULL;
  pthread_mutex_unlock(drain->lock);
}

struct ct_switch_stats
ct_drain_switches(const struct ct_drain *drain)
{
  struct ct_switch_stats sum = drain->switches_before;
  if (drain->switches != NULL) {
    add_switches(&sum, drain_switches_stats(drain->switches));
  }
  return sum;
}

void
ct_drain_add_stop(struct ct_drain *drain, uint64_t since, uint64_t until)
{
  pthread_mutex_lock(drain->lock);
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && drain->running; slot++) {
    if (drain->threads[slot] != NULL) {
      drain_switches_add_stop(drain->switches, drain->threads[slot], since, until);
    }
  }
  for (size_t n = 0; n < drain->stacks.count && drain->running; n++) {
    if (drain->early[n].thread != NULL) {
      drain_switches_add_stop(drain->switches, drain->early[n].thread, since, until);
    }
  }
  pthread_mutex_unlock(drain->lock);
}

void
ct_drain_free(struct ct_drain *drain)
{
  if (drain == NULL) {
    return;
  }
  munmap(drain->modes, (size_t)CT_FN_MAX + 1);
  drain_counts_free(&drain->counts);
  ct_thread_ids_end(&drain->ids);
  free(drain->infos);
  free(drain->early);
  free(drain->encoders);
  free(drain);
}
