/* SPDX-License-Identifier: MIT */
/* Eight bytes a step, by eight tables that the first caller makes. */
#include "base/crc32.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0xedb88320u /* of CRC-32, the lowest bit first */

static uint32_t tables[8][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void
make_tables(void)
{
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
    }
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++) {
    for (int table = 1; table < 8; table++) {
      uint32_t before = tables[table - 1][byte];
      tables[table][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
}

uint32_t
ct_crc32(uint32_t crc, const void *data, size_t size)
{
  const uint8_t *p = data;
  pthread_once(&made, make_tables);
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low, high;
    memcpy(&low, p, sizeof(low));
    memcpy(&high, p + 4, sizeof(high));
    low ^= crc;
    crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
          tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff] ^ tables[1][high >> 16 & 0xff] ^ tables[0][high >> 24];
  }
  for (; size > 0; size--, p++) {
    crc = crc >> 8 ^ tables[0][(crc ^ *p) & 0xff];
  }
  return ~crc;
}
