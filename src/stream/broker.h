/* SPDX-License-Identifier: MIT */
/*
 * A NATS server as the way between one sender and any number of receivers: nats://HOST[:PORT]/SUBJECT. What the sender
 * says is published on SUBJECT, what receivers say on SUBJECT.ask. The server promises nothing: messages come in order,
 * or not at all. fanout.h has what is made of that.
 *
 * libnats is loaded when it is wanted; contrail may be built without its header (meson's option nats), and then no
 * connection is made, with a line that says so.
 */
#ifndef CT_STREAM_BROKER_H
#define CT_STREAM_BROKER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_broker;

enum ct_broker_end {
  CT_BROKER_SENDER,
  CT_BROKER_RECEIVER,
};

bool ct_broker_is_meant(const char *address);
/* CT_EINVAL: it has no host, or no subject that one can publish on. */
int ct_broker_check(const char *address, struct ct_diag *diag);
/* token: the server's, or USER:PASSWORD; NULL or "": none. */
int ct_broker_connect(const char *address, const char *token, enum ct_broker_end end, struct ct_broker **broker,
                      struct ct_diag *diag);
/* What was put before goes out first. NULL is allowed. */
void ct_broker_close(struct ct_broker *broker);
/* The largest message that the server takes, in bytes. */
size_t ct_broker_most(const struct ct_broker *broker);
/* False: the connection is lost. */
bool ct_broker_put(struct ct_broker *broker, const void *data, size_t size);
/* The next message, which stays until the next call. CT_ETIMEOUT: there was none; CT_EIO: the connection is lost. */
int ct_broker_next(struct ct_broker *broker, int timeout_ms, const uint8_t **data, size_t *size);
/* What the server forbids, if it has said so. */
bool ct_broker_is_refused(struct ct_broker *broker, struct ct_diag *diag);

#endif
