/* SPDX-License-Identifier: MIT */
/*
 * A trace sent to another machine while it is recorded. The sender follows the trace's directory, which is its buffer:
 * a cut of the connection loses nothing as long as there is disk. The receiver makes an ordinary trace directory, which
 * can be read while it grows. docs/streams.md has the protocol.
 *
 * An address is unix:PATH, tcp://HOST:PORT, or nats://HOST:PORT/SUBJECT, where a NATS server hands it on to any number
 * of receivers (CT_EUNSUPPORTED: the library was built without NATS). Nothing is encrypted: over a network that others
 * read, use a tunnel. fd:N is one too, a descriptor of a pipe or file that the sender only writes and the receiver only
 * reads: nothing is confirmed to the sender, and when its reader has gone it fails.
 */
#ifndef CONTRAIL_STREAM_H
#define CONTRAIL_STREAM_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_sender;

struct ct_stream_summary {
  size_t struct_size;
  uint64_t files, bytes; /* that the other end has now */
  uint64_t cuts;         /* connections that were lost and made again, or never came back */
  size_t receivers;      /* of a sender by NATS: how many have confirmed it */
  uint64_t missed;       /* of a receiver by NATS: messages that did not arrive, and were sent again */
};

/*
 * The token that is meant by what a user has given: the first line of the file of that name, else the text itself.
 * *token is to be freed. CT_EINVAL: shorter than 8 or longer than 256 bytes.
 */
int ct_stream_token(const char *given, char **token, struct ct_diag *diag);

/*
 * Connects to a receiver and is let in by it, within some seconds, or to a NATS server, whether there are receivers yet
 * or not. token may be NULL for unix:PATH, and for nats://, where it is the server's, or USER:PASSWORD. *sender is to
 * be given to ct_sender_finish or ct_sender_destroy.
 */
int ct_sender_connect(const char *address, const char *token, struct ct_sender **sender, struct ct_diag *diag);
/*
 * The same, for a trace whose recording is over: when a sender of it has not come to its end, killed or cut, it goes on
 * with the stream of that one, at the receiver that waits for it. CT_EFORMAT: no trace; CT_EEXIST: it is being
 * recorded.
 */
int ct_sender_resume(const char *address, const char *token, const char *directory, struct ct_sender **sender,
                     struct ct_diag *diag);
/* Sends the trace in directory from now on, by a thread of its own, which connects again when it must. Once. */
int ct_sender_follow(struct ct_sender *sender, const char *directory, struct ct_diag *diag);
/*
 * The trace grows no more: waits until all of it has arrived, and the receiver has confirmed that by checksums. Gives
 * up when nothing has moved for patience_s seconds, or when enough (may be NULL), which is asked every now and then in
 * the caller's thread, gives true. 0, or an error with what is missing in diag. Frees the sender.
 */
int ct_sender_finish(struct ct_sender *sender, double patience_s, bool (*enough)(void *arg), void *arg,
                     struct ct_stream_summary *summary, struct ct_diag *diag);
/* Ends it at once, wherever it is. NULL is allowed. */
void ct_sender_destroy(struct ct_sender *sender);

struct ct_receive_options {
  size_t struct_size;
  const char *address;
  const char *token;     /* what a sender must have; may be NULL for unix:PATH, whose peer must then be of our user */
  const char *directory; /* new or empty, or one in which receiving the same trace was interrupted */
  uint64_t limit_bytes;  /* refuse more than that; 0: no limit but the disk */
  double wait_s;         /* for a sender that has gone to come back */
  void (*note)(void *arg, const char *text); /* lines about what happens; may be NULL. In the caller's thread */
  void *arg;
};

/*
 * Receives one trace, to its end. 0 when it is whole: every file has the size and the checksum that the sender's have.
 * CT_ETIMEOUT: the sender has gone and did not come back; CT_ENOSPC: the limit or the disk; what is there stays.
 */
int ct_receive(const struct ct_receive_options *options, struct ct_stream_summary *summary, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
