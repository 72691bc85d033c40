/* SPDX-License-Identifier: MIT */
/* Records as what differs from earlier ones: they come back as they were, and what is no such thing is refused. */
#include "trace/near.h"

#include "trace/format.h"

#include <contrail/trace.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = CT_DETAIL_BLOCK_BYTES, ROUNDS = 300, DAMAGED = 2000 };

static uint8_t records[BLOCK], back[BLOCK], packed[2 * BLOCK];

/* Of few functions, some of any length; so many of a hundred words are not as in the record before. */
static size_t
make_records(unsigned share, bool any_length)
{
  static uint64_t words[CT_DETAIL_RECORD_MAX / 8];
  size_t fill = 0;
  for (;;) {
    size_t count = 3 + (size_t)(any_length && rand() % 4 == 0 ? rand() % (int)(CT_DETAIL_RECORD_MAX / 8 - 2) : 27);
    struct ct_detail_entry entry = {
        .fn = (uint32_t)(rand() % 9), .record_bytes = (uint16_t)(count * 8), .kind = (uint8_t)(rand() % 2)};
    if (count * 8 > sizeof(records) - fill) {
      return fill;
    }
    for (size_t i = 0; i < count; i++) {
      if ((unsigned)rand() % 100 < share) {
        words[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
      }
    }
    entry.enter_tsc = words[0];
    entry.tsc = words[1];
    memcpy(records + fill, words, count * 8);
    memcpy(records + fill, &entry, sizeof(entry));
    fill += count * 8;
  }
}

static void
test_come_back(void **state)
{
  (void)state;
  for (unsigned round = 0; round < ROUNDS; round++) {
    size_t bytes = make_records(round % 101, round % 3 != 0), got = ct_near_pack(records, bytes, packed);
    assert_true(got + 8 <= ct_near_bound(bytes) && ct_near_bound(BLOCK) <= sizeof(packed));
    memset(back, 0xee, sizeof(back));
    assert_true(ct_near_unpack(packed, got, back, bytes));
    assert_memory_equal(back, records, bytes);
  }
  assert_int_equal(ct_near_pack(records, 0, packed), 0);
  assert_true(ct_near_unpack(packed, 0, back, 0));
}

static void
test_small(void **state)
{
  (void)state;
  size_t bytes = make_records(1, false);
  assert_true(ct_near_pack(records, bytes, packed) < bytes / 3);
}

static void
test_damaged(void **state)
{
  (void)state;
  size_t bytes = make_records(10, true), got = ct_near_pack(records, bytes, packed);
  uint8_t *own = malloc(got);
  assert_non_null(own);
  assert_false(ct_near_unpack(packed, got - 8, back, bytes));
  assert_false(ct_near_unpack(packed, got, back, bytes - 24));
  for (unsigned i = 0; i < DAMAGED; i++) {
    memcpy(own, packed, got);
    own[(size_t)rand() % got] ^= (uint8_t)(1 << rand() % 8);
    ct_near_unpack(own, got, back, bytes); /* whatever it says: under ASan it reads and writes nothing else */
  }
  free(own);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_come_back), cmocka_unit_test(test_small),
                                     cmocka_unit_test(test_damaged)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
