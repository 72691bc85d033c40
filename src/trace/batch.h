/* SPDX-License-Identifier: MIT */
/*
 * Reading as the views do: events in batches, from any block, and the manifest as it was parsed. Beyond what
 * <contrail/trace.h> gives to everybody.
 */
#ifndef CT_TRACE_BATCH_H
#define CT_TRACE_BATCH_H

#include <contrail/trace.h>

#include "base/error.h"

#include <jansson.h>

/* The whole manifest, borrowed; valid until ct_trace_close. */
const json_t *ct_trace_manifest(const struct ct_trace *trace);
/* crash.json, borrowed likewise: an object, NULL when there is none or it is damaged. */
const json_t *ct_trace_crash(const struct ct_trace *trace);
/* The same of stacks.json. */
const json_t *ct_trace_stacks(const struct ct_trace *trace);

/* The directory, open as long as the trace. */
int ct_trace_dir_fd(const struct ct_trace *trace);
/* The range that was set, in ticks; false: none was. */
bool ct_trace_range(const struct ct_trace *trace, uint64_t *from_tsc, uint64_t *to_tsc);
/* The same piece of time as of another trace of its process tree, whose clock is another; none if that has none. 0 or
 * CT_ENOMEM. */
int ct_trace_set_same_range(struct ct_trace *trace, const struct ct_trace *other);
/*
 * Who reads ranges of the trace does not ask which calls they are that are open where a range begins: that is not
 * looked for in the blocks before it, and they are known by their depth.
 */
void ct_trace_skip_begun(struct ct_trace *trace);
/* Its format is another than ours (ATF V2): there are no blocks of it. */
bool ct_trace_is_atf(const struct ct_trace *trace);

/* How much of the table of functions has been read: more when ct_trace_refresh has found some, or lines of known ones.
 */
uint64_t ct_trace_functions_bytes(const struct ct_trace *trace);
/* How large the thread's file is now. thread: its position. */
uint64_t ct_trace_thread_bytes(const struct ct_trace *trace, uint32_t thread);

/* Of time off the processor only bounds are known (CT_AWAY_SOME). */
bool ct_trace_has_bounds(const struct ct_trace *trace);
/* Events in what is gone of the files. */
uint64_t ct_trace_missing_events(const struct ct_trace *trace);
/* The manifest has the module of each function: while a recording goes on, it may come later than these. */
bool ct_trace_knows_modules(const struct ct_trace *trace);
/* It was made complete after contrail had been killed. */
bool ct_trace_is_recovered(const struct ct_trace *trace);
/* Why the recording ended early, as the manifest has it; NULL: it does not. */
const char *ct_trace_failure(const struct ct_trace *trace);

/*
 * Where the trace is among those that are asked together, for the ids of its spans: its number, and that of its process
 * in it (0: the first, N: the N-th of its children). Both 0 when nobody has set them.
 */
void ct_trace_set_place(struct ct_trace *trace, uint32_t number, uint32_t process);
void ct_trace_place(const struct ct_trace *trace, uint32_t *number, uint32_t *process);

/*
 * What hooks took of the program's time, measured when the recording began: 1/16 ticks before and after the clock
 * reading of an event. All 0 when the manifest does not say it.
 */
#define CT_COST_UNIT 16
struct ct_trace_costs {
  int64_t enter_before, enter_after, return_before, return_after;
  int64_t value;                       /* an argument or result */
  int64_t point, sampled, passed_over; /* of an enter-only hook; of a sampled one that records its call, or does not */
};
void ct_trace_costs(const struct ct_trace *trace, struct ct_trace_costs *costs);

/*
 * What the program wrote to its standard output and error: the records of the file that are whole, in order of time.
 * 0, CT_ENOENT: there is none, CT_ENOMEM, CT_EIO, CT_EFORMAT. *out goes to ct_captures_free.
 */
