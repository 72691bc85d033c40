/* SPDX-License-Identifier: MIT */
/*
 * Runs the instructions of an FDE and gives the row in force from each address on. Only the CFA and the rule of the
 * return address are kept; the rules of the other registers are read past.
 *
 * Every instruction takes at least one byte of the FDE, and the CIE's are run once, when the index is built: so a pass
 * is linear in the size of the FDE. An instruction that cannot be read, a restore without a remember, more than
 * REMEMBERED_MAX of them, or an address that goes backwards is damage: from there on the row is CT_CFA_UNKNOWN.
 */
#include <string.h>

#include "target/target_internal.h"

enum { /* DW_CFA_*: the first three carry an operand in the low six bits */
       CFA_ADVANCE_LOC = 0x40,
       CFA_OFFSET = 0x80,
       CFA_RESTORE = 0xc0,
       CFA_NOP = 0x00,
       CFA_SET_LOC = 0x01,
       CFA_ADVANCE_LOC1 = 0x02,
       CFA_ADVANCE_LOC2 = 0x03,
       CFA_ADVANCE_LOC4 = 0x04,
       CFA_OFFSET_EXTENDED = 0x05,
       CFA_RESTORE_EXTENDED = 0x06,
       CFA_UNDEFINED = 0x07,
       CFA_SAME_VALUE = 0x08,
       CFA_REGISTER = 0x09,
       CFA_REMEMBER_STATE = 0x0a,
       CFA_RESTORE_STATE = 0x0b,
       CFA_DEF_CFA = 0x0c,
       CFA_DEF_CFA_REGISTER = 0x0d,
       CFA_DEF_CFA_OFFSET = 0x0e,
       CFA_DEF_CFA_EXPRESSION = 0x0f,
       CFA_EXPRESSION = 0x10,
       CFA_OFFSET_EXTENDED_SF = 0x11,
       CFA_DEF_CFA_SF = 0x12,
       CFA_DEF_CFA_OFFSET_SF = 0x13,
       CFA_VAL_OFFSET = 0x14,
       CFA_VAL_OFFSET_SF = 0x15,
       CFA_VAL_EXPRESSION = 0x16,
       CFA_ADVANCE_LOC8 = 0x1d,    /* MIPS */
       CFA_WINDOW_SAVE = 0x2d,     /* GNU */
       CFA_ARGS_SIZE = 0x2e,       /* GNU */
       CFA_NEGATIVE_OFFSET = 0x2f, /* GNU */
};

enum { REMEMBERED_MAX = 64, REGISTER_MAX = 1023 };
enum { RSP = 7 };

enum step { STEP_END, STEP_ADVANCED, STEP_DAMAGED };

struct machine {
  const struct ct_cfi *cfi;
  const struct ct_cie *cie;
  const uint8_t *at;
  const uint8_t *end;
  uint64_t pc;
  struct ct_cfi_rule rule;
  bool names_odd; /* a register above REGISTER_MAX */
  unsigned remembered;
  struct ct_cfi_rule stack[REMEMBERED_MAX];
};

static const struct ct_cfi_rule unknown = {.cfa_reg = CT_CFA_UNKNOWN};

static bool
set_cfa_offset(struct machine *m, int64_t offset)
{
  m->rule.cfa_offset = (int32_t)offset;
  return offset == m->rule.cfa_offset;
}

static bool
set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
  m->rule.cfa_reg = reg < CT_CFA_UNKNOWN ? (uint8_t)reg : CT_CFA_EXPRESSION;
  return set_cfa_offset(m, offset);
}

/* A register got a rule; only the return address's matters. */
static void
set_rule(struct machine *m, uint64_t reg, bool at_cfa_minus_8)
{
  m->names_odd |= reg > REGISTER_MAX;
  if (reg == m->cie->ra_register) {
    m->rule.ra_at_cfa_minus_8 = at_cfa_minus_8;
  }
}

