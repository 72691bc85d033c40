/* SPDX-License-Identifier: MIT */
/* Asks a session something over its socket. */
#ifndef CT_CONTROL_CLIENT_H
#define CT_CONTROL_CLIENT_H

#include "base/error.h"

#include <jansson.h>

/* What has been read of a connection and is not taken yet; all zero at first. */
struct ct_client_input {
  char *bytes;
  size_t size, room, seen; /* no line ends before seen */
};

/* The next line, without its end, to be freed. timeout_ms negative: any time. 0, CT_ETIMEOUT, CT_ENOENT: it is closed.
 */
int ct_client_line(int fd, struct ct_client_input *input, int timeout_ms, char **line, size_t *length,
                   struct ct_diag *diag);

/*
 * One call over a connection (runtime_dir.h). *result is a new reference. Besides what the method fails with:
 * CT_ETIMEOUT after timeout_ms without an answer, CT_ENOENT when the session has ended meanwhile, CT_EFORMAT.
 */
int ct_client_call(int fd, struct ct_client_input *input, const char *method, const json_t *params, int timeout_ms,
                   json_t **result, struct ct_diag *diag);

#endif
