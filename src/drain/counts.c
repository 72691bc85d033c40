/* SPDX-License-Identifier: MIT */
/* See counts.h. */
#include "drain/counts.h"

#include "base/branch.h"
#include "base/clock.h"
#include "drain/drain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE            CT_DRAIN_COUNTING_RUN /* counters that are compared at once */
#define TAKE_NS          (100 * 1000 * 1000)
#define WHOLE_NS         (4000ull * 1000 * 1000)
#define WAIT_NS_LEAST    1000000u
#define OWN_DEPTH        256
#define OWN_TICKS_MOST   (1ull << 18) /* of a piece of a call: what takes longer has waited, or it is the clock */
#define OWN_SPREAD_MOST  16u
#define OWN_SPREAD_CALLS 8u
#define CALLS_MOST       (1ull << 48) /* between two readings: more is no count of calls */
#define CALLS_LESS       (1ull << 31) /* ... and so many fewer than before are some that were recorded meanwhile */
#define TAKE_SHARE       20           /* with many threads a reading takes long: not more than this part of the time */

void
drain_counts_begin(struct ct_drain *drain, const struct ct_ring_parts *parts)
{
  struct drain_counts *counts = &drain->counts;
  uint8_t *counters = parts->counters;
  counts->counters = counters;
  counts->slot_bytes = (size_t)parts->counter_blocks * CT_COUNTERS_BLOCK_BYTES;
  counts->by_id = ct_counters_by_id(parts->counter_blocks);
  counts->fd = parts->fd;
  counts->offset = parts->counters_offset;
  counts->whole_ns = 0;
  for (size_t i = 0; i < CT_COUNTERS / CT_DRAIN_COUNTING_RUN; i++) { /* all hooks count at first */
    atomic_store_explicit(&counts->counting[i], 1, memory_order_relaxed);
  }
  for (size_t i = 0; i < CT_COUNTERS_BY_NEED; i++) {
    atomic_store_explicit(&counts->owners[i], CT_COUNTER_OF_NOBODY, memory_order_relaxed);
  }
  atomic_store_explicit(&counts->owned, 0, memory_order_relaxed);
  atomic_store_explicit(&counts->read_ns, 0, memory_order_relaxed);
  if (counters != NULL && counts->tallies == NULL) {
    counts->tallies = calloc(CT_DRAIN_TALLIES, sizeof(*counts->tallies));
    counts->touched = calloc(CT_DRAIN_TALLIES / CT_DRAIN_TALLY_RUN, sizeof(*counts->touched));
    counts->no_memory = counts->tallies == NULL || counts->touched == NULL;
    if (counts->no_memory) {
      drain_counts_free(counts);
    }
  }
}

void
drain_counts_free(struct drain_counts *counts)
{
  free(counts->tallies);
  free(counts->touched);
  free(atomic_load_explicit(&counts->own, memory_order_relaxed));
  atomic_store_explicit(&counts->own, NULL, memory_order_relaxed);
  counts->tallies = NULL;
  counts->touched = NULL;
}

void
drain_counts_end(struct ct_drain *drain)
{
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT; slot++) {
    free(drain->counts.seen[slot]);
    drain->counts.seen[slot] = NULL;
  }
  drain->counts.counters = NULL;
}

/* Only this thread writes. release: who takes the marks away and then reads has this sum, or finds a new mark. (One
 * that is taken away in between may be back: then it is one too many.) */
static inline void
add(struct drain_counts *counts, uint32_t fn, _Atomic uint64_t *sum, uint64_t n)
{
  _Atomic uint8_t *marks = &counts->touched[fn / CT_DRAIN_TALLY_RUN];
  uint8_t mark = (uint8_t)(1u << fn % CT_DRAIN_TALLY_RUN);
  atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n, memory_order_relaxed);
  atomic_store_explicit(marks, atomic_load_explicit(marks, memory_order_relaxed) | mark, memory_order_release);
}

/* A reading of a slot's. */
struct reading {
  struct ct_drain *drain;
  struct drain_thread *thread;
  uint8_t *now; /* as the ring has them */
  struct drain_counted *seen;
  uint64_t offset; /* of them in the ring's file */
  uint64_t hole;   /* up to here, from there on, there is no memory */
  bool is_last;
};

static uint64_t *
calls_in(uint8_t *counters, uint32_t at)
{
  return (uint64_t *)(counters + ct_counter_calls_offset(at));
}

static uint32_t *
recorded_in(uint8_t *counters, uint32_t at)
{
  return (uint32_t *)(counters + ct_counter_recorded_offset(at));
}

