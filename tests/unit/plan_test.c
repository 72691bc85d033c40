/* SPDX-License-Identifier: MIT */
/*
 * The planner on small modules written in assembly, one function for each case: by which tactic and mode it is
 * hooked, what it calls out for, or why it is left out. A test that needs a tool that is missing is skipped.
 *
 * Longer than others: most of it is one table of assembly, a case for each line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../check_plan.h"
#include "x86/scan.h"

static char folder[64];

/* `fn` begins a function, between int3s; `cfi` and `end` frame it. */
#define MACROS                                                                                                         \
  ".macro fn name\n .balign 16, 0xcc\n .type \\name, @function\n \\name:\n .cfi_startproc\n .endm\n"                   \
  ".macro bare name\n .type \\name, @function\n \\name:\n .endm\n"                                                     \
  ".macro end name\n .cfi_endproc\n .size \\name, .-\\name\n .endm\n"                                                  \
  ".macro bare_end name\n .size \\name, .-\\name\n .endm\n"                                                            \
  ".section .note.GNU-stack, \"\", @progbits\n"                                                                        \
  ".text\n"

static int
shell(const char *fmt, ...)
{
  char command[1024];
  va_list ap;
  int used = snprintf(command, sizeof(command), "cd %s && { ", folder);
  va_start(ap, fmt);
  used += vsnprintf(command + used, sizeof(command) - (size_t)used, fmt, ap);
  va_end(ap);
  snprintf(command + used, sizeof(command) - (size_t)used, "; } >log 2>&1");
  return system(command);
}

static void
put_file(const char *name, const char *text)
{
  char path[128];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static struct ct_plan *
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
static struct ct_plan *
plan_source_as(const char *source, const char *flags)
{
  char *text = malloc(strlen(MACROS) + strlen(source) + 1);
  assert_non_null(text);
  strcat(strcpy(text, MACROS), source);
  put_file("module.s", text);
  free(text);
  if (shell("gcc --version") != 0) {
    skip();
  }
  if (shell("gcc %s -nostdlib -o module.so module.s", flags) != 0) {
    fail_msg("the source of this test does not assemble");
  }
  return plan_file("module.so");
}

static struct ct_plan *
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

static void
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

static void
assert_full(const struct ct_plan *plan, const char *name)
{
  assert_hooked(plan, name, CT_TACTIC_JUMP, CT_HOOK_FULL);
}

static void
assert_enter_for(const struct ct_plan *plan, const char *name, uint16_t why)
{
  assert_hooked(plan, name, CT_TACTIC_JUMP, CT_HOOK_ENTER);
  if (planned(plan, name)->why_enter != why) {
    fail_msg("%s is enter-only for %#x, not %#x", name, planned(plan, name)->why_enter, why);
  }
}

static void
assert_refused(const struct ct_plan *plan, const char *name, enum ct_refusal refusal)
{
  const struct ct_planned *f = planned(plan, name);
  if (f->refusal != refusal) {
    fail_msg("%s: %s, not %s", name, ct_refusal_key(f->refusal), ct_refusal_key(refusal));
  }
}

/* No room in front of the next entry: said in either way. */
static void
assert_branch_into(const struct ct_plan *plan, const char *name, uint8_t offset)
{
  assert_refused(plan, name, CT_REFUSED_BRANCH_INTO);
  assert_int_equal(planned(plan, name)->refusal_offset, offset);
}

/* A branch goes to name + offset: only bytes before it change, by one of the tactics for that. */
static void
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

static void
who_touches_the_ra_slot(void **state)
{
  struct ct_plan *plan =
      plan_source("fn reads\n mov (%rsp), %rax\n mov %rax, %rdx\n ret\n end reads\n"
                  "fn reads_later\n push %rbx\n .cfi_def_cfa_offset 16\n sub $32, %rsp\n .cfi_def_cfa_offset 48\n"
                  " mov 40(%rsp), %rax\n add $32, %rsp\n .cfi_def_cfa_offset 16\n pop %rbx\n"
                  " .cfi_def_cfa_offset 8\n ret\n end reads_later\n"
                  "fn writes\n mov %rdi, %rax\n mov %rdx, (%rsp)\n ret\n end writes\n"
                  "fn takes_address\n lea (%rsp), %rdi\n mov %edi, %eax\n ret\n end takes_address\n"
                  "fn pops\n mov %rdi, %rsi\n pop %rax\n .cfi_def_cfa_offset 0\n jmp *%rax\n end pops\n"
                  "fn pops_unpublished\n mov %rdi, %rsi\n pop %rax\n push %rax\n ret\n end pops_unpublished\n"
                  "fn drops\n mov %rdi, %rsi\n add $8, %rsp\n .cfi_def_cfa_offset 0\n jmp *%rsi\n end drops\n"
                  "fn by_frame\n" FRAME " mov 8(%rbp), %rax\n" UNFRAME " end by_frame\n"
                  "fn adds_to_it\n mov %edi, %eax\n addq $5, (%rsp)\n ret\n end adds_to_it\n"
                  /* Neighbours of the return-address slot, and what only looks like it. */
                  "fn argument\n mov 8(%rsp), %rax\n ret\n end argument\n"
                  "fn red_zone\n mov %rdi, -8(%rsp)\n mov -8(%rsp), %rax\n ret\n end red_zone\n"
                  "fn frame_argument\n" FRAME " mov 16(%rbp), %rax\n mov (%rbp), %rcx\n" UNFRAME " end frame_argument\n"
                  "fn by_index\n mov (%rsp,%rdi,8), %rax\n ret\n end by_index\n"
                  "fn other_base\n mov (%r12), %rax\n ret\n end other_base\n"
                  "fn other_frame\n" FRAME " mov 8(%r13), %rax\n" UNFRAME " end other_frame\n"
                  "fn realigns\n lea 8(%rsp), %r10\n .cfi_def_cfa 10, 0\n and $-32, %rsp\n push -8(%r10)\n push %rbp\n"
                  " mov %rsp, %rbp\n .cfi_escape 0x10, 6, 2, 0x76, 0\n push %r10\n"
                  " .cfi_escape 0x0f, 3, 0x76, 0x78, 0x06\n pop %r10\n .cfi_def_cfa 10, 0\n pop %rbp\n"
                  " lea -8(%r10), %rsp\n .cfi_def_cfa 7, 8\n ret\n end realigns\n"
                  "fn saves\n push %rbx\n .cfi_def_cfa_offset 16\n mov (%rsp), %rax\n mov %edi, %ebx\n pop %rbx\n"
                  " .cfi_def_cfa_offset 8\n ret\n end saves\n"
                  "fn long_nop\n nopl (%rsp)\n nopw 0(%rax,%rax,1)\n ret\n end long_nop\n");
  static const char *const touching[] = {"reads", "reads_later", "writes",     "by_frame",        "takes_address",
                                         "pops",  "drops",       "adds_to_it", "pops_unpublished"};
  static const char *const harmless[] = {"argument",    "red_zone", "frame_argument", "by_index", "other_base",
                                         "other_frame", "realigns", "saves",          "long_nop"};
  for (size_t i = 0; i < sizeof(touching) / sizeof(touching[0]); i++) {
    assert_enter_for(plan, touching[i], CT_FACT_TOUCHES_RA_SLOT);
  }
  for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
    assert_full(plan, harmless[i]);
  }
  ct_plan_free(plan);
}

