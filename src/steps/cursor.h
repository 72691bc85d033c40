/* SPDX-License-Identifier: MIT */
/*
 * A place in a thread's steps: between two of them, with the state there. Goes forward one by one (some 20 to 40
 * ns each at most), to any other place by the block around it; back costs 512 steps at most.
 *
 * What cannot be read (a damaged block, or the rest of one) and what is missing is left out: the steps in it have no
 * state, and an event CT_STREAM_GAP that the file does not have is reported after them.
 */
#ifndef CT_STEPS_CURSOR_H
#define CT_STEPS_CURSOR_H

#include "steps/checkpoint.h"
#include "steps/reader.h"

struct ct_steps_cursor;

struct ct_steps_step {
  uint64_t number;
  uint64_t pc;
  uint64_t tsc;                     /* the last time stamp before it; 0: none in the block so far */
  const uint8_t *code;              /* until the cursor goes on */
  const struct ct_effects *effects; /* NULL: of no known instruction */
  const struct ct_steps_plan *plan; /* NULL: executed where it is */
  struct ct_steps_did did;
  uint8_t length;
};

/* Between steps: an event that is no step. */
struct ct_steps_event {
  uint64_t step; /* that comes after it */
  uint8_t kind;  /* enum ct_stream_kind: CT_STREAM_SIGNAL, _MEMORY, _GAP, _END, _CONTEXT */
  const uint8_t *data;
  uint32_t bytes;
};

/* Before it something is lost, or was not to be recorded. */
bool ct_steps_is_gap(const struct ct_steps_event *event);

/* NULL: out of memory. The reader must outlive it. Stands before the first step. */
struct ct_steps_cursor *ct_steps_cursor_open(struct ct_steps_reader *reader);
void ct_steps_cursor_close(struct ct_steps_cursor *cursor); /* accepts NULL */

/* Called for each event that is passed on the way forward; NULL: not. */
typedef void ct_steps_visit_event(void *context, const struct ct_steps_event *event);
void ct_steps_cursor_events(struct ct_steps_cursor *cursor, ct_steps_visit_event *visit, void *context);

/* Before that step; false: there is none of that number that can be read (the cursor then stands at the next one). */
bool ct_steps_cursor_seek(struct ct_steps_cursor *cursor, uint64_t step);
/* Executes the next step; NULL: there is none. The step, until the next call. */
const struct ct_steps_step *ct_steps_cursor_next(struct ct_steps_cursor *cursor);
/* To before the step before; false: there is none. */
bool ct_steps_cursor_back(struct ct_steps_cursor *cursor);

/*
 * Goes over a block from its beginning (events before its first step too) up to its end with the events there, or to
 * before step `end`; visit sees each step and says whether to go on. The cursor is then somewhere. True: visit has
 * ended it; ct_steps_cursor_resume then goes on after that step.
 */
typedef bool ct_steps_visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor);
bool ct_steps_cursor_scan(struct ct_steps_cursor *cursor, size_t block, uint64_t end, ct_steps_visit_step *visit,
                          void *context);
bool ct_steps_cursor_resume(struct ct_steps_cursor *cursor, uint64_t end, ct_steps_visit_step *visit, void *context);

/* The same from step `from` on, or from some steps before it: by the index, which is of use for long blocks. */
bool ct_steps_cursor_scan_from(struct ct_steps_cursor *cursor, size_t block, uint64_t from, uint64_t end,
                               ct_steps_visit_step *visit, void *context);
/* After one of these that ended before step `end`: the events before that step, which are reported. */
void ct_steps_cursor_pass_events(struct ct_steps_cursor *cursor);
/* NULL: without. It must outlive the cursor, or be taken away. Seeking goes by its checkpoints. */
struct ct_steps_index;
void ct_steps_cursor_use_index(struct ct_steps_cursor *cursor, const struct ct_steps_index *index);
/* On the way over a block a checkpoint is made after so many steps each, before the events there. */
typedef void ct_steps_visit_checkpoint(void *context, const struct ct_steps_checkpoint *checkpoint);
void ct_steps_cursor_checkpoints(struct ct_steps_cursor *cursor, uint64_t steps, ct_steps_visit_checkpoint *visit,
                                 void *context);

/* The number of the step that comes next. */
uint64_t ct_steps_cursor_at(const struct ct_steps_cursor *cursor);
/* The block it stands in. */
size_t ct_steps_cursor_block(const struct ct_steps_cursor *cursor);
/* Before the step that comes next: after one that was made, and before the events there. */
const struct ct_steps_state *ct_steps_cursor_state(const struct ct_steps_cursor *cursor);
/* How often the records contradicted the emulator, on all ways that the cursor went. */
uint64_t ct_steps_cursor_inconsistent(const struct ct_steps_cursor *cursor);
/* How often it came to steps that are missing in the file, or cannot be read, but for its ways to a place. */
uint64_t ct_steps_cursor_holes(const struct ct_steps_cursor *cursor);
/* Time stamp at the place: the last that is reported; 0: none in the block so far. */
uint64_t ct_steps_cursor_tsc(const struct ct_steps_cursor *cursor);

#endif
