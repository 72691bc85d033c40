/* SPDX-License-Identifier: MIT */
/* The rare ops and the slow side of the hot path; see encoder.h for the rules. */
#include "trace/encoder.h"

#include <contrail/trace.h>

#include "trace/writer_internal.h"

#include <assert.h>
#include <stdlib.h>

/* Takes note of room for frames that is to be had, or is given back. False when all together hold too much. */
static bool
hold_frames(struct ct_encoder *encoder, int64_t count)
{
  if (count > 0 && encoder->writer->frames_held + (uint64_t)count > FRAMES_HELD_MAX) {
    return false;
  }
  encoder->frames_held += (uint64_t)count;
  encoder->writer->frames_held += (uint64_t)count;
  return true;
}

/* Room for at least one more frame, or an empty stack. */
static void
grow_frames(struct ct_encoder *encoder)
{
  size_t depth = ct_encoder_depth(encoder);
  size_t known = (size_t)(encoder->columns.top - encoder->columns.floor);
  size_t capacity = (size_t)encoder->frame_capacity * 2;
  struct ct_frame *old = encoder->columns.frames, *frames = NULL;
  encoder->columns.frames = encoder->columns.top = encoder->columns.floor = NULL;
  if (capacity <= CT_DEPTH_MAX && hold_frames(encoder, (int64_t)encoder->frame_capacity)) {
    frames = realloc(old, capacity * sizeof(*frames));
  }
  if (frames == NULL) {
    encoder->columns.frames = old;
    ct_writer_fail(encoder->writer, CT_ENOMEM, "out of memory for %zu open frames of thread %u", depth, encoder->tid);
    encoder->columns.top = encoder->columns.floor = encoder->columns.frames;
    return;
  }
  encoder->columns.frames = frames;
  encoder->columns.top = frames + depth;
  encoder->columns.floor = frames + depth - known;
  encoder->frame_capacity = (uint32_t)capacity;
}

void
ct_encoder_make_room(struct ct_encoder *encoder, uint64_t tsc)
{
  assert(!encoder->closed);
  if (encoder->frame_capacity - ct_encoder_depth(encoder) < FRAMES_AT_START / 2) {
    grow_frames(encoder);
  }
  if (encoder->columns.op != NULL && ct_block_room(encoder) == 0) {
    ct_block_end(encoder);
    if (encoder->extra > encoder->extra_limit) {
      ct_buffers_grow_extra(encoder->writer, encoder->buffers);
    }
  }
  if (encoder->buffers == NULL) {
    encoder->buffers = ct_buffers_acquire(encoder);
  }
  if (encoder->columns.op == NULL) {
    ct_block_begin(encoder, tsc);
  }
  uint32_t room = ct_block_room(encoder);
  uint32_t frames = encoder->frame_capacity - ct_encoder_depth(encoder);
  encoder->columns.op_limit = encoder->columns.op + (room < frames ? room : frames);
}

/* As ct_encoder_room, for an op with an entry in the extra column. */
static void
room_with_extra(struct ct_encoder *encoder, uint64_t tsc)
{
  if (encoder->columns.op >= encoder->columns.op_limit || ct_block_room(encoder) == 0) {
    ct_encoder_make_room(encoder, tsc);
  }
}

void
ct_encode_return_id(struct ct_encoder *encoder, uint64_t tsc)
{
  /* The caller has made room. */
  struct ct_frame *frame = encoder->columns.top - 1;
  *encoder->columns.op++ = CT_TRACE_OP_RETURN_ID;
  ct_columns_id(&encoder->columns, frame->fn, 1);
  ct_columns_time(&encoder->columns, tsc);
  encoder->columns.last = frame->fn * 2 + 1;
  encoder->columns.top = encoder->columns.floor = frame;
}

void
ct_encode_unwound(struct ct_encoder *encoder, uint64_t tsc, uint8_t reason)
{
  room_with_extra(encoder, tsc);
  if (encoder->columns.top == encoder->columns.frames) {
    return;
  }
  *encoder->columns.op++ = CT_TRACE_OP_UNWOUND;
  *encoder->extra++ = reason;
  ct_columns_time(&encoder->columns, tsc);
  encoder->columns.top--;
  if (encoder->columns.top < encoder->columns.floor) {
    encoder->columns.floor = encoder->columns.top;
  }
}

void
ct_encode_interval(struct ct_encoder *encoder, uint64_t tsc, uint32_t interval_log2)
{
  if (interval_log2 != encoder->interval_log2) {
    room_with_extra(encoder, tsc);
    *encoder->columns.op++ = CT_TRACE_OP_INTERVAL;
    *encoder->extra++ = (uint8_t)interval_log2;
    ct_columns_time(&encoder->columns, tsc);
    encoder->interval_log2 = interval_log2;
  }
}

void
ct_encode_sampled(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn, uint32_t interval_log2)
{
  ct_encode_interval(encoder, tsc, interval_log2);
  ct_encoder_room(encoder, tsc);
  ct_columns_point(&encoder->columns, tsc, fn,
                   interval_log2 == 0 ? CT_TRACE_OP_POINT_PREDICTED : CT_TRACE_OP_SAMPLED_PREDICTED);
}

void
ct_encode_counted(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn, uint64_t calls)
{
  room_with_extra(encoder, tsc);
  *encoder->columns.op++ = CT_TRACE_OP_COUNTED;
  encoder->extra = ct_varint_put(encoder->extra, fn);
  encoder->extra = ct_varint_put(encoder->extra, calls);
  ct_columns_time(&encoder->columns, tsc);
}

