/* SPDX-License-Identifier: MIT */
/* contrail mcp: the server for agents. */
#include "cli/command.h"
#include "cli/processes.h"
#include "cli/quantity.h"

#include "mcp/serve.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SIZE_LEAST (1ull << 20)
#define MAX_SIZE_MOST  (1ull << 40)

/* A name without a slash that is no number: the program that PATH has. NULL: there is none. */
static char *
find_in_path(const char *name)
{
  const char *list = getenv("PATH");
  char path[PATH_MAX];
  for (list = list != NULL ? list : "/bin:/usr/bin"; name[0] != '\0'; list++) {
    size_t length = strcspn(list, ":");
    struct stat info;
    snprintf(path, sizeof(path), "%.*s/%s", (int)length, list, name);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0) {
      return strdup(path);
    }
    list += length;
    if (*list == '\0') {
      break;
    }
  }
  return NULL;
}

static int
apply_allow(const struct ct_applied *applied)
{
  struct mcp_options *options = applied->member;
  const char *value = applied->value;
  struct mcp_allowed allowed = {NULL};
  if (options->allow_count == MCP_ALLOW_MAX) {
    return ct_usage_error(applied->command, "--allow: at most %d", MCP_ALLOW_MAX);
  }
  if (value[0] != '\0' && value[strspn(value, "0123456789")] == '\0') {
    unsigned long number = strtoul(value, NULL, 10);
    allowed.pid = number <= INT_MAX ? (pid_t)number : 0;
    allowed.started = allowed.pid > 0 ? mcp_started_at(allowed.pid) : 0;
    if (allowed.started == 0) {
      return ct_usage_error(applied->command, "--allow %s: there is no such process", value);
    }
  } else {
    char *found = strchr(value, '/') != NULL ? strdup(value) : find_in_path(value);
    allowed.path = found != NULL ? realpath(found, NULL) : NULL;
    free(found);
    if (allowed.path == NULL) {
      return ct_usage_error(applied->command, "--allow '%.200s': there is no such program or directory", value);
    }
  }
  options->allow[options->allow_count++] = allowed;
  return CT_EXIT_OK;
}

static int
apply_max_size(const struct ct_applied *applied)
{
  uint64_t bytes = 0;
  if (!ct_parse_size(applied->value, &bytes) || bytes < MAX_SIZE_LEAST || bytes > MAX_SIZE_MOST) {
    return ct_usage_error(applied->command, "--%s takes a size from 1M to 1T, such as 500M or 2G, not '%s'",
                          applied->option->name, applied->value);
  }
  *(uint64_t *)applied->member = bytes;
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    {.name = "allow",
     .argument = "PROGRAM|PID|DIR",
     .help = "start only these programs, attach only to these processes (or to processes of these programs), "
             "and open only traces and programs below these directories, as they are when the server begins. "
             "May be given several times. Default: all that the user may",
     .values = CT_COMPLETE_FILE,
     .adds_up = true,
     .apply = apply_allow},
    {.name = "read-only",
     .help = "start, attach to and change nothing: traces can be opened and asked",
     .apply = ct_apply_flag,
     .offset = offsetof(struct mcp_options, is_read_only)},
    {.name = "directory",
     .argument = "DIR",
     .help = "keep traces and output in DIR (default: a temporary directory, which is removed at the end)",
     .values = CT_COMPLETE_DIRECTORY,
     .apply = ct_apply_text,
     .offset = offsetof(struct mcp_options, directory)},
    {.name = "max-sessions",
     .argument = "N",
     .help = "record at most N at a time (default 8)",
     .least = 1,
     .most = 24,
     .apply = ct_apply_count64,
     .offset = offsetof(struct mcp_options, max_sessions)},
    {.name = "max-size",
     .argument = "SIZE",
     .help = "let each trace grow to SIZE (default 2G). The oldest events are then removed",
     .values = "100M 500M 2G 10G",
     .apply = apply_max_size,
     .offset = offsetof(struct mcp_options, max_bytes)},
    {.name = "max-disk",
     .argument = "SIZE",
     .help = "begin nothing more once traces, output and answers below the server's directory take SIZE "
             "together (default 16G)",
     .values = "1G 16G 100G",
     .apply = apply_max_size,
     .offset = offsetof(struct mcp_options, max_disk)},
    {.name = "max-time",
     .argument = "SECONDS",
     .help = "end each recording after so many seconds (default: the program's end, or the client's)",
     .least = 1,
     .most = 1000000,
     .unit = " (seconds)",
     .apply = ct_apply_count64,
     .offset = offsetof(struct mcp_options, max_time_s)},
    {.name = "http",
     .argument = "[HOST:]PORT",
     .help = "serve HTTP instead of standard input and output, on 127.0.0.1 or the numeric address HOST; port "
             "0 is a free one. Clients need the token that is shown at the start",
     .apply = ct_apply_text,
     .offset = offsetof(struct mcp_options, http)},
    {.name = "token-file",
     .argument = "FILE",
     .help = "with --http: take the token from FILE's first line. If FILE does not exist, it is made, with a "
             "new token",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct mcp_options, token_file)},
    {.name = "max-clients",
     .argument = "N",
     .help = "with --http: keep at most N clients' sessions at a time (default 8)",
     .least = 1,
     .most = 32,
     .apply = ct_apply_count64,
     .offset = offsetof(struct mcp_options, http_clients)},
    {.name = "max-idle",
     .argument = "SECONDS",
     .help = "with --http: end a client's session after so many seconds without a request (default 1800)",
     .least = 1,
     .most = 1000000,
     .unit = " (seconds)",
     .apply = ct_apply_count64,
     .offset = offsetof(struct mcp_options, http_idle_s)},
    CT_OPTIONS_END,
};

