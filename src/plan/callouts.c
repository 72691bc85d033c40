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
ct_planner_callout(const struct planner *planner, size_t i, uint32_t facts)
{
  const struct ct_function *function = &planner->functions[i];
  uint8_t callout = callout_by_code(planner, function, facts);
  if (callout != CT_CALLOUT_NONE) {
    return callout;
  }
  if (function->name == NULL) { /* in a stripped program that has a libc in it */
    return (facts & CT_FACT_SIGACTION) != 0 && function->size <= SIGACTION_BYTES_MAX ? CT_CALLOUT_SIGACTION
                                                                                     : CT_CALLOUT_NONE;
  }
  callout = planner->named[i] & CT_NAMED_CALLOUT;
  /* Not what calls another one by that name, which reports it. */
  bool writes = callout == CT_CALLOUT_WRITE || callout == CT_CALLOUT_WRITEV;
  return writes && !writes_itself(planner, facts) ? CT_CALLOUT_NONE : callout;
}
