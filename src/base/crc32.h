/* SPDX-License-Identifier: MIT */
/* CRC-32 as in zlib, PNG and Ethernet: the check value of "123456789" is 0xcbf43926. */
#ifndef CT_BASE_CRC32_H
#define CT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* crc is 0 for the first piece, and the last result for each further one. */
uint32_t ct_crc32(uint32_t crc, const void *data, size_t size);
/* The same on processors that have no instruction for it; for tests. */
uint32_t ct_crc32_by_tables(uint32_t crc, const void *data, size_t size);

#endif
