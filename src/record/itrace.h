/* SPDX-License-Identifier: MIT */
/*
 * Calls that are recorded as instructions while functions are recorded as ever: what is wanted, what has become of it.
 * All of it is the session's thread's. A probe belongs to a rule, by the rule's slot, or was made by the caller.
 */
#ifndef CT_RECORD_ITRACE_H
#define CT_RECORD_ITRACE_H

#include "itrace/calls.h"
#include "itrace/watch.h"
#include "ring/layout.h"

#include <jansson.h>
#include <stdio.h>

enum { ITRACE_ENDED_KEPT = 256 };

enum session_probe_state {
  SESSION_PROBE_NONE,
  SESSION_PROBE_OPEN,
  SESSION_PROBE_CLOSED, /* nothing more is begun */
};

struct session_probe {
  enum session_probe_state state;
  uint64_t serial;            /* of its making: its place is used again */
  char *function, *condition; /* condition NULL: none */
  struct ct_condition when;
  uint64_t allowed;  /* calls, all in all ... */
  uint64_t begun;    /* ... and so many have been begun */
  uint64_t recorded; /* from begin to end */
  uint64_t cut;      /* released before their end, or their thread has ended */
  uint64_t failed;
  uint64_t steps;
  size_t functions; /* that it is about, at most at a time */
};

/* What others see of a probe. */
struct session_probe_seen {
  uint64_t serial; /* 0: there has been none in this place */
  uint64_t ended;  /* calls that have been recorded, or cut */
  bool is_open;    /* calls are still to come, or to end */
};

/* A call that has ended, for those who wait for it. */
struct itrace_ended {
  uint64_t serial, ordinal; /* which of which probe's, from 1 on */
  uint64_t first_step, steps;
  uint32_t fn;
  int tid;
  char *name; /* the function's; NULL: none */
  const char *outcome;
};

struct session_itrace {
  struct ct_itrace *calls; /* NULL: there has been none */
  struct session_probe probes[CT_ITRACE_PROBES];
  struct itrace_live { /* calls that are being recorded */
    uint64_t number, tsc;
    uint32_t probe, fn, slot;
  } *live;
  size_t live_count;
  uint64_t next_number, serials;
  struct itrace_ended *ended; /* the last ITRACE_ENDED_KEPT, in turn; NULL: none yet */
  uint64_t ended_count;       /* all that there have been */
  FILE *list;                 /* itrace.tsv; NULL: not yet */
  bool list_failed;
  struct ct_itrace_calls_summary summary; /* at the end */
  json_t *last;                           /* the list of probes as they were at the end of the recording; NULL: none */
};

#endif
