/* SPDX-License-Identifier: MIT */
/*
 * A target that has contrail wait for something that never comes; see tests/hostile.py.
 *
 *   stall exec     a request to follow a thread through exec that computes without end, and makes no system call
 *   stall regions  a list of thousands of regions, each the same one with millions of patches, which are none
 *   stall unmap    what contrail has mapped is watched by userfaultfd: who unmaps it waits until that has been read
 *   stall vfork    children of vfork that stay as soon as somebody traces their parent
 *   stall family   children that nobody hears of, forked without a call, in each of which a thread waits in vfork
 *   stall frames   nothing to wait for, but much to look at: the stacks of many threads are full of what a signal
 * leaves stall vdso     nothing to wait for: by the vdso's headers it begins before its file does (whoever believes
 * that writes in front of a buffer what this program likes) stall spaces   what looks like the memory of a killed
 * recorder of instructions, in very many pieces, beside threads with large stacks: that nobody is in there takes long
 * to see
 */
#define _GNU_SOURCE
#include "ring/itrace.h"
#include "ring/layout.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 7 << 20, LARGE_STACKS = 16 };

static struct ct_ring_header *volatile ring;
static volatile uint32_t spinning_tid;

static void
pause_ms(long ms)
{
  struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&wait, NULL);
}

static bool
find_ring(void)
{
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "re");
  unsigned long from;
  while (ring == NULL && fgets(line, sizeof(line), maps) != NULL) {
    if (strstr(line, "/memfd:" CT_RING_NAME " ") != NULL && sscanf(line, "%lx-", &from) == 1) {
      ring = (struct ct_ring_header *)from;
    }
  }
  fclose(maps);
  return ring != NULL && ring->inside.config != 0;
}

static void
report_that_it_stalls(void)
{
  printf("stalls\n");
  fflush(stdout);
}

static void *
spin(void *argument)
{
  spinning_tid = (uint32_t)gettid();
  for (;;) {
    __asm__ volatile("pause");
  }
  return argument;
}

static void
stall_exec(void)
{
  pthread_t thread;
  pthread_create(&thread, NULL, spin, NULL);
  while (spinning_tid == 0) {
    pause_ms(1);
  }
  struct ct_slot *slot = (struct ct_slot *)((uint8_t *)ring + ring->slots_offset) + 9;
  slot->tid = spinning_tid;
  slot->request.kind = CT_REQUEST_EXEC;
  slot->request.arg[0] = (uint64_t) "/bin/true";
  __atomic_store_n(&slot->request.state, CT_REQ_PENDING, __ATOMIC_RELEASE);
  __atomic_fetch_or(&ring->request_map[0], 1ull << 9, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&ring->control_doorbell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &ring->control_doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
  report_that_it_stalls();
}

static void
stall_regions(void)
{
  size_t bytes = 100u << 20;
  uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct ct_region_head *head = (struct ct_region_head *)at;
  struct ct_patch *patches = (struct ct_patch *)(at + CT_PAGE_BYTES);
  struct ct_agent_config *config = (struct ct_agent_config *)ring->inside.config;
  if (at == MAP_FAILED) {
    exit(77);
  }
  head->region_bytes = bytes;
  head->patches = (uint64_t)patches;
  head->patch_count = (bytes - CT_PAGE_BYTES) / sizeof(*patches);
  patches[0].address = 2; /* the next one's is lower */
  for (size_t i = 0; i < CT_REGION_MAX; i++) {
    config->regions[i] = (struct ct_region){(uint64_t)at, (uint64_t)at + bytes, (uint64_t)patches, 1};
  }
  config->region_count = CT_REGION_MAX;
  report_that_it_stalls();
}

static void
stall_unmap(void)
{
  char line[512];
  struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE};
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY), watched = 0;
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) {
    exit(77);
  }
  FILE *maps = fopen("/proc/self/maps", "re");
  unsigned long from, to;
  while (fgets(line, sizeof(line), maps) != NULL) {
    if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from == ring->inside.agent) {
      struct uffdio_register watch = {.range = {from, to - from}, .mode = UFFDIO_REGISTER_MODE_MISSING};
      watched += ioctl(fd, UFFDIO_REGISTER, &watch) == 0;
    }
  }
  fclose(maps);
  if (watched == 0) {
    exit(77);
  }
  report_that_it_stalls();
}

