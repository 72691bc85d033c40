/* SPDX-License-Identifier: MIT */
/*
 * One sender, any number of receivers, and a NATS server between that may drop what it likes (broker.h).
 *
 * The sender publishes its frames once for all. Each message has a number, so a receiver knows when it has missed some.
 * Then it passes over what comes and asks, with a list of what it has (ASK). The sender goes back, with each file to
 * where the receiver is that has least of it, and says for whom it has done so (SYNC); from that message on the
 * receiver follows again. Others get some bytes twice, which they compare. A receiver that comes late, or comes back,
 * has simply missed everything so far.
 *
 * Receivers say every now and then up to which message they are (ACK), and the sender is at most CT_FANOUT_AHEAD before
 * the slowest of those that do: so a server with room for that much drops nothing. One that says nothing for a while is
 * not waited for.
 *
 *   offset size   of the sender, on SUBJECT          of a receiver, on SUBJECT.ask
 *      0    4     "CTNS"                             "CTNA"
 *      4    4     version (1)                        version (1)
 *      8   16     id of the stream                   the same, or 0: of whichever is sent here
 *     24    8     of this run of the sender          of the receiver
 *     32    8     number, from 1                     run and number: of the message before which all has arrived
 *     40          frame, as in link.h                frame
 */
#ifndef CT_STREAM_FANOUT_H
#define CT_STREAM_FANOUT_H

#include "stream/broker.h"
#include "stream/link.h"

#define CT_FANOUT_MAGIC     "CTNS"
#define CT_FANOUT_ASK_MAGIC "CTNA"
enum {
  CT_FANOUT_VERSION = 1,
  CT_FANOUT_HEAD_BYTES = 40,
  CT_FANOUT_SMALLEST = 16 << 10, /* the least that a message must be able to have */
  CT_FANOUT_AHEAD = 128,         /* messages, of CT_LINK_CHUNK at most */
  CT_FANOUT_ACK_EVERY = 16,      /* messages, or */
  CT_FANOUT_ACK_MS = 500,
  CT_FANOUT_ASK_MS = 500,
};

struct ct_sender;
struct ct_fanout;

int ct_fanout_create(struct ct_fanout **fanout, struct ct_diag *diag);
void ct_fanout_destroy(struct ct_fanout *fanout);
/* To the server; nothing of what was sent before is forgotten. */
int ct_fanout_connect(struct ct_sender *sender, struct ct_diag *diag);
void ct_fanout_disconnect(struct ct_fanout *fanout);
bool ct_fanout_is_connected(const struct ct_fanout *fanout);
/* Sends the sender's frame. False: the connection is lost, or the sender's owner has had enough. */
bool ct_fanout_put(struct ct_sender *sender);
/* Goes back for whoever has asked. False: the connection is lost. */
bool ct_fanout_answer(struct ct_sender *sender);
/* Somebody has asked: what is under way is broken off. False without a fanout, NULL. */
bool ct_fanout_is_asked(const struct ct_fanout *fanout);
/* After END: 1: all receivers that there are have all; 0: some want a file anew; 2: somebody has asked; -1: lost. */
int ct_fanout_verdicts(struct ct_sender *sender);
/* Receivers that have confirmed, and how many there ever were. */
void ct_fanout_count(const struct ct_fanout *fanout, size_t *confirmed, size_t *all);

#endif
