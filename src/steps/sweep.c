/* SPDX-License-Identifier: MIT */
/*
 * See sweep.h. A unit's instructions become a list of operations (x86/gist.h) when its first record is read, and each
 * record is executed by that list.
 *
 * Flags: the list leaves out those that nobody reads. Who reads flags in a unit is known of its code. After it only the
 * next record tells: so there are two lists, and that without the last flags is for a unit after which comes one that
 * writes all flags before it reads any. So before each unit the flags are right that it reads or leaves as they were.
 *
 * Whenever something is not known (a register made of an undefined flag), instructions are executed as a cursor does
 * it, until all is known again: a store whose address is not known is one of no bytes, there and here.
 */
#include "steps/sweep.h"

#include "base/branch.h"
#include "steps/machine.h"
#include "steps/stream.h"
#include "x86/gist.h"

#include <stdlib.h>
#include <string.h>

/* Of a unit. */
struct slice {
  struct ct_gist *lists[2]; /* without and with the flags that are left after it; NULL: not made yet */
  const struct ct_steps_plan *plan;
  uint32_t bytes; /* of its record, with the id; 0: nothing is known of it yet */
  uint16_t insns;
  bool replaces_flags; /* it writes all before it reads any */
};

struct ct_steps_sweep {
  struct ct_steps_reader *reader;
  struct ct_units *units;
  struct slice *slices; /* by ids, which follow each other; a unit of a greater one is executed as a cursor does it */
  size_t slice_count;
  struct ct_steps_unpacked unpacked;
  struct ct_steps_state state;
  /* Of the block that is read: */
  const struct ct_steps_target *target;
  uint64_t before, number, left; /* steps of it that follow number */
  struct ct_steps_write found;
  /* Who sees all stores, of whom target is NULL: */
  ct_steps_visit_bytes *visit;
  void *context;
};

struct ct_steps_sweep *
ct_steps_sweep_open(struct ct_steps_reader *reader)
{
  struct ct_steps_sweep *sweep = calloc(1, sizeof(*sweep));
  if (sweep == NULL) {
    return NULL;
  }
  sweep->reader = reader;
  sweep->units = ct_steps_reader_units(reader);
  sweep->state.saved_parts = ct_steps_reader_head(reader)->saved_parts;
  sweep->slice_count = 2 * ct_units_count(sweep->units) + 1;
  sweep->slices = calloc(sweep->slice_count, sizeof(*sweep->slices));
  if (sweep->slices == NULL) {
    free(sweep);
    sweep = NULL;
  }
  return sweep;
}

void
ct_steps_sweep_close(struct ct_steps_sweep *sweep)
{
  if (sweep == NULL) {
    return;
  }
  for (size_t i = 0; i < sweep->slice_count; i++) {
    free(sweep->slices[i].lists[0]);
    free(sweep->slices[i].lists[1]);
  }
  free(sweep->slices);
  ct_steps_unpacked_free(&sweep->unpacked);
  free(sweep);
}

/* ---- lists ---- */

/* Of the six; what a branch reads decides nothing here. */
static unsigned
flags_read(const struct ct_steps_insn *insn)
{
  const struct ct_effects *e = &insn->effects;
  return !insn->is_emulated ? CT_FLAGS_SIX : e->flow == CT_INSN_FLOW_BRANCH ? 0 : e->flags_read;
}

/* Whatever the state is. */
static unsigned
flags_replaced(const struct ct_steps_insn *insn)
{
  return insn->effects.flags_written & (unsigned)~insn->effects.flags_kept;
}

static bool
replaces_flags(const struct ct_steps_plan *plan)
{
  unsigned left = CT_FLAGS_SIX;
  for (unsigned i = 0; i < plan->insns && left != 0; i++) {
    if ((flags_read(&plan->insn[i]) & left) != 0) {
      return false;
    }
    left &= ~flags_replaced(&plan->insn[i]);
  }
  return left == 0;
}

