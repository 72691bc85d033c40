/* SPDX-License-Identifier: MIT */
/*
 * Ring events in, trace events out: sequences as the target's hooks write them go through drain_thread_events, a real
 * writer and a real reader, and come back as a line of text:
 *
 *   E1.0    function 1 entered at depth 0        R1.0    returned            !  after it: uncertain
 *   T2<1.0  tail call: 2 took the place of 1     P5.1    entered, enter only
 *   L1.0u   left by longjmp or exception (l: in a loss, t: by a tail call into an enter-only function, n: not seen)
 *   O4.0    return without an enter              X9      9 events lost       S3  to stack context 3
 *   1=7.2   argument 1 (2; r: the result; b: open when the recording began) of the frame at depth 2
 *   A4:100-200  away for that reason, from and to
 *   P5.1*8  of a sampled hook, for 8 calls         I8      8 is the interval from here on
 *
 * Longer than others: all cases are lines of one language, which one interpreter in this file plays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void
begin(struct tape *tape, void **state)
{
  memset(tape, 0, sizeof(*tape));
  tape->state = state;
  tape->tsc = 1000;
  tape->modes = malloc(FUNCTIONS);
  assert_non_null(tape->modes);
  tape->writer = create_writer(state, 0);
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

static void
feed_word(struct tape *tape, uint64_t word)
{
  struct ct_ring_event event = {.tsc = tape->tsc += 10, .word = word};
  drain_thread_events(&tape->thread, &event, 1, tape->modes, FUNCTIONS);
}

static void
feed(struct tape *tape, enum ct_kind kind, uint32_t fn, uint32_t ra_slot)
{
  tape->tag = tape->tag % 3 + 1; /* of no meaning here any more */
  feed_word(tape, (uint64_t)ra_slot << 32 | fn << CT_WORD_FN_SHIFT | (uint32_t)kind << CT_WORD_KIND_SHIFT | tape->tag);
}

static void
enter(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_ENTER, fn, ra_slot);
}

static void
back(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_RETURN, fn, ra_slot);
}

static void
tail(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_TAIL, fn, ra_slot);
}

static void
point(struct tape *tape, uint32_t fn, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, fn | CT_FN_POINT_BIT, ra_slot);
}

/* Of a sampled hook, for 2^log2 calls. */
static void
sampled(struct tape *tape, uint32_t fn, uint32_t log2, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, fn | (log2 + 1) << CT_FN_WEIGHT_SHIFT | CT_FN_POINT_BIT, ra_slot);
}

static void
tail_out(struct tape *tape, uint32_t ra_slot)
{
  feed(tape, CT_KIND_OTHER, CT_OTHER_TAIL_OUT, ra_slot);
}

static void
to_stack(struct tape *tape, uint32_t context)
{
  feed(tape, CT_KIND_OTHER, CT_OTHER_SWITCH | context << 4, 0);
}

static int
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
    return snprintf(out, size, "%c=%llx.%u", "?12rb"[event->reason], (unsigned long long)event -> value,
                    event -> depth);
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
static char *
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

static void
expect(struct tape *tape, const char *expected)
{
  char *line = finish(tape);
  assert_string_equal(line, expected);
  free(line);
}

static void
plain_nesting(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  enter(&t, 2, 900);
  enter(&t, 2, 800);
  back(&t, 2, 800);
  enter(&t, 3, 800);
  back(&t, 3, 800);
  back(&t, 2, 900);
  back(&t, 1, 1000);
  enter(&t, 4, 1000);
  back(&t, 4, 1000);
  expect(&t, "E1.0 E2.1 E2.2 R2.2 E3.2 R3.2 R2.1 R1.0 E4.0 R4.0");
}

