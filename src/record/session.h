/* SPDX-License-Identifier: MIT */
/* Recording a program from its first instruction to its end. */
#ifndef CT_RECORD_SESSION_H
#define CT_RECORD_SESSION_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_RING_MIB_DEFAULT 80 /* 1,280 segments: 1,024 threads and some to spare */

struct ct_exclude; /* hook/exclude.h */

struct ct_record_options {
  const char *directory;      /* of the trace; must not exist or be empty */
  char *const *argv;          /* program and arguments, NULL at the end */
  uint32_t ring_mib;          /* shared memory for events */
  struct ct_exclude *exclude; /* functions not to be hooked; NULL: none. It learns which patterns match */
  bool no_cache;              /* plan all files anew, and keep nothing */
  uint32_t max_depth;         /* calls deeper than that are left out of the trace; 0: none */
  bool lossless;              /* threads wait (bounded) for the drain instead of overwriting */
  bool int3;                  /* hook by int3 what no jump fits; the program must not handle, block or ignore SIGTRAP */
};

struct ct_record_result {
  int exec_errno;  /* the program could not be executed: errno, else 0 */
  bool ran;        /* the program ran to its end */
  int wait_status; /* as from waitpid, when it ran */
  uint64_t events;
  uint64_t dropped;
  char note[256]; /* something the user should know although the recording is good; "" if nothing */
};

/*
 * Runs and records. 0 when the program ran and the trace is whole; otherwise an error, diag says which, and
 * result->ran tells whether the program ran to its end all the same.
 */
int ct_record(const struct ct_record_options *options, struct ct_record_result *result, struct ct_diag *diag);

#endif
