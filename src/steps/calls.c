/* SPDX-License-Identifier: MIT */
/*
 * See calls.h. Events wait until the next time stamp is known, and get their times then.
 */
#include "steps/calls.h"

#include "base/branch.h"
#include "steps/cursor.h"
#include "steps/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN UINT64_MAX
enum { CODES = 4096, STACKS_MAX = 4096, SIGNAL_ROOM = 65536, ABOVE_ROOM = 65536, STUB_WORDS = 2 };
#define MOVED_MOST (16u << 20)

struct frame {
  uint64_t slot; /* where its return address lies; UNKNOWN: it was there before */
  uint64_t ra;
  uint64_t step; /* of its enter */
  uint32_t fn;
  bool is_stub; /* no name is known so far, and nothing was reported of it */
};

struct stack {
  uint64_t low, high; /* stack pointers seen on it */
  struct frame *frames;
  size_t count, capacity;
  bool is_alternate; /* of signals' handlers */
};

struct function {
  uint64_t begin, end;
  const char *module;
  bool has_name, is_cold;
};

struct code {
  uint64_t pc;
  size_t period; /* plus 1; 0: free */
  uint32_t fn;
};

struct walk {
  const struct ct_steps_calls_callbacks *callbacks;
  struct ct_steps_calls_facts *facts;
  struct ct_steps_reader *reader;
  struct ct_steps_names *names;
  struct stack *stacks;
  size_t stack_count, current;
  struct function *functions;
  size_t function_count, function_capacity;
  uint32_t *table; /* of functions by where they begin: numbers plus 1 */
  size_t table_mask;
  struct code *codes;
  bool begins;  /* no function is known to run */
  uint64_t rsp; /* before the step */
  struct ct_steps_call *waiting;
  size_t waiting_count, waiting_capacity;
  uint64_t stamp_step, stamp_tsc; /* the last time stamp; 0: none yet */
  bool was_gap;                   /* what comes next does not go on where it was */
  double rate;                    /* ticks an instruction, of late */
  int code;
};

/* ---- events and their times ---- */

static void
put(struct walk *w, const struct ct_steps_call *event)
{
  if (w->waiting_count == w->waiting_capacity) {
    size_t capacity = w->waiting_capacity == 0 ? 1024 : 2 * w->waiting_capacity;
    struct ct_steps_call *grown = reallocarray(w->waiting, capacity, sizeof(*grown));
    if (grown == NULL) {
      w->code = CT_ENOMEM;
      return;
    }
    w->waiting = grown;
    w->waiting_capacity = capacity;
  }
  w->waiting[w->waiting_count++] = *event;
}

static void
put_kind(struct walk *w, enum ct_steps_call_kind kind, uint64_t step)
{
  put(w, &(struct ct_steps_call){.kind = (uint8_t)kind, .stack = (uint32_t)w->current, .step = step});
}

static void
flush(struct walk *w, uint64_t step, uint64_t tsc)
{
  double ticks = (double)(tsc - w->stamp_tsc), steps = step > w->stamp_step ? (double)(step - w->stamp_step) : 1;
  for (size_t i = 0; i < w->waiting_count && w->code == 0; i++) {
    struct ct_steps_call *event = &w->waiting[i];
    double part = event->step > w->stamp_step ? (double)(event->step - w->stamp_step) / steps : 0;
    uint64_t at = w->stamp_tsc + (uint64_t)(ticks * (part < 1 ? part : 1));
    event->tsc = at < tsc ? at : tsc; /* great numbers are rounded */
    w->code = w->callbacks->event(w->callbacks->context, event);
  }
  w->waiting_count = 0;
}