/* The times of a frame are those of its own two events. */
static void
times_are_kept(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000); /* 1010 */
  enter(&t, 2, 900);  /* 1020 */
  t.tsc = 5000;
  back(&t, 2, 900); /* 5010 */
  t.tsc = 100;
  enter(&t, 3, 900); /* 110: another processor's clock; never before the last */
  t.tsc = 6000;
  back(&t, 1, 1000); /* 6010; leaves 3 */
  free(t.modes);
  assert_int_equal(ct_trace_writer_close(t.writer, NULL), CT_OK);
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *e;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  assert_int_equal(ct_cursor_next(cursor, &e), 6);
  assert_int_equal(e[2].tsc, 5010);
  assert_int_equal(e[2].enter_tsc, 1020);
  assert_int_equal(e[3].tsc, 5010);
  assert_int_equal(e[4].kind, CT_EV_UNWOUND);
  assert_int_equal(e[4].tsc, 6010);
  assert_int_equal(e[4].enter_tsc, 5010);
  assert_int_equal(e[5].tsc, 6010);
  assert_int_equal(e[5].enter_tsc, 1010);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
}

static void
longjmp_over_three(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  enter(&t, 2, 800);
  enter(&t, 3, 700);
  enter(&t, 4, 900); /* called from 0 again, where 1 had been */
  back(&t, 4, 900);
  enter(&t, 1, 900);
  enter(&t, 2, 800);
  enter(&t, 3, 700);
  enter(&t, 5, 850); /* between two: what is below goes, 1 stays */
  back(&t, 5, 850);
  enter(&t, 2, 800);
  enter(&t, 3, 700);
  back(&t, 0, 1000); /* 0 itself returns */
  expect(&t, "E0.0 E1.1 E2.2 E3.3 L3.3u L2.2u L1.1u E4.1 R4.1 "
             "E1.1 E2.2 E3.3 L3.3u L2.2u E5.2 R5.2 E2.2 E3.3 L3.3u L2.2u L1.1u R0.0");
}

static void
tail_chains(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  tail(&t, 2, 900);
  enter(&t, 6, 800);
  back(&t, 6, 800);
  tail(&t, 3, 900);
  back(&t, 1, 900); /* the one return names the function that was called */
  back(&t, 0, 1000);
  expect(&t, "E0.0 E1.1 T2<1.1 E6.2 R6.2 T3<2.1 R3.1 R0.0");
}

static void
tail_circles(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 900);
  for (int i = 0; i < 2; i++) {
    tail(&t, 2, 900);
    tail(&t, 1, 900);
  }
  back(&t, 1, 900);
  enter(&t, 1, 900);
  tail(&t, 1, 900);
  back(&t, 1, 900);
  expect(&t, "E1.0 T2<1.0 T1<2.0 T2<1.0 T1<2.0 R1.0 E1.0 T1<1.0 R1.0");
}

static void
a_tail_call_leaves_what_is_inside(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 900);
  enter(&t, 2, 800);
  enter(&t, 3, 700);
  tail(&t, 4, 900); /* after a longjmp to 1 */
  back(&t, 1, 900);
  expect(&t, "E1.0 E2.1 E3.2 L3.2u L2.1u T4<1.0 R4.0");
}

static void
a_tail_call_into_an_enter_only_function(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  tail(&t, 8, 900); /* the return-address slot holds the true address again: no return will come */
  enter(&t, 2, 900);
  tail(&t, 3, 900);
  tail(&t, 9, 900);
  back(&t, 0, 1000);
  tail(&t, 10, 1000); /* out of a frame that is not in the trace */
  expect(&t, "E0.0 E1.1 L1.1t P8.1 E2.1 T3<2.1 L3.1t P9.1 R0.0 P10.0");
}

/* An excluded function that was jumped to, and has put the true return address back: no event of its own follows. */
static void
a_tail_call_into_an_excluded_function(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  tail_out(&t, 900);
  enter(&t, 2, 900);
  enter(&t, 3, 800);
  tail_out(&t, 900); /* after a longjmp to 2 */
  enter(&t, 4, 900);
  tail(&t, 5, 900);
  tail_out(&t, 900);
  tail_out(&t, 900); /* out of a frame that is not in the trace */
  tail_out(&t, 950);
  back(&t, 0, 1000);
  tail_out(&t, 1000);
  expect(&t, "E0.0 E1.1 L1.1t E2.1 E3.2 L3.2u L2.1t E4.1 T5<4.1 L5.1t R0.0");
}

