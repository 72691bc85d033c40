/* SPDX-License-Identifier: MIT */
/* The sessions of HTTP: a process each, which runs the server of standard input and output on two pipes. */
#include "mcp/http.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  READ_BYTES = 64 << 10,
  LINE_MAX_BYTES = 64 << 20, /* of an answer */
  KILL_MS = 25000,           /* more than an orderly end ever takes */
};

/* ---- begin ---- */

/* In the child: nothing of the front's stays open but the two ends of pipes and the standard error. */
static void
run_session(const struct http_server *server, const char *id, int in, int out)
{
  char directory[PATH_MAX];
  struct mcp_options options = *server->options;
  struct ct_diag diag = {""};
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  close_range(3, ~0u, 0);
  if (options.directory != NULL) { /* one session's names are not another's */
    snprintf(directory, sizeof(directory), "%s/client-%.8s", options.directory, id);
    options.directory = directory;
  }
  sigprocmask(SIG_SETMASK, &server->program_mask, NULL);
  int code = mcp_serve(&options, &diag);
  if (code != 0) {
    fprintf(stderr, "contrail mcp: %s\n", diag.text);
  }
  _exit(code != 0);
}

static void
close_all(int fds[4])
{
  for (int i = 0; i < 4; i++) {
    if (fds[i] >= 0) {
      close(fds[i]);
    }
  }
}

static bool
start_process(struct http_server *server, struct http_session *session)
{
  int fds[4] = {-1, -1, -1, -1}; /* its input: read, write; its output: read, write */
  if (pipe2(fds, O_CLOEXEC) != 0 || pipe2(fds + 2, O_CLOEXEC) != 0 || fds[0] < 3 || fds[3] < 3 ||
      fcntl(fds[1], F_SETFL, O_NONBLOCK) != 0 || fcntl(fds[2], F_SETFL, O_NONBLOCK) != 0 ||
      (session->pid = fork()) < 0) {
    close_all(fds);
    return false;
  }
  if (session->pid == 0) {
    run_session(server, session->id, fds[0], fds[3]);
  }
  close(fds[0]);
  close(fds[3]);
  session->to = fds[1];
  session->from = fds[2];
  return true;
}

struct http_session *
http_session_start(struct http_server *server, const char **wrong)
{
  size_t count = 0, going = 0;
  for (const struct http_session *other = server->sessions; other != NULL; other = other->next) {
    count++;
    going += other->ending_ms == 0;
  }
  if (going >= server->options->http_clients || count >= HTTP_PROCESSES_MAX) {
    *wrong = "there are as many sessions of MCP as there may be (--max-clients): DELETE ends one";
    return NULL;
  }
  struct http_session *session = calloc(1, sizeof(*session));
  if (session == NULL || !http_make_secret(session->id, sizeof(session->id)) || !start_process(server, session)) {
    free(session);
    *wrong = "a session cannot be started: out of memory, processes or descriptors";
    return NULL;
  }
  session->used_ms = http_now_ms();
  session->next = server->sessions;
  server->sessions = session;
  return session;
}

struct http_session *
http_session_find(struct http_server *server, const char *id)
{
  for (struct http_session *session = server->sessions; session != NULL; session = session->next) {
    if (session->ending_ms == 0 && strcmp(session->id, id) == 0) {
      return session;
    }
  }
  return NULL;
}

/* ---- what goes through the pipes ---- */

bool
http_session_write(struct http_session *session, char *line)
{
  size_t length = line != NULL ? strlen(line) : 0;
  bool good = line != NULL && session->to >= 0 && session->out.length - session->out.taken + length < HTTP_QUEUE_MAX;
  if (good) {
    line[length] = '\n'; /* in place of the NUL */
    good = http_append(&session->out, line, length + 1);
    http_session_flush(session);
  }
  free(line);
  return good;
}

void
http_session_flush(struct http_session *session)
{
  struct http_bytes *out = &session->out;
  while (session->to >= 0 && out->taken < out->length) {
    ssize_t written = write(session->to, out->text + out->taken, out->length - out->taken);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) { /* full; or it has ended, which its other pipe shows */
      return;
    }
    out->taken += (size_t)written;
  }
  http_empty(out);
}

void
http_session_read(struct http_server *server, struct http_session *session)
{
  char text[READ_BYTES];
  ssize_t got = read(session->from, text, sizeof(text));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
    return;
  }
  struct http_bytes *in = &session->in;
  if (got <= 0 || in->length > LINE_MAX_BYTES || !http_append(in, text, (size_t)got)) {
    close(session->from);
    session->from = -1;
    http_session_end(server, session);
    return;
  }
  size_t begin = 0, from = in->length - (size_t)got;
  for (char *end; (end = memchr(in->text + from, '\n', in->length - from)) != NULL;) {
    size_t next = (size_t)(end - in->text) + 1;
    if (session->ending_ms == 0) {
      http_give_line(server, session, in->text + begin, next - 1 - begin);
    }
    begin = from = next;
  }
  in->length -= begin;
  if (in->length == 0) {
    http_empty(in);
  } else {
    memmove(in->text, in->text + begin, in->length);
  }
}

/* ---- the end ---- */

void
http_session_end(struct http_server *server, struct http_session *session)
{
  if (session->to >= 0) {
    close(session->to);
    session->to = -1;
  }
  if (session->ending_ms == 0) {
    session->ending_ms = http_now_ms();
  }
  for (struct http_exchange *one = server->exchanges; one != NULL; one = one->next) {
    if (one->session == session) {
      one->session = NULL;
      one->is_over = true;
      http_wake(one);
    }
  }
  http_streams_free(session);
}

static bool
is_in_use(const struct http_server *server, const struct http_session *session)
{
  for (const struct http_exchange *one = server->exchanges; one != NULL; one = one->next) {
    if (one->session == session) {
      return true;
    }
  }
  return false;
}

/* One that is ending. True: it has. */
static bool
has_ended(struct http_session *session, uint64_t now_ms)
{
  if (!session->is_killed && now_ms - session->ending_ms > KILL_MS) {
    kill(session->pid, SIGKILL); /* its guardian does the rest */
    session->is_killed = true;
  }
  return waitpid(session->pid, NULL, WNOHANG) != 0;
}

bool
http_sessions_tick(struct http_server *server, uint64_t now_ms)
{
  bool some_end = false;
  for (struct http_session **at = &server->sessions, *session; (session = *at) != NULL;) {
    if (session->ending_ms == 0 && is_in_use(server, session)) {
      session->used_ms = now_ms;
    } else if (session->ending_ms == 0 && now_ms - session->used_ms >= server->options->http_idle_s * 1000) {
      http_session_end(server, session);
    }
    http_streams_tick(session, now_ms);
    if (session->ending_ms != 0 && has_ended(session, now_ms)) {
      *at = session->next;
      if (session->from >= 0) {
        close(session->from);
      }
      free(session->in.text);
      free(session->out.text);
      free(session);
      continue;
    }
    some_end = some_end || session->ending_ms != 0;
    at = &session->next;
  }
  return some_end;
}