/* Before that step it was so late, or later. */
static void
stamp(struct walk *w, uint64_t step, uint64_t tsc, bool after_call)
{
  if (tsc == 0 || (w->stamp_tsc != 0 && tsc <= w->stamp_tsc)) {
    return;
  }
  if (w->stamp_tsc == 0) {
    w->facts->first_tsc = tsc;
    w->stamp_tsc = tsc;
    w->stamp_step = step;
    return;
  }
  uint64_t steps = step - w->stamp_step;
  if (after_call && steps > 1) {
    /* What the instructions before the call took by their rate; the rest is the call's. */
    double own = w->rate * (double)(steps - 1), all = (double)(tsc - w->stamp_tsc);
    uint64_t at = own < all ? w->stamp_tsc + (uint64_t)own : tsc;
    at = at < tsc ? at : tsc;
    flush(w, step - 1, at);
    w->stamp_step = step - 1;
    w->stamp_tsc = at;
  } else if (!after_call && steps > 0) {
    double now = (double)(tsc - w->stamp_tsc) / (double)steps;
    w->rate = w->rate == 0 || now < w->rate ? now : w->rate + (now - w->rate) / 8;
  }
  flush(w, step, tsc);
  w->stamp_tsc = tsc;
  w->stamp_step = step;
  w->facts->last_tsc = tsc;
}

/* ---- functions ---- */

static size_t
slot_of(const struct walk *w, uint64_t begin, const char *module)
{
  size_t at = (size_t)((begin ^ (uintptr_t)module) * 0x9e3779b97f4a7c15ull >> 20) & w->table_mask;
  while (w->table[at] != 0) {
    const struct function *function = &w->functions[w->table[at] - 1];
    if (function->begin == begin && function->module == module) {
      break;
    }
    at = (at + 1) & w->table_mask;
  }
  return at;
}

static bool
grow_functions(struct walk *w)
{
  size_t size = w->table == NULL ? 1024 : 2 * (w->table_mask + 1);
  struct function *functions = reallocarray(w->functions, size / 2, sizeof(*functions));
  uint32_t *table = calloc(size, sizeof(*table));
  w->functions = functions != NULL ? functions : w->functions;
  if (functions == NULL || table == NULL) {
    free(table);
    return false;
  }
  free(w->table);
  w->table = table;
  w->table_mask = size - 1;
  w->function_capacity = size / 2;
  for (size_t i = 0; i < w->function_count; i++) {
    w->table[slot_of(w, w->functions[i].begin, w->functions[i].module)] = (uint32_t)i + 1;
  }
  return true;
}

static bool
is_cold(const char *raw)
{
  const char *end = raw != NULL ? strstr(raw, ".cold") : NULL;
  return end != NULL && (end[5] == 0 || end[5] == '.');
}

static uint32_t
enter_function(struct walk *w, const struct ct_steps_name *name, uint64_t pc)
{
  bool has_name = name->raw != NULL;
  uint64_t begin = has_name ? name->begin : pc;
  if (w->function_count == w->function_capacity && !grow_functions(w)) {
    w->code = CT_ENOMEM;
    return 0;
  }
  size_t at = slot_of(w, begin, name->module);
  if (w->table[at] != 0) {
    return w->table[at] - 1;
  }
  uint32_t id = (uint32_t)w->function_count++;
  w->functions[id] = (struct function){.begin = begin,
                                       .end = has_name && name->end > begin ? name->end : begin + 1,
                                       .module = name->module,
                                       .has_name = has_name,
                                       .is_cold = is_cold(name->raw)};
  w->table[at] = id + 1;
  const struct ct_steps_call_function reported = {.id = id,
                                                  .module = name->module,
                                                  .raw = name->raw,
                                                  .build_id = name->build_id,
                                                  .address = begin - name->base,
                                                  .size = has_name && name->end > begin ? name->end - begin : 0,
                                                  .base = name->base};
  int code = w->callbacks->function(w->callbacks->context, &reported);
  w->code = w->code != 0 ? w->code : code;
  return id;
}

static uint32_t
function_at(struct walk *w, uint64_t step, uint64_t pc)
{
  size_t period = ct_steps_names_period(w->names, step) + 1;
  struct code *code = &w->codes[(pc ^ pc >> 12) % CODES];
  if (code->pc != pc || code->period != period) {
    struct ct_steps_name name;
    ct_steps_names_of(w->names, step, pc, &name);
    *code = (struct code){.pc = pc, .period = period, .fn = enter_function(w, &name, pc)};
  }
  return code->fn;
}

/* Whether a function with a name begins there. */
static bool
is_begin(const struct walk *w, uint32_t fn, uint64_t pc)
{
  return w->code == 0 && w->functions[fn].has_name && w->functions[fn].begin == pc && !w->functions[fn].is_cold;
}

/* ---- frames ---- */

