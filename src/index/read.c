/* SPDX-License-Identifier: MIT */
/*
 * From a thread's stream to its part of the index. It is read once, from where its index ends, by one builder of spans.
 * How many blocks a granule gets is decided where it begins, by what the one before cost. It is for good only when
 * there is a block after it: else the recording may go on there.
 */
#include "index/building.h"

#include "base/branch.h"
#include "base/crc32c.h"
#include "base/test_point.h"
#include "trace/format.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE_FIXED_BYTES = sizeof(struct ct_granule), GROWS = 16 };
#define LONG_NS     10000u     /* spans of that duration are kept whole, if they are not too many ... */
#define LONG_SHARE  64u        /* ... for this part of the trace's bytes ... */
#define LONG_FREE   (1u << 10) /* ... and this together; else the longest ones of a granule */
#define FIRST_NS    1000000u   /* those of that duration ... */
#define FIRST_SHARE 48u /* ... for this part, whatever shorter ones have used: a burst of them must not hide any */
#define LONG_BURST  8u  /* of what granules before have left: at most so many times the granule's own share */
#define LONG_MOST   (1u << 20) /* of one granule, before that is decided */

/* Of a span that may be kept whole. */
struct long_span {
  uint64_t duration;
  uint32_t at, size; /* its bytes */
};

/* A thread being read. */
struct reading {
  struct ct_index_worker *worker;
  struct ct_index_thread *thread;
  struct ct_spans *spans;
  struct ct_index_sums *sums; /* the granule in hand goes to these */
  struct ct_granule granule;
  struct ct_growing_tree growing;
  struct ct_span_tree *tree; /* of that; NULL: there is none (any more) */
  struct ct_span_bytes long_spans;
  struct long_span *longs; /* what is in there, in its order */
  uint64_t long_count, long_capacity;
  uint64_t least_long;    /* ticks: shorter ones are not asked for */
  uint64_t least_first;   /* from there on they are kept before others */
  uint64_t long_from;     /* all at least as long of the granule are there */
  uint64_t begin_ordinal; /* of the granule in hand */
  uint64_t begin_marks;   /* before it */
  uint64_t per_block;     /* bytes of functions, of the granule before, a block of it */
  uint64_t block_bytes;
};

/* ---- arrays that grow ---- */

static int
grow(void **array, uint64_t *capacity, uint64_t need, size_t size)
{
  if (need <= *capacity) {
    return 0;
  }
  uint64_t more = *capacity * 2 > need ? *capacity * 2 : need;
  void *grown = reallocarray(*array, more, size);
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  *array = grown;
  *capacity = more;
  return 0;
}

static int
add_crossing(struct ct_index_part *part, uint64_t ordinal, uint32_t depth)
{
  void *crossings = part->crossings;
  int code = grow(&crossings, &part->crossing_capacity, part->crossing_count + 1, sizeof(*part->crossings));
  part->crossings = crossings;
  if (code == 0) {
    part->crossings[part->crossing_count++] =
        (struct ct_crossing){.ordinal = ordinal, .granule = (uint32_t)part->granule_count, .depth = depth};
  }
  return code;
}

static int
add_blob(struct ct_index_part *part, const struct ct_span_bytes *bytes)
{
  void *blob = part->blob;
  int code =
      grow(&blob, &part->blob_capacity, part->blob_bytes + bytes->size + 1, 1); /* there is one, if of no bytes */
  part->blob = blob;
  if (code == 0 && bytes->size != 0) {
    memcpy(part->blob + part->blob_bytes, bytes->data, bytes->size);
    part->blob_bytes += bytes->size;
  }
  return code;
}

/* ---- spans into the granule ---- */

/* M << E as E << 8 | M, not less than the ticks. */
static uint16_t
ticks_code(uint64_t ticks)
{
  unsigned shift = 0;
  while (shift < 57 && ticks > UINT64_C(0xff) << shift) {
    shift++;
  }
  uint64_t up = (ticks >> shift) + ((ticks & ((UINT64_C(1) << shift) - 1)) != 0);
  if (up > 0xff) {
    up = 0x80;
    shift++;
  }
  return (uint16_t)(shift << 8 | up);
}

