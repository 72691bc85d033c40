/* SPDX-License-Identifier: MIT */
/*
 * For the tests of the trace format: a plain model of what a thread did, which gives the
 * events that a reader must deliver, next to the encoder that is fed the same; and
 * temporary trace directories. Slow and simple on purpose, it shares no code with src/trace.
 */
#ifndef TESTS_TRACE_MODEL_H
#define TESTS_TRACE_MODEL_H

#include "trace/encoder.h"
#include "trace/batch.h"
#include "trace/writer.h"
#include "xorshift.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL_CONTEXTS 40

struct model_stack {
  struct ct_open_frame *frames;
  uint32_t count, capacity;
};

struct model {
  struct ct_encoder *encoder;
  struct ct_event *events; /* expected */
  size_t count, capacity;
  struct model_stack stacks[MODEL_CONTEXTS];
  uint32_t context;
  uint64_t tsc;
  uint64_t random;
  uint32_t interval_log2;
};

static inline uint64_t
model_random(struct model *m, uint64_t below)
{
  return (xorshift(&m->random) >> 11) % below;
}

static inline struct model_stack *
model_stack(struct model *m)
{
  return &m->stacks[m->context];
}

static inline struct ct_event *
model_expect(struct model *m, enum ct_event_kind kind, uint64_t tsc)
{
  if (m->count == m->capacity) {
    m->capacity = m->capacity == 0 ? 1024 : m->capacity * 2;
    m->events = realloc(m->events, m->capacity * sizeof(*m->events));
    assert_non_null(m->events);
  }
  m->tsc = tsc > m->tsc ? tsc : m->tsc;
  struct ct_event *event = &m->events[m->count++];
  memset(event, 0, sizeof(*event));
  event->kind = (uint8_t)kind;
  event->tsc = m->tsc;
  event->closed_fn = UINT32_MAX;
  event->depth = model_stack(m)->count;
  return event;
}

static inline void
model_push(struct model *m, uint32_t fn)
{
  struct model_stack *stack = model_stack(m);
  if (stack->count == stack->capacity) {
    stack->capacity = stack->capacity == 0 ? 64 : stack->capacity * 2;
    stack->frames = realloc(stack->frames, stack->capacity * sizeof(*stack->frames));
    assert_non_null(stack->frames);
  }
  stack->frames[stack->count++] = (struct ct_open_frame){.fn = fn, .enter_tsc = m->tsc};
}

/* Closes the top frame and tells the event about it. */
static inline void
model_pop(struct model *m, struct ct_event *event)
{
  struct model_stack *stack = model_stack(m);
  const struct ct_open_frame *frame = &stack->frames[--stack->count];
  event->enter_tsc = frame->enter_tsc;
  event->uncertain = frame->uncertain != 0;
  event->depth = stack->count;
  if (event->kind == CT_EV_TAIL) {
    event->closed_fn = frame->fn;
  } else {
    event->fn = frame->fn;
  }
}

static inline void
model_enter(struct model *m, uint64_t tsc, uint32_t fn)
{
  model_expect(m, CT_EV_ENTER, tsc)->fn = fn;
  model_push(m, fn);
  ct_encode_enter(m->encoder, tsc, fn, 0);
}

static inline void
model_return(struct model *m, uint64_t tsc, uint32_t fn_if_empty)
{
  if (model_stack(m)->count == 0) {
    model_expect(m, CT_EV_ORPHAN_RETURN, tsc)->fn = fn_if_empty;
    ct_encode_orphan_return(m->encoder, tsc, fn_if_empty);
    return;
  }
  model_pop(m, model_expect(m, CT_EV_RETURN, tsc));
  ct_encode_return(m->encoder, tsc);
}

static inline void
model_tail(struct model *m, uint64_t tsc, uint32_t fn)
{
  struct ct_event *event = model_expect(m, CT_EV_TAIL, tsc);
  event->fn = fn;
  if (model_stack(m)->count > 0) {
    model_pop(m, event);
  }
  model_push(m, fn);
  ct_encode_tail(m->encoder, tsc, fn);
}

static inline void
model_point(struct model *m, uint64_t tsc, uint32_t fn)
{
  struct ct_event *event = model_expect(m, CT_EV_POINT, tsc);
  event->fn = fn;
  event->value = 1;
  ct_encode_point(m->encoder, tsc, fn);
}

/* An event of a sampled hook; the interval in force is told when it is another one. */
static inline void
model_sampled(struct model *m, uint64_t tsc, uint32_t fn, uint32_t log2)
{
  if (log2 != m->interval_log2) {
    m->interval_log2 = log2;
    model_expect(m, CT_EV_INTERVAL, tsc)->value = 1ull << log2;
  }
  struct ct_event *event = model_expect(m, CT_EV_POINT, tsc);
  event->fn = fn;
  event->value = 1ull << log2;
  ct_encode_sampled(m->encoder, tsc, fn, log2);
}

