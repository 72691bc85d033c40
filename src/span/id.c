/* SPDX-License-Identifier: MIT */
/* Ids of spans; <contrail/span.h> has their layout. Fields are put and taken from the lowest bit up. */
#include "span/id.h"

#include "trace/batch.h"

enum {
  TRACE_BITS = 6,
  PROCESS_CLASS_BITS = 3,
  THREAD_CLASS_BITS = 2,
  ID_BITS = 63,
  DEPTH_BITS_SMALL = 8,
  DEPTH_BITS = CT_ORDINAL_DEPTH_BITS
};
static const uint8_t process_bits[1 << PROCESS_CLASS_BITS] = {0, 2, 4, 6, 8, 12, 16, 20};
static const uint8_t thread_bits[1 << THREAD_CLASS_BITS] = {4, 8, 12, 17};

struct bits {
  uint64_t value;
  unsigned used;
  bool failed; /* there was not room for all */
};

static void
put(struct bits *bits, uint64_t value, unsigned width)
{
  bits->failed |= bits->used + width > ID_BITS || (width < 64 && value >> width != 0);
  if (!bits->failed && width != 0) {
    bits->value |= value << bits->used;
    bits->used += width;
  }
}

/* The smallest class whose width the value fits, and the value. */
static void
put_class(struct bits *bits, uint64_t value, const uint8_t *widths, unsigned class_bits)
{
  unsigned class = 0, last = (1u << class_bits) - 1;
  while (class < last && value >> widths[class] != 0) {
    class ++;
  }
  put(bits, class, class_bits);
  put(bits, value, widths[class]);
}

static uint64_t
take(struct bits *bits, unsigned width)
{
  uint64_t value = bits->value & ((1ull << width) - 1);
  bits->value >>= width;
  return value;
}

uint64_t
ct_span_id(const struct ct_span_place *place)
{
  struct bits bits = {0};
  if (place->ordinal == CT_NO_ORDINAL) {
    return 0;
  }
  put(&bits, place->trace != 0, 1);
  put(&bits, place->trace, place->trace != 0 ? TRACE_BITS : 0);
  put_class(&bits, place->process, process_bits, PROCESS_CLASS_BITS);
  put_class(&bits, place->thread, thread_bits, THREAD_CLASS_BITS);
  if (place->ordinal & CT_ORDINAL_BEFORE) {
    uint64_t depth = place->ordinal & ((1ull << DEPTH_BITS) - 1);
    bool is_deep = depth >> DEPTH_BITS_SMALL != 0;
    put(&bits, 1, 1);
    put(&bits, is_deep, 1);
    put(&bits, depth, is_deep ? DEPTH_BITS : DEPTH_BITS_SMALL);
    put(&bits, ((place->ordinal & ~CT_ORDINAL_BEFORE) >> DEPTH_BITS) + 1, ID_BITS - bits.used);
  } else {
    put(&bits, 0, 1);
    put(&bits, place->ordinal + 1, ID_BITS - bits.used);
  }
  return bits.failed ? 0 : bits.value;
}

void
ct_span_lane_init_at(struct ct_span_lane *lane, const struct ct_span_place *where)
{
  struct ct_span_place place = *where;
  place.ordinal = 0;
  *lane = (struct ct_span_lane){.place = *where};
  /* Of the first call the number is 1, in the bits above all others. */
  uint64_t first = ct_span_id(&place);
  if (first != 0) {
    lane->shift = 63u - (unsigned)__builtin_clzll(first);
    lane->prefix = first ^ 1ull << lane->shift;
    lane->end = (1ull << (ID_BITS - lane->shift)) - 1;
  }
}

void
ct_span_lane_init(struct ct_span_lane *lane, const struct ct_trace *trace, uint32_t thread)
{
  struct ct_span_place place = {.thread = thread};
  ct_trace_place(trace, &place.trace, &place.process);
  ct_span_lane_init_at(lane, &place);
}

uint64_t
ct_span_lane_other_id(const struct ct_span_lane *lane, uint64_t ordinal)
{
  struct ct_span_place place = lane->place;
  place.ordinal = ordinal;
  return ct_span_id(&place);
}

uint64_t
ct_span_id_in(const struct ct_trace *trace, uint32_t thread, uint64_t ordinal)
{
  struct ct_span_place place = {.thread = thread, .ordinal = ordinal};
  ct_trace_place(trace, &place.trace, &place.process);
  return ct_span_id(&place);
}

bool
ct_span_id_split(uint64_t id, struct ct_span_place *place)
{
  struct bits bits = {.value = id};
  struct ct_span_place found = {0};
  if (id == 0 || id >> ID_BITS != 0) {
    return false;
  }
  found.trace = take(&bits, 1) != 0 ? (uint32_t)take(&bits, TRACE_BITS) : 0;
  found.process = (uint32_t)take(&bits, process_bits[take(&bits, PROCESS_CLASS_BITS)]);
  found.thread = (uint32_t)take(&bits, thread_bits[take(&bits, THREAD_CLASS_BITS)]);
  if (take(&bits, 1) != 0) {
    uint64_t depth = take(&bits, take(&bits, 1) != 0 ? DEPTH_BITS : DEPTH_BITS_SMALL);
    found.ordinal = CT_ORDINAL_BEFORE | (bits.value - 1) << DEPTH_BITS | depth;
  } else {
    found.ordinal = bits.value - 1;
  }
  if (bits.value == 0 || ct_span_id(&found) != id) { /* the shortest form is the only one */
    return false;
  }
  *place = found;
  return true;
}
