/* SPDX-License-Identifier: MIT */
/* Which way branches went, as the records of their units say. */
#include "itrace/branches.h"

#include "itrace/unit_log.h"
#include "ring/itrace_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WHOLE = 1, FIRST_PART, SECOND_PART, THERE };
enum { RECORD = 8, ROOM = 4096 };

struct scene {
  struct ct_unit_log *log;
  struct ct_branches *branches;
  uint8_t bytes[ROOM];
  size_t size;
};

static void
add_unit(struct ct_unit_log *log, uint64_t pc, uint16_t code_bytes, uint8_t part, uint8_t parts, bool is_passed)
{
  static const uint8_t code[64];
  struct ct_logged_unit unit = {.pc = pc,
                                .code = code,
                                .code_bytes = code_bytes,
                                .record_bytes = RECORD,
                                .insns = 1,
                                .part = part,
                                .parts = parts,
                                .is_passed = is_passed};
  assert_true(ct_unit_log_add(log, &unit));
}

/* A unit at 0x1000 of 30 bytes, which is left behind 10 where that branch is taken, behind 20 where it is not. */
static int
set_up(void **state)
{
  static struct scene scene;
  memset(&scene, 0, sizeof(scene));
  scene.log = ct_unit_log_create();
  scene.branches = ct_branches_create();
  assert_non_null(scene.log);
  assert_non_null(scene.branches);
  add_unit(scene.log, 0x1000, 30, 0, 3, false);
  add_unit(scene.log, 0x1000, 10, 1, 3, false);
  add_unit(scene.log, 0x1000, 20, 2, 3, true);
  add_unit(scene.log, 0x2000, 5, 0, 1, false);
  *state = &scene;
  return 0;
}

static int
tear_down(void **state)
{
  struct scene *scene = *state;
  ct_unit_log_free(scene->log);
  ct_branches_free(scene->branches);
  return 0;
}

static void
put(struct scene *scene, uint32_t id, uint32_t second)
{
  memcpy(scene->bytes + scene->size, &id, sizeof(id));
  memcpy(scene->bytes + scene->size + sizeof(id), &second, sizeof(second));
  scene->size += RECORD;
}

static void
learn(struct scene *scene)
{
  ct_branches_learn(scene->branches, scene->log, scene->bytes, scene->size);
  scene->size = 0;
}

static void
what_goes_elsewhere_is_taken(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 20; i++) {
    put(scene, FIRST_PART, 0);
    put(scene, THERE, 0);
  }
  learn(scene);
  assert_true(ct_branches_are_taken(scene->branches, 0x100a));
  assert_true(ct_branches_are_taken(scene->branches, 0x2005));
  assert_false(ct_branches_are_taken(scene->branches, 0x1014));
}

static void
what_a_record_goes_on_after_went_the_other_way(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 20; i++) {
    put(scene, WHOLE, 0);
  }
  learn(scene);
  assert_false(ct_branches_are_taken(scene->branches, 0x100a));
  assert_true(ct_branches_are_taken(scene->branches, 0x1014));
  assert_true(ct_branches_are_taken(scene->branches, 0x101e));
}

static void
a_few_or_about_half_are_not_enough(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 7; i++) {
    put(scene, FIRST_PART, 0);
  }
  learn(scene);
  assert_false(ct_branches_are_taken(scene->branches, 0x100a));
  for (int i = 0; i < 20; i++) {
    put(scene, FIRST_PART, 0);
    put(scene, WHOLE, 0);
  }
  learn(scene);
  assert_false(ct_branches_are_taken(scene->branches, 0x100a));
}

static void
where_hundreds_of_records_begin_is_hot(void **state)
{
  struct scene *scene = *state;
  for (int turn = 0; turn < 15; turn++) {
    for (int i = 0; i < 20; i++) {
      put(scene, THERE, 0);
    }
    learn(scene);
    assert_int_equal(ct_branches_are_hot(scene->branches, 0x2000), 20 * (turn + 1) >= 256);
  }
  assert_false(ct_branches_are_hot(scene->branches, 0x1000));
  assert_false(ct_branches_are_hot(NULL, 0x2000));
}

