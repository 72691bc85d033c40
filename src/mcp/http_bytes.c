/* SPDX-License-Identifier: MIT */
/* Bytes that wait for a reader; see http.h. */
#include "mcp/http.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 1 << 20 };

bool
http_append(struct http_bytes *bytes, const char *text, size_t length)
{
  if (length == 0) {
    return true;
  }
  if (bytes->capacity - bytes->length < length && bytes->taken > bytes->length / 2) {
    bytes->length -= bytes->taken; /* a reader that never quite catches up */
    memmove(bytes->text, bytes->text + bytes->taken, bytes->length);
    bytes->taken = 0;
  }
  if (bytes->capacity - bytes->length < length) {
    size_t capacity = (bytes->length + length) * 2;
    char *grown = realloc(bytes->text, capacity);
    if (grown == NULL) {
      return false;
    }
    bytes->text = grown;
    bytes->capacity = capacity;
  }
  memcpy(bytes->text + bytes->length, text, length);
  bytes->length += length;
  return true;
}

void
http_empty(struct http_bytes *bytes)
{
  bytes->length = bytes->taken = 0;
  if (bytes->capacity > KEPT_BYTES) {
    free(bytes->text);
    bytes->text = NULL;
    bytes->capacity = 0;
  }
}