/* Whole, relative to the granule; ct_granule_next_span reads it. What a question tests comes first, after a byte that
 * says how many there are, by which it passes over one. */
static int
put_long(struct reading *r, const struct ct_span *span)
{
  struct ct_span_bytes *bytes = &r->long_spans;
  if (ct_span_bytes_reserve(bytes, 16 * 10) != 0) {
    return CT_ENOMEM;
  }
  uint64_t since = span->enter_tsc - r->granule.first_tsc;
  bool has_off = span->off_ticks != 0, has_context = span->context != 0;
  uint64_t end = span->end | (uint32_t)span->uncertain << CT_GRANULE_UNCERTAIN_SHIFT;
  const uint64_t numbers[] = {
      span->duration_ticks,
      span->fn,
      end << CT_GRANULE_WORD_SHIFT | (has_off ? CT_GRANULE_OFF : 0u) | (has_context ? CT_GRANULE_CONTEXT : 0u),
      span->ordinal + 1,
      span->ordinal - span->parent_ordinal,
      since << 1 ^ (uint64_t)((int64_t)since >> 63),
      span->end_tsc - span->enter_tsc,
      span->self_ticks,
      (uint32_t)(span->caller_fn + 1),
      span->depth,
  };
  static_assert((sizeof(numbers) / sizeof(numbers[0]) + 2) * 10 < 256, "a byte says how many");
  uint8_t *first = bytes->data + bytes->size, *at = first + 1;
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    at = ct_varint_put(at, numbers[i]);
  }
  at = has_off ? ct_varint_put(at, span->off_ticks) : at;
  at = has_context ? ct_varint_put(at, span->context) : at;
  *first = (uint8_t)(at - first - 1);
  void *longs = r->longs;
  int code = grow(&longs, &r->long_capacity, r->long_count + 1, sizeof(*r->longs));
  r->longs = longs;
  if (code == 0) {
    uint32_t begin = (uint32_t)bytes->size;
    bytes->size = (size_t)(at - bytes->data);
    r->longs[r->long_count++] = (struct long_span){span->duration_ticks, begin, (uint32_t)bytes->size - begin};
  }
  return code;
}

static int
compare_longs(const void *a, const void *b)
{
  const struct long_span *x = a, *y = b;
  if (x->duration != y->duration) {
    return x->duration < y->duration ? 1 : -1;
  }
  return (x->at > y->at) - (x->at < y->at);
}