static uint32_t
owner_of(const struct drain_counts *counts, uint32_t at)
{
  return at < CT_COUNTERS_BY_NEED ? atomic_load_explicit(&counts->owners[at], memory_order_relaxed)
                                  : counts->first + at - CT_COUNTERS_BY_NEED;
}

/*
 * Has anybody written there, ever? A page that is only read would be made, and a thread has hundreds that nobody counts
 * in. What has memory keeps it.
 */
static bool
has_memory(struct reading *reading, uint32_t offset)
{
  uint32_t page = offset / CT_PAGE_BYTES;
  uint64_t *known = &reading->seen->known[page / 64], bit = 1ull << page % 64;
  int fd = reading->drain->counts.fd;
  if ((*known & bit) != 0 || fd < 0) {
    return true;
  }
  uint64_t at = (uint64_t)page * CT_PAGE_BYTES;
  if (at < reading->hole) {
    return false;
  }
  off_t data = lseek(fd, (off_t)(reading->offset + at), SEEK_DATA);
  if (data < 0 && errno != ENXIO) {
    return true;
  }
  reading->hole = data < 0 ? UINT64_MAX : (uint64_t)data - reading->offset;
  bool is_there = reading->hole < at + CT_PAGE_BYTES;
  *known |= is_there ? bit : 0;
  return is_there;
}

/*
 * A thread counts a call first, and says then that it is recorded, too. It may be kept off the processor in between,
 * and if the function is recorded in full from then on, no later reading would set right that the call counts twice. So
 * the last of several, if it may be such a call, is left to the next reading. (Not of counters that change their
 * owners, whose last calls would be the next one's.)
 */
static bool
is_early(uint64_t calls, uint64_t seen, uint32_t at)
{
  return at >= CT_COUNTERS_BY_NEED && calls % CT_COUNTERS_RECORDED_EACH == 1 && calls - seen > 1;
}

/*
 * One counter. The number of calls is read first: a call that is counted and then recorded in between is at most
 * missing until the next time. What a target scribbles counts for nothing; it goes on from there.
 */
static void
take_one(const struct reading *reading, uint32_t at)
{
  struct ct_drain *drain = reading->drain;
  struct drain_thread *thread = reading->thread;
  uint64_t *seen_calls = calls_in(reading->seen->counters, at);
  uint32_t *seen_recorded = recorded_in(reading->seen->counters, at);
  uint64_t calls = __atomic_load_n(calls_in(reading->now, at), __ATOMIC_ACQUIRE);
  uint32_t recorded = __atomic_load_n(recorded_in(reading->now, at), __ATOMIC_RELAXED);
  calls -= !reading->is_last && is_early(calls, *seen_calls, at);
  uint64_t passed = calls - *seen_calls - (uint32_t)(recorded - *seen_recorded);
  uint32_t fn = owner_of(&drain->counts, at);
  if (passed >= UINT64_MAX - CALLS_LESS) {
    return;
  }
  *seen_calls = calls;
  *seen_recorded = recorded;
  if (passed == 0 || passed > CALLS_MOST || fn == CT_COUNTER_OF_NOBODY) {
    return;
  }
  ct_encode_counted(thread->encoder, drain_thread_last(thread), fn, passed);
  drain->stats.hook_events[CT_HOOK_EVENT_COUNTED] += passed;
  if (thread->rules != NULL && fn <= CT_FN_MAX && rules_mask(thread->rules, fn) != 0) {
    rules_counted(thread, rules_mask(thread->rules, fn), fn, passed);
  }
  if (drain->counts.tallies != NULL && fn < CT_DRAIN_TALLIES) {
    add(&drain->counts, fn, &drain->counts.tallies[fn].counted, passed);
  }
}

/* Of PIECE counters, what has been counted. end: those from there on are nobody's yet. */
static void
take_piece(struct reading *reading, uint32_t piece, uint32_t end)
{
  uint32_t offset = ct_counter_calls_offset(piece);
  if (piece >= end || !has_memory(reading, offset) ||
      memcmp(reading->now + offset, reading->seen->counters + offset, PIECE * sizeof(uint64_t)) == 0) {
    return;
  }
  for (uint32_t at = piece; at < piece + PIECE && at < end; at++) {
    take_one(reading, at);
  }
}

static void
find_marked(struct drain_counts *counts)
{
  counts->marked_count = 0;
  for (uint32_t run = 0; run < CT_COUNTERS / PIECE; run++) {
    /* relaxed: a mark that is seen late is one of a count that is seen late */
    if (atomic_load_explicit(&counts->counting[run], memory_order_relaxed) != 0) {
      counts->marked[counts->marked_count++] = (uint16_t)run;
    }
  }
}

