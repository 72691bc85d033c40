/* SPDX-License-Identifier: MIT */
/* The ring's segments: taking events out of them, waiting for those that are reserved, giving them back. */
#include "base/branch.h"
#include "drain/drain_internal.h"
#include "drain/runs.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOLD_NS       1000000000 /* how long a full segment waits for what is reserved in it */
#define SHORT_HOLD_NS 20000000   /* ... where segments are scarce, and the program waits for them */

/* What to do about an entry that is reserved and not written. */
enum on_hole {
  HOLE_WAIT,    /* its hook may go on */
  HOLE_ABANDON, /* it does not: a handler was unwound by a jump, the thread is dead. The event has not happened. */
  HOLE_LOSE,    /* no time to wait */
};

static inline bool
is_whole(const struct ct_ring_event *event, uint32_t tag, uint64_t *word)
{
  /* acquire: pairs with the word being the producer's last store of the event */
  *word = __atomic_load_n(&event->word, __ATOMIC_ACQUIRE);
  return (*word & CT_WORD_TAG_MASK) == tag;
}

static inline uint64_t
differs(const struct ct_ring_event *event, uint32_t tag)
{
  return __atomic_load_n(&event->word, __ATOMIC_RELAXED) ^ tag;
}

/* The first entry from `at` on that is not whole; end: all are. Many are looked at together. */
static uint32_t
end_of_whole(const struct ct_ring_event *events, uint32_t at, uint32_t end, uint32_t tag)
{
  uint64_t word;
  for (; end - at >= 8; at += 8) {
    const struct ct_ring_event *e = events + at;
    uint64_t any = differs(e, tag) | differs(e + 1, tag) | differs(e + 2, tag) | differs(e + 3, tag) |
                   differs(e + 4, tag) | differs(e + 5, tag) | differs(e + 6, tag) | differs(e + 7, tag);
    if ((any & CT_WORD_TAG_MASK) != 0) {
      break;
    }
  }
  /* acquire: as in is_whole, for all words above */
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  while (at < end && is_whole(&events[at], tag, &word)) {
    at++;
  }
  return at;
}

/*
 * What the table says of the segment whose state is `word`, read with acquire. False: it is not any more. A thread may
 * have taken it meanwhile, and the rest would be of another activation. relaxed: each field is read once. The target
 * can write to them at any time; what is checked is what is used.
 */
static bool
peek(const struct ct_segment_entry *entry, uint64_t word, struct ct_segment_entry *out)
{
  *out = (struct ct_segment_entry){.state = word,
                                   .tag = __atomic_load_n(&entry->tag, __ATOMIC_RELAXED),
                                   .reserved = __atomic_load_n(&entry->reserved, __ATOMIC_RELAXED),
                                   .thread_seq = __atomic_load_n(&entry->thread_seq, __ATOMIC_RELAXED),
                                   .generation = __atomic_load_n(&entry->generation, __ATOMIC_RELAXED)};
  /* acquire: pairs with the compare-and-swap of who takes it, before the first of these is written */
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&entry->state, __ATOMIC_RELAXED) == word;
}

static uint32_t
events_among(const struct ct_ring_event *entries, size_t count)
{
  uint32_t events = 0;
  for (size_t i = 0; i < count; i++) {
    events += (uint32_t)ct_word_is_event(entries[i].word);
  }
  return events;
}

static void
encode_events(struct ct_drain *drain, struct drain_thread *thread, const struct ct_ring_event *events, size_t count)
{
  if (count != 0) {
    uint64_t samples = thread->samples, waited = thread->waited, rest = count;
    memset(thread->hook_events, 0, sizeof(thread->hook_events));
    drain_switches_encode(drain->switches, thread, events, count, drain->modes,
                          atomic_load_explicit(&drain->function_count, memory_order_acquire));
    if (CT_UNLIKELY(drain->counts.tallies != NULL)) {
      drain_counts_tally(&drain->counts, events, count);
    }
    drain->samples += thread->samples - samples;
    drain->infos[thread->info].waited_ticks += thread->waited - waited;
    for (int kind = CT_HOOK_EVENT_HALF + 1; kind < CT_HOOK_EVENT_COUNT; kind++) {
      drain->stats.hook_events[kind] += thread->hook_events[kind];
      rest -= kind != CT_HOOK_EVENT_PASSED_OVER ? thread->hook_events[kind] : 0;
    }
    drain->stats.hook_events[CT_HOOK_EVENT_HALF] += rest;
  }
}

