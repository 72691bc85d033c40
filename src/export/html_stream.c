/* SPDX-License-Identifier: MIT */
/* See html_stream.h. */
#include "export/html_stream.h"

#include <stdlib.h>

enum { LEVEL = 6, OUT_BYTES = 3 << 12, FIRST_BYTES = 64 }; /* a program may have many stacks */

void
ct_html_bytes_grow(struct ct_html_bytes *to, size_t more)
{
  size_t capacity = to->capacity != 0 ? to->capacity : FIRST_BYTES;
  while (capacity - to->bytes < more) {
    capacity *= 2;
  }
  uint8_t *data = realloc(to->data, capacity);
  if (data == NULL) {
    to->failed = true;
    return;
  }
  to->data = data;
  to->capacity = capacity;
}

void
ct_html_bytes_put(struct ct_html_bytes *to, const void *data, size_t bytes)
{
  if (to->capacity - to->bytes < bytes) {
    ct_html_bytes_grow(to, bytes);
  }
  if (!to->failed && bytes != 0) {
    memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
  }
}

/* ---- base64 ---- */

static void
put_group(struct ct_sink *out, const uint8_t *bytes, unsigned count)
{
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t group = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
  char text[4] = {digits[group >> 18], digits[group >> 12 & 63], count > 1 ? digits[group >> 6 & 63] : '=',
                  count > 2 ? digits[group & 63] : '='};
  ct_out_put(out, text, sizeof(text));
}

static void
put_base64(struct ct_html_stream *stream, const uint8_t *data, size_t bytes)
{
  stream->packed_bytes += bytes;
  for (size_t i = 0; i < bytes; i++) {
    stream->rest[stream->rest_bytes++] = data[i];
    if (stream->rest_bytes == sizeof(stream->rest)) {
      put_group(stream->out, stream->rest, 3);
      stream->rest_bytes = 0;
    }
  }
}

/* ---- deflate ---- */

static void
pack(struct ct_html_stream *stream, const uint8_t *data, size_t bytes, int flush)
{
  uint8_t packed[OUT_BYTES];
  z_stream *deflater = &stream->deflate;
  deflater->next_in = (uint8_t *)data; /* it is only read */
  deflater->avail_in = (uInt)bytes;
  stream->raw_bytes += bytes;
  do {
    deflater->next_out = packed;
    deflater->avail_out = sizeof(packed);
    if (deflate(deflater, flush) == Z_STREAM_ERROR) {
      stream->failed = true;
      return;
    }
    put_base64(stream, packed, sizeof(packed) - deflater->avail_out);
  } while (deflater->avail_out == 0);
}

int
ct_html_stream_open(struct ct_html_stream *stream, struct ct_sink *out)
{
  *stream = (struct ct_html_stream){.out = out};
  stream->is_open = deflateInit(&stream->deflate, LEVEL) == Z_OK;
  return stream->is_open ? CT_OK : CT_ENOMEM;
}

static size_t
size_bytes(uint64_t value, uint8_t bytes[10])
{
  return (size_t)(ct_varint_put(bytes, value) - bytes);
}

void
ct_html_stream_piece(struct ct_html_stream *stream, enum ct_html_piece kind, const struct ct_html_bytes *parts,
                     unsigned count)
{
  uint8_t number[10];
  uint64_t bytes = 0;
  for (unsigned i = 0; i < count; i++) {
    stream->failed |= parts[i].failed;
    bytes += parts[i].bytes + (count > 1 ? size_bytes(parts[i].bytes, number) : 0);
  }
  pack(stream, number, size_bytes(kind, number), Z_NO_FLUSH);
  pack(stream, number, size_bytes(bytes, number), Z_NO_FLUSH);
  for (unsigned i = 0; i < count; i++) {
    if (count > 1) {
      pack(stream, number, size_bytes(parts[i].bytes, number), Z_NO_FLUSH);
    }
    if (parts[i].bytes != 0) {
      pack(stream, parts[i].data, parts[i].bytes, Z_NO_FLUSH);
    }
  }
}

int
ct_html_stream_close(struct ct_html_stream *stream)
{
  if (!stream->is_open) {
    return CT_OK;
  }
  pack(stream, NULL, 0, Z_FINISH);
  deflateEnd(&stream->deflate);
  stream->is_open = false;
  if (stream->rest_bytes != 0) {
    memset(stream->rest + stream->rest_bytes, 0, sizeof(stream->rest) - stream->rest_bytes);
    put_group(stream->out, stream->rest, stream->rest_bytes);
  }
  return stream->failed ? CT_ENOMEM : CT_OK;
}
