/* SPDX-License-Identifier: MIT */
/*
 * The frames of all stacks that are open where a range begins. A block says which are open on the stack that the thread
 * is on where it begins, and of those only the innermost ones. The frames of others (coroutines, signal stacks) are
 * told by the blocks in which the thread was last on them, which may be any of those before. So the cursor begins to
 * read earlier:
 *
 *   block     0     1     2     3     4     5     6     7
 *                         S           F                 B      B: the range begins in it
 *                                                              F: the first one in which the thread changes its stack
 *   read                  |----------------------------------> S: the last one before that whose open section has all
 *
 * Without a change of the stack before B, and where B has all frames, S is B: nothing but the ops of the blocks before
 * it are looked at, and of blocks that have no extra column not even these, for the op SWITCH has an entry there.
 *
 * What is found is kept, so that the next cursor begins at B, or that of a later range. The index knows it for many
 * places in the file (ct_trace_set_past): with one of these nothing before it is read.
 *
 * Behind damage reading begins anew, with what the next block says: more is not known of the whole trace either.
 */
#include "trace/cursor_internal.h"

#include "base/file.h"

#include <stdlib.h>

enum {
  PASTS_MAX = 16,            /* of one thread, that cursors keep; */
  PASTS_GIVEN_MAX = 256,     /* with those that somebody has given */
  PAST_FRAMES_MAX = 1 << 20, /* of all threads */
};

/* ---- what is known ---- */

/* The last one that is known of a block up to that offset. */
static const struct ct_trace_past *
find_past(const struct ct_cursor *c, uint64_t offset)
{
  struct ct_trace *trace = c->trace;
  const struct ct_trace_past *found = NULL;
  pthread_mutex_lock(&trace->lock);
  for (const struct ct_trace_past *past = trace->pasts != NULL ? trace->pasts[c->thread_position] : NULL; past != NULL;
       past = past->next) {
    if (past->offset <= offset && (found == NULL || past->offset > found->offset)) {
      found = past;
    }
  }
  pthread_mutex_unlock(&trace->lock);
  return found;
}

/* There is room for one more, and none for that place. */
static bool
is_wanted(const struct ct_trace *trace, const struct ct_trace_past *list, const struct ct_trace_past *more,
          uint32_t most)
{
  uint32_t count = 0;
  bool is_there = false;
  for (; list != NULL; list = list->next) {
    count++;
    is_there |= list->offset == more->offset;
  }
  return count < most && !is_there && trace->past_frames + more->count <= PAST_FRAMES_MAX;
}

/* Takes it over. There are `most` of one thread at the most. */
static int
add_past(struct ct_trace *trace, uint32_t thread, struct ct_trace_past *past, uint32_t most)
{
  pthread_mutex_lock(&trace->lock);
  if (trace->pasts == NULL) {
    trace->pasts = calloc((size_t)trace->thread_count + 1, sizeof(*trace->pasts));
  }
  bool is_kept = trace->pasts != NULL && is_wanted(trace, trace->pasts[thread], past, most);
  trace->pasts_are_full |= !is_kept;
  if (is_kept) {
    past->next = trace->pasts[thread];
    trace->pasts[thread] = past;
    trace->past_frames += past->count;
  }
  int code = trace->pasts != NULL ? CT_OK : CT_ENOMEM;
  pthread_mutex_unlock(&trace->lock);
  if (!is_kept) {
    free(past);
  }
  return code;
}

void
ct_range_free_pasts(struct ct_trace *trace)
{
  for (uint32_t i = 0; trace->pasts != NULL && i < trace->thread_count; i++) {
    for (struct ct_trace_past *past = trace->pasts[i], *next; past != NULL; past = next) {
      next = past->next;
      free(past);
    }
  }
  free(trace->pasts);
  trace->pasts = NULL;
  trace->pasts_are_full = false;
  trace->past_frames = 0;
}

static struct ct_trace_past *
new_past(uint64_t offset, size_t frames)
{
  struct ct_trace_past *past = malloc(sizeof(*past) + frames * sizeof(past->frames[0]));
  if (past != NULL) {
    *past = (struct ct_trace_past){.offset = offset};
  }
  return past;
}

