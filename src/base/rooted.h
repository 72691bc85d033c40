/* SPDX-License-Identifier: MIT */
/* Files in another process's root, by names "/proc/PID/root/...": what its links lead to is looked up in there. */
#ifndef CT_BASE_ROOTED_H
#define CT_BASE_ROOTED_H

#include <stddef.h>

/* The bytes of "/proc/PID/root" (or "/proc/PID/task/TID/root") at the beginning of the path, 0: it has no such root. */
size_t ct_rooted_prefix(const char *path);
/*
 * open(path, flags), where no absolute link, and no "..", leads out of such a root into ours (openat2, Linux 5.6;
 * before it is open). A path without one is opened as it is. -1 with errno set.
 */
int ct_rooted_open(const char *path, int flags);

#endif