/* The same with vector loads, whose prefix keeps the extension bits inverted. */
static void
vector_loads_of_the_ra_slot(void **state)
{
  struct ct_plan *plan = plan_source("fn sse\n movq (%rsp), %xmm0\n ret\n end sse\n"
                                     "fn vex\n vmovq (%rsp), %xmm0\n ret\n end vex\n"
                                     "fn vex3\n {vex3} vmovdqu (%rsp), %xmm0\n ret\n end vex3\n"
                                     "fn vex_frame\n" FRAME " vmovq %xmm0, 8(%rbp)\n" UNFRAME " end vex_frame\n"
                                     "fn vex_other\n vmovq (%r12), %xmm0\n ret\n end vex_other\n");
  assert_enter_for(plan, "sse", CT_FACT_TOUCHES_RA_SLOT);
  assert_full(plan, "vex_other");
  assert_enter_for(plan, "vex", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "vex3", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "vex_frame", CT_FACT_TOUCHES_RA_SLOT);
  ct_plan_free(plan);
}

/* In modules without call frame information the depth is followed from the code. */
static void
the_ra_slot_without_cfi(void **state)
{
  struct ct_plan *plan =
      plan_source(".balign 16\n bare reads\n mov (%rsp), %rax\n nop\n ret\n bare_end reads\n"
                  ".balign 16\n bare reads_deep\n push %rbx\n sub $0x108, %rsp\n lea -16(%rsp), %rsp\n"
                  " mov 0x120(%rsp), %rax\n lea 16(%rsp), %rsp\n add $0x108, %rsp\n pop %rbx\n ret\n"
                  " bare_end reads_deep\n"
                  ".balign 16\n bare reads_after_branch\n push %rbx\n test %edi, %edi\n je 1f\n pop %rbx\n ret\n"
                  "1: mov 8(%rsp), %rax\n pop %rbx\n ret\n bare_end reads_after_branch\n"
                  ".balign 16\n bare pops\n nop\n nop\n nop\n pop %rdx\n jmp *%rdx\n bare_end pops\n"
                  ".balign 16\n bare balanced\n push %rbx\n sub $24, %rsp\n mov 24(%rsp), %rax\n add $24, %rsp\n"
                  " pop %rbx\n ret\n bare_end balanced\n"
                  ".balign 16\n bare frame\n push %rbp\n mov %rsp, %rbp\n sub $64, %rsp\n mov (%rsp), %rax\n leave\n"
                  " ret\n bare_end frame\n"
                  ".balign 16\n bare realigned\n push %rbp\n mov %rsp, %rbp\n and $-32, %rsp\n mov 8(%rsp), %rax\n"
                  " leave\n ret\n bare_end realigned\n"
                  ".balign 16\n bare restored\n push %rbp\n mov %rsp, %rbp\n sub $64, %rsp\n mov %rbp, %rsp\n"
                  " pop %rbp\n ret\n bare_end restored\n");
  assert_enter_for(plan, "reads", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "reads_deep", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "reads_after_branch", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "pops", CT_FACT_TOUCHES_RA_SLOT);
  static const char *const harmless[] = {"balanced", "frame", "realigned", "restored"};
  for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
    assert_full(plan, harmless[i]);
  }
  ct_plan_free(plan);
}

/* What is handed on by tail jumps, in either order of addresses, over jcc too; calls hand nothing on. */
static void
tail_jumps_hand_the_ra_slot_on(void **state)
{
  struct ct_plan *plan =
      plan_source("fn to_reads\n xor %eax, %eax\n mov %edi, %esi\n jmp reads\n end to_reads\n"
                  "fn to_to_reads\n xor %eax, %eax\n mov %edi, %esi\n jmp to_reads\n end to_to_reads\n"
                  "fn reads\n mov (%rsp), %rax\n nop\n ret\n end reads\n"
                  "fn maybe_to_reads\n test %edi, %edi\n mov %edi, %esi\n je reads\n ret\n end maybe_to_reads\n"
                  "fn calls_reads\n sub $8, %rsp\n .cfi_def_cfa_offset 16\n call reads\n add $8, %rsp\n"
                  " .cfi_def_cfa_offset 8\n ret\n end calls_reads\n"
                  "fn ret_imm\n mov %edi, %eax\n mov %edi, %esi\n ret $16\n end ret_imm\n"
                  "fn to_ret_imm\n mov %edi, %eax\n mov %edi, %esi\n jmp ret_imm\n end to_ret_imm\n"
                  "fn to_both\n test %edi, %edi\n mov %edi, %esi\n je ret_imm\n jmp reads\n end to_both\n"
                  "fn ret_zero\n mov %edi, %eax\n mov %edi, %esi\n ret $0\n end ret_zero\n"
                  "fn to_plain\n mov %edi, %eax\n mov %edi, %esi\n jmp plain\n end to_plain\n"
                  "fn plain\n mov %edi, %eax\n mov %edi, %esi\n ret\n end plain\n");
  assert_enter_for(plan, "reads", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "to_reads", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "to_to_reads", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "maybe_to_reads", CT_FACT_TOUCHES_RA_SLOT);
  assert_full(plan, "calls_reads");
  assert_enter_for(plan, "ret_imm", CT_FACT_RET_IMM);
  assert_enter_for(plan, "to_ret_imm", CT_FACT_RET_IMM);
  assert_enter_for(plan, "to_both", CT_FACT_RET_IMM | CT_FACT_TOUCHES_RA_SLOT);
  assert_full(plan, "to_plain");
  ct_plan_free(plan);
}

static void
a_long_chain_of_tail_jumps(void **state)
{
  char source[4096];
  int used = 0;
  for (int i = 0; i < 30; i++) {
    used += snprintf(source + used, sizeof(source) - (size_t)used,
                     "fn hop%d\n mov %%edi, %%eax\n mov %%edi, %%esi\n jmp hop%d\n end hop%d\n", i, i + 1, i);
  }
  snprintf(source + used, sizeof(source) - (size_t)used, "fn hop30\n mov (%%rsp), %%rax\n nop\n ret\n end hop30\n");
  struct ct_plan *plan = plan_source(source);
  assert_enter_for(plan, "hop30", CT_FACT_TOUCHES_RA_SLOT);
  assert_enter_for(plan, "hop0", CT_FACT_TOUCHES_RA_SLOT);
  ct_plan_free(plan);
}

