/* SPDX-License-Identifier: MIT */
/*
 * The planner on small modules written in assembly, one function for each case: by which tactic and mode it is
 * hooked, or why it is left out. A test that needs a tool that is missing is skipped.
 */
#include "plan_source.h"
#include "x86/scan.h"

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
  put_text("cold.cc", "extern void risky(int); extern void note(int) __attribute__((cold));\n"
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
      cmocka_unit_test(values_in_the_flags),
      cmocka_unit_test(landing_pads_in_the_patch),
      cmocka_unit_test(cold_parts_of_real_code),
      cmocka_unit_test(parts_without_names),
      cmocka_unit_test(vector_loads_of_the_ra_slot),
  };
  return cmocka_run_group_tests_name("plan", tests, make_folder, remove_folder);
}
