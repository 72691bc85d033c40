/* SPDX-License-Identifier: MIT */
/* The server for agents, as the command starts it. */
#ifndef CT_MCP_SERVE_H
#define CT_MCP_SERVE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { MCP_SESSIONS_DEFAULT = 8, MCP_ALLOW_MAX = 64, MCP_HTTP_CLIENTS_DEFAULT = 8, MCP_HTTP_IDLE_DEFAULT = 1800 };
#define MCP_MAX_BYTES_DEFAULT (2ull << 30)
#define MCP_MAX_DISK_DEFAULT  (16ull << 30)

/* A program or directory, as an absolute path without links; or (path NULL) a process, with when it began. */
struct mcp_allowed {
  char *path;
  pid_t pid;
  unsigned long long started;
};

struct mcp_options {
  const char *directory; /* where traces go, and stay; NULL: a new one below $TMPDIR, which is removed at the end */
  struct mcp_allowed allow[MCP_ALLOW_MAX]; /* none: whatever the user may */
  size_t allow_count;
  bool is_read_only;      /* nothing is started, attached to or changed */
  uint64_t max_sessions;  /* that are recorded at a time */
  uint64_t max_bytes;     /* of each trace */
  uint64_t max_disk;      /* of all that is in the server's directory */
  uint64_t max_time_s;    /* of each recording; 0: none */
  const char *http;       /* "[HOST:]PORT"; NULL: standard input and output */
  const char *token_file; /* NULL: a new token, which is shown */
  uint64_t http_clients;  /* sessions of MCP at a time */
  uint64_t http_idle_s;   /* after so long without a request one ends */
  size_t (*processes_named)(const char *name, pid_t *pids, size_t size); /* as of cli/processes.h */
};

/* When a process began, by the kernel's clock: with its id that is of one process alone. 0: there is none. */
unsigned long long mcp_started_at(pid_t pid);

/*
 * Speaks MCP on the standard input and output until the client goes (end of file) or SIGTERM, SIGINT or SIGHUP comes.
 * Then programs that were launched have been ended, unless they were to be kept, and processes that were attached to
 * are released. To be called while there is no other thread. 0, or why it could not begin.
 */
int mcp_serve(const struct mcp_options *options, struct ct_diag *diag);

/*
 * The same by HTTP, on options->http, until SIGTERM, SIGINT or SIGHUP comes. Each client's session is a process of its
 * own that runs mcp_serve.
 */
int mcp_serve_http(const struct mcp_options *options, struct ct_diag *diag);

#endif
