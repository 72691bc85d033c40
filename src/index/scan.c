/* SPDX-License-Identifier: MIT */
/*
 * Scans: the granules in which what is asked for may have ended, and of these the spans that it fits.
 *
 * A span is found where it ended. What says where that may be: its thread; the ordinal of the span or of its parent,
 * by which the granule of its begin is found, and the list of crossings for those that ended later; times, by those of
 * the granules, where again what begins in them and ends later is in the list; depth, duration and function by what the
 * granule says of the spans that ended in it. Where only spans are wanted that are long enough to be kept whole, no
 * block is read.
 *
 * The longest ones: first those that are kept whole; then, of the granules that may have longer ones than the shortest
 * of these, the others, in the order of the longest one that may be among them. The first ones, and the last ones, by
 * their begins or ends: granule after granule, in the order of the first that may be there, until no other can have one
 * that comes before those that were found.
 */
#include "index/index_internal.h"

#include "base/branch.h"
#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

struct target {
  uint64_t most; /* no span there that fits is longer, in ticks; of another order: has a greater key (key_of) */
  uint32_t thread;
  uint32_t granule;
};

struct ct_index_scan {
  struct ct_index *index;
  int code; /* of a granule that could not be read */
  struct ct_scan_filter filter;
  struct ct_granule_wanted wanted; /* the same; of the longest ones, least_ticks is that of the shortest one so far */
  struct target *targets;
  size_t target_count, target_capacity, next_target;

  struct ct_spans *spans; /* of reading_thread; NULL: none yet */
  uint32_t reading_thread;
  uint32_t at_granule; /* where spans goes on; UINT32_MAX: nowhere */
  const struct ct_span *batch;
  size_t batch_count, batch_at;
  bool in_blocks; /* spans gives those of the target in hand */

  bool uses_cache;
  struct ct_scan_kept *cached; /* NULL: not these */
  struct ct_scan_chain chain;  /* of its spans */

  const uint8_t *kept_at, *kept_end; /* spans that are kept whole, of the target in hand; kept_at NULL: not these */
  const struct ct_granule *granule;
  uint32_t kept_thread;
  struct ct_span span;

  struct ct_span *longest; /* a heap, the shortest one first; sorted in the end */
  size_t longest_count, longest_at;
  bool is_sorted;
  uint64_t blocks;
};

/* ---- which granules ---- */

static int
add_target(struct ct_index_scan *scan, uint32_t thread, uint32_t granule, uint64_t most)
{
  if (scan->target_count == scan->target_capacity) {
    size_t capacity = scan->target_capacity == 0 ? 64 : scan->target_capacity * 2;
    struct target *targets = reallocarray(scan->targets, capacity, sizeof(*targets));
    if (targets == NULL) {
      return CT_ENOMEM;
    }
    scan->targets = targets;
    scan->target_capacity = capacity;
  }
  scan->targets[scan->target_count++] = (struct target){most, thread, granule};
  return 0;
}

/* Whether spans that fit may have ended in the granule, and how long they are at most. */
static bool
may_have(struct ct_index_scan *scan, const struct ct_index_part *part, const struct ct_granule *g, uint64_t *most_ticks)
{
  const struct ct_scan_filter *f = &scan->filter;
  *most_ticks = g->max_ticks;
  if (g->spans == 0 || g->max_ticks < f->least_ticks || g->last_tsc < f->start_from || g->last_tsc < f->end_from ||
      (!f->with_others && (g->most_depth < f->least_depth || g->least_depth > f->most_depth)) ||
      (f->unfinished && (g->flags & CT_GRANULE_UNFINISHED) == 0)) {
    return false;
  }
  if (f->functions == NULL) {
    return true;
  }
  int code = ct_granule_fetch(scan->index, part, (uint64_t)(g - part->granules));
  if (code != 0) {
    scan->code = code;
    return false;
  }
  const uint8_t *at = part->blob + g->blob + g->state_bytes;
  return ct_granule_has(at, at + g->function_bytes, &scan->wanted, most_ticks) && *most_ticks >= f->least_ticks;
}

