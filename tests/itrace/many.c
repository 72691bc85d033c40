/* SPDX-License-Identifier: MIT */
/*
 * Threads that do what one thread's translations do not show to another's: code that one writes and another calls,
 * libraries that come and go, threads that end while others begin. Whoever traces them must not be seen.
 *
 *   many all           all of it; prints a sum that is always the same
 *   many work N M      N threads, which each call leaf M times
 *   many serve         the same until a line comes on stdin
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define APART __attribute__((noinline))

enum { PAGE = 4096, TURNS = 100, SHORT_LIVED = 60, WORKERS_MAX = 64 };

static unsigned long sum;
static volatile sig_atomic_t signals_got;
static int is_over;

static void
add(unsigned long value)
{
  __atomic_add_fetch(&sum, value, __ATOMIC_SEQ_CST);
}

/* mov $value, %eax; ret */
static void
write_code(unsigned char *page, int value)
{
  mprotect(page, PAGE, PROT_READ | PROT_WRITE);
  page[0] = 0xb8;
  memcpy(page + 1, &value, sizeof(value));
  page[5] = 0xc3;
  mprotect(page, PAGE, PROT_READ | PROT_EXEC);
}

static unsigned char *
new_page(void)
{
  return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *
own_code(void *nothing)
{
  unsigned char *page = new_page();
  for (int i = 0; i < TURNS; i++) {
    write_code(page, i);
    add((unsigned long)((int (*)(void))page)());
  }
  munmap(page, PAGE);
  return nothing;
}

/* One writes, the others call what it has written; then it writes again. */
static unsigned char *shared;
static pthread_barrier_t before, after;

static void *
writes_for_others(void *nothing)
{
  for (int i = 0; i < TURNS; i++) {
    if (i % 10 == 9) { /* the same place, mapped anew */
      mmap(shared, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    write_code(shared, i);
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
  }
  return nothing;
}

static void *
calls_of_others(void *nothing)
{
  for (int i = 0; i < TURNS; i++) {
    pthread_barrier_wait(&before);
    int got = ((int (*)(void))shared)();
    add(got == i ? (unsigned long)i : 1000000000);
    pthread_barrier_wait(&after);
  }
  return nothing;
}

static void *
libraries(void *nothing)
{
  for (int i = 0; i < 20; i++) {
    void *library = dlopen(i % 2 != 0 ? "libz.so.1" : "libm.so.6", RTLD_NOW);
    double (*root)(double) = library != NULL ? (double (*)(double))dlsym(library, "sqrt") : NULL;
    add(root != NULL ? (unsigned long)root(16) : 0);
    if (library != NULL) {
      dlclose(library);
    }
  }
  return nothing;
}

static void *
short_lived(void *value)
{
  char *memory = malloc(50000);
  memset(memory, 1, 50000);
  add((unsigned long)value + (unsigned long)memory[49999]);
  free(memory);
  return NULL;
}

static void
on_signal(int number)
{
  (void)number;
  signals_got++;
}

static void *
waits(void *nothing)
{
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    usleep(1000);
  }
  return nothing;
}

static int
all(void)
{
  void *(*const what[])(void *) = {own_code,        own_code,  writes_for_others, calls_of_others,
                                   calls_of_others, libraries, libraries};
  enum { COUNT = sizeof(what) / sizeof(what[0]) };
  pthread_t threads[COUNT], waiting, one;
  shared = new_page();
  pthread_barrier_init(&before, NULL, 3);
  pthread_barrier_init(&after, NULL, 3);
  signal(SIGUSR1, on_signal);
  pthread_create(&waiting, NULL, waits, NULL);
  for (int i = 0; i < COUNT; i++) {
    pthread_create(&threads[i], NULL, what[i], NULL);
  }
  for (long i = 0; i < SHORT_LIVED; i++) {
    pthread_create(&one, NULL, short_lived, (void *)i);
    pthread_kill(waiting, SIGUSR1);
    pthread_join(one, NULL);
  }
  for (int i = 0; i < COUNT; i++) {
    pthread_join(threads[i], NULL);
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  pthread_join(waiting, NULL);
  printf("%lu, signals: %s\n", sum, signals_got > 0 ? "yes" : "no");
  return 3;
}

APART long
leaf(long x)
{
  __asm__ volatile("");
  return x * 3 + 1;
}

static void *
works(void *rounds)
{
  long result = 0;
  for (long i = 0; i < (long)rounds; i++) {
    result ^= leaf(i);
  }
  add((unsigned long)result);
  return NULL;
}

static int
work(int count, long rounds)
{
  pthread_t threads[WORKERS_MAX];
  for (int i = 0; i < count && i < WORKERS_MAX; i++) {
    pthread_create(&threads[i], NULL, works, (void *)rounds);
  }
  for (int i = 0; i < count && i < WORKERS_MAX; i++) {
    pthread_join(threads[i], NULL);
  }
  printf("%lx\n", sum);
  return 0;
}

static void *
works_on(void *made)
{
  unsigned long rounds = 0;
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    pthread_t one;
    works((void *)1000);
    if (++rounds % 50 == 0 && pthread_create(&one, NULL, short_lived, NULL) == 0) {
      pthread_join(one, NULL);
      __atomic_add_fetch((unsigned long *)made, 1, __ATOMIC_SEQ_CST);
    }
  }
  return (void *)rounds;
}

static int
serve(void)
{
  enum { COUNT = 3 };
  pthread_t threads[COUNT];
  unsigned long made = 0, rounds = 0;
  for (int i = 0; i < COUNT; i++) {
    pthread_create(&threads[i], NULL, works_on, &made);
  }
  printf("ready\n");
  fflush(stdout);
  getchar();
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  unsigned long one = 0;
  for (long i = 0; i < 1000; i++) {
    one ^= (unsigned long)leaf(i);
  }
  for (int i = 0; i < COUNT; i++) {
    void *result;
    pthread_join(threads[i], &result);
    rounds += (unsigned long)result;
  }
  printf("%s\n", sum == rounds * one + made ? "all right" : "wrong");
  return 0;
}

int
main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "all") == 0) {
    return all();
  }
  return strcmp(name, "work") == 0 && argc > 3 ? work(atoi(argv[2]), atol(argv[3])) : serve();
}
