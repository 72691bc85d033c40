/* SPDX-License-Identifier: MIT */
/*
 * What -pg counts calls with. mcount and __fentry__ save registers, read the return addresses of the function that
 * calls them and of its caller, and hand both to one function of glibc's, which has no name in a stripped libc. It is
 * what they call. By the time it is called the second address may be a trampoline's; its callout gives it the true one.
 */
#include "plan/plan_internal.h"

#include "target/elf.h"
#include "x86/decode.h"

#define BODY_BYTES_MAX 128

/* Its stack at the call: 56 or 64 bytes below the return address, which is what the callout counts on. */
static void
follow_call(struct planner *planner, const struct ct_function *function)
{
  size_t size = ct_elf_code_left(planner->plan->elf, function->address);
  size = size < function->size ? size : function->size;
  const uint8_t *code = ct_elf_bytes(planner->plan->elf, function->address, size);
  bool has_room = false;
  for (size_t at = 0; code != NULL && size <= BODY_BYTES_MAX && at < size;) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, size - at, &in)) {
      return;
    }
    at += in.length;
    if (ct_insn_op(&in) == CT_OP_SUB_IMM && (ct_insn_value(&in) == 56 || ct_insn_value(&in) == 64)) {
      has_room = true;
    } else if (ct_insn_op(&in) == CT_OP_CALL) {
      ptrdiff_t target = ct_planner_function(planner, function->address + at + (uint64_t)(int64_t)ct_insn_value(&in));
      if (target >= 0 && has_room) {
        planner->facts[target] |= CT_FACT_COUNTS;
      }
      return;
    }
  }
}

void
ct_find_counts(struct planner *planner)
{
  for (size_t i = 0; i < planner->count; i++) {
    if ((planner->named[i] & CT_NAMED_COUNTS) != 0) {
      follow_call(planner, &planner->functions[i]);
    }
  }
}
