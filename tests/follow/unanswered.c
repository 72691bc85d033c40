/* SPDX-License-Identifier: MIT */
/*
 * What it is told by files in its folder. It leaves "ready"; once "begin" is there it loads a library, and makes
 * children, each of which works; then it leaves "done", and goes on until "end" is there.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3 };

__attribute__((noinline)) int
work(int x)
{
  __asm__ volatile("" : "+r"(x));
  return x + 1;
}

static void
wait_for(const char *name)
{
  while (access(name, F_OK) != 0) {
    usleep(1000);
  }
}

static int
leave(const char *name)
{
  return close(open(name, O_CREAT | O_WRONLY, 0600));
}

int
main(int argc, char **argv)
{
  int failed = argc != 2 || chdir(argv[1]) != 0 || leave("ready") != 0;
  wait_for("begin");
  failed |= dlopen("libm.so.6", RTLD_NOW) == NULL;
  for (int i = 0; i < CHILDREN; i++) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
      _exit(work(i));
    }
    failed |= waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != i + 1;
  }
  failed |= leave("done") != 0;
  wait_for("end");
  return failed;
}
