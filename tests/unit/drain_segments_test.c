/* SPDX-License-Identifier: MIT */
/* The order in which the drain takes segments. */
#include "drain/drain_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int
by_seq(const void *a, const void *b)
{
  const struct candidate *x = a, *y = b;
  return x->seq != y->seq ? (x->seq < y->seq ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

static uint64_t
some(uint64_t *random, uint64_t below)
{
  *random ^= *random << 13;
  *random ^= *random >> 7;
  *random ^= *random << 17;
  return *random % below;
}

static void
are_in_the_order_of_their_activations(void **state)
{
  static struct candidate all[CT_SEGMENT_MAX], expected[CT_SEGMENT_MAX];
  uint64_t random = 4711;
  (void)state;
  for (unsigned round = 0; round < 2000; round++) {
    size_t count = round < 40 ? round : round == 40 ? CT_SEGMENT_MAX : some(&random, 300);
    uint64_t turn = some(&random, count + 1), exceptions = (uint64_t[]){1, 3, 50, 1000}[round % 4];
    for (size_t i = 0; i < count; i++) {
      uint64_t seq = round % 5 == 0 ? count - i : 1000000 + i - (i < turn ? 0 : count); /* falling, or taken in turn */
      all[i] = (struct candidate){some(&random, 1000) < exceptions ? some(&random, 2000) : seq, (uint32_t)i};
    }
    memcpy(expected, all, sizeof(all));
    qsort(expected, count, sizeof(*expected), by_seq);
    drain_sort_candidates(all, count);
    assert_memory_equal(all, expected, count * sizeof(*all));
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(are_in_the_order_of_their_activations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
