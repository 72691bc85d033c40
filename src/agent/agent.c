/* SPDX-License-Identifier: MIT */
/*
 * The agent: the little that runs inside the target besides the trampolines.
 *
 * Rules. It calls nothing of the target and has no libc, no TLS, no heap. It runs on a stack of
 * its own with all signals blocked (entry.S), so it is never re-entered on one thread. It only makes
 * raw system calls, and none at all once the target is under seccomp. It never ends its host: on any failure
 * it counts and answers "skip", and the call goes on unrecorded.
 *
 * Threads. A thread's control page is written by that thread alone. Segments pass between the thread and
 * the controller's drain through the state word of the segment table: ACTIVE -> FULL by the owner (release), FULL ->
 * DRAINING by the drain (acquire), or FULL -> ACTIVE by another thread that takes the oldest one because none is free.
 */
#include "agent/agent.h"

#include "ring/counters.h"

/* Steps are of 10 ms. */
#define FIRST_SEGMENT_STEPS 100  /* how long a new thread waits for its first segment at most */
#define HOPELESS_PASSES     1000 /* of the drain, while each segment is the active one of a thread that records */
#define CROWD               128 /* of threads that wait; for each as many a step is longer by one, they take turns ... */
#define CROWD_STEPS_MAX     8   /* ... up to that: each look costs, and most find nothing */
#define SILENT_STEPS        20  /* drain_liveness stood still for so long: is the controller there? */
#define SILENT_STEPS_MAX    1000 /* it is, and still nothing */
#define ABANDONED_ASKED     16   /* threads, whether they are dead; a system call each */
#define AWAY_TICKS_MIN      4096 /* a microsecond or two */

__attribute__((section(".data"), visibility("hidden"))) struct ct_agent_config agent_config = {.signal_mask = ~0ull};
__attribute__((section(".data"), visibility("hidden"), aligned(64))) struct ct_control_page agent_page_off = {
    .mode = CT_MODE_OFF, .countdown = 1};
__attribute__((section(".data"), visibility("hidden"), aligned(64))) struct ct_control_page agent_page_lookup = {
    .mode = CT_MODE_LOOKUP, .countdown = 1};

/* page_off, of threads on which the agent makes no system call. */
__attribute__((section(".data"), visibility("hidden"), aligned(64))) struct ct_control_page agent_page_silent = {
    .mode = CT_MODE_OFF, .countdown = 1, .silent = 1};

/* page_lookup, of threads that have found every slot taken. */
__attribute__((section(".data"), visibility("hidden"), aligned(64))) struct ct_control_page agent_page_no_slot = {
    .mode = CT_MODE_NO_SLOT, .countdown = 1};
/* What slots_freed was when all slots were last found taken, plus 1; and how many calls have not looked since. */
__attribute__((section(".data"), visibility("hidden"))) uint32_t agent_no_slot_since, agent_no_slot_calls = 1;

uint64_t agent_dead_drain __attribute__((section(".data"))) = ~0ull;
uint64_t agent_dead_controller __attribute__((section(".data"))) = ~0ull;

/* Wakes the drain if it sleeps. Pairs with the drain's store to drain_waiting before its last peek at the table. */
void
agent_wake_drain(void)
{
  struct ct_ring_header *r = agent_ring();
  __atomic_fetch_add(&r->drain_doorbell, 1, __ATOMIC_SEQ_CST);
  if (agent_is_silent()) {
    __atomic_store_n(&r->unwoken, 1, __ATOMIC_RELAXED);
  } else if (__atomic_load_n(&r->drain_waiting, __ATOMIC_SEQ_CST) != 0) {
    agent_syscall(SYS_futex, (long)&r->drain_doorbell, FUTEX_WAKE, 1, 0, 0, 0);
  }
}

/* The number of a bit of these that it took out of the word, 64: there is none. */
static uint32_t
take_of(uint64_t *word, uint64_t mask)
{
  for (uint64_t bits = __atomic_load_n(word, __ATOMIC_RELAXED) & mask; bits != 0; bits &= bits - 1) {
    uint64_t bit = bits & -bits;
    /* acquire: pairs with the drain's release when it gave the segment back */
    if ((__atomic_fetch_and(word, ~bit, __ATOMIC_ACQUIRE) & bit) != 0) {
      return (uint32_t)__builtin_ctzll(bit);
    }
  }
  return 64;
}