static struct frame *
top_of(struct stack *stack)
{
  return stack->count != 0 ? &stack->frames[stack->count - 1] : NULL;
}

static struct frame *
push(struct walk *w, struct stack *stack, const struct frame *frame)
{
  if (stack->count == stack->capacity) {
    size_t capacity = stack->capacity == 0 ? 64 : 2 * stack->capacity;
    struct frame *grown = reallocarray(stack->frames, capacity, sizeof(*grown));
    if (grown == NULL) {
      w->code = CT_ENOMEM;
      return NULL;
    }
    stack->frames = grown;
    stack->capacity = capacity;
  }
  stack->frames[stack->count++] = *frame;
  return &stack->frames[stack->count - 1];
}

static void
report_enter(struct walk *w, struct frame *frame, bool before)
{
  frame->is_stub = false;
  put(w, &(struct ct_steps_call){.kind = CT_STEPS_CALL_ENTER,
                                 .before = before,
                                 .fn = frame->fn,
                                 .stack = (uint32_t)w->current,
                                 .step = frame->step});
}

/* A stub that was no stub: it has done more than jump. */
static void
report_stub(struct walk *w, struct stack *stack)
{
  struct frame *top = top_of(stack);
  if (top != NULL && top->is_stub) {
    report_enter(w, top, false);
  }
}

/* Before anything is reported that came after it. */
static void
report_last_stub(struct walk *w)
{
  if (w->stack_count != 0) {
    report_stub(w, &w->stacks[w->current]);
  }
}

static void
pop(struct walk *w, struct stack *stack, enum ct_steps_call_kind kind, uint64_t step)
{
  report_stub(w, stack);
  stack->count--;
  put_kind(w, kind, step);
}

/* Those that lie below the stack pointer. */
static void
unwind(struct walk *w, struct stack *stack, uint64_t rsp, uint64_t step)
{
  struct frame *top;
  while ((top = top_of(stack)) != NULL && top->slot < rsp) {
    pop(w, stack, CT_STEPS_CALL_UNWOUND, step);
  }
}

static void
enter(struct walk *w, struct stack *stack, uint64_t slot, uint64_t ra, uint64_t pc, uint64_t step)
{
  report_stub(w, stack);
  uint32_t fn = function_at(w, step, pc);
  struct frame *frame = push(w, stack, &(struct frame){.slot = slot, .ra = ra, .step = step, .fn = fn});
  if (frame != NULL && w->code == 0) {
    frame->is_stub = !w->functions[fn].has_name;
    if (!frame->is_stub) {
      report_enter(w, frame, false);
    }
  }
}

/* ---- stacks ---- */

static bool
holds(const struct stack *stack, uint64_t rsp)
{
  return rsp >= stack->low && rsp <= stack->high;
}

static size_t
add_stack(struct walk *w, uint64_t rsp)
{
  struct stack *grown =
      w->stack_count < STACKS_MAX ? reallocarray(w->stacks, w->stack_count + 1, sizeof(*grown)) : NULL;
  if (grown == NULL) {
    w->code = w->stack_count < STACKS_MAX ? CT_ENOMEM : w->code;
    return w->current; /* of too many the rest is taken for one */
  }
  w->stacks = grown;
  grown[w->stack_count] = (struct stack){.low = rsp, .high = rsp};
  return w->stack_count++;
}

/* A handler on a stack of its own does not come back to it: it was left by siglongjmp, unless another signal came. */
static void
leave_stack(struct walk *w, struct stack *stack, uint64_t step, bool is_signal)
{
  report_stub(w, stack);
  while (!is_signal && stack->is_alternate && stack->count != 0) {
    bool is_end = stack->frames[stack->count - 1].slot == UNKNOWN; /* what has called sigreturn */
    pop(w, stack, is_end ? CT_STEPS_CALL_RETURN : CT_STEPS_CALL_UNWOUND, step);
  }
}

