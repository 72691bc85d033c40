/* SPDX-License-Identifier: MIT */
/* Plans of small modules written in assembly, for the tests of the planner. */
#ifndef CT_TESTS_PLAN_SOURCE_H
#define CT_TESTS_PLAN_SOURCE_H

#include <stdbool.h>

#include "../check_plan.h"
#include "folder.h"

/* `fn` begins a function, between int3s; `cfi` and `end` frame it. */
#define MACROS                                                                                                         \
  ".macro fn name\n .balign 16, 0xcc\n .type \\name, @function\n \\name:\n .cfi_startproc\n .endm\n"                   \
  ".macro bare name\n .type \\name, @function\n \\name:\n .endm\n"                                                     \
  ".macro end name\n .cfi_endproc\n .size \\name, .-\\name\n .endm\n"                                                  \
  ".macro bare_end name\n .size \\name, .-\\name\n .endm\n"                                                            \
  ".section .note.GNU-stack, \"\", @progbits\n"                                                                        \
  ".text\n"

static inline struct ct_plan *
plan_file(const char *name)
{
  char path[128];
  struct ct_plan *plan = NULL;
  struct ct_diag diag = {{0}};
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (ct_plan_create(path, &plan, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  size_t hooked = 0, refused = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    assert_true(i == 0 || plan->functions[i - 1].address < f->address);
    hooked += f->refusal == CT_REFUSED_NOT;
    assert_int_equal(f->refusal == CT_REFUSED_NOT, f->tactic != CT_TACTIC_NONE);
  }
  for (size_t r = 0; r < CT_REFUSED_COUNT; r++) {
    refused += plan->refused[r];
  }
  assert_int_equal(plan->hooked, hooked);
  assert_int_equal(hooked + refused, plan->count);
  struct plan_check check;
  const char *wrong = plan_check(&check, plan);
  if (wrong[0] != 0) {
    fail_msg("%s", wrong);
  }
  plan_check_free(&check);
  return plan;
}

/* Assembles MACROS and source and plans the result, linked with flags. */
static inline struct ct_plan *
plan_source_as(const char *source, const char *flags)
{
  char *text = malloc(strlen(MACROS) + strlen(source) + 1);
  assert_non_null(text);
  strcat(strcpy(text, MACROS), source);
  put_text("module.s", text);
  free(text);
  if (shell("gcc --version") != 0) {
    skip();
  }
  if (shell("gcc %s -nostdlib -o module.so module.s", flags) != 0) {
    fail_msg("the source of this test does not assemble");
  }
  return plan_file("module.so");
}

static inline struct ct_plan *
plan_source(const char *source)
{
  return plan_source_as(source, "-shared");
}

static const struct ct_planned *
planned(const struct ct_plan *plan, const char *name)
{
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].name != NULL && strcmp(plan->functions[i].name, name) == 0) {
      return &plan->functions[i];
    }
  }
  fail_msg("no function %s", name);
  return NULL;
}

static inline void
assert_hooked(const struct ct_plan *plan, const char *name, enum ct_tactic tactic, uint8_t mode)
{
  const struct ct_planned *f = planned(plan, name);
  if (f->refusal != CT_REFUSED_NOT) {
    fail_msg("%s is refused: %s", name, ct_refusal_key(f->refusal));
  }
  if (f->tactic != tactic) {
    fail_msg("%s by %s, not %s", name, ct_tactic_name(f->tactic), ct_tactic_name(tactic));
  }
  if (f->mode != mode) {
    fail_msg("%s in mode %u, not %u", name, f->mode, mode);
  }
  assert_int_equal(f->mode != CT_HOOK_FULL, f->why_enter != 0);
  if (tactic == CT_TACTIC_JUMP || tactic == CT_TACTIC_ENDBR) {
    assert_int_equal(f->patch_offset, tactic == CT_TACTIC_ENDBR ? 4 : 0);
  }
}

static inline void
assert_full(const struct ct_plan *plan, const char *name)
{
  assert_hooked(plan, name, CT_TACTIC_JUMP, CT_HOOK_FULL);
}

static inline void
assert_enter_for(const struct ct_plan *plan, const char *name, uint16_t why)
{
  assert_hooked(plan, name, CT_TACTIC_JUMP, CT_HOOK_ENTER);
  if (planned(plan, name)->why_enter != why) {
    fail_msg("%s is enter-only for %#x, not %#x", name, planned(plan, name)->why_enter, why);
  }
}

static inline void
assert_refused(const struct ct_plan *plan, const char *name, enum ct_refusal refusal)
{
  const struct ct_planned *f = planned(plan, name);
  if (f->refusal != refusal) {
    fail_msg("%s: %s, not %s", name, ct_refusal_key(f->refusal), ct_refusal_key(refusal));
  }
}

/* No room in front of the next entry: said in either way. */
static inline void
assert_branch_into(const struct ct_plan *plan, const char *name, uint8_t offset)
{
  assert_refused(plan, name, CT_REFUSED_BRANCH_INTO);
  assert_int_equal(planned(plan, name)->refusal_offset, offset);
}

/* A branch goes to name + offset: only bytes before it change, by one of the tactics for that. */
static inline void
assert_clear_of(const struct ct_plan *plan, const char *name, enum ct_tactic tactic, uint8_t offset)
{
  const struct ct_planned *f = planned(plan, name);
  assert_hooked(plan, name, tactic, CT_HOOK_FULL);
  assert_true(f->patch_bytes < 5 && f->patch_offset + f->patch_bytes <= offset);
  assert_true(f->window.length >= f->patch_bytes || f->window.terminated);
  if (tactic != CT_TACTIC_PUN) {
    const struct ct_springboard *springboard = &plan->springboard[f->springboard];
    int64_t distance = (int64_t)(springboard->relay - (f->address + f->patch_offset + 2));
    assert_true(distance >= -128 && distance <= 127);
  }
}

#define FRAME   " push %rbp\n .cfi_def_cfa_offset 16\n mov %rsp, %rbp\n .cfi_def_cfa_register 6\n"
#define UNFRAME " pop %rbp\n .cfi_def_cfa 7, 8\n ret\n"

#endif
