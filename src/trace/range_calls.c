/* SPDX-License-Identifier: MIT */
/*
 * Which calls the frames are that are open where a range begins. A frame knows its function and when it was entered;
 * its call is in the block whose times are around that, and its ordinal is found by reading that block once more. So
 * the frame has the id there that its call has in the whole trace.
 *
 * What a block cannot tell: frames that were open before the first block of a trace of the last stretch (they are known
 * by that block, as in the whole trace), frames of which it is not known when they were entered, and those that
 * damage has hidden. Those are known by the block at which the range begins, and their depth.
 */
#include "trace/atf_internal.h"
#include "trace/cursor_internal.h"

#include <stdlib.h>

#define OTHER_STACKS (UINT64_C(1) << 31) /* in place of a block's number */

struct frame {
  uint64_t enter_tsc;
  uint32_t context, depth, fn;
  size_t at; /* in pending */
};

struct search {
  struct ct_cursor *c; /* at the begin of its range */
  struct frame *frames;
  size_t count;
};

static int
compare_frames(const void *a, const void *b)
{
  const struct frame *x = a, *y = b;
  if (x->enter_tsc != y->enter_tsc) {
    return x->enter_tsc < y->enter_tsc ? -1 : 1;
  }
  if (x->context != y->context) {
    return x->context < y->context ? -1 : 1;
  }
  return (x->depth > y->depth) - (x->depth < y->depth);
}

