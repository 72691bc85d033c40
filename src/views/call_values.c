/* SPDX-License-Identifier: MIT */
/*
 * Values of calls; see call_values.h. Arguments stand right after their call's event, its result some way before that
 * of its return, so the open frames are kept, each with its result as child_ticks and whether it has one in flags. What
 * the detail lane has of an event replaces what the events say.
 */
#include "views/call_values.h"

#include "span/stacks.h"
#include "trace/format.h"

#include <contrail/span.h>

#include <stdlib.h>
#include <string.h>

enum { RESULTS_MAX = 8 }; /* a handler inside a handler inside ... */

/* What is known of a return that has not come yet. */
struct coming {
  uint64_t context;
  uint32_t depth;
  struct ct_value_registers registers;
};

struct ct_call_values_reader {
  struct ct_cursor *cursor;
  struct ct_details *details; /* NULL: it has none */
  const struct ct_event *events;
  size_t count, at;
  uint64_t ordinal, before; /* of the next call; CT_ORDINAL_BEFORE and the block */
  struct ct_span_stacks stacks;
  struct coming coming[RESULTS_MAX];
  size_t coming_count;
  struct ct_call_values found;
  uint8_t stack[CT_DETAIL_STACK_BYTES]; /* of the call found */
};

int
ct_call_values_open(struct ct_trace *trace, uint32_t thread, struct ct_call_values_reader **out, struct ct_diag *diag)
{
  struct ct_call_values_reader *reader = calloc(1, sizeof(*reader));
  int code = reader != NULL ? ct_cursor_open(trace, thread, 0, &reader->cursor, diag)
                            : ct_fail(diag, CT_ENOMEM, "out of memory for the values of calls");
  if (code == 0 && ct_span_stacks_init(&reader->stacks) != 0) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory for the values of calls");
  }
  if (code != 0) {
    ct_call_values_close(reader);
    return code;
  }
  if (ct_details_open(trace, thread, &reader->details, NULL) != 0) {
    reader->details = NULL; /* most have none */
  }
  *out = reader;
  return 0;
}

void
ct_call_values_close(struct ct_call_values_reader *reader)
{
  if (reader != NULL) {
    ct_details_close(reader->details);
    ct_cursor_close(reader->cursor);
    ct_span_stacks_destroy(&reader->stacks);
    free(reader);
  }
}

/* The event in hand; NULL at the end. */
static const struct ct_event *
peek(struct ct_call_values_reader *reader)
{
  if (reader->at == reader->count) {
    reader->at = 0;
    reader->count = ct_cursor_next(reader->cursor, &reader->events);
    uint64_t ordinal = ct_cursor_ordinal(reader->cursor);
    reader->before = ordinal & CT_ORDINAL_BEFORE ? ordinal : 0;
    reader->ordinal = reader->before == 0 ? ordinal : reader->ordinal;
  }
  return reader->count != 0 ? &reader->events[reader->at] : NULL;
}

/* Makes `depth` the number of open frames; those that are not known are none. */
static void
close_to(struct ct_span_stack *stack, uint32_t depth)
{
  stack->count = ct_span_stack_fit(stack, depth);
  stack->base = stack->count == 0 ? depth : stack->base;
}

static struct ct_span_frame *
frame_at(struct ct_span_stack *stack, uint32_t depth)
{
  return depth >= stack->base && depth - stack->base < stack->count ? &stack->frames[depth - stack->base] : NULL;
}

static void
add_detail(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  struct ct_call_values *found = &reader->found;
  found->raw = reader->details != NULL ? ct_details_of(reader->details, event) : NULL;
  if (found->raw != NULL) {
    ct_registers_add(&found->registers, found->raw, reader->stack, sizeof(reader->stack));
  }
}

/* What is known of the return of the frame at this depth; NULL: nothing. */
static struct coming *
coming_at(struct ct_call_values_reader *reader, uint32_t depth)
{
  uint64_t context = reader->stacks.current->context;
  for (size_t i = 0; i < reader->coming_count; i++) {
    if (reader->coming[i].context == context && reader->coming[i].depth == depth) {
      return &reader->coming[i];
    }
  }
  return NULL;
}

/* Results of frames of the current stack from this depth on are no longer waited for. */
static void
forget_coming(struct ct_call_values_reader *reader, uint32_t depth)
{
  size_t kept = 0;
  for (size_t i = 0; i < reader->coming_count; i++) {
    const struct coming *one = &reader->coming[i];
    if (one->context != reader->stacks.current->context || one->depth < depth) {
      reader->coming[kept++] = *one;
    }
  }
  reader->coming_count = kept;
}