static bool
is_minus_8(const struct machine *m, int64_t factored)
{
  int64_t offset;
  return !__builtin_mul_overflow(factored, m->cie->data_align, &offset) && offset == -8;
}

static bool
skip_block(struct machine *m)
{
  uint64_t bytes;
  if (!ct_cfi_uleb(&m->at, m->end, &bytes) || bytes > (uint64_t)(m->end - m->at)) {
    return false;
  }
  m->at += bytes;
  return true;
}

/* Goes on by a fixed-size factored delta, or sets *advanced to false when that is zero. */
static bool
advance(struct machine *m, unsigned bytes, bool *advanced)
{
  uint64_t delta = 0;
  if ((size_t)(m->end - m->at) < bytes) {
    return false;
  }
  memcpy(&delta, m->at, bytes);
  m->at += bytes;
  if (__builtin_mul_overflow(delta, m->cie->code_align, &delta) || delta > UINT64_MAX - m->pc) {
    return false;
  }
  m->pc += delta;
  *advanced = delta != 0;
  return true;
}

/* Instructions with register operands; false when damaged or not one of these. */
static bool
run_register_instruction(struct machine *m, uint8_t op)
{
  uint64_t reg, value = 0;
  int64_t offset = 0;

  if (!ct_cfi_uleb(&m->at, m->end, &reg)) {
    return false;
  }
  switch (op) {
  case CFA_RESTORE_EXTENDED:
    set_rule(m, reg, m->cie->initial.ra_at_cfa_minus_8);
    return true;
  case CFA_UNDEFINED:
  case CFA_SAME_VALUE:
    set_rule(m, reg, false);
    return true;
  case CFA_OFFSET_EXTENDED:
    if (!ct_cfi_uleb(&m->at, m->end, &value) || value > INT64_MAX) {
      return false;
    }
    set_rule(m, reg, is_minus_8(m, (int64_t)value));
    return true;
  case CFA_OFFSET_EXTENDED_SF:
    if (!ct_cfi_sleb(&m->at, m->end, &offset)) {
      return false;
    }
    set_rule(m, reg, is_minus_8(m, offset));
    return true;
  case CFA_NEGATIVE_OFFSET: /* like CFA_OFFSET_EXTENDED with the sign turned */
    if (!ct_cfi_uleb(&m->at, m->end, &value) || value > INT64_MAX) {
      return false;
    }
    set_rule(m, reg, is_minus_8(m, -(int64_t)value));
    return true;
  case CFA_REGISTER:
  case CFA_VAL_OFFSET:
  case CFA_VAL_OFFSET_SF: /* both LEB forms end alike */
    set_rule(m, reg, false);
    return ct_cfi_uleb(&m->at, m->end, &value);
  case CFA_EXPRESSION:
  case CFA_VAL_EXPRESSION:
    set_rule(m, reg, false);
    return skip_block(m);
  default:
    return false;
  }
}

/* Instructions about the CFA; false when damaged or not one of these. */
static bool
run_cfa_instruction(struct machine *m, uint8_t op)
{
  uint64_t reg, value;
  int64_t offset, factored;

  switch (op) {
  case CFA_DEF_CFA:
    return ct_cfi_uleb(&m->at, m->end, &reg) && ct_cfi_uleb(&m->at, m->end, &value) && value <= INT32_MAX &&
           set_cfa(m, reg, (int64_t)value);
  case CFA_DEF_CFA_SF:
    return ct_cfi_uleb(&m->at, m->end, &reg) && ct_cfi_sleb(&m->at, m->end, &factored) &&
           !__builtin_mul_overflow(factored, m->cie->data_align, &offset) && set_cfa(m, reg, offset);
  case CFA_DEF_CFA_REGISTER:
    return ct_cfi_uleb(&m->at, m->end, &reg) && set_cfa(m, reg, m->rule.cfa_offset);
  case CFA_DEF_CFA_OFFSET:
    return ct_cfi_uleb(&m->at, m->end, &value) && value <= INT32_MAX && set_cfa_offset(m, (int64_t)value);
  case CFA_DEF_CFA_OFFSET_SF:
    return ct_cfi_sleb(&m->at, m->end, &factored) && !__builtin_mul_overflow(factored, m->cie->data_align, &offset) &&
           set_cfa_offset(m, offset);
  case CFA_DEF_CFA_EXPRESSION:
    m->rule.cfa_reg = CT_CFA_EXPRESSION;
    m->rule.cfa_offset = 0;
    return skip_block(m);
  default:
    return false;
  }
}

