/* SPDX-License-Identifier: MIT */
/* See thrift.h. */
#include "export/thrift.h"

#include "trace/format.h"

#include <stdlib.h>
#include <string.h>

uint8_t *
ct_export_bytes_room(struct ct_export_bytes *bytes, size_t more)
{
  if (bytes->capacity - bytes->size < more) {
    size_t capacity = 2 * bytes->capacity + more + 256;
    uint8_t *data = realloc(bytes->data, capacity);
    if (data == NULL) {
      return NULL;
    }
    bytes->data = data;
    bytes->capacity = capacity;
  }
  return bytes->data + bytes->size;
}

void
ct_export_bytes_free(struct ct_export_bytes *bytes)
{
  free(bytes->data);
  *bytes = (struct ct_export_bytes){0};
}

void
ct_thrift_add(struct ct_thrift *w, const void *data, size_t bytes)
{
  uint8_t *at = ct_export_bytes_room(w->to, bytes);
  w->failed |= at == NULL;
  if (at != NULL && bytes != 0) {
    memcpy(at, data, bytes);
    w->to->size += bytes;
  }
}

void
ct_thrift_varint(struct ct_thrift *w, uint64_t value)
{
  uint8_t bytes[10];
  ct_thrift_add(w, bytes, (size_t)(ct_varint_put(bytes, value) - bytes));
}

void
ct_thrift_field(struct ct_thrift *w, int number, enum ct_thrift_type type)
{
  uint8_t head = (uint8_t)((number - w->last) << 4 | type);
  ct_thrift_add(w, &head, 1);
  w->last = number;
}

void
ct_thrift_number(struct ct_thrift *w, int number, enum ct_thrift_type type, int64_t value)
{
  ct_thrift_field(w, number, type);
  ct_thrift_varint(w, ct_zigzag(value));
}

void
ct_thrift_binary(struct ct_thrift *w, int number, const void *data, size_t bytes)
{
  ct_thrift_field(w, number, CT_THRIFT_BINARY);
  ct_thrift_varint(w, bytes);
  ct_thrift_add(w, data, bytes);
}

void
ct_thrift_list(struct ct_thrift *w, int number, enum ct_thrift_type type, uint32_t count)
{
  ct_thrift_field(w, number, CT_THRIFT_LIST);
  uint8_t head = (uint8_t)((count < 15 ? count : 15) << 4 | type);
  ct_thrift_add(w, &head, 1);
  if (count >= 15) {
    ct_thrift_varint(w, count);
  }
}

int
ct_thrift_begin(struct ct_thrift *w)
{
  int last = w->last;
  w->last = 0;
  return last;
}

void
ct_thrift_end(struct ct_thrift *w, int last)
{
  uint8_t stop = 0;
  ct_thrift_add(w, &stop, 1);
  w->last = last;
}

int
ct_thrift_begin_field(struct ct_thrift *w, int number)
{
  ct_thrift_field(w, number, CT_THRIFT_STRUCT);
  return ct_thrift_begin(w);
}