/*
 * Not whole: without those of functions that are not counted now. A thread that was interrupted in the middle of a hook
 * may count one late, when the level has changed meanwhile, so all of them are looked at now and then.
 */
static void
take_slot(struct ct_drain *drain, uint32_t slot, bool is_whole, bool is_last)
{
  struct drain_counts *counts = &drain->counts;
  struct drain_thread *thread = drain->threads[slot];
  if (counts->counters == NULL || thread == NULL) {
    return;
  }
  if (counts->seen[slot] == NULL) {
    counts->seen[slot] = calloc(1, sizeof(*counts->seen[slot]) + counts->slot_bytes);
    if (counts->seen[slot] == NULL) {
      counts->no_memory = true;
      return;
    }
  }
  size_t from = slot * counts->slot_bytes;
  struct reading reading = {.drain = drain,
                            .thread = thread,
                            .now = counts->counters + from,
                            .seen = counts->seen[slot],
                            .offset = counts->offset + from,
                            .is_last = is_last};
  uint32_t functions = atomic_load_explicit(&drain->function_count, memory_order_acquire);
  functions = functions > counts->first ? functions - counts->first : 0;
  uint32_t end = ct_counter_by_id(functions < counts->by_id ? functions : counts->by_id);
  /* acquire: with it, whose they are */
  uint32_t owned = atomic_load_explicit(&counts->owned, memory_order_acquire);
  for (uint32_t n = 0; n < (is_whole ? (end + PIECE - 1) / PIECE : counts->marked_count); n++) {
    uint32_t piece = (is_whole ? n : counts->marked[n]) * PIECE;
    take_piece(&reading, piece, piece < CT_COUNTERS_BY_NEED ? owned : end);
  }
}

void
drain_counts_take_slot(struct ct_drain *drain, uint32_t slot)
{
  take_slot(drain, slot, true, true);
}

void
drain_counts_hooked(struct drain_counts *counts, uint32_t fn)
{
  if (fn - counts->first < counts->by_id) {
    atomic_store_explicit(&counts->counting[ct_counter_by_id(fn - counts->first) / PIECE], 1, memory_order_relaxed);
  }
}

_Atomic uint8_t *
ct_drain_counting(struct ct_drain *drain)
{
  return drain->counts.counting;
}

/* One counts on from where it was: all that has been read was its owner's. */
void
ct_drain_give_counter(struct ct_drain *drain, uint32_t at, uint32_t fn)
{
  struct drain_counts *counts = &drain->counts;
  atomic_store_explicit(&counts->owners[at], fn, memory_order_relaxed);
  if (at >= atomic_load_explicit(&counts->owned, memory_order_relaxed)) {
    atomic_store_explicit(&counts->owned, at + 1, memory_order_release); /* with its owner */
  }
}

uint64_t
ct_drain_counts_cpu_ns(const struct ct_drain *drain)
{
  return atomic_load_explicit(&drain->counts.cpu_ns, memory_order_relaxed); /* ct_drain_has_counts has acquired it */
}

uint64_t
ct_drain_counts_read_ns(const struct ct_drain *drain)
{
  return atomic_load_explicit(&drain->counts.read_ns, memory_order_acquire); /* what was read is somebody's */
}

/* Has somebody asked for a reading that was not made yet? */
static bool
is_waited_for(const struct drain_counts *counts)
{
  return atomic_load_explicit(&counts->asked, memory_order_acquire) != /* acquire: and with it, for when */
         atomic_load_explicit(&counts->taken, memory_order_relaxed);
}

static bool
is_asked(const struct drain_counts *counts, uint64_t now)
{
  return is_waited_for(counts) && now >= atomic_load_explicit(&counts->asked_for_ns, memory_order_relaxed);
}

uint64_t
drain_counts_wait_ns(const struct drain_counts *counts, uint64_t now, uint64_t most_ns)
{
  uint64_t at = atomic_load_explicit(&counts->asked_for_ns, memory_order_relaxed);
  if (!is_waited_for(counts) || at >= now + most_ns) {
    return most_ns;
  }
  return at > now + WAIT_NS_LEAST ? at - now : WAIT_NS_LEAST;
}

/* 0: it is not known. */
static uint64_t
program_cpu_ns(const struct ct_drain *drain)
{
  clockid_t clock;
  return clock_getcpuclockid(drain->pid, &clock) == 0 ? ct_clock_ns(clock) : 0;
}

