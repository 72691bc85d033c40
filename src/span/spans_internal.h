/* SPDX-License-Identifier: MIT */
/* The builder of spans, for spans.c, which builds, and state.c, which keeps what it knows and takes it up again. */
#ifndef CT_SPAN_SPANS_INTERNAL_H
#define CT_SPAN_SPANS_INTERNAL_H

#include "span/spans.h"
#include "span/stacks.h"
#include "span/stats.h"
#include "span/tree.h"
#include "span/unwind_reason.h"

enum {
  CT_SPANS_BATCH = 256,
  CT_SPANS_SLACK = 4, /* spans that one event can give without a check */
  CT_SPANS_EDGES = 512,
  CT_SPANS_FEW = 16, /* events read where an op is odd, at first */
  CT_SPANS_RUN = 64, /* ops taken at a time: worth leaving events for */
};

struct ct_span_sum;

/* How often a function is on the thread's stacks, and since when. */
struct ct_span_presence {
  uint64_t since; /* own time */
  uint64_t off_since;
  uint64_t frames;
};

/* Where it is not known when the thread was off the processor, but how much at most between two events. */
struct ct_span_bounds {
  uint64_t *inside;  /* for each function, its fresh time since then, of spans that have ended */
  uint64_t *before;  /* of its frames that are open, the fresh time up to then */
  uint64_t *at_most; /* and how long it was off the processor at most until then */
  uint32_t *touched; /* those with time inside, or about to be looked at */
  uint32_t count;
  uint8_t *marks; /* in that list */
};

struct ct_spans {
  struct ct_span_bounds bounds; /* inside NULL: there are none */
  const struct ct_trace *trace;
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t event_count;
  size_t event_pos;
  struct ct_span_stacks stacks;
  struct ct_unwind_reason unwind_reason;
  const struct ct_span_observer *observer; /* NULL: nobody looks on */
  int observer_code;                       /* what it has returned that is not 0 */
  struct ct_span_edge *edges;              /* room for CT_SPANS_EDGES; NULL: none was needed */
  struct ct_span_presence *present;        /* fn_count + 1: the last one stands for ids outside the table */
  int (*gap_ended)(void *arg, const struct ct_spans *spans, uint64_t tsc);
  void *gap_arg; /* of gap_ended, NULL: nobody asks */
  uint32_t fn_count;
  uint32_t thread;
  uint64_t last_tsc;
  struct ct_span_clock clock;
  uint64_t total_events;
  uint64_t lost;
  uint64_t marks;
  bool ended;   /* the cursor gave its last event */
  bool drained; /* and the open frames are out */
  size_t count; /* spans in the batch */
  struct ct_span *batch;
  size_t batch_capacity;
  const struct ct_span *single; /* single_count of them are left of a batch, for ct_spans_next_span */
  size_t single_count;
  struct ct_stats *stats;   /* that calls go to in place of the batch; NULL: none */
  struct ct_span_sum *sums; /* of direct_sums.c, one for each function; NULL: none yet */
  void *sums_memory;        /* where they lie, from a cache line's begin on */
  uint32_t *summed;         /* functions with numbers in there */
  uint32_t summed_count;
  struct ct_span_gather *gather; /* likewise, and there is a tree; NULL: none */
  int stats_code;                /* CT_ENOMEM: one did not fit in there */
  struct ct_span_tree *tree;     /* spans have their nodes in it; NULL: there is none */
  uint64_t ordinal;              /* of the next call */
  uint64_t before;        /* CT_ORDINAL_BEFORE and the block, while frames are entered that nobody counted; or 0 */
  uint64_t stop_offset;   /* the block that begins there is not read any more; UINT64_MAX: all are */
  uint64_t events_offset; /* of the block that the events are of */
  uint64_t end_offset;    /* the stream ends before it */
  uint32_t few;           /* events to be read at the next odd op: more where these are close to each other */
  bool stopped;           /* the next events are of that block */
  bool follows;           /* the stream may grow: what is open at its end stays open */
  bool paused;            /* ct_spans_sum is to return */
};

/*
 * plain.c. Enters and returns that fit the stack as it is; stops at the first event that is anything else, which then
 * takes the general way.
 */
const struct ct_event *ct_spans_plain(struct ct_spans *spans, const struct ct_event *ev, const struct ct_event *end);
/* direct.c. The same of the ops that come next, in place of the events made of them; false: the first one does not fit.
 */
bool ct_spans_direct(struct ct_spans *spans, int *code);

/* observe.c. Frames that were restored have zeroed notes. 0 or CT_ENOMEM. */
int ct_spans_observe_restored(struct ct_spans *spans);
/* The innermost frame of the stack is new. */
int ct_spans_report_enter(struct ct_spans *spans, struct ct_span_stack *stack);
/* The span that came last is that of the frame that was the innermost one until now, or of no frame (!has_note). */
void ct_spans_report_end(struct ct_spans *spans, struct ct_span_stack *stack, bool has_note);

/* The thread is back on this stack: what it was off the processor meanwhile is not the innermost frame's. */
static inline void
ct_spans_note_away(const struct ct_spans *spans, struct ct_span_stack *stack)
{
  uint64_t off = spans->clock.off - stack->away_off;
  if (stack->notes != NULL) {
    stack->notes[stack->count - 1].child_off += off;
  }
  if (spans->tree != NULL) {
    spans->tree->nodes[stack->frames[stack->count - 1].node].away_off += off;
  }
}

/* What the outermost frames of the stack are below, in the tree. */
static inline uint32_t
ct_spans_tree_root(const struct ct_span_stack *stack)
{
  return stack->context == 0 ? CT_TREE_OWN : CT_TREE_OTHERS;
}

/* The node of a call of fn in the innermost frame of the stack. */
static inline uint32_t
ct_spans_tree_node(const struct ct_spans *spans, const struct ct_span_stack *stack, uint32_t fn)
{
  uint32_t parent = stack->count != 0 ? stack->frames[stack->count - 1].node : ct_spans_tree_root(stack);
  return spans->tree != NULL ? ct_span_tree_child(spans->tree, parent, fn) : CT_TREE_NONE;
}

static inline struct ct_span_presence *
ct_spans_presence(struct ct_spans *spans, uint32_t fn)
{
  return &spans->present[fn < spans->fn_count ? fn : spans->fn_count];
}

#endif
