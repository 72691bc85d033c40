/* SPDX-License-Identifier: MIT */
/*
 * The hot path of writing: one call per event, inline, appending to the columns of
 * the block in progress and keeping the thread's stack of frames.
 *
 * Rules:
 *   frames <= floor <= top; a frame below floor is not known to a reader that has
 *   only this block, so its return carries the function id (RETURN_ID).
 *   op <= op_limit; up to op_limit every op fits all columns and may push a frame.
 *   That one comparison is the only bounds check; make_room does the rest: takes
 *   buffers from the pool, writes a full block, grows the stack.
 *   Time never runs backwards within a thread: an earlier tsc is taken as the last one.
 *
 * After a failure (see writer.h) blocks are thrown away instead of written; the stack
 * of frames stays exact, so the caller need not care. Only when the stack itself
 * finds no memory is it emptied.
 */
#ifndef CT_TRACE_ENCODER_H
#define CT_TRACE_ENCODER_H

#include "base/branch.h"
#include "trace/contexts.h"
#include "trace/format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define CT_FRAME_UNCERTAIN 1u /* events were lost while it was open; the other bits of flags belong to the drain */

struct ct_frame {
  uint64_t enter_tsc;
  uint32_t root_fn; /* the caller's: whose return ends the frame. fn after an enter, kept by a tail call */
  uint32_t ra_slot; /* the caller's: low half of the address of the return-address slot */
  uint32_t fn;
  uint32_t flags;
  uint64_t call; /* the drain's, which sets it where flags say that it holds */
};
static_assert(sizeof(struct ct_frame) == 32, "frames of deep recursions are many");

struct ct_trace_writer;
struct ct_buffers; /* writer_internal.h: the columns of one block in progress */
struct ct_stream;  /* writer_internal.h: the file, as the writer thread knows it */
struct ct_detail_stream;

/* What every event changes or looks at. Who takes many events works on a copy, which the compiler keeps in registers.
 */
struct ct_columns {
  uint8_t *op;       /* next byte of each column */
  uint8_t *op_limit; /* equal to op, both NULL, while the encoder holds no buffers */
  uint8_t *delta;
  uint8_t *id;
  uint32_t *prediction;
  struct ct_frame *top; /* one past the innermost frame */
  struct ct_frame *floor;
  struct ct_frame *frames;
  uint64_t last_tsc;
  uint32_t last; /* state of ct_prediction_slot */
};

struct ct_encoder {
  struct ct_columns columns;

  /* below: slow paths only */
  uint32_t frame_capacity;
  uint64_t frames_held; /* room for frames, of all contexts */
  struct ct_trace_writer *writer;
  struct ct_buffers *buffers;
  uint8_t *extra;
  const uint8_t *extra_limit;  /* up to this every op fits, as with op_limit */
  _Atomic uint8_t *has_values; /* the writer's */
  uint64_t *near;              /* the latest values of the block in progress; NULL: it has none so far */
  uint64_t first_tsc;
  uint64_t block; /* number of the block in progress */
  uint64_t block_lost;
  uint64_t losses; /* LOST ops so far */
  uint32_t context;
  uint32_t depth_start;
  uint32_t open_count;
  uint32_t open_bytes;
  uint32_t interval_log2;  /* of sampling */
  uint32_t interval_start; /* the same before the first op of the block in progress */
  struct ct_contexts contexts;

  uint64_t events; /* in blocks queued for the file */
  uint64_t calls;  /* the enters among them */
  uint32_t blocks; /* as many of them */
  struct ct_stream *stream;
  struct ct_detail_stream *detail; /* trace/detail.h; NULL: none yet */
  uint32_t tid;
  bool is_near; /* its file has values by their differences */
  int closed;
};

/* Makes op < op_limit, for an event at tsc. Cannot fail; see the top of this file. */
__attribute__((cold, noinline)) void ct_encoder_make_room(struct ct_encoder *encoder, uint64_t tsc);
__attribute__((cold, noinline)) void ct_encode_return_id(struct ct_encoder *encoder, uint64_t tsc);
__attribute__((cold, noinline)) void ct_encode_unwound(struct ct_encoder *encoder, uint64_t tsc, uint8_t reason);
__attribute__((cold, noinline)) void ct_encode_lost(struct ct_encoder *encoder, uint64_t tsc, uint64_t count);
/* A point that stands for 2^interval_log2 calls, the number of calls from one event to the next (sampled hooks). */
__attribute__((cold, noinline)) void ct_encode_sampled(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn,
                                                       uint32_t interval_log2);
