/* SPDX-License-Identifier: MIT */
/* MCP over HTTP: the front's loop, its beginning and its end. See http.h. */
#include "mcp/http.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, SLOW_TICK_MS = 1000, END_MS = 30000, HEADERS_BYTES = 32 << 10, CONNECTION_SECONDS = 20 };
enum { FDS_MAX = 2 + 2 * HTTP_PROCESSES_MAX, TO_BE_SENT_TURNS = 4 };

uint64_t
http_now_ms(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the loop ---- */

/* What is polled, and whose it is. */
struct polled {
  struct pollfd fds[FDS_MAX];
  struct http_session *of[FDS_MAX];
  nfds_t count;
};

static void
add_fd(struct polled *polled, int fd, short events, struct http_session *session)
{
  if (fd >= 0 && polled->count < FDS_MAX) {
    polled->of[polled->count] = session;
    polled->fds[polled->count++] = (struct pollfd){.fd = fd, .events = events};
  }
}

static void
serve_sessions(struct http_server *server, const struct polled *polled)
{
  for (nfds_t i = 2; i < polled->count; i++) {
    struct http_session *session = polled->of[i];
    if (polled->fds[i].revents != 0 && polled->fds[i].fd == session->from) {
      http_session_read(server, session);
    } else if (polled->fds[i].revents != 0 && polled->fds[i].fd == session->to) {
      http_session_flush(session);
    }
  }
}

static int
next_timeout(struct http_server *server)
{
  MHD_UNSIGNED_LONG_LONG wanted = 0;
  uint64_t now = http_now_ms();
  bool is_soon = http_sessions_tick(server, now);
  is_soon = http_exchanges_tick(server, now) || is_soon;
  bool is_later = http_clients_tick(server, now) || server->sessions != NULL;
  int timeout = is_soon || server->is_ending ? TICK_MS : is_later ? SLOW_TICK_MS : -1;
  if (http_library.get_timeout(server->daemon, &wanted) == MHD_YES && (timeout < 0 || wanted < (unsigned)timeout)) {
    timeout = wanted < SLOW_TICK_MS ? (int)wanted : SLOW_TICK_MS;
  }
  return timeout;
}

/* One turn. False: a signal has come. */
static bool
turn(struct http_server *server)
{
  const union MHD_DaemonInfo *info = http_library.get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
  struct polled polled;
  int timeout = next_timeout(server);
  polled.count = 0;
  add_fd(&polled, info->epoll_fd, POLLIN, NULL);
  add_fd(&polled, server->is_ending ? info->epoll_fd : server->signal_fd, POLLIN, NULL);
  for (struct http_session *session = server->sessions; session != NULL; session = session->next) {
    add_fd(&polled, session->from, POLLIN, session);
    if (session->out.taken < session->out.length) {
      add_fd(&polled, session->to, POLLOUT, session);
    }
  }
  int ready = poll(polled.fds, polled.count, timeout);
  if (ready > 0 && !server->is_ending && polled.fds[1].revents != 0) {
    return false;
  }
  if (ready > 0) {
    serve_sessions(server, &polled);
  }
  http_library.run(server->daemon);
  return ready >= 0 || errno == EINTR;
}

/* ---- begin and end ---- */

static int
start(struct http_server *server, struct ct_diag *diag)
{
  unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
  server->daemon = http_library.start_daemon(
      flags, 0, NULL, NULL, http_handle, server, MHD_OPTION_LISTEN_SOCKET, server->listen_fd,
      MHD_OPTION_NOTIFY_COMPLETED, http_completed, server, MHD_OPTION_NOTIFY_CONNECTION, http_notified, server,
      MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
      (unsigned)CONNECTION_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS_BYTES, MHD_OPTION_END);
  if (server->daemon == NULL) {
    snprintf(diag->text, sizeof(diag->text), "libmicrohttpd does not start");
    return CT_EIO;
  }
  return 0;
}

/* Every session ends, and what waits is answered so. */
static void
end(struct http_server *server)
{
  uint64_t until = http_now_ms() + END_MS;
  server->is_ending = true;
  for (struct http_session *session = server->sessions; session != NULL; session = session->next) {
    http_session_end(server, session);
  }
  for (int i = 0; i < TO_BE_SENT_TURNS || (server->sessions != NULL && http_now_ms() < until); i++) {
    turn(server);
  }
  http_library.stop_daemon(server->daemon);
}

/* Whom to reach how: the only place that shows the token. */
static void
announce(const struct http_server *server, const char *name, bool is_new)
{
  const char *file = server->options->token_file;
  fprintf(stderr, "contrail mcp: listening on %s\n", name);
  if (file != NULL) {
    fprintf(stderr, "contrail mcp: the token %s %s\n", is_new ? "has been written to" : "is the one in", file);
  } else {
    fprintf(stderr, "contrail mcp: Authorization: Bearer %s\n", server->token);
  }
  if (!server->is_loopback) {
    fprintf(stderr, "contrail mcp: other machines can reach this address; what goes over it is not encrypted, and "
                    "whoever has the token can start programs as you\n");
  }
}

/* Signals, as the sessions' own server has them. */
static int
prepare(struct http_server *server, struct ct_diag *diag)
{
  sigset_t all, ends;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &server->program_mask);
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGHUP);
  json_object_seed(0);
  server->signal_fd = signalfd(-1, &ends, SFD_CLOEXEC);
  if (server->signal_fd < 0) {
    snprintf(diag->text, sizeof(diag->text), "out of memory or descriptors");
    return CT_EIO;
  }
  const char *directory = server->options->directory;
  if (directory != NULL && mkdir(directory, 0700) != 0 && errno != EEXIST) {
    snprintf(diag->text, sizeof(diag->text), "no directory %.300s for traces: %s", directory, strerror(errno));
    return CT_EIO;
  }
  return 0;
}

static int
begin_to_serve(struct http_server *server, char *name, bool *is_new, struct ct_diag *diag)
{
  int code = http_find_token(server->options->token_file, server->token, is_new, diag);
  if (code != 0) {
    return code;
  }
  code = http_listen(server->options->http, &server->listen_fd, &server->is_loopback, name, diag);
  if (code != 0) {
    return code;
  }
  code = prepare(server, diag);
  return code != 0 ? code : start(server, diag);
}

int
mcp_serve_http(const struct mcp_options *options, struct ct_diag *diag)
{
  struct http_server server = {.options = options, .listen_fd = -1, .signal_fd = -1};
  char name[HTTP_NAME_BYTES] = "";
  bool is_new = false;
  if (!http_library_load(diag)) {
    return CT_EUNSUPPORTED;
  }
  int code = begin_to_serve(&server, name, &is_new, diag);
  if (code == 0) {
    announce(&server, name, is_new);
    while (turn(&server)) {
    }
    end(&server); /* closes the socket too */
  } else if (server.listen_fd >= 0) {
    close(server.listen_fd);
  }
  if (server.signal_fd >= 0) {
    close(server.signal_fd);
  }
  return code;
}
