/* SPDX-License-Identifier: MIT */
/* See lanes.h. Memory: 16 bytes for each stack that a thread has ever used. */
#include "export/lanes.h"

#include "base/error.h"

#include <stdlib.h>

static struct ct_export_lane *
find(struct ct_export_lane *table, uint32_t capacity, uint32_t context)
{
  uint32_t at = context * 2654435761u & (capacity - 1);
  while (table[at].number != 0 && table[at].context != context) {
    at = (at + 1) & (capacity - 1);
  }
  return &table[at];
}

static int
grow(struct ct_export_lanes *lanes)
{
  uint32_t capacity = lanes->capacity != 0 ? 2 * lanes->capacity : 64;
  struct ct_export_lane *table = calloc(capacity, sizeof(*table));
  if (table == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < lanes->capacity; i++) {
    if (lanes->table[i].number != 0) {
      *find(table, capacity, lanes->table[i].context) = lanes->table[i];
    }
  }
  free(lanes->table);
  lanes->table = table;
  lanes->capacity = capacity;
  return CT_OK;
}

int
ct_export_lane(struct ct_export_lanes *lanes, uint32_t context, uint32_t *number, bool *is_new)
{
  *is_new = false;
  *number = 0;
  if (context == 0) {
    return CT_OK;
  }
  if (lanes->last.number != 0 && lanes->last.context == context) {
    *number = lanes->last.number;
    return CT_OK;
  }
  if (2 * (lanes->count + 1) > lanes->capacity && grow(lanes) != CT_OK) {
    return CT_ENOMEM;
  }
  struct ct_export_lane *lane = find(lanes->table, lanes->capacity, context);
  if (lane->number == 0) {
    *lane = (struct ct_export_lane){context, ++lanes->count};
    *is_new = true;
  }
  lanes->last = *lane;
  *number = lane->number;
  return CT_OK;
}

void
ct_export_lanes_clear(struct ct_export_lanes *lanes)
{
  free(lanes->table);
  *lanes = (struct ct_export_lanes){0};
}
