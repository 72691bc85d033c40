/* SPDX-License-Identifier: MIT */
/* Calls of the C library that fill memory; prints how replay is to show each. tests/typed.py */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static jmp_buf back;
static int pair[2];

static void
leave(int number)
{
  (void)number;
  siglongjmp(back, 1);
}

/* A read that a handler leaves; after it one from the same place. */
static void
left(char *buffer)
{
  if (sigsetjmp(back, 1) == 0) {
    signal(SIGALRM, leave);
    alarm(1);
    read(pair[0], buffer, 40);
  }
}

int
main(void)
{
  char buffer[200], other[64];
  int fd = open("/proc/self/cmdline", O_RDONLY), fds[2];
  ssize_t had = read(fd, buffer, sizeof(buffer));
  printf("read(fd=%d, buf=%p, count=200) = %zd {buf=\"", fd, (void *)buffer, had);
  for (ssize_t i = 0; i < had && i < 64; i++) {
    printf(buffer[i] == 0 ? "\\x00" : "%c", buffer[i]);
  }
  printf(had > 64 ? "\"...}\n" : "\"}\n");
  had = read(-1, buffer, 10);
  printf("read(fd=-1, buf=%p, count=10) = -1 EBADF;\n", (void *)buffer);
  had = read(open("/dev/null", O_RDONLY), buffer, 10);
  printf("count=10) = 0;\n");

  struct stat status;
  fstatat(AT_FDCWD, "/dev/null", &status, 0);
  printf(
      "path=%%s \"/dev/null\", buf=%p, flags=0) = 0 {buf={st_mode=0%o, st_size=%ld, st_uid=%u, st_gid=%u, st_ino=%lu, "
      "st_dev=%lu, st_nlink=%lu}}\n",
      (void *)&status, status.st_mode, (long)status.st_size, status.st_uid, status.st_gid, status.st_ino, status.st_dev,
      status.st_nlink);
  pipe(fds);
  printf("pipe(fds=%p) = 0 {fds={%d, %d}}\n", (void *)fds, fds[0], fds[1]);
  char *where = getcwd(other, sizeof(other));
  if (where != NULL) {
    printf("getcwd(buf=%p, size=64) = %p \"%s\" {buf=\"%s\"}\n", (void *)other, (void *)other, other, other);
  }
  where = getcwd(other, 1);
  printf("getcwd(buf=%p, size=1) = NULL\n", (void *)other);
  where = getenv("PLANTED");
  printf("\"PLANTED\") = %p \"%s\"\n", (void *)where, where);
  where = getenv("NOT_PLANTED");
  printf("\"NOT_PLANTED\") = NULL\n");
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("clock_gettime(clockid=CLOCK_MONOTONIC, tp=%p) = 0 {tp={tv_sec=%ld, tv_nsec=%ld}}\n", (void *)&now, now.tv_sec,
         now.tv_nsec);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  printf("rlim=%p) = 0 {rlim={rlim_cur=%ld, rlim_max=%ld}}\n", (void *)&limit, (long)limit.rlim_cur,
         (long)limit.rlim_max);
  int state = 0;
  pid_t child = fork();
  if (child == 0) {
    _exit(7);
  }
  waitpid(child, &state, 0);
  printf("waitpid(pid=%d, status=%p, options=0) = %d {status=%d}\n", child, (void *)&state, child, state);

  /* Across the end of a page, and as far as there is memory. */
  char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + 8192, 4096);
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  send(pair[1], "across the end of a page", 24, 0);
  recv(pair[0], pages + 4096 - 10, 60, 0);
  printf("recv(fd=%d, buf=%p, len=60, flags=0) = 24 {buf=\"across the end of a page\"}\n", pair[0],
         (void *)(pages + 4086));

  left(buffer);
  send(pair[1], "after it", 8, 0);
  signal(SIGALRM, SIG_IGN);
  left(other);
  printf("read(fd=%d, buf=%p, count=40) = 8 {buf=\"after it\"}\n", pair[0], (void *)other);
  return 0;
}