struct ct_captured {
  uint64_t tsc;
  uint64_t given; /* bytes that the call was given; data has the first ones */
  uint32_t tid;
  uint32_t fd;
  uint32_t bytes; /* of data */
  const char *data;
};
struct ct_captures {
  char *text; /* of the file */
  struct ct_captured *items;
  size_t count;
  uint64_t bytes;  /* of all items together */
  bool is_damaged; /* the file goes on after the last one, with something else */
};
uint64_t ct_trace_captures_bytes(const struct ct_trace *trace); /* of its file or files now */
int ct_trace_captures(const struct ct_trace *trace, struct ct_captures *out);
void ct_captures_free(struct ct_captures *captures);

/* Calls that were recorded as instructions, in the order in which they ended. */
struct ct_itraced_call {
  uint32_t tid, fn;
  uint64_t tsc;               /* of the event of its enter; 0: it has none */
  uint64_t first_step, steps; /* in the thread's file of steps */
  const char *outcome;        /* "returned", "cut": the thread was released before, "ended": it has ended in there */
};
struct ct_itraced {
  struct ct_itraced_call *calls;
  size_t count;
};
/* 0, CT_ENOENT: there are none, CT_ENOMEM, CT_EFORMAT. *out goes to ct_itraced_free. */
int ct_trace_itraced(const struct ct_trace *trace, struct ct_itraced *out);
void ct_itraced_free(struct ct_itraced *list);

/*
 * Of prototypes.tsv (docs/format.md), which is read at the first call: what a function takes and gives, the fields
 * after its id; the names of a list of constants, the fields after its number; and what is the matter with the file.
 * NULL: there is no such thing. Borrowed. Any thread.
 */
const char *ct_trace_prototype(struct ct_trace *trace, uint32_t fn);
const char *ct_trace_constants(struct ct_trace *trace, uint32_t number);
/* Data, and functions that are not in the function table; by their address relative to the base of fn's module. */
struct ct_trace_object {
  uint32_t fn;
  uint64_t address, size;
  const char *name; /* raw */
};
const struct ct_trace_object *ct_trace_objects(struct ct_trace *trace, size_t *count);
const char *ct_trace_prototypes_damage(struct ct_trace *trace);

/*
 * The blocks from one that begins at offset on, by their headers, `most` at the most; *count of them, fewer where the
 * file ends or goes on with something else.
 */
struct ct_block_place {
  uint64_t offset, end_offset;
  uint32_t header_crc, number;
};
void ct_trace_block_places(const struct ct_trace *trace, uint32_t thread, uint64_t offset,
                           struct ct_block_place *places, size_t most, size_t *count);
#define CT_FIRST_BLOCK_OFFSET 64 /* after the file's header */

/*
 * For who reads a range of the trace and knows some places: blocks of the thread begin there, and no event before one
 * of them is later than before_tsc. Ascending, and copied. Cursors of the trace, opened after that, then look at no
 * more headers than from one of these places to the next to find where the range begins. 0 or CT_ENOMEM.
 */
struct ct_trace_place {
  uint64_t offset, before_tsc;
};
int ct_trace_set_places(struct ct_trace *trace, uint32_t thread, const struct ct_trace_place *places, size_t count);
/*
 * Likewise for who knows all the frames that are open where the block at offset begins, on all stacks of the thread:
 * cursors with a range that begins there or later then begin there, and do not search what is before it for stacks that
 * the thread was not on. By context and depth; those of one context follow each other without a gap. Copied.
 */
struct ct_trace_past_frame {
  uint64_t enter_tsc; /* of one that was open when the trace began: then */
  uint64_t call;      /* the ordinal of its call and 1; 0: not known */
  uint32_t context, depth, fn, uncertain;
};
int ct_trace_set_past(struct ct_trace *trace, uint32_t thread, uint64_t offset,
                      const struct ct_trace_past_frame *frames, size_t count);

/*
 * All blocks of a thread that reach into the trace's range, by their headers: what is damaged is passed over as far as
 * the next file. *list is to be freed. 0 or CT_ENOMEM.
 */