/* What belongs to HTTP alone, and its defaults. */
static int
check_http(struct mcp_options *wanted)
{
  const char *alone = wanted->token_file != NULL  ? "--token-file"
                      : wanted->http_clients != 0 ? "--max-clients"
                      : wanted->http_idle_s != 0  ? "--max-idle"
                                                  : NULL;
  if (wanted->http == NULL && alone != NULL) {
    return ct_usage_error(&ct_command_mcp, "%s goes with --http", alone);
  }
  wanted->http_clients = wanted->http_clients != 0 ? wanted->http_clients : MCP_HTTP_CLIENTS_DEFAULT;
  wanted->http_idle_s = wanted->http_idle_s != 0 ? wanted->http_idle_s : MCP_HTTP_IDLE_DEFAULT;
  return CT_EXIT_OK;
}

static int
run(int argc, char **argv)
{
  struct mcp_options wanted = {.max_sessions = MCP_SESSIONS_DEFAULT,
                               .max_bytes = MCP_MAX_BYTES_DEFAULT,
                               .max_disk = MCP_MAX_DISK_DEFAULT,
                               .processes_named = ct_processes_named};
  struct ct_diag diag = {""};
  int code = ct_parse(&ct_command_mcp, argc, argv, &wanted);
  if (code == -1) {
    code = ct_no_operands(&ct_command_mcp, argc, argv);
  }
  if (code == CT_EXIT_OK) {
    code = check_http(&wanted);
  }
  if (code == CT_EXIT_OK && (wanted.http != NULL ? mcp_serve_http : mcp_serve)(&wanted, &diag) != 0) {
    code = ct_command_failed(&ct_command_mcp, "%s", diag.text);
  }
  for (size_t i = 0; i < wanted.allow_count; i++) {
    free(wanted.allow[i].path);
  }
  return code;
}

const struct ct_command ct_command_mcp = {
    .name = "mcp",
    .summary = "a server for coding agents (Model Context Protocol)",
    .synopsis = "[OPTION]...",
    .about = "Speaks the Model Context Protocol on standard input and output, or by HTTP. An agent starts\n"
             "programs, chooses what is recorded while they run, and asks questions. The server ends when the\n"
             "client goes. It then ends the programs that it has started, and releases the processes that it has\n"
             "attached to. By HTTP this holds for each client's session, and the server goes on.\n",
    .options = options,
    .run = run,
};
