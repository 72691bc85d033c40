// SPDX-License-Identifier: MIT
// Calls of one function, which it numbers itself: `one N`, `threads N`, `coroutines N`. It prints the numbers of those
// that are slow, and of those that fail.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum { FAST, SLOW, FAILS };
static pthread_mutex_t turn =
    PTHREAD_MUTEX_INITIALIZER; // locked by the caller: so calls begin in the order of their numbers
static long calls, each;
static ucontext_t first, second;
static volatile int goes_on;

// Not a call: nothing of this is hooked in between.
__attribute__((noinline)) long
work(int what)
{
  long number = ++calls;
  pthread_mutex_unlock(&turn);
  if (what == SLOW) {
    struct timespec t = {0, 300000000};
    printf("slow %ld\n", number);
    nanosleep(&t, NULL);
    if (goes_on) {
      swapcontext(&first, &second); // others make calls while this one is open
    }
  } else if (what == FAILS) {
    printf("fails %ld\n", number);
    return -1;
  }
  return number;
}

static void
some(long count)
{
  for (long i = 1; i <= count; i++) {
    pthread_mutex_lock(&turn);
    work(i == count / 2 ? SLOW : i == count / 3 ? FAILS : FAST);
  }
}

static void *
run(void *arg)
{
  some(each + (long)arg);
  return NULL;
}

static void
on_another_stack(void)
{
  goes_on = 0;
  some(each);
  setcontext(&first);
}

int
main(int argc, char **argv)
{
  const char *what = argc > 2 ? argv[1] : "";
  each = argc > 2 ? atol(argv[2]) : 0;
  if (strcmp(what, "one") == 0) {
    some(each);
  } else if (strcmp(what, "threads") == 0) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) {
      pthread_create(&threads[i], NULL, run, (void *)(i * each / 7));
    }
    for (int i = 0; i < 3; i++) {
      pthread_join(threads[i], NULL);
    }
  } else if (strcmp(what, "coroutines") == 0) {
    static char stack[1 << 18];
    getcontext(&second);
    second.uc_stack.ss_sp = stack;
    second.uc_stack.ss_size = sizeof(stack);
    makecontext(&second, on_another_stack, 0);
    goes_on = 1;
    some(each);
  }
  printf("%ld calls\n", calls);
  return 0;
}
