/* SPDX-License-Identifier: MIT */
/* See cursor.h. A copy of the whole place is kept at each 512th step of the block: back is forward from one of those.
 */
#include "steps/cursor.h"

#include "base/branch.h"
#include "steps/index.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_STEPS = 512, AHEAD_MAX = 64, NEAR_STEPS = 4096 };

/* What the place in a block is. */
struct where {
  const uint8_t *at;       /* the record after this one */
  struct ct_record record; /* CT_RECORD_INSNS: insn is the next of it, if that is below its end */
  uint32_t insn;
  uint32_t stamp; /* the next one */
  uint64_t number;
  uint64_t tsc;
  struct ct_steps_state state;
};

struct ct_steps_cursor {
  struct ct_steps_reader *reader;
  struct ct_units *units;
  const struct ct_units_table *table;
  size_t block;
  bool is_in;     /* the block is unpacked; else it is to be entered */
  bool follows;   /* the state is that at the end of the block before */
  bool stays;     /* in the block, even if the rest of it cannot be read */
  bool is_silent; /* on its way to a place: events are reported to nobody */
  const uint8_t *end;
  uint64_t last;      /* of the block: number of the first step of the next one */
  uint64_t next_mark; /* a copy is kept before that step, or the next one that is not alone */
  struct where where;
  struct ct_steps_step step;
  struct ct_steps_unpacked unpacked;
  struct where *marks;
  size_t mark_count, mark_capacity;
  ct_steps_visit_event *visit;
  void *context;
  const struct ct_steps_index *index; /* NULL: none is used */
  ct_steps_visit_checkpoint *checkpoint;
  void *checkpoint_context;
  uint64_t checkpoint_steps, next_checkpoint;
  uint64_t inconsistent, holes;
  size_t begin_block; /* whose beginning is known */
  bool begin_known;
  uint64_t begin_rip;
};

struct ct_steps_cursor *
ct_steps_cursor_open(struct ct_steps_reader *reader)
{
  struct ct_steps_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor != NULL) {
    cursor->reader = reader;
    cursor->units = ct_steps_reader_units(reader);
    cursor->table = ct_units_table(cursor->units);
    cursor->begin_block = SIZE_MAX;
    cursor->where.state.saved_parts = ct_steps_reader_head(reader)->saved_parts;
  }
  return cursor;
}

void
ct_steps_cursor_close(struct ct_steps_cursor *cursor)
{
  if (cursor != NULL) {
    ct_steps_unpacked_free(&cursor->unpacked);
    free(cursor->marks);
    free(cursor);
  }
}

void
ct_steps_cursor_events(struct ct_steps_cursor *cursor, ct_steps_visit_event *visit, void *context)
{
  cursor->visit = visit;
  cursor->context = context;
}

/* ---- blocks ---- */

static void
leave_block(struct ct_steps_cursor *c)
{
  c->block++;
  c->is_in = false;
  c->where.record.kind = CT_RECORD_NONE;
}

/* What is missing in the file is to readers as what the recorder has lost. */
static void
report_hole(struct ct_steps_cursor *c, uint64_t tsc)
{
  const struct ct_stream_gap gap = {.event = {CT_STREAM_EVENT | CT_STREAM_GAP, sizeof(gap)}, .tsc = tsc};
  const struct ct_steps_event event = {
      .step = c->where.number, .kind = CT_STREAM_GAP, .data = (const uint8_t *)&gap, .bytes = sizeof(gap)};
  c->follows = false;
  c->holes += !c->is_silent;
  if (c->visit != NULL && !c->is_silent) {
    c->visit(c->context, &event);
  }
}

/* What is left of it has no state. why: NULL, nobody wants it any more. */
static void
give_block_up(struct ct_steps_cursor *c, const char *why)
{
  const struct ct_steps_place *place = ct_steps_reader_place(c->reader, c->block);
  if (why != NULL) {
    ct_steps_reader_note(c->reader, "the block at %llu %s: steps %llu to %llu cannot be read",
                         (unsigned long long)place->offset, why, (unsigned long long)c->where.number,
                         (unsigned long long)c->last);
  }
  c->where.number = c->last;
  report_hole(c, place->last_tsc);
  leave_block(c);
}

