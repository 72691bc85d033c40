/* SPDX-License-Identifier: MIT */
/*
 * A cursor in parts: cursor.c finds and unpacks blocks and goes past damage, decode.c
 * turns the ops of the block at hand into events. Nothing outside src/trace includes this.
 */
#ifndef CT_TRACE_CURSOR_INTERNAL_H
#define CT_TRACE_CURSOR_INTERNAL_H

#include "trace/contexts.h"
#include "trace/reader_internal.h"

#include <string.h>

#define CT_BATCH_EVENTS 1024u /* 40 KiB: what one call gives out stays in the cache */

/*
 * The stack of the current context:
 *
 *   depth   0 ............. base | base .... base + count
 *   frames  not known (seek,     | frames[0] .. frames[count - 1]
 *           skipped block)       |
 *
 * frames[-1] has the function CT_FUNCTION_NONE, so that the decoder may look at the top frame before it
 * knows that there is one.
 */
struct ct_frame_stack {
  struct ct_open_frame *frames;
  uint32_t count;
  uint32_t capacity;
  uint32_t base;
};

struct ct_atf_source;

struct ct_cursor {
  struct ct_trace *trace;
  struct ct_atf_source *atf; /* in place of blocks, for a trace in ATF V2; NULL: it is ours */
  bool keeps_file;           /* of atf: it counts among the open ones */
  uint32_t thread;           /* N of thread_N */
  uint32_t thread_position;  /* in the trace's list */
  uint32_t flags;
  enum ct_cursor_state state;
  struct ct_block_file *file; /* NULL: opened for each block */
  uint32_t kept_files;        /* of it, that count among the open ones */
  uint64_t offset;            /* of the block after the one at hand */
  bool header_seen;           /* the file header was there and right */
  bool cut;                   /* the manifest knows of more events than there are */
  bool numbered;              /* and its blocks have numbers */
  bool damage_passed;         /* some block was skipped */
  bool resync;                /* the stack is not the one before the next block */
  uint64_t lost;              /* events announced by skipped blocks */
  /* Of the block to come, when blocks are numbered: number (UINT64_MAX after a seek) and events before it. */
  bool begins_late;        /* the first block is that of a trace of the last stretch, and has not been loaded */
  bool is_empty;           /* nothing of the thread was kept: it has no file */
  bool sought;             /* the position was selected: the frames open there are no events */
  bool before_range;       /* what comes is passed over until the trace's range begins */
  bool after_range;        /* no more is to come of it */
  bool looks_on;           /* but for time away that began in it */
  bool enters_range;       /* pending are the frames that are open there */
  uint32_t stacks_entered; /* at the begin of the range: stacks whose frames were given out */
  size_t last_switch;      /* in pending: from there on it is the stack that the thread is on */
  bool gives_frames;       /* the batch at hand is of frames that were open, not of events */
  struct ct_passed_block {
    uint64_t offset, first_tsc, last_tsc;
  } *passed; /* up to the first one that reaches into the range */
  size_t passed_count;
  uint64_t passed_from; /* the offset of the first of these: that of the first block, if no place let blocks pass */
  const struct ct_trace_past *past; /* what the frames were taken from with which the way to the range began; or NULL */
  uint64_t next_number, next_event;
  uint64_t next_ordinal, batch_ordinal; /* of the first call in the next batch, and in the one at hand */

  /* The block at hand; every op has its delta and its id, if it has any, checked when it was unpacked. */
  struct ct_block_header header;
  uint8_t *columns; /* storage of ops, deltas, extra, open */
  size_t columns_capacity;
  uint32_t *ids; /* storage, decoded */
  size_t ids_capacity;
  const uint8_t *ops;
  const uint8_t *delta, *deltas_end;
  const uint8_t *extra, *extra_end;
  const uint8_t *open, *open_end;
  const uint32_t *id;
  uint32_t op;    /* the next one; header.ops at the end */
  uint32_t limit; /* a batch has no more ops than that */
  uint32_t last;  /* state of ct_prediction_slot */
  uint64_t tsc;
  uint32_t interval_log2; /* of sampling */

  struct ct_frame_stack stack;
  uint32_t context;
  uint64_t losses;
  struct ct_contexts contexts;

  struct ct_event *pending; /* events of a resync, pending_count of them from pending_next */
  size_t pending_count, pending_next, pending_capacity;

  uint32_t few; /* events of the next batch at most (ops.h); 0: as many as fit */

  const struct ct_event *single; /* single_count of them are left of a batch, for ct_cursor_next_event */
  size_t single_count;

  uint32_t prediction[CT_PREDICTION_ENTRIES + 1]; /* functions; the last one takes writes that nobody reads */
  bool has_near;                                  /* the table of values is not empty */
  uint64_t near[CT_NEAR_ENTRIES];
  struct ct_event batch[CT_BATCH_EVENTS];
};