static int
compare_places(const void *a, const void *b)
{
  const struct long_span *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

/* Of the spans that may be kept whole the longest ones, which are no more than so many bytes. */
static void
keep_longest(struct reading *r, uint64_t budget)
{
  struct ct_span_bytes *bytes = &r->long_spans;
  uint64_t kept = 0, used = 0, to = 0;
  if (bytes->size <= budget) {
    return;
  }
  qsort(r->longs, r->long_count, sizeof(*r->longs), compare_longs);
  while (used + r->longs[kept].size <= budget) {
    used += r->longs[kept++].size;
  }
  r->long_from = r->longs[kept].duration + 1;
  while (kept > 0 && r->longs[kept - 1].duration < r->long_from) {
    kept--; /* as long as one that is left out */
  }
  qsort(r->longs, kept, sizeof(*r->longs), compare_places);
  for (uint64_t i = 0; i < kept; i++) {
    memmove(bytes->data + to, bytes->data + r->longs[i].at, r->longs[i].size);
    r->longs[i].at = (uint32_t)to;
    to += r->longs[i].size;
  }
  r->long_count = kept;
  bytes->size = to;
}

/* There can be no tree: from now on edges are kept alone. */
static __attribute__((noinline, cold)) int
drop_tree(struct reading *r)
{
  int code = ct_growing_tree_add_edges(&r->growing, &r->sums->edges);
  ct_spans_set_tree(r->spans, NULL);
  r->tree = NULL;
  ct_growing_tree_destroy(&r->growing);
  if (r->sums == &r->worker->kept) {
    r->thread->kept_tree.size = 0;
    r->thread->kept_is_sums = false;
  }
  return code;
}

/* The tree is too large. */
static __attribute__((noinline, cold)) int
fold_tree(struct reading *r)
{
  int code = ct_growing_tree_fold(&r->growing, r->spans, r->worker->job);
  return code == CT_ENOENT ? drop_tree(r) : code;
}

/* At the end of what is for good, or of all: whether the tree is kept. */
static int
keep_tree(struct reading *r, uint64_t payload_bytes, struct ct_span_bytes *bytes, bool *is_sums)
{
  if (r->tree == NULL) {
    return 0;
  }
  int code = ct_growing_tree_keep(&r->growing, r->spans, r->worker->job, payload_bytes, bytes);
  *is_sums = r->growing.has_sums;
  return code == 0 && bytes->size == 0 ? drop_tree(r) : code;
}

/* It is kept by itself, if it began in an earlier granule, or is long. */
static int
add_kept(struct reading *r, const struct ct_span *span)
{
  int code = 0;
  if (CT_UNLIKELY(span->ordinal < r->begin_ordinal || span->ordinal & CT_ORDINAL_BEFORE)) {
    code = add_crossing(&r->thread->part, span->ordinal, span->depth);
  }
  if (CT_UNLIKELY(span->duration_ticks >= r->long_from) && code == 0) {
    code = put_long(r, span);
    if (r->long_spans.size >= LONG_MOST) {
      keep_longest(r, LONG_MOST / 2);
    }
  }
  return code;
}

static int
add_span(struct reading *r, const struct ct_span *span)
{
  struct ct_index_worker *w = r->worker;
  struct ct_granule *g = &r->granule;
  uint32_t fn = span->fn < w->kept.stats.fn_count ? span->fn : w->kept.stats.fn_count;
  uint64_t *longest = &w->gather.longest[fn];
  if (*longest == 0) {
    w->gather.touched[w->gather.touched_count++] = fn;
    *longest = 1;
  }
  w->gather.count++;
  g->flags |= ct_span_is_unfinished(span->end) ? CT_GRANULE_UNFINISHED : 0;
  int code = 0;
  if (CT_LIKELY(r->tree != NULL) && span->end != CT_SPAN_ORPHAN) {
    bool fits = span->reserved != CT_TREE_NONE && r->tree->nodes[span->reserved].fn == span->fn;
    if (CT_LIKELY(fits)) {
      ct_span_tree_add(r->tree, span);
    } else {
      code = drop_tree(r);
    }
  }
  if (CT_UNLIKELY(span->end == CT_SPAN_COUNTED || span->end == CT_SPAN_ORPHAN)) {
    return code;
  }
  uint64_t duration = span->duration_ticks;
  *longest = duration >= *longest ? duration + 1 : *longest;
  w->gather.least_depth = span->depth < w->gather.least_depth ? span->depth : w->gather.least_depth;
  w->gather.most_depth = span->depth > w->gather.most_depth ? span->depth : w->gather.most_depth;
  code = code == 0 ? add_kept(r, span) : code;
  if (CT_LIKELY(r->tree != NULL)) {
    return code;
  }
  uint32_t calls = span->end == CT_SPAN_POINT ? span->calls : 1;
  return code != 0 ? code : ct_edges_add(&r->sums->edges, span->caller_fn, span->fn, calls, duration, span->self_ticks);
}

/* All of them were gathered, or none. */
static int
add_spans(struct reading *r, const struct ct_span *batch, size_t count)
{
  bool gathered = count != 0 && batch[0].reserved == CT_SPAN_GATHERED;
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = gathered ? add_kept(r, &batch[i]) : add_span(r, &batch[i]);
  }
  return code != 0 || gathered ? code : ct_stats_add(&r->sums->stats, batch, count);
}