static void
branches_into_the_patch(void **state)
{
  struct ct_plan *plan = plan_source(
      "fn loops_at_1\n nop\n1: dec %edi\n jne 1b\n ret\n end loops_at_1\n"
      "fn loops_at_4\n mov %edi, %eax\n mov %edi, %ecx\n1: dec %edi\n jne 1b\n ret\n end loops_at_4\n"
      "fn loops_at_5\n mov $7, %eax\n1: dec %edi\n jne 1b\n ret\n end loops_at_5\n"
      "fn loops_at_0\n1: dec %edi\n nop\n nop\n jne 1b\n ret\n end loops_at_0\n"
      "fn from_elsewhere\n mov %edi, %eax\ninside: mov %esi, %ecx\n mov %edx, %edi\n ret\n"
      " end from_elsewhere\n"
      "fn elsewhere\n test %edi, %edi\n mov %edi, %esi\n jmp inside\n end elsewhere\n"
      "fn referred_to\n mov %edi, %eax\nlabel: mov %esi, %ecx\n mov %edx, %edi\n ret\n end referred_to\n"
      "fn refers\n lea label(%rip), %rax\n jmp *%rax\n end refers\n"
      "fn called_inside\n mov %edi, %eax\nhalf: mov %esi, %ecx\n mov %edx, %edi\n ret\n end called_inside\n"
      "fn calls_inside\n sub $8, %rsp\n .cfi_def_cfa_offset 16\n call half\n add $8, %rsp\n"
      " .cfi_def_cfa_offset 8\n ret\n end calls_inside\n"
      /* After endbr64 the patch begins at +4, and so does a loop there. */
      "fn endbr_loops_at_4\n endbr64\n1: dec %edi\n nop\n nop\n nop\n jne 1b\n ret\n end endbr_loops_at_4\n"
      "fn endbr_loops_at_6\n endbr64\n mov %edi, %eax\n1: dec %edi\n nop\n jne 1b\n ret\n"
      " end endbr_loops_at_6\n"
      "fn endbr_loops_at_0\n1: endbr64\n dec %edi\n nop\n nop\n nop\n jne 1b\n ret\n end endbr_loops_at_0\n");
  assert_clear_of(plan, "loops_at_1", CT_TACTIC_PUN, 1);
  assert_clear_of(plan, "loops_at_4", CT_TACTIC_SHORT, 4);
  assert_full(plan, "loops_at_5");
  assert_false(planned(plan, "loops_at_5")->self_branch);
  assert_full(plan, "loops_at_0");
  assert_true(planned(plan, "loops_at_0")->self_branch);
  assert_clear_of(plan, "from_elsewhere", CT_TACTIC_SHORT, 2);
  assert_full(plan, "elsewhere");
  assert_clear_of(plan, "referred_to", CT_TACTIC_SHORT, 2);
  assert_clear_of(plan, "called_inside", CT_TACTIC_SHORT, 2);
  assert_hooked(plan, "endbr_loops_at_4", CT_TACTIC_ENDBR, CT_HOOK_FULL);
  assert_true(planned(plan, "endbr_loops_at_4")->self_branch);
  assert_clear_of(plan, "endbr_loops_at_6", CT_TACTIC_SHORT, 6);
  assert_hooked(plan, "endbr_loops_at_0", CT_TACTIC_ENDBR, CT_HOOK_FULL);
  assert_true(planned(plan, "endbr_loops_at_0")->self_branch);
  ct_plan_free(plan);
}

/* No padding within reach: what is left depends on where the jump would point, and on the neighbours. */
static void
without_padding(void **state)
{
  static const char source[] =
      ".macro desert\n .rept 40\n mov (%rdi), %eax\n jmp 1f\n1: nop\n .endr\n .endm\n"
      "fn first\n desert\n ret\n end first\n"
      " bare loops_at_1\n .cfi_startproc\n cld\n1: dec %edi\n jne 1b\n mov $1, %eax\n ret\n end loops_at_1\n"
      " bare second\n .cfi_startproc\n desert\n ret\n end second\n"
      " bare gives_way\n .cfi_startproc\n mov %edi, %eax\n mov %esi, %ecx\n mov %esi, %edx\n inc %eax\n"
      " inc %ecx\n inc %edx\n inc %ecx\n inc %edx\n ret\n end gives_way\n"
      " bare loops_at_3\n .cfi_startproc\n xor %eax, %eax\n cld\n1: add $-64, %edi\n jne 1b\n ret\n end loops_at_3\n"
      " bare third\n .cfi_startproc\n desert\n ret\n end third\n"
      " bare jumps_about\n .cfi_startproc\n mov %edi, %eax\n mov %esi, %ecx\n mov %esi, %edx\n inc %eax\n"
      " inc %ecx\n inc %edx\n inc %ecx\n inc %edx\n jmp *%rdi\n end jumps_about\n"
      " bare loops_at_3_again\n .cfi_startproc\n xor %eax, %eax\n cld\n1: add $-64, %edi\n jne 1b\n ret\n"
      " end loops_at_3_again\n"
      " bare fourth\n .cfi_startproc\n desert\n ret\n end fourth\n";
  struct ct_plan *plan = plan_source(source);
  assert_clear_of(plan, "loops_at_1", CT_TACTIC_PUN, 1);
  assert_clear_of(plan, "loops_at_3", CT_TACTIC_PUN, 3);
  ct_plan_free(plan);
  plan = plan_source_as(source, "-no-pie -static -Wl,-e,first"); /* nothing lies below address 0 */
  assert_branch_into(plan, "loops_at_1", 1);
  assert_clear_of(plan, "loops_at_3", CT_TACTIC_EVICT, 3);
  const struct ct_springboard *springboard = &plan->springboard[planned(plan, "loops_at_3")->springboard];
  uint64_t entry = planned(plan, "gives_way")->address;
  assert_true(springboard->evicted >= entry + 5 && springboard->evicted + springboard->window.length <= entry + 19);
  assert_int_equal(springboard->relay, springboard->evicted + 5);
  assert_true(springboard->window.length >= 10);
  assert_branch_into(plan, "loops_at_3_again", 3); /* its neighbour has a jump to who knows where */
  ct_plan_free(plan);
}

