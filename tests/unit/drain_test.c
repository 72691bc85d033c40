/* SPDX-License-Identifier: MIT */
/* Sequences of events of functions that call, jump and leave, through the drain: the language is that of drain_tape.h.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "drain_tape.h"

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
      CASE(scribbled_point_bits),
  };
  return cmocka_run_group_tests_name("drain", tests, NULL, NULL);
}
