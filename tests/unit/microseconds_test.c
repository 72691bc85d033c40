/* SPDX-License-Identifier: MIT */
/* Times of chrome traces: what a reader adds up is the end, and what it rounds are the nanoseconds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "export/microseconds.h"
#include "rounds.h"
#include "xorshift.h"

#define RANDOM rounds(50000, 300000)

static uint64_t seed = 88172645463325252u;

static uint64_t
random_below(uint64_t limit)
{
  return xorshift(&seed) % limit;
}

static double
plain(uint64_t ns)
{
  char text[40];
  snprintf(text, sizeof(text), "%llu.%03u", (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
  return strtod(text, NULL);
}

/* Whether it needed more digits. */
static bool
check(uint64_t begin, uint64_t end)
{
  struct ct_microseconds exact;
  struct ct_microseconds_moved moved = {.count = 0};
  if (ct_microseconds_add_up(begin, end, random_below(2) != 0, &moved, &exact)) {
    assert_true(plain(begin) + plain(end - begin) == plain(end));
    return false;
  }
  double from = exact.begin[0] != '\0' ? strtod(exact.begin, NULL) : plain(begin);
  double length = strtod(exact.duration, NULL);
  if (from + length != plain(end)) {
    fail_msg("%llu to %llu: %s and %s", (unsigned long long)begin, (unsigned long long)end, exact.begin,
             exact.duration);
  }
  assert_int_equal((uint64_t)llround(from * 1000), begin);
  assert_int_equal((uint64_t)llround(length * 1000), end - begin);
  return true;
}

static void
known_ones(void **state)
{
  (void)state;
  /* The sums of those that were written before: 1.3879999999999997, 101.25900000000001, 45013005.14500001 */
  assert_true(check(272, 1388));
  assert_true(check(19793, 101259));
  assert_true(check(9098489164, 45013005145));
  assert_false(check(0, 0));
  assert_false(check(1000, 2000));
  check(0, 1u << 30);
  check(1, 1ull << 50);
}

struct read_back {
  double begin, end;
};

static struct read_back
write_one(struct ct_microseconds_moved *moved, uint64_t begin, uint64_t end, bool is_later)
{
  struct ct_microseconds exact;
  if (ct_microseconds_add_up(begin, end, is_later, moved, &exact)) {
    return (struct read_back){plain(begin), plain(begin) + plain(end - begin)};
  }
  double from = exact.begin[0] != '\0' ? strtod(exact.begin, NULL) : plain(begin);
  return (struct read_back){from, from + strtod(exact.duration, NULL)};
}

/* Calls that begin together, the inner ones first: none begins before the one around it, and a call that ends where
 * they begin is not passed where the begin moves the other way. */
static void
together(void **state)
{
  (void)state;
  size_t moves = 0;
  for (uint64_t i = RANDOM; i > 0; i--) {
    struct ct_microseconds_moved moved = {.count = 0};
    uint64_t begin = 10000000 + random_below(300000000), end = begin + 1;
    struct read_back inner = {0, 0};
    for (int n = 0; n < 6; n++) {
      end += random_below(3) == 0 ? 0 : random_below(n < 3 ? 1000 : 40000000000);
      struct read_back one = write_one(&moved, begin, end, false);
      if (n > 0 && (one.begin > inner.begin || one.end < inner.end)) {
        fail_msg("%llu to %llu crosses what is in it", (unsigned long long)begin, (unsigned long long)end);
      }
      assert_true(one.end == plain(end));
      inner = one;
    }
    moves += moved.count != 0;
    struct ct_microseconds_moved none = {.count = 0};
    assert_true(write_one(&none, begin, end, true).begin >= plain(begin) && none.count == 0);
  }
  if (moves < RANDOM / 500) {
    fail_msg("only %zu moves", moves);
  }
}

static void
any(void **state)
{
  (void)state;
  size_t longer = 0;
  for (uint64_t i = RANDOM; i > 0; i--) {
    uint64_t most = 10000, length = 100;
    for (uint64_t n = random_below(10); n > 0; n--) {
      most *= 10;
    }
    for (uint64_t n = random_below(10); n > 0; n--) {
      length *= 10;
    }
    uint64_t end = random_below(most), of = random_below(length);
    longer += check(of < end ? end - of : 0, end);
  }
  assert_in_range(longer, RANDOM / 100, RANDOM / 2);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_ones),
      cmocka_unit_test(together),
      cmocka_unit_test(any),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
