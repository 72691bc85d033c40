/* SPDX-License-Identifier: MIT */
/* See stepping.h. */
#include "stepping.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { XSTATE_MAX = 16384, TRAP_FLAG = 0x100, RESUME_FLAG = 0x10000 };
enum { AVX = 2, OPMASK = 5, ZMM_HIGH = 6, ZMM_16_31 = 7 }; /* components of XSAVE, in its standard form */

/* Where it is; 0: there is none. Asked once: cpuid takes long in a virtual machine. */
static unsigned
component(unsigned number)
{
  static unsigned offsets[ZMM_16_31 + 1], is_known;
  unsigned size, c, d, b, low;
  if ((is_known >> number & 1) == 0) {
    if (__get_cpuid_count(0xd, 0, &low, &b, &c, &d) != 0 && (low >> number & 1) != 0) {
      __get_cpuid_count(0xd, number, &size, &offsets[number], &c, &d);
    }
    is_known |= 1u << number;
  }
  return offsets[number];
}

struct vectors_shape
machine_shape(void)
{
  struct vectors_shape shape = {.vectors = 16, .bytes = 16, .masks = 0};
  if (component(ZMM_HIGH) != 0) {
    shape = (struct vectors_shape){.vectors = 32, .bytes = 64, .masks = 8};
  } else if (component(AVX) != 0) {
    shape.bytes = 32;
  }
  return shape;
}

static void
fix_random_bytes(pid_t pid)
{
  char path[64];
  unsigned long entry[2];
  snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fread(entry, sizeof(entry), 1, file) == 1) {
    if (entry[0] == AT_RANDOM) {
      ptrace(PTRACE_POKEDATA, pid, entry[1], 0x0123456789abcd00);
      ptrace(PTRACE_POKEDATA, pid, entry[1] + 8, 0x0fedcba987654321);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

pid_t
machine_start(const char *output, char *const argv[])
{
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    int file = output != NULL ? open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (output != NULL && (file < 0 || dup2(file, 1) < 0)) {
      _exit(127);
    }
    if (getenv("STEPPED_PRELOAD") != NULL) {
      setenv("LD_PRELOAD", getenv("STEPPED_PRELOAD"), 1);
      unsetenv("STEPPED_PRELOAD");
    }
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execvp(argv[0], argv);
    _exit(127);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    return -1;
  }
  ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC);
  fix_random_bytes(pid);
  return pid;
}

/* The end of the executable mapping at which the process is; 0: none. */
static uint64_t
end_of_code(pid_t pid, uint64_t at)
{
  char path[64], line[512];
  uint64_t start, end, found = 0;
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && at >= start && at < end) {
      found = end;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return found;
}

static bool
put_in_loop(pid_t pid, uint64_t *slot, uint64_t *first)
{
  struct user_regs_struct r;
  uint64_t loop[2] = {0x25ff90f3, 0}, room[2] = {1, 1}; /* pause; jmp *(the last 8 bytes) */
  if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) {
    return false;
  }
  uint64_t at = end_of_code(pid, r.rip) - 24;
  *first = r.rip;
  *slot = at + 16;
  loop[0] |= (uint64_t)(16 - 8) << 32;
  if (machine_peek(pid, at, room, sizeof(room)) != sizeof(room) || room[0] != 0 || room[1] != 0) {
    return false;
  }
  r.rip = at;
  ptrace(PTRACE_POKEDATA, pid, at, loop[0]);
  ptrace(PTRACE_POKEDATA, pid, *slot, at);
  ptrace(PTRACE_SETREGS, pid, NULL, &r);
  ptrace(PTRACE_SETOPTIONS, pid, NULL, 0);
  return ptrace(PTRACE_DETACH, pid, NULL, 0) == 0;
}

int
machine_hold(const char *output, char *const argv[])
{
  int status = 0;
  uint64_t slot, first;
  pid_t pid = machine_start(output, argv);
  if (pid < 0 || !put_in_loop(pid, &slot, &first)) {
    return 1;
  }
  printf("%d %" PRIu64 " %" PRIu64 "\n", (int)pid, slot, first);
  fflush(stdout);
  while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void
take_vectors(const uint8_t *area, size_t bytes, struct ct_steps_state *state)
{
  struct vectors_shape shape = machine_shape();
  unsigned avx = component(AVX), high = component(ZMM_HIGH), more = component(ZMM_16_31), masks = component(OPMASK);
  for (unsigned i = 0; i < 16; i++) {
    memcpy(state->vector[i], area + 160 + 16 * i, 16);
    if (avx != 0 && avx + 256 <= bytes) {
      memcpy(state->vector[i] + 16, area + avx + 16 * i, 16);
    }
    if (high != 0 && high + 512 <= bytes) {
      memcpy(state->vector[i] + 32, area + high + 32 * i, 32);
    }
    if (more != 0 && more + 1024 <= bytes) {
      memcpy(state->vector[16 + i], area + more + 64 * i, 64);
    }
  }
  for (unsigned i = 0; masks != 0 && i < 8; i++) {
    memcpy(&state->mask[i], area + masks + 8 * i, 8);
  }
  memset(state->vectors_known, shape.bytes, shape.vectors);
  state->masks_known = shape.masks != 0 ? 0xff : 0;
}

bool
machine_state(pid_t pid, bool with_vectors, struct ct_steps_state *state)
{
  static uint8_t area[XSTATE_MAX];
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) {
    return false;
  }
  memset(state, 0, sizeof(*state));
  state->cpu = (struct ct_cpu){.reg = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
                                       r.r12, r.r13, r.r14, r.r15},
                               .rip = r.rip,
                               .flags = r.eflags & ~(uint64_t)(TRAP_FLAG | RESUME_FLAG),
                               .fs_base = r.fs_base,
                               .gs_base = r.gs_base};
  if (with_vectors) {
    struct iovec all = {area, sizeof(area)};
    memset(area, 0, sizeof(area));
    if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all) != 0) {
      return false;
    }
    take_vectors(area, all.iov_len, state);
  }
  return true;
}