/* The stack pointer was set to rsp. */
static void
choose_stack(struct walk *w, uint64_t rsp, uint64_t step, bool is_signal)
{
  struct stack *stack = &w->stacks[w->current];
  size_t selected = w->current;
  bool below = is_signal && rsp < w->rsp && w->rsp - rsp < SIGNAL_ROOM;
  if (!holds(stack, rsp) && !below) {
    bool found = false;
    for (size_t i = 0; i < w->stack_count && !found; i++) {
      found = holds(&w->stacks[i], rsp);
      selected = found ? i : selected;
    }
    bool above = rsp > stack->high && rsp - stack->high < ABOVE_ROOM;
    selected = found || above ? selected : add_stack(w, rsp);
  }
  if (selected != w->current) {
    leave_stack(w, &w->stacks[w->current], step, is_signal);
    w->current = selected;
    w->begins = w->stacks[selected].count == 0;
    put_kind(w, CT_STEPS_CALL_SWITCH, step);
  }
}

static void
forget_stacks(struct walk *w)
{
  for (size_t i = 0; i < w->stack_count; i++) {
    free(w->stacks[i].frames);
  }
  w->stack_count = 0;
  w->current = 0;
  w->begins = true;
}

/* ---- steps ---- */

static void
begin(struct walk *w, uint64_t step, uint64_t pc)
{
  struct stack *stack = &w->stacks[w->current];
  w->begins = false;
  if (stack->count == 0) {
    uint32_t fn = function_at(w, step, pc);
    bool is_new = is_begin(w, fn, pc);
    struct frame *frame =
        push(w, stack, &(struct frame){.slot = is_new ? w->rsp : UNKNOWN, .ra = UNKNOWN, .step = step, .fn = fn});
    if (frame != NULL && w->code == 0) {
      report_enter(w, frame, !is_new);
    }
  }
}

static void
take_return(struct walk *w, uint64_t slot, uint64_t target, uint64_t rsp, uint64_t step)
{
  struct stack *stack = &w->stacks[w->current];
  unwind(w, stack, slot, step);
  struct frame *top = top_of(stack);
  if (top != NULL && top->slot == slot) {
    bool is_own = top->ra == target || top->ra == UNKNOWN;
    pop(w, stack, is_own ? CT_STEPS_CALL_RETURN : CT_STEPS_CALL_UNWOUND, step);
  } else if (top != NULL && top->slot == UNKNOWN &&
             w->functions[function_at(w, step, target)].begin != w->functions[top->fn].begin) {
    pop(w, stack, CT_STEPS_CALL_RETURN, step); /* it was there before, and so was who called it */
  }
  unwind(w, stack, rsp, step);
  w->begins = stack->count == 0;
}

static void
take_jump(struct walk *w, uint64_t target, uint64_t rsp, uint64_t step)
{
  struct stack *stack = &w->stacks[w->current];
  unwind(w, stack, rsp, step);
  struct frame *top = top_of(stack);
  if (top == NULL) {
    w->begins = true;
    return;
  }
  const struct function *own = &w->functions[top->fn];
  if (target >= own->begin && target < own->end && own->has_name) {
    return;
  }
  uint32_t fn = function_at(w, step, target);
  own = &w->functions[top->fn];
  if (!is_begin(w, fn, target) || fn == top->fn) {
    return;
  }
  if (top->is_stub && top->slot - rsp <= 8 * STUB_WORDS) {
    top->fn = fn;
    report_enter(w, top, false);
  } else if (rsp == top->slot || (top->slot == UNKNOWN && top->ra == UNKNOWN && !own->has_name)) {
    report_stub(w, stack);
    top->fn = fn;
    top->step = step;
    put(w, &(struct ct_steps_call){.kind = CT_STEPS_CALL_TAIL, .fn = fn, .stack = (uint32_t)w->current, .step = step});
  }
}

/* Where the stack pointer is after the step: it has moved on its stack, or was set. */
static void
follow_stack(struct walk *w, const struct ct_steps_step *step, uint64_t rsp)
{
  const struct ct_effects *e = step->effects;
  uint64_t far = rsp > w->rsp ? rsp - w->rsp : w->rsp - rsp;
  if (far == 0) {
    return;
  }
  /* One that is executed alone may be sigreturn. */
  bool moved = step->plan != NULL && (e->reads >> CT_RSP & 1) != 0 && e->flow != CT_INSN_FLOW_SYSCALL;
  if (!moved || far > MOVED_MOST) {
    choose_stack(w, rsp, step->number + 1, false);
  }
  struct stack *stack = &w->stacks[w->current];
  stack->low = rsp < stack->low ? rsp : stack->low;
  stack->high = rsp > stack->high ? rsp : stack->high;
}