/* The instructions without a register operand, and those whose operand is in the opcode. */
static bool
run_instruction(struct machine *m, uint8_t op, bool *advanced)
{
  uint64_t value;

  switch (op & 0xc0) {
  case CFA_ADVANCE_LOC:
    if (__builtin_mul_overflow((uint64_t)(op & 0x3f), m->cie->code_align, &value) || value > UINT64_MAX - m->pc) {
      return false;
    }
    m->pc += value;
    *advanced = value != 0;
    return true;
  case CFA_OFFSET:
    if (!ct_cfi_uleb(&m->at, m->end, &value) || value > INT64_MAX) {
      return false;
    }
    set_rule(m, op & 0x3f, is_minus_8(m, (int64_t)value));
    return true;
  case CFA_RESTORE:
    set_rule(m, op & 0x3f, m->cie->initial.ra_at_cfa_minus_8);
    return true;
  }
  switch (op) {
  case CFA_NOP:
  case CFA_WINDOW_SAVE:
    return true;
  case CFA_ARGS_SIZE:
    return ct_cfi_uleb(&m->at, m->end, &value);
  case CFA_SET_LOC:
    if (!ct_cfi_pointer(m->cfi, &m->at, m->end, m->cie->fde_encoding, &value) || value < m->pc) {
      return false;
    }
    *advanced = value != m->pc;
    m->pc = value;
    return true;
  case CFA_ADVANCE_LOC1:
    return advance(m, 1, advanced);
  case CFA_ADVANCE_LOC2:
    return advance(m, 2, advanced);
  case CFA_ADVANCE_LOC4:
    return advance(m, 4, advanced);
  case CFA_ADVANCE_LOC8:
    return advance(m, 8, advanced);
  case CFA_REMEMBER_STATE:
    if (m->remembered == REMEMBERED_MAX) {
      return false;
    }
    m->stack[m->remembered++] = m->rule;
    return true;
  case CFA_RESTORE_STATE:
    if (m->remembered == 0) {
      return false;
    }
    m->rule = m->stack[--m->remembered];
    return true;
  default:
    return op >= CFA_DEF_CFA && (op <= CFA_DEF_CFA_EXPRESSION || op == CFA_DEF_CFA_SF || op == CFA_DEF_CFA_OFFSET_SF)
               ? run_cfa_instruction(m, op)
               : run_register_instruction(m, op);
  }
}

/* Runs up to the next address (then m->pc is it) or to the end. */
static enum step
run(struct machine *m)
{
  while (m->at < m->end) {
    bool advanced = false;
    uint8_t op = *m->at++;
    if (!run_instruction(m, op, &advanced)) {
      return STEP_DAMAGED;
    }
    if (advanced) {
      return STEP_ADVANCED;
    }
  }
  return STEP_END;
}

void
ct_cfi_run_initial(const struct ct_cfi *cfi, struct ct_cie *cie)
{
  struct machine m = {.cfi = cfi, .cie = cie, .at = cfi->bytes + cie->code};

  m.end = m.at + cie->code_bytes;
  m.rule = unknown;
  cie->initial = run(&m) == STEP_END ? m.rule : unknown;
}

bool
ct_cfi_runs(const struct ct_cfi *cfi, const struct ct_cie *cie, const uint8_t *code, size_t bytes)
{
  struct machine m = {.cfi = cfi, .cie = cie, .at = code, .end = code + bytes, .rule = cie->initial};
  enum step step = STEP_ADVANCED;
  while (step == STEP_ADVANCED) {
    step = run(&m);
  }
  return step == STEP_END && !m.names_odd;
}

