/* SPDX-License-Identifier: MIT */
/* See html_spans.h. */
#include "export/html_spans.h"

#include <stdlib.h>

enum { GAP = 16, PIECE_CALLS = 1 << 15, IS_RUN = 1 << 8 };

/* The columns. The differences are to the entry before in the same piece; the first one is to zeros. */
enum column {
  SHAPE,    /* twice the difference of depth (zigzag), and 1 when it has something in MORE */
  FUNCTION, /* number in the list */
  END,      /* the difference (zigzag), nanoseconds; as all that follow */
  LENGTH,   /* on the clock */
  OWN,      /* LENGTH less the duration that report has (zigzag) */
  INSIDE,   /* duration less self, less the durations of the entries directly inside (zigzag) */
  OFF,      /* time off the processor */
  ORDINAL,  /* the difference (zigzag); of a call without one as of the call before */
  MORE,     /* end | uncertain << 5 | run << 8, and then, of a run or a point, how many calls */
};

struct ct_html_run {
  uint64_t begin_ns, end_ns, own_ns, off_ns, longest_ns, calls;
  uint32_t function; /* of the longest */
  uint8_t uncertain;
};

struct entry {
  uint64_t begin_ns, end_ns, own_ns, self_ns, off_ns, ordinal, calls;
  uint32_t depth, function, more;
};

static int
make_room(struct ct_html_lane *lane, uint32_t depth)
{
  uint32_t depths = lane->depths != 0 ? lane->depths : 4;
  while (depths < depth + 2) {
    depths *= 2;
  }
  struct ct_html_run *runs = reallocarray(lane->runs, depths, sizeof(*runs));
  lane->runs = runs != NULL ? runs : lane->runs;
  uint64_t *inside = runs != NULL ? reallocarray(lane->inside, depths, sizeof(*inside)) : NULL;
  lane->inside = inside != NULL ? inside : lane->inside;
  if (inside == NULL) {
    return CT_ENOMEM;
  }
  memset(runs + lane->depths, 0, (depths - lane->depths) * sizeof(*runs));
  memset(inside + lane->depths, 0, (depths - lane->depths) * sizeof(*inside));
  lane->depths = depths;
  return CT_OK;
}

static void
flush(struct ct_html_spans *spans, struct ct_html_lane *lane)
{
  struct ct_html_bytes *head = &lane->columns[0];
  if (lane->count == 0) {
    return;
  }
  head->bytes = 0;
  ct_html_put(head, lane->thread);
  ct_html_put(head, lane->number);
  ct_html_put(head, lane->count);
  ct_html_stream_piece(spans->stream, CT_HTML_SPANS, lane->columns, CT_HTML_COLUMNS + 1);
  for (int i = 0; i <= CT_HTML_COLUMNS; i++) {
    lane->columns[i].bytes = 0;
  }
  lane->count = 0;
  lane->depth = 0;
  lane->end_ns = lane->ordinal = 0;
}

static void
put_entry(struct ct_html_spans *spans, struct ct_html_lane *lane, const struct entry *entry)
{
  struct ct_html_bytes *columns = lane->columns + 1;
  uint64_t length = entry->end_ns - entry->begin_ns, inside = entry->own_ns - entry->self_ns;
  uint64_t ordinal = entry->ordinal != CT_NO_ORDINAL ? entry->ordinal : lane->ordinal;
  uint64_t depth_step = ct_html_zigzag((uint64_t)entry->depth - lane->depth);
  ct_html_put(&columns[SHAPE], depth_step << 1 | (entry->more != 0));
  ct_html_put(&columns[FUNCTION], entry->function);
  ct_html_put(&columns[END], ct_html_zigzag(entry->end_ns - lane->end_ns));
  ct_html_put(&columns[LENGTH], length);
  ct_html_put(&columns[OWN], ct_html_zigzag(length - entry->own_ns));
  ct_html_put(&columns[INSIDE], ct_html_zigzag(inside - lane->inside[entry->depth + 1]));
  ct_html_put(&columns[OFF], entry->off_ns);
  ct_html_put(&columns[ORDINAL], ct_html_zigzag(ordinal - lane->ordinal));
  if (entry->more != 0) {
    ct_html_put(&columns[MORE], entry->more);
    if ((entry->more & IS_RUN) != 0 || (entry->more & 31) == CT_SPAN_POINT) {
      ct_html_put(&columns[MORE], entry->calls);
    }
  }
  lane->inside[entry->depth + 1] = 0;
  lane->inside[entry->depth] += entry->own_ns;
  lane->depth = entry->depth;
  lane->end_ns = entry->end_ns;
  lane->ordinal = ordinal;
  if (++lane->count == PIECE_CALLS) {
    flush(spans, lane);
  }
}