/* Text and data in one segment: data is no padding, whatever it looks like, and lends no bytes to a jump. */
static void
data_after_the_code(void **state)
{
  static const char source[] = ".text\n fn first\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end first\n"
                               " .skip 16, 0xcc\n bare last\n .cfi_startproc\n xor %eax, %eax\n ret\n end last\n"
                               ".section .rodata\n .skip 16, 0x90\n";
  struct ct_plan *plan = plan_source_as(source, "-no-pie -static -Wl,-N -Wl,-e,first");
  const struct ct_elf_section *text = ct_elf_exec_section_at(plan->elf, planned(plan, "last")->address);
  assert_non_null(text);
  assert_int_equal(planned(plan, "last")->address + 3, text->address + text->size);
  assert_int_equal(*ct_elf_bytes(plan->elf, text->address + text->size, 1), 0x90);
  assert_clear_of(plan, "last", CT_TACTIC_SHORT, 3);
  ct_plan_free(plan);
}

static void
short_functions(void **state)
{
  struct ct_plan *plan = plan_source(
      "fn before_int3\n ret\n end before_int3\n .skip 8, 0xcc\n"
      "fn before_nops\n xor %eax, %eax\n ret\n end before_nops\n .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
      "fn jumps_before_int3\n jmp before_int3\n end jumps_before_int3\n .skip 8, 0xcc\n"
      "fn traps\n ud2\n end traps\n .skip 8, 0xcc\n"
      "fn before_code\n xor %eax, %eax\n ret\n end before_code\n"
      " bare next_to_it\n .cfi_startproc\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end next_to_it\n"
      "fn before_data\n xor %eax, %eax\n ret\n end before_data\n .byte 0x90, 0x05, 0, 0, 0, 0\n"
      "fn before_short_pad\n ret\n end before_short_pad\n nop\n nop\n nop\n"
      " bare after_short_pad\n .cfi_startproc\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end after_short_pad\n"
      "fn before_nop_entry\n ret\n end before_nop_entry\n nop\n nop\n nop\n"
      " bare nop_entry\n .cfi_startproc\n nop\n mov %edi, %eax\n mov %edi, %ecx\n ret\n end nop_entry\n"
      "fn before_used_pad\n xor %eax, %eax\n ret\n end before_used_pad\npad: nop\n nop\n nop\n"
      "fn uses_pad\n lea pad(%rip), %rax\n ret\n end uses_pad\n"
      "fn falls_through\n mov %edi, %eax\n end falls_through\n"
      " bare falls_into\n .cfi_startproc\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end falls_into\n"
      "fn endbr_short\n endbr64\n ret\n end endbr_short\n .skip 8, 0xcc\n"
      "fn endbr_only\n endbr64\n end endbr_only\n .skip 8, 0xcc\n"
      "fn exactly_five\n mov $1, %eax\n end exactly_five\n .skip 8, 0xcc\n"
      "fn last\n nop\n ret\n end last\n");
  static const char *const in_padding[] = {"before_int3", "before_nops", "jumps_before_int3", "traps"};
  for (size_t i = 0; i < sizeof(in_padding) / sizeof(in_padding[0]); i++) {
    assert_hooked(plan, in_padding[i], CT_TACTIC_PADDING, CT_HOOK_FULL);
  }
  assert_int_equal(planned(plan, "before_int3")->window.length, 1);
  assert_int_equal(planned(plan, "before_nops")->window.length, 3);
  assert_clear_of(plan, "before_code", CT_TACTIC_SHORT, 3);
  assert_clear_of(plan, "before_data", CT_TACTIC_SHORT, 4);
  assert_clear_of(plan, "before_short_pad", CT_TACTIC_SHORT, 4);
  assert_clear_of(plan, "before_nop_entry", CT_TACTIC_SHORT, 4);
  assert_clear_of(plan, "before_used_pad", CT_TACTIC_SHORT, 3);
  assert_clear_of(plan, "falls_through", CT_TACTIC_SHORT, 2);
  assert_full(plan, "falls_into");
  const struct ct_planned *endbr = planned(plan, "endbr_short"); /* after the endbr64, into the padding */
  assert_int_equal(endbr->refusal, CT_REFUSED_NOT);
  assert_int_equal(endbr->tactic, CT_TACTIC_PADDING);
  assert_int_equal(endbr->patch_offset, 4);
  assert_refused(plan, "endbr_only", CT_REFUSED_TOO_SHORT);
  assert_full(plan, "exactly_five");
  assert_clear_of(plan, "last", CT_TACTIC_SHORT, 2);
  ct_plan_free(plan);
}

/* The last instruction of a function reaches into the next one: what follows it is code, whatever it looks like. */
static void
an_entry_inside_an_instruction(void **state)
{
  struct ct_plan *plan = plan_source("fn before_code\n xor %eax, %eax\n ret\n end before_code\n"
                                     " bare crosses\n .cfi_startproc\n mov %edi, %eax\n mov %edi, %ecx\n"
                                     " mov %edi, %edx\n .byte 0xe9, 0, 0\n end crosses\n"
                                     " bare inside\n .cfi_startproc\n .byte 0, 0\n mov %edi, %eax\n"
                                     " mov %edi, %ecx\n mov %edi, %edx\n mov %edi, %esi\n ret\n end inside\n");
  assert_refused(plan, "before_code", CT_REFUSED_TOO_SHORT);
  ct_plan_free(plan);
}

static void
first_instructions(void **state)
{
  struct ct_plan *plan = plan_source(
      "fn endbr\n endbr64\n push %rbp\n .cfi_def_cfa_offset 16\n mov %rsp, %rbp\n sub $16, %rsp\n leave\n"
      " .cfi_def_cfa 7, 8\n ret\n end endbr\n"
      "fn calls_first\n call endbr\n ret\n end calls_first\n"
      "fn indirect_call_inside\n push %rbx\n .cfi_def_cfa_offset 16\n call *%rax\n pop %rbx\n"
      " .cfi_def_cfa_offset 8\n ret\n end indirect_call_inside\n"
      "fn loops_first\n1: loop 1b\n mov %edi, %eax\n nop\n ret\n end loops_first\n"
      "fn jcc_first\n test %edi, %edi\n je 1f\n mov %edi, %eax\n1: ret\n end jcc_first\n"
      "fn rip_first\n lea endbr(%rip), %rax\n ret\n end rip_first\n"
      "fn no_code\n .byte 0x06, 0x06, 0x06, 0x06, 0x06\n ret\n end no_code\n"
      "fn bad_later\n mov $1, %eax\n .byte 0x06\n ret\n end bad_later\n"
      "fn two_entries\n mov %edi, %eax\n"
      " .type second, @function\nsecond: mov %edi, %ecx\n mov %edi, %edx\n nop\n ret\n .size second, .-second\n"
      " end two_entries\n"
      "fn eip_relative\n lea 16(%eip), %eax\n ret\n end eip_relative\n");
  const struct ct_planned *f = planned(plan, "endbr");
  assert_hooked(plan, "endbr", CT_TACTIC_ENDBR, CT_HOOK_FULL);
  assert_int_equal(f->window.length, 8); /* push, mov, sub */
  assert_int_equal(f->window.count, 3);
  assert_full(plan, "calls_first");
  assert_clear_of(plan, "indirect_call_inside", CT_TACTIC_SHORT, 3);
  assert_full(plan, "loops_first");
  assert_true(planned(plan, "loops_first")->self_branch);
  assert_full(plan, "jcc_first");
  assert_full(plan, "rip_first");
  assert_refused(plan, "no_code", CT_REFUSED_UNDECODABLE);
  assert_full(plan, "bad_later");
  assert_clear_of(plan, "two_entries", CT_TACTIC_SHORT, 2);
  assert_full(plan, "second");
  ct_plan_free(plan);
}

