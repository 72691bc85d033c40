/* SPDX-License-Identifier: MIT */
/*
 * Which granules of a thread have to do with some functions, or with what is rare, and what is known where one begins.
 *
 * A granule says which functions' calls ended in it. One that ended there and was open at its begin began in an earlier
 * one, which its ordinal leads to, and was open all the way. Frames that nobody counted were open from the begin on.
 */
#include "index/index_internal.h"

#include "span/stacks.h"

#include <stdlib.h>

uint64_t
ct_granule_of_ordinal(const struct ct_index_part *part, uint64_t ordinal)
{
  uint64_t low = 0, high = part->granule_count;
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (part->granules[middle].first_ordinal <= ordinal) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct search {
  const struct ct_index *index;
  const struct ct_index_part *part;
  struct ct_granule_wanted wanted;
  struct ct_span_stacks stacks; /* of the granule in hand */
  uint64_t earliest;            /* granule in which one of the calls began that are open later */
};

static bool
is_asked_for(const struct search *s, uint32_t fn)
{
  return s->wanted.functions[fn < s->wanted.fn_count ? fn : s->wanted.fn_count] != 0;
}

static bool
has_ends(const struct search *s, const struct ct_granule *g)
{
  const uint8_t *at = s->part->blob + g->blob + g->state_bytes;
  uint64_t most;
  return ct_granule_has(at, at + g->function_bytes, &s->wanted, &most);
}

static int
note_begins(struct ct_span_stack *stack, void *arg)
{
  struct search *s = arg;
  for (uint32_t i = 0; i < stack->count; i++) {
    const struct ct_span_frame *frame = &stack->frames[i];
    if (is_asked_for(s, frame->fn)) {
      bool is_counted = (frame->ordinal & CT_ORDINAL_BEFORE) == 0;
      uint64_t begin = is_counted ? ct_granule_of_ordinal(s->part, frame->ordinal) : 0;
      s->earliest = begin < s->earliest ? begin : s->earliest;
    }
  }
  return 0;
}

/* From the last granule to the first. */
static int
search(struct search *s, uint8_t *wanted)
{
  s->earliest = s->part->granule_count;
  for (uint64_t i = s->part->granule_count; i-- > 0;) {
    const struct ct_granule *g = &s->part->granules[i];
    bool has = has_ends(s, g);
    if (has && g->state_bytes != 0) {
      struct ct_span_clock clock;
      int code = ct_span_state_take(s->part->blob + g->blob, g->state_bytes, &s->stacks, &clock);
      code = code == 0 ? ct_span_stacks_each(&s->stacks, note_begins, s) : code;
      if (code != 0) {
        return code;
      }
    }
    wanted[i] = has || i >= s->earliest || (g->flags & CT_GRANULE_MARKS) != 0;
  }
  return 0;
}

int
ct_index_granules_of(const struct ct_index *index, uint32_t thread, const uint8_t *functions, uint8_t **wanted,
                     size_t *count)
{
  struct search s = {.index = index,
                     .part = &index->threads[thread].part,
                     .wanted = ct_granule_wanted(functions, index->stats.fn_count)};
  uint8_t *bytes = calloc(s.part->granule_count + 1, 1);
  if (bytes == NULL || ct_span_stacks_init(&s.stacks) != 0) {
    free(bytes);
    return CT_ENOMEM;
  }
  int code = search(&s, bytes);
  ct_span_stacks_destroy(&s.stacks);
  if (code != 0) {
    free(bytes);
    return code;
  }
  *wanted = bytes;
  *count = s.part->granule_count;
  return 0;
}

static bool
is_asked_about(const struct ct_index *index, const struct ct_granule *g, const struct ct_granules_asked *asked)
{
  return (asked->least_ns != 0 && ct_trace_ticks_ns(index->trace, g->max_ticks) >= asked->least_ns) ||
         (asked->unfinished && (g->flags & CT_GRANULE_UNFINISHED) != 0) ||
         (asked->marks && (g->flags & CT_GRANULE_MARKS) != 0);
}

int
ct_index_granules_with(const struct ct_index *index, uint32_t thread, const struct ct_granules_asked *asked,
                       uint8_t **wanted, size_t *count)
{
  const struct ct_index_part *part = &index->threads[thread].part;
  uint8_t *bytes = calloc(part->granule_count + 1, 1);
  size_t moment = 0;
  if (bytes == NULL) {
    return CT_ENOMEM;
  }
  for (uint64_t i = 0; i < part->granule_count; i++) {
    bool is_last = i + 1 == part->granule_count;
    bytes[i] |= is_asked_about(index, &part->granules[i], asked);
    for (; moment < asked->moment_count && (is_last || asked->moments[moment] <= part->granules[i + 1].first_tsc);
         moment++) {
      bytes[i] = 1; /* at its very end: the next one may begin with that */
      bytes[i + 1] = !is_last;
    }
    if (i > 0) {
      bytes[i - 1] |= bytes[i];
    }
  }
  *wanted = bytes;
  *count = part->granule_count;
  return 0;
}

void
ct_index_place(const struct ct_index *index, uint32_t thread, size_t granule, struct ct_index_place *place)
{
  const struct ct_index_part *part = &index->threads[thread].part;
  const struct ct_granule *g = &part->granules[granule];
  *place = (struct ct_index_place){.offset = g->offset,
                                   .first_tsc = g->first_tsc,
                                   .first_ordinal = g->first_ordinal,
                                   .state = part->blob + g->blob,
                                   .state_bytes = g->state_bytes};
}

void
ct_index_extent(const struct ct_index *index, uint32_t thread, struct ct_index_extent *extent)
{
  const struct ct_index_part *part = &index->threads[thread].part;
  *extent = (struct ct_index_extent){.least_depth = UINT32_MAX};
  for (uint64_t i = 0; i < part->granule_count; i++) {
    const struct ct_granule *g = &part->granules[i];
    extent->longest = g->max_ticks > extent->longest ? g->max_ticks : extent->longest;
    extent->least_depth = g->least_depth < extent->least_depth ? g->least_depth : extent->least_depth;
    extent->most_depth = g->most_depth > extent->most_depth ? g->most_depth : extent->most_depth;
  }
}

/* ---- what is open where a range begins ---- */

struct past {
  struct ct_trace_past_frame *frames;
  size_t count, capacity;
};

static int
add_stack(struct ct_span_stack *stack, void *arg)
{
  struct past *past = arg;
  for (uint32_t i = 0; i < stack->count; i++) {
    if (past->count == past->capacity) {
      size_t capacity = past->capacity == 0 ? 64 : past->capacity * 2;
      struct ct_trace_past_frame *frames = reallocarray(past->frames, capacity, sizeof(*frames));
      if (frames == NULL) {
        return CT_ENOMEM;
      }
      past->frames = frames;
      past->capacity = capacity;
    }
    const struct ct_span_frame *frame = &stack->frames[i];
    past->frames[past->count++] =
        (struct ct_trace_past_frame){.enter_tsc = frame->enter_tsc,
                                     .call = frame->ordinal != CT_NO_ORDINAL ? frame->ordinal + 1 : 0,
                                     .context = (uint32_t)stack->context,
                                     .depth = stack->base + i,
                                     .fn = frame->fn,
                                     .uncertain = (frame->flags & CT_SPAN_UNCERTAIN) != 0};
  }
  return 0;
}

static int
by_place(const void *a, const void *b)
{
  const struct ct_trace_past_frame *x = a, *y = b;
  if (x->context != y->context) {
    return x->context < y->context ? -1 : 1;
  }
  return (x->depth > y->depth) - (x->depth < y->depth);
}

int
ct_index_give_past(const struct ct_index *index, uint32_t thread, uint64_t from_tsc)
{
  const struct ct_index_part *part = &index->threads[thread].part;
  struct ct_span_stacks stacks;
  struct ct_span_clock clock;
  struct past past = {NULL};
  uint64_t last = 0;
  while (last + 1 < part->granule_count && part->granules[last].last_tsc < from_tsc) {
    last++;
  }
  const struct ct_granule *granule = &part->granules[last];
  if (last == 0 || ct_granule_fetch(index, part, last) != 0) {
    return 0; /* it is found without */
  }
  if (ct_span_stacks_init(&stacks) != 0) {
    return CT_ENOMEM;
  }
  int code = ct_span_state_take(part->blob + granule->blob, granule->state_bytes, &stacks, &clock);
  bool is_read = code == 0;
  code = is_read ? ct_span_stacks_each(&stacks, add_stack, &past) : code == CT_ENOMEM ? code : 0;
  if (is_read && code == 0) {
    if (past.count != 0) {
      qsort(past.frames, past.count, sizeof(past.frames[0]), by_place);
    }
    code = ct_trace_set_past(index->trace, thread, granule->offset, past.frames, past.count);
  }
  ct_span_stacks_destroy(&stacks);
  free(past.frames);
  return code;
}
