/* SPDX-License-Identifier: MIT */
/*
 * From the records of a store (store.h) to the files of a trace directory: the threads' files, what the program wrote,
 * and what the manifest says of them. A dump, the end of a recording and contrail recover all go this way. No record is
 * believed: a block whose checksums are wrong is left out and counted.
 */
#ifndef CT_TRACE_KEPT_H
#define CT_TRACE_KEPT_H

#include "base/error.h"
#include "trace/store.h"

#include <jansson.h>

struct ct_kept; /* opaque */

/* Writes into the directory, which stays the caller's; path: for messages, copied. What of these files is there already
 * is written anew. */
int ct_kept_create(int dir_fd, const char *path, struct ct_kept **out, struct ct_diag *diag);
void ct_kept_destroy(struct ct_kept *kept); /* accepts NULL */

/* The next record, in their order. */
int ct_kept_add(struct ct_kept *kept, const struct ct_store_record *record, const uint8_t *data, struct ct_diag *diag);
/* What was added goes again: there are records missing between it and the next one. */
int ct_kept_start_over(struct ct_kept *kept, struct ct_diag *diag);
/* All of the store's records up to that sequence number. Others may put more of them meanwhile. */
int ct_kept_add_all(struct ct_kept *kept, struct ct_store *store, uint64_t end_sequence, struct ct_diag *diag);
/* Everything is on the disk. */
int ct_kept_sync(struct ct_kept *kept, struct ct_diag *diag);

struct ct_kept_sums {
  uint64_t threads, events, bytes;
  uint64_t not_kept; /* events before the first ones kept, of the threads that are here */
  uint64_t missing;  /* ... and between them */
  uint64_t damaged;  /* records that were left out */
  uint64_t last_tsc;
  uint64_t put_tsc, put_ns; /* both clocks when the last record was put */
};
void ct_kept_get_sums(const struct ct_kept *kept, struct ct_kept_sums *sums);

/*
 * Makes the manifest one of a trace of the last stretch: version, "threads", "files", "output", "kept". Each thread
 * there has had `events` in all; what of them is not here becomes `not_kept`.
 */
struct ct_kept_limits {
  uint64_t bytes, ns; /* as the recording was given; ns 0: none */
  uint64_t begin_tsc; /* everything after that is here */
  uint64_t since_ns;  /* likewise */
};
int ct_kept_amend(const struct ct_kept *kept, json_t *manifest, const struct ct_kept_limits *limits);

#endif