/* False: there is no further one. */
static bool
enter_block(struct ct_steps_cursor *c)
{
  if (c->block >= ct_steps_reader_blocks(c->reader)) {
    return false;
  }
  const struct ct_steps_place *place = ct_steps_reader_place(c->reader, c->block);
  c->mark_count = 0;
  c->where.number = c->next_mark = place->first_step;
  c->last = place->first_step + place->steps;
  c->next_checkpoint = place->first_step + c->checkpoint_steps;
  c->where.record.kind = CT_RECORD_NONE;
  c->where.insn = c->where.stamp = 0;
  c->where.tsc = place->first_tsc;
  if (place->after_hole) {
    report_hole(c, place->first_tsc);
  }
  int code = ct_steps_reader_unpack(c->reader, c->block, &c->unpacked);
  if (code != 0) {
    give_block_up(c, code == CT_ECANCELED ? NULL : "is damaged");
    return true;
  }
  c->where.at = c->unpacked.bytes;
  c->end = c->unpacked.bytes + c->unpacked.size;
  bool good = ct_stream_begins(c->units, c->unpacked.bytes, c->unpacked.size);
  c->is_in = true;
  if (!good) {
    give_block_up(c, "does not begin with the state");
  }
  return true;
}

/* ---- where the next record is ---- */

static bool
next_block_begins(struct ct_steps_cursor *c, uint64_t *pc)
{
  size_t next = c->block + 1;
  if (next >= ct_steps_reader_blocks(c->reader) || ct_steps_reader_place(c->reader, next)->after_hole) {
    return false;
  }
  if (c->begin_block != next) {
    c->begin_block = next;
    c->begin_known = ct_steps_reader_begin(c->reader, next, &c->begin_rip);
  }
  *pc = c->begin_rip;
  return c->begin_known;
}

/* The state after a gap: nothing that was executed led there. */
static bool
is_after_gap(const struct ct_record *record)
{
  struct ct_stream_context context;
  if (record->event_kind != CT_STREAM_CONTEXT) {
    return false;
  }
  memcpy(&context, record->data, sizeof(context));
  return context.reason == CT_CONTEXT_GAP;
}

static bool
next_by_event(const struct ct_record *record, uint64_t *pc)
{
  if (is_after_gap(record)) {
    return false;
  }
  size_t offset = record->event_kind == CT_STREAM_CONTEXT  ? offsetof(struct ct_stream_context, rip)
                  : record->event_kind == CT_STREAM_STEP   ? offsetof(struct ct_stream_step, pc)
                  : record->event_kind == CT_STREAM_SIGNAL ? offsetof(struct ct_stream_signal, pc)
                                                           : 0;
  if (offset != 0) {
    memcpy(pc, record->data + offset, sizeof(*pc));
  }
  return offset != 0;
}

static bool
next_pc(struct ct_steps_cursor *c, uint64_t *pc)
{
  struct ct_record record;
  const uint8_t *at = c->where.at;
  for (int i = 0; i < AHEAD_MAX; i++) {
    ct_stream_take(c->units, c->table, at, (size_t)(c->end - at), &record);
    if (record.kind == CT_RECORD_NONE) {
      return next_block_begins(c, pc);
    }
    if (record.kind == CT_RECORD_DAMAGED) {
      return false;
    }
    if (record.kind == CT_RECORD_INSNS && record.first < record.end) {
      *pc = record.plan->insn[record.first].pc;
      return true;
    }
    if (record.kind == CT_RECORD_EVENT && record.event_kind != CT_STREAM_MEMORY) {
      return next_by_event(&record, pc);
    }
    at += record.bytes;
  }
  return false;
}

/* ---- events ---- */

bool
ct_steps_is_gap(const struct ct_steps_event *event)
{
  struct ct_stream_context context;
  if (event->kind == CT_STREAM_CONTEXT) {
    memcpy(&context, event->data, sizeof(context));
    return context.reason == CT_CONTEXT_GAP;
  }
  return event->kind == CT_STREAM_GAP;
}

/* Processors may differ by some ticks. */
static inline void
take_time(struct ct_steps_cursor *c, uint64_t tsc)
{
  c->where.tsc = tsc > c->where.tsc ? tsc : c->where.tsc;
}

