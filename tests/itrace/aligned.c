/* SPDX-License-Identifier: MIT */
/*
 * Calls with alignment checks on (EFLAGS.AC), where each unaligned access of contrail's would end the program by
 * SIGBUS; also of code that the program has written, at an odd address: for tests/itraceselected.py.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { CALLS = 200, CHECKS = 0x40000 };

static uint64_t room[8];

__attribute__((noinline)) uint64_t
known(uint64_t x)
{
  __asm__ volatile("nop; nop; nop; nop; nop");
  return x * 3 + room[1];
}

static inline uint64_t
flags(void)
{
  uint64_t value;
  __asm__ volatile("sub $128, %%rsp; pushf; pop %0; add $128, %%rsp" : "=r"(value));
  return value;
}

static inline void
set_flags(uint64_t value)
{
  __asm__ volatile("sub $128, %%rsp; push %0; popf; add $128, %%rsp" : : "r"(value) : "cc", "memory");
}

int
main(void)
{
  /* lea 5(%rdi), %rax; add %rax, %rax; add %rdi, %rax; ret */
  static const uint8_t code[] = {0x48, 0x8d, 0x47, 0x05, 0x48, 0x01, 0xc0, 0x48, 0x01, 0xf8, 0xc3};
  uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t sum = 0, before = flags();
  if (page == MAP_FAILED) {
    return 1;
  }
  memcpy(page + 3, code, sizeof(code));
  uint64_t (*written)(uint64_t) = (uint64_t(*)(uint64_t))(uintptr_t)(page + 3);
  set_flags(before | CHECKS);
  for (uint64_t i = 0; i < CALLS; i++) {
    sum += written(i) + known(i);
  }
  int is_on = (flags() & CHECKS) != 0;
  set_flags(before);
  printf("%lu %d\n", sum, is_on);
  return 0;
}