static void
a_tail_call_out_of_nowhere(void **state)
{
  struct tape t;
  begin(&t, state);
  tail(&t, 2, 900); /* recording began inside the frame that jumped */
  tail(&t, 3, 900);
  back(&t, 1, 900); /* names the one never seen */
  enter(&t, 1, 900);
  tail(&t, 4, 800); /* deeper: not 1's return-address slot */
  back(&t, 5, 800);
  back(&t, 1, 900);
  expect(&t, "E2.0 T3<2.0 R3.0 E1.0 E4.1 R4.1 R1.0");
}

static void
orphan_returns(void **state)
{
  struct tape t;
  begin(&t, state);
  back(&t, 3, 800);
  back(&t, 2, 900);
  enter(&t, 1, 1000);
  back(&t, 4, 900);  /* nothing open there */
  back(&t, 4, 1000); /* something else is open there: it stays */
  back(&t, 1, 1000);
  back(&t, 0, 1100);
  expect(&t, "O3.0 O2.0 E1.0 O4.1 O4.1 R1.0 O0.0");
}

static void
enter_only_hooks(void **state)
{
  struct tape t;
  begin(&t, state);
  point(&t, 8, 1000);
  enter(&t, 1, 1000);
  point(&t, 9, 900);
  point(&t, 9, 800);
  enter(&t, 2, 800);
  point(&t, 10, 900); /* at or above 2's return-address slot: 2 is gone */
  back(&t, 1, 1000);
  enter(&t, 1, 1000);
  point(&t, 11, 1000); /* where 1 was */
  point(&t, 0, 500);   /* a full hook called by code that is no module: enter only this once */
  expect(&t, "P8.0 E1.0 P9.1 P9.1 E2.1 L2.1u P10.1 R1.0 E1.0 L1.0u P11.0 P0.0");
}

/* Stacks that a runtime moves: wherever the return-address slot is, nothing has been left. */
static void
stackless_hooks(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  enter(&t, 2, 900);
  point(&t, STACKLESS, 2000);
  point(&t, STACKLESS, 100);
  back(&t, 2, 900);
  point(&t, STACKLESS, 1000);
  back(&t, 1, 1000);
  expect(&t, "E1.0 E2.1 P15.2 P15.2 R2.1 P15.1 R1.0");
}

static void
lost_and_on(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  enter(&t, 2, 800);
  enter(&t, 3, 700);
  ct_encode_lost(t.thread.encoder, t.tsc, 9);
  enter(&t, 4, 850); /* 2 and 3 ended in the loss */
  back(&t, 4, 850);
  back(&t, 5, 850); /* its enter was lost */
  tail(&t, 6, 900); /* 1's frame goes on under another name, certain from here on */
  back(&t, 1, 900);
  back(&t, 0, 1000);
  enter(&t, 0, 1000);
  back(&t, 0, 1000);
  expect(&t, "E0.0 E1.1 E2.2 E3.3 X9 L3.3l! L2.2l! E4.2 R4.2 O5.2 T6<1.1! R6.1 R0.0! E0.0 R0.0");
}

static void
two_stacks(void **state)
{
  struct tape t;
  begin(&t, state);
  to_stack(&t, 7); /* the thread's own: no event */
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  to_stack(&t, 3);
  enter(&t, 2, 5000); /* far above, of another stack: leaves nobody */
  enter(&t, 3, 4900);
  to_stack(&t, 7);
  back(&t, 1, 900);
  enter(&t, 4, 900);
  to_stack(&t, 3);
  back(&t, 3, 4900);
  enter(&t, 5, 4950);
  to_stack(&t, 3); /* where it is: nothing */
  to_stack(&t, 7);
  back(&t, 4, 900);
  back(&t, 0, 1000);
  to_stack(&t, 3);
  back(&t, 5, 4950);
  back(&t, 2, 5000);
  expect(&t, "E0.0 E1.1 S4 E2.0 E3.1 S0 R1.1 E4.1 S4 R3.1 E5.1 S0 R4.1 R0.0 S4 R5.1 R2.0");
}