/* An event ends what is known of the record before it; damage ends the walk, as does the end within a record. */
static void
what_follows_an_event_or_is_none_says_nothing(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 20; i++) {
    put(scene, THERE, 0);
    put(scene, CT_STREAM_EVENT | CT_STREAM_GAP, RECORD);
  }
  learn(scene);
  assert_false(ct_branches_are_taken(scene->branches, 0x2005));
  put(scene, CT_STREAM_EVENT | CT_STREAM_GAP, 0);
  put(scene, THERE + 1, 0);
  learn(scene);
  put(scene, CT_STREAM_EVENT | CT_STREAM_GAP, UINT32_MAX);
  learn(scene);
  put(scene, CT_STREAM_PART, THERE);
  learn(scene);
  put(scene, THERE, 0);
  scene->size--;
  learn(scene);
  assert_false(ct_branches_are_taken(scene->branches, 0x2005));
}

/* More branches than there is room for: those that are known stay, and nothing goes round for ever. */
static void
there_is_room_for_so_many(void **state)
{
  struct scene *scene = *state;
  for (int i = 0; i < 20; i++) {
    put(scene, FIRST_PART, 0);
    put(scene, THERE, 0);
  }
  learn(scene);
  for (uint32_t i = 0; i < 20000; i++) {
    add_unit(scene->log, 0x100000 + 16ull * i, 5, 0, 1, false);
  }
  for (uint32_t i = 0; i < 20000; i++) {
    put(scene, THERE + 1 + i, 0);
    if (scene->size == ROOM) {
      learn(scene);
    }
  }
  learn(scene);
  assert_true(ct_branches_are_taken(scene->branches, 0x100a));
  assert_false(ct_branches_are_taken(scene->branches, 0x5555555));
}

/* A guess that a unit went on with came true, where the part that it was made for is not what was executed. */
static void
what_nearly_always_goes_to_one_place_is_guessed(void **state)
{
  struct scene *scene = *state;
  static const uint8_t code[10];
  struct ct_logged_unit part = {
      .pc = 0x3000, .code = code, .code_bytes = 10, .record_bytes = RECORD, .insns = 2, .parts = 2};
  assert_int_equal(ct_branches_target(NULL, 0x2005), 0);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(ct_branches_target(scene->branches, 0x2005), i < 8 ? 0 : 0x9000);
    ct_branches_note(scene->branches, 0x2005, 0x9000);
  }
  for (int i = 0; i < 6; i++) {
    ct_branches_note(scene->branches, 0x2005, 0x8000);
  }
  assert_int_equal(ct_branches_target(scene->branches, 0x2005), 0);
  for (int i = 0; i < 40; i++) {
    ct_branches_note(scene->branches, 0x2005, 0x8000);
  }
  assert_int_equal(ct_branches_target(scene->branches, 0x2005), 0x8000);
  uint32_t whole = ct_unit_log_next(scene->log);
  assert_true(ct_unit_log_add(scene->log, &part));
  part.part = part.insns = 1;
  part.code_bytes = 5;
  part.is_guessed = true;
  assert_true(ct_unit_log_add(scene->log, &part));
  for (int i = 0; i < 8; i++) {
    ct_branches_note(scene->branches, 0x3005, 0x7000);
    ct_branches_note(scene->branches, 0x3005, 0x6000);
  }
  assert_int_equal(ct_branches_target(scene->branches, 0x3005), 0);
  for (int i = 0; i < 100; i++) {
    put(scene, whole, 0);
  }
  learn(scene);
  assert_int_not_equal(ct_branches_target(scene->branches, 0x3005), 0);
}

static void
a_lot_decides_of_what_is_not_known(void **state)
{
  struct scene *scene = *state;
  uint32_t taken = 0;
  ct_branches_by_lot(scene->branches, 50);
  for (uint64_t i = 0; i < 1000; i++) {
    taken += ct_branches_are_taken(scene->branches, 0x7000 + 3 * i);
  }
  assert_in_range(taken, 400, 600);
}

int
main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(what_goes_elsewhere_is_taken),
      CASE(what_a_record_goes_on_after_went_the_other_way),
      CASE(a_few_or_about_half_are_not_enough),
      CASE(where_hundreds_of_records_begin_is_hot),
      CASE(what_follows_an_event_or_is_none_says_nothing),
      CASE(there_is_room_for_so_many),
      CASE(a_lot_decides_of_what_is_not_known),
      CASE(what_nearly_always_goes_to_one_place_is_guessed),
  };
  return cmocka_run_group_tests_name("itrace branches", tests, NULL, NULL);
}
