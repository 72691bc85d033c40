/* SPDX-License-Identifier: MIT */
/* Which functions' trampolines do something besides recording: by their names, and by what they do. */
#include "plan/plan_internal.h"

#include "target/functions.h"
#include "x86/known.h"

#include <string.h>

#define EXEC_BYTES_MAX      512 /* a larger function that makes the system call does other things first */
#define SIGACTION_BYTES_MAX 768

static bool
named(const char *name, const char *const *names)
{
  for (; name != NULL && *names != NULL; names++) {
    if (strcmp(name, *names) == 0) {
      return true;
    }
  }
  return false;
}

/* True when the function bears one of the names, as its first name or as an alias. */
static bool
has_name(const struct planner *planner, const struct ct_function *function, const char *const *names)
{
  if (named(function->name, names)) {
    return true;
  }
  const char *alias;
  for (size_t n = 0; (alias = ct_function_alias(planner->plan->elf, function, n)) != NULL; n++) {
    if (named(alias, names)) {
      return true;
    }
  }
  return false;
}

static bool
is_longjmp(const struct planner *planner, const struct ct_function *function)
{
  static const char *const names[] = {"longjmp", "_longjmp", NULL};
  const uint8_t *code = ct_elf_bytes(planner->plan->elf, function->address, function->size);
  return code != NULL && (ct_is_glibc_longjmp(code, function->size) ||
                          (has_name(planner, function, names) && ct_is_musl_longjmp(code, function->size)));
}

/* It makes the system call, or is musl's, which has one function for all calls that can be cancelled. */
static bool
writes_itself(const struct planner *planner, uint32_t facts)
{
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t unused;
  return (facts & CT_FACT_WRITE) != 0 || ct_elf_symbol(elf, "__syscall_cp", &unused) == 0 ||
         (ct_elf_symbol(elf, "__libc_start_main", &unused) == 0 && ct_elf_symbol(elf, "_dl_debug_state", &unused) == 0);
}

uint8_t
ct_planner_callout(const struct planner *planner, const struct ct_function *function, uint32_t facts)
{
  static const char *const rendezvous[] = {"_dl_debug_state", NULL};
  static const char *const find_fde[] = {"_Unwind_Find_FDE", NULL};
  static const char *const exec[] = {"execve", "__execve", "execveat", "fexecve", NULL};
  static const char *const mlockall[] = {"mlockall", NULL};
  static const char *const mremap[] = {"mremap", "__mremap", NULL};
  static const char *const seccomp[] = {"prctl", "__prctl", NULL};
  static const char *const any_syscall[] = {"syscall", NULL};
  static const char *const limits[][5] = {{"getrlimit", "getrlimit64", "__getrlimit", "__getrlimit64", NULL},
                                          {"setrlimit", "setrlimit64", "__setrlimit", "__setrlimit64", NULL},
                                          {"prlimit", "prlimit64", NULL}};
  static const char *const arch_prctl[] = {"arch_prctl", "__arch_prctl", NULL};
  static const char *const modules[] = {"dl_iterate_phdr", "__dl_iterate_phdr", NULL};
  static const char *const find_object[] = {"_dl_find_object", NULL};
  static const char *const write[] = {"write", "__write", "__libc_write", "__write_nocancel", NULL};
  static const char *const writev[] = {"writev", "__writev", "__libc_writev", NULL};
  static const char *const mmap[] = {"mmap", "mmap64", "__mmap", "__mmap64", NULL};
  static const char *const munmap[] = {"munmap", "__munmap", NULL};
  static const char *const protect[] = {"mprotect", "__mprotect", "pkey_mprotect", NULL};
  static const char *const advise[] = {"madvise", "__madvise", NULL};
  static const char *const makecontext[] = {"makecontext", "__makecontext", NULL};
  static const char *const make_fcontext[] = {"make_fcontext", NULL};
  static const char *const sigaction[] = {"sigaction", "__sigaction", "__libc_sigaction", NULL};
  if ((facts & CT_FACT_GS_SET) != 0) {
    return CT_CALLOUT_GS;
  }
  if ((facts & CT_FACT_EXEC) != 0 && function->size <= EXEC_BYTES_MAX) {
    return CT_CALLOUT_EXEC;
  }
  if ((facts & (CT_FACT_CLONE | CT_FACT_VFORK)) != 0) {
    return CT_CALLOUT_PARK;
  }
  if (is_longjmp(planner, function)) {
    return CT_CALLOUT_LONGJMP;
  }
  if ((facts & CT_FACT_COPIES) != 0) {
    return CT_CALLOUT_COPY;
  }
  if ((facts & CT_FACT_MOVES_STACK) != 0) {
    return CT_CALLOUT_MOVE;
  }
  if ((facts & CT_FACT_COUNTS) != 0) {
    return CT_CALLOUT_COUNT;
  }
  if ((facts & CT_FACT_READS_FRAMES) != 0) {
    return CT_CALLOUT_FRAMES;
  }
  if (function->name == NULL) { /* in a stripped program that has a libc in it */
    return (facts & CT_FACT_SIGACTION) != 0 && function->size <= SIGACTION_BYTES_MAX ? CT_CALLOUT_SIGACTION
                                                                                     : CT_CALLOUT_NONE;
  }
  if (has_name(planner, function, sigaction)) {
    return CT_CALLOUT_SIGACTION;
  }
  /* Not what calls another one by that name, which reports it. */
  if (has_name(planner, function, write) && writes_itself(planner, facts)) {
    return CT_CALLOUT_WRITE;
  }
  if (has_name(planner, function, writev) && writes_itself(planner, facts)) {
    return CT_CALLOUT_WRITEV;
  }
  if (has_name(planner, function, mmap)) {
    return CT_CALLOUT_MMAP;
  }
  if (has_name(planner, function, munmap)) {
    return CT_CALLOUT_MUNMAP;
  }
  if (has_name(planner, function, protect)) {
    return CT_CALLOUT_PROTECT;
  }
  if (has_name(planner, function, advise)) {
    return CT_CALLOUT_ADVISE;
  }
  if (has_name(planner, function, makecontext)) {
    return CT_CALLOUT_MAKECONTEXT;
  }
  if (has_name(planner, function, make_fcontext)) {
    return CT_CALLOUT_MAKE_FCONTEXT;
  }
  if (has_name(planner, function, rendezvous)) {
    return CT_CALLOUT_RENDEZVOUS;
  }
  if (has_name(planner, function, find_fde)) {
    return CT_CALLOUT_FIND_FDE;
  }
  if (has_name(planner, function, modules)) {
    return CT_CALLOUT_MODULES;
  }
  if (has_name(planner, function, find_object)) {
    return CT_CALLOUT_FIND_OBJECT;
  }
  if (has_name(planner, function, exec)) {
    return CT_CALLOUT_EXEC;
  }
  if (has_name(planner, function, mlockall)) {
    return CT_CALLOUT_MLOCKALL;
  }
  if (has_name(planner, function, mremap)) {
    return CT_CALLOUT_REMAP;
  }
  if (has_name(planner, function, any_syscall)) {
    return CT_CALLOUT_SYSCALL;
  }
  if (has_name(planner, function, arch_prctl)) {
    return CT_CALLOUT_ARCH_PRCTL;
  }
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
    if (has_name(planner, function, limits[i])) {
      return (uint8_t)(CT_CALLOUT_LIMIT_GET + i);
    }
  }
  return has_name(planner, function, seccomp) ? CT_CALLOUT_SECCOMP : CT_CALLOUT_NONE;
}
