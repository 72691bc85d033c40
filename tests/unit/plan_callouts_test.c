/* SPDX-License-Identifier: MIT */
/*
 * What the planner finds in functions that need more than a hook: names and system calls that call out, users of gs,
 * runtimes that read return addresses, entries that only their frames tell of; and how it refuses.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "plan_source.h"
#include "x86/scan.h"

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
             {"arch_prctl", CT_CALLOUT_ARCH_PRCTL},
             {"__arch_prctl", CT_CALLOUT_ARCH_PRCTL},
             {"dl_iterate_phdr", CT_CALLOUT_MODULES},
             {"__dl_iterate_phdr", CT_CALLOUT_MODULES},
             {"_dl_find_object", CT_CALLOUT_FIND_OBJECT},
             {"execveat", CT_CALLOUT_EXEC},
             {"fexecve", CT_CALLOUT_EXEC},
             {"getrlimit", CT_CALLOUT_LIMIT_GET},
             {"getrlimit64", CT_CALLOUT_LIMIT_GET},
             {"__getrlimit", CT_CALLOUT_LIMIT_GET},
             {"__getrlimit64", CT_CALLOUT_LIMIT_GET},
             {"setrlimit", CT_CALLOUT_LIMIT_SET},
             {"setrlimit64", CT_CALLOUT_LIMIT_SET},
             {"__setrlimit", CT_CALLOUT_LIMIT_SET},
             {"__setrlimit64", CT_CALLOUT_LIMIT_SET},
             {"prlimit", CT_CALLOUT_LIMIT_BOTH},
             {"prlimit64", CT_CALLOUT_LIMIT_BOTH},
             {"madvise", CT_CALLOUT_ADVISE},
             {"__madvise", CT_CALLOUT_ADVISE},
             {"make_fcontext", CT_CALLOUT_MAKE_FCONTEXT},
             {"makecontext", CT_CALLOUT_MAKECONTEXT},
             {"__makecontext", CT_CALLOUT_MAKECONTEXT},
             {"mmap", CT_CALLOUT_MMAP},
             {"mmap64", CT_CALLOUT_MMAP},
             {"__mmap", CT_CALLOUT_MMAP},
             {"__mmap64", CT_CALLOUT_MMAP},
             {"munmap", CT_CALLOUT_MUNMAP},
             {"__munmap", CT_CALLOUT_MUNMAP},
             {"mprotect", CT_CALLOUT_PROTECT},
             {"__mprotect", CT_CALLOUT_PROTECT},
             {"pkey_mprotect", CT_CALLOUT_PROTECT},
             {"mremap", CT_CALLOUT_REMAP},
             {"__mremap", CT_CALLOUT_REMAP},
             {"__prctl", CT_CALLOUT_SECCOMP},
             {"__sigaction", CT_CALLOUT_SIGACTION},
             {"memcpy", CT_CALLOUT_COPY},
             {"__memmove_chk", CT_CALLOUT_COPY},
             {"__mempcpy_avx_unaligned", CT_CALLOUT_COPY},
             {"memcmp", CT_CALLOUT_NONE},
             {"fread", CT_CALLOUT_NONE},
             {"_Zn", CT_CALLOUT_NONE},
             {"execve_not", CT_CALLOUT_NONE}};

static void
names_that_call_out(void **state)
{
  char source[16384];
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
  put_text("text", "no ELF file\n");
  char path[128];
  snprintf(path, sizeof(path), "%s/text", folder);
  assert_int_equal(ct_plan_create(path, &plan, &diag), CT_EFORMAT);
  assert_true(diag.text[0] != 0);
  assert_int_equal(ct_plan_create("/nonexistent/file", &plan, &diag), CT_ENOENT);
  assert_ptr_equal(plan, (struct ct_plan *)8);
  ct_plan_free(NULL);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gs_in_data_and_code),
      cmocka_unit_test(system_calls),
      cmocka_unit_test(names_that_call_out),
      cmocka_unit_test(users_of_gs),
      cmocka_unit_test(runtimes_that_read_return_addresses),
      cmocka_unit_test(entries_by_their_frames),
      cmocka_unit_test(long_runs_without_frames),
      cmocka_unit_test(refusals_have_names),
      cmocka_unit_test(failures_leave_the_plan_alone),
  };
  return cmocka_run_group_tests_name("plan_callouts", tests, make_folder, remove_folder);
}
