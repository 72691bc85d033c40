/* SPDX-License-Identifier: MIT */
/* See line_put.h. */
#include "views/line_put.h"

#include <errno.h>

const char ct_two_digits[201] = "0001020304050607080910111213141516171819"
                                "2021222324252627282930313233343536373839"
                                "4041424344454647484950515253545556575859"
                                "6061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";

const uint64_t ct_powers_of_ten[20] = {
    0,
    10u,
    100u,
    1000u,
    10000u,
    100000u,
    1000000u,
    10000000u,
    100000000u,
    1000000000u,
    10000000000u,
    100000000000u,
    1000000000000u,
    10000000000000u,
    100000000000000u,
    1000000000000000u,
    10000000000000000u,
    100000000000000000u,
    1000000000000000000u,
    10000000000000000000u,
};

void
ct_lines_flush(struct ct_line_writer *w)
{
  if (!w->failed && (fwrite(w->buffer, 1, w->length, w->out) != w->length || fflush(w->out) != 0)) {
    w->failed = true;
    w->failed_errno = errno;
  }
  w->length = 0;
}

void
ct_lines_put_across(struct ct_line_writer *w, const char *text, size_t length)
{
  while (length != 0) {
    if (w->length == w->capacity) {
      ct_lines_flush(w);
    }
    size_t n = w->capacity - w->length < length ? w->capacity - w->length : length;
    memcpy(w->buffer + w->length, text, n);
    w->length += n;
    text += n;
    length -= n;
  }
}

void
ct_lines_put_blanks(struct ct_line_writer *w, size_t count)
{
  while (w->capacity - w->length < count) {
    count -= w->capacity - w->length;
    memset(w->buffer + w->length, ' ', w->capacity - w->length);
    w->length = w->capacity;
    ct_lines_flush(w);
  }
  memset(w->buffer + w->length, ' ', count);
  w->length += count;
}

void
ct_lines_put_padded(struct ct_line_writer *w, uint64_t value, size_t width, char pad)
{
  char digits[24], *end = digits + sizeof(digits), *begin = end - ct_lines_digit_count(value);
  ct_lines_digits(value, end);
  while ((size_t)(end - begin) < width && begin != digits) {
    *--begin = pad;
  }
  put(w, begin, (size_t)(end - begin));
}