static void
report(struct ct_steps_cursor *c, const struct ct_record *record)
{
  struct ct_steps_event event = {
      .step = c->where.number, .kind = record->event_kind, .data = record->data, .bytes = record->bytes};
  if (c->visit != NULL && !c->is_silent) {
    c->visit(c->context, &event);
  }
}

static void
take_context(struct ct_steps_cursor *c, const struct ct_record *record)
{
  struct ct_stream_context context;
  memcpy(&context, record->data, sizeof(context));
  struct ct_steps_state *state = &c->where.state;
  if (context.reason == CT_CONTEXT_SEGMENT && c->follows) {
    struct ct_steps_state before = *state;
    ct_steps_take_context(state, record->data);
    c->inconsistent += !ct_steps_agrees(&before, state);
  } else {
    ct_steps_take_context(state, record->data);
  }
  take_time(c, context.tsc);
  c->follows = true;
}

static void
take_event(struct ct_steps_cursor *c, const struct ct_record *record)
{
  struct ct_stream_signal signal;
  report(c, record);
  if (record->event_kind == CT_STREAM_CONTEXT) {
    take_context(c, record);
  } else if (record->event_kind == CT_STREAM_SIGNAL) {
    memcpy(&signal, record->data, sizeof(signal));
    take_time(c, signal.tsc);
    c->inconsistent += !c->where.state.rip_unknown && c->where.state.cpu.rip != signal.pc;
    c->where.state.cpu.rip = signal.pc;
    c->where.state.rip_unknown = false;
  } else if (record->event_kind != CT_STREAM_MEMORY) {
    uint64_t tsc;
    memcpy(&tsc, record->data + sizeof(struct ct_stream_event), sizeof(tsc));
    take_time(c, tsc);
    c->follows = c->follows && record->event_kind != CT_STREAM_GAP;
  }
}

/* An instruction that was executed where it is; the state after it follows. */
static const struct ct_steps_step *
take_step(struct ct_steps_cursor *c, const struct ct_record *record)
{
  static __thread struct ct_effects effects;
  struct ct_stream_step event;
  struct ct_record after;
  struct ct_steps_step *step = &c->step;
  memcpy(&event, record->data, sizeof(event));
  struct ct_steps_state *state = &c->where.state;
  c->inconsistent += !state->rip_unknown && state->cpu.rip != event.pc;
  state->cpu.rip = event.pc;
  take_time(c, event.tsc);
  step->number = c->where.number++;
  step->pc = event.pc;
  step->tsc = c->where.tsc;
  step->plan = NULL;
  step->code = record->data + offsetof(struct ct_stream_step, code);
  step->length = event.length;
  step->effects = ct_effects_of(step->code, event.length, &effects) ? &effects : NULL;
  step->did = (struct ct_steps_did){.time = event.tsc};
  if (step->effects != NULL && (state->unknown & effects.reads) == 0) {
    step->did.store_count = (uint8_t)ct_mem_stores(&effects, &state->cpu, step->did.stores);
  }
  bool known = false;
  do {
    ct_stream_take(c->units, c->table, c->where.at, (size_t)(c->end - c->where.at), &after);
    if (after.kind != CT_RECORD_EVENT ||
        (after.event_kind != CT_STREAM_MEMORY && after.event_kind != CT_STREAM_CONTEXT) || is_after_gap(&after)) {
      break;
    }
    known = after.event_kind == CT_STREAM_CONTEXT;
    take_event(c, &after);
    c->where.at += after.bytes;
  } while (!known);
  if (!known) {
    ct_steps_forget_all(state);
  }
  return step;
}

/*
 * Did the thread end in the system call that was its last instruction? Then it has no result: the kernel has put one
 * there for the time being.
 */
static bool
ends_here(struct ct_steps_cursor *c)
{
  struct ct_record record = {.kind = CT_RECORD_NONE};
  struct ct_stream_end end;
  const uint8_t *at = c->where.at;
  do {
    ct_stream_take(c->units, c->table, at, (size_t)(c->end - at), &record);
    at += record.kind == CT_RECORD_EVENT ? record.bytes : 0;
  } while (record.kind == CT_RECORD_EVENT && record.event_kind == CT_STREAM_MEMORY);
  if (record.kind != CT_RECORD_EVENT || record.event_kind != CT_STREAM_END) {
    return false;
  }
  memcpy(&end, record.data, sizeof(end));
  return end.reason == CT_STREAM_EXITED || end.reason == CT_STREAM_KILLED;
}

