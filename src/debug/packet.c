/* SPDX-License-Identifier: MIT */
/* See packet.h: $DATA#CHECKSUM, acknowledged by + or asked for again by -; } escapes; 3 alone is an interrupt. */
#include "debug/packet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { INTERRUPT = 3, ESCAPE = '}', TURN = 0x20, PATIENCE_MS = 500 };

void
ct_packets_begin(struct ct_packets *packets, int in, int out)
{
  packets->in = in;
  packets->out = out;
  packets->acknowledges = true;
  packets->at = packets->filled = packets->length = 0;
}

/* The next byte, -1: there is none any more. */
static int
next_byte(struct ct_packets *packets)
{
  while (packets->at == packets->filled) {
    ssize_t n = read(packets->in, packets->buffer, sizeof(packets->buffer));
    if (n <= 0 && (n == 0 || errno != EINTR)) {
      return -1;
    }
    packets->at = 0;
    packets->filled = n > 0 ? (size_t)n : 0;
  }
  return packets->buffer[packets->at++];
}

static bool
send_all(const struct ct_packets *packets, const void *data, size_t size)
{
  for (size_t done = 0; done < size;) {
    ssize_t n = send(packets->out, (const char *)data + done, size - done, MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK) {
      n = write(packets->out, (const char *)data + done, size - done);
    }
    if (n > 0) {
      done += (size_t)n;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

static int
digit(int c)
{
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* Behind the $: to the end. 1: good, 0: not, -1: the other end is gone. */
static int
take_data(struct ct_packets *packets)
{
  uint8_t sum = 0;
  bool fits = true;
  int c;
  packets->length = 0;
  while ((c = next_byte(packets)) != '#') {
    if (c < 0) {
      return -1;
    }
    sum = (uint8_t)(sum + c);
    if (c == ESCAPE) {
      c = next_byte(packets);
      if (c < 0) {
        return -1;
      }
      sum = (uint8_t)(sum + c);
      c ^= TURN;
    }
    fits = fits && packets->length < CT_PACKET_MAX;
    if (fits) {
      packets->packet[packets->length++] = (char)c;
    }
  }
  packets->packet[packets->length] = 0;
  int high = next_byte(packets), low = next_byte(packets);
  if (high < 0 || low < 0) {
    return -1;
  }
  return fits && digit(high) >= 0 && digit(low) >= 0 && digit(high) * 16 + digit(low) == sum;
}

enum ct_packet_kind
ct_packet_take(struct ct_packets *packets)
{
  for (;;) {
    int c = next_byte(packets);
    if (c < 0) {
      return CT_PACKET_GONE;
    }
    if (c == INTERRUPT) {
      return CT_PACKET_INTERRUPT;
    }
    if (c != '$') {
      continue;
    }
    int good = take_data(packets);
    if (good < 0 || (packets->acknowledges && !send_all(packets, good != 0 ? "+" : "-", 1))) {
      return CT_PACKET_GONE;
    }
    if (good != 0) {
      return CT_PACKET_TAKEN;
    }
  }
}

bool
ct_packet_interrupted(struct ct_packets *packets)
{
  struct pollfd ready = {.fd = packets->in, .events = POLLIN};
  if (packets->at == packets->filled && poll(&ready, 1, 0) == 1) {
    ssize_t n = read(packets->in, packets->buffer, sizeof(packets->buffer));
    packets->at = 0;
    packets->filled = n > 0 ? (size_t)n : 0;
    if (n == 0) {
      return true;
    }
  }
  if (packets->at < packets->filled && packets->buffer[packets->at] == INTERRUPT) {
    packets->at++;
    return true;
  }
  return false;
}

bool
ct_packet_put(struct ct_packets *packets, const void *data, size_t size)
{
  static const char digits[] = "0123456789abcdef";
  const uint8_t *bytes = data;
  char *text = malloc(2 * size + 4), *to = text;
  uint8_t sum = 0;
  if (text == NULL) {
    return false;
  }
  *to++ = '$';
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] == '#' || bytes[i] == '$' || bytes[i] == ESCAPE || bytes[i] == '*') {
      *to++ = ESCAPE;
      *to++ = (char)(bytes[i] ^ TURN);
    } else {
      *to++ = (char)bytes[i];
    }
  }
  for (const char *at = text + 1; at < to; at++) {
    sum = (uint8_t)(sum + (uint8_t)*at);
  }
  *to++ = '#';
  *to++ = digits[sum >> 4];
  *to++ = digits[sum & 15];
  bool sent;
  int c = '+';
  do {
    sent = send_all(packets, text, (size_t)(to - text));
    while (sent && packets->acknowledges && (c = next_byte(packets)) != '+' && c != '-' && c >= 0) {
    }
  } while (sent && packets->acknowledges && c == '-');
  free(text);
  return sent && c >= 0;
}

/* ---- while an answer is being made ---- */

/* A byte that is no part of a packet, if there is room for it at once. */
static void
send_plus(int out)
{
  struct pollfd ready = {.fd = out, .events = POLLOUT};
  if (poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 && send(out, "+", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
      errno == ENOTSOCK) {
    ssize_t sent = write(out, "+", 1);
    (void)sent; /* that the other end is gone is seen by the answer */
  }
}

static void *
keep_waiting(void *argument)
{
  struct ct_waiting *w = argument;
  pthread_mutex_lock(&w->lock);
  while (!w->ends) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!w->is_made) {
      pthread_cond_wait(&w->changed, &w->lock);
    } else if (pthread_cond_timedwait(&w->changed, &w->lock, &until) == ETIMEDOUT && w->is_made && !w->ends) {
      send_plus(w->out);
    }
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

void
ct_waiting_begin(struct ct_waiting *waiting, int out)
{
  pthread_condattr_t attributes;
  sigset_t all, old;
  waiting->out = out;
  waiting->is_made = true;
  waiting->ends = false;
  pthread_mutex_init(&waiting->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&waiting->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  sigfillset(&all); /* signals are for the caller's threads; a pipe that nobody reads ends nobody */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  waiting->is_started = pthread_create(&waiting->thread, NULL, keep_waiting, waiting) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!waiting->is_started) {
    pthread_cond_destroy(&waiting->changed);
    pthread_mutex_destroy(&waiting->lock);
  }
}

static void
change(struct ct_waiting *waiting, bool is_made, bool ends)
{
  pthread_mutex_lock(&waiting->lock);
  waiting->is_made = is_made;
  waiting->ends = ends;
  pthread_cond_signal(&waiting->changed);
  pthread_mutex_unlock(&waiting->lock);
}

void
ct_waiting_set(struct ct_waiting *waiting, bool is_made)
{
  if (waiting->is_started) {
    change(waiting, is_made, false);
  }
}

void
ct_waiting_end(struct ct_waiting *waiting)
{
  if (waiting->is_started) {
    change(waiting, false, true);
    pthread_join(waiting->thread, NULL);
    pthread_cond_destroy(&waiting->changed);
    pthread_mutex_destroy(&waiting->lock);
    waiting->is_started = false;
  }
}