struct ct_block_info {
  uint64_t first_event; /* calls and returns before it */
  uint64_t lost;        /* events, in it */
  uint64_t first_tsc, last_tsc;
  uint32_t number;
  uint32_t events; /* calls and returns */
  uint32_t bytes;  /* in the file, with its header */
  uint32_t piece;  /* of the thread's files (--max-size); 0: there is one file */
};
int ct_trace_blocks(const struct ct_trace *trace, uint32_t thread, struct ct_block_info **list, size_t *count);
enum { CT_BLOCK_INFO_NAME_BYTES = 64 };
/* The file that it is in, in the trace's directory. */
void ct_trace_block_name(const struct ct_trace *trace, uint32_t thread, const struct ct_block_info *block,
                         char out[CT_BLOCK_INFO_NAME_BYTES]);

/*
 * The next events in order, as a batch in the cursor's own storage, valid until the
 * next call: *events and the number of them (0 at the end; see ct_cursor_state). Not to be mixed with
 * ct_cursor_next_event.
 */
size_t ct_cursor_next(struct ct_cursor *cursor, const struct ct_event **events);
/*
 * The ordinal of a call is its position among the calls of its thread (ENTER, TAIL, POINT), from 0 at the begin of the
 * recording, whatever of it is in the trace. Of the batch at hand: that of its first call; the others follow.
 * With CT_ORDINAL_BEFORE the calls of the batch are of frames that were open where the stream begins, or goes on after
 * damage: nobody counted them, and that and the depth are what identifies them. At the begin of a range each frame of
 * which the call is found is a batch of its own, with the ordinal of that.
 */
#define CT_ORDINAL_BEFORE     (1ull << 62)
#define CT_ORDINAL_DEPTH_BITS 28 /* of such a one: the depth; above these the number of the block, of 32 bits */
uint64_t ct_cursor_ordinal(const struct ct_cursor *cursor);
/* That batch is no events but frames: those that are open where the stream begins, or goes on after damage. */
bool ct_cursor_gives_frames(const struct ct_cursor *cursor);
/* Where in its file the block begins that the batch is of. */
uint64_t ct_cursor_block_offset(const struct ct_cursor *cursor);
/*
 * Goes to the block that begins at this offset of the thread's file and reads on from there with what the
 * block itself says about the frames that are open; CT_EFORMAT, and the cursor at its end, when there is none.
 * In blocks reached so the fields fn, closed_fn (UINT32_MAX) and enter_tsc (0, with uncertain set) of frames
 * deeper than the block lists are not known.
 */
int ct_cursor_seek(struct ct_cursor *cursor, uint64_t offset);
/* Goes back to the begin of the stream. CT_ENOMEM. */
int ct_cursor_rewind(struct ct_cursor *cursor);
/* Blocks of format version 1 do not tell the ordinal of their first call: after a seek it is this one. */
void ct_cursor_set_ordinal(struct ct_cursor *cursor, uint64_t ordinal);
/*
 * Goes near the end: to the first of the last whole blocks that hold at least so many ops together, or to the first
 * block. Only headers are read on the way. As ct_cursor_seek otherwise.
 */
int ct_cursor_seek_tail(struct ct_cursor *cursor, uint64_t ops);
/* Frames still open where the cursor stands, outermost first; for the end of the stream. */
size_t ct_cursor_open_frames(const struct ct_cursor *cursor, const struct ct_open_frame **frames);
/* All the frames open there; more than ct_cursor_open_frames gives only after a seek or a skipped block. */
uint32_t ct_cursor_depth(const struct ct_cursor *cursor);
/* Bytes of the thread's file consumed so far, for a progress line. */
uint64_t ct_cursor_offset(const struct ct_cursor *cursor);

/* The next event that is asked about is not before that time: what is earlier is not read, damage there not seen. */
void ct_details_pass(struct ct_details *details, uint64_t tsc);

/* A value of a return, which its event follows: rax, rdx, xmm0, xmm1, errno. */
static inline bool
ct_value_is_result(uint32_t which)
{
  return which == CT_VALUE_RESULT || (which >= CT_VALUE_RESULT_2 && which <= CT_VALUE_ERROR);
}

#endif