/* That number from here on. */
__attribute__((cold, noinline)) void ct_encode_interval(struct ct_encoder *encoder, uint64_t tsc,
                                                        uint32_t interval_log2);
/* So many calls of the function, since this was last said, have no event: they were counted. */
__attribute__((cold, noinline)) void ct_encode_counted(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn,
                                                       uint64_t calls);
/* An argument or the result (enum ct_value) of the call of the top frame, which there is. It takes no time. */
__attribute__((noinline)) void ct_encode_value(struct ct_encoder *encoder, uint8_t which, uint64_t value);
/*
 * The thread did not run its own code from `since` to `until`, for a reason (enum ct_away). Both are kept as they are
 * also when events after them have been written already, but for times in the future of the last event: those move it
 * on.
 */
__attribute__((cold, noinline)) void ct_encode_away(struct ct_encoder *encoder, uint64_t since, uint64_t until,
                                                    uint8_t kind);
/* Another stack: the frames of the current context are kept, those of the new one come back. */
__attribute__((cold, noinline)) void ct_encode_switch(struct ct_encoder *encoder, uint64_t tsc, uint32_t context);
/* Writes UNWOUND for the frames still open in the current context, then EXEC; all contexts are empty, context 0 is on.
 */
__attribute__((cold, noinline)) void ct_encode_exec(struct ct_encoder *encoder, uint64_t tsc);

static inline uint32_t
ct_encoder_depth(const struct ct_encoder *encoder)
{
  return (uint32_t)(encoder->columns.top - encoder->columns.frames);
}

/* The innermost frame, NULL when there is none. Valid until the next event. */
static inline struct ct_frame *
ct_encoder_top(struct ct_encoder *encoder)
{
  return encoder->columns.top == encoder->columns.frames ? NULL : encoder->columns.top - 1;
}

static inline uint32_t
ct_encoder_context(const struct ct_encoder *encoder)
{
  return encoder->context;
}

/* Time of the first event of the block in progress, 0 when there is none: its age decides about ct_encoder_flush. */
static inline uint64_t
ct_encoder_pending_since(const struct ct_encoder *encoder)
{
  return encoder->columns.op == NULL ? 0 : encoder->first_tsc;
}

static inline void
ct_encoder_room(struct ct_encoder *encoder, uint64_t tsc)
{
  if (CT_UNLIKELY(encoder->columns.op >= encoder->columns.op_limit)) {
    ct_encoder_make_room(encoder, tsc);
  }
}

/* ---- values ---- */

enum { CT_HAS_VALUES_BYTES = (CT_FUNCTION_ID_MAX + 1) / 8 };

/* The function has values in the trace. */
static inline void
ct_encoder_note_values(const struct ct_encoder *encoder, uint32_t fn)
{
  if (encoder->has_values != NULL && fn <= CT_FUNCTION_ID_MAX) {
    /* relaxed: one thread writes, and who reads waits for it to be done */
    uint8_t bits = atomic_load_explicit(&encoder->has_values[fn / 8], memory_order_relaxed),
            bit = (uint8_t)(1u << fn % 8);
    if (CT_UNLIKELY((bits & bit) == 0)) {
      atomic_store_explicit(&encoder->has_values[fn / 8], (uint8_t)(bits | bit), memory_order_relaxed);
    }
  }
}

/*
 * As ct_varint_put, for numbers of any length, without a branch for each byte: LEB128, whose groups of seven bits are
 * moved apart by halves. Up to 10 bytes are written.
 */