/* The first frame that is not before that place. */
static size_t
frames_from(const struct search *search, uint64_t tsc, uint32_t context, uint32_t depth)
{
  struct frame place = {.enter_tsc = tsc, .context = context, .depth = depth};
  size_t low = 0, high = search->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_frames(&search->frames[middle], &place) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The call at that place may be one of the frames. Of several that began at once the last one is still open. */
static void
match(const struct search *search, uint64_t tsc, uint32_t context, uint32_t depth, uint32_t fn, uint64_t ordinal)
{
  size_t at = frames_from(search, tsc, context, depth);
  const struct frame *frame = at < search->count ? &search->frames[at] : NULL;
  if (frame != NULL && frame->enter_tsc == tsc && frame->context == context && frame->depth == depth &&
      frame->fn == fn) {
    search->c->pending[frame->at].value = ordinal + 1;
  }
}

/* The calls of a batch; *context is that of the stack that the thread is on. */
static void
match_events(const struct search *search, const struct ct_event *events, size_t count, uint64_t ordinal,
             uint64_t *context)
{
  size_t from = count != 0 ? frames_from(search, events[0].tsc, 0, 0) : 0;
  for (size_t i = 0; i < count; i++) {
    const struct ct_event *event = &events[i];
    bool is_call = event->kind == CT_EV_ENTER || event->kind == CT_EV_TAIL;
    while (from < search->count && search->frames[from].enter_tsc < event->tsc) {
      from++;
    }
    if (event->kind == CT_EV_SWITCH || event->kind == CT_EV_EXEC) {
      *context = event->kind == CT_EV_SWITCH ? event->value : 0;
    }
    if (is_call && from < search->count && search->frames[from].enter_tsc == event->tsc) {
      match(search, event->tsc, (uint32_t)*context, event->depth, event->fn, ordinal);
    }
    ordinal += is_call || event->kind == CT_EV_POINT;
  }
}

/* Those that a trace of the last stretch begins with, in its first block. */
static void
match_begin(const struct search *search, const struct ct_cursor *block)
{
  const struct ct_frame_stack *stack = &block->stack;
  for (uint32_t i = 0; i < stack->count; i++) {
    uint32_t depth = stack->base + i;
    uint64_t tsc = stack->frames[i].enter_tsc;
    match(search, tsc, block->context, depth, stack->frames[i].fn,
          CT_ORDINAL_BEFORE | (uint64_t)block->header.number << CT_ORDINAL_DEPTH_BITS | depth);
  }
}

static void
search_block(const struct search *search, struct ct_cursor *reader, uint64_t offset, bool is_first)
{
  const struct ct_event *events;
  size_t count;
  if (ct_cursor_seek(reader, offset) != CT_OK) {
    return;
  }
  if (is_first) {
    match_begin(search, reader);
  }
  uint64_t context = reader->context;
  while ((reader->op < reader->header.ops || reader->pending_next < reader->pending_count) &&
         (count = ct_cursor_read(reader, &events)) != 0) {
    match_events(search, events, count, ct_cursor_ordinal(reader), &context);
  }
}

static void
search_blocks(const struct search *search, struct ct_cursor *reader)
{
  const struct ct_cursor *c = search->c;
  for (size_t i = 0; i < c->passed_count; i++) {
    const struct ct_passed_block *block = &c->passed[i];
    size_t from = frames_from(search, block->first_tsc, 0, 0);
    bool has_some = from < search->count && search->frames[from].enter_tsc <= block->last_tsc;
    /* Frames of the first block's open section are older than it. */
    if (has_some || (i == 0 && search->frames[0].enter_tsc < block->first_tsc)) {
      search_block(search, reader, block->offset, i == 0);
    }
  }
}

/* Blocks that were passed without a look have calls too. */
static void
remember_earlier(const struct search *search)
{
  struct ct_cursor *c = search->c;
  if (c->passed_from == sizeof(struct ct_file_header)) {
    return;
  }
  uint64_t *times = malloc(search->count * sizeof(*times));
  struct ct_block_file *file = ct_trace_open_thread_file(c->trace, c->thread);
  for (size_t i = 0; times != NULL && i < search->count; i++) {
    times[i] = search->frames[i].enter_tsc;
  }
  if (times != NULL && file != NULL) {
    ct_range_pass_earlier(c, file, times, search->count);
  }
  ct_block_file_close(file);
  free(times);
}

/* Without blocks: from the begin on. */
static void
search_events(const struct search *search, struct ct_cursor *reader)
{
  uint64_t context = 0;
  for (size_t count; (count = ct_atf_batch(reader, search->c->trace->range_from)) != 0;) {
    match_events(search, reader->batch, count, ct_cursor_ordinal(reader), &context);
  }
}

/* The frames that are to be entered, by the time at which they were. */
static bool
collect(struct search *search)
{
  struct ct_cursor *c = search->c;
  uint64_t context = 0;
  c->last_switch = 0;
  search->frames = malloc((c->pending_count + 1) * sizeof(*search->frames));
  for (size_t i = 0; search->frames != NULL && i < c->pending_count; i++) {
    struct ct_event *event = &c->pending[i];
    if (event->kind == CT_EV_SWITCH) {
      context = event->value;
      c->last_switch = i;
    } else if (event->kind == CT_EV_ENTER && event->enter_tsc != 0) {
      const struct ct_trace_past_frame known = {
          .enter_tsc = event->enter_tsc, .context = (uint32_t)context, .depth = event->depth, .fn = event->fn};
      event->value = ct_range_call_of(c, &known);
      if (event->value == 0) {
        search->frames[search->count++] =
            (struct frame){event->enter_tsc, (uint32_t)context, event->depth, event->fn, i};
      }
    }
    event->enter_tsc = 0;
  }
  if (search->count != 0) {
    qsort(search->frames, search->count, sizeof(*search->frames), compare_frames);
  }
  return search->count != 0;
}

void
ct_range_find_calls(struct ct_cursor *c)
{
  struct search search = {.c = c};
  struct ct_cursor *reader = NULL;
  if (collect(&search) && !c->trace->skips_begun &&
      ct_cursor_open(c->trace, c->thread_position, 0, &reader, NULL) == CT_OK) {
    reader->before_range = false;
    if (c->atf != NULL) {
      search_events(&search, reader);
    } else {
      remember_earlier(&search);
      search_blocks(&search, reader);
    }
  }
  ct_cursor_close(reader);
  free(search.frames);
  free(c->passed);
  c->passed = NULL;
  c->passed_count = 0;
}

bool
ct_range_pass_block(struct ct_cursor *c, uint64_t offset, const struct ct_block_header *header)
{
  if ((c->passed_count & (c->passed_count - 1)) == 0) { /* room is a power of two */
    size_t room = c->passed_count != 0 ? c->passed_count * 2 : 1;
    struct ct_passed_block *passed = reallocarray(c->passed, room, sizeof(*passed));
    if (passed == NULL) {
      return false;
    }
    c->passed = passed;
  }
  c->passed[c->passed_count++] = (struct ct_passed_block){offset, header->first_tsc, header->last_tsc};
  return true;
}

/* So far that what comes next is a frame or a switch: each frame of which the call is known is a batch by itself. */
static size_t
end_of_piece(const struct ct_cursor *c, size_t first)
{
  size_t end = first + 1;
  bool is_known = c->pending[first].kind == CT_EV_ENTER && c->pending[first].value != 0;
  while (end < c->pending_count) {
    const struct ct_event *event = &c->pending[end];
    if (event->kind == CT_EV_SWITCH || (event->kind == CT_EV_ENTER && (is_known || event->value != 0))) {
      break;
    }
    end++;
  }
  return end;
}

size_t
ct_cursor_give_pending(struct ct_cursor *c, const struct ct_event **events)
{
  size_t first = c->pending_next, end = c->enters_range ? end_of_piece(c, first) : c->pending_count;
  struct ct_event *event = &c->pending[first];
  uint64_t own = c->enters_range && event->kind == CT_EV_ENTER ? event->value : 0;
  c->stacks_entered += c->enters_range && event->kind == CT_EV_SWITCH && first != 0;
  *events = event;
  c->pending_next = end;
  c->batch_ordinal = CT_ORDINAL_BEFORE | (first < c->last_switch ? OTHER_STACKS + c->stacks_entered : c->header.number)
                                             << CT_ORDINAL_DEPTH_BITS;
  if (own != 0) {
    event->value = 0;
    c->batch_ordinal = own - 1;
  }
  if (end == c->pending_count) {
    c->pending_next = c->pending_count = 0;
    c->enters_range = false;
  }
  return end - first;
}
