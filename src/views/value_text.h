/* SPDX-License-Identifier: MIT */
/* Text that values are put together in. */
#ifndef CT_VIEWS_VALUE_TEXT_H
#define CT_VIEWS_VALUE_TEXT_H

#include <stddef.h>

/* Text that grows. What does not fit in memory is left out. */
struct ct_value_text {
  char *data;
  size_t length, size;
};
void ct_value_text_free(struct ct_value_text *text);

void ct_value_put(struct ct_value_text *out, const char *text, size_t bytes);
void ct_value_put_text(struct ct_value_text *out, const char *text);
__attribute__((format(printf, 2, 3))) void ct_value_put_format(struct ct_value_text *out, const char *format, ...);
/* A byte of the program's, between quotation marks. */
void ct_value_put_byte(struct ct_value_text *out, unsigned char c, char quote);
/* A JSON string; text is UTF-8. */
void ct_value_put_json_string(struct ct_value_text *out, const char *text);

#endif