static int
consider(struct ct_index_scan *scan, uint32_t thread, uint64_t granule)
{
  const struct ct_index_part *part = &scan->index->threads[thread].part;
  uint64_t most_ticks;
  if (!may_have(scan, part, &part->granules[granule], &most_ticks)) {
    return 0;
  }
  most_ticks = most_ticks < scan->filter.most_ticks ? most_ticks : scan->filter.most_ticks;
  return add_target(scan, thread, (uint32_t)granule, most_ticks);
}

/* Where the first crossing of at least this ordinal is, in one of the two lists. */
static uint64_t
crossing_from(const struct ct_crossing *crossings, uint64_t count, uint64_t ordinal)
{
  uint64_t low = 0, high = count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (crossings[middle].ordinal < ordinal) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static const struct ct_crossing *
find_crossing(const struct ct_index_thread *thread, uint64_t ordinal)
{
  const struct ct_index_part *part = &thread->part;
  uint64_t kept = thread->kept_crossings, tail = part->crossing_count - kept;
  uint64_t at = crossing_from(part->crossings, kept, ordinal);
  if (at < kept && part->crossings[at].ordinal == ordinal) {
    return &part->crossings[at];
  }
  at = crossing_from(part->crossings + kept, tail, ordinal);
  return at < tail && part->crossings[kept + at].ordinal == ordinal ? &part->crossings[kept + at] : NULL;
}

static int
target_span(struct ct_index_scan *scan)
{
  const struct ct_scan_filter *f = &scan->filter;
  const struct ct_index_thread *thread = &scan->index->threads[f->thread];
  const struct ct_crossing *crossing = find_crossing(thread, f->ordinal);
  if (thread->part.granule_count == 0) {
    return 0;
  }
  return consider(scan, f->thread,
                  crossing != NULL ? crossing->granule : ct_granule_of_ordinal(&thread->part, f->ordinal));
}

/* Children of a span end between its begin and its end; deeper than it by one, or on another stack not at all. */
static int
target_children(struct ct_index_scan *scan)
{
  struct ct_scan_filter *f = &scan->filter;
  const struct ct_index_thread *thread = &scan->index->threads[f->thread];
  const struct ct_crossing *crossing = find_crossing(thread, f->parent_ordinal);
  uint64_t from = 0, to = thread->part.granule_count, most;
  if (to == 0) {
    return 0;
  }
  if (f->parent_ordinal != CT_NO_ORDINAL && !(f->parent_ordinal & CT_ORDINAL_BEFORE)) {
    from = ct_granule_of_ordinal(&thread->part, f->parent_ordinal);
  }
  if (f->parent_ordinal != CT_NO_ORDINAL) {
    to = (crossing != NULL ? crossing->granule : from) + 1;
  }
  for (uint64_t i = from; i < to; i++) {
    const struct ct_granule *g = &thread->part.granules[i];
    bool too_deep = crossing != NULL && crossing->depth < UINT32_MAX && g->least_depth > crossing->depth + 1;
    if (!too_deep && may_have(scan, &thread->part, g, &most) && add_target(scan, f->thread, (uint32_t)i, most) != 0) {
      return CT_ENOMEM;
    }
  }
  return 0;
}

static int
compare_numbers(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Later than `last`: where spans ended that began in the granules up to that one. */
static int
target_later_ends(struct ct_index_scan *scan, uint32_t number, uint64_t first, uint64_t last)
{
  const struct ct_index_thread *thread = &scan->index->threads[number];
  const struct ct_index_part *part = &thread->part;
  uint64_t low = part->granules[first].first_ordinal;
  uint64_t high = last + 1 < part->granule_count ? part->granules[last + 1].first_ordinal : UINT64_MAX;
  uint32_t *granules = malloc((part->crossing_count + 1) * sizeof(*granules));
  size_t count = 0;
  if (granules == NULL) {
    return CT_ENOMEM;
  }
  for (int list = 0; list < 2; list++) {
    const struct ct_crossing *crossings = part->crossings + (list == 0 ? 0 : thread->kept_crossings);
    uint64_t n = list == 0 ? thread->kept_crossings : part->crossing_count - thread->kept_crossings;
    for (uint64_t i = crossing_from(crossings, n, low); i < n; i++) {
      bool before = (crossings[i].ordinal & CT_ORDINAL_BEFORE) != 0;
      if (crossings[i].ordinal >= high && !before) {
        i = crossing_from(crossings, n, CT_ORDINAL_BEFORE) - 1; /* on to those */
        continue;
      }
      if (crossings[i].granule > last) {
        granules[count++] = crossings[i].granule;
      }
    }
  }
  qsort(granules, count, sizeof(*granules), compare_numbers);
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = i > 0 && granules[i] == granules[i - 1] ? 0 : consider(scan, number, granules[i]);
  }
  free(granules);
  return code;
}

static int
target_thread(struct ct_index_scan *scan, uint32_t number)
{
  const struct ct_scan_filter *f = &scan->filter;
  const struct ct_index_part *part = &scan->index->threads[number].part;
  uint64_t first = 0, end = part->granule_count;
  while (f->start_to != UINT64_MAX && end > 0 && part->granules[end - 1].first_tsc > f->start_to) {
    end--;
  }
  /* The first granule with an event at or after start_from has the calls that begin then. */
  while (first < end &&
         (f->start_from > part->granules[first].last_tsc || f->end_from > part->granules[first].last_tsc)) {
    first++;
  }
  if (end == 0) {
    return 0;
  }
  for (uint64_t i = first; i < end; i++) {
    int code = consider(scan, number, i);
    if (code != 0) {
      return code;
    }
  }
  uint64_t begun = f->start_from != 0 && first < end ? first : 0;
  return end < part->granule_count ? target_later_ends(scan, number, begun, end - 1) : 0;
}

static int
compare_targets(const void *a, const void *b)
{
  const struct target *x = a, *y = b;
  if (x->most != y->most) {
    return x->most < y->most ? 1 : -1;
  }
  if (x->thread != y->thread) {
    return x->thread < y->thread ? -1 : 1;
  }
  return (x->granule > y->granule) - (x->granule < y->granule);
}

/* Of the granules of a thread: no span that ended there began earlier. To be freed; NULL: out of memory. */
static uint64_t *
earliest_begins(const struct ct_index_part *part)
{
  uint64_t *earliest = malloc((part->granule_count + 1) * sizeof(*earliest));
  for (uint64_t i = 0; earliest != NULL && i < part->granule_count; i++) {
    earliest[i] = part->granules[i].first_tsc;
  }
  for (uint64_t i = 0; earliest != NULL && i < part->crossing_count; i++) {
    const struct ct_crossing *crossing = &part->crossings[i];
    bool is_known = (crossing->ordinal & CT_ORDINAL_BEFORE) == 0;
    uint64_t begin = is_known ? part->granules[ct_granule_of_ordinal(part, crossing->ordinal)].first_tsc : 0;
    if (crossing->granule < part->granule_count && begin < earliest[crossing->granule]) {
      earliest[crossing->granule] = begin;
    }
  }
  return earliest;
}

/* For an order by times: what comes first of each target, at most. */
static int
bound_targets(struct ct_index_scan *scan)
{
  uint64_t *earliest = NULL;
  uint32_t of = 0; /* that thread */
  for (size_t i = 0; i < scan->target_count; i++) {
    struct target *target = &scan->targets[i];
    const struct ct_index_part *part = &scan->index->threads[target->thread].part;
    const struct ct_granule *g = &part->granules[target->granule];
    if (scan->filter.order == CT_SCAN_FIRST_BEGUN && (earliest == NULL || of != target->thread)) {
      free(earliest);
      earliest = earliest_begins(part);
      of = target->thread;
      if (earliest == NULL) {
        return CT_ENOMEM;
      }
    }
    target->most = scan->filter.order == CT_SCAN_FIRST_BEGUN   ? ~earliest[target->granule]
                   : scan->filter.order == CT_SCAN_FIRST_ENDED ? ~g->first_tsc
                                                               : g->last_tsc;
  }
  free(earliest);
  return 0;
}

static int
find_targets(struct ct_index_scan *scan)
{
  const struct ct_scan_filter *f = &scan->filter;
  int code = 0;
  bool is_one = f->has_id || f->has_parent || f->has_thread;
  if (is_one && (f->thread >= scan->index->thread_count || (f->threads != NULL && f->threads[f->thread] == 0))) {
    return 0;
  }
  if (f->has_id) {
    code = target_span(scan);
  } else if (f->has_parent) {
    code = target_children(scan);
  } else if (f->has_thread) {
    code = target_thread(scan, f->thread);
  } else {
    for (uint32_t i = 0; i < scan->index->thread_count && code == 0; i++) {
      code = f->threads == NULL || f->threads[i] != 0 ? target_thread(scan, i) : 0;
    }
  }
  if (code != 0 || scan->code != 0) {
    return code != 0 ? code : scan->code;
  }
  return f->longest != 0 && f->order != CT_SCAN_LONGEST ? bound_targets(scan) : 0;
}

/* ---- their spans ---- */

static bool
fits(const struct ct_scan_filter *f, uint32_t fn_count, const struct ct_span *s)
{
  bool is_other = s->end == CT_SPAN_ORPHAN || s->end == CT_SPAN_COUNTED;
  return s->duration_ticks >= f->least_ticks && s->duration_ticks <= f->most_ticks && s->depth >= f->least_depth &&
         s->depth <= f->most_depth && s->enter_tsc >= f->start_from && s->enter_tsc <= f->start_to &&
         s->end_tsc >= f->end_from &&
         (f->functions == NULL || f->functions[s->fn < fn_count ? s->fn : fn_count] != 0) &&
         (!f->has_id || s->ordinal == f->ordinal) && (!f->has_parent || s->parent_ordinal == f->parent_ordinal) &&
         (!is_other || f->with_others) && (!f->no_points || s->end != CT_SPAN_POINT) &&
         (!f->unfinished || ct_span_is_unfinished(s->end));
}

static const struct ct_granule *
granule_of(const struct ct_index_scan *scan, const struct target *target)
{
  return &scan->index->threads[target->thread].part.granules[target->granule];
}

/* Begins with a target, whose spans come from its list of those that are kept whole. */
static int
begin_kept(struct ct_index_scan *scan, const struct target *target)
{
  const struct ct_index_part *part = &scan->index->threads[target->thread].part;
  const struct ct_granule *g = granule_of(scan, target);
  if (ct_granule_fetch(scan->index, part, target->granule) != 0) {
    return CT_EFORMAT;
  }
  scan->granule = g;
  scan->kept_at = part->blob + g->blob + g->state_bytes + g->function_bytes;
  scan->kept_end = scan->kept_at + g->long_bytes;
  scan->kept_thread = target->thread;
  return 0;
}

/* The same from its blocks. */
static int
begin_blocks(struct ct_index_scan *scan, const struct target *target)
{
  const struct ct_index_thread *thread = &scan->index->threads[target->thread];
  const struct ct_granule *g = granule_of(scan, target);
  bool is_last = target->granule + 1 == thread->part.granule_count;
  if (ct_granule_fetch(scan->index, &thread->part, target->granule) != 0) {
    return CT_EFORMAT;
  }
  if (scan->spans == NULL || scan->reading_thread != target->thread) {
    ct_spans_close(scan->spans);
    scan->spans = NULL;
    int code = ct_spans_open(scan->index->trace, target->thread, CT_TIME_WALL, &scan->spans, NULL);
    if (code != 0) {
      return code;
    }
    scan->reading_thread = target->thread;
    scan->at_granule = UINT32_MAX;
  }
  if (scan->at_granule != target->granule) {
    int code = ct_spans_restore(scan->spans, g->offset, thread->part.blob + g->blob, g->state_bytes);
    if (code != 0) {
      return code;
    }
  }
  ct_spans_stop_at(scan->spans, is_last ? UINT64_MAX : g[1].offset);
  if (thread->tail_end != 0) {
    ct_spans_end_at(scan->spans, thread->tail_end);
  }
  scan->at_granule = is_last ? UINT32_MAX : target->granule + 1;
  scan->blocks += g->blocks;
  scan->in_blocks = true;
  return 0;
}

static void
end_cached(struct ct_index_scan *scan)
{
  if (scan->cached != NULL) {
    scan->cached->pins--;
    scan->cached = NULL;
  }
}

/* From what is kept of its blocks since they were read before, or are read now. False: it is not kept. */
static bool
begin_cached(struct ct_index_scan *scan, const struct target *target)
{
  struct ct_scan_cache *cache = scan->filter.cache;
  struct ct_scan_kept *entry = ct_scan_cache_ask(cache, scan->index, target->thread, target->granule);
  if (entry == NULL || !entry->again) {
    return false;
  }
  if (!entry->is_there) {
    bool is_begun = begin_blocks(scan, target) == 0;
    scan->in_blocks = false;
    if (!is_begun || !ct_scan_cache_fill(cache, entry, scan->spans, granule_of(scan, target)->spans)) {
      scan->at_granule = UINT32_MAX; /* some of it was read */
      return false;
    }
  }
  bool parents = !scan->filter.has_id;
  uint64_t key = parents ? scan->filter.parent_ordinal : scan->filter.ordinal;
  if (!ct_scan_kept_find(entry, parents, key, &scan->chain)) {
    return false;
  }
  entry->pins++;
  scan->cached = entry;
  return true;
}

static int
begin_target(struct ct_index_scan *scan, const struct target *target)
{
  if (scan->filter.least_ticks >= ct_granule_long_ticks(granule_of(scan, target))) {
    return begin_kept(scan, target);
  }
  return scan->uses_cache && begin_cached(scan, target) ? 0 : begin_blocks(scan, target);
}

/* Of one call, or of the children of one, which lie in few granules. */
static bool
is_for_cache(const struct ct_index_scan *scan)
{
  const struct ct_scan_filter *f = &scan->filter;
  bool by_id = f->has_id || (f->has_parent && f->parent_ordinal != CT_NO_ORDINAL);
  uint64_t spans = 0;
  for (size_t i = 0; f->cache != NULL && by_id && i < scan->target_count; i++) {
    spans += granule_of(scan, &scan->targets[i])->spans;
  }
  return f->cache != NULL && by_id && ct_scan_cache_fits(f->cache, scan->target_count, spans);
}

/* The next span of the target in hand, whether it fits or not; NULL: there are no more. */
static int
next_of_target(struct ct_index_scan *scan, const struct ct_span **span)
{
  *span = NULL;
  if (scan->cached != NULL) {
    if (scan->chain.at == 0) {
      end_cached(scan);
    } else {
      *span = &scan->chain.spans[scan->chain.at - 1];
      scan->chain.at = scan->chain.next[scan->chain.at - 1];
    }
    return 0;
  }
  if (scan->kept_at != NULL) {
    bool found;
    int code = ct_granule_next_span(&scan->kept_at, scan->kept_end, scan->granule, &scan->wanted, &scan->span, &found);
    scan->span.thread = scan->kept_thread;
    *span = found ? &scan->span : NULL;
    scan->kept_at = found ? scan->kept_at : NULL;
    return code;
  }
  if (scan->in_blocks && scan->batch_at == scan->batch_count) {
    scan->batch_at = 0;
    int code = ct_spans_next(scan->spans, &scan->batch, &scan->batch_count);
    if (code != 0) {
      return code;
    }
    scan->in_blocks = scan->batch_count != 0;
  }
  if (scan->in_blocks) {
    *span = &scan->batch[scan->batch_at++];
  }
  return 0;
}

/* ---- the longest ones, or those that come first in another order ---- */

/* The greater, the earlier it comes. Points have no duration: they are shorter than all that have one. */
static inline uint64_t
key_of(const struct ct_index_scan *scan, const struct ct_span *span)
{
  switch (scan->filter.order) {
  case CT_SCAN_FIRST_BEGUN:
    return ~span->enter_tsc;
  case CT_SCAN_LAST_BEGUN:
    return span->enter_tsc;
  case CT_SCAN_FIRST_ENDED:
    return ~span->end_tsc;
  case CT_SCAN_LAST_ENDED:
    return span->end_tsc;
  default:
    return span->end == CT_SPAN_POINT ? 0 : span->duration_ticks + 1;
  }
}

/* Of those with equal keys that comes first which does in the order of threads and calls. */
static int
compare_longest(const void *a, const void *b, void *arg)
{
  const struct ct_index_scan *scan = arg;
  const struct ct_span *x = a, *y = b;
  uint64_t p = key_of(scan, x), q = key_of(scan, y);
  if (p != q) {
    return p < q ? 1 : -1;
  }
  if (x->thread != y->thread) {
    return x->thread < y->thread ? -1 : 1;
  }
  return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

static void
sift_down(struct ct_index_scan *scan, size_t i)
{
  struct ct_span *heap = scan->longest;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= scan->longest_count) {
      return;
    }
    if (child + 1 < scan->longest_count && compare_longest(&heap[child + 1], &heap[child], scan) > 0) {
      child++;
    }
    if (compare_longest(&heap[child], &heap[i], scan) <= 0) {
      return;
    }
    struct ct_span span = heap[i];
    heap[i] = heap[child];
    heap[child] = span;
    i = child;
  }
}