/*
 * The next one of the first CT_SEGMENT_ROUND, which are touched already; when these are taken, the lowest of all. Not
 * the one that was given back last: its lines are in the cache of the processor on which the drain has just read it,
 * and each would have to be fetched from there (100 ns). Round the others, they are in the cache that both share.
 */
uint32_t
agent_take_bit(uint64_t *map, uint32_t words, uint32_t *last)
{
  uint32_t from = __atomic_load_n(last, __ATOMIC_RELAXED) + 1, end = CT_SEGMENT_ROUND / 64;
  for (int turn = 0; turn < 2; turn++, from = 0, end = words) {
    for (uint32_t w = from / 64; w < words && w < end; w++) {
      uint32_t bit = take_of(&map[w], w == from / 64 ? ~0ull << (from % 64) : ~0ull);
      if (bit < 64) {
        __atomic_store_n(last, w * 64 + bit, __ATOMIC_RELAXED);
        return w * 64 + bit;
      }
    }
  }
  return CT_SEGMENT_NONE;
}

/* A free segment. */
static uint32_t
take_free(struct ct_ring_header *r)
{
  static uint32_t last = UINT32_MAX;
  return agent_take_bit(r->free_map, (r->segment_count + 63) / 64, &last);
}

uint32_t
agent_take_oldest(uint32_t first, uint32_t count, struct ct_slot **victim)
{
  const struct ct_ring_header *r = agent_ring();
  for (int attempt = 0; attempt < 16; attempt++) {
    uint32_t best = CT_SEGMENT_NONE;
    uint64_t best_word = 0;
    for (uint32_t i = first; i < first + count; i++) {
      uint64_t word = __atomic_load_n(&segment_entry(i)->state, __ATOMIC_ACQUIRE);
      if (CT_SEG_STATE(word) == CT_SEG_FULL && (best == CT_SEGMENT_NONE || word >> 16 < best_word >> 16)) {
        best = i;
        best_word = word;
      }
    }
    if (best == CT_SEGMENT_NONE) {
      return CT_SEGMENT_NONE;
    }
    uint64_t taken = CT_SEG_WORD(CT_SEG_DRAINING, CT_SEG_SLOT(best_word), CT_SEG_SEQ(best_word));
    uint64_t expected = best_word;
    if (__atomic_compare_exchange_n(&segment_entry(best)->state, &expected, taken, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      *victim = (struct ct_slot *)(agent_config.ring + r->slots_offset) + CT_SEG_SLOT(best_word) % CT_SLOT_COUNT;
      return best;
    }
  }
  return CT_SEGMENT_NONE;
}

static uint64_t
events_in(uint32_t index)
{
  uint64_t address = agent_config.ring + agent_ring()->segments_offset + (uint64_t)index * CT_SEGMENT_STRIDE, count = 0;
  const struct ct_ring_event *entries = (const struct ct_ring_event *)address;
  uint32_t reserved = segment_entry(index)->reserved;
  for (uint32_t i = 0; i < reserved && i < CT_SEGMENT_EVENTS; i++) {
    count += (uint64_t)ct_word_is_event(entries[i].word);
  }
  return count;
}

/* The full segment that was begun first, away from the drain; its events count as dropped. */
static uint32_t
take_oldest(void)
{
  struct ct_slot *victim;
  uint32_t index = agent_take_oldest(0, agent_ring()->segment_count, &victim);
  if (index != CT_SEGMENT_NONE) {
    __atomic_fetch_add(&victim->dropped_overwritten, events_in(index), __ATOMIC_RELAXED);
  }
  return index;
}

/*
 * Without a controller nobody finds out which threads are dead: takes the active segment of one that is. The look at
 * them goes on where the last one ended, and asks for some of them only: it is made at each call where all are alive.
 */
static uint32_t
take_abandoned(void)
{
  static uint32_t last __attribute__((section(".data")));
  struct ct_ring_header *r = agent_ring();
  const struct ct_slot *slots = (const struct ct_slot *)(agent_config.ring + r->slots_offset);
  uint32_t asked = 0;
  for (uint32_t looked = 0; looked < r->segment_count && asked < ABANDONED_ASKED; looked++) {
    uint32_t index = __atomic_fetch_add(&last, 1, __ATOMIC_RELAXED) % r->segment_count;
    struct ct_segment_entry *entry = segment_entry(index);
    uint64_t word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
    if (CT_SEG_STATE(word) != CT_SEG_ACTIVE) {
      continue;
    }
    const struct ct_slot *owner = &slots[CT_SEG_SLOT(word)];
    asked++;
    if (owner->generation == entry->generation &&
        agent_syscall(SYS_tgkill, (long)r->target_pid, (long)owner->tid, 0, 0, 0, 0) != -3 /* ESRCH */) {
      continue;
    }
    uint64_t taken = CT_SEG_WORD(CT_SEG_DRAINING, CT_SEG_SLOT(word), CT_SEG_SEQ(word));
    if (__atomic_compare_exchange_n(&entry->state, &word, taken, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      return index;
    }
  }
  return CT_SEGMENT_NONE;
}

/* How long drain_liveness has stood still in somebody's steps of 10 ms, and no segment has been freed. */
struct drain_patience {
  uint64_t last;
  uint32_t silent;
};

static struct drain_patience
drain_patience_now(void)
{
  return (struct drain_patience){__atomic_load_n(&agent_ring()->drain_liveness, __ATOMIC_RELAXED), 0};
}

/*
 * One step until the drain frees a segment, or some at once; returns how many. Nobody waits again for a drain that
 * stood still for long. One that frees segments is at work, be it for minutes in one round, for the disk; and where
 * many wait most get none of them.
 */
static uint32_t
wait_for_drain(uint32_t doorbell, struct drain_patience *patience)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t steps = 1 + __atomic_load_n(&r->free_waiters, __ATOMIC_RELAXED) / CROWD;
  steps = steps < CROWD_STEPS_MAX ? steps : CROWD_STEPS_MAX;
  struct agent_timespec wait = {0, (long)steps * 10 * 1000 * 1000};
  agent_wake_drain();
  agent_syscall(SYS_futex, (long)&r->free_doorbell, FUTEX_WAIT, doorbell, (long)&wait, 0, 0);
  uint64_t now = __atomic_load_n(&r->drain_liveness, __ATOMIC_RELAXED);
  int is_silent = now == patience->last && __atomic_load_n(&r->free_doorbell, __ATOMIC_RELAXED) == doorbell;
  uint32_t before = patience->silent;
  patience->silent = is_silent ? before + steps : 0;
  patience->last = now;
  if (patience->silent >= SILENT_STEPS_MAX ||
      (patience->silent / SILENT_STEPS > before / SILENT_STEPS && controller_is_gone())) {
    __atomic_store_n(&agent_dead_drain, now, __ATOMIC_RELAXED);
  }
  return steps;
}

/*
 * Waits until the drain has freed a segment that `take` finds, for at most steps times 10 ms and not when the
 * controller shows no signs of life, nor where the drain has nothing to free. With until_reaped also no longer than the
 * drain needs to find out which threads are dead, and we which are idle.
 */
static uint32_t
wait_for_free(uint32_t (*take)(struct ct_ring_header *), uint32_t steps, int until_reaped)
{
  struct ct_ring_header *r = agent_ring();
  struct drain_patience patience = drain_patience_now();
  uint32_t passes = __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED), hopeful = passes;
  while (steps > 0 && __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED) - hopeful < HOPELESS_PASSES &&
         controller_lives() && __atomic_load_n(&r->closed, __ATOMIC_RELAXED) == 0) {
    uint32_t waited = 1;
    uint32_t doorbell = __atomic_load_n(&r->free_doorbell, __ATOMIC_ACQUIRE);
    __atomic_fetch_add(&r->free_waiters, 1, __ATOMIC_SEQ_CST);
    uint32_t index = take(r);
    if (index == CT_SEGMENT_NONE) {
      if (take == take_free ? agent_relieve() : 1) {
        hopeful = __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED);
      }
      waited = wait_for_drain(doorbell, &patience);
      index = take(r);
    }
    steps -= waited < steps ? waited : steps;
    __atomic_fetch_sub(&r->free_waiters, 1, __ATOMIC_SEQ_CST);
    if (index != CT_SEGMENT_NONE) {
      return index;
    }
    /* The pass after the one that may have begun before us has seen who is dead, two more who is idle. */
    if (until_reaped && __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED) - passes >= 4) {
      break;
    }
  }
  return CT_SEGMENT_NONE;
}

