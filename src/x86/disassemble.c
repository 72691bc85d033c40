/* SPDX-License-Identifier: MIT */
/* See disassemble.h. */
#include "x86/disassemble.h"

#include "x86/zydis.h"

#include <stdio.h>

bool
ct_disassemble(const uint8_t *code, size_t size, uint64_t pc, enum ct_syntax syntax, char *text, size_t bytes)
{
  static __thread ZydisFormatter formatters[2];
  static __thread bool is_ready[2];
  ZydisFormatter *formatter = &formatters[syntax];
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!is_ready[syntax]) {
    ZydisFormatterInit(formatter, syntax == CT_SYNTAX_ATT ? ZYDIS_FORMATTER_STYLE_ATT : ZYDIS_FORMATTER_STYLE_INTEL);
    ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
    ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED);
    ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
    ZydisFormatterSetProperty(formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
    is_ready[syntax] = true;
  }
  if (ct_zydis_decode(code, size, &in, operands) &&
      ZYAN_SUCCESS(ZydisFormatterFormatInstruction(formatter, &in, operands, in.operand_count_visible, text, bytes, pc,
                                                   ZYAN_NULL))) {
    return true;
  }
  snprintf(text, bytes, "(bad)");
  return false;
}
