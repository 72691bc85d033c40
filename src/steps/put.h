/* SPDX-License-Identifier: MIT */
/* Writes a line's parts into memory that has room for them, which is the caller's affair; each gives where it ends. */
#ifndef CT_STEPS_PUT_H
#define CT_STEPS_PUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CT_PUT_HEX_BYTES = 18, CT_PUT_NUMBER_BYTES = 20 };

static inline char *
ct_put_bytes(char *at, const char *bytes, size_t size)
{
  memcpy(at, bytes, size);
  return at + size;
}

static inline char *
ct_put_text(char *at, const char *text)
{
  return ct_put_bytes(at, text, strlen(text));
}

/* 0x and without leading zeros. */
static inline char *
ct_put_hex(char *at, uint64_t value)
{
  static const char digits[] = "0123456789abcdef";
  unsigned count = value == 0 ? 1 : (67u - (unsigned)__builtin_clzll(value)) / 4;
  *at++ = '0';
  *at++ = 'x';
  for (unsigned i = count; i > 0; i--) {
    at[i - 1] = digits[value & 15];
    value >>= 4;
  }
  return at + count;
}

/* At least so many columns wide. */
static inline char *
ct_put_number(char *at, uint64_t value, unsigned columns)
{
  char digits[CT_PUT_NUMBER_BYTES];
  unsigned count = 0;
  do {
    digits[count++] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  for (; columns > count; columns--) {
    *at++ = ' ';
  }
  while (count > 0) {
    *at++ = digits[--count];
  }
  return at;
}

#endif