/* The half of the address wraps, and changes its sign, inside a stack: what is inside stays inside. */
static void
ra_slots_across_the_wrap(void **state)
{
  static const uint32_t edges[] = {0, 0x80000000};
  for (int i = 0; i < 2; i++) {
    struct tape t;
    remove_tree(path_in(state, "t"));
    begin(&t, state);
    enter(&t, 0, edges[i] + 0x100);
    enter(&t, 1, edges[i]);
    enter(&t, 2, edges[i] - 0x100);
    enter(&t, 3, edges[i] - 0x40000000);
    back(&t, 3, edges[i] - 0x40000000);
    back(&t, 2, edges[i] - 0x100);
    enter(&t, 4, edges[i] - 8);
    tail(&t, 5, edges[i] - 8);
    enter(&t, 6, edges[i] - 0x200);
    back(&t, 1, edges[i]); /* longjmp across the edge */
    enter(&t, 2, edges[i] - 0x100);
    enter(&t, 3, edges[i] + 0x80); /* and once more, to a return-address slot above it */
    back(&t, 3, edges[i] + 0x80);
    back(&t, 0, edges[i] + 0x100);
    expect(&t, "E0.0 E1.1 E2.2 E3.3 R3.3 R2.2 E4.2 T5<4.2 E6.3 L6.3u L5.2u R1.1 E2.1 L2.1u E3.1 R3.1 R0.0");
  }
}

/* The target can write anything into the ring: what is no event of ours is left out. */
static void
scribbled_events(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  enter(&t, FUNCTIONS, 900);
  back(&t, FUNCTIONS, 900);
  tail(&t, FUNCTIONS, 900);
  point(&t, FUNCTIONS, 900);
  enter(&t, CT_FN_MAX, 900);
  tail(&t, CT_FN_MAX, 900);
  point(&t, CT_FN_MAX, 900);
  feed(&t, CT_KIND_OTHER, 0, 900); /* of no known sort */
  feed(&t, CT_KIND_OTHER, 15, 900);
  feed(&t, CT_KIND_OTHER, CT_FN_MAX & ~15u, 900);
  enter(&t, FUNCTIONS - 1, 900);
  back(&t, FUNCTIONS - 1, 900);
  back(&t, 1, 1000);
  expect(&t, "E1.0 E15.1 R15.1 R1.0");
}

