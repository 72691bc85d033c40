/* SPDX-License-Identifier: MIT */
/* See stream.h. */
#include "steps/stream.h"

#include "base/branch.h"

bool
ct_stream_context_is_good(const uint8_t *data, size_t bytes, struct ct_stream_context *out)
{
  struct ct_stream_context context;
  if (bytes < sizeof(context)) {
    return false;
  }
  memcpy(&context, data, sizeof(context));
  bool vectors = context.vectors == 0 || context.vectors == 16 || context.vectors == 32;
  bool each =
      context.vectors == 0 || context.vector_bytes == 16 || context.vector_bytes == 32 || context.vector_bytes == 64;
  bool masks = context.masks == 0 || context.masks == 8;
  if (!vectors || !each || !masks || bytes - sizeof(context) < ct_stream_context_rest(&context)) {
    return false;
  }
  *out = context;
  return true;
}

static bool
event_is_good(unsigned kind, const uint8_t *at, uint32_t bytes)
{
  struct ct_stream_context context;
  struct ct_stream_step step;
  uint32_t least = ct_stream_event_bytes(kind);
  if (least == 0 || bytes < least) {
    return false;
  }
  if (kind == CT_STREAM_CONTEXT) {
    return ct_stream_context_is_good(at, bytes, &context);
  }
  if (kind == CT_STREAM_STEP) {
    memcpy(&step, at, sizeof(step));
    return step.length <= sizeof(step.code);
  }
  return true;
}

static void
take_part(struct ct_units *units, const uint8_t *at, size_t left, struct ct_record *out)
{
  struct ct_stream_part part;
  const struct ct_steps_plan *plan = NULL;
  out->kind = CT_RECORD_DAMAGED;
  if (left >= sizeof(part)) {
    memcpy(&part, at, sizeof(part));
    plan = part.word == CT_STREAM_PART && units != NULL ? ct_units_decode(units, part.unit) : NULL;
  }
  if (plan == NULL || part.first > part.end || part.end > plan->insns) {
    return;
  }
  uint32_t begin = part.first < plan->insns ? plan->insn[part.first].at : plan->bytes;
  uint32_t end = part.end < plan->insns ? plan->insn[part.end].at : plan->bytes;
  if (left - sizeof(part) < end - begin) {
    return;
  }
  *out = (struct ct_record){.kind = CT_RECORD_INSNS,
                            .plan = plan,
                            .first = part.first,
                            .end = part.end,
                            .bytes = (uint32_t)sizeof(part) + (end - begin),
                            .data = at + sizeof(part) - begin};
}

void
ct_stream_take_other(struct ct_units *units, const uint8_t *at, size_t left, struct ct_record *out)
{
  struct ct_stream_event event;
  out->kind = CT_RECORD_DAMAGED;
  if (left < sizeof(event)) {
    return;
  }
  memcpy(&event, at, sizeof(event));
  if ((event.word & CT_STREAM_PART) == CT_STREAM_PART) {
    take_part(units, at, left, out);
    return;
  }
  unsigned kind = event.word & ~CT_STREAM_EVENT;
  if (event.bytes > left || !event_is_good(kind, at, event.bytes)) {
    return;
  }
  *out = (struct ct_record){.kind = CT_RECORD_EVENT, .event_kind = (uint8_t)kind, .bytes = event.bytes, .data = at};
}

bool
ct_stream_begins(struct ct_units *units, const uint8_t *bytes, size_t size)
{
  const uint8_t *at = bytes, *end = bytes + size;
  struct ct_record record;
  do {
    ct_stream_take(units, ct_units_table(units), at, (size_t)(end - at), &record);
    at += record.kind == CT_RECORD_EVENT ? record.bytes : 0;
  } while (record.kind == CT_RECORD_EVENT &&
           (record.event_kind == CT_STREAM_GAP || record.event_kind == CT_STREAM_END));
  return record.kind == CT_RECORD_NONE || (record.kind == CT_RECORD_EVENT && record.event_kind == CT_STREAM_CONTEXT);
}

/* Its time stamp: all but CT_STREAM_MEMORY have one. */
static void
note_time(const struct ct_record *record, struct ct_stream_count *count)
{
  uint64_t tsc;
  if (record->event_kind == CT_STREAM_MEMORY) {
    return;
  }
  memcpy(&tsc, record->data + sizeof(struct ct_stream_event), sizeof(tsc));
  count->first_tsc = count->first_tsc == 0 || tsc < count->first_tsc ? tsc : count->first_tsc;
  count->last_tsc = tsc > count->last_tsc ? tsc : count->last_tsc;
}

