/* SPDX-License-Identifier: MIT */
/*
 * A plan as bytes, for the cache: see plan_file.c for the layout. Only ever read by the very build of contrail that
 * wrote it, so that the structures of plan.h are stored as they are.
 */
#ifndef CT_HOOK_PLAN_FILE_H
#define CT_HOOK_PLAN_FILE_H

#include "hook/plan.h"
#include "target/elf.h"

#include <sys/stat.h>

/* What a plan was made of, and by whom. Equal keys give equal plans. No padding: compared as bytes. */
struct ct_plan_key {
  char build_id[136]; /* hex, the rest zero */
  uint64_t file_bytes;
  int64_t changed_ns;                          /* of the file */
  struct ct_file_stamp debug[CT_DEBUG_PLACES]; /* the separate debug files that there are */
  uint8_t planner[48];                         /* this build of contrail */
};

/* elf: the file, opened with layout_only or not. 0, or CT_ENOENT when it has no build-id. */
int ct_plan_key_make(const struct ct_elf *elf, const struct stat *file, struct ct_plan_key *key);

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