/* Frames that were open when a trace of the last stretch began: when they were entered is in its first block. */
static void
find_begins(struct ct_trace *trace, uint32_t thread, struct ct_trace_past *past)
{
  struct ct_cursor *first = NULL;
  size_t begun = 0;
  while (begun < past->count &&
         (past->frames[begun].call == 0 || ((past->frames[begun].call - 1) & CT_ORDINAL_BEFORE) == 0)) {
    begun++;
  }
  if (begun == past->count || ct_cursor_open(trace, thread, 0, &first, NULL) != CT_OK) {
    return;
  }
  first->before_range = false;
  bool is_there = ct_cursor_seek(first, sizeof(struct ct_file_header)) == CT_OK;
  for (size_t i = begun; is_there && i < past->count; i++) {
    struct ct_trace_past_frame *frame = &past->frames[i];
    uint32_t at = frame->depth - first->stack.base;
    if (frame->call != 0 && ((frame->call - 1) & CT_ORDINAL_BEFORE) != 0 && frame->context == first->context &&
        at < first->stack.count && first->stack.frames[at].fn == frame->fn) {
      frame->enter_tsc = first->stack.frames[at].enter_tsc;
    }
  }
  ct_cursor_close(first);
}

int
ct_trace_set_past(struct ct_trace *trace, uint32_t thread, uint64_t offset, const struct ct_trace_past_frame *frames,
                  size_t count)
{
  struct ct_trace_past *past = new_past(offset, count);
  if (past == NULL) {
    return CT_ENOMEM;
  }
  for (; past->count < count; past->count++) {
    past->frames[past->count] = frames[past->count];
  }
  find_begins(trace, thread, past);
  return add_past(trace, thread, past, PASTS_GIVEN_MAX);
}

static int
compare_places(const void *a, const void *b)
{
  const struct ct_trace_past_frame *x = a, *y = b;
  if (x->context != y->context) {
    return x->context < y->context ? -1 : 1;
  }
  return (x->depth > y->depth) - (x->depth < y->depth);
}

uint64_t
ct_range_call_of(const struct ct_cursor *c, const struct ct_trace_past_frame *frame)
{
  const struct ct_trace_past_frame *found =
      c->past != NULL && c->past->count != 0
          ? bsearch(frame, c->past->frames, c->past->count, sizeof(*frame), compare_places)
          : NULL;
  return found != NULL && found->enter_tsc == frame->enter_tsc && found->fn == frame->fn ? found->call : 0;
}

/* ---- into the cursor, and out of it ---- */

static void
take_frames(struct ct_open_frame *to, const struct ct_trace_past_frame *frames, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    to[i] =
        (struct ct_open_frame){.fn = frames[i].fn, .uncertain = frames[i].uncertain, .enter_tsc = frames[i].enter_tsc};
  }
}

/* The cursor is at the block of the past, whose open section it has. */
static bool
take_past(struct ct_cursor *c, const struct ct_trace_past *past)
{
  struct ct_frame_stack *stack = &c->stack;
  for (size_t from = 0, to; from < past->count; from = to) {
    const struct ct_trace_past_frame *frames = &past->frames[from];
    for (to = from + 1; to < past->count && past->frames[to].context == frames->context; to++) {
    }
    uint32_t count = (uint32_t)(to - from);
    if (frames->context != c->context) {
      struct ct_saved_stack saved = {
          .context = frames->context, .count = count, .floor = frames->depth, .losses = c->losses};
      struct ct_open_frame *copy = malloc(count * sizeof(*copy));
      saved.frames = copy;
      if (copy == NULL || ct_contexts_put(&c->contexts, &saved) != CT_OK) {
        free(copy);
        return false;
      }
      take_frames(copy, frames, count);
    } else if (frames->depth < stack->base && frames->depth + count == stack->base + stack->count) {
      if (!ct_frame_stack_reserve(stack, (uint64_t)count + CT_BATCH_EVENTS)) {
        return false;
      }
      take_frames(stack->frames, frames, count);
      stack->base = frames->depth;
      stack->count = count;
    }
  }
  return true;
}

static void
put_frames(struct ct_trace_past *past, const struct ct_open_frame *frames, const struct ct_saved_stack *of,
           bool uncertain)
{
  for (uint32_t i = 0; i < of->count; i++) {
    past->frames[past->count++] = (struct ct_trace_past_frame){.enter_tsc = frames[i].enter_tsc,
                                                               .context = of->context,
                                                               .depth = of->floor + i,
                                                               .fn = frames[i].fn,
                                                               .uncertain = uncertain || frames[i].uncertain != 0};
  }
}