/*
 * A segment that is ours: every event from the thread's last position on. False when a hole was found and is to be
 * waited for: all before it is done. Else holes are wiped, and noted in `late` if it is not NULL.
 */
static bool
drain_whole(struct ct_drain *drain, struct drain_thread *thread, uint32_t index, uint32_t reserved,
            enum on_hole on_hole, struct retired *late)
{
  struct ct_ring_event *events = (struct ct_ring_event *)(drain->segments + (size_t)index * CT_SEGMENT_STRIDE);
  uint32_t tag = drain->entries[index].tag; /* any word will do: which events are whole is all that it says */
  uint32_t at = thread->polled, first = at;
  reserved = reserved > CT_SEGMENT_EVENTS ? CT_SEGMENT_EVENTS : reserved;
  while (at < reserved) {
    uint32_t begin = at, end = reserved - at < DRAIN_PIECE ? reserved : at + DRAIN_PIECE;
    uint64_t word;
    at = end_of_whole(events, at, end, tag);
    encode_events(drain, thread, events + begin, at - begin);
    thread->polled = at;
    if (at == end) {
      continue;
    }
    if (on_hole == HOLE_WAIT) {
      thread->polled_events += events_among(events + first, at - first);
      return false;
    }
    if (on_hole == HOLE_LOSE && !drain_lives(drain, thread)) { /* cancelled there, for one: its hook does not go on */
      on_hole = HOLE_ABANDON;
    }
    uint32_t hole = at;
    while (at < reserved && !is_whole(&events[at], tag, &word)) {
      events[at].word = 0;
      if (late != NULL) {
        late->holes[at / 64] |= 1ull << (at % 64);
      }
      at++;
    }
    if (at > hole && on_hole == HOLE_LOSE) { /* it may have become whole meanwhile */
      thread->holes += at - hole;
      drain_drop(drain, thread, CT_DROP_INTERRUPTED, at - hole);
      ct_encode_lost(thread->encoder, drain_thread_last(thread), at - hole);
    }
  }
  for (; at < CT_SEGMENT_EVENTS; at++) {
    events[at].word = 0;
  }
  drain->stats.segments++;
  return true;
}

static void
give_back(struct ct_drain *drain, uint32_t index)
{
  struct ct_ring_header *ring = drain->ring;
  __atomic_store_n(&drain->entries[index].state, CT_SEG_WORD(CT_SEG_FREE, 0, 0), __ATOMIC_RELAXED);
  /* release: pairs with the acquire of the thread that takes the bit */
  __atomic_fetch_or(&ring->free_map[index / 64], 1ull << (index % 64), __ATOMIC_RELEASE);
  __atomic_fetch_add(&ring->free_doorbell, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->free_waiters, __ATOMIC_SEQ_CST) != 0) {
    syscall(SYS_futex, &ring->free_doorbell, FUTEX_WAKE, DRAIN_WOKEN, NULL, NULL, 0);
  }
}

/* True when threads, perhaps dead ones, hold so many segments that the next ones may find none. */
bool
drain_is_short(const struct ct_drain *drain)
{
  uint32_t free_count = 0;
  for (uint32_t w = 0; w < CT_SEGMENT_MAX / 64; w++) {
    free_count += (uint32_t)__builtin_popcountll(__atomic_load_n(&drain->ring->free_map[w], __ATOMIC_RELAXED));
  }
  return free_count < drain->segment_count / 2;
}

static bool
has_holes(const struct retired *retired)
{
  uint64_t any = 0;
  for (size_t i = 0; i < CT_SEGMENT_EVENTS / 64; i++) {
    any |= retired->holes[i];
  }
  return any != 0;
}

/* The end of a segment's retirement. What has been written meanwhile into entries that were given up is lost. */
static void
recall(struct ct_drain *drain, const struct retired *retired)
{
  const struct ct_ring_event *events =
      (const struct ct_ring_event *)(drain->segments + (size_t)retired->index * CT_SEGMENT_STRIDE);
  for (uint32_t at = 0; at < CT_SEGMENT_EVENTS; at++) {
    if ((retired->holes[at / 64] >> (at % 64) & 1) != 0 && events[at].word != 0) {
      drain_drop(drain, NULL, CT_DROP_INTERRUPTED, 1);
      drain->infos[retired->info].dropped++; /* its thread may have ended */
    }
  }
  give_back(drain, retired->index);
}

/*
 * Gives a segment back late in which entries were given up: a hook that has reserved one, if it goes on after all,
 * shall not write into what is another thread's.
 */