static inline uint8_t *
ct_value_put(uint8_t *p, uint64_t value)
{
  uint32_t bytes = ((63u - (uint32_t)__builtin_clzll(value | 1)) * 37 >> 8) + 1; /* sevenths of a number below 64 */
  uint64_t word = (value & 0xfffffff) | (value & 0xfffffff0000000) << 4;
  word = (word & 0x00003fff00003fff) | (word & 0x0fffc0000fffc000) << 2;
  word = (word & 0x007f007f007f007f) | (word & 0x3f803f803f803f80) << 1;
  if (CT_UNLIKELY(bytes > 8)) {
    uint64_t rest = value >> 56;
    word |= 0x8080808080808080;
    memcpy(p, &word, sizeof(word));
    p[8] = (uint8_t)rest;
    p[9] = (uint8_t)(rest >> 7);
    return p + bytes;
  }
  word |= 0x0080808080808080 >> (64 - 8 * bytes);
  memcpy(p, &word, sizeof(word));
  return p + bytes;
}

/* The op of a value of a function, and in the column `extra`, whose end it returns, how it differs from those before.
 */
static inline uint8_t *
ct_near_put(uint8_t *op, uint8_t *extra, uint64_t *near, uint32_t fn, uint32_t which, uint64_t value)
{
  uint64_t *before = &near[ct_near_place(fn, which)];
  uint64_t difference = ct_near_of(value, *before);
  uint32_t has_op = which <= CT_TRACE_OP_NEAR_3 - CT_TRACE_OP_NEAR;
  *before = value;
  *op = (uint8_t)(CT_TRACE_OP_NEAR + (has_op ? which : 0));
  *extra = (uint8_t)which;
  extra += 1 - has_op;
  if (CT_LIKELY(difference < 1u << 14)) {
    uint32_t more = difference > 0x7f;
    uint16_t word = (uint16_t)((difference & 0x7f) | more << 7 | difference >> 7 << 8);
    memcpy(extra, &word, sizeof(word));
    return extra + 1 + more;
  }
  return ct_value_put(extra, difference);
}

/* The same as it is. */
static inline uint8_t *
ct_value_as_is(uint8_t *op, uint8_t *extra, uint32_t which, uint64_t value)
{
  *op = CT_TRACE_OP_VALUE;
  *extra = (uint8_t)which;
  return ct_value_put(extra + 1, value);
}

/* Whether values of the top frame are written by their differences: who reads this block alone knows the frame. */
static inline bool
ct_columns_is_near(const struct ct_columns *columns, const uint64_t *near)
{
  return near != NULL && columns->top > columns->floor;
}

/* ---- columns: of an op for which there is room ---- */

/* Appends the time; returns it as the reader will see it. One or two bytes without a branch between them. */
static inline uint64_t
ct_columns_time(struct ct_columns *columns, uint64_t tsc)
{
  uint64_t last = columns->last_tsc;
  uint64_t now = tsc > last ? tsc : last;
  uint64_t delta = now - last;
  columns->last_tsc = now;
  if (CT_LIKELY(delta < 1u << 14)) {
    uint32_t more = delta > 0x7f;
    uint16_t word = (uint16_t)((delta & 0x7f) | more << 7 | delta >> 7 << 8);
    memcpy(columns->delta, &word, sizeof(word));
    columns->delta += 1 + more;
  } else {
    columns->delta = ct_varint_put(columns->delta, delta);
  }
  return now;
}

/* Writes four bytes always, and keeps as many as the id needs, or none (keep 1 or 0): no branch that is hard to
 * predict. LEB128, its groups of seven bits moved apart by halves. */
static inline void
ct_columns_id(struct ct_columns *columns, uint32_t fn, uint32_t keep)
{
  static_assert(CT_FUNCTION_ID_MAX < 1u << 28, "four bytes hold an id");
  uint32_t more = (31u - (uint32_t)__builtin_clz(fn | 1)) * 37 >> 8; /* sevenths of a number below 32 */
  uint32_t word = (fn & 0x3fff) | (fn & ~0x3fffu) << 2;
  word = (word & 0x007f007f) | (word & 0x3f803f80) << 1 | 0x00808080u >> (24 - 8 * more);
  memcpy(columns->id, &word, sizeof(word));
  columns->id += (1 + more) & -keep;
}

/* Appends op `predicted` or `predicted + 1` with the id. */
static inline void
ct_columns_call(struct ct_columns *columns, uint32_t fn, uint8_t predicted)
{
  uint32_t *slot = &columns->prediction[ct_prediction_slot(columns->last)];
  uint32_t missed = *slot != fn + 1;
  *slot = fn + 1;
  columns->last = fn * 2;
  *columns->op++ = (uint8_t)(predicted + missed);
  ct_columns_id(columns, fn, missed);
}

