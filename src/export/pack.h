/* SPDX-License-Identifier: MIT */
/* The chunks of an export (out.h), compressed each by itself. */
#ifndef CT_EXPORT_PACK_H
#define CT_EXPORT_PACK_H

#include "export/out.h"

/* What a thread keeps from chunk to chunk. Zeroed: nothing yet. */
struct ct_packer {
  void *deflater;
};

struct ct_packed {
  uint8_t *data; /* room for ct_packed_most() */
  size_t bytes;
  uint32_t crc; /* gzip: of what was packed */
};

/* Of a chunk of CT_OUT_CHUNK_BYTES at most. */
size_t ct_packed_most(void);
/* 0 or errno. CT_OUT_PLAIN packs nothing. */
int ct_pack(struct ct_packer *packer, enum ct_out_packing packing, const uint8_t *raw, size_t bytes,
            struct ct_packed *packed);
void ct_packer_destroy(struct ct_packer *packer);

#endif