/* Letters in the text are no use of gs, code that is branched to is. */
static void
gs_in_data_and_code(void **state)
{
  static const char data[] = "fn string\n lea 1f(%rip), %rax\n ret\n1: .asciz \"e f else element\"\n end string\n"
                             "fn table\n jmp *%rdi\n .byte 0x65, 0x8b, 0x04, 0x25, 0, 0, 0, 0\n ret\n end table\n";
  struct ct_plan *plan = plan_source(data);
  assert_false(plan->uses_gs);
  ct_plan_free(plan);
  static const char *const uses[] = {
      "fn at_once\n mov %gs:8, %rax\n ret\n end at_once\n",
      "fn after_branch\n test %edi, %edi\n jne 1f\n ret\n1: mov %gs:8, %rax\n ret\n end after_branch\n",
      "fn in_loop\n jmp 2f\n1: mov %gs:8, %rax\n2: dec %edi\n jne 1b\n ret\n end in_loop\n",
      "fn sets_base\n wrgsbase %rdi\n ret\n end sets_base\n"};
  for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
    plan = plan_source(uses[i]);
    assert_true(plan->uses_gs);
    ct_plan_free(plan);
  }
}

static void
values_in_the_flags(void **state)
{
  struct ct_plan *plan = plan_source(
      "fn takes_carry\n adc %rsi, %rdi\n mov %rdi, %rax\n ret\n end takes_carry\n"
      "fn branches_on_flags\n mov %edi, %eax\n jc 1f\n inc %eax\n1: ret\n end branches_on_flags\n"
      "fn saves_flags\n pushfq\n .cfi_def_cfa_offset 16\n pop %rax\n .cfi_def_cfa_offset 8\n nop\n nop\n"
      " nop\n ret\n end saves_flags\n"
      "fn sets_before_use\n cmp %esi, %edi\n mov $0, %eax\n setc %al\n ret\n end sets_before_use\n"
      "fn xor_then_adc\n xor %eax, %eax\n adc %esi, %edi\n nop\n ret\n end xor_then_adc\n"
      "fn gives_carry\n mov %edi, %eax\n stc\n nop\n nop\n ret\n end gives_carry\n"
      "fn uses_carry\n sub $8, %rsp\n .cfi_def_cfa_offset 16\n call gives_carry\n mov %eax, %ecx\n jc 1f\n"
      " inc %ecx\n1: add $8, %rsp\n .cfi_def_cfa_offset 8\n ret\n end uses_carry\n"
      "fn gives_nothing\n mov %edi, %eax\n stc\n nop\n nop\n ret\n end gives_nothing\n"
      "fn tests_first\n sub $8, %rsp\n .cfi_def_cfa_offset 16\n call gives_nothing\n test %eax, %eax\n je 1f\n"
      " inc %ecx\n1: add $8, %rsp\n .cfi_def_cfa_offset 8\n ret\n end tests_first\n"
      "fn copies_strings\n mov %edx, %ecx\n rep movsb\n nop\n nop\n ret\n end copies_strings\n");
  assert_refused(plan, "takes_carry", CT_REFUSED_FLAGS);
  assert_refused(plan, "branches_on_flags", CT_REFUSED_FLAGS);
  assert_refused(plan, "saves_flags", CT_REFUSED_FLAGS);
  assert_full(plan, "sets_before_use");
  assert_full(plan, "xor_then_adc");
  assert_refused(plan, "gives_carry", CT_REFUSED_FLAGS);
  assert_full(plan, "uses_carry");
  assert_full(plan, "gives_nothing");
  assert_full(plan, "tests_first");
  assert_full(plan, "copies_strings");
  assert_false(plan->uses_gs);
  ct_plan_free(plan);
}

static void
system_calls(void **state)
{
  static const struct {
    const char *name;
    int number;
    uint8_t callout;
  } calls[] = {{"sys_getpid", 39, CT_CALLOUT_NONE},    {"sys_clone", 56, CT_CALLOUT_PARK},
               {"sys_fork", 57, CT_CALLOUT_PARK},      {"sys_execve", 59, CT_CALLOUT_EXEC},
               {"sys_execveat", 322, CT_CALLOUT_EXEC}, {"sys_clone3", 435, CT_CALLOUT_PARK}};
  char source[4096];
  int used = 0;
  /* The number moved in both of the usual forms. */
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
    used += snprintf(source + used, sizeof(source) - (size_t)used,
                     "fn %s\n mov $%d, %%%s\n mov %%rcx, %%r10\n syscall\n ret\n end %s\n", calls[i].name,
                     calls[i].number, i % 2 == 0 ? "eax" : "rax", calls[i].name);
  }
  snprintf(source + used, sizeof(source) - (size_t)used,
           "fn sys_vfork\n mov $58, %%eax\n mov %%rcx, %%r10\n syscall\n ret\n end sys_vfork\n"
           "fn restorer\n mov $15, %%rax\n syscall\n end restorer\n nop\n nop\n"
           "fn restorer_short\n mov $15, %%eax\n syscall\n end restorer_short\n nop\n nop\n"
           "fn marked\n .cfi_signal_frame\n mov $39, %%rax\n syscall\n end marked\n nop\n nop\n"
           "fn other_number\n mov $59, %%ecx\n syscall\n ret\n end other_number\n"
           "fn exec_among_more\n mov $59, %%eax\n syscall\n .skip 600, 0x90\n ret\n end exec_among_more\n"
           "fn write\n mov $1, %%eax\n syscall\n ret\n end write\n"
           "fn writev\n mov $20, %%eax\n syscall\n ret\n end writev\n"
           "fn rewrite\n mov $1, %%eax\n syscall\n ret\n end rewrite\n"
           "fn reads_thread\n mov %%fs:0, %%rax\n ret\n end reads_thread\n");
  struct ct_plan *plan = plan_source(source);
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
    assert_full(plan, calls[i].name);
    if (planned(plan, calls[i].name)->callout != calls[i].callout) {
      fail_msg("%s calls out %u", calls[i].name, planned(plan, calls[i].name)->callout);
    }
  }
  assert_enter_for(plan, "sys_vfork", CT_FACT_VFORK);
  assert_int_equal(planned(plan, "sys_vfork")->callout, CT_CALLOUT_PARK);
  assert_refused(plan, "restorer", CT_REFUSED_SIGNAL_FRAME);
  assert_refused(plan, "restorer_short", CT_REFUSED_SIGNAL_FRAME);
  assert_refused(plan, "marked", CT_REFUSED_SIGNAL_FRAME);
  assert_full(plan, "other_number");
  assert_int_equal(planned(plan, "other_number")->callout, CT_CALLOUT_NONE);
  assert_int_equal(planned(plan, "exec_among_more")->callout, CT_CALLOUT_NONE);
  assert_int_equal(planned(plan, "write")->callout, CT_CALLOUT_WRITE);
  assert_int_equal(planned(plan, "writev")->callout, CT_CALLOUT_WRITEV);
  assert_int_equal(planned(plan, "rewrite")->callout, CT_CALLOUT_NONE);
  assert_false(plan->uses_gs);
  ct_plan_free(plan);
}

