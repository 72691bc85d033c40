/* SPDX-License-Identifier: MIT */
/*
 * The planner on ELF files: reader, scanner, relocator and all. What is hooked must be in the file's code, its patches
 * must not overlap, and a trampoline must come out of it.
 */
#include "elf_mutate.h"

#include "hook/plan.h"
#include "target/elf.h"
#include "x86/trampoline.h"

#include <sys/mman.h>
#include <unistd.h>

static void
check_hooked(const struct ct_plan *plan, const struct ct_planned *f, uint64_t *patched_to)
{
  uint64_t patched = f->address + f->patch_offset;
  size_t bytes = f->window.length > CT_JUMP_BYTES ? f->window.length : CT_JUMP_BYTES;
  const uint8_t *code = ct_elf_bytes(plan->elf, patched, bytes);
  CHECK(f->tactic != CT_TACTIC_NONE && code != NULL && ct_elf_is_code(plan->elf, patched));
  CHECK(patched >= *patched_to);
  *patched_to = patched + CT_JUMP_BYTES;
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
  uint64_t patched_to = 0;
  size_t hooked = 0, refused = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    CHECK(i == 0 || plan->functions[i - 1].address < f->address);
    CHECK(f->refusal < CT_REFUSED_COUNT && ct_refusal_text(f->refusal) != NULL);
    if (f->refusal != CT_REFUSED_NOT)
      continue;
    hooked++;
    check_hooked(plan, f, &patched_to);
  }
  for (size_t i = 0; i < CT_REFUSED_COUNT; i++)
    refused += plan->refused[i];
  CHECK(plan->hooked == hooked && plan->hooked + refused == plan->count);
  for (size_t i = 0; i < plan->foreign_count; i++)
    CHECK(plan->foreign[i].start < plan->foreign[i].end);
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
