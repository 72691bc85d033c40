/* SPDX-License-Identifier: MIT */
#include "x86/known.h"

#include "x86/decode.h"

#include <string.h>

#define LONGJMP_BYTES_MAX      512
#define CHECK_INSTRUCTIONS_MAX 6

bool
ct_is_plt_jump(const uint8_t *code)
{
  return code[0] == 0xff && code[1] == 0x25;
}

bool
ct_is_glibc_longjmp(const uint8_t *code, size_t size)
{
  static const uint8_t begin[] = {0x4c, 0x8b, 0x47, 0x30, 0x4c, 0x8b, 0x4f, 0x08, 0x48, 0x8b, 0x57, 0x38, 0x49,
                                  0xc1, 0xc8, 0x11, 0x64, 0x4c, 0x33, 0x04, 0x25, 0x30, 0,    0,    0};
  return size >= sizeof(begin) && size <= LONGJMP_BYTES_MAX && memcmp(code, begin, sizeof(begin)) == 0;
}

bool
ct_is_musl_longjmp(const uint8_t *code, size_t size)
{
  static const uint8_t load[] = {0x48, 0x8b, 0x67, 0x30}; /* mov 0x30(%rdi), %rsp */
  return size <= LONGJMP_BYTES_MAX && memmem(code, size, load, sizeof(load)) != NULL;
}

uint64_t
ct_errno_slot(const uint8_t *code, size_t size, uint64_t address)
{
  static const uint8_t mark[] = {0xf3, 0x0f, 0x1e, 0xfa};                         /* endbr64 */
  static const uint8_t add[] = {0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0, 0xc3};  /* add %fs:0, %rax; ret */
  static const uint8_t move[] = {0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48}; /* mov %fs:0, %rax; rex.w ... */
  int32_t distance;
  size_t at = size > sizeof(mark) && memcmp(code, mark, sizeof(mark)) == 0 ? sizeof(mark) : 0;
  if (size - at < 17) {
    return 0;
  }
  const uint8_t *begin = code + at;
  if (begin[0] == 0x48 && begin[1] == 0x8b && begin[2] == 0x05 && memcmp(begin + 7, add, sizeof(add)) == 0) {
    memcpy(&distance, begin + 3, sizeof(distance)); /* mov slot(%rip), %rax */
    return address + at + 7 + (uint64_t)(int64_t)distance;
  }
  if (memcmp(begin, move, sizeof(move)) == 0 && begin[10] == 0x03 && begin[11] == 0x05 && begin[16] == 0xc3) {
    memcpy(&distance, begin + 12, sizeof(distance)); /* add slot(%rip), %rax */
    return address + at + 16 + (uint64_t)(int64_t)distance;
  }
  return 0;
}

/* cmp 16(%reg), %reg, or 24 for the runtime's own: against the limit of the stack. */
static bool
is_stack_check(const uint8_t *code, size_t length)
{
  return length == 4 && (code[0] & 0xf8) == 0x48 && code[1] == 0x3b && code[2] >> 6 == 1 && (code[2] & 7) != 4 &&
         (code[3] == 16 || code[3] == 24);
}

size_t
ct_stack_check_bytes(const uint8_t *code, size_t size)
{
  size_t at = 0;
  bool checked = false;
  for (int i = 0; i < CHECK_INSTRUCTIONS_MAX; i++) {
    struct ct_insn in;
    if (at >= size || !ct_decode(code + at, size - at, size - at, &in)) {
      return 0;
    }
    bool below = (in.length == 2 && code[at] == 0x76) || (in.length == 6 && code[at] == 0x0f && code[at + 1] == 0x86);
    if (checked) {
      return below ? at + in.length : 0;
    }
    bool underflow =
        (in.length == 2 && code[at] == 0x72) || (in.length == 6 && code[at] == 0x0f && code[at + 1] == 0x82);
    if (ct_insn_op(&in) >= CT_OP_SYSCALL && !underflow) {
      return 0;
    }
    checked = is_stack_check(code + at, in.length);
    at += in.length;
  }
  return 0;
}

bool
ct_has_wrgsbase(const uint8_t *code, size_t length, size_t from, size_t to)
{
  static const uint8_t opcode[] = {0x0f, 0xae};
  const uint8_t *end = code + (to + 1 < length ? to + 1 : length), *at = code + from, *found;
  while (at < end && (found = memmem(at, (size_t)(end - at), opcode, sizeof(opcode))) != NULL) {
    size_t offset = (size_t)(found - code);
    at = found + 1;
    if (offset + 2 < length && (found[2] & 0xf8) == 0xd8 &&
        ((offset >= 1 && found[-1] == 0xf3) || (offset >= 2 && (found[-1] & 0xf0) == 0x40 && found[-2] == 0xf3))) {
      return true;
    }
  }
  return false;
}