static bool
start(struct machine *m, const struct ct_elf *elf, uint32_t index)
{
  const struct ct_cfi *cfi = &elf->cfi;
  if (index >= cfi->fde_count) {
    return false;
  }
  const struct ct_fde *fde = &cfi->fdes[index];
  m->cfi = cfi;
  m->cie = &cfi->cies[fde->cie];
  m->end = cfi->bytes + fde->body + fde->body_bytes;
  m->at = m->end - fde->code_bytes;
  m->pc = fde->start;
  m->rule = m->cie->initial;
  m->names_odd = false;
  m->remembered = 0;
  return true;
}

static struct ct_cfi_row
row_of(struct ct_cfi_rule rule, uint64_t pc)
{
  return (struct ct_cfi_row){pc, rule.cfa_offset, rule.cfa_reg, rule.ra_at_cfa_minus_8};
}

size_t
ct_cfi_rows(const struct ct_elf *elf, uint32_t fde, struct ct_cfi_row *rows, size_t max)
{
  struct machine m;
  size_t count = 0;
  enum step step = STEP_ADVANCED;

  if (!start(&m, elf, fde)) {
    return 0;
  }
  uint64_t end = elf->cfi.fdes[fde].end;
  while (step == STEP_ADVANCED && m.pc < end) {
    uint64_t pc = m.pc;
    step = run(&m);
    if (count < max) {
      rows[count] = row_of(step == STEP_DAMAGED ? unknown : m.rule, pc);
    }
    count++;
  }
  return count;
}

int
ct_cfi_row_at(const struct ct_elf *elf, uint32_t fde, uint64_t address, struct ct_cfi_row *row)
{
  struct machine m;

  if (!start(&m, elf, fde) || address < m.pc || address >= elf->cfi.fdes[fde].end) {
    return CT_ENOENT;
  }
  for (;;) {
    uint64_t pc = m.pc;
    enum step step = run(&m);
    if (step == STEP_ADVANCED && m.pc <= address) {
      continue;
    }
    *row = row_of(step == STEP_DAMAGED ? unknown : m.rule, pc);
    return CT_OK;
  }
}

static enum ct_entry_state
state_of(const struct ct_cfi *cfi, uint32_t fde, struct ct_cfi_rule rule)
{
  if (cfi->cies[cfi->fdes[fde].cie].signal_frame) {
    return CT_ENTRY_SIGNAL;
  }
  return rule.cfa_reg == RSP && rule.cfa_offset == 8 && rule.ra_at_cfa_minus_8 ? CT_ENTRY_CALLABLE : CT_ENTRY_ODD_CFI;
}

enum ct_entry_state
ct_cfi_entry_state(const struct ct_elf *elf, uint32_t fde, uint64_t address)
{
  struct ct_cfi_row row;

  if (ct_cfi_row_at(elf, fde, address, &row) != CT_OK) {
    return CT_ENTRY_NOCFI;
  }
  return state_of(&elf->cfi, fde, (struct ct_cfi_rule){row.cfa_offset, row.cfa_reg, row.ra_at_cfa_minus_8});
}

void
ct_cfi_enter_functions(const struct ct_elf *elf, struct ct_function *functions, size_t count)
{
  struct machine m;
  uint32_t fde = CT_FDE_NONE;
  enum step step = STEP_END;

  for (size_t i = 0; i < count; i++) {
    struct ct_function *f = &functions[i];
    if (f->fde == CT_FDE_NONE) {
      f->entry = CT_ENTRY_NOCFI;
      continue;
    }
    if (f->fde != fde) {
      fde = f->fde;
      step = start(&m, elf, fde) ? STEP_ADVANCED : STEP_DAMAGED;
    }
    while (step == STEP_ADVANCED && m.pc <= f->address) {
      step = run(&m);
    }
    f->entry = (uint8_t)state_of(&elf->cfi, fde, step == STEP_DAMAGED ? unknown : m.rule);
  }
}