static void
names_that_call_out(void **state)
{
  static const struct {
    const char *name;
    uint8_t callout;
  } names[] = {{"_dl_debug_state", CT_CALLOUT_RENDEZVOUS},
               {"_Unwind_Find_FDE", CT_CALLOUT_FIND_FDE},
               {"execve", CT_CALLOUT_EXEC},
               {"__execve", CT_CALLOUT_EXEC},
               {"prctl", CT_CALLOUT_SECCOMP},
               {"syscall", CT_CALLOUT_SYSCALL},
               {"mlockall", CT_CALLOUT_MLOCKALL},
               {"sigaction", CT_CALLOUT_SIGACTION},
               {"write", CT_CALLOUT_NONE}, /* it makes no system call itself */
               {"__libc_sigaction", CT_CALLOUT_SIGACTION},
               {"execve_not", CT_CALLOUT_NONE}};
  char source[4096];
  int used = 0;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    used += snprintf(source + used, sizeof(source) - (size_t)used,
                     "fn f%zu\n .type \"%s\", @function\n .set \"%s\", f%zu\n .globl \"%s\"\n mov $%zu, %%eax\n ret\n"
                     " end f%zu\n",
                     i, names[i].name, names[i].name, i, names[i].name, i, i);
  }
  struct ct_plan *plan = plan_source(source);
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    assert_full(plan, names[i].name);
    if (planned(plan, names[i].name)->callout != names[i].callout) {
      fail_msg("%s calls out %u", names[i].name, planned(plan, names[i].name)->callout);
    }
  }
  ct_plan_free(plan);
}

static void
users_of_gs(void **state)
{
  static const char *const users[] = {"mov %gs:16, %rax", "addl $1, %gs:(%rdi)", "wrgsbase %rdi", "call *%gs:16",
                                      "lock incl %gs:8"};
  for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
    char source[256];
    snprintf(source, sizeof(source), "fn user\n nop\n %s\n ret\n end user\n", users[i]);
    struct ct_plan *plan = plan_source(source);
    if (!plan->uses_gs) {
      fail_msg("not seen: %s", users[i]);
    }
    ct_plan_free(plan);
  }
}

/* What Go's and OCaml's modules are known by, and how their functions are hooked then. */
static void
runtimes_that_read_return_addresses(void **state)
{
  static const char go[] =
      ".section .go.buildinfo, \"a\"\n .quad 0\n .text\n"
      ".macro go name\n .p2align 4\n .globl \\name\n .type \\name, @function\n \\name:\n .endm\n"
      ".macro og name\n .size \\name, . - \\name\n .endm\n"
      "go main.grows\n cmp 16(%r14), %rsp\n jbe 1f\n mov %rax, %rbx\n ret\n1: call main.leaf\n jmp main.grows\n"
      "og main.grows\n"
      "go main.large\n lea -4096(%rsp), %r12\n cmp 16(%r14), %r12\n jbe 1f\n mov %rax, %rbx\n ret\n"
      "1: call main.leaf\n jmp main.large\n og main.large\n"
      "go main.leaf\n mov %rax, %rbx\n add %rcx, %rbx\n ret\n og main.leaf\n"
      "go main.loops\n cmp %rax, %rbx\n je 1f\n nop\n nop\n jmp main.loops\n1: ret\n og main.loops\n"
      "go runtime.goexit\n nop\n call main.leaf\n nop\n og runtime.goexit\n"
      "go runtime.goexit1\n nop\n call main.leaf\n nop\n ret\n og runtime.goexit1\n"
      "fn c_function\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end c_function\n";
  struct ct_plan *plan = plan_source(go);
  assert_int_equal(plan->runtime, CT_RUNTIME_GO);
  static const struct {
    const char *name;
    uint8_t event_last, window;
  } stackless[] = {{"main.grows", 1, 6}, {"main.large", 1, 14}, {"main.leaf", 0, 6}, {"main.loops", 0, 5}};
  for (size_t i = 0; i < sizeof(stackless) / sizeof(stackless[0]); i++) {
    const struct ct_planned *found = planned(plan, stackless[i].name);
    assert_int_equal(found->refusal, CT_REFUSED_NOT);
    assert_int_equal(found->mode, CT_HOOK_STACKLESS);
    assert_int_equal(found->event_last, stackless[i].event_last);
    assert_int_equal(found->window.length, stackless[i].window);
  }
  assert_refused(plan, "runtime.goexit", CT_REFUSED_RUNTIME);
  assert_int_equal(planned(plan, "runtime.goexit1")->refusal, CT_REFUSED_NOT);
  assert_full(plan, "c_function");
  ct_plan_free(plan);
  plan = plan_source("fn camlMain__f_1\n mov %rax, %rbx\n nop\n nop\n ret\n end camlMain__f_1\n"
                     ".data\n .globl caml_frametable\ncaml_frametable: .quad 0\n");
  assert_int_equal(plan->runtime, CT_RUNTIME_READS_RETURNS);
  assert_int_equal(planned(plan, "camlMain__f_1")->mode, CT_HOOK_ENTER);
  assert_int_equal(plan->foreign_count, 1);
  assert_true(plan->foreign[0].start < plan->foreign[0].end);
  ct_plan_free(plan);
  plan = plan_source(".data\n .globl caml_frametable\ncaml_frametable: .quad 0\n"); /* no code */
  assert_int_equal(plan->runtime, CT_RUNTIME_READS_RETURNS);
  assert_int_equal(plan->foreign_count, 0);
  ct_plan_free(plan);
  plan = plan_source("fn plain\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end plain\n");
  assert_int_equal(plan->runtime, CT_RUNTIME_PLAIN);
  ct_plan_free(plan);
}

