/* SPDX-License-Identifier: MIT */
/*
 * Which functions copy memory: memcpy and the like, by name. In glibc a name is that of a resolver (STT_GNU_IFUNC),
 * which gives one of several functions; these have no names in a stripped libc, but the resolver has their addresses in
 * it, each in a lea. All of them count: which one is taken depends on the processor.
 */
#include "plan/plan_internal.h"

#include "target/elf.h"
#include "x86/decode.h"

#define RESOLVER_BYTES_MAX 1024

static void
follow_resolver(struct planner *planner, const struct ct_function *resolver)
{
  size_t size = ct_elf_code_left(planner->plan->elf, resolver->address);
  size = size < resolver->size ? size : resolver->size;
  const uint8_t *code = ct_elf_bytes(planner->plan->elf, resolver->address, size);
  for (size_t at = 0; code != NULL && size <= RESOLVER_BYTES_MAX && at < size;) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, size - at, &in)) {
      return;
    }
    at += in.length;
    if (ct_insn_op(&in) == CT_OP_LEA && ct_insn_base(&in) == CT_BASE_RIP) {
      uint64_t address = resolver->address + at + (uint64_t)(int64_t)ct_insn_disp(&in);
      ptrdiff_t target = ct_planner_function(planner, address);
      if (target >= 0) {
        planner->facts[target] |= CT_FACT_COPIES;
      }
    }
  }
}

void
ct_find_copies(struct planner *planner)
{
  for (size_t i = 0; i < planner->count; i++) {
    const struct ct_function *function = &planner->functions[i];
    if ((planner->named[i] & CT_NAMED_COPIES) == 0) {
      continue;
    }
    if ((function->flags & CT_FN_IFUNC) != 0) {
      follow_resolver(planner, function);
    } else {
      planner->facts[i] |= CT_FACT_COPIES;
    }
  }
}
