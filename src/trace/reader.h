/* SPDX-License-Identifier: MIT */
/*
 * Reading a trace directory: the manifest, the function table, and for each
 * thread the stream of decoded events. Nothing above this header knows files.
 *
 * A reader never trusts the file: every length and offset is checked, a damaged
 * block ends the thread's stream at the last whole block before it (or, with
 * CT_READ_SKIP_DAMAGED, is skipped with a CT_EV_LOST), and says so in ct_cursor_state.
 * After the end of the file has been met, a further ct_cursor_next looks whether more was written since.
 *
 * A trace may be used by several threads at once, each with cursors of its own.
 */
#ifndef CT_TRACE_READER_H
#define CT_TRACE_READER_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct ct_trace; /* opaque */

struct ct_trace_function {
  uint32_t id;
  uint32_t module;      /* index into the modules, UINT32_MAX when unknown */
  uint64_t address;     /* ELF virtual address */
  uint64_t size;        /* bytes */
  const char *raw_name; /* as in the file; never NULL */
  const char *name;     /* demangled on first use through ct_trace_function(), "module+0x1234" for one without a name */
  uint32_t enter_only;  /* mode "enter": its returns are not recorded */
};

struct ct_trace_module {
  uint32_t index;
  uint32_t image;
  const char *path;
  const char *build_id;
  uint64_t base;
};

struct ct_trace_thread {
  uint32_t index;
  uint32_t tid;
  uint32_t pid;
  const char *name; /* "" when unknown */
  uint64_t events;  /* from the manifest, or counted from the block headers when the manifest is not final */
  uint64_t dropped;
  uint64_t file_bytes;
};

/* Opens DIR. On failure *out is untouched and diag says why in one line. */
int ct_trace_open(const char *dir, struct ct_trace **out, struct ct_diag *diag);
void ct_trace_close(struct ct_trace *trace); /* accepts NULL */

/* The whole manifest, borrowed; valid until ct_trace_close. */
const json_t *ct_trace_manifest(const struct ct_trace *trace);
const char *ct_trace_path(const struct ct_trace *trace);
/* True when the recording ended in order (manifest state "complete"). */
bool ct_trace_is_complete(const struct ct_trace *trace);
/* Bytes of all the files of the trace. */
uint64_t ct_trace_bytes(const struct ct_trace *trace);

uint32_t ct_trace_thread_count(const struct ct_trace *trace);
const struct ct_trace_thread *ct_trace_thread(const struct ct_trace *trace, uint32_t index);
uint32_t ct_trace_module_count(const struct ct_trace *trace);
const struct ct_trace_module *ct_trace_module(const struct ct_trace *trace, uint32_t index);
/* Function ids are dense from 0. NULL for an id the table does not have. The name is demangled and kept. */
uint32_t ct_trace_function_count(const struct ct_trace *trace);
const struct ct_trace_function *ct_trace_function(struct ct_trace *trace, uint32_t id);
/* The last component of a function's module path, "?" when unknown. */
const char *ct_trace_module_name(const struct ct_trace *trace, uint32_t module);

/* CLOCK_MONOTONIC nanoseconds of a tsc value, and tick counts as nanoseconds. */
uint64_t ct_trace_ns(const struct ct_trace *trace, uint64_t tsc);
uint64_t ct_trace_ticks_ns(const struct ct_trace *trace, uint64_t ticks);
uint64_t ct_trace_start_ns(const struct ct_trace *trace);

enum ct_event_kind {
  CT_EV_RETURN = 0,
  CT_EV_ENTER = 1,
  CT_EV_TAIL = 2,  /* fn takes the place of the closed frame at the same depth */
  CT_EV_POINT = 3, /* function with an enter event only */
  CT_EV_LEFT = 4,  /* frame ended without a return */
  CT_EV_ORPHAN_RETURN = 5,
  CT_EV_LOST = 6,
  CT_EV_SWITCH = 7,
  CT_EV_EXEC = 8,
};

enum ct_left_reason {
  CT_LEFT_UNWOUND = 1, /* longjmp, exception, cancellation */
  CT_LEFT_EXEC = 2,
  CT_LEFT_THREAD_EXIT = 3,
  CT_LEFT_LOST = 4,
  CT_LEFT_TAIL = 5, /* by a tail call to a function of which only the enter is recorded, or nothing */
};

struct ct_event {
  uint64_t tsc;
  uint64_t enter_tsc; /* RETURN, LEFT, TAIL: when the closed frame was entered */
  uint64_t value;     /* LOST: number of events; SWITCH: stack context */
  uint32_t fn;        /* the function entered, or the one whose frame ended */
  uint32_t closed_fn; /* TAIL: the function whose frame ended (UINT32_MAX when the stack was empty) */
  uint32_t depth;     /* of the frame opened or closed, outermost is 0; POINT: depth it would have had */
  uint8_t kind;       /* enum ct_event_kind */
  uint8_t reason;     /* LEFT: enum ct_left_reason */
  uint8_t uncertain;  /* the closed frame was open when events were lost */
};

struct ct_cursor; /* opaque, one per thread stream */

enum ct_cursor_state { CT_CURSOR_OK = 0, CT_CURSOR_END = 1, CT_CURSOR_DAMAGED = 2 };

enum ct_read_flags {
  /*
   * Go on behind a damaged block: a LOST event (value: events that the block's header announced, 0 when
   * that is damaged too), LEFT with reason CT_LEFT_LOST for frames that ended in it, ENTER with uncertain
   * set and the true time for frames that began in it, then the next whole block. Stacks of other
   * contexts are forgotten. The state at the end is CT_CURSOR_DAMAGED all the same.
   */
  CT_READ_SKIP_DAMAGED = 1,
};

/* thread: position in the list, 0 .. ct_trace_thread_count - 1. */
int ct_cursor_open(struct ct_trace *trace, uint32_t thread, struct ct_cursor **out, struct ct_diag *diag);
int ct_cursor_open_flags(struct ct_trace *trace, uint32_t thread, uint32_t flags, struct ct_cursor **out,
                         struct ct_diag *diag);
void ct_cursor_close(struct ct_cursor *cursor); /* accepts NULL */
/*
 * The next events in order, as a batch in the cursor's own storage, valid until the
 * next call: *events and the number of them (0 at the end; see ct_cursor_state).
 */
size_t ct_cursor_next(struct ct_cursor *cursor, const struct ct_event **events);
/*
 * Goes to the block that begins at this offset of the thread's file and reads on from there with what the
 * block itself says about the frames that are open; CT_EFORMAT, and the cursor at its end, when there is none.
 * In blocks reached so the fields fn, closed_fn (UINT32_MAX) and enter_tsc (0, with uncertain set) of frames
 * deeper than the block lists are not known.
 */
int ct_cursor_seek(struct ct_cursor *cursor, uint64_t offset);
enum ct_cursor_state ct_cursor_state(const struct ct_cursor *cursor);
/* Frames still open where the cursor stands, outermost first; for the end of the stream. */
struct ct_open_frame {
  uint32_t fn;
  uint32_t uncertain;
  uint64_t enter_tsc;
};
size_t ct_cursor_open_frames(const struct ct_cursor *cursor, const struct ct_open_frame **frames);
/* All the frames open there; more than ct_cursor_open_frames gives only after a seek or a skipped block. */
uint32_t ct_cursor_depth(const struct ct_cursor *cursor);
/* Bytes of the thread's file consumed so far, for a progress line. */
uint64_t ct_cursor_offset(const struct ct_cursor *cursor);

#endif