static void
retire(struct ct_drain *drain, const struct retired *retired)
{
  uint32_t keep = drain_is_short(drain) ? 0 : drain->segment_count / 16;
  keep = keep > RETIRED_MAX ? RETIRED_MAX : keep;
  uint32_t count = 0;
  while (drain->retired_count - count > 0 && drain->retired_count - count >= keep) {
    recall(drain, &drain->retired[count++]);
  }
  drain->retired_count -= count;
  memmove(drain->retired, drain->retired + count, drain->retired_count * sizeof(drain->retired[0]));
  if (keep == 0) {
    recall(drain, retired);
  } else {
    drain->retired[drain->retired_count++] = *retired;
  }
}

static void
finish_segment(struct drain_thread *thread, uint32_t thread_seq)
{
  thread->next_seq = thread_seq + 1;
  thread->polled_seq = NO_SEGMENT_SEQ;
  thread->polled = thread->polled_events = 0;
  thread->held_seq = NO_SEGMENT_SEQ;
}

/* There is a full segment of the slot that was begun before that activation. */
static bool
has_earlier(const struct ct_drain *drain, uint32_t slot, uint64_t seq)
{
  bool has = false;
  for (uint32_t i = 0; i < drain->segment_count && !has; i++) {
    /* relaxed: the later one was seen with acquire, and with it that these were handed over */
    uint64_t word = __atomic_load_n(&drain->entries[i].state, __ATOMIC_RELAXED);
    has = CT_SEG_STATE(word) == CT_SEG_FULL && CT_SEG_SLOT(word) == slot && CT_SEG_SEQ(word) < seq;
  }
  return has;
}

/*
 * True when it is this segment's turn. A look at the table takes a while, and may miss a segment that is handed over
 * meanwhile but not the one after it. So where some seem to be missing it is looked again, now that this one is there:
 * what was handed over before it and is not found was taken.
 */
static bool
is_next(struct ct_drain *drain, struct drain_thread *thread, uint32_t slot, const struct ct_segment_entry *entry,
        bool final)
{
  if (entry->thread_seq == thread->next_seq) {
    return true;
  }
  if ((int32_t)(entry->thread_seq - thread->next_seq) < 0) {
    return false;
  }
  if (thread->held_seq != NO_SEGMENT_SEQ && __atomic_load_n(&drain->entries[thread->held].state, __ATOMIC_ACQUIRE) ==
                                                CT_SEG_WORD(CT_SEG_FULL, slot, thread->held_seq)) {
    return false; /* the one before waits for an entry to be written */
  }
  if (!final && has_earlier(drain, slot, CT_SEG_SEQ(entry->state))) {
    return false;
  }
  /* What was read of the stolen segment while it was active is not lost, though the thief has counted it. */
  drain->slot_reported[slot][CT_DROP_OVERWRITTEN] += thread->polled_events;
  drain_report_lost(drain, thread, slot, drain_thread_last(thread));
  finish_segment(thread, entry->thread_seq - 1);
  return true;
}

static size_t
end_of_run(const struct candidate *all, size_t at, size_t count)
{
  size_t end = at + 1;
  while (end < count && all[end - 1].seq <= all[end].seq) {
    end++;
  }
  return end;
}

/* Two runs become one; the first one's elements come first where both are alike. */
static void
merge_runs(const struct candidate *all, size_t begin, size_t middle, size_t end, struct candidate *out)
{
  size_t left = begin, right = middle;
  for (size_t at = begin; at < end; at++) {
    bool is_left = right == end || (left < middle && all[left].seq <= all[right].seq);
    out[at] = all[is_left ? left++ : right++];
  }
}

void
drain_sort_candidates(struct candidate *all, size_t count)
{
  static _Thread_local struct candidate spare[CT_SEGMENT_MAX];
  struct candidate *from = all, *to = spare;
  size_t runs;
  do {
    runs = 0;
    for (size_t at = 0, end; at < count; at = end, runs++) {
      size_t middle = end_of_run(from, at, count);
      if (at == 0 && middle == count) {
        break;
      }
      end = middle < count ? end_of_run(from, middle, count) : count;
      merge_runs(from, at, middle, end, to);
    }
    if (runs != 0) {
      struct candidate *swapped = from;
      from = to;
      to = swapped;
    }
  } while (runs > 1);
  if (from != all) {
    memcpy(all, from, count * sizeof(*all));
  }
}