static int
keep_longest(struct ct_index_scan *scan, const struct ct_span *span)
{
  struct ct_span *heap = scan->longest;
  if (scan->longest_count == scan->filter.longest) {
    if (compare_longest(span, &heap[0], scan) < 0) {
      heap[0] = *span;
      sift_down(scan, 0);
    }
    if (scan->filter.order == CT_SCAN_LONGEST) {
      uint64_t least = heap[0].duration_ticks; /* as long ones may come before it still */
      scan->wanted.least_ticks = least > scan->wanted.least_ticks ? least : scan->wanted.least_ticks;
    }
    return 0;
  }
  if ((scan->longest_count & (scan->longest_count - 1)) == 0) { /* full: it doubles */
    size_t capacity = scan->longest_count == 0 ? 1 : scan->longest_count * 2;
    heap = reallocarray(heap, capacity, sizeof(*heap));
    if (heap == NULL) {
      return CT_ENOMEM;
    }
    scan->longest = heap;
  }
  size_t i = scan->longest_count++;
  heap[i] = *span;
  for (; i > 0 && compare_longest(&heap[i], &heap[(i - 1) / 2], scan) > 0; i = (i - 1) / 2) {
    struct ct_span up = heap[(i - 1) / 2];
    heap[(i - 1) / 2] = heap[i];
    heap[i] = up;
  }
  return 0;
}