static void
entries_by_their_frames(void **state)
{
  struct ct_plan *plan =
      plan_source("fn good\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end good\n"
                  "fn good_too\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end good_too\n"
                  "fn good_again\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end good_again\n"
                  "fn pushed\n .cfi_def_cfa_offset 16\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end pushed\n"
                  "fn no_caller\n .cfi_undefined 16\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end no_caller\n"
                  ".balign 16\n bare handwritten\n mov %edi, %eax\n nop\n nop\n nop\n ret\n bare_end handwritten\n"
                  "fn good.cold\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end good.cold\n"
                  ".section .plt, \"ax\", @progbits\n"
                  "fn stub\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end stub\n");
  assert_full(plan, "good");
  assert_refused(plan, "pushed", CT_REFUSED_ODD_ENTRY);
  assert_refused(plan, "no_caller", CT_REFUSED_ODD_ENTRY);
  assert_refused(plan, "handwritten", CT_REFUSED_NO_CFI);
  assert_refused(plan, "good.cold", CT_REFUSED_PART);
  assert_refused(plan, "stub", CT_REFUSED_PLT);
  assert_int_equal(plan->foreign_count, 0);
  ct_plan_free(plan);
  /* Where nothing has frames, a symbol is enough. */
  plan = plan_source(".balign 16\n bare first\n mov %edi, %eax\n nop\n nop\n nop\n ret\n bare_end first\n"
                     ".balign 16\n bare second\n mov %edi, %eax\n nop\n nop\n nop\n ret\n bare_end second\n");
  assert_full(plan, "first");
  assert_full(plan, "second");
  ct_plan_free(plan);
}

static void
long_runs_without_frames(void **state)
{
#define GOOD(n) "fn good" #n "\n mov %edi, %eax\n nop\n nop\n nop\n ret\n end good" #n "\n"
  struct ct_plan *plan = plan_source(
      GOOD(0) GOOD(1) GOOD(2) GOOD(3) ".balign 16\n"
                                      "bare small\n .skip 0x4000, 0x90\n ret\n bare_end small\n" GOOD(
                                          4) ".balign 16\n"
                                             "bare run0\n .skip 0x9000, 0x90\n ret\n bare_end run0\n"
                                             "bare run1\n .skip 0x9000, 0x90\n ret\n bare_end run1\n" GOOD(5) GOOD(6));
  assert_int_equal(plan->foreign_count, 1);
  assert_int_equal(plan->foreign[0].start, planned(plan, "run0")->address);
  assert_int_equal(plan->foreign[0].end, planned(plan, "run1")->address + 0x9001);
  assert_refused(plan, "run0", CT_REFUSED_NO_CFI);
  assert_full(plan, "good4");
  assert_full(plan, "good5");
  ct_plan_free(plan);
#undef GOOD
}

/* The unwinder goes to landing pads, which no branch does. */
static void
landing_pads_in_the_patch(void **state)
{
  struct ct_plan *plan = plan_source(
      "fn lands_early\n .cfi_personality 0x9b, personality_pointer\n .cfi_lsda 0x1b, table\n mov %edi, %eax\n"
      "pad: mov %edi, %ecx\n nop\n nop\n nop\n ret\n end lands_early\n"
      "fn lands_late\n .cfi_personality 0x9b, personality_pointer\n .cfi_lsda 0x1b, late_table\n mov %edi, %eax\n"
      " mov %edi, %ecx\n nop\nlate_pad: nop\n nop\n ret\n end lands_late\n"
      "fn lands_elsewhere\n .cfi_personality 0x9b, personality_pointer\n .cfi_lsda 0x1b, far_table\n mov %edi, %eax\n"
      " nop\n nop\n nop\n nop\n ret\n end lands_elsewhere\n"
      "fn landed_in\n mov %edi, %eax\nfar_pad: mov %edi, %ecx\n nop\n nop\n nop\n ret\n end landed_in\n"
      "fn personality\n mov $8, %eax\n ret\n end personality\n"
      ".section .gcc_except_table, \"a\", @progbits\n"
      "table: .byte 0xff, 0xff, 1, 4, 0, 1\n .uleb128 pad-lands_early\n .byte 0\n"
      "late_table: .byte 0xff, 0xff, 1, 4, 0, 1\n .uleb128 late_pad-lands_late\n .byte 0\n"
      "far_table: .byte 0x1b\n .long landed_in-.\n .byte 0xff, 3, 13\n .long 0, 1, far_pad-landed_in\n .byte 0\n"
      ".section .data.rel, \"aw\", @progbits\n"
      "personality_pointer: .quad personality\n");
  assert_clear_of(plan, "lands_early", CT_TACTIC_SHORT, 2);
  assert_full(plan, "lands_late");
  assert_full(plan, "lands_elsewhere");
  assert_clear_of(plan, "landed_in", CT_TACTIC_SHORT, 2);
  ct_plan_free(plan);
}

/* A part split off by g++, with its landing pad first: never hooked, whatever it is called. */
static void
cold_parts_of_real_code(void **state)
{
  put_file("cold.cc", "extern void risky(int); extern void note(int) __attribute__((cold));\n"
                      "int caught(int x) { try { risky(x); } catch (...) { note(x); return -1; } return x; }\n");
  if (shell("g++ -O2 -shared -fPIC -o cold.so cold.cc && g++ -O2 -shared -fPIC -s -o cold_stripped.so cold.cc") != 0) {
    skip();
  }
  struct ct_plan *plan = plan_file("cold.so");
  bool parts = false;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    if (f->name != NULL && strstr(f->name, ".cold") != NULL) {
      parts = true;
      assert_int_equal(f->refusal, CT_REFUSED_PART);
    }
  }
  assert_int_equal(planned(plan, "_Z6caughti")->refusal, CT_REFUSED_NOT);
  ct_plan_free(plan);
  if (!parts) {
    skip();
  }
  plan = plan_file("cold_stripped.so");
  for (size_t i = 0; i < plan->count; i++) { /* without a name its frame or its landing pad must tell */
    assert_true(plan->functions[i].name != NULL || plan->functions[i].refusal != CT_REFUSED_NOT);
  }
  ct_plan_free(plan);
}