uint32_t
agent_wait_for(uint32_t (*take)(struct ct_ring_header *))
{
  return wait_for_free(take, UINT32_MAX, 0);
}

/* True when so few segments are free that new threads should leave them to those that have events already. */
static int
few_are_free(void)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t count = 0;
  for (uint32_t w = 0; w < (r->segment_count + 63) / 64; w++) {
    for (uint64_t bits = __atomic_load_n(&r->free_map[w], __ATOMIC_RELAXED); bits != 0; bits &= bits - 1) {
      if (++count >= r->segment_count / 16) {
        return 0;
      }
    }
  }
  return 1;
}

/* Waits until more segments are free, or until the drain has looked for dead threads; at most steps times 10 ms. */
static void
wait_for_reaper(uint32_t steps)
{
  struct ct_ring_header *r = agent_ring();
  struct drain_patience patience = drain_patience_now();
  uint32_t passes = __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED);
  while (steps > 0 && controller_lives() && few_are_free() &&
         __atomic_load_n(&r->reap_passes, __ATOMIC_RELAXED) - passes < 2) {
    uint32_t doorbell = __atomic_load_n(&r->free_doorbell, __ATOMIC_ACQUIRE);
    __atomic_fetch_add(&r->free_waiters, 1, __ATOMIC_SEQ_CST);
    uint32_t waited = wait_for_drain(doorbell, &patience);
    __atomic_fetch_sub(&r->free_waiters, 1, __ATOMIC_SEQ_CST);
    steps -= waited < steps ? waited : steps;
  }
}

