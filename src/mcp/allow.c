/* SPDX-License-Identifier: MIT */
/* --allow: which programs, processes and directories the client may name. Without it: all that the user may. */
#include "mcp/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path is that of the entry, or below it. Both without links. */
static bool
is_below(const char *path, const char *entry)
{
  char real[PATH_MAX];
  if (realpath(entry, real) == NULL) {
    return false;
  }
  size_t length = strlen(real);
  return strncmp(path, real, length) == 0 && (path[length] == '\0' || path[length] == '/' || length == 1);
}

static bool
is_listed(const struct mcp_options *options, const char *path)
{
  char real[PATH_MAX];
  bool found = false;
  if (realpath(path, real) == NULL) {
    return false;
  }
  for (size_t i = 0; i < options->allow_count && !found; i++) {
    found = strchr(options->allow[i], '/') != NULL && is_below(real, options->allow[i]);
  }
  return found;
}

bool
mcp_allows_program(struct mcp_call *call, const char *path)
{
  const struct mcp_options *options = call->server->options;
  return options->allow_count == 0 || is_listed(options, path) ||
         mcp_fail(call,
                  "%.300s is not among what the server was allowed (--allow); the user may start it with another "
                  "--allow",
                  path);
}

bool
mcp_allows_process(struct mcp_call *call, pid_t pid)
{
  const struct mcp_options *options = call->server->options;
  char link[64], path[PATH_MAX], number[32];
  bool found = options->allow_count == 0;
  snprintf(number, sizeof(number), "%d", (int)pid);
  for (size_t i = 0; i < options->allow_count && !found; i++) {
    found = strcmp(options->allow[i], number) == 0;
  }
  snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
  ssize_t length = found ? 0 : readlink(link, path, sizeof(path) - 1);
  if (!found && length > 0) {
    path[length] = '\0';
    found = is_listed(options, path);
  }
  return found || mcp_fail(call, "process %d is not among what the server was allowed (--allow)", (int)pid);
}

bool
mcp_allows_directory(struct mcp_call *call, const char *path)
{
  const struct mcp_options *options = call->server->options;
  char real[PATH_MAX];
  return options->allow_count == 0 || is_listed(options, path) ||
         (realpath(path, real) != NULL && is_below(real, call->server->directory)) ||
         mcp_fail(call, "%.300s is not below what the server was allowed (--allow)", path);
}
