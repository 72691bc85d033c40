/* SPDX-License-Identifier: MIT */
/* The asking side; see client.h. */
#include "control/client.h"

#include "control/rpc.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { READ_BYTES = 64 << 10, ANSWER_BYTES_MAX = 64 << 20 };

static int64_t
now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until the socket is ready; 0, CT_ETIMEOUT or CT_EIO. */
static int
await(int fd, short events, int64_t deadline_ms)
{
  for (;;) {
    struct pollfd wait = {.fd = fd, .events = events};
    int64_t left = deadline_ms - now_ms();
    int ready = left > 0 ? poll(&wait, 1, (int)left) : 0;
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

/* Reads the line of an answer, to be freed. */
static int
receive(int fd, int64_t deadline_ms, char **line, size_t *length)
{
  char *buffer = NULL, *end = NULL;
  size_t size = 0;
  int code = CT_OK;
  while (code == CT_OK && end == NULL) {
    char *more = size <= ANSWER_BYTES_MAX ? realloc(buffer, size + READ_BYTES) : NULL;
    if (more == NULL) {
      code = CT_ENOMEM;
      break;
    }
    buffer = more;
    ssize_t got = recv(fd, buffer + size, READ_BYTES, 0);
    if (got > 0) {
      end = memchr(buffer + size, '\n', (size_t)got);
      size += (size_t)got;
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      code = await(fd, POLLIN, deadline_ms);
    } else {
      code = CT_ENOENT;
    }
  }
  if (code != CT_OK) {
    free(buffer);
    return code;
  }
  *length = (size_t)(end - buffer);
  *line = buffer;
  return CT_OK;
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
ct_client_call(int fd, const char *method, const json_t *params, int timeout_ms, json_t **result, struct ct_diag *diag)
{
  enum { ID = 1 }; /* one call at a time */
  int64_t deadline_ms = now_ms() + timeout_ms;
  char *request = ct_rpc_request(method, params, ID), *line = NULL;
  size_t length = 0;
  int code = request != NULL ? send_all(fd, request, deadline_ms) : CT_ENOMEM;
  free(request);
  if (code == CT_OK) {
    code = receive(fd, deadline_ms, &line, &length);
  }
  if (code != CT_OK) {
    return explain(code, diag);
  }
  code = ct_rpc_take_answer(line, length, ID, result, diag);
  free(line);
  return code;
}
