/* SPDX-License-Identifier: MIT */
/* See live_view.h. */
#include "cli/live_view.h"

#include <contrail/control.h>

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int
ct_live_view_check(const struct ct_command *command)
{
  if (isatty(STDERR_FILENO) != 1) {
    return ct_usage_error(command, "--live shows tables on standard error, which is no terminal here: use contrail top "
                                   "in a terminal");
  }
  if (isatty(STDOUT_FILENO) == 1) {
    return ct_usage_error(command, "--live would write between the program's output: send that elsewhere (> FILE), or "
                                   "use contrail top in another terminal");
  }
  return CT_EXIT_OK;
}

pid_t
ct_live_view_start(const struct ct_control *control, bool beside)
{
  static char program[] = "/proc/self/exe", contrail[] = "contrail", top[] = "top", leave[] = "--leave",
              limit[] = "--limit", ten[] = "10";
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, defaults;
  pid_t pid = 0;
  if (control == NULL) {
    return 0; /* which has been said */
  }
  char id[CT_CONTROL_ID_BYTES];
  snprintf(id, sizeof(id), "%s", ct_control_id(control));
  char *words[] = {contrail, top, leave, limit, ten, id, NULL};
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  sigemptyset(&none);
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  if (beside) {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_setpgroup(&attributes, 0);
  }
  posix_spawnattr_setflags(
      &attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (beside ? POSIX_SPAWN_SETPGROUP : 0)));
  int code = posix_spawn(&pid, program, &files, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (code != 0) {
    fprintf(stderr, "contrail: note: --live cannot show anything: %s\n", strerror(code));
    return 0;
  }
  return pid;
}

void
ct_live_view_end(pid_t view)
{
  if (view <= 0) {
    return;
  }
  kill(view, SIGTERM);
  while (waitpid(view, NULL, 0) < 0 && errno == EINTR) {
  }
}
