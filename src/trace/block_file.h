/* SPDX-License-Identifier: MIT */
/*
 * A file of blocks or records for reading: one file, or the pieces of it that a recording of bounded size has left
 * (format.h), which are read as if they were one: the header of the first, then what follows the header in each.
 */
#ifndef CT_TRACE_BLOCK_FILE_H
#define CT_TRACE_BLOCK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_block_file; /* opaque */

enum { CT_BLOCK_FILE_NAME_BYTES = 64 };
#define CT_BLOCK_FILE_NO_THREAD UINT32_MAX /* it is in the trace directory itself */

/* "thread_3/index.ctb", or "thread_3/index-7.ctb" for piece 7; piece 0: it has none. */
void ct_block_file_name(char out[CT_BLOCK_FILE_NAME_BYTES], uint32_t thread, const char *name, uint32_t piece);

/*
 * Opens it; all its pieces stay open, so that none goes while it is read. NULL and errno: ENOENT when there is neither
 * file nor piece, EINVAL when it is no regular file.
 */
struct ct_block_file *ct_block_file_open(int dir_fd, uint32_t thread, const char *name);
/* The same once more, to be closed as often. Any thread. */
struct ct_block_file *ct_block_file_share(struct ct_block_file *file);
void ct_block_file_close(struct ct_block_file *file); /* accepts NULL */

/* Bytes of it when it was opened: as one file, and of all the files that there are. */
uint64_t ct_block_file_size(const struct ct_block_file *file);
uint64_t ct_block_file_bytes(const struct ct_block_file *file);
/* How many files; number (0: it is no piece) and bytes of the nth. */
uint32_t ct_block_file_pieces(const struct ct_block_file *file);
uint32_t ct_block_file_piece(const struct ct_block_file *file, uint32_t n, uint64_t *bytes);
/* Where in the last file an offset lies that is not before the begin of that one; UINT64_MAX: it is. */
uint64_t ct_block_file_in_last(const struct ct_block_file *file, uint64_t offset);

/* Where the piece begins that follows the one with that offset; UINT64_MAX: none does. No block goes on there. */
uint64_t ct_block_file_next_piece(const struct ct_block_file *file, uint64_t offset);

/* Reads size bytes at offset; gives how many of them there are. The last file may have grown. */
size_t ct_block_file_read(const struct ct_block_file *file, void *data, size_t size, uint64_t offset);
/* All that is before end is there: what is there only in part is still being written, or was when the recorder died. */
bool ct_block_file_reaches(const struct ct_block_file *file, uint64_t end);

#endif
