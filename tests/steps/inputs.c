/* SPDX-License-Identifier: MIT */
/* See inputs.h. */
#include "inputs.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

void
inputs_begin(struct inputs *inputs, pid_t pid)
{
  char path[64], line[512];
  struct input_pages pages;
  *inputs = (struct inputs){.page_count = 0};
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    bool is_kernels = strstr(line, " [vvar") != NULL && inputs->page_count < INPUT_PAGES;
    if (is_kernels && sscanf(line, "%" SCNx64 "-%" SCNx64, &pages.start, &pages.end) == 2) {
      inputs->pages[inputs->page_count++] = pages;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

void
inputs_add_id(struct inputs *inputs, uint64_t recorded, uint64_t real)
{
  if (recorded != real && inputs->id_count < INPUT_IDS) {
    inputs->ids[inputs->id_count++] = (struct input_id){recorded, real};
  }
}

uint64_t
inputs_real_id(const struct inputs *inputs, uint64_t recorded)
{
  for (size_t i = inputs->id_count; i > 0; i--) {
    const struct input_id *id = &inputs->ids[i - 1];
    if ((uint32_t)recorded == (uint32_t)id->recorded) {
      return id->real;
    }
    if ((uint32_t)recorded == -(uint32_t)id->recorded) { /* of a group */
      return -id->real;
    }
  }
  return recorded;
}

/* ---- instructions ---- */

bool
inputs_is_counter(const struct ct_effects *effects, const uint8_t *code)
{
  size_t at = 0;
  while (at + 3 < effects->length && (code[at] == 0x66 || (code[at] & 0xf0) == 0x40)) {
    at++;
  }
  const uint8_t *op = code + at;
  size_t left = effects->length - at;
  if (left < 2 || op[0] != 0x0f) {
    return false;
  }
  bool is_random = left == 3 && op[1] == 0xc7 && op[2] >= 0xf0; /* rdrand, rdseed */
  return op[1] == 0x31 || (left == 3 && op[1] == 0x01 && op[2] == 0xf9) || is_random;
}

bool
inputs_is_clock(const struct inputs *inputs, const struct ct_effects *effects, const struct ct_cpu *before)
{
  for (unsigned i = 0; i < effects->access_count; i++) {
    const struct ct_access *access = &effects->access[i];
    if ((access->how & CT_ACCESS_READ) == 0 || (access->how & CT_ACCESS_VECTOR) != 0) {
      continue;
    }
    uint64_t at = ct_address(effects, access, before);
    for (size_t k = 0; k < inputs->page_count; k++) {
      if (at >= inputs->pages[k].start && at < inputs->pages[k].end) {
        return true;
      }
    }
  }
  return false;
}

/* ---- system calls ---- */

bool
inputs_returns_id(uint64_t number)
{
  switch (number) {
  case SYS_set_tid_address:
  case SYS_getpid:
  case SYS_gettid:
  case SYS_getppid:
  case SYS_getpgrp:
  case SYS_getpgid:
  case SYS_getsid:
  case SYS_setsid:
  case SYS_wait4:
  case SYS_clone:
  case SYS_clone3:
  case SYS_fork:
  case SYS_vfork:
    return true;
  default:
    return false;
  }
}

bool
inputs_is_other(uint64_t number)
{
  return number == SYS_time || number == SYS_times || inputs_returns_id(number);
}

unsigned
inputs_id_arguments(uint64_t number)
{
  switch (number) {
  case SYS_tgkill:
  case SYS_rt_tgsigqueueinfo:
  case SYS_setpgid:
    return 2;
  case SYS_kill:
  case SYS_tkill:
  case SYS_rt_sigqueueinfo:
  case SYS_wait4:
  case SYS_getpgid:
  case SYS_getsid:
  case SYS_prlimit64:
  case SYS_sched_getaffinity:
  case SYS_sched_setaffinity:
    return 1;
  default:
    return 0;
  }
}

bool
inputs_is_not_made(uint64_t number)
{
  switch (number) {
  case SYS_alarm:
  case SYS_setitimer:
  case SYS_getitimer:
  case SYS_timer_create:
  case SYS_timer_settime:
  case SYS_timer_gettime:
  case SYS_timer_delete:
  case SYS_nanosleep:
  case SYS_clock_nanosleep:
  case SYS_pause:
    return true;
  default:
    return false;
  }
}

bool
inputs_is_other_file(pid_t pid, uint64_t number, uint64_t file)
{
  char link[64], path[256];
  if (number != SYS_read && number != SYS_pread64) {
    return false;
  }
  snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pid, (int)file);
  ssize_t size = readlink(link, path, sizeof(path) - 1);
  path[size > 0 ? size : 0] = 0;
  return strcmp(path, "/dev/urandom") == 0 || strcmp(path, "/dev/random") == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* When it was read, written, changed; and its number, which is another one each time for files of /proc. */
static bool
is_file_input(uint64_t at)
{
  enum { NUMBER_BYTES = sizeof(((struct stat *)0)->st_ino) };
  bool is_number = at >= offsetof(struct stat, st_ino) && at < offsetof(struct stat, st_ino) + NUMBER_BYTES;
  return is_number ||
         (at >= offsetof(struct stat, st_atim) && at < offsetof(struct stat, st_ctim) + sizeof(struct timespec));
}

bool
inputs_is_written(uint64_t number, uint64_t at)
{
  switch (number) {
  case SYS_getrandom:
  case SYS_clock_gettime:
  case SYS_gettimeofday:
  case SYS_time:
  case SYS_times:
  case SYS_getrusage:
  case SYS_sysinfo:
  case SYS_statfs:
  case SYS_fstatfs:
  case SYS_clone:
  case SYS_clone3:
    return true;
  case SYS_stat:
  case SYS_lstat:
  case SYS_fstat:
  case SYS_newfstatat:
    return is_file_input(at);
  case SYS_statx:
    return at >= offsetof(struct statx, stx_atime) && at < offsetof(struct statx, stx_rdev_major);
  default:
    return inputs_is_not_made(number);
  }
}

/* ---- signals ---- */

bool
inputs_is_fault(int signal, int code)
{
  return code > 0 &&
         (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGTRAP);
}

bool
inputs_is_of_frame(int signal, int code, uint64_t at, uint64_t info_at, uint64_t context_at, uint8_t bits)
{
  enum { WHO = 16, WHO_END = 48 }; /* of siginfo: sender, timer, value */
  uint64_t registers = context_at + offsetof(ucontext_t, uc_mcontext.gregs);
  if (at >= registers + 8ull * REG_ERR && at < registers + 8ull * (REG_TRAPNO + 1)) {
    return !inputs_is_fault(signal, code); /* of the last fault that there was */
  }
  if (at >= registers + 8ull * REG_CR2 && at < registers + 8ull * (REG_CR2 + 1)) {
    return !inputs_is_fault(signal, code) || (signal != SIGSEGV && signal != SIGBUS);
  }
  if (at ==
      registers + 8ull * REG_EFL + 2) { /* the resume flag, as the interrupt has left it that the signal came by */
    return !inputs_is_fault(signal, code) && bits == 1;
  }
  return !inputs_is_fault(signal, code) && at >= info_at + WHO && at < info_at + WHO_END;
}