static void
note_record(const struct ct_record *record, struct ct_stream_count *count)
{
  if (record->kind == CT_RECORD_INSNS) {
    count->steps += (uint64_t)record->end - record->first;
  } else {
    count->steps += record->event_kind == CT_STREAM_STEP;
    note_time(record, count);
  }
}

/* One record after the other. */
static void
count_in_order(struct ct_units *units, const uint8_t *bytes, size_t size, struct ct_stream_count *count)
{
  const struct ct_units_table *table = ct_units_table(units);
  const uint8_t *at = bytes, *end = bytes + size;
  struct ct_record record = {.kind = CT_RECORD_NONE};
  bool begins = ct_stream_begins(units, bytes, size);
  for (ct_stream_take(units, table, at, (size_t)(end - at), &record);
       record.kind == CT_RECORD_INSNS || record.kind == CT_RECORD_EVENT;
       ct_stream_take(units, table, at, (size_t)(end - at), &record)) {
    note_record(&record, count);
    at += record.bytes;
  }
  count->is_whole = begins && record.kind == CT_RECORD_NONE;
}

/*
 * Where a record is depends on the one before it, so a walk waits for each in turn. Walks from several places do not
 * wait for each other. That all were records is known when each walk ends exactly where the next one began.
 */
enum { LANES = 8 };

struct lane {
  const uint8_t *at, *end;
};

static uint32_t
divide(const uint8_t *bytes, size_t size, const struct ct_stream_stamp *stamps, uint32_t stamp_count,
       struct lane lanes[LANES])
{
  uint32_t count = 0;
  const uint8_t *begin = bytes;
  for (uint32_t i = 1; i < LANES && stamp_count >= LANES; i++) {
    uint64_t at = stamps[(uint64_t)stamp_count * i / LANES].at;
    if (at < size && bytes + at > begin) {
      lanes[count++] = (struct lane){begin, bytes + at};
      begin = bytes + at;
    }
  }
  lanes[count++] = (struct lane){begin, bytes + size};
  return count;
}

/* False: a lane does not end where it should. */
static bool
count_lanes(struct ct_units *units, struct lane lanes[LANES], uint32_t lane_count, struct ct_stream_count *count)
{
  const struct ct_units_table *table = ct_units_table(units);
  uint64_t steps = 0;
  while (lane_count > 0) {
    for (uint32_t i = 0; i < lane_count; i++) {
      struct lane *lane = &lanes[i];
      size_t left = (size_t)(lane->end - lane->at);
      uint32_t word = 0;
      if (CT_LIKELY(left >= sizeof(word))) {
        memcpy(&word, lane->at, sizeof(word));
      }
      const struct ct_units_slot *slot = &table->slots[word & table->mask];
      if (CT_LIKELY(slot->id == word && slot->bytes != 0 && slot->bytes <= left)) {
        steps += slot->insns;
        lane->at += slot->bytes;
        continue;
      }
      struct ct_record record;
      ct_stream_take(units, table, lane->at, left, &record);
      if (record.kind == CT_RECORD_NONE) {
        *lane = lanes[--lane_count];
      } else if (record.kind == CT_RECORD_DAMAGED) {
        return false;
      } else {
        note_record(&record, count);
        lane->at += record.bytes;
      }
    }
  }
  count->steps += steps;
  return true;
}

void
ct_stream_count(struct ct_units *units, const uint8_t *bytes, size_t size, const struct ct_stream_stamp *stamps,
                uint32_t stamp_count, struct ct_stream_count *out)
{
  struct lane lanes[LANES];
  struct ct_stream_count count = {.steps = 0};
  count.is_whole = ct_stream_begins(units, bytes, size);
  if (!count.is_whole || !count_lanes(units, lanes, divide(bytes, size, stamps, stamp_count, lanes), &count)) {
    count = (struct ct_stream_count){.steps = 0};
    count_in_order(units, bytes, size, &count);
  }
  *out = count;
}

/* ---- by sizes ---- */

/*
 * How far ahead of each lane the bytes are fetched: the traced thread has just written them on another processor, and
 * this walk is the first to touch them here.
 */
enum { AHEAD_BYTES = 1536 };

