/* SPDX-License-Identifier: MIT */
/*
 * A program without a library, so that it does the same each time it is run (without address randomisation): integers,
 * flags, all kinds of loads, vectors, calls by pointers, deep recursion, string instructions, system calls.
 */
#include <stdint.h>

#define N __attribute__((noinline))

static long
call(long number, long a, long b, long c)
{
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

static uint64_t table[512];
static double values[256];
static uint8_t bytes[4096];

N static uint64_t
ackermann(uint64_t m, uint64_t n)
{
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

N static uint64_t
mix(uint64_t x)
{
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  return x ^ x >> 29 ^ x << 7;
}

N static uint64_t
add(uint64_t x)
{
  return x + table[x & 511];
}

N static uint64_t
turn(uint64_t x)
{
  return (x << 13 | x >> 51) ^ (uint32_t)(x / 3) ^ (uint16_t)(x % 1000);
}

N static uint64_t
string(uint64_t x)
{
  uint8_t *to = bytes + (x & 1023);
  unsigned long count = x & 63;
  const uint8_t *from = bytes + 2048;
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
  __asm__ volatile("lock xaddq %0, %1" : "+r"(x), "+m"(table[3])::"memory");
  return x + count + *(to - 1);
}

#ifndef HAS_MOVBE
#define HAS_MOVBE 0
#endif

/* Its form with two registers is no instruction, or another one. */
N static uint64_t
swapped(const uint8_t *from)
{
  uint64_t x;
  __asm__ volatile("movbe (%1), %0" : "=r"(x) : "r"(from) : "memory");
  return x;
}

/* ah and the like, which are other registers where an instruction has a REX prefix. */
N static uint64_t
high(uint64_t x)
{
  const uint8_t *from = bytes + (x & 1023);
  uint64_t a = x, b = x >> 8, c = 0, d = x >> 3;
  __asm__ volatile(
      "movb (%4), %%ah; testb %%bh, 1(%4); adcb 2(%4), %%ch; setz %%cl; cmpb %%dh, 3(%4); adcb $0, %%cl;"
      "addb 4(%4), %%dh; xorb 5(%4), %%bl; orb 6(%4), %%bh; subb 7(%4), %%al; cmpb $7, 8(%4); adcb $0, %%dl"
      : "+a"(a), "+b"(b), "+c"(c), "+d"(d)
      : "r"(from)
      : "cc", "memory");
  return a ^ b << 16 ^ c << 32 ^ d << 40 ^ (HAS_MOVBE ? swapped(from) : 0);
}

N static double
floats(double x)
{
  for (int i = 0; i < 256; i++) {
    values[i] = values[i] * 0.5 + x / (i + 1);
  }
  return values[(int)x & 255] > 3.0 ? 1.0 : x + 1.0;
}

static uint64_t (*volatile const functions[])(uint64_t) = {mix, add, turn, string, high, mix, high, add};

N static void
work(void)
{
  uint64_t x = 88172645463325252ull;
  double y = 1;
  for (int round = 0; round < 2000; round++) {
    x = functions[round & 7](x);
    table[round & 511] ^= x;
    bytes[x & 4095] = (uint8_t)round;
    if (round % 64 == 0) {
      y = floats(y);
      call(24, 0, 0, 0); /* sched_yield */
    }
  }
  x += ackermann(2, 20);
  call(1, 1, (long)&"done\n"[0], 5);
  call(231, (long)(x & 1), 0, 0);
}

void __attribute__((force_align_arg_pointer)) _start(void)
{
  work();
}