void
drain_counts_take(struct ct_drain *drain, bool is_last)
{
  uint64_t begin = drain_now_ns();
  bool is_to_answer = is_last || is_asked(&drain->counts, begin);
  uint32_t asked = atomic_load_explicit(&drain->counts.asked, memory_order_acquire);
  bool is_whole = is_last || begin - drain->counts.whole_ns >= WHOLE_NS;
  if (is_to_answer) {
    atomic_store_explicit(&drain->counts.cpu_ns, program_cpu_ns(drain), memory_order_relaxed);
  }
  drain->counts.whole_ns = is_whole ? begin : drain->counts.whole_ns;
  find_marked(&drain->counts);
  for (uint32_t slot = 0; slot < CT_SLOT_COUNT && drain->counts.counters != NULL; slot++) {
    take_slot(drain, slot, is_whole, is_last);
  }
  if (is_whole) {
    atomic_store_explicit(&drain->counts.read_ns, begin, memory_order_release);
  }
  if (drain->switches != NULL) {
    drain_switches_read(drain->switches);
    if (atomic_load_explicit(&drain->counts.no_switches, memory_order_relaxed) &&
        (drain->rules == NULL || drain->rules->offs == 0)) {
      drain_switches_give_up(drain->switches);
    }
  }
  atomic_store_explicit(&drain->published.switches, ct_drain_switches(drain).switches, memory_order_relaxed);
  if (is_to_answer) {
    drain->counts.is_answer |= atomic_load_explicit(&drain->counts.taken, memory_order_relaxed) != asked;
    /* release: whoever sees it sees the tallies */
    atomic_store_explicit(&drain->counts.taken, asked, memory_order_release);
  }
  uint64_t end = drain_now_ns();
  drain->counts.taken_ns = end;
  drain->counts.took_ns = end - begin;
}

bool
drain_counts_due(const struct ct_drain *drain, uint64_t now)
{
  const struct drain_counts *counts = &drain->counts;
  if (counts->counters == NULL || now - counts->taken_ns < counts->took_ns * TAKE_SHARE) {
    return false;
  }
  return now - counts->taken_ns > TAKE_NS || is_asked(counts, now);
}

void
ct_drain_end_switches(struct ct_drain *drain)
{
  atomic_store_explicit(&drain->counts.no_switches, true, memory_order_relaxed);
}

void
ct_drain_ask_counts(struct ct_drain *drain, uint64_t at_ns)
{
  atomic_store_explicit(&drain->counts.asked_for_ns, at_ns, memory_order_relaxed);
  atomic_fetch_add_explicit(&drain->counts.asked, 1, memory_order_release);
  if (drain->running && at_ns == 0) {
    drain_wake(drain);
  }
}

bool
ct_drain_has_counts(struct ct_drain *drain)
{
  return atomic_load_explicit(&drain->counts.asked, memory_order_relaxed) ==
         atomic_load_explicit(&drain->counts.taken, memory_order_acquire);
}