/*
 * A free segment, or the one that was begun first. For its first segment a thread waits when few are free: most are
 * then the active ones of threads that are dead, which the drain is about to find out. Others wait for room when that
 * was asked for (record does, unless --no-wait), or when there is nothing to be had otherwise.
 */
static uint32_t
find_segment(const struct ct_slot *slot, int *waited)
{
  int may_wait = !agent_is_silent();
  *waited = slot->thread_seq == 0 && may_wait && few_are_free();
  if (*waited) {
    wait_for_reaper(FIRST_SEGMENT_STEPS);
  }
  uint32_t index = take_free(agent_ring());
  if (index == CT_SEGMENT_NONE && may_wait && agent_ring()->lossless != 0) {
    *waited = 1;
    index = wait_for_free(take_free, UINT32_MAX, 0);
  }
  if (index == CT_SEGMENT_NONE) {
    index = take_oldest();
  }
  if (index == CT_SEGMENT_NONE && may_wait) {
    *waited = 1;
    index = wait_for_free(take_free, FIRST_SEGMENT_STEPS,
                          1); /* nothing to take: every segment is some thread's active one */
  }
  if (index == CT_SEGMENT_NONE && may_wait && !controller_lives()) {
    index = take_abandoned();
  }
  return index;
}

/* Hands the active segment over to the drain. Entries that are reserved and not written yet are the drain's to wait
 * for.
 */
static void
hand_over(struct ct_control_page *control)
{
  uint64_t cursor = control->cursor;
  uint32_t index = control->segment;
  control->segment = CT_SEGMENT_NONE;
  control->cursor = 0;
  if (index == CT_SEGMENT_NONE || cursor < control->segment_base) {
    return; /* none; or somebody else does it (relieve.c) */
  }
  struct ct_segment_entry *entry = segment_entry(index);
  uint64_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  if (CT_SEG_STATE(state) != CT_SEG_ACTIVE || CT_SEG_SLOT(state) != control->slot ||
      entry->generation != slot_of(control)->generation) {
    return; /* our slot's last owner is dead and the controller has taken its segment already */
  }
  uint64_t used = cursor - control->segment_base;
  entry->reserved = used > CT_SEGMENT_BYTES ? CT_SEGMENT_EVENTS : (uint32_t)(used / CT_EVENT_BYTES);
  /* release: the events and reserved are visible to whoever sees FULL */
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FULL, control->slot, CT_SEG_SEQ(state)), __ATOMIC_RELEASE);
  slot_of(control)->active_segment = CT_SEGMENT_NONE;
  agent_wake_drain();
}

static inline uint64_t
read_clock(void)
{
  uint32_t lo, hi;
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
  return (uint64_t)hi << 32 | lo;
}

/*
 * Appends one event to the active segment; the caller has made sure that there is room. Where signals are not blocked
 * (no system calls) a handler may take that room: then the event is lost.
 */
