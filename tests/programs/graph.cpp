// SPDX-License-Identifier: MIT
/*
 * For tests/graph.py and tests/slowest.py: calls from several callers, recursions of one and of two functions, exceptions, a longjmp, tail
 * calls, coroutines, a signal handler on a stack of its own, threads, and with an argument a child.
 *   graph [fork] [rounds]
 */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, used))

static volatile int sink;
static jmp_buf place;
static ucontext_t home, other;
static char stack[1 << 18];

extern "C" {
KEEP void leaf(int n) { for (int i = 0; i < n; i++) { sink = sink + i; } }
KEEP void twice(int n) { leaf(n); leaf(n); sink = 1; }
KEEP int fib(int n) { leaf(3); return n < 2 ? n : fib(n - 1) + fib(n - 2); }
KEEP void pong(int n);
KEEP void ping(int n) { leaf(5); if (n > 0) { pong(n - 1); } sink = 2; }
KEEP void pong(int n) { twice(4); if (n > 0) { ping(n - 1); } sink = 3; }
KEEP void thrower(int n) { leaf(n); if (n > 2) { throw n; } sink = 4; }
KEEP void catcher(int n) { try { thrower(n); } catch (int) { leaf(1); } sink = 5; }
KEEP void jumper(int n) { leaf(n); longjmp(place, 1); }
KEEP void jumps(int n) { if (setjmp(place) == 0) { jumper(n); } sink = 6; }
KEEP __attribute__((optimize("O2"))) void tail_end(int n) { leaf(n); sink = 7; }
KEEP __attribute__((optimize("O2"))) void tail_begin(int n) { leaf(n); tail_end(n + 1); }
KEEP void sleeps(int us) { leaf(2); usleep((useconds_t)us); }
KEEP void in_coroutine(int n) { fib(n); swapcontext(&other, &home); twice(n); swapcontext(&other, &home); }
KEEP void coroutine(void) { for (;;) { in_coroutine(5); } }
KEEP void resume(void) { swapcontext(&home, &other); sink = 8; }
KEEP void resumes(int n) { for (int i = 0; i < n; i++) { resume(); leaf(2); } fib(3); }
KEEP void handler(int) { twice(3); }
}

namespace ns {
struct Box {
  int value;
  KEEP void set(int v) { value = v; leaf(v); }
  KEEP int get() const { twice(value); return value; }
};
template <class T> KEEP T apply(T *box) { box->set(3); box->get(); return *box; }
KEEP void boxes(int n) { Box box = {}; for (int i = 0; i < n; i++) { apply(&box); } }
}

extern "C" KEEP void work(int rounds)
{
  for (int i = 0; i < rounds; i++) {
    fib(6);
    ping(5);
    pong(4);
    catcher(i % 5);
    tail_begin(3);
    ns::boxes(3);
    if (i % 10 == 0) { sleeps(300); }
  }
}

static void *
thread(void *arg)
{
  work((int)(long)arg);
  return nullptr;
}

extern "C" KEEP void child(int rounds) { work(rounds); twice(9); }

int
main(int argc, char **argv)
{
  bool forks = argc > 1 && strcmp(argv[1], "fork") == 0;
  int rounds = argc > 1 + forks ? atoi(argv[1 + forks]) : 20;
  pthread_t threads[2];
  for (long i = 0; i < 2; i++) { pthread_create(&threads[i], nullptr, thread, (void *)(rounds + i)); }
  stack_t own = {malloc(1 << 16), 0, 1 << 16};
  sigaltstack(&own, nullptr);
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
  getcontext(&other);
  other.uc_stack.ss_sp = stack;
  other.uc_stack.ss_size = sizeof(stack);
  makecontext(&other, coroutine, 0);
  resumes(9);
  for (int i = 0; i < rounds; i++) { jumps(i % 3); }
  work(rounds);
  if (forks) {
    for (int i = 0; i < 2; i++) {
      if (fork() == 0) { child(rounds / 2); _exit(0); }
    }
    while (wait(nullptr) > 0) {}
  }
  for (int i = 0; i < 2; i++) { pthread_join(threads[i], nullptr); }
  return 0;
}
