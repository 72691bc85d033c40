/* SPDX-License-Identifier: MIT */
/* Opening files that somebody else has named, or may write to. */
#ifndef CT_BASE_FILE_H
#define CT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/*
 * A regular file, for reading; -1 and errno when there is none of that name, EINVAL when it is something else. Nothing
 * else is opened, and nobody is waited for: a FIFO would wait for a writer, a device may do something when it is
 * opened.
 */
int ct_open_regular(const char *path);

/* Reads size bytes at offset; gives how many of them there are before the end of the file or a failure. */
size_t ct_read_at(int fd, void *data, size_t size, uint64_t offset);

/* Somebody else than root and the caller may write to it: while it is read too. */
bool ct_file_may_change(const struct stat *file);

/*
 * What is mapped must not be cut short, which is a bus error. Takes the descriptor of a regular file, and gives it
 * back, or where others may write to it that of a copy in memory; at most *room bytes are copied, and taken from *room.
 * -1: there is no room, or the file cannot be read.
 */
int ct_file_keep_still(int fd, uint64_t *room);

#endif