void
ct_encode_value(struct ct_encoder *encoder, uint8_t which, uint64_t value)
{
  room_with_extra(encoder, encoder->columns.last_tsc);
  if (which != CT_VALUE_BEFORE) {
    ct_encoder_note_values(encoder, encoder->columns.top[-1].fn);
  }
  if (encoder->is_near && encoder->near == NULL) {
    encoder->near = ct_buffers_near(encoder->buffers);
  }
  uint64_t *near = which != CT_VALUE_BEFORE ? encoder->near : NULL;
  uint8_t *op = encoder->columns.op++;
  if (ct_columns_is_near(&encoder->columns, near)) {
    encoder->extra = ct_near_put(op, encoder->extra, near, encoder->columns.top[-1].fn, which, value);
    return;
  }
  encoder->extra = ct_value_as_is(op, encoder->extra, which, value);
  ct_columns_time(&encoder->columns, encoder->columns.last_tsc);
}

void
ct_encode_away(struct ct_encoder *encoder, uint64_t since, uint64_t until, uint8_t kind)
{
  room_with_extra(encoder, until);
  *encoder->columns.op++ = CT_TRACE_OP_AWAY;
  *encoder->extra++ = kind;
  uint64_t now = ct_columns_time(&encoder->columns, until);
  encoder->extra = ct_varint_put(encoder->extra, now - until);
  encoder->extra = ct_varint_put(encoder->extra, until > since ? until - since : 0);
}

/* The uncertain frames are always the outermost ones, so the walk ends at the first. */
static void
mark_uncertain(struct ct_encoder *encoder)
{
  for (struct ct_frame *frame = encoder->columns.top; frame-- > encoder->columns.frames;) {
    if (frame->flags & CT_FRAME_UNCERTAIN) {
      break;
    }
    frame->flags |= CT_FRAME_UNCERTAIN;
  }
}

void
ct_encode_lost(struct ct_encoder *encoder, uint64_t tsc, uint64_t count)
{
  room_with_extra(encoder, tsc);
  *encoder->columns.op++ = CT_TRACE_OP_LOST;
  encoder->extra = ct_varint_put(encoder->extra, count);
  ct_columns_time(&encoder->columns, tsc);
  encoder->block_lost += count;
  encoder->losses++;
  mark_uncertain(encoder);
}

/* Puts the current stack away. What cannot be kept is forgotten, with the error kept in the writer. */
static void
save_stack(struct ct_encoder *encoder)
{
  struct ct_saved_stack saved = {
      .frames = encoder->columns.frames,
      .context = encoder->context,
      .count = ct_encoder_depth(encoder),
      .capacity = encoder->frame_capacity,
      .floor = (uint32_t)(encoder->columns.floor - encoder->columns.frames),
      .block = encoder->block,
      .losses = encoder->losses,
  };
  if (saved.count == 0) {
    return; /* the frames' memory serves the next context */
  }
  struct ct_frame *fresh = hold_frames(encoder, FRAMES_AT_START) ? malloc(FRAMES_AT_START * sizeof(*fresh)) : NULL;
  if (fresh == NULL || ct_contexts_put(&encoder->contexts, &saved) != CT_OK) {
    ct_writer_fail(encoder->writer, CT_ENOMEM, "out of memory for the stacks of thread %u", encoder->tid);
    free(fresh);
    encoder->columns.top = encoder->columns.floor = encoder->columns.frames;
    return;
  }
  encoder->columns.frames = encoder->columns.top = encoder->columns.floor = fresh;
  encoder->frame_capacity = FRAMES_AT_START;
}

static void
load_stack(struct ct_encoder *encoder, uint32_t context)
{
  struct ct_saved_stack saved;
  encoder->context = context;
  if (!ct_contexts_take(&encoder->contexts, context, &saved)) {
    return;
  }
  free(encoder->columns.frames);
  hold_frames(encoder, -(int64_t)encoder->frame_capacity);
  encoder->columns.frames = saved.frames;
  encoder->frame_capacity = saved.capacity;
  encoder->columns.top = encoder->columns.frames + saved.count;
  /* A reader that begins with this block has not seen how the frames of another context came about. */
  encoder->columns.floor = saved.block == encoder->block ? encoder->columns.frames + saved.floor : encoder->columns.top;
  if (saved.losses != encoder->losses) {
    mark_uncertain(encoder);
  }
}

void
ct_encode_switch(struct ct_encoder *encoder, uint64_t tsc, uint32_t context)
{
  if (context == encoder->context) {
    return;
  }
  room_with_extra(encoder, tsc);
  save_stack(encoder);
  load_stack(encoder, context);
  *encoder->columns.op++ = CT_TRACE_OP_SWITCH;
  encoder->extra = ct_varint_put(encoder->extra, context);
  encoder->extra = ct_varint_put(encoder->extra, ct_encoder_depth(encoder));
  ct_columns_time(&encoder->columns, tsc);
  encoder->columns.op_limit = encoder->columns.op; /* the room for frames is another now */
}

void
ct_encode_exec(struct ct_encoder *encoder, uint64_t tsc)
{
  while (encoder->columns.top > encoder->columns.frames) {
    ct_encode_unwound(encoder, tsc, 2 /* CT_UNWOUND_EXEC */);
  }
  ct_encoder_room(encoder, tsc);
  *encoder->columns.op++ = CT_TRACE_OP_EXEC;
  ct_columns_time(&encoder->columns, tsc);
  ct_contexts_clear(&encoder->contexts);
  encoder->context = 0;
}