/* Of the target in hand those of at least, or of less than, so many ticks. */
static int
take_target(struct ct_index_scan *scan, uint64_t least, uint64_t less)
{
  const struct ct_span *span = NULL;
  int code;
  while ((code = next_of_target(scan, &span)) == 0 && span != NULL) {
    if (span->duration_ticks >= least && span->duration_ticks < less &&
        fits(&scan->filter, scan->index->stats.fn_count, span)) {
      code = keep_longest(scan, span);
      if (code != 0) {
        break;
      }
    }
  }
  return code;
}

/* Of all targets what is kept whole. Then they are of what is not. */
static int
take_kept(struct ct_index_scan *scan)
{
  int code = 0;
  for (size_t i = 0; i < scan->target_count && code == 0; i++) {
    struct target *target = &scan->targets[i];
    uint64_t from = ct_granule_long_ticks(granule_of(scan, target));
    if (target->most < from) {
      continue;
    }
    code = begin_kept(scan, target);
    code = code == 0 ? take_target(scan, from, UINT64_MAX) : code;
    target->most = from - 1;
  }
  return code;
}

/* Nothing of it comes before what was found, or of the later ones. */
static bool
is_past(const struct ct_index_scan *scan, const struct target *target)
{
  bool by_length = scan->filter.order == CT_SCAN_LONGEST;
  uint64_t most = by_length && target->most < UINT64_MAX ? target->most + 1 : target->most;
  return (scan->longest_count == scan->filter.longest && key_of(scan, &scan->longest[0]) > most) ||
         (by_length && target->most < scan->filter.least_ticks);
}

