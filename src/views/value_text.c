/* SPDX-License-Identifier: MIT */
/* See value_text.h. */
#include "views/value_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
ct_value_text_free(struct ct_value_text *text)
{
  free(text->data);
  *text = (struct ct_value_text){0};
}

void
ct_value_put(struct ct_value_text *out, const char *text, size_t bytes)
{
  if (out->size - out->length <= bytes) {
    size_t size = 2 * out->size + bytes + 64;
    char *data = realloc(out->data, size);
    if (data == NULL) {
      return;
    }
    out->data = data;
    out->size = size;
  }
  memcpy(out->data + out->length, text, bytes);
  out->length += bytes;
  out->data[out->length] = '\0';
}

void
ct_value_put_text(struct ct_value_text *out, const char *text)
{
  ct_value_put(out, text, strlen(text));
}

__attribute__((format(printf, 2, 3))) void
ct_value_put_format(struct ct_value_text *out, const char *format, ...)
{
  char text[128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  ct_value_put_text(out, text);
}

/* A byte of the program's, between quotation marks. */
void
ct_value_put_byte(struct ct_value_text *out, unsigned char c, char quote)
{
  static const char names[] = "\aa\bb\tt\nn\vv\ff\rr";
  const char *name = c != '\0' ? strchr(names, c) : NULL;
  if (name != NULL && (name - names) % 2 == 0) {
    ct_value_put_format(out, "\\%c", name[1]);
  } else if (c == (unsigned char)quote || c == '\\') {
    ct_value_put_format(out, "\\%c", c);
  } else if (c < 0x20 || c >= 0x7f) {
    ct_value_put_format(out, "\\x%02x", c);
  } else {
    ct_value_put(out, (const char *)&c, 1);
  }
}

/* A JSON string; text is UTF-8. */
void
ct_value_put_json_string(struct ct_value_text *out, const char *text)
{
  ct_value_put_text(out, "\"");
  for (; *text != '\0'; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      ct_value_put_format(out, "\\%c", c);
    } else if (c < 0x20 || c == 0x7f) {
      ct_value_put_format(out, "\\u%04x", c);
    } else {
      ct_value_put(out, text, 1);
    }
  }
  ct_value_put_text(out, "\"");
}