size_t
drain_collect(const struct ct_drain *drain, unsigned state, struct candidate *out)
{
  size_t count = 0;
  for (uint32_t i = 0; i < drain->segment_count; i++) {
    uint64_t word = __atomic_load_n(&drain->entries[i].state, __ATOMIC_ACQUIRE);
    if (CT_SEG_STATE(word) == state) {
      out[count++] = (struct candidate){CT_SEG_SEQ(word), i};
    }
  }
  drain_sort_candidates(out, count);
  return count;
}

/* The segment's events are lost: it is of a thread that has passed, or for which there is no room. */
static void
drop_segment(struct ct_drain *drain, uint32_t index, uint32_t tag)
{
  const struct ct_ring_event *events =
      (const struct ct_ring_event *)(drain->segments + (size_t)index * CT_SEGMENT_STRIDE);
  uint64_t word, count = 0;
  for (uint32_t i = 0; i < CT_SEGMENT_EVENTS; i++) {
    count += is_whole(&events[i], tag, &word) && ct_word_is_event(word);
  }
  drain_drop(drain, NULL, drain->no_thread == CT_DROP_MEMORY ? CT_DROP_MEMORY : CT_DROP_NO_THREAD, count);
}

bool
drain_take_full(struct ct_drain *drain, const struct candidate *candidate, bool final)
{
  struct ct_segment_entry *entry = &drain->entries[candidate->index];
  uint64_t word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  uint32_t slot = CT_SEG_SLOT(word);
  if (CT_SEG_STATE(word) != CT_SEG_FULL || CT_SEG_SEQ(word) != candidate->seq || slot >= CT_SLOT_COUNT) {
    return false;
  }
  if (!final && drain_waits_for_rules(drain)) {
    return false;
  }
  struct ct_segment_entry seen;
  if (!peek(entry, word, &seen)) {
    return false;
  }
  uint32_t reserved = seen.reserved > CT_SEGMENT_EVENTS ? CT_SEGMENT_EVENTS : seen.reserved;
  struct drain_thread *thread = drain_thread_of(drain, slot, seen.generation);
  /* A position that has passed: never expected, but a segment must not stay out of use for good. */
  bool passed = thread != NULL && (int32_t)(seen.thread_seq - thread->next_seq) < 0;
  if (thread != NULL && !passed && !is_next(drain, thread, slot, &seen, final)) {
    return false;
  }
  uint64_t draining = CT_SEG_WORD(CT_SEG_DRAINING, slot, CT_SEG_SEQ(word));
  if (!__atomic_compare_exchange_n(&entry->state, &word, draining, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    return false;
  }
  if (passed) {
    uint32_t lost = events_among(
        (const struct ct_ring_event *)(drain->segments + (size_t)candidate->index * CT_SEGMENT_STRIDE), reserved);
    drain_drop(drain, thread, CT_DROP_INTERRUPTED, lost);
    ct_encode_lost(thread->encoder, drain_thread_last(thread), lost);
  } else if (thread != NULL) {
    struct retired late = {candidate->index, thread->info, {0}};
    uint64_t full_for = drain->now - drain->full[candidate->index].since;
    bool may_wait = drain->ring->lossless != 0 && full_for < SHORT_HOLD_NS; /* so may the others, then */
    enum on_hole on_hole = final || full_for >= HOLD_NS         ? HOLE_ABANDON
                           : drain_is_short(drain) && !may_wait ? HOLE_LOSE
                                                                : HOLE_WAIT;
    if (thread->polled_seq != candidate->seq) {
      thread->polled_seq = candidate->seq;
      thread->polled = thread->polled_events = 0;
    }
    if (!drain_whole(drain, thread, candidate->index, reserved, on_hole, &late)) {
      thread->held = candidate->index;
      thread->held_seq = candidate->seq;
      /* release: whoever takes it next sees what is wiped */
      __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FULL, slot, candidate->seq), __ATOMIC_RELEASE);
      return false;
    }
    finish_segment(thread, seen.thread_seq);
    if (on_hole == HOLE_ABANDON && !final && has_holes(&late)) {
      retire(drain, &late);
      return true;
    }
  } else {
    drop_segment(drain, candidate->index, seen.tag);
  }
  give_back(drain, candidate->index);
  return true;
}

