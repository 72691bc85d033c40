/* SPDX-License-Identifier: MIT */
/*
 * See runs.h. A time's difference below 2^14 is one byte or two. Eight of these as 16-bit lanes, with the bits where
 * LEB128 has them, are 16 bytes, out of which a shuffle takes the second bytes of those that are one:
 *
 *   differences     5      300      127      128          of four
 *   lanes           05 00  ac 02    7f 00    80 01
 *   bytes           05     ac 02    7f       80 01        by row 0b1010 of the table
 */
#include "trace/runs.h"

#include <tmmintrin.h>

#define LANES 8u

static inline uint8_t *
put_time(uint8_t *p, uint64_t delta)
{
  if (CT_UNLIKELY(delta >= 1u << 14)) {
    return ct_varint_put(p, delta);
  }
  uint32_t more = delta > 0x7f;
  uint16_t word = (uint16_t)((delta & 0x7f) | more << 7 | delta >> 7 << 8);
  memcpy(p, &word, sizeof(word));
  return p + 1 + more;
}

uint8_t *
ct_run_put_times_plain(uint8_t *p, const uint64_t *times, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    p = put_time(p, times[i + 1] - times[i]);
  }
  return p;
}

/* By which of four lanes have a second byte. */
#define NONE 0x80 /* a byte of 0, beyond what is kept */
static const uint8_t kept_bytes[16][8] = {
    {0, 2, 4, 6, NONE, NONE, NONE, NONE}, {0, 1, 2, 4, 6, NONE, NONE, NONE},
    {0, 2, 3, 4, 6, NONE, NONE, NONE},    {0, 1, 2, 3, 4, 6, NONE, NONE},
    {0, 2, 4, 5, 6, NONE, NONE, NONE},    {0, 1, 2, 4, 5, 6, NONE, NONE},
    {0, 2, 3, 4, 5, 6, NONE, NONE},       {0, 1, 2, 3, 4, 5, 6, NONE},
    {0, 2, 4, 6, 7, NONE, NONE, NONE},    {0, 1, 2, 4, 6, 7, NONE, NONE},
    {0, 2, 3, 4, 6, 7, NONE, NONE},       {0, 1, 2, 3, 4, 6, 7, NONE},
    {0, 2, 4, 5, 6, 7, NONE, NONE},       {0, 1, 2, 4, 5, 6, 7, NONE},
    {0, 2, 3, 4, 5, 6, 7, NONE},          {0, 1, 2, 3, 4, 5, 6, 7},
};
static const uint8_t kept_counts[16] = {4, 5, 5, 6, 5, 6, 6, 7, 5, 6, 6, 7, 6, 7, 7, 8};

__attribute__((target("ssse3"))) static inline __m128i
differences(const uint64_t *times)
{
  return _mm_sub_epi64(_mm_loadu_si128((const __m128i *)(times + 1)), _mm_loadu_si128((const __m128i *)times));
}

/* The lower halves of four words. */
__attribute__((target("ssse3"))) static inline __m128i
lower_halves(__m128i a, __m128i b)
{
  return _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), _MM_SHUFFLE(2, 0, 2, 0)));
}

/* The four lower lanes; a bit of `more` for each that has a second byte. */
__attribute__((target("ssse3"))) static inline uint8_t *
put_lanes(uint8_t *p, __m128i lanes, uint32_t more)
{
  __m128i row = _mm_loadl_epi64((const __m128i *)kept_bytes[more]);
  _mm_storel_epi64((__m128i *)p, _mm_shuffle_epi8(lanes, row));
  return p + kept_counts[more];
}

__attribute__((target("ssse3"))) static uint8_t *
put_times_shuffled(uint8_t *p, const uint64_t *times, size_t count)
{
  const __m128i too_large = _mm_set1_epi64x(~0x3fffll);
  const __m128i low = _mm_set1_epi16(0x7f), high = _mm_set1_epi16(0x3f80), goes_on = _mm_set1_epi16(0x80);
  size_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    __m128i a = differences(times + i), b = differences(times + i + 2);
    __m128i c = differences(times + i + 4), d = differences(times + i + 6);
    __m128i any = _mm_and_si128(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d)), too_large);
    if (CT_UNLIKELY(_mm_movemask_epi8(_mm_cmpeq_epi32(any, _mm_setzero_si128())) != 0xffff)) {
      p = ct_run_put_times_plain(p, times + i, LANES);
      continue;
    }
    __m128i word = _mm_packs_epi32(lower_halves(a, b), lower_halves(c, d));
    __m128i more = _mm_cmpgt_epi16(word, low);
    uint32_t bits = (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(more, more));
    __m128i lanes = _mm_or_si128(_mm_or_si128(_mm_and_si128(word, low), _mm_and_si128(more, goes_on)),
                                 _mm_slli_epi16(_mm_and_si128(word, high), 1));
    p = put_lanes(p, lanes, bits & 15);
    p = put_lanes(p, _mm_srli_si128(lanes, 8), bits >> 4 & 15);
  }
  return ct_run_put_times_plain(p, times + i, count - i);
}

uint8_t *
ct_run_put_times(uint8_t *p, const uint64_t *times, size_t count)
{
  return __builtin_cpu_supports("ssse3") ? put_times_shuffled(p, times, count)
                                         : ct_run_put_times_plain(p, times, count);
}

uint8_t *
ct_run_put_ids(uint8_t *p, const uint32_t *ids, size_t count)
{
  struct ct_columns columns = {.id = p};
  for (size_t i = 0; i < count; i++) {
    ct_columns_id(&columns, ids[i], 1);
  }
  return columns.id;
}
