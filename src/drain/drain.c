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
#include "drain/internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS       (4 * 1000 * 1000)  /* between two looks into active segments ... */
#define IDLE_ROUNDS   16                 /* ... and when so many have found nothing ... */
#define IDLE_NS       (16 * 1000 * 1000) /* ... this */
#define BLOCK_AGE_NS  (40 * 1000 * 1000) /* a block in progress is written when it is older */
#define REAP_NS       (20 * 1000 * 1000)
#define PULSE_NS      50000000
#define SCARCE_NS     (1000 * 1000)
#define YIELD_NS      (5 * 1000 * 1000) /* of work without a pause, then one of ... */
#define YIELD_FOR_NS  50000
#define NAMES_NS      (500 * 1000 * 1000)
#define TELL_NS       (50 * 1000 * 1000)
#define WARM_SEGMENTS 128
#define WARM_SHARE    8 /* of the ring, at most */
#define POLL_RUN      16

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
                const struct ct_precedence *precedence, struct ct_drain **out)
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
  drain->precedence = precedence;
  drain->max_depth = max_depth;
  drain->sampling.options.mem_fd = -1;
  *out = drain;
  return 0;
}

void
ct_drain_function_mode(struct ct_drain *drain, uint32_t fn, uint8_t mode)
{
  drain->modes[fn] = mode;
  /* release: pairs with the acquire in encode_events; no event of fn exists before its hook does */
  __atomic_store_n(&drain->function_count, fn + 1, __ATOMIC_RELEASE);
}

/* A new thread of the target; NULL when there is no memory or no file for it. */
static struct drain_thread *
new_thread(struct ct_drain *drain, uint32_t slot)
{
  uint32_t tid = drain->slots[slot].tid;
  if (drain->kept != NULL && drain->kept->tid == tid) {
    struct drain_thread *kept = drain->kept;
    drain->kept = NULL;
    kept->generation = drain->slots[slot].generation;
    kept->next_seq = 0;
    kept->gap_seq = UINT32_MAX;
    kept->polled_seq = NO_SEGMENT_SEQ;
    kept->polled = 0;
    kept->held_seq = NO_SEGMENT_SEQ;
    kept->has_base = false;
    kept->stack_length = UINT32_MAX;
    kept->stack_count = 0;
    return kept;
  }
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
  if (ct_trace_writer_thread(drain->writer, (uint32_t)drain->info_count, tid, (uint32_t)drain->pid, &thread->encoder) !=
          0 ||
      thread->encoder == NULL) {
    free(thread);
    return NULL;
  }
  thread->tid = tid;
  thread->generation = drain->slots[slot].generation;
  thread->gap_seq = UINT32_MAX;
  thread->polled_seq = NO_SEGMENT_SEQ;
  thread->held_seq = NO_SEGMENT_SEQ;
  thread->stack_length = UINT32_MAX;
  thread->max_depth = drain->max_depth;
  drain->encoders[drain->info_count] = thread->encoder;
  thread->info = (uint32_t)drain->info_count++;
  drain->infos[thread->info] = (struct ct_drain_thread_info){.index = thread->info, .tid = tid};
  return thread;
}

static void
read_name(struct ct_drain *drain, struct drain_thread *thread)
{
  char path[64];
  char name[32];
  snprintf(path, sizeof(path), "/proc/%d/task/%u/comm", drain->pid, thread->tid);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return;
  }
  if (fgets(name, sizeof(name), file) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    memcpy(drain->infos[thread->info].name, name, sizeof(name));
  }
  fclose(file);
}

static uint64_t
slot_lost(const struct ct_slot *slot)
{
  return __atomic_load_n(&slot->dropped_overwritten, __ATOMIC_RELAXED) +
         __atomic_load_n(&slot->dropped_no_segment, __ATOMIC_RELAXED) +
         __atomic_load_n(&slot->dropped_unsupported, __ATOMIC_RELAXED);
}

