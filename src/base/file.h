/* SPDX-License-Identifier: MIT */
/* Opening files that somebody else has named. */
#ifndef CT_BASE_FILE_H
#define CT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/*
 * A regular file, for reading; -1 and errno when there is none of that name, EINVAL when it is something else. Nothing
 * else is opened, and nobody is waited for: a FIFO would wait for a writer, a device may do something when it is
 * opened.
 */
int ct_open_regular(const char *path);

/* Reads size bytes at offset; gives how many of them there are before the end of the file or a failure. */
size_t ct_read_at(int fd, void *data, size_t size, uint64_t offset);

#endif