static int
stay(void *argument)
{
  char text[4096];
  for (int n = 0; n < 20; n++) {
    int fd = open((const char *)argument, O_RDONLY);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    const char *tracer = strstr(text, "TracerPid:\t");
    while (tracer != NULL && tracer[11] != '0') {
      pause_ms(1000);
    }
    pause_ms(1);
  }
  _exit(0);
}

static void
stall_vfork(void)
{
  static char stack[65536], path[64];
  snprintf(path, sizeof(path), "/proc/%d/status", (int)getpid());
  report_that_it_stalls();
  for (;;) {
    pid_t child = clone(stay, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, path);
    waitpid(child, NULL, 0);
    pause_ms(1);
  }
}

/* No call, so that no hook sees it. */
static inline __attribute__((always_inline)) long
call_kernel(long number, long a, long b, long c)
{
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

/* In a child: its only thread waits for a child of its own, which shares its memory, but not its stack. Both die with
 * us. */
static inline __attribute__((always_inline, noreturn)) void
wait_in_vfork(void)
{
  static uint8_t stack[4096];
  call_kernel(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0);
  __asm__ volatile(
      "syscall\n\t"
      "test %%eax, %%eax\n\t"
      "jnz 2f\n\t"
      "mov %[prctl], %%eax\n\t"
      "mov %[signal], %%edi\n\t"
      "mov %[kill], %%esi\n\t"
      "syscall\n"
      "1: mov %[pause], %%eax\n\t"
      "syscall\n\t"
      "jmp 1b\n"
      "2:"
      :
      : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(stack + sizeof(stack)),
        "d"(0), [prctl] "i"(SYS_prctl), [signal] "i"(PR_SET_PDEATHSIG), [kill] "i"(SIGKILL), [pause] "i"(SYS_pause)
      : "rcx", "r11", "memory");
  for (;;) {
    call_kernel(SYS_pause, 0, 0, 0);
  }
}

static void
stall_family(void)
{
  enum { CHILDREN = 40 };
  signal(SIGCHLD, SIG_IGN);
  for (int i = 0; i < CHILDREN; i++) {
    if (call_kernel(SYS_fork, 0, 0, 0) == 0) {
      wait_in_vfork();
    }
  }
  report_that_it_stalls();
}

__attribute__((noinline)) static void *
wait_above(void *room, size_t bytes)
{
  memset(room, 0x11, bytes);
  for (;;) {
    pause_ms(100000);
  }
  return room;
}

static void *
large_stack(void *argument)
{
  char room[STACK_BYTES];
  (void)argument;
  return wait_above(room, sizeof(room));
}

/* No address in it stays on a stack. */
__attribute__((noinline)) static void
make_spaces(void)
{
  enum { SHARED = (CT_ITRACE_SHARED_BYTES + 4095) & ~4095, PIECES = 30000, PAGE = 4096 };
  int fd = memfd_create(CT_RING_NAME, 0), shared = MAP_SHARED | MAP_FIXED_NOREPLACE;
  if (ftruncate(fd, 2l * PIECES * PAGE) != 0 ||
      mmap((void *)0x10000000, SHARED, PROT_READ | PROT_WRITE, shared, fd, 0) == MAP_FAILED) {
    exit(77);
  }
  char *pieces = mmap(NULL, 2ul * PIECES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  for (size_t i = 0; i < PIECES && pieces != MAP_FAILED; i++) {
    mprotect(pieces + 2 * i * PAGE, PAGE, PROT_READ);
  }
}

static void
stall_spaces(void)
{
  pthread_t thread;
  make_spaces();
  for (int i = 0; i < LARGE_STACKS; i++) {
    pthread_create(&thread, NULL, large_stack, NULL);
  }
  report_that_it_stalls();
}

/* Where such a frame returns to. */
static uint64_t restorer;

static void
on_signal(int number, siginfo_t *info, void *context)
{
  (void)number;
  (void)info;
  restorer = ((uint64_t *)context)[-1];
}

/* Each frame is of another place, in no code at all. */
static void *
wait_among_frames(void *argument)
{
  enum { COUNT = 4096, APART = 512, ALIGNED = 64 };
  uint8_t room[COUNT * APART + ALIGNED];
  uint64_t begin = ((uint64_t)room + ALIGNED - 1) & ~(uint64_t)(ALIGNED - 1), which = (uint64_t)argument;
  memset(room, 0, sizeof(room));
  for (uint64_t i = 0; i < COUNT; i++) {
    uint64_t at = begin + i * APART;
    ucontext_t *context = (ucontext_t *)(at + sizeof(restorer));
    *(uint64_t *)at = restorer;
    context->uc_mcontext.gregs[REG_CSGSFS] = 0x33;
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)(CT_PAGE_BYTES + (which * COUNT + i) * 16);
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)(at + APART);
  }
  return wait_above(room, 1);
}

