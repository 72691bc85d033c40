/* SPDX-License-Identifier: MIT */
/* Messages of Thrift's compact protocol, as Parquet has them before its pages and at its end; and bytes that grow. */
#ifndef CT_EXPORT_THRIFT_H
#define CT_EXPORT_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_export_bytes {
  uint8_t *data;
  size_t size, capacity;
};

/* Room for so many more at the end; NULL: out of memory. */
uint8_t *ct_export_bytes_room(struct ct_export_bytes *bytes, size_t more);
void ct_export_bytes_free(struct ct_export_bytes *bytes);

enum ct_thrift_type {
  CT_THRIFT_I32 = 5,
  CT_THRIFT_I64 = 6,
  CT_THRIFT_BINARY = 8,
  CT_THRIFT_LIST = 9,
  CT_THRIFT_STRUCT = 12
};

/* A message that is being made; failed: out of memory. */
struct ct_thrift {
  struct ct_export_bytes *to;
  int last; /* number of the last field */
  bool failed;
};

static inline uint64_t
ct_zigzag(int64_t value)
{
  return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

void ct_thrift_add(struct ct_thrift *w, const void *data, size_t bytes);
void ct_thrift_varint(struct ct_thrift *w, uint64_t value);
/* Numbers of fields go up, by at most 15. */
void ct_thrift_field(struct ct_thrift *w, int number, enum ct_thrift_type type);
void ct_thrift_number(struct ct_thrift *w, int number, enum ct_thrift_type type, int64_t value);
void ct_thrift_binary(struct ct_thrift *w, int number, const void *data, size_t bytes);
/* Its elements follow. */
void ct_thrift_list(struct ct_thrift *w, int number, enum ct_thrift_type type, uint32_t count);
/* A structure inside: its fields count from 0. What its begin returns its end gets: where the outer one goes on. */
int ct_thrift_begin(struct ct_thrift *w);
void ct_thrift_end(struct ct_thrift *w, int last);
/* The same of a field. */
int ct_thrift_begin_field(struct ct_thrift *w, int number);

#endif