static void
put_event_at(struct ct_control_page *control, uint64_t tsc, uint32_t kind, uint32_t function, uint32_t ra_slot_low)
{
  uint64_t entry = CT_EVENT_BYTES;
  /* One instruction, as in the trampolines. */
  __asm__ volatile("xadd %0, %1" : "+r"(entry), "+m"(control->cursor) : : "cc", "memory");
  if ((entry & CT_CURSOR_VALID) == 0) {
    __atomic_fetch_add(&slot_of(control)->dropped_no_segment, 1, __ATOMIC_RELAXED);
    return;
  }
  struct ct_ring_event *event = (struct ct_ring_event *)(entry & ~(uint64_t)CT_WORD_TAG_MASK);
  event->tsc = tsc;
  uint64_t word = (uint64_t)ra_slot_low << 32 | function << CT_WORD_FN_SHIFT | kind << CT_WORD_KIND_SHIFT |
                  (entry & CT_WORD_TAG_MASK);
  __atomic_store_n(&event->word, word, __ATOMIC_RELEASE);
}

void
agent_put_event(struct ct_control_page *control, uint32_t kind, uint32_t function, uint32_t ra_slot_low)
{
  put_event_at(control, read_clock(), kind, function, ra_slot_low);
}

/* The thread waited for us from `since` until now. Too short a time is not reported. */
static void
put_away(struct ct_control_page *control, enum ct_ring_away kind, uint64_t since)
{
  uint64_t now = read_clock(), length = (now - since) >> CT_AWAY_SHIFT;
  if (now - since >= AWAY_TICKS_MIN) {
    put_event_at(control, now, CT_KIND_OTHER, (uint32_t)kind << 4 | CT_OTHER_AWAY,
                 length < UINT32_MAX ? (uint32_t)length : UINT32_MAX);
  }
}

/* Gives the thread a new active segment; 0 when there is none to be had. */
static int
next_segment(struct ct_control_page *control)
{
  struct ct_ring_header *r = agent_ring();
  struct ct_slot *slot = slot_of(control);
  uint64_t since = read_clock();
  hand_over(control);
  int waited;
  uint32_t index = find_segment(slot, &waited);
  if (index == CT_SEGMENT_NONE) {
    return 0;
  }
  struct ct_segment_entry *entry = segment_entry(index);
  uint64_t seq = __atomic_fetch_add(&r->segment_seq, 1, __ATOMIC_RELAXED);
  int is_fresh = entry->tag == 0;
  entry->tag = entry->tag >= 3 ? 1 : entry->tag + 1;
  entry->reserved = 0;
  entry->thread_seq = slot->thread_seq++;
  entry->generation = slot->generation;
  /* release: whoever sees this activation sees its tag and position */
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_ACTIVE, control->slot, seq), __ATOMIC_RELEASE);
  control->segment_base = agent_config.ring + r->segments_offset + (uint64_t)index * CT_SEGMENT_STRIDE;
  control->segment = index;
  if (is_fresh && entry->thread_seq != 0) { /* the first of a thread may never be filled */
    agent_populate(control->segment_base);
  }
  control->cursor = control->segment_base | entry->tag;
  slot->active_segment = index;
  if (waited) {
    put_away(control, CT_RING_AWAY_ROOM, since);
  }
  return 1;
}

/* Where in a block of calls its event is: 0 .. mask. Not by the clock, which a loop may fall into step with. */
static uint32_t
draw(struct ct_control_page *control, uint32_t mask)
{
  control->draw = control->draw * CT_DRAW_FACTOR + CT_DRAW_STEP;
  return control->draw >> 24 & mask;
}

/*
 * The thread's first block of calls of sampled hooks. The controller publishes a new interval in the ring's header
 * first and then in the pages of all threads that have one, so one that begins meanwhile looks twice.
 */
static void
begin_sampling(struct ct_control_page *control)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t log2;
  do {
    log2 = __atomic_load_n(&r->sample_log2, __ATOMIC_RELAXED) & 15;
    __atomic_store_n(&control->sample_log2, log2, __ATOMIC_SEQ_CST); /* before the next peek */
  } while ((__atomic_load_n(&r->sample_log2, __ATOMIC_SEQ_CST) & 15) != log2);
  control->draw = (uint32_t)read_clock(); /* all the chance that there is */
  draw(control, 0);                       /* the clock's low bits go up */
  uint32_t mask = (1u << log2) - 1, at = draw(control, mask);
  control->block = (uint64_t)log2 << 32 | (mask - at);
  control->countdown = (int32_t)at + 1;
}

/*
 * What the trampoline of a sampled hook and agent_sample_due do, where they cannot: counts the call. 0: it is not to be
 * recorded; else what its event says of its weight (CT_FN_WEIGHT).
 */
