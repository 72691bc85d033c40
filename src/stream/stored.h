/* SPDX-License-Identifier: MIT */
/* The directory that a receiver writes: files of known names, each with the checksum of what was written. */
#ifndef CT_STREAM_STORED_H
#define CT_STREAM_STORED_H

#include "stream/link.h"
#include "stream/names.h"

struct stored_file {
  char name[CT_STREAM_NAME_BYTES];
  enum ct_stream_file_kind kind;
  uint64_t bytes, staged; /* replaced: staged is what is written beside so far */
  uint32_t crc, staged_crc;
  bool is_there;
  uint64_t due_bytes; /* of the last CHECK */
  uint32_t due_crc;
  bool is_due;
};

struct stored {
  int dir_fd;
  const char *directory; /* for messages */
  uint8_t id[CT_LINK_ID_BYTES];
  bool has_id;
  uint64_t limit_bytes, bytes; /* of all files; limit 0: none */
  uint64_t files;
  void *tree; /* of tsearch, by name */
};

/*
 * Opens or makes the directory. One that has files must have the mark of an interrupted stream, and is gone on with.
 * CT_EEXIST: something else is in it.
 */
int ct_stored_open(struct stored *stored, const char *directory, uint64_t limit_bytes, struct ct_diag *diag);
void ct_stored_close(struct stored *stored);
/* Whose stream it is from now on, noted in the directory. */
int ct_stored_claim(struct stored *stored, const uint8_t id[CT_LINK_ID_BYTES], struct ct_diag *diag);
/* The note goes: the trace is whole. */
void ct_stored_release(struct stored *stored);

/*
 * Frames of the sender, which is believed nothing. CT_EFORMAT: not in the protocol; others are ours: CT_ENOSPC for the
 * limit, the disk.
 */
int ct_stored_data(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag);
/*
 * The same, of a sender that goes back for others: what is there already is compared, and what differs is taken from
 * the sender. CT_ERANGE: there is something missing before it.
 */
int ct_stored_data_again(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag);
int ct_stored_whole(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag);
int ct_stored_check(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag);
/* A new connection: no file is half staged, none was checked. */
void ct_stored_begin(struct stored *stored);
/* Calls for each file that is there, till one gives false. */
bool ct_stored_each(struct stored *stored, bool (*call)(void *context, struct stored_file *file), void *context);
/* Removes a file that the sender does not have. */
void ct_stored_remove(struct stored *stored, struct stored_file *file);

#endif
