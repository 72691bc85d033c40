/* SPDX-License-Identifier: MIT */
/* CRC-32C by the instruction, one stretch or three at a time, is that of the table; and the known value of "123456789".
 */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

enum { BYTES = 3 * 3 * 1024 + 100 };

static void
known_value(void **state)
{
  (void)state;
  assert_int_equal(ct_crc32c(0, "123456789", 9), 0xe3069283);
  assert_int_equal(ct_crc32c_table(0, "123456789", 9), 0xe3069283);
}

static void
all_lengths(void **state)
{
  (void)state;
  uint8_t *bytes = malloc(BYTES);
  assert_non_null(bytes);
  for (size_t i = 0; i < BYTES; i++) {
    bytes[i] = (uint8_t)(i * i * 7 + (i >> 5));
  }
  for (size_t size = 0; size < BYTES - 8; size += size % 3072 < 40 || size % 3072 > 3060 ? 1 : 97) {
    size_t at = size & 7;
    assert_int_equal(ct_crc32c((uint32_t)size * 77, bytes + at, size),
                     ct_crc32c_table((uint32_t)size * 77, bytes + at, size));
  }
  free(bytes);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_value), cmocka_unit_test(all_lengths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