/* A block begins. */
static inline void
clear_tables(struct ct_cursor *cursor)
{
  memset(cursor->prediction, 0xff, sizeof(cursor->prediction)); /* CT_FUNCTION_NONE */
  if (cursor->has_near) {
    memset(cursor->near, 0, sizeof(cursor->near));
    cursor->has_near = false;
  }
}

/* unpack.c: the payload at offset into columns, for the header at hand; false: it is damaged, or there is no memory. */
bool ct_block_unpack(struct ct_cursor *cursor, const struct ct_block_file *file, uint64_t offset);
/*
 * unpack.c: nothing but the ops of the block at offset, of which that is the header, in the storage of the cursor,
 * which has no block at hand. Its checksum is not looked at. NULL: they are damaged, or there is no memory.
 */
const uint8_t *ct_block_unpack_ops(struct ct_cursor *cursor, const struct ct_block_file *file,
                                   const struct ct_block_header *header, uint64_t offset);
/* decode.c: the next events of the block at hand into batch. *damaged: the block contradicts itself at that point. */
size_t ct_decode_batch(struct ct_cursor *cursor, bool *damaged);
/* range.c: where to begin to read for the range: the offset of the first block that reaches into it. */
uint64_t ct_range_first_block(struct ct_cursor *cursor, const struct ct_block_file *file);
/* range_places.c: where a block begins, so that all before it is before that time; the first block where none is known.
 */
uint64_t ct_range_place_before(const struct ct_cursor *cursor, uint64_t tsc);
/*
 * The blocks in which calls may have begun at these times, ascending, of those that a place let pass: in front of those
 * that are remembered. The first block of all is the first one.
 */
void ct_range_pass_earlier(struct ct_cursor *cursor, const struct ct_block_file *file, const uint64_t *times,
                           size_t count);
/* range_stacks.c: goes to the block there, at which the range begins, or to its begin, with the frames that are open on
 * all stacks. */
bool ct_range_arrive(struct ct_cursor *cursor, uint64_t offset);
/* range_stacks.c: of that frame the call's ordinal and 1, where the past tells; 0: it does not. */
uint64_t ct_range_call_of(const struct ct_cursor *cursor, const struct ct_trace_past_frame *frame);
/* range_calls.c: remembers a block up to that one; false: there is no memory. */
bool ct_range_pass_block(struct ct_cursor *cursor, uint64_t offset, const struct ct_block_header *header);
/* The ordinals of the calls whose frames are pending, as far as they can be found. */
void ct_range_find_calls(struct ct_cursor *cursor);
/* What is pending, a batch at a time: of one stack, for depths identify frames of one only. */
size_t ct_cursor_give_pending(struct ct_cursor *cursor, const struct ct_event **events);
/* cursor.c: the next events, whatever range the trace has. */
size_t ct_cursor_read(struct ct_cursor *cursor, const struct ct_event **events);
/* So many ops of the block at hand are still to come before that time. */
uint32_t ct_range_ops_before(const struct ct_cursor *cursor, uint64_t tsc);
/* How many of the events are not after the range. */
size_t ct_range_events_inside(const struct ct_trace *trace, const struct ct_event *events, size_t count);
/* Puts events in front of what is to come: frames of a stack, as entered at that time, after a switch to it. */
bool ct_range_begin(struct ct_cursor *cursor, const struct ct_frame_stack *now, uint32_t context, uint64_t tsc);
/* The frames of the stacks that the thread is not on, in the order of these, then back to the one it is on. */
bool ct_range_enter_others(struct ct_cursor *cursor, uint64_t tsc);
/*
 * Time away that begins in the range and is reported after its end: of events `from` to `count` of the batch. They take
 * the places from `from` on; how many there are. And the same of the batch that comes next, as ct_cursor_next gives it.
 */
size_t ct_range_take_away(struct ct_cursor *cursor, size_t from, size_t count);
size_t ct_range_look_on(struct ct_cursor *cursor, const struct ct_event **events);
/* Of events of a range: time away before its begin is cut off. How many events stay. */
size_t ct_range_clip_away(const struct ct_trace *trace, struct ct_event *events, size_t count);
/* Of events of a range: ends of frames of which it is not known when they were entered become orphans. How many stay.
 */
size_t ct_range_drop_unknown(struct ct_event *events, size_t count);
/* cursor.c: one more event of those; false: there is no memory. */
bool ct_cursor_add_pending(struct ct_cursor *cursor, const struct ct_event *event);
/* Room for so many frames; false when there is no memory or they are too many to believe. */
bool ct_frame_stack_reserve(struct ct_frame_stack *stack, uint64_t count);

#endif
