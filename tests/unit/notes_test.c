/* SPDX-License-Identifier: MIT */
/* The notes of a recording in the line that the commands show at its end. */
#include "record/session_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 40 };

static void
expect(const char *const *texts, size_t count, const char *line)
{
  char all[SIZE] = "";
  for (size_t i = 0; i < count; i++) {
    session_add_to_line(all, sizeof(all), texts[i]);
  }
  assert_string_equal(all, line);
}

static void
a_note_is_there_once(void **state)
{
  (void)state;
  expect((const char *[]){"no room", "no time", "no room", "no time"}, 4, "no room; no time");
  expect((const char *[]){"no room", "", "no time", ""}, 4, "no room; no time"); /* an empty one is none */
}

static void
a_part_of_a_note_is_another_one(void **state)
{
  (void)state;
  expect((const char *[]){"no room for it", "no room", "for it"}, 3, "no room for it; no room; for it");
  expect((const char *[]){"no room", "no room for it"}, 2, "no room; no room for it");
}

/* Those of a child. */
static void
the_same_and_then_some_replace_them(void **state)
{
  (void)state;
  expect((const char *[]){"no room", "no room; no time"}, 2, "no room; no time");
  expect((const char *[]){"no room; no time", "no time"}, 2, "no room; no time");
}

/* A child's recording may end before that of the first process. */
static void
a_child_has_the_same(void **state)
{
  (void)state;
  expect((const char *[]){"a child: no room", "no room"}, 2, "no room");
  expect((const char *[]){"no time", "a child: no room", "no room"}, 3, "no time; no room");
  expect((const char *[]){"a child: no way", "a child: old", "no way"}, 3, "no way; a child: old");
  expect((const char *[]){"a child: no; old", "no"}, 2, "a child: no; old; no"); /* both are the child's */
  expect((const char *[]){"a child: no room for it", "no room"}, 2, "a child: no room for it; no room");
}

static void
what_has_no_room_is_said(void **state)
{
  (void)state;
  expect((const char *[]){"0123456789012345678901234", "no room for this one", "nor this 0123456"}, 3,
         "0123456789012345678901234; ...");
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_note_is_there_once),
      cmocka_unit_test(a_part_of_a_note_is_another_one),
      cmocka_unit_test(the_same_and_then_some_replace_them),
      cmocka_unit_test(a_child_has_the_same),
      cmocka_unit_test(what_has_no_room_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
