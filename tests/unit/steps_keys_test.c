/* SPDX-License-Identifier: MIT */
/* Sets of bytes of memory as the index of recorded instructions keeps them: they say what was added, of each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "steps/keys.h"
#include "xorshift.h"

enum { AREA = 6000, ROUNDS = 60 };

static uint64_t chance = 88172645463325252ull;

static uint64_t
random_number(uint64_t below)
{
  return xorshift(&chance) % below;
}

/* Packed in as many bytes as it has, so that what reads beyond them is found. */
static struct ct_keys_packed
pack(struct ct_keys *keys)
{
  struct ct_keys_packed packed;
  uint8_t *room = malloc(ct_keys_bound(keys) + 1);
  assert_true(ct_keys_pack(keys, room, &packed));
  assert_true(packed.bytes <= ct_keys_bound(keys));
  uint8_t *exact = malloc(packed.bytes + !packed.bytes);
  memcpy(exact, room, packed.bytes);
  free(room);
  packed.at = exact;
  return packed;
}

static void
add(struct ct_keys *keys, uint8_t *area, uint64_t base, uint64_t at, uint64_t bytes)
{
  assert_true(ct_keys_add_bytes(keys, base + at, bytes));
  memset(area + at, 1, bytes);
}

/* A byte that is never written, between bytes that are, is not said to be; nor is one of a word that is not. */
static void
test_bytes(void **state)
{
  static const uint64_t bases[] = {0, 5, 0x7ffd12345000, 0xffffffffff600000, UINT64_MAX - AREA + 1};
  struct ct_keys written = {.slots = NULL}, loaded = {.slots = NULL};
  (void)state;
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint8_t area[2][AREA] = {{0}}, open[AREA];
    uint64_t base = bases[round % 5];
    ct_keys_empty(&written);
    ct_keys_empty(&loaded);
    for (uint64_t i = random_number(1200); i > 0; i--) {
      add(&written, area[0], base, random_number(AREA - 64), 1 + random_number(round % 2 ? 8 : 64));
      add(&loaded, area[1], base, random_number(AREA - 8), 1 + random_number(8));
    }
    ct_keys_subtract(&loaded, &written);
    struct ct_keys_packed packed[2] = {pack(&written), pack(&loaded)};
    for (int i = 0; i < AREA; i++) {
      open[i] = (uint8_t)random_number(3);
      area[1][i] = area[1][i] && !area[0][i];
      assert_int_equal(ct_keys_touch(&packed[0], base + (uint64_t)i, 1, NULL, 0), area[0][i]);
      assert_int_equal(ct_keys_touch(&packed[1], base + (uint64_t)i, 1, NULL, 0), area[1][i]);
    }
    for (int i = 0; i < 500; i++) {
      uint64_t at = random_number(AREA - 1), bytes = 1 + random_number(i % 2 ? 20 : AREA - at);
      bytes = bytes < AREA - at ? bytes : AREA - at;
      bool any = false, any_open = false;
      for (uint64_t k = at; k < at + bytes; k++) {
        any |= area[0][k] != 0;
        any_open |= area[0][k] != 0 && open[k] == 2;
      }
      assert_int_equal(ct_keys_touch(&packed[0], base + at, bytes, NULL, 0), any);
      assert_int_equal(ct_keys_touch(&packed[0], base + at, bytes, open + at, 2), any_open);
    }
    free((void *)packed[0].at);
    free((void *)packed[1].at);
  }
  ct_keys_free(&written);
  ct_keys_free(&loaded);
}

static void
test_numbers(void **state)
{
  struct ct_keys keys = {.slots = NULL};
  (void)state;
  for (unsigned round = 0; round < 10; round++) {
    static const uint64_t bounds[] = {300, 100000, UINT32_MAX, UINT64_MAX};
    uint64_t bound = bounds[round % 4], some[400];
    ct_keys_empty(&keys);
    for (int i = 0; i < 400; i++) {
      some[i] = random_number(bound);
      assert_true(ct_keys_add(&keys, some[i], UINT8_MAX));
    }
    struct ct_keys_packed packed = pack(&keys);
    for (int i = 0; i < 400; i++) {
      bool has = false;
      for (int k = 0; k < 400; k++) {
        has |= some[k] == some[i] + 1;
      }
      assert_true(ct_keys_have(&packed, some[i]));
      assert_int_equal(ct_keys_have(&packed, some[i] + 1), has);
    }
    free((void *)packed.at);
  }
  ct_keys_free(&keys);
}

/* Of what is not packed so nothing is said, and nothing beyond its bytes is read (valgrind, ASan). */
static void
test_spoiled(void **state)
{
  struct ct_keys keys = {.slots = NULL};
  (void)state;
  for (int i = 0; i < 300; i++) {
    assert_true(ct_keys_add_bytes(&keys, random_number(100000), 1 + random_number(16)));
  }
  struct ct_keys_packed packed = pack(&keys), none = {packed.at, 0, 0};
  assert_false(ct_keys_have(&none, 5));
  assert_false(ct_keys_touch(&none, 0, UINT64_MAX, NULL, 0));
  for (int i = 0; i < 3000; i++) {
    struct ct_keys_packed spoiled = {.groups = (uint32_t)random_number(3) == 0 ? (uint32_t)random_number(UINT32_MAX)
                                                                               : packed.groups,
                                     .bytes = (uint32_t)random_number(packed.bytes + 1)};
    uint8_t *bytes = malloc(spoiled.bytes + !spoiled.bytes);
    memcpy(bytes, packed.at, spoiled.bytes);
    spoiled.at = bytes;
    for (uint64_t k = random_number(4); k > 0 && spoiled.bytes != 0; k--) {
      bytes[random_number(spoiled.bytes)] = (uint8_t)random_number(256);
    }
    uint64_t address = random_number(100000);
    ct_keys_have(&spoiled, address >> 3);
    ct_keys_touch(&spoiled, address, 1 + random_number(5000), NULL, 0);
    free(bytes);
  }
  free((void *)packed.at);
  ct_keys_free(&keys);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_spoiled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