static int
find_longest(struct ct_index_scan *scan)
{
  bool by_length = scan->filter.order == CT_SCAN_LONGEST;
  int code = by_length ? take_kept(scan) : 0;
  if (scan->target_count != 0) {
    qsort(scan->targets, scan->target_count, sizeof(*scan->targets), compare_targets);
  }
  for (; scan->next_target < scan->target_count && code == 0; scan->next_target++) {
    const struct target *target = &scan->targets[scan->next_target];
    if (is_past(scan, target)) {
      break;
    }
    code = by_length ? begin_blocks(scan, target) : begin_target(scan, target);
    uint64_t less = by_length ? ct_granule_long_ticks(granule_of(scan, target)) : UINT64_MAX;
    code = code == 0 ? take_target(scan, 0, less) : code;
  }
  if (scan->longest_count != 0) {
    qsort_r(scan->longest, scan->longest_count, sizeof(*scan->longest), compare_longest, scan);
  }
  scan->is_sorted = true;
  return code;
}

/* ---- interface ---- */

int
ct_scan_open(struct ct_index *index, const struct ct_scan_filter *filter, struct ct_index_scan **out,
             struct ct_diag *diag)
{
  struct ct_index_scan *scan = calloc(1, sizeof(*scan));
  if (scan == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to look for spans");
  }
  scan->index = index;
  scan->filter = *filter;
  scan->wanted = ct_granule_wanted(filter->functions, index->stats.fn_count);
  scan->wanted.least_ticks = filter->least_ticks;
  scan->at_granule = UINT32_MAX;
  int code = find_targets(scan);
  if (code != 0) {
    ct_scan_close(scan);
    return ct_fail(diag, code, code == CT_ENOMEM ? "out of memory to look for spans" : "the trace's index has changed");
  }
  scan->uses_cache = is_for_cache(scan);
  *out = scan;
  return 0;
}

