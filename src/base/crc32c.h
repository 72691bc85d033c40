/* SPDX-License-Identifier: MIT */
/* CRC-32C (Castagnoli), as in iSCSI and ext4: the check value of "123456789" is 0xe3069283. */
#ifndef CT_BASE_CRC32C_H
#define CT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc is 0 for the first piece, and the last result for each further one. */
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t size);
/* The plain table, which the fast one is tested against. */
uint32_t ct_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