static uint32_t
count_sampled_call(struct ct_control_page *control)
{
  if (--control->countdown > 0) {
    return 0;
  }
  uint64_t block = control->block;
  uint32_t log2 = control->sample_log2 & 15;
  uint32_t mask = (1u << log2) - 1, at = draw(control, mask);
  control->block = (uint64_t)log2 << 32 | (mask - at);
  control->countdown += (int32_t)((uint32_t)block + at + 1);
  return (uint32_t)(block >> 32) + 1;
}

/* The slot is new to this thread, or its last owner has died: begin afresh. */
static void
register_thread(struct ct_control_page *control, uint32_t tid)
{
  struct ct_slot *slot;
  uint64_t index = ((uint64_t)control - agent_config.controls) / CT_CONTROL_STRIDE;
  control->slot = (uint32_t)index;
  if (control->magic == CT_CONTROL_MAGIC) {
    hand_over(control);
    agent_detail_hand_over(control);
  }
  slot = slot_of(control);
  control->segment = control->detail_segment = CT_SEGMENT_NONE;
  control->cursor = control->detail_cursor = 0;
  agent_set_stack(control, 0, 0);
  control->copies = 0;
  control->busy_skips = 0;
  control->storeless_lo = 0;
  control->storeless_len = 0;
  control->mistakable = 0;
  control->silent = 0;
  control->parked = 0;
  control->context = 0;
  control->stack_published = 0;
  control->table = agent_config.table;
  control->agent_sp = (uint64_t)control + CT_CONTROL_STRIDE;
  control->counters = agent_config.counters != 0 ? agent_config.counters + index * agent_config.counters_stride : 0;
  begin_sampling(control);
  slot->thread_seq = slot->detail_seq = 0;
  slot->skipped_busy = 0;
  slot->tid = tid;
  slot->active_segment = slot->detail_segment = CT_SEGMENT_NONE;
  __atomic_store_n(&slot->generation, slot->generation + 1, __ATOMIC_RELEASE);
  control->tid = tid;
  control->magic = CT_CONTROL_MAGIC;
  control->mode = CT_MODE_ON;
}

/*
 * Records that the thread is on another stack now, unless it is the one that the drain believes it to be on, and where
 * that stack lies: a hook that a signal handler interrupted may write its event after a switch that was none of its
 * own. Of a stack that is mistakable nothing is reported but that it is one, and again right before each of its events:
 * in between an interrupted hook may have written its own.
 */
void
agent_put_switch(struct ct_control_page *control, uint64_t stack_lo, uint64_t stack_len, uint32_t context, uint64_t sp)
{
  uint64_t pages = control->mistakable != 0 ? 0 : (stack_len + CT_PAGE_BYTES - 1) / CT_PAGE_BYTES;
  if (control->context != context + 1 || control->stack_published != stack_lo || control->mistakable != 0) {
    control->context = context + 1;
    control->stack_published = stack_lo;
    agent_put_event(control, CT_KIND_OTHER, context << 4 | CT_OTHER_SWITCH, (uint32_t)sp);
    agent_put_event(control, CT_KIND_OTHER, (uint32_t)(pages > 0x7fffff ? 0x7fffff : pages) << 4 | CT_OTHER_STACK,
                    (uint32_t)stack_lo);
  }
}

/* True when count events fit into the active segment, perhaps after a swap. */
int
agent_has_room(struct ct_control_page *control, uint32_t count)
{
  uint64_t cursor = control->cursor;
  if ((cursor & CT_CURSOR_VALID) != 0 &&
      cursor % CT_SEGMENT_BYTES + (uint64_t)count * CT_EVENT_BYTES <= CT_SEGMENT_BYTES) {
    return 1;
  }
  return next_segment(control);
}

/*
 * Is there an address with the low half of one in the range in the part of the stack that is mapped? The kernel maps
 * the main one from its upper end on, as it grows.
 */
static int
has_same_halves(const struct ct_stack_range *range, uint64_t lo, uint64_t len)
{
  if ((uint32_t)(range->lo - lo) >= len && (uint32_t)(lo - range->lo) >= range->hi - range->lo) {
    return 0;
  }
  uint64_t last = (uint32_t)(range->hi - 1 - lo);
  uint64_t page = (lo + (last < len ? last : len - 1)) & ~(uint64_t)(CT_PAGE_BYTES - 1);
  unsigned char in_memory;
  return agent_syscall(SYS_mincore, (long)page, CT_PAGE_BYTES, (long)&in_memory, 0, 0, 0) != -12; /* ENOMEM */
}