/* A system call was made: of what it left behind. */
static void
take_call(struct ct_steps_cursor *c, bool is_last)
{
  if (is_last && ends_here(c)) {
    c->where.state.unknown |= 1u << CT_RAX;
  }
  take_time(c, c->step.did.time);
}

/* ---- forward ---- */

static void
put_mark(struct ct_steps_cursor *c)
{
  if (c->mark_count == c->mark_capacity) {
    size_t capacity = c->mark_capacity == 0 ? 32 : 2 * c->mark_capacity;
    struct where *marks = realloc(c->marks, capacity * sizeof(*marks));
    if (marks == NULL) {
      return; /* it is only slower without */
    }
    c->marks = marks;
    c->mark_capacity = capacity;
  }
  c->marks[c->mark_count++] = c->where;
  c->next_mark += MARK_STEPS;
}

static void
take_stamps(struct ct_steps_cursor *c)
{
  size_t offset = (size_t)(c->where.at - c->unpacked.bytes);
  while (c->where.stamp < c->unpacked.stamp_count && c->unpacked.stamps[c->where.stamp].at <= offset) {
    take_time(c, c->unpacked.stamps[c->where.stamp++].tsc);
  }
}

static void
report_checkpoint(struct ct_steps_cursor *c)
{
  static __thread struct ct_steps_checkpoint checkpoint;
  checkpoint.number = c->where.number;
  checkpoint.at = (uint64_t)(c->where.at - c->unpacked.bytes);
  checkpoint.tsc = c->where.tsc;
  checkpoint.stamp = c->where.stamp;
  memcpy(&checkpoint.state, &c->where.state, sizeof(checkpoint.state));
  c->next_checkpoint = c->where.number + c->checkpoint_steps;
  c->checkpoint(c->checkpoint_context, &checkpoint);
}

/* Takes the next record of the block, entering the next one; false: there is none. *step: it is an event that is one.
 */
static bool
advance(struct ct_steps_cursor *c, const struct ct_steps_step **step)
{
  struct ct_record *record = &c->where.record;
  if (!c->is_in) {
    return !c->stays && enter_block(c);
  }
  if (CT_UNLIKELY(c->checkpoint != NULL && c->where.number >= c->next_checkpoint && c->where.number < c->last)) {
    report_checkpoint(c);
  }
  take_stamps(c);
  ct_stream_take(c->units, c->table, c->where.at, (size_t)(c->end - c->where.at), record);
  if (CT_UNLIKELY(record->kind == CT_RECORD_NONE)) {
    if (c->where.number != c->last) {
      give_block_up(c, "has fewer steps than it says");
    } else {
      leave_block(c);
    }
    return true;
  }
  bool is_step = record->kind == CT_RECORD_EVENT && record->event_kind == CT_STREAM_STEP;
  uint64_t steps = record->kind == CT_RECORD_INSNS ? (uint64_t)record->end - record->first : is_step;
  if (CT_UNLIKELY(record->kind == CT_RECORD_DAMAGED || steps > c->last - c->where.number)) {
    give_block_up(c, record->kind == CT_RECORD_DAMAGED ? "has a record that is none" : "has more steps than it says");
    return true;
  }
  c->where.at += record->bytes;
  c->where.insn = record->first;
  if (CT_UNLIKELY(record->kind == CT_RECORD_EVENT)) {
    struct ct_record event = *record;
    if (is_step) {
      *step = take_step(c, &event);
    } else {
      take_event(c, &event);
    }
  }
  return true;
}

static inline bool
is_inside(const struct ct_steps_cursor *c)
{
  return c->where.record.kind == CT_RECORD_INSNS && c->where.insn < c->where.record.end;
}

