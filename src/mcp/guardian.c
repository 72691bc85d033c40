/* SPDX-License-Identifier: MIT */
/*
 * The guardian: a small process that outlives the server if that is killed. It reads from a pipe which processes the
 * server has launched and attached to. When the pipe ends without a goodbye, it ends the groups of those that were
 * launched, takes the hooks out of those that were attached to, and removes the server's temporary directory.
 *
 * A program whose id it was not given yet, because the server was killed while it began, is known by its standard
 * output: a pipe that it was given before.
 */
#include "mcp/server.h"

#include <contrail/control.h>
#include <contrail/recover.h>
#include <contrail/session.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  ENTRIES_MAX = 256,
  PIPES_MAX = 64,
  PIPE_BYTES = 40,
  SCANS = 3,
  SCAN_STEP_MS = 100,
  CLEAN_TURNS = 50,
  CLEAN_STEP_MS = 100,
  FILES_MAX = 32
};
enum { LAUNCHED = 'L', ATTACHED = 'A', FORGET = 'F', PIPE = 'P', NO_PIPE = 'N', GOODBYE = 'Q' };

struct entry {
  char kind;
  pid_t pid;
  unsigned long long started; /* so that no other process is meant that has the number by then */
  char pipe[PIPE_BYTES];      /* "pipe:[123]", as the kernel names it */
};

/* ---- removing ---- */

static int
remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
  (void)info;
  (void)kind;
  (void)place;
  remove(path);
  return 0;
}

void
mcp_remove_tree(const char *path)
{
  nftw(path, remove_one, FILES_MAX, FTW_DEPTH | FTW_PHYS);
}

/* ---- the guardian's side ---- */

/* A process that it is to look after. */
struct charge {
  struct entry entry; /* pid 0: none */
  struct mcp_group group;
};

static void
note(struct charge *charges, const struct entry *received)
{
  struct charge *place = NULL;
  for (size_t i = 0; i < ENTRIES_MAX; i++) {
    if (charges[i].entry.pid == received->pid) {
      place = &charges[i];
      break;
    }
    place = place == NULL && charges[i].entry.pid == 0 ? &charges[i] : place;
  }
  if (place == NULL) {
    return;
  }
  if (place->entry.pid != 0 && place->entry.kind == LAUNCHED) {
    mcp_group_close(&place->group);
  }
  *place = (struct charge){.entry = *received};
  if (received->kind == FORGET) {
    place->entry.pid = 0;
  } else if (received->kind == LAUNCHED) {
    mcp_group_open(&place->group, received->pid);
    if (place->group.started != received->started) { /* it has ended; what is left of it is known by its time */
      mcp_group_close(&place->group);
      place->group.started = received->started;
    }
  }
}

static void
note_pipe(char pipes[][PIPE_BYTES], const struct entry *received)
{
  for (size_t i = 0; i < PIPES_MAX; i++) {
    const char *wanted = received->kind == PIPE ? "" : received->pipe;
    if (strcmp(pipes[i], wanted) == 0) {
      snprintf(pipes[i], PIPE_BYTES, "%s", received->kind == PIPE ? received->pipe : "");
      return;
    }
  }
}

/* As its standard input or output. */
static bool
has_pipe(pid_t pid, char pipes[][PIPE_BYTES])
{
  for (int fd = 0; fd < 2; fd++) {
    char link[64], target[PIPE_BYTES] = "";
    snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pid, fd);
    if (readlink(link, target, sizeof(target) - 1) <= 0) {
      continue;
    }
    for (size_t i = 0; i < PIPES_MAX; i++) {
      if (pipes[i][0] != '\0' && strcmp(pipes[i], target) == 0) {
        return true;
      }
    }
  }
  return false;
}

/* Programs whose ids nobody has given; some may be on their way through exec. */
static void
end_unknown(char pipes[][PIPE_BYTES])
{
  for (int scan = 0; scan < SCANS; scan++) {
    DIR *stream = opendir("/proc");
    for (const struct dirent *one; stream != NULL && (one = readdir(stream)) != NULL;) {
      pid_t pid = (pid_t)strtol(one->d_name, NULL, 10);
      if (pid > 1 && has_pipe(pid, pipes)) {
        kill(pid, SIGKILL);
      }
    }
    if (stream != NULL) {
      closedir(stream);
    }
    struct timespec pause = {0, SCAN_STEP_MS * 1000000L};
    nanosleep(&pause, NULL);
  }
}

static void
clean_up(const struct charge *charge)
{
  const struct entry *entry = &charge->entry;
  unsigned long long now = mcp_started_at(entry->pid);
  if (entry->kind == LAUNCHED) {
    mcp_group_signal(&charge->group, SIGKILL);
    return;
  }
  if (now != 0 && now != entry->started) {
    return; /* another process */
  }
  struct ct_clean_report report = {.struct_size = sizeof(report)};
  for (int turn = 0; now != 0 && turn < CLEAN_TURNS && ct_clean(entry->pid, &report, NULL) == CT_EEXIST; turn++) {
    struct timespec pause = {0, CLEAN_STEP_MS * 1000000L};
    nanosleep(&pause, NULL); /* the server is still going */
  }
}

