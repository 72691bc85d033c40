/* SPDX-License-Identifier: MIT */
/*
 * Ring events in, trace events out: sequences as the target's hooks write them go through drain_thread_events, a real
 * writer and a real reader, and come back as a line of text:
 *
 *   E1.0    function 1 entered at depth 0        R1.0    returned            !  after it: uncertain
 *   T2<1.0  tail call: 2 took the place of 1     P5.1    entered, enter only
 *   L1.0u   left by longjmp or exception (l: in a loss, t: by a tail call into an enter-only function, n: not seen)
 *   O4.0    return without an enter              X9      9 events lost       S3  to stack context 3
 *   1=7.2   argument 1 (2; r: the result; v: another; b: open when the recording began) of the frame at depth 2
 *   A4:100-200  away for that reason, from and to
 *   P5.1*8  of a sampled hook, for 8 calls         I8      8 is the interval from here on
 */
#ifndef CT_TESTS_DRAIN_TAPE_H
#define CT_TESTS_DRAIN_TAPE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drain/switches.h"
#include "drain/thread.h"
#include "ring/layout.h"
#include "trace_model.h"

enum { FUNCTIONS = 16, ENTER_ONLY = 8, STACKLESS = 15 }; /* functions from ENTER_ONLY on are enter-only */

struct tape {
  void **state;
  struct ct_trace_writer *writer;
  struct drain_thread thread;
  uint8_t *modes; /* exactly FUNCTIONS of them, so that a sanitizer sees one too many */
  uint64_t tsc;
  uint32_t tag;
};

static bool tape_is_near; /* values are written by their differences */

static inline void
begin(struct tape *tape, void **state)
{
  memset(tape, 0, sizeof(*tape));
  tape->state = state;
  tape->tsc = 1000;
  tape->modes = malloc(FUNCTIONS);
  assert_non_null(tape->modes);
  tape->writer = create_writer(state, 0);
  if (tape_is_near) {
    ct_trace_writer_near_values(tape->writer);
  }
  tape->thread.max_depth = UINT32_MAX;
  for (uint32_t fn = 0; fn < FUNCTIONS; fn++) {
    char name[16];
    snprintf(name, sizeof(name), "f%u", fn);
    tape->modes[fn] = fn < ENTER_ONLY ? CT_HOOK_FULL : fn % 2 == 0 ? CT_HOOK_ENTER : CT_HOOK_SAMPLED;
    tape->modes[fn] = fn == STACKLESS ? CT_HOOK_STACKLESS : tape->modes[fn];
    assert_int_equal(
        ct_trace_writer_function(tape->writer, fn, 0, 0x1000 + fn * 16, 16, fn < ENTER_ONLY ? "full" : "enter", name),
        CT_OK);
  }
  assert_int_equal(ct_trace_writer_thread(tape->writer, 0, 1, 1, &tape->thread.encoder), CT_OK);
}

static inline void
feed_word(struct tape *tape, uint64_t word)
{
  struct ct_ring_event event = {.tsc = tape->tsc += 10, .word = word};
  drain_thread_events(&tape->thread, &event, 1, tape->modes, FUNCTIONS);
}

static inline void
feed(struct tape *tape, enum ct_kind kind, uint32_t fn, uint32_t ra_slot)
{
  tape->tag = tape->tag % 3 + 1; /* of no meaning here any more */
  feed_word(tape, (uint64_t)ra_slot << 32 | fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | tape->tag);
}

static inline void
enter(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_ENTER, fn, ra_slot);
}

static inline void
back(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_RETURN, fn, ra_slot);
}

static inline void
tail(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_TAIL, fn, ra_slot);
}

static inline void
point(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, fn | CT_FN_POINT_BIT, ra_slot);
}

/* Of a sampled hook, for 2^log2 calls. */
static inline void
sampled(struct tape *tape, uint32_t fn, uint32_t log2, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, fn | (log2 + 1) << CT_FN_WEIGHT_SHIFT | CT_FN_POINT_BIT, ra_slot);
}