static void
stall_frames(void)
{
  enum { THREADS = 60 };
  pthread_t thread;
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  for (uint64_t i = 0; i < THREADS; i++) {
    pthread_create(&thread, NULL, wait_among_frames, (void *)i);
  }
  pause_ms(1000);
}

/* The first segment begins before the file does, and ends in it. */
static void
spoil_vdso(void)
{
  enum { BEFORE = 0x10000, BYTES = 0x20000 };
  uint8_t *vdso = (uint8_t *)getauxval(AT_SYSINFO_EHDR);
  uint8_t *words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (vdso == NULL || words == MAP_FAILED) {
    exit(77);
  }
  Elf64_Phdr *segments = (Elf64_Phdr *)(vdso + ((Elf64_Ehdr *)vdso)->e_phoff);
  uint64_t bytes = (segments[0].p_memsz + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1); /* it cannot be split */
  if (mprotect(vdso, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
    exit(77);
  }
  memset(words, 0x41, BYTES);
  segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                             .p_offset = -(uint64_t)BEFORE,
                             .p_vaddr = (uint64_t)(words - vdso),
                             .p_filesz = BYTES,
                             .p_memsz = BYTES};
  segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = BYTES - BEFORE, .p_memsz = BYTES - BEFORE};
  ((Elf64_Ehdr *)vdso)->e_phnum = 2;
}

int
main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";
  signal(SIGTERM, SIG_IGN); /* who records gives up after a while, and the program goes on */
  if (strcmp(what, "vdso") == 0) {
    spoil_vdso();
  } else if (strcmp(what, "frames") == 0) {
    stall_frames();
  }
  printf("%d\n", (int)getpid());
  fflush(stdout);
  if (strcmp(what, "vdso") == 0 || strcmp(what, "frames") == 0) {
    report_that_it_stalls();
  }
  if (strcmp(what, "spaces") == 0) {
    stall_spaces();
  }
  while (!find_ring()) {
    pause_ms(5);
  }
  if (strcmp(what, "exec") == 0) {
    stall_exec();
  } else if (strcmp(what, "regions") == 0) {
    stall_regions();
  } else if (strcmp(what, "unmap") == 0) {
    stall_unmap();
  } else if (strcmp(what, "vfork") == 0) {
    stall_vfork();
  } else if (strcmp(what, "family") == 0) {
    stall_family();
  }
  for (;;) {
    pause_ms(1000);
  }
}
