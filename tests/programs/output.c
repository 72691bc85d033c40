/* SPDX-License-Identifier: MIT */
/* Writes to standard output and error in the way that its argument says; tests/output.py runs it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[200000];

static void
say(const char *text)
{
  if (write(1, text, strlen(text)) < 0) {
    exit(9);
  }
}

static void *
writer(void *argument)
{
  char line[32];
  for (int i = 0; i < 500; i++) {
    snprintf(line, sizeof(line), "%c %03d\n", *(char *)argument, i);
    say(line);
  }
  return NULL;
}

static int
threads(void)
{
  static char names[] = "abcd";
  pthread_t ids[4];
  for (int i = 0; i < 4; i++) {
    pthread_create(&ids[i], NULL, writer, &names[i]);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(ids[i], NULL);
  }
  return 0;
}

/* What cannot be read must be EFAULT, or written as far as it can be. */
static int
bad_pointers(void)
{
  char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(pages, 'p', 8192);
  mprotect(pages + 4096, 4096, PROT_NONE);
  struct iovec vectors[2] = {{pages + 4000, 96}, {pages + 4096, 10}};
  struct {
    long got;
    int error;
  } results[6];
#define TRY(i, call)                                                                                                   \
  errno = 0;                                                                                                           \
  results[i].got = call;                                                                                               \
  results[i].error = errno;
  TRY(0, write(1, (void *)16, 5))
  TRY(1, write(1, pages + 4096, 5))
  TRY(2, writev(1, (void *)16, 2))
  TRY(3, writev(1, vectors, 2))
  TRY(4, write(1, pages, (size_t)-1))
  TRY(5, writev(1, vectors, -1))
  for (int i = 0; i < 6; i++) {
    fprintf(stderr, "%ld %d\n", results[i].got, results[i].error);
  }
  return 0;
}

static void
on_signal(int number)
{
  (void)number;
  say("handler\n");
}

static int
in_handler(void)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < 20; i++) {
    raise(SIGUSR1);
    say("main\n");
  }
  return 0;
}

static int
child(int vforked)
{
  say("parent before\n");
  pid_t pid = vforked ? vfork() : fork();
  if (pid == 0) {
    say("child\n");
    _exit(0);
  }
  waitpid(pid, NULL, 0);
  say("parent after\n");
  return 0;
}

static int
raw(void)
{
  struct iovec vectors[2] = {{"vec", 3}, {"tor\n", 4}};
  syscall(SYS_write, 1, "raw\n", 4);
  syscall(SYS_writev, 1, vectors, 2);
  return 0;
}

static int
vectors_of_all_sizes(void)
{
  struct iovec many[1000];
  for (int i = 0; i < 1000; i++) {
    many[i] = (struct iovec){block + i, (size_t)(i % 7)};
  }
  memset(block, 'v', 5000);
  return writev(1, many, 1000) < 0 || writev(2, many, 0) < 0 || writev(1, many + 3, 1) < 0;
}

static int
mixed(void)
{
  printf("one\n");
  fflush(stdout);
  fprintf(stderr, "two %d\n", 2);
  puts("three");
  fflush(stdout);
  perror("four");
  return 0;
}

static int
binary(void)
{
  for (size_t i = 0; i < 70000; i++) {
    block[i] = (char)(i * 7 + i / 256);
  }
  return write(1, block, 300) != 300 || write(1, block, 4055) != 4055 || write(1, block, 4056) != 4056 ||
         write(1, block, 4057) != 4057 || write(1, block, 20000) != 20000 || write(1, block, 0) != 0;
}

static int
large(void)
{
  memset(block, 'l', sizeof(block));
  return write(1, block, sizeof(block)) < 0;
}

static int
much(void)
{
  for (int i = 0; i < 1600; i++) {
    memset(block, 'a' + i % 26, 65536);
    if (write(1, block, 65536) < 0) {
      return 1;
    }
  }
  return 0;
}

static int
elsewhere(void)
{
  int copy = dup(1), null = open("/dev/null", O_WRONLY);
  dup2(null, 1);
  say("to the device\n");
  dup2(copy, 1);
  say("back\n");
  return write(copy, "not by its number\n", 18) < 0 || write(null, "nor this\n", 9) < 0;
}

static int
closed(void)
{
  close(1);
  long got = write(1, "nobody\n", 7);
  fprintf(stderr, "%ld %d\n", got, errno);
  return 0;
}

static int
stdio_until_full(void)
{
  int failed = 0;
  for (int i = 0; i < 10; i++) {
    failed += printf("line %d\n", i) < 0;
  }
  failed += fflush(stdout) != 0;
  fprintf(stderr, "%d %d\n", failed, errno);
  return failed != 0;
}

static void *
sleeper(void *argument)
{
  int *ends = argument;
  dup2(ends[1], 1);
  for (;;) { /* until the pipe is full; then it is cancelled in write */
    say("x");
  }
  return NULL;
}

static int
cancelled(void)
{
  int ends[2];
  pthread_t thread;
  void *result;
  if (pipe(ends) != 0) {
    return 1;
  }
  pthread_create(&thread, NULL, sleeper, ends);
  usleep(100000);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  fprintf(stderr, "cancelled: %d\n", result == PTHREAD_CANCELED);
  return 0;
}

int
main(int argc, char **argv)
{
  static const struct {
    const char *name;
    int (*run)(void);
  } ways[] = {{"mixed", mixed},         {"threads", threads}, {"bad", bad_pointers},
              {"handler", in_handler},  {"raw", raw},         {"vectors", vectors_of_all_sizes},
              {"binary", binary},       {"large", large},     {"much", much},
              {"elsewhere", elsewhere}, {"closed", closed},   {"full", stdio_until_full},
              {"cancelled", cancelled}};
  const char *how = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
    if (strcmp(how, ways[i].name) == 0) {
      return ways[i].run();
    }
  }
  return strcmp(how, "fork") == 0 ? child(0) : strcmp(how, "vfork") == 0 ? child(1) : 2;
}
