/* SPDX-License-Identifier: MIT */
/* The fast decoder: what it knows must be what Zydis says, and it must not read further than it may. */
#include "fuzz.h"

#include "x86/decode.h"
#include "x86/peek.h"

/* What op does not say has no meaning; see decode.h. */
static void
check_same(const struct ct_insn *a, const struct ct_insn *b)
{
  enum ct_op op = ct_insn_op(a);
  CHECK(a->length == b->length && op == ct_insn_op(b) && ct_insn_traits(a) == ct_insn_traits(b));
  CHECK((a->kind & CT_INSN_MEMORY) == (b->kind & CT_INSN_MEMORY) && ct_insn_base(a) == ct_insn_base(b));
  if ((a->kind & CT_INSN_MEMORY) != 0) {
    CHECK(ct_insn_disp(a) == ct_insn_disp(b));
  }
  switch (op) {
  case CT_OP_ADD_IMM:
  case CT_OP_SUB_IMM:
  case CT_OP_MOV_IMM:
    CHECK(ct_insn_rm(a) == ct_insn_rm(b) && ct_insn_value(a) == ct_insn_value(b));
    break;
  case CT_OP_WRITE_RM:
    CHECK(ct_insn_rm(a) == ct_insn_rm(b));
    break;
  case CT_OP_BRANCH:
  case CT_OP_JUMP:
  case CT_OP_CALL:
    CHECK(ct_insn_value(a) == ct_insn_value(b));
    break;
  case CT_OP_LEA:
    CHECK(ct_insn_reg(a) == ct_insn_reg(b));
    break;
  default:
    break;
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct input input = {data, data + size};
  size_t bytes;
  uint8_t *code = input_part(&input, 64, &bytes);
  for (size_t at = 0; at < bytes;) {
    struct ct_insn fast, full, either;
    struct ct_peek peek;
    bool is_code = ct_decode_full(code + at, bytes - at, &full);
    if (ct_decode_fast(code + at, bytes - at, &fast)) {
      CHECK(is_code);
      check_same(&fast, &full);
    }
    CHECK(ct_decode(code + at, is_code ? full.length : bytes - at, bytes - at, &either) == is_code);
    CHECK(ct_peek(code + at, bytes - at, &peek) == is_code);
    if (is_code) {
      CHECK(peek.length == full.length && either.length == full.length);
    }
    at += is_code ? full.length : 1;
  }
  free(code);
  return 0;
}