static void
follow(struct walk *w, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  const struct ct_effects *e = step->effects;
  uint64_t rsp = after->cpu.reg[CT_RSP], next = step->number + 1, target = after->cpu.rip;
  struct stack *stack = &w->stacks[w->current];
  if (after->rip_unknown || e->flow == CT_INSN_FLOW_NEXT) {
    return;
  }
  switch (e->flow) {
  case CT_INSN_FLOW_CALL:
  case CT_INSN_FLOW_CALL_INDIRECT:
    if (target != step->pc + step->length) {
      enter(w, stack, rsp, step->pc + step->length, target, next);
    }
    break;
  case CT_INSN_FLOW_RET:
    take_return(w, w->rsp, target, rsp, next);
    break;
  case CT_INSN_FLOW_JUMP:
  case CT_INSN_FLOW_BRANCH:
  case CT_INSN_FLOW_LOOP:
  case CT_INSN_FLOW_JUMP_INDIRECT:
    if (target != step->pc + step->length) {
      take_jump(w, target, rsp, next);
    }
    break;
  default:
    break;
  }
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct walk *w = context;
  const struct ct_steps_state *after = ct_steps_cursor_state(cursor);
  stamp(w, step->number, step->tsc, false);
  if (CT_UNLIKELY(w->begins)) {
    begin(w, step->number, step->pc);
  }
  bool known = (after->unknown >> CT_RSP & 1) == 0;
  if (CT_LIKELY(known)) {
    follow_stack(w, step, after->cpu.reg[CT_RSP]);
  }
  if (CT_LIKELY(step->effects != NULL && known)) {
    follow(w, step, after);
  }
  if (step->did.time != 0) {
    stamp(w, step->number + 1, step->did.time, true);
  }
  w->rsp = known ? after->cpu.reg[CT_RSP] : w->rsp;
  return w->code == 0;
}

/* ---- what is between steps ---- */

/* Nobody knows what became of what is open. */
static void
lose(struct walk *w, uint64_t step)
{
  for (size_t i = 0; i < w->stack_count; i++) {
    size_t open = w->stacks[i].count;
    if (open != 0 && i != w->current) {
      w->current = i;
      put_kind(w, CT_STEPS_CALL_SWITCH, step);
    }
    while (w->stacks[i].count != 0) {
      pop(w, &w->stacks[i], CT_STEPS_CALL_GONE, step);
    }
  }
  if (w->stack_count != 0 && w->current != 0) {
    w->current = 0;
    put_kind(w, CT_STEPS_CALL_SWITCH, step);
  }
  forget_stacks(w);
}

static void
take_handler(struct walk *w, const struct ct_stream_context *context, uint64_t step)
{
  uint64_t rsp = context->reg[CT_RSP];
  size_t before = w->current;
  choose_stack(w, rsp, step, true);
  struct stack *stack = &w->stacks[w->current];
  stack->is_alternate = stack->is_alternate || w->current != before;
  stack->low = rsp < stack->low ? rsp : stack->low;
  stack->high = rsp > stack->high ? rsp : stack->high;
  unwind(w, stack, rsp + 1, step); /* of a handler on its own stack that was left by siglongjmp */
  enter(w, stack, rsp, UNKNOWN, context->rip, step);
  report_stub(w, stack);
  w->begins = false;
}

