/* SPDX-License-Identifier: MIT */
#include "stream/link.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool
ct_frame_create(struct ct_frame *frame)
{
  *frame = (struct ct_frame){.data = malloc(CT_LINK_HEADER_BYTES + CT_LINK_PAYLOAD_MAX)};
  return frame->data != NULL;
}

void
ct_frame_destroy(struct ct_frame *frame)
{
  free(frame->data);
  frame->data = NULL;
}

void
ct_frame_begin(struct ct_frame *frame, enum ct_frame_type type)
{
  frame->type = (uint8_t)type;
  frame->bytes = 0;
}

void
ct_frame_add(struct ct_frame *frame, const void *data, size_t size)
{
  memcpy(ct_frame_payload(frame) + frame->bytes, data, size);
  frame->bytes += (uint32_t)size;
}

void
ct_frame_add32(struct ct_frame *frame, uint32_t value)
{
  ct_frame_add(frame, &value, sizeof(value));
}

void
ct_frame_add64(struct ct_frame *frame, uint64_t value)
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

bool
ct_frame_send(int fd, struct ct_frame *frame)
{
  uint8_t head[CT_LINK_HEADER_BYTES] = {[4] = frame->type};
  memcpy(head, &frame->bytes, sizeof(frame->bytes));
  memcpy(frame->data, head, sizeof(head));
  size_t size = CT_LINK_HEADER_BYTES + (size_t)frame->bytes, done = 0;
  while (done < size) {
    ssize_t n = send(fd, frame->data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      done += (size_t)n;
    } else if (n < 0 && errno != EINTR &&
               ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_for(fd, POLLOUT, now_ms() + CT_LINK_IDLE_MS))) {
      return false;
    }
  }
  return true;
}

static int
receive_all(int fd, uint8_t *data, size_t size, uint64_t until_ms)
{
  for (size_t done = 0; done < size;) {
    ssize_t n = recv(fd, data + done, size - done, MSG_DONTWAIT);
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
ct_frame_receive(int fd, struct ct_frame *frame, uint32_t most, int timeout_ms)
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