/*
 * Events have only the low half of their return-address slot. Is the thread on its stack for signal handlers, and could
 * what a hook writes that was interrupted on the stack before be mistaken for a call of the handler, since low halves
 * of both are the same? range becomes the handlers' stack, if it was more.
 */
static int
is_mistakable(struct ct_stack_range *range, uint64_t sp, uint64_t before_lo, uint64_t before_len)
{
  struct agent_signal_stack handlers = {0, 0, 0, 0};
  if (!has_same_halves(range, before_lo, before_len) ||
      agent_syscall(SYS_sigaltstack, 0, (long)&handlers, 0, 0, 0, 0) != 0 || sp - handlers.sp >= handlers.size) {
    return 0;
  }
  range->lo = handlers.sp > range->lo ? handlers.sp : range->lo;
  range->hi = handlers.sp + handlers.size < range->hi ? handlers.sp + handlers.size : range->hi;
  range->context = (uint32_t)(range->hi >> 12) & 0x7fffff;
  return has_same_halves(range, before_lo, before_len);
}

/*
 * sp is not on the thread's current stack: makes the one it is on current. 1: it has a return store. 0: it has none,
 * or is mistakable; calls on it are recorded by their enter only, from here.
 */
static int
enter_stack(struct ct_control_page *control, uint64_t sp)
{
  struct ct_stack_range range;
  uint64_t before_lo = control->stack_lo, before_len = control->stack_len != 0 ? control->stack_hi - before_lo : 0;
  uint32_t was_mistakable = control->mistakable;
  control->stack_len = 0;
  if (sp - control->storeless_lo < control->storeless_len) {
    if (was_mistakable == 0) {
      agent_put_switch(control, control->storeless_lo, control->storeless_len, control->storeless_context, sp);
    }
    return 0;
  }
  if (agent_is_silent() || agent_stack_range(control, sp, &range) == 0) {
    return 0;
  }
  control->mistakable = range.storeless == 0 && before_len != 0 && is_mistakable(&range, sp, before_lo, before_len);
  if (range.storeless != 0 || control->mistakable != 0) {
    control->storeless_lo = range.lo;
    control->storeless_len = range.hi - range.lo;
    control->storeless_context = range.context;
  }
  if (control->mistakable != 0) {
    return 0; /* put_point reports it */
  }
  agent_put_switch(control, range.lo, range.hi - range.lo, range.context, sp);
  if (range.storeless != 0) {
    return 0;
  }
  control->storeless_len = was_mistakable != 0 ? 0 : control->storeless_len;
  agent_set_stack(control, range.lo, range.hi - range.lo);
  return 1;
}

/*
 * glibc's and musl's longjmp take the registers from rdi, rsp at 0x30; glibc's is rotated by 17 bits and xor-ed with
 * the guard at fs:0x30, which leaves hardly one of 2^17 that looks like an address. slow_common has put rdi at sp - 56.
 */
static void
put_longjmp(struct ct_control_page *control, uint64_t sp)
{
  uint64_t registers = *(const uint64_t *)(sp - 56);
  uint64_t target = *(const uint64_t *)(registers + 0x30);
  if (target >> 47 != 0 || target % 8 != 0) {
    uint64_t guard;
    __asm__("mov %%fs:0x30, %0" : "=r"(guard));
    target = (target >> 17 | target << 47) ^ guard;
  }
  if (target - control->storeless_lo < control->storeless_len) {
    return; /* calls there have no frames; and the drain might take it for a place on the stack before */
  }
  if (target - control->stack_lo >= control->stack_len && (uint32_t)(target - control->stack_lo) < control->stack_len) {
    return; /* it looks as if it were on this stack */
  }
  if (agent_has_room(control, 1)) {
    agent_put_event(control, CT_KIND_OTHER, CT_OTHER_UNWIND, (uint32_t)target);
  }
}

/*
 * How many events are lost when this one is skipped: a call that is not called through gives no return either, one
 * that sampling passes over gives none.
 */
static uint64_t
events_of(struct ct_control_page *control, const struct ct_hook_desc *desc, uint32_t half)
{
  if (desc->mode == CT_HOOK_SAMPLED) {
    return count_sampled_call(control) != 0;
  }
  return half == 0 && desc->mode == CT_HOOK_FULL ? 2 : 1;
}

