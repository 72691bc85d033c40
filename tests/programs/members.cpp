/* SPDX-License-Identifier: MIT */
/*
 * Calls with pointers to structures, of which it says itself what is in them: as many as the argument. One lies at the
 * end of a page that is the last one; one pointer is to nowhere.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

struct pair {
  int a, b;
};
struct base {
  long first;
};
struct item : base {
  short small;
  double real;
  const char *name;
  pair both;
  unsigned bit : 3;
  bool is_set;
  char tail[64];
};

extern "C" __attribute__((noinline, noclone)) long
take(const item *in, pair value, const pair *at_end, const pair *nowhere)
{
  __asm__ volatile("" : : "r"(in), "r"(at_end), "r"(nowhere) : "memory");
  return in->first + value.a + at_end->a;
}

extern "C" __attribute__((noinline, noclone)) pair
give(int n)
{
  __asm__ volatile("");
  return {n, -n};
}

extern "C" __attribute__((noinline, noclone)) size_t
text(std::string by_value, const std::string &by_reference)
{
  __asm__ volatile("" : : : "memory");
  return by_value.size() + by_reference.size();
}

int
main(int argc, char **argv)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = (char *)mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + page, page);
  pair *at_end = (pair *)(pages + page) - 1;
  item thing = {};
  unsigned long state = 5;
  int count = argc > 1 ? atoi(argv[1]) : 1;
  for (int i = 0; i < count; i++) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    thing.first = (long)state;
    thing.small = (short)(state >> 20);
    thing.real = (double)(int)(state >> 32) / 8;
    thing.both = {(int)(state >> 11), i};
    thing.is_set = (state >> 40 & 1) != 0;
    *at_end = {(int)(state >> 30), 3};
    pair value = {i, (int)(state >> 7)};
    take(&thing, value, at_end, (const pair *)16);
    pair given = give(value.b);
    std::string words((size_t)(i % 100), (char)('a' + i % 26));
    text(words, "!");
    printf("%ld %d %.17g %d %d | %d %d | %d %d | %s\n", thing.first, thing.small, thing.real, thing.is_set, given.a,
           value.a, value.b, at_end->a, at_end->b, words.c_str());
  }
  return 0;
}
