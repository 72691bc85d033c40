/* SPDX-License-Identifier: MIT */
/*
 * The data of the page (html.c): one stream of bytes, deflated (zlib's format) and written as base64, so that it is
 * text of a page whatever is in it. The stream is a row of pieces:
 *
 *   kind       varint   enum ct_html_piece
 *   bytes      varint   of what follows
 *   ...
 *
 * docs/exports.md has what each kind of piece is made of.
 */
#ifndef CT_EXPORT_HTML_STREAM_H
#define CT_EXPORT_HTML_STREAM_H

#include "export/out.h"

#include <zlib.h>

enum ct_html_piece { CT_HTML_SPANS = 1, CT_HTML_AWAY = 2, CT_HTML_VALUES = 3, CT_HTML_PATHS = 4, CT_HTML_LOST = 5 };

/* Bytes that grow. What does not fit in memory sets `failed`. */
struct ct_html_bytes {
  uint8_t *data;
  size_t bytes, capacity;
  bool failed;
};
void ct_html_bytes_put(struct ct_html_bytes *to, const void *data, size_t bytes);
void ct_html_bytes_grow(struct ct_html_bytes *to, size_t more);

static inline void
ct_html_put(struct ct_html_bytes *to, uint64_t value)
{
  if (CT_UNLIKELY(to->capacity - to->bytes < 10)) {
    ct_html_bytes_grow(to, 10);
    if (to->failed) {
      return;
    }
  }
  to->bytes = (size_t)(ct_varint_put(to->data + to->bytes, value) - to->data);
}

/* Small numbers of either sign are small: 0 -1 1 -2 ... are 0 1 2 3 ... */
static inline uint64_t
ct_html_zigzag(uint64_t difference)
{
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

struct ct_html_stream {
  struct ct_sink *out;
  z_stream deflate;
  bool is_open, failed;
  uint8_t rest[3]; /* bytes that make no whole group of base64 yet */
  unsigned rest_bytes;
  uint64_t raw_bytes, packed_bytes;
};
int ct_html_stream_open(struct ct_html_stream *stream, struct ct_sink *out); /* 0 or CT_ENOMEM */
/* A piece, of the parts one after the other; each part with its size before it if there are several. */
void ct_html_stream_piece(struct ct_html_stream *stream, enum ct_html_piece kind, const struct ct_html_bytes *parts,
                          unsigned count);
int ct_html_stream_close(struct ct_html_stream *stream); /* 0 or CT_ENOMEM; accepts a closed one */

#endif
