/* SPDX-License-Identifier: MIT */
#include "export/microseconds.h"

#include "base/branch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Behind the point, and the power of 10: 17 digits of a number tell it from all others. */
enum { DIGITS = 17, DIGITS_OF_SMALL = 19 };
#define POWER          100000000000000000u
#define POWER_OF_SMALL 10000000000000000000u

/* So many digits that it is read as the same number; not below 0, less than 2^63. */
static void
put(char text[CT_MICROSECONDS_BYTES], double value)
{
  uint64_t whole = (uint64_t)value;
  bool is_small = value < 0.1;
  uint64_t power = is_small ? POWER_OF_SMALL : POWER;
  int exponent;
  double mantissa = frexp(value - (double)whole, &exponent); /* of what is behind the point, without an error */
  unsigned __int128 scaled = (unsigned __int128)(uint64_t)ldexp(mantissa, 53) * power;
  int shift = 53 - exponent; /* 53 at least */
  uint64_t digits = shift < 120 ? (uint64_t)((scaled + ((unsigned __int128)1 << (shift - 1))) >> shift) : 0;
  if (digits >= power) {
    digits -= power;
    whole++;
  }
  int length = snprintf(text, CT_MICROSECONDS_BYTES, "%" PRIu64 ".%0*" PRIu64, whole,
                        is_small ? DIGITS_OF_SMALL : DIGITS, digits);
  while (text[length - 1] == '0' && text[length - 2] != '.') {
    text[--length] = '\0';
  }
}

bool
ct_microseconds_add_up(uint64_t begin_ns, uint64_t end_ns, struct ct_microseconds *exact)
{
  double begin = (double)begin_ns / 1000, end = (double)end_ns / 1000, duration = (double)(end_ns - begin_ns) / 1000;
  if (CT_LIKELY(begin + duration == end)) {
    return true;
  }
  duration = end - begin;
  exact->begin[0] = '\0';
  if (begin + duration != end) {
    /* The sum lies between two numbers, and the even one is not the end: the begin moves by its last bit. */
    for (int i = 0; i < 8 && begin + duration != end; i++) {
      begin = nextafter(begin, end);
      duration = end - begin;
    }
    put(exact->begin, begin);
  }
  put(exact->duration, duration);
  return false;
}