/* Reads spans up to where the builder stops. */
static int
read_granule(struct reading *r)
{
  const struct ct_span *batch;
  size_t count;
  bool more = true;
  struct ct_span_gather *gather = &r->worker->gather;
  gather->stats = &r->sums->stats;
  gather->first_ordinal = r->begin_ordinal;
  while (more) {
    gather->long_from = r->long_from;
    int code = ct_spans_gather(r->spans, gather, &batch, &count, &more);
    if (code != 0) {
      return code;
    }
    code = add_spans(r, batch, count);
    if (code != 0) {
      return code;
    }
    if (CT_UNLIKELY(r->tree != NULL && r->tree->count >= r->growing.fold_at)) {
      code = fold_tree(r);
      if (code != 0) {
        return code;
      }
    }
    if (count != 0 && batch[count - 1].end_tsc > r->granule.last_tsc) {
      r->granule.last_tsc = batch[count - 1].end_tsc;
    }
  }
  return 0;
}

static int
compare_ids(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The functions of the granule, by id, each relative to the one before, and what was gathered of all. It is of none
 * after that. */
static int
put_functions(struct reading *r, struct ct_span_bytes *bytes)
{
  struct ct_span_gather *gather = &r->worker->gather;
  struct ct_granule *g = &r->granule;
  uint32_t before = 0;
  int code = ct_span_bytes_reserve(bytes, (size_t)gather->touched_count * 20);
  if (gather->touched_count != 0) {
    qsort(gather->touched, gather->touched_count, sizeof(*gather->touched), compare_ids);
  }
  for (uint32_t i = 0; i < gather->touched_count; i++) {
    uint64_t *longest = &gather->longest[gather->touched[i]];
    g->max_ticks = *longest - 1 > g->max_ticks ? *longest - 1 : g->max_ticks;
    if (code == 0) {
      uint8_t *at = bytes->data + bytes->size;
      at = ct_varint_put(at, gather->touched[i] - before);
      at = ct_varint_put(at, ticks_code(*longest - 1));
      bytes->size = (size_t)(at - bytes->data);
    }
    before = gather->touched[i];
    *longest = 0;
  }
  g->spans = (uint32_t)gather->count;
  g->least_depth = gather->least_depth;
  g->most_depth = gather->most_depth;
  gather->touched_count = 0;
  return code;
}

/* Of the granule in hand, with so many bytes of blocks: which of its spans are kept whole. */
static void
choose_longs(struct reading *r, uint64_t block_bytes)
{
  struct ct_index_thread *thread = r->thread;
  thread->payload_bytes += block_bytes;
  uint64_t allowed = LONG_FREE + thread->payload_bytes / LONG_SHARE;
  uint64_t left = allowed > thread->long_bytes ? allowed - thread->long_bytes : 0;
  uint64_t most = LONG_FREE + block_bytes / LONG_SHARE * LONG_BURST, first = 0;
  uint64_t room = left < most ? left : most;
  for (uint64_t i = 0; i < r->long_count; i++) {
    first += r->longs[i].duration >= r->least_first ? r->longs[i].size : 0;
  }
  if (first > room) {
    allowed = LONG_FREE + thread->payload_bytes / FIRST_SHARE;
    left = allowed > thread->long_bytes ? allowed - thread->long_bytes : 0;
    room = first < left ? first : left > room ? left : room;
  }
  keep_longest(r, room);
  thread->long_bytes += r->long_spans.size;
  r->granule.long_bytes = (uint32_t)r->long_spans.size;
  r->granule.long_from = ticks_code(r->long_from);
}

/* The granule in hand is whole: its bytes go to the thread's, after the state that is there already. */
static int
end_granule(struct reading *r, struct ct_span_bytes *state, uint64_t end_offset)
{
  struct ct_index_part *part = &r->thread->part;
  struct ct_granule *g = &r->granule;
  uint64_t begin = state->size, bytes = end_offset - g->offset;
  uint64_t last = ct_spans_last_tsc(r->spans);
  g->last_tsc = last > g->last_tsc ? last : g->last_tsc;
  g->flags |= ct_spans_marks(r->spans) != r->begin_marks ? CT_GRANULE_MARKS : 0;
  g->state_bytes = (uint32_t)state->size;
  int code = put_functions(r, state);
  g->function_bytes = (uint32_t)(state->size - begin);
  choose_longs(r, bytes);
  g->blob = part->blob_bytes;
  if (code == 0 && (code = add_blob(part, state)) == 0) {
    code = add_blob(part, &r->long_spans);
  }
  void *granules = part->granules;
  if (code == 0) {
    code = grow(&granules, &part->granule_capacity, part->granule_count + 1, sizeof(*g));
    part->granules = granules;
  }
  if (code != 0) {
    return code;
  }
  g->crc = ct_crc32c(0, part->blob + g->blob, part->blob_bytes - g->blob);
  part->granules[part->granule_count++] = *g;
  r->thread->spans += g->spans;
  r->per_block = g->function_bytes / (g->blocks + 1) + 1;
  r->block_bytes = bytes / (g->blocks + 1) + 1;
  r->long_spans.size = 0;
  r->long_count = 0;
  struct ct_index_job *job = r->worker->job;
  uint64_t done = atomic_fetch_add_explicit(&job->done_bytes, bytes, memory_order_relaxed) + bytes;
  if (r->worker->reports_progress && job->progress->update != NULL &&
      job->progress->update(job->progress->arg, done, job->total_bytes) != 0) {
    atomic_store_explicit(&job->is_cancelled, true, memory_order_relaxed);
  }
  return atomic_load_explicit(&job->is_cancelled, memory_order_relaxed) ? CT_ECANCELED : 0;
}

/* How many blocks the next granule is to have, when what is known at its begin takes so many bytes. */
static uint32_t
granule_blocks(const struct reading *r, size_t state_bytes)
{
  uint64_t fixed = (state_bytes + GRANULE_FIXED_BYTES) * CT_INDEX_SHARE;
  uint64_t growing = r->per_block * CT_INDEX_SHARE / 4; /* functions repeat from block to block */
  uint64_t gain = r->block_bytes > growing ? r->block_bytes - growing : r->block_bytes / 4 + 1;
  uint64_t blocks = fixed / gain + 1;
  return blocks < CT_GRANULE_BLOCKS_MAX ? (uint32_t)blocks : CT_GRANULE_BLOCKS_MAX;
}

static uint64_t
file_end(const struct ct_block_place *places, size_t count, uint64_t offset)
{
  return count != 0 ? places[count - 1].end_offset : offset;
}

/* Of the granules so far nothing changes any more; the stream goes on at end_offset. */
static int
keep_so_far(struct reading *r, const struct ct_block_place *last)
{
  struct ct_index_thread *thread = r->thread;
  thread->kept_granules = thread->part.granule_count;
  thread->kept_crossings = thread->part.crossing_count;
  thread->kept_blob = thread->part.blob_bytes;
  thread->kept_spans = thread->spans;
  thread->end_offset = last->end_offset;
  thread->last_offset = last->offset;
  thread->last_crc = last->header_crc;
  thread->end_state.size = 0;
  return ct_spans_save(r->spans, &thread->end_state);
}

static void
begin_granule(struct reading *r, uint64_t offset)
{
  r->granule = (struct ct_granule){.offset = offset};
  r->worker->gather.count = r->worker->gather.most_depth = 0;
  r->worker->gather.least_depth = UINT32_MAX;
  r->granule.first_ordinal = r->begin_ordinal = ct_spans_next_ordinal(r->spans);
  r->begin_marks = ct_spans_marks(r->spans);
  r->granule.first_tsc = r->granule.last_tsc = ct_spans_last_tsc(r->spans);
  r->long_from = r->least_long;
}

static void
note_end(struct reading *r)
{
  r->sums->stats.gap_ticks += ct_spans_gap_ticks(r->spans);
  r->sums->stats.lost += ct_spans_lost(r->spans);
  r->thread->events = ct_spans_events(r->spans);
  r->thread->lost = ct_spans_lost(r->spans);
  r->thread->preempted = ct_spans_preempted(r->spans);
  r->thread->is_damaged = ct_spans_state(r->spans) == CT_CURSOR_DAMAGED;
}

/* What is left of the stream, with the calls that are open at its end. */
static int
read_rest(struct reading *r, struct ct_span_bytes *state, uint64_t end_offset, size_t blocks)
{
  struct ct_index_thread *thread = r->thread;
  bool is_complete = r->worker->job->is_complete;
  int code = 0;
  ct_spans_stop_at(r->spans, UINT64_MAX);
  r->sums = &r->worker->kept;
  if (!is_complete) {
    code = keep_tree(r, thread->payload_bytes * GROWS, &thread->kept_tree,
                     &thread->kept_is_sums); /* it may not be too large in the end */
    r->sums = &r->worker->tail;
    ct_spans_end_at(r->spans, end_offset);
    thread->tail_end = end_offset;
  }
  code = code == 0 ? read_granule(r) : code;
  r->granule.blocks = (uint8_t)blocks;
  if (code == 0) {
    code = end_granule(r, state, end_offset);
  }
  note_end(r);
  return code;
}

/* Where the last block ends that there is now. Of what is recorded meanwhile nothing is read, or it might never end. */
static uint64_t
end_so_far(const struct reading *r, uint32_t number, uint64_t from)
{
  struct ct_block_place places[CT_GRANULE_BLOCKS_MAX];
  size_t count = 1;
  while (count != 0) {
    ct_trace_block_places(r->worker->job->index->trace, number, from, places, CT_GRANULE_BLOCKS_MAX, &count);
    from = file_end(places, count, from);
  }
  ct_test_point("index-limited");
  return from;
}

/* A piece of the stream (ct_trace_set_range) is one granule: it begins where no block does. */
static int
read_piece(struct reading *r, uint32_t number)
{
  struct ct_span_bytes state = {0};
  uint64_t end = CT_FIRST_BLOCK_OFFSET;
  end = r->worker->job->is_complete ? end : end_so_far(r, number, end);
  begin_granule(r, CT_FIRST_BLOCK_OFFSET);
  int code = read_rest(r, &state, end, 0);
  free(state.data);
  return code;
}

/* All granules from offset on, as far as limit, with `state` for their first one's. */
static int
read_granules(struct reading *r, uint32_t number, uint64_t offset, uint64_t limit, struct ct_span_bytes *state)
{
  struct ct_trace *trace = r->worker->job->index->trace;
  struct ct_block_place places[CT_GRANULE_BLOCKS_MAX + 1];
  for (;;) {
    begin_granule(r, offset);
    state->size = 0;
    int code = offset > CT_FIRST_BLOCK_OFFSET ? ct_spans_save(r->spans, state) : 0;
    uint32_t blocks = granule_blocks(r, state->size);
    size_t count;
    ct_trace_block_places(trace, number, offset, places, blocks + 1, &count);
    while (count != 0 && places[count - 1].end_offset > limit) {
      count--;
    }
    if (code != 0) {
      return code;
    }
    if (count <= blocks) {
      return read_rest(r, state, file_end(places, count, offset), count);
    }
    ct_spans_stop_at(r->spans, places[blocks - 1].end_offset);
    r->sums = &r->worker->kept;
    r->granule.blocks = (uint8_t)blocks;
    code = read_granule(r);
    if (code != 0) {
      return code;
    }
    uint64_t stopped;
    bool at_block = ct_spans_stopped(r->spans, &stopped);
    offset = at_block ? stopped : places[blocks - 1].end_offset;
    code = end_granule(r, state, places[blocks - 1].end_offset);
    if (code != 0) {
      return code;
    }
    if (!at_block) { /* it ended in the middle: damage */
      note_end(r);
      r->thread->is_damaged = true;
      return 0;
    }
    code = keep_so_far(r, &places[blocks - 1]);
    r->thread->end_offset = offset;
    if (code != 0) {
      return code;
    }
  }
}

/* From the end of what the thread has of an index to the end of its stream. */
static int
read_thread(struct reading *r, uint32_t number)
{
  struct ct_index_thread *thread = r->thread;
  uint64_t offset = thread->end_offset;
  bool is_complete = r->worker->job->is_complete;
  uint64_t limit = is_complete ? UINT64_MAX : end_so_far(r, number, offset);
  struct ct_span_bytes state = {0};
  int code = 0;
  if (thread->end_state.size != 0) {
    code = ct_spans_restore(r->spans, offset, thread->end_state.data, thread->end_state.size);
  }
  ct_spans_set_tree(r->spans, r->tree);
  if (code != 0) {
    return code;
  }
  code = read_granules(r, number, offset, limit, &state);
  if (code == 0) {
    code = is_complete ? keep_tree(r, thread->payload_bytes, &thread->kept_tree, &thread->kept_is_sums)
                       : keep_tree(r, UINT64_MAX, &thread->tree, &thread->is_sums); /* in memory alone */
  }
  free(state.data);
  return code;
}

static int
compare_crossings(const void *a, const void *b)
{
  const struct ct_crossing *x = a, *y = b;
  return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

/* All that there is of a thread is for good when its recording is over. */
static void
finish_thread(struct ct_index_job *job, struct ct_index_thread *thread)
{
  struct ct_index_part *part = &thread->part;
  if (job->is_complete) {
    thread->is_whole = true;
    thread->kept_granules = part->granule_count;
    thread->kept_crossings = part->crossing_count;
    thread->kept_blob = part->blob_bytes;
    thread->kept_spans = thread->spans;
    thread->end_state.size = 0;
  }
  if (thread->kept_crossings != 0) {
    qsort(part->crossings, thread->kept_crossings, sizeof(*part->crossings), compare_crossings);
  }
  if (part->crossing_count > thread->kept_crossings) {
    qsort(part->crossings + thread->kept_crossings, part->crossing_count - thread->kept_crossings,
          sizeof(*part->crossings), compare_crossings);
  }
}

int
ct_index_read_thread(struct ct_index_worker *worker, uint32_t number)
{
  struct ct_index *index = worker->job->index;
  struct reading r = {.worker = worker, .thread = &index->threads[number], .block_bytes = 8192};
  if (r.thread->is_whole || r.thread->is_out) {
    return 0;
  }
  if (r.thread->end_offset == 0) {
    r.thread->end_offset = CT_FIRST_BLOCK_OFFSET;
  }
  for (r.least_long = 1; ct_trace_ticks_ns(index->trace, r.least_long) < LONG_NS;) {
    r.least_long *= 2;
  }
  for (r.least_first = r.least_long; ct_trace_ticks_ns(index->trace, r.least_first * 2) <= FIRST_NS;) {
    r.least_first *= 2;
  }
  ct_stats_begin_thread(&worker->kept.stats);
  int code = ct_index_part_own(&r.thread->part);
  if (code != 0) {
    goto close;
  }
  if (!index->is_piece) {
    uint64_t most = worker->job->is_complete ? ct_trace_thread(index->trace, number)->file_bytes : UINT64_MAX;
    code = ct_growing_tree_begin(&r.growing, r.thread, worker->job->workers, most);
    if (code != 0) {
      goto close;
    }
    r.tree = r.growing.is_there ? &r.growing.tree : NULL;
  }
  code = ct_spans_open(index->trace, number, CT_TIME_WALL, &r.spans, &worker->diag);
  if (code != 0) {
    goto close;
  }
  code = ct_trace_has_range(index->trace) ? read_piece(&r, number) : read_thread(&r, number);
  for (uint32_t i = 0; i < worker->kept.stats.touched_count && ct_trace_has_bounds(index->trace); i++) {
    uint32_t fn = worker->kept.stats.touched[i];
    worker->kept.stats.off[fn] += ct_spans_off_at_most(r.spans, fn);
  }
  finish_thread(worker->job, r.thread);
close:
  ct_spans_close(r.spans);
  ct_growing_tree_destroy(&r.growing);
  free(r.long_spans.data);
  free(r.longs);
  return code == CT_ENOMEM ? ct_fail(&worker->diag, code, "out of memory for the index of a thread") : code;
}
