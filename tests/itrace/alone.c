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

N static double
floats(double x)
{
  for (int i = 0; i < 256; i++) {
    values[i] = values[i] * 0.5 + x / (i + 1);
  }
  return values[(int)x & 255] > 3.0 ? 1.0 : x + 1.0;
}

static uint64_t (*volatile const functions[])(uint64_t) = {mix, add, turn, string};

N static void
work(void)
{
  uint64_t x = 88172645463325252ull;
  double y = 1;
  for (int round = 0; round < 2000; round++) {
    x = functions[round & 3](x);
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

void __attribute__((force_align_arg_pointer))
_start(void)
{
  work();
}
