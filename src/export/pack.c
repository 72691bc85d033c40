/* SPDX-License-Identifier: MIT */
/* See pack.h. */
#include "export/pack.h"

#include <errno.h>
#ifdef CT_WITH_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>
#include <zstd.h>

enum { GZIP_LEVEL = 5, ZSTD_LEVEL = 3, HEAD = 16, EXTRA = 1024 };
/*
 * A call is two packets, and the goal is two bytes a call. Most programs get there by the fastest level; one whose
 * paths are hardly ever alike (a compiler) takes level 6, at a third of the speed, or even 7. So what the chunks came
 * to decides.
 */
#ifdef CT_WITH_LIBDEFLATE
static const int packet_levels[CT_PACK_EFFORTS] = {1, 4, 6, 7};
#else
static const int packet_levels[CT_PACK_EFFORTS] = {3, 4, 6, 7};
#endif

size_t
ct_packed_most(void)
{
  size_t deflated = compressBound(CT_OUT_CHUNK_BYTES), zstd = ZSTD_compressBound(CT_OUT_CHUNK_BYTES);
#ifdef CT_WITH_LIBDEFLATE
  size_t fast = libdeflate_zlib_compress_bound(NULL, CT_OUT_CHUNK_BYTES);
  deflated = deflated > fast ? deflated : fast;
#endif
  return (deflated > zstd ? deflated : zstd) + EXTRA;
}

/* To whole bytes, so that pieces can follow each other; or with `is_whole` to the end of a stream. 0 or errno. */
static int
deflate_bytes(const uint8_t *raw, size_t raw_bytes, int level, int bits, bool is_whole, uint8_t *out, size_t room,
              size_t *bytes)
{
  z_stream stream = {.next_in = (Bytef *)raw, .avail_in = (uInt)raw_bytes, .next_out = out, .avail_out = (uInt)room};
  if (deflateInit2(&stream, level, Z_DEFLATED, bits, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    return ENOMEM;
  }
  int code = deflate(&stream, is_whole ? Z_FINISH : Z_SYNC_FLUSH);
  *bytes = room - stream.avail_out;
  deflateEnd(&stream);
  return code == (is_whole ? Z_STREAM_END : Z_OK) && stream.avail_in == 0 ? 0 : EIO;
}

/* A stream of zlib. libdeflate takes half the time of zlib, where it is there. */
static int
deflate_stream(struct ct_packer *packer, unsigned effort, const uint8_t *raw, size_t raw_bytes, uint8_t *out,
               size_t room, size_t *bytes)
{
#ifdef CT_WITH_LIBDEFLATE
  void **deflater = &packer->deflaters[effort];
  if (*deflater == NULL) {
    *deflater = libdeflate_alloc_compressor(packet_levels[effort]);
  }
  if (*deflater == NULL) {
    return ENOMEM;
  }
  *bytes = libdeflate_zlib_compress(*deflater, raw, raw_bytes, out, room);
  return *bytes != 0 ? 0 : EIO;
#else
  (void)packer;
  return deflate_bytes(raw, raw_bytes, packet_levels[effort], 15, true, out, room, bytes);
#endif
}

/*
 * What is far below the goal can do with less, but not while all before is above it. What is a little below stays, so
 * that something is spared for what is harder. The last effort, which is slow, is for a trace above the goal only.
 */
unsigned
ct_pack_effort_after(unsigned effort, const struct ct_packed *packed, int64_t *spared)
{
  size_t goal = packed->packets, packed_bytes = packed->bytes;
  *spared += (int64_t)goal - (int64_t)packed_bytes;
  unsigned most = *spared < 0 ? CT_PACK_EFFORTS - 1 : CT_PACK_EFFORTS - 2;
  if (packed_bytes > goal || effort > most) {
    return effort < most ? effort + 1 : most;
  }
  return packed_bytes < goal / 2 && effort != 0 && *spared >= 0 ? effort - 1 : effort;
}

/* How many are in a chunk, which has whole ones. */
static size_t
count_packets(const uint8_t *raw, size_t raw_bytes)
{
  size_t count = 0;
  for (size_t at = 0; at < raw_bytes; count++) {
    size_t bytes = 0;
    unsigned shift = 0;
    do {
      at++;
      bytes |= at < raw_bytes ? (size_t)(raw[at] & 0x7F) << shift : 0;
      shift += 7;
    } while (at < raw_bytes && raw[at] >= 0x80);
    at += bytes + 1;
  }
  return count;
}

/* The packet around it: packet = 1, and in it compressed_packets = 50; its sizes are known afterwards. */
static int
pack_packets(struct ct_packer *packer, unsigned effort, const uint8_t *raw, size_t raw_bytes, struct ct_packed *packed)
{
  enum { PACKET = 1 << 3 | 2, COMPRESSED = 50 << 3 | 2 };
  uint8_t head[HEAD], inner[HEAD], *at;
  size_t bytes = 0;
  int code = deflate_stream(packer, effort, raw, raw_bytes, packed->data + HEAD, ct_packed_most() - HEAD, &bytes);
  at = ct_varint_put(ct_varint_put(inner, COMPRESSED), bytes);
  size_t inner_bytes = (size_t)(at - inner);
  head[0] = PACKET;
  at = ct_varint_put(head + 1, bytes + inner_bytes);
  size_t head_bytes = (size_t)(at - head);
  memmove(packed->data + head_bytes + inner_bytes, packed->data + HEAD, bytes);
  memcpy(packed->data, head, head_bytes);
  memcpy(packed->data + head_bytes, inner, inner_bytes);
  packed->bytes = bytes + head_bytes + inner_bytes;
  packed->packets = count_packets(raw, raw_bytes);
  return code;
}

int
ct_pack(struct ct_packer *packer, enum ct_out_packing packing, unsigned effort, const uint8_t *raw, size_t bytes,
        struct ct_packed *packed)
{
  size_t zstd;
  packed->bytes = 0;
  switch (packing) {
  case CT_OUT_GZIP:
    packed->crc = (uint32_t)crc32(0, raw, (uInt)bytes);
    return deflate_bytes(raw, bytes, GZIP_LEVEL, -15, false, packed->data, ct_packed_most(), &packed->bytes);
  case CT_OUT_ZSTD:
    zstd = ZSTD_compress(packed->data, ct_packed_most(), raw, bytes, ZSTD_LEVEL);
    packed->bytes = ZSTD_isError(zstd) ? 0 : zstd;
    return ZSTD_isError(zstd) ? EIO : 0;
  case CT_OUT_PACKETS:
    return pack_packets(packer, effort, raw, bytes, packed);
  case CT_OUT_PLAIN:
    break;
  }
  return 0;
}

void
ct_packer_destroy(struct ct_packer *packer)
{
#ifdef CT_WITH_LIBDEFLATE
  for (int i = 0; i < CT_PACK_EFFORTS; i++) {
    libdeflate_free_compressor(packer->deflaters[i]);
  }
#endif
  *packer = (struct ct_packer){0};
}
