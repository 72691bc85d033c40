/* SPDX-License-Identifier: MIT */
#include "stream/link.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

bool
ct_frame_create(struct ct_link_frame *frame)
{
  *frame = (struct ct_link_frame){.data = malloc(CT_LINK_HEADER_BYTES + CT_LINK_PAYLOAD_MAX)};
  return frame->data != NULL;
}

void
ct_frame_destroy(struct ct_link_frame *frame)
{
  free(frame->data);
  frame->data = NULL;
}

void
ct_frame_begin(struct ct_link_frame *frame, enum ct_frame_type type)
{
  frame->type = (uint8_t)type;
  frame->bytes = 0;
}

void
ct_frame_add(struct ct_link_frame *frame, const void *data, size_t size)
{
  memcpy(ct_frame_payload(frame) + frame->bytes, data, size);
  frame->bytes += (uint32_t)size;
}

void
ct_frame_add32(struct ct_link_frame *frame, uint32_t value)
{
  ct_frame_add(frame, &value, sizeof(value));
}

void
ct_frame_add64(struct ct_link_frame *frame, uint64_t value)
{
  ct_frame_add(frame, &value, sizeof(value));
}

uint32_t
ct_get32(const uint8_t *p)
{
  uint32_t value;
  memcpy(&value, p, sizeof(value));
  return value;
}

uint64_t
ct_get64(const uint8_t *p)
{
  uint64_t value;
  memcpy(&value, p, sizeof(value));
  return value;
}

static uint64_t
now_ms(void)
{
  return ct_now_ns() / 1000000;
}

/* Waits for events until the time is there. */
static bool
wait_for(int fd, short events, uint64_t until_ms)
{
  for (;;) {
    uint64_t now = now_ms();
    struct pollfd entry = {.fd = fd, .events = events};
    int n = poll(&entry, 1, now < until_ms ? (int)(until_ms - now) : 0);
    if (n > 0) {
      return true;
    }
    if (n == 0 || errno != EINTR) {
      return false;
    }
  }
}

/*
 * What is no socket: a pipe or a file. Its descriptor may be shared with other programs, so it stays as it is; a pipe
 * that poll calls writable takes PIPE_BUF bytes at once. A SIGPIPE is ours alone, and nobody's business.
 */
static ssize_t
write_some(int fd, const uint8_t *data, size_t size)
{
  struct pollfd entry = {.fd = fd, .events = POLLOUT};
  int ready = poll(&entry, 1, 0);
  if (ready <= 0) {
    errno = ready == 0 ? EAGAIN : errno;
    return -1;
  }
  static const struct timespec at_once = {0, 0};
  sigset_t pipe_signal, old;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &old);
  ssize_t n = write(fd, data, size < PIPE_BUF ? size : PIPE_BUF);
  int err = errno;
  if (n < 0 && err == EPIPE && sigismember(&old, SIGPIPE) == 0) {
    sigtimedwait(&pipe_signal, NULL, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  errno = err;
  return n;
}

static ssize_t
put_some(int fd, const uint8_t *data, size_t size)
{
  ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 && errno == ENOTSOCK ? write_some(fd, data, size) : n;
}

int
ct_frame_continue(int fd, struct ct_link_frame *frame, size_t *done, int timeout_ms)
{
  uint8_t head[CT_LINK_HEADER_BYTES] = {[4] = frame->type};
  memcpy(head, &frame->bytes, sizeof(frame->bytes));
  memcpy(frame->data, head, sizeof(head));
  size_t size = CT_LINK_HEADER_BYTES + (size_t)frame->bytes;
  while (*done < size) {
    ssize_t n = put_some(fd, frame->data + *done, size - *done);
    if (n > 0) {
      *done += (size_t)n;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd, POLLOUT, now_ms() + (uint64_t)timeout_ms)) {
        return CT_ETIMEOUT;
      }
    } else if (n == 0 || errno != EINTR) {
      return CT_EIO;
    }
  }
  return CT_OK;
}

bool
ct_frame_send(int fd, struct ct_link_frame *frame)
{
  size_t done = 0;
  return ct_frame_continue(fd, frame, &done, CT_LINK_IDLE_MS) == CT_OK;
}

static ssize_t
take_some(int fd, uint8_t *data, size_t size)
{
  ssize_t n = recv(fd, data, size, MSG_DONTWAIT);
  if (n >= 0 || errno != ENOTSOCK) {
    return n;
  }
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  int ready = poll(&entry, 1, 0);
  if (ready > 0) {
    return read(fd, data, size);
  }
  errno = ready == 0 ? EAGAIN : errno;
  return -1;
}

static int
receive_all(int fd, uint8_t *data, size_t size, uint64_t until_ms)
{
  for (size_t done = 0; done < size;) {
    ssize_t n = take_some(fd, data + done, size - done);
    if (n > 0) {
      done += (size_t)n;
    } else if (n == 0) {
      return CT_EIO;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, until_ms)) {
        return CT_ETIMEOUT;
      }
    } else if (errno != EINTR) {
      return CT_EIO;
    }
  }
  return CT_OK;
}

int
ct_frame_receive(int fd, struct ct_link_frame *frame, uint32_t most, int timeout_ms)
{
  uint64_t until = now_ms() + (uint64_t)timeout_ms;
  int code = receive_all(fd, frame->data, CT_LINK_HEADER_BYTES, until);
  if (code != CT_OK) {
    return code;
  }
  frame->bytes = ct_get32(frame->data);
  frame->type = frame->data[4];
  if (frame->bytes > most || frame->data[5] != 0 || frame->data[6] != 0 || frame->data[7] != 0) {
    return CT_EFORMAT;
  }
  return receive_all(fd, ct_frame_payload(frame), frame->bytes, until);
}

bool
ct_token_equal(const char *own, const uint8_t *given, size_t size)
{
  size_t length = strlen(own);
  unsigned different = size != length;
  for (size_t i = 0; i < size; i++) {
    different |= (unsigned)(given[i] ^ (uint8_t)own[length != 0 ? i % length : 0]);
  }
  return different == 0;
}