static inline void
tail_out(struct tape *tape, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, CT_OTHER_TAIL_OUT, ra_slot);
}

static inline void
to_stack(struct tape *tape, uint32_t context)
{
  feed(tape, CT_KIND_OTHER, CT_OTHER_SWITCH | context << 4, 0);
}

static inline int
text_of(char *out, size_t size, const struct ct_event *event)
{
  const char *doubt = event->uncertain ? "!" : "";
  switch (event->kind) {
  case CT_EV_ENTER:
    return snprintf(out, size, "E%u.%u%s", event->fn, event->depth, doubt);
  case CT_EV_RETURN:
    return snprintf(out, size, "R%u.%u%s", event->fn, event->depth, doubt);
  case CT_EV_TAIL:
    return snprintf(out, size, "T%u<%d.%u%s", event->fn, (int)event->closed_fn, event->depth, doubt);
  case CT_EV_POINT:
    if (event->value > 1) {
      return snprintf(out, size, "P%u.%u*%u%s", event->fn, event->depth, (unsigned)event->value, doubt);
    }
    return snprintf(out, size, "P%u.%u%s", event->fn, event->depth, doubt);
  case CT_EV_VALUE:
    return snprintf(out, size, "%c=%llx.%u", event->reason < 5 ? "?12rb"[event->reason] : 'v',
                    (unsigned long long)event->value, event->depth);
  case CT_EV_INTERVAL:
    return snprintf(out, size, "I%u", (unsigned)event->value);
  case CT_EV_UNWOUND:
    return snprintf(out, size, "L%u.%u%c%s", event->fn, event->depth, "?uxeltsn"[event->reason], doubt);
  case CT_EV_ORPHAN_RETURN:
    return snprintf(out, size, "O%u.%u%s", event->fn, event->depth, doubt);
  case CT_EV_LOST:
    return snprintf(out, size, "X%u", (unsigned)event->value);
  case CT_EV_AWAY:
    return snprintf(out, size, "A%u:%u-%u", event->reason, (unsigned)event->enter_tsc,
                    (unsigned)(event->enter_tsc + event->value));
  case CT_EV_SWITCH:
    return snprintf(out, size, "S%u", (unsigned)event->value);
  default:
    return snprintf(out, size, "?%u", event->kind);
  }
}

/* Ends the recording, reads it, gives the line; the caller frees it. */
static inline char *
finish(struct tape *tape)
{
  assert_int_equal(ct_trace_writer_close(tape->writer, NULL), CT_OK);
  free(tape->modes);
  struct ct_trace *trace = open_trace(tape->state);
  struct ct_cursor *cursor;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  size_t used = 0, room = 4096;
  char *line = malloc(room);
  assert_non_null(line);
  line[0] = 0;
  const struct ct_event *events;
  uint64_t last = 0;
  for (size_t n; (n = ct_cursor_next(cursor, &events)) != 0;) {
    for (size_t i = 0; i < n; i++) {
      if (room - used < 64) {
        line = realloc(line, room *= 2);
        assert_non_null(line);
      }
      used += (size_t)snprintf(line + used, room - used, used == 0 ? "" : " ");
      used += (size_t)text_of(line + used, room - used, &events[i]);
      assert_true(events[i].tsc >= last);
      last = events[i].tsc;
    }
  }
  assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_END);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  return line;
}

static inline void
expect(struct tape *tape, const char *expected)
{
  char *line = finish(tape);
  assert_string_equal(line, expected);
  free(line);
}

/* Of the call at the return-address slot; the value is where others have the time. */
static inline void
number(struct tape *tape, enum ct_other which, uint64_t value, uint32_t ra_slot)
{
  struct ct_ring_event event = {.tsc = value,
                                .word = (uint64_t)ra_slot << 32 | (uint32_t)which << CT_WORD_FN_SHIFT | 1};
  drain_thread_events(&tape->thread, &event, 1, tape->modes, FUNCTIONS);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, temporary_setup, temporary_teardown)

#endif