/* The event there; false: it is none. */
static bool
take_event(const uint8_t *at, size_t left, struct ct_record *record)
{
  uint32_t word = 0;
  if (left >= sizeof(word)) {
    memcpy(&word, at, sizeof(word));
  }
  if ((word & CT_STREAM_PART) != CT_STREAM_EVENT) {
    return false;
  }
  /* Without units no part is taken, also where the target has made one of it since: the bytes may be shared with it. */
  ct_stream_take_other(NULL, at, left, record);
  return record->kind == CT_RECORD_EVENT;
}

/* As ct_stream_begins. */
static bool
begins_with_context(const uint8_t *bytes, size_t size)
{
  struct ct_record record;
  for (size_t at = 0; take_event(bytes + at, size - at, &record); at += record.bytes) {
    if (record.event_kind == CT_STREAM_CONTEXT) {
      return true;
    }
    if (record.event_kind != CT_STREAM_GAP && record.event_kind != CT_STREAM_END) {
      break;
    }
  }
  return false;
}

/* Where the records of a lane begin goes, in order. */
struct lane_list {
  uint32_t *next;
  uint32_t number; /* of the lane */
};

/* lists: of each lane, for ends, where each of them ends; NULL: none are made. */
static inline __attribute__((always_inline)) bool
walk_sized(const struct ct_unit_sizes *sizes, const uint8_t *bytes, struct lane lanes[LANES], uint32_t lane_count,
           struct lane_list *lists, uint32_t **ends, struct ct_stream_count *count)
{
  uint64_t steps = 0;
  while (lane_count > 0) {
    for (uint32_t i = 0; i < lane_count; i++) {
      struct lane *lane = &lanes[i];
      size_t left = (size_t)(lane->end - lane->at);
      uint32_t word = 0;
      if (CT_LIKELY(left >= sizeof(word))) {
        memcpy(&word, lane->at, sizeof(word));
      }
      if (lists != NULL) {
        *lists[i].next = (uint32_t)(lane->at - bytes);
      }
      uint32_t known = ct_unit_sizes_of(sizes, word);
      if (CT_LIKELY(known != 0 && known >> 8 <= left)) {
        __builtin_prefetch(lane->at + AHEAD_BYTES);
        steps += known & 0xff;
        lane->at += known >> 8;
      } else if (left == 0) {
        *lane = lanes[--lane_count];
        if (lists != NULL) {
          ends[lists[i].number] = lists[i].next;
          lists[i] = lists[lane_count];
        }
        continue;
      } else {
        struct ct_record record;
        if (!take_event(lane->at, left, &record)) {
          return false;
        }
        note_record(&record, count);
        lane->at += record.bytes;
      }
      if (lists != NULL) {
        lists[i].next++;
      }
    }
  }
  count->steps += steps;
  return true;
}

bool
ct_stream_count_sized(const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
                      const struct ct_stream_stamp *stamps, uint32_t stamp_count, struct ct_stream_count *out)
{
  struct lane lanes[LANES];
  struct ct_stream_count count = {.is_whole = true};
  uint32_t lane_count = divide(bytes, size, stamps, stamp_count, lanes);
  if (!begins_with_context(bytes, size) || !walk_sized(sizes, bytes, lanes, lane_count, NULL, NULL, &count)) {
    return false;
  }
  *out = count;
  return true;
}

bool
ct_stream_list_sized(const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
                     const struct ct_stream_stamp *stamps, uint32_t stamp_count, uint32_t *list, uint32_t *list_count,
                     struct ct_stream_count *out)
{
  struct lane lanes[LANES];
  struct lane_list lists[LANES];
  uint32_t *begins[LANES], *ends[LANES];
  struct ct_stream_count count = {.is_whole = true};
  uint32_t lane_count = divide(bytes, size, stamps, stamp_count, lanes);
  for (uint32_t i = 0; i < lane_count; i++) { /* a record has 4 bytes at least; one place more is written to */
    begins[i] = list + (size_t)(lanes[i].at - bytes) / 4 + 2 * (size_t)i;
    lists[i] = (struct lane_list){begins[i], i};
  }
  if (size >= UINT32_MAX || !begins_with_context(bytes, size) ||
      !walk_sized(sizes, bytes, lanes, lane_count, lists, ends, &count)) {
    return false;
  }
  uint32_t *to = list;
  for (uint32_t i = 0; i < lane_count; i++) {
    size_t each = (size_t)(ends[i] - begins[i]);
    memmove(to, begins[i], each * sizeof(*to));
    to += each;
  }
  *to = (uint32_t)size;
  *list_count = (uint32_t)(to - list);
  *out = count;
  return true;
}