/* What an active segment holds so far. */
size_t
drain_poll_active(struct ct_drain *drain, const struct candidate *candidate)
{
  struct ct_segment_entry *entry = &drain->entries[candidate->index];
  uint64_t word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  uint32_t slot = CT_SEG_SLOT(word);
  if (CT_SEG_STATE(word) != CT_SEG_ACTIVE || CT_SEG_SEQ(word) != candidate->seq || slot >= CT_SLOT_COUNT) {
    return 0;
  }
  struct ct_segment_entry seen;
  if (!peek(entry, word, &seen)) {
    return 0;
  }
  uint32_t tag = seen.tag;
  struct drain_thread *thread = drain_thread_of(drain, slot, seen.generation);
  if (thread == NULL || (seen.thread_seq != thread->next_seq && drain->full_count != 0)) {
    return 0; /* what seems to be missing before it may be among the full ones */
  }
  if (!is_next(drain, thread, slot, &seen, false)) {
    return 0;
  }
  if (thread->polled_seq != candidate->seq) {
    thread->polled_seq = candidate->seq;
    thread->polled = thread->polled_events = 0;
  }
  const struct ct_ring_event *events =
      (const struct ct_ring_event *)(drain->segments + (size_t)candidate->index * CT_SEGMENT_STRIDE);
  size_t count = 0;
  uint64_t event_word;
  for (uint32_t at = thread->polled; at < CT_SEGMENT_EVENTS && is_whole(&events[at], tag, &event_word); at++) {
    drain->copy[count++] = (struct ct_ring_event){events[at].tsc, event_word};
  }
  /* Still the same activation? Then nobody has written over what was copied. */
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  uint64_t after = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
  if (CT_SEG_SEQ(after) != candidate->seq || CT_SEG_STATE(after) == CT_SEG_FREE) {
    return 0;
  }
  if (count != 0 && drain_waits_for_rules(drain)) {
    return 0;
  }
  encode_events(drain, thread, drain->copy, count);
  thread->polled += (uint32_t)count;
  thread->polled_events += events_among(drain->copy, count);
  return count;
}

bool
drain_has_unread(const struct ct_drain *drain, uint32_t slot)
{
  const struct drain_thread *thread = drain->threads[slot];
  bool has = false;
  for (uint32_t i = 0; i < drain->segment_count && !has; i++) {
    uint64_t word = __atomic_load_n(&drain->entries[i].state, __ATOMIC_ACQUIRE), event;
    struct ct_segment_entry seen;
    if (CT_SEG_SLOT(word) != slot || CT_SEG_STATE(word) == CT_SEG_FREE) {
      continue;
    }
    const struct ct_ring_event *events =
        (const struct ct_ring_event *)(drain->segments + (size_t)i * CT_SEGMENT_STRIDE);
    uint32_t at = thread->polled_seq == CT_SEG_SEQ(word) ? thread->polled : 0;
    has = CT_SEG_STATE(word) != CT_SEG_ACTIVE || !peek(&drain->entries[i], word, &seen) ||
          seen.thread_seq != thread->next_seq || (at < CT_SEGMENT_EVENTS && is_whole(&events[at], seen.tag, &event));
  }
  return has;
}

/* The target is dead (or the thread is): the rest of its active segment, up to the last whole event. */
void
drain_take_dead(struct ct_drain *drain, const struct candidate *candidate)
{
  struct ct_segment_entry *entry = &drain->entries[candidate->index];
  uint64_t seen_word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  struct ct_segment_entry seen;
  uint32_t slot = CT_SEG_SLOT(seen_word);
  if (slot >= CT_SLOT_COUNT || CT_SEG_STATE(seen_word) != CT_SEG_ACTIVE || !peek(entry, seen_word, &seen)) {
    return;
  }
  struct drain_thread *thread = drain_thread_of(drain, slot, seen.generation);
  if (thread != NULL && is_next(drain, thread, slot, &seen, true)) {
    if (thread->polled_seq != candidate->seq) {
      thread->polled = thread->polled_events = 0;
    }
    struct ct_ring_event *events =
        (struct ct_ring_event *)(drain->segments + (size_t)candidate->index * CT_SEGMENT_STRIDE);
    uint32_t last = CT_SEGMENT_EVENTS;
    uint64_t word;
    while (last > thread->polled && !is_whole(&events[last - 1], seen.tag, &word)) {
      last--;
    }
    drain_whole(drain, thread, candidate->index, last, HOLE_ABANDON, NULL);
    finish_segment(thread, seen.thread_seq);
  } else if (drain->threads[slot] == NULL) { /* no room; of one that has passed what was here is read */
    drop_segment(drain, candidate->index, seen.tag);
  }
  give_back(drain, candidate->index);
}