static void
pass_over(void *context, const char *id)
{
  (void)context;
  (void)id;
}

/* Whose memories are to go. */
struct killed {
  const char *directory; /* of the server's traces, which go too */
  pid_t pid;             /* of the server, by which the files are named */
};

/* That of a session with `last`; one that was not made to the end does not say whose it is. */
static void
remove_memory(void *context, const struct ct_recover_memory *memory)
{
  const struct killed *killed = context;
  char begin[16];
  const char *name = strrchr(memory->path, '/');
  size_t length = strlen(killed->directory);
  bool is_ours = strncmp(memory->directory, killed->directory, length) == 0 && memory->directory[length] == '/';
  snprintf(begin, sizeof(begin), "/%d-", (int)killed->pid);
  if (is_ours || (memory->directory[0] == '\0' && name != NULL && strncmp(name, begin, strlen(begin)) == 0)) {
    unlink(memory->path);
  }
}

static void
guard(int fd, const char *directory, pid_t server)
{
  static struct charge charges[ENTRIES_MAX];
  static char pipes[PIPES_MAX][PIPE_BYTES];
  struct entry received;
  ssize_t got;
  while ((got = read(fd, &received, sizeof(received))) == (ssize_t)sizeof(received) || (got < 0 && errno == EINTR)) {
    if (got > 0 && received.kind == GOODBYE) {
      return;
    }
    if (got > 0 && (received.kind == PIPE || received.kind == NO_PIPE)) {
      note_pipe(pipes, &received);
    } else if (got > 0) {
      note(charges, &received);
    }
  }
  for (size_t i = 0; i < ENTRIES_MAX; i++) {
    if (charges[i].entry.pid != 0) {
      clean_up(&charges[i]);
    }
  }
  end_unknown(pipes);
  ct_control_list(pass_over, NULL, NULL); /* which takes away the sockets of sessions that are gone */
  if (directory[0] != '\0') {
    struct killed killed = {directory, server};
    ct_recover_list(remove_memory, &killed, NULL);
    mcp_remove_tree(directory);
  }
}

/* Nothing of the client's stays open here, or it would wait for us. */
static void
close_others(int keep)
{
  int nothing = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) {
    dup2(nothing, fd);
  }
  if (keep > 3) {
    close_range(3, (unsigned)keep - 1, 0);
  }
  close_range((unsigned)keep + 1, ~0u, 0);
}

/* ---- the server's side ---- */

void
mcp_guardian_start(struct mcp_server *server)
{
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  pid_t own = getpid(), pid = fork();
  if (pid == 0) {
    close_others(ends[0]);
    setsid(); /* signals of the terminal are the server's */
    guard(ends[0], server->is_temporary ? server->directory : "", own);
    _exit(0);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    return;
  }
  server->guardian = pid;
  server->guard_fd = ends[1];
}

static void
send_whole(struct mcp_server *server, const struct entry *entry)
{
  if (server->guard_fd >= 0 && write(server->guard_fd, entry, sizeof(*entry)) < 0) {
    /* it was killed: there is nobody to tell */
  }
}

void
mcp_guard_pipe(struct mcp_server *server, int fd, bool is_ours)
{
  char link[64];
  struct entry entry;
  memset(&entry, 0, sizeof(entry));
  entry.kind = is_ours ? PIPE : NO_PIPE;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  if (fd >= 0 && readlink(link, entry.pipe, sizeof(entry.pipe) - 1) > 0) {
    send_whole(server, &entry);
  }
}

static void
send_entry(struct mcp_server *server, char kind, pid_t pid)
{
  struct entry entry;
  memset(&entry, 0, sizeof(entry)); /* what lies between the members goes through a pipe */
  entry.kind = kind;
  entry.pid = pid;
  entry.started = kind == LAUNCHED || kind == ATTACHED ? mcp_started_at(pid) : 0;
  send_whole(server, &entry);
}

void
mcp_guard_launched(struct mcp_server *server, pid_t pid)
{
  send_entry(server, LAUNCHED, pid);
}

void
mcp_guard_attached(struct mcp_server *server, pid_t pid)
{
  send_entry(server, ATTACHED, pid);
}

void
mcp_guard_forget(struct mcp_server *server, pid_t pid)
{
  send_entry(server, FORGET, pid);
}

void
mcp_guardian_end(struct mcp_server *server, bool is_clean)
{
  if (is_clean) {
    send_entry(server, GOODBYE, 0);
  }
  if (server->guard_fd >= 0) {
    close(server->guard_fd);
    server->guard_fd = -1;
    waitpid(server->guardian, NULL, is_clean ? 0 : WNOHANG);
  }
}
