/* SPDX-License-Identifier: MIT */
/* Asks a session something over its socket. */
#ifndef CT_CONTROL_CLIENT_H
#define CT_CONTROL_CLIENT_H

#include "base/error.h"

#include <jansson.h>

/*
 * One call over a connection (runtime_dir.h). *result is a new reference. Besides what the method fails with:
 * CT_ETIMEOUT after timeout_ms without an answer, CT_ENOENT when the session has ended meanwhile, CT_EFORMAT.
 */
int ct_client_call(int fd, const char *method, const json_t *params, int timeout_ms, json_t **result,
                   struct ct_diag *diag);

#endif