size_t
machine_peek(pid_t pid, uint64_t at, void *out, size_t size)
{
  size_t done = 0;
  while (done < size) { /* a page at a time: the next one may not be there */
    size_t part = 4096 - (at + done) % 4096 < size - done ? 4096 - (at + done) % 4096 : size - done;
    struct iovec here = {(char *)out + done, part}, there = {(void *)(at + done), part};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)part) {
      break;
    }
    done += part;
  }
  return done;
}

bool
machine_poke(pid_t pid, uint64_t at, const void *bytes, size_t size)
{
  uint64_t word;
  for (size_t done = 0; done < size; done += sizeof(word)) {
    size_t part = size - done < sizeof(word) ? size - done : sizeof(word);
    if (part < sizeof(word) && machine_peek(pid, at + done, &word, sizeof(word)) != sizeof(word)) {
      return false;
    }
    memcpy(&word, (const char *)bytes + done, part);
    if (ptrace(PTRACE_POKEDATA, pid, at + done, word) != 0) {
      return false;
    }
  }
  return true;
}

bool
machine_set(pid_t pid, const struct ct_cpu *cpu)
{
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) {
    return false;
  }
  unsigned long long *const in_order[16] = {&r.rax, &r.rcx, &r.rdx, &r.rbx, &r.rsp, &r.rbp, &r.rsi, &r.rdi,
                                            &r.r8,  &r.r9,  &r.r10, &r.r11, &r.r12, &r.r13, &r.r14, &r.r15};
  for (unsigned i = 0; i < 16; i++) {
    *in_order[i] = cpu->reg[i];
  }
  r.rip = cpu->rip;
  r.eflags = cpu->flags;
  r.orig_rax = ~0ull;
  return ptrace(PTRACE_SETREGS, pid, NULL, &r) == 0;
}

void
machine_clean_r11(pid_t pid)
{
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &r) == 0 && (r.r11 & TRAP_FLAG) != 0) {
    r.r11 &= ~(unsigned long long)TRAP_FLAG;
    r.orig_rax = ~0ull; /* no system call that is to be restarted */
    ptrace(PTRACE_SETREGS, pid, NULL, &r);
  }
}

/* One of the sets of signals in the status of the process. */
static bool
has_signal(pid_t pid, const char *field, int signal)
{
  char path[64], line[256];
  unsigned long long set = 0;
  snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, field, strlen(field)) == 0) {
      set = strtoull(line + strlen(field), NULL, 16);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return (set >> (signal - 1) & 1) != 0;
}

bool
machine_handles(pid_t pid, int signal)
{
  return has_signal(pid, "SigCgt:", signal);
}

bool
machine_is_pending(pid_t pid, int signal)
{
  bool is_sent = has_signal(pid, "SigPnd:", signal) || has_signal(pid, "ShdPnd:", signal);
  return is_sent && !has_signal(pid, "SigBlk:", signal);
}

int
machine_step(pid_t pid, int deliver, int *value)
{
  int status = 0;
  if (ptrace(PTRACE_SINGLESTEP, pid, NULL, deliver) != 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    *value = status;
    return MACHINE_ENDED;
  }
  *value = WSTOPSIG(status);
  if (*value != SIGTRAP) {
    return MACHINE_SIGNAL;
  }
  return status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8) ? MACHINE_EXEC : MACHINE_STEPPED;
}

void
machine_signal_info(pid_t pid, uint64_t *address, int32_t *code)
{
  siginfo_t info;
  memset(&info, 0, sizeof(info));
  ptrace(PTRACE_GETSIGINFO, pid, NULL, &info);
  *address = (uint64_t)info.si_addr;
  *code = info.si_code;
}

bool
machine_send(pid_t pid, int signal, int32_t code)
{
  siginfo_t info;
  int value;
  memset(&info, 0, sizeof(info));
  info.si_signo = signal;
  info.si_code = code;
  return syscall(SYS_tgkill, pid, pid, signal) == 0 && machine_step(pid, 0, &value) == MACHINE_SIGNAL &&
         value == signal && ptrace(PTRACE_SETSIGINFO, pid, NULL, &info) == 0;
}
