/* SPDX-License-Identifier: MIT */
/*
 * The processes of a program that was launched: its group, which has the id of its leader. A leader that has ended and
 * was waited for gives its id free once its group is empty, and then another process, of which we know nothing, can
 * have it, and a group of its own by it. So a group is meant by a descriptor of its leader, taken while that was not
 * waited for: for the kernel (since 6.9) that is the group of that leader for ever, and of nobody else.
 *
 * Without that, each process is looked at: what has this session and group, while no other leader has the id, is ours.
 * A program is launched as the leader of a session, so it cannot leave its group.
 */
#include "mcp/server.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIGNAL_GROUP = 1 << 2 }; /* PIDFD_SIGNAL_PROCESS_GROUP */

void
mcp_group_open(struct mcp_group *group, pid_t leader)
{
  *group = (struct mcp_group){.leader = leader, .started = mcp_started_at(leader)};
  group->fd = leader > 0 ? (int)syscall(SYS_pidfd_open, leader, 0) : -1;
  if (group->fd >= 0 && (group->started == 0 || mcp_started_at(leader) != group->started)) {
    mcp_group_close(group);
  }
}

void
mcp_group_close(struct mcp_group *group)
{
  if (group->fd >= 0) {
    close(group->fd);
    group->fd = -1;
  }
}

/* Its process group and session, by /proc. */
static bool
find_group(pid_t pid, pid_t *group, pid_t *session)
{
  char path[64], text[1024];
  int parent;
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  size_t got = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  text[got] = '\0';
  const char *at = strrchr(text, ')'); /* the name may have anything in it */
  return at != NULL && sscanf(at, ") %*c %d %d %d", &parent, group, session) == 3;
}

static bool
is_in(const struct mcp_group *group, pid_t pid)
{
  pid_t its_group, its_session;
  return find_group(pid, &its_group, &its_session) && its_group == group->leader && its_session == group->leader;
}

/* One that was found to be in it, unless it is another by now. */
static void
signal_member(const struct mcp_group *group, pid_t pid, int number)
{
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0 && is_in(group, pid)) {
    syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
  }
  if (fd >= 0) {
    close(fd);
  }
}

void
mcp_group_signal(const struct mcp_group *group, int number)
{
  if (group->leader <= 0 || group->started == 0) {
    return;
  }
  if (group->fd >= 0 &&
      (syscall(SYS_pidfd_send_signal, group->fd, number, NULL, SIGNAL_GROUP) == 0 || errno == ESRCH)) {
    return;
  }
  unsigned long long now = mcp_started_at(group->leader);
  DIR *processes = now == 0 || now == group->started ? opendir("/proc") : NULL;
  for (const struct dirent *one; processes != NULL && (one = readdir(processes)) != NULL;) {
    pid_t pid = (pid_t)strtol(one->d_name, NULL, 10);
    if (pid > 1 && is_in(group, pid)) {
      signal_member(group, pid, number);
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
}
