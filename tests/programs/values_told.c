/* SPDX-License-Identifier: MIT */
/*
 * values_told SEED CALLS FILE: calls functions with values of all lengths, and writes what it passes and gets into the
 * file, a line for each call in the order of their begins: function, first and second argument, result.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct told {
  uint64_t a, b, result;
  int function;
};
static struct told *told;
static size_t count;
static uint64_t state;

static uint64_t
draw(void)
{
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

/* Often as before, near what was before, or of any length. */
static uint64_t
value(void)
{
  static uint64_t before[4];
  uint64_t word = draw(), *last = &before[word >> 4 & 3];
  switch (word & 7) {
  case 0:
  case 1:
    return *last;
  case 2:
    return *last += 16;
  case 3:
    return *last -= (word >> 8) & 0xffff;
  default:
    return *last = draw() >> (word >> 8 & 63);
  }
}

#define TOLD(n)                                                                                                        \
  __attribute__((noinline)) uint64_t told_##n(uint64_t a, uint64_t b)                                                  \
  {                                                                                                                    \
    size_t at = count++;                                                                                               \
    told[at] = (struct told){a, b, 0, n};                                                                              \
    uint64_t result = (a & 3) == 0 && count < at + 5 ? more(b) : a * (2 * n + 1) ^ b;                                  \
    return told[at].result = result;                                                                                   \
  }
static uint64_t more(uint64_t depth);
TOLD(0)
TOLD(1)
TOLD(2)
TOLD(3)
TOLD(4)
static uint64_t (*const functions[])(uint64_t, uint64_t) = {told_0, told_1, told_2, told_3, told_4};

static uint64_t
more(uint64_t seed)
{
  uint64_t a = value(), b = value();
  return functions[(seed ^ draw()) % 5](a, b) + 1;
}

int
main(int argc, char **argv)
{
  if (argc != 4) {
    return 2;
  }
  state = strtoull(argv[1], NULL, 10) * 2 + 1;
  size_t calls = strtoull(argv[2], NULL, 10);
  told = calloc(calls + 1000, sizeof(*told));
  while (count < calls) {
    more(count);
  }
  FILE *file = fopen(argv[3], "w");
  for (size_t i = 0; i < count; i++) {
    fprintf(file, "told_%d %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", told[i].function, told[i].a, told[i].b,
            told[i].result);
  }
  return fclose(file) != 0;
}
