/* SPDX-License-Identifier: MIT */
/* Packets of gdb's remote serial protocol, over a pair of descriptors. What comes in is bounded, and believed nowhere.
 */
#ifndef CT_DEBUG_PACKET_H
#define CT_DEBUG_PACKET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_PACKET_MAX = 0x4000 }; /* of a packet that comes in */

struct ct_packets {
  int in, out;
  bool acknowledges; /* until QStartNoAckMode */
  uint8_t buffer[CT_PACKET_MAX];
  size_t at, filled;
  char packet[CT_PACKET_MAX + 1]; /* the last one, ended by 0; binary data in it may have others */
  size_t length;
};

enum ct_packet_kind { CT_PACKET_GONE /* the other end */, CT_PACKET_TAKEN, CT_PACKET_INTERRUPT };

void ct_packets_begin(struct ct_packets *packets, int in, int out);
/* Waits for the next one. */
enum ct_packet_kind ct_packet_take(struct ct_packets *packets);
/* Has an interrupt come in? Without waiting; packets stay. */
bool ct_packet_interrupted(struct ct_packets *packets);
/* Sends it: escaped as needed. False: the other end is gone. */
bool ct_packet_put(struct ct_packets *packets, const void *data, size_t size);

/*
 * gdb gives an answer up when no byte comes for 2 s (remotetimeout), three times. As long as one is being made, a
 * thread sends it a "+" twice a second, which it passes over.
 */
struct ct_waiting {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int out;
  bool is_started, is_made, ends; /* the last two under the lock */
};

/* An answer is being made from the start. Without memory for a thread nothing is sent. */
void ct_waiting_begin(struct ct_waiting *waiting, int out);
/* After false nothing is sent, nor being sent. */
void ct_waiting_set(struct ct_waiting *waiting, bool is_made);
void ct_waiting_end(struct ct_waiting *waiting); /* also if it has not begun, or ended; zeroed before */

#endif
