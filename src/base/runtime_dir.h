/* SPDX-License-Identifier: MIT */
/*
 * The runtime directory: $XDG_RUNTIME_DIR/contrail, or /tmp/contrail-UID where there is no such directory of the
 * user's own. It is the user's, mode 0700. Sockets of sessions lie in it (control/runtime_dir.h), and the memory of
 * those that keep the last stretch only (trace/store.h); that may also lie in /dev/shm/contrail-UID.
 */
#ifndef CT_BASE_RUNTIME_DIR_H
#define CT_BASE_RUNTIME_DIR_H

#include "base/error.h"

#include <stdbool.h>

struct ct_runtime_dir {
  int fd; /* -1: closed */
  char path[256];
};

/* Opens the directory; makes it when it is missing and make is set. CT_ENOENT: there is none. */
int ct_runtime_dir_open(struct ct_runtime_dir *runtime_dir, bool make, struct ct_diag *diag);
/* Whether $XDG_RUNTIME_DIR gives one; else it is in /tmp. */
bool ct_runtime_dir_is_set(void);
/* The same of the one in /dev/shm. */
int ct_runtime_dir_open_shm(struct ct_runtime_dir *runtime_dir, bool make, struct ct_diag *diag);
void ct_runtime_dir_close(struct ct_runtime_dir *runtime_dir); /* accepts a closed one */

#endif