static void
close_run(struct ct_html_spans *spans, struct ct_html_lane *lane, uint32_t depth)
{
  struct ct_html_run *run = &lane->runs[depth];
  if (run->calls == 0) {
    return;
  }
  const struct entry entry = {.begin_ns = run->begin_ns,
                              .end_ns = run->end_ns,
                              .own_ns = run->own_ns,
                              .self_ns = run->own_ns,
                              .off_ns = run->off_ns,
                              .ordinal = CT_NO_ORDINAL,
                              .calls = run->calls,
                              .depth = depth,
                              .function = run->function,
                              .more = IS_RUN | (uint32_t)run->uncertain << 5};
  spans->runs++;
  spans->in_runs += run->calls;
  put_entry(spans, lane, &entry);
  run->calls = 0;
}

/* What is deeper has ended: it is in the run of the call that it is in, or closed. Gives how many calls are in it. */
static uint64_t
reconcile_deeper(struct ct_html_spans *spans, struct ct_html_lane *lane, uint32_t depth, bool joins, uint8_t *uncertain)
{
  uint64_t calls = 0;
  while (lane->deepest > depth) {
    struct ct_html_run *run = &lane->runs[lane->deepest];
    if (joins && run->calls != 0) {
      calls += run->calls;
      *uncertain |= run->uncertain;
      run->calls = 0;
    } else {
      close_run(spans, lane, lane->deepest);
    }
    lane->deepest--;
  }
  return calls;
}

static void
add_to_run(struct ct_html_spans *spans, struct ct_html_lane *lane, const struct entry *entry, uint64_t calls)
{
  struct ct_html_run *run = &lane->runs[entry->depth];
  if (run->calls != 0 && entry->begin_ns > run->end_ns && entry->begin_ns - run->end_ns > GAP * spans->bound_ns) {
    close_run(spans, lane, entry->depth);
  }
  if (run->calls == 0) {
    *run = (struct ct_html_run){.begin_ns = entry->begin_ns, .end_ns = entry->begin_ns, .function = entry->function};
  }
  uint64_t length = entry->end_ns - entry->begin_ns;
  if (length > run->longest_ns) {
    run->longest_ns = length;
    run->function = entry->function;
  }
  run->end_ns = entry->end_ns > run->end_ns ? entry->end_ns : run->end_ns;
  run->own_ns += entry->own_ns;
  run->off_ns += entry->off_ns;
  run->uncertain |= (uint8_t)(entry->more >> 5);
  run->calls += calls;
  lane->deepest = entry->depth > lane->deepest ? entry->depth : lane->deepest;
}

int
ct_html_add(struct ct_html_spans *spans, struct ct_html_lane *lane, const struct ct_walk_place *place,
            const struct ct_span *span, uint32_t function)
{
  bool is_call = span->end < CT_SPAN_ORPHAN;
  if (span->depth >= CT_HTML_DEPTH_MAX) {
    spans->too_deep++;
    return CT_OK;
  }
  if (span->depth + 2 > lane->depths && make_room(lane, span->depth) != CT_OK) {
    return CT_ENOMEM;
  }
  struct entry entry = {.begin_ns = ct_walk_ns(place, span->enter_tsc),
                        .end_ns = ct_walk_ns(place, span->end_tsc),
                        .ordinal = span->ordinal,
                        .calls = span->calls,
                        .depth = span->depth,
                        .function = function,
                        .more = (uint32_t)span->end | (uint32_t)span->uncertain << 5};
  if (is_call) {
    entry.own_ns = ct_trace_ticks_ns(place->trace, span->duration_ticks);
    entry.self_ns = ct_trace_ticks_ns(place->trace, span->self_ticks);
    entry.off_ns = ct_trace_has_bounds(place->trace) ? 0 : ct_trace_ticks_ns(place->trace, span->off_ticks);
  }
  entry.end_ns = entry.end_ns > entry.begin_ns ? entry.end_ns : entry.begin_ns;
  bool is_short = entry.end_ns - entry.begin_ns < spans->bound_ns && !ct_span_is_unfinished(span->end);
  uint8_t uncertain = 0;
  uint64_t deeper = reconcile_deeper(spans, lane, entry.depth, is_short, &uncertain);
  if (is_short) {
    entry.more |= (uint32_t)uncertain << 5;
    add_to_run(spans, lane, &entry, deeper + 1);
  } else {
    close_run(spans, lane, entry.depth);
    spans->single++;
    put_entry(spans, lane, &entry);
  }
  return CT_OK;
}

void
ct_html_lane_finish(struct ct_html_spans *spans, struct ct_html_lane *lane)
{
  uint8_t uncertain = 0;
  if (lane->depths != 0) {
    reconcile_deeper(spans, lane, 0, false, &uncertain);
    close_run(spans, lane, 0);
    flush(spans, lane);
  }
  for (int i = 0; i <= CT_HTML_COLUMNS; i++) {
    free(lane->columns[i].data);
  }
  free(lane->runs);
  free(lane->inside);
  *lane = (struct ct_html_lane){0};
}