void
ct_scan_close(struct ct_index_scan *scan)
{
  if (scan == NULL) {
    return;
  }
  end_cached(scan);
  ct_spans_close(scan->spans);
  free(scan->targets);
  free(scan->longest);
  free(scan);
}

int
ct_scan_next(struct ct_index_scan *scan, const struct ct_span **span)
{
  *span = NULL;
  if (scan->filter.longest != 0) {
    int code = scan->is_sorted ? 0 : find_longest(scan);
    if (code == 0 && scan->longest_at < scan->longest_count) {
      *span = &scan->longest[scan->longest_at++];
    }
    return code;
  }
  for (;;) {
    int code = next_of_target(scan, span);
    if (code != 0 || (*span != NULL && CT_LIKELY(fits(&scan->filter, scan->index->stats.fn_count, *span)))) {
      return code;
    }
    if (*span == NULL) {
      if (scan->next_target == scan->target_count) {
        return 0;
      }
      code = begin_target(scan, &scan->targets[scan->next_target++]);
      if (code != 0) {
        return code;
      }
    }
  }
}

/* Along the ops of the granule, where they tell it; the stream's begin may enter frames. */
static int
clock_in(const struct ct_index *index, struct ct_spans *spans, uint32_t thread, const struct ct_granule *g,
         uint64_t ordinal, struct ct_span_clock *clock)
{
  struct ct_block_place blocks[CT_GRANULE_BLOCKS_MAX];
  size_t count = 0;
  if (g->state_bytes != 0 && !ct_trace_is_atf(index->trace)) {
    ct_trace_block_places(index->trace, thread, g->offset, blocks, CT_GRANULE_BLOCKS_MAX, &count);
  }
  return ct_spans_clock_in(spans, blocks, count, ordinal, clock);
}

