/* SPDX-License-Identifier: MIT */
/*
 * The segments of the detail lane. They pass between a thread and the drain as those of events do (agent.c), by the
 * state word. A thread takes a free one, or the full one that was begun first: what nobody has asked for is written
 * over. Where all of it is to be written (detail_waits) it waits for the drain first.
 */
#include "agent/agent.h"

static uint32_t
first_of(const struct ct_ring_header *r)
{
  return r->segment_count;
}

static uint32_t
take_free(struct ct_ring_header *r)
{
  static uint32_t last = UINT32_MAX;
  uint32_t taken = agent_take_bit(r->detail_free_map, (r->detail_count + 63) / 64, &last);
  return taken == CT_SEGMENT_NONE ? taken : first_of(r) + taken;
}

/* Takes the full segment that was begun first away. */
static uint32_t
take_oldest(struct ct_ring_header *r)
{
  struct ct_slot *victim;
  uint32_t index = agent_take_oldest(first_of(r), r->detail_count, &victim);
  if (index != CT_SEGMENT_NONE) {
    __atomic_fetch_add(&victim->detail_overwritten, 1, __ATOMIC_RELAXED);
  }
  return index;
}

void
agent_detail_hand_over(struct ct_control_page *control)
{
  uint64_t cursor = control->detail_cursor;
  uint32_t index = control->detail_segment;
  control->detail_cursor = 0;
  control->detail_segment = CT_SEGMENT_NONE;
  struct ct_ring_header *r = agent_ring();
  if (index - first_of(r) >= r->detail_count || cursor < control->detail_base) {
    return;
  }
  struct ct_segment_entry *entry = segment_entry(index);
  uint64_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
  if (CT_SEG_STATE(state) != CT_SEG_ACTIVE || CT_SEG_SLOT(state) != control->slot ||
      entry->generation != slot_of(control)->generation) {
    return; /* the drain has taken it: our slot's last owner is dead */
  }
  uint64_t used = cursor - control->detail_base;
  entry->reserved = (uint32_t)(used < CT_SEGMENT_STRIDE ? used : CT_SEGMENT_STRIDE);
  /* release: the records are visible to whoever sees FULL */
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FULL, control->slot, CT_SEG_SEQ(state)), __ATOMIC_RELEASE);
  slot_of(control)->detail_segment = CT_SEGMENT_NONE;
}

int
agent_next_detail(struct ct_control_page *control)
{
  struct ct_ring_header *r = agent_ring();
  struct ct_slot *slot = slot_of(control);
  if ((control->detail_cursor & CT_CURSOR_VALID) != 0) {
    return 1; /* somebody has seen to it already */
  }
  agent_detail_hand_over(control);
  if (r->detail_count == 0 || r->closed != 0) {
    return 0;
  }
  uint32_t index = take_free(r);
  if (index == CT_SEGMENT_NONE && r->detail_waits != 0 && r->lossless != 0 && !agent_is_silent()) {
    index = agent_wait_for(take_free);
  }
  if (index == CT_SEGMENT_NONE) {
    index = take_oldest(r);
  }
  if (index == CT_SEGMENT_NONE) {
    __atomic_fetch_add(&slot->detail_skipped, 1, __ATOMIC_RELAXED);
    return 0;
  }
  struct ct_segment_entry *entry = segment_entry(index);
  uint64_t seq = __atomic_fetch_add(&r->segment_seq, 1, __ATOMIC_RELAXED);
  int is_fresh = entry->tag == 0;
  entry->tag = 1;
  entry->reserved = 0;
  entry->thread_seq = slot->detail_seq++;
  entry->generation = slot->generation;
  /* release: whoever sees this activation sees its position */
  __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_ACTIVE, control->slot, seq), __ATOMIC_RELEASE);
  control->detail_base = agent_config.ring + r->segments_offset + (uint64_t)index * CT_SEGMENT_STRIDE;
  control->detail_segment = index;
  if (is_fresh && entry->thread_seq != 0) {
    agent_populate(control->detail_base);
  }
  /* First: a hook may have its record in an earlier segment than the tag is of (a handler came), never in a later one.
   */
  control->detail_tag = CT_DETAIL_TAG(entry->thread_seq);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  control->detail_cursor = control->detail_base;
  slot->detail_segment = index;
  return 1;
}
