/* SPDX-License-Identifier: MIT */
/* The sender (sender.c: connection and life) and what it knows of the files that it sends (sending.c). */
#ifndef CT_STREAM_SENDING_H
#define CT_STREAM_SENDING_H

#include "stream/link.h"
#include "stream/names.h"

#include "base/prompt.h"

#include <contrail/stream.h>

#include <pthread.h>
#include <sys/stat.h>

struct sent_file {
  char name[CT_STREAM_NAME_BYTES];
  enum ct_stream_file_kind kind;
  uint64_t offset;  /* appended: what was sent of it over this connection, or is there already */
  uint64_t claimed; /* appended: what the receiver says it has, not yet compared; 0: nothing */
  uint32_t claimed_crc;
  struct stat seen; /* replaced: as it was when it was sent; st_ino 0: not sent */
  uint64_t wanted;  /* appended: size as of this round */
  bool is_claimed;  /* a receiver that asks has named it */
  bool is_wrong;    /* is to be sent anew */
};

struct ct_sender {
  /* under the lock */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool end_asked, is_abandoned, is_done;
  uint64_t patience_ns;
  int fd; /* set by the thread, shut down by its owner; -1: no connection */
  /* the thread's own */
  pthread_t thread;
  bool has_thread, is_ending;
  char *address, *token;
  uint8_t id[CT_LINK_ID_BYTES];
  bool is_one_way;          /* fd:N: nobody answers, and there is no other connection */
  struct ct_fanout *fanout; /* nats://: a server between us and many; else NULL */
  size_t chunk;             /* bytes of a file in one frame */
  int dir_fd;
  struct ct_link_frame frame;
  struct ct_prompt prompt;
  uint64_t sent_ns;  /* when the last frame was begun */
  uint64_t moved_ns; /* when one was taken last */
  uint64_t cuts;
  void *files; /* of tsearch, by name */
  char refusal[400];
  int code;
  struct ct_diag diag;
};

/* What a receiver has of a file. */
struct ct_claim {
  const char *name;
  size_t name_bytes;
  uint64_t bytes;
  uint32_t crc;
  bool may_skip; /* nobody needs what is before it */
};

/* sender.c: sends the frame. False: the connection is lost. */
bool ct_sender_put(struct ct_sender *sender);
/* Says that we are there, when nothing was said for so long. */
bool ct_sender_ping(struct ct_sender *sender, uint64_t after_ms);

/* Whether the owner has had enough. */
bool ct_sender_is_abandoned(struct ct_sender *sender);

/* sending.c. The file of that name, made when it is new; NULL: out of memory. */
struct sent_file *ct_sender_file(struct ct_sender *sender, const char *name, size_t size);
/* Sends what is new. False: the connection is lost, or memory is exhausted. */
bool ct_sender_round(struct ct_sender *sender);
/* Sends size and checksum of all files that are there. */
bool ct_sender_check(struct ct_sender *sender, uint32_t *count);
/* The file is to be sent anew, from its begin. */
void ct_sender_again(struct ct_sender *sender, const char *name, size_t size);
/* The same, but by the next ct_sender_mend; a file that is not known is passed over. */
void ct_sender_wrong(struct ct_sender *sender, const char *name, size_t size);
void ct_sender_mend(struct ct_sender *sender);
/*
 * Goes back for a receiver that has what is claimed between begin and end, and nothing else. False: the connection is
 * lost.
 */
void ct_sender_claim_begin(struct ct_sender *sender);
bool ct_sender_claim(struct ct_sender *sender, const struct ct_claim *claim);
void ct_sender_claim_end(struct ct_sender *sender);
/* A new connection: nothing is known to have arrived. */
void ct_sender_forget(struct ct_sender *sender);
/* Bytes of the files that were not sent over this connection, or did not arrive over the last one. */
uint64_t ct_sender_missing(struct ct_sender *sender);
void ct_sender_sums(struct ct_sender *sender, struct ct_stream_summary *summary);
void ct_sender_free_files(struct ct_sender *sender);

#endif