static void
add_result(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  struct coming *coming = coming_at(reader, event->depth);
  if (coming == NULL) {
    if (reader->coming_count == RESULTS_MAX) {
      memmove(reader->coming, reader->coming + 1, (RESULTS_MAX - 1) * sizeof(*reader->coming));
      reader->coming_count--;
    }
    coming = &reader->coming[reader->coming_count++];
    *coming = (struct coming){.context = reader->stacks.current->context, .depth = event->depth};
  }
  ct_registers_add_value(&coming->registers, event);
}

/* A call, with the arguments that stand after it. */
static int
enter(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  struct ct_call_values *found = &reader->found;
  struct ct_span_stack *stack = reader->stacks.current;
  const struct ct_event *value;
  bool is_before = false;
  found->ordinal = reader->before != 0 ? reader->before | event->depth : reader->ordinal++;
  if (event->kind != CT_EV_POINT) {
    forget_coming(reader, event->depth);
    close_to(stack, event->depth);
    struct ct_span_frame *frame = ct_span_stack_push(stack);
    if (frame == NULL) {
      return CT_ENOMEM;
    }
    *frame = (struct ct_span_frame){.ordinal = found->ordinal, .fn = event->fn};
    add_detail(reader, event);
  }
  reader->at++;
  while ((value = peek(reader)) != NULL && value->kind == CT_EV_VALUE && !ct_value_is_result(value->reason) &&
         value->depth == found->depth) {
    is_before |= value->reason == CT_VALUE_BEFORE;
    if (found->raw == NULL) {
      ct_registers_add_value(&found->registers, value);
    }
    reader->at++;
  }
  if (is_before) { /* a trace of the last stretch may begin between two arguments */
    found->registers.integers_known = found->registers.vectors_known = 0;
    found->registers.words_known = 0;
  }
  return 0;
}

static void
end(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  struct ct_call_values *found = &reader->found;
  struct ct_span_stack *stack = reader->stacks.current;
  struct ct_span_frame *frame = frame_at(stack, event->depth);
  if (frame != NULL) {
    found->ordinal = frame->ordinal;
  }
  if (event->kind == CT_EV_RETURN) {
    found->is_return = true;
    add_detail(reader, event);
    const struct coming *coming = coming_at(reader, event->depth);
    if (coming != NULL && found->raw == NULL) {
      found->registers = coming->registers;
    }
  }
  forget_coming(reader, event->depth);
  close_to(stack, event->depth);
  reader->at++;
}

/* A value that does not stand after its call: of a result, or, where something was lost, of an argument. */
static void
add_value(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  const struct ct_span_frame *frame = frame_at(reader->stacks.current, event->depth);
  if (ct_value_is_result(event->reason)) {
    add_result(reader, event);
  } else if (event->reason != CT_VALUE_BEFORE) {
    reader->found.ordinal = frame != NULL ? frame->ordinal : CT_NO_ORDINAL;
    ct_registers_add_value(&reader->found.registers, event);
  }
  reader->at++;
}

static int
take(struct ct_call_values_reader *reader, const struct ct_event *event)
{
  switch (event->kind) {
  case CT_EV_ENTER:
  case CT_EV_TAIL:
  case CT_EV_POINT:
    return enter(reader, event);
  case CT_EV_RETURN:
  case CT_EV_UNWOUND:
    end(reader, event);
    return 0;
  case CT_EV_VALUE:
    add_value(reader, event);
    return 0;
  case CT_EV_SWITCH:
    reader->at++;
    return ct_span_stacks_switch(&reader->stacks, event->value, event->tsc);
  case CT_EV_LOST:
    reader->at++;
    reader->coming_count = 0;
    return 0;
  case CT_EV_EXEC:
    reader->at++;
    reader->coming_count = 0;
    ct_span_stacks_clear(&reader->stacks);
    return 0;
  default:
    reader->at++;
    return 0;
  }
}

int
ct_call_values_next(struct ct_call_values_reader *reader, const struct ct_call_values **out)
{
  struct ct_call_values *found = &reader->found;
  const struct ct_event *event;
  while ((event = peek(reader)) != NULL) {
    memset(found, 0, sizeof(*found));
    found->tsc = event->tsc;
    found->ordinal = CT_NO_ORDINAL;
    found->fn = event->fn;
    found->depth = event->depth;
    int code = take(reader, event);
    if (code != 0) {
      return code;
    }
    if (found->raw != NULL || ct_registers_have_arguments(&found->registers) ||
        ct_registers_have_result(&found->registers)) {
      *out = found;
      return 0;
    }
  }
  *out = NULL;
  return 0;
}
