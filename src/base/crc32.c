/* SPDX-License-Identifier: MIT */
/*
 * Eight bytes a step, by eight tables that the first caller makes; where the processor multiplies polynomials, 64.
 *
 * The latter: all that was read so far has the same remainder as four words of 128 bits. To add 512 bits to them is to
 * multiply them by x^512 first, each of their halves by a power of x modulo the polynomial, so that less than 128 bits
 * come of it. At the end the 16 bytes that are left have the remainder of all, and the tables take them.
 *
 * The powers: bits are reflected, so the lower half has the higher powers. A factor of 32 bits lies in the lower part
 * of 64, where it stands for x^32 times as much, and a product of reflected words is a bit short, so factors are
 * shifted by one: for 512 bits x^(512 + 64 - 32) and x^(512 - 32), for 128 bits x^160 and x^96.
 */
#include "base/crc32.h"

#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xedb88320u /* of CRC-32, the lowest bit first */

static uint32_t tables[8][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void
make_tables(void)
{
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
    }
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++) {
    for (int table = 1; table < 8; table++) {
      uint32_t before = tables[table - 1][byte];
      tables[table][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
}

/* crc: as it is between two bytes, not inverted. */
static uint32_t
by_tables(uint32_t crc, const uint8_t *p, size_t size)
{
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low, high;
    memcpy(&low, p, sizeof(low));
    memcpy(&high, p + 4, sizeof(high));
    low ^= crc;
    crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
          tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff] ^ tables[1][high >> 16 & 0xff] ^ tables[0][high >> 24];
  }
  for (; size > 0; size--, p++) {
    crc = crc >> 8 ^ tables[0][(crc ^ *p) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)
enum { LANE = 16, LANES = 4, STEP = LANE * LANES };

__attribute__((target("pclmul"))) static inline __m128i
folded(__m128i word, __m128i powers, __m128i next)
{
  __m128i low = _mm_clmulepi64_si128(word, powers, 0x00), high = _mm_clmulepi64_si128(word, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static inline __m128i
load(const uint8_t *p, int lane)
{
  return _mm_loadu_si128((const __m128i *)(const void *)(p + lane * LANE));
}

/* size: STEP at least. */
__attribute__((target("pclmul"))) static uint32_t
by_products(uint32_t crc, const uint8_t *p, size_t size)
{
  const __m128i far = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), near = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i a = load(p, 0), b = load(p, 1), c = load(p, 2), d = load(p, 3);
  uint8_t rest[LANE];
  a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)crc));
  for (p += STEP, size -= STEP; size >= STEP; p += STEP, size -= STEP) {
    a = folded(a, far, load(p, 0));
    b = folded(b, far, load(p, 1));
    c = folded(c, far, load(p, 2));
    d = folded(d, far, load(p, 3));
  }
  a = folded(folded(folded(a, near, b), near, c), near, d);
  for (; size >= LANE; p += LANE, size -= LANE) {
    a = folded(a, near, load(p, 0));
  }
  _mm_storeu_si128((__m128i *)(void *)rest, a);
  return by_tables(by_tables(0, rest, sizeof(rest)), p, size);
}
#endif

uint32_t
ct_crc32_by_tables(uint32_t crc, const void *data, size_t size)
{
  pthread_once(&made, make_tables);
  return ~by_tables(~crc, data, size);
}

uint32_t
ct_crc32(uint32_t crc, const void *data, size_t size)
{
#if defined(__x86_64__)
  if (size >= STEP && __builtin_cpu_supports("pclmul")) {
    pthread_once(&made, make_tables);
    return ~by_products(~crc, data, size);
  }
#endif
  return ct_crc32_by_tables(crc, data, size);
}