/* What the cursor knows where the block at offset begins, for the next one. Without memory that looks for itself. */
static void
keep_past(struct ct_cursor *c, uint64_t offset)
{
  const struct ct_contexts *contexts = &c->contexts;
  const struct ct_saved_stack own = {.context = c->context, .count = c->stack.count, .floor = c->stack.base};
  size_t count = own.count;
  for (uint32_t i = 0; i < contexts->capacity; i++) {
    count += contexts->slots[i].frames != NULL ? contexts->slots[i].count : 0;
  }
  struct ct_trace_past *past = count <= PAST_FRAMES_MAX ? new_past(offset, count) : NULL;
  if (past == NULL) {
    return;
  }
  put_frames(past, c->stack.frames, &own, false);
  for (uint32_t i = 0; i < contexts->capacity; i++) {
    const struct ct_saved_stack *other = &contexts->slots[i];
    if (other->frames != NULL) {
      put_frames(past, other->frames, other, other->losses != c->losses);
    }
  }
  if (count != 0) {
    qsort(past->frames, count, sizeof(past->frames[0]), compare_places);
  }
  for (size_t i = 0; i < count && c->past != NULL; i++) {
    past->frames[i].call = ct_range_call_of(c, &past->frames[i]);
  }
  add_past(c->trace, c->thread_position, past, PASTS_MAX);
}

/* ---- the way to the range ---- */

static bool
read_header(const struct ct_block_file *file, uint64_t offset, struct ct_block_header *header)
{
  return ct_block_file_read(file, header, sizeof(*header), offset) == sizeof(*header) && ct_block_header_ok(header);
}

/* An op SWITCH has two numbers in the extra column. What cannot be unpacked may have had one. */
static bool
may_switch(struct ct_cursor *c, const struct ct_block_file *file, const struct ct_block_header *header, uint64_t offset)
{
  if (header->section[CT_SECTION_EXTRA].raw_bytes < 2) {
    return false;
  }
  const uint8_t *ops = ct_block_unpack_ops(c, file, header, offset);
  return ops == NULL || memchr(ops, CT_TRACE_OP_SWITCH, header->ops) != NULL;
}

/* S above. end: B. */
static uint64_t
find_start(struct ct_cursor *c, uint64_t end)
{
  struct ct_block_file *file = ct_trace_open_thread_file(c->trace, c->thread);
  struct ct_block_header header;
  uint64_t offset = sizeof(struct ct_file_header), start = offset;
  bool switches = false;
  while (file != NULL && !switches && offset <= end && read_header(file, offset, &header)) {
    start = header.open_count == header.depth_start ? offset : start;
    switches = offset < end && may_switch(c, file, &header, offset);
    offset += sizeof(header) + header.payload_bytes;
  }
  ct_block_file_close(file);
  return file != NULL ? start : end;
}

static uint64_t
block_after(const struct ct_cursor *c, uint64_t offset, uint64_t end)
{
  struct ct_block_file *file = ct_trace_open_thread_file(c->trace, c->thread);
  struct ct_block_header header;
  bool is_there = file != NULL && read_header(file, offset, &header);
  ct_block_file_close(file);
  return is_there ? offset + sizeof(header) + header.payload_bytes : end;
}

/* From the block at `from`, with what is known there, or nothing, up to that at `to`. */
static bool
read_on(struct ct_cursor *c, uint64_t from, const struct ct_trace_past *past, uint64_t to)
{
  const struct ct_event *events;
  while (from < to) {
    if (ct_cursor_seek(c, from) != CT_OK) {
      from = block_after(c, from, to);
      continue;
    }
    bool ok = past == NULL || take_past(c, past);
    past = NULL;
    while (ok && (c->op < c->header.ops || c->offset < to)) {
      ok = ct_cursor_read(c, &events) != 0 && !c->damage_passed;
    }
    if (ok) {
      return true;
    }
    uint64_t next = c->state == CT_CURSOR_DAMAGED ? c->offset : ct_cursor_block_offset(c);
    from = next > from ? next : to;
  }
  return ct_cursor_seek(c, to) == CT_OK && (past == NULL || take_past(c, past));
}

bool
ct_range_arrive(struct ct_cursor *c, uint64_t offset)
{
  if (c->trace->skips_begun) {
    return ct_cursor_seek(c, offset) == CT_OK;
  }
  c->past = find_past(c, offset);
  uint64_t from = c->past != NULL ? c->past->offset : find_start(c, offset);
  if (!read_on(c, from, c->past, offset)) {
    return false;
  }
  if (c->past == NULL || from < offset) {
    keep_past(c, offset);
  }
  return true;
}
