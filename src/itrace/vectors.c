/* SPDX-License-Identifier: MIT */
/*
 * Source of the layout: Intel SDM, volume 1, chapter 13 (XSAVE's standard form, which ptrace gives): the low 16 bytes
 * of registers 0 to 15 in the old part, the others in components whose places CPUID leaf 13 says. A component whose
 * bit in the header is 0 is all zeros.
 */
#include "itrace/vectors.h"

#include "process/traced.h"

#include <cpuid.h>
#include <string.h>

enum { XMM_AT = 160, HEADER_AT = 512 };
enum component { SSE = 1, AVX = 2, MASKS = 5, UPPER256 = 6, UPPER16 = 7, COMPONENTS };

static uint32_t places[COMPONENTS];
static uint64_t enabled;

static void __attribute__((constructor)) find_places(void)
{
  unsigned a, b, c, d;
  if (__get_cpuid_count(13, 0, &a, &b, &c, &d)) {
    enabled = (uint64_t)d << 32 | a;
  }
  for (unsigned i = AVX; i < COMPONENTS; i++) {
    if ((enabled >> i & 1) != 0 && __get_cpuid_count(13, i, &a, &b, &c, &d)) {
      places[i] = b;
    }
  }
}

uint32_t
ct_vectors_parts(void)
{
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) {
    return 0;
  }
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return a;
}

bool
ct_vectors_read(pid_t tid, uint8_t state[CT_VECTORS_BYTES_MAX])
{
  memset(state, 0, CT_VECTORS_BYTES_MAX);
  return ct_traced_extended(tid, state, CT_VECTORS_BYTES_MAX) == 0;
}

static bool
is_there(const uint8_t *state, enum component component)
{
  uint64_t header;
  memcpy(&header, state + HEADER_AT, sizeof(header));
  return (header >> component & 1) != 0;
}

static void
part(const uint8_t *state, enum component component, uint32_t at, uint8_t *to, unsigned size)
{
  if (is_there(state, component) && at + size <= CT_VECTORS_BYTES_MAX) {
    memcpy(to, state + at, size);
  } else {
    memset(to, 0, size);
  }
}

void
ct_vectors_get(const uint8_t *state, bool is_mask, unsigned reg, uint8_t *to, unsigned size)
{
  uint8_t all[64];
  if (is_mask) {
    part(state, MASKS, places[MASKS] + 8 * reg, all, 8);
  } else if (reg >= 16) {
    part(state, UPPER16, places[UPPER16] + 64 * (reg - 16), all, 64);
  } else {
    part(state, SSE, XMM_AT + 16 * reg, all, 16);
    part(state, AVX, places[AVX] + 16 * reg, all + 16, 16);
    part(state, UPPER256, places[UPPER256] + 32 * reg, all + 32, 32);
  }
  memcpy(to, all, size);
}

uint32_t
ct_vectors_put(const uint8_t *state, struct ct_stream_context *context, uint8_t *to)
{
  bool has_512 = (enabled >> UPPER16 & 1) != 0, has_256 = (enabled >> AVX & 1) != 0;
  context->vectors = has_512 ? 32 : 16;
  context->vector_bytes = has_512 ? 64 : has_256 ? 32 : 16;
  context->masks = has_512 ? 8 : 0;
  for (unsigned i = 0; i < context->vectors; i++) {
    ct_vectors_get(state, false, i, to + i * context->vector_bytes, context->vector_bytes);
  }
  to += context->vectors * context->vector_bytes;
  for (unsigned i = 0; i < context->masks; i++) {
    ct_vectors_get(state, true, i, to + 8 * i, 8);
  }
  return (uint32_t)context->vectors * context->vector_bytes + 8u * context->masks;
}
