/* SPDX-License-Identifier: MIT */
/*
 * A plan as bytes, for the cache: see plan_file.c for the layout. Only ever read by the very build of contrail that
 * wrote it, so that the structures of plan.h are stored as they are.
 */
#ifndef CT_PLAN_FILE_H
#define CT_PLAN_FILE_H

#include "plan/plan.h"
#include "target/elf.h"

/*
 * What a plan was made of, and by whom. Equal keys give equal plans. No padding: compared as bytes.
 *
 * With a build-id the file's size and modification time are enough. Without one its whole content is read, at some
 * 4 GB/s. By device, inode and times it would cost nothing; but a file that is written to twice within a tick of the
 * kernel's clock (4 ms; seconds on some file systems) has the same times, and what is stored through a mapping changes
 * them when the page is first written to, not when the bytes are: a plan of other bytes would break the program.
 */
struct ct_plan_key {
  char build_id[136]; /* hex, the rest zero; "" without one */
  uint64_t file_bytes;
  int64_t changed_ns;                              /* of the file; 0 without a build-id */
  uint64_t content[2];                             /* XXH3 of the file without a build-id, else 0 */
  struct ct_file_stamp debug[CT_DEBUG_CANDIDATES]; /* the separate debug files that there are */
  uint8_t planner[48];                             /* this build of contrail */
};

/* fd, elf: the file; the elf with layout_only or not. 0, or an error when the file cannot be read. */
int ct_plan_key_make(int fd, const struct ct_elf *elf, struct ct_plan_key *key);

/* The bytes of a plan, to be freed; NULL when memory is exhausted. path: of the file, for a list. */
void *ct_plan_encode(const struct ct_plan *plan, const struct ct_plan_key *key, const char *path, size_t *size);

/*
 * Fills the empty plan, whose elf is open, from bytes, which must be writable, aligned to 8 bytes and live as long as
 * the plan. 0, CT_ENOENT when the key is another one, or CT_EFORMAT when they are damaged.
 */
int ct_plan_decode(void *bytes, size_t size, const struct ct_plan_key *key, struct ct_plan *plan);

/* What a file in the cache says of itself, for a list. Only the head is looked at. */
struct ct_plan_file_info {
  char path[512]; /* of the module when it was planned; cut when it is longer */
  char build_id[136];
  uint64_t functions;
  bool current; /* of this build of contrail */
};
int ct_plan_file_info(const void *bytes, size_t size, struct ct_plan_file_info *info);

#endif