const struct ct_steps_step *
ct_steps_cursor_next(struct ct_steps_cursor *c)
{
  const struct ct_steps_step *made = NULL;
  while (!is_inside(c)) {
    if (!advance(c, &made)) {
      return NULL;
    }
    if (CT_UNLIKELY(made != NULL)) {
      return made;
    }
  }
  uint64_t next = 0;
  if (CT_UNLIKELY(c->where.number >= c->next_mark)) {
    put_mark(c);
  }
  const struct ct_steps_plan *plan = c->where.record.plan;
  const struct ct_steps_insn *insn = &plan->insn[c->where.insn++];
  bool asks = insn->by_next || ct_steps_branches_on_unknown(&c->where.state, insn);
  bool is_last = c->where.insn == c->where.record.end;
  bool has_next = asks && (!is_last || next_pc(c, &next));
  if (asks && !is_last) { /* a branch within a unit was not taken */
    next = insn[1].pc;
  }
  struct ct_steps_step *step = &c->step;
  ct_steps_execute(&c->where.state, insn, c->where.record.data + insn->at, has_next, next, &step->did);
  c->where.state.rip_unknown |= asks && is_last && !has_next && !insn->by_next;
  step->tsc = c->where.tsc;
  if (CT_UNLIKELY(step->did.time != 0)) {
    take_call(c, is_last);
  }
  c->inconsistent += step->did.is_inconsistent;
  step->number = c->where.number++;
  step->pc = insn->pc;
  step->code = insn->code;
  step->effects = &insn->effects;
  step->plan = plan;
  step->length = insn->effects.length;
  return step;
}

/* ---- elsewhere ---- */

/* To where the next record is an instruction, without making it. */
static void
reconcile(struct ct_steps_cursor *c)
{
  struct ct_record ahead;
  const struct ct_steps_step *made = NULL;
  while (!is_inside(c)) {
    if (c->is_in) {
      ct_stream_take(c->units, c->table, c->where.at, (size_t)(c->end - c->where.at), &ahead);
      if (ahead.kind == CT_RECORD_EVENT && ahead.event_kind == CT_STREAM_STEP) {
        return;
      }
    }
    if (!advance(c, &made)) {
      return;
    }
  }
}

/* To the last checkpoint of the block at or before the step, if that is after step `after`. False: it stays. */
static bool
jump_over(struct ct_steps_cursor *c, uint64_t after, uint64_t step)
{
  static __thread struct ct_steps_checkpoint to;
  if (c->index == NULL || !c->is_in || !ct_steps_index_checkpoint(c->index, c->block, step, &to) ||
      to.number <= after || to.number > step || to.number >= c->last || to.at > c->unpacked.size ||
      to.stamp > c->unpacked.stamp_count) {
    return false;
  }
  c->where.at = c->unpacked.bytes + to.at;
  c->where.record.kind = CT_RECORD_NONE;
  c->where.insn = 0;
  c->where.stamp = to.stamp;
  c->where.number = c->next_mark = to.number;
  c->where.tsc = to.tsc;
  memcpy(&c->where.state, &to.state, sizeof(to.state));
  c->follows = false;
  c->mark_count = 0;
  return true;
}

/* Forward to there, if that saves something. */
static void
jump(struct ct_steps_cursor *c, uint64_t step)
{
  if (step - c->where.number >= NEAR_STEPS) {
    jump_over(c, c->where.number, step);
  }
}

void
ct_steps_cursor_pass_events(struct ct_steps_cursor *c)
{
  struct ct_record ahead;
  const struct ct_steps_step *made = NULL;
  while (c->is_in && !is_inside(c)) {
    ct_stream_take(c->units, c->table, c->where.at, (size_t)(c->end - c->where.at), &ahead);
    if (ahead.kind != CT_RECORD_EVENT || ahead.event_kind == CT_STREAM_STEP || !advance(c, &made)) {
      return;
    }
  }
}

static void
go_to_block(struct ct_steps_cursor *c, size_t block, uint64_t step)
{
  const struct ct_steps_place *place = ct_steps_reader_place(c->reader, block);
  bool here = c->is_in && c->block == block;
  if (here && step >= c->where.number) {
    jump(c, step);
    return;
  }
  if (here && c->mark_count != 0) {
    size_t mark = (size_t)((step - place->first_step) / MARK_STEPS);
    mark = mark < c->mark_count ? mark : c->mark_count - 1;
    while (mark > 0 && c->marks[mark].number > step) {
      mark--;
    }
    if (c->marks[mark].number <= step) {
      c->where = c->marks[mark];
      jump(c, step);
      return;
    }
  }
  c->block = block;
  c->is_in = false;
  c->follows = false;
  c->where.number = place->first_step;
  c->where.record.kind = CT_RECORD_NONE;
  enter_block(c);
  if (c->block == block && step >= c->where.number) {
    jump(c, step);
  }
}