static void
visit_event(void *argument, const struct ct_steps_event *event)
{
  struct walk *w = argument;
  struct ct_stream_context context;
  struct ct_stream_end end;
  if (w->code != 0) {
    return;
  }
  if (event->kind == CT_STREAM_GAP) {
    report_last_stub(w);
    w->facts->gaps++;
    w->was_gap = true;
    put_kind(w, CT_STEPS_CALL_LOST, event->step);
  } else if (event->kind == CT_STREAM_END) {
    memcpy(&end, event->data, sizeof(end));
    w->facts->has_ended = end.reason == CT_STREAM_EXITED || end.reason == CT_STREAM_KILLED;
    w->facts->status = end.status;
    stamp(w, event->step, end.tsc, true);
  }
  if (event->kind != CT_STREAM_CONTEXT) {
    return;
  }
  memcpy(&context, event->data, sizeof(context));
  bool goes_on = context.reason == CT_CONTEXT_STEP || (context.reason == CT_CONTEXT_SEGMENT && !w->was_gap);
  if (goes_on && w->stack_count != 0) {
    return;
  }
  w->was_gap = false;
  report_last_stub(w);
  stamp(w, event->step, context.tsc, true);
  if (context.reason == CT_CONTEXT_HANDLER && w->stack_count != 0) {
    take_handler(w, &context, event->step);
  } else if (context.reason == CT_CONTEXT_EXEC) {
    put_kind(w, CT_STEPS_CALL_EXEC, event->step);
    forget_stacks(w);
  } else {
    lose(w, event->step);
  }
  w->rsp = context.reg[CT_RSP];
  if (w->stack_count == 0) {
    w->current = add_stack(w, w->rsp);
  }
}

/* ---- all of it ---- */

/* The first file that is mapped: the loader and libraries lie above it. Ours may lie below. */
static void
put_program(const char *maps, char *program, size_t size)
{
  for (const char *line = maps; *line != 0; line += *line == '\n') {
    size_t length = strcspn(line, "\n");
    const char *path = memchr(line, '/', length);
    if (path != NULL && strncmp(path, "/memfd:", 7) != 0) {
      snprintf(program, size, "%.*s", (int)(line + length - path), path);
      return;
    }
    line += length;
  }
}

static void
take_facts(struct walk *w)
{
  const struct ct_steps_file *head = ct_steps_reader_head(w->reader);
  struct ct_steps_calls_facts *facts = w->facts;
  facts->pid = head->pid;
  facts->tid = head->tid;
  facts->tsc_hz = head->tsc_hz;
  facts->tsc = head->tsc;
  facts->clock_ns = head->clock_ns;
  facts->wall_ns = head->wall_ns;
  facts->steps = ct_steps_reader_steps(w->reader);
  facts->bytes = ct_steps_reader_bytes(w->reader);
  const struct ct_steps_modules *modules;
  if (ct_steps_reader_modules(w->reader, &modules) != 0) {
    put_program(modules[0].text, facts->program, sizeof(facts->program));
  }
}

static void
walk_all(struct walk *w, struct ct_steps_cursor *cursor)
{
  uint64_t next = 0;
  ct_steps_cursor_events(cursor, visit_event, w);
  for (size_t block = 0; block < ct_steps_reader_blocks(w->reader) && w->code == 0; block++) {
    ct_steps_cursor_scan(cursor, block, UINT64_MAX, visit_step, w);
    const struct ct_steps_place *place = ct_steps_reader_place(w->reader, block);
    next = place->first_step + place->steps;
  }
  if (w->code == 0) {
    report_last_stub(w);
  }
  flush(w, next, w->stamp_tsc);
  w->facts->inconsistent = ct_steps_cursor_inconsistent(cursor);
}

int
ct_steps_calls_read(const char *path, const struct ct_steps_calls_callbacks *callbacks,
                    struct ct_steps_calls_facts *facts, struct ct_diag *diag)
{
  struct walk w = {.callbacks = callbacks, .facts = facts, .begins = true};
  int code = ct_steps_reader_open(path, &w.reader, diag);
  if (code != 0) {
    return code;
  }
  w.names = ct_steps_names_create(w.reader);
  w.codes = calloc(CODES, sizeof(*w.codes));
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(w.reader);
  *facts = (struct ct_steps_calls_facts){.pid = 0};
  take_facts(&w);
  w.code = w.names != NULL && w.codes != NULL && cursor != NULL ? 0 : CT_ENOMEM;
  if (w.code == 0) {
    walk_all(&w, cursor);
  }
  snprintf(facts->damage, sizeof(facts->damage), "%s", ct_steps_reader_damage(w.reader));
  forget_stacks(&w);
  ct_steps_cursor_close(cursor);
  ct_steps_names_free(w.names);
  ct_steps_reader_close(w.reader);
  free(w.stacks);
  free(w.functions);
  free(w.table);
  free(w.codes);
  free(w.waiting);
  return w.code == CT_ENOMEM ? ct_fail(diag, w.code, "out of memory for the calls") : w.code;
}