static inline void
model_value(struct model *m, uint8_t which, uint64_t value)
{
  const struct model_stack *stack = model_stack(m);
  if (stack->count == 0) {
    return;
  }
  struct ct_event *event = model_expect(m, CT_EV_VALUE, m->tsc);
  event->fn = stack->frames[stack->count - 1].fn;
  event->depth = stack->count - 1;
  event->reason = which;
  event->value = value;
  ct_encode_value(m->encoder, which, value);
}

static inline void
model_away(struct model *m, uint64_t since, uint64_t until, uint8_t kind)
{
  const struct model_stack *stack = model_stack(m);
  struct ct_event *event = model_expect(m, CT_EV_AWAY, until);
  event->enter_tsc = since;
  event->value = until - since;
  event->fn = stack->count > 0 ? stack->frames[stack->count - 1].fn : UINT32_MAX;
  event->reason = kind;
  ct_encode_away(m->encoder, since, until, kind);
}

static inline void
model_unwound(struct model *m, uint64_t tsc, uint8_t reason)
{
  if (model_stack(m)->count == 0) {
    return;
  }
  struct ct_event *event = model_expect(m, CT_EV_UNWOUND, tsc);
  event->reason = reason;
  model_pop(m, event);
  ct_encode_unwound(m->encoder, tsc, reason);
}

static inline void
model_lost(struct model *m, uint64_t tsc, uint64_t count)
{
  model_expect(m, CT_EV_LOST, tsc)->value = count;
  for (int i = 0; i < MODEL_CONTEXTS; i++) {
    for (uint32_t j = 0; j < m->stacks[i].count; j++) {
      m->stacks[i].frames[j].uncertain = 1;
    }
  }
  ct_encode_lost(m->encoder, tsc, count);
}

static inline void
model_switch(struct model *m, uint64_t tsc, uint32_t context)
{
  if (context != m->context) {
    m->context = context;
    model_expect(m, CT_EV_SWITCH, tsc)->value = context;
  }
  ct_encode_switch(m->encoder, tsc, context);
}

static inline void
model_exec(struct model *m, uint64_t tsc)
{
  while (model_stack(m)->count > 0) {
    struct ct_event *event = model_expect(m, CT_EV_UNWOUND, tsc);
    event->reason = CT_UNWOUND_EXEC;
    model_pop(m, event);
  }
  model_expect(m, CT_EV_EXEC, tsc);
  for (int i = 0; i < MODEL_CONTEXTS; i++) {
    m->stacks[i].count = 0;
  }
  m->context = 0;
  ct_encode_exec(m->encoder, tsc);
}

/* One random op. functions: ids are below it; wild: contexts, losses, exec too. */
static inline void
model_step(struct model *m, uint32_t functions, bool wild)
{
  uint64_t tsc = m->tsc;
  switch (model_random(m, 50)) {
  case 0:
    tsc += model_random(m, 1ull << model_random(m, 50));
    break;
  case 1:
    tsc -= tsc > 100 ? model_random(m, 100) : 0;
    break;
  default:
    tsc += model_random(m, 200);
  }
  uint32_t fn = (uint32_t)model_random(m, model_random(m, 3) == 0 ? functions : functions < 30 ? functions : 30);
  uint64_t choice = model_random(m, wild ? 1000 : 900);
  if (choice < 400) {
    model_enter(m, tsc, fn);
  } else if (choice < 770) {
    model_return(m, tsc, fn);
  } else if (choice < 820) {
    model_tail(m, tsc, fn);
  } else if (choice < 840) {
    model_point(m, tsc, fn);
  } else if (choice < 870) {
    model_sampled(m, tsc, fn, model_random(m, 9) == 0 ? (uint32_t)model_random(m, 9) : m->interval_log2);
  } else if (choice < 885) {
    model_value(m, (uint8_t)(1 + model_random(m, 3)), model_random(m, UINT64_MAX) >> model_random(m, 64));
  } else if (choice < 888) { /* some of them late, after events that came after them */
    model_away(m, tsc - (tsc > 1000 ? 500 + model_random(m, 500) : tsc), tsc - (tsc > 1000 ? model_random(m, 500) : 0),
               (uint8_t)(1 + model_random(m, 4)));
  } else if (choice < 900) {
    model_unwound(m, tsc, (uint8_t)(1 + model_random(m, 4)));
  } else if (choice < 995) {
    model_switch(m, tsc, (uint32_t)model_random(m, model_random(m, 2) ? 3 : MODEL_CONTEXTS));
  } else if (choice < 999) {
    model_lost(m, tsc, model_random(m, 1u << 20));
  } else if (model_random(m, 20) == 0) {
    model_exec(m, tsc);
  }
}

