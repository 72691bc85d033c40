/* SPDX-License-Identifier: MIT */
/* A table of copies by key, where a new one takes the place of an old one with the same hash; see flows.h. */
#include "drain/flows.h"

#include <stdlib.h>

static uint32_t
new_context(struct drain_flows *flows)
{
  return FLOW_FIRST + flows->count++;
}

struct drain_flows *
drain_flows_create(uint32_t stack)
{
  struct drain_flows *flows = calloc(1, sizeof(*flows));
  if (flows != NULL) {
    flows->stack = flows->current = stack;
    flows->spare = new_context(flows);
  }
  return flows;
}

static uint32_t
hash(uint32_t number, uint32_t size)
{
  return (number * 2654435761u) >> 12 & (size - 1);
}

static struct flow_copy *
entry_of(struct drain_flows *flows, uint32_t key)
{
  return &flows->copies[hash(key, FLOW_COPIES)];
}

static void
note_end(struct drain_flows *flows, struct flow_copy *copy, uint32_t hi)
{
  copy->hi = hi;
  flows->by_end[hash(hi, FLOW_ENDS)] = (uint16_t)(copy - flows->copies);
}

/*
 * Of a flow that is away already a further part is copied, from lo on, when that is needed for another one. Its copy
 * may have been moved for that; then it is known by where its last part ended.
 */
static const struct flow_copy *
find_begun(const struct drain_flows *flows, uint32_t lo)
{
  const struct flow_copy *copy = &flows->copies[flows->by_end[hash(lo, FLOW_ENDS)]];
  return copy->is_used && !copy->is_back && copy->hi == lo ? copy : NULL;
}

void
drain_flows_out(struct drain_flows *flows, uint32_t key, uint32_t lo, uint32_t hi)
{
  struct flow_copy *entry = entry_of(flows, key);
  if (entry->is_used && entry->key == key && !entry->is_back) {
    note_end(flows, entry, hi); /* a further part of it */
    return;
  }
  const struct flow_copy *begun = find_begun(flows, lo);
  uint32_t context = begun != NULL ? begun->context : flows->current;
  *entry = (struct flow_copy){.key = key, .context = context, .is_used = true};
  note_end(flows, entry, hi);
  if (begun != NULL) {
    return;
  }
  if (flows->current == flows->spare) {
    flows->spare = new_context(flows);
  }
  flows->next = flows->spare;
  flows->has_next = true;
}

void
drain_flows_in(struct drain_flows *flows, uint32_t key, uint32_t hi)
{
  struct flow_copy *entry = entry_of(flows, key);
  if (!entry->is_used || entry->key != key) { /* from before the recording, or forgotten */
    *entry = (struct flow_copy){.key = key, .context = new_context(flows), .is_used = true};
    note_end(flows, entry, hi);
  }
  entry->is_back = true;
  flows->next = entry->context;
  flows->has_next = true;
}

uint32_t
drain_flows_reconcile(struct drain_flows *flows, bool is_empty)
{
  if (flows->has_next && is_empty && flows->next != flows->current) {
    flows->current = flows->next;
  }
  flows->has_next = false;
  return flows->current;
}
