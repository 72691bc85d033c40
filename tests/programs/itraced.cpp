// SPDX-License-Identifier: MIT
// A program whose function `work` is recorded as instructions, while it does what is hard to follow. What it prints is
// the same each time.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAR __attribute__((noinline, noclone))

static jmp_buf out;
static volatile sig_atomic_t alarms;
static const char *self;

static void
on_alarm(int)
{
  alarms = alarms + 1;
}

extern "C" FAR long
leaf(long x)
{
  asm volatile("" : "+r"(x));
  return x * 3 + 1;
}

extern "C" FAR void
thrower(long x)
{
  if (x % 2 == 0) {
    throw x;
  }
  leaf(x);
}

static void *
thread_main(void *)
{
  return (void *)leaf(20);
}

extern "C" FAR long work(long what, long n);

static void *
ends_in_work(void *)
{
  work('e', 0);
  return nullptr;
}

static long
fork_and_wait(long n)
{
  int status = 0;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    _exit((int)leaf(n));
  }
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

static long
with_library(long n)
{
  void *library = dlopen("libm.so.6", RTLD_NOW);
  double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
  long value = (long)(1000 * cosine((double)n));
  dlclose(library);
  return value;
}

extern "C" FAR long
work(long what, long n)
{
  long sum = 0;
  pthread_t thread;
  void *result;
  switch (what) {
  case 'c':
    for (long i = 0; i < n; i++) {
      sum += leaf(i);
    }
    return sum;
  case 'r':
    return n == 0 ? 0 : leaf(n) + work('r', n - 1);
  case 't':
    try {
      thrower(n);
    } catch (long x) {
      return -x;
    }
    return n;
  case 'x':
    thrower(n);
    return n;
  case 'j':
    longjmp(out, (int)n);
  case 'f':
    return fork_and_wait(n);
  case 'p':
    pthread_create(&thread, nullptr, thread_main, nullptr);
    pthread_join(thread, &result);
    return (long)result;
  case 'd':
    return with_library(n);
  case 'e':
    pthread_exit(nullptr);
  case 'a':
    for (int start = alarms; alarms < start + 1;) {
      sum = leaf(n);
      usleep(2000);
    }
    return sum;
  case 's':
    for (;;) {
      sum += leaf(sum);
    }
  case 'v':
    *(volatile long *)8 = leaf(n);
    return 0;
  case 'E':
    execl(self, self, "c", "5", (char *)nullptr);
    return -1;
  default:
    return what;
  }
}

static long
call(long what, long n)
{
  pthread_t thread;
  int value;
  if (what == 'e') {
    pthread_create(&thread, nullptr, ends_in_work, nullptr);
    pthread_join(thread, nullptr);
    return 0;
  }
  if (what == 'j' && (value = setjmp(out)) != 0) {
    return -value;
  }
  try {
    return work(what, n);
  } catch (long x) {
    return 1000 + x;
  }
}

int
main(int argc, char **argv)
{
  static const struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
  self = argv[0];
  for (const char *what = argv[1]; *what != 0; what++) {
    if (*what == 'a') {
      signal(SIGALRM, on_alarm);
      setitimer(ITIMER_REAL, &every, nullptr);
    }
    if (*what == 's') {
      puts("ready");
      fflush(stdout);
    }
    for (long n = 1; n <= atol(argv[2]); n++) {
      printf("%c %ld: %ld\n", *what, n, call(*what, n));
    }
    setitimer(ITIMER_REAL, &never, nullptr);
  }
  puts("end");
  return 7;
}
