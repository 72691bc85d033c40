/* SPDX-License-Identifier: MIT */
/*
 * Values, frames that were open before or moved to other stacks, sampled calls and a limit of depth, through the drain;
 * and programs at random. The language is that of drain_tape.h.
 */
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drain_tape.h"

#if !defined(__SANITIZE_ADDRESS__) /* which sees it by itself */
/*
 * In place of the C library's: what grows moves each time, and what it was is kept, filled with OLD, so that a test can
 * see who has gone on writing there.
 */
enum { OLD = 0xdd, OLD_MAX = 4096 };

static struct {
  uint8_t *bytes;
  size_t size;
} old[OLD_MAX];
static size_t old_count;

void *
realloc(void *before, size_t size)
{
  void *fresh = malloc(size);
  if (before == NULL || fresh == NULL) {
    return fresh;
  }
  size_t held = malloc_usable_size(before);
  memcpy(fresh, before, held < size ? held : size);
  if (old_count == OLD_MAX) {
    free(before);
    return fresh;
  }
  memset(before, OLD, held);
  old[old_count].bytes = before;
  old[old_count++].size = held;
  return fresh;
}

static void
expect_old_unwritten(void)
{
  while (old_count > 0) {
    old_count--;
    for (size_t i = 0; i < old[old_count].size; i++) {
      assert_int_equal(old[old_count].bytes[i], OLD);
    }
    free(old[old_count].bytes);
  }
}
#else
static void
expect_old_unwritten(void)
{
}
#endif

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

/* Each call ends in a tail call, ever deeper: the frames find another place in the middle of one, too. */
static void
tails_ever_deeper(void **state)
{
  enum { DEPTH = 3000 };
  struct tape t;
  expect_old_unwritten();
  begin(&t, state);
  for (uint32_t depth = 0; depth < DEPTH; depth++) {
    enter(&t, 1, 100000 - depth * 16);
    for (uint32_t i = 0; i <= depth % 3; i++) {
      tail(&t, 2, 100000 - depth * 16);
    }
  }
  assert_int_equal(ct_encoder_depth(t.thread.encoder), DEPTH);
  assert_int_equal(ct_trace_writer_close(t.writer, NULL), CT_OK);
  free(t.modes);
  expect_old_unwritten();
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

int
main(void)
{
  const struct CMUnitTest tests[] = {
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
      CASE(tails_ever_deeper),
      CASE(random_programs),
  };
  return cmocka_run_group_tests_name("drain_stacks", tests, NULL, NULL);
}
