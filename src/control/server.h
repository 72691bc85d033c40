/* SPDX-License-Identifier: MIT */
/*
 * Answers JSON-RPC on a socket that listens: one request or batch a line. All of it is done by one thread of its own,
 * so that no client keeps anybody waiting but other clients, and these only for as long as a call takes; what a client
 * may take of our memory is bounded; one that does not read its answers is dropped.
 */
#ifndef CT_CONTROL_SERVER_H
#define CT_CONTROL_SERVER_H

#include "control/rpc.h"

enum {
  CT_SERVER_CLIENTS_MAX = 64,            /* then the one that was idle longest is dropped, ... */
  CT_SERVER_QUIET_MS = 1000,             /* ... if it has been for so long; else the next one waits */
  CT_SERVER_WAITS_MAX = 8,               /* calls of a client that have no answer yet (rpc.h), and as many feeds */
  CT_SERVER_REQUEST_BYTES_MAX = 1 << 20, /* a longer line is refused and the connection closed */
};

struct ct_server; /* opaque */

/*
 * Takes over the socket (non-blocking) when it succeeds. run is called on the server's thread.
 * Whose effective user is another one than ours, and not root, is turned away.
 */
int ct_server_start(int socket, ct_rpc_run *run, void *context, struct ct_server **out, struct ct_diag *diag);
/* Stops listening, lets the call that is under way end and its answer be written, and those of calls that wait, for a
 * second at most. Accepts NULL. */
void ct_server_stop(struct ct_server *server);

#endif
