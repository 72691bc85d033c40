/* SPDX-License-Identifier: MIT */
/*
 * Text, numbers and blanks into the buffer of a line writer (replay_lines.h), which is written out when it is full.
 * Inline: a line is some twenty of these.
 */
#ifndef CT_VIEWS_LINE_PUT_H
#define CT_VIEWS_LINE_PUT_H

#include "views/replay_lines.h"

#include "base/branch.h"

#include <string.h>

/* line_put.c: more than there is room for, in pieces. */
void ct_lines_put_across(struct ct_line_writer *writer, const char *text, size_t length);
/* Likewise; blanks. */
void ct_lines_put_blanks(struct ct_line_writer *writer, size_t count);
/* Right-aligned in `width` (at most 24) with `pad`, or as wide as it is. */
void ct_lines_put_padded(struct ct_line_writer *writer, uint64_t value, size_t width, char pad);

extern const char ct_two_digits[201];       /* "00" "01" ... "99" */
extern const uint64_t ct_powers_of_ten[20]; /* 0 (for no digit), 10, 100 ... */

static inline __attribute__((always_inline)) void
put(struct ct_line_writer *w, const char *text, size_t length)
{
  if (CT_UNLIKELY(w->capacity - w->length < length)) {
    ct_lines_put_across(w, text, length);
    return;
  }
  memcpy(w->buffer + w->length, text, length);
  w->length += length;
}

#define put_literal(w, text) put((w), (text), sizeof(text) - 1)

static inline void
put_text(struct ct_line_writer *w, const char *text)
{
  put(w, text, strlen(text));
}

/* How many digits it has. */
static inline unsigned
ct_lines_digit_count(uint64_t value)
{
  unsigned about = (64u - (unsigned)__builtin_clzll(value | 1)) * 1233u >> 12; /* of log10; or one more */
  return about + (value >= ct_powers_of_ten[about]);
}

/* The digits of a number, two at a time, so that they end at `end`. */
static inline void
ct_lines_digits(uint64_t value, char *end)
{
  while (value >= 100) {
    end -= 2;
    memcpy(end, &ct_two_digits[2 * (value % 100)], 2);
    value /= 100;
  }
  if (value >= 10) {
    memcpy(end - 2, &ct_two_digits[2 * value], 2);
  } else {
    end[-1] = (char)('0' + value);
  }
}

static inline void
put_decimal(struct ct_line_writer *w, uint64_t value)
{
  unsigned count = value < 10 ? 1 : ct_lines_digit_count(value);
  if (CT_UNLIKELY(w->capacity - w->length < count)) {
    ct_lines_put_padded(w, value, 0, ' ');
    return;
  }
  w->length += count;
  ct_lines_digits(value, w->buffer + w->length);
}

static inline void
put_hex(struct ct_line_writer *w, uint64_t value)
{
  char digits[18], *end = digits + sizeof(digits), *at = end;
  do {
    *--at = "0123456789abcdef"[value & 15];
    value >>= 4;
  } while (value != 0);
  *--at = 'x';
  *--at = '0';
  put(w, at, (size_t)(end - at));
}

#define put_number(w, value, width, pad) ct_lines_put_padded((w), (value), (width), (pad))
#define put_spaces(w, count)             ct_lines_put_blanks((w), (count))

#endif
