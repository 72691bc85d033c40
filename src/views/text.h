/* SPDX-License-Identifier: MIT */
/* Small pieces of text that the views share, beyond <contrail/text.h>. */
#ifndef CT_VIEWS_TEXT_H
#define CT_VIEWS_TEXT_H

#include <contrail/text.h>

#include <stdbool.h>

/* Display columns of UTF-8 text, counting each character as one, and the bytes of its first `columns`. */
size_t ct_text_columns(const char *text);
size_t ct_text_bytes_of_columns(const char *text, size_t columns);

/* A function's name, shortened when it is to be, cut to so many columns (0: not) with dots for its end, without control
 * characters. */
void ct_text_put_name(FILE *out, const char *name, bool is_short, size_t columns);

#endif
