/* SPDX-License-Identifier: MIT */
/* Exceptions, longjmp and threads under sanitizers; then, by argument, an error of the kind that each finds. */
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int sum;
static jmp_buf back;

extern "C" __attribute__((noinline)) void
counted_thrower(int depth)
{
  char room[64];
  memset(room, depth, sizeof room);
  if (depth == 0) {
    throw std::runtime_error("thrown");
  }
  counted_thrower(depth - 1);
  sum += room[3];
}
__attribute__((noinline)) static int
catcher(int i)
{
  try {
    counted_thrower(5);
  } catch (std::exception &) {
    return i;
  }
  return -1;
}
extern "C" __attribute__((noinline)) void
counted_jumper(int depth)
{
  volatile char room[100];
  room[0] = (char)depth;
  if (depth == 0) {
    longjmp(back, 1);
  }
  counted_jumper(depth - 1);
  sum += room[0];
}

static void
error(const char *kind)
{
  volatile int twelve = 12;
  if (!strcmp(kind, "beyond")) {
    volatile char *block = (char *)malloc(10);
    block[twelve] = 1;
  } else if (!strcmp(kind, "freed")) {
    char *block = (char *)malloc(10);
    free(block);
    printf("%d\n", *(volatile char *)block);
  } else if (!strcmp(kind, "leak")) {
    char *volatile block = (char *)malloc(77);
    block = nullptr;
  } else if (!strcmp(kind, "overflow")) {
    volatile int large = 0x7fffffff;
    large = large + twelve;
  }
}

int
main(int count, char **words)
{
  long total = 0;
  for (int i = 0; i < 300; i++) {
    total += catcher(i);
  }
  for (volatile int i = 0; i < 50; i++) {
    if (!setjmp(back)) {
      counted_jumper(5);
    }
  }
  std::vector<std::thread> threads;
  std::map<std::string, int> maps[8];
  for (int t = 0; t < 8; t++) {
    threads.emplace_back([&maps, t] {
      for (int i = 0; i < 500; i++) {
        maps[t][std::to_string(i % 50)]++;
      }
    });
  }
  for (auto &thread : threads) {
    thread.join();
  }
  printf("%ld %zu\n", total, maps[3].size());
  fflush(stdout);
  if (count > 1) {
    error(words[1]);
  }
  return 7;
}