/* All of it but what flags say nothing about. */
static inline void
ct_frame_open(struct ct_frame *frame, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  frame->enter_tsc = tsc;
  frame->root_fn = fn;
  frame->ra_slot = ra_slot;
  frame->fn = fn;
  frame->flags = 0;
}

static inline struct ct_frame *
ct_columns_enter(struct ct_columns *columns, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  ct_columns_call(columns, fn, CT_TRACE_OP_ENTER_PREDICTED);
  uint64_t now = ct_columns_time(columns, tsc);
  struct ct_frame *frame = columns->top++;
  ct_frame_open(frame, now, fn, ra_slot);
  return frame;
}

/* The top frame returns, which is not below the floor. */
static inline void
ct_columns_return(struct ct_columns *columns, uint64_t tsc)
{
  *columns->op++ = CT_TRACE_OP_RETURN;
  ct_columns_time(columns, tsc);
  columns->top--;
  columns->last = columns->top->fn * 2 + 1;
}

/* A call of which nothing but its time is recorded; predicted: of points, or of those that stand for many. */
static inline void
ct_columns_point(struct ct_columns *columns, uint64_t tsc, uint32_t fn, uint8_t predicted)
{
  ct_columns_call(columns, fn, predicted);
  ct_columns_time(columns, tsc);
}

/* ---- events ---- */

/* fn is at most CT_FUNCTION_ID_MAX in all of these. The new frame; it belongs to ra_slot, and fn is its root. */
static inline struct ct_frame *
ct_encode_enter(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn, uint32_t ra_slot)
{
  ct_encoder_room(encoder, tsc);
  return ct_columns_enter(&encoder->columns, tsc, fn, ra_slot);
}

/*
 * The top frame, if any, ends here and fn takes its place; ra_slot, root_fn and the drain's flags stay as they are.
 * Returns the frame, which may be elsewhere than before.
 */
static inline struct ct_frame *
ct_encode_tail(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn)
{
  ct_encoder_room(encoder, tsc);
  ct_columns_call(&encoder->columns, fn, CT_TRACE_OP_TAIL_PREDICTED);
  uint64_t now = ct_columns_time(&encoder->columns, tsc);
  if (CT_UNLIKELY(encoder->columns.top == encoder->columns.frames)) {
    *encoder->columns.top = (struct ct_frame){.enter_tsc = now, .fn = fn, .ra_slot = 0, .root_fn = fn, .flags = 0};
    return encoder->columns.top++;
  }
  struct ct_frame *frame = encoder->columns.top - 1;
  frame->enter_tsc = now;
  frame->fn = fn;
  frame->flags &= ~CT_FRAME_UNCERTAIN;
  if (frame < encoder->columns.floor) {
    encoder->columns.floor = frame;
  }
  return frame;
}

/* A function of which only the enter is recorded. */
static inline void
ct_encode_point(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn)
{
  ct_encoder_room(encoder, tsc);
  ct_columns_point(&encoder->columns, tsc, fn, CT_TRACE_OP_POINT_PREDICTED);
}

/* The top frame returns. The caller has seen to it that there is one. */
static inline void
ct_encode_return(struct ct_encoder *encoder, uint64_t tsc)
{
  ct_encoder_room(encoder, tsc);
  if (CT_UNLIKELY(encoder->columns.top <= encoder->columns.floor)) {
    ct_encode_return_id(encoder, tsc);
    return;
  }
  ct_columns_return(&encoder->columns, tsc);
}

/* A return whose enter is not in the trace. */
static inline void
ct_encode_orphan_return(struct ct_encoder *encoder, uint64_t tsc, uint32_t fn)
{
  ct_encoder_room(encoder, tsc);
  *encoder->columns.op++ = CT_TRACE_OP_RETURN_ORPHAN;
  ct_columns_id(&encoder->columns, fn, 1);
  ct_columns_time(&encoder->columns, tsc);
  encoder->columns.last = fn * 2 + 1;
}

#endif
