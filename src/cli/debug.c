/* SPDX-License-Identifier: MIT */
/* contrail debug: gdb over a recording of instructions. */
#include "cli/command.h"

#include <contrail/debug.h>

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 64, COMMANDS_MAX = 24, WAIT_MS = 50 };

struct debug {
  const char *thread, *step, *listen;
  bool is_stdio;
  struct commands {
    const char *items[COMMANDS_MAX];
    size_t count;
  } commands;
};

static int
apply_command(const struct ct_applied *applied)
{
  struct commands *commands = applied->member;
  if (commands->count == COMMANDS_MAX) {
    return ct_usage_error(applied->command, "at most %d times --execute", COMMANDS_MAX);
  }
  commands->items[commands->count++] = applied->value;
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    {.name = "thread",
     .letter = 't',
     .argument = "TID",
     .help = "show this thread, if there are several",
     .apply = ct_apply_text,
     .offset = offsetof(struct debug, thread)},
    {.name = "step",
     .argument = "N",
     .help = "begin before step N (default: at the end)",
     .apply = ct_apply_text,
     .offset = offsetof(struct debug, step)},
    {.name = "execute",
     .letter = 'x',
     .argument = "COMMAND",
     .help = "run COMMAND in gdb, which then ends by itself. May be given several times",
     .apply = apply_command,
     .adds_up = true,
     .offset = offsetof(struct debug, commands)},
    {.name = "listen",
     .argument = "PORT",
     .help = "wait at PORT, on this machine only, for a debugger: (gdb) target remote :PORT",
     .apply = ct_apply_text,
     .offset = offsetof(struct debug, listen)},
    {.name = "stdio",
     .help = "answer on standard input and output: (gdb) target remote | contrail debug --stdio DIR",
     .apply = ct_apply_flag,
     .offset = offsetof(struct debug, is_stdio)},
    CT_OPTIONS_END,
};

static int
failed(const char *text)
{
  return ct_command_failed(&ct_command_debug, "%s: %s", text, strerror(errno));
}

/* ---- ways to a debugger ---- */

/* A socket by a name that only its owner can reach. The descriptor, -1: no. */
static int
private_socket(char *folder, struct sockaddr_un *address)
{
  int fd = mkdtemp(folder) != NULL ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  snprintf(address->sun_path, sizeof(address->sun_path), "%s/gdb", folder);
  if (fd >= 0 && (bind(fd, (struct sockaddr *)address, sizeof(*address)) != 0 || listen(fd, 1) != 0)) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static pid_t
start_gdb(const struct debug *wanted, const char *path)
{
  /* Of a recording of a thousand million instructions the first answer takes longer than gdb waits by itself (2 s). */
  const char *words[WORDS_MAX] = {
      "gdb", "-q", "-iex", "set sysroot /", "-iex", "set confirm off", "-iex", "set remotetimeout 3600"};
  size_t count = 8;
  char target[sizeof("target remote ") + sizeof(((struct sockaddr_un *)0)->sun_path)];
  snprintf(target, sizeof(target), "target remote %s", path);
  if (wanted->commands.count != 0) {
    words[count++] = "-batch";
  }
  words[count++] = "-ex";
  words[count++] = target;
  for (size_t i = 0; i < wanted->commands.count; i++) {
    words[count++] = "-ex";
    words[count++] = wanted->commands.items[i];
  }
  signal(SIGINT, SIG_IGN); /* it is for gdb */
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGINT, SIG_DFL);
    execvp(words[0], (char *const *)words);
    ct_command_failed(&ct_command_debug, "gdb cannot be started: %s (Debian: apt install gdb; or --listen PORT)",
                      strerror(errno));
    _exit(127);
  }
  return pid;
}

static int
run_gdb(struct ct_debug *debug, const struct debug *wanted)
{
  char folder[] = "/tmp/contrail-debug.XXXXXX";
  struct sockaddr_un address;
  int fd = private_socket(folder, &address), status = 0;
  pid_t pid = fd >= 0 ? start_gdb(wanted, address.sun_path) : -1;
  bool has_ended = pid < 0;
  int code = pid < 0 ? failed("gdb cannot be started") : CT_EXIT_OK;
  while (!has_ended) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, WAIT_MS) == 1) {
      int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
      if (peer >= 0) {
        ct_debug_serve(debug, peer, peer);
        close(peer);
      }
    }
    has_ended = waitpid(pid, &status, WNOHANG) == pid;
  }
  if (fd >= 0) {
    close(fd);
  }
  unlink(address.sun_path);
  rmdir(folder);
  return code != CT_EXIT_OK ? code : WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_FAILED;
}

/*
 * Whoever is served can have files read in our name, so it must be a process of our user, or root's. A socket of the
 * loopback has no credentials; the kernel's table of connections has the owner of the other end.
 */
