/* SPDX-License-Identifier: MIT */
/* See leaf.h. */
#include "x86/leaf.h"

#include "x86/decode.h"

bool
ct_is_leaf(const uint8_t *code, size_t size)
{
  size_t at = 0;
  while (at < size) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, size - at, &in)) {
      return false;
    }
    at += in.length;
    switch (ct_insn_op(&in)) {
    case CT_OP_SYSCALL:
    case CT_OP_CALL:
    case CT_OP_CALL_INDIRECT:
    case CT_OP_JUMP_INDIRECT:
      return false;
    case CT_OP_BRANCH:
    case CT_OP_JUMP: {
      int64_t to = (int64_t)at + ct_insn_value(&in);
      if (to < 0 || to >= (int64_t)size) {
        return false;
      }
      break;
    }
    default:
      break;
    }
  }
  return size != 0;
}