/* The function without a name after the named one. */
static const struct ct_planned *
after(const struct ct_plan *plan, const char *name)
{
  const struct ct_planned *next = planned(plan, name) + 1;
  assert_true(next < plan->functions + plan->count);
  if (next->name != NULL) {
    fail_msg("after %s there is %s", name, next->name);
  }
  return next;
}

/* What only jumps go to, in a file without names for it: a part, or a function that is tail-called. */
static void
parts_without_names(void **state)
{
  struct ct_plan *plan = plan_source(
      ".macro code label\n .balign 16, 0xcc\n \\label:\n .cfi_startproc\n .endm\n"
      ".Lnowhere: ret\n fn first\n mov %edi, %eax\n test %edi, %edi\n jmp .Lnowhere\n end first\n"
      "fn goes_out\n mov %edi, %eax\n test %edi, %edi\n jmp .Lback\n.Lmiddle: inc %eax\n ret\n end goes_out\n"
      "code .Lback\n mov $3, %ecx\n mov $3, %edx\n jmp .Lmiddle\n .cfi_endproc\n"
      "fn leaf\n mov %edi, -8(%rsp)\n test %edi, %edi\n je .Lreads\n ret\n end leaf\n"
      "code .Lreads\n mov -8(%rsp), %eax\n imul $100, %eax\n ret\n .cfi_endproc\n"
      "fn tail_calls\n test %edi, %edi\n je .Ltail\n mov $1, %eax\n ret\n end tail_calls\n"
      "code .Ltail\n mov %edi, %eax\n add %esi, %eax\n nop\n ret\n .cfi_endproc\n"
      /* It goes into the middle of a part of its own, which is not where it is called from. */
      "fn tail_calls_too\n mov %edi, %esi\n inc %esi\n jmp .Lmain\n end tail_calls_too\n"
      "code .Lmain\n mov %edi, %eax\n test %edi, %edi\n je .Lunlikely\n.Lhome: ret\n .cfi_endproc\n"
      "code .Lunlikely_first\n nop\n.Lunlikely: mov $5, %eax\n jmp .Lhome\n .cfi_endproc\n"
      "fn calls\n mov %edi, %eax\n mov %edi, %esi\n call .Lcalled\n jmp .Lcalled\n end calls\n"
      "code .Lcalled\n mov %edi, -8(%rsp)\n mov -8(%rsp), %eax\n ret\n .cfi_endproc\n");
  assert_int_equal(after(plan, "goes_out")->refusal, CT_REFUSED_PART);
  assert_int_equal(after(plan, "leaf")->refusal, CT_REFUSED_PART);
  assert_int_equal(after(plan, "tail_calls")->refusal, CT_REFUSED_NOT);
  assert_int_equal(after(plan, "tail_calls_too")->refusal, CT_REFUSED_NOT);
  assert_int_equal(after(plan, "calls")->refusal, CT_REFUSED_NOT);
  ct_plan_free(plan);
  /* BOLT's names. */
  plan = plan_source("fn hot\n mov %edi, -8(%rsp)\n jmp hot.warm\n end hot\n"
                     "fn hot.warm\n mov -8(%rsp), %eax\n imul $100, %eax\n jmp hot.cold.0\n end hot.warm\n"
                     "fn hot.cold.0\n mov -8(%rsp), %eax\n imul $100, %eax\n ret\n end hot.cold.0\n"
                     "fn not.warmer\n mov %edi, %eax\n imul $100, %eax\n ret\n end not.warmer\n");
  assert_full(plan, "hot");
  assert_refused(plan, "hot.warm", CT_REFUSED_PART);
  assert_refused(plan, "hot.cold.0", CT_REFUSED_PART);
  assert_full(plan, "not.warmer");
  ct_plan_free(plan);
}

static void
refusals_have_names(void **state)
{
  for (int r = 0; r < CT_REFUSED_COUNT; r++) {
    assert_true(strlen(ct_refusal_key((enum ct_refusal)r)) != 0);
    assert_true(strlen(ct_refusal_text((enum ct_refusal)r)) != 0);
    for (int s = 0; s < r; s++) {
      assert_string_not_equal(ct_refusal_key((enum ct_refusal)r), ct_refusal_key((enum ct_refusal)s));
    }
  }
  assert_true(ct_refusal_is_callable(CT_REFUSED_TOO_SHORT));
  assert_false(ct_refusal_is_callable(CT_REFUSED_PLT));
}

static void
failures_leave_the_plan_alone(void **state)
{
  struct ct_plan *plan = (struct ct_plan *)8;
  struct ct_diag diag = {{0}};
  put_file("text", "no ELF file\n");
  char path[128];
  snprintf(path, sizeof(path), "%s/text", folder);
  assert_int_equal(ct_plan_create(path, &plan, &diag), CT_EFORMAT);
  assert_true(diag.text[0] != 0);
  assert_int_equal(ct_plan_create("/nonexistent/file", &plan, &diag), CT_ENOENT);
  assert_ptr_equal(plan, (struct ct_plan *)8);
  ct_plan_free(NULL);
}

static int
set_up(void **state)
{
  snprintf(folder, sizeof(folder), "/tmp/ct_plan_test.XXXXXX");
  return mkdtemp(folder) == NULL ? -1 : 0;
}

static int
tear_down(void **state)
{
  char command[128];
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_touches_the_ra_slot),
      cmocka_unit_test(the_ra_slot_without_cfi),
      cmocka_unit_test(tail_jumps_hand_the_ra_slot_on),
      cmocka_unit_test(a_long_chain_of_tail_jumps),
      cmocka_unit_test(branches_into_the_patch),
      cmocka_unit_test(an_entry_inside_an_instruction),
      cmocka_unit_test(without_padding),
      cmocka_unit_test(data_after_the_code),
      cmocka_unit_test(short_functions),
      cmocka_unit_test(first_instructions),
      cmocka_unit_test(gs_in_data_and_code),
      cmocka_unit_test(values_in_the_flags),
      cmocka_unit_test(system_calls),
      cmocka_unit_test(names_that_call_out),
      cmocka_unit_test(users_of_gs),
      cmocka_unit_test(runtimes_that_read_return_addresses),
      cmocka_unit_test(entries_by_their_frames),
      cmocka_unit_test(long_runs_without_frames),
      cmocka_unit_test(landing_pads_in_the_patch),
      cmocka_unit_test(cold_parts_of_real_code),
      cmocka_unit_test(parts_without_names),
      cmocka_unit_test(refusals_have_names),
      cmocka_unit_test(failures_leave_the_plan_alone),
      cmocka_unit_test(vector_loads_of_the_ra_slot),
  };
  return cmocka_run_group_tests_name("plan", tests, set_up, tear_down);
}
