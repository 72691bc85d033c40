/* SPDX-License-Identifier: MIT */
/* The asking side; see client.h. */
#include "control/client.h"

#include "control/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, ANSWER_BYTES_MAX = 64 << 20, STOPPED_MS = 1000 };

static int64_t
now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until the socket is ready; 0, CT_ETIMEOUT or CT_EIO. deadline_ms negative: none. */
static int
await(int fd, short events, int64_t deadline_ms)
{
  for (;;) {
    struct pollfd wait = {.fd = fd, .events = events};
    int64_t left = deadline_ms < 0 ? -1 : deadline_ms - now_ms();
    int ready = deadline_ms < 0 ? poll(&wait, 1, -1) : left > 0 ? poll(&wait, 1, (int)left) : 0;
    if (ready > 0) {
      return CT_OK;
    }
    if (ready == 0) {
      return CT_ETIMEOUT;
    }
    if (errno != EINTR) {
      return CT_EIO;
    }
  }
}

static int
send_all(int fd, const char *line, int64_t deadline_ms)
{
  size_t size = strlen(line), at = 0;
  while (at < size) {
    ssize_t sent = send(fd, line + at, size - at, MSG_NOSIGNAL);
    if (sent >= 0) {
      at += (size_t)sent;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return CT_OK; /* it may have said why; the answer has it */
    } else if (errno == EAGAIN || errno == EINTR) {
      int code = await(fd, POLLOUT, deadline_ms);
      if (code != CT_OK) {
        return code;
      }
    } else {
      return CT_EIO;
    }
  }
  return CT_OK;
}

/* Takes the line that ends at end out of what was read. */
static int
take_line(struct ct_client_input *input, const char *end, char **line, size_t *length)
{
  size_t size = (size_t)(end - input->bytes);
  char *own = malloc(size + 1);
  if (own == NULL) {
    return CT_ENOMEM;
  }
  memcpy(own, input->bytes, size);
  own[size] = 0;
  input->size -= size + 1;
  input->seen = 0;
  memmove(input->bytes, end + 1, input->size);
  *line = own;
  *length = size;
  return CT_OK;
}

static int
read_more(int fd, struct ct_client_input *input, int64_t deadline_ms)
{
  if (input->room - input->size < READ_BYTES) {
    char *more = input->size <= ANSWER_BYTES_MAX ? realloc(input->bytes, input->size + READ_BYTES) : NULL;
    if (more == NULL) {
      return CT_ENOMEM;
    }
    input->bytes = more;
    input->room = input->size + READ_BYTES;
  }
  ssize_t got = recv(fd, input->bytes + input->size, READ_BYTES, 0);
  if (got > 0) {
    input->size += (size_t)got;
    return CT_OK;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? await(fd, POLLIN, deadline_ms) : CT_ENOENT;
}

static int
receive(int fd, struct ct_client_input *input, int64_t deadline_ms, char **line, size_t *length)
{
  int code = CT_OK;
  while (code == CT_OK) {
    char *from = input->bytes + input->seen;
    char *end = input->size != input->seen ? memchr(from, '\n', input->size - input->seen) : NULL;
    if (end != NULL) {
      return take_line(input, end, line, length);
    }
    input->seen = input->size;
    code = read_more(fd, input, deadline_ms);
  }
  return code;
}

static int
explain(int code, struct ct_diag *diag)
{
  switch (code) {
  case CT_ETIMEOUT:
    return ct_fail(diag, code, "the session does not answer");
  case CT_ENOENT:
    return ct_fail(diag, code, "the session has ended");
  default:
    return ct_fail(diag, code, "cannot speak to the session: %s", ct_err_text(code));
  }
}

int
ct_client_line(int fd, struct ct_client_input *input, int timeout_ms, char **line, size_t *length, struct ct_diag *diag)
{
  int code = receive(fd, input, timeout_ms < 0 ? -1 : now_ms() + timeout_ms, line, length);
  return code == CT_OK ? CT_OK : explain(code, diag);
}

/* By a signal: proc_pid_stat(5). */
static bool
is_stopped(pid_t pid)
{
  char path[32], text[256];
  snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
  if (fd >= 0) {
    close(fd);
  }
  text[size > 0 ? size : 0] = 0;
  const char *end = strrchr(text, ')'); /* of the name, in which anything may be */
  return end != NULL && strncmp(end, ") T", 3) == 0;
}

/* The recorder at the other end when it is stopped, as it is with a program that it has started; 0: it is not. */
static pid_t
stopped_peer(int fd)
{
  struct ucred peer = {.pid = 0};
  socklen_t size = sizeof(peer);
  bool is_known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  return is_known && is_stopped(peer.pid) ? peer.pid : 0;
}

/* One that is stopped will not answer before somebody lets it go on: that is not waited for. */
static int
receive_answer(int fd, struct ct_client_input *input, int64_t deadline_ms, char **line, size_t *length)
{
  for (;;) {
    int64_t now = now_ms();
    bool is_last = deadline_ms - now <= STOPPED_MS;
    int code = receive(fd, input, is_last ? deadline_ms : now + STOPPED_MS, line, length);
    if (code != CT_ETIMEOUT || is_last || stopped_peer(fd) != 0) {
      return code;
    }
  }
}

int
ct_client_call(int fd, struct ct_client_input *input, const char *method, const json_t *params, int timeout_ms,
               json_t **result, struct ct_diag *diag)
{
  enum { ID = 1 }; /* one call at a time */
  int64_t deadline_ms = now_ms() + timeout_ms;
  char *request = ct_rpc_request(method, params, ID), *line = NULL;
  size_t length = 0;
  int code = request != NULL ? send_all(fd, request, deadline_ms) : CT_ENOMEM;
  free(request);
  if (code == CT_OK) {
    code = receive_answer(fd, input, deadline_ms, &line, &length);
  }
  pid_t stopped = code == CT_ETIMEOUT ? stopped_peer(fd) : 0;
  if (stopped != 0) {
    return ct_fail(diag, code,
                   "the session does not answer: its recorder, process %d, is stopped, as it is while the program that "
                   "it has started is stopped; kill -CONT lets each of them go on",
                   (int)stopped);
  }
  if (code != CT_OK) {
    return explain(code, diag);
  }
  code = ct_rpc_take_answer(line, length, ID, result, diag);
  free(line);
  return code;
}