bool
ct_steps_cursor_seek(struct ct_steps_cursor *c, uint64_t step)
{
  if (ct_steps_reader_blocks(c->reader) == 0) {
    return false;
  }
  uint64_t inconsistent = c->inconsistent;
  c->is_silent = true;
  go_to_block(c, ct_steps_reader_find(c->reader, step), step);
  while (c->where.number < step && ct_steps_cursor_next(c) != NULL) {
  }
  reconcile(c);
  c->is_silent = false;
  c->inconsistent = inconsistent;
  return c->where.number == step && (is_inside(c) || c->is_in);
}

bool
ct_steps_cursor_back(struct ct_steps_cursor *c)
{
  /* What cannot be read is passed over. */
  for (uint64_t step = c->where.number; step > 0;) {
    step--;
    if (ct_steps_cursor_seek(c, step)) {
      return true;
    }
    const struct ct_steps_place *place = ct_steps_reader_place(c->reader, ct_steps_reader_find(c->reader, step));
    uint64_t end = place->first_step + place->steps;
    if (place->first_step > step) {
      return false; /* blocks before the first one are missing */
    }
    step = step >= end ? end : place->first_step; /* missing, or not to be read */
  }
  return false;
}

bool
ct_steps_cursor_resume(struct ct_steps_cursor *c, uint64_t end, ct_steps_visit_step *visit, void *context)
{
  const struct ct_steps_step *step;
  const struct ct_steps_step *made = NULL;
  uint64_t last = end < c->last ? end : c->last;
  bool goes_on = true;
  c->stays = true;
  while (goes_on && c->is_in && c->where.number < last && (step = ct_steps_cursor_next(c)) != NULL) {
    goes_on = visit(context, step, c);
  }
  while (goes_on && c->is_in && c->where.number == c->last && c->last <= end && !is_inside(c)) {
    advance(c, &made);
  }
  c->stays = false;
  return !goes_on;
}

bool
ct_steps_cursor_scan(struct ct_steps_cursor *c, size_t block, uint64_t end, ct_steps_visit_step *visit, void *context)
{
  c->block = block;
  c->is_in = false;
  c->follows = false;
  enter_block(c);
  return ct_steps_cursor_resume(c, end, visit, context);
}

bool
ct_steps_cursor_scan_from(struct ct_steps_cursor *c, size_t block, uint64_t from, uint64_t end,
                          ct_steps_visit_step *visit, void *context)
{
  uint64_t begin = ct_steps_reader_place(c->reader, block)->first_step;
  if (c->index != NULL && from > begin) {
    if (!c->is_in || c->block != block) {
      c->block = block;
      c->is_in = false;
      c->follows = false;
      c->is_silent = true;
      enter_block(c);
      c->is_silent = false;
    }
    if (c->block == block && jump_over(c, begin, from)) {
      return ct_steps_cursor_resume(c, end, visit, context);
    }
  }
  return ct_steps_cursor_scan(c, block, end, visit, context);
}

void
ct_steps_cursor_use_index(struct ct_steps_cursor *cursor, const struct ct_steps_index *index)
{
  cursor->index = index;
}

void
ct_steps_cursor_checkpoints(struct ct_steps_cursor *cursor, uint64_t steps, ct_steps_visit_checkpoint *visit,
                            void *context)
{
  cursor->checkpoint = visit;
  cursor->checkpoint_context = context;
  cursor->checkpoint_steps = steps;
}

uint64_t
ct_steps_cursor_at(const struct ct_steps_cursor *cursor)
{
  return cursor->where.number;
}

size_t
ct_steps_cursor_block(const struct ct_steps_cursor *cursor)
{
  return cursor->block;
}

const struct ct_steps_state *
ct_steps_cursor_state(const struct ct_steps_cursor *cursor)
{
  return &cursor->where.state;
}

uint64_t
ct_steps_cursor_inconsistent(const struct ct_steps_cursor *cursor)
{
  return cursor->inconsistent;
}

uint64_t
ct_steps_cursor_holes(const struct ct_steps_cursor *cursor)
{
  return cursor->holes;
}

uint64_t
ct_steps_cursor_tsc(const struct ct_steps_cursor *cursor)
{
  return cursor->where.tsc;
}
