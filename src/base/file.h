/* SPDX-License-Identifier: MIT */
/* Opening files that somebody else has named. */
#ifndef CT_BASE_FILE_H
#define CT_BASE_FILE_H

/*
 * A regular file, for reading; -1 and errno when there is none of that name, EINVAL when it is something else. Nothing
 * else is opened, and nobody is waited for: a FIFO would wait for a writer, a device may do something when it is
 * opened.
 */
int ct_open_regular(const char *path);

#endif
