/* SPDX-License-Identifier: MIT */
/*
 * A walk over the records of a segment (ring/itrace_stream.h): one after the other, each checked to lie in it.
 */
#ifndef CT_STEPS_STREAM_H
#define CT_STEPS_STREAM_H

#include "base/branch.h"
#include "steps/sizes.h"
#include "steps/units.h"

#include <string.h>
#include <sys/wait.h>

enum ct_record_kind {
  CT_RECORD_NONE,  /* the end */
  CT_RECORD_INSNS, /* instructions first to end - 1 of a unit */
  CT_RECORD_EVENT,
  CT_RECORD_DAMAGED /* what is there is no record */
};

struct ct_record {
  uint8_t kind;       /* enum ct_record_kind */
  uint8_t event_kind; /* enum ct_stream_kind */
  uint16_t first, end;
  uint32_t bytes;                   /* all of it */
  const struct ct_steps_plan *plan; /* of instructions */
  const uint8_t *data;              /* an event's; or the values of instruction 0, perhaps in front of the record */
};

/* What an event has at least, 0: there is no such kind. */
static inline uint32_t
ct_stream_event_bytes(unsigned kind)
{
  switch (kind) {
  case CT_STREAM_CONTEXT:
    return sizeof(struct ct_stream_context);
  case CT_STREAM_STEP:
    return sizeof(struct ct_stream_step);
  case CT_STREAM_SIGNAL:
    return sizeof(struct ct_stream_signal);
  case CT_STREAM_MEMORY:
    return sizeof(struct ct_stream_memory);
  case CT_STREAM_GAP:
    return sizeof(struct ct_stream_gap);
  case CT_STREAM_END:
    return sizeof(struct ct_stream_end);
  default:
    return 0;
  }
}

/* Of vectors and masks after a context, which lies at data. */
static inline size_t
ct_stream_context_rest(const struct ct_stream_context *context)
{
  return (size_t)context->vectors * context->vector_bytes + 8u * context->masks;
}

/* A context that is whole, with what follows it. */
bool ct_stream_context_is_good(const uint8_t *data, size_t bytes, struct ct_stream_context *out);

/* The events, and records that are parts. */
void ct_stream_take_other(struct ct_units *units, const uint8_t *at, size_t left, struct ct_record *out);

/* The record at `at`, of which left bytes are there. */
static inline void
ct_stream_take(struct ct_units *units, const struct ct_units_table *table, const uint8_t *at, size_t left,
               struct ct_record *out)
{
  uint32_t word;
  if (CT_UNLIKELY(left < sizeof(word))) {
    out->kind = left == 0 ? CT_RECORD_NONE : CT_RECORD_DAMAGED;
    return;
  }
  memcpy(&word, at, sizeof(word));
  if (CT_UNLIKELY((word & CT_STREAM_EVENT) != 0)) {
    ct_stream_take_other(units, at, left, out);
    return;
  }
  const struct ct_steps_plan *plan = ct_units_plan(units, table, word);
  if (CT_UNLIKELY(plan == NULL || left - sizeof(word) < plan->bytes)) {
    out->kind = CT_RECORD_DAMAGED;
    return;
  }
  out->kind = CT_RECORD_INSNS;
  out->plan = plan;
  out->first = 0;
  out->end = plan->insns;
  out->bytes = (uint32_t)sizeof(word) + plan->bytes;
  out->data = at + sizeof(word);
}

/* Does it begin with a context, but for a gap before it; or has it no instructions? */
bool ct_stream_begins(struct ct_units *units, const uint8_t *bytes, size_t size);

struct ct_stream_count {
  uint64_t steps;
  uint64_t first_tsc, last_tsc; /* of events that tell; 0: none does */
  bool is_whole;                /* ct_stream_begins, and it has no record that is none */
};
/* Walks over all of it; with stamps that tell where records begin, several times as fast. */
void ct_stream_count(struct ct_units *units, const uint8_t *bytes, size_t size, const struct ct_stream_stamp *stamps,
                     uint32_t stamp_count, struct ct_stream_count *out);
/*
 * The same by sizes alone. False: it cannot tell (parts of units, ids that are not known), and ct_stream_count has to.
 */
bool ct_stream_count_sized(const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
                           const struct ct_stream_stamp *stamps, uint32_t stamp_count, struct ct_stream_count *out);
/*
 * And lists where each record begins, in order, and then the end, into a list with CT_STREAM_LIST_ROOM(size) places.
 * Those lie in it, each at least 4 bytes after the one before, whatever the bytes become meanwhile.
 */
#define CT_STREAM_LIST_ROOM(size) ((size) / 4 + 32)
bool ct_stream_list_sized(const struct ct_unit_sizes *sizes, const uint8_t *bytes, size_t size,
                          const struct ct_stream_stamp *stamps, uint32_t stamp_count, uint32_t *list,
                          uint32_t *list_count, struct ct_stream_count *out);

/* Of the end: the signal that killed the thread, or its exit status. */
static inline int
ct_stream_end_code(const struct ct_stream_end *end)
{
  return WIFSIGNALED(end->status) ? WTERMSIG(end->status) : WEXITSTATUS(end->status);
}

#endif
