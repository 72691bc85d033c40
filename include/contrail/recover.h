/* SPDX-License-Identifier: MIT */
/*
 * After contrail was killed: traces out of what it left. One that kept the last stretch only (contrail record --last)
 * left its memory, a file; any other one a trace whose manifest says that it is being recorded.
 */
#ifndef CONTRAIL_RECOVER_H
#define CONTRAIL_RECOVER_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_RECOVER_PATH_BYTES = 4096 };

/* The memory of a recorder that is dead. */
struct ct_recover_memory {
  size_t struct_size;                    /* set by the library */
  char path[CT_RECOVER_PATH_BYTES];      /* of the file */
  char directory[CT_RECOVER_PATH_BYTES]; /* of the trace that its events belong to; "" when the file is damaged */
  pid_t pid;                             /* of the process that was recorded */
  uint64_t start_wall_ns;
  bool directory_is_gone; /* it has been removed; another one may be in its place */
};
typedef void ct_recover_visit(void *context, const struct ct_recover_memory *memory);
/* Visits those of this user. Others, and those of recorders that live, are passed over. 0, or an error with diag. */
int ct_recover_list(ct_recover_visit *visit, void *context, struct ct_diag *diag);

/* What became of a trace. */
struct ct_recover_report {
  size_t struct_size;                    /* to be set to sizeof(struct ct_recover_report) */
  char directory[CT_RECOVER_PATH_BYTES]; /* where it is */
  uint64_t threads, events;              /* in it */
  uint64_t not_kept;                     /* events before these that the recording was not to keep */
  uint64_t missing;                      /* events between them that are lost */
  uint64_t damaged;                      /* pieces of the memory that could not be used */
  uint64_t cut_bytes;                    /* parts of blocks, at the ends of files */
  uint64_t ns;                           /* how long a time they are */
};
/* A thread from which something is lost. */
struct ct_recover_loss {
  size_t struct_size; /* set by the library */
  uint32_t index, tid;
  uint64_t events;    /* that are gone, as far as that can be known ... */
  uint64_t cut_bytes; /* ... and what of a block stood at the end of its file */
};
typedef void ct_recover_loss_visit(void *context, const struct ct_recover_loss *loss);

/* Writes the events of that memory (a path as ct_recover_list gives it) into its trace directory, and removes it. When
 * it fails the memory stays. CT_EEXIST: its recorder lives. */
int ct_recover_memory(const char *path, struct ct_recover_report *report, struct ct_diag *diag);
/*
 * Makes a trace complete whose recorder was killed: parts of blocks at the ends of files go, whole blocks stay, its
 * manifest gets the state "recovered". loss may be NULL. CT_ENOENT: there is nothing to do; CT_EEXIST: it is being
 * recorded.
 */
int ct_recover_trace(const char *directory, ct_recover_loss_visit *loss, void *context,
                     struct ct_recover_report *report, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