static inline void
add_own(_Atomic uint64_t *sum, uint64_t n)
{
  atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t
piece(uint64_t last_tsc, uint64_t tsc)
{
  return tsc < last_tsc ? 0 : tsc - last_tsc < OWN_TICKS_MOST ? tsc - last_tsc : OWN_TICKS_MOST;
}

/* A call of which enter and return are here. One that is OWN_SPREAD_MOST times as long as the others was interrupted,
 * or might as well have been, and counts as that long. */
static inline void
add_whole(struct ct_drain_own *own, uint64_t ticks)
{
  uint64_t calls = atomic_load_explicit(&own->whole, memory_order_relaxed);
  uint64_t sum = atomic_load_explicit(&own->whole_ticks, memory_order_relaxed);
  uint64_t most = calls < OWN_SPREAD_CALLS ? OWN_TICKS_MOST : OWN_SPREAD_MOST * (sum / calls + 1);
  ticks = ticks < most ? ticks : most;
  add_own(&own->whole, 1);
  add_own(&own->whole_ticks, ticks);
  add_own(&own->squares, ticks * ticks);
}

struct own_frame {
  uint32_t fn;
  uint64_t ticks; /* of its own, so far */
};

/*
 * Which function is running is known from its enter on, as long as the calls of these events fit together; before that,
 * from a return, what came right before it. So of what was entered before it is a lower bound.
 */
static void
measure_own(struct ct_drain_own *own, const struct ct_ring_event *events, size_t count)
{
  uint64_t last_tsc = UINT64_MAX;
  struct own_frame running[OWN_DEPTH];
  uint32_t depth = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t word = (uint32_t)__atomic_load_n(&events[i].word, __ATOMIC_RELAXED);
    uint64_t tsc = __atomic_load_n(&events[i].tsc, __ATOMIC_RELAXED);
    uint32_t fn = word >> CT_WORD_FN_SHIFT;
    unsigned kind = word >> CT_WORD_KIND_SHIFT & 3;
    if (kind == CT_KIND_OTHER) {
      bool is_apart = (fn & CT_FN_POINT_BIT) != 0 || drain_is_value(fn);
      depth = is_apart ? depth : 0;
      last_tsc = is_apart ? last_tsc : UINT64_MAX;
      continue;
    }
    struct own_frame *frame = depth != 0 ? &running[depth - 1] : NULL;
    uint32_t whose = frame != NULL ? frame->fn : kind == CT_KIND_RETURN ? fn : UINT32_MAX;
    if (whose < CT_DRAIN_TALLIES) {
      uint64_t ticks = piece(last_tsc, tsc);
      add_own(&own[whose].ticks, ticks);
      if (frame != NULL) {
        frame->ticks += ticks;
      }
    }
    last_tsc = tsc;
    if (kind != CT_KIND_ENTER && frame != NULL) {
      bool is_its = kind == CT_KIND_TAIL || whose == fn;
      if (is_its && whose < CT_DRAIN_TALLIES) {
        add_whole(&own[whose], frame->ticks);
      }
      depth = is_its ? depth - 1 : 0;
    }
    if (kind != CT_KIND_RETURN) {
      depth = depth < OWN_DEPTH ? depth : 0;
      running[depth++] = (struct own_frame){.fn = fn};
      if (fn < CT_DRAIN_TALLIES) {
        add_own(&own[fn].calls, 1);
      }
    }
  }
}

void
drain_counts_tally(struct drain_counts *counts, const struct ct_ring_event *events, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    uint32_t word = (uint32_t)__atomic_load_n(&events[i].word, __ATOMIC_RELAXED);
    uint32_t fn = word >> CT_WORD_FN_SHIFT;
    unsigned kind = word >> CT_WORD_KIND_SHIFT & 3;
    if (kind == CT_KIND_OTHER) { /* from a JIT compiler's code, on a stack without return store; or enter-only */
      fn = (fn & CT_FN_POINT_BIT) != 0 && CT_FN_WEIGHT(fn) == 0 ? fn & CT_FN_MAX : UINT32_MAX;
    }
    if (kind != CT_KIND_RETURN && fn < CT_DRAIN_TALLIES) {
      add(counts, fn, &counts->tallies[fn].recorded, 1);
    }
  }
  /* acquire: pairs with ct_drain_measure_own, which has made the memory before */
  struct ct_drain_own *own = atomic_load_explicit(&counts->own, memory_order_acquire);
  if (own != NULL && atomic_load_explicit(&counts->measures_own, memory_order_relaxed)) {
    measure_own(own, events, count);
  }
}

/* The memory is made when it is asked for first: most of it is never touched. */
void
ct_drain_measure_own(struct ct_drain *drain, bool on)
{
  struct drain_counts *counts = &drain->counts;
  if (on && atomic_load_explicit(&counts->own, memory_order_relaxed) == NULL) {
    atomic_store_explicit(&counts->own, calloc(CT_DRAIN_TALLIES, sizeof(struct ct_drain_own)), memory_order_release);
  }
  atomic_store_explicit(&counts->measures_own, on, memory_order_relaxed);
}

const struct ct_drain_own *
ct_drain_own(const struct ct_drain *drain)
{
  return atomic_load_explicit(&drain->counts.own, memory_order_relaxed);
}

void
ct_drain_first_counted(struct ct_drain *drain, uint32_t fn)
{
  drain->counts.first = fn;
}

const struct ct_drain_tally *
ct_drain_tallies(const struct ct_drain *drain)
{
  return drain->counts.tallies;
}

_Atomic uint8_t *
ct_drain_touched(const struct ct_drain *drain)
{
  return drain->counts.touched;
}

static uint64_t
cpu_ns(const struct ct_drain *drain, pthread_t thread)
{
  clockid_t clock;
  return drain->running && pthread_getcpuclockid(thread, &clock) == 0 ? ct_clock_ns(clock) : 0;
}

uint64_t
ct_drain_cpu_ns(const struct ct_drain *drain)
{
  return cpu_ns(drain, drain->thread);
}

uint64_t
ct_drain_liveness_cpu_ns(const struct ct_drain *drain)
{
  return cpu_ns(drain, drain->liveness);
}
