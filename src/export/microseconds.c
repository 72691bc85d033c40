/* SPDX-License-Identifier: MIT */
#include "export/microseconds.h"

#include "base/branch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* After the point, and the power of 10: 17 digits of a number tell it from all others. */
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
  double mantissa = frexp(value - (double)whole, &exponent); /* of what is after the point, without an error */
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

/* Where a call that was written before has put this begin; as it is where none has. */
static double
moved_begin(const struct ct_microseconds_moved *moved, uint64_t ns, double begin)
{
  uint32_t count = moved->count < CT_MICROSECONDS_MOVED ? moved->count : CT_MICROSECONDS_MOVED;
  for (uint32_t i = 0; i < count; i++) {
    begin = moved->ns[i] == ns && moved->begins[i] < begin ? moved->begins[i] : begin;
  }
  return begin;
}

bool
ct_microseconds_add_up(uint64_t begin_ns, uint64_t end_ns, bool is_later, struct ct_microseconds_moved *moved,
                       struct ct_microseconds *exact)
{
  double plain = (double)begin_ns / 1000, end = (double)end_ns / 1000, duration = (double)(end_ns - begin_ns) / 1000;
  double begin = CT_LIKELY(moved->count == 0) ? plain : moved_begin(moved, begin_ns, plain);
  if (CT_LIKELY(begin == plain && begin + duration == end)) {
    return true;
  }
  duration = end - begin;
  /* Where the sum lies between two numbers, and the even one is not the end, the begin moves by its last bits. */
  double toward = is_later && begin == plain ? end : 0;
  for (int i = 0; i < 8 && begin + duration != end; i++) {
    begin = nextafter(begin, toward);
    duration = end - begin;
  }
  exact->begin[0] = '\0';
  if (begin != plain) {
    put(exact->begin, begin);
  }
  if (begin < plain) {
    uint32_t at = moved->count++ % CT_MICROSECONDS_MOVED;
    moved->ns[at] = begin_ns;
    moved->begins[at] = begin;
  }
  put(exact->duration, duration);
  return false;
}
