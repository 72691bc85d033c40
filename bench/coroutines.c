/* SPDX-License-Identifier: MIT */
/*
 * COUNT coroutines, each on a stack of its own with a guard page, that take turns: a visit is a switch there, CALLS
 * calls of a function and the switch back. Prints as JSON what a visit takes of processor time.
 *
 *   coroutines own|ucontext COUNT VISITS CALLS      own: a switch by a few instructions; ucontext: swapcontext
 *   coroutines copied DEPTH VISITS CALLS            one stack of DEPTH frames, which is copied out and back, as
 * greenlets are
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

enum { STACK = 32768, PAGE = 4096 };

static long count, calls, current;
static volatile long sum;
static void *main_sp, **sps;
static ucontext_t main_context, *contexts;

void switch_to(void **from, void *to);
__asm__(
    ".text\n.globl switch_to\n.type switch_to, @function\nswitch_to:\n.cfi_startproc\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.cfi_endproc\n.size switch_to, . - switch_to\n");

__attribute__((noinline)) static long
work(long x)
{
  __asm__ volatile("");
  return x + 1;
}

static void
own(void)
{
  for (;;) {
    for (long i = 0; i < calls; i++) {
      sum += work(i);
    }
    switch_to(&sps[current], main_sp);
  }
}

static void
by_context(void)
{
  for (;;) {
    for (long i = 0; i < calls; i++) {
      sum += work(i);
    }
    swapcontext(&contexts[current], &main_context);
  }
}

static void
visit(int is_own)
{
  if (is_own) {
    switch_to(&main_sp, sps[current]);
  } else {
    swapcontext(&main_context, &contexts[current]);
  }
}

/* DEPTH frames deep: CALLS calls, and all of the stack is copied out and back. */
static char *base, *away;
static double copied_ns;
static double now(void);

__attribute__((noinline)) static long
descend(long depth, long visits)
{
  long result = 0;
  if (depth > 0) {
    result = descend(depth - 1, visits) + 1;
    __asm__ volatile("" : "+r"(result));
    return result;
  }
  char *low = __builtin_frame_address(0);
  size_t bytes = (size_t)(base - low);
  double begin = now();
  for (long visit = 0; visit < visits; visit++) {
    for (long i = 0; i < calls; i++) {
      sum += work(i);
    }
    memcpy(away, low, bytes);
    __asm__ volatile("" ::: "memory");
    memcpy(low, away, bytes);
  }
  copied_ns = (now() - begin) / (double)visits;
  return result;
}

static double
now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int
main(int argc, char **argv)
{
  if (argc < 5) {
    return 2;
  }
  int is_own = strcmp(argv[1], "own") == 0;
  count = atol(argv[2]);
  if (strcmp(argv[1], "copied") == 0) {
    calls = atol(argv[4]);
    base = __builtin_frame_address(0);
    away = malloc((size_t)(count + 10) * 256);
    descend(count, atol(argv[3]));
    printf("{\"ns_per_visit\": %.2f}\n", copied_ns);
    return 0;
  }
  long rounds = atol(argv[3]) / count;
  calls = atol(argv[4]);
  sps = calloc((size_t)count, sizeof(*sps));
  contexts = calloc((size_t)count, sizeof(*contexts));
  for (current = 0; current < count; current++) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack, PAGE, PROT_NONE);
    void **top = (void **)(stack + STACK - 128);
    top[-1] = (void *)own;
    sps[current] = top - 7;
    getcontext(&contexts[current]);
    contexts[current].uc_stack.ss_sp = stack;
    contexts[current].uc_stack.ss_size = STACK;
    makecontext(&contexts[current], by_context, 0);
    visit(is_own);
  }
  double begin = now();
  for (long round = 0; round < rounds; round++) {
    for (current = 0; current < count; current++) {
      visit(is_own);
    }
  }
  double ns = (now() - begin) / (double)(rounds * count);
  printf("{\"ns_per_visit\": %.2f}\n", ns);
  return 0;
}
