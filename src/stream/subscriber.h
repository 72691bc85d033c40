/* SPDX-License-Identifier: MIT */
/* The receiver's half of fanout.h. */
#ifndef CT_STREAM_SUBSCRIBER_H
#define CT_STREAM_SUBSCRIBER_H

#include "stream/stored.h"

#include <contrail/stream.h>

/* Receives one trace into stored, which is open. Counts cuts and what was missed. */
int ct_subscriber_receive(const struct ct_receive_options *options, struct stored *stored,
                          struct ct_stream_summary *summary, struct ct_diag *diag);

#endif
