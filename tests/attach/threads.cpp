// SPDX-License-Identifier: MIT
// A hundred threads, or as many as asked for, in all kinds of situations: computing, sleeping, in system calls,
// throwing, in signal handlers, starting further threads. Each checks its own results; main counts and writes.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static std::atomic<unsigned long> handled, work;

static void
fail(const char *what)
{
  fprintf(stderr, "%s\n", what);
  abort();
}

static void
on_signal(int)
{
  handled++;
}

__attribute__((noinline)) static long
fib(int n)
{
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void
compute()
{
  for (;;) {
    if (fib(15) != 610) {
      fail("fib");
    }
    work++;
    usleep(500);
  }
}

static void
sleeping()
{
  for (;;) {
    timespec wait = {0, 20 * 1000 * 1000};
    while (nanosleep(&wait, &wait) != 0) {
    }
    work++;
  }
}

static void
polling()
{
  int ends[2];
  if (pipe(ends) != 0) {
    fail("pipe");
  }
  for (unsigned char n = 0;; n++) {
    unsigned char got = 0;
    pollfd wait = {ends[0], POLLIN, 0};
    if (poll(&wait, 1, 1) < 0) {
      continue;
    }
    if (write(ends[1], &n, 1) != 1 || read(ends[0], &got, 1) != 1 || got != n) {
      fail("pipe data");
    }
    work++;
  }
}

__attribute__((noinline)) static void
thrower(int depth)
{
  std::string text(static_cast<size_t>(depth) + 1, 'x');
  if (depth == 0) {
    throw std::runtime_error(text);
  }
  thrower(depth - 1);
}

static void
throwing()
{
  for (;;) {
    try {
      thrower(10);
      fail("not thrown");
    } catch (const std::runtime_error &error) {
      if (error.what() != std::string("x")) {
        fail("what");
      }
    }
    work++;
    usleep(1000);
  }
}

static void
allocating()
{
  for (;;) {
    std::map<int, std::string> all;
    for (int i = 0; i < 100; i++) {
      all[i * 7 % 101] = std::to_string(i);
    }
    if (all.size() != 100) {
      fail("map");
    }
    work++;
    usleep(1000);
  }
}

static void
spawning()
{
  for (;;) {
    int result = 0;
    std::thread other([&result] { result = 7; });
    other.join();
    if (result != 7) {
      fail("thread");
    }
    work++;
    usleep(2000);
  }
}

static sem_t never;

static void
waiting()
{
  for (;;) {
    if (sem_wait(&never) == 0) {
      fail("semaphore");
    }
  }
}

int
main(int argc, char **argv)
{
  const size_t count = argc > 1 ? strtoul(argv[1], nullptr, 10) : 100;
  void (*const kinds[])() = {compute, sleeping, polling, throwing, allocating, spawning, waiting};
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  sem_init(&never, 0, 0);
  std::vector<std::thread> all;
  for (size_t i = 0; i < count; i++) {
    all.emplace_back(kinds[i % (sizeof(kinds) / sizeof(kinds[0]))]);
  }
  for (int n = 1;; n++) {
    unsigned long before = work;
    for (size_t i = 0; i < all.size(); i += 3) {
      pthread_kill(all[i].native_handle(), SIGUSR1);
    }
    for (int waits = 0; waits < 3000 && (waits == 0 || work == before); waits++) {
      usleep(100 * 1000);
    }
    if (work == before) {
      fail("nothing is done");
    }
    printf("%d\n", n);
    fflush(stdout);
  }
}
