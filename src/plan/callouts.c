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

/* By name, the first that fits. */
static const struct {
  const char *names[6];
  uint8_t callout;
} by_name[] = {
    {{"sigaction", "__sigaction", "__libc_sigaction"}, CT_CALLOUT_SIGACTION},
    {{"write", "__write", "__libc_write", "__write_nocancel"}, CT_CALLOUT_WRITE},
    {{"writev", "__writev", "__libc_writev"}, CT_CALLOUT_WRITEV},
    {{"mmap", "mmap64", "__mmap", "__mmap64"}, CT_CALLOUT_MMAP},
    {{"munmap", "__munmap"}, CT_CALLOUT_MUNMAP},
    {{"mprotect", "__mprotect", "pkey_mprotect"}, CT_CALLOUT_PROTECT},
    {{"madvise", "__madvise"}, CT_CALLOUT_ADVISE},
    {{"makecontext", "__makecontext"}, CT_CALLOUT_MAKECONTEXT},
    {{"make_fcontext"}, CT_CALLOUT_MAKE_FCONTEXT},
    {{"_dl_debug_state"}, CT_CALLOUT_RENDEZVOUS},
    {{"_Unwind_Find_FDE"}, CT_CALLOUT_FIND_FDE},
    {{"dl_iterate_phdr", "__dl_iterate_phdr"}, CT_CALLOUT_MODULES},
    {{"_dl_find_object"}, CT_CALLOUT_FIND_OBJECT},
    {{"execve", "__execve", "execveat", "fexecve"}, CT_CALLOUT_EXEC},
    {{"mlockall"}, CT_CALLOUT_MLOCKALL},
    {{"mremap", "__mremap"}, CT_CALLOUT_REMAP},
    {{"syscall"}, CT_CALLOUT_SYSCALL},
    {{"arch_prctl", "__arch_prctl"}, CT_CALLOUT_ARCH_PRCTL},
    {{"getrlimit", "getrlimit64", "__getrlimit", "__getrlimit64"}, CT_CALLOUT_LIMIT_GET},
    {{"setrlimit", "setrlimit64", "__setrlimit", "__setrlimit64"}, CT_CALLOUT_LIMIT_SET},
    {{"prlimit", "prlimit64"}, CT_CALLOUT_LIMIT_BOTH},
    {{"prctl", "__prctl"}, CT_CALLOUT_SECCOMP},
};

/* By what the code does, whatever its name. */
static uint8_t
callout_by_code(const struct planner *planner, const struct ct_function *function, uint32_t facts)
{
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
  return (facts & CT_FACT_READS_FRAMES) != 0 ? CT_CALLOUT_FRAMES : CT_CALLOUT_NONE;
}

uint8_t
ct_planner_callout(const struct planner *planner, const struct ct_function *function, uint32_t facts)
{
  uint8_t callout = callout_by_code(planner, function, facts);
  if (callout != CT_CALLOUT_NONE) {
    return callout;
  }
  if (function->name == NULL) { /* in a stripped program that has a libc in it */
    return (facts & CT_FACT_SIGACTION) != 0 && function->size <= SIGACTION_BYTES_MAX ? CT_CALLOUT_SIGACTION
                                                                                     : CT_CALLOUT_NONE;
  }
  for (size_t i = 0; i < sizeof(by_name) / sizeof(by_name[0]); i++) {
    /* Not what calls another one by that name, which reports it. */
    bool writes = by_name[i].callout == CT_CALLOUT_WRITE || by_name[i].callout == CT_CALLOUT_WRITEV;
    if (has_name(planner, function, by_name[i].names) && (!writes || writes_itself(planner, facts))) {
      return by_name[i].callout;
    }
  }
  return CT_CALLOUT_NONE;
}
