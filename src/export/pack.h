/* SPDX-License-Identifier: MIT */
/* The chunks of an export (out.h), compressed each by itself. */
#ifndef CT_EXPORT_PACK_H
#define CT_EXPORT_PACK_H

#include "export/out.h"

/* How hard CT_OUT_PACKETS is packed: 0 is the fastest. */
enum { CT_PACK_EFFORTS = 4 };

/* What a thread keeps from chunk to chunk. Zeroed: nothing yet. */
struct ct_packer {
  void *deflaters[CT_PACK_EFFORTS];
};

struct ct_packed {
  uint8_t *data; /* room for ct_packed_most() */
  size_t bytes;
  size_t packets;
  uint32_t crc; /* gzip: of what was packed */
};

/* Of a chunk of CT_OUT_CHUNK_BYTES at most. */
size_t ct_packed_most(void);
/* 0 or errno. CT_OUT_PLAIN packs nothing. effort: of CT_OUT_PACKETS only. */
int ct_pack(struct ct_packer *packer, enum ct_out_packing packing, unsigned effort, const uint8_t *raw, size_t bytes,
            struct ct_packed *packed);
/*
 * The effort for a chunk after one that was packed with this one. *spared: how many bytes the chunks so far came to
 * less than was the goal; at first 0.
 */
unsigned ct_pack_effort_after(unsigned effort, const struct ct_packed *packed, int64_t *spared);
void ct_packer_destroy(struct ct_packer *packer);

#endif
