/* SPDX-License-Identifier: MIT */
/*
 * More live threads than segments: each segment is some thread's active one, and waiting for the drain helps nobody. A
 * thread that needs one then hands the segment of another over in its place, to the drain, which gives it back. It
 * takes those of threads that have recorded nothing for a while. The other finds no entry at its next hook and begins
 * another segment; nothing is lost by it.
 *
 * A hook reserves its entry by an xadd that is not locked, since the page is its thread's own. So:
 *
 *   1. compare-and-swap the other's cursor to 0, no entry
 *   2. membarrier: each thread of the process has left the instruction that it was in
 *   3. is the cursor in the segment again? Then the other's xadd had begun before and has overwritten ours: its
 *      segment stays its own. Else no entry can be reserved in it any more, and it is FULL.
 *
 * An entry that was reserved before and is not written yet is a hole like any other (drain/segments.c). hand_over sees
 * by the cursor that it has nothing to do.
 */
#include "agent/agent.h"

#define SYS_membarrier       324
#define MEMBARRIER_EXPEDITED 8 /* MEMBARRIER_CMD_PRIVATE_EXPEDITED, linux/membarrier.h */
#define MEMBARRIER_REGISTER  16
#define COUNT_MAX            64u /* segments at a time */
#define LOOK_PASSES          64u /* a look that has begun so long ago is nobody's: of before a fork */
#define PASSES_MIN           2u  /* of the drain's search for dead threads, without an event */
#define PASS_SHIFT           48

#define LOOKING 0x80000000u

/* The pass in which a look has begun, with LOOKING; 0: nobody looks. */
static uint32_t looking __attribute__((section(".data")));

struct taken {
  uint32_t index;
  uint64_t cursor;
  struct ct_control_page *control;
};

static int
is_entry_in(uint64_t cursor, uint64_t base)
{
  return (cursor & ~(uint64_t)(CT_SEGMENT_BYTES - 1)) == base;
}

static uint64_t
address_of(uint32_t index)
{
  return agent_config.ring + agent_ring()->segments_offset + (uint64_t)index * CT_SEGMENT_STRIDE;
}

/* Has the cursor stood where it is for some passes? entry->seen says where it was at the first pass, and when. */
static int
is_idle(struct ct_segment_entry *entry, uint64_t cursor)
{
  uint64_t pass = __atomic_load_n(&agent_ring()->reap_passes, __ATOMIC_RELAXED) & 0xffff;
  uint64_t seen = __atomic_load_n(&entry->seen, __ATOMIC_RELAXED);
  if ((seen & ((1ull << PASS_SHIFT) - 1)) == cursor) {
    return ((pass - (seen >> PASS_SHIFT)) & 0xffff) >= PASSES_MIN;
  }
  __atomic_store_n(&entry->seen, cursor | pass << PASS_SHIFT, __ATOMIC_RELAXED);
  return 0;
}

/* Step 1. */
static int
take_cursor(uint32_t index, struct taken *taken)
{
  struct ct_segment_entry *entry = segment_entry(index);
  uint64_t word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  if (CT_SEG_STATE(word) != CT_SEG_ACTIVE || CT_SEG_SLOT(word) >= CT_SLOT_COUNT) {
    return 0;
  }
  struct ct_control_page *control =
      (struct ct_control_page *)(agent_config.controls + (uint64_t)CT_SEG_SLOT(word) * CT_CONTROL_STRIDE);
  uint64_t cursor = __atomic_load_n(&control->cursor, __ATOMIC_RELAXED);
  if (control->magic != CT_CONTROL_MAGIC || !is_entry_in(cursor, address_of(index)) || !is_idle(entry, cursor)) {
    return 0;
  }
  *taken = (struct taken){index, cursor, control};
  return __atomic_compare_exchange_n(&control->cursor, &cursor, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Step 3. */
static int
give(const struct taken *taken)
{
  struct ct_segment_entry *entry = segment_entry(taken->index);
  uint64_t base = address_of(taken->index), word = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  if (is_entry_in(__atomic_load_n(&taken->control->cursor, __ATOMIC_ACQUIRE), base) ||
      CT_SEG_STATE(word) != CT_SEG_ACTIVE) {
    return 0;
  }
  uint64_t full = CT_SEG_WORD(CT_SEG_FULL, CT_SEG_SLOT(word), CT_SEG_SEQ(word));
  entry->reserved = (uint32_t)((taken->cursor - base) / CT_EVENT_BYTES);
  /* release: reserved is visible to whoever sees FULL */
  return __atomic_compare_exchange_n(&entry->state, &word, full, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* How many segments are on their way to the drain, or in its hands; most: as many, or more. */
static uint32_t
count_coming(uint32_t most)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->segment_count && count < most; i++) {
    unsigned state = CT_SEG_STATE(__atomic_load_n(&segment_entry(i)->state, __ATOMIC_RELAXED));
    count += state == CT_SEG_FULL || state == CT_SEG_DRAINING;
  }
  return count;
}

static int
fence(void)
{
  static int is_registered __attribute__((section(".data")));
  if (__atomic_load_n(&is_registered, __ATOMIC_RELAXED) == 0) {
    if (agent_syscall(SYS_membarrier, MEMBARRIER_REGISTER, 0, 0, 0, 0, 0) != 0) {
      return 0;
    }
    __atomic_store_n(&is_registered, 1, __ATOMIC_RELAXED);
  }
  return agent_syscall(SYS_membarrier, MEMBARRIER_EXPEDITED, 0, 0, 0, 0, 0) == 0;
}

/* One thread looks for all that wait. Is it us? */
static int
begin_look(void)
{
  uint32_t now = __atomic_load_n(&agent_ring()->reap_passes, __ATOMIC_RELAXED) & ~LOOKING;
  uint32_t since = __atomic_load_n(&looking, __ATOMIC_RELAXED);
  if (since != 0 && ((now - since) & ~LOOKING) < LOOK_PASSES) {
    return 0;
  }
  return __atomic_compare_exchange_n(&looking, &since, now | LOOKING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* As many as wait, or as fit. */
static int
relieve(void)
{
  static uint32_t last __attribute__((section(".data"))); /* where the search goes on */
  struct ct_ring_header *r = agent_ring();
  struct taken taken[COUNT_MAX];
  uint32_t count = 0, given = 0, most = __atomic_load_n(&r->free_waiters, __ATOMIC_RELAXED);
  most = most == 0 ? 1 : most < COUNT_MAX ? most : COUNT_MAX;
  uint32_t coming = count_coming(most);
  if (coming >= most || !fence()) { /* nobody's cursor is touched where that cannot be */
    return coming != 0;
  }
  most -= coming;
  uint32_t index = __atomic_load_n(&last, __ATOMIC_RELAXED);
  for (uint32_t looked = 0; looked < r->segment_count && count < most; looked++) {
    index = index + 1 < r->segment_count ? index + 1 : 0;
    count += (uint32_t)take_cursor(index, &taken[count]);
  }
  __atomic_store_n(&last, index, __ATOMIC_RELAXED);
  if (count != 0) {
    fence();
  }
  for (uint32_t i = 0; i < count; i++) {
    given += (uint32_t)give(&taken[i]);
  }
  return coming + given != 0;
}

int
agent_relieve(void)
{
  static int is_hopeful __attribute__((section(".data"))) = 1; /* as the last look has found */
  if (begin_look()) {
    __atomic_store_n(&is_hopeful, relieve(), __ATOMIC_RELAXED);
    __atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&is_hopeful, __ATOMIC_RELAXED);
}