static bool
is_from_us(int peer)
{
  enum { ESTABLISHED = 1 };
  struct sockaddr_in own = {0}, other = {0};
  socklen_t own_length = sizeof(own), other_length = sizeof(other);
  char line[256];
  bool is = false;
  FILE *table = fopen("/proc/self/net/tcp", "re");
  if (table == NULL || getsockname(peer, (struct sockaddr *)&own, &own_length) != 0 ||
      getpeername(peer, (struct sockaddr *)&other, &other_length) != 0) {
    other.sin_port = 0; /* as nobody has it */
  }
  while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
    unsigned from, from_port, to, to_port, state, uid;
    if (sscanf(line, "%*u: %x:%x %x:%x %x %*x:%*x %*x:%*x %*x %u", &from, &from_port, &to, &to_port, &state, &uid) ==
            6 &&
        from == other.sin_addr.s_addr && from_port == ntohs(other.sin_port) && to == own.sin_addr.s_addr &&
        to_port == ntohs(own.sin_port) && state == ESTABLISHED) {
      is = uid == geteuid() || uid == 0;
    }
  }
  if (table != NULL) {
    fclose(table);
  }
  return is;
}

/* The first connection of our own; negative: there is none. */
static int
accept_ours(int fd)
{
  for (;;) {
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0 || is_from_us(peer)) {
      return peer;
    }
    close(peer);
    fprintf(stderr, "contrail: a connection of another user was refused\n");
  }
}

static int
listen_at(struct ct_debug *debug, const char *text)
{
  char *end;
  unsigned long port = strtoul(text, &end, 10);
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(address);
  if (*end != 0 || end == text || port > UINT16_MAX) {
    return ct_usage_error(&ct_command_debug, "--listen takes a port, not '%s'", text);
  }
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 1) != 0 ||
      getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
    int code = failed(text);
    if (fd >= 0) {
      close(fd);
    }
    return code;
  }
  fprintf(stderr, "contrail: in gdb: target remote :%u\n", ntohs(address.sin_port));
  int peer = accept_ours(fd);
  close(fd);
  if (peer < 0) {
    return failed("a connection");
  }
  ct_debug_serve(debug, peer, peer);
  close(peer);
  return CT_EXIT_OK;
}

/* ---- the command ---- */

static bool
take_number(const char *text, uint64_t most, uint64_t *value)
{
  char *end;
  errno = 0;
  *value = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && *value <= most;
}

/* What could not be read, if there is any that was not reported: whether it is. */
static bool
report_damage(const struct ct_debug *debug, bool is_reported)
{
  const char *damage = ct_debug_damage(debug);
  if (damage[0] != '\0' && !is_reported) {
    ct_command_failed(&ct_command_debug, "DAMAGED: %s", damage);
  }
  return damage[0] != '\0';
}

static void
report_note(void *context, const char *line)
{
  (void)context;
  ct_command_failed(&ct_command_debug, "%s", line);
}

static int
run(int argc, char **argv)
{
  struct debug wanted = {.thread = NULL};
  struct ct_debug_options given = {.struct_size = sizeof(given), .note = report_note};
  struct ct_debug *debug;
  struct ct_diag diag = {""};
  uint64_t tid = 0;
  int code = ct_parse(&ct_command_debug, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (wanted.thread != NULL && (!take_number(wanted.thread, INT32_MAX, &tid) || tid == 0)) {
    return ct_usage_error(&ct_command_debug, "--thread takes a thread's id, not '%s'", wanted.thread);
  }
  given.has_step = wanted.step != NULL;
  if (given.has_step && !take_number(wanted.step, UINT64_MAX, &given.step)) {
    return ct_usage_error(&ct_command_debug, "--step takes a number, not '%s'", wanted.step);
  }
  if ((wanted.listen != NULL) + wanted.is_stdio + (wanted.commands.count != 0) > 1) {
    return ct_usage_error(&ct_command_debug, "--listen, --stdio and --execute: one of them");
  }
  const char *path = ct_trace_argument(&ct_command_debug, argc, argv);
  if (path == NULL) {
    return CT_EXIT_USAGE;
  }
  given.tid = (uint32_t)tid;
  given.out = wanted.is_stdio ? STDOUT_FILENO : 0;
  if (ct_debug_open(path, &given, &debug, &diag) != CT_OK) {
    return ct_command_failed(&ct_command_debug, "%s", diag.text);
  }
  bool is_reported = report_damage(debug, false);
  if (wanted.is_stdio) {
    ct_debug_serve(debug, STDIN_FILENO, STDOUT_FILENO);
    code = CT_EXIT_OK;
  } else {
    code = wanted.listen != NULL ? listen_at(debug, wanted.listen) : run_gdb(debug, &wanted);
  }
  report_damage(debug, is_reported);
  ct_debug_close(debug);
  return code;
}

const struct ct_command ct_command_debug = {
    .name = "debug",
    .summary = "walk through recorded instructions with gdb, forwards and backwards",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Starts gdb on the instructions recorded in DIR (default " CT_DEFAULT_TRACE "), or in a file of it (see\n"
             "contrail itrace). It has registers, memory as the recording shows it, breakpoints and watchpoints,\n"
             "and goes forwards, and backwards by reverse-step, reverse-continue and the like. It begins at the\n"
             "end, where the program crashed if it did. Nothing can be changed.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .closing = "Exit status: gdb's; 0 of --listen and --stdio; 1 when the trace cannot be read, 2 for wrong usage.\n",
    .run = run,
};
