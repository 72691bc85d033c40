/* SPDX-License-Identifier: MIT */
/* What the fuzz targets share: an assertion that says where it failed, and a cursor over the input. */
#ifndef CT_TESTS_FUZZ_H
#define CT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                                    \
      abort();                                                                                                         \
    }                                                                                                                  \
  } while (0)

struct input {
  const uint8_t *at, *end;
};

static inline uint64_t
input_number(struct input *input, size_t bytes)
{
  uint64_t value = 0;
  size_t left = (size_t)(input->end - input->at);
  bytes = bytes < left ? bytes : left;
  memcpy(&value, input->at, bytes);
  input->at += bytes;
  return value;
}

/* A part of the input in memory of exactly its size, so that a sanitizer sees every byte too many. */
static inline uint8_t *
input_part(struct input *input, size_t bytes, size_t *taken)
{
  size_t left = (size_t)(input->end - input->at);
  *taken = bytes < left ? bytes : left;
  uint8_t *part = malloc(*taken == 0 ? 1 : *taken);
  CHECK(part != NULL);
  memcpy(part, input->at, *taken);
  input->at += *taken;
  return part;
}

#endif
