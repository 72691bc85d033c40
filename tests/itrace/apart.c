/* SPDX-License-Identifier: MIT */
/*
 * Instructions that have no record of their own, again and again: NAME TURNS. Prints "ready" and what it has seen of
 * them; for tests/itracekilled.py.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIX = 0x8d5, DF = 0x400, NT = 0x4000, ID = 0x200000 };

static char area[4096] __attribute__((aligned(64)));

static uint64_t
random_word(uint64_t turn)
{
  uint64_t x = (turn + 1) * 0x9e3779b97f4a7c15u;
  return (x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 7;
}

/* Flags that are popped, in both sizes, and pushed again; every general register stays as it is. */
static uint64_t
popf(uint64_t turn)
{
  uint64_t flags = random_word(turn) & (SIX | DF | NT | ID), other = random_word(~turn) & (SIX | DF), got, short_got;
  uint64_t r10 = turn * 3, r11 = turn * 5, rcx = turn * 7;
  __asm__ volatile(
      "sub $128, %%rsp\n mov %[r10], %%r10\n mov %[r11], %%r11\n push %[flags]\n popfq\n pushfq\n pop %[got]\n"
      "push %[other]\n popfw\n pushfq\n pop %[short_got]\n push $0x202\n popfq\n add $6, %%rsp\n add $128, %%rsp\n"
      "mov %%r10, %[r10]\n mov %%r11, %[r11]\n"
      : [got] "=&r"(got), [short_got] "=&r"(short_got), [r10] "+&r"(r10), [r11] "+&r"(r11), "+c"(rcx)
      : [flags] "r"(flags), [other] "r"(other)
      : "r10", "r11", "cc", "memory");
  if ((got & (SIX | DF | NT | ID)) != flags || (short_got & (SIX | DF)) != other || r10 != turn * 3 ||
      r11 != turn * 5 || rcx != turn * 7) {
    printf("turn %d: %llx, not %llx; %llx, not %llx\n", (int)turn, (unsigned long long)got, (unsigned long long)flags,
           (unsigned long long)short_got, (unsigned long long)other);
    exit(1);
  }
  return got;
}

/* A call that is watched for its end, of which the address is met by each of its own calls, too. */
__attribute__((noinline)) uint64_t
nested(uint64_t depth)
{
  volatile uint64_t here = depth;
  uint64_t sum = depth;
  for (int i = 0; i < 2 && depth != 0; i++) {
    sum = sum * 3 + nested(depth - 1);
  }
  return sum + here;
}

/* Registers that records go by are what the instruction uses. */
static uint64_t
restores(uint64_t turn)
{
  uint64_t got;
  __asm__ volatile(
      "movq %[word], %%xmm5\n mov %[area], %%r11\n mov %[area], %%r10\n fxsave64 (%%r11)\n pxor %%xmm5, %%xmm5\n"
      "fxrstor64 (%%r10)\n movq %%xmm5, %[got]\n"
      : [got] "=r"(got)
      : [word] "r"(random_word(turn)), [area] "r"(area)
      : "r10", "r11", "xmm5", "memory");
  if (got != random_word(turn)) {
    printf("turn %d: %llx\n", (int)turn, (unsigned long long)got);
    exit(1);
  }
  return got;
}

/* Far returns that stay where they are, and a system call in the old way. */
static uint64_t
far(uint64_t turn)
{
  uint64_t flags = random_word(turn) & (SIX | DF), got, uid = 49; /* geteuid */
  __asm__ volatile(
      "sub $128, %%rsp\n mov %%cs, %%eax\n push %%rax\n lea 1f(%%rip), %%rax\n push %%rax\n lretq\n ud2\n"
      "1: sub $24, %%rsp\n mov %%cs, %%eax\n push %%rax\n lea 2f(%%rip), %%rax\n push %%rax\n lretq $24\n ud2\n"
      "2: mov %%rsp, %%rdx\n mov %%ss, %%eax\n push %%rax\n push %%rdx\n pushfq\n andq $~0xcd5, (%%rsp)\n or %[flags], "
      "(%%rsp)\n"
      "mov %%cs, %%eax\n push %%rax\n lea 3f(%%rip), %%rax\n push %%rax\n iretq\n ud2\n"
      "3: pushfq\n pop %[got]\n cld\n add $128, %%rsp\n"
      : [got] "=&r"(got)
      : [flags] "r"(flags)
      : "rax", "rdx", "cc", "memory");
  __asm__ volatile("int $0x80" : "+a"(uid) : : "r8", "r9", "r10", "r11", "memory");
  if ((got & (SIX | DF)) != flags) {
    printf("turn %d: %llx, not %llx\n", (int)turn, (unsigned long long)got, (unsigned long long)flags);
    exit(1);
  }
  return got + (uid << 12);
}

static uint64_t faulted;

static void
pass_over(int signal, siginfo_t *info, void *context)
{
  enum { LOAD_BYTES = 3 };
  (void)signal;
  faulted += (uint64_t)info->si_addr != 0;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += LOAD_BYTES;
}

/* A load that faults: for its record it is read first, and faults there; then the instruction is executed where it is.
 */
static uint64_t
faults(uint64_t turn)
{
  static char *nowhere;
  if (nowhere == NULL) {
    struct sigaction action = {.sa_sigaction = pass_over, .sa_flags = SA_SIGINFO};
    nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGSEGV, &action, NULL);
  }
  __asm__ volatile("add (%%rax), %%rcx" : : "a"(nowhere) : "rcx", "cc", "memory");
  return faulted + turn;
}

int
main(int argc, char **argv)
{
  static const struct {
    const char *name;
    uint64_t (*function)(uint64_t turn);
  } kinds[] = {{"popf", popf}, {"restores", restores}, {"far", far}, {"faults", faults}, {"nested", NULL}};
  uint64_t turns = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, sum = 0;
  puts("ready");
  fflush(stdout);
  for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    for (uint64_t turn = 0; strcmp(argv[1], kinds[i].name) == 0 && turn < turns; turn++) {
      sum = sum * 31 + (kinds[i].function != NULL ? kinds[i].function(turn) : nested(9));
    }
  }
  printf("%llx\n", (unsigned long long)(sum & ~0x200ull));
  return 0;
}
