/* SPDX-License-Identifier: MIT */
/*
 * The connection between sender and receiver: addresses, sockets, and frames on them. Numbers are little endian, as in
 * the files.
 *
 *   offset size  frame
 *      0    4    bytes of the payload, at most CT_LINK_PAYLOAD_MAX
 *      4    1    type, below
 *      5    3    0
 *      8         payload
 */
#ifndef CT_STREAM_LINK_H
#define CT_STREAM_LINK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_LINK_MAGIC "CTST"
enum {
  CT_LINK_VERSION = 1,
  CT_LINK_HEADER_BYTES = 8,
  CT_LINK_PAYLOAD_MAX = 1 << 20,
  CT_LINK_CHUNK = 256 << 10, /* bytes of a file in one frame */
  CT_LINK_ID_BYTES = 16,
  CT_LINK_TOKEN_MIN = 8,
  CT_LINK_TOKEN_MAX = 256,
  CT_LINK_IDLE_MS = 10000, /* an end that has been silent for so long is taken for gone */
  CT_LINK_PING_MS = 2000,
  CT_LINK_HELLO_MS = 5000, /* all of the first frame, from the connection on */
};

enum ct_frame_type {
  /* of the sender */
  CT_FRAME_HELLO = 1, /* "CTST", u32 version, id of the stream (16), token */
  CT_FRAME_DATA = 2,  /* u64 offset, u64 0, u32 bytes of the name, name, bytes. Offset 0 begins the file anew */
  CT_FRAME_WHOLE = 3, /* u64 offset, u64 bytes of the file, u32 bytes of the name, name, bytes */
  CT_FRAME_CHECK = 4, /* u64 bytes of the file, u32 CRC-32C, name */
  CT_FRAME_END = 5,   /* u32 how many CHECK there were */
  CT_FRAME_PING = 6,  /* nothing */
  CT_FRAME_BYE = 7,   /* nothing: no more comes, although the trace is not whole */
  CT_FRAME_SYNC = 8,  /* u32 how many, u64 receivers: for whom the sender went back (fanout.h) */
  /* of the receiver */
  CT_FRAME_HAVE = 16,    /* u64 bytes, u32 CRC-32C, name: in answer to HELLO */
  CT_FRAME_READY = 17,   /* nothing: there were all HAVE */
  CT_FRAME_REFUSED = 18, /* a line of text; the connection is over, and another would be refused too */
  CT_FRAME_WRONG = 19,   /* name: in answer to END, a file that is not as CHECK said */
  CT_FRAME_VERDICT = 20, /* u32 how many WRONG there were; 0: all is well */
  CT_FRAME_ASK = 21,     /* u64 bytes, u32 CRC-32C, u32 bytes of the name, name; of each file (fanout.h) */
  CT_FRAME_ACK = 22,     /* nothing: the head has the number (fanout.h) */
};

/* A buffer for one frame, with room for its header in front. */
struct ct_link_frame {
  uint8_t *data; /* CT_LINK_HEADER_BYTES + CT_LINK_PAYLOAD_MAX */
  uint8_t type;
  uint32_t bytes; /* of the payload */
};

static inline uint8_t *
ct_frame_payload(const struct ct_link_frame *frame)
{
  return frame->data + CT_LINK_HEADER_BYTES;
}

bool ct_frame_create(struct ct_link_frame *frame);
void ct_frame_destroy(struct ct_link_frame *frame);
/* Begin a frame; add to it what must fit. */
void ct_frame_begin(struct ct_link_frame *frame, enum ct_frame_type type);
void ct_frame_add(struct ct_link_frame *frame, const void *data, size_t size);
void ct_frame_add32(struct ct_link_frame *frame, uint32_t value);
void ct_frame_add64(struct ct_link_frame *frame, uint64_t value);
uint32_t ct_get32(const uint8_t *p);
uint64_t ct_get64(const uint8_t *p);
/* False: the connection is lost, or the other end takes nothing for CT_LINK_IDLE_MS. */
bool ct_frame_send(int fd, struct ct_link_frame *frame);
/* The same in turns of timeout_ms: *done bytes of it have gone. CT_ETIMEOUT: no more was taken now; CT_EIO: lost. */
int ct_frame_continue(int fd, struct ct_link_frame *frame, size_t *done, int timeout_ms);
/*
 * 0; CT_ETIMEOUT: it was not there after timeout_ms; CT_EIO: the connection is lost; CT_EFORMAT: no frame of ours, or
 * larger than most bytes.
 */
int ct_frame_receive(int fd, struct ct_link_frame *frame, uint32_t most, int timeout_ms);

/* CT_OK or CT_EINVAL: whether it is one of the forms. */
int ct_address_check(const char *address, bool *is_tcp, struct ct_diag *diag);
/* *fd: a connected socket, or one that listens. */
int ct_address_connect(const char *address, int *fd, struct ct_diag *diag);
int ct_address_listen(const char *address, int *fd, struct ct_diag *diag);
/* nats://: no connection of its own kind, but a server between (broker.h). */
bool ct_address_is_broker(const char *address);
/* fd:N: a stream that only goes one way. Connecting gives a descriptor of our own for it. */
bool ct_address_is_one_way(const char *address);
/* In a time that does not depend on where they differ. */
bool ct_token_equal(const char *own, const uint8_t *given, size_t size);

#endif