/* asked: flags that are read after it. NULL: out of memory. */
static struct ct_gist *
make_list(const struct ct_steps_plan *plan, unsigned asked)
{
  bool is_asked[UINT8_MAX + 1] = {false};
  size_t count = 0;
  struct ct_gist *list = plan->insns <= UINT8_MAX ? calloc(plan->insns * (size_t)CT_GIST_MAX + 1, sizeof(*list)) : NULL;
  if (list == NULL) {
    return NULL;
  }
  for (unsigned i = plan->insns; i-- > 0;) {
    const struct ct_steps_insn *insn = &plan->insn[i];
    is_asked[i] = (insn->effects.flags_written & asked) != 0;
    asked = (asked & ~flags_replaced(insn)) | flags_read(insn);
  }
  for (unsigned i = 0; i < plan->insns; i++) {
    const struct ct_steps_insn *insn = &plan->insn[i];
    count += ct_gist_of(&insn->effects, insn->values, insn->value_count, insn->is_emulated, is_asked[i], insn->pc,
                        insn->at, (uint8_t)i, list + count);
  }
  list[count] = (struct ct_gist){.kind = CT_GIST_END};
  struct ct_gist *fitting = realloc(list, (count + 1) * sizeof(*list));
  return fitting != NULL ? fitting : list;
}

/* False: there is no such unit. */
static bool
make_slice(struct ct_steps_sweep *sweep, uint32_t id)
{
  const struct ct_steps_plan *plan = ct_units_decode(sweep->units, id);
  if (plan != NULL) {
    sweep->slices[id] = (struct slice){.plan = plan,
                                       .bytes = (uint32_t)sizeof(id) + plan->bytes,
                                       .insns = plan->insns,
                                       .replaces_flags = replaces_flags(plan)};
  }
  return plan != NULL;
}

/* The unit of which a whole record is there; NULL: something else is. */
static inline struct slice *
unit_at(struct ct_steps_sweep *sweep, const uint8_t *at, const uint8_t *end)
{
  uint32_t id;
  if (CT_UNLIKELY((size_t)(end - at) < sizeof(id))) {
    return NULL;
  }
  memcpy(&id, at, sizeof(id));
  if (CT_UNLIKELY(id >= sweep->slice_count)) {
    return NULL;
  }
  struct slice *slice = &sweep->slices[id];
  if (CT_UNLIKELY(slice->bytes == 0) && !make_slice(sweep, id)) {
    return NULL;
  }
  return CT_LIKELY(slice->bytes <= (size_t)(end - at)) ? slice : NULL;
}

/* ---- steps ---- */

static void
note_step(struct ct_steps_sweep *sweep, uint64_t step)
{
  if (step < sweep->before) {
    sweep->found.kind = CT_STEPS_WRITE_STEP;
    sweep->found.step = step;
  }
}

/* Is that one of the bytes that are asked for? */
static bool
meets(struct ct_steps_sweep *sweep, uint64_t address, uint64_t bytes)
{
  if (sweep->target != NULL) {
    return ct_steps_target_meets(sweep->target, address, bytes);
  }
  if (bytes != 0) {
    sweep->visit(sweep->context, address, bytes);
  }
  return false;
}

/* As a cursor does it. Does it write there? */
static bool
execute_whole(struct ct_steps_sweep *sweep, const struct ct_steps_insn *insn, const uint8_t *values)
{
  struct ct_steps_did did = {0};
  bool writes = false;
  ct_steps_execute(&sweep->state, insn, values + insn->at, false, 0, &did);
  for (unsigned i = 0; i < did.store_count; i++) {
    writes |= meets(sweep, did.stores[i].address, ct_mem_store_bytes(&did.stores[i]));
  }
  return writes;
}

/* Instructions first to end - 1, one after the other. */
static void
execute_each(struct ct_steps_sweep *sweep, const struct ct_steps_plan *plan, unsigned first, unsigned end,
             const uint8_t *values, uint64_t number)
{
  for (unsigned i = first; i < end; i++) {
    if (execute_whole(sweep, &plan->insn[i], values)) {
      note_step(sweep, number + i - first);
    }
  }
}

static inline void
execute_list(struct ct_steps_sweep *sweep, const struct ct_steps_plan *plan, const struct ct_gist *list,
             const uint8_t *values)
{
  const struct ct_gist_bytes wanted = {sweep->target->address, sweep->target->size};
  int hit = -1;
  for (const struct ct_gist *op = list;; op++) {
    op = ct_gist_run(op, &sweep->state.cpu, values, wanted, &hit);
    if (op->kind != CT_GIST_WHOLE) {
      break;
    }
    if (execute_whole(sweep, &plan->insn[op->nth], values)) {
      hit = op->nth;
    }
    if (CT_UNLIKELY(sweep->state.unknown != 0)) {
      unsigned rest = op->nth + 1u;
      execute_each(sweep, plan, rest, plan->insns, values, sweep->number + rest);
      break;
    }
  }
  if (CT_UNLIKELY(hit >= 0) && (sweep->found.kind != CT_STEPS_WRITE_STEP || sweep->found.step < sweep->number)) {
    note_step(sweep, sweep->number + (unsigned)hit);
  }
}

