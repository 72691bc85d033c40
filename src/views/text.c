/* SPDX-License-Identifier: MIT */
/* Text helpers of the views; see text.h. */
#include "views/text.h"

#include <stdlib.h>
#include <string.h>

size_t
ct_text_columns(const char *text)
{
  size_t columns = 0;
  for (; *text != '\0'; text++) {
    columns += ((unsigned char)*text & 0xC0) != 0x80;
  }
  return columns;
}

size_t
ct_text_bytes_of_columns(const char *text, size_t columns)
{
  size_t i = 0;
  for (; text[i] != '\0'; i++) {
    if (((unsigned char)text[i] & 0xC0) != 0x80 && columns-- == 0) {
      break;
    }
  }
  return i;
}

void
ct_text_put_name(FILE *out, const char *name, bool is_short, size_t columns)
{
  char *copy = is_short ? strdup(name) : NULL;
  if (copy != NULL) {
    ct_shorten_name(copy);
    name = copy;
  }
  bool is_cut = columns != 0 && ct_text_columns(name) > columns;
  size_t mark = is_cut && columns > 3 ? 3 : 0; /* what is not all there ends in dots */
  ct_put_printable(out, name, is_cut ? ct_text_bytes_of_columns(name, columns - mark) : SIZE_MAX);
  fprintf(out, "%.*s", (int)mark, "...");
  free(copy);
}
