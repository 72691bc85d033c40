/* SPDX-License-Identifier: MIT */
/* Trace directories as wholes: out of the way for a new one, and to another owner. No symbolic link is followed. */
#ifndef CT_TRACE_TREE_H
#define CT_TRACE_TREE_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

/* Whether the recorder of the trace lives: that holds a lock on the function table. */
bool ct_trace_is_held(int dir_fd);

/* Removes what is in the directory. */
void ct_trace_empty(int dir_fd);
/* The same, and the directory itself, if it is one and not a link to one. */
void ct_trace_remove(const char *path);

/* Gives the directory and what we have written into it to another user. What cannot be given stays as it is. */
void ct_trace_give(int dir_fd, uid_t uid, gid_t gid);

#endif