/* Brings what the slot's counters say was lost into the stream. */
void
drain_report_lost(struct ct_drain *drain, struct drain_thread *thread, uint32_t slot, uint64_t tsc)
{
  uint64_t lost = slot_lost(&drain->slots[slot]);
  if (lost > drain->slot_reported[slot]) {
    uint64_t count = lost - drain->slot_reported[slot];
    ct_encode_lost(thread->encoder, tsc, count);
    drain->infos[thread->info].dropped += count;
    drain->stats.dropped += count;
    drain->slot_reported[slot] = lost;
  }
}

static void
end_thread(struct ct_drain *drain, uint32_t slot)
{
  struct drain_thread *thread = drain->threads[slot];
  drain->threads[slot] = NULL;
  if (thread == NULL) {
    return;
  }
  ct_encoder_close(thread->encoder);
  free(thread);
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
    end_thread(drain, slot);
    thread = new_thread(drain, slot);
  } else {
    thread = new_thread(drain, slot);
  }
  if (thread != NULL) {
    thread->generation = generation;
    drain->threads[slot] = thread;
    read_name(drain, thread);
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
  if (syscall(SYS_tgkill, drain->pid, tid, 0) == 0 || errno != ESRCH || drain->slots[slot].tid != tid) {
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
  bool any = false;
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    dead[slot] = seize_dead_slot(drain, slot);
    any |= dead[slot];
  }
  if (!any) {
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
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    if (!dead[slot]) {
      continue;
    }
    if (drain->threads[slot] != NULL) {
      drain_report_lost(drain, drain->threads[slot], slot, drain->threads[slot]->encoder->last_tsc);
    }
    end_thread(drain, slot);
    __atomic_store_n(&drain->tids[slot], 0, __ATOMIC_RELEASE);
  }
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
 * Looks into active segments, in turn from where the last look ended, until a full one has been handed over: with a
 * thousand threads a look into all of them takes long, and full segments must not wait for it.
 */
static bool
poll_some(struct ct_drain *drain, const struct candidate *all, size_t count)
{
  uint32_t bell = __atomic_load_n(&drain->ring->drain_bell, __ATOMIC_ACQUIRE);
  bool busy = false;
  for (size_t n = 0; n < count && !ct_precedence_asked(drain->precedence); n++) {
    if (n % POLL_RUN == POLL_RUN - 1 && __atomic_load_n(&drain->ring->drain_bell, __ATOMIC_ACQUIRE) != bell) {
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
  drain->round++;
  drain->now = drain_now_ns();
  size_t count = drain_collect(drain, CT_SEG_FULL, all);
  for (size_t i = 0; i < count; i++) {
    if (drain->full[all[i].index].seq != all[i].seq) {
      drain->full[all[i].index].seq = all[i].seq;
      drain->full[all[i].index].since = drain->now;
    }
  }
  if (!final) {
    drain_sampling_round(drain, count);
  }
  for (size_t i = 0; i < count && (final || !ct_precedence_asked(drain->precedence)); i++) {
    busy |= drain_take_full(drain, &all[i], final);
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

static void
wait_for_work(struct ct_drain *drain, uint32_t bell)
{
  struct ct_ring_header *ring = drain->ring;
  bool is_idle = drain->idle_rounds >= IDLE_ROUNDS && __atomic_load_n(&ring->unwoken, __ATOMIC_RELAXED) == 0;
  struct timespec wait = {0, is_idle ? IDLE_NS : LOOK_NS};
  /* seq_cst: pairs with wake_drain in the agent; either it sees us waiting or we see its bell. */
  __atomic_store_n(&ring->drain_waiting, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->drain_bell, __ATOMIC_SEQ_CST) == bell) {
    syscall(SYS_futex, &ring->drain_bell, FUTEX_WAIT, bell, &wait, NULL, 0);
  }
  __atomic_store_n(&ring->drain_waiting, 0, __ATOMIC_SEQ_CST);
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

/* Touches the lowest segments once, so that the target finds their pages there. */
static void
warm_up(struct ct_drain *drain)
{
  uint32_t share = drain->ring->segment_count / WARM_SHARE;
  for (uint32_t i = 0; i < WARM_SEGMENTS && i < share; i++) {
    uint8_t *segment = drain->segments + (size_t)i * CT_SEGMENT_STRIDE;
    for (size_t at = 0; at < CT_SEGMENT_BYTES; at += CT_PAGE_BYTES) {
      __atomic_fetch_or((uint64_t *)(segment + at + CT_PAGE_BYTES - 8), 0, __ATOMIC_RELAXED);
    }
  }
}

/*
 * A thread that does nothing else, so that a thread of the target that waits for an answer can tell a controller that
 * is busy (a large library to install, a slow disk, no processor to be had) from one that is gone.
 */
static void *
pulse_main(void *context)
{
  struct ct_drain *drain = context;
  while (__atomic_load_n(&drain->stopping, __ATOMIC_ACQUIRE) == 0) {
    struct timespec wait = {0, PULSE_NS};
    __atomic_fetch_add(&drain->ring->pulse, 1, __ATOMIC_RELAXED);
    syscall(SYS_futex, &drain->stopping, FUTEX_WAIT_PRIVATE, 0, &wait, NULL, 0);
  }
  return NULL;
}

static void
stop_pulse(struct ct_drain *drain)
{
  __atomic_store_n(&drain->stopping, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &drain->stopping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  pthread_join(drain->pulse, NULL);
}

static void
tell_numbers(struct ct_drain *drain)
{
  struct ct_drain_stats stats;
  struct ct_sampling_state sampling;
  ct_drain_stats(drain, &stats);
  ct_drain_sampling(drain, &sampling);
  __atomic_store_n(&drain->told.events, stats.events, __ATOMIC_RELAXED);
  __atomic_store_n(&drain->told.dropped, stats.dropped, __ATOMIC_RELAXED);
  __atomic_store_n(&drain->told.changes, sampling.changes, __ATOMIC_RELAXED);
  __atomic_store_n(&drain->told.interval, sampling.interval, __ATOMIC_RELAXED);
}

void
ct_drain_numbers(const struct ct_drain *drain, struct ct_drain_numbers *numbers)
{
  numbers->events = __atomic_load_n(&drain->told.events, __ATOMIC_RELAXED);
  numbers->dropped = __atomic_load_n(&drain->told.dropped, __ATOMIC_RELAXED);
  numbers->changes = __atomic_load_n(&drain->told.changes, __ATOMIC_RELAXED);
  numbers->interval = __atomic_load_n(&drain->told.interval, __ATOMIC_RELAXED);
}

static void *
drain_main(void *context)
{
  struct ct_drain *drain = context;
  uint64_t ticks_old = ticks_in(BLOCK_AGE_NS);
  uint64_t yielded = 0, reaped = 0, named = drain_now_ns(), flushed = 0, told = 0;
  warm_up(drain);
  while (__atomic_load_n(&drain->stopping, __ATOMIC_ACQUIRE) == 0) {
    uint32_t bell = __atomic_load_n(&drain->ring->drain_bell, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&drain->ring->heartbeat, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(drain->lock);
    drain->idle_rounds++;
    bool busy = drain_round(drain, false);
    busy |= drain_take_prints(drain);
    drain->idle_rounds = busy ? 0 : drain->idle_rounds;
    uint64_t now = drain_now_ns();
    if (now - flushed > BLOCK_AGE_NS / 2) {
      flush_old(drain, ticks_old);
      flushed = now;
    }
    if (now - reaped > REAP_NS || (now - reaped > SCARCE_NS && drain_is_short(drain))) {
      reap(drain);
      reaped = now;
    }
    if (now - named > NAMES_NS) {
      for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
        if (drain->threads[slot] != NULL) {
          read_name(drain, drain->threads[slot]);
        }
      }
      named = now;
    }
    if (now - told > TELL_NS) {
      tell_numbers(drain);
      told = now;
    }
    pthread_mutex_unlock(drain->lock);
    ct_precedence_give_way(drain->precedence);
    if (!busy) {
      wait_for_work(drain, bell);
    } else if (now - yielded > YIELD_NS) { /* the lock is not fair: who waits for it would never have it */
      struct timespec wait = {0, YIELD_FOR_NS};
      nanosleep(&wait, NULL);
      yielded = now;
    }
  }
  return NULL;
}

int
ct_drain_start(struct ct_drain *drain, struct ct_ring_header *ring, int pid)
{
  uint8_t *base = (uint8_t *)ring;
  drain->ring = ring;
  drain->tids = (uint32_t *)(base + ring->tids_offset);
  drain->slots = (struct ct_slot *)(base + ring->slots_offset);
  drain->entries = (struct ct_segment_entry *)(base + ring->table_offset);
  drain->segments = base + ring->segments_offset;
  drain->pid = pid;
  drain->stopping = 0;
  drain->retired_count = 0;
  memset(drain->full, 0xff, sizeof(drain->full));
  drain_sampling_start(drain);
  drain_begin_prints(drain);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int code = pthread_create(&drain->pulse, NULL, pulse_main, drain);
  if (code == 0) {
    code = pthread_create(&drain->thread, NULL, drain_main, drain);
    if (code != 0) {
      stop_pulse(drain);
    }
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  drain->running = code == 0;
  return code == 0 ? 0 : CT_ENOMEM;
}

void
ct_drain_stop(struct ct_drain *drain, int exec_tid)
{
  if (!drain->running) {
    return;
  }
  __atomic_store_n(&drain->stopping, 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&drain->ring->drain_bell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &drain->ring->drain_bell, FUTEX_WAKE, 1, NULL, NULL, 0);
  pthread_join(drain->thread, NULL);
  stop_pulse(drain);
  drain->running = false;
  pthread_mutex_lock(drain->lock);
  drain_round(drain, true);
  drain_end_prints(drain);
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    struct drain_thread *thread = drain->threads[slot];
    if (thread == NULL) {
      continue;
    }
    drain_report_lost(drain, thread, slot, thread->encoder->last_tsc);
    if (exec_tid != 0 && thread->tid == (uint32_t)exec_tid) {
      ct_encode_exec(thread->encoder, read_tsc());
      drain->threads[slot] = NULL;
      drain->kept = thread;
    } else {
      end_thread(drain, slot);
    }
  }
  if (exec_tid == 0 && drain->kept != NULL) {
    drain->threads[0] = drain->kept;
    drain->kept = NULL;
    end_thread(drain, 0);
  }
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    uint64_t lost = slot_lost(&drain->slots[slot]);
    if (lost > drain->slot_reported[slot]) {
      drain->stats.dropped += lost - drain->slot_reported[slot]; /* of threads that never had a segment */
    }
    drain->slot_reported[slot] = 0;
    drain->ended_overwritten += drain->slots[slot].dropped_overwritten;
    drain->ended_no_segment += drain->slots[slot].dropped_no_segment;
    drain->stats.dropped_no_stack += drain->slots[slot].dropped_unsupported;
  }
  drain->stats.dropped_no_slot += drain->ring->dropped_no_slot;
  drain->stats.dropped += drain->ring->dropped_no_slot;
  pthread_mutex_unlock(drain->lock);
}

size_t
ct_drain_threads(const struct ct_drain *drain, const struct ct_drain_thread_info **threads)
{
  for (size_t i = 0; i < drain->info_count; i++) {
    drain->infos[i].events = ct_encoder_events(drain->encoders[i]);
  }
  *threads = drain->infos;
  return drain->info_count;
}

void
ct_drain_stats(const struct ct_drain *drain, struct ct_drain_stats *stats)
{
  *stats = drain->stats;
  stats->dropped_overwritten = drain->ended_overwritten - drain->read_before_stolen;
  stats->dropped_no_segment = drain->ended_no_segment;
  stats->events = 0;
  for (size_t i = 0; i < drain->info_count; i++) {
    stats->events += ct_encoder_events(drain->encoders[i]);
  }
}

void
ct_drain_free(struct ct_drain *drain)
{
  if (drain == NULL) {
    return;
  }
  munmap(drain->modes, (size_t)CT_FN_MAX + 1);
  free(drain->infos);
  free(drain->encoders);
  free(drain);
}
