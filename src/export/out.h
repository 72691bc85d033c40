/* SPDX-License-Identifier: MIT */
/*
 * Where an export goes: a file or a descriptor, as it is or compressed. The writer puts bytes into a chunk; full chunks
 * are compressed by threads of their own, side by side, and written in their order:
 *
 *   writer --chunk--> pack (several) --in order--> write
 *
 * So memory is that of the chunks, whatever the size of the export. A chunk is compressed without the ones before it:
 * for gzip the pieces are one member all the same (each ends on a byte, the checksums are combined), for zstd they are
 * frames in a row, for perfetto each is a packet that has packets in it.
 *
 * A file gets its name when it is whole: what fails, or is killed, leaves nothing. Nothing is written over.
 * Failures are kept: puts after one do nothing, ct_out_failed and ct_out_close say so.
 */
#ifndef CT_EXPORT_OUT_H
#define CT_EXPORT_OUT_H

#include "base/branch.h"
#include "base/error.h"
#include "trace/format.h"
#include "views/line_put.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum ct_out_packing {
  CT_OUT_PLAIN,
  CT_OUT_GZIP,
  CT_OUT_ZSTD,
  CT_OUT_PACKETS, /* perfetto's compressed_packets */
};

/* What the name asks for; else what is given. path may be NULL. */
enum ct_out_packing ct_out_packing_of(const char *path, enum ct_out_packing packing);

enum { CT_OUT_CHUNK_BYTES = 768 << 10, CT_OUT_PIECE_MAX = 64 << 10 };

struct ct_sink_pool;
struct ct_sink {
  uint8_t *at, *end; /* in the chunk at hand */
  uint8_t *chunk;
  struct ct_sink_pool *pool;
};

/*
 * path NULL: to fd, which stays open. packing: if the name does not end in .gz or .zst, which is that. CT_EEXIST,
 * CT_EIO, CT_ENOSPC, CT_EACCES, CT_ENOMEM.
 */
int ct_out_open(struct ct_sink *out, const char *path, int fd, enum ct_out_packing packing, struct ct_diag *diag);
/*
 * Writes the rest, and gives the file its name unless `code` is an error, which is then returned. *bytes, unless NULL:
 * what was written. Frees out in any case.
 */
int ct_out_close(struct ct_sink *out, int code, uint64_t *bytes, struct ct_diag *diag);
bool ct_out_failed(const struct ct_sink *out);
/* A file without a name, in TMPDIR or /var/tmp. 0, CT_EIO, CT_ENOSPC, CT_EACCES. */
int ct_out_temporary(int *fd, struct ct_diag *diag);
/* All that is in the file, from its begin. 0 or CT_EIO. */
int ct_out_put_file(struct ct_sink *out, int fd);
/* Ships the chunk: what comes next begins a new one. */
void ct_out_ship(struct ct_sink *out);
void ct_out_put_across(struct ct_sink *out, const void *data, size_t bytes);

/* ---- texts from outside, escaped; they may be anything ---- */

/* In quotes, as JSON has it. */
void ct_out_json(struct ct_sink *out, const char *text);
/* In double quotes, if it needs any: RFC 4180. Malloc'd; NULL: out of memory. */
char *ct_csv_quoted(const char *text);
/* As text or attribute of XML; what XML cannot have at all becomes '?'. */
void ct_out_xml(struct ct_sink *out, const char *text);
/* Valid UTF-8 in one piece of a line: what is no UTF-8, or a control character, is replaced; c, unless 0, too. */
void ct_out_line(struct ct_sink *out, const char *text, char c, char instead);

/* ---- numbers and bytes ---- */

static inline __attribute__((always_inline)) void
ct_out_put(struct ct_sink *out, const void *data, size_t bytes)
{
  if (CT_UNLIKELY((size_t)(out->end - out->at) < bytes)) {
    ct_out_put_across(out, data, bytes);
    return;
  }
  memcpy(out->at, data, bytes);
  out->at += bytes;
}

#define ct_out_literal(out, text) ct_out_put((out), (text), sizeof(text) - 1)

static inline void
ct_out_text(struct ct_sink *out, const char *text)
{
  ct_out_put(out, text, strlen(text));
}

static inline void
ct_out_byte(struct ct_sink *out, uint8_t byte)
{
  ct_out_put(out, &byte, 1);
}

/* Room for so many bytes (CT_OUT_PIECE_MAX at most) in one chunk, at out->at. */
static inline void
ct_out_room(struct ct_sink *out, size_t bytes)
{
  if (CT_UNLIKELY((size_t)(out->end - out->at) < bytes)) {
    ct_out_ship(out);
  }
}

static inline void
ct_out_decimal(struct ct_sink *out, uint64_t value)
{
  unsigned count = value < 10 ? 1 : ct_lines_digit_count(value);
  ct_out_room(out, 20);
  out->at += count;
  ct_lines_digits(value, (char *)out->at);
}

/* Nanoseconds as microseconds: 1234567 is 1234.567. */
static inline void
ct_out_microseconds(struct ct_sink *out, uint64_t ns)
{
  uint32_t rest = (uint32_t)(ns % 1000);
  ct_out_decimal(out, ns / 1000);
  if (rest != 0) {
    char text[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    ct_out_put(out, text, sizeof(text));
  }
}

static inline void
ct_out_varint(struct ct_sink *out, uint64_t value)
{
  ct_out_room(out, 10);
  out->at = ct_varint_put(out->at, value);
}

#endif