/* The same for who sees all stores. */
static void
visit_list(struct ct_steps_sweep *sweep, const struct ct_steps_plan *plan, const struct ct_gist *list,
           const uint8_t *values)
{
  struct ct_gist_store stores[2 * (UINT8_MAX + 1)], *end;
  for (const struct ct_gist *op = list;; op++) {
    end = stores;
    op = ct_gist_stores(op, &sweep->state.cpu, values, &end);
    for (const struct ct_gist_store *store = stores; store < end; store++) {
      sweep->visit(sweep->context, store->address, store->size);
    }
    if (op->kind != CT_GIST_WHOLE) {
      return;
    }
    execute_whole(sweep, &plan->insn[op->nth], values);
    if (CT_UNLIKELY(sweep->state.unknown != 0)) {
      execute_each(sweep, plan, op->nth + 1u, plan->insns, values, sweep->number);
      return;
    }
  }
}

/* A whole unit; next: what comes after it, NULL: no unit. False: out of memory. */
static inline bool
execute_unit(struct ct_steps_sweep *sweep, struct slice *slice, const struct slice *next, const uint8_t *values)
{
  bool leaves_flags = next == NULL || !next->replaces_flags;
  struct ct_gist **list = &slice->lists[leaves_flags];
  if (CT_UNLIKELY(*list == NULL)) {
    *list = make_list(slice->plan, leaves_flags ? CT_FLAGS_SIX : 0);
  }
  if (CT_UNLIKELY(*list == NULL)) {
    return false;
  }
  if (CT_UNLIKELY(sweep->state.unknown != 0 || slice->insns > sweep->before - sweep->number)) {
    execute_each(sweep, slice->plan, 0, slice->insns, values, sweep->number);
  } else if (CT_UNLIKELY(sweep->target == NULL)) {
    visit_list(sweep, slice->plan, *list, values);
  } else {
    execute_list(sweep, slice->plan, *list, values);
  }
  return true;
}

/* ---- events ---- */

static void
take_event(struct ct_steps_sweep *sweep, const struct ct_record *record)
{
  const struct ct_steps_event event = {
      .step = sweep->number, .kind = record->event_kind, .data = record->data, .bytes = record->bytes};
  struct ct_stream_memory memory;
  if (record->event_kind == CT_STREAM_CONTEXT) {
    ct_steps_take_context(&sweep->state, record->data);
  }
  if (event.step > sweep->before) {
    return;
  }
  if (event.kind == CT_STREAM_MEMORY && event.step > 0) {
    memcpy(&memory, event.data, sizeof(memory));
    if (meets(sweep, memory.address, memory.size)) {
      sweep->found.kind = CT_STEPS_WRITE_KERNEL;
      sweep->found.step = event.step - 1;
    }
  }
  if (ct_steps_is_gap(&event)) {
    ct_steps_write_gap(&sweep->found, event.step);
  }
}

/* An instruction that was executed where it is, and what is known after it. *at: after its record. */
static void
take_step(struct ct_steps_sweep *sweep, const struct ct_record *record, const uint8_t **at, const uint8_t *end)
{
  struct ct_stream_step step;
  struct ct_effects effects;
  struct ct_mem_store stores[2];
  struct ct_steps_state *state = &sweep->state;
  unsigned count = 0;
  memcpy(&step, record->data, sizeof(step));
  state->cpu.rip = step.pc;
  if (ct_effects_of(record->data + offsetof(struct ct_stream_step, code), step.length, &effects) &&
      (state->unknown & effects.reads) == 0) {
    count = ct_mem_stores(&effects, &state->cpu, stores);
  }
  uint64_t number = sweep->number++;
  bool is_known = false;
  while (!is_known) {
    struct ct_record after;
    ct_stream_take(sweep->units, ct_units_table(sweep->units), *at, (size_t)(end - *at), &after);
    bool is_context = after.kind == CT_RECORD_EVENT && after.event_kind == CT_STREAM_CONTEXT;
    bool is_memory = after.kind == CT_RECORD_EVENT && after.event_kind == CT_STREAM_MEMORY;
    const struct ct_steps_event event = {.kind = CT_STREAM_CONTEXT, .data = after.data};
    if ((!is_context && !is_memory) || (is_context && ct_steps_is_gap(&event))) {
      break;
    }
    take_event(sweep, &after);
    *at += after.bytes;
    is_known = is_context;
  }
  if (!is_known) {
    ct_steps_forget_all(state);
  }
  for (unsigned i = 0; i < count; i++) {
    if (meets(sweep, stores[i].address, ct_mem_store_bytes(&stores[i]))) {
      note_step(sweep, number);
    }
  }
}

