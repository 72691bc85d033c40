/* SPDX-License-Identifier: MIT */
/*
 * Instructions that few processors have, or that do not go by their operands alone: what they leave behind, or the
 * signal where the processor has none, is printed. Played by tests/itrace.py with and without translated code, and by
 * tests/equal.py (with an argument) beside single steps, which pass over what the kernel executes for the program.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

extern char __executable_start;
static sigjmp_buf back;
static volatile int got, code;
static volatile long at;
static uint8_t mem[192] __attribute__((aligned(64), used)), src[128] __attribute__((aligned(64), used));
static uint64_t r[3];

static void
handler(int number, siginfo_t *info, void *context)
{
  got = number;
  code = info->si_code;
  at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] - (long)&__executable_start;
  siglongjmp(back, 1);
}

static void
begin(void)
{
  got = code = 0;
  at = 0;
  memset(r, 0, sizeof(r));
  for (unsigned i = 0; i < sizeof(mem); i++) {
    mem[i] = (uint8_t)(i * 7);
  }
}

static void
show(const char *name)
{
  uint32_t sum = 1;
  for (unsigned i = 0; i < sizeof(mem); i++) {
    sum = sum * 31 + mem[i];
  }
  printf("%s: signal %d code %d at %lx, %lx %lx %lx, memory %x\n", name, got, code, at, (long)r[0], (long)r[1],
         (long)r[2], sum);
}

#define TRY(name, ...)                                                                                                 \
  begin();                                                                                                             \
  if (sigsetjmp(back, 1) == 0) {                                                                                       \
    __asm__ volatile(__VA_ARGS__);                                                                                     \
  }                                                                                                                    \
  show(name)
#define ALL                "rax", "rbx", "rcx", "rdx", "rdi", "r9", "r10", "r11", "cc", "memory"
#define OUT                "+&r"(r[0]), "+&r"(r[1]), "+&r"(r[2])
#define BYTES(name, bytes) TRY(name, "lea mem(%%rip), %%rdi\n xor %%eax, %%eax\n .byte " bytes ::: ALL)

static void
stores(void)
{
  TRY("movdiri", "mov $-77, %%r10\n lea mem(%%rip), %%r11\n movdiri %%r10, 8(%%r11)\n movdiri %%r10d, (%%r11)" ::: ALL);
  TRY("movdir64b", "lea mem+64(%%rip), %%r11\n lea src(%%rip), %%r10\n movdir64b 3(%%r10), %%r11" ::: ALL);
  TRY("movdir64b rip", "lea mem+128(%%rip), %%r9\n movdir64b src(%%rip), %%r9" ::: ALL);
  TRY("movdir64b not aligned", "lea mem+1(%%rip), %%r9\n movdir64b src(%%rip), %%r9" ::: ALL);
  TRY("movdir64b nowhere", "mov $64, %%r9d\n movdir64b src(%%rip), %%r9" ::: ALL);
  TRY("clzero", "lea mem+70(%%rip), %%rax\n clzero" ::: ALL);
  TRY("clzero nowhere", "mov $4096, %%eax\n clzero" ::: ALL);
  TRY("extrq, movntsd", "movq src(%%rip), %%xmm1\n extrq $5, $9, %%xmm1\n movntsd %%xmm1, mem+8(%%rip)" ::
          : "xmm1", ALL);
  TRY("prefetches",
      ".byte 15, 24, 0x3d, 0, 1, 0, 0, 15, 24, 0x35, 192, 255, 255, 255\n xor %%eax, %%eax\n prefetchw (%%rax)\n"
      " cldemote mem(%%rip)\n clwb mem(%%rip)\n clflushopt mem(%%rip)\n clflush mem(%%rip)\n sfence" ::
          : ALL);
}

static void
vectors(void)
{
  TRY("vp2intersect",
      "vmovdqu32 src(%%rip), %%zmm2\n vmovdqu32 src+4(%%rip), %%zmm4\n vp2intersectd %%zmm2, %%zmm4, %%k3\n"
      " kmovw %%k2, %k0\n kmovw %%k3, %k1\n vp2intersectq %%ymm2, %%ymm2, %%k4\n kmovb %%k5, %k2"
      : OUT ::"xmm2", "xmm4", ALL);
  TRY("vp2intersect memory",
      "vmovdqu32 src(%%rip), %%zmm2\n lea src+8(%%rip), %%r11\n vp2intersectd (%%r11), %%zmm2, %%k6\n"
      " kmovw %%k6, %k0\n kmovw %%k7, %k1\n vp2intersectq src+8(%%rip)%{1to8%}, %%zmm2, %%k0\n kmovb %%k1, %k2"
      : OUT ::"xmm2", ALL);
  TRY("AVX-VNNI",
      "vmovdqu src(%%rip), %%ymm1\n vmovdqu src+9(%%rip), %%ymm2\n vpxor %%ymm3, %%ymm3, %%ymm3\n"
      " %{vex%} vpdpbusd %%ymm1, %%ymm2, %%ymm3\n lea src(%%rip), %%r10\n %{vex%} vpdpwssds 5(%%r10), %%ymm2, %%ymm3\n"
      " vmovdqu %%ymm3, mem+40(%%rip)" ::
          : "xmm1", "xmm2", "xmm3", ALL);
}

static void
others(void)
{
  TRY("xgetbv", "xor %%ecx, %%ecx\n xgetbv\n mov %%rax, %0" : OUT ::ALL);
  TRY("xgetbv of none", "mov $7, %%ecx\n xgetbv" ::: ALL);
  TRY("monitorx, mwaitx",
      "lea mem(%%rip), %%rax\n xor %%ecx, %%ecx\n xor %%edx, %%edx\n .byte 15, 1, 0xfa\n mov $2, %%ecx\n"
      " mov $1000, %%ebx\n xor %%eax, %%eax\n .byte 15, 1, 0xfb" ::
          : ALL);
  TRY("rdpid, rdtscp", "rdpid %%rax\n shr $12, %%rax\n mov %%rax, %0\n rdtscp\n shr $12, %%ecx\n mov %%rcx, %1"
      : OUT ::ALL);
  TRY("fsbase, gsbase", "rdfsbase %%rax\n wrfsbase %%rax\n rdgsbase %%rbx\n mov $0x1234000, %%ecx\n wrgsbase %%rcx\n"
                        " rdgsbase %0\n wrgsbase %%rbx"
      : OUT ::ALL);
  TRY("lsl, lar, verr", "mov $0x33, %%ecx\n lsl %%ecx, %k0\n lar %%ecx, %k1\n verr %%cx\n setz %%al" : OUT ::ALL);
  BYTES("serialize", "15, 1, 0xe8");
  BYTES("rdpru", "15, 1, 0xfd");
  BYTES("mcommit", "0xf3, 15, 1, 0xfa");
  BYTES("rdpkru", "15, 1, 0xee");
  BYTES("invlpgb", "15, 1, 0xfe");
  BYTES("wrmsrns", "15, 1, 0xc6");
  BYTES("pbndkb", "15, 1, 0xc7");
  BYTES("rdpmc", "15, 0x33");
  BYTES("tpause", "0x66, 15, 0xae, 0xf1");
  BYTES("xend", "15, 1, 0xd5");
  BYTES("enqcmd", "0xf2, 15, 0x38, 0xf8, 0x3f");
  BYTES("salc", "0xd6");
  BYTES("3DNow", "15, 15, 0xc1, 0x9e");
  BYTES("XOP", "0x8f, 0xe8, 0x78, 0xc0, 0xc1, 3");
  BYTES("FMA4", "0xc4, 0xe3, 0x71, 0x69, 0xc2, 0x30");
  BYTES("FP16", "0x62, 0xf5, 0x74, 0x48, 0x58, 0xc2");
  BYTES("SHA512", "0xc4, 0xe2, 0x7f, 0xcd, 0xc1");
  BYTES("AVX-IFMA", "0xc4, 0xe2, 0xf1, 0xb4, 0xc2");
  BYTES("cmpccxadd", "0xc4, 0xe2, 0x71, 0xe0, 7");
  BYTES("aadd", "15, 0x38, 0xfc, 7");
}

/* Where the processor bars them (UMIP), the kernel executes them for the program: it reads the bytes where the program
 * is. */
static void
barred(void)
{
  TRY("sgdt", "sgdt mem+64(%%rip)" ::: ALL);
  TRY("sidt", "lea mem(%%rip), %%r11\n mov $2, %%r10d\n sidt (%%r11, %%r10, 8)" ::: ALL);
  TRY("smsw", "mov $-1, %%r10\n smsw %%r10w\n mov %%r10, %0\n smsw mem+4(%%rip)" : OUT ::ALL);
}

int
main(int count, char **words)
{
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, NULL);
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  for (unsigned i = 0; i < sizeof(src); i++) {
    src[i] = (uint8_t)(i * 3 + 1);
  }
  for (int again = 0; again < 2; again++) {
    stores();
    vectors();
    others();
    if (count < 2) {
      barred();
    }
  }
  return 0;
}