/* The same with the point bit where only an enter without call-through has it. */
static void
scribbled_point_bits(void **state)
{
  static const enum ct_kind kinds[] = {CT_KIND_ENTER, CT_KIND_RETURN, CT_KIND_TAIL};
  for (int k = 0; k < 3; k++) {
    remove_tree(path_in(state, "t"));
    pid_t child = fork(); /* a bad index takes the process with it */
    assert_true(child >= 0);
    if (child == 0) {
      struct tape t;
      begin(&t, state);
      enter(&t, 1, 1000);
      feed(&t, kinds[k], 1 | CT_FN_POINT_BIT, 900);
      back(&t, 1, 1000);
      char *line = finish(&t);
      _exit(strcmp(line, "E1.0 R1.0") == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fail_msg("kind %d with the point bit: status %#x", (int)kinds[k], (unsigned)status);
    }
  }
}

/* Intervals stand between the events that their middles lie between, and end at them. */
static void
stopped_in_between(void **state)
{
  struct tape t;
  begin(&t, state);
  t.thread.tid = 77; /* of nobody: what the kernel tells of this process is not its */
  struct drain_switches *switches = drain_switches_open(getpid());
  assert_non_null(switches);
  const uint64_t enter = 1u << CT_WORD_FN_SHIFT | CT_KIND_ENTER << CT_WORD_KIND_SHIFT | 1;
  const uint64_t back = 1u << CT_WORD_FN_SHIFT | CT_KIND_RETURN << CT_WORD_KIND_SHIFT | 1;
  const uint64_t argument = CT_OTHER_ARG_1 << CT_WORD_FN_SHIFT | 1, ra_slot = 1000ull << 32;
  const struct ct_ring_event first[] = {{2000, ra_slot | enter}, {5000, ra_slot | argument}, {3000, ra_slot | back}};
  const struct ct_ring_event second[] = {{4000, ra_slot | enter}, {4100, ra_slot | back}};
  drain_switches_add_stop(switches, &t.thread, 1000, 1500); /* before the first event */
  drain_switches_add_stop(switches, &t.thread, 1900, 2300); /* the clock's conversion is not exact */
  drain_switches_add_stop(switches, &t.thread, 2400, 2500);
  drain_switches_add_stop(switches, &t.thread, 2900, 3200);
  drain_switches_add_stop(switches, &t.thread, 3900, 4010);
  drain_switches_encode(switches, &t.thread, first, 3, t.modes, FUNCTIONS);
  drain_switches_encode(switches, &t.thread, second, 2, t.modes, FUNCTIONS);
  drain_switches_add_stop(switches, &t.thread, 4500, 4600);
  drain_switches_end(switches, &t.thread, UINT64_MAX, false);
  drain_switches_close(switches);
  expect(&t, "E1.0 1=1388.0 A4:2000-2300 A4:2400-2500 R1.0 A4:3000-3200 A4:3900-4000 E1.0 R1.0 A4:4500-4600");
}

/* Of the call at the return-address slot; the value is where others have the time. */
static void
number(struct tape *tape, enum ct_other which, uint64_t value, uint32_t ra_slot)
{
  struct ct_ring_event event = {.tsc = value,
                                .word = (uint64_t)ra_slot << 32 | (uint32_t)which << CT_WORD_FN_SHIFT | 1};
  drain_thread_events(&tape->thread, &event, 1, tape->modes, FUNCTIONS);
}

static void
values(void **state)
{
  struct tape t;
  begin(&t, state);
  number(&t, CT_OTHER_ARG_1, 5, 1000); /* no frame */
  enter(&t, 1, 1000);
  number(&t, CT_OTHER_ARG_1, UINT64_MAX, 1000);
  number(&t, CT_OTHER_ARG_2, 0, 1000);
  enter(&t, 2, 900);
  enter(&t, 9, 800); /* a handler between 2's enter and its arguments */
  back(&t, 9, 800);
  number(&t, CT_OTHER_ARG_1, 0x10, 900);
  number(&t, CT_OTHER_ARG_2, 0x20, 900);
  number(&t, CT_OTHER_ARG_2, 0x30, 800); /* of nobody */
  enter(&t, 3, 800);
  enter(&t, 4, 700);
  number(&t, CT_OTHER_RESULT, 0x40, 800); /* 4 was left */
  back(&t, 3, 800);
  tail(&t, 5, 900);
  number(&t, CT_OTHER_ARG_1, 0x50, 900);
  number(&t, CT_OTHER_RESULT, 0x60, 900);
  back(&t, 2, 900);
  number(&t, CT_OTHER_RESULT, 0x70, 1000);
  back(&t, 1, 1000);
  expect(&t, "E1.0 1=ffffffffffffffff.0 2=0.0 E2.1 E9.2 R9.2 1=10.1 2=20.1 E3.2 E4.3 L4.3u r=40.2 R3.2 T5<2.1 1=50.1 "
             "r=60.1 R5.1 r=70.0 R1.0");
}

/* Frames that the thread had already: they end, unseen, before the first event further out, or at their place. */
static void
open_before(void **state)
{
  static const struct ct_drain_frame frames[] = {{1, 1000}, {2, 900}, {3, 800}, {4, 700}};
  struct tape t;
  begin(&t, state);
  drain_thread_open(&t.thread, 1000, frames, 4);
  assert_int_equal(t.thread.last_clock, 1000);
  enter(&t, 5, 600);
  back(&t, 5, 600);
  enter(&t, 6, 750); /* 4 is gone, 3 is not */
  back(&t, 6, 750);
  enter(&t, 7, 800); /* in the place of 3 */
  back(&t, 7, 800);
  back(&t, 0, 950); /* hooks tell of no such return */
  expect(&t, "E1.0 b=0.0 E2.1 b=0.1 E3.2 b=0.2 E4.3 b=0.3 E5.4 R5.4 L4.3n E6.3 R6.3 L3.2n E7.2 R7.2 L2.1n O0.1");
}

/* On another stack, before it is known which one the thread is on: of the frames nothing is known then. */
static void
open_before_elsewhere(void **state)
{
  static const struct ct_drain_frame frames[] = {{1, 0x100900}, {2, 0x100800}};
  struct tape t;
  begin(&t, state);
  drain_thread_open(&t.thread, 1000, frames, 2);
  to_stack(&t, 7);
  feed(&t, CT_KIND_OTHER, CT_OTHER_STACK | 16 << 4, 0x900000);
  enter(&t, 3, 0x900800);
  back(&t, 3, 0x900800);
  expect(&t, "E1.0 b=0.0 E2.1 b=0.1 L2.1n L1.0n E3.0 R3.0");
}

/* A frame whose return address has been put back ends before the first event further out, and others as ever. */
static void
frames_that_were_read(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  enter(&t, 2, 900);
  enter(&t, 3, 800);
  feed(&t, CT_KIND_OTHER, CT_OTHER_UNSEEN, 900);
  feed(&t, CT_KIND_OTHER, CT_OTHER_UNSEEN, 950); /* no frame's */
  back(&t, 3, 800);
  enter(&t, 4, 850);
  back(&t, 4, 850);
  enter(&t, 5, 900);
  back(&t, 5, 900);
  back(&t, 1, 1000);
  expect(&t, "E1.0 E2.1 E3.2 R3.2 E4.2 R4.2 L2.1n E5.1 R5.1 R1.0");
}

static void
copied(struct tape *tape, enum ct_copy what, uint32_t lo, uint32_t hi, uint32_t key)
{
  feed(tape, CT_KIND_OTHER, CT_OTHER_COPY | (uint32_t)what << 4, lo);
  feed(tape, CT_KIND_OTHER, CT_OTHER_COPY_END | key << 4, hi);
}

/* Frames of what is copied away end once those of the copying functions have returned. */
static void
copies_within_frames(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  enter(&t, 2, 900);
  enter(&t, 3, 800);
  enter(&t, 4, 700); /* copies */
  copied(&t, CT_COPY_OUT, 720, 950, 5);
  back(&t, 4, 700);
  enter(&t, 5, 700);
  back(&t, 5, 700);
  enter(&t, 4, 500);
  copied(&t, CT_COPY_IN, 720, 950, 5);
  enter(&t, 6, 880); /* by a longjmp */
  back(&t, 6, 880);
  back(&t, 1, 1000);
  expect(&t, "E1.0 E2.1 E3.2 E4.3 R4.3 L3.2s L2.1s E5.1 R5.1 E4.1 L4.1u E6.1 R6.1 R1.0");
  free(t.thread.flows);
}

/* Greenlets: all frames of the stack end at a switch; each greenlet is a context, told by its copy. */
static void
copies_of_flows(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  copied(&t, CT_COPY_NONE, 900, 2000, 0);
  enter(&t, 9, 800);
  copied(&t, CT_COPY_OUT, 880, 950, 5); /* the first one begins another */
  back(&t, 9, 800);
  enter(&t, 2, 850);
  copied(&t, CT_COPY_NONE, 700, 2000, 0);
  enter(&t, 9, 600);
  copied(&t, CT_COPY_OUT, 680, 940, 6); /* which goes back */
  back(&t, 9, 600);
  enter(&t, 8, 870);
  copied(&t, CT_COPY_IN, 880, 950, 5);
  back(&t, 8, 870);
  enter(&t, 3, 990);
  copied(&t, CT_COPY_NONE, 900, 2000, 0);
  enter(&t, 9, 800);
  copied(&t, CT_COPY_OUT, 880, 940, 7);
  back(&t, 9, 800);
  enter(&t, 8, 660);
  copied(&t, CT_COPY_IN, 680, 940, 6);
  back(&t, 8, 660);
  enter(&t, 4, 840);
  back(&t, 4, 840);
  expect(&t,
         "E1.0 L1.0s E9.0 R9.0 S16777216 E2.0 L2.0s E9.0 R9.0 S16777217 E8.0 R8.0 S0 E3.0 L3.0s E9.0 R9.0 S16777217 "
         "E8.0 R8.0 S16777216 E4.0 R4.0");
  free(t.thread.flows);
}

/* On the stack where the call is, whichever was the last one; and their numbers are no times. */
static void
values_across_stacks(void **state)
{
  struct tape t;
  begin(&t, state);
  to_stack(&t, 7);
  feed(&t, CT_KIND_OTHER, CT_OTHER_STACK | 16 << 4, 0x100000); /* 64 KiB from there on */
  enter(&t, 1, 0x100800);
  to_stack(&t, 3); /* a handler on another stack, between 1's enter and its argument */
  feed(&t, CT_KIND_OTHER, CT_OTHER_STACK | 16 << 4, 0x900000);
  enter(&t, 2, 0x900800);
  back(&t, 2, 0x900800);
  number(&t, CT_OTHER_ARG_1, UINT64_MAX, 0x100800);
  back(&t, 1, 0x100800);
  expect(&t, "E1.0 S4 E2.0 R2.0 S0 1=ffffffffffffffff.0 R1.0");
}

/* The frame at a sampled event's return-address slot may have gone on there by a tail jump; those below it are left. */
static void
sampled_hook_points(void **state)
{
  struct tape t;
  begin(&t, state);
  enter(&t, 1, 1000);
  sampled(&t, 9, 0, 900);
  sampled(&t, 2, 0, 900); /* a function whose hook was full may be sampled now */
  enter(&t, 3, 900);
  sampled(&t, 9, 0, 900); /* 3 goes on in it */
  back(&t, 3, 900);
  enter(&t, 3, 900);
  enter(&t, 4, 800);
  sampled(&t, 9, 0, 900); /* 4 was left */
  tail(&t, 5, 900);       /* 3, 9, 5: each jumped to the next */
  back(&t, 3, 900);
  back(&t, 1, 1000);
  expect(&t, "E1.0 P9.1 P2.1 E3.1 P9.2 R3.1 E3.1 E4.2 L4.2u P9.2 T5<3.1 R5.1 R1.0");
}

static void
sampled_points(void **state)
{
  struct tape t;
  begin(&t, state);
  t.thread.max_depth = 2;
  enter(&t, 1, 1000);
  sampled(&t, 9, 3, 900);
  sampled(&t, 11, 3, 900);
  point(&t, 8, 900); /* of a hook that is not sampled */
  enter(&t, 2, 900);
  sampled(&t, 9, 1, 800); /* too deep */
  back(&t, 2, 900);
  sampled(&t, 9, 0, 900);
  sampled(&t, 9, CT_SAMPLE_LOG2_MAX, 900);
  sampled(&t, 9, CT_SAMPLE_LOG2_MAX + 1, 900); /* scribbled over */
  sampled(&t, FUNCTIONS, 2, 900);
  sampled(&t, CT_FN_MAX, 2, 900);
  back(&t, 1, 1000);
  expect(&t, "E1.0 I8 P9.1*8 P11.1*8 P8.1 E2.1 R2.1 I1 P9.1 I256 P9.1*256 R1.0");
}

static void
not_deeper_than(void **state)
{
  struct tape t;
  begin(&t, state);
  t.thread.max_depth = 2;
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  enter(&t, 2, 800); /* too deep, and all that it calls */
  enter(&t, 3, 700);
  point(&t, 8, 600);
  back(&t, 3, 700);
  tail(&t, 4, 800);
  tail_out(&t, 800);
  enter(&t, 2, 800);
  tail(&t, 9, 800);
  enter(&t, 2, 800);
  back(&t, 2, 800);
  tail(&t, 5, 900); /* in place of 1, so no deeper */
  enter(&t, 2, 800);
  back(&t, 1, 900); /* leaves what is not there */
  enter(&t, 6, 900);
  enter(&t, 7, 850);
  back(&t, 0, 1000);
  back(&t, 3, 950); /* an orphan as ever */
  enter(&t, 1, 1000);
  back(&t, 4, 900);
  back(&t, 1, 1000);
  to_stack(&t, 7);
  enter(&t, 0, 1000);
  enter(&t, 1, 900);
  to_stack(&t, 3); /* another stack has its own depth */
  enter(&t, 2, 5000);
  enter(&t, 3, 4900);
  enter(&t, 4, 4800);
  to_stack(&t, 7);
  back(&t, 1, 900);
  back(&t, 0, 1000);
  expect(&t, "E0.0 E1.1 T5<1.1 R5.1 E6.1 L6.1u R0.0 O3.0 E1.0 O4.1 R1.0 E0.0 E1.1 S4 E2.0 E3.1 S0 R1.1 R0.0");
}

/*
 * Random programs: calls, returns, tail calls, longjmp to any frame. Each frame calls from one depth of its own, as
 * compiled frames do; then the reconstruction is exact.
 */
static void
random_programs(void **state)
{
  struct {
    uint32_t ra_slot, callees, fn, root;
  } stack[64];
  for (uint64_t seed = 1; seed <= 30; seed++) {
    struct model m = {.random = seed * 0x9e3779b97f4a7c15ull};
    struct tape t;
    size_t room = 1 << 20, used = 0;
    char *expected = calloc(1, room), left[64 * 16] = "";
    uint32_t depth = 0, base = (uint32_t)model_random(&m, 1ull << 32);
    assert_non_null(expected);
    remove_tree(path_in(state, "t"));
    begin(&t, state);
#define SAY(...) (used += (size_t)snprintf(expected + used, room - used, __VA_ARGS__))
    for (int step = 0; step < 5000; step++) {
      uint32_t fn = (uint32_t)model_random(&m, ENTER_ONLY);
      uint64_t choice = model_random(&m, 100);
      if (choice < 45 && depth < 60) {
        uint32_t ra_slot = depth == 0 ? base : stack[depth - 1].callees;
        enter(&t, fn, ra_slot);
        SAY("%s E%u.%u", left, fn, depth);
        uint32_t frame = 16 + 8 * (uint32_t)model_random(&m, 200);
        stack[depth].ra_slot = ra_slot;
        stack[depth].callees = ra_slot - frame;
        stack[depth].fn = stack[depth].root = fn;
        depth++;
      } else if (choice < 85 && depth > 0) {
        depth--;
        back(&t, stack[depth].root, stack[depth].ra_slot);
        SAY("%s R%u.%u", left, stack[depth].fn, depth);
      } else if (choice < 92 && depth > 0) {
        tail(&t, fn, stack[depth - 1].ra_slot);
        SAY("%s T%u<%u.%u", left, fn, stack[depth - 1].fn, depth - 1);
        stack[depth - 1].fn = fn;
      } else if (choice < 95 && depth > 0) {
        fn = ENTER_ONLY + fn % (STACKLESS - ENTER_ONLY);
        point(&t, fn, stack[depth - 1].callees);
        SAY("%s P%u.%u", left, fn, depth);
      } else if (choice < 98 && depth > 1) { /* seen with the next event only */
        uint32_t to = 1 + (uint32_t)model_random(&m, depth - 1);
        size_t at = strlen(left);
        while (depth > to) {
          depth--;
          at += (size_t)snprintf(left + at, sizeof(left) - at, " L%u.%uu", stack[depth].fn, depth);
        }
        continue;
      } else {
        continue;
      }
      left[0] = 0;
    }
    char *line = finish(&t);
    assert_true(used < room - 64);
    assert_string_equal(line, expected + 1);
    free(line);
    free(expected);
  }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, temporary_setup, temporary_teardown)

int
main(void)
{
  const struct CMUnitTest tests[] = {
      CASE(plain_nesting),
      CASE(times_are_kept),
      CASE(longjmp_over_three),
      CASE(tail_chains),
      CASE(tail_circles),
      CASE(a_tail_call_leaves_what_is_inside),
      CASE(a_tail_call_into_an_enter_only_function),
      CASE(a_tail_call_into_an_excluded_function),
      CASE(a_tail_call_out_of_nowhere),
      CASE(orphan_returns),
      CASE(enter_only_hooks),
      CASE(stackless_hooks),
      CASE(lost_and_on),
      CASE(two_stacks),
      CASE(ra_slots_across_the_wrap),
      CASE(scribbled_events),
      CASE(stopped_in_between),
      CASE(values),
      CASE(open_before),
      CASE(open_before_elsewhere),
      CASE(values_across_stacks),
      CASE(frames_that_were_read),
      CASE(copies_within_frames),
      CASE(copies_of_flows),
      CASE(sampled_hook_points),
      CASE(sampled_points),
      CASE(not_deeper_than),
      CASE(random_programs),
      CASE(scribbled_point_bits),
  };
  return cmocka_run_group_tests_name("drain", tests, NULL, NULL);
}
