/* SPDX-License-Identifier: MIT */
#include "x86/patch.h"

#include "x86/emit.h"

const uint8_t ct_int3_byte = 0xcc;

int
ct_jump_bytes(uint64_t from, uint64_t to, uint8_t bytes[CT_JUMP_BYTES])
{
  uint8_t jump[CT_JUMP_BYTES];
  struct ct_code code = {.bytes = jump, .capacity = sizeof(jump), .address = from};
  ct_emit_jmp(&code, to);
  if (code.overflow) {
    return -1;
  }
  memcpy(bytes, jump, sizeof(jump));
  return 0;
}

int
ct_short_jump_bytes(uint64_t from, uint64_t to, uint8_t bytes[CT_SHORT_JUMP_BYTES])
{
  int64_t distance = (int64_t)(to - (from + CT_SHORT_JUMP_BYTES));
  if (distance != (int8_t)distance) {
    return -1;
  }
  struct ct_code code = {.bytes = bytes, .capacity = CT_SHORT_JUMP_BYTES, .address = from};
  ct_emit_jmp_over(&code, (int8_t)distance);
  return 0;
}

void
ct_stub_bytes(uint64_t to, uint8_t bytes[CT_STUB_BYTES])
{
  struct ct_code code = {.bytes = bytes, .capacity = CT_STUB_BYTES};
  ct_emit_jmp_load(&code, ct_mem_rip(CT_STUB_BYTES - sizeof(to)));
  ct_emit_u64(&code, to);
}

bool
ct_is_endbr(const uint8_t *code, size_t size)
{
  static const uint8_t endbr64[CT_ENDBR_BYTES] = {0xf3, 0x0f, 0x1e, 0xfa};
  return size >= sizeof(endbr64) && memcmp(code, endbr64, sizeof(endbr64)) == 0;
}