/* ---- blocks ---- */

/* What is no whole unit. False: it is damaged. */
static bool
take_other(struct ct_steps_sweep *sweep, const uint8_t **at, const uint8_t *end)
{
  struct ct_record record;
  ct_stream_take(sweep->units, ct_units_table(sweep->units), *at, (size_t)(end - *at), &record);
  bool is_step = record.kind == CT_RECORD_EVENT && record.event_kind == CT_STREAM_STEP;
  bool is_insns = record.kind == CT_RECORD_INSNS;
  uint64_t steps = is_insns ? (uint64_t)record.end - record.first : is_step;
  if ((!is_insns && record.kind != CT_RECORD_EVENT) || steps > sweep->left) {
    return false;
  }
  sweep->left -= steps;
  *at += record.bytes;
  if (is_step) {
    take_step(sweep, &record, at, end);
  } else if (is_insns) {
    execute_each(sweep, record.plan, record.first, record.end, record.data, sweep->number);
    sweep->number += steps;
  } else {
    take_event(sweep, &record);
  }
  return true;
}

/* False: not all of it could be read. */
static bool
read_all(struct ct_steps_sweep *sweep, const uint8_t *at, const uint8_t *end)
{
  struct slice *slice = unit_at(sweep, at, end), *next;
  while (at < end) {
    if (CT_UNLIKELY(slice == NULL)) {
      if (!take_other(sweep, &at, end)) {
        return false;
      }
      slice = unit_at(sweep, at, end);
      continue;
    }
    if (sweep->number >= sweep->before) {
      return true;
    }
    if (CT_UNLIKELY(slice->insns > sweep->left)) {
      return false;
    }
    const uint8_t *values = at + sizeof(uint32_t);
    at += slice->bytes;
    next = unit_at(sweep, at, end);
    if (!execute_unit(sweep, slice, next, values)) {
      return false;
    }
    sweep->number += slice->insns;
    sweep->left -= slice->insns;
    slice = next;
  }
  return sweep->left == 0;
}

static bool
read_block(struct ct_steps_sweep *sweep, size_t block, const struct ct_steps_target *target, uint64_t before)
{
  const struct ct_steps_place *place = ct_steps_reader_place(sweep->reader, block);
  struct ct_steps_unpacked *unpacked = &sweep->unpacked;
  if (ct_steps_reader_unpack(sweep->reader, block, unpacked) != 0 ||
      !ct_stream_begins(sweep->units, unpacked->bytes, unpacked->size)) {
    return false;
  }
  sweep->target = target;
  sweep->before = before;
  sweep->number = place->first_step;
  sweep->left = place->steps;
  sweep->found = (struct ct_steps_write){.kind = CT_STEPS_WRITE_NONE};
  if (place->after_hole && place->first_step <= before) {
    ct_steps_write_gap(&sweep->found, place->first_step);
  }
  return read_all(sweep, unpacked->bytes, unpacked->bytes + unpacked->size);
}

bool
ct_steps_sweep_block(struct ct_steps_sweep *sweep, size_t block, const struct ct_steps_target *target, uint64_t before,
                     struct ct_steps_write *write)
{
  bool is_said = read_block(sweep, block, target, before);
  *write = is_said ? sweep->found : *write;
  return is_said;
}

bool
ct_steps_sweep_stores(struct ct_steps_sweep *sweep, size_t block, ct_steps_visit_bytes *visit, void *context,
                      struct ct_steps_write *gap)
{
  sweep->visit = visit;
  sweep->context = context;
  bool is_said = read_block(sweep, block, NULL, UINT64_MAX);
  gap->has_gap = sweep->found.has_gap;
  gap->gap = sweep->found.gap;
  return is_said;
}
