/* SPDX-License-Identifier: MIT */
/*
 * What functions' names mean to the planner. Each name of a module is looked at once, and nearly none means anything:
 * so the first letters decide about most, and a search in a sorted table about the others.
 */
#include "plan/plan_internal.h"

#include "target/elf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct name {
  const char *name;
  uint8_t callout;
};

/* Sorted by name, byte by byte. */
static const struct name callouts[] = {
    {"_Unwind_Find_FDE", CT_CALLOUT_FIND_FDE},
    {"__arch_prctl", CT_CALLOUT_ARCH_PRCTL},
    {"__dl_iterate_phdr", CT_CALLOUT_MODULES},
    {"__execve", CT_CALLOUT_EXEC},
    {"__getrlimit", CT_CALLOUT_LIMIT_GET},
    {"__getrlimit64", CT_CALLOUT_LIMIT_GET},
    {"__libc_sigaction", CT_CALLOUT_SIGACTION},
    {"__libc_write", CT_CALLOUT_WRITE},
    {"__libc_writev", CT_CALLOUT_WRITEV},
    {"__madvise", CT_CALLOUT_ADVISE},
    {"__makecontext", CT_CALLOUT_MAKECONTEXT},
    {"__mmap", CT_CALLOUT_MMAP},
    {"__mmap64", CT_CALLOUT_MMAP},
    {"__mprotect", CT_CALLOUT_PROTECT},
    {"__mremap", CT_CALLOUT_REMAP},
    {"__munmap", CT_CALLOUT_MUNMAP},
    {"__prctl", CT_CALLOUT_SECCOMP},
    {"__setrlimit", CT_CALLOUT_LIMIT_SET},
    {"__setrlimit64", CT_CALLOUT_LIMIT_SET},
    {"__sigaction", CT_CALLOUT_SIGACTION},
    {"__write", CT_CALLOUT_WRITE},
    {"__write_nocancel", CT_CALLOUT_WRITE},
    {"__writev", CT_CALLOUT_WRITEV},
    {"_dl_debug_state", CT_CALLOUT_RENDEZVOUS},
    {"_dl_find_object", CT_CALLOUT_FIND_OBJECT},
    {"arch_prctl", CT_CALLOUT_ARCH_PRCTL},
    {"dl_iterate_phdr", CT_CALLOUT_MODULES},
    {"execve", CT_CALLOUT_EXEC},
    {"execveat", CT_CALLOUT_EXEC},
    {"fexecve", CT_CALLOUT_EXEC},
    {"getrlimit", CT_CALLOUT_LIMIT_GET},
    {"getrlimit64", CT_CALLOUT_LIMIT_GET},
    {"madvise", CT_CALLOUT_ADVISE},
    {"make_fcontext", CT_CALLOUT_MAKE_FCONTEXT},
    {"makecontext", CT_CALLOUT_MAKECONTEXT},
    {"mlockall", CT_CALLOUT_MLOCKALL},
    {"mmap", CT_CALLOUT_MMAP},
    {"mmap64", CT_CALLOUT_MMAP},
    {"mprotect", CT_CALLOUT_PROTECT},
    {"mremap", CT_CALLOUT_REMAP},
    {"munmap", CT_CALLOUT_MUNMAP},
    {"pkey_mprotect", CT_CALLOUT_PROTECT},
    {"prctl", CT_CALLOUT_SECCOMP},
    {"prlimit", CT_CALLOUT_LIMIT_BOTH},
    {"prlimit64", CT_CALLOUT_LIMIT_BOTH},
    {"setrlimit", CT_CALLOUT_LIMIT_SET},
    {"setrlimit64", CT_CALLOUT_LIMIT_SET},
    {"sigaction", CT_CALLOUT_SIGACTION},
    {"syscall", CT_CALLOUT_SYSCALL},
    {"write", CT_CALLOUT_WRITE},
    {"writev", CT_CALLOUT_WRITEV},
};
static_assert(CT_CALLOUT_ITRACE <= CT_NAMED_CALLOUT, "the last one has room beside the flags");

/* memcpy and memcpy@GLIBC_2.14 */
static bool
is_one_of(const char *name, const char *const *names, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(names[i]);
    if (strncmp(name, names[i], length) == 0 && (name[length] == '\0' || name[length] == '@')) {
      return true;
    }
  }
  return false;
}

static bool
is_copy(const char *name)
{
  static const char *const names[] = {"memcpy",       "memmove",       "mempcpy",      "__mempcpy",
                                      "__memcpy_chk", "__memmove_chk", "__mempcpy_chk"};
  /* glibc's functions for one kind of processor, where it has names: __memmove_avx_unaligned_erms */
  return is_one_of(name, names, sizeof(names) / sizeof(names[0])) || strncmp(name, "__memcpy_", 9) == 0 ||
         strncmp(name, "__memmove_", 10) == 0 || strncmp(name, "__mempcpy_", 10) == 0;
}

static bool
is_count(const char *name)
{
  static const char *const names[] = {"mcount", "_mcount", "__fentry__"};
  return is_one_of(name, names, sizeof(names) / sizeof(names[0]));
}

static int
compare_names(const void *key, const void *element)
{
  const struct name *name = element;
  return strcmp(key, name->name);
}

/* Of one name. Those of C++ and Rust mean nothing. */
static uint8_t
meaning(const char *name)
{
  if (name[0] == '_' && (name[1] == 'Z' || name[1] == 'R')) {
    return 0;
  }
  const struct name *found =
      bsearch(name, callouts, sizeof(callouts) / sizeof(callouts[0]), sizeof(callouts[0]), compare_names);
  if (found != NULL) {
    return found->callout;
  }
  const char *first = name + strspn(name, "_");
  if (first[0] != 'm' && first[0] != 'f') {
    return 0;
  }
  return is_copy(name) ? CT_NAMED_COPIES : is_count(name) ? CT_NAMED_COUNTS : 0;
}

uint8_t
ct_names_look_up(const struct ct_elf *elf, const struct ct_function *function, size_t *next)
{
  uint8_t means = function->name != NULL ? meaning(function->name) : 0;
  const char *alias;
  while ((alias = ct_function_next_alias(elf, function, next)) != NULL) {
    uint8_t more = meaning(alias);
    means |= (means & CT_NAMED_CALLOUT) == 0 ? more : more & ~CT_NAMED_CALLOUT;
  }
  return means;
}
