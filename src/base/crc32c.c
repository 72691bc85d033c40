/* SPDX-License-Identifier: MIT */
/* CRC-32C with the crc32 instruction where there is one, else with a table; see crc32c.h. */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

/* Remainders of the 16 values of half a byte, polynomial 0x82f63b78 (reflected). */
static const uint32_t half_byte[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t
ct_crc32c_table(uint32_t crc, const void *data, size_t size)
{
  const uint8_t *p = data;
  crc = ~crc;
  for (size_t i = 0; i < size; i++) {
    crc ^= p[i];
    crc = (crc >> 4) ^ half_byte[crc & 15];
    crc = (crc >> 4) ^ half_byte[crc & 15];
  }
  return ~crc;
}

#if defined(__x86_64__)
/*
 * An instruction gives its result three cycles after it began, and one can begin in each: three stretches that follow
 * one another are gone through at a time. Then the remainder of each is moved past those that come after it: times
 * x^(8n - 33) modulo the polynomial, reflected, of which the instruction does the modulo and the last 33.
 */
enum { LANE = 1024 };
#define PAST_ONE_LANE  0x170076fa
#define PAST_TWO_LANES 0xa51b6135

__attribute__((target("sse4.2,pclmul"))) static uint64_t
moved(uint64_t state, long long by)
{
  typedef long long two __attribute__((vector_size(16)));
  two product = __builtin_ia32_pclmulqdq128((two){(long long)state, 0}, (two){by, 0}, 0);
  return __builtin_ia32_crc32di(0, (uint64_t)product[0]);
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t
take_lanes(uint64_t state, const uint8_t *p)
{
  uint64_t second = 0, third = 0;
  for (size_t i = 0; i < LANE; i += 8) {
    uint64_t words[3];
    memcpy(&words[0], p + i, 8);
    memcpy(&words[1], p + LANE + i, 8);
    memcpy(&words[2], p + 2 * LANE + i, 8);
    state = __builtin_ia32_crc32di(state, words[0]);
    second = __builtin_ia32_crc32di(second, words[1]);
    third = __builtin_ia32_crc32di(third, words[2]);
  }
  return moved(state, PAST_TWO_LANES) ^ moved(second, PAST_ONE_LANE) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t
crc32c_sse42(uint32_t crc, const uint8_t *p, size_t size)
{
  uint64_t state = (uint32_t)~crc;
  for (bool lanes = size >= 3 * LANE && __builtin_cpu_supports("pclmul"); lanes; lanes = size >= 3 * LANE) {
    state = take_lanes(state, p);
    p += 3 * LANE;
    size -= 3 * LANE;
  }
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    state = __builtin_ia32_crc32di(state, word);
  }
  uint32_t tail = (uint32_t)state;
  for (; size > 0; size--) {
    tail = __builtin_ia32_crc32qi(tail, *p++);
  }
  return ~tail;
}
#endif

uint32_t
ct_crc32c(uint32_t crc, const void *data, size_t size)
{
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return crc32c_sse42(crc, data, size);
  }
#endif
  return ct_crc32c_table(crc, data, size);
}
