/* SPDX-License-Identifier: MIT */
/* Calls of the C library, each followed by what it looked like: tests/typed.py finds these lines in the replay. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char path[4096], buffer[16];
static struct stat status;
static struct timespec wait_time = {0, 1000}, now;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ends[2], numbers[] = {3, 1, 2};
static struct sigaction action;
static sigset_t set;

int
compare(const void *a, const void *b)
{
  return *(const int *)a - *(const int *)b;
}

static void *
thread(void *arg)
{
  return arg;
}

/* One list of calls, longer than others. */
int
main(int argc, char **argv)
{
  void *at;
  pthread_t other;
  snprintf(path, sizeof(path), "%s", argv[1]);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  printf("open(path=%p, flags=O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, mode=0640) = %d\n", path, fd);
  ssize_t bytes = write(fd, "some bytes", 10);
  printf("= %zd\n", bytes);
  off_t offset = lseek(fd, -3, SEEK_END);
  printf("lseek(fd=%d, offset=-3, whence=SEEK_END) = %ld\n", fd, (long)offset);
  int result = fstat(fd, &status);
  printf("fstat(fd=%d, buf=%p)\n", fd, &status);
  result |= close(fd);
  printf("close(fd=%d) = %d\n", fd, result);
  fd = open(path, O_RDONLY);
  printf("open(path=%p, flags=O_RDONLY) = %d\n", path, fd);
  bytes = read(fd, buffer, sizeof(buffer));
  printf("read(fd=%d, buf=%p, count=16) = %zd\n", fd, buffer, bytes);
  close(fd);
  result = close(999);
  printf("close(fd=999) = %d\n", result);
  unlink(path);
  printf("unlink(path=%p) = 0\n", path);
  at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("mmap(addr=NULL, length=4096, prot=PROT_READ|PROT_WRITE, flags=MAP_PRIVATE|MAP_ANONYMOUS, fd=-1, offset=0) = "
         "%p\n",
         at);
  mprotect(at, 4096, PROT_NONE);
  printf("mprotect(addr=%p, length=4096, prot=PROT_NONE) = 0\n", at);
  munmap(at, 4096);
  printf("munmap(addr=%p, length=4096) = 0\n", at);
  at = mmap(NULL, 0, PROT_READ, MAP_SHARED, -1, 0);
  printf("mmap(addr=NULL, length=0, prot=PROT_READ, flags=MAP_SHARED, fd=-1, offset=0) = %s\n",
         at == MAP_FAILED ? "-1" : "?");
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  printf("socket(domain=AF_UNIX, type=SOCK_STREAM|SOCK_CLOEXEC, protocol=0) = %d\n", fd);
  close(fd);
  socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
  printf("socketpair(domain=AF_UNIX, type=SOCK_DGRAM, protocol=0, fds=%p) = 0\n", ends);
  bytes = send(ends[0], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  printf("len=1, flags=MSG_DONTWAIT|MSG_NOSIGNAL) = %zd\n", bytes);
  shutdown(ends[0], SHUT_RDWR);
  printf("shutdown(fd=%d, how=SHUT_RDWR) = 0\n", ends[0]);
  pthread_mutex_lock(&mutex);
  printf("pthread_mutex_lock(mutex=%p) = 0\n", &mutex);
  result = pthread_mutex_trylock(&mutex);
  printf("pthread_mutex_trylock(mutex=%p) = %s\n", &mutex, result == EBUSY ? "EBUSY" : "?");
  pthread_create(&other, NULL, thread, buffer);
  printf("start=%p <thread>, arg=%p) = 0\n", thread, buffer);
  pthread_join(other, NULL);
  sigemptyset(&set);
  sigprocmask(SIG_BLOCK, &set, NULL);
  printf("sigprocmask(how=SIG_BLOCK, set=%p, oldset=NULL) = 0\n", &set);
  action.sa_handler = SIG_IGN;
  sigaction(SIGUSR1, &action, NULL);
  printf("sigaction(sig=SIGUSR1, act=%p, oldact=NULL)\n", &action);
  qsort(numbers, 3, sizeof(int), compare);
  printf("qsort(base=%p, nmemb=3, size=4, compar=%p <compare>)\n", numbers, compare);
  clock_nanosleep(CLOCK_MONOTONIC, 0, &wait_time, NULL);
  printf("clock_nanosleep(clockid=CLOCK_MONOTONIC, flags=0, req=%p, rem=NULL) = 0\n", &wait_time);
  clock_gettime(CLOCK_REALTIME, &now);
  printf("clock_gettime(clockid=CLOCK_REALTIME, tp=%p) = 0\n", &now);
  result = access("/nonexistent", R_OK | X_OK);
  printf("mode=R_OK|X_OK) = %d\n", result);
  at = malloc(1234);
  printf("malloc(size=1234) = %p\n", at);
  free(at);
  printf("free(ptr=%p)\n", at);
  printf("%s\n", getenv("HOME") != NULL ? "getenv(name=" : "getenv");
  return 0;
}
