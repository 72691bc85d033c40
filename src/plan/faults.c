/* SPDX-License-Identifier: MIT */
/*
 * Functions that may fault on purpose: what probes memory has a place to go on at after its last instruction, where
 * nothing of it goes, and whose address a handler of SIGSEGV has. The handler knows the fault by its address:
 *
 *   probe: mov (%rdi), %eax
 *          ret
 *   fixed: mov $-1, %eax        lea fixed(%rip), %rax somewhere else
 *          ret
 *
 * Where that instruction is among those that a jump would displace it would fault at another address.
 */
#include "plan/plan_internal.h"

#include "target/elf.h"
#include "x86/decode.h"
#include "x86/patch.h"

#define BYTES_MAX 512

/* Does it read or write memory that may not be there? */
static bool
may_fault(const struct ct_insn *in)
{
  if ((in->kind & CT_INSN_MEMORY) == 0 || ct_insn_op(in) == CT_OP_LEA || ct_insn_op(in) == CT_OP_NOP) {
    return false;
  }
  return ct_insn_base(in) != CT_BASE_RSP && ct_insn_base(in) != CT_BASE_RIP;
}

static bool
ends_line(const struct ct_insn *in)
{
  enum ct_op op = ct_insn_op(in);
  return op == CT_OP_JUMP || op == CT_OP_JUMP_INDIRECT || op == CT_OP_RET || op == CT_OP_RET_IMM;
}

bool
ct_faults_are_known(const struct planner *planner, size_t i)
{
  const struct ct_function *function = &planner->functions[i];
  uint64_t end = ct_code_end(planner, i);
  size_t size = ct_elf_code_left(planner->plan->elf, function->address);
  size = end - function->address < size ? end - function->address : size;
  if (size > BYTES_MAX || size < CT_JUMP_BYTES ||
      !ct_targets_has_any(&planner->scan.called, function->address + 1, end)) {
    return false;
  }
  const uint8_t *code = ct_elf_bytes(planner->plan->elf, function->address, size);
  bool faults = false, ended = false;
  for (size_t at = 0; code != NULL && at < size;) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, size - at, &in)) {
      return false;
    }
    if (ended && ct_targets_has(&planner->scan.called, function->address + at)) {
      return faults;
    }
    faults |= at < CT_ENDBR_BYTES + CT_JUMP_BYTES && may_fault(&in);
    ended = ends_line(&in);
    at += in.length;
  }
  return false;
}