/* The event of a call on a stack without return store. */
static void
put_point(struct ct_control_page *control, const struct ct_hook_desc *desc, uint64_t sp)
{
  uint32_t weight = desc->mode == CT_HOOK_SAMPLED ? count_sampled_call(control) : 0;
  if (desc->mode != CT_HOOK_SAMPLED || weight != 0) {
    if (control->mistakable != 0) {
      agent_put_switch(control, control->storeless_lo, control->storeless_len, control->storeless_context, sp);
    }
    agent_put_event(control, CT_KIND_OTHER, desc->fn | weight << CT_FN_WEIGHT_SHIFT | CT_FN_POINT_BIT, (uint32_t)sp);
  }
}

/*
 * The slow path of a hook. half: 0 enter, 1 return, 2 a request, 3 longjmp; found: the page was looked up by the
 * thread's id. Answers CT_VERDICT_RETRY when the trampoline will succeed now, CT_VERDICT_SKIP when the event is not to
 * be recorded.
 */
uint64_t
agent_slow_path(struct ct_control_page *control, uint64_t sp, const struct ct_hook_desc *desc, uint32_t half,
                uint32_t tid, uint32_t found)
{
  /* A page found by our id while it was not parked belongs to a dead thread that had the same id. */
  if (control->magic != CT_CONTROL_MAGIC || control->tid != tid || (found != 0 && control->parked == 0)) {
    register_thread(control, tid);
  }
  control->parked = 0;
  control->mode = CT_MODE_ON;
  if (control->busy_skips != 0) { /* by handlers that came while we were here before */
    __atomic_fetch_add(&slot_of(control)->skipped_busy, __atomic_exchange_n(&control->busy_skips, 0, __ATOMIC_RELAXED),
                       __ATOMIC_RELAXED);
  }
  __atomic_store_n(&control->visits, control->visits + 1, __ATOMIC_RELAXED);
  if (half == CT_HALF_ENTER) {
    __atomic_store_n(&control->enters, control->enters + 1, __ATOMIC_RELEASE);
  }
  if (half == CT_HALF_REQUEST || half == CT_HALF_ITRACE) {
    uint64_t since = read_clock();
    int waited = half == CT_HALF_REQUEST ? agent_request(slot_of(control), desc, sp) : agent_itrace(control, desc, sp);
    /* A thread without events has no calls that this could be taken out of. */
    if (waited && control->segment != CT_SEGMENT_NONE && agent_ring()->closed == 0 && agent_has_room(control, 1)) {
      put_away(control, CT_RING_AWAY_HELD, since);
    }
    return CT_VERDICT_SKIP;
  }
  if (half == CT_HALF_DETAIL) {
    uint64_t since = read_clock();
    int found_room = agent_next_detail(control);
    if (agent_has_room(control, 3)) { /* what says where the record is, the return itself, and this: */
      put_away(control, CT_RING_AWAY_ROOM, since);
    }
    return found_room ? CT_VERDICT_RETRY : CT_VERDICT_SKIP;
  }
  if (half == CT_HALF_MAP || half == CT_HALF_REMAP) {
    agent_mappings_change(control, sp, desc);
  }
  if (half >= CT_HALF_COPY) {
    agent_stack_copied(control, sp, desc, half);
    return CT_VERDICT_SKIP;
  }
  if (agent_ring()->closed != 0) {
    control->stack_len = 0;
    control->cursor = 0;
    return CT_VERDICT_SKIP;
  }
  if (half == CT_HALF_LONGJMP) {
    put_longjmp(control, sp);
    return CT_VERDICT_SKIP;
  }
  /* As many as its trampoline asks for at most, else it would come here again and again. */
  if (!agent_has_room(control, desc->values == CT_HOOK_VALUES_FEW ? 1 + CT_VALUES_MAX : 3)) {
    __atomic_fetch_add(&slot_of(control)->dropped_no_segment, events_of(control, desc, half), __ATOMIC_RELAXED);
    return CT_VERDICT_SKIP;
  }
  if (desc->mode == CT_HOOK_STACKLESS || sp - control->stack_lo < control->stack_len || agent_goes_out(control, sp) ||
      enter_stack(control, sp)) {
    return CT_VERDICT_RETRY;
  }
  if (sp - control->storeless_lo < control->storeless_len) {
    if (half == 0 && desc->mode != CT_HOOK_PASSTHROUGH) {
      put_point(control, desc, sp);
    }
  } else {
    __atomic_fetch_add(&slot_of(control)->dropped_unsupported, events_of(control, desc, half), __ATOMIC_RELAXED);
  }
  return CT_VERDICT_SKIP;
}
