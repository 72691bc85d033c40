/* SPDX-License-Identifier: MIT */
/*
 * The sockets of live sessions in the runtime directory (base/runtime_dir.h): ID.sock, mode 0600.
 *
 * A socket gets its name when it listens. So one that refuses connections is that of a session that died, and whoever
 * finds it takes it away.
 */
#ifndef CT_CONTROL_RUNTIME_DIR_H
#define CT_CONTROL_RUNTIME_DIR_H

#include "base/runtime_dir.h"

#include <stdbool.h>
#include <stddef.h>

#define CT_SESSION_ID_BYTES 64 /* with the zero byte */

/* Whether that could be the id of a session: letters, digits and . _ - only, not a dot first. */
bool ct_session_id_is_valid(const char *id);
/* The id of a session that records that process: the last part of its path, made valid, and its pid. */
void ct_session_id_make(char id[CT_SESSION_ID_BYTES], const char *program, long pid);

/* A socket that listens under that id. CT_EEXIST: a live session has it. *out: non-blocking, close-on-exec. */
int ct_runtime_dir_listen(const struct ct_runtime_dir *runtime_dir, const char *id, int *out, struct ct_diag *diag);
/* Takes the id's socket away. */
void ct_runtime_dir_remove(const struct ct_runtime_dir *runtime_dir, const char *id);

/*
 * A connection to the session, close-on-exec and non-blocking. CT_ENOENT when there is no such one any more; its socket
 * is gone then too. CT_ETIMEOUT: it lets nobody in, for three seconds.
 */
int ct_runtime_dir_connect(const struct ct_runtime_dir *runtime_dir, const char *id, int *out, struct ct_diag *diag);
/* The ids of all sockets, sorted: NULL at the end, to be freed with ct_runtime_dir_free_ids. Dead ones may be among
 * them. */
int ct_runtime_dir_ids(const struct ct_runtime_dir *runtime_dir, char ***ids, size_t *count, struct ct_diag *diag);
void ct_runtime_dir_free_ids(char **ids); /* accepts NULL */

#endif
