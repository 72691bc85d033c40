/* SPDX-License-Identifier: MIT */
/*
 * The planner on ELF files: reader, scanner, relocator and all. The plan must be one that may be put into a process
 * (check_plan.h), and a trampoline must come out of each hook.
 */
#include "elf_mutate.h"

#include "../check_plan.h"
#include "x86/trampoline.h"

#include <sys/mman.h>
#include <unistd.h>

static void
check_hooked(const struct ct_plan *plan, const struct ct_planned *f)
{
  uint64_t patched = f->address + f->patch_offset;
  const uint8_t *code = ct_elf_bytes(plan->elf, patched, f->window.length);
  CHECK(f->tactic != CT_TACTIC_NONE && f->tactic < CT_TACTIC_COUNT && code != NULL);
  uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = (patched & ~0xfffull) + 0x100000};
  struct ct_hook_desc desc;
  struct ct_trampoline_spec spec = {.fn = 1,
                                    .mode = f->mode,
                                    .callout = f->callout,
                                    .store_delta = -(1ll << 45),
                                    .function = patched,
                                    .head = out.address,
                                    .desc = out.address,
                                    .code = code,
                                    .window = &f->window};
  enum ct_window_refusal refusal = ct_trampoline_emit(&spec, &out, &desc);
  CHECK(refusal == CT_WINDOW_OK || refusal == CT_WINDOW_UNREACHABLE);
}

static void
check_plan(const struct ct_plan *plan)
{
  size_t hooked = 0, refused = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    CHECK(i == 0 || plan->functions[i - 1].address < f->address);
    CHECK(f->refusal < CT_REFUSED_COUNT && ct_refusal_text(f->refusal) != NULL);
    if (f->refusal != CT_REFUSED_NOT) {
      continue;
    }
    hooked++;
    check_hooked(plan, f);
  }
  for (size_t i = 0; i < CT_REFUSED_COUNT; i++) {
    refused += plan->refused[i];
  }
  CHECK(plan->hooked == hooked && plan->hooked + refused == plan->count);
  for (size_t i = 0; i < plan->foreign_count; i++) {
    CHECK(plan->foreign[i].start < plan->foreign[i].end);
  }
  struct plan_check check;
  const char *wrong = plan_check(&check, plan);
  if (wrong[0] != 0) {
    fprintf(stderr, "%s\n", wrong);
  }
  CHECK(wrong[0] == 0);
  plan_check_free(&check);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static int file = -1;
  static char path[64];
  if (file < 0) {
    file = memfd_create("plan", 0);
    CHECK(file >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
  }
  CHECK(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
  struct ct_plan *plan;
  struct ct_diag diag = {""};
  if (ct_plan_create(path, &plan, &diag) == CT_OK) {
    check_plan(plan);
    ct_plan_free(plan);
  } else {
    CHECK(diag.text[0] != 0);
  }
  return 0;
}
