/* SPDX-License-Identifier: MIT */
/* Call frame information of trampolines, for the agent's answers to an unwinder; see trampoline.c. */
#include "x86/trampoline_internal.h"

/* DWARF call frame instructions and expressions used below; DWARF 5, section 6.4.2 and 7.7. */
enum {
  DW_CFA_advance_loc2 = 0x03,
  DW_CFA_def_cfa = 0x0c,
  DW_CFA_expression = 0x10,
  DW_CFA_val_expression = 0x16,
  DW_CFA_offset = 0x80,
  DW_CFA_restore = 0xc0,
  DW_OP_breg7 = 0x77,
  REG_RSP = 7,
  REG_RA = 16,
};

static size_t
sleb128(int64_t value, uint8_t *out)
{
  size_t count = 0;
  for (;;) {
    uint8_t byte = value & 0x7f;
    value >>= 7;
    bool last = (value == 0 && (byte & 0x40) == 0) || (value == -1 && (byte & 0x40) != 0);
    out[count++] = last ? byte : byte | 0x80;
    if (last) {
      return count;
    }
  }
}

static void
emit_advance(struct ct_code *out, size_t delta)
{
  ct_emit_u8(out, DW_CFA_advance_loc2);
  ct_emit_u8(out, (uint8_t)delta);
  ct_emit_u8(out, (uint8_t)(delta >> 8));
}

static void
emit_ra_at_rsp(struct ct_code *out, int64_t offset)
{
  uint8_t expression[12];
  expression[0] = DW_OP_breg7;
  size_t length = 1 + sleb128(offset, expression + 1);
  ct_emit_u8(out, DW_CFA_expression);
  ct_emit_u8(out, REG_RA);
  ct_emit_u8(out, (uint8_t)length);
  ct_emit_bytes(out, expression, length);
}

static void
finish_entry(struct ct_code *out, size_t start)
{
  while (!out->overflow && (out->length - start) % 8 != 0) {
    ct_emit_u8(out, 0); /* DW_CFA_nop */
  }
  if (!out->overflow) {
    uint32_t length = (uint32_t)(out->length - start - 4);
    memcpy(out->bytes + start, &length, sizeof(length));
  }
}

static size_t
begin_fde(struct ct_code *out, size_t cie)
{
  size_t start = out->length;
  ct_emit_u32(out, 0);
  ct_emit_u32(out, (uint32_t)(start + 4 - cie));
  ct_emit_u64(out, 0);    /* start: the unwinder goes by bases->func */
  ct_emit_u64(out, 4096); /* length */
  ct_emit_u8(out, 0);
  return start;
}

/* The FDE of call-through trampolines with these offsets. */
static void
emit_full_fde(struct ct_code *out, size_t cie, const struct ct_trampoline_layout *layout, int64_t store_delta)
{
  size_t start = begin_fde(out, cie);
  emit_advance(out, layout->popped);
  /* CFA = rsp + 1: odd, so that it is no other frame's; the caller's rsp is ours. */
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 1, DW_CFA_val_expression, REG_RSP, 2, DW_OP_breg7, 0}, 8);
  emit_ra_at_rsp(out, store_delta - 8);
  emit_advance(out, layout->adjusted - layout->popped);
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 8, DW_CFA_restore | REG_RSP}, 4);
  emit_ra_at_rsp(out, store_delta);
  emit_advance(out, layout->restored - layout->adjusted);
  ct_emit_bytes(out, (uint8_t[]){DW_CFA_offset | REG_RA, 1}, 2);
  finish_entry(out, start);
}

size_t
ct_trampoline_unwind(int64_t store_delta, struct ct_detail_form detail, uint8_t *buffer, size_t size, uint64_t address,
                     struct ct_trampoline_rows *rows)
{
  struct ct_code out = {.bytes = buffer, .capacity = size, .address = address};
  struct ct_trampoline_layout layout;
  size_t full[CT_HOOK_VALUES_DETAIL + 1];
  size_t cie = out.length;
  ct_emit_u32(&out, 0);
  ct_emit_u32(&out, 0);
  ct_emit_bytes(&out, "\x01zR\0\x01\x78\x10\x01\x00",
                9); /* version 1, code align 1, data align -8, RA column 16, absptr */
  ct_emit_bytes(&out, (uint8_t[]){DW_CFA_def_cfa, REG_RSP, 8, DW_CFA_offset | REG_RA, 1}, 5);
  finish_entry(&out, cie);
  for (uint8_t values = CT_HOOK_VALUES_NONE; values <= CT_HOOK_VALUES_DETAIL; values++) {
    ct_trampoline_layout(values, detail, &layout);
    full[values] = out.length;
    emit_full_fde(&out, cie, &layout, store_delta);
  }
  size_t enter = begin_fde(&out, cie);
  finish_entry(&out, enter);
  ct_emit_u32(&out, 0);
  if (out.overflow) {
    return 0;
  }
  *rows = (struct ct_trampoline_rows){.full = address + full[CT_HOOK_VALUES_NONE],
                                      .values = address + full[CT_HOOK_VALUES_FEW],
                                      .detail = address + full[CT_HOOK_VALUES_DETAIL],
                                      .enter = address + enter};
  return out.length;
}