static inline void
model_free(struct model *m)
{
  for (int i = 0; i < MODEL_CONTEXTS; i++) {
    free(m->stacks[i].frames);
  }
  free(m->events);
}

/* ---- directories ---- */

static inline int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static inline void
remove_tree(const char *path)
{
  nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A directory of its own for each test, in *state; the trace goes to <it>/t. In memory where that is to be had: tests
 * make tens of thousands of files. */
static inline int
temporary_setup(void **state)
{
  char *path = strdup(access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm/contrail-trace-test.XXXXXX"
                                                           : "/tmp/contrail-trace-test.XXXXXX");
  *state = path;
  return path == NULL || mkdtemp(path) == NULL ? -1 : 0;
}

static inline int
temporary_teardown(void **state)
{
  remove_tree(*state);
  free(*state);
  return 0;
}

static inline const char *
path_in(void **state, const char *name)
{
  static char paths[4][512];
  static unsigned next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof(paths[0]), "%s/%s", (const char *)*state, name);
  return path;
}

static inline struct ct_trace_writer *
create_writer(void **state, uint64_t max_buffer_bytes)
{
  struct ct_trace_writer *writer;
  struct ct_diag diag = {""};
  if (ct_trace_writer_create(path_in(state, "t"), max_buffer_bytes, &writer, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  json_t *manifest =
      json_pack("{s:s, s:i, s:s}", "format", "contrail", "version", CT_TRACE_VERSION, "state", "recording");
  assert_int_equal(ct_trace_writer_manifest(writer, manifest), CT_OK);
  json_decref(manifest);
  return writer;
}

static inline struct ct_trace *
open_trace(void **state)
{
  struct ct_trace *trace = NULL;
  struct ct_diag diag = {""};
  if (ct_trace_open(path_in(state, "t"), &trace, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return trace;
}

/* ---- files ---- */

static inline uint8_t *
read_bytes(const char *path, size_t *size)
{
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*size + 1);
  assert_non_null(bytes);
  assert_int_equal(fread(bytes, 1, *size, file), *size);
  fclose(file);
  return bytes;
}

static inline void
write_bytes(const char *path, const void *bytes, size_t size)
{
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* ---- comparing ---- */

static inline void
assert_event_equal(const struct ct_event *got, const struct ct_event *expected, size_t position)
{
  if (got->tsc != expected->tsc || got->enter_tsc != expected->enter_tsc || got->value != expected->value ||
      got->fn != expected->fn || got->closed_fn != expected->closed_fn || got->depth != expected->depth ||
      got->kind != expected->kind || got->reason != expected->reason || got->uncertain != expected->uncertain) {
    fail_msg("event %zu: kind %u fn %u depth %u tsc %llu enter %llu closed %u reason %u uncertain %u value %llu; "
             "expected kind %u fn %u depth %u tsc %llu enter %llu closed %u reason %u uncertain %u value %llu",
             position, got->kind, got->fn, got->depth, (unsigned long long)got->tsc, (unsigned long long)got->enter_tsc,
             got->closed_fn, got->reason, got->uncertain, (unsigned long long)got->value, expected->kind, expected->fn,
             expected->depth, (unsigned long long)expected->tsc, (unsigned long long)expected->enter_tsc,
             expected->closed_fn, expected->reason, expected->uncertain, (unsigned long long)expected->value);
  }
}

/* Reads a thread to its end, in batches and one by one; every event must be the expected one. How many came. */
static inline size_t
compare_thread(struct ct_trace *trace, uint32_t thread, const struct model *m, enum ct_cursor_state end)
{
  struct ct_cursor *cursor;
  assert_int_equal(ct_cursor_open(trace, thread, 0, &cursor, NULL), CT_OK);
  const struct ct_event *events;
  size_t got = 0;
  for (size_t n; (n = ct_cursor_next(cursor, &events)) > 0;) {
    for (size_t i = 0; i < n; i++, got++) {
      assert_true(got < m->count);
      assert_event_equal(&events[i], &m->events[got], got);
    }
  }
  assert_int_equal(ct_cursor_state(cursor), end);
  ct_cursor_close(cursor);

  assert_int_equal(ct_cursor_open(trace, thread, 0, &cursor, NULL), CT_OK);
  size_t single = 0;
  for (const struct ct_event *event; (event = ct_cursor_next_event(cursor)) != NULL; single++) {
    assert_true(single < got);
    assert_event_equal(event, &m->events[single], single);
  }
  assert_int_equal(single, got);
  assert_int_equal(ct_cursor_state(cursor), end);
  assert_null(ct_cursor_next_event(cursor));
  ct_cursor_close(cursor);
  return got;
}

#endif