/* From a granule before the call's: what is reported after its enter of the time before it is in the piece too. */
int
ct_index_clock_at(const struct ct_index *index, uint32_t thread, uint64_t ordinal, struct ct_span_clock *clock)
{
  const struct ct_index_part *part = &index->threads[thread].part;
  struct ct_spans *spans;
  if (part->granule_count == 0 || ct_trace_has_bounds(index->trace)) {
    return CT_ENOENT;
  }
  uint64_t at = ct_granule_of_ordinal(part, ordinal);
  const struct ct_granule *g = &part->granules[at];
  if (ct_granule_fetch(index, part, at) != 0) {
    return CT_EFORMAT;
  }
  int code = ct_spans_open(index->trace, thread, CT_TIME_WALL, &spans, NULL);
  if (code != 0) {
    return code;
  }
  code = ct_spans_restore(spans, g->offset, part->blob + g->blob, g->state_bytes);
  if (code != 0 || clock_in(index, spans, thread, g, ordinal, clock) == 0) {
    goto close_spans;
  }
  code = ct_spans_restore(spans, g->offset, part->blob + g->blob, g->state_bytes);
  if (code == 0) {
    code = ct_spans_clock_at(spans, ordinal, clock);
  }
close_spans:
  ct_spans_close(spans);
  return code;
}

uint64_t
ct_scan_blocks(const struct ct_index_scan *scan)
{
  return scan->blocks;
}
