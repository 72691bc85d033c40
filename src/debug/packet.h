/* SPDX-License-Identifier: MIT */
/* Packets of gdb's remote serial protocol, over a pair of descriptors. What comes in is bounded, and believed nowhere.
 */
#ifndef CT_DEBUG_PACKET_H
#define CT_DEBUG_PACKET_H

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

#endif
